//! Reclaim over longer times: after files were closed, after long fruitless reclaim, and with more
//! shadows than are worth keeping.

use crate::common::{Harness, QuietHost};
use mglru_core::reclaim::{Background, BackgroundStep, Effort, EffortKind, Orders, Step, Watermarks};
use mglru_core::*;
use std::sync::Arc;

/// Runs background reclaim until it waits, naps or sleeps.
fn run_to_rest(core: &Core, host: &QuietHost, background: &mut Background) -> BackgroundStep {
    loop {
        match background.step(core, host) {
            BackgroundStep::More => {}
            rest => return rest,
        }
    }
}

/// Runs background reclaim until it sleeps. `Some`: it waits for writeback instead.
fn run_background(core: &Core, host: &QuietHost, background: &mut Background) -> Option<Throttle> {
    loop {
        match run_to_rest(core, host, background) {
            BackgroundStep::Wait(throttle) => return Some(throttle),
            BackgroundStep::Sleep => return None,
            _ => {}
        }
    }
}

/// Runs of background reclaim so far.
fn runs(harness: &Harness) -> u64 {
    harness.core.memcg(MemcgId::ROOT).stat().get(memcg::Counter::Pageoutrun)
}

/// Those that began during the nap after the run before, and those that began at its end or without
/// a nap.
fn quick_runs(harness: &Harness) -> [u64; 2] {
    use memcg::Counter::{KswapdHighWmarkHitQuickly, KswapdLowWmarkHitQuickly};
    let stat = harness.core.memcg(MemcgId::ROOT).stat();
    [KswapdLowWmarkHitQuickly, KswapdHighWmarkHitQuickly].map(|counter| stat.get(counter))
}

/// Nodes of 200 frames on which background reclaim keeps 50 to 60 free: under the multi-gen LRU,
/// under the classic LRU, and while the policy is switched.
fn nodes() -> [Harness; 3] {
    [(Lru::MultiGen, None), (Lru::Classic, None), (Lru::Classic, Some(Lru::MultiGen))].map(|(lru, to)| {
        let mut options = Harness::multigen_options(200);
        options.watermarks = Watermarks { min: 0, low: 50, high: 60 };
        options.mechanisms = options.mechanisms.with_lru(lru);
        let harness = Harness::with_options(options, UNLIMITED);
        if let Some(to) = to {
            harness.core.switch_lru(to);
        }
        harness
    })
}

/// Background reclaim that has given up after 16 runs over 190 dirty pages, which are clean now.
fn hopeless(harness: &mut Harness) -> Background {
    let mut background = Background::new(&harness.core, 0);
    harness.read_ahead(0..190);
    harness.drain();
    (0..190).for_each(|page| harness.write(page));
    (0..16).for_each(|_| assert_eq!(run_background(&harness.core, &harness.host, &mut background), None));
    harness.end_writeback(harness.start_writeback());
    background
}

/// Runs an effort of a task for file pages of the node, and returns the free pages after it.
fn reclaim(harness: &Harness, pages: u64) -> u32 {
    let (target, swappiness) = (MemcgId::ROOT, lru::Swappiness::FILE_ONLY);
    let mut effort =
        Effort::new(&harness.core, Orders::new(target, EffortKind::Direct, pages, swappiness, 0));
    while !matches!(effort.step(&harness.core, &harness.host), Step::Done(_)) {}
    harness.core.free_pages()
}

/// A charge that finds no free frame reclaims and is counted; one served by background reclaim is
/// not.
#[test]
fn charges_that_reclaim_by_themselves_are_counted() {
    for mut harness in nodes() {
        let stalls =
            |harness: &Harness| harness.core.memcg(harness.task.memcg).stat().get(memcg::Counter::Allocstall);
        let efforts = |harness: &Harness| {
            harness.core.memcg(MemcgId::ROOT).stat().get(memcg::Counter::AllocstallMovable)
        };
        let mut background = Background::new(&harness.core, 0);
        harness.read_ahead(0..190);
        assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
        harness.read_ahead(190..200);
        assert_eq!(stalls(&harness), 0);
        harness.read_ahead(200..400);
        assert!(
            (1..=10).contains(&stalls(&harness)),
            "{} efforts of at least 32 pages each",
            stalls(&harness)
        );
        assert_eq!(efforts(&harness), stalls(&harness), "an effort for each, for the machine");
    }
}

