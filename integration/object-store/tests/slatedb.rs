//! slatedb, an LSM engine that keeps its tables in an object store, with that store in the cache.
//! Its own cache of blocks is off, so each block that it needs is read through the wrapper.

use mglru_cache::PageCache;
use mglru_object_store::{CachedStore, Options};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use slatedb::Db;
use slatedb::config::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 1_000;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// A value of 4 KiB that says which write of which key it is.
fn value(number: u64, round: u64) -> Vec<u8> {
    let word = (number << 32 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.into_iter().cycle().take(4096).collect()
}

async fn open(store: &Arc<dyn ObjectStore>) -> Db {
    // Small tables, so that they are written and compacted while the test runs.
    let settings = Settings { l0_sst_size_bytes: 256 << 10, ..Settings::default() };
    let builder = Db::builder("database", store.clone()).with_settings(settings);
    builder.with_db_cache_disabled().build().await.unwrap()
}

async fn check(database: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for number in 0..KEYS {
        let found = database.get(key(number)).await.unwrap();
        assert_eq!(found.as_deref(), model.get(&key(number)).map(Vec::as_slice), "key {number}");
    }
    let mut rows = database.scan(..).await.unwrap();
    let mut expected = model.iter();
    while let Some(row) = rows.next().await.unwrap() {
        assert_eq!(Some((&row.key.to_vec(), &row.value.to_vec())), expected.next());
    }
    assert_eq!(expected.next(), None);
}

/// Three sessions of writes and deletes; each begins with what the last one left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_lsm_engine_keeps_its_rows_in_a_tenant_smaller_than_its_tables() {
    let cache = PageCache::builder(4 << 20).tenant("bucket", 1 << 20).build().unwrap();
    let mut options = Options::default();
    options.block_bytes = 32 << 10;
    let bucket = Arc::new(InMemory::new());
    let store = CachedStore::with_options(bucket, cache.tenant("bucket").unwrap(), options);
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    let mut model = BTreeMap::new();
    for round in 0..3 {
        let database = open(&store).await;
        check(&database, &model).await;
        for step in 0..KEYS {
            let number = (step * (7_919 + 2 * round)) % KEYS;
            if (step + round).is_multiple_of(5) {
                database.delete(key(number)).await.unwrap();
                model.remove(&key(number));
            } else {
                database.put(key(number), value(number, round)).await.unwrap();
                model.insert(key(number), value(number, round));
            }
        }
        database.flush().await.unwrap();
        check(&database, &model).await;
        database.close().await.unwrap();
    }
    check(&open(&store).await, &model).await;
    assert!(cache.stats().source_bytes > 8 << 20, "the tables do not fit: {:?}", cache.stats());
}

/// The second pass over all rows reads nothing from the bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_lsm_engine_reads_its_tables_from_the_bucket_once() {
    let cache = PageCache::builder(32 << 20).tenant("bucket", 24 << 20).build().unwrap();
    let store = CachedStore::new(Arc::new(InMemory::new()), cache.tenant("bucket").unwrap());
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    let model: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number), value(number, 0))).collect();
    let database = open(&store).await;
    for (key, value) in &model {
        database.put(key, value).await.unwrap();
    }
    database.flush().await.unwrap();
    database.close().await.unwrap();
    let database = open(&store).await;
    check(&database, &model).await;
    let read_bytes = cache.stats().source_bytes;
    assert!(read_bytes >= KEYS * 4096, "{read_bytes}");
    check(&database, &model).await;
    assert_eq!(cache.stats().source_bytes, read_bytes);
}
