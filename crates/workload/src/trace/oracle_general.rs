//! libCacheSim's `oracleGeneral` binary: 24 packed little-endian bytes per request.
//!
//! ```text
//! u32 time in seconds | u64 object id | u32 bytes | i64 index of the next access to the object, or -1
//! ```
//!
//! *Offset:* none: an id is an opaque key. Some were made from block numbers, but neighbours are
//! unrelated. *Size:* not used: one object is one page, whatever its size, as libCacheSim counts
//! when sizes are ignored. There are no operations; every access is a read. Time and next access
//! are not used.

use super::decode::{Parsed, RecordFormat, Request};
use super::source::Sample;

const RECORD_BYTES: usize = 24;

pub(super) struct OracleGeneral;

impl RecordFormat for OracleGeneral {
    fn size(&self) -> usize {
        RECORD_BYTES
    }

    fn record(&mut self, record: &[u8]) -> Result<Parsed, String> {
        let id = u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
        Ok(Parsed::Request(Request::pages(id, 1)?))
    }
}

/// Confidence that a sample is of this format.
pub(super) enum Fit {
    Yes,
    Perhaps,
    No,
}

/// Whether a sample fits: time does not run backwards, sizes are positive, and the next access is
/// ahead or absent.
pub(super) fn fits(sample: &Sample) -> Fit {
    let mut last_time = 0;
    let mut records = 0;
    for (index, record) in sample.bytes.chunks_exact(RECORD_BYTES).enumerate() {
        let time = u32::from_le_bytes(record[..4].try_into().expect("4 bytes"));
        let size = u32::from_le_bytes(record[12..16].try_into().expect("4 bytes"));
        let next = i64::from_le_bytes(record[16..].try_into().expect("8 bytes"));
        if time < last_time || size == 0 || size > i32::MAX as u32 || (0..=index as i64).contains(&next) {
            return Fit::No;
        }
        last_time = time;
        records += 1;
    }
    // One or two records may fit by chance.
    match records {
        0 => Fit::No,
        1 | 2 => Fit::Perhaps,
        _ => Fit::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_page() {
        let record =
            [&7u32.to_le_bytes()[..], &9u64.to_le_bytes(), &70_000u32.to_le_bytes(), &[0xff; 8]].concat();
        let request = Request::pages(9, 1).unwrap();
        assert_eq!(OracleGeneral.record(&record), Ok(Parsed::Request(request)));
        assert!(matches!(fits(&Sample { bytes: record.repeat(3), complete: true }), Fit::Yes));
        assert!(matches!(fits(&Sample { bytes: record, complete: true }), Fit::Perhaps));
        assert!(matches!(fits(&Sample { bytes: vec![0; 240], complete: true }), Fit::No));
    }
}
