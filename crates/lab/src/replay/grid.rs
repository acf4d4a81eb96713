//! Replays of every trace with every policy, memory size and seed: the unit of sweeps.
//!
//! ```
//! use mglru_lab::replay::grid::{Choice, Grid};
//! use mglru_lab::{Unwatched, trace_file::TraceFile};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let trace = TraceFile::of_pages("loop", (0..2000).map(|access| access % 100))?;
//! let policies = ["linux-7.2 -reclaim_loop", "lru"].map(|name| name.parse().expect("a policy"));
//! let grid = Grid { policies: policies.into(), ..Grid::default() };
//! let done = grid.run(&[trace], 1, &Unwatched)?;
//! assert_eq!(done[1].policy, "lru");
//! assert_eq!(done[1].row.total.misses, 2000, "a loop larger than memory never hits an LRU");
//! # Ok(())
//! # }
//! ```

use super::Options;
use super::baseline::BaselinePlan;
use super::life::Sink;
use super::memory::Memory;
use super::record::Record;
use super::rows::{Engine, ReplayRow, Spread, means};
use super::run::{self, Plan, check_memory, staged};
use crate::columns::{Columns, Get, Values};
use crate::error::Error;
use crate::mechanisms::{Behaviours, describe, other_policy, parse_switch, without_effect};
use crate::memory::Room;
use crate::run::SUMS;
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_core::{Counter, Lru, Mechanisms, Preset};
use mglru_sim::Baseline;
use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::rc::Rc;
use std::str::FromStr;

/// Largest number of recorded events, about 1 GiB as columns.
const EVENTS_MAX: usize = 4 << 20;

/// A policy by name: a preset of the engine with changes, or another policy. A change without
/// effect is refused ([`Mechanisms::idle`]).
///
/// ```
/// use mglru_lab::replay::grid::Choice;
///
/// let choice: Choice = "linux-7.2 -shared_mark lru=classic".parse().unwrap();
/// assert_eq!(choice.to_string(), "linux-7.2 -shared_mark lru=classic");
/// assert!("arc".parse::<Choice>().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The engine.
    Engine(Mechanisms),
    /// Another policy.
    Baseline(Baseline),
}

impl Default for Choice {
    fn default() -> Choice {
        Choice::Engine(Mechanisms::default())
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Choice, Error> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        if let Ok(baseline) = Baseline::parse(name) {
            return match words.next() {
                None => Ok(Choice::Baseline(baseline)),
                Some(word) => Err(Error::usage(format_args!(
                    "policy `{text}`: {name} has no mechanisms; leave out `{word}`"
                ))),
            };
        }
        let preset = Preset::parse(name).map_err(|_| unknown(name))?;
        let mut behaviours = Behaviours { preset, ..Behaviours::default() };
        for word in words {
            let failed = |error: &dyn Display| Error::usage(format_args!("policy `{text}`: {error}"));
            if let Some(switch) = word.strip_prefix('+') {
                behaviours.with.push(parse_switch(switch).map_err(|error| failed(&error))?);
            } else if let Some(switch) = word.strip_prefix('-') {
                behaviours.without.push(parse_switch(switch).map_err(|error| failed(&error))?);
            } else if let Some(lru) = word.strip_prefix("lru=") {
                behaviours.lru = Some(Lru::parse(lru).map_err(|error| failed(&error))?);
            } else {
                return Err(Error::usage(format_args!(
                    "policy `{text}`: `{word}` is not a change of a preset; expected +MECHANISM, -MECHANISM or lru=POLICY"
                )));
            }
        }
        let mechanisms = behaviours.mechanisms().map_err(|error| error.at(&format!("policy `{text}`")))?;
        match without_effect(mechanisms, &behaviours.named()).first() {
            Some(sentence) => Err(Error::usage(format_args!("policy `{text}`: {sentence}; leave it out"))),
            None => Ok(Choice::Engine(mechanisms)),
        }
    }
}

fn unknown(name: &str) -> Error {
    Error::usage(format_args!(
        "unknown policy `{name}`; expected a preset ({}), which +MECHANISM, -MECHANISM and lru=POLICY may follow, \
         or one of {}",
        Preset::ALL.map(Preset::name).join(", "),
        Baseline::ALL.map(Baseline::name).join(", "),
    ))
}

