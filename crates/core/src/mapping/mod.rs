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
//! The lock of a page's part ([`parts`]) serialises every change of the folio or shadow in its
//! slot, of the counts of its leaf, and of its directory. Two more locks follow it: of the index of
//! dirty pages, in which a page comes and goes only under its part's lock, and of the growth of the
//! table of directories.
//! Readers take no lock: they find a slot, use it, and check afterwards that the directory still
//! names the same leaf.

mod directory;
mod glance;
mod layout;
mod leaf;
mod locked;
#[cfg(all(test, loom))]
mod loom_tests;
mod numbers;
mod parts;
mod range;
mod slot;
mod table;

pub use glance::Glance;
pub(crate) use layout::MAPPING_PAGES_MAX;
pub use layout::{LEAF_SLOTS, MappingId, TABLE_PAGES};
pub(crate) use leaf::{Leaf, LeafId, LeafPool};
pub(crate) use locked::{FolioPlace, LockedMapping, ShadowLeaf};
pub use range::{SettledPage, SlotRange};
pub use slot::AtomicSlot;
pub(crate) use slot::Slot;
pub(crate) use table::MappingTable;

use crate::folio::{FolioId, Kind};
use crate::segments::Words;
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering::Acquire, Ordering::Relaxed,
    Ordering::SeqCst, RareU32, fence,
};
use directory::{DIRECTORY_BYTES, Directory};
use layout::{DIRECTORY_LEAVES, DIRECTORY_PAGES, IN_RANGE};
use leaf::LEAF_BYTES;
use parts::Parts;
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
#[derive(Debug, Default)]
pub(crate) struct ShadowEra(pub(crate) RareU32);

/// A mapping: the pages of one file.
#[derive(Debug)]
pub struct Mapping {
    id: MappingId,
    kind: Kind,
    /// Directory number + 1; 0 for no directory.
    directories: Words<DIRECTORY_SEGMENTS>,
    range: OnceLock<Arc<SlotRange>>,
    mapped_pages: AtomicU64,
    /// Pages that lie wholly inside the file, at most `u32::MAX`.
    whole_pages: AtomicU32,
    recency: AtomicBool,
    parts: Parts,
    /// Indexes of dirty pages that are not being written.
    dirty: Mutex<BTreeSet<u32>>,
    /// Set when the mapping is being closed: insertions fail. Changes under the locks of all parts.
    closed: AtomicBool,
    /// The file's shadows outside of the index.
    pub(crate) shadow_era: ShadowEra,
    /// Bytes of the table of directories and of the parts, with the numbers of the memcgs that pay
    /// for them. Held while the table grows.
    table_payers: Mutex<Vec<(u32, u64)>>,
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

impl Mapping {
    /// An empty mapping that so many CPUs use.
    pub(crate) fn new(id: MappingId, kind: Kind, cpus: usize) -> Mapping {
        Mapping {
            id,
            kind,
            directories: Words::new(),
            range: OnceLock::new(),
            mapped_pages: AtomicU64::new(0),
            whole_pages: AtomicU32::new(0),
            recency: AtomicBool::new(true),
            parts: Parts::new(cpus),
            dirty: Mutex::default(),
            closed: AtomicBool::new(false),
            shadow_era: ShadowEra::default(),
            table_payers: Mutex::default(),
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
        self.parts.folios()
    }

    /// The indexes of its dirty pages that are not being written. Lock a page's part before it is
    /// added or removed.
    pub(crate) fn dirty(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.dirty.lock()
    }

    /// Bytes of the index that inserting a page would add, or fewer if the table of directories
    /// grows meanwhile. Without the lock of the page's part, other threads may add or free some.
    pub(crate) fn missing_bytes(&self, leaves: &LeafPool, index: u32) -> u64 {
        match self.directory(leaves, index) {
            None => {
                let table_bytes = self.directories.growth_bytes(index / DIRECTORY_PAGES);
                table_bytes + self.parts.unpaid_bytes() + DIRECTORY_BYTES + LEAF_BYTES
            }
            Some(_) if self.leaf_id(leaves, index).is_none() => LEAF_BYTES,
            Some(_) => 0,
        }
    }

    /// Bytes to be paid for before [`LockedMapping::directory_or_new`] creates a directory.
    pub(crate) fn directory_growth_bytes(&self, leaves: &LeafPool, index: u32) -> u64 {
        self.directories.growth_bytes(index / DIRECTORY_PAGES) + leaves.directories.growth_bytes()
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

    /// Whether the page has a directory. Without the lock of its part, it may be freed at any time.
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

    /// The leaf of a page by its directory entry. `None`: there is none, or the entry is of another
    /// mapping, which took over the directory.
    #[inline]
    fn leaf_of_entry<'a>(&'a self, leaves: &'a LeafPool, index: u32, entry: u32) -> Option<Leaf<'a>> {
        let slots = self.slots_of_entry(leaves, index, entry)?;
        Some(leaves.with_slots(LeafId::of_entry(entry)?, slots))
    }

    /// The slots of that leaf.
    #[inline]
    fn slots_of_entry<'a>(
        &'a self,
        leaves: &'a LeafPool,
        index: u32,
        entry: u32,
    ) -> Option<&'a [AtomicSlot; LEAF_SLOTS]> {
        let id = LeafId::of_entry(entry)?;
        if entry & IN_RANGE == 0 { Some(leaves.slots(id)) } else { self.range.get()?.leaf(index) }
    }

