//! Errors in jobs, with advice.

use super::setting::Origin;
use std::fmt;

/// A command line or job file that cannot be run. All but
/// [`Error::JobFile`] are wrong usage: exit status 2.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The option is unknown to fio and to this project.
    UnknownOption {
        /// Name of the option, without dashes.
        option: String,
        /// An unsupported option of fio's that differs by one or two typing errors, if any.
        slip_of: Option<&'static str>,
        /// The nearest supported option: in meaning to `slip_of`, or else in spelling.
        nearest: Option<&'static str>,
        /// Whether `nearest` itself differs by at most two typing errors.
        close: bool,
        /// Place of the option.
        origin: Origin,
    },
    /// fio has the option, this project does not yet.
    UnsupportedOption {
        /// Name of the option, without dashes.
        option: String,
        /// The supported option nearest in meaning.
        nearest: Option<&'static str>,
        /// Place of the option.
        origin: Origin,
    },
    /// fio has the value, this project does not yet.
    UnsupportedValue {
        /// Name of the option, without dashes.
        option: String,
        /// The value as typed.
        value: String,
        /// The supported alternatives.
        advice: String,
        /// Place of the option.
        origin: Origin,
    },
    /// The value is invalid.
    InvalidValue {
        /// Name of the option, without dashes.
        option: String,
        /// The value as typed.
        value: String,
        /// Why it is invalid, and a valid form.
        reason: String,
        /// Place of the option.
        origin: Origin,
    },
    /// The option requires a value and has none.
    MissingValue {
        /// Name of the option, without dashes.
        option: String,
        /// Meaning of the value.
        help: &'static str,
        /// Place of the option.
        origin: Origin,
    },
    /// The options of a job contradict each other, or a required one is missing.
    Job {
        /// Name of the job.
        job: String,
        /// The problem, and what to do.
        reason: String,
        /// Start of the job.
        origin: Origin,
    },
    /// A line of a job file is neither a section nor an option, or is misplaced.
    Line {
        /// The problem, and what to do.
        reason: String,
        /// Place of the line.
        origin: Origin,
    },
    /// A job file cannot be read.
    JobFile {
        /// The file as the user named it.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The command line has no job.
    NoJobs,
}

impl Error {
    /// Place of the error, if it has a single one. The error's text then begins with it and a
    /// colon.
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
