//! `mglru reproduce`: the published experiments, before against after, with the published figures
//! beside ours.
//!
//! `mglru_lab::experiment` runs them; here [`text`] and [`summary`] tell what came out, and
//! [`page`] shows it. A result that disagrees with the published one is no failure: the status
//! is 0. Counters that do not add up are: everything is shown, and the status is 1.

mod page;
mod summary;
mod text;

use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::Bars;
use mglru_lab::experiment::{self, EXPERIMENTS, Order, Registration, World};
use mglru_lab::layout;
use serde_json::json;
use std::path::PathBuf;
use summary::Done;

/// Arguments of the mode.
#[derive(clap::Args)]
#[command(after_help = TIMES)]
pub struct Args {
    /// Experiments: prefetch, workingset, lru-lock, memcg-lru, reclaim-loop (default: all, in one
    /// table)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Runs of each setting, each with a seed of its own; in the simulator, experiments that look
    /// at spread make at least 10, and lru-lock makes at least 12 [default: 6 in the simulator, 2
    /// for real]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where: in the simulator (sim), or with the real cache on real files, smaller (real);
    /// lru-lock runs on real threads and without files in either
    #[arg(long, value_name = "sim|real", value_enum, default_value = "sim", hide_possible_values = true)]
    world: WorldName,
    /// Where files are made, with --world real [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// An eighth of the time and 2 runs, if --runs does not say: whether it works, not what comes
    /// out
    #[arg(long)]
    quick: bool,
    /// Write one page with tables and figures, readable without a network
    #[arg(long, value_name = "FILE.html")]
    report: Option<ReportFile>,
    /// Write the figures of that page, each into an SVG file of its own
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

const TIMES: &str = "\
On two cores that nobody else uses, about: prefetch 1 minute, workingset 2, lru-lock 2, reclaim-loop 5.
memcg-lru takes 40 minutes and 5.4 GB of memory alone; among all it runs at an eighth, a minute.
All of them take about 11 minutes, with --quick under 3. Where others use the cores, times say
nothing, and counts are the same.";

/// The value of `--world`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WorldName {
    Sim,
    Real,
}

/// Runs the mode.
///
/// # Errors
/// There is no such experiment, or the simulator has a bug.
pub fn run(args: Args) -> Result<(), Failure> {
    for name in &args.names {
        if experiment::by_name(name).is_none() {
            return Err(Failure::usage(format_args!(
                "there is no experiment '{name}'; there is {}",
                experiment::names().join(", ")
            )));
        }
    }
    let world = match (args.world, &args.directory) {
        (WorldName::Sim, None) => World::Sim,
        (WorldName::Sim, Some(_)) => {
            return Err(Failure::usage(
                "--directory: the simulator makes no files; it goes with --world real",
            ));
        }
        (WorldName::Real, directory) => {
            World::Real { directory: directory.clone().unwrap_or_else(layout::default_directory) }
        }
    };
    let is_simulated = matches!(world, World::Sim);
    let order = |quick: bool| {
        let mut order = Order::new(world.clone(), quick);
        // Among all, one that is small has as many runs as the others.
        let usual = Order::new(world.clone(), args.quick).effort.runs;
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
            "{} --world real: it runs in the simulator only so far; leave --world out",
            only_simulated.name
        )));
    }
    if let Some(report) = &args.report {
        report.try_out([])?;
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
    let document = json!({"experiments": done.iter().map(|done| {
        let mut document = json!(done.experiment);
        document["claims"] = json!(done.of.claims);
        document["command"] = done.command.clone().into();
        document
    }).collect::<Vec<_>>()});
    output.document(&document)?;
    let page = page::page(&done, &document);
    if let Some(report) = &args.report {
        report.write(&page)?;
        output.text(&format!("\n{} shows it\n", report.path().display()))?;
    }
    if let Some(directory) = &args.figures {
        let figures = page::write_figures(&page, directory)?;
        output.text(&format!("\n{figures} figures are in {}\n", directory.display()))?;
    }
    add_up(&done)
}

/// That counters and events said the same, in all experiments.
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
        "counts do not add up, so the figures mean nothing; this is a bug:{failed}"
    )))
}

/// What to type to get the same, of this experiment alone. `small`: it was as with `--quick`, with
/// so many runs.
fn command(of: &Registration, args: &Args, world: &World, small: Option<u32>) -> String {
    let mut command = format!("mglru reproduce {}", of.name);
    if let Some(runs) = args.runs.or(small) {
        command += &format!(" --runs {runs}");
    }
    if args.seed != 1 {
        command += &format!(" --seed {}", args.seed);
    }
    if matches!(world, World::Real { .. }) {
        command += " --world real";
    }
    command + if args.quick || small.is_some() { " --quick" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_lab::experiment::{Check, Claim, Crosschecks, Experiment};

    /// [book: published-experiments#cross-checks]: what does not add up is a bug, and no result.
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
    fn names_are_those_that_the_help_lists_and_each_has_a_claim() {
        let mut seen = Vec::new();
        for experiment in EXPERIMENTS {
            assert!(!seen.contains(&experiment.name));
            assert!(!experiment.claims.is_empty(), "{}", experiment.name);
            // So that the one table, with six columns, has no line of more than 100.
            let long = |claim: &&Claim| experiment.name.len() + claim.words.chars().count() > 37;
            assert_eq!(
                experiment.claims.iter().find(long).map(|claim| claim.words),
                None,
                "too wide for the table"
            );
            seen.push(experiment.name);
        }
    }
}
