//! Tests of ratios, rates and pauses.

use super::*;
use crate::memcg::Pace;
use crate::memcg::pace::PAUSE_MAX;
use crate::testing::Harness;
use crate::writeback::{Flusher, FlusherOptions, FlusherStep};
use crate::{Mechanisms, Options, Preset, Switch, UNLIMITED};

/// Limits for 1,000 pages: free run to 150, setpoint 175, limit 200.
#[test]
fn ratios_fall_from_two_to_nothing() {
    let of = |pending| ratio(pending, DirtyLimits::of(1000));
    assert_eq!([0, 100, 150].map(of), [None; 3]);
    assert_eq!([175, 200, 201, 5000].map(of), [Some(ONE), Some(0), Some(0), Some(0)]);
    let all: Vec<u64> = (151..=200).map(|pending| of(pending).unwrap()).collect();
    assert!(all.is_sorted_by(|a, b| a >= b) && all[0] > ONE * 18 / 10 && all[48] < ONE / 8, "{all:?}");
    let near = [170, 180].map(|pending| of(pending).unwrap().abs_diff(ONE));
    assert!(near.iter().all(|&off| off < ONE / 100), "flat in the middle: {near:?}");
    // The smallest possible limits.
    assert_eq!([0, 1, 2].map(|pending| ratio(pending, DirtyLimits::of(1))), [None, Some(0), Some(0)]);
}

/// `tasks` tasks dirty pages of 65,536 as fast as they may, and a device writes `bandwidth` pages
/// per second. Returns, for the last ten of sixty seconds, minimum and maximum of pending pages and
/// of the rate, and the pages dirtied per second.
fn run(tasks: u64, bandwidth: u64) -> ([u64; 2], [u64; 2], u64) {
    let limits = DirtyLimits::of(65_536);
    let mut pace = Pace::default();
    let (mut pending, mut written, mut dirtied) = (0, 0, 0);
    let (mut least, mut most) = ([u64::MAX; 2], [0; 2]);
    for tick in 0..6000 {
        let now = Time::from_nanos(tick * 10_000_000);
        // Without a limit, a task dirties a thousand pages in 10 ms.
        let pages = match ratio(pending, limits) {
            None => 1000,
            Some(ratio) => pace.note(now, 0, written, ratio) * ratio / ONE / 100,
        };
        pace.dirtied += if ratio(pending, limits).is_some() { pages * tasks } else { 0 };
        pending += pages * tasks;
        let done = pending.min(bandwidth / 100);
        pending -= done;
        written += done;
        if tick >= 5000 {
            dirtied += pages * tasks;
            least = [least[0].min(pending), least[1].min(pace.rate)];
            most = [most[0].max(pending), most[1].max(pace.rate)];
        }
    }
    ([least[0], most[0]], [least[1], most[1]], dirtied / 10)
}

/// "The rate … aims to be bandwidth / N where there are N tasks", whatever the initial bandwidth.
#[test]
fn rates_converge_to_the_tasks_share_of_the_bandwidth() {
    for (tasks, bandwidth) in [(1, 10_000), (4, 10_000), (1, 2000), (20, 20_000), (1, 60_000)] {
        let (pending, rate, dirtied) = run(tasks, bandwidth);
        let what = format!("{tasks} tasks, {bandwidth}/s: pending {pending:?}, rate {rate:?}, {dirtied}/s");
        assert!(dirtied.abs_diff(bandwidth) <= bandwidth / 50, "{what}");
        let share = bandwidth / tasks;
        assert!(rate[0] >= share * 8 / 10 && rate[1] <= share * 12 / 10, "{what}");
        assert!(pending[0] > 9830 && pending[1] < 13_107, "between the free run and the limit: {what}");
    }
}

/// A memcg of 1,000 pages on a node of 10,000, with `pages` dirty.
fn dirty(pages: u32) -> Harness {
    let mut harness = Harness::with_options(Options::new(10_000), 1000);
    harness.read_ahead(0..500);
    (0..pages).for_each(|page| harness.write(page));
    harness
}

