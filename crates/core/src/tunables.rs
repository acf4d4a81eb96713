//! What can be changed while the core runs: the words behind `lru_gen/enabled` and
//! `lru_gen/min_ttl_ms`. Whether the multi-gen LRU is on is no word of its own: the mechanisms say
//! it.
//!
//! # Locking
//!
//! Atomic words.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The multi-gen LRU itself.
pub(crate) const MAIN: u64 = 1;
/// Walks clear accessed bits of page-table entries: without, aging reads none.
pub(crate) const LEAF_WALK: u64 = 2;
/// And those of page tables, whose clear bits say which need not be walked.
pub(crate) const TABLE_WALK: u64 = 4;

/// The words.
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

    /// The bits of `lru_gen/enabled` that are about walks.
    pub(crate) fn walk_capabilities(&self) -> u64 {
        self.capabilities.load(Relaxed)
    }

    /// Whether that bit of them is set.
    pub(crate) fn has(&self, bit: u64) -> bool {
        self.walk_capabilities() & bit != 0
    }

    /// Sets them. Other bits are forgotten.
    pub(crate) fn set_walk_capabilities(&self, bits: u64) {
        self.capabilities.store(bits & (LEAF_WALK | TABLE_WALK), Relaxed);
    }

    /// `lru_gen/min_ttl_ms`: what was used in this time is not thrashed; 0: off.
    pub(crate) fn min_ttl_ms(&self) -> u64 {
        self.min_ttl_ms.load(Relaxed)
    }

    pub(crate) fn set_min_ttl_ms(&self, ms: u64) {
        self.min_ttl_ms.store(ms, Relaxed);
    }
}