    /// The page's slot in that leaf.
    #[inline]
    fn slot_of_entry<'a>(&'a self, leaves: &'a LeafPool, index: u32, entry: u32) -> Option<&'a AtomicSlot> {
        Some(&self.slots_of_entry(leaves, index, entry)?[index as usize % LEAF_SLOTS])
    }

    #[inline(always)]
    pub(crate) fn slot<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> Option<&'a AtomicSlot> {
        self.slot_of_entry(leaves, index, self.leaf_entry(leaves, index))
    }

    /// Finds the slot of a page without a lock. The leaf may belong to another mapping by the time
    /// the result is used: check with [`Self::still_there`].
    #[inline(always)]
    pub(crate) fn find(&self, leaves: &LeafPool, index: u32) -> Option<Found> {
        let leaf = self.leaf_entry(leaves, index);
        let slot = self.slot_of_entry(leaves, index, leaf)?.load();
        Some(Found { leaf, slot })
    }

    /// Whether the page still has the leaf that was found.
    #[inline]
    pub(crate) fn has_leaf(&self, leaves: &LeafPool, index: u32, found: &Found) -> bool {
        self.leaf_entry(leaves, index) == found.leaf
    }

    /// Marks the bytes of a folio in the slot of its page as valid, under this version. Returns the
    /// slot after it; `None`: the slot does not hold the folio.
    #[inline]
    pub(crate) fn set_uptodate(
        &self,
        leaves: &LeafPool,
        index: u32,
        folio: FolioId,
        version: u32,
    ) -> Option<Found> {
        let leaf = self.leaf_entry(leaves, index);
        let slot = self.slot_of_entry(leaves, index, leaf)?.set_uptodate(folio, version)?;
        Some(Found { leaf, slot })
    }

