//! The streams of one shard, and [`Table::apply`]: the only function that changes them, live and at recovery alike.
//!
//! Contract:
//! - `apply` moves the staged view at once. Live, it also notes the effect under its ticket; `publish(ticket)` moves the
//!   durable view over every effect up to that ticket, in order, and names the streams whose readers are to wake.
//! - A name leads to at most one stream. A stream whose delete is staged keeps its name until the delete is durable.
//! - Nothing is ever rolled back: after a failed commit the shard takes no more changes, and the durable view stands.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use hashbrown::HashTable;

use super::stream::{ContentType, End, Kind, Lifetime, Snapshot, Start, Stream, Views};
use crate::protocol::headers;
use crate::storage::event::{Appended, Event, HashRange, Payload, StreamCreated};
use crate::storage::settle::{Move, SnapshotMove};

/// Number of a stream in its shard while it lives. Stale ones are caught by the lineage that goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// Place in the table.
    pub slot: u32,
    /// Lineage of the stream that was meant.
    pub lineage: u64,
}

/// When and under which ticket an event was staged.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Ticket: the LSN of the commit.
    pub ticket: u64,
    /// Time of the commit, Unix milliseconds.
    pub time_ms: u64,
}

/// What a commit will make durable.
#[derive(Debug)]
struct Effect {
    ticket: u64,
    stream: StreamId,
    change: Change,
}

/// What it changes in the durable view.
#[derive(Debug)]
enum Change {
    /// The end; and the time of the last write, if bytes were added.
    End(End, Option<u64>),
    /// The stream goes: its `deleted_ticket` says so.
    Deleted,
    Attributes(Rc<[u8]>),
    Snapshot(Rc<Snapshot>),
    First(Start),
}

/// How `apply` finds the stream that an event concerns.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The caller has looked it up.
    Known(StreamId),
    /// By lineage: recovery.
    ByLineage,
}

/// What `publish` found.
#[derive(Debug, PartialEq, Eq)]
pub enum Published {
    /// Readers of this stream have something to see.
    Wake(StreamId),
    /// The stream goes; it is still in the table, for the last time.
    Leaves(StreamId),
    /// The stream is gone; its readers end.
    Gone {
        /// Which stream it was.
        stream: StreamId,
        /// The readers that were attached.
        readers: Vec<u32>,
    },
}

/// The streams of one shard.
#[derive(Default)]
pub struct Table {
    names: HashTable<u32>,
    streams: Streams,
    effects: VecDeque<Effect>,
    content_types: HashMap<Box<[u8]>, Rc<ContentType>>,
    /// Number of content types at which those without a stream are swept out.
    content_types_swept_at: usize,
    by_lineage: HashTable<u32>,
    records: u64,
    /// Whether something of the log has come to be needed no more since it was last asked.
    freed: bool,
}

