//! HTTP requests to operations on streams and buckets: one file per operation.
//!
//! [`Api`] is the service behind every connection of a shard. A request is routed, moved to the shard that owns what it is
//! about, and served from the state of that shard. Serving is synchronous on borrowed bytes wherever nothing has to be
//! awaited; an answer that depends on staged state carries the ticket it waits for (decision 17).

pub mod answer;
pub mod append;
pub mod attributes;
pub mod batch;
pub mod bootstrap;
pub mod boundary;
pub mod buckets;
pub mod create;
pub mod delete;
pub mod hot;
pub mod large;
pub mod listing;
pub mod long_poll;
pub mod metadata;
pub mod publish;
pub mod range;
pub mod read;
pub mod retention;
pub mod snapshot;
pub mod sse;
pub mod start;

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::http::cors;
use crate::http::pieces::Pieces;
use crate::http::response::{CommonHeaders, write_refusal};
use crate::http::service::{Admit, Service, Step};
use crate::http::{Framing, Head, Known, Method};
use crate::limits;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::headers;
use crate::protocol::names::{self, Address, Route, Suffix};
use crate::shard::mail::Mail;
use crate::shard::table::StreamId;
use crate::shard::{self, Found, Shard};
use crate::storage::log::Refusal;

use answer::Manner;
use bootstrap::Boundaries;
use hot::HotPages;

/// The service of one shard. Cheap to clone.
#[derive(Clone)]
pub struct Api(Rc<Inner>);

/// What [`Api`] points to.
pub struct Inner {
    /// The shard.
    pub shard: Rc<Shard>,
    common: RefCell<CommonHeaders>,
    /// Unix milliseconds, refreshed by [`Api::tick`]: good enough for deadlines, free to read.
    coarse_ms: Cell<u64>,
    scratch: RefCell<Scratch>,
    boundaries: Boundaries,
    hot: RefCell<HotPages>,
}

/// Memory that one request uses while it is served, kept for the next.
#[derive(Default)]
struct Scratch {
    json: Vec<u8>,
    lengths: Vec<u32>,
    batch: batch::BatchMemory,
}

impl Scratch {
    /// Gives back what a rare large request made it grow to.
    fn trim(&mut self) {
        const KEPT_BYTES: usize = 1024 * 1024;
        if self.json.capacity() > KEPT_BYTES {
            self.json = Vec::new();
        }
        if self.lengths.capacity() > KEPT_BYTES / size_of::<u32>() {
            self.lengths = Vec::new();
        }
        if self.batch.held_bytes() > KEPT_BYTES {
            self.batch = batch::BatchMemory::default();
        }
    }
}

impl std::ops::Deref for Api {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// A request on its way through the operations.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a Head<'a>,
    /// Its body.
    pub body: &'a [u8],
    /// In place of it a body that came in pieces, to be taken by the operation that it was admitted for.
    pub pieces: Option<&'a Cell<Pieces>>,
    /// How it wants its answer.
    pub manner: Manner,
}

/// A stream as a request names it.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// Its address.
    pub address: Address<'a>,
    /// Placement hash of its key.
    pub hash: u64,
}

impl<'a> Named<'a> {
    fn of(address: Address<'a>, hash: Option<u64>) -> Self {
        Self { address, hash: hash.expect("a stream's route has a hash") }
    }
}

impl Api {
    /// The service of a shard.
    pub fn new(shard: Rc<Shard>) -> Self {
        let now_ms = shard::now_ms();
        let common = CommonHeaders::new(shard.index, shard.shards, now_ms / 1000);
        Self(Rc::new(Inner {
            common: RefCell::new(common),
            coarse_ms: Cell::new(now_ms),
            scratch: RefCell::default(),
            boundaries: Boundaries::new(),
            hot: RefCell::new(HotPages::new((shard.config.hot_bytes / shard.shards as u64) as usize)),
            shard,
        }))
    }

    /// Refreshes the coarse clock and the `Date` header; called several times a second.
    pub fn tick(&self) -> u64 {
        let now_ms = shard::now_ms();
        self.coarse_ms.set(now_ms);
        self.common.borrow_mut().refresh(now_ms / 1000);
        now_ms
    }

    /// The answer to a connection over the maximum.
    pub fn too_many_connections(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let code = Code::TooManyConnections;
        self.refuse(code, "the server has as many connections as it may", &mut out);
        out
    }

    /// Refuses a request apart from what it is about; the connection ends.
    fn refuse(&self, code: Code, message: &'static str, out: &mut Vec<u8>) {
        self.malformed(&Problem::fixed(code, message), out);
    }

