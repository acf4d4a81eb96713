//! The checklists of [book: classic-lru#checks] and, for the classic LRU, of
//! [book: refaults#checks].

use super::shrink::{isolate_inactive, put_back_inactive, shrink_active};
use super::state::Costs;
use super::{Balance, list_of};
use crate::folio::Kind;
use crate::lru::{Context, Evictions, Scan};
use crate::memcg::Counter;
use crate::pageout::{Workspace, page_out};
use crate::reclaim::{EffortKind, Orders, Watermarks};
use crate::testing::Harness;
use crate::workingset::Shadow;
use crate::{Arrival, FlushReason, Lru, Mechanisms, Preset, Switch};

fn mechanisms(without: &[Switch]) -> Mechanisms {
    Mechanisms::compose(Preset::Default, &[], without).unwrap().with_lru(Lru::Classic)
}

/// A harness with exact statistics.
fn exact(limit_pages: u64, batch_folios: usize) -> Harness {
    Harness::with_mechanisms(mechanisms(&[]), limit_pages, batch_folios)
}

/// A harness whose statistics are refreshed only on request.
fn late(limit_pages: u64) -> Harness {
    Harness::with_mechanisms(mechanisms(&[Switch::ExactStatistics]), limit_pages, 1)
}

impl Harness {
    /// The file pages on a list, from tail to head.
    fn pages_on(&self, active: bool) -> Vec<u32> {
        let locked = self.memcg().lruvec.lock(&self.core.folios);
        let list = list_of(Kind::File, active);
        let folios = locked.lists.lists.iter(&self.core.folios, list);
        folios.map(|folio| self.core.folios.index(folio)).collect()
    }

    /// Brings pages in, and accesses those in `active` twice.
    fn fill(&mut self, inactive: std::ops::Range<u32>, active: std::ops::Range<u32>) {
        for page in active {
            self.read_ahead([page]);
            self.read(page);
            self.read(page);
        }
        self.read_ahead(inactive);
        self.drain();
    }

    fn shrink_inactive(&self, request: u64) -> u64 {
        let (orders, mut scan) = (self.orders(1000), Scan::default());
        let cx = &mut Context::new(&self.core, &self.host, &orders, &mut scan);
        if !isolate_inactive(cx, self.memcg(), Kind::File, request) {
            return 0;
        }
        let outcome = page_out(cx, &mut Workspace::default(), self.memcg());
        put_back_inactive(cx, self.memcg(), outcome);
        outcome.freed
    }

    fn shrink_active(&self, request: u64) {
        let (orders, mut scan) = (self.orders(1000), Scan::default());
        let cx = &mut Context::new(&self.core, &self.host, &orders, &mut scan);
        shrink_active(cx, self.memcg(), Kind::File, request);
    }

    fn may_deactivate(&self) -> bool {
        let (orders, mut scan) = (self.orders(1), Scan::default());
        let cx = Context::new(&self.core, &self.host, &orders, &mut scan);
        Balance::new(&cx, 12).may_deactivate(Kind::File)
    }

    fn clock(&self) -> u64 {
        self.memcg().lruvec.nonresident_age()
    }
}

/// [book: classic-lru#checks]: "Two fd reads of an inactive page activate it; the third sets R on
/// the active page".
#[test]
fn two_reads_activate() {
    let mut harness = exact(100, 1);
    harness.read_ahead([0, 1]);
    harness.read(0);
    assert_eq!((harness.pages_on(false), harness.flags(0).referenced()), (vec![0, 1], true));
    harness.read(0);
    assert_eq!((harness.pages_on(false), harness.pages_on(true)), (vec![1], vec![0]));
    assert_eq!((harness.flags(0).referenced(), harness.stat(Counter::Pgactivate)), (false, 1));
    harness.read(0);
    assert!(harness.flags(0).referenced());
    harness.core.validate().unwrap();
}

/// [book: classic-lru#checks]: "Three fd reads (active, R=1), then deactivation: R still 1,
/// `workingset` 1; one more read activates. Two reads, then deactivation: R=0; one more read only
/// sets R".
#[test]
fn an_access_outlives_deactivation() {
    for (reads, activates) in [(3, true), (2, false)] {
        let mut harness = exact(100, 1);
        harness.read_ahead([0]);
        (0..reads).for_each(|_| harness.read(0));
        harness.shrink_active(1);
        let flags = harness.flags(0);
        assert_eq!(
            (flags.referenced(), flags.workingset(), harness.pages_on(false)),
            (activates, true, vec![0])
        );
        let counts = [Counter::Pgrefill, Counter::Pgdeactivate].map(|counter| harness.stat(counter));
        assert_eq!(counts, [1, 1]);
        harness.read(0);
        assert_eq!(harness.pages_on(true).len(), usize::from(activates));
    }
}

