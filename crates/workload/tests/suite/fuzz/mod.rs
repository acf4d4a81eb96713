//! Mutated inputs for every parser: each returns without a panic and within the memory limit.
//!
//! ```text
//! tests/corpus/PARSER/* ──► mutate.rs ──► the parser ──► a value or an error with a text
//!                    seed = parser, case
//! ```
//!
//! A case depends on its number and on the corpus only, so the command that a failure prints
//! repeats it. An input that found a fault is added to the corpus. Mutation without coverage is
//! enough here: the formats are shallow, and the corpus has a sample of each construct. It needs no
//! special compiler, so it runs with all other tests.
//!
//! `MGLRU_FUZZ=N` sets the number of cases per parser, 10^4 by default, which takes 13 s of
//! processor time; 10^5 takes two minutes (`make fuzz`: 10^7).
//! `MGLRU_FUZZ_CASE=N` runs one case, and with `MGLRU_FUZZ` as many from there on.

mod mutate;

use cap::Cap;
use mglru_core::{Core, Options, Silent, Time, UNLIMITED};
use mglru_workload::fio::{Invocation, jobs_of_text};
use mglru_workload::scenario::Scenario;
use mglru_workload::trace::{self, Format, OpenOptions, Record, TraceError};
use mglru_workload::{Load, Random, size};
use mutate::Samples;
use std::alloc::System;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Most memory that the test process may take at any time, beyond what it had at the start: twice
/// the limit for the instances of jobs, for tests that run at the same time.
const MEMORY_BYTES_MAX: usize = 256 << 20;
const CASES_DEFAULT: u64 = 10_000;
/// Batches of a trace that are read. A damaged count may ask for billions of pages.
const BATCHES_MAX: usize = 4;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// Feeds the samples of a parser, and then mutations of them, to `parse`.
fn fuzz(parser: &str, parse: impl Fn(&str, &[u8], &mut Random)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(parser);
    let files = std::fs::read_dir(&folder).expect("the corpus is in the repository");
    let mut files: Vec<(String, Vec<u8>)> = files
        .map(|file| file.expect("a readable folder").path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    let samples = Samples::new(files);
    let seed = parser.bytes().fold(0, |seed, byte| seed << 8 ^ u64::from(byte));
    let run = |case: u64| {
        let mut random = Random::stream(seed, case);
        let sample = samples.files.get(case as usize).map(|(name, bytes)| (name.as_str(), bytes.clone()));
        let (name, bytes) = sample.unwrap_or_else(|| samples.mutated(&mut random));
        let parsed = catch_unwind(AssertUnwindSafe(|| parse(name, &bytes, &mut random)));
        let grown = ALLOCATOR.max_allocated();
        if parsed.is_ok() && grown < MEMORY_BYTES_MAX {
            return;
        }
        let kept = std::env::temp_dir().join(format!("mglru-fuzz-{parser}-{case}-{name}"));
        let _ = std::fs::write(&kept, &bytes);
        eprintln!(
            "{parser}, case {case}, a mutation of {name}, kept as {}; memory so far: {grown} bytes at most\n\
             repeat it: MGLRU_FUZZ_CASE={case} cargo test -p mglru-workload --test suite -- fuzz::{}",
            kept.display(),
            parser.replace('-', "_"),
        );
        parsed.unwrap_or_else(|panic| resume_unwind(panic));
        panic!("the process took {grown} bytes of memory, more than {MEMORY_BYTES_MAX}");
    };
    let first = number("MGLRU_FUZZ_CASE");
    let count = number("MGLRU_FUZZ").unwrap_or(if first.is_some() { 1 } else { CASES_DEFAULT });
    (first.unwrap_or(0)..).take(count as usize).for_each(run);
}

/// Text that a parser gets: damaged UTF-8 is replaced, as a file with it is refused before.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(error: &dyn std::fmt::Display) {
    assert!(!error.to_string().is_empty());
}

