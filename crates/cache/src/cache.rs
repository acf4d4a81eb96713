//! The page cache: its builder, its statistics and its tenants.
//!
//! ```
//! use mglru_cache::{OpenMode, PageCache};
//!
//! # fn main() -> Result<(), mglru_cache::Error> {
//! # let directory = tempfile::tempdir().expect("a temporary folder");
//! # let path = directory.path().join("data.idx");
//! let cache = PageCache::builder(64 << 20).tenant("index", 32 << 20).build()?;
//! let file = cache.tenant("index")?.open(&path, OpenMode::Create)?;
//! let mut page = [0; 4096];
//! let read = file.read_at(&mut page, 8192)?;
//! file.write_at(b"hello", 8192)?;
//! file.sync_data()?;
//! # let _ = read; Ok(()) }
//! ```
//!
//! # The budget
//!
//! Page frames and all metadata about pages, files and tenants come out of one budget in bytes.
//! Frames are mapped once. When index memory grows with the files in use, frames are retired and
//! their memory is returned to the system.

use crate::available::check_budget;
use crate::backend::{Backend, BackendKind, Completion, OpenMode, choose, is_worker};
use crate::error::Error;
use crate::events::{EVENT_BYTES, EventQueue, Events};
use crate::file::CachedFile;
use crate::flight::InFlight;
use crate::frames::{FRAME_BYTES, Frames};
#[cfg(feature = "async")]
use crate::future::Futures;
use crate::host::{CacheHost, Observer, OomCallback};
use crate::keepers::Keepers;
use crate::regions::Regions;
use crate::resize::Writers;
use crate::shared::Shared;
use crate::slot_range::SlotCharges;
use crate::source::{BlockSource, Sources, WithSources};
use crate::swap::{Store, Swap};
use crate::tenant::Tenant;
use crate::tenants::Tenants;
use crate::tier::{DiskTier, DiskTierStats, Plan, Tier};
use crate::workers::{Workers, is_worker_of};
use mglru_core::lru::Swappiness;
use mglru_core::memcg::CHARGE_BATCH_PAGES;
use mglru_core::reclaim::Watermarks;
use mglru_core::{
    Core, Event, Kind, Limits, Mechanisms, MemcgError, OomDecision, OomPolicy, Options, OutOfMemory,
    PCP_BATCH_FRAMES, Time,
};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Bytes reserved per frame for its metadata: the folio, its place on the free list, and its share
/// of the index of dirty pages. A test asserts that the measured sizes are smaller.
pub const FRAME_METADATA_BYTES: u64 = 64;
/// Bytes reserved per tenant that is named in the builder: its lists, counters and place in the
/// tree.
const TENANT_RESERVE_BYTES: u64 = 16 << 10;
/// Bytes reserved for the queues and tables of the cache itself.
const FIXED_BYTES: u64 = 256 << 10;
const FRAMES_MIN: u32 = 64;
/// How long a source may take to answer, unless the builder says otherwise: some services retry for
/// half a minute.
const SOURCE_DEADLINE: Duration = Duration::from_secs(60);
/// The longest deadline of a source. With much longer ones, a time of the system's clock overflows.
const SOURCE_DEADLINE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Number of per-CPU batches at most. Additional threads share them.
const CPUS_MAX: usize = 64;

/// Number of caches created by this process so far.
static CACHES: AtomicU64 = AtomicU64::new(0);

/// Receives completed transfers from the backend threads, which start before the cache exists.
struct Sink(OnceLock<Weak<Shared>>);

impl Completion for Sink {
    fn complete(&self, tag: u64, result: io::Result<usize>) {
        // Without a cache there are no transfers: the cache drains its backend before it is
        // dropped.
        if let Some(shared) = self.0.get().and_then(Weak::upgrade) {
            shared.completed(tag, result);
        }
    }
}

