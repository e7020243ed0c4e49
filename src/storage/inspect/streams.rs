//! The streams of a log as its events tell, and whether each event goes with the ones before it.

use std::collections::HashMap;

use super::super::codec::Entry;
use super::super::event::{
    Appended, Event, EventContext, HashRange, Part, Payload, ProducerRuns, SnapshotPublished, StreamCreated,
};
use super::Owner;

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
    /// Offset and ordinal at which it begins: what was before is gone.
    pub first: (u64, u64),
    /// Its attributes; none: no bytes.
    pub attributes: Vec<u8>,
    /// Offset and ordinal of its snapshot.
    pub snapshot: Option<(u64, u64)>,
    /// Snapshots that were published.
    pub snapshots: u64,
    /// Appends to it, as they lie in the log.
    pub appends: u64,
    /// Whether it is closed.
    pub closed: bool,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Producers: epoch and last sequence number of each.
    pub producers: HashMap<Vec<u8>, (u64, u64)>,
}

/// What is wrong with an event.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) what: String,
    /// In what case it is not, if something may have been left out before.
    pub(super) unless: Option<Unless>,
}

/// How a log goes on that may leave something out.
#[derive(Debug)]
pub(super) enum Unless {
    /// Anyhow: of a stream or bucket of which nothing is known.
    Unknown,
    /// The stream is deleted.
    Deleted { lineage: u64 },
    /// Or retention takes everything before this offset.
    Trimmed { lineage: u64, end: u64 },
    /// Or another snapshot follows.
    Superseded {
        lineage: u64,
        /// How many there were with this one.
        number: u64,
    },
    /// Or the producer begins a new epoch.
    Fenced { lineage: u64, id: Vec<u8>, epoch: u64 },
}

impl Problem {
    /// One that nothing excuses.
    pub(super) fn certain(what: String) -> Problem {
        Problem { what, unless: None }
    }

    fn of_unknown(what: String) -> Problem {
        Problem { what, unless: Some(Unless::Unknown) }
    }

    fn unless_deleted(lineage: u64, what: String) -> Problem {
        Problem { what, unless: Some(Unless::Deleted { lineage }) }
    }
}

/// All streams of a log.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_lineage: HashMap<u64, Stream>,
    buckets: HashMap<Vec<u8>, u64>,
}

impl Streams {
    /// Whether an event counts in a segment that counts for these placement hashes: others may have been left out, or
    /// be told of elsewhere.
    pub(super) fn counts(&self, event: &Event<'_>, hashes: HashRange, owner: Option<Owner<'_>>) -> bool {
        match event {
            Event::StreamCreated(created) => hashes.contains(created.placement),
            Event::BucketCreated { bucket, .. } | Event::BucketDeleted { bucket, .. } => match owner {
                Some(owner) => {
                    let placement = (owner.placement)(bucket);
                    hashes.contains(placement) && owner.hashes.contains(placement)
                }
                None => hashes == HashRange::ALL,
            },
            _ => {
                let stream = event.lineage().and_then(|lineage| self.by_lineage.get(&lineage));
                stream.map_or(hashes == HashRange::ALL, |stream| hashes.contains(stream.placement))
            }
        }
    }

    /// Takes an event in that counts; says what is wrong with it, if anything is.
    pub(super) fn apply(&mut self, event: &Event<'_>, context: EventContext) -> Option<Problem> {
        match event {
            Event::StreamCreated(created) => self.create(created, context),
            Event::Appended(append) => self.append(append, context),
            Event::StreamDeleted { lineage } => match self.by_lineage.get_mut(lineage) {
                Some(stream) if !stream.deleted => {
                    stream.deleted = true;
                    None
                }
                Some(_) => Some(Problem::certain(format!("deletes stream {lineage} twice"))),
                None => {
                    Some(Problem::of_unknown(format!("deletes stream {lineage}, which was never created")))
                }
            },
            Event::Renewed { lineage, .. } => self.living(*lineage, "renews").err(),
            Event::AttributesSet { lineage, attributes } => self
                .living(*lineage, "sets the attributes of")
                .map(|stream| stream.attributes = attributes.to_vec())
                .err(),
            Event::SnapshotPublished(snapshot) => self.publish(snapshot),
            Event::Retained { lineage, offset, record } => self.retain(*lineage, *offset, *record),
            Event::Skipped { lineage, start, bytes, records } => {
                self.skip(*lineage, *start, *bytes, *records)
            }
            Event::ProducerRuns(runs) => self.produce(runs),
            Event::BucketCreated { bucket, generation } => {
                let before = self.buckets.insert(bucket.to_vec(), *generation);
                before.map(|_| Problem::certain(format!("creates bucket {} twice", show(bucket))))
            }
            Event::BucketDeleted { bucket, generation } => {
                let found = self.buckets.remove(*bucket);
                let bucket = show(bucket);
                let what =
                    format!("deletes bucket {bucket} of generation {generation}, which does not exist");
                match found {
                    Some(found) if found == *generation => None,
                    Some(_) => Some(Problem::certain(what)),
                    None => Some(Problem::of_unknown(what)),
                }
            }
        }
    }

