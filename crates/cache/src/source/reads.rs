//! Reads and writes of sources that have no answer yet.
//!
//! A transfer is registered when it is submitted, under a number, and ends once: by its answer or
//! by its deadline, whichever removes it from the table first. Only then are the frames of a read
//! written, so a late answer touches nothing. A write works on a copy of its frames.
//!
//! # Locking
//!
//! The table's lock is a leaf. It is held for a few instructions, never while a completion is
//! called.

use crate::backend::{Completion, Direction, Transfer, as_worker, is_worker, zero_rest};
use crate::frames::{FRAME_BYTES, Frames};
use crate::tier::{SourceKey, Tier};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shortest length that a source may have had since a read of it was submitted, as far as this
/// cache truncated it. `None`: it cannot.
pub(super) type Shortest = Option<Arc<AtomicU64>>;

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
    pub(super) fn wait(&self) -> io::Result<usize> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let set = self.set.wait_while(result, |result| result.is_none());
        set.unwrap_or_else(PoisonError::into_inner).take().expect("it was waited for")
    }
}

/// A read whose missing parts were asked for.
pub(super) struct Join(Mutex<Joined>);

struct Joined {
    parts_left: usize,
    bytes: usize,
    error: Option<io::Error>,
    finish: Option<Finish>,
}

impl Join {
    /// A read of `bytes` that ends with the last of `parts`.
    pub(super) fn new(parts: usize, bytes: usize, finish: Finish) -> Join {
        Join(Mutex::new(Joined { parts_left: parts, bytes, error: None, finish: Some(finish) }))
    }

    /// Counts a part as ended. With the last one, the end of the whole.
    fn end_part(&self, result: io::Result<usize>) -> Option<(Finish, io::Result<usize>)> {
        let mut joined = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        joined.parts_left -= 1;
        if let Err(error) = result {
            joined.error.get_or_insert(error);
        }
        if joined.parts_left > 0 {
            return None;
        }
        let result = joined.error.take().map_or(Ok(joined.bytes), Err);
        joined.finish.take().map(|finish| (finish, result))
    }
}

struct UnderWay {
    direction: Direction,
    transfer: Transfer,
    /// The name of the source in the disk tier, if that is to keep the answer.
    tier_key: Option<SourceKey>,
    finish: Finish,
    deadline: Instant,
}

#[derive(Default)]
struct State {
    reads: BTreeMap<u64, UnderWay>,
    next: u64,
    /// Transfers that have left the table and whose end is being reported, and writes whose bytes
    /// are being copied.
    ending: usize,
    closed: bool,
}

