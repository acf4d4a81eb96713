//! The reclaim loop: scan budget, dirty pages, throttling
//! ([book: published-experiments#reclaim-loop], published in March 2026, merged in Linux 7.2).
//!
//! *Before* is linux-7.1, *after* is linux-7.1 with `reclaim_loop`: only the published patches
//! differ. The main row is YCSB-B on a document store of a quarter of the published size, which is
//! 10 G of memory and 20 M records; 750,000 operations count. The engine's cache is 45 % of the
//! memory and not reclaimable, and there are 32 clients. At this size the budget at priority 12
//! exceeds a batch, as it did there. The load was fixed from YCSB's definition and WiredTiger's
//! defaults before any measurement ([`mglru_workload::ycsb`]). 7.2 also changed the placement of
//! pages and the owner of pages whose memcg is removed. Two more settings show that apart from the
//! loop: linux-7.2 as a whole, and 7.1 with `fault_placement`.
//!
//! The other rows of the publication are in [`loads`], at smaller sizes. [`patches`] applies the
//! series patch by patch.

mod loads;
mod patches;
mod real;
mod store;

use super::crosscheck;
use super::evidence::{Check, Experiment, MetricRow, Published, Shares, Shown, Values};
use super::{Claim, Effort, Environment, ExperimentRequest, Registration};
use crate::clients::Facts;
use crate::parallel;
use crate::statistics::deviation_percent;
use crate::{Error, Stage, Unit, Watch};
use mglru_core::{Counter, Mechanisms, Preset, Switch};
use store::{PUBLISHED_LIMIT_PAGES, StoreRun};

pub const REGISTRATION: Registration = Registration {
    name: "reclaim-loop",
    claims: &[
        Claim { words: "fewer refaults", metric: "ycsb_b_refault_file" },
        Claim { words: "fewer pages read", metric: "ycsb_b_pgpgin" },
        Claim { words: "more operations", metric: "ycsb_b_operations_per_second" },
        Claim { words: "as fair as before", metric: "fairness_jain" },
        Claim { words: "file and anon mix survives", metric: "file_anon_mix_rounds" },
        Claim { words: "dd in a small memcg survives", metric: "dd_small_memcg_survives" },
    ],
    in_real_world: true,
    quick_among_all: false,
    run,
};

/// Upper limit of the runs of long loads that are controls, and of the default preset's runs, which
/// get no verdict.
const RUNS_MAX: u32 = 3;
/// Divisor of the published size of the mix of files and anonymous memory.
const MIX_SMALLER: u64 = 128;

/// A load of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// YCSB-B.
    Store,
    /// YCSB without updates.
    ReadOnly,
    /// YCSB-B for the steps of the series.
    SmallStore,
    Workers,
    MappedReads,
    Selects,
    Compilers,
    FileAnon,
    SmallWriter,
}

impl Part {
    /// The parts of the comparison. Those with the longest runs begin first, so that no thread is
    /// left with one at the end.
    const ALL: [Part; 8] = [
        Part::Workers,
        Part::Store,
        Part::ReadOnly,
        Part::MappedReads,
        Part::Selects,
        Part::Compilers,
        Part::FileAnon,
        Part::SmallWriter,
    ];

    fn runs(self, effort: Effort) -> u32 {
        match self {
            Part::Workers | Part::MappedReads | Part::Selects | Part::Compilers => effort.runs.min(RUNS_MAX),
            _ => effort.runs,
        }
    }

    /// The published change is that of the loop. Its separation from placement matters only for the
    /// store.
    fn settings(self) -> usize {
        if self == Part::Store { SETTINGS } else { 3 }
    }
}

/// A run of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    part: Part,
    mechanisms: Mechanisms,
    seed: u64,
    /// Divisor of its length.
    shorter: u32,
    /// Whether to observe events and record a timeline, where these are shown.
    watched: bool,
}

impl Task {
    /// Whether it has the counts of another one.
    fn counts_as(&self, other: &Task) -> bool {
        Task { watched: other.watched, ..*self } == *other
    }

