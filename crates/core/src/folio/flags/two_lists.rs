//! Transitions of the state word on active and inactive lists, and between policies.
//!
//! Two accesses activate: the first sets `referenced`, the second clears it and moves the folio. A
//! deactivated folio keeps `workingset` and its `referenced`.
//!
//! Source: [book: classic-lru].

use super::{ACTIVE, Flags, FolioFlags, GenIndex, LRU, REFERENCED, WORKINGSET};
use crate::mechanism::Mechanisms;

impl FolioFlags {
    /// Counts one access through a descriptor to the folio of the version of `then`
    /// ([book: classic-lru#two-accesses]). `Some`: the second access to an inactive folio, with the
    /// word before. The caller must activate the folio and got a reference for that.
    #[inline]
    pub(crate) fn accessed_or_activated(&self, then: Flags) -> Option<Flags> {
        self.update(|f| {
            if f.version() != then.version() || f.dropbehind() {
                return (None, None);
            }
            if !f.referenced() {
                return (Some(f.set(REFERENCED)), None);
            }
            let settled = f.active() || f.unevictable();
            if settled || !f.can_be_queued() {
                return (None, None);
            }
            (Some(f.clear(REFERENCED).held_once_more()), Some(f))
        })
    }

    /// The reference check of reclaim ([book: classic-lru#reference-check]): clears `referenced`
    /// and returns it. `young`: an accessed bit was set, which sets `referenced` again.
    pub(crate) fn take_referenced(&self, young: bool) -> bool {
        self.update(|f| {
            let next = if young { f.set(REFERENCED) } else { f.clear(REFERENCED) };
            (Some(next), f.referenced())
        })
    }

    /// Moves an isolated folio from the active to the inactive list
    /// ([book: classic-lru#deactivation]): `referenced` stays.
    pub(crate) fn deactivate(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(WORKINGSET)), ()));
    }

    /// Follows advice that the folio is cold: clears `active` and `referenced`. `true`: it was
    /// active.
    pub(crate) fn make_cold(&self) -> bool {
        self.update(|f| (Some(f.clear(ACTIVE | REFERENCED)), f.active()))
    }

    /// A refault within reach ([book: refaults#classic-distance]): activates the folio and restores
    /// `workingset`.
    pub(crate) fn refault_active(&self, workingset: bool) {
        self.update(|f| (Some(f.set(if workingset { ACTIVE | WORKINGSET } else { ACTIVE })), ()));
    }

    /// Puts the folio on an unmarked list. Returns the word, whose `active` and kind name the list.
    pub(crate) fn enlist_unmarked(&self) -> Flags {
        self.update(|f| {
            debug_assert!(f.mark() == 0, "it is on a marked list: {f:?}");
            let next = f.set(LRU);
            (Some(next), next)
        })
    }

    /// Puts the folio on a list with this mark and clears `active`. Returns the word before.
    #[cfg(test)]
    pub(crate) fn enlist_marked(&self, mark: u8) -> Flags {
        self.update(|f| {
            debug_assert!(f.mark() == 0, "enlisted twice: {f:?}");
            (Some(f.with_mark(mark).clear(ACTIVE).set(LRU)), f)
        })
    }

    /// Moves the folio to a marked list of another policy and clears `active`. Whether it is listed
    /// or being freed does not change.
    #[cfg(test)]
    pub(crate) fn move_to_mark(&self, mark: u8) {
        self.update(|f| (Some(f.with_mark(mark).clear(ACTIVE)), ()));
    }

    /// Moves the folio from a marked list to an unmarked one; `active` says which generations were
    /// active. Returns the words before and after. Whether it is listed or being freed does not
    /// change.
    pub(crate) fn leave_generation(&self, active: impl Fn(GenIndex) -> bool) -> (Flags, Flags) {
        self.update(|f| {
            let was_active = f.generation().is_some_and(&active);
            let next = f.with_generation(None);
            let next = if was_active { next.set(ACTIVE) } else { next };
            (Some(next), (f, next))
        })
    }

    /// Moves the folio from an unmarked list to a generation.
    pub(crate) fn join_generation(&self, generation: GenIndex, mechanisms: Mechanisms) {
        self.update(|f| {
            debug_assert!(f.mark() == 0, "it is on a marked list: {f:?}");
            let f = if f.active() && !mechanisms.workingset_rework() { f.forgot_count() } else { f };
            (Some(f.with_generation(Some(generation)).clear(ACTIVE)), ())
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn listed(active: bool) -> FolioFlags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        if active {
            flags.set_active();
        }
        flags.enlist_unmarked();
        flags
    }

    fn access(flags: &FolioFlags) -> bool {
        let second = flags.accessed_or_activated(flags.load());
        if second.is_some() {
            flags.put();
        }
        second.is_some()
    }

    /// [book: classic-lru#two-accesses], all rows.
    #[test]
    fn two_accesses_activate() {
        let flags = listed(false);
        assert_eq!([(); 3].map(|()| access(&flags)), [false, true, false]);
        assert!(flags.load().referenced(), "the third, while it waits to be moved, is a first one again");
        let flags = listed(true);
        assert_eq!([(); 3].map(|()| access(&flags)), [false; 3]);
        assert!(flags.load().referenced());
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        flags.enlist_unevictable();
        assert_eq!([(); 3].map(|()| access(&flags)), [false; 3]);
        assert!(flags.load().referenced());
    }

    #[test]
    fn another_page_in_the_frame_is_left_alone() {
        let flags = listed(false);
        let then = flags.load();
        flags.leave_mapping();
        assert!(flags.accessed_or_activated(then).is_none() && !flags.load().referenced());
        flags.set_dropbehind();
        assert!(!access(&flags) && !flags.load().referenced());
    }

    /// [book: classic-lru#checks]: "Three fd reads (active, R=1), then deactivation: R still 1,
    /// `workingset` 1 … Two reads, then deactivation: R=0".
    #[test]
    fn deactivation_keeps_the_access() {
        for referenced in [true, false] {
            let flags = listed(true);
            if referenced {
                access(&flags);
            }
            flags.deactivate();
            let now = flags.load();
            assert_eq!((now.active(), now.workingset(), now.referenced()), (false, true, referenced));
        }
    }

    /// [book: classic-lru#reference-check]: "`r` = R, cleared by the test"; a young page sets it.
    #[test]
    fn the_check_takes_the_access() {
        let flags = listed(false);
        access(&flags);
        assert!(flags.take_referenced(false) && !flags.take_referenced(true) && flags.take_referenced(true));
        assert!(flags.load().referenced());
    }

    #[test]
    fn between_the_policies() {
        let flags = listed(true);
        let mechanisms = Mechanisms::default();
        flags.join_generation(GenIndex::new(2), mechanisms);
        assert!(!flags.load().active() && flags.load().lru());
        let (before, after) = flags.leave_generation(|label| label == GenIndex::new(2));
        assert_eq!(
            (before.generation(), after.generation(), after.active()),
            (Some(GenIndex::new(2)), None, true)
        );
    }
}
