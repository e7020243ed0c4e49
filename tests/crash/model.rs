//! What a shared stream must hold, and the comparison with what it holds.

use std::collections::BTreeMap;

use crate::Tally;
use crate::common::stream::split_array;
use crate::common::{JSON, Server, Stream};
use crate::keeper::Kept;
use crate::reader::{Seen, canonical};
use crate::writer::{Acknowledged, Operation, ordinals, position};

/// Acknowledged sequences of a producer that are repeated after each restart, besides the first.
const REPEATED: usize = 20;

/// A producer's state, as its client keeps it.
#[derive(Clone, Default)]
pub struct Producer {
    epoch: u64,
    next_seq: u64,
    /// Everything acknowledged in the present epoch.
    acknowledged: Vec<Acknowledged>,
}

impl Producer {
    /// The epoch and sequence of the next append.
    pub fn next(&mut self) -> (u64, u64) {
        self.next_seq += 1;
        (self.epoch, self.next_seq - 1)
    }
}

/// One shared stream.
pub struct Model {
    /// Path.
    pub path: String,
    /// Content type.
    pub content_type: &'static str,
    /// All canonical bytes that it is known to hold, or to have held.
    pub content: Vec<u8>,
    /// Ends of appends in it, growing.
    pub boundaries: Vec<u64>,
    /// What the keeper has made of it.
    pub kept: Kept,
    /// What it has made of it if its last request was carried out.
    pub kept_if_done: Kept,
    producers: BTreeMap<usize, Producer>,
}

/// The records in canonical bytes.
fn records(canonical: &[u8]) -> Vec<String> {
    split_array(&[b"[", canonical.strip_suffix(b",").unwrap_or(canonical), b"]"].concat())
}

/// A part of the stream that is accounted for.
struct Span {
    start: u64,
    end: u64,
}

