//! Transitions of the state word, each compared with the book.

use super::*;
use crate::mechanism::Preset;

const NOW: Mechanisms = Mechanisms::preset(Preset::Linux72);

fn fresh() -> FolioFlags {
    let flags = FolioFlags::new();
    flags.allocate(false, 1);
    flags
}

fn access(flags: &FolioFlags, times: u32) {
    (0..times).for_each(|_| flags.mark_accessed(flags.load(), NOW));
}

fn rfw(flags: &FolioFlags) -> (bool, u32, bool) {
    let now = flags.load();
    (now.referenced(), now.refs(), now.workingset())
}

/// [book: access#counting-after], table; [book: access#checks] "A folio accessed N times through
/// fds has tier 0,0,1,2,2,3".
#[test]
fn tier_by_accesses() {
    let expected = [
        ((false, 0, false), 0, 0),
        ((true, 0, false), 1, 0),
        ((true, 1, false), 2, 1),
        ((true, 2, false), 3, 2),
        ((true, 3, false), 4, 2),
        ((true, 3, true), 4, 3),
        ((true, 3, true), 4, 3),
    ];
    for (accesses, (state, nrefs, tier)) in expected.into_iter().enumerate() {
        let flags = fresh();
        access(&flags, accesses as u32);
        assert_eq!(rfw(&flags), state, "after {accesses}");
        assert_eq!((flags.load().nrefs(NOW), flags.load().tier(NOW)), (nrefs, tier), "after {accesses}");
        assert_eq!(flags.load().saturated(NOW), accesses >= 5, "after {accesses}");
    }
}

/// [book: access#counting-after], second table: starting from `workingset`, four accesses saturate.
#[test]
fn accesses_of_a_workingset_folio() {
    for accesses in 0..6 {
        let flags = fresh();
        flags.restore(true, 0);
        access(&flags, accesses);
        assert_eq!(flags.load().tier(NOW), 3);
        assert_eq!(flags.load().saturated(NOW), accesses >= 4, "after {accesses}");
    }
}

/// [book: access#checks]: "a folio with R=0, F=2 (restored by refault) that gets one fd access has
/// R=1, F=0, tier 0".
#[test]
fn restored_refs_are_wiped_by_the_first_access() {
    let flags = fresh();
    flags.restore(false, 2);
    assert_eq!(rfw(&flags), (false, 2, false));
    access(&flags, 1);
    assert_eq!(rfw(&flags), (true, 0, false));
    assert_eq!(flags.load().tier(NOW), 0);
}

/// [book: access#checks]: "protection of a tier-3 folio clears R and F, keeps W; the folio's tier
/// is still 3".
#[test]
fn protection_keeps_workingset() {
    let flags = fresh();
    access(&flags, 5);
    flags.enlist(GenIndex::new(3), NOW);
    assert_eq!(flags.climb(GenIndex::new(3), false, NOW), Climb::Moved(GenIndex::new(0)));
    assert_eq!(rfw(&flags), (false, 0, true));
    assert_eq!(flags.load().tier(NOW), 3);
}

/// [book: access#checks]: "a walk that finds a folio young with R=W=0 leaves its generation
/// unchanged; a second walk moves its label to `max_seq` and sets W".
#[test]
fn two_walks_promote() {
    let flags = fresh();
    flags.enlist(GenIndex::new(0), NOW);
    assert_eq!(flags.found_young_by_walk(GenIndex::new(2), NOW), Neighbour::Noted);
    assert_eq!(flags.load().generation(), Some(GenIndex::new(0)));
    assert_eq!(
        flags.found_young_by_walk(GenIndex::new(2), NOW),
        Neighbour::Relabelled(GenIndex::new(0), GenIndex::new(2))
    );
    assert_eq!(rfw(&flags), (false, 0, true));
}

/// [book: access#checks]: "7.2 reverse-map check, young, R=1,F=0,W=0: activate, F becomes 1, W
/// stays 0. The next time: W=1"; and the first sight of a folio with R=W=0 only keeps it.
#[test]
fn eviction_finds_young() {
    let flags = fresh();
    assert!(!flags.found_young_by_eviction(NOW));
    assert_eq!(rfw(&flags), (true, 0, false));
    assert!(flags.found_young_by_eviction(NOW));
    assert_eq!(rfw(&flags), (true, 1, false));
    assert!(flags.found_young_by_eviction(NOW));
    assert_eq!(rfw(&flags), (false, 0, true));
    assert!(flags.found_young_by_eviction(NOW));
    assert_eq!(rfw(&flags), (true, 0, true));
}

/// [book: folios#checks]: "Adding to an MGLRU list always leaves `active` clear".
#[test]
fn enlisting_clears_active() {
    let flags = fresh();
    flags.set_active();
    flags.enlist(GenIndex::new(1), NOW);
    assert!(!flags.load().active() && flags.load().lru());
}

/// [book: folios#checks]: removing for reclaim leaves `active` clear.
#[test]
fn delisting_for_reclaim_leaves_active_clear() {
    let flags = fresh();
    flags.enlist(GenIndex::new(1), NOW);
    assert_eq!(flags.isolate(NOW).unwrap().generation(), Some(GenIndex::new(1)));
    assert!(!flags.load().active() && flags.load().generation().is_none());
    assert_eq!(flags.load().references(), 2);
}

