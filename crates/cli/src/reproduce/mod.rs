//! `mglru reproduce`: the published experiments, before against after, with the published figures beside ours.
//!
//! [`workingset`] says what is run; [`evidence`] what is measured, how it is summed up and when it counts as reproduced;
//! here both are put together and printed. A result that disagrees with the published one is no failure: the status is 0.

mod ablation;
mod evidence;
mod lru_lock;
mod memcg_lru;
mod real;
mod reclaim_loop;
mod simulated;
mod workingset;

use crate::error::Failure;
use crate::layout;
use crate::output::Output;
use evidence::Experiment;
use std::path::PathBuf;
use std::time::Instant;

/// Experiments by name.
const NAMES: [&str; 4] = ["workingset", "lru-lock", "memcg-lru", "reclaim-loop"];
/// Named in the design, and not there yet.
const LATER: [&str; 1] = ["prefetch"];

/// Has no real world yet.
const ONLY_SIMULATED: [&str; 1] = ["memcg-lru"];

/// Runs of each setting, unless they are told.
const RUNS_SIMULATED: u32 = 6;
const RUNS_REAL: u32 = 2;

/// Arguments of the mode.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments: workingset, lru-lock, memcg-lru, reclaim-loop (default: all there are)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Runs of each setting, each with a seed of its own; in the simulator, experiments that look at spread make at least
    /// 10, and lru-lock makes at least 12 [default: 6 in the simulator, 2 for real]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where: in the simulator (sim), or with the real cache on real files, smaller (real); lru-lock runs on real threads
    /// and without files in either
    #[arg(long, value_name = "sim|real", value_enum, default_value = "sim", hide_possible_values = true)]
    world: WorldName,
    /// Where files are made, with --world real [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Instead of the experiment: where the rework gains and loses, and which of its rules does it; of reclaim-loop, where the
    /// loop gains and loses
    #[arg(long)]
    ablate: bool,
    /// An eighth of the time and at most 2 runs: whether it works, not what comes out
    #[arg(long)]
    quick: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// The value of `--world`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WorldName {
    Sim,
    Real,
}

/// Where experiments run.
pub enum World {
    /// In the simulator.
    Sim,
    /// With the real cache.
    Real {
        /// Where files are made, and gone afterwards.
        directory: PathBuf,
    },
}

impl World {
    /// As `--world` has it.
    pub fn name(&self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Real { .. } => "real",
        }
    }
}

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Runs of each setting.
    pub runs: u32,
    /// Seed of the first of them.
    pub seed: u64,
    /// Time is divided by this.
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
    let world = match (args.world, args.directory) {
        (WorldName::Sim, None) => World::Sim,
        (WorldName::Sim, Some(_)) => {
            return Err(Failure::usage(
                "--directory: the simulator makes no files; it goes with --world real",
            ));
        }
        (WorldName::Real, directory) => {
            World::Real { directory: directory.unwrap_or_else(layout::default_directory) }
        }
    };
    if args.ablate && !(matches!(world, World::Sim) && args.runs.is_none()) {
        let reason =
            "--ablate runs in the simulator, each setting as often as it needs: leave --world and --runs out";
        return Err(Failure::usage(reason));
    }
    let runs = args.runs.unwrap_or(if matches!(world, World::Sim) { RUNS_SIMULATED } else { RUNS_REAL });
    let effort = Effort {
        runs: if args.quick { runs.min(2) } else { runs },
        seed: args.seed,
        shorter: if args.quick { 8 } else { 1 },
    };
    let mut output = Output::new(args.json);
    if args.ablate && args.names == ["reclaim-loop"] {
        let map = reclaim_loop::map::run(effort)?;
        output.text(&map.text())?;
        return output.document(&map.document());
    }
    if args.ablate {
        let ablation = ablation::run(effort)?;
        output.text(&ablation.text())?;
        return output.document(&ablation.document());
    }
    let real = matches!(world, World::Real { .. });
    let only_simulated = |name: &str| ONLY_SIMULATED.contains(&name);
    if let (true, Some(name)) = (real, args.names.iter().find(|name| only_simulated(name))) {
        return Err(Failure::usage(format_args!(
            "{name} --world real: it runs in the simulator only so far; leave --world out"
        )));
    }
    let wanted = |name: &&str| {
        let named = args.names.iter().any(|wanted| wanted == name);
        named || args.names.is_empty() && !(real && only_simulated(name))
    };
    let mut experiments = Vec::new();
    for name in NAMES.into_iter().filter(wanted) {
        let began = Instant::now();
        let mut experiment = match name {
            "lru-lock" => lru_lock::run(effort, args.quick)?,
            "memcg-lru" => memcg_lru::run(effort)?,
            "reclaim-loop" => reclaim_loop::run(effort, &world)?,
            _ => workingset::run(effort, &world)?,
        };
        experiment.seconds = began.elapsed().as_secs_f64();
        output.text(&experiment.text())?;
        experiments.push(experiment);
    }
    output.document(&Experiment::document(&experiments))
}
