//! Swap for anonymous pages: compressed memory or a file.
//!
//! Compressed memory stores a page during the reclaim that frees it. An incompressible page is
//! stored as it is; a page that finds no room stays in its frame. The memory is reserved when the
//! cache is built, so the budget holds regardless of how well pages compress.
//!
//! A swap file receives pages like write-back: the core starts the write, and the reclaiming thread
//! submits it as soon as it has left the core.
//!
//! # Locking
//!
//! One lock per slot, and one for the list of writes to submit. All are leaves: the core calls in
//! with its own locks held.

use crate::backend::BackendFile;
use crate::error::Error;
use crate::frames::{FRAME_BYTES, Frames};
use mglru_core::{FolioId, SwapOptions, SwapOut, SwapOutcome, SwapSlot, SwapStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Slots per page of compressed memory. Compression below a quarter of a page does not increase
/// capacity.
const SLOTS_PER_PAGE: u64 = 4;
/// Allocator overhead per stored block, in bytes.
const BLOCK_BYTES: u64 = 16;
/// Worst-case size of a compressed page, in bytes.
const COMPRESSED_BYTES_MAX: usize = lz4_flex::block::get_maximum_output_size(FRAME_BYTES);

/// The swap of a cache, for anonymous memory ([`crate::AnonRegion`]).
#[derive(Clone, Debug)]
pub struct Swap(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Compressed { bytes: u64 },
    File { path: PathBuf, bytes: u64 },
}

impl Swap {
    /// Stores pages lz4-compressed in `bytes` of the cache's budget.
    pub fn compressed(bytes: u64) -> Swap {
        Swap(Kind::Compressed { bytes })
    }

    /// Stores pages in a new file of at most `bytes`. Only the process's user may read the file.
    /// Its name is removed at once, so the file disappears with the cache. Building the cache fails
    /// if `path` exists.
    pub fn file(path: &Path, bytes: u64) -> Swap {
        Swap(Kind::File { path: path.to_owned(), bytes })
    }

    /// The core's options for this swap.
    pub(crate) fn options(&self) -> SwapOptions {
        let (pages, store) = match self.0 {
            Kind::Compressed { bytes } => (bytes / FRAME_BYTES as u64 * SLOTS_PER_PAGE, SwapStore::Memory),
            Kind::File { bytes, .. } => (bytes / FRAME_BYTES as u64, SwapStore::Device),
        };
        SwapOptions { pages: u32::try_from(pages).unwrap_or(u32::MAX), store }
    }

    /// Share of the cache's budget, in bytes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        let of_core = u64::from(self.options().pages) * SwapOptions::SLOT_BYTES;
        match self.0 {
            Kind::Compressed { bytes } => bytes + of_core,
            Kind::File { .. } => of_core,
        }
    }

    /// Creates the store. `create` makes the swap file through the cache's backend.
    pub(crate) fn start(
        &self,
        create: impl Fn(&Path) -> io::Result<Arc<dyn BackendFile>>,
    ) -> Result<Store, Error> {
        let slots = self.options().pages;
        match &self.0 {
            Kind::Compressed { bytes } => Ok(Store::Compressed(Compressed::new(slots, *bytes))),
            Kind::File { path, .. } => {
                let file = create(path).map_err(|source| Error::io("create the swap file", path, source))?;
                Ok(Store::File { file, to_write: Mutex::default() })
            }
        }
    }
}

/// The storage behind the swap slots.
pub(crate) enum Store {
    Compressed(Compressed),
    File {
        file: Arc<dyn BackendFile>,
        /// Pages whose write has started in the core but is not submitted yet.
        to_write: Mutex<Vec<SwapOut>>,
    },
}

impl Store {
    /// Stores a page, or queues it for writing.
    pub(crate) fn swap_out(&self, frames: &Frames, write: SwapOut) -> SwapOutcome {
        match self {
            Store::Compressed(compressed) => compressed.keep(frames, write),
            Store::File { to_write, .. } => {
                to_write.lock().unwrap_or_else(PoisonError::into_inner).push(write);
                SwapOutcome::Started
            }
        }
    }

    pub(crate) fn freed(&self, slot: SwapSlot) {
        if let Store::Compressed(compressed) = self {
            compressed.drop_block(slot);
        }
    }

    /// Memory that holds swapped pages now, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Store::Compressed(compressed) => compressed.used_bytes.load(Relaxed),
            Store::File { .. } => 0,
        }
    }
}

/// The content of a slot: a compressed page, or, with 4,096 bytes, an uncompressed one.
type Block = Mutex<Option<Box<[u8]>>>;

/// Swap in compressed memory.
pub(crate) struct Compressed {
    /// Blocks, indexed by slot.
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

    /// Compresses and stores a page. The folio is locked, so its bytes do not change.
    fn keep(&self, frames: &Frames, write: SwapOut) -> SwapOutcome {
        let (mut page, mut small) = ([0; FRAME_BYTES], [0; COMPRESSED_BYTES_MAX]);
        frames.copy_out(write.folio.0, 0, &mut page);
        let bytes = match lz4_flex::block::compress_into(&page, &mut small) {
            Ok(bytes) if bytes < FRAME_BYTES => &small[..bytes],
            _ => &page[..],
        };
        // An older version in this slot makes room first.
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
