//! Working-set protection: Linux 6.12 against 7.1, and the LULESH fix (spec 95 E2, published in December 2024).
//!
//! *A*: four clients of a TPC-C-like database under one limit, with the server's own cache in anonymous memory and swap in
//! compressed memory. Files are five times the limit, the server's cache half of it (spec 95: at least three times, and
//! "anonymous memory competing under one limit"). The publication does not say how the database reached its files: both
//! channels are run. What is counted is what happens in a fixed simulated time. A control
//! reads pages at random, each as likely as the others: nothing can be protected there, and nothing should change.
//!
//! *B*: eight threads sweep ten anonymous arrays of 1.5 times the limit, with swap on fast persistent memory, with the fix
//! and without; the deviation over seeds is what the fix is about.

use super::Effort;
use super::evidence::{Check, Experiment, Published, Row, deviation_percent, resampled};
use crate::error::Failure;
use crate::{parallel, progress};
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Mechanisms, Preset, Switch, Time};
use mglru_sim::{
    Access, DeviceModel, Interleaving, Lane, Latency, Machine, Operation, Simulator, Source, SourceError,
    SwapDevice, SwapModel, Tally,
};
use mglru_workload::Random;
use mglru_workload::sweep::Sweep;
use mglru_workload::tpcc::Tpcc;
use mglru_workload::trace::PageAccess;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const LIMIT_PAGES: u64 = 16_384;
/// As most distributions have it.
const SWAPPINESS: Swappiness = Swappiness(60);

const CLIENTS: usize = 4;
const WAREHOUSES: u32 = 4;
const SERVER_CACHE_PAGES: u32 = LIMIT_PAGES as u32 / 2;
const TPCC_TIME: Duration = Duration::from_secs(30);
/// Processor time per page that a transaction touches.
const TOUCH_TIME: Duration = Duration::from_micros(1);

const CONTROL_PAGES: u64 = 2 * LIMIT_PAGES;
const CONTROL_TIME: Duration = Duration::from_secs(8);

const SWEEP_THREADS: u32 = 8;
const SWEEP_ARRAYS: u32 = 10;
const SWEEP_ARRAY_PAGES: u32 = LIMIT_PAGES as u32 * 3 / 2 / SWEEP_ARRAYS;
const SWEEP_TIME: Duration = Duration::from_secs(6);
/// Computing on a page of each of three arrays takes this per array.
const ZONE_TIME: Duration = Duration::from_micros(10);
/// Reads of persistent memory through a block device.
const PERSISTENT_READ_TIME: Duration = Duration::from_micros(20);
/// Samples that say something about a deviation.
const SWEEP_RUNS_MIN: u32 = 10;

/// What is run.
#[derive(Clone, Copy)]
enum Load {
    /// Files through descriptors, or through mappings.
    Tpcc {
        mapped: bool,
    },
    Control,
    Sweep,
}

/// One run.
struct Task {
    load: Load,
    mechanisms: Mechanisms,
    seed: u64,
    shorter: u32,
}

/// What came of it.
struct Run {
    tally: Tally,
    transactions: u64,
    seconds: f64,
}

/// The load of a client: the transactions of all are of one database.
struct Client {
    database: Rc<RefCell<Tpcc>>,
    /// It reads and writes files through mappings.
    mapped: bool,
    begun: Rc<Cell<u64>>,
    touches: Vec<PageAccess>,
}

impl Source for Client {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        self.touches.clear();
        self.database.borrow_mut().next_transaction(&mut self.touches);
        self.begun.set(self.begun.get() + 1);
        batch.extend(self.touches.iter().map(|&touch| {
            let access = Access::from(touch);
            Operation::from(Access { mapped: access.mapped || self.mapped, ..access })
        }));
        Ok(())
    }
}

impl Task {
    fn machine(&self) -> Machine {
        let persistent = Lane { latency: Latency::Fixed(PERSISTENT_READ_TIME), ..Lane::IDEAL };
        let (cpus, access_time, device) = match self.load {
            Load::Tpcc { .. } => (CLIENTS, TOUCH_TIME, SwapDevice::zram()),
            Load::Control => (1, TOUCH_TIME, SwapDevice::zram()),
            Load::Sweep => {
                let model = DeviceModel { read: persistent, write: persistent };
                (SWEEP_THREADS as usize, ZONE_TIME, SwapDevice::Disk { model, cpu: 0 })
            }
        };
        Machine {
            mechanisms: self.mechanisms,
            cpus,
            device_cpu: 0,
            device: DeviceModel::nvme(),
            swap: Some(SwapModel { pages: 4 * LIMIT_PAGES as u32, device }),
            swappiness: SWAPPINESS,
            access_time,
            interleaving: Interleaving::Seeded,
            seed: self.seed,
            ..Machine::kernel_lab(LIMIT_PAGES)
        }
    }

