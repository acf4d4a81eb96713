//! The threads of a pool: as many as it wants and has work for, or as the system grants.
//!
//! The first thread is started with the pool. A request that has to wait starts another one: the
//! program may need the threads that it may have for itself. If the system refuses one, the
//! shortage may be over later. A refusal costs some 20 µs, so one in [`REQUESTS_PER_TRY`] of the
//! requests that wait tries again.
//!
//! # Locking
//!
//! One mutex, held while threads are started. Nothing is locked under it.

use super::queue::{Queue, join};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Of this many requests that wait for a thread, one asks the system for those that are missing.
const REQUESTS_PER_TRY: usize = 64;

/// See the module.
pub(crate) struct PoolThreads {
    wanted: usize,
    state: Mutex<State>,
    running: AtomicUsize,
    /// Threads that the system refused when it was last asked.
    refused: AtomicUsize,
    /// Requests that had to wait since threads were refused.
    waited: AtomicUsize,
}

#[derive(Default)]
struct State {
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl PoolThreads {
    /// A pool of `wanted` threads, none of which runs.
    pub(crate) fn new(wanted: usize) -> PoolThreads {
        let [running, refused, waited] = [const { AtomicUsize::new(0) }; 3];
        PoolThreads { wanted, state: Mutex::default(), running, refused, waited }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads that are missing, until the system refuses one. After
    /// [`Self::close`], none.
    ///
    /// # Errors
    /// The system's refusal, also if some threads run.
    pub(crate) fn start(&self, start: impl Fn() -> io::Result<JoinHandle<()>>) -> io::Result<()> {
        self.start_up_to(self.wanted, start)
    }

    /// [`Self::start`], until `count` threads run.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_up_to(
        &self,
        count: usize,
        start: impl Fn() -> io::Result<JoinHandle<()>>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        let mut result = Ok(());
        while state.threads.len() < count && !state.closed && result.is_ok() {
            result = start().map(|thread| state.threads.push(thread));
        }
        let running = state.threads.len();
        self.running.store(running, Ordering::Relaxed);
        let refused = if result.is_err() { self.wanted - running } else { 0 };
        self.refused.store(refused, Ordering::Relaxed);
        result
    }

    /// Threads that the system refused when it was last asked.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Threads that run.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Notes that a request was added to the queue of these threads. If it has to wait and threads
    /// are missing, this starts one.
    pub(crate) fn request_added<T>(&self, queue: &Queue<T>, start: impl Fn() -> io::Result<JoinHandle<()>>) {
        let running = self.running();
        if running == self.wanted || queue.unfinished() <= running {
            return;
        }
        if self.refused() > 0 {
            self.request_waits(start);
        } else {
            // A refusal is no error: the pool goes on with what it has.
            let _ = self.start_up_to(running + 1, start);
        }
    }

    /// Notes that a request has no thread now. One such request in [`REQUESTS_PER_TRY`] starts
    /// the missing ones.
    pub(crate) fn request_waits(&self, start: impl Fn() -> io::Result<JoinHandle<()>>) {
        if (self.waited.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(REQUESTS_PER_TRY) {
            let _ = self.start(start);
        }
    }

    /// Takes the threads, to be joined. No more are started.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.threads)
    }
}

impl Drop for PoolThreads {
    fn drop(&mut self) {
        self.close().into_iter().for_each(join);
    }
}