/// Numbers of closed files are reused: reclaim must not mistake a new file for the old one.
#[test]
fn a_file_that_is_opened_again_is_reclaimed() {
    for mut harness in nodes() {
        let mut background = Background::new(&harness.core, 0);
        for _ in 0..3 {
            harness.read_ahead(0..190);
            assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
            assert!(harness.core.free_pages() > 60, "{} pages are free", harness.core.free_pages());
            let old = harness.mapping.clone();
            assert!(harness.core.close_mapping(&harness.host, &old).is_none());
            harness.mapping = harness.core.open_mapping(Kind::File);
            assert!(harness.mapping.id() == old.id() && !Arc::ptr_eq(&harness.mapping, &old));
            harness.drain();
        }
    }
}

/// [book: reclaim-loop#watermarks]: after 16 fruitless runs the node is hopeless, "until progress.
/// Progress resets the count; from 7.1 on only if the node is balanced at that moment".
#[test]
fn hope_comes_back_with_progress() {
    for mut harness in nodes() {
        let mut background = hopeless(&mut harness);
        assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
        assert_eq!(harness.core.free_pages(), 10, "it gave up and leaves the work to allocating tasks");
        let free = reclaim(&harness, 1);
        assert!(free > 10 && free <= 60, "progress, but no balance");
        assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
        assert_eq!(harness.core.free_pages(), free);
        assert!(reclaim(&harness, 100) > 60);
        harness.read_ahead(200..350);
        assert!(harness.core.free_pages() < 60);
        assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
        assert!(harness.core.free_pages() > 60, "it works again");
    }
}

/// [book: reclaim-loop#watermarks]: in 6.12 any progress resets the count.
#[test]
fn hope_came_back_with_any_page() {
    for preset in [Preset::Linux612, Preset::Linux71] {
        let mut options = Options { mechanisms: Mechanisms::preset(preset), ..Options::new(200) };
        options.watermarks = Watermarks { min: 0, low: 100, high: 150 };
        let mut harness = Harness::with_options(options, UNLIMITED);
        let mut background = hopeless(&mut harness);
        let free = reclaim(&harness, 1);
        assert!((11..=150).contains(&free), "progress, but no balance: {free}");
        assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
        assert_eq!(harness.core.free_pages() > 150, preset == Preset::Linux612, "{preset:?}");
    }
}

/// [book: reclaim-loop#watermarks]: "Sleep: 100 ms on trial, then fully if still balanced." Memory
/// that has fallen below the high watermark by then is reclaimed, though it is above the low one.
/// Such runs are counted, and apart from them those that begin during the nap.
#[test]
fn background_reclaim_naps_before_it_sleeps() {
    for mut harness in nodes() {
        let mut background = Background::new(&harness.core, 0);
        let mut rest = |harness: &Harness| run_to_rest(&harness.core, &harness.host, &mut background);
        let time = std::time::Duration::from_millis(100);
        let nap = BackgroundStep::Nap(time);
        let (mut read, before) = (190, runs(&harness));
        harness.read_ahead(0..read);
        assert_eq!(rest(&harness), nap);
        for (slept, quick) in [(time, [0, 1]), (time / 2, [1, 1])] {
            let free = harness.core.free_pages();
            assert!(free > 60, "{free}");
            harness.read_ahead(read..read + free - 55);
            read += free - 55;
            assert_eq!(harness.core.free_pages(), 55, "more than the low watermark, less than the high one");
            harness.host.advance(slept);
            assert_eq!(rest(&harness), nap, "a further run, and a further nap");
            assert_eq!(quick_runs(&harness), quick);
        }
        assert!(harness.core.free_pages() > 60 && runs(&harness) == before + 3);
        assert_eq!(rest(&harness), BackgroundStep::Sleep);
        assert_eq!(rest(&harness), BackgroundStep::Sleep);
        assert_eq!((runs(&harness), quick_runs(&harness)), (before + 3, [1, 1]), "there was nothing to do");
    }
}

/// A run that has tried every priority and freed too little is followed by another without any
/// rest, until 16 have freed nothing.
#[test]
fn background_reclaim_does_not_rest_while_memory_is_short() {
    for mut harness in nodes() {
        let mut background = Background::new(&harness.core, 0);
        harness.read_ahead(0..190);
        harness.drain();
        (5..190).for_each(|page| harness.write(page));
        let rest = run_to_rest(&harness.core, &harness.host, &mut background);
        assert!(matches!(rest, BackgroundStep::Nap(_)), "{rest:?}");
        assert_eq!(harness.core.free_pages(), 15, "the five clean pages, in the first run");
        assert_eq!((runs(&harness), quick_runs(&harness)), (17, [0, 16]));
    }
}

