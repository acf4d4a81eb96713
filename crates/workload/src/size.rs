//! Parses sizes as they are typed: `512MiB`, `2g`, `8192p` (pages) or bytes.

use crate::PAGE_BYTES;

/// Size in bytes. Letters are powers of 1024, as in fio; `p` is a page of 4 KiB.
///
/// # Errors
/// A message with the problem and a valid form.
pub fn parse(text: &str) -> Result<u64, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() || unit.starts_with(['.', ',']) {
        return Err("a size is a whole number and a unit, such as 512MiB, 2g or 8192p (pages)".to_owned());
    }
    let bytes_per_unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "p" => PAGE_BYTES,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" | "mb" | "gb" | "tb" => {
            let letter = &unit.trim_start()[..1].to_ascii_uppercase();
            return Err(format!(
                "`{unit}` is a power of 1000 to some and of 1024 to others; write {letter}iB"
            ));
        }
        _ => {
            return Err(format!("`{unit}` is not a unit; use KiB, MiB, GiB, TiB, p (pages) or none (bytes)"));
        }
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(bytes_per_unit))
        .ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1b", 1),
            ("8192p", 8192 * 4096),
            ("64k", 64 << 10),
            ("512MiB", 512 << 20),
            ("512mib", 512 << 20),
            ("512 MiB", 512 << 20),
            ("2g", 2 << 30),
            ("1TiB", 1 << 40),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused_with_a_reason() {
        for (text, why) in [
            ("", "whole number"),
            ("MiB", "whole number"),
            ("-1", "whole number"),
            ("1.5GiB", "whole number"),
            ("512MB", "write MiB"),
            ("512 gb", "write GiB"),
            ("10%", "not a unit"),
            ("5q", "`q` is not a unit"),
            ("99999999999TiB", "`99999999999TiB` is too large"),
            ("99999999999999999999", "too large"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
