//! Segments before and after their time: made ahead of use, sealed after it. Background work of low priority.
//!
//! More than one may be made ahead while the log is idle (`ahead`). A new segment passes through: file created, space allocated, zeros written, file synced, directory synced, listed
//! (durably), ready. A file that is not listed is garbage, and a listed one without a header is unused. Zeros are written
//! because each commit into a merely allocated file costs a journal commit of the file system; that cost vanishes beside
//! large commits, so writing zeros ends early when commits are large, or when the next segment is needed at once.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use glommio::sync::Semaphore;
use glommio::timer::Timer;
use glommio::{Latency, Shares};

use crate::limits::{BLOCK_BYTES, READ_BYTES_MAX};
use crate::signal::Signal;
use crate::storage::buffer::AlignedBuffer;
use crate::storage::commit_loop::{spawn, write_all};
use crate::storage::device::{File, Store};
use crate::storage::file_name;
use crate::storage::footer::FooterBuilder;
use crate::storage::format::Trailer;
use crate::storage::log::Inner;
use crate::storage::segment_list::{Listed, SegmentList};
use crate::storage::segment_table::Segment;
use ahead::Unlisted;

mod ahead;

/// Bytes of zeros written at a time: small, so that a commit never waits long behind them.
const ZEROS_BYTES: usize = 256 * 1024;
/// After each write of zeros, so many times its duration is left to others.
const ZEROS_PAUSE: u32 = 2;
/// Zeros are written so far ahead of use, and no faster than twice the rate of use: each write of them makes a commit wait.
const ZEROS_AHEAD_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of commits after which it is looked whether more zeros are due.
const ZEROS_LOOK_BYTES: usize = 512 * 1024;
/// Commits from this size on amortise the journal; zeros would only cost bandwidth.
const LARGE_COMMIT_BYTES: usize = 256 * 1024;
/// How long a full disk is left alone before another try.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// A segment that is listed and has no header yet.
pub(super) struct ReadySegment {
    pub(super) listed: Listed,
    /// Open for commits.
    pub(super) file: Rc<dyn File>,
    /// Length of the file.
    pub(super) bytes: u64,
}

/// A segment whose commits are all durable, and the footer that it still lacks.
pub(super) struct SealJob {
    /// Index in the log's table.
    pub(super) segment: u32,
    pub(super) footer: FooterBuilder,
}

enum Next {
    /// Being made.
    Missing,
    /// At hand.
    Ready(ReadySegment),
    /// There is no space for one.
    Full,
}

/// What the background work and the appender share.
pub(super) struct Roller {
    /// Wakes the background task.
    pub(super) signal: Signal,
    /// The list in force; changed by [`change_list`] only.
    list: RefCell<SegmentList>,
    /// One change at a time.
    list_gate: Semaphore,
    /// Number of the own segment that was begun last.
    last_number: Cell<u32>,
    next: RefCell<Next>,
    spares: RefCell<ahead::Spares>,
    seals: RefCell<VecDeque<SealJob>>,
    hurried: Cell<bool>,
    /// Moving average of commit sizes.
    commit_bytes: Cell<usize>,
    /// Bytes of commits since the background task was last told of them.
    untold_bytes: Cell<usize>,
}

impl Roller {
    pub(super) fn new(list: SegmentList, ready: Option<ReadySegment>, seals: VecDeque<SealJob>) -> Roller {
        Roller {
            signal: Signal::default(),
            last_number: Cell::new(0),
            list: RefCell::new(list),
            list_gate: Semaphore::new(1),
            next: RefCell::new(ready.map_or(Next::Missing, Next::Ready)),
            spares: RefCell::default(),
            seals: RefCell::new(seals),
            hurried: Cell::new(false),
            commit_bytes: Cell::new(0),
            untold_bytes: Cell::new(0),
        }
    }

