//! The wrapper over stores in memory and on disk: upstream's own tests, verified contents, changes,
//! failures, and Parquet.

#![expect(deprecated, reason = "upstream wants users to copy its reader into their programs")]

mod common;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use async_trait::async_trait;
use common::content;
use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mglru_cache::{BlockSource, DiskTier, OpenMode, PageCache, RangeRequest, SourceState};
use mglru_object_store::{CachedStore, Options};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::*;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector};
use parquet::arrow::async_reader::{ParquetObjectReader, ParquetRecordBatchStreamBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn options(block_bytes: u64, fresh_for: Duration) -> Options {
    let mut options = Options::default();
    (options.block_bytes, options.fresh_for) = (block_bytes, fresh_for);
    options
}

fn cached(store: impl ObjectStore, budget: u64, options: Options) -> (PageCache, CachedStore) {
    let cache = PageCache::builder(budget).tenant("bucket", budget / 2).build().unwrap();
    let tenant = cache.tenant("bucket").unwrap();
    (cache, CachedStore::with_options(Arc::new(store), tenant, options))
}

/// The tests that object_store has for its own stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_tests_pass() {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    let (_one, local) = cached(local, 4 << 20, Options::default());
    let (_two, memory) = cached(InMemory::new(), 4 << 20, Options::default());
    for store in [&local, &memory] {
        integration::put_get_delete_list(store).await;
        integration::get_opts(store).await;
        integration::list_uses_directories_correctly(store).await;
        integration::list_with_delimiter(store).await;
        integration::rename_and_copy(store).await;
        integration::copy_if_not_exists(store).await;
        integration::copy_rename_nonexistent_object(store).await;
        integration::stream_get(store).await;
    }
    integration::put_opts(&memory, true).await;
    integration::put_get_attributes(&memory).await;
}

/// A miss brings in the whole object, also if a few times the block would be too large a number.
#[tokio::test]
async fn blocks_may_be_larger_than_any_object() {
    for block_bytes in [1 << 30, 1 << 44, 1 << 61, u64::MAX] {
        let (_cache, store) = cached(InMemory::new(), 8 << 20, options(block_bytes, Duration::from_secs(10)));
        let path = Path::from("a");
        store.put(&path, content(3, 300_000).into()).await.unwrap();
        for _ in 0..2 {
            let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
            assert!(bytes == content(3, 300_000), "{block_bytes}");
        }
        let ranges = store.get_ranges(&path, &[5..10, 200_000..299_999]).await.unwrap();
        assert!(ranges[1] == content(3, 300_000)[200_000..299_999], "{block_bytes}");
    }
}

/// Changes whose callers do not wait for the end. The store has made them.
#[tokio::test]
async fn changes_are_seen_whose_futures_were_dropped() {
    let inner = shaky(0);
    let (_cache, store) = cached(inner.clone(), 4 << 20, options(4096, Duration::from_secs(3600)));
    let paths: Vec<_> = ["a", "b", "c", "d"].map(Path::from).to_vec();
    for (number, path) in (0..).zip(&paths) {
        store.put(path, content(number, 20_000).into()).await.unwrap();
        store.get(path).await.unwrap().bytes().await.unwrap();
    }
    inner.is_stalled.store(true, Relaxed);
    assert!(store.put(&paths[0], content(8, 20_000).into()).now_or_never().is_none());
    assert!(store.copy(&paths[0], &paths[1]).now_or_never().is_none());
    inner.is_stalled.store(false, Relaxed);
    for path in &paths[..2] {
        assert!(store.get(path).await.unwrap().bytes().await.unwrap() == content(8, 20_000), "{path}");
    }
    // Nobody asks for the result of the second deletion.
    let both = stream::iter(paths[2..].to_vec()).map(Ok).boxed();
    assert_eq!(store.delete_stream(both).next().await.unwrap().unwrap(), paths[2]);
    let (mine, inners) = (store.get(&paths[3]).await, inner.get(&paths[3]).await);
    assert_eq!(mine.is_ok(), inners.is_ok());
    assert!(matches!(store.get(&paths[2]).await.unwrap_err(), Error::NotFound { .. }));
}

