//! What happens when a transfer completes that nobody waits for.
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
    /// A submitted transfer is over.
    pub(crate) fn completed(&self, tag: u64, result: io::Result<usize>) {
        match self.in_flight.end(tag) {
            None => {}
            // A failed readahead is forgotten: who needs a page reads it again and gets the error.
            Some(Flight::Read { inode, folios, first }) => {
                self.end_read(&inode, first, &folios, result.ok());
                self.forget_soon(&inode);
            }
            // One that failed stays in memory, dirty, until reclaim meets it again.
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
                self.host.progress.ring();
                // A failed write is tried again in time, not at once.
                if written {
                    self.forget_soon(&inode);
                }
            }
        }
    }

    /// If the last handle of a file is gone, this may have been the last thing that was to be done
    /// for it: the flusher forgets it.
    fn forget_soon(&self, inode: &Inode) {
        if inode.handles.load(Ordering::Acquire) == 0 {
            self.host.flusher.ring();
        }
    }
}
