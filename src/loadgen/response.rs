//! HTTP/1.1 responses as they arrive: a parser that takes bytes in pieces of any size and hands on what they mean.
//!
//! Contract: [`Parser::feed`] calls the sink with `head`, any number of `body`, and `end` for every response, in order;
//! the same bytes cut anywhere make the same calls (but for where bodies are cut). Interim responses (1xx) are dropped.
//! It allocates only for heads that arrive in pieces. Requests are never HEAD, so the status and the headers say how long
//! a body is.

use std::mem::MaybeUninit;

/// Bytes of the largest head, and of the largest trailer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header lines of a response.
const HEADERS_MAX: usize = 96;
/// Hexadecimal digits of a chunk's size.
const CHUNK_DIGITS_MAX: u32 = 15;

/// What a head says, as far as anybody here asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// The status.
    pub status: u16,
    /// `Stream-Next-Offset`.
    pub next_offset: Option<&'a [u8]>,
    /// `Stream-Cursor`.
    pub cursor: Option<&'a [u8]>,
    /// `Stream-Shard`, `n/m`.
    pub shard: Option<&'a [u8]>,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// `Stream-Up-To-Date` is there.
    pub up_to_date: bool,
    /// `Stream-Closed: true`.
    pub closed: bool,
    /// `Stream-SSE-Data-Encoding: base64`.
    pub base64: bool,
    /// The connection ends after this response.
    pub last: bool,
}

/// Who is told about responses.
pub trait Sink {
    /// A response begins.
    fn head(&mut self, head: &Head<'_>);
    /// Bytes of its body, without transfer coding. Never empty.
    fn body(&mut self, bytes: &[u8]);
    /// It is complete.
    fn end(&mut self);
}

/// Bytes that are no HTTP/1.1 response: what is wrong with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before or within a head.
    Head,
    /// Within a body of known length; so many bytes to come.
    Sized(u64),
    /// Within the line of a chunk's size: so far, and how many digits; `u32::MAX` digits once an extension began.
    ChunkSize(u64, u32),
    /// Within a chunk.
    Chunk(u64),
    /// Behind a chunk: so many bytes of its line end are still to come.
    ChunkEnd(u8),
    /// Behind the last chunk: bytes of the present line, and of all of them.
    Trailer(usize, usize),
    /// Within a body that ends with the connection.
    UntilClose,
}

/// The parser of one connection.
#[derive(Debug)]
pub struct Parser {
    state: State,
    /// A head that is not complete.
    partial: Vec<u8>,
}

impl Default for Parser {
    fn default() -> Self {
        Self { state: State::Head, partial: Vec::new() }
    }
}

impl Parser {
    /// Takes bytes that arrived.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Head => self.feed_head(bytes, sink)?,
                State::Sized(left) => {
                    let (now, rest) =
                        bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    sink.body(now);
                    let left = left - now.len() as u64;
                    self.state = State::Sized(left);
                    if left == 0 {
                        self.finish(sink);
                    }
                    rest
                }
                State::UntilClose => {
                    sink.body(bytes);
                    &[]
                }
                _ => self.feed_chunked(bytes, sink)?,
            };
        }
        Ok(())
    }

    /// The peer has closed the connection: whether that may be here. A body that ends so is complete.
    pub fn close(&mut self, sink: &mut impl Sink) -> Result<(), Malformed> {
        match self.state {
            State::UntilClose => {
                self.finish(sink);
                Ok(())
            }
            State::Head if self.partial.is_empty() => Ok(()),
            _ => Err(Malformed("the connection ended within a response".to_owned())),
        }
    }

    fn finish(&mut self, sink: &mut impl Sink) {
        self.state = State::Head;
        sink.end();
    }

    /// Takes bytes up to the end of the head, at most; the rest.
    fn feed_head<'b>(&mut self, bytes: &'b [u8], sink: &mut impl Sink) -> Result<&'b [u8], Malformed> {
        if self.partial.is_empty() {
            return match parse_head(bytes)? {
                Some((head, framing, length)) => {
                    self.begin(&head, framing, sink);
                    Ok(&bytes[length..])
                }
                None => {
                    self.partial.extend_from_slice(bytes);
                    self.check_partial()
                }
            };
        }
        let before = self.partial.len();
        self.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut self.partial);
        match parse_head(&partial)? {
            Some((head, framing, length)) => {
                self.begin(&head, framing, sink);
                assert!(length > before, "a head of {length} bytes was complete at {before}");
                Ok(&bytes[length - before..])
            }
            None => {
                self.partial = partial;
                self.check_partial()
            }
        }
    }

    fn check_partial(&self) -> Result<&'static [u8], Malformed> {
        if self.partial.len() > HEAD_BYTES_MAX {
            return Err(Malformed(format!("a head of more than {HEAD_BYTES_MAX} bytes")));
        }
        Ok(&[])
    }

    fn begin(&mut self, head: &Head<'_>, framing: Framing, sink: &mut impl Sink) {
        if (100..200).contains(&head.status) {
            return;
        }
        sink.head(head);
        match framing {
            Framing::Length(0) => self.finish(sink),
            Framing::Length(length) => self.state = State::Sized(length),
            Framing::Chunked => self.state = State::ChunkSize(0, 0),
            Framing::UntilClose => self.state = State::UntilClose,
        }
    }

    /// Takes one step within a chunked body; the rest.
    fn feed_chunked<'b>(&mut self, bytes: &'b [u8], sink: &mut impl Sink) -> Result<&'b [u8], Malformed> {
        let byte = bytes[0];
        self.state = match self.state {
            State::Chunk(left) => {
                let (now, rest) =
                    bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                sink.body(now);
                let left = left - now.len() as u64;
                self.state = if left == 0 { State::ChunkEnd(2) } else { State::Chunk(left) };
                return Ok(rest);
            }
            State::ChunkSize(size, digits) => chunk_size(byte, size, digits)?,
            State::ChunkEnd(2) if byte == b'\r' => State::ChunkEnd(1),
            State::ChunkEnd(1) if byte == b'\n' => State::ChunkSize(0, 0),
            State::ChunkEnd(_) => return Err(Malformed("a chunk that is longer than its size".to_owned())),
            State::Trailer(0, _) if byte == b'\n' => {
                self.finish(sink);
                return Ok(&bytes[1..]);
            }
            State::Trailer(_, all) if byte == b'\n' => State::Trailer(0, all + 1),
            State::Trailer(line, all) if byte == b'\r' => State::Trailer(line, all + 1),
            State::Trailer(_, HEAD_BYTES_MAX..) => {
                return Err(Malformed(format!("a trailer of more than {HEAD_BYTES_MAX} bytes")));
            }
            State::Trailer(line, all) => State::Trailer(line + 1, all + 1),
            State::Head | State::Sized(_) | State::UntilClose => unreachable!("not in a chunked body"),
        };
        Ok(&bytes[1..])
    }
}

