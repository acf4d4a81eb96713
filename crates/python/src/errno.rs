//! Linux's numbers of errors: those of errors of the system, and of exceptions.

use pyo3::exceptions::{
    PyConnectionAbortedError, PyConnectionError, PyConnectionRefusedError, PyFileNotFoundError,
    PyIsADirectoryError, PyPermissionError, PyTimeoutError,
};
use pyo3::prelude::*;
use std::io;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
pub const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EDEADLK: i32 = 35;
const EOPNOTSUPP: i32 = 95;
const ECONNABORTED: i32 = 103;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;

/// The number of an error of the system, or the one that the system has for such an error.
pub fn number_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => ENOENT,
        io::ErrorKind::PermissionDenied => EACCES,
        io::ErrorKind::TimedOut => ETIMEDOUT,
        io::ErrorKind::StorageFull => ENOSPC,
        io::ErrorKind::IsADirectory => EISDIR,
        io::ErrorKind::InvalidInput => EINVAL,
        io::ErrorKind::Deadlock => EDEADLK,
        io::ErrorKind::Unsupported => EOPNOTSUPP,
        _ => EIO,
    })
}

/// The number of an exception of a source. Many file systems raise a class of `OSError` with words
/// alone.
pub fn number_raised(py: Python<'_>, exception: &PyErr) -> i32 {
    let number = exception.value(py).getattr("errno").and_then(|number| number.extract::<i32>());
    number.unwrap_or_else(|_| match exception {
        it if it.is_instance_of::<PyFileNotFoundError>(py) => ENOENT,
        it if it.is_instance_of::<PyPermissionError>(py) => EACCES,
        it if it.is_instance_of::<PyTimeoutError>(py) => ETIMEDOUT,
        it if it.is_instance_of::<PyIsADirectoryError>(py) => EISDIR,
        it if it.is_instance_of::<PyConnectionRefusedError>(py) => ECONNREFUSED,
        it if it.is_instance_of::<PyConnectionAbortedError>(py) => ECONNABORTED,
        it if it.is_instance_of::<PyConnectionError>(py) => ECONNRESET,
        _ => EIO,
    })
}

/// The kind of an exception of a source. The cache does not ask again for what is missing.
pub fn kind_raised(py: Python<'_>, exception: &PyErr) -> io::ErrorKind {
    match number_raised(py, exception) {
        EIO => io::ErrorKind::Other,
        number => io::Error::from_raw_os_error(number).kind(),
    }
}
