//! Mappings: the cached pages and shadows of one file, by page index.
//!
//! ```text
//! page index  31 ................ 15 14 ........ 6 5 ...... 0
//!             |  directory          |  leaf       |  slot   |
//! ```
//!
//! A directory covers 32,768 pages (128 MiB of file) and takes 2 KiB, 1/65,536 of the bytes it
//! covers. Directories and leaves belong to pools, and other mappings reuse them. A mapping finds
//! its directories by number, in a table of segments whose lengths double, so that small files stay
//! small and readers need no lock.
//!
//! A page table of the kernel (512 entries) is eight consecutive leaves here; its upper-level
//! accessed bit is a bit of the directory.
//!
//! # Locking
//!
//! `tree` serialises every change of the folio or shadow in a slot, and the counts of leaves.
//! Readers take no lock: they find a slot, use it, and check afterwards that the directory still
//! names the same leaf.

mod directory;
mod glance;
mod layout;
mod leaf;
mod numbers;
mod range;
mod slot;

pub use glance::Glance;
pub use layout::{LEAF_SLOTS, MappingId, TABLE_PAGES};
pub(crate) use leaf::{Counts, Leaf, LeafId, LeafPool};
pub use range::{SettledPage, SlotRange};
pub use slot::{AtomicSlot, Slot};

use crate::folio::{FolioId, Kind};
use crate::memcg::MemcgId;
use crate::segments::Words;
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, Ordering::SeqCst, fence,
};
use directory::{DIRECTORY_BYTES, Directory};
use layout::{DIRECTORY_LEAVES, DIRECTORY_PAGES, IN_RANGE};
use leaf::LEAF_BYTES;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// 2^17 directories are 2^32 pages.
const DIRECTORY_SEGMENTS: usize = 12;

/// The expected order of accesses (fadvise, madvise).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Advice {
    /// No advice: readahead adapts, mapped accesses count.
    #[default]
    Normal,
    /// In order: larger readahead; mapped accesses do not protect.
    Sequential,
    /// At random: no readahead; mapped accesses do not protect.
    Random,
}

/// Names a file among all that had shadows outside of the index since the start
/// ([`crate::lru::CompactShadows`]), and changes when these are to be forgotten. 0: it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShadowEra(pub(crate) u32);

/// State under the mapping lock.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Indexes of dirty pages that are not being written.
    pub(crate) dirty: BTreeSet<u32>,
    /// Set when the mapping is being closed: insertions fail.
    pub(crate) closed: bool,
    /// The file's shadows outside of the index.
    pub(crate) shadow_era: ShadowEra,
    /// Bytes of the table of directories, with the numbers of the memcgs that pay for them.
    table_payers: Vec<(u32, u64)>,
}

/// A mapping: the pages of one file.
#[derive(Debug)]
pub struct Mapping {
    id: MappingId,
    kind: Kind,
    /// Directory number + 1; 0 for no directory.
    directories: Words<DIRECTORY_SEGMENTS>,
    range: OnceLock<Arc<SlotRange>>,
    folios: AtomicU32,
    mapped_pages: AtomicU64,
    /// Pages that lie wholly inside the file, at most `u32::MAX`.
    whole_pages: AtomicU32,
    recency: AtomicBool,
    tree: Mutex<Tree>,
}

/// A slot found without a lock: its place and its content.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The directory entry of its leaf.
    leaf: u32,
    /// The content of the slot when it was found.
    pub slot: Slot,
}

/// The reason why a folio could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// The slot holds another folio: use that one.
    Occupied,
    /// Another thread freed a part of the index that was not paid for: look the page up again.
    Unpaid,
    /// The mapping was closed.
    Closed,
}

/// Content of a slot before a folio was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) shadow: Option<u64>,
    /// `Some` if the leaf held only shadows: the memcg that listed it.
    pub(crate) only_shadows_of: Option<MemcgId>,
    /// Bytes of the index that were added.
    pub(crate) added_bytes: u64,
}

/// A leaf that now holds only shadows, for the list that limits such leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShadowLeaf {
    pub(crate) mapping: MappingId,
    leaf_index: u32,
    /// The leaf's place in the pool, because another leaf may have come to the same stamp.
    id: LeafId,
    stamp: u32,
}

impl Mapping {
    pub(crate) fn new(id: MappingId, kind: Kind) -> Mapping {
        Mapping {
            id,
            kind,
            directories: Words::new(),
            range: OnceLock::new(),
            folios: AtomicU32::new(0),
            mapped_pages: AtomicU64::new(0),
            whole_pages: AtomicU32::new(0),
            recency: AtomicBool::new(true),
            tree: Mutex::new(Tree::default()),
        }
    }

