//! Answers, appended to a buffer of the caller: status line, common headers, own headers, framing, body.
//!
//! [`Answer`] takes the framing from the request's [`Terms`], so that no operation has to think of `HEAD`, of HTTP/1.0
//! or of connections that close. Exactly one of its last calls ends the head:
//!
//! | call | `Content-Length` | bytes of the body |
//! |---|---|---|
//! | [`Answer::body`], [`Answer::problem`] | its length | written, unless the request was `HEAD` |
//! | [`Answer::length_then`] | as given | the caller's to write, unless it says that there are none |
//! | [`Answer::head_only`] | as given | none: the answer to `HEAD` |
//! | [`Answer::no_body`] | `0`, and absent from 204 and 304 | none |
//! | [`Answer::stream`] | absent | the caller's, through the [`Transfer`] that it gets |

use super::date::{DATE_BYTES, imf_fixdate};
use super::head::{is_token_byte, is_value_byte};
use crate::protocol::digits::{write_hex, write_u64};
use crate::protocol::errors::Problem;
use crate::protocol::offset;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident $code:literal $reason:literal,)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status =
                Status { code: $code, line: concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n") };)*

            /// Every status that the server answers with.
            pub const ALL: &[Status] = &[$(Status::$name,)*];

            /// The status of a code. Panics when it is not in [`Status::ALL`].
            pub fn of(code: u16) -> Status {
                match code {
                    $($code => Status::$name,)*
                    _ => panic!("status {code} has no status line: add it to the table"),
                }
            }
        }
    };
}

/// A status code with its status line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status {
    code: u16,
    line: &'static str,
}

statuses! {
    /// Done.
    OK 200 "OK",
    /// A stream or bucket was created.
    CREATED 201 "Created",
    /// Done, and there is nothing to say.
    NO_CONTENT 204 "No Content",
    /// The client's copy is current.
    NOT_MODIFIED 304 "Not Modified",
    /// The resource is at another address just now.
    TEMPORARY_REDIRECT 307 "Temporary Redirect",
    /// The request is malformed.
    BAD_REQUEST 400 "Bad Request",
    /// Not allowed: a stale epoch.
    FORBIDDEN 403 "Forbidden",
    /// No such bucket, stream, snapshot.
    NOT_FOUND 404 "Not Found",
    /// The resource has no such method.
    METHOD_NOT_ALLOWED 405 "Method Not Allowed",
    /// A part of the request did not arrive in time.
    REQUEST_TIMEOUT 408 "Request Timeout",
    /// The state does not allow it.
    CONFLICT 409 "Conflict",
    /// It was there once.
    GONE 410 "Gone",
    /// The record tail is another one.
    PRECONDITION_FAILED 412 "Precondition Failed",
    /// The body is too large.
    PAYLOAD_TOO_LARGE 413 "Payload Too Large",
    /// The target is too long.
    URI_TOO_LONG 414 "URI Too Long",
    /// An expectation that is not met.
    EXPECTATION_FAILED 417 "Expectation Failed",
    /// Too many of something that is counted per stream or shard.
    TOO_MANY_REQUESTS 429 "Too Many Requests",
    /// The head is too large.
    HEADERS_TOO_LARGE 431 "Request Header Fields Too Large",
    /// The server failed.
    INTERNAL_SERVER_ERROR 500 "Internal Server Error",
    /// A method or a transfer coding that the server does not know.
    NOT_IMPLEMENTED 501 "Not Implemented",
    /// Not now.
    SERVICE_UNAVAILABLE 503 "Service Unavailable",
    /// Neither HTTP/1.0 nor HTTP/1.1.
    VERSION_NOT_SUPPORTED 505 "HTTP Version Not Supported",
    /// The disk is full.
    INSUFFICIENT_STORAGE 507 "Insufficient Storage",
}

impl Status {
    /// Its three digits as a number.
    #[inline]
    pub const fn code(self) -> u16 {
        self.code
    }

    /// Whether its answers have neither a body nor a length (RFC 9110, 8.6).
    #[inline]
    const fn is_bodiless(self) -> bool {
        matches!(self.code, 204 | 304)
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.line.trim_ascii_end())
    }
}

/// The interim answer to `Expect: 100-continue`, complete.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a request lays down for the framing of its answer: [`super::Head::terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The request was `HEAD`: headers as for `GET`, no body.
    pub head: bool,
    /// Minor version of the request: 0 or 1.
    pub minor_version: u8,
    /// Whether the connection persists after the answer. The server may clear it.
    pub keep_alive: bool,
}

