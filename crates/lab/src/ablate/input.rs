//! Inputs: a trace or a scenario, run once with some mechanisms and a seed.

use super::AblationRequest;
use crate::effect::{Count, Metric};
use crate::error::Error;
use crate::replay::memory::{Memory, Swap};
use crate::replay::run::{Costs, Plan as Replay, Task};
use crate::replay::warm_point;
use crate::run::{Overrides, Plan as ScenarioPlan, World, simulated};
use crate::timeline::{self, Timeline};
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_core::lru::Swappiness;
use mglru_core::{Mechanisms, PAGE_BYTES};
use mglru_sim::{Simulator, Tally};
use mglru_workload::Random;
use mglru_workload::fio::Latencies;
use mglru_workload::scenario::Scenario;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Share of memory by which seeds vary it under a trace; it varies by at least some pages.
const MEMORY_SHARE: f64 = 0.01;
const MEMORY_PAGES_MIN: f64 = 3.0;

/// The input of an ablation.
pub enum Input {
    /// A trace.
    Trace(Box<TraceInput>),
    /// A scenario.
    Scenario(Box<ScenarioInput>),
}

/// A trace with its replay options.
pub struct TraceInput {
    trace: TraceFile,
    mechanisms: Mechanisms,
    memory: String,
    memory_pages: u64,
    distinct_pages: u64,
    warm_from: u64,
    swap: Swap,
}

/// A parsed scenario.
pub struct ScenarioInput {
    path: PathBuf,
    /// The content of the file, which may be a pipe, or change during the runs.
    text: String,
    /// The plan with the first seed.
    plan: ScenarioPlan,
    tenants: Vec<String>,
}

/// Counts of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TenantCounts {
    /// Name of the tenant.
    pub name: String,
    /// Touches of cached pages.
    pub hits: u64,
    /// Touches of pages that were not cached.
    pub misses: u64,
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The counts that variants are compared by.
    pub count: Count,
    /// All counters of all tenants, for comparing runs.
    pub counters: Vec<(String, u64)>,
    /// Tenants of a scenario.
    pub tenants: Vec<TenantCounts>,
    /// Timeline of the watched run.
    pub timeline: Option<Timeline>,
}

impl Input {
    /// Reads the input.
    ///
    /// # Errors
    /// If it cannot be read, or the options do not apply to it.
    pub fn load(args: &AblationRequest, watch: &dyn Watch) -> Result<Input, Error> {
        if args.input.extension().is_some_and(|extension| extension == "toml") {
            let scenario = ScenarioInput::new(args, || Ok(Scenario::text(&args.input)?))?;
            return Ok(Input::Scenario(Box::new(scenario)));
        }
        Input::of_trace(TraceFile::load(&args.input, args.open, watch)?, args, watch)
    }

    /// A scenario that was read from the path of the request already.
    ///
    /// # Errors
    /// If it is invalid, or the options do not apply to it.
    pub fn of_scenario(text: String, args: &AblationRequest) -> Result<Input, Error> {
        Ok(Input::Scenario(Box::new(ScenarioInput::new(args, || Ok(text))?)))
    }

    /// A trace that was read already. The path of the request is not used.
    ///
    /// # Errors
    /// If the options do not apply to it.
    pub fn of_trace(trace: TraceFile, args: &AblationRequest, watch: &dyn Watch) -> Result<Input, Error> {
        if trace.sampled().is_some() {
            let name = trace.path().display();
            return Err(Error::usage(format_args!(
                "{name}: a sample cannot be ablated; use the whole trace"
            )));
        }
        let mechanisms = args.overrides.mechanisms()?;
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

    /// The full set of mechanisms.
    pub fn mechanisms(&self) -> Mechanisms {
        match self {
            Input::Trace(input) => input.mechanisms,
            Input::Scenario(input) => input.plan.mechanisms,
        }
    }

    /// Whether the input has meaningful times. A trace has none.
    pub fn has_time(&self) -> bool {
        matches!(self, Input::Scenario(_))
    }

    /// The metrics to compare.
    pub fn metrics(&self) -> &'static [Metric] {
        use Metric::{MissRatio, Misses, P99, RefaultRatio, Refaults, ScannedPerReclaimed, Throughput};
        if self.has_time() {
            &[Throughput, P99, MissRatio, RefaultRatio, ScannedPerReclaimed]
        } else {
            &[Misses, Refaults, ScannedPerReclaimed]
        }
    }

