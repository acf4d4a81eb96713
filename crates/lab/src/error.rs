//! Why an experiment was not made.

use std::fmt::{self, Display, Formatter};

/// What happened, where, and what to do about it.
///
/// ```
/// use mglru_lab::Error;
///
/// let error = Error::usage("`lots` is no size").at("jobs.toml:3");
/// assert_eq!(error.to_string(), "jobs.toml:3: `lots` is no size");
/// assert!(matches!(error, Error::Usage(_)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Nothing was done: the request makes no sense.
    Usage(String),
    /// The request was clear, and the work failed.
    Work(String),
    /// Whoever watches asked for the end of the work: see
    /// [`Watch::is_cancelled`](crate::Watch::is_cancelled).
    Cancelled,
}

impl Error {
    /// The work failed.
    pub fn work(reason: impl Display) -> Error {
        Error::Work(reason.to_string())
    }

    /// The request makes no sense.
    pub fn usage(reason: impl Display) -> Error {
        Error::Usage(reason.to_string())
    }

    /// The reason.
    pub fn text(&self) -> &str {
        match self {
            Error::Usage(text) | Error::Work(text) => text,
            Error::Cancelled => "the work was cancelled",
        }
    }

    /// The same, of a thing at that place of a file.
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
            Cache::BudgetTooSmall { .. } => Error::usage(format_args!("{error}: raise --memory")),
            Cache::Tenant(_) | Cache::NoSuchTenant(_) | Cache::Mechanisms(_) => Error::usage(error),
            _ => Error::work(error),
        }
    }
}

impl From<mglru_workload::trace::TraceError> for Error {
    fn from(error: mglru_workload::trace::TraceError) -> Error {
        use mglru_workload::trace::TraceError;
        match error {
            // To be solved by saying more about the trace.
            TraceError::UnknownFormat { .. } | TraceError::Ambiguous { .. } | TraceError::Usage { .. } => {
                Error::usage(error)
            }
            _ => Error::work(error),
        }
    }
}
