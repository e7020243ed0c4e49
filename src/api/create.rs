//! `PUT {stream}`: create, or confirm that the stream is as asked (base protocol 5.1; decisions 2, 3, 6, 17).

use crate::http::service::{OneShot, Step, Wait};
use crate::http::{Known, Status};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::json::{self, AllowEmpty};
use crate::protocol::names::{self, Address};
use crate::protocol::{attributes, headers};
use crate::shard::Found;
use crate::shard::buckets::Phase;
use crate::shard::stream::Stream;
use crate::shard::table::StreamId;
use crate::storage::event::{Appended, Payload, StreamCreated};
use crate::storage::log::{Class, Room};

use super::answer::{BUCKET_NOT_FOUND, Manner, end_headers, record_range};
use super::append::Canonical;
use super::large::{self, Owned};
use super::{Api, Named, Request, scheme, too_large};

/// Metadata bytes of a create and its first append besides their variable parts, generously.
const META_BYTES: usize = 256;

/// The configuration that a request asks for.
#[derive(Clone, Debug)]
struct Wanted<'a> {
    content_type: &'a [u8],
    ttl_seconds: Option<u64>,
    expires_at_ms: Option<u64>,
    closed: bool,
    attributes: Vec<u8>,
}

/// What an answer to a create says of its address; owned, for a large create outlives its request.
struct Location(Vec<u8>);

impl<'a> Wanted<'a> {
    fn parse(request: &Request<'a>) -> Result<Self, Problem> {
        let head = request.head;
        let content_type = headers::parse_content_type(head.get(Known::ContentType))?;
        if head.has(Known::StreamForkedFrom) {
            return Err(Problem::fixed(Code::NotImplemented, "this server does not fork streams"));
        }
        let expiry = headers::parse_expiry(head.get(Known::StreamTtl), head.get(Known::StreamExpiresAt))?;
        let attributes = head.get(Known::StreamAttrs).map(attributes::normalise).transpose()?;
        Ok(Self {
            content_type,
            ttl_seconds: expiry.ttl_seconds(),
            expires_at_ms: expiry.expires_at_ms(),
            closed: headers::is_true(head.get(Known::StreamClosed)),
            attributes: attributes.unwrap_or_default(),
        })
    }

    /// Whether a stream is configured as asked (decision 6).
    fn matches(&self, stream: &Stream) -> Result<(), &'static str> {
        let lifetime = stream.lifetime.as_deref();
        if !headers::media_type_eq(self.content_type, &stream.content_type.bytes) {
            Err("the stream exists with another content type")
        } else if self.ttl_seconds != lifetime.and_then(|lifetime| lifetime.ttl_seconds)
            || self.expires_at_ms != lifetime.and_then(|lifetime| lifetime.expires_at_ms)
        {
            Err("the stream exists with another expiry")
        } else if self.closed != stream.staged.closed {
            Err("the stream exists, and one of it and the request is closed")
        } else if self.attributes != stream.attributes().staged {
            Err("the stream exists with other attributes")
        } else {
            Ok(())
        }
    }

    fn event<'e>(&'e self, lineage: u64, named: Named<'e>, bucket_generation: u64) -> StreamCreated<'e> {
        StreamCreated {
            lineage,
            placement: named.hash,
            key: named.address.key,
            content_type: self.content_type,
            ttl_seconds: self.ttl_seconds,
            expires_at_ms: self.expires_at_ms,
            bucket_generation,
            attributes: &self.attributes,
            closed: self.closed,
        }
    }
}

impl Api {
    /// Serves a create.
    pub fn create(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let found = self.shard.find(named.hash, named.address.key);
        let request = &match found {
            Found::Live(id) => self.about(request, id),
            Found::Going(_) | Found::Missing => *request,
        };
        let wanted = match self.create_preconditions(request, named) {
            Ok(wanted) => wanted,
            Err(problem) => return self.fail(request, out, &problem),
        };
        match found {
            Found::Live(id) => self.confirm(request.manner, id, &wanted, out),
            Found::Going(ticket) => match self.shard.refusal() {
                None => Step::Again(Wait::Durable(ticket)),
                Some(refusal) => self.fail(request, out, &self.refusal(refusal)),
            },
            Found::Missing => match self.bucket_generation(&named.address) {
                Ok(Some(generation)) => self.create_missing(request, named, generation, &wanted, out),
                Ok(None) => Step::Again(Wait::Decision),
                Err(problem) => self.fail(request, out, &problem),
            },
        }
    }

