//! Resolves options to jobs: applies defaults, rejects contradictions and creates instances.

use super::error::Error;
use super::job::{DEPTH_MAX, Engine, FileSize, Hint, Job, Rate, SyncEvery, Verify};
use super::options;
use super::setting::{Origin, Section, Sections, pairs};
use crate::distribution::Distribution;
use crate::load::Load;
use crate::pattern::{BlockBytes, Mix, Order};
use crate::random::Random;
use crate::verify::HEADER_BYTES;
use std::path::PathBuf;
use std::time::Duration;

/// Seed of a run without one. fio, too, repeats its random choices by default.
const SEED_DEFAULT: u64 = 0x6D67_6C72;

const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Name of a file that the job does not name.
const FILENAME_FORMAT_DEFAULT: &str = "$jobname.$jobnum.$filenum";

/// Upper limit of the size of all instances in memory, 64 MiB. Each has its own copies of names and
/// options, so a short text with a large `numjobs` or `nrfiles` could exhaust memory before
/// anything runs.
pub(crate) const JOBS_BYTES_MAX: usize = 64 << 20;

/// Options that are valid together with `workload`: all that leave the choice and order of accesses
/// to the load.
const WITH_LOADS: [&str; 21] = [
    "name",
    "description",
    "directory",
    "workload",
    "ioengine",
    "numjobs",
    "thread",
    "runtime",
    "time_based",
    "ramp_time",
    "startdelay",
    "stonewall",
    "new_group",
    "group_reporting",
    "randseed",
    "randrepeat",
    "direct",
    "buffered",
    "verify",
    "invalidate",
    "create_on_open",
];

/// The options of one job, each parsed separately. `None` if not given.
#[derive(Debug, Default)]
pub(super) struct JobText {
    pub name: Option<String>,
    pub description: Option<String>,
    pub directories: Vec<PathBuf>,
    pub filenames: Vec<PathBuf>,
    pub filename_format: Option<String>,
    pub generated_files: Option<u32>,
    pub offset_bytes: u64,
    pub size: Option<FileSize>,
    /// Size of each file.
    pub file_bytes: Option<u64>,
    pub io_size: Option<FileSize>,
    pub loops: Option<u32>,
    pub read_write: Option<ReadWrite>,
    pub read_percent: Option<u8>,
    pub block_bytes: Parts<u32>,
    pub distribution: Option<Distribution>,
    pub no_random_map: bool,
    pub load: Option<Load>,
    pub seed: Option<u64>,
    pub instances: Option<u32>,
    pub start_delay: Duration,
    pub ramp: Duration,
    pub runtime: Option<Duration>,
    pub time_based: bool,
    pub stonewall: bool,
    pub new_group: bool,
    pub group_reporting: bool,
    pub engine: Option<Engine>,
    pub iodepth: Option<u32>,
    pub batch: Option<u32>,
    pub rate: Parts<u64>,
    pub rate_iops: Parts<u64>,
    pub hint: Hint,
    pub keep_cached: bool,
    pub sync: SyncEvery,
    pub verify: Option<Verify>,
    pub skip_verify_written: bool,
}

/// A value for reads and one for writes: `bs=4k,64k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts<T> {
    pub read: Option<T>,
    pub write: Option<T>,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self { read: None, write: None }
    }
}

impl Parts<u64> {
    /// The parts without zeros, where 0 has the meaning of a missing value.
    pub fn nonzero(self) -> Self {
        Parts { read: self.read.filter(|&value| value > 0), write: self.write.filter(|&value| value > 0) }
    }
}

/// The value of `rw`: order and mix in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadWrite {
    reads: bool,
    writes: bool,
    random: bool,
}

impl ReadWrite {
    pub const READ: Self = Self { reads: true, writes: false, random: false };
    pub const WRITE: Self = Self { reads: false, writes: true, random: false };
    pub const MIXED: Self = Self { reads: true, writes: true, random: false };

