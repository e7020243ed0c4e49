//! Entries of every kind but appends: one table of encoders, one of decoders.

use super::varint::{Get, Put};
use super::{
    CREATED_ATTRIBUTES, CREATED_CLOSED, CREATED_EXPIRES, CREATED_TTL, Coded, Coding, DecodeError,
    DecodeScratch, Entry, SegmentIndex, get_parts, put_parts,
};
use crate::storage::event::{
    Event, Part, Place, ProducerRun, ProducerRuns, SnapshotPublished, StreamCreated,
};
use crate::storage::format::{Kind, entry_back_bytes};

/// Encodes any event but an append.
pub(super) fn encode_other(event: &Event<'_>, number_of: impl Fn(u32) -> u32, out: &mut [u8]) -> Coded {
    let mut put = Put { out, at: 0 };
    let (kind, flags) = match event {
        Event::Appended(_) => unreachable!("appends have their own encoder"),
        Event::StreamCreated(created) => (Kind::StreamCreated, put_created(&mut put, created)),
        Event::StreamDeleted { lineage } => {
            put.varint(*lineage);
            (Kind::StreamDeleted, 0)
        }
        Event::Renewed { lineage, used_ms } => {
            put.varint(*lineage);
            put.varint(*used_ms);
            (Kind::Renewed, 0)
        }
        Event::AttributesSet { lineage, attributes } => {
            put.varint(*lineage);
            put.bytes(attributes);
            (Kind::AttributesSet, 0)
        }
        Event::SnapshotPublished(snapshot) => {
            put.varint(snapshot.lineage);
            put.varint(snapshot.offset);
            put.varint(snapshot.record);
            put.bytes(snapshot.content_type);
            put.raw(&snapshot.digest);
            put_parts(&mut put, snapshot.parts, number_of);
            (Kind::SnapshotPublished, 0)
        }
        Event::Retained { lineage, offset, record } => {
            put.varint(*lineage);
            put.varint(*offset);
            put.varint(*record);
            (Kind::Retained, 0)
        }
        Event::Skipped { lineage, start, bytes, records } => {
            put.varint(*lineage);
            put.varint(*start);
            put.varint(*bytes);
            put.varint(*records);
            (Kind::Skipped, 0)
        }
        Event::ProducerRuns(producer) => {
            put_runs(&mut put, producer);
            (Kind::ProducerRuns, 0)
        }
        Event::BucketCreated { bucket, generation } => {
            put.varint(*generation);
            put.bytes(bucket);
            (Kind::BucketCreated, 0)
        }
        Event::BucketDeleted { bucket, generation } => {
            put.varint(*generation);
            put.bytes(bucket);
            (Kind::BucketDeleted, 0)
        }
    };
    Coded { kind, flags, meta_bytes: put.at, stem: None }
}

fn put_created(put: &mut Put<'_>, created: &StreamCreated<'_>) -> u8 {
    let mut flags = if created.closed { CREATED_CLOSED } else { 0 };
    put.varint(created.lineage);
    put.raw(&created.placement.to_le_bytes());
    put.varint(created.bucket_generation);
    put.bytes(created.key);
    put.bytes(created.content_type);
    if let Some(ttl_seconds) = created.ttl_seconds {
        flags |= CREATED_TTL;
        put.varint(ttl_seconds);
    }
    if let Some(expires_at_ms) = created.expires_at_ms {
        flags |= CREATED_EXPIRES;
        put.varint(expires_at_ms);
    }
    if !created.attributes.is_empty() {
        flags |= CREATED_ATTRIBUTES;
        put.bytes(created.attributes);
    }
    flags
}

/// Runs as distances: what a run has in common with the one before costs a byte of zero or one.
fn put_runs(put: &mut Put<'_>, producer: &ProducerRuns<'_>) {
    put.varint(producer.lineage);
    put.bytes(producer.id);
    put.varint(producer.epoch);
    put.varint(producer.first_seq);
    put.varint(producer.runs.len() as u64);
    let mut end = 0;
    for run in producer.runs {
        assert!(run.first_ordinal >= end && run.appends > 0, "{run:?} after ordinal {end}");
        put.varint(run.first_ordinal - end);
        put.varint(run.records);
        put.varint(run.appends);
        end = run.first_ordinal + run.records * run.appends;
    }
}

