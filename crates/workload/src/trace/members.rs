//! Compressed streams in sequence: gzip calls them members, xz streams. A file may have zeroes
//! behind each. Anything else there is not part of the trace.
//!
//! The decompressors can read sequences themselves. They then take other bytes for the beginning of
//! a member, and call it truncated or corrupt.

use std::fmt;
use std::io::{self, BufRead, Read};

/// A decompressor of one member.
pub(super) trait Member: Read + Sized {
    /// The compressed stream.
    type Stored: BufRead;
    /// The bytes with which each member begins.
    const MAGIC: &'static [u8];
    fn begin(stored: Self::Stored) -> io::Result<Self>;
    fn end(self) -> Self::Stored;
}

impl<R: BufRead> Member for flate2::bufread::GzDecoder<R> {
    type Stored = R;
    const MAGIC: &'static [u8] = &[0x1f, 0x8b];

    fn begin(stored: R) -> io::Result<Self> {
        Ok(flate2::bufread::GzDecoder::new(stored))
    }

    fn end(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member for liblzma::bufread::XzDecoder<R> {
    type Stored = R;
    const MAGIC: &'static [u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];

    fn begin(stored: R) -> io::Result<Self> {
        let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, 0)?;
        Ok(liblzma::bufread::XzDecoder::new_stream(stored, stream))
    }

    fn end(self) -> R {
        self.into_inner()
    }
}

/// Memory that a decompressor of xz may take, in bytes: for a dictionary of 128 MiB, and what goes
/// with it. `xz -9` needs 65 MiB. The format allows 4 GiB, in a file of a few hundred bytes.
const XZ_MEMORY_BYTES_MAX: u64 = 132 << 20;

/// The content of all members.
pub(super) struct Members<M> {
    /// `None` after the last one, or after an error.
    member: Option<M>,
}

impl<M: Member> Members<M> {
    pub fn new(stored: M::Stored) -> io::Result<Self> {
        Ok(Members { member: Some(M::begin(stored)?) })
    }
}

impl<M: Member> Read for Members<M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let bytes = member.read(buffer)?;
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
            let mut stored = self.member.take().expect("there is one").end();
            self.member = match skip_zeroes(&mut stored)? {
                [] => None,
                // The rest of the magic bytes may not be read yet.
                [first, rest @ ..]
                    if *first == M::MAGIC[0] && rest.first().is_none_or(|next| *next == M::MAGIC[1]) =>
                {
                    Some(M::begin(stored)?)
                }
                _ => return Err(io::Error::other(TrailingBytes)),
            };
        }
        Ok(0)
    }
}

/// The bytes that are read already, from the first one on that is not zero; none at the end.
fn skip_zeroes(stored: &mut impl BufRead) -> io::Result<&[u8]> {
    loop {
        let read = stored.fill_buf()?;
        let zeroes = read.iter().take_while(|byte| **byte == 0).count();
        let is_done = zeroes < read.len() || read.is_empty();
        stored.consume(zeroes);
        if is_done {
            return stored.fill_buf();
        }
    }
}

/// Bytes follow a complete compressed stream.
#[derive(Debug)]
pub(super) struct TrailingBytes;

impl fmt::Display for TrailingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("other bytes follow the complete stream")
    }
}

impl std::error::Error for TrailingBytes {}
