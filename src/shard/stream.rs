//! One stream as its shard holds it in memory.
//!
//! There are two views of a stream. *Staged* is what the log has been given: appends are validated against it. *Durable*
//! is what a completed commit holds: readers see nothing else. `durable` trails `staged` by at most the commits under
//! way, and catches up in `Table::publish`.

use std::rc::Rc;

use crate::storage::extents::ExtentIndex;
use crate::storage::index::RecordIndex;
use crate::storage::producers::Producers;

/// How a stream's bytes are framed and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json`: records, shown as arrays.
    Json,
    /// `text/*`: bytes, shown as text in SSE.
    Text,
    /// Anything else: bytes, shown as base64 in SSE.
    Binary,
}

/// A content type, shared by all streams that have the same.
#[derive(Debug, PartialEq, Eq)]
pub struct ContentType {
    /// As it was sent when the stream was created.
    pub bytes: Box<[u8]>,
    /// What it means.
    pub kind: Kind,
}

/// The end of a stream in one of its views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct End {
    /// Bytes in the stream: the tail offset.
    pub bytes: u64,
    /// Records (or messages) in the stream: the next ordinal.
    pub records: u64,
    /// Whether nothing can follow.
    pub closed: bool,
}

/// A place in a stream of records between two of them; the first retained one, for instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Start {
    /// Bytes before it.
    pub bytes: u64,
    /// Records before it: the ordinal of the one that starts here. Means nothing in a byte stream.
    pub records: u64,
}

/// When a stream expires (base protocol 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Sliding window, in seconds.
    pub ttl_seconds: Option<u64>,
    /// Absolute expiry, Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Last use, for the sliding window.
    pub used_ms: u64,
    /// Last use that the log knows of.
    pub recorded_ms: u64,
    /// Whether `used_ms` comes from the log after a restart: then uses after it may be unrecorded.
    pub recovered: bool,
    /// Whether the shard will look after it while live readers are attached.
    pub renewal_queued: bool,
}

/// An SSE data event that was encoded once for all its subscribers; or a run of them, each of one record's envelope.
#[derive(Clone, Debug)]
pub struct EncodedEvent {
    /// First byte that it covers.
    pub from: u64,
    /// Where it ends: the position of a subscriber that has received it.
    pub to: Start,
    /// The durable end of the stream when it was encoded.
    pub end: End,
    /// The event, or the events one behind the other.
    pub bytes: Rc<[u8]>,
    /// Of a run: the events in it.
    pub envelopes: Option<Rc<[Envelope]>>,
}

/// One event in a run of envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Where the event ends in the run.
    pub event_end: u32,
    /// Bytes of its record in the stream, separator included.
    pub record_bytes: u32,
}

/// Facts of a stream that few streams have, apart so that an idle plain stream stays small.
#[derive(Debug, Default)]
pub struct Rare {
    /// Last `Stream-Seq`.
    pub stream_seq: Option<Box<[u8]>>,
    /// Normalised attributes.
    pub attributes: Box<[u8]>,
    /// The latest event, while there are SSE readers.
    pub event: Option<EncodedEvent>,
    /// The latest run of envelopes, likewise.
    pub envelopes: Option<EncodedEvent>,
    /// Live readers attached.
    pub readers: Vec<u32>,
}

/// A stream. Fields change in `table.rs` only, except the marks of its readers.
#[derive(Debug)]
pub struct Stream {
    /// Full key.
    pub key: Box<[u8]>,
    /// Placement hash of the key.
    pub hash: u64,
    /// Id of this life of the name.
    pub lineage: u64,
    /// Generation of its bucket; 0 on the flat surface.
    pub bucket_generation: u64,
    /// What it holds.
    pub content_type: Rc<ContentType>,
    /// When it expires, if ever.
    pub lifetime: Option<Box<Lifetime>>,
    /// Creation time, Unix milliseconds.
    pub created_ms: u64,
    /// Time of the last durable append, or of the creation, Unix milliseconds.
    pub last_write_ms: u64,
    /// Ticket of the commit that created it.
    pub created_ticket: u64,
    /// Ticket of the last commit that changed it.
    pub last_ticket: u64,
    /// Ticket of the commit that deletes it, once that is staged.
    pub deleted_ticket: Option<u64>,
    /// What is staged.
    pub staged: End,
    /// What is durable.
    pub durable: End,
    /// Message boundaries of everything staged.
    pub index: RecordIndex,
    /// Where the bytes of everything staged lie.
    pub extents: ExtentIndex,
    /// Idempotent producers.
    pub producers: Producers,
    /// The rest.
    pub rare: Option<Box<Rare>>,
}

impl Stream {
    /// Last `Stream-Seq`, if any.
    pub fn stream_seq(&self) -> Option<&[u8]> {
        self.rare.as_ref().and_then(|rare| rare.stream_seq.as_deref())
    }

    /// Normalised attributes; empty when there are none.
    pub fn attributes(&self) -> &[u8] {
        self.rare.as_ref().map_or(&[], |rare| &rare.attributes)
    }

    /// The first place that is retained, as far as that is durable.
    pub fn first(&self) -> Start {
        Start::default()
    }

    /// Whether live readers are attached.
    pub fn has_readers(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.readers.is_empty())
    }

    /// The rare part, made if it is not there.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(Default::default)
    }

    /// Whether the stream holds JSON records.
    pub fn is_json(&self) -> bool {
        self.content_type.kind == Kind::Json
    }
}
