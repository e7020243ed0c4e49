//! `GET {stream}`: catch-up reads (base protocol 5.6; extension 6.6 to 6.8; decisions 8 to 10, 12 to 14, 26, 32), and the
//! way to the live ones.

use crate::http::service::{Fill, OneShot, Step};
use crate::http::{Answer, Known, Status};
use crate::limits;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::offset::OffsetArg;
use crate::protocol::query::{Live, ReadQuery, StartArg};
use crate::protocol::records::RecordStart;
use crate::protocol::{envelope, etag, headers, json};
use crate::shard::stream::{Start, Stream};
use crate::shard::table::StreamId;
use crate::storage::log::{Held, ReadError};

use super::answer::{Manner, record_range, retained_headers};
use super::hot::Heat;
use super::{Api, Named, Request, range, start};

/// How the bytes of a page are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// As they are: byte streams.
    Raw,
    /// One JSON array.
    Array,
    /// One record a line.
    Lines,
    /// One envelope of a record a line.
    Envelopes,
}

/// What a read wants of a stream, once it is known where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Where it starts.
    pub from: Start,
    /// How bytes are shown.
    pub view: View,
    /// Records, at most.
    pub records_max: u64,
    /// Whether it is record-aware: its answers tell ordinals.
    pub by_record: bool,
    /// Whether it starts relative to the tail, so that no cache may keep its answer.
    pub from_tail: bool,
}

impl Wanted {
    fn of(stream: &Stream, query: &ReadQuery, start: StartArg, from: Start) -> Self {
        let by_record = query.records.start.is_some();
        let from_tail =
            matches!(start, StartArg::Offset(OffsetArg::Now) | StartArg::Record(RecordStart::Tail(_)));
        let view = match (stream.is_json(), by_record) {
            (false, _) => View::Raw,
            (true, false) => View::Array,
            (true, true) if query.records.envelope => View::Envelopes,
            (true, true) => View::Lines,
        };
        let records_max = query.records.max_records.unwrap_or(u64::MAX);
        Self { from, view, records_max, by_record, from_tail }
    }

    /// Adds what an answer without data says of the records (extension 6.7).
    pub fn empty_headers(&self, answer: &mut Answer<'_>, stream: &Stream) {
        if self.by_record {
            answer.header_u64("Stream-Record-First", stream.first().records);
            record_range(answer, self.from.records, self.from.records);
        }
    }
}

/// Everything an answer with data says, so that it can be written before or after its bytes are read.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The stream.
    pub id: StreamId,
    /// What was asked for; it starts there.
    pub wanted: Wanted,
    /// End of the page.
    pub to: Start,
    /// Whether the page ends at the durable tail.
    pub at_tail: bool,
    /// Whether nothing can follow the page.
    pub closed: bool,
    /// `Stream-Cursor`, for a live read.
    pub cursor: Option<u64>,
}

impl Page {
    /// The page of a stream that holds what is wanted, as far as about `page_bytes` reach.
    pub fn of(id: StreamId, stream: &Stream, wanted: Wanted, page_bytes: u64) -> Self {
        let records_max = match wanted.view {
            View::Raw | View::Array | View::Lines => wanted.records_max,
            View::Envelopes => wanted.records_max.min(page_bytes.div_ceil(limits::ENVELOPE_RECORD_BYTES_MIN)),
        };
        let to = range::page_end(stream, wanted.from, page_bytes, records_max);
        let at_tail = to.bytes == stream.durable.bytes;
        let closed = at_tail && stream.durable.closed;
        Self { id, wanted, to, at_tail, closed, cursor: None }
    }

    /// Bytes of the stream that it shows.
    fn stored_bytes(&self) -> u64 {
        self.to.bytes - self.wanted.from.bytes
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> u64 {
        match (self.wanted.view, self.stored_bytes()) {
            (View::Raw | View::Lines, bytes) => bytes,
            // The brackets come, the last separator goes.
            (View::Array, 0) => 2,
            (View::Array, bytes) => bytes + 1,
            (View::Envelopes, bytes) => {
                envelope::page_bytes(bytes, self.wanted.from.records..self.to.records)
            }
        }
    }

    fn write_etag(&self, out: &mut Vec<u8>) {
        let representation = match self.wanted.view {
            View::Raw | View::Array => etag::Representation::Plain,
            View::Lines => etag::Representation::Ndjson,
            View::Envelopes => etag::Representation::Envelopes,
        };
        let page = etag::Page {
            lineage: self.id.lineage,
            start: self.wanted.from.bytes,
            end: self.to.bytes,
            closed: self.closed,
            representation,
        };
        etag::write(out, &page);
    }

    fn cache_control(&self) -> &'static str {
        match (self.wanted.from_tail, self.cursor, self.at_tail) {
            (true, _, _) => "Cache-Control: no-store\r\n",
            (false, None, true) => "Cache-Control: no-cache\r\n",
            _ => "Cache-Control: public, max-age=60, stale-while-revalidate=300\r\n",
        }
    }
}

