//! `mglru fio`: jobs in fio's language, run by the cache on real files.
//!
//! `mglru_workload::fio` parses the jobs and writes fio's report; `mglru_lab::fio` runs the jobs.
//! This file builds the cache and prints progress and results.

use crate::cache_options::{CacheOptions, with_mechanisms};
use crate::cache_report::CacheReport;
use crate::error::{Failure, of_arguments};
use crate::output::Output;
use crate::progress::{self, Bars};
use crate::size;
use crate::whole_file::refuse_input;
use clap::Parser;
use indicatif::ProgressBar;
use mglru_cache::Swap;
use mglru_lab::fio::{Plan, Progress, TenantLimit, run_looking};
use mglru_workload::fio;
use mglru_workload::fio::report::{JobOutcome, Report, preamble};
use mglru_workload::fio::{Eta, Invocation, OutputFormat};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps of the progress bar.
const STEPS: u64 = 1000;
/// Time between progress lines if stderr is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// The text of `mglru fio --help`, in fio's style.
pub fn help() -> String {
    with_mechanisms(HELP.trim_end()) + "\n"
}

const HELP: &str = "\
Run jobs in fio's own language through the mglru cache, on real files.

Usage: mglru fio [fio options] [--name=JOB [job options]]... [JOBFILE]...

Examples:
  mglru fio --name=hot --rw=randread --size=1g --random_distribution=zipf:0.99 --memory=256MiB
  mglru fio --name=db --rw=randrw --rwmixread=70 --bs=8k --size=512m --numjobs=4 --group_reporting
  mglru fio --name=map --ioengine=mmap --rw=randread --size=256m --runtime=10 --time_based
  mglru fio --name=safe --rw=randwrite --size=64m --verify=crc32c --memory=16MiB
  mglru fio --tenant=web=64MiB --tenant=scan=16MiB --memory=128MiB --json jobs.fio

As in fio, options before the first --name apply to all jobs, and arguments without dashes are job
files. Options of fio that mglru lacks are refused by name; docs/book/src/fio-options.md lists the
differences.

Work (also in job files, which may have `include FILE`, ${VARIABLES} and comments):
  --name=JOB               begin a job
  --description=TEXT       text printed with its results
  --rw=KIND                read, write, randread, randwrite, rw, randrw (default: read)
  --rwmixread=PERCENT      share of reads in rw and randrw (default: 50); --rwmixwrite: of writes
  --bs=SIZE                bytes per access (default: 4k); READ,WRITE for different sizes
  --size=SIZE              bytes of the files to use and to transfer; 20% of existing files
  --io_size=SIZE           bytes to transfer, if different from --size; --loops=N: repeat N times
  --offset=SIZE            start of the used part of each file
  --filesize=SIZE          bytes of each file, if --size is only the amount to transfer
  --random_distribution=D  random, zipf:THETA or pareto:H
  --norandommap            draw each block independently, instead of each once per pass
  --randseed=N             seed of all random choices
  --workload=LOAD          instead of blocks of files, a load of mglru's own with verified contents
                           (docs/fio.md): tpcc:warehouses=N,cache=SIZE, sweep:size=SIZE,arrays=N or
                           ycsb:workload=LETTER,records=N; its clients are instances; with --runtime
Files:
  --directory=DIR          directory of the files; DIR:DIR: instances take turns
  --filename=FILE          one file for all instances; FILE:FILE: several, in turns
                           (/dev/zero with ioengine=mmap: anonymous memory of each instance)
  --filename_format=NAME   names of other files (default: $jobname.$jobnum.$filenum)
  --nrfiles=N              files of each instance, which share its size
  --invalidate=0           leave the files in the system's own cache
Access:
  --ioengine=ENGINE        psync (sync, vsync, pvsync, pvsync2), io_uring (libaio, posixaio): reads
                           and writes by descriptor. mmap: loads and stores through a mapping
  --iodepth=N              accesses in flight, of io_uring in random order; 64 for all jobs together
  --iodepth_batch_submit=N accesses drawn at once
  --iodepth_batch_complete=N, --iodepth_batch_complete_max=N, --iodepth_low=N: accepted, no effect
  --fadvise_hint=HINT      0, 1, random or sequential (default: 0 for mmap, 1 for others)
  --fsync=N, --fdatasync=N sync after every N writes; --end_fsync=1: at the end
  --rate=SIZE              bytes per second at most; READ,WRITE for each; --rate_iops=N: accesses
  --verify=crc32c          write blocks with checksums, and check every block read or written
  --do_verify=0            with --verify: skip the final pass over written blocks
Time:
  --numjobs=N              instances, each with its own thread and files
  --runtime=TIME           longest run time: 30 (seconds), 500ms, 5m, 1h
  --time_based             run for the whole runtime, and start again at the end of the size
  --ramp_time=TIME         run this long before measuring; --startdelay=TIME: wait first
  --stonewall              begin after all earlier jobs have ended
