//! Every error that a client can meet: one table of wire codes and statuses, and the body that carries them
//! (decision 5): `{"error":{"code":"UPPER_SNAKE","message":"..."}}`.
//!
//! A code is chosen where the rule is broken; the status follows from the table and from nowhere else. Batch
//! acknowledgements use the same codes.

use std::borrow::Cow;
use std::fmt;

/// Builds [`Code`], its wire names and its statuses from the one table below.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:literal $wire:literal,)+) => {
        /// What went wrong, as the client sees it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            /// The code as it is written in a body.
            pub const fn wire(self) -> &'static str {
                match self {
                    $(Code::$name => $wire,)+
                }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self {
                    $(Code::$name => $status,)+
                }
            }
        }
    };
}

codes! {
    // Requests as such.
    /// The request head is not HTTP/1.x as it should be.
    BadRequest = 400 "BAD_REQUEST",
    /// The length of the body is ambiguous or malformed; the connection is closed.
    BadFraming = 400 "BAD_FRAMING",
    /// A head or body came too slowly.
    RequestTimeout = 408 "REQUEST_TIMEOUT",
    /// The body exceeds `--max-body-bytes`, or a limit of the operation.
    PayloadTooLarge = 413 "PAYLOAD_TOO_LARGE",
    /// The request target is too long.
    UriTooLong = 414 "URI_TOO_LONG",
    /// An `Expect` other than `100-continue`.
    ExpectationFailed = 417 "EXPECTATION_FAILED",
    /// The request head is too large or has too many lines.
    HeadersTooLarge = 431 "HEADERS_TOO_LARGE",
    /// A transfer coding, or an operation, that this server does not have.
    NotImplemented = 501 "NOT_IMPLEMENTED",
    /// Neither HTTP/1.0 nor HTTP/1.1.
    HttpVersionNotSupported = 505 "HTTP_VERSION_NOT_SUPPORTED",
    /// The resource exists, but not with this method.
    MethodNotAllowed = 405 "METHOD_NOT_ALLOWED",
    /// A method that the listing of a bucket does not have (decision 3 asks for 400).
    InvalidMethod = 400 "INVALID_METHOD",

    // Names.
    /// The path is not well formed: a bad percent escape, NUL, an escaped slash, not UTF-8, empty.
    InvalidPath = 400 "INVALID_PATH",
    /// Not `^[a-z0-9_-]{4,64}$`.
    InvalidBucketId = 400 "INVALID_BUCKET_ID",
    /// A stream id or flat path that is too long, empty, or holds what it may not.
    InvalidStreamId = 400 "INVALID_STREAM_ID",
    /// A name that the protocol keeps for itself.
    ReservedName = 400 "RESERVED_NAME",
    /// No resource of the server has this path.
    NotFound = 404 "NOT_FOUND",

    // Buckets.
    /// The bucket does not exist.
    BucketNotFound = 404 "BUCKET_NOT_FOUND",
    /// The bucket exists already.
    BucketExists = 409 "BUCKET_EXISTS",
    /// The bucket holds streams.
    BucketNotEmpty = 409 "BUCKET_NOT_EMPTY",
    /// Whether the bucket is there is not decided, and will not be before the server is restarted.
    BucketBusy = 503 "BUCKET_BUSY",

    // Query parameters.
    /// A parameter that is malformed, repeated, or does not go with another one.
    InvalidQuery = 400 "INVALID_QUERY",
    /// `live` is neither `long-poll` nor `sse`.
    InvalidLive = 400 "INVALID_LIVE",
    /// `max_bytes` is not a positive integer.
    InvalidMaxBytes = 400 "INVALID_MAX_BYTES",
    /// `limit` is not in 1..=1000.
    InvalidLimit = 400 "INVALID_LIMIT",
    /// Record parameters on a stream without records.
    RecordsUnsupported = 400 "RECORDS_UNSUPPORTED",
    /// `record` is neither a non-negative integer nor `now`.
    InvalidRecord = 400 "INVALID_RECORD",
    /// `tail_records` is not a non-negative integer.
    InvalidTailRecords = 400 "INVALID_TAIL_RECORDS",
    /// `max_records` is not a positive integer, or repeated.
    InvalidMaxRecords = 400 "INVALID_MAX_RECORDS",
    /// `record_view` is not `envelope`, or repeated.
    InvalidRecordView = 400 "INVALID_RECORD_VIEW",
    /// More than one of `offset`, `record` and `tail_records`, or one of the last two twice.
    ConflictingStart = 400 "CONFLICTING_START",
    /// `max_records` or `record_view` without `record` or `tail_records`.
    RecordStartRequired = 400 "RECORD_START_REQUIRED",
    /// Past the next record of the stream.
    RecordBeyondTail = 400 "RECORD_BEYOND_TAIL",
    /// Before the first retained record of the stream.
    RecordGone = 410 "RECORD_GONE",

    // Offsets.
    /// Not an offset, or one that no stream of this server ever had.
    InvalidOffset = 400 "INVALID_OFFSET",
    /// A live read without `offset`.
    OffsetRequired = 400 "OFFSET_REQUIRED",
    /// Past the end of the stream.
    OffsetBeyondTail = 400 "OFFSET_BEYOND_TAIL",
    /// Inside a record of a JSON stream.
    OffsetNotAligned = 400 "OFFSET_NOT_ALIGNED",
    /// The bytes are gone: an earlier life of the stream, or before its retained offset.
    OffsetGone = 410 "OFFSET_GONE",

    // Request headers.
    /// `Content-Type` is not a media type, too long, or not the one that the operation takes.
    InvalidContentType = 400 "INVALID_CONTENT_TYPE",
    /// A body without `Content-Type`.
    ContentTypeRequired = 400 "CONTENT_TYPE_REQUIRED",
    /// `Content-Type` differs from the stream's.
    ContentTypeMismatch = 409 "CONTENT_TYPE_MISMATCH",
    /// `Stream-TTL` is not a plain integer, or too large.
    InvalidTtl = 400 "INVALID_TTL",
    /// `Stream-Expires-At` is not an RFC 3339 timestamp.
    InvalidExpiresAt = 400 "INVALID_EXPIRES_AT",
    /// `Stream-TTL` and `Stream-Expires-At` together.
    ConflictingExpiry = 400 "CONFLICTING_EXPIRY",
    /// `Stream-Seq` is empty or too long.
    InvalidStreamSeq = 400 "INVALID_STREAM_SEQ",
    /// Producer headers are incomplete or malformed.
    InvalidProducer = 400 "INVALID_PRODUCER",
    /// Attributes are not an attribute object, or too large.
    InvalidAttributes = 400 "INVALID_ATTRIBUTES",
    /// A header that the operation does not take.
    UnsupportedHeader = 400 "UNSUPPORTED_HEADER",

    // Streams.
    /// The stream does not exist, or has expired.
    StreamNotFound = 404 "STREAM_NOT_FOUND",
    /// The stream exists with another configuration.
    StreamExists = 409 "STREAM_EXISTS",
    /// The stream is closed.
    StreamClosed = 409 "STREAM_CLOSED",
    /// An append without a body that does not close the stream.
    EmptyBody = 400 "EMPTY_BODY",
    /// The body is not valid JSON.
    InvalidJson = 400 "INVALID_JSON",
    /// A JSON value is nested too deeply.
    JsonTooDeep = 400 "JSON_TOO_DEEP",
    /// An append of an empty JSON array.
    EmptyArray = 400 "EMPTY_ARRAY",
    /// `Stream-Seq` does not grow.
    StreamSeqConflict = 409 "STREAM_SEQ_CONFLICT",
    /// `Stream-Record-Match` on a stream without records, or not an integer.
    InvalidRecordMatch = 400 "INVALID_RECORD_MATCH",
    /// The record tail is not what `Stream-Record-Match` says.
    RecordMatchFailed = 412 "RECORD_MATCH_FAILED",

    // Snapshots and retention.
    /// The stream has no snapshot, or none at this offset (any more).
    SnapshotNotFound = 404 "SNAPSHOT_NOT_FOUND",
    /// A snapshot of more than there is.
    SnapshotBeyondTail = 409 "SNAPSHOT_BEYOND_TAIL",
    /// The visible snapshot is not the one that `Stream-Snapshot-Match` names.
    SnapshotMatchFailed = 409 "SNAPSHOT_MATCH_FAILED",
    /// The snapshot at this offset has another content type or body.
    SnapshotConflict = 409 "SNAPSHOT_CONFLICT",
    /// A snapshot at a later offset is visible.
    SnapshotStale = 409 "SNAPSHOT_STALE",
    /// A delete of the visible snapshot, which a bootstrap starts from.
    SnapshotRequired = 409 "SNAPSHOT_REQUIRED",
    /// What is retained would grow again.
    RetentionBackward = 409 "RETENTION_BACKWARD",
    /// Retention on a stream that has no snapshot of what would go.
    RetentionWithoutSnapshot = 409 "RETENTION_WITHOUT_SNAPSHOT",
    /// The snapshot does not cover all that would go.
    RetentionBeyondSnapshot = 409 "RETENTION_BEYOND_SNAPSHOT",

    // Producers.
    /// The producer's epoch is older than one already seen.
    StaleEpoch = 403 "STALE_EPOCH",
    /// A new epoch that does not start at sequence 0.
    InvalidEpochSeq = 400 "INVALID_EPOCH_SEQ",
    /// A sequence number was left out.
    ProducerSeqGap = 409 "PRODUCER_SEQ_GAP",
    /// The stream remembers as many producers as it may.
    TooManyProducers = 429 "TOO_MANY_PRODUCERS",

    // Append batch.
    /// The frames are cut, empty, or there are none.
    InvalidBatch = 400 "INVALID_BATCH",
    /// Too many frames or bytes.
    BatchTooLarge = 413 "BATCH_TOO_LARGE",

    // The server's own state.
    /// Stored bytes could not be read, or are damaged.
    ReadFailed = 500 "READ_FAILED",
    /// The server cannot take more work now.
    Overloaded = 503 "OVERLOADED",
    /// The server has as many connections as it may.
    TooManyConnections = 503 "TOO_MANY_CONNECTIONS",
    /// The server has as many live readers as it may.
    TooManyReaders = 429 "TOO_MANY_READERS",
    /// A write of this shard failed; it takes no appends until a restart.
    ShardLatched = 503 "SHARD_LATCHED",
    /// The disk is full.
    DiskFull = 507 "DISK_FULL",
}

