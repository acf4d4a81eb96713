//! Tables of replayed traces: runs the replays and compares their counts with the kernel's.

use super::compare::{Comparison, Subject, subjects};
use super::kernel_run::{Filter, KernelRun, Measure, Skipped, Table, trace_of};
use crate::error::Error;
use crate::parallel;
use crate::replay::run::{Outcome, Plan, run_all};
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Mechanisms};
use mglru_sim::Tally;
use mglru_workload::trace::OpenOptions;
use std::path::Path;

/// The result for a table.
#[derive(Debug)]
pub struct Compared {
    /// A comparison per count.
    pub comparisons: Vec<Comparison>,
    /// Rows that cannot be replayed, with reasons.
    pub skipped: Vec<Skipped>,
}

/// Replays the rows of a table that pass the filter, and compares.
///
/// # Errors
/// The table or a trace cannot be read, or no row can be replayed.
pub fn compare(path: &Path, filter: &Filter, watch: &dyn Watch) -> Result<Compared, Error> {
    let table = Table::read(path, filter)?;
    if table.runs.is_empty() {
        let reason = table.skipped.first().map_or("", |row| &row.reason);
        return Err(Error::work(format_args!("{}: no row can be replayed: {reason}", path.display())));
    }
    let comparisons = replay(path, &subjects(&table.runs), watch)?;
    Ok(Compared { comparisons, skipped: table.skipped })
}

/// Runs the replays of all subjects, and compares.
fn replay(table: &Path, subjects: &[Subject], watch: &dyn Watch) -> Result<Vec<Comparison>, Error> {
    let mut names: Vec<&str> = Vec::new();
    for subject in subjects {
        let name = subject.runs[0].setting.workload.as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let load = |name: &&str| TraceFile::load(&trace_of(table, name)?, OpenOptions::default(), watch);
    let traces = names.iter().map(load).collect::<Result<Vec<TraceFile>, Error>>()?;
    let trace = |run: &KernelRun| {
        let position = names.iter().position(|name| *name == run.setting.workload);
        &traces[position.expect("all traces were loaded")]
    };
    let mut plans = Vec::new();
    for subject in subjects {
        let run = &subject.runs[0];
        check_length(trace(run), run, watch)?;
        plans.extend(subject.variants.iter().map(|variant| Plan {
            trace: trace(run),
            mechanisms: Mechanisms::preset(run.preset).with_lru(run.lru),
            memory: format!("{}p", variant.memory_pages),
            memory_pages: variant.memory_pages,
            warm_from: run.warm_from,
            writes: run.setting.writes(),
            swap: run.setting.swap(),
            swappiness: Swappiness::DEFAULT,
            statistics_refresh: variant.statistics_refresh,
            statistics_reads: Some(variant.statistics_reads),
            seed: 1,
            check_every: None,
            explain: Vec::new(),
            over_time: false,
            readahead_pages: 0,
            fault_around_pages: 0,
        }));
    }
    let outcomes = run_all(plans, parallel::threads(), watch)?;
    let mut comparisons = Vec::new();
    let mut next = 0;
    for subject in subjects {
        let outcomes = &outcomes[next..next + subject.variants.len()];
        next += subject.variants.len();
        comparisons.extend(subject.compare(|number, measure| count(&outcomes[number], measure)));
    }
    Ok(comparisons)
}

/// Refuses a trace that is not the one of the table's row.
fn check_length(trace: &TraceFile, run: &KernelRun, watch: &dyn Watch) -> Result<(), Error> {
    let accesses = trace.counts(watch)?.accesses;
    if accesses == run.records && run.warm_from < accesses {
        return Ok(());
    }
    Err(Error::work(format_args!(
        "{}: not the trace of the row: it has {accesses} accesses, the row says n = {} and warm_index = {}",
        trace.path().display(),
        run.records,
        run.warm_from
    )))
}

/// A count of a replay.
fn count(outcome: &Outcome, measure: Measure) -> f64 {
    let warm = outcome.warm();
    let total = outcome.report.total();
    // The kernel lab counts swap-ins separately.
    let misses = |tally: &Tally| tally.counts.misses - tally.counters.get(Counter::Pswpin);
    let value = match measure {
        Measure::TotalMisses => misses(&total),
        Measure::Misses => misses(&warm),
        Measure::Refaults => warm.counters.get(Counter::WorkingsetRefaultFile),
        Measure::Scanned => warm.counters.pgscan(),
        Measure::Stolen => warm.counters.pgsteal(),
        Measure::Sorted => outcome.report.total().counters.get(Counter::Pgrefill),
        Measure::Activated => warm.counters.get(Counter::Pgactivate),
        Measure::Restored => warm.counters.get(Counter::WorkingsetRestoreFile),
        Measure::ActivatedRefaults => warm.counters.get(Counter::WorkingsetActivateFile),
        Measure::Generations => outcome.generations_created(),
        Measure::SwapIns => total.counters.get(Counter::Pswpin),
        Measure::SwapOuts => total.counters.get(Counter::Pswpout),
    };
    value as f64
}

/// Fails if a count is outside of its tolerance.
///
/// # Errors
/// Names the counts.
pub fn check(comparisons: &[Comparison]) -> Result<(), Error> {
    let out: Vec<String> = comparisons
        .iter()
        .filter(|comparison| !comparison.within())
        .map(|comparison| {
            let difference = comparison.difference_percent();
            let difference = difference.map_or(String::new(), |percent| format!(" {percent:+.2} %"));
            let setting = &comparison.setting;
            format!("{} {} {}{difference}", setting.kernel, setting.workload, comparison.measure.name())
        })
        .collect();
    if out.is_empty() {
        return Ok(());
    }
    Err(Error::work(format_args!(
        "counts differ from the kernel's by more than their tolerance: {}",
        out.join(", ")
    )))
}
