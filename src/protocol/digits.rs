//! Numbers to and from decimal digits, without formatting machinery: this runs on every append.

/// Most digits of a `u64`.
pub const U64_DIGITS_MAX: usize = 20;

/// The decimal digits of a number, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    bytes: [u8; U64_DIGITS_MAX],
    start: u8,
}

impl Decimal {
    /// The digits of `n`, without leading zeros.
    pub fn new(n: u64) -> Self {
        let mut bytes = [b'0'; U64_DIGITS_MAX];
        let mut start = U64_DIGITS_MAX;
        let mut rest = n;
        loop {
            start -= 1;
            bytes[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return Self { bytes, start: start as u8 };
            }
        }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Appends the decimal digits of `n`.
pub fn write_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(Decimal::new(n).as_bytes());
}

/// `n` as sixteen digits with leading zeros. `n` must have no more than sixteen digits.
pub fn padded16(n: u64) -> [u8; 16] {
    assert!(n <= crate::limits::LINEAGE_MAX, "{n} has more than sixteen digits");
    let mut bytes = [b'0'; 16];
    let mut rest = n;
    for slot in bytes.iter_mut().rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

/// `n` as `digits` digits with leading zeros, appended. For the short fields of dates.
pub fn write_padded(out: &mut Vec<u8>, n: u64, digits: usize) {
    let decimal = Decimal::new(n);
    let bytes = decimal.as_bytes();
    assert!(bytes.len() <= digits, "{n} has more than {digits} digits");
    out.resize(out.len() + digits - bytes.len(), b'0');
    out.extend_from_slice(bytes);
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

    #[test]
    fn numbers_at_the_edges() {
        for (n, text) in [(0, "0"), (9, "9"), (10, "10"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(Decimal::new(n).as_bytes(), text.as_bytes());
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

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(n: u64) {
            let text = n.to_string();
            let decimal = Decimal::new(n);
            prop_assert_eq!(decimal.as_bytes(), text.as_bytes());
            prop_assert_eq!(parse_canonical_u64(text.as_bytes()), Some(n));
            let small = n % 10_000_000_000_000_000;
            prop_assert_eq!(padded16(small).to_vec(), format!("{small:016}").into_bytes());
            let mut out = Vec::new();
            write_padded(&mut out, n % 1000, 3);
            prop_assert_eq!(out, format!("{:03}", n % 1000).into_bytes());
        }
    }
}