    fn run(&self, watch: &dyn Watch) -> Result<Facts, Error> {
        let &Task { part, mechanisms, seed, shorter, watched } = self;
        match part {
            Part::Store | Part::ReadOnly | Part::SmallStore => {
                // Without dirty pages nothing depends on the size.
                let (smaller, writes_percent) = match part {
                    Part::Store => (STORE_SMALLER, 5),
                    Part::SmallStore => (SMALL_STORE_SMALLER, 5),
                    _ => (16, 0),
                };
                let limit_pages =
                    PUBLISHED_LIMIT_PAGES / (smaller * u64::from(shorter) * loads::smaller(shorter));
                // Memory is as full as in a run of the whole length.
                let shorter = if part == Part::Store { STORE_SHORTER } else { 1 };
                let run = StoreRun::new(mechanisms, limit_pages, seed);
                StoreRun { writes_percent, watched, shorter, ..run }.run(watch)
            }
            Part::Workers => loads::workers(mechanisms, seed, shorter, watched, watch),
            Part::MappedReads => loads::mapped_reads(mechanisms, seed, shorter, watch),
            Part::Selects => loads::selects(mechanisms, seed, shorter, watch),
            Part::Compilers => loads::compilers(mechanisms, seed, shorter, watch),
            Part::FileAnon => {
                let rounds = loads::ROUNDS / u64::from(shorter);
                loads::file_anon(mechanisms, seed, MIX_SMALLER * loads::smaller(shorter), rounds, watch)
            }
            Part::SmallWriter => loads::small_writer(mechanisms, seed, watch),
        }
    }
}

/// Divisors of the published size of the store, and of the store for the steps of the series.
const STORE_SMALLER: u64 = 4;
const SMALL_STORE_SMALLER: u64 = 16;
/// Divisor of the counted operations of the first one.
const STORE_SHORTER: u64 = 2;

/// Before, after, default; linux-7.2, and 7.1 with fault placement.
const SETTINGS: usize = 5;
/// The preset that the patches are applied to.
const BASE: Preset = Preset::Linux71;

fn settings() -> Result<[Mechanisms; SETTINGS], Error> {
    let with = |switch| Mechanisms::compose(BASE, &[switch], &[]).map_err(Error::work);
    let preset = Mechanisms::preset;
    Ok([
        preset(BASE),
        with(Switch::ReclaimLoop)?,
        preset(Preset::Default),
        preset(Preset::Linux72),
        with(Switch::FaultPlacement)?,
    ])
}

/// Runs the experiment.
///
/// # Errors
/// If files cannot be created or a record is wrong, or of a bug in the simulator.
fn run(order: &ExperimentRequest, watch: &dyn Watch) -> Result<Experiment, Error> {
    let (settings, effort) = (settings()?, order.effort);
    if let Environment::Real { directory } = &order.world {
        return real::run(effort, [settings[0], settings[1], settings[2]], directory, watch);
    }
    let (mut keys, mut tasks) = (Vec::new(), Vec::new());
    for part in Part::ALL {
        for seed in effort.seed..effort.seed + u64::from(part.runs(effort)) {
            // The settings beside the comparison run once and get no verdict.
            let ran = if seed == effort.seed { part.settings() } else { 3 };
            let late = seed >= effort.seed + u64::from(RUNS_MAX);
            let wanted = (0..ran).filter(|&setting| setting != 2 || !late);
            for setting in wanted {
                let watched = seed == effort.seed && setting < 3;
                keys.push((part, setting));
                tasks.push(Task {
                    part,
                    mechanisms: settings[setting],
                    seed,
                    shorter: effort.shorter,
                    watched,
                });
            }
        }
    }
    let steps = patches::Steps::new(effort)?;
    // The first and the last step are runs of the comparison, unless it is quick.
    for &task in steps.tasks() {
        if !tasks.iter().any(|other| task.counts_as(other)) {
            tasks.push(task);
        }
    }
    let stage = Stage::begin(
        watch,
        "YCSB on a document store, smaller loads, and the series patch by patch",
        tasks.len() as u64,
        Unit::Steps,
    );
    let facts = parallel::all(&tasks, parallel::threads(), |_, task| {
        let facts = task.run(watch)?;
        stage.advance(1)?;
        Ok(facts)
    })?;
    drop(stage);
    let of_steps = steps.shown(|step| {
        let found = tasks.iter().position(|task| step.counts_as(task));
        &facts[found.expect("each step ran")]
    });
    let runs = Runs { keys, facts };
    let mut shown = runs.shown();
    shown.push(of_steps);
    Ok(Experiment {
        name: "reclaim-loop",
        world: "sim",
        workload: WORKLOAD.to_owned(),
        runs: effort.runs,
        quick: order.quick,
        untimely: None,
        seconds: 0.0,
        rows: rows(&runs),
        checks: checks(&runs),
        // Each client and background reclaim may reclaim.
        crosschecks: crosscheck::of(runs.facts.iter().filter_map(|facts| facts.crosscheck.as_ref()), 65),
        shown,
    })
}

/// The runs of the comparison with their loads and settings, by seed. The steps of the series
/// follow them.
struct Runs {
    keys: Vec<(Part, usize)>,
    facts: Vec<Facts>,
}

impl Runs {
    fn of(&self, part: Part, setting: usize) -> impl Iterator<Item = &Facts> {
        let ran = self.keys.iter().zip(&self.facts);
        ran.filter(move |&(&key, _)| key == (part, setting)).map(|(_, facts)| facts)
    }

