//! Replays of one trace with one set of mechanisms and one memory size, singly or several at a
//! time.

use super::baseline::{BaselineOutcome, BaselinePlan};
use super::controls::Controls;
use super::life::{Life, Seen, Sink, Watcher};
use super::record::PageName;
use crate::error::Error;
use crate::memory::{self, Room};
use crate::parallel;
use crate::timeline::{self, Timeline};
use crate::trace_file::TraceFile;
use crate::watch::{Stage, Unit, Unwatched, Watch};
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Errno, Lru, Mechanisms, Refresh, UNLIMITED, Zone};
use mglru_sim::{
    Latency, Machine, Report, Sample, SimError, Simulator, SwapBatches, SwapModel, TenantSample, Writes,
};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// With more memory than this, in pages, the trace is counted first.
const PAGES_WITHOUT_COUNTING: u64 = 1 << 20;
/// Progress steps per replay.
pub(super) const STEPS: u64 = 1000;
/// Steps of the simulator between two looks at its progress: looking costs as much as a step in
/// which little happens.
const STEPS_PER_LOOK: u32 = 32;

/// Minimum number of samples of the cached pages.
const AVERAGED_SAMPLES: usize = 1000;

/// A replay by the engine.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The trace.
    pub trace: &'a TraceFile,
    /// Mechanisms of the engine.
    pub mechanisms: Mechanisms,
    /// Memory as requested.
    pub memory: String,
    /// Memory in pages.
    pub memory_pages: u64,
    /// The access at which counting restarts.
    pub warm_from: u64,
    /// Treatment of writes to pages that are not cached.
    pub writes: Writes,
    /// Swap for anonymous pages.
    pub swap: Option<SwapModel>,
    /// Durations of reclaim's steps; `None`: they take no time.
    pub reclaim_time: Option<ReclaimTime>,
    /// How the writes of a pass of reclaim to swap are collected; `None`: each begins at once.
    pub swap_batches: Option<SwapBatches>,
    /// Balance between anonymous and file pages in reclaim.
    pub swappiness: Swappiness,
    /// Most pages that a fault reads from a swap disk; up to 1: its own.
    pub swap_readahead_pages: u32,
    /// When the classic LRU's list sizes are refreshed, unless they are exact.
    pub statistics_refresh: Refresh,
    /// Accesses between two reads of the statistics.
    pub statistics_reads: Option<u64>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Steps between consistency checks.
    pub check_every: Option<u64>,
    /// Pages whose lives are recorded.
    pub explain: Vec<PageName>,
    /// Whether to record a timeline.
    pub over_time: bool,
    /// Whether to average the cached pages.
    pub averages_pages: bool,
    /// The largest readahead window, in pages; 0: off.
    pub readahead_pages: u32,
    /// The aligned window, in pages, that a mapped miss maps; 0: off.
    pub fault_around_pages: u32,
    /// Time of an access, reads included: how many pass before the flusher comes.
    pub access_time: Duration,
    /// Number of tasks; access *i* belongs to task *i* modulo this number.
    pub tasks: u32,
    /// Time of a read, after which the task goes on.
    pub read_latency: Latency,
    /// Instead of a limit: memory is the machine's, and background reclaim keeps free pages between
    /// the watermarks of these zones, the highest of them first. The highest gives pages up until
    /// all of them have [`Plan::memory_pages`]. Empty: memory has a limit.
    pub zones: Vec<Zone>,
    /// Memcgs below the limited one, and control files that the replay writes.
    pub controls: Controls,
    /// Memory of the limited memcg that is not its pages: [`Plan::memory_pages`] is its limit less
    /// this.
    pub others_pages: u64,
}

impl<'a> Plan<'a> {
    /// A replay that counts from the first access on, without swap, readahead, fault-around,
    /// records and checks.
    pub fn plain(trace: &'a TraceFile, mechanisms: Mechanisms, memory_pages: u64) -> Plan<'a> {
        Plan {
            trace,
            mechanisms,
            memory: format!("{memory_pages}p"),
            memory_pages,
            warm_from: 0,
            writes: Writes::AfterRead,
            swap: None,
            reclaim_time: None,
            swap_batches: None,
            swappiness: Swappiness::DEFAULT,
            swap_readahead_pages: 0,
            statistics_refresh: Refresh::default(),
            statistics_reads: None,
            seed: 0,
            check_every: None,
            explain: Vec::new(),
            over_time: false,
            averages_pages: false,
            readahead_pages: 0,
            fault_around_pages: 0,
            access_time: Machine::LAB_ACCESS_TIME,
            tasks: 1,
            read_latency: Latency::Fixed(Duration::ZERO),
            zones: Vec::new(),
            controls: Controls::default(),
            others_pages: 0,
        }
    }
}

/// Durations of reclaim's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimTime {
    /// Each of the two steps of a visit: choosing a memcg, and taking a batch from it.
    pub step: Duration,
    /// Examining a page.
    pub scan: Duration,
    /// Beginning to write a page to swap, without waiting.
    pub swap_out: Duration,
}

