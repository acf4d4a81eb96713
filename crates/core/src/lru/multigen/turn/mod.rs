//! The turn of one lruvec's generations.
//!
//! Source: [book: reclaim-loop#loop-after] (Linux 7.2): the budget of an lruvec is fixed when its
//! turn begins, and aging is part of the turn. Before ([book: reclaim-loop#loop-before], 6.12 and
//! 7.1), each step computes the budget anew and compares it with all pages scanned so far. A thread
//! that ages, or finds another thread aging, evicts nothing in this turn. Steps are large, and the
//! flusher is woken at the end. Each of these differences is a switch ([`Switch::parts`] of the
//! reclaim loop). In 6.12, limit reclaim also goes on past its goal ([`Switch::StopAtGoal`]).

#[cfg(all(test, not(loom)))]
mod series;

use super::aging::{AgeStep, Aging, Due};
use super::put_back;
use crate::Core;
use crate::host::{FlushReason, Host};
use crate::lru::scan_control::{Context, EffortKind, PRIORITY_DEFAULT, PagedOut, Scan};
use crate::lru::{Grant, Seq, Swappiness, TurnStep, Visit};
use crate::mechanism::Switch;
use crate::memcg::{Effective, Memcg, MemcgId};

/// Folios per step: one lock hold.
const STEP_FOLIOS: u64 = 64;
/// The same before the loop series. A step stops at 64 isolated folios, so this bounds sorting.
const STEP_FOLIOS_BEFORE: u64 = 4096;
/// The smallest budget in the series' second version.
const MINIMUM_SCAN_PAGES: u64 = 32;

#[derive(Debug)]
pub(in crate::lru) struct MultiGenTurn {
    memcg: MemcgId,
    priority: u8,
    /// Effective swappiness at the start of the turn.
    swappiness: Swappiness,
    budget: u64,
    scanned: u64,
    aging_was_due: bool,
    /// `Some` during a walk to open the generation after this one; true once only the opening is
    /// left.
    aging: Option<(Seq, bool)>,
    spared: Effective,
    visit: Visit,
}

impl MultiGenTurn {
    pub(in crate::lru) fn begin(cx: &mut Context<'_, impl Host>, grant: Grant<'_>) -> MultiGenTurn {
        let Grant { memcg, spared, priority, .. } = grant;
        let Context { core, host, orders, .. } = *cx;
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
        turn.budget = turn.share(core, memcg, memcg.lruvec.pages_in_generations(swappiness), cx.scan);
        // Background and proactive reclaim always own a walk context; other kinds once they have
        // aged, to the end of the turn or of the pass over the node.
        if matches!(orders.kind, EffortKind::Background | EffortKind::Proactive) {
            cx.scan.walk.get_or_insert_default();
        }
        turn
    }

    /// The share of `pages` to scan at this priority, after protection. All pages of a removed
    /// memcg.
    fn share(&self, core: &Core, memcg: &Memcg, pages: u64, scan: &mut Scan) -> u64 {
        if !memcg.is_online() {
            return pages;
        }
        let mechanisms = core.mechanisms();
        let mut left = pages;
        if mechanisms.is_on(Switch::ProportionalProtection) {
            let (unprotected, by_low) = self.spared.leaves(pages, memcg.usage_pages(), scan.low_override);
            scan.low_skipped |= by_low;
            left = unprotected;
        }
        let least = if mechanisms.is_on(Switch::MinimumScan) { left.min(MINIMUM_SCAN_PAGES) } else { 0 };
        (left >> self.priority).max(least)
    }

    fn is_below_min(&self, memcg: &Memcg) -> bool {
        self.spared.min_pages > 0 && self.spared.min_pages >= memcg.usage_pages()
    }

    pub(in crate::lru) fn visit(&self, core: &Core) -> Visit {
        let memcg = core.memcg(self.memcg);
        let pages = memcg.lruvec.pages_in_generations(self.swappiness);
        let sizable = if memcg.is_online() { pages >> self.priority > 0 } else { pages > 0 };
        Visit { sizable, scanned: self.scanned, ..self.visit }
    }

