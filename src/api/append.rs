//! `POST {stream}`: append, close, append-and-close (base protocol 5.2, 5.2.1, 5.3; decisions 7, 17, 22, 23).
//!
//! The checks run in one order, the order of decision 7, against the staged view of the stream. Whatever the answer says
//! about staged state, it leaves when that state is durable.

use std::cell::Cell;

use crate::http::pieces::Pieces;
use crate::http::service::Step;
use crate::http::{Known, Status};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::json::{self, AllowEmpty};
use crate::protocol::producer::{self, Verdict};
use crate::protocol::{digits, headers};
use crate::shard::stream::{End, Stream};
use crate::shard::table::StreamId;
use crate::storage::codec::varint_bytes;
use crate::storage::event::{Appended, Lengths, Payload, Producer};
use crate::storage::log::{Class, Room};

use super::answer::{Manner, end_headers, record_range};
use super::large::{self, LargeAppend, Owned};
use super::{Api, Named, Request, too_large};
use crate::http::service::Wait;

/// Metadata bytes of an append entry besides its variable parts, generously.
const META_BYTES: usize = 128;

/// The controls of an append, as its headers give them.
#[derive(Clone, Copy, Debug)]
pub struct Controls<'a> {
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// Producer headers.
    pub producer: Option<Producer<'a>>,
    /// `Stream-Seq`.
    pub stream_seq: Option<&'a [u8]>,
    /// `Stream-Record-Match`.
    pub record_match: Option<u64>,
    /// `Stream-Closed: true`.
    pub close: bool,
    /// Whether there is a body.
    pub has_body: bool,
}

/// Why an append is not made; each has its own headers.
#[derive(Debug)]
pub enum Rejected {
    /// An error with no more to say.
    Plain(Problem),
    /// An error; the answer says where the stream ends.
    AtEnd(Problem),
    /// The producer is fenced off; the answer names the present epoch.
    Fenced(u64),
    /// A conflict of a producer: the answer says what was expected, and where the stream ends.
    Expected(Problem, u64),
    /// It was made before: the answer repeats what was said then.
    Duplicate {
        /// First ordinal and number of records of the original.
        range: Option<(u64, u64)>,
        /// Highest accepted sequence of the epoch.
        highest_seq: u64,
    },
    /// A close of a stream that is closed.
    ClosedAlready,
}

/// A payload ready to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Canonical<'a> {
    /// Canonical bytes; of a JSON stream without the last separator.
    pub bytes: &'a [u8],
    /// Whether a separator follows.
    pub separator: bool,
    /// Records, separators included.
    pub lengths: Lengths<'a>,
}

impl<'a> Canonical<'a> {
    /// No bytes at all.
    pub const EMPTY: Canonical<'static> = Canonical { bytes: b"", separator: false, lengths: Lengths::NONE };

    /// One message of a byte stream.
    pub fn message(bytes: &'a [u8]) -> Self {
        let len = u32::try_from(bytes.len()).expect("bodies are shorter than 4 GiB");
        Self { bytes, separator: false, lengths: Lengths::Uniform { len, count: 1 } }
    }

    /// Records of a JSON stream: `bytes` without the last separator, `lengths` with all of them.
    pub fn records(bytes: &'a [u8], lengths: &'a [u32]) -> Self {
        Self { bytes, separator: !lengths.is_empty(), lengths: Self::lengths_of(lengths) }
    }

    /// Lengths in their shortest form.
    pub fn lengths_of(lengths: &[u32]) -> Lengths<'_> {
        match lengths.split_first() {
            None => Lengths::NONE,
            Some((first, rest)) if rest.iter().all(|len| len == first) => {
                Lengths::Uniform { len: *first, count: lengths.len() as u32 }
            }
            Some(_) => Lengths::Each(lengths),
        }
    }

    /// Bytes that it takes in the log.
    pub fn stored_bytes(&self) -> usize {
        self.bytes.len() + usize::from(self.separator)
    }

    /// Bytes that its lengths take in an entry, at most.
    pub fn lengths_bytes(&self) -> usize {
        lengths_bytes(self.lengths)
    }
}

/// Bytes that lengths take in an entry, at most.
pub fn lengths_bytes(lengths: Lengths<'_>) -> usize {
    match lengths {
        Lengths::Uniform { .. } => 16,
        Lengths::Each(list) => list.iter().map(|len| varint_bytes(u64::from(*len))).sum(),
    }
}

