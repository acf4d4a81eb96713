//! Turns: how many tasks look for memory, or for room at the device, at once.
//!
//! Thousands of tasks may miss at the same time. If all of them reclaimed, or looked again at every
//! page that was read, they would mostly be in each other's way. A few have a turn; the others
//! queue, and each gets the turn of one that is done: once its read is submitted, or, if it has
//! lost its page before, once it has used the page.
//!
//! A program may keep a future and not poll it, for example while it waits for something else in a
//! `select!`. So a turn whose task did not look for a while is lent on to the next in the queue.
//! The task goes on when it comes back, and has no turn to hand over.
//!
//! # Locking
//!
//! One mutex, held for a few instructions and not while a waker is called.

use super::timer::{Clock, Timer};
use crate::waking::wake_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Turns at once: as many as keep a device busy.
const TURNS: usize = 32;
/// A turn is lent on if its task has not looked for so long: many times as long as a busy runtime
/// needs to get to a task.
const UNUSED: Duration = Duration::from_millis(200);

struct State {
    free: usize,
    /// Tasks in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    /// Tasks with a turn, and when they looked last; without those whose turn was lent on.
    holders: BTreeMap<u64, Instant>,
    /// Whether the timer will look for turns to lend on.
    is_watched: bool,
    /// No task queues any more: it goes on and finds the cache closed.
    closed: bool,
    next: u64,
}

/// The turns of a cache's futures.
#[derive(Default)]
pub(super) struct Turns(Arc<Shared>);

struct Shared(Mutex<State>);

/// A future's number, if it waits for a turn or has one: it has one unless it is in the queue.
pub(super) type Place = Option<u64>;

/// Lends turns on, whenever the timer calls it.
struct Watch {
    turns: Weak<Shared>,
    clock: Weak<Clock>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared(Mutex::new(State {
            free: TURNS,
            waiting: BTreeMap::new(),
            holders: BTreeMap::new(),
            is_watched: false,
            closed: false,
            next: 0,
        }))
    }
}

impl State {
    /// Gives a turn to the task that waits longest, which is to be woken, or keeps it.
    fn hand_over(&mut self, now: Instant) -> Option<Waker> {
        let Some((number, waker)) = self.waiting.pop_first() else {
            self.free += 1;
            return None;
        };
        self.holders.insert(number, now);
        Some(waker)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends on the turns of tasks that have not looked for a while. Returns the tasks that get
    /// them, and whether others still wait, for which the timer looks again.
    fn lend_on(&self, now: Instant) -> (Vec<Waker>, bool) {
        let mut state = self.lock();
        let unused = |(_, looked): &(&u64, &Instant)| now.saturating_duration_since(**looked) >= UNUSED;
        let unused: Vec<u64> = state.holders.iter().filter(unused).map(|(&number, _)| number).collect();
        let mut woken = Vec::new();
        for number in unused {
            if state.waiting.is_empty() {
                break;
            }
            state.holders.remove(&number);
            woken.extend(state.hand_over(now));
        }
        state.is_watched = !state.waiting.is_empty();
        (woken, state.is_watched)
    }

    /// Has the timer look for turns to lend on, if it does not already.
    fn watch(self: &Arc<Shared>, clock: &Arc<Clock>) {
        if std::mem::replace(&mut self.lock().is_watched, true) {
            return;
        }
        let watch = Watch { turns: Arc::downgrade(self), clock: Arc::downgrade(clock) };
        self.watch_again(clock, &Waker::from(Arc::new(watch)));
    }

    fn watch_again(&self, clock: &Arc<Clock>, watch: &Waker) {
        // Without a timer, the next task that queues tries again.
        if !clock.try_wake_at(Instant::now() + UNUSED, watch) {
            self.lock().is_watched = false;
        }
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        let (Some(turns), Some(clock)) = (self.turns.upgrade(), self.clock.upgrade()) else { return };
        let (woken, others_wait) = turns.lend_on(Instant::now());
        wake_all(woken);
        if others_wait {
            turns.watch_again(&clock, &Waker::from(self));
        }
    }
}

impl Turns {
    /// Whether a task without a turn may go on: none waits before it.
    pub(super) fn is_quiet(&self) -> bool {
        self.0.lock().waiting.is_empty()
    }

