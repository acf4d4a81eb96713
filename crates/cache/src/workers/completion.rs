//! Completion of asynchronous transfers.
//!
//! # Locking
//!
//! Completions run on backend threads, without a lock of the backend.

use crate::flight::Flight;
use crate::inode::{Failed, Inode};
use crate::shared::Shared;
use std::io;
use std::sync::atomic::Ordering;

impl Shared {
    /// Ends a submitted transfer.
    pub(crate) fn completed(&self, tag: u64, result: io::Result<usize>) {
        match self.in_flight.end(tag) {
            None => {}
            // A failed readahead is dropped: a thread that needs the page reads it again and gets
            // the error.
            Some(Flight::Read { inode, folios, first, waiter }) => {
                let bytes = result.as_ref().ok().copied();
                // Before the page is given up, which wakes the future.
                if let Some(waiter) = waiter {
                    waiter.end(&self.core, &self.host, result.err());
                }
                self.end_read(&inode, first, &folios, bytes);
                self.forget_soon(&inode);
            }
            // A page whose write failed stays in memory, dirty, until reclaim selects it again.
            Some(Flight::SwapOut { mapping, folio }) => {
                self.core.end_writeback(&self.host, &mapping, folio, result.is_ok(), self.cpu());
                self.host.progress.ring();
            }
            Some(Flight::Write { inode, folios, number, end }) => {
                let written = result.is_ok();
                match result {
                    Ok(_) => inode.disk_len_reached(end),
                    Err(error) => inode.note_error(Failed::WriteBack, error),
                }
                inode.note_writeback(written);
                for folio in folios {
                    self.core.end_writeback(&self.host, &inode.mapping, folio, written, self.cpu());
                }
                inode.end_transfer(number);
                self.host.note_write_ended();
                self.host.progress.ring();
                // A failed write is retried later, not at once.
                if written {
                    self.forget_soon(&inode);
                }
            }
        }
    }

    /// Rings the flusher if the file has no handle left, so that it forgets the file.
    fn forget_soon(&self, inode: &Inode) {
        if inode.handles.load(Ordering::Acquire) == 0 {
            self.host.flusher.ring();
        }
    }
}
