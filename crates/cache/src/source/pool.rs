//! Reads and writes of sources under way, and the threads that hand them to the sources.
//!
//! A read is registered when it is submitted, under a number, and ends once: by its answer or by
//! its deadline, whichever removes it from the table first. Only then are frames written, so a late
//! answer touches nothing.
//!
//! # Locking
//!
//! The queue's lock comes before `state`. Both are held for a few instructions, never while a
//! source or a completion is called, and no other lock is taken under them.

use super::tiered::{Join, Look};
use super::{BlockSource, RangeRequest};
use crate::backend::{Backend, BackendFile, Batch, Completion, Direction, FileIdentity, OpenMode, Transfer};
use crate::backend::{Queue, is_worker, join, spawn, zero_rest};
use crate::frames::{FRAME_BYTES, Frames};
use crate::tier::{SourceKey, Tier};
use crate::trace::slow_path;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    version: Option<String>,
    identity: FileIdentity,
    len: AtomicU64,
    /// The file's name in the disk tier, if that keeps it.
    pub(super) tier_key: Option<SourceKey>,
}

impl SourceFile {
    pub(super) fn bytes_at(&self, transfer: &Transfer) -> u64 {
        self.len.load(Ordering::Acquire).saturating_sub(transfer.offset).min(transfer.bytes as u64)
    }

    /// The version that all bytes must have.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The preferred size of reads, in pages.
    pub(crate) fn block_pages(&self) -> u64 {
        self.source.block_bytes().div_ceil(FRAME_BYTES as u64).max(1)
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

    fn source(self: Arc<Self>) -> Option<Arc<SourceFile>> {
        Some(self)
    }
}

/// Receiver of a transfer's result.
pub(super) enum Finish {
    /// The cache, by the transfer's tag.
    Tag(u64),
    /// A thread that waits.
    Waiter(Arc<Waiter>),
    /// A transfer of which this is a part.
    Part(Arc<Join>),
}

#[derive(Default)]
pub(super) struct Waiter {
    result: Mutex<Option<io::Result<usize>>>,
    set: Condvar,
}

impl Waiter {
    fn wait(&self) -> io::Result<usize> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let set = self.set.wait_while(result, |result| result.is_none());
        set.unwrap_or_else(PoisonError::into_inner).take().expect("it was waited for")
    }
}

/// A read that has no answer yet.
struct UnderWay {
    transfer: Transfer,
    finish: Finish,
    deadline: Instant,
}

enum Job {
    Read { number: u64, file: Arc<SourceFile>, offset: u64, bytes: u64 },
    Write { file: Arc<SourceFile>, transfer: Transfer, finish: Finish },
}

#[derive(Default)]
struct State {
    reads: BTreeMap<u64, UnderWay>,
    next: u64,
    closed: bool,
    threads: Vec<JoinHandle<()>>,
    /// Open files, by name and version.
    known: BTreeMap<(PathBuf, Option<String>), Weak<SourceFile>>,
    next_inode: u64,
}

