//! Counters of handles and statistics of tenants.

use mglru_core::lru::GenerationRow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one handle. Aligned to cache lines of its own, so that threads with separate handles
/// do not contend.
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

/// Sizes, limits and counters of a tenant.
#[derive(Clone, Debug)]
pub struct TenantStats {
    /// The tenant's path; empty for the root.
    pub name: String,
    /// `memory.min`, in pages.
    pub min_pages: u64,
    /// `memory.low`, in pages.
    pub low_pages: u64,
    /// `memory.high`, in pages; `None` for no limit.
    pub high_pages: Option<u64>,
    /// `memory.max`, in pages; `None` for no limit.
    pub max_pages: Option<u64>,
    /// Pages charged to the tenant and all below it, with whole pages of metadata; for the root, to
    /// the root itself only.
    pub usage_pages: u64,
    /// The maximum of `usage_pages` so far.
    pub peak_pages: u64,
    /// Pages in swap, of the tenant and all below it.
    pub swap_pages: u64,
    /// Page accesses through file handles that found the page in memory.
    pub hits: u64,
    /// Page accesses, through handles and maps, that did not find the page in memory.
    pub misses: u64,
    /// Counters and sizes under the kernel's names, in pages or events (`slab_…`: in bytes), of
    /// this tenant only. The control files include the tenants below it.
    pub counters: Vec<(&'static str, u64)>,
    /// The tenant's live generations, oldest first.
    pub generations: Vec<GenerationRow>,
}

impl TenantStats {
    /// The counter with this name, if it exists.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }
}
