//! Statistics of a trace, for `mglru trace info`.

use super::distinct::DistinctPages;
use super::{Record, TraceError, TraceReader};
use serde::Serialize;

/// Counts from one pass over a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceInfo {
    /// Name of the format.
    pub format: String,
    /// The compressions, outermost first.
    pub compression: Vec<String>,
    /// Requests that touch pages. Each is one access or more.
    pub requests: u64,
    /// Accesses, fsyncs and trims.
    pub records: u64,
    /// Accesses, each to one page.
    pub accesses: u64,
    /// Distinct pages. Estimated for traces with more than 2^26 of them.
    pub distinct_pages: u64,
    /// Whether `distinct_pages` is an estimate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_estimate: bool,
    /// Writing accesses.
    pub writes: u64,
    /// Accesses through a mapping.
    pub mapped: u64,
    /// Accesses to anonymous pages.
    pub anon: u64,
    /// Number of fsyncs.
    pub syncs: u64,
    /// The lowest page number.
    pub lowest_page: u64,
    /// The highest page number.
    pub highest_page: u64,
    /// Bad records skipped.
    pub skipped: u64,
}

/// Reads a trace to its end and counts. Uses at most 16 bytes of memory per distinct page, or 64
/// MiB if that is more. That is at most 1.1 GiB, and as much again for anonymous pages: see
/// [`DistinctPages`].
pub fn info(reader: &mut TraceReader) -> Result<TraceInfo, TraceError> {
    info_with(reader, |_| Ok(()))
}

/// Counts the records of a trace.
#[derive(Debug)]
pub struct Counting {
    info: TraceInfo,
    /// Anonymous pages have a numbering of their own.
    pages: [DistinctPages; 2],
}

impl Default for Counting {
    fn default() -> Counting {
        Counting {
            info: TraceInfo { lowest_page: u64::MAX, ..TraceInfo::default() },
            pages: Default::default(),
        }
    }
}

impl Counting {
    /// Counts one more record.
    #[inline]
    pub fn count(&mut self, record: &Record) {
        let info = &mut self.info;
        info.records += u64::from(!matches!(record, Record::Request(_)));
        match record {
            Record::Access(access) => {
                info.accesses += 1;
                info.writes += u64::from(access.write);
                info.mapped += u64::from(access.mapped);
                info.anon += u64::from(access.anon);
                info.lowest_page = info.lowest_page.min(access.page);
                info.highest_page = info.highest_page.max(access.page);
                self.pages[usize::from(access.anon)].insert(access.page);
            }
            Record::Sync { .. } => info.syncs += 1,
            Record::Trim(_) | Record::Request(_) => {}
        }
    }

    /// The counts. Each access is a request; format and compression are empty.
    pub fn finish(mut self) -> TraceInfo {
        self.info.requests = self.info.accesses;
        self.info.distinct_pages = self.pages.iter_mut().map(DistinctPages::count).sum();
        self.info.is_estimate = self.pages.iter().any(DistinctPages::is_estimate);
        self.info
    }
}

/// As [`info`]. Calls `progress` after every batch; its error ends the work.
pub fn info_with<E: From<TraceError>>(
    reader: &mut TraceReader,
    mut progress: impl FnMut(&TraceReader) -> Result<(), E>,
) -> Result<TraceInfo, E> {
    let mut counting = Counting::default();
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch)? > 0 {
        progress(reader)?;
        batch.iter().for_each(|record| counting.count(record));
    }
    let mut info = counting.finish();
    info.format = reader.format().to_string();
    info.compression = reader.compression().iter().map(ToString::to_string).collect();
    info.requests = reader.requests();
    info.skipped = reader.skipped();
    Ok(info)
}