/// The state after a byte of the line of a chunk's size.
fn chunk_size(byte: u8, size: u64, digits: u32) -> Result<State, Malformed> {
    let digit = (byte as char).to_digit(16);
    match (byte, digit) {
        (b'\n', _) if digits == 0 => Err(Malformed("a chunk without a size".to_owned())),
        (b'\n', _) if size == 0 => Ok(State::Trailer(0, 0)),
        (b'\n', _) => Ok(State::Chunk(size)),
        (_, Some(digit)) if digits < CHUNK_DIGITS_MAX => {
            Ok(State::ChunkSize(size << 4 | u64::from(digit), digits + 1))
        }
        (_, Some(_)) if digits <= CHUNK_DIGITS_MAX => {
            Err(Malformed("a chunk of 2^60 bytes or more".to_owned()))
        }
        // White space, an extension, or the CR: nothing of the size can follow.
        (b' ' | b'\t' | b';' | b'\r', _) if digits > 0 => Ok(State::ChunkSize(size, u32::MAX)),
        _ if digits == u32::MAX => Ok(State::ChunkSize(size, u32::MAX)),
        _ => Err(Malformed(format!("{byte:?} in the size of a chunk"))),
    }
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// A head, how its body is framed, and its length in bytes; nothing if it is not complete.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head<'_>, Framing, usize)>, Malformed> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => {
            let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
            return Err(Malformed(format!("not HTTP/1.1 ({error}): it begins {begin:?}")));
        }
    };
    let status = response.code.expect("a complete head has a status");
    let mut head = Head { status, last: response.version == Some(0), ..Head::default() };
    let (mut body_bytes, mut chunked) = (None, false);
    for header in response.headers.iter() {
        let (name, value) = (header.name, header.value);
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // By length first: one comparison for most headers.
        match name.len() {
            10 if is("connection") => head.last |= value.eq_ignore_ascii_case(b"close"),
            12 if is("content-type") => head.content_type = Some(value),
            12 if is("stream-shard") => head.shard = Some(value),
            13 if is("stream-cursor") => head.cursor = Some(value),
            13 if is("stream-closed") => head.closed = value.eq_ignore_ascii_case(b"true"),
            14 if is("content-length") => body_bytes = Some(content_length(value)?),
            17 if is("stream-up-to-date") => head.up_to_date = true,
            17 if is("transfer-encoding") => chunked = value.eq_ignore_ascii_case(b"chunked"),
            18 if is("stream-next-offset") => head.next_offset = Some(value),
            24 if is("stream-sse-data-encoding") => head.base64 = value.eq_ignore_ascii_case(b"base64"),
            _ => {}
        }
    }
    let framing = match (status, chunked, body_bytes) {
        (100..200 | 204 | 304, _, _) => Framing::Length(0),
        (_, true, _) => Framing::Chunked,
        (_, false, Some(bytes)) => Framing::Length(bytes),
        (_, false, None) => Framing::UntilClose,
    };
    head.last |= framing == Framing::UntilClose;
    Ok(Some((head, framing, length)))
}

fn content_length(value: &[u8]) -> Result<u64, Malformed> {
    crate::protocol::digits::parse_u64(value)
        .ok_or_else(|| Malformed(format!("a Content-Length of {:?}", String::from_utf8_lossy(value))))
}

#[cfg(test)]
mod tests;
