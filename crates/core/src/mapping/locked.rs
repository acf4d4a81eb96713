//! A mapping of which a part is locked, or the whole: the only place where slots change their
//! folio.
//!
//! # Locking
//!
//! [`LockedMapping`] holds the lock of one part and [`LockedParts`] those of all. The lock of the
//! growth of the index is taken under them, and so are those of the pools.

use super::directory::{DIRECTORY_BYTES, Directory};
use super::layout::{DIRECTORY_LEAVES, DIRECTORY_PAGES, IN_RANGE, LEAF_SLOTS, MappingId, TABLE_PAGES};
use super::leaf::{Counts, LEAF_BYTES, Leaf, LeafId, LeafPool};
use super::parts::Part;
use super::slot::{AtomicSlot, Slot};
use super::{InsertError, Mapping, ShadowEra};
use crate::folio::{FolioId, Kind};
use crate::memcg::MemcgId;
use crate::sync::{Held, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

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

/// A mapping of which one part is locked.
pub(crate) struct LockedMapping<'a> {
    mapping: &'a Mapping,
    leaves: &'a LeafPool,
    /// The number of the part, and the part.
    part: (u32, &'a Part),
    _lock: Held<'a>,
}

/// A mapping of which all parts are locked.
pub(crate) struct LockedParts<'a> {
    mapping: &'a Mapping,
    leaves: &'a LeafPool,
    _locks: (Held<'a>, Vec<Held<'a>>),
}

/// The slot of a cached page, found under the lock of its part.
pub(crate) struct FolioPlace<'a> {
    index: u32,
    id: LeafId,
    leaf: Leaf<'a>,
}

impl<'a> LockedMapping<'a> {
    /// Whether a page lies in the locked part.
    pub(crate) fn covers(&self, index: u32) -> bool {
        self.mapping.parts.number(index) == self.part.0
    }

    #[inline]
    fn leaf(&self, index: u32) -> Option<(LeafId, Leaf<'a>)> {
        debug_assert!(self.covers(index));
        let entry = self.mapping.leaf_entry(self.leaves, index);
        Some((LeafId::of_entry(entry)?, self.mapping.leaf_of_entry(self.leaves, index, entry)?))
    }

    /// The next occupied slot from `index` on, before `end` and under the same directory.
    pub(crate) fn next(&self, index: u32, end: u64) -> Option<(u32, Slot)> {
        if !self.covers(index) {
            return None;
        }
        let directory_end = (u64::from(index / DIRECTORY_PAGES) + 1) * u64::from(DIRECTORY_PAGES);
        self.mapping.next(self.leaves, index, end.min(directory_end))
    }

    pub(crate) fn slot(&self, index: u32) -> Slot {
        debug_assert!(self.covers(index));
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

    /// The leaves of `pages`, each with the piece of `pages` that lies in it.
    fn pieces(&self, pages: std::ops::Range<u64>) -> impl Iterator<Item = (std::ops::Range<u64>, Leaf<'a>)> {
        let leaf_pages = LEAF_SLOTS as u64;
        let leaves = pages.start / leaf_pages..pages.end.div_ceil(leaf_pages);
        leaves.filter_map(move |leaf| {
            let piece = pages.start.max(leaf * leaf_pages)..pages.end.min((leaf + 1) * leaf_pages);
            Some((piece.clone(), self.leaf(piece.start as u32)?.1))
        })
    }

    /// The pieces of `pages` that lie in one leaf each, of leaves with at least one cached page for
    /// `each` pages of the piece.
    pub(crate) fn leaves_within(
        &self,
        pages: std::ops::Range<u64>,
        each: u64,
    ) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.pieces(pages).filter_map(move |(piece, leaf)| {
            (u64::from(leaf.counts().folios) * each >= piece.end - piece.start).then_some(piece)
        })
    }

