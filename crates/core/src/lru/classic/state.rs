//! State of the classic LRU in an lruvec: sizes, the clock, costs, and the last known statistics.
//!
//! # Locking
//!
//! Costs are under the lruvec lock. Sizes change under it and are read without it. The clock and
//! the statistics are atomic words.

use crate::folio::Kind;
use crate::lru::multigen::window::GENERATION_LISTS;
use crate::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The inactive and the active list of each kind, in the order of a turn.
pub(crate) const LISTS: [(Kind, bool); 4] =
    [(Kind::Anon, false), (Kind::Anon, true), (Kind::File, false), (Kind::File, true)];

/// Number of the list of a kind's active or inactive folios.
pub(crate) fn list_of(kind: Kind, active: bool) -> usize {
    GENERATION_LISTS + kind as usize * 2 + usize::from(active)
}

/// Recent reclaim costs, by [`Kind`] ([book: classic-lru#scan-cost]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs(pub(crate) [u64; 2]);

/// The clock, written by all threads that reclaim in the subtree. The configuration `clock_apart`
/// keeps it on cache lines of its own, for the benchmark, as `lock_apart` does with the lock.
#[derive(Debug)]
#[cfg_attr(lruvec_layout = "clock_apart", repr(align(128)))]
struct NonresidentAge(AtomicU64);

#[derive(Debug)]
pub(crate) struct Classic {
    /// Pages on each list, in the order of [`LISTS`]. May be negative for a moment.
    pub(super) sizes: [AtomicI64; 4],
    /// The clock of refaults: evictions and activations in the subtree, in pages.
    nonresident_age: NonresidentAge,
    /// The last known statistics of the subtree.
    pub(super) aggregated: Aggregated,
    /// Activated refaults, by kind, at the end of the last effort on this lruvec.
    pub(super) refaults_seen: [AtomicU64; 2],
}

impl Classic {
    pub(in crate::lru) fn new() -> Classic {
        Classic {
            sizes: std::array::from_fn(|_| AtomicI64::new(0)),
            nonresident_age: NonresidentAge(AtomicU64::new(0)),
            aggregated: Aggregated::new(),
            refaults_seen: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Resets everything, for the next memcg with this number.
    pub(in crate::lru) fn reset(&self) {
        self.sizes.iter().for_each(|size| size.store(0, Relaxed));
        self.nonresident_age.0.store(0, Relaxed);
        self.aggregated.reset();
        self.refaults_seen.iter().for_each(|seen| seen.store(0, Relaxed));
    }

    pub(crate) fn size(&self, kind: Kind, active: bool) -> u64 {
        self.sizes[kind as usize * 2 + usize::from(active)].load(Relaxed).max(0) as u64
    }

    pub(crate) fn pages(&self, kind: Kind) -> u64 {
        self.size(kind, false) + self.size(kind, true)
    }

    pub(crate) fn nonresident_age(&self) -> u64 {
        self.nonresident_age.0.load(Relaxed)
    }

    /// Advances the clock and returns its former reading.
    pub(super) fn advance(&self, pages: u64) -> u64 {
        if pages == 0 { self.nonresident_age() } else { self.nonresident_age.0.fetch_add(pages, Relaxed) }
    }

    pub(super) fn set_back(&self, pages: u64) {
        self.nonresident_age.0.fetch_sub(pages, Relaxed);
    }
}

/// Statistics at the last refresh.
#[derive(Debug)]
pub(super) struct Aggregated {
    /// Pages, in the order of [`LISTS`].
    pub(super) sizes: [AtomicU64; 4],
    /// Activated refaults, by kind.
    pub(super) activated: [AtomicU64; 2],
}

impl Aggregated {
    fn new() -> Aggregated {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Aggregated { sizes: zeros(), activated: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn reset(&self) {
        self.sizes.iter().chain(&self.activated).for_each(|word| word.store(0, Relaxed));
    }
}
