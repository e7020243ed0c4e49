//! Numbers as text, appended to a buffer without formatting machinery, and the one strict way to read them.

/// The pairs `00` to `99`: one load gives two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Largest number of sixteen decimal digits.
pub const SIXTEEN_DIGITS_MAX: u64 = 9_999_999_999_999_999;

/// Appends `n` in decimal, without leading zeros.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, n: u64) {
    if n < 10 {
        return out.push(b'0' + n as u8);
    }
    let mut text = [0u8; 20];
    let mut at = text.len();
    let mut rest = n;
    while rest >= 100 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    if rest >= 10 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[rest as usize]);
    } else {
        at -= 1;
        text[at] = b'0' + rest as u8;
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends `n` as exactly sixteen decimal digits, zeros in front: one half of an offset token.
#[inline]
pub fn write_16(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&sixteen(n));
}

/// `n` as exactly sixteen decimal digits, zeros in front.
#[inline]
pub fn sixteen(n: u64) -> [u8; 16] {
    assert!(n <= SIXTEEN_DIGITS_MAX, "{n} has more than sixteen digits");
    let mut text = [0u8; 16];
    text[..8].copy_from_slice(&eight((n / 100_000_000) as u32));
    text[8..].copy_from_slice(&eight((n % 100_000_000) as u32));
    text
}

/// `n` as exactly eight digits: halves of four, then two, then one digit side by side in one word.
///
/// 12345678 goes to lanes 1234 | 5678, to 12 | 34 | 56 | 78, to 1 | 2 | ... | 8. Each division is a multiplication
/// by a rounded reciprocal: 10486 / 2^20 is exact for x / 100 below 10,000, and 103 / 2^10 for x / 10 below 100.
#[inline]
fn eight(n: u32) -> [u8; 8] {
    debug_assert!(n < 100_000_000, "{n} has more than eight digits");
    let fours = u64::from(n / 10_000) | u64::from(n % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = tens | (pairs - 10 * tens) << 8;
    (ones | 0x3030_3030_3030_3030).to_le_bytes()
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

/// The number that `text` spells: one or more decimal digits and nothing else. `None` also when it exceeds `u64`.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut n: u64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"<".to_vec();
        write(&mut out);
        assert_eq!(out.remove(0), b'<', "a writer appends");
        String::from_utf8(out).expect("digits are text")
    }

    /// Every power of ten and of two, with its neighbours: where the number of digits changes.
    fn edges() -> Vec<u64> {
        let tens = (0..20).map(|power| 10u64.pow(power));
        let twos = (0..64).map(|power| 1u64 << power);
        let mut edges: Vec<u64> =
            tens.chain(twos).flat_map(|n| [n.wrapping_sub(1), n, n.wrapping_add(1)]).collect();
        edges.extend([0, u64::MAX, SIXTEEN_DIGITS_MAX]);
        edges
    }

    #[test]
    fn edges_are_written_like_the_standard_library_writes_them() {
        for n in edges() {
            assert_eq!(written(|out| write_u64(out, n)), format!("{n}"));
            assert_eq!(written(|out| write_hex(out, n)), format!("{n:x}"));
            assert_eq!(parse_u64(format!("{n}").as_bytes()), Some(n));
            if n <= SIXTEEN_DIGITS_MAX {
                assert_eq!(written(|out| write_16(out, n)), format!("{n:016}"));
            }
        }
    }

    #[test]
    fn every_group_of_four_digits_is_written_in_each_place() {
        for four in 0..10_000u64 {
            for place in [1, 10_000, 100_000_000, 1_000_000_000_000] {
                let n = four * place;
                assert_eq!(written(|out| write_16(out, n)), format!("{n:016}"));
            }
        }
    }

    #[test]
    #[should_panic(expected = "10000000000000000 has more than sixteen digits")]
    fn seventeen_digits_are_a_bug() {
        sixteen(SIXTEEN_DIGITS_MAX + 1);
    }

    #[test]
    fn only_digits_are_numbers() {
        let none: [&[u8]; 14] = [
            b"", b"+1", b"-1", b" 1", b"1 ", b"1.0", b"1e3", b"0x1", b"1_0", b"1,1", b"\xb2", b"1\0", b"/",
            b":",
        ];
        for text in none {
            assert_eq!(parse_u64(text), None, "{:?}", text.escape_ascii().to_string());
        }
        assert_eq!(parse_u64(b"18446744073709551616"), None, "one more than the largest");
        assert_eq!(parse_u64(b"99999999999999999999999999"), None);
        assert_eq!(parse_u64(b"00000000000000000000000000000007"), Some(7), "leading zeros add nothing");
    }

    proptest! {
        #[test]
        fn numbers_come_back(n: u64, sixteen in 0..=SIXTEEN_DIGITS_MAX) {
            prop_assert_eq!(written(|out| write_u64(out, n)), format!("{n}"));
            prop_assert_eq!(written(|out| write_hex(out, n)), format!("{n:x}"));
            prop_assert_eq!(written(|out| write_16(out, sixteen)), format!("{sixteen:016}"));
            prop_assert_eq!(parse_u64(format!("{n}").as_bytes()), Some(n));
        }
    }
}
