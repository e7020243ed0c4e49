//! What an operation does to the world, and what its answer must say.

use serde_json::{Value, json};

use super::exchange::Answer;
use super::operation::{Act, Append, Boundary, Content, Create, Offset, Operation, Publish};
use super::oracle::{Kind, Producer, Snapshot, Stream, World, kept_attributes};
use super::read::{Page, page_of};

/// What an answer must say.
#[derive(Debug)]
pub struct Expected {
    /// Status.
    pub status: u16,
    /// Code of the error.
    pub code: Option<&'static str>,
    /// Headers that must be there with this value, or must not be there.
    pub headers: Vec<(&'static str, Option<String>)>,
    /// Body.
    pub body: Body,
}

/// What a body must be.
#[derive(Debug)]
pub enum Body {
    /// An error, or nothing worth a look.
    Any,
    /// Just these bytes.
    Exactly(Vec<u8>),
    /// This JSON value.
    Json(Value),
    /// A page of a read.
    Page(Page),
    /// Acknowledgements of a batch, without their texts.
    Acknowledgements(Vec<Value>),
    /// Parts of a bootstrap: content types and bodies.
    Parts(Vec<(String, Vec<u8>)>),
}

impl Expected {
    /// An answer without headers of interest.
    pub fn status(status: u16) -> Expected {
        Expected { status, code: None, headers: Vec::new(), body: Body::Any }
    }

    /// An error.
    pub fn error(status: u16, code: &'static str) -> Expected {
        Expected { code: Some(code), ..Expected::status(status) }
    }

    /// With a header.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Expected {
        self.headers.push((name, Some(value.to_string())));
        self
    }

    /// With a header if there is a value, else without.
    pub fn with_or_without(mut self, name: &'static str, value: Option<String>) -> Expected {
        self.headers.push((name, value));
        self
    }

    /// With a body.
    pub fn body(self, body: Body) -> Expected {
        Expected { body, ..self }
    }

    /// With the end of a stream.
    pub fn end(self, stream: &Stream) -> Expected {
        self.with("Stream-Next-Offset", stream.token(stream.tail())).closed(stream.closed)
    }

    /// Says whether the stream is closed.
    pub fn closed(self, closed: bool) -> Expected {
        self.with_or_without("Stream-Closed", closed.then(|| "true".to_owned()))
    }

    /// With a range of records, if it is a stream of records; else without.
    pub fn range(self, stream: &Stream, start: u64, next: u64) -> Expected {
        let of_records = |n: u64| stream.is_json().then(|| n.to_string());
        self.with_or_without("Stream-Record-Start", of_records(start))
            .with_or_without("Stream-Record-Next", of_records(next))
    }

    /// With the first record and a next one, likewise.
    pub fn first_and_next(self, stream: &Stream, next: u64) -> Expected {
        let of_records = |n: u64| stream.is_json().then(|| n.to_string());
        self.with_or_without("Stream-Record-First", of_records(stream.first))
            .with_or_without("Stream-Record-Next", of_records(next))
    }

    /// With what leads a reader of trimmed data on (decision 10).
    pub fn retained(self, stream: &Stream) -> Expected {
        let first = stream.token(stream.first_offset());
        self.with("Stream-Next-Offset", first).first_and_next(stream, stream.next())
    }

    /// With the visible snapshot, or without one.
    pub fn snapshot(self, stream: &Stream) -> Expected {
        let snapshot = stream.snapshot.as_ref();
        let offset = snapshot.map(|snapshot| stream.token(stream.offset_of(snapshot.record)));
        self.with_or_without("Stream-Snapshot-Offset", offset)
            .with_or_without("Stream-Snapshot-Digest", snapshot.map(Snapshot::digest))
    }

    /// With what a refused writer is told of the state.
    fn conflict(self, stream: &Stream) -> Expected {
        self.snapshot(stream).end(stream).first_and_next(stream, stream.next())
    }
}

/// Where a named boundary lies.
enum Position {
    Before,
    At(u64),
    Beyond,
}

