//! Which cache keeps a skewed reader's pages while a scan runs beside it?
//!
//! A file has two parts. A reader picks single pages from the first, some far more often than
//! others. A scan reads the second from front to back, again and again, one page for each page of
//! the reader. Both run as threads through one cache, and every page that they read is verified.
//!
//! The same two clients run once per cache, and every cache has the same memory:
//!
//! ```text
//! our cache, once per set of mechanisms    PageCache, budget_bytes           mglru_cache
//! plain LRU                                a hash map and a list             plain_lru.rs
//! the system's page cache                  in a memory cgroup of that size   memory_cgroup.rs
//! ```
//!
//! Counting starts when clients have read twice as many pages as the cache holds, and goes on for
//! [`DemoRequest::time`]. The reads and their order are the same for every cache; a faster cache
//! gets further in the same time.
//!
//! ```
//! use mglru_core::{Mechanisms, Preset};
//! use mglru_lab::{Unwatched, demo};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let mechanisms = [Preset::Default, Preset::Linux72].map(Mechanisms::preset);
//! let request = demo::DemoRequest {
//!     mechanisms: mechanisms.into(),
//!     time: Duration::from_millis(50),
//!     ..demo::DemoRequest::new(std::env::temp_dir(), 8 << 20, 2 << 20)
//! };
//! let outcome = demo::run(&request, &Unwatched)?;
//! for run in &outcome.runs {
//!     println!("{}: {:.3}", run.cache.name(), run.hit_ratio().unwrap_or(f64::NAN));
//! }
//! # assert!(outcome.runs.len() >= 3); // the system's cache needs a memory cgroup
//! # Ok(())
//! # }
//! ```

mod clients;
mod file;
mod memory_cgroup;
mod plain_lru;

use crate::cache_counts::CacheCounts;
use crate::document::document;
use crate::error::Error;
use crate::layout;
use crate::mechanisms::{describe, other_policy};
use crate::size;
use crate::watch::{Stage, Unit, Watch};
use clients::Clients;
use file::{DemoFile, SystemFile};
use memory_cgroup::MemoryCgroup;
use mglru_cache::{Advice, BackendKind, OpenMode, PageCache};
use mglru_core::{Mechanisms, PAGE_BYTES};
use mglru_workload::fio::Latencies;
use plain_lru::PlainLru;
use serde::{Serialize, Serializer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The smallest file: two parts of at least one read of the scan each.
pub const FILE_BYTES_MIN: u64 = 1 << 20;
/// The smallest cache: room for what is read ahead of the scan.
pub const BUDGET_BYTES_MIN: u64 = 2 << 20;

/// A comparison of caches.
#[derive(Debug, Clone)]
pub struct DemoRequest {
    /// Where the file is made. It has no name and is gone when the demo ends, however it ends.
    pub directory: PathBuf,
    /// Size of the file, at least [`FILE_BYTES_MIN`].
    pub file_bytes: u64,
    /// Memory of each cache, at least [`BUDGET_BYTES_MIN`].
    pub budget_bytes: u64,
    /// How long each cache is measured, after it has been filled.
    pub time: Duration,
    /// Decides which pages the reader picks.
    pub seed: u64,
    /// How our cache reads files.
    pub backend: BackendKind,
    /// Our cache runs once with each of these.
    pub mechanisms: Vec<Mechanisms>,
}

impl DemoRequest {
    /// Eight seconds per cache, seed 1, and no mechanisms: only plain LRU and the system's cache.
    pub fn new(directory: PathBuf, file_bytes: u64, budget_bytes: u64) -> DemoRequest {
        DemoRequest {
            directory,
            file_bytes,
            budget_bytes,
            time: Duration::from_secs(8),
            seed: 1,
            backend: BackendKind::default(),
            mechanisms: Vec::new(),
        }
    }

    /// Size of the part of the file that the reader picks pages from: three eighths.
    pub fn reader_bytes(&self) -> u64 {
        clients::reader_bytes(self.file_bytes)
    }

    /// Size of the part that the scan reads: the rest, in whole reads.
    pub fn scan_bytes(&self) -> u64 {
        clients::scan_part(self.file_bytes).end - self.reader_bytes()
    }

    /// Checks the sizes, as [`run`] does.
    ///
    /// # Errors
    /// The file or the memory is too small for a demo.
    pub fn check(&self) -> Result<(), Error> {
        let file = ("--size", self.file_bytes, FILE_BYTES_MIN);
        let memory = ("--memory", self.budget_bytes, BUDGET_BYTES_MIN);
        match [file, memory].into_iter().find(|(_, bytes, least)| bytes < least) {
            None => Ok(()),
            Some((option, bytes, least)) => Err(Error::usage(format_args!(
                "{option} {}: the demo needs at least {}",
                size::show(bytes),
                size::show(least)
            ))),
        }
    }
}

/// Result of a comparison.
#[derive(Debug, Clone)]
pub struct DemoOutcome {
    /// The request.
    pub request: DemoRequest,
    /// How long it took to write the file.
    pub layout: Duration,
    /// One per cache, in the order in which they ran: ours, plain LRU, the system's.
    pub runs: Vec<CacheRun>,
    /// Why the system's cache did not run: it could not be held to the same memory.
    pub system_left_out: Option<String>,
}

/// A cache that was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Ours, with these mechanisms.
    Mglru(Mechanisms),
    /// Least recently used first, the policy of most caches.
    PlainLru,
    /// The page cache of the running system, in a memory cgroup.
    System,
}

