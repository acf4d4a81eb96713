//! Working-set protection: Linux 7.1 without and with the rework, and the LULESH fix
//! ([book: published-experiments#workingset], published in December 2024).
//!
//! *A*: four clients of a TPC-C-like database under one limit. The server has its own cache in
//! anonymous memory, and swap is compressed memory. Files are five times the limit, the server's
//! cache half of it ([book: published-experiments]: at least three times, and "anonymous memory
//! competing under one limit"). The publication does not say how the database reached its files, so
//! both channels are run. Counts are those of a fixed simulated time. A control reads pages at
//! uniform random. It should not change, because all its pages are equal.
//!
//! *B*: eight threads sweep ten anonymous arrays of 1.5 times the limit, with swap on fast
//! persistent memory, with and without the fix. The fix concerns the deviation over seeds.
//!
//! Both environments run the same loads: [`simulated`] with a limit of 64 MiB under a virtual
//! clock, [`real`] with a quarter of that in the real cache, on real files with verified contents.

use super::crosscheck::{self, Crosscheck};
use super::evidence::{Check, Experiment, MetricRow, Published, Shown, Values};
use super::simulated;
use super::{Claim, Environment, ExperimentRequest, Registration, real};
use crate::parallel;
use crate::statistics::{deviation_percent, resampled};
use crate::timeline::Timeline;
use crate::{Error, Stage, Unit, Watch};
use mglru_core::{Counter, Mechanisms, Preset, Switch};
use mglru_workload::Load;
use std::collections::BTreeMap;

pub const REGISTRATION: Registration = Registration {
    name: "workingset",
    claims: &[
        Claim { words: "refaults more than halve", metric: "tpcc_refault_file" },
        Claim { words: "also with mapped files", metric: "tpcc_mapped_refault_file" },
        Claim { words: "more anonymous refaults", metric: "tpcc_mapped_refault_anon" },
        Claim { words: "slightly more work", metric: "tpcc_mapped_transactions" },
        Claim { words: "the fix adds throughput", metric: "lulesh_mean_zones_per_second" },
        Claim { words: "the fix removes outliers", metric: "lulesh_deviation_percent" },
    ],
    in_real_world: true,
    quick_among_all: false,
    run,
};

/// Minimum samples for a deviation.
const SWEEP_RUNS_MIN: u32 = 10;
/// In quick runs, TPC-C takes so many times the share that other loads take of their full time: it
/// must swap pages out and in again.
const TPCC_LONGER: u32 = 2;
/// Clients of the database.
pub const CLIENTS: u32 = 4;
pub const SWEEP_THREADS: u32 = 8;

/// A load of the experiment.
#[derive(Clone, Copy)]
pub enum Part {
    /// TPC-C-like. `mapped_percent` of the file pages are accessed through mappings.
    Tpcc { mapped_percent: u64 },
    /// Random reads of twice the limit.
    Control,
    /// LULESH-like.
    Sweep,
}

/// Parameters of one run.
pub struct Task {
    /// The load.
    pub part: Part,
    /// Mechanisms of the cache.
    pub mechanisms: Mechanisms,
    /// Seed of all random choices.
    pub seed: u64,
    /// Divisor of the run time.
    pub shorter: u32,
    /// Whether to record a timeline, in the simulator.
    pub watched: bool,
}

impl Part {
    /// The load for a limit in pages; `None` for the control. A warehouse has 4,100 to 5,100 file
    /// pages per 4,096 pages of limit, so a limit of 16,384 has four warehouses.
    pub fn load(self, limit_pages: u64) -> Option<Load> {
        match self {
            Part::Tpcc { .. } => Some(Load::Tpcc {
                warehouses: (limit_pages / 4096) as u32,
                cache_pages: (limit_pages / 2) as u32,
            }),
            Part::Control => None,
            Part::Sweep => Some(Load::Sweep { arrays: 10, array_pages: (limit_pages * 3 / 2 / 10) as u32 }),
        }
    }
}

/// Results of a run.
#[derive(Default)]
pub struct Run {
    /// The cache's counters by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Performed touches.
    pub accesses: u64,
    /// Touches that failed for lack of memory.
    pub out_of_memory: u64,
    /// Transactions begun.
    pub transactions: u64,
    /// Duration in seconds on the clock of its environment.
    pub seconds: f64,
    /// Pages verified at the end.
    pub verified_pages: u64,
    /// Timeline, if watched.
    pub timeline: Option<Timeline>,
    /// Observed events, if watched.
    pub crosscheck: Option<Crosscheck>,
}

impl Run {
    /// Value of a counter.
    pub fn count(&self, counter: Counter) -> f64 {
        self.counters.get(counter.name()).copied().unwrap_or(0) as f64
    }
}

