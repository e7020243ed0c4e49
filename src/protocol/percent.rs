//! Percent-encoding (RFC 3986 2.1), as paths and query strings use it.

use super::digits::hex_value;

/// What a `+` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    /// Itself: in paths.
    Literal,
    /// A space: in query strings, as every form encoder (`URLSearchParams` among them) writes them.
    Space,
}

/// A percent sign that two hexadecimal digits do not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The first byte that `text` (not empty) stands for, and how many bytes of `text` it took.
fn first_byte(text: &[u8], plus: Plus) -> Result<(u8, usize), Malformed> {
    match text[0] {
        b'%' => {
            let (Some(&high), Some(&low)) = (text.get(1), text.get(2)) else {
                return Err(Malformed);
            };
            match (hex_value(high), hex_value(low)) {
                (Some(high), Some(low)) => Ok((high << 4 | low, 3)),
                _ => Err(Malformed),
            }
        }
        b'+' if plus == Plus::Space => Ok((b' ', 1)),
        byte => Ok((byte, 1)),
    }
}

/// Whether decoding would change `text`.
pub fn is_encoded(text: &[u8], plus: Plus) -> bool {
    text.iter().any(|&byte| byte == b'%' || (byte == b'+' && plus == Plus::Space))
}

/// Appends the bytes that `text` stands for. On an error, `out` holds those before it.
pub fn decode(out: &mut Vec<u8>, text: &[u8], plus: Plus) -> Result<(), Malformed> {
    let mut rest = text;
    while !rest.is_empty() {
        let (byte, taken) = first_byte(rest, plus)?;
        out.push(byte);
        rest = &rest[taken..];
    }
    Ok(())
}

/// Whether `text` stands for exactly `expected`; a malformed text stands for nothing.
pub fn stands_for(text: &[u8], plus: Plus, expected: &[u8]) -> bool {
    let mut rest = text;
    for &wanted in expected {
        match rest.first().map(|_| first_byte(rest, plus)) {
            Some(Ok((byte, taken))) if byte == wanted => rest = &rest[taken..],
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Whether a path may hold this byte as it is (RFC 3986 3.3: `pchar`, and the slash between segments).
const fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@')
        // sub-delims
        || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

/// Appends `path` (decoded bytes) so that it can stand in a URL; slashes stay slashes.
pub fn encode_path(out: &mut Vec<u8>, path: &[u8]) {
    for &byte in path {
        if is_path_byte(byte) {
            out.push(byte);
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(text: &str, plus: Plus) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        decode(&mut out, text.as_bytes(), plus).map(|()| out)
    }

    #[test]
    fn escapes() {
        let table: &[(&str, Result<&[u8], Malformed>)] = &[
            ("", Ok(b"")),
            ("abc", Ok(b"abc")),
            ("%41%7a%7A", Ok(b"Azz")),
            ("%2F%00%25", Ok(b"/\0%")),
            ("%", Err(Malformed)),
            ("%4", Err(Malformed)),
            ("a%4", Err(Malformed)),
            ("%zz", Err(Malformed)),
            ("%4g", Err(Malformed)),
            ("%%41", Err(Malformed)),
            ("%+1", Err(Malformed)),
        ];
        for (text, expected) in table {
            assert_eq!(decoded(text, Plus::Literal), expected.map(<[u8]>::to_vec), "{text}");
        }
        assert_eq!(decoded("a+b%2B", Plus::Literal), Ok(b"a+b+".to_vec()));
        assert_eq!(decoded("a+b%2B", Plus::Space), Ok(b"a b+".to_vec()));
    }

    #[test]
    fn comparing_without_decoding() {
        for (text, expected, same) in [
            ("__ds", "__ds", true),
            ("%5f_d%73", "__ds", true),
            ("__ds/", "__ds", false),
            ("__d", "__ds", false),
            ("__d%7", "__ds", false),
            ("", "", true),
        ] {
            assert_eq!(stands_for(text.as_bytes(), Plus::Literal, expected.as_bytes()), same, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(path: Vec<u8>) {
            let mut text = Vec::new();
            encode_path(&mut text, &path);
            prop_assert!(text.iter().all(|&byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"')));
            let mut back = Vec::new();
            prop_assert_eq!(decode(&mut back, &text, Plus::Literal), Ok(()));
            prop_assert_eq!(&back, &path);
            prop_assert!(stands_for(&text, Plus::Literal, &path));
        }
    }
}
