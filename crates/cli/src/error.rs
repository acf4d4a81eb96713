//! Failures, as stderr and the exit status report them.

use crate::table::printable;
pub use mglru_lab::Error as Failure;
use std::io::Write;

/// Prints a failure on stderr. The exit status is 2 for wrong usage and 1 if the work failed.
pub fn print(failure: &Failure) -> u8 {
    // Without a stderr, the status has to do.
    let _ = writeln!(std::io::stderr(), "mglru: {}", printable(failure.text().trim_end()));
    if matches!(failure, Failure::Usage(_)) { 2 } else { 1 }
}

/// Wrong arguments, in clap's words: the help if a command is missing.
pub fn of_arguments(error: &clap::Error) -> Failure {
    let text = error.to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage(format!("name a command\n\n{}", text.trim_end()));
    }
    Failure::usage(text.strip_prefix("error: ").unwrap_or(&text))
}
