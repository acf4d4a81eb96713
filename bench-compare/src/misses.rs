//! Cost of a miss: random pages at queue depth 32 from one thread and from two, with our cache and
//! with fio on the same file.
//!
//! Ours are a `read_stream`. Only reads that missed count. The processor's time is that of
//! the whole process, with background reclaim; fio's is what fio says of its jobs. A cache also
//! copies a page to the reader, so our time stands beside fio's with the time of a copy added.

use crate::Failure;
use crate::file::{DataFile, PAGE_BYTES, uniform_pages};
use crate::measure::{Effort, Figures, cpu_time};
use mglru_cache::{Advice, OpenMode, PageCache, ReadStream, Tenant};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// fio's `numjobs`.
const THREADS: [usize; 2] = [1, 2];
/// Reads under way, fio's `iodepth`.
const DEPTH: usize = 32;
const OFFSETS: usize = 4 << 20;
/// File size divided by cache size, so that nearly all reads miss.
const CACHE_DIVISOR: u64 = 64;
/// Minimum cache size.
const CACHE_BYTES_MIN: u64 = 8 << 20;
/// Bytes that the copied pages are taken from, more than any processor's cache holds.
const COPIED_BYTES: usize = 256 << 20;

/// Measures misses of our cache, and of fio if it is installed.
///
/// # Errors
/// The file cannot be opened.
pub fn measure(data: &DataFile, effort: Effort, notes: &mut Vec<String>) -> Result<Vec<Figures>, Failure> {
    data.drop_from_kernel_cache();
    let offsets = uniform_pages(data.bytes() / PAGE_BYTES, OFFSETS);
    let cache = PageCache::builder((data.bytes() / CACHE_DIVISOR).max(CACHE_BYTES_MIN)).build()?;
    let tenant = cache.tenant("")?;
    let copied = vec![1_u8; COPIED_BYTES];
    let mut figures = Vec::new();
    let mut fio_failed = None;
    for threads in THREADS {
        let [mut ours, mut our_cpu, mut theirs, mut their_cpu] = [const { Vec::new() }; 4];
        for round in 0..effort.long_rounds {
            let mut reads = offsets.clone();
            reads.rotate_left(OFFSETS / effort.long_rounds * round);
            let cost = cost_of_misses(&tenant, data.path(), &reads, threads, effort.long_sample)?;
            ours.push(cost.ns);
            our_cpu.push(cost.cpu_ns);
            if fio_failed.is_none() {
                match fio(data.path(), threads, effort.long_sample) {
                    Ok(cost) => {
                        theirs.push(cost.ns);
                        their_cpu.push(cost.cpu_ns + ns_per_copy(&copied, &reads));
                    }
                    Err(why) => fio_failed = Some(why),
                }
            }
        }
        figures.push(Figures::new("miss", threads, ours));
        figures.push(Figures::new("miss_processor_time", threads, our_cpu));
        if fio_failed.is_none() {
            figures.push(Figures::new("fio", threads, theirs));
            figures.push(Figures::new("fio_and_copy_processor_time", threads, their_cpu));
        }
    }
    if let Some(why) = fio_failed {
        notes.push(format!("misses are not compared with fio: {why}"));
    }
    Ok(figures)
}

/// The cost of a read, in nanoseconds.
struct Cost {
    /// Between two reads of one thread.
    ns: f64,
    /// Of processors.
    cpu_ns: f64,
}

impl Cost {
    fn of(reads: f64, elapsed: f64, cpu: f64, threads: usize) -> Cost {
        Cost { ns: elapsed * 1e9 * threads as f64 / reads, cpu_ns: cpu * 1e9 / reads }
    }
}

/// Nanoseconds for copying a random page.
fn ns_per_copy(from: &[u8], offsets: &[u64]) -> f64 {
    const COPIES: usize = 1 << 14;
    let mut page = [0; PAGE_BYTES as usize];
    let before = cpu_time();
    for &offset in &offsets[..COPIES] {
        page.copy_from_slice(&from[offset as usize % from.len()..][..PAGE_BYTES as usize]);
        black_box(&page);
    }
    (cpu_time() - before) * 1e9 / COPIES as f64
}

/// Reads of whole pages until a time.
struct Reads<'a> {
    offsets: std::iter::Cycle<std::slice::Iter<'a, u64>>,
    end: Instant,
    /// Those that no read uses.
    buffers: Vec<Vec<u8>>,
}

impl ReadStream for Reads<'_> {
    type Buffer = Vec<u8>;

    fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        let &offset = self.offsets.next().filter(|_| Instant::now() < self.end)?;
        Some((offset, self.buffers.pop().unwrap_or_else(|| vec![0; PAGE_BYTES as usize])))
    }

    fn peek(&self) -> Option<u64> {
        self.offsets.clone().next().copied()
    }

    fn ended(&mut self, offset: u64, buffer: Vec<u8>, _: usize) {
        let word = buffer.first_chunk().map(|&word| u64::from_ne_bytes(word));
        assert_eq!(word, Some(offset), "a page holds its offset");
        self.buffers.push(buffer);
    }
}

fn cost_of_misses(
    tenant: &Tenant,
    path: &Path,
    offsets: &[u64],
    threads: usize,
    length: Duration,
) -> Result<Cost, Failure> {
    let file = tenant.open(path, OpenMode::ReadOnly)?;
    file.advise(Advice::Random, 0..0)?;
    let start = Barrier::new(threads + 1);
    let (missed, elapsed, cpu) = thread::scope(|scope| {
        for offsets in offsets.chunks(OFFSETS / threads) {
            let (start, file) = (&start, file.try_clone().expect("there is memory for a handle"));
            scope.spawn(move || {
                start.wait();
                let end = Instant::now() + length;
                let mut reads = Reads { offsets: offsets.iter().cycle(), end, buffers: Vec::new() };
                file.read_stream(DEPTH, &mut reads).expect("pages of the file can be read");
            });
        }
        let before = tenant.stats().misses;
        start.wait();
        let (began, cpu_before) = (Instant::now(), cpu_time());
        thread::sleep(length);
        (tenant.stats().misses - before, began.elapsed().as_secs_f64(), cpu_time() - cpu_before)
    });
    Ok(Cost::of(missed as f64, elapsed, cpu, threads))
}

/// Runs fio on the file. The error says why there is no result.
fn fio(path: &Path, threads: usize, length: Duration) -> Result<Cost, String> {
    let output = Command::new("fio")
        .args([
            "--name=misses",
            "--rw=randread",
            "--bs=4k",
            "--direct=1",
            "--ioengine=io_uring",
            "--readonly",
        ])
        .args(["--group_reporting", "--time_based", "--norandommap", "--output-format=json"])
        .arg(format!("--numjobs={threads}"))
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--runtime={}ms", length.as_millis()))
        .arg(format!("--filename={}", path.display()))
        .output()
        .map_err(|error| format!("it cannot be started ({error}); install the package fio"))?;
    if !output.status.success() {
        return Err(format!("it failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("its report cannot be read: {error}"))?;
    let job = &report["jobs"][0];
    let number = |value: &serde_json::Value, name: &str| {
        value.as_f64().filter(|&value| value > 0.0).ok_or_else(|| format!("its report has no jobs[0].{name}"))
    };
    let iops = number(&job["read"]["iops"], "read.iops")?;
    // A group's shares are of one processor, averaged over its jobs.
    let share = (number(&job["usr_cpu"], "usr_cpu")? + number(&job["sys_cpu"], "sys_cpu")?) / 100.0;
    Ok(Cost::of(iops, 1.0, share * threads as f64, threads))
}
