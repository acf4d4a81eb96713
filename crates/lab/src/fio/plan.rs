//! Plans the files of a run: sizes, layout and verification.
//!
//! fio lays a file out (writes it in full) if a job reads it, and allocates its space if jobs only
//! write. This module does the same, but only beyond the existing end: a user's data remains until
//! a job writes to it.
//!
//! A mapping of `/dev/zero` is private memory of zeroes. A page cache has no memory without a file,
//! so each instance gets a sparse file of its own in the system's directory for temporary files.
//! Reclaimed pages are written there, as they would be to a swap device.

use super::TenantLimit;
use crate::layout::{self, Content};
use crate::temporary::TemporaryFolder;
use crate::{Error, Stage, Unit, Watch, memory, size};
use mglru_core::PAGE_BYTES;
use mglru_workload::Length;
use mglru_workload::fio::{Channel, Job};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Jobs with the files that they use.
#[derive(Debug)]
pub struct Plan {
    /// The jobs, in the order of the command line.
    pub jobs: Vec<PlannedJob>,
    files: Vec<PlannedFile>,
    /// Index of each file by its path.
    known: BTreeMap<PathBuf, usize>,
    /// Folder of the files of zeroes, if any. It is removed with the plan.
    zeroes: Option<TemporaryFolder>,
}

/// One instance of a job.
#[derive(Debug)]
pub struct PlannedJob {
    /// The job.
    pub job: Job,
    /// Its files, in its order.
    pub files: Vec<PlannedUse>,
    /// Its tenant: the one with the job's name, or else the root.
    pub tenant: String,
}

/// A file as one instance uses it.
#[derive(Debug)]
pub struct PlannedUse {
    /// Index of the file in the plan.
    file: usize,
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the used part in bytes.
    pub offset_bytes: u64,
    /// Size of the used part in bytes.
    pub size_bytes: u64,
    /// Offset from which this run laid the file out in verifiable blocks; the end of the file if it
    /// did not.
    pub laid_out_from: u64,
}

impl PlannedJob {
    /// Bytes to transfer, unless the job has no end.
    pub fn goal_bytes(&self) -> u64 {
        let bytes = |(file, of): (usize, &PlannedUse)| match self.job.pattern(file, of.size_bytes).length {
            Length::Loops { bytes, count } => bytes.saturating_mul(count.into()),
            Length::Endless => 0,
        };
        let of_files = self.files.iter().enumerate().map(bytes).fold(0, u64::saturating_add);
        self.job.limit_bytes().map_or(of_files, |limit| limit.min(of_files))
    }
}

/// One file with its uses by all jobs.
#[derive(Debug)]
struct PlannedFile {
    path: PathBuf,
    /// Length before the run; `None` for a new file.
    existing_bytes: Option<u64>,
    needed_bytes: u64,
    /// Whether some job reads it, so that it is filled.
    is_read: bool,
    content: Content,
    /// Name of the first job that uses it.
    job_name: String,
    /// Index of that job's first instance.
    job_index: u32,
    /// Whether some job wants it dropped from the system's page cache.
    invalidate: bool,
}

impl Plan {
    /// Examines the files without changing anything.
    ///
    /// # Errors
    /// If a size cannot be determined, a path is not a file, a tenant has no job, or jobs would
    /// break each other's verification.
    pub fn new(jobs: &[Job], tenants: &[TenantLimit]) -> Result<Plan, Error> {
        for tenant in tenants {
            if !jobs.iter().any(|job| job.name == tenant.name) {
                let mut names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
                names.dedup();
                return Err(Error::usage(format_args!(
                    "--tenant={}: jobs run in the tenant of their name, and no job has this name; the jobs are: {}",
                    tenant.name,
                    names.join(", ")
                )));
            }
        }
        let mut plan = Plan { jobs: Vec::new(), files: Vec::new(), known: BTreeMap::new(), zeroes: None };
        for job in jobs {
            // A load creates its own files.
            let files = if job.load.is_some() { 0 } else { job.files.len() };
            let uses: Result<_, Error> = (0..files).map(|position| plan.use_of(job, position)).collect();
            let tenant = tenants.iter().find(|tenant| tenant.name == job.name);
            plan.jobs.push(PlannedJob {
                job: job.clone(),
                files: uses?,
                tenant: tenant.map_or(String::new(), |tenant| tenant.name.clone()),
            });
        }
        plan.check_verification()?;
        let instead = "choose a smaller `bs`, `iodepth` or `numjobs`, or a smaller `size` to verify";
        memory::check(plan.memory_bytes(), "the jobs' buffers and the contents to verify", instead)?;
        for used in plan.jobs.iter_mut().flat_map(|planned| &mut planned.files) {
            used.laid_out_from = plan.files[used.file].verifies_from();
        }
        Ok(plan)
    }

