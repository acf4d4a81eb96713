//! Writing traces, for `mglru trace convert`.
//!
//! By default, a format refuses records that it cannot represent: a conversion that silently loses
//! writes would be a new trace under an old name. [`WriteOptions::drop`] permits loss, and
//! [`WriteOptions::renumber`] makes pages fit.
//!
//! Runs of neighbouring pages with equal flags become one request if the format has counts. The
//! file appears under its name only when it is complete.

use super::source::Compression;
use super::{Format, PAGE_BYTES, PageAccess, Record, Sidecar, TraceError, TraceReader, Trim, kernel_lab};
use crate::unfinished;
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// How to write a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Whether to number the distinct pages from 0 in order of first use, all in file 0.
    pub renumber: bool,
    /// Whether to drop and count what the format cannot represent (flags, fsyncs). Anonymous pages
    /// also require `renumber`, because they are numbered separately.
    pub drop: bool,
}

/// Counts of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Accesses written.
    pub accesses: u64,
    /// fsyncs written.
    pub syncs: u64,
    /// Number of records that lost a flag, and of dropped fsyncs.
    pub dropped: u64,
    /// Number of distinct pages, if they were renumbered.
    pub renumbered_pages: Option<u64>,
}

/// A run of `pages` accesses to successive pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub first: PageAccess,
    pub pages: u64,
}

/// Encoder of a format.
pub(super) trait Encode: Send {
    /// Exclusive upper limit of page numbers.
    fn pages_max(&self) -> u64 {
        u64::MAX
    }
    /// The nearest access that the format can represent.
    fn nearest(&self, access: PageAccess) -> PageAccess;
    fn begin(&mut self, _out: &mut Vec<u8>) {}
    fn access(&mut self, run: Run, out: &mut Vec<u8>);
    /// Writes an fsync; `false` if the format has none.
    fn sync(&mut self, _file: u32, _out: &mut Vec<u8>) -> bool {
        false
    }
    /// Appends that pages are gone. `false`: the format cannot express it.
    fn trim(&mut self, _page: u64, _pages: u32, _out: &mut Vec<u8>) -> bool {
        false
    }
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// Longest run of pages per request. It keeps requests below the reader's limit.
const RUN_PAGES_MAX: u64 = 1 << 16;
const FLUSH_BYTES: usize = 64 * 1024;
/// Upper limit of renumbered pages. Each takes up to 57 bytes while the table grows, so this is
/// less than 4 GiB.
const RENUMBERED_MAX: u64 = 1 << 26;

/// Levels of compression.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    zstd: i32,
    /// Of gzip and xz.
    others: u32,
}

impl Levels {
    /// zstd's own default, and the comparable ones of the others.
    pub(super) const USUAL: Levels = Levels { zstd: 3, others: 6 };
    /// For a trace that is written while the programs run whose requests it has.
    pub(super) const FAST: Levels = Levels { zstd: 1, others: 1 };
}

/// Writes a trace record by record.
pub struct TraceWriter {
    path: PathBuf,
    /// Path of the incomplete file; `None` if the target is a pipe or a device.
    unfinished: Option<PathBuf>,
    output: Option<Output>,
    format: Format,
    encoder: Box<dyn Encode>,
    options: WriteOptions,
    /// New number of each (anonymous, page).
    renumbered: HashMap<(bool, u64), u64, BuildHasherDefault<PageHasher>>,
    run: Option<Run>,
    buffer: Vec<u8>,
    records: u64,
    converted: Converted,
    highest_page: u64,
    writes: u64,
}

impl TraceWriter {
    /// Starts writing to a file. The extensions `.gz`, `.xz` and `.zst` compress. A kernel-lab
    /// trace called `NAME.bin` also gets a `NAME.json`, unless another kind of file has that name.
    pub fn create(path: &Path, format: Format, options: WriteOptions) -> Result<Self, TraceError> {
        let encoder = format.encoder().ok_or_else(|| {
            let names: Vec<_> = Format::WRITABLE.iter().map(|format| format.name()).collect();
            let what = format!("{format} is only read; formats that are written: {}", names.join(", "));
            TraceError::Usage { path: path.to_path_buf(), what }
        })?;
        let path = unfinished::target(path);
        let failed = |error| TraceError::io(&path, error);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let unfinished = Self::unfinished_path(&path);
        let file = File::create(unfinished.as_deref().unwrap_or(&path)).map_err(failed)?;
        let output = Output::new(file, &name, Levels::USUAL);
        let mut writer = TraceWriter {
            path: path.clone(),
            unfinished,
            output: None,
            format,
            encoder,
            options,
            renumbered: HashMap::default(),
            run: None,
            buffer: Vec::with_capacity(FLUSH_BYTES * 2),
            records: 0,
            converted: Converted::default(),
            highest_page: 0,
            writes: 0,
        };
        writer.output = Some(output.map_err(failed)?);
        writer.encoder.begin(&mut writer.buffer);
        Ok(writer)
    }

