//! Numbers in fio's short form, and dates.

/// Base of the unit prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// Ki, Mi, Gi: powers of 1024.
    Binary,
    /// k, M, G: powers of 1000.
    Decimal,
}

/// Formats `value` with at most `digits_max` digits before the point. Larger values get a prefix,
/// and as many decimals as fit. With four digits, 65,536 bytes are `64.0Ki` and 9,999 stays as it
/// is.
pub(super) fn short(value: u64, digits_max: usize, base: Base) -> String {
    let (step, prefixes) = match base {
        Base::Binary => (1024.0, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
        Base::Decimal => (1000.0, ["", "k", "M", "G", "T", "P", "E"]),
    };
    let mut scaled = value as f64;
    let mut power = 0;
    while scaled.round() >= 10f64.powi(digits_max as i32) && power + 1 < prefixes.len() {
        scaled /= step;
        power += 1;
    }
    let digits = (scaled as u64).to_string().len();
    let decimals = if power == 0 { 0 } else { digits_max.saturating_sub(digits + 1) };
    format!("{scaled:.decimals$}{}", prefixes[power])
}

/// Bytes in powers of 1024: `130MiB`.
pub(super) fn bytes(value: u64) -> String {
    short(value, 4, Base::Binary) + "B"
}

/// Bytes in powers of 1000: `136MB`.
pub(super) fn bytes_decimal(value: u64) -> String {
    short(value, 4, Base::Decimal) + "B"
}

/// A time as C's `ctime` writes it, in UTC: `Fri Nov 20 19:42:26 2026`.
pub(super) fn date(seconds_since_1970: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (days, second) = (seconds_since_1970 / 86_400, seconds_since_1970 % 86_400);
    let weekday = WEEKDAYS[(days % 7) as usize];
    // 400 years have 146,097 days. The rest is counted by years and months.
    let (mut year, mut day) = (1970 + days / 146_097 * 400, days % 146_097);
    loop {
        let days_of_year = if leap(year) { 366 } else { 365 };
        if day < days_of_year {
            break;
        }
        day -= days_of_year;
        year += 1;
    }
    let mut month = 0;
    loop {
        let days_of_month = match month {
            1 if leap(year) => 29,
            1 => 28,
            3 | 5 | 8 | 10 => 30,
            _ => 31,
        };
        if day < days_of_month {
            break;
        }
        day -= days_of_month;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {} {:2} {hour:02}:{minute:02}:{second:02} {year}", MONTHS[month], day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_fios() {
        // As printed by fio 3.33.
        for (value, expected) in [
            (4096, "4096B"),
            (65_536, "64.0KiB"),
            (256 << 20, "256MiB"),
            (1565 << 20, "1565MiB"),
            (65_536_000, "62.5MiB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
        assert_eq!(bytes_decimal(65_536), "65.5kB");
        assert_eq!(bytes_decimal(256 << 20), "268MB");
        assert_eq!(bytes_decimal(65_536_000), "65.5MB");
        assert_eq!(short(33_284, 4, Base::Decimal), "33.3k");
        assert_eq!(short(16_000, 4, Base::Decimal), "16.0k");
        assert_eq!(short(2_289_300, 6, Base::Decimal), "2289.3k");
        assert_eq!(short(43_599, 6, Base::Decimal), "43599");
    }

    #[test]
    fn numbers_at_the_edges() {
        assert_eq!(bytes(0), "0B");
        assert_eq!(bytes(9_999), "9999B");
        assert_eq!(bytes(10_000), "9.77KiB");
        assert_eq!(bytes(u64::MAX), "16.0EiB");
        assert_eq!(bytes(10 << 30), "10.0GiB");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // `date -u -d @N '+%a %b %e %T %Y'`
        for (seconds, expected) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_795_203_743, "Fri Nov 20 19:42:23 2026"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
            (13_569_465_600, "Sat Jan  1 00:00:00 2400"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }
}
