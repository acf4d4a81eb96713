//! An open object: a source of the page cache, and reads of it.

use crate::error::{
    changed, failures, generic, has_changed, is_end_of_runtime, is_out_of_room, of_cache, of_version,
    runtime_ended, says_changed,
};
use crate::shares::{SHARES, Share, Shares};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use mglru_cache::{
    Advice, BlockSource, CachedFile, OpenMode, OwnedPageGuard, RangeRequest, SourceState, Tenant,
};
use object_store::path::Path;
use object_store::{Attributes, GetOptions, GetResult, ObjectMeta, ObjectStore, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Ranges with a gap of at most this many bytes are read with one request: what a bucket delivers
/// in a fifth of the time that it takes for the first byte.
const GAP_BYTES: u64 = 1 << 20;
/// The most bytes of one request. More are read with several requests at once.
const REQUEST_BYTES_MAX: u64 = 8 << 20;
/// Blocks in a part of a long read.
const BLOCKS_PER_PART: u64 = 8;
/// The largest block, so that sums and products of a few do not overflow.
const BLOCK_BYTES_MAX: u64 = 1 << 40;
/// A range that lies in one page and has at least this many bytes is lent; a smaller one is copied,
/// which costs less than a guard.
const LENT_BYTES_MIN: u64 = 512;
/// The most pages that a store lends at once. A lent page stays in memory until the reader drops
/// the bytes.
const LENT_MAX: usize = 256;
/// Bytes that are copied at once, a multiple of a page. Each part of a buffer is zeroed just before
/// it is overwritten, while the processor has it in its cache.
const COPIED_AT_ONCE: u64 = 16 << 10;
const PAGE_BYTES: u64 = 4096;
/// The part of the memory in which missing blocks are read at once: one in so many bytes.
const READING_PART: u64 = 4;
/// Runtimes of other readers whose end a reader survives.
const RUNTIMES_MAX: usize = 8;

/// The runtime of the caller.
pub(crate) fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|_| {
        generic(io::Error::other("no tokio runtime: read through a CachedStore from a task of one"))
    })
}

/// The runtime whose tasks read from the store: that of the last reader. A store may outlive the
/// runtime in which it was used first.
#[derive(Clone)]
struct Readers(Arc<Mutex<Handle>>);

impl Readers {
    fn get(&self) -> Handle {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, runtime: Handle) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = runtime;
    }
}

/// The etag, if reads can be conditional on it. A weak one never matches (RFC 9110, 8.8.3.2), and
/// objects with the same one may have other bytes.
fn strong_etag(meta: &ObjectMeta) -> Option<&String> {
    meta.e_tag.as_ref().filter(|etag| !etag.starts_with("W/"))
}

/// Whether versions of the object differ in more than length and time.
pub(crate) fn has_version(meta: &ObjectMeta) -> bool {
    meta.version.is_some() || strong_etag(meta).is_some()
}

/// A text that differs between versions of an object. Stores of earlier revisions wrote `etag X`
/// into disk tiers, under names that other stores have now: no text may be like theirs.
fn version_of(meta: &ObjectMeta) -> String {
    match (&meta.version, strong_etag(meta), &meta.e_tag) {
        (Some(version), ..) => format!("version={version}"),
        (None, Some(etag), _) => format!("etag={etag}"),
        (None, None, etag) => {
            let weak = etag.as_deref().unwrap_or_default();
            format!("{} bytes of {} {weak}", meta.size, meta.last_modified)
        }
    }
}

/// Versions of open objects that the store no longer has. Once it has said so, no read of such a
/// version asks it again.
///
/// The cache has one source for all handles of a version. So they share the mark, which an answer
/// with that version removes: an object may be what it was before.
#[derive(Default)]
struct Outdated(Mutex<BTreeMap<(String, String), Weak<AtomicBool>>>);

impl Outdated {
    /// The mark of a version that the store has now.
    fn current(&self, name: &str, version: &str) -> Arc<AtomicBool> {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), version.to_owned());
        if let Some(mark) = marks.get(&key).and_then(Weak::upgrade) {
            mark.store(false, Ordering::Relaxed);
            return mark;
        }
        // Marks of closed objects are dropped whenever the map has doubled.
        if marks.len().is_power_of_two() {
            marks.retain(|_, mark| mark.strong_count() > 0);
        }
        let mark = Arc::new(AtomicBool::new(false));
        marks.insert(key, Arc::downgrade(&mark));
        mark
    }
}

