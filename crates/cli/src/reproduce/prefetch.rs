//! E1: while a list is scanned, what will be written of the next folio is prefetched.
//!
//! Two things are measured in real time, as no other clock knows of cache misses: how fast lists are scanned that no cache of the
//! processor holds, straight on the core ([`scan`]), and what that means from end to end, with the real cache and the publication's
//! loads ([`files`]). Before and after take turns, forth and back; each pair of turns is one throw of the sign test.

mod files;
mod scan;

use super::crosscheck;
use super::evidence::{Check, Experiment, Published, Row};
use super::summary::Claim;
use super::{Effort, Order, Registration};
use crate::error::Failure;
use crate::layout;
use crate::progress;
use crate::statistics::heads_at_most;
use files::{Load, Side, Turn};
use indicatif::ProgressBar;
use mglru_core::{Lru, Mechanisms, Preset, Switch};
use scan::{Scanned, World};
use std::fs;
use std::time::Duration;

/// What the mode knows of it.
pub const REGISTRATION: Registration = Registration {
    name: "prefetch",
    claims: &[
        Claim { words: "lists are scanned faster", metric: "folios_scanned_per_second" },
        Claim { words: "random reads gain", metric: "randread_zipf05_mib_per_second" },
        Claim { words: "reads and writes gain", metric: "hybrid_zipf07_read_mib_per_second" },
        Claim { words: "queries do not change", metric: "sysbench_queries_per_second" },
        Claim { words: "compiling does not change", metric: "compile_units_per_second" },
        Claim { words: "sets lose", metric: "memcached_sets_per_second" },
    ],
    in_real_world: true,
    runs_among_all: None,
    run,
};

/// At least: fewer show nothing at all to a sign test.
const RUNS_MIN: u32 = 12;
/// 64 GiB of pages. What is known about them is larger than the caches of most processors.
const FOLIOS: u32 = 16 << 20;
/// Frames go to tenants at random, so that two neighbours on a list are that many folios apart.
const TENANTS: u32 = 1024;
/// A list that a level-2 cache holds, of frames in their order.
const FEW_FOLIOS: u32 = 40_000;
const FEW_ROUNDS: u32 = 50;
/// Of each load, each time.
const TURN: Duration = Duration::from_millis(250);
const MIB_BYTES: f64 = (1 << 20) as f64;
/// A sign test that says less says nothing.
const SIGNIFICANT: f64 = 0.05;

/// Before and after: one value per run.
type Pair = [Vec<f64>; 2];
/// And scans that look ahead without telling the processor.
type Three = [Vec<f64>; 3];