Output:
  --group_reporting        one report per group of jobs; --new_group begins a group
  --output-format=FORMAT   normal, json or terse; --minimal: terse
  --json                   same as --output-format=json: one document, with an object `mglru`
  --output=FILE            print results into this file
  --status-interval=TIME   print results at this interval; --eta=always, never or auto: progress
  --section=NAME           run only this section of the job file; may be repeated

Cache (command line only; sizes: 512MiB, 8192p for pages of 4 KiB, bytes):
  --memory=SIZE            memory of the cache, its metadata included
                           (default: a quarter of the available memory, at most 1 GiB)
  --tenant=NAME=SIZE       run jobs of this name in a tenant with this limit; may be repeated
  --preset=NAME            behave as linux-6.12, linux-7.1, linux-7.2, or default
  --with=MECHANISM         switch a mechanism on; may be repeated
  --without=MECHANISM      switch a mechanism off; may be repeated
  --lru=POLICY             multigen, classic or ranked (default: the preset's)
  --lru-lock=LOCK          lock of the page lists: lruvec (one per tenant) or node (one for all)
  --swap=SIZE              compressed memory for anonymous pages, part of --memory (default: none)
  --backend=KIND           auto, io_uring or threads: how files are read and written
  --seed=N                 --randseed for all jobs

Missing or short files are laid out as fio does it: written in full if a job reads them, allocated
if not. With --verify, laid-out files pass verification. Dirty pages are written at the end. The
counts of the cache (`mglru`) include ramp times.
Exit status: 0 done; 1 an access failed, a block did not verify, or a file is missing or cannot be
used; 2 wrong usage, also in a job file.
";

/// Everything after `mglru fio`.
#[derive(clap::Args)]
pub struct Args {
    /// Options of fio and of the cache, and job files.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Options of the cache, separated from fio's.
#[derive(Parser)]
#[command(name = "mglru fio", no_binary_name = true, disable_help_flag = true)]
#[command(override_usage = "mglru fio [fio options] [JOBFILE]...")]
struct OwnOptions {
    #[command(flatten)]
    cache: CacheOptions,
    #[arg(long = "tenant", value_name = "NAME=SIZE", value_parser = parse_tenant)]
    tenants: Vec<TenantLimit>,
    /// Evaluated by the workload crate.
    #[arg(long)]
    json: bool,
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    swap: Option<u64>,
}

fn parse_tenant(text: &str) -> Result<TenantLimit, String> {
    // A job's name may contain an equals sign; a size may not.
    let (name, size) = text.rsplit_once('=').ok_or("expected NAME=SIZE, such as web=64MiB")?;
    if name.is_empty() {
        return Err("no name: expected NAME=SIZE, where NAME is the name of a job".to_owned());
    }
    Ok(TenantLimit { name: name.to_owned(), max_bytes: size::parse(size)? })
}

/// Checks the options that are not fio's, without running anything.
///
/// # Errors
/// An option is unknown, or its value is wrong.
#[cfg(test)]
pub fn check_own_options(own: &[String]) -> Result<(), clap::Error> {
    OwnOptions::try_parse_from(own).map(drop)
}

/// Runs the command.
///
/// # Errors
/// Wrong usage, a file that cannot be made, an access that failed, a block that did not verify.
pub fn run(args: Args) -> Result<(), Failure> {
    let invocation = Invocation::parse(&args.arguments).map_err(|error| match error {
        // As with the other commands, an input that cannot be read is no wrong usage.
        fio::Error::JobFile { .. } => Failure::work(error),
        _ => Failure::usage(error),
    })?;
    let asked = |flag: &str| invocation.own.iter().any(|own| own == flag);
    if asked("--help") {
        return Output::new(false).text(&help());
    }
    if asked("--version") {
        return Output::new(false).text(concat!("mglru ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    let own = OwnOptions::try_parse_from(&invocation.own).map_err(|error| of_arguments(&error))?;
    let plan = Plan::new(&invocation.jobs, &own.tenants)?;
    let budget = own.cache.budget();
    let (mut builder, mechanisms) = own.cache.builder(budget)?;
    for tenant in &own.tenants {
        builder = builder.tenant(&tenant.name, tenant.max_bytes);
    }
    if let Some(bytes) = own.swap {
        builder = builder.swap(Swap::compressed(bytes));
    }
    // Before files are laid out, so that wrong options fail before a gigabyte is written.
    let cache = builder.build()?;
    let mut output = match &invocation.output {
        Some(path) => {
            let data = plan.jobs.iter().flat_map(|job| job.files.iter().map(|file| &file.path));
            refuse_input("--output", path, invocation.job_files.iter().chain(data))?;
            // Results that are printed during the run are read during the run.
            Output::into_file(path, invocation.status_interval.is_some())?
        }
        None => Output::new(false),
    };

    let mut silent = Output::new(true);
    let words = if invocation.output_format == OutputFormat::Normal { &mut output } else { &mut silent };
    words.text(&preamble(&invocation.jobs))?;
    lay_out(&plan, words)?;
    let mut line = Line::new(invocation.eta);
    let mut status = Every::new(invocation.status_interval);
    let done = run_looking(&plan, &cache, mechanisms, &mut |jobs| {
        if line.every.is_due() {
            line.show(jobs);
        }
        if status.is_due() {
            print(&report(&invocation, jobs.outcomes()), None, &invocation, &mut output)?;
        }
        Ok(line.every.left().min(status.left()))
    });
    line.clear();
    let done = done?;
    let closed = cache.close();
    let succeeded = done.check(&plan);
    let report = report(&invocation, done.outcomes);
    print(&report, Some(CacheReport { budget, counts: &done.cache }), &invocation, &mut output)?;
    output.finish()?;
    succeeded?;
    Ok(closed?)
}

/// Makes the missing files, and says so in the wording of fio.
fn lay_out(plan: &Plan, words: &mut Output) -> Result<(), Failure> {
    for layout in plan.layouts() {
        let (files, bytes) = layout.needed();
        let (name, mib) = (layout.job_name(), bytes >> 20);
        match files {
            0 => {}
            1 => words.text(&format!("{name}: Laying out IO file (1 file / {mib}MiB)\n"))?,
            _ => words.text(&format!("{name}: Laying out IO files ({files} files / total {mib}MiB)\n"))?,
        }
        layout.make(&Bars::default())?;
    }
    Ok(())
}

/// Prints results, and the counts of the cache once the run is over.
fn print(
    report: &Report,
    cache: Option<CacheReport<'_>>,
    invocation: &Invocation,
    output: &mut Output,
) -> Result<(), Failure> {
    match invocation.output_format {
        OutputFormat::Normal => {
            let cache = cache.map_or(String::new(), |cache| format!("\n{}", cache.text()));
            output.text(&(report.text() + &cache))
        }
        OutputFormat::Terse => output.text(&report.terse()),
        OutputFormat::Json => {
            let mut document = report.json();
            if let Some(cache) = cache {
                document["mglru"] = json!(cache.counts);
            }
            output.text(&format!("{document:#}\n"))
        }
    }
}

fn report(invocation: &Invocation, outcomes: Vec<JobOutcome>) -> Report {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Report::new(
        since_1970.as_millis() as u64,
        std::process::id(),
        invocation.global_options.clone(),
        &invocation.jobs,
        outcomes,
    )
}

/// A task that is repeated at an interval.
struct Every {
    interval: Option<Duration>,
    last: Instant,
}

impl Every {
    fn new(interval: Option<Duration>) -> Every {
        Every { interval, last: Instant::now() }
    }

    fn left(&self) -> Duration {
        self.interval.map_or(Duration::MAX, |interval| interval.saturating_sub(self.last.elapsed()))
    }

    /// Whether it is due; if so, the next interval begins now.
    fn is_due(&mut self) -> bool {
        let is_due = self.left().is_zero();
        if is_due {
            self.last = Instant::now();
        }
        is_due
    }
}

/// The progress of jobs on stderr.
struct Line {
    every: Every,
    /// `None`: progress is printed as lines.
    bar: Option<ProgressBar>,
}

impl Line {
    fn new(eta: Eta) -> Line {
        let is_terminal = progress::is_watched();
        let interval = match eta {
            Eta::Auto | Eta::Always if is_terminal => Some(progress::TICK),
            Eta::Always => Some(LINE),
            Eta::Auto | Eta::Never => None,
        };
        let bar = (interval.is_some() && is_terminal).then(|| progress::of_share(STEPS));
        Line { every: Every::new(interval), bar }
    }

    fn show(&self, jobs: &Progress) {
        let [read, written] = jobs.bytes_per_second().map(size::mib);
        let eta = jobs.left().map_or("?".to_owned(), |left| format!("{:.0}s", left.as_secs_f64()));
        let running = jobs.running();
        let line = format!("jobs running: {running}, r={read} MiB/s, w={written} MiB/s, eta {eta}");
        let share = jobs.share();
        match &self.bar {
            Some(bar) => {
                bar.set_position((share * STEPS as f64) as u64);
                bar.set_message(line);
            }
            // A closed stderr does not stop the jobs.
            None => drop(writeln!(std::io::stderr(), "{:.0}% {line}", (share * 100.0).floor())),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_given_as_name_and_size() {
        let web = TenantLimit { name: "web".to_owned(), max_bytes: 64 << 20 };
        assert_eq!(parse_tenant("web=64MiB"), Ok(web));
        assert_eq!(parse_tenant("a=b=1p").unwrap().name, "a=b");
        assert!(parse_tenant("web").unwrap_err().contains("NAME=SIZE"));
        assert!(parse_tenant("=1m").unwrap_err().contains("no name"));
        assert!(parse_tenant("web=much").unwrap_err().contains("whole number"));
    }

    #[test]
    fn own_options_are_understood() {
        OwnOptions::try_parse_from(["--memory=4MiB", "--tenant=a=1p", "--backend=threads", "--json"])
            .unwrap();
        assert!(OwnOptions::try_parse_from(["--backend=floppy"]).is_err());
    }
}
