//! The open commit, and where it goes: everything about staging that needs no I/O.
//!
//! The ends of the active segment, in this order: `position` (where the open commit will be written; everything before it
//! is written or on its way), then the open commit, then room that an entry may still take, then the worst footer, then
//! the trailer. A segment is left as soon as the next entry would eat into the footer's room.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::limits::{BLOCK_BYTES, CONTROL_RESERVE_BYTES, SEALED_COMMITS_MAX};
use crate::storage::buffer::{AlignedBuffer, Pool};
use crate::storage::commit::{CommitBuilder, PayloadWriter, Pushed, entry_bytes_max};
use crate::storage::event::{Event, Place};
use crate::storage::footer::FooterBuilder;
use crate::storage::format::{COMMIT_HEADER_BYTES, FIRST_COMMIT_POSITION, SegmentHeader, block_round_up};
use crate::storage::log::{Class, Inner, LogOptions, Staged};
use crate::storage::roll::{ReadySegment, Roller, SealJob};
use crate::storage::segment_table::{Segment, SegmentTable};

/// Bytes that the footer needs at most for one entry beside its meta part, the record of its commit included.
const FOOTER_RECORD_BYTES_MAX: usize = 64;

/// What it takes to stage an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The open commit has room.
    Push,
    /// A commit must be opened, the open one closed before.
    Open,
    /// The same, in the next segment.
    Roll,
    /// Commits must complete first.
    Wait,
    /// The next segment must be made first.
    WaitForSegment,
    /// There is no space for a next segment.
    Full,
}

/// The segment that is appended to.
pub(super) struct Active {
    /// Index in the log's table.
    pub(super) index: u32,
    pub(super) header: SegmentHeader,
    /// Where the open commit, or the next one, begins.
    pub(super) position: u64,
    pub(super) footer: FooterBuilder,
}

struct OpenCommit {
    builder: CommitBuilder,
    buffer: AlignedBuffer,
}

/// What must happen before the first commit of a segment is written.
pub(super) struct Begin {
    pub(super) header: SegmentHeader,
    /// The segment before, which may be sealed once this one has begun.
    pub(super) seal: Option<SealJob>,
}

/// A commit that only needs to be written.
pub(super) struct ClosedCommit {
    pub(super) lsn: u64,
    pub(super) segment: u32,
    pub(super) position: u64,
    pub(super) buffer: Rc<AlignedBuffer>,
    /// Bytes to write: whole blocks.
    pub(super) bytes: usize,
    /// Bytes without the padding.
    pub(super) used_bytes: usize,
    pub(super) begin: Option<Box<Begin>>,
}

/// Where a log goes on.
pub(super) struct Resume {
    /// The segment to go on in; without one, the ready segment is begun with the first commit.
    pub(super) active: Option<Active>,
    pub(super) next_lsn: u64,
    pub(super) last_time_ms: u64,
    pub(super) epoch: u64,
    pub(super) highest_lineage: u64,
}

/// See the module.
pub(super) struct Appender {
    log_id: u64,
    commit_bytes_max: usize,
    control_reserve_bytes: u64,
    epoch: u64,
    pool: Pool,
    active: Option<Active>,
    begin: Option<Box<Begin>>,
    open: Option<OpenCommit>,
    /// Closed commits, in order, that the commit loop has not taken yet.
    waiting: VecDeque<ClosedCommit>,
    next_lsn: u64,
    last_time_ms: u64,
    highest_lineage: u64,
    /// Whether the last commit was a mark (or there is none), so that an idle log needs no other one.
    marked: bool,
}

impl Appender {
    pub(super) fn new(options: &LogOptions, pool: Pool, resume: Resume) -> Appender {
        let reserve = (CONTROL_RESERVE_BYTES as u64).min(options.segment_bytes / 16);
        Appender {
            log_id: options.log_id,
            commit_bytes_max: options.commit_bytes_max(),
            control_reserve_bytes: reserve,
            epoch: resume.epoch,
            pool,
            active: resume.active,
            begin: None,
            open: None,
            waiting: VecDeque::new(),
            next_lsn: resume.next_lsn,
            last_time_ms: resume.last_time_ms,
            highest_lineage: resume.highest_lineage,
            marked: false,
        }
    }