impl Api {
    /// Serves `GET`.
    pub fn read(&self, request: &Request<'_>, named: Named<'_>, out: &mut Vec<u8>) -> Step {
        let id = match self.find_durable(named) {
            Ok(id) => id,
            Err(missing) => return self.answer_404(request, named, out, missing),
        };
        let request = &self.about(request, id);
        let parsed = ReadQuery::parse(request.head.query)
            .and_then(|query| Ok((query.start(request.head.get(Known::LastEventId))?, query)));
        let (start, query) = match parsed {
            Ok(parsed) => parsed,
            Err(problem) => return self.fail(request, out, &problem),
        };
        let wanted = match self.wanted(id, &query, start) {
            Ok(wanted) => wanted,
            Err(refused) => {
                let table = self.shard.table.borrow();
                let stream = table.get(id).expect("found above");
                self.problem_with(out, request.manner, refused.problem(), |answer| {
                    refused.headers(answer, stream);
                });
                return Step::Done;
            }
        };
        self.shard.touch(id);
        match query.live {
            None => self.read_page(request, id, &query, wanted, out),
            Some(Live::LongPoll) => self.long_poll(request, id, &query, wanted, out),
            Some(Live::Sse) => self.sse(request, id, &query, wanted, out),
        }
    }

    fn wanted(&self, id: StreamId, query: &ReadQuery, start: StartArg) -> Result<Wanted, start::Refused> {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found by the caller");
        // A Last-Event-ID may stand in for the record that the URL names, but records it must have (decision 26).
        if !stream.is_json() && query.records.is_used() {
            return Err(start::RECORDS_UNSUPPORTED);
        }
        let from = start::resolve(stream, start, &self.shard.lineages)?;
        Ok(Wanted::of(stream, query, start, from))
    }

    fn read_page(
        &self,
        request: &Request<'_>,
        id: StreamId,
        query: &ReadQuery,
        mut wanted: Wanted,
        out: &mut Vec<u8>,
    ) -> Step {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        if wanted.view == View::Array && headers::wants_ndjson(request.head.get(Known::Accept)) {
            wanted.view = View::Lines;
        }
        let page_bytes = self.shard.config.read_page_bytes.min(query.max_bytes.unwrap_or(u64::MAX));
        let page = Page::of(id, stream, wanted, page_bytes);
        if !wanted.from_tail {
            let matches = |value| {
                let mut tag = Vec::new();
                page.write_etag(&mut tag);
                etag::if_none_match_matches(value, &tag)
            };
            if request.head.values(Known::IfNoneMatch).any(matches) {
                self.not_modified(request.manner, stream, &page, out);
                return Step::Done;
            }
        }
        self.page(request.manner, stream, page, out)
    }

    fn not_modified(&self, manner: Manner, stream: &Stream, page: &Page, out: &mut Vec<u8>) {
        let mut answer = self.answer(out, Status::NOT_MODIFIED, manner);
        page_headers(&mut answer, stream, page);
        answer.no_body();
    }

    /// Answers with a page: at once from memory, or by a future that reads it from disk.
    pub fn page(&self, manner: Manner, stream: &Stream, page: Page, out: &mut Vec<u8>) -> Step {
        let begin = out.len();
        let heat = self.hot.borrow_mut().heat(&page);
        if let Heat::Hot(body) = heat {
            let mut answer = self.answer(out, Status::OK, manner);
            page_headers(&mut answer, stream, &page);
            answer.length_then(body.len() as u64).expect("a GET has a body");
            return Step::Lent(body);
        }
        let keep = matches!(heat, Heat::Warm);
        if self.page_from_memory(manner, stream, &page, out) {
            if keep {
                self.keep(&page, out);
            }
            return Step::Done;
        }
        out.truncate(begin);
        let pieces = range::pieces(&self.shard, stream, page.wanted.from.bytes, page.to.bytes);
        let api = self.clone();
        OneShot::step(async move { (api.page_from_disk(manner, page, &pieces, keep).await, Fill::End) })
    }

    /// Keeps a page whose answer ends `out`.
    fn keep(&self, page: &Page, out: &[u8]) {
        let body_begin = out.len() - page.body_bytes() as usize;
        self.hot.borrow_mut().keep(page, &out[body_begin..]);
    }

    /// Appends the whole answer if its bytes are in memory; else `out` holds rubbish past its former end.
    pub fn page_from_memory(&self, manner: Manner, stream: &Stream, page: &Page, out: &mut Vec<u8>) -> bool {
        let mut answer = self.answer(out, Status::OK, manner);
        page_headers(&mut answer, stream, page);
        let Some(out) = answer.length_then(page.body_bytes()) else { return true };
        out.reserve(page.body_bytes() as usize);
        let (from, to) = (page.wanted.from.bytes, page.to.bytes);
        if page.wanted.view == View::Envelopes {
            let mut bytes = Vec::with_capacity(page.stored_bytes() as usize);
            let copied = range::copy_cached(&self.shard, stream, from, to, &mut bytes);
            if copied {
                write_envelopes(out, &bytes, stream, page);
            }
            return copied;
        }
        let begin = begin_body(out, page.wanted.view);
        let copied = range::copy_cached(&self.shard, stream, from, to, out);
        if copied {
            end_body(out, begin, stream, page);
        }
        copied
    }

