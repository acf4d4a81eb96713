//! Counts distinct pages in limited memory.
//!
//! A hash set needs up to 31 bytes per page while it grows, and a line of 15 bytes can ask for 2^32
//! pages. Here pages with small numbers, as those of the first file, are bits, and the others are
//! sorted numbers of 8 bytes:
//!
//! ```text
//! insert ──► bits     below SMALL_MAX: exact
//!      │
//!      └───► recent   unsorted, a half as many as `sorted`, or 64 Ki
//!               │ full: sort, remove what is known, merge in place
//!               ▼
//!            sorted   distinct, at most KEPT_MAX
//!               │ full: keep every other page by its hash, from now on
//!               ▼
//!            an estimate: pages kept × 2^halvings
//! ```
//!
//! The sample depends on page numbers only, so repeated accesses do not bias it. With between 2^25
//! and 2^26 pages kept, the standard error of the estimate is below 0.02 %. This is the sampling by
//! a threshold on the hash of SHARDS (Waldspurger et al., "Efficient MRC construction with SHARDS",
//! FAST 2015).

use crate::random::mix;

/// Upper limit of the pages that are kept: 512 MiB, and a half of that for recent ones.
const KEPT_MAX: usize = 1 << 26;
/// Smallest number of recent pages before they are merged, 512 KiB.
const RECENT_MIN: usize = 1 << 16;

/// Pages below this number, the first TiB of the first file, are counted by bits: at most 32 MiB.
const SMALL_MAX: u64 = 1 << 28;

/// The distinct pages of a trace.
#[derive(Debug)]
pub(super) struct DistinctPages {
    /// A bit for each small page, up to the largest one so far.
    bits: Vec<u64>,
    /// Distinct pages of the sample, in order.
    sorted: Vec<u64>,
    /// Pages of the sample that are not merged yet; some may be in `sorted` or repeated.
    recent: Vec<u64>,
    /// Pages whose hash has a one in this mask are not in the sample; 0 if all pages are.
    mask: u64,
    kept_max: usize,
}

impl Default for DistinctPages {
    fn default() -> Self {
        DistinctPages::with_limit(KEPT_MAX)
    }
}

impl DistinctPages {
    fn with_limit(kept_max: usize) -> Self {
        DistinctPages { bits: Vec::new(), sorted: Vec::new(), recent: Vec::new(), mask: 0, kept_max }
    }

    /// Adds a page.
    #[inline]
    pub fn insert(&mut self, page: u64) {
        if page < SMALL_MAX {
            let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
            match self.bits.get_mut(word) {
                Some(bits) => *bits |= bit,
                None => self.grow(word, bit),
            }
        } else {
            self.insert_large(page);
        }
    }

    /// Makes room for a word, which gets these bits.
    #[cold]
    fn grow(&mut self, word: usize, bits: u64) {
        // New zeros take no memory until they are used.
        let mut grown = vec![0; (word + 1).next_power_of_two()];
        grown[..self.bits.len()].copy_from_slice(&self.bits);
        grown[word] = bits;
        self.bits = grown;
    }

    fn insert_large(&mut self, page: u64) {
        if self.mask != 0 && mix(page) & self.mask != 0 {
            return;
        }
        // Many traces touch a page several times in a row.
        if self.recent.last() == Some(&page) {
            return;
        }
        if self.recent.len() == self.recent.capacity() {
            self.merge();
            self.recent.reserve_exact((self.sorted.len() / 2).max(RECENT_MIN.min(self.kept_max)));
        }
        self.recent.push(page);
    }

    /// Moves the recent pages into the sorted ones.
    fn merge(&mut self) {
        self.recent.sort_unstable();
        self.recent.dedup();
        let mut known = 0;
        let sorted = &self.sorted;
        self.recent.retain(|&page| {
            known += sorted[known..].partition_point(|&other| other < page);
            sorted.get(known) != Some(&page)
        });
        let (mut left, mut right) = (self.sorted.len(), self.recent.len());
        self.sorted.reserve_exact(right);
        self.sorted.resize(left + right, 0);
        // From the back, so that no page is overwritten before it is moved.
        while right > 0 {
            let to = left + right - 1;
            if left > 0 && self.sorted[left - 1] > self.recent[right - 1] {
                left -= 1;
                self.sorted[to] = self.sorted[left];
            } else {
                right -= 1;
                self.sorted[to] = self.recent[right];
            }
        }
        self.recent = Vec::new();
        while self.sorted.len() > self.kept_max {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.sorted.retain(|&page| mix(page) & mask == 0);
        }
    }

    /// Number of distinct pages.
    pub fn count(&mut self) -> u64 {
        self.merge();
        let small: u64 = self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum();
        small + self.sorted.len() as u64 * (self.mask + 1)
    }

    /// Whether the number is an estimate.
    pub fn is_estimate(&self) -> bool {
        self.mask != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeSet;

    fn bytes(pages: &DistinctPages) -> usize {
        (pages.bits.capacity() + pages.sorted.capacity() + pages.recent.capacity()) * size_of::<u64>()
    }

    #[test]
    fn counts_are_exact_below_the_limit() {
        let mut random = Random::new(1);
        let (mut pages, mut expected) = (DistinctPages::default(), BTreeSet::new());
        for round in 0..400_000u64 {
            let page = if round % 3 == 0 { round / 30 } else { random.below(200_000) << 20 };
            pages.insert(page);
            expected.insert(page);
        }
        assert_eq!((pages.count(), pages.is_estimate()), (expected.len() as u64, false));
        assert!(pages.sorted.iter().eq(expected.range(SMALL_MAX..)));
    }

    #[test]
    fn small_pages_are_bits() {
        let mut pages = DistinctPages::default();
        for page in [70, 0, 63, 64, 70, SMALL_MAX - 1, SMALL_MAX, 5, SMALL_MAX] {
            pages.insert(page);
        }
        assert_eq!((pages.count(), pages.is_estimate()), (7, false));
        assert_eq!((pages.bits.len() as u64 * 64, &pages.sorted[..]), (SMALL_MAX, &[SMALL_MAX][..]));
        assert_eq!(pages.bits.capacity() * size_of::<u64>(), 32 << 20);
    }

    #[test]
    fn memory_is_at_most_16_bytes_per_page_and_ends_at_the_limit() {
        let mut pages = DistinctPages::with_limit(1 << 16);
        for page in 0..1 << 20 {
            pages.insert(SMALL_MAX + page);
            let most = (page as usize + 1).min(1 << 16) * 16 + RECENT_MIN * 8;
            assert!(bytes(&pages) <= most, "{} bytes after page {page}", bytes(&pages));
        }
        let count = pages.count();
        // Five standard errors of a sample of 2^15 pages.
        assert!(pages.is_estimate() && count.abs_diff(1 << 20) < (1 << 20) / 36, "{count}");
    }
}