    /// Timelines of the first run of each setting, and the fairness among clients.
    fn shown(&self) -> Vec<Shown> {
        let labels = ["before: linux-7.1", "after: with the loop", "default"];
        let first = |part| {
            labels
                .into_iter()
                .enumerate()
                .filter_map(move |(at, label)| Some((label, self.of(part, at).next()?)))
        };
        let of = |name, about, part| {
            let timelines =
                first(part).filter_map(|(label, facts)| Some(facts.timeline.clone()?.labelled(label)));
            Shown::Timelines { name, about, timelines: timelines.collect() }
        };
        let done = first(Part::Workers).map(|(label, facts)| {
            Shares::new(label, facts.of_client.iter().map(|&done| done as f64).collect())
        });
        let shown = [
            of("ycsb-b", "YCSB-B on a document store, with its warm-up", Part::Store),
            of("read-only", "the store without updates", Part::ReadOnly),
            Shown::Fairness {
                about: "requests that each worker answered",
                who: "worker",
                settings: done.collect(),
            },
        ];
        shown.into_iter().filter(|shown| !shown.is_empty()).collect()
    }

    fn all(&self, part: Part) -> impl Iterator<Item = &Facts> {
        (0..SETTINGS).flat_map(move |setting| self.of(part, setting))
    }
}

const WORKLOAD: &str = "\
The reclaim loop: linux-7.1 (before) against linux-7.1 with reclaim_loop (after), and the default.
  ycsb_b: a document store, 32 clients, limit 2.5 G, 5 M records in 5.4 G, an engine's cache of 45 % of the limit, 5 % \
updates; linux_7_2: 7.1 against linux-7.2, which has fault_placement besides; placement_alone: 7.1 \
against 7.1 with fault_placement, one run each; read_only: without updates.
  fairness: 64 workers in 32 memcgs, heaps of 1.5 times the memory, a hundredth of the published times; \
worker_deviation: of the requests per worker, in percent of their mean.
  mapped_zipf12, select, compile: a sixteenth of the published size. file_anon_mix: a 128th; ends with \
the first failed allocation or after 128 rounds. dd: 192 MiB under 64 M, a quarter of the published \
limit, on a disk of 40 MB/s.
";

fn rows(runs: &Runs) -> Vec<MetricRow> {
    let row = |metric,
               unit,
               published,
               part,
               [before, after, default]: [usize; 3],
               figure: &dyn Fn(&Facts) -> f64| {
        let of = |setting| runs.of(part, setting).map(figure).collect();
        MetricRow {
            metric,
            unit,
            values: Values::Counted,
            published,
            before: of(before),
            after: of(after),
            default: of(default),
        }
    };
    let change = |before, after| Published::Change { before, after };
    let (nothing, same) = (Published::Nothing, Published::Same);
    let all = [0, 1, 2];
    let refaults = |facts: &Facts| facts.count(Counter::WorkingsetRefaultFile);
    let low_priority = |facts: &Facts| {
        let late: u64 = facts.efforts.at_priority[..12].iter().sum();
        100.0 * late as f64 / facts.efforts.count().max(1) as f64
    };
    let mut rows = vec![
        row("ycsb_b_refault_file", "pages", change(34_365_441.0, 18_934_364.0), Part::Store, all, &refaults),
        row("ycsb_b_pgpgin", "kB", change(164_636_727.0, 108_820_685.0), Part::Store, all, &|facts| {
            4.0 * facts.pages_read as f64
        }),
        row("ycsb_b_pgpgout", "kB", change(5_551_216.0, 5_406_292.0), Part::Store, all, &|facts| {
            4.0 * facts.count(Counter::NrWritten)
        }),
        row(
            "ycsb_b_operations_per_second",
            "1/s",
            change(63_050.38, 79_937.12),
            Part::Store,
            all,
            &Facts::rate,
        ),
        row("ycsb_b_latency_us", "µs", change(497.01, 390.16), Part::Store, all, &|facts| {
            1e6 * f64::from(store::CLIENTS) / facts.rate()
        }),
        row("ycsb_b_file_hits_percent", "%", nothing, Part::Store, all, &|facts| {
            100.0 * (1.0 - facts.pages_read as f64 / facts.file_reads.max(1) as f64)
        }),
        row("ycsb_b_efforts_below_priority_12_percent", "%", nothing, Part::Store, all, &low_priority),
        row("ycsb_b_pages_per_effort", "pages", nothing, Part::Store, all, &|facts| {
            facts.efforts.reclaimed as f64 / facts.efforts.count().max(1) as f64
        }),
        row("ycsb_b_generations", "1", nothing, Part::Store, all, &|facts| facts.count(Counter::Aged)),
        row("ycsb_b_linux_7_2_refault_file", "pages", nothing, Part::Store, [0, 3, 2], &refaults),
        row("ycsb_b_placement_alone_refault_file", "pages", nothing, Part::Store, [0, 4, 2], &refaults),
        row("read_only_refault_file", "pages", same, Part::ReadOnly, all, &refaults),
        row("fairness_jain", "1", change(0.991_530, 0.980_016), Part::Workers, all, &Facts::jain),
        row("fairness_requests", "1", change(81_832.0, 82_413.0), Part::Workers, all, &|facts| {
            facts.of_client.iter().sum::<u64>() as f64
        }),
    ];
    // The deviation of the workers' requests, which the publication gives, and no latency buckets:
    // the load's own sizes of requests fill those.
    let deviation = |facts: &Facts| {
        let each: Vec<f64> = facts.of_client.iter().map(|&requests| requests as f64).collect();
        deviation_percent(&each)
    };
    let workers = f64::from(loads::WORKERS);
    let published = change(100.0 * 119.1 / (81_832.0 / workers), 100.0 * 185.3 / (82_413.0 / workers));
    rows.push(row("fairness_worker_deviation_percent", "%", published, Part::Workers, all, &deviation));
    rows.extend([
        row(
            "mapped_zipf12_mib_per_second",
            "MiB/s",
            change(75_912.75, 75_907.46),
            Part::MappedReads,
            all,
            &|facts| facts.rate() / 256.0,
        ),
        row(
            "select_transactions_per_second",
            "1/s",
            change(17_237.57, 17_265.36),
            Part::Selects,
            all,
            &Facts::rate,
        ),
        row("compile_units_per_second", "1/s", same, Part::Compilers, all, &Facts::rate),
        row("file_anon_mix_rounds", "1", change(15.0, 128.0), Part::FileAnon, all, &|facts| facts.rounds),
        row("file_anon_mix_killed_percent", "%", change(100.0, 0.0), Part::FileAnon, all, &|facts| {
            100.0 * f64::from(facts.died)
        }),
        row("dd_small_memcg_survives", "1", change(0.0, 1.0), Part::SmallWriter, all, &|facts| {
            f64::from(!facts.died)
        }),
    ]);
    rows
}

