//! A table that grows without moving: lookups by number take no lock.
//!
//! The first 32 entries are there from the beginning, and one comparison finds them: they are the
//! first 4 GiB of a file. Segments of 32, 64, 128 … further ones are created with their first
//! entry. An entry is written once and never moves. A sparse table costs 16 bytes per missing entry
//! in a segment.
//!
//! # Locking
//!
//! None: if several threads write an entry, `OnceLock` lets one win.

use crate::sync::{AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

type Segment<T> = OnceLock<Box<[OnceLock<T>]>>;

/// Entries of the first segment.
const FIRST: u32 = 32;

/// The segment of an entry, and its place in it.
#[inline]
fn place(number: u32) -> (usize, usize) {
    if number < FIRST {
        return (0, number as usize);
    }
    let segment = (number / FIRST).ilog2();
    (segment as usize + 1, (number - (FIRST << segment)) as usize)
}

/// Where a segment begins, and how many entries it has.
fn extent(segment: usize) -> (usize, usize) {
    if segment == 0 {
        (0, FIRST as usize)
    } else {
        ((FIRST as usize / 2) << segment, (FIRST as usize / 2) << segment)
    }
}

/// A table of up to 32 × 2^`N` entries. Those of the first segment are there from the beginning.
#[derive(Debug)]
pub(crate) struct Segments<T, const N: usize> {
    first: Box<[OnceLock<T>]>,
    later: [Segment<T>; N],
}

impl<T, const N: usize> Segments<T, N> {
    pub(crate) fn new() -> Self {
        Segments {
            first: (0..FIRST).map(|_| OnceLock::new()).collect(),
            later: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        if let Some(entry) = self.first.get(number as usize) {
            return entry.get();
        }
        self.get_later(number)
    }

    #[cold]
    #[inline(never)]
    fn get_later(&self, number: u32) -> Option<&T> {
        let (segment, at) = place(number);
        self.later[segment - 1].get()?[at].get()
    }

    /// The entry of this number, created by `make` if it is missing.
    pub(crate) fn get_or_init(&self, number: u32, make: impl FnOnce() -> T) -> &T {
        let (segment, at) = place(number);
        if segment == 0 {
            return self.first[at].get_or_init(make);
        }
        let entries =
            self.later[segment - 1].get_or_init(|| (0..extent(segment).1).map(|_| OnceLock::new()).collect());
        entries[at].get_or_init(make)
    }
}

/// A table of words by number, up to 32 × 2^`N`, 0 where none was stored: like [`Segments`], but
/// with mutable words, and with the first ones inside of it.
#[derive(Debug)]
pub(crate) struct Words<const N: usize> {
    first: [AtomicU32; FIRST as usize],
    later: [OnceLock<Box<[AtomicU32]>>; N],
}

impl<const N: usize> Words<N> {
    pub(crate) fn new() -> Self {
        Words {
            first: std::array::from_fn(|_| AtomicU32::new(0)),
            later: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// The word of this number, if its segment exists.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&AtomicU32> {
        if let Some(word) = self.first.get(number as usize) {
            return Some(word);
        }
        self.get_later(number)
    }

    #[cold]
    #[inline(never)]
    fn get_later(&self, number: u32) -> Option<&AtomicU32> {
        let (segment, at) = place(number);
        self.later[segment - 1].get()?.get(at)
    }

    /// Bytes that creating this word's segment would take.
    pub(crate) fn growth_bytes(&self, number: u32) -> u64 {
        let (segment, _) = place(number);
        if segment == 0 || self.later[segment - 1].get().is_some() { 0 } else { extent(segment).1 as u64 * 4 }
    }

    /// The word of that number, in a segment that is made if it is missing. One thread at a time.
    pub(crate) fn get_or_make(&self, number: u32) -> &AtomicU32 {
        let (segment, at) = place(number);
        if segment == 0 {
            return &self.first[at];
        }
        let make = || (0..extent(segment).1).map(|_| AtomicU32::new(0)).collect();
        &self.later[segment - 1].get_or_init(make)[at]
    }

    /// Bytes of the segments that were made.
    pub(crate) fn bytes(&self) -> u64 {
        self.later.iter().filter_map(OnceLock::get).map(|words| size_of_val(&**words) as u64).sum()
    }

    /// The number of the first word at or after `number` that is not 0. Segments that are missing
    /// are skipped.
    pub(crate) fn first_from(&self, number: u32) -> Option<u32> {
        let (first, at) = place(number);
        (first..=N).find_map(|segment| {
            let words = match segment {
                0 => &self.first[..],
                _ => self.later[segment - 1].get()?,
            };
            let from = if segment == first { at } else { 0 };
            let found = words[from..].iter().position(|word| word.load(Relaxed) != 0)?;
            Some((extent(segment).0 + from + found) as u32)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn missing_words_are_skipped() {
        let table: Words<11> = Words::new();
        assert_eq!(table.first_from(0), None);
        for number in [5, 6, 4000] {
            table.get_or_make(number).store(number, Relaxed);
        }
        let found = [0, 5, 6, 7, 3999, 4000].map(|from| table.first_from(from));
        assert_eq!(found, [5, 5, 6, 4000, 4000, 4000].map(Some));
        assert_eq!(table.first_from(4001), None);
        assert_eq!((table.bytes(), table.growth_bytes(4001), table.growth_bytes(31)), (2048 * 4, 0, 0));
        assert_eq!((table.growth_bytes(32), table.growth_bytes(100)), (32 * 4, 64 * 4));
        assert!(table.get(32).is_none() && table.get(31).is_some());
    }

    #[test]
    fn the_first_word_in_use_is_found_from_anywhere() {
        let (table, mut used) = (Words::<12>::new(), std::collections::BTreeSet::new());
        for step in 0..400_u32 {
            let number = step.wrapping_mul(0x9e37_79b9) >> (15 + step % 12);
            table.get_or_make(number).store(1, Relaxed);
            used.insert(number);
            let removed = used.iter().nth(step as usize * 7 % 40).copied().filter(|_| step % 3 == 0);
            if let Some(removed) = removed {
                table.get_or_make(removed).store(0, Relaxed);
                used.remove(&removed);
            }
            for from in [0, number, number + 1, number / 2, removed.unwrap_or(131_071)] {
                assert_eq!(table.first_from(from), used.range(from..).next().copied(), "from {from}");
            }
        }
    }

    #[test]
    fn entries_stay_where_they_are() {
        let table: Segments<u32, 12> = Segments::new();
        let first: *const u32 = table.get_or_init(0, || 0);
        for number in (0..4095).rev() {
            assert_eq!(*table.get_or_init(number, || number), number);
        }
        assert!((0..4095).all(|number| table.get(number) == Some(&number)));
        assert_eq!(table.get(0).map(|entry| entry as *const u32), Some(first));
        assert_eq!(*table.get_or_init(7, || 99), 7, "an entry is written once");
    }
}
