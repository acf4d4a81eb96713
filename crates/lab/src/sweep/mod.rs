//! Sweeps: a grid of traces, policies, memory sizes and seeds, with the rows in Parquet files.
//!
//! ```text
//! GridFile   TOML or JSON                                         file.rs
//! Sweep      numbered units, one replay each; ranges of them
//! Folder     a Parquet file per range: what is there is done      folder.rs
//!            its files, and which of them count                   part.rs
//! run        ranges on the threads of this machine                run.rs
//! Remote     reads traces at URLs, for programs that can          remote.rs
//! ```
//!
//! The unit numbers, the ranges and all columns but `seconds` follow from the grid. So a sweep that
//! was interrupted goes on with the ranges that have no file, and threads or machines may work on
//! different ranges in any order.
//!
//! ```
//! use mglru_lab::{Unwatched, sweep::{Folder, GridFile, run}};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let folder = tempfile::tempdir().expect("a temporary directory");
//! let text: String = (0..2000).map(|access| format!("{}\n", access % 100)).collect();
//! std::fs::write(folder.path().join("loop.plain"), text).expect("a file");
//! let grid = "traces = ['loop.plain']\npolicies = ['default', 'lru']\nmemory = ['10%', '100%']";
//! let sweep = GridFile::parse(grid)?.sweep(folder.path())?;
//! let rows = Folder::open(&folder.path().join("rows"), &sweep)?;
//! assert_eq!(run(&sweep, &rows, 2, &Unwatched)?.done_units, 4);
//! assert_eq!(run(&sweep, &rows, 2, &Unwatched)?.done_units, 0, "all of them are there");
//! # Ok(())
//! # }
//! ```

mod file;
mod folder;
mod part;
mod remote;
mod run;
#[cfg(test)]
mod tests;

pub use file::{GridFile, SweepTrace};
pub use folder::Folder;
pub use part::{contained_parts, joined_parts, part_errors, part_name, part_units};
pub use remote::Remote;
pub use run::{Report, run};

use remote::NoRemote;

use crate::columns::{Columns, Values};
use crate::error::Error;
use crate::memory::Room;
use crate::pipe;
use crate::replay::grid::{Cell, Done, Grid, Line, line_columns};
use crate::trace_file::{Loading, TraceFile, own_sidecar};
use crate::watch::Watch;
use mglru_workload::text_file;
use mglru_workload::trace;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Largest number of units. More would take years, and point to a mistake in the grid.
pub const UNITS_MAX: u64 = 10_000_000;
/// Longest grid in bytes. A device such as `/dev/zero` never ends.
const GRID_BYTES_MAX: u64 = 16 << 20;
/// Number of ranges that a grid is cut into at least, if it has as many units.
const RANGES: u64 = 256;
/// Units of a range at most. They are lost if the machine is.
const RANGE_UNITS_MAX: u64 = 64;
/// Traces up to this length are kept decoded: 1 GiB.
const DECODED_RECORDS_MAX: usize = 64 << 20;

/// A sweep that was checked.
#[derive(Debug, Clone)]
pub struct Sweep {
    grid: Grid,
    traces: Vec<SweepTrace>,
    units_per_trace: u64,
    remote: Arc<dyn Remote>,
}

/// Result of a unit.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Number of the unit.
    pub number: u64,
    cell: Cell,
    /// The row, or the error of the replay.
    pub result: Result<Done, String>,
}

impl Sweep {
    /// The sweep of a grid over these traces.
    ///
    /// # Errors
    /// If the grid has an empty axis or too many units.
    pub fn new(grid: Grid, traces: Vec<SweepTrace>) -> Result<Sweep, Error> {
        if traces.is_empty() {
            return Err(Error::usage("no traces: give at least one"));
        }
        grid.check()?;
        let units = grid.count(traces.len());
        if units > UNITS_MAX {
            let [policies, sizes, seeds] = [grid.policies.len(), grid.sizes.len(), grid.seeds.len()];
            return Err(Error::usage(format_args!(
                "the grid has {units} units ({} traces × {policies} policies × {sizes} sizes × {seeds} seeds), more \
                 than {UNITS_MAX}; make several sweeps of it",
                traces.len()
            )));
        }
        Ok(Sweep { units_per_trace: grid.count(1), grid, traces, remote: Arc::new(NoRemote) })
    }

    /// The sweep with a reader for traces at URLs, which are refused without one.
    pub fn with_remote(self, remote: Arc<dyn Remote>) -> Sweep {
        Sweep { remote, ..self }
    }

