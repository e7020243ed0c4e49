//! One stream as its shard holds it in memory.
//!
//! There are two views of a stream. *Staged* is what the log has been given: appends are validated against it. *Durable*
//! is what a completed commit holds: readers see nothing else. `durable` trails `staged` by at most the commits under
//! way, and catches up in `Table::publish`.

use std::rc::Rc;

use crate::storage::event::Part;
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

/// Where a stream begins in one of its views; also any other place in it that lies between two records. Its ordinal means
/// nothing where a byte stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Start {
    /// The earliest retained offset: bytes before it are gone.
    pub bytes: u64,
    /// Ordinal of the first retained record (or message).
    pub records: u64,
}

/// A snapshot (extension 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its offset: it folds everything before.
    pub offset: u64,
    /// Ordinal of the message at the offset.
    pub record: u64,
    /// Content type as it was sent.
    pub content_type: Box<[u8]>,
    /// BLAKE3 of content type and body (decision 18).
    pub digest: [u8; 32],
    /// Where its body lies, in order.
    pub parts: Box<[Part]>,
}

impl Snapshot {
    /// Bytes of its body.
    pub fn body_bytes(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.len)).sum()
    }
}

/// A fact in both views of its stream.
#[derive(Clone, Debug, Default)]
pub struct Views<T> {
    /// What is staged.
    pub staged: T,
    /// What is durable.
    pub durable: T,
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
    /// Normalised attributes; empty when there are none.
    pub attributes: Views<Rc<[u8]>>,
    /// The visible snapshot.
    pub snapshot: Views<Option<Rc<Snapshot>>>,
    /// Where the stream begins.
    pub first: Views<Start>,
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
    pub fn attributes(&self) -> Views<&[u8]> {
        self.rare.as_ref().map_or(Views::default(), |rare| Views {
            staged: &rare.attributes.staged,
            durable: &rare.attributes.durable,
        })
    }

    /// The visible snapshot, if there is one.
    pub fn snapshot(&self) -> Views<Option<&Rc<Snapshot>>> {
        self.rare.as_ref().map_or(Views::default(), |rare| Views {
            staged: rare.snapshot.staged.as_ref(),
            durable: rare.snapshot.durable.as_ref(),
        })
    }

    /// Where the stream begins for readers.
    pub fn first(&self) -> Start {
        self.firsts().durable
    }

    /// Where the stream begins.
    pub fn firsts(&self) -> Views<Start> {
        self.rare.as_ref().map_or(Views::default(), |rare| rare.first.clone())
    }

    /// Offset of a record that was there once: of one that retention has taken, the earliest retained offset.
    pub fn offset_of(&self, ordinal: u64) -> u64 {
        let first = self.first();
        if ordinal <= first.records { first.bytes } else { self.index.offset_of(ordinal) }
    }

    /// An append is a use, and the log knows of it by the time of its commit, and of no later one.
    pub fn note_write(&mut self, time_ms: u64) {
        if let Some(lifetime) = &mut self.lifetime {
            lifetime.used_ms = lifetime.used_ms.max(time_ms);
            lifetime.recorded_ms = lifetime.recorded_ms.max(time_ms);
            lifetime.recovered = false;
        }
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
