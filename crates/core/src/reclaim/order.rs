//! One pass over the memcgs of a target at one priority: which lruvec is next, and how much to take
//! from it.
//!
//! The pass is resumable. Each step takes at most one batch from one lruvec; other threads may run
//! between steps. [`OrderWalk`] chooses the next lruvec, its [`Turn`] isolates folios.
//!
//! Source: [book: reclaim-loop#effort], [book: reclaim-loop#abort-test];
//! [book: memcgs#memcg-lru-walk], [book: memcgs#memcg-visit] and [book: memcgs#tree-walk].

use crate::Core;
use crate::host::{Host, Throttle};
use crate::lru::scan_control::Progress;
use crate::lru::{self, Context, Grant, OrderWalk, Pass, Turn, TurnStep, Visit, order};
use crate::memcg::{Counter, Memcg, MemcgId};
use crate::pageout::{Workspace, page_out};
use crate::workingset;

#[derive(Debug)]
pub(crate) struct NodeWalk {
    pass: Pass,
    order: OrderWalk,
    turn: Option<Turn>,
    /// Progress of the effort when the current turn began.
    before: Progress,
    /// The most pages that the turn may free.
    most_pages: u64,
    /// Unprotected pages of the memcg when its turn began.
    giving_pages: u64,
    /// The memcg that is being visited.
    at: Option<MemcgId>,
    /// Result of the previous visit.
    last: Option<(MemcgId, Visit)>,
    workspace: Workspace,
    /// Visits every memcg of the tree, even after it has reached the goal.
    is_full: bool,
    finished: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkStep {
    More,
    Wait(Throttle),
    Finished,
}

impl NodeWalk {
    /// A pass that has not begun. `full`: where the tree is walked, this thread visits every memcg
    /// instead of sharing the walk with concurrent reclaimers.
    pub(crate) fn new(cx: &mut Context<'_, impl Host>, priority: u8, full: bool) -> NodeWalk {
        let order = OrderWalk::new(cx.core, cx.orders.target, priority, full || cx.orders.whole);
        let (mechanisms, habits) = (cx.core.mechanisms(), cx.core.habits());
        let by_tree =
            order.is_tree() && !mechanisms.subtree_lru() && (!cx.orders.is_root() || habits.finishes_passes);
        let is_full = cx.orders.whole || full && by_tree;
        let pass = Pass::new(cx, priority);
        cx.scan.walk = None;
        NodeWalk {
            pass,
            order,
            turn: None,
            before: Progress::default(),
            most_pages: 0,
            giving_pages: 0,
            at: None,
            last: None,
            workspace: Workspace::default(),
            is_full,
            finished: false,
        }
    }

    /// [`Pass::trims_cache`].
    pub(crate) fn trims_cache(&self) -> bool {
        self.pass.trims_cache()
    }

    /// Begins the next lruvec's turn, or takes one batch from the current one.
    pub(crate) fn step(&mut self, cx: &mut Context<'_, impl Host>) -> WalkStep {
        let (core, orders) = (cx.core, cx.orders);
        let Some(turn) = &mut self.turn else { return self.begin_turn(cx) };
        let mut step = turn.step(cx);
        while step == TurnStep::PageOut {
            let outcome = page_out(cx, &mut self.workspace, core.memcg(turn.memcg()));
            step = turn.put_back(cx, outcome);
        }
        if let TurnStep::Wait(throttle) = step {
            cx.host.end_swap_outs();
            return WalkStep::Wait(throttle);
        }
        let finished = step == TurnStep::Finished;
        let (now, before) = (cx.scan.progress, self.before);
        if finished || now.reclaimed - before.reclaimed >= self.most_pages {
            let visit = turn.visit(core);
            let visit = Visit {
                // The multi-gen LRU also counts folios that it sorted.
                scanned: visit.scanned.max(now.scanned - before.scanned),
                stolen: now.reclaimed - before.reclaimed,
                giving_pages: self.giving_pages,
                ..visit
            };
            let memcg = core.memcg(turn.memcg());
            self.turn = None;
            cx.host.end_swap_outs();
            self.last = Some((memcg.id(), visit));
            if !orders.is_root() {
                cx.scan.walk = None;
            }
            workingset::shrink(core, memcg, self.pass.priority());
            if visit.aged && !orders.is_root() {
                order::rejuvenate(core, memcg.id());
            }
            if !self.is_full && cx.should_stop() {
                self.order.stop(core, orders.target, self.last.take());
                self.end_visit(core, orders.target);
                self.finished = true;
            }
        }
        WalkStep::More
    }

