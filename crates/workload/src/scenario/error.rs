//! Errors in scenarios, with their places.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// A scenario that cannot be run. It counts as wrong usage: exit status 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file, as the user named it.
    path: PathBuf,
    /// Line and column; `None` if the file cannot be read.
    place: Option<Place>,
    /// The problem, and what to do.
    reason: String,
}

impl Error {
    pub(super) fn new(path: &Path, place: Option<Place>, reason: impl Into<String>) -> Error {
        Error { path: path.to_owned(), place, reason: reason.into() }
    }

    /// Line and column of the error, if it has one.
    pub fn place(&self) -> Option<Place> {
        self.place
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.reason)
    }
}

impl std::error::Error for Error {}
