//! `GET {stream}?live=sse` (base protocol 5.8; extension 6.9; decisions 25, 28 to 30): a stream followed as server-sent
//! events.
//!
//! A subscriber is a position, not a queue: when it is woken it looks what is durable past its position, and sends that. A
//! data event at the tail is encoded once and shared by all subscribers that stand where it begins, whether they count
//! records or not; so is a run of envelopes by all that want envelopes. A data event and its control event leave in one
//! chunk.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::http::response::{CHUNK_END, Transfer, write_chunk_head};
use crate::http::service::{Fill, Service, Source, Step};
use crate::http::{Known, Status};
use crate::limits;
use crate::protocol::envelope;
use crate::protocol::query::ReadQuery;
use crate::protocol::sse::{self, Control, Encoding, Following};
use crate::shard::stream::{EncodedEvent, End, Envelope, Kind, Start, Stream};
use crate::shard::table::StreamId;
use crate::shard::{self, Attached};
use crate::storage::log::ReadError;

use super::answer::end_headers;
use super::range;
use super::read::{View, Wanted};
use super::{Api, Request};

/// A subscriber.
struct Subscriber {
    api: Api,
    attached: Attached,
    encoding: Encoding,
    transfer: Transfer,
    /// Next byte, and record, to send.
    position: Start,
    /// Whether it counts records: control events say how far.
    by_record: bool,
    /// Whether each data event is the envelope of one record.
    in_envelopes: bool,
    /// Records that it may still be sent.
    records_left: u64,
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
    to: Start,
    bytes: Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>>>>,
}

