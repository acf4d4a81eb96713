//! `mglru replay`: traces under a virtual clock, on the machine of the kernel lab.
//!
//! ```text
//! Args ─► TraceFile  each trace, once          trace_file.rs
//!      ─► Plan       trace × preset × memory   run.rs
//!      ─► Outcome    a report, and how long    run.rs
//!         the same with other policies         baseline.rs
//!      ─► text, JSON, plot                     report.rs, plot.rs
//! ```
//!
//! Apart from how long it took, the same traces and options give the same output on every machine.

mod baseline;
mod events;
mod explain;
mod json_lines;
pub mod memory;
mod page;
mod perfetto;
mod plot;
mod record;
mod report;
pub mod run;
mod short;
pub mod swap;
mod word;

use crate::cache_options::{PolicyOptions, compose, with_mechanisms};
use crate::error::Failure;
use crate::output::{Output, refuse_input};
use crate::page::ReportFile;
use crate::parallel;
use crate::progress::Bars;
use crate::trace_file::TraceFile;
use crate::trace_options::TraceOptions;
use baseline::BaselinePlan;
use clap::ValueEnum;
use events::EventsFile;
use explain::Watch;
use memory::{Memory, parse_fraction};
use mglru_core::lru::Refresh;
use mglru_core::{Mechanisms, Preset, Switch};
use mglru_sim::Writes;
use plot::PlotFile;
use record::PageName;
use report::{Curve, Row};
use run::{Plan, run_all, run_baselines};
use std::path::PathBuf;
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
    /// Behaviours of a kernel version, or ours: linux-6.12, linux-7.1, linux-7.2, default; several may be given
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
    /// Other policies beside it: fifo, lru, clock, 2q, lirs, arc, w-tinylfu, s3-fifo, sieve, opt (Belady's), or all
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
    /// Write all that happens: JSON Lines (.jsonl), or a trace that ui.perfetto.dev opens (.perfetto)
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
    /// The presets that were asked for, each once, with the switches.
    fn mechanisms(&self) -> Result<Vec<Mechanisms>, Failure> {
        let mut seen = Vec::new();
        for &preset in &self.preset {
            if !seen.contains(&preset) {
                seen.push(preset);
            }
        }
        seen.into_iter().map(|preset| compose(preset, &self.with, &self.without, self.policy)).collect()
    }

    fn sizes(&self) -> &[Memory] {
        if self.curve.is_empty() { std::slice::from_ref(&self.memory) } else { &self.curve }
    }

    /// What is to be seen of a replay.
    fn watch(&self) -> Option<Watch> {
        let watch = Watch { pages: self.explain.clone(), events: self.events.clone() };
        (!watch.pages.is_empty() || watch.events.is_some()).then_some(watch)
    }

    /// The access from which counting starts again.
    fn warm_from(&self, trace: &TraceFile) -> Result<u64, Failure> {
        match self.warm.or(trace.warm()).unwrap_or(0.0) {
            0.0 => Ok(0),
            warm => Ok(warm_point(trace.counts(&Bars::default())?.accesses, warm)),
        }
    }

    /// Distinct pages of the trace, where sizes depend on them.
    fn distinct_pages(&self, trace: &TraceFile) -> Result<u64, Failure> {
        match self.sizes().iter().any(Memory::is_share) || self.swap.is_share() {
            true => Ok(trace.counts(&Bars::default())?.distinct_pages),
            false => Ok(0),
        }
    }

    /// The replays of one trace with other policies: policy by policy, size by size.
    fn baseline_plans<'a>(&self, trace: &'a TraceFile) -> Result<Vec<BaselinePlan<'a>>, Failure> {
        let (warm_from, distinct_pages) = (self.warm_from(trace)?, self.distinct_pages(trace)?);
        let mut plans = Vec::new();
        for baseline in baseline::chosen(&self.baseline) {
            for memory in self.sizes() {
                plans.push(BaselinePlan {
                    trace,
                    baseline,
                    memory: memory.text().to_owned(),
                    memory_pages: memory.pages(|| distinct_pages),
                    warm_from,
                });
            }
        }
        Ok(plans)
    }

    /// The replays of one trace: preset by preset, size by size.
    fn plans<'a>(&self, trace: &'a TraceFile, mechanisms: &[Mechanisms]) -> Result<Vec<Plan<'a>>, Failure> {
        let warm_from = self.warm_from(trace)?;
        let distinct_pages = self.distinct_pages(trace)?;
        let swap = self.swap.model(distinct_pages)?;
        let plan = |mechanisms: Mechanisms, memory: &Memory| Plan {
            trace,
            mechanisms,
            memory: memory.text().to_owned(),
            memory_pages: memory.pages(|| distinct_pages),
            warm_from,
            writes: match self.writes {
                WriteMode::Rmw => Writes::AfterRead,
                WriteMode::Blind => Writes::Overwrite,
            },
            swap,
            swappiness: self.swap.swappiness(),
            statistics_refresh: Refresh::default(),
            statistics_reads: None,
            seed: self.seed,
            check_every: self.check,
            watch: self.watch(),
            over_time: self.report.is_some() && self.curve.is_empty(),
        };
        let sizes = self.sizes();
        Ok(mechanisms.iter().flat_map(|&of| sizes.iter().map(move |memory| plan(of, memory))).collect())
    }
}

