//! Run-time settings: the words behind `lru_gen/enabled` and `lru_gen/min_ttl_ms`. The bit for the
//! multi-gen LRU itself lives in the mechanisms.
//!
//! # Locking
//!
//! None: atomic words.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The multi-gen LRU is on.
pub(crate) const MAIN: u64 = 1;
/// Walks read and clear accessed bits of page-table entries. Off: aging reads none.
pub(crate) const LEAF_WALK: u64 = 2;
/// Walks also use accessed bits of page tables, and skip tables whose bit is clear.
pub(crate) const TABLE_WALK: u64 = 4;

#[derive(Debug)]
pub(crate) struct Tunables {
    capabilities: AtomicU64,
    min_ttl_ms: AtomicU64,
}

impl Tunables {
    pub(crate) fn new() -> Tunables {
        let capabilities = AtomicU64::new(LEAF_WALK | TABLE_WALK);
        Tunables { capabilities, min_ttl_ms: AtomicU64::new(0) }
    }

    /// The bits of `lru_gen/enabled` about walks.
    pub(crate) fn walk_capabilities(&self) -> u64 {
        self.capabilities.load(Relaxed)
    }

    pub(crate) fn has(&self, bit: u64) -> bool {
        self.walk_capabilities() & bit != 0
    }

    /// Sets the bits about walks and ignores all others.
    pub(crate) fn set_walk_capabilities(&self, bits: u64) {
        self.capabilities.store(bits & (LEAF_WALK | TABLE_WALK), Relaxed);
    }

    /// `lru_gen/min_ttl_ms`: pages used within this time are protected from thrashing; 0: off.
    pub(crate) fn min_ttl_ms(&self) -> u64 {
        self.min_ttl_ms.load(Relaxed)
    }

    pub(crate) fn set_min_ttl_ms(&self, ms: u64) {
        self.min_ttl_ms.store(ms, Relaxed);
    }
}
