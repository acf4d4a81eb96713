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
//! One lock for compressed memory, held while a page is copied, and one for the list of writes to
//! submit. Both are leaves: the core calls in with its own locks held.

use crate::backend::BackendFile;
use crate::compress::{COMPRESSED_BYTES_MAX, compress, decompress};
use crate::error::Error;
use crate::frames::{FRAME_BYTES, Frames};
use mglru_core::readahead::{DEFAULT_SWAP_PAGES, SWAP_PAGES_MAX, SwapReadahead};
use mglru_core::{FolioId, SwapOptions, SwapOut, SwapOutcome, SwapSlot, SwapStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots per page of compressed memory. Compression below a quarter of a page does not increase
/// capacity.
const SLOTS_PER_PAGE: u64 = 4;
/// Bytes of a piece of compressed memory. A stored page wastes half a piece on average.
const PIECE_BYTES: usize = 128;
/// Bytes of a piece and its place in the chain.
const PIECE_COST: u64 = PIECE_BYTES as u64 + 4;

/// The swap of a cache, for anonymous memory ([`crate::AnonRegion`]).
#[derive(Clone, Debug)]
pub struct Swap(Kind);

#[derive(Clone, Debug)]
enum Kind {
    #[cfg_attr(not(feature = "lz4"), expect(dead_code, reason = "made with lz4 only"))]
    Compressed {
        bytes: u64,
    },
    File {
        path: PathBuf,
        bytes: u64,
        readahead_pages: u32,
    },
}

impl Swap {
    /// Stores pages lz4-compressed in `bytes` of the cache's budget. Needs the crate's feature
    /// `lz4`.
    #[cfg(feature = "lz4")]
    pub fn compressed(bytes: u64) -> Swap {
        Swap(Kind::Compressed { bytes })
    }

    /// Stores pages in a new file of at most `bytes`. Only the process's user may read the file.
    /// Its name is removed at once, so the file disappears with the cache. Building the cache fails
    /// if `path` exists.
    ///
    /// The file grows as pages come: no space is reserved. While its disk is full, pages stay in
    /// memory, and requests for which no other page can go fail with [`Error::OutOfMemory`]. They
    /// succeed again when there is room.
    pub fn file(path: impl Into<PathBuf>, bytes: u64) -> Swap {
        let readahead_pages = DEFAULT_SWAP_PAGES;
        Swap(Kind::File { path: path.into(), bytes, readahead_pages })
    }

    /// Sets how many pages an access to a swapped-out page reads from the file at most, from 1 to
    /// 32. Default: 8. The pages beside the needed one come only if they are swapped out, too, and
    /// if such pages have been of use: see [`SwapReadahead`]. Changes nothing for compressed
    /// memory, which has no latency to save.
    pub fn readahead_pages(mut self, pages: u32) -> Swap {
        if let Kind::File { readahead_pages, .. } = &mut self.0 {
            *readahead_pages = pages.clamp(1, SWAP_PAGES_MAX);
        }
        self
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
            Kind::Compressed { bytes } => bytes.saturating_add(of_core),
            Kind::File { .. } => of_core + u64::from(self.options().pages).div_ceil(8),
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
            Kind::File { path, readahead_pages, .. } => {
                let file = create(path).map_err(|source| Error::io("create the swap file", path, source))?;
                Ok(Store::File {
                    file,
                    to_write: Mutex::default(),
                    marks: Marks::new(slots),
                    readahead_pages: *readahead_pages,
                })
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
        /// Which slots must not read as zeros.
        marks: Marks,
        /// Most pages that a fault reads.
        readahead_pages: u32,
    },
}

impl Store {
    /// Stores a page, or queues it for writing.
    pub(crate) fn swap_out(&self, frames: &Frames, write: SwapOut) -> SwapOutcome {
        match self {
            Store::Compressed(compressed) => compressed.keep(frames, write),
            Store::File { to_write, marks, .. } => {
                // A store during the write makes the page dirty: it is written, and marked, again.
                marks.set(write.slot, !frames.is_zero(write.folio.0));
                to_write.lock().unwrap_or_else(PoisonError::into_inner).push(write);
                SwapOutcome::Started
            }
        }
    }

    /// For a new region of anonymous memory.
    pub(crate) fn new_readahead(&self) -> SwapReadahead {
        SwapReadahead::new(match self {
            Store::Compressed(_) => 1,
            Store::File { readahead_pages, .. } => *readahead_pages,
        })
    }

    pub(crate) fn freed(&self, slot: SwapSlot) {
        if let Store::Compressed(compressed) = self {
            compressed.drop_page(slot);
        }
    }

    /// Memory that holds swapped pages now, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Store::Compressed(compressed) => compressed.used_bytes(),
            Store::File { .. } => 0,
        }
    }
}