    fn aging<'a, H: Host>(&self, core: &'a Core, host: &'a H, seq: Seq) -> Aging<'a, H> {
        Aging { core, host, memcg: core.memcg(self.memcg), seq, swappiness: self.swappiness, force: false }
    }

    /// Walks one address space. When several threads age the same lruvec, one of them opens the new
    /// generation. The others return without waiting and may still see the old window.
    fn age(&mut self, cx: &mut Context<'_, impl Host>, memcg: &Memcg) -> TurnStep {
        let (seq, _) = self.aging.take().unwrap_or((memcg.lruvec.max_seq(), false));
        let mut batch = cx.scan.walk.take().unwrap_or_default();
        let step = self.aging(cx.core, cx.host, seq).step(&mut batch);
        cx.scan.walk = Some(batch);
        if step == AgeStep::Others {
            return TurnStep::Finished;
        }
        self.aging = Some((seq, step == AgeStep::Walked));
        TurnStep::More
    }

    /// Opens the generation if only that is left to do, since no other thread will. `true`: it did.
    pub(in crate::lru) fn open_if_walked(&mut self, core: &Core, host: &impl Host) -> bool {
        let Some((seq, true)) = self.aging else { return false };
        self.aging = None;
        self.visit.aged |= self.aging(core, host, seq).open();
        true
    }

    /// Takes at most one batch, or walks one address space.
    pub(in crate::lru) fn step(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let core = cx.core;
        let memcg = core.memcg(self.memcg);
        let mechanisms = core.mechanisms();
        let goes_on = mechanisms.is_on(Switch::ScanAfterAging);
        let mut aged = self.open_if_walked(core, cx.host);
        if aged && !goes_on || mechanisms.is_on(Switch::FixedBudget) && self.scanned >= self.budget {
            return finish(cx);
        }
        if self.is_below_min(memcg) {
            self.visit.below_min = true;
            return finish(cx);
        }
        let due = memcg.lruvec.aging_due(self.swappiness, mechanisms);
        if !aged && (self.aging.is_some() || self.ages(core, memcg, due)) {
            self.aging_was_due = true;
            if self.age(cx, memcg) == TurnStep::More {
                return TurnStep::More;
            }
            if !goes_on {
                return finish(cx);
            }
            aged = true;
        }
        // With two generations nothing may be taken.
        let barred = due == Due::Must && !aged && !mechanisms.is_on(Switch::AgingApart);
        match self.request(cx, memcg, barred) {
            0 => finish(cx),
            request => self.isolate(cx, memcg, request),
        }
    }

    /// Whether the turn ages now.
    fn ages(&self, core: &Core, memcg: &Memcg, due: Due) -> bool {
        let first = self.priority == PRIORITY_DEFAULT;
        if core.mechanisms().is_on(Switch::AgingApart) {
            return due == Due::Must || due == Due::Should && !first;
        }
        // Of a removed memcg everything is taken while something may be.
        let whole = || due != Due::Must && self.pages(memcg) > 0 && !memcg.is_online();
        due != Due::No && !first && !whole()
    }

    fn pages(&self, memcg: &Memcg) -> u64 {
        memcg.lruvec.pages_in_generations(self.swappiness)
    }

    /// The folios of the next step; 0: none. `barred`: none of the pages may be taken.
    fn request(&mut self, cx: &mut Context<'_, impl Host>, memcg: &Memcg, barred: bool) -> u64 {
        let mechanisms = cx.core.mechanisms();
        let left = if !mechanisms.is_on(Switch::FixedBudget) {
            let pages = if barred { 0 } else { self.pages(memcg) };
            self.budget = self.share(cx.core, memcg, pages, cx.scan);
            self.budget
        } else if barred {
            0
        } else {
            self.budget - self.scanned
        };
        if left == 0 {
            0
        } else if mechanisms.is_on(Switch::SmallBatches) {
            left.min(STEP_FOLIOS.min(2 * cx.core.options.grain.reclaim_pages))
        } else if mechanisms.is_on(Switch::BoundedSteps) {
            left.min(STEP_FOLIOS_BEFORE)
        } else {
            STEP_FOLIOS_BEFORE
        }
    }

