//! Appends and initial contents that are larger than a commit: the bytes go ahead as chunk entries, with other work in
//! between; one final entry, checked anew, publishes them. Chunks that no entry publishes are garbage.

use crate::http::pieces::Pieces;
use crate::http::service::{Fill, OneShot, Step};
use crate::http::turn::Turn;
use crate::limits::RECORDS_PER_APPEND_MAX;
use crate::protocol::errors::{Code, Problem};
use crate::shard::pending::PendingChunk;
use crate::shard::table::StreamId;
use crate::storage::event::{Lengths, Part, Payload, Producer};
use crate::storage::log::{Class, Refusal, Room};

use super::Api;
use super::answer::{Manner, STREAM_NOT_FOUND};
use super::append::{Canonical, Controls, appended_event, lengths_bytes};

/// A payload that owns its bytes, for it outlives its request. In pieces, so that no turn copies or stages more than one.
pub struct Owned {
    pieces: Pieces,
    lengths: OwnedLengths,
}

enum OwnedLengths {
    Uniform { len: u32, count: u32 },
    Each(Vec<u32>),
}

impl Owned {
    /// Copies a payload, with its separator.
    pub fn of(canonical: Canonical<'_>) -> Self {
        let mut pieces = Pieces::of(canonical.bytes);
        if canonical.separator {
            pieces.extend(b",");
        }
        let lengths = match canonical.lengths {
            Lengths::Uniform { len, count } => OwnedLengths::Uniform { len, count },
            Lengths::Each(list) => OwnedLengths::Each(list.to_vec()),
        };
        Self { pieces, lengths }
    }

    /// One message of a byte stream, which came in pieces.
    pub fn message(pieces: Pieces) -> Self {
        let len = u32::try_from(pieces.len()).expect("bodies are shorter than 4 GiB");
        Self { pieces, lengths: OwnedLengths::Uniform { len, count: 1 } }
    }

    /// Its bytes.
    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Its records.
    pub fn lengths(&self) -> Lengths<'_> {
        match &self.lengths {
            OwnedLengths::Uniform { len, count } => Lengths::Uniform { len: *len, count: *count },
            OwnedLengths::Each(list) => Lengths::Each(list),
        }
    }

    /// Upper bound of the metadata of the entry that publishes it.
    pub fn meta_bytes(&self) -> usize {
        lengths_bytes(self.lengths()) + parts_bytes(self.pieces.len())
    }
}

/// Metadata bytes of a chunk entry, generously.
const CHUNK_META_BYTES: usize = 64;

/// Bytes of a payload that one chunk entry holds.
pub fn part_bytes_max(api: &Api) -> usize {
    api.shard.log.payload_max() - CHUNK_META_BYTES
}

/// Upper bound of the metadata that names the parts of a payload of so many bytes.
pub fn parts_bytes(payload_bytes: usize) -> usize {
    const PART_BYTES: usize = 24;
    /// A part fills a commit but for little; the smallest commits have 64 KiB.
    const PART_PAYLOAD_BYTES_MIN: usize = 56 * 1024;
    PART_BYTES * (payload_bytes / PART_PAYLOAD_BYTES_MIN + 2)
}

/// Whether a payload fits in one entry, or else in parts that one entry names; `meta_bytes` with the record lengths. An error
/// if not even that.
pub fn fits_whole(api: &Api, meta_bytes: usize, canonical: Canonical<'_>) -> Result<bool, Problem> {
    fits(api, meta_bytes, canonical.stored_bytes(), canonical.lengths.count())
}

fn fits(api: &Api, meta_bytes: usize, stored_bytes: usize, records: u64) -> Result<bool, Problem> {
    let entry_max = api.shard.log.payload_max();
    if records > RECORDS_PER_APPEND_MAX as u64 {
        let message = format!("an append holds at most {RECORDS_PER_APPEND_MAX} records: send several");
        Err(Problem::new(Code::PayloadTooLarge, message))
    } else if meta_bytes + stored_bytes <= entry_max {
        Ok(true)
    } else if meta_bytes + parts_bytes(stored_bytes) <= entry_max {
        Ok(false)
    } else {
        Err(Problem::fixed(
            Code::PayloadTooLarge,
            "the body is larger, or holds more records, than one append can with segments of this size: send several",
        ))
    }
}

/// Waits until an entry of this size can be staged. Nothing else runs between the return and the next await.
pub async fn wait_for_room(api: &Api, meta_bytes: usize, payload_bytes: usize) -> Result<(), Refusal> {
    loop {
        match api.shard.room(meta_bytes, payload_bytes, Class::Append) {
            Room::Now => return Ok(()),
            Room::Later => api.shard.log.wait_room().await,
            Room::Refused(refusal) => return Err(refusal),
        }
    }
}

/// Chunk entries of a payload that no entry names yet. Dropped, they are garbage.
#[derive(Default)]
pub struct StagedParts {
    /// Where they lie, in order.
    pub parts: Vec<Part>,
    /// Ticket of the last one.
    pub ticket: u64,
    turn: Turn,
    /// Keeps settling from them.
    pending: Option<PendingChunk>,
}

