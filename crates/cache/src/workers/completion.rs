//! Transfers under way, and what happens when one completes.
//!
//! # Locking
//!
//! The table's lock is a leaf. Completions run on backend threads, without a lock of the backend.

use crate::cache::Shared;
use crate::inode::{Failed, Inode};
use mglru_core::{FolioId, Mapping};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// A transfer that nobody waits for.
pub(crate) enum Flight {
    /// Readahead.
    Read { inode: Arc<Inode>, folios: Vec<FolioId>, first: u32 },
    /// Write-back; `end` is the length that the file on disk has at least when it succeeded.
    Write { inode: Arc<Inode>, folios: Vec<FolioId>, number: u64, end: u64 },
    /// A page of anonymous memory, to swap.
    SwapOut { mapping: Arc<Mapping>, folio: FolioId },
}

/// All of them, by tag.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<(u64, BTreeMap<u64, Flight>)>);

impl InFlight {
    pub(crate) fn begin(&self, flight: Flight) -> u64 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tag = table.0;
        table.0 += 1;
        table.1.insert(tag, flight);
        tag
    }

    fn end(&self, tag: u64) -> Option<Flight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&tag)
    }
}

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

    /// If the last handle of a file is gone, this may have been the last thing that was to be done for it: the flusher
    /// forgets it.
    fn forget_soon(&self, inode: &Inode) {
        if inode.handles.load(Ordering::Acquire) == 0 {
            self.host.flusher.ring();
        }
    }
}
