//! The default output of `blkparse`: one line per block layer event, then a summary.
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//!  device cpu  number       time        pid  event rwbs position + length
//! ```
//!
//! Only `Q` events count. They are the requests as issued, before the scheduler merges, splits or
//! delays them. A trace without `Q` events is reported as empty. Discards are not accesses. A flush
//! without data is an fsync of the device. The summary at the end is skipped.
//!
//! *Offset:* a position on the device, in units of 512 bytes by default. A device is a file; file
//! ids count in order of first use, so a trace of one device is one flat space. *Size:* units;
//! every touched 4 KiB page counts.

use super::decode::{LineFormat, Names, Parsed, Request};
use super::text::{decimal, field, number, quote, wrong};

/// First words of the summary lines.
const SUMMARY: [&[u8]; 5] = [b"CPU", b"Total (", b"Throughput (", b"Events (", b"Skips:"];

pub(super) struct Blkparse {
    devices: Names,
    unit_bytes: u64,
    in_summary: bool,
}

impl Blkparse {
    pub fn new(unit_bytes: u64) -> Self {
        Self { devices: Names::default(), unit_bytes, in_summary: false }
    }
}

/// The first six fields of an event line, and the rest of the line.
struct Event<'a> {
    device: &'a [u8],
    action: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Event<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let device = field(&mut rest)?;
        let comma = device.iter().position(|byte| *byte == b',')?;
        decimal(&device[..comma])?;
        decimal(&device[comma + 1..])?;
        let (_cpu, _number) = (decimal(field(&mut rest)?)?, decimal(field(&mut rest)?)?);
        field(&mut rest)?.first().filter(|digit| digit.is_ascii_digit())?;
        let _pid = decimal(field(&mut rest)?)?;
        let action = field(&mut rest)?;
        Some(Event { device, action, rest })
    }
}

/// Whether a sampled line looks like a record of this format.
pub(super) fn is_record(line: &[u8]) -> bool {
    Event::of(line).is_some()
}

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        let Some(Event { device, action, mut rest }) = Event::of(line) else {
            self.in_summary |= SUMMARY.iter().any(|start| line.starts_with(start));
            if self.in_summary {
                return Ok(Parsed::Nothing);
            }
            return Err(format!("{}, expected device cpu number time pid event", quote(line)));
        };
        if action != b"Q" {
            return Ok(Parsed::Nothing);
        }
        let Some(kind) = field(&mut rest) else {
            return Err(format!("{} has no operation", quote(line)));
        };
        let file = self.devices.id(device)?;
        // A leading F is a flush before the request; a trailing F is "force unit access".
        let (flush, kind) = match kind {
            [b'F', kind @ ..] => (true, kind),
            kind => (false, kind),
        };
        let write = match kind.first() {
            Some(b'R') => false,
            Some(b'W') => true,
            Some(b'N') | None if flush => return Ok(Parsed::Sync(file)),
            Some(b'D' | b'N' | b'Z') => return Ok(Parsed::Nothing),
            _ => return Err(wrong("the operation", kind, "R, W, D, N or F first")),
        };
        let position = field(&mut rest);
        let (plus, length) = (field(&mut rest), field(&mut rest));
        let (Some(position), Some(b"+"), Some(length)) = (position, plus, length) else {
            // A flush has at most a process name here.
            return match position {
                None | Some([b'[', ..]) if flush => Ok(Parsed::Sync(file)),
                _ => Err(format!("{} has no position + length", quote(line))),
            };
        };
        let length = number(length, "the length")?;
        if length == 0 && flush {
            return Ok(Parsed::Sync(file));
        }
        let bytes = length
            .checked_mul(self.unit_bytes)
            .ok_or_else(|| format!("a request of {length} units is too large"))?;
        let request = Request::units(number(position, "the position")?, self.unit_bytes, bytes)?;
        Ok(Parsed::Request(request.in_file(file)?.writing(write)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_requests_count() {
        let mut blkparse = Blkparse::new(512);
        let mut line = |text: &str| blkparse.line(text.trim().as_bytes());
        let write = Request::pages(27936, 2).unwrap().writing(true);
        let write = Request { inside: true, ends_inside: true, ..write };
        assert_eq!(
            line("  8,0  3  1  0.000000000  697  Q   W 223490 + 8 [kjournald]"),
            Ok(Parsed::Request(write))
        );
        assert_eq!(line("  8,0  3  1  0.000000000  697  G   W 223490 + 8 [kjournald]"), Ok(Parsed::Nothing));
        let read =
            Request { page: 1 << 32 | 1, pages: 1, write: false, inside: false, ends_inside: false, ..write };
        assert_eq!(line("8,16 3 2 0.1 697 Q RA 8 + 8 [a b]"), Ok(Parsed::Request(read)));
        assert_eq!(line("8,16 3 2 0.1 697 Q FWS [a]"), Ok(Parsed::Sync(1)));
        assert_eq!(line("8,0 3 2 0.1 697 Q FWS 0 + 0 [a]"), Ok(Parsed::Sync(0)));
        assert_eq!(line("8,0 3 2 0.1 697 Q D 8 + 8 [a]"), Ok(Parsed::Nothing));
        assert_eq!(line("8,0 3 0 0.1 0 m N cfq schedule"), Ok(Parsed::Nothing));
        for bad in
            ["8,0 3 1 0.0 697 Q W 223490", "8,0 3 1 0.0 697 Q W 2 + x", "8,0 3 1 0.0 697 Q", "8,0 3", "x"]
        {
            assert!(line(bad).is_err(), "{bad}");
        }
        assert_eq!(line("CPU0 (8,0):"), Ok(Parsed::Nothing));
        assert_eq!(line("Reads Queued:  0, 0KiB"), Ok(Parsed::Nothing));
    }
}
