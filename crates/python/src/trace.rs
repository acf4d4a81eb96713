//! A trace as a Python object.

use crate::work::{exception, run, usage};
use mglru_lab::sampling::Sample;
use mglru_lab::trace_file::{Loading, TraceFile};
use mglru_lab::{Error, reuse};
use mglru_sim::Numbering;
use mglru_workload::trace::{Format, OpenOptions, OptionOrigin, PageAccess, Record, RequestStart, Trim};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;

/// A decoded trace. Copies and threads share the records.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Trace(pub TraceFile);

fn sample_of((share, salt): (f64, u32)) -> Result<Sample, Error> {
    Ok(Sample::new(share)?.with_salt(salt))
}

/// A decoded trace for another process: records, whether page numbers are keys, the share of the
/// accesses before counting starts, and the number of bad records that were skipped.
type State<'py> = (Bound<'py, PyBytes>, bool, Option<f64>, u64);

/// Bytes of a record in a [`State`].
const RECORD_BYTES: usize = 16;

/// A page or a handle, pages or a file, the kind, and flags.
fn record_bytes(record: Record) -> [u8; RECORD_BYTES] {
    let (place, count, kind, flags) = match record {
        Record::Access(access) => {
            let flags = [access.write, access.mapped, access.anon, access.inside, access.fault];
            (access.page, 0, 0, flags)
        }
        Record::Sync { file } => (0, file, 1, [false; 5]),
        Record::Trim(trim) => (trim.page, trim.pages, 2, [false; 5]),
        Record::Request(start) => {
            (u64::from(start.handle), start.pages, 3, [start.ends_inside, false, false, false, false])
        }
    };
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    bytes[12] = kind;
    bytes[13] = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u8::from(flag));
    bytes
}

/// The inverse of [`record_bytes`]; `None` for bytes that it never makes.
fn record_of(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
    let place = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let count = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
    let flag = |bit: u8| bytes[13] >> bit & 1 == 1;
    Some(match bytes[12] {
        0 => Record::Access(PageAccess {
            page: place,
            write: flag(0),
            mapped: flag(1),
            anon: flag(2),
            inside: flag(3),
            fault: flag(4),
        }),
        1 => Record::Sync { file: count },
        2 => Record::Trim(Trim { page: place, pages: count }),
        3 => Record::Request(RequestStart {
            pages: count,
            handle: u32::try_from(place).ok()?,
            ends_inside: flag(0),
        }),
        _ => return None,
    })
}

/// Records between two looks whether Ctrl-C was pressed.
const LOOK_RECORDS: usize = 1 << 18;

/// Bytes of a page number in an array.
const NUMBER_BYTES: usize = size_of::<u64>();

