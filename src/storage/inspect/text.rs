//! Rows for people.

use std::io::{self, Write};

use super::super::codec::{Entry, TIMED};
use super::super::event::{
    Appended, Event, HashRange, Lengths, Payload, ProducerRuns, SnapshotPublished, StreamCreated,
};
use super::super::format::{FORMAT_VERSION, Kind, SegmentHeader, Settled};
use super::super::segment_list::Listed;
use super::streams::{digest_text, show};
use super::{Row, SegmentEnd, Severity, Stream, Tail};
use crate::protocol::time::write_rfc3339;

/// Bytes of a payload that are shown.
const PREVIEW_BYTES: usize = 32;

/// Writes a row as text, indented by its level.
pub fn write_text(out: &mut dyn Write, row: &Row<'_>) -> io::Result<()> {
    match row {
        Row::Log { path, list } => {
            let count = list.segments.len();
            writeln!(
                out,
                "\nlog {}: {count} segments, lineages up to {} when listed",
                path.display(),
                list.lineage
            )?;
            for Listed { name, hashes, .. } in
                list.segments.iter().filter(|listed| listed.hashes != HashRange::ALL)
            {
                writeln!(
                    out,
                    "  {name} counts for placements {:08x} to {:08x}",
                    hashes.start,
                    hashes.end - 1
                )?;
            }
            Ok(())
        }
        Row::Segment { path, file_bytes, header } => {
            write!(out, "  segment {}: {}", file_of(path), size(*file_bytes))?;
            match header {
                Ok(header) => write_header(out, header),
                Err(problem) => writeln!(out, ", header: {problem}"),
            }
        }
        Row::Commit { position, header } => {
            let time = time(header.time_ms);
            let what =
                if header.is_mark() { "mark".to_string() } else { format!("{} entries", header.entry_count) };
            let (bytes, all) = (header.body_bytes, header.commit_bytes());
            writeln!(out, "    @{position} commit {} {time}: {what}, {bytes} bytes in {all}", header.lsn)
        }
        Row::Entry { position, raw, entry, context } => {
            write!(out, "      @{position} ")?;
            if raw.flags & TIMED != 0 && context.time_ms > 0 {
                write!(out, "{} ", time(context.time_ms))?;
            }
            match entry {
                Entry::Event(event) => write_event(out, event)?,
                Entry::Chunk { lineage, part } => write!(out, "chunk lineage {lineage}, {} bytes", part.len)?,
            }
            if !raw.payload.is_empty() {
                let preview = &raw.payload[..raw.payload.len().min(PREVIEW_BYTES)];
                let more = if preview.len() < raw.payload.len() { "..." } else { "" };
                write!(out, " {}{more}", show(preview))?;
            }
            writeln!(out)
        }
        Row::SegmentEnd(end) => write_end(out, end),
        Row::Stream(stream) => write_stream(out, stream),
        Row::Finding(finding) => {
            let severity = match finding.severity {
                Severity::Note => "note",
                Severity::Damage => "DAMAGE",
            };
            writeln!(out, "{severity}: {} @{}: {}", finding.path.display(), finding.position, finding.what)
        }
    }
}

fn write_header(out: &mut dyn Write, header: &SegmentHeader) -> io::Result<()> {
    let SegmentHeader { segment_number, log_id, epoch, first_lsn, nonce, created_ms, .. } = header;
    write!(
        out,
        ", format {FORMAT_VERSION}, number {segment_number} of log {log_id}, epoch {epoch}, begun {} with \
         commit {first_lsn}, nonce {nonce:016x}",
        time(*created_ms)
    )?;
    match header.settled {
        None => writeln!(out),
        Some(Settled { origin_log_id, last_lsn, payload_bytes }) => writeln!(
            out,
            ", settled: stands for commits {first_lsn} to {last_lsn} of log {origin_log_id}, {} of payload kept",
            size(payload_bytes)
        ),
    }
}

fn write_end(out: &mut dyn Write, end: &SegmentEnd<'_>) -> io::Result<()> {
    if end.tail == Tail::NotBegun {
        return writeln!(out, "    not begun: made ahead of use");
    }
    let SegmentEnd { commits, marks, entries, records, last_lsn, end: position, padding_bytes, .. } = end;
    write!(
        out,
        "    {commits} commits ({marks} marks), the last is {last_lsn}; {entries} entries, \
         {records} records; end at {position} ({}, {} of it padding)",
        size(*position),
        size(*padding_bytes)
    )?;
    match end.tail {
        Tail::Sealed(trailer) => {
            let (bytes, pages) = (size(trailer.footer_bytes), trailer.page_count);
            writeln!(
                out,
                "; sealed, footer of {bytes} in {pages} pages, lineages up to {}",
                trailer.highest_lineage
            )
        }
        Tail::Open => writeln!(out, "; not sealed"),
        Tail::Torn(reason) => writeln!(out, "; not sealed, then: {reason}"),
        Tail::NotBegun | Tail::Damaged => writeln!(out, "; damaged"),
    }
}

