//! Snapshots and bootstraps as a client sees them: their requests, and a strict reader of `multipart/mixed`.

use super::client::{Request, Response};
use super::stream::Stream;

impl<'s> Stream<'s> {
    /// A request to an endpoint below the stream.
    pub fn below(&self, method: &str, suffix: &str) -> Request<'s> {
        self.server().request(method, format!("{}/{suffix}", self.path))
    }

    /// A publication of a text snapshot.
    pub fn publication(&self, offset: &str, body: impl AsRef<[u8]>) -> Request<'s> {
        self.below("PUT", &format!("snapshot/{offset}")).header("Content-Type", "text/plain").body(body)
    }

    /// Publishes a text snapshot; returns its digest.
    #[track_caller]
    pub fn publish(&self, offset: &str, body: impl AsRef<[u8]>) -> String {
        let expected = digest("text/plain", body.as_ref());
        let answer = self.publication(offset, body).expect(204);
        assert_eq!(answer.required("stream-snapshot-digest"), expected);
        expected
    }

    /// Lets go of everything before an offset.
    #[track_caller]
    pub fn retain(&self, offset: &str) -> Response {
        self.below("PUT", &format!("retention/{offset}")).expect(204)
    }

    /// Everything at once.
    #[track_caller]
    pub fn bootstrap(&self) -> Bootstrap {
        Bootstrap::parse(self.below("GET", "bootstrap").expect(200))
    }
}

/// Decision 18.
pub fn digest(content_type: &str, body: &[u8]) -> String {
    let length = (content_type.len() as u64).to_le_bytes();
    blake3::hash(&[&length, content_type.as_bytes(), body].concat()).to_hex().to_string()
}

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its `Content-Type`.
    pub content_type: String,
    /// Its body.
    pub body: Vec<u8>,
}

/// An answer to `/bootstrap`.
#[derive(Debug)]
pub struct Bootstrap {
    /// The answer; its body is in the parts.
    pub response: Response,
    /// What stands between the parts.
    pub boundary: String,
    /// The snapshot, or the empty part in its place.
    pub snapshot: Part,
    /// The messages after it.
    pub updates: Vec<Part>,
}

impl Bootstrap {
    /// Takes an answer apart by its boundary alone, and requires that nothing is left over.
    #[track_caller]
    pub fn parse(mut response: Response) -> Bootstrap {
        let content_type = response.required("content-type");
        let boundary =
            content_type.strip_prefix("multipart/mixed; boundary=").expect("a boundary").to_owned();
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("stream-up-to-date"), Some("true"));
        let body = std::mem::take(&mut response.body);
        // RFC 2046 5.1.1: the delimiter is the line with the boundary, and belongs to it with the line break before.
        let framed = [b"\r\n", &body[..]].concat();
        let delimiter = format!("\r\n--{boundary}");
        let mut between = split(&framed, delimiter.as_bytes());
        assert_eq!(between.next(), Some(&b""[..]), "nothing stands before the first part");
        let mut parts: Vec<Part> = Vec::new();
        let mut end = None;
        for text in between {
            assert_eq!(end, None, "nothing stands behind the last delimiter");
            match text.strip_prefix(b"--") {
                Some(rest) => end = Some(rest),
                None => parts.push(Part::parse(text)),
            }
        }
        assert_eq!(end, Some(&b"\r\n"[..]), "the last delimiter ends the body");
        let snapshot = parts.remove(0);
        Bootstrap { response, boundary, snapshot, updates: parts }
    }

    /// Bodies of the messages as text.
    #[track_caller]
    pub fn texts(&self) -> Vec<&str> {
        self.updates.iter().map(|part| std::str::from_utf8(&part.body).expect("it is text")).collect()
    }
}

impl Part {
    #[track_caller]
    fn parse(text: &[u8]) -> Part {
        let rest = text.strip_prefix(b"\r\nContent-Type: ").expect("a part has a content type, and no more");
        let end =
            rest.windows(4).position(|four| four == b"\r\n\r\n").expect("an empty line before the body");
        let content_type = String::from_utf8(rest[..end].to_vec()).expect("a content type is text");
        Part { content_type, body: rest[end + 4..].to_vec() }
    }
}

fn split<'a>(mut text: &'a [u8], delimiter: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        // The first byte first: a body of many megabytes is searched in a debug build.
        let found = (0..text.len())
            .filter(|at| text[*at] == delimiter[0])
            .find(|at| text[*at..].starts_with(delimiter));
        let Some(at) = found else {
            ended = true;
            return Some(text);
        };
        let before = &text[..at];
        text = &text[at + delimiter.len()..];
        Some(before)
    })
}
