//! Creates the files of workloads, with ordinary writes before the work begins.
//!
//! Files are written in full, with random bytes, which a device or file system cannot elide as
//! holes or zeroes. They are then dropped from the system's page cache, so that the first access
//! reaches the device.

use crate::error::Error;
use crate::size;
use crate::temporary::TemporaryFolder;
use crate::watch::Watch;
use mglru_cache::file_system_room_bytes;
use mglru_workload::Random;
use mglru_workload::verify::{self, Identity};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of a write. It is large, so that the device determines the duration.
const WRITE_BYTES: usize = 1 << 20;

/// Contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Pseudo-random bytes.
    Random {
        /// Seed of the bytes.
        seed: u64,
    },
    /// Zeroes: the file consists of holes. [`fill`] writes zeroes instead.
    Zeroes,
    /// Verifiable blocks, each of the first generation.
    Verify {
        /// Size of a block.
        block_bytes: u32,
        /// Seed of the payload.
        seed: u64,
    },
}

/// Fills `range` of a file and syncs it. Verifiable blocks begin at multiples of their size, and so
/// must the range. A remainder at its end is filled with random bytes.
///
/// # Errors
/// The system's error.
pub fn fill(file: &File, range: Range<u64>, content: Content, watch: &dyn Watch) -> io::Result<()> {
    let block_bytes = match content {
        Content::Verify { block_bytes, .. } => block_bytes as usize,
        Content::Random { .. } | Content::Zeroes => WRITE_BYTES,
    };
    let mut buffer = vec![0; WRITE_BYTES.max(block_bytes) / block_bytes * block_bytes];
    let mut at = range.start;
    while at < range.end {
        let bytes = (buffer.len() as u64).min(range.end - at) as usize;
        let mut offset = at;
        for block in buffer[..bytes].chunks_mut(block_bytes) {
            match content {
                Content::Verify { seed, .. } if block.len() == block_bytes => {
                    verify::fill(block, Identity { offset, generation: 1, seed });
                }
                Content::Zeroes => block.fill(0),
                Content::Random { seed } | Content::Verify { seed, .. } => fill_random(block, seed, offset),
            }
            offset += block.len() as u64;
        }
        file.write_all_at(&buffer[..bytes], at)?;
        at += bytes as u64;
        watch.advance(bytes as u64);
    }
    file.sync_data()
}

/// Fills a buffer with bytes that depend on the seed and the offset.
pub fn fill_random(buffer: &mut [u8], seed: u64, offset: u64) {
    let mut random = Random::stream(seed, offset);
    for chunk in buffer.chunks_mut(8) {
        // Odd numbers, so that no page is all zeroes.
        chunk.copy_from_slice(&(random.next_u64() | 1).to_le_bytes()[..chunk.len()]);
    }
}

/// Extends a file to at least `bytes` and allocates its space, as fio does for files that are only
/// written.
///
/// # Errors
/// The system's error.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A file system without preallocation allocates space on write.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes.max(file.metadata()?.len())),
        other => Ok(other?),
    }
}

/// Drops a file from the system's page cache.
///
/// # Errors
/// The system's error.
pub fn drop_from_system_cache(file: &File) -> io::Result<()> {
    // Dirty pages would stay in memory.
    file.sync_data()?;
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Checks that a directory has room for `bytes` bytes.
///
/// # Errors
/// If it has not, or does not exist. `instead` is the advice in the message.
pub fn check_space(directory: &Path, bytes: u64, instead: &str) -> Result<(), Error> {
    let place = directory.display();
    let found = rustix::fs::statvfs(directory).map_err(|error| {
        let error = io::Error::from(error);
        Error::work(format_args!("cannot write to {place}: {error}; create the directory, or {instead}"))
    })?;
    let free_bytes = file_system_room_bytes(found.f_blocks, found.f_bavail, found.f_frsize);
    if free_bytes < bytes {
        let (wanted, free) = (size::show(bytes), size::show(free_bytes));
        return Err(Error::work(format_args!(
            "{place} has {free} free, and {wanted} are needed: make room, or {instead}"
        )));
    }
    Ok(())
}

/// Whether a directory is on a file system in memory, so that its files never reach a device.
pub fn is_in_memory(directory: &Path) -> bool {
    use rustix::fs::FsWord;
    const TMPFS: FsWord = 0x0102_1994;
    const RAMFS: FsWord = 0x8584_58f6;
    rustix::fs::statfs(directory).is_ok_and(|found| [TMPFS, RAMFS].contains(&found.f_type))
}

/// The directory for temporary files. If it is in memory, another one on a device is preferred.
pub fn default_directory() -> PathBuf {
    let first = std::env::temp_dir();
    let others = [PathBuf::from("/var/tmp"), PathBuf::from(".")];
    let on_disk = |directory: &Path| directory.is_dir() && !is_in_memory(directory);
    if on_disk(&first) {
        return first;
    }
    others.into_iter().find(|other| on_disk(other)).unwrap_or(first)
}

/// Creates a directory for an experiment's files below this one. It is removed when the value is
/// dropped or the program is interrupted.
///
/// # Errors
/// If it cannot be created.
pub fn temporary(directory: &Path) -> Result<TemporaryFolder, Error> {
    TemporaryFolder::create(directory, "mglru-reproduce-").map_err(|error| {
        Error::work(format_args!("cannot create a directory in {}: {error}", directory.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;

    #[test]
    fn files_are_filled_with_verifiable_blocks() {
        let file = tempfile::tempfile().unwrap();
        let content = Content::Verify { block_bytes: 3000, seed: 7 };
        fill(&file, 3000..2_000_500, content, &Unwatched).unwrap();
        let mut block = vec![0; 3000];
        for number in 1..666 {
            file.read_exact_at(&mut block, number * 3000).unwrap();
            assert_eq!(verify::check_generation(&block, number * 3000, 1).unwrap().seed, 7);
        }
        assert_eq!(file.metadata().unwrap().len(), 2_000_500);
    }

    #[test]
    fn random_content_has_no_zero_pages() {
        let file = tempfile::tempfile().unwrap();
        fill(&file, 0..(3 << 20) + 17, Content::Random { seed: 1 }, &Unwatched).unwrap();
        let mut bytes = vec![0; (3 << 20) + 17];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.chunks(4096).all(|page| page.iter().any(|&byte| byte != 0)));
        drop_from_system_cache(&file).unwrap();
    }

    #[test]
    fn missing_space_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        check_space(directory.path(), 1, "").unwrap();
        let error = format!("{:?}", check_space(directory.path(), 1 << 60, "choose less").unwrap_err());
        assert!(error.contains("1024 PiB are needed") && error.contains("choose less"), "{error}");
        let missing = directory.path().join("missing");
        let error = format!("{:?}", check_space(&missing, 1, "choose another").unwrap_err());
        assert!(error.contains("No such file") && error.contains("choose another"), "{error}");
    }
}