/// Configures a cache. See [`PageCache::builder`].
pub struct Builder {
    budget_bytes: u64,
    tenants: Vec<(String, Limits)>,
    mechanisms: Mechanisms,
    backend: BackendKind,
    swap: Option<Swap>,
    swappiness: Swappiness,
    observer: Option<Observer>,
    events_max: Option<usize>,
    oom_policy: OomPolicy,
    oom_callback: Option<OomCallback>,
    source_deadline: Duration,
    disk_tier: Option<DiskTier>,
}

impl Builder {
    /// Adds a tenant that may use up to `max_bytes` of the budget (`memory.max`). Limits may add up
    /// to more than the budget. A path such as `a/b` names a tenant below another, which must be
    /// added first.
    ///
    /// Default: only the root tenant, which has no limit of its own. [`PageCache::add_tenant`] adds
    /// tenants to a running cache.
    pub fn tenant(self, path: &str, max_bytes: u64) -> Builder {
        self.tenant_with(path, Limits::max(max_bytes))
    }

    /// Adds a tenant with limits and protections. See [`Self::tenant`].
    pub fn tenant_with(mut self, path: &str, limits: Limits) -> Builder {
        self.tenants.push((path.to_owned(), limits));
        self
    }

    /// Selects mechanisms. Default: the recommended set.
    pub fn mechanisms(mut self, mechanisms: Mechanisms) -> Builder {
        self.mechanisms = mechanisms;
        self
    }

    /// Selects how files are read and written. Default: io_uring if the system permits it, else
    /// threads.
    pub fn backend(mut self, backend: BackendKind) -> Builder {
        self.backend = backend;
        self
    }

    /// Adds swap for cold anonymous memory. Default: no swap; anonymous pages stay in memory until
    /// they are dropped.
    pub fn swap(mut self, swap: Swap) -> Builder {
        self.swap = Some(swap);
        self
    }

    /// Sets reclaim's preference for anonymous pages: 0 (never swap) to 200 (anonymous pages
    /// first); 201 takes anonymous pages only. Default: 60.
    pub fn swappiness(mut self, swappiness: Swappiness) -> Builder {
        self.swappiness = swappiness;
        self
    }

