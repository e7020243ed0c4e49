//! Numbers to and from digits, without formatting machinery: this runs on every request.

/// Most digits of a `u64`.
pub const U64_DIGITS_MAX: usize = 20;

/// Largest number of sixteen digits.
pub const SIXTEEN_DIGITS_MAX: u64 = 9_999_999_999_999_999;

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

/// Appends the decimal digits of `n`, without leading zeros.
///
/// Eight or sixteen bytes at a constant length and a cut are cheaper than a copy of a variable length.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, n: u64) {
    if n < EIGHT_DIGITS {
        let digits = eight(n);
        // A zero is one digit.
        let leading_zeros = (digits.trailing_zeros() / 8).min(7);
        out.extend_from_slice(&((digits | ZEROS) >> (8 * leading_zeros)).to_le_bytes());
        out.truncate(out.len() - leading_zeros as usize);
    } else if n <= SIXTEEN_DIGITS_MAX {
        let (high, low) = (eight(n / EIGHT_DIGITS), eight(n % EIGHT_DIGITS) | ZEROS);
        let leading_zeros = high.trailing_zeros() / 8;
        let digits = u128::from(high | ZEROS) | u128::from(low) << 64;
        out.extend_from_slice(&(digits >> (8 * leading_zeros)).to_le_bytes());
        out.truncate(out.len() - leading_zeros as usize);
    } else {
        write_long(out, n);
    }
}

/// The same for more than sixteen digits.
#[cold]
fn write_long(out: &mut Vec<u8>, n: u64) {
    write_u64(out, n / EIGHT_DIGITS);
    out.extend_from_slice(&(eight(n % EIGHT_DIGITS) | ZEROS).to_le_bytes());
}

/// `n` as sixteen digits with leading zeros. `n` must have no more than sixteen digits.
#[inline]
pub fn padded16(n: u64) -> [u8; 16] {
    assert!(n <= SIXTEEN_DIGITS_MAX, "{n} has more than sixteen digits");
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

/// Appends `n` in lower-case hexadecimal, without leading zeros.
#[inline]
pub fn write_hex(out: &mut Vec<u8>, n: u64) {
    let digits = (64 - (n | 1).leading_zeros()).div_ceil(4);
    let mut shift = digits * 4;
    while shift > 0 {
        shift -= 4;
        out.push(b"0123456789abcdef"[(n >> shift) as usize & 15]);
    }
}

/// The value of a hexadecimal digit, of either case.
#[inline]
pub const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The number of eight digits, the reverse of [`eight`]. `None` if any byte is no digit.
#[inline(always)]
fn value_of_eight(text: [u8; 8]) -> Option<u64> {
    let ones = u64::from_le_bytes(text) ^ ZEROS;
    // A digit is 0 to 9 now; for any other byte the upper half is not zero, or is not once six are added.
    if (ones | ones.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        return None;
    }
    let twos = (ones * 10 + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos * 100 + (twos >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

/// The number that `text` spells in decimal digits and nothing else; leading zeros are allowed. `None` for an empty
/// text, any other byte, or a number above `u64::MAX`.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let (mut value, mut rest) = (0, text);
    // Two steps of eight cannot overflow, and are all that half a token needs.
    for _ in 0..2 {
        let Some((eight, after)) = rest.split_first_chunk() else { break };
        value = value * EIGHT_DIGITS + value_of_eight(*eight)?;
        rest = after;
    }
    for &byte in rest {
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

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before ".to_vec();
        write(&mut out);
        String::from_utf8(out.split_off(7)).expect("digits are text")
    }

    fn decimal(n: u64) -> String {
        written(|out| write_u64(out, n))
    }

    /// Every power of ten and of two, with its neighbours: where the number of digits changes.
    #[test]
    fn numbers_at_the_edges() {
        let powers = (0..20).map(|power| 10u64.pow(power)).chain((0..64).map(|power| 1 << power));
        let edges = powers.flat_map(|n| [n - 1, n, n + 1]).chain([u64::MAX]);
        for n in edges {
            let text = n.to_string();
            assert_eq!(decimal(n), text);
            assert_eq!(written(|out| write_hex(out, n)), format!("{n:x}"));
            assert_eq!(parse_u64(text.as_bytes()), Some(n));
            assert_eq!(parse_canonical_u64(text.as_bytes()), Some(n));
            if n <= SIXTEEN_DIGITS_MAX {
                assert_eq!(padded16(n), *format!("{n:016}").as_bytes());
            }
        }
    }

    #[test]
    #[should_panic(expected = "10000000000000000 has more than sixteen digits")]
    fn seventeen_digits_are_a_bug() {
        padded16(SIXTEEN_DIGITS_MAX + 1);
    }

    #[test]
    fn texts_that_are_no_numbers() {
        let table = [
            "",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1a",
            "1.0",
            "1e3",
            "0x1",
            "1_0",
            "1,1",
            "1\0",
            "/",
            ":",
            "\u{661}",
            "18446744073709551616",
            "99999999999999999999999999",
        ];
        for text in table {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text:?}");
            assert_eq!(parse_canonical_u64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_u64(b"00000000000000000000000000000007"), Some(7), "leading zeros add nothing");
        assert_eq!(parse_canonical_u64(b"007"), None);
        assert_eq!(parse_canonical_u64(b"00"), None);
    }

    /// Eight digits are checked at once: each byte must count, in each place, and none disturb its neighbour.
    #[test]
    fn any_byte_in_any_place_of_a_number() {
        let number = *b"98765432109876543210";
        for len in [7, 8, 9, 15, 16, 17, 19] {
            for place in 0..len {
                for byte in 0..=u8::MAX {
                    let mut text = number[..len].to_vec();
                    text[place] = byte;
                    let expected = std::str::from_utf8(&text).ok().filter(|_| byte.is_ascii_digit());
                    let expected = expected.map(|text| text.parse().expect("a number of 64 bits"));
                    assert_eq!(parse_u64(&text), expected, "{}", text.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn hexadecimal_digits() {
        for byte in 0..=u8::MAX {
            let expected = char::from(byte).to_digit(16).map(|value| value as u8);
            assert_eq!(hex_value(byte), expected, "{}", byte.escape_ascii());
        }
    }

    /// Every number of four digits in every place: all that the lanes of eight digits can hold.
    #[test]
    fn numbers_by_lane() {
        for four in 0..10_000 {
            for n in [four, four * 10_000, four * 10_000 + 9999, four * 10_001, four * 1_000_000_000_000] {
                assert_eq!(decimal(n), n.to_string());
                assert_eq!(padded16(n), *format!("{n:016}").as_bytes());
                assert_eq!(parse_u64(&padded16(n)), Some(n));
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(n: u64, places in 0..64u32) {
            let n = n >> places;
            let text = n.to_string();
            prop_assert_eq!(decimal(n), text.clone());
            prop_assert_eq!(written(|out| write_hex(out, n)), format!("{n:x}"));
            prop_assert_eq!(parse_canonical_u64(text.as_bytes()), Some(n));
            let small = n % (SIXTEEN_DIGITS_MAX + 1);
            prop_assert_eq!(padded16(small).to_vec(), format!("{small:016}").into_bytes());
            prop_assert_eq!(written(|out| write_padded(out, n % 1000, 3)), format!("{:03}", n % 1000));
        }

        #[test]
        fn any_text_is_read_like_the_standard_library_reads_it(text in "[0-9]{1,22}|[0-9+ -]{1,20}") {
            let expected = text.parse().ok().filter(|_| !text.starts_with('+'));
            prop_assert_eq!(parse_u64(text.as_bytes()), expected);
        }
    }
}
