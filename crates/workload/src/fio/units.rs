//! fio's units of size and time.

use super::job_text::Parts;
use std::time::Duration;

/// Parses a size in bytes, with fio's default `kb_base=1024`.
///
/// `4k` and `4kb` are 4096; m, g, t and p follow the same rule. **`4kib` is 4000**: with that base
/// fio gives the IEC names the decimal meaning ("those unit prefixes are opposite", its manual
/// says). The same rule here keeps jobs identical. `4ki` is refused: the manual says 4000, fio 3.33
/// takes 4096.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16)
            .map_err(|_| format!("`{digits}` is not a hexadecimal number"));
    }
    let (number, unit) = split_number(text)?;
    let lowered = unit.to_ascii_lowercase();
    let (base, power): (u64, u32) = match lowered.as_str() {
        "" | "b" => (1, 0),
        "k" | "kb" => (1024, 1),
        "m" | "mb" => (1024, 2),
        "g" | "gb" => (1024, 3),
        "t" | "tb" => (1024, 4),
        "p" | "pb" => (1024, 5),
        "kib" => (1000, 1),
        "mib" => (1000, 2),
        "gib" => (1000, 3),
        "tib" => (1000, 4),
        "pib" => (1000, 5),
        "ki" | "mi" | "gi" | "ti" | "pi" => {
            return Err(format!(
                "fio's manual and fio differ on `{unit}`; write `{number}{}` for powers of 1024, or plain bytes",
                &unit[..1]
            ));
        }
        _ => return Err(format!("`{unit}` is not a unit; use k, m, g, t or p (powers of 1024)")),
    };
    number.checked_mul(base.pow(power)).ok_or_else(|| "does not fit into 64 bits".to_owned())
}

/// Parses a time: seconds, or a number with a unit of us, ms, s, m (minutes), h or d.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_number(text)?;
    let microseconds: u64 = match unit.to_ascii_lowercase().as_str() {
        "us" => 1,
        "ms" => 1000,
        "" | "s" => 1_000_000,
        "m" => 60 * 1_000_000,
        "h" => 3600 * 1_000_000,
        "d" => 24 * 3600 * 1_000_000,
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of time; use us, ms, s, m, h or d (no unit: seconds)"
            ));
        }
    };
    let total =
        number.checked_mul(microseconds).ok_or_else(|| "is longer than mglru can count".to_owned())?;
    Ok(Duration::from_micros(total))
}

/// Parses a whole number within limits.
pub(super) fn parse_integer(text: &str, limits: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let expected = || format!("must be a whole number from {} to {}", limits.start(), limits.end());
    let number = text.parse().map_err(|_| expected())?;
    if limits.contains(&number) { Ok(number) } else { Err(expected()) }
}

/// Parses values for reads, writes and trims, separated by commas. A single value applies to all,
/// an empty one leaves the default, and trims are ignored.
pub(super) fn parse_parts<T: Copy>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Parts<T>, String> {
    let part = |text: &str| if text.is_empty() { Ok(None) } else { parse(text).map(Some) };
    match text.split(',').collect::<Vec<_>>()[..] {
        [all] => part(all).map(|value| Parts { read: value, write: value }),
        [read, write] => Ok(Parts { read: part(read)?, write: part(write)? }),
        [read, write, trim] => {
            part(trim)?;
            Ok(Parts { read: part(read)?, write: part(write)? })
        }
        _ => Err("has more than three parts; give READS,WRITES or one value for both".to_owned()),
    }
}

/// Parses a switch: 0 or 1.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("is a switch: must be 0 or 1".to_owned()),
    }
}

/// Splits off the leading digits.
fn split_number(text: &str) -> Result<(u64, &str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("must begin with a number".to_owned());
    }
    if unit.starts_with(['.', ',', ':', '-']) {
        // fio reads `1.5k` as 1.
        return Err("must be one whole number; give fractions in a smaller unit (1536 for 1.5k)".to_owned());
    }
    let number = number.parse().map_err(|_| "does not fit into 64 bits".to_owned())?;
    Ok((number, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        // Each measured with fio 3.33: --bs=1 --size=..., bytes transferred.
        for (text, bytes) in [
            ("1000", 1000),
            ("1k", 1024),
            ("1K", 1024),
            ("1kb", 1024),
            ("1kib", 1000),
            ("1MiB", 1_000_000),
            ("0x1000", 4096),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_size("960m"), Ok(960 << 20));
        assert_eq!(parse_size("3g"), Ok(3 << 30));
        assert_eq!(parse_size("2t"), Ok(2 << 40));
        assert_eq!(parse_size("10 k"), Ok(10_240));
    }

    #[test]
    fn sizes_that_fio_would_guess_are_refused() {
        for text in
            ["", "k", "-1", "1.5k", "4kx", "1ki", "4k,8k", "0xg", "99999999999p", "99999999999999999999"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_seconds_by_default() {
        for (text, microseconds) in [
            ("30", 30_000_000),
            ("30s", 30_000_000),
            ("5m", 300_000_000),
            ("500ms", 500_000),
            ("7us", 7),
            ("1h", 3_600_000_000),
            ("1d", 86_400_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(microseconds)), "{text}");
        }
        assert!(parse_duration("1x").is_err());
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("999999999999d").is_err());
    }

    #[test]
    fn integers_and_switches_keep_their_limits() {
        assert_eq!(parse_integer("100", 0..=100), Ok(100));
        assert!(parse_integer("101", 0..=100).unwrap_err().contains("0 to 100"));
        assert!(parse_integer("ten", 0..=100).is_err());
        assert_eq!(parse_switch("1"), Ok(true));
        assert!(parse_switch("yes").is_err());
    }
}
