//! The classic LRU: an active and an inactive list per kind (spec 80).
//!
//! New folios enter the inactive list, the second access moves them to the active one, and reclaim takes from the tail of
//! the inactive list. Folios come back from the active list when it is too long for the inactive one, or when pages
//! come back that were evicted a short time ago.
//!
//! ```text
//! turn.rs        an lruvec's turn: round by round     statistics.rs  list sizes as reclaim knows them: late
//! balance.rs     how much to scan of which list      shrink.rs      taking folios off the tails, and putting them back
//! refault.rs     two accesses activate; the clock that tells how long ago a page was evicted
//! ```
//!
//! # Locking
//!
//! Lists and costs are under the lruvec lock. The clock and the sizes are atomic words; the clock is written by whoever
//! evicts or activates, in this lruvec and in all of its ancestors.

mod balance;
mod refault;
mod shrink;
mod statistics;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;

use super::lists::GENERATION_LISTS;
use super::{Habits, LockedLruvec};
use crate::folio::{FolioId, Kind};
use crate::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};
use statistics::Aggregated;
pub use statistics::Refresh;
pub(super) use {
    balance::Balance,
    refault::{Evictions, refaulted},
    shrink::{put_back, references},
    turn::ClassicTurn,
};

/// What reclaim as a whole does under this policy.
pub(super) const HABITS: Habits = Habits {
    has_generations: false,
    activates_in_arrival_batches: true,
    starts_by_size: false,
    finishes_passes: true,
    waits_for_writeback: true,
};

/// Inactive and active list of each kind, in the order in which a turn goes through them.
pub(crate) const LISTS: [(Kind, bool); 4] =
    [(Kind::Anon, false), (Kind::Anon, true), (Kind::File, false), (Kind::File, true)];

/// Number of the list of a kind's active or inactive folios.
pub(crate) fn list_of(kind: Kind, active: bool) -> usize {
    GENERATION_LISTS + kind as usize * 2 + usize::from(active)
}

/// What reclaim of each kind cost lately, by [`Kind`] (spec 80 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs(pub(crate) [u64; 2]);

/// The clock. All threads below write to it. `clock_apart` is for the benchmark, as `lock_apart` is.
#[derive(Debug)]
#[cfg_attr(lruvec_layout = "clock_apart", repr(align(128)))]
struct NonresidentAge(AtomicU64);

/// The classic part of an lruvec.
#[derive(Debug)]
pub(crate) struct Classic {
    /// Pages on each list, as [`LISTS`]. May be negative for a moment.
    sizes: [AtomicI64; 4],
    /// Evictions and activations here and below, in pages: the clock by which refaults are judged.
    nonresident_age: NonresidentAge,
    /// What is known of this lruvec and those below it.
    aggregated: Aggregated,
    /// Refaults that were activated, by kind, when the last effort on this lruvec ended.
    refaults_seen: [AtomicU64; 2],
}

impl Classic {
    pub(super) fn new() -> Classic {
        Classic {
            sizes: std::array::from_fn(|_| AtomicI64::new(0)),
            nonresident_age: NonresidentAge(AtomicU64::new(0)),
            aggregated: Aggregated::new(),
            refaults_seen: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// As new, for the next memcg of that number.
    pub(super) fn reset(&self) {
        self.sizes.iter().for_each(|size| size.store(0, Relaxed));
        self.nonresident_age.0.store(0, Relaxed);
        self.aggregated.reset();
        self.refaults_seen.iter().for_each(|seen| seen.store(0, Relaxed));
    }

    /// Pages on a list.
    pub(crate) fn size(&self, kind: Kind, active: bool) -> u64 {
        self.sizes[kind as usize * 2 + usize::from(active)].load(Relaxed).max(0) as u64
    }

    /// Pages on both lists of a kind.
    pub(crate) fn pages(&self, kind: Kind) -> u64 {
        self.size(kind, false) + self.size(kind, true)
    }

    /// The clock.
    pub(crate) fn nonresident_age(&self) -> u64 {
        self.nonresident_age.0.load(Relaxed)
    }

    /// The clock before.
    fn advance(&self, pages: u64) -> u64 {
        if pages == 0 { self.nonresident_age() } else { self.nonresident_age.0.fetch_add(pages, Relaxed) }
    }

    fn set_back(&self, pages: u64) {
        self.nonresident_age.0.fetch_sub(pages, Relaxed);
    }
}

impl LockedLruvec<'_> {
    /// Puts a folio at the head of the list that it is to be on, or, as a rotation, at its tail.
    pub(super) fn add_classic(&mut self, folio: FolioId, rotation: bool) {
        let now = self.folios.flags(folio).enlist_unmarked();
        let kind = self.kind_of(folio);
        self.resize_classic(kind, now.active(), 1);
        self.push(folio, list_of(kind, now.active()), !rotation);
    }

    pub(super) fn resize_classic(&mut self, kind: Kind, active: bool, pages: i64) {
        // Only the holder of the lock writes sizes, so no read-modify-write is needed.
        let size = &self.lruvec.classic.sizes[kind as usize * 2 + usize::from(active)];
        size.store(size.load(Relaxed) + pages, Relaxed);
        let [all, of_active] = &mut self.listed[kind as usize];
        *all += pages;
        *of_active += if active { pages } else { 0 };
    }
}
