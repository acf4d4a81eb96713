//! An [`ObjectStore`] that keeps what it reads of another one in mglru's page cache.
//!
//! A [`CachedStore`] wraps any store: a bucket, a local folder. Readers of an
//! `ObjectStore` (Parquet, DataFusion, Lance) then find in memory what they read before, within
//! the cache's budget and the limits of one tenant, beside files and databases in the same cache.
//!
//! ```
//! use mglru_cache::PageCache;
//! use mglru_object_store::CachedStore;
//! use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = PageCache::builder(64 << 20).tenant("bucket", 32 << 20).build()?;
//! let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
//! let store = CachedStore::new(bucket, cache.tenant("bucket")?);
//! let path = Path::from("a/b");
//! store.put(&path, "some bytes".into()).await?;
//! assert_eq!(store.get_range(&path, 5..10).await?, "bytes"); // reads the object's block
//! assert_eq!(store.get(&path).await?.bytes().await?, "some bytes"); // reads nothing
//! assert_eq!(cache.stats().source_ranges, 1);
//! # Ok(()) }
//! ```
//!
//! # Copies
//!
//! A range of 512 bytes or more that lies in one page (4,096 bytes) in memory is lent without a
//! copy: the page stays in memory until the reader drops the bytes. A store lends at most 256 pages
//! at once. Other ranges are copied once, and a `get` of more than eight blocks is a stream of
//! parts.
//!
//! # What is cached, and for how long it is believed
//!
//! Reads without a `version` are cached, also conditional ones. `head`, lists and writes go to the
//! wrapped store. All bytes of an object that one call returns are of one version, the one in the
//! call's [`ObjectMeta`]: every read asks for the etag with which the object was opened, and an
//! object that changed is opened again. Where the store has no etag, or a weak one (`W/`), the
//! version is the length and the time of the last change, compared in each answer.
//!
//! Readers that need an object's state (length, etag) at the same time send one request for it. The
//! state is believed for [`Options::fresh_for`]; after that it is asked for again before the next
//! read. Writes through this store are seen at once, also when their future is dropped before its
//! end; writes by others after that time, or when a part that is not in memory is read.
//!
//! # Errors
//!
//! Errors of the wrapped store are returned as they were: the same variant, fields and words, also
//! when one request was to answer several readers. Errors of the cache are `Error::Generic` of the
//! store `CachedStore`.
//!
//! # Small caches
//!
//! Missing blocks of at most a quarter of the tenant's memory are read at once; other reads that
//! miss wait. Where the store hangs on them, the others go on without the cache
//! ([`Options::stalled_after`]). Where the cache has no room for the metadata of one more object,
//! those used longest ago are closed. Where no page is free, because all of them are lent or
//! locked, a read goes to the wrapped store.
//!
//! # Runtimes
//!
//! Reads that miss run in tasks of the tokio runtime of the reader. A store may outlive a runtime
//! and be used in several.

mod error;
mod object;
mod shares;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, WeakShared};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mglru_cache::Tenant;
use object::{Common, Object};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of [`CachedStore`]s created by this process so far.
static STORES: AtomicU64 = AtomicU64::new(0);

/// The settings of a [`CachedStore`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Bytes that a miss brings in: a multiple of 4,096. A bucket that takes 50 ms for the first
    /// byte and delivers 100 MB/s takes 60 ms for 1 MiB, the default. More than 1 TiB counts as
    /// 1 TiB.
    pub block_bytes: u64,
    /// How long an object's length and etag are believed. Default: 10 s. Zero asks for them before
    /// every read.
    pub fresh_for: Duration,
    /// A name of the store for the disk tier of the cache (`Builder::disk_tier`): the same in each
    /// run of the program, and no other store's. With it the tier keeps objects that have an etag,
    /// over restarts too. The store's etags must not begin anew, as those of the store in memory
    /// do. Default: none; objects stay in memory only.
    pub name: Option<String>,
    /// Objects that stay open. The pages of an object are forgotten when it is closed; above this
    /// number, that is the one used longest ago. Default: 4,096.
    pub open_max: usize,
    /// How long reads that miss wait for others that miss, of which none ends. Then the store
    /// hangs, and those that wait read what they need from it without the cache. Default: 5 s.
    pub stalled_after: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            block_bytes: 1 << 20,
            fresh_for: Duration::from_secs(10),
            name: None,
            open_max: 4096,
            stalled_after: Duration::from_secs(5),
        }
    }
}

