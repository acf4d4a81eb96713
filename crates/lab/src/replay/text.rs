//! Options of replays as text, as front ends get them.

use super::Options;
use super::memory::{Memory, Swap};
use crate::arguments::optional;
use crate::error::Error;
use crate::size;
use mglru_core::PAGE_BYTES;
use mglru_core::lru::Swappiness;
use mglru_core::readahead::SWAP_PAGES_MAX;
use mglru_sim::Writes;

/// Words for [`Options::writes`].
pub const WRITES: [(&str, Writes); 3] =
    [("rmw", Writes::AfterRead), ("blind", Writes::Overwrite), ("exact", Writes::AsRequested)];

/// The treatment of writes with this name.
///
/// # Errors
/// No treatment has this name; the text names those that exist.
pub fn parse_writes(name: &str) -> Result<Writes, String> {
    let found = WRITES.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, writes)| writes).ok_or_else(|| format!("unknown `{name}`; expected rmw, blind or exact"))
}

/// Options of replays as front ends get them: as text, and `None` where the user says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextOptions<'a> {
    /// A share of accesses: [`Options::warm`].
    pub warm: Option<&'a str>,
    /// A word for [`Options::writes`].
    pub writes: Option<&'a str>,
    /// Swap for anonymous pages.
    pub swap: TextSwap<'a>,
    /// A size: [`Options::readahead_pages`].
    pub readahead: Option<&'a str>,
    /// A size: [`Options::fault_around_pages`].
    pub fault_around: Option<&'a str>,
}

/// Swap as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextSwap<'a> {
    /// The size of swap, such as `64MiB`.
    pub size: Option<&'a str>,
    /// A word for its device.
    pub device: Option<&'a str>,
    /// A number, or `max`.
    pub swappiness: Option<&'a str>,
    /// A size: [`Swap::readahead_pages`].
    pub readahead: Option<&'a str>,
}

impl TextOptions<'_> {
    /// The options.
    ///
    /// # Errors
    /// The first invalid value, with its name. Writes as requests need them are for traces that are
    /// read with their requests, which only a single replay does.
    pub fn options(&self) -> Result<Options, Error> {
        let of_pages = |word: &str| match parse_writes(word) {
            Ok(Writes::AsRequested) | Err(_) => Err(format!("unknown `{word}`; expected rmw or blind")),
            writes => writes,
        };
        Ok(Options {
            warm: optional("warm", self.warm, parse_fraction)?,
            writes: optional("writes", self.writes, of_pages)?.unwrap_or_default(),
            swap: self.swap.swap()?,
            readahead_pages: optional("readahead", self.readahead, parse_readahead)?,
            fault_around_pages: optional("fault_around", self.fault_around, parse_fault_around)?,
            ..Options::default()
        })
    }
}

impl TextSwap<'_> {
    /// The swap.
    ///
    /// # Errors
    /// The first invalid value, with its name.
    pub fn swap(&self) -> Result<Swap, Error> {
        let default = Swap::default();
        Ok(Swap {
            size: optional("swap", self.size, parse_swap)?,
            zram: optional("swap_device", self.device, parse_is_zram)?.unwrap_or(default.zram),
            swappiness: optional("swappiness", self.swappiness, parse_swappiness)?
                .unwrap_or(default.swappiness),
            readahead_pages: optional("swap_readahead", self.readahead, parse_swap_readahead)?,
        })
    }
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

/// Parses the most that a fault reads from swap, in whole pages of 4 KiB.
///
/// # Errors
/// If the text is not a size from 4 KiB to 128 KiB.
pub fn parse_swap_readahead(text: &str) -> Result<u32, String> {
    let pages = size::parse(text)? / PAGE_BYTES;
    let valid = u32::try_from(pages).ok().filter(|pages| (1..=SWAP_PAGES_MAX).contains(pages));
    valid.ok_or_else(|| "expected 4KiB to 128KiB".to_owned())
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
