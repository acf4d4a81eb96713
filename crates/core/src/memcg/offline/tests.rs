//! Tests of the removal of memcgs.

use crate::UNLIMITED;
use crate::folio::Kind;
use crate::lru::{self, Context, Grant, Pass, Queue, References, Scan, Turn, TurnStep};
use crate::memcg::Effective;
use crate::reclaim::{EffortKind, Proactive, RequestStep};
use crate::testing::Harness;
use crate::{Arrival, ChargeStep, Charging, Counter, Lru, Mechanisms, MemcgId, Preset, Switch, Time};

fn add(harness: &Harness, parent: MemcgId, name: &str) -> MemcgId {
    harness.core.add_child(parent, name, UNLIMITED, Time::ZERO).unwrap().id()
}

fn remove(harness: &Harness, memcg: MemcgId) {
    harness.core.remove_memcg(&harness.host, memcg).unwrap();
}

/// Brings pages in for a memcg.
fn bring(harness: &mut Harness, memcg: MemcgId, pages: std::ops::Range<u32>) {
    harness.task = harness.core.new_task(memcg, 0);
    harness.read_ahead(pages);
}

fn usage(harness: &Harness, memcg: MemcgId) -> u64 {
    harness.core.memcg(memcg).usage_pages()
}

/// Pages of a removed memcg become the root's: they can be evicted and released.
#[test]
fn pages_that_went_to_the_root_can_go() {
    for batch_folios in [1, 31] {
        let mut harness = Harness::new(1000, batch_folios);
        harness.read_ahead(0..300);
        let memcg = harness.task.memcg;
        remove(&harness, memcg);
        harness.core.validate().unwrap();
        assert_eq!((usage(&harness, memcg), usage(&harness, MemcgId::ROOT)), (0, 300));
        assert_eq!(harness.core.truncate(&harness.host, &harness.mapping, 0, 100), None);
        harness.task.memcg = MemcgId::ROOT;
        assert_eq!(harness.evict(64).0, 64);
        assert_eq!(usage(&harness, MemcgId::ROOT), 136);
        harness.core.validate().unwrap();
        harness.core.drop_handle(memcg);
        assert_eq!(harness.core.memcgs.iter().count(), 1);
    }
}

/// A turn that began before its memcg was removed takes no pages of the heir.
#[test]
fn a_turn_of_a_removed_memcg_takes_nothing() {
    let classic = Mechanisms::default().with_lru(Lru::Classic);
    let mut harness = Harness::with_mechanisms(classic, 1000, 1);
    harness.read_ahead(0..300);
    (0..100).for_each(|page| (0..2).for_each(|_| harness.read(page)));
    let memcg = harness.task.memcg;
    let (core, orders, mut scan) = (&harness.core, harness.root_orders(32), Scan::default());
    let cx = &mut Context::new(core, &harness.host, &orders, &mut scan);
    let pass = Pass::new(cx, 0);
    let grant = Grant {
        memcg: core.memcg(memcg),
        spared: Effective::default(),
        priority: 0,
        by_age: false,
        only_looks: false,
    };
    let mut turn = Turn::begin(cx, grant, &pass);
    remove(&harness, memcg);
    while turn.step(cx) == TurnStep::More {}
    assert_eq!(turn.step(cx), TurnStep::Finished);
    assert_eq!((scan.progress.scanned, usage(&harness, MemcgId::ROOT)), (0, 300));
    core.validate().unwrap();
}

/// A page charged before its memcg was removed, and inserted afterwards, is counted by the heir.
#[test]
fn a_page_that_comes_too_late_is_the_heirs() {
    let harness = Harness::new(1000, 1);
    let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
    let ChargeStep::Charged(new) = Charging::new(memcg, 0).step(core, host) else { panic!("there is room") };
    remove(&harness, memcg);
    core.insert(host, &harness.task, &harness.mapping, 7, new, Arrival::default()).unwrap();
    let files = |memcg| core.memcg(memcg).stat().get(Counter::File);
    assert_eq!((files(memcg), files(MemcgId::ROOT)), (0, 1));
}

