//! The bucket directory as one shard knows it, and the streams of each bucket that live here, in order of their ids.
//!
//! A bucket's home shard (by the hash of its id) logs it; every shard knows every bucket. Creating a stream looks here
//! and nowhere else. While a bucket begins or ends creates in it wait for what comes of that: see [`Phase`].
//!
//! A bucket has its streams from the moment their create is staged until their delete is durable; it counts those whose
//! create is durable. Whatever concerns one life of a bucket names its generation, and means nothing to another life.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;

use super::mail::BucketRecord;
use super::order::Order;
use super::stream::Stream;
use super::table::{StreamId, Table};

/// Whether streams can be created in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet: some shard may not know the bucket. A create waits.
    Beginning,
    /// Yes.
    Open,
    /// A delete is under way. A create waits for the outcome.
    Ending,
    /// A delete was staged and its commit failed: a restart will tell. A create is refused.
    Undecided,
}

/// A bucket.
#[derive(Debug)]
pub struct Bucket {
    /// Number of this life of the id.
    pub generation: u64,
    /// Whether streams can be created in it.
    pub phase: Phase,
    streams: Order,
    /// Those of them whose create is durable.
    durable: u64,
    /// Ticket of the last create.
    created_ticket: u64,
}

/// All buckets.
#[derive(Debug, Default)]
pub struct Buckets {
    by_id: HashMap<Box<[u8]>, Bucket>,
    /// Tickets and slots of creates that are staged and not durable, in order.
    staged: VecDeque<(u64, u32)>,
}

impl Buckets {
    /// The bucket of an id.
    pub fn get(&self, bucket: &[u8]) -> Option<&Bucket> {
        self.by_id.get(bucket)
    }

    /// The bucket in this life of it, if that still lasts.
    pub fn life(&self, record: &BucketRecord) -> Option<&Bucket> {
        self.get(&record.bucket).filter(|bucket| bucket.generation == record.generation)
    }

    /// A bucket begins.
    pub fn add(&mut self, record: &BucketRecord, phase: Phase) {
        let generation = record.generation;
        let bucket = Bucket { generation, phase, streams: Order::default(), durable: 0, created_ticket: 0 };
        let before = self.by_id.insert(record.bucket.as_slice().into(), bucket);
        assert!(before.is_none(), "bucket {} exists twice", record.bucket.escape_ascii());
    }

    /// A bucket ends.
    pub fn remove(&mut self, record: &BucketRecord) {
        let removed = self.by_id.remove(record.bucket.as_slice()).expect("a bucket that ends exists");
        assert_eq!(removed.generation, record.generation, "another life of the bucket ends");
        assert!(removed.streams.is_empty(), "a bucket that ends holds {} streams", removed.streams.len());
    }

    /// Moves a bucket to another phase, if that life of it still lasts.
    pub fn set_phase(&mut self, record: &BucketRecord, phase: Phase) {
        let bucket = self.by_id.get_mut(record.bucket.as_slice());
        if let Some(bucket) = bucket.filter(|bucket| bucket.generation == record.generation) {
            bucket.phase = phase;
        }
    }

    /// The bucket that a stream belongs to; none for streams of the flat surface. A stream can outlive its bucket only in
    /// a log without `--sync always`, whose end a power failure took.
    fn bucket_of<'k>(&mut self, stream: &'k Stream) -> Option<(&mut Bucket, &'k [u8])> {
        if stream.bucket_generation == 0 {
            return None;
        }
        let (bucket, id) = split(&stream.key);
        let bucket = self.by_id.get_mut(bucket)?;
        (bucket.generation == stream.bucket_generation).then_some((bucket, id))
    }

    /// A stream's create is staged.
    pub fn enter(&mut self, table: &Table, id: StreamId) {
        let (_, stream) = table.at(id.slot);
        let ticket = stream.created_ticket;
        if let Some((bucket, name)) = self.bucket_of(stream) {
            bucket.streams.insert(name, id.slot, |slot| name_at(table, slot));
            bucket.created_ticket = ticket;
            self.staged.push_back((ticket, id.slot));
        }
    }

    /// Everything up to `ticket` is durable. Called before the streams that go with it have left.
    pub fn publish(&mut self, table: &Table, ticket: u64) {
        while let Some((_, slot)) = self.staged.pop_front_if(|(staged, _)| *staged <= ticket) {
            let bucket = self.bucket_of(table.at(slot).1);
            bucket.expect("a bucket with staged creates does not end").0.durable += 1;
        }
    }

    /// A stream's delete is durable; it is still in the table.
    pub fn leave(&mut self, table: &Table, id: StreamId) {
        if let Some((bucket, name)) = self.bucket_of(table.at(id.slot).1) {
            bucket.streams.remove(name, id.slot, |slot| name_at(table, slot));
            bucket.durable = bucket.durable.checked_sub(1).expect("a stream that leaves was counted");
        }
    }

    /// Enters all streams of a recovered table: they are durable.
    pub fn fill(&mut self, table: &Table) {
        let mut all: Vec<(&[u8], u32)> = table
            .iter()
            .filter(|(_, stream)| stream.bucket_generation != 0)
            .map(|(id, stream)| (&*stream.key, id.slot))
            .collect();
        // In order every one is the last of its bucket so far: fewer comparisons, and full chunks.
        all.sort_unstable();
        for (_, slot) in all {
            if let Some((bucket, name)) = self.bucket_of(table.at(slot).1) {
                bucket.streams.insert(name, slot, |slot| name_at(table, slot));
                bucket.durable += 1;
            }
        }
    }

    /// The streams of a bucket from `from` on, in order; those whose create is not durable included.
    pub fn streams<'b, 't>(
        &'b self,
        table: &'t Table,
        record: &BucketRecord,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&'t [u8], &'t Stream)> + use<'b, 't> {
        let streams = self.life(record).map(|bucket| bucket.streams.from(from, |slot| name_at(table, slot)));
        streams.into_iter().flatten().map(|slot| (name_at(table, slot), table.at(slot).1))
    }

    /// Every bucket.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Bucket)> {
        self.by_id.iter().map(|(id, bucket)| (&**id, bucket))
    }
}

