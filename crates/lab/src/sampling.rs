//! Replays a sample of the pages of a trace in an equal share of the memory.
//!
//! A page is in the sample if its hash is below a threshold, so all of its accesses are, or none.
//! The sample of a share of 1 % has about 1 % of the pages. It meets 1 % of the memory as the trace
//! meets all of it, so the miss ratios agree. A page with a large part of all accesses would shift
//! them; its accesses are hits in any memory, so the difference from the expected number of
//! accesses is counted as hits. Source: Waldspurger et al., "Efficient MRC construction with
//! SHARDS", FAST 2015: fixed-rate sampling, and the adjustment of its section 5.
//!
//! ```
//! use mglru_lab::sampling::Sample;
//!
//! let sample: Sample = "1%".parse().unwrap();
//! let kept = (0..1_000_000).filter(|&page| sample.keeps(page, false)).count();
//! assert!((9_500..10_500).contains(&kept));
//! ```

use crate::error::Error;
use mglru_workload::random::mix;
use mglru_workload::trace::{PageAccess, Record, Trim};
use std::collections::HashMap;
use std::str::FromStr;

/// Pages that have the same number and kind have the same hash in every trace. It differs from
/// those that place pages in tables.
const SALTS: [u64; 2] = [0x5A3D_1E5A_5A3D_1E5A, 0xA40A_A40A_1234_5678];

/// An odd number that spreads the salts of a user over all bits.
const SALT_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A share of the pages. Samples with other salts have other pages: the spread of their miss ratios
/// shows how far off one of them may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    share: f64,
    threshold: u64,
    salt: u32,
}

/// A trace of which only the sample was kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// The sample.
    pub sample: Sample,
    /// Accesses of the whole trace.
    pub accesses: u64,
}

impl Sample {
    /// A sample of this share of the pages, above 0 and below 1.
    ///
    /// # Errors
    /// If the share is out of range.
    pub fn new(share: f64) -> Result<Sample, Error> {
        if !(share > 0.0 && share < 1.0) {
            return Err(Error::usage(format_args!(
                "a sample of {share} of the pages: expected a share above 0 and below 1, such as 0.01 or 1%"
            )));
        }
        Ok(Sample { share, threshold: (share * u64::MAX as f64) as u64, salt: 0 })
    }

    /// The same share of other pages. Salt 0 is that of [`Sample::new`].
    pub fn with_salt(self, salt: u32) -> Sample {
        Sample { salt, ..self }
    }

    /// This many samples of the same share: of this salt and of those that follow it.
    pub fn with_salts(self, salts: u32) -> impl Iterator<Item = Sample> {
        (0..salts).map(move |further| self.with_salt(self.salt.wrapping_add(further)))
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.share
    }

    /// The salt.
    pub fn salt(self) -> u32 {
        self.salt
    }

    /// Whether a page is in the sample.
    #[inline]
    pub fn keeps(self, page: u64, anon: bool) -> bool {
        let salt = u64::from(self.salt).wrapping_mul(SALT_STEP);
        mix(page ^ SALTS[usize::from(anon)] ^ salt) < self.threshold
    }

    /// Whether a record is in the sample: an access to one of its pages, or what files are told. Of
    /// a request, not all pages are.
    pub fn keeps_record(self, record: &Record) -> bool {
        match record {
            Record::Access(access) => self.keeps(access.page, access.anon),
            Record::Sync { .. } | Record::Trim(_) => true,
            Record::Request(_) => false,
        }
    }

    /// The part of a number of pages that belongs to the sample, at least one.
    pub fn part(self, pages: u64) -> u64 {
        ((pages as f64 * self.share).round() as u64).max(1)
    }

    /// The number of pages that a part of the sample stands for.
    pub fn whole(self, part: u64) -> u64 {
        (part as f64 / self.share).round() as u64
    }
}

impl FromStr for Sample {
    type Err = Error;

    /// A share, and a salt behind `#`: `0.01`, `1%`, `1%#7`.
    fn from_str(text: &str) -> Result<Sample, Error> {
        let wrong = || Error::usage(format_args!("`{text}` is not a share; expected 0.01 or 1%"));
        let (share, salt) = text.split_once('#').unwrap_or((text, "0"));
        let (number, divisor) = match share.trim().strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (share, 1.0),
        };
        let share = number.trim().parse::<f64>().map_err(|_| wrong())?;
        Ok(Sample::new(share / divisor)?.with_salt(salt.trim().parse().map_err(|_| wrong())?))
    }
}

impl Sampled {
    /// Accesses that a sample of average pages would have, for `accesses` of the whole trace.
    pub fn expected(&self, accesses: u64) -> u64 {
        (accesses as f64 * self.sample.share).round() as u64
    }
}