impl Table {
    /// Number of streams, those whose delete is staged included.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Records in all streams.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The stream of a name, in its staged view.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<StreamId> {
        self.names
            .find(hash, |slot| {
                let stream = self.streams.get(*slot);
                stream.hash == hash && *stream.key == *key
            })
            .map(|slot| StreamId { slot: *slot, lineage: self.streams.get(*slot).lineage })
    }

    /// The stream, if it still is the one that was meant.
    pub fn get(&self, id: StreamId) -> Option<&Stream> {
        self.streams.try_get(id.slot).filter(|stream| stream.lineage == id.lineage)
    }

    /// Likewise, for the marks that `table.rs` does not own (readers, cached events, last use).
    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.try_get_mut(id.slot).filter(|stream| stream.lineage == id.lineage)
    }

    /// The stream at a slot. Panics if there is none: only for slots that are known to be taken.
    pub fn at(&self, slot: u32) -> (StreamId, &Stream) {
        let stream = self.streams.get(slot);
        (StreamId { slot, lineage: stream.lineage }, stream)
    }

    /// All streams.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.streams.iter().map(|(slot, stream)| (StreamId { slot, lineage: stream.lineage }, stream))
    }

    /// Changes the state by one event. Returns the stream it concerned; `None` for events about buckets, and at
    /// recovery for streams that belong to another shard.
    pub fn apply(&mut self, event: &Event<'_>, stamp: Stamp, target: Target) -> Option<StreamId> {
        match event {
            Event::StreamCreated(created) => Some(self.create(created, stamp)),
            Event::Appended(appended) => {
                let id = self.target(target, appended.lineage)?;
                if let (Target::ByLineage, Some(claim)) = (target, &appended.producer) {
                    Self::expect_seq(self.streams.get_mut(id.slot), claim.id, claim.epoch, claim.seq);
                }
                self.append(id, appended, stamp);
                Some(id)
            }
            Event::StreamDeleted { lineage } => {
                let id = self.target(target, *lineage)?;
                let stream = self.streams.get_mut(id.slot);
                assert!(stream.deleted_ticket.is_none(), "stream {lineage} is deleted twice");
                stream.deleted_ticket = Some(stamp.ticket);
                self.effect(id, stamp, Change::Deleted);
                Some(id)
            }
            Event::AttributesSet { lineage, attributes } => {
                let id = self.target(target, *lineage)?;
                let attributes: Rc<[u8]> = (*attributes).into();
                self.streams.get_mut(id.slot).rare_mut().attributes.staged = attributes.clone();
                self.effect(id, stamp, Change::Attributes(attributes));
                Some(id)
            }
            Event::SnapshotPublished(published) => {
                let id = self.target(target, published.lineage)?;
                let snapshot = Rc::new(Snapshot {
                    offset: published.offset,
                    record: published.record,
                    content_type: published.content_type.into(),
                    digest: published.digest,
                    parts: published.parts.into(),
                });
                self.streams.get_mut(id.slot).rare_mut().snapshot.staged = Some(snapshot.clone());
                self.effect(id, stamp, Change::Snapshot(snapshot));
                Some(id)
            }
            Event::Retained { lineage, offset, record } => {
                let id = self.target(target, *lineage)?;
                self.retain(id, Start { bytes: *offset, records: *record }, stamp);
                Some(id)
            }
            Event::Skipped { lineage, start, bytes, records } => {
                let id = self.target(target, *lineage)?;
                self.skip(id, *start, End { bytes: *bytes, records: *records, closed: false }, stamp);
                Some(id)
            }
            Event::ProducerRuns(runs) => {
                let id = self.target(target, runs.lineage)?;
                let stream = self.streams.get_mut(id.slot);
                Self::expect_seq(stream, runs.id, runs.epoch, runs.first_seq);
                stream.producers.record_runs(runs);
                Some(id)
            }
            Event::Renewed { lineage, used_ms } => {
                let id = self.target(target, *lineage)?;
                if let Some(lifetime) = &mut self.streams.get_mut(id.slot).lifetime {
                    lifetime.recorded_ms = lifetime.recorded_ms.max(*used_ms);
                    lifetime.used_ms = lifetime.used_ms.max(*used_ms);
                }
                Some(id)
            }
            Event::BucketCreated { .. } | Event::BucketDeleted { .. } => None,
        }
    }

    /// The stream of a lineage.
    pub fn find_lineage(&self, lineage: u64) -> Option<StreamId> {
        let found =
            self.by_lineage.find(hash_of_lineage(lineage), |slot| self.streams.get(*slot).lineage == lineage);
        found.map(|slot| StreamId { slot: *slot, lineage })
    }

    /// Settling has moved bytes of a stream.
    pub fn relocate(&mut self, moved: &Move) {
        let Some(id) = self.find_lineage(moved.lineage) else { return };
        let stream = self.streams.get_mut(id.slot);
        let first = stream.first().bytes;
        stream.extents.relocate(first, moved.from, &moved.parts);
    }

    /// Settling has moved a snapshot.
    pub fn relocate_snapshot(&mut self, moved: &SnapshotMove) {
        let Some(id) = self.find_lineage(moved.lineage) else { return };
        let Some(rare) = &mut self.streams.get_mut(id.slot).rare else { return };
        let Views { staged, durable } = &mut rare.snapshot;
        let is_it = |snapshot: &Snapshot| snapshot.offset == moved.offset && snapshot.digest == moved.digest;
        let Some(there) = durable.as_ref().filter(|snapshot| is_it(snapshot)) else { return };
        let elsewhere = Rc::new(Snapshot { parts: moved.parts.as_slice().into(), ..Snapshot::clone(there) });
        if staged.as_ref().is_some_and(|staged| Rc::ptr_eq(staged, there)) {
            *staged = Some(elsewhere.clone());
        }
        *durable = Some(elsewhere);
    }

    /// Whether something of the log has come to be needed no more since the last call.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// A stream at `slot` or the first one after it, for a walk over all of them in turns.
    pub fn next_from(&self, slot: u32) -> Option<StreamId> {
        let end = self.streams.end();
        (slot..end).find_map(|slot| {
            self.streams.try_get(slot).map(|stream| StreamId { slot, lineage: stream.lineage })
        })
    }

    /// Whether an event goes on where the stream that it concerns ends. At replay it may not, if the stream is deleted further on:
    /// settling has dropped some of it then.
    pub fn goes_on(&self, event: &Event<'_>) -> bool {
        let Some(id) = event.lineage().and_then(|lineage| self.find_lineage(lineage)) else { return true };
        let end = self.streams.get(id.slot).staged.bytes;
        match event {
            Event::Appended(appended) => appended.start == end,
            Event::Skipped { start, .. } => *start == end,
            Event::Retained { offset, .. } => *offset <= end,
            _ => true,
        }
    }

    /// Takes a stream out at once: at replay, when it is known to be deleted further on.
    pub fn drop_lineage(&mut self, lineage: u64) {
        self.publish(u64::MAX, |_, _| {});
        if let Some(id) = self.find_lineage(lineage) {
            self.remove(id);
        }
    }

    /// Prepares a replayed stream for a producer's append `seq`. A gap in the sequence numbers of an epoch means that a newer epoch
    /// comes further on: settling has dropped some of the older one.
    fn expect_seq(stream: &mut Stream, id: &[u8], epoch: u64, seq: u64) {
        if let Some(state) = stream.producers.state(id)
            && state.epoch == epoch
            && state.last_seq + 1 != seq
        {
            stream.producers.forget(id);
        }
    }

    /// Whether an event about a stream of the table counts, in a segment that counts for these placement hashes only.
    pub fn counts(&self, event: &Event<'_>, hashes: HashRange) -> bool {
        hashes == HashRange::ALL
            || event
                .lineage()
                .and_then(|lineage| self.target(Target::ByLineage, lineage))
                .is_some_and(|id| hashes.contains(self.streams.get(id.slot).hash))
    }

    fn target(&self, target: Target, lineage: u64) -> Option<StreamId> {
        match target {
            Target::Known(id) => {
                assert_eq!(id.lineage, lineage, "the event concerns another life of the stream");
                Some(id)
            }
            Target::ByLineage => self.find_lineage(lineage),
        }
    }

    fn create(&mut self, created: &StreamCreated<'_>, stamp: Stamp) -> StreamId {
        assert!(
            self.find(created.placement, created.key).is_none(),
            "stream {} takes a name in use",
            created.lineage
        );
        let content_type = self.content_type(created.content_type);
        let lifetime = (created.ttl_seconds.is_some() || created.expires_at_ms.is_some()).then(|| {
            Box::new(Lifetime {
                ttl_seconds: created.ttl_seconds,
                expires_at_ms: created.expires_at_ms,
                used_ms: stamp.time_ms,
                recorded_ms: stamp.time_ms,
                recovered: false,
                renewal_queued: false,
            })
        });
        let end = End { closed: created.closed, ..End::default() };
        let mut stream = Stream {
            key: created.key.into(),
            hash: created.placement,
            lineage: created.lineage,
            bucket_generation: created.bucket_generation,
            content_type,
            lifetime,
            created_ms: stamp.time_ms,
            last_write_ms: stamp.time_ms,
            created_ticket: stamp.ticket,
            last_ticket: stamp.ticket,
            deleted_ticket: None,
            staged: end,
            durable: End::default(),
            index: Default::default(),
            extents: Default::default(),
            producers: Default::default(),
            rare: None,
        };
        if !created.attributes.is_empty() {
            let attributes: Rc<[u8]> = created.attributes.into();
            // Nobody sees a stream whose creation is not durable.
            stream.rare_mut().attributes = Views { staged: attributes.clone(), durable: attributes };
        }
        let slot = self.streams.insert(stream);
        let id = StreamId { slot, lineage: created.lineage };
        let streams = &self.streams;
        self.names.insert_unique(created.placement, slot, |slot| streams.get(*slot).hash);
        self.by_lineage.insert_unique(hash_of_lineage(created.lineage), slot, |slot| {
            hash_of_lineage(streams.get(*slot).lineage)
        });
        self.effect(id, stamp, Change::End(end, None));
        id
    }

    /// Notes what the commit of `stamp` will make durable of a stream.
    fn effect(&mut self, id: StreamId, stamp: Stamp, change: Change) {
        self.streams.get_mut(id.slot).last_ticket = stamp.ticket;
        self.effects.push_back(Effect { ticket: stamp.ticket, stream: id, change });
    }

    /// The stream went on at `start` with as much as `gone`, which retention has taken: it begins behind that, at least.
    fn skip(&mut self, id: StreamId, start: u64, gone: End, stamp: Stamp) {
        let stream = self.streams.get_mut(id.slot);
        assert_eq!(start, stream.staged.bytes, "what is gone of stream {} leaves a gap", id.lineage);
        let end = &mut stream.staged;
        (end.bytes, end.records) = (end.bytes + gone.bytes, end.records + gone.records);
        let end = *end;
        stream.index.skip_to(end.records, end.bytes);
        stream.extents.forget_before(end.bytes);
        stream.note_write(stamp.time_ms);
        self.records += gone.records;
        self.effect(id, stamp, Change::End(end, Some(stamp.time_ms)));
        self.retain(id, Start { bytes: end.bytes, records: end.records }, stamp);
    }

    /// The stream begins at `first`.
    fn retain(&mut self, id: StreamId, first: Start, stamp: Stamp) {
        let stream = self.streams.get_mut(id.slot);
        let before = stream.firsts().staged;
        if first.bytes <= before.bytes {
            // A rewrite repeats what an older entry says.
            return;
        }
        assert!(first.records >= before.records, "the first record of {id:?} moves back: {first:?}");
        stream.rare_mut().first.staged = first;
        assert!(first.bytes <= stream.staged.bytes, "{first:?} is beyond the end of {id:?}");
        self.effect(id, stamp, Change::First(first));
    }

    fn append(&mut self, id: StreamId, appended: &Appended<'_>, stamp: Stamp) {
        let stream = self.streams.get_mut(id.slot);
        assert_eq!(appended.start, stream.staged.bytes, "append to stream {} leaves a gap", id.lineage);
        assert!(!stream.staged.closed, "append to the closed stream {}", id.lineage);
        let (bytes, count) = (appended.lengths.total_bytes(), appended.lengths.count());
        match appended.payload {
            Payload::Here(_) if bytes == 0 => {}
            Payload::Here(place) => stream.extents.push(appended.start, bytes, place),
            Payload::Parts(parts) => {
                let mut start = appended.start;
                for part in parts {
                    stream.extents.push(start, u64::from(part.len), part.place);
                    start += u64::from(part.len);
                }
                assert_eq!(start, appended.start + bytes, "the parts are the append");
            }
        }
        stream.index.push_many(appended.lengths);
        if let Some(producer) = &appended.producer {
            let first = stream.staged.records;
            stream.producers.record(producer.id, producer.epoch, producer.seq, first, count);
        }
        if let Some(seq) = appended.stream_seq {
            stream.rare_mut().stream_seq = Some(seq.into());
        }
        stream.staged.bytes += bytes;
        stream.staged.records += count;
        stream.staged.closed |= appended.closed;
        assert_eq!(stream.index.end(), stream.staged.bytes, "the index ends where the stream does");
        stream.note_write(stamp.time_ms);
        self.records += count;
        let written_ms = (bytes > 0).then_some(stamp.time_ms);
        let end = stream.staged;
        self.effect(id, stamp, Change::End(end, written_ms));
    }

    /// Moves the durable view over everything up to `ticket`; tells `each` whose readers have something to see.
    pub fn publish(&mut self, ticket: u64, mut each: impl FnMut(&Self, Published)) {
        while self.effects.front().is_some_and(|effect| effect.ticket <= ticket) {
            let effect = self.effects.pop_front().expect("looked at above");
            let id = effect.stream;
            let Some(stream) = self.get_mut(id) else { continue };
            if stream.deleted_ticket.is_some_and(|deleted| deleted <= effect.ticket) {
                each(self, Published::Leaves(id));
                let gone = self.remove(id);
                each(self, gone);
                continue;
            }
            match effect.change {
                Change::End(end, written_ms) => {
                    assert!(stream.durable.bytes <= end.bytes, "the durable end of {id:?} moves back");
                    stream.durable = end;
                    stream.last_write_ms = written_ms.unwrap_or(stream.last_write_ms);
                }
                Change::Deleted => unreachable!("the ticket of the delete of {id:?} says so"),
                Change::Attributes(attributes) => {
                    stream.rare_mut().attributes.durable = attributes;
                    continue;
                }
                Change::Snapshot(snapshot) => {
                    let before = stream.rare_mut().snapshot.durable.replace(snapshot);
                    self.freed |= before.is_some();
                    continue;
                }
                // A reader that stands before it ends.
                Change::First(first) => self.forget(id, first),
            }
            if self.get(id).is_some_and(Stream::has_readers) {
                each(self, Published::Wake(id));
            }
        }
    }

    /// Retention is durable: what lies before it costs no memory any more.
    fn forget(&mut self, id: StreamId, first: Start) {
        self.freed = true;
        let stream = self.streams.get_mut(id.slot);
        self.records -= first.records - stream.first().records;
        stream.rare_mut().first.durable = first;
        stream.index.forget_before(first.records);
        stream.extents.forget_before(first.bytes);
    }

    fn remove(&mut self, id: StreamId) -> Published {
        let mut stream = self.streams.remove(id.slot);
        let entry = self.names.find_entry(stream.hash, |slot| *slot == id.slot);
        entry.expect("a stream has its name").remove();
        let entry = self.by_lineage.find_entry(hash_of_lineage(id.lineage), |slot| *slot == id.slot);
        entry.expect("a stream has its lineage").remove();
        self.records -= stream.staged.records - stream.first().records;
        self.freed = true;
        let readers = stream.rare.take().map(|rare| rare.readers).unwrap_or_default();
        Published::Gone { stream: id, readers }
    }

    /// Ends recovery: everything that was replayed is durable.
    pub fn recovered(&mut self) {
        self.publish(u64::MAX, |_, _| {});
        for (_, stream) in self.streams.iter_mut() {
            if let Some(lifetime) = &mut stream.lifetime {
                lifetime.used_ms = lifetime.recorded_ms;
                lifetime.recovered = true;
            }
        }
    }

    fn content_type(&mut self, bytes: &[u8]) -> Rc<ContentType> {
        if let Some(known) = self.content_types.get(bytes) {
            return known.clone();
        }
        let kind = if headers::is_json(bytes) {
            Kind::Json
        } else if headers::is_text(bytes) {
            Kind::Text
        } else {
            Kind::Binary
        };
        let content_type = Rc::new(ContentType { bytes: bytes.into(), kind });
        // Interned as long as some stream has it; swept when twice as many are there as after the last sweep.
        if self.content_types.len() >= self.content_types_swept_at {
            self.content_types.retain(|_, held| Rc::strong_count(held) > 1);
            self.content_types_swept_at = (2 * self.content_types.len()).max(1024);
        }
        self.content_types.insert(bytes.into(), content_type.clone());
        content_type
    }
}

