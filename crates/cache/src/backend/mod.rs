//! Backends: transfers of pages between frames and files.
//!
//! A `Transfer` names a run of consecutive pages of one file and the frames at the other end. It
//! runs either while the caller waits (`read`, `write`: a fault, which needs the page now) or
//! asynchronously (`submit`: readahead and write-back); then a `Completion` is called once.
//!
//! * `uring` — io_uring with `O_DIRECT` and, where the limits allow it, with the frames registered
//!   as buffers.
//! * `threads` — `preadv` and `pwritev` on a pool of threads, for systems that do not permit
//!   io_uring. The io_uring backend passes files without `O_DIRECT` to it, because a ring would
//!   hand each of their transfers to a kernel thread anyway.
//! * `memory` — [`MemoryFiles`], which exist in memory only and fail on request; for tests.
//!
//! [`crate::source`] adds sources beside the files of any of them.
//!
//! `disk_file` plans the system calls of the first two; `queue` hands requests to the threads of
//! all three.
//!
//! # Errors
//!
//! Errors are the operating system's, with their number (`raw_os_error`). A transfer that fails
//! half-way fails as a whole: after a read, no frame is valid; after a write, any part may have
//! reached the file, so every page of it stays dirty.
//!
//! # Locking
//!
//! The caller owns every frame of a transfer from the call until it returns or its completion is
//! called: as a writer for reads, and against writers for writes. A backend never holds its own
//! locks (the queue, a ring per blocking call) while it calls a completion. So a completion may
//! take any lock and may submit again. It must not wait for another completion (no `drain`).

pub(crate) mod disk_file;
pub(crate) mod memory;
mod memory_files;
mod pool_threads;
mod queue;
#[cfg(not(miri))]
mod signals;
#[cfg(all(test, not(miri), feature = "io-uring"))]
mod tests;
pub(crate) mod threads;
pub(crate) mod transfer;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;

pub use memory_files::{Counts, Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
pub(crate) use pool_threads::PoolThreads;
#[cfg(test)]
pub(crate) use queue::grants;
pub(crate) use queue::{Queue, as_worker, drop_caught, is_worker, join, spawn, start_thread};
pub(crate) use transfer::{Backend, BackendFile, Batch, Completion, Direction, Transfer, zero_rest};
pub use transfer::{FileIdentity, OpenMode};

use crate::frames::Frames;
use memory::MemoryBackend;
use std::io;
use std::sync::Arc;
use threads::ThreadBackend;

/// The kind of backend that a cache uses.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum BackendKind {
    /// io_uring if the system permits it, otherwise threads.
    #[default]
    Auto,
    /// io_uring; building the cache fails without it. Needs the crate's feature `io-uring`.
    Uring,
    /// `preadv` and `pwritev` on a pool of threads.
    Threads,
    /// Files in memory, for tests.
    Memory(Arc<MemoryFiles>),
}

/// The result of [`choose`].
pub(crate) struct Chosen {
    pub(crate) backend: Arc<dyn Backend>,
    /// The reason why io_uring is not used under [`BackendKind::Auto`], as a sentence for the
    /// statistics.
    pub(crate) why_not_uring: Option<String>,
}

/// Starts the backend for `kind`, with transfers to and from `frames`.
///
/// A ring pins the frames if it can, so this comes before the first use of a frame.
pub(crate) fn choose(
    kind: &BackendKind,
    frames: Arc<Frames>,
    completion: Arc<dyn Completion>,
) -> io::Result<Chosen> {
    let mut why_not_uring = None;
    let backend: Arc<dyn Backend> = match kind {
        BackendKind::Uring => uring(frames, completion)?,
        BackendKind::Threads => Arc::new(ThreadBackend::new(frames, completion)?),
        BackendKind::Memory(files) => Arc::new(MemoryBackend::new(files.clone(), frames, completion)?),
        BackendKind::Auto => match uring(frames.clone(), completion.clone()) {
            Ok(backend) => backend,
            Err(error) => {
                why_not_uring = Some(error.to_string());
                Arc::new(ThreadBackend::new(frames, completion)?)
            }
        },
    };
    Ok(Chosen { backend, why_not_uring })
}

#[cfg(feature = "io-uring")]
fn uring(frames: Arc<Frames>, completion: Arc<dyn Completion>) -> io::Result<Arc<dyn Backend>> {
    match uring::UringBackend::new(frames, completion) {
        Ok(backend) => Ok(Arc::new(backend)),
        Err(error) => Err(io::Error::new(error.kind(), why_not_uring(&error))),
    }
}

/// The system's refusal of io_uring, with where it may come from.
#[cfg(feature = "io-uring")]
fn why_not_uring(error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; the container's seccomp profile or `kernel.io_uring_disabled` forbids it"
        }
        Some(libc::ENOSYS) => "; the kernel or the sandbox does not have it",
        Some(libc::ENOMEM) => "; raise `ulimit -l` (RLIMIT_MEMLOCK)",
        Some(libc::EMFILE) => "; raise `ulimit -n`",
        _ => "",
    };
    format!("io_uring cannot be used here: {error}{reason}")
}

#[cfg(not(feature = "io-uring"))]
fn uring(_: Arc<Frames>, _: Arc<dyn Completion>) -> io::Result<Arc<dyn Backend>> {
    let what = "mglru-cache was built without its feature `io-uring`";
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}
