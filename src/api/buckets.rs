//! Buckets: create, metadata, listing, delete (extension 1; decisions 3, 4).
//!
//! A bucket's operations are served by its home shard, one change at a time. Its log has the truth; create answers after
//! every shard knows, delete after every shard has frozen, counted and forgotten it.

use async_channel::{Receiver, Sender};

use crate::http::service::{Fill, OneShot, Step};
use crate::http::{Method, Status};
use crate::protocol::digits;
use crate::protocol::errors::{Code, Problem, write_json_string};
use crate::protocol::names;
use crate::protocol::query::ListQuery;
use crate::shard::mail::{BucketRecord, ListedStream, Mail, ShardPage};
use crate::shard::stream::Stream;
use crate::shard::table::Target;
use crate::shard::{Shard, expiry, now_ms};
use crate::storage::event::Event;
use crate::storage::log::{Class, Refusal, Room};

use super::answer::{BUCKET_NOT_FOUND, Manner};
use super::{Api, Request, scheme};

/// Metadata bytes of a bucket's entry, generously.
const META_BYTES: usize = 128;

impl Api {
    /// Serves `/{bucket}`.
    pub fn bucket(&self, request: &Request<'_>, bucket: &[u8], out: &mut Vec<u8>) -> Step {
        let (api, manner, bucket) = (self.clone(), request.manner, bucket.to_vec());
        match request.head.method {
            Method::Put => {
                let mut location = Vec::new();
                let host = Some(request.head.authority);
                names::write_bucket_location(&mut location, scheme(self, request.head), host, &bucket);
                OneShot::step(async move { api.create_bucket(manner, bucket, &location).await })
            }
            Method::Get | Method::Head => {
                OneShot::step(async move { api.describe_bucket(manner, bucket).await })
            }
            Method::Delete => OneShot::step(async move { api.delete_bucket(manner, bucket).await }),
            Method::Post | Method::Options | Method::Other => {
                self.method_not_allowed(request, out, "GET, HEAD, PUT, DELETE, OPTIONS")
            }
        }
    }

    /// Serves `/{bucket}/streams`.
    pub fn list_bucket(&self, request: &Request<'_>, bucket: &[u8], out: &mut Vec<u8>) -> Step {
        if !matches!(request.head.method, Method::Get | Method::Head) {
            let message = "streams is the listing of the bucket: only GET and HEAD";
            return self.fail(request, out, &Problem::fixed(Code::InvalidMethod, message));
        }
        let query = match ListQuery::parse(request.head.query) {
            Ok(query) => query,
            Err(problem) => return self.fail(request, out, &problem),
        };
        if self.shard.buckets.borrow().get(bucket).is_none() {
            return self.fail(request, out, &BUCKET_NOT_FOUND);
        }
        let (api, manner, bucket) = (self.clone(), request.manner, bucket.to_vec());
        let (prefix, after, limit) = (query.prefix.into_owned(), query.after.into_owned(), query.limit);
        OneShot::step(async move {
            let page = api.gather_page(&bucket, &prefix, &after, limit).await;
            let mut out = Vec::new();
            let mut answer = api.answer(&mut out, Status::OK, manner);
            answer.lines("Content-Type: application/json\r\nCache-Control: no-store\r\n");
            answer.body(&listing_body(&bucket, &prefix, &page));
            (out, Fill::End)
        })
    }

