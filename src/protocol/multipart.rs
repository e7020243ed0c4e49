//! The framing of a bootstrap (extension 3.2): `multipart/mixed` of RFC 2046, one message a part.
//!
//! ```text
//! --BOUNDARY CRLF Content-Type: TYPE CRLF CRLF body CRLF     (for each part)
//! --BOUNDARY-- CRLF
//! ```
//!
//! Decision 21: the boundary occurs in no part. A part may hold any bytes and the answer is never in memory as a whole, so
//! they cannot be searched for a boundary first. Instead, a boundary is made of 128 bits that nobody can guess, and it is
//! made once the last byte it stands between is written: whoever wrote that could not know it, and chance hits one of the
//! fewer than 2^54 places of a stream with a probability below 2^-74.

use super::digits::write_hex;

/// Bytes of a boundary. RFC 2046 5.1.1 allows for 70.
pub const BOUNDARY_BYTES: usize = PREFIX.len() + 32;
const PREFIX: &[u8] = b"thalweg-";

/// What stands between the parts of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary([u8; BOUNDARY_BYTES]);

impl Boundary {
    /// The boundary number `number` under a secret key: 128 bits that say nothing of any other boundary's.
    pub fn new(key: &[u8; 32], number: u64) -> Self {
        let hash = blake3::keyed_hash(key, &number.to_le_bytes());
        let mut text = Vec::with_capacity(BOUNDARY_BYTES);
        text.extend_from_slice(PREFIX);
        for half in hash.as_bytes().chunks_exact(8).take(2) {
            let bits = u64::from_be_bytes(half.try_into().expect("eight bytes"));
            let start = text.len();
            write_hex(&mut text, bits);
            let written = text.len() - start;
            text.resize(start + 16, b'0');
            text[start..].rotate_right(16 - written);
        }
        Self(text.try_into().expect("a prefix and 32 digits"))
    }

    /// Its text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the `Content-Type` of the whole.
    pub fn write_content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/mixed; boundary=");
        out.extend_from_slice(&self.0);
    }

    /// Appends what comes before a part's body.
    #[inline]
    pub fn write_part_head(&self, out: &mut Vec<u8>, content_type: &[u8]) {
        out.extend_from_slice(b"--");
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(content_type);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends the end of the whole.
    pub fn write_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"--");
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b"--\r\n");
    }
}

/// What comes after a part's body.
pub const PART_END: &[u8] = b"\r\n";
/// Bytes of the end of the whole.
pub const END_BYTES: u64 = BOUNDARY_BYTES as u64 + 6;

/// Bytes that a part has besides its body.
pub const fn part_bytes(content_type: &[u8]) -> u64 {
    (b"--".len() + BOUNDARY_BYTES + b"\r\nContent-Type: ".len() + content_type.len() + b"\r\n\r\n".len())
        as u64
        + PART_END.len() as u64
}

const _: () = assert!(BOUNDARY_BYTES <= 70, "a boundary has at most 70 characters");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_differ_and_need_no_quotes() {
        let mut seen = std::collections::HashSet::new();
        for key in [[0; 32], [1; 32]] {
            for number in 0..1000 {
                let boundary = Boundary::new(&key, number);
                assert_eq!(boundary, Boundary::new(&key, number));
                let text = String::from_utf8(boundary.as_bytes().to_vec()).unwrap();
                assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{text}");
                assert!(seen.insert(text), "boundary {number} came before");
            }
        }
    }

    #[test]
    fn lengths_are_those_of_what_is_written() {
        let boundary = Boundary::new(&[7; 32], 7);
        for content_type in ["a/b", "application/octet-stream", "text/plain; charset=utf-8"] {
            let mut out = Vec::new();
            boundary.write_part_head(&mut out, content_type.as_bytes());
            out.extend_from_slice(PART_END);
            assert_eq!(out.len() as u64, part_bytes(content_type.as_bytes()), "{content_type}");
        }
        let mut out = Vec::new();
        boundary.write_end(&mut out);
        assert_eq!(out.len() as u64, END_BYTES);
    }

    #[test]
    fn the_whole_is_as_the_extension_shows_it() {
        let boundary = Boundary::new(&[0; 32], 0);
        let text = String::from_utf8(boundary.as_bytes().to_vec()).unwrap();
        let mut out = Vec::new();
        for (content_type, body) in [("application/octet-stream", "snapshot"), ("application/json", "{}")] {
            boundary.write_part_head(&mut out, content_type.as_bytes());
            out.extend_from_slice(body.as_bytes());
            out.extend_from_slice(PART_END);
        }
        boundary.write_end(&mut out);
        let expected = format!(
            "--{text}\r\nContent-Type: application/octet-stream\r\n\r\nsnapshot\r\n\
             --{text}\r\nContent-Type: application/json\r\n\r\n{{}}\r\n--{text}--\r\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
