//! Memory addresses of a program (`l|s 0xADDRESS number`), as in UCSD's CSE 240A and Caffeine's
//! `address` traces.
//!
//! ```text
//! s 0x1fffff50 1    store
//! l 0x1fffff88 6    load
//! ```
//!
//! *Offset:* a byte address in one flat space; it selects a 4 KiB page. *Size:* none; an access
//! touches one page. The third field, the number of instructions since the last access, must be a
//! number but is not used. `s` writes. Accesses are not `mapped`, although a program's are: these
//! traces are replayed as reference strings.

use super::PAGE_BYTES;
use super::decode::{LineFormat, Parsed, Request};
use super::plain;
use super::text::{expected_number, fields, number, quote, wrong};

pub(super) struct Address;

impl LineFormat for Address {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line.starts_with(b"#") {
            return Ok(Parsed::Nothing);
        }
        let Some([operation, address, instructions]) = fields::<3>(line) else {
            return Err(format!("{} does not have the three fields l|s address number", quote(line)));
        };
        let write = match operation {
            b"l" => false,
            b"s" => true,
            _ => return Err(wrong("the operation", operation, "l or s")),
        };
        let byte = plain::number(address).ok_or_else(|| {
            wrong("the address", address, format!("{}, such as 0x1000", expected_number(address)))
        })?;
        number(instructions, "the third field")?;
        let request = Request::pages(byte / PAGE_BYTES, 1)?.writing(write);
        // Neighbouring words are one use of their page.
        Ok(Parsed::Request(Request { inside: !byte.is_multiple_of(PAGE_BYTES), ..request }))
    }
}

/// Whether a sampled line looks like a record of this format.
pub(super) fn is_record(line: &[u8]) -> bool {
    matches!(fields::<3>(line), Some([b"l" | b"s", address, _]) if address.starts_with(b"0x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_fall_into_pages() {
        let line = |text: &str| match Address.line(text.as_bytes()) {
            Ok(Parsed::Request(request)) => Ok((request.page, request.pages, request.write)),
            other => Err(other),
        };
        assert_eq!(line("l 0x1fffff50 1"), Ok((0x1ffff, 1, false)));
        assert_eq!(line("s 0x20000000 12"), Ok((0x20000, 1, true)));
        assert_eq!(line("s 4095 0"), Ok((0, 1, true)));
        for bad in
            ["l 0x1", "l 0x1 1 1", "L 0x1 1", "x 0x1 1", "l 0xg 1", "l 0x1 x", "l 0x10000000000000000 1"]
        {
            assert!(line(bad).is_err(), "{bad}");
        }
    }
}
