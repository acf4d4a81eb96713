//! Decoding of bytes to records: the traits that formats implement, and the loops that they share.
//!
//! A format defines the meaning of one line ([`LineFormat`]) or of one record of fixed size
//! ([`RecordFormat`]). [`Lines`] and [`Records`] loop over the buffer. They are compiled once per
//! format, so that one dynamic call decodes a whole batch.

use super::error::is_disk_error;
use super::source::{Input, LINE_BYTES_MAX, Next, is_memory_error};
use super::{Advice, Format, OpenOptions, PAGE_BYTES, PageAccess, Record, RequestStart, TraceError, Trim};
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Records per batch: 64 KiB, which fits into the L1 or L2 cache between decoder and user.
pub(super) const BATCH_RECORDS: usize = 4096;
/// Upper limit of pages per request (16 TiB). A larger request is damage.
const REQUEST_PAGES_MAX: u64 = 1 << 32;
/// Upper limit of files or disks named by one trace, so that damaged names do not exhaust memory.
const NAMES_MAX: usize = 1 << 20;

/// A request for `pages` accesses: to `page` and its successors, or repeatedly to `page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub page: u64,
    pub pages: u64,
    /// Distance between successive accesses: 1, or 0 for the same page.
    pub step: u64,
    pub write: bool,
    pub mapped: bool,
    pub anon: bool,
    /// Whether it begins inside of its first page.
    pub inside: bool,
    /// Whether it ends inside of its last page.
    pub ends_inside: bool,
    /// Whether it is a page fault.
    pub fault: bool,
    /// Number of the open file, or [`RequestStart::NO_HANDLE`].
    pub handle: u32,
}

impl Request {
    /// A request for whole pages, or an error above the limit.
    pub fn pages(page: u64, pages: u64) -> Result<Self, String> {
        if pages > REQUEST_PAGES_MAX || page.checked_add(pages.saturating_sub(1)).is_none() {
            return Err(format!("a request of {pages} pages from page {page} is too large"));
        }
        Ok(Request {
            page,
            pages,
            step: 1,
            write: false,
            mapped: false,
            anon: false,
            inside: false,
            ends_inside: false,
            fault: false,
            handle: RequestStart::NO_HANDLE,
        })
    }

    /// A request for `times` accesses to the same page.
    pub fn again(page: u64, times: u64) -> Result<Self, String> {
        match times {
            0 => return Err("a request repeated 0 times has no access".to_owned()),
            1..=REQUEST_PAGES_MAX => {}
            _ => return Err(format!("a request repeated {times} times is too large")),
        }
        Ok(Request { pages: times, step: 0, ..Self::pages(page, 1)? })
    }

    /// A request for the pages that a byte range touches, including partial ones.
    pub fn bytes(offset: u64, length: u64) -> Result<Self, String> {
        let Some(end) = offset.checked_add(length) else {
            return Err(format!("a request of {length} bytes at {offset} is too large"));
        };
        let page = offset / PAGE_BYTES;
        let request = Self::pages(page, if length == 0 { 0 } else { end.div_ceil(PAGE_BYTES) - page })?;
        let is_inside = |at: u64| !at.is_multiple_of(PAGE_BYTES);
        Ok(Request { inside: is_inside(offset), ends_inside: is_inside(end), ..request })
    }

    /// As [`Request::bytes`], with the position in units such as sectors of 512 bytes.
    pub fn units(position: u64, unit_bytes: u64, length: u64) -> Result<Self, String> {
        let Some(offset) = position.checked_mul(unit_bytes) else {
            return Err(format!("block {position} of {unit_bytes} bytes is out of reach"));
        };
        Self::bytes(offset, length)
    }

    pub fn writing(self, write: bool) -> Self {
        Request { write, ..self }
    }

    /// Whether it is more than an access to one whole page.
    fn is_worth_a_record(&self) -> bool {
        let is_partial = self.write && (self.inside || self.ends_inside);
        self.pages > 1 || self.handle != RequestStart::NO_HANDLE || is_partial
    }

    /// Moves the request from a flat space into a file.
    pub fn in_file(self, file: u32) -> Result<Self, String> {
        if self.page.saturating_add(self.pages) > 1 << 32 {
            return Err(format!("page {} of a file; files have at most 2^32 pages (16 TiB)", self.page));
        }
        Ok(Request { page: u64::from(file) << 32 | self.page, ..self })
    }
}

/// Meaning of one line or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Request(Request),
    /// fsync of a file.
    Sync(u32),
    /// The content of pages is gone: the first page, and their number.
    Trim(u64, u32),
    /// No page event: a comment, a header or another kind of event.
    Nothing,
}

/// A format of text lines. Lines arrive without newline and surrounding white space, and are not
/// empty.
pub(super) trait LineFormat: Send {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String>;
}