/// An [`ObjectStore`] that reads through a page cache. Clones share everything.
#[derive(Clone)]
pub struct CachedStore(Arc<Shared>);

struct Shared {
    store: Arc<dyn ObjectStore>,
    common: Arc<Common>,
    options: Options,
    /// The beginning of the names of this store's objects. No other store's names begin so.
    prefix: String,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    objects: BTreeMap<Path, Known>,
    /// Objects whose state is being asked for.
    asking: BTreeMap<Path, Asking>,
    /// Number of uses so far.
    uses: u64,
    /// Number of times that an object was forgotten because it may have changed.
    changes: u64,
}

struct Known {
    object: Arc<Object>,
    asked: Instant,
    /// The last use, in uses of the store.
    used: u64,
}

/// A question for an object's state that other readers may join.
struct Asking {
    answer: WeakShared<BoxFuture<'static, Answer>>,
    asked: Instant,
    /// The use that began it, in uses of the store.
    use_number: u64,
    /// Number of changes when it began. A reader that comes after a change asks anew.
    changes: u64,
    /// The runtime that waits for the answer. When it ends, so do all that joined.
    runtime: tokio::runtime::Id,
}

type Answer = Result<Arc<Object>, Arc<Error>>;

/// Removes a question from the store's list when it is answered, or when nobody waits any more.
struct Asked {
    shared: Arc<Shared>,
    location: Path,
    use_number: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut open = self.shared.open();
        if open.asking.get(&self.location).is_some_and(|asking| asking.use_number == self.use_number) {
            open.asking.remove(&self.location);
        }
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore")
            .field("store", &self.0.store)
            .field("tenant", &self.0.common.tenant)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedStore({})", self.0.store)
    }
}

/// The beginning of the names of a store's objects. The object `b/c` of the store `a` is not the
/// object `c` of the store `a/b`: the name of the store has no slash here, and paths of objects
/// have no two.
fn prefix(store: &Arc<dyn ObjectStore>, options: &Options) -> String {
    match &options.name {
        Some(name) => format!("{}//", name.replace('%', "%25").replace('/', "%2F")),
        None => format!("{store}#{}/", STORES.fetch_add(1, Ordering::Relaxed)),
    }
}

impl CachedStore {
    /// Wraps `store`. Pages are charged to `tenant`.
    pub fn new(store: Arc<dyn ObjectStore>, tenant: Tenant) -> CachedStore {
        CachedStore::with_options(store, tenant, Options::default())
    }

    /// Wraps `store` with settings other than the default.
    pub fn with_options(store: Arc<dyn ObjectStore>, tenant: Tenant, options: Options) -> CachedStore {
        let prefix = prefix(&store, &options);
        let (block_bytes, is_named) = (options.block_bytes, options.name.is_some());
        let common = Common::new(store.clone(), tenant, block_bytes, is_named, options.stalled_after);
        let common = Arc::new(common);
        CachedStore(Arc::new(Shared { store, common, options, prefix, open: Mutex::default() }))
    }

