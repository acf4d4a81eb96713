//! The publication's loads with the real cache: jobs that read files in memory, and jobs that
//! rarely scan or scan swap.
//!
//! Each load has one cache, in which prefetching is switched on and off in turns of a fraction of a
//! second. Two caches would differ by more than the effect, because of their placement in memory.
//! Files are sparse and on a file system in memory, so that a read costs a copy, as from the
//! publication's RAM disk, and no memory.

use crate::Error;
use crate::cpu::process_seconds;
use crate::parallel;
use mglru_cache::{AnonRegion, CachedFile, OpenMode, PageCache, ReadRequest, Swap, Tenant};
use mglru_core::{Lru, Mechanisms, PAGE_BYTES};
use mglru_workload::{Accesses, BlockBytes, Distribution, Length, Mix, Order, Pattern, Random};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Threads of each load, one per processor of a small machine. The publication has 16 or 48.
const JOBS: usize = 2;
/// Reads that a job submits at once.
const BATCH: usize = 32;
/// Memory of the cache above the limit, so that only the limit matters.
const ROOM_BYTES: u64 = 24 << 20;
const PAGE: usize = PAGE_BYTES as usize;

/// Work of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Random reads, zipf 0.5, from files of 3.75 times the limit (test 1).
    RandomRead,
    /// The same with zipf 0.7 and files of 1.9 times the limit; every other access of the second
    /// job writes (test 2).
    Hybrid,
    /// Point selects and short ranges of rows in a buffer pool of 2.5 times the limit, which is
    /// swapped (test 3).
    Sysbench,
    /// Reads headers and a source, works on its own memory and writes an object (test 4).
    Compile,
    /// Stores values sequentially into memory of 4 times the limit, which is swapped (test 5).
    Memcached,
}

impl Load {
    /// Name of the load.
    pub fn name(self) -> &'static str {
        match self {
            Load::RandomRead => "random reads",
            Load::Hybrid => "reads and writes",
            Load::Sysbench => "selects",
            Load::Compile => "compiling",
            Load::Memcached => "sets",
        }
    }

    /// Pages used by each job. A power of two, because otherwise fio's zipf hash never reaches half
    /// of them.
    fn job_pages(self) -> u64 {
        match self {
            Load::RandomRead => 1 << 18,
            Load::Hybrid => 1 << 17,
            Load::Sysbench | Load::Memcached => 1 << 15,
            Load::Compile => 1 << 14,
        }
    }

    /// Memory used by all jobs as a multiple of the limit: the publication's, except for a
    /// compiler's headers.
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
            // Pages compress to half.
            Load::Sysbench | Load::Memcached => self.limit_bytes() * 5 / 2,
            Load::Compile => self.limit_bytes(),
        }
    }
}

/// Work done by all jobs in a turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// Bytes read from files, or operations.
    pub reads: u64,
    /// Bytes written.
    pub writes: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Processor time of the process in seconds.
    pub cpu_seconds: f64,
    /// Pages reclaimed since the cache was made. On a busy machine, a short turn may reclaim none.
    pub reclaimed: u64,
}

/// A cache with a load.
pub struct Side {
    tenant: Tenant,
    jobs: Vec<Job>,
    cache: PageCache,
}

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

/// A directory on a file system in memory.
pub fn directory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

fn sparse(path: &Path, bytes: u64) -> Result<(), Error> {
    let make = || File::create(path)?.set_len(bytes);
    make().map_err(|error| Error::work(format_args!("cannot create {}: {error}", path.display())))
}

