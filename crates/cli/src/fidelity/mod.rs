//! `mglru fidelity`: repeats recorded runs of real kernels, and compares the counts.
//!
//! `docs/fidelity.md` describes the model and the causes of the remaining differences.

mod page;
mod report;

use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::Bars;
use clap::ValueEnum;
use mglru_core::Lru;
use mglru_lab::fidelity::counts::{self, MemoryFrom};
use mglru_lab::fidelity::{Filter, TableKind, memcg_reclaim, oom, stores};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Counts of real kernels, such as results.csv of the kernel lab; their traces lie beside it.
    #[arg(value_name = "RESULTS.csv")]
    results: PathBuf,
    /// Further runs of the same cases, for a table like oom.csv.
    #[arg(long, value_name = "RUNS.csv")]
    also: Option<PathBuf>,
    /// Only rows of these kernels.
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',', help_heading = "Selection")]
    kernel: Vec<String>,
    /// Only rows of these workloads.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Selection")]
    workload: Vec<String>,
    /// Only rows of this policy: multigen or classic.
    #[arg(long, value_name = "POLICY", value_parser = Lru::parse, help_heading = "Selection")]
    lru: Option<Lru>,
    /// Memory of a replay: as measured in the kernel's run, or as predicted from limit and trace.
    #[arg(long, value_name = "HOW", value_enum, default_value = "measured", help_heading = "Machine")]
    capacity: CapacityFrom,
    /// Write an HTML page with charts and tables, readable without a network.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<ReportFile>,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Source of the memory of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CapacityFrom {
    /// The mean number of pages that the kernel had in memory.
    Measured,
    /// Computed from the limit and the trace.
    Predicted,
}

const EXAMPLES: &str = "\
Examples:
  mglru fidelity results.csv
  mglru fidelity results.csv --kernel 7.2.12 --lru multigen
  mglru fidelity results.csv --capacity predicted --report fidelity.html
  mglru fidelity oom.csv --json
  mglru fidelity docs/stores.csv

The file has recorded runs of kernels; lab-kernel/ makes such files. Three tables are printed: each
count beside the kernel's, the capacity that the limit leaves, and the changes from kernel to kernel
and from multi-gen to classic. Requests, kills and stores have a table of their own.
docs/fidelity.md explains them.

Status 1: a count is outside of its tolerance, or a file is missing or cannot be read. Capacities and changes do not affect the status.";

/// Runs the command.
///
/// # Errors
/// The table or a trace cannot be read, or a count is outside of its tolerance.
pub fn run(args: Args) -> Result<(), Failure> {
    let filter = Filter { kernels: args.kernel, workloads: args.workload, lru: args.lru };
    let (bars, mut output) = (Bars::default(), Output::new(args.json));
    let kind = TableKind::of(&args.results)?;
    let tables = kind.tables(&args.results, args.also.as_deref())?;
    if kind != TableKind::Counts && args.report.is_some() {
        return Err(Failure::usage("--report needs a table like results.csv"));
    }
    if kind != TableKind::Counts && args.capacity == CapacityFrom::Predicted {
        return Err(Failure::usage("--capacity needs a table like results.csv"));
    }
    if let Some(file) = &args.report {
        file.try_out([&args.results])?;
    }
    match kind {
        TableKind::Oom => {
            let compared = oom::compare(&tables, &filter, &bars)?;
            output.text(&report::oom(&compared))?;
            output.document(&json!({"rows": compared}))?;
            oom::check(&compared)
        }
        TableKind::MemcgReclaim => {
            let compared = memcg_reclaim::compare(&args.results, &filter, &bars)?;
            output.text(&report::memcg_reclaim(&compared))?;
            // Each is serialised as two rows.
            let rows = compared.iter().flat_map(|one| json!(one).as_array().cloned().unwrap_or_default());
            output.document(&json!({"rows": rows.collect::<Vec<_>>()}))?;
            memcg_reclaim::check(&compared)
        }
        TableKind::Stores => {
            let compared = stores::compare(&args.results, &filter, &bars)?;
            let changes = stores::changes(&compared);
            output.text(&report::stores(&compared, &changes))?;
            output.document(&json!({"rows": compared, "changes": changes}))?;
            stores::check(&compared)
        }
        TableKind::Counts => {
            let memory = match args.capacity {
                CapacityFrom::Measured => MemoryFrom::Measured,
                CapacityFrom::Predicted => MemoryFrom::Predicted,
            };
            let compared = counts::compare(&args.results, &filter, memory, &bars)?;
            let (shown, document) = (report::Counts(&compared), json!(compared));
            output.text(&shown.text())?;
            output.document(&document)?;
            if let Some(file) = &args.report {
                file.write(&shown.page(&args.results, &document), &mut output)?;
            }
            counts::check(&compared.comparisons)
        }
    }
}
