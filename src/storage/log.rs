//! The log of one shard: events in, tickets out; recovery, reads, and the end of it.
//!
//! Contract:
//! - [`Log::stage`] copies an event with its payload into the open commit and returns its place at once. The event is
//!   durable when its ticket is ([`Log::durable`], [`Log::wait_durable`], [`Publisher::published`]); tickets complete in
//!   order, and one ticket is one commit: all of it or none of it.
//! - One commit is in flight while the next one fills. An idle log commits at once.
//! - The first failed write latches the log: nothing is staged any more, nothing is retried, reads go on.
//! - [`Log::open`] hands every event of the log to its visitor, in order, with the context it was staged with.
//!
//! Parts: `appender` (the open commit and where the next one goes), `commit_loop` (the only writer of commits), `roll`
//! (segments ahead of use, seals), `cache`, `reader`, `recovery`.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::future::or;
use glommio::timer::Timer;

use crate::limits::{COMMIT_BYTES_MAX, COMMITS_PER_SEGMENT_MIN};
use crate::signal::{News, Signal};
use crate::storage::appender::{Appender, Plan};
use crate::storage::cache::{Cache, CachedBytes};
use crate::storage::codec::meta_bytes_max;
use crate::storage::commit::PayloadWriter;
use crate::storage::commit_loop;
use crate::storage::device::{Mode, Store};
use crate::storage::event::{Event, EventContext, Part, Place};
use crate::storage::format::{COMMIT_HEADER_BYTES, entry_bytes};
use crate::storage::reader;
use crate::storage::recovery;
use crate::storage::roll::{self, Roller};
use crate::storage::segment_table::{Segment, SegmentTable};
use crate::storage::settle::turn::Turn;
use crate::storage::settle::{self, Rewritten, SealedSegment, SettleError, Streams};
use crate::storage::waiters::TicketWaiters;

pub use crate::storage::reader::{Held, Piece, ReadError};
pub use crate::storage::recovered::{OpenError, Recovered, Retired, TornTail};

/// When a commit counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the device says that it is on stable storage.
    Always,
    /// When the kernel has handed it to the device.
    None,
}

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Id of the log, from the manifest; written into every segment.
    pub log_id: u64,
    /// When a commit counts as durable.
    pub sync: Sync,
    /// How long the commit of an idle log waits for company.
    pub commit_delay_us: u64,
    /// Size of new segments.
    pub segment_bytes: u64,
    /// How many of them are made ahead of use while the log is idle; at least 1.
    pub segments_ahead: usize,
    /// Memory for recent commits.
    pub cache_bytes: usize,
}

impl LogOptions {
    /// Bytes of the largest commit: smaller segments have smaller ones, so that they still hold several.
    pub(super) fn commit_bytes_max(&self) -> usize {
        let share = self.segment_bytes / COMMITS_PER_SEGMENT_MIN;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        share.min(COMMIT_BYTES_MAX) / crate::limits::BLOCK_BYTES * crate::limits::BLOCK_BYTES
    }

    /// How segments that are appended to are opened.
    pub(super) fn write_mode(&self) -> Mode {
        match self.sync {
            Sync::Always => Mode::WriteDurable,
            Sync::None => Mode::Write,
        }
    }
}

/// What an entry is for, when space runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Adds data: refused while the disk is full.
    Append,
    /// Frees space, or records what happened: may use the last reserve.
    Control,
}

/// Why nothing can be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A write failed; only a restart helps. Answered 503.
    Latched,
    /// No space for another segment. Answered 507; may pass.
    DiskFull,
}

/// Whether an entry can be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// At once, if nothing is awaited before.
    Now,
    /// After [`Log::wait_room`], perhaps.
    Later,
    /// Not.
    Refused(Refusal),
}

/// A staged entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Sequence number of its commit: it is durable when [`Log::durable`] reaches it.
    pub ticket: u64,
    /// Where its payload will lie.
    pub place: Place,
    /// Time of its commit, Unix milliseconds: the same that recovery will report.
    pub time_ms: u64,
}

/// Who is told of a log's progress. Called by the commit loop, with nothing of the log borrowed.
pub trait Publisher {
    /// Everything up to `ticket` is durable.
    fn published(&self, ticket: u64);
    /// The log has latched; nothing staged and not published will ever be.
    fn latched(&self, why: &str);
}

