//! Dirty pages between writers, the flusher and reclaim.

use crate::common::Harness;
use mglru_core::reclaim::EffortKind;
use mglru_core::writeback::{Dirtier, Flusher, FlusherOptions, FlusherStep};
use mglru_core::*;

/// A full memcg of 100 pages in the oldest generation, one of which was dirty when reclaim met it.
fn met_dirty(page: u32) -> Harness {
    let mut harness = Harness::new(100, 31);
    harness.read_ahead(0..100);
    harness.drain();
    harness.write(page);
    while !harness.flags(page).reclaim() {
        harness.effort(EffortKind::Proactive, 1);
    }
    harness.evicted();
    harness
}

/// [book: access#checks]: "A folio under writeback with `reclaim` set, when I/O ends, is the
/// *first* candidate (tail of the oldest list) for the next scan"; [book: reclaim-loop#checks]:
/// "after I/O end it is freed at the next visit and no earlier folio of the oldest generation is
/// scanned before it".
#[test]
fn a_folio_that_was_in_the_way_is_freed_first() {
    let harness = met_dirty(5);
    assert_eq!(harness.seq_of(5), Some(harness.max_seq() - 1), "it made way");
    harness.end_writeback(harness.start_writeback());
    assert!(!harness.flags(5).reclaim());
    let scanned = harness.stat(Counter::PgscanProactive);
    harness.effort(EffortKind::Proactive, 1);
    assert_eq!((harness.evicted()[0], harness.stat(Counter::Pgrotated)), (5, 1));
    assert!(harness.stat(Counter::PgscanProactive) > scanned);
}

/// [book: writeback#flusher]: "Re-dirtying a folio clears `reclaim`": then it stays where it is.
#[test]
fn a_folio_that_is_written_again_is_not_freed_first() {
    let harness = met_dirty(5);
    let folios = harness.start_writeback();
    harness.write(5);
    harness.end_writeback(folios);
    harness.drain();
    assert!(harness.flags(5).dirty() && !harness.flags(5).reclaim());
    assert_eq!((harness.stat(Counter::Pgrotated), harness.seq_of(5)), (0, Some(harness.max_seq() - 1)));
    harness.core.validate().unwrap();
}

/// [book: access#rotation-and-advice], rotate: "Skipped if locked, dirty, unevictable or not on a
/// list".
#[test]
fn a_folio_in_use_is_not_rotated() {
    let harness = met_dirty(5);
    let flags = &harness.core.folios().flags(harness.folio(5));
    let folios = harness.start_writeback();
    assert!(flags.try_lock());
    harness.end_writeback(folios);
    harness.drain();
    assert_eq!(harness.stat(Counter::Pgrotated), 0);
    flags.unlock();
    harness.core.validate().unwrap();
}

/// A failed write leaves the page dirty and cached, to be written again.
#[test]
fn a_failed_write_stays_dirty() {
    let harness = met_dirty(5);
    let folios = harness.start_writeback();
    assert_eq!((harness.stat(Counter::FileDirty), harness.stat(Counter::FileWriteback)), (0, 1));
    for folio in folios {
        harness.core.end_writeback(&harness.host, &harness.mapping, folio, false, 0);
    }
    assert_eq!((harness.stat(Counter::FileDirty), harness.stat(Counter::FileWriteback)), (1, 0));
    assert_eq!((harness.core.written_pages(), harness.start_writeback().len()), (0, 1));
}

/// A page is written to while an older version is under writeback: the run ends before it, and it
/// is taken later.
#[test]
fn a_page_is_not_written_twice_at_once() {
    let mut harness = Harness::new(100, 31);
    harness.read_ahead(0..10);
    (0..10).for_each(|page| harness.write(page));
    let first = harness.core.start_writeback(&harness.mapping, 4, 5, 9).unwrap();
    harness.write(4);
    let run = |from| harness.core.start_writeback(&harness.mapping, from, 1 << 32, 100);
    let before = run(0).unwrap();
    let after = run(0).unwrap();
    assert_eq!((before.first, before.folios.len(), after.first, after.folios.len()), (0, 4, 5, 5));
    assert_eq!(run(0), None, "4 is still being written");
    harness.end_writeback(first.folios);
    assert_eq!(run(0).map(|run| run.first), Some(4));
}

