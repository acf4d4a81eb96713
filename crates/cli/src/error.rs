//! Why the program ends with another status than 0, and how it says so.

pub use mglru_lab::Error as Failure;
use std::io::Write;
use std::process::ExitCode;

/// Tells it on stderr. The exit status: 2 for wrong usage, 1 where the work failed.
pub fn tell(failure: &Failure) -> ExitCode {
    // Without a stderr, the status has to do.
    let _ = writeln!(std::io::stderr(), "mglru: {}", failure.text().trim_end());
    ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
}

/// Arguments that make no sense.
pub fn of_arguments(error: &clap::Error) -> Failure {
    let text = error.to_string();
    Failure::usage(text.strip_prefix("error: ").unwrap_or(&text))
}
