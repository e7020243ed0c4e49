//! `GET {stream}/bootstrap`: a snapshot and every message after it, one a part (extension 3; decisions 21, 24).
//!
//! The range is fixed when the request comes: from the snapshot (or the first retained message) to the durable tail. Its
//! length is known from the index, its bytes are read and sent slice by slice. If retention goes past what is still to be
//! sent, the connection is cut: a client that sees less than `Content-Length` begins anew.

use std::cell::Cell;

use crate::http::service::{Fill, Slices, Step, sliced};
use crate::http::{Answer, Method, Status};
use crate::limits::{SLICE_BYTES_MAX, SLICE_MESSAGES_MAX};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::headers::DEFAULT_CONTENT_TYPE;
use crate::protocol::multipart::{self, Boundary, PART_END};
use crate::protocol::query;
use crate::shard::stream::{End, Start, Stream};
use crate::shard::table::StreamId;

use super::answer::{Manner, retained_records};
use super::snapshot::{Blob, snapshot_headers};
use super::{Api, Named, Request, range, read};

/// A bootstrap happens once (extension 3.1, 3.3).
const NOT_LIVE: Problem = Problem::fixed(
    Code::InvalidLive,
    "a bootstrap is not live: follow the stream from the Stream-Next-Offset that it returns",
);

/// Makes boundaries that nobody can guess: numbered ones, under a key from the system's source of randomness.
pub struct Boundaries {
    key: [u8; 32],
    next: Cell<u64>,
}

impl Boundaries {
    /// Under a new key.
    pub fn new() -> Self {
        let mut key = [0; 32];
        let source = std::fs::File::open("/dev/urandom");
        let read = source.and_then(|mut source| std::io::Read::read_exact(&mut source, &mut key));
        read.expect("the system's source of randomness can be read");
        Self { key, next: Cell::new(0) }
    }

    fn next(&self) -> Boundary {
        let number = self.next.get();
        self.next.set(number + 1);
        Boundary::new(&self.key, number)
    }
}

impl Default for Boundaries {
    fn default() -> Self {
        Self::new()
    }
}

impl Api {
    /// Serves a bootstrap.
    pub fn bootstrap(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_durable(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        if query::has_live(request.head.query) {
            return self.fail(request, out, &NOT_LIVE);
        }
        let is_head = request.head.method == Method::Head;
        if !is_head {
            self.shard.touch(id);
        }
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let sending = Sending::of(self, request.manner, id, stream);
        if is_head {
            out.extend_from_slice(&sending.head);
            return Step::Done;
        }
        drop(table);
        sliced(sending)
    }
}

/// What is sent next.
enum Next {
    /// The snapshot's bytes.
    Snapshot(Blob),
    /// Messages, or the rest of one.
    Messages,
}

/// A bootstrap on its way to a client.
struct Sending {
    api: Api,
    manner: Manner,
    id: StreamId,
    boundary: Boundary,
    /// What comes before the first byte of a body: the head of the answer and of the first part. Sent with the first slice,
    /// so that an answer that cannot begin can still say so.
    head: Vec<u8>,
    next: Next,
    content_type: Box<[u8]>,
    /// Whether each message ends in a separator, which is not sent.
    has_separators: bool,
    /// Next byte to send, and the ordinal of its message.
    at: Start,
    /// Bytes of that message that are still to be sent, once its part has begun; else 0.
    left: u32,
    end: End,
    started: bool,
}

impl Sending {
    fn of(api: &Api, manner: Manner, id: StreamId, stream: &Stream) -> Self {
        let snapshot = stream.snapshot().durable.cloned();
        let at = match &snapshot {
            Some(snapshot) => Start { bytes: snapshot.offset, records: snapshot.record },
            None => stream.first(),
        };
        let end = stream.durable;
        // Made last: what it is to differ from is written.
        let boundary = api.boundaries.next();
        let first_type = snapshot.as_ref().map_or(DEFAULT_CONTENT_TYPE, |snapshot| &snapshot.content_type);
        let messages = end.records - at.records;
        let separators = if stream.is_json() { messages } else { 0 };
        let body_bytes = multipart::part_bytes(first_type)
            + snapshot.as_ref().map_or(0, |snapshot| snapshot.body_bytes())
            + messages * multipart::part_bytes(&stream.content_type.bytes)
            + (end.bytes - at.bytes - separators)
            + multipart::END_BYTES;
        let mut head = Vec::new();
        let mut answer = api.answer(&mut head, Status::OK, manner);
        answer.header_with("Content-Type", |out| boundary.write_content_type(out));
        match &snapshot {
            Some(snapshot) => snapshot_headers(&mut answer, id.lineage, snapshot),
            None => {
                answer.lines("Stream-Snapshot-Offset: -1\r\n");
            }
        }
        end_of_range(&mut answer, stream);
        if let Some(head) = answer.length_then(body_bytes) {
            boundary.write_part_head(head, first_type);
        }
        Self {
            api: api.clone(),
            manner,
            id,
            boundary,
            head,
            next: snapshot
                .map_or(Next::Messages, |snapshot| Next::Snapshot(Blob::of(&api.shard.log, snapshot))),
            content_type: stream.content_type.bytes.clone(),
            has_separators: stream.is_json(),
            at,
            left: 0,
            end,
            started: false,
        }
    }

