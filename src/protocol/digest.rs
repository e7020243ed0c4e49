//! Digests of snapshots (decision 18): BLAKE3 over the length of the content type (64 bits, little-endian), the content
//! type, and the body; shown as 64 lower-case hexadecimal digits.

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = blake3::OUT_LEN;

/// A digest under way: the body may come in pieces, for a long one takes a while.
#[derive(Clone, Debug)]
pub struct Digester(blake3::Hasher);

impl Digester {
    /// Begins with the content type, as it was sent.
    pub fn new(content_type: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(content_type.len() as u64).to_le_bytes());
        hasher.update(content_type);
        Self(hasher)
    }

    /// Goes on with the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything.
    pub fn finish(&self) -> [u8; DIGEST_BYTES] {
        *self.0.finalize().as_bytes()
    }
}

/// A digest as it is shown.
pub fn hex(digest: &[u8; DIGEST_BYTES]) -> [u8; 2 * DIGEST_BYTES] {
    let mut text = [0; 2 * DIGEST_BYTES];
    for (byte, pair) in digest.iter().zip(text.chunks_exact_mut(2)) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(content_type: &[u8], pieces: &[&[u8]]) -> String {
        let mut digester = Digester::new(content_type);
        pieces.iter().for_each(|piece| digester.update(piece));
        String::from_utf8(hex(&digester.finish()).to_vec()).unwrap()
    }

    /// Other writers must arrive at the same. (The digest of nothing is from BLAKE3's published vectors.)
    #[test]
    fn known_digests() {
        let whole: Vec<u8> = [&10u64.to_le_bytes()[..], b"text/plain", b"hello"].concat();
        assert_eq!(shown(b"text/plain", &[b"hello"]), blake3::hash(&whole).to_string());
        assert_eq!(
            blake3::hash(b"").to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }

    #[test]
    fn pieces_do_not_show_but_the_border_of_the_content_type_does() {
        assert_eq!(shown(b"a/b", &[b"one", b"", b"two"]), shown(b"a/b", &[b"onetwo"]));
        assert_ne!(shown(b"a/b", &[b"c"]), shown(b"a/bc", &[b""]));
        assert_ne!(shown(b"a/b", &[b""]), shown(b"a/c", &[b""]));
        assert!(shown(b"a/b", &[]).bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    }
}
