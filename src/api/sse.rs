//! `GET {stream}?live=sse` (base protocol 5.8; decisions 25, 28 to 30): a stream followed as server-sent events.
//!
//! A subscriber is a position, not a queue: when it is woken it looks what is durable past its position, and sends that. A
//! data event at the tail is encoded once and shared by all subscribers that stand where it begins. A data event and its
//! control event leave in one chunk.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::http::response::{CHUNK_END, Transfer, write_chunk_head};
use crate::http::service::{Fill, Source, Step};
use crate::http::{Known, Status};
use crate::limits;
use crate::protocol::query::ReadQuery;
use crate::protocol::sse::{self, Control, Encoding, Following};
use crate::shard::stream::{EncodedEvent, End, Kind, Stream};
use crate::shard::table::StreamId;
use crate::shard::{self, Attached};
use crate::storage::log::ReadError;

use super::answer::end_headers;
use super::range;
use super::{Api, Request};

/// A subscriber.
struct Subscriber {
    api: Api,
    attached: Attached,
    encoding: Encoding,
    transfer: Transfer,
    /// Next byte to send.
    position: u64,
    client_cursor: Option<u64>,
    /// Whether a control event was sent.
    started: bool,
    ends_ms: u64,
    keep_alive_ms: u64,
    /// The durable end up to which there is nothing to send yet: less than a character lies before it.
    held_back: Option<End>,
    reading: Option<Box<Reading>>,
}

/// Bytes of an event that is being read from disk.
struct Reading {
    end: End,
    to: u64,
    bytes: Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>>>>,
}

