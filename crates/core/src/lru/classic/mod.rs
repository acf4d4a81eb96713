//! The classic LRU: an active and an inactive list per kind ([book: classic-lru]).
//!
//! New folios enter the inactive list, a second access activates them, and reclaim takes from the
//! tail of the inactive list. Folios are deactivated when the active list is too long, or when
//! recently evicted pages return.
//!
//! ```text
//! turn.rs        an lruvec's turn: round by round     statistics.rs  list sizes as reclaim knows them: late
//! balance.rs     how much to scan of which list      shrink.rs      taking folios off the tails, and putting them back
//! refault.rs     two accesses activate; the clock that measures how long ago a page was evicted
//! ```
//!
//! # Locking
//!
//! Lists and costs are under the lruvec lock. The clock and the sizes are atomic words. Each
//! eviction or activation advances the clocks of its lruvec and of all ancestors.

mod balance;
mod refault;
mod shrink;
pub(super) mod state;
mod statistics;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;

use super::{Habits, LockedLruvec};
use crate::folio::{CountedFull, FolioId, Kind};
use crate::sync::Ordering::Relaxed;
pub(super) use state::LISTS;
pub(crate) use state::list_of;
pub(super) use {
    balance::Balance,
    refault::{Evictions, accessed_again, refaulted},
    shrink::{put_back, references},
    statistics::note_refaults_seen,
    turn::ClassicTurn,
};

pub(super) const HABITS: Habits = Habits {
    has_generations: false,
    activates_in_arrival_batches: true,
    rotates_at_once: false,
    starts_by_size: false,
    finishes_passes: true,
    waits_for_writeback: true,
    trims_at_once: false,
    counts_rereads: false,
    counted_full: CountedFull::ACTIVE,
    takes_turns: false,
    shows_lists: false,
};

impl LockedLruvec<'_> {
    /// Puts a folio at the head of the list that its state names, or at the tail for a rotation.
    pub(super) fn add_classic(&mut self, folio: FolioId, rotation: bool) {
        let now = self.folios.flags(folio).enlist_unmarked();
        let kind = self.kind_of(folio);
        self.resize_classic(kind, now.active(), 1);
        self.push(folio, list_of(kind, now.active()), !rotation);
    }

    pub(super) fn resize_classic(&mut self, kind: Kind, active: bool, pages: i64) {
        // A plain store suffices: only the lock holder writes sizes.
        let size = &self.lruvec.classic.sizes[kind as usize * 2 + usize::from(active)];
        size.store(size.load(Relaxed) + pages, Relaxed);
        let [all, of_active] = &mut self.listed[kind as usize];
        *all += pages;
        *of_active += if active { pages } else { 0 };
    }
}
