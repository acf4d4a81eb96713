//! The multi-generational LRU ([book: folios] to [book: refaults]).
//!
//! Each kind has two to four generations. New folios enter at the old side. Accesses found in page
//! tables move labels to the youngest generation; accesses through descriptors raise tiers.
//! Eviction takes folios of the oldest generation that neither their label nor their tier protects.

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
use crate::folio::CountedFull;
pub(crate) use aging::Aging;
pub(super) use lists::forget_use;
pub(super) use put_back::{isolate, put_back, references};
pub(super) use refault::refaulted;
pub(super) use turn::MultiGenTurn;

pub(super) const HABITS: Habits = Habits {
    has_generations: true,
    activates_in_arrival_batches: false,
    rotates_at_once: false,
    starts_by_size: true,
    finishes_passes: false,
    waits_for_writeback: false,
    trims_at_once: false,
    counts_rereads: false,
    counted_full: CountedFull::REFS_AND_WORKINGSET,
    takes_turns: false,
    shows_lists: false,
};
