//! Blocks from anywhere: files whose bytes come from a [`BlockSource`], such as an object in a
//! bucket.
//!
//! A source is opened like a file ([`crate::Tenant::open_source`]), and everything of a
//! [`crate::CachedFile`] works on it: maps, guards, readahead, limits of tenants. The cache asks
//! the source for ranges of whole pages, each page once for all readers, and copies the answer
//! straight into its frames.
//!
//! ```text
//! miss, readahead ──► ranges wait ──► a thread of the cache ──► BlockSource::read_ranges
//!                                      (all that wait for one source, in one call)
//!      page published ◄── checked: version, length ◄── RangeRequest::fulfil, on any thread
//! ```
//!
//! A source may answer inside of `read_ranges` or hand the requests to a runtime and return at
//! once: then many reads are under way without a thread for each.
//!
//! # What the cache checks
//!
//! A source may be wrong; its readers then get an error, and no page.
//!
//! - An answer with more or fewer bytes than the range has is refused (`InvalidData`). Only what
//!   the cache itself cut off meanwhile may be missing ([`BlockSource::set_len`]).
//! - An answer of another version than the file was opened with is refused
//!   (`StaleNetworkFileHandle`). Pages that are in memory are of the old version and stay valid.
//!   Opening the source again finds the new version, as a file of its own.
//! - A range that gets no answer until the deadline ([`crate::Builder::source_deadline`]) fails
//!   with `TimedOut`; an answer after that is ignored. Every other call of a source has the same
//!   deadline. A write or truncation that is late may still take effect; until it returns, other
//!   changes of that source fail.
//! - A request that is dropped without an answer fails.
//!
//! A source that keeps its threads for ever delays no other source: each has a share of at most 8
//! of 64 threads, which shrinks as more are used, and a queue of its own.
//!
//! A miss that brought in pages around it reads its own page again, alone, before it reports an
//! error, unless that is of the whole source (`NotFound`, `PermissionDenied`,
//! `StaleNetworkFileHandle`, `Unsupported`) or of the deadline (`TimedOut`). Further retries and
//! hedged requests are left to the source, which knows its service.
//!
//! With a disk tier ([`crate::Builder::disk_tier`]), misses look there first, and answers of a
//! known version are kept there ([`crate::tier`]).

mod calls;
#[cfg(test)]
mod failing_tests;
mod pool;
mod reads;
#[cfg(test)]
pub(crate) mod tests;
mod tiered;

use crate::backend::disk_file::refuse_other_than_regular;
use mglru_core::PAGE_BYTES;
pub(crate) use pool::{SourceFile, Sources, WithSources, refuse_in_own_call, source_of};
use reads::{Reads, Shortest};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that a cache can hold pages of: an object in a bucket, a part of an archive, a file.
///
/// [`FileSource`] is the simplest implementation.
pub trait BlockSource: fmt::Debug + Send + Sync + 'static {
    /// The name, for messages. Sources with the same name and version share cached pages, and those
    /// with the same name share threads. This must not block.
    fn name(&self) -> String;

    /// The length and the version, asked for at each open.
    ///
    /// # Errors
    /// The bytes do not exist or cannot be reached. The open fails with this error.
    fn state(&self) -> io::Result<SourceState>;

    /// Reads ranges and answers each request ([`RangeRequest::fulfil`], [`RangeRequest::fail`]), in
    /// any order, on this or any other thread, before or after this call returns.
    ///
    /// Ranges start at multiples of 4,096 bytes and end at one or at the end of the source. They
    /// do not overlap, but may be neighbours or near one another: reading the gap may be cheaper
    /// than a request each. The cache calls this on threads of its own, up to 8 at once for one
    /// name; a source that answers before it returns keeps its thread busy until then.
    ///
    /// The source must not read its own pages through the cache, which would ask it again. On the
    /// thread of this call, a read of a page that is not in memory fails (`Deadlock`); on another
    /// one it waits until the deadline.
    fn read_ranges(&self, requests: Vec<RangeRequest>);

    /// The preferred size of reads, in bytes. A miss brings in the whole block with its page, as
    /// far as memory is free and within a quarter of the tenant's limit. Default: 4,096, no more
    /// than what readahead asks for. A source with blocks of 0 bytes cannot be opened.
    fn block_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    /// Whether the disk tier keeps what the source returns, if the cache has one
    /// ([`crate::Builder::disk_tier`]). It keeps pages over restarts, by name, version and length.
    /// So together they must never stand for other bytes, in any run of the program: a counter that
    /// begins anew is no version. Default: yes. Sources without a version, and those that can be
    /// written, are not kept in any case.
    fn is_kept_on_disk(&self) -> bool {
        true
    }

    /// Whether the source can be written. Versions of such a source are not compared, because each
    /// write makes another one: only one cache should write to it, and the cache sees changes by
    /// others only after the last handle was closed.
    fn is_writable(&self) -> bool {
        false
    }

    /// Writes all of `bytes` at `offset`, beyond the end too. Called on threads of the cache, for
    /// ranges that do not overlap.
    ///
    /// # Errors
    /// The bytes could not be written. The pages stay dirty and are written again later.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _ = (offset, bytes);
        Err(not_writable(&self.name()))
    }

    /// Truncates to `len` bytes, or extends with zeros.
    ///
    /// # Errors
    /// The length could not be changed.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Err(not_writable(&self.name()))
    }

    /// Puts everything written on stable storage.
    ///
    /// # Errors
    /// It is not known to be there.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn not_writable(name: &str) -> io::Error {
    let what = format!("{name} cannot be written: open it with OpenMode::ReadOnly");
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// The state of a [`BlockSource`] when it is opened.
///
/// More may be said of a source one day, so a state is made by [`Self::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceState {
    /// The length, in bytes.
    pub len: u64,
    /// The version of the bytes, such as an etag. `None`: the source has no versions; the cache
    /// sees changes only after the last handle was closed.
    pub version: Option<String>,
}

