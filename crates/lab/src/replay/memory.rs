//! Memory and swap of a replay: a size, pages, or a percentage of the distinct pages of a trace.

use crate::error::Error;
use crate::size;
use mglru_core::PAGE_BYTES;
use mglru_core::lru::Swappiness;
use mglru_sim::{SwapDevice, SwapModel};
use std::str::FromStr;

/// Units per percent, so that `0.1%` is a whole number.
const PER_PERCENT: u64 = 1_000_000;

/// An amount of memory, as typed.
///
/// ```
/// use mglru_lab::replay::memory::Memory;
///
/// let pages = |text: &str| text.parse::<Memory>().unwrap().pages(|| 5000);
/// assert_eq!([pages("64MiB"), pages("100p"), pages("10%")], [16384, 100, 500]);
/// ```
#[derive(Debug, Clone)]
pub struct Memory {
    text: String,
    amount: Amount,
}

/// Amounts are equal however they are typed: `1MiB` and `256p`.
impl PartialEq for Memory {
    fn eq(&self, other: &Memory) -> bool {
        self.amount == other.amount
    }
}

impl Eq for Memory {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    Pages(u64),
    /// Share of the trace's distinct pages, in millionths of a percent.
    Share(u64),
}

impl Memory {
    /// The text as typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the amount depends on the trace.
    pub fn is_share(&self) -> bool {
        matches!(self.amount, Amount::Share(_))
    }

    /// The amount in pages, rounded up. `distinct_pages` is called for shares only.
    pub fn pages(&self, distinct_pages: impl FnOnce() -> u64) -> u64 {
        match self.amount {
            Amount::Pages(pages) => pages,
            Amount::Share(share) => {
                let millionths = u128::from(distinct_pages()) * u128::from(share);
                u64::try_from(millionths.div_ceil(100 * u128::from(PER_PERCENT))).unwrap_or(u64::MAX)
            }
        }
    }

    /// Parses an amount. `None`: it is nothing.
    pub(super) fn parse_any(text: &str) -> Result<Option<Memory>, String> {
        let text = text.trim();
        let amount = match text.strip_suffix('%') {
            Some(number) => Amount::Share(percent(number.trim())?),
            None => Amount::Pages(size::parse(text)? / PAGE_BYTES),
        };
        let is_nothing = matches!(amount, Amount::Pages(0) | Amount::Share(0));
        Ok((!is_nothing).then(|| Memory { text: text.to_owned(), amount }))
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Memory, String> {
        Memory::parse_any(text)?
            .ok_or_else(|| "expected at least one page of 4096 bytes, such as 64MiB, 8192p or 10%".to_owned())
    }
}

/// Largest swap size. A slot costs 8 bytes, so 1 TiB of swap costs 2 GiB.
const SWAP_PAGES_MAX: u64 = 1 << 28;

/// Swap for anonymous pages.
#[derive(Debug, Clone)]
pub struct Swap {
    /// Size; `None` keeps anonymous pages in memory.
    pub size: Option<Memory>,
    /// Swap is compressed memory rather than a disk: instant, and not charged to a tenant.
    pub zram: bool,
    /// Balance between anonymous and file pages in reclaim.
    pub swappiness: Swappiness,
    /// Most pages that a fault reads from a disk; `None`: its own page.
    pub readahead_pages: Option<u32>,
}

impl Default for Swap {
    fn default() -> Swap {
        Swap { size: None, zram: false, swappiness: Swappiness::DEFAULT, readahead_pages: None }
    }
}

impl Swap {
    /// Whether the size depends on the trace.
    pub fn is_share(&self) -> bool {
        self.size.as_ref().is_some_and(Memory::is_share)
    }

    /// The swap model for a trace with this number of distinct pages.
    ///
    /// # Errors
    /// If it is too large.
    pub fn model(&self, distinct_pages: u64) -> Result<Option<SwapModel>, Error> {
        let Some(size) = &self.size else { return Ok(None) };
        let pages = size.pages(|| distinct_pages).max(1);
        if pages > SWAP_PAGES_MAX {
            return Err(Error::usage("--swap: more than 1 TiB of swap cannot be simulated"));
        }
        if self.zram && self.readahead_pages.is_some() {
            return Err(Error::usage(
                "--swap-readahead: compressed memory is not read ahead; use --swap-device disk",
            ));
        }
        let device = if self.zram { SwapDevice::zram() } else { SwapDevice::lab_disk() };
        Ok(Some(SwapModel { pages: pages as u32, device }))
    }
}

fn percent(number: &str) -> Result<u64, String> {
    let wrong = || "a percentage must be a number with at most six decimals, such as 10% or 0.5%".to_owned();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 9 || decimals.len() > 6 || !digits(whole) || !digits(decimals) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let millionths: u64 = format!("{decimals:0<6}").parse().map_err(|_| wrong())?;
    Ok(whole * PER_PERCENT + millionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(text: &str, distinct: u64) -> u64 {
        text.parse::<Memory>().unwrap().pages(|| distinct)
    }

    #[test]
    fn memory_is_a_size_pages_or_a_share() {
        assert_eq!(pages("1MiB", 0), 256);
        assert_eq!(pages("8192p", 0), 8192);
        assert_eq!(pages("8193", 0), 2);
        assert_eq!(pages("10%", 1_000_000), 100_000);
        assert_eq!(pages("0.1%", 186_880), 187, "rounded up");
        assert_eq!(pages("0.000001%", 5), 1);
        assert_eq!(pages("200%", 7), 14);
    }

    #[test]
    fn invalid_memory_sizes_are_refused_with_a_reason() {
        for (text, why) in [
            ("0", "at least one page"),
            ("0p", "at least one page"),
            ("4095", "at least one page"),
            ("0%", "at least one page"),
            ("0.0%", "at least one page"),
            ("ten%", "a percentage"),
            ("%", "a percentage"),
            ("1e3%", "a percentage"),
            ("-5%", "a percentage"),
            ("0.1234567%", "six decimals"),
            ("10", "at least one page"),
            ("lots", "whole number"),
        ] {
            let error = text.parse::<Memory>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
