//! The turn of an lruvec before the reclaim loop of Linux 7.2.
//!
//! Its budget is computed anew at each step, of what is left, and held against all that was looked at so far. Aging
//! replaces it: whoever opens a generation, or finds that another thread does, evicts nothing in this turn. Steps are
//! large, limit reclaim goes on past its goal to the end of the budget, and the flusher is asked for at the end.
//!
//! Source: spec 70 §4.2 (Linux 6.12 and 7.1).

use super::{Turn, WalkStep, should_stop};
use crate::Core;
use crate::host::{FlushReason, Host};
use crate::lru::multigen::aging::Due;
use crate::reclaim::PRIORITY_DEFAULT;
use crate::reclaim::scan::{Orders, Scan};

/// Folios per step, at most. A step stops at 64 isolated ones, so that this is a bound on sorting.
const STEP_FOLIOS: u64 = 4096;

impl Turn {
    pub(super) fn step_before(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
        priority: u8,
    ) -> WalkStep {
        if self.evict_or_age(core, host, orders, scan, priority) == WalkStep::More {
            return WalkStep::More;
        }
        let tallies = &scan.tallies;
        if tallies.unqueued_dirty > 0 && tallies.unqueued_dirty == tallies.taken {
            host.wake_flusher(FlushReason::Reclaim);
        }
        WalkStep::Finished
    }

    fn evict_or_age(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
        priority: u8,
    ) -> WalkStep {
        let memcg = core.memcg(self.memcg);
        let lruvec = &memcg.lruvec;
        let max = lruvec.max_seq();
        let due = lruvec.aging_due(orders.swappiness, core.mechanisms());
        if due != Due::No && priority != PRIORITY_DEFAULT {
            let mut batch = scan.walk.take().unwrap_or_default();
            core.age(host, memcg, max, orders.swappiness, false, &mut batch);
            scan.walk = Some(batch);
            return WalkStep::Finished;
        }
        // With two generations nothing may be taken, and at the first priority there is no aging yet.
        let pages = if due == Due::Must { 0 } else { lruvec.evictable_pages(orders.swappiness) };
        let budget = pages >> priority;
        if budget == 0 {
            return WalkStep::Finished;
        }
        let request = if core.mechanisms().workingset_rework() { budget.min(STEP_FOLIOS) } else { STEP_FOLIOS };
        let scanned = core.evict_step(host, memcg, request, orders.swappiness, orders, scan);
        self.scanned += scanned;
        let stop = orders.is_root() && should_stop(core, orders, scan);
        if scanned == 0 || self.scanned >= budget || stop { WalkStep::Finished } else { WalkStep::More }
    }
}
