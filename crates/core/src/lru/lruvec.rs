//! The lruvec: lists and ages of one memcg on the node.
//!
//! # Locking
//!
//! `lists` is the lruvec lock. [`Lruvec::lock`] gives the only access to lists, window, averages
//! and costs; where one lock covers all lists of the node, it takes that, too. Sizes and window are
//! atomic words, written under the lock and read without it. Counters of evictions and refaults are
//! also written without it.

use super::classic::state::{Classic, Costs};
use super::multigen::bloom::Filters;
use super::multigen::window::{Averages, GENERATION_LISTS, Seq, Window};
use super::ranked::{List, RankedOnUse};
use super::{MAX_GENERATIONS, Swappiness};
use crate::Time;
use crate::folio::{FolioId, FolioLists, FolioTable, GenIndex, Kind, ZONES_MAX};
use crate::mapping::ShadowLeaf;
use crate::memcg::MemcgId;
use crate::sync::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, LockCounts, Mutex, MutexGuard, Ordering::Relaxed,
};
use std::collections::VecDeque;

/// Number of lists: four generations, active and inactive, newcomers and main, each by kind, and
/// the unevictable list. Those of the lower zones' generations come after them.
pub(super) const LISTS: usize = super::ranked::FIRST_LIST + 4 + if cfg!(test) { 2 } else { 0 };
/// The first list of the policy for tests, by kind.
#[cfg(test)]
pub(super) const FIFO_LISTS: usize = super::ranked::FIRST_LIST + 4;

/// State under the lruvec lock, placed right behind it. Other layouts gain little, and 128 bytes in
/// between (`lock_apart`) make an empty memcg larger than 2 KiB ([book: experiments#layouts]).
#[derive(Debug)]
#[cfg_attr(lruvec_layout = "lock_apart", repr(align(128)))]
pub(crate) struct Lists {
    pub(crate) lists: FolioLists<LISTS>,
    /// Multi-gen LRU: averages of refault counts, by kind.
    pub(crate) averages: [Averages; 2],
    /// Classic LRU: costs.
    pub(crate) costs: Costs,
    /// Counts of the lock itself.
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

/// The lists with the lock that threads wait for.
///
/// With the layout `lock_behind`, that lock lies behind the lists, as in Linux since 5.11. The
/// mutex in front of the lists is then taken by the owner of that lock alone.
#[derive(Debug)]
#[cfg_attr(lruvec_layout = "lock_behind", repr(C))]
struct LockAndLists {
    lists: Mutex<Lists>,
    #[cfg(lruvec_layout = "lock_behind")]
    behind: Mutex<()>,
}

/// The lock as it is held.
struct HeldLists<'a> {
    lists: MutexGuard<'a, Lists>,
    #[cfg(lruvec_layout = "lock_behind")]
    behind: MutexGuard<'a, ()>,
}

impl LockAndLists {
    fn new() -> LockAndLists {
        LockAndLists {
            lists: Mutex::new(Lists::new()),
            #[cfg(lruvec_layout = "lock_behind")]
            behind: Mutex::new(()),
        }
    }

    /// Takes the lock, and counts that.
    #[cfg(not(lruvec_layout = "lock_behind"))]
    fn hold(&self) -> HeldLists<'_> {
        let (mut lists, waited) = self.lists.lock_noting();
        lists.lock.count(waited);
        HeldLists { lists }
    }

    #[cfg(lruvec_layout = "lock_behind")]
    fn hold(&self) -> HeldLists<'_> {
        let (behind, waited) = self.behind.lock_noting();
        let mut lists = self.lists.lock();
        lists.lock.count(waited);
        HeldLists { lists, behind }
    }

    /// As [`Self::hold`], unless another thread holds the lock.
    fn try_hold(&self) -> Option<HeldLists<'_>> {
        #[cfg(lruvec_layout = "lock_behind")]
        let behind = self.behind.try_lock()?;
        let mut lists = self.lists.try_lock()?;
        lists.lock.count(false);
        Some(HeldLists {
            lists,
            #[cfg(lruvec_layout = "lock_behind")]
            behind,
        })
    }

    /// Whether a thread holds the lock now.
    fn is_held(&self) -> bool {
        self.lists.try_lock().is_none()
    }
}