    /// Calls `observer` for every event of the core, on the thread that causes it. That thread may
    /// hold locks of the core: the observer must return quickly, must not wait for anything, and
    /// must not use the cache. [`Self::events`] is for all else. After a panic the observer is not
    /// called again ([`CacheStats::callback_panicked`]).
    pub fn observer(mut self, observer: impl Fn(Event) + Send + Sync + 'static) -> Builder {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Keeps up to `capacity` events for a thread of yours, which takes them with
    /// [`PageCache::take_events`]. The cache never waits for that thread: an event that finds the
    /// queue full is dropped and counted ([`CacheStats::events_dropped`]). The queue's memory is a
    /// part of the budget.
    ///
    /// ```
    /// # use mglru_cache::{Event, OpenMode, PageCache};
    /// # let directory = tempfile::tempdir().expect("a temporary folder");
    /// # let path = directory.path().join("f");
    /// # std::fs::write(&path, [1; 4096]).expect("a file");
    /// let cache = PageCache::builder(1 << 20).events(1000).build()?;
    /// let events = cache.take_events().expect("they are taken once");
    /// cache.open(&path, OpenMode::ReadOnly)?.read_at(&mut [0; 4096], 0)?;
    /// assert!(matches!(events.try_next(), Some(Event::Inserted { page: (_, 0), .. })));
    /// # Ok::<(), mglru_cache::Error>(())
    /// ```
    pub fn events(mut self, capacity: usize) -> Builder {
        self.events_max = Some(capacity);
        self
    }

    /// Selects the action when no page can be freed for a request: fail the request (default) or
    /// kill a tenant. A killed tenant loses its anonymous memory; its files lose nothing. See
    /// [`crate::Tenant::revive`].
    pub fn oom_policy(mut self, policy: OomPolicy) -> Builder {
        self.oom_policy = policy;
        self
    }

    /// Sets the callback for [`OomPolicy::Ask`]. It runs on the thread that needs the page, one
    /// call at a time. `report.victim` is the tenant that [`OomPolicy::Victim`] would kill. The
    /// callback must return quickly and must not use the cache. If it panics, the request fails.
    pub fn on_out_of_memory(
        mut self,
        decide: impl Fn(&OutOfMemory) -> OomDecision + Send + Sync + 'static,
    ) -> Builder {
        self.oom_policy = OomPolicy::Ask;
        self.oom_callback = Some(Box::new(decide));
        self
    }

    /// Sets how long a [`crate::BlockSource`] may take to answer a read, to write, to sync, to
    /// change its length or to say its state. After that the operation fails with `TimedOut`.
    /// Default: 60 s; at most 100 years, which stand for longer ones. Sources usually have shorter
    /// deadlines of their own.
    pub fn source_deadline(mut self, deadline: Duration) -> Builder {
        self.source_deadline = deadline.min(SOURCE_DEADLINE_MAX);
        self
    }

    /// Adds a file on a local disk that keeps what [`crate::BlockSource`]s returned, over restarts
    /// too: what was evicted from memory, or read before a restart, is read from there. Pages that
    /// were damaged there are read from their source again. Default: none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary folder");
    /// # let path = directory.path().join("tier");
    /// use mglru_cache::{DiskTier, PageCache};
    ///
    /// let tier = DiskTier::new(&path, 64 << 20);
    /// let cache = PageCache::builder(16 << 20).disk_tier(tier).build()?;
    /// let tier = cache.stats().disk_tier.expect("it was asked for");
    /// assert!(tier.file_bytes <= 64 << 20 && tier.used_slots == 0);
    /// # Ok::<(), mglru_cache::Error>(())
    /// ```
    pub fn disk_tier(mut self, tier: DiskTier) -> Builder {
        self.disk_tier = Some(tier);
        self
    }

    /// Starts the cache and its workers.
    ///
    /// # Errors
    /// The budget is too small, or as much as the memory and swap of this machine, or as the
    /// control groups of this process allow ([`crate::memory_limit_bytes`]); a tenant's name is
    /// taken or its parent is missing; or memory, threads or the backend are unavailable. With a
    /// disk tier also: its file is too small, has other content or no room on its disk, another
    /// cache uses it, or the system refuses to open it.
    pub fn build(self) -> Result<PageCache, Error> {
        let swap_bytes = self.swap.as_ref().map_or(0, Swap::budget_bytes);
        let tier = self.disk_tier.as_ref().map(|tier| tier.plan(self.budget_bytes)).transpose()?;
        let tier_bytes = tier.as_ref().map_or(0, Plan::budget_bytes);
        let fixed = FIXED_BYTES + (self.tenants.len() as u64 + 1) * TENANT_RESERVE_BYTES;
        let events_bytes = (self.events_max.unwrap_or(0) as u64).saturating_mul(EVENT_BYTES);
        let fixed = [swap_bytes, tier_bytes, events_bytes].into_iter().fold(fixed, u64::saturating_add);
        let per_frame = FRAME_BYTES as u64 + FRAME_METADATA_BYTES;
        let count = self.budget_bytes.saturating_sub(fixed) / per_frame;
        if count < u64::from(FRAMES_MIN) {
            let least_bytes = fixed.saturating_add(u64::from(FRAMES_MIN) * per_frame);
            return Err(Error::BudgetTooSmall { bytes: self.budget_bytes, least_bytes, swap_bytes });
        }
        let spare = tier.as_ref().map_or(0, |tier| tier.spare_frames);
        let count = count.min(u64::from(mglru_core::folio::MAX_FOLIOS - 1 - spare)) as u32;
        let map_error = |source| Error::io("map the memory of", "the cache".as_ref(), no_room(source));
        check_budget(self.budget_bytes)?;
        let frames = Arc::new(Frames::new(count + spare).map_err(map_error)?);
        let sink = Arc::new(Sink(OnceLock::new()));
        let not_started = |what, source| Error::io(what, "the cache".as_ref(), source);
        let chosen = choose(&self.backend, frames.clone(), sink.clone())
            .map_err(|source| not_started("start the backend of", source))?;
        let start = |plan| Tier::start(&plan, chosen.backend.clone(), frames.clone(), count, self.mechanisms);
        let tier = tier.map(start).transpose()?;
        let sources = Sources::new(frames.clone(), sink.clone(), self.source_deadline, tier);
        let backend = Arc::new(WithSources { files: chosen.backend, sources: sources.clone() });
        let mut options = Options::new(count);
        options.watermarks = Watermarks::for_pages(count);
        options.mechanisms = self.mechanisms;
        options.swap = self.swap.as_ref().map(Swap::options).unwrap_or_default();
        options.swappiness = self.swappiness;
        options.cpus = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, CPUS_MAX);
        options.charge_batch_pages = CHARGE_BATCH_PAGES;
        // Keeps at most a sixty-fourth of all frames in per-CPU lists.
        options.pcp_batch_frames = (count as usize / (256 * options.cpus)).clamp(1, PCP_BATCH_FRAMES);
        options.oom_policy = self.oom_policy;
        options.charge_metadata = true;
        options.pinned_frames = frames.pinned_count().min(count);
        let cpus = options.cpus;
        let core = Core::new(options, Time::ZERO);
        let create = |path: &Path| backend.create_swap(path);
        let store = self.swap.as_ref().map(|swap| swap.start(create)).transpose()?;
        let host = CacheHost::new(frames.clone(), store);
        if let Some(observer) = self.observer {
            let _ = host.observer.set(observer);
        }
        if let Some(capacity) = self.events_max {
            let _ = host.events.set(EventQueue::new(capacity));
        }
        if let Some(callback) = self.oom_callback {
            let _ = host.oom_callback.set(callback);
        }
        let shared = Arc::new(Shared {
            number: CACHES.fetch_add(1, Ordering::Relaxed) + 1,
            core,
            host,
            frames,
            backend,
            sources,
            #[cfg(feature = "async")]
            futures: Futures::default(),
            inodes: Mutex::default(),
            regions: Regions::default(),
            in_flight: InFlight::default(),
            stopping: AtomicBool::new(false),
            at_work: RwLock::new(()),
            tenants: Tenants::default(),
            worker_panics: AtomicU64::new(0),
            slot_charges: SlotCharges::new(self.budget_bytes),
            keepers: Keepers::new(cpus),
            writers: Writers::default(),
            budget_bytes: self.budget_bytes,
            why_not_uring: chosen.why_not_uring,
        });
        let _ = sink.0.set(Arc::downgrade(&shared));
        shared.add_root();
        for (path, limits) in &self.tenants {
            shared.add_tenant(path, limits, true)?;
        }
        let workers =
            Workers::start(&shared).map_err(|source| not_started("start the workers of", source))?;
        let (workers, process) = (Mutex::new(Some(workers)), std::process::id());
        let owner = Arc::new(Owner { shared: shared.clone(), workers, process });
        Ok(PageCache { shared, owner })
    }
}