/// The end of a chain of pieces.
const NONE: u32 = u32::MAX;

/// The content of a slot.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// The first piece of the page.
    first: u32,
    /// Bytes of the stored page: 4,096 if it is not compressed, 0 without one.
    bytes: u32,
}

/// The memory of compressed pages, reserved as a whole and divided into pieces of one size. Neither
/// an allocator's rounding nor fragmentation can make it larger than its share of the budget. The
/// system backs a piece when it is first used.
struct Pieces {
    bytes: Vec<u8>,
    /// For each piece, the next one of the page, or of the list of free pieces.
    next: Vec<u32>,
    /// The first free piece that was used before.
    free: u32,
    /// Pieces from this number on were never used.
    fresh: u32,
    /// Number of pieces that hold pages.
    used: u32,
    /// Indexed by slot.
    stored: Vec<Stored>,
}

/// Swap in compressed memory.
pub(crate) struct Compressed {
    pieces: Mutex<Pieces>,
    /// Bytes of the table of slots.
    fixed_bytes: u64,
}

impl Compressed {
    fn new(slots: u32, bytes: u64) -> Compressed {
        let fixed_bytes = u64::from(slots) * size_of::<Stored>() as u64;
        let count = bytes.saturating_sub(fixed_bytes) / PIECE_COST;
        let count = u32::try_from(count).unwrap_or(NONE - 1).min(NONE - 1);
        let pieces = Pieces {
            bytes: vec![0; count as usize * PIECE_BYTES],
            next: vec![0; count as usize],
            free: NONE,
            fresh: 0,
            used: 0,
            stored: vec![Stored { first: NONE, bytes: 0 }; slots as usize],
        };
        Compressed { pieces: Mutex::new(pieces), fixed_bytes }
    }

    /// Compresses and stores a page. The folio is locked, so its bytes do not change.
    fn keep(&self, frames: &Frames, write: SwapOut) -> SwapOutcome {
        let (mut page, mut small) = ([0; FRAME_BYTES], [0; COMPRESSED_BYTES_MAX]);
        frames.copy_out(write.folio.0, 0, &mut page);
        let bytes = compress(&page, &mut small).map_or(&page[..], |bytes| &small[..bytes]);
        if self.lock().store(write.slot, bytes) { SwapOutcome::Done } else { SwapOutcome::Refused }
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_page(&self, slot: SwapSlot) {
        self.lock().free(slot);
    }

    /// Memory that holds pages now, and the table of slots, in bytes.
    fn used_bytes(&self) -> u64 {
        self.fixed_bytes + u64::from(self.lock().used) * PIECE_COST
    }

    pub(crate) fn read(&self, frames: &Frames, slot: SwapSlot, folio: FolioId) -> io::Result<()> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut stored = [0; FRAME_BYTES];
        let bytes = self.lock().load(slot, &mut stored);
        let bytes = bytes.ok_or_else(|| damaged(format!("{slot:?} holds no page")))?;
        if bytes == FRAME_BYTES {
            frames.copy_in(folio.0, 0, &stored);
            return Ok(());
        }
        let mut page = [0; FRAME_BYTES];
        decompress(&stored[..bytes], &mut page).map_err(|what| damaged(format!("{slot:?} {what}")))?;
        frames.copy_in(folio.0, 0, &page);
        Ok(())
    }
}

impl Pieces {
    fn piece(&self, number: u32) -> &[u8] {
        let start = number as usize * PIECE_BYTES;
        &self.bytes[start..start + PIECE_BYTES]
    }

    /// An unused piece.
    fn take(&mut self) -> Option<u32> {
        let piece = if self.free != NONE {
            let piece = self.free;
            self.free = self.next[piece as usize];
            piece
        } else if (self.fresh as usize) < self.next.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.used += 1;
        Some(piece)
    }

    fn give_back(&mut self, piece: u32) {
        self.next[piece as usize] = std::mem::replace(&mut self.free, piece);
        self.used -= 1;
    }

