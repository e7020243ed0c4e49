//! What the log records: the only vocabulary between the log and the state of a shard.
//!
//! The same [`Event`] is encoded when it is staged, replayed by recovery (from a footer or from a scan), and given to
//! `shard::table::Table::apply`. The log knows nothing of what an event means.

pub use crate::protocol::producer::Producer;

/// Where an entry's payload lies. `segment` indexes the shard's open segments (not a number on disk).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// Index of the segment in the log's table.
    pub segment: u32,
    /// Position of the first payload byte in the segment file.
    pub position: u32,
    /// Bytes from the start of the entry to its payload: where the checksums of the payload are found.
    pub back: u32,
}

impl Place {
    /// The place `bytes` further on in the same payload.
    pub fn further(self, bytes: u32) -> Place {
        Place { position: self.position + bytes, back: self.back + bytes, ..self }
    }
}

/// Placement hashes, by their upper half: what a shard owns, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashRange {
    /// First one.
    pub start: u64,
    /// The one after the last: at most 2^32.
    pub end: u64,
}

impl HashRange {
    /// Every hash.
    pub const ALL: HashRange = HashRange { start: 0, end: 1 << 32 };

    /// Whether a placement hash is in the range.
    #[inline]
    pub fn contains(self, placement: u64) -> bool {
        (self.start..self.end).contains(&(placement >> 32))
    }

    /// What is in both ranges; `None` if nothing is.
    pub fn intersection(self, other: HashRange) -> Option<HashRange> {
        let both = HashRange { start: self.start.max(other.start), end: self.end.min(other.end) };
        (both.start < both.end).then_some(both)
    }
}

/// `Place::segment` of bytes whose segment settling has removed: they belong to something that ends further on in the log, and
/// are never read.
pub const SEGMENT_GONE: u32 = u32::MAX;

/// What holds for every entry of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventContext {
    /// Whose streams it counts for: a segment that several shards once shared may hold others that were rewritten elsewhere.
    pub hashes: HashRange,
    /// Sequence number of the commit.
    pub lsn: u64,
    /// When the commit was opened, Unix milliseconds.
    pub time_ms: u64,
}

/// A part of a large payload that was spread over chunk entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where the part's bytes lie.
    pub place: Place,
    /// Bytes of the part.
    pub len: u32,
}

/// Lengths of the records (or the message) that one append adds, separator bytes included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths<'a> {
    /// `count` records of `len` bytes each. A plain append is `count == 1`.
    Uniform {
        /// Bytes of each record.
        len: u32,
        /// Number of records; 0 for an append without data (a close).
        count: u32,
    },
    /// One length each.
    Each(&'a [u32]),
}

impl Lengths<'_> {
    /// No records: a close without data.
    pub const NONE: Lengths<'static> = Lengths::Uniform { len: 0, count: 0 };

    /// Number of records.
    pub fn count(&self) -> u64 {
        match self {
            Lengths::Uniform { count, .. } => u64::from(*count),
            Lengths::Each(list) => list.len() as u64,
        }
    }

    /// Bytes of all records together.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Lengths::Uniform { len, count } => u64::from(*len) * u64::from(*count),
            Lengths::Each(list) => list.iter().map(|len| u64::from(*len)).sum(),
        }
    }
}

/// Where the payload of an append lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// In the entry itself (or nowhere, if the append has no bytes).
    Here(Place),
    /// In chunk entries of earlier commits, in order.
    Parts(&'a [Part]),
}

/// A stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCreated<'a> {
    /// Id of this life of the name; never reused.
    pub lineage: u64,
    /// Stable hash of the key: decides the shard.
    pub placement: u64,
    /// Full key: `bucket/stream`, or `/path` on the flat surface.
    pub key: &'a [u8],
    /// Content type as it was sent.
    pub content_type: &'a [u8],
    /// Sliding time to live.
    pub ttl_seconds: Option<u64>,
    /// Absolute expiry, Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Generation of the bucket it belongs to; 0 on the flat surface.
    pub bucket_generation: u64,
    /// Normalised attribute object; empty when there is none.
    pub attributes: &'a [u8],
    /// Whether it is born closed.
    pub closed: bool,
}

/// Bytes (perhaps none) are added to a stream, with the producer state and the closure that belong to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended<'a> {
    /// The stream's lineage.
    pub lineage: u64,
    /// Byte offset at which the append starts: the stream's end before it.
    pub start: u64,
    /// The records it adds.
    pub lengths: Lengths<'a>,
    /// Producer claim, if any.
    pub producer: Option<Producer<'a>>,
    /// `Stream-Seq`, if any.
    pub stream_seq: Option<&'a [u8]>,
    /// Whether the stream is closed after it.
    pub closed: bool,
    /// Where the bytes lie. When staging, `Here(Place::default())`: the log fills it in.
    pub payload: Payload<'a>,
}

