//! What handles and tenants count.

use mglru_core::lru::GenerationRow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of one handle. It has cache lines of its own, so that threads with a handle each do not
/// disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct HandleStats {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl HandleStats {
    #[inline]
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn count(&self, missed: bool) {
        if missed { self.miss() } else { self.hit() }
    }

    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }
}

/// What a tenant holds and did.
#[derive(Clone, Debug)]
pub struct TenantStats {
    /// Its path; empty for the root.
    pub name: String,
    /// `memory.min`, in pages.
    pub min_pages: u64,
    /// `memory.low`, in pages.
    pub low_pages: u64,
    /// `memory.high`, in pages.
    pub high_pages: Option<u64>,
    /// Its limit, in pages.
    pub max_pages: Option<u64>,
    /// Pages charged to it and to those below it; of the root, to itself.
    pub usage_pages: u64,
    /// The most that were ever charged.
    pub peak_pages: u64,
    /// Pages in swap, of its own and of those below it.
    pub swap_pages: u64,
    /// Page accesses through descriptors that found the page in memory.
    pub hits: u64,
    /// Page accesses, of both channels, that did not.
    pub misses: u64,
    /// Counters and sizes under the kernel's names, in pages or events: its own, without those
    /// below it, which the control files have.
    pub counters: Vec<(&'static str, u64)>,
    /// Its live generations, oldest first.
    pub generations: Vec<GenerationRow>,
}

impl TenantStats {
    /// The counter of that name; `None`: there is none.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }
}