    fn create_preconditions<'a>(
        &self,
        request: &Request<'a>,
        named: Named<'_>,
    ) -> Result<Wanted<'a>, Problem> {
        if let Some(bucket) = named.address.bucket() {
            self.shard.buckets.borrow().get(bucket).ok_or(BUCKET_NOT_FOUND)?;
        }
        let max_bytes = self.shard.config.max_body_bytes;
        if request.body.len() as u64 > max_bytes {
            return Err(too_large(max_bytes));
        }
        Wanted::parse(request)
    }

    /// The generation of the bucket in which a stream can be created now, 0 for none on the flat surface. `None` while the
    /// bucket begins or ends: to be looked at again after the next of the shard's decisions.
    fn bucket_generation(&self, address: &Address<'_>) -> Result<Option<u64>, Problem> {
        let Some(bucket) = address.bucket() else { return Ok(Some(0)) };
        let buckets = self.shard.buckets.borrow();
        let bucket = buckets.get(bucket).ok_or(BUCKET_NOT_FOUND)?;
        match bucket.phase {
            Phase::Open => Ok(Some(bucket.generation)),
            Phase::Beginning | Phase::Ending if !self.shard.stopping() => Ok(None),
            _ => Err(BUCKET_BUSY),
        }
    }

    /// The stream exists: 200 if it is as asked, and the body is ignored; else 409.
    fn confirm(&self, manner: Manner, id: StreamId, wanted: &Wanted<'_>, out: &mut Vec<u8>) -> Step {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let manner = manner.about(stream);
        match wanted.matches(stream) {
            Ok(()) => {
                let mut answer = self.answer(out, Status::OK, manner);
                answer.header("Content-Type", &stream.content_type.bytes);
                end_headers(&mut answer, id.lineage, stream.staged);
                if stream.is_json() {
                    record_range(&mut answer, stream.staged.records, stream.staged.records);
                }
                answer.no_body();
            }
            Err(message) => {
                let problem = Problem::fixed(Code::StreamExists, message);
                self.problem_with(out, manner, &problem, |answer| {
                    end_headers(answer, id.lineage, stream.staged);
                });
            }
        }
        Step::After(stream.last_ticket)
    }

    fn create_missing(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        generation: u64,
        wanted: &Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        if request.body.is_empty() {
            return self.create_with(request, named, generation, wanted, Canonical::EMPTY, out);
        }
        if !headers::is_json(wanted.content_type) {
            return self.create_with(
                request,
                named,
                generation,
                wanted,
                Canonical::message(request.body),
                out,
            );
        }
        let scratch = &mut *self.scratch.borrow_mut();
        match json::split(request.body, &mut scratch.json, &mut scratch.lengths, AllowEmpty::Yes) {
            Ok(bytes) => {
                let canonical = Canonical::records(bytes, &scratch.lengths);
                self.create_with(request, named, generation, wanted, canonical, out)
            }
            Err(problem) => self.fail(request, out, &problem),
        }
    }

    fn create_with(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        generation: u64,
        wanted: &Wanted<'_>,
        canonical: Canonical<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        let meta_bytes = wanted.meta_bytes(named) + canonical.lengths_bytes();
        let location = Location::of(self, request, named);
        match large::fits_whole(self, meta_bytes, canonical) {
            Ok(true) => {}
            Ok(false) => return LargeCreate::step(self, request.manner, named, wanted, canonical, location),
            Err(problem) => return self.fail(request, out, &problem),
        }
        match self.shard.room(meta_bytes, canonical.stored_bytes(), Class::Append) {
            Room::Now => {}
            Room::Later => return Step::Again(Wait::Room),
            Room::Refused(refusal) => return self.fail(request, out, &self.refusal(refusal)),
        }
        let Some(lineage) = self.shard.lineages.next(self.shard.index) else {
            return self.fail(request, out, &NO_LINEAGE);
        };
        let payload = Payload::Here(Default::default());
        let event = wanted.event(lineage, named, generation);
        let (id, ticket) = self.stage_new(event, canonical, payload, meta_bytes);
        self.created(out, request.manner, id, &location);
        Step::After(ticket)
    }

    /// Stages a create and its first content, in one commit. Room was just found for both, with `meta_bytes` of metadata.
    fn stage_new(
        &self,
        created: StreamCreated<'_>,
        canonical: Canonical<'_>,
        payload: Payload<'_>,
        meta_bytes: usize,
    ) -> (StreamId, u64) {
        let has_content = canonical.lengths.count() > 0;
        let inline_bytes = match payload {
            Payload::Here(_) => canonical.stored_bytes(),
            Payload::Parts(_) => 0,
        };
        // The create alone might still fit in a commit that the content does not fit in.
        self.shard.log.share_commit(meta_bytes, inline_bytes);
        // A stream that is born closed with content is closed by its first append.
        let born_closed = created.closed && !has_content;
        let (id, stamp) = self.shard.stage_create(StreamCreated { closed: born_closed, ..created });
        if has_content {
            let event = Appended {
                lineage: created.lineage,
                start: 0,
                lengths: canonical.lengths,
                producer: None,
                stream_seq: None,
                closed: created.closed,
                payload,
            };
            let appended = self.shard.stage_append(id, event, inline_bytes, |writer| {
                if inline_bytes > 0 {
                    writer.put(canonical.bytes);
                    if canonical.separator {
                        writer.put(b",");
                    }
                }
            });
            assert_eq!(stamp.ticket, appended.ticket, "a create and its content share a commit");
        }
        (id, stamp.ticket)
    }

    fn created(&self, out: &mut Vec<u8>, manner: Manner, id: StreamId, location: &Location) {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("made above");
        let mut answer = self.answer(out, Status::CREATED, manner.about(stream));
        answer.header("Location", &location.0).header("Content-Type", &stream.content_type.bytes);
        end_headers(&mut answer, id.lineage, stream.staged);
        if stream.is_json() {
            record_range(&mut answer, 0, stream.staged.records);
        }
        answer.no_body();
    }
}

