//! One request head, from the bytes of a connection: what is asked, how the body is framed, whether the connection
//! persists, and the values of the headers that the server reads.
//!
//! One call of the tokenizer, then one pass over its headers. What the tokenizer lets pass and two implementations
//! could understand differently is refused here: a bare LF as the end of a line, repeated headers, two framings.
//! A refusal always ends the connection, because the place where the next request begins is in doubt.
//!
//! Limits hold on partial input too, so that a client cannot make the server keep what it would refuse later.

use std::mem::MaybeUninit;

use super::known::{COUNT, Known};
use super::problem::HeadProblem;
use super::response::Terms;
use crate::limits::{EMPTY_LINES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, METHOD_BYTES_MAX, TARGET_BYTES_MAX};
use crate::protocol::digits;

/// A method, as far as the server tells them apart. Methods are case-sensitive (RFC 9110, 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Read.
    Get,
    /// Metadata.
    Head,
    /// Create, or replace.
    Put,
    /// Append, or close.
    Post,
    /// Delete.
    Delete,
    /// Browsers' question in advance.
    Options,
    /// Any other token.
    Other,
}

impl Method {
    #[inline]
    fn of(token: &[u8]) -> Method {
        match token {
            b"POST" => Method::Post,
            b"GET" => Method::Get,
            b"PUT" => Method::Put,
            b"HEAD" => Method::Head,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            _ => Method::Other,
        }
    }
}

/// How the body of a request is delimited (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Neither `Content-Length` nor `Transfer-Encoding`: there is no body.
    None,
    /// `Content-Length`, in bytes. The maximum is the caller's to check.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

impl Framing {
    /// Whether body bytes may follow the head.
    #[inline]
    pub const fn has_body(self) -> bool {
        !matches!(self, Framing::None | Framing::Length(0))
    }
}

/// Where a header's value lies in the head.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u16,
    len: u16,
}

const _: () = assert!(HEAD_BYTES_MAX <= 1 << 16, "the span of a value is two times 16 bits");

/// A complete request head. Everything in it borrows from the connection's buffer.
#[derive(Clone)]
pub struct Head<'a> {
    /// Method.
    pub method: Method,
    /// The request target as it was sent.
    pub target: &'a [u8],
    /// The target's path: it begins with a slash, or is `*` (with `OPTIONS`). Not decoded.
    pub path: &'a [u8],
    /// The target's query, without the question mark. Not decoded.
    pub query: Option<&'a [u8]>,
    /// The authority that the client addressed: of an absolute target (RFC 9112, 3.2.2), else `Host`. Empty when
    /// the client named none; its bytes are those of a host and a port, nothing that needs escaping.
    pub authority: &'a [u8],
    /// 0 or 1: the version is HTTP/1.0 or HTTP/1.1.
    pub minor_version: u8,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the client lets the connection persist after this request (RFC 9112, 9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends a body (RFC 9110, 10.1.1).
    pub expect_continue: bool,
    /// Bytes that the head takes of the buffer; a body begins behind them.
    pub head_bytes: usize,
    /// The head without empty lines before it; spans count from here.
    bytes: &'a [u8],
    spans: [Span; COUNT],
    /// Bit n: the header of number n is there.
    present: u32,
    /// Bit n: it is there more than once.
    repeated: u32,
}

impl<'a> Head<'a> {
    /// The value of a header without white space around it; of a repeated list header the first line's.
    #[inline]
    pub fn get(&self, known: Known) -> Option<&'a [u8]> {
        if self.present & bit(known) == 0 {
            return None;
        }
        let Span { start, len } = self.spans[known as usize];
        Some(&self.bytes[usize::from(start)..][..usize::from(len)])
    }

    /// Whether the header is there, whatever its value.
    #[inline]
    pub fn has(&self, known: Known) -> bool {
        self.present & bit(known) != 0
    }

    /// The values of every line of a header, in order: for lists such as `If-None-Match`.
    pub fn values(&self, known: Known) -> impl Iterator<Item = &'a [u8]> {
        let first = self.get(known);
        // A second line is rare enough to look for it only when there is one.
        let rest = if self.repeated & bit(known) == 0 { &[] } else { self.bytes };
        let lines = rest.split(|&byte| byte == b'\n').skip(1).filter_map(move |line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            (Known::find(&line[..colon]) == Some(known)).then(|| trim(&line[colon + 1..]))
        });
        first.into_iter().chain(lines.skip(1))
    }

    /// What the request lays down for the framing of its answer.
    #[inline]
    pub fn terms(&self) -> Terms {
        Terms {
            head: self.method == Method::Head,
            minor_version: self.minor_version,
            keep_alive: self.keep_alive,
        }
    }
}

