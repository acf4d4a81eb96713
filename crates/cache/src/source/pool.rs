//! Open sources, and the threads that hand reads and writes to them.
//!
//! # Locking
//!
//! The queue's lock comes before that of the table of [`Reads`]. They and `state` are held for a
//! few instructions, never while a source or a completion is called, and no other lock is taken
//! under them.

use super::reads::{Finish, Reads, Waiter};
use super::{BlockSource, RangeRequest};
use crate::backend::{Backend, BackendFile, Batch, Completion, Direction, FileIdentity, OpenMode, Transfer};
use crate::backend::{Queue, is_worker, join, spawn};
use crate::frames::{FRAME_BYTES, Frames};
use crate::tier::{SourceKey, Tier};
use crate::trace::slow_path;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that call sources. A source that answers before it returns is read by as many at once.
const THREADS: usize = 8;
/// Requests that may wait for a thread before submitters wait.
pub(super) const WAITING_MAX: usize = 1024;
/// Ranges in one call of a source.
const RANGES_MAX: usize = 64;
/// The device of sources in [`FileIdentity`]; no real one has this number.
const DEVICE: u64 = u64::MAX;

/// An open source, as a file of a backend.
pub(crate) struct SourceFile {
    source: Arc<dyn BlockSource>,
    path: PathBuf,
    /// The version that all bytes must have.
    version: Option<Arc<str>>,
    identity: FileIdentity,
    len: AtomicU64,
    /// The file's name in the disk tier, if that keeps it.
    pub(super) tier_key: Option<SourceKey>,
}

impl SourceFile {
    pub(super) fn bytes_at(&self, transfer: &Transfer) -> u64 {
        self.len.load(Ordering::Acquire).saturating_sub(transfer.offset).min(transfer.bytes as u64)
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
        self.source.set_len(bytes)?;
        self.len.store(bytes, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.source.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.source.sync()
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
        self.source.block_bytes().div_ceil(FRAME_BYTES as u64).max(1)
    }
}

/// The file as a source, if it is one.
pub(crate) fn source_of(file: &Arc<dyn BackendFile>) -> Option<Arc<SourceFile>> {
    let file: Arc<dyn Any + Send + Sync> = file.clone();
    file.downcast().ok()
}

enum Job {
    Read { number: u64, file: Arc<SourceFile>, offset: u64, bytes: u64 },
    Write { file: Arc<SourceFile>, transfer: Transfer, finish: Finish },
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
    threads: Vec<JoinHandle<()>>,
    /// Open files, by name and version.
    known: BTreeMap<(PathBuf, Option<Arc<str>>), Weak<SourceFile>>,
    next_inode: u64,
}

/// All sources of a cache.
pub(crate) struct Sources {
    pub(super) frames: Arc<Frames>,
    /// The disk tier, if there is one, and reads that look there.
    pub(crate) tier: Option<Arc<Tier>>,
    pub(super) looks: Queue<Look>,
    pub(crate) reads: Arc<Reads>,
    queue: Queue<Job>,
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
            tier,
            looks: Queue::new(WAITING_MAX),
            queue: Queue::new(WAITING_MAX),
            state: Mutex::default(),
            ranges: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a source: the file that is already open for its name and version, or a new one.
    pub(crate) fn open(self: &Arc<Self>, source: Arc<dyn BlockSource>) -> io::Result<Arc<SourceFile>> {
        let mut now = source.state()?;
        if source.is_writable() {
            now.version = None;
        }
        let path = PathBuf::from(source.name());
        let tier_key = self.tier_key(&*source, &now);
        let mut state = self.lock();
        let threads = 1 + THREADS + self.look_threads();
        while state.threads.len() < threads && !state.closed {
            let pool = self.clone();
            let thread = match state.threads.len() {
                0 => spawn("mglru-deadline", move || pool.reads.watch())?,
                1..=THREADS => spawn("mglru-source", move || pool.work())?,
                _ => spawn("mglru-tier-read", move || pool.look())?,
            };
            state.threads.push(thread);
        }
        let version: Option<Arc<str>> = now.version.map(Arc::from);
        let key = (path.clone(), version.clone());
        if let Some(known) = state.known.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        // Dead files are dropped whenever the map has doubled.
        if state.known.len().is_power_of_two() {
            state.known.retain(|_, file| file.strong_count() > 0);
        }
        let identity = FileIdentity { device: DEVICE, inode: state.next_inode };
        state.next_inode += 1;
        let len = AtomicU64::new(now.len);
        let file = Arc::new(SourceFile { source, path, version, identity, len, tier_key });
        state.known.insert(key, Arc::downgrade(&file));
        Ok(file)
    }