    async fn create_bucket(&self, manner: Manner, bucket: Vec<u8>, location: &[u8]) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        match self.try_create_bucket(bucket).await {
            Ok(()) => {
                let mut answer = self.answer(&mut out, Status::CREATED, manner);
                answer.header("Location", location);
                answer.no_body();
            }
            Err(problem) => self.problem(&mut out, manner, &problem),
        }
        (out, Fill::End)
    }

    async fn try_create_bucket(&self, bucket: Vec<u8>) -> Result<(), Problem> {
        let shard = &self.shard;
        let _gate = shard.bucket_gate.acquire_permit(1).await.expect("the gate is never closed");
        if shard.buckets.borrow().get(&bucket).is_some() {
            return Err(Problem::fixed(Code::BucketExists, "the bucket exists"));
        }
        let generation = shard.lineages.next(shard.index);
        let generation =
            generation.ok_or(Problem::fixed(Code::Overloaded, "the shard waits for ids; try again"))?;
        let event = Event::BucketCreated { bucket: &bucket, generation };
        self.log_bucket(&event, Class::Append).await?;
        let record = BucketRecord { bucket, generation };
        shard.buckets.borrow_mut().add(&record);
        let asked = self.ask_others(|done| Mail::BucketAdded { bucket: record.clone(), done });
        self.all_answers(asked).await;
        Ok(())
    }

    async fn delete_bucket(&self, manner: Manner, bucket: Vec<u8>) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        match self.try_delete_bucket(bucket).await {
            Ok(()) => self.answer(&mut out, Status::NO_CONTENT, manner).no_body(),
            Err(problem) => self.problem(&mut out, manner, &problem),
        }
        (out, Fill::End)
    }

    async fn try_delete_bucket(&self, bucket: Vec<u8>) -> Result<(), Problem> {
        let shard = &self.shard;
        let _gate = shard.bucket_gate.acquire_permit(1).await.expect("the gate is never closed");
        let generation = shard.buckets.borrow().get(&bucket).ok_or(BUCKET_NOT_FOUND)?.generation;
        // Frozen everywhere before anything is counted: a create that was staged before is counted, one after refused.
        shard.buckets.borrow_mut().set_frozen(&bucket, true);
        let asked = self.ask_others(|count| Mail::BucketFreeze { bucket: bucket.clone(), count });
        let elsewhere: u64 = self.all_answers(asked).await.into_iter().sum();
        let outcome = if shard.buckets.borrow().count(&bucket) + elsewhere > 0 {
            Err(Problem::fixed(Code::BucketNotEmpty, "the bucket holds streams: delete them first"))
        } else {
            let event = Event::BucketDeleted { bucket: &bucket, generation };
            self.log_bucket(&event, Class::Control).await
        };
        if outcome.is_err() {
            shard.buckets.borrow_mut().set_frozen(&bucket, false);
            for mailbox in self.other_mailboxes() {
                // A closed mailbox is a shard that has stopped.
                let _ = mailbox.try_send(Mail::BucketUnfreeze { bucket: bucket.clone() });
            }
            return outcome;
        }
        let record = BucketRecord { bucket, generation };
        shard.buckets.borrow_mut().remove(&record);
        let asked = self.ask_others(|done| Mail::BucketRemoved { bucket: record.clone(), done });
        self.all_answers(asked).await;
        Ok(())
    }

    /// Logs a change of a bucket; returns when it is durable.
    async fn log_bucket(&self, event: &Event<'_>, class: Class) -> Result<(), Problem> {
        let refused = |refusal: Refusal| self.refusal(refusal);
        loop {
            match self.shard.room(META_BYTES, 0, class) {
                Room::Now => break,
                Room::Later => self.shard.log.wait_room().await,
                Room::Refused(refusal) => return Err(refused(refusal)),
            }
        }
        let stamp = self.shard.stage(event, Target::ByLineage);
        self.shard.log.wait_durable(stamp.ticket).await.map_err(refused)
    }

    async fn describe_bucket(&self, manner: Manner, bucket: Vec<u8>) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        if self.shard.buckets.borrow().get(&bucket).is_none() {
            self.problem(&mut out, manner, &BUCKET_NOT_FOUND);
            return (out, Fill::End);
        }
        let asked = self.ask_others(|count| Mail::BucketCount { bucket: bucket.clone(), count });
        let elsewhere: u64 = self.all_answers(asked).await.into_iter().sum();
        let streams = live_count(&self.shard, &bucket) + elsewhere;
        let mut body = b"{\"bucket_id\":".to_vec();
        write_json_string(&mut body, &String::from_utf8_lossy(&bucket));
        body.push(b',');
        write_json_number_member(&mut body, "streams", streams);
        body.push(b'}');
        let mut answer = self.answer(&mut out, Status::OK, manner);
        answer.lines("Content-Type: application/json\r\nCache-Control: no-store\r\n");
        answer.body(&body);
        (out, Fill::End)
    }

    /// The page of all shards: each gives as many as the page may hold, in order; the least of them make the page.
    async fn gather_page(&self, bucket: &[u8], prefix: &[u8], after: &[u8], limit: usize) -> ShardPage {
        let asked = self.ask_others(|page| Mail::BucketPage {
            bucket: bucket.to_vec(),
            prefix: prefix.to_vec(),
            after: after.to_vec(),
            limit,
            page,
        });
        let mut pages = self.all_answers(asked).await;
        pages.push(local_page(&self.shard, bucket, prefix, after, limit));
        let mut merged = ShardPage { streams: Vec::new(), more: pages.iter().any(|page| page.more) };
        merged.streams.extend(pages.into_iter().flat_map(|page| page.streams));
        merged.streams.sort_unstable_by(|a, b| a.stream.cmp(&b.stream));
        if merged.streams.len() > limit {
            merged.streams.truncate(limit);
            merged.more = true;
        }
        merged
    }

    fn other_mailboxes(&self) -> impl Iterator<Item = &Sender<Mail>> {
        let own = self.shard.index;
        let all = self.shard.mailboxes.0.iter().enumerate();
        all.filter(move |(shard, _)| *shard != own).map(|(_, mailbox)| mailbox)
    }

    /// Sends a question to every other shard.
    fn ask_others<T>(&self, question: impl Fn(Sender<T>) -> Mail) -> Receiver<T> {
        let others = self.shard.shards - 1;
        let (sender, receiver) = async_channel::bounded(others.max(1));
        for mailbox in self.other_mailboxes() {
            // A closed mailbox is a shard that has stopped: it drops its sender, and is not waited for.
            let _ = mailbox.try_send(question(sender.clone()));
        }
        receiver
    }

    /// The answers of all that were asked and still run.
    async fn all_answers<T>(&self, receiver: Receiver<T>) -> Vec<T> {
        let mut answers = Vec::new();
        while let Ok(answer) = receiver.recv().await {
            answers.push(answer);
        }
        answers
    }
}

