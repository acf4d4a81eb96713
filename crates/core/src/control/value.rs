//! Parsing and formatting of control file values.

use super::error::{Errno, Failure};
use crate::lru::Swappiness;
use crate::memcg::UNLIMITED;
use crate::options::PAGE_BYTES;

/// The largest limit in pages, as in the kernel; more means no limit.
const LIMIT_PAGES_MAX: u64 = i64::MAX as u64 / PAGE_BYTES;

fn invalid(reason: String) -> Failure {
    (Errno::Invalid, reason)
}

/// The number at the start of `text`, decimal, octal (`0…`) or hexadecimal (`0x…`), and the rest.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hex.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(rest) => (rest, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    // Only digits: an overflow means no limit.
    Some((u64::from_str_radix(&digits[..end], radix).unwrap_or(u64::MAX), &digits[end..]))
}

/// A number in any of those notations, without a rest.
pub(super) fn number(text: &str) -> Result<u64, Failure> {
    match leading_number(text) {
        Some((number, "")) => Ok(number),
        _ => Err(invalid(format!("'{text}' is not a number"))),
    }
}

/// A number of at most 32 bits, as the switches of the multi-gen LRU take.
pub(super) fn small_number(text: &str) -> Result<u64, Failure> {
    let number = number(text)?;
    let is_small = u32::try_from(number).is_ok();
    is_small.then_some(number).ok_or_else(|| invalid(format!("'{text}' is larger than 4294967295")))
}

/// The size at the start of `text`, in whole pages, and the rest.
fn leading_size(text: &str) -> Option<(u64, &str)> {
    let (number, rest) = leading_number(text)?;
    let power = rest.chars().next().and_then(|suffix| "KMGTPE".find(suffix.to_ascii_uppercase()));
    let (shift, rest) = power.map_or((0, rest), |power| (10 * (power as u32 + 1), &rest[1..]));
    let bytes = number.saturating_mul(1 << shift);
    Some((bytes / PAGE_BYTES, rest))
}

/// A limit or protection in pages; `max` and what is too large to be one are [`UNLIMITED`].
pub(super) fn limit(text: &str) -> Result<u64, Failure> {
    let text = text.trim();
    if text == "max" {
        return Ok(UNLIMITED);
    }
    match leading_size(text) {
        Some((pages, "")) => Ok(if pages >= LIMIT_PAGES_MAX { UNLIMITED } else { pages }),
        _ => Err(invalid(format!("'{text}' is neither a size in bytes, like 64M, nor 'max'"))),
    }
}

pub(super) fn limit_text(pages: u64) -> String {
    if pages >= LIMIT_PAGES_MAX { "max\n".to_owned() } else { bytes_text(pages) }
}

/// Pages, as a line of bytes.
pub(super) fn bytes_text(pages: u64) -> String {
    format!("{}\n", pages * PAGE_BYTES)
}

/// 0 or 1, in any of those notations.
pub(super) fn flag(text: &str) -> Result<bool, Failure> {
    match number(text.trim()) {
        Ok(value @ 0..=1) => Ok(value == 1),
        _ => Err(invalid(format!("'{}' is neither 0 nor 1", text.trim()))),
    }
}

/// A swappiness: 0 to 200, or `max`.
pub(super) fn swappiness(text: &str) -> Result<Swappiness, Failure> {
    if text == "max" {
        return Ok(Swappiness::ANON_ONLY);
    }
    let value = number(text).ok().and_then(|value| u8::try_from(value).ok());
    let known = value.filter(|&value| value <= 200).and_then(Swappiness::new);
    known.ok_or_else(|| invalid(format!("the swappiness '{text}' is neither 0 to 200 nor 'max'")))
}

/// A request to `memory.reclaim`: pages, and optionally a swappiness for this request.
pub(super) fn request(text: &str) -> Result<(u64, Option<Swappiness>), Failure> {
    let text = text.trim();
    let Some((pages, rest)) = leading_size(text) else {
        return Err(invalid(format!("'{text}' does not begin with a size in bytes, like 64M")));
    };
    let mut wanted = None;
    for word in rest.split_whitespace() {
        let Some(value) = word.strip_prefix("swappiness=") else {
            return Err(invalid(format!("'{word}' is unknown: only swappiness= may follow the size")));
        };
        wanted = Some(swappiness(value)?);
    }
    Ok((pages, wanted))
}