/// An object that is found to be gone is gone, also the part of it that is in memory.
#[tokio::test]
async fn an_object_that_others_deleted_is_forgotten() {
    let inner = Arc::new(InMemory::new());
    let (_cache, store) = cached(inner.clone(), 4 << 20, options(4096, Duration::from_secs(3600)));
    let path = Path::from("a/b");
    inner.put(&path, content(1, 100_000).into()).await.unwrap();
    store.get_range(&path, 0..10).await.unwrap();
    inner.delete(&path).await.unwrap();
    for range in [50_000..50_010, 0..10] {
        match store.get_range(&path, range).await.unwrap_err() {
            Error::NotFound { path, .. } => assert_eq!(path, "a/b"),
            error => panic!("{error}"),
        }
    }
    assert_eq!(store.open_objects(), 0);
}

/// Many tasks read ranges of objects that do not fit into the tenant's memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_range_is_right_within_the_tenants_limit() {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    let (cache, store) = cached(local, 4 << 20, options(64 << 10, Duration::from_secs(3600)));
    let bytes = 1_500_000;
    for object in 0..4u64 {
        store.put(&Path::from(format!("o{object}")), content(object, bytes).into()).await.unwrap();
    }
    let tasks = (0..16u64).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let all = content(task % 4, bytes);
            let path = Path::from(format!("o{}", task % 4));
            for step in 0..60u64 {
                let start = (task * 7919 + step * 104_729) % (bytes as u64 - 100_000);
                let end = start + 1 + (step * 3571) % 100_000;
                let got = store.get_range(&path, start..end).await.unwrap();
                assert!(got == all[start as usize..end as usize], "{path} {start}..{end}");
            }
            let ranges = [5..10, 700_000..700_001, 1_400_000..1_500_000u64];
            let got = store.get_ranges(&path, &ranges).await.unwrap();
            for (got, range) in got.iter().zip(ranges) {
                assert!(*got == all[range.start as usize..range.end as usize]);
            }
            assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let stats = cache.tenant("bucket").unwrap().stats();
    assert!(stats.peak_pages <= (2 << 20) / 4096, "{stats:?}");
    assert!(stats.counters.by_name("pgsteal_file") > Some(0), "{stats:?}");
    assert_eq!(store.open_objects(), 4);
    store.clear();
    assert_eq!(store.open_objects(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_seen_and_versions_never_mix() {
    let inner = Arc::new(InMemory::new());
    let (_cache, store) = cached(inner.clone(), 8 << 20, options(64 << 10, Duration::from_secs(3600)));
    let path = Path::from("o");
    let (old, new) = (content(1, 600_000), content(2, 500_000));
    store.put(&path, old.clone().into()).await.unwrap();
    assert!(store.get_range(&path, 0..1000).await.unwrap() == old[..1000]);
    // By another writer: what is in memory is believed for an hour; what is not, is found to be of
    // another version, and the object is opened again.
    inner.put(&path, new.clone().into()).await.unwrap();
    assert!(store.get_range(&path, 0..1000).await.unwrap() == old[..1000]);
    assert!(store.get_range(&path, 300_000..301_000).await.unwrap() == new[300_000..301_000]);
    assert!(store.get_range(&path, 0..1000).await.unwrap() == new[..1000]);
    // A conditional read asks.
    inner.put(&path, old.clone().into()).await.unwrap();
    let meta = inner.head(&path).await.unwrap();
    let result = store.get_opts(&path, GetOptions::new().with_if_match(meta.e_tag.clone())).await.unwrap();
    assert_eq!(result.meta.e_tag, meta.e_tag);
    assert!(result.bytes().await.unwrap() == old);
    // Through this store: at once.
    store.put(&path, new.clone().into()).await.unwrap();
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == new);
    let copy = Path::from("copy");
    store.copy(&path, &copy).await.unwrap();
    store.delete(&path).await.unwrap();
    assert!(matches!(store.get(&path).await, Err(Error::NotFound { .. })));
    assert!(store.get(&copy).await.unwrap().bytes().await.unwrap() == new);
    let mut upload = store.put_multipart(&copy).await.unwrap();
    upload.put_part(old.clone().into()).await.unwrap();
    upload.complete().await.unwrap();
    assert!(store.get(&copy).await.unwrap().bytes().await.unwrap() == old);

    // A part of a long answer that changes under way is an error, not other bytes.
    let (_cache, store) = cached(inner.clone(), 8 << 20, options(4096, Duration::from_secs(3600)));
    let result = store.get(&copy).await.unwrap();
    inner.put(&copy, new.clone().into()).await.unwrap();
    assert!(result.bytes().await.is_err());
    assert!(store.get(&copy).await.unwrap().bytes().await.unwrap() == new);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_used_longest_ago_are_closed() {
    let mut options = options(4096, Duration::ZERO);
    options.open_max = 3;
    let (cache, store) = cached(InMemory::new(), 2 << 20, options);
    for number in 0..10u64 {
        store.put(&Path::from(format!("{number}")), content(number, 10_000).into()).await.unwrap();
    }
    for number in (0..10u64).chain((0..10).rev()) {
        let got = store.get(&Path::from(format!("{number}"))).await.unwrap().bytes().await.unwrap();
        assert!(got == content(number, 10_000));
        assert!(store.open_objects() <= 3);
    }
    drop(store);
    cache.close().unwrap();
}

/// A false answer of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// Fewer bytes than the range that it names.
    Short,
    /// More bytes than that.
    Long,
    /// The bytes of another range, which it names.
    OtherRange,
    /// The bytes and the etag of another object, whatever etag the request asks for.
    OtherVersion,
    /// In `head`: more bytes than there are.
    Longer,
    /// In `head`: fewer bytes than there are.
    Shorter,
    /// No etag, and a time that never changes.
    NoVersion,
}

/// Makes the error of each read; whether requests for states fail, too.
type Failure = (fn() -> Error, bool);

/// A store that counts reads and fails some of them, or lies.
#[derive(Debug)]
struct Shaky {
    store: InMemory,
    reads: AtomicU64,
    /// Requests for an object's state.
    heads: AtomicU64,
    /// Reads, writes and copies get no answer; writes and copies are made.
    is_stalled: AtomicBool,
    /// The answers that stalled reads wait for.
    stall: tokio::sync::Semaphore,
    /// One read in so many fails; 0 for none.
    one_in: AtomicU64,
    lie: Mutex<Option<Lie>>,
    fails: Mutex<Option<Failure>>,
}

impl Shaky {
    /// The answer to a read of `at`.
    async fn lie(&self, lie: Lie, at: &Path, mut options: GetOptions) -> Result<GetResult> {
        let mut at = at.clone();
        if lie == Lie::OtherVersion && !options.head {
            (at, options.if_match) = (Path::from("other"), None);
        }
        if let (Lie::OtherRange, Some(GetRange::Bounded(range))) = (lie, &mut options.range) {
            *range = range.start + 4096..range.end + 4096;
        }
        let mut result = self.store.get_opts(&at, options.clone()).await?;
        match lie {
            Lie::NoVersion => (result.meta.e_tag, result.meta.last_modified) = (None, Default::default()),
            Lie::Longer => result.meta.size += 10_000,
            Lie::Shorter => result.meta.size -= 10_000,
            _ => {}
        }
        if options.head || !matches!(lie, Lie::Short | Lie::Long) {
            return Ok(result);
        }
        let (meta, range) = (result.meta.clone(), result.range.clone());
        let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
        let mut bytes = result.bytes().await?.to_vec();
        let len = if lie == Lie::Short { bytes.len() / 2 } else { bytes.len() + 5000 };
        bytes.resize(len, 0xee);
        let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes.into()) }).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