/// [book: classic-lru#checks]: "Deactivating pages 1, 2, 3 (1 at the active tail) leaves 1 nearest
/// the inactive tail".
#[test]
fn deactivation_keeps_the_order() {
    let mut harness = exact(100, 1);
    harness.fill(10..12, 1..4);
    assert_eq!(harness.pages_on(true), [1, 2, 3]);
    harness.shrink_active(32);
    assert_eq!(harness.pages_on(false), [10, 11, 1, 2, 3]);
    harness.core.validate().unwrap();
}

/// [book: classic-lru#checks]: "Two reads before the add batch drains, or activation by refault:
/// `pgactivate` unchanged".
#[test]
fn a_page_that_waits_for_its_place_is_activated_there() {
    let mut harness = exact(100, 31);
    (0..2).for_each(|_| harness.read(7));
    assert_eq!((harness.flags(7).active(), harness.flags(7).referenced(), harness.clock()), (true, false, 1));
    harness.drain();
    assert_eq!((harness.pages_on(true), harness.stat(Counter::Pgactivate)), (vec![7], 0));
}

/// [book: classic-lru#two-accesses]: "A folio that collects two more accesses while still queued is
/// queued, and advances the clock, a second time; the drain moves it once".
#[test]
fn a_page_may_be_queued_twice() {
    let mut harness = exact(100, 31);
    harness.read_ahead([7]);
    harness.drain();
    (0..4).for_each(|_| harness.read(7));
    assert_eq!((harness.pages_on(false), harness.clock()), (vec![7], 2));
    harness.drain();
    assert_eq!((harness.pages_on(true), harness.stat(Counter::Pgactivate)), (vec![7], 1));
    harness.core.validate().unwrap();
}

/// [book: classic-lru#two-accesses]: "A folio that is off-list for another reason … loses R and
/// advances the clock but is *not* activated".
#[test]
fn an_isolated_page_is_not_activated() {
    let mut harness = exact(100, 1);
    harness.read_ahead([7]);
    harness.read(7);
    let mut batch = Default::default();
    harness.memcg().lruvec.lock(&harness.core.folios).isolate_from(
        &harness.host,
        Kind::File,
        false,
        1,
        &mut batch,
    );
    harness.read(7);
    let flags = harness.flags(7);
    assert_eq!((flags.referenced(), flags.active(), harness.clock()), (false, false, 1));
}

/// [book: classic-lru#checks]: "Refreshed at inactive 3000, active 3001, then never: every pass
/// deactivates, also when active has fallen to
/// 100. Refreshed at 3001/3000, then never: no pass does" (smaller here).
#[test]
fn verdicts_are_frozen_between_refreshes() {
    for (inactive, active) in [(30, 31), (31, 30)] {
        let mut harness = late(200);
        harness.fill(100..100 + inactive, 0..active);
        assert!(!harness.may_deactivate(), "nothing is known yet");
        harness.core.refresh_statistics();
        let low = active > inactive;
        assert_eq!(harness.may_deactivate(), low);
        if low {
            harness.shrink_active(25);
        } else {
            harness.shrink_inactive(25);
        }
        assert_eq!(harness.may_deactivate(), low, "as at the last refresh");
        harness.core.refresh_statistics();
        assert_eq!(harness.may_deactivate(), !low);
        let exact = Harness::with_mechanisms(mechanisms(&[]), 10, 1);
        assert!(!exact.may_deactivate());
    }
}

/// [book: classic-lru#late-statistics]: statistics are refreshed every two seconds.
#[test]
fn time_refreshes_statistics() {
    let mut harness = late(200);
    harness.fill(100..110, 0..20);
    harness.host.advance(std::time::Duration::from_millis(1999));
    assert!(!harness.may_deactivate());
    harness.host.advance(std::time::Duration::from_millis(1));
    assert!(harness.may_deactivate());
}

