//! Atomics and locks: those of [`word`] and of the standard library or, under `--cfg loom`,
//! loom's.
//!
//! Everything shared in this crate is an atomic word or sits behind a [`Mutex`] from here, so that
//! loom explores the interleavings of the code that runs in production.
//!
//! # Locking
//!
//! The order of the crate's locks, outermost first. A thread takes one of each row, except for the
//! parts of a mapping and for two memcgs of which one inherits the other's pages: that one comes
//! second.
//!
//! 1. the choice of a victim ([`crate::reclaim`])
//! 2. the growth of the pool of leaves
//! 3. the list of a memcg's address spaces
//! 4. the regions of an address space
//! 5. the list of a memcg's shadow-only leaves; its shared walk
//! 6. the parts of a mapping
//! 7. its dirty pages; the growth of its index
//! 8. all lists of the node, where one lock covers them
//! 9. the lists of a memcg (lruvec)
//! 10. the tree of memcgs
//!
//! All other locks are leaves, under which none is taken: those of queues, stocks and pools; of the
//! tables of mappings, dirty files, refused pages, compact shadows, shadow owners and reports; of
//! Bloom filters; and of a memcg's name, order, pace and pressure. Two exceptions: retired frames
//! are locked before a CPU's free frames, and these before the node's. And while a memcg is created
//! on a free number, the locks of that number are taken under the tree's ([`crate::memcg`]).

#[cfg(not(loom))]
mod word;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use word::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, alone, fence, share};

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

/// Attempts at a lock before a thread sleeps: some 100 µs where nothing else wants to run.
#[cfg(not(loom))]
const AWAKE_ROUNDS: u32 = 64;
/// Pauses before an attempt: 0.5 to 1.5 µs, by processor.
#[cfg(not(loom))]
const ROUND_PAUSES: u32 = 32;

/// A mutex whose data stays usable after a holder panicked: a failed assertion in one thread is
/// reported there, and does not cause panics in other threads.
///
/// A thread that has to wait stays awake for a while, and lets others run on its CPU. This crate's
/// locks are held for microseconds. A sleeper needs longer to wake up, and the lock is free
/// meanwhile: with sixteen threads that miss, that of the lists was free for half of the time that
/// ten of them waited for it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(Inner::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_noting().0
    }

    /// As [`Self::lock`], and whether the caller had to wait.
    #[cfg(not(loom))]
    pub(crate) fn lock_noting(&self) -> (MutexGuard<'_, T>, bool) {
        match self.try_lock() {
            Some(guard) => (guard, false),
            None => (self.wait(), true),
        }
    }

    /// loom explores contention by itself: attempts would only add steps.
    #[cfg(loom)]
    pub(crate) fn lock_noting(&self) -> (MutexGuard<'_, T>, bool) {
        (self.sleep(), false)
    }

    #[cfg(not(loom))]
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "a run of one thread never waits for a lock")]
    fn wait(&self) -> MutexGuard<'_, T> {
        for _ in 0..AWAKE_ROUNDS {
            (0..ROUND_PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::thread::yield_now();
        }
        self.sleep()
    }

    fn sleep(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

/// A mutex without data. Where one thread uses all nodes of the process ([`word`]), it does
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Lock(Mutex<()>);

/// A [`Lock`] until it is dropped.
pub(crate) struct Held<'a>(#[expect(dead_code, reason = "it is for its drop")] Option<MutexGuard<'a, ()>>);

impl Lock {
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_> {
        Held((!is_alone()).then(|| self.0.lock()))
    }

    /// Takes the lock unless another thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        if is_alone() { Some(Held(None)) } else { Some(Held(Some(self.0.try_lock()?))) }
    }
}

/// Numbers that a [`Lock`] of their owner covers, last in, first out. They are words, so that one
/// thread alone needs no lock for them; loom explores that lock and not these words.
#[derive(Debug)]
pub(crate) struct NumberStack {
    numbers: Box<[RareU32]>,
    len: RareU32,
}

impl NumberStack {
    /// An empty stack that holds at most `most` numbers.
    pub(crate) fn new(most: usize) -> NumberStack {
        NumberStack { numbers: (0..most).map(|_| RareU32::new(0)).collect(), len: RareU32::new(0) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Adds a number.
    ///
    /// # Panics
    /// If it is full.
    #[inline]
    pub(crate) fn push(&self, number: u32) {
        let len = self.len.load(Ordering::Relaxed);
        self.numbers[len as usize].store(number, Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Relaxed);
    }

    /// Takes the number that was added last.
    #[inline]
    pub(crate) fn pop(&self) -> Option<u32> {
        let left = self.len.load(Ordering::Relaxed).checked_sub(1)?;
        self.len.store(left, Ordering::Relaxed);
        Some(self.numbers[left as usize].load(Ordering::Relaxed))
    }

    /// The numbers in the order in which they were added.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.numbers[..self.len()].iter().map(|number| number.load(Ordering::Relaxed))
    }

    pub(crate) fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
use word::is_alone;

#[cfg(loom)]
fn is_alone() -> bool {
    false
}

/// loom explores what several threads do.
#[cfg(loom)]
pub(crate) fn share() {}

#[cfg(loom)]
pub(crate) fn alone() {}

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