impl std::fmt::Display for Shaky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shaky")
    }
}

#[async_trait]
impl ObjectStore for Shaky {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let result = self.store.put_opts(at, payload, options).await;
        if self.is_stalled.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        result
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            self.heads.fetch_add(1, Relaxed);
            // Others come meanwhile, and each of them polls the question.
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        } else {
            // Before it is counted: a test waits for the count, and then ends the stall.
            let is_stalled = self.is_stalled.load(Relaxed);
            let read = self.reads.fetch_add(1, Relaxed);
            let one_in = self.one_in.load(Relaxed);
            if one_in > 0 && read % one_in == one_in - 1 {
                return Err(Error::Generic { store: "Shaky", source: "connection reset".into() });
            }
            if is_stalled {
                let _ = self.stall.acquire().await;
            }
        }
        let fails = *self.fails.lock().unwrap();
        if let Some((error, states_too)) = fails
            && (states_too || !options.head)
        {
            return Err(error());
        }
        let lie = *self.lie.lock().unwrap();
        match lie {
            Some(lie) => self.lie(lie, at, options).await,
            None => self.store.get_opts(at, options).await,
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let result = self.store.copy_opts(from, to, options).await;
        if self.is_stalled.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        result
    }
}

fn shaky(one_in: u64) -> Arc<Shaky> {
    Arc::new(Shaky {
        store: InMemory::new(),
        reads: AtomicU64::new(0),
        heads: AtomicU64::new(0),
        is_stalled: AtomicBool::new(false),
        stall: tokio::sync::Semaphore::new(0),
        one_in: AtomicU64::new(one_in),
        lie: Mutex::default(),
        fails: Mutex::default(),
    })
}