/// A kernel's rules, except that no charge fails during writeback: efforts take no time here, so
/// the kernel's 16 retries would end before the first page is written.
pub(super) fn kernel(preset: Preset, without: &[Switch]) -> Result<Mechanisms, Error> {
    Mechanisms::compose(preset, &[Switch::WaitBeforeOom], without).map_err(Error::work)
}

/// Runs the experiment.
///
/// # Errors
/// If files cannot be created or a page is wrong, or of a bug in the simulator.
fn run(order: &ExperimentRequest, watch: &dyn Watch) -> Result<Experiment, Error> {
    let ExperimentRequest { effort, world, .. } = order;
    let effort = *effort;
    let (default, after) = (Mechanisms::default(), kernel(Preset::Linux71, &[])?);
    // Only the published patches differ: the preset linux-6.12 differs in more.
    let before = kernel(Preset::Linux71, &[Switch::WorkingsetRework, Switch::LuleshFix])?;
    let settings = [before, after, default];
    let sweep_settings = [kernel(Preset::Linux71, &[Switch::LuleshFix])?, after, default];
    let simulated = matches!(world, Environment::Sim);
    let sweep_runs = if simulated { effort.runs_at_least(SWEEP_RUNS_MIN) } else { effort.runs };
    let parts = [
        (Part::Tpcc { mapped_percent: 0 }, settings, effort.runs),
        (Part::Tpcc { mapped_percent: 100 }, settings, effort.runs),
        (Part::Control, settings, effort.runs),
        (Part::Sweep, sweep_settings, sweep_runs),
    ];
    let mut tasks = Vec::new();
    for (part, settings, runs) in parts {
        let is_tpcc = matches!(part, Part::Tpcc { .. });
        // Seed by seed, so that other activity on a real machine affects all settings equally.
        for seed in effort.seed..effort.seed + u64::from(runs) {
            let watched = seed == effort.seed && is_tpcc;
            let shorter = if is_tpcc { effort.shorter.div_ceil(TPCC_LONGER) } else { effort.shorter };
            let task = |mechanisms| Task { part, mechanisms, seed, shorter, watched };
            tasks.extend(settings.map(task));
        }
    }
    let stage = Stage::begin(watch, "TPC-C, its control, and LULESH", tasks.len() as u64, Unit::Steps);
    let threads = if simulated { parallel::threads() } else { 1 };
    let runs = parallel::all(&tasks, threads, |_, task| {
        let run = match world {
            Environment::Sim => simulated::run(task, watch),
            Environment::Real { directory } => real::run(task, directory, watch),
        };
        stage.advance(1)?;
        run
    });
    drop(stage);
    let mut runs = runs?.into_iter();
    let mut part = |count: u32| -> [Vec<Run>; 3] {
        let mut settings = [(); 3].map(|()| Vec::new());
        for _ in 0..count {
            settings.iter_mut().for_each(|setting| setting.extend(runs.next()));
        }
        settings
    };
    let (tpcc, mapped) = (part(effort.runs), part(effort.runs));
    let (control, sweep) = (part(effort.runs), part(sweep_runs));
    let scale = match world {
        Environment::Sim => simulated::SCALE,
        Environment::Real { .. } => real::SCALE,
    };
    let mut rows = rows(&tpcc, &mapped, &control, &sweep, effort.seed);
    if !simulated {
        // Counts too: loads run for a fixed time.
        rows.iter_mut()
            .filter(|row| row.values == Values::Counted)
            .for_each(|row| row.values = Values::Timed);
    }
    let mut checks = checks(&tpcc, &mapped, &sweep);
    let watched = tpcc.iter().chain(&mapped).flatten().filter_map(|run| run.crosscheck.as_ref());
    let crosschecks = match world {
        // The clients and background reclaim.
        Environment::Sim => crosscheck::of(watched, u64::from(CLIENTS) + 1),
        Environment::Real { .. } => crosscheck::REAL_TIME,
    };
    if !simulated {
        let all = [&tpcc, &mapped, &control, &sweep].into_iter().flatten().flatten();
        let pages: u64 = all.map(|run| run.verified_pages).sum();
        checks.push(Check {
            name: format!("contents were correct: {pages} pages at the end, and every page read"),
            holds: pages > 0,
        });
    }
    Ok(Experiment {
        name: "workingset",
        world: world.name(),
        workload: format!("{WORKLOAD}{scale}"),
        runs: effort.runs,
        quick: order.quick,
        untimely: None,
        seconds: 0.0,
        checks,
        crosschecks,
        rows,
        shown: shown(&tpcc, &mapped),
    })
}

const WORKLOAD: &str = "\
Working-set protection: linux-7.1 without workingset_rework and lulesh_fix (before) against linux-7.1 \
(after), and the default.
  A: TPC-C-like, 4 clients, files of 5.1 times the limit, a server's cache of half the limit in \
anonymous memory, swap in compressed memory; files by descriptor, and (mapped) through mappings; \
control: random reads of twice the limit.
  B: LULESH-like, 8 threads over ten anonymous arrays, 1.5 times the limit; before: linux-7.1 without \
