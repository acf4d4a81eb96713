//! What the targets share.

use mglru_workload::trace::{Format, PageAccess, Record, Trim};
use std::collections::HashMap;

/// The records as a log of fio has them, with files numbered from 0 in order of first use; as they
/// are in other formats.
pub fn renumbered(records: &[Record], format: Format) -> Vec<Record> {
    let mut ids = HashMap::new();
    let mut id = |file: u32| {
        let next = ids.len() as u32;
        *ids.entry(file).or_insert(next)
    };
    let mut page = |page: u64| u64::from(id((page >> 32) as u32)) << 32 | page & 0xffff_ffff;
    let all = records.iter().map(|record| match *record {
        record if format != Format::FioIolog => record,
        Record::Access(access) => Record::Access(PageAccess { page: page(access.page), ..access }),
        Record::Sync { file } => Record::Sync { file: (page(u64::from(file) << 32) >> 32) as u32 },
        Record::Trim(trim) => Record::Trim(Trim { page: page(trim.page), ..trim }),
        request => request,
    });
    all.collect()
}
