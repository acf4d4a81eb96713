//! What accesses and reclaim make of a folio under the policy `ranked`.
//!
//! | bit | on its lists, or isolated | new, on its way to them |
//! |---|---|---|
//! | `mark` | list of newcomers, or main list | – |
//! | `referenced` | touched by anybody since it was brought in | the same |
//! | `refs` | accesses after that, up to 3, less what the hand took | accesses |
//! | `workingset` | accessed since the hand, or its promotion, left it | it had left from the main list |
//! | `active` | off the lists: it was on the main list | it returns |
//!
//! The access for which a page is brought in is none: it says nothing that being brought in does
//! not say.

use super::{ACTIVE, Flags, FolioFlags, LRU, REFERENCED, WORKINGSET};

/// The mark of folios on the list of newcomers, and of those on the main list.
pub(crate) const NEWCOMER: u8 = 5;
pub(crate) const MAIN: u8 = 6;

/// Accesses that are told apart.
const REFS_MAX: u32 = 3;

impl Flags {
    /// Off its list. Of one of this policy, `active` says which that was.
    pub(super) fn off_list(self) -> Flags {
        let off = self.with_mark(0);
        match self.mark() {
            MAIN => off.set(ACTIVE),
            NEWCOMER => off.clear(ACTIVE),
            _ => off,
        }
    }

    /// One access more.
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

    /// As one that was not accessed since it was brought in.
    fn forgot_refs(self) -> Flags {
        self.with_refs(0).clear(WORKINGSET)
    }
}

/// What the hand did to a folio of the main list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandStep {
    /// Not accessed: it is the candidate, and stays.
    Candidate,
    /// It has one access less, and was accessed since the hand left it or not.
    Passed {
        /// It was.
        accessed: bool,
    },
}

impl FolioFlags {
    /// One access through a descriptor to the folio that had version `then`. Nothing is written
    /// once it is saturated.
    #[inline]
    pub(crate) fn mark_accessed_ranked(&self, then: Flags) {
        self.update(|f| {
            if f.version() != then.version() || f.unevictable() || f.dropbehind() {
                return (None, ());
            }
            (Some(f.ranked_access()), ())
        });
    }

    /// Its accessed bit was found set, for any number of accesses: the word after.
    pub(crate) fn found_accessed(&self) -> Flags {
        self.update(|f| {
            let next = f.ranked_access();
            (Some(next), next)
        })
    }

    /// It gets its first page-table entry. `true`: for the access for which it was brought in,
    /// which is not to be found later.
    pub(crate) fn take_first_touch(&self, then: Flags) -> bool {
        self.update(|f| {
            if f.version() != then.version() || f.referenced() {
                return (None, false);
            }
            (Some(f.set(REFERENCED)), true)
        })
    }

    /// Somebody wrote to it, which counts as the access for which it was brought in.
    #[inline]
    pub(crate) fn note_touched(&self) {
        self.update(|f| (Some(f.set(REFERENCED)), ()));
    }

    /// A page is back that is remembered.
    pub(crate) fn returns(&self, from_main: bool) {
        self.update(|f| (Some(f.set(if from_main { ACTIVE | WORKINGSET } else { ACTIVE })), ()));
    }

    /// It is new, and nobody asked for it.
    pub(crate) fn comes_ahead(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(WORKINGSET)), ()));
    }

    /// Put on the list of a mark. `refs`: of a new one, the least accesses that it begins with.
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

    /// From the list of newcomers to the main list, as one that was not accessed there.
    pub(crate) fn promote(&self) {
        self.update(|f| {
            debug_assert!(f.mark() == NEWCOMER);
            (Some(f.forgot_refs().with_mark(MAIN)), ())
        });
    }

    /// The hand comes by.
    pub(crate) fn hand_step(&self) -> HandStep {
        self.update(|f| {
            if f.refs() == 0 {
                return (None, HandStep::Candidate);
            }
            let next = f.with_refs(f.refs() - 1).clear(WORKINGSET);
            (Some(next), HandStep::Passed { accessed: f.workingset() })
        })
    }

    /// Off the lists of this policy: `active` says which list it was.
    pub(crate) fn leave_ranked(&self) {
        self.update(|f| (Some(f.off_list().clear(WORKINGSET)), ()));
    }

    /// From another policy, which said by `active` where it was. The word after.
    pub(crate) fn join_ranked(&self) -> Flags {
        self.update(|f| {
            let mark = if f.active() { MAIN } else { NEWCOMER };
            let next = f.forgot_refs().clear(ACTIVE).set(REFERENCED).with_mark(mark);
            (Some(next), next)
        })
    }

    /// Advice that it is cold: a newcomer that was not accessed.
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
    fn the_access_that_brings_a_page_in_is_none() {
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
        assert_eq!((flags.load().refs(), flags.found_accessed().refs()), (0, 1));
        let gone = flags.load();
        flags.leave_mapping();
        assert!(!flags.take_first_touch(gone), "the frame holds another page by now");
    }

    /// "refs > mark: accessed; the decrement must not count as an access".
    #[test]
    fn the_hand_knows_what_it_left() {
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
    fn off_the_lists_it_is_known_where_it_was() {
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
