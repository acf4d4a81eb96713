//! Control files: the kernel's own text formats, read and written.
//!
//! ```text
//! a/b/memory.stat       the files of a memcg, by its path                 [`text`], [`write`]
//! memory.stat           those of the root, which has fewer
//! lru_gen, vmstat …     those of the system                               [`lru_gen`], [`vmstat`]
//! ```
//!
//! Whatever a kernel refuses is refused with the number of its error and a sentence. A value is
//! checked before anything is done. Writing that takes time is a value with a `step`, as reclaim is
//! ([`ControlWrite`]).
//!
//! Where we differ: there are no open files, so that what the kernel keeps per open file (the reset
//! of `memory.peak`) holds for everybody; `memory.pressure` has no `full` line and no triggers; an
//! empty value is an error, not 0.
//!
//! Source: [book: control-files] (Linux 7.2).
//!
//! # Locking
//!
//! None of its own. Whoever reads or writes holds a handle on the memcg.

mod error;
mod lru_gen;
mod text;
mod value;
mod vmstat;
mod write;

pub use error::{ControlError, ControlStep, Errno};
pub use write::ControlWrite;

use crate::memcg::MemcgId;
use crate::{Core, Time};

/// A control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Current,
    Peak,
    Min,
    Low,
    High,
    Max,
    Reclaim,
    Stat,
    NumaStat,
    Events,
    EventsLocal,
    Pressure,
    OomGroup,
    SwapCurrent,
    SwapPeak,
    SwapHigh,
    SwapMax,
    SwapEvents,
    Vmstat,
    LruGen,
    LruGenFull,
    Enabled,
    MinTtl,
}

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In every memcg but the root.
    BelowRoot,
    /// In every memcg.
    Everywhere,
    /// In the system.
    System,
}

#[derive(Clone, Copy, Debug)]
struct Description {
    name: &'static str,
    file: File,
    place: Place,
    /// It can be read, and written to.
    access: (bool, bool),
}

const fn description(name: &'static str, file: File, place: Place, access: (bool, bool)) -> Description {
    Description { name, file, place, access }
}

const READ: (bool, bool) = (true, false);
const WRITE: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

/// All of them, as they are listed.
const FILES: &[Description] = &[
    description("memory.current", File::Current, Place::BelowRoot, READ),
    description("memory.peak", File::Peak, Place::BelowRoot, BOTH),
    description("memory.min", File::Min, Place::BelowRoot, BOTH),
    description("memory.low", File::Low, Place::BelowRoot, BOTH),
    description("memory.high", File::High, Place::BelowRoot, BOTH),
    description("memory.max", File::Max, Place::BelowRoot, BOTH),
    description("memory.reclaim", File::Reclaim, Place::Everywhere, WRITE),
    description("memory.stat", File::Stat, Place::Everywhere, READ),
    description("memory.numa_stat", File::NumaStat, Place::Everywhere, READ),
    description("memory.events", File::Events, Place::BelowRoot, READ),
    description("memory.events.local", File::EventsLocal, Place::BelowRoot, READ),
    description("memory.pressure", File::Pressure, Place::Everywhere, BOTH),
    description("memory.oom.group", File::OomGroup, Place::BelowRoot, BOTH),
    description("memory.swap.current", File::SwapCurrent, Place::BelowRoot, READ),
    description("memory.swap.peak", File::SwapPeak, Place::BelowRoot, BOTH),
    description("memory.swap.high", File::SwapHigh, Place::BelowRoot, BOTH),
    description("memory.swap.max", File::SwapMax, Place::BelowRoot, BOTH),
    description("memory.swap.events", File::SwapEvents, Place::BelowRoot, READ),
    description("vmstat", File::Vmstat, Place::System, READ),
    description("lru_gen", File::LruGen, Place::System, BOTH),
    description("lru_gen_full", File::LruGenFull, Place::System, READ),
    description("lru_gen/enabled", File::Enabled, Place::System, BOTH),
    description("lru_gen/min_ttl_ms", File::MinTtl, Place::System, BOTH),
];

/// A file that was found, and of a memcg's, the memcg, on which there is a handle.
struct Found {
    description: Description,
    memcg: MemcgId,
}

