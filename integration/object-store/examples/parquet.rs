//! A Parquet file in a bucket that takes 50 ms for the first byte and delivers 100 MB/s per
//! request. It is scanned through the cache again and again, once more after a restart with the
//! disk tier, and from a local file. Each time once through `parquet`, and once only the bytes that
//! `parquet` asks for, which shows what decoding takes.
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
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: i64 = 1_000_000;
const COLUMNS: i64 = 8;
/// Scans in turns of which the median counts.
const SCANS: usize = 7;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Numbers that do not compress.
fn cell(row: i64, column: i64) -> i64 {
    (row * COLUMNS + column).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
}

fn parquet_file(row_group: usize) -> Result<Vec<u8>, Failure> {
    let fields: Vec<_> = (0..COLUMNS).map(|c| Field::new(format!("c{c}"), DataType::Int64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group))
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

/// A file in a store.
struct Table {
    path: Path,
    /// The sum of all numbers.
    sum: i64,
    /// The parts of the columns, for each row group.
    groups: Vec<Vec<Range<u64>>>,
}

#[derive(Clone, Copy)]
enum Scan {
    /// All rows through `parquet`.
    Rows,
    /// The bytes of all rows.
    Bytes,
}

impl Table {
    async fn new(store: Arc<dyn ObjectStore>, path: Path) -> Result<Table, Failure> {
        let reader = ParquetObjectReader::new(store, path.clone());
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
        let groups = builder.metadata().row_groups().iter().map(|group| {
            let range = |(start, bytes): (u64, u64)| start..start + bytes;
            group.columns().iter().map(|column| range(column.byte_range())).collect()
        });
        let numbers = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| cell(row, column)));
        Ok(Table { path, sum: numbers.fold(0, i64::wrapping_add), groups: groups.collect() })
    }

    /// Scans all rows once.
    async fn scan(&self, store: Arc<dyn ObjectStore>, scan: Scan) -> Result<Duration, Failure> {
        let began = Instant::now();
        match scan {
            Scan::Rows => {
                let reader = ParquetObjectReader::new(store, self.path.clone());
                let batches = ParquetRecordBatchStreamBuilder::new(reader).await?;
                let mut batches = batches.with_batch_size(8192).build()?;
                let (mut sum, mut rows) = (0i64, 0);
                while let Some(batch) = batches.try_next().await? {
                    rows += batch.num_rows();
                    for column in batch.columns() {
                        let numbers = column.as_any().downcast_ref::<Int64Array>().ok_or("another type")?;
                        sum = numbers.values().iter().fold(sum, |sum, &number| sum.wrapping_add(number));
                    }
                }
                if (rows, sum) != (ROWS as usize, self.sum) {
                    return Err("wrong rows".into());
                }
            }
            Scan::Bytes => {
                for ranges in &self.groups {
                    let parts = store.get_ranges(&self.path, ranges).await?;
                    let bytes: usize = parts.iter().map(|part| part.len()).sum();
                    if bytes as u64 != ranges.iter().map(|range| range.end - range.start).sum::<u64>() {
                        return Err("wrong bytes".into());
                    }
                }
            }
        }
        Ok(began.elapsed())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Measures all ways to read a file with row groups of so many rows.
async fn measure(directory: &std::path::Path, row_group: usize) -> Result<(), Failure> {
    let path = Path::from(format!("table-{row_group}.parquet"));
    let local = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
    let file = parquet_file(row_group)?;
    println!(
        "a Parquet file of {} MiB, row groups of {row_group} rows ({} MiB) in {COLUMNS} columns",
        file.len() >> 20,
        (file.len() >> 20) * row_group / ROWS as usize
    );
    local.put(&path, file.clone().into()).await?;
    let table = Table::new(local.clone(), path.clone()).await?;

    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(50),
        wait_get_per_byte: Duration::from_nanos(10),
        ..ThrottleConfig::default()
    };
    let bucket: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(InMemory::new(), config));
    bucket.put(&path, file.into()).await?;
    let mut results = Vec::new();
    for (number, scan) in [Scan::Rows, Scan::Bytes].into_iter().enumerate() {
        let tier = directory.join(format!("tier-{row_group}-{number}"));
        let build = || PageCache::builder(256 << 20).disk_tier(DiskTier::new(&tier, 256 << 20)).build();
        let wrap = |cache: &PageCache| -> Result<Arc<dyn ObjectStore>, Failure> {
            let mut options = Options::default();
            options.name = Some("bucket".to_owned());
            Ok(Arc::new(CachedStore::with_options(bucket.clone(), cache.tenant("")?, options)))
        };
        let without = table.scan(bucket.clone(), scan).await?;
        let cache = build()?;
        let store = wrap(&cache)?;
        let first = table.scan(store.clone(), scan).await?;
        let (mut again, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..SCANS {
            again.push(table.scan(store.clone(), scan).await?);
            plain.push(table.scan(local.clone(), scan).await?);
        }
        drop(store);
        cache.close()?;
        let cache = build()?;
        let restarted = table.scan(wrap(&cache)?, scan).await?;
        let asked = cache.stats().source_ranges;
        cache.close()?;
        results.push(([without, first, median(again), restarted, median(plain)], asked));
    }
    let names = [
        "bucket, without the cache",
        "bucket, first scan",
        "bucket, later scans (median)",
        "bucket, first scan after a restart, from the disk tier",
        "local file, from the system's cache (median)",
    ];
    println!("{:55}      rows             bytes only", "");
    for (row, name) in names.into_iter().enumerate() {
        print!("{name:55}");
        for (times, _) in &results {
            let (first, took) = (times[1].as_secs_f64(), times[row].as_secs_f64());
            print!(" {:8.1} ms {:6.1}x", took * 1e3, first / took);
        }
        println!();
    }
    let asked: Vec<_> = results.iter().map(|(_, asked)| asked.to_string()).collect();
    println!("ranges asked of the bucket after the restart: {}\n", asked.join(", "));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir_in(".")?;
    for row_group in [250_000, 62_500] {
        measure(directory.path(), row_group).await?;
    }
    Ok(())
}
