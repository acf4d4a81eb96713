//! A start gate: all threads begin together when the last one is ready, or none begins.
//!
//! A barrier would block for ever if one of the threads could not be started.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The gate.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// `false` if the waiting threads are turned away.
    open: Option<bool>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the gate opens. `false` if it turns the thread away.
    pub fn pass(&self) -> bool {
        let mut state = self.lock();
        state.waiting += 1;
        self.changed.notify_all();
        let open = self.changed.wait_while(state, |state| state.open.is_none());
        open.unwrap_or_else(PoisonError::into_inner).open == Some(true)
    }

    /// Waits until `count` threads wait, then opens.
    pub fn open_for(&self, count: usize) {
        let state = self.changed.wait_while(self.lock(), |state| state.waiting < count);
        state.unwrap_or_else(PoisonError::into_inner).open = Some(true);
        self.changed.notify_all();
    }

    /// Turns away all waiting and future threads.
    pub fn turn_away(&self) {
        self.lock().open = Some(false);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(decide: impl Fn(&Gate)) -> Vec<bool> {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.pass())).collect();
            decide(&gate);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn either_all_pass_or_all_are_turned_away() {
        assert_eq!(passed(|gate| gate.open_for(3)), [true; 3]);
        assert_eq!(passed(Gate::turn_away), [false; 3]);
    }
}