impl Terms {
    /// For a request that was refused before it was understood: with a body, and the connection closes.
    pub const CLOSE: Terms = Terms { head: false, minor_version: 1, keep_alive: false };
}

/// The headers that every answer carries, as bytes: one per shard, refreshed once a second.
#[derive(Clone, Debug)]
pub struct CommonHeaders {
    block: Box<[u8]>,
    unix_seconds: u64,
}

const DATE_AT: usize = b"Date: ".len();

impl CommonHeaders {
    /// The block of a shard at a time. `shard` counts from 0.
    pub fn new(shard: usize, shards: usize, unix_seconds: u64) -> CommonHeaders {
        assert!(shard < shards, "shard {shard} of {shards}");
        let mut block = b"Date: ".to_vec();
        block.extend_from_slice(&imf_fixdate(unix_seconds));
        block.extend_from_slice(
            b"\r\nX-Content-Type-Options: nosniff\r\n\
              Cross-Origin-Resource-Policy: cross-origin\r\n\
              Access-Control-Allow-Origin: *\r\n\
              Stream-Shard: ",
        );
        write_u64(&mut block, shard as u64);
        block.push(b'/');
        write_u64(&mut block, shards as u64);
        block.extend_from_slice(b"\r\n");
        CommonHeaders { block: block.into_boxed_slice(), unix_seconds }
    }

    /// Sets the date. Cheap when the second is the same.
    #[inline]
    pub fn refresh(&mut self, unix_seconds: u64) {
        if unix_seconds != self.unix_seconds {
            self.unix_seconds = unix_seconds;
            self.block[DATE_AT..DATE_AT + DATE_BYTES].copy_from_slice(&imf_fixdate(unix_seconds));
        }
    }
}

/// An answer under construction: its status line and common headers are written.
#[must_use = "a head that is not ended corrupts the connection"]
pub struct Answer<'o> {
    out: &'o mut Vec<u8>,
    status: Status,
    terms: Terms,
}

/// Seconds after which a refused request may be tried again.
const RETRY_AFTER_SECONDS: u64 = 1;

/// Room that an answer without a body is likely to take.
const HEAD_BYTES_EXPECTED: usize = 512;

