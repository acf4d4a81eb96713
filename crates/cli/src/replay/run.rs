//! One replay: one trace, one set of mechanisms, one memory size. And many of them, several at a time.

use super::baseline::{BaselineOutcome, BaselinePlan};
use super::explain::{Life, Seen, Watch, Watcher};
use crate::error::Failure;
use crate::parallel;
use crate::progress;
use crate::timeline::{self, Timeline};
use crate::trace_file::{Decoding, TraceFile};
use indicatif::ProgressBar;
use mglru_core::lru::{Refresh, Swappiness};
use mglru_core::{Counter, Mechanisms};
use mglru_lab::Unwatched;
use mglru_sim::{Machine, Report, SimError, Simulator, SwapModel, Writes};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// More memory than this, and the trace is counted first: it takes no more folios than it has pages.
pub const PAGES_WITHOUT_COUNTING: u64 = 1 << 20;
/// Steps of the progress bar per replay.
const STEPS: u64 = 1000;

/// What to replay.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The trace.
    pub trace: &'a TraceFile,
    /// How memory is reclaimed.
    pub mechanisms: Mechanisms,
    /// How memory was asked for.
    pub memory: String,
    /// What that is, in pages.
    pub memory_pages: u64,
    /// The access from which on counting starts again.
    pub warm_from: u64,
    /// How writes treat pages that are not cached.
    pub writes: Writes,
    /// Where anonymous pages go.
    pub swap: Option<SwapModel>,
    /// How willing reclaim is to take them.
    pub swappiness: Swappiness,
    /// When the list sizes by which the classic LRU decides are refreshed, unless they are exact.
    pub statistics_refresh: Refresh,
    /// Accesses from one read of the statistics to the next.
    pub statistics_reads: Option<u64>,
    /// Decides what is left to chance.
    pub seed: u64,
    /// Steps from one check to the next.
    pub check_every: Option<u64>,
    /// What somebody wants to see of it.
    pub watch: Option<Watch>,
    /// Whether to note how it goes over time.
    pub over_time: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// What was replayed.
    pub plan: Plan<'a>,
    /// What happened.
    pub report: Report,
    /// Bad records skipped.
    pub skipped: u64,
    /// The lives of pages.
    pub lives: Vec<Life>,
    /// How it went over time, if that was noted.
    pub timeline: Option<Timeline>,
    /// How long the replay took.
    pub took: Duration,
}

impl Plan<'_> {
    /// The machine: the kernel lab's, with so much memory.
    fn machine(&self) -> Result<Machine, Failure> {
        let mut frames = self.memory_pages;
        if frames > PAGES_WITHOUT_COUNTING {
            frames = frames.min(self.trace.counts(&Unwatched)?.distinct_pages.max(1));
        }
        if frames > u64::from(mglru_core::folio::MAX_FOLIOS) / 2 {
            return Err(Failure::usage(format_args!(
                "{frames} pages are more than can be simulated; give --memory less than 4 TiB"
            )));
        }
        let mut machine = Machine::kernel_lab(frames);
        machine.tenants[0].max_pages = self.memory_pages;
        machine.mechanisms = self.mechanisms;
        machine.numbering = self.trace.numbering();
        machine.writes = self.writes;
        machine.swap = self.swap;
        machine.swappiness = self.swappiness;
        machine.statistics_refresh = self.statistics_refresh;
        machine.statistics_reads = self.statistics_reads;
        machine.seed = self.seed;
        Ok(machine)
    }
}

