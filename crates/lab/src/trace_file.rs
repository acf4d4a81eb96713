//! Traces for experiments, decoded ahead of the replay and counted.
//!
//! Decoding costs as much as replaying, and is kept out of the measured time:
//!
//! ```text
//! short    decoded whole before the clock starts; all runs share the records
//! long     decoded by a thread of its own, a limited number of batches ahead; once per run
//! ```
//!
//! In both cases memory use does not grow with the length of the trace.

use crate::error::Error;
use crate::sampling::{self, Sample, Sampled};
use crate::temporary::UnfinishedFile;
use crate::watch::{Stage, Unit, Watch};
use mglru_sim::SourceError;
use mglru_sim::{Numbering, Operation, Source};
use mglru_workload::trace::{
    self, Converted, Format, OpenOptions, OptionOrigin, PageAccess, Record, TraceError, TraceInfo,
    TraceReader, TraceWriter, WriteOptions,
};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Largest number of records of a short trace: 64 MiB.
const DECODED_RECORDS_MAX: usize = 4 << 20;
/// Largest number of records of a sample: 1 GiB.
const SAMPLED_RECORDS_MAX: usize = 64 << 20;
/// Number of records that decide the numbering of pages.
const NUMBERING_RECORDS: usize = 1 << 20;
/// Records between two looks whether the work was cancelled.
const LOOK_RECORDS: usize = 1 << 20;
/// Records per batch of a short trace.
const BATCH_RECORDS: usize = 4096;
/// Number of batches by which the decoding of a long trace may be ahead: 4 MiB.
const BATCHES_AHEAD: usize = 64;

/// A stage with the length of a trace.
fn reading<'w>(watch: &'w dyn Watch, what: &str) -> Stage<'w> {
    Stage::begin(watch, what, 1000, Unit::Steps)
}

/// Reports the share of the file that was read.
fn report_progress(stage: &Stage<'_>, reader: &TraceReader) -> Result<(), Error> {
    stage.advance_to(reader.progress().unwrap_or(0.0))
}

/// Contents of a trace and of its sidecar.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TraceSummary {
    /// Counts of the trace.
    #[serde(flatten)]
    pub info: TraceInfo,
    /// Description of the trace.
    pub description: Option<String>,
    /// Fraction of the accesses before counting starts.
    pub warm: Option<f64>,
}

/// The description beside a trace of this format, if it has one: only traces of the kernel lab do.
pub(crate) fn own_sidecar(path: &Path, format: Format) -> Result<Option<trace::Sidecar>, Error> {
    Ok(if format == Format::KernelLab { trace::sidecar(path)? } else { None })
}

/// Reads a trace from beginning to end.
///
/// # Errors
/// If it cannot be opened or is damaged.
pub fn summary(path: &Path, options: OpenOptions, watch: &dyn Watch) -> Result<TraceSummary, Error> {
    let stage = reading(watch, "reading");
    let mut reader = trace::open(path, options)?;
    let info = trace::info_with(&mut reader, |reader| report_progress(&stage, reader))?;
    let sidecar = own_sidecar(path, reader.format())?;
    let warm = sidecar.as_ref().and_then(|sidecar| sidecar.warm);
    Ok(TraceSummary { info, description: sidecar.and_then(|sidecar| sidecar.description), warm })
}

/// Result of converting a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversion {
    /// The format that was read.
    pub from_format: Format,
    /// Bad records that were skipped.
    pub skipped: u64,
    /// Counts of the written trace.
    pub written: Converted,
}

