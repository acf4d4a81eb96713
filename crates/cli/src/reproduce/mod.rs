//! `mglru reproduce`: the published experiments, before and after each change, beside the published
//! figures.
//!
//! `mglru_lab::experiment` runs them; [`text`], [`summary`] and [`page`] show the results. A result
//! that disagrees with the published one exits with status 0. Counters that do not add up are a
//! bug: the results are shown, and the status is 1.

mod apps;
mod page;
mod summary;
mod text;

use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::Bars;
use crate::run::World;
use apps::Apps;
use mglru_lab::experiment::{self, EXPERIMENTS, Environment, ExperimentRequest, Registration};
use mglru_lab::layout;
use serde_json::{Value, json};
use std::path::PathBuf;
use summary::Done;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = TIMES)]
pub struct Args {
    /// Experiments: prefetch, workingset, lru-lock, memcg-lru, reclaim-loop [default: all, in one
    /// table].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run in the simulator (sim), or with the cache on smaller real files (real); lru-lock always
    /// runs on real threads, without files.
    #[arg(long, value_name = "sim|real", value_enum, default_value = "sim", hide_possible_values = true)]
    world: World,
    /// Directory for files, with --world real [default: the directory for temporary files].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Runs of each setting, each with its own seed. In the simulator, experiments about spread
    /// make at least 10, and lru-lock at least 12 [default: 6 in the simulator, 2 on real files].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Effort")]
    runs: Option<u32>,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Effort")]
    seed: u64,
    /// Run for an eighth of the time, and 2 runs unless --runs is given: a test of the commands,
    /// not of the claims.
    #[arg(long, help_heading = "Effort")]
    quick: bool,
    /// Show real programs beside the experiments: a file that `experiments/apps/run --json` wrote.
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    apps: Option<PathBuf>,
    /// Write an HTML page with charts and tables, readable without a network.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<ReportFile>,
    /// Write the charts of that page as SVG files.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    figures: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const TIMES: &str = "\
Examples:
  mglru reproduce workingset
  mglru reproduce --quick --report report.html
  mglru reproduce prefetch --apps apps.json --report report.html
  mglru reproduce reclaim-loop --world real --directory /mnt/nvme

Times on two idle cores, about: prefetch and workingset 2 minutes, lru-lock 3, reclaim-loop 5.
memcg-lru alone takes 40 minutes and 5.4 GB of memory. Among all experiments it runs an eighth of
that, for a minute. All take 11 to 15 minutes, and with --quick one or two. On busy cores, times are
meaningless; counts are the same.

Columns: `before` and `after` are medians with the change off and on, `default` with the preset
default, `change` is from before to after in percent, and `between` bounds it. docs/experiments has
a page per experiment, and docs/book/src/counters.md explains the verdicts.";

/// Runs the command.
///
/// # Errors
/// The experiment does not exist, or the simulator has a bug.
pub fn run(args: Args) -> Result<(), Failure> {
    for name in &args.names {
        if experiment::by_name(name).is_none() {
            return Err(Failure::usage(format_args!(
                "unknown experiment `{name}`; expected {}",
                experiment::names().join(", ")
            )));
        }
    }
    let world = environment(&args)?;
    let is_simulated = matches!(world, Environment::Sim);
    let order = |quick: bool| {
        let mut order = ExperimentRequest::new(world.clone(), quick);
        // As one of all, a reduced experiment has as many runs as the others.
        let usual = ExperimentRequest::new(world.clone(), args.quick).effort.runs;
        order.effort.runs = args.runs.unwrap_or(usual);
        order.effort.seed = args.seed;
        order
    };
    let mut output = Output::new(args.json);
    let named = |experiment: &Registration| args.names.iter().any(|name| name == experiment.name);
    if let Some(only_simulated) =
        EXPERIMENTS.iter().find(|&&one| named(one) && !one.in_real_world && !is_simulated)
    {
        return Err(Failure::usage(format_args!(
            "{} runs in the simulator only; leave --world out",
            only_simulated.name
        )));
    }
    let apps = args.apps.as_deref().map(Apps::read).transpose()?;
    if let Some(report) = &args.report {
        report.try_out(&args.apps)?;
    }
    if let Some(directory) = &args.figures {
        page::try_out_figures(directory)?;
    }
    let all = args.names.is_empty();
    let wanted = |experiment: &&&'static Registration| match all {
        true => is_simulated || experiment.in_real_world,
        false => named(experiment),
    };
    let mut done: Vec<Done> = Vec::new();
    for &of in EXPERIMENTS.iter().filter(wanted) {
        let small = of.quick_among_all && all && is_simulated && !args.quick;
        let quick = args.quick || small;
        let order = order(quick);
        let experiment = of.run(&order, &Bars::default())?;
        if !all {
            output.text(&text::text(&experiment))?;
        }
        done.push(Done {
            of,
            experiment,
            command: command(of, &args, &world, small.then_some(order.effort.runs)),
        });
    }
    if all || done.len() > 1 {
        output.text(&format!("{}{}", if all { "" } else { "\n" }, summary::text(&done)))?;
    }
    if let Some(apps) = &apps {
        output.text(&apps.text())?;
    }
    let document = document(&done, apps.as_ref());
    output.document(&document)?;
    let mut page = page::page(&done, &document);
    page.sections.extend(apps.as_ref().map(Apps::section));
    if let Some(report) = &args.report {
        report.write(&page, &mut output)?;
    }
    if let Some(directory) = &args.figures {
        let figures = page::write_figures(&page, directory)?;
        output.text(&format!("\n{figures} charts are in {}\n", directory.display()))?;
    }
    add_up(&done)
}

