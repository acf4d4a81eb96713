//! The publication's loads with the real cache: jobs that read files in memory, and those that
//! hardly scan, or scan swap.
//!
//! One cache for each load, in which prefetching is turned off and on in turns of a fraction of a
//! second: two caches differ by more than what is looked for, by what memory they happen to get.
//! Files are sparse ones where the system keeps files in memory, so that reading one costs a copy,
//! as from the publication's RAM disk, and no memory.

use crate::Error;
use crate::cpu::process_seconds;
use mglru_cache::{AnonRegion, CachedFile, OpenMode, PageCache, ReadRequest, Swap, Tenant};
use mglru_core::PAGE_BYTES;
use mglru_workload::{Accesses, BlockBytes, Distribution, Length, Mix, Order, Pattern, Random};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Threads of each load, one per processor of a small machine, where the publication has 16 jobs,
/// 48 or 16 threads.
const JOBS: usize = 2;
/// Reads that a job submits at once.
const BATCH: usize = 32;
/// Besides the limit, so that only that matters.
const ROOM_BYTES: u64 = 24 << 20;
const PAGE: usize = PAGE_BYTES as usize;

/// What jobs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Reads at random, zipf 0.5, from files 3.75 times the limit (test 1).
    RandomRead,
    /// The same with zipf 0.7 and files 1.9 times the limit; the second job writes every other time
    /// (test 2).
    Hybrid,
    /// Point selects and short ranges of rows in a buffer pool of 2.5 times the limit, which is
    /// swapped (test 3).
    Sysbench,
    /// Reads headers and a source, works on memory of its own and writes an object (test 4).
    Compile,
    /// Stores values one after the other into memory of 4 times the limit, which is swapped (test
    /// 5).
    Memcached,
}

impl Load {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Load::RandomRead => "random reads",
            Load::Hybrid => "reads and writes",
            Load::Sysbench => "selects",
            Load::Compile => "compiling",
            Load::Memcached => "sets",
        }
    }

    /// Pages that each job uses. A power of two, as otherwise fio's hash, by which zipf draws,
    /// never reaches half of them.
    fn job_pages(self) -> u64 {
        match self {
            Load::RandomRead => 1 << 18,
            Load::Hybrid => 1 << 17,
            Load::Sysbench | Load::Memcached => 1 << 15,
            Load::Compile => 1 << 14,
        }
    }

    /// What all jobs use, as a multiple of the limit: the publication's, but for the headers of a
    /// compiler.
    fn ratio(self) -> f64 {
        match self {
            Load::RandomRead => 3.75,
            Load::Hybrid => 1.9,
            Load::Sysbench => 2.5,
            Load::Compile => 3.0,
            Load::Memcached => 4.0,
        }
    }

    fn limit_bytes(self) -> u64 {
        let pages = (self.job_pages() * JOBS as u64) as f64 / self.ratio();
        pages as u64 * PAGE_BYTES
    }

    fn swap_bytes(self) -> u64 {
        match self {
            Load::RandomRead | Load::Hybrid => 0,
            // Of pages that get half as large.
            Load::Sysbench | Load::Memcached => self.limit_bytes() * 5 / 2,
            Load::Compile => self.limit_bytes(),
        }
    }
}

/// What was done in a turn, by all jobs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// Bytes read (of files), or operations.
    pub reads: u64,
    /// Bytes written.
    pub writes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What the process took of the processors.
    pub cpu_seconds: f64,
    /// Pages that were reclaimed.
    pub reclaimed: u64,
}

/// A cache with a load on it.
pub struct Side {
    tenant: Tenant,
    jobs: Vec<Job>,
    cache: PageCache,
}

/// What a job works on, and where it is.
struct Job {
    work: Work,
    random: Random,
    buffer: Vec<u8>,
}

enum Work {
    Files { file: CachedFile, accesses: Accesses },
    Sysbench { pool: AnonRegion },
    Compile { headers: CachedFile, object: CachedFile, tenant: Tenant },
    Memcached { memory: AnonRegion, next: u64 },
}

/// Where files take no disk.
pub fn directory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

fn sparse(path: &Path, bytes: u64) -> Result<(), Error> {
    let make = || File::create(path)?.set_len(bytes);
    make().map_err(|error| Error::work(format_args!("cannot make {}: {error}", path.display())))
}