impl Cache {
    /// Its name in a chart: `mglru, linux-7.2`, `plain LRU`, `this system`.
    pub fn name(&self) -> String {
        match self {
            Cache::Mglru(mechanisms) => {
                let lru = other_policy(*mechanisms).map_or(String::new(), |lru| format!(" {lru}"));
                format!("mglru, {}{lru}", describe(*mechanisms))
            }
            Cache::PlainLru => "plain LRU".to_owned(),
            Cache::System => "this system".to_owned(),
        }
    }
}

/// The two clients, through one cache.
#[derive(Debug, Clone)]
pub struct CacheRun {
    /// The cache.
    pub cache: Cache,
    /// The cache was filled before counting began; if not, the disk was too slow for the time.
    pub warmed: bool,
    /// How long was counted.
    pub seconds: f64,
    /// Reads of the reader that were counted, one page each.
    pub reads: u64,
    /// Reads among them that found their page in memory; `None` if the file system does not report
    /// that.
    pub hits: Option<u64>,
    /// How long the reader's reads took, without verification.
    pub latencies: Latencies,
    /// Bytes that the scan read meanwhile.
    pub scanned_bytes: u64,
    /// Pages that were read and verified, of both clients, from the beginning. No page was wrong.
    pub pages_verified: u64,
    /// Counts of our cache, from the beginning; `None` for other caches.
    pub engine: Option<CacheCounts>,
}

impl CacheRun {
    /// Share of the reader's reads that found their page in memory, 0 to 1.
    pub fn hit_ratio(&self) -> Option<f64> {
        self.hits.map(|hits| hits as f64 / self.reads.max(1) as f64)
    }

    /// Reads of the reader per second.
    pub fn reads_per_second(&self) -> f64 {
        self.reads as f64 / self.seconds.max(1e-9)
    }

    /// Bytes per second of the scan.
    pub fn scanned_per_second(&self) -> f64 {
        self.scanned_bytes as f64 / self.seconds.max(1e-9)
    }

    /// Bytes per second, of both clients.
    pub fn bytes_per_second(&self) -> f64 {
        (self.reads * PAGE_BYTES + self.scanned_bytes) as f64 / self.seconds.max(1e-9)
    }
}

impl DemoOutcome {
    /// Pages that were read and verified, in all caches.
    pub fn pages_verified(&self) -> u64 {
        self.runs.iter().map(|run| run.pages_verified).sum()
    }
}

impl Serialize for DemoOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let DemoOutcome { request, layout, runs, system_left_out } = self;
        document!(serializer, {
            "file_bytes": request.file_bytes,
            "reader_bytes": request.reader_bytes(),
            "scan_bytes": request.scan_bytes(),
            "budget_bytes": request.budget_bytes,
            "directory": request.directory.display().to_string(),
            "in_memory": is_in_memory(request),
            "seed": request.seed,
            "layout_seconds": layout.as_secs_f64(),
            "pages_verified": self.pages_verified(),
            "pages_wrong": 0,
            "caches": runs,
            "system_left_out": system_left_out,
        })
    }
}

impl Serialize for CacheRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = match self.cache {
            Cache::Mglru(_) => "mglru",
            Cache::PlainLru => "plain-lru",
            Cache::System => "system",
        };
        document!(serializer, {
            "name": self.cache.name(),
            "kind": kind,
            "warmed": self.warmed,
            "seconds": self.seconds,
            "reader": Reader(self),
            "scan": Scan { bytes: self.scanned_bytes, bytes_per_second: self.scanned_per_second() },
            "bytes_per_second": self.bytes_per_second(),
            "pages_verified": self.pages_verified,
            "mglru": self.engine,
        })
    }
}

struct Reader<'a>(&'a CacheRun);

impl Serialize for Reader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let run = self.0;
        document!(serializer, {
            "reads": run.reads,
            "hits": run.hits,
            "hit_ratio": run.hit_ratio(),
            "reads_per_second": run.reads_per_second(),
            "latency_ns": LatencyNs {
                mean: run.latencies.mean_ns(),
                p50: run.latencies.percentile_ns(50.0),
                p99: run.latencies.percentile_ns(99.0),
                max: run.latencies.max_ns(),
            },
        })
    }
}

