//! `GET {stream}?live=long-poll` (base protocol 5.7; extension 6.9; decisions 25, 28): one answer, as soon as there is something to say.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::http::service::{Fill, Service, Source, Step};
use crate::http::{Answer, Status};
use crate::protocol::cursor;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::query::ReadQuery;
use crate::shard::table::StreamId;
use crate::shard::{self, Attached};

use super::answer::{Manner, STREAM_NOT_FOUND, end_headers, retained_headers};
use super::range;
use super::read::{Page, Wanted};
use super::start::OFFSET_TRIMMED;
use super::{Api, Request};
use crate::limits;

/// A long-poll that waits.
struct LongPoll {
    api: Api,
    manner: Manner,
    attached: Attached,
    wanted: Wanted,
    cursor: Option<u64>,
    deadline_ms: u64,
    /// The answer, being read from disk.
    reading: Option<Pin<Box<dyn Future<Output = Vec<u8>>>>>,
}

impl Api {
    /// Serves a long-poll: at once if there is data or the stream is closed.
    pub fn long_poll(
        &self,
        request: &Request<'_>,
        id: StreamId,
        query: &ReadQuery,
        wanted: Wanted,
        out: &mut Vec<u8>,
    ) -> Step {
        let attached = match self.attach_reader(id) {
            Ok(attached) => attached,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let mut poll = LongPoll {
            api: self.clone(),
            manner: request.manner,
            attached,
            wanted,
            cursor: query.cursor,
            deadline_ms: shard::now_ms() + self.shard.config.long_poll_timeout_ms,
            reading: None,
        };
        match poll.look(out) {
            Some(()) => Step::Done,
            None => Step::Later(Box::new(poll)),
        }
    }

    /// Attaches a live reader to a stream that the caller has found, if the shard may have one more.
    pub fn attach_reader(&self, id: StreamId) -> Result<Attached, Problem> {
        if self.shard.readers.count() >= limits::LIVE_READERS_MAX {
            return Err(TOO_MANY_READERS);
        }
        Ok(self.shard.attach(id).expect("found by the caller"))
    }

    /// The cursor of a live answer.
    pub fn next_cursor(&self, client: Option<u64>) -> u64 {
        cursor::next(self.now_ms(), client, jitter)
    }
}

/// The shard has as many live readers as it may.
const TOO_MANY_READERS: Problem =
    Problem::fixed(Code::TooManyReaders, "the server has as many live readers as it may; try again later");

/// Jitter needs no quality, only variety: the low bits of the clock have it.
fn jitter() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::from(since.subsec_nanos()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32)
}

impl LongPoll {
    /// Writes the answer if there is one now; starts the read from disk if it needs one.
    fn look(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let api = self.api.clone();
        let id = self.attached.stream;
        let table = api.shard.table.borrow();
        let Some(stream) = table.get(id) else {
            api.problem(out, self.manner, &STREAM_NOT_FOUND);
            return Some(());
        };
        let from = self.wanted.from.bytes;
        if from < stream.first().bytes {
            // Retention went past the reader while it waited.
            let headers = |answer: &mut Answer<'_>| retained_headers(answer, stream);
            api.problem_with(out, self.manner, &OFFSET_TRIMMED, headers);
            return Some(());
        }
        if stream.durable.bytes > from {
            let mut page = Page::of(id, stream, self.wanted, api.shard.config.read_page_bytes);
            page.cursor = Some(api.next_cursor(self.cursor));
            let begin = out.len();
            if api.page_from_memory(self.manner, stream, &page, out) {
                return Some(());
            }
            out.truncate(begin);
            let pieces = range::pieces(&api.shard, stream, from, page.to.bytes);
            let (api, manner) = (api.clone(), self.manner);
            let reading = async move { api.page_from_disk(manner, page, &pieces, false).await };
            self.reading = Some(Box::pin(reading));
            return None;
        }
        if stream.durable.closed || shard::now_ms() >= self.deadline_ms || api.shard.stopping() {
            let mut answer = api.answer(out, Status::NO_CONTENT, self.manner);
            end_headers(&mut answer, id.lineage, stream.durable);
            self.wanted.empty_headers(&mut answer, stream);
            answer.lines("Stream-Up-To-Date: true\r\nCache-Control: no-store\r\n");
            answer.header_u64("Stream-Cursor", api.next_cursor(self.cursor));
            answer.no_body();
            return Some(());
        }
        None
    }
}

impl Source for LongPoll {
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill> {
        loop {
            if let Some(reading) = &mut self.reading {
                return reading.as_mut().poll(context).map(|answer| {
                    out.extend_from_slice(&answer);
                    Fill::End
                });
            }
            if self.look(out).is_some() {
                return Poll::Ready(Fill::End);
            }
            if self.reading.is_none() {
                self.api.shard.readers.park(self.attached.slot, context, self.deadline_ms);
                return Poll::Pending;
            }
        }
    }

    fn ends_with_peer(&self) -> bool {
        true
    }
}
