//! Wait queues on which threads sleep, and tasks wait, until a folio is unlocked, written, or lent
//! no more.
//!
//! A folio has no room for its own queue; all folios share 64 queues, by number. A sleeper sets the
//! folio's `waiters` bit while it holds the queue's lock. The thread that changes the awaited state
//! sees the bit in the same atomic step and wakes the queue, for which it takes that lock. So no
//! wake-up is lost, and without sleepers there is no cost.

use crate::waking::wake_all;
use mglru_core::FolioId;
use mglru_core::folio::{Flags, FolioFlags};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

const QUEUES: usize = 64;

/// A folio, and the number of a future that waits for it.
type Place = (FolioId, u64);

/// The place of a future in a queue, if it has one. A future that is dropped gives it up with
/// [`Latches::leave`]: otherwise the queue would keep its task until the folio is free.
#[derive(Debug, Default)]
pub(crate) struct Seat(Option<Place>);

#[derive(Default)]
struct Queue {
    /// Tasks that wait.
    lock: Mutex<BTreeMap<Place, Waker>>,
    woken: Condvar,
}

pub(crate) struct Latches {
    queues: [Queue; QUEUES],
    /// Number of futures that have waited.
    futures: AtomicU64,
}

impl Latches {
    pub(crate) fn new() -> Latches {
        Latches { queues: std::array::from_fn(|_| Queue::default()), futures: AtomicU64::new(0) }
    }

    fn queue(&self, folio: FolioId) -> &Queue {
        &self.queues[folio.0 as usize % QUEUES]
    }

    fn lock(&self, folio: FolioId) -> MutexGuard<'_, BTreeMap<Place, Waker>> {
        self.queue(folio).lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps as long as `asleep_while` holds for the folio's flags, and `matters` for what else
    /// changes in steps that wake the queue.
    pub(crate) fn wait(
        &self,
        folio: FolioId,
        flags: &FolioFlags,
        asleep_while: impl Fn(Flags) -> bool,
        matters: impl Fn() -> bool,
    ) {
        let queue = self.queue(folio);
        let mut guard = queue.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // In this order: a thread that ends `matters` afterwards sees the sleeper.
        while flags.announce_waiter(&asleep_while) && matters() {
            guard = queue.woken.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Registers the task of a future to be woken like a sleeper in [`Self::wait`]. `false`: it
    /// need not wait.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "for futures"))]
    pub(crate) fn register(
        &self,
        seat: &mut Seat,
        folio: FolioId,
        flags: &FolioFlags,
        asleep_while: impl Fn(Flags) -> bool,
        matters: impl Fn() -> bool,
        waker: &Waker,
    ) -> bool {
        if seat.0.is_some_and(|(at, _)| at != folio) {
            self.leave(seat);
        }
        let mut tasks = self.lock(folio);
        if !flags.announce_waiter(&asleep_while) || !matters() {
            return false;
        }
        let place = *seat.0.get_or_insert_with(|| (folio, self.futures.fetch_add(1, Ordering::Relaxed)));
        let is_known = tasks.get(&place).is_some_and(|known| known.will_wake(waker));
        let former = if is_known { None } else { tasks.insert(place, waker.clone()) };
        drop(tasks);
        // Not under the lock: it may drop a task, and with that a future that has a place.
        drop(former);
        true
    }

    /// Gives up the place of a future that waits no more.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "for futures"))]
    pub(crate) fn leave(&self, seat: &mut Seat) {
        let Some(place) = seat.0.take() else { return };
        let waker = self.lock(place.0).remove(&place);
        drop(waker);
    }

    /// Wakes all sleepers and tasks of this folio. Other sleepers in the same queue wake, check and
    /// sleep again.
    pub(crate) fn wake(&self, folio: FolioId) {
        let mut tasks = self.lock(folio);
        let places: Vec<Place> =
            tasks.range((folio, 0)..=(folio, u64::MAX)).map(|(&place, _)| place).collect();
        let woken: Vec<Waker> = places.iter().filter_map(|place| tasks.remove(place)).collect();
        drop(tasks);
        self.queue(folio).woken.notify_all();
        wake_all(woken);
    }
}
