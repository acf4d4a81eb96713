//! Background reclaim ("kswapd"): keeps free memory between the watermarks.
//!
//! Source: [book: reclaim-loop#watermarks]. The host runs it on a thread or actor of its own and
//! wakes it when the core asks. After each run it naps: memory may have become short again by then.

use super::oom::kill_for_thrashing;
use super::{
    CLUSTER_PAGES, Context, EffortKind, NodeWalk, Orders, PRIORITY_DEFAULT, Scan, WalkStep, initial_priority,
    note_progress, throttle,
};
use crate::event::Event;
use crate::folio::Kind;
use crate::host::{Host, Throttle};
use crate::lru::{self, Swappiness};
use crate::memcg::{Counter, Memcg, MemcgId};
use crate::{Core, Time};
use std::time::Duration;

/// Result of a step of background reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundStep {
    /// Call again; other threads may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// Free memory is above the high watermark, or reclaim cannot help: call again after this time,
    /// or when woken. If free memory is below the mark by then, a new run begins, even if it never
    /// fell below the low one.
    Nap(Duration),
    /// The same after a nap: sleep until woken.
    Sleep,
}

/// How long background reclaim naps before it sleeps.
const NAP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A run is under way: from the moment when free memory is too low until it is above the high
    /// watermark again, or every priority has been tried.
    Runs,
    /// A run has ended, without a rest since.
    Ended,
    /// Until then.
    Naps(Time),
    Sleeps,
}

/// The state of background reclaim between steps.
#[derive(Debug)]
pub struct Background {
    orders: Orders,
    scan: Scan,
    priority: u8,
    walk: Option<NodeWalk>,
    state: State,
    /// Pages reclaimed by this run.
    reclaimed_pages: u64,
    /// A pass of this run met pages under writeback. The last pass may have met none, because
    /// earlier ones activated them. Only where background reclaim waits for writeback (the classic
    /// LRU; `global_dirty_throttle`).
    met_writeback: bool,
    /// Classic: a pass of this run spared anonymous pages for the sake of inactive file pages, and
    /// freed nothing.
    cache_trim_failed: bool,
}

impl Background {
    /// Background reclaim, asleep. `cpu` is its thread's.
    pub fn new(core: &Core, cpu: usize) -> Background {
        let goal_pages = core.node.high_pages(CLUSTER_PAGES);
        let swappiness = core.options.swappiness;
        let orders = Orders::new(MemcgId::ROOT, EffortKind::Background, goal_pages, swappiness, cpu);
        Background {
            orders,
            scan: Scan::default(),
            priority: PRIORITY_DEFAULT,
            walk: None,
            state: State::Sleeps,
            reclaimed_pages: 0,
            met_writeback: false,
            cache_trim_failed: false,
        }
    }

