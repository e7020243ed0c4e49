//! One stream's part of a window, as entries of the output: what was many appends becomes few large ones.

use super::gather::{Append, Claims, Group, Kept, Snapshot, Step};
use super::output::{Output, Pieced};
use super::{Move, Rewritten, SettleError, SnapshotMove};
use crate::limits::{SETTLED_APPEND_BYTES_MAX, SETTLED_APPEND_RECORDS_MAX};
use crate::storage::event::{
    Appended, Event, Lengths, Part, Payload, Place, ProducerRuns, SnapshotPublished,
};
use crate::storage::extents::Piece;
use crate::storage::log::Inner;

/// Runs of a producer in one entry.
const RUNS_PER_ENTRY: usize = 16 * 1024;

/// Writes a group. `lengths` and `bytes` are the window's.
pub(super) async fn emit(
    inner: &Inner,
    output: &mut Output<'_>,
    lineage: u64,
    group: &Group,
    lengths: &[u32],
    bytes: &[u8],
    rewritten: &mut Rewritten,
) -> Result<(), SettleError> {
    if let Some((created, time_ms)) = &group.created {
        output.push(&created.event(), *time_ms).await?;
    }
    if let Some((attributes, time_ms)) = &group.attributes {
        output.push(&Event::AttributesSet { lineage, attributes }, *time_ms).await?;
    }
    let mut merged = Merged::new(lineage);
    for step in &group.steps {
        match step {
            Step::Skip(skip, time_ms, stream_seq) => {
                merged.flush(output, bytes, rewritten).await?;
                merged.carry(skip.start + skip.bytes, stream_seq, *time_ms);
                let event =
                    Event::Skipped { lineage, start: skip.start, bytes: skip.bytes, records: skip.records };
                output.push(&event, *time_ms).await?;
            }
            Step::Append(append) => merged.append(output, append, lengths, bytes, rewritten).await?,
        }
    }
    merged.end(output, bytes, rewritten).await?;
    for (id, claims) in &group.producers {
        emit_claims(output, lineage, id, claims).await?;
    }
    if let Some((offset, record, time_ms)) = group.retained {
        output.push(&Event::Retained { lineage, offset, record }, time_ms).await?;
    }
    if let Some((snapshot, time_ms)) = &group.snapshot {
        rewritten.snapshots.push(emit_snapshot(inner, output, snapshot, *time_ms).await?);
    }
    if let Some((used_ms, time_ms)) = group.renewed {
        output.push(&Event::Renewed { lineage, used_ms }, time_ms).await?;
    }
    Ok(())
}

async fn emit_claims(
    output: &mut Output<'_>,
    lineage: u64,
    id: &[u8],
    claims: &Claims,
) -> Result<(), SettleError> {
    let mut first_seq = claims.first_seq;
    for runs in claims.runs.chunks(RUNS_PER_ENTRY) {
        let event = Event::ProducerRuns(ProducerRuns { lineage, id, epoch: claims.epoch, first_seq, runs });
        // Runs have no time of their own.
        output.push(&event, 0).await?;
        first_seq += runs.iter().map(|run| run.appends).sum::<u64>();
    }
    Ok(())
}

async fn emit_snapshot(
    inner: &Inner,
    output: &mut Output<'_>,
    snapshot: &Snapshot,
    time_ms: u64,
) -> Result<SnapshotMove, SettleError> {
    let Snapshot { lineage, offset, record, content_type, digest, parts } = snapshot;
    let mut moved = Vec::with_capacity(parts.len());
    for Part { place, len } in parts {
        let mut from = 0;
        while from < *len {
            let now = (*len - from).min(SETTLED_APPEND_BYTES_MAX as u32);
            let held = inner.hold(vec![Piece { place: *place, extent_len: *len, from, len: now }]);
            let mut bytes = Vec::with_capacity(now as usize);
            crate::storage::reader::read(inner, &held, &mut bytes).await?;
            moved.push(output.push_chunk(*lineage, &bytes).await?);
            from += now;
        }
    }
    let published = SnapshotPublished {
        lineage: *lineage,
        offset: *offset,
        record: *record,
        content_type,
        digest: *digest,
        parts: &moved,
    };
    output.push(&Event::SnapshotPublished(published), time_ms).await?;
    Ok(SnapshotMove { lineage: *lineage, offset: *offset, digest: *digest, parts: moved })
}

/// Appends that follow each other, on their way into one entry.
struct Merged {
    lineage: u64,
    start: u64,
    lengths: Vec<u32>,
    payload_bytes: usize,
    /// Where the payload lies among the bytes of the window.
    from: Vec<std::ops::Range<usize>>,
    stream_seq: Option<Box<[u8]>>,
    closed: bool,
    time_ms: u64,
    /// Whether there is anything to write.
    is_some: bool,
    /// A `Stream-Seq` of data that is gone, until a later append has one or carries this one: where the stream stands, and when.
    carried: Option<(u64, Box<[u8]>, u64)>,
}

impl Merged {
    fn new(lineage: u64) -> Merged {
        Merged {
            lineage,
            start: 0,
            lengths: Vec::new(),
            payload_bytes: 0,
            from: Vec::new(),
            stream_seq: None,
            closed: false,
            time_ms: 0,
            is_some: false,
            carried: None,
        }
    }