/// Converts a trace to another format.
///
/// # Errors
/// If it cannot be opened, is damaged or has records that the other format cannot represent, or if
/// the new trace cannot be written.
pub fn convert(
    (from, from_options): (&Path, OpenOptions),
    (to, format, options): (&Path, Format, WriteOptions),
    watch: &dyn Watch,
) -> Result<Conversion, Error> {
    let stage = reading(watch, "converting");
    let mut reader = trace::open(from, from_options)?;
    let (mut writer, _unfinished) = writer(to, format, options)?;
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch)? > 0 {
        report_progress(&stage, &reader)?;
        writer.write(&batch)?;
    }
    Ok(Conversion { from_format: reader.format(), skipped: reader.skipped(), written: writer.finish()? })
}

/// A writer whose unfinished file is removed when the program is interrupted. Keep the second value
/// until the trace is finished.
pub(crate) fn writer(
    to: &Path,
    format: Format,
    options: WriteOptions,
) -> Result<(TraceWriter, Option<UnfinishedFile>), Error> {
    let create = || TraceWriter::create(to, format, options);
    match TraceWriter::unfinished_path(to) {
        Some(path) => {
            let (writer, unfinished) = UnfinishedFile::create(path, create)?;
            Ok((writer, Some(unfinished)))
        }
        None => Ok((create()?, None)),
    }
}

/// Counts of one pass over a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceCounts {
    /// Accesses, each to one page.
    pub accesses: u64,
    /// Distinct pages.
    pub distinct_pages: u64,
}

/// How to load a trace.
#[derive(Debug, Clone, Copy)]
pub struct Loading {
    /// How to open it.
    pub open: OpenOptions,
    /// Records up to which it is kept decoded, at 16 bytes each. A longer trace is decoded in each
    /// replay.
    pub decoded_records_max: usize,
    /// Share of its pages to keep.
    pub sample: Option<Sample>,
}

impl From<OpenOptions> for Loading {
    /// All pages, and traces of up to 64 MiB decoded.
    fn from(open: OpenOptions) -> Loading {
        Loading { open, decoded_records_max: DECODED_RECORDS_MAX, sample: None }
    }
}

/// A trace prepared for one or several replays. Clones share the decoded records and what was
/// counted in them.
#[derive(Debug, Clone)]
pub struct TraceFile {
    path: PathBuf,
    options: OpenOptions,
    /// All records of a short trace, or of a sample.
    decoded: Option<Arc<Vec<Record>>>,
    /// Those of a sample as they are replayed: with its pages moved together.
    replayed: Arc<OnceLock<Arc<Vec<Record>>>>,
    sampled: Option<Sampled>,
    /// Number of bad records that are not among the decoded ones.
    skipped: u64,
    numbering: Numbering,
    warm: Option<f64>,
    counts: Arc<OnceLock<TraceCounts>>,
}

impl TraceFile {
    /// Opens a trace and decodes its beginning, or all of it if it is short.
    ///
    /// # Errors
    /// If it cannot be opened or is damaged.
    pub fn load(path: &Path, options: OpenOptions, watch: &dyn Watch) -> Result<TraceFile, Error> {
        TraceFile::load_with(path, options.into(), watch)
    }

    /// As [`TraceFile::load`], for a request that has no options for reading traces.
    ///
    /// # Errors
    /// As [`TraceFile::load`].
    pub fn load_recognised(path: &Path, watch: &dyn Watch) -> Result<TraceFile, Error> {
        let open = OpenOptions { origin: OptionOrigin::Nowhere, ..OpenOptions::default() };
        TraceFile::load(path, open, watch)
    }

    /// As [`TraceFile::load`], with a limit of its own for short traces, or a sample.
    ///
    /// # Errors
    /// As [`TraceFile::load`], or if a sample is still too long or has no page.
    pub fn load_with(path: &Path, loading: Loading, watch: &dyn Watch) -> Result<TraceFile, Error> {
        let mut loaded = TraceFile::load_salts(path, loading, 1, watch)?;
        Ok(loaded.pop().expect("a trace per salt"))
    }

