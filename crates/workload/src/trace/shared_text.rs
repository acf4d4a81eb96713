//! A text format with files, fsyncs and page faults: lines of `op page count`.
//!
//! ```text
//! R 4294967296 2    read pages 0 and 1 of file 1
//! W 17 1            write
//! F 17 1            page fault on a mapped file page, by a process that had not mapped it
//! L 17 1            load through a mapping that stays
//! S 4294967296 0    fsync of file 1
//! ```
//!
//! *Offset:* a 64-bit number of a 4 KiB page; in captured traces file id << 32 | page in the file,
//! in others one flat space. *Size:* `count` pages from there on. Fields are separated by blanks.
//! Empty lines and lines that start with `#` are skipped.

use super::PageAccess;
use super::decode::{LineFormat, Parsed, Request};
use super::text::{fields, leading_decimal, number, quote};
use super::write::{Encode, Run};
use std::io::Write;

pub(super) struct SharedText;

impl LineFormat for SharedText {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        let operation = match line {
            [b'#', ..] => return Ok(Parsed::Nothing),
            [operation @ (b'R' | b'W' | b'F' | b'L' | b'S'), b' ' | b'\t', ..] => *operation,
            _ => return Err(format!("{}, expected R, W, F, L or S, then page and count", quote(line))),
        };
        let (page, count) = match page_and_count(&line[2..]) {
            Some(both) => both,
            None => {
                let Some([_, page, count]) = fields::<3>(line) else {
                    return Err(format!("{} does not have the three fields op page count", quote(line)));
                };
                (number(page, "page")?, number(count, "count")?)
            }
        };
        if operation == b'S' {
            if count != 0 || page & 0xffff_ffff != 0 {
                return Err(format!("{} is not an fsync, which is S, file << 32, 0", quote(line)));
            }
            return Ok(Parsed::Sync((page >> 32) as u32));
        }
        let request = Request::pages(page, count)?;
        let fault = operation == b'F';
        let mapped = fault || operation == b'L';
        Ok(Parsed::Request(Request { write: operation == b'W', mapped, fault, ..request }))
    }
}

/// Fast path for single blanks, the usual form: one pass instead of splitting fields first takes
/// half the time.
#[inline]
fn page_and_count(text: &[u8]) -> Option<(u64, u64)> {
    let (page, rest) = leading_decimal(text)?;
    let (count, rest) = leading_decimal(rest.strip_prefix(b" ")?)?;
    rest.is_empty().then_some((page, count))
}

/// Whether a sampled line looks like a record of this format.
pub(super) fn is_record(line: &[u8]) -> bool {
    matches!(line, [b'R' | b'W' | b'F' | b'L' | b'S', b' ' | b'\t', ..])
        && fields::<3>(line)
            .is_some_and(|[_, page, count]| number(page, "").is_ok() && number(count, "").is_ok())
}

/// Encoder of the lines. Anonymous pages and writes through a mapping cannot be expressed.
pub(super) struct SharedTextEncoder;

impl Encode for SharedTextEncoder {
    fn nearest(&self, access: PageAccess) -> PageAccess {
        let mapped = access.mapped && !access.write;
        let fault = access.fault && mapped;
        PageAccess { mapped, fault, anon: false, inside: false, ..access }
    }

    fn access(&mut self, run: Run, out: &mut Vec<u8>) {
        let operation = match run.first {
            PageAccess { write: true, .. } => 'W',
            PageAccess { fault: true, .. } => 'F',
            PageAccess { mapped: true, .. } => 'L',
            _ => 'R',
        };
        writeln!(out, "{operation} {} {}", { run.first.page }, run.pages).expect("a Vec never fails");
    }

    fn sync(&mut self, file: u32, out: &mut Vec<u8>) -> bool {
        writeln!(out, "S {} 0", u64::from(file) << 32).expect("a Vec never fails");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_page_above() {
        let line = |text: &str| SharedText.line(text.as_bytes());
        let read = Request::pages(1 << 32, 2).unwrap();
        assert_eq!(line("R 4294967296 2"), Ok(Parsed::Request(read)));
        let one = Request { page: 17, pages: 1, ..read };
        assert_eq!(line("W 17 1"), Ok(Parsed::Request(Request { write: true, ..one })));
        assert_eq!(line("F\t17  1"), Ok(Parsed::Request(Request { mapped: true, fault: true, ..one })));
        assert_eq!(line("L 17 1"), Ok(Parsed::Request(Request { mapped: true, ..one })));
        assert_eq!(line("S 4294967296 0"), Ok(Parsed::Sync(1)));
        assert_eq!(line("# R 1 1"), Ok(Parsed::Nothing));
        for bad in
            ["R 1", "R 1 1 1", "X 1 1", "r 1 1", "R -1 1", "R 1 4294967297", "S 1 0", "S 0 1", "R18 1", "R"]
        {
            assert!(line(bad).is_err(), "{bad}");
        }
    }
}