/// Whether a flusher woken now writes.
fn flushes(harness: &Harness) -> bool {
    let mut flusher = Flusher::new(FlusherOptions::default(), Time::ZERO);
    matches!(flusher.step(&harness.core, &harness.host), FlusherStep::Write(_))
}

fn balance(harness: &Harness, dirtier: &mut Dirtier) -> Option<Throttle> {
    harness.core.balance_dirty(&harness.host, harness.task.memcg, dirtier)
}

/// Makes the measured bandwidth so low that pauses of 200 ms are allowed.
fn slow(harness: &Harness) {
    harness.memcg().pace.lock().get_or_insert_default().bandwidth = 50;
}

/// With late counts and without `exact_statistics`, writers of a memcg and the flusher know its
/// dirty pages as they were at the last refresh.
#[test]
fn writers_know_late_counts_until_a_refresh() {
    let late = Mechanisms::preset(Preset::Linux72);
    for mechanisms in [late, late.with_switch(Switch::ExactStatistics, true).unwrap()] {
        let is_late = mechanisms == late;
        let options = Options { mechanisms, late_dirty_counts: true, ..Options::new(10_000) };
        let period = options.statistics_refresh.period;
        let mut harness = Harness::with_options(options, 1000);
        harness.read_ahead(0..500);
        let pauses = |harness: &Harness| balance(harness, &mut Dirtier::default()).is_some();
        (0..300).for_each(|page| harness.write(page));
        assert_eq!((pauses(&harness), flushes(&harness)), (!is_late, !is_late), "above the limit");
        harness.host.advance(period);
        assert!(pauses(&harness) && flushes(&harness));
        let folios = harness.start_writeback();
        harness.end_writeback(folios);
        assert_eq!(pauses(&harness), is_late, "all is written");
        harness.core.refresh_statistics();
        assert!(!pauses(&harness) && !flushes(&harness));
    }
}

/// A stalled device: a task at the limit takes longer and longer pauses, and goes on once pages are
/// written.
#[test]
fn a_stalled_device_pauses_and_does_not_spin() {
    let harness = dirty(200);
    let folios = harness.start_writeback();
    let mut dirtier = Dirtier::default();
    assert!(dirtier.dirtied(), "a new dirtier checks at once");
    let mut pauses = Vec::new();
    while harness.host.now() < Time::ZERO + Duration::from_secs(60) {
        let Some(Throttle::Dirty(pause)) = balance(&harness, &mut dirtier) else { panic!("it stalls") };
        harness.host.advance(pause);
        pauses.push(pause);
    }
    assert!(pauses[0] == TICK && pauses.is_sorted() && pauses.last() == Some(&PAUSE_MAX), "{pauses:?}");
    // It takes some 16 s until the measured bandwidth is almost zero.
    assert!(pauses.len() < 3000 && pauses.iter().filter(|&&pause| pause == PAUSE_MAX).count() > 200);
    harness.end_writeback(folios);
    assert_eq!(balance(&harness, &mut dirtier), None);
    assert!(!dirtier.dirtied() && dirtier.look_pages == 8, "200 to the limit: it looks after 8");
}

/// An eighth of what 4,096 pending pages take at 25,600 per second.
#[test]
fn the_device_does_not_run_dry_in_a_pause() {
    let mut pace = Pace::default();
    assert_eq!(pace.longest_pause(4096), Duration::from_millis(20));
    assert_eq!(pace.longest_pause(10), TICK);
    pace.bandwidth = 1;
    assert_eq!([2, 100].map(|pending| pace.longest_pause(pending)), [PAUSE_MAX; 2]);
}

