//! Ranges: the slots of a mapping side by side, so that a mapped access finds one by an addition.
//!
//! ```text
//! pooled leaf   directory ──► leaf number ──► 64 slots of the pool, reused by other mappings
//! range leaf    directory ──► leaf number ──► its counts and its payer
//!               base + page number ──► slot: of this page for as long as the mapping exists
//! ```
//!
//! A host that maps a file may give its mapping a range, in zeroed memory that the host pays for. A
//! leaf that is created from then on, for pages of the range, has its slots there; its directory
//! entry says so ([`super::layout::IN_RANGE`]). Everything else about a leaf is as in the pool:
//! it is reserved, counted, charged, listed for its shadows and freed at the same moments. So
//! ranges change no decision. Leaves that exist already stay in the pool until they are freed.
//!
//! # Locking
//!
//! None. The slots of a range never belong to another mapping: a reader that finds a slot unchanged
//! after its copy needs no second look at directories. The upper-level accessed bits of its pages
//! are bytes here, instead of bits of the directory.
//!
//! A hit does not look at those bytes either. It takes a page only if its slot is settled, and the
//! thread that clears the byte of a page table unsettles the slots of its pages:
//!
//! - an access sets the slot's accessed bit, settles the slot, and then sets the byte if it is
//!   clear;
//! - a walk clears the byte, and then unsettles the slots if the byte was set.
//!
//! Sequentially consistent fences lie between the two steps of each. So the access sees the byte
//! clear, or the walk sees the slot settled: no slot stays settled while its byte is clear.
//!
//! Nor does a hit look at the length of the file: only slots of whole pages are settled. A
//! truncation sets the number of whole pages ([`super::Mapping::set_whole_pages`]) and then
//! unsettles the slots after them; an access settles its slot and then looks at that number again,
//! with fences in the same way. In between, other threads may find the slot settled. So the access
//! settles only the content that the page had when it looked at the number before, and a truncation
//! unsettles a page while it changes the page's content ([`crate::Core::end_cut`]).

use super::layout::{LEAF_SLOTS, TABLE_PAGES};
use super::slot::{AtomicSlot, Slot};
use crate::folio::FolioId;
use crate::sync::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, fence};

/// The slots of the first pages of a mapping.
#[derive(Debug)]
pub struct SlotRange {
    slots: Box<[AtomicSlot]>,
    /// Upper-level accessed bits, one per page table.
    young_tables: Box<[AtomicBool]>,
}

/// A page whose slot said that it is readable, and that a mapped access to it changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct SettledPage<'a> {
    slot: &'a AtomicSlot,
    word: Slot,
}

impl SlotRange {
    /// A range of empty slots. Slots after the last multiple of 64 are not used.
    pub fn new(slots: Box<[AtomicSlot]>) -> SlotRange {
        let tables = slots.len().div_ceil(TABLE_PAGES as usize);
        SlotRange { slots, young_tables: (0..tables).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Bytes of a range of so many pages.
    pub fn bytes(pages: u64) -> u64 {
        let slots = pages.next_multiple_of(LEAF_SLOTS as u64);
        slots * size_of::<AtomicSlot>() as u64 + slots.div_ceil(u64::from(TABLE_PAGES))
    }

    /// Number of slots for a range of so many pages.
    pub fn slots(pages: u64) -> u64 {
        pages.next_multiple_of(LEAF_SLOTS as u64)
    }

    /// The slot of a page. `None`: it lies outside. Slots of an incomplete leaf at the end stay
    /// empty.
    #[inline(always)]
    pub(super) fn slot(&self, index: u32) -> Option<&AtomicSlot> {
        self.slots.get(index as usize)
    }

    /// The page, if it is readable, lies wholly inside the file, and a mapped access to it changes
    /// nothing.
    #[inline(always)]
    pub fn settled(&self, index: u64) -> Option<SettledPage<'_>> {
        let slot = self.slots.get(index as usize)?;
        let word = slot.load();
        word.is_settled().then_some(SettledPage { slot, word })
    }

    /// The addresses of the slots: a hint for the host, which may back them with larger pages.
    pub fn addresses(&self) -> std::ops::Range<*const u8> {
        let slots = self.slots.as_ptr_range();
        slots.start.cast()..slots.end.cast()
    }

    /// The slots of the leaf that contains a page. `None`: the leaf lies partly or wholly outside.
    #[inline]
    pub(super) fn leaf(&self, index: u32) -> Option<&[AtomicSlot; LEAF_SLOTS]> {
        self.slots.as_chunks().0.get(index as usize / LEAF_SLOTS)
    }

    /// Settles the slot of a page that was accessed through a mapping, if `is_whole` says that the
    /// page lies inside the file. The caller then sets the accessed bit of the page table, and
    /// looks at the length again. `true`: it was not settled before.
    pub(super) fn settle(&self, index: u32, is_whole: impl Fn() -> bool) -> bool {
        let is_new = self.slots.get(index as usize).is_some_and(|slot| slot.settle(is_whole));
        if is_new {
            fence(SeqCst);
        }
        is_new
    }

    /// Takes [`Self::settle`] back for the pages from `first` up to `end`, as far as the range
    /// reaches.
    pub(crate) fn unsettle_all(&self, first: u64, end: u64) {
        let within = |page: u64| page.min(self.slots.len() as u64) as usize;
        self.slots[within(first)..within(end)].iter().for_each(AtomicSlot::unsettle);
    }

    /// Whether the accessed bit of the page table that covers a page is set. `None`: the range does
    /// not cover the page.
    pub(super) fn is_young_table(&self, index: u32) -> Option<bool> {
        Some(self.young_tables.get((index / TABLE_PAGES) as usize)?.load(Relaxed))
    }

    /// Sets the accessed bit of the page table that covers a page. `true`: it was clear. `None`:
    /// the range does not cover the page.
    pub(super) fn touch_table(&self, index: u32) -> Option<bool> {
        let young = self.young_tables.get((index / TABLE_PAGES) as usize)?;
        Some(!young.load(Relaxed) && !young.swap(true, Relaxed))
    }

    /// Tests and clears the accessed bit of the page table that covers a page.
    pub(super) fn clear_young_table(&self, index: u32) -> bool {
        let table = (index / TABLE_PAGES) as usize;
        let Some(young) = self.young_tables.get(table) else { return false };
        if !young.load(Relaxed) || !young.swap(false, Relaxed) {
            return false;
        }
        fence(SeqCst);
        let pages = u64::from(TABLE_PAGES);
        self.unsettle_all(table as u64 * pages, (table as u64 + 1) * pages);
        true
    }
}

impl SettledPage<'_> {
    /// The folio with the bytes.
    #[inline(always)]
    pub fn folio(&self) -> FolioId {
        self.word.folio_number()
    }

    /// The folio's version when the content seen was marked as valid.
    #[inline(always)]
    pub(crate) fn version(&self) -> u32 {
        self.word.version()
    }

    /// Whether the bytes copied since are that page, unchanged. May be `false` for an unchanged
    /// page whose accessed bit was cleared meanwhile.
    #[inline(always)]
    pub fn still(&self) -> bool {
        fence(Acquire);
        self.slot.load() == self.word
    }
}
