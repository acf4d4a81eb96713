//! Atomics and locks: the standard library's or, under `--cfg loom`, loom's.
//!
//! Everything shared in this crate is an atomic word or sits behind a [`Mutex`] from here, so that
//! loom explores the interleavings of the code that runs in production.
//!
//! # Locking
//!
//! The order of the crate's locks, outermost first: address-space list, list of shadow leaves, a
//! mapping's parts, its dirty pages or the growth of its index, lruvec, tree of memcgs. Leaves of
//! this order, under which no lock is taken: the batches of arrivals, the pools, the table of
//! mappings, Bloom filters, the index of shadow owners, the table of compact shadows, and each
//! memcg's order and pressure. One exception: a CPU's free frames are locked before the node's.
//! Another: while a memcg is created on a free number, the locks of that number may be taken in any
//! order ([`crate::memcg`]).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// Words that rarely change. loom does not explore their reads, since nearly every transition makes
/// one; code that must not miss a change reads them under a lock.
pub(crate) use std::sync::atomic::{AtomicU32 as RareU32, AtomicU64 as RareU64};

#[cfg(loom)]
use loom::sync::Mutex as Inner;
#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(loom))]
use std::sync::Mutex as Inner;
#[cfg(not(loom))]
pub(crate) use std::sync::MutexGuard;

/// A mutex whose data stays usable after a holder panicked: a failed assertion in one thread is
/// reported there, and does not cause panics in other threads.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(Inner::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// As [`Self::lock`], and whether the caller had to wait.
    pub(crate) fn lock_noting(&self) -> (MutexGuard<'_, T>, bool) {
        // loom explores contention by itself; an attempt would only add a step.
        match if cfg!(loom) { None } else { self.try_lock() } {
            Some(guard) => (guard, false),
            None => (self.lock(), !cfg!(loom)),
        }
    }

    /// Takes the lock unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Counts of a lock, kept under the lock itself so that they need no shared word.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LockCounts {
    /// Times the lock was taken.
    pub taken: u64,
    /// Times the lock was waited for.
    pub waited: u64,
}

impl LockCounts {
    pub(crate) fn count(&mut self, waited: bool) {
        self.taken += 1;
        self.waited += u64::from(waited);
    }
}