impl World {
    /// Does an operation. `answer` is what the server said; an answer that tells something new is learned from. Without an
    /// answer, what only the server knows stays open.
    pub fn apply(&mut self, operation: &Operation, answer: Option<&Answer>) -> Expected {
        let name = operation.name;
        let was_json = self.streams.get(&name).map(Stream::is_json);
        let expected = match &operation.act {
            Act::Create(create) => self.create(name, create, answer),
            _ if was_json.is_none() => Expected::error(404, "STREAM_NOT_FOUND"),
            Act::Append(append) => self.stream(name).append(append),
            Act::Batch { kind, frames } => self.stream(name).batch(*kind, frames),
            Act::Publish(publish) => self.publish(name, publish),
            Act::Retain(at) => self.retain(name, at),
            Act::SetAttributes(text) => match kept_attributes(text) {
                Ok(kept) => {
                    self.stream(name).attributes = kept;
                    Expected::status(204)
                }
                Err(()) => Expected::error(400, "INVALID_ATTRIBUTES"),
            },
            Act::Attributes => Expected::status(200)
                .with("Content-Type", "application/json")
                .body(Body::Json(self.streams[&name].attributes.clone())),
            Act::Head => self.streams[&name].head(),
            Act::Bootstrap => self.streams[&name].bootstrap(),
            Act::Latest => self.latest(name),
            Act::ReadSnapshot(offset) => self.read_snapshot(name, *offset),
            Act::DeleteSnapshot(offset) => self.delete_snapshot(name, *offset),
            Act::Read(read) => page_of(self, name, read),
            Act::Delete => {
                self.streams.remove(&name);
                Expected::status(204)
            }
        };
        // The extension is named wherever it is active, and nowhere else.
        let is_json = was_json.or(self.streams.get(&name).map(Stream::is_json)) == Some(true);
        let token = is_json.then(|| "json-record-coordinates-v1".to_owned());
        expected.with_or_without("Stream-Extensions", token)
    }

    fn stream(&mut self, name: usize) -> &mut Stream {
        self.streams.get_mut(&name).expect("the caller has looked")
    }

    fn create(&mut self, name: usize, create: &Create, answer: Option<&Answer>) -> Expected {
        let attributes = create.attributes.as_deref().map_or(Ok(json!({})), kept_attributes);
        let Ok(attributes) = attributes else { return Expected::error(400, "INVALID_ATTRIBUTES") };
        if let Some(stream) = self.streams.get(&name) {
            let is_same = create.kind == stream.kind
                && create.closed == stream.closed
                && attributes == stream.attributes;
            if !is_same {
                return Expected::error(409, "STREAM_EXISTS").end(stream);
            }
            return Expected::status(200).with("Content-Type", stream.kind.content_type()).end(stream).range(
                stream,
                stream.next(),
                stream.next(),
            );
        }
        let mut stream = Stream::new(create.kind, attributes);
        match create.content.as_ref().map(|content| &content.messages) {
            None | Some(Err("EMPTY_ARRAY")) => {}
            Some(Ok(messages)) => drop(stream.push(messages)),
            Some(Err(code)) => return Expected::error(400, code),
        }
        stream.closed = create.closed;
        if let Some(answer) = answer {
            let (lineage, _) = answer.next_offset();
            assert!(self.lineages.insert(lineage), "lineage {lineage} comes a second time (decision 8)");
            stream.lineage = Some(lineage);
        }
        let expected = Expected::status(201)
            .with("Location", format!("http://{}{}", self.host, self.paths[name]))
            .with("Content-Type", create.kind.content_type())
            .end(&stream)
            .range(&stream, 0, stream.next());
        self.streams.insert(name, stream);
        expected
    }

    /// Where a boundary lies, or why it is none.
    fn locate(&self, stream: &Stream, at: &Boundary) -> Result<Position, Expected> {
        let at = match at {
            Boundary::Offset(Offset::Start | Offset::Now) => {
                return Err(Expected::error(400, "INVALID_OFFSET"));
            }
            Boundary::Offset(Offset::Plain(at)) => *at,
            Boundary::Offset(Offset::Token(lineage, at)) => {
                self.check_lineage(stream, *lineage)?;
                *at
            }
            Boundary::Record(_) if !stream.is_json() => {
                return Err(Expected::error(400, "RECORDS_UNSUPPORTED"));
            }
            Boundary::Record(record) if *record > stream.next() => return Ok(Position::Beyond),
            Boundary::Record(record) => stream.offset_of(*record),
        };
        Ok(match at {
            at if at < stream.first_offset() => Position::Before,
            at if at > stream.tail() => Position::Beyond,
            at => Position::At(at),
        })
    }

