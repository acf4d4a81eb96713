//! Recording: what programs ask for becomes a trace.
//!
//! A thread that serves a request appends an event to a buffer. One thread turns events into text
//! and writes them. If it cannot keep up, requests wait; if it cannot write, the recording stops
//! and the mount goes on.
//!
//! # Locking
//!
//! `files` comes before `buffer`; both are leaves otherwise.

use crate::error::Error;
use crate::node::{Identity, Node};
use mglru_watch::Requests;
use mglru_workload::PAGE_BYTES;
use mglru_workload::trace::{LoggedRequest, RequestKind, RequestLog, TraceError};
use rustix::fs::readlink;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Events after which the writer is woken.
const BATCH: usize = 4096;
/// Events in memory at most, and as many that are being written: 48 MiB together.
const EVENTS_MAX: usize = 1 << 19;
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
        Requests {
            reads: of(&self.reads),
            writes: of(&self.writes),
            syncs: of(&self.syncs),
            read_bytes: of(&self.read_bytes),
            written_bytes: of(&self.written_bytes),
        }
    }
}

/// A file that the log does not name yet.
struct NewName {
    at: Duration,
    name: Vec<u8>,
}

#[derive(Default)]
struct Buffer {
    /// In the order of their numbers.
    names: Vec<NewName>,
    events: Vec<LoggedRequest>,
    ended: bool,
}

struct State {
    path: PathBuf,
    begun: Instant,
    /// Numbers of files, and how many were given.
    files: Mutex<(HashMap<Identity, u32>, u32)>,
    buffer: Mutex<Buffer>,
    /// The buffer has something to write, or has room again.
    changed: Condvar,
    stopped: AtomicBool,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes events until the recording ends.
    fn write(&self, log: RequestLog) -> Result<(), TraceError> {
        let written = self.write_all(log);
        if written.is_err() {
            self.stopped.store(true, Ordering::Release);
            // Requests may wait for room.
            *self.lock() = Buffer { ended: true, ..Buffer::default() };
            self.changed.notify_all();
        }
        written
    }

    fn write_all(&self, mut log: RequestLog) -> Result<(), TraceError> {
        // Takes turns with the buffer's own vector, so that requests do not wait for memory.
        let mut events = Vec::with_capacity(2 * BATCH);
        loop {
            let (names, ended) = {
                let is_small = |buffer: &mut Buffer| !buffer.ended && buffer.events.len() < BATCH;
                let waited = self.changed.wait_timeout_while(self.lock(), FLUSH, is_small);
                let (mut buffer, _) = waited.unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut buffer.events, &mut events);
                if events.len() >= EVENTS_MAX {
                    self.changed.notify_all();
                }
                (std::mem::take(&mut buffer.names), buffer.ended)
            };
            for NewName { at, name } in names {
                log.name(at, &name);
            }
            log.write(&events)?;
            events.clear();
            events.shrink_to(16 * BATCH);
            if ended {
                return log.finish();
            }
        }
    }
}

/// Where to record what programs ask for.
pub struct RecordOptions {
    /// The trace, which is replaced. The extensions `.gz`, `.xz` and `.zst` compress.
    pub path: PathBuf,
    /// Called with the reason if the recording has to stop early.
    pub failed: Box<dyn FnOnce(&str) + Send>,
}

/// A trace that is being recorded.
pub(crate) struct Recording {
    state: Arc<State>,
    writer: JoinHandle<Result<(), TraceError>>,
}

impl Recording {
    /// Starts a recording.
    ///
    /// # Errors
    /// [`Error::Usage`]: the file cannot be created, or no thread can be started.
    pub(crate) fn start(record: RecordOptions) -> Result<Recording, Error> {
        let RecordOptions { path, failed } = record;
        let log = RequestLog::create(&path).map_err(Error::usage)?;
        let state = Arc::new(State {
            path,
            begun: Instant::now(),
            files: Mutex::default(),
            buffer: Mutex::new(Buffer { events: Vec::with_capacity(2 * BATCH), ..Buffer::default() }),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        });
        let writing = state.clone();
        let write = move || writing.write(log).inspect_err(|error| failed(&error.to_string()));
        let writer = std::thread::Builder::new().name("mglru-record".to_owned()).spawn(write);
        let writer = writer.map_err(|error| Error::usage(format_args!("cannot start a thread: {error}")))?;
        Ok(Recording { state, writer })
    }

    /// Where the trace is written.
    pub(crate) fn path(&self) -> &Path {
        &self.state.path
    }

    /// The number of a file in the trace.
    pub(crate) fn file(&self, node: &Node, directory: &Path) -> u32 {
        let mut files = self.state.files.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, next) = &mut *files;
        *known.entry(node.identity).or_insert_with(|| {
            let number = *next;
            *next += 1;
            let path = node.hold().ok().and_then(|held| readlink(held.path(), Vec::new()).ok());
            let path = path.map(|path| path.into_bytes()).unwrap_or_default();
            let name = path.strip_prefix(directory.as_os_str().as_bytes()).unwrap_or(&path);
            let name = name.strip_prefix(b"/").unwrap_or(name).to_vec();
            self.state.lock().names.push(NewName { at: self.state.begun.elapsed(), name });
            number
        })
    }

    /// Forgets a file that has no name left: its inode number may be used again. Returns its number
    /// in the trace, if it has one.
    pub(crate) fn removed(&self, node: &Node) -> Option<u32> {
        self.state.files.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&node.identity)
    }

    /// The number of a file in the trace, if it has one.
    pub(crate) fn number(&self, node: &Node) -> Option<u32> {
        self.state.files.lock().unwrap_or_else(PoisonError::into_inner).0.get(&node.identity).copied()
    }

    /// Records a request.
    pub(crate) fn add(&self, thread: u32, file: u32, kind: RequestKind, offset: u64, bytes: u64) {
        let state = &*self.state;
        if state.stopped.load(Ordering::Relaxed) {
            return;
        }
        let mut buffer = state.lock();
        while buffer.events.len() >= EVENTS_MAX && !buffer.ended {
            buffer = state.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
        }
        if buffer.ended {
            return;
        }
        // Under the lock, so that times in the trace do not go back.
        let at = state.begun.elapsed();
        buffer.events.push(LoggedRequest { at, thread, file, offset, bytes, kind });
        if buffer.events.len() == BATCH {
            drop(buffer);
            state.changed.notify_all();
        }
    }

    /// Records that a file lost its bytes from `len` to `before`, its length until then: all of the
    /// last page.
    pub(crate) fn add_trim(&self, thread: u32, file: u32, len: u64, before: u64) {
        let end = before.next_multiple_of(PAGE_BYTES);
        self.add(thread, file, RequestKind::Trim, len, end - len);
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Not everything could be written.
    pub(crate) fn finish(self) -> Result<(), TraceError> {
        self.state.lock().ended = true;
        self.state.changed.notify_all();
        match self.writer.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