#[inline]
fn bit(known: Known) -> u32 {
    1 << known as u32
}

/// A value without the white space around it, and without the CR of a line's end.
fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

/// Parses the head that begins the buffer. `None`: it is not complete; call again with more bytes.
///
/// Bytes behind the head are not looked at. Up to [`EMPTY_LINES_MAX`] empty lines before the head are skipped
/// (RFC 9112, 2.2) and count in [`Head::head_bytes`].
pub fn parse(buf: &[u8]) -> Result<Option<Head<'_>>, HeadProblem> {
    let skipped = skip_empty_lines(buf)?;
    let rest = &buf[skipped..];
    let window = &rest[..rest.len().min(HEAD_BYTES_MAX)];

    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let end = match request.parse_with_uninit_headers(window, &mut slots) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return partial(window, request.path).map(|()| None),
        Err(error) => return Err(refused(error, window, &request)),
    };
    let (Some(method), Some(target), Some(minor_version)) = (request.method, request.path, request.version)
    else {
        return Err(HeadProblem::RequestLine); // a complete parse has all three
    };
    if method.len() > METHOD_BYTES_MAX {
        return Err(HeadProblem::MethodTooLong);
    }
    if target.len() > TARGET_BYTES_MAX {
        return Err(HeadProblem::TargetTooLong);
    }
    let bytes = &window[..end];
    // The tokenizer accepts LF alone as the end of a line; CR is in no line but at its end. So a line ends in CRLF
    // exactly when CR stands two bytes before the next line. Here the last line and the empty one, below the others.
    let last_lines_end_well = end >= 4 && bytes[end - 2] == b'\r' && bytes[end - 4] == b'\r';
    if !last_lines_end_well {
        return Err(HeadProblem::BareLineFeed);
    }

    let mut head = Head {
        method: Method::of(method.as_bytes()),
        target: target.as_bytes(),
        path: b"/",
        query: None,
        authority: b"",
        minor_version,
        framing: Framing::None,
        keep_alive: minor_version == 1,
        expect_continue: false,
        head_bytes: skipped + end,
        bytes,
        spans: [Span::default(); COUNT],
        present: 0,
        repeated: 0,
    };
    head.collect(request.headers)?;
    head.resolve_target()?;
    head.resolve_framing()?;
    head.resolve_connection()?;
    Ok(Some(head))
}

/// Parses again after more bytes came, given how many an earlier call saw without finding a complete head.
///
/// The tokenizer starts over each time, so a client that sends byte by byte could make it read a large head as
/// often as it has bytes. This reads the new bytes only, until they hold the end of the head.
pub fn parse_more(buf: &[u8], seen_bytes: usize) -> Result<Option<Head<'_>>, HeadProblem> {
    assert!(seen_bytes <= buf.len(), "{seen_bytes} bytes seen of {}", buf.len());
    // The end is LF CR LF (or LF LF, to be refused); its first two bytes may have been seen.
    let mut fresh = &buf[seen_bytes.saturating_sub(2)..];
    while let Some(at) = fresh.iter().position(|&byte| byte == b'\n') {
        fresh = &fresh[at + 1..];
        if fresh.starts_with(b"\r\n") || fresh.starts_with(b"\n") {
            return parse(buf);
        }
    }
    // Without an end in sight only limits can be met; a whole parse tells which one.
    if buf.len() > TARGET_BYTES_MAX && (seen_bytes <= TARGET_BYTES_MAX || buf.len() >= HEAD_BYTES_MAX) {
        return parse(buf);
    }
    Ok(None)
}

/// Bytes of the empty lines that begin the buffer, a cut one not included.
fn skip_empty_lines(buf: &[u8]) -> Result<usize, HeadProblem> {
    let mut skipped = 0;
    while buf[skipped..].starts_with(b"\r\n") {
        skipped += 2;
        if skipped > 2 * EMPTY_LINES_MAX {
            return Err(HeadProblem::EmptyLines);
        }
    }
    if buf.get(skipped) == Some(&b'\n') {
        return Err(HeadProblem::BareLineFeed);
    }
    Ok(skipped)
}

