//! One core's share of the server: its log, its stream table, its buckets, its live readers.
//!
//! Contract:
//! - Everything here lives on one executor and is reached by `Rc`; nothing is locked, nothing is sent.
//! - State changes by [`Shard::stage`] only: the log takes the event, then the table applies it. What is staged becomes
//!   visible when its commit completes ([`Publisher`]), never before.
//! - No borrow of the table or the buckets is held across an await.

pub mod buckets;
pub mod expiry;
pub mod lineage;
pub mod mail;
pub mod order;
pub mod pending;
pub mod readers;
pub mod replay;
pub mod settle;
pub mod stream;
pub mod table;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use buckets::{Buckets, Phase};
use expiry::ExpiryQueue;
use mail::{BucketRecord, Mailboxes};
use pending::PendingChunks;
use readers::Readers;
use stream::Stream;
use table::{Published, Stamp, StreamId, Table, Target};

use crate::config::Config;
use crate::limits;
use crate::protocol::expiry::Expiry;
use crate::signal::{News, Signal};
use crate::storage::event::{Appended, Event, Payload, StreamCreated};
use crate::storage::log::{Class, Log, Publisher, Refusal, Room};

/// One shard.
pub struct Shard {
    /// Its index.
    pub index: usize,
    /// How many there are.
    pub shards: usize,
    /// Settings.
    pub config: Arc<Config>,
    /// Its log.
    pub log: Log,
    /// Its streams.
    pub table: RefCell<Table>,
    /// The bucket directory.
    pub buckets: RefCell<Buckets>,
    /// Its live readers.
    pub readers: Rc<Readers>,
    /// Lineage ids.
    pub lineages: Arc<lineage::Lineages>,
    /// Everyone's mailbox.
    pub mailboxes: Mailboxes,
    /// Chunk entries that no durable entry names yet.
    pub pending_chunks: PendingChunks,
    /// Serialises changes of the buckets that this shard is home to.
    pub bucket_gate: glommio::sync::Semaphore,
    /// Announced when a bucket has begun, has ended or stays: creates wait for that.
    pub decisions: News,
    /// Serialises rewrites of segments.
    settle_gate: glommio::sync::Semaphore,
    /// Segments whose rewrite failed.
    left_alone: RefCell<settle::left_alone::LeftAlone>,
    placement_seed: u64,
    expiry: RefCell<ExpiryQueue>,
    /// Streams with a time to live that live readers use, by the time at which that must be recorded.
    renewals: RefCell<ExpiryQueue>,
    /// One of the two queues above has got something.
    expiry_filled: Signal,
    /// Ticket of the last staged delete of a stream, and of the last one because of its expiry.
    deleted_ticket: Cell<u64>,
    expired_ticket: Cell<u64>,
    stopping: Cell<bool>,
    body_bytes_in_flight: Cell<u64>,
}

/// What a stream's name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Missing,
    /// A stream.
    Live(StreamId),
    /// A stream whose delete (or expiry) is staged under this ticket: gone once it is durable.
    Going(u64),
}

/// Everything a shard is made of, once its log is recovered.
pub struct Parts {
    /// Its index.
    pub index: usize,
    /// How many there are.
    pub shards: usize,
    /// Settings.
    pub config: Arc<Config>,
    /// Its log.
    pub log: Log,
    /// Its streams.
    pub table: Table,
    /// Lineage ids.
    pub lineages: Arc<lineage::Lineages>,
    /// Everyone's mailbox.
    pub mailboxes: Mailboxes,
    /// Seed of the placement hash.
    pub placement_seed: u64,
}

impl Shard {
    /// Puts a recovered shard together. It serves nothing before [`Shard::begin`].
    pub fn new(parts: Parts) -> Rc<Self> {
        Rc::new(Self {
            index: parts.index,
            shards: parts.shards,
            config: parts.config,
            log: parts.log,
            table: RefCell::new(parts.table),
            buckets: RefCell::default(),
            readers: Rc::default(),
            lineages: parts.lineages,
            mailboxes: parts.mailboxes,
            pending_chunks: PendingChunks::default(),
            bucket_gate: glommio::sync::Semaphore::new(1),
            decisions: News::default(),
            settle_gate: glommio::sync::Semaphore::new(1),
            left_alone: RefCell::default(),
            placement_seed: parts.placement_seed,
            expiry: RefCell::default(),
            renewals: RefCell::default(),
            expiry_filled: Signal::default(),
            deleted_ticket: Cell::new(0),
            expired_ticket: Cell::new(0),
            stopping: Cell::new(false),
            body_bytes_in_flight: Cell::new(0),
        })
    }

