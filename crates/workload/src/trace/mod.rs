//! Page-access traces: the sequence of pages that a program touched.
//!
//! A trace is a file in one of fifteen formats, optionally compressed. It is read as batches of
//! [`Record`]s. Three independent layers read it:
//!
//! ```text
//! source      bytes       file -> gzip | xz | zstd, nested -> a buffer that counts bytes and lines
//! FORMAT.rs   requests    a line or binary record -> "these pages, read or written" | fsync | nothing
//! here        accesses    a request of n pages -> n accesses of 4 KiB, as many as the batch has room for
//! ```
//!
//! Memory use does not grow with the length of the trace: the buffer holds 256 KiB, a batch 4,096
//! records, and a request of a million pages is a running counter. Only the names of files or disks
//! in a trace are kept.
//!
//! # Page numbers
//!
//! Every format's file documents its sizes and offsets. There are four kinds of page numbers:
//!
//! * One flat space (kernel lab, ARC, vscsi, ...): the page number is the position in 4 KiB pages.
//! * Several files or disks (fio, MSR, MQSim, blkparse, CSV with volumes): file id << 32 | page in
//!   the file. Ids count from 0 in the order in which the trace first names the files, so a trace
//!   of one disk is a flat space again.
//! * Anonymous memory (kernel lab): a separate space. Anonymous page 5 is not file page 5.
//! * Opaque keys (libCacheSim, CacheLib, plain): each key is one page, whatever its size.
//!   Neighbouring numbers are unrelated. (A block of CacheLib's block store is such a key, with a
//!   range of pages to itself.)
//!
//! # Damage
//!
//! An invalid record is an error that names the file, byte offset (in the decompressed stream) and
//! line. The records before it are delivered first. With [`OpenOptions::lossy`] bad records are
//! skipped and counted in [`TraceReader::skipped`]. A stream that breaks off counts as one bad
//! record, however much of it is missing. Some damage is undetectable: text that is cut at the end
//! of a number, or a binary trace that is cut between two records (unless a kernel-lab sidecar
//! gives their number).

mod address;
mod arc;
mod blkparse;
mod cachelib;
mod decode;
mod distinct;
mod error;
mod fio_iolog;
mod format;
mod info;
mod kernel_lab;
mod libcachesim_csv;
mod lirs;
mod members;
mod mqsim;
mod msr;
mod oracle_general;
mod plain;
mod recognise;
mod request_log;
mod shared_text;
mod source;
mod text;
mod vscsi;
mod write;

#[cfg(test)]
mod tests;

pub use error::{Advice, TraceError};
pub use format::Format;
pub use info::{Counting, TraceInfo, info, info_with};
pub use kernel_lab::{Sidecar, sidecar};
pub use request_log::{LoggedRequest, RequestKind, RequestLog};
pub use source::{Compression, Foreign};
pub use write::{Converted, TraceWriter, WriteOptions, convert};

use crate::PAGE_BYTES;
use decode::{Decode, Fault, Flow, Sink};
use source::Input;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One touch of one 4 KiB page. Anonymous pages and file pages are numbered separately: `(anon,
/// page)` identifies the page.
// Packed, so that a record has 16 bytes: long traces are kept decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(Rust, packed(4))]
pub struct PageAccess {
    /// Page number. If the format knows files, the high 32 bits are the file's id.
    pub page: u64,
    /// Whether the access writes.
    pub write: bool,
    /// Whether the access is through a mapping rather than a descriptor.
    pub mapped: bool,
    /// Whether the page is anonymous rather than file memory.
    pub anon: bool,
    /// Whether the access begins inside of the page, so that it may continue the one before.
    /// `false` where a format knows no bytes.
    pub inside: bool,
    /// Whether a mapped access is a page fault: the process had no page-table entry for the page.
    /// `false` where a format does not tell faults from other accesses.
    pub fault: bool,
}

impl PageAccess {
    /// A read of a file's page from its start, through a descriptor.
    pub const fn read(page: u64) -> PageAccess {
        PageAccess { page, write: false, mapped: false, anon: false, inside: false, fault: false }
    }
}

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A page access.
    Access(PageAccess),
    /// fsync or fdatasync of a file.
    Sync {
        /// The file's id, as in the high 32 bits of its pages.
        file: u32,
    },
    /// Pages were cut off or punched out of a file, or the file was removed: their content is gone.
    Trim(Trim),
    /// A request begins. Only with [`OpenOptions::requests`].
    Request(RequestStart),
}

const _: () = assert!(size_of::<Record>() == 16);

impl Record {
    /// The page access, if it is one.
    pub fn access(&self) -> Option<PageAccess> {
        match *self {
            Record::Access(access) => Some(access),
            Record::Sync { .. } | Record::Trim(_) | Record::Request(_) => None,
        }
    }
}

