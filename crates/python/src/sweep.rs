//! Sweeps for workers: a grid, its ranges of units, and their rows as Parquet.

use crate::work::run;
use mglru_lab::sweep::{
    self, Folder, GridFile, Remote, SweepTrace, contained_parts, joined_parts, part_errors, part_name,
    part_units,
};
use mglru_lab::trace_file::{Loading, TraceFile};
use mglru_lab::{Error, Watch, parallel, parquet};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Records of decoded traces that this process keeps for later ranges: 512 MiB, or one trace.
const KEPT_RECORDS_MAX: usize = 32 << 20;

/// A trace, once it is decoded.
type Loaded = Arc<OnceLock<Result<TraceFile, Error>>>;

/// A trace of a sweep.
struct Kept {
    /// The sweep.
    sweep: u64,
    /// Its index there.
    number: usize,
    trace: Loaded,
}

impl Kept {
    /// Records in memory; of one that is being decoded, none.
    fn records(&self) -> usize {
        let Some(Ok(trace)) = self.trace.get() else { return 0 };
        let records = trace.records().map_or(0, <[_]>::len);
        // A sample is replayed with its pages at other places.
        if trace.sampled().is_some() { 2 * records } else { records }
    }
}

/// Traces of all sweeps of this process, in the order of their latest use.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets the traces that were used longest ago, until the rest is small enough. The latest stays.
fn forget(kept: &mut Vec<Kept>) {
    let mut records = 0;
    let fits = |kept: &&Kept| {
        records += kept.records();
        records <= KEPT_RECORDS_MAX
    };
    let stay = kept.iter().rev().take_while(fits).count().max(1);
    kept.drain(..kept.len().saturating_sub(stay));
}

/// A grid that was checked. Ranges share what is decoded, also those of several sweeps at once.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Sweep {
    sweep: sweep::Sweep,
    /// Number of the sweep in this process.
    number: u64,
}

impl Drop for Sweep {
    fn drop(&mut self) {
        kept().retain(|kept| kept.sweep != self.number);
    }
}

#[pymethods]
impl Sweep {
    /// A grid as JSON, with paths relative to a folder.
    #[staticmethod]
    fn of_json(py: Python<'_>, grid: &str, folder: PathBuf) -> PyResult<Sweep> {
        run(py, |_| {
            let file: GridFile = serde_json::from_str(grid)
                .map_err(|error| Error::usage(format_args!("the grid: {error}")))?;
            Ok(Sweep::of(file.sweep(&folder)?))
        })
    }

    /// A grid in TOML: that of a file, or text that was read from there.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf, text: Option<String>) -> PyResult<Sweep> {
        run(py, |_| {
            let sweep = match text {
                Some(text) => sweep::Sweep::parse(&text, &path)?,
                None => sweep::Sweep::read(&path)?,
            };
            Ok(Sweep::of(sweep))
        })
    }

    /// Refuses traces that cannot be opened, and returns what the rows depend on.
    fn check(&self, py: Python<'_>) -> PyResult<String> {
        run(py, |_| {
            self.sweep.check_traces()?;
            self.sweep.identity()
        })
    }

    /// Number of units.
    fn units(&self) -> u64 {
        self.sweep.units()
    }

    /// Ranges that are not among the parts with these names.
    fn pending(&self, names: Vec<String>) -> Vec<(u64, u64)> {
        let done: Vec<_> = names.iter().filter_map(|name| part_units(name)).collect();
        self.sweep.pending(&done).into_iter().map(|units| (units.start, units.end)).collect()
    }

    /// Runs the units of a range. Returns their rows, the number of those that failed, and the
    /// first error.
    fn run<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        end: u64,
    ) -> PyResult<(Bound<'py, PyBytes>, u64, Option<String>)> {
        let (bytes, failed, first) = run(py, |watch| {
            let trace = self.trace(self.sweep.trace_of(start), watch);
            let trace = trace.get().expect("it was decoded");
            self.rows(self.sweep.run_units(start..end, trace, watch)?)
        })?;
        Ok((PyBytes::new(py, &bytes), failed, first))
    }

    /// Rows of units that could not be run, with the reason.
    fn failed<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        end: u64,
        reason: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (bytes, ..) = run(py, |_| self.rows(self.sweep.failed_units(start..end, reason)))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Runs what is not in a folder on the threads of this machine.
    fn run_here<'py>(
        &self,
        py: Python<'py>,
        out: PathBuf,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let report = run(py, |watch| {
            self.sweep.check_traces()?;
            let folder = Folder::open(&out, &self.sweep)?;
            sweep::run(&self.sweep, &folder, threads.unwrap_or_else(parallel::threads), watch)
        })?;
        let fields = PyDict::new(py);
        fields.set_item("units", report.units)?;
        fields.set_item("done_units", report.done_units)?;
        fields.set_item("failed_units", report.failed_units)?;
        fields.set_item("first_failure", report.first_failure)?;
        fields.set_item("seconds", report.seconds)?;
        Ok(fields)
    }
}

impl Sweep {
    fn of(sweep: sweep::Sweep) -> Sweep {
        static SWEEPS: AtomicU64 = AtomicU64::new(0);
        Sweep { sweep: sweep.with_remote(Arc::new(Fsspec)), number: SWEEPS.fetch_add(1, Relaxed) }
    }

