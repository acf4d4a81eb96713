//! YCSB B on a collection with an index and a log, as MongoDB lays them out in WiredTiger, so that
//! recorded runs of that engine can be repeated.
//!
//! An operation is a transaction: it looks the key up in the index, and then reads the record or
//! changes it. Records lie in the order of their insertion, and the index is ordered by the hash of
//! the key. Both trees have leaves in files of their own. A changed leaf is written whole, to the
//! lowest free place of its file: when it leaves the engine's cache, or at a checkpoint.
//!
//! The engine's cache is no LRU. WiredTiger means to evict leaves that were not used lately. In
//! runs of it the leaf that goes is as good as random ([`Eviction`]): with memory for a seventh of
//! the leaves, it missed 4 % more often than LRU would have. Each tree gives in proportion to its
//! pages.
//!
//! While WiredTiger's cache is fuller than half way between its target of 80 % and its trigger of
//! 95 %, a leaf that was read goes as soon as the cursor lets go of it. An update reads its record
//! before it changes it, and lets go in between. So it reads such a leaf twice, the second time
//! from the page cache. On a host, with that cache 90 % full, this happened to some 85 % of the
//! leaves that updates read.
//!
//! Sizes were taken from such runs, of WiredTiger 11.3.1: leaves of at most 32 KiB are split when
//! they are nine tenths full, so they take 28 KiB and hold 24 records.

use super::leaf_file::{LeafFile, touch};
use super::{Client, Letter, StoreRequest, Ycsb, checkpoint_every, fnv_hash, leaf_of};
use crate::PAGE_BYTES;
use crate::load::Step;
use crate::random::Random;

/// Bytes of a record in the log: all of it is logged at each change.
const RECORD_BYTES: u64 = 1170;
const COLLECTION: Shape = Shape { file: 1 << 32, entries_per_leaf: 24, leaf_pages: 7 };
/// Entries of 30 bytes in leaves of 16 KiB.
const INDEX: Shape = Shape { file: 2 << 32, entries_per_leaf: 543, leaf_pages: 4 };
/// The same after insertions in random order: leaves that were split are seven tenths full.
const INSERTED_INDEX: Shape = Shape { entries_per_leaf: 380, ..INDEX };
/// Number of the log's file.
const LOG: u64 = 3 << 32;
/// Number of the file of the log that is read when the store is opened.
const OLD_LOG: u64 = 4 << 32;
/// Number of the region of other memory.
const HEAP: u64 = 5 << 32;
/// How often each page of the old log is read. It is more than one access, so reclaim keeps these
/// pages at first; how many more does not matter.
const LOG_READS: u64 = 6;
/// Pages that a pass of eviction frees: a hundred leaves, but at most an eighth of the cache.
/// Changed leaves among them are written one after the other.
const PASS_PAGES: u64 = 100 * COLLECTION.leaf_pages as u64;

/// Which leaf of a tree WiredTiger evicts, whether it was used or not: the distributions fit the
/// times after which leaves in constant use were evicted, with 6,000 leaves in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Young ones more often: ordered by the time of their reading, the youngest first, the leaf at
    /// the power 2.5 of a random part of the list. Where clients wait for a CPU, a quarter of the
    /// leaves was gone after 280 others had been read, half after 1,200, and a tenth stayed for
    /// 8,300.
    Young,
    /// Any. Where they wait for the disk, a quarter was gone after 2,900, half after 4,900, and a
    /// tenth stayed for 14,000.
    Any,
}

/// A store and its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedYcsb {
    /// Number of records; at least 1.
    pub records: u32,
    /// Percentage of operations that change a record.
    pub updates_percent: u32,
    /// Pages of the engine's cache, on average.
    pub cache_pages: u32,
    /// Which leaves leave that cache.
    pub eviction: Eviction,
    /// Percentage of leaves that the engine reads while its cache is so full that it drops them at
    /// once: a change reads them twice.
    pub dropped_percent: u32,
    /// Pages of anonymous memory that the process has beside the cache.
    pub heap_pages: u32,
    /// Pages of a log that is read when the store is opened.
    pub old_log_pages: u32,
    /// Whether all records are inserted first, instead of being there.
    pub inserts: bool,
    /// Operations from one sync of the log to the next; at least 1.
    pub sync_every: u64,
    /// The server's computing time per operation, in microseconds.
    pub compute_micros: u32,
}

