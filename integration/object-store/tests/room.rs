//! A cache without room for what is read: reads are right, and the store is not asked for more than
//! a little more than that.

mod common;

use common::content;
use mglru_cache::PageCache;
use mglru_object_store::{CachedStore, Options};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;

/// A store with an object, and a cache of so many bytes in blocks of 64 KiB.
async fn cached(path: &Path, bytes: usize, budget: u64) -> (PageCache, CachedStore) {
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    inner.put(path, content(1, bytes).into()).await.unwrap();
    let cache = PageCache::builder(budget).build().unwrap();
    let mut options = Options::default();
    options.block_bytes = 64 << 10;
    let store = CachedStore::with_options(inner, cache.tenant("").unwrap(), options);
    (cache, store)
}

/// The metadata of open objects takes all that it may take: older objects are closed.
#[tokio::test]
async fn more_objects_than_the_cache_has_metadata_for() {
    let (cache, store) = cached(&Path::from("0"), 100, 600 << 10).await;
    for round in 0..2 {
        for number in 0..400u64 {
            let path = Path::from(format!("{number}"));
            if round == 0 {
                store.put(&path, content(number, 100).into()).await.unwrap();
            }
            let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
            assert!(bytes == content(number, 100), "object {number}");
        }
    }
    assert!((1..400).contains(&store.open_objects()));
    cache.validate().unwrap();
}

/// One call asks for ten times the memory, in many ranges.
#[tokio::test]
async fn many_ranges_at_once_do_not_push_each_other_out() {
    let path = Path::from("o");
    let (cache, store) = cached(&path, 20 << 20, 2 << 20).await;
    let all = content(1, 20 << 20);
    let ranges: Vec<_> = (0..400u64).map(|at| at * 50_000..at * 50_000 + 45_000).collect();
    let parts = store.get_ranges(&path, &ranges).await.unwrap();
    for (range, part) in ranges.iter().zip(parts) {
        assert!(part == all[range.start as usize..range.end as usize], "{range:?}");
    }
    let read = cache.stats().source_bytes;
    assert!(read < 40 << 20, "{read} bytes were read for 20 MiB");
}

/// Lent pages take all memory: further reads go to the store.
#[tokio::test]
async fn reads_while_all_memory_is_lent() {
    let path = Path::from("o");
    let (cache, store) = cached(&path, 4 << 20, 600 << 10).await;
    let all = content(1, 4 << 20);
    let mut held = Vec::new();
    for page in 0..110 {
        let range = page * 4096..page * 4096 + 4096;
        // The second time the page is in memory, as far as there is room for it.
        for _ in 0..2 {
            held.push((range.clone(), store.get_range(&path, range.clone()).await.unwrap()));
        }
    }
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
    for (range, bytes) in held {
        assert!(bytes == all[range.start as usize..range.end as usize], "{range:?}");
    }
    cache.validate().unwrap();
}