/// [book: classic-lru#late-statistics]: reading a memcg's statistics refreshes those of its
/// subtree, not those of the memcgs above it. Background reclaim decides by the root's.
#[test]
fn reading_statistics_refreshes_a_subtree() {
    let may_deactivate = |harness: &Harness, orders| {
        let mut scan = Scan::default();
        let cx = Context::new(&harness.core, &harness.host, &orders, &mut scan);
        Balance::new(&cx, 12).may_deactivate(Kind::File)
    };
    let mut harness = late(200);
    let parent = harness.task.memcg;
    let child = harness.core.add_child(parent, "child", 200, crate::Time::ZERO).unwrap().id();
    harness.task = harness.core.new_task(child, 0);
    harness.fill(100..130, 0..31);
    for (read, expected) in [(child, [true, false, false]), (parent, [true, true, false])] {
        harness.core.refresh_statistics_of(read);
        let orders =
            [harness.orders(1), Orders { target: parent, ..harness.orders(1) }, harness.root_orders(1)];
        assert_eq!(orders.map(|orders| may_deactivate(&harness, orders)), expected, "{read:?}");
    }
    harness.core.refresh_statistics();
    assert!(may_deactivate(&harness, harness.root_orders(1)));
}

/// [book: classic-lru#checks]: "10 activating refaults, no refresh in between: the next effort sees
/// no new refault"; the first effort after the refresh sees them and marks them as seen.
#[test]
fn refaults_are_noticed_once_they_are_counted() {
    let mut harness = late(200);
    harness.fill(100..150, 0..20);
    harness.core.refresh_statistics();
    assert!(!harness.may_deactivate(), "20 active pages are not too many");
    assert_eq!(harness.shrink_inactive(10), 10);
    let back = harness.host.evicted.borrow().iter().map(|&(_, page)| page).collect::<Vec<_>>();
    harness.read_ahead(back);
    assert_eq!(harness.stat(Counter::WorkingsetActivateFile), 10);
    assert!(!harness.may_deactivate());
    harness.core.refresh_statistics();
    assert!(harness.may_deactivate());
    harness.effort(EffortKind::Limit, 1);
    assert!(!harness.may_deactivate());
}

/// [book: classic-lru#checks]: "Effort on 8131 clean inactive pages, nothing in the batches: frees
/// 1+3+7+15+31 = 57 in 5 priorities. Reclaimed pages of earlier priorities do not end a pass
/// early".
#[test]
fn the_size_of_an_effort() {
    for (pages, freed, priorities) in
        [(3000, 42, 6), (4092, 57, 6), (4100, 60, 6), (5000, 35, 5), (6000, 42, 5), (8131, 57, 5)]
    {
        let mut harness = exact(pages, 1);
        harness.read_ahead(0..pages as u32);
        assert_eq!(harness.effort(EffortKind::Limit, 1).reclaimed, freed, "{pages} pages");
        assert_eq!(13 - u64::from(harness.host.efforts()[0].priority), priorities, "{pages} pages");
    }
}

/// [book: classic-lru#checks]: "A mapped page used once: kept at the first visit (R=1), freed at
/// the second".
#[test]
fn a_mapped_page_is_kept_once() {
    let mut harness = exact(100, 1);
    harness.load(0);
    harness.read_ahead([1]);
    assert_eq!((harness.shrink_inactive(1), harness.pages_on(false)), (0, vec![1, 0]));
    let flags = harness.flags(0);
    assert_eq!((flags.referenced(), flags.active(), flags.mapped()), (true, false, true));
    assert_eq!((harness.shrink_inactive(2), harness.evicted()), (2, vec![1, 0]));
}

/// [book: classic-lru#reference-check]: "young ≥ 1 and r: set R; activate".
/// [book: classic-lru#deactivation]: "Together … this makes a mapped folio that was deactivated
/// come back at the first young bit".
#[test]
fn a_mapped_page_that_is_used_again_is_activated() {
    let mut harness = exact(100, 1);
    harness.load(0);
    harness.shrink_inactive(1);
    harness.load(0);
    assert_eq!((harness.shrink_inactive(1), harness.pages_on(true)), (0, vec![0]));
    assert_eq!((harness.flags(0).referenced(), harness.stat(Counter::Pgactivate)), (true, 1));
    harness.shrink_active(1);
    harness.load(0);
    assert_eq!((harness.shrink_inactive(1), harness.pages_on(true)), (0, vec![0]));
}

