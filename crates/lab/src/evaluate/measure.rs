//! Runs of the loads, and their counts.

use super::loads::{Load, Size};
use super::{EvaluationRequest, Setting};
use crate::effect::Count;
use crate::error::Error;
use crate::memory::{self, Room};
use crate::parallel;
use crate::replay::memory::Swap;
use crate::replay::run::Plan;
use crate::trace_file::TraceFile;
use crate::watch::{Stage, Unit, Watch};
use mglru_core::Mechanisms;
use mglru_workload::Random;
use mglru_workload::trace::{PageAccess, Record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Share of the accesses before counting starts.
const WARM: u64 = 4;
/// Largest share by which a seed varies the memory, so that loads without chance vary, too.
const MEMORY_SHARE: f64 = 0.01;

/// Counts of the presets of one build, to be compared with those of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of accesses of each load.
    pub accesses: u64,
    /// Number of pages of each load.
    pub pages: u64,
    /// The first seed.
    pub seed: u64,
    /// Checksums of the accesses that this seed draws, by load. Older builds have none.
    #[serde(default)]
    pub drawn: BTreeMap<String, u32>,
    /// The rows.
    pub rows: Vec<CountRow>,
}

/// Counts of a load under a preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountRow {
    /// Name of the load.
    pub load: String,
    /// Name of the preset.
    pub preset: String,
    /// A count per seed.
    pub counts: Vec<Count>,
}

/// Counts the loads of a request under its presets as they are.
///
/// # Errors
/// A load is unknown or cannot be run.
pub fn counts(request: &EvaluationRequest, watch: &dyn Watch) -> Result<Counts, Error> {
    let loads = request.loads()?;
    let presets: Vec<Mechanisms> = request.presets.iter().map(|&preset| Mechanisms::preset(preset)).collect();
    let measured = measure(&loads, &presets, request, watch)?;
    let mut rows = Vec::new();
    for (preset, of_preset) in request.presets.iter().zip(measured) {
        rows.extend(loads.iter().zip(of_preset).map(|(load, counts)| CountRow {
            load: load.name.to_owned(),
            preset: preset.name().to_owned(),
            counts,
        }));
    }
    let drawn = loads.iter().map(|load| (load.name.to_owned(), drawn(load, request))).collect();
    let Size { accesses, pages } = request.size;
    Ok(Counts { accesses, pages, seed: request.seed, drawn, rows })
}

/// A checksum of the accesses that a request's first seed draws.
fn drawn(load: &Load, request: &EvaluationRequest) -> u32 {
    let records = load.records(request.size, request.seed);
    records.iter().filter_map(Record::access).fold(0, |sum, access| {
        let PageAccess { page, write, mapped, anon, inside, fault } = access;
        let flags = [write, mapped, anon, inside, fault].map(u8::from);
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &page.to_le_bytes()), &flags)
    })
}

impl Counts {
    /// Has another build of the command `mglru` count the loads of a request, which may take
    /// `limit`.
    ///
    /// # Errors
    /// A load is unknown, or the build cannot be run, fails, takes too long, or does not know how
    /// to count.
    pub(super) fn of_build(
        binary: &Path,
        request: &EvaluationRequest,
        limit: Limit,
        watch: &dyn Watch,
    ) -> Result<Counts, Error> {
        let loads = request.loads()?.len();
        let runs = loads * request.presets.len() * request.runs.max(1) as usize;
        let name = binary.display();
        let what = format!("{runs} runs by {name}");
        let _stage = Stage::begin(watch, &what, 1, Unit::Steps);
        let arguments = Counts::arguments(request);
        // A name alone is a file of this folder, as everywhere else, and not a program of `PATH`.
        let program = if binary.components().count() == 1 { &Path::new(".").join(binary) } else { binary };
        let repeats = format!("`{} {}` repeats it", program.display(), arguments.join(" "));
        let mut command = Command::new(program);
        command.args(&arguments);
        let look = |time: Duration| {
            watch.check()?;
            if time >= limit.most {
                return Err(Error::work(format_args!(
                    "{name}: it has no counts after {:.1} s and was stopped, as this build took {:.1} s; {repeats}",
                    time.as_secs_f64(),
                    limit.own.as_secs_f64()
                )));
            }
            let (time, own) = (time.as_secs(), limit.own.as_secs_f64());
            watch.note(&format!("{what}, {time} s (this build took {own:.1} s)"));
            Ok(())
        };
        let Answer { status, printed, said } = Answer::of(command, binary, look)?;
        if !status.success() {
            let said = if said.is_empty() { status.to_string() } else { said };
            let advice = match status.code() {
                // Its command line knows less than that of this build.
                Some(2) => "rebase its branch on this build's revision",
                _ => &repeats,
            };
            return Err(Error::work(format_args!("{name}: it cannot count the loads ({said}); {advice}")));
        }
        serde_json::from_slice(&printed).map_err(|error| {
            Error::work(format_args!(
                "{name}: its answer is not what this build counts ({error}); name the program `mglru` of a \
                 branch, and rebase the branch on this build's revision"
            ))
        })
    }

