//! What a job means: nothing left to look up, to default or to contradict.

use super::error::Error;
use super::setting::Origin;
use crate::pattern::{Mix, Order, Pattern};
use std::path::PathBuf;
use std::time::Duration;

/// One instance of a job: one thread, one file, one stream of accesses.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name, shared by the instances of a job.
    pub name: String,
    /// Position among all instances of the run, from 0.
    pub index: u32,
    /// Which instance of its job it is, from 0. fio: `$jobnum`.
    pub instance: u32,
    /// How many instances its job has. fio: `numjobs`.
    pub instances: u32,
    /// The group for reporting. Always 0 until `new_group` and `stonewall` are supported.
    pub group: u32,
    /// Whether it is reported together with the others of its group.
    pub group_reporting: bool,
    /// The file. Relative paths are relative to the working directory.
    pub path: PathBuf,
    /// How much of the file it uses; see [`Job::size_bytes`].
    pub size: FileSize,
    /// Where accesses go.
    pub order: Order,
    /// How many read.
    pub mix: Mix,
    /// Bytes per access.
    pub block_bytes: u32,
    /// When to stop at the latest. `None`: when all bytes are transferred.
    pub runtime: Option<Duration>,
    /// Whether it starts again when all bytes are transferred; then there is a runtime.
    pub time_based: bool,
    /// How it asks for its bytes.
    pub engine: Engine,
    /// Whether, and how, contents are written and checked.
    pub verify: Option<Verify>,
    /// Seed of this instance; no two of a run have the same.
    pub seed: u64,
    /// The options as the user gave them for this job, without the global ones: fio's "job options".
    pub options: Vec<(String, String)>,
    /// Where the job begins.
    pub origin: Origin,
}

impl Job {
    /// The bytes of its file that the job uses, and transfers in one pass. `existing_bytes` is the
    /// length of the file, or `None` if it is yet to be created.
    ///
    /// # Errors
    /// If the size depends on a file that does not exist or is empty, or holds no whole block.
    pub fn size_bytes(&self, existing_bytes: Option<u64>) -> Result<u64, Error> {
        let missing = || {
            let path = self.path.display();
            self.error(format!("`{path}` does not exist or is empty; say with `size=` how large to make it"))
        };
        let of_file = existing_bytes.filter(|&bytes| bytes > 0);
        let size_bytes = match self.size {
            FileSize::Bytes(bytes) => bytes,
            FileSize::Whole => of_file.ok_or_else(missing)?,
            FileSize::Percent(percent) => {
                (u128::from(of_file.ok_or_else(missing)?) * u128::from(percent) / 100) as u64
            }
        };
        if size_bytes < u64::from(self.block_bytes) {
            let block_bytes = self.block_bytes;
            return Err(self.error(format!(
                "a size of {size_bytes} bytes does not hold one block of {block_bytes} (`bs`)"
            )));
        }
        Ok(size_bytes)
    }

    /// The accesses of the job over `size_bytes`, which [`Job::size_bytes`] told. Endless if
    /// `time_based`.
    pub fn pattern(&self, size_bytes: u64) -> Pattern {
        Pattern {
            order: self.order,
            mix: self.mix,
            block_bytes: self.block_bytes,
            size_bytes,
            repeat: self.time_based,
            seed: self.seed,
        }
    }

    /// fio's word for order and mix: `randread`, `rw`, ...
    pub fn read_write(&self) -> &'static str {
        match (self.order, self.mix) {
            (Order::Sequential, Mix::Read) => "read",
            (Order::Sequential, Mix::Write) => "write",
            (Order::Sequential, Mix::Mixed { .. }) => "rw",
            (Order::Random(_), Mix::Read) => "randread",
            (Order::Random(_), Mix::Write) => "randwrite",
            (Order::Random(_), Mix::Mixed { .. }) => "randrw",
        }
    }

    fn error(&self, reason: String) -> Error {
        Error::Job { job: self.name.clone(), reason, origin: self.origin.clone() }
    }
}

/// How much of its file a job uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSize {
    /// So many bytes; the file is made, or made larger, if it has fewer.
    Bytes(u64),
    /// A percentage, 1..=100, of the existing file.
    Percent(u8),
    /// All of the existing file.
    Whole,
}

/// How a job asks for its bytes. fio: `ioengine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// One call per access. fio: `psync`, `sync`.
    #[default]
    Psync,
    /// As [`Engine::Psync`], until jobs have an `iodepth`.
    IoUring,
    /// Access to mapped pages.
    Mmap,
}

impl Engine {
    /// fio's name.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Psync => "psync",
            Engine::IoUring => "io_uring",
            Engine::Mmap => "mmap",
        }
    }

    /// How the cache sees the accesses.
    pub fn channel(self) -> Channel {
        match self {
            Engine::Psync | Engine::IoUring => Channel::Descriptor,
            Engine::Mmap => Channel::Mapped,
        }
    }
}

/// How the cache learns of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// By a call: it is counted.
    Descriptor,
    /// By a mapping: it leaves an accessed bit.
    Mapped,
}

/// How contents are checked. See [`crate::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// A header with the identity of the block and a crc32c over everything.
    Crc32c,
}
