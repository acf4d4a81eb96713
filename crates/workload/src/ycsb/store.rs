//! Model of a document store: a tree of leaves in a file, and the engine's cache of leaves in
//! anonymous memory.
//!
//! The engine resembles WiredTiger with its defaults. It reads a leaf whole into the cache and
//! evicts the least recently used one. It writes a changed leaf whole: at eviction, at a
//! checkpoint, or, the oldest first, when more than a twentieth of the cache is dirty. Each write
//! goes to another place in the file: the lowest free place, or the end. The previous place becomes
//! free after the next checkpoint, which writes all changed leaves and syncs the file. Inner pages
//! stay in memory once read. Leaves do not split.

use super::leaf_file::{LeafFile, touch};
use crate::load::Step;
use std::collections::VecDeque;

/// Leaves below one inner page of 4 KiB.
const INNER_ENTRIES: u32 = 512;
/// The cache may be dirty up to one part in this many: a twentieth.
const DIRTY_SHARE: usize = 20;
/// End marker of a list.
const NONE: u32 = u32::MAX;

/// Number of the file of leaves, and of the region of the engine's cache.
const LEAVES: u64 = 1 << 32;
/// Number of the file of inner pages, and of the region of those in memory.
const INNER: u64 = 2 << 32;

/// A leaf in the engine's cache.
#[derive(Debug, Clone, Copy)]
struct Cached {
    leaf: u32,
    /// Number of the change that made it dirty; `None` if it is clean.
    dirty: Option<u64>,
    /// Neighbours in the list ordered by last use.
    newer: u32,
    older: u32,
}

/// State of the store.
#[derive(Debug)]
pub(crate) struct Store {
    file: LeafFile,
    /// Place of each leaf in the file.
    extents: Vec<u32>,
    /// Cached leaves by place in the cache, which fills in order.
    cached: Vec<Cached>,
    places: usize,
    /// Place of each leaf in the cache.
    place_of: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Places in the order in which they became dirty, with the number of that change. Some are
    /// clean again, and may even have another dirty leaf.
    dirtied: VecDeque<(u32, u64)>,
    /// Number of changes that made a leaf dirty.
    changes: u64,
    dirty: usize,
    inner_read: Vec<bool>,
}

impl Store {
    /// A store of `leaves` leaves whose engine caches at least one leaf.
    pub(crate) fn new(leaves: u32, leaf_pages: u32, cache_pages: u64) -> Store {
        let places = (cache_pages / u64::from(leaf_pages)).max(1) as usize;
        Store {
            file: LeafFile::new(LEAVES, leaf_pages, leaves),
            extents: (0..leaves).collect(),
            cached: Vec::new(),
            places,
            place_of: vec![NONE; leaves as usize],
            newest: NONE,
            oldest: NONE,
            dirtied: VecDeque::new(),
            changes: 0,
            dirty: 0,
            inner_read: vec![false; leaves.div_ceil(INNER_ENTRIES) as usize],
        }
    }