    /// The arguments with which another build counts the loads of a request.
    fn arguments(request: &EvaluationRequest) -> Vec<String> {
        let presets: Vec<&str> = request.presets.iter().map(|preset| preset.name()).collect();
        let mut arguments: Vec<String> =
            ["evaluate", "--counts", "--preset"].into_iter().map(str::to_owned).collect();
        arguments.push(presets.join(","));
        if !request.loads.is_empty() {
            arguments.extend(["--load".to_owned(), request.loads.join(",")]);
        }
        for (option, value) in [
            ("--runs", u64::from(request.runs)),
            ("--seed", request.seed),
            ("--accesses", request.size.accesses),
            ("--pages", request.size.pages),
        ] {
            arguments.extend([option.to_owned(), value.to_string()]);
        }
        arguments
    }

    /// The counts by setting, load and seed.
    pub(super) fn of(
        &self,
        loads: &[Load],
        settings: &[Setting],
        request: &EvaluationRequest,
    ) -> Result<Vec<Vec<Vec<Count>>>, Error> {
        let asked = (request.size.accesses, request.size.pages, request.seed);
        if (self.accesses, self.pages, self.seed) != asked {
            return Err(Error::usage(
                "the other build counted loads of another size or seed; run it with the same options",
            ));
        }
        let differs =
            |load: &&Load| self.drawn.get(load.name).is_some_and(|&sum| sum != drawn(load, request));
        if let Some(load) = loads.iter().find(differs) {
            return Err(Error::work(format_args!(
                "the other build draws other accesses for `{}`, so its counts say nothing; rebase its branch on this \
                 build's revision",
                load.name
            )));
        }
        let of = |setting: &Setting, load: &Load| {
            let row = self.rows.iter().find(|row| row.load == load.name && row.preset == setting.name);
            let counts =
                row.map(|row| &row.counts).filter(|counts| counts.len() == request.runs.max(1) as usize);
            counts.cloned().ok_or_else(|| {
                Error::usage(format_args!(
                    "the other build has no {} runs of `{}` under {}; run it with the same options",
                    request.runs, load.name, setting.name
                ))
            })
        };
        settings
            .iter()
            .map(|setting| loads.iter().map(|load| of(setting, load)).collect::<Result<_, _>>())
            .collect()
    }
}

/// The error about another build that cannot be run.
pub(super) fn cannot_be_run(binary: &Path, error: &io::Error) -> Error {
    Error::work(format_args!(
        "{}: cannot be run: {error}; name the program `mglru` of another build, such as \
         ../branch/target/release/mglru",
        binary.display()
    ))
}

/// How long another build may count what this build has counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// The time that this build took.
    own: Duration,
    most: Duration,
}

impl Limit {
    /// A minute, and a hundred times as long as this build took: the other one may be built without
    /// optimisation.
    pub fn after(own: Duration) -> Limit {
        Limit { own, most: Duration::from_secs(60).saturating_add(own.saturating_mul(100)) }
    }
}

/// Most bytes of an answer. Counts of a thousand seeds of all loads under all presets take a tenth.
const PRINTED_MAX: u64 = 64 << 20;
/// Bytes of the errors of another program that are repeated.
const SAID_MAX: u64 = 2000;
/// Time between looks at another program.
const TICK: Duration = Duration::from_millis(20);

/// The output of another program.
struct Answer {
    status: ExitStatus,
    printed: Vec<u8>,
    /// The beginning of its errors.
    said: String,
}

