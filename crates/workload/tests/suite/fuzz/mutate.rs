//! Mutations of samples: the bytes that a hostile or damaged file could have.

use mglru_workload::Random;

/// Longest mutated input in bytes, about 30 times the longest sample.
const BYTES_MAX: usize = 1 << 15;
/// Numbers at which arithmetic breaks.
const NUMBERS: [&str; 15] = [
    "0",
    "-1",
    "1",
    "255",
    "4095",
    "4096",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "4294967297",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e999",
];
/// Bytes that end or begin something in one of the formats.
const BYTES: &[u8] = b"\0\x01\x7f\x80\xff\n\r\t \"'\\,;:=[]{}#$%*+-.0129";
const WORDS: [u64; 8] = [0, 1, 0xff, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, u64::MAX];

fn below(random: &mut Random, limit: usize) -> usize {
    random.below(limit as u64) as usize
}

/// A range of up to a quarter of `bytes`, at least one byte long if there is one.
fn range(random: &mut Random, bytes: &[u8]) -> std::ops::Range<usize> {
    let start = below(random, bytes.len() + 1);
    let most = (bytes.len() / 4 + 1).min(bytes.len() - start);
    start..start + if most == 0 { 0 } else { 1 + below(random, most) }
}

/// The samples of a parser, and the words in them.
pub struct Samples {
    pub files: Vec<(String, Vec<u8>)>,
    words: Vec<Vec<u8>>,
}

impl Samples {
    pub fn new(files: Vec<(String, Vec<u8>)>) -> Samples {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(byte);
        let words = files.iter().flat_map(|(_, bytes)| bytes.split(|byte| !is_part(byte)));
        let mut words: Vec<Vec<u8>> =
            words.filter(|word| (2..40).contains(&word.len())).map(Vec::from).collect();
        words.sort();
        words.dedup();
        Samples { files, words }
    }

    /// A mutated sample with the name of the original.
    pub fn mutated(&self, random: &mut Random) -> (&str, Vec<u8>) {
        let (name, sample) = &self.files[below(random, self.files.len())];
        let mut bytes = sample.clone();
        // Often one change, sometimes many.
        let most = 1 << below(random, 5);
        for _ in 0..1 + below(random, most) {
            self.change(random, &mut bytes);
            bytes.truncate(BYTES_MAX);
        }
        (name, bytes)
    }

    fn change(&self, random: &mut Random, bytes: &mut Vec<u8>) {
        let part = range(random, bytes);
        match random.below(12) {
            0 => {
                if let Some(byte) = bytes.get_mut(part.start) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(part.start) {
                    *byte = BYTES[below(random, BYTES.len())];
                }
            }
            2 => drop(bytes.drain(part)),
            3 => {
                let most = 1 << below(random, 8);
                let copies = 1 + below(random, most);
                let copied = bytes[part.clone()].repeat(copies.min(BYTES_MAX / (part.len() + 1)));
                bytes.splice(part.start..part.start, copied);
            }
            4 => {
                let copied = bytes[range(random, bytes)].to_vec();
                bytes.splice(part, copied);
            }
            5 => {
                let (_, other) = &self.files[below(random, self.files.len())];
                bytes.splice(part, other[range(random, other)].iter().copied());
            }
            6 => {
                // The number that begins at or after a random place.
                let digit = |byte: &u8| byte.is_ascii_digit();
                let Some(start) = bytes[part.start..].iter().position(digit) else { return };
                let start = part.start + start;
                let length = bytes[start..].iter().take_while(|byte| digit(byte)).count();
                bytes.splice(start..start + length, NUMBERS[below(random, NUMBERS.len())].bytes());
            }
            7 if !self.words.is_empty() => {
                let word = &self.words[below(random, self.words.len())];
                let replaced = part.start..if random.below(2) == 0 { part.start } else { part.end };
                bytes.splice(replaced, word.iter().copied());
            }
            8 => bytes.truncate(part.start),
            9 => {
                let word = WORDS[below(random, WORDS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][below(random, 4)].min(bytes.len() - part.start);
                bytes[part.start..part.start + width].copy_from_slice(&word[..width]);
            }
            10 => {
                let noise: Vec<u8> = (0..1 + random.below(8)).map(|_| random.next_u64() as u8).collect();
                bytes.splice(part.start..part.start, noise);
            }
            _ => {
                // Lines change places, or occur twice.
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
                if !lines.is_empty() {
                    let (from, to) = (below(random, lines.len()), below(random, lines.len()));
                    let line = if random.below(2) == 0 { lines.remove(from) } else { lines[from] };
                    lines.insert(to.min(lines.len()), line);
                    *bytes = lines.concat();
                }
            }
        }
    }
}
