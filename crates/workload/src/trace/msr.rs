//! MSR Cambridge's CSV: `timestamp,hostname,disk,type,offset,size,response time`, with or without a
//! header.
//!
//! ```text
//! 128166372003061629,usr,0,Read,10995532800,16384,30123
//! ```
//!
//! *Offset:* bytes from the beginning of a disk. Host and disk together are a file; file ids count
//! in order of first use, so a trace of one disk is one flat space. *Size:* bytes; every touched 4
//! KiB page counts, including partial ones. `type` is `Read` or `Write`. Times are not used; the
//! last column may be missing.

use super::decode::{Fault, LineFormat, Names, Parsed, Request};
use super::source::Sample;
use super::text::{number, quote, wrong};

#[derive(Default)]
pub(super) struct Msr {
    disks: Names,
    disk: Vec<u8>,
    past_first_line: bool,
}

struct Row<'a> {
    host: &'a [u8],
    disk: &'a [u8],
    kind: &'a [u8],
    offset: &'a [u8],
    size: &'a [u8],
}

impl<'a> Row<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let (_time, host, disk) = (fields.next()?, fields.next()?, fields.next()?);
        let (kind, offset, size) = (fields.next()?, fields.next()?, fields.next()?);
        (fields.count() <= 1).then_some(Row { host, disk, kind, offset, size })
    }

    fn writes(&self) -> Option<bool> {
        if self.kind.eq_ignore_ascii_case(b"read") {
            Some(false)
        } else if self.kind.eq_ignore_ascii_case(b"write") {
            Some(true)
        } else {
            None
        }
    }

    fn is_header(&self) -> bool {
        self.kind.eq_ignore_ascii_case(b"type") && self.offset.eq_ignore_ascii_case(b"offset")
    }
}

/// Whether a sampled line looks like a record of this format.
pub(super) fn is_record(line: &[u8]) -> bool {
    Row::of(line).is_some_and(|row| row.writes().is_some() || row.is_header())
}

impl Msr {
    pub fn new(sample: &Sample) -> Result<Self, Fault> {
        match sample.lines().next() {
            Some(first) if Row::of(first).is_none() => Err(Fault::Columns(format!(
                "the first line, {}, expected timestamp,hostname,disk,type,offset,size,response time",
                quote(first)
            ))),
            _ => Ok(Self::default()),
        }
    }
}

impl LineFormat for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        let first = !std::mem::replace(&mut self.past_first_line, true);
        let Some(row) = Row::of(line) else {
            return Err(format!("{} does not have the six or seven columns of an MSR trace", quote(line)));
        };
        if first && row.is_header() {
            return Ok(Parsed::Nothing);
        }
        let write = row.writes().ok_or_else(|| wrong("the type", row.kind, "Read or Write"))?;
        let request = Request::bytes(number(row.offset, "the offset")?, number(row.size, "the size")?)?;
        self.disk.clear();
        self.disk.extend_from_slice(row.host);
        self.disk.push(b',');
        self.disk.extend_from_slice(row.disk);
        let file = self.disks.id(&self.disk)?;
        Ok(Parsed::Request(request.in_file(file)?.writing(write)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_several_disks() {
        let mut msr = Msr::default();
        let mut line = |text: &str| match msr.line(text.as_bytes()) {
            Ok(Parsed::Request(request)) => Ok(Some((request.page, request.pages, request.write))),
            Ok(_) => Ok(None),
            Err(what) => Err(what),
        };
        assert_eq!(line("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"), Ok(None));
        assert_eq!(line("128166372003061629,usr,0,Read,4608,8192,30123"), Ok(Some((1, 3, false))));
        assert_eq!(line("128166372003061630,usr,1,Write,0,4096,1"), Ok(Some((1 << 32, 1, true))));
        assert_eq!(line("128166372003061631,usr,0,Write,0,1"), Ok(Some((0, 1, true))));
        for bad in ["1,usr,0,Read,4608", "1,usr,0,Trim,0,1,1", "1,usr,0,Read,x,1,1", "1,usr,0,Read,0,1,1,1"] {
            assert!(line(bad).is_err(), "{bad}");
        }
    }
}
