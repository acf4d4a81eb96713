//! E1: prefetching the next folio's state while a list is scanned.
//!
//! Two speeds are measured in real time, because only real time includes cache misses. [`scan`]
//! measures the scan rate of lists that exceed the processor's caches, directly on the core.
//! [`files`] measures the end-to-end effect with the real cache and the publication's loads. Before
//! and after alternate on the same memory, forwards and backwards. Each pair of turns is one throw
//! of the sign test. *After* is the published patch alone; what this project added to it has rows
//! of its own.

mod files;
mod scan;

use super::crosscheck;
use super::evidence::{Check, Experiment, MetricRow, PairChanges, Published, Shown, Values};
use super::{Claim, Effort, ExperimentRequest, Registration};
use crate::layout;
use crate::statistics::heads_at_most;
use crate::{Error, Stage, Unit, Watch};
use files::{Load, Prefetch, Side, Turn};
use mglru_core::{Lru, Mechanisms};
use scan::{ScanMachine, Scanned, WAYS, Way};
use std::fs;
use std::time::Duration;

pub const REGISTRATION: Registration = Registration {
    name: "prefetch",
    claims: &[
        Claim { words: "scans are faster", metric: "folios_scanned_per_second" },
        Claim { words: "scans are faster (ours)", metric: SCANNED },
        Claim { words: "random reads gain", metric: "randread_zipf05_mib_per_second" },
        Claim { words: "reads and writes gain", metric: "hybrid_zipf07_read_mib_per_second" },
        Claim { words: "queries are unchanged", metric: "sysbench_queries_per_second" },
        Claim { words: "compiling is unchanged", metric: "compile_units_per_second" },
        Claim { words: "sets lose", metric: "memcached_sets_per_second" },
    ],
    in_real_world: true,
    quick_among_all: false,
    run,
};

/// Minimum runs per setting. With fewer, a sign test shows nothing.
const RUNS_MIN: u32 = 12;
/// 64 GiB of pages. Their metadata exceeds the caches of most processors.
const FOLIOS: u32 = 16 << 20;
/// Frames are assigned to random tenants, so list neighbours are this many folios apart on average.
const TENANTS: u32 = 1024;
/// A list that fits in a level-2 cache, with frames in order.
const FEW_FOLIOS: u32 = 40_000;
/// Each scan reverses a list. The number of rounds gives every way equal numbers of both directions
/// and of first turns.
const FEW_ROUNDS: u32 = 48;
const FEW_TENANTS: u32 = 16;
/// A list that fits only in the last-level cache.
const MORE_FOLIOS: u32 = 1 << 20;
const MORE_ROUNDS: u32 = 4;
/// Duration of each turn of a load.
const TURN: Duration = Duration::from_millis(250);
const MIB_BYTES: f64 = (1 << 20) as f64;
const SCANNED: &str = "ours_folios_scanned_per_second";
/// Required increase of the scan rate. None was published for scans alone; random reads gained as
/// much.
const SCANNED_WANTED: f64 = 0.07;
/// Metrics whose pairs of runs are shown.
const SHOWN: [&str; 5] = [
    SCANNED,
    "ours_reclaim_folios_scanned_per_second",
    "randread_zipf05_mib_per_cpu_second",
    "memcached_sets_per_cpu_second",
    "control_short_list_folios_per_second",
];
/// Significance level of the sign test.
const SIGNIFICANT: f64 = 0.05;

/// Values per run: without prefetching, with the published patch, and with what the default preset
/// does.
type Three = [Vec<f64>; 3];
/// The same, and those of scans that follow links without prefetching.
type Four = [Vec<f64>; WAYS];
/// Turns of a load with each of the three settings.
type Turns = [Vec<Turn>; 3];
type Figure = fn(&Turn) -> f64;

/// Runs the experiment.
///
/// # Errors
/// If a file cannot be created, or the cache fails.
fn run(order: &ExperimentRequest, watch: &dyn Watch) -> Result<Experiment, Error> {
    let (effort, quick) = (order.effort, order.quick);
    let runs = if quick { effort.runs } else { effort.runs.max(RUNS_MIN) };
    let scans = Scans::new(effort, runs, watch)?;
    let loads = Loads::new(effort, runs, watch)?;
    let rows = rows(&scans, &loads);
    Ok(Experiment {
        name: "prefetch",
        world: "real",
        workload: workload(),
        runs,
        quick,
        untimely: None,
        seconds: 0.0,
        checks: checks(&scans, &loads, &rows, quick),
        crosschecks: crosscheck::REAL_TIME,
        shown: vec![pairs(&rows)],
        rows,
    })
}

