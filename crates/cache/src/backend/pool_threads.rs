//! The threads of a pool: as many as it wants, or as the system grants.
//!
//! A shortage of threads may be over later. So a request that has to wait for a thread starts those
//! that are missing, if the system grants them now. A refusal costs some 20 µs; one such request in
//! [`REQUESTS_PER_TRY`] tries.
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

    /// Whether any thread runs.
    pub(crate) fn has_any(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Notes that a request was added to the queue of these threads. If it waits because threads
    /// are missing, this starts them now and then.
    pub(crate) fn request_added<T>(&self, queue: &Queue<T>, start: impl Fn() -> io::Result<JoinHandle<()>>) {
        if self.refused() > 0 && queue.unfinished() > self.running.load(Ordering::Relaxed) {
            self.request_waits(start);
        }
    }

    /// Notes that a request has no thread now. One such request in [`REQUESTS_PER_TRY`] starts
    /// the missing ones.
    pub(crate) fn request_waits(&self, start: impl Fn() -> io::Result<JoinHandle<()>>) {
        if (self.waited.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(REQUESTS_PER_TRY) {
            // A refusal is no error: the pool goes on with what it has.
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
