//! `mglru run`: a scenario, under the virtual clock or on real files.
//!
//! ```text
//! Args ─► mglru_lab::run ─► ScenarioOutcome ─► text, JSON      report.rs
//! ```

mod report;

use crate::cache_options::{note_without_effect, with_mechanisms};
use crate::error::Failure;
use crate::events::{EventsFile, EventsPart, EventsWriter, parse_tenant};
use crate::output::Output;
use crate::progress::Bars;
use crate::size;
use crate::whole_file::refuse_input;
use clap::ValueEnum;
use mglru_core::{Lru, OomPolicy, Preset, Switch};
use mglru_lab::mechanisms::parse_switch;
use mglru_lab::replay::record::{Record, What};
use mglru_lab::run::{self, Overrides, Plan, ScenarioOutcome};
use mglru_lab::{Stage, Unit, Watch};
use mglru_workload::scenario::Scenario;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(TEACHES))]
pub struct Args {
    /// Scenarios, TOML files, which run one after the other.
    #[arg(required = true, value_name = "SCENARIO.toml")]
    scenarios: Vec<PathBuf>,
    /// Run in the simulator (sim), or in real time with the cache on real files (real).
    #[arg(long, value_name = "sim|real", value_enum, default_value = "sim", hide_possible_values = true)]
    world: World,
    /// Directory for the files of jobs, with --world real [default: a temporary directory].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Memory of the machine.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = "Instead of the file's values")]
    memory: Option<u64>,
    /// When no page can be freed: fail the request (fail), or kill a tenant (victim).
    #[arg(long, value_name = "fail|victim", value_parser = OomPolicy::parse,
          help_heading = "Instead of the file's values")]
    oom_policy: Option<OomPolicy>,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", help_heading = "Instead of the file's values")]
    seed: Option<u64>,
    #[command(flatten)]
    behaviours: Behaviours,
    /// Write every event of a simulated scenario: JSON Lines (.jsonl), a trace for ui.perfetto.dev
    /// (.perfetto), or the kernel's tracepoints as perf script prints them (.txt).
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    events: Option<EventsFile>,
    /// Only events of these tenants and of those in them; / is the root.
    #[arg(long, value_name = "PATH,...", value_delimiter = ',', value_parser = parse_tenant, requires = "events",
          help_heading = "Output")]
    events_tenant: Vec<String>,
    #[command(flatten)]
    events_part: EventsPart,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const TEACHES: &str = "\
A complete scenario:
  [machine]
  memory = \"32MiB\"

  [[tenant]]
  path = \"web\"
  memory.low = \"16MiB\"

  [[tenant]]
  path = \"batch\"

  [[job]]                          # fio = job text, trace = \"file\", or load = \"tpcc\"
  tenant = \"web\"
  fio = \"\"\"
  [pages]
  rw=randread
  size=12m
  rate_iops=2000
  time_based
  runtime=10
  \"\"\"

  [[job]]
  tenant = \"batch\"
  start = \"2s\"
  fio = \"\"\"
  [scan]
  rw=read
  size=128m
  \"\"\"

  [[action]]                       # write, create, remove or move
  at = \"6s\"
  write = { \"batch/memory.max\" = \"4M\" }

  [print]
  every = \"1s\"
  files = [\"web/memory.current\", \"batch/memory.current\", \"web/memory.events\"]
  counters = [\"workingset_refault_file\", \"pgsteal\"]

Examples:
  mglru run experiments/floors.toml
  mglru run experiments/floors.toml --without subtree_lru --json
  mglru run experiments/soft-limit.toml --world real
  mglru run experiments/kill.toml --oom-policy fail
  mglru run experiments/*.toml --preset linux-7.2 --json
  mglru run experiments/floors.toml --events part.jsonl --events-tenant batch --events-until 2

docs/book/src/scenario-files.md describes every key, and docs/book/src/counters.md each column that
is printed. Exit status: 0 done; 1 a job failed, or a file is missing or cannot be read; 2 wrong
usage or an invalid scenario.";

/// Where a scenario runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum World {
    /// In the simulator, under a virtual clock.
    Sim,
    /// With the cache, on real files.
    Real,
}

/// Reclaim behaviours that override those of a scenario file.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Reclaim")]
pub struct Behaviours {
    /// Behave as linux-6.12, linux-7.1, linux-7.2, or default (this project's own choice).
    #[arg(long, value_name = "NAME", value_parser = Preset::parse)]
    preset: Option<Preset>,
    /// Switch a mechanism on; may be repeated.
    #[arg(long, value_name = "MECHANISM", value_parser = parse_switch)]
    with: Vec<Switch>,
    /// Switch a mechanism off; may be repeated.
    #[arg(long, value_name = "MECHANISM", value_parser = parse_switch)]
    without: Vec<Switch>,
    /// Policy: multigen, classic or ranked.
    #[arg(long, value_name = "POLICY", value_parser = Lru::parse)]
    lru: Option<Lru>,
}

impl Behaviours {
    /// The same for the library.
    pub fn overrides(&self) -> Overrides {
        let (with, without) = (self.with.clone(), self.without.clone());
        Overrides { preset: self.preset, with, without, lru: self.lru, ..Overrides::default() }
    }
}

/// Runs the command.
///
/// # Errors
/// Wrong usage, an invalid scenario, a job that failed.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.directory.is_some() && args.world == World::Sim {
        return Err(Failure::usage("--directory needs --world real: the simulator makes no files"));
    }
    let world = match args.world {
        World::Sim => run::World::Sim,
        World::Real => run::World::Real,
    };
    let (memory_bytes, oom_policy) = (args.memory, args.oom_policy);
    let overrides = Overrides { memory_bytes, oom_policy, ..args.behaviours.overrides() };
    // A scenario that is wrong is found before the first one runs.
    let plan = |path: &PathBuf| Plan::new(Scenario::read(path, args.seed)?, world, &overrides);
    let plans: Vec<Plan> = args.scenarios.iter().map(plan).collect::<Result<_, Failure>>()?;
    plans.iter().for_each(|plan| note_without_effect(plan.mechanisms, &overrides.named()));
    if args.events.is_some() && (args.world == World::Real || plans.len() > 1) {
        return Err(Failure::usage("--events works for one scenario in the simulator"));
    }
    if let Some(file) = &args.events {
        let inputs = plans.iter().flat_map(|plan| plan.scenario.inputs());
        refuse_input("--events", file.path(), inputs)?;
        args.events_part.check()?;
        check_tenants(&args.events_tenant, &plans[0].scenario)?;
    }
    let mut output = Output::new(args.json);
    let (mut documents, mut failures, mut done) = (Vec::new(), Vec::new(), Ok(()));
    let bars = Bars::default();
    let stage = Stage::begin(&bars, "scenario", plans.len() as u64, Unit::Steps);
    for (number, plan) in plans.iter().enumerate() {
        bars.note(&plan.scenario.name());
        let ran = match &args.events {
            Some(file) => recorded(plan, file, &args, &bars).map(|(outcome, place)| (outcome, Some(place))),
            None => run::run_watched(plan, args.directory.as_deref(), &bars).map(|outcome| (outcome, None)),
        };
        let (outcome, place) = match ran {
            Ok(ran) => ran,
            // The results of those before it are printed all the same.
            Err(failure) => {
                done = Err(failure);
                break;
            }
        };
        let between = if number > 0 { "\n" } else { "" };
        bars.hidden(|| output.text(&format!("{between}{}", report::text(plan, &outcome))))?;
        if let Some(place) = place {
            bars.hidden(|| output.text(&format!("\n{place}\n")))?;
        }
        documents.push(json!(outcome));
        failures.extend(outcome.failures);
        stage.advance(1)?;
    }
    drop(stage);
    match documents.as_slice() {
        [] => {}
        [document] if plans.len() == 1 => output.document(document)?,
        documents => output.document(&json!({ "scenarios": documents }))?,
    }
    all_of(&failures, done)
}

/// Failures that are printed. The JSON document has all of them.
const FAILURES_PRINTED: usize = 20;

/// The failures of jobs, and that of a scenario which could not run after them, as one of the
/// command, a line each.
fn all_of(failures: &[String], last: Result<(), Failure>) -> Result<(), Failure> {
    if failures.is_empty() {
        return last;
    }
    let mut lines = failures.iter().take(FAILURES_PRINTED).cloned().collect::<Vec<_>>();
    let more = failures.len() - lines.len();
    if more > 0 {
        lines.push(format!("{more} more failures: --json has all of them"));
    }
    lines.extend(last.as_ref().err().map(|last| last.text().to_owned()));
    let text = lines.join("\nmglru: ");
    Err(if matches!(last, Err(Failure::Usage(_))) { Failure::Usage(text) } else { Failure::Work(text) })
}

/// Runs a scenario, and writes its events. Also returns a sentence that says where they are.
fn recorded(
    plan: &Plan,
    file: &EventsFile,
    args: &Args,
    bars: &Bars,
) -> Result<(ScenarioOutcome, String), Failure> {
    let mut events = EventsWriter::create(file, plan.mechanisms, true)?;
    let sink = |record: &Record, path: &Arc<str>| {
        if args.events_part.wants(record) && of_tenants(&args.events_tenant, record, path) {
            events.write_of(record, path);
        }
    };
    let outcome = run::run_recorded(plan, Box::new(sink), bars)?;
    Ok((outcome, events.finish()?))
}

/// Tenants that an error names.
const TENANTS_NAMED: usize = 20;

/// Refuses tenants that the scenario does not have at any time.
fn check_tenants(wanted: &[String], scenario: &Scenario) -> Result<(), Failure> {
    let is_known =
        |wanted: &str| wanted == "/" || scenario.tenants.iter().any(|tenant| tenant.path == wanted);
    let Some(unknown) = wanted.iter().find(|wanted| !is_known(wanted)) else { return Ok(()) };
    let paths = scenario.tenants.iter().map(|tenant| tenant.path.as_str());
    let mut known: Vec<&str> = ["/"].into_iter().chain(paths).collect();
    let more = if known.len() > TENANTS_NAMED { ", …" } else { "" };
    known.truncate(TENANTS_NAMED);
    Err(Failure::usage(format_args!(
        "--events-tenant: {} has no tenant `{unknown}`; it has {}{more}",
        scenario.path.display(),
        known.join(", ")
    )))
}

/// Whether a record belongs to one of the tenants, or to one in them. Efforts of their ancestors
/// reclaim from them, too. Without tenants all records do.
fn of_tenants(tenants: &[String], record: &Record, path: &str) -> bool {
    let within = |path: &str, of: &str| {
        of == "/" || path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_effort = matches!(record.what, What::Effort { .. } | What::Wake | What::Sleep);
    let belongs = |tenant: &String| within(path, tenant) || is_effort && within(tenant, path);
    tenants.is_empty() || tenants.iter().any(belongs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_scenario_of_the_help_runs() {
        let (_, text) = TEACHES.split_once("scenario:\n").unwrap();
        let (text, _) = text.split_once("\nExamples:").unwrap();
        let text = text.lines().map(|line| line.trim_start_matches("  ")).collect::<Vec<_>>().join("\n");
        let scenario = Scenario::parse(&text, Path::new("help.toml"), None).unwrap();
        assert_eq!((scenario.tenants.len(), scenario.jobs.len(), scenario.actions.len()), (2, 2, 1));
        let overrides = Overrides { memory_bytes: Some(16 << 20), ..Overrides::default() };
        let plan = Plan::new(scenario, run::World::Sim, &overrides).unwrap();
        let outcome = run::run(&plan, None).unwrap();
        assert_eq!(outcome.tenants[1].hits + outcome.tenants[1].misses, 20_000);
    }
}
