//! The turn of an lruvec before the reclaim loop of Linux 7.2.
//!
//! Each step computes the budget anew from the pages left, and compares it with all pages scanned
//! so far. Aging replaces eviction: a thread that opens a generation, or finds another thread doing
//! so, evicts nothing in this turn. Steps are large, limit reclaim goes on past its goal to the end
//! of the budget, and the flusher is woken at the end.
//!
//! Source: [book: reclaim-loop#loop-before] (Linux 6.12 and 7.1).

use super::MultiGenTurn;
use crate::host::{FlushReason, Host};
use crate::lru::TurnStep;
use crate::lru::multigen::aging::Due;
use crate::lru::scan_control::{Context, PRIORITY_DEFAULT};

/// The most folios per step. A step stops at 64 isolated folios, so this bounds sorting.
const STEP_FOLIOS: u64 = 4096;

impl MultiGenTurn {
    pub(super) fn step_before(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let core = cx.core;
        let memcg = core.memcg(self.memcg);
        let lruvec = &memcg.lruvec;
        if self.open_if_walked(core, cx.host) {
            return finish(cx);
        }
        if self.is_below_min(memcg) {
            self.visit.below_min = true;
            return finish(cx);
        }
        let due = lruvec.aging_due(self.swappiness, core.mechanisms());
        // With two generations nothing may be taken, and the first priority does not age yet.
        let pages = if due == Due::Must { 0 } else { lruvec.pages_in_generations(self.swappiness) };
        let whole = pages > 0 && !memcg.is_online();
        if self.aging.is_some() || due != Due::No && self.priority != PRIORITY_DEFAULT && !whole {
            return match self.age(cx, memcg) {
                TurnStep::Finished => finish(cx),
                step => step,
            };
        }
        self.budget = self.share(core, memcg, pages, cx.scan);
        if self.budget == 0 {
            return finish(cx);
        }
        let request =
            if core.mechanisms().workingset_rework() { self.budget.min(STEP_FOLIOS) } else { STEP_FOLIOS };
        self.isolate(cx, memcg, request)
    }

    pub(super) fn end_batch_before(&self, cx: &mut Context<'_, impl Host>, scanned: u64) -> TurnStep {
        let stop = cx.orders.is_root() && !cx.orders.whole && cx.should_stop();
        if scanned == 0 || self.scanned >= self.budget || stop { finish(cx) } else { TurnStep::More }
    }
}