impl<'a> Plan<'a> {
    /// Replays. `advance` is called now and then.
    ///
    /// # Errors
    /// The trace is damaged, its anonymous pages do not fit into memory and swap, or the simulator has a bug.
    pub fn run(self, advance: impl Fn(&Decoding)) -> Result<Outcome<'a>, Failure> {
        let mut simulator = Simulator::new(&self.machine()?).map_err(Failure::usage)?;
        simulator.set_warm_from(self.warm_from);
        if let Some(steps) = self.check_every {
            simulator.check_every(steps);
        }
        let (source, decoding) = self.trace.source()?;
        simulator.add_job(0, source);
        let lru = self.mechanisms.lru();
        let watcher = self.watch.as_ref().map(|watch| Watcher::new(watch, lru)).transpose()?;
        if let Some(watcher) = &watcher {
            simulator.observe(Seen(watcher.clone()));
        }
        if self.over_time {
            timeline::watch(&mut simulator);
        }
        let began = Instant::now();
        while simulator.step().map_err(|error| failure(&self, error))? {
            advance(&decoding);
            stop_if_stuck(&self, &simulator)?;
        }
        let took = began.elapsed();
        let timeline = self.over_time.then(|| {
            let label =
                format!("{} {}, {}", self.mechanisms.lru().name(), self.mechanisms.name(), self.memory);
            Timeline::of(label, &simulator, &["the trace".to_owned()])
        });
        let report = simulator.report();
        if self.check_every.is_some() {
            simulator.finish().map_err(|error| failure(&self, error))?;
        }
        let lives = watcher.map_or(Ok(Vec::new()), |watcher| watcher.borrow_mut().finish())?;
        Ok(Outcome { report, lives, timeline, skipped: decoding.skipped(), took, plan: self })
    }
}

/// Anonymous pages that have nowhere to go stay, whatever comes; a kernel would kill the process here.
fn stop_if_stuck(plan: &Plan, simulator: &Simulator) -> Result<(), Failure> {
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
    Err(Failure::work(format_args!(
        "{}: out of memory at access {}: {anon} of {} pages are anonymous, and nothing could be freed; {advice}",
        plan.trace.path().display(),
        simulator.accesses(),
        plan.memory_pages,
    )))
}

fn failure(plan: &Plan, error: SimError) -> Failure {
    match error {
        // Says itself which trace, and where in it.
        SimError::Job(_, error) => Failure::work(error),
        error => Failure::work(format_args!(
            "{}: {error}. This is a bug of mglru: please report it with the trace and the command line",
            plan.trace.path().display()
        )),
    }
}

/// Runs all plans, at most `threads` at a time. The outcomes are in the order of the plans.
///
/// # Errors
/// That of the first plan, in that order, that failed.
pub fn run_all<'a>(plans: Vec<Plan<'a>>, threads: usize) -> Result<Vec<Outcome<'a>>, Failure> {
    with_bar(&plans, threads, "replay", |plan, advance| {
        plan.clone().run(|decoding| advance(decoding.permille()))
    })
}

/// Replays with other policies, as [`run_all`] does.
///
/// # Errors
/// As [`run_all`].
pub fn run_baselines<'a>(
    plans: Vec<BaselinePlan<'a>>,
    threads: usize,
) -> Result<Vec<BaselineOutcome<'a>>, Failure> {
    with_bar(&plans, threads, "baseline", |plan, advance| plan.run(advance))
}

/// Does tasks under one progress bar; each tells how many thousandths of it are done.
fn with_bar<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    what: &str,
    work: impl Fn(&T, &dyn Fn(u64)) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let bar = Bar::new(tasks.len(), what);
    let results = parallel::all(tasks, threads, |number, task| {
        let result = work(task, &|step| bar.advance(number, step));
        bar.advance(number, STEPS);
        result
    });
    bar.clear();
    results
}

/// One progress bar for all replays.
struct Bar {
    bar: ProgressBar,
    steps: Vec<AtomicUsize>,
}

impl Bar {
    fn new(replays: usize, what: &str) -> Bar {
        let bar = progress::of_share(replays as u64 * STEPS);
        bar.set_message(match replays {
            1 => what.to_owned(),
            _ => format!("{replays} {what}s"),
        });
        Bar { bar, steps: (0..replays).map(|_| AtomicUsize::new(0)).collect() }
    }

    fn advance(&self, replay: usize, step: u64) {
        let before = self.steps[replay].swap(step as usize, Relaxed) as u64;
        if step > before {
            self.bar.inc(step - before);
        }
    }

    fn clear(self) {
        self.bar.finish_and_clear();
    }
}
