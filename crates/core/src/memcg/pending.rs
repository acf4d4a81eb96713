//! Pages on their way to files: of the node, or of a memcg and all below it.
//!
//! # Locking
//!
//! None: atomic words. A page may be counted in one of them a moment before the other.

use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

/// Dirty pages, and pages that are being written.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    dirty: AtomicI64,
    writeback: AtomicI64,
    /// Those that were written. Of the node only.
    written: AtomicU64,
    /// The flusher was told that too many are dirty, and has not found out that they are not.
    over_background: AtomicBool,
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

    /// One more is dirty; how many are now.
    pub(crate) fn add_dirty(&self) -> u64 {
        (self.dirty.fetch_add(1, Relaxed) + 1).max(0) as u64
    }

    pub(crate) fn note_written(&self) {
        self.written.fetch_add(1, Relaxed);
    }

    pub(crate) fn written_pages(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Too many are dirty. `true`: that was not known.
    pub(crate) fn note_over_background(&self) -> bool {
        !self.over_background.load(Relaxed) && !self.over_background.swap(true, AcqRel)
    }

    pub(crate) fn forget_over_background(&self) {
        self.over_background.store(false, Relaxed);
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
        self.forget_over_background();
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
