//! Numbers of memcgs.

use crate::folio::{FolioId, FolioTable};

/// Number of a memcg; it fits the 20 bits of a shadow word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemcgId(pub u32);

impl MemcgId {
    /// The root, the ancestor of all memcgs.
    pub const ROOT: MemcgId = MemcgId(0);

    pub(crate) const BITS: u32 = crate::folio::MEMCG_BITS;

    pub(crate) const NONE: u32 = u32::MAX;
}

impl FolioTable {
    /// The memcg that a folio is charged to.
    #[inline]
    pub(crate) fn memcg_of(&self, folio: FolioId) -> MemcgId {
        MemcgId(self.memcg(folio))
    }
}
