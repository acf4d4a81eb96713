//! [`CachedFile::sync_data`] and `sync_all` as futures, and the thread that waits for the system.
//!
//! # Locking
//!
//! The queue's mutex and that of a sync's state are leaves, held for a few instructions.

use crate::error::Error;
use crate::file::CachedFile;
use crate::inode::Inode;
use crate::shared::Shared;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The state of a sync, shared with the thread.
#[derive(Default)]
struct Done(Mutex<(Option<io::Result<()>>, Option<Waker>)>);

struct Job {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
    all: bool,
    done: Arc<Done>,
}

#[derive(Default)]
struct Queue {
    /// Jobs, whether the thread runs, and whether the cache is closed.
    state: Mutex<(VecDeque<Job>, bool, bool)>,
    changed: Condvar,
}

/// The syncs of a cache's futures.
#[derive(Default)]
pub(super) struct Syncs(Arc<Queue>);

impl Syncs {
    /// Queues a sync. `false`: no thread can be started, or the cache is closed.
    fn submit(&self, job: Job) -> bool {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.1 && !state.2 {
            let queue = self.0.clone();
            let thread = std::thread::Builder::new().name("mglru-sync".to_owned());
            state.1 = thread.spawn(move || queue.run()).is_ok();
        }
        if !state.1 || state.2 {
            return false;
        }
        state.0.push_back(job);
        drop(state);
        self.0.changed.notify_one();
        true
    }

    /// Ends the thread once the queued syncs are done.
    pub(super) fn close(&self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).2 = true;
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
            let waits = |state: &mut (VecDeque<Job>, bool, bool)| state.0.is_empty() && !state.2;
            let mut state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            let Some(job) = state.0.pop_front() else { return };
            drop(state);
            let result = job.shared.write_out_and_sync(&job.inode, job.all);
            let mut done = job.done.0.lock().unwrap_or_else(PoisonError::into_inner);
            done.0 = Some(result);
            let waker = done.1.take();
            drop(done);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl CachedFile {
    /// Syncs as [`Self::sync_data`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_data_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, all: false, done: None }
    }

    /// Syncs as [`Self::sync_all`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_all_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, all: true, done: None }
    }
}

/// A sync under way. See [`CachedFile::sync_data_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct SyncFile<'a> {
    file: &'a CachedFile,
    all: bool,
    done: Option<Arc<Done>>,
}

impl fmt::Debug for SyncFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncFile").field("file", &self.file).field("all", &self.all).finish_non_exhaustive()
    }
}

impl Future for SyncFile<'_> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = &mut *self;
        let (file, all) = (this.file, this.all);
        let (shared, inode) = (&file.shared, &file.inode);
        let done = match &this.done {
            Some(done) => done,
            None => {
                inode.revalidate(shared)?;
                let done = this.done.insert(Arc::default());
                let job = Job { shared: shared.clone(), inode: inode.clone(), all, done: done.clone() };
                if !shared.futures.syncs.submit(job) {
                    return Poll::Ready(if all { file.sync_all() } else { file.sync_data() });
                }
                done
            }
        };
        let mut state = done.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(result) = state.0.take() else {
            state.1 = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        Poll::Ready(file.end_of_sync(result))
    }
}
