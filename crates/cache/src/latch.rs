//! Where threads sleep until a folio is unlocked, written, or no longer lent.
//!
//! Folios have no room for a queue of sleepers; they share 64 of them, by number. A sleeper sets
//! the folio's `waiters` bit while it holds the queue's lock; whoever changes what it waits for
//! sees the bit in the same atomic step and wakes the queue, which needs that lock too. Thus no
//! wake-up is lost, and nobody who has no sleepers pays for them.

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

/// All queues.
pub(crate) struct Latches([Queue; QUEUES]);

impl Latches {
    pub(crate) fn new() -> Latches {
        Latches(std::array::from_fn(|_| Queue::default()))
    }

    fn queue(&self, folio: FolioId) -> &Queue {
        &self.0[folio.0 as usize % QUEUES]
    }

    /// Sleeps as long as `asleep_while` holds for the folio's state.
    pub(crate) fn wait(&self, folio: FolioId, flags: &FolioFlags, asleep_while: impl Fn(Flags) -> bool) {
        let queue = self.queue(folio);
        let mut guard = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while flags.announce_waiter(&asleep_while) {
            guard = queue.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until `done`, which is not a matter of the folio's state: who makes it true does so
    /// in a sequentially consistent step before it looks for waiters, and the caller has a
    /// reference to the folio.
    pub(crate) fn wait_until(&self, folio: FolioId, flags: &FolioFlags, done: impl Fn() -> bool) {
        let queue = self.queue(folio);
        let mut guard = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Announced before looking: whoever makes it true after this look sees the sleeper.
            flags.announce_waiter(|_| true);
            fence(Ordering::SeqCst);
            if done() {
                return;
            }
            guard = queue.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes everybody who sleeps for this folio (and those of the same queue, who look and sleep
    /// on).
    pub(crate) fn wake(&self, folio: FolioId) {
        let queue = self.queue(folio);
        drop(queue.lock.lock().unwrap_or_else(PoisonError::into_inner));
        queue.woken.notify_all();
    }
}