    /// As [`TraceFile::load_with`], with this many samples: of the sample's salt and of those that
    /// follow it. The file is read once. Without a sample there is one trace.
    ///
    /// # Errors
    /// As [`TraceFile::load_with`], or if the samples together are too long.
    pub fn load_salts(
        path: &Path,
        loading: Loading,
        salts: u32,
        watch: &dyn Watch,
    ) -> Result<Vec<TraceFile>, Error> {
        let Loading { open, decoded_records_max, sample } = loading;
        let samples: Vec<Sample> = sample.iter().flat_map(|sample| sample.with_salts(salts.max(1))).collect();
        let stage = reading(watch, "reading the trace");
        let mut reader = trace::open(path, open)?;
        let decoded_records_max = sample.map_or(decoded_records_max, |_| SAMPLED_RECORDS_MAX);
        let mut parts: Vec<Vec<Record>> = vec![Vec::new(); samples.len().max(1)];
        let mut accesses = 0;
        // The beginning of the whole trace decides about its numbering, also of a sample.
        let mut beginning = Vec::new();
        let mut batch = Vec::new();
        let ended = loop {
            if reader.next_batch(&mut batch)? == 0 {
                break true;
            }
            report_progress(&stage, &reader)?;
            if sample.is_some() && beginning.len() < NUMBERING_RECORDS {
                beginning.extend_from_slice(&batch);
            }
            if samples.is_empty() {
                parts[0].extend_from_slice(&batch);
            } else {
                accesses += batch.iter().filter(|record| record.access().is_some()).count() as u64;
            }
            for (sample, part) in samples.iter().zip(&mut parts) {
                part.extend(batch.iter().filter(|record| sample.keeps_record(record)));
            }
            if parts.iter().map(Vec::len).sum::<usize>() > decoded_records_max {
                break false;
            }
        };
        drop(stage);
        let (path_shown, skipped) = (path.display(), reader.skipped());
        if !ended && sample.is_some() {
            return Err(Error::usage(format_args!(
                "{path_shown}: the sample has more than {decoded_records_max} records; choose a smaller share or fewer salts"
            )));
        }
        if !ended && !path.is_file() {
            return Err(Error::work(format_args!(
                "{path_shown}: not a file, and longer than {decoded_records_max} records: a long trace is read more \
                 than once; save it to a file first"
            )));
        }
        let warm = own_sidecar(path, reader.format())?.and_then(|sidecar| sidecar.warm);
        let beginning = if sample.is_some() { &beginning } else { &parts[0] };
        let numbering = numbering(&beginning[..beginning.len().min(NUMBERING_RECORDS)]);
        let loaded = parts.into_iter().enumerate().map(|(at, records)| {
            let trace = TraceFile {
                options: OpenOptions { format: Some(reader.format()), ..open },
                skipped,
                numbering,
                warm,
                sampled: samples.get(at).map(|&sample| Sampled { sample, accesses }),
                ..TraceFile::empty(path)
            };
            if ended { trace.with(records) } else { Ok(trace) }
        });
        loaded.collect()
    }

    /// A trace of these page numbers, as the format `plain` has them: each is read once, through a
    /// descriptor. `name` stands for its path.
    ///
    /// # Errors
    /// If there is no page.
    pub fn of_pages(name: &str, pages: impl IntoIterator<Item = u64>) -> Result<TraceFile, Error> {
        let read = |page| Record::Access(PageAccess::read(page));
        TraceFile::of_records(name, pages.into_iter().map(read).collect())
    }

    /// A trace of these records. `name` stands for its path.
    ///
    /// # Errors
    /// If there is no access.
    pub fn of_records(name: &str, records: Vec<Record>) -> Result<TraceFile, Error> {
        let numbering = numbering(&records[..records.len().min(NUMBERING_RECORDS)]);
        TraceFile { numbering, ..TraceFile::empty(Path::new(name)) }.with(records)
    }

