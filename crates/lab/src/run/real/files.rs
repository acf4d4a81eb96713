//! A trace on real files: one sparse file per file of the trace, and memory for its anonymous
//! pages.

use crate::error::Error;
use crate::membership::{Member, Membership};
use crate::run::sources::{Names, Numbers};
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_cache::{AnonRegion, CachedFile, Map, OpenMode, Tenant};
use mglru_core::PAGE_BYTES;
use mglru_sim::{Access, Operation, Source};
use mglru_workload::trace::OpenOptions;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of each file or region, by number.
type Sizes = BTreeMap<u32, u64>;

/// A trace with its files.
pub struct TraceJob {
    trace: TraceFile,
    runtime: Option<Duration>,
    /// Prefix of its file names.
    stem: PathBuf,
    files: Sizes,
    regions: Sizes,
    /// Bad records that were skipped.
    pub skipped: u64,
}

/// Open files of the trace.
#[derive(Default)]
pub struct OpenFiles {
    files: BTreeMap<u32, CachedFile>,
    maps: BTreeMap<u32, Map>,
    regions: BTreeMap<u32, AnonRegion>,
}

fn place(page: u64) -> (u32, u64) {
    ((page >> 32) as u32, (page & 0xffff_ffff) * PAGE_BYTES)
}

/// Calls `with` for every operation. Pages are named as in this job's files.
/// Returns the number of bad records that were skipped.
fn each(trace: &TraceFile, mut with: impl FnMut(Operation) -> Result<bool, Error>) -> Result<u64, Error> {
    let mut names = Names::new(Numbers::default(), trace.numbering());
    let (mut source, decoding) = trace.source()?;
    let (mut batch, mut named) = (Vec::new(), Vec::new());
    loop {
        batch.clear();
        source.fill(&mut batch).map_err(Error::work)?;
        if batch.is_empty() {
            return Ok(decoding.skipped());
        }
        for &operation in &batch {
            names.add(operation, &mut named);
            for operation in named.drain(..) {
                if !with(operation)? {
                    return Ok(decoding.skipped());
                }
            }
        }
    }
}

impl TraceJob {
    /// Creates the files of a trace, with names that begin with `stem`.
    ///
    /// # Errors
    /// If the trace cannot be read or the files cannot be created, or if the work was cancelled.
    pub fn new(
        path: &Path,
        open: OpenOptions,
        runtime: Option<Duration>,
        stem: &Path,
        watch: &dyn Watch,
    ) -> Result<TraceJob, Error> {
        let trace = TraceFile::load(path, open, watch)?;
        let (mut files, mut regions) = (Sizes::new(), Sizes::new());
        let skipped = each(&trace, |operation| {
            if let Operation::Access(access) = operation {
                let (number, offset) = place(access.page);
                let sizes = if access.anon { &mut regions } else { &mut files };
                let size = sizes.entry(number).or_default();
                *size = (*size).max(offset + PAGE_BYTES);
            }
            Ok(!watch.is_cancelled())
        })?;
        watch.check()?;
        let job = TraceJob { trace, runtime, stem: stem.to_owned(), files, regions, skipped };
        for (&number, &bytes) in &job.files {
            let path = job.path(number);
            File::create(&path).and_then(|file| file.set_len(bytes)).map_err(|error| {
                Error::work(format_args!("cannot extend {} to {bytes} bytes: {error}", path.display()))
            })?;
        }
        Ok(job)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.stem.with_extension(number.to_string())
    }

    /// Runs to the end of the trace, or until it is stopped. Returns whether some accesses are
    /// mapped, the error of the job, and its open files.
    ///
    /// # Errors
    /// If files cannot be opened.
    pub fn run(
        &self,
        membership: &Membership,
        stop: &AtomicBool,
    ) -> Result<(bool, Option<String>, OpenFiles), Error> {
        let tenant = membership.tenant();
        let mut open = OpenFiles::default();
        for &number in self.files.keys() {
            let file = tenant.open(self.path(number), OpenMode::ReadWrite)?;
            open.maps.insert(number, file.map()?);
            open.files.insert(number, file);
        }
        for (&number, &bytes) in &self.regions {
            open.regions.insert(number, tenant.anonymous(bytes)?);
        }
        let deadline = self.runtime.map(|runtime| Instant::now() + runtime);
        let mut page = vec![1; PAGE_BYTES as usize];
        let (mut accesses, mut mapped, mut member) = (0, false, Member::default());
        let done = each(&self.trace, |operation| {
            if let Some(tenant) = membership.moved(&mut member, accesses) {
                open.move_to(&tenant)?;
            }
            match operation {
                Operation::Access(access) => {
                    open.perform(access, &mut page)?;
                    accesses += 1;
                    mapped |= access.mapped || access.anon;
                }
                Operation::Sync { page } => {
                    open.files.get(&place(page).0).map_or(Ok(()), CachedFile::sync_data)?
                }
                _ => {}
            }
            Ok(!stop.load(Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline))
        });
        membership.report(&mut member, accesses);
        Ok((mapped, done.err().map(|failure| failure.text().to_owned()), open))
    }
}

impl OpenFiles {
    fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        self.files.values_mut().try_for_each(|file| file.move_to(tenant))?;
        self.maps.values_mut().try_for_each(|map| map.move_to(tenant))?;
        Ok(self.regions.values_mut().try_for_each(|region| region.move_to(tenant))?)
    }

    fn perform(&self, access: Access, page: &mut [u8]) -> Result<(), Error> {
        let Access { write, mapped, anon, .. } = access;
        let (number, offset) = place(access.page);
        match (anon, mapped, write) {
            (true, _, true) => self.regions[&number].store(offset, page)?,
            (true, _, false) => self.regions[&number].load(offset, page)?,
            (false, true, true) => self.maps[&number].store(offset, page)?,
            (false, true, false) => self.maps[&number].load(offset, page)?,
            (false, false, true) => self.files[&number].write_at(page, offset).map(drop)?,
            (false, false, false) => self.files[&number].read_at(page, offset).map(drop)?,
        }
        Ok(())
    }
}