    pub(crate) fn leaves(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Reads a record in a leaf, and changes it if `write`. `record` identifies the record and
    /// selects its page.
    pub(crate) fn visit(&mut self, leaf: u32, record: u64, write: bool, steps: &mut Vec<Step>) {
        let inner = leaf / INNER_ENTRIES;
        if !std::mem::replace(&mut self.inner_read[inner as usize], true) {
            steps.push(touch(INNER | u64::from(inner), false, false));
            steps.push(touch(INNER | u64::from(inner), true, true));
        }
        steps.push(touch(INNER | u64::from(inner), false, true));
        let place = match self.place_of[leaf as usize] {
            NONE => self.bring(leaf, steps),
            place => {
                self.unlink(place);
                place
            }
        };
        self.link(place);
        steps.push(touch(self.file.page_of_entry(place, record), write, true));
        let dirty = &mut self.cached[place as usize].dirty;
        if write && dirty.is_none() {
            *dirty = Some(self.changes);
            self.dirtied.push_back((place, self.changes));
            self.changes += 1;
            self.dirty += 1;
        }
        while self.dirty * DIRTY_SHARE > self.places.max(DIRTY_SHARE) {
            self.write_oldest_dirty(steps);
        }
    }

    /// Writes all changed leaves, and syncs the file.
    pub(crate) fn checkpoint(&mut self, steps: &mut Vec<Step>) {
        while self.dirty > 0 {
            self.write_oldest_dirty(steps);
        }
        // Those that are left were written when they were evicted.
        self.dirtied.clear();
        self.file.sync(steps);
    }

    fn bring(&mut self, leaf: u32, steps: &mut Vec<Step>) -> u32 {
        let fresh = Cached { leaf, dirty: None, newer: NONE, older: NONE };
        let place = if self.cached.len() < self.places {
            self.cached.push(fresh);
            self.cached.len() as u32 - 1
        } else {
            let place = self.oldest;
            self.write(place, steps);
            self.unlink(place);
            self.place_of[self.cached[place as usize].leaf as usize] = NONE;
            self.cached[place as usize] = fresh;
            place
        };
        self.place_of[leaf as usize] = place;
        self.file.bring(Some(self.extents[leaf as usize]), place, steps);
        place
    }

    fn write_oldest_dirty(&mut self, steps: &mut Vec<Step>) {
        let place = loop {
            let (place, change) = self.dirtied.pop_front().expect("every dirty leaf is queued");
            if self.cached[place as usize].dirty == Some(change) {
                break place;
            }
        };
        self.write(place, steps);
    }

    /// Writes the leaf in a place if it is dirty.
    fn write(&mut self, place: u32, steps: &mut Vec<Step>) {
        let cached = &mut self.cached[place as usize];
        if cached.dirty.take().is_none() {
            return;
        }
        self.dirty -= 1;
        let extent = &mut self.extents[cached.leaf as usize];
        *extent = self.file.write(place, Some(*extent), steps);
    }

    /// Removes a place from the list ordered by last use.
    fn unlink(&mut self, place: u32) {
        let Cached { newer, older, .. } = self.cached[place as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.cached[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.cached[older as usize].newer = newer,
        }
    }

    /// Makes a place the most recently used.
    fn link(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        match older {
            NONE => self.oldest = place,
            older => self.cached[older as usize].newer = place,
        }
        let cached = &mut self.cached[place as usize];
        (cached.newer, cached.older) = (NONE, older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(steps: &[Step]) -> Vec<(u64, bool)> {
        let of_leaves = |step: &Step| match step {
            Step::Touch(touch) if !touch.anon && touch.page >> 32 == 1 => {
                Some((touch.page & 0xffff_ffff, touch.write))
            }
            _ => None,
        };
        steps.iter().filter_map(of_leaves).collect()
    }

    fn visit(store: &mut Store, leaf: u32, write: bool) -> Vec<(u64, bool)> {
        let mut steps = Vec::new();
        store.visit(leaf, 0, write, &mut steps);
        file(&steps)
    }

    #[test]
    fn the_leaf_that_was_not_used_longest_goes() {
        let mut store = Store::new(10, 2, 4);
        assert_eq!(visit(&mut store, 3, false), [(6, false), (7, false)]);
        assert_eq!(visit(&mut store, 4, false), [(8, false), (9, false)]);
        assert_eq!(visit(&mut store, 3, false), []);
        assert_eq!(visit(&mut store, 5, false).len(), 2);
        assert_eq!(visit(&mut store, 3, false), [], "4 went");
        assert_eq!(visit(&mut store, 4, false).len(), 2);
    }

    #[test]
    fn changed_leaves_go_to_another_place_that_is_free_after_a_checkpoint() {
        let mut store = Store::new(10, 1, 2);
        assert_eq!(visit(&mut store, 0, true), [(0, false)]);
        // The second dirty leaf exceeds the limit: the first is written after the end of the file.
        assert_eq!(visit(&mut store, 1, true), [(1, false), (10, true)]);
        assert_eq!(visit(&mut store, 0, true), [(11, true)], "leaf 1 is written, 0 is dirty anew");
        let mut steps = Vec::new();
        store.checkpoint(&mut steps);
        assert_eq!(file(&steps), [(12, true)]);
        assert!(matches!(steps.last(), Some(Step::Sync { page: LEAVES })));
        assert_eq!(visit(&mut store, 0, true), []);
        assert_eq!(visit(&mut store, 1, true), [(0, true)], "the lowest of the free places");
        assert_eq!(store.extents[..2], [0, 11]);
    }

    /// The queue of dirty leaves grew with each that was written at its eviction.
    #[test]
    fn a_checkpoint_forgets_leaves_that_were_evicted() {
        let mut store = Store::new(200, 1, 100);
        for round in 0..50 {
            visit(&mut store, round, true);
            (100..200).for_each(|leaf| _ = visit(&mut store, leaf, false));
            assert_eq!((store.dirty, store.dirtied.len()), (0, 1));
            store.checkpoint(&mut Vec::new());
        }
        assert_eq!(store.dirtied.len(), 0);
    }

    /// The place of a leaf that was written at its eviction stayed queued, and the leaf that got it
    /// was written before older ones.
    #[test]
    fn the_leaf_that_became_dirty_first_is_written_first() {
        let mut store = Store::new(100, 1, 40);
        visit(&mut store, 0, true);
        (1..=40).for_each(|leaf| _ = visit(&mut store, leaf, false));
        assert_eq!(store.place_of[40], 0, "it has the place of leaf 0");
        assert_eq!(visit(&mut store, 1, true), []);
        assert_eq!(visit(&mut store, 40, true), []);
        assert_eq!(visit(&mut store, 2, true), [(101, true)], "the third is too many");
        assert_eq!([store.extents[1], store.extents[40]], [101, 40]);
    }

    #[test]
    fn a_leaf_is_read_and_written_in_one_request() {
        let mut store = Store::new(10, 8, 8);
        let mut steps = Vec::new();
        store.visit(2, 0, true, &mut steps);
        store.visit(5, 0, false, &mut steps);
        let mut requests = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let Step::Request { pages } = *step else { continue };
            let part = &steps[at + 1..=at + pages as usize];
            let Step::Touch(first) = part[0] else { panic!("a request has touches: {part:?}") };
            assert!((0..).zip(part).all(|(n, step)| *step == touch(first.page + n, first.write, false)));
            requests.push((first.page - LEAVES, first.write, pages));
        }
        assert_eq!(requests, [(16, false, 8), (80, true, 8), (40, false, 8)]);
    }

    #[test]
    fn a_dirty_leaf_that_must_go_is_written_first() {
        let mut store = Store::new(10, 1, 1);
        visit(&mut store, 0, true);
        assert_eq!(visit(&mut store, 1, false), [(10, true), (1, false)]);
        assert_eq!(visit(&mut store, 0, false), [(10, false)]);
    }

    #[test]
    fn a_cached_leaf_touches_its_page_of_the_cache_only() {
        let mut store = Store::new(10, 8, 80);
        visit(&mut store, 7, false);
        let mut steps = Vec::new();
        store.visit(7, 21, true, &mut steps);
        assert_eq!(steps, [touch(INNER, false, true), touch(LEAVES + 5, true, true)]);
    }
}