/// Limits of a head that is not complete. `target` is set when the target is.
#[cold]
fn partial(window: &[u8], target: Option<&str>) -> Result<(), HeadProblem> {
    request_line_limits(window, target)?;
    if window.len() == HEAD_BYTES_MAX { Err(HeadProblem::HeadTooLarge) } else { Ok(()) }
}

/// Limits of the method and the target of a head that is not complete, or is refused for something else.
#[cold]
fn request_line_limits(window: &[u8], target: Option<&str>) -> Result<(), HeadProblem> {
    let method_bytes = window.iter().take_while(|&&byte| is_token_byte(byte)).count();
    if method_bytes > METHOD_BYTES_MAX {
        return Err(HeadProblem::MethodTooLong);
    }
    let target_bytes = target.map_or_else(
        || window[method_bytes..].iter().skip(1).take_while(|&&byte| byte > b' ').count(),
        str::len,
    );
    if target_bytes > TARGET_BYTES_MAX { Err(HeadProblem::TargetTooLong) } else { Ok(()) }
}

/// What the tokenizer's error means.
#[cold]
fn refused(error: httparse::Error, window: &[u8], request: &httparse::Request<'_, '_>) -> HeadProblem {
    // A limit of the request line was exceeded before whatever follows it, and would have been refused then.
    if let Err(problem) = request_line_limits(window, request.path) {
        return problem;
    }
    match error {
        httparse::Error::HeaderName => HeadProblem::HeaderName,
        httparse::Error::HeaderValue => HeadProblem::HeaderValue,
        httparse::Error::TooManyHeaders => HeadProblem::TooManyHeaders,
        httparse::Error::Version => {
            let after_target =
                request.path.map_or(window.len(), |path| offset_in(window, path.as_bytes()) + path.len());
            match window.get(after_target + 1..) {
                Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..]) => HeadProblem::Version,
                _ => HeadProblem::RequestLine,
            }
        }
        _ => HeadProblem::RequestLine,
    }
}

/// Where `inner`, a part of `outer`, begins in it.
#[inline]
fn offset_in(outer: &[u8], inner: &[u8]) -> usize {
    let offset = inner.as_ptr().addr().wrapping_sub(outer.as_ptr().addr());
    debug_assert!(offset + inner.len() <= outer.len(), "{offset} + {} of {}", inner.len(), outer.len());
    offset
}

impl<'a> Head<'a> {
    /// Notes where the values of known headers are; refuses bare line feeds and repeated headers.
    #[inline]
    fn collect(&mut self, headers: &[httparse::Header<'a>]) -> Result<(), HeadProblem> {
        for header in headers {
            let name = header.name.as_bytes();
            if self.bytes[offset_in(self.bytes, name) - 2] != b'\r' {
                return Err(HeadProblem::BareLineFeed);
            }
            let Some(known) = Known::find(name) else { continue };
            if self.present & bit(known) != 0 {
                if !known.is_list() {
                    return Err(HeadProblem::Repeated(known));
                }
                self.repeated |= bit(known);
                continue;
            }
            self.present |= bit(known);
            let start = offset_in(self.bytes, header.value);
            self.spans[known as usize] = Span { start: start as u16, len: header.value.len() as u16 };
        }
        Ok(())
    }

    /// Path, query and authority (RFC 9112, 3.2 and 3.3).
    #[inline]
    fn resolve_target(&mut self) -> Result<(), HeadProblem> {
        let host = self.get(Known::Host);
        if host.is_none() && self.minor_version == 1 {
            return Err(HeadProblem::HostMissing);
        }
        self.authority = host.unwrap_or(b"");
        let target = self.target;
        let path_and_query = match target {
            [b'/', ..] => target,
            b"*" if self.method == Method::Options => target,
            _ => self.absolute_target()?,
        };
        if !self.authority.iter().all(|&byte| HOST_BYTES[usize::from(byte)]) {
            return Err(HeadProblem::HostMalformed);
        }
        self.path = path_and_query;
        if let Some(at) = path_and_query.iter().position(|&byte| matches!(byte, b'?' | b'#')) {
            let (path, query) = (&path_and_query[..at], &path_and_query[at + 1..]);
            // A fragment is the client's own business (RFC 9110, 4.2.5): whoever sends one means another resource.
            if path_and_query[at] == b'#' || query.contains(&b'#') {
                return Err(HeadProblem::Target);
            }
            (self.path, self.query) = (path, Some(query));
        }
        if self.path.is_empty() {
            self.path = b"/"; // an absolute target may leave it out
        }
        Ok(())
    }

    /// Path and query of `http://authority/path?query`, whose authority replaces `Host` (RFC 9112, 3.2.2).
    #[cold]
    fn absolute_target(&mut self) -> Result<&'a [u8], HeadProblem> {
        let target = self.target;
        let scheme_bytes = target.windows(3).position(|three| three == b"://").ok_or(HeadProblem::Target)?;
        let (scheme, rest) = (&target[..scheme_bytes], &target[scheme_bytes + 3..]);
        if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
            return Err(HeadProblem::Target);
        }
        let authority_bytes =
            rest.iter().position(|&byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        if authority_bytes == 0 {
            return Err(HeadProblem::Target);
        }
        self.authority = &rest[..authority_bytes];
        Ok(&rest[authority_bytes..])
    }