fn rows(scans: &Scans, loads: &Loads) -> Vec<MetricRow> {
    let Loads { random_read, hybrid, sysbench, compile, memcached } = loads;
    let of = |turns: &Turns, seconds: Figure, figure: Figure| -> Three {
        [0, 1, 2].map(|setting| turns[setting].iter().map(|turn| figure(turn) / seconds(turn)).collect())
    };
    let (wall, cpu): (Figure, Figure) = (|turn| turn.seconds, |turn| turn.cpu_seconds);
    let (mib, mib_written): (Figure, Figure) =
        (|turn| turn.reads as f64 / MIB_BYTES, |turn| turn.writes as f64 / MIB_BYTES);
    let done: Figure = |turn| turn.reads as f64;
    let change = |before, after| Published::Change { before, after };
    vec![
        // The publication measured reads by jobs. Scan rates were not published.
        row("randread_zipf05_mib_per_second", "MiB/s", change(8747.59, 9381.31), of(random_read, wall, mib)),
        scan_row("folios_scanned_per_second", &scans.making_room),
        scan_row("reclaim_folios_scanned_per_second", &scans.reclaim),
        // This project's additions: two folios ahead by links, and the page's word.
        ours_row(SCANNED, Published::Nothing, &scans.making_room),
        ours_row("ours_reclaim_folios_scanned_per_second", Published::Nothing, &scans.reclaim),
        // Kernels prefetch the next folio's state of these lists already.
        ours_row("ours_classic_reclaim_folios_scanned_per_second", Published::Nothing, &scans.classic),
        ours_row("ours_ranked_reclaim_folios_scanned_per_second", Published::Nothing, &scans.ranked),
        row("randread_zipf05_mib_per_cpu_second", "MiB/s", Published::Nothing, of(random_read, cpu, mib)),
        row("hybrid_zipf07_read_mib_per_second", "MiB/s", change(6622.0, 6926.6), of(hybrid, wall, mib)),
        row(
            "hybrid_zipf07_write_mib_per_second",
            "MiB/s",
            change(1256.3, 1297.3),
            of(hybrid, wall, mib_written),
        ),
        row("hybrid_zipf07_read_mib_per_cpu_second", "MiB/s", Published::Nothing, of(hybrid, cpu, mib)),
        row("sysbench_queries_per_second", "1/s", change(134_743.71, 135_005.78), of(sysbench, wall, done)),
        row("sysbench_queries_per_cpu_second", "1/s", Published::Same, of(sysbench, cpu, done)),
        row(
            "compile_units_per_second",
            "1/s",
            // Builds per hour.
            change(3600.0 / 1456.77, 3600.0 / 1455.66),
            of(compile, wall, done),
        ),
        row("compile_units_per_cpu_second", "1/s", Published::Same, of(compile, cpu, done)),
        row("memcached_sets_per_second", "1/s", change(50_317.98, 47_691.34), of(memcached, wall, done)),
        row("memcached_sets_per_cpu_second", "1/s", Published::Nothing, of(memcached, cpu, done)),
        ours_row("control_short_list_folios_per_second", Published::Same, &scans.few),
        ours_row("control_longer_list_in_order_folios_per_second", Published::Same, &scans.more),
        // The worst case for prefetching: unordered lists, all within a level-2 cache.
        ours_row("cached_lists_mixed_folios_per_second", Published::Nothing, &scans.mixed),
        scan_row("patch_alone_cached_lists_mixed_folios_per_second", &scans.mixed),
        instruction_row("instruction_alone_making_room_per_second", &scans.making_room),
        instruction_row("instruction_alone_reclaim_per_second", &scans.reclaim),
        instruction_row("instruction_alone_classic_reclaim_per_second", &scans.classic),
        instruction_row("instruction_alone_short_list_per_second", &scans.few),
    ]
}

