//! Numbers to and from decimal digits, without formatting machinery: this runs on every append.

/// Most digits of a `u64`.
pub const U64_DIGITS_MAX: usize = 20;

/// 10^8: what eight digits count to.
const EIGHT_DIGITS: u64 = 100_000_000;
/// ASCII `0`, eight times.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of `n` below 10^8, one a byte, the first in the lowest byte, not yet ASCII.
///
/// Halves are split in parallel, first 4 + 4 digits, then 2 + 2 + 2 + 2, then single ones:
///
/// ```text
///  12345678  ->  1234 | 5678  ->  12 | 34 | 56 | 78  ->  1|2|3|4|5|6|7|8
/// ```
///
/// The divisions are multiplications: `x * 10486 >> 20` is `x / 100` for every x below 10,000, and `x * 103 >> 10` is
/// `x / 10` for every x below 100. The lanes are wide enough that no product reaches into the next.
#[inline(always)]
fn eight(n: u64) -> u64 {
    debug_assert!(n < EIGHT_DIGITS, "{n} has more than eight digits");
    let fours = (n / 10_000) | (n % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

/// Appends up to eight digits without leading zeros (a zero is one digit).
#[inline(always)]
fn write_trimmed(out: &mut Vec<u8>, digits: u64) {
    // Eight bytes at a constant length and a cut are cheaper than a copy of a variable length.
    let leading_zeros = (digits.trailing_zeros() as usize / 8).min(7);
    out.extend_from_slice(&((digits | ZEROS) >> (8 * leading_zeros)).to_le_bytes());
    out.truncate(out.len() - leading_zeros);
}

/// Appends the decimal digits of `n`, without leading zeros.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, n: u64) {
    if n < EIGHT_DIGITS {
        return write_trimmed(out, eight(n));
    }
    let (above, low) = (n / EIGHT_DIGITS, n % EIGHT_DIGITS);
    if above < EIGHT_DIGITS {
        write_trimmed(out, eight(above));
    } else {
        write_trimmed(out, eight(above / EIGHT_DIGITS));
        out.extend_from_slice(&(eight(above % EIGHT_DIGITS) | ZEROS).to_le_bytes());
    }
    out.extend_from_slice(&(eight(low) | ZEROS).to_le_bytes());
}

/// `n` as sixteen digits with leading zeros. `n` must have no more than sixteen digits.
#[inline]
pub fn padded16(n: u64) -> [u8; 16] {
    assert!(n <= crate::limits::LINEAGE_MAX, "{n} has more than sixteen digits");
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(eight(n / EIGHT_DIGITS) | ZEROS).to_le_bytes());
    bytes[8..].copy_from_slice(&(eight(n % EIGHT_DIGITS) | ZEROS).to_le_bytes());
    bytes
}

/// `n` as `digits` digits with leading zeros, appended. For the short fields of dates.
pub fn write_padded(out: &mut Vec<u8>, n: u64, digits: usize) {
    let start = out.len();
    write_u64(out, n);
    let written = out.len() - start;
    assert!(written <= digits, "{n} has more than {digits} digits");
    out.resize(start + digits, b'0');
    out[start..].rotate_right(digits - written);
}

/// The number that `text` spells in decimal digits and nothing else; leading zeros are allowed. `None` for an empty
/// text, any other byte, or a number above `u64::MAX`.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// As [`parse_u64`], but `0` is the only text that may start with a zero.
pub fn parse_canonical_u64(text: &[u8]) -> Option<u64> {
    if text.len() > 1 && text[0] == b'0' {
        return None;
    }
    parse_u64(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(n: u64) -> String {
        let mut out = b"before ".to_vec();
        write_u64(&mut out, n);
        String::from_utf8(out.split_off(7)).unwrap()
    }

    #[test]
    fn numbers_at_the_edges() {
        for (n, text) in [(0, "0"), (9, "9"), (10, "10"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(written(n), text);
            assert_eq!(parse_u64(text.as_bytes()), Some(n));
            assert_eq!(parse_canonical_u64(text.as_bytes()), Some(n));
        }
        assert_eq!(&padded16(0), b"0000000000000000");
        assert_eq!(&padded16(9_999_999_999_999_999), b"9999999999999999");
    }

    #[test]
    fn texts_that_are_no_numbers() {
        for text in ["", "-1", "+1", " 1", "1 ", "1a", "1.0", "1e3", "0x1", "18446744073709551616", "\u{661}"]
        {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text:?}");
            assert_eq!(parse_canonical_u64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_u64(b"007"), Some(7));
        assert_eq!(parse_canonical_u64(b"007"), None);
        assert_eq!(parse_canonical_u64(b"00"), None);
    }

    /// Around every power of ten, and every number of four digits: all that the lanes of eight digits can hold.
    #[test]
    fn numbers_by_lane() {
        for power in 0..20 {
            for n in [10u64.pow(power) - 1, 10u64.pow(power), 10u64.pow(power) + 1] {
                assert_eq!(written(n), n.to_string());
            }
        }
        for four in 0..10_000 {
            for n in [four, four * 10_000, four * 10_000 + 9999, four * 10_001] {
                assert_eq!(written(n), n.to_string());
                assert_eq!(padded16(n), *format!("{n:016}").as_bytes());
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(n: u64) {
            let text = n.to_string();
            prop_assert_eq!(written(n), text.clone());
            prop_assert_eq!(parse_canonical_u64(text.as_bytes()), Some(n));
            let small = n % 10_000_000_000_000_000;
            prop_assert_eq!(padded16(small).to_vec(), format!("{small:016}").into_bytes());
            let mut out = Vec::new();
            write_padded(&mut out, n % 1000, 3);
            prop_assert_eq!(out, format!("{:03}", n % 1000).into_bytes());
        }
    }
}