    /// The folios, with their slots, of those given pages whose page-table entry is young.
    pub(crate) fn young_entries(
        &self,
        pages: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (FolioId, &AtomicSlot)> {
        let slots = self.pieces(pages).map(|(piece, leaf)| {
            let first = piece.start as usize % LEAF_SLOTS;
            &leaf.slots[first..first + (piece.end - piece.start) as usize]
        });
        slots.flatten().filter_map(|slot| {
            let now = slot.load();
            Some((now.folio().filter(|_| now.mapped() && now.accessed())?, slot))
        })
    }

    /// Puts a folio into a slot that is empty or holds a shadow, and returns the former content.
    /// Uses up or gives back the leaf that `cpu` reserved, unless it fails. `payer` has paid for
    /// the objects that this adds to the index, if memcgs pay for it.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        cpu: usize,
        index: u32,
        folio: FolioId,
        payer: MemcgId,
    ) -> Result<Before, InsertError> {
        if self.is_closed() {
            return Err(InsertError::Closed);
        }
        let found = self.leaf(index).map(|(_, leaf)| leaf);
        let at = index as usize % LEAF_SLOTS;
        let before = found.as_ref().map_or(Slot::EMPTY, |leaf| leaf.slots[at].load());
        if before.folio().is_some() {
            return Err(InsertError::Occupied);
        }
        let (leaf, added_bytes) = match found {
            Some(leaf) => {
                self.leaves.unreserve(Some(cpu));
                (leaf, 0)
            }
            None => self.new_leaf(index, payer),
        };
        let shadow = before.shadow();
        leaf.slots[at].replace(Slot::of_folio(folio));
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
        let folios = &self.part.1.folios;
        folios.store(folios.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// Creates the missing leaf of a page. Also returns the bytes that this added.
    fn new_leaf(&mut self, index: u32, payer: MemcgId) -> (Leaf<'a>, u64) {
        let (directory, added) = self.directory_or_new(index, payer);
        let leaves = self.leaves;
        let entry = &directory.leaves[index as usize / LEAF_SLOTS % DIRECTORY_LEAVES];
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

    /// The directory of a page, created if it is missing, and the bytes that this added. `payer`
    /// has paid for them, if memcgs pay for the index.
    pub(crate) fn directory_or_new(&mut self, index: u32, payer: MemcgId) -> (&'a Directory, u64) {
        let (leaves, mapping) = (self.leaves, self.mapping);
        let (table, number) = (&mapping.directories, index / DIRECTORY_PAGES);
        if let Some(directory) = mapping.directory(leaves, index) {
            return (directory, 0);
        }
        let mut payers = mapping.table_payers.lock();
        let grown = table.growth_bytes(number);
        if grown > 0 {
            leaves.count_bytes(grown);
        }
        let added = grown + mapping.parts.pay();
        let entry = leaves.directories.take();
        let directory = leaves.directories.get_entry(entry).expect("just taken");
        if leaves.is_charged {
            directory.payer.store(payer.0, Relaxed);
            if added > 0 {
                payers.push((payer.0, added));
            }
        }
        table.get_or_make(number).store(entry, Release);
        (directory, added + DIRECTORY_BYTES)
    }

    /// Whether the mapping was sealed: it gets no more pages.
    pub(crate) fn is_closed(&self) -> bool {
        self.mapping.closed.load(Relaxed)
    }

    /// Frees the directory of a page if it has no leaf.
    pub(crate) fn free_directory_if_empty(&self, index: u32) {
        debug_assert!(self.covers(index));
        self.mapping.free_directory_if_empty(self.leaves, index);
    }

    /// Whether its leaves hold shadows, which may be dropped. For anonymous memory they hold
    /// entries, which say where in swap a page is and must stay.
    fn keeps_shadows(&self) -> bool {
        self.mapping.kind == Kind::File
    }

    /// The place of `folio` in its slot. `None`: it is not there.
    #[inline]
    pub(crate) fn place_of(&self, index: u32, folio: FolioId) -> Option<FolioPlace<'a>> {
        let (id, leaf) = self.leaf(index)?;
        let holds_it = leaf.slots[index as usize % LEAF_SLOTS].load().folio() == Some(folio);
        holds_it.then_some(FolioPlace { index, id, leaf })
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
        let place = self.place_of(index, folio).ok_or(NotThere)?;
        Ok(self.remove_at(place, shadow, owner))
    }

    /// [`Self::remove`] of the folio that was found in this place since the part was locked.
    #[inline]
    pub(crate) fn remove_at(
        &mut self,
        FolioPlace { index, id, leaf }: FolioPlace<'a>,
        shadow: Option<u64>,
        owner: MemcgId,
    ) -> Option<ShadowLeaf> {
        let slot = &leaf.slots[index as usize % LEAF_SLOTS];
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
            return Some(ShadowLeaf { mapping, leaf_index, id, stamp: counts.stamp });
        }
        self.free_if_empty(index, id, counts);
        None
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
        mut each: impl FnMut(&ShadowEra, u32, u64),
    ) -> Option<u32> {
        let index = noted.first_index();
        let (id, leaf) = self.leaf(index)?;
        let counts = leaf.counts();
        if !counts.only_shadows() || (id, counts.stamp) != (noted.id, noted.stamp) {
            return None;
        }
        // Most leaves of random pages have few shadows, and a replacement costs more than a look.
        for (at, slot) in (0..).zip(leaf.slots) {
            let before = slot.load();
            if let Some(word) = before.shadow() {
                each(&self.mapping.shadow_era, index + at, word);
            }
            if before != Slot::EMPTY {
                slot.replace(Slot::EMPTY);
            }
        }
        self.free_if_empty(index, id, Counts { folios: 0, shadows: 0, ..counts });
        Some(u32::from(counts.shadows))
    }

    /// Whether a leaf has held only shadows since it was noted.
    pub(crate) fn is_shadow_leaf(&self, noted: &ShadowLeaf) -> bool {
        self.leaf(noted.first_index()).is_some_and(|(id, leaf)| {
            let counts = leaf.counts();
            counts.only_shadows() && (id, counts.stamp) == (noted.id, noted.stamp)
        })
    }
}

impl<'a> LockedParts<'a> {
    /// The next occupied slot from `index` on, before `end`.
    pub(crate) fn next(&self, index: u32, end: u64) -> Option<(u32, Slot)> {
        self.mapping.next(self.leaves, index, end)
    }

