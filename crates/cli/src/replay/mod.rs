//! `mglru replay`: traces under a virtual clock, on the machine of the kernel lab.
//!
//! ```text
//! Args ─► mglru_lab::replay ─► rows ─► text, JSON, page, plot      report.rs, page.rs, plot.rs
//! ```
//!
//! The same traces and options give the same output on every machine, except for the time taken.

mod baseline;
mod explain;
mod page;
mod plot;
mod report;
pub mod swap;

use crate::cache_options::{PolicyOptions, note_without_effect, with_mechanisms};
use crate::error::Failure;
use crate::events::{EventsFile, EventsPart, EventsWriter};
use crate::output::Output;
use crate::page::ReportFile;
use crate::parallel;
use crate::progress::Bars;
use crate::trace_options::{self, TraceOptions};
use crate::values::words;
use crate::whole_file::refuse_input;
use mglru_core::{Preset, Switch};
use mglru_lab::arguments::each_once;
use mglru_lab::mechanisms::parse_switch;
use mglru_lab::replay::life::Sink;
use mglru_lab::replay::memory::Memory;
use mglru_lab::replay::record::PageName;
use mglru_lab::replay::text::{WRITES, parse_fault_around, parse_fraction, parse_readahead, parse_writes};
use mglru_lab::replay::{self, Options};
use mglru_lab::sampling::Sample;
use mglru_lab::trace_file::{Loading, TraceFile};
use mglru_sim::Writes;
use mglru_workload::trace::OpenOptions;
use plot::PlotFile;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use swap::SwapArgs;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// Traces, in any format of `mglru trace formats`; - is stdin.
    #[arg(required = true, value_name = "TRACE", value_parser = trace_options::input())]
    traces: Vec<PathBuf>,
    /// Memory: a size (64MiB), pages (8192p) or a share of the trace's distinct pages (10%).
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10%",
        conflicts_with = "curve",
        help_heading = "Machine"
    )]
    memory: Memory,
    /// Several memory sizes, for a miss-ratio curve: 1%,5%,10%,20%.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', num_args = 1, help_heading = "Machine")]
    curve: Vec<Memory>,
    /// Read ahead of sequential misses, up to this size; 128KiB is the kernel's [default: off].
    #[arg(long, value_name = "SIZE", value_parser = parse_readahead, help_heading = "Machine")]
    readahead: Option<u32>,
    /// Map the cached pages around a mapped miss, in aligned pieces of this size, a power of two up
    /// to 2MiB; 64KiB is the kernel's [default: off].
    #[arg(long, value_name = "SIZE", value_parser = parse_fault_around, help_heading = "Machine")]
    fault_around: Option<u32>,
    /// Write to a page that is not cached: read it first (rmw), overwrite it whole (blind), or what
    /// the request needs (exact).
    #[arg(
        long,
        value_name = "HOW",
        value_parser = words(WRITES.map(|(name, _)| name), parse_writes),
        default_value = "rmw",
        hide_possible_values = true,
        help_heading = "Machine"
    )]
    writes: Writes,
    /// Seed of random choices; a replay of one trace makes none.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Machine")]
    seed: u64,
    #[command(flatten)]
    swap: SwapArgs,
    /// Behave as linux-6.12, linux-7.1, linux-7.2, or default (this project's own choice); several
    /// may be given.
    #[arg(long, value_name = "NAME", value_parser = Preset::parse, default_value = "default", value_delimiter = ',',
          help_heading = "Reclaim")]
    preset: Vec<Preset>,
    /// Switch a mechanism on; may be repeated.
    #[arg(long, value_name = "MECHANISM", value_parser = parse_switch, help_heading = "Reclaim")]
    with: Vec<Switch>,
    /// Switch a mechanism off; may be repeated.
    #[arg(long, value_name = "MECHANISM", value_parser = parse_switch, help_heading = "Reclaim")]
    without: Vec<Switch>,
    #[command(flatten)]
    policy: PolicyOptions,
    /// Compare with other policies: fifo, lru, clock, 2q, lirs, arc, w-tinylfu, s3-fifo, sieve, opt
    /// (Belady's optimum), or all.
    #[arg(long, value_name = "POLICY,...", value_parser = baseline::parse, value_delimiter = ',',
          help_heading = "Reclaim")]
    baseline: Vec<baseline::Choice>,
    #[command(flatten)]
    options: TraceOptions,
    /// Count only from this share of the accesses on: 0.25 or 25% [default: as the trace says, or
    /// 0].
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction, help_heading = "Reading traces")]
    warm: Option<f64>,
    /// Replay this share of the pages in the same share of the memory: 0.01 or 1%. Miss ratios are
    /// estimates; 1%#2 chooses other pages, and so shows how far off they are.
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["explain", "events"],
          help_heading = "Reading traces")]
    sample: Option<Sample>,
    /// Replay samples of this many salts, and print their means and the deviation of one.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sample", hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Reading traces")]
    salts: u32,
    /// Print the history of these pages of the trace: 4711,0x1267,anon:5.
    #[arg(
        long,
        value_name = "PAGE,...",
        value_delimiter = ',',
        conflicts_with = "curve",
        help_heading = "Output"
    )]
    explain: Vec<PageName>,
    /// Write every event: JSON Lines (.jsonl), a trace for ui.perfetto.dev (.perfetto), or the
    /// kernel's tracepoints as perf script prints them (.txt).
    #[arg(long, value_name = "FILE", conflicts_with = "curve", help_heading = "Output")]
    events: Option<EventsFile>,
    #[command(flatten)]
    events_part: EventsPart,
    /// Draw the miss-ratio curve.
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    plot: Option<PlotFile>,
    /// Write an HTML page with charts and tables, readable without a network.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<ReportFile>,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Validate all data structures every N steps (1000); slow, and changes no count.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1000",
          value_parser = clap::value_parser!(u64).range(1..), help_heading = "Output")]
    check: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  mglru replay trace.bin.zst --memory 10%
  mglru replay trace.csv --memory 64MiB --preset linux-7.2 --json
  mglru replay trace.txt.zst --memory 10% --baseline arc,s3-fifo,opt
  mglru replay trace.txt.zst --readahead 128KiB --fault-around 64KiB
  mglru replay anon.bin.zst --memory 32MiB --swap 64MiB --swap-device zram
  mglru replay long.txt.zst --sample 1% --salts 8 --curve 1%,5%,10% --baseline lru
  mglru replay trace.txt.zst --memory 1000p --explain 4711 --events events.jsonl
  mglru replay trace.txt.zst --events vmscan.txt --events-from 1.5 --events-until 2
  mglru replay *.txt.zst --curve 1%,5%,10%,20% --plot curve.svg

