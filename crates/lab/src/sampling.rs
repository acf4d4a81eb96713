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
use std::str::FromStr;

/// Pages that have the same number and kind have the same hash in every trace. It differs from
/// those that place pages in tables.
const SALTS: [u64; 2] = [0x5A3D_1E5A_5A3D_1E5A, 0xA40A_A40A_1234_5678];

/// A share of the pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    share: f64,
    threshold: u64,
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
        Ok(Sample { share, threshold: (share * u64::MAX as f64) as u64 })
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.share
    }

    /// Whether a page is in the sample.
    #[inline]
    pub fn keeps(self, page: u64, anon: bool) -> bool {
        mix(page ^ SALTS[usize::from(anon)]) < self.threshold
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

    fn from_str(text: &str) -> Result<Sample, Error> {
        let (number, divisor) = match text.trim().strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        let share = number.trim().parse::<f64>().map(|number| number / divisor);
        Sample::new(
            share.map_err(|_| Error::usage(format_args!("`{text}` is not a share; expected 0.01 or 1%")))?,
        )
    }
}

impl Sampled {
    /// Accesses that a sample of average pages would have, for `accesses` of the whole trace.
    pub fn expected(&self, accesses: u64) -> u64 {
        (accesses as f64 * self.sample.share).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parsed_and_bounded() {
        assert_eq!("0.01".parse::<Sample>().unwrap(), "1%".parse::<Sample>().unwrap());
        for wrong in ["0", "1", "100%", "-0.1", "nan", "inf", "half", ""] {
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
    fn parts_are_at_least_a_page() {
        let sample = Sample::new(0.01).unwrap();
        assert_eq!([0, 1, 1000, 12_345].map(|pages| sample.part(pages)), [1, 1, 10, 123]);
        assert_eq!(sample.whole(123), 12_300);
    }
}
