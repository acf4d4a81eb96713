//! `mglru demo`: the cache at work on a real file, and the same work through the system's cache.
//!
//! Three tenants with limits of their own share one cache that is a quarter of their file
//! ([`tenant`]). After a table of what happened, the very same operations go through `pread` and
//! `pwrite`. Every page that is read is verified.

mod page;
mod page_file;
mod report;
mod tenant;

use crate::cache_options::{CacheOptions, available_memory_bytes, memory_info_bytes, with_mechanisms};
use crate::cache_report::{CacheReport, all_tenants, name_of};
use crate::error::Failure;
use crate::output::Output;
use crate::page::ReportFile;
use crate::progress::{self, Board};
use crate::table::percent;
use crate::{layout, size};
use mglru_cache::{Advice, OpenMode, PageCache, TenantStats};
use mglru_core::PAGE_BYTES;
use mglru_workload::Order;
use page_file::{DemoFile, PageFile};
use report::{Report, SystemRun};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tenant::{BUDGET_BYTES_MIN, Done, FILE_BYTES_MIN, Generations, Limit, Meter, TENANTS, Tenant};

const DEFAULT_BUDGET_BYTES: u64 = 256 << 20;

const EXAMPLES: &str = "\
Examples:
  mglru demo                                            about a minute, 1 GiB of disk space
  mglru demo --size 16MiB --memory 4MiB --seconds 1     a quick look
  mglru demo --directory /mnt/nvme --size 8GiB --memory 512MiB
  mglru demo --json > demo.json                         the same figures, for programs

The file has no name and is gone when the demo ends, however it ends.";

/// Options of `mglru demo`.
#[derive(clap::Args)]
#[command(after_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// Where the file is made [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Size of the file
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1GiB")]
    size: u64,
    /// How long the cache runs, and the comparison at most
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 30)]
    seconds: u64,
    /// Decides every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write one page with tables and figures, readable without a network
    #[arg(long, value_name = "FILE.html")]
    report: Option<ReportFile>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: CacheOptions,
}

/// Runs the mode.
///
/// # Errors
/// The file cannot be made, an access failed, or a page was not what it should be.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut output = Output::new(args.json);
    let budget = args.cache.budget_or(DEFAULT_BUDGET_BYTES);
    if args.size < FILE_BYTES_MIN {
        let least = size::show(FILE_BYTES_MIN);
        return Err(Failure::usage(format_args!("--size {}: the file needs {least} at least", args.size)));
    }
    if budget.bytes < BUDGET_BYTES_MIN {
        let least = size::show(BUDGET_BYTES_MIN);
        return Err(Failure::usage(format_args!(
            "--memory {}: the tenants need {least} at least",
            budget.bytes
        )));
    }
    if let Some(file) = &args.report {
        file.try_out([])?;
    }
    let tenants = tenant::tenants(args.size, budget.bytes, args.seed);
    let (mut builder, mechanisms) = args.cache.builder(budget)?;
    for tenant in &tenants {
        builder = builder.tenant(tenant.name, tenant.max_bytes);
    }
    let cache = builder.build()?;

    let directory = args.directory.unwrap_or_else(layout::default_directory);
    output.text(&report::introduction(&tenants, args.size, budget.bytes, &directory))?;
    let began = Instant::now();
    let file = DemoFile::lay_out(&directory, args.size, args.seed)?;
    let layout = began.elapsed();
    let (took, seconds) = (layout.as_secs_f64(), args.seconds);
    output.text(&format!("The file was laid out in {took:.1} s. The tenants run for {seconds} s ...\n\n"))?;

    let mut generations = tenants.each_ref().map(Generations::new);
    let (done, told, sync) = run_cached(&cache, &file, &tenants, &mut generations, args.seconds)?;
    let cached = CacheReport { budget, mechanisms, stats: cache.stats(), tenants: told, sync: Some(sync) };
    cache.close()?;
    output.text(&report::cache_section(&tenants, &done, &cached))?;

    output.text("The same operations once more, through the system's cache ...\n\n")?;
    let system = run_system(&file, &tenants, &mut generations, &done, args.seconds)?;
    let report =
        Report { file_bytes: args.size, directory, seed: args.seed, layout, tenants, done, cached, system };
    output.text(&report.comparison())?;
    let document = report.json();
    output.document(&document)?;
    if let Some(file) = &args.report {
        file.write(&report.page(&document))?;
        output.text(&format!("\n{} shows it\n", file.path().display()))?;
    }
    Ok(())
}

type CachedRun = ([Done; TENANTS], Vec<TenantStats>, Duration);

/// The tenants, through our cache, for so many seconds.
fn run_cached(
    cache: &PageCache,
    file: &DemoFile,
    tenants: &[Tenant; TENANTS],
    generations: &mut [Generations; TENANTS],
    seconds: u64,
) -> Result<CachedRun, Failure> {
    let mut files = Vec::new();
    for tenant in tenants {
        let opened = cache.tenant(tenant.name)?.open(&file.path(), OpenMode::ReadWrite)?;
        let advice = if is_random(tenant) { Advice::Random } else { Advice::Sequential };
        opened.advise(advice, tenant.part.clone())?;
        files.push(opened);
    }
    let limits = [Limit { deadline: deadline(seconds), operations: u64::MAX }; TENANTS];
    let board = Board::new("mglru", seconds * 1000, TENANTS);
    let mut before = [(0, 0, 0); TENANTS];
    let done = run_all(tenants, &files, generations, limits, |meters, elapsed| {
        board.advance_to(elapsed.as_millis() as u64);
        let stats = all_tenants(cache);
        for (line, (meter, before)) in meters.iter().zip(&mut before).enumerate() {
            // The root comes first.
            board.set_line(line, line_of(&stats[line + 1], meter.bytes.load(Relaxed), before));
        }
    })?;
    board.clear();
    let began = Instant::now();
    // All handles are on one file.
    files[0].sync().map_err(Failure::Work)?;
    Ok((done, all_tenants(cache), began.elapsed()))
}

