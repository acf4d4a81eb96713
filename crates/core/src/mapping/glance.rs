//! Glance: the shortest way to a cached page. One word says where its bytes are and whether they
//! are unchanged.
//!
//! ```text
//! directory ──► leaf ──► slot word: folio, uptodate, version of the content
//!                          copy the bytes out of the folio's frame
//! the mapping still names the directory, the directory the leaf, and the slot has the same
//! word: the copy is whole, and of that page
//! ```
//!
//! A glance does for a reader what a page-table entry does for the processor: the bytes do not wait
//! for the folio's state word, which would be one more cache miss on the way to them. A writer
//! clears `uptodate` in the slot before it changes bytes, and stores the folio's new version
//! afterwards, which also changes whenever the frame gets another page. A torn copy would go
//! unnoticed only after exactly 2^24 changes of the frame during the copy.
//!
//! # Locking
//!
//! None. Other mappings reuse directories and leaves, so both are checked after the copy. The first
//! entries of a mapping's table of directories are part of the mapping: with the check, a hit below
//! 4 GiB takes no more loads than through a table elsewhere.

use super::Mapping;
use super::layout::{DIRECTORY_LEAVES, DIRECTORY_PAGES, LEAF_SLOTS, TABLE_PAGES};
use super::leaf::LeafPool;
use super::range::SlotRange;
use super::slot::{AtomicSlot, Slot};
use crate::folio::FolioId;
use crate::sync::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, fence};

/// A page as its slot describes it.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    slot: &'a AtomicSlot,
    word: Slot,
    /// The way to a slot that other mappings may reuse.
    way: Option<Way<'a>>,
}

/// The index entries that led to a slot, with what they said.
#[derive(Clone, Copy, Debug)]
struct Way<'a> {
    place: &'a AtomicU32,
    directory: u32,
    entry: &'a AtomicU32,
    leaf: u32,
}

impl<'a> Glance<'a> {
    /// Looks at a page's slot in a mapping's range. `None`: no readable page has its slot there.
    #[inline(always)]
    pub fn in_range(range: &'a SlotRange, index: u32) -> Option<Glance<'a>> {
        let slot = range.slot(index)?;
        let word = slot.load();
        word.is_readable().then_some(Glance { slot, word, way: None })
    }

    /// Whether the page is cached and its bytes may be copied out.
    #[inline(always)]
    pub fn is_readable(&self) -> bool {
        self.word.is_readable()
    }

    /// The folio with the bytes, if the page is readable.
    #[inline(always)]
    pub fn folio(&self) -> FolioId {
        self.word.folio_number()
    }

    /// Whether the page carries the readahead mark: an access to it starts the next window.
    #[inline(always)]
    pub fn readahead(&self) -> bool {
        self.word.readahead()
    }

    /// The folio's version when the content seen was marked as valid.
    #[inline(always)]
    pub(crate) fn version(&self) -> u32 {
        self.word.version()
    }

    /// Whether the bytes copied since are that page, unchanged. May be `false` for an unchanged
    /// page whose accessed bit was set or cleared meanwhile.
    #[inline(always)]
    pub fn still(&self) -> bool {
        fence(Acquire);
        let is_way_there =
            |way: &Way<'_>| way.place.load(Acquire) == way.directory && way.entry.load(Acquire) == way.leaf;
        self.way.as_ref().is_none_or(is_way_there) && self.slot.load() == self.word
    }
}

impl Mapping {
    /// Looks at a page's slot. `None`: the index has no leaf for it.
    #[inline(always)]
    pub(crate) fn glance<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> Option<Glance<'a>> {
        let in_range = self.range().and_then(|range| Glance::in_range(range, index));
        in_range.or_else(|| self.glance_in_pool(leaves, index))
    }

    #[inline(always)]
    pub(crate) fn glance_in_pool<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> Option<Glance<'a>> {
        let place = self.directories.get(index / DIRECTORY_PAGES)?;
        let number = place.load(Acquire);
        let directory = leaves.directories.get_entry(number)?;
        let entry = &directory.leaves[index as usize / LEAF_SLOTS % DIRECTORY_LEAVES];
        let leaf = entry.load(Acquire);
        let slot = self.slot_of_entry(leaves, index, leaf)?;
        let word = slot.load();
        Some(Glance { slot, word, way: Some(Way { place, directory: number, entry, leaf }) })
    }

    /// Whether the page seen is readable and a mapped access to it would change nothing: the
    /// accessed bits of the entry and of the page table are set.
    pub(crate) fn is_young(&self, leaves: &LeafPool, index: u32, seen: &Glance<'_>) -> bool {
        let in_range = self.range().and_then(|range| range.is_young_table(index));
        if seen.way.is_none() {
            // The last page is never settled if the file ends inside.
            let is_cut = || !self.has_whole_page(index.into());
            return seen.word.is_settled() || seen.word.is_young() && is_cut() && in_range == Some(true);
        }
        seen.word.is_young() && in_range.unwrap_or_else(|| self.is_young_table(leaves, index))
    }

    /// Whether the accessed bit of the page table that covers `index` is set. The table's bit is in
    /// the directory: no range of slots covers the page.
    fn is_young_table(&self, leaves: &LeafPool, index: u32) -> bool {
        let table = index % DIRECTORY_PAGES / TABLE_PAGES;
        let directory = self.directory(leaves, index);
        directory.is_some_and(|directory| directory.young_tables.load(Relaxed) >> table & 1 != 0)
    }
}