impl Bucket {
    /// Its streams here, those whose delete is not durable included.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Its streams here whose create is not durable.
    pub fn staged(&self) -> u64 {
        self.streams.len() as u64 - self.durable
    }

    /// Ticket of the last create here; 0 for none since the start.
    pub fn created_ticket(&self) -> u64 {
        self.created_ticket
    }
}

/// The id of the stream at a slot within its bucket.
fn name_at(table: &Table, slot: u32) -> &[u8] {
    split(&table.at(slot).1.key).1
}

/// `bucket/stream` in two. A stream id has no slash.
fn split(key: &[u8]) -> (&[u8], &[u8]) {
    let slash = key.iter().position(|byte| *byte == b'/').expect("a key has a slash");
    (&key[..slash], &key[slash + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::table::{Published, Stamp, Target};
    use crate::storage::event::{Event, StreamCreated};

    fn record(generation: u64) -> BucketRecord {
        BucketRecord { bucket: b"logs".to_vec(), generation }
    }

    fn create(table: &mut Table, key: &str, lineage: u64, generation: u64, ticket: u64) -> StreamId {
        let event = Event::StreamCreated(StreamCreated {
            lineage,
            placement: lineage,
            key: key.as_bytes(),
            content_type: b"text/plain",
            ttl_seconds: None,
            expires_at_ms: None,
            bucket_generation: generation,
            attributes: b"",
            closed: false,
        });
        table.apply(&event, Stamp { ticket, time_ms: 0 }, Target::ByLineage).expect("a create makes a stream")
    }

    fn publish(table: &mut Table, buckets: &mut Buckets, ticket: u64) {
        buckets.publish(table, ticket);
        table.publish(ticket, |table, published| {
            if let Published::Leaves(id) = published {
                buckets.leave(table, id);
            }
        });
    }

    fn names(buckets: &Buckets, table: &Table, generation: u64, from: Bound<&[u8]>) -> Vec<String> {
        let streams = buckets.streams(table, &record(generation), from);
        streams.map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn streams_are_counted_from_create_to_delete_as_these_become_durable() {
        let (mut table, mut buckets) = (Table::default(), Buckets::default());
        buckets.add(&record(1), Phase::Open);
        let counts = |buckets: &Buckets| {
            let bucket = buckets.get(b"logs").expect("it exists");
            (bucket.durable(), bucket.staged(), bucket.created_ticket())
        };
        let mut ids = Vec::new();
        for (lineage, (name, ticket)) in (1..).zip([("logs/b", 1), ("logs/a", 1), ("logs/c", 2)]) {
            ids.push(create(&mut table, name, lineage, 1, ticket));
            buckets.enter(&table, ids[ids.len() - 1]);
        }
        assert_eq!(counts(&buckets), (0, 3, 2));
        publish(&mut table, &mut buckets, 1);
        assert_eq!(counts(&buckets), (2, 1, 2));
        // Created in one commit, deleted in the same, and in a later one.
        for (id, ticket) in [(ids[2], 2), (ids[0], 3)] {
            let stamp = Stamp { ticket, time_ms: 0 };
            table.apply(&Event::StreamDeleted { lineage: id.lineage }, stamp, Target::Known(id));
        }
        assert_eq!(counts(&buckets), (2, 1, 2), "a staged delete is none yet");
        publish(&mut table, &mut buckets, 2);
        assert_eq!(counts(&buckets), (2, 0, 2));
        assert_eq!(names(&buckets, &table, 1, Bound::Unbounded), ["a", "b"]);
        publish(&mut table, &mut buckets, 3);
        assert_eq!(counts(&buckets), (1, 0, 2));
        assert_eq!(names(&buckets, &table, 1, Bound::Unbounded), ["a"]);
    }

    #[test]
    fn a_table_is_entered_in_order_and_other_lives_and_surfaces_are_left_out() {
        let (mut table, mut buckets) = (Table::default(), Buckets::default());
        buckets.add(&record(2), Phase::Open);
        let keys = [
            ("logs/b", 2),
            ("logs/a", 2),
            ("logs/old", 1),
            ("logs-x/y", 3),
            ("/logs/flat", 0),
            ("logs/c", 2),
        ];
        let ids: Vec<StreamId> =
            (1..).zip(keys).map(|(lineage, (key, life))| create(&mut table, key, lineage, life, 1)).collect();
        table.publish(1, |_, _| {});
        buckets.fill(&table);
        assert_eq!(buckets.get(b"logs").expect("it exists").durable(), 3);
        assert_eq!(names(&buckets, &table, 2, Bound::Excluded(b"a")), ["b", "c"]);
        assert_eq!(names(&buckets, &table, 1, Bound::Unbounded), [""; 0], "a life that is over");
        // They may go all the same.
        ids.iter().for_each(|id| buckets.leave(&table, *id));
        buckets.remove(&record(2));
    }

    #[test]
    fn a_phase_is_of_one_life() {
        let mut buckets = Buckets::default();
        buckets.add(&record(2), Phase::Beginning);
        buckets.set_phase(&record(1), Phase::Open);
        assert_eq!(buckets.get(b"logs").map(|bucket| bucket.phase), Some(Phase::Beginning));
        buckets.set_phase(&record(2), Phase::Open);
        assert_eq!(buckets.get(b"logs").map(|bucket| bucket.phase), Some(Phase::Open));
    }
}