/// If all pages are under writeback, reclaim is slow, not hopeless: background reclaim waits as
/// often as needed.
#[test]
fn slow_writes_are_not_hopeless() {
    for mut harness in nodes() {
        let mut background = Background::new(&harness.core, 0);
        harness.read_ahead(0..190);
        harness.drain();
        (0..190).for_each(|page| harness.write(page));
        let folios = harness.start_writeback();
        for _ in 0..40 {
            assert_eq!(
                run_background(&harness.core, &harness.host, &mut background),
                Some(Throttle::Writeback)
            );
        }
        harness.end_writeback(folios);
        assert_eq!(run_background(&harness.core, &harness.host, &mut background), None);
        assert!(harness.core.free_pages() > 60);
    }
}

/// Pages that each need a leaf of their own, so that every evicted page leaves a shadow-only leaf.
fn sparse(pages: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
    pages.map(|page| page * 64)
}

/// [book: refaults#checks]: "Shadow nodes beyond lruvec_pages/8 are trimmed oldest first".
#[test]
fn shadows_are_limited_and_the_oldest_go_first() {
    let mut harness = Harness::new(2048, 31);
    harness.read_ahead(sparse(0..6000));
    let evicted = harness.evicted();
    // 256 are within the limit; they are trimmed in batches of 128, half of the surplus at a time.
    let kept = harness.core.leaves_in_use() as usize - harness.memcg().usage_pages() as usize;
    assert!((256..256 + 256 + 128).contains(&kept), "{kept} leaves hold only shadows");
    assert_eq!(harness.stat(Counter::WorkingsetNodes), kept as u64);
    assert_eq!(harness.stat(Counter::WorkingsetNodereclaim), (evicted.len() - kept) as u64);
    let remembered = |harness: &mut Harness, page: u32| {
        let before = harness.stat(Counter::WorkingsetRefaultFile);
        harness.read(page);
        harness.stat(Counter::WorkingsetRefaultFile) > before
    };
    let newest = &evicted[evicted.len() - kept..];
    assert!(remembered(&mut harness, newest[0]) && remembered(&mut harness, newest[kept - 1]));
    assert!(!remembered(&mut harness, evicted[evicted.len() - kept - 1]));
}

/// A memory of 128 pages may have 16 leaves of shadows. Batches of 128 drop none until there are
/// 272, or until what was deferred and a low priority make up a batch.
#[test]
fn small_memories_can_drop_shadows_in_small_batches() {
    let shadows = |batch_leaves| {
        let mut options = Harness::multigen_options(256);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.grain.shadow_batch_leaves = batch_leaves;
        let mut harness = Harness::with_options(options, 128);
        harness.read_ahead(sparse(0..360));
        assert_eq!(harness.core.validate(), Ok(()));
        harness.stat(Counter::WorkingsetNodes)
    };
    assert!((100..272).contains(&shadows(128)), "{}", shadows(128));
    assert!((12..64).contains(&shadows(1)), "{}", shadows(1));
}

/// [book: refaults#shadow-limit]: "none if not above the limit": a leaf that is used again in
/// between counts only once.
#[test]
fn shadows_below_the_limit_are_kept() {
    let mut harness = Harness::new(2048, 31);
    for round in 0..20 {
        for page in sparse(0..2100) {
            harness.read(page);
        }
        let first_time = 2100;
        let misses = harness.misses;
        assert_eq!(harness.stat(Counter::WorkingsetRefaultFile), misses - first_time, "round {round}");
        assert_eq!(
            harness.stat(Counter::WorkingsetNodes),
            u64::from(harness.core.leaves_in_use()) - harness.memcg().usage_pages()
        );
    }
    assert!(harness.misses > 10_000, "the test is about pages that come back");
}

/// The shadows of many tenants may fill the index; then shadows are dropped, and no request fails.
#[test]
fn shadows_of_many_tenants_do_not_fill_the_index() {
    let mut options = Harness::multigen_options(256);
    options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
    let mut harness = Harness::with_options(options, 8);
    for tenant in 0..20 {
        let memcg = harness.core.add_memcg(&format!("tenant {tenant}"), 8, Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(memcg, 0);
        harness.read_ahead(sparse(tenant * 1000..tenant * 1000 + 250));
    }
    harness.core.validate().unwrap();
}

/// A flusher that meets only pages with an older version under writeback must not recurse over
/// them.
#[test]
fn many_pages_that_are_dirty_again_are_skipped() {
    let mut harness = Harness::new(100_000, 31);
    harness.read_ahead(0..100_000);
    (0..99_999).for_each(|page| harness.write(page));
    let folios = harness.start_writeback();
    (0..100_000).for_each(|page| harness.write(page));
    let core = &harness.core;
    let mapping = &harness.mapping;
    let run = std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(128 << 10);
        small.spawn_scoped(scope, || core.start_writeback(mapping, 0, 1 << 32, 9)).unwrap().join().unwrap()
    });
    assert_eq!(run.map(|run| (run.first, run.folios.len())), Some((99_999, 1)));
    harness.end_writeback(folios);
}

