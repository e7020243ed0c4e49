//! `GET /{bucket}/streams`: the streams of a bucket, page by page (extension 1.4; decisions 3, 4).
//!
//! A stream is listed if it is durable and has not expired, in byte order of the ids. Every shard walks its own part, a
//! few streams at a time with other work between, and writes the entries; the bucket's home merges them. A page is a
//! range of ids, so a stream that exists while a client goes through the pages is on exactly one of them, whatever comes
//! and goes around it.

use std::ops::Bound;

use crate::http::service::{Fill, OneShot, Step};
use crate::http::{Method, Status};
use crate::limits::LISTED_PER_TURN_MAX;
use crate::protocol::digits;
use crate::protocol::errors::{Code, Problem, write_json_string};
use crate::protocol::query::ListQuery;
use crate::shard::mail::{BucketMail, BucketRecord, PageQuestion, ShardPage};
use crate::shard::stream::Stream;
use crate::shard::{Shard, expiry};

use super::answer::{BUCKET_NOT_FOUND, Manner};
use super::buckets::JSON_NOT_STORED;
use super::{Api, Request};

impl Api {
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
        let bucket = match self.begun(bucket) {
            Ok(bucket) => bucket,
            Err(step) => return step.or_fail(self, request, out),
        };
        let question = PageQuestion {
            bucket,
            prefix: query.prefix.into_owned(),
            after: query.after.into_owned(),
            limit: query.limit,
        };
        let (api, manner) = (self.clone(), request.manner);
        OneShot::step(async move { api.list(manner, question).await })
    }

    async fn list(&self, manner: Manner, question: PageQuestion) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        let pages = self.gather(&question).await.and_then(|pages| {
            // It may have ended meanwhile: then what was found, nothing, is no page of a bucket that is there.
            let buckets = self.shard.buckets.borrow();
            buckets.life(&question.bucket).map(|_| pages).ok_or(BUCKET_NOT_FOUND)
        });
        match pages {
            Ok(pages) => {
                let mut answer = self.answer(&mut out, Status::OK, manner);
                answer.lines(JSON_NOT_STORED);
                answer.body(&body(&question, &pages));
            }
            Err(problem) => self.problem(&mut out, manner, &problem),
        }
        (out, Fill::End)
    }

    /// Enough pages of all shards to make the page that is asked for.
    async fn gather(&self, question: &PageQuestion) -> Result<Vec<ShardPage>, Problem> {
        let asked = self.ask_others(|page| BucketMail::Page { question: question.clone(), page });
        let here = page_here(&self.shard, question).await;
        let mut pages = self.all_answers(asked).await?;
        pages.push(here);
        Ok(pages)
    }
}

/// A page of a bucket's streams on this shard.
pub async fn page_here(shard: &Shard, question: &PageQuestion) -> ShardPage {
    let (now_ms, _) = shard.expire_before_now().await;
    let mut page = ShardPage::default();
    let mut walked = None;
    while let Some(last) = turn(shard, question, now_ms, walked.as_deref(), &mut page) {
        walked = Some(last);
        crate::signal::give_way().await;
    }
    page
}

/// Walks on for a turn; returns the last id that it saw, or nothing if the page is complete.
fn turn(
    shard: &Shard,
    question: &PageQuestion,
    now_ms: u64,
    walked: Option<&[u8]>,
    page: &mut ShardPage,
) -> Option<Vec<u8>> {
    let PageQuestion { bucket, prefix, after, limit } = question;
    let (table, buckets) = (shard.table.borrow(), shard.buckets.borrow());
    let from = match walked {
        Some(walked) => Bound::Excluded(walked),
        None if !after.is_empty() && after >= prefix => Bound::Excluded(&after[..]),
        None => Bound::Included(&prefix[..]),
    };
    let mut seen = 0;
    for (id, stream) in buckets.streams(&table, bucket, from) {
        if !id.starts_with(prefix) {
            return None;
        }
        if is_listed(shard, stream, now_ms) {
            if page.len() == *limit {
                page.more = true;
                return None;
            }
            page.push(id, |out| write_entry(out, id, stream));
        }
        seen += 1;
        if seen == LISTED_PER_TURN_MAX {
            return Some(id.to_vec());
        }
    }
    None
}

