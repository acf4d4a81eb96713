//! Replays traces under a virtual clock, on a model of the machine that ran them on real kernels,
//! with the engine or with other policies.
//!
//! ```text
//! TraceFile + Options ─► Plan          trace × mechanisms × memory   run.rs
//!                     ─► BaselinePlan  trace × policy × memory       baseline.rs
//! plans, replayed     ─► ReplayRow     one per plan                  rows.rs
//!                     ─► Curve         one per policy, over memory   rows.rs
//! ```
//!
//! Apart from durations, equal traces and options give equal values on every machine.
//!
//! ```
//! use mglru_lab::replay::{Options, curves, replay};
//! use mglru_lab::{Unwatched, trace_file::TraceFile};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let directory = tempfile::tempdir().expect("a temporary directory");
//! let path = directory.path().join("loop.plain");
//! let text: String = (0..2000).map(|access| format!("{}\n", access % 100)).collect();
//! std::fs::write(&path, text).expect("a file");
//! let traces = [TraceFile::load(&path, Default::default(), &Unwatched)?];
//! let sizes = ["50%", "200%"].map(|size| size.parse().expect("a share"));
//! let options = Options { sizes: sizes.into(), ..Options::default() };
//! let rows = replay(&traces, &options, 1, None, &Unwatched)?;
//! let curve = &curves(&rows, &options)[0];
//! assert!(curve.points[0].misses > 100 && curve.points[1].misses == 100);
//! # Ok(())
//! # }
//! ```

pub mod baseline;
pub mod controls;
pub mod grid;
pub mod life;
pub mod memory;
pub mod record;
pub mod rows;
pub mod run;
pub mod text;
pub mod word;

use crate::error::Error;
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use baseline::BaselinePlan;
use life::Sink;
use memory::{Memory, Swap};
use mglru_core::Mechanisms;
use mglru_sim::{Baseline, Writes};
use record::PageName;
use rows::{Curve, ReplayRow};
use run::{Plan, run_all, run_baselines};

/// Options of a replay.
#[derive(Debug, Clone)]
pub struct Options {
    /// Mechanisms of the engine. Each trace is replayed with each of them.
    pub mechanisms: Vec<Mechanisms>,
    /// Memory sizes. Each trace is replayed with each of them.
    pub sizes: Vec<Memory>,
    /// Other policies to replay beside the engine.
    pub baselines: Vec<Baseline>,
    /// Share of accesses after which counting restarts. `None` takes it from the trace's sidecar,
    /// or 0.
    pub warm: Option<f64>,
    /// Treatment of writes to pages that are not cached.
    pub writes: Writes,
    /// Swap for anonymous pages.
    pub swap: Swap,
    /// Seed of all random choices.
    pub seed: u64,
    /// Steps between consistency checks of the whole state; `None` to disable them.
    pub check_every: Option<u64>,
    /// Pages whose lives are recorded.
    pub explain: Vec<PageName>,
    /// Whether to record timelines.
    pub over_time: bool,
    /// The largest readahead window, in pages; `None`: off, as in the runs of the kernel lab. The
    /// trace's pages must be positions in files.
    pub readahead_pages: Option<u32>,
    /// The aligned window, in pages, that a mapped miss maps: a power of two up to 512; off if
    /// `None` or 1.
    pub fault_around_pages: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mechanisms: vec![Mechanisms::default()],
            sizes: vec!["10%".parse().expect("a share")],
            baselines: Vec::new(),
            warm: None,
            writes: Writes::AfterRead,
            swap: Swap::default(),
            seed: 1,
            check_every: None,
            explain: Vec::new(),
            over_time: false,
            readahead_pages: None,
            fault_around_pages: None,
        }
    }
}

impl Options {
    /// Checks that a page is explained in one replay of the engine, and that events are of one.
    /// `traces`: how many there are.
    ///
    /// # Errors
    /// There would be several.
    pub fn check_single(&self, traces: usize, has_events: bool) -> Result<(), Error> {
        let replays = traces * self.mechanisms.len() * self.sizes.len();
        if replays > 1 && (has_events || !self.explain.is_empty()) {
            return Err(Error::usage(
                "--explain and --events work for a single replay: give one trace and one preset",
            ));
        }
        Ok(())
    }

    /// The access at which counting restarts, and the trace's distinct pages if sizes depend on
    /// them.
    fn of_trace(&self, trace: &TraceFile, watch: &dyn Watch) -> Result<(u64, u64), Error> {
        let warm_from = match self.warm.or(trace.warm()).unwrap_or(0.0) {
            0.0 => 0,
            warm => warm_point(trace.counts(watch)?.accesses, warm),
        };
        let is_share = self.sizes.iter().any(Memory::is_share) || self.swap.is_share();
        Ok((warm_from, if is_share { trace.counts(watch)?.distinct_pages } else { 0 }))
    }