    fn create(&mut self, created: &StreamCreated<'_>, context: EventContext) -> Option<Problem> {
        let stream = Stream {
            lineage: created.lineage,
            placement: created.placement,
            key: created.key.to_vec(),
            content_type: created.content_type.to_vec(),
            created_ms: context.time_ms,
            written_ms: context.time_ms,
            bytes: 0,
            records: 0,
            first: (0, 0),
            attributes: created.attributes.to_vec(),
            snapshot: None,
            snapshots: 0,
            appends: 0,
            closed: created.closed,
            deleted: false,
            producers: HashMap::new(),
        };
        let before = self.by_lineage.insert(created.lineage, stream);
        before.map(|before| {
            let what = format!("creates stream {}, which is {} already", created.lineage, show(&before.key));
            Problem::certain(what)
        })
    }

    fn append(&mut self, append: &Appended<'_>, context: EventContext) -> Option<Problem> {
        let lineage = append.lineage;
        let Some(stream) = self.by_lineage.get_mut(&lineage) else {
            return Some(Problem::of_unknown(format!(
                "appends to stream {lineage}, which was never created"
            )));
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

    /// The stream of an event that does something to one that must exist.
    fn living(&mut self, lineage: u64, does: &str) -> Result<&mut Stream, Problem> {
        let what = || format!("{does} stream {lineage}, which does not exist");
        match self.by_lineage.get_mut(&lineage) {
            Some(stream) if !stream.deleted => Ok(stream),
            Some(_) => Err(Problem::certain(what())),
            None => Err(Problem::of_unknown(what())),
        }
    }

    fn publish(&mut self, snapshot: &SnapshotPublished<'_>) -> Option<Problem> {
        let SnapshotPublished { lineage, offset, record, .. } = *snapshot;
        let stream = match self.living(lineage, "publishes a snapshot of") {
            Ok(stream) => stream,
            Err(problem) => return Some(problem),
        };
        stream.snapshot = Some((offset, record));
        stream.snapshots += 1;
        stream.beyond("publishes a snapshot", offset, record)
    }

    fn retain(&mut self, lineage: u64, offset: u64, record: u64) -> Option<Problem> {
        let stream = match self.living(lineage, "trims") {
            Ok(stream) => stream,
            Err(problem) => return Some(problem),
        };
        // A rewrite repeats what an older entry says.
        stream.first = stream.first.max((offset, record));
        stream.beyond("trims", offset, record)
    }

    fn skip(&mut self, lineage: u64, start: u64, bytes: u64, records: u64) -> Option<Problem> {
        let stream = match self.living(lineage, "skips data of") {
            Ok(stream) => stream,
            Err(problem) => return Some(problem),
        };
        let before = stream.bytes;
        stream.bytes = start + bytes;
        stream.records += records;
        stream.first = stream.first.max((stream.bytes, stream.records));
        (start != before).then(|| {
            let what = format!("skips data at {start} of stream {lineage}, which ends at {before}");
            Problem::unless_deleted(lineage, what)
        })
    }

    fn produce(&mut self, runs: &ProducerRuns<'_>) -> Option<Problem> {
        let lineage = runs.lineage;
        let stream = match self.living(lineage, "names a producer of") {
            Ok(stream) => stream,
            Err(problem) => return Some(problem),
        };
        let appends: u64 = runs.runs.iter().map(|run| run.appends).sum();
        let state = (runs.epoch, (runs.first_seq + appends).saturating_sub(1));
        let before = stream.producers.insert(runs.id.to_vec(), state);
        let end = runs.runs.last().map_or(0, |run| run.first_ordinal + run.records * run.appends);
        let records = stream.records;
        claim_problem(lineage, before, runs.id, runs.epoch, runs.first_seq).or_else(|| {
            (end > records).then(|| {
                let what = format!(
                    "names a producer's records up to {end} of stream {lineage}, which has {records}"
                );
                Problem::unless_deleted(lineage, what)
            })
        })
    }

    /// How many snapshots the stream of an event has had.
    pub(super) fn snapshots_of(&self, event: &Event<'_>) -> u64 {
        let stream = event.lineage().and_then(|lineage| self.by_lineage.get(&lineage));
        stream.map_or(0, |stream| stream.snapshots)
    }

    /// Whether the log has gone on so that a doubt about an event is none, for the owner of these placements.
    pub(super) fn resolves(&self, unless: &Unless, owned: HashRange) -> bool {
        let is_over = |lineage: &u64| {
            // The streams of others go on in other logs.
            let stream = self.by_lineage.get(lineage).filter(|stream| owned.contains(stream.placement));
            stream.filter(|stream| !stream.deleted)
        };
        match unless {
            Unless::Unknown => true,
            Unless::Deleted { lineage } => is_over(lineage).is_none(),
            Unless::Trimmed { lineage, end } => is_over(lineage).is_none_or(|stream| stream.first.0 >= *end),
            Unless::Superseded { lineage, number } => {
                is_over(lineage).is_none_or(|stream| stream.snapshots > *number)
            }
            Unless::Fenced { lineage, id, epoch } => is_over(lineage)
                .is_none_or(|stream| stream.producers.get(id).is_none_or(|(newer, _)| newer > epoch)),
        }
    }

    /// The streams, by key, each life of a key after the one before.
    pub(super) fn into_sorted(self) -> Vec<Stream> {
        let mut streams: Vec<Stream> = self.by_lineage.into_values().collect();
        streams.sort_by(|one, other| (&one.key, one.lineage).cmp(&(&other.key, other.lineage)));
        streams
    }
}

impl Stream {
    fn beyond(&self, does: &str, offset: u64, record: u64) -> Option<Problem> {
        let Stream { lineage, bytes, records, .. } = *self;
        (offset > bytes || record > records).then(|| {
            let what = format!(
                "{does} at {offset} (record {record}) of stream {lineage}, which ends at {bytes} (record {records})"
            );
            Problem::unless_deleted(lineage, what)
        })
    }
}

fn append_problem(stream: &Stream, append: &Appended<'_>) -> Option<Problem> {
    let lineage = append.lineage;
    if stream.deleted {
        return Some(Problem::certain(format!("appends to stream {lineage}, which is deleted")));
    }
    if stream.closed {
        return Some(Problem::certain(format!("appends to stream {lineage}, which is closed")));
    }
    if append.start != stream.bytes {
        let (start, end) = (append.start, stream.bytes);
        let what = format!("appends at {start} of stream {lineage}, which ends at {end}");
        return Some(Problem::unless_deleted(lineage, what));
    }
    let producer = append.producer?;
    let before = stream.producers.get(producer.id).copied();
    claim_problem(lineage, before, producer.id, producer.epoch, producer.seq)
}

/// What is wrong with a producer's claim after its last one.
fn claim_problem(
    lineage: u64,
    before: Option<(u64, u64)>,
    id: &[u8],
    new_epoch: u64,
    new_seq: u64,
) -> Option<Problem> {
    let (epoch, seq) = before?;
    let what = || {
        let id = show(id);
        format!("producer {id} is at epoch {new_epoch}, seq {new_seq} after epoch {epoch}, seq {seq}")
    };
    if new_epoch > epoch || (new_epoch == epoch && new_seq == seq + 1) {
        None
    } else if new_epoch == epoch && new_seq > seq {
        // Of an epoch that has ended nothing is kept.
        Some(Problem { what: what(), unless: Some(Unless::Fenced { lineage, id: id.to_vec(), epoch }) })
    } else {
        Some(Problem::certain(what()))
    }
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
