//! The rules of the protocol as pure functions: bytes in, bytes or decisions out. No I/O, no clock, no state, and
//! nothing of ours but [`crate::limits`].
//!
//! Words, used the same way everywhere:
//! - **bucket**: a namespace of streams, made and deleted explicitly; **stream**: an append-only sequence of bytes;
//! - **record**: one JSON message of a JSON stream, stored without insignificant white space and followed by one
//!   separator byte, a comma; **message**: one record, or one append of a byte stream;
//! - **ordinal**: the number of a record or message in its stream, from 0;
//! - **offset**: where a reader stands in a stream: a token of the protocol, or the byte count that it names;
//! - **lineage**: the number of one life of a stream's name; never used twice;
//! - **position** (not used here): a place in a file.
//!
//! | file | rule |
//! |---|---|
//! | `errors` | every error code, its status, and the body that carries it |
//! | `names` | paths: buckets, streams, suffix endpoints; `Location` |
//! | `query` | query parameters of reads and listings |
//! | `offset` | offset tokens |
//! | `headers` | values of the protocol's request headers |
//! | `time` | RFC 3339 instants |
//! | `json` | splitting a JSON body into canonical records |
//! | `batch` | frames of an append batch, and their acknowledgements |
//! | `producer` | idempotent producers |
//! | `cursor` | cursors of live reads |
//! | `sse` | server-sent events |
//! | `records` | record coordinates: parameters of reads by record |
//! | `envelope` | the envelope view of records |
//! | `attributes` | stream attributes and their normal form |
//! | `digest` | digests of snapshots |
//! | `multipart` | the framing of a bootstrap |
//! | `etag` | entity tags and `If-None-Match` |
//! | `expiry` | sliding and absolute expiry |
//! | `digits` | numbers to and from digits, without formatting machinery |

pub mod attributes;
pub mod batch;
pub mod cursor;
pub mod digest;
pub mod digits;
pub mod envelope;
pub mod errors;
pub mod etag;
pub mod expiry;
pub mod headers;
pub mod json;
pub mod multipart;
pub mod names;
pub mod offset;
pub mod percent;
pub mod producer;
pub mod query;
pub mod records;
pub mod sse;
pub mod time;
