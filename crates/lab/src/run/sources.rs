//! The jobs of a scenario as streams of operations of the simulated machine.
//!
//! Every `[[job]]` has files and memory of its own, except that jobs in fio's language share files
//! with the same path.

use crate::error::Error;
use crate::fio::source::{Drawn, Source as Drawing};
use crate::trace_file::{Decoding, TraceFile, TraceSource};
use mglru_core::{PAGE_BYTES, Time};
use mglru_sim::{Access, Numbering, Operation, Source, SourceError};
use mglru_workload::fio::{self, Channel};
use mglru_workload::load::{Running, Step};
use mglru_workload::scenario::TIME_MAX;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Operations that a job takes at once. Between two batches it can end and observes changes of its
/// tenant.
const BATCH: usize = 64;
/// Largest size of a file, in bytes.
const FILE_BYTES_MAX: u64 = PAGE_BYTES << 32;

/// Unique numbers for files and regions of memory.
#[derive(Clone, Default)]
pub struct Numbers(Rc<Cell<u32>>);

impl Numbers {
    fn next(&self) -> u32 {
        self.0.replace(self.0.get() + 1)
    }
}

/// Files of jobs in fio's language, by path.
#[derive(Default)]
pub struct Files {
    numbers: Numbers,
    /// Number and size in bytes of each file.
    known: BTreeMap<PathBuf, (u32, u64)>,
}

impl Files {
    /// A set of files that takes its numbers from `numbers`.
    pub fn new(numbers: Numbers) -> Files {
        Files { numbers, known: BTreeMap::new() }
    }

    /// Numbers of the files so far, and their lengths in pages.
    pub fn lengths(&self) -> impl Iterator<Item = (u32, u64)> {
        self.known.values().map(|&(number, bytes)| (number, bytes.div_ceil(PAGE_BYTES)))
    }

    /// A job's file: its number, and the number of bytes that the job uses.
    fn file(&mut self, job: &fio::Job, position: usize) -> Result<(u32, u64), Error> {
        // Each instance has its own memory of zeroes.
        let path = match &job.files[position] {
            path if path == Path::new("/dev/zero") => path.join(format!("{}.{position}", job.index)),
            path => path.clone(),
        };
        let existing = self.known.get(&path).map(|&(_, bytes)| bytes);
        let bytes = job.size_bytes(position, existing).map_err(Error::usage)?;
        let end = job.offset_bytes.saturating_add(bytes);
        if end > FILE_BYTES_MAX {
            let (origin, name) = (&job.origin, &job.name);
            return Err(Error::usage(format_args!("{origin}: job `{name}`: a file has at most 16 TiB")));
        }
        let (number, known) = self.known.entry(path).or_insert_with(|| (self.numbers.next(), 0));
        *known = (*known).max(end);
        Ok((*number, bytes))
    }
}

/// Start and end of a job.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Start time.
    pub start: Time,
    /// Latest end time.
    pub end: Time,
}

impl Span {
    /// A span from a start for a duration. Even without a runtime it is finite.
    pub fn new(start: Duration, runtime: Option<Duration>) -> Span {
        let start = Time::ZERO + start;
        Span { start, end: start + runtime.unwrap_or(TIME_MAX) }
    }
}

/// Adds the first operation of every job, which waits for its start.
fn begin(started: &mut bool, span: Span, batch: &mut Vec<Operation>) -> bool {
    let begins = !std::mem::replace(started, true);
    if begins {
        batch.push(Operation::RestUntil { time: span.start });
    }
    begins
}

/// An instance of a job in fio's language.
pub struct FioSource {
    span: Span,
    started: bool,
    drawing: Drawing,
    drawn: Vec<Drawn>,
    /// Numbers of its files.
    files: Vec<u32>,
    job: fio::Job,
    /// Due time of the last access, relative to the start.
    due: Duration,
    writes: u64,
    /// Whether it has synced its files at the end.
    ended: bool,
}

