//! Rows for programs: one JSON object a line, each with its `row`. Bytes that are no UTF-8 are escaped as in
//! the text form.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::super::codec::Entry;
use super::super::event::{
    Appended, Event, Lengths, Part, Payload, ProducerRuns, SnapshotPublished, StreamCreated,
};
use super::super::format::Kind;
use super::streams::digest_text;
use super::{Row, SegmentEnd, Severity, Stream, Tail};

/// Writes a row as one line of JSON.
pub fn write_json(out: &mut dyn Write, row: &Row<'_>) -> io::Result<()> {
    let value = match row {
        Row::Log { path, list } => json!({
            "row": "log",
            "path": path.to_string_lossy(),
            "lineage": list.lineage,
            "segments": list.segments.iter().map(|listed| json!({
                "number": listed.number, "log_id": listed.log_id, "name": listed.name,
                "hashes": [listed.hashes.start, listed.hashes.end],
            })).collect::<Vec<_>>(),
        }),
        Row::Segment { path, file_bytes, header } => {
            let header = match header {
                Ok(header) => json!({
                    "segment_number": header.segment_number, "log_id": header.log_id, "epoch": header.epoch,
                    "first_lsn": header.first_lsn, "nonce": header.nonce,
                    "segment_bytes": header.segment_bytes, "created_ms": header.created_ms,
                    "settled": header.settled.map(|settled| json!({
                        "origin_log_id": settled.origin_log_id, "last_lsn": settled.last_lsn,
                        "payload_bytes": settled.payload_bytes,
                    })),
                }),
                Err(problem) => json!({"problem": problem.to_string()}),
            };
            let path = path.to_string_lossy();
            json!({"row": "segment", "path": path, "file_bytes": file_bytes, "header": header})
        }
        Row::Commit { position, header } => json!({
            "row": "commit", "position": position, "lsn": header.lsn, "time_ms": header.time_ms,
            "mark": header.is_mark(), "entries": header.entry_count, "body_bytes": header.body_bytes,
            "commit_bytes": header.commit_bytes(),
        }),
        Row::Entry { position, raw, entry, context } => {
            let mut fields = entry_fields(entry);
            fields.insert("row".into(), "entry".into());
            fields.insert("position".into(), (*position).into());
            fields.insert("lsn".into(), context.lsn.into());
            fields.insert("time_ms".into(), context.time_ms.into());
            fields.insert("payload_bytes".into(), raw.payload_bytes.into());
            Value::Object(fields)
        }
        Row::SegmentEnd(end) => segment_end(end),
        Row::Stream(stream) => stream_row(stream),
        Row::Finding(finding) => json!({
            "row": "finding",
            "severity": match finding.severity { Severity::Note => "note", Severity::Damage => "damage" },
            "path": finding.path.to_string_lossy(), "position": finding.position, "what": finding.what,
        }),
    };
    writeln!(out, "{value}")
}

fn segment_end(end: &SegmentEnd<'_>) -> Value {
    let (state, tail) = match end.tail {
        Tail::Sealed(trailer) => (
            "sealed",
            json!({
                "footer_position": trailer.footer_position, "footer_bytes": trailer.footer_bytes,
                "pages": trailer.page_count, "highest_lineage": trailer.highest_lineage,
            }),
        ),
        Tail::Open => ("open", Value::Null),
        Tail::Torn(reason) => ("torn", json!({"reason": reason.to_string()})),
        Tail::NotBegun => ("not_begun", Value::Null),
        Tail::Damaged => ("damaged", Value::Null),
    };
    json!({
        "row": "segment_end", "path": end.path.to_string_lossy(), "state": state, "tail": tail,
        "commits": end.commits, "marks": end.marks, "entries": end.entries, "records": end.records,
        "last_lsn": end.last_lsn, "end": end.end, "padding_bytes": end.padding_bytes,
    })
}

fn stream_row(stream: &Stream) -> Value {
    let producers: Map<String, Value> = stream
        .producers
        .iter()
        .map(|(id, (epoch, seq))| (text(id), json!({"epoch": epoch, "seq": seq})))
        .collect();
    json!({
        "row": "stream", "key": text(&stream.key), "lineage": stream.lineage,
        "content_type": text(&stream.content_type), "bytes": stream.bytes, "records": stream.records,
        "appends": stream.appends, "closed": stream.closed, "deleted": stream.deleted,
        "created_ms": stream.created_ms, "written_ms": stream.written_ms, "producers": producers,
        "first": {"offset": stream.first.0, "record": stream.first.1}, "attributes": text(&stream.attributes),
        "snapshot": stream.snapshot.map(|(offset, record)| json!({"offset": offset, "record": record})),
    })
}