pub(crate) fn all_lists() -> std::ops::Range<usize> {
    0..LISTS + (ZONES_MAX - 1) * GENERATION_LISTS
}

/// One generation, as a row of `lru_gen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GenerationRow {
    /// Its sequence number.
    pub seq: u64,
    /// Time since its creation.
    pub age_ms: u64,
    /// Anonymous pages labelled with it.
    pub anon_pages: u64,
    /// File pages labelled with it.
    pub file_pages: u64,
}

/// One list of the policy `ranked`, as a row of `lru_gen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRow {
    /// `newcomers` or `main`.
    pub name: &'static str,
    /// Anonymous pages on it.
    pub anon_pages: u64,
    /// File pages on it.
    pub file_pages: u64,
}

/// The lists of one memcg.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lruvec {
    pub(crate) memcg: MemcgId,
    lists: LockAndLists,
    pub(crate) window: Window,
    /// Pages labelled with each generation, by kind. May be negative for a moment.
    sizes: [[AtomicI64; 2]; MAX_GENERATIONS as usize],
    unevictable_pages: AtomicI64,
    pub(crate) evicted: [[AtomicU64; 4]; 2],
    pub(crate) refaulted: [[AtomicU64; 4]; 2],
    pub(crate) filters: Filters,
    /// Results of the last walks: entries, young ones, tables in the filter, tables added to it.
    walked: [AtomicU64; 4],
    /// Page-table entries that all walks found.
    walked_entries: AtomicU64,
    pub(crate) shadow_leaves: Mutex<VecDeque<ShadowLeaf>>,
    /// Shadow-only leaves that calls to trim them left to later calls.
    pub(crate) deferred_leaves: AtomicU64,
    /// The size class under which the memcg is registered in [`Core::remembering`](crate::Core),
    /// for trimming shadows; 0: not registered.
    pub(crate) shadow_group: AtomicU32,
    pub(crate) classic: Classic,
    pub(crate) ranked: RankedOnUse,
    #[cfg(test)]
    pub(super) fifo: super::fifo::Fifo,
    /// Limit reclaim met only dirty pages under writeback ([book: writeback#throttling]).
    pub(crate) congested: AtomicBool,
}

fn zeros() -> [[AtomicU64; 4]; 2] {
    std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)))
}

impl Lruvec {
    pub(crate) fn new(memcg: MemcgId, now: Time) -> Lruvec {
        Lruvec {
            memcg,
            lists: LockAndLists::new(),
            window: Window::new(now),
            sizes: std::array::from_fn(|_| std::array::from_fn(|_| AtomicI64::new(0))),
            unevictable_pages: AtomicI64::new(0),
            evicted: zeros(),
            refaulted: zeros(),
            filters: Filters::new(),
            walked: std::array::from_fn(|_| AtomicU64::new(0)),
            walked_entries: AtomicU64::new(0),
            shadow_leaves: Mutex::new(VecDeque::new()),
            deferred_leaves: AtomicU64::new(0),
            shadow_group: AtomicU32::new(0),
            classic: Classic::new(),
            ranked: RankedOnUse::default(),
            #[cfg(test)]
            fifo: Default::default(),
            congested: AtomicBool::new(false),
        }
    }

