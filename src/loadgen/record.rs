//! The records that a run writes: each says who wrote it, and every byte of it can be foretold.
//!
//! ```text
//!  plain   cccccc ssssssssss [tttttttttttttttt] fill...                    hexadecimal, without the spaces
//!  JSON    {"id":"ccccccssssssssss[tttttttttttttttt]","data":"fill..."}
//! ```
//!
//! `c` is the connection that wrote it, `s` its number among all records of that connection, `t` (in timed layouts) the
//! intended send time in nanoseconds of the run's clock. The fill is a part of a text that depends on the seed only; which
//! part depends on `c` and on the record's place in its request, so that a prepared request needs only its ids changed.
//!
//! Invariant: all records of a layout have the same length, so a plain stream is cut by counting.

use std::sync::Arc;

/// Digits of a connection.
const CONNECTION_DIGITS: usize = 6;
/// Digits of a record's number.
const NUMBER_DIGITS: usize = 10;
/// Digits of a time.
const TIME_DIGITS: usize = 16;
/// Before the id, in JSON.
const JSON_BEFORE: &[u8] = b"{\"id\":\"";
/// Between id and fill, in JSON.
const JSON_BETWEEN: &[u8] = b"\",\"data\":\"";
/// After the fill, in JSON.
const JSON_AFTER: &[u8] = b"\"}";
/// How many different places in the text a fill begins at.
const FILL_PLACES: usize = 4096;
/// Characters of a fill: none that JSON would escape.
const FILL_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Connections that ids can tell apart.
pub const CONNECTIONS_MAX: usize = 1 << (4 * CONNECTION_DIGITS);

/// Which record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    /// The connection that wrote it.
    pub connection: u32,
    /// Its number among the records of that connection, from 0.
    pub number: u64,
    /// When it should have been sent; 0 in a layout without times.
    pub due_ns: u64,
}

/// What all records of a run have in common.
#[derive(Clone, Debug)]
pub struct Layout {
    payload_bytes: usize,
    is_json: bool,
    timed: bool,
    frames: usize,
    text: Arc<[u8]>,
}

impl Layout {
    /// Records of exactly `payload_bytes`, `frames` of them in a request. `payload_bytes` is at least
    /// [`Layout::payload_bytes_min`].
    pub fn new(seed: u64, payload_bytes: usize, is_json: bool, timed: bool, frames: usize) -> Self {
        assert!(
            payload_bytes >= Self::payload_bytes_min(is_json, timed),
            "{payload_bytes} bytes are too few"
        );
        assert!(frames > 0, "a request has records");
        let mut random = seed;
        let text =
            (0..payload_bytes + FILL_PLACES).map(|_| FILL_ALPHABET[next_random(&mut random) as usize & 63]);
        Self { payload_bytes, is_json, timed, frames, text: text.collect() }
    }

    /// Bytes of the shortest record.
    pub const fn payload_bytes_min(is_json: bool, timed: bool) -> usize {
        let id = CONNECTION_DIGITS + NUMBER_DIGITS + if timed { TIME_DIGITS } else { 0 };
        if is_json { JSON_BEFORE.len() + id + JSON_BETWEEN.len() + JSON_AFTER.len() } else { id }
    }

    /// Bytes of each record.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Records of a request.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Whether records are JSON objects.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    fn id_at(&self) -> usize {
        if self.is_json { JSON_BEFORE.len() } else { 0 }
    }

    fn fill(&self, id: Id, bytes: usize) -> &[u8] {
        let frame = id.number as usize % self.frames;
        let place = (id.connection as usize * 61 + frame * 17) % FILL_PLACES;
        &self.text[place..place + bytes]
    }

    fn fill_bytes(&self) -> usize {
        self.payload_bytes - Self::payload_bytes_min(self.is_json, self.timed)
    }

    /// Appends a record.
    pub fn write(&self, out: &mut Vec<u8>, id: Id) {
        let start = out.len();
        if self.is_json {
            out.extend_from_slice(JSON_BEFORE);
        }
        let id_end = out.len() + CONNECTION_DIGITS + NUMBER_DIGITS + if self.timed { TIME_DIGITS } else { 0 };
        out.resize(id_end, b'0');
        self.patch(&mut out[start..], id);
        if self.is_json {
            out.extend_from_slice(JSON_BETWEEN);
        }
        out.extend_from_slice(self.fill(id, self.fill_bytes()));
        if self.is_json {
            out.extend_from_slice(JSON_AFTER);
        }
        assert_eq!(out.len() - start, self.payload_bytes, "the length of a record");
    }

    /// Makes a record another one of the same connection and place in the request, in place.
    #[inline]
    pub fn patch(&self, record: &mut [u8], id: Id) {
        let at = self.id_at();
        // Both digits fields at once: 6 + 10 digits are 64 bits.
        let combined = u64::from(id.connection) << (4 * NUMBER_DIGITS) | id.number;
        record[at..at + 16].copy_from_slice(&hex16(combined));
        if self.timed {
            record[at + 16..at + 32].copy_from_slice(&hex16(id.due_ns));
        }
    }

    /// The id of a record, without a look at the rest; nothing if it has none.
    #[inline]
    pub fn id(&self, record: &[u8]) -> Option<Id> {
        let at = self.id_at();
        let combined = parse_hex16(record.get(at..at + 16)?)?;
        let due_ns = if self.timed { parse_hex16(record.get(at + 16..at + 32)?)? } else { 0 };
        let connection = (combined >> (4 * NUMBER_DIGITS)) as u32;
        Some(Id { connection, number: combined & ((1 << (4 * NUMBER_DIGITS)) - 1), due_ns })
    }

    /// The id of a record that is right in every byte; nothing if it is not.
    pub fn check(&self, record: &[u8]) -> Option<Id> {
        let id = self.id(record)?;
        if record.len() != self.payload_bytes {
            return None;
        }
        let id_at = self.id_at();
        let id_end = id_at + CONNECTION_DIGITS + NUMBER_DIGITS + if self.timed { TIME_DIGITS } else { 0 };
        let (before, rest) = (&record[..id_at], &record[id_end..]);
        if !self.is_json {
            return (rest == self.fill(id, rest.len())).then_some(id);
        }
        let (between, rest) = rest.split_at(JSON_BETWEEN.len());
        let (fill, after) = rest.split_at(self.fill_bytes());
        let is_right = before == JSON_BEFORE
            && between == JSON_BETWEEN
            && after == JSON_AFTER
            && fill == self.fill(id, fill.len());
        is_right.then_some(id)
    }
}

