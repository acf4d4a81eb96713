//! A Python function as a source of blocks.
//!
//! Length and version are asked for before the source is opened, so only reads call Python: on a
//! thread of the cache, which holds no lock of the cache then, and answers after it has released
//! the interpreter's lock.

use crate::errno::kind_raised;
use mglru_cache::{BlockSource, RangeRequest, SourceState};
use pyo3::exceptions::{PyBaseException, PyTypeError};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyList, PyTuple};
use std::fmt;
use std::io;

/// Bytes that a function returns: `read(ranges)` gets pairs of start and end, and returns for each
/// its bytes or an exception.
pub struct Function {
    pub name: String,
    pub len: u64,
    pub version: Option<String>,
    pub block_bytes: u64,
    pub read: Py<PyAny>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).field("len", &self.len).finish_non_exhaustive()
    }
}

/// An exception as an error of a read, with its words: showing it needs no lock of the interpreter.
#[derive(Debug)]
pub struct Raised {
    pub exception: PyErr,
    words: String,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Raised {}

fn raised(py: Python<'_>, exception: PyErr) -> io::Error {
    let words = exception.value(py).str().map_or_else(|_| String::new(), |words| words.to_string());
    let class = exception.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string());
    let words = if words.is_empty() { class } else { format!("{class}: {words}") };
    io::Error::new(kind_raised(py, &exception), Raised { exception, words })
}

/// Stops its thread for good when it is dropped. Before 3.14, Python unwinds a thread that needs
/// the interpreter's lock while the interpreter is ending. The frames further out would give back
/// the lock that the thread does not have, which ends the process by a signal.
struct Stop;

impl Drop for Stop {
    fn drop(&mut self) {
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

type CallOfPython = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

unsafe extern "C-unwind" {
    fn PyObject_Call(
        function: *mut PyObject,
        arguments: *mut PyObject,
        names: *mut PyObject,
    ) -> *mut PyObject;
}

/// Calls Python code, which may run until after the interpreter has ended. The caller keeps all
/// that the call refers to.
fn call<'py>(function: &Bound<'py, PyAny>, argument: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
    let arguments = PyTuple::new(function.py(), [argument])?;
    // `pyo3::ffi` declares that it never unwinds. The compiler must not know that this is the same.
    let call: CallOfPython = std::hint::black_box(PyObject_Call);
    let stop = Stop;
    // SAFETY: the thread holds the interpreter's lock. The function and the tuple live as long as
    // the call, and names may be null. It returns a new reference, or null with an exception.
    let returned = unsafe {
        let returned = call(function.as_ptr(), arguments.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(function.py(), returned)
    };
    std::mem::forget(stop);
    returned
}

impl Function {
    /// The answers to the first ranges, in their order.
    fn answers(&self, py: Python<'_>, ranges: Vec<(u64, u64)>) -> Vec<io::Result<PyBackedBytes>> {
        let count = ranges.len();
        // The answers may be those of a generator.
        let answers = call(self.read.bind(py), ranges).and_then(|answers| {
            let answers = call(py.get_type::<PyList>().as_any(), answers)?;
            Ok(answers.cast_into::<PyList>()?.iter().map(|answer| bytes_of(&answer)).collect())
        });
        answers.unwrap_or_else(|error| (0..count).map(|_| Err(raised(py, error.clone_ref(py)))).collect())
    }
}

fn bytes_of(answer: &Bound<'_, PyAny>) -> io::Result<PyBackedBytes> {
    answer.extract::<PyBackedBytes>().map_err(|_| {
        let exception = match answer.is_instance_of::<PyBaseException>() {
            true => PyErr::from_value(answer.clone()),
            false => {
                let class = answer.get_type();
                let class = class.name().map_or_else(|_| String::from("an object"), |name| name.to_string());
                PyTypeError::new_err(format!("the source returned {class} for a range; expected bytes"))
            }
        };
        raised(answer.py(), exception)
    })
}

impl BlockSource for Function {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn state(&self) -> io::Result<SourceState> {
        let mut state = SourceState::new(self.len);
        state.version.clone_from(&self.version);
        Ok(state)
    }

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Requests that are dropped without an answer fail: those that the function returned nothing
    /// for, and all when the interpreter is ending.
    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        Python::try_attach(|py| {
            let requests: Vec<RangeRequest> = requests.into_iter().filter(RangeRequest::is_wanted).collect();
            let ranges = requests.iter().map(|request| (request.range().start, request.range().end));
            let mut answers = self.answers(py, ranges.collect());
            py.detach(|| {
                // The bytes stay until the lock is held again, which freeing them needs.
                for (request, answer) in requests.into_iter().zip(&mut answers) {
                    match answer {
                        Ok(bytes) => request.fulfil(None, bytes),
                        Err(error) => request.fail(std::mem::replace(error, io::ErrorKind::Other.into())),
                    }
                }
            });
        });
    }
}