    /// Whether the slot still holds the folio that was found. Only meaningful if the folio is this
    /// page: the leaf may be another mapping's at the look at its slot, and come back before the
    /// look at the directory.
    #[inline]
    pub(crate) fn still_there(&self, leaves: &LeafPool, index: u32, found: &Found) -> bool {
        let Some(slot) = self.slot_of_entry(leaves, index, found.leaf) else { return false };
        let now = slot.load();
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
        let is_whole = || self.has_whole_page(index.into());
        if let Some(range) = self.range.get()
            && range.settle(index, is_whole)
            && !is_whole()
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
                    // Another thread may have put a directory here meanwhile: never back.
                    next = next.max(self.directories.first_from(index / DIRECTORY_PAGES)? * u64::BITS);
                }
            }
            None
        })
    }

    /// The next occupied slot from `index` on, before `end`. Finds every slot that is occupied all
    /// the time. Without the locks, its content may have changed, or belong to another mapping.
    pub(crate) fn next(&self, leaves: &LeafPool, index: u32, end: u64) -> Option<(u32, Slot)> {
        let (leaf_pages, directory_pages) = (LEAF_SLOTS as u64, u64::from(DIRECTORY_PAGES));
        let (mut at, end) = (u64::from(index), end.min(MAPPING_PAGES_MAX));
        while at < end {
            let Some(directory) = self.directory(leaves, at as u32) else {
                let first = u64::from(self.directories.first_from(at as u32 / DIRECTORY_PAGES)?);
                // Another thread may have put a directory here meanwhile: never back.
                at = at.max(first * directory_pages);
                continue;
            };
            let entries = &directory.leaves[at as usize / LEAF_SLOTS % DIRECTORY_LEAVES..];
            let Some(missing) = entries.iter().position(|leaf| leaf.load(Relaxed) != 0) else {
                at = (at / directory_pages + 1) * directory_pages;
                continue;
            };
            if missing > 0 {
                at = (at / leaf_pages + missing as u64) * leaf_pages;
                continue;
            }
            if let Some(leaf) = self.leaf_of_entry(leaves, at as u32, self.leaf_entry(leaves, at as u32)) {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::folio::FolioId;
    use crate::memcg::MemcgId;
    use crate::testing::Harness;
    use std::collections::BTreeMap;

    /// A walk over the page tables of such a file overflowed later.
    #[test]
    #[should_panic(expected = "a mapping has at most 2^32 pages")]
    fn more_pages_than_a_mapping_has_are_not_mapped() {
        let harness = Harness::new(10, 1);
        let (task, mapping) = (&harness.task, &harness.mapping);
        harness.core.map(task, mapping, MAPPING_PAGES_MAX);
        harness.core.map(task, mapping, MAPPING_PAGES_MAX + 1);
    }

    /// Compares the tree with a map, by seed: same content after every operation, and every leaf
    /// given back in the end.
    #[test]
    fn the_tree_agrees_with_a_map() {
        let leaves = LeafPool::new(100, 4096, 2, 1, 1);
        let mapping = Mapping::new(MappingId(0), Kind::File, 4);
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
            let mut locked = mapping.lock(&leaves, index);
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
            drop(locked);
            if step % 1000 == 0 {
                let mut at = 0;
                let mut seen = Vec::new();
                while let Some((index, slot)) = mapping.next(&leaves, at, 1 << 32) {
                    seen.push((index, slot.folio().ok_or(slot.shadow().unwrap_or(0))));
                    let Some(next) = index.checked_add(1) else { break };
                    at = next;
                }
                assert!(model.iter().map(|(&i, &c)| (i, c)).eq(seen));
            }
        }
        for (index, content) in model {
            let mut locked = mapping.lock(&leaves, index);
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
        let mapping = Mapping::new(MappingId(0), Kind::File, 1);
        let mut locked = mapping.lock(&leaves, 0);
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
        let mapping = Mapping::new(MappingId(0), Kind::File, 1);
        let mut locked = mapping.lock(&leaves, 0);
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

    /// A scan whose end lies behind the last possible page ends there, and does not begin again
    /// with the first page.
    #[test]
    fn a_scan_ends_with_the_last_possible_page() {
        let leaves = LeafPool::new(100, 4096, 2, 1, 1);
        let mapping = Mapping::new(MappingId(0), Kind::File, 4);
        for index in [0, u32::MAX - 100] {
            assert!(leaves.reserve(0));
            mapping.lock(&leaves, index).insert(0, index, FolioId(index), MemcgId::ROOT).unwrap();
        }
        for end in [1 << 32, (1 << 32) + 1, u64::MAX] {
            let next = |from| mapping.next(&leaves, from, end).map(|(index, _)| index);
            assert_eq!([0, 1, u32::MAX - 99].map(next), [Some(0), Some(u32::MAX - 100), None]);
        }
    }
}
