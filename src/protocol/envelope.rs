//! The envelope view of records (extension 6.8, 6.9; decision 14): `{"record":42,"value":...}`, one a line, or one an event.
//!
//! The value is the record as it is stored. Canonical records hold no line ends, so an envelope is one line.

use std::ops::Range;

use super::digits::write_u64;

/// `Content-Type` of pages of envelopes.
pub const PAGE_TYPE: &[u8] = b"application/vnd.durable-stream-records+ndjson";
/// Header line of an SSE answer whose data events are envelopes.
pub const EVENT_TYPE_LINE: &str = "Stream-Data-Content-Type: application/vnd.durable-stream-record+json\r\n";

const BEFORE_ORDINAL: &[u8] = b"{\"record\":";
const BEFORE_VALUE: &[u8] = b",\"value\":";
const AFTER_VALUE: &[u8] = b"}";
const BEFORE_EVENT: &[u8] = b"event: data\ndata:";
const AFTER_EVENT: &[u8] = b"\n\n";

/// Bytes that an envelope adds to its record, its ordinal aside.
const WRAPPING_BYTES: u64 = (BEFORE_ORDINAL.len() + BEFORE_VALUE.len() + AFTER_VALUE.len()) as u64;

/// Bytes of a page of envelopes of records that have so many bytes, separators included.
pub fn page_bytes(canonical_bytes: u64, ordinals: Range<u64>) -> u64 {
    // The line feed takes the place of the separator.
    canonical_bytes
        + WRAPPING_BYTES * (ordinals.end - ordinals.start)
        + (digits_below(ordinals.end) - digits_below(ordinals.start))
}

/// Digits of all numbers below `n` together.
fn digits_below(n: u64) -> u64 {
    // Each has one digit; those from 10 on have another, those from 100 on one more.
    let powers = std::iter::successors(Some(10u64), |power| power.checked_mul(10));
    n + powers.take_while(|power| *power < n).map(|power| n - power).sum::<u64>()
}

/// Appends a page of envelopes. `canonical` are whole records with their separators; `lengths` those records' lengths,
/// separators included, from the first one, whose ordinal is `first`.
pub fn write_page(out: &mut Vec<u8>, canonical: &[u8], first: u64, lengths: impl Iterator<Item = u32>) {
    for_each(canonical, first, lengths, |ordinal, value| {
        write(out, ordinal, value);
        out.push(b'\n');
    });
}

/// Appends data events of one envelope each; calls `ended` behind every one with the length of its record. Arguments as of
/// [`write_page`].
pub fn write_events(
    out: &mut Vec<u8>,
    canonical: &[u8],
    first: u64,
    lengths: impl Iterator<Item = u32>,
    mut ended: impl FnMut(&[u8], u32),
) {
    for_each(canonical, first, lengths, |ordinal, value| {
        out.extend_from_slice(BEFORE_EVENT);
        write(out, ordinal, value);
        out.extend_from_slice(AFTER_EVENT);
        ended(out, value.len() as u32 + 1);
    });
}

fn for_each(
    canonical: &[u8],
    first: u64,
    lengths: impl Iterator<Item = u32>,
    mut each: impl FnMut(u64, &[u8]),
) {
    let mut start = 0;
    for (ordinal, length) in (first..).zip(lengths) {
        let end = start + length as usize;
        let record = canonical.get(start..end);
        let (separator, value) = record.and_then(<[u8]>::split_last).unwrap_or_else(|| {
            panic!("record {ordinal} lies at {start}..{end} of a page of {} bytes", canonical.len())
        });
        assert_eq!(*separator, b',', "a separator behind record {ordinal}");
        each(ordinal, value);
        start = end;
    }
    assert_eq!(start, canonical.len(), "records from {first} on fill the page");
}

fn write(out: &mut Vec<u8>, ordinal: u64, value: &[u8]) {
    out.extend_from_slice(BEFORE_ORDINAL);
    write_u64(out, ordinal);
    out.extend_from_slice(BEFORE_VALUE);
    out.extend_from_slice(value);
    out.extend_from_slice(AFTER_VALUE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page() {
        let mut out = b"before ".to_vec();
        write_page(&mut out, b"1,{\"a\":2},", 9, [2, 8].into_iter());
        let expected = "before {\"record\":9,\"value\":1}\n{\"record\":10,\"value\":{\"a\":2}}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut empty = Vec::new();
        write_page(&mut empty, b"", 9, std::iter::empty());
        assert_eq!((empty.len(), page_bytes(0, 9..9)), (0, 0));
    }

    #[test]
    fn events() {
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        write_events(&mut out, b"[],null,", 99, [3, 5].into_iter(), |out, length| {
            ends.push((out.len(), length));
        });
        let first = "event: data\ndata:{\"record\":99,\"value\":[]}\n\n";
        let second = "event: data\ndata:{\"record\":100,\"value\":null}\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), format!("{first}{second}"));
        assert_eq!(ends, [(first.len(), 3), (first.len() + second.len(), 5)]);
    }

    #[test]
    #[should_panic(expected = "records from 0 on fill the page")]
    fn records_that_are_missing_are_a_bug() {
        write_page(&mut Vec::new(), b"1,2,", 0, [2].into_iter());
    }

    #[test]
    fn digits_around_powers_of_ten() {
        for edge in [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 1001, 12_345] {
            let expected: usize = (0..edge).map(|n: u64| n.to_string().len()).sum();
            assert_eq!(digits_below(edge), expected as u64, "{edge}");
        }
        assert_eq!(digits_below(u64::MAX / 20) - digits_below(u64::MAX / 20 - 1), 18);
    }

    proptest! {
        #[test]
        fn a_page_has_the_bytes_that_are_announced(first in 0u64..2000, values in proptest::collection::vec(0u32..2000, 0..200)) {
            let (mut canonical, mut lengths) = (Vec::new(), Vec::new());
            for value in &values {
                let text = format!("{value},");
                lengths.push(text.len() as u32);
                canonical.extend_from_slice(text.as_bytes());
            }
            let mut out = Vec::new();
            write_page(&mut out, &canonical, first, lengths.into_iter());
            let end = first + values.len() as u64;
            prop_assert_eq!(out.len() as u64, page_bytes(canonical.len() as u64, first..end));
            let text = String::from_utf8(out).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            prop_assert_eq!(lines.len(), values.len());
            for ((ordinal, value), line) in (first..).zip(&values).zip(lines) {
                prop_assert_eq!(line, format!("{{\"record\":{ordinal},\"value\":{value}}}"));
            }
        }
    }
}