    /// What it takes to stage an entry of so many bytes.
    pub(super) fn plan(
        &self,
        meta_bytes: usize,
        payload_bytes: usize,
        class: Class,
        roller: &Roller,
    ) -> Plan {
        let entry_bytes = entry_bytes_max(meta_bytes, payload_bytes);
        // Without a next segment at hand, the end of this one is kept for deletes.
        let kept = if class == Class::Append && !roller.is_ready() { self.control_reserve_bytes } else { 0 };
        if let Some(open) = &self.open {
            if self.fits(0, open.builder.used() + entry_bytes, meta_bytes, kept) {
                return Plan::Push;
            }
            if self.waiting.len() >= SEALED_COMMITS_MAX {
                return Plan::Wait;
            }
        }
        let before = self.open.as_ref().map_or(0, |open| block_round_up(open.builder.used()));
        if self.fits(before, COMMIT_HEADER_BYTES + entry_bytes, meta_bytes, kept) {
            Plan::Open
        } else if roller.is_ready() {
            Plan::Roll
        } else if roller.is_full() {
            Plan::Full
        } else {
            Plan::WaitForSegment
        }
    }

    /// Whether a commit of `used` bytes that begins `before` bytes behind the active position leaves the footer its room.
    fn fits(&self, before: usize, used: usize, meta_bytes: usize, kept: u64) -> bool {
        let Some(active) = &self.active else { return false };
        let commit_bytes = block_round_up(used);
        let footer_bytes = active.footer.bytes_max(meta_bytes + FOOTER_RECORD_BYTES_MAX);
        let end = active.position + (before + commit_bytes + footer_bytes) as u64 + kept;
        commit_bytes <= self.commit_bytes_max && end <= active.header.segment_bytes
    }

    /// Does what the plan says, so that an entry of so many bytes can be pushed.
    pub(super) fn make_room(&mut self, meta_bytes: usize, payload_bytes: usize, inner: &Inner) {
        match self.plan(meta_bytes, payload_bytes, Class::Control, &inner.roller) {
            Plan::Push => {}
            Plan::Open => {
                self.close();
                self.open();
            }
            Plan::Roll => {
                self.close();
                let ready = inner.roller.take_ready().expect("planned");
                self.roll(ready, &mut inner.table.borrow_mut());
                self.open();
            }
            plan @ (Plan::Wait | Plan::WaitForSegment | Plan::Full) => {
                panic!("no room for {meta_bytes} + {payload_bytes} bytes: {plan:?}; ask room() first")
            }
        }
        let open = self.open.as_mut().expect("a commit is open");
        let needed = block_round_up(open.builder.used() + entry_bytes_max(meta_bytes, payload_bytes));
        if needed > open.buffer.capacity() {
            // More than recent commits needed: move to a larger buffer.
            let mut larger = self.pool.take(Pool::grown(needed));
            let used = open.builder.used();
            larger.bytes_mut()[..used].copy_from_slice(&open.buffer.bytes()[..used]);
            self.pool.give(std::mem::replace(&mut open.buffer, larger));
        }
    }

    /// Makes `ready` the active segment.
    fn roll(&mut self, ready: ReadySegment, table: &mut SegmentTable) {
        let header = SegmentHeader {
            segment_number: ready.listed.number,
            log_id: self.log_id,
            epoch: self.epoch,
            first_lsn: self.next_lsn,
            nonce: new_nonce(),
            segment_bytes: ready.bytes,
            created_ms: now_ms().max(self.last_time_ms),
            settled: None,
        };
        let index = table.push(Segment::new(ready.listed, header, ready.file));
        let footer = FooterBuilder::new(&header);
        let next = Active { index, header, position: u64::from(FIRST_COMMIT_POSITION), footer };
        let left = self.active.replace(next);
        let seal = left.map(|left| SealJob { segment: left.index, footer: left.footer });
        assert!(self.begin.is_none(), "segment {index} begins before a commit went into the one before");
        self.begin = Some(Box::new(Begin { header, seal }));
    }

    fn open(&mut self) {
        let active = self.active.as_ref().expect("a segment is active");
        self.last_time_ms = self.last_time_ms.max(now_ms());
        let builder = CommitBuilder::new(active.header.nonce, self.next_lsn, self.last_time_ms);
        self.next_lsn += 1;
        // One block more than nothing: the pool gives what recent commits needed.
        let buffer = self.pool.take(BLOCK_BYTES);
        self.open = Some(OpenCommit { builder, buffer });
        self.marked = false;
    }

    /// Closes the open commit, if there is one.
    fn close(&mut self) {
        if let Some(commit) = self.close_open(false) {
            self.waiting.push_back(commit);
        }
    }

