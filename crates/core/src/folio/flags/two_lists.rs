//! What accesses and reclaim make of a folio on active and inactive lists, and how it moves between
//! policies.
//!
//! Two accesses activate: the first sets `referenced`, the second clears it and moves the folio.
//! What was active once keeps `workingset` when it is deactivated, and the `referenced` that it had
//! then.
//!
//! Source: [book: classic-lru].

use super::{ACTIVE, Flags, FolioFlags, GenIndex, LRU, REFERENCED, WORKINGSET};
use crate::mechanism::Mechanisms;

impl FolioFlags {
    /// One access through a descriptor to the folio that had version `then`
    /// ([book: classic-lru#two-accesses]). `Some`: it was the second one to a folio that is not
    /// active, with the word before; the folio got a reference, and is to be activated.
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
            if settled || !f.can_be_held() {
                return (None, None);
            }
            (Some(f.clear(REFERENCED).held_once_more()), Some(f))
        })
    }

    /// The reference check of reclaim ([book: classic-lru#reference-check]): takes `referenced`.
    /// `young`: an accessed bit was set, which sets it again. `true`: it was referenced.
    pub(crate) fn take_referenced(&self, young: bool) -> bool {
        self.update(|f| {
            let next = if young { f.set(REFERENCED) } else { f.clear(REFERENCED) };
            (Some(next), f.referenced())
        })
    }

    /// Isolated from the active list, and going to the inactive one
    /// ([book: classic-lru#deactivation]): `referenced` stays as it is.
    pub(crate) fn deactivate(&self) {
        self.update(|f| (Some(f.clear(ACTIVE).set(WORKINGSET)), ()));
    }

    /// Advice that it is cold: not active, and the next access is the first. `true`: it was active.
    pub(crate) fn make_cold(&self) -> bool {
        self.update(|f| (Some(f.clear(ACTIVE | REFERENCED)), f.active()))
    }

    /// A refault within reach ([book: refaults#classic-distance]): activated, and hot if it had
    /// been.
    pub(crate) fn refault_active(&self, workingset: bool) {
        self.update(|f| (Some(f.set(if workingset { ACTIVE | WORKINGSET } else { ACTIVE })), ()));
    }

    /// Put on the list that the returned word names by `active` and its kind, without a mark.
    pub(crate) fn enlist_unmarked(&self) -> Flags {
        self.update(|f| {
            debug_assert!(f.mark() == 0, "it is on a marked list: {f:?}");
            let next = f.set(LRU);
            (Some(next), next)
        })
    }

    /// Put on a list with that mark: `active` is cleared. The word before.
    #[cfg(test)]
    pub(crate) fn enlist_marked(&self, mark: u8) -> Flags {
        self.update(|f| {
            debug_assert!(f.mark() == 0, "enlisted twice: {f:?}");
            (Some(f.with_mark(mark).clear(ACTIVE).set(LRU)), f)
        })
    }

    /// From the list of one policy to a list of another, with the mark that lists of that have:
    /// `active` is cleared, and whether it is listed or about to be freed does not change.
    #[cfg(test)]
    pub(crate) fn move_to_mark(&self, mark: u8) {
        self.update(|f| (Some(f.with_mark(mark).clear(ACTIVE)), ()));
    }

    /// Leaves a marked list for one of another policy; `active` says of which generations the
    /// folios were active. The word before, and after. Whether it is listed or about to be freed
    /// does not change.
    pub(crate) fn leave_generation(&self, active: impl Fn(GenIndex) -> bool) -> (Flags, Flags) {
        self.update(|f| {
            let was_active = f.generation().is_some_and(&active);
            let next = f.with_generation(None);
            let next = if was_active { next.set(ACTIVE) } else { next };
            (Some(next), (f, next))
        })
    }

    /// From an unmarked list to that of a generation.
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

    /// [book: classic-lru#two-accesses], every row.
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
        flags.join_generation(GenIndex(2), mechanisms);
        assert!(!flags.load().active() && flags.load().lru());
        let (before, after) = flags.leave_generation(|label| label == GenIndex(2));
        assert_eq!(
            (before.generation(), after.generation(), after.active()),
            (Some(GenIndex(2)), None, true)
        );
    }
}
