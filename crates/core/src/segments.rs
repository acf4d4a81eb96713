//! A table that grows without moving: entries are found by number without a lock.
//!
//! Segments of 32, 32, 64, 128 … entries are made when one of their entries is; an entry is written
//! once and stays where it is. A small table stays small, and a sparse one costs 16 bytes per entry
//! that is skipped inside its segment. The first 32 entries are found with one comparison: they are
//! the first 4 GiB of a file.
//!
//! # Locking
//!
//! None: `OnceLock` lets one of several writers of an entry win.

use std::sync::OnceLock;

type Segment<T> = OnceLock<Box<[OnceLock<T>]>>;

/// Entries of the first segment.
const FIRST: u32 = 32;

/// Up to 16 × 2^`N` entries.
#[derive(Debug)]
pub(crate) struct Segments<T, const N: usize>([Segment<T>; N]);

impl<T, const N: usize> Segments<T, N> {
    pub(crate) fn new() -> Self {
        Segments(std::array::from_fn(|_| OnceLock::new()))
    }

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

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (segment, at) = Self::place(number);
        self.0[segment].get()?[at].get()
    }

    /// The number of the first entry at or after `number` that was made. Whole missing segments are
    /// skipped.
    pub(crate) fn first_from(&self, number: u32) -> Option<u32> {
        let (first, at) = Self::place(number);
        (first..N).find_map(|segment| {
            let entries = self.0[segment].get()?;
            let from = if segment == first { at } else { 0 };
            let found = entries[from..].iter().position(|entry| entry.get().is_some())?;
            Some((Self::extent(segment).0 + from + found) as u32)
        })
    }

    /// The entry of that number, made if it is missing.
    pub(crate) fn get_or_init(&self, number: u32, make: impl FnOnce() -> T) -> &T {
        let (segment, at) = Self::place(number);
        let entries =
            self.0[segment].get_or_init(|| (0..Self::extent(segment).1).map(|_| OnceLock::new()).collect());
        entries[at].get_or_init(make)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn missing_entries_are_skipped() {
        let table: Segments<u32, 12> = Segments::new();
        assert_eq!(table.first_from(0), None);
        for number in [5, 6, 4000] {
            table.get_or_init(number, || number);
        }
        let found = [0, 5, 6, 7, 3999, 4000].map(|from| table.first_from(from));
        assert_eq!(found, [5, 5, 6, 4000, 4000, 4000].map(Some));
        assert_eq!(table.first_from(4001), None);
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
