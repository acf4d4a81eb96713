//! Page format of a store with contents: a header with the page's identity, version and checksum,
//! followed by rows in slots of equal size.
//!
//! ```text
//!  0 magic u32    4 crc32c of all that follows u32    8 file u32   12 version u32   16 page u64   24 zeroes   32 slots ...
//! ```
//!
//! Fields are little-endian. A slot holds the columns of its row. Slots of initial rows also hold
//! noise in place of the columns that never change. A page beyond the initial ones is all zeroes
//! until its first change.
//!
//! [`Truth`] is the expected state of a page. It follows from the visits alone, not from the page's
//! bytes.

use super::{COLUMNS, File, PAGE_BYTES, Row, Visit};
use crate::random::Random;

const MAGIC: u32 = u32::from_le_bytes(*b"tpcc");
const HEADER_BYTES: usize = 32;
/// A slot's noise is this fraction (one half) of the space after its columns. The rest is blank, as
/// in columns of variable length.
const NOISE_SHARE: usize = 2;

/// Expected state of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    /// Number of changes.
    version: u32,
    /// Sum of all columns of all rows, modulo 2^32.
    sum: u32,
    /// Whether the page has a header: it is an initial page or was changed.
    written: bool,
}

impl Truth {
    /// State of a page that was never changed.
    pub fn first(file: File, index: u64, warehouses: u64) -> Truth {
        let sum = slots(file, index).map(|row| sum(&file.table.first(row, warehouses)));
        let written = index < file.first_pages(warehouses);
        Truth { version: 0, sum: sum.fold(0, u32::wrapping_add), written }
    }

    /// State after a visit.
    pub fn visited(self, visit: &Visit) -> Truth {
        let Some(add) = &visit.add else { return self };
        let rows = (visit.rows.end - visit.rows.start) as u32;
        let sum = self.sum.wrapping_add(sum(add).wrapping_mul(rows));
        Truth { version: self.version.wrapping_add(1), sum, written: true }
    }
}

fn sum(row: &Row) -> u32 {
    row.iter().fold(0, |sum, &column| sum.wrapping_add(column))
}

/// Numbers of the rows in a page.
fn slots(file: File, index: u64) -> std::ops::Range<u64> {
    let per_page = if file.nodes { 0 } else { file.table.rows_per_page() };
    index * per_page..(index + 1) * per_page
}

