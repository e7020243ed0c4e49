//! Why a request is refused before any operation sees it, and with which status, code and message.
//!
//! Each refusal ends the connection: the place where the next request begins is in doubt.

use super::known::Known;
use super::response::{CommonHeaders, Status, write_refusal};

/// Code of every request that is not HTTP, or that could be read in two ways.
const MALFORMED: &str = "MALFORMED_REQUEST";

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
    /// The one table: status, error code, message.
    const fn row(self) -> (Status, &'static str, &'static str) {
        use HeadProblem as P;
        match self {
            P::RequestLine => (Status::BAD_REQUEST, MALFORMED, "the request line is malformed"),
            P::EmptyLines => {
                (Status::BAD_REQUEST, MALFORMED, "there are too many empty lines before the request")
            }
            P::BareLineFeed => (Status::BAD_REQUEST, MALFORMED, "a line of the head ends in LF without CR"),
            P::HeaderName => (
                Status::BAD_REQUEST,
                MALFORMED,
                "a header line does not begin with a name and a colon; folded lines are not accepted",
            ),
            P::HeaderValue => {
                (Status::BAD_REQUEST, MALFORMED, "a header has a control character in its value")
            }
            P::Target => (Status::BAD_REQUEST, MALFORMED, "the request target is malformed"),
            P::Repeated(known) => (Status::BAD_REQUEST, MALFORMED, known.repeated()),
            P::HostMissing => (Status::BAD_REQUEST, MALFORMED, "the header host is missing"),
            P::HostMalformed => (Status::BAD_REQUEST, MALFORMED, "the host is malformed"),
            P::TwoFramings => {
                (Status::BAD_REQUEST, MALFORMED, "both content-length and transfer-encoding are given")
            }
            P::LengthMalformed => (Status::BAD_REQUEST, MALFORMED, "content-length is not a number"),
            P::LengthTooLarge => (Status::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "the body is too large"),
            P::TransferEncodingOnOldVersion => {
                (Status::BAD_REQUEST, MALFORMED, "transfer-encoding needs HTTP/1.1")
            }
            P::TransferEncodingMalformed => {
                (Status::BAD_REQUEST, MALFORMED, "transfer-encoding is malformed")
            }
            P::TransferCodingUnknown => {
                (Status::NOT_IMPLEMENTED, "NOT_IMPLEMENTED", "the only transfer coding is chunked")
            }
            P::Expectation => {
                (Status::EXPECTATION_FAILED, "EXPECTATION_FAILED", "the only expectation is 100-continue")
            }
            P::TargetTooLong => (Status::URI_TOO_LONG, "URI_TOO_LONG", "the request target is too long"),
            P::HeadTooLarge => {
                (Status::HEADERS_TOO_LARGE, "HEADERS_TOO_LARGE", "the head of the request is too large")
            }
            P::TooManyHeaders => {
                (Status::HEADERS_TOO_LARGE, "HEADERS_TOO_LARGE", "the request has too many headers")
            }
            P::MethodTooLong => (Status::NOT_IMPLEMENTED, "NOT_IMPLEMENTED", "the method is not known"),
            P::Version => {
                (Status::VERSION_NOT_SUPPORTED, "HTTP_VERSION_NOT_SUPPORTED", "the server speaks HTTP/1.1")
            }
            P::Timeout => (Status::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the head did not arrive in time"),
        }
    }

    /// Status of the answer.
    pub const fn status(self) -> Status {
        self.row().0
    }

    /// Code of the error, as in the body of the answer.
    pub const fn code(self) -> &'static str {
        self.row().1
    }

    /// What is wrong, for people.
    pub const fn message(self) -> &'static str {
        self.row().2
    }

    /// Appends the whole answer, after which the connection closes.
    pub fn answer(self, out: &mut Vec<u8>, common: &CommonHeaders) {
        let (status, code, message) = self.row();
        write_refusal(out, common, status, code, message);
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
    /// The one table: status, error code, message.
    const fn row(self) -> (Status, &'static str, &'static str) {
        use BodyProblem as P;
        match self {
            P::ChunkSize => (Status::BAD_REQUEST, MALFORMED, "the size of a chunk is malformed"),
            P::ChunkExtension => (Status::BAD_REQUEST, MALFORMED, "chunk extensions are too long"),
            P::ChunkEnd => (Status::BAD_REQUEST, MALFORMED, "a chunk is longer or shorter than its size"),
            P::Trailer => (Status::BAD_REQUEST, MALFORMED, "the trailer section is malformed"),
            P::TrailerTooLarge => (Status::BAD_REQUEST, MALFORMED, "the trailer section is too long"),
            P::TooLarge => (Status::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "the body is too large"),
            P::Timeout => (Status::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the body did not arrive in time"),
        }
    }

    /// Status of the answer.
    pub const fn status(self) -> Status {
        self.row().0
    }

    /// Code of the error, as in the body of the answer.
    pub const fn code(self) -> &'static str {
        self.row().1
    }

    /// What is wrong, for people.
    pub const fn message(self) -> &'static str {
        self.row().2
    }

    /// Appends the whole answer, after which the connection closes.
    pub fn answer(self, out: &mut Vec<u8>, common: &CommonHeaders) {
        let (status, code, message) = self.row();
        write_refusal(out, common, status, code, message);
    }
}