#[pymethods]
impl Trace {
    /// Reads a file.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        format: Option<String>,
        lossy: bool,
        unit_bytes: Option<u32>,
        sample: Option<(f64, u32)>,
        decoded_accesses_max: usize,
    ) -> PyResult<Trace> {
        run(py, |watch| {
            let format = format.map(|name| name.parse::<Format>()).transpose().map_err(Error::usage)?;
            let origin = OptionOrigin::Keys;
            let open = OpenOptions { format, lossy, unit_bytes, origin, ..OpenOptions::default() };
            let sample = sample.map(sample_of).transpose()?;
            let loading = Loading { open, decoded_records_max: decoded_accesses_max, sample };
            TraceFile::load_with(&path, loading, watch).map(Trace)
        })
    }

    /// Reads a file once, and keeps samples of this many salts from the given one on.
    #[staticmethod]
    fn open_samples(
        py: Python<'_>,
        path: PathBuf,
        share: f64,
        salt: u32,
        salts: u32,
    ) -> PyResult<Vec<Trace>> {
        run(py, |watch| {
            let sample = Some(sample_of((share, salt))?);
            let loading = Loading { sample, ..OpenOptions::default().into() };
            Ok(TraceFile::load_salts(&path, loading, salts, watch)?.into_iter().map(Trace).collect())
        })
    }

    /// Page numbers as bytes of little-endian 64-bit numbers, and flags as one byte per access.
    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        name: &str,
        pages: &[u8],
        writes: Option<&[u8]>,
        mapped: Option<&[u8]>,
        anon: Option<&[u8]>,
    ) -> PyResult<Trace> {
        let accesses = pages.len() / NUMBER_BYTES;
        for (what, flags) in [("writes", writes), ("mapped", mapped), ("anon", anon)] {
            if flags.is_some_and(|flags| flags.len() != accesses) {
                return Err(usage(
                    py,
                    format_args!("{what}: expected one value for each of {accesses} accesses"),
                ));
            }
        }
        run(py, |watch| {
            let flag = |flags: Option<&[u8]>, at: usize| flags.is_some_and(|flags| flags[at] != 0);
            let record = |(at, bytes): (usize, &[u8])| {
                let page = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
                let (write, mapped, anon) = (flag(writes, at), flag(mapped, at), flag(anon, at));
                Record::Access(PageAccess { write, mapped, anon, ..PageAccess::read(page) })
            };
            let mut numbers = pages.chunks_exact(NUMBER_BYTES).enumerate();
            let mut records = Vec::with_capacity(accesses);
            while records.len() < accesses {
                watch.check()?;
                records.extend(numbers.by_ref().take(LOOK_RECORDS).map(record));
            }
            TraceFile::of_records(name, records).map(Trace)
        })
    }

    /// A trace for another process.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<State<'py>> {
        let bytes = run(py, |watch| {
            let records = self.0.records()?;
            let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES);
            for piece in records.chunks(LOOK_RECORDS) {
                watch.check()?;
                piece.iter().for_each(|&record| bytes.extend_from_slice(&record_bytes(record)));
            }
            Ok(bytes)
        })?;
        let is_keys = self.0.numbering() == Numbering::Keys;
        Ok((PyBytes::new(py, &bytes), is_keys, self.0.warm(), self.0.skipped()))
    }

    /// The trace of a state.
    #[staticmethod]
    fn of_state(
        py: Python<'_>,
        name: &str,
        records: &[u8],
        is_keys: bool,
        warm: Option<f64>,
        skipped: u64,
    ) -> PyResult<Trace> {
        let (records, rest) = records.as_chunks::<RECORD_BYTES>();
        run(py, |watch| {
            let damaged = || {
                Error::work(format_args!("{name}: this pickle of a trace is damaged, or of another mglru"))
            };
            let mut decoded = Vec::with_capacity(records.len());
            for piece in records.chunks(LOOK_RECORDS) {
                watch.check()?;
                for bytes in piece {
                    decoded.push(record_of(bytes).ok_or_else(damaged)?);
                }
            }
            if !rest.is_empty() {
                return Err(damaged());
            }
            let numbering = if is_keys { Numbering::Keys } else { Numbering::Files };
            TraceFile::of_parts(name, decoded, numbering, warm, skipped).map(Trace)
        })
    }

    /// The same trace with another name, once it is decoded.
    fn named(&self, py: Python<'_>, name: &str) -> PyResult<Trace> {
        self.0.named(name).map(Trace).map_err(|error| exception(py, &error))
    }

    /// Path or name.
    fn name(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Accesses and distinct pages.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let counts = run(py, |watch| self.0.counts(watch))?;
        Ok((counts.accesses, counts.distinct_pages))
    }

    /// Share of the pages; `None` if it is whole.
    fn sampled(&self) -> Option<f64> {
        self.0.sampled().map(|sampled| sampled.sample.share())
    }

    /// Counts of the trace by name.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let summary = run(py, |watch| self.0.summary(watch))?;
        let info = summary.info;
        let fields = PyDict::new(py);
        fields.set_item("format", info.format)?;
        for (name, count) in [
            ("records", info.records),
            ("accesses", info.accesses),
            ("distinct_pages", info.distinct_pages),
            ("writes", info.writes),
            ("mapped", info.mapped),
            ("anon", info.anon),
            ("syncs", info.syncs),
            ("lowest_page", info.lowest_page),
            ("highest_page", info.highest_page),
            ("skipped", info.skipped),
        ] {
            fields.set_item(name, count)?;
        }
        fields.set_item("warm", summary.warm)?;
        Ok(fields)
    }

    /// Records from `start` to before `end`.
    fn part(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<Trace> {
        run(py, |_| self.0.part(start..end).map(Trace))
    }

    /// A sample of the pages.
    fn sample(&self, py: Python<'_>, share: f64, salt: u32) -> PyResult<Trace> {
        run(py, |_| self.0.sample(sample_of((share, salt))?).map(Trace))
    }

    /// Number of records, with fsyncs.
    fn records(&self, py: Python<'_>) -> PyResult<usize> {
        run(py, |_| self.0.records().map(<[Record]>::len))
    }

    /// Page numbers, and the flags write, mapped and anon, as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyBytes>; 4]> {
        let columns = run(py, |watch| {
            let mut columns: [Vec<u8>; 4] = Default::default();
            for (at, record) in self.0.records()?.iter().enumerate() {
                if at % LOOK_RECORDS == 0 {
                    watch.check()?;
                }
                if let Record::Access(access) = record {
                    columns[0].extend_from_slice(&access.page.to_le_bytes());
                    for (column, flag) in
                        columns[1..].iter_mut().zip([access.write, access.mapped, access.anon])
                    {
                        column.push(u8::from(flag));
                    }
                }
            }
            Ok(columns)
        })?;
        Ok(columns.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Reuse distances as bytes of little-endian 64-bit numbers; -1 for a first access.
    fn reuse_distances<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes: Vec<u8> = run(py, |watch| {
            let distances = reuse::distances(&self.0, watch)?;
            let number = |distance: Option<u64>| distance.map_or(-1, |distance| distance as i64);
            Ok(distances.into_iter().flat_map(|distance| number(distance).to_le_bytes()).collect())
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}
