//! `PUT {stream}/retention/{offset}` and `?record=`: what a snapshot covers may go (extension 2.2, 6.10; decisions 10, 20).

use crate::http::Status;
use crate::http::service::{Step, Wait};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::query::StartArg;
use crate::shard::DELETE_META_BYTES;
use crate::shard::stream::{Start, Stream};
use crate::shard::table::{StreamId, Target};
use crate::storage::event::Event;
use crate::storage::log::{Class, Room};

use super::boundary::{self, Position};
use super::publish::conflict_headers;
use super::{Api, Named, Request};

impl Api {
    /// Serves a retention.
    pub fn retain(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        segment: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Step {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let boundary = match boundary::parse(segment, request.head.query) {
            Ok(boundary) => boundary,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        match self.new_first(stream, boundary) {
            Ok(first) if first == stream.firsts().staged => {}
            Ok(first) => {
                drop(table);
                match self.shard.room(DELETE_META_BYTES, 0, Class::Control) {
                    Room::Now => {}
                    Room::Later => return Step::Again(Wait::Room),
                    Room::Refused(refusal) => return self.fail(request, out, &self.refusal(refusal)),
                }
                let Start { bytes: offset, records: record } = first;
                self.shard.stage(&Event::Retained { lineage: id.lineage, offset, record }, Target::Known(id));
            }
            Err(problem) => {
                self.problem_with(out, request.manner, &problem, |answer| {
                    if problem.status() == 409 {
                        conflict_headers(answer, stream);
                    }
                });
                return Step::After(stream.last_ticket);
            }
        }
        self.retained(request, id, out)
    }

    /// Where the stream is to begin, if it may (decision 20).
    fn new_first(&self, stream: &Stream, named: StartArg) -> Result<Start, Problem> {
        let first = stream.firsts().staged;
        let snapshot = stream.snapshot().staged;
        match (snapshot, boundary::locate(stream, named, &self.shard.lineages)?) {
            (_, Position::At(at)) if at == first.bytes => Ok(first),
            (_, Position::Before) => {
                let message =
                    format!("the stream begins at {} already: retention never moves back", first.bytes);
                Err(Problem::new(Code::RetentionBackward, message))
            }
            (None, _) => {
                let message = "the stream has no snapshot: publish one at this offset, or a later one, first";
                Err(Problem::fixed(Code::RetentionWithoutSnapshot, message))
            }
            (Some(snapshot), Position::At(at)) if at <= snapshot.offset => boundary::aligned(stream, at),
            (Some(snapshot), _) => {
                let message = format!("only what the snapshot at {} covers may go", snapshot.offset);
                Err(Problem::new(Code::RetentionBeyondSnapshot, message))
            }
        }
    }

    fn retained(&self, request: &Request<'_>, id: StreamId, out: &mut Vec<u8>) -> Step {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found by the caller");
        let mut answer = self.answer(out, Status::NO_CONTENT, request.manner);
        boundary::retained_headers(&mut answer, stream);
        answer.no_body();
        Step::After(stream.last_ticket)
    }
}
