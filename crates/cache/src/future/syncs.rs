//! Threads that wait for the system, and for sources, on behalf of futures: for syncs, and for
//! write-back that hides whether another process appended to a file.
//!
//! Files share a few threads, of which one more is started while all have work: a file on a slow
//! device keeps no other file waiting. A source may keep its thread for as long as its deadline
//! allows, so each source with syncs has a thread of its own, up to a maximum. Such a thread does
//! the syncs of its source, then those of another one that has no thread, and ends.
//!
//! # Locking
//!
//! The queue's mutex and that of a sync's state are leaves, held for a few instructions.

use crate::backend::FileIdentity;
use crate::inode::Inode;
use crate::source::source_of;
use crate::waking::wake_all;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Work of a future, shared with the thread that does it: its result, until it is taken, and the
/// task that waits. A panic of the work goes on in the task.
pub(super) struct Done<T>(Mutex<(Option<std::thread::Result<T>>, Option<Waker>)>);

impl<T> Done<T> {
    /// The result, once; otherwise registers the task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = state.0.take() {
            drop(state);
            return Poll::Ready(result.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Does the work of the future.
    fn job(self: &Arc<Self>, work: impl FnOnce() -> T + Send + 'static) -> Job
    where
        T: Send + 'static,
    {
        let done = self.clone();
        Box::new(move || done.set(catch_unwind(AssertUnwindSafe(work))))
    }

    fn set(&self, result: std::thread::Result<T>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(result);
        let waker = state.1.take();
        drop(state);
        wake_all(waker);
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads for files at most.
const FILE_THREADS_MAX: usize = 8;

/// Threads for sources at most. More sources than may block for ever ([`crate::source`]) get one.
const SOURCE_THREADS_MAX: usize = 24;

#[derive(Default)]
struct State {
    /// Those of files.
    jobs: VecDeque<Job>,
    file_threads: usize,
    /// Threads of files that wait for a job.
    idle: usize,
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
        let job = done.job(work);
        let is_queued = match source_of(&of.file) {
            Some(_) => self.submit_for_source(of.identity, job),
            None => self.submit_for_file(job),
        };
        is_queued.then_some(done)
    }

    fn submit_for_file(&self, job: Job) -> bool {
        let mut state = self.0.lock();
        if state.closed {
            return false;
        }
        if state.idle <= state.jobs.len() && state.file_threads < FILE_THREADS_MAX {
            let queue = self.0.clone();
            state.file_threads += usize::from(start("mglru-sync", move || queue.run()));
        }
        if state.file_threads == 0 {
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
        self.0.changed.notify_all();
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
            let mut state = self.lock();
            state.idle += 1;
            let waits = |state: &mut State| state.jobs.is_empty() && !state.closed;
            let state = self.changed.wait_while(state, waits);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            let Some(job) = state.jobs.pop_front() else { return };
            drop(state);
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
    use crate::waking::tests::{Calls, panicking};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn a_file_waits_for_no_other_until_all_threads_have_work() {
        let syncs = Syncs::default();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let done = Arc::<AtomicUsize>::default();
        let submit = |blocks: bool| {
            let (gate, done) = (gate.clone(), done.clone());
            syncs.submit_for_file(Box::new(move || {
                drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| blocks && !*open).unwrap());
                done.fetch_add(1, SeqCst);
            }))
        };
        let wait = |jobs| {
            while done.load(SeqCst) < jobs {
                std::thread::yield_now();
            }
        };
        (1..FILE_THREADS_MAX).for_each(|_| assert!(submit(true)));
        (1..100).for_each(|jobs| {
            assert!(submit(false));
            wait(jobs);
        });
        (0..10).for_each(|_| assert!(submit(true)));
        assert_eq!(syncs.0.lock().file_threads, FILE_THREADS_MAX);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        wait(99 + FILE_THREADS_MAX - 1 + 10);
        syncs.close();
        assert!(!submit(false));
    }

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

    /// The thread once ended with a waker that panicked, and no later sync was done.
    #[test]
    fn neither_a_waker_nor_work_that_panics_ends_the_thread() {
        let syncs = Syncs::default();
        let submit = |work: fn() -> u32, waker: &Waker| {
            let done = Arc::new(Done(Mutex::new((None, None))));
            assert!(done.poll(&mut Context::from_waker(waker)).is_pending());
            assert!(syncs.submit_for_file(done.job(work)));
            done
        };
        submit(|| 1, &panicking());
        let woken: [Arc<Calls>; 2] = Default::default();
        let wakers = woken.clone().map(Waker::from);
        let panicked = submit(|| resume_unwind(Box::new("a test")), &wakers[0]);
        let done = submit(|| 2, &wakers[1]);
        woken.iter().for_each(|calls| calls.wait());
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(done.poll(&mut cx), Poll::Ready(2));
        let of_work = catch_unwind(AssertUnwindSafe(|| panicked.poll(&mut cx))).unwrap_err();
        assert_eq!(of_work.downcast_ref(), Some(&"a test"));
    }
}