/// The system's refusal to map memory, with what to do about it.
fn no_room(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let what = format!(
        "{error}; the process may map no more: choose a smaller budget or raise `ulimit -v` (or, with \
         `vm.overcommit_memory=2`, the system's limit)"
    );
    io::Error::new(error.kind(), what)
}

/// A page cache over real files with a hard memory budget. All threads can share it; clones are the
/// same cache.
///
/// Dropping the last clone writes dirty pages back and ignores errors; [`PageCache::close`] reports
/// them. On a thread that may be needed for that, such as one that calls a waker or a
/// [`BlockSource`], the drop does not wait: a thread of its own does the rest.
///
/// A process that was forked from that of the cache has neither the cache's threads nor its pages.
/// Only its parent can use the cache, its files, tenants and guards: in the child, a page in memory
/// ends the process (`SIGSEGV`), and a sync waits for ever. The child drops the cache without doing
/// anything, and can open another one.
#[derive(Clone)]
pub struct PageCache {
    pub(crate) shared: Arc<Shared>,
    owner: Arc<Owner>,
}

/// The threads of a cache, and the end of it.
struct Owner {
    shared: Arc<Shared>,
    workers: Mutex<Option<Workers>>,
    /// The process that has the threads. A forked child has only a copy of this.
    process: u32,
}

