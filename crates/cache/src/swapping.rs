//! Writing pages to swap and reading them back.

use crate::backend::{BackendFile, Batch, Direction, Transfer};
use crate::error::Error;
use crate::flight::Flight;
use crate::frames::FRAME_BYTES;
use crate::shared::Shared;
use crate::swap::{Marks, Store, check_read};
use mglru_core::{FolioId, Mapping, SwapOut, SwapSlot};
use std::io;
use std::sync::{Arc, PoisonError};

impl Shared {
    /// Submits the swap writes that reclaim has queued. Called after every step of reclaim, with no
    /// lock held.
    pub(crate) fn submit_swap_outs(&self) {
        let Some(Store::File { file, to_write, .. }) = &self.host.swap else { return };
        let writes = std::mem::take(&mut *to_write.lock().unwrap_or_else(PoisonError::into_inner));
        for SwapOut { page: (id, _), folio, slot } in writes {
            let mapping = self.core.mapping(id).expect("a region is not closed while a page is written");
            let tag = self.in_flight.begin(Flight::SwapOut { mapping, folio });
            self.backend.submit(Direction::Write, swap_transfer(file, slot, vec![folio.0]), tag);
        }
    }

    /// Fills the frame of a newly inserted anonymous page.
    pub(crate) fn swap_in(&self, folio: FolioId) -> Result<(), Error> {
        let Some(slot) = self.core.swap_slot(folio) else {
            self.frames.zero(folio.0, 0..FRAME_BYTES);
            return Ok(());
        };
        match &self.host.swap {
            Some(Store::Compressed(compressed)) => {
                let read = compressed.read(&self.frames, slot, folio);
                read.map_err(|source| Error::io("read", "compressed memory".as_ref(), source))
            }
            Some(Store::File { file, marks, .. }) => {
                // Slots are written whole; a short read means that another process truncated the
                // file.
                let whole = |bytes| match bytes {
                    FRAME_BYTES => Ok(()),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
                let read = self.backend.read(&swap_transfer(file, slot, vec![folio.0])).and_then(whole);
                let read = read.and_then(|()| check_read(marks, &self.frames, slot, folio));
                read.map_err(|source| Error::io("read", file.path(), source))
            }
            None => unreachable!("without swap, no page is in it"),
        }
    }

    /// Fills the frame of a newly inserted page of anonymous memory, and those of `folios`, which
    /// were inserted around it. Publishes these, or gives them up.
    ///
    /// # Errors
    /// The page cannot be read.
    pub(crate) fn swap_in_with(
        &self,
        mapping: &Mapping,
        wanted: FolioId,
        folios: Vec<FolioId>,
    ) -> Result<(), Error> {
        let Some(Store::File { file, marks, .. }) = &self.host.swap else {
            unreachable!("only a file is read ahead")
        };
        let mut pages = Vec::with_capacity(folios.len());
        for folio in folios {
            match self.core.swap_slot(folio) {
                Some(slot) => pages.push((slot, folio)),
                // Dropped before it was inserted.
                None => self.core.abandon(&self.host, mapping, folio),
            }
        }
        pages.sort_unstable_by_key(|&(slot, _)| slot.0);
        let is_next = |&(one, _): &(SwapSlot, FolioId), &(other, _): &(SwapSlot, _)| one.0 + 1 == other.0;
        let runs: Vec<_> = pages.chunk_by(is_next).map(<[_]>::to_vec).collect();
        let depth = runs.len();
        let mut together =
            Together { shared: self, mapping, file, marks, runs, requested: 0, wanted, has_wanted: false };
        if !self.backend.read_many(depth, &mut together) {
            while let Some((number, transfer)) = together.next() {
                let result = self.backend.read(&transfer);
                together.done(number, result);
            }
        }
        // Another page may be the reason for a failure.
        if together.has_wanted { Ok(()) } else { self.swap_in(wanted) }
    }
}

/// Swapped-out pages that are read together, with one request for slots that lie side by side.
struct Together<'a> {
    shared: &'a Shared,
    mapping: &'a Mapping,
    file: &'a Arc<dyn BackendFile>,
    marks: &'a Marks,
    /// Pages in slots that lie side by side, and how many such runs have been requested.
    runs: Vec<Vec<(SwapSlot, FolioId)>>,
    requested: usize,
    /// The requested page, which the caller publishes, and whether it has been read.
    wanted: FolioId,
    has_wanted: bool,
}

impl Batch for Together<'_> {
    /// A request has the number of its run.
    fn next(&mut self) -> Option<(usize, Transfer)> {
        let number = self.requested;
        let run = self.runs.get(number)?;
        self.requested += 1;
        let frames = run.iter().map(|&(_, folio)| folio.0).collect();
        Some((number, swap_transfer(self.file, run[0].0, frames)))
    }

    fn done(&mut self, number: usize, result: io::Result<usize>) {
        let (core, host) = (&self.shared.core, &self.shared.host);
        let whole_pages = result.map_or(0, |bytes| bytes / FRAME_BYTES);
        for (at, &(slot, folio)) in self.runs[number].iter().enumerate() {
            let is_read =
                at < whole_pages && check_read(self.marks, &self.shared.frames, slot, folio).is_ok();
            if folio == self.wanted {
                self.has_wanted = is_read;
            } else if is_read {
                core.publish(host, self.mapping, folio);
            } else {
                core.abandon(host, self.mapping, folio);
            }
        }
    }
}

/// A transfer of pages to or from slots that lie side by side.
fn swap_transfer(file: &Arc<dyn BackendFile>, first: SwapSlot, frames: Vec<u32>) -> Transfer {
    Transfer::pages(file.clone(), u64::from(first.0) * FRAME_BYTES as u64, frames)
}