/// Neighbouring pages of a file.
// Packed, as [`PageAccess`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(Rust, packed(4))]
pub struct Trim {
    /// The first page.
    pub page: u64,
    /// Number of pages.
    pub pages: u32,
}

/// The beginning of a request: which of the following accesses a program asked for together. An
/// access that no request has is one for a whole page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestStart {
    /// Number of its accesses, which are the next ones.
    pub pages: u32,
    /// Number of the open file, or [`RequestStart::NO_HANDLE`]. A number that was closed is used
    /// again.
    pub handle: u32,
    /// Whether it ends inside of its last page.
    pub ends_inside: bool,
}

impl RequestStart {
    /// The trace does not tell open files apart.
    pub const NO_HANDLE: u32 = u32::MAX;
}

/// How to open a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// The format; `None` recognises it by content first, by name second.
    pub format: Option<Format>,
    /// Whether to skip and count bad records instead of failing at the first.
    pub lossy: bool,
    /// Bytes per unit of block numbers, for the formats that count in units: ARC, vscsi, blkparse,
    /// and the `lbn` of a CSV. `None` is 512. Some ARC traces (OLTP) count in whole pages: 4096.
    pub unit_bytes: Option<u32>,
    /// Whether to deliver where requests begin, as far as they are more than one whole page.
    pub requests: bool,
    /// Where these options come from, for advice in errors.
    pub origin: OptionOrigin,
}

/// Where the options of opening come from. Errors advise other options in the words of that place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptionOrigin {
    /// A command line: `--lossy`.
    #[default]
    CommandLine,
    /// Keys of a file, or arguments of a function: `lossy`.
    Keys,
    /// Nowhere: there are no such options, and another trace has to be made.
    Nowhere,
}

/// Opens a trace, and reads as much as is needed to recognise compression and format.
pub fn open(path: &Path, options: OpenOptions) -> Result<TraceReader, TraceError> {
    let (input, file_bytes) = Input::open(path)?;
    TraceReader::new(path.to_path_buf(), input, file_bytes, options)
}

/// As [`open`], for bytes that are not a file; `name` replaces the path in recognition and errors.
pub fn from_reader(
    name: &str,
    reader: Box<dyn Read + Send>,
    options: OpenOptions,
) -> Result<TraceReader, TraceError> {
    let path = PathBuf::from(name);
    let input = Input::new(reader).map_err(|error| TraceError::io(&path, error))?;
    TraceReader::new(path, input, None, options)
}

/// Reads a trace sequentially, in batches ([`TraceReader::next_batch`]) or, more slowly, as an
/// iterator.
pub struct TraceReader {
    path: PathBuf,
    format: Format,
    advice: Advice,
    file_bytes: Option<u64>,
    input: Input,
    decoder: Box<dyn Decode>,
    sink: Sink,
    /// Number of records in the sink that the iterator has returned.
    taken: usize,
    /// Error that ended the trace, to be returned after the records in the sink.
    failure: Option<TraceError>,
    done: bool,
}

