//! Threads that wait for the system, and for sources, on behalf of futures: for syncs, and for
//! write-back that hides whether another process appended to a file.
//!
//! Files have one thread, one after the other. A source may keep its thread for as long as its
//! deadline allows, so each source with syncs has a thread of its own, up to a maximum. Such a
//! thread does the syncs of its source, then those of another one that has no thread, and ends.
//!
//! # Locking
//!
//! The queue's mutex and that of a sync's state are leaves, held for a few instructions.

use crate::backend::FileIdentity;
use crate::inode::Inode;
use crate::source::source_of;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Work of a future, shared with the thread that does it: its result, until it is taken, and the
/// task that waits.
pub(super) struct Done<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Done<T> {
    /// The result, once; otherwise registers the task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = state.0.take() {
            return Poll::Ready(result);
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    fn set(&self, result: T) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(result);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads for sources at most. More sources than may block for ever ([`crate::source`]) get one.
const SOURCE_THREADS_MAX: usize = 24;

#[derive(Default)]
struct State {
    /// Those of files.
    jobs: VecDeque<Job>,
    is_running: bool,
    /// Those of sources.
    of_sources: BTreeMap<FileIdentity, VecDeque<Job>>,
    /// Sources of these that have no thread.
    waiting: VecDeque<FileIdentity>,
    source_threads: usize,
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

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).is_ok()
}

impl Syncs {
    /// Queues work on a file, which records its own errors: the future may be dropped before it
    /// ends. `None`: no thread can be started, or the cache is closed.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        of: &Inode,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Arc<Done<T>>> {
        let done = Arc::new(Done(Mutex::new((None, None))));
        let for_thread = done.clone();
        let job: Job = Box::new(move || for_thread.set(work()));
        let is_queued = match source_of(&of.file) {
            Some(_) => self.submit_for_source(of.identity, job),
            None => self.submit_for_file(job),
        };
        is_queued.then_some(done)
    }

    fn submit_for_file(&self, job: Job) -> bool {
        let mut state = self.0.lock();
        if !state.is_running && !state.closed {
            let queue = self.0.clone();
            state.is_running = start("mglru-sync", move || queue.run());
        }
        if !state.is_running || state.closed {
            return false;
        }
        state.jobs.push_back(job);
        drop(state);
        self.0.changed.notify_one();
        true
    }

    fn submit_for_source(&self, source: FileIdentity, job: Job) -> bool {
        let mut state = self.0.lock();
        if state.closed {
            return false;
        }
        if let Some(jobs) = state.of_sources.get_mut(&source) {
            jobs.push_back(job);
            return true;
        }
        let queue = self.0.clone();
        if state.source_threads < SOURCE_THREADS_MAX && start("mglru-sync", move || queue.run_sources(source))
        {
            state.source_threads += 1;
        } else if state.source_threads > 0 {
            state.waiting.push_back(source);
        } else {
            return false;
        }
        // Before the thread can look.
        state.of_sources.insert(source, VecDeque::from([job]));
        true
    }

    /// Ends the threads once the queued syncs are done.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let waits = |state: &mut State| state.jobs.is_empty() && !state.closed;
            let state = self.changed.wait_while(self.lock(), waits);
            let Some(job) = state.unwrap_or_else(PoisonError::into_inner).jobs.pop_front() else { return };
            job();
        }
    }

    /// Does the syncs of a source, then those of sources that have no thread.
    fn run_sources(&self, mut source: FileIdentity) {
        loop {
            let mut state = self.lock();
            if let Some(job) = state.of_sources.get_mut(&source).and_then(VecDeque::pop_front) {
                drop(state);
                job();
                continue;
            }
            state.of_sources.remove(&source);
            match state.waiting.pop_front() {
                Some(next) => source = next,
                None => {
                    state.source_threads -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// More sources block than get a thread. Then all syncs are done, those of a source in order.
    #[test]
    fn sources_wait_for_threads() {
        let syncs = Syncs::default();
        let (gate, begun) = (Arc::new((Mutex::new(false), Condvar::new())), Arc::<AtomicUsize>::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..90 {
            let inode = number % 30;
            let (gate, begun, order) = (gate.clone(), begun.clone(), order.clone());
            let work = move || {
                begun.fetch_add(1, SeqCst);
                drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
                order.lock().unwrap().push((inode, number));
            };
            assert!(syncs.submit_for_source(FileIdentity { device: 1, inode }, Box::new(work)));
        }
        while begun.load(SeqCst) < SOURCE_THREADS_MAX {
            std::thread::yield_now();
        }
        let state = syncs.0.lock();
        assert_eq!((state.source_threads, state.waiting.len()), (SOURCE_THREADS_MAX, 6));
        drop(state);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        while syncs.0.lock().source_threads > 0 {
            std::thread::yield_now();
        }
        let mut order = order.lock().unwrap().clone();
        assert!(syncs.0.lock().of_sources.is_empty());
        order.sort_by_key(|&(inode, _)| inode);
        assert!(order.is_sorted() && order.len() == 90, "{order:?}");
        syncs.close();
        assert!(!syncs.submit_for_source(FileIdentity { device: 1, inode: 1 }, Box::new(|| ())));
    }
}