    /// Stores at most 4,096 bytes in a slot. Returns `false` if there is no room. The slot's former
    /// content, an older version of the page, is dropped first.
    fn store(&mut self, slot: SwapSlot, bytes: &[u8]) -> bool {
        self.free(slot);
        let needed = bytes.len().div_ceil(PIECE_BYTES);
        if needed > self.next.len() - self.used as usize {
            return false;
        }
        let mut first = NONE;
        // The last piece first, so that each is chained to the one behind it.
        for part in bytes.chunks(PIECE_BYTES).rev() {
            let piece = self.take().expect("they were counted");
            let start = piece as usize * PIECE_BYTES;
            self.bytes[start..start + part.len()].copy_from_slice(part);
            self.next[piece as usize] = std::mem::replace(&mut first, piece);
        }
        self.stored[slot.0 as usize] = Stored { first, bytes: bytes.len() as u32 };
        true
    }

    /// Copies out the content of a slot. Returns its length in bytes, or `None` if it is empty.
    fn load(&self, slot: SwapSlot, out: &mut [u8; FRAME_BYTES]) -> Option<usize> {
        let Stored { first, bytes } = self.stored[slot.0 as usize];
        let mut piece = first;
        for part in out[..bytes as usize].chunks_mut(PIECE_BYTES) {
            part.copy_from_slice(&self.piece(piece)[..part.len()]);
            piece = self.next[piece as usize];
        }
        (bytes > 0).then_some(bytes as usize)
    }

    fn free(&mut self, slot: SwapSlot) {
        let Stored { first, bytes } =
            std::mem::replace(&mut self.stored[slot.0 as usize], Stored { first: NONE, bytes: 0 });
        let mut piece = first;
        for _ in 0..(bytes as usize).div_ceil(PIECE_BYTES) {
            let next = self.next[piece as usize];
            self.give_back(piece);
            piece = next;
        }
    }
}

/// For each slot of a swap file, whether the page written to it had a byte other than zero.
pub(crate) struct Marks(Box<[AtomicU64]>);

impl Marks {
    fn new(slots: u32) -> Marks {
        Marks((0..slots.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect())
    }

    fn set(&self, slot: SwapSlot, marked: bool) {
        let (word, bit) = (&self.0[(slot.0 / u64::BITS) as usize], 1 << (slot.0 % u64::BITS));
        if marked {
            word.fetch_or(bit, Relaxed)
        } else {
            word.fetch_and(!bit, Relaxed)
        };
    }

    fn is_set(&self, slot: SwapSlot) -> bool {
        self.0[(slot.0 / u64::BITS) as usize].load(Relaxed) >> (slot.0 % u64::BITS) & 1 != 0
    }
}

/// Checks a page that was read from its slot of a swap file.
///
/// # Errors
/// The page is all zeros, but the page that was written was not: another process made a hole in the
/// file, or truncated it before it grew again.
pub(crate) fn check_read(marks: &Marks, frames: &Frames, slot: SwapSlot, folio: FolioId) -> io::Result<()> {
    if marks.is_set(slot) && frames.is_zero(folio.0) {
        let what = format!("slot {} reads as zeros, but a page was written to it", slot.0);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of all sizes come and go: each is what was stored, and no sequence of them makes
    /// compressed memory larger than it was set aside.
    #[test]
    fn compressed_memory_has_one_size() {
        let (slots, bytes) = (400, 256 << 10);
        let compressed = Compressed::new(slots, bytes);
        let mut held = vec![None; slots as usize];
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let mut refused = 0;
        for step in 0..20_000 {
            let slot = SwapSlot(random(slots as usize) as u32);
            let mut pieces = compressed.lock();
            if random(3) == 0 {
                pieces.free(slot);
                held[slot.0 as usize] = None;
            } else {
                let page = vec![step as u8; 1 + random(FRAME_BYTES)];
                let stored = pieces.store(slot, &page);
                refused += usize::from(!stored);
                held[slot.0 as usize] = stored.then_some(page);
            }
            let mut out = [0; FRAME_BYTES];
            let found = pieces.load(slot, &mut out).map(|bytes| out[..bytes].to_vec());
            assert_eq!(found, held[slot.0 as usize]);
            let memory = pieces.bytes.len() + 4 * pieces.next.len() + 8 * pieces.stored.len();
            assert!(memory as u64 <= bytes && pieces.next.len() > 1800);
            drop(pieces);
            assert!(compressed.used_bytes() <= bytes);
        }
        assert!(refused > 100, "{refused}");
        (0..slots).for_each(|slot| compressed.drop_page(SwapSlot(slot)));
        assert_eq!(compressed.lock().used, 0);
    }
}
