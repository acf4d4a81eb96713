//! `mglru demo`: which cache keeps the pages that matter while a scan runs beside them?
//!
//! ```text
//! Args ─► mglru_lab::demo ─► DemoOutcome ─► chart, tables, JSON, page      report.rs, page.rs
//! ```

mod page;
mod report;

use crate::cache_options::{CacheOptions, with_mechanisms};
use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::Bars;
use crate::values::parse_duration;
use crate::{layout, size};
use mglru_core::{Mechanisms, Preset};
use mglru_lab::demo::{self, DemoRequest};
use report::Report;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEFAULT_BUDGET_BYTES: u64 = 256 << 20;

const EXAMPLES: &str = "\
Examples:
  mglru demo                                            about a minute, 1 GiB of disk space
  mglru demo --size 16MiB --memory 4MiB --seconds 0.5   a quick look
  mglru demo --directory /mnt/nvme --size 8GiB --memory 512MiB --report demo.html

The file has no name and is gone when the demo ends, however it ends. To hold the system's page
cache to the same memory, the demo moves itself into a memory cgroup for that part. Without
permission, it leaves the system out and says why.

Columns: `from memory` is the share of the reader's reads that waited for no disk, `p99` the time
that 99 of 100 reads did not exceed. docs/book/src/counters.md explains the others.";

/// Options of `mglru demo`.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// Directory for the file [default: the directory for temporary files].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Size of the file.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1GiB")]
    size: u64,
    /// How long each cache is measured.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration, default_value = "8")]
    seconds: Duration,
    /// Seed of the reader's random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write an HTML page with charts and tables, readable without a network.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<ReportFile>,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    cache: CacheOptions,
}

/// Runs the command.
///
/// # Errors
/// The file cannot be made, a read failed, or a page was not what it should be.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut output = Output::new(args.json);
    if let Some(file) = &args.report {
        file.try_out::<&Path>([])?;
    }
    let budget = args.cache.budget_or(DEFAULT_BUDGET_BYTES);
    let directory = args.directory.unwrap_or_else(layout::default_directory);
    let mut mechanisms = vec![args.cache.mechanisms()?];
    let rival = Mechanisms::preset(Preset::Linux72);
    if mechanisms[0] != rival {
        mechanisms.push(rival);
    }
    let request = DemoRequest {
        time: args.seconds,
        seed: args.seed,
        backend: args.cache.backend(),
        mechanisms,
        ..DemoRequest::new(directory, args.size, budget.bytes)
    };
    request.check()?;
    output.text(&report::introduction(&request))?;
    let outcome = demo::run(&request, &Bars::default())?;
    let document = json!({ "demo": outcome });
    let report = Report(outcome);
    output.text(&report.text())?;
    output.document(&document)?;
    if let Some(file) = &args.report {
        file.write(&report.page(&document), &mut output)?;
    }
    Ok(())
}
