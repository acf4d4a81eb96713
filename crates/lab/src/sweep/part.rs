//! Parts: the rows of a range of units as a Parquet file, named after the range.
//!
//! A worker may be killed in the middle of a write, and a machine may lose the end of a file or
//! leave a hole in it. So a part counts only after all of it was read: its checksum and the numbers
//! of its units. Rows of one unit are never in two parts that count.

use crate::error::Error;
use crate::parquet;
use bytes::Bytes;
use std::ops::Range;

/// Name of the file with the rows of a range: `units-000000000-000000039.parquet`, with the first
/// and the last unit.
pub fn part_name(units: &Range<u64>) -> String {
    format!("units-{:09}-{:09}.parquet", units.start, units.end - 1)
}

/// The units of a file by its name; `None` for other names.
pub fn part_units(name: &str) -> Option<Range<u64>> {
    let numbers = name.strip_prefix("units-")?.strip_suffix(".parquet")?;
    let (first, last) = numbers.split_once('-')?;
    let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
    let units = first..last.checked_add(1)?;
    (!units.is_empty() && part_name(&units) == name).then_some(units)
}

/// The errors in the rows of a part, in the order of units; `None` if the part is damaged, or has
/// other units than its name says.
pub fn part_errors(units: &Range<u64>, part: Vec<u8>) -> Option<Vec<String>> {
    let (numbers, errors) = parquet::units_and_errors(Bytes::from(part)).ok()?;
    let wanted = units.clone().map(Some);
    (numbers.len() as u64 == units.end - units.start && wanted.eq(numbers)).then_some(errors)
}

/// One part of the rows of several, which stand in the order of units.
///
/// # Errors
/// If one of them is damaged.
pub fn joined_parts(parts: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<u8>, Error> {
    let parts: Vec<Bytes> = parts.into_iter().map(Bytes::from).collect();
    parquet::joined(&parts)
        .map_err(|error| Error::work(format_args!("cannot join parts of a sweep: {error}")))
}

/// Which of these ranges lie within another one, so that their rows are there twice. Of equal
/// ranges, the first stays.
pub fn contained_parts(parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|part| (part.start, std::cmp::Reverse(part.end)));
    // Those that begin earlier end here at the latest.
    let mut end = 0;
    parts.retain(|part| {
        let is_contained = part.end <= end;
        end = end.max(part.end);
        is_contained
    });
    parts
}
