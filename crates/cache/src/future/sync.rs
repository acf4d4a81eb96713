//! [`CachedFile::sync_data`] and `sync_all` as futures.

use super::syncs::Done;
use crate::error::Error;
use crate::file::CachedFile;
use crate::workers::Synced;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

impl CachedFile {
    /// Syncs as [`Self::sync_data`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_data_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, all: false, state: State::Unpolled }
    }

    /// Syncs as [`Self::sync_all`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_all_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, all: true, state: State::Unpolled }
    }
}

/// A sync under way. See [`CachedFile::sync_data_async`].
///
/// # Panics
/// If it is polled again after it was ready, as the future of an `async` block does.
#[must_use = "a future does nothing unless it is polled"]
pub struct SyncFile<'a> {
    file: &'a CachedFile,
    all: bool,
    state: State,
}

enum State {
    Unpolled,
    UnderWay(Arc<Done<Synced>>),
    Ready,
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
        if let State::Unpolled = this.state {
            let (shared, inode) = (file.shared.clone(), file.inode.clone());
            match file.shared.futures.syncs.submit(&file.inode, move || shared.sync(&inode, all)) {
                Some(done) => this.state = State::UnderWay(done),
                None => {
                    this.state = State::Ready;
                    return Poll::Ready(if all { file.sync_all() } else { file.sync_data() });
                }
            }
        }
        let State::UnderWay(under_way) = &this.state else { panic!("`SyncFile` polled after completion") };
        let synced = ready!(under_way.poll(cx));
        this.state = State::Ready;
        Poll::Ready(file.end_of_sync(synced))
    }
}
