//! The lists and ages of one memcg on the node.
//!
//! # Locking
//!
//! `lists` is the lruvec lock: [`Lruvec::lock`] hands out the only way to change lists, window,
//! averages and costs. Where one lock is to cover all lists of the node, that is held, too. Sizes,
//! window and the counters of evictions and refaults are atomic words that are *written* under the
//! lock (evictions and refaults: by anyone) and read by anyone.

use super::classic::state::{Classic, Costs};
use super::multigen::bloom::Filters;
use super::multigen::window::{Averages, GENERATION_LISTS, Seq, Window};
use super::ranked::RankedOnUse;
use super::{MAX_GENERATIONS, Swappiness};
use crate::Time;
use crate::folio::{FolioId, FolioLists, FolioTable, GenIndex, Kind};
use crate::mapping::ShadowLeaf;
use crate::memcg::MemcgId;
use crate::sync::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, LockCounts, Mutex, MutexGuard, Ordering::Relaxed,
};
use std::collections::VecDeque;

/// Lists of generations, active and inactive lists × kinds, and the unevictable list.
const LISTS: usize = RANKED_LISTS + 4 + if cfg!(test) { 2 } else { 0 };
/// The list of folios that must not be reclaimed, of both policies.
pub(crate) const UNEVICTABLE: usize = GENERATION_LISTS + 4;
/// Where newcomers and main lists × kinds begin.
pub(super) const RANKED_LISTS: usize = UNEVICTABLE + 1;
/// Where the lists of the policy for tests begin, by kind.
#[cfg(test)]
pub(super) const FIFO_LISTS: usize = RANKED_LISTS + 4;

/// What the lruvec lock protects. By default right behind the lock: 128 bytes apart (`lock_apart`,
/// for the benchmark) gained 6.8 % in ten rounds and 1.0 % in sixteen on two cores, and would make
/// an empty tenant larger than 2 KiB (docs/experiments/lru-lock.md).
#[derive(Debug)]
#[cfg_attr(lruvec_layout = "lock_apart", repr(align(128)))]
pub(crate) struct Lists {
    pub(crate) lists: FolioLists<LISTS>,
    /// Of the multi-gen LRU.
    pub(crate) averages: [Averages; 2],
    /// Of the classic LRU.
    pub(crate) costs: Costs,
    /// Of the lock itself.
    pub(super) lock: LockCounts,
}

impl Lists {
    pub(super) fn new() -> Lists {
        Lists {
            lists: FolioLists::new(),
            averages: Default::default(),
            costs: Costs::default(),
            lock: LockCounts::default(),
        }
    }
}

/// Numbers of all lists.
pub(crate) fn all_lists() -> std::ops::Range<usize> {
    0..LISTS
}

/// One generation, as `lru_gen` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationRow {
    /// Its birth number.
    pub seq: u64,
    /// Time since it was opened.
    pub age_ms: u64,
    /// Anonymous pages labelled with it.
    pub anon_pages: u64,
    /// File pages labelled with it.
    pub file_pages: u64,
}

/// The lists of one memcg.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lruvec {
    pub(crate) memcg: MemcgId,
    lists: Mutex<Lists>,
    pub(crate) window: Window,
    /// Pages labelled with each generation, by kind. May be negative for a moment.
    sizes: [[AtomicI64; 2]; MAX_GENERATIONS as usize],
    unevictable_pages: AtomicI64,
    pub(crate) evicted: [[AtomicU64; 4]; 2],
    pub(crate) refaulted: [[AtomicU64; 4]; 2],
    pub(crate) filters: Filters,
    /// What the last walks found: leaves, young ones, tables in the filter, tables added to it.
    walked: [AtomicU64; 4],
    /// Leaves that all walks found.
    walked_entries: AtomicU64,
    pub(crate) shadow_leaves: Mutex<VecDeque<ShadowLeaf>>,
    /// As how many it is known to those who drop them: see [`Core::give_up_shadows`](crate::Core).
    pub(crate) shadow_group: AtomicU32,
    pub(crate) classic: Classic,
    pub(crate) ranked: RankedOnUse,
    #[cfg(test)]
    pub(super) fifo: super::fifo::Fifo,
    /// Limit reclaim met only dirty pages under write-back ([book: writeback#throttling]).
    pub(crate) congested: AtomicBool,
}

fn zeros() -> [[AtomicU64; 4]; 2] {
    std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)))
}

impl Lruvec {
    pub(crate) fn new(memcg: MemcgId, now: Time) -> Lruvec {
        Lruvec {
            memcg,
            lists: Mutex::new(Lists::new()),
            window: Window::new(now),
            sizes: std::array::from_fn(|_| std::array::from_fn(|_| AtomicI64::new(0))),
            unevictable_pages: AtomicI64::new(0),
            evicted: zeros(),
            refaulted: zeros(),
            filters: Filters::new(),
            walked: std::array::from_fn(|_| AtomicU64::new(0)),
            walked_entries: AtomicU64::new(0),
            shadow_leaves: Mutex::new(VecDeque::new()),
            shadow_group: AtomicU32::new(0),
            classic: Classic::new(),
            ranked: RankedOnUse::default(),
            #[cfg(test)]
            fifo: Default::default(),
            congested: AtomicBool::new(false),
        }
    }

