//! Properties that hold under the multi-gen and the classic LRU, and while one is switched to the
//! other.

use crate::common::Harness;
use mglru_core::lru::switch::SwitchStep;
use mglru_core::reclaim::EffortKind;
use mglru_core::*;

const LIMIT_PAGES: u64 = 400;

/// The policy of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    One(Lru),
    /// Switched after half of the pages came, so that both policies have folios on lists.
    Switching(Lru),
}

const ALL: [Under; 4] = [
    Under::One(Lru::MultiGen),
    Under::One(Lru::Classic),
    Under::Switching(Lru::MultiGen),
    Under::Switching(Lru::Classic),
];

fn mechanisms(lru: Lru) -> Mechanisms {
    Mechanisms::default().with_lru(lru)
}

fn other(lru: Lru) -> Lru {
    if lru == Lru::Classic { Lru::MultiGen } else { Lru::Classic }
}

/// A full memcg, after one read of pages 0 to 399.
fn full(under: Under) -> Harness {
    let first = match under {
        Under::One(lru) => lru,
        Under::Switching(to) => other(to),
    };
    let mut harness = Harness::with_mechanisms(mechanisms(first), LIMIT_PAGES, 31);
    harness.read_all(0..200);
    if let Under::Switching(to) = under {
        harness.drain();
        let mut switch = harness.core.switch_lru(to);
        // Only some folios are moved.
        assert_eq!(switch.step(&harness.core, 50), SwitchStep::More);
    }
    harness.read_all(200..400);
    harness.core.validate().unwrap();
    harness
}

#[test]
fn limits_hold_and_old_pages_go_first() {
    for under in ALL {
        let mut harness = full(under);
        harness.read_all(400..1400);
        harness.core.validate().unwrap();
        assert!(harness.memcg().usage_pages() <= LIMIT_PAGES, "{under:?}");
        let evicted = harness.evicted();
        assert!(evicted.len() >= 1000, "{under:?}");
        let left = (0..400).filter(|&page| harness.is_cached(page)).count();
        // The few folios left under the old policy are scanned in proportion to their number.
        let few = if matches!(under, Under::One(_)) { 0 } else { 40 };
        assert!(left <= few, "{under:?}: {left} of those that were read once, long ago");
        assert!((1390..1400).all(|page| harness.is_cached(page)), "{under:?}");
    }
}

#[test]
fn efforts_find_pages_on_the_lists_of_both() {
    for under in ALL {
        let harness = full(under);
        let mut freed = 0;
        while freed < 300 {
            let progress = harness.effort(EffortKind::Proactive, 32);
            assert!(progress.reclaimed >= 32, "{under:?}: {progress:?} after {freed}");
            freed += progress.reclaimed;
            harness.core.validate().unwrap();
        }
        assert_eq!(harness.memcg().usage_pages(), 400 - freed);
    }
}

#[test]
fn dirty_pages_stay_until_they_are_written() {
    for under in ALL {
        let harness = full(under);
        harness.drain();
        (0..400).for_each(|page| harness.write(page));
        assert_eq!(harness.effort(EffortKind::Proactive, 32).reclaimed, 0, "{under:?}");
        assert!(harness.host.flushes.borrow().contains(&FlushReason::Reclaim), "{under:?}");
        let folios = harness.start_writeback();
        assert_eq!(harness.effort(EffortKind::Proactive, 32).reclaimed, 0, "{under:?}");
        harness.end_writeback(folios);
        harness.core.validate().unwrap();
        assert!(harness.effort(EffortKind::Proactive, 32).reclaimed >= 32, "{under:?}");
    }
}

#[test]
fn pages_that_are_used_stay_longer() {
    for under in ALL {
        let mut harness = full(under);
        // Accessed again and again, by reads and through a mapping.
        for round in 0..30 {
            (0..60).for_each(|page| harness.read(page));
            (60..120).for_each(|page| harness.load(page));
            harness.read_all(1000 + round * 40..1040 + round * 40);
        }
        harness.core.validate().unwrap();
        let kept = |pages: std::ops::Range<u32>| pages.filter(|&page| harness.is_cached(page)).count();
        assert!(kept(0..60) >= 55 && kept(60..120) >= 55, "{under:?}: {} {}", kept(0..60), kept(60..120));
    }
}

#[test]
fn pages_that_must_stay_do() {
    for under in ALL {
        let mut harness = full(under);
        harness.drain();
        let folios: Vec<FolioId> = [0, 50, 199, 200, 399].map(|page| harness.folio(page)).into();
        folios.iter().for_each(|&folio| harness.core.set_mlocked(folio, true));
        harness.read_all(400..1200);
        assert!([0, 50, 199, 200, 399].iter().all(|&page| harness.is_cached(page)), "{under:?}");
        let culled = harness.memcg().lruvec().unevictable_pages();
        assert!(culled == 5 || culled >= 3 && matches!(under, Under::Switching(_)), "{under:?}: {culled}");
        for &folio in &folios {
            harness.core.set_mlocked(folio, false);
            harness.core.rescue(folio);
        }
        harness.core.validate().unwrap();
        harness.read_all(1200..2400);
        let gone = [0, 50, 199, 200, 399].iter().filter(|&&page| !harness.is_cached(page)).count();
        assert!(gone == 5 || gone >= 2 && matches!(under, Under::Switching(_)), "{under:?}: {gone}");
    }
}

