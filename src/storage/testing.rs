//! Random events for the tests of this layer: an owned form that a strategy can make and shrink, and what an
//! event must look like once it has been through the log.

pub mod image;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::event::{
    Appended, Event, Lengths, Part, Payload, Place, Producer, ProducerRun, ProducerRuns, SnapshotPublished,
    StreamCreated,
};

/// Owned form of `event::Event`.
#[derive(Clone, Debug)]
pub enum Owned {
    /// A stream begins.
    Created(Created),
    /// A stream grows.
    Appended(Append),
    /// A stream ends.
    Deleted(u64),
    /// A stream was used.
    Renewed(u64, u64),
    /// A bucket begins.
    BucketCreated(Vec<u8>, u64),
    /// A bucket ends.
    BucketDeleted(Vec<u8>, u64),
    /// A part of a large payload: lineage, bytes.
    Chunk(u64, usize),
    /// Attributes are replaced.
    AttributesSet(u64, Vec<u8>),
    /// A snapshot: lineage, offset, record; content type; parts.
    Snapshot((u64, u64, u64), Vec<u8>, Vec<Part>),
    /// What lies before an offset is gone: lineage, offset, record.
    Retained(u64, u64, u64),
    /// Data that is gone: lineage, start, bytes, records.
    Skipped(u64, u64, u64, u64),
    /// Appends of a producer: lineage, epoch, first sequence; id; runs.
    Runs((u64, u64, u64), Vec<u8>, Vec<ProducerRun>),
}

/// Owned form of `event::StreamCreated`.
#[derive(Clone, Debug)]
pub struct Created {
    numbers: (u64, u64, u64),
    key: Vec<u8>,
    content_type: Vec<u8>,
    ttl_seconds: Option<u64>,
    expires_at_ms: Option<u64>,
    attributes: Vec<u8>,
    closed: bool,
}

/// Owned form of `event::Appended`.
#[derive(Clone, Debug)]
pub struct Append {
    /// Stream.
    pub lineage: u64,
    /// Start.
    pub start: u64,
    /// Length of each record.
    pub lengths: Vec<u32>,
    /// Producer.
    pub producer: Option<(Vec<u8>, u64, u64)>,
    /// Stream-Seq.
    pub stream_seq: Option<Vec<u8>>,
    /// Closes.
    pub closed: bool,
    /// Parts, if the payload is not in the entry.
    pub parts: Option<Vec<Part>>,
}

impl Owned {
    /// The event; `None` for a chunk.
    pub fn event(&self) -> Option<Event<'_>> {
        Some(match self {
            Owned::Created(created) => Event::StreamCreated(StreamCreated {
                lineage: created.numbers.0,
                placement: created.numbers.1,
                key: &created.key,
                content_type: &created.content_type,
                ttl_seconds: created.ttl_seconds,
                expires_at_ms: created.expires_at_ms,
                bucket_generation: created.numbers.2,
                attributes: &created.attributes,
                closed: created.closed,
            }),
            Owned::Appended(append) => Event::Appended(append.event()),
            Owned::Deleted(lineage) => Event::StreamDeleted { lineage: *lineage },
            Owned::Renewed(lineage, used_ms) => Event::Renewed { lineage: *lineage, used_ms: *used_ms },
            Owned::BucketCreated(bucket, generation) => {
                Event::BucketCreated { bucket, generation: *generation }
            }
            Owned::BucketDeleted(bucket, generation) => {
                Event::BucketDeleted { bucket, generation: *generation }
            }
            Owned::Chunk(..) => return None,
            Owned::AttributesSet(lineage, attributes) => {
                Event::AttributesSet { lineage: *lineage, attributes }
            }
            Owned::Snapshot((lineage, offset, record), content_type, parts) => {
                Event::SnapshotPublished(SnapshotPublished {
                    lineage: *lineage,
                    offset: *offset,
                    record: *record,
                    content_type,
                    digest: [*offset as u8; 32],
                    parts,
                })
            }
            Owned::Retained(lineage, offset, record) => {
                Event::Retained { lineage: *lineage, offset: *offset, record: *record }
            }
            Owned::Skipped(lineage, start, bytes, records) => {
                Event::Skipped { lineage: *lineage, start: *start, bytes: *bytes, records: *records }
            }
            Owned::Runs((lineage, epoch, first_seq), id, runs) => Event::ProducerRuns(ProducerRuns {
                lineage: *lineage,
                id,
                epoch: *epoch,
                first_seq: *first_seq,
                runs,
            }),
        })
    }

    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Owned::Appended(append) if append.parts.is_none() => {
                append.lengths.iter().map(|len| *len as usize).sum()
            }
            Owned::Chunk(_, bytes) => *bytes,
            _ => 0,
        }
    }

    /// Its payload: bytes that differ from event to event and along each.
    pub fn payload(&self) -> Vec<u8> {
        let salt = match self {
            Owned::Appended(append) => append.lineage ^ append.start,
            Owned::Chunk(lineage, _) => *lineage,
            _ => 0,
        };
        let byte = |index: usize| (salt as usize).wrapping_add(index).wrapping_mul(0x9e37_79b9) >> 13;
        (0..self.payload_bytes()).map(|index| byte(index) as u8).collect()
    }
}