    /// Data up to `end` is gone, and its `Stream-Seq`, if it had one, still counts.
    fn carry(&mut self, end: u64, stream_seq: &Option<Box<[u8]>>, time_ms: u64) {
        if let Some(carried) = &mut self.carried {
            carried.0 = end;
        }
        if let Some(stream_seq) = stream_seq {
            self.carried = Some((end, stream_seq.clone(), time_ms));
        }
    }

    /// Writes what was taken in, and a `Stream-Seq` that nothing has carried.
    async fn end(
        &mut self,
        output: &mut Output<'_>,
        bytes: &[u8],
        rewritten: &mut Rewritten,
    ) -> Result<(), SettleError> {
        self.flush(output, bytes, rewritten).await?;
        if let Some((end, stream_seq, time_ms)) = self.carried.take() {
            self.begin(end);
            (self.stream_seq, self.time_ms) = (Some(stream_seq), time_ms);
            self.flush(output, bytes, rewritten).await?;
        }
        Ok(())
    }

    /// Takes an append in; writes what does not fit into one entry with it.
    async fn append(
        &mut self,
        output: &mut Output<'_>,
        append: &Append,
        lengths: &[u32],
        bytes: &[u8],
        rewritten: &mut Rewritten,
    ) -> Result<(), SettleError> {
        if append.bytes == 0 {
            // A close without data is no write: its time must not pass for that of the data before.
            self.flush(output, bytes, rewritten).await?;
        }
        let mut start = append.start;
        let mut at = append.at;
        let count = match append.lengths {
            Kept::Uniform { count, .. } => count as usize,
            Kept::Each { count, .. } => count,
        };
        for number in 0..count {
            let len = match append.lengths {
                Kept::Uniform { len, .. } => len,
                Kept::Each { from, .. } => lengths[from + number],
            };
            let is_full = self.payload_bytes + len as usize > SETTLED_APPEND_BYTES_MAX
                || self.lengths.len() >= SETTLED_APPEND_RECORDS_MAX;
            if is_full {
                self.flush(output, bytes, rewritten).await?;
            }
            self.begin(start);
            self.add(len, at);
            self.time_ms = append.time_ms;
            (start, at) = (start + u64::from(len), at + len as usize);
        }
        self.begin(start);
        self.time_ms = append.time_ms;
        self.closed |= append.closed;
        let carried = self.carried.take().map(|(_, stream_seq, _)| stream_seq);
        if let Some(stream_seq) = append.stream_seq.clone().or(carried) {
            self.stream_seq = Some(stream_seq);
        }
        Ok(())
    }

    fn begin(&mut self, start: u64) {
        if !self.is_some {
            self.is_some = true;
            self.start = start;
        }
    }

    fn add(&mut self, len: u32, at: usize) {
        let end = at + len as usize;
        match self.from.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => self.from.push(at..end),
        }
        self.lengths.push(len);
        self.payload_bytes += len as usize;
    }

    /// Writes what was taken in.
    async fn flush(
        &mut self,
        output: &mut Output<'_>,
        bytes: &[u8],
        rewritten: &mut Rewritten,
    ) -> Result<(), SettleError> {
        if !self.is_some {
            return Ok(());
        }
        let mut appended = Appended {
            lineage: self.lineage,
            start: self.start,
            lengths: Lengths::Each(&self.lengths),
            producer: None,
            stream_seq: self.stream_seq.as_deref(),
            closed: self.closed,
            payload: Payload::Here(Place::default()),
        };
        let payload = Pieced { bytes, from: &self.from, len: self.payload_bytes };
        // A single record may be larger than an entry should be.
        if self.payload_bytes > SETTLED_APPEND_BYTES_MAX {
            let mut parts = Vec::new();
            for piece in bytes[self.from[0].clone()].chunks(SETTLED_APPEND_BYTES_MAX) {
                parts.push(output.push_chunk(self.lineage, piece).await?);
            }
            appended.payload = Payload::Parts(&parts);
            output.push(&Event::Appended(appended), self.time_ms).await?;
            note_move(rewritten, self.lineage, self.start, &parts);
        } else {
            let place = output.push_payload(&Event::Appended(appended), self.time_ms, payload).await?;
            if self.payload_bytes > 0 {
                let part = Part { place, len: self.payload_bytes as u32 };
                note_move(rewritten, self.lineage, self.start, &[part]);
            }
        }
        let (lineage, mut lengths, mut from) =
            (self.lineage, std::mem::take(&mut self.lengths), std::mem::take(&mut self.from));
        lengths.clear();
        from.clear();
        let carried = self.carried.take();
        *self = Merged { lengths, from, carried, ..Merged::new(lineage) };
        Ok(())
    }
}

/// Bytes of a stream lie elsewhere now: one move for what follows each other.
fn note_move(rewritten: &mut Rewritten, lineage: u64, from: u64, parts: &[Part]) {
    if let Some(last) = rewritten.moves.last_mut()
        && last.lineage == lineage
        && last.from + last.parts.iter().map(|part| u64::from(part.len)).sum::<u64>() == from
    {
        last.parts.extend_from_slice(parts);
        return;
    }
    rewritten.moves.push(Move { lineage, from, parts: parts.to_vec() });
}
