//! Where anonymous pages are that are out of memory: compressed in memory, or in a file.
//!
//! Compressed memory takes a page inside the reclaim that wants to free it. A page that does not
//! get smaller is kept as it is, and where there is no room, the page stays in its frame. Its
//! memory is set aside when the cache is built, so that the budget holds whatever is compressed
//! when.
//!
//! A file takes pages as write-back does: the core is told that a write began, and whoever was
//! reclaiming submits it as soon as it has left the core.
//!
//! # Locking
//!
//! A lock per slot, and one for writes that are to be submitted, each a leaf: the core calls with
//! its own locks held.

use crate::backend::BackendFile;
use crate::error::Error;
use crate::frames::{FRAME_BYTES, Frames};
use mglru_core::{FolioId, SwapOptions, SwapOut, SwapOutcome, SwapSlot, SwapStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Slots per page of compressed memory: pages that get smaller than a quarter do not make room for
/// more of them.
const SLOTS_PER_PAGE: u64 = 4;
/// What an allocation takes besides its bytes.
const BLOCK_BYTES: u64 = 16;
/// A page that can be compressed, in the worst case.
const COMPRESSED_BYTES_MAX: usize = lz4_flex::block::get_maximum_output_size(FRAME_BYTES);

/// Swap of a cache, for anonymous memory ([`crate::AnonRegion`]).
#[derive(Clone, Debug)]
pub struct Swap(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Compressed { bytes: u64 },
    File { path: PathBuf, bytes: u64 },
}

impl Swap {
    /// Compressed (lz4) in `bytes` of the cache's budget.
    pub fn compressed(bytes: u64) -> Swap {
        Swap(Kind::Compressed { bytes })
    }

    /// In a new file of at most `bytes`, by the cache's backend. Only the process's user may read
    /// the file; its name is removed at once, so that the file is gone when the cache is. Building
    /// the cache fails if something of that name exists.
    pub fn file(path: &Path, bytes: u64) -> Swap {
        Swap(Kind::File { path: path.to_owned(), bytes })
    }

    /// What the core has to know.
    pub(crate) fn options(&self) -> SwapOptions {
        let (pages, store) = match self.0 {
            Kind::Compressed { bytes } => (bytes / FRAME_BYTES as u64 * SLOTS_PER_PAGE, SwapStore::Memory),
            Kind::File { bytes, .. } => (bytes / FRAME_BYTES as u64, SwapStore::Device),
        };
        SwapOptions { pages: u32::try_from(pages).unwrap_or(u32::MAX), store }
    }

    /// What it takes of the budget, in bytes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        let of_core = u64::from(self.options().pages) * SwapOptions::SLOT_BYTES;
        match self.0 {
            Kind::Compressed { bytes } => bytes + of_core,
            Kind::File { .. } => of_core,
        }
    }

    /// Sets it up. `create` makes a swap file of the backend.
    pub(crate) fn start(
        &self,
        create: impl Fn(&Path) -> io::Result<Arc<dyn BackendFile>>,
    ) -> Result<Store, Error> {
        let slots = self.options().pages;
        match &self.0 {
            Kind::Compressed { bytes } => Ok(Store::Compressed(Compressed::new(slots, *bytes))),
            Kind::File { path, .. } => {
                let file = create(path).map_err(|source| Error::io("make the swap file", path, source))?;
                Ok(Store::File { file, to_write: Mutex::default() })
            }
        }
    }
}

/// Swap at work.
pub(crate) enum Store {
    Compressed(Compressed),
    File {
        file: Arc<dyn BackendFile>,
        /// Pages whose write was announced and not submitted yet.
        to_write: Mutex<Vec<SwapOut>>,
    },
}

impl Store {
    /// Takes a page, or promises to.
    pub(crate) fn swap_out(&self, frames: &Frames, write: SwapOut) -> SwapOutcome {
        match self {
            Store::Compressed(compressed) => compressed.keep(frames, write),
            Store::File { to_write, .. } => {
                to_write.lock().unwrap_or_else(PoisonError::into_inner).push(write);
                SwapOutcome::Started
            }
        }
    }

    /// A page is not needed any more.
    pub(crate) fn freed(&self, slot: SwapSlot) {
        if let Store::Compressed(compressed) = self {
            compressed.drop_block(slot);
        }
    }

    /// Memory that holds pages now, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Store::Compressed(compressed) => compressed.used_bytes.load(Relaxed),
            Store::File { .. } => 0,
        }
    }
}

/// What a slot holds: a page compressed, or, with 4,096 bytes, as it is.
type Block = Mutex<Option<Box<[u8]>>>;

/// Compressed memory.
pub(crate) struct Compressed {
    /// By slot.
    blocks: Box<[Block]>,
    used_bytes: AtomicU64,
    most_bytes: u64,
}

impl Compressed {
    fn new(slots: u32, bytes: u64) -> Compressed {
        let blocks: Box<[Block]> = (0..slots).map(|_| Mutex::new(None)).collect();
        let used = size_of_val(&*blocks) as u64;
        Compressed { blocks, used_bytes: AtomicU64::new(used), most_bytes: bytes }
    }

    /// The folio is locked: nobody changes its bytes meanwhile.
    fn keep(&self, frames: &Frames, write: SwapOut) -> SwapOutcome {
        let (mut page, mut small) = ([0; FRAME_BYTES], [0; COMPRESSED_BYTES_MAX]);
        frames.copy_out(write.folio.0, 0, &mut page);
        let bytes = match lz4_flex::block::compress_into(&page, &mut small) {
            Ok(bytes) if bytes < FRAME_BYTES => &small[..bytes],
            _ => &page[..],
        };
        // What was there of an older version makes room first.
        self.drop_block(write.slot);
        let cost = cost(bytes);
        let room = |used: u64| Some(used + cost).filter(|&then| then <= self.most_bytes);
        if self.used_bytes.fetch_update(Relaxed, Relaxed, room).is_err() {
            return SwapOutcome::Refused;
        }
        *self.block(write.slot) = Some(bytes.into());
        SwapOutcome::Done
    }

    fn block(&self, slot: SwapSlot) -> std::sync::MutexGuard<'_, Option<Box<[u8]>>> {
        self.blocks[slot.0 as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_block(&self, slot: SwapSlot) {
        let block = self.block(slot).take();
        if let Some(bytes) = block {
            self.used_bytes.fetch_sub(cost(&bytes), Relaxed);
        }
    }

    pub(crate) fn read(&self, frames: &Frames, slot: SwapSlot, folio: FolioId) -> io::Result<()> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let block = self.block(slot);
        let bytes = block.as_deref().ok_or_else(|| damaged(format!("{slot:?} holds no page")))?;
        if bytes.len() == FRAME_BYTES {
            frames.copy_in(folio.0, 0, bytes);
            return Ok(());
        }
        let mut page = [0; FRAME_BYTES];
        match lz4_flex::block::decompress_into(bytes, &mut page) {
            Ok(FRAME_BYTES) => frames.copy_in(folio.0, 0, &page),
            Ok(short) => return Err(damaged(format!("{slot:?} holds {short} bytes of a page"))),
            Err(error) => return Err(damaged(format!("{slot:?}: {error}"))),
        }
        Ok(())
    }
}

fn cost(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES
}