/// [book: classic-lru#checks]: "A mapped active page that is deactivated and not touched again:
/// freed at its first visit".
#[test]
fn deactivation_takes_accessed_bits() {
    let mut harness = exact(100, 1);
    harness.load(0);
    harness.shrink_inactive(1);
    harness.load(0);
    harness.shrink_inactive(1);
    harness.load(0);
    assert!(harness.is_young(0) && harness.flags(0).active());
    harness.shrink_active(1);
    assert!(!harness.is_young(0));
    assert_eq!(harness.shrink_inactive(1), 1);
}

/// [book: classic-lru#checks]: "A one-page scan batch whose page is dirty and not queued wakes the
/// flusher." [book: classic-lru#reference-check]: it "goes to the active head, counts in
/// `pgactivate`, advances the clock at put-back, and has lost R".
#[test]
fn dirty_pages_make_way() {
    let mut harness = exact(100, 1);
    harness.read_ahead([0, 1]);
    harness.read(0);
    harness.write(0);
    assert_eq!((harness.shrink_inactive(1), harness.clock()), (0, 1));
    assert_eq!(*harness.host.flushes.borrow(), [FlushReason::Reclaim]);
    let flags = harness.flags(0);
    assert_eq!((harness.pages_on(true), flags.reclaim(), flags.referenced()), (vec![0], true, false));
    let counts = [Counter::Pgactivate, Counter::NrVmscanImmediateReclaim, Counter::PgscanDirect];
    assert_eq!(counts.map(|counter| harness.stat(counter)), [1; 3]);
    // Once written, it is evicted next.
    harness.end_writeback(harness.start_writeback());
    harness.drain();
    assert_eq!((harness.pages_on(false), harness.stat(Counter::Pgrotated)), (vec![0, 1], 1));
    harness.core.validate().unwrap();
}

/// [book: classic-lru#checks]: "A page read once, then reclaimed, then refaulted with distance ≤
/// size is active at once"; "Deactivated page has workingset set; its shadow too; its refault
/// counts restore". [book: classic-lru#scan-cost]: which costs.
#[test]
fn refaults_within_reach_are_activated() {
    let mut harness = exact(200, 1);
    harness.fill(100..110, 0..50);
    harness.shrink_active(1);
    assert_eq!((harness.shrink_inactive(11), harness.evicted().len()), (11, 11));
    let clock = harness.clock();
    for (page, restored) in [(105, 0), (0, 1)] {
        harness.bring(page, Arrival::default());
        let flags = harness.flags(page);
        assert_eq!((flags.active(), flags.workingset()), (true, restored == 1));
        assert_eq!(harness.stat(Counter::WorkingsetRestoreFile), restored);
    }
    assert_eq!((harness.stat(Counter::WorkingsetActivateFile), harness.clock() - clock), (2, 2));
    assert_eq!(harness.stat(Counter::Pgactivate), 50, "as before");
    let costs = |memcg: &crate::Memcg| memcg.lruvec.lock(&harness.core.folios).lists.costs;
    let (own, root) = (costs(harness.memcg()), costs(harness.core.memcg(crate::MemcgId::ROOT)));
    assert_eq!(own, root, "added to each ancestor");
}

/// [book: refaults#checks]: "Classic: with active_file = 100 at the last refresh, no swap, distance
/// 100 → activated; 101 → not, even if the list has 200 pages by now".
#[test]
fn the_reach_is_the_active_list_as_it_is_known() {
    for (distance, activated) in [(100, 1), (101, 0)] {
        let mut harness = late(1000);
        harness.fill(500..501, 0..100);
        harness.core.refresh_statistics();
        assert_eq!(harness.shrink_inactive(1), 1);
        // The eviction itself is the first step of the distance.
        for page in 600..600 + distance - 1 {
            harness.read_ahead([page]);
            (0..2).for_each(|_| harness.read(page));
        }
        assert!(harness.memcg().lruvec.active_pages(Kind::File) > 190);
        harness.read_ahead([500]);
        assert_eq!(harness.stat(Counter::WorkingsetActivateFile), activated, "distance {distance}");
        assert_eq!(harness.stat(Counter::WorkingsetRefaultFile), 1);
    }
}

