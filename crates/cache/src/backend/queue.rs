//! The queue between those who submit transfers and the threads that carry them out.
//!
//! Bounded, so that readahead and write-back feel a slow device instead of piling up in memory: a
//! submitter waits for room. The exception are the backends' own threads. A completion may submit
//! again, and were it to wait for room that only its own thread can make, nothing would ever move.
//!
//! # Locking
//!
//! One mutex, held for a few instructions and never across a transfer or a completion. `unfinished`
//! counts a request from `push` until its completion has returned, so zero means that nobody will
//! be called any more.

use super::transfer::{Completion, Direction, Transfer};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A submitted transfer.
pub(super) struct Request {
    pub(super) direction: Direction,
    pub(super) transfer: Transfer,
    pub(super) tag: u64,
}

pub(super) struct Queue {
    waiting_max: usize,
    state: Mutex<State>,
    /// Signalled when a request arrived or the queue was closed.
    arrived: Condvar,
    /// Signalled when a request was taken.
    room: Condvar,
    /// Signalled when nothing is unfinished.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    unfinished: usize,
    closed: bool,
    /// Somebody told the consumer since it last looked; it need not be told again.
    signalled: bool,
}

impl Queue {
    pub(super) fn new(waiting_max: usize) -> Queue {
        let (arrived, room, idle) = (Condvar::new(), Condvar::new(), Condvar::new());
        Queue { waiting_max, state: Mutex::default(), arrived, room, idle }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under the queue's lock")
    }

    /// Adds a request, after waiting for room. Returns whether a consumer that sleeps elsewhere
    /// than in [`Queue::wait`] has to be woken.
    pub(super) fn push(&self, request: Request) -> bool {
        let mut state = self.lock();
        while state.waiting.len() >= self.waiting_max && !is_worker() {
            state = self.room.wait(state).expect("nothing panics under the queue's lock");
        }
        // A completion may still submit: its own thread looks at the queue again before it leaves.
        assert!(!state.closed || is_worker(), "a backend that is dropped has no users left");
        state.waiting.push_back(request);
        state.unfinished += 1;
        self.arrived.notify_one();
        !std::mem::replace(&mut state.signalled, true)
    }

    /// Waits for the next request and takes it. `None`: closed and empty.
    pub(super) fn pop(&self) -> Option<Request> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.closed {
            state = self.arrived.wait(state).expect("nothing panics under the queue's lock");
        }
        self.take(&mut state, 0)
    }

    /// Waits until there is a request, without taking it. `false`: closed and empty. For a single
    /// consumer.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.closed {
            state = self.arrived.wait(state).expect("nothing panics under the queue's lock");
        }
        !state.waiting.is_empty()
    }

    /// Takes the request that `pick` points out of so many, without waiting.
    pub(super) fn pick(&self, pick: impl FnOnce(usize) -> usize) -> Option<Request> {
        let mut state = self.lock();
        let count = state.waiting.len();
        if count == 0 { None } else { self.take(&mut state, pick(count)) }
    }

    /// Takes up to `count` requests without waiting. From here on, the next `push` wakes the
    /// consumer again. Returns whether the queue is closed and everything finished.
    pub(super) fn take_up_to(&self, count: usize, requests: &mut Vec<Request>) -> bool {
        let mut state = self.lock();
        state.signalled = false;
        let count = count.min(state.waiting.len());
        requests.extend(state.waiting.drain(..count));
        if count > 0 {
            self.room.notify_all();
        }
        state.closed && state.unfinished == 0
    }

    fn take(&self, state: &mut State, index: usize) -> Option<Request> {
        let request = state.waiting.remove(index);
        if request.is_some() {
            self.room.notify_one();
        }
        request
    }

    /// Calls the completion of a request that was taken, and only then counts it as finished.
    pub(super) fn finish(&self, completion: &dyn Completion, tag: u64, result: io::Result<usize>) {
        completion.complete(tag, result);
        let mut state = self.lock();
        state.unfinished -= 1;
        if state.unfinished == 0 {
            self.idle.notify_all();
        }
    }

    /// Waits until nothing is unfinished.
    pub(super) fn drain(&self) {
        assert!(!is_worker(), "a completion that waits for completions would wait for itself");
        let mut state = self.lock();
        while state.unfinished > 0 {
            state = self.idle.wait(state).expect("nothing panics under the queue's lock");
        }
    }

    /// Lets consumers leave once the queue is empty.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread belongs to a backend.
fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Starts a thread of a backend. It cannot panic: with it, every page under way would stay locked
/// for good, and a ring might still write into frames that nobody owns. The process ends instead.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    struct AbortOnPanic;
    impl Drop for AbortOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("mglru: a backend thread panicked; its transfers would never complete");
                std::process::abort();
            }
        }
    }
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        IS_WORKER.set(true);
        let _abort = AbortOnPanic;
        work();
    })
}

/// Waits for a backend's thread to end, unless it is the one that waits: the last owner of a
/// backend may be a completion. That thread then ends by itself.
pub(super) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        thread.join().expect("a backend thread aborts rather than panics");
    }
}