    /// The replays of one trace with other policies, by policy and then by size.
    fn baseline_plans<'a>(
        &self,
        trace: &'a TraceFile,
        watch: &dyn Watch,
    ) -> Result<Vec<BaselinePlan<'a>>, Error> {
        let (warm_from, distinct_pages) = self.of_trace(trace, watch)?;
        let plan = |baseline, memory: &Memory| BaselinePlan {
            trace,
            baseline,
            memory: memory.text().to_owned(),
            memory_pages: pages_of(memory, trace, distinct_pages),
            warm_from,
        };
        let sizes = &self.sizes;
        Ok(self.baselines.iter().flat_map(|&of| sizes.iter().map(move |memory| plan(of, memory))).collect())
    }

    /// The replays of one trace with the engine, by mechanisms and then by size.
    fn plans<'a>(&self, trace: &'a TraceFile, watch: &dyn Watch) -> Result<Vec<Plan<'a>>, Error> {
        let (warm_from, distinct_pages) = self.of_trace(trace, watch)?;
        let mut swap = self.swap.model(distinct_pages)?;
        if let Some(sampled) = trace.sampled() {
            if self.readahead_pages.is_some() || self.fault_around_pages.is_some() {
                return Err(Error::usage(
                    "a sample has no neighbouring pages to read or map; leave out --sample, or --readahead and \
                     --fault-around",
                ));
            }
            if let Some(swap) = swap.as_mut().filter(|_| !self.swap.is_share()) {
                swap.pages = sampled.sample.part(swap.pages.into()) as u32;
            }
        }
        let plan = |mechanisms: Mechanisms, memory: &Memory| Plan {
            memory: memory.text().to_owned(),
            warm_from,
            writes: self.writes,
            swap,
            swappiness: self.swap.swappiness,
            swap_readahead_pages: self.swap.readahead_pages.unwrap_or(0),
            seed: self.seed,
            check_every: self.check_every,
            explain: self.explain.clone(),
            over_time: self.over_time,
            readahead_pages: self.readahead_pages.unwrap_or(0),
            fault_around_pages: self.fault_around_pages.unwrap_or(0),
            ..Plan::plain(trace, mechanisms, pages_of(memory, trace, distinct_pages))
        };
        let sizes = &self.sizes;
        Ok(self.mechanisms.iter().flat_map(|&of| sizes.iter().map(move |memory| plan(of, memory))).collect())
    }
}

/// Memory of a replay in pages. A sample gets its part of a fixed size; a share is one of the
/// sample's own pages.
fn pages_of(memory: &Memory, trace: &TraceFile, distinct_pages: u64) -> u64 {
    let pages = memory.pages(|| distinct_pages);
    match trace.sampled() {
        Some(sampled) if !memory.is_share() => sampled.sample.part(pages),
        _ => pages,
    }
}

/// The access after the share `warm` of the trace. It is always one of the trace's accesses.
pub fn warm_point(accesses: u64, warm: f64) -> u64 {
    // 0.29 × 100 is 28.999…
    ((accesses as f64 * warm + 1e-6) as u64).min(accesses.saturating_sub(1))
}

/// Replays traces, at most `threads` at a time. Rows are grouped by trace: first the engine, then
/// other policies. `sink` receives all events and requires a single replay.
///
/// # Errors
/// An invalid request, too little memory on this machine, an unreadable trace, or the first failed
/// replay in the order of the rows.
pub fn replay(
    traces: &[TraceFile],
    options: &Options,
    threads: usize,
    sink: Option<Sink>,
    watch: &dyn Watch,
) -> Result<Vec<ReplayRow>, Error> {
    options.check_single(traces.len(), sink.is_some())?;
    let (mut plans, mut baselines) = (Vec::new(), Vec::new());
    for trace in traces {
        plans.extend(options.plans(trace, watch)?);
        baselines.extend(options.baseline_plans(trace, watch)?);
    }
    let outcomes = match (sink, plans.pop()) {
        (Some(sink), Some(plan)) => vec![plan.watched(Some(sink), watch)?],
        (_, last) => run_all(plans.into_iter().chain(last).collect(), threads, watch)?,
    };
    let baselines = run_baselines(baselines, threads, watch)?;
    let mut outcomes = outcomes.into_iter().map(ReplayRow::of);
    let mut baselines = baselines.into_iter().map(ReplayRow::of_baseline);
    let per_trace = [options.mechanisms.len(), options.baselines.len()].map(|of| of * options.sizes.len());
    let mut rows = Vec::new();
    for _ in traces {
        rows.extend(outcomes.by_ref().take(per_trace[0]));
        rows.extend(baselines.by_ref().take(per_trace[1]));
    }
    Ok(rows)
}

/// Replays samples: each trace stands as `salts` adjacent ones. The rows are their means, as those
/// of [`replay`] with one sample per trace; with a single salt they are its rows.
///
/// # Errors
/// As [`replay`].
pub fn replay_salts(
    samples: &[TraceFile],
    salts: usize,
    options: &Options,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Vec<ReplayRow>, Error> {
    let rows = replay(samples, options, threads, None, watch)?;
    Ok(if salts > 1 { rows::means(&rows, salts, rows.len() / samples.len().max(1)) } else { rows })
}

/// The curves of all rows of a replay with these options, with a point per size.
pub fn curves(rows: &[ReplayRow], options: &Options) -> Vec<Curve> {
    Curve::of(rows, options.sizes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_point_is_an_access() {
        assert_eq!(warm_point(300_000, 0.25), 75_000);
        assert_eq!(warm_point(100, 0.29), 29);
        assert_eq!(warm_point(1, 0.9), 0);
        assert_eq!(warm_point(3, 0.9999999), 2);
    }
}
