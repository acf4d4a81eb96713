//! What happened: the tracepoints of the core.

use crate::folio::FolioId;
use crate::mapping::MappingId;
use crate::memcg::MemcgId;
use crate::workingset::Shadow;

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
        /// Evicted less than four generations ago. Classic: within reach, and activated.
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
}