    fn isolate(&mut self, cx: &mut Context<'_, impl Host>, memcg: &Memcg, request: u64) -> TurnStep {
        if put_back::isolate(cx, memcg, request, self.swappiness) {
            return TurnStep::PageOut;
        }
        self.end_batch(cx)
    }

    pub(in crate::lru) fn put_back(
        &mut self,
        cx: &mut Context<'_, impl Host>,
        outcome: PagedOut,
    ) -> TurnStep {
        if put_back::put_back(cx, cx.core.memcg(self.memcg), outcome) {
            return TurnStep::PageOut;
        }
        self.end_batch(cx)
    }

    /// Ends a batch, and the turn if its budget or the effort's goal is used up.
    fn end_batch(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let mechanisms = cx.core.mechanisms();
        let scanned = cx.scan.batch.scanned;
        self.scanned += scanned;
        let is_root = cx.orders.is_root();
        // In older versions, limit reclaim goes on to the end of its budget, for fairness.
        let by_goal = !cx.orders.whole && (is_root || mechanisms.is_on(Switch::StopAtGoal));
        let root_aged = is_root && self.aging_was_due;
        let spent = !mechanisms.is_on(Switch::FixedBudget) && self.scanned >= self.budget;
        if scanned == 0 || spent || root_aged || by_goal && cx.should_stop() {
            finish(cx)
        } else {
            TurnStep::More
        }
    }
}

/// Ends the turn. Without the check after each batch, wakes the flusher if the turn met only dirty
/// pages.
fn finish(cx: &Context<'_, impl Host>) -> TurnStep {
    let tallies = &cx.scan.tallies;
    if !cx.core.mechanisms().is_on(Switch::FlushPerBatch)
        && tallies.unqueued_dirty > 0
        && tallies.unqueued_dirty == tallies.taken
    {
        cx.host.wake_flusher(FlushReason::Reclaim);
    }
    TurnStep::Finished
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::memcg::Counter;
    use crate::testing::Harness;

    /// The thread that finds all address spaces walked must open the generation, whatever happens
    /// before its next step. Otherwise it stays closed, and reclaim is stuck on this memcg.
    #[test]
    fn the_walking_thread_opens_the_generation() {
        for preset in [Preset::Linux71, Preset::Default] {
            for ends_early in [false, true] {
                let mut harness = Harness::with_preset(preset, 1000, 31);
                harness.bring_at(0..1000, 2);
                harness.isolate(0);
                let (core, host, memcg) = (&harness.core, &harness.host, harness.memcg());
                let (orders, mut scan) = (harness.orders(32), Scan::default());
                let mut cx = Context::new(core, host, &orders, &mut scan);
                let grant = Grant {
                    memcg,
                    spared: Effective::default(),
                    priority: 5,
                    by_age: false,
                    only_looks: false,
                };
                let mut turn = MultiGenTurn::begin(&mut cx, grant);
                while !matches!(turn.aging, Some((_, true))) {
                    assert_eq!(turn.step(&mut cx), TurnStep::More);
                }
                assert!(core.memcgs.is_aging(memcg.id()));
                if ends_early {
                    assert!(turn.open_if_walked(core, host));
                } else {
                    // Other threads took pages, and the rest is protected.
                    turn.spared = Effective { min_pages: 1000, low_pages: 0 };
                    assert_eq!(turn.step(&mut cx), TurnStep::Finished);
                }
                assert_eq!(
                    (harness.stat(Counter::Aged), core.memcgs.is_aging(memcg.id())),
                    (1, false),
                    "{preset:?}"
                );
            }
        }
    }
}
