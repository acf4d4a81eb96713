//! [`CachedFile::read_at`] as a future.

use super::Missing;
use super::syncs::Done;
use crate::error::Error;
use crate::fault::alone;
use crate::file::{CachedFile, LOOKS_MAX};
use crate::piece::{Piece, pieces};
use mglru_core::{Arrival, InsertError, Lookup};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

impl CachedFile {
    /// Reads as [`Self::read_at`], without blocking the thread for the device. Bytes in memory are
    /// ready at the first poll.
    ///
    /// ```
    /// # use mglru_cache::{OpenMode, PageCache};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("f");
    /// # std::fs::write(&path, "some bytes")?;
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark {
    /// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
    /// #     }
    /// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
    /// #             std::task::Poll::Ready(output) => return output,
    /// #             std::task::Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// let cache = PageCache::builder(1 << 20).build()?;
    /// let file = cache.open(&path, OpenMode::ReadWrite)?;
    /// let mut buffer = [0; 5];
    /// let read = block_on(file.read_at_async(&mut buffer, 5))?; // `.await` in a task
    /// assert_eq!((read, &buffer), (5, b"bytes"));
    /// block_on(file.write_at_async(b"SOME", 0))?;
    /// block_on(file.sync_data_async())?;
    /// assert_eq!(std::fs::read(&path)?, b"SOME bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_at_async<'a>(&'a self, buffer: &'a mut [u8], offset: u64) -> ReadAt<'a> {
        ReadAt {
            file: self,
            buffer,
            offset,
            done: 0,
            bytes: None,
            missed: false,
            looks: 0,
            unsuspected: None,
            revalidation: None,
            missing: Missing::default(),
        }
    }
}

/// A read under way. See [`CachedFile::read_at_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct ReadAt<'a> {
    file: &'a CachedFile,
    buffer: &'a mut [u8],
    offset: u64,
    /// Bytes read so far.
    done: usize,
    /// Bytes to read: less than the buffer holds at the end of the file. Known after the first
    /// poll.
    bytes: Option<usize>,
    /// Whether the page at `done` was missing.
    missed: bool,
    /// Looks at the length because the file turned out to be suspect. After each, the bytes are
    /// read again.
    looks: u32,
    /// That the file was not suspect before the bytes were copied.
    unsuspected: Option<u32>,
    /// A thread finds out whether another process changed the file's length.
    revalidation: Option<Arc<Done<Result<(), Error>>>>,
    missing: Missing,
}

impl fmt::Debug for ReadAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAt")
            .field("file", &self.file)
            .field("offset", &self.offset)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Future for ReadAt<'_> {
    type Output = Result<usize, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        let this = &mut *self;
        if this.bytes.is_none() && this.file.copy_counted(this.buffer, this.offset) {
            return Poll::Ready(this.file.end_of_hit(this.buffer.len(), this.offset));
        }
        let mut bytes = match this.bytes {
            Some(bytes) => bytes,
            None => {
                let bytes = ready!(this.poll_readable(this.buffer.len(), cx))?;
                this.unsuspected = this.file.inode.unsuspected();
                *this.bytes.insert(bytes)
            }
        };
        loop {
            while let Some(piece) =
                pieces(this.offset + this.done as u64, bytes.saturating_sub(this.done)).next()
            {
                if ready!(this.poll_piece(&piece, bytes, cx))? {
                    this.done += piece.in_buffer.len();
                } else {
                    bytes = ready!(this.poll_readable(bytes, cx))?;
                    this.bytes = Some(bytes);
                }
                this.missed = false;
                this.missing.next_page(&this.file.shared);
            }
            let is_known = this.file.inode.is_still_unsuspected(this.unsuspected);
            if bytes == 0 || is_known && this.revalidation.is_none() {
                break;
            }
            // The file may turn out to be shorter than its known length.
            bytes = ready!(this.poll_readable(bytes, cx))?;
            if this.looks == LOOKS_MAX {
                break;
            }
            // Or to have been so for a while: what was copied may be zeros, which are dropped.
            this.looks += 1;
            (this.bytes, this.done) = (Some(bytes), 0);
            this.unsuspected = this.file.inode.unsuspected();
        }
        Poll::Ready(Ok(this.file.note_read_to(this.offset, bytes)))
    }
}

