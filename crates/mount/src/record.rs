//! Recording: what programs ask for becomes a trace.
//!
//! A thread that serves a request appends an event to its own buffer. One thread takes all buffers,
//! puts the events in the order of their times, turns them into text and writes them. If it cannot
//! keep up, requests wait; if it cannot write, the recording stops and the mount goes on.
//!
//! # Order
//!
//! The writer notes the time before it takes the first buffer, and writes the events before that
//! time. An event gets its time under its buffer's lock. So events that come later are not earlier.
//!
//! # Memory
//!
//! Events take a share of the budget, which is reserved at the start. Names and numbers of files
//! are reserved as they are added.
//!
//! # Locking
//!
//! `files` comes before `names`. These and the buffers are leaves otherwise: no two are held
//! together.

use crate::error::Error;
use crate::node::{Identity, Node};
use mglru_cache::{Reserved, Tenant};
use mglru_watch::Requests;
use mglru_workload::PAGE_BYTES;
use mglru_workload::trace::{LoggedRequest, RequestKind, RequestLog, TraceError};
use rustix::fs::readlink;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Buffers: a power of two, and at least as many as threads that serve a mount by default.
const BUFFERS: usize = 16;
/// Events in a buffer after which the writer is woken, unless buffers are too small for as many.
const BATCH_MAX: usize = 2048;
/// Events of a buffer, since the beginning, after which [`Recording::add`] returns `true`.
const NOTED: usize = 64;
/// Events take one part of the budget in as many.
const SHARE: u64 = 16;
/// Most events of a buffer with every budget. With more, a slow disk would only be noticed later.
const EVENTS_MAX: usize = (1 << 18) / BUFFERS;
/// Least events of a buffer: few, so that the smallest budgets have room for them.
const EVENTS_MIN: usize = 64;
/// Copies of all events that can be in memory: in buffers, taken from them, and half as many while
/// those are sorted.
const HALF_COPIES: usize = 5;
/// Bytes that are kept of a file without its name, which is kept twice: tables' room included.
const FILE_BYTES: u64 = 256;
/// Bytes for files that are reserved at once.
const CHUNK_BYTES: u64 = 64 << 10;
/// How long events may stay in memory.
const FLUSH: Duration = Duration::from_secs(1);

/// Counts of requests.
#[derive(Default)]
pub(crate) struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counts {
    pub(crate) fn add(&self, kind: RequestKind, bytes: u64) {
        let (number, sum) = match kind {
            RequestKind::Read => (&self.reads, &self.read_bytes),
            RequestKind::Write => (&self.writes, &self.written_bytes),
            RequestKind::Sync | RequestKind::DataSync => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                return;
            }
            RequestKind::Trim => return,
        };
        number.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Requests {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut requests = Requests::default();
        requests.reads = of(&self.reads);
        requests.writes = of(&self.writes);
        requests.syncs = of(&self.syncs);
        requests.read_bytes = of(&self.read_bytes);
        requests.written_bytes = of(&self.written_bytes);
        requests
    }
}

/// A file that the log does not name yet.
struct NewName {
    at: Duration,
    name: Vec<u8>,
}

/// Events that are not taken yet.
#[derive(Default)]
struct Events {
    list: Vec<LoggedRequest>,
    /// Number of events since the beginning.
    added: usize,
}

/// The events of some threads.
#[derive(Default)]
// Two cache lines, which processors load together.
#[repr(align(128))]
struct Buffer {
    events: Mutex<Events>,
    /// The buffer was emptied.
    emptied: Condvar,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state for which the writer waits.
#[derive(Default)]
struct Work {
    /// A buffer has enough.
    is_there: bool,
    ended: bool,
    /// There is no memory for the name of another file.
    is_short: bool,
}

/// Files of the trace.
#[derive(Default)]
struct Files {
    numbers: HashMap<Identity, u32>,
    next: u32,
    used_bytes: u64,
    /// Each has `CHUNK_BYTES`.
    reserved: Vec<Reserved>,
}

/// Most events of a buffer, a power of two, and the memory of all buffers with it, in bytes.
fn sizes(budget_bytes: u64) -> (usize, u64) {
    let one = (BUFFERS * HALF_COPIES * size_of::<LoggedRequest>() / 2) as u64;
    let events = (budget_bytes / SHARE / one).clamp(EVENTS_MIN as u64, EVENTS_MAX as u64);
    let events = 1 << events.ilog2();
    (events, events as u64 * one)
}

struct State {
    path: PathBuf,
    begun: Instant,
    root: Tenant,
    files: Mutex<Files>,
    /// In the order of their numbers.
    names: Mutex<Vec<NewName>>,
    buffers: [Buffer; BUFFERS],
    /// Most events of a buffer, a power of two.
    events_max: usize,
    /// Events of a buffer after which the writer is woken.
    batch: usize,
    work: Mutex<Work>,
    changed: Condvar,
    stopped: AtomicBool,
}

/// The buffer of this thread.
fn number_of_buffer() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed) % BUFFERS;
    }
    NUMBER.with(|number| *number)
}

