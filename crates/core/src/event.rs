//! What happened: the tracepoints of the core.
//!
//! What becomes of pages (they come, come back and leave) and what reclaim as a whole does is told
//! to every host. What happens to folios on the way is told only to a host that asks for it: for
//! any other, [`Host::observes`](crate::Host::observes) is a constant, and nothing is left of it.

use crate::folio::{FolioId, Tier};
use crate::lru::{Distance, Shadow};
use crate::mapping::MappingId;
use crate::memcg::MemcgId;
use crate::pageout::Verdict;

/// One thing that happened to a page or to a memcg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A page entered the cache.
    Inserted {
        /// Which page.
        page: (MappingId, u32),
        /// The folio it got.
        folio: FolioId,
        /// Who pays for it.
        memcg: MemcgId,
    },
    /// Reclaim evicted a page.
    Evicted {
        /// Which page.
        page: (MappingId, u32),
        /// The folio that it had.
        folio: FolioId,
        /// Whose it was.
        memcg: MemcgId,
        /// What is remembered of it.
        shadow: Shadow,
    },
    /// A page that had been evicted is back.
    Refault {
        /// The folio it got.
        folio: FolioId,
        /// Who pays for it.
        memcg: MemcgId,
        /// What was remembered of it.
        shadow: Shadow,
        /// How long ago it was evicted. `None`: by the clock of a memcg that was removed since.
        distance: Option<Distance>,
        /// That is within reach. Classic: it is activated.
        recent: bool,
    },
    /// A new youngest generation was opened.
    Aged {
        /// Whose.
        memcg: MemcgId,
        /// Its number.
        max_seq: u64,
    },
    /// A reclaim effort ended.
    Effort {
        /// Whose pages it was to reclaim.
        target: MemcgId,
        /// Pages looked at.
        scanned: u64,
        /// Pages reclaimed.
        reclaimed: u64,
        /// The last priority.
        priority: u8,
    },
    /// A folio came to a list. Only for hosts that observe, as all that follow.
    Listed {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
        /// Where it is now.
        list: List,
        /// From where it came.
        from: ListedFrom,
    },
    /// A folio was found young, and got the label of the youngest generation; it stays on its list
    /// until that is sorted.
    Promoted {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
        /// The generation.
        seq: u64,
        /// Who looked at its accessed bit.
        by: FoundBy,
    },
    /// Eviction met a folio at the old end, and moved it on instead of isolating it.
    Sorted {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
        /// The generation to which it was moved.
        seq: u64,
        /// Why it was not isolated.
        why: Sorted,
    },
    /// A folio was taken off its list, to be judged.
    Isolated {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
    },
    /// An isolated folio was judged, perhaps not for the last time.
    Judged {
        /// Which folio.
        folio: FolioId,
        /// What is to be done with it.
        verdict: Verdict,
    },
}

/// Where a folio is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum List {
    /// In the generation of this number.
    Generation(u64),
    /// Classic LRU: on the active list.
    Active,
    /// Classic LRU: on the inactive list.
    Inactive,
    /// Policy `ranked`: with the newcomers.
    Newcomers,
    /// Policy `ranked`: on the main list.
    Main,
    /// With those that reclaim must not take.
    Unevictable,
}

/// From where a folio came to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedFrom {
    /// It is new: from the batch of arrivals.
    Arrivals,
    /// Its write-back ended after reclaim had met it: to be evicted next.
    Rotation,
    /// It was advised to be unneeded.
    Deactivation,
    /// It was found young beside a folio that was judged; classic LRU: it was accessed twice;
    /// policy `ranked`: the same, which the scan of the newcomers found.
    Activation,
    /// It was isolated, and is put back.
    Isolation,
}

/// Who found a folio young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// A walk of page tables.
    Walk,
    /// A look around a folio that was judged.
    LookAround,
}

/// Why a folio was moved on instead of being isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// A walk had given it the label of another generation.
    Relabelled,
    /// Pages of its tier return too often.
    Protected(Tier),
    /// Its count of accesses is at its end.
    Saturated,
    /// It is dirty or being written.
    Dirty,
}