    /// Reclaims at most one batch.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> BackgroundStep {
        let Some(walk) = &mut self.walk else {
            let begins = self.state != State::Runs;
            if begins && !core.node.is_balanced() {
                core.node.call_back_frames();
            }
            if core.node.is_balanced() || core.node.is_hopeless() {
                return self.rest(core, host);
            }
            if begins {
                self.begin_run(core, host);
            }
            if self.priority == PRIORITY_DEFAULT {
                self.priority = initial_priority(core, &self.orders);
            }
            self.scan.reset_tallies();
            self.scan.progress = Default::default();
            // The first check is made before there is a goal, which chooses the priority.
            let priority = if begins { PRIORITY_DEFAULT } else { self.priority };
            check_min_ttl(core, host, priority, self.orders.swappiness);
            let cx = &mut Context::new(core, host, &self.orders, &mut self.scan);
            self.walk = Some(NodeWalk::new(cx, self.priority, true));
            return BackgroundStep::More;
        };
        match walk.step(&mut Context::new(core, host, &self.orders, &mut self.scan)) {
            WalkStep::More => return BackgroundStep::More,
            WalkStep::Wait(throttle) => return BackgroundStep::Wait(throttle),
            WalkStep::Finished => {}
        }
        self.cache_trim_failed |= walk.trims_cache() && self.scan.progress.reclaimed == 0;
        self.walk = None;
        self.end_pass(core, host)
    }

    fn end_pass(&mut self, core: &Core, host: &impl Host) -> BackgroundStep {
        let progress = self.scan.progress;
        let wait = throttle::after_background_pass(core, &self.orders, &self.scan.tallies);
        self.reclaimed_pages += progress.reclaimed;
        if core.node.unthrottle(false) {
            host.wake_throttled();
        }
        if progress.scanned < self.orders.goal_pages || progress.reclaimed == 0 {
            self.priority -= 1;
        }
        let under_writeback = self.scan.tallies.writeback + self.scan.tallies.immediate > 0;
        let mechanisms = core.mechanisms();
        let waits = mechanisms.any_policy(|lru| lru.habits().waits_for_writeback)
            || mechanisms.global_dirty_throttle();
        self.met_writeback |= under_writeback && waits;
        let stuck = progress.reclaimed == 0 && (self.scan.tallies.writeback > 0 || self.met_writeback);
        if self.priority == 0 {
            if self.reclaimed_pages == 0 && self.cache_trim_failed && !self.scan.no_cache_trim {
                // Once more, with anonymous pages ([book: classic-lru#scan-amounts]).
                self.scan.no_cache_trim = true;
                self.priority = PRIORITY_DEFAULT;
                return wait.map_or(BackgroundStep::More, BackgroundStep::Wait);
            }
            if stuck {
                return self.restart(Throttle::Writeback);
            }
            if self.reclaimed_pages == 0 {
                core.node.note_fruitless_run();
            }
            self.end_run(core, host);
        }
        wait.map_or(BackgroundStep::More, BackgroundStep::Wait)
    }

    /// Starts over after meeting only pages under writeback: they are slow, not hopeless.
    fn restart(&mut self, wait: Throttle) -> BackgroundStep {
        self.begin_anew();
        BackgroundStep::Wait(wait)
    }

    fn begin_anew(&mut self) {
        self.priority = PRIORITY_DEFAULT;
        self.reclaimed_pages = 0;
        self.met_writeback = false;
        (self.cache_trim_failed, self.scan.no_cache_trim) = (false, false);
        self.scan.stuck = Default::default();
    }

    fn begin_run(&mut self, core: &Core, host: &impl Host) {
        let stat = &core.memcg(MemcgId::ROOT).stat;
        match self.state {
            State::Naps(until) if host.now() < until => stat.add(Counter::KswapdLowWmarkHitQuickly, 1),
            State::Naps(_) | State::Ended => stat.add(Counter::KswapdHighWmarkHitQuickly, 1),
            State::Sleeps | State::Runs => {}
        }
        stat.add(Counter::Pageoutrun, 1);
        self.state = State::Runs;
        core.node.set_reclaims(true);
        host.event(Event::BackgroundWoke);
    }

    fn end_run(&mut self, core: &Core, host: &impl Host) {
        if self.reclaimed_pages > 0 {
            note_progress(core);
            if core.node.is_balanced() {
                throttle::end_background(core);
            }
        }
        lru::end_effort(core, host, MemcgId::ROOT);
        self.begin_anew();
        self.state = State::Ended;
        core.node.set_reclaims(false);
    }

    /// There is nothing to do, or nothing that would help.
    fn rest(&mut self, core: &Core, host: &impl Host) -> BackgroundStep {
        if self.state == State::Runs {
            self.end_run(core, host);
        }
        match self.state {
            State::Runs | State::Ended => {
                self.state = State::Naps(host.now() + NAP);
                return BackgroundStep::Nap(NAP);
            }
            State::Naps(_) => {
                self.state = State::Sleeps;
                if core.node.unthrottle(true) {
                    host.wake_throttled();
                }
                host.event(Event::BackgroundSleeps);
            }
            State::Sleeps => {}
        }
        BackgroundStep::Sleep
    }
}

/// `lru_gen/min_ttl_ms` ([book: aging#thrash-prevention]): if every memcg is too young, too
/// small or protected, reclaim would thrash, and the OOM policy applies. Reclaim goes on in any
/// case.
fn check_min_ttl(core: &Core, host: &impl Host, priority: u8, swappiness: Swappiness) {
    let min_ttl = Duration::from_millis(core.tunables.min_ttl_ms());
    if min_ttl.is_zero() || !core.habits().has_generations {
        return;
    }
    let now = host.now();
    let is_old = |memcg| {
        is_reclaimable(core, memcg, priority, core.swappiness_of(memcg.id(), swappiness), now, min_ttl)
    };
    if !core.memcgs.iter().any(is_old) {
        kill_for_thrashing(core, host);
    }
}