impl State {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, Vec<NewName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, wake: impl FnOnce(&mut Work)) {
        wake(&mut self.work());
        self.changed.notify_all();
    }

    /// Writes events until the recording ends.
    fn write(&self, log: RequestLog) -> Result<(), TraceError> {
        let written = self.write_all(log);
        if written.is_err() {
            self.stopped.store(true, Ordering::Release);
            self.names().clear();
            for buffer in &self.buffers {
                // Requests may wait for room.
                buffer.lock().list = Vec::new();
                buffer.emptied.notify_all();
            }
        }
        written
    }

    fn write_all(&self, mut log: RequestLog) -> Result<(), TraceError> {
        // Events that were taken, and an empty vector to leave in a buffer, so that requests do not
        // wait for memory.
        let (mut taken, mut empty) = (Vec::with_capacity(BUFFERS * self.events_max), Vec::new());
        loop {
            let ended = {
                let is_idle = |work: &mut Work| !work.ended && !work.is_there && !work.is_short;
                let waited = self.changed.wait_timeout_while(self.work(), FLUSH, is_idle);
                let (mut work, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if work.is_short {
                    let what = "the cache has no memory for the names of more files: the recording ends here";
                    let source = io::Error::new(io::ErrorKind::OutOfMemory, what);
                    return Err(TraceError::Io { path: self.path.clone(), source });
                }
                work.is_there = false;
                work.ended
            };
            let until = self.begun.elapsed();
            for buffer in &self.buffers {
                let mut events = buffer.lock();
                std::mem::swap(&mut events.list, &mut empty);
                drop(events);
                if empty.len() >= self.events_max {
                    buffer.emptied.notify_all();
                }
                taken.append(&mut empty);
            }
            // The buffers are in order, and a stable sort merges them.
            taken.sort_by_key(|event: &LoggedRequest| event.at);
            let due = if ended { taken.len() } else { taken.partition_point(|event| event.at < until) };
            for NewName { at, name } in std::mem::take(&mut *self.names()) {
                log.name(at, &name);
            }
            log.write(&taken[..due])?;
            taken.drain(..due);
            if ended {
                return log.finish();
            }
        }
    }
}

/// Where to record what programs ask for.
pub struct RecordOptions {
    /// The trace: a new file, an empty one, or a device. The extensions `.gz`, `.xz` and `.zst`
    /// compress.
    pub path: PathBuf,
    /// Called with the reason if the recording has to stop early.
    pub failed: Box<dyn FnOnce(&str) + Send>,
}

/// A trace that is being recorded.
pub(crate) struct Recording {
    state: Arc<State>,
    writer: JoinHandle<Result<(), TraceError>>,
    /// For the events.
    _reserved: Reserved,
}

impl Recording {
    /// Starts a recording in the memory of `root`, the tenant with a budget of `budget_bytes`.
    ///
    /// # Errors
    /// [`Error::Usage`]: the file cannot be created or has content, the budget has no room, or no
    /// thread can be started.
    pub(crate) fn start(record: RecordOptions, root: Tenant, budget_bytes: u64) -> Result<Recording, Error> {
        let RecordOptions { path, failed } = record;
        let (events_max, bytes) = sizes(budget_bytes);
        let reserved = root.reserve(bytes).map_err(|_| {
            let what = "the memory of the cache has no room for a recording: choose more memory";
            Error::usage(format_args!("{}: {what}", path.display()))
        })?;
        let log = RequestLog::create(&path).map_err(Error::usage)?;
        let state = Arc::new(State {
            path,
            begun: Instant::now(),
            root,
            files: Mutex::default(),
            names: Mutex::default(),
            buffers: Default::default(),
            events_max,
            batch: BATCH_MAX.min(events_max / 2),
            work: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        });
        let writing = state.clone();
        let write = move || writing.write(log).inspect_err(|error| failed(&error.to_string()));
        let writer = std::thread::Builder::new().name("mglru-record".to_owned()).spawn(write);
        let writer = writer.map_err(|error| Error::usage(format_args!("cannot start a thread: {error}")))?;
        Ok(Recording { state, writer, _reserved: reserved })
    }

    /// Where the trace is written.
    pub(crate) fn path(&self) -> &Path {
        &self.state.path
    }