    /// The wrapped store.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.0.store
    }

    /// Objects that are open now.
    pub fn open_objects(&self) -> usize {
        self.0.open().objects.len()
    }

    /// Closes all objects and forgets their pages, once calls under way have ended.
    pub fn clear(&self) {
        let mut open = self.0.open();
        open.changes += 1;
        let objects = std::mem::take(&mut open.objects);
        drop(open);
        drop(objects);
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets an object that is being changed through this store.
    fn forget(&self, location: &Path) {
        let mut open = self.open();
        open.changes += 1;
        let known = open.objects.remove(location);
        drop(open);
        drop(known);
    }

    /// The object at `location`. `fresh`: its state is asked for in any case. Otherwise, readers
    /// that need it at the same time send one request.
    async fn object(self: &Arc<Self>, location: &Path, fresh: bool) -> Result<Arc<Object>> {
        let fresh_for = self.options.fresh_for;
        let answer = {
            let mut open = self.open();
            open.uses += 1;
            let (use_number, changes) = (open.uses, open.changes);
            let known = open.objects.get_mut(location).map(|known| {
                known.used = use_number;
                (known.object.clone(), known.asked.elapsed() < fresh_for)
            });
            let known = match known {
                Some((object, true)) if !fresh => return Ok(object),
                known => known.map(|(object, _)| object),
            };
            let runtime = object::runtime()?.id();
            let joined = open.asking.get(location).filter(|asking| {
                !fresh
                    && asking.changes == changes
                    && asking.runtime == runtime
                    && asking.asked.elapsed() < fresh_for
            });
            match joined.and_then(|asking| asking.answer.upgrade()) {
                Some(answer) => answer,
                None => {
                    let asked = Instant::now();
                    let guard = Asked { shared: self.clone(), location: location.clone(), use_number };
                    let answer =
                        async move { guard.shared.ask(&guard.location, known, asked, changes).await };
                    let answer = answer.map(|answer| answer.map_err(Arc::new)).boxed().shared();
                    if let Some(answer) = answer.downgrade() {
                        let asking = Asking { answer, asked, use_number, changes, runtime };
                        open.asking.insert(location.clone(), asking);
                    }
                    answer
                }
            }
        };
        answer.await.map_err(error::shared)
    }

    /// Asks for the state of the object at `location`, of which `known` may be outdated.
    async fn ask(
        &self,
        location: &Path,
        known: Option<Arc<Object>>,
        asked: Instant,
        changes: u64,
    ) -> Result<Arc<Object>> {
        let head = self.store.get_opts(location, GetOptions::new().with_head(true)).await?;
        let object = match known {
            Some(object) if object.is(&head.meta) => object,
            _ => {
                let mut name = format!("{}{location}", self.prefix);
                if !object::has_version(&head.meta) {
                    // A time may be too coarse for a change through this store. Readers may still
                    // have the object that it changed, and its pages with it.
                    name += &format!("#{changes}");
                }
                loop {
                    match Object::open(&self.common, name.clone(), &head.meta, &head.attributes).await {
                        // Objects that were used longest ago make room for this one.
                        Err(error) if error::is_out_of_room(&error) && self.close_oldest() => {}
                        opened => break opened?,
                    }
                }
            }
        };
        let mut open = self.open();
        open.uses += 1;
        let used = open.uses;
        // An object that changed meanwhile may be newer than the answer.
        let dropped = if open.changes == changes {
            let known = Known { object: object.clone(), asked, used };
            let before = open.objects.insert(location.clone(), known);
            (before, self.over(&mut open))
        } else {
            (None, None)
        };
        drop(open);
        drop(dropped);
        Ok(object)
    }

    /// Takes the object used longest ago if too many are open.
    fn over(&self, open: &mut Open) -> Option<Known> {
        if open.objects.len() <= self.options.open_max.max(1) {
            return None;
        }
        let oldest = open.objects.iter().min_by_key(|(_, known)| known.used)?.0.clone();
        open.objects.remove(&oldest)
    }

    /// Closes an eighth of the open objects, those used longest ago. Returns whether there were
    /// any.
    fn close_oldest(&self) -> bool {
        let mut open = self.open();
        let mut by_use: Vec<_> =
            open.objects.iter().map(|(path, known)| (known.used, path.clone())).collect();
        by_use.sort_unstable();
        by_use.truncate(by_use.len().div_ceil(8));
        let closed: Vec<_> = by_use.iter().map(|(_, path)| open.objects.remove(path)).collect();
        drop(open);
        !closed.is_empty()
    }

    /// Runs a read. If the object turns out to have changed, runs it again on the new one, once.
    /// `None`: the wrapped store is to be asked. The object has changed again, so it is being
    /// changed all the time; or the cache has no room for one more object.
    async fn read<T, F: Future<Output = Result<T>>>(
        self: &Arc<Self>,
        location: &Path,
        fresh: bool,
        read: impl Fn(Arc<Object>) -> F,
    ) -> Result<Option<T>> {
        for fresh in [fresh, true] {
            let result = match self.object(location, fresh).await {
                Ok(object) => read(object).await,
                Err(error) if error::is_out_of_room(&error) => break,
                Err(error) => Err(error),
            };
            match result {
                Err(error) if error::is_change(&error) => self.forget(location),
                Err(error @ Error::NotFound { .. }) => {
                    self.forget(location);
                    return Err(error);
                }
                result => return result.map(Some),
            }
        }
        Ok(None)
    }
}

/// Forgets objects when it is dropped: a change of them has ended, or nobody waits for its end any
/// more, and the store may have made it.
struct Changing {
    shared: Arc<Shared>,
    locations: Mutex<Vec<Path>>,
}