impl Api {
    /// Serves a subscription.
    pub fn sse(
        &self,
        request: &Request<'_>,
        id: StreamId,
        query: &ReadQuery,
        wanted: Wanted,
        out: &mut Vec<u8>,
    ) -> Step {
        let encoding = {
            let table = self.shard.table.borrow();
            let stream = table.get(id).expect("found by the caller");
            let at_end = stream.durable.closed && wanted.from.bytes == stream.durable.bytes;
            if at_end && request.head.has(Known::LastEventId) {
                // 204 is what makes a browser's EventSource stop (decision 30).
                let mut answer = self.answer(out, Status::NO_CONTENT, request.manner);
                end_headers(&mut answer, id.lineage, stream.durable);
                wanted.empty_headers(&mut answer, stream);
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
        let in_envelopes = wanted.view == View::Envelopes;
        if in_envelopes {
            answer.lines(envelope::EVENT_TYPE_LINE);
        }
        let transfer = answer.stream();
        let now_ms = shard::now_ms();
        Step::Later(Box::new(Subscriber {
            api: self.clone(),
            attached,
            encoding,
            transfer,
            position: wanted.from,
            by_record: wanted.by_record,
            in_envelopes,
            records_left: wanted.records_max,
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
    /// A data event, or a run of envelopes.
    Event(EncodedEvent),
    /// Data that must be read from disk first.
    OnDisk,
    /// Nothing past its position (but perhaps an unfinished character).
    Nothing(End),
    /// The stream is gone, or no longer retained where the subscriber stands.
    Gone,
}

impl Subscriber {
    /// Looks for the next data event.
    fn look(&mut self) -> Found {
        let api = self.api.clone();
        let mut table = api.shard.table.borrow_mut();
        let stream = table.get_mut(self.attached.stream);
        let Some(stream) = stream.filter(|stream| stream.first().bytes <= self.position.bytes) else {
            return Found::Gone;
        };
        let end = stream.durable;
        if end.bytes == self.position.bytes || self.held_back == Some(end) {
            return Found::Nothing(end);
        }
        if let Some(event) = self.shared(stream) {
            return Found::Event(event.clone());
        }
        let to = self.event_end(stream);
        let mut bytes = Vec::new();
        if !range::copy_cached(&api.shard, stream, self.position.bytes, to.bytes, &mut bytes) {
            self.start_reading(stream, end, to);
            return Found::OnDisk;
        }
        let Some(event) = self.encode(stream, &bytes, to, end) else { return Found::Nothing(end) };
        // What a reader that stops early is sent is cut for it alone.
        if self.records_left == u64::MAX {
            let rare = stream.rare_mut();
            // A reader that is alone has nobody to share with.
            let kept = (rare.readers.len() > 1).then(|| event.clone());
            *(if self.in_envelopes { &mut rare.envelopes } else { &mut rare.event }) = kept;
        }
        Found::Event(event)
    }

    /// The event that another subscriber has left for those who stand where it did.
    fn shared<'s>(&self, stream: &'s Stream) -> Option<&'s EncodedEvent> {
        let rare = stream.rare.as_ref()?;
        let event = if self.in_envelopes { &rare.envelopes } else { &rare.event };
        event.as_ref().filter(|event| {
            event.from == self.position.bytes
                && event.end == stream.durable
                && event.to.records - self.position.records <= self.records_left
        })
    }

    /// Where the next data event, or run of envelopes, ends.
    fn event_end(&self, stream: &Stream) -> Start {
        let records_max = if self.in_envelopes { limits::SSE_ENVELOPES_MAX } else { u64::MAX };
        let records_max = records_max.min(self.records_left);
        range::page_end(stream, self.position, limits::SSE_EVENT_BYTES_MAX as u64, records_max)
    }

    fn start_reading(&mut self, stream: &Stream, end: End, to: Start) {
        let pieces = range::pieces(&self.api.shard, stream, self.position.bytes, to.bytes);
        let log = self.api.shard.log.clone();
        let bytes = Box::pin(async move {
            let mut bytes = Vec::new();
            log.read(&pieces, &mut bytes).await.map(|()| bytes)
        });
        self.reading = Some(Box::new(Reading { end, to, bytes }));
    }

    /// The data event of `bytes`, which lie at the position and end at `to`; `None` if they are less than a character.
    fn encode(&mut self, stream: &Stream, bytes: &[u8], to: Start, end: End) -> Option<EncodedEvent> {
        let from = self.position.bytes;
        if self.in_envelopes {
            let (bytes, envelopes) = encode_envelopes(stream, bytes, self.position, to);
            return Some(EncodedEvent { from, to, end, bytes, envelopes: Some(envelopes) });
        }
        let following = match (to.bytes == end.bytes, end.closed) {
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
        let to = Start { bytes: from + sent as u64, ..to };
        Some(EncodedEvent { from, to, end, bytes: event.into(), envelopes: None })
    }

    /// Sends a data event, or a run of envelopes, and the control event that belongs to each.
    fn send(&mut self, out: &mut Vec<u8>, event: &EncodedEvent) -> Fill {
        let mut control = Vec::with_capacity(256);
        let Some(envelopes) = &event.envelopes else {
            return self.send_one(out, &event.bytes, event.to, event.end, &mut control);
        };
        let (mut fill, mut begin) = (Fill::More, 0);
        for envelope in envelopes.iter() {
            let event_end = envelope.event_end as usize;
            let to = Start {
                bytes: self.position.bytes + u64::from(envelope.record_bytes),
                records: self.position.records + 1,
            };
            fill = self.send_one(out, &event.bytes[begin..event_end], to, event.end, &mut control);
            begin = event_end;
        }
        assert_eq!(self.position, event.to, "a run of envelopes ends where it was cut");
        fill
    }

    /// Sends a data event (or none) and the control event that belongs to it, by way of the memory `control`.
    fn send_one(
        &mut self,
        out: &mut Vec<u8>,
        event: &[u8],
        to: Start,
        end: End,
        control: &mut Vec<u8>,
    ) -> Fill {
        self.records_left -= to.records - self.position.records;
        self.position = to;
        self.started = true;
        let at_tail = to.bytes == end.bytes;
        // What is held back of a text stream (less than a character) cannot be sent: the reader has all there is.
        let up_to_date = at_tail || end.bytes - to.bytes < 4 && self.encoding == Encoding::Text;
        let closed = end.closed && at_tail;
        control.clear();
        let records = self.by_record.then(|| (self.first_record(), to.records));
        let lineage = self.attached.stream.lineage;
        let cursor = self.api.next_cursor(self.client_cursor);
        let told = Control { lineage, next_offset: to.bytes, cursor, up_to_date, closed, records };
        sse::write_control(control, &told);
        if self.transfer == Transfer::Chunked {
            write_chunk_head(out, event.len() + control.len());
        }
        out.extend_from_slice(event);
        out.extend_from_slice(control);
        if self.transfer == Transfer::Chunked {
            out.extend_from_slice(CHUNK_END);
        }
        self.keep_alive_ms = self.api.now_ms() + limits::SSE_KEEPALIVE_MS;
        if closed || self.records_left == 0 { self.finish(out) } else { Fill::More }
    }

    /// The first retained record now.
    fn first_record(&self) -> u64 {
        let table = self.api.shard.table.borrow();
        table.get(self.attached.stream).map_or(0, |stream| stream.first().records)
    }

    fn finish(&self, out: &mut Vec<u8>) -> Fill {
        self.transfer.finish(out);
        if self.transfer.closes() { Fill::Close } else { Fill::End }
    }

    /// Whether the connection has lived long enough, or the server stops. It says where it stands before it ends.
    fn is_over(&self) -> bool {
        self.started && (self.api.now_ms() >= self.ends_ms || self.api.shard.stopping())
    }

    /// Nothing to send: says so once, and keeps the connection alive. `None`: wait.
    fn idle(&mut self, out: &mut Vec<u8>, end: End) -> Option<Fill> {
        let is_end = end.closed && self.position.bytes == end.bytes;
        if !self.started || is_end {
            let position = self.position;
            return Some(self.send_one(out, b"", position, end, &mut Vec::new()));
        }
        let now_ms = self.api.now_ms();
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
                super::read::failed(&self.api, self.attached.stream, &error);
                // The status is long sent: cutting the connection is the only way to say that this is not the end.
                return Poll::Ready(Some(Fill::Close));
            }
        };
        let api = self.api.clone();
        let event = {
            let table = api.shard.table.borrow();
            // If it went meanwhile, the next look finds out.
            let stream = table.get(self.attached.stream);
            let stream = stream.filter(|stream| stream.first().bytes <= self.position.bytes);
            stream.and_then(|stream| self.encode(stream, &bytes, to, end))
        };
        Poll::Ready(event.map(|event| self.send(out, &event)))
    }
}

/// A run of envelopes of `bytes`, the records `from..to`.
fn encode_envelopes(stream: &Stream, bytes: &[u8], from: Start, to: Start) -> (Rc<[u8]>, Rc<[Envelope]>) {
    let count = (to.records - from.records) as usize;
    let mut envelopes = Vec::with_capacity(count);
    let mut events = Vec::with_capacity(bytes.len() + 64 * count);
    let lengths = stream.index.lengths_from(from.records).take(count);
    envelope::write_events(&mut events, bytes, from.records, lengths, |events, record_bytes| {
        let event_end = u32::try_from(events.len()).expect("a run of envelopes is bounded");
        envelopes.push(Envelope { event_end, record_bytes });
    });
    (events.into(), envelopes.into())
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
                Found::Event(event) => return Poll::Ready(self.send(out, &event)),
                Found::OnDisk => continue,
                Found::Gone => return Poll::Ready(self.finish(out)),
                Found::Nothing(end) => end,
            };
            if let Some(fill) = self.idle(out, end) {
                return Poll::Ready(fill);
            }
            // When the coarse clock is sure to show it: woken before, it would be parked again at once.
            let deadline_ms = self.ends_ms.min(self.keep_alive_ms) + limits::COARSE_CLOCK_MS;
            self.api.shard.readers.park(self.attached.slot, context, deadline_ms);
            return Poll::Pending;
        }
    }

    fn ends_with_peer(&self) -> bool {
        true
    }
}