impl ReadAt<'_> {
    /// As [`CachedFile::readable`]. Has a thread wait for write-back under way.
    fn poll_readable(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        let (file, offset) = (self.file, self.offset);
        if wanted > 0 && self.revalidation.is_none() {
            let (shared, inode) = (&file.shared, &file.inode);
            let seen = inode.suspicions();
            let is_known = match seen {
                Some(seen) => inode.try_clear_up(shared, seen)?,
                None => !file.reaches_end(wanted, offset) || inode.try_revalidate(shared, false)?,
            };
            if !is_known {
                let (for_thread, of) = (shared.clone(), inode.clone());
                let look = move || match seen {
                    Some(seen) => of.clear_up(&for_thread, seen),
                    None => of.revalidate(&for_thread),
                };
                self.revalidation = shared.futures.syncs.submit(inode, look.clone());
                if self.revalidation.is_none() {
                    look()?;
                }
            }
        }
        if let Some(revalidation) = &self.revalidation {
            let revalidated = ready!(revalidation.poll(cx));
            self.revalidation = None;
            revalidated?;
        }
        Poll::Ready(Ok(file.left(wanted, offset)))
    }

    /// Reads the part of one page. `false`: the file ends before that.
    fn poll_piece(&mut self, piece: &Piece, bytes: usize, cx: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        let (file, index) = (self.file, piece.index);
        let (shared, inode) = (&*file.shared, &file.inode);
        let out = &mut self.buffer[self.done..self.done + piece.in_buffer.len()];
        let again = self.done == 0 && file.is_reread(index.into(), piece.in_page.start);
        loop {
            if file.copy_cached(index, piece.in_page.start, out, again, self.missed)
                || file.copy_hit(piece, out, again, self.missed)
            {
                return Poll::Ready(Ok(true));
            }
            if piece.end() > inode.len() {
                return Poll::Ready(Ok(false));
            }
            match shared.core.lookup(&inode.mapping, index) {
                Lookup::Hit(_) => continue,
                Lookup::Pending(folio) => {
                    inode.refuse_in_own_call()?;
                    if shared.wake_unless(&mut self.missing.seat, folio, cx, |flags| {
                        flags.locked() && flags.writing()
                    }) {
                        return Poll::Pending;
                    }
                    continue;
                }
                Lookup::Miss => {}
            }
            self.missed = true;
            self.missing.note_miss();
            if let Some(error) = self.missing.error(inode) {
                return Poll::Ready(Err(error));
            }
            inode.refuse_in_own_call()?;
            ready!(self.missing.paying.poll_room(shared, inode, cx))?;
            let task = file.task();
            let new = ready!(self.missing.paying.poll(shared, &task, inode, index, cx))?;
            let request = (bytes - self.done).div_ceil(4096) as u32;
            let window = match std::mem::replace(&mut self.missing.was_read, true) {
                true => alone(index),
                false => file.window_of_miss(index, request),
            };
            let arrival = Arrival { readahead_mark: window.mark == Some(index), ..Arrival::default() };
            match shared.core.insert(&shared.host, &task, &inode.mapping, index, new, arrival) {
                Ok(folio) => {
                    let arrival = Arrival::default();
                    self.missing.submit(shared, inode, &task, (index, folio), window, arrival);
                }
                // Another thread was faster.
                Err(InsertError::Occupied | InsertError::Unpaid) => {}
                Err(InsertError::Closed) => return Poll::Ready(Err(Error::Closed)),
            }
        }
    }
}

impl Drop for ReadAt<'_> {
    fn drop(&mut self) {
        self.missing.next_page(&self.file.shared);
    }
}