    /// The trace, which one thread decodes. Others of the same trace wait for that. If it is
    /// interrupted, the next one decodes the trace from its beginning.
    fn trace(&self, number: usize, watch: &dyn Watch) -> Loaded {
        loop {
            let trace = self.kept_trace(number);
            trace.get_or_init(|| self.sweep.load(number, watch));
            if !matches!(trace.get(), Some(Err(Error::Cancelled))) {
                return trace;
            }
            kept().retain(|kept| !Arc::ptr_eq(&kept.trace, &trace));
            if watch.is_cancelled() {
                return trace;
            }
        }
    }

    /// The place of a trace, which is decoded there, or will be.
    fn kept_trace(&self, number: usize) -> Loaded {
        let mut kept = kept();
        let is_this = |kept: &Kept| (kept.sweep, kept.number) == (self.number, number);
        let latest = match kept.iter().position(is_this) {
            Some(at) => kept.remove(at),
            None => Kept { sweep: self.number, number, trace: Loaded::default() },
        };
        let trace = latest.trace.clone();
        kept.push(latest);
        // Before it is decoded: memory is for these and for this one.
        forget(&mut kept);
        trace
    }

    fn rows(&self, units: Vec<sweep::Unit>) -> Result<(Vec<u8>, u64, Option<String>), Error> {
        let mut errors = units.iter().filter_map(|unit| unit.result.as_ref().err().cloned());
        let first = errors.next();
        let failed = u64::from(first.is_some()) + errors.count() as u64;
        Ok((parquet::bytes(&self.sweep.columns(&units))?, failed, first))
    }
}

/// Traces at URLs, read by fsspec through `mglru._stream`.
#[derive(Debug)]
struct Fsspec;

impl Remote for Fsspec {
    fn state(&self, trace: &SweepTrace) -> Result<String, Error> {
        Python::attach(|py| {
            let state = streams(py)?.call_method1("state", arguments(trace))?;
            state.extract()
        })
        .map_err(|error| error_of(&error, trace))
    }

    fn load(&self, trace: &SweepTrace, loading: Loading, watch: &dyn Watch) -> Result<TraceFile, Error> {
        let failed = |error: PyErr| error_of(&error, trace);
        let opened = Python::attach(|py| -> PyResult<(Py<PyAny>, PathBuf)> {
            let stream = streams(py)?.call_method1("opened", arguments(trace))?;
            let path = stream.call_method0("__enter__")?.extract()?;
            Ok((stream.unbind(), path))
        });
        let (stream, path) = opened.map_err(failed)?;
        // Without the interpreter's lock, which the thread that feeds the pipe needs.
        let loaded = TraceFile::load_with(&path, loading, watch).and_then(|loaded| loaded.named(&trace.name));
        // An error of the stream takes precedence: the decoder only saw that it ended.
        let closed = Python::attach(|py| {
            stream.call_method1(py, "__exit__", (py.None(), py.None(), py.None())).map(drop)
        });
        closed.map_err(failed)?;
        let place = path.display().to_string();
        loaded.map_err(|error| match error {
            Error::Usage(text) => Error::Usage(text.replace(&place, &trace.name)),
            Error::Work(text) => Error::Work(text.replace(&place, &trace.name)),
            Error::Cancelled => Error::Cancelled,
        })
    }
}

fn streams(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("mglru._stream")
}

/// The URL, and the options of its file system as JSON.
fn arguments(trace: &SweepTrace) -> (&str, String) {
    let options = serde_json::to_string(&trace.storage_options).expect("a table of TOML is JSON, too");
    (&trace.name, options)
}

/// The error of fsspec about a trace. A trace that cannot be found or opened is an error of the
/// request.
fn error_of(error: &PyErr, trace: &SweepTrace) -> Error {
    Python::attach(|py| {
        let value = error.value(py);
        let words = value.str().map_or_else(|_| String::new(), |words| words.to_string());
        let class = value.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
        match class.as_str() {
            "UsageError" => Error::usage(words),
            _ if words.is_empty() => Error::usage(class).at(&trace.name),
            _ => Error::usage(format_args!("{class}: {words}")).at(&trace.name),
        }
    })
}

/// Name of the part with these units.
#[pyfunction]
pub fn sweep_part_name(start: u64, end: u64) -> String {
    part_name(&(start..end.max(start + 1)))
}

/// The errors in the rows of a part; `None` if it is damaged, or has other units than its name
/// says.
#[pyfunction]
pub fn sweep_part_errors(py: Python<'_>, name: &str, part: Vec<u8>) -> Option<Vec<String>> {
    py.detach(|| part_errors(&part_units(name)?, part))
}

/// Names of the parts whose rows are in another one of these, too.
#[pyfunction]
pub fn sweep_parts_contained(names: Vec<String>) -> Vec<String> {
    let parts: Vec<_> = names.iter().filter_map(|name| part_units(name)).collect();
    contained_parts(&parts).iter().map(part_name).collect()
}

/// One part with the rows of several, in the order of units.
#[pyfunction]
pub fn sweep_parts_joined<'py>(py: Python<'py>, parts: Vec<Vec<u8>>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &run(py, |_| joined_parts(parts))?))
}
