//! `mglru reproduce`: the published experiments, before against after, with the published figures beside ours.
//!
//! [`workingset`] says what is run; [`evidence`] what is measured, how it is summed up and when it counts as reproduced;
//! here both are put together and printed. A result that disagrees with the published one is no failure: the status is 0.

mod evidence;
mod workingset;

use crate::error::Failure;
use crate::output::Output;
use evidence::Experiment;
use std::time::Instant;

/// Experiments by name.
const NAMES: [&str; 1] = ["workingset"];
/// Named in the design, and not there yet.
const LATER: [&str; 4] = ["prefetch", "lru-lock", "memcg-lru", "reclaim-loop"];

/// Arguments of the mode.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments: workingset (default: all there are)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Runs of each setting, each with a seed of its own; experiments that look at spread make at least 10
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where: only sim, the simulator, so far
    #[arg(long, value_name = "WORLD", default_value = "sim")]
    world: String,
    /// An eighth of the simulated time and at most 2 runs: whether it works, not what comes out
    #[arg(long)]
    quick: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Runs of each setting.
    pub runs: u32,
    /// Seed of the first of them.
    pub seed: u64,
    /// Simulated time is divided by this.
    pub shorter: u32,
}

/// Runs the mode.
///
/// # Errors
/// There is no such experiment, or the simulator has a bug.
pub fn run(args: Args) -> Result<(), Failure> {
    for name in &args.names {
        if LATER.contains(&name.as_str()) {
            return Err(Failure::usage(format_args!(
                "the experiment '{name}' is not implemented yet; there is {}",
                NAMES.join(", ")
            )));
        }
        if !NAMES.contains(&name.as_str()) {
            return Err(Failure::usage(format_args!(
                "there is no experiment '{name}'; there is {}",
                NAMES.join(", ")
            )));
        }
    }
    if args.world != "sim" {
        return Err(Failure::usage(format_args!(
            "--world {}: experiments run in the simulator (sim) only so far",
            args.world
        )));
    }
    let effort = Effort {
        runs: if args.quick { args.runs.min(2) } else { args.runs },
        seed: args.seed,
        shorter: if args.quick { 8 } else { 1 },
    };
    let mut output = Output::new(args.json);
    let began = Instant::now();
    let mut experiment = workingset::run(effort)?;
    experiment.seconds = began.elapsed().as_secs_f64();
    output.text(&experiment.text())?;
    output.document(&Experiment::document(&[experiment]))
}