/// Multiplied by an odd constant with no pattern: lineages grow by one, and a table wants bits that differ at both ends.
fn hash_of_lineage(lineage: u64) -> u64 {
    let product = lineage.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Streams by slot, in chunks so that growth never moves them.
#[derive(Default)]
struct Streams {
    chunks: Vec<Vec<Option<Stream>>>,
    free: Vec<u32>,
}

impl Streams {
    const CHUNK: usize = 256;

    fn insert(&mut self, stream: Stream) -> u32 {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.chunks[slot as usize / Self::CHUNK][slot as usize % Self::CHUNK];
            assert!(place.is_none(), "slot {slot} is taken");
            *place = Some(stream);
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == Self::CHUNK) {
            self.chunks.push(Vec::with_capacity(if self.chunks.is_empty() { 0 } else { Self::CHUNK }));
        }
        let slot = (self.chunks.len() - 1) * Self::CHUNK + self.chunks.last().expect("pushed above").len();
        self.chunks.last_mut().expect("pushed above").push(Some(stream));
        u32::try_from(slot).expect("fewer than 2^32 streams")
    }

    /// The slot after the last one.
    fn end(&self) -> u32 {
        self.chunks.last().map_or(0, |last| ((self.chunks.len() - 1) * Self::CHUNK + last.len()) as u32)
    }

    fn try_get(&self, slot: u32) -> Option<&Stream> {
        self.chunks.get(slot as usize / Self::CHUNK)?.get(slot as usize % Self::CHUNK)?.as_ref()
    }

    fn try_get_mut(&mut self, slot: u32) -> Option<&mut Stream> {
        self.chunks.get_mut(slot as usize / Self::CHUNK)?.get_mut(slot as usize % Self::CHUNK)?.as_mut()
    }

    fn get(&self, slot: u32) -> &Stream {
        self.try_get(slot).unwrap_or_else(|| panic!("slot {slot} is empty"))
    }

    fn get_mut(&mut self, slot: u32) -> &mut Stream {
        self.try_get_mut(slot).unwrap_or_else(|| panic!("slot {slot} is empty"))
    }

    fn remove(&mut self, slot: u32) -> Stream {
        let place = &mut self.chunks[slot as usize / Self::CHUNK][slot as usize % Self::CHUNK];
        let stream = place.take().unwrap_or_else(|| panic!("slot {slot} is empty"));
        self.free.push(slot);
        stream
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &Stream)> {
        let all = self.chunks.iter().flatten().enumerate();
        all.filter_map(|(slot, stream)| stream.as_ref().map(|stream| (slot as u32, stream)))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Stream)> {
        let all = self.chunks.iter_mut().flatten().enumerate();
        all.filter_map(|(slot, stream)| stream.as_mut().map(|stream| (slot as u32, stream)))
    }
}

#[cfg(test)]
mod tests;