/// Everything that the parts of a log share.
pub(super) struct Inner {
    pub(super) store: Rc<dyn Store>,
    pub(super) options: LogOptions,
    pub(super) table: RefCell<SegmentTable>,
    pub(super) appender: RefCell<Appender>,
    pub(super) roller: Roller,
    pub(super) cache: RefCell<Cache>,
    pub(super) durable: Cell<u64>,
    pub(super) latch: RefCell<Option<String>>,
    pub(super) latched: Cell<bool>,
    pub(super) stopping: Cell<bool>,
    pub(super) publisher: RefCell<Option<Rc<dyn Publisher>>>,
    pub(super) tickets: RefCell<TicketWaiters>,
    /// There may be room in a commit again.
    pub(super) room: News,
    /// Wakes the commit loop.
    pub(super) work: Signal,
    /// Wakes the task that marks an idle log.
    pub(super) idle: Signal,
    /// Wakes a task that sleeps, when the log ends.
    pub(super) stop: Signal,
    /// Segments that were rewritten, and may still be read.
    pub(super) discarded: RefCell<Vec<Rc<Segment>>>,
    /// There may be something to settle: a segment has been sealed, or the owner of the streams says so.
    pub(super) to_settle: Signal,
    /// Wakes settling from a pause, when the log ends.
    pub(super) end_of_pause: Signal,
    /// Background tasks that still run.
    pub(super) running: Cell<u32>,
    /// Notified whenever one of them ends.
    pub(super) ended: Signal,
}

impl Inner {
    /// Ends all writing: the first failure decides, everyone who waits is told.
    pub(super) fn latch(&self, why: String) {
        if self.latched.replace(true) {
            return;
        }
        *self.latch.borrow_mut() = Some(why.clone());
        let waiting = self.tickets.borrow().everyone();
        for waker in waiting {
            waker.wake();
        }
        self.room.announce();
        self.work.notify();
        self.idle.notify();
        self.stop.notify();
        self.wake_settling();
        self.roller.signal.notify();
        let publisher = self.publisher.borrow().clone();
        if let Some(publisher) = publisher {
            publisher.latched(&why);
        }
    }

    /// Wakes settling, so that it ends.
    pub(super) fn wake_settling(&self) {
        self.to_settle.notify();
        self.end_of_pause.notify();
    }

    /// Waits for some time, or until the log ends. For settling only.
    pub(super) async fn pause(&self, duration: Duration) {
        let timer = async {
            Timer::new(duration).await;
        };
        or(self.end_of_pause.wait(), timer).await;
    }

    /// See [`Log::hold`].
    pub(super) fn hold(&self, pieces: Vec<Piece>) -> Held {
        Held::new(self, pieces)
    }

    /// Waits until `ticket` is durable.
    pub(super) async fn wait_durable(&self, ticket: u64) -> Result<(), Refusal> {
        let mut slot = None;
        poll_fn(|context| self.poll_durable(ticket, &mut slot, context)).await
    }

    fn poll_durable(
        &self,
        ticket: u64,
        slot: &mut Option<u32>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        if self.durable.get() >= ticket {
            return Poll::Ready(Ok(()));
        }
        if self.latched.get() {
            return Poll::Ready(Err(Refusal::Latched));
        }
        self.tickets.borrow_mut().register(ticket, slot, context);
        Poll::Pending
    }

    /// Whether background tasks should come to an end.
    pub(super) fn ending(&self) -> bool {
        self.stopping.get() || self.latched.get()
    }
}

/// A handle to the log of this shard; clones share it.
#[derive(Clone)]
pub struct Log {
    inner: Rc<Inner>,
}