impl ReclaimTime {
    /// Those of the kernel lab on a quiet host, from traced runs: medians of 1.7 to 2.0 µs per
    /// page, and 8.1 µs more per written page ([book: fidelity#fidelity-late-writes]).
    pub const LAB: ReclaimTime = ReclaimTime {
        step: Duration::ZERO,
        scan: Duration::from_micros(2),
        swap_out: Duration::from_micros(8),
    };

    /// The same where background reclaim works beside the tasks, whose many short visits take time,
    /// too: 10 to 19 µs in a traced run ([book: fidelity#fidelity-kswapd-memcgs]).
    pub const BACKGROUND: ReclaimTime = ReclaimTime { step: Duration::from_micros(5), ..Self::LAB };
}

/// Result of a replay.
#[derive(Debug)]
pub struct ReplayOutcome<'a> {
    /// The replay.
    pub plan: Plan<'a>,
    /// Counts of the simulator.
    pub report: Report,
    /// Bad records skipped.
    pub skipped: u64,
    /// Lives of the requested pages.
    pub lives: Vec<Life>,
    /// Timeline, if recorded.
    pub timeline: Option<Timeline>,
    /// Mean number of cached pages after the warm point and the first reclaim, if averaged.
    pub mean_pages: Option<f64>,
    /// Work that counters do not show.
    pub costs: Costs,
    /// Duration of the replay.
    pub took: Duration,
}

/// Work of a whole replay that counters do not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Times that a lock of lists was taken.
    pub lock_holds: u64,
    /// Page-table entries that walks visited.
    pub walked_entries: u64,
}

impl Costs {
    fn of(simulator: &Simulator) -> Costs {
        let mut costs = Costs::default();
        for memcg in simulator.core().memcgs().iter() {
            costs.lock_holds += memcg.lruvec().lock_counts().taken;
            costs.walked_entries += memcg.lruvec().walked_entries();
        }
        costs
    }
}

/// A replay that may run beside others.
pub(crate) trait Task: Sync {
    /// The trace that it replays.
    fn trace(&self) -> &TraceFile;

    /// Memory of this machine that it needs at most, in bytes. The trace has its memory already.
    ///
    /// # Errors
    /// The trace has to be counted and is damaged.
    fn needed_bytes(&self) -> Result<u64, Error>;
}

/// Checks that there is room for the largest of these replays.
///
/// # Errors
/// If there is not, or as [`Task::needed_bytes`].
pub(crate) fn check_memory<T: Task>(tasks: &[T], room: Room) -> Result<(), Error> {
    let needs = tasks.iter().map(T::needed_bytes).collect::<Result<Vec<u64>, Error>>()?;
    let Some(largest) = (0..tasks.len()).max_by_key(|&task| needs[task]) else { return Ok(()) };
    room.check(needs[largest], tasks[largest].trace().path().display(), "choose less memory or swap")
}

/// The part of a memory that a trace can use. Each page of memory costs bookkeeping, also if the
/// trace has fewer distinct pages.
///
/// # Errors
/// The trace has to be counted and is damaged.
pub(super) fn useful_pages(trace: &TraceFile, memory_pages: u64) -> Result<u64, Error> {
    match memory_pages {
        ..=PAGES_WITHOUT_COUNTING => Ok(memory_pages),
        _ => Ok(memory_pages.min(trace.counts(&Unwatched)?.distinct_pages.max(1))),
    }
}

impl Task for Plan<'_> {
    fn trace(&self) -> &TraceFile {
        self.trace
    }

    fn needed_bytes(&self) -> Result<u64, Error> {
        let used = |pages| useful_pages(self.trace, pages);
        let swap_pages = self.swap.map_or(0, |swap| swap.pages.into());
        let machine = memory::of_machine(used(self.memory_pages)?);
        Ok(machine.saturating_add(memory::of_swap(used(swap_pages)?)))
    }
}