fn checks(runs: &Runs) -> Vec<Check> {
    let check = |name: String, holds| Check { name, holds };
    let parts = [Part::Store, Part::ReadOnly, Part::Workers, Part::Selects, Part::Compilers, Part::FileAnon];
    let all = || parts.into_iter().flat_map(|part| runs.all(part));
    vec![
        check(
            "isolated ≥ stolen; pages stolen by tasks are exactly those reclaimed by their efforts"
                .to_owned(),
            all().all(|facts| facts.adds_up),
        ),
        check(
            "refaults of files ≤ file pages reclaimed".to_owned(),
            all().all(|facts| {
                facts.count(Counter::WorkingsetRefaultFile) <= facts.count(Counter::PgstealFile)
            }),
        ),
        check(
            "all settings had the same operations in the same order".to_owned(),
            [Part::Store, Part::ReadOnly].into_iter().all(|part| {
                let operations =
                    |setting| runs.of(part, setting).map(|facts| facts.operations).collect::<Vec<_>>();
                let same = |setting| operations(setting).iter().zip(operations(0)).all(|(a, b)| *a == b);
                (1..3).all(same)
            }),
        ),
        check(
            // Not refaults: kernels since 7.1 forget most shadows, and such a page is no refault.
            "by default, no more pages read than after, within 2 %".to_owned(),
            runs.of(Part::Store, 1)
                .zip(runs.of(Part::Store, 2))
                .all(|(after, default)| default.pages_read as f64 <= 1.02 * after.pages_read as f64),
        ),
        check(
            "Jain's index: at least 0.98 after, 0.99 by default".to_owned(),
            runs.of(Part::Workers, 1).all(|facts| facts.jain() >= 0.98)
                && runs.of(Part::Workers, 2).all(|facts| facts.jain() >= 0.99),
        ),
        check(
            "by default, no request failed for lack of memory".to_owned(),
            [Part::FileAnon, Part::SmallWriter]
                .into_iter()
                .all(|part| runs.of(part, 2).all(|facts| !facts.died)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::CancelAfter;

    /// A run looked at the watch after its end only.
    #[test]
    fn every_load_is_cancelled_while_it_runs() {
        for part in Part::ALL.into_iter().chain([Part::SmallStore]) {
            let mechanisms = Mechanisms::default();
            let task = Task { part, mechanisms, seed: 1, shorter: 100, watched: false };
            let run = task.run(&CancelAfter::looks(10));
            assert!(matches!(run, Err(Error::Cancelled)), "{part:?}");
        }
    }
}