    /// The mapping's number.
    pub fn id(&self) -> MappingId {
        self.id
    }

    /// The backing of its folios.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Cached pages.
    pub fn folios(&self) -> u32 {
        self.folios.load(Relaxed)
    }

    /// Bytes of its table of directories.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.directories.bytes()
    }

    /// Bytes of the index that inserting a page would add. Without the mapping lock, other threads
    /// may add or free some.
    pub(crate) fn missing_bytes(&self, leaves: &LeafPool, index: u32) -> u64 {
        match self.directory(leaves, index) {
            None => self.directories.growth_bytes(index / DIRECTORY_PAGES) + DIRECTORY_BYTES + LEAF_BYTES,
            Some(_) if self.leaf_id(leaves, index).is_none() => LEAF_BYTES,
            Some(_) => 0,
        }
    }

    /// Pages covered by page tables: the file's length at the last `map`. 0: not mapped.
    pub fn mapped_pages(&self) -> u64 {
        self.mapped_pages.load(Relaxed)
    }

    /// Whether mapped accesses predict further ones: not after advice that reads are sequential or
    /// random, and not for files that are read once ([book: access#fault-placement]).
    pub fn has_recency(&self) -> bool {
        self.recency.load(Relaxed)
    }

    /// Sets whether mapped accesses count.
    pub fn set_recency(&self, recency: bool) {
        self.recency.store(recency, Relaxed);
    }

    #[inline]
    fn directory<'a>(&self, leaves: &'a LeafPool, index: u32) -> Option<&'a Directory> {
        let place = self.directories.get(index / DIRECTORY_PAGES)?;
        leaves.directories.get_entry(place.load(Acquire))
    }

    /// Whether the page has a directory. Without the mapping lock, it may be freed at any time.
    pub(crate) fn has_directory(&self, index: u32) -> bool {
        self.directories.get(index / DIRECTORY_PAGES).is_some_and(|place| place.load(Acquire) != 0)
    }

    /// Gives the mapping a range of slots, if it has none. Returns its range.
    pub fn set_range(&self, slots: impl FnOnce() -> Box<[AtomicSlot]>) -> &Arc<SlotRange> {
        self.range.get_or_init(|| Arc::new(SlotRange::new(slots())))
    }

    /// Its range of slots, if it has one.
    #[inline]
    pub fn range(&self) -> Option<&Arc<SlotRange>> {
        self.range.get()
    }

    /// Whether a page lies wholly inside the file, as [`Self::set_whole_pages`] said last.
    #[inline(always)]
    pub fn has_whole_page(&self, page: u64) -> bool {
        page < u64::from(self.whole_pages.load(Relaxed))
    }

    /// Notes that the file was truncated or extended and has so many whole pages now. From the
    /// return on, no slot after them is settled.
    pub fn set_whole_pages(&self, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let before = self.whole_pages.swap(pages, SeqCst);
        if pages < before
            && let Some(range) = self.range.get()
        {
            fence(SeqCst);
            range.unsettle_all(pages.into(), before.into());
        }
    }

    /// Notes that the file has at least so many whole pages, after a write at its end.
    pub fn grow_whole_pages(&self, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        if self.whole_pages.load(Relaxed) < pages {
            self.whole_pages.fetch_max(pages, SeqCst);
        }
    }

    /// The entry of a page's leaf in its directory; 0 for no leaf.
    #[inline]
    fn leaf_entry(&self, leaves: &LeafPool, index: u32) -> u32 {
        let Some(directory) = self.directory(leaves, index) else { return 0 };
        directory.leaves[index as usize / LEAF_SLOTS % DIRECTORY_LEAVES].load(Acquire)
    }

    #[inline]
    fn leaf_id(&self, leaves: &LeafPool, index: u32) -> Option<LeafId> {
        LeafId::of_entry(self.leaf_entry(leaves, index))
    }

    /// The leaf of a page by its directory entry.
    #[inline]
    fn leaf_of_entry<'a>(&'a self, leaves: &'a LeafPool, index: u32, entry: u32) -> Option<Leaf<'a>> {
        let leaf = leaves.get(LeafId::of_entry(entry)?);
        if entry & IN_RANGE == 0 {
            return Some(leaf);
        }
        // `None` only for an entry of another mapping, which took over the directory.
        Some(leaf.with_slots(self.range.get()?.leaf(index)?))
    }

    #[inline]
    pub(crate) fn slot<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> Option<&'a AtomicSlot> {
        let leaf = self.leaf_of_entry(leaves, index, self.leaf_entry(leaves, index))?;
        Some(&leaf.slots[index as usize % LEAF_SLOTS])
    }

    /// Finds the slot of a page without a lock. The leaf may belong to another mapping by the time
    /// the result is used: check with [`Self::still_there`].
    #[inline]
    pub(crate) fn find(&self, leaves: &LeafPool, index: u32) -> Option<Found> {
        let leaf = self.leaf_entry(leaves, index);
        let slot = self.leaf_of_entry(leaves, index, leaf)?.slots[index as usize % LEAF_SLOTS].load();
        Some(Found { leaf, slot })
    }

    /// Whether the slot still holds the folio that was found.
    #[inline]
    pub(crate) fn still_there(&self, leaves: &LeafPool, index: u32, found: &Found) -> bool {
        let Some(leaf) = self.leaf_of_entry(leaves, index, found.leaf) else { return false };
        let now = leaf.slots[index as usize % LEAF_SLOTS].load();
        now.folio() == found.slot.folio()
            && now.folio().is_some()
            && self.leaf_entry(leaves, index) == found.leaf
    }

    /// Sets the accessed bit of the page table that covers `index`. `true`: it was clear.
    #[inline]
    pub(crate) fn touch_table(&self, leaves: &LeafPool, index: u32) -> bool {
        let Some(directory) = self.directory(leaves, index) else { return false };
        if let Some(was_clear) = self.range.get().and_then(|range| range.touch_table(index)) {
            return was_clear;
        }
        let bit = 1u64 << (index % DIRECTORY_PAGES / TABLE_PAGES);
        if directory.young_tables.load(Relaxed) & bit != 0 {
            return false;
        }
        directory.young_tables.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Lets further accesses to a page skip [`Self::touch_table`], which the caller calls next, and
    /// skip the length of the file: only whole pages are settled.
    #[inline]
    pub(crate) fn settle(&self, index: u32) {
        if let Some(range) = self.range.get()
            && self.has_whole_page(index.into())
            && range.settle(index)
            && !self.has_whole_page(index.into())
        {
            // A truncation may have looked at the slot before it was settled.
            range.unsettle_all(index.into(), u64::from(index) + 1);
        }
    }

    /// Tests and clears the accessed bit of a page table.
    pub(crate) fn clear_young_table(&self, leaves: &LeafPool, table: u32) -> bool {
        let index = table * TABLE_PAGES;
        let Some(directory) = self.directory(leaves, index) else { return false };
        let bit = 1u64 << (index % DIRECTORY_PAGES / TABLE_PAGES);
        // Set before the mapping got its range.
        let was_young = directory.young_tables.load(Relaxed) & bit != 0
            && directory.young_tables.fetch_and(!bit, Relaxed) & bit != 0;
        self.range.get().is_some_and(|range| range.clear_young_table(index)) || was_young
    }

    /// Number of page tables that cover the mapped pages.
    pub(crate) fn mapped_tables(&self) -> u32 {
        self.mapped_pages().div_ceil(u64::from(TABLE_PAGES)) as u32
    }

    /// The mapped pages of a page table. Empty if it was unmapped after its tables were counted.
    pub(crate) fn pages_of_table(&self, table: u32) -> std::ops::Range<u64> {
        let first = u64::from(table) * u64::from(TABLE_PAGES);
        first..(first + u64::from(TABLE_PAGES)).min(self.mapped_pages()).max(first)
    }

    /// Page tables in `tables` that may have entries, ascending.
    pub(crate) fn tables<'a>(
        &'a self,
        leaves: &'a LeafPool,
        tables: std::ops::Range<u32>,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut next = tables.start;
        std::iter::from_fn(move || {
            while next < tables.end {
                let table = next;
                let index = table * TABLE_PAGES;
                if let Some(directory) = self.directory(leaves, index) {
                    next += 1;
                    let first = index as usize / LEAF_SLOTS % DIRECTORY_LEAVES;
                    let leaves = &directory.leaves[first..first + TABLE_PAGES as usize / LEAF_SLOTS];
                    if leaves.iter().any(|leaf| leaf.load(Relaxed) != 0) {
                        return Some(table);
                    }
                } else {
                    next = self.directories.first_from(index / DIRECTORY_PAGES)? * u64::BITS;
                }
            }
            None
        })
    }

    pub(crate) fn lock<'a>(&'a self, leaves: &'a LeafPool) -> LockedMapping<'a> {
        LockedMapping { mapping: self, leaves, tree: self.tree.lock() }
    }

    /// As [`Self::lock`], unless another thread holds it.
    pub(crate) fn try_lock<'a>(&'a self, leaves: &'a LeafPool) -> Option<LockedMapping<'a>> {
        Some(LockedMapping { mapping: self, leaves, tree: self.tree.try_lock()? })
    }
}