impl Plan<'_> {
    /// The machine: the model of the one that ran the traces on real kernels, with this memory.
    fn machine(&self) -> Result<Machine, Error> {
        let frames = useful_pages(self.trace, self.memory_pages)?;
        if frames > u64::from(mglru_core::folio::MAX_FOLIOS) / 2 {
            return Err(Error::usage(format_args!(
                "{frames} pages are too many to simulate; give --memory less than 4 TiB"
            )));
        }
        let mut machine = Machine::kernel_lab_at(self.access_time, frames);
        machine.tenants[0].max_pages = self.memory_pages;
        machine.mechanisms = self.mechanisms;
        machine.numbering = self.trace.numbering();
        machine.writes = self.writes;
        machine.swap = self.swap;
        if let Some(time) = self.reclaim_time {
            machine.batch_time = time.step;
            machine.scan_time = time.scan;
            machine.swap_out_time = time.swap_out;
        }
        machine.swap_batches = self.swap_batches;
        machine.swappiness = self.swappiness;
        machine.swap_readahead_pages = self.swap_readahead_pages;
        machine.statistics_refresh = self.statistics_refresh;
        machine.statistics_reads = self.statistics_reads;
        machine.seed = self.seed;
        machine.device.read.latency = self.read_latency;
        machine.readahead_pages = self.readahead_pages;
        machine.fault_around_pages = self.fault_around_pages;
        if !self.zones.is_empty() {
            machine.memory_pages = frames as u32;
            machine.set_zones(&self.zones);
            machine.tenants[0].max_pages = UNLIMITED;
        }
        let limited = machine.tenants[0].path.clone();
        machine.tenants.extend(self.controls.tenants(&limited));
        if let Some(sampled) = self.trace.sampled() {
            scale(&mut machine, sampled.sample.share());
        }
        Ok(machine)
    }
}

/// Gives a sample what does not depend on the size of its memory in the same share as the whole
/// trace ([book: python#samples-of-long-traces]).
///
/// * Time: each of its accesses stands for several. The classic LRU refreshes its sizes every two
///   seconds, and the flusher wakes every five. The device writes the same number of pages per
///   access.
/// * The kernel's fixed quantities ([`Grain`](mglru_core::Grain)). Whole batches would leave a
///   small memory many times as many shadows as its limit allows, and the multi-gen LRU would
///   protect no tier of it, since few of its pages refault.
/// * The classic LRU takes 32 pages at once, so 16 pages of the limit are free on average. The
///   sample gets what these are more of its memory. Smaller batches were measured to be 1 point
///   off.
///
/// Batches of new pages keep their size: in ones of a single page, the multi-gen LRU ranks pages
/// before their first access, and was measured to be 4 points off.
fn scale(machine: &mut Machine, share: f64) {
    let part = |whole: u64| ((whole as f64 * share) as u64).max(1);
    let write = &mut machine.device.write;
    machine.access_time = machine.access_time.div_f64(share);
    write.bytes_per_second = part(write.bytes_per_second);
    write.depth = part(write.depth.into()) as u32;
    let grain = &mut machine.grain;
    if machine.mechanisms.lru() == Lru::Classic {
        let free = (grain.reclaim_pages as f64 / 2.0 * (1.0 - share)) as u64;
        machine.memory_pages += free as u32;
        machine.tenants[0].max_pages += free;
    }
    for quantity in [&mut grain.shadow_batch_leaves, &mut grain.reclaim_pages, &mut grain.few_refaults] {
        *quantity = part(*quantity);
    }
}

