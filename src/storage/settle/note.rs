//! An entry of an input on its own: what is remembered of it until its turn comes.

use super::gather::{BucketEvent, Created, Skip, Snapshot};
use crate::storage::event::{
    Appended, Event, HashRange, Lengths, Part, Payload, Place, ProducerRun, ProducerRuns, SnapshotPublished,
};

/// An entry of an input, on its own.
pub(super) struct Noted {
    pub(super) time_ms: u64,
    pub(super) hashes: HashRange,
    pub(super) what: What,
}

pub(super) enum What {
    Append(Box<AppendNoted>),
    /// The commonest by far: one record and nothing else.
    Plain {
        lineage: u64,
        start: u64,
        len: u32,
        place: Place,
    },
    Created(Box<Created>),
    Deleted(u64),
    Renewed {
        lineage: u64,
        used_ms: u64,
    },
    Attributes {
        lineage: u64,
        attributes: Box<[u8]>,
    },
    Snapshot(Box<Snapshot>),
    Retained {
        lineage: u64,
        offset: u64,
        record: u64,
    },
    Skipped {
        lineage: u64,
        skip: Skip,
    },
    Runs {
        lineage: u64,
        id: Box<[u8]>,
        epoch: u64,
        first_seq: u64,
        runs: Box<[ProducerRun]>,
    },
    Bucket(BucketEvent),
    Chunk {
        lineage: u64,
        place: Place,
    },
}

pub(super) struct AppendNoted {
    pub(super) lineage: u64,
    pub(super) start: u64,
    pub(super) lengths: OwnedLengths,
    pub(super) producer: Option<(Box<[u8]>, u64, u64)>,
    pub(super) stream_seq: Option<Box<[u8]>>,
    pub(super) closed: bool,
    /// With the bytes of the whole payload of each entry.
    pub(super) parts: Box<[Part]>,
    pub(super) in_parts: bool,
}

pub(super) enum OwnedLengths {
    Uniform { len: u32, count: u32 },
    Each(Box<[u32]>),
}

/// Takes an event in.
pub(super) fn note_event(event: &Event<'_>, time_ms: u64) -> What {
    match event {
        Event::Appended(append) => note_append(append),
        Event::StreamCreated(created) => What::Created(Box::new(Created::of(created))),
        Event::StreamDeleted { lineage } => What::Deleted(*lineage),
        Event::Renewed { lineage, used_ms } => What::Renewed { lineage: *lineage, used_ms: *used_ms },
        Event::AttributesSet { lineage, attributes } => {
            What::Attributes { lineage: *lineage, attributes: (*attributes).into() }
        }
        Event::SnapshotPublished(snapshot) => What::Snapshot(Box::new(note_snapshot(snapshot))),
        Event::Retained { lineage, offset, record } => {
            What::Retained { lineage: *lineage, offset: *offset, record: *record }
        }
        Event::Skipped { lineage, start, bytes, records } => What::Skipped {
            lineage: *lineage,
            skip: Skip { start: *start, bytes: *bytes, records: *records },
        },
        Event::ProducerRuns(ProducerRuns { lineage, id, epoch, first_seq, runs }) => What::Runs {
            lineage: *lineage,
            id: (*id).into(),
            epoch: *epoch,
            first_seq: *first_seq,
            runs: (*runs).into(),
        },
        Event::BucketCreated { bucket, generation } => {
            let event =
                BucketEvent { bucket: (*bucket).into(), generation: *generation, created: true, time_ms };
            What::Bucket(event)
        }
        Event::BucketDeleted { bucket, generation } => {
            let event =
                BucketEvent { bucket: (*bucket).into(), generation: *generation, created: false, time_ms };
            What::Bucket(event)
        }
    }
}

fn note_snapshot(snapshot: &SnapshotPublished<'_>) -> Snapshot {
    Snapshot {
        lineage: snapshot.lineage,
        offset: snapshot.offset,
        record: snapshot.record,
        content_type: snapshot.content_type.into(),
        digest: snapshot.digest,
        parts: snapshot.parts.into(),
    }
}

fn note_append(append: &Appended<'_>) -> What {
    let total = append.lengths.total_bytes();
    if let (Appended { producer: None, stream_seq: None, closed: false, .. }, Payload::Here(place)) =
        (append, append.payload)
        && let Lengths::Uniform { len, count: 1 } = append.lengths
    {
        return What::Plain { lineage: append.lineage, start: append.start, len, place };
    }
    let lengths = match append.lengths {
        Lengths::Uniform { len, count } => OwnedLengths::Uniform { len, count },
        Lengths::Each(list) => OwnedLengths::Each(list.into()),
    };
    let parts: Box<[Part]> = match append.payload {
        Payload::Here(_) if total == 0 => Box::default(),
        Payload::Here(place) => Box::new([Part { place, len: total as u32 }]),
        Payload::Parts(parts) => parts.into(),
    };
    What::Append(Box::new(AppendNoted {
        lineage: append.lineage,
        start: append.start,
        lengths,
        producer: append.producer.map(|producer| (producer.id.into(), producer.epoch, producer.seq)),
        stream_seq: append.stream_seq.map(Into::into),
        closed: append.closed,
        parts,
        in_parts: matches!(append.payload, Payload::Parts(_)),
    }))
}