fn entry_fields(entry: &Entry<'_>) -> Map<String, Value> {
    let value = match entry {
        Entry::Chunk { lineage, .. } => json!({"kind": Kind::Chunk.name(), "lineage": lineage}),
        Entry::Event(Event::StreamCreated(created)) => created_fields(created),
        Entry::Event(Event::Appended(append)) => appended_fields(append),
        Entry::Event(Event::StreamDeleted { lineage }) => {
            json!({"kind": Kind::StreamDeleted.name(), "lineage": lineage})
        }
        Entry::Event(Event::Renewed { lineage, used_ms }) => {
            json!({"kind": Kind::Renewed.name(), "lineage": lineage, "used_ms": used_ms})
        }
        Entry::Event(Event::AttributesSet { lineage, attributes }) => {
            json!({"kind": Kind::AttributesSet.name(), "lineage": lineage, "attributes": text(attributes)})
        }
        Entry::Event(Event::SnapshotPublished(snapshot)) => snapshot_fields(snapshot),
        Entry::Event(Event::Retained { lineage, offset, record }) => {
            json!({"kind": Kind::Retained.name(), "lineage": lineage, "offset": offset, "record": record})
        }
        Entry::Event(Event::Skipped { lineage, start, bytes, records }) => json!({
            "kind": Kind::Skipped.name(), "lineage": lineage, "start": start, "bytes": bytes, "records": records,
        }),
        Entry::Event(Event::ProducerRuns(producer)) => producer_fields(producer),
        Entry::Event(Event::BucketCreated { bucket, generation }) => {
            json!({"kind": Kind::BucketCreated.name(), "bucket": text(bucket), "generation": generation})
        }
        Entry::Event(Event::BucketDeleted { bucket, generation }) => {
            json!({"kind": Kind::BucketDeleted.name(), "bucket": text(bucket), "generation": generation})
        }
    };
    match value {
        Value::Object(fields) => fields,
        other => unreachable!("an entry is an object, not {other}"),
    }
}

fn created_fields(created: &StreamCreated<'_>) -> Value {
    json!({
        "kind": Kind::StreamCreated.name(), "lineage": created.lineage, "placement": created.placement,
        "key": text(created.key), "content_type": text(created.content_type),
        "ttl_seconds": created.ttl_seconds, "expires_at_ms": created.expires_at_ms,
        "bucket_generation": created.bucket_generation,
        "attributes": text(created.attributes), "closed": created.closed,
    })
}

fn snapshot_fields(snapshot: &SnapshotPublished<'_>) -> Value {
    json!({
        "kind": Kind::SnapshotPublished.name(), "lineage": snapshot.lineage, "offset": snapshot.offset,
        "record": snapshot.record, "content_type": text(snapshot.content_type),
        "digest": digest_text(&snapshot.digest), "parts": parts_fields(snapshot.parts),
    })
}

fn producer_fields(producer: &ProducerRuns<'_>) -> Value {
    let runs: Value = producer
        .runs
        .iter()
        .map(|run| json!({"record": run.first_ordinal, "records": run.records, "appends": run.appends}))
        .collect();
    json!({
        "kind": Kind::ProducerRuns.name(), "lineage": producer.lineage, "id": text(producer.id),
        "epoch": producer.epoch, "seq": producer.first_seq, "runs": runs,
    })
}

fn parts_fields(parts: &[Part]) -> Value {
    let one = |Part { place, len }: &Part| json!({"segment": place.segment, "position": place.position, "bytes": len});
    parts.iter().map(one).collect()
}

fn appended_fields(append: &Appended<'_>) -> Value {
    let lengths = match append.lengths {
        Lengths::Uniform { len, count } => json!({"len": len, "count": count}),
        Lengths::Each(list) => json!(list),
    };
    let parts = match append.payload {
        Payload::Here(_) => Value::Null,
        Payload::Parts(parts) => parts_fields(parts),
    };
    json!({
        "kind": Kind::Appended.name(), "lineage": append.lineage, "start": append.start, "lengths": lengths,
        "records": append.lengths.count(), "bytes": append.lengths.total_bytes(),
        "producer": append.producer.map(|producer| json!({
            "id": text(producer.id), "epoch": producer.epoch, "seq": producer.seq,
        })),
        "stream_seq": append.stream_seq.map(text), "closed": append.closed, "parts": parts,
    })
}

/// Text as it is; bytes that are not text, escaped.
fn text(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}
