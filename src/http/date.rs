//! The one date format of HTTP that may be generated: IMF-fixdate (RFC 9110, 5.6.7), such as
//! `Sun, 06 Nov 1994 08:49:37 GMT`.

use crate::protocol::time::date_from_days;

/// Bytes of every such date.
pub const DATE_BYTES: usize = 29;

/// Last second that the format can name, the end of the year 9999; later ones are shown as this one.
pub const LAST_SECOND: u64 = 253_402_300_799;

const SECONDS_PER_DAY: i64 = 86_400;

/// The date of a second, counted from 1970-01-01 00:00:00 UTC without leap seconds.
pub fn imf_fixdate(unix_seconds: u64) -> [u8; DATE_BYTES] {
    let seconds = unix_seconds.min(LAST_SECOND) as i64;
    let days = seconds / SECONDS_PER_DAY;
    let second = seconds % SECONDS_PER_DAY;
    let (year, month, day) = date_from_days(days);

    let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    // Day 0 was a Thursday.
    text[..3].copy_from_slice(&b"ThuFriSatSunMonTueWed"[(days % 7) as usize * 3..][..3]);
    two(&mut text[5..7], day);
    text[8..11].copy_from_slice(&b"JanFebMarAprMayJunJulAugSepOctNovDec"[(month as usize - 1) * 3..][..3]);
    two(&mut text[12..14], year / 100);
    two(&mut text[14..16], year % 100);
    two(&mut text[17..19], second / 3600);
    two(&mut text[20..22], second / 60 % 60);
    two(&mut text[23..25], second % 60);
    text
}

/// Writes `n` as two digits.
fn two(place: &mut [u8], n: i64) {
    assert!((0..100).contains(&n), "{n} has not one or two digits");
    place.copy_from_slice(&[b'0' + (n / 10) as u8, b'0' + (n % 10) as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unix_seconds: u64) -> String {
        String::from_utf8(imf_fixdate(unix_seconds).to_vec()).expect("dates are text")
    }

    #[test]
    fn known_dates() {
        let table = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"), // the example of RFC 9110
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"), // a century with a leap day
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_000_000_000, "Sun, 09 Sep 2001 01:46:40 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (1_735_689_600, "Wed, 01 Jan 2025 00:00:00 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"), // a century without one
            (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (LAST_SECOND + 1, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (seconds, expected) in table {
            assert_eq!(text(seconds), expected, "{seconds}");
        }
    }

    /// Walks the calendar day by day, by the rule that schools teach, up to the last day that the format knows.
    #[test]
    fn every_day_up_to_the_year_9999() {
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        let (mut year, mut month, mut day) = (1970, 0, 1);
        for days in 0..=LAST_SECOND as i64 / SECONDS_PER_DAY {
            let second = days % SECONDS_PER_DAY;
            let clock = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
            let expected =
                format!("{}, {day:02} {} {year:04} {clock} GMT", weekdays[days as usize % 7], months[month]);
            assert_eq!(text((days * SECONDS_PER_DAY + second) as u64), expected, "day {days}");

            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month == 12 {
                (month, year) = (0, year + 1);
            }
        }
        assert_eq!((year, month, day), (10_000, 0, 1), "the walk ends with the format");
    }
}