/// A tenant's figures since the line was last drawn.
fn line_of(stats: &TenantStats, bytes: u64, before: &mut (u64, u64, u64)) -> String {
    let now = (stats.hits, stats.misses, bytes);
    let (hits, misses, bytes) = (now.0 - before.0, now.1 - before.1, now.2 - before.2);
    *before = now;
    let rate = bytes as f64 / progress::TICK.as_secs_f64();
    let show = |pages: u64| size::mib((pages * PAGE_BYTES) as f64);
    format!(
        "  {:<6} hit ratio {:>9}   {:>7} MiB/s   cached {:>5} of {} MiB",
        name_of(stats),
        percent(hits, hits + misses),
        size::mib(rate),
        show(stats.usage_pages),
        show(stats.max_pages.unwrap_or(0)),
    )
}

/// The same operations, through the system's cache; but not for longer than `seconds`.
fn run_system(
    file: &DemoFile,
    tenants: &[Tenant; TENANTS],
    generations: &mut [Generations; TENANTS],
    done: &[Done; TENANTS],
    seconds: u64,
) -> Result<SystemRun, Failure> {
    file.drop_from_system_cache();
    let mut files = Vec::new();
    for tenant in tenants {
        use rustix::fs::Advice;
        let opened = file.open()?;
        let advice = if is_random(tenant) { Advice::Random } else { Advice::Sequential };
        // The system is told what our cache was told; where it does not listen, the run is valid
        // all the same.
        let _ = rustix::fs::fadvise(&opened, 0, None, advice);
        files.push(opened);
    }
    let system_cached = || memory_info_bytes("Cached:").unwrap_or(0);
    let (cached_before, available_bytes) = (system_cached(), available_memory_bytes());
    let deadline = deadline(seconds);
    let limits = done.each_ref().map(|done| Limit { deadline, operations: done.operations() });
    let total: u64 = done.iter().map(Done::operations).sum();
    let board = Board::new("system", total, TENANTS);
    let mut before = [0; TENANTS];
    let system_done = run_all(tenants, &files, generations, limits, |meters, _| {
        board.advance_to(meters.iter().map(|meter| meter.operations.load(Relaxed)).sum());
        for (line, (meter, before)) in meters.iter().zip(&mut before).enumerate() {
            let bytes = meter.bytes.load(Relaxed);
            let rate = size::mib((bytes - *before) as f64 / progress::TICK.as_secs_f64());
            *before = bytes;
            board.set_line(line, format!("  {:<6} {rate:>7} MiB/s", tenants[line].name));
        }
    })?;
    board.clear();
    let cached_bytes_growth = system_cached().saturating_sub(cached_before);
    let began = Instant::now();
    files[0].sync().map_err(Failure::Work)?;
    Ok(SystemRun { done: system_done, sync: began.elapsed(), cached_bytes_growth, available_bytes })
}

fn is_random(tenant: &Tenant) -> bool {
    matches!(tenant.pattern.order, Order::Random(_))
}

fn deadline(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// Runs all tenants at once, each on a thread. `watch` is called every now and then, if somebody
/// watches.
fn run_all<F: PageFile + Sync>(
    tenants: &[Tenant; TENANTS],
    files: &[F],
    generations: &mut [Generations; TENANTS],
    limits: [Limit; TENANTS],
    mut watch: impl FnMut(&[Meter; TENANTS], Duration),
) -> Result<[Done; TENANTS], Failure> {
    let meters = <[Meter; TENANTS]>::default();
    let failed = AtomicBool::new(false);
    let began = Instant::now();
    let results: Vec<Result<Done, String>> = std::thread::scope(|scope| {
        let (finished, wait) = mpsc::channel::<()>();
        let work = tenants.iter().zip(files).zip(generations).zip(limits).zip(&meters);
        let threads: Vec<_> = work
            .map(|((((tenant, file), generations), limit), meter)| {
                let (finished, failed) = (finished.clone(), &failed);
                scope.spawn(move || {
                    let result = tenant.run(file, generations, limit, meter, failed);
                    drop(finished);
                    result
                })
            })
            .collect();
        drop(finished);
        if progress::is_watched() {
            // Nothing is ever sent: the channel closes when the last thread has dropped its end.
            while wait.recv_timeout(progress::TICK) == Err(RecvTimeoutError::Timeout) {
                watch(&meters, began.elapsed());
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("a tenant does not panic")).collect()
    });
    let done: Vec<Done> = results.into_iter().collect::<Result<_, _>>().map_err(Failure::Work)?;
    Ok(done.try_into().expect("one result per tenant"))
}