/// Nobody can tell now whether the bucket stays.
const BUCKET_BUSY: Problem = Problem::fixed(
    Code::BucketBusy,
    "a delete of the bucket is under way or its write failed, and only a restart of the server settles it; try again then",
);

/// The shard has used up its lineage ids and waits for more.
const NO_LINEAGE: Problem =
    Problem::fixed(Code::Overloaded, "the shard is waiting for a new range of stream ids; try again");

impl Wanted<'_> {
    fn meta_bytes(&self, named: Named<'_>) -> usize {
        META_BYTES + named.address.key.len() + self.content_type.len() + self.attributes.len()
    }
}

impl Location {
    fn of(api: &Api, request: &Request<'_>, named: Named<'_>) -> Self {
        let mut url = Vec::new();
        let host = Some(request.head.authority);
        names::write_location(&mut url, scheme(api, request.head), host, &named.address);
        Self(url)
    }
}

/// A create whose content is larger than a commit.
struct LargeCreate {
    manner: Manner,
    key: Vec<u8>,
    hash: u64,
    content_type: Vec<u8>,
    ttl_seconds: Option<u64>,
    expires_at_ms: Option<u64>,
    closed: bool,
    attributes: Vec<u8>,
    payload: Owned,
    location: Location,
}

impl LargeCreate {
    fn step(
        api: &Api,
        manner: Manner,
        named: Named<'_>,
        wanted: &Wanted<'_>,
        canonical: Canonical<'_>,
        location: Location,
    ) -> Step {
        let create = Self {
            manner,
            key: named.address.key.to_vec(),
            hash: named.hash,
            content_type: wanted.content_type.to_vec(),
            ttl_seconds: wanted.ttl_seconds,
            expires_at_ms: wanted.expires_at_ms,
            closed: wanted.closed,
            attributes: wanted.attributes.clone(),
            payload: Owned::of(canonical),
            location,
        };
        let api = api.clone();
        OneShot::step(async move {
            let mut out = Vec::new();
            let step = create.run(&api, &mut out).await.unwrap_or_else(|problem| {
                api.problem(&mut out, manner, &problem);
                Step::Done
            });
            large::settle(&api, manner, step, out).await
        })
    }

    async fn run(&self, api: &Api, out: &mut Vec<u8>) -> Result<Step, Problem> {
        let lineage = api.shard.lineages.next(api.shard.index).ok_or(NO_LINEAGE)?;
        let refused = |refusal| api.refusal(refusal);
        let staged = large::stage_parts(api, lineage, &self.payload).await.map_err(refused)?;
        let named = Named { address: Address::of_key(&self.key), hash: self.hash };
        let wanted = Wanted {
            content_type: &self.content_type,
            ttl_seconds: self.ttl_seconds,
            expires_at_ms: self.expires_at_ms,
            closed: self.closed,
            attributes: self.attributes.clone(),
        };
        let meta_bytes = wanted.meta_bytes(named) + self.payload.meta_bytes();
        let generation = loop {
            large::wait_for_room(api, meta_bytes, 0).await.map_err(refused)?;
            // No await from here to the stage: the name is free when the stream takes it, and the bucket open.
            match api.shard.find(named.hash, named.address.key) {
                Found::Missing => match api.bucket_generation(&named.address)? {
                    Some(generation) => break generation,
                    None => api.shard.decisions.next().await,
                },
                // Created meanwhile, perhaps by the same client's second try.
                Found::Live(id) => return Ok(api.confirm(self.manner, id, &wanted, out)),
                Found::Going(ticket) => api.shard.log.wait_durable(ticket).await.map_err(refused)?,
            }
        };
        // The bytes lie in the parts.
        let canonical = Canonical { lengths: self.payload.lengths(), ..Canonical::EMPTY };
        let payload = Payload::Parts(&staged.parts);
        let event = wanted.event(lineage, named, generation);
        let (id, ticket) = api.stage_new(event, canonical, payload, meta_bytes);
        staged.named(ticket);
        api.created(out, self.manner, id, &self.location);
        Ok(Step::After(ticket))
    }
}
