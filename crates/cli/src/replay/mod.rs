//! `mglru replay`: traces under a virtual clock, on the machine of the kernel lab.
//!
//! ```text
//! Args ─► mglru_lab::replay ─► rows ─► text, JSON, plot      report.rs, plot.rs
//! ```
//!
//! Apart from how long it took, the same traces and options give the same output on every machine.

mod baseline;
mod events;
mod explain;
mod json_lines;
mod page;
mod perfetto;
mod plot;
mod report;
mod short;
pub mod swap;

use crate::cache_options::{PolicyOptions, with_mechanisms};
use crate::error::Failure;
use crate::output::{Output, refuse_input};
use crate::page::ReportFile;
use crate::parallel;
use crate::progress::Bars;
use crate::trace_options::TraceOptions;
use clap::ValueEnum;
use events::{EventsFile, EventsWriter};
use mglru_core::{Preset, Switch};
use mglru_lab::replay::life::Sink;
use mglru_lab::replay::memory::{Memory, parse_fraction};
use mglru_lab::replay::record::PageName;
use mglru_lab::replay::{self, Options};
use mglru_lab::trace_file::TraceFile;
use mglru_sim::Writes;
use plot::PlotFile;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use swap::SwapArgs;

/// Arguments of the mode.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// Traces, in any of the formats of `mglru trace formats`
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Memory: a size (64MiB), pages (8192p) or a share of the trace's distinct pages (10%)
    #[arg(long, value_name = "SIZE", default_value = "10%", conflicts_with = "curve")]
    memory: Memory,
    /// Several memory sizes, for a miss-ratio curve: 1%,5%,10%,20%
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', num_args = 1)]
    curve: Vec<Memory>,
    /// Draw the curve
    #[arg(long, value_name = "FILE.svg|png", requires = "curve")]
    plot: Option<PlotFile>,
    /// Behaviours of a kernel version, or ours: linux-6.12, linux-7.1, linux-7.2, default; several
    /// may be given
    #[arg(long, value_name = "NAME", value_parser = Preset::parse, default_value = "default", value_delimiter = ',')]
    preset: Vec<Preset>,
    /// Turn a mechanism on; may be repeated
    #[arg(long, value_name = "MECHANISM", value_parser = Switch::parse)]
    with: Vec<Switch>,
    /// Turn a mechanism off; may be repeated
    #[arg(long, value_name = "MECHANISM", value_parser = Switch::parse)]
    without: Vec<Switch>,
    #[command(flatten)]
    policy: PolicyOptions,
    /// Other policies beside it: fifo, lru, clock, 2q, lirs, arc, w-tinylfu, s3-fifo, sieve, opt
    /// (Belady's), or all
    #[arg(long, value_name = "POLICY,...", value_parser = baseline::parse, value_delimiter = ',')]
    baseline: Vec<baseline::Choice>,
    /// Count again from this share of accesses on: 0.25 or 25%; default: as beside the trace, or 0
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction)]
    warm: Option<f64>,
    /// A write to a page that is not cached reads it first (rmw), or overwrites it whole (blind)
    #[arg(long, value_name = "HOW", value_enum, default_value = "rmw", hide_possible_values = true)]
    writes: WriteMode,
    #[command(flatten)]
    swap: SwapArgs,
    /// Decides what is left to chance; one job alone leaves nothing
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Recount lists, sizes, charges, generations every N steps (1000); slow, changes no number
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1000",
          value_parser = clap::value_parser!(u64).range(1..))]
    check: Option<u64>,
    /// Tell what became of these pages of the trace, from their first touch on: 4711,0x1267,anon:5
    #[arg(long, value_name = "PAGE,...", value_delimiter = ',', conflicts_with = "curve")]
    explain: Vec<PageName>,
    /// Write all that happens: JSON Lines (.jsonl), or a trace that ui.perfetto.dev opens
    /// (.perfetto)
    #[arg(long, value_name = "FILE", conflicts_with = "curve")]
    events: Option<EventsFile>,
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
  mglru replay trace.bin.zst --memory 10%
  mglru replay trace.csv --memory 64MiB --preset linux-7.2 --json
  mglru replay trace.txt.zst --memory 10% --baseline arc,s3-fifo,opt
  mglru replay anon.bin.zst --memory 32MiB --swap 64MiB --swap-device zram
  mglru replay trace.txt.zst --memory 1000p --explain 4711 --events events.jsonl
  mglru replay *.txt.zst --curve 1%,5%,10%,20% --plot curve.svg";