    /// Ends the pass over `target` early. An aging that other threads wait for is completed.
    pub(crate) fn abandon(&mut self, core: &Core, host: &impl Host, target: MemcgId) {
        if let Some(turn) = &mut self.turn {
            turn.abandon(core, host);
            host.end_swap_outs();
        }
        self.end_visit(core, target);
    }

    fn end_visit(&mut self, core: &Core, target: MemcgId) {
        if let Some(memcg) = self.at.take() {
            core.end_visit(memcg, target);
        }
    }

    fn begin_turn(&mut self, cx: &mut Context<'_, impl Host>) -> WalkStep {
        let (core, orders) = (cx.core, cx.orders);
        if self.finished {
            return WalkStep::Finished;
        }
        let next = self.order.next(core, orders.target, self.last.take());
        self.end_visit(core, orders.target);
        let Some((id, only_looks)) = next else {
            self.finished = true;
            return WalkStep::Finished;
        };
        self.at = Some(id);
        cx.scan.progress.memcgs_visited += 1;
        let memcg = core.memcg(id);
        let spared = core.memcgs.effective_protection(id, orders.target);
        let usage = memcg.usage_pages();
        let protected = id != orders.target && id != MemcgId::ROOT;
        if protected && spared.min_pages >= usage {
            self.last = Some((id, Visit { below_min: true, ..Visit::default() }));
            return WalkStep::More;
        }
        if protected && spared.low_pages >= usage {
            if !cx.scan.low_override && !self.order.visits_below_low(core, orders.target, id) {
                // The memcg LRU visits it a second time; elsewhere the effort may come back for it.
                cx.scan.low_skipped |= !self.order.is_lru();
                self.last = Some((id, Visit { below_low: true, ..Visit::default() }));
                return WalkStep::More;
            }
            memcg.stat.add(Counter::EventLow, 1);
        }
        self.before = cx.scan.progress;
        let pages = memcg.lruvec.reclaimable_pages();
        (self.giving_pages, _) = spared.leaves(pages, usage, cx.scan.low_override);
        self.most_pages = if orders.whole {
            u64::MAX
        } else {
            self.order.most_pages(core, orders.target, orders.goal_pages, pages)
        };
        let by_age = self.order.is_by_age();
        let grant = Grant { memcg, spared, priority: self.pass.priority(), by_age, only_looks };
        self.turn = Some(Turn::begin(cx, grant, &self.pass));
        WalkStep::More
    }
}

/// Evicts one batch of the oldest generation, as part of a turn ([book: eviction#eviction-step]).
/// Returns the pages scanned.
pub(crate) fn evict_step(cx: &mut Context<'_, impl Host>, memcg: &Memcg, request: u64) -> u64 {
    let mut workspace = Workspace::default();
    let mut again = lru::isolate_oldest(cx, memcg, request);
    while again {
        let outcome = page_out(cx, &mut workspace, memcg);
        again = lru::put_back_oldest(cx, memcg, outcome);
    }
    cx.host.end_swap_outs();
    cx.scan.batch.scanned
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::lru::Scan;
    use crate::memcg::{Counter, Effective};
    use crate::reclaim::{EffortKind, Orders, Watermarks};
    use crate::testing::Harness;

    /// A harness with `pages` pages in `generations` generations.
    fn harness(pages: u32, generations: u64) -> Harness {
        let mut harness = Harness::with_mechanisms(Harness::subtree_lru(), u64::from(pages), 31);
        harness.bring_at(0..pages, generations);
        harness.isolate(0);
        assert_eq!(harness.max_seq() - harness.min_seq() + 1, generations);
        harness
    }

    fn aged(harness: &Harness) -> u64 {
        harness.stat(Counter::Aged)
    }

    /// [book: reclaim-loop#checks]: "7.2, lruvec of 1000 pages, priority 12: budget 0; no scan, no
    /// aging". The lruvec is due for aging.
    #[test]
    fn without_a_budget_nothing_happens() {
        let harness = harness(1000, 2);
        assert_eq!((harness.pass(harness.orders(32), 12).0, aged(&harness)), (vec![], 0));
        assert_eq!((harness.pass(harness.orders(32), 10).0, aged(&harness)), (vec![], 0));
        assert_eq!((harness.pass(harness.orders(32), 9).0, aged(&harness)), (vec![1], 1));
    }

    /// [book: reclaim-loop#checks]: "1 000 000 pages, priority 12: budget 244; steps of 64, 64, 64,
    /// 52"; "3 generations at priority 11 (cgroup reclaim): ages once, then evicts until the budget
    /// of 488 is used".
    #[test]
    fn a_budget_is_spent_in_steps_of_64() {
        let harness = harness(1_000_000, 3);
        let orders = harness.orders(1000);
        assert_eq!((harness.pass(orders, 12).0, aged(&harness)), (vec![64, 64, 64, 52], 0));
        // 999,756 pages are left.
        assert_eq!((harness.pass(orders, 11).0, aged(&harness)), (vec![64, 64, 64, 64, 64, 64, 64, 40], 1));
    }

    /// [book: reclaim-loop#checks]: "root reclaim, same: ages once, one step, stops".
    #[test]
    fn root_reclaim_stops_after_aging() {
        let harness = harness(300_000, 3);
        let orders = harness.root_orders(1000);
        assert_eq!((harness.pass(orders, 11).0, aged(&harness)), (vec![64], 1));
        assert_eq!(harness.pass(orders, 11).0, [64, 64, 18], "four generations: 299,936 >> 11 at once");
    }

    /// [book: reclaim-loop#checks]: "root reclaim, same: …, rotates to young"; "two threads, one
    /// wins aging: only the winner reports rotation".
    #[test]
    fn only_the_thread_that_aged_reports_it() {
        for wins in [true, false] {
            let harness = harness(300_000, 3);
            let orders = harness.root_orders(1000);
            let mut scan = Scan::default();
            let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
            let pass = Pass::new(cx, 11);
            let grant = Grant {
                memcg: harness.memcg(),
                spared: Effective::default(),
                priority: 11,
                by_age: false,
                only_looks: false,
            };
            let mut turn = Turn::begin(cx, grant, &pass);
            // The first step only looks for an address space to walk.
            assert_eq!(turn.step(cx), TurnStep::More);
            if !wins {
                assert!(harness.open_generation(), "another was faster");
            }
            let mut step = TurnStep::More;
            while step != TurnStep::Finished {
                step = turn.step(cx);
                while step == TurnStep::PageOut {
                    let outcome = page_out(cx, &mut Workspace::default(), harness.memcg());
                    step = turn.put_back(cx, outcome);
                }
            }
            assert_eq!((turn.visit(&harness.core).aged, cx.scan.progress.reclaimed), (wins, 64), "{wins}");
            assert_eq!(harness.max_seq() - harness.min_seq() + 1, 4, "one generation was opened");
        }
    }

    /// [book: aging#checks]: "7.2: g = 3, priority 12 → no aging; priority 11 → aging; g = 2,
    /// priority 12 → aging"; "With g = 4, no automatic aging happens".
    #[test]
    fn aging_by_generations_and_priority() {
        for (generations, priority, expected) in
            [(3, 12, 0), (3, 11, 1), (2, 12, 1), (2, 11, 1), (4, 12, 0), (4, 11, 0), (4, 0, 0)]
        {
            let harness = harness(5000, generations);
            let (steps, _) = harness.pass(harness.orders(1), priority);
            assert_eq!(aged(&harness), expected, "{generations} generations at priority {priority}");
            assert_eq!(steps[0], (5000 >> priority).min(64), "evicts all the same");
        }
    }

    /// [book: reclaim-loop#checks]: "two threads, one wins aging: … both evict".
    #[test]
    fn the_loser_of_the_race_to_age_still_evicts() {
        let harness = harness(1000, 2);
        let memcg = harness.memcg();
        let orders = harness.orders(32);
        let seq = memcg.lruvec.max_seq();
        let age = || {
            let aging = crate::lru::Aging { seq, swappiness: orders.swappiness, ..harness.aging() };
            aging.run(&mut Default::default())
        };
        assert!(age() && !age());
        assert_eq!((harness.evict(64).0, harness.evict(64).0, aged(&harness)), (64, 64, 1));
    }

    /// [book: reclaim-loop#checks]: "7.2 cgroup reclaim stops as soon as 32 pages (goal 32) are
    /// reclaimed, even in the middle of the budget".
    #[test]
    fn limit_reclaim_stops_at_its_goal() {
        let harness = harness(10_000, 4);
        let (steps, scan) = harness.pass(harness.orders(32), 5);
        assert_eq!((steps, scan.progress.reclaimed), (vec![64], 64), "of a budget of 312");
    }

    /// [book: reclaim-loop#loop-after]: "`d` counts everything looked at … Protection and lazy
    /// promotion consume budget."
    #[test]
    fn sorting_consumes_budget() {
        let harness = harness(1000, 4);
        (0..100).for_each(|page| harness.promote(page));
        let (steps, scan) = harness.pass(harness.orders(1000), 3);
        assert_eq!((steps, scan.progress.reclaimed), (vec![64, 61], 25));
    }

    /// A rule of this engine: a turn ends after twice its share of the goal, or two batches. In the
    /// kernel it ends when the budget is used up.
    #[test]
    fn a_turn_ends_with_twice_its_share() {
        let kernels = crate::Mechanisms::preset(crate::Preset::Linux72);
        for (mechanisms, goal, expected) in [
            (crate::Mechanisms::default(), 1000, [512, 488]),
            (crate::Mechanisms::default(), 200, [128, 72]),
            (kernels, 1000, [1000, 0]),
        ] {
            let mut options = Harness::multigen_options(40_100);
            options.mechanisms = mechanisms;
            let mut harness = Harness::with_options(options, 20_000);
            let parent = harness.task.memcg;
            let children: Vec<_> = (0..4)
                .map(|n| {
                    harness.core.add_child(parent, &n.to_string(), 20_000, crate::Time::ZERO).unwrap().id()
                })
                .collect();
            for (&child, n) in children.iter().zip(0..) {
                harness.task = harness.core.new_task(child, 0);
                harness.bring_at(n * 4000..(n + 1) * 4000, 4);
            }
            let orders = Orders { target: parent, ..harness.orders(goal) };
            let mut scan = Scan::default();
            let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
            let mut walk = NodeWalk::new(cx, 0, false);
            while walk.step(cx) == WalkStep::More {}
            let gave = |child: &crate::MemcgId| 4000 - harness.core.memcg(*child).usage_pages();
            let gave: Vec<u64> = children.iter().map(gave).collect();
            let near = gave[..2].iter().zip(expected).all(|(&gave, expected)| gave.abs_diff(expected) < 64);
            assert!(near && gave[2..] == [0, 0], "{mechanisms:?}, {goal}: {gave:?}");
        }
    }

    /// [book: memcgs#tree-walk]: "In shared mode stop as soon as `reclaimed ≥ goal`"; a full walk
    /// goes on to the last memcg, from which it takes one batch.
    #[test]
    fn a_full_walk_visits_every_memcg() {
        for (preset, full, expected) in [
            (crate::Preset::Linux72, false, [64, 0, 0]),
            (crate::Preset::Linux72, true, [64, 64, 64]),
            (crate::Preset::Linux612, true, [256, 256, 256]),
        ] {
            let mut harness = Harness::with_preset(preset, 4096, 31);
            let parent = harness.task.memcg;
            let children = [0, 1, 2].map(|n: u32| {
                let added = harness.core.add_child(parent, &n.to_string(), 4096, crate::Time::ZERO);
                let child = added.unwrap().id();
                harness.task = harness.core.new_task(child, 0);
                harness.bring_at(n * 1000..(n + 1) * 1000, 4);
                child
            });
            let orders = Orders { target: parent, ..harness.orders(32) };
            let mut scan = Scan::default();
            let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
            let mut walk = NodeWalk::new(cx, 2, full);
            while walk.step(cx) != WalkStep::Finished {}
            let gave = children.map(|child| 1000 - harness.core.memcg(child).usage_pages());
            assert_eq!(gave, expected, "{preset:?}, {full}");
        }
    }

    /// [book: access#young-neighbours]: "other reclaimers own one only after an aging attempt": one
    /// of the node keeps it for the memcgs that come next, until the pass ends.
    #[test]
    fn a_pass_over_the_node_keeps_its_walk_context() {
        for is_root in [true, false] {
            let mut harness = Harness::with_preset(crate::Preset::Linux72, 4096, 31);
            harness.bring_at(0..1000, 4);
            let orders = if is_root { harness.root_orders(1000) } else { harness.orders(1000) };
            let mut scan = Scan { walk: Some(Default::default()), ..Scan::default() };
            let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
            let mut walk = NodeWalk::new(cx, 3, false);
            assert!(cx.scan.walk.is_none(), "that of an earlier pass");
            while walk.turn.as_ref().is_none_or(|turn| turn.memcg() != harness.task.memcg) {
                walk.step(cx);
            }
            // As if this turn had aged.
            cx.scan.walk = Some(Default::default());
            while walk.turn.is_some() {
                walk.step(cx);
            }
            assert_eq!(cx.scan.walk.is_some(), is_root);
        }
    }

    /// A memcg of 1000 pages in four generations, in the memcg LRU of Linux 7.2. Another one keeps
    /// the LRU's old set from running empty.
    fn in_memcg_lru() -> Harness {
        let mut harness = Harness::with_preset(crate::Preset::Linux72, 4096, 31);
        harness.bring_at(0..1000, 4);
        let other = harness.core.add_memcg("other", 4096, crate::Time::ZERO).unwrap().id();
        let task = harness.core.new_task(other, 0);
        let task = std::mem::replace(&mut harness.task, task);
        harness.bring_at(1000..2000, 4);
        harness.task = task;
        harness
    }

    /// Whether the harness's memcg is in the old set: then a walk visits it.
    fn is_old(harness: &Harness) -> bool {
        let mut walk = OrderWalk::new(&harness.core, MemcgId::ROOT, 0, false);
        let mut visited = std::iter::from_fn(|| walk.next(&harness.core, MemcgId::ROOT, None));
        visited.any(|(memcg, _)| memcg == harness.task.memcg)
    }

    /// [book: memcgs#checks]: "A memcg below `min` moves to young without being scanned".
    #[test]
    fn a_memcg_below_min_is_not_scanned() {
        for (min_pages, scanned) in [(999, true), (1000, false)] {
            let harness = in_memcg_lru();
            harness.core.memcgs.set_min(harness.task.memcg, min_pages);
            harness.pass(harness.root_orders(1000), 3);
            assert_eq!(harness.stat(Counter::PgscanDirect) > 0, scanned, "min {min_pages}");
            assert_eq!(is_old(&harness), scanned, "min {min_pages}");
        }
    }

    /// [book: memcgs#checks]: "A memcg below `low` first moves to the tail. The second visit scans
    /// it, with one `low` event". Both visits may be of one walk.
    #[test]
    fn a_memcg_below_low_is_scanned_at_the_second_visit() {
        let harness = in_memcg_lru();
        let (core, memcg) = (&harness.core, harness.task.memcg);
        core.memcgs.set_low(memcg, 1000);
        let (orders, mut scan) = (harness.root_orders(1000), Scan::default());
        let cx = &mut Context::new(core, &harness.host, &orders, &mut scan);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut walk = NodeWalk::new(cx, 3, false);
            while walk.step(cx) != WalkStep::Finished {
                let is_at_tail = walk.order.visits_below_low(core, MemcgId::ROOT, memcg);
                seen.push((is_at_tail, harness.stat(Counter::EventLow), harness.stat(Counter::PgscanDirect)));
            }
        }
        seen.dedup();
        // Proportional protection spares all but 32 pages.
        let expected = [(false, 0, 0), (true, 0, 0), (true, 1, 0), (true, 1, 32 >> 3)];
        assert!(seen.starts_with(&expected), "{seen:?}");
    }

