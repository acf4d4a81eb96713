//! Sweeps for workers: a grid, its ranges of units, and their rows as Parquet.

use crate::work::run;
use mglru_lab::sweep::{self, Folder, GridFile, Remote, SweepTrace, part_name, part_units};
use mglru_lab::trace_file::{Loading, TraceFile};
use mglru_lab::{Error, Watch, parallel, parquet};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The trace of the latest range, with its index.
type Latest = Option<(usize, Arc<Result<TraceFile, Error>>)>;

/// A grid that was checked. Consecutive ranges of a trace share what is decoded.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Sweep(sweep::Sweep, Mutex<Latest>);

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

    /// A grid in TOML.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Sweep> {
        run(py, |_| Ok(Sweep::of(sweep::Sweep::read(&path)?)))
    }

    /// Refuses traces that cannot be opened, and returns what the rows depend on.
    fn check(&self, py: Python<'_>) -> PyResult<String> {
        run(py, |_| {
            self.0.check_traces()?;
            self.0.identity()
        })
    }

    /// Number of units.
    fn units(&self) -> u64 {
        self.0.units()
    }

    /// Ranges that are not among the parts with these names.
    fn pending(&self, names: Vec<String>) -> Vec<(u64, u64)> {
        let done: Vec<_> = names.iter().filter_map(|name| part_units(name)).collect();
        self.0.pending(&done).into_iter().map(|units| (units.start, units.end)).collect()
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
            let trace = self.trace(self.0.trace_of(start), watch);
            self.rows(self.0.run_units(start..end, &trace, watch)?)
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
        let (bytes, ..) = run(py, |_| self.rows(self.0.failed_units(start..end, reason)))?;
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
            self.0.check_traces()?;
            let folder = Folder::open(&out, &self.0)?;
            sweep::run(&self.0, &folder, threads.unwrap_or_else(parallel::threads), watch)
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
        Sweep(sweep.with_remote(Arc::new(Fsspec)), Mutex::default())
    }

    fn trace(&self, number: usize, watch: &dyn Watch) -> Arc<Result<TraceFile, Error>> {
        let mut latest = self.1.lock().expect("no panic");
        match &*latest {
            Some((there, trace)) if *there == number => trace.clone(),
            _ => {
                // Dropped first: a worker has memory for one.
                *latest = None;
                let trace = Arc::new(self.0.load(number, watch));
                *latest = Some((number, trace.clone()));
                trace
            }
        }
    }

    fn rows(&self, units: Vec<sweep::Unit>) -> Result<(Vec<u8>, u64, Option<String>), Error> {
        let mut errors = units.iter().filter_map(|unit| unit.result.as_ref().err().cloned());
        let first = errors.next();
        let failed = u64::from(first.is_some()) + errors.count() as u64;
        Ok((parquet::bytes(&self.0.columns(&units))?, failed, first))
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
