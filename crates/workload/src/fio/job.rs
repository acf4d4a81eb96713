//! A job with every default applied and every contradiction rejected.

use super::error::Error;
use super::setting::Origin;
use crate::load::Load;
use crate::pattern::{BlockBytes, Length, Mix, Order, Pattern};
use std::path::PathBuf;
use std::time::Duration;

/// Upper limit of concurrent accesses of all instances of a stage, whatever their `iodepth`. Each
/// takes a thread; more threads would compete for processors and memory instead of keeping a device
/// busier.
pub const DEPTH_MAX: u32 = 64;

/// One instance of a job: its files, and its accesses to them.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name, shared by the instances of a job.
    pub name: String,
    /// The purpose of the job, in the user's words.
    pub description: Option<String>,
    /// Index among all instances of the run, from 0.
    pub index: u32,
    /// Index among the instances of its job, from 0. fio: `$jobnum`.
    pub instance: u32,
    /// Number of instances of its job. fio: `numjobs`.
    pub instances: u32,
    /// Reporting group. `new_group` and `stonewall` begin a new one.
    pub group: u32,
    /// Stage. The instance starts when all jobs of earlier stages have ended. `stonewall` begins a
    /// new stage.
    pub stage: u32,
    /// Whether it is reported together with the others of its group.
    pub group_reporting: bool,
    /// Files, at least one, accessed in turn; for a load, the prefixes of its file names. Relative
    /// paths are relative to the working directory.
    pub files: Vec<PathBuf>,
    /// Offset of the used part of each file, in bytes.
    pub offset_bytes: u64,
    /// Total size of the used parts of all files; see [`Job::size_bytes`].
    pub size: FileSize,
    /// Amount to transfer, if it differs from `size`.
    pub io_size: Option<FileSize>,
    /// Number of times to transfer that amount.
    pub loops: u32,
    /// Choice of the next block.
    pub order: Order,
    /// Shares of reads and writes.
    pub mix: Mix,
    /// A load to run instead of block accesses. All instances are clients of one such load, which
    /// has files of its own, until the runtime is over.
    pub load: Option<Load>,
    /// Bytes per access.
    pub block_bytes: BlockBytes,
    /// Delay before it starts.
    pub start_delay: Duration,
    /// Time that it runs before measurement begins.
    pub ramp: Duration,
    /// Time limit after the ramp. `None` runs until all bytes are transferred.
    pub runtime: Option<Duration>,
    /// Whether it starts again when all bytes are transferred. Requires a runtime.
    pub time_based: bool,
    /// I/O engine.
    pub engine: Engine,
    /// Concurrent accesses, as the user requested.
    pub iodepth: u32,
    /// Concurrent accesses that are performed: at least one, and at most [`DEPTH_MAX`] by all
    /// instances of a stage together. The depth is 1 for synchronous engines and for jobs whose
    /// accesses depend on order (sequential ones, and those that sync or verify). Readahead and
    /// writeback keep the device busy for these.
    pub depth: u32,
    /// Accesses drawn at once, at least 1. fio: `iodepth_batch_submit`.
    pub batch: u32,
    /// Bandwidth limits.
    pub rate: Rate,
    /// Advice to the cache before the accesses.
    pub hint: Hint,
    /// Whether to drop its files from the system's page cache first.
    pub invalidate: bool,
    /// When to sync a file.
    pub sync: SyncEvery,
    /// Content verification, if requested.
    pub verify: Option<Verify>,
    /// Whether to read back the written blocks at the end, if verification is on. fio: `do_verify`.
    pub verify_written: bool,
    /// Seed of this instance, unique within the run.
    pub seed: u64,
    /// The options that the user gave for this job, without the global ones: fio's "job options".
    pub options: Vec<(String, String)>,
    /// Start of the job in its source.
    pub origin: Origin,
}

impl Job {
    /// Bytes that the job uses of one of its files, from its offset on. `existing_bytes` is the
    /// length of that file, or `None` for a new file.
    ///
    /// # Errors
    /// If the size depends on a file that does not exist or is too short, or holds no whole block.
    pub fn size_bytes(&self, file: usize, existing_bytes: Option<u64>) -> Result<u64, Error> {
        let missing = || {
            let path = self.files[file].display();
            self.error(format!("`{path}` does not exist or is empty; say with `size=` how large to make it"))
        };
        let of_file = existing_bytes.filter(|&bytes| bytes > 0);
        let behind_offset = |bytes: u64| bytes.saturating_sub(self.offset_bytes);
        let size_bytes = match self.size {
            FileSize::Bytes(bytes) => bytes / self.files.len() as u64,
            FileSize::Whole => behind_offset(of_file.ok_or_else(missing)?),
            FileSize::Percent(percent) => {
                let bytes = of_file.ok_or_else(missing)?;
                share(bytes, percent).min(behind_offset(bytes))
            }
        };
        let block_bytes = self.block_bytes.largest(self.mix);
        if size_bytes < u64::from(block_bytes) {
            let of_files = if self.files.len() > 1 { " per file" } else { "" };
            return Err(self.error(format!(
                "a size of {size_bytes} bytes{of_files} does not hold one block of {block_bytes} (`bs`)"
            )));
        }
        Ok(size_bytes)
    }

