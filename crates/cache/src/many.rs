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

/// A missing page that is being read.
struct Flying {
    request: usize,
    index: u32,
    folios: Vec<FolioId>,
}

struct Many<'a, 'b> {
    file: &'a CachedFile,
    requests: &'a mut [ReadRequest<'b>],
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
        let mut many = Many { file: self, requests, next: 0, flying: Vec::new(), later: Vec::new() };
        let is_source = source_of(&self.inode.file).is_some();
        if is_source || !self.shared.backend.read_many(UNDER_WAY, &mut many) {
            many.submit_all();
        }
        let Many { requests, later, .. } = many;
        for (request, missed) in later {
            let request = &mut requests[request];
            request.read = self.read(request.buffer, request.offset, missed)?;
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
                None
            }
            false => Some(index),
        }
    }

    /// For backends without batches: submits all reads, then waits for each in turn.
    fn submit_all(&mut self) {
        while let Some(transfer) = Batch::next(self) {
            let Flying { request, index, folios } = self.flying.pop().expect("of that transfer");
            let flight = Flight::Read { inode: self.file.inode.clone(), folios, first: index, waiter: None };
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
            let Some(index) = self.try_copy(number, false) else { continue };
            let (shared, inode) = (&self.file.shared, &self.file.inode);
            match shared.try_insert(inode, &self.file.task(), index) {
                Some(folio) => {
                    let folios = vec![folio];
                    let transfer = shared.transfer(inode, index, &folios);
                    self.flying.push(Flying { request: number, index, folios });
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
        let Flying { request, index, folios } = &self.flying[number];
        let request = *request;
        self.file.shared.end_read(&self.file.inode, *index, folios, result.ok());
        // Evicted already, or not readable: the later read reports the error.
        if self.try_copy(request, true).is_some() {
            self.later.push((request, true));
        }
    }
}
