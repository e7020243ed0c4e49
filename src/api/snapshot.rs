//! `{stream}/snapshot`: the latest snapshot, its bytes, and why it cannot be deleted (extension 2.3 to 2.6).
//!
//! Reads see the durable snapshot. Its bytes go from disk to the socket slice by slice.

use std::rc::Rc;

use crate::http::service::{Fill, Slices, Step, sliced};
use crate::http::{Answer, Method, Status};
use crate::limits;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::{digest, names, offset};
use crate::shard::stream::{Snapshot, Stream};
use crate::shard::table::StreamId;
use crate::storage::event::Part;
use crate::storage::log::{Held, Log, Piece};

use super::answer::Manner;
use super::boundary::{self, offset_in, parse_offset};
use super::{Api, Named, Request, read, scheme};

/// There is no snapshot to read.
const NO_SNAPSHOT: Problem = Problem::fixed(Code::SnapshotNotFound, "the stream has no snapshot");
/// There is none at this offset.
const NO_SUCH_SNAPSHOT: Problem = Problem::fixed(
    Code::SnapshotNotFound,
    "there is no snapshot at this offset, or a later one has taken its place: ask {stream}/snapshot for it",
);

impl Api {
    /// Serves `GET {stream}/snapshot`: the way to the latest one.
    pub fn latest_snapshot(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_durable(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let Some(snapshot) = stream.snapshot().durable else { return self.fail(request, out, &NO_SNAPSHOT) };
        let mut answer = self.answer(out, Status::TEMPORARY_REDIRECT, request.manner);
        answer.header_with("Location", |url| {
            let (scheme, host) = (scheme(self, request.head), Some(request.head.authority));
            names::write_location(url, scheme, host, &named.address);
            url.extend_from_slice(b"/snapshot/");
            offset::write_token(url, id.lineage, snapshot.offset);
        });
        snapshot_headers(&mut answer, id.lineage, snapshot);
        answer.lines("Cache-Control: no-store\r\n");
        answer.no_body();
        Step::Done
    }

    /// Serves `GET {stream}/snapshot/{offset}`.
    pub fn read_snapshot(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let id = match self.find_durable(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let wanted = match parse_offset(text) {
            Ok(wanted) => wanted,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let visible = stream.snapshot().durable;
        let at = offset_in(stream, wanted, &self.shard.lineages);
        let Some(snapshot) = visible.filter(|snapshot| at == Ok(snapshot.offset)) else {
            return self.fail(request, out, &NO_SUCH_SNAPSHOT);
        };
        let mut reading = Reading {
            api: self.clone(),
            manner: request.manner,
            id,
            head: Vec::new(),
            body: Blob::of(&self.shard.log, snapshot.clone()),
            started: false,
        };
        self.snapshot_head(&mut reading.head, request.manner, stream, snapshot);
        if request.head.method == Method::Head || snapshot.parts.is_empty() {
            out.extend_from_slice(&reading.head);
            return Step::Done;
        }
        sliced(reading)
    }

    /// The head of an answer that is a snapshot.
    fn snapshot_head(&self, out: &mut Vec<u8>, manner: Manner, stream: &Stream, snapshot: &Snapshot) {
        let mut answer = self.answer(out, Status::OK, manner);
        answer.header("Content-Type", &snapshot.content_type);
        snapshot_headers(&mut answer, stream.lineage, snapshot);
        // What follows the snapshot begins where it stands (decision 19), by offset and by record.
        answer.token("Stream-Next-Offset", stream.lineage, snapshot.offset);
        if stream.is_json() {
            answer.header_u64("Stream-Record-First", stream.first().records);
            answer.header_u64("Stream-Record-Next", snapshot.record);
        }
        if snapshot.offset == stream.durable.bytes {
            answer.lines("Stream-Up-To-Date: true\r\n");
        }
        answer.lines("Cache-Control: no-store\r\n");
        answer.length_then(snapshot.body_bytes());
    }

    /// Serves `DELETE {stream}/snapshot/{offset}`: the visible snapshot stays, and there is no other.
    pub fn delete_snapshot(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let wanted = match parse_offset(text) {
            Ok(wanted) => wanted,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let at = offset_in(stream, wanted, &self.shard.lineages);
        match stream.snapshot().staged.filter(|snapshot| at == Ok(snapshot.offset)) {
            Some(snapshot) => {
                let problem = Problem::fixed(
                    Code::SnapshotRequired,
                    "this is the latest snapshot, without which a bootstrap would be incomplete: \
                     it goes when a later one is published",
                );
                self.problem_with(out, request.manner, &problem, |answer| {
                    snapshot_headers(answer, id.lineage, snapshot);
                    boundary::record_headers(answer, stream, stream.staged.records);
                });
            }
            None => self.problem(out, request.manner, &NO_SUCH_SNAPSHOT),
        }
        Step::After(stream.last_ticket)
    }
}

/// Adds the headers that name a snapshot (extension 2.4).
pub fn snapshot_headers(answer: &mut Answer<'_>, lineage: u64, snapshot: &Snapshot) {
    answer.token("Stream-Snapshot-Offset", lineage, snapshot.offset);
    answer.header("Stream-Snapshot-Digest", &digest::hex(&snapshot.digest));
}

/// The bytes of a snapshot, to be read slice by slice. They stay readable when another snapshot takes its place.
pub struct Blob {
    snapshot: Rc<Snapshot>,
    /// All of it, so that it stays readable wherever its bytes are moved to meanwhile.
    held: Held,
    /// The part that the next slice lies in, and where in it.
    part: usize,
    from: u32,
}

impl Blob {
    /// From the first byte on.
    pub fn of(log: &Log, snapshot: Rc<Snapshot>) -> Self {
        let whole = |part: &Part| Piece { place: part.place, extent_len: part.len, from: 0, len: part.len };
        let held = log.hold(snapshot.parts.iter().map(whole).collect());
        Self { snapshot, held, part: 0, from: 0 }
    }

    /// Whether all slices were taken.
    pub fn is_taken(&self) -> bool {
        self.part == self.snapshot.parts.len()
    }
}

impl Iterator for Blob {
    type Item = Held;

    /// Where the next slice lies.
    fn next(&mut self) -> Option<Held> {
        let part = self.snapshot.parts.get(self.part)?;
        let from = self.from;
        let len = (part.len - from).min(limits::SLICE_BYTES_MAX as u32);
        self.from += len;
        if self.from == part.len {
            (self.part, self.from) = (self.part + 1, 0);
        }
        Some(self.held.of(vec![Piece { place: part.place, extent_len: part.len, from, len }]))
    }
}

/// A snapshot on its way to a client.
struct Reading {
    api: Api,
    manner: Manner,
    id: StreamId,
    /// The head of the answer, sent with the first slice: an answer that cannot begin can still say so.
    head: Vec<u8>,
    body: Blob,
    started: bool,
}

impl Slices for Reading {
    async fn next(&mut self, out: &mut Vec<u8>) -> Fill {
        let piece = self.body.next().expect("a snapshot with a body has a slice, and its last one ends it");
        out.append(&mut self.head);
        if let Err(error) = self.api.shard.log.read(&piece, out).await {
            let problem = read::failed(&self.api, self.id, &error);
            if self.started {
                // The length is long sent: only the end of the connection says that this is not the whole.
                return Fill::Close;
            }
            out.clear();
            self.api.problem(out, self.manner, &problem);
            return Fill::End;
        }
        self.started = true;
        if self.body.is_taken() { Fill::End } else { Fill::More }
    }
}