    /// The accesses of the job to one of its files. `size_bytes` comes from [`Job::size_bytes`];
    /// offsets count from the job's offset. Endless if `time_based`. With several files, each
    /// pattern may be slightly longer than needed; [`Job::limit_bytes`] caps their total.
    pub fn pattern(&self, file: usize, size_bytes: u64) -> Pattern {
        let files = self.files.len() as u64;
        let bytes = match self.io_size {
            None | Some(FileSize::Whole) => size_bytes,
            Some(FileSize::Bytes(bytes)) if files == 1 => bytes,
            Some(FileSize::Bytes(bytes)) => {
                bytes.div_ceil(files).next_multiple_of(self.block_bytes.largest(self.mix).into())
            }
            Some(FileSize::Percent(percent)) => share(size_bytes, percent),
        };
        Pattern {
            order: self.order,
            mix: self.mix,
            block_bytes: self.block_bytes,
            size_bytes,
            length: match self.time_based {
                true => Length::Endless,
                false => Length::Loops { bytes, count: self.loops },
            },
            seed: self.seed.wrapping_add(file as u64),
        }
    }

    /// Upper limit of the bytes transferred, for all files and loops together. `None` if the
    /// patterns end by themselves.
    pub fn limit_bytes(&self) -> Option<u64> {
        match self.io_size {
            Some(FileSize::Bytes(bytes)) if !self.time_based => Some(bytes.saturating_mul(self.loops.into())),
            _ => None,
        }
    }

    /// Whether the job permits concurrent accesses.
    pub(super) fn may_overlap(&self) -> bool {
        let in_order = self.order == Order::Sequential || self.verify.is_some() || self.sync.any();
        self.engine.is_asynchronous() && !in_order
    }

    /// fio's word for order and mix, such as `randread` or `rw`, or the name of the load.
    pub fn read_write(&self) -> &'static str {
        if let Some(load) = self.load {
            return load.name();
        }
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

fn share(bytes: u64, percent: u8) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

/// Bandwidth limits in bytes per second; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate {
    /// Limit of reads.
    pub read: Option<u64>,
    /// Limit of writes.
    pub write: Option<u64>,
}

/// Advice to the cache before the accesses. fio: `fadvise_hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// Depends on the engine. Descriptor accesses advise their pattern. Mapped accesses advise
    /// nothing, because the kernel (and this cache) ignores accessed bits under either advice, and
    /// mapped jobs exist to test those bits.
    #[default]
    OfEngine,
    /// No advice.
    Nothing,
    /// Random or sequential, as the pattern is.
    OfPattern,
    /// Random accesses.
    Random,
    /// Sequential accesses.
    Sequential,
}

/// Number of writes between syncs of a file; 0 for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncEvery {
    /// Writes between syncs of data and metadata.
    pub fsync_writes: u32,
    /// Writes between syncs of data and the metadata needed to read it.
    pub fdatasync_writes: u32,
    /// Whether to sync at the end, within the measured time.
    pub end_fsync: bool,
}

impl SyncEvery {
    /// Whether the job syncs while it runs.
    pub fn any(self) -> bool {
        self.fsync_writes > 0 || self.fdatasync_writes > 0
    }
}

/// Size of the used parts of a job's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSize {
    /// Total bytes, in equal parts. Files that are missing or shorter are created or extended.
    Bytes(u64),
    /// A percentage, 1..=100, of each existing file.
    Percent(u8),
    /// All of each existing file.
    Whole,
}

/// I/O engine of a job. fio: `ioengine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// One call per access.
    #[default]
    Psync,
    /// As [`Engine::Psync`]; in fio with a seek before each access.
    Sync,
    /// As [`Engine::Psync`]; in fio with several buffers.
    Vsync,
    /// As [`Engine::Vsync`].
    Pvsync,
    /// As [`Engine::Vsync`].
    Pvsync2,
    /// Several calls at once, up to `iodepth`.
    IoUring,
    /// As [`Engine::IoUring`].
    Libaio,
    /// As [`Engine::IoUring`].
    Posixaio,
    /// Loads and stores through a mapping.
    Mmap,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 9] = [
        Engine::Psync,
        Engine::Sync,
        Engine::Vsync,
        Engine::Pvsync,
        Engine::Pvsync2,
        Engine::IoUring,
        Engine::Libaio,
        Engine::Posixaio,
        Engine::Mmap,
    ];

    /// fio's name of the engine.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Psync => "psync",
            Engine::Sync => "sync",
            Engine::Vsync => "vsync",
            Engine::Pvsync => "pvsync",
            Engine::Pvsync2 => "pvsync2",
            Engine::IoUring => "io_uring",
            Engine::Libaio => "libaio",
            Engine::Posixaio => "posixaio",
            Engine::Mmap => "mmap",
        }
    }

    /// The access channel that the cache observes.
    pub fn channel(self) -> Channel {
        match self {
            Engine::Mmap => Channel::Mapped,
            _ => Channel::Descriptor,
        }
    }

    /// Whether the engine has several accesses in flight.
    pub fn is_asynchronous(self) -> bool {
        matches!(self, Engine::IoUring | Engine::Libaio | Engine::Posixaio)
    }
}

/// How the cache learns of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Through a call, which is counted.
    Descriptor,
    /// Through a mapping, which sets an accessed bit.
    Mapped,
}

/// Method of content verification. See [`crate::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// A header with the identity of the block and a crc32c over everything.
    Crc32c,
}
