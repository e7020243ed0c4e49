//! Requests that append, prepared once and changed in place: of each request only the stream's digits in the path and the
//! ids in the records differ from the one before, and all of these have a fixed width.

use super::record::{Id, Layout};
use super::target::{Names, Target};

/// How records are put into a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Records are the body, one after the other; most often there is one.
    Plain,
    /// A JSON array of records.
    Array,
    /// Frames of an append batch: length, record.
    Batch,
}

/// A prepared request of one connection.
#[derive(Debug)]
pub struct Prepared {
    bytes: Vec<u8>,
    /// Where the stream's digits are.
    stream_at: usize,
    /// Where the first record is, and how far apart they are.
    record_at: usize,
    stride: usize,
    layout: Layout,
    connection: u32,
}

impl Prepared {
    /// The append of `layout.frames()` records of `connection`.
    pub fn append(
        target: &Target,
        names: &Names,
        content_type: &str,
        layout: &Layout,
        framing: Framing,
        connection: u32,
    ) -> Self {
        let (before_record, stride) = match framing {
            Framing::Plain => (0, layout.payload_bytes()),
            Framing::Array => (1, layout.payload_bytes() + 1),
            Framing::Batch => (4, layout.payload_bytes() + 4),
        };
        let mut body = Vec::new();
        for frame in 0..layout.frames() {
            match framing {
                Framing::Plain => {}
                Framing::Array => body.push(if frame == 0 { b'[' } else { b',' }),
                Framing::Batch => {
                    let length = u32::try_from(layout.payload_bytes()).expect("the plan limits a record");
                    body.extend_from_slice(&length.to_be_bytes());
                }
            }
            layout.write(&mut body, Id { connection, number: frame as u64, due_ns: 0 });
        }
        if framing == Framing::Array {
            body.push(b']');
        }
        let suffix = if framing == Framing::Batch { "/append-batch" } else { "" };
        let path = format!("{}{suffix}", names.path(0));
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            target.host(),
            body.len()
        );
        let stream_at = "POST ".len() + names.digits_at();
        let record_at = head.len() + before_record;
        let bytes = [head.as_bytes(), &body].concat();
        Self { bytes, stream_at, record_at, stride, layout: layout.clone(), connection }
    }

    /// The request for `stream`, whose first record has the number `first`.
    #[inline]
    pub fn request(&mut self, stream: u32, first: u64, due_ns: u64) -> &[u8] {
        Names::write_digits(&mut self.bytes[self.stream_at..], stream);
        let mut at = self.record_at;
        for frame in 0..self.layout.frames() as u64 {
            let id = Id { connection: self.connection, number: first + frame, due_ns };
            self.layout.patch(&mut self.bytes[at..], id);
            at += self.stride;
        }
        &self.bytes
    }

    /// Bytes of each request.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::Style;
    use super::*;

    fn text(style: Style, framing: Framing, frames: usize, is_json: bool) -> String {
        let target = Target::parse("http://127.0.0.1:4437", style).unwrap();
        let names = Names::new(style, "bench-1");
        let layout = Layout::new(1, 40, is_json, false, frames);
        let mut prepared = Prepared::append(&target, &names, "text/plain", &layout, framing, 2);
        prepared.request(1, 0, 0);
        let request = prepared.request(34, 0x20 * frames as u64, 0).to_vec();
        assert_eq!(request.len(), prepared.len());
        String::from_utf8_lossy(&request).into_owned()
    }

    #[test]
    fn a_single_append() {
        let text = text(Style::Durable, Framing::Plain, 1, false);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head,
            "POST /v1/stream/bench-1/s0000034 HTTP/1.1\r\nHost: 127.0.0.1:4437\r\nContent-Type: text/plain\r\n\
             Content-Length: 40"
        );
        assert!(body.starts_with("0000020000000020") && body.len() == 40, "{body}");
    }

    #[test]
    fn a_batch_and_an_array() {
        let batch = text(Style::Thalweg, Framing::Batch, 2, false);
        assert!(batch.starts_with("POST /bench-1/s0000034/append-batch HTTP/1.1"), "{batch}");
        let (_, body) = batch.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.len(), 88);
        assert_eq!((&body[..20], &body[44..64]), ("\0\0\0(0000020000000040", "\0\0\0(0000020000000041"));
        let array = text(Style::Ursula, Framing::Array, 3, true);
        let (_, body) = array.split_once("\r\n\r\n").unwrap();
        let values: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(values[2]["id"], "0000020000000062");
    }
}
