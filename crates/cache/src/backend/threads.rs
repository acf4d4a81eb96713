//! Transfers by `preadv` and `pwritev`, submitted ones on a pool of threads.
//!
//! For systems that do not permit io_uring, and for files without `O_DIRECT` on those that do. One
//! thread per transfer under way: the pool's size is the queue depth that a device gets to see.
//!
//! # Locking
//!
//! Only the queue's own. A transfer holds no lock.

use super::disk_file::{DiskFile, Step};
use super::queue::{Queue, Request, join, spawn};
use super::transfer::{Backend, BackendFile, Completion, Direction, OpenMode, Progress, Transfer, zero_rest};
use crate::frames::Frames;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Transfers sleep more than they compute, hence more threads than processors; 16 keep a single
/// fast device busy, and each costs a stack.
const THREADS_MAX: usize = 16;
/// Requests waiting for a thread before submitters wait too: enough to never let a thread go idle.
const WAITING_MAX: usize = 256;

/// The backend without io_uring.
pub(crate) struct ThreadBackend {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    frames: Arc<Frames>,
    completion: Arc<dyn Completion>,
    queue: Queue,
}

impl ThreadBackend {
    /// Starts a pool that fits the machine.
    pub(crate) fn new(frames: Arc<Frames>, completion: Arc<dyn Completion>) -> io::Result<ThreadBackend> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        ThreadBackend::with_threads(frames, completion, (processors * 2).min(THREADS_MAX))
    }

    /// Starts a pool of `count` threads.
    pub(crate) fn with_threads(
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
        count: usize,
    ) -> io::Result<ThreadBackend> {
        assert!(count > 0, "somebody has to do the work");
        let shared = Arc::new(Shared { frames, completion, queue: Queue::new(WAITING_MAX) });
        // Built first, so that a thread that cannot be started lets those before it end by `drop`.
        let mut backend = ThreadBackend { shared, threads: Vec::with_capacity(count) };
        for _ in 0..count {
            let shared = backend.shared.clone();
            backend.threads.push(spawn("mglru-io", move || shared.work())?);
        }
        Ok(backend)
    }
}

impl Shared {
    fn work(&self) {
        while let Some(Request { direction, transfer, tag }) = self.queue.pop() {
            let result = transfer_now(&self.frames, direction, &transfer);
            // The file's handle is let go before anybody hears that it is no longer needed.
            drop(transfer);
            self.queue.finish(&*self.completion, tag, result);
        }
    }
}

impl Backend for ThreadBackend {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BackendFile>> {
        Ok(Arc::new(DiskFile::open(path, mode)?))
    }

    fn create_swap(&self, path: &Path) -> io::Result<Arc<dyn BackendFile>> {
        Ok(Arc::new(DiskFile::create_unlinked(path)?))
    }

    fn read(&self, transfer: &Transfer) -> io::Result<usize> {
        transfer_now(&self.shared.frames, Direction::Read, transfer)
    }

    fn write(&self, transfer: &Transfer) -> io::Result<usize> {
        transfer_now(&self.shared.frames, Direction::Write, transfer)
    }

    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64) {
        transfer.assert_valid();
        self.shared.queue.push(Request { direction, transfer, tag });
    }

    fn drain(&self) {
        self.shared.queue.drain();
    }
}

impl Drop for ThreadBackend {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.threads.drain(..).for_each(join);
    }
}

/// Carries a transfer out on this thread.
pub(super) fn transfer_now(frames: &Frames, direction: Direction, transfer: &Transfer) -> io::Result<usize> {
    let file = DiskFile::of(transfer);
    let mut progress = Progress::new(direction, transfer);
    let result = loop {
        let step = file.step(frames, transfer, &progress);
        let done = call(direction, &step);
        if let Some(result) = file.advance(&mut progress, step.direct, done) {
            break result;
        }
    };
    finish(frames, direction, transfer, &result);
    result
}

/// What is left to do once a transfer's last step is over, whoever made the steps.
pub(super) fn finish(frames: &Frames, direction: Direction, transfer: &Transfer, result: &io::Result<usize>) {
    if direction == Direction::Read {
        if let Ok(bytes) = result {
            zero_rest(frames, transfer, *bytes);
        }
        DiskFile::of(transfer).forget_cached(transfer);
    }
}

/// The C functions rather than a safe wrapper: that would want `&mut [u8]` of frames which
/// optimistic readers may be copying from.
fn call(direction: Direction, step: &Step) -> io::Result<usize> {
    let segments = step.segments.as_slice();
    let (list, count) = (segments.as_ptr(), segments.len() as libc::c_int);
    let offset = libc::off_t::try_from(step.offset).expect("a valid transfer's end fits");
    // SAFETY: `list` is `count` pieces of frame memory that stays mapped (the backend holds the
    // frames) and that this transfer's owner may write; the descriptor is open as the transfer
    // holds the file.
    let result = unsafe {
        match direction {
            Direction::Read => libc::preadv(step.fd, list, count, offset),
            Direction::Write => libc::pwritev(step.fd, list, count, offset),
        }
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
