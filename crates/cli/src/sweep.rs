//! `mglru sweep`: a grid of replays into Parquet files.

use crate::error::Failure;
use crate::output::Output;
use crate::parallel;
use crate::progress::Bars;
use crate::table::{count, counted};
use mglru_lab::sweep::{self, Folder, Report, Sweep};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The grid, a TOML file.
    #[arg(value_name = "GRID.toml")]
    grid: PathBuf,
    /// Folder for the rows; an interrupted sweep goes on with the rows that are missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replays at a time [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const EXAMPLES: &str = "\
A grid: every trace with every policy, size and seed
  traces = [\"web.zst\", { path = \"mail.csv\", format = \"arc\", sample = 0.01 }]
  policies = [\"default\", \"linux-7.2 -reclaim_loop\", \"linux-6.12 lru=classic\", \"arc\", \"opt\"]
  memory = [\"1%\", \"10%\", \"64MiB\", \"8192p\"]
  seeds = [1]                # also: warm, writes, swap, swap_device, swappiness,
                             # readahead, fault_around, as in `mglru replay --help`

Examples:
  mglru sweep grid.toml --out rows
  mglru sweep grid.toml --out rows --threads 4
  mglru sweep grid.toml --out rows --json

Each row is a replay; `unit` numbers them and `error` says why one failed. All columns but `seconds`
depend on the grid alone, not on the threads. Any reader of Parquet takes the folder as one table.
Exit status: 0 done; 1 a unit failed, a file is missing or cannot be read, or rows cannot be
written; 2 wrong usage or an invalid grid.";

/// Runs the command.
///
/// # Errors
/// An invalid grid, a folder that cannot be written, a unit that failed.
pub fn run(args: Args) -> Result<(), Failure> {
    let sweep = Sweep::read(&args.grid)?;
    sweep.check_traces()?;
    let folder = Folder::open(&args.out, &sweep)?;
    let threads = args.threads.map_or_else(parallel::threads, |threads| threads as usize);
    let report = sweep::run(&sweep, &folder, threads, &Bars::default())?;
    let mut output = Output::new(args.json);
    output.text(&text(&report, &args.out.display().to_string()))?;
    output.document(&json!(report))?;
    match &report.first_failure {
        None => Ok(()),
        Some(first) => Err(Failure::work(format_args!(
            "{} of {} units failed; their rows have the error. The first: {first}",
            count(report.failed_units),
            count(report.units)
        ))),
    }
}

/// The work done, and the cost of a unit.
fn text(report: &Report, folder: &str) -> String {
    let before = report.units - report.done_units;
    let mut text = counted(report.units, ["unit", "units"]);
    if before > 0 {
        text += &format!(", {} of them done before", count(before));
    }
    text += &format!("; {:.1} s\n", report.seconds);
    if report.accesses > 0 {
        let per_million = report.replay_seconds / (report.accesses as f64 / 1e6);
        text += &format!(
            "{} replayed, in {per_million:.2} core seconds per million\n",
            counted(report.accesses, ["access was", "accesses were"])
        );
    }
    text + &format!("The rows are in {folder}\n")
}
