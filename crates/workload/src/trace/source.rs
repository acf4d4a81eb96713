//! The byte stream of a trace: the file, its compressions, and a buffer that tracks offsets and
//! lines.

use super::TraceError;
use super::members::Members;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decompressed bytes in memory: large compared with a line, small compared with a cache.
const BUFFER_BYTES: usize = 256 * 1024;
/// Longest accepted line. A longer one means that a binary file is read as text.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;
/// Size of the sample for recognition.
const SAMPLE_BYTES: usize = 64 * 1024;
/// Upper limit of nested compressions. `x.txt.gz.zst` occurs; five layers are an attack.
const LAYERS_MAX: usize = 4;
/// Largest window of zstd frames, 128 MiB; frames with a larger one are refused. Known traces need
/// 2^24.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Compression of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (`.gz`), including several members in sequence.
    Gzip,
    /// xz (`.xz`), including several streams in sequence.
    Xz,
    /// zstd (`.zst`), windows up to 2^27 bytes.
    Zstd,
}

impl Compression {
    /// Every compression with its file name extension.
    pub(super) const EXTENSIONS: [(&'static str, Compression); 3] =
        [("gz", Compression::Gzip), ("xz", Compression::Xz), ("zst", Compression::Zstd)];

    fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            // The two magic bytes could also begin a kernel-lab trace, so check the whole header.
            [0x1f, 0x8b, 8, flags, _, _, _, _, 0 | 2 | 4, 0..=13 | 255, ..] if *flags < 0x20 => {
                Some(Compression::Gzip)
            }
            _ => None,
        }
    }
}

/// U+FEFF in UTF-8.
pub(super) const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// A kind of file that is not a trace, but may hold one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The kind.
    pub name: &'static str,
    /// The step that makes a trace of it.
    pub remedy: &'static str,
}

/// The kind of a file that holds a trace in a form that is not read, by its first bytes.
pub(super) fn foreign(bytes: &[u8]) -> Option<Foreign> {
    let archive = |name| Foreign { name, remedy: "unpack the trace first" };
    match bytes {
        // Version and flags follow, of which the high bytes are zero and small.
        [b'P', b'K', 3, 4, 10..=63, 0, ..] => Some(archive("a zip archive")),
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Some(archive("a 7-Zip archive")),
        // The magic of a tar header stands behind the name, mode, owner and size of the first file.
        _ if bytes.get(257..262) == Some(b"ustar") => Some(archive("a tar archive")),
        [b'P', b'A', b'R', b'1', ..] => Some(Foreign {
            name: "a Parquet file",
            remedy: "write its column of pages as CSV first, or give the column to mglru.Trace in Python",
        }),
        [0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, ..] => Some(Foreign {
            name: "in libCacheSim's format lcs",
            remedy: "convert it to oracleGeneral or CSV with libCacheSim first",
        }),
        [0xff, 0xfe, units @ ..] | [0xfe, 0xff, units @ ..] if is_utf16(units, bytes[0] == 0xfe) => {
            Some(Foreign { name: "text in UTF-16", remedy: "convert it first: iconv -f UTF-16 -t UTF-8" })
        }
        _ => None,
    }
}

/// Whether units of UTF-16 are ASCII text. Four bytes may also begin a trace of page numbers.
fn is_utf16(units: &[u8], big_endian: bool) -> bool {
    let mut units = units.chunks_exact(2).take(100).peekable();
    units.peek().is_some()
        && units.all(|unit| {
            let (high, low) = if big_endian { (unit[0], unit[1]) } else { (unit[1], unit[0]) };
            high == 0 && (low.is_ascii_graphic() || low.is_ascii_whitespace())
        })
}

/// The name of a compression that is not supported, if `bytes` begin with its magic number.
pub(super) fn unsupported_compression(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        // A block, or the end of an empty file, follows the header.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some("bzip2"),
        // The version of the frame is in two bits of its flags.
        [0x04, 0x22, 0x4d, 0x18, flags, ..] if flags >> 6 == 1 => Some("lz4"),
        _ => None,
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        })
    }
}

