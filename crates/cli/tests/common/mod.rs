//! Running the program as a user does.

#![allow(dead_code, reason = "every test file uses its part")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// `mglru` with arguments, split at blanks, in a directory.
pub fn command(directory: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mglru"));
    command.current_dir(directory).args(arguments.split_whitespace());
    command
}

/// Runs it.
pub fn mglru(directory: &Path, arguments: &str) -> Output {
    command(directory, arguments).output().expect("the program starts")
}

/// Runs it and expects success. Its stdout.
#[track_caller]
pub fn done(directory: &Path, arguments: &str) -> String {
    let output = mglru(directory, arguments);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments}\n{stdout}\n{stderr}");
    assert_eq!(stderr, "", "nothing on stderr where that is no terminal");
    stdout
}

/// Runs it with `--json` and expects success. The document, which is all of stdout.
#[track_caller]
pub fn document(directory: &Path, arguments: &str) -> Value {
    serde_json::from_str(&done(directory, &format!("{arguments} --json"))).expect("one document")
}

/// Runs it and expects a failure with this status. Its stderr.
#[track_caller]
pub fn fails(directory: &Path, arguments: &str, status: i32) -> String {
    let output = mglru(directory, arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments}\n{}\n{stderr}", text(&output.stdout));
    assert!(stderr.starts_with("mglru: ") && !stderr.contains("panicked"), "{stderr}");
    stderr
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