    pub fn at_random(self) -> Self {
        Self { random: true, ..self }
    }
}

/// The instances of all jobs, in order. `seed` is for jobs without one.
/// Their size is taken from `bytes_left`.
pub(super) fn resolve(
    sections: &Sections,
    seed: Option<u64>,
    bytes_left: &mut usize,
) -> Result<Vec<Job>, Error> {
    let mut jobs: Vec<Job> = Vec::new();
    for section in &sections.jobs {
        let mut text = JobText { seed, ..JobText::default() };
        for setting in section.inherited.iter().chain(&section.settings) {
            options::apply(setting, &mut text)?;
        }
        let (mut group, mut stage) = jobs.last().map_or((0, 0), |last| (last.group, last.stage));
        if !jobs.is_empty() {
            stage += u32::from(text.stonewall);
            group += u32::from(text.stonewall || text.new_group);
        }
        text.instances_of(section, group, stage, &mut jobs, bytes_left)?;
    }
    for stage in jobs.chunk_by_mut(|one, next| one.stage == next.stage) {
        let overlapping = stage.iter().filter(|job| job.may_overlap()).count().max(1) as u32;
        for job in stage.iter_mut().filter(|job| job.may_overlap()) {
            job.depth = job.iodepth.min((DEPTH_MAX / overlapping).max(1));
        }
    }
    if jobs.is_empty() { Err(Error::NoJobs) } else { Ok(jobs) }
}

