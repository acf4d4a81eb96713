//! What is in a trace: `mglru trace info`.

use super::write::PageHasher;
use super::{Record, TraceError, TraceReader};
use serde::Serialize;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

/// What one pass over a trace counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceInfo {
    /// The format's name.
    pub format: String,
    /// The compressions, outermost first.
    pub compression: Vec<String>,
    /// Requests of the format that touch pages; each is one access or more.
    pub requests: u64,
    /// Accesses and fsyncs.
    pub records: u64,
    /// Accesses to one page.
    pub accesses: u64,
    /// Distinct pages.
    pub distinct_pages: u64,
    /// Accesses that write.
    pub writes: u64,
    /// Accesses through a mapping.
    pub mapped: u64,
    /// Accesses to anonymous pages.
    pub anon: u64,
    /// fsyncs.
    pub syncs: u64,
    /// The lowest page number.
    pub lowest_page: u64,
    /// The highest page number.
    pub highest_page: u64,
    /// Bad records that were skipped.
    pub skipped: u64,
}

/// Reads a trace to its end and counts. Takes some 16 bytes of memory per distinct page.
pub fn info(reader: &mut TraceReader) -> Result<TraceInfo, TraceError> {
    info_with(reader, |_| Ok(()))
}

/// As [`info`]; `told` hears of every batch, and ends the work with an error of its own.
pub fn info_with<E: From<TraceError>>(
    reader: &mut TraceReader,
    mut told: impl FnMut(&TraceReader) -> Result<(), E>,
) -> Result<TraceInfo, E> {
    let mut info = TraceInfo { lowest_page: u64::MAX, ..TraceInfo::default() };
    // Anonymous pages are numbered apart.
    let mut pages: [HashSet<u64, BuildHasherDefault<PageHasher>>; 2] = Default::default();
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch)? > 0 {
        told(reader)?;
        info.records += batch.len() as u64;
        for record in &batch {
            match record {
                Record::Access(access) => {
                    info.accesses += 1;
                    info.writes += u64::from(access.write);
                    info.mapped += u64::from(access.mapped);
                    info.anon += u64::from(access.anon);
                    info.lowest_page = info.lowest_page.min(access.page);
                    info.highest_page = info.highest_page.max(access.page);
                    pages[usize::from(access.anon)].insert(access.page);
                }
                Record::Sync { .. } => info.syncs += 1,
            }
        }
    }
    info.format = reader.format().to_string();
    info.compression = reader.compression().iter().map(ToString::to_string).collect();
    info.requests = reader.requests();
    info.distinct_pages = pages.iter().map(|pages| pages.len() as u64).sum();
    info.skipped = reader.skipped();
    Ok(info)
}
