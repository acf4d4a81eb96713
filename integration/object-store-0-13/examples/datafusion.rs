//! SQL on a table of Parquet files in a bucket that takes 50 ms for the first byte and delivers
//! 100 MB/s per request. DataFusion runs each query through the cache again and again, in turns
//! with the same query on local files.
//!
//! In `integration`: `cargo run --release -p mglru-object-store-0-13 --example datafusion`

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use mglru_cache::PageCache;
use mglru_object_store_0_13::CachedStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILES: i64 = 8;
const ROWS: i64 = 200_000;
const COLUMNS: i64 = 12;
/// Queries in turns of which the median counts.
const TURNS: usize = 7;

const QUERIES: [(&str, &str); 3] = [
    ("all rows, 3 columns", "SELECT count(*), sum(c5 % 1000), max(c9) FROM t"),
    ("a hundredth of the rows", "SELECT sum(c5 % 1000) FROM t WHERE c0 BETWEEN 700000 AND 715999"),
    ("groups", "SELECT c3 % 16 AS class, count(*) FROM t GROUP BY class ORDER BY class"),
];

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Column 0 counts the rows; the others are numbers that do not compress.
fn parquet_file(file: i64) -> Result<Vec<u8>, Failure> {
    let rows = file * ROWS..(file + 1) * ROWS;
    let cell = |row: i64, column: i64| match column {
        0 => row,
        _ => (row * COLUMNS + column).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64),
    };
    let column = |column| {
        let numbers = Int64Array::from_iter_values(rows.clone().map(|row| cell(row, column)));
        (format!("c{column}"), Arc::new(numbers) as ArrayRef)
    };
    let batch = RecordBatch::try_from_iter((0..COLUMNS).map(column))?;
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(20_000))
        .set_dictionary_enabled(false)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// A session with the table of a store.
async fn session(store: Arc<dyn ObjectStore>) -> Result<SessionContext, Failure> {
    let context = SessionContext::new();
    context.register_object_store(ObjectStoreUrl::parse("bucket://b")?.as_ref(), store);
    context.register_parquet("t", "bucket://b/t/", ParquetReadOptions::default()).await?;
    Ok(context)
}

/// Runs a query once. Returns its rows as text, and how long it took.
async fn run(context: &SessionContext, query: &str) -> Result<(String, Duration), Failure> {
    let began = Instant::now();
    let batches = context.sql(query).await?.collect().await?;
    let took = began.elapsed();
    Ok((pretty_format_batches(&batches)?.to_string(), took))
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
    let mut bytes = 0;
    for file in 0..FILES {
        let (path, contents) = (format!("t/part-{file}.parquet").into(), parquet_file(file)?);
        bytes += contents.len();
        local.put(&path, contents.clone().into()).await?;
        bucket.put(&path, contents.into()).await?;
    }
    println!("{FILES} Parquet files of {} MiB in all, {} rows", bytes >> 20, FILES * ROWS);
    let (plain, local) = (session(bucket.clone()).await?, session(local).await?);
    for (name, query) in QUERIES {
        // A cache of its own, so that the first query finds nothing in memory.
        let cache = PageCache::builder(512 << 20).build()?;
        let cached = session(Arc::new(CachedStore::new(bucket.clone(), cache.tenant("")?))).await?;
        let (rows, without) = run(&plain, query).await?;
        let (found, first) = run(&cached, query).await?;
        let (mut again, mut files) = (Vec::new(), Vec::new());
        let mut right = found == rows;
        for _ in 0..TURNS {
            let ((one, later), (other, file)) = (run(&cached, query).await?, run(&local, query).await?);
            right &= one == rows && other == rows;
            again.push(later);
            files.push(file);
        }
        if !right {
            return Err(format!("{name}: rows differ").into());
        }
        println!("\n{name}");
        for (name, took) in [
            ("bucket, without the cache", without),
            ("bucket, first query", first),
            ("bucket, later queries (median)", median(again)),
            ("local files, from the system's cache (median)", median(files)),
        ] {
            println!(
                "  {name:46} {:8.1} ms {:6.1}x",
                took.as_secs_f64() * 1e3,
                first.as_secs_f64() / took.as_secs_f64()
            );
        }
    }
    Ok(())
}
