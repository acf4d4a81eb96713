//! From what was said to what it means: defaults, contradictions, instances.

use super::error::Error;
use super::job::{Engine, FileSize, Job, Verify};
use super::options;
use super::setting::{Section, Sections, pairs};
use crate::distribution::Distribution;
use crate::pattern::{Mix, Order};
use crate::random::Random;
use crate::verify::HEADER_BYTES;
use std::path::PathBuf;
use std::time::Duration;

/// The seed of a run that names none. fio repeats its runs by default as well.
const SEED_DEFAULT: u64 = 0x6D67_6C72;

/// The options of one job, each read on its own. `None`: not given.
#[derive(Debug, Default)]
pub(super) struct JobText {
    pub name: Option<String>,
    pub directory: Option<PathBuf>,
    pub filename: Option<PathBuf>,
    pub size: Option<FileSize>,
    pub read_write: Option<ReadWrite>,
    pub read_percent: Option<u8>,
    pub block_bytes: Option<u32>,
    pub distribution: Option<Distribution>,
    pub seed: Option<u64>,
    pub instances: Option<u32>,
    pub runtime: Option<Duration>,
    pub time_based: bool,
    pub group_reporting: bool,
    pub engine: Option<Engine>,
    pub verify: Option<Verify>,
}

/// The value of `rw`: two choices in one word.
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

/// The instances of all jobs, in order. `seed` is for jobs that name none.
pub(super) fn resolve(sections: &Sections, seed: Option<u64>) -> Result<Vec<Job>, Error> {
    let mut jobs = Vec::new();
    for section in &sections.jobs {
        let mut text = JobText { seed, ..JobText::default() };
        for setting in section.inherited.iter().chain(&section.settings) {
            options::apply(setting, &mut text)?;
        }
        text.instances_of(section, &mut jobs)?;
    }
    if jobs.is_empty() { Err(Error::NoJobs) } else { Ok(jobs) }
}

impl JobText {
    fn instances_of(&self, section: &Section, jobs: &mut Vec<Job>) -> Result<(), Error> {
        // A `name` of the global section would name every job alike; the heading is closer.
        let own_name = section.settings.iter().any(|setting| setting.option.name == "name");
        let name = self.name.as_ref().filter(|_| own_name).unwrap_or(&section.name);
        let error = |reason: String| Error::Job { job: name.clone(), reason, origin: section.origin.clone() };

        let read_write = self.read_write.unwrap_or(ReadWrite::READ);
        let block_bytes = self.block_bytes.unwrap_or(4096);
        let size = self.size.unwrap_or(FileSize::Whole);
        if self.time_based && self.runtime.is_none() {
            return Err(error("`time_based` runs for the whole runtime; give `runtime=` too".to_owned()));
        }
        if self.verify.is_some() && block_bytes < HEADER_BYTES {
            return Err(error(format!(
                "`verify` needs blocks of at least {HEADER_BYTES} bytes for its header; `bs` is {block_bytes}"
            )));
        }
        if let FileSize::Bytes(bytes) = size
            && bytes < u64::from(block_bytes)
        {
            return Err(error(format!(
                "`size` is {bytes} bytes, less than one block (`bs`) of {block_bytes}"
            )));
        }
        if let (Some(directory), Some(filename)) = (&self.directory, &self.filename)
            && filename.is_absolute()
        {
            let (directory, filename) = (directory.display(), filename.display());
            return Err(error(format!(
                "`filename={filename}` is absolute and cannot lie in `directory={directory}`; make it relative"
            )));
        }

        let instances = self.instances.unwrap_or(1);
        for instance in 0..instances {
            let index = jobs.len() as u32;
            // fio's default: $jobname.$jobnum.$filenum, a file per instance. A given name is shared.
            let file = self.filename.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.{instance}.0")));
            jobs.push(Job {
                name: name.clone(),
                index,
                instance,
                instances,
                group: 0,
                group_reporting: self.group_reporting,
                path: self.directory.as_ref().map_or(file.clone(), |directory| directory.join(file)),
                size,
                order: match read_write.random {
                    true => Order::Random(self.distribution.unwrap_or_default()),
                    false => Order::Sequential,
                },
                mix: match (read_write.reads, read_write.writes) {
                    (true, true) => Mix::Mixed { read_percent: self.read_percent.unwrap_or(50) },
                    (true, false) => Mix::Read,
                    (false, _) => Mix::Write,
                },
                block_bytes,
                runtime: self.runtime,
                time_based: self.time_based,
                engine: self.engine.unwrap_or_default(),
                verify: self.verify,
                seed: Random::stream(self.seed.unwrap_or(SEED_DEFAULT), u64::from(index)).next_u64(),
                options: pairs(&section.settings),
                origin: section.origin.clone(),
            });
        }
        Ok(())
    }
}
