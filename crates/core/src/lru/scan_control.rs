//! The scan control of a reclaim effort: its orders, its progress, and the working memory of its
//! steps.
//!
//! Orders never change; progress only grows. A policy's turn and page-out share both as one
//! [`Context`].

use super::multigen::window::WalkBatch;
use super::{Shadow, Swappiness};
use crate::Core;
use crate::event::Sorted;
use crate::folio::{FolioId, GenIndex, Kind};
use crate::host::{Host, Throttle};
use crate::mapping::{Mapping, MappingId};
use crate::memcg::{Counter, Effective, Memcg, MemcgId};
use std::sync::Arc;

/// The first priority of an effort: it scans 1/4096 of each lruvec.
pub(crate) const PRIORITY_DEFAULT: u8 = 12;
/// A pass reclaims at least this many pages before it stops, whatever its goal.
const COMPACTION_GAP_PAGES: u64 = 2;
/// Free pages above the mark at which background reclaim stops in the middle of a pass.
const WATERMARK_SLACK_PAGES: u32 = 64;

/// The reason for an effort ([book: reclaim-loop#kinds-of-reclaim]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortKind {
    /// The node is below its low watermark: the background thread reclaims.
    Background,
    /// The node is below its min watermark: the allocating thread reclaims.
    Direct,
    /// A charge hit `memory.max`: the charging thread reclaims.
    Limit,
    /// A user requested it.
    Proactive,
}

impl EffortKind {
    pub(crate) fn pgscan(self) -> Counter {
        match self {
            EffortKind::Background => Counter::PgscanKswapd,
            EffortKind::Direct | EffortKind::Limit => Counter::PgscanDirect,
            EffortKind::Proactive => Counter::PgscanProactive,
        }
    }

    pub(crate) fn pgsteal(self) -> Counter {
        match self {
            EffortKind::Background => Counter::PgstealKswapd,
            EffortKind::Direct | EffortKind::Limit => Counter::PgstealDirect,
            EffortKind::Proactive => Counter::PgstealProactive,
        }
    }
}

/// Orders of a reclaim effort.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// The memcg whose subtree gives pages; the root for all pages.
    pub target: MemcgId,
    /// The reason.
    pub kind: EffortKind,
    /// Pages to reclaim.
    pub goal_pages: u64,
    /// The cost of file against anonymous pages.
    pub swappiness: Swappiness,
    /// The CPU that the effort runs on; its batches are drained.
    pub cpu: usize,
    /// Every memcg gives, even if enough was reclaimed before, as without the memcg LRU
    /// ([book: memcgs#before-memcg-lru]). Only for showing the effect of that.
    pub whole: bool,
    /// Takes no more than the goal: the last batch is as small as the rest. For requests of an
    /// exact number of pages; the kernel's batches are whole, and its goals at least 32.
    pub exact: bool,
}

impl Orders {
    /// The orders of an effort that stops at its goal.
    pub fn new(
        target: MemcgId,
        kind: EffortKind,
        goal_pages: u64,
        swappiness: Swappiness,
        cpu: usize,
    ) -> Orders {
        Orders { target, kind, goal_pages, swappiness, cpu, whole: false, exact: false }
    }

    /// The most pages that the next batch may take, given the progress.
    pub(crate) fn most_pages(&self, progress: Progress) -> u64 {
        if self.exact { self.goal_pages.saturating_sub(progress.reclaimed) } else { u64::MAX }
    }

    /// Whether the pages of all memcgs may be taken.
    pub fn is_root(&self) -> bool {
        self.target == MemcgId::ROOT
    }

    /// Whether a memcg is the reason, be it the root: reclaim is for a limit, or was requested. The
    /// node itself is not short.
    pub(crate) fn is_of_memcg(&self) -> bool {
        !self.is_root() || self.kind == EffortKind::Proactive
    }
}

/// Progress of an effort, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pages isolated and examined.
    pub scanned: u64,
    /// Pages freed.
    pub reclaimed: u64,
    /// Memcg visits; a memcg visited at several priorities counts several times.
    pub memcgs_visited: u64,
}

