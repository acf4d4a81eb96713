//! Tables of replayed traces: runs the replays and compares their counts with the kernel's.

use super::capacity::{PredictedCapacity, predict};
use super::compare::{Comparison, Subject, subjects};
use super::deltas::{Agreement, Delta, deltas};
use super::filter::Filter;
use super::kernel_run::{KernelRun, Measure, Skipped};
use super::results::{Table, trace_of};
use super::variant::Variant;
use crate::document::document;
use crate::error::Error;
use crate::parallel;
use crate::replay::run::{Plan, ReplayOutcome, run_all};
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_core::{Counter, Mechanisms};
use mglru_sim::Tally;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::Path;

/// The memory that a replay gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryFrom {
    /// The capacity that was measured in the row's own run.
    #[default]
    Measured,
    /// The capacity predicted from limit and trace.
    Predicted,
}

/// The result for a table.
#[derive(Debug)]
pub struct Compared {
    /// A comparison per count.
    pub comparisons: Vec<Comparison>,
    /// The capacity of each row with a limit, repetitions included.
    pub capacities: Vec<PredictedCapacity>,
    /// Rows that cannot be replayed, with reasons.
    pub skipped: Vec<Skipped>,
    /// The changes that the counts allow.
    pub deltas: Vec<Delta>,
}

impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "rows": self.comparisons,
            "skipped": self.skipped,
            "capacities": self.capacities,
            "deltas": self.deltas,
            "agreement": Agreement::of(&self.deltas),
        })
    }
}

/// Replays the rows of a table that pass the filter, and compares.
///
/// # Errors
/// The table or a trace cannot be read, or no row can be replayed.
pub fn compare(
    path: &Path,
    filter: &Filter,
    memory: MemoryFrom,
    watch: &dyn Watch,
) -> Result<Compared, Error> {
    let mut table = Table::read(path, filter)?;
    if table.runs.is_empty() {
        let reason = table.skipped.first().map_or("", |row| &row.reason);
        return Err(Error::work(format_args!("{}: no row can be replayed: {reason}", path.display())));
    }
    let traces = Traces::load(path, &table.runs, watch)?;
    let capacities = traces.capacities(&table.runs)?;
    if memory == MemoryFrom::Predicted {
        let limited = table.runs.iter_mut().filter(|run| run.is_predicted());
        for (run, capacity) in limited.zip(&capacities) {
            run.memory_pages = capacity.memory_pages();
        }
    }
    let comparisons = replay(&traces, subjects(&table.runs), watch)?;
    let deltas = deltas(&comparisons);
    Ok(Compared { comparisons, capacities, skipped: table.skipped, deltas })
}

/// The traces of a table, by workload.
struct Traces(BTreeMap<String, TraceFile>);

impl Traces {
    /// Loads the traces of the runs, and refuses those that are not the rows'.
    fn load(table: &Path, runs: &[KernelRun], watch: &dyn Watch) -> Result<Traces, Error> {
        let mut traces = Traces(BTreeMap::new());
        for run in runs {
            let name = &run.setting.workload;
            if !traces.0.contains_key(name) {
                let trace = TraceFile::load_recognised(&trace_of(table, name)?, watch)?;
                traces.0.insert(name.clone(), trace);
            }
            check_length(traces.of(run), run, watch)?;
        }
        Ok(traces)
    }

    fn of(&self, run: &KernelRun) -> &TraceFile {
        &self.0[&run.setting.workload]
    }

    /// Predicts the capacity of each run with a limit. Runs of a load with the same limit share a
    /// prediction.
    fn capacities(&self, runs: &[KernelRun]) -> Result<Vec<PredictedCapacity>, Error> {
        let mut known = BTreeMap::new();
        let limited = runs.iter().filter(|run| run.is_predicted());
        let predicted = limited.map(|run| {
            let tasks = run.setting.tasks;
            let key = (run.setting.workload.as_str(), run.limit_pages, run.warm_from, tasks);
            let predicted = match known.get(&key) {
                Some(&predicted) => predicted,
                None => {
                    let predicted = predict(self.of(run).records()?, run.warm_from, run.limit_pages, tasks);
                    known.insert(key, predicted);
                    predicted
                }
            };
            Ok(PredictedCapacity { run: run.clone(), predicted })
        });
        predicted.collect()
    }
}

/// Runs the replays of all subjects, and compares.
fn replay(traces: &Traces, mut subjects: Vec<Subject>, watch: &dyn Watch) -> Result<Vec<Comparison>, Error> {
    balance(traces, &mut subjects, watch)?;
    let shared = Shared::of(traces, &subjects);
    let outcomes = run_all(shared.plans, parallel::threads(), watch)?;
    let mut comparisons = Vec::new();
    for (subject, numbers) in subjects.iter().zip(&shared.numbers) {
        let memcg = &subject.runs[0].setting.memcg;
        comparisons
            .extend(subject.compare(|variant, measure| count(&outcomes[numbers[variant]], memcg, measure)));
    }
    Ok(comparisons)
}

