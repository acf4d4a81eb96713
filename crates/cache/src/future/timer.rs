//! A thread that wakes tasks at given times, started when a task first waits for one.
//!
//! # Locking
//!
//! One mutex, held for a few instructions and not while a waker is called.

use crate::waking::wake_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

#[derive(Default)]
struct Due {
    /// By time and number.
    tasks: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    is_running: bool,
    closed: bool,
}

/// The tasks to be woken, shared by the timer's thread and by those that set times.
#[derive(Default)]
pub(super) struct Clock {
    due: Mutex<Due>,
    changed: Condvar,
}

/// The timer of a cache's futures.
#[derive(Default)]
pub(super) struct Timer(Arc<Clock>);

impl Timer {
    /// Wakes a task at `time`, or at once if no thread can be started or the cache is closed: the
    /// task then looks again.
    pub(super) fn wake_at(&self, time: Instant, waker: &Waker) {
        if !self.0.try_wake_at(time, waker) {
            waker.wake_by_ref();
        }
    }

    /// For a waker that sets its next time itself.
    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.0
    }

    /// Wakes all tasks and ends the thread.
    pub(super) fn close(&self) {
        let mut due = self.0.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.closed = true;
        let tasks = std::mem::take(&mut due.tasks);
        drop(due);
        self.0.changed.notify_one();
        wake_all(tasks.into_values());
    }
}

impl Clock {
    /// Calls a waker at `time`. `false`: no thread can be started, or the cache is closed.
    pub(super) fn try_wake_at(self: &Arc<Clock>, time: Instant, waker: &Waker) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if !due.is_running && !due.closed {
            let clock = self.clone();
            let thread = std::thread::Builder::new().name("mglru-timer".to_owned());
            due.is_running = thread.spawn(move || clock.run()).is_ok();
        }
        if !due.is_running || due.closed {
            return false;
        }
        let number = due.next;
        due.next += 1;
        let is_first = due.tasks.first_key_value().is_none_or(|(&(first, _), _)| time < first);
        due.tasks.insert((time, number), waker.clone());
        drop(due);
        if is_first {
            self.changed.notify_one();
        }
        true
    }

    fn run(&self) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        while !due.closed {
            let now = Instant::now();
            let Some((&(time, number), _)) = due.tasks.first_key_value() else {
                due = self.changed.wait(due).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if time > now {
                let woken = self.changed.wait_timeout(due, time - now);
                due = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let waker = due.tasks.remove(&(time, number)).expect("the first is there");
            drop(due);
            wake_all([waker]);
            due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waking::tests::{Calls, panicking};

    /// The thread once ended with it, and no task was woken any more.
    #[test]
    fn a_waker_that_panics_does_not_end_the_timer() {
        let (timer, woken) = (Timer::default(), Arc::new(Calls::default()));
        let now = Instant::now();
        timer.wake_at(now, &panicking());
        while !timer.0.due.lock().unwrap().tasks.is_empty() {
            std::thread::yield_now();
        }
        timer.wake_at(now, &Waker::from(woken.clone()));
        woken.wait();
    }
}
