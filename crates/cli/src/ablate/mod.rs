//! `mglru ablate`: measures each mechanism's effect by switching it off, over several seeds.
//!
//! ```text
//! Args ─► mglru_lab::ablate ─► Ablation ─► text, JSON, page     report.rs, page.rs
//! ```
//!
//! All runs are simulated: the same command gives the same figures on every machine.

mod page;
mod report;

use crate::cache_options::{note_without_effect, with_mechanisms};
use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::Bars;
use crate::replay::swap::SwapArgs;
use crate::run::Behaviours;
use crate::trace_options::{self, TraceOptions};
use mglru_lab::ablate::{self, AblationRequest, Input};
use mglru_lab::replay::memory::Memory;
use mglru_lab::replay::text::parse_fraction;
use report::Shown;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// A trace, in any format of `mglru trace formats` (- is stdin), or a scenario (.toml).
    #[arg(value_name = "TRACE|SCENARIO", value_parser = trace_options::input())]
    input: PathBuf,
    /// Memory: a size (64MiB), pages (8192p) or a share of the trace's distinct pages (10%)
    /// [default: 10% of a trace; the scenario's own].
    #[arg(long, value_name = "SIZE", help_heading = "Machine")]
    memory: Option<Memory>,
    #[command(flatten)]
    swap: SwapArgs,
    /// Number of seeds; with fewer than six, no effect reaches 95 % confidence.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Effort")]
    runs: u32,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Effort")]
    seed: u64,
    /// Also switch off two mechanisms at a time, and show their joint effect beyond the sum.
    #[arg(long, help_heading = "Effort")]
    pairs: bool,
    #[command(flatten)]
    behaviours: Behaviours,
    #[command(flatten)]
    options: TraceOptions,
    /// Count only from this share of a trace's accesses on [default: as the trace says, or 0].
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction, help_heading = "Reading traces")]
    warm: Option<f64>,
    /// Write an HTML page with charts and tables, readable without a network.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<ReportFile>,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  mglru ablate trace.bin.zst --memory 10% --report ablation.html
  mglru ablate trace.bin.zst --preset linux-7.2 --pairs
  mglru ablate experiments/floors.toml --runs 12 --json

A seed varies all random choices of a scenario's jobs. A trace has none, so its memory varies
instead, by at most 1 % or 3 pages; the first seed uses the memory that was asked for.

Columns: medians with `all` mechanisms and `without` this one; `effect` is the median change of runs
with the same seed, and `from` and `to` bound it. A positive effect of misses means that the
mechanism saves misses. With fewer than six seeds each row is `uncertain`. docs/ablate.md explains
the report.";

/// Runs the command.
///
/// # Errors
/// Wrong usage, or an input that cannot be read or run.
pub fn run(args: Args) -> Result<(), Failure> {
    let request = AblationRequest {
        input: args.input,
        overrides: args.behaviours.overrides(),
        memory: args.memory,
        seed: args.seed,
        runs: args.runs,
        pairs: args.pairs,
        warm: args.warm,
        swap: args.swap.swap(),
        open: args.options.open_options(),
    };
    let bars = Bars::default();
    let input = Input::load(&request, &bars)?;
    bars.hidden(|| note_without_effect(input.mechanisms(), &request.overrides.named()));
    if let Some(report) = &args.report {
        report.try_out(input.files())?;
    }
    let ablation = ablate::ablate(&input, &request, &bars)?;
    let document = json!({ "ablation": ablation });
    let ablation = Shown(&ablation);
    let mut output = Output::new(args.json);
    output.text(&ablation.text())?;
    output.document(&document)?;
    if let Some(report) = &args.report {
        report.write(&ablation.page(&request.input, &document), &mut output)?;
    }
    Ok(())
}