    /// A trace of the records of another one, in another process: `numbering`, `warm` and `skipped`
    /// are those of that one. `name` stands for its path.
    ///
    /// # Errors
    /// If there is no access.
    pub fn of_parts(
        name: &str,
        records: Vec<Record>,
        numbering: Numbering,
        warm: Option<f64>,
        skipped: u64,
    ) -> Result<TraceFile, Error> {
        TraceFile { numbering, warm, skipped, ..TraceFile::empty(Path::new(name)) }.with(records)
    }

    /// Number of bad records that were skipped; 0 if it is not kept decoded.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn empty(path: &Path) -> TraceFile {
        TraceFile {
            path: path.to_path_buf(),
            options: OpenOptions::default(),
            decoded: None,
            replayed: Arc::default(),
            sampled: None,
            skipped: 0,
            numbering: Numbering::Files,
            warm: None,
            counts: Arc::default(),
        }
    }

    /// The trace with these records.
    fn with(self, records: Vec<Record>) -> Result<TraceFile, Error> {
        if records.iter().any(|record| matches!(record, Record::Access(_))) {
            return Ok(TraceFile { decoded: Some(Arc::new(records)), ..self });
        }
        let path = self.path.display();
        Err(match self.sampled {
            None => Error::usage(format_args!("{path}: empty trace: no page access in it")),
            Some(sampled) => Error::usage(format_args!(
                "{path}: none of its pages is in a sample of {}; choose a larger share",
                sampled.sample.share()
            )),
        })
    }

    /// The records.
    ///
    /// # Errors
    /// If the trace is too long to be kept decoded.
    pub fn records(&self) -> Result<&[Record], Error> {
        self.decoded.as_deref().map(Vec::as_slice).ok_or_else(|| {
            Error::usage(format_args!(
                "{}: too long to be kept in memory; raise the limit of decoded records, or take a sample",
                self.path.display()
            ))
        })
    }

    /// A part of the records as a trace with the same name. Its numbering is that of the whole
    /// trace, and counting starts with its first access.
    ///
    /// # Errors
    /// If the trace is too long to be kept decoded or a sample, or the part has no access.
    pub fn part(&self, records: Range<usize>) -> Result<TraceFile, Error> {
        if self.sampled.is_some() {
            let path = self.path.display();
            return Err(Error::usage(format_args!("{path}: a sample has no parts; take the part first")));
        }
        let all = self.records()?;
        let end = records.end.min(all.len());
        let part = all[records.start.min(end)..end].to_vec();
        TraceFile { numbering: self.numbering, ..TraceFile::empty(&self.path) }.with(part)
    }

    /// The same trace with another name, for one that was read from a pipe.
    ///
    /// # Errors
    /// If it is not kept decoded: then it is read again by its path.
    pub fn named(&self, name: &str) -> Result<TraceFile, Error> {
        self.records()?;
        Ok(TraceFile { path: PathBuf::from(name), ..self.clone() })
    }

    /// A sample of the pages as a trace with the same name.
    ///
    /// # Errors
    /// If the trace is too long to be kept decoded or a sample already, or no page is in the
    /// sample.
    pub fn sample(&self, sample: Sample) -> Result<TraceFile, Error> {
        if self.sampled.is_some() {
            return Err(Error::usage(format_args!("{}: it is a sample already", self.path.display())));
        }
        let all = self.records()?;
        let records = all.iter().filter(|record| sample.keeps_record(record)).copied().collect();
        let accesses = all.iter().filter(|record| record.access().is_some()).count() as u64;
        let sampled = Some(Sampled { sample, accesses });
        let (numbering, warm) = (self.numbering, self.warm);
        TraceFile { sampled, numbering, warm, skipped: self.skipped, ..TraceFile::empty(&self.path) }
            .with(records)
    }

    /// Contents of the trace. A long trace is read once for this; of a sample, its own records
    /// count.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn summary(&self, watch: &dyn Watch) -> Result<TraceSummary, Error> {
        let Some(records) = &self.decoded else { return summary(&self.path, self.options, watch) };
        let format = self.options.format.map_or("memory".to_owned(), |format| format.to_string());
        let info = TraceInfo { format, skipped: self.skipped, ..count(records, watch)? };
        Ok(TraceSummary { info, description: None, warm: self.warm })
    }

    /// The sample that the trace was reduced to; `None` if it is whole.
    pub fn sampled(&self) -> Option<&Sampled> {
        self.sampled.as_ref()
    }

    /// Path of the trace.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Meaning of its page numbers.
    pub fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Files by number, each with the pages up to its last access: where readahead stops. Empty for
    /// a trace that is too long to be kept decoded.
    pub fn file_pages(&self) -> BTreeMap<u32, u64> {
        let mut files = BTreeMap::new();
        for record in self.decoded.iter().flat_map(|records| records.iter()) {
            if let Record::Access(access) = record
                && !access.anon
            {
                let pages = files.entry((access.page >> 32) as u32).or_insert(0u64);
                *pages = (*pages).max((access.page & 0xffff_ffff) + 1);
            }
        }
        files
    }

    /// Fraction of the accesses before counting starts, from the sidecar.
    pub fn warm(&self) -> Option<f64> {
        self.warm
    }

    /// Number of accesses and of distinct pages; of a sample, its own. A long trace is read once
    /// for this.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn counts(&self, watch: &dyn Watch) -> Result<TraceCounts, Error> {
        if let Some(&counts) = self.counts.get() {
            return Ok(counts);
        }
        let TraceInfo { accesses, distinct_pages, .. } = match &self.decoded {
            Some(records) => count(records, watch)?,
            None => {
                let stage = reading(watch, "counting pages");
                let mut reader = trace::open(&self.path, self.options)?;
                trace::info_with(&mut reader, |reader| report_progress(&stage, reader))?
            }
        };
        Ok(*self.counts.get_or_init(|| TraceCounts { accesses, distinct_pages }))
    }

    /// The records from the first on as operations of a job, and the job's position.
    ///
    /// # Errors
    /// If the file cannot be opened again.
    pub fn source(&self) -> Result<(TraceSource, Arc<Decoding>), Error> {
        let decoding = Arc::new(Decoding::default());
        let stream = match &self.decoded {
            Some(records) => {
                decoding.skipped.store(self.skipped, Relaxed);
                Stream::Decoded { records: self.replayed(records), next: 0, step: 1 }
            }
            None => Stream::Ahead(Ahead::start(trace::open(&self.path, self.options)?, decoding.clone())),
        };
        Ok((TraceSource { stream, decoding: decoding.clone() }, decoding))
    }

    /// The records as they are replayed. Where page numbers are keys, they have no neighbours.
    fn replayed(&self, records: &Arc<Vec<Record>>) -> Arc<Vec<Record>> {
        let Some(Sampled { sample, .. }) = self.sampled.filter(|_| self.numbering == Numbering::Files) else {
            return records.clone();
        };
        let moved = || Arc::new(sampling::moved_together(records, sample.share()));
        self.replayed.get_or_init(moved).clone()
    }

    /// The records as the operations of several tasks: record *i* belongs to task *i* modulo
    /// `tasks`.
    ///
    /// # Errors
    /// If the trace is too long to be kept decoded.
    pub fn tasks(&self, tasks: u32) -> Result<(Vec<TraceSource>, Arc<Decoding>), Error> {
        self.records()?;
        let decoding = Arc::new(Decoding::default());
        decoding.skipped.store(self.skipped, Relaxed);
        let records = self.decoded.as_ref().map(|records| self.replayed(records)).unwrap_or_default();
        let source = |task| TraceSource {
            stream: Stream::Decoded {
                records: records.clone(),
                next: task as usize,
                step: tasks.max(1) as usize,
            },
            decoding: decoding.clone(),
        };
        Ok(((0..tasks.max(1)).map(source).collect(), decoding))
    }
}