    /// Resets everything, for the next memcg with this number. The lists must be empty. The
    /// entries elsewhere, filters and the group of shadows, went when the number became free.
    pub(crate) fn reset(&self, now: Time) {
        *self.lists.hold().lists = Lists::new();
        self.classic.reset();
        self.ranked.reset();
        self.window.reset(now);
        self.sizes.iter().flatten().for_each(|size| size.store(0, Relaxed));
        self.unevictable_pages.store(0, Relaxed);
        self.evicted.iter().chain(&self.refaulted).flatten().for_each(|count| count.store(0, Relaxed));
        self.forget_walks();
        self.walked_entries.store(0, Relaxed);
        self.shadow_leaves.lock().clear();
        self.deferred_leaves.store(0, Relaxed);
        self.congested.store(false, Relaxed);
    }

    /// Results of walks since the youngest generation was created: entries, young ones, tables
    /// found in the filter, and tables added to the next.
    pub(crate) fn walked(&self) -> [u64; 4] {
        std::array::from_fn(|at| self.walked[at].load(Relaxed))
    }

    /// Page-table entries that walks visited since the memcg was created: a measure of their
    /// duration.
    pub fn walked_entries(&self) -> u64 {
        self.walked_entries.load(Relaxed)
    }

    /// Steps of the main list's hand under the policy `ranked`.
    pub fn hand_steps(&self) -> u64 {
        self.ranked.hand_steps()
    }

    pub(crate) fn count_walked(&self, found: [u64; 4]) {
        self.walked_entries.fetch_add(found[0], Relaxed);
        self.walked.iter().zip(found).for_each(|(count, found)| _ = count.fetch_add(found, Relaxed));
    }

    pub(crate) fn forget_walks(&self) {
        self.walked.iter().for_each(|count| count.store(0, Relaxed));
    }

    pub(crate) fn lock<'a>(&'a self, folios: &'a FolioTable) -> LockedLruvec<'a> {
        let node = folios.node_lock();
        self.locked(folios, node)
    }

    /// As [`Self::lock`], unless another thread holds the lock.
    pub(crate) fn try_lock<'a>(&'a self, folios: &'a FolioTable) -> Option<LockedLruvec<'a>> {
        // One lock for all lists of the node is waited for: its cost is to be seen.
        let node = folios.node_lock();
        let held = self.lists.try_hold()?;
        Some(self.with_held(folios, held, node))
    }

    /// Takes the lruvec lock while another lruvec's is held.
    pub(crate) fn lock_beside<'a>(&'a self, other: &LockedLruvec<'a>) -> LockedLruvec<'a> {
        self.locked(other.folios, None)
    }