/// The state that all objects of a store share.
pub(crate) struct Common {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) tenant: Tenant,
    pub(crate) block_bytes: u64,
    /// Whether a disk tier may keep objects.
    pub(crate) is_named: bool,
    /// Pages that the store lends now.
    lent: Arc<AtomicUsize>,
    /// Parts of the memory for reads that miss.
    shares: Shares,
    outdated: Outdated,
}

impl Common {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        tenant: Tenant,
        block_bytes: u64,
        is_named: bool,
        stalled_after: Duration,
    ) -> Common {
        let shares = Shares::new(stalled_after);
        let (lent, outdated) = (Arc::default(), Outdated::default());
        let block_bytes = block_bytes.min(BLOCK_BYTES_MAX);
        Common { store, tenant, block_bytes, is_named, lent, shares, outdated }
    }

    /// The most bytes of missing blocks that are read at once, at least a block.
    fn reading_bytes_max(&self) -> u64 {
        let most = self.tenant.most_bytes() / READING_PART;
        (most / self.block_bytes * self.block_bytes).max(self.block_bytes)
    }
}

/// An open object.
pub(crate) struct Object {
    file: CachedFile,
    meta: ObjectMeta,
    attributes: Attributes,
    source: Arc<Source>,
    common: Arc<Common>,
}

impl Object {
    /// Opens the object whose state is `meta`.
    pub(crate) async fn open(
        common: &Arc<Common>,
        name: String,
        meta: &ObjectMeta,
        attributes: &Attributes,
    ) -> Result<Arc<Object>> {
        let runtime = runtime()?;
        let text = version_of(meta);
        let version = Version {
            store: common.store.clone(),
            location: meta.location.clone(),
            etag: strong_etag(meta).cloned(),
            is_outdated: common.outdated.current(&name, &text),
            text,
        };
        let source = Arc::new(Source {
            version: Arc::new(version),
            name,
            len: meta.size,
            block_bytes: common.block_bytes,
            // Without an etag the version is a time, which may be too coarse to last.
            is_kept_on_disk: common.is_named && strong_etag(meta).is_some(),
            readers: Readers(Arc::new(Mutex::new(runtime.clone()))),
        });
        let (tenant, of_file) = (common.tenant.clone(), source.clone());
        // It may wait for memory.
        let open = move || tenant.open_source(of_file, OpenMode::ReadOnly);
        let file = blocking(&runtime, open, &meta.location).await?;
        let (meta, attributes) = (meta.clone(), attributes.clone());
        Ok(Arc::new(Object { file, meta, attributes, source, common: common.clone() }))
    }

    pub(crate) fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Whether `meta` is of this version of the object.
    pub(crate) fn is(&self, meta: &ObjectMeta) -> bool {
        self.meta.size == meta.size && version_of(&self.meta) == version_of(meta)
    }

