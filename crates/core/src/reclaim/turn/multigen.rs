//! The turn of the generations of one lruvec.
//!
//! Source: spec 70 §4.1 (Linux 7.2): the budget of an lruvec is fixed when its turn comes; aging is part of it. How a turn
//! was before is in [`before`].

mod before;

use crate::Core;
use crate::host::Host;
use crate::lru::Swappiness;
use crate::lru::multigen::aging::Due;
use crate::memcg::MemcgId;
use crate::reclaim::PRIORITY_DEFAULT;
use crate::reclaim::order::{WalkStep, should_stop};
use crate::reclaim::scan::{EffortKind, Orders, Scan};

/// Folios per step: one lock hold.
const STEP_FOLIOS: u64 = 64;

/// The turn of one lruvec's generations.
#[derive(Debug)]
pub(in crate::reclaim) struct MultiGenTurn {
    memcg: MemcgId,
    priority: u8,
    /// What the order's swappiness came to when the turn began.
    swappiness: Swappiness,
    /// Pages to look at.
    budget: u64,
    /// Pages looked at.
    scanned: u64,
    aging_was_due: bool,
}

impl MultiGenTurn {
    /// It is `memcg`'s turn.
    pub(in crate::reclaim) fn begin(
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
        memcg: MemcgId,
        priority: u8,
    ) -> MultiGenTurn {
        core.drain(host, orders.cpu);
        let swappiness = core.swappiness_now(orders.swappiness);
        let size = core.memcg(memcg).lruvec.pages_in_generations(swappiness);
        // Background reclaim always owns a walk context, others only once they aged this lruvec.
        scan.walk =
            matches!(orders.kind, EffortKind::Background | EffortKind::Proactive).then(Default::default);
        MultiGenTurn {
            memcg,
            priority,
            swappiness,
            budget: size >> priority,
            scanned: 0,
            aging_was_due: false,
        }
    }

    /// Takes at most one batch.
    pub(in crate::reclaim) fn step(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
    ) -> WalkStep {
        if !core.mechanisms().reclaim_loop() {
            return self.step_before(core, host, orders, scan);
        }
        if self.scanned >= self.budget {
            return WalkStep::Finished;
        }
        let memcg = core.memcg(self.memcg);
        let max = memcg.lruvec.max_seq();
        let due = memcg.lruvec.aging_due(self.swappiness, core.mechanisms());
        if due == Due::Must || (due == Due::Should && self.priority != PRIORITY_DEFAULT) {
            let mut batch = scan.walk.take().unwrap_or_default();
            core.age(host, memcg, max, self.swappiness, false, &mut batch);
            scan.walk = Some(batch);
            self.aging_was_due = true;
        }
        let request = (self.budget - self.scanned).min(STEP_FOLIOS);
        let scanned = core.evict_step(host, memcg, request, self.swappiness, orders, scan);
        let root_aged = orders.is_root() && self.aging_was_due;
        if scanned == 0 || should_stop(core, orders, scan) || root_aged {
            return WalkStep::Finished;
        }
        self.scanned += scanned;
        WalkStep::More
    }
}