    pub(crate) fn set_mapped_pages(&self, pages: u64) {
        self.mapping.mapped_pages.store(pages, Relaxed);
    }

    /// Lets all further insertions fail.
    pub(crate) fn seal(&self) {
        self.mapping.closed.store(true, Relaxed);
    }

    /// Calls `heir` with the payer and the bytes of everything in this index, for which memcgs pay.
    /// The payer that it returns pays from now on; `heir` has moved the charge.
    pub(crate) fn change_payers(&self, mut heir: impl FnMut(MemcgId, u64) -> MemcgId) {
        let leaves = self.leaves;
        let mut change = |payer: u32, bytes: u64| heir(MemcgId(payer), bytes).0;
        for (payer, bytes) in self.mapping.table_payers.lock().iter_mut() {
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

    /// Frees the directories without leaves and gives up the claims on the memory of the table,
    /// when the mapping is closed.
    pub(crate) fn close_index(&self) {
        let table = &self.mapping.directories;
        let mut at = 0;
        while let Some(number) = table.first_from(at) {
            self.mapping.free_directory_if_empty(self.leaves, number * DIRECTORY_PAGES);
            at = number + 1;
        }
        let payers = std::mem::take(&mut *self.mapping.table_payers.lock());
        payers.into_iter().for_each(|(payer, bytes)| self.leaves.note_freed(payer, bytes));
        self.leaves.forget_bytes(table.bytes() + self.mapping.parts.bytes());
    }
}

impl Mapping {
    /// Locks the part of a page.
    pub(crate) fn lock<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> LockedMapping<'a> {
        let number = self.parts.number(index);
        let part = self.parts.part(leaves, number, &self.closed);
        LockedMapping { mapping: self, leaves, part: (number, part), _lock: part.lock.lock() }
    }

    /// As [`Self::lock`], unless another thread holds it.
    pub(crate) fn try_lock<'a>(&'a self, leaves: &'a LeafPool, index: u32) -> Option<LockedMapping<'a>> {
        let number = self.parts.number(index);
        let part = self.parts.part(leaves, number, &self.closed);
        Some(LockedMapping { mapping: self, leaves, part: (number, part), _lock: part.lock.try_lock()? })
    }

    /// Locks the whole mapping.
    pub(crate) fn lock_all<'a>(&'a self, leaves: &'a LeafPool) -> LockedParts<'a> {
        LockedParts { mapping: self, leaves, _locks: self.parts.lock_all() }
    }

    /// The next occupied slot from `index` on, before `end`, with the lock of its part.
    pub(crate) fn lock_next<'a>(
        &'a self,
        leaves: &'a LeafPool,
        index: u32,
        end: u64,
    ) -> Option<(LockedMapping<'a>, u32, Slot)> {
        let mut at = index;
        loop {
            let (found, _) = self.next(leaves, at, end)?;
            let locked = self.lock(leaves, found);
            let slot = locked.slot(found);
            if slot != Slot::EMPTY {
                return Some((locked, found, slot));
            }
            // Emptied in between, or read in a leaf of another mapping.
            at = found;
        }
    }

