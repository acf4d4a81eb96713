//! Which lruvec next, and how much of it: one pass over the node at one priority.
//!
//! The pass is resumable. Each step takes at most one batch from one lruvec; between steps anybody may run.
//!
//! Source: spec 70 §4.1 (Linux 7.2): the budget of an lruvec is fixed when its turn comes; aging is part of it.

use crate::Core;
use crate::host::Host;
use crate::lru::Seq;
use crate::lru::multigen::aging::Due;
use crate::memcg::MemcgId;
use crate::reclaim::scan::{Orders, Scan, Tallies};
use crate::reclaim::{COMPACTION_GAP_PAGES, EffortKind, PRIORITY_DEFAULT};

/// Folios per step: one lock hold.
const STEP_FOLIOS: u64 = 64;
/// Free pages beyond the mark at which background reclaim stops in the middle of a pass.
const WATERMARK_SLACK_PAGES: u32 = 64;

/// The turn of one lruvec.
#[derive(Debug)]
struct Turn {
    memcg: MemcgId,
    left: i64,
    aging_was_due: bool,
}

/// One pass over the lruvecs of the target at one priority.
#[derive(Debug)]
pub(crate) struct NodeWalk {
    priority: u8,
    /// The memcgs still to visit: the next one, and how many.
    next: u32,
    remaining: u32,
    turn: Option<Turn>,
}

/// Whether a pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkStep {
    More,
    Finished,
}

impl NodeWalk {
    pub(crate) fn new(core: &Core, orders: &Orders, priority: u8) -> NodeWalk {
        let memcgs = core.memcgs.len();
        let (next, remaining) = if orders.is_root() {
            (core.node.first_memcg(memcgs), memcgs)
        } else {
            (u32::from(orders.target.0), 1)
        };
        NodeWalk { priority, next, remaining, turn: None }
    }

    /// Begins the next lruvec's turn, or takes one batch from the current one.
    pub(crate) fn step(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
    ) -> WalkStep {
        let Some(turn) = &mut self.turn else { return self.begin_turn(core, host, orders, scan) };
        if turn.step(core, host, orders, scan, self.priority) == WalkStep::Finished {
            let memcg = core.memcg(turn.memcg);
            self.turn = None;
            scan.walk = None;
            core.shrink_shadows(memcg);
            core.node.visited(u32::from(memcg.id().0));
            if should_stop(core, orders, scan) {
                self.remaining = 0;
            }
        }
        WalkStep::More
    }

    fn begin_turn(&mut self, core: &Core, host: &impl Host, orders: &Orders, scan: &mut Scan) -> WalkStep {
        if self.remaining == 0 {
            return WalkStep::Finished;
        }
        let memcg = MemcgId((self.next % core.memcgs.len()) as u16);
        self.next += 1;
        self.remaining -= 1;
        core.drain(host, orders.cpu);
        let size = core.memcg(memcg).lruvec.evictable_pages(orders.swappiness);
        // Background reclaim always owns a walk context, others only once they aged this lruvec.
        scan.walk =
            matches!(orders.kind, EffortKind::Background | EffortKind::Proactive).then(Default::default);
        self.turn = Some(Turn { memcg, left: (size >> self.priority) as i64, aging_was_due: false });
        WalkStep::More
    }
}

impl Turn {
    fn step(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
        priority: u8,
    ) -> WalkStep {
        if self.left <= 0 {
            return WalkStep::Finished;
        }
        let memcg = core.memcg(self.memcg);
        let max: Seq = memcg.lruvec.max_seq();
        let due = memcg.lruvec.aging_due(orders.swappiness);
        if due == Due::Must || (due == Due::Should && priority != PRIORITY_DEFAULT) {
            let mut batch = scan.walk.take().unwrap_or_default();
            core.age(host, memcg, max, orders.swappiness, false, &mut batch);
            scan.walk = Some(batch);
            self.aging_was_due = true;
        }
        let request = (self.left as u64).min(STEP_FOLIOS);
        let scanned = core.evict_step(host, memcg, request, orders.swappiness, orders, scan);
        let root_aged = orders.is_root() && self.aging_was_due;
        if scanned == 0 || should_stop(core, orders, scan) || root_aged {
            return WalkStep::Finished;
        }
        self.left -= scanned as i64;
        WalkStep::More
    }
}

/// Whether enough was reclaimed to stop in the middle of a pass (spec 70 §5, 7.2).
fn should_stop(core: &Core, orders: &Orders, scan: &Scan) -> bool {
    if scan.progress.reclaimed >= orders.goal_pages.max(COMPACTION_GAP_PAGES) {
        return true;
    }
    orders.kind == EffortKind::Background
        && core.node.free_pages() > core.node.watermarks().high + WATERMARK_SLACK_PAGES
}

impl Scan {
    /// Forgets what stood in the way, for the next pass over the node.
    pub(crate) fn reset_tallies(&mut self) {
        self.tallies = Tallies::default();
    }
}
