//! The published experiments, before against after, with the published figures beside ours.
//!
//! Each experiment has a file that says what is run, and a [`Registration`] here;
//! [`evidence`](Experiment) says what is measured, how it is summed up and when it counts as
//! reproduced. A result that disagrees with the published one is no failure. Counters that do not
//! add up ([`Crosschecks`]) are a bug: no figure means anything then.
//!
//! # Example
//!
//! ```
//! use mglru_lab::experiment::{by_name, names};
//!
//! assert_eq!(names(), ["prefetch", "workingset", "lru-lock", "memcg-lru", "reclaim-loop"]);
//! let workingset = by_name("workingset").expect("one of them");
//! assert_eq!(workingset.claims[0].metric, "tpcc_refault_file");
//! ```
//!
//! To run one takes a minute or more, and with `quick` some seconds:
//!
//! ```no_run
//! # fn main() -> Result<(), mglru_lab::Error> {
//! use mglru_lab::Unwatched;
//! use mglru_lab::experiment::{Order, World, by_name};
//!
//! let workingset = by_name("workingset").expect("one of them");
//! let experiment = workingset.run(&Order::new(World::Sim, true), &Unwatched)?;
//! println!("{}: {}", experiment.name, experiment.verdict().word());
//! # Ok(())
//! # }
//! ```

mod crosscheck;
mod evidence;
mod lru_lock;
mod memcg_lru;
mod prefetch;
mod real;
mod reclaim_loop;
mod simulated;
mod workingset;

use crate::{Error, Watch};
use std::path::PathBuf;
use std::time::Instant;

pub use evidence::{
    Check, Crosschecks, Experiment, PAIRS_MIN, PairChanges, Published, Row, Shares, Shown, Values, Verdict,
};

pub(crate) use crate::run::simulated::SCAN_TIME;

/// Runs of each setting, unless they are told: in the simulator, with the real cache, and to see
/// whether it works.
const RUNS_SIMULATED: u32 = 6;
const RUNS_REAL: u32 = 2;
const RUNS_QUICK: u32 = 2;

/// What is known of an experiment beforehand.
#[derive(Debug)]
pub struct Registration {
    /// Its name.
    pub name: &'static str,
    /// What was published, each with the metric that shows it: the lines of the one table.
    pub claims: &'static [Claim],
    /// It also runs in [`World::Real`], if only as it does anyhow.
    pub in_real_world: bool,
    /// Where all experiments are run it is as small as with `quick`, as it takes long; with as many
    /// runs as usual.
    pub quick_among_all: bool,
    run: fn(&Order, &dyn Watch) -> Result<Experiment, Error>,
}

/// Something that a publication says, and the metric that shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Claim {
    /// What it says, in a few words.
    #[serde(rename = "claim")]
    pub words: &'static str,
    /// The stable name of the metric.
    pub metric: &'static str,
}

/// All of them.
pub const EXPERIMENTS: [&Registration; 5] = [
    &prefetch::REGISTRATION,
    &workingset::REGISTRATION,
    &lru_lock::REGISTRATION,
    &memcg_lru::REGISTRATION,
    &reclaim_loop::REGISTRATION,
];

/// The experiment of that name.
pub fn by_name(name: &str) -> Option<&'static Registration> {
    EXPERIMENTS.into_iter().find(|experiment| experiment.name == name)
}

/// Names of all experiments.
pub fn names() -> [&'static str; 5] {
    EXPERIMENTS.map(|experiment| experiment.name)
}

/// Where experiments run.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// `sim` or `real`.
    pub fn name(&self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Real { .. } => "real",
        }
    }
}

/// What an experiment is told.
#[derive(Debug, Clone)]
pub struct Order {
    /// How much is run.
    pub effort: Effort,
    /// Only whether it works.
    pub quick: bool,
    /// Where.
    pub world: World,
}

impl Order {
    /// As many runs as are usual there, from seed 1 on. `quick`: 2 runs of an eighth of the time.
    pub fn new(world: World, quick: bool) -> Order {
        let runs = match (quick, &world) {
            (true, _) => RUNS_QUICK,
            (false, World::Sim) => RUNS_SIMULATED,
            (false, World::Real { .. }) => RUNS_REAL,
        };
        Order { effort: Effort { runs, seed: 1, shorter: if quick { 8 } else { 1 } }, quick, world }
    }
}

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Runs of each setting, at least 1. Experiments that look at spread make more.
    pub runs: u32,
    /// Seed of the first of them.
    pub seed: u64,
    /// Time is divided by this, at least 1.
    pub shorter: u32,
}

impl Registration {
    /// Runs it.
    ///
    /// # Errors
    /// It does not run in that world, files cannot be made, or there is a bug in the simulator.
    pub fn run(&self, order: &Order, watch: &dyn Watch) -> Result<Experiment, Error> {
        if !self.in_real_world && order.world != World::Sim {
            return Err(Error::usage(format_args!("{} runs in the simulator only", self.name)));
        }
        let began = Instant::now();
        let experiment = (self.run)(order, watch)?;
        Ok(Experiment { seconds: began.elapsed().as_secs_f64(), ..experiment })
    }
}
