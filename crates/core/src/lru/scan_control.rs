//! The scan control of a reclaim effort: what it was asked for, what it achieved, and the working
//! memory of its steps.
//!
//! What an effort was asked for never changes, what happened only grows. A policy's turn and what
//! becomes of the folios that it isolates see both as one [`Context`].

use super::multigen::window::WalkBatch;
use super::{Shadow, Swappiness};
use crate::Core;
use crate::event::Sorted;
use crate::folio::{Flags, FolioId, GenIndex, Kind};
use crate::host::{Host, Throttle};
use crate::mapping::{Mapping, MappingId};
use crate::memcg::{Counter, Effective, Memcg, MemcgId};
use std::sync::Arc;

/// Where an effort starts: it looks at 1/4096 of each lruvec.
pub(crate) const PRIORITY_DEFAULT: u8 = 12;
/// Fewest pages that an effort tries to reclaim.
pub(crate) const CLUSTER_PAGES: u64 = 32;
/// A pass does not stop before it reclaimed so many, whatever its goal.
const COMPACTION_GAP_PAGES: u64 = 2;
/// Free pages beyond the mark at which background reclaim stops in the middle of a pass.
const WATERMARK_SLACK_PAGES: u32 = 64;

/// Who reclaims, and why ([book: reclaim-loop#kinds-of-reclaim]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortKind {
    /// The node is below its low watermark: the background thread reclaims.
    Background,
    /// The node is below its min watermark: whoever allocates reclaims.
    Direct,
    /// A charge met `memory.max`: whoever is charged reclaims.
    Limit,
    /// Somebody asked for it.
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

/// What a reclaim effort is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// Whose pages: a memcg's, or with the root everybody's.
    pub target: MemcgId,
    /// Who asks.
    pub kind: EffortKind,
    /// Pages to reclaim.
    pub goal_pages: u64,
    /// Which kinds of pages.
    pub swappiness: Swappiness,
    /// The CPU on which it runs: whose batches are drained.
    pub cpu: usize,
    /// Everybody gives, even if enough was reclaimed before: as before there was a memcg LRU
    /// ([book: memcgs#before-memcg-lru]). False but to show what that did.
    pub whole: bool,
    /// No more is taken than the goal: the last batch is as small as what is left. Ours, where
    /// somebody asked for so many pages; the kernel's batches are whole, and its goals no smaller
    /// than 32.
    pub exact: bool,
}

impl Orders {
    /// What one effort is asked for; it stops when that is done.
    pub fn new(
        target: MemcgId,
        kind: EffortKind,
        goal_pages: u64,
        swappiness: Swappiness,
        cpu: usize,
    ) -> Orders {
        Orders { target, kind, goal_pages, swappiness, cpu, whole: false, exact: false }
    }

    /// What the next batch may take, after this was achieved.
    pub(crate) fn most_pages(&self, progress: Progress) -> u64 {
        if self.exact { self.goal_pages.saturating_sub(progress.reclaimed) } else { u64::MAX }
    }

    /// Whether everybody's pages may be taken.
    pub fn is_root(&self) -> bool {
        self.target == MemcgId::ROOT
    }
}

/// What an effort achieved so far, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Isolated and examined.
    pub scanned: u64,
    /// Freed.
    pub reclaimed: u64,
    /// Memcgs visited; one that was visited at several priorities counts as often.
    pub memcgs_visited: u64,
}

/// What stood in the way of an effort, in pages ([book: eviction#verdicts]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    pub(crate) taken: u64,
    pub(crate) dirty: u64,
    pub(crate) unqueued_dirty: u64,
    pub(crate) congested: u64,
    pub(crate) writeback: u64,
    pub(crate) immediate: u64,
    /// Not in the way: pages that began to be written to swap.
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

/// The mapping that was used last: folios that are neighbours on a list often belong to the same
/// file.
#[derive(Debug, Default)]
pub(crate) struct LastMapping(Option<Arc<Mapping>>);

impl LastMapping {
    pub(crate) fn get(&mut self, core: &Core, id: MappingId) -> Option<&Arc<Mapping>> {
        if self.0.as_ref().is_none_or(|mapping| mapping.id() != id) {
            self.0 = core.mappings.get(id);
        }
        self.0.as_ref()
    }

    /// Whether a folio in this state may be reclaimed at all: neither it nor its mapping is locked
    /// in memory.
    pub(crate) fn is_evictable(&mut self, core: &Core, folio: FolioId, flags: Flags) -> bool {
        let mapping = self.get(core, core.mapping_of(folio));
        !flags.mlocked() && !mapping.is_some_and(|mapping| mapping.is_unevictable())
    }
}

