//! Memory of a replay: a size, pages, or a percentage of the trace's distinct pages.

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    text: String,
    amount: Amount,
}

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
}

impl Memory {
    /// Parses an amount that may be nothing: `None`.
    fn parse_any(text: &str) -> Result<Option<Memory>, String> {
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
}

impl Default for Swap {
    fn default() -> Swap {
        Swap { size: None, zram: false, swappiness: Swappiness::DEFAULT }
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

/// Parses a share of accesses, such as `0.25` or `25%`. It must be below 1.
///
/// # Errors
/// If the text is not a valid share.
pub fn parse_fraction(text: &str) -> Result<f64, String> {
    let (number, divisor) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let fraction = number.trim().parse::<f64>().ok().map(|number| number / divisor);
    fraction.filter(|fraction| (0.0..1.0).contains(fraction)).ok_or_else(|| {
        "a share of the accesses must be at least 0 and less than 1, such as 0.25 or 25%".to_owned()
    })
}

/// Parses a size of swap, at least a page.
///
/// # Errors
/// If the text is not a size.
pub fn parse_swap(text: &str) -> Result<Memory, String> {
    Memory::parse_any(text)?
        .ok_or_else(|| "swap needs at least 4096 bytes; leave the option out for no swap".to_owned())
}

/// Parses the kind of a swap device: whether it is compressed memory.
///
/// # Errors
/// If the text is neither `zram` nor `disk`.
pub fn parse_is_zram(text: &str) -> Result<bool, String> {
    match text {
        "zram" => Ok(true),
        "disk" => Ok(false),
        _ => Err(format!("unknown `{text}`; expected zram or disk")),
    }
}

/// Parses a swappiness: 0 to 200, or `max`, which is 201.
///
/// # Errors
/// If the text is no swappiness.
pub fn parse_swappiness(text: &str) -> Result<Swappiness, String> {
    if text == "max" {
        return Ok(Swappiness::ANON_ONLY);
    }
    let value = text.parse::<u8>().ok().and_then(Swappiness::new);
    value.ok_or_else(|| "expected 0 to 200, or max (201) for anonymous pages only".to_owned())
}

/// Parses the size of a readahead window, in whole pages of 4 KiB.
///
/// # Errors
/// If the text is not a size from 4 KiB to 256 MiB.
pub fn parse_readahead(text: &str) -> Result<u32, String> {
    let pages = size::parse(text)? / PAGE_BYTES;
    let valid = u32::try_from(pages).ok().filter(|pages| (1..=65_536).contains(pages));
    valid.ok_or_else(|| "expected 4KiB to 256MiB".to_owned())
}

/// Parses the size of a fault-around window, in pages of 4 KiB. A window of one page maps no other.
///
/// # Errors
/// If the text is not a power of two from 4 KiB to 2 MiB, which a page table maps.
pub fn parse_fault_around(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text)?;
    let is_valid = bytes.is_power_of_two() && (PAGE_BYTES..=512 * PAGE_BYTES).contains(&bytes);
    let pages = is_valid.then_some((bytes / PAGE_BYTES) as u32);
    pages.ok_or_else(|| "expected a power of two from 4KiB to 2MiB".to_owned())
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

    #[test]
    fn fractions() {
        assert_eq!(parse_fraction("0.25"), Ok(0.25));
        assert_eq!(parse_fraction("25%"), Ok(0.25));
        for text in ["1", "-0.1", "nan", "100%", "quarter"] {
            assert!(parse_fraction(text).unwrap_err().contains("less than 1"), "{text}");
        }
    }

    #[test]
    fn swappiness_ends_at_201() {
        let value = |text| parse_swappiness(text).unwrap().get();
        assert_eq!(["0", "60", "200", "201", "max"].map(value), [0, 60, 200, 201, 201]);
        for wrong in ["202", "256", "-1", "half", ""] {
            assert!(parse_swappiness(wrong).unwrap_err().contains("0 to 200"), "{wrong}");
        }
    }

    #[test]
    fn an_empty_swap_is_refused() {
        assert!(parse_swap("0").unwrap_err().contains("leave the option out"));
        assert_eq!(parse_swap("1MiB").unwrap().pages(|| 0), 256);
    }
}
