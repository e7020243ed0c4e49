//! `PUT {stream}/snapshot/{offset}` and `?record=`: publishes a snapshot (extension 2.2; decisions 17 to 19).
//!
//! The body arrives in pieces. Its digest is computed, and its bytes go into the log as chunk entries, a bit at a time with
//! other work in between; one final entry, checked anew, publishes them. Chunks that no entry publishes are garbage.

use crate::http::pieces::Pieces;
use crate::http::service::{Admit, OneShot, Step};
use crate::http::turn::Turn;
use crate::http::{Framing, Known, Status};
use crate::protocol::digest::{self, DIGEST_BYTES, Digester};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::headers;
use crate::protocol::query::StartArg;
use crate::shard::Found;
use crate::shard::stream::{Start, Stream};
use crate::shard::table::{StreamId, Target};
use crate::storage::codec::meta_bytes_max;
use crate::storage::event::{Event, SnapshotPublished};

use super::answer::{Manner, STREAM_NOT_FOUND, end_headers};
use super::boundary::{self, Position};
use super::large::{self, StagedParts};
use super::snapshot::snapshot_headers;
use super::start::OFFSET_TRIMMED;
use super::{Api, Named, Request, too_large};

/// Metadata bytes of the final entry besides its content type and parts, generously.
const META_BYTES: usize = 160;

/// A snapshot to be published.
struct Publication {
    manner: Manner,
    id: StreamId,
    named: StartArg,
    content_type: Vec<u8>,
    /// `Stream-Snapshot-Match`.
    expected: Option<Vec<u8>>,
}

/// What the checks have come to.
enum Judged {
    /// It may be published here.
    Fresh(Start),
    /// It is the visible snapshot.
    Repeated,
    /// It stands where the visible one does: whether it is the same is for its digest to say.
    SameOffset,
}

