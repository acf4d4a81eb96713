//! The queue of submitted requests, between the submitting threads and a backend's threads.
//!
//! It is bounded, so that readahead and write-back wait for a slow device instead of filling
//! memory. The backend's own threads do not wait: a completion may submit again, and would deadlock
//! waiting for room that only its own thread can make.
//!
//! # Locking
//!
//! One mutex, held for a few instructions and never across a transfer or a completion; only what
//! `push_with` makes may take a lock under it. `unfinished` counts a request from `push` until its
//! completion has returned, so at zero no completion is running.

use super::transfer::{Direction, Transfer};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A transfer, whose end is reported with its tag.
pub(super) struct Request {
    pub(super) direction: Direction,
    pub(super) transfer: Transfer,
    pub(super) tag: u64,
}

pub(crate) struct Queue<T> {
    waiting_max: usize,
    state: Mutex<State<T>>,
    /// Signalled when a request arrives or the queue is closed.
    arrived: Condvar,
    /// Signalled when a request is taken.
    room: Condvar,
    /// Signalled when `unfinished` becomes zero.
    idle: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    unfinished: usize,
    closed: bool,
    /// The consumer was woken since it last looked and need not be woken again.
    signalled: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(waiting_max: usize) -> Queue<T> {
        let state = State { waiting: VecDeque::new(), unfinished: 0, closed: false, signalled: false };
        let (arrived, room, idle) = (Condvar::new(), Condvar::new(), Condvar::new());
        Queue { waiting_max, state: Mutex::new(state), arrived, room, idle }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("nothing panics under the queue's lock")
    }

    /// Adds a request, after waiting for room. Returns whether the caller has to wake a consumer
    /// that sleeps outside of [`Queue::wait`].
    pub(super) fn push(&self, request: T) -> bool {
        self.push_with(|| request)
    }

    /// As [`Self::push`], with a request that is made once there is room, before a consumer can see
    /// it.
    pub(crate) fn push_with(&self, make: impl FnOnce() -> T) -> bool {
        let mut state = self.lock();
        while state.waiting.len() >= self.waiting_max && !is_worker() {
            state = self.room.wait(state).expect("nothing panics under the queue's lock");
        }
        // A completion may still submit: its own thread looks at the queue again before it ends.
        assert!(!state.closed || is_worker(), "a backend that is dropped has no users left");
        state.waiting.push_back(make());
        state.unfinished += 1;
        self.arrived.notify_one();
        !std::mem::replace(&mut state.signalled, true)
    }

    /// Whether [`Self::push`] would not wait.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().waiting.len() < self.waiting_max
    }

    /// Waits for the next request and takes it. `None`: the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.closed {
            state = self.arrived.wait(state).expect("nothing panics under the queue's lock");
        }
        self.take(&mut state, 0)
    }

    /// Waits for a request without taking it. `false`: the queue is closed and empty. For a single
    /// consumer.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.closed {
            state = self.arrived.wait(state).expect("nothing panics under the queue's lock");
        }
        !state.waiting.is_empty()
    }

    /// Takes the request that `pick` selects from the given number, without waiting.
    pub(super) fn pick(&self, pick: impl FnOnce(usize) -> usize) -> Option<T> {
        let mut state = self.lock();
        let count = state.waiting.len();
        if count == 0 { None } else { self.take(&mut state, pick(count)) }
    }

    /// Takes up to `count` requests without waiting. After this, the next `push` wakes the consumer
    /// again. Returns whether the queue is closed and all requests are finished.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "for rings"))]
    pub(super) fn take_up_to(&self, count: usize, requests: &mut Vec<T>) -> bool {
        let mut state = self.lock();
        state.signalled = false;
        let count = count.min(state.waiting.len());
        requests.extend(state.waiting.drain(..count));
        if count > 0 {
            self.room.notify_all();
        }
        state.closed && state.unfinished == 0
    }

    fn take(&self, state: &mut State<T>, index: usize) -> Option<T> {
        let request = state.waiting.remove(index);
        if request.is_some() {
            self.room.notify_one();
        }
        request
    }

    /// Calls the completion of a taken request, then counts the request as finished.
    pub(crate) fn finish(&self, complete: impl FnOnce()) {
        complete();
        let mut state = self.lock();
        state.unfinished -= 1;
        if state.unfinished == 0 {
            self.idle.notify_all();
        }
    }

    /// Waits until all requests are finished.
    pub(crate) fn drain(&self) {
        assert!(!is_worker(), "a completion that waits for completions would wait for itself");
        let mut state = self.lock();
        while state.unfinished > 0 {
            state = self.idle.wait(state).expect("nothing panics under the queue's lock");
        }
    }

    /// Requests that wait or are under way.
    pub(crate) fn unfinished(&self) -> usize {
        self.lock().unfinished
    }

    /// Closes the queue: consumers end once it is empty.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread belongs to a backend, or acts for one ([`as_worker`]): then it must
/// not wait for completions.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Does work of a backend on any thread, such as a completion on the thread of a source. What it
/// submits waits for no room in a queue.
pub(crate) fn as_worker<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_WORKER.set(self.0);
        }
    }
    let _restore = Restore(IS_WORKER.replace(true));
    work()
}

/// Drops a value of the user, whose destructor may panic, on a thread that must not.
pub(crate) fn drop_caught<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// Starts a thread of a backend. A panic in it aborts the process: otherwise the pages of its
/// transfers would stay locked for ever, and a ring might still write into frames without an owner.
///
/// # Errors
/// The system grants no thread; the error says what to do.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    struct AbortOnPanic;
    impl Drop for AbortOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("mglru: a backend thread panicked; its transfers would never complete");
                std::process::abort();
            }
        }
    }
    start_thread(name, move || {
        IS_WORKER.set(true);
        #[cfg(not(miri))]
        super::signals::block_file_size_signal();
        let _abort = AbortOnPanic;
        work();
    })
}

/// Starts a thread.
///
/// # Errors
/// The system grants no thread; the error says what to do.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    #[cfg(test)]
    grants::take()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(no_thread)
}

/// The system's refusal of a thread, with what to do about it.
fn no_thread(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EAGAIN) {
        return error;
    }
    let message = format!(
        "{error}; the process may have no more threads: raise `ulimit -u`, `ulimit -v`, or `pids.max` of its control \
         group"
    );
    io::Error::new(error.kind(), message)
}

/// Joins a backend's thread, unless it is the calling thread: a completion may drop the last
/// reference to a backend. That thread then ends by itself.
pub(crate) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        thread.join().expect("a backend thread aborts rather than panics");
    }
}

/// Threads that the system grants, for tests of what happens without.
#[cfg(test)]
pub(crate) mod grants {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Lets [`super::start_thread`] start `count` threads more from this thread. `None`: any
    /// number.
    pub(crate) fn set(count: Option<usize>) {
        LEFT.set(count);
    }

    pub(super) fn take() -> io::Result<()> {
        match LEFT.get() {
            Some(0) => Err(super::no_thread(io::Error::from_raw_os_error(libc::EAGAIN))),
            left => {
                LEFT.set(left.map(|count| count - 1));
                Ok(())
            }
        }
    }
}