impl Display for Choice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Baseline(baseline) => f.write_str(baseline.name()),
            Choice::Engine(mechanisms) => {
                f.write_str(&describe(*mechanisms))?;
                other_policy(*mechanisms).map_or(Ok(()), |lru| write!(f, " lru={lru}"))
            }
        }
    }
}

/// A grid of replays: each trace with each policy, size and seed.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Policies.
    pub policies: Vec<Choice>,
    /// Memory sizes.
    pub sizes: Vec<Memory>,
    /// Seeds of random choices.
    pub seeds: Vec<u64>,
    /// All other options. Its mechanisms, baselines, sizes and seed are not used.
    pub options: Options,
}

impl Default for Grid {
    fn default() -> Grid {
        let options = Options::default();
        Grid { policies: vec![Choice::default()], sizes: options.sizes.clone(), seeds: vec![1], options }
    }
}

/// One replay of a grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Index of the trace.
    pub trace: usize,
    /// The policy.
    pub policy: Choice,
    /// Memory.
    pub memory: Memory,
    /// Seed of random choices.
    pub seed: u64,
}

/// Result of a cell.
#[derive(Debug, Clone)]
pub struct Done {
    /// Name of the policy, as [`Choice`] prints it.
    pub policy: String,
    /// Seed of random choices.
    pub seed: u64,
    /// Share of the trace's pages that was replayed; 1 without sampling.
    pub sample: f64,
    /// The result.
    pub row: ReplayRow,
}