    /// Reads a grid in TOML, of at most 16 MiB.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Sweep, Error> {
        let text = text_file::read(path, GRID_BYTES_MAX);
        Sweep::parse(&text.map_err(|error| Error::work(error).at(&path.display().to_string()))?, path)
    }

    /// The sweep of a grid in TOML that was read from `path` already. Paths in it are relative to
    /// the folder of that.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(text: &str, path: &Path) -> Result<Sweep, Error> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let sweep = GridFile::parse(text).and_then(|file| file.sweep(folder));
        sweep.map_err(|error| error.at(&path.display().to_string()))
    }

    /// Opens each trace, and recognises its format. One at a URL need only be there.
    ///
    /// # Errors
    /// The first trace that cannot be opened, or is a pipe: a sweep reads a trace more than once.
    pub fn check_traces(&self) -> Result<(), Error> {
        for sweep_trace in &self.traces {
            if sweep_trace.is_remote() {
                self.remote.state(sweep_trace)?;
                continue;
            }
            pipe::refuse(&sweep_trace.path, "a sweep reads its traces more than once")?;
            trace::open(&sweep_trace.path, sweep_trace.open)?;
        }
        Ok(())
    }

    /// The traces in order.
    pub fn traces(&self) -> &[SweepTrace] {
        &self.traces
    }

    /// Number of units.
    pub fn units(&self) -> u64 {
        self.units_per_trace * self.traces.len() as u64
    }

    /// Index of the trace of a unit.
    pub fn trace_of(&self, unit: u64) -> usize {
        (unit / self.units_per_trace) as usize
    }

    /// The ranges that are not done, in order. Each is of one trace.
    pub fn pending(&self, done: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut done: Vec<Range<u64>> = done.to_vec();
        done.sort_unstable_by_key(|range| range.start);
        let per_range = (self.units() / RANGES).clamp(1, RANGE_UNITS_MAX);
        let mut pending = Vec::new();
        let mut add = |units: Range<u64>| {
            let mut start = units.start;
            while start < units.end {
                // Cut where the ranges of the whole grid are cut.
                let of_trace = self.units_per_trace;
                let in_trace = start % of_trace;
                let cut = start - in_trace + ((in_trace / per_range + 1) * per_range).min(of_trace);
                pending.push(start..cut.min(units.end));
                start = cut.min(units.end);
            }
        };
        let mut from = 0;
        for range in done {
            add(from..range.start.max(from).min(self.units()));
            from = from.max(range.end);
        }
        add(from.min(self.units())..self.units());
        pending
    }

    /// Decodes a trace.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(&self, trace: usize, watch: &dyn Watch) -> Result<TraceFile, Error> {
        let sweep_trace = &self.traces[trace];
        let SweepTrace { path, open, sample, .. } = sweep_trace;
        let loading = Loading { open: *open, decoded_records_max: DECODED_RECORDS_MAX, sample: *sample };
        if sweep_trace.is_remote() {
            return self.remote.load(sweep_trace, loading, watch);
        }
        TraceFile::load_with(path, loading, watch)
    }

    /// Runs a unit on its trace. A failure, even a panic, is a result.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn run_unit(
        &self,
        number: u64,
        trace: &Result<TraceFile, Error>,
        watch: &dyn Watch,
    ) -> Result<Unit, Error> {
        self.run_unit_in(Room::for_runs(1), number, trace, watch)
    }

    /// As [`Sweep::run_unit`]. The unit fails if there is no room for units like it.
    ///
    /// # Errors
    /// As [`Sweep::run_unit`].
    fn run_unit_in(
        &self,
        room: Room,
        number: u64,
        trace: &Result<TraceFile, Error>,
        watch: &dyn Watch,
    ) -> Result<Unit, Error> {
        let cell = self.grid.cell(number);
        let result = match caught(|| match trace {
            Ok(trace) => self.grid.run_cell_in(room, &cell, trace, watch),
            Err(error) => Err(error.clone()),
        }) {
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            result => result.map_err(|error| error.to_string()),
        };
        Ok(Unit { number, cell, result })
    }

    /// Runs the units of a range on one thread.
    ///
    /// # Errors
    /// [`Error::Cancelled`], or units that are not all of one trace of the sweep.
    pub fn run_units(
        &self,
        units: Range<u64>,
        trace: &Result<TraceFile, Error>,
        watch: &dyn Watch,
    ) -> Result<Vec<Unit>, Error> {
        let (first, end) = (self.trace_of(units.start), units.end);
        if units.is_empty() || end > self.units() || self.trace_of(end - 1) != first {
            return Err(Error::usage(format_args!(
                "units {units:?} are not a part of one trace of the sweep"
            )));
        }
        units.map(|number| self.run_unit(number, trace, watch)).collect()
    }

    /// Units that could not be run, with the reason.
    pub fn failed_units(&self, units: Range<u64>, reason: &str) -> Vec<Unit> {
        let unit = |number| Unit { number, cell: self.grid.cell(number), result: Err(reason.to_owned()) };
        units.map(unit).collect()
    }

    /// Rows as columns: those of replays, the number of the unit, and the error of a failed one.
    pub fn columns(&self, units: &[Unit]) -> Columns {
        let policies: Vec<String> = units.iter().map(|unit| unit.cell.policy.to_string()).collect();
        let lines: Vec<Line> = units
            .iter()
            .zip(&policies)
            .map(|(unit, policy)| Line {
                trace: &self.traces[unit.cell.trace].name,
                policy,
                memory: unit.cell.memory.text(),
                seed: unit.cell.seed,
                done: unit.result.as_ref().ok(),
            })
            .collect();
        let mut columns = line_columns(&lines);
        columns.push("unit", Values::Whole(units.iter().map(|unit| Some(unit.number)).collect()));
        columns.push(
            "error",
            Values::Text(units.iter().map(|unit| unit.result.as_ref().err().cloned()).collect()),
        );
        columns
    }

    /// The inputs of the rows as text: two sweeps with the same text have the same rows.
    ///
    /// # Errors
    /// If a trace is not there, or cannot be recognised.
    pub fn identity(&self) -> Result<String, Error> {
        let mut text = format!("mglru {}\n", env!("CARGO_PKG_VERSION"));
        for trace in &self.traces {
            let state = if trace.is_remote() {
                self.remote.state(trace)?
            } else {
                let place = trace.path.display().to_string();
                fingerprint(&trace.path).map_err(|error| Error::usage(error).at(&place))?
            };
            let SweepTrace { name, open, sample, .. } = trace;
            text += &format!("trace {name}, {state}");
            if let Some(format) = open.format {
                text += &format!(", as {format}");
            }
            if let Some(bytes) = open.unit_bytes {
                text += &format!(", in units of {bytes} bytes");
            }
            if open.lossy {
                text += ", lossy";
            }
            if let Some(sample) = sample {
                text += &format!(", a sample of {} with salt {}", sample.share(), sample.salt());
            }
            if self.grid.options.warm.is_none()
                && let Some(warm) = own_warm(trace)?
            {
                text += &format!(", counted from {warm} on");
            }
            text.push('\n');
        }
        for policy in &self.grid.policies {
            text += &format!("policy {policy}\n");
        }
        for size in &self.grid.sizes {
            text += &format!("memory {}\n", size.text());
        }
        let options = &self.grid.options;
        text +=
            &format!("seeds {:?}\nwarm {:?}\nwrites {:?}\n", self.grid.seeds, options.warm, options.writes);
        let windows = (options.readahead_pages, options.fault_around_pages);
        text += &format!("swap {:?}\nreadahead and fault-around {windows:?}\n", options.swap);
        Ok(text)
    }
}

