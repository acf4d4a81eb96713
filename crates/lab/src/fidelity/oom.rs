//! Rows of `oom.csv`: loads that ended in an OOM kill on a real kernel, or did not.
//!
//! Each row is one kernel run. The engine runs each load with several seeds. With a disk of 20 or
//! 40 MB/s the outcome is certain: all engine runs must end like the row. Otherwise (a fast disk;
//! nobody reads the statistics; the multi-gen LRU with small folios; the mix) rates are compared,
//! by Fisher's exact test: how likely two samples of one rate are at least as far apart. The
//! project's default preset must never kill.

use super::compare::{difference_percent, refuse_outside};
use super::filter::{Filter, shown};
use super::kernel_run::preset_of;
use super::load::{DirtyWriter, LIMIT_PAGES_MAX, LIMITS, LoadOutcome, Mix};
use super::results::rows;
use crate::document::document;
use crate::memory::{self, Room};
use crate::parallel;
use crate::statistics::median;
use crate::{Error, Stage, Unit, Watch};
use mglru_core::{Mechanisms, PAGE_BYTES, Preset};
use mglru_sim::Operation;
use serde::{Serialize, Serializer};
use std::path::Path;
use std::time::Duration;

/// Number of seeds. Loads with a kernel run that was killed have more, to compare rates: a writer
/// [`WRITER_SEEDS`], as 12 seeds said 10 of 12 where 60 say 31 of 60; the mix, whose runs are long,
/// and the default preset [`RATE_SEEDS`].
const SEEDS: u64 = 2;
const RATE_SEEDS: u64 = 12;
const WRITER_SEEDS: u64 = 60;
/// Disks up to this speed, in bytes per second, are slower than any reclaim effort.
const SLOW_DISK: u64 = 40_000_000;
/// Memory of the simulator per process of the mix, in bytes. Assumed, to refuse what is far too
/// much.
const PROCESS_BYTES: u64 = 4096;
/// Significance level: samples of one rate that are less likely to be so far apart differ.
const LIKELY: f64 = 0.05;

/// `cgroup_version` of a run whose memcg's dirty limits were not in use.
const NO_CGROUP_WRITEBACK: &str = "v2-no-cgroup-writeback";
/// That of a run in which the lab read the memcg's statistics every 20 ms.
const READ: &str = "v2";

/// A row of the table.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct OomRow {
    /// The kernel lab's letter of the load.
    pub case: String,
    /// Version of the kernel.
    pub kernel: String,
    /// The kernel lab's name of the policy.
    pub lru: String,
    /// `v2`, `v2-unread` (nobody read the memcg's statistics) or `v2-no-cgroup-writeback`.
    pub cgroup_version: String,
    /// Limit of the memcg in bytes.
    pub limit_bytes: u64,
    /// Parameters of the load: `name=value`, separated by blanks.
    pub parameters: String,
    /// `killed`, or another end.
    pub outcome: String,
    /// Buffers written, or rounds.
    pub iterations: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Highest number of dirty pages.
    pub peak_dirty_pages: Option<u64>,
    /// Scanned file pages.
    pub pgscan_file: u64,
    /// Reclaimed file pages.
    pub pgsteal_file: u64,
}

#[derive(Debug, Clone, Copy)]
enum Load {
    Writer(DirtyWriter),
    Mix(Mix),
}

impl Load {
    /// Memory that a run needs at most, in bytes.
    fn needed_bytes(self) -> u64 {
        let machine = |limit_pages| memory::of_machine(LIMITS * limit_pages);
        match self {
            Load::Writer(writer) => machine(writer.limit_pages),
            Load::Mix(mix) => {
                let pages = u64::from(mix.file_pages) + u64::from(mix.anon_pages);
                let processes = u64::from(mix.readers) + u64::from(mix.workers);
                machine(mix.limit_pages) + pages * size_of::<Operation>() as u64 + processes * PROCESS_BYTES
            }
        }
    }
}

/// Rows of one kernel, policy and load, with the engine's results.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The kernel's runs, at least one.
    pub rows: Vec<OomRow>,
    load: Load,
    /// The engine's runs with the kernel's preset.
    pub ours: Vec<LoadOutcome>,
    /// The engine's runs with the default preset.
    pub default: Vec<LoadOutcome>,
}

/// Whether the file's header is that of this table.
pub(super) fn is_meant(header: &str) -> bool {
    header.contains("oom_kills")
}