    /// Path of the file until it is complete, which is beside `path`; `None` for a pipe or a
    /// device, which is written directly. A program that ends before [`TraceWriter::finish`]
    /// removes it.
    pub fn unfinished_path(path: &Path) -> Option<PathBuf> {
        (!unfinished::is_written_directly(path)).then(|| unfinished::path(&unfinished::target(path)))
    }

    /// Appends records.
    pub fn write(&mut self, records: &[Record]) -> Result<(), TraceError> {
        for record in records {
            self.records += u64::from(!matches!(record, Record::Request(_)));
            match *record {
                Record::Access(access) => self.access(access)?,
                Record::Sync { file } => self.sync(file)?,
                Record::Trim(Trim { page, pages }) => self.trim(page, pages)?,
                Record::Request(_) => {}
            }
        }
        Ok(())
    }

    fn access(&mut self, mut access: PageAccess) -> Result<(), TraceError> {
        if self.options.renumber {
            let next = self.renumbered.len() as u64;
            if next == RENUMBERED_MAX && !self.renumbered.contains_key(&(access.anon, access.page)) {
                let what = format!(
                    "more than {RENUMBERED_MAX} distinct pages, the most that --renumber can remember; convert without it"
                );
                return Err(self.refuse(what));
            }
            access.page = *self.renumbered.entry((access.anon, access.page)).or_insert(next);
        }
        let limit = self.encoder.pages_max();
        if access.page >= limit && limit < u64::MAX {
            let way_out = if self.options.renumber {
                "the trace has too many distinct pages"
            } else {
                "--renumber numbers the distinct pages from 0"
            };
            return Err(self.refuse(format!("page {} is not below {limit}; {way_out}", { access.page })));
        }
        let said = self.encoder.nearest(access);
        if said != access {
            if !self.options.drop {
                let lost = [
                    (access.write && !said.write, "written"),
                    (access.mapped && !said.mapped, "mapped"),
                    (access.anon && !said.anon, "anonymous"),
                    (access.fault && !said.fault, "brought in by a fault"),
                    (access.inside && !said.inside, "read from its middle"),
                ];
                let lost: Vec<_> = lost.iter().filter(|(lost, _)| *lost).map(|(_, word)| *word).collect();
                let what = format!(
                    "the format cannot express that the page is {}; --drop omits that",
                    lost.join(", ")
                );
                return Err(self.refuse(what));
            }
            // Anonymous page 5 would become file page 5.
            if access.anon && !said.anon && !self.options.renumber {
                let what = "anonymous pages are numbered separately, and --drop would mix them with file pages; add \
                            --renumber";
                return Err(self.refuse(what.to_string()));
            }
            self.converted.dropped += 1;
        }
        self.converted.accesses += 1;
        self.highest_page = self.highest_page.max(said.page);
        self.writes += u64::from(said.write);
        match &mut self.run {
            Some(run) if run.continues_with(said) => run.pages += 1,
            _ => {
                self.end_run()?;
                self.run = Some(Run { first: said, pages: 1 });
            }
        }
        Ok(())
    }

    fn sync(&mut self, file: u32) -> Result<(), TraceError> {
        self.end_run()?;
        let file = if self.options.renumber { 0 } else { file };
        if self.encoder.sync(file, &mut self.buffer) {
            self.converted.syncs += 1;
        } else if self.options.drop {
            self.converted.dropped += 1;
        } else {
            return Err(self.refuse("the format has no fsync; --drop omits it".to_string()));
        }
        Ok(())
    }

    fn trim(&mut self, page: u64, pages: u32) -> Result<(), TraceError> {
        self.end_run()?;
        // Pages with new numbers are no longer neighbours.
        if !self.options.renumber && self.encoder.trim(page, pages, &mut self.buffer) {
            return Ok(());
        }
        if !self.options.drop {
            return Err(
                self.refuse("the format cannot express that pages are cut off; --drop omits it".to_string())
            );
        }
        self.converted.dropped += 1;
        Ok(())
    }

    fn refuse(&self, what: String) -> TraceError {
        TraceError::Unrepresentable {
            path: self.path.clone(),
            format: self.format,
            record: self.records,
            what,
        }
    }

