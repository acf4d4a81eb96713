//! The thread that waits for the system on behalf of syncs.
//!
//! # Locking
//!
//! The queue's mutex and that of a sync's state are leaves, held for a few instructions.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The state of a sync, shared with the thread: its result, and the task that waits for it.
#[derive(Default)]
pub(super) struct Done(Mutex<(Option<io::Result<()>>, Option<Waker>)>);

impl Done {
    /// Takes the result, or registers the task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn set(&self, result: io::Result<()>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(result);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

struct Job {
    work: Box<dyn FnOnce() -> io::Result<()> + Send>,
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
    /// Queues a sync. `None`: no thread can be started, or the cache is closed.
    pub(super) fn submit(&self, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Option<Arc<Done>> {
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
            done.set(work());
        }
    }
}
