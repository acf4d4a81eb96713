//! Control files: read and written in the kernel's own text formats.
//!
//! ```text
//! a/b/memory.stat       the files of a memcg, by its path                 [`text`], [`write`]
//! memory.stat           the files of the root, which has fewer
//! lru_gen, vmstat …     the files of the system                           [`lru_gen`], [`vmstat`]
//! ```
//!
//! A write that the kernel refuses fails with the kernel's error number and a sentence. Values are
//! checked before anything changes. A write that takes time is a value with a `step`
//! ([`ControlWrite`]), as reclaim is.
//!
//! Differences from the kernel: there are no open files, so that the reset of `memory.peak`, which
//! the kernel keeps per open file, holds for all readers; `memory.pressure` has no `full` line and
//! no triggers; an empty value is an error instead of 0.
//!
//! Source: [book: control-files] (Linux 7.2).
//!
//! # Locking
//!
//! Takes no lock of its own. Reads and writes hold a handle on the memcg.

mod error;
mod file;
mod lru_gen;
mod text;
mod value;
mod vmstat;
mod write;

pub use error::{ControlError, ControlStep, Errno};
pub use write::ControlWrite;

use crate::memcg::MemcgId;
use crate::{Core, Time};
use file::{Description, FILES, File, Place};

/// A file found by path. For a file of a memcg, it holds a handle on the memcg.
struct Found {
    description: Description,
    memcg: MemcgId,
}

impl Core {
    /// The text of a control file: of a memcg, like `a/b/memory.stat`; of the root, like
    /// `memory.stat`; or of the system: `lru_gen`, `lru_gen_full`, `lru_gen/enabled`,
    /// `lru_gen/min_ttl_ms` or `vmstat`.
    ///
    /// # Errors
    /// The file or memcg does not exist, or the file cannot be read.
    pub fn read_control(&self, path: &str, now: Time) -> Result<String, ControlError> {
        let Found { description, memcg } = find(self, path)?;
        self.settle_index();
        let text = if description.access.0 {
            text::read(self, description.file, memcg, now)
        } else {
            Err((Errno::Invalid, "it can only be written to".to_owned()))
        };
        self.drop_handle(memcg);
        text.map_err(|(errno, reason)| ControlError::new(errno, path, reason))
    }

    /// Writes a value to a control file for a task on `cpu`: checks it, sets what can be set at
    /// once, and returns the rest of the work.
    ///
    /// # Errors
    /// The file or memcg does not exist, the file cannot be written, or the value is invalid.
    /// Nothing was changed.
    pub fn write_control(&self, path: &str, value: &str, cpu: usize) -> Result<ControlWrite, ControlError> {
        let Found { description, memcg } = find(self, path)?;
        let work = if description.access.1 {
            write::begin(self, description.file, memcg, value, cpu)
        } else if description.file == File::Vmstat {
            // The error that files of /proc return.
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

    /// Lists the directory of a memcg: its control files, then its children, each with a trailing
    /// slash. Under `lru_gen/`, the files of that directory.
    ///
    /// # Errors
    /// The memcg does not exist.
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

/// Finds a file by its path and takes a handle on its memcg.
fn find(core: &Core, path: &str) -> Result<Found, ControlError> {
    let fail = |reason: String| ControlError::new(Errno::NoEntry, path, reason);
    let trimmed = path.trim_matches('/');
    let of_system = |known: &&Description| known.place == Place::System && known.name == trimmed;
    if let Some(&description) = FILES.iter().find(of_system) {
        core.memcgs.add_handle(MemcgId::ROOT);
        return Ok(Found { description, memcg: MemcgId::ROOT });
    }
    let (tenant, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let of_memcg = |known: &&Description| known.place != Place::System && known.name == name;
    let Some(&description) = FILES.iter().find(of_memcg) else {
        return Err(fail(format!("there is no control file '{name}'")));
    };
    let memcg = core.memcgs.hold(tenant).map_err(|error| fail(error.to_string()))?;
    if memcg == MemcgId::ROOT && description.place == Place::BelowRoot {
        core.drop_handle(memcg);
        return Err(fail(format!("the root has no '{name}': name a tenant before it, with a slash")));
    }
    Ok(Found { description, memcg })
}

#[cfg(all(test, not(loom)))]
mod tests;
