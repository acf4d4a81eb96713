//! Tests of the turn before the reclaim loop's series, and with its patches one by one.

use crate::mechanism::{Mechanisms, Switch};
use crate::memcg::Counter;
use crate::testing::Harness;
use crate::{FlushReason, Preset};

/// A harness with `pages` pages in a window of three or four generations.
fn harness(preset: Preset, pages: u32, generations: u64) -> Harness {
    harness_with(Mechanisms::preset(preset), pages, generations)
}

fn harness_with(mechanisms: Mechanisms, pages: u32, generations: u64) -> Harness {
    let mut harness = Harness::with_mechanisms(mechanisms, u64::from(pages), 31);
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
    assert_eq!((harness.pass(orders, 11).0, aged(&harness)), (vec![48], 1), "four generations: 99,976 >> 11");
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

/// [book: reclaim-loop#checks]: "cgroup reclaim continues to the end of the budget", which is
/// computed anew for each step.
#[test]
fn limit_reclaim_goes_on_past_its_goal() {
    let taken = |without: &[Switch]| {
        let mechanisms = Mechanisms::compose(Preset::Linux71, &[], without).unwrap();
        let harness = harness_with(mechanisms, 10_000, 4);
        let (steps, scan) = harness.pass(harness.orders(32), 5);
        (steps, scan.progress.reclaimed)
    };
    // Budgets 312, 310, 308, 306, 304: the fifth step, of 64 pages like all, reaches 320.
    assert_eq!(taken(&[Switch::StopAtGoal]), (vec![64; 5], 320));
    assert_eq!(taken(&[]), (vec![64], 64));
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

/// Linux 7.1 with the first `patches` switches of the series.
fn patched(patches: usize) -> Mechanisms {
    let parts = Switch::ReclaimLoop.parts();
    Mechanisms::compose(Preset::Linux71, &parts[..patches], &[]).unwrap()
}

/// The number of switches of the series up to this one.
fn until(switch: Switch) -> usize {
    Switch::ReclaimLoop.parts().iter().position(|&part| part == switch).unwrap() + 1
}

/// The steps of a visit with three generations at priority 11, and the generations opened, as the
/// patches come. Without any, the turn ages and ends. "Don't abort scan immediately right after
/// aging" makes it evict; steps are small by then.
#[test]
fn patch_by_patch_aging_costs_less() {
    let visit = |patches| {
        let harness = harness_with(patched(patches), 100_000, 3);
        (harness.pass(harness.orders(1000), 11).0, aged(&harness))
    };
    for patches in 0..until(Switch::ScanAfterAging) {
        assert_eq!(visit(patches), (vec![], 1), "{patches}");
    }
    assert_eq!(visit(until(Switch::ScanAfterAging)), (vec![48], 1), "100,000 >> 11");
}

/// With two generations, aging must come first: at the first priority only since "restructure the
/// reclaim loop" made it no part of the budget, and evicting in the same turn only since "don't
/// abort".
#[test]
fn patch_by_patch_aging_that_must_come_first() {
    let visit = |patches| {
        let mut harness = Harness::with_mechanisms(patched(patches), 10_000, 31);
        harness.bring_at(0..10_000, 2);
        harness.isolate(0);
        harness.isolate(0);
        (harness.pass(harness.orders(32), 12).0, aged(&harness))
    };
    assert_eq!(visit(0), (vec![], 0));
    assert_eq!(visit(until(Switch::FixedBudget)), (vec![], 0));
    assert_eq!(visit(until(Switch::AgingApart)), (vec![], 1));
    assert_eq!(visit(until(Switch::ScanAfterAging)), (vec![2], 1));
}

/// Computed anew, the budget of 312 shrinks with what is taken, and ends the turn a step earlier.
#[test]
fn patch_by_patch_the_budget() {
    let visit = |patches, goal| {
        let harness = harness_with(patched(patches), 10_000, 4);
        let (steps, scan) = harness.pass(harness.orders(goal), 5);
        (steps, scan.progress.reclaimed)
    };
    assert_eq!(visit(0, 1000), (vec![64; 5], 320));
    assert_eq!(visit(until(Switch::FixedBudget), 1000), (vec![64, 64, 64, 64, 56], 312));
    for patches in [0, until(Switch::FixedBudget), until(Switch::SmallBatches)] {
        assert_eq!(visit(patches, 100), (vec![64, 64], 128), "they all stop at the goal");
    }
}

/// "Use a smaller batch": a step stops at 64 isolated folios in any case, so the request bounds
/// what is sorted.
#[test]
fn patch_by_patch_steps_get_smaller() {
    let first = |patches| {
        let harness = harness_with(patched(patches), 10_000, 4);
        (0..300).for_each(|page| harness.promote(page));
        harness.pass(harness.orders(1), 5).0[0]
    };
    assert_eq!(
        (first(0), first(until(Switch::ExactScan)), first(until(Switch::SmallBatches))),
        (312, 312, 64)
    );
}

/// "Use the common routine": a dirty folio at the tail is isolated, and keeps its mark. The flusher
/// is woken at the end of the turn until "simplify and improve dirty writeback handling"; then
/// after each batch of only dirty folios. Tallies come last.
#[test]
fn patch_by_patch_dirty_folios() {
    let visit = |patches: usize| {
        let harness = harness_with(patched(patches), 10_000, 4);
        (0..64).for_each(|page| harness.write(page));
        let (_, scan) = harness.pass(harness.orders(1000), 6);
        (harness.stat(Counter::Pgrefill), flushes(&harness), scan.tallies.dirty)
    };
    // 156 pages are due: 64 dirty, 92 clean.
    assert_eq!(visit(until(Switch::ScanAfterAging)), (64, 0, 0), "the turn met clean pages, too");
    assert_eq!(visit(until(Switch::KeepReclaimMark)), (0, 0, 0));
    assert_eq!(visit(until(Switch::FlushPerBatch)), (0, 1, 0));
    assert_eq!(visit(until(Switch::DirtyTallies)), (0, 1, 64));
}

/// The second version's minimum: a memcg of 1000 pages is scanned at priority 12, where the merged
/// version skips it.
#[test]
fn a_minimum_scan_reaches_small_memcgs() {
    let visit = |minimum: &[Switch]| {
        let mechanisms = Mechanisms::compose(Preset::Linux72, minimum, &[]).unwrap();
        let harness = harness_with(mechanisms, 1000, 4);
        harness.pass(harness.orders(32), 12).0
    };
    assert_eq!((visit(&[]), visit(&[Switch::MinimumScan])), (vec![], vec![32]));
}