/// Runs are of consecutive pages, within the requested range and length.
#[test]
fn runs_are_consecutive() {
    let mut harness = Harness::new(100, 31);
    let dirty = [0, 1, 2, 3, 4, 10, 11, 20];
    harness.read_ahead(dirty);
    dirty.into_iter().for_each(|page| harness.write(page));
    let mut runs = Vec::new();
    while let Some(run) = harness.core.start_writeback(&harness.mapping, 1, 20, 3) {
        runs.push((run.first, run.folios.len()));
    }
    assert_eq!(runs, [(1, 3), (4, 1), (10, 2)]);
    assert_eq!(harness.core.dirty_pages(&harness.mapping), 2);
}

/// Whether a flusher woken now writes.
fn flushes(harness: &Harness) -> bool {
    let mut flusher = Flusher::new(FlusherOptions::default(), Time::ZERO);
    matches!(flusher.step(&harness.core, &harness.host), FlusherStep::Write(_))
}

/// Whether a task that dirties pages of a memcg must pause.
fn pauses(harness: &Harness, memcg: MemcgId) -> bool {
    harness.core.balance_dirty(&harness.host, memcg, &mut Dirtier::default()).is_some()
}

/// The flusher is woken above the background share of the memcg's limit, 10 of 100 pages, and
/// writes above the free run, 15 pages.
#[test]
fn the_flusher_starts_at_the_background_share() {
    let mut harness = Harness::new(100, 31);
    harness.read_ahead(0..50);
    (0..10).for_each(|page| harness.write(page));
    assert!(harness.host.flushes.borrow().is_empty() && !flushes(&harness));
    harness.write(10);
    assert_eq!(*harness.host.flushes.borrow(), [FlushReason::Background]);
    (11..15).for_each(|page| harness.write(page));
    assert!(!flushes(&harness));
    (15..19).for_each(|page| harness.write(page));
    assert!(flushes(&harness));
    assert!(!pauses(&harness, harness.task.memcg));
    harness.write(19);
    assert!(pauses(&harness, harness.task.memcg), "20 of 100");
}

/// Dirty pages of descendants count for a tenant: two children, neither of which has too many.
#[test]
fn dirty_limits_are_those_of_the_subtree() {
    let mut harness = Harness::new(100, 31);
    let parent = harness.task.memcg;
    let children = ["a", "b"].map(|name| {
        let child = harness.core.add_child(parent, name, UNLIMITED, harness.host.now()).unwrap();
        harness.core.new_task(child.id(), 0)
    });
    let [a, b] = children.each_ref().map(|task| task.memcg);
    for (task, pages) in children.into_iter().zip([0..30, 30..60]) {
        harness.task = task;
        harness.read_ahead(pages);
    }
    (0..6).chain(30..34).for_each(|page| harness.write(page));
    harness.write(34);
    assert_eq!(*harness.host.flushes.borrow(), [FlushReason::Background]);
    (35..39).for_each(|page| harness.write(page));
    assert!(!flushes(&harness), "15 of 100");
    harness.write(39);
    assert!(flushes(&harness));
    (40..43).for_each(|page| harness.write(page));
    assert!(![a, b, parent].into_iter().any(|memcg| pauses(&harness, memcg)), "19 of 100");
    harness.write(43);
    assert!([a, b, parent].into_iter().all(|memcg| pauses(&harness, memcg)), "20 of 100");
    let other = harness.core.add_memcg("other", 100, harness.host.now()).unwrap().id();
    assert!(!pauses(&harness, other));

    // A removed memcg passes its dirty pages on, and the sum does not change.
    harness.core.remove_memcg(&harness.host, a).unwrap();
    assert!(pauses(&harness, b));
    let folios = harness.start_writeback();
    assert!(pauses(&harness, b) && !flushes(&harness), "all is being written");
    harness.core.validate().unwrap();
    harness.end_writeback(folios);
    assert!(!pauses(&harness, b));
    harness.core.validate().unwrap();
}

/// A limit was lowered: a task that pauses for it wakes a flusher that knows the reason.
#[test]
fn a_paused_task_wakes_the_flusher() {
    let mut harness = Harness::new(1000, 31);
    harness.read_ahead(0..100);
    (0..50).for_each(|page| harness.write(page));
    harness.core.memcg(harness.task.memcg).set_max_pages(200);
    assert!(pauses(&harness, harness.task.memcg) && flushes(&harness));
}