/// The first records of a trace, and the error that ended it.
fn records(name: &str, bytes: &[u8], options: OpenOptions) -> (Vec<Record>, Option<TraceError>) {
    let mut records = Vec::new();
    let mut reader = match trace::from_reader(name, Box::new(Cursor::new(bytes.to_vec())), options) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    let mut batch = Vec::new();
    for _ in 0..BATCHES_MAX {
        match reader.next_batch(&mut batch) {
            Ok(0) => break,
            Ok(_) => records.extend_from_slice(&batch),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

#[test]
fn traces() {
    fuzz("traces", |name, bytes, random| {
        let (format, name) = name.split_once('.').expect("FORMAT.NAME");
        let format = match random.below(8) {
            0 => Format::ALL[random.below(Format::ALL.len() as u64) as usize],
            _ => format.parse().expect("a format"),
        };
        let unit_bytes = (format == Format::Arc).then(|| 1 << random.below(21));
        let options = OpenOptions { format: Some(format), unit_bytes, ..OpenOptions::default() };
        let (strict, error) = records(name, bytes, options);
        if let Some(error) = error {
            said(&error);
        }
        let (lossy, _) = records(name, bytes, OpenOptions { lossy: true, ..options });
        assert!(lossy.starts_with(&strict), "lossy reading lost {} good records", strict.len());
        if random.below(4) == 0 {
            records(name, bytes, OpenOptions::default());
        }
    });
}

#[test]
fn fio_jobs() {
    fuzz("fio-jobs", |name, bytes, _| match jobs_of_text(&text(bytes), Path::new(name), 1) {
        Ok(jobs) => assert!(!jobs.is_empty() && jobs.iter().all(|job| !job.files.is_empty())),
        Err(error) => said(&error),
    });
}

#[test]
fn fio_options() {
    fuzz("fio-options", |_, bytes, _| {
        let text = text(bytes);
        // An argument without dashes is a job file, and those are read.
        let arguments =
            text.lines().map(|line| if line.starts_with('-') { line.to_owned() } else { format!("-{line}") });
        match Invocation::parse(&arguments.collect::<Vec<_>>()) {
            Ok(invocation) => assert!(invocation.job_files.is_empty()),
            Err(error) => said(&error),
        }
    });
}

#[test]
fn loads() {
    fuzz("loads", |_, bytes, random| {
        let text = text(bytes);
        let _ = size::parse(&text).map_err(|error| said(&error));
        match Load::parse(&text) {
            Ok(load) => {
                assert_eq!(Load::parse(&load.to_string()), Ok(load), "{load}");
                let _ = load.check(random.below(20_000) as u32).map_err(|error| said(&error));
                assert!(load.memory_bytes() < 1 << 40);
            }
            Err(error) => said(&error),
        }
    });
}

#[test]
fn scenarios() {
    fuzz("scenarios", |name, bytes, _| match Scenario::parse(&text(bytes), Path::new(name), None) {
        Ok(scenario) => assert!(!scenario.jobs.is_empty()),
        Err(error) => said(&error),
    });
}

#[test]
fn controls() {
    let core = Core::new(Options::new(64), Time::ZERO);
    for path in [("", "a"), ("a", "b")] {
        let parent = core.memcgs().find(path.0).unwrap();
        core.add_child(parent, path.1, UNLIMITED, Time::ZERO).unwrap();
    }
    fuzz("controls", |_, bytes, _| {
        let text = text(bytes);
        let (path, value) = text.split_once('\n').unwrap_or((&text, ""));
        if let Err(error) = core.read_control(path, Time::ZERO) {
            said(&error);
        }
        match core.write_control(path, value, 0) {
            Ok(write) => {
                if let Err(error) = write.check() {
                    said(&error);
                }
                write.cancel(&core, &Silent);
            }
            Err(error) => said(&error),
        }
    });
}
