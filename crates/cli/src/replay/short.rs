//! Bytes of one event, before they are added to a file's.
//!
//! Their room is fixed, and words are copied with what follows them, as so many bytes as the
//! longest has: that takes a few instructions, where a vector that may have to grow and a copy of a
//! length that nobody knows take a call each. Events cost a fifth less for it.

use mglru_lab::replay::word::{PADDED_BYTES, Word};

/// More than an event has: five numbers of 20 digits, six names and words.
const ROOM: usize = 512;

/// Some bytes.
#[derive(Debug)]
pub struct Short {
    bytes: [u8; ROOM],
    len: usize,
}

impl Short {
    /// None.
    pub fn new() -> Short {
        Short { bytes: [0; ROOM], len: 0 }
    }

    /// What is there.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// How many there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Keeps the first `len`.
    #[inline(always)]
    pub fn truncate(&mut self, len: usize) {
        self.len = len;
    }

    /// Changes one.
    #[inline(always)]
    pub fn set(&mut self, at: usize, byte: u8) {
        self.bytes[at % ROOM] = byte;
    }

    /// Adds one.
    #[inline(always)]
    pub fn push(&mut self, byte: u8) {
        self.set(self.len, byte);
        self.len += 1;
    }

    /// Adds text that the compiler knows.
    #[inline(always)]
    pub fn text(&mut self, text: &str) {
        let end = self.len + text.len();
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
    }

    /// Adds a word.
    #[inline(always)]
    pub fn word(&mut self, word: Word) {
        self.bytes[self.len..self.len + PADDED_BYTES].copy_from_slice(word.padded());
        self.len += word.text().len();
    }

    /// Adds a number in decimal digits.
    #[inline]
    pub fn digits(&mut self, mut value: u64) {
        const PAIRS: [[u8; 2]; 100] = {
            let mut pairs = [[0; 2]; 100];
            let mut n = 0;
            while n < 100 {
                pairs[n] = [b'0' + n as u8 / 10, b'0' + n as u8 % 10];
                n += 1;
            }
            pairs
        };
        // From the end on, two digits at a time.
        let mut at = self.len + value.checked_ilog10().map_or(1, |log| log as usize + 1);
        self.len = at;
        while value >= 10 {
            at -= 2;
            self.bytes[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
            value /= 100;
        }
        // None are left of an even number of them.
        if value > 0 || at == self.len {
            self.set(at - 1, b'0' + value as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_lab::replay::word::WORDS;

    #[test]
    fn numbers_are_written_as_others_write_them() {
        for value in [0, 7, 9, 10, 99, 100, 101, 999, 1000, 10_203, 12_345, u64::MAX - 1, u64::MAX] {
            let mut bytes = Short::new();
            bytes.digits(value);
            assert_eq!(bytes.as_slice(), value.to_string().as_bytes());
        }
    }

    #[test]
    fn pieces_follow_each_other() {
        for word in WORDS {
            let mut bytes = Short::new();
            bytes.text("<");
            bytes.digits(42);
            bytes.word(Word::of(word));
            bytes.push(b'>');
            assert_eq!(bytes.as_slice(), format!("<42{word}>").as_bytes());
        }
    }
}