    /// Memory that the jobs need beside the cache, in bytes: a buffer for each concurrent access,
    /// and the generation of each block that a job writes and verifies.
    fn memory_bytes(&self) -> u64 {
        let of_job = |planned: &PlannedJob| {
            let job = &planned.job;
            let block_bytes = job.block_bytes.read.max(job.block_bytes.write);
            let buffers = u64::from(block_bytes) * u64::from(job.depth);
            let is_counted = job.verify.is_some() && job.mix.writes();
            let blocks = |used: &PlannedUse| used.size_bytes / u64::from(job.block_bytes.largest(job.mix));
            let counted = planned.files.iter().filter(|_| is_counted).map(blocks);
            counted.fold(buffers, |bytes, blocks| bytes.saturating_add(blocks.saturating_mul(4)))
        };
        self.jobs.iter().map(of_job).fold(0, u64::saturating_add)
    }

    /// A job's use of one of its files.
    fn use_of(&mut self, job: &Job, position: usize) -> Result<PlannedUse, Error> {
        let file = self.file_of(job, &job.files[position])?;
        let planned = &mut self.files[file];
        let existing = planned.existing_bytes.unwrap_or(0).max(planned.needed_bytes);
        let size_bytes = job.size_bytes(position, Some(existing)).map_err(Error::usage)?;
        planned.needed_bytes = planned.needed_bytes.max(job.offset_bytes.saturating_add(size_bytes));
        planned.is_read |= job.mix.reads();
        planned.invalidate |= job.invalidate;
        if job.verify.is_some() && planned.content != Content::Zeroes {
            let block_bytes = job.block_bytes.largest(job.mix);
            planned.content = Content::Verify { block_bytes, seed: job.seed };
        }
        Ok(PlannedUse {
            file,
            path: planned.path.clone(),
            offset_bytes: job.offset_bytes,
            size_bytes,
            laid_out_from: u64::MAX,
        })
    }

