//! Requests of the laboratory: the arguments come from `python/mglru/_requests.py`.

use crate::table::Table;
use crate::trace::Trace;
use crate::work::run;
use mglru_core::{Lru, Mechanisms, OomPolicy, Preset, Switch};
use mglru_lab::ablate::{self as ablation, AblationRequest, Input};
use mglru_lab::arguments::{either, named, optional};
use mglru_lab::mechanisms::{parse_switch, without_effect};
use mglru_lab::replay::grid::{self, Choice, Grid};
use mglru_lab::replay::memory::Memory;
use mglru_lab::replay::record;
use mglru_lab::replay::text::{TextOptions, TextSwap, parse_fraction};
use mglru_lab::run::{self as scenarios, Overrides, Plan, World};
use mglru_lab::{Error, fidelity as kernels, parallel, size, timeline as over_time};
use mglru_sim::Baseline;
use mglru_workload::scenario::Scenario;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Options of replays, as text and numbers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReplayOptions {
    policy: Vec<String>,
    memory: Vec<String>,
    seeds: Vec<u64>,
    warm: Option<String>,
    writes: String,
    swap: Option<String>,
    swap_device: String,
    swappiness: String,
    swap_readahead: Option<String>,
    readahead: Option<String>,
    fault_around: Option<String>,
}

fn swap_of<'a>(
    size: Option<&'a str>,
    device: &'a str,
    swappiness: &'a str,
    readahead: Option<&'a str>,
) -> TextSwap<'a> {
    TextSwap { size, device: Some(device), swappiness: Some(swappiness), readahead }
}

impl ReplayOptions {
    fn grid(&self) -> Result<Grid, Error> {
        let policies = self.policy.iter().map(|name| name.parse::<Choice>()).collect::<Result<_, _>>()?;
        let sizes = self.memory.iter().map(|size| named("memory", size.parse::<Memory>()));
        let sizes = sizes.collect::<Result<_, _>>()?;
        let options = TextOptions {
            warm: self.warm.as_deref(),
            writes: Some(&self.writes),
            swap: swap_of(
                self.swap.as_deref(),
                &self.swap_device,
                &self.swappiness,
                self.swap_readahead.as_deref(),
            ),
            readahead: self.readahead.as_deref(),
            fault_around: self.fault_around.as_deref(),
        };
        Ok(Grid { policies, sizes, seeds: self.seeds.clone(), options: options.options()? })
    }
}

/// Replays each trace with each policy, size and seed. With several salts, each trace stands as so
/// many samples, and the rows are their means.
#[pyfunction]
pub fn replay(
    py: Python<'_>,
    traces: Vec<PyRef<'_, Trace>>,
    options: ReplayOptions,
    threads: Option<usize>,
    salts: usize,
) -> PyResult<Table> {
    let traces: Vec<_> = traces.iter().map(|trace| trace.0.clone()).collect();
    run(py, move |watch| {
        let threads = threads.unwrap_or_else(parallel::threads);
        Ok(Table(grid::columns(&options.grid()?.run_salts(&traces, salts, threads, watch)?)))
    })
}

/// Hit ratio and generations over time of each replay of a trace by the engine.
#[pyfunction]
pub fn timeline(py: Python<'_>, trace: PyRef<'_, Trace>, options: ReplayOptions) -> PyResult<Table> {
    let trace = trace.0.clone();
    run(py, move |watch| {
        let mut grid = options.grid()?;
        grid.options.over_time = true;
        let done = grid.run(std::slice::from_ref(&trace), parallel::threads(), watch)?;
        let timelines: Vec<_> = done.into_iter().filter_map(|done| done.row.timeline).collect();
        Ok(Table(over_time::columns(&timelines)))
    })
}

/// The events of one replay by the engine, from `start` to before access number `end`.
#[pyfunction]
pub fn events(
    py: Python<'_>,
    trace: PyRef<'_, Trace>,
    options: ReplayOptions,
    start: u64,
    end: u64,
) -> PyResult<Table> {
    let trace = trace.0.clone();
    run(py, move |watch| Ok(Table(record::columns(&options.grid()?.events(&trace, start..end, watch)?))))
}

/// Options of an ablation, as text and numbers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct AblateOptions {
    memory: Option<String>,
    preset: Option<String>,
    lru: Option<String>,
    with_: Vec<String>,
    without: Vec<String>,
    runs: u32,
    seed: u64,
    pairs: bool,
    warm: Option<String>,
    swap: Option<String>,
    swap_device: String,
    swappiness: String,
    swap_readahead: Option<String>,
}

fn overrides(
    preset: Option<&str>,
    lru: Option<&str>,
    with: &[String],
    without: &[String],
) -> Result<Overrides, Error> {
    let switches = |names: &[String]| -> Result<Vec<Switch>, Error> {
        names.iter().map(|name| parse_switch(name).map_err(Error::usage)).collect()
    };
    Ok(Overrides {
        preset: preset.map(Preset::parse).transpose().map_err(Error::usage)?,
        lru: lru.map(Lru::parse).transpose().map_err(Error::usage)?,
        with: switches(with)?,
        without: switches(without)?,
        ..Overrides::default()
    })
}