lulesh_fix, after: with it.
";

/// A metric of all three settings.
fn row(
    metric: &'static str,
    unit: &'static str,
    published: Published,
    runs: &[Vec<Run>; 3],
    of: impl Fn(&Run) -> f64,
) -> MetricRow {
    let [before, after, default] = [0, 1, 2].map(|setting| runs[setting].iter().map(&of).collect());
    MetricRow { metric, unit, values: Values::Counted, published, before, after, default }
}

fn rows(
    tpcc: &[Vec<Run>; 3],
    mapped: &[Vec<Run>; 3],
    control: &[Vec<Run>; 3],
    sweep: &[Vec<Run>; 3],
    seed: u64,
) -> Vec<MetricRow> {
    let (anon, file) = (Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile);
    let published = |before, after| Published::Change { before, after };
    let rates = |setting: usize| -> Vec<f64> {
        sweep[setting].iter().map(|run| run.accesses as f64 / 3.0 / run.seconds).collect()
    };
    let [before, after, default] =
        [0, 1, 2].map(|setting| resampled(&rates(setting), deviation_percent, seed));
    vec![
        row("tpcc_refault_file", "pages", published(1_294_678_786.0, 554_855_564.0), tpcc, |run| {
            run.count(file)
        }),
        row("tpcc_refault_anon", "pages", published(5_019_627.0, 7_281_831.0), tpcc, |run| run.count(anon)),
        row("tpcc_refaults", "pages", published(1_299_698_413.0, 562_137_395.0), tpcc, |run| {
            run.count(file) + run.count(anon)
        }),
        row("tpcc_transactions", "1", published(41_472.0, 43_663.0), tpcc, |run| run.transactions as f64),
        row("tpcc_workingset_nodes", "leaves", published(109_070.0, 120_244.0), tpcc, |run| {
            run.count(Counter::WorkingsetNodes)
        }),
        // The runs end at a fixed time, as the published ones did.
        MetricRow {
            values: Values::Given,
            ..row("tpcc_seconds", "s", published(10_801.0, 10_801.0), tpcc, |run| run.seconds)
        },
        row("tpcc_mapped_refault_file", "pages", published(1_294_678_786.0, 554_855_564.0), mapped, |run| {
            run.count(file)
        }),
        row("tpcc_mapped_refault_anon", "pages", published(5_019_627.0, 7_281_831.0), mapped, |run| {
            run.count(anon)
        }),
        row("tpcc_mapped_transactions", "1", published(41_472.0, 43_663.0), mapped, |run| {
            run.transactions as f64
        }),
        row("control_refault_file", "pages", Published::Same, control, |run| run.count(file)),
        row("lulesh_mean_zones_per_second", "1/s", published(6894.0, 7574.0), sweep, |run| {
            run.accesses as f64 / 3.0 / run.seconds
        }),
        MetricRow {
            metric: "lulesh_deviation_percent",
            unit: "%",
            values: Values::Resampled { runs: sweep[0].len() },
            published: published(12.96, 1.76),
            before,
            after,
            default,
        },
    ]
}

/// Timelines of the first run of each setting.
fn shown(tpcc: &[Vec<Run>; 3], mapped: &[Vec<Run>; 3]) -> Vec<Shown> {
    let labels = ["before: without the rework", "after: linux-7.1", "default"];
    let of = |name, about, runs: &[Vec<Run>; 3]| {
        let first = runs
            .iter()
            .zip(labels)
            .filter_map(|(runs, label)| Some((runs.first()?.timeline.clone()?, label)));
        let timelines = first.map(|(timeline, label)| timeline.labelled(label));
        Shown::Timelines { name, about, timelines: timelines.collect() }
    };
    let shown =
        [of("tpcc", "TPC-C, files by descriptor", tpcc), of("tpcc-mapped", "TPC-C, files mapped", mapped)];
    shown.into_iter().filter(|shown| !shown.is_empty()).collect()
}

fn checks(tpcc: &[Vec<Run>; 3], mapped: &[Vec<Run>; 3], sweep: &[Vec<Run>; 3]) -> Vec<Check> {
    let all = || tpcc.iter().chain(mapped).chain(sweep).flatten();
    let swaps = tpcc.iter().chain(mapped).flatten().all(|run| run.count(Counter::Pswpin) > 0.0);
    let generations = |run: &Run| run.count(Counter::Aged);
    // The policy of the default preset has none.
    let fewest = sweep[..2].iter().flatten().map(generations).fold(f64::INFINITY, f64::min);
    vec![
        Check {
            name: "no request failed for lack of memory".to_owned(),
            holds: all().all(|run| run.out_of_memory == 0),
        },
        Check { name: "TPC-C swaps in every run".to_owned(), holds: swaps },
        Check {
            name: format!("LULESH opens at least 50 generations, before and after ({fewest})"),
            holds: fewest >= 50.0,
        },
    ]
}
