//! `POST /{bucket}/{stream}/append-batch` (extension 4; decisions 15 to 17): independent appends in one request.
//!
//! Frames are judged one after the other and staged in runs: a run is one log entry with one message per frame (or the
//! records of all its frames), as large as a commit allows. A frame that fails gets its own answer and ends nothing. A
//! batch that fits in one commit is staged at once; a larger one goes on as commits make room, from a copy of its body.

use crate::http::service::{Fill, OneShot, Step, Wait};
use crate::http::{Known, Status};
use crate::limits;
use crate::protocol::batch::{self, Ack, AckWriter};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::headers;
use crate::protocol::json::{self, AllowEmpty};
use crate::shard::table::StreamId;
use crate::storage::event::{Lengths, Payload};
use crate::storage::log::{Class, Refusal, Room};

use super::answer::{Manner, STREAM_NOT_FOUND};
use super::append::{Canonical, Controls, appended_event};
use super::{Api, Named, Request, large, too_large};

/// Headers that a batch does not take (extension 4.2).
const UNSUPPORTED: [Known; 5] =
    [Known::ProducerId, Known::ProducerEpoch, Known::ProducerSeq, Known::StreamRecordMatch, Known::StreamSeq];
/// Metadata bytes of a run's entry besides its lengths, generously.
const META_BYTES: usize = 160;
/// Bytes that a length takes in an entry, at most.
const LENGTH_BYTES_MAX: usize = 5;

/// An append of a batch has no controls of its own.
const CONTROLS: Controls<'static> = Controls {
    content_type: None,
    producer: None,
    stream_seq: None,
    record_match: None,
    close: false,
    has_body: true,
};

/// Bytes of a frame's canonical payload: in the request, or rewritten.
#[derive(Clone, Copy)]
enum Bytes {
    Body { start: usize, end: usize },
    Rewritten { start: usize, end: usize },
}

/// Frames that are staged as one entry.
#[derive(Default)]
struct Run {
    pieces: Vec<Bytes>,
    rewritten: Vec<u8>,
    lengths: Vec<u32>,
    /// Records and bytes of each frame.
    frames: Vec<(u32, u32)>,
    stored_bytes: usize,
}

impl Run {
    fn clear(&mut self) {
        self.pieces.clear();
        self.rewritten.clear();
        self.lengths.clear();
        self.frames.clear();
        self.stored_bytes = 0;
    }

    fn entry_bytes(&self) -> usize {
        META_BYTES + self.stored_bytes + self.lengths.len() * LENGTH_BYTES_MAX
    }

    fn lengths(&self) -> Lengths<'_> {
        Canonical::lengths_of(&self.lengths)
    }
}

/// A batch being served: what is left of it, and the acknowledgements so far.
struct Progress {
    id: StreamId,
    /// Where the next frame begins in the body.
    next: usize,
    run: Run,
    acks: AckWriter,
    /// Frames acknowledged under a ticket; unless it becomes durable they failed after all.
    last_ticket: u64,
    /// Canonical bytes and record lengths of one frame.
    scratch: Vec<u8>,
    frame_lengths: Vec<u32>,
}

/// Memory of a batch, kept for the next one.
#[derive(Default)]
pub struct BatchMemory {
    run: Run,
    acks: Vec<u8>,
    scratch: Vec<u8>,
    frame_lengths: Vec<u32>,
}

impl BatchMemory {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.acks.capacity()
            + self.scratch.capacity()
            + size_of::<u32>() * (self.frame_lengths.capacity() + self.run.lengths.capacity())
            + self.run.rewritten.capacity()
            + size_of::<Bytes>() * self.run.pieces.capacity()
            + size_of::<(u32, u32)>() * self.run.frames.capacity()
    }
}

impl Api {
    /// Serves an append batch.
    pub fn append_batch(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        if let Err(problem) = self.batch_preconditions(request) {
            return self.fail(request, out, &problem);
        }
        let content_type = request.head.get(Known::ContentType).expect("checked above");
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        if !headers::media_type_eq(content_type, &stream.content_type.bytes) {
            let ticket = stream.last_ticket;
            let tail = stream.staged.bytes;
            drop(table);
            let acks = mismatched(request.body, tail);
            self.acknowledge(request.manner, out, &acks);
            return Step::After(ticket);
        }
        let plain = !stream.is_json() && !stream.staged.closed;
        drop(table);
        // At worst, every frame is an entry of its own, and a JSON frame holds as many records as bytes.
        let frames = batch::frames(request.body).expect("checked above").len();
        let meta_bytes = META_BYTES
            + if plain { frames * LENGTH_BYTES_MAX } else { frames * META_BYTES + request.body.len() };
        let payload_bytes = request.body.len() + frames;
        if meta_bytes + payload_bytes > self.shard.log.payload_max() {
            return self.batch_in_steps(request, id);
        }
        match self.shard.room(meta_bytes, payload_bytes, Class::Append) {
            Room::Now if plain => self.batch_of_messages(request, id, out),
            Room::Now => self.batch_at_once(request, id, out),
            Room::Later => Step::Again(Wait::Room),
            Room::Refused(refusal) => self.fail(request, out, &self.refusal(refusal)),
        }
    }

