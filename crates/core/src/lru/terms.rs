//! Terms between reclaim and the policies: habits, swappiness and the size of a batch.

use super::multigen::window::GENERATION_LISTS;
use crate::folio::{CountedFull, Kind};

/// The unevictable list, shared by all policies.
pub(crate) const UNEVICTABLE: usize = GENERATION_LISTS + 4;

/// The fewest pages that an effort tries to reclaim.
pub(crate) const CLUSTER_PAGES: u64 = 32;

/// A policy's parameters for reclaim as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Pages have generations with creation times: memcgs can be ordered by them (the kernel's
    /// memcg LRU), and pages can be too young to evict.
    pub(crate) has_generations: bool,
    /// Batches of activated folios have the configured size of arrival batches.
    pub(crate) activates_in_arrival_batches: bool,
    /// A folio that was written is moved at once, not in a batch: a batch holds its folios, and the
    /// CPU that completes writes may never reclaim.
    pub(crate) rotates_at_once: bool,
    /// Root reclaim with a large goal starts at the priority whose first pass gives about that
    /// much.
    pub(crate) starts_by_size: bool,
    /// Where the tree is walked, background reclaim finishes a pass after it reached its goal.
    pub(crate) finishes_passes: bool,
    /// Root reclaim waits if dirty or writeback pages are in its way.
    pub(crate) waits_for_writeback: bool,
    /// Shadows beyond the limit are dropped at once, not in whole batches over several passes.
    pub(crate) trims_at_once: bool,
    /// With `rereads`, a read that begins with the page of the previous read counts again.
    pub(crate) counts_rereads: bool,
    /// The marks of a folio whose accesses through descriptors are all counted.
    pub(crate) counted_full: CountedFull,
    /// With `subtree_lru`, sibling memcgs give pages in turn, by the age of what they have.
    pub(crate) takes_turns: bool,
    /// `lru_gen` shows lists instead of generations, and takes no commands.
    pub(crate) shows_lists: bool,
}

/// Relative cost of reclaiming file against anonymous pages: 0 takes only file pages, 1 to 200
/// both, 201 only anonymous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Swappiness(u8);

impl Swappiness {
    /// The kernel's default.
    pub const DEFAULT: Swappiness = Swappiness(60);
    /// Only file pages.
    pub const FILE_ONLY: Swappiness = Swappiness(0);
    /// Only anonymous pages ("max").
    pub const ANON_ONLY: Swappiness = Swappiness(201);

    /// A value from 0 to 201; `None` for others.
    pub const fn new(value: u8) -> Option<Swappiness> {
        if value <= Self::ANON_ONLY.0 { Some(Swappiness(value)) } else { None }
    }

    /// The value, 0…201.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether reclaim may take pages of this kind.
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