    fn run(&self) -> Result<Run, Failure> {
        let mut simulator = Simulator::new(&self.machine()).map_err(Failure::work)?;
        let begun = Rc::new(Cell::new(0));
        let time = match self.load {
            Load::Tpcc { mapped } => {
                let database = Rc::new(RefCell::new(Tpcc::new(WAREHOUSES, SERVER_CACHE_PAGES, self.seed)));
                for _ in 0..CLIENTS {
                    let (database, begun) = (database.clone(), begun.clone());
                    simulator.add_job(0, Client { database, mapped, begun, touches: Vec::new() });
                }
                TPCC_TIME
            }
            Load::Control => {
                // Two jobs: one alone would run on beyond the end of the time.
                for job in 0..2 {
                    let mut random = Random::stream(self.seed, job);
                    let read = move || Access::read(random.below(CONTROL_PAGES)).into();
                    simulator.add_job(0, std::iter::repeat_with(read));
                }
                CONTROL_TIME
            }
            Load::Sweep => {
                let sweep = Sweep {
                    arrays: SWEEP_ARRAYS,
                    array_pages: SWEEP_ARRAY_PAGES,
                    threads: SWEEP_THREADS,
                    seed: self.seed,
                };
                for thread in 0..SWEEP_THREADS {
                    let touches = sweep.thread(thread);
                    simulator.add_job(0, touches.map(|touch| Operation::from(Access::from(touch))));
                }
                SWEEP_TIME
            }
        };
        let until = Time::ZERO + time / self.shorter;
        while simulator.now() < until && simulator.step().map_err(Failure::work)? {}
        simulator.core().validate().map_err(Failure::work)?;
        let report = simulator.report();
        let seconds = report.now.as_nanos() as f64 / 1e9;
        Ok(Run { tally: report.total(), transactions: begun.get(), seconds })
    }
}

/// Runs it.
///
/// # Errors
/// The simulator has a bug.
pub fn run(effort: Effort) -> Result<Experiment, Failure> {
    let preset = Mechanisms::preset;
    let unfixed = Mechanisms::compose(Preset::Linux71, &[], &[Switch::LuleshFix]).map_err(Failure::work)?;
    let settings = [preset(Preset::Linux612), preset(Preset::Linux71), preset(Preset::Default)];
    let sweep_settings = [unfixed, preset(Preset::Linux71), preset(Preset::Default)];
    let sweep_runs = if effort.shorter > 1 { effort.runs } else { effort.runs.max(SWEEP_RUNS_MIN) };
    let parts = [
        (Load::Tpcc { mapped: false }, settings, effort.runs),
        (Load::Tpcc { mapped: true }, settings, effort.runs),
        (Load::Control, settings, effort.runs),
        (Load::Sweep, sweep_settings, sweep_runs),
    ];
    let mut tasks = Vec::new();
    for (load, settings, runs) in parts {
        for mechanisms in settings {
            let seeds = effort.seed..effort.seed + u64::from(runs);
            tasks.extend(seeds.map(|seed| Task { load, mechanisms, seed, shorter: effort.shorter }));
        }
    }
    let bar = progress::of_share(tasks.len() as u64);
    bar.set_message("TPC-C, its control, and LULESH");
    let runs = parallel::all(&tasks, parallel::threads(), |_, task| {
        let run = task.run();
        bar.inc(1);
        run
    });
    bar.finish_and_clear();
    let mut runs = runs?.into_iter();
    let mut part = |count: u32| -> [Vec<Run>; 3] {
        std::array::from_fn(|_| runs.by_ref().take(count as usize).collect())
    };
    let (tpcc, mapped) = (part(effort.runs), part(effort.runs));
    let (control, sweep) = (part(effort.runs), part(sweep_runs));
    Ok(Experiment {
        name: "workingset",
        workload: WORKLOAD.to_owned(),
        runs: effort.runs,
        seconds: 0.0,
        checks: checks(&tpcc, &mapped, &sweep),
        rows: rows(&tpcc, &mapped, &control, &sweep, effort.seed),
    })
}

