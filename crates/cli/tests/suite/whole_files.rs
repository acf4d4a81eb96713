//! Files of results appear whole: a run that fails or is interrupted leaves the old one.

use crate::common::{command, done, fails, folder, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

/// A scenario whose only job replays `trace`.
fn scenario(folder: &Path, trace: &str) {
    let text = format!("[machine]\nmemory = \"1MiB\"\n[[job]]\ntrace = \"{trace}\"\n");
    fs::write(folder.join("s.toml"), text).unwrap();
}

fn pipe(folder: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

fn start(folder: &Path, arguments: &str) -> Child {
    let mut command = command(folder, arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for an unfinished file, sends the signal, and expects its status.
fn ended_by(mut child: Child, folder: &Path, signal: Signal) {
    while !names(folder).iter().any(|name| name.starts_with(".unfinished-")) {
        assert_eq!(child.try_wait().unwrap(), None, "it waits for its input");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + signal.as_raw()));
    assert_eq!(text(&output.stderr), "mglru: interrupted; temporary files are removed\n");
}

#[test]
fn events_of_a_failed_run_leave_the_old_file() {
    let here = folder();
    scenario(here.path(), "damaged.txt");
    fs::write(here.path().join("damaged.txt"), "R 1 1\nR 2 1\nR x 1\n").unwrap();
    fs::write(here.path().join("old.jsonl"), "old").unwrap();
    fails(here.path(), "run s.toml --events old.jsonl", 1);
    fails(here.path(), "run s.toml --events new.jsonl", 1);
    assert_eq!(fs::read_to_string(here.path().join("old.jsonl")).unwrap(), "old");
    assert_eq!(names(here.path()), ["damaged.txt", "old.jsonl", "s.toml", "skewed.txt"]);
    scenario(here.path(), "skewed.txt");
    done(here.path(), "run s.toml --events old.jsonl");
    assert!(fs::read_to_string(here.path().join("old.jsonl")).unwrap().len() > 1000);
}

#[test]
fn events_of_an_interrupted_run_leave_the_old_file() {
    let here = tempfile::tempdir().unwrap();
    scenario(here.path(), "pipe");
    pipe(here.path());
    fs::write(here.path().join("old.jsonl"), "old").unwrap();
    ended_by(start(here.path(), "run s.toml --events old.jsonl"), here.path(), Signal::INT);
    assert_eq!(fs::read_to_string(here.path().join("old.jsonl")).unwrap(), "old");
    assert_eq!(names(here.path()), ["old.jsonl", "pipe", "s.toml"]);
}

/// `nohup` has the signal ignored. The loss of the terminal then does not end the program.
#[test]
fn a_loss_of_the_terminal_that_is_ignored_stays_ignored() {
    let here = tempfile::tempdir().unwrap();
    scenario(here.path(), "pipe");
    pipe(here.path());
    let program = env!("CARGO_BIN_EXE_mglru");
    let line = format!("trap '' HUP; exec {program} run s.toml --events new.jsonl");
    let mut shell = std::process::Command::new("sh");
    shell.current_dir(here.path()).args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = shell.spawn().expect("a shell");
    while !names(here.path()).iter().any(|name| name.starts_with(".unfinished-")) {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    ended_by(child, here.path(), Signal::TERM);
    assert_eq!(names(here.path()), ["pipe", "s.toml"]);
}

#[test]
fn an_interrupted_conversion_leaves_nothing() {
    let here = tempfile::tempdir().unwrap();
    pipe(here.path());
    let child = start(here.path(), "trace convert pipe new.bin.zst");
    let mut input = fs::File::options().write(true).open(here.path().join("pipe")).unwrap();
    // More than what recognises the format, and no end.
    input.write_all("R 1 1\n".repeat(100_000).as_bytes()).unwrap();
    ended_by(child, here.path(), Signal::TERM);
    assert_eq!(names(here.path()), ["pipe"]);
}

#[test]
fn an_interrupted_generation_leaves_nothing() {
    let here = tempfile::tempdir().unwrap();
    let child = start(here.path(), "trace generate sweep new.bin --accesses 1000000000000");
    ended_by(child, here.path(), Signal::INT);
    assert_eq!(names(here.path()), [""; 0]);
}

#[test]
fn reports_and_results_of_a_failed_run_leave_the_old_file() {
    let here = tempfile::tempdir().unwrap();
    fails(here.path(), "demo --size 0 --report new.html", 2);
    assert_eq!(names(here.path()), [""; 0]);
    fs::write(here.path().join("old.txt"), "old").unwrap();
    let job = "fio --name=job --size=1m --rw=read --memory=16MiB";
    for name in ["old.txt", "new.txt"] {
        fails(here.path(), &format!("{job} --filename=/no/such/file --output={name}"), 1);
    }
    assert_eq!(names(here.path()), ["old.txt"]);
    assert_eq!(fs::read_to_string(here.path().join("old.txt")).unwrap(), "old");
    done(here.path(), &format!("{job} --output=old.txt"));
    assert!(fs::read_to_string(here.path().join("old.txt")).unwrap().contains("READ:"));
}