/// Counts what the records of a trace in memory do.
fn count(records: &[Record], watch: &dyn Watch) -> Result<TraceInfo, Error> {
    let mut counting = trace::Counting::default();
    for piece in records.chunks(LOOK_RECORDS) {
        watch.check()?;
        piece.iter().for_each(|record| counting.count(record));
    }
    Ok(counting.finish())
}

/// Decides from the beginning of a trace whether page numbers are positions in files or opaque
/// keys.
///
/// The index of a file keeps 64 neighbours together, in 524 bytes. If fewer than 8 of them are
/// touched, it is cheaper to renumber the pages in order of first use, at 21 bytes each.
/// Renumbering loses the positions. That disables look-around at neighbours and syncs of files,
/// and leaves too few leaves without pages for the kernel's shrinking of shadows.
fn numbering(records: &[Record]) -> Numbering {
    let mut pages = HashSet::new();
    let mut leaves = HashSet::new();
    for record in records {
        match record {
            Record::Access(access) if !access.mapped && !access.anon => {
                if pages.insert(access.page) {
                    leaves.insert(access.page / 64);
                }
            }
            _ => return Numbering::Files,
        }
    }
    if pages.len() < leaves.len() * 8 { Numbering::Keys } else { Numbering::Files }
}

/// Progress of decoding a trace.
#[derive(Debug, Default)]
pub struct Decoding {
    skipped: AtomicU64,
    permille: AtomicU32,
}