    fn close_open(&mut self, mark: bool) -> Option<ClosedCommit> {
        let OpenCommit { builder, mut buffer } = self.open.take()?;
        let active = self.active.as_mut().expect("a segment is active");
        let (lsn, used_bytes, position) = (builder.lsn(), builder.used(), active.position);
        let bytes = if mark {
            builder.finish_mark(buffer.bytes_mut(), &mut active.footer)
        } else {
            builder.finish(buffer.bytes_mut())
        };
        active.position += bytes as u64;
        let footer_position = u64::from(active.footer.commit_position());
        assert_eq!(footer_position, active.position, "the footer counts the same bytes");
        self.pool.observe(bytes);
        let (segment, begin) = (active.index, self.begin.take());
        Some(ClosedCommit { lsn, segment, position, buffer: Rc::new(buffer), bytes, used_bytes, begin })
    }

    /// Adds an event to the open commit.
    pub(super) fn push(
        &mut self,
        event: &Event<'_>,
        payload_bytes: usize,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
        table: &RefCell<SegmentTable>,
    ) -> Staged {
        let open = self.open.as_mut().expect("room was made");
        let active = self.active.as_mut().expect("room was made");
        let number_of = |index| table.borrow().number_of(index);
        let buffer = open.buffer.bytes_mut();
        let pushed = open.builder.push(buffer, &mut active.footer, event, number_of, payload_bytes, fill);
        self.highest_lineage = self.highest_lineage.max(event.issued_id().unwrap_or(0));
        self.staged(pushed)
    }

    /// Adds a part of a large payload to the open commit.
    pub(super) fn push_chunk(&mut self, lineage: u64, bytes: &[u8]) -> Staged {
        let open = self.open.as_mut().expect("room was made");
        let active = self.active.as_mut().expect("room was made");
        let buffer = open.buffer.bytes_mut();
        let fill = |writer: &mut PayloadWriter<'_>| writer.put(bytes);
        let pushed = open.builder.push_chunk(buffer, &mut active.footer, lineage, bytes.len(), fill);
        self.staged(pushed)
    }

    fn staged(&self, pushed: Pushed) -> Staged {
        let open = self.open.as_ref().expect("just pushed");
        let active = self.active.as_ref().expect("just pushed");
        // A segment is smaller than 4 GiB, so positions fit.
        let position = active.position as u32 + pushed.payload_at;
        let place = Place { segment: active.index, position, back: pushed.back };
        Staged { ticket: open.builder.lsn(), place, time_ms: open.builder.time_ms() }
    }

    /// The next commit to write: a waiting one, else what is open.
    pub(super) fn take_next(&mut self) -> Option<ClosedCommit> {
        self.waiting.pop_front().or_else(|| self.close_open(false))
    }

    /// Bytes that the open commit has; 0 if commits wait before it.
    pub(super) fn open_bytes(&self) -> usize {
        if self.waiting.is_empty() { self.open.as_ref().map_or(0, |open| open.builder.used()) } else { 0 }
    }

    /// Whether a commit is being filled and none waits: the commit loop may give it time for company.
    pub(super) fn may_wait_for_company(&self) -> bool {
        self.waiting.is_empty() && self.open.is_some()
    }

    /// Queues a mark behind everything staged: a commit of its own that says that all before it is complete. Nothing
    /// happens if the last commit is one already, or if there is no room for it.
    pub(super) fn queue_mark(&mut self, roller: &Roller) {
        if self.marked || self.active.is_none() {
            return;
        }
        self.close();
        if self.plan(0, 0, Class::Append, roller) == Plan::Open {
            self.open();
            let mark = self.close_open(true);
            self.waiting.extend(mark);
            self.marked = true;
        }
    }

    /// Whether an idle log should write a mark.
    pub(super) fn wants_mark(&self) -> bool {
        !self.marked && self.active.is_some()
    }

    /// How far the active segment is filled.
    pub(super) fn active_bytes(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| active.position)
    }

    /// Sequence number of the commit that was opened last.
    pub(super) fn last_lsn(&self) -> u64 {
        self.next_lsn - 1
    }

    /// Highest lineage id staged or recovered.
    pub(super) fn highest_lineage(&self) -> u64 {
        self.highest_lineage
    }

    /// The recovered log needs no mark: its last commit is one.
    pub(super) fn set_marked(&mut self) {
        self.marked = true;
    }
}

/// Unix milliseconds.
pub(super) fn now_ms() -> u64 {
    // Before 1970 the clock is wrong anyway.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// A number that clients cannot guess and no other segment has: the standard library's hash keys come from the system's
/// random source.
pub(super) fn new_nonce() -> u64 {
    loop {
        let mut hasher = std::hash::RandomState::new().build_hasher();
        hasher.write_u64(now_ms());
        match hasher.finish() {
            0 => {}
            nonce => return nonce,
        }
    }
}
