//! `mglru`: one mode per file, each with its `Args` and its `run`.
//!
//! # Exit status
//!
//! 0: done. 1: the work failed, which stderr says. 2: wrong usage, before anything was done.

#![forbid(unsafe_code)]

mod ablate;
mod cache_options;
mod cache_report;
mod demo;
mod error;
mod fidelity;
mod fio;
mod generate;
mod output;
mod page;
mod progress;
mod replay;
mod reproduce;
mod run;
mod table;
mod timeline_figures;
mod trace;
mod trace_options;

use clap::Parser;
use error::Failure;
use mglru_lab::{layout, parallel, size, statistics, temporary, trace_file};
use output::Output;
use std::process::ExitCode;

/// A page cache whose reclaim is Linux's multi-generational LRU, over real files.
#[derive(Parser)]
#[command(name = "mglru", version, after_help = EXAMPLES, arg_required_else_help = false, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(clap::Subcommand)]
enum Mode {
    /// Show the cache at work: a real file, three tenants, live figures, a table
    Demo(demo::Args),
    /// Run jobs in fio's own language through the cache, on real files
    #[command(override_help = fio::help(), disable_help_flag = true)]
    Fio(fio::Args),
    /// Replay page-access traces under a virtual clock: misses, counters, miss-ratio curves
    Replay(Box<replay::Args>),
    /// Run a scenario: tenants, jobs, and what happens when; simulated or on real files
    Run(run::Args),
    /// Tell what is in a trace, write it in another format, or generate one
    Trace(trace::Args),
    /// Replay what real kernels replayed, and compare the counts
    Fidelity(fidelity::Args),
    /// Run the published experiments, before against after, and say what is reproduced
    Reproduce(reproduce::Args),
    /// Turn each mechanism off, alone, and say what that does, and how sure it is
    Ablate(Box<ablate::Args>),
}

const EXAMPLES: &str = "\
Examples:
  mglru demo                          what it is, in about a minute; needs 1 GiB of free disk space
  mglru demo --size 64MiB --memory 16MiB --seconds 5
  mglru fio --name=job --rw=randread --size=1g --random_distribution=zipf:0.99 --memory=256MiB
  mglru fio --memory=64MiB --json jobs.fio
  mglru trace info trace.bin.zst
  mglru trace generate tpcc tpcc.bin.zst --accesses 5000000
  mglru replay trace.bin.zst --curve 1%,5%,10%,20%
  mglru run experiments/floors.toml   tenants with limits, jobs, and what happens when
  mglru fidelity ../shared/kernel/results.csv
  mglru reproduce workingset          Linux 6.12 against 7.1, about two minutes
  mglru reproduce workingset --world real
  mglru ablate trace.bin.zst --report ablation.html

Sizes: 512MiB, 2g, 8192p (pages of 4 KiB) or bytes. `mglru MODE --help` tells more about each mode.
Exit status: 0 done, 1 the work failed, 2 wrong usage.";

/// As a shell reports a program that an interrupt ended.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    temporary::before_first(|| {
        // Where there can be no handler, folders stay behind, as the system has it.
        let _ = ctrlc::set_handler(|| {
            temporary::remove_all();
            eprintln!("mglru: interrupted; nothing is left behind");
            std::process::exit(INTERRUPTED);
        });
    });
    match run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => error::tell(&failure),
    }
}

fn run(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<(), Failure> {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        // Help and version come as errors, too.
        Err(told) if !told.use_stderr() => return Output::new(false).text(&told.to_string()),
        Err(error) => return Err(error::of_arguments(&error)),
    };
    match command.mode {
        Mode::Demo(args) => demo::run(args),
        Mode::Fio(args) => fio::run(args),
        Mode::Replay(args) => replay::run(*args),
        Mode::Run(args) => run::run(args),
        Mode::Trace(args) => trace::run(args),
        Mode::Fidelity(args) => fidelity::run(args),
        Mode::Reproduce(args) => reproduce::run(args),
        Mode::Ablate(args) => ablate::run(*args),
    }
}
