//! Asynchronous transfers: reads and writes that no thread waits for.
//!
//! # Locking
//!
//! The table's lock is a leaf.

use crate::future::Outcome;
use crate::inode::Inode;
use mglru_core::memcg::Stall;
use mglru_core::{FolioId, Mapping};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) enum Flight {
    /// Readahead, or a read that a future waits for.
    Read { inode: Arc<Inode>, folios: Vec<FolioId>, first: u32, waiter: Option<Waiter> },
    /// Write-back. If it succeeds, the file on disk is at least `end` bytes long.
    Write { inode: Arc<Inode>, folios: Vec<FolioId>, number: u64, end: u64 },
    /// A page of anonymous memory on its way to swap.
    SwapOut { mapping: Arc<Mapping>, folio: FolioId },
}

/// The future that waits for a read.
pub(crate) struct Waiter {
    pub(crate) outcome: Arc<Outcome>,
    /// The stall of its task.
    pub(crate) stall: Option<Stall>,
}

/// All asynchronous transfers, by tag.
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

    pub(crate) fn end(&self, tag: u64) -> Option<Flight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&tag)
    }
}
