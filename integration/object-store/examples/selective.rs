//! A query that needs a small part of several Parquet files, as queries of a table often do: the
//! rows of one hour of each day, and 3 of 12 columns. Statistics say which row groups have such
//! rows. The files lie in a bucket that takes 50 ms for the first byte and delivers 100 MB/s per
//! request. The query runs through the cache again and again, in turns with the same query on local
//! files.
//!
//! In `integration`: `cargo run --release -p mglru-object-store --example selective`

#![expect(deprecated, reason = "upstream wants users to copy its reader into their programs")]

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use mglru_cache::PageCache;
use mglru_object_store::CachedStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::async_reader::{ParquetObjectReader, ParquetRecordBatchStreamBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILES: i64 = 8;
/// A file has ten days, a day has ten row groups, and a row group has this many rows.
const GROUP: i64 = 2000;
const DAY: i64 = 10 * GROUP;
const ROWS: i64 = 10 * DAY;
const COLUMNS: i64 = 12;
/// The rows of a day that are wanted: they lie in one row group.
const FIRST: i64 = 9 * GROUP + 200;
const LAST: i64 = 9 * GROUP + 1400;
/// Queries in turns of which the median counts.
const QUERIES: usize = 7;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Column 0 is the time in seconds, in order; the others are numbers that do not compress.
fn cell(file: i64, row: i64, column: i64) -> i64 {
    match column {
        0 => row,
        _ => ((file * ROWS + row) * COLUMNS + column).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64),
    }
}

fn is_wanted(time: i64) -> bool {
    (FIRST..=LAST).contains(&(time % DAY))
}

fn parquet_file(file: i64) -> Result<Vec<u8>, Failure> {
    let fields: Vec<_> = (0..COLUMNS).map(|c| Field::new(format!("c{c}"), DataType::Int64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP as usize))
        .set_dictionary_enabled(false)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties))?;
    for day in (0..ROWS).step_by(DAY as usize) {
        let column = |c| {
            Arc::new(Int64Array::from_iter_values((day..day + DAY).map(|row| cell(file, row, c)))) as ArrayRef
        };
        writer.write(&RecordBatch::try_new(schema.clone(), (0..COLUMNS).map(column).collect())?)?;
    }
    Ok(writer.into_inner()?)
}

fn path(file: i64) -> Path {
    Path::from(format!("part-{file}.parquet"))
}

/// Whether a row group can have wanted rows, by the smallest and the largest time in it.
fn can_match(group: &RowGroupMetaData) -> bool {
    match group.column(0).statistics() {
        Some(Statistics::Int64(times)) => match (times.min_opt(), times.max_opt()) {
            (Some(&min), Some(&max)) => min / DAY < max / DAY || (min % DAY <= LAST && FIRST <= max % DAY),
            _ => true,
        },
        _ => true,
    }
}

/// The number of wanted rows of a file and the sum of two of its columns.
async fn query_file(store: Arc<dyn ObjectStore>, file: i64) -> Result<(usize, i64), Failure> {
    let reader = ParquetObjectReader::new(store, path(file));
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
    let groups = builder.metadata().row_groups().iter().enumerate();
    let groups = groups.filter(|(_, group)| can_match(group)).map(|(number, _)| number).collect();
    let columns = ProjectionMask::leaves(builder.parquet_schema(), [0, 5, 9]);
    let mut batches = builder.with_row_groups(groups).with_projection(columns).build()?;
    let (mut rows, mut sum) = (0, 0i64);
    while let Some(batch) = batches.try_next().await? {
        let column = |at: usize| batch.column(at).as_any().downcast_ref::<Int64Array>().ok_or("another type");
        let (times, one, two) = (column(0)?, column(1)?, column(2)?);
        for row in (0..batch.num_rows()).filter(|&row| is_wanted(times.value(row))) {
            rows += 1;
            sum = sum.wrapping_add(one.value(row)).wrapping_add(two.value(row));
        }
    }
    Ok((rows, sum))
}

/// Runs the query on all files at once.
async fn query(store: &Arc<dyn ObjectStore>, wanted: (usize, i64)) -> Result<Duration, Failure> {
    let began = Instant::now();
    let files = try_join_all((0..FILES).map(|file| query_file(store.clone(), file))).await?;
    let found = files.iter().fold((0, 0i64), |(rows, sum), file| (rows + file.0, sum.wrapping_add(file.1)));
    if found != wanted {
        return Err(format!("found {found:?} instead of {wanted:?}").into());
    }
    Ok(began.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir_in(".")?;
    let local: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(directory.path())?);
    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(50),
        wait_get_per_byte: Duration::from_nanos(10),
        ..ThrottleConfig::default()
    };
    let bucket: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(InMemory::new(), config));
    let (mut wanted, mut bytes) = ((0, 0i64), 0);
    for file in 0..FILES {
        let contents = parquet_file(file)?;
        bytes += contents.len();
        local.put(&path(file), contents.clone().into()).await?;
        bucket.put(&path(file), contents.into()).await?;
        for row in (0..ROWS).filter(|&row| is_wanted(row)) {
            wanted.0 += 1;
            wanted.1 = wanted.1.wrapping_add(cell(file, row, 5)).wrapping_add(cell(file, row, 9));
        }
    }
    println!(
        "{FILES} Parquet files of {} MiB in all, {} of {} rows wanted",
        bytes >> 20,
        wanted.0,
        FILES * ROWS
    );
    let without = query(&bucket, wanted).await?;
    let cache = PageCache::builder(512 << 20).build()?;
    let cached: Arc<dyn ObjectStore> = Arc::new(CachedStore::new(bucket, cache.tenant("")?));
    let first = query(&cached, wanted).await?;
    let (mut again, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..QUERIES {
        again.push(query(&cached, wanted).await?);
        plain.push(query(&local, wanted).await?);
    }
    let (again, plain) = (median(again), median(plain));
    for (name, took) in [
        ("bucket, without the cache", without),
        ("bucket, first query", first),
        ("bucket, later queries (median)", again),
        ("local files, from the system's cache (median)", plain),
    ] {
        println!(
            "{name:46} {:8.1} ms {:6.1}x",
            took.as_secs_f64() * 1e3,
            first.as_secs_f64() / took.as_secs_f64()
        );
    }
    let stats = cache.stats();
    println!(
        "the cache asked the bucket for {} ranges, {} MiB",
        stats.source_ranges,
        stats.source_bytes >> 20
    );
    Ok(())
}