/// Each of several readers that one request to the store was to answer gets the error of the store.
#[tokio::test]
async fn errors_of_the_store_are_what_they_were() {
    let errors: [fn() -> Error; 6] = [
        || Error::Generic { store: "Bucket", source: "connection reset".into() },
        || Error::PermissionDenied { path: "o".into(), source: "not this key".into() },
        || Error::Unauthenticated { path: "o".into(), source: "expired".into() },
        || Error::NotSupported { source: "ranges".into() },
        || Error::NotImplemented { operation: "get".into(), implementer: "Bucket".into() },
        || Error::NotFound { path: "o".into(), source: "gone".into() },
    ];
    let inner = shaky(0);
    let (_cache, store) = cached(inner.clone(), 4 << 20, options(16 << 10, Duration::from_secs(3600)));
    let path = Path::from("o");
    inner.put(&path, content(1, 400_000).into()).await.unwrap();
    for error in errors {
        for states_too in [false, true] {
            store.clear();
            *inner.fails.lock().unwrap() = Some((error, states_too));
            // Also blocks of one request.
            let reads = (0..4).map(|at| store.get_range(&path, at * 10_000..at * 10_000 + 9_000));
            for found in join_all(reads).await {
                let (found, error) = (found.unwrap_err(), error());
                assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(&error), "{found:?}");
                assert_eq!(found.to_string(), error.to_string());
            }
        }
    }
    // An aborted connection is no end of a reader's runtime, after which reads begin anew.
    let asked = async |error: fn() -> Error| {
        *inner.fails.lock().unwrap() = Some((error, false));
        let before = inner.reads.load(Relaxed);
        store.get_range(&path, 0..10).await.unwrap_err();
        inner.reads.load(Relaxed) - before
    };
    let usual = asked(errors[0]).await;
    assert_eq!(
        asked(|| Error::Generic {
            store: "Bucket",
            source: std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()
        })
        .await,
        usual
    );
    *inner.fails.lock().unwrap() = None;
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == content(1, 400_000));
}

/// A read returns bytes of one object, or an error, whatever the store says. Afterwards reads are
/// right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lies_never_makes_wrong_bytes() {
    let inner = shaky(0);
    let (path, bytes) = (Path::from("o"), 400_000);
    let (all, other) = (content(1, bytes), content(2, bytes));
    inner.put(&path, all.clone().into()).await.unwrap();
    inner.put(&Path::from("other"), other.clone().into()).await.unwrap();
    for lie in
        [Lie::Short, Lie::Long, Lie::OtherRange, Lie::OtherVersion, Lie::Longer, Lie::Shorter, Lie::NoVersion]
    {
        let (cache, store) = cached(inner.clone(), 4 << 20, options(16 << 10, Duration::from_secs(3600)));
        *inner.lie.lock().unwrap() = Some(lie);
        let (mut of_this, mut of_other, mut errors) = (0, 0, 0);
        for step in 0..40u64 {
            let start = step * 99_991 % 380_000;
            let range = start as usize..start as usize + 20_000.min(bytes - start as usize);
            match store.get_range(&path, start..range.end as u64).await {
                Ok(got) if got == all[range.clone()] => of_this += 1,
                Ok(got) if lie == Lie::OtherVersion && got == other[range.clone()] => of_other += 1,
                Ok(got) if lie == Lie::Shorter && got == all[range.start..range.start + got.len()] => {
                    of_this += 1
                }
                Ok(got) => panic!("{lie:?}: {} other bytes at {start}", got.len()),
                Err(_) => errors += 1,
            }
        }
        let counts = (of_this, of_other, errors);
        match lie {
            Lie::Short | Lie::OtherRange => assert!(errors > 0, "{lie:?}: {counts:?}"),
            // The excess is left out.
            Lie::Long | Lie::NoVersion => assert_eq!(counts, (40, 0, 0)),
            Lie::OtherVersion => assert_eq!(counts, (0, 40, 0), "it is asked directly"),
            // The blocks that are there are right; the last one is not.
            Lie::Longer | Lie::Shorter => assert!(of_this > 0, "{lie:?}: {counts:?}"),
        }
        *inner.lie.lock().unwrap() = None;
        let read = async || store.get(&path).await?.bytes().await;
        let found = loop {
            store.clear();
            match read().await {
                Ok(found) if found.len() == bytes => break found,
                // A read ahead is still under way, and has the object open with its false length.
                _ => tokio::task::yield_now().await,
            }
        };
        assert!(found == all, "{lie:?}");
        cache.validate().unwrap();
    }
}