    /// The number of a file in the trace.
    pub(crate) fn file(&self, node: &Node, directory: &Path) -> u32 {
        let mut files = self.files();
        if let Some(&number) = files.numbers.get(&node.identity) {
            return number;
        }
        let path = node.hold().ok().and_then(|held| readlink(held.path(), Vec::new()).ok());
        let path = path.map(|path| path.into_bytes()).unwrap_or_default();
        let name = path.strip_prefix(directory.as_os_str().as_bytes()).unwrap_or(&path);
        let name = name.strip_prefix(b"/").unwrap_or(name).to_vec();
        files.used_bytes += 2 * name.len() as u64 + FILE_BYTES;
        if files.used_bytes > files.reserved.len() as u64 * CHUNK_BYTES {
            match self.state.root.reserve(CHUNK_BYTES) {
                Ok(more) => files.reserved.push(more),
                Err(_) => self.state.wake(|work| work.is_short = true),
            }
        }
        let number = files.next;
        files.next += 1;
        files.numbers.insert(node.identity, number);
        self.state.names().push(NewName { at: self.state.begun.elapsed(), name });
        number
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.state.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a file that has no name left: its inode number may be used again. Returns its number
    /// in the trace, if it has one.
    pub(crate) fn removed(&self, node: &Node) -> Option<u32> {
        self.files().numbers.remove(&node.identity)
    }

    /// The number of a file in the trace, if it has one.
    pub(crate) fn number(&self, node: &Node) -> Option<u32> {
        self.files().numbers.get(&node.identity).copied()
    }

    /// Records a request. Returns `true` after every [`NOTED`] events of a buffer: an interval at
    /// which the caller samples what is too slow for each request.
    pub(crate) fn add(
        &self,
        (thread, handle): (u32, Option<u32>),
        file: u32,
        kind: RequestKind,
        offset: u64,
        bytes: u64,
    ) -> bool {
        let state = &*self.state;
        let buffer = &state.buffers[number_of_buffer()];
        let mut events = buffer.lock();
        while events.list.len() >= state.events_max && !state.stopped.load(Ordering::Acquire) {
            events = buffer.emptied.wait(events).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped.load(Ordering::Acquire) {
            return false;
        }
        // Under the lock, as the order of events needs it.
        let at = state.begun.elapsed();
        events.list.push(LoggedRequest { at, thread, handle, file, offset, bytes, kind });
        events.added += 1;
        let (waiting, added) = (events.list.len(), events.added);
        drop(events);
        if waiting.is_multiple_of(state.batch) {
            state.wake(|work| work.is_there = true);
        }
        added.is_multiple_of(NOTED)
    }

    /// Records that a file lost its bytes from `len` to `before`, its length until then: all of the
    /// last page.
    pub(crate) fn add_trim(&self, thread: u32, file: u32, len: u64, before: u64) {
        let end = before.next_multiple_of(PAGE_BYTES);
        self.add((thread, None), file, RequestKind::Trim, len, end - len);
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Not everything could be written.
    pub(crate) fn finish(self) -> Result<(), TraceError> {
        self.state.wake(|work| work.ended = true);
        match self.writer.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::trace::{OpenOptions, Record, open};

    #[test]
    fn events_take_a_sixteenth_of_the_budget_at_most() {
        const MIB: u64 = 1 << 20;
        assert!(size_of::<LoggedRequest>() <= 56);
        for budget in [4 * MIB, 16 * MIB, 64 * MIB, 1 << 30, 1 << 40] {
            let (events, bytes) = sizes(budget);
            assert!((EVENTS_MIN..=EVENTS_MAX).contains(&events) && bytes <= budget / SHARE, "{budget}");
            assert!(bytes > budget / SHARE / 2 || events == EVENTS_MAX, "{budget}");
        }
        assert!(sizes(1 << 40).1 < 40 * MIB);
    }

    /// Each thread's events stay in order, times do not go back, and nothing is lost: also when
    /// buffers are full, and with more threads than buffers.
    #[test]
    fn threads_record_together_in_the_order_of_time() {
        const THREADS: u32 = BUFFERS as u32 + 4;
        const BUDGET_BYTES: u64 = 16 << 20;
        const EVENTS: u64 = 3 * BATCH_MAX as u64 + 17;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let record = RecordOptions { path: path.clone(), failed: Box::new(|error| panic!("{error}")) };
        let cache = mglru_cache::PageCache::builder(BUDGET_BYTES).build().unwrap();
        let before = cache.stats().metadata_bytes;
        let recording = Recording::start(record, cache.tenant("").unwrap(), BUDGET_BYTES).unwrap();
        assert!(recording.state.events_max < BATCH_MAX, "buffers are full now and then");
        assert!(cache.stats().metadata_bytes >= before + BUDGET_BYTES / SHARE / 2);
        recording.state.names().push(NewName { at: Duration::ZERO, name: b"file".to_vec() });
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let recording = &recording;
                scope.spawn(move || {
                    for event in 0..EVENTS {
                        recording.add((thread, Some(thread)), 0, RequestKind::Read, event * 4096, 4096);
                    }
                });
            }
        });
        recording.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (mut last, mut next) = (0, vec![0; THREADS as usize]);
        for line in text.lines().filter(|line| line.contains(" read ")) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            assert!(number(0) >= last, "{line} after {last}");
            last = number(0);
            let next = &mut next[number(5) as usize];
            assert_eq!((number(3), number(6)), (*next * 4096, number(5)));
            *next += 1;
        }
        assert_eq!(next, vec![EVENTS; THREADS as usize]);
        let records = open(&path, OpenOptions { requests: true, ..OpenOptions::default() }).unwrap();
        let starts = records.filter(|record| matches!(record, Ok(Record::Request(_)))).count() as u64;
        assert_eq!(starts, u64::from(THREADS) * EVENTS);
    }
}