    fn batch_preconditions(&self, request: &Request<'_>) -> Result<(), Problem> {
        let head = request.head;
        let max_bytes = self.shard.config.max_body_bytes.min(limits::BATCH_BYTES_MAX);
        if request.body.len() as u64 > max_bytes {
            return Err(too_large(max_bytes));
        }
        let unsupported = UNSUPPORTED.into_iter().find(|known| head.has(*known));
        let closes = headers::is_true(head.get(Known::StreamClosed)).then_some(Known::StreamClosed);
        if let Some(known) = unsupported.or(closes) {
            let message = format!("an append batch does not take {}: use POST on the stream", known.name());
            return Err(Problem::new(Code::UnsupportedHeader, message));
        }
        if !head.has(Known::ContentType) {
            return Err(Problem::fixed(Code::ContentTypeRequired, "an append batch needs Content-Type"));
        }
        batch::frames(request.body).map(drop)
    }

    /// Serves a batch for an open byte stream, for which there is room: no frame of it can fail, so it is one entry.
    fn batch_of_messages(&self, request: &Request<'_>, id: StreamId, out: &mut Vec<u8>) -> Step {
        let scratch = &mut *self.scratch.borrow_mut();
        let frames = || batch::frames(request.body).expect("checked before");
        scratch.lengths.clear();
        scratch.lengths.extend(frames().map(|frame| frame.len() as u32));
        let start = self.shard.table.borrow().get(id).expect("found by the caller").staged.bytes;
        let lengths = Canonical::lengths_of(&scratch.lengths);
        let event = appended_event(id, &CONTROLS, start, lengths, Payload::Here(Default::default()));
        let payload_bytes = lengths.total_bytes() as usize;
        let stamp = self.shard.stage_append(id, event, payload_bytes, |payload| {
            frames().for_each(|frame| payload.put(frame));
        });
        let mut acks = AckWriter::new(std::mem::take(&mut scratch.json));
        let mut end = start;
        for length in &scratch.lengths {
            end += u64::from(*length);
            acks.push(&Ack::appended(end, None));
        }
        scratch.json = acks.finish();
        self.acknowledge(request.manner, out, &scratch.json);
        Step::After(stamp.ticket)
    }

    /// Serves a batch that fits in one commit, for which there is room.
    fn batch_at_once(&self, request: &Request<'_>, id: StreamId, out: &mut Vec<u8>) -> Step {
        let memory = std::mem::take(&mut self.scratch.borrow_mut().batch);
        let mut progress = Progress::new(id, memory);
        while progress.gather(self, request.body) {
            progress.stage(self, request.body);
        }
        assert_eq!(progress.next, request.body.len(), "a batch that fits is staged whole");
        let last_ticket = progress.last_ticket;
        let memory = progress.finish();
        self.acknowledge(request.manner, out, &memory.acks);
        self.scratch.borrow_mut().batch = memory;
        let table = self.shard.table.borrow();
        Step::After(table.get(id).map_or(last_ticket, |stream| stream.last_ticket))
    }

    /// Serves a larger batch as commits make room.
    fn batch_in_steps(&self, request: &Request<'_>, id: StreamId) -> Step {
        let (api, manner, body) = (self.clone(), request.manner, request.body.to_vec());
        OneShot::step(async move {
            let mut progress = Progress::new(id, BatchMemory::default());
            while progress.next < body.len() || !progress.run.frames.is_empty() {
                if !progress.gather(&api, &body) {
                    break;
                }
                if let Err(refusal) = progress.stage_when_possible(&api, &body).await {
                    progress.refuse(&api, refusal);
                }
                crate::signal::give_way_if_needed().await;
            }
            let mut out = Vec::new();
            match api.shard.log.wait_durable(progress.last_ticket).await {
                Ok(()) => api.acknowledge(manner, &mut out, &progress.finish().acks),
                Err(refusal) => api.problem(&mut out, manner, &api.refusal(refusal)),
            }
            (out, Fill::End)
        })
    }

    fn acknowledge(&self, manner: Manner, out: &mut Vec<u8>, acks: &[u8]) {
        let mut answer = self.answer(out, Status::OK, manner);
        answer.lines("Content-Type: application/json\r\nCache-Control: no-store\r\n");
        answer.body(acks);
    }
}

impl Progress {
    fn new(id: StreamId, memory: BatchMemory) -> Self {
        let BatchMemory { run, acks, scratch, frame_lengths } = memory;
        Self { id, next: 0, run, acks: AckWriter::new(acks), last_ticket: 0, scratch, frame_lengths }
    }