#[test]
fn removed_pages_leave_nothing() {
    for under in ALL {
        let harness = full(under);
        assert!(harness.core.truncate(&harness.host, &harness.mapping, 100, 300).is_none());
        harness.core.invalidate(&harness.host, &harness.mapping, 0, 50, 0);
        harness.drain();
        harness.core.validate().unwrap();
        assert_eq!(harness.memcg().usage_pages(), 150, "{under:?}");
        assert!(harness.core.close_mapping(&harness.host, &harness.mapping).is_none());
        harness.drain();
        harness.core.validate().unwrap();
        assert_eq!(harness.memcg().usage_pages(), 0, "{under:?}");
    }
}

/// [book: classic-lru#checks]: "Engine switch on → off → on keeps every folio exactly once on a
/// list". The order of eviction stays, too.
#[test]
fn a_switch_keeps_every_folio_and_their_order() {
    let mut harness = Harness::with_mechanisms(mechanisms(Lru::Classic), LIMIT_PAGES, 31);
    harness.read_ahead(0..300);
    harness.drain();
    // Two more accesses activate each of the first 20.
    (0..20).for_each(|page| (0..2).for_each(|_| harness.read(page)));
    harness.drain();
    let active = |harness: &Harness| harness.memcg().lruvec().active_pages(Kind::File);
    assert_eq!(active(&harness), 20);
    let mut pages = 300;
    for to in [Lru::MultiGen, Lru::Classic, Lru::MultiGen, Lru::Classic] {
        let mut switch = harness.core.switch_lru(to);
        assert_eq!(harness.core.lru(), to);
        // New pages arrive meanwhile.
        harness.read_ahead(pages..pages + 5);
        pages += 5;
        harness.drain();
        loop {
            harness.core.validate().unwrap();
            let listed = active(&harness) + harness.memcg().lruvec().inactive_pages(Kind::File);
            assert_eq!(listed, u64::from(pages), "{to:?}");
            if switch.step(&harness.core, 30) == SwitchStep::Done {
                break;
            }
        }
        assert_eq!(active(&harness), 20, "{to:?}: active pages stay active");
    }
    let mut stale = harness.core.switch_lru(Lru::MultiGen);
    let mut switch = harness.core.switch_lru(Lru::Classic);
    assert_eq!(stale.step(&harness.core, 30), SwitchStep::Superseded);
    while switch.step(&harness.core, 4096) == SwitchStep::More {}
    harness.effort(EffortKind::Proactive, 290);
    let evicted = harness.evicted();
    assert!(evicted.len() >= 250 && evicted[..250].is_sorted() && evicted[0] == 20, "{evicted:?}");
}

/// A kernel that switched reclaim first and then moved the folios had moments in which reclaim
/// found nothing, and killed processes for lack of memory ([book: classic-lru#switching]). Here
/// every effort finds enough pages after every step.
#[test]
fn reclaim_finds_pages_at_every_step_of_a_switch() {
    for to in Lru::ALL {
        let mut harness = Harness::with_mechanisms(mechanisms(other(to)), 2000, 31);
        harness.read_all(0..2000);
        harness.drain();
        let mut switch = harness.core.switch_lru(to);
        let mut next = 2000;
        loop {
            let progress = harness.effort(EffortKind::Proactive, 32);
            assert!(progress.reclaimed >= 32, "{to:?}: {progress:?}");
            harness.read_all(next..next + 16);
            next += 16;
            harness.core.validate().unwrap();
            if switch.step(&harness.core, 20) == SwitchStep::Done {
                break;
            }
        }
        assert!(next > 2000 + 16 * 20, "the switch took a while");
        assert!(harness.effort(EffortKind::Proactive, 32).reclaimed >= 32);
    }
}

/// The switch visits memcgs by number. It has passed the parent when the child, whose folios it has
/// not moved yet, is removed. If the handover did not move them, no policy would scan them, and 350
/// of 400 pages would be lost for good.
#[test]
fn pages_of_a_memcg_removed_during_a_switch_can_be_taken() {
    for (to, preset) in Lru::ALL.into_iter().flat_map(|to| Preset::ALL.map(|preset| (to, preset))) {
        let mechanisms = Mechanisms::preset(preset).with_lru(other(to));
        let mut harness = Harness::with_mechanisms(mechanisms, LIMIT_PAGES, 31);
        let parent = harness.task.clone();
        let child = harness.core.add_child(parent.memcg, "child", UNLIMITED, Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(child, 0);
        harness.read_all(1000..1350);
        harness.drain();
        let mut switch = harness.core.switch_lru(to);
        // The root, the parent and some of the child's folios.
        (0..50).for_each(|_| assert_eq!(switch.step(&harness.core, 1), SwitchStep::More));
        harness.core.remove_memcg(&harness.host, child).unwrap();
        harness.core.validate().unwrap();
        while switch.step(&harness.core, 1) == SwitchStep::More {}
        harness.core.validate().unwrap();
        (harness.task, harness.misses) = (parent, 0);
        (0..20).for_each(|_| harness.read_all(0..300));
        assert!(harness.misses < 310, "{to:?}, {preset:?}: {} misses", harness.misses);
    }
}
