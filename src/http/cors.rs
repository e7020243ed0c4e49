//! What pages of other origins may send and see (the Fetch standard's CORS protocol).
//!
//! Any origin may use the server, without credentials that a browser keeps by itself: `Access-Control-Allow-Origin: *`
//! is one of the common headers.

use super::response::{Answer, CommonHeaders, Status, Terms};

/// Names of the headers of answers that a page may read: all of the protocol and its extensions.
/// For answers to `GET` and `HEAD`, and to every request that has an `Origin`.
pub const EXPOSE: &str = "Access-Control-Expose-Headers: \
    Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-SSE-Data-Encoding, \
    Stream-Data-Content-Type, Stream-TTL, Stream-Expires-At, Stream-Seq, Stream-Extensions, Stream-Shard, \
    Stream-Record-First, Stream-Record-Start, Stream-Record-Next, \
    Stream-Snapshot-Offset, Stream-Snapshot-Digest, \
    Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, \
    Producer-Id, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, \
    ETag, Location, Date, Content-Length, Content-Disposition, Retry-After, Allow, Vary\r\n";

/// Answers to a browser's question in advance: what methods and headers a page may use.
///
/// The star allows any further header (tracing, say), but not `Authorization`, and not in old browsers: hence the
/// list. A day is as long as a browser keeps an answer, at most.
const ALLOW: &str = "Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n\
    Access-Control-Allow-Headers: \
    Authorization, Accept, Cache-Control, Content-Type, If-None-Match, Last-Event-ID, \
    Stream-TTL, Stream-Expires-At, Stream-Closed, Stream-Seq, Stream-Attrs, Stream-Record-Match, \
    Stream-Snapshot-Match, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, \
    Producer-Id, Producer-Epoch, Producer-Seq, *\r\n\
    Access-Control-Max-Age: 86400\r\n\
    Allow: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n";

/// Appends the answer to `OPTIONS`, on any path.
pub fn write_preflight(out: &mut Vec<u8>, common: &CommonHeaders, terms: Terms) {
    let mut answer = Answer::new(out, Status::NO_CONTENT, common, terms);
    answer.lines(ALLOW).lines("Cache-Control: no-store\r\n");
    answer.no_body();
}

#[cfg(test)]
mod tests {
    use super::super::known::Known;
    use super::*;

    fn listed(block: &str, name: &str) -> Vec<String> {
        let line = block.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} is missing")).split(", ").map(str::to_ascii_lowercase).collect()
    }

    #[test]
    fn a_page_may_send_every_header_that_the_server_reads() {
        let allowed = listed(ALLOW, "Access-Control-Allow-Headers");
        // Names that a browser sets itself, or that only proxies and non-browsers send.
        let not_a_pages = [
            "content-length",
            "transfer-encoding",
            "connection",
            "expect",
            "host",
            "origin",
            "x-forwarded-proto",
            "access-control-request-method",
            "access-control-request-headers",
        ];
        for known in Known::ALL {
            let is_allowed = allowed.iter().any(|name| name == known.name());
            assert_eq!(is_allowed, !not_a_pages.contains(&known.name()), "{}", known.name());
        }
    }

    #[test]
    fn lists_name_each_header_once() {
        for list in
            [listed(ALLOW, "Access-Control-Allow-Headers"), listed(EXPOSE, "Access-Control-Expose-Headers")]
        {
            let mut names = list.clone();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), list.len(), "{list:?}");
            for name in names {
                assert!(name.bytes().all(super::super::head::is_token_byte), "{name:?}");
            }
        }
    }

    #[test]
    fn preflight() {
        let mut out = Vec::new();
        write_preflight(&mut out, &CommonHeaders::new(3, 8, 0), Terms { keep_alive: true, ..Terms::CLOSE });
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("HTTP/1.1 204 No Content\r\n"), "{text}");
        assert!(text.ends_with("Cache-Control: no-store\r\n\r\n"), "{text}");
        assert!(text.contains("\r\nAccess-Control-Allow-Origin: *\r\n"), "{text}");
        assert!(listed(&text, "Access-Control-Allow-Headers").contains(&"if-none-match".to_string()));
        assert_eq!(
            listed(&text, "Access-Control-Allow-Methods"),
            ["get", "head", "put", "post", "delete", "options"]
        );
        assert_eq!(listed(&text, "Access-Control-Max-Age"), ["86400"]);
        assert!(!text.contains("Content-Length"), "{text}");
    }
}
