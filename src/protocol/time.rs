//! RFC 3339 instants (`Stream-Expires-At`), to and from Unix milliseconds, and the calendar under them: proleptic
//! Gregorian.

use super::digits;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Days from 1970-01-01 to a date. `month` is 1 to 12, `day` from 1.
///
/// Years are shifted to start in March, so that the leap day is the last of its year:
/// 2024-03-01 is day 0 of shifted year 2024, 2024-02-29 is day 365 of shifted year 2023.
fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = (month + 9) % 12; // March is 0
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date that lies `days` after 1970-01-01: year, month (from 1), day (from 1). The reverse of `days_from_date`.
pub fn date_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// Days of a month.
fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// A number of exactly as many digits as `text` has bytes, within `range`.
fn field(text: &[u8], range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let value = digits::parse_u64(text)? as i64;
    range.contains(&value).then_some(value)
}

/// Parses an RFC 3339 `date-time` to Unix milliseconds. Digits of a second beyond the third are dropped; an instant
/// before 1970 counts as 0; a leap second (`23:59:60` UTC) counts as the second after it. `None` if malformed.
pub fn parse_rfc3339(text: &[u8]) -> Option<u64> {
    // 0123456789012345678
    // 2026-07-18T10:29:59[.fraction](Z|+hh:mm|-hh:mm)
    let fixed = text.get(..19)?;
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| fixed[at] != byte) || !matches!(fixed[10], b'T' | b't') {
        return None;
    }
    let year = field(&fixed[..4], 0..=9999)?;
    let month = field(&fixed[5..7], 1..=12)?;
    let day = field(&fixed[8..10], 1..=days_in_month(year, month))?;
    let hour = field(&fixed[11..13], 0..=23)?;
    let minute = field(&fixed[14..16], 0..=59)?;
    let second = field(&fixed[17..19], 0..=60)?;
    let (milliseconds, zone) = parse_fraction(&text[19..])?;
    let zone_minutes = parse_zone(zone)?;

    let minutes = days_from_date(year, month, day) * 1440 + hour * 60 + minute - zone_minutes;
    if second == 60 && minutes.rem_euclid(1440) != 1439 {
        return None;
    }
    // A leap second has no instant of its own in Unix time.
    let milliseconds = if second == 60 { 0 } else { milliseconds };
    let instant_ms = minutes * 60_000 + second * 1000 + milliseconds;
    Some(u64::try_from(instant_ms).unwrap_or(0))
}

/// Splits off a fraction of a second: its milliseconds, and what follows it.
fn parse_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(fraction) = text.strip_prefix(b".") else { return Some((0, text)) };
    let count = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    let digit = |at: usize| if at < count { i64::from(fraction[at] - b'0') } else { 0 };
    Some((digit(0) * 100 + digit(1) * 10 + digit(2), &fraction[count..]))
}

/// Minutes that local time is ahead of UTC.
fn parse_zone(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let minutes = field(&[*h1, *h2], 0..=23)? * 60 + field(&[*m1, *m2], 0..=59)?;
            Some(if *sign == b'-' { -minutes } else { minutes })
        }
        _ => None,
    }
}

/// Appends an instant as RFC 3339 in UTC with milliseconds: `2026-07-18T10:29:59.900Z`. `unix_ms` must lie before the
/// year 10000.
pub fn write_rfc3339(out: &mut Vec<u8>, unix_ms: u64) {
    let unix_ms = i64::try_from(unix_ms).expect("an instant before the year 10000");
    let (year, month, day) = date_from_days(unix_ms.div_euclid(DAY_MS));
    assert!(year <= 9999, "{unix_ms} lies in the year {year}");
    let of_day = unix_ms.rem_euclid(DAY_MS);
    let fields = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (of_day / 3_600_000, 2, b':'),
        (of_day / 60_000 % 60, 2, b':'),
        (of_day / 1000 % 60, 2, b'.'),
        (of_day % 1000, 3, b'Z'),
    ];
    for (value, digits, after) in fields {
        digits::write_padded(out, value as u64, digits);
        out.push(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn instants() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.001z", 1),
            ("1970-01-01t00:00:01Z", 1000),
            ("2026-07-18T10:29:59.900Z", 1_784_370_599_900),
            ("2026-07-18T10:29:59.9Z", 1_784_370_599_900),
            ("2026-07-18T10:29:59.900999999999Z", 1_784_370_599_900),
            ("2026-07-18T10:29:59.900+00:00", 1_784_370_599_900),
            ("2026-07-18T10:29:59.900-00:00", 1_784_370_599_900),
            ("2026-07-18T12:29:59.9+02:00", 1_784_370_599_900),
            ("2026-07-18T00:14:59.9-10:15", 1_784_370_599_900),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("2016-12-31T23:59:60.5Z", 1_483_228_800_000),
            ("2017-01-01T01:59:60+02:00", 1_483_228_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("1969-12-31T23:59:59Z", 0),
            ("0000-01-01T00:00:00Z", 0),
        ];
        for (text, expected) in table {
            assert_eq!(parse_rfc3339(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_instants() {
        let table = [
            "",
            "not-a-timestamp",
            "2026-07-18",
            "2026-07-18T10:29Z",
            "2026-07-18T10:29:59",
            "2026-07-18 10:29:59Z",
            "2026-7-18T10:29:59Z",
            "26-07-18T10:29:59Z",
            "2026-07-18T10:29:59.Z",
            "2026-07-18T10:29:59,5Z",
            "2026-00-18T10:29:59Z",
            "2026-13-18T10:29:59Z",
            "2026-07-00T10:29:59Z",
            "2026-07-32T10:29:59Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-07-18T24:00:00Z",
            "2026-07-18T10:60:00Z",
            "2026-07-18T10:29:61Z",
            "2026-07-18T10:29:60Z",
            "2016-12-31T23:59:60+01:00",
            "2026-07-18T10:29:59+0000",
            "2026-07-18T10:29:59+00",
            "2026-07-18T10:29:59+24:00",
            "2026-07-18T10:29:59+00:60",
            "2026-07-18T10:29:59ZZ",
            "2026-07-18T10:29:59Z ",
            " 2026-07-18T10:29:59Z",
            "+026-07-18T10:29:59Z",
            "2026-07-18T10:29:5\u{661}Z",
            "1784370599900",
        ];
        for text in table {
            assert_eq!(parse_rfc3339(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(unix_ms in 0..253_402_300_800_000u64) {
            let mut out = Vec::new();
            write_rfc3339(&mut out, unix_ms);
            prop_assert_eq!(out.len(), 24);
            prop_assert_eq!(parse_rfc3339(&out), Some(unix_ms), "{}", String::from_utf8_lossy(&out));
        }

        #[test]
        fn days_follow_each_other(days in -800_000i64..3_000_000) {
            let (year, month, day) = date_from_days(days);
            prop_assert_eq!(days_from_date(year, month, day), days);
            let next = if day < days_in_month(year, month) {
                (year, month, day + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
            prop_assert_eq!(date_from_days(days + 1), next);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_rfc3339(&text);
        }
    }
}