    fn dispatch(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Step {
        if request.head.method == Method::Options {
            cors::write_preflight(out, &self.common.borrow(), request.head.terms());
            return Step::Done;
        }
        let mut path = Vec::new();
        let route = match names::route(request.head.path, &mut path) {
            Ok(route) => route,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let hash = self.hash_of(&route);
        if let Some(shard) = self.elsewhere(hash) {
            return Step::Elsewhere(shard);
        }
        match route {
            Route::Stream(address) => self.stream(request, Named::of(address, hash), out),
            Route::Suffix { address, suffix } => self.suffix(request, Named::of(address, hash), suffix, out),
            Route::Bucket { bucket } => self.bucket(request, bucket, out),
            Route::BucketStreams { bucket } => self.list_bucket(request, bucket, out),
            Route::Reserved { .. } => {
                let problem = Problem::fixed(Code::NotImplemented, "this server does not have this endpoint");
                self.fail(request, out, &problem)
            }
            Route::Root => {
                let problem = Problem::fixed(
                    Code::NotFound,
                    "there is nothing here: streams are at /{bucket}/{stream} and /v1/stream/{path}",
                );
                self.fail(request, out, &problem)
            }
        }
    }

    /// A request whose stream was found: its answers name the extensions that are active on that stream.
    pub fn about<'a>(&self, request: &Request<'a>, id: StreamId) -> Request<'a> {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found by the caller");
        Request { manner: request.manner.about(stream), ..*request }
    }

