//! Backends: how pages travel between frames and files.
//!
//! A `Transfer` names a run of consecutive pages of one file and the frames at the other end. It is
//! carried out either while the caller waits (`read`, `write`: a fault, which needs the page now)
//! or behind its back (`submit`: readahead and write-back), in which case a `Completion` hears of
//! it once.
//!
//! * `uring` — io_uring with `O_DIRECT` and, where the limits allow it, the frames registered as
//!   buffers.
//! * `threads` — `preadv` and `pwritev` on a pool of threads, for where io_uring is not permitted.
//!   The io_uring backend itself passes files to it whose file system has no `O_DIRECT`: a ring
//!   would do nothing for those but hand each transfer to a kernel thread.
//! * `memory` — [`MemoryFiles`], which exist in memory only and fail on request; for tests.
//!
//! `disk_file` plans the single system calls for the first two, `queue` hands requests to the
//! threads of all three.
//!
//! # Errors
//!
//! They are the operating system's, with their number (`raw_os_error`). A transfer that fails
//! half-way fails as a whole: of a read, no frame counts; of a write, any part may have reached the
//! file, so that every page of it stays dirty.
//!
//! # Locking
//!
//! The caller owns every frame of a transfer, as a writer for reads and against writers for writes,
//! from the call until it returns or its completion is called. A backend has locks of its own (the
//! queue, a ring per blocking call) which it never holds while it calls a completion; a completion
//! may therefore take any lock and may submit again. It must not wait for another completion (no
//! `drain`).

pub(crate) mod disk_file;
pub(crate) mod memory;
mod memory_files;
mod queue;
#[cfg(all(test, not(miri)))]
mod tests;
pub(crate) mod threads;
pub(crate) mod transfer;
pub(crate) mod uring;

pub use memory_files::{Counts, Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
pub(crate) use transfer::{Backend, BackendFile, Batch, Completion, Direction, Transfer};
pub use transfer::{FileIdentity, OpenMode};

use crate::frames::Frames;
use memory::MemoryBackend;
use std::io;
use std::sync::Arc;
use threads::ThreadBackend;
use uring::UringBackend;

/// Which backend a cache is to use.
#[derive(Clone, Debug, Default)]
pub enum BackendKind {
    /// io_uring where the system permits it, otherwise threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// `preadv` and `pwritev` on a pool of threads.
    Threads,
    /// These files in memory.
    Memory(Arc<MemoryFiles>),
}

/// What [`choose`] decided.
pub(crate) struct Chosen {
    pub(crate) backend: Arc<dyn Backend>,
    /// Why io_uring is not used although [`BackendKind::Auto`] would have; a sentence for the
    /// statistics.
    pub(crate) why_not_uring: Option<String>,
}

/// Starts the backend that `kind` asks for, for transfers to and from `frames`.
///
/// A ring pins the frames if it can, so this comes before the first use of a frame.
pub(crate) fn choose(
    kind: &BackendKind,
    frames: Arc<Frames>,
    completion: Arc<dyn Completion>,
) -> io::Result<Chosen> {
    let mut why_not_uring = None;
    let backend: Arc<dyn Backend> = match kind {
        BackendKind::Uring => Arc::new(UringBackend::new(frames, completion)?),
        BackendKind::Threads => Arc::new(ThreadBackend::new(frames, completion)?),
        BackendKind::Memory(files) => Arc::new(MemoryBackend::new(files.clone(), frames, completion)?),
        BackendKind::Auto => match UringBackend::new(frames.clone(), completion.clone()) {
            Ok(backend) => Arc::new(backend),
            Err(error) => {
                why_not_uring = Some(format!("io_uring cannot be used here: {error}"));
                Arc::new(ThreadBackend::new(frames, completion)?)
            }
        },
    };
    Ok(Chosen { backend, why_not_uring })
}
