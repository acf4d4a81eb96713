//! Records as JSON Lines: one object per line.

use super::record::{Record, Value};
use super::word::Word;
use mglru_core::Time;

/// Makes lines of records.
#[derive(Debug, Default)]
pub struct JsonLines {
    /// Text of the last access and time: most records share theirs with the one before.
    beginning: Vec<u8>,
    beginning_of: Option<(u64, Time)>,
}

impl JsonLines {
    /// Adds a record's line.
    pub fn write(&mut self, out: &mut Vec<u8>, record: &Record) {
        let at = (record.access, record.now);
        if self.beginning_of.replace(at) != Some(at) {
            self.beginning.clear();
            number(&mut self.beginning, "{\"access\":", record.access);
            number(&mut self.beginning, ",\"nanos\":", record.now.as_nanos());
            self.beginning.extend_from_slice(b",\"event\":\"");
        }
        out.extend_from_slice(&self.beginning);
        out.extend_from_slice(record.what.name().text().as_bytes());
        out.push(b'"');
        if let Some(page) = record.page {
            number(out, ",\"page\":", page.number);
            if page.anon {
                out.extend_from_slice(b",\"anon\":true");
            }
        }
        if let Some((name, value)) = record.what.outcome() {
            field(out, name, value);
        }
        record.what.fields(|name, value| field(out, name, value));
        out.extend_from_slice(b"}\n");
    }
}

#[inline]
fn field(out: &mut Vec<u8>, name: Word, value: Value) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.text().as_bytes());
    match value {
        Value::Bool(true) => out.extend_from_slice(b"\":true"),
        Value::Bool(false) => out.extend_from_slice(b"\":false"),
        Value::Number(value) => number(out, "\":", value),
        Value::Word(word) => {
            out.extend_from_slice(b"\":\"");
            out.extend_from_slice(word.text().as_bytes());
            out.push(b'"');
        }
    }
}

/// Writes a number after what is before it.
fn number(out: &mut Vec<u8>, before: &str, value: u64) {
    out.extend_from_slice(before.as_bytes());
    digits(out, value);
}

/// Writes a number.
fn digits(out: &mut Vec<u8>, mut value: u64) {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut n = 0;
        while n < 100 {
            pairs[n] = [b'0' + n as u8 / 10, b'0' + n as u8 % 10];
            n += 1;
        }
        pairs
    };
    // Two digits at a time: twenty at most.
    let mut text = [0; 20];
    let mut from = text.len();
    while value >= 10 {
        from -= 2;
        text[from..from + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if value > 0 || from == text.len() {
        from -= 1;
        text[from] = b'0' + value as u8;
    }
    out.extend_from_slice(&text[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_others_write_them() {
        for value in [0, 7, 9, 10, 99, 100, 101, 999, 1000, 10_203, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            digits(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