impl OomRow {
    fn parameter(&self, name: &str) -> Result<&str, Error> {
        let found = self.parameters.split(' ').find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| self.invalid(format_args!("no {name}=… among them")))
    }

    fn number(&self, name: &str) -> Result<u64, Error> {
        let text = self.parameter(name)?;
        text.parse().map_err(|_| self.invalid(format_args!("{name}={text} is not a count")))
    }

    fn invalid(&self, what: std::fmt::Arguments<'_>) -> Error {
        let OomRow { case, kernel, lru, parameters, .. } = self;
        Error::work(format_args!("{case} {kernel} {lru}, parameters `{parameters}`: {what}"))
    }

    fn load(&self) -> Result<Load, Error> {
        let limit_pages = self.limit_bytes / PAGE_BYTES;
        if limit_pages > LIMIT_PAGES_MAX {
            let most = LIMIT_PAGES_MAX * PAGE_BYTES;
            return Err(self.invalid(format_args!(
                "a limit of {} bytes; at most {most} can be simulated",
                self.limit_bytes
            )));
        }
        if self.case == "A" {
            let speed = self.parameter("disk_write_bytes_per_s")?;
            return Ok(Load::Writer(DirtyWriter {
                limit_pages,
                file_pages: self.number("write_bytes")? / PAGE_BYTES,
                disk_bytes_per_second: match speed {
                    "unlimited" => 0,
                    _ => self.number("disk_write_bytes_per_s")?,
                },
                memcg_dirty_limits: self.cgroup_version != NO_CGROUP_WRITEBACK,
                reads_statistics: self.cgroup_version == READ,
                large_folios: !self.kernel.starts_with("6."),
            }));
        }
        let small = |name| Ok::<u32, Error>(self.number(name)?.try_into().unwrap_or(u32::MAX));
        let mix = Mix {
            limit_pages,
            readers: small("readers")?.max(1),
            file_pages: small("file_pages")?,
            workers: small("anon_workers")?.max(1),
            anon_pages: small("anon_pages")?,
            pause: Duration::from_millis(self.number("pause_ms")?),
            rounds: self.number("target_iterations")?,
            time_limit: Duration::from_secs(self.number("time_limit_s")?),
        };
        // In a process without pages, no time passes.
        if mix.file_pages < mix.readers || mix.anon_pages < mix.workers {
            return Err(self.invalid(format_args!(
                "each reader needs a page of file_pages, and each worker one of anon_pages"
            )));
        }
        Ok(Load::Mix(mix))
    }

    fn mechanisms(&self) -> Result<Mechanisms, Error> {
        let (preset, lru) = preset_of(&self.kernel, &self.lru).map_err(Error::work)?;
        Ok(Mechanisms::preset(preset).with_lru(lru))
    }

    fn killed(&self) -> bool {
        self.outcome == "killed"
    }

    /// Properties shared by repetitions of a load. For the mix they exclude the duration.
    fn group(&self) -> (&str, &str, &str, &str, u64, &str) {
        let parameters = if self.case == "A" { self.parameters.as_str() } else { "" };
        (&self.case, &self.kernel, &self.lru, &self.cgroup_version, self.limit_bytes, parameters)
    }
}

/// Runs the loads of all rows of all tables.
///
/// # Errors
/// If a file cannot be read, the filter selects no row, or of a bug in the simulator.
pub fn compare(tables: &[&Path], filter: &Filter, watch: &dyn Watch) -> Result<Vec<Compared>, Error> {
    let wanted = |row: &OomRow| filter.wants(&row.kernel, &row.lru) && filter.wants_workload(&row.case);
    let mut all: Vec<OomRow> = Vec::new();
    for table in tables {
        all.extend(rows::<OomRow>(table)?);
    }
    let names = all.iter().map(|row| [row.kernel.as_str(), row.case.as_str(), row.lru.as_str()]);
    let checked: Vec<[&str; 3]> = names.collect();
    filter.check(tables, &checked)?;
    all.retain(wanted);
    let place = shown(tables);
    let of_tables = |error: Error| error.at(&place);
    let mut compared = Compared::of_rows(all).map_err(of_tables)?;
    let mut tasks: Vec<(usize, bool, Mechanisms, u64)> = Vec::new();
    for (number, one) in compared.iter().enumerate() {
        let kernels = one.rows[0].mechanisms().map_err(of_tables)?;
        tasks.extend((1..=one.seeds()).map(|seed| (number, false, kernels, seed)));
        if one.is_for_default() {
            let ours = Mechanisms::preset(Preset::Default);
            tasks.extend((1..=one.seeds().min(RATE_SEEDS)).map(|seed| (number, true, ours, seed)));
        }
    }
    let needs = compared.iter().map(|one| one.load.needed_bytes());
    let room = Room::for_runs(parallel::threads().min(tasks.len()));
    room.check(needs.max().unwrap_or(0), &place, "choose rows with smaller loads")?;
    let stage = Stage::begin(watch, "loads that may end in an OOM kill", tasks.len() as u64, Unit::Steps);
    let outcomes = parallel::all(&tasks, parallel::threads(), |_, &(number, _, mechanisms, seed)| {
        let run = match compared[number].load {
            Load::Writer(writer) => writer.run(mechanisms, seed, watch),
            Load::Mix(mix) => mix.run(mechanisms, seed, watch),
        };
        let run = run.map_err(|error| error.at(&compared[number].name()))?;
        stage.advance(1)?;
        Ok(run)
    })?;
    for ((number, default, ..), outcome) in tasks.into_iter().zip(outcomes) {
        let one = &mut compared[number];
        if default { one.default.push(outcome) } else { one.ours.push(outcome) }
    }
    Ok(compared)
}