/// How writes treat a page that is not cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WriteMode {
    /// Read it first: read-modify-write
    Rmw,
    /// Overwrite it whole
    Blind,
}

impl Args {
    fn options(&self) -> Result<Options, Failure> {
        let mut presets = Vec::new();
        for &preset in &self.preset {
            if !presets.contains(&preset) {
                presets.push(preset);
            }
        }
        let mechanisms =
            |preset| self.policy.behaviours(preset, self.with.clone(), self.without.clone()).mechanisms();
        let is_curve = !self.curve.is_empty();
        Ok(Options {
            mechanisms: presets.into_iter().map(mechanisms).collect::<Result<_, _>>()?,
            sizes: if is_curve { self.curve.clone() } else { vec![self.memory.clone()] },
            baselines: baseline::chosen(&self.baseline),
            warm: self.warm,
            writes: match self.writes {
                WriteMode::Rmw => Writes::AfterRead,
                WriteMode::Blind => Writes::Overwrite,
            },
            swap: self.swap.swap(),
            seed: self.seed,
            check_every: self.check,
            explain: self.explain.clone(),
            over_time: self.report.is_some() && !is_curve,
        })
    }
}

/// Runs the mode.
///
/// # Errors
/// Wrong usage, a trace that cannot be read, a plot that cannot be written.
pub fn run(args: Args) -> Result<(), Failure> {
    let (options, bars) = (args.options()?, Bars::default());
    let load = |path: &PathBuf| TraceFile::load(path, args.options.open_options(), &bars);
    let traces: Vec<TraceFile> = args.traces.iter().map(load).collect::<Result<_, _>>()?;
    if let Some(file) = &args.report {
        file.try_out(&args.traces)?;
    }
    if let Some(file) = &args.events {
        refuse_input("--events", file.path(), &args.traces)?;
    }
    if let Some(file) = &args.plot {
        refuse_input("--plot", file.path(), &args.traces)?;
    }
    if traces.len() * options.mechanisms.len() > 1 && (args.events.is_some() || !args.explain.is_empty()) {
        return Err(Failure::usage(
            "--explain and --events are about one replay: give one trace and one preset",
        ));
    }
    let events = args.events.as_ref();
    let events = events.map(|file| EventsWriter::create(file, options.mechanisms[0].lru())).transpose()?;
    let events = Rc::new(RefCell::new(events));
    let sink = args.events.is_some().then(|| -> Sink {
        let events = events.clone();
        Box::new(move |record| {
            if let Some(events) = &mut *events.borrow_mut() {
                events.write(record);
            }
        })
    });
    // Only curves run side by side: the speed of a replay is that of one that is alone.
    let is_curve = !args.curve.is_empty();
    let threads = if is_curve { parallel::threads() } else { 1 };
    let rows = replay::replay(&traces, &options, threads, sink, &bars)?;
    events.take().map_or(Ok(()), EventsWriter::finish)?;
    let curves = if is_curve { replay::curves(&rows, &options) } else { Vec::new() };

    let mut output = Output::new(args.json);
    output.text(&match is_curve {
        true => report::curves_text(&rows, &curves),
        false => report::text(&rows),
    })?;
    let document = report::document(&rows, &curves);
    output.document(&document)?;
    if let Some(file) = &args.report {
        file.write(&page::page(&rows, &curves, &document))?;
        output.text(&format!("\n{} shows it\n", file.path().display()))?;
    }
    if let Some(events) = &args.events {
        output.text(&format!("\n{} has the events\n", events.path().display()))?;
    }
    if let Some(plot) = &args.plot {
        let warm = rows.iter().any(|row| row.warm.from_access > 0);
        plot.draw(&curves, warm)?;
        output.text(&format!("\n{} shows the curve\n", plot.path().display()))?;
    }
    Ok(())
}