    /// Takes the directory of buckets, enters the recovered streams in it, and starts the commit loop and the shard's
    /// background work.
    pub fn begin(self: &Rc<Self>, buckets: &[BucketRecord]) {
        {
            let (table, mut directory) = (self.table.borrow(), self.buckets.borrow_mut());
            for record in buckets {
                directory.add(record, Phase::Open);
            }
            directory.fill(&table);
            let mut expiry = self.expiry.borrow_mut();
            for (id, stream) in table.iter() {
                if let Some(at_ms) = stream.lifetime.as_deref().and_then(expiry::earliest_deadline_ms) {
                    expiry.add(at_ms, id, |_| true);
                }
            }
        }
        self.log.start(Rc::new(Publishing(Rc::downgrade(self))));
        glommio::spawn_local(self.readers.clone().wake_loop()).detach();
        glommio::spawn_local(self.readers.clone().deadline_loop(now_ms)).detach();
        glommio::spawn_local(expiry::expiry_loop(self.clone())).detach();
        self.log.spawn_background("settling", settle::run(self.clone()));
        // What was freed before a restart.
        self.log.suggest_settling();
    }

    /// Placement hash of a stream's key, or of a bucket's id.
    pub fn hash(&self, key: &[u8]) -> u64 {
        placement(key, self.placement_seed)
    }

    /// The shard that a placement hash belongs to.
    pub fn owner(&self, hash: u64) -> usize {
        owner(hash, self.shards)
    }

    /// Stages an event and applies it. Panics unless [`Shard::room`] has just said [`Room::Now`].
    pub fn stage(&self, event: &Event<'_>, target: Target) -> Stamp {
        let staged = self.log.stage(event, 0, |_| {});
        let stamp = Stamp { ticket: staged.ticket, time_ms: staged.time_ms };
        self.table.borrow_mut().apply(event, stamp, target);
        stamp
    }