impl Side {
    /// A full cache in steady state. All files are created in `place`; `shorter` divides their
    /// sizes.
    ///
    /// # Errors
    /// If a file cannot be created or read.
    pub fn new(load: Load, place: &Path, shorter: u32, seed: u64) -> Result<Side, Error> {
        let [limit_bytes, swap_bytes] = [load.limit_bytes(), load.swap_bytes()]
            .map(|bytes| bytes / u64::from(shorter) / PAGE_BYTES * PAGE_BYTES);
        let mut builder =
            PageCache::builder(limit_bytes + swap_bytes + ROOM_BYTES).tenant("load", limit_bytes);
        if swap_bytes > 0 {
            builder = builder.swap(Swap::compressed(swap_bytes));
        }
        // The policy of the publication. The default policy's lists are scanned by other code.
        let multigen = Mechanisms::default().with_lru(Lru::MultiGen);
        let cache = builder.mechanisms(multigen).build()?;
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

    /// Runs until pages are reclaimed, and then for a while.
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
            self.turn(Duration::from_millis(20), Prefetch::Ours)?;
        }
        Ok(())
    }

    fn reclaimed(&self) -> u64 {
        let stats = self.tenant.stats();
        ["pgsteal_anon", "pgsteal_file"].into_iter().filter_map(|name| stats.counter(name)).sum()
    }

    /// Runs all jobs for `time` with this kind of prefetching.
    ///
    /// # Errors
    /// The cache's error.
    pub fn turn(&mut self, time: Duration, prefetch: Prefetch) -> Result<Turn, Error> {
        match prefetch {
            Prefetch::None => self.cache.set_prefetch(false),
            Prefetch::Next => self.cache.set_prefetch_next(true),
            Prefetch::Ours => self.cache.set_prefetch(true),
        }
        let (began, cpu) = (Instant::now(), process_seconds());
        let work = |job: &mut Job| {
            let (mut reads, mut writes) = (0, 0);
            while began.elapsed() < time {
                let (read, written) = job.step()?;
                (reads, writes) = (reads + read, writes + written);
            }
            Ok::<_, Error>((reads, writes))
        };
        let (mut reads, mut writes) = (0, 0);
        for done in parallel::each(&mut self.jobs, work)? {
            let (read, written) = done?;
            (reads, writes) = (reads + read, writes + written);
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu_seconds = process_seconds() - cpu;
        Ok(Turn { reads, writes, seconds, cpu_seconds, reclaimed: self.reclaimed() })
    }

    /// Closes the cache.
    ///
    /// # Errors
    /// If a page cannot be written.
    pub fn close(self) -> Result<(), Error> {
        drop((self.jobs, self.tenant));
        Ok(self.cache.close()?)
    }
}

/// How the scans of a load prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing.
    None,
    /// The next folio's state: the published patch.
    Next,
    /// As in the default preset.
    Ours,
}

/// A page that compresses to half its size.
fn content(seed: u64) -> [u8; PAGE] {
    let (mut page, mut random) = ([0; PAGE], Random::new(seed));
    page[..PAGE / 2].chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    page
}

/// As in sysbench: selects by key per transaction, and ranges of a hundred rows of 220 bytes.
const SELECTS: u32 = 10;
const RANGES: u32 = 4;
const RANGE_BYTES: usize = 100 * 220;
/// Headers per unit, of 16 KiB each. This many of 100 come from the hundredth that every unit
/// includes.
const HEADERS: u32 = 40;
const HEADER_BYTES: usize = 16 << 10;
const COMMON_PERCENT: u64 = 75;
const COMPILER_BYTES: u64 = 2 << 20;
const OBJECT_BYTES: u64 = 64 << 10;
const OBJECTS: u64 = 16;
const VALUE_BYTES: usize = 1024;

impl Job {
    /// An offset for `bytes` bytes, mostly in the first hundredth, sysbench's "special"
    /// distribution.
    fn place(random: &mut Random, len: u64, bytes: usize, align: u64) -> u64 {
        let all = (len - bytes as u64) / align;
        let places = if random.below(100) < COMMON_PERCENT { (all / 100).max(1) } else { all };
        random.below(places) * align
    }

    /// Performs one unit of work. Returns bytes read or operations, and bytes written.
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