/// Streams of a bucket on this shard that are listed, looked at one by one.
pub async fn count_listed(shard: &Shard, bucket: &BucketRecord, now_ms: u64) -> u64 {
    let (mut count, mut walked) = (0, Some(Vec::new()));
    while let Some(last) = walked.take() {
        {
            let (table, buckets) = (shard.table.borrow(), shard.buckets.borrow());
            let mut streams = buckets.streams(&table, bucket, Bound::Excluded(&last[..]));
            for (id, stream) in streams.by_ref().take(LISTED_PER_TURN_MAX) {
                count += u64::from(is_listed(shard, stream, now_ms));
                walked = Some(id.to_vec());
            }
        }
        crate::signal::give_way().await;
    }
    count
}

/// Whether a stream is there for a listing and for a count: durable, and not expired (decision 4). Expired streams are
/// deleted first; only where the log takes no deletes any more are there some to leave out.
pub fn is_listed(shard: &Shard, stream: &Stream, now_ms: u64) -> bool {
    shard.is_visible(stream) && !expiry::is_expired(stream, now_ms)
}

/// Appends `"name":value`.
fn write_number(out: &mut Vec<u8>, name: &'static str, value: u64) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    digits::write_u64(out, value);
}

/// Appends bytes that are UTF-8 as a JSON string.
fn write_text(out: &mut Vec<u8>, bytes: &[u8]) {
    write_json_string(out, &String::from_utf8_lossy(bytes));
}

/// Appends what the listing says of a stream.
fn write_entry(out: &mut Vec<u8>, id: &[u8], stream: &Stream) {
    out.extend_from_slice(b"{\"stream_id\":");
    write_text(out, id);
    let status: &[u8] = match stream.durable.closed {
        true => b",\"status\":\"Closed\",\"content_type\":",
        false => b",\"status\":\"Open\",\"content_type\":",
    };
    out.extend_from_slice(status);
    write_text(out, &stream.content_type.bytes);
    for (name, value) in [
        ("tail_offset", stream.durable.bytes),
        ("created_at_ms", stream.created_ms),
        ("last_write_at_ms", stream.last_write_ms),
    ] {
        out.push(b',');
        write_number(out, name, value);
    }
    out.push(b'}');
}

/// The body of a listing, merged from what the shards have.
fn body(question: &PageQuestion, pages: &[ShardPage]) -> Vec<u8> {
    let mut streams: Vec<(&[u8], &[u8])> = pages.iter().flat_map(ShardPage::iter).collect();
    streams.sort_unstable_by_key(|(id, _)| *id);
    let more = streams.len() > question.limit || pages.iter().any(|page| page.more);
    streams.truncate(question.limit);
    let entry_bytes: usize = streams.iter().map(|(_, entry)| entry.len() + 1).sum();
    let mut out = Vec::with_capacity(entry_bytes + 1024);
    out.extend_from_slice(b"{\"bucket_id\":");
    write_text(&mut out, &question.bucket.bucket);
    out.extend_from_slice(b",\"prefix\":");
    write_text(&mut out, &question.prefix);
    out.push(b',');
    write_number(&mut out, "stream_count", streams.len() as u64);
    out.extend_from_slice(b",\"streams\":[");
    for (index, (_, entry)) in streams.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(entry);
    }
    out.extend_from_slice(b"],\"next_cursor\":");
    match streams.last().filter(|_| more) {
        Some((last, _)) => write_text(&mut out, last),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(if more { b",\"has_more\":true}" } else { b",\"has_more\":false}" });
    out
}