impl Code {
    /// Whether the answer should carry `Retry-After`: the same request may succeed later without any change.
    pub const fn retry_after(self) -> bool {
        matches!(self.status(), 429 | 503)
    }
}

/// An error for a client: a code and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What went wrong.
    pub code: Code,
    /// The same for a person, without anything secret. One sentence, no full stop.
    pub message: Cow<'static, str>,
}

impl Problem {
    /// An error with a fixed message; allocates nothing.
    pub const fn fixed(code: Code, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    /// An error whose message was made for the occasion.
    #[cold]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The HTTP status.
    pub const fn status(&self) -> u16 {
        self.code.status()
    }

    /// The body of the answer: `{"error":{"code":"...","message":"..."}}` (`application/json`).
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + self.code.wire().len() + self.message.len());
        self.write_body(&mut out);
        out
    }

    /// Appends what [`Problem::body`] returns.
    pub fn write_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"error\":{\"code\":\"");
        out.extend_from_slice(self.code.wire().as_bytes());
        out.extend_from_slice(b"\",\"message\":");
        write_json_string(out, &self.message);
        out.extend_from_slice(b"}}");
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code.wire(), self.status(), self.message)
    }
}

impl std::error::Error for Problem {}

/// Appends `text` as a JSON string, quotes included.
pub fn write_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f => {
                out.extend_from_slice(b"\\u00");
                out.push(b'0' + (byte >> 4));
                out.push(b"0123456789abcdef"[usize::from(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wire_codes_are_upper_snake_and_unique() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            let wire = code.wire();
            assert!(seen.insert(wire), "{wire} twice");
            assert!(wire.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'), "{wire}");
            assert!(wire.starts_with(|c: char| c != '_') && !wire.ends_with('_'), "{wire}");
            // The name in the code is the name on the wire, so that one leads to the other.
            let name: String = wire
                .split('_')
                .flat_map(|word| [word[..1].to_string(), word[1..].to_ascii_lowercase()])
                .collect();
            assert_eq!(name, format!("{code:?}"));
            assert!((400..=599).contains(&code.status()), "{wire}: {}", code.status());
        }
    }

    #[test]
    fn statuses_that_documents_fix() {
        let table = [
            (Code::StreamNotFound, 404),
            (Code::StreamClosed, 409),
            (Code::ContentTypeMismatch, 409),
            (Code::StreamSeqConflict, 409),
            (Code::StaleEpoch, 403),
            (Code::InvalidEpochSeq, 400),
            (Code::ProducerSeqGap, 409),
            (Code::RecordMatchFailed, 412),
            (Code::BucketNotFound, 404),
            (Code::BucketExists, 409),
            (Code::BucketNotEmpty, 409),
            (Code::BatchTooLarge, 413),
            (Code::ShardLatched, 503),
            (Code::DiskFull, 507),
            (Code::TooManyReaders, 429),
            (Code::TooManyProducers, 429),
            (Code::TooManyConnections, 503),
            (Code::RequestTimeout, 408),
            (Code::OffsetGone, 410),
            (Code::SnapshotNotFound, 404),
            (Code::SnapshotBeyondTail, 409),
            (Code::SnapshotMatchFailed, 409),
            (Code::SnapshotConflict, 409),
            (Code::SnapshotStale, 409),
            (Code::SnapshotRequired, 409),
            (Code::RetentionBackward, 409),
            (Code::RetentionWithoutSnapshot, 409),
            (Code::RetentionBeyondSnapshot, 409),
            (Code::RecordGone, 410),
            (Code::RecordBeyondTail, 400),
        ];
        for (code, status) in table {
            assert_eq!(code.status(), status, "{code:?}");
        }
    }

    #[test]
    fn retry_after_goes_with_passing_states_only() {
        assert!(Code::Overloaded.retry_after() && Code::TooManyReaders.retry_after());
        assert!(!Code::DiskFull.retry_after() && !Code::StreamClosed.retry_after());
    }

    #[test]
    fn body_is_compact_json() {
        let problem = Problem::fixed(Code::StreamClosed, "the stream is closed");
        assert_eq!(problem.body(), br#"{"error":{"code":"STREAM_CLOSED","message":"the stream is closed"}}"#);
    }

    #[test]
    fn every_ascii_character_reads_back() {
        let text: String = (0..=0x7f).map(char::from).collect();
        let mut out = Vec::new();
        write_json_string(&mut out, &text);
        assert!(out.iter().all(|&byte| byte >= 0x20), "no control character stands as it is");
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }

    proptest! {
        #[test]
        fn any_message_survives(message: String) {
            let problem = Problem::new(Code::InvalidJson, message.clone());
            let body: serde_json::Value = serde_json::from_slice(&problem.body()).unwrap();
            prop_assert_eq!(body["error"]["code"].as_str(), Some("INVALID_JSON"));
            prop_assert_eq!(body["error"]["message"].as_str(), Some(message.as_str()));
        }
    }
}
