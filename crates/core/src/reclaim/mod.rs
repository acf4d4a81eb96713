//! Reclaim: how many pages to free, from which memcgs, and how hard to try.
//!
//! ```text
//! Charging ── over memory.max, or below min ──► Effort ── priorities 12…0 ──► NodeWalk ── lruvec by lruvec ──► batches
//! Background ── below low, until above high ──────────────────────────────►
//! ```
//!
//! Each operation is a value with a `step` that does one batch and returns what comes next. A step
//! never blocks: it returns a [`Throttle`] to wait for, and the host parks a thread or advances a
//! clock.
//!
//! Source: [book: reclaim-loop].
//!
//! # Locking
//!
//! No file of this folder holds a lock between steps.

mod background;
mod high;
mod last_resort;
mod oom;
mod oom_report;
mod order;
mod proactive;
mod throttle;

pub(crate) use crate::lru::CLUSTER_PAGES;
pub(crate) use crate::lru::scan_control::{Context, PRIORITY_DEFAULT, Scan, Tallies};
pub use crate::lru::scan_control::{EffortKind, Orders, Progress};
pub use crate::zone::Watermarks;
pub use background::{Background, BackgroundStep};
pub(crate) use high::{HighStep, OverHigh};
pub(crate) use last_resort::{LastResort, LastStep};
pub(crate) use oom::Oom;
pub use oom::{OomDecision, OomPolicy, ReapStep, Reaping};
pub use oom_report::{GenerationPages, OutOfMemory};
pub(crate) use order::{NodeWalk, WalkStep, evict_step};
pub use proactive::{Lowering, Proactive, RequestStep};

use crate::Core;
use crate::event::Event;
use crate::host::{Host, Throttle};
use crate::lru::{self, TURN_PAGES};
use crate::mechanism::Switch;
use crate::memcg::Counter;
use crate::workingset;

/// Result of a step of an effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again; other threads may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// The effort is over.
    Done(Progress),
}

/// One reclaim effort ([book: reclaim-loop#effort]): from priority 12 to 0, until its goal is
/// reached. Step it to the end, or abandon it.
#[derive(Debug)]
#[must_use = "an effort that is dropped halfway keeps the number of a memcg, or keeps it from aging; abandon it"]
pub struct Effort {
    orders: Orders,
    scan: Scan,
    priority: u8,
    walk: Option<NodeWalk>,
    /// Whether the effort runs a second time, as it does once if it frees nothing: concurrent
    /// reclaimers may have shared the first walk.
    repeated: bool,
}

impl Effort {
    /// An effort that has not begun.
    pub fn new(core: &Core, orders: Orders) -> Effort {
        let fewest = if orders.exact { 1 } else { lru::fewest_pages(core, orders.target) };
        let orders = Orders { goal_pages: orders.goal_pages.max(fewest), ..orders };
        let priority = initial_priority(core, &orders);
        Effort { orders, scan: Scan::default(), priority, walk: None, repeated: false }
    }

