//! The interface of a backend, and the types that all backends share.

use crate::frames::{FRAME_BYTES, Frames};
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the file into frames.
    Read,
    /// From frames into the file.
    Write,
}

/// Access to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// Read an existing file; writes fail.
    ReadOnly,
    /// Read and write an existing file.
    ReadWrite,
    /// Read and write. Creates a missing file; an existing one keeps its content.
    Create,
}

/// Identity of a file, independent of its path. Handles with equal identities share their cached
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// The device of the file system.
    pub device: u64,
    /// The file's inode number on that device.
    pub inode: u64,
}

/// An open file of a backend. Only the backend that opened it can transfer its pages.
pub(crate) trait BackendFile: Any + fmt::Debug + Send + Sync {
    /// The current length in bytes. Other processes may change it between calls.
    fn len(&self) -> io::Result<u64>;
    /// Truncates to `bytes`, or extends with a hole.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Turns the bytes in `range` into a hole; the length stays. Fails with `EOPNOTSUPP` where the
    /// file system has no holes.
    fn punch_hole(&self, _range: Range<u64>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
    /// Reserves space for the bytes in `range` and extends the file to its end, unless `keep_len`.
    /// Fails with `EOPNOTSUPP` where the file system cannot reserve space.
    fn allocate(&self, _range: Range<u64>, _keep_len: bool) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
    /// Waits until all written data, and the metadata needed to read it, are on stable storage.
    fn sync_data(&self) -> io::Result<()>;
    /// Waits until all written data and all metadata are on stable storage.
    fn sync_all(&self) -> io::Result<()>;
    fn identity(&self) -> FileIdentity;
    /// The path by which the file was opened, for messages. The file may have been renamed or
    /// removed since.
    fn path(&self) -> &Path;
    /// Whether transfers bypass the kernel's page cache. If not, each page may be in memory twice.
    fn is_direct(&self) -> bool;
    /// The preferred size of reads, in pages.
    fn block_pages(&self) -> u64 {
        1
    }
}

/// A run of consecutive pages of one file and their frames.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    /// The file, opened by the same backend.
    pub(crate) file: Arc<dyn BackendFile>,
    /// Offset of the first page in the file, in bytes.
    pub(crate) offset: u64,
    /// One frame per page, in file order.
    pub(crate) frames: Vec<u32>,
    /// Length in bytes; ends in the last page.
    pub(crate) bytes: usize,
}

impl Transfer {
    /// A transfer of whole pages from `offset` on, one for each frame.
    pub(crate) fn pages(file: Arc<dyn BackendFile>, offset: u64, frames: Vec<u32>) -> Transfer {
        let bytes = frames.len() * FRAME_BYTES;
        Transfer { file, offset, frames, bytes }
    }

    /// Checks the transfer before it touches memory.
    pub(crate) fn assert_valid(&self) {
        assert!(self.offset.is_multiple_of(FRAME_BYTES as u64), "offset {} inside a page", self.offset);
        assert!(self.bytes > 0, "an empty transfer");
        assert_eq!(self.bytes.div_ceil(FRAME_BYTES), self.frames.len(), "one frame per page");
        assert!(self.offset.checked_add(self.bytes as u64).is_some_and(|end| end <= i64::MAX as u64));
    }

    /// The frames' parts from byte `done` to the end of the last frame, beyond `bytes`.
    pub(super) fn parts_from(&self, done: usize) -> impl Iterator<Item = (u32, Range<usize>)> + '_ {
        self.frames[done / FRAME_BYTES..].iter().enumerate().map(move |(index, frame)| {
            let start = if index == 0 { done % FRAME_BYTES } else { 0 };
            (*frame, start..FRAME_BYTES)
        })
    }
}

/// Receives completed transfers.
pub(crate) trait Completion: Send + Sync {
    /// Called once when the transfer submitted under `tag` is over, with a result as from
    /// [`Backend::read`] or `write`. Runs on a thread of the backend, without a lock. A panic in
    /// here aborts the process.
    fn complete(&self, tag: u64, result: io::Result<usize>);
}