/// A locked mapping: the only place where slots change their folio.
pub(crate) struct LockedMapping<'a> {
    mapping: &'a Mapping,
    leaves: &'a LeafPool,
    pub(crate) tree: MutexGuard<'a, Tree>,
}

impl<'a> LockedMapping<'a> {
    fn leaf(&self, index: u32) -> Option<(LeafId, Leaf<'a>)> {
        let entry = self.mapping.leaf_entry(self.leaves, index);
        Some((LeafId::of_entry(entry)?, self.mapping.leaf_of_entry(self.leaves, index, entry)?))
    }

    pub(crate) fn set_mapped_pages(&mut self, pages: u64) {
        self.mapping.mapped_pages.store(pages, Relaxed);
    }

    pub(crate) fn slot(&self, index: u32) -> Slot {
        self.mapping.slot(self.leaves, index).map_or(Slot::EMPTY, AtomicSlot::load)
    }

    /// Accesses pages of the leaf that begins at `first`, given as bits, through their page-table
    /// entries. Returns the bits of pages without an entry.
    pub(crate) fn touch_mapped(&self, first: u32, pages: u64) -> u64 {
        let Some((_, leaf)) = self.leaf(first) else { return pages };
        let mut without = pages;
        let mut left = pages;
        while left != 0 {
            let at = left.trailing_zeros();
            left &= left - 1;
            without &= !(u64::from(leaf.slots[at as usize].touch_mapped()) << at);
        }
        without
    }

