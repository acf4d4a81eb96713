//! Runs scenarios, in the simulator or on real files.
//!
//! ```text
//! Scenario    the parsed file                 mglru_workload::scenario
//! Plan        checked against the core        plan.rs
//! ScenarioOutcome     results                         simulated.rs | real.rs
//! ```
//!
//! ```
//! use mglru_lab::run::{Overrides, Plan, World, run};
//! use mglru_workload::scenario::Scenario;
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let text = "
//!     [machine]
//!     memory = \"4MiB\"
//!     [[tenant]]
//!     path = \"web\"
//!     [[job]]
//!     tenant = \"web\"
//!     fio = \"[pages]\\nrw=read\\nsize=1m\"
//! ";
//! let scenario =
//!     Scenario::parse(text, "web.toml".as_ref(), None).map_err(mglru_lab::Error::usage)?;
//! let plan = Plan::new(scenario, World::Sim, &Overrides::default())?;
//! let outcome = run(&plan, None)?;
//! assert_eq!(outcome.tenants[1].misses, 256);
//! # Ok(())
//! # }
//! ```

pub mod events;
mod outcome;
mod plan;
mod real;
pub mod simulated;
pub mod sources;

pub use outcome::{Answered, Killed, Read, Refused, ScenarioOutcome, TenantRow};
pub(crate) use plan::SUMS;
pub use plan::{Overrides, Plan};

use crate::error::Error;
use crate::watch::{Unwatched, Watch};
use std::path::Path;

/// The environment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// The simulator, under a virtual clock.
    Sim,
    /// The cache on real files.
    Real,
}

impl World {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Real => "real",
        }
    }
}

/// Runs a plan. In a real run, `directory` holds the files of jobs in fio's language, which remain
/// there. With `None` these files are in the run's temporary folder, which also has all other files
/// and is removed at the end.
///
/// # Errors
/// If the machine or the cache cannot be built, a trace cannot be read, or a file cannot be
/// created.
pub fn run(plan: &Plan, directory: Option<&Path>) -> Result<ScenarioOutcome, Error> {
    run_watched(plan, directory, &Unwatched)
}

/// As [`run`]. A simulated run is a stage. It advances with the simulated time if all jobs have a
/// runtime, and notes the time and the accesses as its text.
///
/// # Errors
/// As [`run`], or if the work was cancelled in a simulated run.
pub fn run_watched(
    plan: &Plan,
    directory: Option<&Path>,
    watch: &dyn Watch,
) -> Result<ScenarioOutcome, Error> {
    match plan.world {
        World::Sim => simulated::run_watched(plan, watch),
        World::Real => real::run(plan, directory),
    }
}

/// Runs a plan in the simulator, and passes the events of its pages to `sink`.
///
/// # Errors
/// As [`run_watched`], or if the plan is for real files, which have no events.
pub fn run_recorded(
    plan: &Plan,
    sink: events::TenantSink<'_>,
    watch: &dyn Watch,
) -> Result<ScenarioOutcome, Error> {
    match plan.world {
        World::Sim => simulated::run_recorded(plan, sink, watch),
        World::Real => Err(Error::usage("only a simulated run has events: use the world sim")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Unit;
    use mglru_workload::scenario::Scenario;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Counts steps, and the times that some were done.
    #[derive(Default)]
    struct Steps {
        done: AtomicU64,
        of: AtomicU64,
        advances: AtomicU64,
    }

    impl Watch for Steps {
        fn begin(&self, _: &str, steps: u64, _: Unit) {
            self.of.store(steps, Relaxed);
        }

        fn advance(&self, steps: u64) {
            self.done.fetch_add(steps, Relaxed);
            self.advances.fetch_add(u64::from(steps > 0), Relaxed);
        }
    }

    fn progress(load: &str) -> (u64, u64) {
        let text = format!("[machine]\nmemory = \"1MiB\"\n[[job]]\n{load}\n");
        let scenario = Scenario::parse(&text, Path::new("a.toml"), None).unwrap();
        let plan = Plan::new(scenario, World::Sim, &Overrides::default()).unwrap();
        let steps = Steps::default();
        run_watched(&plan, None, &steps).unwrap();
        (1000 * steps.done.into_inner() / steps.of.into_inner(), steps.advances.into_inner())
    }

    #[test]
    fn a_simulated_run_advances_with_its_time() {
        let (permille, advances) =
            progress("load = \"ycsb:records=20000,cache=100k\"\nclients = 8\nruntime = \"2s\"");
        assert!((900..=1000).contains(&permille) && advances >= 10, "{permille} in {advances} advances");
        // The end of a job without a runtime is unknown.
        assert_eq!(progress("fio = \"[a]\\nrw=read\\nsize=64m\"").0, 0);
    }
}