/// The sample's records with its pages moved together: each file keeps its number and the order of
/// its pages, and is as short as its share of the pages.
///
/// The index of a file keeps the shadows of 64 neighbours together and drops them together, and
/// page table walks look at neighbours. A sample with its pages where they were would have few
/// neighbours. Measured: with a sample of 10 %, `default` was then up to 2.8 points off instead of
/// .8 ([book: python#samples-of-long-traces]).
pub fn moved_together(records: &[Record], share: f64) -> Vec<Record> {
    let name = |record: &Record| record.access().map(|access| (access.anon, access.page));
    let mut pages: Vec<(bool, u64)> = records.iter().filter_map(name).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut places: HashMap<(bool, u64), u64> = HashMap::with_capacity(pages.len());
    let mut last = None;
    for &(anon, page) in &pages {
        let (file, index) = (page >> INDEX_BITS, page & INDEX_MASK);
        // Behind the page before it, where the sample is denser than on average.
        let least = match last {
            Some((before, at)) if before == (anon, file) => at + 1,
            _ => 0,
        };
        let at = ((index as f64 * share) as u64).max(least);
        last = Some(((anon, file), at));
        places.insert((anon, page), file << INDEX_BITS | at);
    }
    let moved = |record: &Record| match *record {
        Record::Access(access) => {
            Some(Record::Access(PageAccess { page: places[&(access.anon, access.page)], ..access }))
        }
        Record::Sync { .. } => Some(*record),
        // Not all of its pages are in the sample.
        Record::Request(_) => None,
        // The order stays, so no other page is between the first and the last.
        Record::Trim(Trim { page, pages: count }) => {
            let from = pages.partition_point(|&place| place < (false, page));
            let to = pages.partition_point(|&place| place < (false, page.saturating_add(count.into())));
            let trimmed = &pages[from..to];
            let (first, last) = (places[trimmed.first()?], places[trimmed.last()?]);
            let pages = u32::try_from(last - first + 1).unwrap_or(u32::MAX);
            Some(Record::Trim(Trim { page: first, pages }))
        }
    };
    records.iter().filter_map(moved).collect()
}

/// A page's place in its file is in the lower bits of its number.
const INDEX_BITS: u32 = 32;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_dense_as_its_trace() {
        let access = |page, anon| Record::Access(PageAccess { anon, ..PageAccess::read(page) });
        let page = |record: &Record| record.access().expect("an access").page;
        let sample = Sample::new(0.1).unwrap();
        let (a, b) = (7 << 32, 8 << 32);
        let of_file = |file: u64| (0..100_000).map(move |index| file | index);
        let all = of_file(a).chain(of_file(b)).filter(|&page| sample.keeps(page, false));
        let mut records: Vec<Record> = all.map(|page| access(page, false)).collect();
        records.push(Record::Sync { file: 7 });
        records.push(access(a | 50_000, true));
        let moved = moved_together(&records, 0.1);
        let sync = moved.iter().position(|record| matches!(record, Record::Sync { file: 7 })).unwrap();
        assert_eq!(page(&moved[sync + 1]), a | 5000, "anonymous pages have places of their own");
        let pages: Vec<u64> = moved[..sync].iter().map(page).collect();
        assert!(pages.is_sorted_by(|one, next| one < next), "the order stays, and no two share a place");
        let of_a = pages.iter().filter(|&&page| page < b).count();
        assert!(pages[of_a - 1] < a + 10_600 && pages[of_a] < b + 20 && pages[pages.len() - 1] < b + 10_600);
        // Every 64 places have nearly 64 pages.
        assert!((9_500..10_500).contains(&of_a), "{of_a}");
        assert_eq!(moved_together(&moved[..sync], 1.0), moved[..sync], "once is enough");
        // Removed pages stay the same pages; a trim of none of them is left out.
        let trim = |page, end| Record::Trim(Trim { page, pages: (end - page) as u32 });
        let (first, last) = (page(&records[700]), page(&records[900]));
        let trims = [trim(first, last + 1), trim(first, first)];
        let with_trims = moved_together(&[&records[..], &trims].concat(), 0.1);
        assert_eq!(with_trims.len(), records.len() + 1);
        assert_eq!(with_trims[records.len()], trim(pages[700], pages[900] + 1));
    }

    #[test]
    fn shares_are_parsed_and_bounded() {
        assert_eq!("0.01".parse::<Sample>().unwrap(), "1%".parse::<Sample>().unwrap());
        assert_eq!("1%#7".parse::<Sample>().unwrap(), Sample::new(0.01).unwrap().with_salt(7));
        for wrong in ["0", "1", "100%", "-0.1", "nan", "inf", "half", "", "1%#", "1%#-1", "#1"] {
            let error = wrong.parse::<Sample>().unwrap_err();
            assert!(error.text().contains("0.01 or 1%"), "{wrong}: {error}");
        }
    }

    #[test]
    fn anonymous_and_file_pages_are_drawn_apart() {
        let sample = Sample::new(0.5).unwrap();
        let same = (0..10_000).filter(|&page| sample.keeps(page, false) == sample.keeps(page, true)).count();
        assert!((4500..5500).contains(&same), "{same}");
    }

    #[test]
    fn samples_with_other_salts_have_other_pages() {
        let keeps = |salt: u32| {
            let sample = Sample::new(0.1).unwrap().with_salt(salt);
            (0..100_000u64).filter(|&page| sample.keeps(page, false)).collect::<Vec<_>>()
        };
        let (first, second) = (keeps(0), keeps(1));
        let both = first.iter().filter(|page| second.binary_search(page).is_ok()).count();
        assert!((9_500..10_500).contains(&second.len()) && (800..1200).contains(&both), "{both}");
    }

    #[test]
    fn parts_are_at_least_a_page() {
        let sample = Sample::new(0.01).unwrap();
        assert_eq!([0, 1, 1000, 12_345].map(|pages| sample.part(pages)), [1, 1, 10, 123]);
        assert_eq!(sample.whole(123), 12_300);
    }
}