/// Whether a decompressor stopped because the stream needs more memory than is allowed.
pub(super) fn is_memory_error(error: &io::Error) -> bool {
    let Some(inner) = error.get_ref() else { return false };
    // The bindings of zstd pass the library's text on, and no code.
    matches!(inner.downcast_ref(), Some(liblzma::stream::Error::MemLimit))
        || inner.to_string() == "Frame requires too much memory for decoding"
}

/// The file name without compression extensions: `x.txt.zst` becomes `x.txt`.
pub(super) fn name_inside(name: &str) -> &str {
    for (extension, _) in Compression::EXTENSIONS {
        if let Some(inner) = name.strip_suffix(extension).and_then(|name| name.strip_suffix('.')) {
            return name_inside(inner);
        }
    }
    name
}

/// The beginning of a trace, for recognition.
pub(super) struct Sample {
    pub bytes: Vec<u8>,
    /// Whether the sample is the whole trace.
    pub complete: bool,
}

impl Sample {
    /// Whether it begins with the byte order mark of UTF-8, as some programs write it before text.
    pub fn is_marked(&self) -> bool {
        self.bytes.starts_with(&BYTE_ORDER_MARK)
    }

    /// The complete lines, and the last one if the trace ends without a newline. A byte order mark
    /// is no part of the first.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let end = match memchr::memrchr(b'\n', &self.bytes) {
            Some(last) if !self.complete => last,
            _ => self.bytes.len(),
        };
        let text = self.bytes[..end].strip_prefix(&BYTE_ORDER_MARK).unwrap_or(&self.bytes[..end]);
        text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
    }
}

/// A buffered stream that returns lines or fixed records with their positions.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    layers: Vec<Compression>,
    stored_bytes_read: Arc<AtomicU64>,
    buffer: Box<[u8]>,
    /// Range of unread bytes.
    unread: Range<usize>,
    /// Stream offset of `buffer[0]`.
    origin: u64,
    lines: u64,
    ended: bool,
    /// Read error that follows the buffered bytes.
    failure: Option<io::Error>,
}

/// Result of [`Input::line`] and [`Input::records`]. Ranges are for [`Input::bytes`].
pub(super) enum Next {
    Item(Range<usize>),
    /// A line above the limit, which has been skipped.
    TooLong,
    /// Number of bytes left of an incomplete record.
    Partial(usize),
    End,
}

impl Input {
    pub fn open(path: &Path) -> Result<(Self, Option<u64>), TraceError> {
        let file = File::open(path).map_err(|error| TraceError::io(path, error))?;
        let metadata = file.metadata().map_err(|error| TraceError::io(path, error))?;
        let bytes = metadata.is_file().then_some(metadata.len());
        let input = Self::new(Box::new(file)).map_err(|error| TraceError::io(path, error))?;
        Ok((input, bytes))
    }

