//! References to the cache that its owned guards clone, one per CPU: with a single count, all
//! threads would write to one cache line with each guard.
//!
//! The cache keeps the references, and they keep the cache: closing it ends that.
//!
//! # Locking
//!
//! Each CPU's reference has a lock, under which nothing else is locked.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A reference, on a cache line of its own with its count.
#[repr(align(128))]
struct Keeper<S>(Arc<S>);

/// A clone of a CPU's reference.
pub(crate) struct Kept<S>(Arc<Keeper<S>>);

impl<S> Deref for Kept<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.0
    }
}

/// The references of all CPUs to a cache of type `S`.
pub(crate) struct Keepers<S>(Box<[KeeperOfCpu<S>]>);

#[repr(align(128))]
struct KeeperOfCpu<S>(Mutex<Option<Arc<Keeper<S>>>>);

impl<S> KeeperOfCpu<S> {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Keeper<S>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Keepers<S> {
    pub(crate) fn new(cpus: usize) -> Keepers<S> {
        Keepers((0..cpus).map(|_| KeeperOfCpu(Mutex::new(None))).collect())
    }

    /// A reference to the cache that keeps these. Once the cache is closed, it is of its own.
    pub(crate) fn keep(&self, cpu: usize, cache: &Arc<S>, is_open: impl FnOnce() -> bool) -> Kept<S> {
        let new = || Arc::new(Keeper(cache.clone()));
        let mut keeper = self.0[cpu].lock();
        // Under the lock: either this sees that the cache is closed, or `end` sees the keeper.
        Kept(if is_open() { keeper.get_or_insert_with(new).clone() } else { new() })
    }

    /// Ends the references, once the cache is closed.
    pub(crate) fn end(&self) {
        self.0.iter().for_each(|keeper| drop(keeper.lock().take()));
    }
}
