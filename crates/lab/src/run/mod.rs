//! A scenario, under the virtual clock or on real files.
//!
//! ```text
//! Scenario    what the file says             mglru_workload::scenario
//! Plan        what the core makes of it      plan.rs
//! Outcome     what happened                  simulated.rs | real.rs
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

mod outcome;
mod plan;
mod real;
pub mod simulated;
pub mod sources;

pub use outcome::{Answered, Killed, Outcome, Read, Refused, TenantRow};
pub use plan::{Overrides, Plan};

use crate::error::Error;
use std::path::Path;

/// Which world a scenario happens in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Under the virtual clock.
    Sim,
    /// On real files.
    Real,
}

impl World {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Real => "real",
        }
    }
}

/// Runs a plan in its world. `directory`: of a real run, where the files of jobs in fio's language
/// are, and stay; `None`: in a temporary folder, which has all that the run needs besides, and goes
/// with it.
///
/// # Errors
/// The machine or the cache cannot be built, a trace cannot be read, files cannot be made.
pub fn run(plan: &Plan, directory: Option<&Path>) -> Result<Outcome, Error> {
    match plan.world {
        World::Sim => simulated::run(plan),
        World::Real => real::run(plan, directory),
    }
}