/// The share of its accesses before counting starts that the sidecar of a trace has.
fn own_warm(trace: &SweepTrace) -> Result<Option<f64>, Error> {
    if trace.is_remote() {
        return Ok(None);
    }
    let format = trace::open(&trace.path, trace.open)?.format();
    Ok(own_sidecar(&trace.path, format)?.and_then(|sidecar| sidecar.warm))
}

/// The length of a file, and a checksum of its parts: changed content shows, unless all changes lie
/// between the parts of an uncompressed file.
fn fingerprint(path: &Path) -> std::io::Result<String> {
    const PARTS: u64 = 64;
    const PART_BYTES: usize = 4096;
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let step = (bytes / PARTS).max(PART_BYTES as u64);
    let mut buffer = [0; PART_BYTES];
    let mut checksum = 0;
    // The last part ends with the file.
    let last = bytes.saturating_sub(PART_BYTES as u64);
    for at in (0..bytes).step_by(step as usize).chain([last]) {
        let read = file.read_at(&mut buffer, at)?;
        checksum = crc32c::crc32c_append(checksum, &buffer[..read]);
    }
    Ok(format!("{bytes} bytes, checksum {checksum:08x}"))
}

/// Turns a panic into an error.
fn caught<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::work(format_args!("panicked: {words}; this is a bug in mglru, please report it")))
    })
}
