//! Transfers by `preadv` and `pwritev`, with a thread pool for submitted ones.
//!
//! Used where io_uring is not permitted, and for files without `O_DIRECT`. Each active transfer
//! takes one thread, so the pool's size is the queue depth that a device sees.
//!
//! # Locking
//!
//! Only the queue's lock. Transfers hold none.

use super::disk_file::{DiskFile, Step};
use super::pool_threads::PoolThreads;
use super::queue::{Queue, Request, spawn};
use super::transfer::{Backend, BackendFile, Completion, Direction, OpenMode, Progress, Transfer, zero_rest};
use crate::frames::Frames;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum pool size. Transfers sleep more than they compute, hence more threads than processors;
/// 16 keep a fast device busy, and each costs a stack.
const THREADS_MAX: usize = 16;
/// Requests that may wait for a thread before submitters wait: enough to keep every thread busy.
const WAITING_MAX: usize = 256;

/// The backend without io_uring.
pub(crate) struct ThreadBackend {
    shared: Arc<Shared>,
    threads: PoolThreads,
}

struct Shared {
    frames: Arc<Frames>,
    completion: Arc<dyn Completion>,
    queue: Queue<Request>,
}

impl ThreadBackend {
    /// Starts the first thread of a pool of two per processor, at most [`THREADS_MAX`]. The others
    /// follow when requests wait, as many as the system grants.
    ///
    /// # Errors
    /// The system grants none.
    pub(crate) fn new(frames: Arc<Frames>, completion: Arc<dyn Completion>) -> io::Result<ThreadBackend> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        ThreadBackend::with_threads(frames, completion, (processors * 2).min(THREADS_MAX))
    }

    fn with_threads(
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
        count: usize,
    ) -> io::Result<ThreadBackend> {
        let shared = Arc::new(Shared { frames, completion, queue: Queue::new(WAITING_MAX) });
        let threads = PoolThreads::new(count);
        threads.start_up_to(1, || shared.start_thread())?;
        Ok(ThreadBackend { shared, threads })
    }
}

impl Shared {
    fn start_thread(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let shared = self.clone();
        spawn("mglru-io", move || shared.work())
    }

    fn work(&self) {
        while let Some(Request { direction, transfer, tag }) = self.queue.pop() {
            let result = transfer_now(&self.frames, direction, &transfer);
            // Close the file's handle before the completion reports that it is no longer needed.
            drop(transfer);
            self.queue.finish(|| self.completion.complete(tag, result));
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
        self.threads.request_added(&self.shared.queue, || self.shared.start_thread());
    }

    fn has_room(&self, _: &Arc<dyn BackendFile>) -> bool {
        self.shared.queue.has_room()
    }

    fn drain(&self) {
        self.shared.queue.drain();
    }

    fn threads_refused(&self) -> usize {
        self.threads.refused()
    }
}

impl Drop for ThreadBackend {
    fn drop(&mut self) {
        // The threads end, and are joined as they are dropped.
        self.shared.queue.close();
    }
}

/// Carries out a transfer on the calling thread.
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

/// The work after a transfer's last step, for all backends with real files.
pub(super) fn finish(frames: &Frames, direction: Direction, transfer: &Transfer, result: &io::Result<usize>) {
    if direction == Direction::Read {
        if let Ok(bytes) = result {
            zero_rest(frames, transfer, *bytes);
        }
        DiskFile::of(transfer).forget_cached(transfer);
    }
}

/// Uses the C functions because a safe wrapper would need `&mut [u8]` of frames from which
/// optimistic readers may be copying.
pub(super) fn call(direction: Direction, step: &Step) -> io::Result<usize> {
    let segments = step.segments.as_slice();
    let (list, count) = (segments.as_ptr(), segments.len() as libc::c_int);
    let offset = libc::off_t::try_from(step.offset).expect("a valid transfer's end fits");
    // SAFETY: `segments` are pieces of frame memory. It stays mapped (the backend holds the
    // frames), and this transfer's owner may write it. The descriptor is open because the transfer
    // holds the file.
    let result = unsafe {
        match (direction, segments) {
            // Most transfers; the kernel copies no list then.
            (Direction::Read, [one]) => libc::pread(step.fd, one.iov_base, one.iov_len, offset),
            (Direction::Write, [one]) => libc::pwrite(step.fd, one.iov_base, one.iov_len, offset),
            (Direction::Read, _) => libc::preadv(step.fd, list, count, offset),
            (Direction::Write, _) => libc::pwritev(step.fd, list, count, offset),
        }
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::super::grants;
    use super::*;
    use crate::frames::FRAME_BYTES;

    struct Nobody;

    impl Completion for Nobody {
        fn complete(&self, _: u64, _: io::Result<usize>) {}
    }

    /// A pool that is granted `granted` of 4 threads, and no more later.
    fn pool(granted: usize) -> io::Result<ThreadBackend> {
        grants::set(Some(granted));
        ThreadBackend::with_threads(Arc::new(Frames::new(1)?), Arc::new(Nobody), 4)
    }

    /// Writes until `is_enough`, with so many requests at once that some wait.
    fn write_until(pool: &ThreadBackend, is_enough: impl Fn() -> bool) {
        let folder = tempfile::tempdir().unwrap();
        let file = pool.open(&folder.path().join("f"), OpenMode::Create).unwrap();
        while !is_enough() {
            for page in 0..200 {
                let transfer = Transfer::pages(file.clone(), page * FRAME_BYTES as u64, vec![0]);
                pool.submit(Direction::Write, transfer, page);
            }
        }
        pool.drain();
    }

    #[test]
    fn a_pool_works_with_the_threads_that_it_is_granted() {
        for granted in 1..=4 {
            let pool = pool(granted).unwrap();
            assert_eq!((pool.threads.running(), pool.threads_refused()), (1, 0), "none is needed yet");
            write_until(&pool, || pool.threads.running() + pool.threads_refused() == 4);
            assert_eq!(pool.threads.running(), granted);
        }
        let error = pool(0).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains("raise `ulimit -u`"), "{error}");
    }

    #[test]
    fn a_pool_gets_the_threads_that_it_lacked_once_requests_wait_and_the_system_grants_them() {
        let pool = pool(1).unwrap();
        write_until(&pool, || pool.threads_refused() == 3);
        grants::set(Some(2));
        write_until(&pool, || pool.threads_refused() == 1);
        grants::set(None);
        write_until(&pool, || pool.threads_refused() == 0);
        assert_eq!(pool.threads.running(), 4);
    }
}
