//! Open sources, and the calls of them.
//!
//! Every call of a source that may block has a deadline ([`crate::Builder::source_deadline`]). A
//! write, truncation or sync that has not returned by then fails. It may still take effect later;
//! so nothing else changes that source until it has returned.
//!
//! # Locking
//!
//! The lock of [`Calls`] comes before that of the table of [`Reads`]. They and `state` are held for
//! a few instructions, never while a source or a completion is called, and no other lock is taken
//! under them.

use super::calls::{Calls, WAITING_MAX};
use super::reads::{Finish, Reads, Shortest, Waiter};
use super::{BlockSource, RangeRequest};
use crate::backend::{Backend, BackendFile, Batch, Completion, Direction, FileIdentity, OpenMode, Transfer};
use crate::backend::{PoolThreads, Queue, drop_caught, is_worker, join, spawn};
use crate::frames::{FRAME_BYTES, Frames};
use crate::tier::{SourceKey, Tier};
use crate::trace::slow_path;
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ranges in one call of a source.
const RANGES_MAX: usize = 64;
/// Threads that read the disk tier: as many reads as a disk is good at, and apart from those that
/// a source may keep busy.
const LOOKERS: usize = 4;
/// The device of sources in [`FileIdentity`]; no real one has this number.
const DEVICE: u64 = u64::MAX;

thread_local! {
    /// The file whose source this thread has asked for ranges, while it does.
    static ASKED: Cell<*const SourceFile> = const { Cell::new(ptr::null()) };
}

/// Refuses to wait for pages of a file in the call that is to bring them in: each such wait would
/// end at the deadline, and then ask for the pages again.
pub(crate) fn refuse_in_own_call(file: &Arc<dyn BackendFile>) -> io::Result<()> {
    if !ptr::addr_eq(ASKED.get(), Arc::as_ptr(file)) {
        return Ok(());
    }
    let what = "the source reads its own pages while it is asked for them, and would wait for itself: read the \
                bytes from where they are stored";
    Err(io::Error::new(io::ErrorKind::Deadlock, what))
}

/// The calls that change a source.
#[derive(Default)]
struct Changing {
    /// The deadlines of those under way.
    deadlines: Vec<Instant>,
    /// How many have returned. [`SourceFile::len`] changes under the same lock.
    ended: u64,
    /// The lengths that truncations under way set.
    cutting: Vec<u64>,
    /// For each read under way, perhaps of earlier ones too, its [`Shortest`].
    reading: Vec<Weak<AtomicU64>>,
}

/// An open source, as a file of a backend.
pub(crate) struct SourceFile {
    /// Present until the file is dropped.
    source: Option<Arc<dyn BlockSource>>,
    path: PathBuf,
    /// The version that all bytes must have.
    version: Option<Arc<str>>,
    is_writable: bool,
    /// The preferred size of reads. The source is not asked again later, under locks of the cache.
    block_pages: u64,
    identity: FileIdentity,
    len: AtomicU64,
    changing: Mutex<Changing>,
    /// The file's name in the disk tier, if that keeps it.
    pub(super) tier_key: Option<SourceKey>,
    pool: Weak<Sources>,
    this: Weak<SourceFile>,
}

impl SourceFile {
    fn source(&self) -> &dyn BlockSource {
        &**self.source.as_ref().expect("only `drop` takes it")
    }

    pub(super) fn bytes_at(&self, transfer: &Transfer) -> u64 {
        self.len.load(Ordering::Acquire).saturating_sub(transfer.offset).min(transfer.bytes as u64)
    }

    /// Whether the source that the file was opened with can be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Begins to note truncations for a read.
    fn note_cuts(&self) -> Shortest {
        if !self.is_writable {
            return None;
        }
        let mut changing = self.changing();
        let shortest = Arc::new(AtomicU64::new(changing.cutting.iter().copied().min().unwrap_or(u64::MAX)));
        if changing.reading.len().is_power_of_two() {
            changing.reading.retain(|read| read.strong_count() > 0);
        }
        changing.reading.push(Arc::downgrade(&shortest));
        Some(shortest)
    }