/// The access at which so much of the trace is over; one of its accesses in any case.
pub fn warm_point(accesses: u64, warm: f64) -> u64 {
    // 0.29 × 100 is 28.999…
    ((accesses as f64 * warm + 1e-6) as u64).min(accesses.saturating_sub(1))
}

/// Runs the mode.
///
/// # Errors
/// Wrong usage, a trace that cannot be read, a plot that cannot be written.
pub fn run(args: Args) -> Result<(), Failure> {
    let mechanisms = args.mechanisms()?;
    let load = |path: &PathBuf| TraceFile::load(path, args.options.open_options(), &Bars::default());
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
    let (mut plans, mut baselines) = (Vec::new(), Vec::new());
    for trace in &traces {
        plans.extend(args.plans(trace, &mechanisms)?);
        baselines.extend(args.baseline_plans(trace)?);
    }
    if args.watch().is_some() && plans.len() > 1 {
        return Err(Failure::usage(
            "--explain and --events are about one replay: give one trace and one preset",
        ));
    }
    // Only curves run side by side: the speed of a replay is that of one that is alone.
    let is_curve = !args.curve.is_empty();
    let threads = if is_curve { parallel::threads() } else { 1 };
    let outcomes = run_all(plans, threads)?;
    let baselines = run_baselines(baselines, threads)?;
    let rows = Row::all(&outcomes, &baselines);
    let curves = if is_curve { Curve::of(&rows, args.curve.len()) } else { Vec::new() };

    let mut output = Output::new(args.json);
    output.text(&match is_curve {
        true => report::curves_text(&outcomes, &curves),
        false => report::text(&outcomes, &rows),
    })?;
    let document = report::document(&rows, &curves);
    output.document(&document)?;
    if let Some(file) = &args.report {
        file.write(&page::page(&outcomes, &rows, &curves, &document))?;
        output.text(&format!("\n{} shows it\n", file.path().display()))?;
    }
    if let Some(events) = &args.events {
        output.text(&format!("\n{} has the events\n", events.path().display()))?;
    }
    if let Some(plot) = &args.plot {
        let warm = outcomes.iter().any(|outcome| outcome.plan.warm_from > 0);
        plot.draw(&curves, warm)?;
        output.text(&format!("\n{} shows the curve\n", plot.path().display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_point_is_an_access() {
        assert_eq!(warm_point(300_000, 0.25), 75_000);
        assert_eq!(warm_point(100, 0.29), 29);
        assert_eq!(warm_point(1, 0.9), 0);
        assert_eq!(warm_point(3, 0.9999999), 2);
    }
}