/// Decodes any entry but an append.
pub(super) fn decode_other<'a>(
    coding: &Coding<'a>,
    index_of: &SegmentIndex<'_>,
    scratch: &'a mut DecodeScratch,
) -> Result<Entry<'a>, DecodeError> {
    let (flags, meta) = coding.own()?;
    let mut get = Get { rest: meta };
    let kind = Kind::from_u8(coding.kind).ok_or(DecodeError::UnknownKind(coding.kind))?;
    if flags != 0 && kind != Kind::StreamCreated {
        return Err(DecodeError::UnknownFlags(coding.kind, coding.flags));
    }
    if coding.payload_bytes != 0 && kind != Kind::Chunk {
        return Err(DecodeError::Payload);
    }
    let entry = match kind {
        Kind::Appended => unreachable!("appends have their own decoder"),
        Kind::StreamCreated => Entry::Event(Event::StreamCreated(get_created(&mut get, coding.kind, flags)?)),
        Kind::StreamDeleted => Entry::Event(Event::StreamDeleted { lineage: get.varint()? }),
        Kind::Renewed => Entry::Event(Event::Renewed { lineage: get.varint()?, used_ms: get.varint()? }),
        Kind::BucketCreated => {
            let generation = get.varint()?;
            Entry::Event(Event::BucketCreated { bucket: get.bytes()?, generation })
        }
        Kind::BucketDeleted => {
            let generation = get.varint()?;
            Entry::Event(Event::BucketDeleted { bucket: get.bytes()?, generation })
        }
        Kind::AttributesSet => {
            Entry::Event(Event::AttributesSet { lineage: get.varint()?, attributes: get.bytes()? })
        }
        Kind::SnapshotPublished => {
            Entry::Event(Event::SnapshotPublished(get_snapshot(&mut get, index_of, &mut scratch.parts)?))
        }
        Kind::Retained => Entry::Event(Event::Retained {
            lineage: get.varint()?,
            offset: get.varint()?,
            record: get.varint()?,
        }),
        Kind::Skipped => Entry::Event(Event::Skipped {
            lineage: get.varint()?,
            start: get.varint()?,
            bytes: get.varint()?,
            records: get.varint()?,
        }),
        Kind::ProducerRuns => Entry::Event(Event::ProducerRuns(get_runs(&mut get, &mut scratch.runs)?)),
        Kind::Chunk => {
            let back = entry_back_bytes(coding.meta.len(), coding.payload_bytes as usize) as u32;
            let place = Place { segment: coding.segment, position: coding.position.wrapping_add(back), back };
            Entry::Chunk { lineage: get.varint()?, part: Part { place, len: coding.payload_bytes } }
        }
    };
    get.end()?;
    Ok(entry)
}

fn get_created<'a>(get: &mut Get<'a>, kind: u8, flags: u8) -> Result<StreamCreated<'a>, DecodeError> {
    if flags & !(CREATED_CLOSED | CREATED_TTL | CREATED_EXPIRES | CREATED_ATTRIBUTES) != 0 {
        return Err(DecodeError::UnknownFlags(kind, flags));
    }
    let lineage = get.varint()?;
    let placement = u64::from_le_bytes(*get.array::<8>()?);
    let bucket_generation = get.varint()?;
    let key = get.bytes()?;
    let content_type = get.bytes()?;
    let ttl_seconds = if flags & CREATED_TTL == 0 { None } else { Some(get.varint()?) };
    let expires_at_ms = if flags & CREATED_EXPIRES == 0 { None } else { Some(get.varint()?) };
    let attributes = if flags & CREATED_ATTRIBUTES == 0 { &[][..] } else { get.bytes()? };
    let closed = flags & CREATED_CLOSED != 0;
    Ok(StreamCreated {
        lineage,
        placement,
        key,
        content_type,
        ttl_seconds,
        expires_at_ms,
        bucket_generation,
        attributes,
        closed,
    })
}

fn get_snapshot<'a>(
    get: &mut Get<'a>,
    index_of: &SegmentIndex<'_>,
    parts: &'a mut Vec<Part>,
) -> Result<SnapshotPublished<'a>, DecodeError> {
    let (lineage, offset, record) = (get.varint()?, get.varint()?, get.varint()?);
    let content_type = get.bytes()?;
    let digest = *get.array::<32>()?;
    get_parts(get, parts, index_of)?;
    Ok(SnapshotPublished { lineage, offset, record, content_type, digest, parts })
}

fn get_runs<'a>(get: &mut Get<'a>, runs: &'a mut Vec<ProducerRun>) -> Result<ProducerRuns<'a>, DecodeError> {
    let lineage = get.varint()?;
    let id = get.bytes()?;
    let (epoch, first_seq, count) = (get.varint()?, get.varint()?, get.varint()?);
    // Each run takes three bytes at least: a count beyond that must not reserve memory.
    if count > get.rest.len() as u64 / 3 {
        return Err(DecodeError::Cut);
    }
    runs.clear();
    let (mut end, mut seq) = (0u64, first_seq);
    for _ in 0..count {
        let (gap, records, appends) = (get.varint()?, get.varint()?, get.varint()?);
        let first_ordinal = end.checked_add(gap).ok_or(DecodeError::Varint)?;
        let added = records.checked_mul(appends).ok_or(DecodeError::Varint)?;
        end = first_ordinal.checked_add(added).ok_or(DecodeError::Varint)?;
        seq = seq.checked_add(appends).ok_or(DecodeError::Varint)?;
        if appends == 0 {
            return Err(DecodeError::Lengths);
        }
        runs.push(ProducerRun { first_ordinal, records, appends });
    }
    Ok(ProducerRuns { lineage, id, epoch, first_seq, runs })
}
