//! The lock that keeps the length of a file from changing while it is written to.
//!
//! All writers of a file hold it shared, so with a common lock each write would write to one cache
//! line, and threads that write to different pages of a file would wait for one another's line.
//! With the [`Bias`] they write to lines of their own, as long as nobody changes the length.
//!
//! # Locking
//!
//! See [`crate::inode`]. A thread that changes the length waits for those that the table of readers
//! shows. A writer that leaves the table wakes it, under a lock that all files share. Nothing else
//! is locked under that one.

use crate::host::thread_number;
use mglru_core::{Bias, VisibleReader, VisibleReaders};
use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// The writers of all files of a cache, by their threads.
#[derive(Default)]
pub(crate) struct Writers {
    visible: VisibleReaders,
    /// For threads that wait until some have left.
    waiting: Mutex<()>,
    left: Condvar,
}

impl Writers {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn wake(&self) {
        drop(self.lock());
        self.left.notify_all();
    }
}

/// The lock of one file.
pub(crate) struct ResizeLock {
    lock: RwLock<()>,
    bias: Bias,
}

/// The right to write within the file, and to extend it.
pub(crate) struct Writing<'a>(Held<'a>);

enum Held<'a> {
    Visible(Option<VisibleReader<'a>>, &'a Writers),
    Lock { _guard: RwLockReadGuard<'a, ()> },
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Held::Visible(reader, writers) = &mut self.0
            && reader.take().is_some_and(VisibleReader::leave)
        {
            writers.wake();
        }
    }
}

/// The right to change the length.
pub(crate) struct Alone<'a> {
    _guard: RwLockWriteGuard<'a, ()>,
}

impl ResizeLock {
    /// The lock of the file whose mapping has this number.
    pub(crate) fn new(number: u64) -> ResizeLock {
        ResizeLock { lock: RwLock::new(()), bias: Bias::new(number) }
    }

    /// Waits while another thread changes the length.
    #[inline]
    pub(crate) fn share<'a>(&'a self, writers: &'a Writers) -> Writing<'a> {
        self.enter(writers).unwrap_or_else(|| {
            let guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
            self.by_lock(guard)
        })
    }

    /// `None`: another thread changes the length, or waits to.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "for futures"))]
    pub(crate) fn try_share<'a>(&'a self, writers: &'a Writers) -> Option<Writing<'a>> {
        self.enter(writers).or_else(|| match self.lock.try_read() {
            Ok(guard) => Some(self.by_lock(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.by_lock(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    #[inline]
    fn enter<'a>(&'a self, writers: &'a Writers) -> Option<Writing<'a>> {
        match self.bias.enter(&writers.visible, thread_number()) {
            Ok(reader) => Some(Writing(Held::Visible(Some(reader), writers))),
            Err(wakes) => {
                if wakes {
                    writers.wake();
                }
                None
            }
        }
    }

    fn by_lock<'a>(&'a self, guard: RwLockReadGuard<'a, ()>) -> Writing<'a> {
        self.bias.note_read_by_lock();
        Writing(Held::Lock { _guard: guard })
    }

    /// Waits for all writers, and for other threads that change the length.
    pub(crate) fn alone<'a>(&'a self, writers: &Writers) -> Alone<'a> {
        let guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.bias.begin_to_end();
        let mut waiting = writers.lock();
        while self.bias.has_readers(&writers.visible) {
            waiting = writers.left.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        drop(waiting);
        self.bias.end(true);
        Alone { _guard: guard }
    }

    /// `None`: a thread writes, or changes the length.
    pub(crate) fn try_alone<'a>(&'a self, writers: &Writers) -> Option<Alone<'a>> {
        let guard = match self.lock.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.bias.begin_to_end();
        let is_alone = !self.bias.has_readers(&writers.visible);
        self.bias.end(is_alone);
        is_alone.then_some(Alone { _guard: guard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn writers_share_and_exclude_those_that_resize() {
        let (writers, file, other) = (Writers::default(), ResizeLock::new(1), ResizeLock::new(2));
        let first = file.share(&writers);
        // The same thread once more: by the lock, as its place is taken.
        let second = file.try_share(&writers).expect("writers share");
        assert!(file.try_alone(&writers).is_none());
        assert!(other.try_alone(&writers).is_some(), "no thread writes to that file");
        drop(second);
        assert!(file.try_alone(&writers).is_none());
        drop(first);
        let alone = file.try_alone(&writers).expect("nobody writes any more");
        assert!(file.try_share(&writers).is_none() && file.try_alone(&writers).is_none());
        drop(alone);
        assert!(file.try_share(&writers).is_some());
    }

    /// Threads that resize wait for writers in the table and by the lock, and are woken.
    #[test]
    fn no_writer_meets_a_thread_that_resizes() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2_000 };
        let (writers, file, words) =
            (Writers::default(), ResizeLock::new(3), [AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..40 * ROUNDS {
                        let _shared = file.share(&writers);
                        assert_eq!(words[0].load(Relaxed), words[1].load(Relaxed));
                    }
                });
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let _alone = file.alone(&writers);
                        words.iter().for_each(|word| _ = word.fetch_add(1, Relaxed));
                    }
                });
            }
        });
        assert_eq!(words.map(AtomicU64::into_inner), [2 * ROUNDS; 2]);
    }
}
