//! The streams of a log as its events tell, and whether each event goes with the ones before it.

use std::collections::HashMap;

use super::super::codec::Entry;
use super::super::event::{Appended, Event, EventContext, Part, Payload, ProducerRuns, StreamCreated};

/// One life of a stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Lineage id.
    pub lineage: u64,
    /// Hash that decides its shard.
    pub placement: u64,
    /// Full key.
    pub key: Vec<u8>,
    /// Content type.
    pub content_type: Vec<u8>,
    /// When it was created, Unix milliseconds.
    pub created_ms: u64,
    /// When something was last appended, Unix milliseconds; its creation if nothing was.
    pub written_ms: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Appends to it.
    pub appends: u64,
    /// Whether it is closed.
    pub closed: bool,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Producers: epoch and last sequence number of each.
    pub producers: HashMap<Vec<u8>, (u64, u64)>,
}

/// All streams of a log.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_lineage: HashMap<u64, Stream>,
    buckets: HashMap<Vec<u8>, u64>,
}

impl Streams {
    /// Takes an event in; says what is wrong with it, if anything is.
    pub(super) fn apply(&mut self, event: &Event<'_>, context: EventContext) -> Option<String> {
        match event {
            Event::StreamCreated(created) => self.create(created, context),
            Event::Appended(append) => self.append(append, context),
            Event::StreamDeleted { lineage } => match self.by_lineage.get_mut(lineage) {
                Some(stream) if !stream.deleted => {
                    stream.deleted = true;
                    None
                }
                Some(_) => Some(format!("deletes stream {lineage} twice")),
                None => Some(format!("deletes stream {lineage}, which was never created")),
            },
            Event::Renewed { lineage, .. } => self.expect(*lineage, "renews"),
            Event::AttributesSet { lineage, .. } => self.expect(*lineage, "sets the attributes of"),
            Event::SnapshotPublished(snapshot) => self.expect(snapshot.lineage, "publishes a snapshot of"),
            Event::Retained { lineage, .. } => self.expect(*lineage, "trims"),
            Event::Skipped { lineage, bytes, records, .. } => self.skip(*lineage, *bytes, *records),
            Event::ProducerRuns(runs) => self.produce(runs),
            Event::BucketCreated { bucket, generation } => {
                let before = self.buckets.insert(bucket.to_vec(), *generation);
                before.map(|_| format!("creates bucket {} twice", show(bucket)))
            }
            Event::BucketDeleted { bucket, generation } => match self.buckets.remove(*bucket) {
                Some(found) if found == *generation => None,
                _ => Some(format!(
                    "deletes bucket {} of generation {generation}, which does not exist",
                    show(bucket)
                )),
            },
        }
    }

    fn create(&mut self, created: &StreamCreated<'_>, context: EventContext) -> Option<String> {
        let stream = Stream {
            lineage: created.lineage,
            placement: created.placement,
            key: created.key.to_vec(),
            content_type: created.content_type.to_vec(),
            created_ms: context.time_ms,
            written_ms: context.time_ms,
            bytes: 0,
            records: 0,
            appends: 0,
            closed: created.closed,
            deleted: false,
            producers: HashMap::new(),
        };
        let before = self.by_lineage.insert(created.lineage, stream);
        before.map(|before| {
            format!("creates stream {}, which is {} already", created.lineage, show(&before.key))
        })
    }

    fn append(&mut self, append: &Appended<'_>, context: EventContext) -> Option<String> {
        let lineage = append.lineage;
        let Some(stream) = self.by_lineage.get_mut(&lineage) else {
            return Some(format!("appends to stream {lineage}, which was never created"));
        };
        let problem = append_problem(stream, append);
        stream.bytes = append.start + append.lengths.total_bytes();
        stream.records += append.lengths.count();
        stream.appends += 1;
        stream.closed |= append.closed;
        stream.written_ms = context.time_ms;
        if let Some(producer) = append.producer {
            let state = (producer.epoch, producer.seq);
            match stream.producers.get_mut(producer.id) {
                Some(last) => *last = state,
                None => drop(stream.producers.insert(producer.id.to_vec(), state)),
            }
        }
        problem
    }

    /// What is wrong with an event about a stream that must exist.
    fn expect(&self, lineage: u64, does: &str) -> Option<String> {
        match self.by_lineage.get(&lineage) {
            Some(stream) if !stream.deleted => None,
            _ => Some(format!("{does} stream {lineage}, which does not exist")),
        }
    }

    fn skip(&mut self, lineage: u64, bytes: u64, records: u64) -> Option<String> {
        if let Some(stream) = self.by_lineage.get_mut(&lineage) {
            stream.bytes += bytes;
            stream.records += records;
        }
        self.expect(lineage, "skips data of")
    }

    fn produce(&mut self, runs: &ProducerRuns<'_>) -> Option<String> {
        let appends: u64 = runs.runs.iter().map(|run| run.appends).sum();
        if let Some(stream) = self.by_lineage.get_mut(&runs.lineage) {
            let state = (runs.epoch, (runs.first_seq + appends).saturating_sub(1));
            stream.producers.insert(runs.id.to_vec(), state);
        }
        self.expect(runs.lineage, "names a producer of")
    }

    /// The streams, by key, each life of a key after the one before.
    pub(super) fn into_sorted(self) -> Vec<Stream> {
        let mut streams: Vec<Stream> = self.by_lineage.into_values().collect();
        streams.sort_by(|one, other| (&one.key, one.lineage).cmp(&(&other.key, other.lineage)));
        streams
    }
}

fn append_problem(stream: &Stream, append: &Appended<'_>) -> Option<String> {
    let lineage = append.lineage;
    if stream.deleted {
        return Some(format!("appends to stream {lineage}, which is deleted"));
    }
    if stream.closed {
        return Some(format!("appends to stream {lineage}, which is closed"));
    }
    if append.start != stream.bytes {
        return Some(format!(
            "appends at {} of stream {lineage}, which ends at {}",
            append.start, stream.bytes
        ));
    }
    let producer = append.producer?;
    let (epoch, seq) = *stream.producers.get(producer.id)?;
    let follows = if epoch == producer.epoch { producer.seq == seq + 1 } else { producer.epoch > epoch };
    (!follows).then(|| {
        let (id, new_epoch, new_seq) = (show(producer.id), producer.epoch, producer.seq);
        format!("producer {id} is at epoch {new_epoch}, seq {new_seq} after epoch {epoch}, seq {seq}")
    })
}

/// The stream that an entry concerns, if it concerns one.
pub fn lineage_of(entry: &Entry<'_>) -> Option<u64> {
    match entry {
        Entry::Chunk { lineage, .. } => Some(*lineage),
        Entry::Event(event) => event.lineage(),
    }
}

/// The chunks that an event names.
pub(super) fn parts<'a>(event: &Event<'a>) -> &'a [Part] {
    match event {
        Event::Appended(Appended { payload: Payload::Parts(parts), .. }) => parts,
        Event::SnapshotPublished(snapshot) => snapshot.parts,
        _ => &[],
    }
}

/// Records that an entry adds.
pub(super) fn record_count(entry: &Entry<'_>) -> u64 {
    match entry {
        Entry::Event(Event::Appended(append)) => append.lengths.count(),
        _ => 0,
    }
}

/// A digest as clients see it: lower-case hexadecimal.
pub(super) fn digest_text(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes for people: text as it is, anything else escaped.
pub(super) fn show(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}