impl Core {
    /// Finds a file by its path, and takes a handle on its memcg.
    fn find_control(&self, path: &str) -> Result<Found, ControlError> {
        let fail = |reason: String| ControlError::new(Errno::NoEntry, path, reason);
        let trimmed = path.trim_matches('/');
        let of_system = |known: &&Description| known.place == Place::System && known.name == trimmed;
        if let Some(&description) = FILES.iter().find(of_system) {
            self.memcgs.add_handle(MemcgId::ROOT);
            return Ok(Found { description, memcg: MemcgId::ROOT });
        }
        let (tenant, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        let of_memcg = |known: &&Description| known.place != Place::System && known.name == name;
        let Some(&description) = FILES.iter().find(of_memcg) else {
            return Err(fail(format!("there is no control file '{name}'")));
        };
        let memcg = self.memcgs.hold(tenant).map_err(|error| fail(error.to_string()))?;
        if memcg == MemcgId::ROOT && description.place == Place::BelowRoot {
            self.drop_handle(memcg);
            return Err(fail(format!("the root has no '{name}': name a tenant before it, with a slash")));
        }
        Ok(Found { description, memcg })
    }

    /// The text of a control file: of a memcg's, like `a/b/memory.stat`, of the root's, like
    /// `memory.stat`, or of the system's: `lru_gen`, `lru_gen_full`, `lru_gen/enabled`,
    /// `lru_gen/min_ttl_ms` or `vmstat`.
    ///
    /// # Errors
    /// There is no such file or memcg, or it cannot be read.
    pub fn read_control(&self, path: &str, now: Time) -> Result<String, ControlError> {
        let Found { description, memcg } = self.find_control(path)?;
        let text = if description.access.0 {
            self.control_text(description.file, memcg, now)
        } else {
            Err((Errno::Invalid, "it can only be written to".to_owned()))
        };
        self.drop_handle(memcg);
        text.map_err(|(errno, reason)| ControlError::new(errno, path, reason))
    }

    /// Writes a value to a control file, on behalf of a task on `cpu`: checks it, sets what can be
    /// set at once, and returns the rest of the work.
    ///
    /// # Errors
    /// There is no such file or memcg, it cannot be written to, or the value is none: then nothing
    /// was changed.
    pub fn write_control(&self, path: &str, value: &str, cpu: usize) -> Result<ControlWrite, ControlError> {
        let Found { description, memcg } = self.find_control(path)?;
        let work = if description.access.1 {
            self.begin_write(description.file, memcg, value, cpu)
        } else if description.file == File::Vmstat {
            // As a file of /proc answers.
            Err((Errno::Io, "it can only be read".to_owned()))
        } else {
            Err((Errno::Invalid, "it can only be read".to_owned()))
        };
        match work {
            Ok(work) => Ok(ControlWrite::new(path, memcg, cpu, work)),
            Err((errno, reason)) => {
                self.drop_handle(memcg);
                Err(ControlError::new(errno, path, reason))
            }
        }
    }

    /// What there is under the path of a memcg: its control files, then its children, each with a
    /// slash behind. Under `lru_gen/`, the files of that folder.
    ///
    /// # Errors
    /// There is no such memcg.
    pub fn list_control(&self, path: &str) -> Result<Vec<String>, ControlError> {
        let trimmed = path.trim_matches('/');
        let within: Vec<String> = FILES
            .iter()
            .filter_map(|known| known.name.strip_prefix(trimmed)?.strip_prefix('/'))
            .map(str::to_owned)
            .collect();
        if !within.is_empty() {
            return Ok(within);
        }
        let memcg = self
            .memcgs
            .find(trimmed)
            .map_err(|error| ControlError::new(Errno::NoEntry, path, error.to_string()))?;
        let is_root = memcg == MemcgId::ROOT;
        let here = |known: &&Description| match known.place {
            Place::BelowRoot => !is_root,
            Place::Everywhere => true,
            Place::System => is_root,
        };
        let files = FILES.iter().filter(here).map(|known| known.name.to_owned());
        let children = self.memcgs.children(memcg).into_iter().map(|name| format!("{name}/"));
        Ok(files.chain(children).collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