    /// Length of the body (RFC 9112, 6.3), stricter: everything that admits two readings is refused.
    #[inline]
    fn resolve_framing(&mut self) -> Result<(), HeadProblem> {
        let length = self.get(Known::ContentLength);
        if self.has(Known::TransferEncoding) {
            return self.resolve_transfer_encoding(length.is_some());
        }
        if let Some(length) = length {
            self.framing = match digits::parse_u64(length) {
                Some(length) => Framing::Length(length),
                None if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
                    return Err(HeadProblem::LengthTooLarge);
                }
                None => return Err(HeadProblem::LengthMalformed),
            };
        }
        Ok(())
    }

    /// Exactly `chunked` and nothing else.
    fn resolve_transfer_encoding(&mut self, has_length: bool) -> Result<(), HeadProblem> {
        if has_length {
            return Err(HeadProblem::TwoFramings);
        }
        if self.minor_version == 0 {
            return Err(HeadProblem::TransferEncodingOnOldVersion);
        }
        let codings = self.get(Known::TransferEncoding).unwrap_or(b"");
        if codings.eq_ignore_ascii_case(b"chunked") {
            self.framing = Framing::Chunked;
            return Ok(());
        }
        let mut names = codings.split(|&byte| byte == b',').map(trim);
        let is_token = |name: &[u8]| !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte));
        if !names.clone().all(is_token) {
            return Err(HeadProblem::TransferEncodingMalformed);
        }
        names.next_back();
        if names.any(|name| name.eq_ignore_ascii_case(b"chunked")) {
            return Err(HeadProblem::TransferEncodingMalformed); // before the end, or twice
        }
        Err(HeadProblem::TransferCodingUnknown)
    }

    /// Persistence and expectation.
    #[inline]
    fn resolve_connection(&mut self) -> Result<(), HeadProblem> {
        if self.has(Known::Connection) {
            let (mut close, mut keep_alive) = (false, false);
            for value in self.values(Known::Connection) {
                for option in value.split(|&byte| byte == b',') {
                    let option = trim(option);
                    close |= option.eq_ignore_ascii_case(b"close");
                    keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            // RFC 9112, 9.3: close wins; else 1.1 persists, and 1.0 does when it asks to.
            self.keep_alive = !close && (self.minor_version == 1 || keep_alive);
        }
        if let Some(expectation) = self.get(Known::Expect) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                return Err(HeadProblem::Expectation);
            }
            // RFC 9110, 10.1.1: ignored from HTTP/1.0, and without a body there is nothing to wait for.
            self.expect_continue = self.minor_version == 1 && self.framing.has_body();
        }
        Ok(())
    }
}

/// Bytes of a token (RFC 9110, 5.6.2).
pub(super) const fn is_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z'
        | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// Bytes of a header's value (RFC 9110, 5.5), and of whatever else fills the rest of a line: no control bytes but the
/// tabulator.
pub(super) const fn is_value_byte(byte: u8) -> bool {
    !byte.is_ascii_control() || byte == b'\t'
}

/// Bytes of a host with its port (RFC 3986, 3.2.2 and 3.2.3), without the comma: a list of hosts, as a proxy makes
/// of two lines, is none. The user information of an authority is refused with its `@` (RFC 9110, 4.2.4).
const HOST_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = matches!(byte as u8,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b'%' | b':' | b'[' | b']'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=');
        byte += 1;
    }
    allowed
};

#[cfg(test)]
mod tests;
