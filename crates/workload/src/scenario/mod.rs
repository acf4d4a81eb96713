//! Scenarios: a machine, a tree of tenants, the jobs in them, actions over time, and the values to
//! print.
//!
//! ```text
//! TOML ── table.rs ──► values with places ── read.rs ──► Scenario
//!                                              └─ tree.rs: the tenants that exist at each time
//! ```
//!
//! Errors name the file, line and column. Names that only the core knows (mechanisms, control files
//! and their values) stay text with a place. A caller that rejects such a name reports it with
//! [`Scenario::error`].
//!
//! A tenant that is removed and created again is another tenant with the same path.

mod error;
mod read;
mod table;
mod tree;

#[cfg(test)]
mod tests;

pub use error::{Error, Place};

use crate::fio;
use crate::load::Load;
use crate::text_file;
use crate::trace::OpenOptions;
use mglru_core::Limits;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Upper limit of memory and of swap, 1 TiB. The simulator needs tens of bytes per page.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// Upper limit of every time, 1000 days. Sums of several such times do not overflow.
pub const TIME_MAX: Duration = Duration::from_secs(1000 * 24 * 3600);

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Place of the value in the file.
    pub place: Place,
}

/// A parsed and checked scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Path of the scenario file.
    pub path: PathBuf,
    /// The purpose of the scenario, in the user's words.
    pub description: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// All tenants of the whole run in order of creation: each parent precedes its children.
    pub tenants: Vec<Tenant>,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The actions, in order of time.
    pub actions: Vec<Action>,
    /// The values to print.
    pub print: Print,
    /// Job files that the jobs in fio's language include.
    pub included: Vec<PathBuf>,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Size of memory in bytes.
    pub memory_bytes: u64,
    /// Name of a preset of mechanisms.
    pub preset: Option<Located<String>>,
    /// Mechanisms to switch on.
    pub with: Vec<Located<String>>,
    /// Mechanisms to switch off.
    pub without: Vec<Located<String>>,
    /// Name of the reclaim policy.
    pub lru: Option<Located<String>>,
    /// Swap space, if there is any.
    pub swap: Option<Swap>,
    /// Balance between anonymous and file pages in reclaim: 0 to 200; 201 reclaims anonymous pages
    /// only.
    pub swappiness: Option<u8>,
    /// Name of the policy for allocations that find no memory.
    pub oom_policy: Option<Located<String>>,
    /// The device that holds the files.
    pub device: Device,
    /// Number of processors of the simulated machine.
    pub cpus: Option<u32>,
    /// Where the simulated machine's free pages are.
    pub allocator: Allocator,
    /// The largest readahead window of the simulated machine, in pages; 0: off.
    pub readahead_pages: u32,
    /// The aligned window that a mapped miss maps on the simulated machine, in pages: a power of
    /// two, at most 512; 0: off.
    pub fault_around_pages: u32,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Swap space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// Size in bytes.
    pub bytes: u64,
    /// Whether swap is on a disk. Otherwise it is compressed memory.
    pub on_disk: bool,
}

/// The page allocator of the simulated machine, which decides when background reclaim runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Allocator {
    /// All free pages together.
    #[default]
    Plain,
    /// The kernel's on a PC: zones, and lists of free pages per processor.
    Kernel,
}

/// A storage device of the simulated machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// An NVMe disk of a server.
    #[default]
    Nvme,
    /// A disk that writes 30 MB per second.
    Slow,
    /// A device that takes no time.
    Ideal,
}

/// A tenant, from its creation to its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Path of the tenant, for example `a/b`.
    pub path: String,
    /// Memory limits and protections.
    pub limits: Limits,
    /// Time of creation.
    pub from: Duration,
    /// Time of removal; `None` if it lives to the end of the run.
    pub until: Option<Duration>,
    /// Its place in the file.
    pub place: Place,
}

/// A job: work done in a tenant.
#[derive(Debug, Clone)]
pub struct Job {
    /// The name by which actions refer to the job.
    pub name: Option<String>,
    /// Index of the tenant in which the job begins; `None` for the root. Actions can move the job.
    pub tenant: Option<usize>,
    /// Start time.
    pub start: Duration,
    /// The work that the job does.
    pub work: Work,
    /// Its place in the file.
    pub place: Place,
}

/// The work of a job.
#[derive(Debug, Clone)]
pub enum Work {
    /// Instances of jobs in fio's language.
    Fio(Vec<fio::Job>),
    /// A recorded trace, on files of its own.
    Trace {
        /// Path of the trace, relative to the scenario's folder.
        path: PathBuf,
        /// How to open it.
        open: OpenOptions,
        /// Time limit; `None` to run to the end of the trace.
        runtime: Option<Duration>,
    },
    /// A built-in load.
    Load {
        /// The load and its parameters.
        load: Load,
        /// Number of concurrent clients.
        clients: u32,
        /// Duration.
        runtime: Duration,
    },
}

