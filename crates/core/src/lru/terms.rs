//! Terms between reclaim and the policies.

use crate::folio::Kind;

/// What reclaim as a whole does under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Pages have generations with a birth: memcgs can be ordered by them (the kernel's memcg LRU),
    /// and be too young to give.
    pub(crate) has_generations: bool,
    /// Batches of activated folios are as small as those of new ones may be configured.
    pub(crate) activates_in_arrival_batches: bool,
    /// Reclaim of the whole node with a large goal starts at the priority that gives about that
    /// much.
    pub(crate) starts_by_size: bool,
    /// Background reclaim goes on to the end of a pass when its goal is reached, where the tree is
    /// walked.
    pub(crate) finishes_passes: bool,
    /// Reclaim of the whole node waits where pages that are dirty or being written are in its way.
    pub(crate) waits_for_writeback: bool,
}

/// How willing reclaim is to take anonymous pages: 0 only file pages, 1…200 both, 201 only
/// anonymous ones.
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
