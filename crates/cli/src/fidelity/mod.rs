//! `mglru fidelity`: replays what real kernels replayed, and holds the counts against each other.
//!
//! What is modelled, and where the remaining differences come from: `docs/fidelity.md`.

mod report;

use crate::error::Failure;
use crate::output::Output;
use crate::parallel;
use crate::progress::Bars;
use crate::trace_file::TraceFile;
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Lru, Mechanisms};
use mglru_lab::fidelity::{
    Comparison, Filter, KernelRun, Measure, Subject, Table, memcg_reclaim, oom, subjects, trace_of,
};
use mglru_lab::replay::run::{Outcome, Plan, run_all};
use mglru_sim::Tally;
use mglru_workload::trace::OpenOptions;
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Arguments of the mode.
#[derive(clap::Args)]
pub struct Args {
    /// What kernels did, as ../shared/kernel/results.csv; traces are beside it
    #[arg(value_name = "RESULTS.csv")]
    results: PathBuf,
    /// Further runs of the same, of a table like oom.csv
    #[arg(long, value_name = "RUNS.csv")]
    also: Option<PathBuf>,
    /// Only rows of these kernels
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Only rows of these workloads
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    workload: Vec<String>,
    /// Only rows of this policy: multigen or classic
    #[arg(long, value_name = "POLICY", value_parser = Lru::parse)]
    lru: Option<Lru>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the mode.
///
/// # Errors
/// The table or a trace cannot be read, or a count is not close enough.
pub fn run(args: Args) -> Result<(), Failure> {
    let filter = Filter { kernels: args.kernel, workloads: args.workload, lru: args.lru };
    let header = header_of(&args.results)?;
    if oom::is_meant(&header) {
        let tables: Vec<&Path> =
            std::iter::once(&args.results).chain(&args.also).map(PathBuf::as_path).collect();
        let compared = oom::compare(&tables, &filter, &Bars::default())?;
        let mut output = Output::new(args.json);
        output.text(&report::oom(&compared))?;
        output.document(&json!({"rows": compared}))?;
        return oom::check(&compared);
    }
    if args.also.is_some() {
        return Err(Failure::usage(
            "--also is for a table like oom.csv: repetitions of other rows belong into their table",
        ));
    }
    if memcg_reclaim::is_meant(&header) {
        let compared = memcg_reclaim::compare(&args.results, &filter, &Bars::default())?;
        let mut output = Output::new(args.json);
        output.text(&report::memcg_reclaim(&compared))?;
        let mut rows = Vec::new();
        for one in &compared {
            // Two of each.
            rows.extend(json!(one).as_array().cloned().unwrap_or_default());
        }
        output.document(&json!({"rows": rows}))?;
        return memcg_reclaim::check(&compared);
    }
    let table = Table::read(&args.results, &filter)?;
    if table.runs.is_empty() {
        let reason = table.skipped.first().map_or("", |row| &row.reason);
        return Err(Failure::work(format_args!(
            "{}: none of the rows can be replayed: {reason}",
            args.results.display()
        )));
    }
    let subjects = subjects(&table.runs);
    let comparisons = compare(&args.results, &subjects)?;
    let mut output = Output::new(args.json);
    output.text(&report::text(&comparisons, &table.skipped))?;
    output.document(&report::document(&comparisons, &table.skipped))?;
    verdict(&comparisons)
}

/// The names of a table's columns, which say what it is about.
fn header_of(path: &Path) -> Result<String, Failure> {
    let failure = |e: std::io::Error| Failure::work(format_args!("{}: {e}", path.display()));
    let mut header = String::new();
    BufReader::new(File::open(path).map_err(failure)?).read_line(&mut header).map_err(failure)?;
    Ok(header)
}

/// Replays what all subjects need, and compares.
fn compare(table: &Path, subjects: &[Subject]) -> Result<Vec<Comparison>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for subject in subjects {
        let name = subject.runs[0].setting.workload.as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let load =
        |name: &&str| TraceFile::load(&trace_of(table, name)?, OpenOptions::default(), &Bars::default());
    let traces = names.iter().map(load).collect::<Result<Vec<TraceFile>, Failure>>()?;
    let trace_of = |run: &KernelRun| {
        let position = names.iter().position(|name| *name == run.setting.workload);
        &traces[position.expect("all traces were loaded")]
    };
    let mut plans = Vec::new();
    for subject in subjects {
        let run = &subject.runs[0];
        check_length(trace_of(run), run)?;
        plans.extend(subject.variants.iter().map(|variant| Plan {
            trace: trace_of(run),
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
        }));
    }
    let outcomes = run_all(plans, parallel::threads(), &Bars::default())?;
    let mut comparisons = Vec::new();
    let mut next = 0;
    for subject in subjects {
        let outcomes = &outcomes[next..next + subject.variants.len()];
        next += subject.variants.len();
        comparisons.extend(subject.compare(|number, measure| count(&outcomes[number], measure)));
    }
    Ok(comparisons)
}

/// The table and the trace may be of different days.
fn check_length(trace: &TraceFile, run: &KernelRun) -> Result<(), Failure> {
    let accesses = trace.counts(&Bars::default())?.accesses;
    if accesses == run.records && run.warm_from < accesses {
        return Ok(());
    }
    Err(Failure::work(format_args!(
        "{}: not the trace of the row: it has {accesses} accesses, the row says n = {} and warm_index = {}",
        trace.path().display(),
        run.records,
        run.warm_from
    )))
}

/// One of our numbers.
fn count(outcome: &Outcome, measure: Measure) -> f64 {
    let warm = outcome.warm();
    let total = outcome.report.total();
    // The lab counts pages read from the disk with the files; what comes from swap is counted
    // apart.
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

/// Names what is outside.
fn verdict(comparisons: &[Comparison]) -> Result<(), Failure> {
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
    Err(Failure::work(format_args!("further from the kernel than allowed: {}", out.join(", "))))
}
