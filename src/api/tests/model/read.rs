//! What a read must answer: where it starts, and what a page that starts there may hold.

use super::exchange::Answer;
use super::operation::{From, Offset, Read};
use super::oracle::{Stream, World};
use super::predict::{Body, Expected};

/// How a page shows its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As they are.
    Raw,
    /// A JSON array.
    Array,
    /// A record a line.
    Lines,
    /// An envelope a line.
    Envelopes,
}

/// A page, as far as its request says what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Where it starts.
    pub from: u64,
    /// How it shows messages.
    pub view: View,
    /// Bytes, at most, unless a single record has more.
    pub bytes_max: u64,
    /// Records, at most.
    pub records_max: u64,
    /// Whether it tells ordinals.
    pub by_record: bool,
    /// Whether it has an entity tag.
    pub has_tag: bool,
}

/// The offset at which a read starts, or why it cannot.
fn start_of(world: &World, stream: &Stream, read: &Read) -> Result<u64, Expected> {
    let refused = |code| Err(Expected::error(400, code));
    let is_by_record = read.is_by_record();
    let uses_records = is_by_record || read.max_records.is_some() || read.envelope;
    if uses_records && read.max_bytes.is_some() {
        return refused("INVALID_MAX_BYTES");
    }
    if uses_records && !is_by_record {
        return refused("RECORD_START_REQUIRED");
    }
    if read.live && read.from == From::Nowhere {
        return refused("OFFSET_REQUIRED");
    }
    if uses_records && !stream.is_json() {
        return refused("RECORDS_UNSUPPORTED");
    }
    let ordinal = match read.from {
        From::Nowhere => return at_offset(world, stream, Offset::Start),
        From::Offset(offset) => return at_offset(world, stream, offset),
        From::Record(record) => record,
        From::RecordNow => stream.next(),
        From::Tail(count) => stream.next().saturating_sub(count).max(stream.first),
    };
    if ordinal < stream.first {
        return Err(Expected::error(410, "RECORD_GONE").retained(stream));
    }
    if ordinal > stream.next() {
        return Err(Expected::error(400, "RECORD_BEYOND_TAIL").first_and_next(stream, stream.next()));
    }
    Ok(stream.offset_of(ordinal))
}

fn at_offset(world: &World, stream: &Stream, offset: Offset) -> Result<u64, Expected> {
    let at = match offset {
        Offset::Start => 0,
        Offset::Now => stream.tail(),
        Offset::Plain(at) => at,
        Offset::Token(lineage, at) => {
            world.check_lineage(stream, lineage)?;
            at
        }
    };
    if at > stream.tail() {
        return Err(Expected::error(400, "OFFSET_BEYOND_TAIL"));
    }
    if at < stream.first_offset() {
        return Err(Expected::error(410, "OFFSET_GONE").retained(stream));
    }
    if stream.is_json() && stream.ordinal_at(at).is_none() {
        return Err(Expected::error(400, "OFFSET_NOT_ALIGNED"));
    }
    Ok(at)
}

/// Whether a long-poll would find nothing to say yet.
pub fn would_wait(world: &World, name: usize, read: &Read) -> bool {
    let Some(stream) = world.streams.get(&name) else { return false };
    !stream.closed && start_of(world, stream, read).is_ok_and(|from| from == stream.tail())
}

/// What a read of a stream must answer.
pub fn page_of(world: &World, name: usize, read: &Read) -> Expected {
    let stream = &world.streams[&name];
    let from = match start_of(world, stream, read) {
        Ok(from) => from,
        Err(refused) => return refused,
    };
    let by_record = read.is_by_record();
    if read.live && from == stream.tail() {
        assert!(stream.closed, "a long-poll at the tail is not awaited like other requests");
        let at = by_record.then(|| stream.next().to_string());
        return Expected::status(204)
            .end(stream)
            .with("Stream-Up-To-Date", "true")
            .with_or_without("Stream-Record-First", at.as_ref().map(|_| stream.first.to_string()))
            .with_or_without("Stream-Record-Start", at.clone())
            .with_or_without("Stream-Record-Next", at);
    }
    let view = match stream.is_json() {
        false => View::Raw,
        true if read.envelope => View::Envelopes,
        true if by_record || (read.lines && !read.live) => View::Lines,
        true => View::Array,
    };
    let bytes_max = if read.live { None } else { read.max_bytes };
    let from_tail = matches!(read.from, From::Offset(Offset::Now) | From::RecordNow | From::Tail(_));
    let page = Page {
        from,
        view,
        bytes_max: world.page_bytes.min(bytes_max.unwrap_or(u64::MAX)),
        records_max: read.max_records.unwrap_or(u64::MAX),
        by_record,
        has_tag: !from_tail,
    };
    Expected::status(200).body(Body::Page(page))
}

