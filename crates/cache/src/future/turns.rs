//! Turns: how many tasks look for memory, or for room at the device, at once.
//!
//! Thousands of tasks may miss at the same time. If all of them reclaimed, or looked again at every
//! page that was read, they would mostly be in each other's way. A few have a turn; the others
//! queue, and each gets the turn of one that is done.
//!
//! # Locking
//!
//! One mutex, held for a few instructions and not while a waker is called.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Turns at once: as many as keep a device busy.
const TURNS: usize = 32;

struct State {
    free: usize,
    /// Tasks in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

/// The turns of a cache's futures.
pub(super) struct Turns(Mutex<State>);

/// A future's place among the turns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    None,
    /// In the queue, unless a turn was handed over.
    Waiting(u64),
    Has,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns(Mutex::new(State { free: TURNS, waiting: BTreeMap::new(), next: 0 }))
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task without a turn may go on: none waits before it.
    pub(super) fn is_quiet(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Takes a turn, or queues for one and registers the task. `true`: the future has a turn.
    pub(super) fn take(&self, place: &mut Place, waker: &Waker) -> bool {
        let mut state = self.lock();
        match *place {
            Place::Has => {}
            Place::None if state.free > 0 && state.waiting.is_empty() => state.free -= 1,
            Place::None => {
                let number = state.next;
                state.next += 1;
                state.waiting.insert(number, waker.clone());
                *place = Place::Waiting(number);
                return false;
            }
            Place::Waiting(number) => {
                if let Some(known) = state.waiting.get_mut(&number) {
                    known.clone_from(waker);
                    return false;
                }
            }
        }
        *place = Place::Has;
        true
    }

    /// Ends a future's turn and hands it to the task that waits longest; or leaves the queue.
    pub(super) fn leave(&self, place: &mut Place) {
        let place = std::mem::take(place);
        if place == Place::None {
            return;
        }
        let mut state = self.lock();
        if let Place::Waiting(number) = place
            && state.waiting.remove(&number).is_some()
        {
            return;
        }
        match state.waiting.pop_first() {
            Some((_, next)) => {
                drop(state);
                next.wake();
            }
            None => state.free += 1,
        }
    }

    /// Wakes all tasks, because the cache is closed.
    pub(super) fn close(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_handed_over_in_order_and_none_is_lost() {
        let (turns, waker) = (Turns::default(), Waker::noop());
        let mut places: Vec<Place> = (0..TURNS + 4).map(|_| Place::None).collect();
        let taken = places.iter_mut().filter_map(|place| turns.take(place, waker).then_some(())).count();
        assert_eq!(taken, TURNS);
        assert!(!turns.is_quiet() && !turns.take(&mut places[TURNS], waker));
        // One leaves the queue; one has its turn handed over and is dropped before it looks.
        turns.leave(&mut places[TURNS + 1]);
        turns.leave(&mut places[0]);
        turns.leave(&mut places[TURNS]);
        assert!(turns.take(&mut places[TURNS + 2], waker) && !turns.take(&mut places[TURNS + 3], waker));
        turns.leave(&mut places[1]);
        assert!(turns.take(&mut places[TURNS + 3], waker) && turns.is_quiet());
        places.iter_mut().for_each(|place| turns.leave(place));
        assert_eq!(turns.lock().free, TURNS);
    }
}
