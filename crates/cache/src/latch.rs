//! Wait queues on which threads sleep until a folio is unlocked, written, or has no guards.
//!
//! A folio has no room for its own queue; all folios share 64 queues, by number. A sleeper sets the
//! folio's `waiters` bit while it holds the queue's lock. The thread that changes the awaited state
//! sees the bit in the same atomic step and wakes the queue, for which it takes that lock. So no
//! wake-up is lost, and without sleepers there is no cost.

use mglru_core::FolioId;
use mglru_core::folio::{Flags, FolioFlags};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

const QUEUES: usize = 64;

#[derive(Default)]
struct Queue {
    lock: Mutex<()>,
    woken: Condvar,
}

pub(crate) struct Latches([Queue; QUEUES]);

impl Latches {
    pub(crate) fn new() -> Latches {
        Latches(std::array::from_fn(|_| Queue::default()))
    }

    fn queue(&self, folio: FolioId) -> &Queue {
        &self.0[folio.0 as usize % QUEUES]
    }

    /// Sleeps as long as `asleep_while` holds for the folio's flags.
    pub(crate) fn wait(&self, folio: FolioId, flags: &FolioFlags, asleep_while: impl Fn(Flags) -> bool) {
        let queue = self.queue(folio);
        let mut guard = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while flags.announce_waiter(&asleep_while) {
            guard = queue.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until `done`, a condition outside of the folio's flags. The thread that makes it true
    /// does so in a sequentially consistent step before it looks for waiters. The caller holds a
    /// reference to the folio.
    pub(crate) fn wait_until(&self, folio: FolioId, flags: &FolioFlags, done: impl Fn() -> bool) {
        let queue = self.queue(folio);
        let mut guard = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Announce before checking: a thread that makes `done` true after the check sees the
            // sleeper.
            flags.announce_waiter(|_| true);
            fence(Ordering::SeqCst);
            if done() {
                return;
            }
            guard = queue.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes all sleepers of this folio. Others in the same queue wake, check and sleep again.
    pub(crate) fn wake(&self, folio: FolioId) {
        let queue = self.queue(folio);
        drop(queue.lock.lock().unwrap_or_else(PoisonError::into_inner));
        queue.woken.notify_all();
    }
}
