//! Batched reads: missing pages are read from the device concurrently and copied out as they
//! arrive.
//!
//! ```text
//! requests ── in memory: copied ────────────────────────────────┐
//!          ── missing: charged, inserted, being read ── done ──┴─► next
//!          └─ read by another thread, or memory is short: postponed to `read_at`
//! ```
//!
//! A new read starts as soon as one completes, so the batch does not wait for its slowest read.
//!
//! # Locking
//!
//! Pages being read are locked. While there are any, the thread waits for the device only.

use crate::backend::{Batch, Direction, Transfer};
use crate::error::Error;
use crate::file::CachedFile;
use crate::flight::Flight;
use crate::source::source_of;
use mglru_core::{FolioId, PAGE_BYTES};
use std::io;

/// Reads in progress at once, like a usual `iodepth` of fio. More per thread gain nothing on a
/// single device queue.
const UNDER_WAY: usize = 32;

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Destination of the bytes.
    pub buffer: &'a mut [u8],
    /// Number of bytes read, set on completion. Less than `buffer.len()` only at the end of the
    /// file.
    pub read: usize,
}

/// A step of one read of a batch ([`CachedFile::read_many_observed`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// The read is taken up: its page is looked for, and requested from the device if missing.
    Begins,
    /// Its bytes are in the buffer.
    Ends,
}

/// A missing page that is being read.
struct Flying {
    request: usize,
    index: u32,
    folio: FolioId,
}

struct Many<'a, 'b> {
    file: &'a CachedFile,
    requests: &'a mut [ReadRequest<'b>],
    observe: &'a mut dyn FnMut(usize, ReadStep),
    /// Index of the first request not yet started.
    next: usize,
    flying: Vec<Flying>,
    /// Postponed requests: the index, and whether it is already counted as a miss.
    later: Vec<(usize, bool)>,
}

impl CachedFile {
    /// Performs many reads and stores each one's byte count in its request. Missing pages are read
    /// concurrently, 32 at a time, so pass as many requests as possible; [`Self::read_at`] would
    /// wait for each. Requests that cross a page boundary are read last, one by one.
    ///
    /// # Errors
    /// As for [`Self::read_at`], of one request that failed; the state of the others is
    /// unspecified.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        self.read_many_observed(UNDER_WAY, requests, &mut |_, _| {})
    }

    /// Performs reads as [`Self::read_many`] does, with at most `depth` missing pages being read at
    /// once (from 1 to 64), and calls `observe` with the index of each request and its step. For
    /// latencies of single reads, and to use the bytes that are there before the last ones are. A
    /// source is asked for all of them at once, as far as memory is free, and so are files without
    /// io_uring, whose pool of threads reads as many as it has threads.
    ///
    /// `observe` runs while pages are locked: it must not read or write through the cache, or it
    /// may wait for itself. A panic in it aborts the process.
    ///
    /// # Errors
    /// As for [`Self::read_many`].
    pub fn read_many_observed(
        &self,
        depth: usize,
        requests: &mut [ReadRequest<'_>],
        observe: &mut dyn FnMut(usize, ReadStep),
    ) -> Result<(), Error> {
        let (flying, later) = (Vec::new(), Vec::new());
        let mut many = Many { file: self, requests, observe, next: 0, flying, later };
        let is_source = source_of(&self.inode.file).is_some();
        if is_source || !self.shared.backend.read_many(depth.max(1), &mut many) {
            many.submit_all();
        }
        let Many { requests, observe, later, .. } = many;
        for (number, missed) in later {
            let request = &mut requests[number];
            request.read = self.read(request.buffer, request.offset, missed)?;
            observe(number, ReadStep::Ends);
        }
        Ok(())
    }
}

impl Many<'_, '_> {
    /// Copies a request's bytes if its page is in memory. Otherwise returns the page to read, or
    /// `None` if the request is postponed.
    fn try_copy(&mut self, number: usize, missed: bool) -> Option<u32> {
        let (file, request) = (self.file, &mut self.requests[number]);
        let in_page = (request.offset % PAGE_BYTES) as usize;
        let end = request.offset.saturating_add(request.buffer.len() as u64);
        let simple = in_page + request.buffer.len() <= PAGE_BYTES as usize && end <= file.len();
        let (true, Ok(index)) = (simple, u32::try_from(request.offset / PAGE_BYTES)) else {
            self.later.push((number, missed));
            return None;
        };
        match file.copy_cached(index, in_page, request.buffer, false, missed) {
            true => {
                request.read = request.buffer.len();
                (self.observe)(number, ReadStep::Ends);
                None
            }
            false => Some(index),
        }
    }

    /// For backends without batches: submits all reads, then waits for each in turn.
    fn submit_all(&mut self) {
        while let Some(transfer) = Batch::next(self) {
            let Flying { request, index, folio } = self.flying.pop().expect("of that transfer");
            let (inode, folios) = (self.file.inode.clone(), vec![folio]);
            let flight = Flight::Read { inode, folios, first: index, waiter: None };
            let shared = &self.file.shared;
            shared.backend.submit(Direction::Read, transfer, shared.in_flight.begin(flight));
            self.later.push((request, true));
        }
    }
}

impl Batch for Many<'_, '_> {
    fn next(&mut self) -> Option<Transfer> {
        while self.next < self.requests.len() {
            let number = self.next;
            self.next += 1;
            (self.observe)(number, ReadStep::Begins);
            let Some(index) = self.try_copy(number, false) else { continue };
            let (shared, inode) = (&self.file.shared, &self.file.inode);
            match shared.try_insert(inode, &self.file.task(), index) {
                Some(folio) => {
                    let transfer = shared.transfer(inode, index, &[folio]);
                    self.flying.push(Flying { request: number, index, folio });
                    return Some(transfer);
                }
                // Another thread reads this page, or memory is short. Waiting for memory is not
                // allowed while pages are locked.
                None => self.later.push((number, false)),
            }
        }
        None
    }

    fn done(&mut self, number: usize, result: io::Result<usize>) {
        let Flying { request, index, folio } = self.flying[number];
        self.file.shared.end_read(&self.file.inode, index, &[folio], result.ok());
        // Evicted already, or not readable: the later read reports the error.
        if self.try_copy(request, true).is_some() {
            self.later.push((request, true));
        }
    }
}
