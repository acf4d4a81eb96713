//! `mglru ablate`: each mechanism off, alone, against all of them, over seeds.
//!
//! ```text
//! Args ─► mglru_lab::ablate ─► Ablation ─► text, JSON, page     report.rs, page.rs
//! ```
//!
//! Everything happens in the simulator: the same command gives the same figures on every machine.

mod page;
mod report;

use crate::cache_options::with_mechanisms;
use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::Bars;
use crate::replay::swap::SwapArgs;
use crate::run::Behaviours;
use crate::trace_options::TraceOptions;
use mglru_lab::ablate::{self, Input, Request};
use mglru_lab::replay::memory::{Memory, parse_fraction};
use report::Told;
use std::path::PathBuf;

/// Arguments of the mode.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// A trace, in any of the formats of `mglru trace formats`, or a scenario (.toml)
    #[arg(value_name = "TRACE|SCENARIO")]
    input: PathBuf,
    #[command(flatten)]
    behaviours: Behaviours,
    /// Memory: a size (64MiB), pages (8192p) or a share of the trace's distinct pages (10%)
    /// [default: 10% of a trace; a scenario's own]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seeds: with fewer than six, no effect is certain to 95 %
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Two mechanisms at a time as well, and what they do together beyond what each does
    #[arg(long)]
    pairs: bool,
    /// Of a trace: count from this share of accesses on; default: as beside the trace, or 0
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction)]
    warm: Option<f64>,
    #[command(flatten)]
    swap: SwapArgs,
    #[command(flatten)]
    options: TraceOptions,
    /// Write one page with tables and figures, readable without a network
    #[arg(long, value_name = "FILE.html")]
    report: Option<ReportFile>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  mglru ablate trace.bin.zst --memory 10% --report ablation.html
  mglru ablate trace.bin.zst --preset linux-7.2 --pairs
  mglru ablate experiments/floors.toml --runs 12 --json

What seeds vary: of a scenario, everything that its jobs leave to chance. A trace leaves nothing to
chance, so its memory is varied, by at most 1 % (3 pages at least); the first seed has it as it was
asked for.";

/// Runs the mode.
///
/// # Errors
/// Wrong usage, or an input that cannot be read or run.
pub fn run(args: Args) -> Result<(), Failure> {
    let request = Request {
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
    if let Some(report) = &args.report {
        report.try_out([&request.input])?;
    }
    let ablation = ablate::ablate(&input, &request, &bars)?;
    let ablation = Told(&ablation);
    let document = ablation.document(args.seed);
    let mut output = Output::new(args.json);
    output.text(&ablation.text(args.seed))?;
    output.document(&document)?;
    if let Some(report) = &args.report {
        report.write(&ablation.page(&request.input, args.seed, &document))?;
        output.text(&format!("\n{} shows it\n", report.path().display()))?;
    }
    Ok(())
}
