//! Bytes of a trace: the file, its compressions, and a buffer that knows offsets and lines.

use super::TraceError;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decompressed bytes in memory. Large against a line, small against a cache.
const BUFFER_BYTES: usize = 256 * 1024;
/// A longer line is no record of any format; it is a binary file that is read as text.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;
/// What recognition sees.
const SAMPLE_BYTES: usize = 64 * 1024;
/// `x.txt.gz.zst` happens; five layers are an attack.
const LAYERS_MAX: usize = 4;
/// zstd refuses frames that need a larger window (128 MiB): the shared traces need 2^24.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How a trace file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (`.gz`), also several members in a row.
    Gzip,
    /// xz (`.xz`), also several streams in a row.
    Xz,
    /// zstd (`.zst`), windows up to 2^27 bytes.
    Zstd,
}

impl Compression {
    /// Every compression, with its file name extension.
    pub(super) const EXTENSIONS: [(&'static str, Compression); 3] =
        [("gz", Compression::Gzip), ("xz", Compression::Xz), ("zst", Compression::Zstd)];

    fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            // Two magic bytes are little, and a kernel-lab trace may start with any: look at the
            // whole header.
            [0x1f, 0x8b, 8, flags, _, _, _, _, 0 | 2 | 4, 0..=13 | 255, ..] if *flags < 0x20 => {
                Some(Compression::Gzip)
            }
            _ => None,
        }
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

/// The file name without the extensions of compressions: `x.txt.zst` is named `x.txt`.
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
    /// This is the whole trace.
    pub complete: bool,
}

impl Sample {
    /// The complete lines, and the last one if the trace ends without a newline.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let end = match memchr::memrchr(b'\n', &self.bytes) {
            Some(last) if !self.complete => last,
            _ => self.bytes.len(),
        };
        self.bytes[..end].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
    }
}

/// A buffered stream that hands out lines or fixed records and knows where they are.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    layers: Vec<Compression>,
    stored_bytes_read: Arc<AtomicU64>,
    buffer: Box<[u8]>,
    /// The unread bytes.
    unread: Range<usize>,
    /// Stream offset of `buffer[0]`.
    origin: u64,
    lines: u64,
    ended: bool,
    /// Reading failed after the bytes that are in the buffer.
    failure: Option<io::Error>,
}

/// What [`Input::line`] and [`Input::records`] find next; ranges are for [`Input::bytes`].
pub(super) enum Next {
    Item(Range<usize>),
    /// A line beyond all reason. It has been skipped.
    TooLong,
    /// So many bytes of a record are left.
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

    /// Peels off compressions until the bytes look like none. An error here is the disk's; damage
    /// comes with reading.
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
                Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(head)),
                Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(head)),
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

    /// The first bytes, which stay unread.
    pub fn sample(&mut self) -> Sample {
        assert!(self.origin == 0 && self.unread.start == 0);
        while self.unread.end < SAMPLE_BYTES && self.refill() {}
        let bytes = &self.buffer[..self.unread.end.min(SAMPLE_BYTES)];
        Sample { bytes: bytes.to_vec(), complete: self.ended && self.unread.end <= SAMPLE_BYTES }
    }

    /// Reads more behind the unread bytes. `false`: there is no more, or no room.
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

    /// The next line without its newline. The last line needs none, unless the stream broke off in
    /// it.
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

    /// As many whole records of `size` bytes as are at hand, at least one.
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

    /// Marks bytes of what [`Input::records`] found as read.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.unread.len());
        self.unread.start += bytes;
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Stream offset of a place in the buffer.
    pub fn offset_of(&self, index: usize) -> u64 {
        self.origin + index as u64
    }

    /// Stream offset of the next unread byte.
    pub fn offset(&self) -> u64 {
        self.offset_of(self.unread.start)
    }

    /// Stream offset behind the last byte that could be read.
    pub fn end_offset(&self) -> u64 {
        self.offset_of(self.unread.end)
    }

    /// Lines handed out so far, so the number of the last one.
    pub fn lines(&self) -> u64 {
        self.lines
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

/// The longest header that [`Compression::of`] looks at.
const MAGIC_BYTES: usize = 10;

/// The first bytes of a stream, as far as they could be read.
fn peek(source: &mut dyn BufRead) -> (Vec<u8>, io::Result<()>) {
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    let peeked = source.take(MAGIC_BYTES as u64).read_to_end(&mut magic);
    (magic, peeked.map(|_| ()))
}

/// Counts what passes, for progress bars: another layer decides how much is read at once.
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

/// A stream that broke off while it was looked at breaks off again when it is read.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