    /// The leaves of `pages`, each with the part of `pages` that lies in it.
    fn parts(&self, pages: std::ops::Range<u64>) -> impl Iterator<Item = (std::ops::Range<u64>, Leaf<'a>)> {
        let leaf_pages = LEAF_SLOTS as u64;
        let leaves = pages.start / leaf_pages..pages.end.div_ceil(leaf_pages);
        leaves.filter_map(move |leaf| {
            let part = pages.start.max(leaf * leaf_pages)..pages.end.min((leaf + 1) * leaf_pages);
            Some((part.clone(), self.leaf(part.start as u32)?.1))
        })
    }

    /// The parts of `pages` that lie in one leaf each, of leaves with at least one cached page for
    /// `each` pages of the part.
    pub(crate) fn leaves_within(
        &self,
        pages: std::ops::Range<u64>,
        each: u64,
    ) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.parts(pages).filter_map(move |(part, leaf)| {
            (u64::from(leaf.counts().folios) * each >= part.end - part.start).then_some(part)
        })
    }

    /// The folios, with their slots, of those given pages whose page-table entry is young.
    pub(crate) fn young_entries(
        &self,
        pages: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (FolioId, &AtomicSlot)> {
        let slots = self.parts(pages).map(|(part, leaf)| {
            let first = part.start as usize % LEAF_SLOTS;
            &leaf.slots[first..first + (part.end - part.start) as usize]
        });
        slots.flatten().filter_map(|slot| {
            let now = slot.load();
            Some((now.folio().filter(|_| now.mapped() && now.accessed())?, slot))
        })
    }

    /// Puts a folio into a slot that is empty or holds a shadow, and returns the former content.
    /// Uses up or gives back the leaf that `cpu` reserved, unless it fails. `payer` has paid for
    /// the objects that this adds to the index, if memcgs pay for it.
    pub(crate) fn insert(
        &mut self,
        cpu: usize,
        index: u32,
        folio: FolioId,
        payer: MemcgId,
    ) -> Result<Before, InsertError> {
        if self.tree.closed {
            return Err(InsertError::Closed);
        }
        let before = self.slot(index);
        if before.folio().is_some() {
            return Err(InsertError::Occupied);
        }
        let (leaf, added_bytes) = self.leaf_or_new(cpu, index, payer);
        let shadow = before.shadow();
        leaf.slots[index as usize % LEAF_SLOTS].replace(Slot::of_folio(folio));
        let mut counts = leaf.counts();
        let only_shadows_of = (counts.only_shadows() && self.keeps_shadows()).then_some(counts.owner);
        if counts.only_shadows() {
            counts.restamp();
        }
        counts.folios += 1;
        counts.shadows -= u8::from(shadow.is_some());
        leaf.set_counts(counts);
        self.count_folios(1);
        Ok(Before { shadow, only_shadows_of, added_bytes })
    }

    /// A plain store suffices: only the lock holder writes the count.
    fn count_folios(&self, change: i32) {
        let folios = &self.mapping.folios;
        folios.store(folios.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// The leaf of a page, created if it is missing, and the bytes that this added.
    fn leaf_or_new(&mut self, cpu: usize, index: u32, payer: MemcgId) -> (Leaf<'a>, u64) {
        let (directory, added) = self.directory_or_new(index, payer);
        let leaves = self.leaves;
        let entry = &directory.leaves[index as usize / LEAF_SLOTS % DIRECTORY_LEAVES];
        let found = entry.load(Acquire);
        if let Some(leaf) = self.mapping.leaf_of_entry(leaves, index, found) {
            leaves.unreserve(Some(cpu));
            return (leaf, added);
        }
        let id = leaves.take();
        if leaves.is_charged {
            leaves.payer(id).store(payer.0, Relaxed);
        }
        leaves.directories.note_leaf(directory);
        let in_range = self.mapping.range.get().is_some_and(|range| range.leaf(index).is_some());
        let new = (id.0 + 1) | if in_range { IN_RANGE } else { 0 };
        entry.store(new, Release);
        let leaf = self.mapping.leaf_of_entry(leaves, index, new).expect("just created");
        (leaf, added + LEAF_BYTES)
    }

    /// Bytes to be paid for before [`Self::directory_or_new`] creates a directory.
    pub(crate) fn directory_growth_bytes(&self, index: u32) -> u64 {
        self.mapping.directories.growth_bytes(index / DIRECTORY_PAGES)
            + self.leaves.directories.growth_bytes()
    }

    /// The directory of a page, created if it is missing, and the bytes that this added. `payer`
    /// has paid for them, if memcgs pay for the index.
    pub(crate) fn directory_or_new(&mut self, index: u32, payer: MemcgId) -> (&'a Directory, u64) {
        let (leaves, mapping) = (self.leaves, self.mapping);
        let (table, number) = (&mapping.directories, index / DIRECTORY_PAGES);
        if let Some(directory) = mapping.directory(leaves, index) {
            return (directory, 0);
        }
        let grown = table.growth_bytes(number);
        if grown > 0 {
            leaves.count_bytes(grown);
        }
        let entry = leaves.directories.take();
        let directory = leaves.directories.get_entry(entry).expect("just taken");
        if leaves.is_charged {
            directory.payer.store(payer.0, Relaxed);
            if grown > 0 {
                self.tree.table_payers.push((payer.0, grown));
            }
        }
        table.get_or_make(number).store(entry, Release);
        (directory, grown + DIRECTORY_BYTES)
    }

    /// Frees the directories without leaves and gives up the claims on the memory of the table,
    /// when the mapping is closed.
    pub(crate) fn close_index(&mut self) {
        let table = &self.mapping.directories;
        let mut at = 0;
        while let Some(number) = table.first_from(at) {
            self.free_directory_if_empty(number * DIRECTORY_PAGES);
            at = number + 1;
        }
        let payers = std::mem::take(&mut self.tree.table_payers);
        payers.into_iter().for_each(|(payer, bytes)| self.leaves.note_freed(payer, bytes));
        self.leaves.forget_bytes(self.mapping.table_bytes());
    }

    /// Frees the directory of a page if it has no leaf.
    pub(crate) fn free_directory_if_empty(&self, index: u32) {
        let pool = &self.leaves.directories;
        let Some(place) = self.mapping.directories.get(index / DIRECTORY_PAGES) else { return };
        let entry = place.load(Relaxed);
        let Some(directory) = pool.get_entry(entry).filter(|directory| pool.is_empty(directory)) else {
            return;
        };
        place.store(0, Release);
        if let Some(range) = self.mapping.range.get() {
            let first = index / DIRECTORY_PAGES * DIRECTORY_PAGES;
            for table in 0..DIRECTORY_PAGES / TABLE_PAGES {
                range.clear_young_table(first + table * TABLE_PAGES);
            }
        }
        if self.leaves.is_charged {
            self.leaves.note_freed(directory.payer.load(Relaxed), DIRECTORY_BYTES);
        }
        pool.give_back(entry);
    }

    /// Calls `heir` with the payer and the bytes of everything in this index, for which memcgs pay.
    /// The payer that it returns pays from now on; `heir` has moved the charge.
    pub(crate) fn change_payers(&mut self, mut heir: impl FnMut(MemcgId, u64) -> MemcgId) {
        let leaves = self.leaves;
        let mut change = |payer: u32, bytes: u64| heir(MemcgId(payer), bytes).0;
        for (payer, bytes) in &mut self.tree.table_payers {
            *payer = change(*payer, *bytes);
        }
        let mut at = 0;
        while let Some(number) = self.mapping.directories.first_from(at) {
            at = number + 1;
            let Some(directory) = self.mapping.directory(leaves, number * DIRECTORY_PAGES) else { continue };
            directory.payer.store(change(directory.payer.load(Relaxed), DIRECTORY_BYTES), Relaxed);
            for entry in &directory.leaves {
                if let Some(leaf) = LeafId::of_entry(entry.load(Acquire)) {
                    let payer = leaves.payer(leaf);
                    payer.store(change(payer.load(Relaxed), LEAF_BYTES), Relaxed);
                }
            }
        }
    }

    /// Whether its leaves hold shadows, which may be dropped. For anonymous memory they hold
    /// entries, which say where in swap a page is and must stay.
    fn keeps_shadows(&self) -> bool {
        self.mapping.kind == Kind::File
    }

    /// Takes `folio` out of its slot and leaves a shadow or nothing. `Err`: the folio is not there.
    /// `Ok(Some)`: the leaf now holds only shadows, and `owner` pays for it.
    pub(crate) fn remove(
        &mut self,
        index: u32,
        folio: FolioId,
        shadow: Option<u64>,
        owner: MemcgId,
    ) -> Result<Option<ShadowLeaf>, NotThere> {
        let Some((id, leaf)) = self.leaf(index) else { return Err(NotThere) };
        let slot = &leaf.slots[index as usize % LEAF_SLOTS];
        if slot.load().folio() != Some(folio) {
            return Err(NotThere);
        }
        slot.replace(shadow.map_or(Slot::EMPTY, Slot::of_shadow));
        let mut counts = leaf.counts();
        counts.folios -= 1;
        counts.shadows += u8::from(shadow.is_some());
        if counts.only_shadows() {
            counts.owner = owner;
            counts.restamp();
        }
        leaf.set_counts(counts);
        self.count_folios(-1);
        if counts.only_shadows() && self.keeps_shadows() {
            let leaf_index = index / LEAF_SLOTS as u32;
            let mapping = self.mapping.id;
            return Ok(Some(ShadowLeaf { mapping, leaf_index, id, stamp: counts.stamp }));
        }
        self.free_if_empty(index, id, counts);
        Ok(None)
    }

    fn free_if_empty(&self, index: u32, id: LeafId, counts: Counts) {
        if counts.folios == 0 && counts.shadows == 0 {
            let directory = self.mapping.directory(self.leaves, index).expect("the leaf was found there");
            directory.leaves[index as usize / LEAF_SLOTS % DIRECTORY_LEAVES].store(0, Release);
            self.leaves.directories.forget_leaf(directory);
            self.leaves.give_back(id);
            if self.leaves.is_charged {
                self.free_directory_if_empty(index);
            }
        }
    }

    /// Drops the shadow of one page. `Some`: it was the last one in a leaf that this memcg paid
    /// for.
    pub(crate) fn forget(&mut self, index: u32) -> Option<MemcgId> {
        let (id, leaf) = self.leaf(index)?;
        let slot = &leaf.slots[index as usize % LEAF_SLOTS];
        slot.load().shadow()?;
        slot.replace(Slot::EMPTY);
        let mut counts = leaf.counts();
        counts.shadows -= 1;
        leaf.set_counts(counts);
        self.free_if_empty(index, id, counts);
        (counts.folios == 0 && counts.shadows == 0 && self.keeps_shadows()).then_some(counts.owner)
    }

    /// Drops all shadows of a leaf that has held only shadows since it was noted, after it has
    /// passed them to `each` with the file's era and their indexes. Returns their number.
    pub(crate) fn trim(
        &mut self,
        noted: &ShadowLeaf,
        mut each: impl FnMut(&mut ShadowEra, u32, u64),
    ) -> Option<u32> {
        let index = noted.leaf_index * LEAF_SLOTS as u32;
        let (id, leaf) = self.leaf(index)?;
        let counts = leaf.counts();
        if !counts.only_shadows() || (id, counts.stamp) != (noted.id, noted.stamp) {
            return None;
        }
        for (at, slot) in (0..).zip(leaf.slots) {
            if let Some(word) = slot.load().shadow() {
                each(&mut self.tree.shadow_era, index + at, word);
            }
            slot.replace(Slot::EMPTY);
        }
        self.free_if_empty(index, id, Counts { folios: 0, shadows: 0, ..counts });
        Some(u32::from(counts.shadows))
    }

    /// Whether a leaf has held only shadows since it was noted.
    pub(crate) fn is_shadow_leaf(&self, noted: &ShadowLeaf) -> bool {
        self.leaf(noted.leaf_index * LEAF_SLOTS as u32).is_some_and(|(id, leaf)| {
            let counts = leaf.counts();
            counts.only_shadows() && (id, counts.stamp) == (noted.id, noted.stamp)
        })
    }

    /// The next occupied slot from `index` on, before `end`.
    pub(crate) fn next(&self, index: u32, end: u64) -> Option<(u32, Slot)> {
        let (leaf_pages, directory_pages) = (LEAF_SLOTS as u64, u64::from(DIRECTORY_PAGES));
        let mut at = u64::from(index);
        while at < end {
            let Some(directory) = self.mapping.directory(self.leaves, at as u32) else {
                at = u64::from(self.mapping.directories.first_from(at as u32 / DIRECTORY_PAGES)?)
                    * directory_pages;
                continue;
            };
            let leaves = &directory.leaves[at as usize / LEAF_SLOTS % DIRECTORY_LEAVES..];
            let Some(missing) = leaves.iter().position(|leaf| leaf.load(Relaxed) != 0) else {
                at = (at / directory_pages + 1) * directory_pages;
                continue;
            };
            if missing > 0 {
                at = (at / leaf_pages + missing as u64) * leaf_pages;
                continue;
            }
            if let Some((_, leaf)) = self.leaf(at as u32) {
                let slots = leaf.slots[at as usize % LEAF_SLOTS..].iter().map(AtomicSlot::load);
                let mut found = (at..end).zip(slots).filter(|&(_, slot)| slot != Slot::EMPTY);
                if let Some((at, slot)) = found.next() {
                    return Some((at as u32, slot));
                }
            }
            at = (at / leaf_pages + 1) * leaf_pages;
        }
        None
    }
}

/// The folio is not in the slot: another thread removed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotThere;

/// All mappings by number; reclaim finds the mapping of a folio here.
#[derive(Debug, Default)]
pub(crate) struct MappingTable {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    mappings: Vec<Option<Arc<Mapping>>>,
    free: Vec<u32>,
}

impl MappingTable {
    pub(crate) fn open(&self, kind: Kind) -> Arc<Mapping> {
        let mut slots = self.slots.lock();
        let id = slots.free.pop().unwrap_or(slots.mappings.len() as u32);
        let mapping = Arc::new(Mapping::new(MappingId(id), kind));
        if id as usize == slots.mappings.len() {
            slots.mappings.push(None);
        }
        slots.mappings[id as usize] = Some(mapping.clone());
        mapping
    }

    /// Frees the number of an empty mapping. `false`: it was free already.
    pub(crate) fn close(&self, id: MappingId) -> bool {
        let mut slots = self.slots.lock();
        let open = slots.mappings[id.0 as usize].take().is_some();
        if open {
            slots.free.push(id.0);
        }
        open
    }

    pub(crate) fn get(&self, id: MappingId) -> Option<Arc<Mapping>> {
        self.slots.lock().mappings.get(id.0 as usize)?.clone()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Mapping>> {
        self.slots.lock().mappings.iter().flatten().cloned().collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares the tree with a map, by seed: same content after every operation, and every leaf
    /// given back in the end.
    #[test]
    fn the_tree_agrees_with_a_map() {
        let leaves = LeafPool::new(100, 4096, 2, 1, 1);
        let mapping = Mapping::new(MappingId(0), Kind::File);
        let mut model: BTreeMap<u32, Result<FolioId, u64>> = BTreeMap::new();
        let mut state = 3u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        // Clusters in distant parts of the file: several directories with few leaves each.
        let bases = [0, 63, 500, 32_767, 1 << 20, u32::MAX - 200];
        for step in 0..50_000u32 {
            let index = bases[random() as usize % bases.len()] + random() % 130;
            let mut locked = mapping.lock(&leaves);
            match (model.get(&index).copied(), random() % 4) {
                (Some(Ok(folio)), 0 | 1) => {
                    let shadow = (random() % 2 == 0).then_some(u64::from(step));
                    locked.remove(index, folio, shadow, MemcgId::ROOT).unwrap();
                    match shadow {
                        Some(word) => model.insert(index, Err(word)),
                        None => model.remove(&index),
                    };
                }
                (Some(Ok(_)), _) => {
                    assert_eq!(
                        locked.insert(0, index, FolioId(1), MemcgId::ROOT),
                        Err(InsertError::Occupied)
                    );
                }
                (Some(Err(_)), 0) => {
                    locked.forget(index);
                    model.remove(&index);
                }
                (before, _) => {
                    while !leaves.reserve(0) {
                        assert!(leaves.grow());
                    }
                    let shadow = locked.insert(0, index, FolioId(step), MemcgId::ROOT).unwrap().shadow;
                    assert_eq!(shadow, before.and_then(Result::err));
                    model.insert(index, Ok(FolioId(step)));
                }
            }
            if step % 1000 == 0 {
                let mut at = 0;
                let mut seen = Vec::new();
                while let Some((index, slot)) = locked.next(at, 1 << 32) {
                    seen.push((index, slot.folio().ok_or(slot.shadow().unwrap_or(0))));
                    let Some(next) = index.checked_add(1) else { break };
                    at = next;
                }
                assert!(model.iter().map(|(&i, &c)| (i, c)).eq(seen));
            }
        }
        let mut locked = mapping.lock(&leaves);
        for (index, content) in model {
            match content {
                Ok(folio) => drop(locked.remove(index, folio, None, MemcgId::ROOT).unwrap()),
                Err(_) => drop(locked.forget(index)),
            }
        }
        assert_eq!(leaves.in_use(), 0);
        assert_eq!(mapping.folios(), 0);
    }

    /// [book: refaults#checks]: "Shadow nodes … are trimmed": only while nothing else is in the
    /// leaf. [book: refaults#shadow-limit]: a leaf is listed "when its last page is removed and
    /// shadows remain; leaves it when a page is inserted or it is freed".
    #[test]
    fn a_shadow_leaf_is_trimmed_unless_it_was_used_again() {
        let leaves = LeafPool::new(0, 256, 0, 1, 1);
        leaves.grow();
        let mapping = Mapping::new(MappingId(0), Kind::File);
        let mut locked = mapping.lock(&leaves);
        let (one, two) = (MemcgId(1), MemcgId(2));
        let insert = |locked: &mut LockedMapping<'_>, index, folio| {
            let before = locked.insert(0, index, FolioId(folio), one).unwrap();
            (before.shadow, before.only_shadows_of)
        };
        assert!((0..4).all(|_| leaves.reserve(0)));
        assert_eq!(insert(&mut locked, 5, 9), (None, None));
        assert_eq!(insert(&mut locked, 6, 8), (None, None));
        assert!(locked.remove(5, FolioId(9), Some(1), one).unwrap().is_none(), "a page is left");
        let first = locked.remove(6, FolioId(8), None, two).unwrap().expect("only a shadow is left");
        assert_eq!(insert(&mut locked, 6, 9), (None, Some(two)), "the owner of the last page lists it");
        assert_eq!(locked.trim(&first, |_, _, _| ()), None);
        let second = locked.remove(6, FolioId(9), Some(2), one).unwrap().unwrap();
        assert_eq!(locked.trim(&first, |_, _, _| ()), None, "an old entry does not count");
        assert_eq!(locked.forget(5), None, "a shadow is left");
        assert_eq!(locked.trim(&second, |_, _, _| ()), Some(1));
        assert_eq!(leaves.in_use(), 0);
        assert_eq!(insert(&mut locked, 5, 9), (None, None));
        assert!(locked.remove(5, FolioId(9), Some(3), two).unwrap().is_some());
        assert_eq!(locked.forget(5), Some(two));
        assert_eq!(leaves.in_use(), 0);
    }

    #[test]
    fn tables_are_found_in_order() {
        let leaves = LeafPool::new(0, 256, 0, 1, 1);
        leaves.grow();
        let mapping = Mapping::new(MappingId(0), Kind::File);
        let mut locked = mapping.lock(&leaves);
        for index in [600, 700, 100_000, 40] {
            assert!(leaves.reserve(0));
            locked.insert(0, index, FolioId(index), MemcgId::ROOT).unwrap();
            mapping.touch_table(&leaves, index);
        }
        let parts = |pages| locked.leaves_within(pages, 8).count();
        assert_eq!((parts(0..512), parts(0..8)), (0, 1), "one page is cached, of 64 or 8");
        drop(locked);
        assert_eq!(mapping.tables(&leaves, 0..1 << 23).collect::<Vec<_>>(), [0, 1, 195]);
        assert!(mapping.clear_young_table(&leaves, 195) && !mapping.clear_young_table(&leaves, 195));
        assert!(mapping.touch_table(&leaves, 100_001) && !mapping.touch_table(&leaves, 100_000));
    }
}
