//! What a backend is, and what it carries: the words that all backends share.

use crate::frames::{FRAME_BYTES, Frames};
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Which way pages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the file into frames.
    Read,
    /// From frames into the file.
    Write,
}

/// What a file may be used for once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file exists; writing to it fails.
    ReadOnly,
    /// The file exists.
    ReadWrite,
    /// For reading and writing; a missing file is created, an existing one keeps its content.
    Create,
}

/// Which file it is, whatever path led there: two handles with equal identities share their cached
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// The device of the file system.
    pub device: u64,
    /// The number of the file on that device.
    pub inode: u64,
}

/// A file that some backend opened. Only that backend can transfer its pages.
pub(crate) trait BackendFile: Any + fmt::Debug + Send + Sync {
    /// The length now, in bytes; somebody else may have changed it since the last call.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends (with a hole) to `bytes`.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Returns when everything written is on stable storage, with as much metadata as it takes to
    /// read it.
    fn sync_data(&self) -> io::Result<()>;
    /// Returns when everything written and all metadata are on stable storage.
    fn sync_all(&self) -> io::Result<()>;
    /// Which file it is.
    fn identity(&self) -> FileIdentity;
    /// The path that it was opened by, for messages: the file may be elsewhere by now, or removed.
    fn path(&self) -> &Path;
    /// Whether transfers go around the kernel's own page cache. `false` means that each page may be
    /// in memory twice.
    fn is_direct(&self) -> bool;
}

/// A run of consecutive pages of one file and the frames they go to or come from.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    /// The file, from the same backend.
    pub(crate) file: Arc<dyn BackendFile>,
    /// Where the first page starts in the file, in bytes.
    pub(crate) offset: u64,
    /// One frame per page, in the order of the file, in any order of memory.
    pub(crate) frames: Vec<u32>,
    /// How many bytes; ends inside the last page or at its end.
    pub(crate) bytes: usize,
}

impl Transfer {
    /// All bytes of the pages from `offset` on, one for each frame.
    pub(crate) fn pages(file: Arc<dyn BackendFile>, offset: u64, frames: Vec<u32>) -> Transfer {
        let bytes = frames.len() * FRAME_BYTES;
        Transfer { file, offset, frames, bytes }
    }

    /// A backend checks what it is given before memory is at stake.
    pub(super) fn assert_valid(&self) {
        assert!(self.offset.is_multiple_of(FRAME_BYTES as u64), "offset {} inside a page", self.offset);
        assert!(self.bytes > 0, "an empty transfer");
        assert_eq!(self.bytes.div_ceil(FRAME_BYTES), self.frames.len(), "one frame per page");
        assert!(self.offset.checked_add(self.bytes as u64).is_some_and(|end| end <= i64::MAX as u64));
    }

    /// The frames' parts from byte `done` on, up to the end of the last frame: its rest beyond
    /// `bytes` as well.
    pub(super) fn parts_from(&self, done: usize) -> impl Iterator<Item = (u32, Range<usize>)> + '_ {
        self.frames[done / FRAME_BYTES..].iter().enumerate().map(move |(index, frame)| {
            let start = if index == 0 { done % FRAME_BYTES } else { 0 };
            (*frame, start..FRAME_BYTES)
        })
    }
}

/// Hears of submitted transfers.
pub(crate) trait Completion: Send + Sync {
    /// The transfer submitted under `tag` is over: with its bytes as from [`Backend::read`] or
    /// `write`, or an error. Called once, from a thread of the backend, without a lock. A panic in
    /// here aborts the process.
    fn complete(&self, tag: u64, result: io::Result<usize>);
}

/// Transfers that a thread wants carried out together, and what it does with each.
pub(crate) trait Batch {
    /// The next one.
    fn next(&mut self) -> Option<Transfer>;
    /// The one that was handed out as number `number`, from 0 on, is over. A panic in here aborts
    /// the process.
    fn done(&mut self, number: usize, result: io::Result<usize>);
}

/// Carries out transfers. Dropping it waits until all submitted work has completed.
pub(crate) trait Backend: Send + Sync {
    /// As the statistics show it: `io_uring`, `threads` or `memory`.
    fn name(&self) -> &'static str;
    /// Opens a file of this backend.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BackendFile>>;
    /// Makes an empty file for swap. On a real file system only its owner may read it, and it has
    /// no name any more.
    fn create_swap(&self, path: &Path) -> io::Result<Arc<dyn BackendFile>>;
    /// Reads while the caller waits. Returns how many bytes there were: fewer than asked for only
    /// at the end of the file. The rest of the frames, up to the end of the last one, reads zero
    /// then.
    fn read(&self, transfer: &Transfer) -> io::Result<usize>;
    /// Writes while the caller waits: everything or an error. The file grows to the transfer's end,
    /// no further.
    #[cfg_attr(not(test), expect(dead_code, reason = "the cache submits its writes; tests wait for theirs"))]
    fn write(&self, transfer: &Transfer) -> io::Result<usize>;
    /// Reads many while the caller waits, up to `depth` at once; see [`Self::read`]. `false`: it
    /// cannot, and did nothing.
    fn read_many(&self, depth: usize, batch: &mut dyn Batch) -> bool {
        let _ = (depth, batch);
        false
    }
    /// Queues a transfer and returns; the completion is called later, even if the transfer cannot
    /// be started. Waits for room when many are queued already, except on a thread of a backend.
    fn submit(&self, direction: Direction, transfer: Transfer, tag: u64);
    /// Returns when everything submitted before has completed. Not for completions.
    fn drain(&self);
    /// Whether the frames are registered with the kernel, which saves it looking them up for each
    /// transfer.
    fn registered_buffers(&self) -> bool {
        false
    }
}

/// How far a transfer has come. The one place that knows what a result of a single system call
/// means.
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

    /// Takes the result of one call in. `None`: go on from `done`.
    pub(super) fn advance(&mut self, result: io::Result<usize>) -> Option<io::Result<usize>> {
        match result {
            Ok(0) if self.direction == Direction::Read => return Some(Ok(self.done)),
            Ok(0) => return Some(Err(io::ErrorKind::WriteZero.into())),
            // A read may bring more than wanted: the last page is read whole, its end cut off here.
            Ok(bytes) => self.done = self.wanted.min(self.done + bytes),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            Err(error) => return Some(Err(error)),
        }
        (self.done == self.wanted).then_some(Ok(self.done))
    }
}

/// A read that ended early leaves zeroes behind its end: what is beyond the end of a file reads
/// zero in every mapping of it, and a frame must not show what it held for another tenant.
pub(super) fn zero_rest(frames: &Frames, transfer: &Transfer, bytes_read: usize) {
    if bytes_read < transfer.frames.len() * FRAME_BYTES {
        for (frame, range) in transfer.parts_from(bytes_read) {
            frames.zero(frame, range);
        }
    }
}