impl Log {
    /// Opens the log in `store`, or begins one if there is none, and hands every event to `visit` in order. Nothing is
    /// written to segments before [`Log::start`].
    pub async fn open(
        store: Rc<dyn Store>,
        options: LogOptions,
        visit: &mut dyn FnMut(&Event<'_>, EventContext),
    ) -> Result<(Log, Recovered), OpenError> {
        let (inner, recovered) = recovery::open(store, options, visit).await?;
        Ok((Log { inner: Rc::new(inner) }, recovered))
    }

    /// Ends the log in `store` for good: it is checked as [`Log::open`] would, and every segment that is not sealed gets its
    /// footer. What is returned never changes again, and may be linked into the directories of other logs.
    pub async fn retire(store: Rc<dyn Store>, log_id: u64) -> Result<Retired, OpenError> {
        recovery::retire(store, log_id).await
    }

    /// Starts the commit loop and the background work, as detached tasks of this executor. Call it once.
    pub fn start(&self, publisher: Rc<dyn Publisher>) {
        let before = self.inner.publisher.replace(Some(publisher));
        assert!(before.is_none(), "a log is started once");
        commit_loop::start(&self.inner);
        roll::start(&self.inner);
    }

    /// Bytes of meta and payload together that one entry may have.
    pub fn entry_max(&self) -> usize {
        // The two headers, and one checksum for each started 64 KiB.
        let commit_bytes = self.inner.options.commit_bytes_max();
        commit_bytes - COMMIT_HEADER_BYTES - (entry_bytes(0, commit_bytes) - commit_bytes)
    }

    /// Bytes of the largest payload of one entry with little meta. A larger one is spread with [`Log::stage_chunk`] and
    /// named by `Payload::Parts`.
    pub fn payload_max(&self) -> usize {
        self.entry_max() - 2048
    }

    /// Whether an entry with so many bytes of meta (`codec::meta_bytes_max`) and payload can exist at all.
    pub fn fits(&self, meta_bytes: usize, payload_bytes: usize) -> bool {
        meta_bytes.saturating_add(payload_bytes) <= self.entry_max()
    }

    /// Whether an entry can be staged now. It must fit ([`Log::fits`]).
    pub fn room(&self, meta_bytes: usize, payload_bytes: usize, class: Class) -> Room {
        let fits = self.fits(meta_bytes, payload_bytes);
        assert!(fits, "an entry of {meta_bytes} + {payload_bytes} bytes is over {}", self.entry_max());
        if self.inner.latched.get() {
            return Room::Refused(Refusal::Latched);
        }
        let roller = &self.inner.roller;
        match self.inner.appender.borrow().plan(meta_bytes, payload_bytes, class, roller) {
            Plan::Push | Plan::Open | Plan::Roll => Room::Now,
            Plan::Wait => Room::Later,
            Plan::WaitForSegment => {
                roller.hurry();
                Room::Later
            }
            Plan::Full => Room::Refused(Refusal::DiskFull),
        }
    }

    /// Opens the commit that an entry of this size needs, so that several entries which are no larger together (each counts
    /// `format::ENTRY_HEADER_BYTES` besides) share it. Panics like [`Log::stage`]; stage the first of them at once.
    pub fn share_commit(&self, meta_bytes: usize, payload_bytes: usize) {
        let inner = &*self.inner;
        assert!(!inner.latched.get(), "nothing is staged in a latched log");
        inner.appender.borrow_mut().make_room(meta_bytes, payload_bytes, inner);
    }

    /// Stages an event; `fill` puts exactly `payload_bytes` and calls nothing of the log. Panics unless [`Log::room`] has just
    /// said [`Room::Now`] for at least this much.
    pub fn stage(
        &self,
        event: &Event<'_>,
        payload_bytes: usize,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
    ) -> Staged {
        let inner = &*self.inner;
        assert!(!inner.latched.get(), "nothing is staged in a latched log");
        let mut appender = inner.appender.borrow_mut();
        appender.make_room(meta_bytes_max(event), payload_bytes, inner);
        let staged = appender.push(event, payload_bytes, fill, &inner.table);
        drop(appender);
        inner.work.notify();
        staged
    }

    /// Stages a part of a large payload. It means nothing until an append names it. Panics like [`Log::stage`].
    pub fn stage_chunk(&self, lineage: u64, bytes: &[u8]) -> (Staged, Part) {
        let inner = &*self.inner;
        assert!(!inner.latched.get(), "nothing is staged in a latched log");
        let mut appender = inner.appender.borrow_mut();
        appender.make_room(crate::storage::codec::CHUNK_META_BYTES_MAX, bytes.len(), inner);
        let staged = appender.push_chunk(lineage, bytes);
        drop(appender);
        inner.work.notify();
        // An entry is smaller than a commit, so its length fits.
        (staged, Part { place: staged.place, len: bytes.len() as u32 })
    }

    /// Highest durable ticket; everything recovered is durable.
    pub fn durable(&self) -> u64 {
        self.inner.durable.get()
    }

    /// Why nothing can be staged, if so.
    pub fn refusal(&self) -> Option<Refusal> {
        if self.inner.latched.get() {
            Some(Refusal::Latched)
        } else {
            self.inner.roller.is_full().then_some(Refusal::DiskFull)
        }
    }

    /// What latched the log: for the operator.
    pub fn latched_why(&self) -> Option<String> {
        self.inner.latch.borrow().clone()
    }

    /// Waits until `ticket` is durable.
    pub fn wait_durable(&self, ticket: u64) -> WaitDurable {
        WaitDurable { inner: Rc::clone(&self.inner), ticket, slot: None }
    }

    /// Waits until it is worth asking [`Log::room`] again.
    pub fn wait_room(&self) -> WaitRoom {
        let announced = self.inner.room.announced();
        WaitRoom { inner: Rc::clone(&self.inner), announced }
    }

    /// Bytes `from .. from + len` of the payload at `place`, if they are in memory.
    pub fn cached(&self, place: Place, from: u32, len: u32) -> Option<CachedBytes> {
        self.inner.cache.borrow().get(place, from, len)
    }

    /// Holds what `pieces`, whose places were just looked up, need to be read, whatever is rewritten meanwhile.
    pub fn hold(&self, pieces: Vec<Piece>) -> Held {
        self.inner.hold(pieces)
    }

    /// Appends the bytes of the pieces to `out`, in order: from memory where they are there, else from disk, verified. On an
    /// error `out` is as before. Only durable places may be read.
    pub async fn read(&self, held: &Held, out: &mut Vec<u8>) -> Result<(), ReadError> {
        reader::read(&self.inner, held, out).await
    }

    /// Sealed segments, in the order of the list.
    pub fn sealed_segments(&self) -> Vec<SealedSegment> {
        settle::sealed(&self.inner)
    }

    /// Rewrites sealed segments of the same kin that lie side by side in the list as one. On return the list names that one in
    /// their place; the caller looks everything up there, and then gives the old ones up with [`Log::discard`].
    ///
    /// # Panics
    /// If one of them is not sealed, or there is none.
    pub async fn settle(&self, segments: &[u32], streams: &dyn Streams) -> Result<Rewritten, SettleError> {
        settle::settle(&self.inner, segments, streams).await
    }

    /// Forgets segments that were rewritten: no new read may ask for them. Their files go with [`Log::sweep`].
    pub fn discard(&self, segments: &[u32]) {
        settle::discard(&self.inner, segments);
    }

    /// Removes the files of discarded segments that nobody reads any more; whether some are left.
    pub async fn sweep(&self) -> bool {
        settle::sweep(&self.inner).await
    }

    /// The index that stands for all indexes of the file that has this one.
    pub fn same_file(&self, segment: u32) -> u32 {
        self.inner.table.borrow().same_file(segment)
    }

    /// Waits until there may be something to settle, or the log ends. One task at a time.
    pub async fn wait_to_settle(&self) {
        self.inner.to_settle.wait().await;
    }

    /// There may be something to settle.
    pub fn suggest_settling(&self) {
        self.inner.to_settle.notify();
    }

    /// For a task of low priority that gives way after each slice of work.
    pub fn turn(&self) -> Turn<'_> {
        Turn::new(&self.inner)
    }