impl Side {
    /// A cache that is full and in balance. Everything is made in `place`, and smaller by
    /// `shorter`.
    ///
    /// # Errors
    /// A file cannot be made or read.
    pub fn new(load: Load, place: &Path, shorter: u32, seed: u64) -> Result<Side, Error> {
        let [limit_bytes, swap_bytes] = [load.limit_bytes(), load.swap_bytes()]
            .map(|bytes| bytes / u64::from(shorter) / PAGE_BYTES * PAGE_BYTES);
        let mut builder =
            PageCache::builder(limit_bytes + swap_bytes + ROOM_BYTES).tenant("load", limit_bytes);
        if swap_bytes > 0 {
            builder = builder.swap(Swap::compressed(swap_bytes));
        }
        let cache = builder.build()?;
        let tenant = cache.tenant("load")?;
        let each = load.job_pages() / u64::from(shorter) * PAGE_BYTES;
        let open = |name: String, bytes| {
            let path = place.join(name);
            sparse(&path, bytes)?;
            Ok::<_, Error>(tenant.open(&path, OpenMode::ReadWrite)?)
        };
        let job = |number: usize| {
            let work = match load {
                Load::RandomRead | Load::Hybrid => {
                    let (theta, hybrid) =
                        (if load == Load::Hybrid { 0.7 } else { 0.5 }, load == Load::Hybrid);
                    let mix =
                        if hybrid && number % 2 == 1 { Mix::Mixed { read_percent: 50 } } else { Mix::Read };
                    let pattern = Pattern {
                        order: Order::Random(Distribution::Zipf { theta }),
                        mix,
                        block_bytes: BlockBytes::both(PAGE_BYTES as u32),
                        size_bytes: each,
                        length: Length::Endless,
                        seed: seed + number as u64,
                    };
                    Work::Files {
                        file: open(format!("job{number}"), each)?,
                        accesses: pattern.accesses().map_err(Error::work)?,
                    }
                }
                Load::Sysbench => Work::Sysbench { pool: tenant.anonymous(each)? },
                Load::Compile => Work::Compile {
                    headers: open(format!("headers{number}"), each)?,
                    object: open(format!("object{number}"), OBJECTS * OBJECT_BYTES)?,
                    tenant: tenant.clone(),
                },
                Load::Memcached => Work::Memcached { memory: tenant.anonymous(each)?, next: 0 },
            };
            let buffer = vec![0; BATCH * PAGE];
            Ok(Job { work, random: Random::stream(seed, number as u64), buffer })
        };
        let jobs = (0..JOBS).map(job).collect::<Result<Vec<_>, Error>>()?;
        let mut side = Side { tenant, jobs, cache };
        side.warm(limit_bytes)?;
        Ok(side)
    }

    /// Until something was reclaimed, and then for a while.
    fn warm(&mut self, limit_bytes: u64) -> Result<(), Error> {
        for job in &self.jobs {
            if let Work::Sysbench { pool } = &job.work {
                let page = content(1);
                (0..pool.len()).step_by(PAGE).try_for_each(|offset| pool.store(offset, &page))?;
            }
        }
        let enough = limit_bytes / PAGE_BYTES / 4;
        for _ in 0..200 {
            if self.reclaimed() > enough {
                break;
            }
            self.turn(Duration::from_millis(20), true)?;
        }
        Ok(())
    }

    fn reclaimed(&self) -> u64 {
        let stats = self.tenant.stats();
        ["pgsteal_anon", "pgsteal_file"].into_iter().filter_map(|name| stats.counter(name)).sum()
    }