/// Number of engine runs that were killed.
pub fn kills(outcomes: &[LoadOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.killed).count()
}

impl Compared {
    /// The rows by kernel, policy and load, not yet run.
    fn of_rows(rows: Vec<OomRow>) -> Result<Vec<Compared>, Error> {
        let mut compared: Vec<Compared> = Vec::new();
        for row in rows {
            match compared.iter_mut().find(|one| one.rows[0].group() == row.group()) {
                Some(one) => {
                    // Repetitions of the mix ran for different times. The engine runs the longest.
                    if let (Load::Mix(longest), Load::Mix(mix)) = (&mut one.load, row.load()?) {
                        longest.rounds = longest.rounds.max(mix.rounds);
                        longest.time_limit = longest.time_limit.max(mix.time_limit);
                    }
                    one.rows.push(row);
                }
                None => {
                    let load = row.load()?;
                    compared.push(Compared { rows: vec![row], load, ours: Vec::new(), default: Vec::new() });
                }
            }
        }
        Ok(compared)
    }

    fn seeds(&self) -> u64 {
        if self.is_certain() || kernel_kills(&self.rows) == 0 {
            return SEEDS;
        }
        match self.load {
            Load::Writer(_) => WRITER_SEEDS,
            Load::Mix(_) => RATE_SEEDS,
        }
    }

    /// Whether to run the default preset, too: for each load of the multi-gen LRU of 7.2, and for
    /// each that a kernel killed.
    fn is_for_default(&self) -> bool {
        self.rows[0].kernel.starts_with("7.2") && self.rows[0].lru == "mglru" || kernel_kills(&self.rows) > 0
    }

    fn is_certain(&self) -> bool {
        match self.load {
            Load::Writer(writer) => {
                writer.reads_statistics
                    || !writer.memcg_dirty_limits
                        && (1..=SLOW_DISK).contains(&writer.disk_bytes_per_second)
                        && (writer.large_folios || self.rows[0].lru != "mglru")
            }
            Load::Mix(_) => false,
        }
    }

    /// Probability that kernel and engine, with one rate of kills, differ at least as much.
    fn likelihood(&self) -> f64 {
        let kernel = [kernel_kills(&self.rows), self.rows.len()];
        likelihood(kernel, [kills(&self.ours), self.ours.len()])
    }

    /// Whether the engine ends as the kernel does.
    pub fn within(&self) -> bool {
        let agrees = if self.is_certain() {
            let killed = self.rows[0].killed();
            self.ours.iter().all(|outcome| outcome.killed == killed)
        } else {
            self.likelihood() >= LIKELY
        };
        agrees && kills(&self.default) == 0
    }

    /// Runs that were killed, in percent: of the kernel, and of the engine with its preset.
    pub(super) fn killed_percent(&self) -> [f64; 2] {
        let percent = |kills: usize, runs: usize| 100.0 * kills as f64 / runs.max(1) as f64;
        [percent(kernel_kills(&self.rows), self.rows.len()), percent(kills(&self.ours), self.ours.len())]
    }

    /// Name of the load in documents and columns.
    pub(super) fn workload(&self) -> String {
        format!("oom {}", self.name())
    }

