//! The thread that waits for the system on behalf of syncs.
//!
//! # Locking
//!
//! The queue's mutex and that of a sync's state are leaves, held for a few instructions.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The state of a sync, shared with the thread: whether it has ended, and the task that waits.
#[derive(Default)]
pub(super) struct Done(Mutex<(bool, Option<Waker>)>);

impl Done {
    /// Whether the sync has ended; otherwise registers the task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    fn set(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    done: Arc<Done>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    is_running: bool,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// The syncs of a cache's futures.
#[derive(Default)]
pub(super) struct Syncs(Arc<Queue>);

impl Syncs {
    /// Queues a sync, which records its own errors: the future may be dropped before it ends.
    /// `None`: no thread can be started, or the cache is closed.
    pub(super) fn submit(&self, work: impl FnOnce() + Send + 'static) -> Option<Arc<Done>> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_running && !state.closed {
            let queue = self.0.clone();
            let thread = std::thread::Builder::new().name("mglru-sync".to_owned());
            state.is_running = thread.spawn(move || queue.run()).is_ok();
        }
        if !state.is_running || state.closed {
            return None;
        }
        let done = Arc::<Done>::default();
        state.jobs.push_back(Job { work: Box::new(work), done: done.clone() });
        drop(state);
        self.0.changed.notify_one();
        Some(done)
    }

    /// Ends the thread once the queued syncs are done.
    pub(super) fn close(&self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn run(&self) {
        loop {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let waits = |state: &mut State| state.jobs.is_empty() && !state.closed;
            let mut state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            let Some(Job { work, done }) = state.jobs.pop_front() else { return };
            drop(state);
            work();
            done.set();
        }
    }
}