/// Reads of a slow store that are dropped after some polls leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_can_be_dropped_at_any_point() {
    let config = ThrottleConfig { wait_get_per_call: Duration::from_millis(1), ..ThrottleConfig::default() };
    let inner = ThrottledStore::new(InMemory::new(), config);
    let (cache, store) = cached(inner, 4 << 20, options(16 << 10, Duration::from_secs(3600)));
    let (path, all) = (Path::from("o"), content(3, 3_000_000));
    store.put(&path, all.clone().into()).await.unwrap();
    let (mut dropped, mut done) = (0, 0);
    for step in 0..300u64 {
        let start = step * 99_991 % 2_900_000;
        let ranges = [start..start + 50_000, start + 60_000..start + 60_600];
        let mut read = std::pin::pin!(store.get_ranges(&path, &ranges));
        let mut result = None;
        for _ in 0..step % 7 {
            result = result.or(read.as_mut().now_or_never());
            if result.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let Some(result) = result else {
            dropped += 1;
            continue;
        };
        for (got, range) in result.unwrap().iter().zip(&ranges) {
            assert!(*got == all[range.start as usize..range.end as usize]);
        }
        done += 1;
    }
    assert!(dropped > 50, "{dropped} dropped, {done} done");
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
    drop(store);
    cache.validate().unwrap();
}

/// Ranges within a page are lent, up to a number of pages, and stay what they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_in_one_page_is_lent_without_a_copy() {
    let (cache, store) = cached(InMemory::new(), 8 << 20, options(16 << 10, Duration::from_secs(3600)));
    let (path, all) = (Path::from("o"), content(5, 12_000_000));
    store.put(&path, all.clone().into()).await.unwrap();
    let part = |page: u64| page * 4096 + 96..page * 4096 + 4096;
    store.get_range(&path, 0..400 * 4096).await.unwrap();
    let mut held = Vec::new();
    for page in 0..300 {
        let (one, two) = (store.get_range(&path, part(page)).await, store.get_range(&path, part(page)).await);
        let (one, two) = (one.unwrap(), two.unwrap());
        // Two loans of a page take two places.
        assert_eq!(one.as_ptr() == two.as_ptr(), held.len() < 256, "page {page}");
        held.extend([one, two]);
    }
    // Others are evicted meanwhile.
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
    for (at, bytes) in held.iter().enumerate() {
        let range = part(at as u64 / 2);
        assert!(*bytes == all[range.start as usize..range.end as usize], "page {}", at / 2);
    }
    // The bytes outlive the store and the cache.
    let last = held.swap_remove(0);
    drop((held, store));
    cache.validate().unwrap();
    cache.close().unwrap();
    assert!(last == all[96..4096]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_every_third_time_never_gives_wrong_bytes() {
    let inner = shaky(0);
    let (_cache, store) = cached(inner.clone(), 2 << 20, options(16 << 10, Duration::from_secs(3600)));
    let path = Path::from("o");
    let all = content(9, 3_000_000);
    store.put(&path, all.clone().into()).await.unwrap();
    inner.one_in.store(3, Relaxed);
    let (mut right, mut failed) = (0, 0);
    for step in 0..400u64 {
        let start = step * 99_991 % 2_900_000;
        match store.get_range(&path, start..start + 50_000).await {
            Ok(got) => {
                assert!(got == all[start as usize..start as usize + 50_000]);
                right += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("connection reset"), "{error}");
                failed += 1;
            }
        }
    }
    assert!(right > 100, "{right} right, {failed} failed");
    inner.one_in.store(0, Relaxed);
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
}