    /// Description of the run.
    pub fn name(&self) -> String {
        let OomRow { case, kernel, lru, cgroup_version, limit_bytes, .. } = &self.rows[0];
        let speed = match self.load {
            Load::Writer(DirtyWriter { disk_bytes_per_second: 0, .. }) => ", any speed".to_owned(),
            Load::Writer(writer) => format!(", {} MB/s", writer.disk_bytes_per_second / 1_000_000),
            Load::Mix(_) => String::new(),
        };
        let throttled = match cgroup_version.as_str() {
            NO_CGROUP_WRITEBACK => " no cgroup writeback",
            READ => "",
            _ => " statistics unread",
        };
        format!("{case} {kernel} {lru}, {} MiB{speed}{throttled}", limit_bytes >> 20)
    }
}

/// Number of kernel runs that were killed.
pub fn kernel_kills(rows: &[OomRow]) -> usize {
    rows.iter().filter(|row| row.killed()).count()
}

/// Fisher's exact test of two samples, each with its kills and its runs: the total probability of
/// all divisions of the kills among the runs that are at most as probable as this one.
fn likelihood([kills, runs]: [usize; 2], [other_kills, other_runs]: [usize; 2]) -> f64 {
    let ways =
        |of: usize, some: usize| (0..some).fold(1.0, |ways, at| ways * (of - at) as f64 / (at + 1) as f64);
    let all = kills + other_kills;
    let chance = |kills: usize| ways(runs, kills) * ways(other_runs, all - kills);
    let counts = all.saturating_sub(other_runs)..=all.min(runs);
    let (mut rare, mut every) = (0.0, 0.0);
    for one in counts.map(chance) {
        every += one;
        rare += if one <= chance(kills) * 1.000_001 { one } else { 0.0 };
    }
    rare / every
}

/// Serialises to a row of `mglru fidelity --json`.
impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = &self.rows[0];
        let [kernel_count, our_count] = self.killed_percent();
        let stolen: Vec<f64> = self.ours.iter().map(|outcome| outcome.stolen_pages as f64).collect();
        document!(serializer, {
            "workload": self.workload(),
            "kernel": row.kernel,
            "lru": row.lru,
            "limit_pages": row.limit_bytes / PAGE_BYTES,
            "counter": "killed_percent",
            "kernel_count": kernel_count,
            "our_count": our_count,
            "difference_percent": difference_percent(kernel_count, our_count),
            "kernel_runs": self.rows.len(),
            "our_runs": self.ours.len(),
            "likelihood": (!self.is_certain()).then(|| self.likelihood()),
            "default_kills": (!self.default.is_empty()).then(|| kills(&self.default)),
            "kernel_pgsteal_file": row.pgsteal_file,
            "our_pgsteal_file": median(&stolen),
            "within": self.within(),
        })
    }
}