/// Folios that were on no list when their memcg was removed become the heir's once they are listed.
#[test]
fn folios_on_their_way_are_adopted() {
    let mut harness = Harness::new(1000, 31);
    let memcgs: Vec<MemcgId> = ["a", "b", "c"].map(|name| add(&harness, MemcgId::ROOT, name)).to_vec();
    for (&memcg, first) in memcgs.iter().zip([0, 10, 20]) {
        bring(&mut harness, memcg, first..first + 5);
    }
    // All three are removed while these wait in one batch.
    let queued = harness.core.arrivals.take(0, Queue::Add).unwrap();
    for &memcg in &memcgs {
        remove(&harness, memcg);
        harness.core.drop_handle(memcg);
        assert_eq!(usage(&harness, memcg), 5);
    }
    harness.core.drain_batch(&harness.host, Queue::Add, queued.as_slice());
    assert_eq!(usage(&harness, MemcgId::ROOT), 15);
    // Nothing refers to any of them now.
    assert_eq!(harness.core.memcgs.iter().count(), 2);
    harness.core.validate().unwrap();
}

/// A parent may be removed while its child is handed over: the grandparent gets the pages, and the
/// parent is not charged.
#[test]
fn a_parent_may_go_first() {
    let mut harness = Harness::new(1000, 1);
    let top = harness.task.memcg;
    let parent = add(&harness, top, "parent");
    let child = add(&harness, parent, "child");
    bring(&mut harness, child, 0..50);
    bring(&mut harness, parent, 50..60);
    harness.core.memcgs.take_offline(harness.core.memcg(child)).unwrap();
    remove(&harness, parent);
    assert_eq!((usage(&harness, top), usage(&harness, parent)), (60, 50));
    harness.core.reparent(harness.core.memcg(child), &harness.host);
    assert_eq!([top, parent, child].map(|memcg| usage(&harness, memcg)), [60, 0, 0]);
    harness.core.validate().unwrap();
    harness.core.drop_handle(parent);
    assert_eq!(harness.core.memcgs.iter().count(), 4, "the child is still there");
    harness.core.drop_handle(child);
    assert_eq!(harness.core.memcgs.iter().count(), 2);
}

/// A reclaimer of a memcg that is removed meanwhile takes nothing from the heir.
#[test]
fn reclaim_of_a_removed_memcg_spares_its_heir() {
    let mut harness = Harness::new(1000, 1);
    let parent = harness.task.memcg;
    let child = add(&harness, parent, "child");
    bring(&mut harness, child, 0..100);
    remove(&harness, child);
    assert_eq!((harness.evict(64).0, usage(&harness, parent)), (0, 100));
    harness.core.validate().unwrap();
}

/// A task outlives its memcg: an ancestor pays, whether pages are handed over or not.
#[test]
fn tasks_may_outlive_their_memcg() {
    for preset in [Preset::Default, Preset::Linux612] {
        let mut harness = Harness::with_preset(preset, 1000, 1);
        let parent = harness.task.memcg;
        let child = add(&harness, parent, "child");
        let grandchild = add(&harness, child, "grandchild");
        bring(&mut harness, grandchild, 0..10);
        remove(&harness, grandchild);
        remove(&harness, child);
        let kept = usage(&harness, grandchild);
        assert_eq!(kept, if preset == Preset::Default { 0 } else { 10 });
        harness.read_ahead(10..30);
        assert_eq!((usage(&harness, parent), usage(&harness, grandchild)), (30, kept));
        harness.core.validate().unwrap();
        assert_eq!(harness.core.truncate(&harness.host, &harness.mapping, 0, 30), None);
        [grandchild, child].into_iter().for_each(|memcg| harness.core.drop_handle(memcg));
        assert_eq!(harness.core.memcgs.iter().count(), 2);
    }
}