    /// Stages an append whose payload `fill` writes, and applies it. Panics like [`Shard::stage`].
    pub fn stage_append(
        &self,
        stream: StreamId,
        mut appended: Appended<'_>,
        payload_bytes: usize,
        fill: impl FnOnce(&mut crate::storage::commit::PayloadWriter<'_>),
    ) -> Stamp {
        let staged = self.log.stage(&Event::Appended(appended), payload_bytes, fill);
        if let Payload::Here(place) = &mut appended.payload {
            *place = staged.place;
        }
        let stamp = Stamp { ticket: staged.ticket, time_ms: staged.time_ms };
        let mut table = self.table.borrow_mut();
        table.apply(&Event::Appended(appended), stamp, Target::Known(stream));
        note_use(&mut table, stream);
        stamp
    }

    /// Stages a create, applies it, and enters the stream in its bucket. Panics like [`Shard::stage`].
    pub fn stage_create(&self, created: StreamCreated<'_>) -> (StreamId, Stamp) {
        let event = Event::StreamCreated(created);
        let staged = self.log.stage(&event, 0, |_| {});
        let stamp = Stamp { ticket: staged.ticket, time_ms: staged.time_ms };
        let mut table = self.table.borrow_mut();
        let id = table.apply(&event, stamp, Target::ByLineage).expect("a create makes a stream");
        note_use(&mut table, id);
        if created.bucket_generation != 0 {
            self.buckets.borrow_mut().enter(&table, id);
        }
        let stream = table.get(id).expect("just made");
        if let Some(at_ms) = stream.lifetime.as_deref().and_then(expiry::deadline_ms) {
            self.expiry.borrow_mut().add(at_ms, id, |id| table.get(id).is_some());
            self.expiry_filled.notify();
        }
        (id, stamp)
    }

    /// Whether an entry of this size can be staged now.
    pub fn room(&self, meta_bytes: usize, payload_bytes: usize, class: Class) -> Room {
        self.log.room(meta_bytes, payload_bytes, class)
    }

    /// What a name leads to, in the staged view. An expired stream's delete is staged on the way. If there is no room for
    /// it just now, the stream is still there: nobody may see it gone before that is logged. If there will be none, it
    /// counts as missing.
    pub fn find(&self, hash: u64, key: &[u8]) -> Found {
        let (id, expired) = {
            let table = self.table.borrow();
            let Some(id) = table.find(hash, key) else { return Found::Missing };
            let stream = table.get(id).expect("found above");
            if let Some(ticket) = stream.deleted_ticket {
                return Found::Going(ticket);
            }
            if stream.lifetime.is_none() {
                return Found::Live(id);
            }
            (id, expiry::is_expired(stream, now_ms()))
        };
        if !expired {
            return Found::Live(id);
        }
        match self.expire(id) {
            Some(ticket) => Found::Going(ticket),
            None if self.refusal().is_none() => Found::Live(id),
            None => Found::Missing,
        }
    }

    /// Stages the delete of a stream; `None` if there is no room for it now, or ever.
    pub fn delete(&self, id: StreamId) -> Option<u64> {
        match self.room(DELETE_META_BYTES, 0, Class::Control) {
            Room::Now => {
                let event = Event::StreamDeleted { lineage: id.lineage };
                let ticket = self.stage(&event, Target::Known(id)).ticket;
                self.deleted_ticket.set(ticket);
                Some(ticket)
            }
            Room::Later | Room::Refused(_) => None,
        }
    }

    /// Notes a use of a stream with a sliding time to live; recorded in the log every tenth of the window (decision 24).
    pub fn touch(&self, id: StreamId) {
        let now_ms;
        let due = {
            let mut table = self.table.borrow_mut();
            let Some(lifetime) = table.get_mut(id).and_then(|stream| stream.lifetime.as_deref_mut()) else {
                return;
            };
            let expiry = Expiry::from_parts(lifetime.ttl_seconds, None);
            now_ms = self::now_ms();
            lifetime.used_ms = lifetime.used_ms.max(now_ms);
            lifetime.recovered = false;
            expiry.must_record(lifetime.recorded_ms, now_ms)
        };
        if due {
            self.record_use(id, now_ms);
        }
    }

    /// Records a use in the log. Without room now, the next use does: the window grants a tenth of slack.
    fn record_use(&self, id: StreamId, used_ms: u64) {
        if self.room(DELETE_META_BYTES, 0, Class::Append) == Room::Now {
            self.stage(&Event::Renewed { lineage: id.lineage, used_ms }, Target::Known(id));
        }
    }

    /// Takes budget for a body in flight, if there is some.
    pub fn take_body_budget(&self, bytes: u64) -> bool {
        let total = self.body_bytes_in_flight.get() + bytes;
        let bodies = self.config.max_body_bytes * limits::BODIES_IN_FLIGHT;
        let fits = total <= bodies.max(self.config.max_snapshot_bytes * limits::SNAPSHOTS_IN_FLIGHT);
        if fits {
            self.body_bytes_in_flight.set(total);
        }
        fits
    }

    /// Gives it back.
    pub fn return_body_budget(&self, bytes: u64) {
        let left = self.body_bytes_in_flight.get().checked_sub(bytes);
        self.body_bytes_in_flight.set(left.expect("budget given back was taken"));
    }

    /// The lowest index (`Place::segment`) of the segments in which operations under way have put chunk entries that no
    /// durable entry names yet: from there on the log may hold bytes that count though no stream knows of them.
    pub fn oldest_pending_chunk(&self) -> Option<u32> {
        self.pending_chunks.oldest(self.log.durable())
    }

    /// Whether the server is stopping.
    pub fn stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Starts the stop: live readers end, connections end after the request at hand.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.decisions.announce();
        self.readers.queue_all();
    }

    /// Why the log takes no more changes, if it does not.
    pub fn refusal(&self) -> Option<Refusal> {
        self.log.refusal()
    }

    /// Whether a stream is in the durable view.
    pub fn is_visible(&self, stream: &Stream) -> bool {
        stream.created_ticket <= self.log.durable()
    }