    /// Has all jobs work for so long, with prefetching or without.
    ///
    /// # Errors
    /// The cache's.
    pub fn turn(&mut self, time: Duration, prefetch: bool) -> Result<Turn, Error> {
        self.cache.set_prefetch(prefetch);
        let (began, cpu, reclaimed) = (Instant::now(), process_seconds(), self.reclaimed());
        let done = std::thread::scope(|scope| {
            let work = |job: &mut Job| {
                let (mut reads, mut writes) = (0, 0);
                while began.elapsed() < time {
                    let (read, written) = job.step()?;
                    (reads, writes) = (reads + read, writes + written);
                }
                Ok::<_, Error>((reads, writes))
            };
            let jobs: Vec<_> = self.jobs.iter_mut().map(|job| scope.spawn(move || work(job))).collect();
            jobs.into_iter()
                .map(|job| job.join().expect("a job does not panic"))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let (reads, writes) = done.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let seconds = began.elapsed().as_secs_f64();
        let cpu_seconds = process_seconds() - cpu;
        Ok(Turn { reads, writes, seconds, cpu_seconds, reclaimed: self.reclaimed() - reclaimed })
    }

    /// Ends it.
    ///
    /// # Errors
    /// Something cannot be written.
    pub fn close(self) -> Result<(), Error> {
        drop((self.jobs, self.tenant));
        Ok(self.cache.close()?)
    }
}

/// A page that gets half as large when it is compressed.
fn content(seed: u64) -> [u8; PAGE] {
    let (mut page, mut random) = ([0; PAGE], Random::new(seed));
    page[..PAGE / 2].chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    page
}

/// sysbench's: selects by key per transaction, and ranges of a hundred rows of 220 bytes.
const SELECTS: u32 = 10;
const RANGES: u32 = 4;
const RANGE_BYTES: usize = 100 * 220;
/// Headers of a unit, of 16 KiB each; of 100, so many are of the hundredth that everybody includes.
const HEADERS: u32 = 40;
const HEADER_BYTES: usize = 16 << 10;
const COMMON_PERCENT: u64 = 75;
const COMPILER_BYTES: u64 = 2 << 20;
const OBJECT_BYTES: u64 = 64 << 10;
const OBJECTS: u64 = 16;
const VALUE_BYTES: usize = 1024;

impl Job {
    /// A place for so many bytes: mostly in the first hundredth, which is what sysbench calls
    /// "special".
    fn place(random: &mut Random, len: u64, bytes: usize, align: u64) -> u64 {
        let all = (len - bytes as u64) / align;
        let places = if random.below(100) < COMMON_PERCENT { (all / 100).max(1) } else { all };
        random.below(places) * align
    }

    /// One piece of work. Bytes read or operations, and bytes written.
    fn step(&mut self) -> Result<(u64, u64), Error> {
        let Job { work, random, buffer } = self;
        match work {
            Work::Files { file, accesses } => {
                let (mut offsets, mut written) = (Vec::with_capacity(BATCH), 0);
                for access in accesses.take(BATCH) {
                    if access.write {
                        file.write_at(&buffer[..PAGE], access.offset)?;
                        written += PAGE_BYTES;
                    } else {
                        offsets.push(access.offset);
                    }
                }
                let mut requests: Vec<_> = offsets
                    .iter()
                    .zip(buffer.chunks_mut(PAGE))
                    .map(|(&offset, buffer)| ReadRequest { offset, buffer, read: 0 })
                    .collect();
                file.read_many(&mut requests)?;
                Ok((requests.len() as u64 * PAGE_BYTES, written))
            }
            Work::Sysbench { pool } => {
                let mut row = [0; 220];
                for _ in 0..SELECTS {
                    pool.load(Self::place(random, pool.len(), row.len(), row.len() as u64), &mut row)?;
                }
                for _ in 0..RANGES {
                    let offset = Self::place(random, pool.len(), RANGE_BYTES, row.len() as u64);
                    pool.load(offset, &mut buffer[..RANGE_BYTES])?;
                }
                Ok((u64::from(SELECTS + RANGES), 0))
            }
            Work::Compile { headers, object, tenant } => {
                for _ in 0..HEADERS {
                    let offset = Self::place(random, headers.len(), HEADER_BYTES, HEADER_BYTES as u64);
                    headers.read_at(&mut buffer[..HEADER_BYTES], offset)?;
                }
                let memory = tenant.anonymous(COMPILER_BYTES)?;
                let page = content(random.next_u64());
                for offset in (0..COMPILER_BYTES).step_by(PAGE) {
                    memory.store(offset, &page)?;
                }
                for _ in 0..COMPILER_BYTES / PAGE_BYTES {
                    memory.load(random.below(COMPILER_BYTES - 64), &mut buffer[..64])?;
                }
                let at = random.below(OBJECTS) * OBJECT_BYTES;
                object.write_at(&buffer[..OBJECT_BYTES as usize], at)?;
                Ok((1, 0))
            }
            Work::Memcached { memory, next } => {
                let page = content(*next);
                for _ in 0..BATCH {
                    memory.store(*next, &page[PAGE / 2 - VALUE_BYTES / 2..][..VALUE_BYTES])?;
                    *next = (*next + VALUE_BYTES as u64) % (memory.len() / PAGE_BYTES * PAGE_BYTES);
                }
                Ok((BATCH as u64, 0))
            }
        }
    }
}