impl<'a> Plan<'a> {
    /// Replays as a stage of its own. `sink` receives all events.
    ///
    /// # Errors
    /// As [`Plan::run`], or if this machine has too little memory for it.
    pub fn watched(self, sink: Option<Sink>, watch: &dyn Watch) -> Result<ReplayOutcome<'a>, Error> {
        check_memory(std::slice::from_ref(&self), Room::for_runs(1))?;
        let stage = Stage::begin(watch, "replay", STEPS, Unit::Steps);
        self.run(sink, |step| stage.advance_to(step as f64 / STEPS as f64))
    }

    /// Replays. `progress` is called now and then with the thousandths of the trace that are done.
    /// Its error ends the replay.
    ///
    /// # Errors
    /// If the trace is damaged or its anonymous pages do not fit into memory and swap, or of a bug
    /// in the simulator.
    pub fn run(
        self,
        sink: Option<Sink>,
        progress: impl Fn(u64) -> Result<(), Error>,
    ) -> Result<ReplayOutcome<'a>, Error> {
        if self.trace.sampled().is_some() && (sink.is_some() || !self.explain.is_empty()) {
            return Err(Error::usage(format_args!(
                "{}: a sample's pages are moved together, so events would name other pages; replay the whole trace \
                 or a part of it",
                self.trace.path().display()
            )));
        }
        let machine = self.machine()?;
        let mut simulator = Simulator::new(&machine).map_err(Error::usage)?;
        simulator.set_warm_from(self.warm_from + self.controls.own_accesses());
        if self.readahead_pages > 0 {
            for (file, pages) in self.trace.file_pages() {
                simulator.set_file_pages(u64::from(file) << 32, pages);
            }
        }
        if let Some(steps) = self.check_every {
            simulator.check_every(steps);
        }
        let decoding = if self.tasks > 1 {
            let (sources, decoding) = self.trace.tasks(self.tasks)?;
            for source in sources {
                simulator.add_job(0, source);
            }
            decoding
        } else {
            let (source, decoding) = self.trace.source()?;
            if self.controls.is_plain() {
                simulator.add_job(0, source);
            } else {
                let limited = machine.tenants[0].path.as_str();
                simulator.control_writes(self.controls.for_machine(limited, self.others_pages));
                let processes: Vec<Option<usize>> = match self.controls.memcgs() {
                    0 => vec![Some(0)],
                    memcgs => (1..=memcgs).map(Some).collect(),
                };
                simulator.add_job_of(&processes, self.controls.source(source));
            }
            decoding
        };
        let lru = self.mechanisms.lru();
        let sees = sink.is_some() || !self.explain.is_empty();
        let watcher = sees.then(|| Watcher::of(&self.explain, sink, lru));
        if let Some(watcher) = &watcher {
            simulator.observe(Seen(watcher.clone()));
        }
        if self.over_time {
            timeline::watch(&mut simulator);
        } else if self.averages_pages {
            simulator.sample(AVERAGED_SAMPLES);
        }
        let began = Instant::now();
        let mut running = true;
        while running {
            progress(decoding.permille())?;
            for _ in 0..STEPS_PER_LOOK {
                running = running && simulator.step().map_err(|error| failure(&self, error))?;
            }
            stop_if_stuck(&self, &simulator)?;
        }
        let took = began.elapsed();
        let timeline = self.over_time.then(|| {
            let label =
                format!("{} {}, {}", self.mechanisms.lru().name(), self.mechanisms.name(), self.memory);
            Timeline::of(label, &simulator, &["the trace".to_owned()])
        });
        // A request may fall short, as the kernel's may.
        let mut refused = simulator.answers().iter().filter_map(|answer| answer.control_error());
        if let Some(error) = refused.find(|error| error.errno != Errno::Again) {
            return Err(Error::work(format_args!("{}: {error}", self.trace.path().display())));
        }
        let report = simulator.report();
        let mean_pages = self.averages_pages.then(|| mean_pages(&simulator, self.warm_from)).flatten();
        let costs = Costs::of(&simulator);
        if self.check_every.is_some() {
            simulator.finish().map_err(|error| failure(&self, error))?;
        }
        let lives = watcher.map_or(Vec::new(), |watcher| watcher.borrow_mut().finish());
        Ok(ReplayOutcome {
            report,
            lives,
            timeline,
            mean_pages,
            costs,
            skipped: decoding.skipped(),
            took,
            plan: self,
        })
    }
}

/// The mean of the samples after the warm point and from the first reclaim on, as the kernel lab
/// takes it; `None` if there are none.
fn mean_pages(simulator: &Simulator, warm_from: u64) -> Option<f64> {
    let sum = |sample: &Sample, part: fn(&TenantSample) -> u64| sample.tenants.iter().map(part).sum::<u64>();
    let samples = simulator.samples();
    let full: Vec<u64> = samples
        .iter()
        .filter(|sample| sample.access > warm_from && sum(sample, |tenant| tenant.stolen_pages) > 0)
        .map(|sample| sum(sample, |tenant| tenant.pages))
        .collect();
    (!full.is_empty()).then(|| full.iter().sum::<u64>() as f64 / full.len() as f64)
}