    /// As new, for the next memcg of that number. The lists are empty.
    pub(crate) fn reset(&self, now: Time) {
        *self.lists.lock() = Lists::new();
        self.classic.reset();
        self.ranked.reset();
        self.window.reset(now);
        self.sizes.iter().flatten().for_each(|size| size.store(0, Relaxed));
        self.unevictable_pages.store(0, Relaxed);
        self.evicted.iter().chain(&self.refaulted).flatten().for_each(|count| count.store(0, Relaxed));
        self.forget_walks();
        self.walked_entries.store(0, Relaxed);
        self.shadow_leaves.lock().clear();
        self.congested.store(false, Relaxed);
    }

    /// What walks found since the youngest generation was begun: leaves, young ones, tables that
    /// the filter told of, and tables added to the next.
    pub(crate) fn walked(&self) -> [u64; 4] {
        std::array::from_fn(|at| self.walked[at].load(Relaxed))
    }

    /// Page-table entries that walks looked at since the memcg was made: a measure of how long they
    /// take.
    pub fn walked_entries(&self) -> u64 {
        self.walked_entries.load(Relaxed)
    }

    pub(crate) fn count_walked(&self, found: [u64; 4]) {
        self.walked_entries.fetch_add(found[0], Relaxed);
        self.walked.iter().zip(found).for_each(|(count, found)| _ = count.fetch_add(found, Relaxed));
    }

    pub(crate) fn forget_walks(&self) {
        self.walked.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Takes the lruvec lock.
    pub(crate) fn lock<'a>(&'a self, folios: &'a FolioTable) -> LockedLruvec<'a> {
        let node = folios.node_lock();
        LockedLruvec {
            lruvec: self,
            folios,
            lists: self.lock_lists(),
            listed: Default::default(),
            _node: node,
        }
    }

    /// The same for who holds the lock of another lruvec.
    pub(crate) fn lock_beside<'a>(&'a self, other: &LockedLruvec<'a>) -> LockedLruvec<'a> {
        let folios = other.folios;
        LockedLruvec {
            lruvec: self,
            folios,
            lists: self.lock_lists(),
            listed: Default::default(),
            _node: None,
        }
    }

    fn lock_lists(&self) -> MutexGuard<'_, Lists> {
        let (mut lists, waited) = self.lists.lock_noting();
        lists.lock.count(waited);
        lists
    }

    /// How often the lruvec lock was taken since the memcg was made.
    pub fn lock_counts(&self) -> LockCounts {
        self.lists.lock().lock
    }

    /// Whether somebody holds the lruvec lock now: asked often enough, the share of time that it is
    /// held.
    pub fn is_locked(&self) -> bool {
        self.lists.try_lock().is_none()
    }

    /// Pages labelled with a generation.
    pub(crate) fn size(&self, generation: GenIndex, kind: Kind) -> u64 {
        self.sizes[usize::from(generation.0)][kind as usize].load(Relaxed).max(0) as u64
    }

    /// Pages in all generations of the kinds that `swappiness` allows.
    pub(crate) fn pages_in_generations(&self, swappiness: Swappiness) -> u64 {
        let max = self.window.max();
        let size = |kind| self.window.min(kind).to(max).map(|seq| self.size(seq.index(), kind)).sum::<u64>();
        swappiness.evictable().map(size).sum()
    }

    /// Pages labelled with any generation, of both kinds.
    pub(super) fn labelled_pages(&self) -> u64 {
        let labelled = self.sizes.iter().flatten().map(|size| size.load(Relaxed)).sum::<i64>();
        labelled.max(0) as u64
    }

    pub(super) fn pages_in_active_generations(&self, kind: Kind) -> u64 {
        let max = self.window.max();
        Seq(max.0 - 1).to(max).map(|seq| self.size(seq.index(), kind)).sum()
    }

    /// Evictions and activations by the classic LRU, here and below, in pages: the clock by which
    /// refaults are judged.
    pub fn nonresident_age(&self) -> u64 {
        self.classic.nonresident_age()
    }

    /// Pages that reclaim must not take.
    pub fn unevictable_pages(&self) -> u64 {
        self.unevictable_pages.load(Relaxed).max(0) as u64
    }

    pub(crate) fn size_of_all_lists(&self) -> u64 {
        let listed = Kind::ALL.map(|kind| self.active_pages(kind) + self.inactive_pages(kind));
        listed.iter().sum::<u64>() + self.unevictable_pages()
    }

    /// The youngest generation.
    pub fn max_seq(&self) -> Seq {
        self.window.max()
    }

