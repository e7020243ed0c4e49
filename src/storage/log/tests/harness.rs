//! What the tests share: an executor, a publisher that remembers, events as text, and a workload with its model.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use glommio::{LocalExecutorBuilder, Placement};

use crate::limits::SEGMENT_BYTES_MIN;
use crate::storage::codec::meta_bytes_max;
use crate::storage::device::Store;
use crate::storage::event::{
    Appended, Event, EventContext, HashRange, Lengths, Part, Payload, Place, Producer, StreamCreated,
};
use crate::storage::log::{
    Class, Log, LogOptions, OpenError, Piece, Publisher, Recovered, Refusal, Room, Staged, Sync,
};
use crate::storage::simulated::SimulatedStore;

/// Runs a test in an executor of its own.
pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    // Memory of finished executors is given back late by the kernel, so a first try may fail.
    for _ in 0..50 {
        let builder = LocalExecutorBuilder::new(Placement::Unbound).ring_depth(64).io_memory(64 << 10);
        match builder.make() {
            Ok(executor) => return executor.run(test),
            Err(_) => std::thread::yield_now(),
        }
    }
    panic!("no executor can be made here");
}

/// Gives other tasks turns until something has happened.
pub(super) async fn until(happened: impl Fn() -> bool) {
    while !happened() {
        glommio::executor().yield_task_queue_now().await;
    }
}

pub(super) fn options() -> LogOptions {
    LogOptions {
        log_id: 7,
        sync: Sync::Always,
        commit_delay_us: 0,
        segment_bytes: SEGMENT_BYTES_MIN,
        segments_ahead: 1,
        cache_bytes: 0,
    }
}

/// A publisher that remembers.
#[derive(Default)]
pub(super) struct Told {
    pub(super) published: Cell<u64>,
    pub(super) latched: RefCell<Option<String>>,
}

impl Publisher for Told {
    fn published(&self, ticket: u64) {
        assert_eq!(self.published.get() + 1, ticket, "tickets are published one by one");
        self.published.set(ticket);
    }

    fn latched(&self, why: &str) {
        assert!(self.latched.borrow().is_none(), "told once");
        *self.latched.borrow_mut() = Some(why.to_string());
    }
}

/// An event that was staged or recovered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// All of it but the places.
    pub(super) text: String,
    pub(super) lsn: u64,
    pub(super) time_ms: u64,
    pub(super) parts: Vec<Part>,
}

impl Seen {
    pub(super) fn new(event: &Event<'_>, context: EventContext) -> Seen {
        let EventContext { lsn, time_ms, .. } = context;
        let mut shown = *event;
        let mut parts = Vec::new();
        if let Event::Appended(append) = &mut shown {
            let total = append.lengths.total_bytes();
            parts = match append.payload {
                Payload::Here(_) if total == 0 => Vec::new(),
                Payload::Here(place) => vec![Part { place, len: total as u32 }],
                Payload::Parts(parts) => parts.to_vec(),
            };
            append.payload = Payload::Here(Place::default());
        }
        Seen { text: format!("{shown:?}"), lsn, time_ms, parts }
    }

    /// Its payload as the log has it.
    pub(super) async fn payload(&self, log: &Log) -> Vec<u8> {
        let pieces = self.parts.iter().map(|part| Piece {
            place: part.place,
            extent_len: part.len,
            from: 0,
            len: part.len,
        });
        let mut out = Vec::new();
        log.read(&log.hold(pieces.collect()), &mut out).await.expect("readable");
        out
    }
}

/// Opens and starts the log of `store`.
pub(super) async fn open(
    store: &SimulatedStore,
    options: LogOptions,
) -> (Log, Recovered, Vec<Seen>, Rc<Told>) {
    try_open(store, options).await.expect("opens")
}

pub(super) async fn try_open(
    store: &SimulatedStore,
    options: LogOptions,
) -> Result<(Log, Recovered, Vec<Seen>, Rc<Told>), OpenError> {
    let mut seen = Vec::new();
    let shared: Rc<dyn Store> = Rc::new(store.clone());
    let mut visit = |event: &Event<'_>, context: EventContext| seen.push(Seen::new(event, context));
    let (log, recovered) = Log::open(shared, options, &mut visit).await?;
    let told = Rc::new(Told::default());
    told.published.set(log.durable());
    log.start(told.clone());
    Ok((log, recovered, seen, told))
}

