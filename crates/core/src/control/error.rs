//! What a step of writing a control file came to, and why one could not be read or written.

use crate::host::Throttle;
use std::fmt;

/// What a step of writing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlStep {
    /// Call again; anybody may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// All is done.
    Done,
}

/// The kernel's number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Errno {
    /// ENOENT: no such file or memcg.
    NoEntry,
    /// EIO: a file of /proc that cannot be written to.
    Io,
    /// EAGAIN: less could be reclaimed than was asked for.
    Again,
    /// EEXIST: another thread opened the generation.
    Exists,
    /// EINVAL: the value is none, or the file cannot be read or written so.
    Invalid,
    /// ERANGE: there are as many generations as there may be.
    Range,
    /// EOPNOTSUPP: this build has no such thing.
    NotSupported,
}

impl Errno {
    /// As the system counts.
    pub fn number(self) -> i32 {
        match self {
            Errno::NoEntry => 2,
            Errno::Io => 5,
            Errno::Again => 11,
            Errno::Exists => 17,
            Errno::Invalid => 22,
            Errno::Range => 34,
            Errno::NotSupported => 95,
        }
    }

    /// As the manuals call it.
    pub fn name(self) -> &'static str {
        match self {
            Errno::NoEntry => "ENOENT",
            Errno::Io => "EIO",
            Errno::Again => "EAGAIN",
            Errno::Exists => "EEXIST",
            Errno::Invalid => "EINVAL",
            Errno::Range => "ERANGE",
            Errno::NotSupported => "EOPNOTSUPP",
        }
    }
}

/// A control file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlError {
    /// What a kernel would answer.
    pub errno: Errno,
    /// The file, as it was asked for.
    pub path: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// An error before it is known of which file.
pub(super) type Failure = (Errno, String);

impl ControlError {
    pub(super) fn new(errno: Errno, path: &str, reason: String) -> ControlError {
        ControlError { errno, path: path.to_owned(), reason }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {} ({})", self.path, self.reason, self.errno.name())
    }
}

impl std::error::Error for ControlError {}
