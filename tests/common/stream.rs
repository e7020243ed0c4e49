//! A stream that a test works on: one line per request.

use super::client::{Request, Response, outside_strings};
use super::server::Server;
use super::sse::Events;

/// A text stream's content type.
pub const TEXT: &str = "text/plain";
/// A binary stream's content type.
pub const OCTETS: &str = "application/octet-stream";
/// A record stream's content type.
pub const JSON: &str = "application/json";

/// A stream of a server.
#[derive(Clone)]
pub struct Stream<'s> {
    server: &'s Server,
    /// Path, percent-encoded.
    pub path: String,
    /// Content type that appends carry.
    pub content_type: String,
}

impl Server {
    /// Creates a stream in the tests' bucket.
    #[track_caller]
    pub fn create(&self, name: &str, content_type: &str) -> Stream<'_> {
        self.create_with(name, content_type, &[])
    }

    /// Creates a stream in the tests' bucket, with headers.
    #[track_caller]
    pub fn create_with(&self, name: &str, content_type: &str, headers: &[(&str, &str)]) -> Stream<'_> {
        let stream = self.stream(&format!("{}{name}", self.prefix()), content_type);
        stream.put().headers(headers).expect(201);
        stream
    }

    /// A stream at a path, created or not.
    pub fn stream(&self, path: &str, content_type: &str) -> Stream<'_> {
        Stream { server: self, path: path.to_owned(), content_type: content_type.to_owned() }
    }

    /// A stream of each surface under the same name, created.
    #[track_caller]
    pub fn create_on_both(&self, name: &str, content_type: &str) -> Vec<Stream<'_>> {
        let flat = self.stream(&format!("/v1/stream/flat/{}{name}", self.prefix().len()), content_type);
        flat.put().expect(201);
        vec![self.create(name, content_type), flat]
    }
}

impl<'s> Stream<'s> {
    /// The server.
    pub fn server(&self) -> &'s Server {
        self.server
    }

    /// A request to the stream.
    pub fn request(&self, method: &str) -> Request<'s> {
        self.server.request(method, self.path.clone())
    }

    /// A create.
    pub fn put(&self) -> Request<'s> {
        self.request("PUT").header("Content-Type", &self.content_type)
    }

    /// An append.
    pub fn post(&self, body: impl AsRef<[u8]>) -> Request<'s> {
        self.request("POST").header("Content-Type", &self.content_type).body(body)
    }

    /// A read; the query comes without its question mark.
    pub fn get(&self, query: &str) -> Request<'s> {
        let mark = if query.is_empty() { "" } else { "?" };
        self.server.request("GET", format!("{}{mark}{query}", self.path))
    }

    /// Appends; returns the next offset.
    #[track_caller]
    pub fn append(&self, body: impl AsRef<[u8]>) -> String {
        self.post(body).expect(204).next_offset()
    }

    /// An append of a producer.
    pub fn produce(&self, producer: &str, epoch: u64, seq: u64, body: impl AsRef<[u8]>) -> Request<'s> {
        self.post(body)
            .header("Producer-Id", producer)
            .header("Producer-Epoch", epoch.to_string())
            .header("Producer-Seq", seq.to_string())
    }

    /// Closes the stream.
    #[track_caller]
    pub fn close(&self) -> Response {
        self.request("POST").header("Stream-Closed", "true").expect(204)
    }

    /// Deletes the stream.
    #[track_caller]
    pub fn delete(&self) {
        self.request("DELETE").expect(204);
    }

    /// Metadata.
    #[track_caller]
    pub fn head(&self) -> Response {
        self.request("HEAD").expect(200)
    }

    /// The tail offset.
    #[track_caller]
    pub fn tail(&self) -> String {
        self.head().next_offset()
    }

    /// Everything, following pages to the tail. Joins the bytes of a byte stream; of a record stream, use
    /// [`Stream::records`].
    #[track_caller]
    pub fn read(&self) -> Vec<u8> {
        self.pages("-1").concat()
    }

    /// Everything as text.
    #[track_caller]
    pub fn read_text(&self) -> String {
        String::from_utf8(self.read()).expect("the stream is text")
    }

    /// Every record of a record stream, in its exact spelling.
    #[track_caller]
    pub fn records(&self) -> Vec<String> {
        let mut records = Vec::new();
        for page in self.pages("-1") {
            records.extend(split_array(&page));
        }
        records
    }

    /// The bodies of all pages from an offset to the tail.
    #[track_caller]
    pub fn pages(&self, from: &str) -> Vec<Vec<u8>> {
        let mut connection = self.server.connect();
        let mut offset = from.to_owned();
        let mut pages = Vec::new();
        loop {
            let page = connection.send(&self.get(&format!("offset={offset}"))).expect(200);
            let next = page.next_offset();
            let at_tail = page.header("stream-up-to-date").is_some();
            assert!(at_tail || next != offset, "a page before the tail that leads nowhere: {page:?}");
            pages.push(page.body);
            if at_tail {
                return pages;
            }
            offset = next;
        }
    }

    /// Opens an SSE reader; the query comes without `live=sse`.
    #[track_caller]
    pub fn events(&self, query: &str) -> Events {
        Events::open(self.server, &self.get(&format!("{query}&live=sse")))
    }
}

/// The elements of a JSON array in their exact spelling.
#[track_caller]
pub fn split_array(array: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(array).expect("JSON is UTF-8");
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.unwrap_or_else(|| panic!("no array: {text}"));
    let (mut elements, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, byte) in outside_strings(inside.as_bytes()) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                elements.push(inside[start..at].to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inside.is_empty() {
        elements.push(inside[start..].to_owned());
    }
    elements
}
