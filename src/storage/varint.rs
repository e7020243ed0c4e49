//! Numbers of variable size, as the indexes in memory and the footers write them: seven bits a byte, least significant
//! first.
//!
//! [`take`] is only for bytes that this process wrote itself: reading past the end is a bug and panics. What comes from
//! disk is read by `storage::codec`, which returns errors.

/// Bytes of the longest number.
pub(super) const BYTES_MAX: usize = 10;

/// Appends `value`.
///
/// One and two bytes take the same path: lengths mix them at random, and a branch between them is mispredicted every
/// other time (measured: 9 ns a record instead of 5).
#[inline]
pub(super) fn put(out: &mut Vec<u8>, value: u64) {
    if value < 1 << 14 {
        let second = u8::from(value > 0x7f);
        out.extend_from_slice(&[value as u8 & 0x7f | second << 7, (value >> 7) as u8]);
        out.truncate(out.len() - 1 + usize::from(second));
        return;
    }
    put_long(out, value);
}

#[cold]
fn put_long(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `bytes`. Like [`put`], without a branch between one byte and two.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> u64 {
    if let [first, second, ..] = **bytes {
        let has_second = first >> 7;
        if has_second & second >> 7 == 0 {
            let second = u64::from(second & has_second.wrapping_neg());
            *bytes = &bytes[1 + usize::from(has_second)..];
            return u64::from(first & 0x7f) | second << 7;
        }
    }
    take_any(bytes)
}

#[cold]
fn take_any(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("a number ends within the bytes of its block");
        assert!(shift < 7 * BYTES_MAX as u32, "a number has at most {BYTES_MAX} bytes");
        value |= u64::from(byte & 0x7f) << shift;
        *bytes = rest;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

/// The step from `from` to `to`, small in absolute value becoming small: 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
#[inline]
pub(super) fn step(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Where the step written as `step` leads from `from`.
#[inline]
pub(super) fn apply_step(from: u64, step: u64) -> u64 {
    let difference = (step >> 1) ^ (step & 1).wrapping_neg();
    from.wrapping_add(difference)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_change_where_seven_bits_end() {
        let table =
            [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (1 << 20, 3), (u64::MAX, BYTES_MAX)];
        for (value, size) in table {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), size, "size of {value}");
            let mut rest = bytes.as_slice();
            assert_eq!(take(&mut rest), value);
            assert!(rest.is_empty(), "nothing is left after {value}");
        }
    }

    #[test]
    fn small_steps_are_small_numbers() {
        for (from, to, written) in
            [(5, 5, 0), (5, 4, 1), (5, 6, 2), (100, 36, 127), (100, 163, 126), (100, 164, 128)]
        {
            assert_eq!(step(from, to), written, "step from {from} to {to}");
        }
    }

    proptest! {
        #[test]
        fn numbers_survive(shifted in prop::collection::vec((any::<u64>(), 0u32..64), 0..50)) {
            let values: Vec<u64> = shifted.iter().map(|(value, shift)| value >> shift).collect();
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(&mut bytes, *value));
            let mut rest = bytes.as_slice();
            for value in &values {
                prop_assert_eq!(take(&mut rest), *value);
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn steps_lead_back(from: u64, to: u64) {
            prop_assert_eq!(apply_step(from, step(from, to)), to);
        }
    }
}