/// Configuration and sizes of a whole cache. Each tenant has its own [`crate::TenantStats`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CacheStats {
    /// The backend in use: `io_uring`, `threads` or `memory`.
    pub backend: &'static str,
    /// The reason why io_uring is not used although it was requested.
    pub why_not_uring: Option<String>,
    /// Threads for reads and writes that the cache lacks, because the system did not grant them.
    /// They are started while requests wait. Without io_uring, the cache wants up to two per
    /// processor, at most 16; the disk tier wants up to four for its reads. The cache goes on with
    /// those that it gets, and asks for the others now and then. `ulimit -u` or `pids.max` of the
    /// control group is too low.
    pub io_threads_refused: usize,
    /// Whether frames are registered with the kernel as buffers.
    pub registered_buffers: bool,
    /// Whether the kernel backs frames with huge pages when it has them.
    pub huge_pages: bool,
    /// The memory budget, in bytes.
    pub budget_bytes: u64,
    /// Frames at the start, including those retired since to pay for index memory.
    pub frames: u64,
    /// Bytes of all frames, used and free, without retired frames.
    pub frame_bytes: u64,
    /// Bytes of metadata about pages, files and tenants.
    pub metadata_bytes: u64,
    /// Bytes of compressed memory that hold swapped pages.
    pub swap_bytes: u64,
    /// Frames that hold no page.
    pub free_pages: u64,
    /// File pages on reclaim's lists. Pages that were added recently may still be in a per-CPU
    /// batch and are not counted.
    pub file_pages: u64,
    /// Anonymous pages on reclaim's lists. Pages in per-CPU batches are not counted.
    pub anon_pages: u64,
    /// File pages that are dirty or under writeback.
    pub pending_pages: u64,
    /// The preset of mechanisms in use.
    pub preset: &'static str,
    /// Number of tenants, including the root.
    pub tenants: usize,
    /// Ranges that sources were asked for, for a missing page and those around it.
    pub source_ranges: u64,
    /// Calls of sources with one or more of these ranges.
    pub source_calls: u64,
    /// Bytes that sources returned.
    pub source_bytes: u64,
    /// Reads and writes of sources that failed.
    pub source_failures: u64,
    /// The disk tier, if there is one.
    pub disk_tier: Option<DiskTierStats>,
    /// Number of panics of the cache's threads. Each is a bug of the cache; the thread was
    /// restarted.
    pub worker_panics: u64,
    /// Events that found the queue of [`Builder::events`] full, and were dropped.
    pub events_dropped: u64,
    /// Whether the observer or the out-of-memory callback panicked. The observer is not called any
    /// more then.
    pub callback_panicked: bool,
}

impl PageCache {
    /// Starts configuring a cache that uses `budget_bytes` of memory in total.
    pub fn builder(budget_bytes: u64) -> Builder {
        Builder {
            budget_bytes,
            tenants: Vec::new(),
            mechanisms: Mechanisms::default(),
            backend: BackendKind::default(),
            swap: None,
            swappiness: Swappiness::DEFAULT,
            observer: None,
            events_max: None,
            oom_policy: OomPolicy::default(),
            oom_callback: None,
            source_deadline: SOURCE_DEADLINE,
            disk_tier: None,
        }
    }

