//! Why the program ends with another status than 0, and how it says so.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// What is told on stderr, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing was done, because it is unclear what should be: status 2.
    Usage(String),
    /// It was clear, and failed: status 1.
    Work(String),
}

impl Failure {
    /// The work failed.
    pub fn work(reason: impl Display) -> Failure {
        Failure::Work(reason.to_string())
    }

    /// Wrong usage.
    pub fn usage(reason: impl Display) -> Failure {
        Failure::Usage(reason.to_string())
    }

    /// What is told.
    pub fn text(&self) -> &str {
        match self {
            Failure::Usage(text) | Failure::Work(text) => text,
        }
    }

    /// The same, of a thing at that place of a file.
    pub fn at(self, place: &str) -> Failure {
        match self {
            Failure::Usage(text) => Failure::Usage(format!("{place}: {text}")),
            Failure::Work(text) => Failure::Work(format!("{place}: {text}")),
        }
    }

    /// Tells it on stderr. The exit status.
    pub fn tell(&self) -> ExitCode {
        let (text, status) = match self {
            Failure::Usage(text) => (text, 2),
            Failure::Work(text) => (text, 1),
        };
        // Without a stderr, the status has to do.
        let _ = writeln!(std::io::stderr(), "mglru: {}", text.trim_end());
        ExitCode::from(status)
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Failure {
        let text = error.to_string();
        Failure::Usage(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
    }
}

impl From<mglru_cache::Error> for Failure {
    fn from(error: mglru_cache::Error) -> Failure {
        use mglru_cache::Error;
        match &error {
            Error::BudgetTooSmall { .. } => Failure::usage(format_args!("{error}: raise --memory")),
            Error::Tenant(_) | Error::NoSuchTenant(_) | Error::Mechanisms(_) => Failure::usage(error),
            _ => Failure::work(error),
        }
    }
}
