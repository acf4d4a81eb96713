//! The measured file, and the offsets at which it is read.
//!
//! Each word of the file contains its own offset, so that readers can verify it.

use crate::Failure;
use mglru_workload::{BlockBytes, Distribution, Length, Mix, Order, Pattern};
use rustix::fs::Advice;
use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Size of a page, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Zipf skew of the hits.
const THETA: f64 = 0.99;

/// A temporary file without a name, so that it disappears with the program.
pub struct DataFile {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl DataFile {
    /// Creates a file of `pages` pages in the directory for temporary files.
    ///
    /// # Errors
    /// The system refuses, or the disk is full.
    pub fn lay_out(pages: u64) -> Result<DataFile, Failure> {
        DataFile::lay_out_in(&std::env::temp_dir(), pages)
    }

    /// The same in a directory.
    ///
    /// # Errors
    /// The system refuses, or the disk is full.
    pub fn lay_out_in(directory: &Path, pages: u64) -> Result<DataFile, Failure> {
        let bytes = pages * PAGE_BYTES;
        let fail = |error| {
            let directory = directory.display();
            format!(
                "a file of {bytes} bytes cannot be laid out in {directory}: {error}; \
                     set TMPDIR to a directory with room, or ask for fewer with --pages"
            )
        };
        let mut file = tempfile::tempfile_in(directory).map_err(fail)?;
        let mut block = Vec::new();
        for first in (0..bytes).step_by(1 << 20) {
            block.clear();
            let words = (first..bytes.min(first + (1 << 20))).step_by(size_of::<u64>());
            words.for_each(|word| block.extend_from_slice(&word.to_ne_bytes()));
            file.write_all(&block).map_err(fail)?;
        }
        file.sync_data().map_err(fail)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        Ok(DataFile { file, path, bytes })
    }

    /// A path to open the file, valid while this value lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Length of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Asks the kernel to drop its cached pages of the file.
    pub fn drop_from_kernel_cache(&self) {
        // If the kernel ignores the advice, direct reads are slightly slower in all measurements.
        let _ = rustix::fs::fadvise(self.as_file(), 0, NonZeroU64::new(self.bytes), Advice::DontNeed);
    }
}

/// Offsets of `count` words, each at a random place of a page drawn from a Zipf distribution over
/// `pages` pages. Hot pages are spread over the file.
pub fn zipf_words(pages: u64, count: usize) -> Vec<u64> {
    let mut place = mglru_workload::Random::new(95);
    let words = PAGE_BYTES / size_of::<u64>() as u64;
    draw(Distribution::Zipf { theta: THETA }, pages, count)
        .map(|page| page + place.below(words) * size_of::<u64>() as u64)
        .collect()
}

/// Offsets of `count` pages, drawn as for [`zipf_words`].
pub fn zipf_pages(pages: u64, count: usize) -> Vec<u64> {
    draw(Distribution::Zipf { theta: THETA }, pages, count).collect()
}

/// Offsets of `count` uniformly drawn pages.
pub fn uniform_pages(pages: u64, count: usize) -> Vec<u64> {
    draw(Distribution::Uniform, pages, count).collect()
}

fn draw(distribution: Distribution, pages: u64, count: usize) -> impl Iterator<Item = u64> {
    let pattern = Pattern {
        order: Order::Random(distribution),
        mix: Mix::Read,
        block_bytes: BlockBytes::both(PAGE_BYTES as u32),
        size_bytes: pages * PAGE_BYTES,
        length: Length::Endless,
        seed: 4,
    };
    pattern.accesses().expect("a file has a page").take(count).map(|access| access.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn words_are_their_offsets() {
        let file = DataFile::lay_out(512).unwrap();
        let opened = File::open(file.path()).unwrap();
        for offset in zipf_words(512, 1000) {
            let mut word = [0; 8];
            opened.read_exact_at(&mut word, offset).unwrap();
            assert_eq!(u64::from_ne_bytes(word), offset);
        }
        assert_eq!(file.as_file().metadata().unwrap().len(), file.bytes());
        assert!(
            uniform_pages(8, 100).iter().all(|offset| offset % PAGE_BYTES == 0 && *offset < 8 * PAGE_BYTES)
        );
    }
}