    /// Opens a file for the root tenant. See [`crate::Tenant::open`].
    ///
    /// # Errors
    /// As [`crate::Tenant::open`].
    pub fn open(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<CachedFile, Error> {
        self.tenant("")?.open(path, mode)
    }

    /// Opens a source for the root tenant. See [`Tenant::open_source`].
    ///
    /// # Errors
    /// As [`Tenant::open_source`].
    pub fn open_source(&self, source: Arc<dyn BlockSource>, mode: OpenMode) -> Result<CachedFile, Error> {
        self.tenant("")?.open_source(source, mode)
    }

    /// Turns [`crate::Switch::Prefetch`] on or off in the running cache. Prefetching does not
    /// affect reclaim decisions.
    pub fn set_prefetch(&self, on: bool) {
        self.shared.core.set_prefetch(on);
    }

    /// The same for the published patch alone, [`crate::Switch::PrefetchNext`], with
    /// [`crate::Switch::Prefetch`] off.
    pub fn set_prefetch_next(&self, on: bool) {
        self.shared.core.set_prefetch_next(on);
    }

    /// Current sizes. The cost does not depend on the number of tenants.
    pub fn stats(&self) -> CacheStats {
        let shared = &self.shared;
        let frames = u64::from(shared.core.folios().len() - shared.core.retired_pages());
        CacheStats {
            backend: shared.backend.name(),
            why_not_uring: shared.why_not_uring.clone(),
            io_threads_refused: shared.backend.threads_refused(),
            registered_buffers: shared.backend.registered_buffers(),
            huge_pages: shared.frames.huge_pages(),
            budget_bytes: shared.budget_bytes,
            frames: u64::from(shared.core.folios().len()),
            frame_bytes: frames * FRAME_BYTES as u64,
            metadata_bytes: shared.core.metadata_bytes() + u64::from(shared.core.folios().len()) * 4,
            swap_bytes: shared.host.swap.as_ref().map_or(0, Store::memory_bytes),
            free_pages: u64::from(shared.core.free_pages()),
            file_pages: shared.core.reclaimable_pages(Kind::File),
            anon_pages: shared.core.reclaimable_pages(Kind::Anon),
            pending_pages: shared.core.pending_pages(),
            preset: shared.core.options().mechanisms.name(),
            tenants: shared.tenants.len(),
            source_ranges: shared.sources.ranges.load(Ordering::Relaxed),
            source_calls: shared.sources.calls.load(Ordering::Relaxed),
            source_bytes: shared.sources.reads.bytes.load(Ordering::Relaxed),
            source_failures: shared.sources.reads.failures.load(Ordering::Relaxed),
            disk_tier: shared.sources.tier.as_ref().map(|tier| tier.stats()),
            worker_panics: shared.worker_panics.load(Ordering::Relaxed),
            events_dropped: shared.host.events.get().map_or(0, EventQueue::dropped),
            callback_panicked: shared.host.callback_panicked.load(Ordering::Relaxed),
        }
    }

    /// The queue of [`Builder::events`]. `None`: there is none, or it has been taken.
    pub fn take_events(&self) -> Option<Events> {
        self.shared.host.events.get()?.take()
    }

    /// Writes all dirty pages of all files and waits for the writes. It does *not* sync the files:
    /// the bytes may be in a cache of the device, and a power cut may take them.
    /// [`Self::sync_all`] does.
    ///
    /// # Errors
    /// The first file's error. The remaining files are still written.
    pub fn sync(&self) -> Result<(), Error> {
        write_all(&self.shared)
    }

    /// Writes all dirty pages of all open files and waits until they, and the files' metadata, are
    /// on stable storage. Files that were closed before, and whose pages have been written since,
    /// are not synced again.
    ///
    /// # Errors
    /// The first file's error. The remaining files are still synced. Each handle still reports the
    /// error at its own next sync.
    pub fn sync_all(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for inode in self.shared.inodes() {
            let errors = AtomicU64::new(inode.error_count());
            let synced = self.shared.write_out_and_sync(&inode, true);
            // Counts as reported to the program.
            let unreported = inode.unreported_error(&errors).map_or(Ok(()), Err);
            result = result.and(synced.and(unreported));
        }
        result
    }

    /// Writes all dirty pages back and stops the workers, for all clones: later writes, and
    /// operations that need a page which is not in memory, fail with [`Error::Closed`]. A write
    /// that is under way fails so, or is written back. As [`Self::sync`], this does not sync the
    /// files: call [`Self::sync_all`] before, or sync each file, if a power cut must not lose them.
    ///
    /// # Errors
    /// [`Error::Lost`] for the first file with pages that could not be written: they are lost with
    /// the cache. In a forked child, [`Error::Closed`].
    pub fn close(self) -> Result<(), Error> {
        if self.owner.is_a_copy() {
            return Err(Error::Closed);
        }
        // The cache's end tries once more to write what this cannot.
        let written = self.sync();
        self.owner.end().unwrap_or(written).map_err(Error::at_the_end)
    }

    /// Checks all counters against a recount. No other thread may use the cache meanwhile. Slow:
    /// for tests.
    ///
    /// # Errors
    /// A description of the first inconsistency.
    pub fn validate(&self) -> Result<(), String> {
        let _still = self.shared.at_work.write().unwrap_or_else(PoisonError::into_inner);
        self.shared.backend.drain();
        let stats = self.stats();
        let tier_bytes = stats.disk_tier.as_ref().map_or(0, |tier| tier.memory_bytes);
        if stats.frame_bytes + stats.metadata_bytes + stats.swap_bytes + tier_bytes > stats.budget_bytes {
            return Err(format!("over budget: {stats:?}"));
        }
        self.shared.core.validate()
    }
}

fn write_all(shared: &Shared) -> Result<(), Error> {
    let mut result = Ok(());
    for inode in shared.inodes() {
        result = result.and(shared.write_back(&inode));
    }
    result
}

impl Owner {
    /// Whether this process was forked from that of the cache.
    fn is_a_copy(&self) -> bool {
        self.process != std::process::id()
    }

