//! Transitions of the state word before the working-set rework (Linux 6.13 and earlier).
//!
//! The second access through a descriptor already proved a folio hot, and `workingset` counted as
//! one of the accesses. Every move to a younger generation cleared it: a folio was hot if it had
//! been accessed twice since its last move. One accessed bit found by a walk sufficed for the
//! youngest generation.
//!
//! Source: [book: folios#state-word], [book: access#counting-before], [book: access#forgetting],
//! [book: access#mapped-accesses] (before the rework).

use super::{Flags, GenIndex, Neighbour, REFERENCED, Tier, WORKINGSET, tier_of};

/// `nrefs` of a folio that sorting always protects: five accesses.
const PROTECTED_ALWAYS: u32 = 4;

impl Flags {
    /// Counted accesses, except the first, which only sets `referenced`.
    pub(super) fn nrefs_before(self) -> u32 {
        self.refs() + u32::from(self.workingset())
    }

    pub(super) fn tier_before(self) -> Tier {
        tier_of(self.nrefs_before() + 1)
    }

    pub(super) fn saturated_before(self) -> bool {
        self.nrefs_before() == PROTECTED_ALWAYS
    }

    /// Counts one access through a descriptor ([book: access#counting-before]).
    pub(super) fn accessed_before(self) -> Flags {
        if !self.referenced() {
            self.set(REFERENCED)
        } else if !self.workingset() {
            self.set(WORKINGSET)
        } else if self.refs() < 3 {
            self.with_refs(self.refs() + 1)
        } else {
            self
        }
    }

    /// Handles an accessed bit found by a walk ([book: access#young-in-walk]): a folio in a
    /// generation gets the label `youngest` at once. A folio without one, isolated or queued,
    /// becomes `referenced`; if isolated, it is kept.
    pub(super) fn found_young_by_walk_before(self, youngest: GenIndex) -> (Option<Flags>, Neighbour) {
        let Some(old) = self.generation() else { return (Some(self.set(REFERENCED)), Neighbour::Noted) };
        let change = if old == youngest { Neighbour::Noted } else { Neighbour::Relabelled(old, youngest) };
        (Some(self.forgot_accesses().with_generation(Some(youngest))), change)
    }

    /// Handles an accessed bit found by eviction ([book: access#young-in-eviction]). Isolation has
    /// cleared `referenced`.
    pub(super) fn found_young_by_eviction_before(self) -> (Option<Flags>, bool) {
        (Some(self.set(REFERENCED)), self.referenced())
    }

    /// Handles an accessed bit found by the look-around ([book: access#young-neighbours]). A folio
    /// that is already youngest only loses the bit.
    pub(super) fn found_young_as_neighbour_before(self, youngest: GenIndex) -> (Option<Flags>, bool) {
        match self.generation() {
            None => (Some(self.set(REFERENCED)), false),
            Some(label) if label == youngest => (None, false),
            Some(_) => (Some(self.forgot_accesses()), true),
        }
    }

    /// Takes the folio off its list for reclaim ([book: access#forgetting]). Without an access
    /// since the last count, the count is dropped. `referenced` is cleared, to mean "found young
    /// while isolated" from now on.
    pub(super) fn isolated_before(self) -> Flags {
        if self.referenced() { self.clear(REFERENCED) } else { self.forgot_accesses() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Climb, FolioFlags};
    use super::*;
    use crate::mechanism::{Mechanisms, Preset};

    const BEFORE: Mechanisms = Mechanisms::preset(Preset::Linux612);

    fn accessed(times: u32) -> FolioFlags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        (0..times).for_each(|_| flags.mark_accessed(flags.load(), BEFORE));
        flags
    }

    fn rfw(flags: &FolioFlags) -> (bool, u32, bool) {
        let now = flags.load();
        (now.referenced(), now.refs(), now.workingset())
    }

    /// The table of [book: access#counting-before], and two of [book: access#checks].
    ///
    /// * "A folio accessed N times through fds during residence has tier 0,0,1,2,2,3 for N =
    ///   0,1,2,3,4,5 and stays at 3 for N > 5 (all versions)."
    /// * "Before the rework, W is set by the 2nd fd access."
    #[test]
    fn tier_by_accesses() {
        let expected = [
            ((false, 0, false), 0, 0),
            ((true, 0, false), 0, 0),
            ((true, 0, true), 1, 1),
            ((true, 1, true), 2, 2),
            ((true, 2, true), 3, 2),
            ((true, 3, true), 4, 3),
            ((true, 3, true), 4, 3),
        ];
        for (accesses, (state, nrefs, tier)) in expected.into_iter().enumerate() {
            let flags = accessed(accesses as u32);
            assert_eq!(rfw(&flags), state, "after {accesses}");
            let now = flags.load();
            assert_eq!((now.nrefs(BEFORE), now.tier(BEFORE)), (nrefs, tier), "after {accesses}");
            assert_eq!(now.saturated(BEFORE), accesses >= 5, "after {accesses}");
        }
    }

