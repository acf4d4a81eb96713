//! Which pages are cold: the seam between reclaim and its policies.
//!
//! Only this folder knows how pages are ranked. The rest of the crate asks an [`Lruvec`] to add and remove
//! folios, and a reclaim pass to take an eviction step. The multi-gen LRU is the only policy so far; the classic
//! active/inactive LRU will stand beside it in `classic/`, and this file becomes the closed enum that picks one.

mod arrivals;
mod isolated;
mod lruvec;
pub(crate) mod multigen;
mod order;
pub(crate) mod turns;

pub(crate) use arrivals::{Arrivals, BATCH_FOLIOS, Queue};
pub(crate) use isolated::Isolated;
pub(crate) use lruvec::LockedLruvec;
pub use lruvec::{GenerationRow, Lruvec};
pub use multigen::window::{MAX_GENERATIONS, MIN_GENERATIONS, Seq};
pub(crate) use order::{MemcgOrder, OrderWalk, Visit};

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
