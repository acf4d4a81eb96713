//! Writing pages to swap and reading them back.

use crate::backend::{BackendFile, Direction, Transfer};
use crate::error::Error;
use crate::flight::Flight;
use crate::frames::FRAME_BYTES;
use crate::shared::Shared;
use crate::swap::{Store, check_read};
use mglru_core::{FolioId, SwapOut, SwapSlot};
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
            self.backend.submit(Direction::Write, swap_transfer(file, slot, folio), tag);
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
                let read = self.backend.read(&swap_transfer(file, slot, folio)).and_then(whole);
                let read = read.and_then(|()| check_read(marks, &self.frames, slot, folio));
                read.map_err(|source| Error::io("read", file.path(), source))
            }
            None => unreachable!("without swap, no page is in it"),
        }
    }
}

fn swap_transfer(file: &Arc<dyn BackendFile>, slot: SwapSlot, folio: FolioId) -> Transfer {
    Transfer::pages(file.clone(), u64::from(slot.0) * FRAME_BYTES as u64, vec![folio.0])
}