impl Answer {
    /// Runs a program to its end. `look` is told the time so far, again and again; its error stops
    /// the program.
    fn of(
        mut command: Command,
        binary: &Path,
        look: impl Fn(Duration) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let failed = |error: io::Error| cannot_be_run(binary, &error);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        let mut errors = child.stderr.take().expect("it is a pipe");
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = errors.by_ref().take(SAID_MAX).read_to_end(&mut said);
            // The program would wait for room in the pipe.
            let _ = io::copy(&mut errors, &mut io::sink());
            String::from_utf8_lossy(&said).trim().to_owned()
        });
        // A program that prints more is ended by its closed pipe.
        let output = child.stdout.take().expect("it is a pipe");
        let printed = std::thread::spawn(move || {
            let mut printed = Vec::new();
            output.take(PRINTED_MAX + 1).read_to_end(&mut printed).map(|_| printed)
        });
        let status = loop {
            let status = child.try_wait().map_err(failed)?;
            // Other programs that it began may have its pipes.
            if let Some(status) = status.filter(|_| said.is_finished() && printed.is_finished()) {
                break status;
            }
            if let Err(error) = look(begun.elapsed()) {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Err(error);
            }
            std::thread::sleep(TICK);
        };
        let joined = "reading does not panic";
        let printed = printed.join().expect(joined).map_err(failed)?;
        if printed.len() as u64 > PRINTED_MAX {
            return Err(failed(io::Error::other("it prints without end")));
        }
        Ok(Answer { status, printed, said: said.join().expect(joined) })
    }
}

/// Counts by mechanisms, load and seed.
pub(super) fn measure(
    loads: &[Load],
    mechanisms: &[Mechanisms],
    request: &EvaluationRequest,
    watch: &dyn Watch,
) -> Result<Vec<Vec<Vec<Count>>>, Error> {
    let seeds: Vec<u64> =
        (0..u64::from(request.runs.max(1))).map(|run| request.seed.wrapping_add(run)).collect();
    // One trace serves all mechanisms.
    let tasks: Vec<(Load, u64)> =
        loads.iter().flat_map(|&load| seeds.iter().map(move |&seed| (load, seed))).collect();
    let runs = (tasks.len() * mechanisms.len()) as u64;
    let threads = parallel::threads();
    let instead = "choose fewer accesses or pages";
    Room::for_runs(threads.min(tasks.len())).check(needed_bytes(request.size), "the loads", instead)?;
    let stage = Stage::begin(watch, &format!("{runs} runs"), runs, Unit::Steps);
    let counted = parallel::all(&tasks, threads, |_, &(load, seed)| {
        let trace = TraceFile::of_records(load.name, load.records(request.size, seed))?;
        let memory_pages = memory_pages(request.size, seed, request.seed);
        let count = |&mechanisms: &Mechanisms| {
            let count = run(&load, &trace, mechanisms, memory_pages, seed)?;
            stage.advance(1)?;
            Ok(count)
        };
        mechanisms.iter().map(count).collect::<Result<Vec<Count>, Error>>()
    })?;
    let of = |number: usize| {
        counted
            .chunks(seeds.len())
            .map(|of_load| of_load.iter().map(|counts| counts[number]).collect())
            .collect()
    };
    Ok((0..mechanisms.len()).map(of).collect())
}

/// Memory of this machine that a run needs at most, in bytes: its records, and a machine that swaps
/// all pages.
fn needed_bytes(size: Size) -> u64 {
    let records = size.accesses.saturating_mul(size_of::<Record>() as u64);
    let machine = memory::of_machine(size.memory_pages()).saturating_add(memory::of_swap(size.pages));
    records.saturating_add(machine)
}

/// The first seed has the memory of the size. The others vary it.
fn memory_pages(size: Size, seed: u64, first_seed: u64) -> u64 {
    let pages = size.memory_pages();
    if seed == first_seed {
        return pages;
    }
    let share = MEMORY_SHARE * (2.0 * Random::stream(seed, 0xE7A2).unit() - 1.0);
    (pages as f64 * (1.0 + share)).round() as u64
}