/// Gives replays with background reclaim, which keeps changing numbers of pages free, the memory
/// with which they cache as many pages on average as the kernel did: replays once, and adds what
/// was missing.
fn balance(traces: &Traces, subjects: &mut [Subject], watch: &dyn Watch) -> Result<(), Error> {
    let mut balanced: Vec<&mut Subject> =
        subjects.iter_mut().filter(|subject| subject.runs[0].is_background()).collect();
    let Shared { mut plans, numbers } = Shared::of(traces, balanced.iter().map(|subject| &**subject));
    plans.iter_mut().for_each(|plan| plan.averages_pages = true);
    let outcomes = run_all(plans, parallel::threads(), watch)?;
    for (subject, numbers) in balanced.iter_mut().zip(numbers) {
        let run = &subject.runs[0];
        for (variant, number) in subject.variants.iter_mut().zip(numbers) {
            let Some(mean_pages) = outcomes[number].mean_pages else { continue };
            let wanted_pages = run.capacity_pages + variant.memory_pages as f64 - run.memory_pages as f64;
            let missing_pages = (wanted_pages - mean_pages).round() as i64;
            variant.memory_pages = variant.memory_pages.saturating_add_signed(missing_pages);
        }
    }
    Ok(())
}

/// The replays of several subjects. The memcgs of a run share them.
struct Shared<'a> {
    plans: Vec<Plan<'a>>,
    /// Per subject and variant: the number of its plan.
    numbers: Vec<Vec<usize>>,
}

impl<'a> Shared<'a> {
    fn of<'s>(traces: &'a Traces, subjects: impl IntoIterator<Item = &'s Subject>) -> Shared<'a> {
        let mut shared = Shared { plans: Vec::new(), numbers: Vec::new() };
        let mut known: Vec<(&KernelRun, &Variant)> = Vec::new();
        for subject in subjects {
            let run = &subject.runs[0];
            let number = |variant: &'s Variant| {
                let same = |&(other, of): &(&KernelRun, &Variant)| of == variant && run.is_of_run(other);
                known.iter().position(same).unwrap_or_else(|| {
                    known.push((run, variant));
                    shared.plans.push(plan(traces, run, variant));
                    known.len() - 1
                })
            };
            shared.numbers.push(subject.variants.iter().map(number).collect());
        }
        shared
    }
}

fn plan<'a>(traces: &'a Traces, run: &KernelRun, variant: &Variant) -> Plan<'a> {
    let mechanisms = Mechanisms::preset(run.preset).with_lru(run.lru);
    Plan {
        warm_from: run.warm_from,
        writes: run.setting.writes(),
        swap: run.swap(),
        reclaim_time: run.reclaim_time(),
        swap_batches: run.swap_batches(),
        statistics_refresh: variant.statistics_refresh,
        statistics_reads: Some(variant.statistics_reads),
        seed: variant.seed,
        readahead_pages: run.setting.readahead_pages,
        fault_around_pages: run.setting.fault_around_pages,
        access_time: run.access_time(),
        read_latency: run.read_latency(),
        tasks: run.setting.tasks,
        zones: run.zones.clone(),
        swappiness: run.swappiness(),
        controls: run.setting.controls.clone(),
        others_pages: run.limit_pages.saturating_sub(variant.memory_pages),
        ..Plan::plain(traces.of(run), mechanisms, variant.memory_pages)
    }
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

/// A count of a replay: of all memcgs, or of one.
fn count(outcome: &ReplayOutcome, memcg: &str, measure: Measure) -> f64 {
    let (total, warm) = match memcg {
        "" => (outcome.report.total(), outcome.warm()),
        memcg => {
            let named =
                outcome.report.tenants.iter().find(|tenant| tenant.name.ends_with(&format!("/{memcg}")));
            named.map_or_else(Default::default, |tenant| (tenant.total, tenant.warm.unwrap_or_default()))
        }
    };
    // The kernel lab counts swap-ins separately.
    let misses = |tally: &Tally| tally.counts.misses - tally.counters.get(Counter::Pswpin);
    // It counts pages read from the disk. With readahead these are those that were reclaimed and
    // those that are in memory. After the warm point memory is as full as at the end.
    let reads_ahead = outcome.plan.readahead_pages > 0;
    let reclaimed = |tally: &Tally| tally.counters.get(Counter::PgstealFile);
    let value = match measure {
        Measure::TotalMisses if reads_ahead => reclaimed(&total) + total.counters.get(Counter::File),
        Measure::Misses if reads_ahead => reclaimed(&warm),
        Measure::TotalMisses => misses(&total),
        Measure::Misses => misses(&warm),
        Measure::Refaults => warm.counters.get(Counter::WorkingsetRefaultFile),
        Measure::Scanned => warm.counters.pgscan(),
        Measure::Stolen => warm.counters.pgsteal(),
        Measure::Sorted => total.counters.get(Counter::Pgrefill),
        Measure::Activated => warm.counters.get(Counter::Pgactivate),
        Measure::Restored => warm.counters.get(Counter::WorkingsetRestoreFile),
        Measure::ActivatedRefaults => warm.counters.get(Counter::WorkingsetActivateFile),
        Measure::Generations => total.counters.get(Counter::Aged),
        Measure::SwapIns => total.counters.get(Counter::Pswpin),
        Measure::SwapOuts => total.counters.get(Counter::Pswpout),
        Measure::Background(counter) => total.counters.get(counter),
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
