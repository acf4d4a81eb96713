//! The locks of a mapping. Each guards a part of the file, so that threads that bring in and
//! reclaim pages in different parts do not wait for each other.
//!
//! ```text
//! directory   0  1  2  3  4  5  6  7  8 …      (128 MiB of file each)
//! part        0  1  2  3  0  1  2  3  0 …      (four CPUs)
//! ```
//!
//! A part has every n-th directory, so a directory with its leaves and slots belongs to one lock.
//! A file of up to 128 MiB has only the first part, inside of the mapping; the others come with the
//! second directory.
//!
//! # Locking
//!
//! A thread holds one part, or all of them in ascending order. The other parts are made under the
//! first one's lock, so that a holder of all parts has every part that there is.

use super::layout::DIRECTORY_PAGES;
use super::leaf::LeafPool;
use crate::sync::{AtomicBool, AtomicU32, Held, Lock, Ordering::Relaxed};
use std::sync::OnceLock;

/// More parts than this would take more time to lock together than they save.
const PARTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Parts {
    first: Part,
    others: OnceLock<Box<[Apart]>>,
    /// Number of parts, a power of two.
    number: u32,
    /// Bytes of the others for which no memcg pays yet: the next one that adds a directory will.
    unpaid_bytes: AtomicU32,
}

/// A lock, and the cached pages of the slots that it guards: written under it, read without.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) lock: Lock,
    pub(super) folios: AtomicU32,
}

/// A part in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Apart(Part);

impl Parts {
    /// Locks for a file that so many CPUs use.
    pub(super) fn new(cpus: usize) -> Parts {
        let number = cpus.next_power_of_two().min(PARTS_MAX) as u32;
        Parts { first: Part::default(), others: OnceLock::new(), number, unpaid_bytes: AtomicU32::new(0) }
    }

    /// The number of a page's part.
    #[inline]
    pub(super) fn number(&self, index: u32) -> u32 {
        (index / DIRECTORY_PAGES) & (self.number - 1)
    }

    /// Cached pages, in all parts. Exact while no thread inserts or removes one.
    pub(super) fn folios(&self) -> u32 {
        let others = self.others.get().into_iter().flatten().map(|Apart(part)| part);
        [&self.first].into_iter().chain(others).map(|part| part.folios.load(Relaxed)).sum()
    }

    /// Bytes of the parts outside of the mapping.
    pub(super) fn bytes(&self) -> u64 {
        self.others.get().map_or(0, |others| size_of_val(&**others) as u64)
    }

    /// Bytes for which no memcg pays yet. They may become fewer at any time, and more unless the
    /// caller holds a part.
    pub(super) fn unpaid_bytes(&self) -> u64 {
        self.unpaid_bytes.load(Relaxed).into()
    }

    /// Notes that a memcg pays for all parts from now on. Returns their bytes, if none did.
    pub(super) fn pay(&self) -> u64 {
        self.unpaid_bytes.swap(0, Relaxed).into()
    }

    /// A part by its number. Not to be called by a thread that holds one. Parts that do not exist
    /// when the mapping is closed hold no page and get none: the first part stands for them.
    #[inline]
    pub(super) fn part(&self, leaves: &LeafPool, number: u32, closed: &AtomicBool) -> &Part {
        let Some(other) = number.checked_sub(1) else { return &self.first };
        let others = self.others.get().map(|others| &**others).or_else(|| {
            let _first = self.first.lock.lock();
            if self.others.get().is_none() && closed.load(Relaxed) {
                return None;
            }
            Some(self.make_others(leaves))
        });
        others.map_or(&self.first, |others| &others[other as usize].0)
    }

    /// The other parts, made if they are missing. The caller holds the first part.
    fn make_others(&self, leaves: &LeafPool) -> &[Apart] {
        self.others.get_or_init(|| {
            let others: Box<[Apart]> = (1..self.number).map(|_| Apart::default()).collect();
            let bytes = size_of_val(&*others) as u32;
            leaves.count_bytes(bytes.into());
            self.unpaid_bytes.store(bytes, Relaxed);
            others
        })
    }

    /// Locks all parts.
    pub(super) fn lock_all(&self) -> (Held<'_>, Vec<Held<'_>>) {
        let first = self.first.lock.lock();
        let others = self.others.get().into_iter().flatten();
        (first, others.map(|Apart(part)| part.lock.lock()).collect())
    }
}