impl StagedParts {
    /// Writes the next bytes of the payload, as chunk entries of a stream that exists, or will.
    pub async fn add(&mut self, api: &Api, lineage: u64, bytes: &[u8]) -> Result<(), Refusal> {
        for chunk in bytes.chunks(part_bytes_max(api)) {
            wait_for_room(api, CHUNK_META_BYTES, chunk.len()).await?;
            let (at, part) = api.shard.log.stage_chunk(lineage, chunk);
            self.ticket = at.ticket;
            let segment = part.place.segment;
            self.pending.get_or_insert_with(|| api.shard.pending_chunks.enter(segment));
            self.parts.push(part);
            self.turn.did(chunk.len()).await;
        }
        Ok(())
    }

    /// An entry that names them was just staged under this ticket: to be said before anything is awaited.
    pub fn named(self, ticket: u64) {
        if let Some(pending) = self.pending {
            pending.named(ticket);
        }
    }
}

/// Writes a payload as chunk entries of a stream that exists, or will.
pub async fn stage_parts(api: &Api, lineage: u64, payload: &Owned) -> Result<StagedParts, Refusal> {
    let mut staged = StagedParts::default();
    for piece in payload.pieces.iter() {
        staged.add(api, lineage, piece).await?;
    }
    Ok(staged)
}

/// An append that is larger than a commit.
pub struct LargeAppend {
    manner: Manner,
    id: StreamId,
    payload: Owned,
    content_type: Vec<u8>,
    producer: Option<(Vec<u8>, u64, u64)>,
    stream_seq: Option<Vec<u8>>,
    record_match: Option<u64>,
    close: bool,
}

impl LargeAppend {
    /// Starts one that has passed its checks; they are made again before it is published. The error says why it cannot be one
    /// append at all.
    pub fn step(
        api: &Api,
        manner: Manner,
        id: StreamId,
        controls: &Controls<'_>,
        payload: Owned,
    ) -> Result<Step, Problem> {
        let meta_bytes = controls.meta_bytes() + lengths_bytes(payload.lengths());
        fits(api, meta_bytes, payload.pieces.len(), payload.lengths().count())?;
        let append = Self {
            manner,
            id,
            payload,
            content_type: controls.content_type.unwrap_or_default().to_vec(),
            producer: controls.producer.map(|claim| (claim.id.to_vec(), claim.epoch, claim.seq)),
            stream_seq: controls.stream_seq.map(<[u8]>::to_vec),
            record_match: controls.record_match,
            close: controls.close,
        };
        let api = api.clone();
        Ok(OneShot::step(async move {
            let mut out = Vec::new();
            let step = append.run(&api, &mut out).await.unwrap_or_else(|problem| {
                api.problem(&mut out, manner, &problem);
                Step::Done
            });
            settle(&api, manner, step, out).await
        }))
    }

    async fn run(&self, api: &Api, out: &mut Vec<u8>) -> Result<Step, Problem> {
        let refused = |refusal| api.refusal(refusal);
        let staged = stage_parts(api, self.id.lineage, &self.payload).await.map_err(refused)?;
        let controls = self.controls();
        let meta_bytes = controls.meta_bytes() + self.payload.meta_bytes();
        wait_for_room(api, meta_bytes, 0).await.map_err(refused)?;
        // No await from here on: what is checked is what the entry is staged against.
        let table = api.shard.table.borrow();
        let stream = table.get(self.id).filter(|stream| stream.deleted_ticket.is_none());
        let stream = stream.ok_or(STREAM_NOT_FOUND)?;
        if let Err(rejected) = controls.check(stream) {
            drop(table);
            return Ok(api.reject(out, self.manner, self.id, &controls, &rejected));
        }
        let start = stream.staged.bytes;
        drop(table);
        let lengths = self.payload.lengths();
        let event = appended_event(self.id, &controls, start, lengths, Payload::Parts(&staged.parts));
        let stamp = api.shard.stage_append(self.id, event, 0, |_| {});
        staged.named(stamp.ticket);
        api.appended(out, self.manner, self.id, &controls, lengths);
        Ok(Step::After(stamp.ticket))
    }

    fn controls(&self) -> Controls<'_> {
        Controls {
            content_type: Some(&self.content_type),
            producer: self.producer.as_ref().map(|(id, epoch, seq)| Producer {
                id,
                epoch: *epoch,
                seq: *seq,
            }),
            stream_seq: self.stream_seq.as_deref(),
            record_match: self.record_match,
            close: self.close,
            has_body: true,
        }
    }
}

/// Ends a one-shot answer: waits for its ticket, and replaces it if the commit fails.
pub async fn settle(api: &Api, manner: Manner, step: Step, mut out: Vec<u8>) -> (Vec<u8>, Fill) {
    if let Step::After(ticket) = step
        && let Err(refusal) = api.shard.log.wait_durable(ticket).await
    {
        out.clear();
        api.problem(&mut out, manner, &api.refusal(refusal));
    }
    (out, Fill::End)
}