Columns: `pages` is the memory, a miss an access to a page that is not in memory, a refault a miss
of a file page that was evicted and is still remembered, `counted` the miss ratio after --warm, and
`M acc./s` the speed of the replay. docs/book/src/counters.md explains all columns and counters.";

impl Args {
    fn options(&self) -> Result<Options, Failure> {
        let presets = each_once(self.preset.iter().copied());
        let mechanisms = |preset| {
            let behaviours = self.policy.behaviours(preset, self.with.clone(), self.without.clone());
            let mechanisms = behaviours.mechanisms()?;
            note_without_effect(mechanisms, &behaviours.named());
            Ok::<_, Failure>(mechanisms)
        };
        let is_curve = !self.curve.is_empty();
        Ok(Options {
            mechanisms: presets.into_iter().map(mechanisms).collect::<Result<_, _>>()?,
            sizes: if is_curve { each_once(self.curve.iter().cloned()) } else { vec![self.memory.clone()] },
            baselines: baseline::chosen(&self.baseline),
            warm: self.warm,
            writes: self.writes,
            swap: self.swap.swap(),
            seed: self.seed,
            check_every: self.check,
            explain: self.explain.clone(),
            over_time: self.report.is_some() && !is_curve,
            readahead_pages: self.readahead,
            fault_around_pages: self.fault_around,
        })
    }

    /// Checks before the work that all files can be written.
    fn check_files(&self) -> Result<(), Failure> {
        if let Some(file) = &self.report {
            file.try_out(&self.traces)?;
        }
        if let Some(file) = &self.events {
            refuse_input("--events", file.path(), &self.traces)?;
            self.events_part.check()?;
        }
        if let Some(file) = &self.plot {
            if self.curve.is_empty() {
                return Err(Failure::usage(
                    "--plot draws a curve over several memory sizes: name them with --curve instead of --memory, such as \
                     --curve 5%,10%,20%,40%",
                ));
            }
            file.try_out(&self.traces)?;
        }
        Ok(())
    }
}

/// Runs the command.
///
/// # Errors
/// Wrong usage, a trace that cannot be read, a file that cannot be written.
pub fn run(args: Args) -> Result<(), Failure> {
    let (options, bars) = (args.options()?, Bars::default());
    // Only these depend on which pages belong to one request.
    let requests = args.readahead.is_some() || args.writes == Writes::AsRequested;
    let open = OpenOptions { requests, ..args.options.open_options() };
    let loading = Loading { sample: args.sample, ..open.into() };
    let load = |path: &PathBuf| TraceFile::load_salts(path, loading, args.salts, &bars);
    let traces = each_once(&args.traces).into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let traces = traces.concat();
    args.check_files()?;
    // Before a file of events is made.
    options.check_single(traces.len(), args.events.is_some())?;
    let events = args.events.as_ref();
    let events = events.map(|file| EventsWriter::create(file, options.mechanisms[0], false)).transpose()?;
    let events = Rc::new(RefCell::new(events));
    let sink = args.events.is_some().then(|| -> Sink {
        let events = events.clone();
        let part = args.events_part.clone();
        Box::new(move |record| {
            if part.wants(record)
                && let Some(events) = &mut *events.borrow_mut()
            {
                events.write(record);
            }
        })
    });
    // Only curves and samples run in parallel: the speed that is printed is that of a replay alone.
    let is_curve = !args.curve.is_empty();
    let threads = if is_curve || args.salts > 1 { parallel::threads() } else { 1 };
    let rows = match args.salts {
        1 => replay::replay(&traces, &options, threads, sink, &bars)?,
        salts => replay::replay_salts(&traces, salts as usize, &options, threads, &bars)?,
    };
    let events_place = events.take().map(EventsWriter::finish).transpose()?;
    let curves = if is_curve { replay::curves(&rows, &options) } else { Vec::new() };

    let mut output = Output::new(args.json);
    output.text(&match is_curve {
        true => report::curves_text(&rows, &curves),
        false => report::text(&rows),
    })?;
    let document = report::document(&rows, &curves);
    output.document(&document)?;
    if let Some(file) = &args.report {
        file.write(&page::page(&rows, &curves, &document), &mut output)?;
    }
    if let Some(place) = events_place {
        output.text(&format!("\n{place}\n"))?;
    }
    if let Some(plot) = &args.plot {
        plot.draw(&curves)?;
        output.text(&format!("\nThe curve is in {}\n", plot.path().display()))?;
    }
    Ok(())
}