    /// Takes a turn, or queues for one and registers the task. `true`: the future has a turn.
    pub(super) fn take(&self, place: &mut Place, waker: &Waker, timer: &Timer) -> bool {
        let mut state = self.0.lock();
        if let Some(number) = *place {
            if let Some(known) = state.waiting.get_mut(&number) {
                known.clone_from(waker);
                return false;
            }
            if let Some(looked) = state.holders.get_mut(&number) {
                *looked = Instant::now();
            }
            return true;
        }
        state.next += 1;
        let number = *place.insert(state.next);
        if state.closed {
            return true;
        }
        if state.free > 0 && state.waiting.is_empty() {
            state.free -= 1;
            state.holders.insert(number, Instant::now());
            return true;
        }
        state.waiting.insert(number, waker.clone());
        drop(state);
        self.0.watch(timer.clock());
        false
    }

    /// Ends a future's turn and hands it to the task that waits longest; or leaves the queue.
    pub(super) fn leave(&self, place: &mut Place) {
        let Some(number) = place.take() else { return };
        let mut state = self.0.lock();
        if state.waiting.remove(&number).is_some() || state.holders.remove(&number).is_none() {
            return;
        }
        let next = state.hand_over(Instant::now());
        drop(state);
        wake_all(next);
    }

    /// Wakes all tasks, because the cache is closed.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        wake_all(waiting.into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(turns: &Turns, timer: &Timer, number: usize) -> Vec<Place> {
        let mut places: Vec<Place> = vec![None; number];
        let waker = Waker::noop();
        let taken =
            places.iter_mut().filter_map(|place| turns.take(place, waker, timer).then_some(())).count();
        assert_eq!(taken, TURNS);
        places
    }

    #[test]
    fn turns_are_handed_over_in_order_and_none_is_lost() {
        let (turns, timer, waker) = (Turns::default(), Timer::default(), Waker::noop());
        // No time passes for the timer.
        turns.0.lock().is_watched = true;
        let mut places = places(&turns, &timer, TURNS + 4);
        assert!(!turns.is_quiet() && !turns.take(&mut places[TURNS], waker, &timer));
        // One leaves the queue; one has its turn handed over and is dropped before it looks.
        turns.leave(&mut places[TURNS + 1]);
        turns.leave(&mut places[0]);
        turns.leave(&mut places[TURNS]);
        let mut take = |at: usize| turns.take(&mut places[at], waker, &timer);
        assert!(take(TURNS + 2) && !take(TURNS + 3));
        turns.leave(&mut places[1]);
        assert!(turns.take(&mut places[TURNS + 3], waker, &timer) && turns.is_quiet());
        places.iter_mut().for_each(|place| turns.leave(place));
        let state = turns.0.lock();
        assert_eq!((state.free, state.holders.len()), (TURNS, 0));
    }

    /// A task that looked whether the cache is closed just before it was would wait for ever: no
    /// timer lends on the turn of a task that is not polled.
    #[test]
    fn no_task_queues_after_the_close() {
        let (turns, timer, waker) = (Turns::default(), Timer::default(), Waker::noop());
        let mut places = places(&turns, &timer, TURNS + 1);
        timer.close();
        turns.close();
        assert!(turns.take(&mut places[TURNS], waker, &timer), "it was woken");
        let mut late = None;
        assert!(turns.take(&mut late, waker, &timer));
        turns.leave(&mut late);
        places.iter_mut().for_each(|place| turns.leave(place));
        assert_eq!(turns.0.lock().free, TURNS);
    }

    #[test]
    fn a_turn_that_is_not_used_is_lent_on_once() {
        let (turns, timer, waker) = (Turns::default(), Timer::default(), Waker::noop());
        turns.0.lock().is_watched = true;
        let mut places = places(&turns, &timer, TURNS + 3);
        let now = Instant::now();
        assert_eq!(turns.0.lend_on(now).0.len(), 0);
        // All but one have not looked for long.
        let later = now + 2 * UNUSED;
        *turns.0.lock().holders.last_entry().unwrap().get_mut() = later;
        let (woken, others_wait) = turns.0.lend_on(later);
        assert_eq!((woken.len(), others_wait), (3, false), "to those that waited");
        assert!((0..TURNS + 3).all(|at| turns.take(&mut places[at], waker, &timer)), "lenders go on, too");
        let mut late = None;
        assert!(!turns.take(&mut late, waker, &timer));
        (0..3).for_each(|at| turns.leave(&mut places[at]));
        assert!(!turns.take(&mut late, waker, &timer), "theirs were lent on");
        turns.leave(&mut places[TURNS]);
        assert!(turns.take(&mut late, waker, &timer));
        turns.leave(&mut late);
        places.iter_mut().for_each(|place| turns.leave(place));
        let state = turns.0.lock();
        assert_eq!((state.free, state.holders.len()), (TURNS, 0));
    }
}