/// Obstacles of an effort, in pages ([book: eviction#verdicts]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    pub(crate) taken: u64,
    pub(crate) dirty: u64,
    pub(crate) unqueued_dirty: u64,
    pub(crate) congested: u64,
    pub(crate) writeback: u64,
    pub(crate) immediate: u64,
    /// Not an obstacle: pages whose swap-out began.
    pub(crate) swapped: u64,
}

impl Tallies {
    pub(crate) fn add(&mut self, other: &Tallies) {
        self.taken += other.taken;
        self.dirty += other.dirty;
        self.unqueued_dirty += other.unqueued_dirty;
        self.congested += other.congested;
        self.writeback += other.writeback;
        self.immediate += other.immediate;
        self.swapped += other.swapped;
    }
}

/// The last mapping used: folios that are neighbours on a list often belong to the same file.
#[derive(Debug, Default)]
pub(crate) struct LastMapping(Option<Arc<Mapping>>);

impl LastMapping {
    pub(crate) fn get(&mut self, core: &Core, id: MappingId) -> Option<&Arc<Mapping>> {
        if self.0.as_ref().is_none_or(|mapping| mapping.id() != id) {
            self.0 = core.mappings.get(id);
        }
        self.0.as_ref()
    }
}

/// Pages of one memcg that were isolated in a row and could not be freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stuck {
    memcg: Option<MemcgId>,
    pages: u64,
}

impl Stuck {
    pub(crate) fn note(&mut self, memcg: MemcgId, pages: u64) {
        *self = Stuck { memcg: Some(memcg), pages: self.pages_of(memcg) + pages };
    }

    pub(crate) fn pages_of(&self, memcg: MemcgId) -> u64 {
        if self.memcg == Some(memcg) { self.pages } else { 0 }
    }
}

/// The working state of an effort: its progress, and memory that its steps reuse.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) progress: Progress,
    pub(crate) tallies: Tallies,
    /// Classic: scan active lists in any case.
    pub(crate) force_deactivation: bool,
    /// Classic: an active list should have been scanned, but was not.
    pub(crate) skipped_deactivation: bool,
    /// Classic: background reclaim does not spare anonymous pages for the sake of inactive file
    /// pages, since no pass that did freed any.
    pub(crate) no_cache_trim: bool,
    /// `memory.low` protected some pages. `low_override`: the effort found nothing else and now
    /// takes them, too.
    pub(crate) low_skipped: bool,
    pub(crate) low_override: bool,
    /// Present while the effort owns a walk context: from aging an lruvec to the end of that
    /// lruvec's turn, or for the node, of the pass.
    pub(crate) walk: Option<WalkBatch>,
    /// The folios isolated last, to be examined.
    pub(crate) batch: Isolated,
    /// Isolated folios that were not freed, to be put back.
    pub(crate) rejected: Vec<FolioId>,
    /// Working memory of put-back: folios, and whether they are unevictable.
    pub(crate) back: Vec<(FolioId, bool)>,
    pub(crate) last_mapping: LastMapping,
    /// Ranked: newcomers of a memcg that this effort could not free, in a row.
    pub(crate) stuck: Stuck,
}

impl Scan {
    /// Clears the obstacles for the next pass over the node.
    pub(crate) fn reset_tallies(&mut self) {
        self.tallies = Tallies::default();
    }

    /// Takes the empty batch for an isolation. Forgets the last mapping: between steps the file may
    /// have been closed and its number reused.
    pub(super) fn take_batch(&mut self, host: &impl Host) -> Isolated {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.observed = host.observes();
        self.last_mapping = LastMapping::default();
        batch
    }
}

/// The context of a reclaim step: core and host, orders and working state.
pub(crate) struct Context<'a, H> {
    pub(crate) core: &'a Core,
    pub(crate) host: &'a H,
    pub(crate) orders: &'a Orders,
    pub(crate) scan: &'a mut Scan,
}

