//! A cache of objects in a slow bucket, in memory and on a local disk: what leaves memory, or was
//! read before a restart, is read from the disk.
//!
//! `cargo run --release -p mglru-cache --example object_cache`

use mglru_cache::{BlockSource, DiskTier, Error, OpenMode, PageCache, RangeRequest, SourceState};
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of the object, of a block that the bucket is asked for, and of a read.
const OBJECT: u64 = 24 << 20;
const BLOCK: u64 = 256 << 10;
const READ: usize = 32 << 10;

/// An object in a bucket. Here its bytes come from a formula; yours come from a client.
#[derive(Debug)]
struct Object {
    /// The time that the bucket takes for a request.
    latency: Duration,
    requests: AtomicU64,
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl BlockSource for Object {
    fn name(&self) -> String {
        "bucket/object".to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        // A request for the object's head.
        Ok(SourceState::new(OBJECT).with_version("etag 7"))
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        self.requests.fetch_add(requests.len() as u64, Relaxed);
        std::thread::sleep(self.latency);
        for request in requests {
            let bytes: Vec<u8> = request.range().map(byte).collect();
            request.fulfil(Some("etag 7"), &bytes);
        }
    }

    fn block_bytes(&self) -> u64 {
        BLOCK
    }
}

/// Reads the whole object and checks every byte.
fn scan(cache: &PageCache, object: &Arc<Object>) -> Result<(), Error> {
    let file = cache.open_source(object.clone(), OpenMode::ReadOnly)?;
    let mut buffer = vec![0; READ];
    for offset in (0..OBJECT).step_by(READ) {
        file.read_exact_at(&mut buffer, offset)?;
        assert!(buffer.iter().zip(offset..).all(|(&found, at)| found == byte(at)), "wrong bytes at {offset}");
    }
    Ok(())
}

/// Reads the object twice, restarts and reads it again. Returns what `main` prints.
pub fn run(directory: &Path, latency: Duration) -> Result<String, Error> {
    let object = Arc::new(Object { latency, requests: AtomicU64::new(0) });
    let mut text = format!("an object of {} MiB, 8 MiB of memory, 32 MiB on disk\n", OBJECT >> 20);
    let mut cache = None;
    for what in ["first read", "second read", "after a restart"] {
        if what != "second read" {
            // Everything that was read is on the disk once the cache is closed.
            cache.take().map_or(Ok(()), PageCache::close)?;
            let tier = DiskTier::new(directory.join("tier"), 32 << 20);
            cache = Some(PageCache::builder(8 << 20).disk_tier(tier).build()?);
        }
        let cache = cache.as_ref().expect("it was just built");
        let before = cache.stats().disk_tier.map_or(0, |tier| tier.hits);
        let began = Instant::now();
        scan(cache, &object)?;
        let took = began.elapsed();
        let tier = cache.stats().disk_tier.expect("it has one");
        let requests = object.requests.swap(0, Relaxed);
        writeln!(
            text,
            "{what:16} {requests:4} requests to the bucket, {:5} pages from the disk, {:4} ms",
            tier.hits - before,
            took.as_millis()
        )
        .expect("a string takes everything");
    }
    Ok(text)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    print!("{}", run(directory.path(), Duration::from_millis(20))?);
    Ok(())
}
