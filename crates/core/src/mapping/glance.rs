//! The shortest way to a cached page: one word says where its bytes are, and whether they are still
//! the same.
//!
//! ```text
//! directory ──► leaf ──► slot word: folio, uptodate, sequence of the content
//!                          copy the bytes out of the folio's frame
//! directory still names the leaf, the slot still has the word: the copy is whole, and of that page
//! ```
//!
//! It is what a page-table entry is to the processor: the state word of the folio, which would be
//! one more cache miss, is not looked at. Whoever changes bytes takes `uptodate` from the slot
//! before, and puts a new sequence into it afterwards. The sequence is the low 26 bits of the
//! folio's version, which also changes whenever the frame gets another page; a copy is mistaken for
//! whole if exactly 2^26 changes of that frame happen while it is made.
//!
//! # Locking
//!
//! None. The directory is looked at before the slot: at that moment the leaf belonged to this
//! mapping, and its slot had the word before and after.

use super::leaf::{LEAF_SLOTS, LeafPool};
use super::slot::{AtomicSlot, Slot};
use super::{DIRECTORY_LEAVES, DIRECTORY_PAGES, Mapping, TABLE_PAGES};
use crate::folio::FolioId;
use crate::sync::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, fence};

/// A page as its slot tells.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    entry: &'a AtomicU32,
    leaf: u32,
    slot: &'a AtomicSlot,
    word: Slot,
    young_table: bool,
}

impl Glance<'_> {
    /// It is cached, and its bytes may be copied out.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.word.is_readable()
    }

    /// Where its bytes are, if it is readable.
    #[inline]
    pub fn folio(&self) -> FolioId {
        self.word.folio_number()
    }

    /// It is readable, and a mapped access would find every bit set that it sets: that of the
    /// entry, and that of the page table.
    #[inline]
    pub fn is_young(&self) -> bool {
        self.young_table && self.word.is_young()
    }

    /// Reaching this page asks for the next readahead window.
    #[inline]
    pub fn readahead(&self) -> bool {
        self.word.readahead()
    }

    /// The content that was seen: low bits of the folio's version.
    #[inline]
    pub(crate) fn sequence(&self) -> u32 {
        self.word.sequence()
    }

    /// Whether what was copied since is that page, whole.
    #[inline]
    pub fn still(&self) -> bool {
        fence(Acquire);
        self.entry.load(Acquire) == self.leaf && self.slot.load().same_content(self.word)
    }
}

impl Mapping {
    /// Looks at a page's slot. `None`: there is none.
    #[inline]
    pub(crate) fn glance<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> Option<Glance<'a>> {
        let directory = self.directory(index)?;
        let entry = &directory.leaves[index as usize / LEAF_SLOTS % DIRECTORY_LEAVES];
        let leaf = entry.load(Acquire);
        let slot = &leaves.get_entry(leaf)?.slots[index as usize % LEAF_SLOTS];
        let word = slot.load();
        let table = index % DIRECTORY_PAGES / TABLE_PAGES;
        let young_table = directory.young_tables.load(Relaxed) >> table & 1 != 0;
        Some(Glance { entry, leaf, slot, word, young_table })
    }
}