/// A charge under way when its memcg is removed goes to an ancestor.
#[test]
fn payments_survive_their_memcg() {
    let mut harness = Harness::new(1000, 1);
    let child = add(&harness, harness.task.memcg, "child");
    harness.core.memcg(child).set_max_pages(0);
    let mut charging = Charging::new(child, 0);
    assert!(matches!(charging.step(&harness.core, &harness.host), ChargeStep::More));
    remove(&harness, child);
    let new = loop {
        match charging.step(&harness.core, &harness.host) {
            ChargeStep::Charged(new) => break new,
            ChargeStep::More => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(harness.memcg().usage_pages(), 1);
    drop(new);
    harness.task.memcg = MemcgId::ROOT;
    harness.core.drop_handle(child);
    assert_eq!(harness.core.memcgs.iter().count(), 2);
}

/// The stock of a removed memcg is given back, and its protection ends.
#[test]
fn a_removed_memcg_leaves_no_stock_and_no_protection() {
    let mut options = Harness::multigen_options(1024);
    options.charge_batch_pages = 64;
    let harness = Harness::with_options(options, 1000);
    let parent = harness.task.memcg;
    let siblings = ["a", "b"].map(|name| add(&harness, parent, name));
    for memcg in siblings {
        harness.core.memcgs.set_low(memcg, 100);
        super::charging::charge_one(&harness.core, memcg, 0);
    }
    harness.core.memcgs.set_low(parent, 100);
    let low = |memcg| harness.core.memcgs.effective_protection(memcg, MemcgId::ROOT).low_pages;
    assert_eq!(siblings.map(low), [50, 50]);
    remove(&harness, siblings[0]);
    harness.core.uncharge_pages(siblings[0], 1);
    // A write to its control file at this moment comes too late.
    harness.core.memcgs.set_low(siblings[0], 100);
    harness.core.drop_handle(siblings[0]);
    assert_eq!((harness.core.memcgs.iter().count(), low(siblings[1])), (3, 64));
    assert_eq!((usage(&harness, parent), harness.core.memcgs.subtree_stat(parent, Counter::File)), (64, 0));
}

/// A task that moves takes its address space along, even out of a removed memcg.
#[test]
fn address_spaces_follow_their_tasks() {
    let mut harness = Harness::new(1000, 1);
    let [a, b] = ["a", "b"].map(|name| add(&harness, MemcgId::ROOT, name));
    let mut task = harness.core.new_task(a, 0);
    remove(&harness, a);
    harness.core.move_task(&mut task, b);
    let has = |memcg, force| {
        let spaces = &harness.core.memcg(memcg).spaces;
        matches!(spaces.next(3, force, || ()), crate::mm::Next::Walk { .. })
    };
    assert!(!has(MemcgId::ROOT, true) && has(b, true));
    harness.core.end_task(&task);
    assert!(!has(b, true));
    harness.core.drop_handle(a);
    harness.read_ahead(0..1);
    harness.core.validate().unwrap();
}

/// The shadows of a memcg's evicted pages go with it, and so do their leaves.
#[test]
fn shadows_go_with_their_memcg() {
    for preset in [Preset::Default, Preset::Linux612] {
        let mut harness = Harness::with_preset(preset, 256, 1);
        let memcg = harness.task.memcg;
        harness.read_all(0..2048);
        let nodes = || harness.core.memcgs.subtree_stat(MemcgId::ROOT, Counter::WorkingsetNodes);
        assert!(nodes() > 16, "leaves of 64 pages: {}", nodes());
        remove(&harness, memcg);
        assert_eq!(nodes(), 0, "{preset:?}");
        harness.core.validate().unwrap();
    }
}

/// A thread that looked up a memcg before its removal may count there afterwards. The counts pass
/// on to its nearest living ancestor, however many memcgs came and went, and no new memcg begins
/// with them.
#[test]
fn late_counts_reach_a_living_ancestor() {
    for others in [0, 1, 64, 65, 200] {
        let harness = Harness::new(1000, 1);
        let top = add(&harness, MemcgId::ROOT, "top");
        let middle = add(&harness, top, "middle");
        let went = add(&harness, middle, "went");
        let looked_up = harness.core.memcg(went);
        for memcg in [went, middle] {
            remove(&harness, memcg);
            harness.core.drop_handle(memcg);
        }
        let count = || {
            looked_up.stat.add(Counter::PgstealFile, 5);
            looked_up.stat.add(Counter::EventLow, 1);
        };
        let counted = |memcg| {
            [Counter::PgstealFile, Counter::EventLow]
                .map(|counter| harness.core.memcgs.subtree_stat(memcg, counter))
        };
        count();
        assert_eq!((counted(top), counted(MemcgId::ROOT)), ([5, 1], [5, 1]));
        assert_eq!(harness.core.memcg(top).stat.get_local(Counter::EventLow), 0);
        count();
        for other in 0..others {
            let other = add(&harness, MemcgId::ROOT, &other.to_string());
            assert_eq!(counted(other), [0, 0]);
            remove(&harness, other);
            harness.core.drop_handle(other);
        }
        assert_eq!((counted(top), counted(MemcgId::ROOT)), ([10, 2], [10, 2]), "after {others} others");
        if others <= 64 {
            // Its parent is removed after it, and then the next.
            remove(&harness, top);
            harness.core.drop_handle(top);
            count();
            assert_eq!(counted(MemcgId::ROOT), [15, 3]);
        }
    }
}

/// A thread that looked up the owner of a page before its removal may subtract the page there,
/// although the heir has it by now. Both are counted as one, however long ago the number was freed.
#[test]
fn a_page_subtracted_late_is_counted_nowhere() {
    for others in [0, 200] {
        let harness = Harness::new(1000, 1);
        let went = add(&harness, MemcgId::ROOT, "went");
        let looked_up = harness.core.memcg(went);
        looked_up.stat.add(Counter::File, 1);
        remove(&harness, went);
        harness.core.drop_handle(went);
        let others: Vec<_> =
            (0..others).map(|other| add(&harness, MemcgId::ROOT, &other.to_string())).collect();
        for other in others {
            remove(&harness, other);
            harness.core.drop_handle(other);
        }
        harness.core.validate().expect_err("the root counts a page and has none");
        looked_up.stat.sub(Counter::File, 1);
        harness.core.validate().unwrap();
    }
}

/// Before reparenting, the last batch of an offline memcg was freed, and the memcg with it, before
/// it was counted.
#[test]
fn the_last_batch_of_an_offline_memcg_is_counted() {
    let mut harness = Harness::with_preset(Preset::Linux612, 1000, 1);
    let memcg = harness.task.memcg;
    let child = add(&harness, memcg, "child");
    bring(&mut harness, child, 0..300);
    remove(&harness, child);
    harness.core.drop_handle(child);
    let mut request = Proactive::new(&harness.core, memcg, 300, None, 0);
    while matches!(request.step(&harness.core, &harness.host), RequestStep::More | RequestStep::Wait(_)) {}
    assert_eq!(
        (usage(&harness, memcg), harness.core.memcgs.iter().count()),
        (0, 2),
        "it went with its last page"
    );
    for counter in [Counter::PgstealProactive, Counter::PgscanProactive, Counter::PgstealFile] {
        assert_eq!(harness.core.memcgs.subtree_stat(memcg, counter), 300, "{counter:?}");
    }
}

/// Before Linux 7.1. The removed memcg has one page left, known only to a batch of activations, and
/// a shadow of another page in the harness's mapping. Of the harness's own pages, 0 to 63 are
/// cached.
fn gone_but_for_a_queued_page(lru: Lru) -> (Harness, MemcgId) {
    let mechanisms = Mechanisms::compose(Preset::Linux71, &[], &[Switch::ReparentOffline]).unwrap();
    let mut harness = Harness::with_mechanisms(mechanisms.with_lru(lru), 1000, 31);
    let own = harness.task.clone();
    let memcg = add(&harness, MemcgId::ROOT, "gone");
    bring(&mut harness, memcg, 6400..6401);
    let mapping = std::mem::replace(&mut harness.mapping, harness.core.open_mapping(Kind::File));
    bring(&mut harness, memcg, 0..1);
    harness.drain();
    remove(&harness, memcg);
    harness.core.drop_handle(memcg);
    let last = harness.folio(0);
    assert!(harness.core.folios.flags(last).try_get());
    assert_eq!(harness.effort(EffortKind::Proactive, 1).reclaimed, 1);
    assert_eq!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1), None);
    (harness.task, harness.mapping) = (own, mapping);
    harness.read_ahead(0..64);
    harness.drain();
    harness.core.enqueue_held(&harness.host, 0, Queue::Activate, last);
    let remembered = harness.core.memcg(memcg).stat.get(Counter::WorkingsetNodes);
    assert_eq!((usage(&harness, memcg), remembered), (1, 1));
    (harness, memcg)
}