    /// The size of the parts of a long read, in bytes.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.common.block_bytes * BLOCKS_PER_PART
    }

    /// Reads a range that lies within the object.
    pub(crate) async fn read(self: &Arc<Self>, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = self.lend(&range) {
            return Ok(bytes);
        }
        for _ in 0..RUNTIMES_MAX {
            match self.copy(range.clone()).await {
                // Of another reader, which was first to ask for the bytes.
                Err(error) if is_end_of_runtime(&error) => {}
                Err(error) if is_out_of_room(&error) => return self.source.version.read(range).await,
                result => return result,
            }
        }
        self.copy(range).await
    }

    /// Reads ranges that lie within the object. Those that are near each other are asked for in
    /// their order, by one task: a request that began in the middle of others would be read twice,
    /// as their gap.
    pub(crate) async fn read_all(self: &Arc<Self>, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let mut order: Vec<usize> = (0..ranges.len()).filter(|&at| !ranges[at].is_empty()).collect();
        order.sort_by_key(|&at| ranges[at].start);
        let (mut groups, mut wanted) = (Vec::<Vec<usize>>::new(), 0);
        for at in order {
            let blocks = self.blocks_of(&ranges[at]);
            let bytes = blocks.end - blocks.start;
            match groups.last_mut() {
                Some(group)
                    if ranges[at].start <= ranges[group[group.len() - 1]].end.saturating_add(GAP_BYTES)
                        && wanted + bytes <= self.common.reading_bytes_max() =>
                {
                    group.push(at);
                    wanted += bytes;
                }
                _ => {
                    groups.push(vec![at]);
                    wanted = bytes;
                }
            }
        }
        let groups = groups.into_iter().map(|group| async {
            let of_group = group.iter().map(|&at| ranges[at].clone()).collect();
            self.read_near(of_group).await.map(|read| (group, read))
        });
        let mut all = vec![Bytes::new(); ranges.len()];
        for (group, read) in try_join_all(groups).await? {
            group.into_iter().zip(read).for_each(|(at, bytes)| all[at] = bytes);
        }
        Ok(all)
    }

    /// [`Self::read_all`] of ranges that are near each other, in their order.
    async fn read_near(self: &Arc<Self>, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        if ranges.len() > 1 && !ranges.iter().all(|range| self.is_cached(range)) {
            let (object, missing) = (self.clone(), ranges.clone());
            let task = Task(runtime()?.spawn(async move { object.copy_near(missing).await }));
            match task.join().await {
                Ok(Some(read)) => return Ok(read),
                Ok(None) => {}
                // As single reads, which have other ways.
                Err(error) if is_end_of_runtime(&error) || is_out_of_room(&error) => {}
                Err(error) => return Err(error),
            }
        }
        try_join_all(ranges.into_iter().map(|range| self.read(range))).await
    }

    /// Copies ranges that are near each other. `None`: other reads hang, and have all the memory
    /// for those that miss.
    async fn copy_near(&self, ranges: Vec<Range<u64>>) -> Result<Option<Vec<Bytes>>> {
        let blocks: Vec<_> = ranges.iter().map(|range| self.blocks_of(range)).collect();
        let wanted = blocks.iter().map(|blocks| blocks.end - blocks.start).sum();
        let Some(_share) = self.share(wanted).await else { return Ok(None) };
        self.source.readers.set(runtime()?);
        for blocks in blocks {
            self.will_need(blocks)?;
        }
        let mut all = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
            self.copy_part(range, &mut bytes).await?;
            all.push(bytes.into());
        }
        Ok(Some(all))
    }

    /// The blocks that a range touches.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        let block_bytes = self.common.block_bytes;
        range.start / block_bytes * block_bytes..range.end.next_multiple_of(block_bytes)
    }

    /// Waits for the part of the memory that so many bytes of blocks take. `None`: other reads
    /// hang, and have all of it.
    async fn share(&self, bytes: u64) -> Option<Share<'_>> {
        let shares = bytes * u64::from(SHARES) / self.common.reading_bytes_max();
        self.common.shares.take(shares.clamp(1, SHARES.into()) as u32).await
    }

    /// Begins to read blocks, all at once: each miss would wait for its own.
    fn will_need(&self, blocks: Range<u64>) -> Result<()> {
        let advised = self.file.advise(Advice::WillNeed, blocks);
        advised.map(|_| ()).map_err(|error| of_cache(error, &self.meta.location))
    }

    /// Copies a range, and first reads what is missing in tasks of the caller's runtime.
    async fn copy(self: &Arc<Self>, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            if self.is_cached(&(at..range.end)) {
                self.copy_part(at..range.end, &mut bytes).await?;
                break;
            }
            let block_bytes = self.common.block_bytes;
            let end = range.end.min(at / block_bytes * block_bytes + self.common.reading_bytes_max());
            // A caller may poll this no more while it waits for another read, which needs the
            // share.
            let (object, part) = (self.clone(), at..end);
            let runtime = runtime()?;
            let task = Task(runtime.spawn(async move { object.copy_missing(part, bytes).await }));
            bytes = task.join().await?;
            at = end;
        }
        Ok(bytes.into())
    }

    /// Copies a part of a range behind `bytes`, and first reads all its blocks that are missing.
    async fn copy_missing(&self, part: Range<u64>, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let blocks = self.blocks_of(&part);
        let Some(_share) = self.share(blocks.end - blocks.start).await else {
            bytes.extend_from_slice(&self.source.version.read(part).await?);
            return Ok(bytes);
        };
        if !self.is_cached(&part) {
            self.source.readers.set(runtime()?);
            self.will_need(blocks)?;
        }
        self.copy_part(part, &mut bytes).await?;
        Ok(bytes)
    }

    /// Whether all pages of a range are in memory.
    fn is_cached(&self, range: &Range<u64>) -> bool {
        let pages = range.end.div_ceil(PAGE_BYTES) - range.start / PAGE_BYTES;
        self.file.pages_in(range.clone()).cached >= pages
    }

    /// Copies a part of a range behind `bytes`.
    async fn copy_part(&self, part: Range<u64>, bytes: &mut Vec<u8>) -> Result<()> {
        let mut at = part.start;
        while at < part.end {
            let end = part.end.min((at / COPIED_AT_ONCE + 1) * COPIED_AT_ONCE);
            let done = bytes.len();
            bytes.resize(done + (end - at) as usize, 0);
            let read = self.file.read_at_async(&mut bytes[done..], at).await;
            let read = read.map_err(|error| of_cache(error, &self.meta.location))?;
            if read < bytes.len() - done {
                let what = format!("{read} bytes at {at} of {}", self.meta.location);
                return Err(generic(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
            }
            at = end;
        }
        Ok(())
    }

    /// Lends a range that lies in one page in memory, without a copy.
    fn lend(&self, range: &Range<u64>) -> Option<Bytes> {
        let page = range.start / PAGE_BYTES;
        if range.end - range.start < LENT_BYTES_MIN || (range.end - 1) / PAGE_BYTES != page {
            return None;
        }
        let place = Place::take(&self.common.lent)?;
        let guard = self.file.cached_page(u32::try_from(page).ok()?)?;
        let start = page * PAGE_BYTES;
        let within = (range.start - start) as usize..(range.end - start) as usize;
        guard.get(within.clone())?;
        Some(Bytes::from_owner(Lent { guard, _place: place }).slice(within))
    }
}

/// One of the [`LENT_MAX`] pages that a store lends at once.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes a place, if one is free.
    fn take(lent: &Arc<AtomicUsize>) -> Option<Place> {
        let before = lent.fetch_add(1, Ordering::Relaxed);
        let place = Place(lent.clone());
        (before < LENT_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A lent page, as the owner of a `Bytes`.
struct Lent {
    guard: OwnedPageGuard,
    _place: Place,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.guard
    }
}

/// A task that ends when nobody waits for it any more.
struct Task<T>(JoinHandle<Result<T>>);

impl<T> Task<T> {
    /// Waits for its result.
    async fn join(mut self) -> Result<T> {
        (&mut self.0).await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(generic(runtime_ended())),
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs what may wait on a thread of the runtime that may.
async fn blocking<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> Result<T, mglru_cache::Error> + Send + 'static,
    location: &Path,
) -> Result<T> {
    match runtime.spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| of_cache(error, location)),
        Err(error) => Err(generic(error)),
    }
}

/// A version of an object in the wrapped store.
struct Version {
    store: Arc<dyn ObjectStore>,
    location: Path,
    etag: Option<String>,
    text: String,
    /// Whether the store has another version by now, as far as it has said so. See [`Outdated`].
    is_outdated: Arc<AtomicBool>,
}

impl Version {
    async fn get(&self, range: Range<u64>) -> Result<GetResult> {
        let options = GetOptions::new().with_range(Some(range)).with_if_match(self.etag.clone());
        let result = self.store.get_opts(&self.location, options).await;
        let is_other = match &result {
            Ok(result) => version_of(&result.meta) != self.text,
            Err(error) => says_changed(error),
        };
        if is_other {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        result
    }

    fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    fn changed(&self) -> String {
        format!("{} has changed", self.location)
    }

    /// Reads a range without the cache.
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if self.is_outdated() {
            return Err(changed(self.changed()));
        }
        let result = self.get(range.clone()).await.map_err(of_version)?;
        if version_of(&result.meta) != self.text {
            return Err(changed(self.changed()));
        }
        let found = result.range.clone();
        let bytes = result.bytes().await?;
        if found != range || bytes.len() as u64 != range.end - range.start {
            let what = format!("the store returned bytes {found:?} of {} for {range:?}", self.location);
            return Err(generic(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
        }
        Ok(bytes)
    }

    /// Reads the ranges of a group with one request to the store, and answers them.
    async fn read_together(&self, mut group: Group) {
        let read = async {
            let result = self.get(group.range()).await?;
            let version = version_of(&result.meta);
            let start = result.range.start;
            Ok((version, start, result.bytes().await?))
        };
        match read.await {
            Ok((version, start, bytes)) => {
                for request in group.take() {
                    let wanted = request.range();
                    let end = start + bytes.len() as u64;
                    let is_whole = start <= wanted.start && wanted.end <= end;
                    if is_whole || version != self.text {
                        let within = |at: u64| at.clamp(start, end).saturating_sub(start) as usize;
                        request.fulfil(Some(&version), &bytes[within(wanted.start)..within(wanted.end)]);
                    } else {
                        // Not a change of the object: asking again would not help.
                        let what = format!(
                            "the store returned bytes {start} to {end} of {} for {wanted:?}",
                            self.location
                        );
                        request.fail(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                    }
                }
            }
            Err(error) => {
                let requests = group.take();
                let errors = failures(error, requests.len());
                requests.into_iter().zip(errors).for_each(|(request, error)| request.fail(error));
            }
        }
    }
}

/// An object as a source of the page cache.
struct Source {
    version: Arc<Version>,
    name: String,
    len: u64,
    block_bytes: u64,
    is_kept_on_disk: bool,
    readers: Readers,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.name).finish()
    }
}

impl BlockSource for Source {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState::new(self.len).with_version(self.version.text.clone()))
    }

    /// Returns at once; tasks of the last reader's runtime answer.
    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        if self.version.is_outdated() {
            let fail = |request: RangeRequest| request.fail(has_changed(self.version.changed()));
            return requests.into_iter().for_each(fail);
        }
        let (version, groups) = (self.version.clone(), together(requests));
        self.readers.get().spawn(async move {
            join_all(groups.into_iter().map(|group| version.read_together(group))).await;
        });
    }

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    fn is_kept_on_disk(&self) -> bool {
        self.is_kept_on_disk
    }
}

