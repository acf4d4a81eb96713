//! Cost of a miss: random pages at queue depth 32 from two threads, with our cache and with fio on
//! the same file.
//!
//! Our depth is that of `read_many`. Only reads that missed count.

use crate::Failure;
use crate::file::{DataFile, PAGE_BYTES, uniform_pages};
use crate::measure::{Effort, Figures};
use mglru_cache::{Advice, OpenMode, PageCache, ReadRequest, Tenant};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// fio's `numjobs` and `iodepth`.
const THREADS: usize = 2;
const DEPTH: usize = 32;
/// Reads per call, of which `read_many` has `DEPTH` active.
const TOGETHER: usize = 1024;
const OFFSETS: usize = 4 << 20;
/// File size divided by cache size, so that nearly all reads miss.
const CACHE_DIVISOR: u64 = 64;
/// Minimum cache size.
const CACHE_BYTES_MIN: u64 = 8 << 20;

/// Measures misses of our cache, and of fio if it is installed.
///
/// # Errors
/// The file cannot be opened.
pub fn measure(data: &DataFile, effort: Effort, notes: &mut Vec<String>) -> Result<Vec<Figures>, Failure> {
    data.drop_from_kernel_cache();
    let offsets = uniform_pages(data.bytes() / PAGE_BYTES, OFFSETS);
    let cache = PageCache::builder((data.bytes() / CACHE_DIVISOR).max(CACHE_BYTES_MIN)).build()?;
    let tenant = cache.tenant("")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut fio_failed = None;
    for round in 0..effort.long_rounds {
        let mut reads = offsets.clone();
        reads.rotate_left(OFFSETS / effort.long_rounds * round);
        ours.push(ns_per_miss(&tenant, data.path(), &reads, effort.long_sample)?);
        if fio_failed.is_none() {
            match fio_iops(data.path(), effort.long_sample) {
                Ok(iops) => theirs.push(ns_on_each_thread(iops)),
                Err(why) => fio_failed = Some(why),
            }
        }
    }
    let mut figures = vec![Figures::new("miss", THREADS, ours)];
    match fio_failed {
        Some(why) => notes.push(format!("misses are not compared with fio: {why}")),
        None => figures.push(Figures::new("fio", THREADS, theirs)),
    }
    Ok(figures)
}

/// Nanoseconds between two reads of one thread at `iops` reads per second in total.
fn ns_on_each_thread(iops: f64) -> f64 {
    1e9 / iops * THREADS as f64
}

fn ns_per_miss(tenant: &Tenant, path: &Path, offsets: &[u64], length: Duration) -> Result<f64, Failure> {
    let file = tenant.open(path, OpenMode::ReadOnly)?;
    file.advise(Advice::Random, 0..0)?;
    let start = Barrier::new(THREADS + 1);
    let (missed, elapsed) = thread::scope(|scope| {
        for offsets in offsets.chunks(OFFSETS / THREADS) {
            let (start, file) = (&start, file.try_clone().expect("there is memory for a handle"));
            scope.spawn(move || {
                let mut pages = vec![0; TOGETHER * PAGE_BYTES as usize];
                start.wait();
                let began = Instant::now();
                for offsets in offsets.chunks_exact(TOGETHER).cycle() {
                    let pages = pages.chunks_exact_mut(PAGE_BYTES as usize);
                    let mut requests: Vec<ReadRequest<'_>> = (offsets.iter().zip(pages))
                        .map(|(&offset, buffer)| ReadRequest { offset, buffer, read: 0 })
                        .collect();
                    file.read_many(&mut requests).expect("pages of the file can be read");
                    for request in requests {
                        let word = request.buffer.first_chunk().map(|&word| u64::from_ne_bytes(word));
                        assert_eq!(word, Some(request.offset), "a page holds its offset");
                    }
                    if began.elapsed() >= length {
                        break;
                    }
                }
            });
        }
        let before = tenant.stats().misses;
        start.wait();
        let began = Instant::now();
        thread::sleep(length);
        (tenant.stats().misses - before, began.elapsed())
    });
    Ok(ns_on_each_thread(missed as f64 / elapsed.as_secs_f64()))
}

/// Runs fio on the file. Returns reads per second, or the reason why there are none.
fn fio_iops(path: &Path, length: Duration) -> Result<f64, String> {
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
        .arg(format!("--numjobs={THREADS}"))
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
    report["jobs"][0]["read"]["iops"]
        .as_f64()
        .filter(|&iops| iops > 0.0)
        .ok_or_else(|| "its report has no jobs[0].read.iops".to_owned())
}
