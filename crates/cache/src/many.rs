//! Many reads at once: missing pages are read from the device concurrently and copied out as they
//! arrive.
//!
//! ```text
//! next ── in memory: copied ────────────────────────────────┐
//!      ── missing: charged, inserted, being read ── done ──┴─► ended, next
//!      ├─ being read by an earlier one: copied with that
//!      └─ read by another thread, or memory is short: postponed to `read_at`
//! ```
//!
//! A new read starts as soon as one completes, so none waits for the slowest. A stream pauses for
//! postponed reads, which wait until no page is being read, after it has begun so many others as
//! its depth.
//!
//! # Locking
//!
//! Pages being read are locked. While there are any, the thread waits for the device only.

use crate::backend::{Batch, Direction, Transfer};
use crate::error::Error;
use crate::file::CachedFile;
use crate::flight::Flight;
use crate::prefetch::{prefetch_for_read, prefetch_for_write};
use crate::source::source_of;
use mglru_core::{FolioId, PAGE_BYTES};
use std::collections::VecDeque;
use std::io;

/// Reads in progress at once, like a usual `iodepth` of fio. More per thread gain nothing on a
/// single device queue.
const UNDER_WAY: usize = 32;

/// One read of [`CachedFile::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Destination of the bytes.
    pub buffer: &'a mut [u8],
    /// Number of bytes read, set on completion. Less than `buffer.len()` only at the end of the
    /// file.
    pub read: usize,
}

/// Reads that follow each other ([`CachedFile::read_stream`]).
///
/// Both functions run while pages are locked: they must not read or write through the cache, or
/// they may wait for themselves. A panic in them aborts the process.
pub trait ReadStream {
    /// Receives the bytes of a read.
    type Buffer: AsMut<[u8]>;

    /// The next read: its offset in bytes, and a buffer as long as the read. `None`: no read
    /// follows, and the stream ends when all that have begun have ended.
    fn next(&mut self) -> Option<(u64, Self::Buffer)>;

    /// The offset of the read that [`Self::next`] returns next, if it is known. A hint, by which
    /// the read's place in the index is prefetched. Default: unknown.
    fn peek(&self) -> Option<u64> {
        None
    }

    /// The bytes of a read are in its buffer: so many, fewer than it has room for only at the end
    /// of the file.
    fn ended(&mut self, offset: u64, buffer: Self::Buffer, bytes: usize);
}

/// A read that has begun.
struct Read<B> {
    offset: u64,
    buffer: B,
    /// Whether it is already counted as a miss.
    missed: bool,
}

/// A read whose page is missing and comes from the device.
struct Flying<B> {
    read: Read<B>,
    /// Later reads of the same page.
    also: Vec<Read<B>>,
    index: u32,
    folio: FolioId,
}

struct Many<'a, S: ReadStream> {
    file: &'a CachedFile,
    stream: &'a mut S,
    /// Whether the stream has no further reads.
    is_over: bool,
    /// Reads under way, by the number of their transfer.
    flying: Vec<Option<Flying<S::Buffer>>>,
    /// Numbers without a transfer.
    free: Vec<usize>,
    /// Reads that wait for the page of an earlier one.
    also: usize,
    /// Postponed reads, in their order.
    later: VecDeque<Read<S::Buffer>>,
    /// Reads that have begun while some were postponed.
    begun_meanwhile: usize,
    /// Reads that may wait for others, and that may begin while some are postponed.
    waiting_max: usize,
}

/// The requests of [`CachedFile::read_many`] as a stream.
struct Requests<'r, 'b>(std::slice::IterMut<'r, ReadRequest<'b>>);

struct Requested<'r, 'b>(&'r mut ReadRequest<'b>);

impl AsMut<[u8]> for Requested<'_, '_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.buffer
    }
}

impl<'r, 'b> ReadStream for Requests<'r, 'b> {
    type Buffer = Requested<'r, 'b>;

    fn next(&mut self) -> Option<(u64, Requested<'r, 'b>)> {
        self.0.next().map(|request| (request.offset, Requested(request)))
    }

    fn peek(&self) -> Option<u64> {
        self.0.as_slice().first().map(|request| request.offset)
    }

    fn ended(&mut self, _: u64, buffer: Requested<'r, 'b>, bytes: usize) {
        buffer.0.read = bytes;
    }
}