    /// Reclaims at most one batch.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> Step {
        let cx = &mut Context::new(core, host, &self.orders, &mut self.scan);
        let Some(walk) = &mut self.walk else {
            cx.scan.reset_tallies();
            self.walk = Some(NodeWalk::new(cx, self.priority, self.repeated));
            return Step::More;
        };
        match walk.step(cx) {
            WalkStep::More => return Step::More,
            WalkStep::Wait(throttle) => return Step::Wait(throttle),
            WalkStep::Finished => {}
        }
        self.walk = None;
        self.end_priority(core, host)
    }

    /// Ends the effort early. An aging that other threads wait for is completed.
    pub fn abandon(mut self, core: &Core, host: &impl Host) {
        if let Some(walk) = &mut self.walk {
            walk.abandon(core, host, self.orders.target);
        }
    }

    fn end_priority(&mut self, core: &Core, host: &impl Host) -> Step {
        let progress = self.scan.progress;
        let wait = throttle::after_pass(core, &self.orders, &self.scan.tallies).or_else(|| {
            throttle::after_fruitless_pass(core, &self.orders, self.priority, progress.reclaimed)
        });
        if progress.reclaimed > 0 {
            note_progress(core);
        }
        let done = progress.reclaimed >= self.orders.goal_pages;
        if !done && self.priority > 0 {
            self.priority -= 1;
            return wait.map_or(Step::More, Step::Wait);
        }
        throttle::end_effort(core, &self.orders);
        lru::end_effort(core, host, self.orders.target);
        let force = std::mem::take(&mut self.scan.skipped_deactivation) && !self.scan.force_deactivation;
        if progress.reclaimed == 0 && (!self.repeated || force) {
            // The first repetition is for a shared walk, the second for spared active pages.
            self.scan.force_deactivation = self.repeated;
            self.repeated = true;
            self.priority = kernels_priority(core, &self.orders);
            return wait.map_or(Step::More, Step::Wait);
        }
        if progress.reclaimed == 0 && self.scan.low_skipped && !self.scan.low_override {
            self.scan.low_override = true;
            // The protected memcgs give inactive pages first, too.
            self.scan.force_deactivation = false;
            self.priority = kernels_priority(core, &self.orders);
            return wait.map_or(Step::More, Step::Wait);
        }
        if progress.reclaimed == 0 && !self.orders.is_root() {
            workingset::give_up_charged(core, self.orders.target);
        }
        core.memcg(self.orders.target).stat.add(Counter::Efforts, 1);
        host.event(Event::Effort {
            target: self.orders.target,
            scanned: progress.scanned,
            reclaimed: progress.reclaimed,
            priority: self.priority,
            direct: self.orders.kind == EffortKind::Direct,
        });
        Step::Done(progress)
    }
}

/// The first priority of a root effort with a large goal: the first pass then scans about as many
/// pages as the goal ([book: reclaim-loop#initial-priority]). Small goals and targeted reclaim
/// start at 12.
pub(crate) fn initial_priority(core: &Core, orders: &Orders) -> u8 {
    let kernels = kernels_priority(core, orders);
    lru::order::turn_pages(core, orders.target).map_or(kernels, |pages| kernels.min(priority_of_turns(pages)))
}

/// The first priority where memcgs give pages in turn, for memcgs of `pages` pages on average. Each
/// gives a full turn, so that few are visited; a small one gives at most a sixteenth of its pages.
fn priority_of_turns(pages: u64) -> u8 {
    (pages / TURN_PAGES).max(1).ilog2().clamp(4, u32::from(PRIORITY_DEFAULT)) as u8
}

fn kernels_priority(core: &Core, orders: &Orders) -> u8 {
    if !orders.is_root() || orders.goal_pages < 64 || !core.habits().starts_by_size {
        return PRIORITY_DEFAULT;
    }
    let inactive = |kind| core.folios.listed().inactive_pages(kind);
    priority_for(core.reclaimable_kinds().map(inactive).sum(), orders.goal_pages)
}

/// Reclaim on behalf of the node or of a memcg has freed a page: background reclaim that has given
/// up may have hope again.
fn note_progress(core: &Core) {
    core.node.note_progress(!core.mechanisms().is_on(Switch::HopeByBalance));
}