impl Changing {
    fn new<const N: usize>(shared: &Arc<Shared>, locations: [&Path; N]) -> Changing {
        let locations = locations.into_iter().cloned().collect();
        Changing { shared: shared.clone(), locations: Mutex::new(locations) }
    }

    fn locations(&self) -> MutexGuard<'_, Vec<Path>> {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the objects changed so far. An error does not tell which of them it is about.
    fn forget(&self, done: &Result<Path>) {
        let mut locations = self.locations();
        let ended = match done {
            Ok(done) => locations.extract_if(.., |location| location == done).collect(),
            Err(_) => std::mem::take(&mut *locations),
        };
        drop(locations);
        ended.iter().for_each(|location| self.shared.forget(location));
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let locations = std::mem::take(&mut *self.locations());
        locations.iter().for_each(|location| self.shared.forget(location));
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let _changing = Changing::new(&self.0, [location]);
        self.0.store.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.0.store.put_multipart_opts(location, opts).await?;
        Ok(Box::new(Upload { upload, shared: self.0.clone(), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head || options.version.is_some() {
            return self.0.store.get_opts(location, options).await;
        }
        let conditional = options.if_match.is_some()
            || options.if_none_match.is_some()
            || options.if_modified_since.is_some()
            || options.if_unmodified_since.is_some();
        let options = &options;
        let get = |object: Arc<Object>| async move {
            options.check_preconditions(object.meta())?;
            let len = object.meta().size;
            let range = match &options.range {
                Some(range) => range.as_range(len).map_err(error::generic)?,
                None => 0..len,
            };
            // The first part is read here: an object that has changed can still be replaced.
            let first = range.start..range.end.min(range.start + object.part_bytes());
            let bytes = object.read(first.clone()).await?;
            let rest = parts(self.0.clone(), object.clone(), first.end..range.end);
            let payload = stream::once(std::future::ready(Ok(bytes))).chain(rest).boxed();
            Ok(GetResult {
                payload: GetResultPayload::Stream(payload),
                meta: object.meta().clone(),
                range,
                attributes: object.attributes().clone(),
                #[cfg(not(object_store_0_13))]
                extensions: Default::default(),
            })
        };
        match self.0.read(location, conditional, get).await? {
            Some(result) => Ok(result),
            None => self.0.store.get_opts(location, options.clone()).await,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let get = |object: Arc<Object>| async move {
            let len = object.meta().size;
            let within = |range: &Range<u64>| {
                let range = object_store::GetRange::Bounded(range.clone());
                range.as_range(len).map_err(error::generic)
            };
            let ranges = ranges.iter().map(within).collect::<Result<Vec<_>>>()?;
            object.read_all(ranges).await
        };
        match self.0.read(location, false, get).await? {
            Some(parts) => Ok(parts),
            None => self.0.store.get_ranges(location, ranges).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let changing = Arc::new(Changing::new(&self.0, []));
        let begun = changing.clone();
        let locations = locations.inspect_ok(move |location| begun.locations().push(location.clone()));
        let deleted = self.0.store.delete_stream(locations.boxed());
        deleted.inspect(move |result| changing.forget(result)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _changing = Changing::new(&self.0, [to]);
        self.0.store.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _changing = Changing::new(&self.0, [from, to]);
        self.0.store.rename_opts(from, to, options).await
    }
}

/// The parts of a range, each read when it is asked for. If the object has changed meanwhile, the
/// stream ends with an error, and the next call opens the object again.
fn parts(
    shared: Arc<Shared>,
    object: Arc<Object>,
    range: Range<u64>,
) -> impl futures_util::Stream<Item = Result<Bytes>> {
    stream::try_unfold((shared, object, range), |(shared, object, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let end = range.end.min(range.start + object.part_bytes());
        let read = object.read(range.start..end).await;
        let bytes = read.inspect_err(|error| {
            if error::is_change(error) || matches!(error, Error::NotFound { .. }) {
                shared.forget(&object.meta().location);
            }
        })?;
        Ok(Some((bytes, (shared, object, end..range.end))))
    })
}

/// An upload whose end makes the cached object outdated.
struct Upload {
    upload: Box<dyn MultipartUpload>,
    shared: Arc<Shared>,
    location: Path,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("location", &self.location).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let _changing = Changing::new(&self.shared, [&self.location]);
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}
