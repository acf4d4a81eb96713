//! Events: the tracepoints of the core.
//!
//! Every host receives the events of pages (inserted, evicted, refaulted) and of reclaim as a
//! whole. Events of single folios go only to hosts whose [`Host::observes`](crate::Host::observes)
//! is true; for the others it is a constant, and the compiler removes the code.

use crate::folio::{FolioId, Kind, Tier};
use crate::lru::{Distance, Shadow};
use crate::mapping::MappingId;
use crate::memcg::MemcgId;
use crate::pageout::Verdict;

/// An event of a page or of a memcg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Event {
    /// A page entered the cache.
    Inserted {
        /// The page.
        page: (MappingId, u32),
        /// The folio it got.
        folio: FolioId,
        /// The memcg that pays for it.
        memcg: MemcgId,
    },
    /// Reclaim evicted a page.
    Evicted {
        /// The page.
        page: (MappingId, u32),
        /// The folio it had.
        folio: FolioId,
        /// The memcg it was charged to.
        memcg: MemcgId,
        /// The shadow it left.
        shadow: Shadow,
    },
    /// An evicted page returned.
    Refault {
        /// The folio it got.
        folio: FolioId,
        /// The memcg that pays for it.
        memcg: MemcgId,
        /// The shadow it had left.
        shadow: Shadow,
        /// Refault distance. `None`: the clock belonged to a memcg that has been removed.
        distance: Option<Distance>,
        /// Whether the distance is short enough to count. The classic LRU then activates the page.
        recent: bool,
    },
    /// A new youngest generation was opened.
    Aged {
        /// The memcg.
        memcg: MemcgId,
        /// The new youngest generation.
        max_seq: u64,
    },
    /// A reclaim effort ended.
    Effort {
        /// The memcg that it reclaimed from.
        target: MemcgId,
        /// Pages scanned.
        scanned: u64,
        /// Pages reclaimed.
        reclaimed: u64,
        /// The last priority.
        priority: u8,
        /// Whether the allocating thread made it because the node is short of memory. Otherwise it
        /// is for a limit or a request.
        direct: bool,
    },
    /// Background reclaim began to reclaim.
    BackgroundWoke,
    /// Background reclaim went to sleep.
    BackgroundSleeps,
    /// A folio was put on a list. This and the following events go only to hosts that observe.
    Listed {
        /// The folio.
        folio: FolioId,
        /// The memcg it is charged to.
        memcg: MemcgId,
        /// The list.
        list: List,
        /// The place it came from.
        from: ListedFrom,
    },
    /// A folio was found young and got the label of the youngest generation. It stays on its list
    /// until eviction sorts it.
    Promoted {
        /// The folio.
        folio: FolioId,
        /// The memcg it is charged to.
        memcg: MemcgId,
        /// The generation.
        seq: u64,
        /// The scan that read its accessed bit.
        by: FoundBy,
    },
    /// Eviction met a folio at the old end and moved it on instead of isolating it.
    Sorted {
        /// The folio.
        folio: FolioId,
        /// The memcg it is charged to.
        memcg: MemcgId,
        /// The generation it was moved to.
        seq: u64,
        /// The reason why it was not isolated.
        why: Sorted,
    },
    /// Classic LRU: the active list was shrunk.
    Deactivated {
        /// The memcg.
        memcg: MemcgId,
        /// The kind of the list.
        kind: Kind,
        /// Folios that were taken off the list.
        taken: u64,
        /// Those of them that go to the inactive list.
        deactivated: u64,
    },
    /// A clean page of a file became dirty.
    Dirtied {
        /// The folio.
        folio: FolioId,
        /// The memcg it is charged to.
        memcg: MemcgId,
    },
    /// A page left memory without reclaim: it was truncated or dropped, or its owner was killed.
    Removed {
        /// The folio it had.
        folio: FolioId,
        /// The memcg it was charged to.
        memcg: MemcgId,
    },
    /// A folio was taken off its list, to be examined.
    Isolated {
        /// The folio.
        folio: FolioId,
        /// The memcg it is charged to.
        memcg: MemcgId,
    },
    /// An isolated folio was examined, perhaps not for the last time.
    Judged {
        /// The folio.
        folio: FolioId,
        /// The verdict.
        verdict: Verdict,
    },
}

/// A list that a folio is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum List {
    /// The generation of this number.
    Generation(u64),
    /// Classic LRU: the active list.
    Active,
    /// Classic LRU: the inactive list.
    Inactive,
    /// Policy `ranked`: the newcomers.
    Newcomers,
    /// Policy `ranked`: the main list.
    Main,
    /// The unevictable list.
    Unevictable,
}

/// The place that a folio comes from when it is put on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum ListedFrom {
    /// The batch of arrivals: the folio is new.
    Arrivals,
    /// Rotation: its writeback ended after reclaim had met it, and it is to be evicted next.
    Rotation,
    /// Advice that it is not needed.
    Deactivation,
    /// Activation: multi-gen, found young beside an examined folio; classic, accessed twice;
    /// `ranked`, found accessed twice by the scan of the newcomers.
    Activation,
    /// Isolation: the folio was not freed and is put back.
    Isolation,
}

/// The scan that found a folio young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum FoundBy {
    /// A page-table walk.
    Walk,
    /// A look-around, beside a folio under examination.
    LookAround,
}

/// The reason why a folio was moved on instead of being isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Sorted {
    /// A walk has relabelled it.
    Relabelled,
    /// Protection: pages of its tier refault too often.
    Protected(Tier),
    /// Its access count is saturated.
    Saturated,
    /// It is dirty or being written.
    Dirty,
}
