//! What can be wrong with a job, and what to do about it.

use super::setting::Origin;
use std::fmt;

/// A command line or job file that cannot be run. Wrong usage, all of it: exit status 2.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Neither fio nor we know the option.
    UnknownOption {
        /// The name, without dashes.
        option: String,
        /// An option of fio's that differs by a slip or two and that we do not support yet, if
        /// there is one.
        slip_of: Option<&'static str>,
        /// The supported option that comes nearest: to `slip_of` in meaning, or else in spelling.
        nearest: Option<&'static str>,
        /// Whether `nearest` itself differs by a slip or two only.
        close: bool,
        /// Where it stands.
        origin: Origin,
    },
    /// fio knows the option, we do not yet.
    UnsupportedOption {
        /// The name, without dashes.
        option: String,
        /// The supported option that comes nearest in meaning.
        nearest: Option<&'static str>,
        /// Where it stands.
        origin: Origin,
    },
    /// fio knows the value, we do not yet.
    UnsupportedValue {
        /// The name, without dashes.
        option: String,
        /// The value as it was typed.
        value: String,
        /// What is supported instead.
        advice: String,
        /// Where it stands.
        origin: Origin,
    },
    /// The value makes no sense.
    InvalidValue {
        /// The name, without dashes.
        option: String,
        /// The value as it was typed.
        value: String,
        /// Why, and what would make sense.
        reason: String,
        /// Where it stands.
        origin: Origin,
    },
    /// The option needs a value and has none.
    MissingValue {
        /// The name, without dashes.
        option: String,
        /// What the value says.
        help: &'static str,
        /// Where it stands.
        origin: Origin,
    },
    /// The options of a job contradict each other, or one is missing.
    Job {
        /// The name of the job.
        job: String,
        /// What is wrong, and what to do.
        reason: String,
        /// Where the job begins.
        origin: Origin,
    },
    /// A line of a job file that is neither section nor option, or stands in the wrong place.
    Line {
        /// What is wrong, and what to do.
        reason: String,
        /// The line.
        origin: Origin,
    },
    /// A job file cannot be read.
    JobFile {
        /// The file as it was named.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing to run.
    NoJobs,
}

impl Error {
    /// Where it is, if it is in one place. Its text begins with that, and a colon.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Error::UnknownOption { origin, .. }
            | Error::UnsupportedOption { origin, .. }
            | Error::UnsupportedValue { origin, .. }
            | Error::InvalidValue { origin, .. }
            | Error::MissingValue { origin, .. }
            | Error::Job { origin, .. }
            | Error::Line { origin, .. } => Some(origin),
            Error::JobFile { .. } | Error::NoJobs => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownOption { option, slip_of, nearest, close, origin } => {
                write!(f, "{origin}: unknown option `{}`; ", origin.spelling(option))?;
                match (slip_of, nearest) {
                    (Some(meant), _) => {
                        write!(f, "if `{}` was meant, it is ", origin.spelling(meant))?;
                        unsupported(f, *nearest, origin)
                    }
                    (None, Some(nearest)) if *close => write!(f, "did you mean `{}`?", origin.spelling(nearest)),
                    (None, nearest) => {
                        f.write_str("neither fio nor mglru has it; ")?;
                        nearest_supported(f, *nearest, origin)
                    }
                }
            }
            Error::UnsupportedOption { option, nearest, origin } => {
                write!(f, "{origin}: option `{}` is ", origin.spelling(option))?;
                unsupported(f, *nearest, origin)
            }
            Error::UnsupportedValue { option, value, advice, origin } => {
                let spelled = origin.spelling(option);
                write!(f, "{origin}: `{spelled}={value}` is fio's, but mglru does not support it yet; {advice}")
            }
            Error::InvalidValue { option, value, reason, origin } => {
                write!(f, "{origin}: `{}={value}`: {reason}", origin.spelling(option))
            }
            Error::MissingValue { option, help, origin } => {
                let spelled = origin.spelling(option);
                write!(f, "{origin}: option `{spelled}` needs a value (`{spelled}=...`): {help}")
            }
            Error::Job { job, reason, origin } => write!(f, "{origin}: job `{job}`: {reason}"),
            Error::Line { reason, origin } => write!(f, "{origin}: {reason}"),
            Error::JobFile { path, source } => {
                write!(f, "job file `{path}`: {source}; options begin with `--`, anything else is a job file")
            }
            Error::NoJobs => f.write_str(
                "no job: give one with `--name=NAME --rw=randread --size=1g`, or name a job file with a [section]",
            ),
        }
    }
}

fn unsupported(f: &mut fmt::Formatter<'_>, nearest: Option<&str>, origin: &Origin) -> fmt::Result {
    f.write_str("fio's, but mglru does not support it yet; ")?;
    nearest_supported(f, nearest, origin)
}

fn nearest_supported(f: &mut fmt::Formatter<'_>, nearest: Option<&str>, origin: &Origin) -> fmt::Result {
    match nearest {
        Some(nearest) => write!(f, "the nearest supported option is `{}`", origin.spelling(nearest)),
        None => f.write_str("no supported option comes near it, remove it"),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::JobFile { source, .. } => Some(source),
            _ => None,
        }
    }
}