fn write_stream(out: &mut dyn Write, stream: &Stream) -> io::Result<()> {
    let Stream { lineage, bytes, records, appends, .. } = stream;
    let state = match (stream.deleted, stream.closed) {
        (true, _) => "deleted",
        (false, true) => "closed",
        (false, false) => "open",
    };
    write!(
        out,
        "  stream {} lineage {lineage} {}: {records} records, {bytes} bytes in {appends} appends, \
         {} producers, created {}, written {}, {state}",
        show(&stream.key),
        show(&stream.content_type),
        stream.producers.len(),
        time(stream.created_ms),
        time(stream.written_ms),
    )?;
    if stream.first != (0, 0) {
        let (offset, record) = stream.first;
        write!(out, ", begins at {offset} with record {record}")?;
    }
    if let Some((offset, record)) = stream.snapshot {
        write!(out, ", snapshot at {offset}, record {record}")?;
    }
    if !stream.attributes.is_empty() {
        write!(out, ", attributes {}", show(&stream.attributes))?;
    }
    writeln!(out)
}

fn write_event(out: &mut dyn Write, event: &Event<'_>) -> io::Result<()> {
    match event {
        Event::StreamCreated(created) => write_created(out, created),
        Event::Appended(append) => write_appended(out, append),
        Event::StreamDeleted { lineage } => write!(out, "{} lineage {lineage}", Kind::StreamDeleted.name()),
        Event::Renewed { lineage, used_ms } => {
            write!(out, "{} lineage {lineage}, used {}", Kind::Renewed.name(), time(*used_ms))
        }
        Event::AttributesSet { lineage, attributes } => {
            write!(out, "{} lineage {lineage} {}", Kind::AttributesSet.name(), show(attributes))
        }
        Event::SnapshotPublished(snapshot) => {
            let SnapshotPublished { lineage, offset, record, parts, .. } = snapshot;
            let bytes: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
            write!(
                out,
                "{} lineage {lineage}, offset {offset}, record {record}, {bytes} bytes {} in {} parts, digest {}",
                Kind::SnapshotPublished.name(),
                show(snapshot.content_type),
                parts.len(),
                digest_text(&snapshot.digest)
            )
        }
        Event::Retained { lineage, offset, record } => {
            write!(out, "{} lineage {lineage}, offset {offset}, record {record}", Kind::Retained.name())
        }
        Event::Skipped { lineage, start, bytes, records } => {
            let name = Kind::Skipped.name();
            write!(out, "{name} lineage {lineage}, {records} records, {bytes} bytes from {start}")
        }
        Event::ProducerRuns(producer) => {
            let ProducerRuns { lineage, id, epoch, first_seq, runs } = producer;
            let appends: u64 = runs.iter().map(|run| run.appends).sum();
            write!(
                out,
                "{} lineage {lineage}, {} epoch {epoch}, seq {first_seq}, {appends} appends in {} runs",
                Kind::ProducerRuns.name(),
                show(id),
                runs.len()
            )
        }
        Event::BucketCreated { bucket, generation } => {
            write!(out, "{} {} generation {generation}", Kind::BucketCreated.name(), show(bucket))
        }
        Event::BucketDeleted { bucket, generation } => {
            write!(out, "{} {} generation {generation}", Kind::BucketDeleted.name(), show(bucket))
        }
    }
}

fn write_created(out: &mut dyn Write, created: &StreamCreated<'_>) -> io::Result<()> {
    let StreamCreated { lineage, placement, bucket_generation, .. } = created;
    write!(
        out,
        "{} {} lineage {lineage} {}, placement {placement:016x}, bucket generation {bucket_generation}",
        Kind::StreamCreated.name(),
        show(created.key),
        show(created.content_type)
    )?;
    if let Some(ttl_seconds) = created.ttl_seconds {
        write!(out, ", TTL {ttl_seconds} s")?;
    }
    if let Some(expires_at_ms) = created.expires_at_ms {
        write!(out, ", expires {}", time(expires_at_ms))?;
    }
    if !created.attributes.is_empty() {
        write!(out, ", attributes {}", show(created.attributes))?;
    }
    if created.closed { write!(out, ", closed") } else { Ok(()) }
}

fn write_appended(out: &mut dyn Write, append: &Appended<'_>) -> io::Result<()> {
    let (count, bytes) = (append.lengths.count(), append.lengths.total_bytes());
    let name = Kind::Appended.name();
    write!(out, "{name} lineage {} at {}: {count} records, {bytes} bytes", append.lineage, append.start)?;
    if let Lengths::Each(list) = append.lengths {
        let shown: Vec<String> = list.iter().take(8).map(u32::to_string).collect();
        let more = if list.len() > shown.len() { ", ..." } else { "" };
        write!(out, " ({}{more})", shown.join(", "))?;
    }
    if let Payload::Parts(parts) = append.payload {
        write!(out, ", in {} parts", parts.len())?;
    }
    if let Some(producer) = append.producer {
        write!(out, ", producer {} epoch {} seq {}", show(producer.id), producer.epoch, producer.seq)?;
    }
    if let Some(seq) = append.stream_seq {
        write!(out, ", Stream-Seq {}", show(seq))?;
    }
    if append.closed { write!(out, ", closes") } else { Ok(()) }
}

fn file_of(path: &std::path::Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// A time as people read it; one that is no date (a broken clock, another's file) as the number it is.
fn time(unix_ms: u64) -> String {
    if unix_ms > 253_402_300_799_999 {
        return format!("{unix_ms} ms");
    }
    let mut out = Vec::new();
    write_rfc3339(&mut out, unix_ms);
    String::from_utf8_lossy(&out).into_owned()
}

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}