/// A snapshot of a stream, complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPublished<'a> {
    /// The stream's lineage.
    pub lineage: u64,
    /// Where it stands: it folds everything before this offset.
    pub offset: u64,
    /// Ordinal of the message at the offset.
    pub record: u64,
    /// Content type as it was sent.
    pub content_type: &'a [u8],
    /// BLAKE3 of content type and body (decision 18).
    pub digest: [u8; 32],
    /// Where the body lies, in order: in chunk entries of this commit or earlier ones. None for an empty body.
    pub parts: &'a [Part],
}

/// Appends of one producer that follow each other in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerRun {
    /// Ordinal of the first one's first record.
    pub first_ordinal: u64,
    /// Records of each; 0 for a close without data.
    pub records: u64,
    /// Number of appends; each starts where the one before ends.
    pub appends: u64,
}

/// Consecutive appends of one producer in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerRuns<'a> {
    /// The stream's lineage.
    pub lineage: u64,
    /// Producer id.
    pub id: &'a [u8],
    /// Its epoch.
    pub epoch: u64,
    /// Sequence number of the first append.
    pub first_seq: u64,
    /// The appends, in order of their sequence numbers, which are dense.
    pub runs: &'a [ProducerRun],
}

impl Event<'_> {
    /// The id that it takes from the lineages: of a stream, or the generation of a bucket.
    #[inline]
    pub fn issued_id(&self) -> Option<u64> {
        match self {
            Event::StreamCreated(created) => Some(created.lineage),
            Event::BucketCreated { generation, .. } => Some(*generation),
            _ => None,
        }
    }

    /// The stream that it concerns, if it concerns one.
    pub fn lineage(&self) -> Option<u64> {
        match self {
            Event::StreamCreated(created) => Some(created.lineage),
            Event::Appended(append) => Some(append.lineage),
            Event::SnapshotPublished(snapshot) => Some(snapshot.lineage),
            Event::ProducerRuns(runs) => Some(runs.lineage),
            Event::StreamDeleted { lineage }
            | Event::Renewed { lineage, .. }
            | Event::AttributesSet { lineage, .. }
            | Event::Retained { lineage, .. }
            | Event::Skipped { lineage, .. } => Some(*lineage),
            Event::BucketCreated { .. } | Event::BucketDeleted { .. } => None,
        }
    }
}

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A stream begins.
    StreamCreated(StreamCreated<'a>),
    /// A stream grows, or closes, or both.
    Appended(Appended<'a>),
    /// A stream ends: by request, or because it expired.
    StreamDeleted {
        /// The stream's lineage.
        lineage: u64,
    },
    /// The last use of a stream with a sliding time to live.
    Renewed {
        /// The stream's lineage.
        lineage: u64,
        /// Time of that use, Unix milliseconds.
        used_ms: u64,
    },
    /// The attributes of a stream are replaced.
    AttributesSet {
        /// The stream's lineage.
        lineage: u64,
        /// Normalised attribute object; empty when there is none.
        attributes: &'a [u8],
    },
    /// A snapshot takes the place of the one before.
    SnapshotPublished(SnapshotPublished<'a>),
    /// Everything of a stream before an offset is gone.
    Retained {
        /// The stream's lineage.
        lineage: u64,
        /// Where the stream begins now: a message boundary.
        offset: u64,
        /// Ordinal of the message at the offset.
        record: u64,
    },
    /// Appends of one producer whose data was rewritten, or is gone. Written by settling only.
    ProducerRuns(ProducerRuns<'a>),
    /// The stream went on here with data that retention has taken since. Written by settling only, in its place.
    Skipped {
        /// The stream's lineage.
        lineage: u64,
        /// Byte offset at which it starts: the stream's end before it.
        start: u64,
        /// Bytes that are gone.
        bytes: u64,
        /// Records (or messages) that are gone.
        records: u64,
    },
    /// A bucket begins.
    BucketCreated {
        /// Bucket id.
        bucket: &'a [u8],
        /// Number of this life of the id; grows.
        generation: u64,
    },
    /// A bucket ends; it held no stream.
    BucketDeleted {
        /// Bucket id.
        bucket: &'a [u8],
        /// Generation that ends.
        generation: u64,
    },
}
