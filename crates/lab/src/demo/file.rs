//! The file of the demo, and how it is read through our cache or through the system's.
//!
//! The file is removed from its directory as soon as it exists, and opened again through
//! `/proc/self/fd`. So nothing of it is left however the program ends: by an error, by Ctrl-C or by
//! `kill -9`.

use super::clients::CachedRead;
use crate::error::Error;
use crate::layout::{self, Content};
use crate::size;
use crate::watch::{Stage, Unit, Watch};
use mglru_cache::CachedFile;
use mglru_core::PAGE_BYTES;
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The file, laid out.
pub struct DemoFile {
    file: File,
}

impl DemoFile {
    /// Lays out a file of pages that verify.
    ///
    /// # Errors
    /// The directory is missing or full, or the system refuses.
    pub fn lay_out(directory: &Path, bytes: u64, seed: u64, watch: &dyn Watch) -> Result<DemoFile, Error> {
        let instead = "choose another with --directory, or a smaller --size";
        layout::check_space(directory, bytes, instead)?;
        let place = directory.display();
        let file = tempfile::tempfile_in(directory).map_err(|error| {
            Error::work(format_args!("cannot create a file in {place}: {error}; {instead}"))
        })?;
        let _stage = Stage::begin(watch, "writing the file", bytes, Unit::Bytes);
        let content = Content::Verify { block_bytes: PAGE_BYTES as u32, seed };
        layout::fill(&file, 0..bytes, content, watch).map_err(|error| {
            let size = size::show(bytes);
            Error::work(format_args!("cannot write a file of {size} into {place}: {error}; {instead}"))
        })?;
        let file = DemoFile { file };
        file.drop_from_system_cache();
        Ok(file)
    }

    /// A path by which it can be opened while this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Opens it again, for reads through the system's cache.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(&self) -> Result<File, Error> {
        File::open(self.path())
            .map_err(|error| Error::work(format_args!("cannot open the file again: {error}")))
    }

    /// Opens it again, for reads past the system's cache; through it where the file system has no
    /// direct I/O.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open_direct(&self) -> Result<File, Error> {
        let flags = OFlags::DIRECT.bits() as i32;
        let direct = OpenOptions::new().read(true).custom_flags(flags).open(self.path());
        direct.or_else(|_| self.open())
    }

    /// Drops it from the system's cache. If that fails, the first reads are faster than they
    /// should be, and nothing else changes.
    pub fn drop_from_system_cache(&self) {
        let _ = layout::drop_from_system_cache(&self.file);
    }
}

impl CachedRead for CachedFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        match self.read_at(buffer, offset) {
            Ok(bytes) if bytes == buffer.len() => Ok(()),
            Ok(bytes) => Err(format!("only {bytes} of {} bytes at offset {offset}", buffer.len())),
            Err(error) => Err(format!("read at offset {offset}: {error}")),
        }
    }

    fn hits(&self) -> Option<u64> {
        Some(self.accesses().0)
    }
}

/// The file through the system's cache.
///
/// A read first asks for what is in memory (`RWF_NOWAIT`): that separates hits from misses.
pub struct SystemFile {
    file: File,
    hits: AtomicU64,
    /// The file system knows no `RWF_NOWAIT`.
    uncounted: AtomicBool,
}

impl SystemFile {
    /// The system gets the same advice as our cache. It may ignore the advice.
    pub fn new(file: File, advice: Advice) -> SystemFile {
        let _ = rustix::fs::fadvise(&file, 0, None, advice);
        SystemFile { file, hits: AtomicU64::new(0), uncounted: AtomicBool::new(false) }
    }
}

impl CachedRead for SystemFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        if buffer.len() as u64 == PAGE_BYTES && !self.uncounted.load(Relaxed) {
            let wanted = &mut [IoSliceMut::new(buffer)];
            match rustix::io::preadv2(&self.file, wanted, offset, ReadWriteFlags::NOWAIT) {
                Ok(bytes) if bytes as u64 == PAGE_BYTES => {
                    self.hits.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Err(Errno::OPNOTSUPP) => self.uncounted.store(true, Relaxed),
                _ => {}
            }
        }
        self.file.read_exact_at(buffer, offset).map_err(|error| format!("pread at offset {offset}: {error}"))
    }

    fn hits(&self) -> Option<u64> {
        (!self.uncounted.load(Relaxed)).then(|| self.hits.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use mglru_workload::verify;

    #[test]
    fn the_file_verifies_whichever_way_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = DemoFile::lay_out(directory.path(), 1 << 20, 7, &Unwatched).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "it has no name");
        let system = SystemFile::new(file.open().unwrap(), Advice::Random);
        let mut page = vec![0; 4096];
        for offset in [8192, 8192, 0] {
            system.read(&mut page, offset).unwrap();
            verify::check_generation(&page, offset, 1).unwrap();
        }
        // The second read of a page is a hit, on systems that report hits.
        assert!(system.hits().is_none_or(|hits| hits >= 1));
        assert!(system.read(&mut page, 1 << 20).unwrap_err().contains("offset 1048576"));
    }
}
