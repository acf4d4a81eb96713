//! Queries of DataFusion on a table of Parquet files behind the cache have the same rows as without
//! it, and read the bucket once.

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use mglru_cache::PageCache;
use mglru_object_store_0_13::CachedStore;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const FILES: i64 = 6;
const ROWS: i64 = 40_000;

const QUERIES: [&str; 4] = [
    "SELECT count(*), sum(number), min(text), max(text) FROM t",
    "SELECT key, text FROM t WHERE key BETWEEN 100000 AND 100009 ORDER BY key",
    "SELECT number % 7 AS class, count(*), avg(key) FROM t GROUP BY class ORDER BY class",
    "SELECT a.key, b.number FROM t a JOIN t b ON a.key = b.key + 1 WHERE a.key % 9973 = 5 ORDER BY a.key",
];

fn parquet_file(file: i64) -> Result<Vec<u8>, Failure> {
    let keys = file * ROWS..(file + 1) * ROWS;
    let number = |key: i64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 20;
    let columns: [(&str, ArrayRef); 3] = [
        ("key", Arc::new(Int64Array::from_iter_values(keys.clone()))),
        ("number", Arc::new(Int64Array::from_iter_values(keys.clone().map(number)))),
        (
            "text",
            Arc::new(StringArray::from_iter_values(keys.map(|key| format!("text {}", number(key) % 1000)))),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(5000)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// The rows of all queries, as text, on a table in `store`.
async fn rows(store: Arc<dyn ObjectStore>) -> Result<Vec<String>, Failure> {
    let context = SessionContext::new();
    context.register_object_store(ObjectStoreUrl::parse("bucket://b")?.as_ref(), store);
    context.register_parquet("t", "bucket://b/t/", ParquetReadOptions::default()).await?;
    let mut all = Vec::new();
    for query in QUERIES {
        let batches = context.sql(query).await?.collect().await?;
        all.push(pretty_format_batches(&batches)?.to_string());
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queries_read_the_bucket_once_and_have_the_same_rows() -> Result<(), Failure> {
    let bucket = Arc::new(InMemory::new());
    let mut bytes = 0;
    for file in 0..FILES {
        let contents = parquet_file(file)?;
        bytes += contents.len() as u64;
        bucket.put(&format!("t/part-{file}.parquet").into(), contents.into()).await?;
    }
    let expected = rows(bucket.clone()).await?;
    assert!(expected[1].matches("text").count() >= 11, "{}", expected[1]);

    let cache = PageCache::builder(64 << 20).tenant("small", 2 << 20).build()?;
    let store: Arc<dyn ObjectStore> = Arc::new(CachedStore::new(bucket.clone(), cache.tenant("")?));
    assert_eq!(rows(store.clone()).await?, expected);
    let first = cache.stats();
    assert!(first.source_bytes <= bytes.next_multiple_of(1 << 20) + (FILES as u64) * 4096, "each block once");
    assert_eq!(rows(store).await?, expected);
    assert_eq!(cache.stats().source_ranges, first.source_ranges, "later queries read nothing");

    // A tenant smaller than the table.
    assert!(bytes > 3 << 20);
    let store: Arc<dyn ObjectStore> = Arc::new(CachedStore::new(bucket, cache.tenant("small")?));
    for _ in 0..2 {
        assert_eq!(rows(store.clone()).await?, expected);
    }
    Ok(())
}