/// The working state of an effort: what it did, and memory that its steps reuse.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) progress: Progress,
    pub(crate) tallies: Tallies,
    /// Classic: active lists are scanned in any case.
    pub(crate) force_deactivation: bool,
    /// Classic: an active list was to be scanned, and was not.
    pub(crate) skipped_deactivation: bool,
    /// `memory.low` spared pages; and whether it does not any more, as nothing else was found.
    pub(crate) low_skipped: bool,
    pub(crate) low_override: bool,
    /// Present while this effort owns a walk context: after it aged an lruvec, to the end of that
    /// lruvec's turn.
    pub(crate) walk: Option<WalkBatch>,
    /// What was isolated last, and is to be examined.
    pub(crate) batch: Isolated,
    /// Isolated folios that are not freed, to be put back.
    pub(crate) rejected: Vec<FolioId>,
    /// Working memory of putting back: folios, and whether they are unevictable.
    pub(crate) back: Vec<(FolioId, bool)>,
    pub(crate) last_mapping: LastMapping,
}

impl Scan {
    /// Forgets what stood in the way, for the next pass over the node.
    pub(crate) fn reset_tallies(&mut self) {
        self.tallies = Tallies::default();
    }

    /// An empty batch, before something is isolated. Between steps the file of the last mapping may
    /// have been closed, and its number given to another.
    pub(super) fn take_batch(&mut self, host: &impl Host) -> Isolated {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.observed = host.observes();
        self.last_mapping = LastMapping::default();
        batch
    }
}

/// What a step of reclaim works with: who decides and who acts, what is wanted, and how far that
/// is.
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
            // The walk over the tree is for everybody.
            return false;
        }
        let gap = if orders.exact { 0 } else { COMPACTION_GAP_PAGES };
        if self.scan.progress.reclaimed >= orders.goal_pages.max(gap) {
            return true;
        }
        background && core.node.free_pages() > core.node.watermarks().high + WATERMARK_SLACK_PAGES
    }
}

/// What became of the folios of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PagedOut {
    /// What stood in the way of the others.
    pub(crate) tallies: Tallies,
    /// Pages freed. The others are in [`Scan::rejected`].
    pub(crate) freed: u64,
}

/// One isolated batch.
#[derive(Debug, Default)]
pub(crate) struct Isolated {
    /// In the order of isolation, which is the order in which they are examined.
    pub(crate) folios: Vec<FolioId>,
    /// How many were isolated, of which those that are to be examined once more are a part.
    pub(crate) taken: u64,
    /// Folios set aside because they could not be isolated; empty between scans.
    pub(crate) skipped: Vec<FolioId>,
    /// What the folios are.
    pub(crate) kind: Option<Kind>,
    /// Pages looked at: sorted, isolated and skipped. What counts as looked at before the reclaim
    /// loop of 7.2, says [`LockedLruvec::isolate`](super::LockedLruvec).
    pub(crate) scanned: u64,
    /// Pages moved to where they belong instead.
    pub(crate) sorted: u64,
    /// Of these, pages moved up because of their tier.
    pub(crate) protected: u64,
    /// Of the sorted pages, dirty ones of files, which 7.1 does not isolate.
    pub(crate) dirty: u64,
    /// Of these, those that nobody writes.
    pub(crate) unqueued_dirty: u64,
    /// Somebody wants to know which folios were sorted.
    pub(crate) observed: bool,
    /// These, where they went and why, if so.
    pub(crate) sorted_folios: Vec<(FolioId, GenIndex, Sorted)>,
}

impl Isolated {
    /// Empty, for the next batch; memory is kept.
    pub(crate) fn clear(&mut self) {
        self.folios.clear();
        self.skipped.clear();
        self.sorted_folios.clear();
        let Isolated { kind, taken, scanned, sorted, protected, dirty, unqueued_dirty, .. } = self;
        (*kind, *taken, *scanned, *sorted, *protected, *dirty, *unqueued_dirty) = (None, 0, 0, 0, 0, 0, 0);
    }

    /// Notes for an observer that a folio was sorted.
    #[inline]
    pub(crate) fn note_sorted(&mut self, folio: FolioId, to: GenIndex, why: Sorted) {
        if self.observed {
            self.sorted_folios.push((folio, to, why));
        }
    }
}

/// What a step of a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnStep {
    /// Call again; anybody may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// Folios are isolated, in [`Scan::batch`]: examine them, free what can be freed, and give the
    /// rest to [`Turn::put_back`](super::Turn::put_back).
    PageOut,
    /// The turn is over.
    Finished,
}

/// Whose turn it is, and what of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) memcg: &'a Memcg,
    /// What of its pages is spared.
    pub(crate) spared: Effective,
    pub(crate) priority: u8,
}

/// A page that is back, and what was remembered of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refault<'a> {
    pub(crate) folio: FolioId,
    pub(crate) kind: Kind,
    /// Who brings it back.
    pub(crate) memcg: &'a Memcg,
    pub(crate) shadow: Shadow,
    pub(crate) in_fault: bool,
    /// Nobody asked for it: it comes with another.
    pub(crate) ahead: bool,
}
