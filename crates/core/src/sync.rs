//! The one switch between the standard library's atomics and loom's.
//!
//! Everything shared in this crate is an atomic word or sits behind a [`Mutex`]; both come from
//! here, so that `--cfg loom` explores the interleavings of the same code that runs in production.
//!
//! # Locking
//!
//! The order of the crate's locks, outermost first: address-space list, list of shadow leaves,
//! mapping, lruvec, tree of memcgs. The batches of arrivals, the pools, the table of mappings,
//! Bloom filters, who remembers most, and each memcg's order and pressure are leaves: nothing is
//! locked while one is held, but the node's free frames while a CPU's are. Against this order go
//! only the locks of a number that is nobody's, while a memcg is made of it ([`crate::memcg`]).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// A word that hardly ever changes. loom does not explore what was read of it: it stands in nearly
/// every transition, and whoever must not miss a change looks at it under a lock.
pub(crate) use std::sync::atomic::AtomicU32 as SettingsWord;

#[cfg(loom)]
use loom::sync::Mutex as Inner;
#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(loom))]
use std::sync::Mutex as Inner;
#[cfg(not(loom))]
pub(crate) use std::sync::MutexGuard;

/// A mutex whose data stays usable when a holder panicked: an assertion that failed in one thread
/// is reported there and must not turn every later access of other threads into a second panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(Inner::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The same, and whether it had to be waited for.
    pub(crate) fn lock_noting(&self) -> (MutexGuard<'_, T>, bool) {
        // loom explores who waits for whom by itself, and an attempt would be one step more.
        match if cfg!(loom) { None } else { self.try_lock() } {
            Some(guard) => (guard, false),
            None => (self.lock(), !cfg!(loom)),
        }
    }

    /// `None` where another thread holds it now.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// How often a lock was taken; kept under the lock itself, so that counting costs nobody a shared
/// word.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LockCounts {
    /// Times that it was taken.
    pub taken: u64,
    /// Times that it was waited for, because another thread had it.
    pub waited: u64,
}

impl LockCounts {
    pub(crate) fn count(&mut self, waited: bool) {
        self.taken += 1;
        self.waited += u64::from(waited);
    }
}
