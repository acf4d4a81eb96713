//! The multi-generational LRU ([book: folios] to [book: refaults]).
//!
//! A kind's folios are in two to four generations. New folios enter at the old side, accesses seen
//! through page tables move labels to the youngest generation, accesses through descriptors count
//! tiers, and eviction takes from the oldest generation what neither protects.

mod aging;
pub(super) mod bloom;
mod eviction;
pub(super) mod feedback;
pub(crate) mod lists;
mod look_around;
pub(super) mod memcg_lru;
mod put_back;
mod refault;
mod turn;
mod walk;
pub(crate) mod window;

use super::Habits;
pub(super) use lists::forget_use;
pub(super) use put_back::{isolate, put_back, references};
pub(super) use refault::refaulted;
pub(super) use turn::MultiGenTurn;

/// What reclaim as a whole does under this policy.
pub(super) const HABITS: Habits = Habits {
    has_generations: true,
    activates_in_arrival_batches: false,
    starts_by_size: true,
    finishes_passes: false,
    waits_for_writeback: false,
};