/// A replay that is ready to run.
enum Task<'a> {
    Engine(Box<Plan<'a>>),
    Baseline(BaselinePlan<'a>),
}

impl Grid {
    /// Number of cells for this number of traces; `u64::MAX` if it is larger than that.
    pub fn count(&self, traces: usize) -> u64 {
        let factors = [traces, self.policies.len(), self.sizes.len(), self.seeds.len()];
        factors.iter().fold(1u64, |count, &factor| count.saturating_mul(factor as u64))
    }

    /// Cell number `number`, by trace, then policy, size and seed.
    ///
    /// # Panics
    /// If the grid has no policy, size or seed.
    pub fn cell(&self, number: u64) -> Cell {
        let mut rest = number;
        let mut digit = |base: usize| {
            let digit = rest % base as u64;
            rest /= base as u64;
            digit as usize
        };
        let (seed, size) = (digit(self.seeds.len()), digit(self.sizes.len()));
        let policy = digit(self.policies.len());
        Cell {
            trace: rest as usize,
            policy: self.policies[policy],
            memory: self.sizes[size].clone(),
            seed: self.seeds[seed],
        }
    }

    /// Runs all cells of these traces, at most `threads` at a time. Results are in the order of the
    /// cells.
    ///
    /// # Errors
    /// An invalid request, too little memory on this machine, an unreadable trace, or the first
    /// failed replay in the order of the cells.
    pub fn run(&self, traces: &[TraceFile], threads: usize, watch: &dyn Watch) -> Result<Vec<Done>, Error> {
        self.check()?;
        let count = self.count(traces.len());
        let cells: Vec<Cell> = (0..count).map(|number| self.cell(number)).collect();
        let task = |cell: &Cell| self.task(cell, &traces[cell.trace], watch);
        let tasks = cells.iter().map(task).collect::<Result<Vec<Task>, Error>>()?;
        let rows = staged(&tasks, threads, watch, "replay", |task, progress| task.run(progress))?;
        Ok(cells.iter().zip(rows).map(|(cell, row)| cell.done(&traces[cell.trace], row)).collect())
    }

    /// Runs all cells of samples, of which each trace has `salts` adjacent ones. Results are the
    /// means, as those of [`Grid::run`] with one sample per trace.
    ///
    /// # Errors
    /// As [`Grid::run`].
    pub fn run_salts(
        &self,
        samples: &[TraceFile],
        salts: usize,
        threads: usize,
        watch: &dyn Watch,
    ) -> Result<Vec<Done>, Error> {
        let done = self.run(samples, threads, watch)?;
        if salts < 2 {
            return Ok(done);
        }
        let cells = self.count(1) as usize;
        let rows: Vec<ReplayRow> = done.iter().map(|done| done.row.clone()).collect();
        let firsts = done.chunks(salts * cells).flat_map(|of_trace| of_trace[..cells].to_vec());
        Ok(firsts.zip(means(&rows, salts, cells)).map(|(done, row)| Done { row, ..done }).collect())
    }

    /// Runs one cell.
    ///
    /// # Errors
    /// As [`Grid::run`].
    pub fn run_cell(&self, cell: &Cell, trace: &TraceFile, watch: &dyn Watch) -> Result<Done, Error> {
        self.run_cell_in(Room::for_runs(1), cell, trace, watch)
    }

    /// As [`Grid::run_cell`], if there is room for cells like this one.
    ///
    /// # Errors
    /// As [`Grid::run`].
    pub(crate) fn run_cell_in(
        &self,
        room: Room,
        cell: &Cell,
        trace: &TraceFile,
        watch: &dyn Watch,
    ) -> Result<Done, Error> {
        let task = self.task(cell, trace, watch)?;
        check_memory(std::slice::from_ref(&task), room)?;
        Ok(cell.done(trace, task.run(&|_| watch.check())?))
    }

    /// The events of the only cell of one trace, from those accesses.
    ///
    /// # Errors
    /// As [`Grid::run`], or if there are several cells, another policy than the engine, or more
    /// than four million events.
    pub fn events(
        &self,
        trace: &TraceFile,
        accesses: Range<u64>,
        watch: &dyn Watch,
    ) -> Result<Vec<Record>, Error> {
        self.check()?;
        let Task::Engine(plan) = self.task(&self.cell(0), trace, watch)? else {
            return Err(Error::usage(format_args!("{}: only the engine has events", self.policies[0])));
        };
        if self.count(1) > 1 {
            return Err(Error::usage(
                "events are about one replay: give one policy, one memory size and one seed",
            ));
        }
        let records = Rc::new(RefCell::new(Vec::new()));
        let recorded = records.clone();
        let sink: Sink = Box::new(move |record| {
            let mut recorded = recorded.borrow_mut();
            if accesses.contains(&record.access) && recorded.len() <= EVENTS_MAX {
                recorded.push(*record);
            }
        });
        check_memory(std::slice::from_ref(&*plan), Room::for_runs(1))?;
        plan.run(Some(sink), |_| watch.check())?;
        let records = records.take();
        if records.len() > EVENTS_MAX {
            return Err(Error::usage(format_args!(
                "more than {EVENTS_MAX} events: choose a part of the accesses, or write them to a file with \
                 `mglru replay --events`"
            )));
        }
        Ok(records)
    }

    /// Refuses a grid with an empty axis.
    ///
    /// # Errors
    /// Names the axis.
    pub fn check(&self) -> Result<(), Error> {
        let axes = [
            ("policies", self.policies.len()),
            ("memory sizes", self.sizes.len()),
            ("seeds", self.seeds.len()),
        ];
        match axes.iter().find(|(_, values)| *values == 0) {
            Some((axis, _)) => Err(Error::usage(format_args!("no {axis}: give at least one"))),
            None => Ok(()),
        }
    }

    fn task<'a>(&self, cell: &Cell, trace: &'a TraceFile, watch: &dyn Watch) -> Result<Task<'a>, Error> {
        let options = Options { sizes: vec![cell.memory.clone()], seed: cell.seed, ..self.options.clone() };
        Ok(match cell.policy {
            Choice::Engine(mechanisms) => {
                let plans = Options { mechanisms: vec![mechanisms], ..options }.plans(trace, watch)?;
                Task::Engine(Box::new(plans.into_iter().next().expect("a plan per size")))
            }
            Choice::Baseline(baseline) => {
                let plans = Options { baselines: vec![baseline], ..options }.baseline_plans(trace, watch)?;
                Task::Baseline(plans.into_iter().next().expect("a plan per size"))
            }
        })
    }
}

impl run::Task for Task<'_> {
    fn trace(&self) -> &TraceFile {
        match self {
            Task::Engine(plan) => plan.trace,
            Task::Baseline(plan) => plan.trace,
        }
    }

    fn needed_bytes(&self) -> Result<u64, Error> {
        match self {
            Task::Engine(plan) => plan.needed_bytes(),
            Task::Baseline(plan) => plan.needed_bytes(),
        }
    }
}