fn run(
    load: &Load,
    trace: &TraceFile,
    mechanisms: Mechanisms,
    memory_pages: u64,
    seed: u64,
) -> Result<Count, Error> {
    let distinct = trace.counts(&crate::Unwatched)?;
    let swap = Swap { size: load.has_anon().then(|| "100%".parse().expect("a share")), ..Swap::default() };
    let plan = Plan {
        warm_from: distinct.accesses / WARM,
        swap: swap.model(distinct.distinct_pages)?,
        seed,
        ..Plan::plain(trace, mechanisms, memory_pages)
    };
    let outcome = plan.run(None, |_| Ok(()))?;
    Ok(Count::of(&outcome.warm(), outcome.costs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::evaluate::Change;
    use mglru_core::Preset;

    fn request() -> EvaluationRequest {
        let size = Size { accesses: 3000, pages: 600 };
        let change = Change::Presets(Preset::Linux71, Preset::Linux72);
        EvaluationRequest {
            size,
            runs: 2,
            loads: vec!["anon".to_owned(), "mapped".to_owned()],
            ..EvaluationRequest::new(change)
        }
    }

    #[test]
    fn counts_of_a_build_are_those_of_its_presets() {
        let request = request();
        let counts = counts(&request, &Unwatched).unwrap();
        assert_eq!(counts.rows.len(), 6);
        let (settings, _) =
            EvaluationRequest { change: Change::Build { binary: "other".into() }, ..request.clone() }
                .settings();
        let found = counts.of(&request.loads().unwrap(), &settings, &request).unwrap();
        let again = measure(
            &request.loads().unwrap(),
            &request.presets.iter().map(|&preset| Mechanisms::preset(preset)).collect::<Vec<_>>(),
            &request,
            &Unwatched,
        );
        assert_eq!(found, again.unwrap(), "the same to the last bit");
        let count = found[0][1][0];
        assert!(count.misses > 0 && count.lock_holds > 0 && count.walked_entries > 0, "{count:?}");
        for wrong in [
            EvaluationRequest { runs: 3, ..request.clone() },
            EvaluationRequest { seed: 2, ..request.clone() },
            EvaluationRequest { size: Size { accesses: 9, pages: 9 }, ..request.clone() },
        ] {
            let error = counts.of(&wrong.loads().unwrap(), &settings, &wrong).unwrap_err();
            assert!(error.text().contains("with the same options"), "{error}");
        }
        let mut others = counts.clone();
        *others.drawn.get_mut("mapped").expect("a load") += 1;
        let error = others.of(&request.loads().unwrap(), &settings, &request).unwrap_err();
        assert!(error.text().contains("draws other accesses for `mapped`"), "{error}");
        let older = Counts { drawn: BTreeMap::new(), ..counts };
        assert!(older.of(&request.loads().unwrap(), &settings, &request).is_ok());
    }

    /// The command waited for a build that hangs until it was interrupted.
    #[test]
    fn a_build_that_hangs_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"printf '#!/bin/sh\nexec sleep 1000\n' > "$1" && chmod +x "$1""#;
        let hangs = folder.path().join("hangs");
        // A shell writes it: a file that a child of another test has open cannot be run.
        assert!(Command::new("sh").args(["-c", script, "sh"]).arg(&hangs).status().unwrap().success());
        let limit = Limit { own: Duration::from_millis(300), most: Duration::ZERO };
        let error = Counts::of_build(&hangs, &request(), limit, &Unwatched).unwrap_err();
        let words = "s and was stopped, as this build took 0.3 s; `";
        assert!(error.text().contains(words) && error.text().ends_with("repeats it"), "{error}");
        let limit = Limit::after(limit.own);
        assert_eq!(limit.most, Duration::from_secs(90));
        let cancelled = Counts::of_build(&hangs, &request(), limit, &crate::watch::CancelAfter::looks(1));
        assert_eq!(cancelled.unwrap_err(), Error::Cancelled);
    }

    #[test]
    fn seeds_vary_the_memory_but_the_first() {
        let size = Size::default();
        assert_eq!(memory_pages(size, 7, 7), size.memory_pages());
        let others: Vec<u64> = (8..20).map(|seed| memory_pages(size, seed, 7)).collect();
        let off = |&pages: &u64| pages.abs_diff(size.memory_pages());
        assert!(others.iter().all(|pages| off(pages) <= size.memory_pages() / 100 + 1));
        assert!(others.iter().any(|pages| off(pages) > 5), "{others:?}");
    }
}
