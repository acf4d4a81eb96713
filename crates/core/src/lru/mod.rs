//! Which pages are cold: the seam between reclaim and its policies.
//!
//! Only this folder knows how pages are ranked. There are two policies, of which one is on: the multi-gen LRU in
//! `multigen/`, and the classic active/inactive LRU in `classic/`. Which one, [`Mechanisms::lru`] says; it is asked where
//! they part:
//!
//! | asked | multi-gen | classic |
//! |---|---|---|
//! | where a folio is put: [`LockedLruvec::add`] | distance rule | active or inactive list |
//! | what an access does: [`Core::accessed`] | counts it | `classic/access.rs` |
//! | what is remembered of a page, and what it gets back: `workingset.rs` | generation, accesses | the clock |
//! | what a turn takes: `reclaim/turn.rs` | the oldest generation | inactive and active lists |
//! | what the accessed bit says, and where rejected folios go: `pageout/` | looks around | the one entry |
//!
//! A folio belongs to the policy on whose lists it is: one that carries the label of a generation to the multi-gen LRU. So
//! both can have folios at the same time, and have, while the policy is switched ([`switch`]).
//!
//! [`Core::accessed`]: crate::Core::accessed
//! [`Mechanisms::lru`]: crate::Mechanisms::lru

mod arrivals;
pub(crate) mod classic;
mod isolated;
pub(crate) mod lists;
mod lruvec;
pub(crate) mod multigen;
mod order;
pub mod switch;
pub(crate) mod turns;

pub(crate) use arrivals::{Arrivals, BATCH_FOLIOS, Queue};
pub use classic::Refresh;
pub(crate) use isolated::Isolated;
pub(crate) use lruvec::LockedLruvec;
pub use lruvec::{GenerationRow, Lruvec};
pub use multigen::window::{MAX_GENERATIONS, MIN_GENERATIONS, Seq};
pub(crate) use order::{MemcgOrder, OrderWalk, TURN_PAGES, Visit};

use crate::folio::Kind;

/// How willing reclaim is to take anonymous pages: 0 only file pages, 1…200 both, 201 only anonymous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Swappiness(pub u8);

impl Swappiness {
    /// The kernel's default.
    pub const DEFAULT: Swappiness = Swappiness(60);
    /// Only file pages.
    pub const FILE_ONLY: Swappiness = Swappiness(0);
    /// Only anonymous pages ("max").
    pub const ANON_ONLY: Swappiness = Swappiness(201);

    /// 0…201. `None`: there is no such swappiness.
    pub fn new(value: u8) -> Option<Swappiness> {
        (value <= Self::ANON_ONLY.0).then_some(Swappiness(value))
    }

    /// Whether reclaim may take pages of that kind.
    #[inline]
    pub fn evicts(self, kind: Kind) -> bool {
        match kind {
            Kind::Anon => self.0 != 0,
            Kind::File => self.0 != Self::ANON_ONLY.0,
        }
    }

    /// The kinds that reclaim may take, anonymous first.
    pub fn evictable(self) -> impl Iterator<Item = Kind> + Clone {
        Kind::ALL.into_iter().filter(move |&kind| self.evicts(kind))
    }
}

/// How long ago a page was evicted that is back, and within what reach that is recent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// Generations from the oldest at its eviction to the youngest now; before the working-set rework, to the oldest now.
    /// Classic: pages evicted and activated since, by the clock.
    pub passed: u64,
    /// Three generations; before the rework, none. Classic: pages on the other lists, which could have made room.
    pub reach: u64,
}

impl Distance {
    /// Whether the page is back soon enough.
    pub fn is_recent(self) -> bool {
        self.passed <= self.reach
    }
}
