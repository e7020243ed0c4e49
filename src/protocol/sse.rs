//! Server-sent events (base protocol 5.8; decisions 29 and 30). All writers append to a buffer.
//!
//! A data event carries a run of the stream; its control event, right behind it, says where the reader stands then. Lines
//! end in LF and come in the order `id:` (control events only), `event:`, `data:`. There is no space after `data:`, except
//! one before a line that itself starts with a space (a client drops the first).
//!
//! How much of the bytes at hand a data event may carry is [`cut`]'s to say: it never splits a UTF-8 character. Records
//! are never split because a JSON event is made of whole records.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use memchr::memchr2;

use super::digits::write_u64;
use super::headers;
use super::offset;

/// The `Content-Type` of the response.
pub const CONTENT_TYPE: &[u8] = b"text/event-stream";
/// A comment that keeps an idle connection alive; clients ignore it.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// How data events carry a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON array of records.
    Json,
    /// Text as it is.
    Text,
    /// Base64; the response says so in `Stream-SSE-Data-Encoding: base64`.
    Base64,
}

impl Encoding {
    /// The encoding for a stream's content type.
    pub fn of(content_type: &[u8]) -> Self {
        if headers::is_json(content_type) {
            Self::Json
        } else if headers::is_text(content_type) {
            Self::Text
        } else {
            Self::Base64
        }
    }
}

/// What follows the bytes at hand in their stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// More bytes: the next event will have them.
    More,
    /// Nothing yet: they end at the tail of an open stream.
    Tail,
    /// Nothing, ever: they end at the tail of a closed stream.
    End,
}

/// How many of `bytes` the next data event of a text stream carries; the rest waits for what follows. At most three
/// bytes of an unfinished character wait, and a CR whose LF may come next, so that a line end is not counted twice.
/// 0 means that there is nothing to send yet.
pub fn cut(bytes: &[u8], following: Following) -> usize {
    if following == Following::End {
        return bytes.len();
    }
    let whole = bytes.len() - unfinished(bytes);
    match bytes[..whole] {
        // Never a cut before the first byte: the reader must get on.
        [_, .., b'\r'] if following == Following::More => whole - 1,
        _ => whole,
    }
}

/// Bytes at the end that begin a UTF-8 character and lack its rest: 0 to 3. Invalid bytes begin nothing.
fn unfinished(bytes: &[u8]) -> usize {
    for length in 1..=bytes.len().min(3) {
        let tail = &bytes[bytes.len() - length..];
        let is_continuation = tail[0] & 0xc0 == 0x80;
        if !is_continuation {
            let incomplete = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
            return if incomplete { length } else { 0 };
        }
    }
    0
}

/// Appends a data event. `bytes` are not empty and, depending on `encoding`, whole canonical records with their
/// separators, as many bytes of text as [`cut`] allows, or any bytes.
pub fn write_data(out: &mut Vec<u8>, encoding: Encoding, bytes: &[u8]) {
    assert!(!bytes.is_empty(), "a data event carries bytes");
    match encoding {
        Encoding::Json => write_json(out, bytes),
        Encoding::Text => write_text(out, bytes),
        Encoding::Base64 => write_base64(out, bytes),
    }
}

/// One JSON array. Canonical records hold neither CR nor LF: strings cannot, and white space was cut out.
fn write_json(out: &mut Vec<u8>, records: &[u8]) {
    let (separator, inside) = records.split_last().expect("records have bytes");
    assert_eq!(*separator, b',', "whole records end in their separator ({} bytes)", records.len());
    out.reserve(inside.len() + 32);
    out.extend_from_slice(b"event: data\ndata:[");
    out.extend_from_slice(inside);
    out.extend_from_slice(b"]\n\n");
}

/// Text, a `data:` line for each of its lines; CR, CRLF and LF end lines, invalid bytes become U+FFFD.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 32);
    out.extend_from_slice(b"event: data\n");
    // Lines end in ASCII, so they are what the whole is.
    let is_utf8 = std::str::from_utf8(text).is_ok();
    let mut lines = Lines { rest: Some(text) };
    while let Some(line) = lines.next_line() {
        let start: &[u8] = if line.first() == Some(&b' ') { b"data: " } else { b"data:" };
        out.extend_from_slice(start);
        if is_utf8 {
            out.extend_from_slice(line);
        } else {
            write_repaired(out, line);
        }
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Text with U+FFFD for what is no UTF-8.
fn write_repaired(out: &mut Vec<u8>, line: &[u8]) {
    for chunk in line.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// The lines of a text: one more than it has line ends.
struct Lines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let Some(end) = memchr2(b'\n', b'\r', rest) else {
            self.rest = None;
            return Some(rest);
        };
        let next = if rest[end..].starts_with(b"\r\n") { end + 2 } else { end + 1 };
        self.rest = Some(&rest[next..]);
        Some(&rest[..end])
    }
}

/// Standard base64 with padding, on one line, so that each event decodes by itself.
fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"event: data\ndata:");
    let start = out.len();
    let encoded_bytes = bytes.len().div_ceil(3) * 4;
    out.resize(start + encoded_bytes, 0);
    let written = BASE64.encode_slice(bytes, &mut out[start..]).expect("the space was made for it");
    assert_eq!(written, encoded_bytes, "base64 of {} bytes", bytes.len());
    out.extend_from_slice(b"\n\n");
}

/// Where a reader stands after a data event, or at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The stream's lineage.
    pub lineage: u64,
    /// Byte offset of the next byte to send.
    pub next_offset: u64,
    /// Cursor; left out when the stream is closed, because nobody is to come back.
    pub cursor: u64,
    /// Whether that is the tail.
    pub up_to_date: bool,
    /// Whether the stream is closed and that is its end.
    pub closed: bool,
    /// For a read by record: the first retained record, and the next one to send (extension 6.9).
    pub records: Option<(u64, u64)>,
}

/// Appends a control event. Its `id:` is the next offset, so that a browser's `EventSource` resumes there.
pub fn write_control(out: &mut Vec<u8>, control: &Control) {
    assert!(control.up_to_date || !control.closed, "the end of a stream is up to date: {control:?}");
    let token = offset::token(control.lineage, control.next_offset);
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(&token);
    out.extend_from_slice(b"\nevent: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(&token);
    out.push(b'"');
    if let Some((first, next)) = control.records {
        out.extend_from_slice(b",\"streamFirstRecord\":");
        write_u64(out, first);
        out.extend_from_slice(b",\"streamNextRecord\":");
        write_u64(out, next);
    }
    if !control.closed {
        out.extend_from_slice(b",\"streamCursor\":\"");
        write_u64(out, control.cursor);
        out.push(b'"');
    }
    if control.up_to_date {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    out.extend_from_slice(b"}\n\n");
}

#[cfg(test)]
mod tests;
