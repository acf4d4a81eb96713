//! Wait queues on which threads sleep, and tasks wait, until a folio is unlocked, written, or lent
//! no more.
//!
//! A folio has no room for its own queue; all folios share 64 queues, by number. A sleeper sets the
//! folio's `waiters` bit while it holds the queue's lock. The thread that changes the awaited state
//! sees the bit in the same atomic step and wakes the queue, for which it takes that lock. So no
//! wake-up is lost, and without sleepers there is no cost.

use mglru_core::FolioId;
use mglru_core::folio::{Flags, FolioFlags};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;

const QUEUES: usize = 64;
/// How many tasks of a queue are looked at before one is registered again.
const REGISTERED_LOOKED_AT: usize = 64;

#[derive(Default)]
struct Queue {
    /// Tasks that wait, with their folio.
    lock: Mutex<Vec<(FolioId, Waker)>>,
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

    /// Registers a task to be woken like a sleeper in [`Self::wait`]. `false`: it need not wait.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "for futures"))]
    pub(crate) fn register(
        &self,
        folio: FolioId,
        flags: &FolioFlags,
        asleep_while: impl Fn(Flags) -> bool,
        waker: &Waker,
    ) -> bool {
        let mut tasks = self.queue(folio).lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !flags.announce_waiter(&asleep_while) {
            return false;
        }
        // A task that polls again and again is mostly among the last.
        let mut last = tasks.iter().rev().take(REGISTERED_LOOKED_AT);
        if !last.any(|(other, known)| *other == folio && known.will_wake(waker)) {
            tasks.push((folio, waker.clone()));
        }
        true
    }

    /// Wakes all sleepers and tasks of this folio. Other sleepers in the same queue wake, check and
    /// sleep again.
    pub(crate) fn wake(&self, folio: FolioId) {
        let queue = self.queue(folio);
        let mut tasks = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let woken: Vec<_> = tasks.extract_if(.., |(other, _)| *other == folio).collect();
        drop(tasks);
        queue.woken.notify_all();
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}