/// Refuses switches that change nothing in the set that a run has.
fn refuse_without_effect(mechanisms: Mechanisms, overrides: &Overrides) -> Result<(), Error> {
    match without_effect(mechanisms, &overrides.named()).first() {
        Some(sentence) => Err(Error::usage(format_args!("{sentence}; leave it out"))),
        None => Ok(()),
    }
}

/// Switches each mechanism off, on a trace or on a scenario, from a file or as text with a path.
/// Returns the effects, and the timeline of the full set.
#[pyfunction]
pub fn ablate(
    py: Python<'_>,
    trace: Option<PyRef<'_, Trace>>,
    scenario: Option<PathBuf>,
    text: Option<String>,
    options: AblateOptions,
) -> PyResult<(Table, Table)> {
    let trace = trace.map(|trace| trace.0.clone());
    run(py, move |watch| {
        if options.runs == 0 || options.runs > 1000 {
            return Err(Error::usage("runs: expected 1 to 1000"));
        }
        let request = AblationRequest {
            input: scenario.unwrap_or_default(),
            overrides: overrides(
                options.preset.as_deref(),
                options.lru.as_deref(),
                &options.with_,
                &options.without,
            )?,
            memory: optional("memory", options.memory.as_deref(), str::parse::<Memory>)?,
            seed: options.seed,
            runs: options.runs,
            pairs: options.pairs,
            warm: optional("warm", options.warm.as_deref(), parse_fraction)?,
            swap: swap_of(
                options.swap.as_deref(),
                &options.swap_device,
                &options.swappiness,
                options.swap_readahead.as_deref(),
            )
            .swap()?,
            open: Default::default(),
        };
        let input = match (trace, text) {
            (Some(trace), _) => Input::of_trace(trace, &request, watch)?,
            (None, Some(text)) => Input::of_scenario(text, &request)?,
            (None, None) => Input::load(&request, watch)?,
        };
        refuse_without_effect(input.mechanisms(), &request.overrides)?;
        let done = ablation::ablate(&input, &request, watch)?;
        let timelines: Vec<_> = done.timeline.iter().cloned().collect();
        Ok((Table(done.columns()), Table(over_time::columns(&timelines))))
    })
}

/// Options of a scenario, as text and numbers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ScenarioOptions {
    world: String,
    directory: Option<PathBuf>,
    memory: Option<String>,
    seed: Option<u64>,
    preset: Option<String>,
    lru: Option<String>,
    with_: Vec<String>,
    without: Vec<String>,
    oom_policy: Option<String>,
}

/// Runs a scenario from a file, or from text with a name. Returns its duration in seconds, the
/// tables of tenants, actions, kills and readings, and the errors of failed jobs.
#[pyfunction]
pub fn scenario(
    py: Python<'_>,
    path: PathBuf,
    text: Option<String>,
    options: ScenarioOptions,
) -> PyResult<(f64, [Table; 4], Vec<String>)> {
    run(py, move |watch| {
        let world = either("world", &options.world, [("sim", World::Sim), ("real", World::Real)])?;
        if options.directory.is_some() && world == World::Sim {
            return Err(Error::usage("directory needs world=\"real\": the simulator makes no files"));
        }
        let scenario = match &text {
            None => Scenario::read(&path, options.seed),
            Some(text) => Scenario::parse(text, &path, options.seed),
        };
        let oom_policy = options.oom_policy.as_deref().map(OomPolicy::parse).transpose();
        let overrides = Overrides {
            memory_bytes: optional("memory", options.memory.as_deref(), size::parse)?,
            oom_policy: oom_policy.map_err(Error::usage)?,
            ..overrides(options.preset.as_deref(), options.lru.as_deref(), &options.with_, &options.without)?
        };
        let plan = Plan::new(scenario.map_err(Error::usage)?, world, &overrides)?;
        refuse_without_effect(plan.mechanisms, &overrides)?;
        let outcome = scenarios::run_watched(&plan, options.directory.as_deref(), watch)?;
        let tables = [
            Table(outcome.tenant_columns()),
            Table(outcome.action_columns()),
            Table(outcome.kill_columns()),
            Table(outcome.reading_columns()),
        ];
        Ok((outcome.time.as_secs_f64(), tables, outcome.failures))
    })
}

/// Compares recorded runs of kernels with the engine.
#[pyfunction]
pub fn fidelity(
    py: Python<'_>,
    results: PathBuf,
    also: Option<PathBuf>,
    kernels_: Vec<String>,
    workloads: Vec<String>,
    lru: Option<String>,
) -> PyResult<Table> {
    run(py, move |watch| {
        let lru = lru.as_deref().map(Lru::parse).transpose().map_err(Error::usage)?;
        let filter = kernels::Filter { kernels: kernels_, workloads, lru };
        kernels::columns(&results, also.as_deref(), &filter, watch).map(Table)
    })
}

/// A size such as `64MiB` or `8192p` in bytes.
#[pyfunction]
pub fn size_bytes(py: Python<'_>, name: &str, text: &str) -> PyResult<u64> {
    named(name, size::parse(text)).map_err(|error| crate::work::exception(py, &error))
}

/// Names of presets, mechanisms and other policies.
#[pyfunction]
pub fn names() -> (Vec<&'static str>, Vec<&'static str>, Vec<&'static str>) {
    (
        Preset::ALL.map(Preset::name).into(),
        Switch::ALL.map(Switch::name).into(),
        Baseline::ALL.map(Baseline::name).into(),
    )
}