impl Page {
    /// Checks the page that an answer holds; returns where it ends.
    pub fn check(&self, stream: &Stream, answer: &Answer) -> u64 {
        let (lineage, to) = answer.next_offset();
        assert_eq!(Some(lineage), stream.lineage, "the page is of another stream");
        assert!(
            self.from <= to && to <= stream.tail(),
            "a page from {} to {to} of {}",
            self.from,
            stream.tail()
        );
        match stream.is_json() {
            true => self.check_records(stream, to, answer),
            false => self.check_bytes(stream, to, answer),
        }
        let flag = |set: bool| set.then_some("true");
        assert_eq!(answer.header("stream-up-to-date"), flag(to == stream.tail()), "ends at {to}");
        assert_eq!(
            answer.header("stream-closed"),
            flag(to == stream.tail() && stream.closed),
            "ends at {to}"
        );
        to
    }

    fn check_bytes(&self, stream: &Stream, to: u64, answer: &Answer) {
        let exact = stream.tail().min(self.from + self.bytes_max);
        assert_eq!(to, exact, "a page of bytes is cut exactly");
        assert!(answer.body == stream.bytes(self.from, to), "bytes {} to {to}: {answer:?}", self.from);
        assert_eq!(answer.required("content-type"), stream.kind.content_type());
        assert_eq!(answer.header("stream-record-start"), None, "no records there");
    }

    fn check_records(&self, stream: &Stream, to: u64, answer: &Answer) {
        let first = stream.ordinal_at(self.from).expect("a page starts at a record");
        let next = stream.ordinal_at(to).unwrap_or_else(|| panic!("a page ends within a record, at {to}"));
        let count = next - first;
        assert!(count <= self.records_max, "{count} records are more than {}", self.records_max);
        assert!(count > 0 || to == stream.tail(), "an empty page before the tail");
        assert!(count <= 1 || to - self.from <= self.bytes_max, "{} bytes", to - self.from);
        let is_full = to == stream.tail()
            || count == self.records_max
            || stream.offset_of(next + 1) - self.from > self.bytes_max;
        assert!(is_full || self.view == View::Envelopes, "a page of {count} records might hold more");
        let told = |name| answer.header(name).map(|text| text.parse::<u64>().expect("a number"));
        let coordinates =
            (told("stream-record-first"), told("stream-record-start"), told("stream-record-next"));
        let expected = match self.by_record {
            true => (Some(stream.first), Some(first), Some(next)),
            // Who does not ask by record is told nothing new.
            false => (None, None, None),
        };
        assert_eq!(coordinates, expected, "first, start and next record");
        let records = stream.messages(first, next);
        assert_eq!(answer.required("content-type"), self.content_type());
        let body = self.body(first, records);
        assert!(answer.body == body, "records {first} to {next}: {answer:?}");
    }

    fn content_type(&self) -> &'static str {
        match self.view {
            View::Raw => unreachable!("records are not shown as they are"),
            View::Array => "application/json",
            View::Lines => "application/x-ndjson",
            View::Envelopes => "application/vnd.durable-stream-records+ndjson",
        }
    }

    fn body(&self, first: u64, records: &[super::oracle::Message]) -> Vec<u8> {
        let mut body = Vec::new();
        match self.view {
            View::Raw => unreachable!("records are not shown as they are"),
            View::Array => {
                body.push(b'[');
                body.extend_from_slice(&records.join(&b","[..]));
                body.push(b']');
            }
            View::Lines => {
                for record in records {
                    body.extend_from_slice(record);
                    body.push(b'\n');
                }
            }
            View::Envelopes => {
                for (ordinal, record) in (first..).zip(records) {
                    body.extend_from_slice(format!("{{\"record\":{ordinal},\"value\":").as_bytes());
                    body.extend_from_slice(record);
                    body.extend_from_slice(b"}\n");
                }
            }
        }
        body
    }
}