/// Whether a memcg has evictable pages in a generation older than `min_ttl`.
fn is_reclaimable(
    core: &Core,
    memcg: &Memcg,
    priority: u8,
    swappiness: Swappiness,
    now: Time,
    min_ttl: Duration,
) -> bool {
    let lruvec = &memcg.lruvec;
    let pages = lruvec.evictable_pages(swappiness);
    let sizable = if memcg.is_online() { pages >> priority > 0 } else { pages > 0 };
    let kinds = || swappiness.evictable();
    let oldest = if core.mechanisms().workingset_rework() {
        kinds().map(|kind| lruvec.min_seq(kind)).min()
    } else {
        Some(lruvec.min_seq(Kind::File))
    };
    let spared = core.memcgs.effective_protection(memcg.id(), MemcgId::ROOT).min_pages;
    sizable
        && (memcg.id() == MemcgId::ROOT || spared < memcg.usage_pages())
        && oldest.is_some_and(|oldest| lruvec.window.birth(oldest) + min_ttl < now)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::node::Allocation;
    use crate::reclaim::Watermarks;
    use crate::testing::Harness;

    /// [book: aging#thrash-prevention]: "the killer runs when every memcg is too young, too small,
    /// or fully protected. Eviction itself is not stopped by `min_ttl`".
    #[test]
    fn thrashing_is_counted() {
        for (ttl_ms, age_ms, min_pages, expected) in
            [(0, 0, 0, 0), (1000, 1001, 0, 0), (1000, 1000, 0, 1), (1000, 1001, 5000, 1)]
        {
            let mut options = Harness::multigen_options(5064);
            options.watermarks = Watermarks { min: 0, low: 100, high: 200 };
            let mut harness = Harness::with_options(options, 5000);
            harness.read_ahead(0..4930);
            harness.drain();
            harness.core.tunables.set_min_ttl_ms(ttl_ms);
            harness.core.memcgs.set_min(harness.task.memcg, min_pages);
            harness.host.advance(Duration::from_millis(age_ms));
            let mut background = Background::new(&harness.core, 0);
            assert_eq!(background.step(&harness.core, &harness.host), BackgroundStep::More);
            let root = harness.core.memcg(MemcgId::ROOT);
            assert_eq!(root.stat.get(Counter::EventOom), expected, "{ttl_ms} {age_ms} {min_pages}");
            while background.step(&harness.core, &harness.host) == BackgroundStep::More {}
            assert_eq!(harness.stat(Counter::PgstealKswapd) > 0, min_pages == 0);
        }
    }

    /// [book: aging#thrash-prevention]: the first check after a wake-up is at priority 12. Then a
    /// memcg of less than 4,096 pages is too small, however old its pages are. (As kswapd woke,
    /// Linux 7.2 killed the program of a memcg of 3,000 pages, and none of 12,000 pages.)
    #[test]
    fn the_first_check_finds_small_memcgs_too_small() {
        for (pages, expected) in [(4095, [1, 1]), (4096, [0, 0])] {
            let mut options = Harness::multigen_options(pages + 64);
            options.watermarks = Watermarks { min: 0, low: 100, high: 200 };
            let mut harness = Harness::with_options(options, 5000);
            harness.read_ahead(0..pages);
            harness.drain();
            harness.core.tunables.set_min_ttl_ms(1);
            harness.host.advance(Duration::from_secs(1));
            let mut background = Background::new(&harness.core, 0);
            let kills = || harness.core.memcg(MemcgId::ROOT).stat.get(Counter::EventOom);
            assert_eq!(background.step(&harness.core, &harness.host), BackgroundStep::More);
            let first = kills();
            while background.step(&harness.core, &harness.host) == BackgroundStep::More {}
            assert_eq!([first, kills()], expected, "{pages}");
        }
    }

    /// Frames near a CPU that has become idle are used before pages are reclaimed.
    #[test]
    fn idle_frames_of_cpus_count_when_background_reclaim_wakes() {
        let mut options = Harness::multigen_options(1000);
        options.watermarks = Watermarks { min: 0, low: 40, high: 50 };
        (options.cpus, options.pcp_batch_frames) = (2, 32);
        let mut harness = Harness::with_options(options, 1000);
        let Allocation::Frame(idle) = harness.core.node.allocate(1, false, Default::default) else {
            panic!("memory is free")
        };
        harness.core.node.release(Some(1), &[idle]);
        harness.read_ahead(0..930);
        harness.drain();
        let node = &harness.core.node;
        assert!(!node.is_balanced() && node.unused_pages() == 70, "{} free", node.free_pages());
        let mut background = Background::new(&harness.core, 0);
        assert_eq!(background.step(&harness.core, &harness.host), BackgroundStep::Sleep);
        assert_eq!((node.free_pages(), harness.stat(Counter::PgstealKswapd)), (70, 0));
    }
}
