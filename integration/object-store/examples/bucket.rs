//! A bucket that takes 50 ms for the first byte and delivers 100 MB/s per request, read twice
//! through the cache, beside a local file; then reads of one page from memory, which the cache
//! lends, and reads of as many bytes in two pages, which it copies.
//!
//! In `integration`: `cargo run --release -p mglru-object-store --example bucket`

use futures_util::stream::{self, StreamExt};
use mglru_cache::PageCache;
use mglru_object_store::CachedStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the object, and of one read.
const OBJECT: u64 = 64 << 20;
const READ: u64 = 256 << 10;
/// Reads at once.
const TOGETHER: usize = 8;
const PAGE: u64 = 4096;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Reads the whole object and checks each byte.
async fn scan(store: &dyn ObjectStore, path: &Path, object: &[u8]) -> Result<Duration, Failure> {
    let began = Instant::now();
    let reads = (0..OBJECT).step_by(READ as usize).map(|at| async move {
        let bytes = store.get_range(path, at..at + READ).await?;
        let right = bytes == object[at as usize..(at + READ) as usize];
        if right { Ok(()) } else { Err(Failure::from(format!("wrong bytes at {at}"))) }
    });
    let mut reads = stream::iter(reads).buffer_unordered(TOGETHER);
    while let Some(read) = reads.next().await {
        read?;
    }
    Ok(began.elapsed())
}

/// Reads a page's worth of bytes from everywhere in the object, each read beginning at `within` in
/// its page. Returns the time of one read.
async fn small_reads(store: &dyn ObjectStore, path: &Path, within: u64) -> Result<Duration, Failure> {
    let pages = OBJECT / PAGE - 1;
    let began = Instant::now();
    for number in 0..pages {
        let at = number * 4001 % pages * PAGE + within;
        let bytes = store.get_range(path, at..at + PAGE).await?;
        if bytes[0] != content(at) {
            return Err(format!("wrong bytes at {at}").into());
        }
    }
    Ok(began.elapsed() / pages as u32)
}

fn content(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let object: Vec<u8> = (0..OBJECT).map(content).collect();
    let path = Path::from("object");
    let cache = PageCache::builder(256 << 20).build()?;

    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(50),
        wait_get_per_byte: Duration::from_nanos(10),
        ..ThrottleConfig::default()
    };
    let bucket = ThrottledStore::new(InMemory::new(), config);
    bucket.put(&path, object.clone().into()).await?;
    let without = scan(&bucket, &path, &object).await?;
    let bucket = CachedStore::new(Arc::new(bucket), cache.tenant("")?);
    let first = scan(&bucket, &path, &object).await?;
    let second = scan(&bucket, &path, &object).await?;
    let lent = small_reads(&bucket, &path, 0).await?;
    let copied = small_reads(&bucket, &path, PAGE / 2).await?;

    let local = LocalFileSystem::new_with_prefix(directory.path())?;
    local.put(&path, object.clone().into()).await?;
    let uncached = scan(&local, &path, &object).await?;

    println!("bucket without the cache   {without:>10.1?}");
    println!("bucket, first scan         {first:>10.1?}");
    println!(
        "bucket, second scan        {second:>10.1?}   {:.0} times as fast as the first",
        first.as_secs_f64() / second.as_secs_f64()
    );
    println!("local file, not cached here{uncached:>10.1?}");
    println!("reads of 4 KiB from memory {lent:>10.1?} in one page, {copied:.1?} in two pages");
    Ok(())
}