/// Ends the turn. Wakes the flusher if it met only dirty pages.
fn finish(cx: &Context<'_, impl Host>) -> TurnStep {
    let tallies = &cx.scan.tallies;
    if tallies.unqueued_dirty > 0 && tallies.unqueued_dirty == tallies.taken {
        cx.host.wake_flusher(FlushReason::Reclaim);
    }
    TurnStep::Finished
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::memcg::Counter;
    use crate::testing::Harness;
    use crate::{FlushReason, Preset};

    /// A harness with `pages` pages in a window of three or four generations.
    fn harness(preset: Preset, pages: u32, generations: u64) -> Harness {
        let mut harness = Harness::with_preset(preset, u64::from(pages), 31);
        for page in 0..pages {
            harness.read_ahead([page]);
            if generations == 3 {
                // While still in the batch: a hot page is placed in the second oldest of four
                // generations.
                harness.make_hot(page);
                harness.drain();
            }
        }
        harness.drain();
        harness.isolate(0);
        assert_eq!(harness.max_seq() - harness.min_seq() + 1, generations);
        harness
    }

    fn aged(harness: &Harness) -> u64 {
        harness.stat(Counter::Aged)
    }

    fn flushes(harness: &Harness) -> usize {
        let flushes = harness.host.flushes.borrow();
        flushes.iter().filter(|&&reason| reason == FlushReason::Reclaim).count()
    }

    /// [book: reclaim-loop#checks]: "7.1, same, with 3 generations at priority 11 (cgroup reclaim):
    /// ages once, evicts nothing in this visit"; [book: aging#when-to-age]: "aging is skipped" at
    /// priority 12, and the budget is spent.
    #[test]
    fn aging_takes_the_turn() {
        let harness = harness(Preset::Linux71, 100_000, 3);
        let orders = harness.orders(1000);
        assert_eq!((harness.pass(orders, 12).0, aged(&harness)), (vec![24], 0));
        assert_eq!((harness.pass(orders, 11).0, aged(&harness)), (vec![], 1));
        assert_eq!(
            (harness.pass(orders, 11).0, aged(&harness)),
            (vec![48], 1),
            "four generations: 99,976 >> 11"
        );
    }

    /// [book: aging#when-to-age]: with two generations, "the scan budget is then 0 in the
    /// `must_age` case, so the pass does nothing" at priority 12.
    #[test]
    fn nothing_happens_at_the_first_priority_if_aging_must_come_first() {
        for preset in [Preset::Linux612, Preset::Linux71] {
            let mut harness = Harness::with_preset(preset, 10_000, 31);
            harness.bring_at(0..10_000, 2);
            harness.isolate(0);
            harness.isolate(0);
            let orders = harness.orders(32);
            assert_eq!((harness.pass(orders, 12).0, aged(&harness)), (vec![], 0), "{preset:?}");
            assert_eq!((harness.pass(orders, 11).0, aged(&harness)), (vec![], 1), "{preset:?}");
        }
    }

    /// [book: reclaim-loop#checks]: "7.1 cgroup reclaim continues to the end of the budget", which
    /// is computed anew for each step.
    #[test]
    fn limit_reclaim_goes_on_past_its_goal() {
        let harness = harness(Preset::Linux71, 10_000, 4);
        let (steps, scan) = harness.pass(harness.orders(32), 5);
        // Budgets 312, 310, 308, 306, 304: the fifth step, of 64 pages like all, reaches 320.
        assert_eq!((steps, scan.progress.reclaimed), (vec![64; 5], 320));
    }

    /// [book: eviction#batch-limits], row "folios looked at per scan": 7.1 scans its budget, 6.12
    /// scans 4096 however small the budget is.
    #[test]
    fn steps_are_large_before_the_rework() {
        let first = |preset| {
            // Two steps, since 6.12 places new pages in the second oldest generation and first
            // passes over the empty oldest one.
            let harness = harness(preset, 5000, if preset == Preset::Linux71 { 4 } else { 3 });
            harness.pass(harness.orders(32), 12).0
        };
        assert_eq!((first(Preset::Linux71), first(Preset::Linux612)), (vec![1], vec![64]));
    }

    /// [book: reclaim-loop#checks]: "7.1: flusher is woken at the end of the loop iff unqueued
    /// dirty > 0 and equals file taken"; [book: eviction#sorting] row 6: dirty pages are not
    /// isolated.
    #[test]
    fn nothing_but_dirty_pages_wakes_the_flusher() {
        let woken = |dirty: u32, queued: bool| {
            let harness = harness(Preset::Linux71, 640, 4);
            (0..dirty).for_each(|page| harness.write(page));
            let folios = if queued { harness.start_writeback() } else { Vec::new() };
            let (_, scan) = harness.pass(harness.orders(1), 4);
            assert!(scan.tallies.taken > 0 || queued);
            assert_eq!((scan.tallies.dirty, scan.tallies.congested, scan.tallies.writeback), (0, 0, 0));
            harness.end_writeback(folios);
            flushes(&harness)
        };
        assert_eq!((woken(40, false), woken(39, false), woken(0, false), woken(40, true)), (1, 0, 0, 0));
    }

    /// [book: reclaim-loop#checks]: "A memcg of 8192 pages … one dirty page at the tail, priority
    /// 12 (quota 1) … 6.12, same: up to 64 folios are isolated, no wake-up unless all are dirty";
    /// 7.1 wakes it.
    #[test]
    fn one_dirty_page_at_the_tail() {
        let pass = |preset, dirty: u32| {
            let harness = harness(preset, 8191, if preset == Preset::Linux71 { 4 } else { 3 });
            (0..dirty).for_each(|page| harness.write(page));
            (harness.pass(harness.orders(32), 12).0, flushes(&harness))
        };
        assert_eq!(pass(Preset::Linux71, 1), (vec![1], 1));
        assert_eq!(pass(Preset::Linux612, 1), (vec![64], 0));
        assert_eq!(pass(Preset::Linux612, 63), (vec![64], 0));
        assert_eq!(pass(Preset::Linux612, 64), (vec![64], 1));
    }
}