impl JobText {
    fn instances_of(
        &self,
        section: &Section,
        group: u32,
        stage: u32,
        jobs: &mut Vec<Job>,
        bytes_left: &mut usize,
    ) -> Result<(), Error> {
        // A `name` in the global section would give every job the same name, so the heading wins.
        let own_name = section.settings.iter().any(|setting| setting.option.name == "name");
        let name = self.name.as_ref().filter(|_| own_name).unwrap_or(&section.name);
        let error = |reason: String| Error::Job { job: name.clone(), reason, origin: section.origin.clone() };

        if let Some(load) = self.load {
            self.check_load(load, section, name)?;
        }
        // A load reads and writes pages at arbitrary places.
        let read_write = match self.load {
            Some(_) => ReadWrite::MIXED.at_random(),
            None => self.read_write.unwrap_or(ReadWrite::READ),
        };
        let mix = match (read_write.reads, read_write.writes) {
            (true, true) => Mix::Mixed { read_percent: self.read_percent.unwrap_or(50) },
            (true, false) => Mix::Read,
            (false, _) => Mix::Write,
        };
        let block_bytes = BlockBytes {
            read: self.block_bytes.read.unwrap_or(BLOCK_BYTES_DEFAULT),
            write: self.block_bytes.write.unwrap_or(BLOCK_BYTES_DEFAULT),
        };
        let block = block_bytes.largest(mix);
        if self.load.is_none() && self.time_based && self.runtime.is_none() {
            return Err(error("`time_based` runs for the whole runtime; give `runtime=` too".to_owned()));
        }
        if self.verify.is_some() {
            if block < HEADER_BYTES {
                return Err(error(format!(
                    "`verify` needs blocks of at least {HEADER_BYTES} bytes for its header; `bs` is {block}"
                )));
            }
            if mix.reads() && mix.writes() && block_bytes.read != block_bytes.write {
                return Err(error(
                    "`verify` reads the blocks that were written; give one `bs` for both".to_owned(),
                ));
            }
        }
        if self.verify.is_some() && !self.offset_bytes.is_multiple_of(u64::from(block)) {
            let offset = self.offset_bytes;
            return Err(error(format!(
                "`verify` needs an `offset` that is a multiple of `bs`; {offset} is not a multiple of {block}"
            )));
        }
        let filesize = self.file_bytes.map(FileSize::Bytes);
        for (option, size) in [("size", self.size), ("io_size", self.io_size), ("filesize", filesize)] {
            if let Some(FileSize::Bytes(bytes)) = size
                && bytes < u64::from(block)
            {
                return Err(error(format!(
                    "`{option}` is {bytes} bytes, less than one block (`bs`) of {block}"
                )));
            }
        }
        if let (Some(directory), Some(filename)) =
            (self.directories.first(), self.filenames.iter().find(|filename| filename.is_absolute()))
        {
            let (directory, filename) = (directory.display(), filename.display());
            return Err(error(format!(
                "`filename={filename}` is absolute and cannot lie in `directory={directory}`; make it relative"
            )));
        }

        let iodepth = self.iodepth.unwrap_or(1);
        // fio: 0 is the depth.
        let batch = self.batch.map_or(1, |batch| if batch == 0 { iodepth } else { batch });
        let rate = |bytes: Option<u64>, iops: Option<u64>, block: u32| {
            let of_iops = iops.map(|iops| iops.saturating_mul(block.into()));
            bytes.into_iter().chain(of_iops).min()
        };
        let instances = self.instances.unwrap_or(1);
        let options = pairs(&section.settings);
        let bytes = self.instance_bytes(name, &options).saturating_mul(instances as usize);
        let Some(left) = bytes_left.checked_sub(bytes) else {
            return Err(error(format!(
                "the jobs up to here and the names of their files take more than {} MiB of memory: give fewer or \
                 shorter `filename`s, or a smaller `numjobs` or `nrfiles`",
                JOBS_BYTES_MAX >> 20
            )));
        };
        *bytes_left = left;
        for instance in 0..instances {
            let index = jobs.len() as u32;
            let files = match self.load {
                Some(_) => {
                    vec![self.directories.first().map_or_else(PathBuf::new, PathBuf::clone).join(name)]
                }
                None => self.files(name, instance),
            };
            let (size, io_size) = self.sizes(files.len() as u64);
            jobs.push(Job {
                name: name.clone(),
                description: self.description.clone(),
                index,
                instance,
                instances,
                group,
                stage,
                group_reporting: self.group_reporting,
                files,
                offset_bytes: self.offset_bytes,
                size,
                io_size,
                loops: self.loops.unwrap_or(1),
                order: match read_write.random {
                    true => Order::Random(self.distribution()),
                    false => Order::Sequential,
                },
                mix,
                load: self.load,
                block_bytes,
                start_delay: self.start_delay,
                ramp: self.ramp,
                runtime: self.runtime,
                time_based: self.time_based || self.load.is_some(),
                engine: self.engine.unwrap_or_default(),
                iodepth,
                depth: 1,
                batch,
                rate: Rate {
                    read: rate(self.rate.read, self.rate_iops.read, block_bytes.read),
                    write: rate(self.rate.write, self.rate_iops.write, block_bytes.write),
                },
                hint: self.hint,
                invalidate: !self.keep_cached,
                sync: self.sync,
                verify: self.verify.filter(|_| self.load.is_none()),
                verify_written: !self.skip_verify_written,
                seed: Random::stream(self.seed.unwrap_or(SEED_DEFAULT), u64::from(index)).next_u64(),
                options: options.clone(),
                origin: section.origin.clone(),
            });
        }
        Ok(())
    }

    /// Upper limit of the memory of an instance, in bytes.
    fn instance_bytes(&self, name: &str, options: &[(String, String)]) -> usize {
        let in_directory = |name_bytes: usize| {
            let directory = self.directories.iter().map(|path| path.as_os_str().len() + 1).max();
            size_of::<PathBuf>() + directory.unwrap_or(0).saturating_add(name_bytes)
        };
        let files = if self.filenames.is_empty() {
            let format = self.filename_format.as_deref().unwrap_or(FILENAME_FORMAT_DEFAULT);
            let names = format.matches("$jobname").count().saturating_mul(name.len());
            let numbers = format.matches('$').count() * u32::MAX.to_string().len();
            let file = in_directory(format.len().saturating_add(names).saturating_add(numbers));
            file.saturating_mul(self.generated_files.unwrap_or(1) as usize)
        } else {
            self.filenames
                .iter()
                .map(|file| in_directory(file.as_os_str().len()))
                .fold(0, usize::saturating_add)
        };
        let options = options.iter().map(|(name, value)| name.len() + value.len() + 2 * size_of::<String>());
        let own = size_of::<Job>() + name.len() + self.description.as_ref().map_or(0, String::len);
        files.saturating_add(own + options.sum::<usize>())
    }

