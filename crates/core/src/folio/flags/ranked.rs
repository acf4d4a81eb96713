//! Transitions of the state word under the policy `ranked`.
//!
//! | bit | on its lists, or isolated | new, on its way to them |
//! |---|---|---|
//! | `mark` | list of newcomers, or main list | – |
//! | `referenced` | touched since it was brought in | the same |
//! | `refs` | accesses after that, up to 3, less what the hand took | accesses |
//! | `workingset` | accessed since the hand, or its promotion, left it | it had left from the main list |
//! | `active` | off the lists: it was on the main list | it returns |
//!
//! The access that brings a page in does not count: it adds no information.

use super::{ACTIVE, Flags, FolioFlags, LRU, REFERENCED, WORKINGSET};

/// Marks of folios among the newcomers, and of those on the main list.
pub(crate) const NEWCOMER: u8 = 5;
pub(crate) const MAIN: u8 = 6;

/// The most accesses that are counted.
const REFS_MAX: u32 = 3;

impl Flags {
    /// Takes the mark off. For folios of this policy, `active` then names the list.
    pub(super) fn off_list(self) -> Flags {
        let off = self.with_mark(0);
        match self.mark() {
            MAIN => off.set(ACTIVE),
            NEWCOMER => off.clear(ACTIVE),
            _ => off,
        }
    }

    /// Counts one access.
    #[inline]
    fn ranked_access(self) -> Flags {
        if !self.referenced() {
            self.set(REFERENCED)
        } else if self.refs() < REFS_MAX {
            self.with_refs(self.refs() + 1).set(WORKINGSET)
        } else {
            self
        }
    }

    /// Whether the folio is on the list of newcomers, or is isolated from there.
    fn is_newcomer(self) -> bool {
        self.mark() == NEWCOMER || self.mark() == 0 && !self.active()
    }

    /// As a folio that was not accessed since it was brought in.
    fn forgot_refs(self) -> Flags {
        self.with_refs(0).clear(WORKINGSET)
    }
}

/// Result of a step of the hand at a folio of the main list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandStep {
    /// It has no access: it is the candidate, and stays.
    Candidate,
    /// One of its accesses was taken.
    Passed {
        /// Whether it was accessed since the hand was here last.
        accessed: bool,
    },
}

impl FolioFlags {
    /// Counts one access through a descriptor to the folio of the version of `then`. Writes nothing
    /// once the count is saturated.
    #[inline]
    pub(crate) fn mark_accessed_ranked(&self, then: Flags) {
        self.update(|f| {
            if f.version() != then.version() || f.unevictable() || f.dropbehind() {
                return (None, ());
            }
            (Some(f.ranked_access()), ())
        });
    }

    /// Counts an accessed bit, which stands for any number of accesses: for two of a newcomer, so
    /// that it is promoted, and for one of a page of the main list. Returns the word after.
    pub(crate) fn found_accessed(&self) -> Flags {
        self.update(|f| {
            let next = f.ranked_access();
            // Where it was not touched before, the bit may stand for the access that brought it in.
            let twice = f.referenced() && f.is_newcomer();
            let next = if twice { next.ranked_access() } else { next };
            (Some(next), next)
        })
    }

    /// Handles the first page-table entry. `true`: the entry is made for the access that brought
    /// the page in, and its accessed bit is not to count.
    pub(crate) fn take_first_touch(&self, then: Flags) -> bool {
        self.update(|f| {
            if f.version() != then.version() || f.referenced() {
                return (None, false);
            }
            (Some(f.set(REFERENCED)), true)
        })
    }

    /// Counts a fault on a cached page as an access. `false`: the page was not touched before, or
    /// the folio holds another page by now.
    pub(crate) fn count_fault(&self, then: Flags) -> bool {
        self.update(|f| {
            if f.version() != then.version() || !f.referenced() {
                return (None, false);
            }
            (Some(f.ranked_access()), true)
        })
    }

    /// Handles a write, which counts as the access that brought the page in.
    #[inline]
    pub(crate) fn note_touched(&self) {
        self.update(|f| (Some(f.set(REFERENCED)), ()));
    }

    /// Marks a new folio whose page has a shadow.
    pub(crate) fn returns(&self, from_main: bool) {
        self.update(|f| (Some(f.set(if from_main { ACTIVE | WORKINGSET } else { ACTIVE })), ()));
    }

