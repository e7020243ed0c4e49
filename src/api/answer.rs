//! What the answers of all operations have in common: the manner that a request lays down, errors, and the headers that
//! describe a stream.

use crate::http::cors;
use crate::http::{Answer, Head, Known, Status, Terms};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::records;
use crate::shard::stream::{End, Stream};

use super::Api;

/// How a request wants its answer, apart from what it is about. Small and free of borrows, so that answers that come
/// later can carry it.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    terms: Terms,
    has_origin: bool,
    reads: bool,
    /// Whether the answer is about a stream with record coordinates.
    has_records: bool,
}

impl Manner {
    /// The manner of a request.
    pub fn of(head: &Head<'_>, stopping: bool) -> Self {
        let mut terms = head.terms();
        terms.keep_alive &= !stopping;
        let reads = matches!(head.method, crate::http::Method::Get | crate::http::Method::Head);
        Self { terms, has_origin: head.has(Known::Origin), reads, has_records: false }
    }

    /// The manner of answers about this stream: they name the extensions that are active there.
    pub fn about(self, stream: &Stream) -> Self {
        Self { has_records: stream.is_json(), ..self }
    }
}

impl Api {
    /// Begins an answer.
    pub fn answer<'o>(&self, out: &'o mut Vec<u8>, status: Status, manner: Manner) -> Answer<'o> {
        let mut answer = Answer::new(out, status, &self.common.borrow(), manner.terms);
        // Reads may be cached and then served to a page of any origin; other answers concern their requester alone.
        if manner.reads || manner.has_origin {
            answer.lines(cors::EXPOSE);
        }
        if manner.has_records {
            answer.lines(records::EXTENSIONS_LINE);
        }
        answer
    }

    /// Answers with an error.
    pub fn problem(&self, out: &mut Vec<u8>, manner: Manner, problem: &Problem) {
        self.problem_with(out, manner, problem, |_| {});
    }

    /// Answers with an error that carries further headers.
    pub fn problem_with(
        &self,
        out: &mut Vec<u8>,
        manner: Manner,
        problem: &Problem,
        headers: impl FnOnce(&mut Answer<'_>),
    ) {
        // Nothing is active on a stream that went meanwhile.
        let has_records = manner.has_records && problem.code != Code::StreamNotFound;
        let manner = Manner { has_records, ..manner };
        let mut answer = self.answer(out, Status::of(problem.status()), manner);
        headers(&mut answer);
        answer.problem(problem);
    }

    /// The problem of a shard that takes no writes.
    pub fn refusal(&self, refusal: crate::storage::log::Refusal) -> Problem {
        use crate::storage::log::Refusal;
        match refusal {
            Refusal::Latched => Problem::fixed(
                Code::ShardLatched,
                "a write to disk failed; this shard takes no more writes until the server is restarted",
            ),
            Refusal::DiskFull => Problem::fixed(
                Code::DiskFull,
                "the disk is full: delete streams or make room, then try again",
            ),
        }
    }
}

/// Adds the headers that say where a stream ends.
pub fn end_headers(answer: &mut Answer<'_>, lineage: u64, end: End) {
    answer.token("Stream-Next-Offset", lineage, end.bytes);
    if end.closed {
        answer.lines("Stream-Closed: true\r\n");
    }
}

/// Adds the range of records that an operation made or shows (extension 6.3, 6.7).
pub fn record_range(answer: &mut Answer<'_>, start: u64, next: u64) {
    answer.header_u64("Stream-Record-Start", start).header_u64("Stream-Record-Next", next);
}

/// Adds the headers that say which records of a stream can be read (extension 6.5); none to a byte stream.
pub fn retained_records(answer: &mut Answer<'_>, stream: &Stream) {
    if stream.is_json() {
        answer.header_u64("Stream-Record-First", stream.first().records);
        answer.header_u64("Stream-Record-Next", stream.durable.records);
    }
}

/// Adds the headers by which a reader of what is no longer retained goes on (decision 10).
pub fn retained_headers(answer: &mut Answer<'_>, stream: &Stream) {
    answer.token("Stream-Next-Offset", stream.lineage, stream.first().bytes);
    retained_records(answer, stream);
}

/// The problem of a stream that is not there.
pub const STREAM_NOT_FOUND: Problem = Problem::fixed(Code::StreamNotFound, "the stream does not exist");

/// The problem of a bucket that is not there.
pub const BUCKET_NOT_FOUND: Problem =
    Problem::fixed(Code::BucketNotFound, "the bucket does not exist: create it with PUT /{bucket}");