impl Decoding {
    /// Bad records skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Thousandths of the trace that were replayed or soon will be.
    pub fn permille(&self) -> u64 {
        u64::from(self.permille.load(Relaxed))
    }
}

/// The operations of a trace.
pub struct TraceSource {
    stream: Stream,
    decoding: Arc<Decoding>,
}

enum Stream {
    Decoded { records: Arc<Vec<Record>>, next: usize, step: usize },
    Ahead(Ahead),
}

impl Source for TraceSource {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        match &mut self.stream {
            Stream::Decoded { records, next, step } => {
                let rest = records.get(*next..).unwrap_or_default();
                let taken = rest.iter().step_by(*step).take(BATCH_RECORDS);
                batch.extend(taken.map(|&record| Operation::from(record)));
                *next += *step * BATCH_RECORDS;
                let end = records.len().min(*next);
                self.decoding.permille.store((end * 1000 / records.len()) as u32, Relaxed);
            }
            Stream::Ahead(ahead) => {
                let records = ahead.next()?;
                batch.extend(records.iter().map(|&record| Operation::from(record)));
                ahead.give_back(records);
            }
        }
        Ok(())
    }
}

/// Batches of records decoded by another thread. An empty batch is the end.
struct Ahead {
    batches: Receiver<Result<Vec<Record>, TraceError>>,
    /// Returns used batches to the decoder.
    used: SyncSender<Vec<Record>>,
}

impl Ahead {
    fn start(mut reader: TraceReader, decoding: Arc<Decoding>) -> Ahead {
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        let (used, empty) = sync_channel::<Vec<Record>>(BATCHES_AHEAD);
        std::thread::spawn(move || {
            loop {
                let mut batch = empty.try_recv().unwrap_or_default();
                let decoded = reader.next_batch(&mut batch);
                decoding.skipped.store(reader.skipped(), Relaxed);
                let share = reader.progress().unwrap_or(0.0);
                decoding.permille.store((share * 1000.0) as u32, Relaxed);
                let over = !matches!(decoded, Ok(records) if records > 0);
                // The receiver is gone if the replay failed.
                if sender.send(decoded.map(|_| batch)).is_err() || over {
                    return;
                }
            }
        });
        Ahead { batches, used }
    }

    fn next(&mut self) -> Result<Vec<Record>, TraceError> {
        self.batches.recv().expect("the decoder sends an empty batch at the end")
    }

