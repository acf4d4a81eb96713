//! The number of a mapping, and how many pages the parts of its index cover.

use crate::folio::{FolioId, FolioTable};

/// Number of a mapping; reused after the mapping is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MappingId(pub u32);

impl FolioTable {
    /// The mapping of a folio and its index in it.
    #[inline]
    pub(crate) fn page_of(&self, folio: FolioId) -> (MappingId, u32) {
        let (mapping, index) = self.page(folio);
        (MappingId(mapping), index)
    }

    #[inline]
    pub(crate) fn mapping_of(&self, folio: FolioId) -> MappingId {
        self.page_of(folio).0
    }
}

/// Pages under one page table: the unit of walks and Bloom filters.
pub const TABLE_PAGES: u32 = 512;

/// Pages under one leaf; as many as in the kernel's index nodes, so that shadow limits carry over.
pub const LEAF_SLOTS: usize = 64;

/// Leaves that a directory names.
pub(crate) const DIRECTORY_LEAVES: usize = 512;
/// Pages under one directory.
pub(crate) const DIRECTORY_PAGES: u32 = (DIRECTORY_LEAVES * LEAF_SLOTS) as u32;

/// The most pages of a mapping: 16 TiB.
pub(crate) const MAPPING_PAGES_MAX: u64 = 1 << u32::BITS;

/// Mark of a leaf entry: the leaf's slots are in the mapping's range.
pub(super) const IN_RANGE: u32 = 1 << 31;

const _: () = assert!(DIRECTORY_PAGES / TABLE_PAGES == u64::BITS);