impl SourceState {
    /// A source of `len` bytes, without a version.
    pub fn new(len: u64) -> SourceState {
        SourceState { len, version: None }
    }

    /// The same with a version.
    pub fn with_version(self, version: impl Into<String>) -> SourceState {
        SourceState { version: Some(version.into()), ..self }
    }
}

/// A range that the cache wants from a [`BlockSource`]. Dropped without an answer, it fails.
#[derive(Debug)]
pub struct RangeRequest {
    reads: Arc<Reads>,
    number: u64,
    version: Option<Arc<str>>,
    range: Range<u64>,
    shortest: Shortest,
    answered: bool,
}

impl RangeRequest {
    /// The range, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The version that the bytes must have, if the source has versions: for a conditional request
    /// such as HTTP's `If-Match`.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether an answer is still of use: `false` after the deadline.
    pub fn is_wanted(&self) -> bool {
        self.reads.is_wanted(self.number)
    }

    /// Answers with the bytes of the range, and with the version that they are of, if known. If the
    /// source was truncated since it was asked ([`BlockSource::set_len`]), answer with those up to
    /// its end.
    pub fn fulfil(mut self, version: Option<&str>, bytes: &[u8]) {
        self.answered = true;
        let answer = self.check(version, bytes).map(|()| bytes);
        self.reads.answer(self.number, answer, version.is_some());
    }

    /// Answers that the range cannot be read.
    pub fn fail(mut self, error: io::Error) {
        self.answered = true;
        self.reads.answer(self.number, Err(error), false);
    }

    fn check(&self, version: Option<&str>, bytes: &[u8]) -> io::Result<()> {
        if let (Some(expected), Some(found)) = (self.version(), version)
            && expected != found
        {
            let what = format!(
                "it was opened with version {expected} and now has version {found}: close it and open it again"
            );
            return Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, what));
        }
        let wanted = self.range.end - self.range.start;
        // The part that this cache has cut off meanwhile may be missing.
        let shortest = self.shortest.as_ref().map_or(u64::MAX, |shortest| shortest.load(Ordering::Relaxed));
        let least = shortest.saturating_sub(self.range.start).min(wanted);
        if !(least..=wanted).contains(&(bytes.len() as u64)) {
            let what = format!(
                "the source returned {} bytes for {wanted} bytes at byte {}: its length is not what it said, or it \
                 ignores ranges",
                bytes.len(),
                self.range.start
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(())
    }
}

impl Drop for RangeRequest {
    fn drop(&mut self) {
        if !self.answered {
            let what = format!("the source gave no answer for the range at byte {}", self.range.start);
            self.reads.answer(self.number, Err(io::Error::other(what)), false);
        }
    }
}

/// A local file as a [`BlockSource`], read with ordinary system calls.
///
/// [`crate::Tenant::open`] is faster: it bypasses the system's cache and uses io_uring. This is for
/// files that need a name or a version of their own, and an example of a source.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    path: PathBuf,
    writable: bool,
}

impl FileSource {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The system refuses, or it is not a regular file with a length.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileSource> {
        FileSource::with(path.as_ref(), File::options().read(true), false)
    }

    /// Opens a file for reading and writing, and creates it if it is missing.
    ///
    /// # Errors
    /// The system refuses, or it is not a regular file with a length.
    pub fn create(path: impl AsRef<Path>) -> io::Result<FileSource> {
        let mut options = File::options();
        FileSource::with(path.as_ref(), options.read(true).write(true).create(true).truncate(false), true)
    }

    fn with(path: &Path, options: &mut OpenOptions, writable: bool) -> io::Result<FileSource> {
        // Opening a FIFO would wait for its other end.
        let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
        refuse_other_than_regular(&file)?;
        Ok(FileSource { file, path: path.to_owned(), writable })
    }

    /// Device, inode, length and time of the last change.
    fn version(&self) -> io::Result<(u64, String)> {
        let data = self.file.metadata()?;
        let (device, inode, len) = (data.dev(), data.ino(), data.len());
        Ok((len, format!("{device:x}-{inode:x}-{len:x}-{:x}.{:09}", data.mtime(), data.mtime_nsec())))
    }
}

impl BlockSource for FileSource {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn state(&self) -> io::Result<SourceState> {
        let (len, version) = self.version()?;
        Ok(SourceState { len, version: Some(version) })
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        for request in requests {
            let range = request.range();
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let read = read_to_end_at(&self.file, &mut bytes, range.start);
            // The version after the read is that of the bytes, or of a later change.
            match read.and_then(|read| Ok((read, self.version()?))) {
                Ok((read, (_, version))) => request.fulfil(Some(&version), &bytes[..read]),
                Err(error) => request.fail(error),
            }
        }
    }

    /// It is on a disk of its own.
    fn is_kept_on_disk(&self) -> bool {
        false
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Fills a buffer from `offset` on, as far as the file goes. Returns how many bytes these are.
fn read_to_end_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
