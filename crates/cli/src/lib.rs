//! `mglru`: one command per file, each with its `Args` and its `run`.
//!
//! A command translates: arguments into a request of `mglru_lab`, and the result into text, JSON or
//! an HTML page.
//!
//! # Exit status
//!
//! 0: done. 1: the work failed, or a file is missing or cannot be read or written; stderr says why.
//! 2: wrong usage, found before any work began. 128 and the number of a signal: the signal ended
//! the program.

#![forbid(unsafe_code)]

mod ablate;
mod cache_options;
mod cache_report;
mod demo;
mod effect;
mod error;
mod evaluate;
mod events;
mod fidelity;
mod fio;
mod generate;
mod manual;
mod mount;
mod output;
mod page;
mod progress;
mod replay;
mod reproduce;
mod run;
mod sweep;
mod table;
mod timeline_figures;
mod top;
mod trace;
mod trace_options;
mod values;
mod whole_file;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use error::Failure;
use mglru_lab::{layout, parallel, size, statistics, temporary, trace_file};
use output::Output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

/// Linux's page reclaim in user space: a page cache over real files, a simulator, and experiments.
#[derive(Parser)]
#[command(name = "mglru", version, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(clap::Subcommand)]
enum Mode {
    /// Show which cache keeps the useful pages while a scan runs beside them.
    Demo(demo::Args),
    /// Run jobs in fio's language through the cache, on real files.
    #[command(override_help = fio::help(), disable_help_flag = true)]
    Fio(fio::Args),
    /// Mount a directory with its files' content in the cache, for unmodified programs.
    Mount(Box<mount::Args>),
    /// Run a command in a mounted directory and record what it reads and writes.
    Record(Box<mount::RecordArgs>),
    /// Watch tenants of a mount or of another running cache.
    Top(top::Args),
    /// Replay page-access traces in the simulator: misses, counters, miss-ratio curves.
    Replay(Box<replay::Args>),
    /// Replay a grid of traces, policies, sizes and seeds into Parquet files.
    Sweep(sweep::Args),
    /// Run a scenario of tenants, jobs and timed actions, simulated or on real files.
    Run(run::Args),
    /// Inspect, convert or generate traces.
    Trace(trace::Args),
    /// Compare the simulator's counts with those of real kernels.
    Fidelity(fidelity::Args),
    /// Run the published experiments and compare with the published figures.
    Reproduce(reproduce::Args),
    /// Measure each mechanism's effect by switching it off, with confidence intervals.
    Ablate(Box<ablate::Args>),
    /// Evaluate a change of reclaim over standard loads, as a report of one page.
    Evaluate(evaluate::Args),
    /// Print completions for a shell.
    Completions(manual::CompletionArgs),
    /// Write the manual pages.
    Man(manual::ManArgs),
}

const EXAMPLES: &str = "\
Examples:
  mglru demo                              a comparison of caches, in about a minute
  mglru fio --name=job --rw=randread --size=1g --random_distribution=zipf:0.99 --memory=256MiB
  mglru replay trace.bin.zst --curve 1%,5%,10%,20% --baseline all
  mglru run experiments/floors.toml
  mglru reproduce workingset

Sizes: 512MiB, 2g, 8192p (pages of 4 KiB) or bytes. `mglru COMMAND --help` has options and examples.
Exit status: 0 done; 1 the work failed, or a file is missing or cannot be read or written; 2 wrong
usage: options, names or values, an invalid scenario or grid. After an interrupt it is 130.";

/// Status with which shells report a program that a signal ended, less the signal's number.
const SIGNALLED: i32 = 128;

/// Runs the command with these arguments, the first of which is its name. Returns the exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    // Without a handler, an interrupt leaves temporary files behind.
    temporary::before_first(handle_signals);
    // Without a handler, a file beyond `ulimit -f` ends the program, and with it a mount. Programs
    // that it starts do not inherit the handler.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let arguments: Vec<_> = arguments.into_iter().collect();
    page::keep_arguments(&arguments);
    match run(arguments) {
        Ok(()) => 0,
        Err(failure) => error::print(&failure),
    }
}

/// Lets options take values such as `-1`, so that an error is about the value.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get_action() {
        ArgAction::Set | ArgAction::Append if !argument.is_positional() => {
            argument.allow_negative_numbers(true)
        }
        _ => argument,
    });
    command.mut_subcommands(with_negative_values)
}

/// Removes temporary files when the program is interrupted, terminated, or loses its terminal.
fn handle_signals() {
    end_at_signals(|| {
        temporary::remove_all();
        // A closed stderr is no reason to go on.
        let _ = writeln!(std::io::stderr(), "mglru: interrupted; temporary files are removed");
    });
}

/// Ends the program when it is interrupted, terminated, or loses its terminal. `last` runs before.
fn end_at_signals(last: impl FnOnce() + Send + 'static) {
    let mut last = Some(last);
    at_signals(move |signal| {
        if let Some(last) = last.take() {
            last();
        }
        std::process::exit(SIGNALLED + signal);
    });
}

/// Calls `heard` with the signal, on a thread of its own, whenever the program is interrupted,
/// terminated, or loses its terminal.
fn at_signals(heard: impl FnMut(i32) + Send + 'static) {
    // `nohup` has the loss of the terminal ignored.
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| signal != SIGHUP || !ignores(signal));
    let wanted: Vec<_> = wanted.collect();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let wait = move || {
        let Ok(mut signals) = Signals::new(wanted) else { return };
        drop(sender);
        signals.forever().for_each(heard);
    };
    // Without a thread that hears them, signals end the program as they would any other.
    if std::thread::Builder::new().spawn(wait).is_ok() {
        let _ = receiver.recv();
    }
}

/// Whether this program was started with a signal ignored.
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Takes `--help` after the command `help`, which in clap has no options.
fn with_help_of_help(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let asks = |argument: &OsString| argument == "--help" || argument == "-h";
    if arguments.get(1).is_some_and(|command| command == "help") && arguments.iter().any(asks) {
        arguments.retain(|argument| !asks(argument));
        if arguments.len() == 2 {
            arguments.push("help".into());
        }
    }
    arguments
}

fn run(arguments: Vec<OsString>) -> Result<(), Failure> {
    let arguments = with_help_of_help(arguments);
    let matches = with_negative_values(Command::command()).try_get_matches_from(arguments);
    let command = match matches.and_then(|matches| Command::from_arg_matches(&matches)) {
        Ok(command) => command,
        // clap returns help and version as errors, too.
        Err(help) if !help.use_stderr() => return Output::new(false).text(&help.to_string()),
        Err(error) => return Err(error::of_arguments(&error)),
    };
    match command.mode {
        Mode::Demo(args) => demo::run(args),
        Mode::Fio(args) => fio::run(args),
        Mode::Mount(args) => mount::run(*args),
        Mode::Record(args) => mount::record(*args),
        Mode::Top(args) => top::run(args),
        Mode::Replay(args) => replay::run(*args),
        Mode::Sweep(args) => sweep::run(args),
        Mode::Run(args) => run::run(args),
        Mode::Trace(args) => trace::run(args),
        Mode::Fidelity(args) => fidelity::run(args),
        Mode::Reproduce(args) => reproduce::run(args),
        Mode::Ablate(args) => ablate::run(*args),
        Mode::Evaluate(args) => evaluate::run(args),
        Mode::Completions(args) => manual::completions(args),
        Mode::Man(args) => manual::man(args),
    }
}
