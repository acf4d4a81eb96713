//! Many reads at once: what is missing is read from the device together, and copied out as it
//! arrives.
//!
//! ```text
//! requests ── in memory: copied ──────────────────────────────┐
//!          ── missing: paid for, inserted, under way ── done ─┴─► next
//!          └─ being read by others, or no memory left: later, as by `read_at`
//! ```
//!
//! So many reads are under way all the time, not in batches that wait for their slowest.
//!
//! # Locking
//!
//! Pages under way are locked. While there are any, nothing is waited for but the device.

use crate::backend::{Batch, Direction, Transfer};
use crate::error::Error;
use crate::file::CachedFile;
use crate::flight::Flight;
use mglru_core::{FolioId, PAGE_BYTES};
use std::io;

/// Reads under way at once: as fio's usual `iodepth`. More per thread gain nothing on one queue of
/// a device.
const UNDER_WAY: usize = 32;

/// One of many reads: where from, where to, and how many bytes there were.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Position in the file.
    pub offset: u64,
    /// Where the bytes go.
    pub buffer: &'a mut [u8],
    /// Bytes that were read, once it is done; fewer than asked for only at the end of the file.
    pub read: usize,
}

/// A missing page under way.
struct Flying {
    request: usize,
    index: u32,
    folios: Vec<FolioId>,
}

struct Many<'a, 'b> {
    file: &'a CachedFile,
    requests: &'a mut [ReadRequest<'b>],
    /// The first request that was not looked at yet.
    next: usize,
    flying: Vec<Flying>,
    /// Requests that have to wait for others; and whether they were counted as misses.
    later: Vec<(usize, bool)>,
}

impl CachedFile {
    /// Reads many parts of the file, and notes how many bytes each got. Pages that are missing are
    /// read from the device together, where [`Self::read_at`] would wait for each. Give it all
    /// there is to read: it has 32 under way at once. Requests that reach over a page's end are
    /// left to the end, and read one by one.
    ///
    /// # Errors
    /// As for [`Self::read_at`], of one that fails; others may have been read or not.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        let mut many = Many { file: self, requests, next: 0, flying: Vec::new(), later: Vec::new() };
        if !self.shared.backend.read_many(UNDER_WAY, &mut many) {
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
    /// Copies a request's bytes, if its page is in memory; the page it needs otherwise. `None`: it
    /// is done, or one for later.
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

    /// Where the backend has no batches: everything is submitted, and waited for one after the
    /// other.
    fn submit_all(&mut self) {
        while let Some(transfer) = Batch::next(self) {
            let Flying { request, index, folios } = self.flying.pop().expect("of that transfer");
            let flight = Flight::Read { inode: self.file.inode.clone(), folios, first: index };
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
                // Somebody else reads it; or there is no memory without waiting, which is not done
                // with pages locked.
                None => self.later.push((number, false)),
            }
        }
        None
    }

    fn done(&mut self, number: usize, result: io::Result<usize>) {
        let Flying { request, index, folios } = &self.flying[number];
        let request = *request;
        self.file.shared.end_read(&self.file.inode, *index, folios, result.ok());
        // Evicted again by now, or it could not be read: who reads it later gets the error.
        if self.try_copy(request, true).is_some() {
            self.later.push((request, true));
        }
    }
}