/// Runs it.
///
/// # Errors
/// A file cannot be made, or the cache fails.
pub fn run(order: &Order) -> Result<Experiment, Failure> {
    let (effort, quick) = (order.effort, order.quick);
    let without = Mechanisms::compose(Preset::Default, &[], &[Switch::Prefetch]).map_err(Failure::work)?;
    let settings = [without, Mechanisms::default()];
    let runs = if quick { effort.runs } else { effort.runs.max(RUNS_MIN) };
    let bar = progress::of_share(10);
    let scans = Scans::new(settings, effort, runs, &bar);
    let loads = |load| turns(load, settings, effort, runs, &bar);
    let random_read = loads(Load::RandomRead)?;
    let hybrid = loads(Load::Hybrid)?;
    let [sysbench, compile, memcached] = [Load::Sysbench, Load::Compile, Load::Memcached].map(loads);
    let (sysbench, compile, memcached) = (sysbench?, compile?, memcached?);
    bar.finish_and_clear();

    type Figure = fn(&Turn) -> f64;
    let of = |turns: &[Vec<Turn>; 2], seconds: Figure, figure: Figure| -> Pair {
        [0, 1].map(|setting| turns[setting].iter().map(|turn| figure(turn) / seconds(turn)).collect())
    };
    let (wall, cpu): (Figure, Figure) = (|turn| turn.seconds, |turn| turn.cpu_seconds);
    let (mib, mib_written): (Figure, Figure) =
        (|turn| turn.reads as f64 / MIB_BYTES, |turn| turn.writes as f64 / MIB_BYTES);
    let done: Figure = |turn| turn.reads as f64;
    let change = |before, after| Published::Change { before, after };
    let rows = vec![
        scan_row("folios_scanned_per_second", change(1.0, 1.072), &scans.making_room),
        scan_row("reclaim_folios_scanned_per_second", Published::Nothing, &scans.reclaim),
        scan_row("classic_reclaim_folios_scanned_per_second", Published::Nothing, &scans.classic),
        row("randread_zipf05_mib_per_second", "MiB/s", change(8747.59, 9381.31), of(&random_read, wall, mib)),
        row("randread_zipf05_mib_per_cpu_second", "MiB/s", Published::Nothing, of(&random_read, cpu, mib)),
        row("hybrid_zipf07_read_mib_per_second", "MiB/s", change(6622.0, 6926.6), of(&hybrid, wall, mib)),
        row(
            "hybrid_zipf07_write_mib_per_second",
            "MiB/s",
            change(1256.3, 1297.3),
            of(&hybrid, wall, mib_written),
        ),
        row("hybrid_zipf07_read_mib_per_cpu_second", "MiB/s", Published::Nothing, of(&hybrid, cpu, mib)),
        row("sysbench_queries_per_second", "1/s", change(134_743.71, 135_005.78), of(&sysbench, wall, done)),
        row("sysbench_queries_per_cpu_second", "1/s", Published::Same, of(&sysbench, cpu, done)),
        row(
            "compile_units_per_second",
            "1/s",
            // Builds per hour.
            change(3600.0 / 1456.77, 3600.0 / 1455.66),
            of(&compile, wall, done),
        ),
        row("compile_units_per_cpu_second", "1/s", Published::Same, of(&compile, cpu, done)),
        row("memcached_sets_per_second", "1/s", change(50_317.98, 47_691.34), of(&memcached, wall, done)),
        row("memcached_sets_per_cpu_second", "1/s", Published::Nothing, of(&memcached, cpu, done)),
        scan_row("control_short_list_folios_per_second", Published::Same, &scans.few),
        instruction_row("instruction_alone_making_room_per_second", &scans.making_room),
        instruction_row("instruction_alone_reclaim_per_second", &scans.reclaim),
        instruction_row("instruction_alone_classic_reclaim_per_second", &scans.classic),
        instruction_row("instruction_alone_short_list_per_second", &scans.few),
    ];
    let all_reclaim = [&random_read, &hybrid, &sysbench, &compile, &memcached]
        .iter()
        .all(|turns| turns.iter().all(|turns| turns.iter().map(|turn| turn.reclaimed).sum::<u64>() > 0));
    let cache_bytes = last_level_cache_bytes();
    let mut checks = vec![
        Check {
            name: "with and without prefetching, everything was counted alike in the scans".to_owned(),
            holds: scans.counted_alike,
        },
        Check { name: "every load was short of memory".to_owned(), holds: all_reclaim },
    ];
    // Of fewer folios, and so few runs, nothing else can be said.
    if !quick {
        checks.extend([
            Check {
                name: format!(
                    "what is known about pages is larger than the last-level cache: {} MiB against {}",
                    scans.metadata_bytes >> 20,
                    cache_bytes.map_or("an unknown size".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
                ),
                holds: cache_bytes.is_some_and(|bytes| scans.metadata_bytes > bytes),
            },
            signs("scans are faster", &rows, &["scanned_per_second"], |signs| signs.is_gain()),
            signs("loads are no slower", &rows, &["per_cpu_second", "control"], |signs| !signs.is_loss()),
        ]);
    }
    Ok(Experiment {
        name: "prefetch",
        world: "real",
        workload: format!(
            "Prefetch: scans of {FOLIOS} folios on the lists of {TENANTS} tenants, none beside its neighbour in memory \
             (making room, and reclaim without I/O); then two jobs with the real cache on files in memory: random reads of 3.75 \
             times the limit, reads and writes of 1.9 times; as controls selects, compiling and sets like those of the \
             publication.\n  before: our defaults without prefetch; after: with it. They take turns, forth and back.\n  \
             instruction_alone: scans that look ahead as after does, but do not tell the processor, and (after) do."
        ),
        runs,
        seconds: 0.0,
        rows,
        checks,
        crosschecks: crosscheck::REAL_TIME,
        shown: Vec::new(),
    })
}

fn row(metric: &'static str, unit: &'static str, published: Published, [before, after]: Pair) -> Row {
    Row { metric, unit, published, before, default: after.clone(), after }
}

fn scan_row(metric: &'static str, published: Published, [before, after, _]: &Three) -> Row {
    row(metric, "folios/s", published, [before.clone(), after.clone()])
}

/// What the instruction adds to a scan that goes by links.
fn instruction_row(metric: &'static str, [_, after, without]: &Three) -> Row {
    row(metric, "folios/s", Published::Nothing, [without.clone(), after.clone()])
}

/// Has all settings do one thing after the other, in turns: what came of each, run by run.
fn in_turn<const SETTINGS: usize, T>(
    runs: std::ops::Range<u32>,
    mut one: impl FnMut(usize, u32) -> T,
) -> [Vec<T>; SETTINGS] {
    let mut all = [(); SETTINGS].map(|()| Vec::new());
    for run in runs {
        for at in 0..SETTINGS {
            // Forth and back, so that none is always the first.
            let setting = if run.is_multiple_of(2) { at } else { SETTINGS - 1 - at };
            all[setting].push(one(setting, run));
        }
    }
    all
}

/// What scans came to.
struct Scans {
    making_room: Three,
    reclaim: Three,
    classic: Three,
    few: Three,
    counted_alike: bool,
    metadata_bytes: u64,
}

impl Scans {
    fn new([before, after]: [Mechanisms; 2], effort: Effort, runs: u32, bar: &ProgressBar) -> Scans {
        let (folios, seed) = (FOLIOS / effort.shorter, effort.seed);
        let each = u64::from(folios / TENANTS);
        let worlds = |lru, folios, tenants| {
            [before, after, after].map(|of| World::new(of.with_lru(lru), folios, tenants, seed))
        };
        // Each run has tenants of its own, so that it meets lists that no cache knows.
        let tenants = |run: u32| (run * TENANTS / runs) as usize..((run + 1) * TENANTS / runs) as usize;
        let scan = |what: &dyn Fn(usize, usize) -> Scanned| {
            bar.inc(1);
            in_turn(0..runs, |setting, run| {
                let all = tenants(run).map(|tenant| what(setting, tenant));
                all.fold(Scanned::default(), Scanned::and).rate()
            })
        };
        let make_room = |worlds: &[World; 3], setting: usize, tenant| match setting {
            2 => worlds[setting].make_room::<false>(tenant),
            _ => worlds[setting].make_room::<true>(tenant),
        };
        let reclaim = |worlds: &[World; 3], setting: usize, tenant, pages| match setting {
            2 => worlds[setting].reclaim::<false>(tenant, pages),
            _ => worlds[setting].reclaim::<true>(tenant, pages),
        };
        let alike = |worlds: &[World; 3]| worlds.iter().all(|world| world.counters() == worlds[0].counters());
        bar.set_message("scanning");
        let many = worlds(Lru::MultiGen, folios, TENANTS);
        let made = scan(&|setting, tenant| make_room(&many, setting, tenant));
        let reclaimed = scan(&|setting, tenant| reclaim(&many, setting, tenant, each / 2));
        let mut counted_alike = alike(&many);
        let metadata_bytes = many[0].metadata_bytes();
        drop(many);

        let many = worlds(Lru::Classic, folios / 4, TENANTS);
        let classic = scan(&|setting, tenant| reclaim(&many, setting, tenant, each / 8));
        counted_alike &= alike(&many);
        drop(many);

        // Anew for each run, as it matters where in memory so few folios are.
        let few = (0..runs).map(|run| {
            let worlds = worlds(Lru::MultiGen, FEW_FOLIOS, 1);
            in_turn(run..run + 1, |setting, _| {
                let rounds = (0..FEW_ROUNDS).map(|_| make_room(&worlds, setting, 0));
                rounds.fold(Scanned::default(), Scanned::and).rate()
            })
        });
        let few = few.fold(Three::default(), joined);
        Scans { making_room: made, reclaim: reclaimed, classic, few, counted_alike, metadata_bytes }
    }
}

/// The runs of each setting, and then more of them.
fn joined<const SETTINGS: usize, T>(
    mut all: [Vec<T>; SETTINGS],
    more: [Vec<T>; SETTINGS],
) -> [Vec<T>; SETTINGS] {
    all.iter_mut().zip(more).for_each(|(all, more)| all.extend(more));
    all
}

/// What a load came to, turn by turn.
fn turns(
    load: Load,
    settings: [Mechanisms; 2],
    effort: Effort,
    runs: u32,
    bar: &ProgressBar,
) -> Result<[Vec<Turn>; 2], Failure> {
    bar.inc(1);
    bar.set_message(load.name());
    let mut all = [Vec::new(), Vec::new()];
    for run in 0..runs {
        // Each run has caches of its own: what memory one happens to get makes up to some percent, so that all runs of one pair
        // of caches may say the same without cause.
        let place = layout::temporary(&files::directory())?;
        let sides = in_turn(run..run + 1, |setting, run| {
            let place = place.path().join(["before", "after"][setting]);
            fs::create_dir(&place)
                .map_err(|error| Failure::work(format_args!("cannot make {}: {error}", place.display())))?;
            Side::new(load, settings[setting], &place, effort.shorter, effort.seed + u64::from(run))
        });
        let mut sides = each_ok(sides)?;
        let turns = in_turn(run..run + 1, |setting, _| sides[setting][0].turn(TURN / effort.shorter));
        all = joined(all, each_ok(turns)?);
        sides.into_iter().flatten().try_for_each(Side::close)?;
    }
    Ok(all)
}

fn each_ok<T>([before, after]: [Vec<Result<T, Failure>>; 2]) -> Result<[Vec<T>; 2], Failure> {
    let all = |one: Vec<Result<T, Failure>>| one.into_iter().collect::<Result<Vec<T>, Failure>>();
    Ok([all(before)?, all(after)?])
}

/// What the signs of the differences say.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Signs {
    ups: u32,
    downs: u32,
    /// Of a coin that shows as much or more.
    chance: f64,
}

