//! The policy `ranked`: newcomers and a main list, ranked by age.
//!
//! ```text
//!            unknown ──────────────► newcomers S ──── tail: fewer than 2 ──► out, with a shadow
//! new page ─┤        M has room ──┐        │ accessed twice
//!            remembered            ▼        ▼
//!            └─ younger than ──► main M ◄───┘   the hand at its tail takes one access of each that has some;
//!               M's candidate      └── candidate: has none ──► out, with a shadow
//! ```
//!
//! Each kind has two queues. A hit moves no folio: it counts to 3 in the folio's word, or sets its
//! accessed bit. The main ideas:
//!
//! * *Rank by age.* A returning page goes to the main list if it was away for less time than the
//!   main list's candidate has been unused. A hand finds the candidate; it turns only when a page
//!   is to be admitted or the main list must shrink, never by time. In a loop both ages are equal:
//!   the main list stays as it is and keeps hitting.
//! * *The main list's shadows count*, too: a page that left it and soon returns shows that
//!   newcomers have too many pages.
//! * *Newcomers have as many pages as they earn* ([`share`]).
//! * *Fill*: while the main list has room, newcomers go straight there. Room is measured against
//!   the size of memory at the end of reclaim; against the limit, there would always be some
//!   between two batches.
//!
//! ```text
//! constants.rs  every number that was tuned         share.rs   how many pages newcomers may have
//! clock.rs      time, in pages brought in           memory.rs  the token of a shadow
//! state.rs      the words of an lruvec              place.rs   where pages go; the hand
//! refault.rs    shadows and refaults                turn.rs    an lruvec's turn in a pass
//! walk.rs       accessed bits in bulk           compact.rs shadows whose leaves were dropped
//! ```
//!
//! Its sources: second chances for a queue's old pages (CLOCK), a small queue of newcomers in front
//! of a main one (2Q, S3-FIFO), comparing a page's reuse distance with the recency of the coldest
//! resident page (LIRS), and a target that moves with refaults (ARC).
//!
//! # Locking
//!
//! Lists, sizes and stamps change under the lruvec lock. The other words are atomic statistics: a
//! thread that loses a race loses one step.

mod clock;
mod compact;
mod constants;
mod memory;
mod place;
mod refault;
mod share;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;
mod walk;

use super::Habits;
use crate::folio::CountedFull;
pub(crate) use compact::CompactShadows;
pub(crate) use state::{List, RankedOnUse};
pub(super) use {
    constants::fewest_pages,
    refault::{Evictions, leaf_dropped, refaulted, shadow_outside},
    state::{FIRST_LIST, LISTS, list_of},
    turn::{RankedTurn, references},
};

pub(super) const HABITS: Habits = Habits {
    has_generations: false,
    activates_in_arrival_batches: false,
    rotates_at_once: true,
    starts_by_size: false,
    finishes_passes: false,
    waits_for_writeback: true,
    trims_at_once: true,
    counts_rereads: true,
    counted_full: CountedFull::REFS,
    takes_turns: true,
    shows_lists: true,
};