/// Layout of a tree.
#[derive(Debug, Clone, Copy)]
struct Shape {
    file: u64,
    entries_per_leaf: u64,
    leaf_pages: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Leaf {
    /// Place in the file; `None` until it is written.
    extent: Option<u32>,
    /// Place in memory; `None` while only the file has it.
    place: Option<u32>,
    is_dirty: bool,
}

/// A tree and its leaves in the engine's cache.
#[derive(Debug)]
struct Tree {
    file: LeafFile,
    leaves: Vec<Leaf>,
    /// Cached leaves, in the order in which they were brought in.
    cached: Vec<usize>,
    /// Free places in memory.
    places: Vec<u32>,
}

impl Tree {
    /// A tree of so many entries, in the file or yet to be written.
    fn new(shape: Shape, entries: u64, is_there: bool) -> Tree {
        let leaves = entries.div_ceil(shape.entries_per_leaf) as u32;
        let leaf = |extent| Leaf { extent: is_there.then_some(extent), ..Leaf::default() };
        Tree {
            file: LeafFile::new(shape.file, shape.leaf_pages, if is_there { leaves } else { 0 }),
            leaves: (0..leaves).map(leaf).collect(),
            cached: Vec::new(),
            places: Vec::new(),
        }
    }

    fn cached_pages(&self) -> u64 {
        self.cached.len() as u64 * self.file.leaf_pages()
    }

    /// Touches an entry, whose leaf is brought in before if need be.
    fn visit(&mut self, leaf: usize, entry: u64, write: bool, steps: &mut Vec<Step>) {
        let place = self.leaves[leaf].place.unwrap_or_else(|| self.bring(leaf, steps));
        steps.push(touch(self.file.page_of_entry(place, entry), write, true));
        self.leaves[leaf].is_dirty |= write;
    }

    /// Reads an entry, whose leaf is dropped if it was read from the file, before a change.
    fn visit_and_drop(&self, leaf: usize, entry: u64, steps: &mut Vec<Step>) {
        let Leaf { extent: Some(extent), place: None, .. } = self.leaves[leaf] else { return };
        let place = self.next_place();
        self.file.bring(Some(extent), place, steps);
        steps.push(touch(self.file.page_of_entry(place, entry), false, true));
    }

    /// The place in memory of the next leaf that is brought in.
    fn next_place(&self) -> u32 {
        // Without a free place, all are taken by cached leaves.
        self.places.last().copied().unwrap_or(self.cached.len() as u32)
    }

    fn bring(&mut self, leaf: usize, steps: &mut Vec<Step>) -> u32 {
        let place = self.next_place();
        self.places.pop();
        self.file.bring(self.leaves[leaf].extent, place, steps);
        self.leaves[leaf].place = Some(place);
        self.cached.push(leaf);
        place
    }

    /// Writes a leaf if it is dirty.
    fn write(&mut self, leaf: usize, steps: &mut Vec<Step>) {
        let Leaf { is_dirty: true, place: Some(place), extent } = self.leaves[leaf] else { return };
        let extent = Some(self.file.write(place, extent, steps));
        self.leaves[leaf] = Leaf { extent, is_dirty: false, ..self.leaves[leaf] };
    }

    /// Evicts a cached leaf, by its position from the youngest on.
    fn evict(&mut self, age: usize, steps: &mut Vec<Step>) {
        let leaf = self.cached.remove(self.cached.len() - 1 - age);
        self.write(leaf, steps);
        self.places.extend(self.leaves[leaf].place.take());
    }