/// Live streams of a bucket on this shard.
pub fn live_count(shard: &Shard, bucket: &[u8]) -> u64 {
    let (table, now_ms) = (shard.table.borrow(), now_ms());
    let counts = |id| table.get(id).is_some_and(|stream| is_listed(shard, stream, now_ms));
    shard.buckets.borrow().count_where(bucket, counts)
}

/// Whether a stream is there for a listing: durable, not expired (decision 4).
fn is_listed(shard: &Shard, stream: &Stream, now_ms: u64) -> bool {
    shard.is_visible(stream) && !expiry::is_expired(stream, now_ms)
}

/// A page of a bucket's streams on this shard.
pub fn local_page(shard: &Shard, bucket: &[u8], prefix: &[u8], after: &[u8], limit: usize) -> ShardPage {
    let table = shard.table.borrow();
    let now_ms = now_ms();
    shard.buckets.borrow().page(bucket, prefix, after, limit, |id, name| {
        let stream = table.get(id)?;
        is_listed(shard, stream, now_ms).then(|| ListedStream {
            stream: name.to_vec(),
            closed: stream.durable.closed,
            content_type: stream.content_type.bytes.to_vec(),
            tail_offset: stream.durable.bytes,
            created_at_ms: stream.created_ms,
            last_write_at_ms: stream.last_write_ms,
        })
    })
}

/// Appends `"name":value`.
fn write_json_number_member(out: &mut Vec<u8>, name: &'static str, value: u64) {
    write_json_string(out, name);
    out.push(b':');
    digits::write_u64(out, value);
}

/// The body of a listing (extension 1.4; decision 4).
fn listing_body(bucket: &[u8], prefix: &[u8], page: &ShardPage) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, bytes: &[u8]| write_json_string(out, &String::from_utf8_lossy(bytes));
    let mut out = b"{\"bucket_id\":".to_vec();
    text(&mut out, bucket);
    out.extend_from_slice(b",\"prefix\":");
    text(&mut out, prefix);
    out.push(b',');
    write_json_number_member(&mut out, "stream_count", page.streams.len() as u64);
    out.extend_from_slice(b",\"streams\":[");
    for (index, stream) in page.streams.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"stream_id\":");
        text(&mut out, &stream.stream);
        out.extend_from_slice(if stream.closed {
            b",\"status\":\"Closed\""
        } else {
            b",\"status\":\"Open\""
        });
        out.extend_from_slice(b",\"content_type\":");
        text(&mut out, &stream.content_type);
        for (name, value) in [
            ("tail_offset", stream.tail_offset),
            ("created_at_ms", stream.created_at_ms),
            ("last_write_at_ms", stream.last_write_at_ms),
        ] {
            out.push(b',');
            write_json_number_member(&mut out, name, value);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"next_cursor\":");
    match page.streams.last().filter(|_| page.more) {
        Some(last) => text(&mut out, &last.stream),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(if page.more { b",\"has_more\":true}" } else { b",\"has_more\":false}" });
    out
}
