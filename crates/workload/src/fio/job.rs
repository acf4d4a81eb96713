//! What a job means: nothing left to look up, to default or to contradict.

use super::error::Error;
use super::setting::Origin;
use crate::load::Load;
use crate::pattern::{BlockBytes, Length, Mix, Order, Pattern};
use std::path::PathBuf;
use std::time::Duration;

/// The most accesses that all instances of a stage perform at once, whatever their `iodepth`: each
/// takes a thread, and more would rather compete for processors and memory than keep a device
/// busier.
pub const DEPTH_MAX: u32 = 64;

/// One instance of a job: its files, and its accesses to them.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name, shared by the instances of a job.
    pub name: String,
    /// What it is for, in the user's words.
    pub description: Option<String>,
    /// Position among all instances of the run, from 0.
    pub index: u32,
    /// Which instance of its job it is, from 0. fio: `$jobnum`.
    pub instance: u32,
    /// How many instances its job has. fio: `numjobs`.
    pub instances: u32,
    /// The group for reporting: `new_group` and `stonewall` begin one.
    pub group: u32,
    /// It begins when all jobs of earlier stages have ended: `stonewall` begins one.
    pub stage: u32,
    /// Whether it is reported together with the others of its group.
    pub group_reporting: bool,
    /// Its files, at least one, accessed in turns; of a load, how their names begin. Relative paths
    /// are relative to the working directory.
    pub files: Vec<PathBuf>,
    /// Where in each file the part begins that it uses, in bytes.
    pub offset_bytes: u64,
    /// How much of its files it uses, together; see [`Job::size_bytes`].
    pub size: FileSize,
    /// How much it transfers, if not as much as it uses.
    pub io_size: Option<FileSize>,
    /// How often it does so.
    pub loops: u32,
    /// Where accesses go.
    pub order: Order,
    /// How many read.
    pub mix: Mix,
    /// What it does instead of accesses to blocks: all instances are clients of one such load, with
    /// files of its own, until the runtime is over.
    pub load: Option<Load>,
    /// Bytes per access.
    pub block_bytes: BlockBytes,
    /// How long to wait before it begins.
    pub start_delay: Duration,
    /// How long it runs before anything is measured.
    pub ramp: Duration,
    /// When to stop at the latest, after the ramp. `None`: when all bytes are transferred.
    pub runtime: Option<Duration>,
    /// Whether it starts again when all bytes are transferred; then there is a runtime.
    pub time_based: bool,
    /// How it asks for its bytes.
    pub engine: Engine,
    /// Accesses at once, as the user asked for.
    pub iodepth: u32,
    /// Accesses at once, as they are performed: at least one, and at most [`DEPTH_MAX`] by all
    /// instances of a stage together. Engines that are not asynchronous have one. So have jobs
    /// whose accesses have an order that matters (sequential ones, and those that sync or verify);
    /// readahead and write-back keep the device busy for them.
    pub depth: u32,
    /// Accesses that are drawn at once, at least 1. fio: `iodepth_batch_submit`.
    pub batch: u32,
    /// The most bytes per second.
    pub rate: Rate,
    /// What it says about its accesses beforehand.
    pub hint: Hint,
    /// Whether its files leave the system's own cache first.
    pub invalidate: bool,
    /// After how many writes a file is synced, each time.
    pub sync: SyncEvery,
    /// Whether, and how, contents are written and checked.
    pub verify: Option<Verify>,
    /// Whether what was written is read again at the end, if it is to be verified. fio:
    /// `do_verify`.
    pub verify_written: bool,
    /// Seed of this instance; no two of a run have the same.
    pub seed: u64,
    /// The options as the user gave them for this job, without the global ones: fio's "job
    /// options".
    pub options: Vec<(String, String)>,
    /// Where the job begins.
    pub origin: Origin,
}

impl Job {
    /// The bytes that the job uses of one of its files, from its offset on. `existing_bytes` is the
    /// length of that file, or `None` if it is yet to be created.
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

    /// The accesses of the job to one of its files, over `size_bytes`, which [`Job::size_bytes`]
    /// told, and counted from the job's offset. Endless if `time_based`. Several files have room
    /// for all that the job transfers ([`Job::limit_bytes`]), and perhaps a little more.
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

    /// The most that the job transfers, in bytes, all files and loops together. `None`: its
    /// patterns say it.
    pub fn limit_bytes(&self) -> Option<u64> {
        match self.io_size {
            Some(FileSize::Bytes(bytes)) if !self.time_based => Some(bytes.saturating_mul(self.loops.into())),
            _ => None,
        }
    }

    /// Whether several accesses at once are what was asked for.
    pub(super) fn may_overlap(&self) -> bool {
        let in_order = self.order == Order::Sequential || self.verify.is_some() || self.sync.any();
        self.engine.is_asynchronous() && !in_order
    }

    /// fio's word for order and mix: `randread`, `rw`, ...; or the name of its load.
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

/// The most bytes per second; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate {
    /// Of reads.
    pub read: Option<u64>,
    /// Of writes.
    pub write: Option<u64>,
}

/// What a job says about its accesses beforehand. fio: `fadvise_hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// Files with a descriptor: what its accesses will be. Mapped files: nothing, since the kernel
    /// ignores accessed bits where either is said (and we do), and these are what mapped jobs are
    /// about.
    #[default]
    OfEngine,
    /// Nothing.
    Nothing,
    /// What they will be.
    OfPattern,
    /// They will be random.
    Random,
    /// They will be sequential.
    Sequential,
}

/// After how many writes a file is synced, each time; 0: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncEvery {
    /// With its metadata.
    pub fsync_writes: u32,
    /// Without metadata that nobody needs to read it.
    pub fdatasync_writes: u32,
    /// At the end, within the time that is measured.
    pub end_fsync: bool,
}

impl SyncEvery {
    /// Whether it is synced while the job runs.
    pub fn any(self) -> bool {
        self.fsync_writes > 0 || self.fdatasync_writes > 0
    }
}

/// How much of its files a job uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSize {
    /// So many bytes, in equal parts; files are made, or made larger, where they have fewer.
    Bytes(u64),
    /// A percentage, 1..=100, of each existing file.
    Percent(u8),
    /// All of each existing file.
    Whole,
}

/// How a job asks for its bytes. fio: `ioengine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// One call per access.
    #[default]
    Psync,
    /// As [`Engine::Psync`]; fio seeks first.
    Sync,
    /// As [`Engine::Psync`]; fio names several buffers.
    Vsync,
    /// As [`Engine::Vsync`].
    Pvsync,
    /// As [`Engine::Vsync`].
    Pvsync2,
    /// Several calls at once, as many as `iodepth` says.
    IoUring,
    /// As [`Engine::IoUring`].
    Libaio,
    /// As [`Engine::IoUring`].
    Posixaio,
    /// Access to mapped pages.
    Mmap,
}

impl Engine {
    /// All.
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

    /// fio's name.
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

    /// How the cache sees the accesses.
    pub fn channel(self) -> Channel {
        match self {
            Engine::Mmap => Channel::Mapped,
            _ => Channel::Descriptor,
        }
    }

    /// Whether it has several accesses at once.
    pub fn is_asynchronous(self) -> bool {
        matches!(self, Engine::IoUring | Engine::Libaio | Engine::Posixaio)
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