    fn end_run(&mut self) -> Result<(), TraceError> {
        if let Some(run) = self.run.take() {
            self.encoder.access(run, &mut self.buffer);
            if self.buffer.len() >= FLUSH_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        let output = self.output.as_mut().expect("the output is open until finish()");
        output.writer().write_all(&self.buffer).map_err(|error| TraceError::io(&self.path, error))?;
        self.buffer.clear();
        Ok(())
    }

    /// Completes the file and moves it to its name.
    pub fn finish(mut self) -> Result<Converted, TraceError> {
        self.end_run()?;
        self.encoder.end(&mut self.buffer);
        self.flush()?;
        let output = self.output.take().expect("the output is open until finish()");
        let path = self.path.clone();
        let failed = |error| TraceError::io(&path, error);
        output.finish().map_err(failed)?;
        if let Some(unfinished) = self.unfinished.take() {
            fs::rename(unfinished, &path).map_err(failed)?;
            if self.format == Format::KernelLab {
                self.write_sidecar()?;
            }
        }
        if self.options.renumber {
            self.converted.renumbered_pages = Some(self.renumbered.len() as u64);
        }
        Ok(self.converted)
    }

    /// Writes the sidecar of a kernel-lab trace. An old one would now be wrong.
    fn write_sidecar(&self) -> Result<(), TraceError> {
        let Some(path) = kernel_lab::sidecar_path(&self.path) else { return Ok(()) };
        let foreign = fs::read(&path).is_ok_and(|text| {
            serde_json::from_slice::<Sidecar>(&text).ok().is_none_or(|sidecar| sidecar.records.is_none())
        });
        if foreign {
            return Ok(());
        }
        let sidecar = Sidecar {
            name: path.file_stem().map(|name| name.to_string_lossy().into_owned()),
            records: Some(self.converted.accesses),
            pages: Some(self.highest_page + 1),
            distinct: self.options.renumber.then_some(self.renumbered.len() as u64),
            writes: Some(self.writes),
            ..Sidecar::default()
        };
        let text =
            serde_json::to_string_pretty(&sidecar).expect("a sidecar has only numbers and text") + "\n";
        // Replaced, not overwritten: the name may be a link to the sidecar of another trace.
        let unfinished = unfinished::path(&path);
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            TraceError::io(&path, error)
        })
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            // A failure here is ignored: the earlier error is the one to report.
            let _ = fs::remove_file(unfinished);
        }
    }
}

impl Run {
    fn continues_with(&self, access: PageAccess) -> bool {
        let next = self.first.page.wrapping_add(self.pages);
        self.pages < RUN_PAGES_MAX
            && access == PageAccess { page: next, ..self.first }
            // A request never crosses into another file; 2^32 pages of 4 KiB are 16 TiB.
            && next as u32 != 0
    }
}
const _: () = assert!(PAGE_BYTES.checked_mul(RUN_PAGES_MAX).is_some());

/// Copies a trace from a reader to a writer.
pub fn convert(reader: &mut TraceReader, mut writer: TraceWriter) -> Result<Converted, TraceError> {
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch)? > 0 {
        writer.write(&batch)?;
    }
    writer.finish()
}

/// A file, optionally with a compressor.
pub(super) enum Output {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<File>),
    Xz(liblzma::write::XzEncoder<File>),
    Zstd(zstd::stream::write::Encoder<'static, File>),
}

impl Output {
    pub(super) fn new(file: File, name: &str, levels: Levels) -> io::Result<Self> {
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let compression = Compression::EXTENSIONS.iter().find(|(known, _)| *known == extension);
        Ok(match compression.map(|(_, compression)| compression) {
            None => Output::Plain(BufWriter::new(file)),
            Some(Compression::Gzip) => {
                Output::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::new(levels.others)))
            }
            Some(Compression::Xz) => Output::Xz(liblzma::write::XzEncoder::new(file, levels.others)),
            Some(Compression::Zstd) => Output::Zstd(zstd::stream::write::Encoder::new(file, levels.zstd)?),
        })
    }

    pub(super) fn writer(&mut self) -> &mut dyn Write {
        match self {
            Output::Plain(writer) => writer,
            Output::Gzip(writer) => writer,
            Output::Xz(writer) => writer,
            Output::Zstd(writer) => writer,
        }
    }

    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Output::Plain(mut writer) => writer.flush(),
            Output::Gzip(writer) => writer.finish().map(drop),
            Output::Xz(writer) => writer.finish().map(drop),
            Output::Zstd(writer) => writer.finish().map(drop),
        }
    }
}

/// Hashes page numbers with one folded multiplication. Sets of a million pages are filled once per
/// trace. A trace crafted to collide only slows its own reader.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, page: u64) {
        let product = u128::from(self.0 ^ page ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