impl Api {
    /// Serves a publication.
    pub fn publish_snapshot(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        segment: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Step {
        let publication = match self.publication(request, named, segment, out) {
            Ok(publication) => publication,
            Err(ticket) => return Step::After(ticket),
        };
        let body = match request.pieces {
            Some(pieces) => pieces.take(),
            None => Pieces::of(request.body),
        };
        if let Err(problem) = self.publication_fits(&publication, body.len()) {
            return self.fail_staged(publication.manner, publication.id, out, &problem);
        }
        let (api, manner) = (self.clone(), publication.manner);
        OneShot::step(async move {
            let mut out = Vec::new();
            let step = publication.run(&api, body, &mut out).await;
            large::settle(&api, manner, step, out).await
        })
    }

    /// Judges a publication before its body is read. Too large comes last (decision 19).
    pub fn admit_snapshot(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        segment: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Admit {
        let max_bytes = self.shard.config.max_snapshot_bytes;
        let admitted = Admit::Body { max_bytes, in_pieces: true };
        // One that is not too large is judged when it is there, and its connection lives on.
        let may_be_too_large = match request.head.framing {
            Framing::Length(length) => length > max_bytes,
            _ => true,
        };
        let is_there = self.shard.find(named.hash, named.address.key) != Found::Missing;
        if is_there && !may_be_too_large {
            return admitted;
        }
        match self.publication(request, named, segment, out) {
            Err(ticket) => Admit::Refused(ticket),
            Ok(_) if request.head.framing == Framing::Chunked => admitted,
            Ok(publication) => {
                let problem = too_large(max_bytes);
                match self.fail_staged(publication.manner, publication.id, out, &problem) {
                    Step::After(ticket) => Admit::Refused(ticket),
                    _ => Admit::Refused(0),
                }
            }
        }
    }

    /// The publication that a request asks for, as far as its head can be judged. Otherwise the answer is in `out`, true once
    /// the ticket is durable.
    fn publication(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        segment: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<Publication, u64> {
        let id = match self.find_staged(named) {
            Ok(id) => id,
            Err(missing) => {
                let step = self.answer_404(request, named, out, missing);
                return Err(if let Step::After(ticket) = step { ticket } else { 0 });
            }
        };
        let request = &self.about(request, id);
        let head = request.head;
        let parsed = boundary::parse(segment, head.query)
            .and_then(|named| Ok((named, headers::parse_content_type(head.get(Known::ContentType))?)));
        let (named, content_type) = match parsed {
            Ok(parsed) => parsed,
            Err(problem) => {
                self.problem(out, request.manner, &problem);
                return Err(0);
            }
        };
        let publication = Publication {
            manner: request.manner,
            id,
            named,
            content_type: content_type.to_vec(),
            expected: head.get(Known::StreamSnapshotMatch).map(<[u8]>::to_vec),
        };
        match publication.check(self, None) {
            Ok(_) => Ok(publication),
            Err(problem) => Err(publication.reject(self, out, &problem)),
        }
    }

    /// Whether a body of so many bytes may be published, and can be named by one entry.
    fn publication_fits(&self, publication: &Publication, bytes: usize) -> Result<(), Problem> {
        let max_bytes = self.shard.config.max_snapshot_bytes;
        let meta_bytes = META_BYTES + publication.content_type.len() + large::parts_bytes(bytes);
        if bytes as u64 > max_bytes {
            return Err(too_large(max_bytes));
        }
        if !self.shard.log.fits(meta_bytes, 0) {
            let message = "the snapshot is larger than segments of this size (--segment-bytes) allow for";
            return Err(Problem::fixed(Code::PayloadTooLarge, message));
        }
        Ok(())
    }
}

impl Publication {
    /// The checks of decision 19 from the offset on, in their order, as the stream is staged now; `digest` if it is known.
    fn check(&self, api: &Api, digest: Option<&[u8; DIGEST_BYTES]>) -> Result<Judged, Problem> {
        let table = api.shard.table.borrow();
        let stream = table.get(self.id).filter(|stream| stream.deleted_ticket.is_none());
        let stream = stream.ok_or(STREAM_NOT_FOUND)?;
        let at = match boundary::locate(stream, self.named, &api.shard.lineages)? {
            Position::At(at) => at,
            Position::Before => return Err(OFFSET_TRIMMED),
            Position::Beyond => {
                let message = format!("the stream ends at {}: there is no more to fold", stream.staged.bytes);
                return Err(Problem::new(Code::SnapshotBeyondTail, message));
            }
        };
        let visible = stream.snapshot().staged;
        let at_same_offset = visible.filter(|visible| visible.offset == at);
        match (at_same_offset, digest) {
            (Some(_), None) => return Ok(Judged::SameOffset),
            (Some(visible), Some(digest)) if visible.digest == *digest => return Ok(Judged::Repeated),
            _ => {}
        }
        if let Some(expected) = &self.expected
            && visible.is_none_or(|visible| digest::hex(&visible.digest)[..] != expected[..])
        {
            let message = match visible {
                Some(_) => "Stream-Snapshot-Match is not the digest of the visible snapshot",
                None => "Stream-Snapshot-Match names a snapshot, but the stream has none",
            };
            return Err(Problem::fixed(Code::SnapshotMatchFailed, message));
        }
        if at_same_offset.is_some() {
            let message = "the snapshot at this offset has another content type or other bytes";
            return Err(Problem::fixed(Code::SnapshotConflict, message));
        }
        if let Some(visible) = visible.filter(|visible| at < visible.offset) {
            let message = format!("a later snapshot is visible, at {}", visible.offset);
            return Err(Problem::new(Code::SnapshotStale, message));
        }
        boundary::aligned(stream, at).map(Judged::Fresh)
    }

    /// Publishes the snapshot; what can be said in answer is in `out`.
    async fn run(&self, api: &Api, body: Pieces, out: &mut Vec<u8>) -> Step {
        let published = async {
            let digest = self.digest(&body).await;
            // The digest decides whether there is anything to write.
            if let Judged::Repeated = self.check(api, Some(&digest))? {
                return Ok(());
            }
            let refused = |refusal| api.refusal(refusal);
            let mut staged = StagedParts::default();
            for piece in body.into_pieces() {
                for chunk in piece.chunks(large::part_bytes_max(api)) {
                    staged.add(api, self.id.lineage, chunk).await.map_err(refused)?;
                    // An append never finds more of a snapshot ahead of it than this chunk.
                    api.shard.log.wait_durable(staged.ticket).await.map_err(refused)?;
                }
            }
            let mut event = SnapshotPublished {
                lineage: self.id.lineage,
                offset: 0,
                record: 0,
                content_type: &self.content_type,
                digest,
                parts: &staged.parts,
            };
            let meta_bytes = meta_bytes_max(&Event::SnapshotPublished(event));
            large::wait_for_room(api, meta_bytes, 0).await.map_err(refused)?;
            // No await from here on: what is checked is what the entry is staged against.
            if let Judged::Fresh(at) = self.check(api, Some(&digest))? {
                (event.offset, event.record) = (at.bytes, at.records);
                let stamp = api.shard.stage(&Event::SnapshotPublished(event), Target::Known(self.id));
                staged.named(stamp.ticket);
            }
            Ok(())
        };
        match published.await {
            Ok(()) => self.answer(api, out),
            Err(problem) => Step::After(self.reject(api, out, &problem)),
        }
    }

    async fn digest(&self, body: &Pieces) -> [u8; DIGEST_BYTES] {
        let mut digester = Digester::new(&self.content_type);
        let mut turn = Turn::default();
        for piece in body.iter() {
            digester.update(piece);
            turn.did(piece.len()).await;
        }
        digester.finish()
    }

    /// Answers that the snapshot is the visible one; staged just now, or before.
    fn answer(&self, api: &Api, out: &mut Vec<u8>) -> Step {
        let table = api.shard.table.borrow();
        let stream = table.get(self.id).expect("checked just now");
        let snapshot = stream.snapshot().staged.expect("it is there");
        let mut answer = api.answer(out, Status::NO_CONTENT, self.manner);
        snapshot_headers(&mut answer, self.id.lineage, snapshot);
        answer.token("Stream-Next-Offset", self.id.lineage, snapshot.offset);
        boundary::record_headers(&mut answer, stream, snapshot.record);
        answer.no_body();
        Step::After(stream.last_ticket)
    }

    /// Answers why it is not published; returns the ticket that must be durable for that.
    fn reject(&self, api: &Api, out: &mut Vec<u8>, problem: &Problem) -> u64 {
        let table = api.shard.table.borrow();
        let stream = table.get(self.id);
        api.problem_with(out, self.manner, problem, |answer| {
            let Some(stream) = stream else { return };
            match problem.code {
                Code::OffsetGone if *problem == OFFSET_TRIMMED => {
                    boundary::retained_headers(answer, stream);
                }
                code if code.status() == 409 => conflict_headers(answer, stream),
                _ => {}
            }
        });
        stream.map_or(0, |stream| stream.last_ticket)
    }
}

/// Adds what a writer needs that was refused for the state of the stream: the visible snapshot, and the tail.
pub fn conflict_headers(answer: &mut crate::http::Answer<'_>, stream: &Stream) {
    if let Some(snapshot) = stream.snapshot().staged {
        snapshot_headers(answer, stream.lineage, snapshot);
    }
    end_headers(answer, stream.lineage, stream.staged);
    boundary::record_headers(answer, stream, stream.staged.records);
}
