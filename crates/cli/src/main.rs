//! The command `mglru`: its arguments, its commands and their output are in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(mglru_cli::main(std::env::args_os()))
}