/// Checks that all results agree.
///
/// # Errors
/// A message that names those that do not.
pub fn check(compared: &[Compared]) -> Result<(), Error> {
    let outside = compared.iter().filter(|one| !one.within()).map(|one| {
        format!(
            "{}: {} of {} killed, the kernel {} of {}, our preset {} of {}",
            one.name(),
            kills(&one.ours),
            one.ours.len(),
            kernel_kills(&one.rows),
            one.rows.len(),
            kills(&one.default),
            one.default.len()
        )
    });
    refuse_outside("different from the kernel", outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::watch::CancelAfter;

    fn row(outcome: &str, parameters: &str) -> OomRow {
        OomRow {
            case: "A".to_owned(),
            kernel: "6.12.117".to_owned(),
            lru: "mglru".to_owned(),
            cgroup_version: READ.to_owned(),
            limit_bytes: 1 << 26,
            parameters: parameters.to_owned(),
            outcome: outcome.to_owned(),
            iterations: 1,
            seconds: 1.0,
            peak_dirty_pages: None,
            pgscan_file: 0,
            pgsteal_file: 0,
        }
    }

    #[test]
    fn the_difference_is_in_percent_of_the_kernels_kills() {
        let parameters = "write_bytes=8192 disk_write_bytes_per_s=unlimited";
        let rows = ["killed", "killed", "done", "done"].map(|outcome| row(outcome, parameters));
        let mut compared = Compared::of_rows(rows.into()).unwrap();
        let of = |killed| LoadOutcome {
            killed,
            iterations: 1,
            end: mglru_core::Time::ZERO,
            peak_dirty_pages: 0,
            scanned_pages: 0,
            stolen_pages: 0,
        };
        compared[0].ours = [true, false, false, false].map(of).into();
        let document = serde_json::json!(compared);
        assert_eq!(
            (&document[0]["our_count"], &document[0]["difference_percent"]),
            (&25.0.into(), &(-50.0).into())
        );
    }

    #[test]
    fn a_row_with_wrong_parameters_is_named() {
        for (parameters, what) in [
            ("a=1", "no disk_write_bytes_per_s=…"),
            ("disk_write_bytes_per_s=1 write_bytes=x", "write_bytes=x"),
        ] {
            let error = row("killed", parameters).load().unwrap_err();
            assert!(error.text().starts_with("A 6.12.117 mglru, ") && error.text().contains(what), "{error}");
        }
    }

    /// It was an assertion in the middle of the run.
    #[test]
    fn a_limit_beyond_the_simulator_is_refused() {
        let of = |limit_bytes| {
            let row = row("killed", "write_bytes=8192 disk_write_bytes_per_s=unlimited");
            OomRow { limit_bytes, ..row }.load()
        };
        assert!(of(LIMIT_PAGES_MAX * PAGE_BYTES).is_ok());
        let error = of((LIMIT_PAGES_MAX + 1) * PAGE_BYTES).unwrap_err();
        assert!(error.text().contains("can be simulated"), "{error}");
    }

    const HEADER: &str = "case,kernel,lru,cgroup_version,limit_bytes,parameters,outcome,iterations,seconds,\
                          peak_dirty_pages,pgscan_file,pgsteal_file,oom_kills";

    /// The error of a table with one row of the mix.
    fn error_of(kernel: &str, numbers: [u64; 4]) -> Error {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oom.csv");
        let [readers, file, workers, anon] = numbers;
        let mix = format!("readers={readers} file_pages={file} anon_workers={workers} anon_pages={anon}");
        let row = format!("B,{kernel},mglru,v2,67108864,{mix} pause_ms=0 target_iterations=9 time_limit_s=9");
        std::fs::write(&path, format!("{HEADER}\n{row},done,1,1,,0,0,0\n")).unwrap();
        let error = compare(&[&path], &Filter::default(), &Unwatched).unwrap_err();
        assert!(error.text().starts_with(&path.display().to_string()), "{error}");
        error
    }

    /// Billions of processes or of pages take all memory, and in one without pages no time passes.
    #[test]
    fn a_mix_that_cannot_be_simulated_is_refused_with_its_table() {
        let many = u64::from(u32::MAX);
        for numbers in [[many, many, 1, 1], [1, 1, many, many]] {
            let error = error_of("7.2.12", numbers);
            assert!(error.text().contains("of memory are needed"), "{error}");
        }
        for numbers in [[2, 1, 1, 1], [1, 1, 1, 0]] {
            let error = error_of("7.2.12", numbers);
            assert!(error.text().contains("each reader needs a page"), "{error}");
        }
        assert!(error_of("5.4", [1, 1, 1, 1]).text().contains("no preset for kernel 5.4"));
    }

    /// They looked only at their end, and these loads have none for years.
    #[test]
    fn loads_are_cancelled_while_they_run() {
        let mix = "readers=2 file_pages=512 anon_workers=2 anon_pages=512 pause_ms=0 \
                   target_iterations=99999999999 time_limit_s=99999999999";
        for (case, parameters) in
            [("A", "write_bytes=99999999999999999 disk_write_bytes_per_s=unlimited"), ("B", mix)]
        {
            let load = OomRow { case: case.to_owned(), ..row("killed", parameters) }.load().unwrap();
            let (mechanisms, watch) = (Mechanisms::preset(Preset::Default), CancelAfter::looks(100));
            let run = match load {
                Load::Writer(writer) => writer.run(mechanisms, 1, &watch),
                Load::Mix(mix) => mix.run(mechanisms, 1, &watch),
            };
            assert_eq!(run.err(), Some(Error::Cancelled), "{case}");
        }
    }

    #[test]
    fn likelihoods_of_counts() {
        assert!((likelihood([3, 3], [0, 3]) - 0.1).abs() < 1e-9, "one of 20 divisions, and its mirror image");
        assert!((likelihood([1, 2], [1, 2]) - 1.0).abs() < 1e-9);
        assert!((likelihood([0, 5], [0, 60]) - 1.0).abs() < 1e-9, "none in either sample");
        assert!(likelihood([3, 13], [2, 60]) < 0.04 && likelihood([3, 13], [24, 60]) > 0.3);
    }
}
