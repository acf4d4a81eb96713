//! What is run: a trace or a scenario, once, with some mechanisms and a seed.

use super::Request;
use crate::error::Error;
use crate::replay::memory::{Memory, Swap};
use crate::replay::run::Plan as Replay;
use crate::replay::warm_point;
use crate::run::{Overrides, Plan as ScenarioPlan, World, simulated};
use crate::timeline::{self, Timeline};
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_core::lru::Refresh;
use mglru_core::{Mechanisms, PAGE_BYTES};
use mglru_sim::{Simulator, Tally, Writes};
use mglru_workload::Random;
use mglru_workload::fio::Latencies;
use mglru_workload::scenario::Scenario;
use std::path::PathBuf;

/// By how much memory is varied under a trace: a share, and pages at least.
const MEMORY_SHARE: f64 = 0.01;
const MEMORY_PAGES_MIN: f64 = 3.0;

/// What is run.
pub enum Input {
    /// A trace.
    Trace(Box<TraceInput>),
    /// A scenario.
    Scenario(Box<ScenarioInput>),
}

/// A trace, and how it is replayed.
pub struct TraceInput {
    trace: TraceFile,
    mechanisms: Mechanisms,
    memory: String,
    memory_pages: u64,
    distinct_pages: u64,
    warm_from: u64,
    swap: Swap,
}

/// A scenario that was read.
pub struct ScenarioInput {
    path: PathBuf,
    /// As the first seed has it.
    plan: ScenarioPlan,
    tenants: Vec<String>,
}

/// What a tenant did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantCounts {
    /// Its name.
    pub name: String,
    /// Touches of cached pages.
    pub hits: u64,
    /// Other touches.
    pub misses: u64,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Run {
    /// All that were counted. In a scenario each variant gets through another number of them.
    pub accesses: u64,
    /// Accesses that had to wait for a device.
    pub misses: u64,
    /// Evicted pages that came back.
    pub refaults: u64,
    /// Pages that reclaim took off lists.
    pub scanned: u64,
    /// Pages that it freed.
    pub reclaimed: u64,
    /// Touches per second of simulated time.
    pub accesses_per_second: f64,
    /// 99 of 100 accesses take no longer, in nanoseconds of simulated time.
    pub p99_nanos: u64,
    /// All counters of all tenants: what tells runs apart.
    pub counters: Vec<(String, u64)>,
    /// Of a scenario: its tenants.
    pub tenants: Vec<TenantCounts>,
    /// How it went, of the one that is looked at.
    pub timeline: Option<Timeline>,
}

impl Input {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or options do not go with it.
    pub fn load(args: &Request, watch: &dyn Watch) -> Result<Input, Error> {
        if args.input.extension().is_some_and(|extension| extension == "toml") {
            return Ok(Input::Scenario(Box::new(ScenarioInput::load(args)?)));
        }
        let mechanisms = args.overrides.mechanisms()?;
        let trace = TraceFile::load(&args.input, args.open, watch)?;
        let counts = trace.counts(watch)?;
        let memory = args.memory.clone().unwrap_or_else(|| "10%".parse().expect("a share"));
        let warm = args.warm.or(trace.warm()).unwrap_or(0.0);
        let input = TraceInput {
            mechanisms,
            memory: memory.text().to_owned(),
            memory_pages: memory.pages(|| counts.distinct_pages),
            distinct_pages: counts.distinct_pages,
            warm_from: warm_point(counts.accesses, warm),
            swap: args.swap.clone(),
            trace,
        };
        input.swap.model(input.distinct_pages)?;
        Ok(Input::Trace(Box::new(input)))
    }

    /// The full set.
    pub fn mechanisms(&self) -> Mechanisms {
        match self {
            Input::Trace(input) => input.mechanisms,
            Input::Scenario(input) => input.plan.mechanisms,
        }
    }

    /// Whether time means something: a trace has none.
    pub fn has_time(&self) -> bool {
        matches!(self, Input::Scenario(_))
    }

    /// Memory, as the first seed has it.
    pub fn memory_pages(&self) -> u64 {
        match self {
            Input::Trace(input) => input.memory_pages,
            Input::Scenario(input) => input.plan.memory_bytes / PAGE_BYTES,
        }
    }

    /// What it is, and what it is called.
    pub fn kind(&self) -> (&'static str, String) {
        match self {
            Input::Trace(input) => ("trace", input.trace.path().display().to_string()),
            Input::Scenario(input) => ("scenario", input.plan.scenario.name()),
        }
    }

    /// What the seed varies.
    pub fn varied(&self) -> &'static str {
        match self {
            Input::Trace(_) => {
                "memory, by at most 1 % (3 pages at least; the first seed has what was asked for)"
            }
            Input::Scenario(_) => "all that the jobs leave to chance",
        }
    }

    /// Runs it. `looks`: it is watched over time.
    ///
    /// # Errors
    /// It cannot be run, or something is wrong in here.
    pub fn run(&self, mechanisms: Mechanisms, seed: u64, first_seed: u64, looks: bool) -> Result<Run, Error> {
        match self {
            Input::Trace(input) => input.run(mechanisms, seed, first_seed, looks),
            Input::Scenario(input) => input.run(mechanisms, seed, looks),
        }
    }
}

