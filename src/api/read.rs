//! `GET {stream}`: catch-up reads (base protocol 5.6; decisions 8 to 10, 12, 13, 32), and the way to the live ones.

use crate::http::service::{Fill, OneShot, Step};
use crate::http::{Known, Status};
use crate::protocol::errors::{Code, Problem};
use crate::protocol::etag;
use crate::protocol::query::{Live, ReadQuery};
use crate::protocol::{headers, json, offset::OffsetArg};
use crate::shard::stream::Stream;
use crate::shard::table::StreamId;
use crate::storage::log::Held;

use super::answer::Manner;
use super::{Api, Named, Request, range, start};

/// How the bytes of a page are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As they are: byte streams.
    Raw,
    /// One JSON array.
    Array,
    /// One record a line.
    Lines,
}

/// Everything an answer with data says, so that it can be written before or after its bytes are read.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The stream.
    pub id: StreamId,
    /// First byte.
    pub from: u64,
    /// End of the page.
    pub to: u64,
    /// Whether the page ends at the durable tail.
    pub at_tail: bool,
    /// Whether nothing can follow the page.
    pub closed: bool,
    /// How the bytes are shown.
    pub view: View,
    /// `Stream-Cursor`, for a live read.
    pub cursor: Option<u64>,
    /// Whether the read asked for the present tail, which no cache may keep.
    pub now: bool,
}

impl Page {
    /// The page of a stream that starts at `from`.
    pub fn of(id: StreamId, stream: &Stream, from: u64, page_bytes: u64, view: View) -> Self {
        let to = range::page_end(stream, from, page_bytes);
        let at_tail = to == stream.durable.bytes;
        let closed = at_tail && stream.durable.closed;
        Self { id, from, to, at_tail, closed, view, cursor: None, now: false }
    }

    /// Bytes of the body.
    fn body_bytes(&self) -> u64 {
        match self.view {
            View::Raw | View::Lines => self.to - self.from,
            // The brackets come, the last separator goes.
            View::Array if self.to == self.from => 2,
            View::Array => self.to - self.from + 1,
        }
    }

    fn write_etag(&self, out: &mut Vec<u8>) {
        let representation = match self.view {
            View::Raw | View::Array => etag::Representation::Plain,
            View::Lines => etag::Representation::Ndjson,
        };
        let page = etag::Page {
            lineage: self.id.lineage,
            start: self.from,
            end: self.to,
            closed: self.closed,
            representation,
        };
        etag::write(out, &page);
    }

    fn cache_control(&self) -> &'static str {
        match (self.now, self.cursor, self.at_tail) {
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
        let started = ReadQuery::parse(request.head.query).and_then(|query| {
            let offset = query.start(request.head.get(Known::LastEventId))?;
            let table = self.shard.table.borrow();
            let stream = table.get(id).expect("found above");
            if query.has_record_parameters {
                return Err(Problem::fixed(Code::RecordsUnsupported, "this stream is not read by records"));
            }
            Ok((query, offset, start::resolve(stream, offset, &self.shard.lineages)?))
        });
        let (query, offset, from) = match started {
            Ok(started) => started,
            Err(problem) => return self.fail(request, out, &problem),
        };
        self.shard.touch(id);
        match query.live {
            None => self.read_page(request, id, &query, offset, from, out),
            Some(Live::LongPoll) => self.long_poll(request, id, &query, from, out),
            Some(Live::Sse) => self.sse(request, id, &query, from, out),
        }
    }

    fn read_page(
        &self,
        request: &Request<'_>,
        id: StreamId,
        query: &ReadQuery,
        offset: OffsetArg,
        from: u64,
        out: &mut Vec<u8>,
    ) -> Step {
        let table = self.shard.table.borrow();
        let stream = table.get(id).expect("found above");
        let view = match stream.is_json() {
            false => View::Raw,
            true if headers::wants_ndjson(request.head.get(Known::Accept)) => View::Lines,
            true => View::Array,
        };
        let page_bytes = self.shard.config.read_page_bytes.min(query.max_bytes.unwrap_or(u64::MAX));
        let mut page = Page::of(id, stream, from, page_bytes, view);
        page.now = offset == OffsetArg::Now;
        if !page.now {
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
        if self.page_from_memory(manner, stream, &page, out) {
            return Step::Done;
        }
        out.truncate(begin);
        let pieces = range::pieces(&self.shard, stream, page.from, page.to);
        let api = self.clone();
        OneShot::step(async move { (api.page_from_disk(manner, page, &pieces).await, Fill::End) })
    }

    /// Appends the whole answer if its bytes are in memory; else `out` holds rubbish past its former end.
    pub fn page_from_memory(&self, manner: Manner, stream: &Stream, page: &Page, out: &mut Vec<u8>) -> bool {
        let mut answer = self.answer(out, Status::OK, manner);
        page_headers(&mut answer, stream, page);
        let Some(out) = answer.length_then(page.body_bytes()) else { return true };
        out.reserve(page.body_bytes() as usize);
        let begin = begin_body(out, page.view);
        let copied = range::copy_cached(&self.shard, stream, page.from, page.to, out);
        if copied {
            end_body(out, begin, stream, page);
        }
        copied
    }

    /// The whole answer, with its bytes read from disk.
    pub async fn page_from_disk(&self, manner: Manner, page: Page, pieces: &Held) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((page.to - page.from) as usize);
        let read = self.shard.log.read(pieces, &mut bytes).await;
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        let table = self.shard.table.borrow();
        let Some(stream) = table.get(page.id) else {
            self.problem(&mut out, manner, &super::answer::STREAM_NOT_FOUND);
            return out;
        };
        if let Err(error) = read {
            eprintln!(
                "thalweg: shard {}: read of stream {} failed: {error}",
                self.shard.index, page.id.lineage
            );
            let message = "stored bytes could not be read, or are damaged; see the server's log";
            self.problem(&mut out, manner, &Problem::fixed(Code::ReadFailed, message));
            return out;
        }
        let mut answer = self.answer(&mut out, Status::OK, manner);
        page_headers(&mut answer, stream, &page);
        if let Some(out) = answer.length_then(page.body_bytes()) {
            let begin = begin_body(out, page.view);
            out.extend_from_slice(&bytes);
            end_body(out, begin, stream, &page);
        }
        out
    }
}

/// The headers of an answer about a page.
fn page_headers(answer: &mut crate::http::Answer<'_>, stream: &Stream, page: &Page) {
    let content_type: &[u8] = match page.view {
        View::Raw => &stream.content_type.bytes,
        View::Array => b"application/json",
        View::Lines => b"application/x-ndjson",
    };
    answer.header("Content-Type", content_type);
    answer.token("Stream-Next-Offset", page.id.lineage, page.to);
    if page.at_tail {
        answer.lines("Stream-Up-To-Date: true\r\n");
    }
    if page.closed {
        answer.lines("Stream-Closed: true\r\n");
    }
    if let Some(cursor) = page.cursor {
        answer.header_u64("Stream-Cursor", cursor);
    }
    if !page.now {
        answer.header_with("ETag", |out| page.write_etag(out));
    }
    if page.view != View::Raw && page.cursor.is_none() {
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
    match page.view {
        View::Raw => {}
        View::Array => {
            if out.len() > begin {
                let separator = out.pop();
                assert_eq!(separator, Some(b','), "records of stream {} end in a separator", page.id.lineage);
            }
            out.push(b']');
        }
        View::Lines => {
            let first = stream.index.locate(page.from).ordinal;
            json::separators_to_lines(&mut out[begin..], stream.index.lengths_from(first));
        }
    }
}