    /// Ends it: the memory holds the acknowledgements.
    fn finish(self) -> BatchMemory {
        let Self { run, acks, scratch, frame_lengths, .. } = self;
        BatchMemory { run, acks: acks.finish(), scratch, frame_lengths }
    }

    /// Takes frames into a run until the body ends, or a frame fails, or the run is as large as an entry may be. A frame
    /// that fails is acknowledged once the run before it is staged: then the next call meets it first.
    /// `false`: nothing is left to stage.
    fn gather(&mut self, api: &Api, body: &[u8]) -> bool {
        self.run.clear();
        let entry_max = api.shard.log.payload_max();
        while self.next < body.len() {
            let (start, end) = frame_at(body, self.next);
            let judged = self.judge(api, body, start, end);
            match judged {
                Ok((bytes, records)) => {
                    self.run.add(bytes, records);
                    if self.run.entry_bytes() > entry_max && self.run.frames.len() > 1 {
                        self.run.take_back(bytes, records);
                        return true;
                    }
                    self.next = end;
                    if self.run.entry_bytes() > entry_max {
                        return true;
                    }
                }
                Err(_) if !self.run.frames.is_empty() => return true,
                Err(problem) => {
                    self.next = end;
                    self.acknowledge_failure(api, &problem);
                }
            }
        }
        !self.run.frames.is_empty()
    }

    /// A frame as the stream stands now: its canonical bytes and the number of its records, or why it fails.
    fn judge(&mut self, api: &Api, body: &[u8], start: usize, end: usize) -> Result<(Bytes, usize), Problem> {
        let table = api.shard.table.borrow();
        let stream =
            table.get(self.id).filter(|stream| stream.deleted_ticket.is_none()).ok_or(STREAM_NOT_FOUND)?;
        if stream.staged.closed {
            return Err(Problem::fixed(Code::StreamClosed, "the stream is closed"));
        }
        if !stream.is_json() {
            self.run.lengths.push((end - start) as u32);
            return Ok((Bytes::Body { start, end }, 1));
        }
        let frame = &body[start..end];
        let canonical = json::split(frame, &mut self.scratch, &mut self.frame_lengths, AllowEmpty::No)?;
        let records = self.frame_lengths.len();
        let judged = Canonical::records(canonical, &self.frame_lengths);
        large::fits_whole(api, META_BYTES + judged.lengths_bytes(), judged)?;
        self.run.lengths.extend_from_slice(&self.frame_lengths);
        // Compact JSON is used where it lies; anything else was rewritten to scratch memory that the next frame needs.
        let inside = canonical.as_ptr().addr().wrapping_sub(body.as_ptr().addr());
        if inside < body.len() {
            return Ok((Bytes::Body { start: inside, end: inside + canonical.len() }, records));
        }
        let start = self.run.rewritten.len();
        self.run.rewritten.extend_from_slice(canonical);
        Ok((Bytes::Rewritten { start, end: self.run.rewritten.len() }, records))
    }

    /// Stages the run, for which there is room, and acknowledges its frames.
    fn stage(&mut self, api: &Api, body: &[u8]) {
        if self.run.frames.is_empty() {
            return;
        }
        let (tail, is_json) = self.tail(api);
        let event = appended_event(
            self.id,
            &CONTROLS,
            tail.bytes,
            self.run.lengths(),
            Payload::Here(Default::default()),
        );
        let run = &self.run;
        let stamp = api.shard.stage_append(self.id, event, run.stored_bytes, |payload| {
            for piece in &run.pieces {
                payload.put(run.bytes(*piece, body));
                if is_json {
                    payload.put(b",");
                }
            }
        });
        self.acknowledge_run(tail.bytes, tail.records, is_json, stamp.ticket);
    }

    /// Stages the run once there is room; a single frame that is larger than a commit goes ahead in parts.
    async fn stage_when_possible(&mut self, api: &Api, body: &[u8]) -> Result<(), Refusal> {
        if self.run.frames.is_empty() {
            return Ok(());
        }
        if self.run.entry_bytes() <= api.shard.log.payload_max() {
            large::wait_for_room(api, self.run.entry_bytes() - self.run.stored_bytes, self.run.stored_bytes)
                .await?;
            // The stream may have closed or gone while this waited: the frames are judged again as it stands now.
            self.stage_if_open(api, body);
            return Ok(());
        }
        let (_, is_json) = self.tail(api);
        let bytes = self.run.bytes(self.run.pieces[0], body);
        let canonical = Canonical { bytes, separator: is_json, lengths: self.run.lengths() };
        let owned = large::Owned::of(canonical);
        let staged = large::stage_parts(api, self.id.lineage, &owned).await?;
        large::wait_for_room(api, META_BYTES + owned.meta_bytes(), 0).await?;
        if !self.is_open(api) {
            self.stage_if_open(api, body);
            return Ok(());
        }
        let (tail, is_json) = self.tail(api);
        let event =
            appended_event(self.id, &CONTROLS, tail.bytes, owned.lengths(), Payload::Parts(&staged.parts));
        let stamp = api.shard.stage_append(self.id, event, 0, |_| {});
        staged.named(stamp.ticket);
        self.acknowledge_run(tail.bytes, tail.records, is_json, stamp.ticket);
        Ok(())
    }