/// [book: refaults#checks]: "A refault of a page that moved to another memcg … classic counts it on
/// the new owner". The distance is that of the old owner's clock.
#[test]
fn a_refault_by_another_memcg_counts_there() {
    let mut harness = exact(200, 1);
    harness.fill(100..110, 0..50);
    assert_eq!(harness.shrink_inactive(10), 10);
    let old = harness.task.memcg;
    let new = harness.core.add_memcg("new", 200, crate::Time::ZERO).unwrap().id();
    harness.task = harness.core.new_task(new, 0);
    harness.bring(105, Arrival::default());
    let counts = |memcg| {
        let stat = harness.core.memcg(memcg).stat();
        [Counter::WorkingsetRefaultFile, Counter::WorkingsetActivateFile].map(|counter| stat.get(counter))
    };
    assert_eq!((counts(old), counts(new)), ([0, 0], [1, 1]));
    assert!(harness.flags(105).active());
}

/// [book: refaults#checks]: "Classic: evicting 10 pages, then activating 5, advances NA by 15 in
/// the lruvec and in each ancestor".
#[test]
fn clocks_go_on_in_ancestors() {
    let mut harness = exact(100, 1);
    harness.read_ahead(0..20);
    assert_eq!(harness.shrink_inactive(10), 10);
    (10..15).for_each(|page| (0..2).for_each(|_| harness.read(page)));
    let root = harness.core.memcg(crate::MemcgId::ROOT).lruvec.nonresident_age();
    assert_eq!((harness.clock(), root), (15, 15));
}

/// [book: classic-lru#lru-lock]: put-back advances the clocks once per batch, or once per folio. 31
/// activated folios are 31 writes to each ancestor's clock, or one.
#[test]
fn a_batch_writes_to_the_ancestors_clocks_once() {
    let writes = |without: &[Switch]| {
        let mut harness = Harness::with_mechanisms(mechanisms(without), 100, 1);
        harness.read_ahead(0..40);
        (0..31).for_each(|page| harness.write(page));
        let before = harness.stat(Counter::NonresidentAgeWrites);
        assert_eq!((harness.shrink_inactive(31), harness.pages_on(true).len()), (0, 31));
        let root = harness.core.memcg(crate::MemcgId::ROOT).lruvec.nonresident_age();
        assert_eq!((harness.clock(), root), (31, 31));
        harness.stat(Counter::NonresidentAgeWrites) - before
    };
    assert_eq!((writes(&[Switch::BatchNonresidentAge]), writes(&[])), (31, 1));
    // The remedies one by one: what the first saves does not depend on the others.
    assert_eq!((writes(&[Switch::AgePerBatch]), writes(&[Switch::AgeWithCost])), (31, 1));
    assert_eq!(writes(&[Switch::AgeAfterUnlock]), 1);
    assert_eq!(writes(&[Switch::AgeAfterUnlock, Switch::AgeWithCost]), 1);
    assert_eq!(writes(&[Switch::AgeEvictionsPerBatch]), 1);
}

/// Beyond [book: classic-lru#lru-lock], evictions are batched, too. Every page gets the time that
/// it would have got one by one; a page in use gets none.
#[test]
fn a_batch_of_evictions_writes_to_the_ancestors_clocks_once() {
    let outcome = |in_use: Option<u32>, without: &[Switch]| {
        let mut harness = Harness::with_mechanisms(mechanisms(without), 100, 1);
        harness.read_ahead(0..40);
        assert!(in_use.is_none_or(|page| harness.core.folios.flags(harness.folio(page)).try_get()));
        let before = harness.stat(Counter::NonresidentAgeWrites);
        let freed = harness.shrink_inactive(31);
        let writes = harness.stat(Counter::NonresidentAgeWrites) - before;
        let root = harness.core.memcg(crate::MemcgId::ROOT).lruvec.nonresident_age();
        assert_eq!((harness.clock(), root), (freed, freed));
        let slots = harness.mapping.lock(&harness.core.leaves, 0);
        let time = |page| slots.slot(page).shadow().map(|word| Shadow::unpack(word).token);
        (freed, writes, (0..31).map(time).collect::<Vec<_>>())
    };
    let one_by_one = &[Switch::BatchNonresidentAge];
    let times: Vec<_> = (0..31).map(Some).collect();
    assert_eq!(outcome(None, one_by_one), (31, 31, times.clone()));
    assert_eq!(outcome(None, &[]), (31, 1, times));
    let times: Vec<_> = (0..5).map(Some).chain([None]).chain((5..30).map(Some)).collect();
    assert_eq!(outcome(Some(5), one_by_one), (30, 30, times.clone()));
    assert_eq!(outcome(Some(5), &[]), (30, 1, times));
}

