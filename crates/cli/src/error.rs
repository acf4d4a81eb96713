//! Failures, as stderr and the exit status report them.

use crate::table::printable;
pub use mglru_lab::Error as Failure;
use std::fmt::Display;
use std::io::Write;
use std::num::{IntErrorKind, ParseIntError};

/// Prints a failure on stderr. The exit status is 2 for wrong usage and 1 if the work failed.
pub fn print(failure: &Failure) -> u8 {
    say(failure.text().trim_end());
    if matches!(failure, Failure::Usage(_)) { 2 } else { 1 }
}

/// Prints a message on stderr. If its reader left, as in `2>&1 | head`, the work goes on.
pub fn say(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "mglru: {}", printable(&message.to_string()));
}

/// Wrong arguments, in clap's words: the help if a command is missing.
pub fn of_arguments(error: &clap::Error) -> Failure {
    let text = error.to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage(format!("name a command\n\n{}", text.trim_end()));
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let reason = std::error::Error::source(error).and_then(|reason| reason.downcast_ref::<ParseIntError>());
    // Those of the standard library name no remedy, such as "invalid digit found in string".
    Failure::usage(reason.map_or_else(
        || text.to_owned(),
        |reason| {
            let expected = match reason.kind() {
                IntErrorKind::PosOverflow => "the number is too large",
                _ => "expected a whole number",
            };
            text.replacen(&format!(": {reason}"), &format!(": {expected}"), 1)
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_numbers_say_what_is_expected() {
        let command = || {
            let runs =
                clap::Arg::new("runs").long("runs").value_parser(clap::value_parser!(u32).range(1..=9));
            let seed = clap::Arg::new("seed").long("seed").value_parser(clap::value_parser!(u64));
            clap::Command::new("mglru").args([runs, seed])
        };
        for (option, value, expected) in [
            ("--runs", "x", "expected a whole number"),
            ("--seed", "1.5", "expected a whole number"),
            ("--seed", "99999999999999999999", "the number is too large"),
            ("--runs", "99999999999999999999", "the number is too large"),
            ("--runs", "10", "10 is not in 1..=9"),
        ] {
            let error = command().try_get_matches_from(["mglru", option, value]).unwrap_err();
            let text = of_arguments(&error).text().to_owned();
            assert!(text.starts_with("invalid value") && text.contains(expected), "{option} {value}: {text}");
        }
    }
}