/// Byte range of a row's slot within the page.
fn slot_of(file: File, row: u64) -> std::ops::Range<usize> {
    let per_page = file.table.rows_per_page() as usize;
    let bytes = (PAGE_BYTES as usize - HEADER_BYTES) / per_page;
    let start = HEADER_BYTES + row as usize % per_page * bytes;
    start..start + bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn seal(page: &mut [u8], file: File, index: u64, version: u32) {
    page[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[8..12].copy_from_slice(&(file.number() as u32).to_le_bytes());
    page[12..16].copy_from_slice(&version.to_le_bytes());
    page[16..24].copy_from_slice(&index.to_le_bytes());
    let crc = crc32c::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Fills a page with its initial contents.
///
/// # Panics
/// Unless `page` has 4096 bytes.
pub fn lay_out(page: &mut [u8], file: File, index: u64, warehouses: u64) {
    assert_eq!(page.len() as u64, PAGE_BYTES);
    page.fill(0);
    let columns = file.table.columns();
    let mut noise = Random::stream(file.number(), index);
    for row in slots(file, index).filter(|&row| row < file.table.first_rows(warehouses)) {
        let slot = &mut page[slot_of(file, row)];
        let values = file.table.first(row, warehouses);
        let bytes = values[..columns].iter().flat_map(|column| column.to_le_bytes());
        slot.iter_mut().zip(bytes).for_each(|(byte, value)| *byte = value);
        let rest = &mut slot[columns * 4..];
        let noisy = rest.len() / NOISE_SHARE;
        rest[..noisy].chunks_mut(8).for_each(|chunk| {
            chunk.copy_from_slice(&noise.next_u64().to_le_bytes()[..chunk.len()]);
        });
    }
    if file.nodes {
        let middle = HEADER_BYTES + (PAGE_BYTES as usize - HEADER_BYTES) / NOISE_SHARE;
        page[HEADER_BYTES..middle].chunks_mut(8).for_each(|chunk| {
            chunk.copy_from_slice(&noise.next_u64().to_le_bytes()[..chunk.len()]);
        });
    }
    seal(page, file, index, 0);
}

/// Checks that the page is the expected one in its last version, intact, with the expected sum of
/// its rows.
///
/// # Errors
/// A message with the difference.
///
/// # Panics
/// Unless `page` has 4096 bytes.
pub fn check(page: &[u8], file: File, index: u64, truth: Truth) -> Result<(), String> {
    assert_eq!(page.len() as u64, PAGE_BYTES);
    let wrong = |what: String| {
        let nodes = if file.nodes { ", nodes" } else { "" };
        Err(format!("page {index} of {}{nodes}: {what}", file.table.name()))
    };
    if !truth.written {
        let blank = page.iter().all(|&byte| byte == 0);
        return if blank { Ok(()) } else { wrong("was never written but is not blank".to_owned()) };
    }
    if u32_at(page, 0) != MAGIC {
        let what = if page.iter().all(|&byte| byte == 0) { "is blank" } else { "is not a page of a table" };
        return wrong(format!("{what}, instead of version {}", truth.version));
    }
    if crc32c::crc32c(&page[8..]) != u32_at(page, 4) {
        return wrong("is damaged: its checksum differs".to_owned());
    }
    let (number, found) = (u32_at(page, 8), u64::from(u32_at(page, 16)) | u64::from(u32_at(page, 20)) << 32);
    if u64::from(number) != file.number() || found != index {
        return wrong(format!("is page {found} of file {number}"));
    }
    let version = u32_at(page, 12);
    if version != truth.version {
        return wrong(format!("is version {version}, instead of {}", truth.version));
    }
    let found = rows(page, file, index).fold(0, |total: u32, (_, row)| total.wrapping_add(sum(&row)));
    if found != truth.sum {
        return wrong(format!("its columns add up to {found}, instead of {}", truth.sum));
    }
    Ok(())
}

/// Rows of a page with their numbers. Rows that are not yet inserted are zeroes.
pub fn rows(page: &[u8], file: File, index: u64) -> impl Iterator<Item = (u64, Row)> {
    let columns = file.table.columns();
    slots(file, index).map(move |row| {
        let slot = &page[slot_of(file, row)];
        let column = |column| if column < columns { u32_at(slot, 4 * column) } else { 0 };
        (row, std::array::from_fn::<u32, COLUMNS, _>(column))
    })
}

/// Applies the changes of a visit to its page. A visit that only reads changes nothing.
///
/// # Panics
/// Unless `page` has 4096 bytes and is the visited page.
pub fn change(page: &mut [u8], visit: &Visit) {
    assert_eq!(page.len() as u64, PAGE_BYTES);
    let Some(add) = &visit.add else { return };
    let file = visit.file;
    for row in visit.rows.clone() {
        assert!(slots(file, visit.index).contains(&row), "the rows of a visit are in one page");
        let slot = &mut page[slot_of(file, row)];
        for (column, &add) in add[..file.table.columns()].iter().enumerate() {
            let changed = u32_at(slot, 4 * column).wrapping_add(add);
            slot[4 * column..4 * column + 4].copy_from_slice(&changed.to_le_bytes());
        }
    }
    let version = u32_at(page, 12).wrapping_add(1);
    seal(page, file, visit.index, version);
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    const STOCK: File = File { table: Table::Stock, nodes: false };

    #[test]
    fn pages_check_as_they_are_changed() {
        let mut page = vec![0; 4096];
        for file in File::all() {
            let last = file.first_pages(1) - 1;
            for index in [0, last, last + 1, last + 9] {
                page.fill(0);
                let mut truth = Truth::first(file, index, 1);
                if index <= last {
                    lay_out(&mut page, file, index, 1);
                }
                check(&page, file, index, truth).unwrap();
                if file.nodes {
                    continue;
                }
                let rows = index * file.table.rows_per_page()..(index + 1) * file.table.rows_per_page();
                for add in [Some([3, 0, 0, 0, 0]), None, Some([u32::MAX, 0, 0, 0, 0])] {
                    let visit = Visit { file, index, rows: rows.clone(), add };
                    change(&mut page, &visit);
                    truth = truth.visited(&visit);
                    check(&page, file, index, truth).unwrap();
                }
                assert_eq!(truth.version, 2);
                let read: Vec<_> = super::rows(&page, file, index).collect();
                assert_eq!(read.len() as u64, file.table.rows_per_page());
                let expected = file.table.first(rows.start, 1);
                assert_eq!(
                    read[0],
                    (
                        rows.start,
                        [expected[0].wrapping_add(2), expected[1], expected[2], expected[3], expected[4]]
                    )
                );
            }
        }
    }

    #[test]
    fn the_defect_of_a_page_is_reported() {
        let mut page = vec![0; 4096];
        lay_out(&mut page, STOCK, 5, 1);
        let truth = Truth::first(STOCK, 5, 1);
        let defect = |page: &[u8], index, truth| check(page, STOCK, index, truth).unwrap_err();
        let visit = Visit { file: STOCK, index: 5, rows: 65..66, add: Some([1, 1, 0, 0, 0]) };
        assert!(defect(&page, 5, truth.visited(&visit)).contains("version 0, instead of 1"), "a lost write");
        assert!(defect(&page, 6, Truth::first(STOCK, 6, 1)).contains("is page 5"));
        assert!(defect(&[0; 4096], 5, truth).contains("is blank"));
        let mut torn = page.clone();
        torn[4000] ^= 1;
        assert!(defect(&torn, 5, truth).contains("checksum"));
        let mut other = page.clone();
        change(&mut other, &Visit { add: Some([2, 1, 0, 0, 0]), ..visit.clone() });
        assert!(defect(&other, 5, truth.visited(&visit)).contains("add up to"));
        assert!(defect(&page, 1 << 40, Truth::first(STOCK, 1 << 40, 1)).contains("never written"));
        assert!(check(&page, File { table: Table::Item, nodes: false }, 5, truth).is_err());
    }
}