    /// Memory in pages with the first seed.
    pub fn memory_pages(&self) -> u64 {
        match self {
            Input::Trace(input) => input.memory_pages,
            Input::Scenario(input) => input.plan.memory_bytes / PAGE_BYTES,
        }
    }

    /// The files that the input is read from. A report must not replace one of them.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Input::Trace(input) => vec![input.trace.path().to_owned()],
            Input::Scenario(input) => input.plan.scenario.inputs().map(Path::to_owned).collect(),
        }
    }

    /// Kind and name of the input.
    pub fn kind(&self) -> (&'static str, String) {
        match self {
            Input::Trace(input) => ("trace", input.trace.path().display().to_string()),
            Input::Scenario(input) => ("scenario", input.plan.scenario.name()),
        }
    }

    /// The quantity that the seed varies.
    pub fn varied(&self) -> &'static str {
        match self {
            Input::Trace(_) => {
                "memory, by at most 1 % (at least 3 pages; the first seed has the requested size)"
            }
            Input::Scenario(_) => "all random choices of the jobs",
        }
    }

    /// Memory of this machine that a run with the first seed needs at most, in bytes.
    ///
    /// # Errors
    /// As [`Task::needed_bytes`].
    pub(super) fn needed_bytes(&self) -> Result<u64, Error> {
        match self {
            Input::Trace(input) => input.replay(input.mechanisms, input.memory_pages)?.needed_bytes(),
            Input::Scenario(input) => Ok(input.plan.needed_bytes()),
        }
    }

    /// Runs the input. `looks` records a timeline.
    ///
    /// # Errors
    /// If it cannot be run, the work was cancelled, or of a bug in the simulator.
    pub fn run(
        &self,
        mechanisms: Mechanisms,
        (seed, first_seed): (u64, u64),
        looks: bool,
        watch: &dyn Watch,
    ) -> Result<Run, Error> {
        match self {
            Input::Trace(input) => input.run(mechanisms, (seed, first_seed), looks, watch),
            Input::Scenario(input) => input.run(mechanisms, seed, looks, watch),
        }
    }
}

impl TraceInput {
    fn memory_pages(&self, seed: u64, first_seed: u64) -> u64 {
        if seed == first_seed {
            return self.memory_pages;
        }
        let pages = self.memory_pages as f64;
        let most = (pages * MEMORY_SHARE).max(MEMORY_PAGES_MIN).min(pages - 1.0);
        let share = 2.0 * Random::stream(seed, 0xAB1A7E).unit() - 1.0;
        (pages + most * share).round() as u64
    }

    fn replay(&self, mechanisms: Mechanisms, memory_pages: u64) -> Result<Replay<'_>, Error> {
        Ok(Replay {
            memory: self.memory.clone(),
            warm_from: self.warm_from,
            swap: self.swap.model(self.distinct_pages)?,
            swappiness: self.swap.swappiness,
            swap_readahead_pages: self.swap.readahead_pages.unwrap_or(0),
            ..Replay::plain(&self.trace, mechanisms, memory_pages)
        })
    }

    fn run(
        &self,
        mechanisms: Mechanisms,
        (seed, first_seed): (u64, u64),
        looks: bool,
        watch: &dyn Watch,
    ) -> Result<Run, Error> {
        let replay = self.replay(mechanisms, self.memory_pages(seed, first_seed))?;
        let plan = Replay { seed, over_time: looks, ..replay };
        let outcome = plan.run(None, |_| watch.check())?;
        let counted = outcome.warm();
        let count = Count::of(&counted, outcome.costs);
        let timeline = outcome.timeline.map(|timeline| timeline.labelled("all mechanisms"));
        Ok(Run { timeline, ..Run::of(&counted, count) })
    }
}