/// Transfers that a thread wants carried out concurrently.
pub(crate) trait Batch {
    /// The next transfer to start, and its number, which no other one has until it is over. `None`:
    /// no transfer starts any more.
    fn next(&mut self) -> Option<(usize, Transfer)>;
    /// Called when the transfer of that number has been answered, soon before [`Self::done`]: what
    /// that needs may be prefetched.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "for rings"))]
    fn answered(&self, number: usize) {
        let _ = number;
    }
    /// Called when the transfer of that number is over. A panic in here aborts the process.
    #[cfg_attr(not(feature = "io-uring"), allow(dead_code, reason = "for rings"))]
    fn done(&mut self, number: usize, result: io::Result<usize>);
}

/// Carries out transfers. Dropping it waits until all submitted transfers have completed.
pub(crate) trait Backend: Send + Sync {
    /// The name in the statistics: `io_uring`, `threads` or `memory`.
    fn name(&self) -> &'static str;
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BackendFile>>;
    /// Creates an empty file for swap. On a real file system only its owner may read it, and its
    /// name is removed.
    fn create_swap(&self, path: &Path) -> io::Result<Arc<dyn BackendFile>>;
    /// Reads while the caller waits. Returns the number of bytes read: fewer than requested only at
    /// the end of the file, and the rest of the last frame is then zeroed.
    fn read(&self, transfer: &Transfer) -> io::Result<usize>;
    /// Writes everything while the caller waits, or fails. The file grows to the transfer's end, no
    /// further.
    #[cfg_attr(not(test), allow(dead_code, reason = "the cache submits its writes; tests wait for theirs"))]
    fn write(&self, transfer: &Transfer) -> io::Result<usize>;
    /// Performs many reads while the caller waits, up to `depth` at once; see [`Self::read`].
    /// Returns `false`, having done nothing, if the backend cannot do so.
    fn read_many(&self, depth: usize, batch: &mut dyn Batch) -> bool {
        let _ = (depth, batch);
        false
    }
    /// Queues a transfer. The completion is called later, even if the transfer cannot be started.
    /// Waits for room in a full queue, except on a thread of the backend and as one.
    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64);
    /// Whether a transfer of `file` can be submitted without waiting, unless another thread is
    /// faster: then what must not wait is submitted [as a worker](super::as_worker).
    fn has_room(&self, file: &Arc<dyn BackendFile>) -> bool {
        let _ = file;
        true
    }
    /// Waits until everything submitted before has completed. Completions must not call it.
    fn drain(&self);
    /// Whether the frames are registered with the kernel, which saves a lookup per transfer.
    fn registered_buffers(&self) -> bool {
        false
    }
    /// Threads that the backend wanted and the system did not grant. It goes on with the others.
    fn threads_refused(&self) -> usize {
        0
    }
}

/// Progress of a transfer; interprets the results of its system calls.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) direction: Direction,
    pub(super) wanted: usize,
    pub(super) done: usize,
}

impl Progress {
    pub(super) fn new(direction: Direction, transfer: &Transfer) -> Progress {
        transfer.assert_valid();
        Progress { direction, wanted: transfer.bytes, done: 0 }
    }

    /// Takes the result of one call. `None`: continue from `done`.
    pub(super) fn advance(&mut self, result: io::Result<usize>) -> Option<io::Result<usize>> {
        match result {
            Ok(0) if self.direction == Direction::Read => return Some(Ok(self.done)),
            Ok(0) => return Some(Err(io::ErrorKind::WriteZero.into())),
            // A read may return more than wanted, because the last page is read whole.
            Ok(bytes) => self.done = self.wanted.min(self.done + bytes),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            Err(error) => return Some(Err(error)),
        }
        (self.done == self.wanted).then_some(Ok(self.done))
    }
}

/// Zeroes the frames behind a short read. Bytes beyond the end of a file read as zero in every
/// mapping, and a frame must not show another tenant's old content.
pub(crate) fn zero_rest(frames: &Frames, transfer: &Transfer, bytes_read: usize) {
    if bytes_read < transfer.frames.len() * FRAME_BYTES {
        for (frame, range) in transfer.parts_from(bytes_read) {
            frames.zero(frame, range);
        }
    }
}
