//! The three tenants: what each does to its part of the file, and how it checks what it reads.
//!
//! Every page of the file says which page it is, how often it was written, and a crc32c over all of
//! it (`mglru_workload::verify`). Each tenant has a part of the file to itself and remembers the
//! generation of each of its pages, so it knows what it must read, whichever way it reads it.

use super::page_file::PageFile;
use mglru_core::PAGE_BYTES;
use mglru_workload::fio::Latencies;
use mglru_workload::verify::{self, Identity};
use mglru_workload::{BlockBytes, Distribution, Length, Mix, Order, Pattern};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A scanner reads as much at once as scanners do.
const SCAN_BYTES: u32 = 64 << 10;
/// The least file: a part of at least one scan for each.
pub const FILE_BYTES_MIN: u64 = 1 << 20;
/// The least budget: room for the scanner's part of it to hold what is read ahead of it, 256 KiB.
pub const BUDGET_BYTES_MIN: u64 = 2 << 20;
/// How many tenants there are.
pub const TENANTS: usize = 3;

/// What a tenant does.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub what: &'static str,
    /// Its part of the file, in bytes.
    pub part: Range<u64>,
    /// What it may use of the cache.
    pub max_bytes: u64,
    /// Its accesses, counted from the beginning of its part. Without end.
    pub pattern: Pattern,
    seed: u64,
}

/// The tenants of a file of so many bytes and a cache of so many.
///
/// Parts are 3/8, 2/8 and 3/8 of the file, the scanner's at its end: what is read ahead of it stays
/// within its part. Limits are in the same proportion, of 15/16 of the budget: the rest is for
/// metadata and for pages that background reclaim keeps free.
pub fn tenants(file_bytes: u64, budget_bytes: u64, seed: u64) -> [Tenant; TENANTS] {
    let scans = file_bytes / u64::from(SCAN_BYTES);
    let eighth = |eighths: u64| scans * eighths / 8 * u64::from(SCAN_BYTES);
    let limit = |eighths: u64| budget_bytes / 16 * 15 / 8 * eighths;
    let zipf = |theta| Order::Random(Distribution::zipf(theta).expect("a skew below 1"));
    let tenant = |name, what, part: Range<u64>, eighths, order, mix, block_bytes| {
        let size_bytes = part.end - part.start;
        let (length, seed_of_part) = (Length::Endless, seed ^ part.start);
        let block_bytes = BlockBytes::both(block_bytes);
        let pattern = Pattern { order, mix, block_bytes, size_bytes, length, seed: seed_of_part };
        Tenant { name, what, part, max_bytes: limit(eighths), pattern, seed }
    };
    let page = PAGE_BYTES as u32;
    [
        tenant(
            "hot",
            "reads pages at random, some far more often than others (zipf 0.99)",
            0..eighth(3),
            3,
            zipf(0.99),
            Mix::Read,
            page,
        ),
        tenant(
            "scan",
            "reads in order, 64 KiB at a time, again and again",
            eighth(6)..eighth(8),
            2,
            Order::Sequential,
            Mix::Read,
            SCAN_BYTES,
        ),
        tenant(
            "mixed",
            "reads (70 %) and writes pages at random (zipf 0.9)",
            eighth(3)..eighth(6),
            3,
            zipf(0.9),
            Mix::Mixed { read_percent: 70 },
            page,
        ),
    ]
}

/// What one tenant did in one run.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Reads that were made, and checked.
    pub reads: u64,
    /// Writes that were made.
    pub writes: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Pages that were read and checked.
    pub pages_checked: u64,
    /// How long it ran.
    pub elapsed: Duration,
    /// How long its operations took, without the check.
    pub latencies: Latencies,
}

impl Done {
    /// Reads and writes.
    pub fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// At the latest then.
    pub deadline: Instant,
    /// Or after so many operations.
    pub operations: u64,
}

/// What those who watch a run, and the other tenants, see of it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Meter {
    /// Operations so far.
    pub operations: AtomicU64,
    /// Bytes so far.
    pub bytes: AtomicU64,
}

/// The generations of a tenant's pages. They outlive a run, as the file does.
pub struct Generations(Vec<u32>);

impl Generations {
    /// Of a file that was just laid out.
    pub fn new(tenant: &Tenant) -> Generations {
        Generations(vec![1; ((tenant.part.end - tenant.part.start) / PAGE_BYTES) as usize])
    }
}