    /// Whether a lineage is the stream's; else why its tokens are refused (decision 8).
    pub fn check_lineage(&self, stream: &Stream, lineage: u64) -> Result<(), Expected> {
        match lineage {
            lineage if stream.lineage == Some(lineage) => Ok(()),
            lineage if self.lineages.contains(&lineage) => Err(Expected::error(410, "OFFSET_GONE")),
            _ => Err(Expected::error(400, "INVALID_OFFSET")),
        }
    }

    fn publish(&mut self, name: usize, publish: &Publish) -> Expected {
        let stream = &self.streams[&name];
        let at = match self.locate(stream, &publish.at) {
            Err(refused) => return refused,
            Ok(Position::Before) => return Expected::error(410, "OFFSET_GONE").retained(stream),
            Ok(Position::Beyond) => return Expected::error(409, "SNAPSHOT_BEYOND_TAIL").conflict(stream),
            Ok(Position::At(at)) => at,
        };
        let conflict = |code| Expected::error(409, code).conflict(stream);
        let mut snapshot =
            Snapshot { record: 0, content_type: publish.content_type.clone(), body: publish.body.clone() };
        let digest = snapshot.digest();
        let visible = stream.snapshot.as_ref();
        let visible_at = visible.map(|visible| stream.offset_of(visible.record));
        let visible_digest = visible.map(Snapshot::digest);
        if visible_at == Some(at) && visible_digest.as_ref() == Some(&digest) {
            return stream.published();
        }
        if publish.expected.is_some() && publish.expected != visible_digest {
            return conflict("SNAPSHOT_MATCH_FAILED");
        }
        match visible_at {
            Some(visible) if visible == at => return conflict("SNAPSHOT_CONFLICT"),
            Some(visible) if visible > at => return conflict("SNAPSHOT_STALE"),
            _ => {}
        }
        let Some(record) = stream.ordinal_at(at) else {
            return Expected::error(400, "OFFSET_NOT_ALIGNED");
        };
        snapshot.record = record;
        let stream = self.stream(name);
        stream.snapshot = Some(snapshot);
        stream.published()
    }

    fn retain(&mut self, name: usize, at: &Boundary) -> Expected {
        let stream = &self.streams[&name];
        let conflict = |code| Expected::error(409, code).conflict(stream);
        let visible = stream.snapshot.as_ref().map(|visible| stream.offset_of(visible.record));
        let at = match (self.locate(stream, at), visible) {
            (Err(refused), _) => return refused,
            (Ok(Position::At(at)), _) if at == stream.first_offset() => at,
            (Ok(Position::Before), _) => return conflict("RETENTION_BACKWARD"),
            (Ok(_), None) => return conflict("RETENTION_WITHOUT_SNAPSHOT"),
            (Ok(Position::At(at)), Some(visible)) if at <= visible => at,
            (Ok(_), Some(_)) => return conflict("RETENTION_BEYOND_SNAPSHOT"),
        };
        let Some(first) = stream.ordinal_at(at) else { return Expected::error(400, "OFFSET_NOT_ALIGNED") };
        let stream = self.stream(name);
        stream.first = first;
        Expected::status(204).retained(stream)
    }

    fn latest(&self, name: usize) -> Expected {
        let stream = &self.streams[&name];
        let Some(snapshot) = &stream.snapshot else { return Expected::error(404, "SNAPSHOT_NOT_FOUND") };
        let token = stream.token(stream.offset_of(snapshot.record));
        let location = format!("http://{}{}/snapshot/{token}", self.host, self.paths[name]);
        Expected::status(307).with("Location", location).snapshot(stream)
    }