    /// The segment list in force.
    pub(super) fn list(&self) -> Ref<'_, SegmentList> {
        self.list.borrow()
    }

    /// A name that no segment of this log has or had.
    pub(super) fn next_listed(&self, log_id: u64) -> Listed {
        // Several may be in the making: the list does not know of them yet.
        let number = next_number(&self.list.borrow(), log_id).max(self.last_number.get() + 1);
        self.last_number.set(number);
        Listed::own(number, log_id)
    }

    /// Whether the next segment is at hand.
    pub(super) fn is_ready(&self) -> bool {
        matches!(*self.next.borrow(), Next::Ready(_))
    }

    /// Whether there was no space for the next segment.
    pub(super) fn is_full(&self) -> bool {
        matches!(*self.next.borrow(), Next::Full)
    }

    /// Takes the next segment, and has another one made.
    pub(super) fn take_ready(&self) -> Option<ReadySegment> {
        let mut next = self.next.borrow_mut();
        if !matches!(*next, Next::Ready(_)) {
            return None;
        }
        let Next::Ready(ready) = std::mem::replace(&mut *next, Next::Missing) else { return None };
        self.signal.notify();
        Some(ready)
    }

    /// The next segment is needed at once.
    pub(super) fn hurry(&self) {
        self.hurried.set(true);
        self.signal.notify();
    }

    /// Learns how large a commit was.
    pub(super) fn observe(&self, bytes: usize) {
        let average = self.commit_bytes.get();
        self.commit_bytes.set(average - average / 16 + bytes / 16);
        self.untold_bytes.set(self.untold_bytes.get() + bytes);
        if self.untold_bytes.get() >= ZEROS_LOOK_BYTES {
            self.untold_bytes.set(0);
            self.signal.notify();
        }
    }

    /// A segment waits for its footer.
    pub(super) fn queue_seal(&self, job: SealJob) {
        self.seals.borrow_mut().push_back(job);
        self.signal.notify();
    }
}

/// Starts the background task.
pub(super) fn start(inner: &Rc<Inner>) {
    let queue = glommio::executor().create_task_queue(Shares::Static(100), Latency::NotImportant, "segments");
    let shared = Rc::clone(inner);
    spawn(inner, queue, async move { run(&shared).await });
}

async fn run(inner: &Inner) {
    let roller = &inner.roller;
    while !inner.latched.get() {
        if seal_one(inner).await {
            continue;
        }
        if inner.stopping.get() {
            return;
        } else if !roller.is_ready() {
            make_next(inner).await;
        } else if ahead::is_wanted(inner) {
            ahead::make(inner).await;
        } else {
            roller.signal.wait().await;
        }
    }
}

/// Seals a segment, if one waits for it.
async fn seal_one(inner: &Inner) -> bool {
    let job = inner.roller.seals.borrow_mut().pop_front();
    let Some(job) = job else { return false };
    let segment = Rc::clone(inner.table.borrow().get(job.segment));
    let (pages, trailer) = job.footer.finish();
    if let Err(error) = seal(&segment, &pages, &trailer).await {
        let path = inner.store.path_of(&segment.listed.name);
        inner.latch(format!("{path}: writing the footer: {error}"));
    } else {
        segment.trailer.set(Some(trailer));
        inner.to_settle.notify();
    }
    true
}