impl TraceReader {
    fn new(
        path: PathBuf,
        mut input: Input,
        file_bytes: Option<u64>,
        options: OpenOptions,
    ) -> Result<Self, TraceError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let advice = Advice::of(&options);
        let sample = input.sample();
        if sample.bytes.is_empty() {
            let empty =
                || TraceError::Empty { path: path.clone(), format: options.format, skipped: 0, advice };
            return Err(broken_off(&path, &mut input, advice).unwrap_or_else(empty));
        }
        if !options.format.is_some_and(Format::is_binary)
            && let Some(compression) = source::unsupported_compression(&sample.bytes)
        {
            return Err(TraceError::Unsupported { path, compression });
        }
        if options.format.is_none()
            && !recognise::is_named_binary(&name)
            && let Some(kind) = source::foreign(&sample.bytes)
        {
            return Err(TraceError::Foreign { path, kind });
        }
        let format = match options.format.map_or_else(|| recognise::recognise(&name, &sample), Ok) {
            Ok(format) => format,
            Err(unsure) => {
                return Err(broken_off(&path, &mut input, advice).unwrap_or_else(|| unsure.at(&path, advice)));
            }
        };
        if options.unit_bytes.is_some() && !format.counts_units() {
            let what = format!("a unit size means nothing for the format {format}");
            return Err(TraceError::Usage { path, what });
        }
        if options.unit_bytes.is_some()
            && format == Format::LibCacheSimCsv
            && !libcachesim_csv::counts_units(&sample)
        {
            let what = "a unit size means nothing without a column lbn".to_owned();
            return Err(TraceError::Usage { path, what });
        }
        let unit_bytes = options.unit_bytes.unwrap_or(512);
        if !(1..=1 << 20).contains(&unit_bytes) {
            let what = format!("a unit of {unit_bytes} bytes, expected 1 to 1048576");
            return Err(TraceError::Usage { path, what });
        }
        let sidecar = if format == Format::KernelLab { sidecar(&path)? } else { None };
        let decoder = match format.decoder(&sample, u64::from(unit_bytes), sidecar) {
            Ok(decoder) => decoder,
            Err(fault) => {
                let error = fault.at(&path, format, &input, advice);
                return Err(broken_off(&path, &mut input, advice).unwrap_or(error));
            }
        };
        if sample.is_marked() && !format.is_binary() {
            input.consume(source::BYTE_ORDER_MARK.len());
        }
        Ok(Self {
            advice,
            path,
            format,
            file_bytes,
            input,
            decoder,
            sink: Sink::new(options),
            taken: 0,
            failure: None,
            done: false,
        })
    }

    /// Replaces the contents of `batch` with the next records, up to 4,096. Returns their number,
    /// which is 0 at the end of the trace.
    ///
    /// # Errors
    /// A damaged record, after all records before it were returned. The trace then ends.
    pub fn next_batch(&mut self, batch: &mut Vec<Record>) -> Result<usize, TraceError> {
        if self.taken >= self.sink.records.len() {
            self.fill()?;
        }
        batch.clear();
        if self.taken > 0 {
            batch.extend_from_slice(&self.sink.records[self.taken..]);
        } else {
            std::mem::swap(batch, &mut self.sink.records);
        }
        self.sink.records.clear();
        self.taken = 0;
        Ok(batch.len())
    }

    /// Fills the sink. It stays empty only at the end of the trace.
    fn fill(&mut self) -> Result<(), TraceError> {
        self.sink.records.clear();
        self.taken = 0;
        if !self.done && self.failure.is_none() {
            self.sink.expand();
            if !self.sink.is_full() {
                match self.decoder.decode(&mut self.input, &mut self.sink) {
                    Ok(Flow::Full) => assert!(!self.sink.records.is_empty()),
                    Ok(Flow::Ended) => self.end(),
                    Err(fault) => {
                        let error = fault.at(&self.path, self.format, &self.input, self.advice);
                        // A wrong byte of a compressed stream shows as a wrong record first.
                        let broken_off = match error {
                            TraceError::Damaged { .. } => {
                                broken_off(&self.path, &mut self.input, self.advice)
                            }
                            _ => None,
                        };
                        self.failure = Some(broken_off.unwrap_or(error));
                    }
                }
            }
        }
        if self.sink.records.is_empty() {
            self.done = true;
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Handles the end of the input, and checks that the trace is complete.
    fn end(&mut self) {
        self.done = true;
        if let Err(what) = self.decoder.finish(self.sink.requests) {
            if self.sink.lossy {
                self.sink.skipped += 1;
            } else {
                let fault = Fault::Bad { offset: self.input.offset(), line: None, what };
                self.failure = Some(fault.at(&self.path, self.format, &self.input, self.advice));
            }
        }
        if !self.sink.any_access && self.failure.is_none() {
            let path = self.path.clone();
            let format = Some(self.format);
            let (skipped, advice) = (self.sink.skipped, self.advice);
            self.failure = Some(TraceError::Empty { path, format, skipped, advice });
        }
    }

    /// Bad records skipped so far; 0 unless the trace was opened with `lossy`.
    pub fn skipped(&self) -> u64 {
        self.sink.skipped
    }

    /// Requests read so far: records of the format that touched at least one page.
    pub fn requests(&self) -> u64 {
        self.sink.requests
    }

    /// The format, as recognised or as requested.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The compressions that were removed, outermost first.
    pub fn compression(&self) -> &[Compression] {
        self.input.layers()
    }

    /// Path of the trace.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fraction of the stored file that has been read, 0 to 1, for progress bars; `None` if its
    /// size is unknown.
    pub fn progress(&self) -> Option<f64> {
        let total = self.file_bytes.filter(|total| *total > 0)?;
        Some((self.input.stored_bytes_read() as f64 / total as f64).min(1.0))
    }
}

/// Error of a stream that broke off, or whose checksum is wrong. It explains more than content that
/// makes no sense.
fn broken_off(path: &Path, input: &mut Input, advice: Advice) -> Option<TraceError> {
    input.drain();
    input.take_failure().map(|error| TraceError::stream(path, input, error, advice))
}

impl Iterator for TraceReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.taken >= self.sink.records.len()
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        let record = *self.sink.records.get(self.taken)?;
        self.taken += 1;
        Some(Ok(record))
    }
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("compression", &self.compression())
            .finish_non_exhaustive()
    }
}
