//! Numbers of variable size, as the indexes in memory write them: seven bits a byte, least significant first.
//!
//! Only for bytes that this process wrote itself: reading past the end is a bug and panics. What comes from
//! disk is decoded by `storage::codec`, which returns errors.

/// Bytes of the longest number.
pub(super) const BYTES_MAX: usize = 10;

/// Appends `value`.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `bytes`.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> u64 {
    let (&first, mut rest) = bytes.split_first().expect("a number starts here");
    let mut value = u64::from(first & 0x7f);
    let mut byte = first;
    let mut shift = 7;
    while byte >= 0x80 {
        assert!(shift < 7 * BYTES_MAX as u32, "a number has at most {BYTES_MAX} bytes");
        (byte, rest) = match rest.split_first() {
            Some((&next, after)) => (next, after),
            None => panic!("a number ends within its bytes (shift {shift}, value so far {value})"),
        };
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
    }
    *bytes = rest;
    value
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