    /// Writes all changed leaves, and syncs the file.
    fn checkpoint(&mut self, steps: &mut Vec<Step>) {
        (0..self.leaves.len()).for_each(|leaf| self.write(leaf, steps));
        self.file.sync(steps);
    }
}

/// A running workload.
#[derive(Debug)]
pub struct IndexedOperations {
    ycsb: IndexedYcsb,
    client: Client,
    collection: Tree,
    index: Tree,
    /// Chooses leaves to evict.
    random: Random,
    log_bytes: u64,
    begun: u64,
}

impl IndexedOperations {
    /// Starts the workload.
    ///
    /// # Panics
    /// If there is no record, or the log is synced after no operation.
    pub fn new(ycsb: IndexedYcsb, seed: u64) -> IndexedOperations {
        assert!(ycsb.sync_every > 0, "the log is synced after some operations");
        let requests = Ycsb { writes_percent: ycsb.updates_percent, ..Ycsb::new(Letter::B, ycsb.records, 0) };
        let (index, is_there) = if ycsb.inserts { (INSERTED_INDEX, false) } else { (INDEX, true) };
        IndexedOperations {
            ycsb,
            client: Client::new(requests, seed),
            collection: Tree::new(COLLECTION, ycsb.records.into(), is_there),
            index: Tree::new(index, ycsb.records.into(), is_there),
            random: Random::stream(seed, 0x1D8E),
            log_bytes: 0,
            begun: 0,
        }
    }

    /// Opens the store, before the first operation: the process allocates its memory, and recovery
    /// reads the old log.
    pub fn open(&self, steps: &mut Vec<Step>) {
        steps.extend((0..u64::from(self.ycsb.heap_pages)).map(|page| touch(HEAP + page, true, true)));
        for _ in 0..LOG_READS {
            let pages = 0..u64::from(self.ycsb.old_log_pages);
            steps.extend(pages.map(|page| touch(OLD_LOG + page, false, false)));
        }
    }

    /// Operations that insert a record, which are the first.
    pub fn insertions(&self) -> u64 {
        if self.ycsb.inserts { self.ycsb.records.into() } else { 0 }
    }

    /// Appends the steps of one operation.
    pub fn next(&mut self, steps: &mut Vec<Step>) {
        steps.push(Step::Compute { nanos: u64::from(self.ycsb.compute_micros) * 1000 });
        let inserts = self.begun < self.insertions();
        let (key, writes) = if inserts { (self.begun, true) } else { self.draw() };
        let hash = fnv_hash(key);
        let in_index = leaf_of(hash, self.index.leaves.len() as u32) as usize;
        // Bits that did not select the leaf.
        self.index.visit(in_index, hash & 0xffff, inserts, steps);
        let leaf = (key / COLLECTION.entries_per_leaf) as usize;
        if writes && !inserts && self.random.below(100) < u64::from(self.ycsb.dropped_percent) {
            self.collection.visit_and_drop(leaf, key, steps);
        }
        self.collection.visit(leaf, key, writes, steps);
        let cache_pages = u64::from(self.ycsb.cache_pages);
        let half_a_pass = PASS_PAGES.min(cache_pages / 8) / 2;
        if self.cached_pages() > cache_pages + half_a_pass {
            while self.cached_pages() > cache_pages - half_a_pass {
                self.evict(steps);
            }
        }
        if writes {
            self.log(steps);
        }
        self.begun += 1;
        if self.begun.is_multiple_of(self.ycsb.sync_every) {
            steps.push(Step::Sync { page: LOG });
        }
        if self.begun.is_multiple_of(checkpoint_every(self.ycsb.records)) {
            self.index.checkpoint(steps);
            self.collection.checkpoint(steps);
        }
    }

    /// Draws a key, and whether its record is changed.
    fn draw(&mut self) -> (u64, bool) {
        match self.client.next(self.ycsb.records.into()) {
            StoreRequest::Update { key } => (key, true),
            StoreRequest::Read { key } => (key, false),
            other => unreachable!("{other:?} is no request of workload B"),
        }
    }

    fn cached_pages(&self) -> u64 {
        self.collection.cached_pages() + self.index.cached_pages()
    }

    /// Evicts a leaf.
    fn evict(&mut self, steps: &mut Vec<Step>) {
        let of_collection = self.random.below(self.cached_pages()) < self.collection.cached_pages();
        let tree = if of_collection { &mut self.collection } else { &mut self.index };
        let part = self.random.unit();
        let part = match self.ycsb.eviction {
            Eviction::Young => part * part * part.sqrt(),
            Eviction::Any => part,
        };
        let last = tree.cached.len() - 1;
        tree.evict(((part * tree.cached.len() as f64) as usize).min(last), steps);
    }