    /// Waits for some time, or until the log ends. For the task that settles.
    pub async fn pause(&self, duration: Duration) {
        self.inner.pause(duration).await;
    }

    /// Whether the log takes nothing more: it has latched, or is being stopped.
    pub fn is_ending(&self) -> bool {
        self.inner.ending()
    }

    /// Starts work that ends when [`Log::is_ending`] says so, as a detached task of low priority; [`Log::stop`] waits for it.
    pub fn spawn_background(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        let queue = glommio::executor().create_task_queue(
            glommio::Shares::Static(250),
            glommio::Latency::NotImportant,
            name,
        );
        commit_loop::spawn(&self.inner, queue, task);
    }

    /// Commits what is staged, writes a mark, ends the background work and closes the files. Stage nothing after it.
    pub async fn stop(&self) {
        commit_loop::stop(&self.inner).await;
    }
}

/// See [`Log::wait_durable`].
pub struct WaitDurable {
    inner: Rc<Inner>,
    ticket: u64,
    slot: Option<u32>,
}

impl Future for WaitDurable {
    type Output = Result<(), Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.inner.poll_durable(this.ticket, &mut this.slot, context)
    }
}

/// See [`Log::wait_room`].
pub struct WaitRoom {
    inner: Rc<Inner>,
    announced: u64,
}

impl Future for WaitRoom {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.inner.room.poll_after(self.announced, context)
    }
}

#[cfg(test)]
mod tests;