    /// Queues a transfer, whose end is reported once. Waits for room, except on a backend's thread.
    fn submit(&self, direction: Direction, transfer: Transfer, file: Arc<SourceFile>, finish: Finish) {
        transfer.assert_valid();
        if direction == Direction::Write {
            self.queue.push_with(|| Job::Write { file, transfer, finish });
            return;
        }
        let bytes = file.bytes_at(&transfer);
        if bytes == 0 {
            // Beyond the end: zeros, without asking.
            let number = self.reads.register(transfer, None, finish);
            return self.reads.answer(number, Ok(&[]), false);
        }
        match self.look_first(transfer, &file, finish) {
            Ok(()) => {}
            Err((transfer, finish)) => self.ask(transfer, file, bytes, finish),
        }
    }

    /// Queues a read of the source.
    pub(super) fn ask(&self, transfer: Transfer, file: Arc<SourceFile>, bytes: u64, finish: Finish) {
        let offset = transfer.offset;
        // The deadline counts from here on, not from before there was room.
        self.queue.push_with(|| {
            let number = self.reads.register(transfer, file.tier_key, finish);
            Job::Read { number, file, offset, bytes }
        });
    }

    /// Calls sources until the pool is closed and nothing waits.
    fn work(self: &Arc<Self>) {
        while let Some(job) = self.queue.pop() {
            let source = match job {
                Job::Write { file, transfer, finish } => {
                    let result = self.write(&file, &transfer);
                    drop(transfer);
                    drop(file);
                    self.reads.count_failure(&result);
                    self.queue.finish(|| self.reads.deliver(finish, result));
                    continue;
                }
                Job::Read { ref file, .. } => file.clone(),
            };
            // Other waiting reads of this source go into the same call.
            let same = |job: &Job| matches!(job, Job::Read { file, .. } if Arc::ptr_eq(file, &source));
            let others = self.queue.take_where(RANGES_MAX - 1, same);
            let requests = std::iter::once(job).chain(others).map(|job| match job {
                Job::Read { number, file, offset, bytes } => RangeRequest {
                    reads: self.reads.clone(),
                    number,
                    version: file.version.clone(),
                    range: offset..offset + bytes,
                    answered: false,
                },
                Job::Write { .. } => unreachable!("only reads are taken"),
            });
            let mut requests: Vec<RangeRequest> = requests.collect();
            // From here on the table counts them: a source may never return.
            requests.iter().for_each(|_| self.queue.finish(|| {}));
            requests.sort_by_key(|request| request.range.start);
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.ranges.fetch_add(requests.len() as u64, Ordering::Relaxed);
            slow_path!(
                "source",
                file = tracing::field::display(source.path.display()),
                ranges = requests.len(),
            );
            // Unanswered requests that a panic drops fail.
            let _ = catch_unwind(AssertUnwindSafe(|| source.source.read_ranges(requests)));
        }
    }

    /// Writes a run of pages.
    fn write(&self, file: &SourceFile, transfer: &Transfer) -> io::Result<usize> {
        let mut bytes = vec![0; transfer.frames.len() * FRAME_BYTES];
        for (&frame, out) in transfer.frames.iter().zip(bytes.chunks_mut(FRAME_BYTES)) {
            self.frames.copy_out(frame, 0, out);
        }
        bytes.truncate(transfer.bytes);
        let written = catch_unwind(AssertUnwindSafe(|| file.source.write(transfer.offset, &bytes)));
        written.unwrap_or_else(|_| Err(io::Error::other("the source panicked")))?;
        file.len.fetch_max(transfer.offset + transfer.bytes as u64, Ordering::AcqRel);
        Ok(transfer.bytes)
    }

    /// Waits until all reads and writes have ended, and what they gave to the disk tier is there.
    fn drain(&self) {
        // Looks that find too little ask the sources.
        self.looks.drain();
        self.queue.drain();
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
        let threads = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.looks.close();
        self.queue.close();
        self.reads.close();
        if let Some(tier) = &self.tier {
            tier.close();
        }
        // A source that does not return keeps its thread and what that refers to. The deadline has
        // ended its reads.
        threads.into_iter().filter(|thread| thread.is_finished()).for_each(join);
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
            Some(_) => self.sources.queue.has_room() && self.sources.looks.has_room(),
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
}

impl Drop for WithSources {
    fn drop(&mut self) {
        self.sources.close();
    }
}
