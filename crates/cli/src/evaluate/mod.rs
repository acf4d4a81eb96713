//! `mglru evaluate`: what a change of reclaim does to the standard loads, as a report of one page.
//!
//! ```text
//! Args ─► mglru_lab::evaluate ─► Evaluation ─► text, Markdown, JSON      report.rs
//! ```
//!
//! `docs/evaluate-a-patch.md` leads from a change to the report.

mod report;

use crate::error::Failure;
use crate::output::Output;
use crate::progress::Bars;
use clap::ValueEnum;
use mglru_core::{Preset, Switch};
use mglru_lab::arguments::each_once;
use mglru_lab::evaluate::{Change, EvaluationRequest, LOADS, Size, counts, evaluate};
use mglru_lab::mechanisms::parse_switch;
use report::Shown;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = examples())]
pub struct Args {
    /// The mechanisms: all of them are off before and on after.
    #[arg(value_name = "MECHANISM", value_parser = parse_switch, conflicts_with_all = ["presets", "binary", "counts"])]
    mechanisms: Vec<Switch>,
    /// Instead of a mechanism: two presets, before and after.
    #[arg(long, value_name = "BEFORE,AFTER", value_parser = Preset::parse, value_delimiter = ',', num_args = 1,
          conflicts_with_all = ["binary", "counts", "preset"], help_heading = "What is evaluated")]
    presets: Vec<Preset>,
    /// Instead of a mechanism: the program `mglru` of another build, whose presets are after.
    #[arg(long, value_name = "PATH", conflicts_with = "counts", help_heading = "What is evaluated")]
    binary: Option<PathBuf>,
    /// Print what this build counts, as JSON; `--binary` runs this.
    #[arg(long, help_heading = "What is evaluated")]
    counts: bool,
    /// Presets on which the change is tried.
    #[arg(long, value_name = "NAME,...", value_parser = Preset::parse, value_delimiter = ',',
          default_value = "linux-7.1,linux-7.2,default", help_heading = "Where")]
    preset: Vec<Preset>,
    /// Only these loads.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help_heading = "Where")]
    load: Vec<String>,
    /// Number of seeds; with fewer than six, no effect reaches 95 % confidence.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Effort")]
    runs: u32,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Effort")]
    seed: u64,
    /// Accesses of each load.
    #[arg(long, value_name = "N", default_value_t = Size::default().accesses, help_heading = "Effort",
          value_parser = clap::value_parser!(u64).range(1000..=1 << 24))]
    accesses: u64,
    /// Pages of each load; memory is a fifth of them.
    #[arg(long, value_name = "N", default_value_t = Size::default().pages, help_heading = "Effort",
          value_parser = clap::value_parser!(u64).range(320..=1 << 24))]
    pages: u64,
    /// Format of the report.
    #[arg(
        long,
        value_name = "text|markdown",
        value_enum,
        default_value = "text",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    format: Format,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    json: bool,
}

/// Format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a mail.
    Text,
    /// For a merge request.
    Markdown,
}

const EXAMPLES: &str = "\
Examples:
  mglru evaluate reclaim_loop
  mglru evaluate workingset_rework lulesh_fix --preset linux-7.1
  mglru evaluate reclaim_loop --preset linux-7.1,linux-7.2 --format markdown > report.md
  mglru evaluate --presets linux-7.1,linux-7.2 --load skewed,writes
  mglru evaluate --binary ../my-branch/target/release/mglru --runs 12

A change of misses or of a cost is certain if all of its interval is on one side of 0. Seeds vary the
accesses of a load, and its memory by at most 1 %. docs/evaluate-a-patch.md explains the report.";

/// The loads, and examples.
fn examples() -> String {
    let loads = LOADS.map(|load| format!("  {:<8} {}", load.name, load.words));
    format!("Loads:\n{}\n\n{EXAMPLES}", loads.join("\n"))
}

/// Runs the command.
///
/// # Errors
/// Wrong usage, or another build that cannot be asked.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut output = Output::new(args.json || args.counts);
    let bars = Bars::default();
    let change = match (&args.presets[..], &args.mechanisms[..]) {
        (&[before, after], _) => Change::Presets(before, after),
        ([], []) => match args.binary {
            Some(binary) => Change::Build { binary },
            // The counts are of presets, not of a change.
            None if args.counts => Change::Presets(Preset::Default, Preset::Default),
            None => {
                return Err(Failure::usage(
                    "nothing to evaluate: name a mechanism, such as reclaim_loop, or give --presets or --binary",
                ));
            }
        },
        ([], named) => Change::Mechanisms(each_once(named.iter().copied())),
        _ => return Err(Failure::usage("--presets needs two presets: before,after")),
    };
    let mut request = EvaluationRequest::new(change);
    request.presets = each_once(args.preset);
    request.loads = args.load;
    (request.seed, request.runs) = (args.seed, args.runs);
    request.size = Size { accesses: args.accesses, pages: args.pages };
    if args.counts {
        return output.document(&json!(counts(&request, &bars)?));
    }
    let evaluation = evaluate(&request, &bars)?;
    let shown = Shown { evaluation: &evaluation, request: &request };
    output.document(&json!({ "evaluation": evaluation }))?;
    match args.format {
        Format::Markdown => output.text(&shown.markdown()),
        Format::Text => output.text(&shown.text()),
    }
}