    /// The oldest generation of a kind.
    pub fn min_seq(&self, kind: Kind) -> Seq {
        self.window.min(kind)
    }

    /// The live generations, oldest first, with the columns of `lru_gen`
    /// ([book: control-files#lru-gen-read]).
    pub fn generations(&self, now: Time) -> Vec<GenerationRow> {
        let max = self.window.max();
        let min = self.window.min(Kind::Anon).min(self.window.min(Kind::File));
        min.to(max)
            .map(|seq| {
                let pages =
                    |kind| if seq >= self.window.min(kind) { self.size(seq.index(), kind) } else { 0 };
                GenerationRow {
                    seq: seq.0,
                    age_ms: now.since(self.window.birth(seq)).as_millis() as u64,
                    anon_pages: pages(Kind::Anon),
                    file_pages: pages(Kind::File),
                }
            })
            .collect()
    }
}

/// An lruvec whose lock is held. The concepts of the policy each add their methods in their own
/// file.
pub(crate) struct LockedLruvec<'a> {
    pub(crate) lruvec: &'a Lruvec,
    pub(crate) folios: &'a FolioTable,
    pub(crate) lists: MutexGuard<'a, Lists>,
    /// What the node as a whole has to be told: pages listed, by kind, and of them the active ones.
    pub(super) listed: [[i64; 2]; 2],
    _node: Option<MutexGuard<'a, LockCounts>>,
}

impl Drop for LockedLruvec<'_> {
    fn drop(&mut self) {
        for kind in Kind::ALL {
            let [pages, active] = self.listed[kind as usize];
            if (pages, active) != (0, 0) {
                self.folios.listed().change(kind, pages, active);
            }
        }
    }
}

impl LockedLruvec<'_> {
    pub(crate) fn resize(&mut self, generation: GenIndex, kind: Kind, pages: i64) {
        // Only the holder of the lock writes sizes, so no read-modify-write is needed.
        let size = &self.lruvec.sizes[usize::from(generation.0)][kind as usize];
        size.store(size.load(Relaxed) + pages, Relaxed);
        let [all, active] = &mut self.listed[kind as usize];
        *all += pages;
        let max = self.lruvec.window.max();
        if generation == max.index() || generation == Seq(max.0 - 1).index() {
            *active += pages;
        }
    }

    /// Opens the next generation: what is active shifts by one.
    pub(crate) fn open_generation(&mut self, now: Time) {
        let before = Kind::ALL.map(|kind| self.active_words(kind));
        self.lruvec.window.open(now);
        for kind in Kind::ALL {
            self.listed[kind as usize][1] += self.active_words(kind) - before[kind as usize];
        }
    }

    /// The sizes of the active generations as they are: one is negative while a walk has not told
    /// of a folio yet that it relabelled, and that went since.
    fn active_words(&self, kind: Kind) -> i64 {
        let max = self.lruvec.window.max();
        let words = Seq(max.0 - 1).to(max).map(|seq| &self.lruvec.sizes[usize::from(seq.index().0)]);
        words.map(|size| size[kind as usize].load(Relaxed)).sum()
    }

    /// Moves everything to the old ends of the lists of `heir`, which has all generations: the same
    /// list of each keeps the same label. `relabel` is called for each folio.
    pub(crate) fn hand_over(&mut self, heir: &mut LockedLruvec<'_>, mut relabel: impl FnMut(FolioId)) {
        // A switch of the policy may have emptied the heir's lists of the other one, and never
        // looks at them again.
        self.move_to(self.folios.mechanisms().lru(), u32::MAX);
        for list in all_lists() {
            // From the young end, so that the oldest ends up last.
            while let Some(folio) = self.lists.lists.head(list) {
                self.lists.lists.remove(self.folios, folio);
                self.inherit(heir, list, folio);
                heir.lists.lists.push_tail(self.folios, list, folio);
                relabel(folio);
            }
        }
        self.hand_over_sizes(heir);
        let unevictable = self.lruvec.unevictable_pages.load(Relaxed);
        self.resize_unevictable(-unevictable);
        heir.resize_unevictable(unevictable);
    }

    /// What is counted in generations is counted in those of `heir`.
    pub(super) fn hand_over_generations(&mut self, heir: &mut LockedLruvec<'_>) {
        for generation in (0..MAX_GENERATIONS as u8).map(GenIndex) {
            for kind in Kind::ALL {
                let pages = self.lruvec.sizes[usize::from(generation.0)][kind as usize].load(Relaxed);
                self.resize(generation, kind, -pages);
                heir.resize(generation, kind, pages);
            }
        }
    }

    pub(crate) fn resize_unevictable(&mut self, pages: i64) {
        let size = &self.lruvec.unevictable_pages;
        size.store(size.load(Relaxed) + pages, Relaxed);
    }

    pub(crate) fn kind_of(&self, folio: FolioId) -> Kind {
        if self.folios.flags(folio).load().swapbacked() { Kind::Anon } else { Kind::File }
    }
}