impl CachedFile {
    /// Performs many reads and stores each one's byte count in its request. Missing pages are read
    /// concurrently, 32 at a time, so pass as many requests as possible; [`Self::read_at`] would
    /// wait for each. Requests that cross a page boundary are read last, one by one.
    ///
    /// A source is asked for all pages at once, as far as memory is free, and so are files without
    /// io_uring, whose pool of threads reads as many as it has threads.
    ///
    /// # Errors
    /// As for [`Self::read_at`], of one request that failed; the state of the others is
    /// unspecified.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        self.perform_reads(UNDER_WAY, usize::MAX, &mut Requests(requests.iter_mut()))
    }

    /// Performs the reads of a stream, with at most `depth` missing pages being read at once (from
    /// 1 to 64). The next read begins when one has ended, for as long as the stream lasts:
    /// [`Self::read_many`] ends with fewer and fewer reads under way, each time.
    ///
    /// Reads may end in another order than they began in. At most `3 * depth + 8` have begun and
    /// not ended. For one that crosses a page boundary the stream soon pauses, so reads within
    /// pages are faster.
    ///
    /// ```
    /// # use mglru_cache::{OpenMode, PageCache, ReadStream};
    /// /// Sums the first bytes of pages.
    /// struct Sum<P> {
    ///     pages: P,
    ///     sum: u64,
    /// }
    ///
    /// impl<P: Iterator<Item = u64>> ReadStream for Sum<P> {
    ///     type Buffer = [u8; 1];
    ///
    ///     fn next(&mut self) -> Option<(u64, [u8; 1])> {
    ///         Some((4096 * self.pages.next()?, [0]))
    ///     }
    ///
    ///     fn ended(&mut self, _offset: u64, buffer: [u8; 1], bytes: usize) {
    ///         self.sum += u64::from(buffer[0]) * bytes as u64;
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), mglru_cache::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("data");
    /// # std::fs::write(&path, vec![3; 4096 * 1000]).unwrap();
    /// let cache = PageCache::builder(1 << 20).build()?;
    /// let file = cache.open(&path, OpenMode::ReadOnly)?;
    /// let mut reads = Sum { pages: (0..1000).step_by(10), sum: 0 };
    /// file.read_stream(32, &mut reads)?;
    /// assert_eq!(reads.sum, 300);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Self::read_at`], of the first read that failed. No read begins after it; those
    /// under way may end, or their buffers are dropped.
    pub fn read_stream(&self, depth: usize, stream: &mut impl ReadStream) -> Result<(), Error> {
        let depth = depth.clamp(1, 64);
        self.perform_reads(depth, depth, stream)
    }

    fn perform_reads(
        &self,
        depth: usize,
        waiting_max: usize,
        stream: &mut impl ReadStream,
    ) -> Result<(), Error> {
        let mut many = Many {
            file: self,
            stream,
            is_over: false,
            flying: Vec::new(),
            free: Vec::new(),
            also: 0,
            later: VecDeque::new(),
            begun_meanwhile: 0,
            waiting_max,
        };
        let has_ring = source_of(&self.inode.file).is_none();
        while !many.is_over {
            if has_ring && self.shared.backend.read_many(depth, &mut many) {
                while many.read_postponed()? {}
                many.begun_meanwhile = 0;
            } else {
                many.submit_all()?;
            }
        }
        Ok(())
    }
}