    /// Likewise, for a request that is refused before its operation looks for the stream.
    fn about_key<'a>(&self, request: &Request<'a>, hash: u64, key: &[u8]) -> Request<'a> {
        match self.shard.find(hash, key) {
            Found::Live(id) => self.about(request, id),
            Found::Missing | Found::Going(_) => *request,
        }
    }

    fn stream(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        match request.head.method {
            Method::Post => self.append(request, named, out),
            Method::Get => self.read(request, named, out),
            Method::Put => self.create(request, named, out),
            Method::Head => self.metadata(request, named, out),
            Method::Delete => self.delete(request, named, out),
            Method::Options | Method::Other => {
                let request = &self.about_key(request, named.hash, named.address.key);
                self.method_not_allowed(request, out, "GET, HEAD, PUT, POST, DELETE, OPTIONS")
            }
        }
    }

    /// An endpoint below a stream of the bucket surface.
    fn suffix(&self, request: &Request<'_>, named: Named<'_>, suffix: Suffix<'_>, out: &mut Vec<u8>) -> Step {
        use Method::{Delete, Get, Head, Post, Put};
        let allow = match (suffix, request.head.method) {
            (Suffix::Batch, Post) => return self.append_batch(request, named, out),
            (Suffix::Batch, _) => "POST, OPTIONS",
            (Suffix::Attributes, Get | Head) => return self.read_attributes(request, named, out),
            (Suffix::Attributes, Put) => return self.replace_attributes(request, named, out),
            (Suffix::Attributes, _) => "GET, HEAD, PUT, OPTIONS",
            (Suffix::Snapshot(segment), Put) => return self.publish_snapshot(request, named, segment, out),
            (Suffix::Snapshot(None), Get | Head) => return self.latest_snapshot(request, named, out),
            (Suffix::Snapshot(None), _) => "GET, HEAD, PUT, OPTIONS",
            (Suffix::Snapshot(Some(at)), Get | Head) => return self.read_snapshot(request, named, at, out),
            (Suffix::Snapshot(Some(at)), Delete) => return self.delete_snapshot(request, named, at, out),
            (Suffix::Snapshot(Some(_)), _) => "GET, HEAD, PUT, DELETE, OPTIONS",
            (Suffix::Retention(segment), Put) => return self.retain(request, named, segment, out),
            (Suffix::Retention(_), _) => "PUT, OPTIONS",
            (Suffix::Bootstrap, Get | Head) => return self.bootstrap(request, named, out),
            (Suffix::Bootstrap, _) => "GET, HEAD, OPTIONS",
        };
        let request = &self.about_key(request, named.hash, named.address.key);
        self.method_not_allowed(request, out, allow)
    }

    /// Placement hash of what a route is about. What is about nothing is served by any shard.
    fn hash_of(&self, route: &Route<'_>) -> Option<u64> {
        match route {
            Route::Stream(address) | Route::Suffix { address, .. } => Some(self.shard.hash(address.key)),
            Route::Bucket { bucket } | Route::BucketStreams { bucket } => Some(self.shard.hash(bucket)),
            Route::Root | Route::Reserved { .. } => None,
        }
    }

    /// The shard that owns a placement hash, if it is another one.
    fn elsewhere(&self, hash: Option<u64>) -> Option<usize> {
        let owner = self.shard.owner(hash?);
        (owner != self.shard.index).then_some(owner)
    }

    /// Answers with an error that depends on no state.
    pub fn fail(&self, request: &Request<'_>, out: &mut Vec<u8>, problem: &Problem) -> Step {
        self.problem(out, request.manner, problem);
        Step::Done
    }

    fn method_not_allowed(&self, request: &Request<'_>, out: &mut Vec<u8>, allow: &'static str) -> Step {
        let problem = Problem::new(Code::MethodNotAllowed, format!("the methods here are {allow}"));
        self.problem_with(out, request.manner, &problem, |answer| {
            answer.header("Allow", allow.as_bytes());
        });
        Step::Done
    }

    /// Looks a stream up for a read: only what is durable counts. The error says what to answer.
    pub fn find_durable(&self, named: Named<'_>) -> Result<StreamId, Step404> {
        match self.shard.find(named.hash, named.address.key) {
            Found::Missing => Err(Step404(None)),
            Found::Live(id) => self.if_visible(id),
            // The delete will never be durable, so the stream is still there.
            Found::Going(_) if self.shard.refusal() == Some(Refusal::Latched) => {
                let id = self.shard.table.borrow().find(named.hash, named.address.key);
                self.if_visible(id.expect("a stream keeps its name until its delete is durable"))
            }
            Found::Going(ticket) => Err(Step404(Some(ticket))),
        }
    }

    /// Looks a stream up for a write: what is staged counts. The error says what to answer.
    pub fn find_staged(&self, named: Named<'_>) -> Result<StreamId, Step404> {
        match self.shard.find(named.hash, named.address.key) {
            Found::Live(id) => Ok(id),
            Found::Missing => Err(Step404(None)),
            Found::Going(ticket) => Err(Step404(Some(ticket))),
        }
    }

    fn if_visible(&self, id: StreamId) -> Result<StreamId, Step404> {
        let table = self.shard.table.borrow();
        let visible = table.get(id).is_some_and(|stream| self.shard.is_visible(stream));
        if visible { Ok(id) } else { Err(Step404(None)) }
    }

    /// Why a stream cannot be there: its bucket is missing, or it is.
    pub fn not_found(&self, address: &Address<'_>) -> Problem {
        match address.bucket() {
            Some(bucket) if self.shard.buckets.borrow().get(bucket).is_none() => answer::BUCKET_NOT_FOUND,
            _ => answer::STREAM_NOT_FOUND,
        }
    }

    /// Answers 404, after the delete that makes it true.
    pub fn answer_404(
        &self,
        request: &Request<'_>,
        named: Named<'_>,
        out: &mut Vec<u8>,
        Step404(ticket): Step404,
    ) -> Step {
        self.problem(out, request.manner, &self.not_found(&named.address));
        ticket.map_or(Step::Done, Step::After)
    }

    /// Largest body of an operation.
    fn body_bytes_max(&self, route: &Route<'_>) -> u64 {
        let max = self.shard.config.max_body_bytes;
        match route {
            Route::Suffix { suffix: Suffix::Batch, .. } => max.min(limits::BATCH_BYTES_MAX),
            _ => max,
        }
    }

    /// What a request with a body that is not all here is told before the body is read (decision 7: 404, then 413).
    fn admit_or_refuse(&self, request: &mut Request<'_>, out: &mut Vec<u8>) -> Result<Admit, Problem> {
        let head = request.head;
        let mut path = Vec::new();
        let route = names::route(head.path, &mut path)?;
        let hash = self.hash_of(&route);
        if let Some(shard) = self.elsewhere(hash) {
            return Ok(Admit::Elsewhere(shard));
        }
        let length = match head.framing {
            Framing::Length(length) => length,
            Framing::None | Framing::Chunked => 0,
        };
        let mut named = None;
        if let (Route::Stream(address) | Route::Suffix { address, .. }, Some(hash)) = (&route, hash) {
            named = Some(Named { address: *address, hash });
            let is_missing = || self.shard.find(hash, address.key) == Found::Missing;
            match (&route, head.method) {
                (Route::Suffix { suffix: Suffix::Snapshot(segment), .. }, Method::Put) => {
                    return Ok(self.admit_snapshot(
                        request,
                        Named { address: *address, hash },
                        *segment,
                        out,
                    ));
                }
                (Route::Suffix { suffix: Suffix::Attributes, .. }, Method::Put) => {
                    if is_missing() {
                        return Err(self.not_found(address));
                    }
                    if attributes::is_too_long(length) {
                        *request = self.about_key(request, hash, address.key);
                        return Err(self.refuse_long_attributes(request));
                    }
                }
                (Route::Stream(_) | Route::Suffix { suffix: Suffix::Batch, .. }, Method::Post)
                    if is_missing() =>
                {
                    return Err(self.not_found(address));
                }
                _ => {}
            }
        }
        let max_bytes = self.body_bytes_max(&route);
        if length > max_bytes {
            if let Some(named) = named {
                *request = self.about_key(request, named.hash, named.address.key);
            }
            return Err(too_large(max_bytes));
        }
        // One message, and more than a commit holds: it need not lie together, and goes into the log piece by piece. Records
        // have to be told apart first.
        let is_append = matches!((&route, head.method), (Route::Stream(_), Method::Post));
        let has_records = head.get(Known::ContentType).is_some_and(headers::is_json);
        let in_pieces = is_append && !has_records && length > self.shard.log.payload_max() as u64;
        Ok(Admit::Body { max_bytes, in_pieces })
    }
}