/// Requests that are one request to the store. A runtime that ends drops its tasks, and the readers
/// learn why they get no answer.
struct Group(Vec<RangeRequest>);

impl Group {
    fn range(&self) -> Range<u64> {
        self.0[0].range().start..self.0[self.0.len() - 1].range().end
    }

    fn take(&mut self) -> Vec<RangeRequest> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let fail = |request: RangeRequest| request.fail(runtime_ended());
        self.take().into_iter().for_each(fail);
    }
}

/// Groups requests, which are in order.
fn together(requests: Vec<RangeRequest>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for request in requests {
        let range = request.range();
        match groups.last_mut() {
            Some(group)
                if range.start <= group.range().end + GAP_BYTES
                    && range.end - group.range().start <= REQUEST_BYTES_MAX =>
            {
                group.0.push(request);
            }
            _ => groups.push(Group(vec![request])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_cache::PageCache;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    const MIB: u64 = 1 << 20;

    async fn open(common: &Arc<Common>, path: &Path) -> Arc<Object> {
        let meta = common.store.head(path).await.unwrap();
        Object::open(common, path.to_string(), &meta, &Attributes::default()).await.unwrap()
    }

    /// After one answer with another version, no read of the old one asks the store: it would say
    /// that the object is not there.
    #[tokio::test]
    async fn a_version_that_is_gone_is_not_asked_for() {
        let cache = PageCache::builder(16 << 20).tenant("objects", 8 << 20).build().unwrap();
        let (store, path) = (Arc::new(InMemory::new()), Path::from("o"));
        let tenant = cache.tenant("objects").unwrap();
        let common = Arc::new(Common::new(store.clone(), tenant, 64 << 10, false, Duration::from_secs(60)));
        store.put(&path, vec![1; 4 << 20].into()).await.unwrap();
        let (old, handle) = (open(&common, &path).await, open(&common, &path).await);
        store.put(&path, vec![2; 4 << 20].into()).await.unwrap();
        assert!(crate::error::is_change(&old.read(0..100).await.unwrap_err()));
        store.delete(&path).await.unwrap();
        // Through the cache and around it, and by another handle.
        for (object, begin) in [(&old, MIB), (&handle, 2 * MIB)] {
            assert!(crate::error::is_change(&object.read(begin..begin + 100).await.unwrap_err()));
            let around = object.source.version.read(begin..begin + 100).await;
            assert!(crate::error::is_change(&around.unwrap_err()));
        }
        // Opened again, a version is asked for again.
        let mark = common.outdated.current("o", &handle.source.version.text);
        assert!(!mark.load(Ordering::Relaxed));
        let error = handle.source.version.read(0..100).await.unwrap_err();
        assert!(matches!(error, object_store::Error::NotFound { .. }), "{error}");
    }
}
