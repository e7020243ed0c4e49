//! Offset tokens (base protocol 8; decisions 8 and 9): `<16 digits>_<16 digits>`, a lineage id and the byte offset in
//! the stream's canonical bytes. Sorting tokens of one stream as text sorts them by byte offset.
//!
//! Whether a token names a place in a stream is the shard's to decide: it knows the stream's lineage, its tail and
//! which lineages were ever issued. Here is only the syntax.

use super::digits;
use super::errors::{Code, Problem};
use crate::limits::LINEAGE_MAX;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 33;
/// Largest byte offset.
pub const OFFSET_MAX: u64 = digits::SIXTEEN_DIGITS_MAX;

const _: () = assert!(LINEAGE_MAX == OFFSET_MAX, "both halves of a token have sixteen digits");

/// An offset as a client gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetArg {
    /// `-1`, or a token of zeros: where the stream starts.
    Start,
    /// `now`: the tail.
    Now,
    /// A token that a server gave out.
    Token {
        /// The life of the stream that it belongs to.
        lineage: u64,
        /// Byte offset.
        offset: u64,
    },
    /// A plain decimal: a byte offset in the present stream (decision 9).
    Plain(u64),
}

impl OffsetArg {
    /// Parses an offset, already percent-decoded. Anything else than the four forms is 400 `INVALID_OFFSET`.
    pub fn parse(text: &[u8]) -> Result<Self, Problem> {
        match text {
            b"-1" => return Ok(Self::Start),
            b"now" => return Ok(Self::Now),
            b"" => return Err(Problem::fixed(Code::InvalidOffset, "the offset is empty")),
            _ => {}
        }
        let parsed = if text.len() == TOKEN_BYTES && text[16] == b'_' {
            match (digits::parse_u64(&text[..16]), digits::parse_u64(&text[17..])) {
                (Some(0), Some(0)) => Some(Self::Start),
                (Some(lineage), Some(offset)) => Some(Self::Token { lineage, offset }),
                _ => None,
            }
        } else if text.len() <= 16 {
            digits::parse_canonical_u64(text).map(Self::Plain)
        } else {
            None
        };
        parsed.ok_or(Problem::fixed(
            Code::InvalidOffset,
            "an offset is -1, now, a token from Stream-Next-Offset, or a byte offset without leading zeros",
        ))
    }
}

/// The token of a byte offset in a lineage, on the stack. Both must have no more than sixteen digits.
pub fn token(lineage: u64, offset: u64) -> [u8; TOKEN_BYTES] {
    let mut bytes = [b'_'; TOKEN_BYTES];
    bytes[..16].copy_from_slice(&digits::padded16(lineage));
    bytes[17..].copy_from_slice(&digits::padded16(offset));
    bytes
}

/// Appends the token of a byte offset in a lineage.
pub fn write_token(out: &mut Vec<u8>, lineage: u64, offset: u64) {
    out.extend_from_slice(&token(lineage, offset));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_that_are_offsets() {
        let token = |lineage, offset| OffsetArg::Token { lineage, offset };
        let table: &[(&str, OffsetArg)] = &[
            ("-1", OffsetArg::Start),
            ("now", OffsetArg::Now),
            ("0", OffsetArg::Plain(0)),
            ("42", OffsetArg::Plain(42)),
            ("9999999999999999", OffsetArg::Plain(OFFSET_MAX)),
            ("0000000000000000_0000000000000000", OffsetArg::Start),
            ("0000000000000007_0000000000000000", token(7, 0)),
            ("0000000000000000_0000000000000001", token(0, 1)),
            ("9999999999999999_9999999999999999", token(LINEAGE_MAX, OFFSET_MAX)),
        ];
        for (text, expected) in table {
            assert_eq!(OffsetArg::parse(text.as_bytes()), Ok(*expected), "{text}");
        }
    }

    #[test]
    fn forms_that_are_not() {
        let table = [
            "",
            " ",
            "0,1",
            "0 1",
            "a",
            "NOW",
            "Now",
            "now ",
            " now",
            "-2",
            "--1",
            "-0",
            "+1",
            "01",
            "00",
            "1.0",
            "1e3",
            "0x10",
            "10000000000000000",
            "18446744073709551616",
            // Tokens with a digit too few or too many, another separator, or a sign.
            "000000000000000_0000000000000000",
            "00000000000000000_0000000000000000",
            "0000000000000000-0000000000000000",
            "0000000000000001_000000000000000a",
            "0000000000000001_-000000000000001",
            "000000000000000\u{ff11}_000000000001",
            "0000000000000001_0000000000000001_",
            "_",
            "1_1",
        ];
        for text in table {
            let problem = OffsetArg::parse(text.as_bytes()).expect_err(text);
            assert_eq!(problem.code, Code::InvalidOffset, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_read_back_and_sort_as_text(lineage in 1..=LINEAGE_MAX, a in 0..=OFFSET_MAX, b in 0..=OFFSET_MAX) {
            let (first, second) = (token(lineage, a), token(lineage, b));
            prop_assert_eq!(OffsetArg::parse(&first), Ok(OffsetArg::Token { lineage, offset: a }));
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = OffsetArg::parse(&text);
        }
    }
}