/// Sixteen readers of one block that is missing: one read of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_the_same_block_share_one_request() {
    let inner = shaky(0);
    let (cache, store) = cached(inner.clone(), 8 << 20, options(256 << 10, Duration::from_secs(3600)));
    let path = Path::from("o");
    let all = Arc::new(content(4, 1 << 20));
    store.put(&path, all.to_vec().into()).await.unwrap();
    let tasks: Vec<_> = (0..16u64)
        .map(|task| {
            let (store, path, all) = (store.clone(), path.clone(), all.clone());
            tokio::spawn(async move {
                for block in 0..4u64 {
                    let at = (block << 18) + task * 1000;
                    let got = store.get_range(&path, at..at + 3000).await.unwrap();
                    assert!(got == all[at as usize..at as usize + 3000]);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(cache.stats().source_bytes, 1 << 20, "{:?}", cache.stats());
    assert!(inner.reads.load(Relaxed) <= 8, "{}", inner.reads.load(Relaxed));
}

/// Readers of an object of which nothing is known ask for its state once.
#[tokio::test]
async fn readers_of_a_new_object_ask_for_its_state_together() {
    let inner = shaky(0);
    let (_cache, store) = cached(inner.clone(), 8 << 20, options(64 << 10, Duration::from_secs(3600)));
    let (path, missing) = (Path::from("o"), Path::from("missing"));
    let all = content(6, 200_000);
    inner.put(&path, all.clone().into()).await.unwrap();
    let heads = || inner.heads.swap(0, Relaxed);
    let read = |at: u64| store.get_range(&path, at * 1000..at * 1000 + 500);
    for (at, got) in join_all((0..16).map(read)).await.into_iter().enumerate() {
        assert!(got.unwrap() == all[at * 1000..at * 1000 + 500]);
    }
    assert_eq!(heads(), 1);
    // An error is everybody's, and is the same error.
    for got in join_all((0..16).map(|_| store.get_range(&missing, 0..1))).await {
        assert!(matches!(got, Err(Error::NotFound { .. })), "{got:?}");
    }
    assert_eq!(heads(), 1);
    // A reader that is dropped takes nobody's answer away.
    store.clear();
    let mut first = Box::pin(read(0));
    assert!(first.as_mut().now_or_never().is_none());
    let second = join_all((0..4).map(read));
    let mut second = Box::pin(second);
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    assert!(second.await.into_iter().all(|got| got.is_ok()));
    assert_eq!(heads(), 1);
    // A question from before a write is not joined after it.
    store.clear();
    let mut first = Box::pin(read(0));
    assert!(first.as_mut().now_or_never().is_none());
    let new = content(7, 200_000);
    store.put(&path, new.clone().into()).await.unwrap();
    assert!(read(0).await.unwrap() == new[..500]);
    first.await.unwrap();
    assert_eq!(heads(), 2);

    // With a freshness of zero, each reader asks for itself.
    let (_cache, store) = cached(inner.clone(), 8 << 20, options(64 << 10, Duration::ZERO));
    let read = |at: u64| store.get_range(&path, at * 1000..at * 1000 + 500);
    assert!(join_all((0..16).map(read)).await.into_iter().all(|got| got.is_ok()));
    assert_eq!(heads(), 16);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn a_store_outlives_the_runtime_in_which_it_was_used_first() {
    let inner = shaky(0);
    let (_cache, store) = cached(inner.clone(), 8 << 20, options(64 << 10, Duration::from_secs(3600)));
    let (path, all) = (Path::from("o"), content(8, 400_000));
    let first = runtime();
    first.block_on(inner.put(&path, all.clone().into())).unwrap();
    let read = |at: u64| {
        let (store, path) = (store.clone(), path.clone());
        async move { store.get_range(&path, at..at + 5000).await }
    };
    assert!(first.block_on(read(0)).unwrap() == all[..5000]);
    drop(first);
    let second = runtime();
    assert!(second.block_on(read(100_000)).unwrap() == all[100_000..105_000]);

    // A runtime that ends while a reader in another one waits for what it reads.
    inner.is_stalled.store(true, Relaxed);
    let before = inner.reads.load(Relaxed);
    let first = runtime();
    let stalled = first.spawn(read(200_000));
    while inner.reads.load(Relaxed) == before {
        std::thread::yield_now();
    }
    second.block_on(async {
        let mut other = Box::pin(read(201_000));
        assert!(other.as_mut().now_or_never().is_none());
        inner.is_stalled.store(false, Relaxed);
        first.shutdown_background();
        assert!(other.await.unwrap() == all[201_000..206_000]);
        assert!(stalled.await.unwrap_err().is_cancelled());
    });

    // Without a runtime, what is in memory can be read, and the rest is an error.
    assert!(read(0).now_or_never().unwrap().unwrap() == all[..5000]);
    let error = read(300_000).now_or_never().unwrap().unwrap_err();
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
    store.clear();
    let error = read(0).now_or_never().unwrap().unwrap_err();
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
}

const ROWS: i64 = 200_000;

/// A Parquet file of two columns in eight row groups.
fn parquet_file() -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("number", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROWS as usize / 8))
        .set_statistics_enabled(EnabledStatistics::Page)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties)).unwrap();
    for first in (0..ROWS).step_by(10_000) {
        let rows = first..first + 10_000;
        let text = |row: i64| format!("row {row} {}", row.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64));
        let columns: Vec<arrow_array::ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.clone())),
            Arc::new(StringArray::from_iter_values(rows.map(text))),
        ];
        writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
    }
    writer.into_inner().unwrap()
}