/// A command of the administrator at a given time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Time since the start of the run.
    pub at: Duration,
    /// The command, with indices of jobs and tenants.
    pub command: Command,
    /// Its place in the file.
    pub place: Place,
}

/// A command of the administrator. Front ends, the cache and the simulator name jobs and tenants
/// differently: by name, by index, or by a range of indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<Job = usize, Tenant = usize> {
    /// Write a value to a control file.
    Write {
        /// Path of the control file, for example `a/b/memory.max`.
        file: String,
        /// The value, as the kernel accepts it.
        value: String,
    },
    /// Create a tenant.
    Create(Tenant),
    /// End the jobs of a tenant, and remove the tenant.
    Remove(Tenant),
    /// Move a job to another tenant, which is charged for pages that the job brings in from then
    /// on. Earlier pages stay charged, as in cgroup v2.
    Move {
        /// The job.
        job: Job,
        /// The tenant; `None` for the root.
        to: Option<Tenant>,
    },
}

impl<Job, Tenant> Command<Job, Tenant> {
    /// The same command with other names of jobs and tenants.
    pub fn map<J, T>(&self, job: impl FnOnce(&Job) -> J, tenant: impl FnOnce(&Tenant) -> T) -> Command<J, T> {
        match self {
            Command::Write { file, value } => Command::Write { file: file.clone(), value: value.clone() },
            Command::Create(of) => Command::Create(tenant(of)),
            Command::Remove(of) => Command::Remove(tenant(of)),
            Command::Move { job: moved, to } => {
                Command::Move { job: job(moved), to: to.as_ref().map(tenant) }
            }
        }
    }
}

/// The values to print. They are always printed once at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Print {
    /// Interval of additional readings during the run.
    pub every: Option<Duration>,
    /// Control files.
    pub files: Vec<Located<String>>,
    /// Counters to print for each tenant, by the kernel's names.
    pub counters: Vec<Located<String>>,
}

impl Scenario {
    /// Reads a scenario from a file. Traces and included files are looked up relative to it. `seed`
    /// replaces the seed of the machine.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn read(path: &Path, seed: Option<u64>) -> Result<Scenario, Error> {
        Scenario::parse(&Scenario::text(path)?, path, seed)
    }

    /// The text of a scenario file, for [`Self::parse`].
    ///
    /// # Errors
    /// The file cannot be read, is longer than 1 MiB, or is not UTF-8.
    pub fn text(path: &Path) -> Result<String, Error> {
        text_file::read(path, text_file::BYTES_MAX).map_err(|error| {
            let reason = format!("{error}; name a scenario (docs/scenarios.md describes the format)");
            Error::new(path, None, reason)
        })
    }

    /// Parses the text of the scenario at `path`.
    ///
    /// # Errors
    /// The first error in the text.
    pub fn parse(text: &str, path: &Path, seed: Option<u64>) -> Result<Scenario, Error> {
        read::scenario(text, path, seed)
    }

    /// The tenants that exist from the start. They come first in [`Scenario::tenants`].
    pub fn first_tenants(&self) -> &[Tenant] {
        let later = self.actions.iter().filter(|action| matches!(action.command, Command::Create(_))).count();
        &self.tenants[..self.tenants.len() - later]
    }

    /// The files that a run of this scenario reads: the scenario itself, job files that it
    /// includes, and traces.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let traces = self.jobs.iter().filter_map(|job| match &job.work {
            Work::Trace { path, .. } => Some(path.as_path()),
            Work::Fio(_) | Work::Load { .. } => None,
        });
        [self.path.as_path()].into_iter().chain(self.included.iter().map(PathBuf::as_path)).chain(traces)
    }

    /// Formats a place with the scenario's file name, as error messages show it.
    pub fn place(&self, Place { line, column }: Place) -> String {
        format!("{}:{line}:{column}", self.path.display())
    }

    /// An error at a place of this scenario.
    pub fn error(&self, place: Place, reason: impl Into<String>) -> Error {
        Error::new(&self.path, Some(place), reason)
    }

    /// File name of the scenario.
    pub fn name(&self) -> String {
        self.path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }
}

/// Splits the path of a control file into tenant and file name: `a/b/memory.max` is `memory.max` of
/// `a/b`. System-wide files have an empty tenant.
pub fn split_control(path: &str) -> (&str, &str) {
    if path.starts_with("lru_gen/") { ("", path) } else { path.rsplit_once('/').unwrap_or(("", path)) }
}