impl<'a> Controls<'a> {
    /// Reads the headers of an append; a syntax error is 400.
    pub fn parse(request: &Request<'a>) -> Result<Self, Problem> {
        let head = request.head;
        let controls = Self {
            content_type: head.get(Known::ContentType),
            producer: headers::parse_producer(
                head.get(Known::ProducerId),
                head.get(Known::ProducerEpoch),
                head.get(Known::ProducerSeq),
            )?,
            stream_seq: head.get(Known::StreamSeq).map(headers::parse_stream_seq).transpose()?,
            record_match: head.get(Known::StreamRecordMatch).map(parse_record_match).transpose()?,
            close: headers::is_true(head.get(Known::StreamClosed)),
            has_body: !request.body.is_empty() || request.pieces.is_some(),
        };
        if !controls.has_body && !controls.close {
            return Err(Problem::fixed(
                Code::EmptyBody,
                "the body is empty: an append needs data, or Stream-Closed: true",
            ));
        }
        if controls.has_body && controls.content_type.is_none() {
            return Err(Problem::fixed(
                Code::ContentTypeRequired,
                "an append with a body needs Content-Type",
            ));
        }
        Ok(controls)
    }

    /// The checks of decision 7 from the stale epoch on, short of the body itself.
    pub fn check(&self, stream: &Stream) -> Result<(), Rejected> {
        let verdict = self.producer.map(|claim| {
            let state = stream
                .producers
                .state(claim.id)
                .map(|state| producer::ProducerState { epoch: state.epoch, last_seq: state.last_seq });
            (claim, state, producer::decide(state, claim.epoch, claim.seq))
        });
        match verdict {
            Some((_, _, Verdict::StaleEpoch { current })) => return Err(Rejected::Fenced(current)),
            Some((claim, state, Verdict::Duplicate)) => {
                let range = stream.producers.range(claim.id, claim.epoch, claim.seq);
                let highest_seq = state.map_or(claim.seq, |state| state.last_seq);
                return Err(Rejected::Duplicate { range, highest_seq });
            }
            _ => {}
        }
        if stream.staged.closed {
            if !self.has_body && self.producer.is_none() {
                return Err(Rejected::ClosedAlready);
            }
            return Err(self.conflict(stream, Problem::fixed(Code::StreamClosed, "the stream is closed")));
        }
        if self.has_body
            && !self.content_type.is_some_and(|sent| headers::media_type_eq(sent, &stream.content_type.bytes))
        {
            let message = "the content type differs from the stream's";
            return Err(self.conflict(stream, Problem::fixed(Code::ContentTypeMismatch, message)));
        }
        match verdict {
            Some((_, _, Verdict::NewEpochNotZero)) => {
                let message = "a new epoch starts at Producer-Seq 0";
                return Err(Rejected::Plain(Problem::fixed(Code::InvalidEpochSeq, message)));
            }
            Some((_, _, Verdict::Gap { expected })) => {
                let problem =
                    Problem::fixed(Code::ProducerSeqGap, "a sequence number of the producer is missing");
                return Err(Rejected::Expected(problem, expected));
            }
            Some((_, None, _)) if stream.producers.len() >= crate::limits::PRODUCERS_PER_STREAM_MAX => {
                let message = "the stream remembers as many producers as it may";
                return Err(Rejected::Plain(Problem::fixed(Code::TooManyProducers, message)));
            }
            _ => {}
        }
        if self.stream_seq.is_some_and(|seq| !headers::stream_seq_grows(stream.stream_seq(), seq)) {
            let message = "Stream-Seq is not greater than the last one of the stream";
            return Err(self.conflict(stream, Problem::fixed(Code::StreamSeqConflict, message)));
        }
        match self.record_match {
            Some(_) if !stream.is_json() => Err(Rejected::Plain(Problem::fixed(
                Code::InvalidRecordMatch,
                "Stream-Record-Match is for streams of JSON records",
            ))),
            Some(expected) if expected != stream.staged.records => Err(Rejected::AtEnd(Problem::fixed(
                Code::RecordMatchFailed,
                "the record tail is not what Stream-Record-Match says",
            ))),
            _ => Ok(()),
        }
    }