impl FioSource {
    /// An instance whose `[[job]]` begins at `start`.
    ///
    /// # Errors
    /// If the size of its files is not given or too large.
    pub fn new(job: &fio::Job, start: Duration, files: &mut Files) -> Result<FioSource, Error> {
        let used: Result<Vec<(u32, u64)>, Error> =
            (0..job.files.len()).map(|position| files.file(job, position)).collect();
        let used = used?;
        let accesses = used.iter().enumerate().map(|(file, &(_, bytes))| job.pattern(file, bytes).accesses());
        let accesses = accesses.collect::<Result<Vec<_>, _>>().map_err(Error::usage)?;
        let runtime = job.runtime.map(|runtime| runtime.saturating_add(job.ramp));
        Ok(FioSource {
            span: Span::new(start.saturating_add(job.start_delay), runtime),
            started: false,
            drawing: Drawing::new(accesses, job.offset_bytes, job.limit_bytes(), BATCH, job.rate),
            drawn: Vec::new(),
            files: used.iter().map(|&(number, _)| number).collect(),
            job: job.clone(),
            due: Duration::ZERO,
            writes: 0,
            ended: false,
        })
    }

    fn page(&self, file: usize, index: u64) -> u64 {
        u64::from(self.files[file]) << 32 | index
    }

    fn perform(&mut self, drawn: Drawn, batch: &mut Vec<Operation>) {
        let Drawn { file, access, due } = drawn;
        if !due.is_zero() {
            batch.push(Operation::RestUntil { time: self.span.start + due });
            self.due = due;
        }
        let mapped = self.job.engine.channel() == Channel::Mapped;
        for index in access.pages(PAGE_BYTES as u32) {
            let page = self.page(file, index);
            let inside = index * PAGE_BYTES < access.offset;
            batch.push(Operation::Access(Access {
                page,
                write: access.write,
                mapped,
                anon: false,
                inside,
                fault: false,
            }));
        }
        if access.write {
            self.writes += 1;
            let sync = &self.job.sync;
            let is_due = |every: u32| every > 0 && self.writes.is_multiple_of(every.into());
            if is_due(sync.fsync_writes) || is_due(sync.fdatasync_writes) {
                batch.push(Operation::Sync { page: self.page(file, 0) });
            }
        }
    }
}

impl Source for FioSource {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        if begin(&mut self.started, self.span, batch) {
            return Ok(());
        }
        let mut drawn = std::mem::take(&mut self.drawn);
        self.drawing.draw(&mut drawn, self.due);
        // Accesses that are due after the end are dropped.
        drawn.retain(|drawn| self.span.start + drawn.due < self.span.end);
        drawn.iter().for_each(|&drawn| self.perform(drawn, batch));
        if drawn.is_empty() && self.job.sync.end_fsync && self.job.mix.writes() && !self.ended {
            self.ended = true;
            batch.extend((0..self.files.len()).map(|file| Operation::Sync { page: self.page(file, 0) }));
        }
        self.drawn = drawn;
        Ok(())
    }

    fn end(&self) -> Option<Time> {
        Some(self.span.end)
    }
}

/// Maps a job's page names to those of the machine.
pub struct Names {
    numbers: Numbers,
    /// The job's number of a file or region → the machine's.
    files: BTreeMap<u32, u32>,
    /// If pages are opaque keys: their positions in one file.
    positions: Option<HashMap<u64, u32>>,
}

impl Names {
    /// Names for a job with this page numbering.
    pub fn new(numbers: Numbers, numbering: Numbering) -> Names {
        let positions = (numbering == Numbering::Keys).then(HashMap::new);
        Names { numbers, files: BTreeMap::new(), positions }
    }

    /// Adds the operation of a job with the machine's page names. A range of opaque keys becomes an
    /// operation for each page that was used.
    pub fn add(&mut self, operation: Operation, batch: &mut Vec<Operation>) {
        let named = match operation {
            Operation::Access(access) => Operation::Access(Access { page: self.page(access.page), ..access }),
            Operation::Sync { page } => Operation::Sync { page: self.page(page) },
            Operation::Release { page, pages } => Operation::Release { page: self.page(page), pages },
            Operation::Punch { page, pages } if self.positions.is_none() => {
                Operation::Punch { page: self.page(page), pages }
            }
            Operation::Punch { page, pages } => {
                for position in self.used(page..page.saturating_add(pages.into())) {
                    batch.push(Operation::Punch { page: self.in_file(position.into()), pages: 1 });
                }
                return;
            }
            other => other,
        };
        batch.push(named);
    }