/// Some pages of a batch are used at the last moment.
#[test]
fn clocks_are_set_back_by_the_folios_that_stayed() {
    let mut harness = exact(100, 1);
    harness.read(0);
    let (core, memcg, flags) = (&harness.core, harness.memcg(), harness.flags(0));
    let folio = harness.folio(0);
    let clocks = || [memcg, core.memcg(crate::MemcgId::ROOT)].map(|memcg| memcg.lruvec.nonresident_age());
    for evicted in [2, 5, 7] {
        let before = clocks()[0];
        let mut evictions = Evictions::begin(core, memcg.id(), 5);
        for age in before..before + evicted {
            assert_eq!(evictions.evicted(core, memcg, folio, (Kind::File, flags)).token, age);
        }
        evictions.end(core, memcg);
        assert_eq!(clocks(), [before + evicted; 2]);
    }
}

/// [book: classic-lru#checks]: "Remedies 1–5 on or off: identical final counters".
#[test]
fn remedies_change_no_count() {
    let counts = |without: &[Switch]| {
        let mut harness = Harness::with_mechanisms(mechanisms(without), 500, 31);
        let mut state = 5u64;
        for step in 0..30_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = (state >> 33) as u32 % 1200 % ((state >> 50) as u32 % 1200 + 1);
            match state >> 60 {
                0..4 => harness.load(page),
                _ => harness.read(page),
            }
            if state >> 60 == 15 {
                harness.write(page);
            }
            if step % 500 == 0 {
                harness.end_writeback(harness.start_writeback());
            }
        }
        harness.core.validate().unwrap();
        let counters = Counter::ALL.iter().filter(|&&counter| counter != Counter::NonresidentAgeWrites);
        let counts: Vec<u64> = counters.map(|&counter| harness.stat(counter)).collect();
        let costs = harness.memcg().lruvec.lock(&harness.core.folios).lists.costs;
        (counts, harness.clock(), costs, harness.pages_on(true), harness.pages_on(false))
    };
    let all = counts(&[]);
    assert!(all.3.len() > 50 && all.1 > 1000);
    assert_eq!(all, counts(&[Switch::BatchNonresidentAge]));
    for &part in Switch::BatchNonresidentAge.parts().iter().chain(&[Switch::CostReleasesLock]) {
        assert_eq!(all, counts(&[part]), "{}", part.name());
    }
}

/// Advice that a page is not needed: a page in use goes to the tail; a dirty one to the head, and
/// is freed after it is written.
#[test]
fn advice_moves_pages_to_the_old_side() {
    let mut harness = exact(100, 1);
    harness.fill(10..12, 0..2);
    harness.write(1);
    harness.read(0);
    // A user holds the page.
    assert!(harness.core.folios.flags(harness.folio(0)).try_get());
    harness.core.invalidate(&harness.host, &harness.mapping, 1, 2, 0);
    harness.core.enqueue(&harness.host, 0, crate::lru::Queue::DeactivateFile, harness.folio(0));
    harness.drain();
    assert_eq!((harness.pages_on(false), harness.pages_on(true)), (vec![0, 10, 11, 1], vec![]));
    assert_eq!((harness.flags(1).reclaim(), harness.stat(Counter::Pgdeactivate)), (true, 2));
    harness.core.put(&harness.host, harness.folio(0));
}

/// [book: classic-lru#deactivation]: unevictable pages of either list go to the unevictable list
/// and come back.
#[test]
fn unevictable_pages_are_culled() {
    let mut harness = exact(100, 1);
    harness.fill(10..11, 0..1);
    let folios = [harness.folio(0), harness.folio(10)];
    folios.iter().for_each(|&folio| harness.core.set_mlocked(folio, true));
    harness.shrink_active(1);
    harness.shrink_inactive(1);
    assert_eq!(harness.memcg().lruvec.unevictable_pages(), 2);
    harness.core.validate().unwrap();
    for folio in folios {
        harness.core.set_mlocked(folio, false);
        harness.core.rescue(folio);
    }
    assert_eq!(harness.memcg().lruvec.unevictable_pages(), 0);
    harness.core.validate().unwrap();
}

