//! The standard library's ways to read and write: whole buffers, several buffers, a cursor with
//! [`Read`], [`Write`] and [`Seek`], and [`FileExt`].

use crate::error::Error;
use crate::file::CachedFile;
use std::borrow::Borrow;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

impl CachedFile {
    /// Reads exactly `buffer.len()` bytes from `offset`.
    ///
    /// # Errors
    /// [`Error::Short`] if the file ends before the buffer is full; otherwise as
    /// [`Self::read_at`]. The content of the buffer is then unspecified.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let read = self.read_at(buffer, offset)?;
        if read < buffer.len() {
            let path = self.path().to_owned();
            return Err(Error::Short { path, offset, wanted: buffer.len(), read });
        }
        Ok(())
    }

    /// Reads from `offset` into the buffers, one after the other, and returns the number of bytes
    /// read. That is less than their length only at the end of the file.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        for buffer in buffers {
            let read = self.read_at(buffer, offset.saturating_add(done as u64))?;
            done += read;
            if read < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of the buffers, one after the other, from `offset` on, and returns the number of
    /// bytes written.
    ///
    /// # Errors
    /// As [`Self::write_at`]. Bytes before the failing page stay written.
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        for buffer in buffers {
            done += self.write_at(buffer, offset.saturating_add(done as u64))?;
        }
        Ok(done)
    }

    /// A cursor at the beginning of the file. [`FileCursor::new`] makes one that owns its handle.
    pub fn cursor(&self) -> FileCursor<&CachedFile> {
        FileCursor::new(self)
    }
}

/// For code that is generic over files. Errors are [`io::Error`]s; see [`Error::kind`].
impl FileExt for CachedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(CachedFile::read_at(self, buffer, offset)?)
    }

    /// [`CachedFile::write_some_at`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(self.write_some_at(bytes, offset)?)
    }
}

/// A position in a cached file, for [`Read`], [`Write`] and [`Seek`].
///
/// Each cursor has a position of its own. Reads and writes need no further buffer: they copy from
/// and to the cache. `flush` does nothing; [`CachedFile::sync_data`] writes to stable storage.
///
/// ```
/// use mglru_cache::{FileCursor, OpenMode, PageCache};
/// use std::io::{BufRead, BufReader, Write};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// let cache = PageCache::builder(1 << 20).build()?;
/// let file = cache.open(&path, OpenMode::Create)?;
/// writeln!(file.cursor(), "first\nsecond")?;
/// let lines: Result<Vec<_>, _> = BufReader::new(FileCursor::new(file)).lines().collect();
/// assert_eq!(lines?, ["first", "second"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileCursor<F = CachedFile> {
    file: F,
    position: u64,
}

impl<F: Borrow<CachedFile>> FileCursor<F> {
    /// A cursor at the beginning of `file`, which is a handle or a reference to one.
    pub fn new(file: F) -> FileCursor<F> {
        FileCursor { file, position: 0 }
    }

    /// The position, in bytes from the beginning of the file. It may be beyond the end.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves to `position`, in bytes from the beginning of the file.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// The file.
    pub fn file(&self) -> &CachedFile {
        self.file.borrow()
    }

    /// Returns what the cursor was made of.
    pub fn into_inner(self) -> F {
        self.file
    }
}

impl<F: Borrow<CachedFile>> Read for FileCursor<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file().read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read = self.file().read_vectored_at(buffers, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl<F: Borrow<CachedFile>> Write for FileCursor<F> {
    /// [`CachedFile::write_some_at`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file().write_some_at(bytes, self.position)?;
        self.position += written as u64;
        Ok(written)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut done = 0;
        for buffer in buffers {
            match self.write(buffer) {
                Ok(written) if written == buffer.len() => done += written,
                Ok(written) => return Ok(done + written),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Borrow<CachedFile>> Seek for FileCursor<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.file().len().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = position.ok_or_else(|| {
            let path = self.file().path().display();
            let is_back = matches!(to, SeekFrom::End(..0) | SeekFrom::Current(..0));
            let beyond = if is_back { "before byte 0" } else { "beyond the largest position" };
            let what = format!("cannot seek in {path} to {to:?} from byte {}: {beyond}", self.position);
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        Ok(self.position)
    }
}
