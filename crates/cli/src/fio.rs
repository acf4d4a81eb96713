//! `mglru fio`: jobs in fio's language, run by the cache on real files.
//!
//! `mglru_workload::fio` understands the jobs and words the report, `mglru_lab::fio` runs them.
//! Here the cache is built, and what happens is told.

use crate::cache_options::{CacheOptions, with_mechanisms};
use crate::cache_report::CacheReport;
use crate::error::{Failure, of_arguments};
use crate::output::{Output, refuse_input};
use crate::progress::{self, Bars};
use crate::size;
use clap::Parser;
use indicatif::ProgressBar;
use mglru_cache::Swap;
use mglru_lab::fio::{Plan, Progress, TenantLimit, run_looking};
use mglru_workload::fio::report::{Outcome, Report, preamble};
use mglru_workload::fio::{Eta, Invocation, OutputFormat};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps of the bar.
const STEPS: u64 = 1000;
/// How often a line about the progress is printed where that is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// What `mglru fio --help` prints.
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

As in fio, options before the first --name are for all jobs; what is no option is a job file.
What fio has and mglru has not is refused by name. docs/fio.md tells where the two differ.

What to do (also in job files, which have `include FILE`, ${VARIABLES} and comments, too):
  --name=JOB               begins a job
  --description=TEXT       printed with its results
  --rw=KIND                read, write, randread, randwrite, rw, randrw (default: read)
  --rwmixread=PERCENT      share of reads in rw and randrw (default: 50); --rwmixwrite: of writes
  --bs=SIZE                bytes per access (default: 4k); READ,WRITE for each
  --size=SIZE              bytes of the files to use, and to transfer; 20% of existing files
  --io_size=SIZE           bytes to transfer, if others; --loops=N: again and again
  --offset=SIZE            where in the files the part begins that is used
  --filesize=SIZE          bytes of each file, if --size is only to say how much is transferred
  --random_distribution=D  random, zipf:THETA or pareto:H
  --norandommap            draw blocks anew each time, instead of each once per pass
  --randseed=N             decides every random choice
  --workload=LOAD          instead of blocks of files, a load of mglru's own, whose contents are
                           always verified (docs/fio.md): tpcc:warehouses=N,cache=SIZE,
                           sweep:size=SIZE,arrays=N or ycsb:workload=LETTER,records=N;
                           instances are its clients; needs --runtime
