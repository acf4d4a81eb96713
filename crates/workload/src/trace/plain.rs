//! One key per line: `plain` for numbers, `keys` for words.
//!
//! *Offset:* in `plain` the number is the page: 64 bits, decimal or hexadecimal with `0x`, in one
//! flat space. In `keys` the page is the word's 64-bit FNV-1a hash, the same in every run.
//! Neighbouring words are unrelated, and n words are expected to have n² / 2^65 collisions. *Size:*
//! always one page. There are no operations; every access is a read.
//!
//! The formats are separate so that a broken line in a trace of numbers is an error and not a new
//! key. `plain` skips empty lines and lines that start with `#`; `keys` skips only empty ones.

use super::PageAccess;
use super::decode::{LineFormat, Parsed, Request};
use super::text::{decimal, expected_number, quote, wrong};
use super::write::{Encode, Run};
use crate::hash::fnv1a;
use std::io::Write;

/// Parses a decimal or `0x` hexadecimal number.
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

pub(super) fn is_number(line: &[u8]) -> bool {
    number(line).is_some()
}

/// The page of a word.
pub(super) fn hash(word: &[u8]) -> u64 {
    fnv1a(word)
}

pub(super) struct Plain;

impl LineFormat for Plain {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        let page = match number(line) {
            Some(page) => page,
            None if line.starts_with(b"#") => return Ok(Parsed::Nothing),
            None if line == b"*" => {
                return Err("* is a mark in LIRS traces, whose format is lirs".to_string());
            }
            None => {
                let expected = format!("{} (the format keys takes words)", expected_number(line));
                return Err(wrong("the line", line, expected));
            }
        };
        Ok(Parsed::Request(Request::pages(page, 1)?))
    }
}

pub(super) struct Keys;

impl LineFormat for Keys {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line.contains(&0) {
            return Err(format!("{} has a zero byte: not a text file?", quote(line)));
        }
        Ok(Parsed::Request(Request::pages(hash(line), 1)?))
    }
}

/// Encoder of page numbers; everything else in a record is lost.
pub(super) struct PlainEncoder;

impl Encode for PlainEncoder {
    fn nearest(&self, access: PageAccess) -> PageAccess {
        PageAccess { write: false, mapped: false, anon: false, inside: false, fault: false, ..access }
    }

    fn access(&mut self, run: Run, out: &mut Vec<u8>) {
        for index in 0..run.pages {
            writeln!(out, "{}", run.first.page + index).expect("a Vec never fails");
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
        let error = Plain.line(b"18446744073709551616").unwrap_err();
        assert!(error.contains("expected at most 18446744073709551615"), "{error}");
        assert!(Keys.line(b"a").is_ok());
    }
}
