//! Fields and numbers of text formats, and messages about them.

use std::fmt::Display;

/// Parses a decimal number without surrounding characters.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    // 19 digits always fit; the twentieth may not.
    let (head, last) = text.split_at_checked(19).unwrap_or((text, &[]));
    let (number, []) = leading_decimal(head)? else { return None };
    match last {
        [] => Some(number),
        [digit @ b'0'..=b'9'] => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    }
}

/// Parses a number of at most 19 digits, and returns the rest of the text.
#[inline]
pub(super) fn leading_decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    let mut digits = 0;
    while let Some(byte) = text.get(digits) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        digits += 1;
    }
    (1..=19).contains(&digits).then(|| (number, &text[digits..]))
}

/// Parses a decimal number, or returns a message that names the field.
#[inline]
pub(super) fn number(text: &[u8], field: &str) -> Result<u64, String> {
    decimal(text).ok_or_else(|| wrong(field, text, expected_number(text)))
}

/// The expectation to name in the error about a text that is not a number of 64 bits.
#[cold]
pub(super) fn expected_number(found: &[u8]) -> &'static str {
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    match found {
        [b'0', b'x' | b'X', digits @ ..] if digits.len() > 16 && digits.iter().all(u8::is_ascii_hexdigit) => {
            "at most 16 hexadecimal digits: it is too large for 64 bits"
        }
        [b'0', ..] if is_digits(found) => "a number without zeroes in front",
        _ if is_digits(found) => "at most 18446744073709551615: it is too large for 64 bits",
        [b'-', digits @ ..] if is_digits(digits) => "a number that is not negative",
        _ => "a number",
    }
}

/// Message about an invalid field.
#[cold]
pub(super) fn wrong(field: &str, found: &[u8], expected: impl Display) -> String {
    format!("{field} is {}, expected {expected}", quote(found))
}

/// Text of a trace in printable form for a message, shortened.
pub(super) fn quote(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    if text.len() > SHOWN_BYTES {
        format!("\"{}...\"", text[..SHOWN_BYTES].escape_ascii())
    } else {
        format!("\"{}\"", text.escape_ascii())
    }
}

/// Takes the next field between blanks.
#[inline]
pub(super) fn field<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = line.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let text = &line[start..];
    let end = text.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(text.len());
    *line = &text[end..];
    Some(&text[..end])
}

/// Exactly `N` fields between blanks.
pub(super) fn fields<const N: usize>(line: &[u8]) -> Option<[&[u8]; N]> {
    let mut rest = line;
    let mut found = [&line[..0]; N];
    for slot in &mut found {
        *slot = field(&mut rest)?;
    }
    field(&mut rest).is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_and_fit() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "-1",
            "+1",
            "1 ",
            "0x1",
            "18446744073709551616",
            "99999999999999999999",
            "000000000000000000001",
        ] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_expectation_says_why_a_number_is_none() {
        for (text, expected) in [
            ("18446744073709551616", "at most 18446744073709551615: it is too large for 64 bits"),
            ("0x10000000000000000", "at most 16 hexadecimal digits: it is too large for 64 bits"),
            ("000000000000000000001", "a number without zeroes in front"),
            ("-1", "a number that is not negative"),
            ("-", "a number"),
            ("12a", "a number"),
            ("", "a number"),
        ] {
            let error = number(text.as_bytes(), "the offset").unwrap_err();
            assert_eq!(error, format!("the offset is \"{text}\", expected {expected}"));
        }
    }

    #[test]
    fn fields_are_exact() {
        assert_eq!(fields::<2>(b"a  bc"), Some([&b"a"[..], &b"bc"[..]]));
        assert_eq!(fields::<2>(b"a"), None);
        assert_eq!(fields::<2>(b"a b c"), None);
    }
}
