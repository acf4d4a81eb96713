//! One key per line: `plain` for numbers, `keys` for words.
//!
//! *Offset:* in `plain` the number is the page, decimal or with `0x` hexadecimal, 64 bits, one flat
//! space. In `keys` the page is the word's 64-bit FNV-1a hash, the same in every run; neighbouring
//! words mean nothing, and two words on one page are expected once in 2^64 / n² for n words.
//! *Size:* always one page. No operations: every access is a read.
//!
//! They are two formats so that a broken line in a trace of numbers is an error and not a new key.
//! In `plain` empty lines and lines that start with `#` are skipped, in `keys` only empty ones.

use super::PageAccess;
use super::decode::{LineFormat, Parsed, Request};
use super::text::{decimal, quote, wrong};
use super::write::{Encode, Run};
use std::io::Write;

/// A decimal or `0x` hexadecimal number.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<u64> {
    match text {
        [b'0', b'x' | b'X', digits @ ..]
            if !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) =>
        {
            u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        }
        _ => decimal(text),
    }
}

/// For recognition.
pub(super) fn is_number(line: &[u8]) -> bool {
    number(line).is_some()
}

/// FNV-1a: simple enough to be written down in one line of documentation, and it will never change.
pub(super) fn hash(word: &[u8]) -> u64 {
    word.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Reads numbers.
pub(super) struct Plain;

impl LineFormat for Plain {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        let page = match number(line) {
            Some(page) => page,
            None if line.starts_with(b"#") => return Ok(Parsed::Nothing),
            None if line == b"*" => return Err("* is the end of a LIRS trace: --format lirs".to_string()),
            None => return Err(wrong("the line", line, "a number (--format keys takes words)")),
        };
        Ok(Parsed::Request(Request::pages(page, 1)?))
    }
}

/// Reads words.
pub(super) struct Keys;

impl LineFormat for Keys {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line.contains(&0) {
            return Err(format!("{} has a zero byte: not a text file?", quote(line)));
        }
        Ok(Parsed::Request(Request::pages(hash(line), 1)?))
    }
}

/// Writes numbers: nothing but the page survives.
pub(super) struct PlainEncoder;

impl Encode for PlainEncoder {
    fn nearest(&self, access: PageAccess) -> PageAccess {
        PageAccess { write: false, mapped: false, anon: false, ..access }
    }

    fn access(&mut self, run: Run, out: &mut Vec<u8>) {
        for index in 0..run.pages {
            writeln!(out, "{}", run.first.page + index).expect("a Vec takes all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words() {
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(b"0xff"), Some(255));
        for bad in ["", "0x", "0x+1", "ff", "1 2", "-1", "0x10000000000000000"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert!(Plain.line(b"a").is_err());
        assert!(Keys.line(b"a").is_ok());
    }
}