    /// Truncates the source.
    fn cut(&self, deadline: Instant, bytes: u64) -> io::Result<()> {
        {
            let mut changing = self.changing();
            changing.cutting.push(bytes);
            for read in changing.reading.iter().filter_map(Weak::upgrade) {
                read.fetch_min(bytes, Ordering::Relaxed);
            }
        }
        let result = self.change(deadline, |source| source.set_len(bytes), |_| bytes);
        let mut changing = self.changing();
        let own = changing.cutting.iter().position(|len| *len == bytes).expect("it was added above");
        changing.cutting.swap_remove(own);
        result
    }

    /// The file as its pool knows it.
    fn this(&self) -> io::Result<Arc<SourceFile>> {
        self.this.upgrade().ok_or_else(|| io::Error::other("the source is closed"))
    }

    fn changing(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adopts the length that the source has now. For a file that no handle had: while one is open,
    /// changes by other programs are not seen.
    ///
    /// # Errors
    /// The source's error, or it does not answer.
    pub(crate) fn look_again(self: &Arc<Self>) -> io::Result<()> {
        if self.version.is_some() {
            return Ok(());
        }
        let pool = self.pool.upgrade().ok_or_else(|| io::Error::other("the cache is closed"))?;
        loop {
            let ended = self.changing().ended;
            let file = self.clone();
            let now = pool.call(&self.path, "say its state", move |_| file.source().state())?;
            let changing = self.changing();
            // A write of this cache may have ended behind the source's back. One that ends later
            // raises the length itself.
            if changing.ended == ended {
                self.len.store(now.len, Ordering::Release);
                return Ok(());
            }
        }
    }

    /// Makes a call that changes the source. Refused after its deadline, and while an earlier one
    /// has not returned although its deadline has passed: that one could overwrite this one. If the
    /// call succeeds, also after its deadline, `len_after` says the file's length from the former
    /// one: the cache then sees that the file has another length.
    fn change(
        &self,
        deadline: Instant,
        call: impl FnOnce(&dyn BlockSource) -> io::Result<()>,
        len_after: impl FnOnce(u64) -> u64,
    ) -> io::Result<()> {
        {
            let mut changing = self.changing();
            let now = Instant::now();
            if deadline <= now || changing.deadlines.iter().any(|deadline| *deadline <= now) {
                let what = "an earlier write or truncation of the source has not returned";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            changing.deadlines.push(deadline);
        }
        let result = catch_unwind(AssertUnwindSafe(|| call(self.source())));
        let result = result.unwrap_or_else(|_| Err(io::Error::other("the source panicked")));
        let mut changing = self.changing();
        let own = changing.deadlines.iter().position(|known| *known == deadline);
        changing.deadlines.swap_remove(own.expect("it was added above"));
        changing.ended += 1;
        if result.is_ok() {
            self.len.store(len_after(self.len.load(Ordering::Acquire)), Ordering::Release);
        }
        drop(changing);
        // Before the file can be dropped: an open finds either the file or this.
        if let Some(pool) = self.pool.upgrade() {
            pool.lock().changes += 1;
        }
        result
    }

    /// Calls the source on a thread of the pool and waits until the deadline.
    fn call(
        self: &Arc<Self>,
        doing: &str,
        work: impl FnOnce(&SourceFile, Instant) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let pool = self.pool.upgrade().ok_or_else(|| io::Error::other("the cache is closed"))?;
        let file = self.clone();
        pool.call(&self.path, doing, move |deadline| work(&file, deadline))
    }
}

/// The last reference may be dropped on a thread of the cache, where a panic of the source would
/// abort the process.
impl Drop for SourceFile {
    fn drop(&mut self) {
        drop_caught(self.source.take());
    }
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceFile")
            .field("source", &self.source)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl BackendFile for SourceFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Ordering::Acquire))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.this()?.call("change its length", move |file, deadline| file.cut(deadline, bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.this()?.call("sync", |file, _| file.source().sync())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn block_pages(&self) -> u64 {
        self.block_pages
    }
}

/// The file as a source, if it is one.
pub(crate) fn source_of(file: &Arc<dyn BackendFile>) -> Option<Arc<SourceFile>> {
    let file: Arc<dyn Any + Send + Sync> = file.clone();
    file.downcast().ok()
}

enum Job {
    Read { number: u64, file: Arc<SourceFile>, range: Range<u64>, shortest: Shortest },
    Write { number: u64, file: Arc<SourceFile>, deadline: Instant },
    Call(Box<dyn FnOnce() + Send>),
}

/// A read of which the tier has something.
pub(super) struct Look {
    pub(super) transfer: Transfer,
    pub(super) file: Arc<SourceFile>,
    pub(super) key: SourceKey,
    pub(super) finish: Finish,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// Fails what is late.
    watcher: Option<JoinHandle<()>>,
    /// Open files, by name and version.
    known: BTreeMap<(PathBuf, Option<Arc<str>>), Weak<SourceFile>>,
    next_inode: u64,
    /// Calls that changed a source and have returned.
    changes: u64,
}

/// All sources of a cache.
pub(crate) struct Sources {
    pub(super) frames: Arc<Frames>,
    /// The disk tier, if there is one, and reads that look there.
    pub(crate) tier: Option<Arc<Tier>>,
    pub(super) looks: Queue<Look>,
    pub(super) lookers: PoolThreads,
    pub(crate) reads: Arc<Reads>,
    calls_of: Calls<Job>,
    state: Mutex<State>,
    pub(crate) ranges: AtomicU64,
    pub(crate) calls: AtomicU64,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl Sources {
    /// A pool without threads; the first source that is opened starts them.
    pub(crate) fn new(
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
        deadline: Duration,
        tier: Option<Arc<Tier>>,
    ) -> Arc<Sources> {
        Arc::new(Sources {
            reads: Arc::new(Reads::new(frames.clone(), completion, deadline, tier.clone())),
            frames,
            lookers: PoolThreads::new(if tier.is_some() { LOOKERS } else { 0 }),
            tier,
            looks: Queue::new(WAITING_MAX),
            calls_of: Calls::new(),
            state: Mutex::default(),
            ranges: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a source: the file that is known for its name and version, or a new one. Says whether
    /// its length may be an old one: the file is known, or another one of this source may have been
    /// written and forgotten while the source was asked.
    pub(crate) fn open(
        self: &Arc<Self>,
        source: Arc<dyn BlockSource>,
    ) -> io::Result<(Arc<SourceFile>, bool)> {
        let path = PathBuf::from(source.name());
        let block_pages = source.block_bytes().div_ceil(FRAME_BYTES as u64);
        if block_pages == 0 {
            let what = "the source asks for blocks of 0 bytes: let `block_bytes` be 4096 or more";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.calls_of.start(&|| self.start_worker())?;
        let asked = source.clone();
        let changes = self.lock().changes;
        let mut now = self.call(&path, "say its state", move |_| asked.state())?;
        let is_writable = source.is_writable();
        if is_writable {
            now.version = None;
        }
        let tier_key = self.tier_key(&*source, &now);
        let mut state = self.lock();
        if state.watcher.is_none() && !state.closed {
            let pool = self.clone();
            let watch = move || pool.reads.watch(|now| pool.expire(now));
            state.watcher = Some(spawn("mglru-deadline", watch)?);
        }
        // Without one, the tier is read by the threads that want its pages.
        let _ = self.lookers.start_up_to(1, || self.start_looker());
        let version: Option<Arc<str>> = now.version.map(Arc::from);
        let key = (path.clone(), version.clone());
        if let Some(known) = state.known.get(&key).and_then(Weak::upgrade) {
            return Ok((known, true));
        }
        // Dead files are dropped whenever the map has doubled.
        if state.known.len().is_power_of_two() {
            state.known.retain(|_, file| file.strong_count() > 0);
        }
        let identity = FileIdentity { device: DEVICE, inode: state.next_inode };
        state.next_inode += 1;
        let len = AtomicU64::new(now.len);
        let pool = Arc::downgrade(self);
        let changing = Mutex::default();
        let file = Arc::new_cyclic(|this| SourceFile {
            source: Some(source),
            path,
            version,
            is_writable,
            block_pages,
            identity,
            len,
            changing,
            tier_key,
            pool,
            this: this.clone(),
        });
        state.known.insert(key, Arc::downgrade(&file));
        Ok((file, state.changes != changes))
    }

    /// Drops calls that wait although their deadline has passed, with what they hold of sources.
    fn expire(&self, now: Instant) {
        self.calls_of.expire(now).into_iter().for_each(drop_caught);
    }

    fn start_worker(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let pool = self.clone();
        spawn("mglru-source", move || pool.work())
    }

    fn push(self: &Arc<Self>, name: &Path, make: impl FnOnce() -> (Instant, Job)) {
        self.calls_of.push(name, &|| self.start_worker(), make);
    }

    /// Does work that calls the source of this name, on a thread of the pool, and waits until the
    /// deadline, with which the work is called.
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        name: &Path,
        doing: &str,
        work: impl FnOnce(Instant) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = sync_channel(1);
        let deadline = self.reads.deadline();
        let work = move || {
            let _ = sender.send(work(deadline));
        };
        self.push(name, || (deadline, Job::Call(Box::new(work))));
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) if Instant::now() < deadline => {
                Err(io::Error::other("the source panicked"))
            }
            Err(_) => {
                self.expire(Instant::now());
                Err(self.reads.timed_out(doing))
            }
        }
    }

    /// Queues a transfer, whose end is reported once. Waits for room, except on a backend's thread.
    fn submit(
        self: &Arc<Self>,
        direction: Direction,
        transfer: Transfer,
        file: Arc<SourceFile>,
        finish: Finish,
    ) {
        transfer.assert_valid();
        if direction == Direction::Write {
            let path = file.path.clone();
            return self.push(&path, || {
                let (number, deadline) = self.reads.register(direction, transfer, None, finish);
                (deadline, Job::Write { number, file, deadline })
            });
        }
        // Before the length is read, which a truncation may change at once.
        let shortest = file.note_cuts();
        let bytes = file.bytes_at(&transfer);
        if bytes == 0 {
            // Beyond the end: zeros, without asking.
            let (number, _) = self.reads.register(direction, transfer, None, finish);
            return self.reads.answer(number, Ok(&[]), false);
        }
        match self.look_first(transfer, &file, finish) {
            Ok(()) => {}
            Err((transfer, finish)) => self.ask(transfer, file, bytes, shortest, finish),
        }
    }

    /// Queues a read of the source.
    pub(super) fn ask(
        self: &Arc<Self>,
        transfer: Transfer,
        file: Arc<SourceFile>,
        bytes: u64,
        shortest: Shortest,
        finish: Finish,
    ) {
        let range = transfer.offset..transfer.offset + bytes;
        let path = file.path.clone();
        // The deadline counts from here on, not from before there was room.
        self.push(&path, || {
            let (number, deadline) = self.reads.register(Direction::Read, transfer, file.tier_key, finish);
            (deadline, Job::Read { number, file, range, shortest })
        });
    }

    /// Calls sources until the pool is closed and nothing waits.
    fn work(self: &Arc<Self>) {
        // Other waiting reads of the same source go into the same call.
        let same = |a: &Job, b: &Job| match (a, b) {
            (Job::Read { file: a, .. }, Job::Read { file: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        };
        while let Some((name, jobs)) = self.calls_of.take(RANGES_MAX, &|| self.start_worker(), same) {
            let mut requests = Vec::new();
            let mut source = None;
            for job in jobs {
                match job {
                    Job::Write { number, file, deadline } => self.write(number, file, deadline),
                    // After a panic the thread that waits sees that the work is gone.
                    Job::Call(work) => drop(catch_unwind(AssertUnwindSafe(work))),
                    Job::Read { number, file, range, shortest } => {
                        let (reads, version) = (self.reads.clone(), file.version.clone());
                        let answered = false;
                        requests.push(RangeRequest { reads, number, version, range, shortest, answered });
                        source = Some(file);
                    }
                }
            }
            if let Some(source) = source {
                self.read(&source, requests);
            }
            self.calls_of.end(&name);
        }
    }

    fn read(&self, file: &SourceFile, mut requests: Vec<RangeRequest>) {
        requests.sort_by_key(|request| request.range.start);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ranges.fetch_add(requests.len() as u64, Ordering::Relaxed);
        slow_path!("source", file = tracing::field::display(file.path.display()), ranges = requests.len());
        ASKED.set(file);
        // Unanswered requests that a panic drops fail.
        let _ = catch_unwind(AssertUnwindSafe(|| file.source().read_ranges(requests)));
        ASKED.set(ptr::null());
    }

    /// Writes a run of pages, unless it has failed meanwhile.
    fn write(&self, number: u64, file: Arc<SourceFile>, deadline: Instant) {
        let Some((offset, bytes)) = self.reads.copy_out(number) else { return };
        let end = offset + bytes.len() as u64;
        let written = file.change(deadline, |source| source.write(offset, &bytes), |len| len.max(end));
        // The file's handle is closed before the completion says that it is not needed any more.
        drop(file);
        self.reads.written(number, written.map(|()| bytes.len()));
    }

    /// Waits until all reads and writes have ended, and what they gave to the disk tier is there.
    fn drain(&self) {
        // Looks that find too little ask the sources.
        self.looks.drain();
        self.reads.drain();
        if let Some(tier) = &self.tier {
            tier.drain();
        }
    }

    /// Ends the threads, except those that a source does not return from.
    fn close(&self) {
        // A backend's thread, which a completion made drop the pool, must not wait for completions.
        if !is_worker() {
            self.drain();
        }
        let watcher = {
            let mut state = self.lock();
            state.closed = true;
            state.watcher.take()
        };
        self.looks.close();
        let lookers = self.lookers.close();
        let callers = self.calls_of.close();
        self.reads.close();
        if let Some(tier) = &self.tier {
            tier.close();
        }
        // A source that does not return keeps its thread and what that refers to. The deadline has
        // ended its reads.
        let threads = watcher.into_iter().chain(lookers).chain(callers);
        threads.filter(|thread| thread.is_finished()).for_each(join);
    }
}

/// A backend for files and sources: `files` transfers pages of files.
pub(crate) struct WithSources {
    pub(crate) files: Arc<dyn Backend>,
    pub(crate) sources: Arc<Sources>,
}

impl WithSources {
    fn wait(&self, direction: Direction, transfer: &Transfer, file: Arc<SourceFile>) -> io::Result<usize> {
        let waiter = Arc::new(Waiter::default());
        self.sources.submit(direction, transfer.clone(), file, Finish::Waiter(waiter.clone()));
        waiter.wait()
    }
}

impl Backend for WithSources {
    fn name(&self) -> &'static str {
        self.files.name()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BackendFile>> {
        self.files.open(path, mode)
    }

    fn create_swap(&self, path: &Path) -> io::Result<Arc<dyn BackendFile>> {
        self.files.create_swap(path)
    }

    fn read(&self, transfer: &Transfer) -> io::Result<usize> {
        match source_of(&transfer.file) {
            Some(file) => self.wait(Direction::Read, transfer, file),
            None => self.files.read(transfer),
        }
    }

    fn write(&self, transfer: &Transfer) -> io::Result<usize> {
        match source_of(&transfer.file) {
            Some(file) => self.wait(Direction::Write, transfer, file),
            None => self.files.write(transfer),
        }
    }

    fn read_many(&self, depth: usize, batch: &mut dyn Batch) -> bool {
        self.files.read_many(depth, batch)
    }

    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64) {
        match source_of(&transfer.file) {
            Some(file) => self.sources.submit(direction, transfer, file, Finish::Tag(tag)),
            None => self.files.submit(direction, transfer, tag),
        }
    }

    fn has_room(&self, file: &Arc<dyn BackendFile>) -> bool {
        match source_of(file) {
            Some(file) => self.sources.calls_of.has_room(&file.path) && self.sources.looks.has_room(),
            None => self.files.has_room(file),
        }
    }

    fn drain(&self) {
        self.files.drain();
        self.sources.drain();
    }

    fn registered_buffers(&self) -> bool {
        self.files.registered_buffers()
    }

    fn threads_refused(&self) -> usize {
        self.files.threads_refused() + self.sources.lookers.refused()
    }
}

impl Drop for WithSources {
    fn drop(&mut self) {
        self.sources.close();
    }
}