/// A stream is not there; true at once, or once a delete is durable.
pub struct Step404(pub Option<u64>);

/// The problem of a body over its maximum.
pub fn too_large(max_bytes: u64) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("the body is larger than {max_bytes} bytes"))
}

/// `https` only if a trusted proxy says so (decision 2).
pub fn scheme(api: &Api, head: &Head<'_>) -> &'static [u8] {
    let forwarded = head.get(Known::XForwardedProto);
    if api.shard.config.trust_proxy && forwarded.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https")) {
        b"https"
    } else {
        b"http"
    }
}

impl Service for Api {
    fn admit(&self, head: &Head<'_>, out: &mut Vec<u8>) -> Admit {
        let mut request = Request { head, body: b"", pieces: None, manner: Manner::of(head, true) };
        self.admit_or_refuse(&mut request, out).unwrap_or_else(|problem| {
            self.problem(out, request.manner, &problem);
            Admit::Refused(0)
        })
    }

    fn call(&self, head: &Head<'_>, body: &[u8], out: &mut Vec<u8>) -> Step {
        let manner = Manner::of(head, self.shard.stopping());
        let step = self.dispatch(&Request { head, body, pieces: None, manner }, out);
        self.scratch.borrow_mut().trim();
        step
    }

    fn call_with_pieces(&self, head: &Head<'_>, body: &mut Pieces, out: &mut Vec<u8>) -> Step {
        let manner = Manner::of(head, self.shard.stopping());
        let pieces = Some(Cell::from_mut(body));
        self.dispatch(&Request { head, body: b"", pieces, manner }, out)
    }

    fn malformed(&self, problem: &Problem, out: &mut Vec<u8>) {
        write_refusal(out, &self.common.borrow(), problem);
    }

    fn commit_failed(&self, out: &mut Vec<u8>) {
        let refusal = self.shard.refusal().expect("a commit failed");
        self.refuse(self.refusal(refusal).code, "the write to disk failed", out);
    }

    fn durable(&self) -> u64 {
        self.shard.log.durable()
    }

    async fn wait_durable(&self, ticket: u64) -> bool {
        self.shard.log.wait_durable(ticket).await.is_ok()
    }

    async fn wait_room(&self) {
        self.shard.log.wait_room().await;
    }

    async fn wait_decision(&self) {
        self.shard.decisions.next().await;
    }

    fn take_body_budget(&self, bytes: u64, out: &mut Vec<u8>) -> bool {
        let fits = self.shard.take_body_budget(bytes);
        if !fits {
            self.refuse(Code::Overloaded, "too many request bodies are under way", out);
        }
        fits
    }

    fn return_body_budget(&self, bytes: u64) {
        self.shard.return_body_budget(bytes);
    }

    fn hand_over(&self, shard: usize, fd: OwnedFd, unread: Vec<u8>) {
        // A shard whose mailbox is closed has stopped: the connection ends with the message.
        let _ = self.shard.mailboxes.0[shard].try_send(Mail::Connection { fd, unread });
    }

    fn stopping(&self) -> bool {
        self.shard.stopping()
    }

    fn now_ms(&self) -> u64 {
        self.coarse_ms.get()
    }
}

#[cfg(test)]
mod tests;
