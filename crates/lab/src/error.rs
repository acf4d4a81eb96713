//! Errors of requests.

use std::fmt::{self, Display, Formatter};

/// An error of a request. The text says what happened, where, and what to do.
///
/// ```
/// use mglru_lab::Error;
///
/// let error = Error::usage("`lots` is not a size").at("jobs.toml:3");
/// assert_eq!(error.to_string(), "jobs.toml:3: `lots` is not a size");
/// assert!(matches!(error, Error::Usage(_)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The request is invalid. No work was done.
    Usage(String),
    /// The request is valid, and the work failed.
    Work(String),
    /// The caller cancelled the work through [`Watch::is_cancelled`](crate::Watch::is_cancelled).
    Cancelled,
}

impl Error {
    /// An error of the work.
    pub fn work(reason: impl Display) -> Error {
        Error::Work(reason.to_string())
    }

    /// An error in the request.
    pub fn usage(reason: impl Display) -> Error {
        Error::Usage(reason.to_string())
    }

    /// Text of the error.
    pub fn text(&self) -> &str {
        match self {
            Error::Usage(text) | Error::Work(text) => text,
            Error::Cancelled => "the work was cancelled",
        }
    }

    /// The error with a place in a file prefixed to its text.
    pub fn at(self, place: &str) -> Error {
        match self {
            Error::Usage(text) => Error::Usage(format!("{place}: {text}")),
            Error::Work(text) => Error::Work(format!("{place}: {text}")),
            Error::Cancelled => Error::Cancelled,
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

impl From<mglru_cache::Error> for Error {
    fn from(error: mglru_cache::Error) -> Error {
        use mglru_cache::Error as Cache;
        match &error {
            Cache::BudgetTooSmall { swap_bytes: 0, .. } => {
                Error::usage(format_args!("{error}: raise --memory"))
            }
            Cache::BudgetTooSmall { .. } => Error::usage(format_args!(
                "{error}: raise --memory, or have less swap (compressed memory, zram, is a part of the budget)"
            )),
            Cache::BudgetTooLarge { .. } => Error::usage(format_args!("{error}, with --memory")),
            Cache::Tenant(_) | Cache::NoSuchTenant(_) | Cache::Mechanisms(_) => Error::usage(error),
            _ => Error::work(error),
        }
    }
}

impl From<mglru_workload::scenario::Error> for Error {
    /// A scenario that cannot be read failed as any other file does. One that is wrong is wrong
    /// usage, and its error has a place.
    fn from(error: mglru_workload::scenario::Error) -> Error {
        if error.place().is_some() { Error::usage(error) } else { Error::work(error) }
    }
}

impl From<mglru_workload::trace::TraceError> for Error {
    fn from(error: mglru_workload::trace::TraceError) -> Error {
        use mglru_workload::trace::TraceError;
        match error {
            // The user can resolve these with options.
            TraceError::UnknownFormat { .. } | TraceError::Ambiguous { .. } | TraceError::Usage { .. } => {
                Error::usage(error)
            }
            _ => Error::work(error),
        }
    }
}