fn priority_for(reclaimable_pages: u64, goal_pages: u64) -> u8 {
    let bits = |n: u64| i64::from(u64::BITS - n.leading_zeros());
    (bits(reclaimable_pages) - 1 - bits(goal_pages - 1)).clamp(6, i64::from(PRIORITY_DEFAULT)) as u8
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;

    /// [book: reclaim-loop#checks]: "Initial priority: R = 2^20, goal = 2^10 → 10".
    #[test]
    fn initial_priority_by_size_and_goal() {
        assert_eq!(priority_for(1 << 20, 1 << 10), 10);
        assert_eq!(priority_for(1 << 30, 64), 12);
        assert_eq!(priority_for(100, 8192), 6);
    }

    /// A replay of a sample sets fewer.
    #[test]
    fn an_effort_frees_at_least_a_batch() {
        for pages in [32, 3] {
            let mut options = Harness::multigen_options(256);
            options.grain.reclaim_pages = pages;
            let harness = Harness::with_options(options, 128);
            assert_eq!(Effort::new(&harness.core, harness.orders(1)).orders.goal_pages, pages);
        }
    }

    /// 2,048 pages >> 4 are 128.
    #[test]
    fn turns_are_of_two_batches() {
        assert_eq!([10, 512, 2048, 4095, 1 << 20].map(priority_of_turns), [4, 4, 4, 4, 12]);
    }

    /// [book: reclaim-loop#checks]: "Initial priority, goal 32: stays 12"; so does every targeted
    /// effort.
    #[test]
    fn small_goals_and_targets_start_at_the_default() {
        let mut harness = Harness::new(10_000, 31);
        harness.bring_at(0..10_000, 4);
        let start = |orders| Effort::new(&harness.core, orders).priority;
        assert_eq!(start(harness.root_orders(32)), 12);
        assert_eq!(
            start(harness.root_orders(1024)),
            6,
            "10,000 inactive pages: 14 - 1 - 10, but not below 6"
        );
        assert_eq!(start(harness.root_orders(64)), 7);
        assert_eq!(start(harness.orders(1024)), 12);
    }

    /// Anonymous pages count as reclaimable while swap has a slot, even if swappiness spares them.
    #[test]
    fn the_initial_priority_counts_what_swap_could_take() {
        for (slots, expected) in [(0, 6), (1, 7)] {
            let mut options = Harness::multigen_options(30_000);
            options.mechanisms = crate::Mechanisms::preset(crate::Preset::Linux72);
            options.swap.pages = slots;
            options.swappiness = crate::lru::Swappiness::FILE_ONLY;
            let mut harness = Harness::with_options(options, 30_000);
            harness.bring_at(0..2000, 4);
            (0..14_400).for_each(|_| _ = harness.add_anon());
            for _ in 0..2 {
                let swappiness = crate::lru::Swappiness::DEFAULT;
                assert!(crate::lru::Aging { swappiness, ..harness.aging() }.open_generation());
            }
            // 2,000 or 16,384 inactive pages: 11 - 1 - 6 or 15 - 1 - 6 - 1.
            assert_eq!(Effort::new(&harness.core, harness.root_orders(100)).priority, expected, "{slots}");
        }
    }

    /// The priorities of an effort's passes, and its progress.
    fn priorities(harness: &Harness, orders: Orders) -> (Vec<u8>, Progress) {
        let mut effort = Effort::new(&harness.core, orders);
        let mut priorities = Vec::new();
        loop {
            if effort.walk.is_none() {
                priorities.push(effort.priority);
            }
            match effort.step(&harness.core, &harness.host) {
                Step::Done(progress) => return (priorities, progress),
                Step::More | Step::Wait(_) => {}
            }
        }
    }

    /// [book: reclaim-loop#checks]: "Effort with no pages reclaimed at all repeats once in
    /// full-walk mode, then … returns 0".
    #[test]
    fn a_fruitless_effort_is_repeated_once() {
        let mut harness = Harness::new(100, 31);
        harness.bring_at(0..100, 4);
        (0..100).for_each(|page| harness.write(page));
        let (seen, progress) = priorities(&harness, harness.orders(32));
        assert_eq!(progress.reclaimed, 0);
        assert!(seen.iter().copied().eq((0..=12).rev().chain((0..=12).rev())), "{seen:?}");
        harness.end_writeback(harness.start_writeback());
        let (seen, progress) = priorities(&harness, harness.orders(32));
        assert!(progress.reclaimed >= 32 && seen.len() <= 13, "{progress:?} {seen:?}");
    }

    /// [book: reclaim-loop#checks]: "… then (if low was respected) once ignoring low, then returns
    /// 0".
    #[test]
    fn low_is_ignored_last() {
        for preset in [crate::Preset::Linux72, crate::Preset::Default] {
            let mut harness = Harness::with_preset(preset, 4096, 31);
            let parent = harness.task.memcg;
            let child = harness.core.add_child(parent, "child", 4096, crate::Time::ZERO).unwrap().id();
            harness.task = harness.core.new_task(child, 0);
            harness.bring_at(0..1000, 4);
            let orders = Orders { target: parent, ..harness.orders(32) };
            let whole: Vec<u8> = (0..=12).rev().collect();
            harness.core.memcgs.set_low(child, 1000);
            let (seen, progress) = priorities(&harness, orders);
            assert!(progress.reclaimed >= 32, "{preset:?}: {progress:?}");
            assert!(seen.starts_with(&whole.repeat(2)) && seen.len() > 26, "{preset:?}: {seen:?}");
            assert!(harness.stat(Counter::EventLow) > 0);

            // If nothing at all can be freed, the effort ends without progress.
            harness.core.memcgs.set_low(child, 1000);
            (0..1000).filter(|&page| harness.is_cached(page)).for_each(|page| harness.write(page));
            let (seen, progress) = priorities(&harness, orders);
            assert_eq!(progress.reclaimed, 0, "{preset:?}");
            assert_eq!(seen, whole.repeat(3), "{preset:?}");
        }
    }

    /// [book: reclaim-loop#effort]: an effort ends with the first pass that reaches the goal.
    #[test]
    fn an_effort_ends_at_its_goal() {
        let mut harness = Harness::new(4096, 31);
        harness.bring_at(0..4096, 4);
        let (seen, progress) = priorities(&harness, harness.orders(1));
        assert_eq!(
            (seen, progress.reclaimed),
            (vec![12, 11, 10, 9, 8, 7], 58),
            "as [book: golden-traces#by-hand] has it by hand"
        );
    }

    /// [book: reclaim-loop#checks]: "A memcg of 8192 pages, one dirty page at the tail, priority 12
    /// (quota 1): the flusher is woken".
    #[test]
    fn one_dirty_page_at_the_tail_wakes_the_flusher() {
        // The measured kernel charges other things to the limit, too, which makes the quota 1.
        let mut harness = Harness::new(8191, 31);
        harness.bring_at(0..8191, 4);
        harness.write(0);
        assert_eq!(harness.pass(harness.orders(32), 12).0, [1]);
        assert_eq!(*harness.host.flushes.borrow(), [crate::FlushReason::Reclaim]);
    }

    /// [book: writeback#throttling]: limit reclaim waits for a tick if it met nothing but dirty
    /// pages that are already queued, and these are more than half of the reclaimable pages.
    /// [book: reclaim-loop#effort]: the mark is cleared at the end of an effort, before a
    /// repetition.
    #[test]
    fn limit_reclaim_waits_for_congestion() {
        let waits = |dirty: u32| {
            let mut harness = Harness::new(100, 31);
            harness.bring_at(0..100, 4);
            (0..dirty).for_each(|page| harness.write(page));
            let folios = harness.start_writeback();
            // Reclaim has met these once, so they carry the flag `reclaim`.
            (0..dirty).for_each(|page| harness.core.folios.flags(harness.folio(page)).set_reclaim());
            let mut effort = Effort::new(&harness.core, harness.orders(32));
            let mut waits = [Vec::new(), Vec::new()];
            loop {
                let (round, priority) = (usize::from(effort.repeated), effort.priority);
                match effort.step(&harness.core, &harness.host) {
                    Step::More => {}
                    Step::Wait(reason) => waits[round].push((priority, reason)),
                    Step::Done(_) => break,
                }
            }
            harness.end_writeback(folios);
            waits
        };
        // 100 >> 7 is 0: the passes before priority 6 scan nothing.
        let expected: Vec<_> = (1..=6).rev().map(|priority| (priority, Throttle::Congested)).collect();
        let [first, mut second] = waits(100);
        assert!(first.starts_with(&expected), "{first:?}");
        second.retain(|&(priority, _)| priority > 6);
        assert_eq!(second, []);
        assert_eq!(waits(20), [vec![], vec![]]);
    }
}