/// A value of `lru_gen/enabled` that is not the name of a policy: a number, or a word that begins
/// with y (all bits) or n (none).
pub(super) fn capabilities(text: &str) -> Result<u64, Failure> {
    let text = text.trim();
    match text.chars().next() {
        Some('y' | 'Y') => Ok(u64::MAX),
        Some('n' | 'N') => Ok(0),
        // A name that is no policy's comes here, too.
        Some(letter) if letter.is_ascii_alphabetic() => {
            Err(invalid(format!("'{text}' is not a number, y, n or the name of a policy, such as ranked")))
        }
        _ => small_number(text),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// [book: control-files#memcg-files]: "Sizes accept suffixes K, M, G, T, P, E (powers of 1024)
    /// and are truncated to whole pages."
    #[test]
    fn sizes_are_truncated_to_pages() {
        for (text, pages) in [
            ("0", 0),
            ("4095", 0),
            ("4096", 1),
            (" 10000\n", 2),
            ("9k", 2),
            ("1M", 256),
            ("3g", 3 << 18),
            ("1T", 1 << 28),
            ("2P", 1 << 39),
            ("1E", 1 << 48),
            ("0x2000", 2),
            ("010000", 1),
            ("max", UNLIMITED),
            ("99999999999999999999", UNLIMITED),
            ("16E", UNLIMITED),
            ("7E", 7 << 48),
            ("8E", UNLIMITED),
            ("9223372036854771712", UNLIMITED),
        ] {
            assert_eq!(limit(text), Ok(pages), "{text}");
        }
        for text in ["", " ", "-1", "1.5G", "1GB", "1 G", "G", "maximum", "0x", "1K1", "é", "1é"] {
            let (errno, reason) = limit(text).unwrap_err();
            assert!(errno == Errno::Invalid && reason.contains("like 64M"), "{text}: {reason}");
        }
        assert_eq!([UNLIMITED, UNLIMITED - 1, 3].map(limit_text), ["max\n", "max\n", "12288\n"]);
    }

    /// [book: control-files#memcg-files]: "`memory.reclaim` argument errors → 'invalid argument':
    /// unparsable size, unknown key, swappiness outside 0…200."
    #[test]
    fn requests_may_have_a_swappiness() {
        assert_eq!(request("256M swappiness=0"), Ok((65_536, Some(Swappiness::FILE_ONLY))));
        assert_eq!(request("256M  swappiness=max \n"), Ok((65_536, Some(Swappiness::ANON_ONLY))));
        assert_eq!(request("5000"), Ok((1, None)));
        assert_eq!(
            request("1G swappiness=60 swappiness=200"),
            Ok((1 << 18, Some(Swappiness::new(200).unwrap())))
        );
        for text in
            ["", "max", "1G foo=1", "1G swappiness=201", "1G swappiness=", "1G swappiness=-1", "1G 2", "1Gx"]
        {
            assert_eq!(request(text).unwrap_err().0, Errno::Invalid, "{text}");
        }
    }

    #[test]
    fn switches_are_numbers_or_words() {
        let of = |text| capabilities(text).map_err(|(errno, _)| errno);
        assert_eq!(["5", "0x7", "yes", "N", "07\n"].map(of), [Ok(5), Ok(7), Ok(u64::MAX), Ok(0), Ok(7)]);
        assert_eq!(["", "on", "8x", "08"].map(of), [Err(Errno::Invalid); 4]);
        assert_eq!((flag("1\n"), flag("0")), (Ok(true), Ok(false)));
        assert!(["01", "0x1", "00"].map(flag) == [Ok(true), Ok(true), Ok(false)]);
        assert!(["2", "", "-1", "1 1"].iter().all(|text| flag(text).is_err()));
    }
}
