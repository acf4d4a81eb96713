//! fio's I/O log (`write_iolog`, `read_iolog`), version 2 and 3.
//!
//! ```text
//! fio version 2 iolog              version 3 has a time stamp in front of every line
//! data.0.0 add
//! data.0.0 open
//! data.0.0 read 8192 4096          also write, trim, sync, datasync, sync_file_range, wait
//! data.0.0 close
//! ```
//!
//! *Offset:* bytes from the beginning of the file; file ids count in the order in which the log
//! first names the files. *Size:* bytes; every touched 4 KiB page counts, including partial ones.
//! `sync`, `datasync`, `syncfs` and `sync_file_range` are fsyncs. `trim` drops the pages that it
//! covers as a whole. `wait` touches no page.
//! File names have no blanks, as in fio. fio requires `add` and `open` before the first access;
//! this reader does not.

use super::PAGE_BYTES;
use super::decode::{Fault, LineFormat, Names, Parsed, Request};
use super::source::Sample;
use super::text::{decimal, field, fields, number, quote, wrong};
use super::write::{Encode, Run};
use super::{PageAccess, RequestStart};
use std::collections::BTreeSet;
use std::io::Write;

/// Open files at once at most, so that damaged numbers do not exhaust memory.
const HANDLES_MAX: u32 = 1 << 20;

/// Version of a log, if the line is the first of one.
fn version(line: &[u8]) -> Option<u64> {
    match fields::<4>(line)? {
        [b"fio", b"version", version, b"iolog"] => decimal(version),
        _ => None,
    }
}

/// Whether a sampled line is the header of this format.
pub(super) fn is_header(line: &[u8]) -> bool {
    version(line).is_some()
}

pub(super) struct FioIolog {
    files: Names,
    timed: bool,
    header_ahead: bool,
}

impl FioIolog {
    pub fn new(sample: &Sample) -> Result<Self, Fault> {
        let first = sample.lines().next().unwrap_or_default();
        match version(first) {
            Some(version @ (2 | 3)) => {
                Ok(Self { files: Names::default(), timed: version == 3, header_ahead: true })
            }
            _ => {
                let what = wrong("the first line", first, "fio version 2 iolog, or version 3");
                Err(Fault::Bad { offset: 0, line: Some(1), what })
            }
        }
    }
}

impl LineFormat for FioIolog {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if std::mem::take(&mut self.header_ahead) {
            return Ok(Parsed::Nothing);
        }
        let mut rest = line;
        if self.timed {
            number(field(&mut rest).unwrap_or_default(), "the time stamp")?;
        }
        let (Some(file), Some(action)) = (field(&mut rest), field(&mut rest)) else {
            return Err(format!("{} has no file name and action", quote(line)));
        };
        let range = (field(&mut rest), field(&mut rest));
        let mut handle = RequestStart::NO_HANDLE;
        if self.timed && range.1.is_some() {
            if let Some(thread) = field(&mut rest) {
                number(thread, "the thread")?;
            }
            if let Some(open) = field(&mut rest) {
                let open = number(open, "the open file")?;
                let most = u64::from(HANDLES_MAX);
                handle = u32::try_from(open).ok().filter(|open| *open < HANDLES_MAX).ok_or_else(|| {
                    format!("open file {open}; a log has at most {most} open files at once")
                })?;
            }
        }
        if field(&mut rest).is_some() {
            return Err(format!("{} has too many fields", quote(line)));
        }
        match (action, range) {
            (b"add" | b"open" | b"close", (None, None)) => {
                self.files.id(file)?;
                Ok(Parsed::Nothing)
            }
            (b"sync" | b"datasync" | b"syncfs" | b"sync_file_range", _) => {
                Ok(Parsed::Sync(self.files.id(file)?))
            }
            (b"wait", (Some(time), _)) => number(time, "the time to wait").map(|_| Parsed::Nothing),
            (b"read" | b"write", (Some(offset), Some(length))) => {
                let request = Request::bytes(number(offset, "the offset")?, number(length, "the length")?)?;
                let request = request.in_file(self.files.id(file)?)?;
                Ok(Parsed::Request(Request { handle, ..request.writing(action == b"write") }))
            }
            (b"trim", (Some(offset), Some(length))) => {
                let (offset, length) = (number(offset, "the offset")?, number(length, "the length")?);
                let (first, end) = (offset.div_ceil(PAGE_BYTES), offset.saturating_add(length) / PAGE_BYTES);
                if end > 1 << 32 {
                    return Err(format!("page {end} of a file; files have at most 2^32 pages (16 TiB)"));
                }
                let first_page = u64::from(self.files.id(file)?) << 32 | first;
                Ok(match end.saturating_sub(first) {
                    0 => Parsed::Nothing,
                    // One page short of the largest file.
                    pages => Parsed::Trim(first_page, pages.min(u64::from(u32::MAX)) as u32),
                })
            }
            (b"read" | b"write" | b"trim", _) => Err(format!("{} has no offset and length", quote(line))),
            _ => Err(wrong(
                "the action",
                action,
                "add, open, close, read, write, trim, sync, datasync or wait",
            )),
        }
    }
}