    /// Ends the cache, unless it has ended, and writes all dirty pages.
    ///
    /// This waits for the cache's workers and for the completions of all transfers. If the calling
    /// thread may be needed for one of them, another thread waits: a completion can drop the last
    /// reference, for example with the waker of a task.
    ///
    /// # Errors
    /// As [`PageCache::sync`]. `None` if another thread waits, or the cache has ended before.
    fn end(&self) -> Option<Result<(), Error>> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let shared = self.shared.clone();
        let work = move || {
            workers.stop(&shared);
            // Not before: a write that is under way either sees that the cache is closed, and
            // fails, or has made its page dirty by now ([`Shared::check_open`]).
            let result = write_all(&shared);
            #[cfg(feature = "async")]
            shared.futures.close();
            shared.backend.drain();
            result
        };
        if !is_worker() && !is_worker_of(&self.shared) {
            return Some(work());
        }
        if std::thread::Builder::new().name("mglru-close".to_owned()).spawn(|| _ = work()).is_err() {
            // Without a thread, nobody can wait.
            Workers::tell_to_stop(&self.shared);
            #[cfg(feature = "async")]
            self.shared.futures.close();
        }
        None
    }
}

impl PageCache {
    /// The tenant at a path such as `a/b`. The empty path is the root.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`].
    pub fn tenant(&self, path: &str) -> Result<Tenant, Error> {
        self.shared.find_tenant(path)
    }