    /// Removes compressions until none is recognised. Errors here come from the disk; damaged
    /// compression is found when reading.
    pub fn new(stored: Box<dyn Read + Send>) -> io::Result<Self> {
        let stored_bytes_read = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner: stored, bytes: Arc::clone(&stored_bytes_read) };
        let mut source: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(64 * 1024, counted));
        let mut layers = Vec::new();
        loop {
            let (magic, peeked) = peek(&mut source);
            let head = io::Cursor::new(magic.clone()).chain(source);
            if let Err(error) = peeked {
                if layers.is_empty() {
                    return Err(error);
                }
                source = Box::new(head.into_inner().0.chain(BufReader::new(Failed(Some(error)))));
                break;
            }
            let Some(layer) = Compression::of(&magic).filter(|_| layers.len() < LAYERS_MAX) else {
                source = Box::new(head);
                break;
            };
            layers.push(layer);
            let inside: Box<dyn Read + Send> = match layer {
                Compression::Gzip => Box::new(Members::<flate2::bufread::GzDecoder<_>>::new(head)?),
                Compression::Xz => Box::new(Members::<liblzma::bufread::XzDecoder<_>>::new(head)?),
                Compression::Zstd => {
                    let mut decoder = zstd::stream::read::Decoder::with_buffer(head)?;
                    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                    Box::new(decoder)
                }
            };
            source = Box::new(BufReader::with_capacity(64 * 1024, inside));
        }
        Ok(Self {
            source: Box::new(source),
            layers,
            stored_bytes_read,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            unread: 0..0,
            origin: 0,
            lines: 0,
            ended: false,
            failure: None,
        })
    }

    /// The first bytes, which remain unread.
    pub fn sample(&mut self) -> Sample {
        assert!(self.origin == 0 && self.unread.start == 0);
        while self.unread.end < SAMPLE_BYTES && self.refill() {}
        let bytes = &self.buffer[..self.unread.end.min(SAMPLE_BYTES)];
        Sample { bytes: bytes.to_vec(), complete: self.ended && self.unread.end <= SAMPLE_BYTES }
    }

    /// Reads more bytes into the buffer. `false` at the end or if the buffer is full.
    fn refill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.origin += self.unread.start as u64;
            self.unread = 0..self.unread.len();
        }
        while self.unread.end < self.buffer.len() && self.failure.is_none() {
            match self.source.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => break,
                Ok(bytes) => {
                    self.unread.end += bytes;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.failure = Some(error),
            }
        }
        self.ended = self.unread.end < self.buffer.len();
        false
    }

    /// The next line without its newline. The last line may lack a newline unless the stream broke
    /// off in it.
    pub fn line(&mut self) -> Next {
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(length) = memchr::memchr(b'\n', unread) {
                let line = self.unread.start..self.unread.start + length;
                self.unread.start = line.end + 1;
                self.lines += 1;
                return if length > LINE_BYTES_MAX { Next::TooLong } else { Next::Item(line) };
            }
            if unread.len() > LINE_BYTES_MAX {
                self.skip_line();
                return Next::TooLong;
            }
            if !self.refill() {
                break;
            }
        }
        let line = self.unread.clone();
        self.unread.start = line.end;
        if line.is_empty() || self.failure.is_some() {
            return Next::End;
        }
        self.lines += 1;
        Next::Item(line)
    }

    fn skip_line(&mut self) {
        self.lines += 1;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.unread.clone()]) {
                self.unread.start += length + 1;
                return;
            }
            self.unread.start = self.unread.end;
            if !self.refill() {
                return;
            }
        }
    }

    /// All available whole records of `size` bytes, at least one.
    pub fn records(&mut self, size: usize) -> Next {
        while self.unread.len() < size {
            if !self.refill() {
                let rest = self.unread.len();
                return if rest == 0 || self.failure.is_some() { Next::End } else { Next::Partial(rest) };
            }
        }
        let length = self.unread.len() / size * size;
        Next::Item(self.unread.start..self.unread.start + length)
    }

    /// Marks bytes of an [`Input::records`] result as read.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.unread.len());
        self.unread.start += bytes;
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Stream offset of a buffer index.
    pub fn offset_of(&self, index: usize) -> u64 {
        self.origin + index as u64
    }

    /// Stream offset of the next unread byte.
    pub fn offset(&self) -> u64 {
        self.offset_of(self.unread.start)
    }

    /// Stream offset after the last readable byte.
    pub fn end_offset(&self) -> u64 {
        self.offset_of(self.unread.end)
    }

    /// Number of lines returned so far, and so the number of the last one.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Reads a compressed stream to its end, where its checksum is, and drops the content. An error
    /// is then in [`Input::take_failure`].
    pub fn drain(&mut self) {
        if !self.layers.is_empty() {
            self.unread.start = self.unread.end;
            while self.refill() {
                self.unread.start = self.unread.end;
            }
        }
    }

    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    pub fn layers(&self) -> &[Compression] {
        &self.layers
    }

    pub fn stored_bytes_read(&self) -> u64 {
        self.stored_bytes_read.load(Ordering::Relaxed)
    }
}

/// Longest header that [`Compression::of`] examines.
const MAGIC_BYTES: usize = 10;

/// The first readable bytes of a stream.
fn peek(source: &mut dyn BufRead) -> (Vec<u8>, io::Result<()>) {
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    let peeked = source.take(MAGIC_BYTES as u64).read_to_end(&mut magic);
    (magic, peeked.map(|_| ()))
}

/// Counts stored bytes for progress bars. A layer above decides how much to read at once.
struct Counted {
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A stream that failed during recognition fails again when it is read.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