impl Task<'_> {
    fn run(&self, progress: &dyn Fn(u64) -> Result<(), Error>) -> Result<ReplayRow, Error> {
        match self {
            Task::Engine(plan) => (**plan).clone().run(None, progress).map(ReplayRow::of),
            Task::Baseline(plan) => plan.run(progress).map(ReplayRow::of_baseline),
        }
    }
}

impl Cell {
    fn done(&self, trace: &TraceFile, row: ReplayRow) -> Done {
        let sample = trace.sampled().map_or(1.0, |sampled| sampled.sample.share());
        Done { policy: self.policy.to_string(), seed: self.seed, sample, row }
    }
}

/// A row of columns: a replay that was run, or one that failed.
pub(crate) struct Line<'a> {
    pub trace: &'a str,
    pub policy: &'a str,
    pub memory: &'a str,
    pub seed: u64,
    pub done: Option<&'a Done>,
}

/// Rows of results as columns: a column per count of [`ReplayRow`], and a column per counter under
/// the kernel's name. Other policies than the engine have no counters.
pub fn columns(done: &[Done]) -> Columns {
    let lines = done.iter().map(|done| Line {
        trace: &done.row.trace,
        policy: &done.policy,
        memory: &done.row.memory,
        seed: done.seed,
        done: Some(done),
    });
    let mut columns = line_columns(&lines.collect::<Vec<Line>>());
    // Means of samples have their spread, too.
    let spreads: Vec<_> = done.iter().map(|done| done.row.samples).collect();
    if spreads.iter().any(Option::is_some) {
        let real = |value: fn(&Spread) -> f64| {
            Values::Real(spreads.iter().map(|spread| spread.as_ref().map(value)).collect())
        };
        let salts = spreads.iter().map(|spread| spread.map(|spread| spread.salts.into()));
        columns.push("salts", Values::Whole(salts.collect()));
        columns.push("miss_ratio_deviation", real(|spread| spread.miss_ratio_deviation));
        columns.push("warm_miss_ratio_deviation", real(|spread| spread.warm_miss_ratio_deviation));
    }
    columns
}