impl<'a, H: Host> Context<'a, H> {
    pub(crate) fn new(core: &'a Core, host: &'a H, orders: &'a Orders, scan: &'a mut Scan) -> Context<'a, H> {
        Context { core, host, orders, scan }
    }

    /// Whether enough was reclaimed to stop in the middle of a pass
    /// ([book: reclaim-loop#abort-test]).
    pub(crate) fn should_stop(&self) -> bool {
        let Context { core, orders, .. } = self;
        let background = orders.kind == EffortKind::Background;
        if background && core.habits().finishes_passes && !core.mechanisms().subtree_lru() {
            // A walk over the tree visits every memcg.
            return false;
        }
        let gap = if orders.exact { 0 } else { COMPACTION_GAP_PAGES };
        if self.scan.progress.reclaimed >= orders.goal_pages.max(gap) {
            return true;
        }
        background && core.node.has_plenty(WATERMARK_SLACK_PAGES)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PagedOut {
    /// Obstacles that kept the other folios.
    pub(crate) tallies: Tallies,
    /// Pages freed. The other folios are in [`Scan::rejected`].
    pub(crate) freed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Isolated {
    /// The folios in the order of isolation, in which they are examined.
    pub(crate) folios: Vec<FolioId>,
    /// Number of isolated folios, including those to be examined once more.
    pub(crate) taken: u64,
    /// Folios set aside because they could not be isolated; empty between scans.
    pub(crate) skipped: Vec<FolioId>,
    pub(crate) kind: Option<Kind>,
    /// Pages scanned: sorted, isolated and skipped. [`LockedLruvec::isolate`](super::LockedLruvec)
    /// says what counted before the reclaim loop of 7.2.
    pub(crate) scanned: u64,
    /// Pages that were sorted to their generation instead.
    pub(crate) sorted: u64,
    /// Sorted pages that moved up because of their tier.
    pub(crate) protected: u64,
    /// Sorted pages that are dirty file pages, which 7.1 does not isolate.
    pub(crate) dirty: u64,
    /// Dirty pages that are not under writeback.
    pub(crate) unqueued_dirty: u64,
    /// Whether the host observes folios.
    pub(crate) observed: bool,
    /// If observed: the sorted folios, their new generations and the reasons.
    pub(crate) sorted_folios: Vec<(FolioId, GenIndex, Sorted)>,
}

impl Isolated {
    /// Empties it for the next batch and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.folios.clear();
        self.skipped.clear();
        self.sorted_folios.clear();
        let Isolated { kind, taken, scanned, sorted, protected, dirty, unqueued_dirty, .. } = self;
        (*kind, *taken, *scanned, *sorted, *protected, *dirty, *unqueued_dirty) = (None, 0, 0, 0, 0, 0, 0);
    }

    /// Records a sorted folio for an observer.
    #[inline]
    pub(crate) fn note_sorted(&mut self, folio: FolioId, to: GenIndex, why: Sorted) {
        if self.observed {
            self.sorted_folios.push((folio, to, why));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnStep {
    /// Call again; other threads may run before.
    More,
    Wait(Throttle),
    /// Folios are isolated in [`Scan::batch`]: examine them, free what can be freed, and give the
    /// rest to [`Turn::put_back`](super::Turn::put_back).
    PageOut,
    Finished,
}

/// The memcg of a turn, and how to scan it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) memcg: &'a Memcg,
    pub(crate) spared: Effective,
    pub(crate) priority: u8,
    /// Memcgs have turns by the age of their pages: one that has only pages in use gives nothing.
    pub(crate) by_age: bool,
    /// The memcg was in use lately, and what the coldest gives is not missed: the turn is to find
    /// out whether it still is.
    pub(crate) only_looks: bool,
}

/// A page that returns while its shadow exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refault<'a> {
    pub(crate) folio: FolioId,
    pub(crate) kind: Kind,
    /// The memcg that pays for it now.
    pub(crate) memcg: &'a Memcg,
    pub(crate) shadow: Shadow,
    pub(crate) in_fault: bool,
    /// Readahead brings it in.
    pub(crate) ahead: bool,
}