/// At the setpoint the initial rate is 25,600 per second: 32 pages take 1.25 ms, and eight such
/// pauses are combined.
#[test]
fn pauses_are_neither_short_nor_long() {
    let harness = dirty(175);
    slow(&harness);
    let mut dirtier = Dirtier::default();
    assert_eq!(balance(&harness, &mut dirtier), None);
    dirtier.due = harness.host.now();
    let mut pauses = Vec::new();
    for _ in 0..17 {
        dirtier.pages = 32;
        pauses.push(balance(&harness, &mut dirtier));
        if let Some(Throttle::Dirty(pause)) = pauses.last().unwrap() {
            harness.host.advance(*pause);
        }
    }
    let at: Vec<usize> = (0..17).filter(|&at| pauses[at].is_some()).collect();
    assert_eq!(at, [7, 15], "{pauses:?}");
    assert_eq!(pauses[7], Some(Throttle::Dirty(Duration::from_millis(10))));
    // 10,000 pages would take 390 ms.
    dirtier.pages = 10_000;
    assert_eq!(balance(&harness, &mut dirtier), Some(Throttle::Dirty(PAUSE_MAX)));
    harness.host.advance(PAUSE_MAX);
    assert_eq!(balance(&harness, &mut dirtier), None, "the rest is forgiven");
}

/// Two tasks of one memcg share a rate. A third, idle so far, is ahead of its rate by at most one
/// pause.
#[test]
fn an_idle_task_gains_at_most_one_pause() {
    let harness = dirty(175);
    harness.host.advance(Duration::from_secs(3600));
    slow(&harness);
    let pause_of = |pages| {
        let mut dirtier = Dirtier { pages, ..Dirtier::default() };
        balance(&harness, &mut dirtier)
    };
    assert_eq!(pause_of(5120), None, "200 ms of 25,600 per second");
    assert_eq!(pause_of(5120), None, "each has its own");
    assert_eq!(pause_of(5120 + 2560), Some(Throttle::Dirty(Duration::from_millis(100))));
}

/// `memory.max` of ancestors counts, too. Without `memcg_dirty_limits` only the global limit
/// counts: 20 % of 10,000.
#[test]
fn the_lowest_limit_counts() {
    for (own, max_pages, pauses) in [(true, UNLIMITED, false), (true, 1000, true), (false, 1000, false)] {
        let mut options = Options::new(10_000);
        options.memcg_dirty_limits = own;
        let mut harness = Harness::with_options(options, max_pages);
        let child = harness.core.add_child(harness.task.memcg, "child", UNLIMITED, Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(child, 0);
        harness.read_ahead(0..900);
        (0..200).for_each(|page| harness.write(page));
        let mut dirtier = Dirtier::default();
        assert_eq!(balance(&harness, &mut dirtier).is_some(), pauses, "{own} {max_pages}");
        assert_eq!(flushes(&harness), pauses, "{own} {max_pages}");
        if !own {
            harness.core.memcg(harness.core.memcgs.find("golden").unwrap()).set_max_pages(UNLIMITED);
            harness.read_ahead(900..3000);
            (900..2700).for_each(|page| harness.write(page));
            assert!(balance(&harness, &mut dirtier).is_some() && flushes(&harness), "2,000 of all");
        }
    }
}

/// A small tenant, whose limit of 2 pages is far below what it may dirty between two checks by its
/// rate and by the global limit.
#[test]
fn a_tenant_near_its_limit_checks_at_each_page() {
    let mut options = Options::new(10_000);
    options.watermarks = crate::reclaim::Watermarks { min: 0, low: 0, high: 0 };
    let mut harness = Harness::with_options(options, UNLIMITED);
    let small = harness.core.add_memcg("small", 10, Time::ZERO).unwrap().id();
    harness.read_ahead(0..3000);
    // Below the global free run, and above it.
    for dirty in [0..100, 100..1750] {
        dirty.for_each(|page| harness.write(page));
        let looks_after = |memcg| {
            let mut dirtier = Dirtier::default();
            assert_eq!(harness.core.balance_dirty(&harness.host, memcg, &mut dirtier), None);
            dirtier.look_pages
        };
        assert!(looks_after(harness.task.memcg) >= 8);
        assert_eq!(looks_after(small), 1);
    }
}

/// The flusher is woken every 32 dirtied pages, after the first 64 one by one.
#[test]
fn the_flusher_is_woken_every_few_dozen_pages() {
    let wakeups = |pages| {
        let harness = dirty(pages);
        assert_eq!(flushes(&harness), pages > 150, "{pages}");
        harness.host.flushes.borrow().len()
    };
    assert_eq!([100, 127, 128, 129, 159, 160, 192].map(wakeups), [0, 0, 1, 1, 1, 2, 3]);
}
