//! Helpers that run the program.

#![allow(dead_code, reason = "every test file uses its part")]

pub mod command_lines;

use serde_json::Value;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A folder of `../shared` or of `MGLRU_SHARED`; if it is missing, a message and `None`.
pub fn shared(folder: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("MGLRU_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join(folder);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: there is no {}", path.display());
    None
}

/// Says that a test skips, past the test harness, which hides what passing tests print.
pub fn skipped(reason: &str) {
    io::stderr().write_all(format!("skipped: {}\n", reason.trim()).as_bytes()).unwrap();
}

/// `mglru` with arguments, split at blanks, in a directory.
pub fn command(directory: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mglru"));
    command.current_dir(directory).args(arguments.split_whitespace());
    command
}

/// Runs `mglru`.
pub fn mglru(directory: &Path, arguments: &str) -> Output {
    command(directory, arguments).output().expect("the program starts")
}

/// Runs `mglru`, expects success, and returns stdout.
#[track_caller]
pub fn done(directory: &Path, arguments: &str) -> String {
    let output = mglru(directory, arguments);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments}\n{stdout}\n{stderr}");
    assert_eq!(stderr, "", "nothing on stderr where that is no terminal");
    stdout
}

/// Runs `mglru` with a terminal as stdout, expects success, and returns what it printed there.
pub fn on_terminal(directory: &Path, arguments: &str) -> String {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("the terminal's other end");
    let other_end = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("it");
    let mut terminal = fs::File::from(terminal);
    let printed = std::thread::spawn(move || {
        let mut printed = Vec::new();
        // Reading ends with an error when the program has closed its end.
        let _ = terminal.read_to_end(&mut printed);
        printed
    });
    // Dropping the command closes its end of the terminal.
    let status = command(directory, arguments).stdout(other_end).status().expect("the program starts");
    assert!(status.success(), "{arguments}");
    text(&printed.join().expect("no panic")).replace('\r', "")
}

/// Runs `mglru` with `--json`, expects success, and returns the document, which is all of stdout.
#[track_caller]
pub fn document(directory: &Path, arguments: &str) -> Value {
    serde_json::from_str(&done(directory, &format!("{arguments} --json"))).expect("one document")
}

/// Runs `mglru`, expects this status, and returns stderr.
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

/// Page numbers skewed towards low ones, by an independent generator.
pub fn skewed(accesses: u64, pages: u64) -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    let mut draw = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % pages
    };
    (0..accesses).map(move |_| draw().min(draw()))
}

pub fn lines(folder: &Path, name: &str, lines: impl Iterator<Item = String>) {
    fs::write(folder.join(name), lines.map(|line| line + "\n").collect::<String>()).unwrap();
}

pub fn words(folder: &Path, name: &str, words: impl Iterator<Item = u32>) {
    fs::write(folder.join(name), words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
}

/// A folder with `skewed.txt`: 20,000 accesses, every seventh written, to 1,000 pages.
pub fn folder() -> tempfile::TempDir {
    folder_of(20_000)
}

/// The same, with so many accesses.
pub fn folder_of(accesses: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let line = |(n, page): (usize, u64)| format!("{} {page} 1", if n % 7 == 6 { 'W' } else { 'R' });
    lines(folder.path(), "skewed.txt", skewed(accesses, 1000).enumerate().map(line));
    folder
}

/// The document without fields that depend on the machine's speed.
pub fn timeless(mut document: Value) -> Value {
    for run in document["runs"].as_array_mut().unwrap() {
        let run = run.as_object_mut().unwrap();
        assert!(run.remove("seconds").unwrap().as_f64().unwrap() >= 0.0);
        assert!(run.remove("accesses_per_second").unwrap().as_u64().unwrap() > 0);
    }
    document
}

/// The only run of a document.
pub fn run(document: Value) -> Value {
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    runs[0].clone()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// `reproduce workingset lru-lock --quick --runs 1`, with its page and its figures.
pub struct Reproduced {
    /// The printed document.
    pub document: Value,
    /// The page.
    pub html: String,
    /// Each figure: an SVG.
    pub figures: Vec<String>,
}

/// Runs the command once for all tests.
pub fn reproduced() -> &'static Reproduced {
    static ONCE: OnceLock<Reproduced> = OnceLock::new();
    ONCE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let options = "--quick --runs 1 --report page.html --figures figures";
        let document = document(folder.path(), &format!("reproduce workingset lru-lock {options}"));
        let figures = folder.path().join("figures").read_dir().unwrap();
        let read = |path| fs::read_to_string(path).unwrap();
        Reproduced {
            document,
            html: read(folder.path().join("page.html")),
            figures: figures.map(|entry| read(entry.unwrap().path())).collect(),
        }
    })
}

/// `ablate skewed.txt --memory 200p`: the document, once for all tests.
pub fn ablated() -> &'static Value {
    static ONCE: OnceLock<Value> = OnceLock::new();
    ONCE.get_or_init(|| document(folder().path(), "ablate skewed.txt --memory 200p"))
}