/// All sources of a cache.
pub(crate) struct Sources {
    pub(super) frames: Arc<Frames>,
    /// The disk tier, if there is one, and reads that look there.
    pub(crate) tier: Option<Arc<Tier>>,
    pub(super) looks: Queue<Look>,
    completion: Arc<dyn Completion>,
    deadline: Duration,
    queue: Queue<Job>,
    state: Mutex<State>,
    /// Signalled when a read is registered in an empty table, or the pool is closed.
    registered: Condvar,
    pub(crate) ranges: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("deadline", &self.deadline).finish_non_exhaustive()
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
            frames,
            tier,
            looks: Queue::new(WAITING_MAX),
            completion,
            deadline,
            queue: Queue::new(WAITING_MAX),
            state: Mutex::default(),
            registered: Condvar::new(),
            ranges: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
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
                0 => spawn("mglru-deadline", move || pool.watch())?,
                1..=THREADS => spawn("mglru-source", move || pool.work())?,
                _ => spawn("mglru-tier-read", move || pool.look())?,
            };
            state.threads.push(thread);
        }
        let key = (path.clone(), now.version.clone());
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
        let version = now.version;
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
            self.queue.begin();
            let number = self.register(transfer, finish);
            return self.answer(number, Ok(&[]), false);
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
            let number = self.register(transfer, finish);
            Job::Read { number, file, offset, bytes }
        });
    }

    /// Enters a read into the table. Returns its number.
    fn register(&self, transfer: Transfer, finish: Finish) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let deadline = Instant::now() + self.deadline;
        if state.reads.is_empty() {
            self.registered.notify_one();
        }
        state.reads.insert(number, UnderWay { transfer, finish, deadline });
        number
    }

    /// Calls sources until the pool is closed and nothing waits.
    fn work(self: &Arc<Self>) {
        while let Some(job) = self.queue.pop() {
            let source = match job {
                Job::Write { file, transfer, finish } => {
                    let result = self.write(&file, &transfer);
                    drop(transfer);
                    drop(file);
                    self.end(finish, result);
                    continue;
                }
                Job::Read { ref file, .. } => file.clone(),
            };
            // Other waiting reads of this source go into the same call.
            let same = |job: &Job| matches!(job, Job::Read { file, .. } if Arc::ptr_eq(file, &source));
            let others = self.queue.take_where(RANGES_MAX - 1, same);
            let requests = std::iter::once(job).chain(others).map(|job| match job {
                Job::Read { number, file, offset, bytes } => RangeRequest {
                    pool: self.clone(),
                    file,
                    number,
                    range: offset..offset + bytes,
                    answered: false,
                },
                Job::Write { .. } => unreachable!("only reads are taken"),
            });
            let mut requests: Vec<RangeRequest> = requests.collect();
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

    pub(super) fn is_wanted(&self, number: u64) -> bool {
        self.lock().reads.contains_key(&number)
    }

    /// Ends a read, unless it has ended. `is_known`: the source said of which version the bytes
    /// are.
    pub(super) fn answer(&self, number: u64, answer: io::Result<&[u8]>, is_known: bool) {
        let Some(UnderWay { transfer, finish, .. }) = self.lock().reads.remove(&number) else { return };
        let stored = answer.as_ref().ok().copied().filter(|_| is_known);
        let stored = stored.and_then(|bytes| Some((self.tier_key_of(&transfer)?, transfer.offset, bytes)));
        let result = answer.map(|bytes| {
            for (&frame, part) in transfer.frames.iter().zip(bytes.chunks(FRAME_BYTES)) {
                self.frames.copy_in(frame, 0, part);
            }
            zero_rest(&self.frames, &transfer, bytes.len());
            self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            bytes.len()
        });
        // The file's handle is closed before the completion says that it is not needed any more.
        drop(transfer);
        self.count_failure(&result);
        self.queue.finish(|| {
            self.deliver(finish, result);
            // Readers go on meanwhile.
            if let (Some((key, offset, bytes)), Some(tier)) = (stored, &self.tier) {
                tier.offer(key, offset, bytes);
            }
        });
    }

    /// Reports the result of a transfer and counts it as finished.
    fn end(&self, finish: Finish, result: io::Result<usize>) {
        self.count_failure(&result);
        self.queue.finish(|| self.deliver(finish, result));
    }

    fn count_failure(&self, result: &io::Result<usize>) {
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports the result of a transfer.
    pub(super) fn deliver(&self, finish: Finish, result: io::Result<usize>) {
        match finish {
            Finish::Tag(tag) => self.completion.complete(tag, result),
            Finish::Waiter(waiter) => {
                *waiter.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                waiter.set.notify_one();
            }
            Finish::Part(join) => {
                if let Some((finish, result)) = join.end_part(result) {
                    self.deliver(finish, result);
                }
            }
        }
    }

    /// Fails reads whose deadline has passed.
    fn watch(&self) {
        let mut state = self.lock();
        loop {
            // Deadlines are in the order of numbers.
            let first = state.reads.first_key_value().map(|(&number, read)| (number, read.deadline));
            let Some((number, deadline)) = first else {
                if state.closed {
                    return;
                }
                state = self.registered.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                let what = format!("the source did not answer within {:?}", self.deadline);
                self.answer(number, Err(io::Error::new(io::ErrorKind::TimedOut, what)), false);
                state = self.lock();
            } else {
                let woken = self.registered.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Waits until all reads and writes have ended, and what they gave to the disk tier is there.
    fn drain(&self) {
        // Looks that find too little ask the sources.
        self.looks.drain();
        self.queue.drain();
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
        self.registered.notify_all();
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
        match transfer.file.clone().source() {
            Some(file) => self.wait(Direction::Read, transfer, file),
            None => self.files.read(transfer),
        }
    }

    fn write(&self, transfer: &Transfer) -> io::Result<usize> {
        match transfer.file.clone().source() {
            Some(file) => self.wait(Direction::Write, transfer, file),
            None => self.files.write(transfer),
        }
    }

    fn read_many(&self, depth: usize, batch: &mut dyn Batch) -> bool {
        self.files.read_many(depth, batch)
    }

    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64) {
        match transfer.file.clone().source() {
            Some(file) => self.sources.submit(direction, transfer, file, Finish::Tag(tag)),
            None => self.files.submit(direction, transfer, tag),
        }
    }

    fn has_room(&self, file: &Arc<dyn BackendFile>) -> bool {
        match file.clone().source() {
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