async fn make_next(inner: &Inner) {
    let roller = &inner.roller;
    roller.hurried.set(false);
    match prepare(inner).await {
        Ok(Some(ready)) => {
            *roller.next.borrow_mut() = Next::Ready(ready);
            inner.room.announce();
        }
        Ok(None) => {}
        Err(error) if is_no_space(&error) => {
            *roller.next.borrow_mut() = Next::Full;
            inner.room.announce();
            or(roller.signal.wait(), async {
                Timer::new(FULL_RETRY).await;
            })
            .await;
        }
        Err(error) => inner.latch(format!("making the next segment: {error}")),
    }
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Makes the next segment; `None` if the log ends meanwhile.
async fn prepare(inner: &Inner) -> io::Result<Option<ReadySegment>> {
    let (store, bytes) = (&*inner.store, inner.options.segment_bytes);
    let Unlisted { listed, file, zeros_to } = match ahead::take(inner).await? {
        Some(spare) => spare,
        None => {
            let listed = inner.roller.next_listed(inner.options.log_id);
            let file = create(store, &listed, bytes).await?;
            Unlisted { listed, file, zeros_to: 0 }
        }
    };
    write_zeros(inner, &*file, zeros_to, bytes).await?;
    if inner.ending() {
        file.close().await;
        return Ok(None);
    }
    make_durable(store, &*file).await?;
    file.close().await;
    // A segment whose header is missing may only be the last one of its log: the one before must have begun.
    let staged = inner.appender.borrow().last_lsn();
    if inner.wait_durable(staged).await.is_err() {
        return Ok(None);
    }
    change_list(inner, |list| list.segments.push(listed.clone())).await?;
    let file = store.open(&listed.name, inner.options.write_mode()).await?;
    Ok(Some(ReadySegment { listed, file, bytes }))
}

/// Changes the segment list. On return the change is durable; after an error either list may be in force.
pub(super) async fn change_list(inner: &Inner, change: impl FnOnce(&mut SegmentList)) -> io::Result<()> {
    let _turn = inner.roller.list_gate.acquire_permit(1).await.map_err(io::Error::from)?;
    let mut list = inner.roller.list.borrow().clone();
    change(&mut list);
    list.lineage = list.lineage.max(inner.appender.borrow().highest_lineage());
    list.write(&*inner.store).await?;
    *inner.roller.list.borrow_mut() = list;
    Ok(())
}

/// Number of the next segment of log `log_id`.
pub(super) fn next_number(list: &SegmentList, log_id: u64) -> u32 {
    let own = list.segments.iter().filter(|segment| segment.log_id == log_id);
    own.map(|segment| segment.number).max().unwrap_or(0) + 1
}

/// Creates a file that is not listed.
pub(super) async fn create_empty(store: &dyn Store, name: &str) -> io::Result<Rc<dyn File>> {
    // What is not listed is garbage: left by a crash, or by a try that met a full disk.
    match store.remove(name).await {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
        _ => {}
    }
    store.create(name).await
}

/// Creates the file of a segment, with its space.
pub(super) async fn create(store: &dyn Store, listed: &Listed, bytes: u64) -> io::Result<Rc<dyn File>> {
    let file = create_empty(store, &listed.name).await?;
    if let Err(error) = file.allocate(bytes).await {
        file.close().await;
        store.remove(&listed.name).await?;
        return Err(error);
    }
    Ok(file)
}

/// Makes a new file and its name durable: it may be listed now.
pub(super) async fn make_durable(store: &dyn Store, file: &dyn File) -> io::Result<()> {
    file.sync().await?;
    store.sync_dir().await
}

async fn write_zeros(inner: &Inner, file: &dyn File, from: u64, bytes: u64) -> io::Result<()> {
    let roller = &inner.roller;
    let mut position = from;
    while position < bytes && !inner.ending() {
        if roller.hurried.get() || roller.commit_bytes.get() >= LARGE_COMMIT_BYTES {
            return Ok(());
        }
        if seal_one(inner).await {
            continue;
        }
        let enough = 2 * inner.appender.borrow().active_bytes() + ZEROS_AHEAD_BYTES;
        if position > enough && !ahead::is_time(inner) {
            roller.signal.wait().await;
            continue;
        }
        position = zeros_and_pause(file, position, bytes).await?;
    }
    Ok(())
}

/// Writes zeros at `position`, leaves the disk to others for a while, and returns where the next ones go.
async fn zeros_and_pause(file: &dyn File, position: u64, end: u64) -> io::Result<u64> {
    let started = Instant::now();
    let position = zeros_at(file, position, end).await?;
    Timer::new(started.elapsed() * ZEROS_PAUSE).await;
    Ok(position)
}

/// Writes zeros at `position` and returns where the next ones go.
pub(super) async fn zeros_at(file: &dyn File, position: u64, end: u64) -> io::Result<u64> {
    let len = (ZEROS_BYTES as u64).min(end - position) as usize;
    let zeros = ZEROS.with(Rc::clone);
    write_all(file, &zeros, len, position).await?;
    Ok(position + len as u64)
}

thread_local! {
    static ZEROS: Rc<AlignedBuffer> = {
        let mut buffer = AlignedBuffer::new(ZEROS_BYTES);
        buffer.bytes_mut().fill(0);
        Rc::new(buffer)
    };
}

/// Writes the footer and the trailer of a segment that is complete; returns what lies unused between the two. Its file must
/// be open for writing.
pub(super) async fn seal(segment: &Segment, pages: &[u8], trailer: &Trailer) -> io::Result<Range<u64>> {
    let end = segment.header.segment_bytes - BLOCK_BYTES as u64;
    let footer_end = trailer.footer_position + pages.len() as u64;
    assert!(footer_end <= end, "footer up to {footer_end} reaches into the trailer at {end}");
    let mut position = trailer.footer_position;
    for piece in pages.chunks(READ_BYTES_MAX) {
        let mut buffer = AlignedBuffer::new(piece.len());
        buffer.bytes_mut()[..piece.len()].copy_from_slice(piece);
        write_all(&*segment.file, &Rc::new(buffer), piece.len(), position).await?;
        position += piece.len() as u64;
    }
    segment.file.sync().await?;
    let mut block = AlignedBuffer::new(BLOCK_BYTES);
    trailer.encode(block.bytes_mut());
    write_all(&*segment.file, &Rc::new(block), BLOCK_BYTES, end).await?;
    segment.file.sync().await?;
    Ok(footer_end..end)
}

/// The name of a file that only a log's own directory has.
pub(super) fn is_garbage(name: &str, list: &SegmentList) -> bool {
    name == file_name::LIST_ASIDE
        || (file_name::is_segment(name) && !list.segments.iter().any(|segment| segment.name == name))
}
