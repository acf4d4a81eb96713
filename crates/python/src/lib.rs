//! The native half of the Python package `mglru`.
//!
//! ```text
//! python/mglru/*.py    the public interface: checks and converts arguments, has all documentation
//! src/trace.rs         Trace: a decoded trace
//! src/table.rs         Table: columns of results, handed to others through Arrow's C stream
//! src/requests.rs      replay, ablate, scenario, fidelity: requests of `mglru_lab`
//! src/sweep.rs         Sweep: ranges of units for workers, rows as Parquet
//! src/cache.rs         Cache, Tenant: a page cache over files and sources
//! src/file.rs          File, Page: its open files and lent pages
//! src/source.rs        a Python function as a source of blocks
//! src/held.rs          what these share: drops and calls without the interpreter's lock, exceptions
//! src/errno.rs         numbers of errors and exceptions
//! src/work.rs          runs work and waits without the interpreter's lock, until it ends or Ctrl-C
//! ```
//!
//! Everything is decided in `mglru_lab`, `mglru_cache` and below. Errors are Python exceptions with
//! the words of the command line.

mod cache;
mod errno;
mod file;
mod held;
mod requests;
mod source;
mod sweep;
mod table;
mod trace;
mod work;

use pyo3::prelude::*;
use std::ffi::OsString;
use std::io::Write;

/// The module `mglru._mglru`.
#[pymodule]
mod _mglru {
    #[pymodule_export]
    use super::cache::{Cache, Tenant};
    #[pymodule_export]
    use super::command;
    #[pymodule_export]
    use super::file::{File, Page};
    #[pymodule_export]
    use super::requests::{ablate, events, fidelity, names, replay, scenario, size_bytes, timeline};
    #[pymodule_export]
    use super::sweep::{
        Sweep, sweep_part_errors, sweep_part_name, sweep_parts_contained, sweep_parts_joined,
    };
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::trace::Trace;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Runs the command `mglru` with these arguments, the first of which is its name. Returns the exit
/// status.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let status = mglru_cli::main(arguments);
        // In a program written in Rust the last line is flushed at its end.
        let _ = std::io::stdout().flush();
        status
    })
}
