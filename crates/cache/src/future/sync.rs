//! [`CachedFile::sync_data`] and `sync_all` as futures.

use super::syncs::Done;
use crate::error::Error;
use crate::file::CachedFile;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

impl CachedFile {
    /// Syncs as [`Self::sync_data`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_data_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, all: false, under_way: None }
    }

    /// Syncs as [`Self::sync_all`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_all_async(&self) -> SyncFile<'_> {
        SyncFile { file: self, all: true, under_way: None }
    }
}

/// A sync under way. See [`CachedFile::sync_data_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct SyncFile<'a> {
    file: &'a CachedFile,
    all: bool,
    under_way: Option<UnderWay>,
}

/// The state that a future shares with the thread that syncs.
struct UnderWay {
    done: Arc<Done>,
    /// Valid once it is done.
    result: Arc<Mutex<Result<(), Error>>>,
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
        let UnderWay { done, result } = match &this.under_way {
            Some(under_way) => under_way,
            None => {
                inode.revalidate(shared)?;
                let (for_thread, of) = (shared.clone(), inode.clone());
                let result = Arc::new(Mutex::new(Ok(())));
                let for_result = result.clone();
                let work = move || {
                    let synced = for_thread.write_out_and_sync(&of, all);
                    *for_result.lock().unwrap_or_else(PoisonError::into_inner) = synced;
                };
                match shared.futures.syncs.submit(inode, work) {
                    Some(done) => this.under_way.insert(UnderWay { done, result }),
                    None => return Poll::Ready(if all { file.sync_all() } else { file.sync_data() }),
                }
            }
        };
        ready!(done.poll(cx));
        let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
        Poll::Ready(file.end_of_sync(std::mem::replace(&mut *result, Ok(()))))
    }
}
