//! The file of the demo: a real one, without a name, reached through our cache or through the
//! system's.
//!
//! It is removed from its directory as soon as it exists and opened again through `/proc/self/fd`.
//! So nothing of it is left however the program ends: by an error, by Ctrl-C or by `kill -9`.

use crate::error::Failure;
use crate::layout::{self, Content};
use crate::{progress, size};
use mglru_cache::CachedFile;
use mglru_core::PAGE_BYTES;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file that whole pages are read from and written to.
pub trait PageFile {
    /// Reads all of the buffer.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String>;
    /// Writes all of the buffer.
    fn write(&self, buffer: &[u8], offset: u64) -> Result<(), String>;
    /// Waits until what was written is on the device.
    fn sync(&self) -> Result<(), String>;
}

impl PageFile for CachedFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        match self.read_at(buffer, offset) {
            Ok(bytes) if bytes == buffer.len() => Ok(()),
            Ok(bytes) => Err(format!("{bytes} of {} bytes at offset {offset}", buffer.len())),
            Err(error) => Err(format!("read at offset {offset}: {error}")),
        }
    }

    fn write(&self, buffer: &[u8], offset: u64) -> Result<(), String> {
        self.write_at(buffer, offset).map(drop).map_err(|error| format!("write at offset {offset}: {error}"))
    }

    fn sync(&self) -> Result<(), String> {
        self.sync_data().map_err(|error| error.to_string())
    }
}

/// `pread` and `pwrite`: through the system's cache.
impl PageFile for File {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        self.read_exact_at(buffer, offset).map_err(|error| format!("pread at offset {offset}: {error}"))
    }

    fn write(&self, buffer: &[u8], offset: u64) -> Result<(), String> {
        self.write_all_at(buffer, offset).map_err(|error| format!("pwrite at offset {offset}: {error}"))
    }

    fn sync(&self) -> Result<(), String> {
        self.sync_data().map_err(|error| format!("fdatasync: {error}"))
    }
}

/// The file, laid out.
pub struct DemoFile {
    file: File,
}

impl DemoFile {
    /// Lays a file of pages that verify out in a directory.
    ///
    /// # Errors
    /// There is no such directory, it has no room, or the system refuses.
    pub fn lay_out(directory: &Path, bytes: u64, seed: u64) -> Result<DemoFile, Failure> {
        let instead = "choose another with --directory, or a smaller --size";
        layout::check_space(directory, bytes, instead)?;
        let place = directory.display();
        let file = tempfile::tempfile_in(directory).map_err(|error| {
            Failure::work(format_args!("cannot create a file in {place}: {error}; {instead}"))
        })?;
        let bar = progress::of_bytes(bytes, "laying out the file");
        let content = Content::Verify { block_bytes: PAGE_BYTES as u32, seed };
        layout::fill(&file, 0..bytes, content, &crate::progress::Moves(&bar)).map_err(|error| {
            let size = size::show(bytes);
            Failure::work(format_args!("cannot write a file of {size} into {place}: {error}; {instead}"))
        })?;
        bar.finish_and_clear();
        let file = DemoFile { file };
        file.drop_from_system_cache();
        Ok(file)
    }

    /// A path by which it can be opened while this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Opens it once more, for `pread` and `pwrite`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(&self) -> Result<File, Failure> {
        let open = OpenOptions::new().read(true).write(true).open(self.path());
        open.map_err(|error| Failure::work(format_args!("cannot open the file once more: {error}")))
    }

    /// Drops it from the system's cache. Where that fails, first accesses are only quicker than
    /// they should be.
    pub fn drop_from_system_cache(&self) {
        let _ = layout::drop_from_system_cache(&self.file);
    }
}
