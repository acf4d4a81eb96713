//! `mglru replay`: traces under a virtual clock, on the machine of the kernel lab.
//!
//! ```text
//! Args ─► TraceFile  each trace, once          trace_file.rs
//!      ─► Plan       trace × preset × memory   run.rs
//!      ─► Outcome    a report, and how long    run.rs
//!      ─► text, JSON, plot                     report.rs, plot.rs
//! ```
//!
//! Apart from how long it took, the same traces and options give the same output on every machine.

mod memory;
mod plot;
mod report;
pub mod run;
mod swap;

use crate::cache_options::{PolicyOptions, compose};
use crate::error::Failure;
use crate::output::Output;
use crate::parallel;
use crate::trace_file::{TraceFile, TraceOptions};
use clap::ValueEnum;
use memory::{Memory, parse_fraction};
use mglru_core::lru::Refresh;
use mglru_core::{Mechanisms, Preset, Switch};
use mglru_sim::Writes;
use plot::PlotFile;
use report::Curve;
use run::{Plan, run_all};
use std::path::PathBuf;
use swap::SwapArgs;

/// Arguments of the mode.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
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
    /// Behaviours of a kernel version, or ours: linux-7.2, default; several may be given
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
    #[command(flatten)]
    options: TraceOptions,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  mglru replay trace.bin.zst --memory 10%
  mglru replay trace.csv --memory 64MiB --preset linux-7.2 --json
  mglru replay anon.bin.zst --memory 32MiB --swap 64MiB --swap-device zram
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

    /// The replays of one trace: preset by preset, size by size.
    fn plans<'a>(&self, trace: &'a TraceFile, mechanisms: &[Mechanisms]) -> Result<Vec<Plan<'a>>, Failure> {
        let warm = self.warm.or(trace.warm()).unwrap_or(0.0);
        let warm_from = match warm {
            0.0 => 0,
            _ => warm_point(trace.counts()?.accesses, warm),
        };
        let shares = self.sizes().iter().any(Memory::is_share) || self.swap.is_share();
        let distinct_pages = match shares {
            true => trace.counts()?.distinct_pages,
            false => 0,
        };
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
        };
        let sizes = self.sizes();
        Ok(mechanisms.iter().flat_map(|&of| sizes.iter().map(move |memory| plan(of, memory))).collect())
    }
}

/// The access at which so much of the trace is over; one of its accesses in any case.
fn warm_point(accesses: u64, warm: f64) -> u64 {
    // 0.29 × 100 is 28.999…
    ((accesses as f64 * warm + 1e-6) as u64).min(accesses.saturating_sub(1))
}

/// Runs the mode.
///
/// # Errors
/// Wrong usage, a trace that cannot be read, a plot that cannot be written.
pub fn run(args: Args) -> Result<(), Failure> {
    let mechanisms = args.mechanisms()?;
    let load = |path: &PathBuf| TraceFile::load(path, args.options.open_options());
    let traces: Vec<TraceFile> = args.traces.iter().map(load).collect::<Result<_, _>>()?;
    let mut plans = Vec::new();
    for trace in &traces {
        plans.extend(args.plans(trace, &mechanisms)?);
    }
    // Only curves run side by side: the speed of a replay is that of one that is alone.
    let is_curve = !args.curve.is_empty();
    let outcomes = run_all(plans, if is_curve { parallel::threads() } else { 1 })?;
    let curves = if is_curve { Curve::of(&outcomes, args.curve.len()) } else { Vec::new() };

    let mut output = Output::new(args.json);
    output.text(&match is_curve {
        true => report::curves_text(&outcomes, &curves),
        false => report::text(&outcomes),
    })?;
    output.document(&report::document(&outcomes, &curves))?;
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