    /// Appends the next slice of the snapshot, or what follows it.
    async fn send_snapshot(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let Next::Snapshot(blob) = &mut self.next else { unreachable!("the snapshot comes first") };
        match blob.next() {
            Some(piece) => {
                let read = self.api.shard.log.read(&piece, out).await;
                read.map_err(|error| read::failed(&self.api, self.id, &error))
            }
            None => {
                self.next = Next::Messages;
                out.extend_from_slice(PART_END);
                Ok(())
            }
        }
    }

    /// Appends the next slice of the messages.
    async fn send_messages(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let (lengths, to, pieces) = {
            let table = self.api.shard.table.borrow();
            let stream = table.get(self.id).ok_or(super::answer::STREAM_NOT_FOUND)?;
            if stream.first().bytes > self.at.bytes {
                return Err(super::start::OFFSET_TRIMMED);
            }
            let (lengths, to) = self.slice(stream);
            (lengths, to, range::pieces(&self.api.shard, stream, self.at.bytes, to))
        };
        let mut bytes = Vec::with_capacity((to - self.at.bytes) as usize);
        let read = self.api.shard.log.read(&pieces, &mut bytes).await;
        read.map_err(|error| read::failed(&self.api, self.id, &error))?;
        self.frame(&bytes, &lengths, out);
        Ok(())
    }

    /// How far the next slice reaches, and the lengths of the messages that begin in it.
    fn slice(&self, stream: &Stream) -> (Vec<u32>, u64) {
        let limit = self.end.bytes.min(self.at.bytes + SLICE_BYTES_MAX);
        let begun = u64::from(self.left > 0);
        let mut to = self.at.bytes + u64::from(self.left);
        let mut lengths = Vec::new();
        for length in stream.index.lengths_from(self.at.records + begun) {
            if to >= limit || lengths.len() == SLICE_MESSAGES_MAX {
                break;
            }
            lengths.push(length);
            to += u64::from(length);
        }
        (lengths, to.min(limit))
    }

    /// Appends a slice's bytes with what stands between messages. `lengths` are those of messages that begin in it.
    fn frame(&mut self, mut bytes: &[u8], lengths: &[u32], out: &mut Vec<u8>) {
        out.reserve(bytes.len() + lengths.len() * multipart::part_bytes(&self.content_type) as usize);
        let mut lengths = lengths.iter();
        while !bytes.is_empty() {
            if self.left == 0 {
                self.left = *lengths.next().expect("a message begins where one ends");
                self.boundary.write_part_head(out, &self.content_type);
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.left as usize));
            bytes = rest;
            self.left -= now.len() as u32;
            self.at.bytes += now.len() as u64;
            if self.left > 0 {
                out.extend_from_slice(now);
                return;
            }
            let body = if self.has_separators { &now[..now.len() - 1] } else { now };
            out.extend_from_slice(body);
            out.extend_from_slice(PART_END);
            self.at.records += 1;
        }
    }
}

/// Adds the headers that say where the range ends: at the durable tail.
fn end_of_range(answer: &mut Answer<'_>, stream: &Stream) {
    super::answer::end_headers(answer, stream.lineage, stream.durable);
    retained_records(answer, stream);
    answer.lines("Stream-Up-To-Date: true\r\nCache-Control: no-store\r\n");
}

impl Slices for Sending {
    async fn next(&mut self, out: &mut Vec<u8>) -> Fill {
        out.append(&mut self.head);
        if let (Next::Messages, false) = (&self.next, self.started) {
            // Without a snapshot, the first part is empty.
            out.extend_from_slice(PART_END);
        }
        let sent = match self.next {
            Next::Snapshot(_) => self.send_snapshot(out).await,
            Next::Messages if self.at.bytes == self.end.bytes => {
                self.boundary.write_end(out);
                return Fill::End;
            }
            Next::Messages => self.send_messages(out).await,
        };
        match sent {
            Ok(()) => {
                self.started = true;
                Fill::More
            }
            // The length is long sent: only the end of the connection says that this is not the whole.
            Err(_) if self.started => Fill::Close,
            Err(problem) => {
                out.clear();
                self.api.problem(out, self.manner, &problem);
                Fill::End
            }
        }
    }
}
