//! Why a request is refused before any operation sees it, and with which code and message.
//!
//! Each refusal ends the connection: the place where the next request begins is in doubt.

use super::known::Known;
use crate::protocol::errors::{Code, Problem};

/// Why a head is refused. The connection closes after the answer, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadProblem {
    /// Not `method SP target SP version CRLF`.
    RequestLine,
    /// More than [`EMPTY_LINES_MAX`](crate::limits::EMPTY_LINES_MAX) empty lines before a request.
    EmptyLines,
    /// A line that ends in LF without CR.
    BareLineFeed,
    /// A header line without a name that is a token followed by a colon: folded lines, white space before the colon.
    HeaderName,
    /// A control byte in a header's value.
    HeaderValue,
    /// A target that is neither a path nor an absolute `http` address, or has a fragment.
    Target,
    /// Two lines of a header that may come once.
    Repeated(Known),
    /// HTTP/1.1 without `Host`.
    HostMissing,
    /// `Host` or the target's authority has a byte that no host has.
    HostMalformed,
    /// Both `Content-Length` and `Transfer-Encoding`.
    TwoFramings,
    /// `Content-Length` that is not a number.
    LengthMalformed,
    /// `Content-Length` beyond 64 bits.
    LengthTooLarge,
    /// `Transfer-Encoding` from a client of HTTP/1.0.
    TransferEncodingOnOldVersion,
    /// `Transfer-Encoding` that is no list of codings, or that has `chunked` elsewhere than once at the end.
    TransferEncodingMalformed,
    /// A transfer coding other than `chunked`.
    TransferCodingUnknown,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The target is longer than [`TARGET_BYTES_MAX`](crate::limits::TARGET_BYTES_MAX).
    TargetTooLong,
    /// The head is longer than [`HEAD_BYTES_MAX`](crate::limits::HEAD_BYTES_MAX).
    HeadTooLarge,
    /// More header lines than [`HEADERS_MAX`](crate::limits::HEADERS_MAX).
    TooManyHeaders,
    /// The method is longer than [`METHOD_BYTES_MAX`](crate::limits::METHOD_BYTES_MAX).
    MethodTooLong,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    Version,
    /// The head did not arrive in time. Never from [`super::head::parse`]: the connection keeps the time.
    Timeout,
}

impl HeadProblem {
    /// The one table: error code, message.
    const fn row(self) -> (Code, &'static str) {
        use HeadProblem as P;
        match self {
            P::RequestLine => (Code::BadRequest, "the request line is malformed"),
            P::EmptyLines => (Code::BadRequest, "there are too many empty lines before the request"),
            P::BareLineFeed => (Code::BadRequest, "a line of the head ends in LF without CR"),
            P::HeaderName => (
                Code::BadRequest,
                "a header line does not begin with a name and a colon; folded lines are not accepted",
            ),
            P::HeaderValue => (Code::BadRequest, "a header has a control character in its value"),
            P::Target => (Code::BadRequest, "the request target is malformed"),
            P::Repeated(known @ (Known::ContentLength | Known::TransferEncoding)) => {
                (Code::BadFraming, known.repeated())
            }
            P::Repeated(known) => (Code::BadRequest, known.repeated()),
            P::HostMissing => (Code::BadRequest, "the header host is missing"),
            P::HostMalformed => (Code::BadRequest, "the host is malformed"),
            P::TwoFramings => (Code::BadFraming, "both content-length and transfer-encoding are given"),
            P::LengthMalformed => (Code::BadFraming, "content-length is not a number"),
            P::LengthTooLarge => (Code::PayloadTooLarge, "the body is too large"),
            P::TransferEncodingOnOldVersion => (Code::BadFraming, "transfer-encoding needs HTTP/1.1"),
            P::TransferEncodingMalformed => (Code::BadFraming, "transfer-encoding is malformed"),
            P::TransferCodingUnknown => (Code::NotImplemented, "the only transfer coding is chunked"),
            P::Expectation => (Code::ExpectationFailed, "the only expectation is 100-continue"),
            P::TargetTooLong => (Code::UriTooLong, "the request target is too long"),
            P::HeadTooLarge => (Code::HeadersTooLarge, "the head of the request is too large"),
            P::TooManyHeaders => (Code::HeadersTooLarge, "the request has too many headers"),
            P::MethodTooLong => (Code::NotImplemented, "the method is not known"),
            P::Version => (Code::HttpVersionNotSupported, "the server speaks HTTP/1.1"),
            P::Timeout => (Code::RequestTimeout, "the head did not arrive in time"),
        }
    }
}

impl From<HeadProblem> for Problem {
    fn from(problem: HeadProblem) -> Problem {
        let (code, message) = problem.row();
        Problem::fixed(code, message)
    }
}

/// Why a body is refused. The connection closes after the answer, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyProblem {
    /// The line that gives a chunk's size is malformed.
    ChunkSize,
    /// That line, or all extensions together, exceed their limit.
    ChunkExtension,
    /// A chunk's data is not followed by CRLF.
    ChunkEnd,
    /// The trailer section is malformed.
    Trailer,
    /// The trailer section is longer than [`TRAILER_BYTES_MAX`](crate::limits::TRAILER_BYTES_MAX).
    TrailerTooLarge,
    /// The body is longer than the decoder's maximum. It is refused before a byte beyond is kept.
    TooLarge,
    /// The body did not arrive in time. Never from the decoder: the connection keeps the time.
    Timeout,
}

impl BodyProblem {
    /// The one table: error code, message.
    const fn row(self) -> (Code, &'static str) {
        use BodyProblem as P;
        match self {
            P::ChunkSize => (Code::BadFraming, "the size of a chunk is malformed"),
            P::ChunkExtension => (Code::BadFraming, "chunk extensions are too long"),
            P::ChunkEnd => (Code::BadFraming, "a chunk is longer or shorter than its size"),
            P::Trailer => (Code::BadFraming, "the trailer section is malformed"),
            P::TrailerTooLarge => (Code::BadFraming, "the trailer section is too long"),
            P::TooLarge => (Code::PayloadTooLarge, "the body is too large"),
            P::Timeout => (Code::RequestTimeout, "the body did not arrive in time"),
        }
    }
}

impl From<BodyProblem> for Problem {
    fn from(problem: BodyProblem) -> Problem {
        let (code, message) = problem.row();
        Problem::fixed(code, message)
    }
}