    /// Appends a record to the log.
    fn log(&mut self, steps: &mut Vec<Step>) {
        let first = self.log_bytes / PAGE_BYTES;
        self.log_bytes += RECORD_BYTES;
        let last = (self.log_bytes - 1) / PAGE_BYTES;
        steps.extend((first..=last).map(|page| touch(LOG + page, true, false)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::PageAccess;
    use std::collections::BTreeSet;

    const SMALL: IndexedYcsb = IndexedYcsb {
        records: 12_000,
        updates_percent: 5,
        cache_pages: 600,
        eviction: Eviction::Young,
        dropped_percent: 0,
        heap_pages: 3,
        old_log_pages: 2,
        inserts: false,
        sync_every: 100,
        compute_micros: 10,
    };

    fn steps(ycsb: IndexedYcsb, operations: u64) -> Vec<Step> {
        let (mut store, mut steps) = (IndexedOperations::new(ycsb, 7), Vec::new());
        (0..operations).for_each(|_| store.next(&mut steps));
        steps
    }

    /// Pages of a file that were read or written.
    fn pages(steps: &[Step], file: u64, write: bool) -> Vec<u64> {
        let page = |step: &Step| match step {
            Step::Touch(touch) if !touch.anon && touch.write == write && touch.page >> 32 == file >> 32 => {
                Some(touch.page - file)
            }
            _ => None,
        };
        steps.iter().filter_map(page).collect()
    }

    fn syncs(steps: &[Step], file: u64) -> usize {
        steps.iter().filter(|step| matches!(step, Step::Sync { page } if *page == file)).count()
    }

    #[test]
    fn an_operation_reads_a_leaf_of_the_index_and_one_of_the_collection() {
        let steps = steps(SMALL, 1);
        assert_eq!(pages(&steps, COLLECTION.file, false).len(), 7);
        assert_eq!(pages(&steps, INDEX.file, false).len(), 4);
        let requests = steps.iter().filter(|step| matches!(step, Step::Request { .. }));
        assert_eq!(requests.count(), 2);
    }

    /// A change whose leaf is not in the engine's cache reads it twice, and a read once.
    #[test]
    fn a_change_reads_a_leaf_twice_that_is_dropped_in_between() {
        for (updates_percent, dropped_percent, reads) in [(0, 100, 7), (100, 0, 7), (100, 100, 14)] {
            let ycsb = IndexedYcsb { updates_percent, dropped_percent, ..SMALL };
            let mut store = IndexedOperations::new(ycsb, 7);
            let mut first = Vec::new();
            store.next(&mut first);
            let read = pages(&first, COLLECTION.file, false);
            assert_eq!(read.len(), reads);
            assert_eq!(read[..7], read[reads - 7..], "the same pages");
            assert_eq!(store.collection.cached_pages(), 7);
            // A change of a leaf that is there reads nothing.
            let leaf = store.collection.cached[0];
            let mut steps = Vec::new();
            store.collection.visit_and_drop(leaf, 0, &mut steps);
            assert_eq!(steps, []);
        }
    }

    /// The engine has as many pages in memory as it may have, and each belongs to one leaf.
    #[test]
    fn the_cache_has_its_size() {
        let mut store = IndexedOperations::new(SMALL, 7);
        let mut steps = Vec::new();
        for _ in 0..3000 {
            store.next(&mut steps);
            for tree in [&store.collection, &store.index] {
                let cached: BTreeSet<usize> = tree.cached.iter().copied().collect();
                let placed = (0..tree.leaves.len()).filter(|&leaf| tree.leaves[leaf].place.is_some());
                assert!(placed.eq(cached.iter().copied()));
                let places: BTreeSet<_> = cached.iter().map(|&leaf| tree.leaves[leaf].place).collect();
                assert_eq!(places.len(), tree.cached.len());
            }
            assert!(store.cached_pages() <= 600 + 37);
        }
        assert!(store.cached_pages() > 600 - 37 - 7);
    }

    #[test]
    fn changed_leaves_go_to_a_free_place_and_a_checkpoint_frees_the_old_one() {
        let mut tree = Tree::new(COLLECTION, 24 * 10, true);
        let mut steps = Vec::new();
        tree.visit(3, 0, true, &mut steps);
        tree.evict(0, &mut steps);
        assert_eq!(pages(&steps, COLLECTION.file, true), (70..77).collect::<Vec<_>>(), "at the end");
        assert_eq!((tree.leaves[3].extent, tree.file.free_places()), (Some(10), 0));
        tree.checkpoint(&mut steps);
        assert_eq!(syncs(&steps, COLLECTION.file), 1);
        steps.clear();
        tree.visit(5, 0, true, &mut steps);
        tree.checkpoint(&mut steps);
        assert_eq!(pages(&steps, COLLECTION.file, true), (21..28).collect::<Vec<_>>(), "where leaf 3 was");
        assert_eq!(tree.leaves[5].place, Some(0), "a checkpoint evicts nothing");
        steps.clear();
        tree.evict(0, &mut steps);
        assert_eq!(steps, [], "it is clean");
    }

    /// Half of them are gone once a third of the cache was read, or two thirds of it.
    #[test]
    fn leaves_in_constant_use_are_evicted_after_the_measured_times() {
        for (eviction, expected) in [(Eviction::Young, 0.2..0.45), (Eviction::Any, 0.6..0.85)] {
            let mut store = IndexedOperations::new(
                IndexedYcsb { updates_percent: 0, cache_pages: 1100, eviction, ..SMALL },
                7,
            );
            let (mut reads, mut steps, mut ages) = (0, Vec::new(), Vec::new());
            let mut brought = vec![0; store.collection.leaves.len()];
            for _ in 0..20_000 {
                steps.clear();
                let before = store.collection.cached.clone();
                store.next(&mut steps);
                reads += u64::from(!pages(&steps, COLLECTION.file, false).is_empty());
                for &leaf in &store.collection.cached {
                    if !before.contains(&leaf) {
                        brought[leaf] = reads;
                    }
                }
                let gone = before.iter().filter(|leaf| !store.collection.cached.contains(leaf));
                ages.extend(gone.map(|&leaf| reads - brought[leaf]));
            }
            ages.sort_unstable();
            let median = ages[ages.len() / 2] as f64 / store.collection.cached.len() as f64;
            assert!(expected.contains(&median), "{eviction:?}: {median}");
        }
    }

    #[test]
    fn each_change_is_logged_and_the_log_is_synced() {
        let all = steps(IndexedYcsb { updates_percent: 100, ..SMALL }, 1000);
        let logged = pages(&all, LOG, true);
        assert_eq!(logged.last(), Some(&(1000 * RECORD_BYTES / PAGE_BYTES)));
        assert!(logged.is_sorted() && logged.len() >= 1000);
        assert_eq!((syncs(&all, LOG), syncs(&all, COLLECTION.file)), (10, 0));
        let none = steps(IndexedYcsb { updates_percent: 0, ..SMALL }, 1000);
        assert_eq!(pages(&none, LOG, true).len(), 0);
    }

    /// Nothing is read before it was written, and every record can be read in the end.
    #[test]
    fn insertions_come_first_and_write_all_leaves() {
        let inserting = IndexedYcsb { inserts: true, ..SMALL };
        let store = IndexedOperations::new(inserting, 7);
        assert_eq!(store.insertions(), 12_000);
        let steps = steps(inserting, 14_000);
        let mut written = BTreeSet::new();
        for step in &steps {
            let Step::Touch(PageAccess { anon: false, write, page, .. }) = *step else { continue };
            if write {
                written.insert(page);
            }
            assert!(written.contains(&page), "{page:#x} is read before it is written");
        }
        assert!(pages(&steps, COLLECTION.file, true).len() >= 500 * 7);
    }

    #[test]
    fn opening_touches_other_memory_and_reads_the_old_log_repeatedly() {
        let mut steps = Vec::new();
        IndexedOperations::new(SMALL, 7).open(&mut steps);
        assert_eq!(pages(&steps, OLD_LOG, false), [0, 1].repeat(LOG_READS as usize));
        assert_eq!(steps.len() as u64, 3 + 2 * LOG_READS);
        assert_eq!(steps[0], touch(HEAP, true, true));
    }

    #[test]
    fn a_seed_repeats() {
        assert_eq!(steps(SMALL, 2000), steps(SMALL, 2000));
    }
}
