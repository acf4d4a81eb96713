//! The one switch between the standard library's atomics and loom's.
//!
//! Everything shared in this crate is an atomic word or sits behind a [`Mutex`]; both come from here, so
//! that `--cfg loom` explores the interleavings of the same code that runs in production.
//!
//! # Locking
//!
//! The order of the crate's locks, outermost first: address-space list, mapping, lruvec. The batches of
//! arrivals, the pools and the tables of mappings and memcgs are leaves: nothing is locked while one is held.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// A word that hardly ever changes. loom does not explore what was read of it: it stands in nearly every transition, and
/// whoever must not miss a change looks at it under a lock.
pub(crate) use std::sync::atomic::AtomicU32 as SettingsWord;

#[cfg(loom)]
use loom::sync::Mutex as Inner;
#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(loom))]
use std::sync::Mutex as Inner;
#[cfg(not(loom))]
pub(crate) use std::sync::MutexGuard;

/// A mutex whose data stays usable when a holder panicked: an assertion that failed in one thread is
/// reported there and must not turn every later access of other threads into a second panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(Inner::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