    /// [book: memcgs#checks]: "A big memcg that reached the goal without aging stays in place; the
    /// next walk that starts in its bin meets it again".
    #[test]
    fn a_memcg_that_gave_enough_stays_in_place() {
        let mut harness = Harness::with_preset(crate::Preset::Linux72, 4096, 31);
        harness.bring_at(0..4096, 4);
        for _ in 0..3 {
            assert_eq!(harness.pass(harness.root_orders(32), 5).0, [64]);
            let walk = OrderWalk::new(&harness.core, MemcgId::ROOT, 0, false);
            let is_at_tail = walk.visits_below_low(&harness.core, MemcgId::ROOT, harness.task.memcg);
            assert!(is_old(&harness) && !is_at_tail && aged(&harness) == 0);
        }
    }

    /// [book: reclaim-loop#checks]: "kswapd with a goal of 8192 that frees 8192 in one lruvec stops
    /// the walk".
    #[test]
    fn background_reclaim_stops_at_its_goal() {
        let mut options = Harness::multigen_options(40_100);
        options.mechanisms = Harness::subtree_lru();
        options.watermarks = Watermarks { min: 0, low: 4096, high: 8192 };
        let mut harness = Harness::with_options(options, 20_000);
        let first = harness.task.clone();
        let second = harness.core.add_memcg("second", 20_000, crate::Time::ZERO).unwrap().id();
        harness.bring_at(0..20_000, 4);
        harness.task = harness.core.new_task(second, 0);
        harness.bring_at(20_000..40_000, 4);
        let orders = Orders { kind: EffortKind::Background, ..harness.root_orders(8192) };
        let mut scan = Scan::default();
        let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
        let mut walk = NodeWalk::new(cx, 0, false);
        while walk.step(cx) == WalkStep::More {}
        let left = |memcg| harness.core.memcg(memcg).lruvec.inactive_pages(Kind::File);
        assert_eq!((scan.progress.reclaimed, left(first.memcg), left(second)), (8192, 20_000 - 8192, 20_000));
    }

    /// [book: reclaim-loop#abort-test]: background reclaim stops when free pages are "safely above
    /// mark + 64".
    #[test]
    fn background_reclaim_stops_above_the_mark() {
        let mut options = Harness::multigen_options(10_000);
        options.watermarks = Watermarks { min: 0, low: 50, high: 100 };
        let mut harness = Harness::with_options(options, 10_000);
        harness.bring_at(0..9990, 4);
        let orders = Orders { kind: EffortKind::Background, ..harness.root_orders(8192) };
        let (_, scan) = harness.pass(orders, 0);
        assert_eq!(
            (scan.progress.reclaimed, harness.core.free_pages()),
            (192, 202),
            "in steps of 64 from 10 past 164"
        );
    }
}