    fn is_open(&self, api: &Api) -> bool {
        let table = api.shard.table.borrow();
        let stream = table.get(self.id).filter(|stream| stream.deleted_ticket.is_none());
        stream.is_some_and(|stream| !stream.staged.closed)
    }

    fn stage_if_open(&mut self, api: &Api, body: &[u8]) {
        if self.is_open(api) {
            return self.stage(api, body);
        }
        let problem = match api.shard.table.borrow().get(self.id) {
            Some(stream) if stream.deleted_ticket.is_none() => {
                Problem::fixed(Code::StreamClosed, "the stream is closed")
            }
            _ => STREAM_NOT_FOUND,
        };
        for _ in 0..self.run.frames.len() {
            self.acknowledge_failure(api, &problem);
        }
        self.run.clear();
    }

    fn tail(&self, api: &Api) -> (crate::shard::stream::End, bool) {
        let table = api.shard.table.borrow();
        let stream = table.get(self.id);
        stream.map_or((Default::default(), false), |stream| (stream.staged, stream.is_json()))
    }

    fn acknowledge_run(&mut self, start: u64, first_record: u64, is_json: bool, ticket: u64) {
        self.last_ticket = self.last_ticket.max(ticket);
        let (mut end, mut record) = (start, first_record);
        for (records, bytes) in self.run.frames.drain(..) {
            end += u64::from(bytes);
            let next = record + u64::from(records);
            self.acks.push(&Ack::appended(end, is_json.then_some((record, next))));
            record = next;
        }
    }

    fn acknowledge_failure(&mut self, api: &Api, problem: &Problem) {
        let table = api.shard.table.borrow();
        let stream = table.get(self.id);
        // What the answer says of the tail must be durable when it leaves.
        self.last_ticket = self.last_ticket.max(stream.map_or(0, |stream| stream.last_ticket));
        let next_offset = stream.map(|stream| stream.staged.bytes);
        let closed = stream.is_some_and(|stream| stream.staged.closed);
        self.acks.push(&Ack { next_offset, records: None, closed, problem: Some(problem) });
    }

    /// The log takes no more: the frames of the run fail, and the rest with them.
    fn refuse(&mut self, api: &Api, refusal: Refusal) {
        let problem = api.refusal(refusal);
        for _ in 0..self.run.frames.len() {
            self.acknowledge_failure(api, &problem);
        }
        self.run.clear();
    }
}

impl Run {
    fn add(&mut self, bytes: Bytes, records: usize) {
        let from = self.lengths.len() - records;
        let stored: u32 = self.lengths[from..].iter().sum();
        self.pieces.push(bytes);
        self.frames.push((records as u32, stored));
        self.stored_bytes += stored as usize;
    }

    fn take_back(&mut self, bytes: Bytes, records: usize) {
        self.pieces.pop();
        let (_, stored) = self.frames.pop().expect("just added");
        self.stored_bytes -= stored as usize;
        self.lengths.truncate(self.lengths.len() - records);
        if let Bytes::Rewritten { start, .. } = bytes {
            self.rewritten.truncate(start);
        }
    }

    fn bytes<'a>(&'a self, piece: Bytes, body: &'a [u8]) -> &'a [u8] {
        match piece {
            Bytes::Body { start, end } => &body[start..end],
            Bytes::Rewritten { start, end } => &self.rewritten[start..end],
        }
    }
}

/// Acknowledgements of frames whose content type is not the stream's.
fn mismatched(body: &[u8], tail: u64) -> Vec<u8> {
    let problem = Problem::fixed(Code::ContentTypeMismatch, "the content type differs from the stream's");
    let ack = Ack { next_offset: Some(tail), records: None, closed: false, problem: Some(&problem) };
    let mut acks = AckWriter::new(Vec::new());
    batch::frames(body).expect("checked before").for_each(|_| acks.push(&ack));
    acks.finish()
}

/// Where the payload of the frame at `at` begins and ends; the framing was checked before.
fn frame_at(body: &[u8], at: usize) -> (usize, usize) {
    let (prefix, _) = body[at..].split_first_chunk().expect("a checked batch");
    let start = at + prefix.len();
    (start, start + u32::from_be_bytes(*prefix) as usize)
}