/// Reads the whole file, or one column of ten rows in two thousand, with the reader that `parquet`
/// comes with. Returns the rows.
async fn scan(store: Arc<dyn ObjectStore>, path: &Path, some: bool) -> Vec<RecordBatch> {
    let reader = ParquetObjectReader::new(store, path.clone());
    let options = ArrowReaderOptions::new();
    let mut builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await.unwrap();
    if some {
        let mask = ProjectionMask::leaves(builder.parquet_schema(), [1]);
        let selectors = (0..ROWS / 2000).flat_map(|_| [RowSelector::skip(1990), RowSelector::select(10)]);
        builder = builder.with_projection(mask).with_row_selection(RowSelection::from_iter(selectors));
    }
    builder.build().unwrap().try_collect().await.unwrap()
}

/// Parquet files read through the cache have the same rows, and the second time nothing is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_reads_the_same_rows_and_the_second_time_from_memory() {
    let inner = shaky(0);
    let (_cache, store) = cached(inner.clone(), 64 << 20, Options::default());
    let path = Path::from("table.parquet");
    let file = parquet_file();
    store.put(&path, file.clone().into()).await.unwrap();
    for some in [true, false] {
        let expected = scan(inner.clone(), &path, some).await;
        let before = inner.reads.load(Relaxed);
        let first = scan(Arc::new(store.clone()), &path, some).await;
        let between = inner.reads.load(Relaxed);
        let second = scan(Arc::new(store.clone()), &path, some).await;
        assert!(first == expected && second == expected);
        assert!(between >= before && inner.reads.load(Relaxed) == between);
    }
    assert_eq!(
        scan(Arc::new(store.clone()), &path, false).await.iter().map(RecordBatch::num_rows).sum::<usize>(),
        ROWS as usize
    );
    assert!(file.len() > 4 << 20);
}

/// The example's numbers, small: a bucket with 50 ms to the first byte and 100 MB/s. The factor is
/// printed, not asserted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_a_slow_bucket_is_fast_the_second_time() {
    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(50),
        wait_get_per_byte: Duration::from_nanos(10),
        ..ThrottleConfig::default()
    };
    let (_cache, store) = cached(ThrottledStore::new(InMemory::new(), config), 64 << 20, Options::default());
    let path = Path::from("table.parquet");
    store.put(&path, parquet_file().into()).await.unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    let mut times = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        let rows: usize = scan(store.clone(), &path, false).await.iter().map(RecordBatch::num_rows).sum();
        times.push(began.elapsed());
        assert_eq!(rows, ROWS as usize);
    }
    println!("first scan {:?}, second {:?}", times[0], times[1]);
    let all: Vec<_> = store.list(None).collect().await;
    assert_eq!(all.len(), 1);
}

/// The object `b/c` of the store `a`, and the object `c` of the store `a/b`. Etags of stores in
/// memory are equal.
#[tokio::test]
async fn stores_with_names_of_which_one_begins_with_the_other_share_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let tier = DiskTier::new(directory.path().join("tier"), 16 << 20);
    let cache = PageCache::builder(4 << 20).disk_tier(tier).build().unwrap();
    let mut stores = Vec::new();
    for (number, (name, path)) in (0..).zip([("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a/", "b/c")]) {
        let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        inner.put(&Path::from(path), content(number, 10_000).into()).await.unwrap();
        let mut options = options(4096, Duration::from_secs(3600));
        options.name = Some(name.to_owned());
        stores.push((number, path, CachedStore::with_options(inner, cache.tenant("").unwrap(), options)));
    }
    for (number, path, store) in &stores {
        let bytes = store.get(&Path::from(*path)).await.unwrap().bytes().await.unwrap();
        assert!(bytes == content(*number, 10_000), "{number}");
    }
}

/// A change through the store that neither length nor time show, while a reader has the old object.
#[tokio::test]
async fn a_change_without_a_version_is_seen_beside_an_open_object() {
    let inner = shaky(0);
    *inner.lie.lock().unwrap() = Some(Lie::NoVersion);
    let (_cache, store) = cached(inner, 4 << 20, options(4096, Duration::from_secs(3600)));
    let path = Path::from("o");
    store.put(&path, content(1, 100_000).into()).await.unwrap();
    let old = store.get(&path).await.unwrap();
    store.put(&path, content(2, 100_000).into()).await.unwrap();
    assert!(store.get_range(&path, 0..10_000).await.unwrap() == content(2, 100_000)[..10_000]);
    drop(old);
}

