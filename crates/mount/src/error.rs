//! Errors of mounting.

use std::fmt;
use std::path::Path;

/// An error of a mount. The text says what happened, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The mount is impossible as asked for. Nothing was mounted.
    Usage(String),
    /// The file system was mounted, and something failed.
    Work(String),
}

impl Error {
    pub(crate) fn usage(text: impl fmt::Display) -> Error {
        Error::Usage(text.to_string())
    }

    /// A mount point whose process was killed.
    pub(crate) fn gone(mountpoint: &Path) -> Error {
        Error::usage(format_args!(
            "{} is a mount whose process is gone: run `umount {0}`, then mount again",
            mountpoint.display()
        ))
    }

    pub(crate) fn work(text: impl fmt::Display) -> Error {
        Error::Work(text.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Work(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