fn checks(scans: &Scans, loads: &Loads, rows: &[MetricRow], quick: bool) -> Vec<Check> {
    let cache_bytes = last_level_cache_bytes();
    let mut checks = vec![
        Check {
            name: "with and without prefetching, everything was counted alike in the scans".to_owned(),
            holds: scans.counted_alike,
        },
        Check { name: "every load was short of memory".to_owned(), holds: loads.are_short_of_memory() },
    ];
    // With fewer folios and runs, no other condition can be tested.
    if !quick {
        checks.extend([
            Check {
                name: format!(
                    "metadata of the pages exceeds the last-level cache: {} MiB against {}",
                    scans.metadata_bytes >> 20,
                    cache_bytes.map_or("an unknown size".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
                ),
                holds: cache_bytes.is_some_and(|bytes| scans.metadata_bytes > bytes),
            },
            Check {
                name: format!(
                    "lists larger than the cache: at least {:+.0} % folios scanned per second (this project's aim)",
                    100.0 * SCANNED_WANTED
                ),
                holds: rows.iter().any(|row| row.metric == SCANNED && row.interval().low >= SCANNED_WANTED),
            },
            signs("our scans are faster", rows, &["ours_"], |signs| signs.is_gain()),
            signs("loads are no slower", rows, &["per_cpu_second", "control"], |signs| !signs.is_loss()),
        ]);
    }
    checks
}

/// The changes of pairs of runs.
fn pairs(rows: &[MetricRow]) -> Shown {
    Shown::Pairs {
        metrics: SHOWN
            .into_iter()
            .filter_map(|metric| {
                let row = rows.iter().find(|row| row.metric == metric)?;
                let pairs = row.before.iter().zip(&row.after);
                let change_percent = pairs.map(|(before, after)| 100.0 * (after / before - 1.0)).collect();
                Some(PairChanges { metric, change_percent })
            })
            .collect(),
    }
}

fn workload() -> String {
    format!(
        "Prefetch: scans of {FOLIOS} folios on the lists of {TENANTS} tenants, where list neighbours are far apart in memory \
         (making room, and reclaim without I/O); then two jobs with the real cache on files in memory: random reads of 3.75 \
         times the limit, and reads and writes of 1.9 times. Selects, compiling and sets as in the publication are \
         controls.\n  before: the defaults with the multi-gen LRU and without prefetch; after: with the published patch alone \
         (prefetch_next); default: with prefetch, on the same memory, in alternating turns. ours_…: before without, after with \
         prefetch; for the classic LRU, before is the kernel's own.\n  \
         instruction_alone: scans that follow links as after does, without (before) and with (after) the prefetch instruction."
    )
}

fn row(metric: &'static str, unit: &'static str, published: Published, values: Three) -> MetricRow {
    let [before, after, default] = values;
    MetricRow { metric, unit, values: Values::Timed, published, before, after, default }
}

/// Effect of the published patch on a scan.
fn scan_row(metric: &'static str, [none, next, ours, _]: &Four) -> MetricRow {
    row(metric, "folios/s", Published::Nothing, [none, next, ours].map(Vec::clone))
}

/// Effect of what the default preset does.
fn ours_row(metric: &'static str, published: Published, [none, _, ours, _]: &Four) -> MetricRow {
    row(metric, "folios/s", published, [none, ours, ours].map(Vec::clone))
}

/// Effect of the prefetch instruction on a scan that follows links.
fn instruction_row(metric: &'static str, [.., ours, silent]: &Four) -> MetricRow {
    row(metric, "folios/s", Published::Nothing, [silent, ours, ours].map(Vec::clone))
}

struct Scans {
    making_room: Four,
    reclaim: Four,
    classic: Four,
    ranked: Four,
    few: Four,
    mixed: Four,
    more: Four,
    counted_alike: bool,
    metadata_bytes: u64,
}

impl Scans {
    fn new(effort: Effort, runs: u32, watch: &dyn Watch) -> Result<Scans, Error> {
        let (folios, seed) = (FOLIOS / effort.shorter, effort.seed);
        let each = u64::from(folios / TENANTS);
        let stage = Stage::begin(watch, "scanning", 5, Unit::Steps);
        let world = ScanMachine::new(multigen(), folios, TENANTS, seed);
        let making_room = over_tenants(runs, &|way, tenant| world.make_room(way, tenant));
        stage.advance(1)?;
        // Two thirds of each tenant's pages, a sixth in each way.
        let reclaim = over_tenants(runs, &|way, tenant| world.reclaim(way, tenant, each / 6));
        stage.advance(1)?;
        let metadata_bytes = world.metadata_bytes();
        drop(world);
        let reclaim_under = |lru| {
            let world = ScanMachine::new(Mechanisms::default().with_lru(lru), folios / 4, TENANTS, seed);
            over_tenants(runs, &|way, tenant| world.reclaim(way, tenant, each / 24))
        };
        let classic = reclaim_under(Lru::Classic);
        stage.advance(1)?;
        let ranked = reclaim_under(Lru::Ranked);
        stage.advance(1)?;
        Ok(Scans {
            making_room,
            reclaim,
            classic,
            ranked,
            few: repeated(runs, FEW_FOLIOS, 1, FEW_ROUNDS, seed),
            mixed: repeated(runs, FEW_FOLIOS, FEW_TENANTS, FEW_ROUNDS, seed),
            more: repeated(runs, MORE_FOLIOS / effort.shorter, 1, MORE_ROUNDS, seed),
            counted_alike: counted_alike(folios / 64, seed),
            metadata_bytes,
        })
    }
}

/// The mechanisms of the scans: the default set with the multi-gen LRU.
fn multigen() -> Mechanisms {
    Mechanisms::default().with_lru(Lru::MultiGen)
}

/// Scans every tenant's list in all ways. Each pass visits all tenants, so that a list has left the
/// caches before its next turn. A run is a part of the tenants.
fn over_tenants(runs: u32, scan: &dyn Fn(Way, usize) -> Scanned) -> Four {
    let mut sums = [(); WAYS].map(|()| vec![Scanned::default(); runs as usize]);
    for pass in 0..Way::ALL.len() {
        for tenant in 0..TENANTS as usize {
            let way = (tenant + pass) % Way::ALL.len();
            let sum = &mut sums[way][tenant * runs as usize / TENANTS as usize];
            *sum = sum.and(scan(Way::ALL[way], tenant));
        }
    }
    sums.map(|runs| runs.into_iter().map(Scanned::rate).collect())
}

/// Scans a few lists repeatedly in each way, so that caches may hold them. A single list is in the
/// order of its frames; several have random orders. Each run creates them anew, because the
/// placement of so few folios in memory matters.
fn repeated(runs: u32, folios: u32, tenants: u32, rounds: u32, seed: u64) -> Four {
    let mut all = Four::default();
    for run in 0..runs {
        let world = ScanMachine::new(multigen(), folios, tenants, seed + u64::from(run));
        let mut sums = [Scanned::default(); WAYS];
        for round in 0..rounds as usize {
            for at in 0..Way::ALL.len() {
                let way = (at + round) % Way::ALL.len();
                for tenant in 0..tenants as usize {
                    sums[way] = sums[way].and(world.make_room(Way::ALL[way], tenant));
                }
            }
        }
        all.iter_mut().zip(sums).for_each(|(rates, sum)| rates.push(sum.rate()));
    }
    all
}

/// Whether all counters are the same for every way of scanning.
fn counted_alike(folios: u32, seed: u64) -> bool {
    [Lru::MultiGen, Lru::Classic, Lru::Ranked].into_iter().all(|lru| {
        let counters = Way::ALL.map(|way| {
            let world = ScanMachine::new(Mechanisms::default().with_lru(lru), folios, FEW_TENANTS, seed);
            for tenant in 0..FEW_TENANTS as usize {
                if lru == Lru::MultiGen {
                    world.make_room(way, tenant);
                }
                world.reclaim(way, tenant, u64::from(folios / FEW_TENANTS / 2));
            }
            world.counters()
        });
        counters.iter().all(|of| *of == counters[0])
    })
}

/// Results of all loads.
struct Loads {
    random_read: Turns,
    hybrid: Turns,
    sysbench: Turns,
    compile: Turns,
    memcached: Turns,
}

impl Loads {
    fn new(effort: Effort, runs: u32, watch: &dyn Watch) -> Result<Loads, Error> {
        let turns = |load| turns(load, effort, runs, watch);
        Ok(Loads {
            random_read: turns(Load::RandomRead)?,
            hybrid: turns(Load::Hybrid)?,
            sysbench: turns(Load::Sysbench)?,
            compile: turns(Load::Compile)?,
            memcached: turns(Load::Memcached)?,
        })
    }

    fn are_short_of_memory(&self) -> bool {
        let Loads { random_read, hybrid, sysbench, compile, memcached } = self;
        let all = [random_read, hybrid, sysbench, compile, memcached];
        all.into_iter().flatten().flatten().all(|turn| turn.reclaimed > 0)
    }
}

/// Results of a load, turn by turn.
fn turns(load: Load, effort: Effort, runs: u32, watch: &dyn Watch) -> Result<Turns, Error> {
    let stage = Stage::begin(watch, load.name(), u64::from(runs), Unit::Steps);
    let place = layout::temporary(&files::directory())?;
    let mut side = Side::new(load, place.path(), effort.shorter, effort.seed)?;
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    let settings = [Prefetch::None, Prefetch::Next, Prefetch::Ours];
    for run in 0..runs as usize {
        // Alternate the order, so that no setting is always first.
        for at in 0..settings.len() {
            let setting = if run % 2 == 0 { at } else { settings.len() - 1 - at };
            all[setting].push(side.turn(TURN / effort.shorter, settings[setting])?);
        }
        stage.advance(1)?;
    }
    side.close()?;
    Ok(all)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Signs {
    ups: u32,
    downs: u32,
    /// Probability of such a result or a more extreme one by chance.
    chance: f64,
}

impl Signs {
    /// Signs of the differences of paired measurements.
    fn of(row: &MetricRow) -> Signs {
        let signs = |up: bool| {
            let differ = |(before, after): &(&f64, &f64)| if up { after > before } else { after < before };
            row.before.iter().zip(&row.after).filter(differ).count() as u32
        };
        let (ups, downs) = (signs(true), signs(false));
        // Two-sided: the rarer sign occurs at most this often, for heads or for tails.
        let chance = (2.0 * heads_at_most(ups.min(downs) as usize, (ups + downs) as usize)).min(1.0);
        Signs { ups, downs, chance }
    }

    fn is_gain(&self) -> bool {
        self.ups > self.downs && self.chance < SIGNIFICANT
    }

    fn is_loss(&self) -> bool {
        self.downs > self.ups && self.chance < SIGNIFICANT
    }
}

/// Checks rows whose names contain one of `parts`. On a busy machine only processor time is
/// comparable.
fn signs(what: &str, rows: &[MetricRow], parts: &[&str], holds: impl Fn(&Signs) -> bool) -> Check {
    let rows = rows.iter().filter(|row| parts.iter().any(|part| row.metric.contains(part)));
    let all: Vec<_> = rows.map(|row| (row.metric, Signs::of(row))).collect();
    let texts = all.iter().map(|(metric, signs)| {
        format!("{} of {} (p {:.2}) {metric}", signs.ups, signs.ups + signs.downs, signs.chance)
    });
    let texts: Vec<_> = texts.collect();
    Check {
        name: format!("{what}, by the sign test of pairs of runs: {}", texts.join(", ")),
        holds: all.iter().all(|(_, signs)| holds(signs)),
    }
}

/// Size of this processor's last-level cache, if the system reports it.
fn last_level_cache_bytes() -> Option<u64> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.filter_map(|cache| {
        let size = fs::read_to_string(cache.ok()?.path().join("size")).ok()?;
        size.trim().strip_suffix('K')?.parse::<u64>().ok()
    });
    sizes.max().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_test_agrees_with_the_textbook() {
        let of = |before: &[f64], after: &[f64]| {
            let three = [before.to_vec(), after.to_vec(), after.to_vec()];
            Signs::of(&row("m", "1", Published::Nothing, three))
        };
        let signs = of(&[1.0; 12], &[2.0; 12]);
        assert_eq!((signs.ups, signs.downs), (12, 0));
        assert!((signs.chance - 2.0 / 4096.0).abs() < 1e-12 && !signs.is_loss(), "{signs:?}");
        assert!(of(&[2.0; 12], &[1.0; 12]).is_loss());
        let even = of(&[1.0, 1.0, 1.0], &[2.0, 0.0, 1.0]);
        assert_eq!((even.ups, even.downs, even.chance), (1, 1, 1.0));
        // The textbook table: 2 of 12 is 3.9 %.
        let mut after = [0.0; 12];
        after[..2].fill(2.0);
        assert!((of(&[1.0; 12], &after).chance - 0.0386).abs() < 1e-4);
    }

    #[test]
    fn each_list_is_scanned_in_each_way_once() {
        let seen = std::cell::RefCell::new(Vec::new());
        let rates = over_tenants(3, &|way, tenant| {
            seen.borrow_mut().push((tenant, way));
            Scanned { folios: way as u64 + 1, seconds: 1.0 }
        });
        assert_eq!(rates, [1.0, 2.0, 3.0, 4.0].map(|rate| vec![rate; 3]));
        let seen = seen.into_inner();
        for tenant in 0..TENANTS as usize {
            assert!(Way::ALL.into_iter().all(|way| seen.contains(&(tenant, way))), "{tenant}");
        }
        assert_eq!(seen.len(), WAYS * TENANTS as usize);
    }
}
