//! Orders and progress, kept apart: what a reclaim effort was asked for never changes, what happened only grows.

use crate::folio::FolioId;
use crate::lru::multigen::walk::WalkBatch;
use crate::lru::{Isolated, Swappiness};
use crate::mapping::ShadowLeaf;
use crate::memcg::{Counter, MemcgId};
use crate::pageout::{Fate, LastMapping};

/// Who reclaims, and why (spec 70 §1).
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
    /// Everybody gives, even if enough was reclaimed before: as before there was a memcg LRU (spec 60 §11). False but to
    /// show what that did.
    pub whole: bool,
    /// No more is taken than the goal: the last batch is as small as what is left. Ours, where somebody asked for so many
    /// pages; the kernel's batches are whole, and its goals no smaller than 32.
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

/// What stood in the way of an effort, in pages (spec 40 §8).
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
    /// Present while this effort owns a walk context: after it aged an lruvec, to the end of that lruvec's turn.
    pub(crate) walk: Option<WalkBatch>,
    pub(crate) batch: Isolated,
    /// What was decided about each folio of the batch.
    pub(crate) fates: Vec<Fate>,
    /// Freed folios whose frames are returned together.
    pub(crate) freed: Vec<FolioId>,
    /// Leaves that hold only shadows since a page of this batch was freed.
    pub(crate) shadow_leaves: Vec<ShadowLeaf>,
    pub(crate) rejected: Vec<FolioId>,
    pub(crate) back: Vec<(FolioId, bool)>,
    pub(crate) last_mapping: LastMapping,
}