#[derive(Serialize)]
struct LatencyNs {
    mean: f64,
    p50: u64,
    p99: u64,
    max: u64,
}

#[derive(Serialize)]
struct Scan {
    bytes: u64,
    bytes_per_second: f64,
}

/// Runs the clients through all caches.
///
/// # Errors
/// File or memory are too small, the file cannot be made, a read failed, or a page was not what it
/// should be.
pub fn run(request: &DemoRequest, watch: &dyn Watch) -> Result<DemoOutcome, Error> {
    request.check()?;
    // Before a gigabyte is written: options that the cache refuses.
    for &mechanisms in &request.mechanisms {
        builder(request, mechanisms).build()?.close()?;
    }
    let began = Instant::now();
    let file = DemoFile::lay_out(&request.directory, request.file_bytes, request.seed, watch)?;
    let layout = began.elapsed();
    let mut runs = Vec::new();
    for &mechanisms in &request.mechanisms {
        runs.push(run_mglru(request, mechanisms, &file, watch)?);
    }
    runs.push(run_plain_lru(request, &file, watch)?);
    let system_left_out = match MemoryCgroup::enter(request.budget_bytes) {
        Ok(cgroup) => {
            let run = run_system(request, &file, watch);
            cgroup.leave();
            runs.push(run?);
            None
        }
        Err(reason) => Some(reason),
    };
    Ok(DemoOutcome { request: request.clone(), layout, runs, system_left_out })
}

fn builder(request: &DemoRequest, mechanisms: Mechanisms) -> mglru_cache::Builder {
    PageCache::builder(request.budget_bytes).mechanisms(mechanisms).backend(request.backend.clone())
}

fn run_mglru(
    request: &DemoRequest,
    mechanisms: Mechanisms,
    file: &DemoFile,
    watch: &dyn Watch,
) -> Result<CacheRun, Error> {
    let cache = builder(request, mechanisms).build()?;
    let open = |advice| -> Result<_, Error> {
        let opened = cache.open(file.path(), OpenMode::ReadOnly)?;
        opened.advise(advice, 0..request.file_bytes)?;
        Ok(opened)
    };
    let (reader, scan) = (open(Advice::Random)?, open(Advice::Sequential)?);
    let clients = Clients { reader: &reader, scan: &scan };
    let run = run_clients(request, Cache::Mglru(mechanisms), clients, watch)?;
    let engine = CacheCounts::of(&cache, mechanisms);
    drop((reader, scan));
    cache.close()?;
    Ok(CacheRun { engine: Some(engine), ..run })
}

fn run_plain_lru(request: &DemoRequest, file: &DemoFile, watch: &dyn Watch) -> Result<CacheRun, Error> {
    let cache = Arc::new(PlainLru::new(request.budget_bytes));
    let open = || Ok::<_, Error>(PlainLru::handle(&cache, file.open_direct()?));
    let clients = Clients { reader: &open()?, scan: &open()? };
    run_clients(request, Cache::PlainLru, clients, watch)
}

/// Call it inside of the memory cgroup: the system charges a page to the process that reads it.
fn run_system(request: &DemoRequest, file: &DemoFile, watch: &dyn Watch) -> Result<CacheRun, Error> {
    file.drop_from_system_cache();
    let open = |advice| -> Result<SystemFile, Error> { Ok(SystemFile::new(file.open()?, advice)) };
    let reader = open(rustix::fs::Advice::Random)?;
    let scan = open(rustix::fs::Advice::Sequential)?;
    let run = run_clients(request, Cache::System, Clients { reader: &reader, scan: &scan }, watch)?;
    file.drop_from_system_cache();
    Ok(run)
}

fn run_clients(
    request: &DemoRequest,
    cache: Cache,
    clients: Clients<'_>,
    watch: &dyn Watch,
) -> Result<CacheRun, Error> {
    const STEPS: u64 = 1000;
    let stage = Stage::begin(watch, &cache.name(), STEPS, Unit::Steps);
    clients::run(request, cache, clients, &|share, hit_ratio, reads_per_second| {
        let hit_ratio =
            hit_ratio.map_or(String::new(), |ratio| format!("{:.1} % from memory, ", 100.0 * ratio));
        let reads = size::count(reads_per_second as u64);
        watch.note(&format!("{}: {hit_ratio}{reads} reads/s", cache.name()));
        stage.advance_to(share)
    })
    .map_err(|error| error.at(&cache.name()))
}

/// Whether the directory is in memory, so that a miss costs no disk read.
pub fn is_in_memory(request: &DemoRequest) -> bool {
    layout::is_in_memory(&request.directory)
}