    /// The visible snapshot, if it stands at this offset.
    fn snapshot_at(&self, stream: &Stream, offset: Offset) -> Result<Option<Snapshot>, Expected> {
        let at = match offset {
            Offset::Start | Offset::Now => return Err(Expected::error(400, "INVALID_OFFSET")),
            Offset::Plain(at) => Some(at),
            Offset::Token(lineage, at) => (stream.lineage == Some(lineage)).then_some(at),
        };
        let is_there = |snapshot: &&Snapshot| Some(stream.offset_of(snapshot.record)) == at;
        Ok(stream.snapshot.as_ref().filter(is_there).cloned())
    }

    fn read_snapshot(&self, name: usize, offset: Offset) -> Expected {
        let stream = &self.streams[&name];
        let snapshot = match self.snapshot_at(stream, offset) {
            Err(refused) => return refused,
            Ok(None) => return Expected::error(404, "SNAPSHOT_NOT_FOUND"),
            Ok(Some(snapshot)) => snapshot,
        };
        let up_to_date = (snapshot.record == stream.next()).then(|| "true".to_owned());
        Expected::status(200)
            .with("Content-Type", &snapshot.content_type)
            .snapshot(stream)
            .with("Stream-Next-Offset", stream.token(stream.offset_of(snapshot.record)))
            .first_and_next(stream, snapshot.record)
            .with_or_without("Stream-Up-To-Date", up_to_date)
            .body(Body::Exactly(snapshot.body.to_vec()))
    }

    fn delete_snapshot(&self, name: usize, offset: Offset) -> Expected {
        let stream = &self.streams[&name];
        match self.snapshot_at(stream, offset) {
            Err(refused) => refused,
            Ok(None) => Expected::error(404, "SNAPSHOT_NOT_FOUND"),
            Ok(Some(_)) => Expected::error(409, "SNAPSHOT_REQUIRED")
                .snapshot(stream)
                .first_and_next(stream, stream.next()),
        }
    }
}

impl Stream {
    fn head(&self) -> Expected {
        Expected::status(200)
            .with("Content-Type", self.kind.content_type())
            .end(self)
            .first_and_next(self, self.next())
            .snapshot(self)
    }

    fn published(&self) -> Expected {
        let snapshot = self.snapshot.as_ref().expect("it is published");
        let next = self.token(self.offset_of(snapshot.record));
        Expected::status(204)
            .snapshot(self)
            .with("Stream-Next-Offset", next)
            .first_and_next(self, snapshot.record)
    }

    fn bootstrap(&self) -> Expected {
        let (from, first) = match &self.snapshot {
            Some(snapshot) => (snapshot.record, (snapshot.content_type.clone(), snapshot.body.to_vec())),
            None => (self.first, ("application/octet-stream".to_owned(), Vec::new())),
        };
        let kind = self.kind.content_type();
        let updates =
            self.messages(from, self.next()).iter().map(|message| (kind.to_owned(), message.to_vec()));
        let expected = Expected::status(200);
        let expected = match &self.snapshot {
            Some(_) => expected.snapshot(self),
            None => expected.with("Stream-Snapshot-Offset", "-1"),
        };
        expected
            .end(self)
            .first_and_next(self, self.next())
            .with("Stream-Up-To-Date", "true")
            .body(Body::Parts([first].into_iter().chain(updates).collect()))
    }

    fn batch(&mut self, kind: Kind, frames: &[Content]) -> Expected {
        let acknowledgements = frames.iter().map(|frame| {
            let failed = |status: u16, code: &str| {
                json!({ "status": status, "stream_next_offset": self.tail(), "error_code": code })
            };
            if kind != self.kind {
                return failed(409, "CONTENT_TYPE_MISMATCH");
            }
            if self.closed {
                let mut failed = failed(409, "STREAM_CLOSED");
                failed["stream_closed"] = true.into();
                return failed;
            }
            match &frame.messages {
                Err(code) => failed(400, code),
                Ok(messages) => {
                    let (start, next) = self.push(messages);
                    let mut appended = json!({ "status": 204, "stream_next_offset": self.tail() });
                    if self.is_json() {
                        appended["stream_record_start"] = start.into();
                        appended["stream_record_next"] = next.into();
                    }
                    appended
                }
            }
        });
        let acknowledgements = acknowledgements.collect();
        Expected::status(200).body(Body::Acknowledgements(acknowledgements))
    }