const WORKLOAD: &str = "\
Working-set protection: linux-6.12 (before) against linux-7.1 (after), and our default.
A: TPC-C-like, 4 clients, limit 64 MiB, files 5.1 times that, server cache 32 MiB of anonymous
   memory, swap in compressed memory, 30 s of simulated time; files by descriptor, and (mapped) as a
   storage engine that maps them; control: random reads of 128 MiB.
B: LULESH-like, 8 threads over ten anonymous arrays, 1.5 times the limit; before: linux-7.1 without
   lulesh_fix, after: with it.";

/// A metric of all three settings.
fn row(
    metric: &'static str,
    unit: &'static str,
    published: Published,
    runs: &[Vec<Run>; 3],
    of: impl Fn(&Run) -> f64,
) -> Row {
    let [before, after, default] = [0, 1, 2].map(|setting| runs[setting].iter().map(&of).collect());
    Row { metric, unit, published, before, after, default }
}

fn counter(run: &Run, counter: Counter) -> f64 {
    run.tally.counters.get(counter) as f64
}

fn rows(
    tpcc: &[Vec<Run>; 3],
    mapped: &[Vec<Run>; 3],
    control: &[Vec<Run>; 3],
    sweep: &[Vec<Run>; 3],
    seed: u64,
) -> Vec<Row> {
    let (anon, file) = (Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile);
    let published = |before, after| Published::Change { before, after };
    let rates = |setting: usize| -> Vec<f64> {
        sweep[setting].iter().map(|run| run.tally.counts.accesses as f64 / 3.0 / run.seconds).collect()
    };
    let [before, after, default] =
        [0, 1, 2].map(|setting| resampled(&rates(setting), deviation_percent, seed));
    vec![
        row("tpcc_refault_file", "pages", published(1_294_678_786.0, 554_855_564.0), tpcc, |run| {
            counter(run, file)
        }),
        row("tpcc_refault_anon", "pages", published(5_019_627.0, 7_281_831.0), tpcc, |run| {
            counter(run, anon)
        }),
        row("tpcc_refaults", "pages", published(1_299_698_413.0, 562_137_395.0), tpcc, |run| {
            counter(run, file) + counter(run, anon)
        }),
        row("tpcc_transactions", "1", published(41_472.0, 43_663.0), tpcc, |run| run.transactions as f64),
        row("tpcc_workingset_nodes", "leaves", published(109_070.0, 120_244.0), tpcc, |run| {
            counter(run, Counter::WorkingsetNodes)
        }),
        row("tpcc_seconds", "s", published(10_801.0, 10_801.0), tpcc, |run| run.seconds),
        row("tpcc_mapped_refault_file", "pages", published(1_294_678_786.0, 554_855_564.0), mapped, |run| {
            counter(run, file)
        }),
        row("tpcc_mapped_refault_anon", "pages", published(5_019_627.0, 7_281_831.0), mapped, |run| {
            counter(run, anon)
        }),
        row("tpcc_mapped_transactions", "1", published(41_472.0, 43_663.0), mapped, |run| {
            run.transactions as f64
        }),
        row("control_refault_file", "pages", Published::Same, control, |run| counter(run, file)),
        row("lulesh_mean_zones_per_second", "1/s", published(6894.0, 7574.0), sweep, |run| {
            run.tally.counts.accesses as f64 / 3.0 / run.seconds
        }),
        Row {
            metric: "lulesh_deviation_percent",
            unit: "%",
            published: published(12.96, 1.76),
            before,
            after,
            default,
        },
    ]
}

fn checks(tpcc: &[Vec<Run>; 3], mapped: &[Vec<Run>; 3], sweep: &[Vec<Run>; 3]) -> Vec<Check> {
    let all = || tpcc.iter().chain(mapped).chain(sweep).flatten();
    let swaps = tpcc.iter().chain(mapped).flatten().all(|run| counter(run, Counter::Pswpin) > 0.0);
    let generations = |run: &Run| counter(run, Counter::Aged);
    let fewest = sweep.iter().flatten().map(generations).fold(f64::INFINITY, f64::min);
    vec![
        Check {
            name: "nothing failed for lack of memory".to_owned(),
            holds: all().all(|run| run.tally.counts.out_of_memory == 0),
        },
        Check { name: "TPC-C swaps in every run".to_owned(), holds: swaps },
        Check { name: format!("LULESH has at least 50 generations ({fewest})"), holds: fewest >= 50.0 },
    ]
}