impl Api {
    /// Serves a subscription.
    pub fn sse(
        &self,
        request: &Request<'_>,
        id: StreamId,
        query: &ReadQuery,
        from: u64,
        out: &mut Vec<u8>,
    ) -> Step {
        let encoding = {
            let table = self.shard.table.borrow();
            let stream = table.get(id).expect("found by the caller");
            let at_end = stream.durable.closed && from == stream.durable.bytes;
            if at_end && request.head.has(Known::LastEventId) {
                // 204 is what makes a browser's EventSource stop (decision 30).
                let mut answer = self.answer(out, Status::NO_CONTENT, request.manner);
                end_headers(&mut answer, id.lineage, stream.durable);
                answer.lines("Stream-Up-To-Date: true\r\nCache-Control: no-store\r\n");
                answer.no_body();
                return Step::Done;
            }
            match stream.content_type.kind {
                Kind::Json => Encoding::Json,
                Kind::Text => Encoding::Text,
                Kind::Binary => Encoding::Base64,
            }
        };
        let attached = match self.attach_reader(id) {
            Ok(attached) => attached,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let mut answer = self.answer(out, Status::OK, request.manner);
        answer.header("Content-Type", sse::CONTENT_TYPE);
        answer.lines("Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
        if encoding == Encoding::Base64 {
            answer.lines("Stream-SSE-Data-Encoding: base64\r\n");
        }
        let transfer = answer.stream();
        let now_ms = shard::now_ms();
        Step::Later(Box::new(Subscriber {
            api: self.clone(),
            attached,
            encoding,
            transfer,
            position: from,
            client_cursor: query.cursor,
            started: false,
            ends_ms: now_ms + self.shard.config.sse_max_ms,
            keep_alive_ms: now_ms + limits::SSE_KEEPALIVE_MS,
            held_back: None,
            reading: None,
        }))
    }
}

/// What a subscriber finds when it looks.
enum Found {
    /// A data event, which ends at this position.
    Event(Rc<[u8]>, u64, End),
    /// Data that must be read from disk first.
    OnDisk,
    /// Nothing past its position (but perhaps an unfinished character).
    Nothing(End),
    /// The stream is gone.
    Gone,
}

impl Subscriber {
    /// Looks for the next data event.
    fn look(&mut self) -> Found {
        let api = self.api.clone();
        let mut table = api.shard.table.borrow_mut();
        let Some(stream) = table.get_mut(self.attached.stream) else { return Found::Gone };
        let end = stream.durable;
        if end.bytes == self.position || self.held_back == Some(end) {
            return Found::Nothing(end);
        }
        let shared = stream.rare.as_ref().and_then(|rare| rare.event.as_ref());
        if let Some(event) = shared.filter(|event| event.from == self.position && event.end == end) {
            return Found::Event(event.bytes.clone(), event.to, end);
        }
        let to = range::page_end(stream, self.position, limits::SSE_EVENT_BYTES_MAX as u64);
        let mut bytes = Vec::new();
        if !range::copy_cached(&api.shard, stream, self.position, to, &mut bytes) {
            self.start_reading(stream, end, to);
            return Found::OnDisk;
        }
        let Some((event, sent_to)) = self.encode(&bytes, to, end) else { return Found::Nothing(end) };
        let (from, rare) = (self.position, stream.rare_mut());
        // A reader that is alone has nobody to share with.
        rare.event =
            (rare.readers.len() > 1).then(|| EncodedEvent { from, to: sent_to, end, bytes: event.clone() });
        Found::Event(event, sent_to, end)
    }

    fn start_reading(&mut self, stream: &Stream, end: End, to: u64) {
        let pieces = range::pieces(&self.api.shard, stream, self.position, to);
        let log = self.api.shard.log.clone();
        let bytes = Box::pin(async move {
            let mut bytes = Vec::new();
            log.read(&pieces, &mut bytes).await.map(|()| bytes)
        });
        self.reading = Some(Box::new(Reading { end, to, bytes }));
    }

    /// The data event of `bytes`, which lie at the position and end at `to`; `None` if they are less than a character.
    fn encode(&mut self, bytes: &[u8], to: u64, end: End) -> Option<(Rc<[u8]>, u64)> {
        let following = match (to == end.bytes, end.closed) {
            (false, _) => Following::More,
            (true, false) => Following::Tail,
            (true, true) => Following::End,
        };
        let sent = match self.encoding {
            Encoding::Text => sse::cut(bytes, following),
            Encoding::Json | Encoding::Base64 => bytes.len(),
        };
        if sent == 0 {
            self.held_back = Some(end);
            return None;
        }
        let mut event = Vec::new();
        sse::write_data(&mut event, self.encoding, &bytes[..sent]);
        Some((event.into(), self.position + sent as u64))
    }

    /// Sends a data event (or none) and the control event that belongs to it.
    fn send(&mut self, out: &mut Vec<u8>, event: &[u8], to: u64, end: End) -> Fill {
        self.position = to;
        self.started = true;
        // What is held back of a text stream (less than a character) cannot be sent: the reader has all there is.
        let up_to_date = end.bytes - to < 4 && (to == end.bytes || self.encoding == Encoding::Text);
        let closed = end.closed && to == end.bytes;
        let cursor = self.api.next_cursor(self.client_cursor);
        let mut control = Vec::with_capacity(192);
        let lineage = self.attached.stream.lineage;
        sse::write_control(&mut control, &Control { lineage, next_offset: to, cursor, up_to_date, closed });
        if self.transfer == Transfer::Chunked {
            write_chunk_head(out, event.len() + control.len());
        }
        out.extend_from_slice(event);
        out.extend_from_slice(&control);
        if self.transfer == Transfer::Chunked {
            out.extend_from_slice(CHUNK_END);
        }
        self.keep_alive_ms = shard::now_ms() + limits::SSE_KEEPALIVE_MS;
        if closed { self.finish(out) } else { Fill::More }
    }

    fn finish(&self, out: &mut Vec<u8>) -> Fill {
        self.transfer.finish(out);
        if self.transfer.closes() { Fill::Close } else { Fill::End }
    }

    /// Whether the connection has lived long enough, or the server stops. It says where it stands before it ends.
    fn is_over(&self) -> bool {
        self.started && (shard::now_ms() >= self.ends_ms || self.api.shard.stopping())
    }

    /// Nothing to send: says so once, and keeps the connection alive. `None`: wait.
    fn idle(&mut self, out: &mut Vec<u8>, end: End) -> Option<Fill> {
        let is_end = end.closed && self.position == end.bytes;
        if !self.started || is_end {
            let position = self.position;
            return Some(self.send(out, b"", position, end));
        }
        let now_ms = shard::now_ms();
        if now_ms >= self.keep_alive_ms {
            self.keep_alive_ms = now_ms + limits::SSE_KEEPALIVE_MS;
            self.transfer.write(out, sse::KEEP_ALIVE);
            return Some(Fill::More);
        }
        None
    }

    fn poll_reading(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Fill>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let Poll::Ready(read) = reading.bytes.as_mut().poll(context) else { return Poll::Pending };
        let (to, end) = (reading.to, reading.end);
        self.reading = None;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                let (shard, lineage) = (self.api.shard.index, self.attached.stream.lineage);
                eprintln!("thalweg: shard {shard}: read of stream {lineage} failed: {error}");
                // The status is long sent: cutting the connection is the only way to say that this is not the end.
                return Poll::Ready(Some(Fill::Close));
            }
        };
        Poll::Ready(self.encode(&bytes, to, end).map(|(event, to)| self.send(out, &event, to, end)))
    }
}

impl Source for Subscriber {
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill> {
        loop {
            match self.poll_reading(context, out) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(fill)) => return Poll::Ready(fill),
                Poll::Ready(None) => {}
            }
            // Also while there is more to send: a reader that never catches up comes back like any other.
            if self.is_over() {
                return Poll::Ready(self.finish(out));
            }
            let end = match self.look() {
                Found::Event(event, to, end) => return Poll::Ready(self.send(out, &event, to, end)),
                Found::OnDisk => continue,
                Found::Gone => return Poll::Ready(self.finish(out)),
                Found::Nothing(end) => end,
            };
            if let Some(fill) = self.idle(out, end) {
                return Poll::Ready(fill);
            }
            let deadline_ms = self.ends_ms.min(self.keep_alive_ms);
            self.api.shard.readers.park(self.attached.slot, context, deadline_ms);
            return Poll::Pending;
        }
    }

    fn ends_with_peer(&self) -> bool {
        true
    }
}
