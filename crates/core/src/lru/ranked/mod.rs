//! Newcomers and a main list, ranked by age: the policy `ranked`.
//!
//! ```text
//!            unknown ──────────────► newcomers S ──── tail: not accessed ──► out, with a shadow
//! new page ─┤        M has room ──┐        │ accessed twice
//!            remembered            ▼        ▼
//!            └─ younger than ──► main M ◄───┘   the hand at its tail takes one access of each that has some;
//!               M's candidate      └── candidate: has none ──► out, with a shadow
//! ```
//!
//! Two queues per kind, and a hit moves nothing: it counts to 3 in the folio's word, or sets its
//! accessed bit. What matters:
//!
//! * *Rank by age.* A page that is back goes to the main list if it was away for less time than the
//!   main list's candidate has gone unused; a hand finds the candidate, and turns only when a page
//!   wants in or the main list must shrink, never by time. In a loop both ages are equal: the main
//!   list stays as it is, and keeps hitting.
//! * *The main list's shadows count*, too: who left it and is back soon says that newcomers have
//!   too many pages.
//! * *Newcomers have as many pages as they earn* ([`share`]).
//! * *Fill*: as long as the main list has room, newcomers go straight there. Room is what it may
//!   have when reclaim ends; against the limit there would always be some, between two batches.
//!
//! ```text
//! constants.rs  every number that was tuned         share.rs   how many pages newcomers may have
//! clock.rs      time, in pages brought in           memory.rs  what a shadow says
//! state.rs      the words of an lruvec              place.rs   where pages go; the hand
//! refault.rs    a page is back                      turn.rs    what reclaim takes
//! ```
//!
//! The main ideas are others': second chances for a queue's old pages (CLOCK), a small queue of
//! newcomers in front of a main one (2Q, S3-FIFO), comparing a page's reuse distance with the
//! recency of the coldest that stays (LIRS), and a target that moves with what returns (ARC).
//!
//! # Locking
//!
//! Lists, sizes and stamps change under the lruvec lock. The other words are atomic: they are
//! statistics, and who loses a race loses a step.

mod clock;
mod constants;
mod memory;
mod place;
mod refault;
mod share;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;

use super::Habits;
use super::scan_control::CLUSTER_PAGES;
pub(crate) use state::{List, RankedOnUse};
pub(super) use {
    refault::{refaulted, shadow_of},
    state::{LISTS, list_of},
    turn::{RankedTurn, references},
};

/// Fewest pages that are reclaimed at once under a limit: 1/64 of it, but not more than the
/// kernel's. What is free is in memory for nothing, and of a small memory 32 pages are much.
pub(super) fn fewest_pages(limit_pages: u64) -> u64 {
    (limit_pages / constants::BATCHES_PER_MEMORY).clamp(1, CLUSTER_PAGES)
}

/// What reclaim as a whole does under this policy.
pub(super) const HABITS: Habits = Habits {
    has_generations: false,
    activates_in_arrival_batches: false,
    starts_by_size: false,
    finishes_passes: false,
    waits_for_writeback: true,
};