/// The next number of a sequence that its start decides (splitmix64).
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Spreads eight hexadecimal digits over eight bytes, the first in the lowest, not yet ASCII.
#[inline]
fn spread(n: u32) -> u64 {
    let n = u64::from(n.swap_bytes());
    // Bytes to every other byte, then nibbles to every byte, high nibble first.
    let n = (n | n << 16) & 0x0000_ffff_0000_ffff;
    let n = (n | n << 8) & 0x00ff_00ff_00ff_00ff;
    (n >> 4 | n << 8) & 0x0f0f_0f0f_0f0f_0f0f
}

/// Sixteen lower-case hexadecimal digits.
#[inline]
fn hex16(n: u64) -> [u8; 16] {
    let ascii = |nibbles: u64| {
        // 1 in every byte that holds ten or more: those are letters.
        let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
        (nibbles + 0x3030_3030_3030_3030 + letters * (b'a' - b'0' - 10) as u64).to_le_bytes()
    };
    let mut digits = [0; 16];
    digits[..8].copy_from_slice(&ascii(spread((n >> 32) as u32)));
    digits[8..].copy_from_slice(&ascii(spread(n as u32)));
    digits
}

/// The number of sixteen lower-case hexadecimal digits.
#[inline]
fn parse_hex16(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<Layout> {
        let mut layouts = Vec::new();
        for (is_json, timed) in [(false, false), (false, true), (true, false), (true, true)] {
            let least = Layout::payload_bytes_min(is_json, timed);
            layouts.extend([least, least + 1, 256].map(|bytes| Layout::new(9, bytes, is_json, timed, 3)));
        }
        layouts
    }

    #[test]
    fn hexadecimal_is_what_formatting_makes() {
        let mut random = 5;
        for n in
            [0, 1, 9, 10, 15, 16, u64::MAX].into_iter().chain((0..1000).map(|_| next_random(&mut random)))
        {
            assert_eq!(std::str::from_utf8(&hex16(n)).unwrap(), format!("{n:016x}"));
            assert_eq!(parse_hex16(&hex16(n)), Some(n));
        }
        assert_eq!(parse_hex16(b"000000000000000G"), None);
        assert_eq!(parse_hex16(b"000000000000000A"), None);
    }

    #[test]
    fn records_look_as_described() {
        let id = Id { connection: 0xab, number: 0x12345, due_ns: 0xfe };
        let written = |layout: &Layout| {
            let mut out = Vec::new();
            layout.write(&mut out, id);
            String::from_utf8(out).unwrap()
        };
        let plain = Layout::new(1, 20, false, false, 1);
        assert_eq!(&written(&plain)[..16], "0000ab0000012345");
        let json = Layout::new(1, 60, true, true, 1);
        let text = written(&json);
        assert!(text.starts_with("{\"id\":\"0000ab000001234500000000000000fe\",\"data\":\""), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"].is_string());
    }

    #[test]
    fn a_record_is_known_again_and_patching_is_writing() {
        for layout in layouts() {
            for number in [0, 1, 2, 3, 0xff_ffff_ffff] {
                let timed = layout.timed;
                let id = Id { connection: 7, number, due_ns: if timed { 1 << 40 } else { 0 } };
                let mut record = Vec::new();
                layout.write(&mut record, id);
                assert_eq!(layout.check(&record), Some(id), "{layout:?}");
                let next = Id { number: number ^ 3 << 20, ..id };
                if next.number % 3 == number % 3 {
                    layout.patch(&mut record, next);
                    let mut fresh = Vec::new();
                    layout.write(&mut fresh, next);
                    assert_eq!(record, fresh);
                }
            }
        }
    }

    #[test]
    fn any_changed_byte_is_seen() {
        for layout in layouts() {
            let id = Id { connection: 7, number: 8, due_ns: 9 };
            let mut record = Vec::new();
            layout.write(&mut record, id);
            let right = layout.check(&record);
            for at in 0..record.len() {
                let mut changed = record.clone();
                changed[at] ^= 1;
                assert_ne!(layout.check(&changed), right, "byte {at}");
            }
            assert_eq!(layout.check(&record[..record.len() - 1]), None);
            record.push(b'x');
            assert_eq!(layout.check(&record), None);
        }
    }

    #[test]
    fn seeds_make_different_texts() {
        let text = |seed| Layout::new(seed, 64, false, false, 1).text;
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
