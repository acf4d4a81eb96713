//! Directories: each names the leaves of 32,768 pages (128 MiB of file). They come from one pool,
//! so that their memory is bounded, counted and reused.
//!
//! A directory is put into its place when the first leaf below it is created. If memcgs pay for the
//! index, the charge of a page does that before, and the directory is taken out with the last leaf;
//! otherwise it stays until the mapping is closed. A lock-free reader that still holds it then may
//! find leaves of another file, and notices because the mapping no longer names that directory (see
//! [`super::Mapping::find`] and [`super::Glance`]).
//!
//! # Locking
//!
//! Entries and counts of a directory in its place change under its part's lock. The list of free
//! directories has a lock of its own, a leaf.

use super::layout::DIRECTORY_LEAVES;
use super::numbers::{FreeNumbers, return_zeros};
use crate::host::Host;
use crate::memcg::MemcgId;
use crate::segments::Segments;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};

/// Directories allocated together: 16 KiB, as for leaves.
const SEGMENT_DIRECTORIES: u32 = if cfg!(loom) { 1 } else { 8 };
pub(super) const DIRECTORY_BYTES: u64 = size_of::<Directory>() as u64;

#[derive(Debug)]
pub(crate) struct Directory {
    /// Leaf number + 1, and perhaps [`IN_RANGE`](super::layout::IN_RANGE); 0 for no leaf.
    pub(crate) leaves: [AtomicU32; DIRECTORY_LEAVES],
    /// Upper-level accessed bits, one per page table.
    pub(crate) young_tables: AtomicU64,
    /// Number of leaves.
    count: AtomicU32,
    /// The number of the memcg that pays for the directory, if memcgs do.
    pub(super) payer: AtomicU32,
}

impl Directory {
    fn new() -> Directory {
        Directory {
            leaves: std::array::from_fn(|_| AtomicU32::new(0)),
            young_tables: AtomicU64::new(0),
            count: AtomicU32::new(0),
            payer: AtomicU32::new(MemcgId::NONE),
        }
    }
}

/// All directories of all mappings.
#[derive(Debug)]
pub(crate) struct DirectoryPool {
    /// The first directories, enough for files some dozen times as large as memory if cached pages
    /// are neighbours. Allocated at the start, since a hit reaches them in fewer steps.
    first: Box<[Directory]>,
    later: Segments<Box<[Directory]>, 19>,
    free: Mutex<FreeNumbers>,
    bytes: AtomicU64,
}

impl DirectoryPool {
    pub(crate) fn new(first: u32) -> DirectoryPool {
        DirectoryPool {
            first: (0..first).map(|_| Directory::new()).collect(),
            later: Segments::new(),
            free: Mutex::new(FreeNumbers::new(first, SEGMENT_DIRECTORIES)),
            bytes: AtomicU64::new(u64::from(first) * DIRECTORY_BYTES),
        }
    }

    /// Bytes of all directories except resting ones.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The directory that a place names: its number + 1, or 0 for none.
    #[inline]
    pub(crate) fn get_entry(&self, entry: u32) -> Option<&Directory> {
        let number = entry.wrapping_sub(1);
        self.first.get(number as usize).or_else(|| self.get_later(number))
    }

    #[cold]
    #[inline(never)]
    fn get_later(&self, number: u32) -> Option<&Directory> {
        let later = number.checked_sub(self.first.len() as u32).filter(|_| number != u32::MAX)?;
        self.later.get(later / SEGMENT_DIRECTORIES)?.get((later % SEGMENT_DIRECTORIES) as usize)
    }

    /// Bytes to be paid for before another directory can be taken.
    pub(crate) fn growth_bytes(&self) -> u64 {
        let free = self.free.lock();
        if free.has_free() {
            return 0;
        }
        free.waking_bytes().unwrap_or(u64::from(SEGMENT_DIRECTORIES) * DIRECTORY_BYTES)
    }

    /// Takes a directory without leaves, as an entry for its place. Allocates more if none is free:
    /// the caller has paid for them, or they are paid for next.
    pub(crate) fn take(&self) -> u32 {
        let mut free = self.free.lock();
        let number = loop {
            if let Some(number) = free.take() {
                break number;
            }
            let grown = free.wake().unwrap_or_else(|| {
                self.later.get_or_init(free.segments(), || {
                    (0..SEGMENT_DIRECTORIES).map(|_| Directory::new()).collect()
                });
                free.add_segment();
                u64::from(SEGMENT_DIRECTORIES) * DIRECTORY_BYTES
            });
            self.bytes.fetch_add(grown, Relaxed);
        };
        number + 1
    }

    /// Returns a directory without leaves that was taken out of its place.
    pub(crate) fn give_back(&self, entry: u32) {
        let directory = self.get_entry(entry).expect("it was in its place");
        debug_assert!(directory.leaves.iter().all(|leaf| leaf.load(Relaxed) == 0));
        directory.young_tables.store(0, Relaxed);
        self.free.lock().give_back(entry - 1);
    }

    /// Whether a directory in its place has no leaf. The caller holds the lock of its part.
    pub(crate) fn is_empty(&self, directory: &Directory) -> bool {
        directory.count.load(Relaxed) == 0
    }

    /// Counts a new leaf. The caller holds the lock of its part.
    pub(crate) fn note_leaf(&self, directory: &Directory) {
        let count = directory.count.load(Relaxed);
        directory.count.store(count + 1, Relaxed);
    }

    /// Counts a removed leaf. The caller holds the lock of its part.
    pub(crate) fn forget_leaf(&self, directory: &Directory) {
        let count = directory.count.load(Relaxed) - 1;
        directory.count.store(count, Relaxed);
    }

    /// Returns the memory of free directories to the system.
    pub(crate) fn rest(&self, host: &impl Host) {
        let mut free = self.free.lock();
        let rested = free.rest_unused(|segment| return_zeros(host, self.later.get(segment)?));
        self.bytes.fetch_sub(rested, Relaxed);
    }
}