    /// Frees the directory of a page if it has no leaf. The caller holds the lock of its part.
    fn free_directory_if_empty(&self, leaves: &LeafPool, index: u32) {
        let pool = &leaves.directories;
        let Some(place) = self.directories.get(index / DIRECTORY_PAGES) else { return };
        let entry = place.load(Relaxed);
        let Some(directory) = pool.get_entry(entry).filter(|directory| pool.is_empty(directory)) else {
            return;
        };
        place.store(0, Release);
        if let Some(range) = self.range.get() {
            let first = index / DIRECTORY_PAGES * DIRECTORY_PAGES;
            for table in 0..DIRECTORY_PAGES / TABLE_PAGES {
                range.clear_young_table(first + table * TABLE_PAGES);
            }
        }
        if leaves.is_charged {
            leaves.note_freed(directory.payer.load(Relaxed), DIRECTORY_BYTES);
        }
        pool.give_back(entry);
    }
}

impl ShadowLeaf {
    /// The first page of the leaf.
    pub(crate) fn first_index(&self) -> u32 {
        self.leaf_index * LEAF_SLOTS as u32
    }
}

/// The folio is not in the slot: another thread removed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotThere;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn directories_take_turns_and_a_small_file_has_one_part() {
        let leaves = LeafPool::new(100, 100, 8, 1, 1);
        let mapping = Mapping::new(MappingId(0), Kind::File, 3);
        let bytes = leaves.bytes();
        drop(mapping.lock(&leaves, DIRECTORY_PAGES - 1));
        drop(mapping.lock_all(&leaves));
        assert_eq!((mapping.parts.bytes(), leaves.bytes()), (0, bytes));
        let held = mapping.lock(&leaves, DIRECTORY_PAGES);
        assert_eq!(mapping.parts.bytes(), 3 * 64, "four parts for three CPUs, one in the mapping");
        assert_eq!(leaves.bytes(), bytes + mapping.parts.bytes());
        let is_free = |directory| mapping.try_lock(&leaves, directory * DIRECTORY_PAGES).is_some();
        let free: Vec<u32> = (0..8).filter(|&directory| is_free(directory)).collect();
        assert_eq!(free, [0, 2, 3, 4, 6, 7]);
        assert!(held.covers(5 * DIRECTORY_PAGES + 9) && !held.covers(2 * DIRECTORY_PAGES));
        drop(held);
        let all = mapping.lock_all(&leaves);
        assert!(!(0..8).any(is_free));
        all.close_index();
        assert_eq!(leaves.bytes(), bytes);
    }

    #[test]
    fn a_closed_mapping_gets_no_more_parts() {
        let leaves = LeafPool::new(100, 100, 8, 1, 1);
        let mapping = Mapping::new(MappingId(0), Kind::File, 3);
        let bytes = leaves.bytes();
        mapping.lock_all(&leaves).seal();
        let mut locked = mapping.lock(&leaves, DIRECTORY_PAGES);
        let inserted = locked.insert(0, DIRECTORY_PAGES, FolioId(1), MemcgId::ROOT);
        assert_eq!((inserted, leaves.bytes()), (Err(InsertError::Closed), bytes));
        drop(locked);
        assert!(mapping.try_lock(&leaves, 2 * DIRECTORY_PAGES).is_some());
    }

    #[test]
    fn the_next_page_comes_with_the_lock_of_its_part() {
        let leaves = LeafPool::new(100, 100, 8, 1, 1);
        let mapping = Mapping::new(MappingId(0), Kind::File, 4);
        let pages = [3, 4, DIRECTORY_PAGES, 5 * DIRECTORY_PAGES - 1, 5 * DIRECTORY_PAGES];
        for index in pages {
            assert!(leaves.reserve(0));
            mapping.lock(&leaves, index).insert(0, index, FolioId(index), MemcgId::ROOT).unwrap();
        }
        assert_eq!(mapping.folios(), 5);
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((locked, index, slot)) = mapping.lock_next(&leaves, at, 1 << 32) {
            assert!(locked.covers(index));
            assert_eq!(slot.folio(), Some(FolioId(index)));
            let next = locked.next(index + 1, 1 << 32).map(|(next, _)| next);
            assert_eq!(next, (index == 3).then_some(4), "under the same directory");
            found.push(index);
            at = index + 1;
        }
        assert_eq!(found, pages);
        assert!(mapping.lock_next(&leaves, 0, 3).is_none());
    }
}