/// Ends a replay whose anonymous pages fill memory and swap. A kernel would kill the process here.
fn stop_if_stuck(plan: &Plan, simulator: &Simulator) -> Result<(), Error> {
    let sum = |counter| simulator.core().memcgs().iter().map(|memcg| memcg.stat().get(counter)).sum::<u64>();
    let anon = sum(Counter::Anon);
    let only_anon = plan.swap.is_some() && plan.swappiness == Swappiness::ANON_ONLY;
    if sum(Counter::EventOom) == 0 || (anon == 0 && !only_anon) {
        return Ok(());
    }
    let advice = match plan.swap {
        None => "there is no swap: give --swap SIZE, or more --memory",
        Some(_) if plan.swappiness == Swappiness::FILE_ONLY => {
            "with --swappiness 0 they are never swapped out"
        }
        Some(_) if only_anon => "with --swappiness max pages of files are never taken",
        Some(_) => "swap is full: give more --swap, or more --memory",
    };
    Err(Error::work(format_args!(
        "{}: out of memory at access {}: {anon} of {} pages are anonymous, and nothing could be freed; {advice}",
        plan.trace.path().display(),
        simulator.accesses(),
        plan.memory_pages,
    )))
}

fn failure(plan: &Plan, error: SimError) -> Error {
    match error {
        // This error already names the trace and the place in it.
        SimError::Job(_, error) => Error::work(error),
        error => Error::work(format_args!(
            "{}: {error}. This is a bug in mglru; please report it with the trace and the command line",
            plan.trace.path().display()
        )),
    }
}

/// Runs all plans, at most `threads` at a time. The outcomes are in the order of the plans.
///
/// # Errors
/// This machine has too little memory for so many of the largest, or else the error of the first
/// failed plan in that order.
pub fn run_all<'a>(
    plans: Vec<Plan<'a>>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Vec<ReplayOutcome<'a>>, Error> {
    staged(&plans, threads, watch, "replay", |plan, progress| plan.clone().run(None, progress))
}

/// Replays with other policies, as [`run_all`] does.
///
/// # Errors
/// As [`run_all`].
pub fn run_baselines<'a>(
    plans: Vec<BaselinePlan<'a>>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Vec<BaselineOutcome<'a>>, Error> {
    staged(&plans, threads, watch, "baseline", |plan, progress| plan.run(progress))
}

/// Runs tasks as one stage. Each task reports its progress in thousandths.
///
/// # Errors
/// As [`run_all`].
pub(super) fn staged<T: Task, R: Send>(
    tasks: &[T],
    threads: usize,
    watch: &dyn Watch,
    what: &str,
    work: impl Fn(&T, &dyn Fn(u64) -> Result<(), Error>) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let what = match tasks.len() {
        0 => return Ok(Vec::new()),
        1 => what.to_owned(),
        tasks => format!("{tasks} {what}s"),
    };
    check_memory(tasks, Room::for_runs(threads.min(tasks.len())))?;
    let stage = Stage::begin(watch, &what, tasks.len() as u64 * STEPS, Unit::Steps);
    parallel::all(tasks, threads, |_, task| {
        let done = Cell::new(0);
        let progress = |step: u64| {
            let before = done.replace(step.max(done.get()));
            stage.advance(step.saturating_sub(before))
        };
        let result = work(task, &progress)?;
        progress(STEPS)?;
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_core::{Grain, Preset};

    #[test]
    fn a_sample_takes_the_time_of_the_whole_trace_and_writes_as_many_pages_per_access() {
        let whole = Machine::kernel_lab(1000);
        let mut sample = whole.clone();
        scale(&mut sample, 0.01);
        assert_eq!(sample.access_time, whole.access_time * 100);
        let bytes_per_access = |machine: &Machine| {
            machine.device.write.bytes_per_second as f64 * machine.access_time.as_secs_f64()
        };
        assert!((bytes_per_access(&sample) - bytes_per_access(&whole)).abs() < 1.0);
        assert_eq!((whole.device.write.depth, sample.device.write.depth), (60, 1));
        let tenth = |mut machine: Machine| {
            scale(&mut machine, 0.1);
            machine.grain
        };
        assert_eq!(sample.grain, Grain { shadow_batch_leaves: 1, reclaim_pages: 1, few_refaults: 1 });
        assert_eq!(tenth(whole), Grain { shadow_batch_leaves: 12, reclaim_pages: 3, few_refaults: 6 });
    }

    #[test]
    fn a_sample_has_the_pages_that_a_batch_leaves_free() {
        let limit = |lru, share| {
            let mechanisms = Mechanisms::preset(Preset::Linux72).with_lru(lru);
            let mut machine = Machine { mechanisms, ..Machine::kernel_lab(1000) };
            scale(&mut machine, share);
            machine.tenants[0].max_pages
        };
        assert_eq!(limit(Lru::Classic, 0.01), 1015);
        assert_eq!(limit(Lru::Classic, 0.5), 1008);
        assert_eq!(limit(Lru::MultiGen, 0.01), 1000);
    }
}