impl Model {
    /// A stream that is not there yet.
    pub fn new((path, content_type): (String, &'static str)) -> Model {
        Model {
            path,
            content_type,
            content: Vec::new(),
            boundaries: Vec::new(),
            kept: Kept::default(),
            kept_if_done: Kept::default(),
            producers: BTreeMap::new(),
        }
    }

    /// Whether it lies in a bucket: only such streams have snapshots.
    pub fn has_keeper(&self) -> bool {
        !self.path.starts_with("/v1/")
    }

    fn stream<'s>(&self, server: &'s Server) -> Stream<'s> {
        server.stream(&self.path, self.content_type)
    }

    /// Makes the stream.
    pub fn create(&self, server: &Server) {
        server.prefix();
        self.stream(server).put().expect(201);
    }

    /// Deletes the stream and makes it anew.
    pub fn recreate(&mut self, server: &Server) {
        self.stream(server).delete();
        self.create(server);
        self.content.clear();
        self.boundaries.clear();
        (self.kept, self.kept_if_done) = (Kept::default(), Kept::default());
        self.producers.clear();
    }

    /// A writer's producer.
    pub fn producer(&self, writer: usize) -> Producer {
        self.producers.get(&writer).cloned().unwrap_or_default()
    }

    /// Takes back a writer's producer.
    pub fn remember(&mut self, writer: usize, producer: Producer) {
        self.producers.insert(writer, producer);
    }

    /// Everything that the stream holds, behind what retention has taken of what it held.
    fn read(&self, server: &Server) -> Vec<u8> {
        let stream = self.stream(server);
        let (first, from) = match self.kept.first {
            0 => (0, "-1".to_owned()),
            first => (first as usize, first.to_string()),
        };
        let mut bytes = self.content[..first].to_vec();
        for page in stream.pages(&from) {
            bytes.extend(canonical(&page, self.content_type));
        }
        if self.content_type == JSON {
            let gone = records(&self.content[..first]).len();
            let head = stream.head();
            assert_eq!(head.required("stream-record-first"), gone.to_string(), "{}", self.path);
            assert_eq!(
                head.required("stream-record-next"),
                records(&bytes).len().to_string(),
                "{}",
                self.path
            );
        }
        assert_eq!(position(&stream.tail()), bytes.len() as u64, "{}: HEAD and reads disagree", self.path);
        bytes
    }

    /// Compares the stream with what was acknowledged and what was under way.
    pub fn verify(
        &mut self,
        server: &Server,
        acknowledged: Vec<&Acknowledged>,
        in_flight: &[&Operation],
        tally: &mut Tally,
    ) {
        let actual = self.read(server);
        assert!(
            actual.starts_with(&self.content),
            "{}: what was there before the last run is not there",
            self.path
        );
        let mut spans = Vec::new();
        for done in &acknowledged {
            for (piece, &end) in done.operation.pieces.iter().zip(&done.ends) {
                let start =
                    end.checked_sub(piece.bytes.len() as u64).expect("an append ends after it starts");
                let there = actual.get(start as usize..end as usize);
                assert!(
                    there == Some(&piece.bytes[..]),
                    "{}: {start}..{end} was acknowledged and lost",
                    self.path
                );
                spans.push(Span { start, end });
            }
        }
        self.verify_ordinals(&actual, &acknowledged);
        self.boundaries.extend(spans.iter().map(|span| span.end));
        self.boundaries.sort_unstable();
        spans.sort_by_key(|span| span.start);
        self.verify_gaps(&actual, &spans, in_flight, tally);
        for done in acknowledged {
            if done.operation.producer.is_some() {
                let producer = self.producers.entry(done.operation.writer).or_default();
                producer.acknowledged.push(done.clone());
            }
        }
        self.content = actual;
    }

    /// The ordinals that acknowledgements named are those that the records have.
    fn verify_ordinals(&self, actual: &[u8], acknowledged: &[&Acknowledged]) {
        if self.content_type != JSON {
            return;
        }
        let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut at, mut ordinal) = (0, 0);
        for record in records(actual) {
            starts.insert(at, ordinal);
            at += record.len() as u64 + 1;
            ordinal += 1;
        }
        for done in acknowledged {
            let Some(ordinals) = done.ordinals else { continue };
            let piece = &done.operation.pieces[0];
            let first = starts.get(&(done.ends[0] - piece.bytes.len() as u64)).copied();
            let first =
                first.unwrap_or_else(|| panic!("{}: an append does not start at a record", self.path));
            assert_eq!(ordinals, (first, first + piece.records), "{}: other ordinals", self.path);
        }
    }

    /// Between what is known lies only what was under way: whole, once, and in each writer's order.
    fn verify_gaps(&self, actual: &[u8], spans: &[Span], in_flight: &[&Operation], tally: &mut Tally) {
        let mut waiting: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
        for operation in in_flight {
            let pieces = operation.pieces.iter().map(|piece| &piece.bytes[..]);
            waiting.entry(operation.writer).or_default().extend(pieces);
        }
        let mut at = self.content.len();
        let mut spans = spans.iter().peekable();
        while at < actual.len() {
            if let Some(span) = spans.next_if(|span| span.start as usize == at) {
                at = span.end as usize;
                continue;
            }
            // Only the next one of each writer may come: that is its order.
            let found = waiting
                .values_mut()
                .find(|pieces| pieces.first().is_some_and(|piece| actual[at..].starts_with(piece)));
            let Some(pieces) = found else {
                let part = String::from_utf8_lossy(&actual[at..actual.len().min(at + 200)]).into_owned();
                panic!("{}: at {at} of {} lies what nobody wrote so: {part}", self.path, actual.len());
            };
            at += pieces.remove(0).len();
            tally.in_flight_kept += 1;
        }
        assert!(spans.next().is_none() && at == actual.len(), "{}: acknowledged appends overlap", self.path);
        tally.in_flight_lost += waiting.values().map(|pieces| pieces.len() as u64).sum::<u64>();
    }

    /// Decision 31: a reader's bytes are still there.
    pub fn assert_still_there(&self, seen: &Seen) {
        let from = seen.from as usize;
        let there = self.content.get(from..from + seen.bytes.len());
        assert!(there == Some(&seen.bytes[..]), "{}: a reader saw bytes that a crash took back", self.path);
    }

    /// Sends again what producers sent: what was acknowledged is a duplicate with its original place, what was under way is
    /// a duplicate exactly if it is there.
    pub fn repeat_producers(&mut self, server: &Server, in_flight: &[&Operation], tally: &mut Tally) {
        let mut connection = server.connect();
        for (writer, producer) in &mut self.producers {
            let count = producer.acknowledged.len();
            let step = count.div_ceil(REPEATED).max(1);
            // The last one always.
            for done in producer.acknowledged.iter().rev().step_by(step) {
                let again = connection.send(&done.operation.request).expect(204);
                // Of a place that retention has taken, only the ordinals are known.
                if done.ends[0] >= self.kept.first {
                    assert_eq!(Some(again.next_offset()), done.next_offset, "{}: another place", self.path);
                }
                assert_eq!(ordinals(&again), done.ordinals, "{}: other ordinals", self.path);
                tally.duplicates += 1;
            }
            for operation in in_flight.iter().filter(|operation| operation.writer == *writer) {
                if operation.producer.is_none() {
                    continue;
                }
                let piece = &operation.pieces[0].bytes;
                let again = connection.send(&operation.request);
                let end = position(&again.next_offset()) as usize;
                if again.status == 204 {
                    let there = self.content.get(end - piece.len()..end);
                    assert!(there == Some(&piece[..]), "{}: called a duplicate and not there", self.path);
                    tally.duplicates += 1;
                } else {
                    assert_eq!(again.status, 200, "{}: {again:?}", self.path);
                    assert_eq!(end, self.content.len() + piece.len(), "{}: appended elsewhere", self.path);
                    self.content.extend_from_slice(piece);
                    tally.retried_and_new += 1;
                }
                producer.acknowledged.push(Acknowledged {
                    operation: (*operation).clone(),
                    ends: vec![end as u64],
                    ordinals: ordinals(&again),
                    next_offset: Some(again.next_offset()),
                });
            }
        }
        self.fence(server);
    }

    /// Now and then a producer begins a new epoch: then its old one is refused.
    fn fence(&mut self, server: &Server) {
        for (writer, producer) in &mut self.producers {
            let Some(last) = producer.acknowledged.last() else { continue };
            if producer.acknowledged.len() < 15 {
                continue;
            }
            let stream = server.stream(&self.path, self.content_type);
            let record = if self.content_type == JSON { "0" } else { "0," };
            let id = format!("writer-{writer}");
            stream.produce(&id, producer.epoch + 1, 0, record).expect(200);
            self.content.extend_from_slice(b"0,");
            server.connect().send(&last.operation.request).expect(403);
            *producer = Producer { epoch: producer.epoch + 1, next_seq: 1, acknowledged: Vec::new() };
        }
    }
}
