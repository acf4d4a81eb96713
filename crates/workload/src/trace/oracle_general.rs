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
use std::collections::BTreeMap;

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

/// Largest index of a next access: that of a trace of 24 TiB.
const NEXT_MAX: i64 = 1 << 40;
/// Records of a whole trace from which on it may be the beginning of a longer one, whose next
/// accesses are behind its end. In fewer, rising page numbers could pass for next accesses.
const PART_MIN: usize = 300;

/// Records that come where an earlier one named the next access to their object, from which on a
/// sample cannot be anything else.
const CONFIRMED_MIN: usize = 4;

/// Whether a sample fits: time does not run backwards, sizes are positive, and each record names
/// the next access to its object, or none. A trace of page numbers that rise satisfies all but the
/// last. Where enough records confirm the last, the others need not hold: some traces have objects
/// of no bytes, several clocks, or were cut.
pub(super) fn fits(sample: &Sample) -> Fit {
    let mut last_time = 0;
    let mut next_of = BTreeMap::new();
    let records = sample.bytes.chunks_exact(RECORD_BYTES);
    let count = records.len();
    let end = if sample.complete && count < PART_MIN { count as i64 } else { NEXT_MAX };
    let (mut is_odd, mut confirmed) = (false, 0);
    for (index, record) in (0..).zip(records) {
        let time = u32::from_le_bytes(record[..4].try_into().expect("4 bytes"));
        let id = u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
        let size = u32::from_le_bytes(record[12..16].try_into().expect("4 bytes"));
        let next = i64::from_le_bytes(record[16..].try_into().expect("8 bytes"));
        // Some programs count accesses from 1, and some name the largest number for none.
        let has_next = next != i64::MAX && next >= 0;
        if has_next && !(index + 1..=NEXT_MAX).contains(&next) {
            return Fit::No;
        }
        match next_of.insert(id, next) {
            Some(named) if (index..=index + 1).contains(&named) => confirmed += 1,
            Some(named) if named >= 0 => return Fit::No,
            _ => {}
        }
        is_odd |= time < last_time || size == 0 || size > i32::MAX as u32 || has_next && next > end;
        last_time = time;
    }
    if is_odd {
        return if confirmed >= CONFIRMED_MIN { Fit::Yes } else { Fit::No };
    }
    // One or two records may fit by chance.
    match count {
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

    /// Objects of no bytes, a clock that is set back, and the first part of a longer trace.
    #[test]
    fn records_that_name_each_other_fit_with_odd_times_and_sizes() {
        let trace = |time: &dyn Fn(i64) -> u32, bytes: u32, records: i64| {
            let record = |index: i64| {
                let (id, next) = (index as u64 % 5, index + 5);
                [&time(index).to_le_bytes()[..], &id.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()]
                    .concat()
            };
            Sample { bytes: (0..records).flat_map(record).collect(), complete: true }
        };
        for (sample, fit) in [
            (trace(&|index| index as u32, 0, 100), true),
            (trace(&|index| 100 - index as u32, 512, 100), true),
            (trace(&|_| 0, 512, 20), true),
            (trace(&|_| 0, 0, 8), false),
        ] {
            assert_eq!(matches!(fits(&sample), Fit::Yes), fit);
        }
    }

    /// Page numbers of kernel-lab traces, in order or equal: times rise, sizes are positive, and
    /// what would be the next access is far ahead.
    #[test]
    fn rising_page_numbers_do_not_fit() {
        let words =
            |pages: &mut dyn Iterator<Item = u32>| pages.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        for complete in [true, false] {
            for bytes in [
                words(&mut (1..60_000)),
                words(&mut (1..25)),
                words(&mut (0..1700).map(|access| 1 + access / 7)),
                words(&mut (0..24_000).map(|access| 7 + access / 600)),
                words(&mut std::iter::repeat_n(9, 20_000)),
            ] {
                if complete || bytes.len() >= 1 << 16 {
                    assert!(matches!(fits(&Sample { bytes, complete }), Fit::No));
                }
            }
        }
    }
}
