//! The lock of a folio, and changes of its bytes.
//!
//! A thread that changes the bytes of a page in memory takes four steps.
//! [`FolioFlags::begin_write`] takes lock and reference and marks the bytes as changing, and
//! [`FolioFlags::end_write`] undoes all that under a new version; the marks in the slot change
//! after the first and before the second. A step costs more than its instructions: the processor
//! first completes all stores before it, and those to the bytes may still wait for memory.

use super::{Flags, FolioFlags, LOCKED, RECLAIM, REFERENCE, VERSION, WAITERS, WRITING};

/// Outcome of an attempt to begin to change the bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAttempt {
    /// The caller may change the bytes, and holds the lock and a reference.
    Begun,
    /// Another thread holds the lock: wait until the folio is unlocked, then look up again.
    Busy,
    /// The bytes are lent and must not change: wait until they are not, then look up again.
    Lent,
    /// The folio holds another page by now, or none: look up again.
    Gone,
}

impl FolioFlags {
    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> bool {
        self.update(|f| if f.locked() { (None, false) } else { (Some(f.set(LOCKED)), true) })
    }

    /// Releases the lock. `true`: the caller must wake sleeping threads.
    pub fn unlock(&self) -> bool {
        self.update(|f| {
            debug_assert!(f.locked());
            (Some(f.clear(LOCKED | WAITERS)), f.waiters())
        })
    }

    /// Announces that a thread is about to sleep, if `asleep_while` still holds. `false`: it need
    /// not sleep, or the folio was freed, whatever its bits say, and would never be woken.
    pub fn announce_waiter(&self, asleep_while: impl Fn(Flags) -> bool) -> bool {
        self.update(
            |f| {
                if f.is_held() && asleep_while(f) { (Some(f.set(WAITERS)), true) } else { (None, false) }
            },
        )
    }

    /// The lock holder begins to change the bytes: copies taken from now on are not whole. `false`:
    /// they are lent, so that it may not. The caller orders the change behind this by a fence.
    #[must_use]
    pub(crate) fn begin_content(&self) -> bool {
        self.update(|f| {
            debug_assert!(f.locked() && !f.writing());
            if f.lent() { (None, false) } else { (Some(f.set(WRITING)), true) }
        })
    }

    /// Takes [`Self::begin_content`] back: no byte has changed, so earlier copies are valid.
    /// `true`: the caller must wake sleeping threads.
    pub(crate) fn cancel_content(&self) -> bool {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            (Some(f.clear(WRITING | WAITERS)), f.waiters())
        })
    }

    /// [`Self::end_content`] and [`Self::unlock`] in one step. Returns the state after it, and
    /// whether threads wait for the folio.
    pub(crate) fn end_content_and_unlock(&self) -> (Flags, bool) {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            let next = Flags(f.clear(WRITING | LOCKED | WAITERS).0.wrapping_add(VERSION));
            (Some(next), (next, f.waiters()))
        })
    }

    /// Marks the bytes as valid under a new version, which is returned.
    pub(crate) fn end_content(&self) -> u32 {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            let next = Flags(f.clear(WRITING).0.wrapping_add(VERSION));
            (Some(next), next.version())
        })
    }

    /// Takes a reference and the lock, and marks the bytes as changing, as [`Self::begin_content`]
    /// does.
    pub(crate) fn begin_write(&self) -> WriteAttempt {
        self.update(|f| {
            if !f.can_be_held() {
                (None, WriteAttempt::Gone)
            } else if f.locked() {
                (None, WriteAttempt::Busy)
            } else if f.lent() {
                (None, WriteAttempt::Lent)
            } else {
                (Some(f.set(LOCKED | WRITING).held_once_more()), WriteAttempt::Begun)
            }
        })
    }

    /// Takes [`Self::begin_write`] back: no byte has changed. Returns the word after it, and
    /// whether the caller must wake sleeping threads.
    pub(crate) fn cancel_write(&self) -> (Flags, bool) {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            let next = Flags(f.clear(WRITING | LOCKED | WAITERS).0 - REFERENCE);
            (Some(next), (next, f.waiters()))
        })
    }

    /// Ends a change of a dirty page's bytes: a new version, no lock, one reference less. Cancels a
    /// pending `reclaim`. Returns as [`Self::cancel_write`]. `None`: the page is clean, and must be
    /// made dirty first.
    pub(crate) fn end_write(&self) -> Option<(Flags, bool)> {
        self.update(|f| {
            debug_assert!(f.locked() && f.writing());
            if !f.dirty() {
                return (None, None);
            }
            let next = f.clear(WRITING | LOCKED | WAITERS | RECLAIM).0.wrapping_add(VERSION) - REFERENCE;
            (Some(Flags(next)), Some((Flags(next), f.waiters())))
        })
    }
}