    /// Rejects options that choose accesses, because a load chooses its own.
    fn check_load(&self, load: Load, section: &Section, job: &str) -> Result<(), Error> {
        let error = |reason: String, origin: &Origin| {
            Err(Error::Job { job: job.to_owned(), reason, origin: origin.clone() })
        };
        let load_name = load.name();
        for setting in section.inherited.iter().chain(&section.settings) {
            let option = setting.option.name;
            let has_no_choice = match load {
                Load::Sweep { .. } => Some("has none"),
                Load::Ycsb(_) => Some("decides that itself"),
                _ => None,
            };
            if option == "ioengine"
                && let Some(why) = has_no_choice
            {
                let reason = format!(
                    "`ioengine` says how files are reached, and `workload={load_name}` {why}: leave it out"
                );
                return error(reason, &setting.origin);
            }
            if option == "verify" && self.verify.is_none() {
                let reason =
                    format!("`workload={load_name}` always verifies its contents; remove `verify=0`");
                return error(reason, &setting.origin);
            }
            if !WITH_LOADS.contains(&option) {
                let reason = format!(
                    "`{option}` controls block accesses, which `workload={load_name}` does not have; remove one of \
                     them"
                );
                return error(reason, &setting.origin);
            }
        }
        if self.runtime.is_none() {
            let reason = format!("`workload={load_name}` has no end; give `runtime=` too");
            return error(reason, &section.origin);
        }
        let clients = self.instances.unwrap_or(1);
        load.check(clients).or_else(|reason| error(reason, &section.origin))
    }

    /// `norandommap` concerns the random map, which only the uniform distribution has.
    fn distribution(&self) -> Distribution {
        match self.distribution.unwrap_or_default() {
            Distribution::Uniform if self.no_random_map => Distribution::Independent,
            distribution => distribution,
        }
    }

    /// Total size of the used parts, and the amount to transfer. fio: `filesize` gives the size of
    /// the files, and `size` the amount that is transferred.
    fn sizes(&self, files: u64) -> (FileSize, Option<FileSize>) {
        let Some(file_bytes) = self.file_bytes else {
            return (self.size.unwrap_or(FileSize::Whole), self.io_size);
        };
        let all_bytes = file_bytes.saturating_mul(files);
        let transferred = match self.size {
            Some(FileSize::Bytes(bytes)) => Some(FileSize::Bytes(bytes.min(all_bytes))),
            size => size,
        };
        (FileSize::Bytes(all_bytes), self.io_size.or(transferred))
    }

    /// The files of an instance. As in fio, given names are shared and lie in the first directory.
    /// Generated names belong to one instance, and instances use the directories in turn.
    fn files(&self, name: &str, instance: u32) -> Vec<PathBuf> {
        let (directory, files) = if self.filenames.is_empty() {
            let directory = match self.directories.len() {
                0 => None,
                count => self.directories.get(instance as usize % count),
            };
            let format = self.filename_format.as_deref().unwrap_or(FILENAME_FORMAT_DEFAULT);
            let made_up = |file: u32| {
                let name = format.replace("$jobname", name).replace("$jobnum", &instance.to_string());
                PathBuf::from(name.replace("$filenum", &file.to_string()))
            };
            (directory, (0..self.generated_files.unwrap_or(1)).map(made_up).collect())
        } else {
            (self.directories.first(), self.filenames.clone())
        };
        match directory {
            Some(directory) => files.iter().map(|file| directory.join(file)).collect(),
            None => files,
        }
    }
}