/// A look-around fills the batch. Draining it releases the memcg's last page, then the memcg and
/// its shadow, in the mapping that is scanned.
#[test]
fn the_last_page_may_go_in_a_look_around() {
    let (mut harness, memcg) = gone_but_for_a_queued_page(Lru::MultiGen);
    // The first look-around only notes them.
    for _ in 0..2 {
        (0..64).for_each(|page| harness.load(page));
        let folio = harness.folio(0);
        let (orders, mut scan) = (harness.orders(1), Scan::default());
        let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
        assert_ne!(lru::references(cx, harness.memcg(), folio), References::None);
    }
    assert_eq!((usage(&harness, memcg), harness.core.memcgs.iter().count()), (0, 2));
    harness.core.validate().unwrap();
}

/// The same when a file is unmapped: the accessed bits of its page-table entries are second
/// accesses.
#[test]
fn the_last_page_may_go_when_a_file_is_unmapped() {
    let (mut harness, memcg) = gone_but_for_a_queued_page(Lru::Classic);
    (0..64).for_each(|page| harness.read(page));
    (0..64).for_each(|page| harness.load(page));
    harness.core.unmap(&harness.host, &harness.task, &harness.mapping);
    assert_eq!((usage(&harness, memcg), harness.core.memcgs.iter().count()), (0, 2));
    assert_eq!(harness.mapping.mapped_pages(), 0);
    harness.core.validate().unwrap();
}