impl Signs {
    /// Of pairs that were measured one after the other.
    fn of(row: &Row) -> Signs {
        let signs = |up: bool| {
            let differ = |(before, after): &(&f64, &f64)| if up { after > before } else { after < before };
            row.before.iter().zip(&row.after).filter(differ).count() as u32
        };
        let (ups, downs) = (signs(true), signs(false));
        // Of heads at most as often as the rarer side came, or tails.
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

/// Of rows whose names have one of these parts. Where a machine is busy, time of the processors is what can be compared.
fn signs(what: &str, rows: &[Row], parts: &[&str], holds: impl Fn(&Signs) -> bool) -> Check {
    let rows = rows.iter().filter(|row| parts.iter().any(|part| row.metric.contains(part)));
    let all: Vec<_> = rows.map(|row| (row.metric, Signs::of(row))).collect();
    let texts = all.iter().map(|(metric, signs)| {
        format!("{} of {} (p {:.2}) {metric}", signs.ups, signs.ups + signs.downs, signs.chance)
    });
    let texts: Vec<_> = texts.collect();
    Check {
        name: format!("{what}, by the signs of pairs of runs: {}", texts.join(", ")),
        holds: all.iter().all(|(_, signs)| holds(signs)),
    }
}

/// Of the processor that this runs on, where the system tells.
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
    fn signs_are_thrown_coins() {
        let of = |before: &[f64], after: &[f64]| {
            Signs::of(&row("m", "1", Published::Nothing, [before.to_vec(), after.to_vec()]))
        };
        let signs = of(&[1.0; 12], &[2.0; 12]);
        assert_eq!((signs.ups, signs.downs), (12, 0));
        assert!((signs.chance - 2.0 / 4096.0).abs() < 1e-12 && !signs.is_loss(), "{signs:?}");
        assert!(of(&[2.0; 12], &[1.0; 12]).is_loss());
        let even = of(&[1.0, 1.0, 1.0], &[2.0, 0.0, 1.0]);
        assert_eq!((even.ups, even.downs, even.chance), (1, 1, 1.0));
        // The table of any book: 2 of 12 is 3.9 %.
        let mut after = [0.0; 12];
        after[..2].fill(2.0);
        assert!((of(&[1.0; 12], &after).chance - 0.0386).abs() < 1e-4);
    }

    #[test]
    fn both_settings_are_the_first_in_turn() {
        let mut order = Vec::new();
        let all = in_turn(0..3, |setting, run| {
            order.push((run, setting));
            10 * run + setting as u32
        });
        assert_eq!(order, [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(all, [vec![0, 10, 20], vec![1, 11, 21]]);
    }
}
