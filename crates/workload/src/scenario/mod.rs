//! Scenarios: a machine, tenants in a tree, who does what in them, what happens when, and what is
//! to be seen of it.
//!
//! ```text
//! TOML ── table.rs ──► values with places ── read.rs ──► Scenario
//!                                              └─ tree.rs: who is there at which time
//! ```
//!
//! What is wrong is told with file, line and column. What only the core knows (names of mechanisms,
//! control files and their values) stays text with its place, and [`Scenario::error`] words what a
//! host finds wrong with it.
//!
//! A tenant that is removed and made again is another tenant of the same path.

mod error;
mod read;
mod table;
mod tree;

#[cfg(test)]
mod tests;

pub use error::{Error, Place};

use crate::fio;
use crate::load::Load;
use mglru_core::Limits;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most memory, and most swap: where they are simulated, a page costs tens of bytes.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// The longest of all times, far beyond all experiments: no sum of some of them overflows.
pub const TIME_MAX: Duration = Duration::from_secs(1000 * 24 * 3600);

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// It.
    pub value: T,
    /// Where.
    pub place: Place,
}

/// A scenario, understood.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file.
    pub path: PathBuf,
    /// What it shows, in the user's words.
    pub description: Option<String>,
    /// What there is.
    pub machine: Machine,
    /// All that there will be, in the order in which they are made: parents before their children.
    pub tenants: Vec<Tenant>,
    /// Who does something.
    pub jobs: Vec<Job>,
    /// What happens when, in the order of time.
    pub actions: Vec<Action>,
    /// What is to be seen.
    pub print: Print,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The name of a set of mechanisms.
    pub preset: Option<Located<String>>,
    /// Mechanisms to turn on.
    pub with: Vec<Located<String>>,
    /// Mechanisms to turn off.
    pub without: Vec<Located<String>>,
    /// The name of the policy.
    pub lru: Option<Located<String>>,
    /// Where anonymous pages go.
    pub swap: Option<Swap>,
    /// How willing reclaim is to take them: 0 to 200, 201 for them only.
    pub swappiness: Option<u8>,
    /// The name of what is done where no page can be had.
    pub oom_policy: Option<Located<String>>,
    /// The device that files are on.
    pub device: Device,
    /// Processors, of the simulated machine.
    pub cpus: Option<u32>,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// Swap space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// How much of it there is.
    pub bytes: u64,
    /// On a disk, or in compressed memory.
    pub on_disk: bool,
}

/// A device, of the simulated machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// An NVMe disk of a server.
    #[default]
    Nvme,
    /// A disk that writes 30 MB per second.
    Slow,
    /// Everything at once.
    Ideal,
}

/// A tenant, for as long as it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Like `a/b`.
    pub path: String,
    /// What it may have.
    pub limits: Limits,
    /// Since when it is there.
    pub from: Duration,
    /// When it is removed.
    pub until: Option<Duration>,
    /// Where it is written down.
    pub place: Place,
}

/// Somebody who does something.
#[derive(Debug, Clone)]
pub struct Job {
    /// What actions call it.
    pub name: Option<String>,
    /// The number of the tenant, in which it is from its beginning on, unless it is moved; `None`:
    /// in none, which is the root.
    pub tenant: Option<usize>,
    /// When it begins.
    pub start: Duration,
    /// What it does.
    pub work: Work,
    /// Where it is written down.
    pub place: Place,
}

/// What a job does.
#[derive(Debug, Clone)]
pub enum Work {
    /// The instances of jobs in fio's language.
    Fio(Vec<fio::Job>),
    /// A recorded trace, on files of its own.
    Trace {
        /// The file, found from the scenario's folder.
        path: PathBuf,
        /// How long at most; `None`: to its end.
        runtime: Option<Duration>,
    },
    /// One of the project's loads.
    Load {
        /// It.
        load: Load,
        /// At once.
        clients: u32,
        /// How long.
        runtime: Duration,
    },
}

/// Something that happens at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// When, from the start.
    pub at: Duration,
    /// What.
    pub what: What,
    /// Where it is written down.
    pub place: Place,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A value is written to a control file.
    Write {
        /// Like `a/b/memory.max`.
        file: String,
        /// As to the kernel.
        value: String,
    },
    /// The tenant of this number is made.
    Create(usize),
    /// The jobs of the tenant of this number end, and it is removed.
    Remove(usize),
    /// A job goes on in another tenant.
    Move {
        /// Its number.
        job: usize,
        /// That of the tenant; `None`: the root.
        to: Option<usize>,
    },
}

/// What is to be seen, of all tenants and at the end in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Print {
    /// How often files are read before.
    pub every: Option<Duration>,
    /// Control files.
    pub files: Vec<Located<String>>,
    /// Counters of each tenant, by the kernel's names.
    pub counters: Vec<Located<String>>,
}

impl Scenario {
    /// Reads a scenario from a file. Traces and included files are looked for beside it. `seed`:
    /// instead of the machine's.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read(path: &Path, seed: Option<u64>) -> Result<Scenario, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let reason = format!("{error}; name a scenario, which docs/scenarios.md tells how to write");
            Error::new(path, None, reason)
        })?;
        Scenario::parse(&text, path, seed)
    }

    /// Understands the text of a scenario that is at `path`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, path: &Path, seed: Option<u64>) -> Result<Scenario, Error> {
        read::scenario(text, path, seed)
    }

    /// The tenants that are there from the start: the first of all.
    pub fn first_tenants(&self) -> &[Tenant] {
        let later = self.actions.iter().filter(|action| matches!(action.what, What::Create(_))).count();
        &self.tenants[..self.tenants.len() - later]
    }

    /// A place in it, with its file, as errors name it.
    pub fn place(&self, Place { line, column }: Place) -> String {
        format!("{}:{line}:{column}", self.path.display())
    }

    /// What is wrong with a value of it.
    pub fn error(&self, place: Place, reason: impl Into<String>) -> Error {
        Error::new(&self.path, Some(place), reason)
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        self.path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }
}

/// The tenant and the name of a control file: `a/b/memory.max` is `memory.max` of `a/b`. Files of
/// the system have no tenant.
pub fn split_control(path: &str) -> (&str, &str) {
    if path.starts_with("lru_gen/") { ("", path) } else { path.rsplit_once('/').unwrap_or(("", path)) }
}