/// In earlier revisions, objects of a store named `a/` had the names that those of `a` have now.
#[derive(Debug)]
struct OfEarlierRevision(Vec<u8>);

impl BlockSource for OfEarlierRevision {
    fn name(&self) -> String {
        "a//b".to_owned()
    }

    fn state(&self) -> std::io::Result<SourceState> {
        Ok(SourceState::new(self.0.len() as u64).with_version("etag \"0\""))
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        for request in requests {
            let range = request.range();
            request.fulfil(None, &self.0[range.start as usize..range.end as usize]);
        }
    }
}

/// A disk tier has objects of a store that an earlier revision gave other names.
#[tokio::test]
async fn objects_of_an_earlier_revision_are_not_those_of_another_store() {
    let cache = PageCache::builder(4 << 20).build().unwrap();
    let tenant = cache.tenant("").unwrap();
    let old =
        tenant.open_source(Arc::new(OfEarlierRevision(content(1, 10_000))), OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; 10_000];
    old.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == content(1, 10_000));
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    inner.put(&Path::from("b"), content(2, 10_000).into()).await.unwrap();
    assert_eq!(inner.head(&Path::from("b")).await.unwrap().e_tag.as_deref(), Some("\"0\""));
    let mut options = options(4096, Duration::from_secs(3600));
    options.name = Some("a".to_owned());
    let store = CachedStore::with_options(inner, tenant, options);
    assert!(store.get(&Path::from("b")).await.unwrap().bytes().await.unwrap() == content(2, 10_000));
}

/// A reader begins a read, and polls it no more while it waits for another one, as a scan does that
/// reads ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_nobody_polls_does_not_stop_others() {
    let inner = shaky(0);
    let cache = PageCache::builder(4 << 20).tenant("bucket", 512 << 10).build().unwrap();
    let mut options = options(128 << 10, Duration::from_secs(3600));
    options.stalled_after = Duration::from_secs(3600);
    let store = CachedStore::with_options(inner.clone(), cache.tenant("bucket").unwrap(), options);
    let paths = ["ahead", "now"].map(Path::from);
    for (number, path) in (0..).zip(&paths) {
        store.put(path, content(number, 300_000).into()).await.unwrap();
    }
    inner.is_stalled.store(true, Relaxed);
    let before = inner.reads.load(Relaxed);
    let mut ahead = store.get_range(&paths[0], 0..100).boxed();
    while inner.reads.load(Relaxed) == before {
        assert!((&mut ahead).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    inner.is_stalled.store(false, Relaxed);
    inner.stall.add_permits(1);
    assert!(store.get_range(&paths[1], 0..100).await.unwrap() == content(1, 300_000)[..100]);
    assert!(ahead.await.unwrap() == content(0, 300_000)[..100]);
}

/// The store hangs on a read that has all the memory for reads that miss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_hangs_does_not_stop_others_in_a_small_cache() {
    let inner = shaky(0);
    let builder = PageCache::builder(4 << 20).source_deadline(Duration::from_secs(3600));
    let cache = builder.tenant("bucket", 512 << 10).build().unwrap();
    let mut options = options(128 << 10, Duration::from_secs(3600));
    options.stalled_after = Duration::from_millis(1);
    let store = CachedStore::with_options(inner.clone(), cache.tenant("bucket").unwrap(), options);
    let paths = ["hangs", "other"].map(Path::from);
    for (number, path) in (0..).zip(&paths) {
        store.put(path, content(number, 300_000).into()).await.unwrap();
    }
    inner.is_stalled.store(true, Relaxed);
    let (before, hangs) = (inner.reads.load(Relaxed), store.clone());
    let location = paths[0].clone();
    let hanging = tokio::spawn(async move { hangs.get_range(&location, 0..100).await });
    while inner.reads.load(Relaxed) == before {
        tokio::task::yield_now().await;
    }
    inner.is_stalled.store(false, Relaxed);
    for path in &paths {
        let number = u64::from(*path == paths[1]);
        let bytes = store.get_range(path, 140_000..290_000).await.unwrap();
        assert!(bytes == content(number, 300_000)[140_000..290_000], "{path}");
    }
    assert!(!hanging.is_finished());
    inner.stall.add_permits(1);
    assert!(hanging.await.unwrap().unwrap() == content(0, 300_000)[..100]);
}