impl Append {
    fn event(&self) -> Appended<'_> {
        Appended {
            lineage: self.lineage,
            start: self.start,
            lengths: Lengths::Each(&self.lengths),
            producer: self.producer.as_ref().map(|(id, epoch, seq)| Producer {
                id,
                epoch: *epoch,
                seq: *seq,
            }),
            stream_seq: self.stream_seq.as_deref(),
            closed: self.closed,
            payload: match &self.parts {
                Some(parts) => Payload::Parts(parts),
                None => Payload::Here(Place::default()),
            },
        }
    }
}

/// An append of one record of `len` bytes and nothing else.
pub fn plain(lineage: u64, start: u64, len: u32) -> Owned {
    Owned::Appended(Append {
        lineage,
        start,
        lengths: vec![len],
        producer: None,
        stream_seq: None,
        closed: false,
        parts: None,
    })
}

/// What `lengths` becomes on disk and back: `Uniform` where it is.
pub fn settled(lengths: Lengths<'_>) -> Lengths<'_> {
    match lengths {
        Lengths::Each([]) => Lengths::NONE,
        Lengths::Each(list) if list.iter().all(|len| *len == list[0]) => {
            Lengths::Uniform { len: list[0], count: list.len() as u32 }
        }
        other => other,
    }
}

/// Asserts that `read` is `written` after a trip through the log, its payload at `place`.
#[track_caller]
pub fn assert_same(written: &Event<'_>, read: &Event<'_>, place: Place) {
    let expected = match *written {
        Event::Appended(append) => {
            let payload = match append.payload {
                Payload::Here(_) => Payload::Here(place),
                parts => parts,
            };
            Event::Appended(Appended { lengths: settled(append.lengths), payload, ..append })
        }
        other => other,
    };
    assert_eq!(*read, expected);
}

fn any_number() -> impl Strategy<Value = u64> {
    // Every length of varint, not just the longest.
    (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
}

fn any_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

fn any_created() -> impl Strategy<Value = Created> {
    (
        (any_number(), any::<u64>(), any_number()),
        (any_bytes(140), any_bytes(40), any_bytes(200)),
        (option::of(any_number()), option::of(any_number()), any::<bool>()),
    )
        .prop_map(|(numbers, (key, content_type, attributes), (ttl_seconds, expires_at_ms, closed))| {
            Created { numbers, key, content_type, ttl_seconds, expires_at_ms, attributes, closed }
        })
}

fn any_lengths() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        2 => Just(Vec::new()),
        6 => (1..2000u32).prop_map(|len| vec![len]),
        2 => (1..300u32, 2..40usize).prop_map(|(len, count)| vec![len; count]),
        3 => vec(1..600u32, 2..40),
        1 => (60_000..200_000u32).prop_map(|len| vec![len]),
        1 => Just(vec![crate::limits::CHECKSUM_CHUNK_BYTES as u32]),
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    (0..1000u32, any::<u32>(), any::<u32>(), 1..100_000u32)
        .prop_map(|(segment, position, back, len)| Part { place: Place { segment, position, back }, len })
}

fn any_append() -> impl Strategy<Value = Append> {
    (
        // Few lineages and starts, so that appends follow each other now and then.
        (
            prop_oneof![1..4u64, any_number()],
            prop_oneof![Just(0u64), any_number().prop_map(|start| start >> 1)],
        ),
        any_lengths(),
        option::of((any_bytes(30), any_number(), any_number())),
        (option::of(any_bytes(20)), any::<bool>()),
        option::weighted(0.1, vec(any_part(), 1..5)),
    )
        .prop_map(|((lineage, start), mut lengths, producer, (stream_seq, closed), parts)| {
            if let Some(parts) = &parts {
                lengths = parts.iter().map(|part| part.len).collect();
            }
            Append { lineage, start, lengths, producer, stream_seq, closed, parts }
        })
}

fn any_runs() -> impl Strategy<Value = Vec<ProducerRun>> {
    vec((0..1u64 << 20, 0..500u64, 1..2000u64), 0..20).prop_map(|runs| {
        let mut end = 0;
        let run = |(gap, records, appends)| {
            let run = ProducerRun { first_ordinal: end + gap, records, appends };
            end = run.first_ordinal + records * appends;
            run
        };
        runs.into_iter().map(run).collect()
    })
}

/// Any event or chunk.
pub fn any_owned() -> impl Strategy<Value = Owned> {
    prop_oneof![
        2 => any_created().prop_map(Owned::Created),
        12 => any_append().prop_map(Owned::Appended),
        1 => any_number().prop_map(Owned::Deleted),
        1 => (any_number(), any_number()).prop_map(|(lineage, used_ms)| Owned::Renewed(lineage, used_ms)),
        1 => (any_bytes(64), any_number()).prop_map(|(bucket, number)| Owned::BucketCreated(bucket, number)),
        1 => (any_bytes(64), any_number()).prop_map(|(bucket, number)| Owned::BucketDeleted(bucket, number)),
        1 => (any_number(), 0..100_000usize).prop_map(|(lineage, bytes)| Owned::Chunk(lineage, bytes)),
        1 => (any_number(), any_bytes(200)).prop_map(|(lineage, bytes)| Owned::AttributesSet(lineage, bytes)),
        1 => ((any_number(), any_number(), any_number()), any_bytes(40), vec(any_part(), 0..5))
            .prop_map(|(numbers, content_type, parts)| Owned::Snapshot(numbers, content_type, parts)),
        1 => (any_number(), any_number(), any_number())
            .prop_map(|(lineage, offset, record)| Owned::Retained(lineage, offset, record)),
        1 => (any_number(), any_number(), any_number(), any_number())
            .prop_map(|(lineage, start, bytes, records)| Owned::Skipped(lineage, start, bytes, records)),
        1 => ((any_number(), any_number(), 0..1u64 << 40), any_bytes(30), any_runs())
            .prop_map(|(numbers, id, runs)| Owned::Runs(numbers, id, runs)),
    ]
}

/// A run of events in which plain appends to a few streams follow each other, as in a batch.
pub fn any_run() -> impl Strategy<Value = Vec<Owned>> {
    (vec(any_owned(), 0..12), vec((1..3u64, 1..500u32, any::<bool>()), 0..30)).prop_map(
        |(mut events, plains)| {
            let mut ends = [0, 0, 0];
            for (stream, len, at_end) in plains {
                let end = &mut ends[stream as usize];
                let event = plain(stream, *end, len);
                *end += u64::from(len);
                let at = if at_end { events.len() } else { events.len() / 2 };
                events.insert(at, event);
            }
            events
        },
    )
}