impl<S: ReadStream> Many<'_, S> {
    /// Copies a read's bytes if its page is in memory. Otherwise returns it with the page to read,
    /// or `None` if it is postponed.
    fn try_copy(&mut self, mut read: Read<S::Buffer>) -> Option<(Read<S::Buffer>, u32)> {
        let (file, offset) = (self.file, read.offset);
        let buffer = read.buffer.as_mut();
        let (in_page, bytes) = ((offset % PAGE_BYTES) as usize, buffer.len());
        let end = offset.saturating_add(bytes as u64);
        let simple = in_page + bytes <= PAGE_BYTES as usize && end <= file.len();
        let (true, Ok(index)) = (simple, u32::try_from(offset / PAGE_BYTES)) else {
            self.later.push_back(read);
            return None;
        };
        if file.copy_cached(index, in_page, buffer, false, read.missed) {
            self.stream.ended(offset, read.buffer, bytes);
            return None;
        }
        Some((read, index))
    }

    /// Reads the first postponed page, with waiting. `false`: there is none.
    fn read_postponed(&mut self) -> Result<bool, Error> {
        let Some(Read { offset, mut buffer, missed }) = self.later.pop_front() else { return Ok(false) };
        let bytes = self.file.read(buffer.as_mut(), offset, missed)?;
        self.stream.ended(offset, buffer, bytes);
        Ok(true)
    }

    /// For backends without batches: submits reads, and waits for the first of them where the next
    /// must not begin.
    fn submit_all(&mut self) -> Result<(), Error> {
        loop {
            while let Some((number, transfer)) = Batch::next(self) {
                let Flying { read, index, folio, .. } = self.land(number);
                let (inode, folios) = (self.file.inode.clone(), vec![folio]);
                let flight = Flight::Read { inode, folios, first: index, waiter: None };
                let shared = &self.file.shared;
                shared.backend.submit(Direction::Read, transfer, shared.in_flight.begin(flight));
                self.later.push_back(Read { missed: true, ..read });
            }
            // The first of them is waited for next, so none waits for long.
            self.begun_meanwhile = 0;
            if !self.read_postponed()? && self.is_over {
                return Ok(());
            }
        }
    }

    /// Whether a further read may begin.
    fn may_begin(&self) -> bool {
        let waiting = self.also + self.later.len();
        !self.is_over && waiting < self.waiting_max && self.begun_meanwhile < self.waiting_max
    }

    /// Lets a read wait for its page, which is locked or has no memory.
    fn postpone(&mut self, read: Read<S::Buffer>, index: u32) {
        match self.flying.iter_mut().flatten().find(|flying| flying.index == index) {
            Some(flying) => {
                flying.also.push(read);
                self.also += 1;
            }
            // Another thread reads this page, or memory is short. Waiting for memory is not allowed
            // while pages are locked.
            None => self.later.push_back(read),
        }
    }

    /// Takes the read of a transfer that is over.
    fn land(&mut self, number: usize) -> Flying<S::Buffer> {
        self.free.push(number);
        self.flying[number].take().expect("a transfer ends once")
    }
}

impl<S: ReadStream> Batch for Many<'_, S> {
    fn next(&mut self) -> Option<(usize, Transfer)> {
        while self.may_begin() {
            let Some((offset, buffer)) = self.stream.next() else {
                self.is_over = true;
                return None;
            };
            if let Some(Ok(index)) = self.stream.peek().map(|offset| u32::try_from(offset / PAGE_BYTES)) {
                // Other threads may read this page, too.
                let (core, mapping) = (&self.file.shared.core, &self.file.inode.mapping);
                core.prefetch_slot(mapping, index, |slot| prefetch_for_read(slot));
            }
            self.begun_meanwhile += usize::from(!self.later.is_empty());
            let read = Read { offset, buffer, missed: false };
            let Some((read, index)) = self.try_copy(read) else { continue };
            let (shared, inode) = (&self.file.shared, &self.file.inode);
            let Some(folio) = shared.try_insert(inode, &self.file.task(), index) else {
                self.postpone(read, index);
                continue;
            };
            let transfer = shared.transfer(inode, index, &[folio]);
            let flying = Some(Flying { read, also: Vec::new(), index, folio });
            let number = match self.free.pop() {
                Some(number) => {
                    self.flying[number] = flying;
                    number
                }
                None => {
                    self.flying.push(flying);
                    self.flying.len() - 1
                }
            };
            return Some((number, transfer));
        }
        None
    }

    fn answered(&self, number: usize) {
        if let Some(Flying { index, folio, .. }) = &self.flying[number] {
            let (shared, mapping) = (&self.file.shared, &self.file.inode.mapping);
            shared.core.prefetch_slot(mapping, *index, |slot| prefetch_for_write(slot));
            shared.frames.prefetch(folio.0);
        }
    }

    fn done(&mut self, number: usize, result: io::Result<usize>) {
        let Flying { read, also, index, folio } = self.land(number);
        self.file.shared.end_read(&self.file.inode, index, &[folio], result.ok());
        self.also -= also.len();
        for read in std::iter::once(Read { missed: true, ..read }).chain(also) {
            // Evicted already, or not readable: the later read reports the error.
            if let Some((read, _)) = self.try_copy(read) {
                self.later.push_back(read);
            }
        }
    }
}