/// [book: classic-lru#scan-cost]: "In 6.12 an inactive scan that costs nothing halves them, too".
#[test]
fn a_scan_without_cost_decays_costs_in_old_kernels() {
    let costs_after = |with: &[Switch], freed: u32| {
        let mechanisms = Mechanisms::compose(Preset::Default, with, &[]).unwrap().with_lru(Lru::Classic);
        let mut harness = Harness::with_mechanisms(mechanisms, 200, 1);
        harness.fill(0..40, 100..100);
        let costs = |memcg, set: Option<Costs>| {
            let lists = &mut harness.core.memcg(memcg).lruvec.lock(&harness.core.folios).lists;
            lists.costs = set.unwrap_or(lists.costs);
            lists.costs
        };
        let both = [harness.task.memcg, crate::MemcgId::ROOT];
        both.iter().for_each(|&memcg| _ = costs(memcg, Some(Costs([4, 100]))));
        assert_eq!(harness.shrink_inactive(u64::from(freed)), u64::from(freed));
        let [own, root] = both.map(|memcg| costs(memcg, None));
        assert_eq!(own, root, "and so in each ancestor");
        own
    };
    assert_eq!(costs_after(&[Switch::DecayWithoutCost], 8), Costs([2, 50]));
    assert_eq!(costs_after(&[], 8), Costs([4, 100]));
    assert_eq!(costs_after(&[Switch::DecayWithoutCost], 0), Costs([4, 100]), "nothing was scanned");
}

/// [book: memcgs#offline-memcgs]: "Classic appends list to list and adds the costs".
#[test]
fn an_heir_gets_the_costs() {
    let mut harness = exact(200, 1);
    let parent = harness.task.memcg;
    let child = harness.core.add_child(parent, "child", 200, crate::Time::ZERO).unwrap().id();
    harness.task = harness.core.new_task(child, 0);
    harness.fill(0..10, 20..30);
    let lists = |memcg| harness.core.memcg(memcg).lruvec.lock(&harness.core.folios);
    for (memcg, costs) in [(parent, [1, 20]), (child, [300, 4000])] {
        lists(memcg).lists.costs = Costs(costs);
    }
    harness.core.remove_memcg(&harness.host, child).unwrap();
    assert_eq!(lists(parent).lists.costs, Costs([301, 4020]));
    harness.core.validate().unwrap();
}

/// [book: classic-lru#scan-amounts]: a request for pages of the root is cgroup reclaim, which never
/// asks whether file pages are few.
#[test]
fn a_request_is_no_shortage_of_the_node() {
    for (kind, few) in [(EffortKind::Direct, true), (EffortKind::Proactive, false)] {
        let mut options = crate::Options::new(1000);
        options.mechanisms = mechanisms(&[]);
        options.watermarks = Watermarks { min: 0, low: 900, high: 1000 };
        let harness = Harness::with_options(options, 900);
        (0..64).for_each(|_| _ = harness.add_anon());
        harness.drain();
        let orders = Orders { kind, ..harness.root_orders(32) };
        let mut scan = Scan::default();
        let cx = Context::new(&harness.core, &harness.host, &orders, &mut scan);
        assert_eq!((orders.is_of_memcg(), Balance::new(&cx, 0).file_is_tiny()), (!few, few), "{kind:?}");
    }
}

/// [book: reclaim-loop#effort]: the try that ignores `low` spares active pages again, though the
/// try before did not.
#[test]
fn ignoring_low_does_not_force_deactivation() {
    let mut harness = exact(1000, 1);
    let parent = harness.task.memcg;
    let mut add = |name, inactive: std::ops::Range<u32>, active: std::ops::Range<u32>| {
        let memcg = harness.core.add_child(parent, name, 1000, crate::Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(memcg, 0);
        harness.fill(inactive, active);
        memcg
    };
    // One can give none, all of its pages are dirty. The other is protected.
    let (dirty, protected) = (add("dirty", 0..40, 40..60), add("protected", 100..200, 200..250));
    (0..60).for_each(|page| harness.write(page));
    harness.core.memcgs.set_low(protected, 1000);
    harness.core.memcgs.set_low(parent, 1000);
    let orders = Orders { target: parent, ..harness.orders(32) };
    let mut effort = crate::reclaim::Effort::new(&harness.core, orders);
    while !matches!(effort.step(&harness.core, &harness.host), crate::reclaim::Step::Done(_)) {}
    let deactivated = |memcg| harness.core.memcg(memcg).stat().get(Counter::Pgdeactivate);
    assert!(deactivated(dirty) >= 20, "forced");
    assert_eq!(deactivated(protected), 0);
    assert!(harness.core.memcg(protected).stat().get(Counter::PgstealFile) >= 32);
}