    /// [book: access#forgetting]: protection and rejection forget everything.
    #[test]
    fn moving_up_forgets_all() {
        let flags = accessed(5);
        flags.enlist(GenIndex::new(3), BEFORE);
        assert_eq!(flags.climb(GenIndex::new(3), false, BEFORE), Climb::Moved(GenIndex::new(0)));
        assert_eq!(rfw(&flags), (false, 0, false));
        let flags = accessed(5);
        flags.reject(BEFORE);
        assert_eq!((rfw(&flags), flags.load().active()), ((false, 0, false), true));
    }

    /// [book: access#forgetting]: "added to a list with A=1 | 6.12: clears R and F, keeps W".
    #[test]
    fn an_activated_folio_is_counted_from_scratch() {
        let flags = accessed(4);
        flags.enlist(GenIndex::new(3), BEFORE);
        assert_eq!(rfw(&flags), (true, 2, true), "without A, nothing is cleared");
        let flags = accessed(4);
        flags.set_active();
        flags.enlist(GenIndex::new(3), BEFORE);
        assert_eq!((rfw(&flags), flags.load().active()), ((false, 0, true), false));
    }

    /// [book: access#forgetting]: "isolation for reclaim, R=0: clears F and W"; "R=1: clears R
    /// (after the check above), keeps F and W".
    #[test]
    fn isolation_asks_for_an_access_since() {
        let isolated = |accesses, again: bool| {
            let flags = accessed(accesses);
            flags.enlist(GenIndex::new(3), BEFORE);
            if again {
                flags.isolate(BEFORE);
                flags.enlist(GenIndex::new(3), BEFORE);
                flags.update(|f| (Some(f.set(super::super::LRU)), ()));
            }
            flags.isolate(BEFORE);
            rfw(&flags)
        };
        assert_eq!(isolated(4, false), (false, 2, true));
        assert_eq!(isolated(4, true), (false, 0, false));
    }

    /// [book: access#young-in-walk], before: "on list: label := `max_seq` of the walk; clear R, W,
    /// F"; "not on a list: R := 1".
    #[test]
    fn one_walk_promotes() {
        let flags = accessed(3);
        flags.enlist(GenIndex::new(0), BEFORE);
        let change = flags.found_young_by_walk(GenIndex::new(2), BEFORE);
        assert_eq!(change, Neighbour::Relabelled(GenIndex::new(0), GenIndex::new(2)));
        assert_eq!((rfw(&flags), flags.load().generation()), ((false, 0, false), Some(GenIndex::new(2))));
        let queued = accessed(0);
        assert_eq!(queued.found_young_by_walk(GenIndex::new(2), BEFORE), Neighbour::Noted);
        assert_eq!(rfw(&queued), (true, 0, false));
    }

    /// [book: access#young-in-eviction], before: "young ≥ 1 → set R; if R was set before or young >
    /// 1: activate … young = 1 otherwise: keep".
    #[test]
    fn eviction_keeps_young_pages() {
        let flags = accessed(0);
        assert!(!flags.found_young_by_eviction(BEFORE));
        assert!(flags.load().referenced());
        assert!(flags.found_young_by_eviction(BEFORE));
    }

    /// [book: access#young-neighbours], before: "isolated: R := 1. On list and not youngest: clear
    /// R, W, F and queue activation".
    #[test]
    fn young_neighbours() {
        let flags = accessed(3);
        flags.enlist(GenIndex::new(1), BEFORE);
        assert!(!flags.found_young_as_neighbour(GenIndex::new(1), BEFORE));
        assert_eq!(rfw(&flags), (true, 1, true), "it is youngest: nothing happens");
        assert!(flags.found_young_as_neighbour(GenIndex::new(2), BEFORE));
        assert_eq!(rfw(&flags), (false, 0, false));
        flags.isolate(BEFORE);
        assert!(!flags.found_young_as_neighbour(GenIndex::new(2), BEFORE));
        assert_eq!(rfw(&flags), (true, 0, false));
    }
}
