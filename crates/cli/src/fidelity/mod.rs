//! `mglru fidelity`: repeats recorded runs of real kernels, and compares the counts.
//!
//! `docs/fidelity.md` describes the model and the causes of the remaining differences.

mod report;

use crate::error::Failure;
use crate::output::Output;
use crate::progress::Bars;
use mglru_core::Lru;
use mglru_lab::fidelity::counts::{self, Compared};
use mglru_lab::fidelity::{Filter, TableKind, memcg_reclaim, oom};
use serde_json::json;
use std::path::{Path, PathBuf};

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
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  mglru fidelity ../shared/kernel/results.csv
  mglru fidelity ../shared/kernel/results.csv --kernel 7.2.12 --lru multigen
  mglru fidelity ../shared/kernel/oom.csv --json

Status 1: a count is outside of its tolerance.";

/// Runs the command.
///
/// # Errors
/// The table or a trace cannot be read, or a count is outside of its tolerance.
pub fn run(args: Args) -> Result<(), Failure> {
    let filter = Filter { kernels: args.kernel, workloads: args.workload, lru: args.lru };
    let (bars, mut output) = (Bars::default(), Output::new(args.json));
    let kind = TableKind::of(&args.results)?;
    if args.also.is_some() && kind != TableKind::Oom {
        return Err(Failure::usage(
            "--also needs a table like oom.csv; add repetitions of other rows to their table",
        ));
    }
    match kind {
        TableKind::Oom => {
            let tables: Vec<&Path> =
                std::iter::once(&args.results).chain(&args.also).map(PathBuf::as_path).collect();
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
        TableKind::Counts => {
            let Compared { comparisons, skipped } = counts::compare(&args.results, &filter, &bars)?;
            output.text(&report::text(&comparisons, &skipped))?;
            output.document(&report::document(&comparisons, &skipped))?;
            counts::check(&comparisons)
        }
    }
}