/// A format of records of fixed size.
pub(super) trait RecordFormat: Send {
    /// Bytes per record.
    fn size(&self) -> usize;
    /// Parses a record of [`size`](Self::size) bytes.
    fn record(&mut self, record: &[u8]) -> Result<Parsed, String>;
    /// Called at the end of the trace with the number of requests.
    fn finish(&self, _requests: u64) -> Result<(), String> {
        Ok(())
    }
}

/// Buffer of decoded records, with the request that did not fit any more.
pub(super) struct Sink {
    pub records: Vec<Record>,
    rest: Option<Request>,
    pub requests: u64,
    pub any_access: bool,
    pub lossy: bool,
    pub skipped: u64,
    /// Whether to deliver where requests begin.
    begins: bool,
}

impl Sink {
    pub fn new(options: OpenOptions) -> Self {
        Self {
            records: Vec::with_capacity(BATCH_RECORDS),
            rest: None,
            requests: 0,
            any_access: false,
            lossy: options.lossy,
            skipped: 0,
            begins: options.requests,
        }
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.records.len() >= BATCH_RECORDS
    }

    #[inline]
    fn request(&mut self, request: Request) {
        let Request { page, pages, write, mapped, anon, inside, fault, .. } = request;
        if self.begins && pages > 0 && request.is_worth_a_record() {
            let Request { handle, ends_inside, .. } = request;
            let pages = u32::try_from(pages).unwrap_or(u32::MAX);
            self.records.push(Record::Request(RequestStart { pages, handle, ends_inside }));
        }
        if pages == 1 {
            self.records.push(Record::Access(PageAccess { page, write, mapped, anon, inside, fault }));
        } else if pages == 0 {
            return;
        } else {
            self.rest = Some(request);
            self.expand();
        }
        self.requests += 1;
        self.any_access = true;
    }

    /// Expands the pending request into accesses, until the sink is full.
    pub fn expand(&mut self) {
        let Some(request) = self.rest.take() else { return };
        let Request { page, pages, step, write, mapped, anon, inside, fault, .. } = request;
        // The record of its beginning may have been the last one.
        let now = pages.min(BATCH_RECORDS.saturating_sub(self.records.len()) as u64);
        let access = |page, inside| Record::Access(PageAccess { page, write, mapped, anon, inside, fault });
        // The last page may be the largest number, so never compute the page after it.
        self.records.extend((0..now).map(|index| access(page + index * step, inside && index == 0)));
        if now < pages {
            let inside = inside && now == 0;
            self.rest = Some(Request { page: page + now * step, pages: pages - now, inside, ..request });
        }
    }

    /// Counts a bad record if reading is lossy, else fails.
    fn bad(&mut self, fault: Fault) -> Result<(), Fault> {
        if !self.lossy {
            return Err(fault);
        }
        self.skipped += 1;
        Ok(())
    }

    /// Distinguishes the end of the stream from a read error.
    fn end_of_stream(&mut self, input: &mut Input) -> Result<Flow, Fault> {
        if let Some(error) = input.take_failure() {
            if is_disk_error(&error) || is_memory_error(&error) {
                return Err(Fault::Stream(error));
            }
            self.bad(Fault::Stream(error))?;
        }
        Ok(Flow::Ended)
    }
}

/// Reason why decoding stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The batch is full.
    Full,
    /// The trace has ended.
    Ended,
}

/// A fault whose file is not known yet.
#[derive(Debug)]
pub(super) enum Fault {
    Bad { offset: u64, line: Option<u64>, what: String },
    Truncated { offset: u64, have: usize, need: usize },
    Columns(String),
    Stream(io::Error),
}

impl Fault {
    pub fn at(self, path: &Path, format: Format, input: &Input, advice: Advice) -> TraceError {
        let file = path.to_path_buf();
        match self {
            Fault::Bad { offset, line, what } => {
                TraceError::Damaged { path: file, format, offset, line, what, advice }
            }
            Fault::Truncated { offset, have, need } => TraceError::Truncated {
                path: file,
                format,
                offset,
                have_bytes: have as u64,
                need_bytes: need as u64,
                advice,
            },
            Fault::Columns(what) => TraceError::Columns { path: file, format, what, advice },
            Fault::Stream(error) => TraceError::stream(path, input, error, advice),
        }
    }
}

/// A decoder. It is called once per batch.
pub(super) trait Decode: Send {
    /// Decodes until the sink is full or the input ends.
    fn decode(&mut self, input: &mut Input, sink: &mut Sink) -> Result<Flow, Fault>;
    /// Called at the end of the input with the number of requests.
    fn finish(&self, requests: u64) -> Result<(), String>;
}

/// Decoder for a format of lines.
pub(super) struct Lines<F>(pub F);

