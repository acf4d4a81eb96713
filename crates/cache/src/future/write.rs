//! [`CachedFile::write_at`] as a future.

use super::Missing;
use crate::error::Error;
use crate::fault::alone;
use crate::file::{CachedFile, WriteStep, Written};
use crate::piece::{Piece, pieces};
use crate::workers::Pacing;
use mglru_core::folio::Flags;
use mglru_core::{Arrival, InsertError};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl CachedFile {
    /// Writes as [`Self::write_at`], without blocking the thread: a partly written page that is
    /// missing is read, and writers are slowed down, while the future is pending.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_at_async<'a>(&'a self, bytes: &'a [u8], offset: u64) -> WriteAt<'a> {
        let (pacing, missing) = (Pacing::default(), Missing::default());
        WriteAt { file: self, bytes, offset, done: 0, is_paced: false, missed: false, pacing, missing }
    }
}

/// A write under way. See [`CachedFile::write_at_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WriteAt<'a> {
    file: &'a CachedFile,
    bytes: &'a [u8],
    offset: u64,
    /// Bytes written so far.
    done: usize,
    /// Whether the page at `done` may be made dirty now.
    is_paced: bool,
    /// Whether the page at `done` was missing.
    missed: bool,
    pacing: Pacing,
    missing: Missing,
}

impl fmt::Debug for WriteAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteAt")
            .field("file", &self.file)
            .field("offset", &self.offset)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Future for WriteAt<'_> {
    type Output = Result<usize, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        let this = &mut *self;
        let (file, len) = (this.file, this.bytes.len());
        file.check_write(this.offset, len)?;
        while let Some(piece) = pieces(this.offset + this.done as u64, len - this.done).next() {
            if !this.is_paced {
                ready!(this.poll_pace(cx))?;
                this.is_paced = true;
            }
            ready!(this.poll_piece(&piece, cx))?;
            this.done += piece.in_buffer.len();
            (this.is_paced, this.missed) = (false, false);
            this.missing.next_page(&file.shared);
        }
        Poll::Ready(Ok(len))
    }
}

impl WriteAt<'_> {
    /// Waits as long as too many pages are dirty.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let shared = &*self.file.shared;
        let pause = &mut self.missing.paying.pause;
        loop {
            if pause.goes_on(shared, cx) {
                return Poll::Pending;
            }
            let rings_before = shared.host.progress.rings();
            match shared.pace(self.file.memcg(), &self.file.inode, &mut self.pacing)? {
                None => return Poll::Ready(Ok(())),
                // The next failing write is the only event to wait for.
                Some((throttle, true)) => {
                    pause.begin(shared, throttle, rings_before, cx);
                    pause.after = Some(rings_before);
                }
                Some((throttle, false)) => pause.begin(shared, throttle, rings_before, cx),
            }
        }
    }

    /// Writes the part of one page.
    fn poll_piece(&mut self, piece: &Piece, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let (file, index) = (self.file, piece.index);
        let (shared, inode) = (&*file.shared, &file.inode);
        let bytes = &self.bytes[self.done..self.done + piece.in_buffer.len()];
        loop {
            let Some(resize) = inode.resize.try_share(&shared.writers) else {
                // A truncation is under way.
                self.missing.paying.pause.for_room(shared, cx);
                return Poll::Pending;
            };
            let whole = match shared.try_write_page(inode, &file.task, piece, bytes, false) {
                WriteStep::Done(Written::Lent(folio)) => {
                    drop(resize);
                    let lent = shared.check_own_guard(inode, index, folio);
                    let waits = lent.is_ok() && {
                        let (seat, is_page) =
                            (&mut self.missing.seat, || shared.is_page(inode, index, folio));
                        let (latches, flags) = (&shared.host.latches, shared.flags(folio));
                        latches.register(seat, folio, flags, Flags::lent, is_page, cx.waker())
                    };
                    shared.core.put(&shared.host, folio);
                    lent?;
                    if waits {
                        return Poll::Pending;
                    }
                    continue;
                }
                WriteStep::Done(_) => {
                    file.count(self.missed);
                    // If the cache was closed meanwhile, nobody writes the page.
                    return Poll::Ready(shared.check_open());
                }
                WriteStep::Wait(folio) => {
                    if shared.wake_unless(&mut self.missing.seat, folio, cx, |flags| flags.locked()) {
                        return Poll::Pending;
                    }
                    continue;
                }
                WriteStep::Again => continue,
                WriteStep::Missing { whole } => whole,
            };
            self.missed = true;
            self.missing.note_miss();
            let task = file.task();
            if let Some(error) = self.missing.error(inode) {
                return Poll::Ready(Err(error));
            }
            if !whole {
                inode.refuse_in_own_call()?;
                ready!(self.missing.paying.poll_room(shared, inode, cx))?;
            }
            let new = ready!(self.missing.paying.poll(shared, &task, inode, index, cx))?;
            let arrival = Arrival { overwrite: inode.is_overwritten(piece).0, ..Arrival::default() };
            let folio = match shared.core.insert(&shared.host, &task, &inode.mapping, index, new, arrival) {
                Ok(folio) => folio,
                Err(InsertError::Occupied | InsertError::Unpaid) => continue,
                Err(InsertError::Closed) => return Poll::Ready(Err(Error::Closed)),
            };
            if whole {
                if shared.write_new_page(inode, piece, bytes, folio) {
                    file.stats.miss();
                    return Poll::Ready(shared.check_open());
                }
            } else {
                self.missing.submit(shared, inode, &task, (index, folio), alone(index), arrival);
            }
        }
    }
}

impl Drop for WriteAt<'_> {
    fn drop(&mut self) {
        self.missing.next_page(&self.file.shared);
    }
}