    /// The whole answer, with its bytes read from disk. `keep`: its page is to be kept.
    pub async fn page_from_disk(&self, manner: Manner, page: Page, pieces: &Held, keep: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(page.stored_bytes() as usize);
        let read = self.shard.log.read(pieces, &mut bytes).await;
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        let table = self.shard.table.borrow();
        let Some(stream) = table.get(page.id) else {
            self.problem(&mut out, manner, &super::answer::STREAM_NOT_FOUND);
            return out;
        };
        if page.wanted.from.bytes < stream.first().bytes {
            // Retention went past the page while it was read.
            let headers = |answer: &mut Answer<'_>| retained_headers(answer, stream);
            self.problem_with(&mut out, manner, &start::OFFSET_TRIMMED, headers);
            return out;
        }
        if let Err(error) = read {
            self.problem(&mut out, manner, &failed(self, page.id, &error));
            return out;
        }
        let mut answer = self.answer(&mut out, Status::OK, manner);
        page_headers(&mut answer, stream, &page);
        match answer.length_then(page.body_bytes()) {
            Some(out) if page.wanted.view == View::Envelopes => write_envelopes(out, &bytes, stream, &page),
            Some(out) => {
                let begin = begin_body(out, page.wanted.view);
                out.extend_from_slice(&bytes);
                end_body(out, begin, stream, &page);
                if keep {
                    self.keep(&page, out);
                }
            }
            None => {}
        }
        out
    }
}

/// Logs that stored bytes could not be read; the problem that the client is told.
pub fn failed(api: &Api, id: StreamId, error: &ReadError) -> Problem {
    eprintln!("thalweg: shard {}: read of stream {} failed: {error}", api.shard.index, id.lineage);
    let message = "stored bytes could not be read, or are damaged; see the server's log";
    Problem::fixed(Code::ReadFailed, message)
}

/// The headers of an answer about a page.
fn page_headers(answer: &mut Answer<'_>, stream: &Stream, page: &Page) {
    let content_type: &[u8] = match page.wanted.view {
        View::Raw => &stream.content_type.bytes,
        View::Array => b"application/json",
        View::Lines => b"application/x-ndjson",
        View::Envelopes => envelope::PAGE_TYPE,
    };
    answer.header("Content-Type", content_type);
    answer.token("Stream-Next-Offset", page.id.lineage, page.to.bytes);
    if page.wanted.by_record {
        answer.header_u64("Stream-Record-First", stream.first().records);
        record_range(answer, page.wanted.from.records, page.to.records);
    }
    if page.at_tail {
        answer.lines("Stream-Up-To-Date: true\r\n");
    }
    if page.closed {
        answer.lines("Stream-Closed: true\r\n");
    }
    if let Some(cursor) = page.cursor {
        answer.header_u64("Stream-Cursor", cursor);
    }
    if !page.wanted.from_tail {
        answer.header_with("ETag", |out| page.write_etag(out));
    }
    let is_negotiated = page.wanted.view != View::Raw && page.cursor.is_none() && !page.wanted.by_record;
    if is_negotiated {
        answer.lines("Vary: Accept\r\n");
    }
    answer.lines(page.cache_control());
}

/// Opens a body; returns where its stream bytes begin.
fn begin_body(out: &mut Vec<u8>, view: View) -> usize {
    if view == View::Array {
        out.push(b'[');
    }
    out.len()
}

/// Closes a body whose stream bytes begin at `begin`.
fn end_body(out: &mut Vec<u8>, begin: usize, stream: &Stream, page: &Page) {
    match page.wanted.view {
        View::Raw => {}
        View::Array => {
            if out.len() > begin {
                let separator = out.pop();
                assert_eq!(separator, Some(b','), "records of stream {} end in a separator", page.id.lineage);
            }
            out.push(b']');
        }
        View::Lines => {
            json::separators_to_lines(&mut out[begin..], lengths(stream, page));
        }
        View::Envelopes => unreachable!("envelopes are not written in place"),
    }
}

/// Writes a body of envelopes of the page's `bytes`.
fn write_envelopes(out: &mut Vec<u8>, bytes: &[u8], stream: &Stream, page: &Page) {
    envelope::write_page(out, bytes, page.wanted.from.records, lengths(stream, page));
}

/// Lengths of the records on a page.
fn lengths<'s>(stream: &'s Stream, page: &Page) -> impl Iterator<Item = u32> + use<'s> {
    let (from, to) = (page.wanted.from.records, page.to.records);
    stream.index.lengths_from(from).take((to - from) as usize)
}
