//! Reads of a job that are under way together: a stream from the job's source into its outcome.

use super::meter::LaneMeter;
use super::source::{Drawn, Source};
use mglru_cache::ReadStream;
use mglru_workload::fio::report::JobOutcome;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The part that outlives a stream: accesses drawn and not yet begun, and buffers not in use.
#[derive(Default)]
pub struct Supply {
    drawn: Vec<Drawn>,
    /// The first of them that has not begun.
    next: usize,
    buffers: Vec<Box<[u8]>>,
}

/// The reads of one stream.
pub struct Together<'a, P> {
    pub source: &'a Mutex<Source>,
    pub supply: &'a mut Supply,
    /// The job's start.
    pub began: Instant,
    /// Bytes of a read.
    pub bytes: u32,
    pub outcome: &'a mut JobOutcome,
    pub mine: &'a LaneMeter,
    /// Whether the stream is to pause, because its thread has something else to do at that time.
    pub pauses: P,
    /// Reads begun.
    pub begun: u64,
    /// Whether the source has no more.
    pub is_over: bool,
    /// Offset and length of the first read that got less than it asked for.
    pub short: Option<(u64, usize)>,
}

/// A buffer of a read, and when that began.
pub struct Timed {
    buffer: Box<[u8]>,
    start: Instant,
}

impl AsMut<[u8]> for Timed {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl<P: FnMut(Instant) -> bool> Together<'_, P> {
    /// The offset of the next access.
    fn draw(&mut self) -> Option<u64> {
        let Supply { drawn, next, .. } = &mut *self.supply;
        if *next == drawn.len() {
            let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
            source.draw(drawn, self.began.elapsed());
            *next = 0;
        }
        let offset = drawn.get(*next)?.access.offset;
        *next += 1;
        Some(offset)
    }
}

impl<P: FnMut(Instant) -> bool> ReadStream for Together<'_, P> {
    type Buffer = Timed;

    fn next(&mut self) -> Option<(u64, Timed)> {
        let start = Instant::now();
        if self.short.is_some() || (self.pauses)(start) {
            return None;
        }
        let Some(offset) = self.draw() else {
            self.is_over = true;
            return None;
        };
        self.begun += 1;
        let buffer = self.supply.buffers.pop();
        let buffer = buffer.unwrap_or_else(|| vec![0; self.bytes as usize].into_boxed_slice());
        Some((offset, Timed { buffer, start }))
    }

    fn peek(&self) -> Option<u64> {
        let Supply { drawn, next, .. } = &*self.supply;
        drawn.get(*next).map(|next| next.access.offset)
    }

    fn ended(&mut self, offset: u64, buffer: Timed, bytes: usize) {
        let Timed { buffer, start } = buffer;
        if bytes < buffer.len() {
            self.short.get_or_insert((offset, bytes));
        } else {
            self.outcome.read.record(self.bytes, start.elapsed().as_nanos() as u64);
            self.mine.count(false, self.bytes);
        }
        self.supply.buffers.push(buffer);
    }
}