    /// All tenants: the root first, the others in no particular order.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.shared.tenants()
    }

    /// Creates a tenant. `path` is the path of an existing parent, a slash and the new name, or
    /// only the name for a tenant below the root.
    ///
    /// # Errors
    /// The name is taken or invalid, the parent does not exist, or there are too many tenants or
    /// levels. Or the metadata would take too much of the budget or of a limit above the tenant:
    /// then [`Error::Killed`] if the parent was killed.
    pub fn add_tenant(&self, path: &str, limits: &Limits) -> Result<Tenant, Error> {
        self.shared.add_tenant(path, limits, false)
    }

    /// Removes a tenant. Its pages stay in memory; with [`crate::Switch::ReparentOffline`] they
    /// move to its parent at once. Open handles keep working, and their new pages are charged to
    /// the parent.
    ///
    /// # Errors
    /// No tenant has that path, it has children, or it is the root.
    pub fn remove_tenant(&self, path: &str) -> Result<(), Error> {
        let tenant = self.shared.find_tenant(path)?;
        self.shared.remove_found(&tenant).map_err(|error| match error {
            // Another thread has removed it.
            MemcgError::Gone => Error::NoSuchTenant(path.to_owned()),
            other => Error::Tenant(other),
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.is_a_copy() {
            // The parent's threads do the work. Here, nothing would ever end, and the descriptors
            // of rings and files are the parent's, too.
            let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            std::mem::forget((self.shared.clone(), workers));
            return;
        }
        // Drop cannot report errors; `close` can.
        let _ = self.end();
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Builder { budget_bytes, tenants, backend, swap, .. } = self;
        f.debug_struct("Builder")
            .field("budget_bytes", budget_bytes)
            .field("tenants", tenants)
            .field("backend", backend)
            .field("swap", swap)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{MemoryFiles, grants};

    /// The process was ended for lack of memory while it built such a cache.
    #[cfg(not(miri))]
    #[test]
    fn a_budget_beyond_the_memory_of_the_machine_is_refused() {
        let error = PageCache::builder(1 << 60).build().unwrap_err();
        assert!(matches!(error, Error::BudgetTooLarge { bytes, .. } if bytes == 1 << 60), "{error}");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    /// The threads for reads and writes took all that were granted, and the cache could not be
    /// built.
    #[cfg(not(miri))]
    #[test]
    fn three_threads_are_enough_for_a_cache() {
        let build = |granted: usize| {
            grants::set(Some(granted));
            let built = PageCache::builder(1 << 20).backend(BackendKind::Threads).build();
            grants::set(None);
            built
        };
        let error = build(2).unwrap_err();
        assert!(error.to_string().contains("raise `ulimit -u`"), "{error}");
        let cache = build(3).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = cache.open(folder.path().join("f"), OpenMode::Create).unwrap();
        file.write_at(&[7; 100_000], 0).unwrap();
        file.sync_data().unwrap();
        cache.close().unwrap();
    }

    /// A write that succeeds after the cache has written all pages, and before it is closed,
    /// reaches the file.
    #[test]
    fn a_write_beside_a_close_is_written() {
        let files = MemoryFiles::new(1);
        let backend = BackendKind::Memory(files.clone());
        let cache = PageCache::builder(1 << 20).backend(backend).build().unwrap();
        let file = cache.open("f", OpenMode::Create).unwrap();
        // As in `close`.
        cache.sync().unwrap();
        file.write_at(b"late", 0).unwrap();
        cache.owner.end().unwrap().unwrap();
        assert_eq!(files.contents("f").unwrap(), b"late");
        assert!(matches!(file.write_at(b"too late", 0), Err(Error::Closed)));
    }

    /// A forked child drops its copy of a cache without a wait for threads that are not there. The
    /// cache of the parent goes on.
    #[test]
    fn a_copy_in_another_process_ends_at_once() {
        let files = MemoryFiles::new(1);
        let backend = BackendKind::Memory(files.clone());
        let mut cache = PageCache::builder(1 << 20).backend(backend).build().unwrap();
        let file = cache.open("f", OpenMode::Create).unwrap();
        let (shared, process) = (cache.shared.clone(), std::process::id());
        let copy =
            |workers| Owner { shared: shared.clone(), workers: Mutex::new(workers), process: !process };
        file.write_at(b"hello", 0).unwrap();
        // A write-back would not end.
        files.hold();
        let closed = PageCache { shared: shared.clone(), owner: Arc::new(copy(None)) }.close();
        assert!(matches!(closed, Err(Error::Closed)));
        // With the workers: the child believes that it has them.
        let parent = Arc::get_mut(&mut cache.owner).unwrap();
        let workers = parent.workers.get_mut().unwrap().take();
        drop(copy(workers));
        files.release();
        file.sync_all().unwrap();
        assert_eq!(files.contents("f").unwrap(), b"hello");
        Workers::tell_to_stop(&shared);
    }
}