impl ScenarioInput {
    fn new(
        args: &AblationRequest,
        text: impl FnOnce() -> Result<String, Error>,
    ) -> Result<ScenarioInput, Error> {
        let has_swap = args.swap.size.is_some() || args.swap.swappiness != Swappiness::DEFAULT;
        if args.warm.is_some() || has_swap {
            return Err(Error::usage(
                "--warm, --swap and --swappiness are about traces; a scenario sets its swap in [machine]",
            ));
        }
        if args.open.format.is_some() || args.open.lossy || args.open.unit_bytes.is_some() {
            return Err(Error::usage(
                "--format, --lossy and --unit are about a trace, and a scenario reads its traces itself",
            ));
        }
        if args.memory.as_ref().is_some_and(Memory::is_share) {
            return Err(Error::usage("--memory: a percentage is for traces; give a size"));
        }
        let bytes = args.memory.as_ref().map(|memory| memory.pages(|| 0) * PAGE_BYTES);
        let text = text()?;
        let scenario = Scenario::parse(&text, &args.input, Some(args.seed))?;
        let tenants = scenario.tenants.iter().map(|tenant| tenant.path.clone()).collect();
        let plan = ScenarioPlan::new(
            scenario,
            World::Sim,
            &Overrides { memory_bytes: bytes, ..args.overrides.clone() },
        )?;
        Ok(ScenarioInput { path: args.input.clone(), text, plan, tenants })
    }

    fn run(&self, mechanisms: Mechanisms, seed: u64, looks: bool, watch: &dyn Watch) -> Result<Run, Error> {
        let mut plan = self.plan.clone();
        plan.mechanisms = mechanisms;
        // The seeds of its jobs follow from the scenario's seed.
        plan.scenario = Scenario::parse(&self.text, &self.path, Some(seed))?;
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
        let (outcome, (total, latencies, timeline)) = simulated::run_with(&plan, prepare, look, watch)?;
        let tenants = outcome.tenants.iter().filter(|tenant| tenant.hits + tenant.misses > 0);
        let tenants = tenants.map(|tenant| TenantCounts {
            name: if tenant.path.is_empty() { "(root)".to_owned() } else { tenant.path.clone() },
            hits: tenant.hits,
            misses: tenant.misses,
        });
        let seconds = outcome.time.as_secs_f64();
        let per_second = if seconds > 0.0 { total.counts.accesses as f64 / seconds } else { 0.0 };
        let count = Count {
            accesses_per_second: per_second,
            p99_nanos: latencies.percentile_ns(99.0),
            ..Count::of(&total, Costs::default())
        };
        let run = Run::of(&total, count);
        Ok(Run { tenants: tenants.collect(), timeline, ..run })
    }
}

impl Run {
    fn of(tally: &Tally, count: Count) -> Run {
        let counts = [("misses", tally.counts.misses), ("out_of_memory", tally.counts.out_of_memory)];
        let all = counts.into_iter().chain(tally.counters.iter());
        let counters = all.map(|(name, value)| (name.to_owned(), value)).collect();
        Run { count, counters, tenants: Vec::new(), timeline: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Unwatched;
    use mglru_core::Preset;

    #[test]
    fn a_scenario_is_read_once() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let scenario = "[machine]\nmemory = \"1MiB\"\n[[job]]\nfio = \"[j]\\nrw=read\\nsize=64k\"\n";
        std::fs::write(file.path(), scenario).unwrap();
        let request = AblationRequest {
            input: file.path().to_owned(),
            overrides: Overrides::default(),
            memory: None,
            seed: 1,
            runs: 1,
            pairs: false,
            warm: None,
            swap: Swap::default(),
            open: Default::default(),
        };
        let input = Input::load(&request, &Unwatched).unwrap();
        // As a pipe is at its end, and as somebody may edit the file meanwhile.
        std::fs::write(file.path(), "").unwrap();
        let run = input.run(Mechanisms::preset(Preset::Default), (2, 1), false, &Unwatched).unwrap();
        assert_eq!(run.tenants[0].misses, 16);
    }
}
