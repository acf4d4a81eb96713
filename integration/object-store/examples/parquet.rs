//! A Parquet file in a bucket that takes 50 ms for the first byte and delivers 100 MB/s per
//! request, scanned twice through the cache, once more after a restart with the disk tier, and from
//! a local file.
//!
//! In `integration`: `cargo run --release -p mglru-object-store --example parquet`

#![expect(deprecated, reason = "upstream wants users to copy its reader into their programs")]

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use futures_util::TryStreamExt;
use mglru_cache::{DiskTier, PageCache};
use mglru_object_store::{CachedStore, Options};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::async_reader::{ParquetObjectReader, ParquetRecordBatchStreamBuilder};
use parquet::file::properties::WriterProperties;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: i64 = 1_000_000;
const ROW_GROUP: usize = 250_000;
const COLUMNS: i64 = 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Numbers that do not compress.
fn cell(row: i64, column: i64) -> i64 {
    (row * COLUMNS + column).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
}

fn parquet_file() -> Result<Vec<u8>, Failure> {
    let fields: Vec<_> = (0..COLUMNS).map(|c| Field::new(format!("c{c}"), DataType::Int64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_dictionary_enabled(false)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties))?;
    for first in (0..ROWS).step_by(50_000) {
        let column =
            |c| Arc::new(Int64Array::from_iter_values((first..first + 50_000).map(|row| cell(row, c))));
        let columns: Vec<ArrayRef> = (0..COLUMNS).map(|c| column(c) as ArrayRef).collect();
        writer.write(&RecordBatch::try_new(schema.clone(), columns)?)?;
    }
    Ok(writer.into_inner()?)
}

/// Reads all columns of all rows, and compares their sum.
async fn scan(store: Arc<dyn ObjectStore>, path: &Path) -> Result<Duration, Failure> {
    let began = Instant::now();
    let reader = ParquetObjectReader::new(store, path.clone());
    let mut batches = ParquetRecordBatchStreamBuilder::new(reader).await?.with_batch_size(8192).build()?;
    let (mut sum, mut rows) = (0i64, 0);
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
        for column in batch.columns() {
            let numbers = column.as_any().downcast_ref::<Int64Array>().ok_or("another type")?;
            sum = numbers.values().iter().fold(sum, |sum, &number| sum.wrapping_add(number));
        }
    }
    let took = began.elapsed();
    let expected = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| cell(row, column)));
    let expected = expected.fold(0i64, i64::wrapping_add);
    if (rows, sum) == (ROWS as usize, expected) { Ok(took) } else { Err("wrong rows".into()) }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir_in(".")?;
    let path = Path::from("table.parquet");
    let local = Arc::new(LocalFileSystem::new_with_prefix(directory.path())?);
    let file = parquet_file()?;
    println!(
        "a Parquet file of {} MiB, {} row groups of {COLUMNS} columns",
        file.len() >> 20,
        ROWS as usize / ROW_GROUP
    );
    local.put(&path, file.clone().into()).await?;

    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(50),
        wait_get_per_byte: Duration::from_nanos(10),
        ..ThrottleConfig::default()
    };
    let bucket: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(InMemory::new(), config));
    bucket.put(&path, file.into()).await?;
    let tier = directory.path().join("tier");
    let build = |budget| PageCache::builder(budget).disk_tier(DiskTier::new(&tier, 256 << 20)).build();
    let mut options = Options::default();
    options.name = Some("bucket".to_owned());
    let wrap = |cache: &PageCache| -> Result<Arc<dyn ObjectStore>, Failure> {
        Ok(Arc::new(CachedStore::with_options(bucket.clone(), cache.tenant("")?, options.clone())))
    };

    let mut rows = vec![("bucket, without the cache", scan(bucket.clone(), &path).await?)];
    let cache = build(256 << 20)?;
    let store = wrap(&cache)?;
    rows.push(("bucket, first scan", scan(store.clone(), &path).await?));
    let first = rows[1].1;
    let mut again = Vec::new();
    for _ in 0..5 {
        again.push(scan(store.clone(), &path).await?);
    }
    drop(store);
    let skipped = cache.stats().disk_tier.map_or(0, |tier| tier.skipped);
    cache.close()?;
    let cache = build(256 << 20)?;
    let restarted = scan(wrap(&cache)?, &path).await?;
    let asked = cache.stats().source_ranges;
    let mut plain = Vec::new();
    for _ in 0..5 {
        plain.push(scan(local.clone(), &path).await?);
    }
    again.sort();
    plain.sort();
    rows.push(("bucket, later scans (median of 5)", again[2]));
    rows.push(("bucket, first scan after a restart, from the disk tier", restarted));
    rows.push(("local file, from the system's cache (median of 5)", plain[2]));
    for (what, took) in rows {
        println!(
            "{what:55} {:8.1} ms   {:5.1} times as fast as the first",
            took.as_secs_f64() * 1e3,
            first.as_secs_f64() / took.as_secs_f64()
        );
    }
    println!("ranges asked of the bucket after the restart: {asked}; pages that the tier skipped: {skipped}");
    cache.close()?;
    Ok(())
}