    /// The checks of decision 7, in their order.
    fn append(&mut self, append: &Append) -> Expected {
        if let Some(expected) = self.append_of_before(append) {
            return expected;
        }
        if self.closed {
            if append.content.is_none() && append.producer.is_none() {
                return Expected::status(204).end(self).range(self, self.next(), self.next());
            }
            return self.refuse(append, "STREAM_CLOSED");
        }
        if append.content.is_some() && append.kind != self.kind {
            return self.refuse(append, "CONTENT_TYPE_MISMATCH");
        }
        if let Some((id, epoch, seq)) = &append.producer {
            match self.producers.get(id) {
                Some(known) if *epoch > known.epoch && *seq > 0 => {
                    return Expected::error(400, "INVALID_EPOCH_SEQ");
                }
                _ if *seq > self.expected_seq(id, *epoch) => return self.refuse(append, "PRODUCER_SEQ_GAP"),
                _ => {}
            }
        }
        if append.stream_seq.is_some() && append.stream_seq <= self.stream_seq {
            return self.refuse(append, "STREAM_SEQ_CONFLICT");
        }
        match append.record_match {
            Some(_) if !self.is_json() => return Expected::error(400, "INVALID_RECORD_MATCH"),
            Some(next) if next != self.next() => {
                return Expected::error(412, "RECORD_MATCH_FAILED")
                    .end(self)
                    .with("Stream-Record-Next", self.next());
            }
            _ => {}
        }
        let messages = match append.content.as_ref().map(|content| &content.messages) {
            Some(Err(code)) => return Expected::error(400, code),
            Some(Ok(messages)) => &messages[..],
            None => &[],
        };
        self.append_new(append, messages)
    }

    /// What a producer is told that is fenced off or repeats itself.
    fn append_of_before(&self, append: &Append) -> Option<Expected> {
        let (id, epoch, seq) = append.producer.as_ref()?;
        let known = self.producers.get(id)?;
        if *epoch < known.epoch {
            return Some(Expected::error(403, "STALE_EPOCH").with("Producer-Epoch", known.epoch));
        }
        let (start, next) = *known.appends.get(*seq as usize).filter(|_| *epoch == known.epoch)?;
        // Where records lay that retention has taken is forgotten; which they were is not.
        let offset = self.offset_of(next.max(self.first));
        let expected = Expected::status(204)
            .with("Stream-Next-Offset", self.token(offset))
            .closed(self.closed)
            .range(self, start, next)
            .with("Producer-Epoch", epoch)
            .with("Producer-Seq", known.appends.len() - 1);
        Some(expected)
    }

    fn append_new(&mut self, append: &Append, messages: &[super::oracle::Message]) -> Expected {
        let (start, next) = self.push(messages);
        self.closed |= append.close;
        if append.stream_seq.is_some() {
            self.stream_seq.clone_from(&append.stream_seq);
        }
        let is_new_data = append.producer.is_some() && append.content.is_some();
        let mut expected = Expected::status(if is_new_data { 200 } else { 204 });
        if let Some((id, epoch, seq)) = &append.producer {
            let fresh = || Producer { epoch: *epoch, appends: Vec::new() };
            let known = self.producers.entry(id.clone()).or_insert_with(fresh);
            if known.epoch < *epoch {
                *known = fresh();
            }
            known.appends.push((start, next));
            expected = expected.with("Producer-Epoch", epoch).with("Producer-Seq", seq);
        }
        expected.end(self).range(self, start, next)
    }

    /// The sequence number that a producer may use next.
    fn expected_seq(&self, id: &str, epoch: u64) -> u64 {
        let known = self.producers.get(id).filter(|known| known.epoch == epoch);
        known.map_or(0, |known| known.appends.len() as u64)
    }

    fn refuse(&self, append: &Append, code: &'static str) -> Expected {
        let expected = Expected::error(409, code).end(self);
        match &append.producer {
            Some((id, epoch, seq)) => expected
                .with("Producer-Expected-Seq", self.expected_seq(id, *epoch))
                .with("Producer-Received-Seq", seq),
            None => expected
                .with_or_without("Stream-Record-Next", self.is_json().then(|| self.next().to_string())),
        }
    }
}