    fn locked<'a>(
        &'a self,
        folios: &'a FolioTable,
        node: Option<MutexGuard<'a, LockCounts>>,
    ) -> LockedLruvec<'a> {
        self.with_held(folios, self.lists.hold(), node)
    }

    fn with_held<'a>(
        &'a self,
        folios: &'a FolioTable,
        held: HeldLists<'a>,
        node: Option<MutexGuard<'a, LockCounts>>,
    ) -> LockedLruvec<'a> {
        LockedLruvec {
            lruvec: self,
            folios,
            lists: held.lists,
            #[cfg(lruvec_layout = "lock_behind")]
            _behind: held.behind,
            listed: Default::default(),
            _node: node,
        }
    }

    /// Counts of the lruvec lock since the memcg was created.
    pub fn lock_counts(&self) -> LockCounts {
        self.lists.lists.lock().lock
    }

    /// Whether a thread holds the lruvec lock now. Sampled often, this gives the share of time that
    /// it is held.
    pub fn is_locked(&self) -> bool {
        self.lists.is_held()
    }

    /// Pages labelled with a generation.
    pub(crate) fn size(&self, generation: GenIndex, kind: Kind) -> u64 {
        self.sizes[generation.as_usize()][kind as usize].load(Relaxed).max(0) as u64
    }

    /// Pages in all generations of the kinds that `swappiness` allows.
    pub(crate) fn pages_in_generations(&self, swappiness: Swappiness) -> u64 {
        let max = self.window.max();
        let size = |kind| self.window.min(kind).to(max).map(|seq| self.size(seq.index(), kind)).sum::<u64>();
        swappiness.evictable().map(size).sum()
    }

    /// Pages of both kinds labelled with any generation.
    pub(super) fn labelled_pages(&self) -> u64 {
        let labelled = self.sizes.iter().flatten().map(|size| size.load(Relaxed)).sum::<i64>();
        labelled.max(0) as u64
    }

    pub(super) fn pages_in_active_generations(&self, kind: Kind) -> u64 {
        let max = self.window.max();
        Seq(max.0 - 1).to(max).map(|seq| self.size(seq.index(), kind)).sum()
    }

    /// The classic LRU's clock of refaults: evictions and activations in the subtree, in pages.
    pub fn nonresident_age(&self) -> u64 {
        self.classic.nonresident_age()
    }

    /// Pages on the unevictable list.
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

    /// The lists of the policy `ranked`: newcomers, then the main list.
    pub fn ranked_lists(&self) -> [ListRow; 2] {
        [("newcomers", List::Newcomers), ("main", List::Main)].map(|(name, list)| {
            let [anon_pages, file_pages] = Kind::ALL.map(|kind| self.ranked.size(list, kind));
            ListRow { name, anon_pages, file_pages }
        })
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

/// A locked lruvec. Each part of a policy adds its methods in its own file.
pub(crate) struct LockedLruvec<'a> {
    pub(crate) lruvec: &'a Lruvec,
    pub(crate) folios: &'a FolioTable,
    pub(crate) lists: MutexGuard<'a, Lists>,
    /// Released after the lists.
    #[cfg(lruvec_layout = "lock_behind")]
    _behind: MutexGuard<'a, ()>,
    /// Changes to report to the node: listed pages by kind, and the active ones among them.
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
        // A plain store suffices: only the lock holder writes sizes.
        let size = &self.lruvec.sizes[generation.as_usize()][kind as usize];
        size.store(size.load(Relaxed) + pages, Relaxed);
        let [all, active] = &mut self.listed[kind as usize];
        *all += pages;
        let max = self.lruvec.window.max();
        if generation == max.index() || generation == Seq(max.0 - 1).index() {
            *active += pages;
        }
    }

    /// Opens the next generation, which shifts the active ones by one.
    pub(crate) fn open_generation(&mut self, now: Time) {
        let before = Kind::ALL.map(|kind| self.active_words(kind));
        self.lruvec.window.open(now);
        for kind in Kind::ALL {
            self.listed[kind as usize][1] += self.active_words(kind) - before[kind as usize];
        }
    }

    /// The raw size of the active generations. Negative while a walk has not yet reported a
    /// relabelled folio that was removed since.
    fn active_words(&self, kind: Kind) -> i64 {
        let max = self.lruvec.window.max();
        let words = Seq(max.0 - 1).to(max).map(|seq| &self.lruvec.sizes[seq.index().as_usize()]);
        words.map(|size| size[kind as usize].load(Relaxed)).sum()
    }

    /// Moves all folios to the old ends of the same lists of `heir`, which has all generations, so
    /// that labels stay valid. Calls `relabel` for each folio.
    pub(crate) fn hand_over(&mut self, heir: &mut LockedLruvec<'_>, mut relabel: impl FnMut(FolioId)) {
        // A policy switch may already have emptied the heir's lists of the other policy, and would
        // not visit them again.
        self.move_to(self.folios.mechanisms().lru(), u32::MAX);
        for list in all_lists() {
            // From the young end, so that the oldest folio ends up last.
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

    /// Moves the sizes of generations to those of `heir`.
    pub(super) fn hand_over_generations(&mut self, heir: &mut LockedLruvec<'_>) {
        for generation in (0..MAX_GENERATIONS as u8).map(GenIndex::new) {
            for kind in Kind::ALL {
                let pages = self.lruvec.sizes[generation.as_usize()][kind as usize].load(Relaxed);
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
        self.folios.flags(folio).load().kind()
    }
}