impl<F: LineFormat> Decode for Lines<F> {
    fn decode(&mut self, input: &mut Input, sink: &mut Sink) -> Result<Flow, Fault> {
        while !sink.is_full() {
            let offset = input.offset();
            let parsed = match input.line() {
                Next::Item(range) => match input.bytes(range).trim_ascii() {
                    [] => Ok(Parsed::Nothing),
                    line => self.0.line(line),
                },
                Next::TooLong => Err(format!("a line of more than {LINE_BYTES_MAX} bytes: not a text file?")),
                Next::End | Next::Partial(_) => return sink.end_of_stream(input),
            };
            match parsed {
                Ok(Parsed::Request(request)) => sink.request(request),
                Ok(Parsed::Sync(file)) => sink.records.push(Record::Sync { file }),
                Ok(Parsed::Trim(page, pages)) => sink.records.push(Record::Trim(Trim { page, pages })),
                Ok(Parsed::Nothing) => {}
                Err(what) => sink.bad(Fault::Bad { offset, line: Some(input.lines()), what })?,
            }
        }
        Ok(Flow::Full)
    }

    fn finish(&self, _: u64) -> Result<(), String> {
        Ok(())
    }
}

/// Decoder for a format of records.
pub(super) struct Records<F>(pub F);

impl<F: RecordFormat> Decode for Records<F> {
    fn decode(&mut self, input: &mut Input, sink: &mut Sink) -> Result<Flow, Fault> {
        let size = self.0.size();
        while !sink.is_full() {
            let range = match input.records(size) {
                Next::Item(range) => range,
                Next::Partial(have) => {
                    let offset = input.offset();
                    input.consume(have);
                    sink.bad(Fault::Truncated { offset, have, need: size })?;
                    return Ok(Flow::Ended);
                }
                Next::End | Next::TooLong => return sink.end_of_stream(input),
            };
            let start = range.start;
            let mut read_bytes = 0;
            for record in input.bytes(range).chunks_exact(size) {
                if sink.is_full() {
                    break;
                }
                match self.0.record(record) {
                    Ok(Parsed::Request(request)) => sink.request(request),
                    Ok(Parsed::Sync(file)) => sink.records.push(Record::Sync { file }),
                    Ok(Parsed::Trim(page, pages)) => sink.records.push(Record::Trim(Trim { page, pages })),
                    Ok(Parsed::Nothing) => {}
                    Err(what) => {
                        let offset = input.offset_of(start + read_bytes);
                        sink.bad(Fault::Bad { offset, line: None, what })?;
                    }
                }
                read_bytes += size;
            }
            input.consume(read_bytes);
        }
        Ok(Flow::Full)
    }

    fn finish(&self, requests: u64) -> Result<(), String> {
        self.0.finish(requests)
    }
}

/// Numbers the files or disks of a trace in order of first use.
#[derive(Default)]
pub(super) struct Names {
    ids: HashMap<Vec<u8>, u32>,
    /// Cache of the last name, because traces repeat names in long runs.
    last: Option<(Vec<u8>, u32)>,
}

impl Names {
    pub fn id(&mut self, name: &[u8]) -> Result<u32, String> {
        if let Some((last, id)) = &self.last
            && last == name
        {
            return Ok(*id);
        }
        let next = self.ids.len();
        let id = match self.ids.get(name) {
            Some(id) => *id,
            None if next >= NAMES_MAX => return Err(format!("more than {NAMES_MAX} files or disks")),
            None => {
                self.ids.insert(name.to_vec(), next as u32);
                next as u32
            }
        };
        self.last = Some((name.to_vec(), id));
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_the_pages_they_overlap() {
        let pages =
            |offset, length| Request::bytes(offset, length).map(|request| (request.page, request.pages));
        assert_eq!(pages(0, 1), Ok((0, 1)));
        assert_eq!(pages(4095, 1), Ok((0, 1)));
        assert_eq!(pages(4095, 2), Ok((0, 2)));
        assert_eq!(pages(4096, 4096), Ok((1, 1)));
        assert_eq!(pages(512, 8192), Ok((0, 3)));
        assert_eq!(pages(4096, 0), Ok((1, 0)));
        assert!(pages(u64::MAX, 1).is_err());
        assert!(Request::units(1 << 60, 512, 512).is_err());
        assert!(Request::pages(0, (1 << 32) + 1).is_err());
        assert!(Request::again(u64::MAX, 2).is_ok() && Request::again(7, 0).is_err());
        assert!(Request::again(7, 0).unwrap_err().contains("no access"));
        assert!(Request::pages(1 << 31, 1 << 31).and_then(|request| request.in_file(7)).is_ok());
        assert!(Request::pages(1 << 31, (1 << 31) + 1).and_then(|request| request.in_file(7)).is_err());
    }

    #[test]
    fn names_count_from_zero() {
        let mut names = Names::default();
        let ids: Vec<_> =
            ["b", "a", "b", "b", "a", "c"].iter().map(|name| names.id(name.as_bytes())).collect();
        assert_eq!(ids, [Ok(0), Ok(1), Ok(0), Ok(0), Ok(1), Ok(2)]);
    }
}
