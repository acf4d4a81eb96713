//! The turn of the generations of one lruvec.
//!
//! Source: spec 70 §4.1 (Linux 7.2): the budget of an lruvec is fixed when its turn comes; aging is part of it. How a turn
//! was before is in [`before`].

mod before;

use crate::Core;
use crate::host::Host;
use crate::lru::multigen::aging::{AgeStep, Due};
use crate::lru::{Seq, Swappiness, Visit};
use crate::memcg::{Effective, Memcg, MemcgId};
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
    /// It is walking, to open a generation after this one; true: only that is left to do.
    aging: Option<(Seq, bool)>,
    /// What of its pages is spared.
    spared: Effective,
    visit: Visit,
}

impl MultiGenTurn {
    /// It is the turn of a memcg, of which protection spares some.
    pub(in crate::reclaim) fn begin(
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
        (memcg, spared): (&Memcg, Effective),
        priority: u8,
    ) -> MultiGenTurn {
        core.drain(host, orders.cpu);
        let swappiness = core.swappiness_of(memcg.id(), orders.swappiness);
        let mut turn = MultiGenTurn {
            memcg: memcg.id(),
            priority,
            swappiness,
            budget: 0,
            scanned: 0,
            aging_was_due: false,
            aging: None,
            spared,
            visit: Visit::default(),
        };
        turn.budget = turn.share(core, memcg, memcg.lruvec.pages_in_generations(swappiness), scan);
        // Background reclaim always owns a walk context, others only once they aged this lruvec.
        scan.walk =
            matches!(orders.kind, EffortKind::Background | EffortKind::Proactive).then(Default::default);
        turn
    }

    /// Of so many pages, those to look at: at this priority, a share of what protection leaves. Of a memcg that was
    /// removed, all.
    fn share(&self, core: &Core, memcg: &Memcg, pages: u64, scan: &mut Scan) -> u64 {
        if !memcg.is_online() {
            return pages;
        }
        // Proportional protection came to the multi-gen LRU between 6.12 and 7.1, and has no switch.
        if !core.mechanisms().workingset_rework() {
            return pages >> self.priority;
        }
        let (pages, by_low) = self.spared.leaves(pages, memcg.usage_pages(), scan.low_override);
        scan.low_skipped |= by_low;
        pages >> self.priority
    }

    fn is_below_min(&self, memcg: &Memcg) -> bool {
        self.spared.min_pages > 0 && self.spared.min_pages >= memcg.usage_pages()
    }

    /// What the turn came to.
    pub(in crate::reclaim) fn visit(&self, core: &Core) -> Visit {
        let memcg = core.memcg(self.memcg);
        let pages = memcg.lruvec.pages_in_generations(self.swappiness);
        let sizable = if memcg.is_online() { pages >> self.priority > 0 } else { pages > 0 };
        Visit { sizable, scanned: self.scanned, ..self.visit }
    }

    /// Walks one address space. Where others take part, one of them opens it; the others go their
    /// ways before, and may find it closed yet.
    fn age(&mut self, core: &Core, host: &impl Host, memcg: &Memcg, scan: &mut Scan) -> WalkStep {
        let (seq, _) = self.aging.take().unwrap_or((memcg.lruvec.max_seq(), false));
        let mut batch = scan.walk.take().unwrap_or_default();
        let step = core.age_step(host, memcg, seq, self.swappiness, false, &mut batch);
        scan.walk = Some(batch);
        if step == AgeStep::Others {
            return WalkStep::Finished;
        }
        self.aging = Some((seq, step == AgeStep::Walked));
        WalkStep::More
    }

    /// Opens the generation, if only that is left to do, as nobody else will. Whether it was.
    pub(in crate::reclaim) fn open_if_walked(&mut self, core: &Core, host: &impl Host) -> bool {
        let Some((seq, true)) = self.aging else { return false };
        self.aging = None;
        self.visit.aged |= core.open_after(host, core.memcg(self.memcg), seq, self.swappiness);
        true
    }

    /// Takes at most one batch, or walks one address space.
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
        let memcg = core.memcg(self.memcg);
        let opened = self.open_if_walked(core, host);
        if self.scanned >= self.budget {
            return WalkStep::Finished;
        }
        if self.is_below_min(memcg) {
            self.visit.below_min = true;
            return WalkStep::Finished;
        }
        let due = memcg.lruvec.aging_due(self.swappiness, core.mechanisms());
        let ages = due == Due::Must || (due == Due::Should && self.priority != PRIORITY_DEFAULT);
        if !opened && (self.aging.is_some() || ages) {
            self.aging_was_due = true;
            if self.age(core, host, memcg, scan) == WalkStep::More {
                return WalkStep::More;
            }
        }
        let request = (self.budget - self.scanned).min(STEP_FOLIOS);
        let scanned = core.evict_step(host, memcg, request, self.swappiness, orders, scan);
        self.scanned += scanned;
        let root_aged = orders.is_root() && self.aging_was_due;
        let enough = !orders.whole && should_stop(core, orders, scan);
        if scanned == 0 || enough || root_aged { WalkStep::Finished } else { WalkStep::More }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::memcg::Counter;
    use crate::testing::Harness;

    /// Who found that all address spaces were walked has to open the generation, whatever happened until it goes on: else
    /// nobody does, and nothing is taken from the memcg any more.
    #[test]
    fn who_walked_opens_the_generation() {
        for preset in [Preset::Linux71, Preset::Default] {
            for ends_early in [false, true] {
                let mut harness = Harness::with_preset(preset, 1000, 31);
                harness.bring_at(0..1000, 2);
                harness.isolate(0);
                let (core, host, memcg) = (&harness.core, &harness.host, harness.memcg());
                let (orders, mut scan) = (harness.orders(32), Scan::default());
                let spared = (memcg, Effective::default());
                let mut turn = MultiGenTurn::begin(core, host, &orders, &mut scan, spared, 5);
                while !matches!(turn.aging, Some((_, true))) {
                    assert_eq!(turn.step(core, host, &orders, &mut scan), WalkStep::More);
                }
                assert!(core.is_aging(memcg.id()));
                if ends_early {
                    assert!(turn.open_if_walked(core, host));
                } else {
                    // Others took pages, and what is left is protected.
                    turn.spared = Effective { min_pages: 1000, low_pages: 0 };
                    assert_eq!(turn.step(core, host, &orders, &mut scan), WalkStep::Finished);
                }
                assert_eq!(
                    (harness.stat(Counter::Aged), core.is_aging(memcg.id())),
                    (1, false),
                    "{preset:?}"
                );
            }
        }
    }
}
