//! Asynchronous transfers: reads and writes that no thread waits for.
//!
//! # Locking
//!
//! The table's lock is a leaf.

use crate::host::CacheHost;
use crate::inode::Inode;
#[cfg(feature = "async")]
use mglru_core::memcg::Stall;
use mglru_core::{Core, FolioId, Mapping};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) enum Flight {
    /// Readahead, or a read that a future waits for.
    Read { inode: Arc<Inode>, folios: Vec<FolioId>, first: u32, waiter: Option<Waiter> },
    /// Write-back. If it succeeds, the file on disk is at least `end` bytes long.
    Write { inode: Arc<Inode>, folios: Vec<FolioId>, number: u64, end: u64 },
    /// A page of anonymous memory on its way to swap.
    SwapOut { mapping: Arc<Mapping>, folio: FolioId },
}

/// The error of a read that a future submitted, with the number of pages of the read.
#[cfg(feature = "async")]
#[derive(Debug, Default)]
pub(crate) struct Outcome(Mutex<Option<(io::Error, usize)>>);

#[cfg(feature = "async")]
impl Outcome {
    fn fail(&self, error: io::Error, pages: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((error, pages));
    }

    pub(crate) fn take(&self) -> Option<(io::Error, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The future that waits for a read.
#[cfg(feature = "async")]
pub(crate) struct Waiter {
    pub(crate) outcome: Arc<Outcome>,
    /// Pages of the read.
    pub(crate) pages: usize,
    /// The stall of its task.
    pub(crate) stall: Option<Stall>,
}

/// Without futures, nothing waits in this way.
#[cfg(not(feature = "async"))]
pub(crate) enum Waiter {}

impl Waiter {
    /// Notes that the read has ended, before its pages are published or given up.
    #[cfg(feature = "async")]
    pub(crate) fn end(self, core: &Core, host: &CacheHost, error: Option<io::Error>) {
        self.stall.into_iter().for_each(|stall| core.end_stall(host, stall));
        error.into_iter().for_each(|error| self.outcome.fail(error, self.pages));
    }

    #[cfg(not(feature = "async"))]
    pub(crate) fn end(self, _: &Core, _: &CacheHost, _: Option<io::Error>) {
        match self {}
    }
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