    /// Attaches a live reader.
    pub fn attach(self: &Rc<Self>, id: StreamId) -> Option<Attached> {
        let mut table = self.table.borrow_mut();
        let stream = table.get_mut(id)?;
        let slot = self.readers.enter(id, &mut stream.rare_mut().readers);
        if let Some(lifetime) = stream.lifetime.as_deref_mut().filter(|lifetime| !lifetime.renewal_queued)
            && let Some(due_ms) = expiry::renewal_due_ms(lifetime)
        {
            lifetime.renewal_queued = true;
            self.renewals.borrow_mut().add(due_ms, id, |id| table.get(id).is_some());
            self.expiry_filled.notify();
        }
        drop(table);
        Some(Attached { shard: self.clone(), stream: id, slot })
    }

    fn published(&self, ticket: u64) {
        let mut gone = Vec::new();
        let mut wake = Vec::new();
        let (mut table, mut buckets) = (self.table.borrow_mut(), self.buckets.borrow_mut());
        buckets.publish(&table, ticket);
        table.publish(ticket, |table, published| match published {
            Published::Wake(stream) => wake.push(stream),
            Published::Leaves(stream) => buckets.leave(table, stream),
            Published::Gone { readers, .. } => gone.push(readers),
        });
        for id in wake {
            if let Some(rare) = table.get(id).and_then(|stream| stream.rare.as_ref()) {
                self.readers.queue(&rare.readers);
            }
        }
        if table.take_freed() {
            self.log.suggest_settling();
        }
        drop((table, buckets));
        gone.iter().for_each(|readers| self.readers.queue(readers));
    }
}

/// Bytes of metadata of the entries that carry only ids and times, generously.
pub const DELETE_META_BYTES: usize = 64;

/// A live reader's attachment to its stream; ends when dropped.
pub struct Attached {
    shard: Rc<Shard>,
    /// The stream.
    pub stream: StreamId,
    /// The reader.
    pub slot: u32,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut table = self.shard.table.borrow_mut();
        let rare = table.get_mut(self.stream).and_then(|stream| stream.rare.as_mut());
        match rare {
            Some(rare) => {
                self.shard.readers.leave(self.slot, Some(&mut rare.readers));
                if rare.readers.is_empty() {
                    (rare.event, rare.envelopes) = (None, None);
                    rare.readers = Vec::new();
                }
            }
            None => self.shard.readers.leave(self.slot, None),
        }
        // The last use of the stream is the end of its last live reader.
        note_use(&mut table, self.stream);
    }
}

/// Notes that a stream is used now. The commit that a use joins may have been opened a while ago: its time is not enough.
fn note_use(table: &mut Table, id: StreamId) {
    if let Some(lifetime) = table.get_mut(id).and_then(|stream| stream.lifetime.as_deref_mut()) {
        lifetime.used_ms = lifetime.used_ms.max(now_ms());
    }
}

struct Publishing(Weak<Shard>);

impl Publisher for Publishing {
    fn published(&self, ticket: u64) {
        if let Some(shard) = self.0.upgrade() {
            shard.published(ticket);
        }
    }

    fn latched(&self, why: &str) {
        if let Some(shard) = self.0.upgrade() {
            eprintln!("thalweg: shard {} takes no more writes until a restart: {why}", shard.index);
        }
    }
}

/// Unix milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Stable hash of a stream's key or a bucket's id: decides the shard, and keys the table.
pub fn placement(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

/// The shard, of `shards`, that a placement hash belongs to.
pub fn owner(hash: u64, shards: usize) -> usize {
    (((hash >> 32) * shards as u64) >> 32) as usize
}

/// What [`owner`] looks at, the upper half of a placement hash, of everything that a shard owns. The ranges of all shards
/// lie side by side, so two layouts of different numbers of shards overlap in few places.
pub fn owned(shard: usize, shards: usize) -> Range<u64> {
    let first = |shard: usize| ((shard as u64) << 32).div_ceil(shards as u64);
    first(shard)..first(shard + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shard_owns_is_what_leads_to_it() {
        for shards in [1, 2, 3, 5, 7, 8, 100, 255, 256] {
            let mut end = 0;
            for shard in 0..shards {
                let range = owned(shard, shards);
                assert_eq!(range.start, end, "shard {shard} of {shards} begins where the one before ends");
                end = range.end;
                for upper in [range.start, range.end - 1] {
                    for lower in [0, u64::from(u32::MAX)] {
                        assert_eq!(owner(upper << 32 | lower, shards), shard, "{upper} of {shards}");
                    }
                }
            }
            assert_eq!(end, 1 << 32, "{shards} shards own everything");
        }
    }
}
