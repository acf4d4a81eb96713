//! [`CachedFile::sync_data`], `sync_all` and `write_back` as futures.

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
        SyncFile { file: self, work: Work::SyncData, state: State::Unpolled }
    }

    /// Syncs as [`Self::sync_all`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_all_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, work: Work::SyncAll, state: State::Unpolled }
    }

    /// Writes dirty pages as [`Self::write_back`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::write_back`].
    pub fn write_back_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, work: Work::WriteBack, state: State::Unpolled }
    }
}

#[derive(Clone, Copy, Debug)]
enum Work {
    WriteBack,
    SyncData,
    SyncAll,
}

/// A sync or a write-back under way. See [`CachedFile::sync_data_async`].
///
/// # Panics
/// If it is polled again after it was ready, as the future of an `async` block does.
#[must_use = "a future does nothing unless it is polled"]
pub struct SyncFile<'a> {
    file: &'a CachedFile,
    work: Work,
    state: State,
}

enum State {
    Unpolled,
    UnderWay(Arc<Done<Synced>>),
    Ready,
}

impl fmt::Debug for SyncFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncFile").field("file", &self.file).field("work", &self.work).finish_non_exhaustive()
    }
}

impl Future for SyncFile<'_> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = &mut *self;
        let (file, work) = (this.file, this.work);
        if let State::Unpolled = this.state {
            let (shared, inode) = (file.shared.clone(), file.inode.clone());
            let job = move || match work {
                Work::WriteBack => shared.write_back(&inode).map(Ok),
                Work::SyncData => shared.sync(&inode, false),
                Work::SyncAll => shared.sync(&inode, true),
            };
            match file.shared.futures.syncs.submit(&file.inode, job) {
                Some(done) => this.state = State::UnderWay(done),
                None => {
                    this.state = State::Ready;
                    return Poll::Ready(match work {
                        Work::WriteBack => file.write_back(),
                        Work::SyncData => file.sync_data(),
                        Work::SyncAll => file.sync_all(),
                    });
                }
            }
        }
        let State::UnderWay(under_way) = &this.state else { panic!("`SyncFile` polled after completion") };
        let synced = ready!(under_way.poll(cx));
        this.state = State::Ready;
        Poll::Ready(match work {
            // Earlier errors are left to the next sync.
            Work::WriteBack => synced.map(|_| ()),
            Work::SyncData | Work::SyncAll => file.end_of_sync(synced),
        })
    }
}
