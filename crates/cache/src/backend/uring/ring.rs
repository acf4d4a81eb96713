//! The common parts of both kinds of rings: the state that callers share with the thread, and the
//! entries of steps.

use crate::backend::disk_file::Step;
use crate::backend::queue::{Queue, Request};
use crate::backend::threads::call;
use crate::backend::transfer::{Completion, Direction};
use crate::frames::{FRAME_BYTES, Frames};
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Size of the largest buffer that the kernel registers, in bytes.
pub(super) const PIECE_BYTES: usize = 1 << 30;

/// The state that callers and the thread share.
pub(super) struct Shared {
    pub(super) frames: Arc<Frames>,
    pub(super) completion: Arc<dyn Completion>,
    pub(super) queue: Queue<Request>,
    pub(super) wake: OwnedFd,
    /// The system has refused to enter a ring.
    pub(super) refused: AtomicBool,
}

/// Wakes the thread.
pub(super) fn wake(event: &OwnedFd) {
    // A full counter wakes the thread just the same; other errors mean a closed descriptor.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// The ring's entry for a step. The caller keeps its memory valid until the answer.
pub(super) fn entry(frames: &Frames, direction: Direction, step: &Step, registered: bool) -> squeue::Entry {
    let fd = Fd(step.fd);
    let segments = step.segments.as_slice();
    if let [segment] = segments {
        let (start, length) = (segment.iov_base.cast::<u8>(), segment.iov_len as u32);
        let piece = if registered { piece(frames, segment) } else { None };
        return match (direction, piece) {
            (Direction::Read, Some(piece)) => {
                opcode::ReadFixed::new(fd, start, length, piece).offset(step.offset).build()
            }
            (Direction::Write, Some(piece)) => {
                opcode::WriteFixed::new(fd, start, length, piece).offset(step.offset).build()
            }
            (Direction::Read, None) => opcode::Read::new(fd, start, length).offset(step.offset).build(),
            (Direction::Write, None) => opcode::Write::new(fd, start, length).offset(step.offset).build(),
        };
    }
    let (list, count) = (segments.as_ptr(), segments.len() as u32);
    match direction {
        Direction::Read => opcode::Readv::new(fd, list, count).offset(step.offset).build(),
        Direction::Write => opcode::Writev::new(fd, list, count).offset(step.offset).build(),
    }
}

/// Index of the registered piece that contains a segment. `None` if the segment spans two pieces or
/// is not registered.
pub(super) fn piece(frames: &Frames, segment: &libc::iovec) -> Option<u16> {
    let start = segment.iov_base.addr() - frames.as_ptr(0).addr();
    if start + segment.iov_len > frames.pinnable_count() as usize * FRAME_BYTES {
        return None;
    }
    let (first, last) = (start / PIECE_BYTES, (start + segment.iov_len - 1) / PIECE_BYTES);
    (first == last).then(|| u16::try_from(first).ok())?
}

/// The number of bytes transferred, or the error.
pub(super) fn result_of(answer: &cqueue::Entry) -> io::Result<usize> {
    usize::try_from(answer.result()).map_err(|_| io::Error::from_raw_os_error(-answer.result()))
}

/// The result of a step that the kernel has answered. It answers `ECANCELED`, though nothing was
/// cancelled, to a transfer that only a kernel thread could carry out if it may not start one: such
/// threads count as the process's own (`RLIMIT_NPROC`, `pids.max`). Then the calling thread does
/// it.
pub(super) fn ended(answer: io::Result<usize>, direction: Direction, step: &Step) -> io::Result<usize> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => call(direction, step),
        answer => answer,
    }
}

/// Whether to repeat an `io_uring_enter` that was interrupted or temporarily refused.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