impl<'o> Answer<'o> {
    /// Begins an answer at the end of `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, status: Status, common: &CommonHeaders, terms: Terms) -> Answer<'o> {
        out.reserve(HEAD_BYTES_EXPECTED);
        out.extend_from_slice(status.line.as_bytes());
        out.extend_from_slice(&common.block);
        Answer { out, status, terms }
    }

    /// Makes this the last answer of the connection.
    pub fn close(&mut self) -> &mut Self {
        self.terms.keep_alive = false;
        self
    }

    /// Adds a header. Control bytes in the value, which could end the line, become spaces (RFC 9110, 5.5).
    #[inline]
    pub fn header(&mut self, name: &'static str, value: &[u8]) -> &mut Self {
        self.header_with(name, |out| out.extend_from_slice(value))
    }

    /// Adds a header with a number.
    #[inline]
    pub fn header_u64(&mut self, name: &'static str, value: u64) -> &mut Self {
        self.name(name);
        write_u64(self.out, value);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a header with the token of a byte offset in a lineage.
    #[inline]
    pub fn token(&mut self, name: &'static str, lineage: u64, offset: u64) -> &mut Self {
        self.name(name);
        offset::write_token(self.out, lineage, offset);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a header whose value the closure appends. Control bytes in the value become spaces.
    #[inline]
    pub fn header_with(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.name(name);
        let start = self.out.len();
        write(self.out);
        assert!(
            self.out.len() >= start,
            "the value of {name} was not appended: {} of {start}",
            self.out.len()
        );
        blank_control_bytes(&mut self.out[start..]);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Adds whole header lines, each with its CRLF, such as [`super::cors::EXPOSE`].
    #[inline]
    pub fn lines(&mut self, lines: &'static str) -> &mut Self {
        debug_assert!(lines.ends_with("\r\n") && !lines.contains("\r\n\r\n"), "not header lines: {lines:?}");
        self.out.extend_from_slice(lines.as_bytes());
        self
    }

    #[inline]
    fn name(&mut self, name: &'static str) {
        debug_assert!(
            !name.is_empty() && name.bytes().all(is_token_byte),
            "not the name of a header: {name:?}"
        );
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
    }

    /// Ends the answer with an error: its body, when to try again if that may help, and that it must not be kept.
    pub fn problem(mut self, problem: &Problem) {
        if problem.code.retry_after() {
            self.header_u64("Retry-After", RETRY_AFTER_SECONDS);
        }
        self.lines("Content-Type: application/json\r\nCache-Control: no-store\r\n");
        self.body(&problem.body());
    }

    /// Ends the answer with a body that is at hand.
    #[inline]
    pub fn body(self, body: &[u8]) {
        if let Some(out) = self.length_then(body.len() as u64) {
            out.extend_from_slice(body);
        }
    }

    /// Ends the head of an answer to `HEAD` whose `GET` would have a body of this length.
    #[inline]
    pub fn head_only(self, body_bytes: u64) {
        assert!(self.terms.head, "an answer with a length and without a body is for HEAD only");
        self.length_then(body_bytes);
    }

    /// Ends the head of an answer with a body of this length, which the caller must write: to the buffer given
    /// back, or after it. `None`: the request was `HEAD`, and the body must not be written.
    #[inline]
    pub fn length_then(mut self, body_bytes: u64) -> Option<&'o mut Vec<u8>> {
        assert!(
            !self.status.is_bodiless(),
            "{:?} has no body, and {body_bytes} bytes are given",
            self.status
        );
        self.out.extend_from_slice(b"Content-Length: ");
        write_u64(self.out, body_bytes);
        self.out.extend_from_slice(b"\r\n");
        self.end_head();
        (!self.terms.head).then_some(self.out)
    }

    /// Ends an answer without a body.
    #[inline]
    pub fn no_body(mut self) {
        if !self.status.is_bodiless() {
            self.out.extend_from_slice(b"Content-Length: 0\r\n");
        }
        self.end_head();
    }

    /// Ends the head of an answer whose length is not known: chunked, or up to the connection's end for HTTP/1.0.
    #[inline]
    pub fn stream(mut self) -> Transfer {
        assert!(!self.status.is_bodiless(), "{:?} has no body", self.status);
        let transfer = if self.terms.minor_version == 0 {
            self.terms.keep_alive = false;
            Transfer::UntilClose
        } else {
            self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            Transfer::Chunked
        };
        self.end_head();
        if self.terms.head { Transfer::Nothing } else { transfer }
    }

    /// `Connection` where it says something, and the empty line.
    #[inline]
    fn end_head(&mut self) {
        let end: &[u8] = match (self.terms.keep_alive, self.terms.minor_version) {
            (true, 1) => b"\r\n",
            (true, _) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        };
        self.out.extend_from_slice(end);
    }
}

/// Makes spaces of the bytes that no value may have.
#[inline]
fn blank_control_bytes(value: &mut [u8]) {
    // Sums without branches, so that the common case is a few vector operations.
    if value.iter().fold(false, |any, &byte| any | !is_value_byte(byte)) {
        for byte in value {
            if !is_value_byte(*byte) {
                *byte = b' ';
            }
        }
    }
}

/// How the body of [`Answer::stream`] is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// In chunks, and the last one ends it.
    Chunked,
    /// As it is, and the end of the connection ends it: the caller must close.
    UntilClose,
    /// Not at all: the request was `HEAD`.
    Nothing,
}

impl Transfer {
    /// Appends a piece of the body.
    #[inline]
    pub fn write(self, out: &mut Vec<u8>, data: &[u8]) {
        match self {
            Transfer::Chunked => write_chunk(out, data),
            Transfer::UntilClose => out.extend_from_slice(data),
            Transfer::Nothing => {}
        }
    }

    /// Appends what ends the body.
    #[inline]
    pub fn finish(self, out: &mut Vec<u8>) {
        if self == Transfer::Chunked {
            write_last_chunk(out);
        }
    }

    /// Whether the connection must close after the body.
    #[inline]
    pub const fn closes(self) -> bool {
        matches!(self, Transfer::UntilClose)
    }
}

/// What follows the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Appends the line before a chunk's data of this length; [`CHUNK_END`] follows the data. For data that is shared
/// and written from where it is.
#[inline]
pub fn write_chunk_head(out: &mut Vec<u8>, data_bytes: usize) {
    assert!(data_bytes > 0, "an empty chunk would end the body");
    write_hex(out, data_bytes as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends a chunk; nothing when there is no data, because an empty chunk ends a body.
#[inline]
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        write_chunk_head(out, data.len());
        out.extend_from_slice(data);
        out.extend_from_slice(CHUNK_END);
    }
}

/// Appends the chunk that ends a body.
#[inline]
pub fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Appends a whole answer that refuses a request apart from what it is about, and closes the connection.
pub fn write_refusal(out: &mut Vec<u8>, common: &CommonHeaders, problem: &Problem) {
    Answer::new(out, Status::of(problem.status()), common, Terms::CLOSE).problem(problem);
}

#[cfg(test)]
mod tests;