/// All reads and writes of a cache's sources.
pub(crate) struct Reads {
    frames: Arc<Frames>,
    tier: Option<Arc<Tier>>,
    completion: Arc<dyn Completion>,
    deadline: Duration,
    state: Mutex<State>,
    /// Signalled when a read is registered in an empty table, or the table is closed.
    registered: Condvar,
    /// Signalled when no read is under way any more.
    idle: Condvar,
    pub(crate) bytes: AtomicU64,
    /// Failed reads and writes.
    pub(crate) failures: AtomicU64,
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Reads {
    pub(super) fn new(
        frames: Arc<Frames>,
        completion: Arc<dyn Completion>,
        deadline: Duration,
        tier: Option<Arc<Tier>>,
    ) -> Reads {
        Reads {
            frames,
            tier,
            completion,
            deadline,
            state: Mutex::default(),
            registered: Condvar::new(),
            idle: Condvar::new(),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The deadline of what begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// The error of an operation that was not done until its deadline.
    pub(super) fn timed_out(&self, doing: &str) -> io::Error {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the source did not {doing} within {:?}", self.deadline),
        )
    }

    /// Enters a read or a write into the table. Returns its number and its deadline.
    pub(super) fn register(
        &self,
        direction: Direction,
        transfer: Transfer,
        tier_key: Option<SourceKey>,
        finish: Finish,
    ) -> (u64, Instant) {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let deadline = self.deadline();
        if state.reads.is_empty() {
            self.registered.notify_one();
        }
        state.reads.insert(number, UnderWay { direction, transfer, tier_key, finish, deadline });
        (number, deadline)
    }

    /// Copies the bytes that a write is to write, and says where. `None`: it has ended.
    pub(super) fn copy_out(&self, number: u64) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        // Out of the table: its frames cannot be given back meanwhile.
        let write = state.reads.remove(&number)?;
        state.ending += 1;
        drop(state);
        let transfer = &write.transfer;
        let mut bytes = vec![0; transfer.frames.len() * FRAME_BYTES];
        for (&frame, out) in transfer.frames.iter().zip(bytes.chunks_mut(FRAME_BYTES)) {
            self.frames.copy_out(frame, 0, out);
        }
        bytes.truncate(transfer.bytes);
        let offset = transfer.offset;
        let mut state = self.lock();
        state.ending -= 1;
        state.reads.insert(number, write);
        self.registered.notify_one();
        Some((offset, bytes))
    }

    /// Ends a write, unless it has ended.
    pub(super) fn written(&self, number: u64, result: io::Result<usize>) {
        let Some(UnderWay { transfer, finish, .. }) = self.remove(number) else { return };
        drop(transfer);
        self.end(finish, result);
        self.ended();
    }

    fn remove(&self, number: u64) -> Option<UnderWay> {
        let mut state = self.lock();
        let found = state.reads.remove(&number)?;
        state.ending += 1;
        Some(found)
    }

    /// Counts and reports a result.
    fn end(&self, finish: Finish, result: io::Result<usize>) {
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.deliver(finish, result);
    }

    /// The end of a transfer has been reported.
    fn ended(&self) {
        let mut state = self.lock();
        state.ending -= 1;
        if state.ending == 0 && state.reads.is_empty() {
            self.idle.notify_all();
        }
    }

    /// Whether an answer is still of use.
    pub(super) fn is_wanted(&self, number: u64) -> bool {
        self.lock().reads.contains_key(&number)
    }

    /// Ends a read, unless it has ended. `is_known`: the source said of which version the bytes
    /// are. The calling thread, perhaps one of the source, must not wait for this end meanwhile.
    pub(super) fn answer(&self, number: u64, answer: io::Result<&[u8]>, is_known: bool) {
        as_worker(|| self.end_read(number, answer, is_known));
    }

    fn end_read(&self, number: u64, answer: io::Result<&[u8]>, is_known: bool) {
        let Some(UnderWay { transfer, tier_key, finish, .. }) = self.remove(number) else { return };
        let stored = answer.as_ref().ok().copied().filter(|_| is_known);
        let stored = stored.and_then(|bytes| Some((tier_key?, transfer.offset, bytes)));
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
        self.end(finish, result);
        // Readers go on meanwhile.
        if let (Some((key, offset, bytes)), Some(tier)) = (stored, &self.tier) {
            tier.offer(key, offset, bytes);
        }
        self.ended();
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

    /// Fails transfers whose deadline has passed, until the table is closed and empty. Calls
    /// `expire` with the time before.
    pub(super) fn watch(&self, expire: impl Fn(Instant)) {
        let mut state = self.lock();
        loop {
            // Deadlines are in the order of numbers.
            let first = state.reads.first_key_value();
            let Some((number, direction, deadline)) =
                first.map(|(&n, read)| (n, read.direction, read.deadline))
            else {
                if state.closed {
                    return;
                }
                state = self.registered.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                drop(state);
                expire(now);
                match direction {
                    Direction::Read => self.answer(number, Err(self.timed_out("answer")), false),
                    Direction::Write => self.written(number, Err(self.timed_out("write"))),
                }
                state = self.lock();
            } else {
                let woken = self.registered.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Waits until all registered reads have ended.
    pub(super) fn drain(&self) {
        assert!(!is_worker(), "a completion that waits for completions would wait for itself");
        let state = self.lock();
        let ended = self.idle.wait_while(state, |state| state.ending > 0 || !state.reads.is_empty());
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the thread that watches deadlines, once the table is empty.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.registered.notify_all();
    }
}