/// Encoder of version 2. Files are called `file.ID`. Mapped and anonymous accesses cannot be
/// expressed.
#[derive(Default)]
pub(super) struct FioIologEncoder {
    open: BTreeSet<u32>,
}

impl FioIologEncoder {
    fn open(&mut self, file: u32, out: &mut Vec<u8>) {
        if self.open.insert(file) {
            writeln!(out, "file.{file} add\nfile.{file} open").expect("a Vec never fails");
        }
    }
}

impl Encode for FioIologEncoder {
    fn nearest(&self, access: PageAccess) -> PageAccess {
        PageAccess { mapped: false, anon: false, inside: false, fault: false, ..access }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"fio version 2 iolog\n");
    }

    fn access(&mut self, run: Run, out: &mut Vec<u8>) {
        let file = (run.first.page >> 32) as u32;
        self.open(file, out);
        let action = if run.first.write { "write" } else { "read" };
        let offset = (run.first.page & 0xffff_ffff) * PAGE_BYTES;
        writeln!(out, "file.{file} {action} {offset} {}", run.pages * PAGE_BYTES).expect("a Vec never fails");
    }

    fn sync(&mut self, file: u32, out: &mut Vec<u8>) -> bool {
        self.open(file, out);
        writeln!(out, "file.{file} sync 0 0").expect("a Vec never fails");
        true
    }

    fn trim(&mut self, page: u64, pages: u32, out: &mut Vec<u8>) -> bool {
        let (file, first) = ((page >> 32) as u32, page & 0xffff_ffff);
        self.open(file, out);
        writeln!(out, "file.{file} trim {} {}", first * PAGE_BYTES, u64::from(pages) * PAGE_BYTES)
            .expect("a Vec never fails");
        true
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        for file in &self.open {
            writeln!(out, "file.{file} close").expect("a Vec never fails");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Parsed>, String> {
        let sample = Sample { bytes: text.as_bytes().to_vec(), complete: true };
        let mut log = FioIolog::new(&sample).map_err(|fault| format!("{fault:?}"))?;
        text.lines()
            .map(|line| log.line(line.as_bytes()))
            .filter(|parsed| parsed != &Ok(Parsed::Nothing))
            .collect()
    }

    #[test]
    fn both_versions() {
        let two = "fio version 2 iolog\na add\nb add\na open\nb read 8192 8192\na write 1 1\na wait 100 0\n\
                   b trim 0 1\nb trim 4000 8292\na sync 0 0\na close\n";
        let read = Request::pages(1 << 32 | 2, 2).unwrap();
        let write = Request { page: 0, pages: 1, write: true, inside: true, ends_inside: true, ..read };
        let trim = Parsed::Trim(1 << 32 | 1, 2);
        let expected = vec![Parsed::Request(read), Parsed::Request(write), trim, Parsed::Sync(0)];
        assert_eq!(parse(two), Ok(expected.clone()));
        let with_thread =
            "fio version 3 iolog\n1 b read 8192 8192 77 4\n2 a write 1 1 78\n3 b sync 0 0 77 4\n";
        let [b, a] = [Request { page: 2, handle: 4, ..read }, Request { page: 1 << 32, ..write }];
        let threads = vec![Parsed::Request(b), Parsed::Request(a), Parsed::Sync(0)];
        assert_eq!(parse(with_thread), Ok(threads));
        let three: String = two.lines().skip(1).map(|line| format!("17 {line}\n")).collect();
        assert_eq!(parse(&format!("fio version 3 iolog\n{three}")), Ok(expected));
    }

    #[test]
    fn broken_lines() {
        assert!(parse("fio version 1 iolog\n").is_err());
        for bad in
            ["a", "a read", "a read 0", "a read 0 x", "a erase 0 1", "a read 0 1 2", "a add 0", "17 a add"]
        {
            assert!(parse(&format!("fio version 2 iolog\n{bad}\n")).is_err(), "{bad}");
        }
        for bad in [
            "1 a read 0 1 x",
            "1 a read 0 1 2 x",
            "1 a read 0 1 2 1048576",
            "1 a read 0 1 2 3 4",
            "1 a add 2",
        ] {
            assert!(parse(&format!("fio version 3 iolog\n{bad}\n")).is_err(), "{bad}");
        }
    }
}