impl TraceInput {
    /// Memory under a seed.
    fn memory_pages(&self, seed: u64, first_seed: u64) -> u64 {
        if seed == first_seed {
            return self.memory_pages;
        }
        let pages = self.memory_pages as f64;
        let most = (pages * MEMORY_SHARE).max(MEMORY_PAGES_MIN).min(pages - 1.0);
        let share = 2.0 * Random::stream(seed, 0xAB1A7E).unit() - 1.0;
        (pages + most * share).round() as u64
    }

    fn run(&self, mechanisms: Mechanisms, seed: u64, first_seed: u64, looks: bool) -> Result<Run, Error> {
        let plan = Replay {
            trace: &self.trace,
            mechanisms,
            memory: self.memory.clone(),
            memory_pages: self.memory_pages(seed, first_seed),
            warm_from: self.warm_from,
            writes: Writes::AfterRead,
            swap: self.swap.model(self.distinct_pages)?,
            swappiness: self.swap.swappiness,
            statistics_refresh: Refresh::default(),
            statistics_reads: None,
            seed,
            check_every: None,
            explain: Vec::new(),
            over_time: looks,
        };
        let outcome = plan.run(None, |_| Ok(()))?;
        let counted = outcome.warm();
        let timeline = outcome.timeline.map(|timeline| timeline.labelled("all mechanisms"));
        Ok(Run { timeline, ..Run::of(&counted, 0.0, None) })
    }
}

impl ScenarioInput {
    fn load(args: &Request) -> Result<ScenarioInput, Error> {
        if args.warm.is_some() || args.swap.size.is_some() {
            return Err(Error::usage(
                "--warm and --swap are about traces; a scenario says in its [machine] what swap there is",
            ));
        }
        if args.memory.as_ref().is_some_and(Memory::is_share) {
            return Err(Error::usage("--memory: a share of the distinct pages is for traces; give a size"));
        }
        let bytes = args.memory.as_ref().map(|memory| memory.pages(|| 0) * PAGE_BYTES);
        let scenario = Scenario::read(&args.input, Some(args.seed)).map_err(Error::usage)?;
        let tenants = scenario.tenants.iter().map(|tenant| tenant.path.clone()).collect();
        let plan = ScenarioPlan::new(
            scenario,
            World::Sim,
            &Overrides { memory_bytes: bytes, ..args.overrides.clone() },
        )?;
        Ok(ScenarioInput { path: args.input.clone(), plan, tenants })
    }

    fn run(&self, mechanisms: Mechanisms, seed: u64, looks: bool) -> Result<Run, Error> {
        let mut plan = self.plan.clone();
        plan.mechanisms = mechanisms;
        // Its jobs' own seeds follow from it.
        plan.scenario = Scenario::read(&self.path, Some(seed)).map_err(Error::usage)?;
        let prepare = |simulator: &mut Simulator| {
            simulator.time_accesses();
            if looks {
                timeline::watch(simulator);
            }
        };
        let look = |simulator: &Simulator| {
            let mut latencies = Latencies::default();
            simulator.latencies().for_each(|of_tenant| latencies.merge(of_tenant));
            let timeline = looks.then(|| Timeline::of("all mechanisms", simulator, &self.tenants));
            (simulator.report().total(), latencies, timeline)
        };
        let (outcome, (total, latencies, timeline)) = simulated::run_with(&plan, prepare, look)?;
        let tenants = outcome.tenants.iter().filter(|tenant| tenant.hits + tenant.misses > 0);
        let tenants = tenants.map(|tenant| TenantCounts {
            name: if tenant.path.is_empty() { "(root)".to_owned() } else { tenant.path.clone() },
            hits: tenant.hits,
            misses: tenant.misses,
        });
        let run = Run::of(&total, outcome.time.as_secs_f64(), Some(&latencies));
        Ok(Run { tenants: tenants.collect(), timeline, ..run })
    }
}

impl Run {
    fn of(tally: &Tally, seconds: f64, latencies: Option<&Latencies>) -> Run {
        use mglru_core::Counter::{WorkingsetRefaultAnon, WorkingsetRefaultFile};
        let counters = &tally.counters;
        let counts = [("misses", tally.counts.misses), ("out_of_memory", tally.counts.out_of_memory)];
        let all = counts.into_iter().chain(counters.iter());
        Run {
            accesses: tally.counts.accesses,
            misses: tally.counts.misses,
            refaults: counters.get(WorkingsetRefaultFile) + counters.get(WorkingsetRefaultAnon),
            scanned: counters.pgscan(),
            reclaimed: counters.pgsteal(),
            accesses_per_second: if seconds > 0.0 { tally.counts.accesses as f64 / seconds } else { 0.0 },
            p99_nanos: latencies.map_or(0, |latencies| latencies.percentile_ns(99.0)),
            counters: all.map(|(name, value)| (name.to_owned(), value)).collect(),
            tenants: Vec::new(),
            timeline: None,
        }
    }
}
