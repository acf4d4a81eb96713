//! Results and errors of reading and writing control files.

use crate::host::Throttle;
use std::borrow::Cow;
use std::fmt;

/// Result of a step of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlStep {
    /// Call again; other threads may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// The write is complete.
    Done,
}

/// The kernel's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Errno {
    /// ENOENT: the file or memcg does not exist.
    NoEntry,
    /// EIO: a file of /proc cannot be written.
    Io,
    /// EAGAIN: fewer pages could be reclaimed than requested.
    Again,
    /// EEXIST: another thread opened the generation.
    Exists,
    /// EINVAL: the value is invalid, or the file cannot be read or written.
    Invalid,
    /// ERANGE: the maximum number of generations exists.
    Range,
    /// EOPNOTSUPP: this build does not support the feature.
    NotSupported,
}

impl Errno {
    /// The number of the error, as in `errno.h`.
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

    /// The name of the error, as in the manuals.
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
    /// The error that the kernel would return.
    pub errno: Errno,
    /// The path that the caller gave.
    pub path: String,
    /// The problem, and what to do about it.
    pub reason: String,
}

/// An error whose file is not yet known.
pub(super) type Failure = (Errno, String);

impl ControlError {
    pub(super) fn new(errno: Errno, path: &str, reason: String) -> ControlError {
        ControlError { errno, path: path.to_owned(), reason }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, reason) = (shortened(&self.path), shortened(&self.reason));
        write!(f, "'{path}': {reason} ({})", self.errno.name())
    }
}

/// A text that repeats what the caller wrote, which may be a megabyte: without its middle.
fn shortened(text: &str) -> Cow<'_, str> {
    const PART: usize = 400;
    match text.len() > 3 * PART {
        false => text.into(),
        true => {
            let boundary =
                |from| (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
            format!("{} … {}", &text[..boundary(PART)], &text[boundary(text.len() - PART)..]).into()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_not_repeated_whole() {
        let reason = |text: String| ControlError::new(Errno::Invalid, "memory.max", text).to_string();
        assert_eq!(reason("no".to_owned()), "'memory.max': no (EINVAL)");
        let text = reason(format!("'{}' is no number", "ä".repeat(1 << 20)));
        assert!(
            text.starts_with("'memory.max': 'ää") && text.ends_with("ä' is no number (EINVAL)"),
            "{text}"
        );
        assert!(text.len() < 1000, "{}", text.len());
    }
}

impl std::error::Error for ControlError {}