/// As [`columns`]. Replays that failed have names only.
pub(crate) fn line_columns(lines: &[Line<'_>]) -> Columns {
    let mut columns = Columns::of(
        lines,
        &[
            ("trace", Get::Text(|line: &Line| Some(line.trace.to_owned()))),
            ("policy", Get::Text(|line| Some(line.policy.to_owned()))),
            ("memory", Get::Text(|line| Some(line.memory.to_owned()))),
            ("memory_pages", Get::Whole(|line| Some(line.row()?.memory_pages))),
            ("seed", Get::Whole(|line| Some(line.seed))),
            ("accesses", Get::Whole(|line| Some(line.row()?.total.accesses))),
            ("hits", Get::Whole(|line| Some(line.row()?.total.hits))),
            ("misses", Get::Whole(|line| Some(line.row()?.total.misses))),
            ("miss_ratio", Get::Real(|line| Some(line.row()?.total.miss_ratio))),
            ("warm_from_access", Get::Whole(|line| Some(line.row()?.warm.from_access))),
            ("warm_accesses", Get::Whole(|line| Some(line.row()?.warm.touches.accesses))),
            ("warm_misses", Get::Whole(|line| Some(line.row()?.warm.touches.misses))),
            ("warm_miss_ratio", Get::Real(|line| Some(line.row()?.warm.touches.miss_ratio))),
            ("sample", Get::Real(|line| Some(line.done?.sample))),
            ("seconds", Get::Real(|line| Some(line.row()?.seconds))),
            ("lru", Get::Text(|line| Some(line.row()?.mechanisms()?.lru().name().to_owned()))),
            ("swap_pages", Get::Whole(|line| Some(line.row()?.swap_pages?.into()))),
            ("generations_created", Get::Whole(|line| Some(line.engine()?.generations.created))),
            ("zero_fills", Get::Whole(|line| Some(line.engine()?.zero_fills))),
            ("notes", Get::Text(|line| Some(line.row()?.notes.join("; ")).filter(|notes| !notes.is_empty()))),
        ],
    );
    let sums = SUMS.iter().map(|&(name, _)| name);
    for name in sums.chain(Counter::ALL.iter().map(|counter| counter.name())) {
        columns.push(name, Values::Whole(lines.iter().map(|line| line.row()?.counter(name)).collect()));
    }
    columns
}

impl Line<'_> {
    fn row(&self) -> Option<&ReplayRow> {
        self.done.map(|done| &done.row)
    }

    fn engine(&self) -> Option<&Engine> {
        self.row()?.engine.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::replay::memory::Swap;
    use crate::sampling::Sample;

    #[test]
    fn policies_have_names_that_lead_back() {
        for name in ["default", "linux-6.12", "linux-7.2 -reclaim_loop", "default lru=multigen", "s3-fifo"] {
            let choice: Choice = name.parse().unwrap();
            assert_eq!(choice.to_string(), name);
        }
        let spelt: Choice = "  linux-7.2   +reclaim_loop ".parse().unwrap();
        assert_eq!(spelt.to_string(), "linux-7.2", "it is on there anyway");
    }

    #[test]
    fn wrong_policies_are_refused_by_name() {
        for (name, why) in [
            ("mru", "unknown policy `mru`"),
            ("mru", "linux-7.1"),
            ("mru", "w-tinylfu"),
            ("", "unknown policy ``"),
            ("arc +prefetch", "arc has no mechanisms"),
            ("default prefetch", "`prefetch` is not a change"),
            ("default +turbo", "turbo"),
            ("default lru=mru", "mru"),
            ("linux-7.2 -workingset_rework", "policy `linux-7.2 -workingset_rework`: "),
        ] {
            let error = name.parse::<Choice>().unwrap_err();
            assert!(matches!(error, Error::Usage(_)) && error.text().contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_grid_runs_each_cell_once_and_in_order_whatever_the_threads() {
        let traces =
            ["a", "b"].map(|name| TraceFile::of_pages(name, (0..5000).map(|n| n * n % 251)).unwrap());
        let grid = Grid {
            policies: ["default", "opt"].map(|name| name.parse().unwrap()).into(),
            sizes: ["10%", "64p"].map(|size| size.parse().unwrap()).into(),
            seeds: vec![1, 7],
            ..Grid::default()
        };
        assert_eq!(grid.count(2), 16);
        assert_eq!(Grid { seeds: vec![0; 1 << 16], ..grid.clone() }.count(usize::MAX), u64::MAX);
        let key = |done: &Done| {
            let row = &done.row;
            (row.trace.clone(), done.policy.clone(), row.memory.clone(), done.seed, row.total.misses)
        };
        let one: Vec<_> = grid.run(&traces, 1, &Unwatched).unwrap().iter().map(key).collect();
        let four: Vec<_> = grid.run(&traces, 4, &Unwatched).unwrap().iter().map(key).collect();
        assert_eq!(one, four);
        let mut distinct: Vec<_> = one.iter().map(|(a, b, c, d, _)| (a, b, c, d)).collect();
        distinct.dedup();
        assert_eq!((distinct.len(), one[0].0.as_str(), one[15].0.as_str()), (16, "a", "b"));
        let last = grid.run_cell(&grid.cell(15), &traces[1], &Unwatched).unwrap();
        assert_eq!(key(&last), one[15]);
    }

    #[test]
    fn counters_are_columns_and_other_policies_have_none() {
        let trace = TraceFile::of_pages("loop", (0..3000).map(|n| n % 100)).unwrap();
        let policies = ["default", "lru"].map(|name| name.parse().unwrap()).into();
        let grid = Grid { policies, ..Grid::default() };
        let columns = columns(&grid.run(&[trace], 1, &Unwatched).unwrap());
        let column = |name: &str| {
            let found: Vec<_> = columns.columns().iter().filter(|column| column.name == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            found[0].values.clone()
        };
        for of_columns in columns.columns() {
            column(&of_columns.name);
        }
        let Values::Whole(refaults) = column("workingset_refault_file") else { panic!("counts") };
        assert!(refaults[0].is_some_and(|refaults| refaults > 0) && refaults[1].is_none());
    }

    #[test]
    fn several_salts_give_their_mean_and_deviation() {
        let pages = |step: u64| (0..200_000).map(move |access| access * step % 20_011 * (access % 3));
        let sample: Sample = "10%#5".parse().unwrap();
        let traces = [3, 7919].map(|step| TraceFile::of_pages(&step.to_string(), pages(step)).unwrap());
        let samples: Vec<TraceFile> = traces
            .iter()
            .flat_map(|trace| sample.with_salts(3).map(|sample| trace.sample(sample).unwrap()))
            .collect();
        let policies = ["default", "lru"].map(|name| name.parse().unwrap()).into();
        let sizes = ["10%", "200p"].map(|size| size.parse().unwrap()).into();
        let grid = Grid { policies, sizes, ..Grid::default() };
        let single = grid.run(&samples, 1, &Unwatched).unwrap();
        let means = grid.run_salts(&samples, 3, 2, &Unwatched).unwrap();
        assert_eq!((single.len(), means.len()), (24, 8));
        for (at, mean) in means.iter().enumerate() {
            let first = at / 4 * 12 + at % 4;
            let of = [first, first + 4, first + 8].map(|at| &single[at]);
            let ratios = of.map(|done| done.row.total.miss_ratio);
            let average = ratios.iter().sum::<f64>() / 3.0;
            let variance = ratios.iter().map(|ratio| (ratio - average).powi(2)).sum::<f64>() / 2.0;
            let spread = mean.row.samples.unwrap();
            assert!((mean.row.total.miss_ratio - average).abs() < 1e-12, "{at}");
            assert!((spread.miss_ratio_deviation - variance.sqrt()).abs() < 1e-12 && spread.salts == 3);
            let names = (&of[2].policy, &of[2].row.trace, &of[2].row.memory);
            assert_eq!((&mean.policy, &mean.row.trace, &mean.row.memory), names);
            let notes = mean.row.notes.join("; ");
            assert!(notes.contains("the means of 3 samples of 10 %"), "{notes}");
            assert!(!notes.contains("was replayed in"), "the remark on a single one is gone: {notes}");
            let steals = of.map(|done| done.row.counter("pgsteal").unwrap_or(0)).iter().sum::<u64>();
            assert!(mean.row.counter("pgsteal").unwrap_or(0).abs_diff(steals / 3) <= 1);
        }
        let columns = columns(&means);
        let column =
            |name| columns.columns().iter().find(|column| column.name == name).unwrap().values.clone();
        assert_eq!(column("salts"), Values::Whole(vec![Some(3); 8]));
        let Values::Real(deviations) = column("miss_ratio_deviation") else { panic!("numbers") };
        assert_eq!(deviations[5], Some(means[5].row.samples.unwrap().miss_ratio_deviation));
        assert!(super::columns(&single).columns().iter().all(|column| column.name != "salts"));
        assert!(grid.run_salts(&[], 3, 1, &Unwatched).unwrap().is_empty());
    }

    /// Replays began whatever they needed, and could be killed by the system.
    #[test]
    fn a_replay_without_room_is_refused() {
        let trace = TraceFile::of_pages("loop", (0..2000).map(|access| access % 1000)).unwrap();
        let policies = ["default", "opt"].map(|name| name.parse().unwrap()).into();
        let swap = Swap { size: Some("10%".parse().unwrap()), ..Swap::default() };
        let options = Options { swap, ..Options::default() };
        let sizes = vec!["800p".parse().unwrap()];
        let grid = Grid { policies, sizes, options, ..Grid::default() };
        // A machine of 800 pages with 100 of swap, and a policy that knows the 2,000 accesses.
        let engine = crate::memory::of_machine(800) + crate::memory::of_swap(100);
        for (number, bytes) in [engine, 800 * 48 + 2000 * 5].into_iter().enumerate() {
            let cell = grid.cell(number as u64);
            let run = |bytes| grid.run_cell_in(Room::of_bytes(bytes), &cell, &trace, &Unwatched);
            run(bytes).unwrap();
            let text = run(bytes - 1).unwrap_err().to_string();
            assert!(text.starts_with("loop: ") && text.ends_with("choose less memory or swap"), "{text}");
        }
    }

    #[test]
    fn an_empty_axis_is_refused() {
        let grid = Grid { sizes: Vec::new(), ..Grid::default() };
        let error = grid.run(&[], 1, &Unwatched).unwrap_err();
        assert!(error.text().contains("no memory sizes"), "{error}");
    }
}
