//! The published experiments, before against after, with the published values beside the measured
//! ones.
//!
//! Each experiment has a file that defines its runs, and a [`Registration`].
//! [`evidence`](Experiment) defines how values are summarised and when they count as reproduced. A
//! result that differs from the published one is not an error. Counters that do not add up
//! ([`Crosschecks`]) are a bug, and make all values meaningless.
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
//! A run takes a minute or more, or some seconds with `quick`. This one is much shorter, too short
//! to show anything:
//!
//! ```
//! # fn main() -> Result<(), mglru_lab::Error> {
//! use mglru_lab::Unwatched;
//! use mglru_lab::experiment::{ExperimentRequest, Environment, by_name};
//!
//! let workingset = by_name("workingset").expect("one of them");
//! let mut order = ExperimentRequest::new(Environment::Sim, true);
//! (order.effort.runs, order.effort.shorter) = (1, 100);
//! let experiment = workingset.run(&order, &Unwatched)?;
//! println!("{}: {}", experiment.name, experiment.verdict().word());
//! # assert_eq!(experiment.name, "workingset");
//! # Ok(())
//! # }
//! ```

pub(crate) mod crosscheck;
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
    Check, Column, Crosschecks, Experiment, MetricRow, PAIRS_MIN, PairChanges, Published, Shares, Shown,
    Values, Verdict,
};

pub(crate) use crate::run::simulated::SCAN_TIME;

/// Default runs per setting: in the simulator, with the real cache, and for a quick test.
const RUNS_SIMULATED: u32 = 6;
const RUNS_REAL: u32 = 2;
const RUNS_QUICK: u32 = 2;
/// Largest first seed: any number of runs has seeds.
const SEED_MAX: u64 = u64::MAX - u32::MAX as u64;

/// Static description of an experiment.
#[derive(Debug)]
pub struct Registration {
    /// Name of the experiment.
    pub name: &'static str,
    /// Published claims, each with the metric that shows it. They are the rows of the summary
    /// table.
    pub claims: &'static [Claim],
    /// Whether it runs in [`Environment::Real`]. An experiment that always measures the machine may
    /// run there unchanged.
    pub in_real_world: bool,
    /// Whether running all experiments uses the `quick` size, because the full one takes long. The
    /// number of runs stays the same.
    pub quick_among_all: bool,
    run: fn(&ExperimentRequest, &dyn Watch) -> Result<Experiment, Error>,
}

/// A published claim, and the metric that shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Claim {
    /// The claim in a few words.
    #[serde(rename = "claim")]
    pub words: &'static str,
    /// Stable name of the metric.
    pub metric: &'static str,
}

/// All experiments.
pub const EXPERIMENTS: [&Registration; 5] = [
    &prefetch::REGISTRATION,
    &workingset::REGISTRATION,
    &lru_lock::REGISTRATION,
    &memcg_lru::REGISTRATION,
    &reclaim_loop::REGISTRATION,
];

/// The experiment with this name.
pub fn by_name(name: &str) -> Option<&'static Registration> {
    EXPERIMENTS.into_iter().find(|experiment| experiment.name == name)
}

/// Names of all experiments.
pub fn names() -> [&'static str; 5] {
    EXPERIMENTS.map(|experiment| experiment.name)
}

/// Environment of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Environment {
    /// The simulator.
    Sim,
    /// The real cache.
    Real {
        /// Directory for temporary files.
        directory: PathBuf,
    },
}

impl Environment {
    /// `sim` or `real`.
    pub fn name(&self) -> &'static str {
        match self {
            Environment::Sim => "sim",
            Environment::Real { .. } => "real",
        }
    }
}

/// A request to run an experiment.
#[derive(Debug, Clone)]
pub struct ExperimentRequest {
    /// Number, seed and length of runs.
    pub effort: Effort,
    /// Whether to run only a quick test of the experiment.
    pub quick: bool,
    /// Environment.
    pub world: Environment,
}

impl ExperimentRequest {
    /// The default number of runs for this environment, from seed 1 on. `quick` makes 2 runs of an
    /// eighth of the time.
    pub fn new(world: Environment, quick: bool) -> ExperimentRequest {
        let runs = match (quick, &world) {
            (true, _) => RUNS_QUICK,
            (false, Environment::Sim) => RUNS_SIMULATED,
            (false, Environment::Real { .. }) => RUNS_REAL,
        };
        ExperimentRequest {
            effort: Effort { runs, seed: 1, shorter: if quick { 8 } else { 1 } },
            quick,
            world,
        }
    }
}

/// Number, seed and length of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Runs per setting, at least 1. Experiments that measure spread make more.
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
    /// Divisor of the run time, at least 1.
    pub shorter: u32,
}

impl Effort {
    /// Whether it only checks that everything works, in less time.
    pub fn is_quick(self) -> bool {
        self.shorter > 1
    }

    /// Runs per setting of an experiment that needs at least so many, unless it is quick.
    pub fn runs_at_least(self, least: u32) -> u32 {
        if self.is_quick() { self.runs } else { self.runs.max(least) }
    }
}

impl Registration {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it does not run in that environment, the seed is among the last 2^32 or files cannot be
    /// created, or of a bug in the simulator.
    pub fn run(&self, order: &ExperimentRequest, watch: &dyn Watch) -> Result<Experiment, Error> {
        if !self.in_real_world && order.world != Environment::Sim {
            return Err(Error::usage(format_args!("{} runs in the simulator only", self.name)));
        }
        // Each run has the next seed.
        if order.effort.seed > SEED_MAX {
            let seed = order.effort.seed;
            return Err(Error::usage(format_args!("seed {seed} is too large; expected at most {SEED_MAX}")));
        }
        let began = Instant::now();
        let experiment = (self.run)(order, watch)?;
        Ok(Experiment { seconds: began.elapsed().as_secs_f64(), ..experiment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its runs had no seeds, and their medians ended in a panic.
    #[test]
    fn the_last_seeds_are_refused() {
        let mut order = ExperimentRequest::new(Environment::Sim, true);
        order.effort.seed = SEED_MAX + 1;
        for experiment in EXPERIMENTS {
            let error = experiment.run(&order, &crate::Unwatched).unwrap_err();
            assert!(error.text().contains("is too large"), "{error}");
        }
    }
}