    /// Index of a job's file in the plan.
    fn file_of(&mut self, job: &Job, path: &Path) -> Result<usize, Error> {
        if path == Path::new("/dev/zero") && job.engine.channel() == Channel::Mapped {
            return self.zeroes_of(job);
        }
        let shown = path.display();
        let fail = |error| Error::work(format_args!("cannot use {shown}: {error}"));
        // `a` and `./a` are one file.
        let path = std::path::absolute(path).map_err(fail)?;
        if let Some(&known) = self.known.get(&path) {
            return Ok(known);
        }
        let existing_bytes = match fs::metadata(&path) {
            Ok(found) if found.is_file() => Some(found.len()),
            Ok(_) => {
                return Err(Error::work(format_args!(
                    "cannot use {shown}: it is no regular file; name another with `filename` (/dev/zero requires \
                     `ioengine=mmap`)"
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        Ok(self.add_file(job, path, existing_bytes, Content::Random { seed: job.seed }))
    }

    /// Index of a file of zeroes that belongs to the job.
    fn zeroes_of(&mut self, job: &Job) -> Result<usize, Error> {
        if self.zeroes.is_none() {
            let place = std::env::temp_dir();
            let made = TemporaryFolder::create(&place, "mglru-zero-");
            self.zeroes = Some(made.map_err(|error| {
                let place = place.display();
                Error::work(format_args!(
                    "cannot create a folder for /dev/zero in {place}: {error}; set TMPDIR to a directory with room"
                ))
            })?);
        }
        let directory = self.zeroes.as_ref().map_or(Path::new(""), TemporaryFolder::path);
        let path = directory.join(self.files.len().to_string());
        Ok(self.add_file(job, path, None, Content::Zeroes))
    }

    fn add_file(&mut self, job: &Job, path: PathBuf, existing_bytes: Option<u64>, content: Content) -> usize {
        self.known.insert(path.clone(), self.files.len());
        self.files.push(PlannedFile {
            path,
            existing_bytes,
            needed_bytes: 0,
            is_read: false,
            content,
            job_name: job.name.clone(),
            job_index: job.index,
            invalidate: false,
        });
        self.files.len() - 1
    }

    /// Seeds of the other instances that write verifiable blocks to a job's file.
    pub fn others(&self, of: &PlannedJob, file: &PlannedUse) -> Vec<u64> {
        let others = self.sharing(of, file);
        others.filter(|other| other.job.mix.writes()).map(|other| other.job.seed).collect()
    }

    /// Other instances that use a job's file.
    fn sharing(&self, of: &PlannedJob, file: &PlannedUse) -> impl Iterator<Item = &PlannedJob> {
        let (index, file) = (of.job.index, file.file);
        let uses = move |other: &&PlannedJob| other.files.iter().any(|used| used.file == file);
        self.jobs.iter().filter(move |other| other.job.index != index).filter(uses)
    }

    /// Checks that jobs which share a file agree on its blocks, and do not see each other's partial
    /// writes.
    fn check_verification(&self) -> Result<(), Error> {
        for planned in self.jobs.iter().filter(|planned| planned.job.verify.is_some()) {
            for used in &planned.files {
                self.check_verification_of(planned, used)?;
            }
        }
        Ok(())
    }

    fn check_verification_of(&self, planned: &PlannedJob, used: &PlannedUse) -> Result<(), Error> {
        let sharing = || self.sharing(planned, used);
        let refuse = |why: &str| {
            let (name, path) = (&planned.job.name, used.path.display());
            Err(Error::usage(format_args!(
                "job `{name}` verifies {path}, and so it {why}; give each job a file of its own (without \
                 `filename`, it has one)"
            )))
        };
        if planned.files.iter().filter(|other| other.file == used.file).count() > 1 {
            return refuse("cannot name it twice");
        }
        let block = |job: &Job| job.block_bytes.largest(job.mix);
        let bs = block(&planned.job);
        if sharing().any(|other| other.job.mix.writes() && other.job.verify.is_none()) {
            return refuse("cannot share it with a job that writes it without verify");
        }
        if sharing().any(|other| block(&other.job) != bs && other.job.verify.is_some()) {
            return refuse("cannot share it with a job that verifies it in blocks of another size (`bs`)");
        }
        // A read within one page sees a write whole or not at all. Across pages it may see half of
        // it.
        let writes = planned.job.mix.writes() || sharing().any(|other| other.job.mix.writes());
        if sharing().next().is_some() && writes && !PAGE_BYTES.is_multiple_of(u64::from(bs)) {
            return refuse("can share it with other jobs only if `bs` divides 4096");
        }
        if self.files[used.file].content == Content::Zeroes && !planned.job.mix.writes() {
            return refuse("must write it first: it is /dev/zero");
        }
        Ok(())
    }

    /// The files of each job that has files, in order.
    pub fn layouts(&self) -> impl Iterator<Item = Layout<'_>> {
        self.files.chunk_by(|one, next| one.job_index == next.job_index).map(Layout)
    }

    /// Extends all files to the needed size, and drops them from the system's page cache.
    ///
    /// # Errors
    /// As [`Layout::make`].
    pub fn lay_out(&self, watch: &dyn Watch) -> Result<(), Error> {
        self.layouts().try_for_each(|layout| layout.make(watch))
    }
}

/// The files of a job, before they are created.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'p>(&'p [PlannedFile]);

impl Layout<'_> {
    /// Name of the job.
    pub fn job_name(&self) -> &str {
        &self.0[0].job_name
    }

    /// Number of files that are missing or too short, and the bytes that they need in total.
    pub fn needed(&self) -> (usize, u64) {
        let made = || self.0.iter().filter(|file| file.is_too_short() && file.content != Content::Zeroes);
        (made().count(), made().map(|file| file.needed_bytes).sum())
    }

    /// Extends them to the needed size, and drops them from the system's page cache.
    ///
    /// # Errors
    /// If there is no space, or the system reports an error. A file that could not be made is
    /// removed, or truncated to its old length.
    pub fn make(&self, watch: &dyn Watch) -> Result<(), Error> {
        self.0.iter().try_for_each(|file| file.prepare(watch))
    }
}

impl PlannedFile {
    fn is_too_short(&self) -> bool {
        self.existing_bytes.unwrap_or(0) < self.needed_bytes
    }

    fn prepare(&self, watch: &dyn Watch) -> Result<(), Error> {
        if self.is_too_short() {
            self.make(watch)?;
        }
        if self.invalidate {
            let fail = |error| Error::work(format_args!("cannot open {}: {error}", self.path.display()));
            let opened = File::open(&self.path).map_err(fail)?;
            // If the system cannot drop it, first accesses are faster than they should be. The run
            // can continue.
            let _ = layout::drop_from_system_cache(&opened);
        }
        Ok(())
    }

    /// Offset from which the file will consist of laid-out verifiable blocks.
    fn verifies_from(&self) -> u64 {
        let existing_bytes = self.existing_bytes.unwrap_or(0);
        match self.content {
            Content::Verify { block_bytes, .. } if self.is_read && existing_bytes < self.needed_bytes => {
                existing_bytes.next_multiple_of(u64::from(block_bytes))
            }
            _ => u64::MAX,
        }
    }

    fn make(&self, watch: &dyn Watch) -> Result<(), Error> {
        let existing_bytes = self.existing_bytes.unwrap_or(0);
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let instead = "choose another with `--directory`, or a smaller `size`";
        if self.content != Content::Zeroes {
            layout::check_space(directory, self.needed_bytes - existing_bytes, instead)?;
        }
        let path = self.path.display();
        let options = || OpenOptions::new().write(true).create(true).truncate(false).open(&self.path);
        let file = options().map_err(|error| Error::work(format_args!("cannot create {path}: {error}")))?;
        let made = match (self.content, self.is_read) {
            (Content::Zeroes, _) => file.set_len(self.needed_bytes),
            (_, false) => layout::allocate(&file, self.needed_bytes),
            (_, true) => {
                let bytes = self.needed_bytes - existing_bytes;
                let _stage = Stage::begin(watch, &self.job_name, bytes, Unit::Bytes);
                let from = match self.verifies_from() {
                    u64::MAX => existing_bytes,
                    from => from,
                };
                layout::fill(&file, from..self.needed_bytes, self.content, watch)
            }
        };
        made.map_err(|error| {
            // Restore the previous state. If that fails too, the first error is the one to report.
            let _ = match self.existing_bytes {
                Some(bytes) => file.set_len(bytes),
                None => fs::remove_file(&self.path),
            };
            let size = size::show(self.needed_bytes);
            Error::work(format_args!("cannot extend {path} to {size}: {error}; {instead}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::fio::Invocation;

    fn plan(directory: &Path, line: &str) -> Result<Plan, Error> {
        let directory = format!("--directory={}", directory.display());
        let mut words = vec![directory.as_str()];
        words.extend(line.split_whitespace());
        Plan::new(&Invocation::parse(&words).unwrap().jobs, &[])
    }

    fn lay_out(plan: &Plan) {
        plan.lay_out(&crate::Unwatched).unwrap();
    }

    #[test]
    fn files_are_filled_for_readers_and_set_aside_for_writers() {
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read(directory.path().join(name)).unwrap();
        lay_out(&plan(directory.path(), "--size=64k --name=r --rw=randread --name=w --rw=write").unwrap());
        assert_eq!((read("r.0.0").len(), read("w.0.0").len()), (65536, 65536));
        assert!(read("r.0.0").chunks(8).all(|word| word.iter().any(|&byte| byte != 0)));
        assert!(read("w.0.0").iter().all(|&byte| byte == 0));
    }

    #[test]
    fn laying_out_keeps_existing_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, b"kept").unwrap();
        lay_out(&plan(directory.path(), "--filename=f --name=a --size=16k").unwrap());
        let content = fs::read(&path).unwrap();
        assert_eq!((content.len(), &content[..4]), (16384, &b"kept"[..]));
        // The file is large enough, so nothing is written.
        lay_out(&plan(directory.path(), "--filename=f --name=a --size=8k").unwrap());
        assert_eq!(fs::read(&path).unwrap(), content);
    }

    #[test]
    fn jobs_that_share_a_file_get_the_larger_size() {
        let directory = tempfile::tempdir().unwrap();
        let plan = plan(directory.path(), "--filename=f --name=a --size=16k --name=b --size=50% --numjobs=2");
        let plan = plan.unwrap();
        let sizes: Vec<u64> = plan.jobs.iter().map(|job| job.files[0].size_bytes).collect();
        assert_eq!((sizes, plan.files.len()), (vec![16384, 8192, 8192], 1));
    }

    #[test]
    fn a_file_that_is_laid_out_verifies_if_a_job_will_check_it() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("f"), b"kept").unwrap();
        let line = "--filename=f --size=32k --bs=8k --verify=crc32c --name=a --rw=randrw";
        let plan = plan(directory.path(), line).unwrap();
        assert_eq!(plan.jobs[0].files[0].laid_out_from, 8192);
        lay_out(&plan);
        let content = fs::read(directory.path().join("f")).unwrap();
        assert_eq!(&content[..5], b"kept\0");
        for block in 1..4 {
            mglru_workload::verify::check(&content[block * 8192..][..8192], block as u64 * 8192).unwrap();
        }
    }

    #[test]
    fn checks_that_jobs_would_spoil_for_each_other_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |line: &str, why: &str| match plan(
            directory.path(),
            &format!("--filename=f --size=64k {line}"),
        ) {
            Err(Error::Usage(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{line}: {other:?}"),
        };
        refused("--name=a --rw=write --verify=crc32c --bs=8k --numjobs=2", "divides 4096");
        refused("--name=a --verify=crc32c --name=b --rw=write", "without verify");
        refused("--verify=crc32c --name=a --name=b --bs=2k", "another size");
        for fine in [
            "--name=a --rw=write --verify=crc32c --numjobs=2",
            "--name=a --verify=crc32c --bs=8k --numjobs=2",
            "--name=a --rw=write --verify=crc32c --name=b --bs=64k",
        ] {
            plan(directory.path(), &format!("--filename=f --size=64k {fine}")).unwrap();
        }
    }

    #[test]
    fn a_plan_that_exceeds_memory_is_refused_before_files_are_made() {
        let directory = tempfile::tempdir().unwrap();
        for line in [
            "--name=a --size=8t --rw=write --bs=512 --verify=crc32c --numjobs=64",
            "--name=a --size=4g --bs=4294967295 --ioengine=io_uring --rw=randread --iodepth=64 --numjobs=64",
        ] {
            match plan(directory.path(), line) {
                Err(Error::Usage(text)) => assert!(text.contains("of memory are needed"), "{text}"),
                other => panic!("{line}: {:?}", other.map(drop)),
            }
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        match plan(directory.path(), "--filename=. --size=4k --name=a") {
            Err(Error::Work(text)) => assert!(text.contains("no regular file"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