    fn give_back(&self, batch: Vec<Record>) {
        // Without room, the batch is freed.
        let _ = self.used.try_send(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::watch::CancelAfter;
    use mglru_workload::trace::PageAccess;

    fn touch(page: u64) -> Record {
        Record::Access(PageAccess::read(page))
    }

    #[test]
    fn dense_pages_are_positions_and_scattered_ones_are_keys() {
        let dense: Vec<Record> = (0..640).map(touch).collect();
        assert_eq!(numbering(&dense), Numbering::Files);
        let mut scattered: Vec<Record> = (0..640).map(|page| touch(page * 1000)).collect();
        assert_eq!(numbering(&scattered), Numbering::Keys);
        scattered.push(Record::Sync { file: 0 });
        assert_eq!(numbering(&scattered), Numbering::Files, "only files can be synced");
    }

    /// A clone counts for all, and counting is work that can be cancelled.
    #[test]
    fn clones_share_what_was_counted() {
        let anon = Record::Access(PageAccess { anon: true, ..PageAccess::read(3) });
        let records = (0..3_000_000).map(|at| if at % 3 == 0 { anon } else { touch(at % 1000) }).collect();
        let trace = TraceFile::of_records("trace", records).unwrap();
        assert!(matches!(trace.counts(&CancelAfter::looks(0)), Err(Error::Cancelled)));
        assert!(matches!(trace.summary(&CancelAfter::looks(0)), Err(Error::Cancelled)));
        let counts = trace.clone().counts(&Unwatched).unwrap();
        assert_eq!(counts, TraceCounts { accesses: 3_000_000, distinct_pages: 1001 });
        assert_eq!(trace.counts(&CancelAfter::looks(0)).unwrap(), counts);
    }

    #[test]
    fn long_traces_arrive_as_short_ones_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        let text: String = (0..20_000).map(|n| format!("R {} 2\n", n * 7 % 1000)).collect();
        std::fs::write(&path, text).unwrap();
        let short = TraceFile::load(&path, OpenOptions::default(), &Unwatched).unwrap();
        assert_eq!(short.counts(&Unwatched).unwrap(), TraceCounts { accesses: 40_000, distinct_pages: 1001 });
        let long = TraceFile {
            decoded: None,
            ..TraceFile::load(&path, OpenOptions::default(), &Unwatched).unwrap()
        };
        assert_eq!(long.counts(&Unwatched).unwrap(), short.counts(&Unwatched).unwrap());
        let operations = |file: &TraceFile| {
            let (mut source, _) = file.source().unwrap();
            let mut all = Vec::new();
            loop {
                let mut batch = Vec::new();
                source.fill(&mut batch).unwrap();
                if batch.is_empty() {
                    return all;
                }
                all.extend(batch);
            }
        };
        assert_eq!(operations(&long), operations(&short));
    }

    #[test]
    fn anonymous_page_5_is_not_page_5_of_a_file() {
        let anon = Record::Access(PageAccess { anon: true, ..PageAccess::read(5) });
        let counts = count(&[touch(5), anon, anon], &Unwatched).unwrap();
        assert_eq!((counts.accesses, counts.distinct_pages), (3, 2));
    }

    /// Each access belongs to one task, and the tasks together have them all.
    #[test]
    fn tasks_share_the_accesses_in_turn() {
        let trace = TraceFile::of_pages("pages", 0..10_000).unwrap();
        let (sources, _) = trace.tasks(3).unwrap();
        let counts: Vec<usize> = sources
            .into_iter()
            .map(|mut source| {
                let mut all = Vec::new();
                loop {
                    let mut batch = Vec::new();
                    source.fill(&mut batch).unwrap();
                    if batch.is_empty() {
                        return all.len();
                    }
                    all.extend(batch);
                }
            })
            .collect();
        assert_eq!(counts, [3334, 3333, 3333]);
    }
}