    /// A 409: to a producer with what was expected of it (decision 7).
    fn conflict(&self, stream: &Stream, problem: Problem) -> Rejected {
        let Some(claim) = self.producer else { return Rejected::AtEnd(problem) };
        let expected = producer::expected_seq(stream.producers.state(claim.id), claim.epoch);
        Rejected::Expected(problem, expected)
    }

    /// Upper bound of the metadata bytes of the entry.
    pub fn meta_bytes(&self) -> usize {
        META_BYTES + self.producer.map_or(0, |claim| claim.id.len()) + self.stream_seq.map_or(0, <[u8]>::len)
    }
}

fn parse_record_match(value: &[u8]) -> Result<u64, Problem> {
    digits::parse_u64(value)
        .ok_or(Problem::fixed(Code::InvalidRecordMatch, "Stream-Record-Match is a non-negative integer"))
}

impl Api {
    /// Serves an append.
    pub fn append(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let pieces = request.pieces.map(Cell::take);
        let (body_bytes, max_bytes) =
            (pieces.as_ref().map_or(request.body.len(), Pieces::len), self.shard.config.max_body_bytes);
        if body_bytes as u64 > max_bytes {
            return self.fail(request, out, &too_large(max_bytes));
        }
        let controls = match Controls::parse(request) {
            Ok(controls) => controls,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let (checked, is_json) = {
            let table = self.shard.table.borrow();
            let stream = table.get(id).expect("found above");
            (controls.check(stream), stream.is_json())
        };
        if let Err(rejected) = checked {
            return self.reject(out, request.manner, id, &controls, &rejected);
        }
        if let Some(pieces) = pieces {
            // Its content type is the stream's, and not that of records.
            assert!(!is_json, "records that came in pieces");
            let step = LargeAppend::step(self, request.manner, id, &controls, Owned::message(pieces));
            return step.unwrap_or_else(|problem| self.fail_staged(request.manner, id, out, &problem));
        }
        if !is_json || request.body.is_empty() {
            let canonical =
                if request.body.is_empty() { Canonical::EMPTY } else { Canonical::message(request.body) };
            return self.append_canonical(request, id, &controls, canonical, out);
        }
        let scratch = &mut *self.scratch.borrow_mut();
        match json::split(request.body, &mut scratch.json, &mut scratch.lengths, AllowEmpty::No) {
            Ok(bytes) => {
                let canonical = Canonical::records(bytes, &scratch.lengths);
                self.append_canonical(request, id, &controls, canonical, out)
            }
            Err(problem) => self.fail_staged(request.manner, id, out, &problem),
        }
    }

    fn append_canonical(
        &self,
        request: &Request<'_>,
        id: StreamId,
        controls: &Controls<'_>,
        canonical: Canonical<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        let meta_bytes = controls.meta_bytes() + canonical.lengths_bytes();
        match large::fits_whole(self, meta_bytes, canonical) {
            Ok(true) => {}
            Ok(false) => {
                let step = LargeAppend::step(self, request.manner, id, controls, Owned::of(canonical));
                return step.unwrap_or_else(|problem| self.fail_staged(request.manner, id, out, &problem));
            }
            Err(problem) => return self.fail_staged(request.manner, id, out, &problem),
        }
        match self.shard.room(meta_bytes, canonical.stored_bytes(), Class::Append) {
            Room::Now => {}
            Room::Later => return Step::Again(Wait::Room),
            Room::Refused(refusal) => {
                self.problem(out, request.manner, &self.refusal(refusal));
                return Step::Done;
            }
        }
        let ticket = self.stage_canonical(id, controls, canonical);
        self.appended(out, request.manner, id, controls, canonical.lengths);
        Step::After(ticket)
    }

    /// Stages an append that fits in one entry. Room was just found for it.
    pub fn stage_canonical(&self, id: StreamId, controls: &Controls<'_>, canonical: Canonical<'_>) -> u64 {
        let start = self.shard.table.borrow().get(id).expect("checked above").staged.bytes;
        let event = appended_event(id, controls, start, canonical.lengths, Payload::Here(Default::default()));
        let stamp = self.shard.stage_append(id, event, canonical.stored_bytes(), |payload| {
            payload.put(canonical.bytes);
            if canonical.separator {
                payload.put(b",");
            }
        });
        stamp.ticket
    }

    /// Answers an append that was just staged.
    pub fn appended(
        &self,
        out: &mut Vec<u8>,
        manner: Manner,
        id: StreamId,
        controls: &Controls<'_>,
        lengths: Lengths<'_>,
    ) {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("staged above");
        // 200 tells a producer that its data is new (base protocol 5.2.1); a close alone has none.
        let is_new_data = controls.producer.is_some() && controls.has_body;
        let status = if is_new_data { Status::OK } else { Status::NO_CONTENT };
        let mut answer = self.answer(out, status, manner);
        end_headers(&mut answer, id.lineage, stream.staged);
        if stream.is_json() {
            let next = stream.staged.records;
            record_range(&mut answer, next - lengths.count(), next);
        }
        if let Some(claim) = controls.producer {
            answer.header_u64("Producer-Epoch", claim.epoch).header_u64("Producer-Seq", claim.seq);
        }
        answer.no_body();
    }

    /// Answers an append that is not made, once what the answer relies on is durable.
    pub fn reject(
        &self,
        out: &mut Vec<u8>,
        manner: Manner,
        id: StreamId,
        controls: &Controls<'_>,
        rejected: &Rejected,
    ) -> Step {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let end = stream.staged;
        match rejected {
            Rejected::Plain(problem) => self.problem(out, manner, problem),
            Rejected::AtEnd(problem) => self.problem_with(out, manner, problem, |answer| {
                end_headers(answer, id.lineage, end);
                if stream.is_json() {
                    answer.header_u64("Stream-Record-Next", end.records);
                }
            }),
            Rejected::Fenced(current) => {
                let problem =
                    Problem::fixed(Code::StaleEpoch, "the producer's epoch is older than its present one");
                self.problem_with(out, manner, &problem, |answer| {
                    answer.header_u64("Producer-Epoch", *current);
                });
            }
            Rejected::Expected(problem, expected) => self.problem_with(out, manner, problem, |answer| {
                end_headers(answer, id.lineage, end);
                let received = controls.producer.expect("a producer was rejected").seq;
                answer.header_u64("Producer-Expected-Seq", *expected);
                answer.header_u64("Producer-Received-Seq", received);
            }),
            Rejected::Duplicate { range, highest_seq } => {
                let mut answer = self.answer(out, Status::NO_CONTENT, manner);
                let (start, count) = range.unwrap_or((end.records, 0));
                let next = start + count;
                let original = End { bytes: stream.offset_of(next), records: next, closed: end.closed };
                end_headers(&mut answer, id.lineage, original);
                if stream.is_json() {
                    record_range(&mut answer, start, next);
                }
                let claim = controls.producer.expect("a producer repeats itself");
                answer.header_u64("Producer-Epoch", claim.epoch).header_u64("Producer-Seq", *highest_seq);
                answer.no_body();
            }
            Rejected::ClosedAlready => {
                let mut answer = self.answer(out, Status::NO_CONTENT, manner);
                end_headers(&mut answer, id.lineage, end);
                if stream.is_json() {
                    record_range(&mut answer, end.records, end.records);
                }
                answer.no_body();
            }
        }
        let ticket = stream.last_ticket;
        drop(table);
        // A repetition, or a close of what is closed, is a use like any other.
        if matches!(rejected, Rejected::Duplicate { .. } | Rejected::ClosedAlready) {
            self.shard.touch(id);
        }
        Step::After(ticket)
    }

    /// Answers with an error that the state of the stream led to.
    pub fn fail_staged(&self, manner: Manner, id: StreamId, out: &mut Vec<u8>, problem: &Problem) -> Step {
        self.problem(out, manner, problem);
        let table = self.shard.table.borrow();
        table.get(id).map_or(Step::Done, |stream| Step::After(stream.last_ticket))
    }
}

/// The event of an append.
pub fn appended_event<'a>(
    id: StreamId,
    controls: &Controls<'a>,
    start: u64,
    lengths: Lengths<'a>,
    payload: Payload<'a>,
) -> Appended<'a> {
    Appended {
        lineage: id.lineage,
        start,
        lengths,
        producer: controls.producer,
        stream_seq: controls.stream_seq,
        closed: controls.close,
        payload,
    }
}