    /// Marks a new folio that readahead brought in.
    pub(crate) fn comes_ahead(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(WORKINGSET)), ()));
    }

    /// Puts the folio on the list of a mark. `refs`: the fewest accesses that a new folio starts
    /// with.
    pub(crate) fn enlist_ranked(&self, mark: u8, refs: Option<u32>) {
        self.update(|f| {
            debug_assert!(f.mark() == 0, "enlisted twice: {f:?}");
            let f = match refs.map(|least| f.refs().max(least)) {
                None => f,
                Some(0) => f.forgot_refs(),
                Some(refs) => f.with_refs(refs).set(WORKINGSET),
            };
            (Some(f.clear(ACTIVE).set(LRU).with_mark(mark)), ())
        });
    }

    /// Moves the folio from the newcomers to the main list, with its accesses forgotten.
    pub(crate) fn promote(&self) {
        self.update(|f| {
            debug_assert!(f.mark() == NEWCOMER);
            (Some(f.forgot_refs().with_mark(MAIN)), ())
        });
    }

    /// One step of the hand: takes an access from the folio, if it has one.
    pub(crate) fn hand_step(&self) -> HandStep {
        self.update(|f| {
            if f.refs() == 0 {
                return (None, HandStep::Candidate);
            }
            let next = f.with_refs(f.refs() - 1).clear(WORKINGSET);
            (Some(next), HandStep::Passed { accessed: f.workingset() })
        })
    }

    /// Takes the folio off the lists of this policy; `active` then names the list.
    pub(crate) fn leave_ranked(&self) {
        self.update(|f| (Some(f.off_list().clear(WORKINGSET)), ()));
    }

    /// Takes the folio over from another policy; `active` names its list. Returns the word after.
    pub(crate) fn join_ranked(&self) -> Flags {
        self.update(|f| {
            let mark = if f.active() { MAIN } else { NEWCOMER };
            let next = f.forgot_refs().clear(ACTIVE).set(REFERENCED).with_mark(mark);
            (Some(next), next)
        })
    }

    /// Follows advice that the folio is cold: a newcomer without accesses.
    pub(crate) fn forget_ranked(&self) {
        self.update(|f| (Some(f.forgot_refs().clear(ACTIVE)), ()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn listed(mark: u8) -> FolioFlags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        flags.enlist_ranked(mark, None);
        flags
    }

    fn read(flags: &FolioFlags, times: u32) {
        (0..times).for_each(|_| flags.mark_accessed_ranked(flags.load()));
    }

    #[test]
    fn the_access_that_brings_a_page_in_does_not_count() {
        let flags = listed(NEWCOMER);
        read(&flags, 1);
        assert_eq!((flags.load().refs(), flags.load().referenced()), (0, true));
        read(&flags, 2);
        assert_eq!((flags.load().refs(), flags.load().workingset()), (2, true));
        read(&flags, 5);
        assert_eq!(flags.load().refs(), 3);
        assert_eq!(flags.found_accessed().refs(), 3);
    }

    #[test]
    fn a_fault_counts_as_that_access() {
        let flags = listed(NEWCOMER);
        assert!(flags.take_first_touch(flags.load()) && !flags.take_first_touch(flags.load()));
        assert_eq!(flags.load().refs(), 0);
        let gone = flags.load();
        flags.leave_mapping();
        assert!(!flags.take_first_touch(gone), "the frame holds another page by now");
    }

    /// An accessed bit stands for any number of accesses, a fault for one.
    #[test]
    fn bits_weigh_more_than_faults_among_newcomers() {
        for (mark, of_bit) in [(NEWCOMER, 2), (MAIN, 1)] {
            let flags = listed(mark);
            assert!(!flags.count_fault(flags.load()), "the fault that brings the page in does not count");
            flags.take_first_touch(flags.load());
            assert!(flags.count_fault(flags.load()));
            assert_eq!(flags.load().refs(), 1);
            let flags = listed(mark);
            flags.take_first_touch(flags.load());
            assert_eq!(flags.found_accessed().refs(), of_bit);
            let isolated = listed(mark);
            isolated.take_first_touch(isolated.load());
            isolated.isolate(crate::Mechanisms::default());
            assert_eq!(isolated.found_accessed().refs(), of_bit);
        }
        let gone = listed(NEWCOMER);
        gone.take_first_touch(gone.load());
        let then = gone.load();
        gone.leave_mapping();
        assert!(!gone.count_fault(then), "the frame holds another page by now");
    }

    /// "refs > mark: accessed; the decrement must not count as an access".
    #[test]
    fn the_hand_counts_no_access_of_its_own() {
        let flags = listed(MAIN);
        read(&flags, 3);
        assert_eq!(flags.hand_step(), HandStep::Passed { accessed: true });
        assert_eq!(flags.hand_step(), HandStep::Passed { accessed: false });
        assert_eq!(flags.hand_step(), HandStep::Candidate);
        read(&flags, 9);
        assert_eq!(flags.load().refs(), 3);
        assert_eq!([(); 4].map(|()| flags.hand_step())[3], HandStep::Candidate);
    }

    #[test]
    fn an_unlisted_folio_keeps_the_name_of_its_list() {
        for mark in [NEWCOMER, MAIN] {
            let flags = listed(mark);
            read(&flags, 3);
            let mechanisms = crate::Mechanisms::default();
            assert_eq!(flags.isolate(mechanisms).map(Flags::mark), Some(mark));
            let off = flags.load();
            assert_eq!((off.mark(), off.active(), off.refs(), off.lru()), (0, mark == MAIN, 2, false));
            assert!(flags.isolate(mechanisms).is_none());
        }
    }

    #[test]
    fn promoted_folios_begin_anew() {
        let flags = listed(NEWCOMER);
        read(&flags, 3);
        flags.promote();
        let now = flags.load();
        assert_eq!((now.mark(), now.refs(), now.workingset(), now.referenced()), (MAIN, 0, false, true));
    }

    #[test]
    fn between_the_policies() {
        for mark in [NEWCOMER, MAIN] {
            let flags = listed(mark);
            read(&flags, 4);
            flags.leave_ranked();
            let off = flags.load();
            assert_eq!((off.mark(), off.active(), off.workingset()), (0, mark == MAIN, false));
            let back = flags.join_ranked();
            assert_eq!((back.mark(), back.active(), back.refs(), back.lru()), (mark, false, 0, true));
        }
    }
}