/// The next memcg with a number starts as every new one does, whatever the former did.
#[test]
fn a_reused_number_remembers_nothing() {
    for lru in Lru::ALL {
        let mechanisms = Mechanisms::preset(Preset::Default).with_lru(lru);
        let mut harness = Harness::with_mechanisms(mechanisms, 200, 1);
        let first = add(&harness, MemcgId::ROOT, "first");
        harness.core.memcg(first).set_max_pages(100);
        // Far from each other, so that each leaves a leaf with its shadow.
        let pages = |pages: std::ops::Range<u32>| pages.map(|page| page * 64);
        harness.task = harness.core.new_task(first, 0);
        harness.read_ahead(pages(0..800));
        harness.read_ahead(pages(700..780));
        assert!(harness.core.memcg(first).stat().get(Counter::WorkingsetRefaultFile) > 0);
        assert_eq!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1 << 32), None);
        remove(&harness, first);
        harness.core.end_task(&harness.task);
        harness.core.drop_handle(first);
        let reused = loop {
            let next = add(&harness, MemcgId::ROOT, "next");
            if next == first {
                break harness.core.memcg(next);
            }
            remove(&harness, next);
            harness.core.drop_handle(next);
        };
        let fresh = lru::Lruvec::new(first, Time::ZERO);
        if lru == Lru::Ranked {
            // Its state is created at the first use.
            let _ = fresh.ranked.figures();
        }
        assert_eq!(format!("{:#?}", reused.lruvec), format!("{fresh:#?}"), "{lru:?}");
    }
}