    /// The positions of those keys that were used, in ascending order.
    fn used(&self, keys: Range<u64>) -> Vec<u32> {
        let Some(positions) = &self.positions else { return Vec::new() };
        let mut used: Vec<u32> = match keys.end - keys.start < positions.len() as u64 {
            true => keys.filter_map(|key| positions.get(&key).copied()).collect(),
            false => positions.iter().filter(|(key, _)| keys.contains(*key)).map(|(_, &at)| at).collect(),
        };
        used.sort_unstable();
        used
    }

    fn page(&mut self, page: u64) -> u64 {
        let page = match &mut self.positions {
            None => page,
            Some(positions) => {
                let next = positions.len() as u32;
                u64::from(*positions.entry(page).or_insert(next))
            }
        };
        self.in_file(page)
    }

    fn in_file(&mut self, page: u64) -> u64 {
        let number = self.files.entry((page >> 32) as u32).or_insert_with(|| self.numbers.next());
        u64::from(*number) << 32 | page & 0xffff_ffff
    }
}

/// A trace as a source of operations.
pub struct Replay {
    span: Span,
    started: bool,
    trace: TraceSource,
    names: Names,
    decoded: Vec<Operation>,
    next: usize,
}

impl Replay {
    /// The whole trace, and the progress of its decoding.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new(trace: &TraceFile, span: Span, numbers: Numbers) -> Result<(Replay, Arc<Decoding>), Error> {
        let names = Names::new(numbers, trace.numbering());
        let (trace, decoding) = trace.source()?;
        Ok((Replay { span, started: false, trace, names, decoded: Vec::new(), next: 0 }, decoding))
    }
}

impl Source for Replay {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        if begin(&mut self.started, self.span, batch) {
            return Ok(());
        }
        // A batch may be of trims alone, of pages that were never used.
        while batch.is_empty() {
            if self.next == self.decoded.len() {
                self.decoded.clear();
                self.next = 0;
                self.trace.fill(&mut self.decoded)?;
                if self.decoded.is_empty() {
                    break;
                }
            }
            let end = self.decoded.len().min(self.next + BATCH);
            for &operation in &self.decoded[self.next..end] {
                self.names.add(operation, batch);
            }
            self.next = end;
        }
        Ok(())
    }

    fn end(&self) -> Option<Time> {
        Some(self.span.end)
    }
}

/// A load shared by its clients, and the names of its pages.
pub type SharedLoad = Rc<RefCell<(Running, Names)>>;

/// A client of a load.
pub struct Client {
    /// Start and end.
    pub span: Span,
    /// Index of the client.
    pub client: usize,
    /// The load.
    pub load: SharedLoad,
    /// Whether it has begun.
    pub started: bool,
    /// Its next steps.
    pub steps: Vec<Step>,
}

impl Source for Client {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        if begin(&mut self.started, self.span, batch) {
            return Ok(());
        }
        let (running, names) = &mut *self.load.borrow_mut();
        self.steps.clear();
        running.draw(self.client, &mut self.steps);
        self.steps.iter().for_each(|&step| names.add(step.into(), batch));
        Ok(())
    }

    fn end(&self) -> Option<Time> {
        Some(self.span.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these pages on a machine that has a file already, then trims. Returns the trims.
    fn trims(numbering: Numbering, read: &[u64], page: u64, pages: u32) -> Vec<Operation> {
        let numbers = Numbers::default();
        numbers.next();
        let (mut names, mut batch) = (Names::new(numbers, numbering), Vec::new());
        read.iter().for_each(|&page| names.add(Access::read(page).into(), &mut batch));
        batch.clear();
        names.add(Operation::Punch { page, pages }, &mut batch);
        batch
    }

    #[test]
    fn a_trim_is_of_the_job_s_own_pages() {
        let trim = |page, pages| Operation::Punch { page, pages };
        assert_eq!(trims(Numbering::Files, &[7 << 32, 9 << 32], 9 << 32 | 5, 8), [trim(2 << 32 | 5, 8)]);
        let at = |position: u64| trim(1 << 32 | position, 1);
        assert_eq!(trims(Numbering::Keys, &[40, 1 << 50, 42, 41], 41, 2), [at(2), at(3)]);
        assert_eq!(trims(Numbering::Keys, &[40, 1 << 50, 42, 41], 41, u32::MAX), [at(2), at(3)]);
        assert_eq!(trims(Numbering::Keys, &[40], 100, 8), []);
    }
}