impl Tenant {
    /// Performs its accesses until `limit`, or until another tenant has failed.
    ///
    /// # Errors
    /// An access failed, or a page was not what it should be: in words.
    pub fn run(
        &self,
        file: &impl PageFile,
        generations: &mut Generations,
        limit: Limit,
        meter: &Meter,
        failed: &AtomicBool,
    ) -> Result<Done, String> {
        let result = self.perform(file, &mut generations.0, limit, meter, failed);
        if result.is_err() {
            failed.store(true, Relaxed);
        }
        result.map_err(|reason| format!("tenant {}: {reason}", self.name))
    }

    fn perform(
        &self,
        file: &impl PageFile,
        generations: &mut [u32],
        limit: Limit,
        meter: &Meter,
        failed: &AtomicBool,
    ) -> Result<Done, String> {
        let accesses = self.pattern.accesses().map_err(|error| error.to_string())?;
        let mut buffer = vec![0; self.pattern.block_bytes.read as usize];
        let mut done = Done::default();
        let started = Instant::now();
        for access in accesses {
            let offset = self.part.start + access.offset;
            let first = (access.offset / PAGE_BYTES) as usize;
            let known = &mut generations[first..first + buffer.len() / PAGE_BYTES as usize];
            if access.write {
                self.fill(&mut buffer, offset, known);
            }
            let began = Instant::now();
            match access.write {
                true => file.write(&buffer, offset)?,
                false => file.read(&mut buffer, offset)?,
            }
            let ended = Instant::now();
            done.latencies.record((ended - began).as_nanos() as u64);
            done.bytes += u64::from(access.bytes);
            if access.write {
                done.writes += 1;
            } else {
                done.reads += 1;
                done.pages_checked += check(&buffer, offset, known)?;
            }
            meter.operations.store(done.operations(), Relaxed);
            meter.bytes.store(done.bytes, Relaxed);
            if ended >= limit.deadline || done.operations() >= limit.operations || failed.load(Relaxed) {
                break;
            }
        }
        done.elapsed = started.elapsed();
        Ok(done)
    }

    fn fill(&self, buffer: &mut [u8], offset: u64, generations: &mut [u32]) {
        let pages = buffer.chunks_exact_mut(PAGE_BYTES as usize).zip(generations);
        for (number, (page, generation)) in pages.enumerate() {
            *generation += 1;
            let offset = offset + number as u64 * PAGE_BYTES;
            verify::fill(page, Identity { offset, generation: u64::from(*generation), seed: self.seed });
        }
    }
}

/// Checks each page: that it is the one that was asked for, its last version, and whole. How many
/// there were.
fn check(buffer: &[u8], offset: u64, generations: &[u32]) -> Result<u64, String> {
    let pages = buffer.chunks_exact(PAGE_BYTES as usize).zip(generations);
    for (number, (page, &generation)) in pages.enumerate() {
        let offset = offset + number as u64 * PAGE_BYTES;
        verify::check_generation(page, offset, u64::from(generation)).map_err(|error| error.to_string())?;
    }
    Ok(generations.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_limits_fit_side_by_side() {
        for file_bytes in [FILE_BYTES_MIN, (16 << 20) + 4097, 1 << 30] {
            let tenants = tenants(file_bytes, 256 << 20, 1);
            let mut end = 0;
            for tenant in [0, 2, 1].map(|position: usize| &tenants[position]) {
                assert_eq!(tenant.part.start, end);
                assert!(tenant.part.end > end && tenant.pattern.accesses().is_ok(), "{tenant:?}");
                end = tenant.part.end;
            }
            assert!(end <= file_bytes && end + u64::from(SCAN_BYTES) > file_bytes, "{end}");
            assert!(tenants.iter().map(|tenant| tenant.max_bytes).sum::<u64>() <= 240 << 20);
        }
    }

    #[test]
    fn a_page_that_is_stale_or_misplaced_is_found() {
        let mut page = vec![0; 4096];
        verify::fill(&mut page, Identity { offset: 8192, generation: 2, seed: 1 });
        assert_eq!(check(&page, 8192, &[2]), Ok(1));
        assert!(check(&page, 8192, &[3]).unwrap_err().contains("stale"));
        assert!(check(&page, 4096, &[2]).unwrap_err().contains("offset"));
    }
}