/// [book: folios#checks]: "Two threads isolating the same folio: exactly one succeeds" (loom runs
/// it in parallel).
#[test]
fn isolation_is_exclusive() {
    let flags = fresh();
    flags.enlist(GenIndex::new(0), NOW);
    assert_eq!(flags.isolate(NOW).unwrap().generation(), Some(GenIndex::new(0)));
    assert_eq!(flags.isolate(NOW), None);
}

#[test]
fn freeze_needs_the_exact_references_and_a_clean_folio() {
    let flags = fresh();
    assert!(flags.try_get());
    assert!(flags.freeze(1, true).is_none());
    assert!(flags.set_dirty());
    assert!(flags.freeze(2, true).is_none());
    assert!(flags.clear_dirty());
    assert!(flags.freeze(2, false).is_none(), "another thread holds its lock");
    assert!(flags.freeze(2, true).is_some());
    assert!(!flags.try_get(), "a frozen folio cannot be found");
}

/// A reference count that overflowed would change the version, and readers would take the page for
/// another one.
#[test]
fn references_never_run_into_the_version() {
    let flags = fresh();
    flags.end_content();
    flags.enlist(GenIndex::new(0), NOW);
    flags.set_dirty();
    let then = flags.load();
    while flags.try_get_version(then) {}
    while flags.try_get() {}
    while flags.lend(then.version()).is_ok() {}
    assert_eq!(flags.lend(then.version()), Err(NotLent::TooOften));
    assert!(flags.isolate(NOW).is_none() && flags.load().lru());
    assert!(flags.start_writeback(), "it has the last one");
    let full = flags.load();
    assert_eq!((full.references(), full.loans()), (REFERENCES_MAX, LOANS_MAX));
    assert_eq!(full.version(), then.version());
    assert!(flags.accessed_or_activated(then).is_none() && flags.accessed_or_activated(then).is_none());
    (1..REFERENCES_MAX).for_each(|_| _ = flags.put());
    (0..LOANS_MAX).for_each(|_| _ = flags.take_back());
    assert_eq!((flags.load().references(), flags.load().loans()), (1, 0));
    assert_eq!(flags.load().version(), then.version());
}

#[test]
fn a_lent_folio_is_neither_changed_nor_freed() {
    let flags = fresh();
    let reading = flags.load();
    assert_eq!(flags.lend(reading.version()), Err(NotLent::Changing));
    flags.end_content();
    assert_eq!(flags.lend(reading.version()), Err(NotLent::Gone));
    assert_eq!(flags.lend(flags.load().version()), Ok(()));
    assert!(!flags.begin_content() && !flags.load().writing());
    assert!(flags.freeze(1, true).is_none());
    assert!(flags.put().is_held(), "the loan is left");
    assert_eq!(flags.lend(flags.load().version()), Err(NotLent::Gone), "it is no page of a mapping any more");
    assert!(!flags.take_back().is_held());
}

#[test]
fn versions_differ_by_content_and_by_identity() {
    let flags = fresh();
    assert!(flags.load().writing());
    flags.end_content();
    let before = flags.load();
    assert!(flags.unchanged_since(before));
    assert!(flags.begin_content());
    assert!(!flags.unchanged_since(before));
    flags.end_content();
    assert!(!flags.unchanged_since(before));
    assert_eq!(flags.load().version(), before.version() + 1);
    flags.mark_accessed(before, NOW);
    assert!(!flags.load().referenced(), "an access to the former content is not counted");
}

#[test]
fn redirtying_takes_back_reclaim() {
    let flags = fresh();
    flags.set_dirty();
    flags.set_reclaim();
    assert!(!flags.set_dirty());
    assert!(!flags.load().reclaim());
}

#[test]
fn a_clean_folio_is_not_dirtied_behind_its_mapping() {
    let flags = fresh();
    assert!(!flags.redirty() && !flags.load().dirty());
    flags.set_dirty();
    flags.set_reclaim();
    assert!(flags.redirty());
    assert!(flags.load().dirty() && !flags.load().reclaim());
}

/// The thread that freed the folio woke only those that had announced themselves before.
#[test]
fn waiting_for_a_freed_folio_is_refused() {
    let flags = fresh();
    assert!(flags.announce_waiter(Flags::writing));
    assert!(flags.put().waiters());
    assert!(flags.load().writing(), "as abandoning leaves it");
    assert!(!flags.announce_waiter(Flags::writing));
}

#[test]
fn tiers_are_logarithms_rounded_up() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(tier_of), [0, 0, 1, 2, 2, 3]);
}

/// [book: access#young-in-eviction], row "young ≥ 1, otherwise, 7.1": "activate; clear R, F; W :=
/// 1", whatever the count.
#[test]
fn eviction_finds_young_in_7_1() {
    let older = Mechanisms::preset(Preset::Linux71);
    let flags = fresh();
    assert!(!flags.found_young_by_eviction(older));
    assert_eq!(rfw(&flags), (true, 0, false));
    assert!(flags.found_young_by_eviction(older));
    assert_eq!(rfw(&flags), (false, 0, true));
}

/// [book: eviction#isolation]: 7.1 clears `reclaim` on isolation; late 6.12 and 7.2 keep it.
#[test]
fn isolation_cleared_reclaim() {
    for (preset, kept) in [(Preset::Linux612, true), (Preset::Linux71, false), (Preset::Linux72, true)] {
        let flags = fresh();
        let mechanisms = Mechanisms::preset(preset);
        flags.enlist(GenIndex::new(0), mechanisms);
        flags.set_reclaim();
        flags.isolate(mechanisms);
        assert_eq!(flags.load().reclaim(), kept, "{preset:?}");
    }
}