/// Where the experiments run.
fn environment(args: &Args) -> Result<Environment, Failure> {
    match (args.world, &args.directory) {
        (World::Sim, None) => Ok(Environment::Sim),
        (World::Sim, Some(_)) => {
            Err(Failure::usage("--directory needs --world real: the simulator makes no files"))
        }
        (World::Real, directory) => {
            Ok(Environment::Real { directory: directory.clone().unwrap_or_else(layout::default_directory) })
        }
    }
}

/// All results as one document.
fn document(done: &[Done], apps: Option<&Apps>) -> Value {
    let experiment = |done: &Done| {
        let mut document = json!(done.experiment);
        document["claims"] = json!(done.of.claims);
        document["command"] = done.command.clone().into();
        document
    };
    let mut document = json!({ "experiments": done.iter().map(experiment).collect::<Vec<_>>() });
    if let Some(apps) = apps {
        document["apps"] = apps.document().clone();
    }
    document
}

/// Fails if counters and events of an experiment disagree.
fn add_up(done: &[Done]) -> Result<(), Failure> {
    let failed = |done: &Done| {
        let checks = done.experiment.crosschecks.must().iter().filter(|check| !check.holds);
        checks.map(|check| format!("\n  {}: {}", done.of.name, check.name)).collect::<String>()
    };
    let failed: String = done.iter().map(failed).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::work(format_args!(
        "counts do not add up, so the figures are meaningless; this is a bug:{failed}"
    )))
}

/// The command that repeats this experiment alone. `small` is the number of runs of an experiment
/// that ran as with `--quick`.
fn command(of: &Registration, args: &Args, world: &Environment, small: Option<u32>) -> String {
    let mut command = format!("mglru reproduce {}", of.name);
    if let Some(runs) = args.runs.or(small) {
        command += &format!(" --runs {runs}");
    }
    if args.seed != 1 {
        command += &format!(" --seed {}", args.seed);
    }
    if matches!(world, Environment::Real { .. }) {
        command += " --world real";
    }
    command + if args.quick || small.is_some() { " --quick" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_lab::experiment::{Check, Crosschecks, Experiment};

    /// [book: published-experiments#cross-checks]: counts that do not add up are a bug.
    #[test]
    fn counts_that_do_not_add_up_are_a_failure_and_other_checks_are_not() {
        let done = |expected: bool, adds_up: bool| {
            let check = |name: &str, holds| Check { name: name.to_owned(), holds };
            let experiment = Experiment {
                name: "prefetch",
                world: "sim",
                workload: String::new(),
                runs: 1,
                quick: false,
                untimely: None,
                seconds: 0.0,
                rows: Vec::new(),
                checks: vec![check("faster", expected)],
                crosschecks: Crosschecks::Seen {
                    must: vec![check("isolated = reclaimed", adds_up)],
                    regime: Vec::new(),
                },
                shown: Vec::new(),
            };
            add_up(&[Done { of: EXPERIMENTS[0], experiment, command: String::new() }])
        };
        assert!(done(true, true).is_ok() && done(false, true).is_ok());
        let failure = done(true, false).unwrap_err();
        assert!(matches!(failure, Failure::Work(_)), "status 1");
        assert!(failure.text().contains("prefetch: isolated = reclaimed"), "{}", failure.text());
    }

    #[test]
    fn experiments_have_distinct_names_and_claims() {
        let mut seen = Vec::new();
        for experiment in EXPERIMENTS {
            assert!(!seen.contains(&experiment.name));
            assert!(!experiment.claims.is_empty(), "{}", experiment.name);
            seen.push(experiment.name);
        }
    }
}