On what:
  --directory=DIR          where files are; DIR:DIR: instances take turns
  --filename=FILE          the file, shared by all instances; FILE:FILE: several, in turns
                           (/dev/zero with ioengine=mmap: memory of each instance's own)
  --filename_format=NAME   of files without a filename (default: $jobname.$jobnum.$filenum)
  --nrfiles=N              files of each instance, which share its size
  --invalidate=0           leave the files in the system's own cache
How:
  --ioengine=ENGINE        psync (sync, vsync, pvsync, pvsync2), io_uring (libaio, posixaio): by
                           descriptor, counted. mmap: by accessed bits
  --iodepth=N              accesses at once, of io_uring in random order; 64 by all jobs together
  --iodepth_batch_submit=N accesses that each of them draws at once
  --iodepth_batch_complete=N, --iodepth_batch_complete_max=N, --iodepth_low=N: without effect
  --fadvise_hint=HINT      0, 1, random or sequential; mmap has 0 by default, others 1
  --fsync=N, --fdatasync=N sync after every N writes; --end_fsync=1: at the end
  --rate=SIZE              bytes per second at most; READ,WRITE for each; --rate_iops=N: accesses
  --verify=crc32c          write blocks that can be checked; check all that is read or was written
  --do_verify=0            ... but do not read again what was written
When:
  --numjobs=N              instances, each with a thread and files of its own
  --runtime=TIME           the longest time that the job runs, 30 (s), 500ms, 5m, 1h
  --time_based             run for the whole runtime, starting again where the size ends
  --ramp_time=TIME         run for so long before measuring; --startdelay=TIME: wait
  --stonewall              begin when the jobs before have ended
How it is told:
  --group_reporting        report all jobs of a group as one; --new_group begins one
  --output-format=FORMAT   normal, json or terse; --minimal: terse
  --json                   the same as --output-format=json: one document, with an object `mglru`
  --output=FILE            print results there
  --status-interval=TIME   print results meanwhile; --eta=always, never or auto: progress
  --section=NAME           only this section of the job file; may be repeated

What fio has not (command line only; sizes: 512MiB, 8192p for pages of 4 KiB, bytes):
  --memory=SIZE            what the cache may use in all, its metadata included
                           (default: a quarter of the available memory, 1 GiB at most)
  --tenant=NAME=SIZE       a tenant with this limit, in which jobs of its name run; may be repeated
  --preset=NAME            linux-6.12, linux-7.1, linux-7.2 or default: how the cache behaves
  --with=MECHANISM         turn a mechanism on; may be repeated
  --without=MECHANISM      turn a mechanism off; may be repeated
  --lru=POLICY             multigen or classic; --lru-lock=LOCK: lruvec or node
  --swap=SIZE              compressed memory, of what --memory allows, for anonymous memory of loads
                           (default: none)
  --backend=KIND           auto, io_uring or threads: how files are read and written
  --seed=N                 --randseed for all jobs

Files that are missing or too short are laid out as fio does: written in full if some job reads
them, set aside if not. With verify, a file that is laid out verifies. Dirty pages are written at
the end. What the cache counts (`mglru`) includes ramps.
Exit status: 0 done; 1 an access failed or a block did not verify; 2 wrong usage.
";

/// Everything that follows `mglru fio`: fio's options, ours, and job files.
#[derive(clap::Args)]
pub struct Args {
    /// fio's options, ours, and job files
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Our own options, once fio's are told apart.
#[derive(Parser)]
#[command(name = "mglru fio", no_binary_name = true, disable_help_flag = true)]
#[command(override_usage = "mglru fio [fio options] [JOBFILE]...")]
struct OwnOptions {
    #[command(flatten)]
    cache: CacheOptions,
    #[arg(long = "tenant", value_name = "NAME=SIZE", value_parser = parse_tenant)]
    tenants: Vec<TenantLimit>,
    /// Heard by the workload crate already.
    #[arg(long)]
    json: bool,
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    swap: Option<u64>,
}

fn parse_tenant(text: &str) -> Result<TenantLimit, String> {
    // The name of a job may have an equals sign in it, a size has not.
    let (name, size) = text.rsplit_once('=').ok_or("is no NAME=SIZE, such as web=64MiB")?;
    if name.is_empty() {
        return Err("has no name: write NAME=SIZE, NAME being that of a job".to_owned());
    }
    Ok(TenantLimit { name: name.to_owned(), max_bytes: size::parse(size)? })
}

/// Runs the mode.
///
/// # Errors
/// Wrong usage, a file that cannot be made, an access that failed, a block that did not verify.
pub fn run(args: Args) -> Result<(), Failure> {
    let invocation = Invocation::parse(&args.arguments).map_err(Failure::usage)?;
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
    // Built before files are made: what is wrong with the options shows before a gigabyte is
    // written.
    let cache = builder.build()?;
    let mut output = match &invocation.output {
        Some(path) => {
            // What is no option is a job file.
            let job_files = args.arguments.iter().filter(|argument| !argument.starts_with('-'));
            let job_files: Vec<PathBuf> = job_files.map(PathBuf::from).collect();
            let data = plan.jobs.iter().flat_map(|job| job.files.iter().map(|file| &file.path));
            refuse_input("--output", path, job_files.iter().chain(data))?;
            Output::into_file(path)?
        }
        None => Output::new(false),
    };

    let mut silent = Output::new(true);
    let words = if invocation.output_format == OutputFormat::Normal { &mut output } else { &mut silent };
    words.text(&preamble(&invocation.jobs))?;
    for layout in plan.layouts() {
        let (files, bytes) = layout.needed();
        let (name, mib) = (layout.job_name(), bytes >> 20);
        // fio's words.
        match files {
            0 => {}
            1 => words.text(&format!("{name}: Laying out IO file (1 file / {mib}MiB)\n"))?,
            _ => words.text(&format!("{name}: Laying out IO files ({files} files / total {mib}MiB)\n"))?,
        }
        layout.make(&Bars::default())?;
    }
    let mut line = Line::new(invocation.eta);
    let mut status = Every::new(invocation.status_interval);
    let done = run_looking(&plan, &cache, &mut |jobs| {
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
    let cache = CacheReport { budget, mechanisms, stats: done.stats, tenants: done.tenants, sync: done.sync };
    print(&report, Some(&cache), &invocation, &mut output)?;
    succeeded?;
    Ok(closed?)
}

/// Prints results, with what the cache did if the run is over.
fn print(
    report: &Report,
    cache: Option<&CacheReport>,
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
                document["mglru"] = cache.json();
            }
            output.text(&format!("{document:#}\n"))
        }
    }
}

fn report(invocation: &Invocation, outcomes: Vec<Outcome>) -> Report {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Report::new(
        since_1970.as_millis() as u64,
        std::process::id(),
        invocation.global_options.clone(),
        &invocation.jobs,
        outcomes,
    )
}

/// Something that is to be done again and again.
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

    /// Whether it is time to; the next time is counted from now.
    fn is_due(&mut self) -> bool {
        let is_due = self.left().is_zero();
        if is_due {
            self.last = Instant::now();
        }
        is_due
    }
}

/// Says on stderr how far jobs are.
struct Line {
    every: Every,
    /// `None`: lines.
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
            // Nobody is kept from working because nobody listens.
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
    fn a_tenant_is_a_name_and_a_size() {
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
