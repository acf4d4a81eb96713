//! State that the page cache's Python objects share: the cache they belong to, values that are
//! dropped without the interpreter's lock, and errors as exceptions.
//!
//! # Locking
//!
//! No call into the cache holds the interpreter's lock: each runs in `Python::detach`. In the other
//! direction a thread of the cache takes the interpreter's lock only to call a source, and holds no
//! lock of the cache then.

use crate::errno::{EFBIG, number_of, number_raised};
use crate::source::Raised;
use crate::work::usage;
use mglru_cache::{Error, PageCache};
use pyo3::exceptions::{PyBufferError, PyOSError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Device and inode of a file.
pub type FileNumber = (u64, u64);

/// A cache, and the pages of its files that Python lends.
pub struct State {
    /// `None` after it was closed.
    pub cache: RwLock<Option<PageCache>>,
    /// The process that opened the cache: its threads are not in a child of that.
    process: u32,
    /// How often each page of a file is lent.
    lent: Mutex<BTreeMap<(FileNumber, u32), usize>>,
}

impl State {
    pub fn new(cache: PageCache) -> State {
        let cache = RwLock::new(Some(cache));
        State { cache, process: std::process::id(), lent: Mutex::default() }
    }

    /// Refuses work in a child of the process.
    pub fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(usage(
            py,
            format_args!(
                "the cache belongs to process {}, and this is its child: open a cache after the fork, or start \
                 processes with the method spawn",
                self.process
            ),
        ))
    }

    /// Refuses work after the cache was closed, or in a child of the process.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        let closed = py.detach(|| self.cache.read().unwrap_or_else(PoisonError::into_inner).is_none());
        if closed { Err(exception(py, &Error::Closed)) } else { Ok(()) }
    }

    /// Calls the cache without the interpreter's lock, and keeps it open meanwhile.
    pub fn call<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&PageCache) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.check_process(py)?;
        let result = py.detach(|| match &*self.cache.read().unwrap_or_else(PoisonError::into_inner) {
            Some(cache) => work(cache),
            None => Err(Error::Closed),
        });
        result.map_err(|error| exception(py, &error))
    }

    /// Does work of a file or a tenant without the interpreter's lock. The cache may be closed
    /// meanwhile: a lock here would make a source that reads another file of the cache wait.
    pub fn work<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.check(py)?;
        py.detach(work).map_err(|error| exception(py, &error))
    }

    /// As [`State::work`], for work that Ctrl-C ends.
    pub fn wait<R: Send>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = Result<R, Error>> + Send,
    ) -> PyResult<R> {
        self.check(py)?;
        crate::work::wait(py, work)?.map_err(|error| exception(py, &error))
    }

    /// As [`State::work`], for work in steps, which Ctrl-C ends.
    pub fn repeat<R: Send>(
        &self,
        py: Python<'_>,
        step: impl FnMut() -> Option<Result<R, Error>> + Send,
    ) -> PyResult<R> {
        self.check(py)?;
        crate::work::repeat(py, step)?.map_err(|error| exception(py, &error))
    }

    fn lent(&self) -> MutexGuard<'_, BTreeMap<(FileNumber, u32), usize>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lend(&self, file: FileNumber, page: u32) {
        *self.lent().entry((file, page)).or_default() += 1;
    }

    pub fn take_back(&self, file: FileNumber, page: u32) {
        let mut lent = self.lent();
        if let Some(count) = lent.get_mut(&(file, page)) {
            *count -= 1;
            if *count == 0 {
                lent.remove(&(file, page));
            }
        }
    }

    /// Refuses to change pages that Python lends: the thread would wait for its own objects.
    pub fn check_not_lent(
        &self,
        file: FileNumber,
        pages: std::ops::RangeInclusive<u32>,
        path: &Path,
    ) -> PyResult<()> {
        let range = (file, *pages.start())..=(file, *pages.end());
        match self.lent().range(range).next() {
            None => Ok(()),
            Some(((_, page), _)) => Err(PyBufferError::new_err(format!(
                "page {page} of {} is lent: release its Page objects and views before changing the page",
                path.display()
            ))),
        }
    }
}

/// A value that is dropped without the interpreter's lock, because dropping it may write and wait.
/// A child of the process does not drop it: the threads that would do the work are not there.
pub struct Held<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> Held<T> {
    pub fn new(value: T) -> Held<T> {
        Held { value: Some(value), process: std::process::id() }
    }

    pub fn get(&self) -> &T {
        self.value.as_ref().expect("only drop takes it")
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.process != std::process::id() {
            std::mem::forget(value);
            return;
        }
        let mut value = Some(value);
        // Where the interpreter is ending, or this thread does not run Python, there is no lock.
        let dropped = Python::try_attach(|py| {
            let value = value.take();
            py.detach(move || drop(value));
        });
        if dropped.is_none() {
            drop(value);
        }
    }
}

/// The exception of a cache's error, with the same words. An `OSError` has its file in `filename`,
/// as those of Python do, and not in the words.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Io { path, source, .. } | Error::WriteBack { path, source } | Error::Lost { path, source } => {
            let cause = source.get_ref().and_then(|inner| inner.downcast_ref::<Raised>());
            let cause = cause.map(|raised| &raised.exception);
            let number = cause.map_or_else(|| number_of(source), |cause| number_raised(py, cause));
            let made = os_error(number, error, path);
            made.set_cause(py, cause.map(|cause| cause.clone_ref(py)));
            made
        }
        Error::TooLarge { path, .. } => os_error(EFBIG, error, path),
        Error::OwnGuard { .. } => PyBufferError::new_err(error.to_string()),
        Error::ReadOnly { .. } => {
            // The error names the mode as Rust has it.
            let words = error.to_string().replace("OpenMode::ReadWrite", "the mode \"r+b\"");
            let made = py.import("io").and_then(|io| io.getattr("UnsupportedOperation")?.call1((words,)));
            made.map_or_else(|error| error, PyErr::from_value)
        }
        Error::OutOfMemory(_)
        | Error::Killed(_)
        | Error::Busy
        | Error::TooManyFiles { .. }
        | Error::TooManyTenants { .. } => crate::work::exception(py, &mglru_lab::Error::work(error)),
        _ => usage(py, error),
    }
}

/// An `OSError` of the class of its number. Python shows number, words and file.
fn os_error(number: i32, error: &Error, path: &Path) -> PyErr {
    let mut words = error.to_string().replace(&format!(" (os error {number})"), "");
    // "cannot read FILE: …", "earlier writes to FILE …", "byte 5 of FILE …", and "cannot open : …"
    // where the path is empty.
    for (before, after) in [(" to ", ""), (" of ", ""), (" ", ":"), (" ", "")] {
        let place = format!("{before}{}{after}", path.display());
        if words.contains(&place) {
            words = words.replacen(&place, after, 1);
            break;
        }
    }
    PyOSError::new_err((number, words, path.as_os_str().to_owned()))
}