/// Bytes that differ between streams and offsets, none of them zero. Copied from a table: tests need many megabytes.
pub(super) fn pattern(lineage: u64, start: u64, len: usize) -> Vec<u8> {
    const PERIOD: usize = 65_521;
    thread_local! {
        static TABLE: Vec<u8> = (0..PERIOD as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    }
    let mut at = (start as usize + lineage as usize * 977) % PERIOD;
    let mut bytes = Vec::with_capacity(len);
    TABLE.with(|table| {
        while bytes.len() < len {
            let now = (len - bytes.len()).min(PERIOD - at);
            bytes.extend_from_slice(&table[at..at + now]);
            at = 0;
        }
    });
    bytes
}

/// A client of the log that knows what it should hold.
pub(super) struct Client {
    pub(super) log: Log,
    /// Everything staged, with its payload.
    pub(super) staged: Vec<(Seen, Vec<u8>)>,
    /// The end of each stream, by lineage - 1.
    ends: Vec<u64>,
    /// The next sequence number of the producer of each stream.
    seqs: Vec<u64>,
}

impl Client {
    pub(super) fn new(log: Log) -> Client {
        Client { log, staged: Vec::new(), ends: Vec::new(), seqs: Vec::new() }
    }

    async fn room(&self, meta_bytes: usize, payload_bytes: usize) -> Result<(), Refusal> {
        loop {
            match self.log.room(meta_bytes, payload_bytes, Class::Append) {
                Room::Now => return Ok(()),
                Room::Later => self.log.wait_room().await,
                Room::Refused(refusal) => return Err(refusal),
            }
        }
    }

    async fn stage(&mut self, event: Event<'_>, payload: &[u8]) -> Result<Staged, Refusal> {
        self.room(meta_bytes_max(&event), payload.len()).await?;
        let staged = self.log.stage(&event, payload.len(), |writer| writer.put(payload));
        Ok(self.staged(event, payload, staged))
    }

    fn staged(&mut self, mut event: Event<'_>, payload: &[u8], staged: Staged) -> Staged {
        if let Event::Appended(append) = &mut event
            && let Payload::Here(place) = &mut append.payload
        {
            *place = staged.place;
        }
        let context = EventContext { lsn: staged.ticket, time_ms: staged.time_ms, hashes: HashRange::ALL };
        self.staged.push((Seen::new(&event, context), payload.to_vec()));
        staged
    }

    /// Creates the next stream; lineages count from 1.
    pub(super) async fn create(&mut self) -> Result<Staged, Refusal> {
        self.ends.push(0);
        self.seqs.push(0);
        let lineage = self.ends.len() as u64;
        let key = format!("bucket/stream-{lineage}");
        let created = StreamCreated {
            lineage,
            placement: lineage << 32,
            key: key.as_bytes(),
            content_type: b"text/plain",
            ttl_seconds: None,
            expires_at_ms: None,
            bucket_generation: 1,
            attributes: b"",
            closed: false,
        };
        self.stage(Event::StreamCreated(created), b"").await
    }

    /// Appends `len` bytes to a stream, in parts if they are many.
    pub(super) async fn append(&mut self, lineage: u64, len: usize) -> Result<Staged, Refusal> {
        let start = self.ends[lineage as usize - 1];
        let bytes = pattern(lineage, start, len);
        self.ends[lineage as usize - 1] += len as u64;
        let seq = &mut self.seqs[lineage as usize - 1];
        let producer = Producer { id: b"producer", epoch: 1, seq: *seq };
        *seq += 1;
        let mut appended = Appended {
            lineage,
            start,
            lengths: Lengths::Uniform { len: len as u32, count: u32::from(len > 0) },
            producer: Some(producer),
            stream_seq: None,
            closed: false,
            payload: Payload::Here(Place::default()),
        };
        let part_bytes = self.log.payload_max();
        if len <= part_bytes {
            return self.stage(Event::Appended(appended), &bytes).await;
        }
        let mut parts = Vec::new();
        for piece in bytes.chunks(part_bytes) {
            self.room(64, piece.len()).await?;
            parts.push(self.log.stage_chunk(lineage, piece).1);
        }
        appended.payload = Payload::Parts(&parts);
        let event = Event::Appended(appended);
        self.room(meta_bytes_max(&event), 0).await?;
        let staged = self.log.stage(&event, 0, |_| {});
        Ok(self.staged(event, &bytes, staged))
    }

    /// Deletes a stream.
    pub(super) async fn delete(&mut self, lineage: u64) -> Result<Staged, Refusal> {
        self.stage(Event::StreamDeleted { lineage }, b"").await
    }

    /// Stages a renewal of stream 1, as control work.
    pub(super) async fn stage_control(&mut self) {
        let event = Event::Renewed { lineage: 1, used_ms: 1 };
        assert_eq!(self.log.room(meta_bytes_max(&event), 0, Class::Control), Room::Now);
        let staged = self.log.stage(&event, 0, |_| {});
        self.staged(event, b"", staged);
    }

    /// An append of `len` bytes to a stream was refused.
    pub(super) fn forget_refused(&mut self, lineage: u64, len: u64) {
        self.ends[lineage as usize - 1] -= len;
        self.seqs[lineage as usize - 1] -= 1;
    }

    /// Waits until everything staged is durable.
    pub(super) async fn settle(&self) -> Result<(), Refusal> {
        match self.staged.last() {
            Some((last, _)) => self.log.wait_durable(last.lsn).await,
            None => Ok(()),
        }
    }
}

/// Checks that `seen` is what `staged` says, up to some point that is at or behind the acknowledged tickets, and that the
/// payloads can be read.
pub(super) async fn check(
    log: &Log,
    seen: &[Seen],
    staged: &[(Seen, Vec<u8>)],
    acknowledged: u64,
    case: &str,
) {
    assert!(seen.len() <= staged.len(), "{case}: {} events of {}", seen.len(), staged.len());
    for (index, (found, (expected, payload))) in seen.iter().zip(staged).enumerate() {
        let same =
            (&found.text, found.lsn, found.time_ms) == (&expected.text, expected.lsn, expected.time_ms);
        assert!(same, "{case}: event {index} is {found:?}, staged was {expected:?}");
        assert!(found.payload(log).await == *payload, "{case}: payload of event {index}");
    }
    if let Some((lost, _)) = staged.get(seen.len()) {
        assert!(lost.lsn > acknowledged, "{case}: {lost:?} is lost, acknowledged up to {acknowledged}");
    }
}
