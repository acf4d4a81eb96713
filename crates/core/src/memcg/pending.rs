//! Pages on their way to files: of the node, or of a memcg and all below it.
//!
//! # Locking
//!
//! None: atomic words. A page may be counted in one of them a moment before the other.

use crate::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Dirty pages, and pages that are being written.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    dirty: AtomicI64,
    writeback: AtomicI64,
    /// Pages that could not be written, since the beginning.
    failed: AtomicU64,
}

impl Pending {
    /// Pages became dirty, or began to be written; or, negative, no longer are.
    pub(crate) fn change(&self, dirty: i64, writeback: i64) {
        for (count, change) in [(&self.dirty, dirty), (&self.writeback, writeback)] {
            if change != 0 {
                count.fetch_add(change, Relaxed);
            }
        }
    }

    /// A page could not be written.
    pub(crate) fn note_failure(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// Pages that could not be written so far.
    pub(crate) fn failed_pages(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// As new.
    pub(crate) fn reset(&self) {
        self.dirty.store(0, Relaxed);
        self.writeback.store(0, Relaxed);
        self.failed.store(0, Relaxed);
    }

    /// Dirty pages that are not being written.
    pub(crate) fn dirty_pages(&self) -> u64 {
        self.dirty.load(Relaxed).max(0) as u64
    }

    /// Both.
    pub(crate) fn pages(&self) -> u64 {
        self.dirty_pages() + self.writeback.load(Relaxed).max(0) as u64
    }
}
