//! Entity tags of reads (decision 32; base protocol 10.1): they cover lineage, start, end, closure and representation, so
//! that a stream that closes without new data, or comes back under its name, never looks unchanged.

use super::digits;

/// How the bytes of a page are presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// The bytes of a byte stream, or a JSON array of records.
    Plain,
    /// One record a line.
    Ndjson,
    /// One envelope of a record a line.
    Envelopes,
}

/// What a page of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The stream's lineage.
    pub lineage: u64,
    /// Byte offset of its first byte.
    pub start: u64,
    /// Byte offset after its last byte.
    pub end: u64,
    /// Whether the page ends a closed stream.
    pub closed: bool,
    /// How it is presented.
    pub representation: Representation,
}

/// Appends the tag of a page, the value of `ETag`: `"lineage:start:end"` with its quotes, `:c` before the last one if it
/// ends a closed stream, and `:n` for NDJSON or `:e` for envelopes.
pub fn write(out: &mut Vec<u8>, page: &Page) {
    assert!(page.start <= page.end, "a page from {} to {}", page.start, page.end);
    out.push(b'"');
    digits::write_u64(out, page.lineage);
    out.push(b':');
    digits::write_u64(out, page.start);
    out.push(b':');
    digits::write_u64(out, page.end);
    if page.closed {
        out.extend_from_slice(b":c");
    }
    match page.representation {
        Representation::Plain => {}
        Representation::Ndjson => out.extend_from_slice(b":n"),
        Representation::Envelopes => out.extend_from_slice(b":e"),
    }
    out.push(b'"');
}

/// Whether `If-None-Match` names `etag` (RFC 9110 13.1.2): `*`, or a list that holds it. Tags are compared weakly:
/// a `W/` in front does not count. What is not a list of quoted tags matches nothing further.
pub fn if_none_match_matches(header: &[u8], etag: &[u8]) -> bool {
    let mut rest = header.trim_ascii();
    if rest == b"*" {
        return true;
    }
    loop {
        // Empty elements of a list are allowed (RFC 9110 5.6.1).
        while let [b',', after @ ..] = rest {
            rest = after.trim_ascii_start();
        }
        let tag = rest.strip_prefix(b"W/").unwrap_or(rest);
        if tag.first() != Some(&b'"') {
            return false;
        }
        let Some(end) = tag[1..].iter().position(|&byte| byte == b'"') else { return false };
        let (tag, after) = tag.split_at(end + 2);
        if tag == etag {
            return true;
        }
        rest = after.trim_ascii_start();
        if rest.first() != Some(&b',') {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: Page =
        Page { lineage: 7, start: 0, end: 42, closed: false, representation: Representation::Plain };

    fn tag(page: &Page) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, page);
        out
    }

    #[test]
    fn tags() {
        let table = [
            (PAGE, "\"7:0:42\""),
            (Page { closed: true, ..PAGE }, "\"7:0:42:c\""),
            (Page { representation: Representation::Ndjson, ..PAGE }, "\"7:0:42:n\""),
            (Page { closed: true, representation: Representation::Ndjson, ..PAGE }, "\"7:0:42:c:n\""),
            (Page { representation: Representation::Envelopes, ..PAGE }, "\"7:0:42:e\""),
        ];
        for (page, expected) in table {
            assert_eq!(tag(&page), expected.as_bytes());
        }
        let longest = Page {
            lineage: u64::MAX,
            start: u64::MAX,
            end: u64::MAX,
            closed: true,
            representation: Representation::Ndjson,
        };
        // Quotes, three numbers of twenty digits, two colons, two marks.
        assert_eq!(tag(&longest).len(), 2 + 3 * 20 + 2 + 4);
    }

    #[test]
    fn if_none_match() {
        let table = [
            ("\"7:0:42\"", true),
            ("W/\"7:0:42\"", true),
            ("*", true),
            (" * ", true),
            ("\"a\", \"7:0:42\"", true),
            ("\"a\",\"7:0:42\",\"b\"", true),
            (", ,\"7:0:42\"", true),
            ("\"a, b\" ,, W/\"7:0:42\"", true),
            ("\"wrong-etag\"", false),
            ("\"7:0:42:c\"", false),
            ("7:0:42", false),
            ("\"7:0:42", false),
            ("\"a\" \"7:0:42\"", false),
            ("x, \"7:0:42\"", false),
            ("\"a, \"7:0:42\"", false),
            ("", false),
            (",", false),
            ("**", false),
        ];
        for (header, expected) in table {
            assert_eq!(if_none_match_matches(header.as_bytes(), b"\"7:0:42\""), expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn different_pages_have_different_tags(
            a: (u64, u64, u64, bool, u8),
            b: (u64, u64, u64, bool, u8),
        ) {
            let page = |(lineage, start, length, closed, view): (u64, u64, u64, bool, u8)| Page {
                lineage: lineage % 20,
                start: start % 20,
                end: start % 20 + length % 20,
                closed,
                representation: match view % 3 {
                    0 => Representation::Plain,
                    1 => Representation::Ndjson,
                    _ => Representation::Envelopes,
                },
            };
            let (a, b) = (page(a), page(b));
            let (first, second) = (tag(&a), tag(&b));
            prop_assert_eq!(first == second, a == b);
            prop_assert_eq!(if_none_match_matches(&first, &second), a == b);
        }

        #[test]
        fn any_header_is_read_without_panic(header: Vec<u8>, text in "[W/\", *a]{0,30}") {
            let _ = if_none_match_matches(&header, b"\"a\"");
            let _ = if_none_match_matches(text.as_bytes(), b"\"a\"");
        }
    }
}