/// Charges to a full memcg of 100 pages, all under writeback. Returns the number of waits, and
/// whether the charge succeeded. `at_wait` acts on the writes during the n-th wait; pages of other
/// memcgs can be written, too.
fn charge_while_writing(
    preset: Preset,
    mut at_wait: impl FnMut(&Harness, usize, &mut Vec<FolioId>),
) -> (usize, bool) {
    let mut harness = Harness::with_preset(preset, 100, 1);
    harness.read_ahead(0..100);
    (0..100).for_each(|page| harness.write(page));
    let mut folios = harness.start_writeback();
    let mut charging = Charging::new(harness.task.memcg, 0);
    let mut waits = 0;
    loop {
        match charging.step(&harness.core, &harness.host) {
            ChargeStep::Wait(Throttle::Writeback) => {
                at_wait(&harness, waits, &mut folios);
                waits += 1;
            }
            ChargeStep::More | ChargeStep::Wait(_) => {}
            ChargeStep::Charged(_) => return (waits, true),
            ChargeStep::OutOfMemory(report) => {
                assert_eq!((report.writeback_pages, report.usage_pages), (100, 100));
                return (waits, false);
            }
        }
    }
}

/// `wait_before_oom` is ours: after 18 fruitless efforts a charge keeps waiting while pages are
/// written or the device owes an answer, and fails after 16 waits in which the device refused. The
/// kernel's charge fails after 18 efforts.
#[test]
fn a_charge_that_can_wait_for_writes_does_not_fail() {
    assert_eq!(charge_while_writing(Preset::Linux72, |_, _, _| ()), (0, false));
    let silent = charge_while_writing(Preset::Default, |harness, wait, folios| {
        if wait == 999 {
            harness.end_writeback(std::mem::take(folios));
        }
    });
    assert_eq!(silent, (1000, true));
    let refused = charge_while_writing(Preset::Default, |harness, _, folios| {
        for folio in std::mem::take(folios) {
            harness.core.end_writeback(&harness.host, &harness.mapping, folio, false, 0);
        }
        folios.extend(harness.start_writeback());
    });
    assert_eq!(refused, (17, false), "the first wait is for its answer");
    // One page is written at each wait and dirtied again: slow, but it ends.
    let rewritten = charge_while_writing(Preset::Default, |harness, wait, folios| {
        if wait == 50 {
            return harness.end_writeback(std::mem::take(folios));
        }
        let folio = folios.pop().expect("99 are left");
        harness.end_writeback(vec![folio]);
        harness.write(harness.core.folios().index(folio));
        folios.extend(harness.start_writeback());
    });
    assert_eq!(rewritten, (51, true));
}

/// A tenant without a page that can be freed does not wait for the writes of its neighbours, since
/// they free none of its own; nor do their writes make up for its own that are refused.
#[test]
fn writes_of_others_do_not_keep_a_hopeless_charge_waiting() {
    for refused in [false, true] {
        let mut options = Options::new(200);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        let mut harness = Harness::with_options(options, 20);
        let hopeless = harness.task.clone();
        harness.read_ahead(0..20);
        harness.drain();
        (0..20).for_each(|page| match refused {
            true => harness.write(page),
            // As the bytes of a page that a user works with.
            false => assert!(harness.core.folios().flags(harness.folio(page)).try_get()),
        });
        let other = harness.core.add_memcg("other", UNLIMITED, Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(other, 0);
        harness.read_ahead(100..101);
        let mut charging = Charging::new(hopeless.memcg, 0);
        let mut waits = 0;
        let report = loop {
            match charging.step(&harness.core, &harness.host) {
                ChargeStep::More => {}
                ChargeStep::Wait(_) => {
                    harness.write(100);
                    for folio in harness.start_writeback() {
                        let written = harness.core.folios().index(folio) == 100;
                        harness.core.end_writeback(&harness.host, &harness.mapping, folio, written, 0);
                    }
                    waits += 1;
                    assert!(waits < 100, "it waits forever");
                }
                ChargeStep::Charged(_) => panic!("nothing could be freed"),
                ChargeStep::OutOfMemory(report) => break report,
            }
        };
        assert_eq!((report.usage_pages, waits <= 17), (20, true), "{waits}");
    }
}
