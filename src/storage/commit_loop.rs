//! The only writer of commits: one at a time, in order, each durable before the next one starts.
//!
//! The loop is a detached task in the shard's own queue, where tasks run in the order in which they were woken: it is woken
//! before those whom a completion lets go on, so that the disk has the next commit before they are answered. It is never
//! cancelled, and awaits file operations directly, never in a race: the executor keeps every waker of a pending file
//! operation. Any failure ends it and latches the log; only a write that the executor reports as cancelled (`ETIMEDOUT`: a
//! stray cancellation may hit the wrong operation) is repeated once with the same bytes.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use glommio::timer::Timer;

use crate::limits::BLOCK_BYTES;
use crate::storage::appender::{Begin, ClosedCommit};
use crate::storage::buffer::AlignedBuffer;
use crate::storage::device::File;
use crate::storage::format::SEGMENT_HEADER_BYTES;
use crate::storage::log::Inner;

/// A commit from this size on takes the disk long enough for its writers to come back.
const LARGE_COMMIT_BYTES: usize = 256 * 1024;
/// How long a small commit behind a large one waits for more.
const GATHER: Duration = Duration::from_micros(400);
/// How long a log is idle before it is marked.
const IDLE: Duration = Duration::from_secs(1);
/// Starts the commit loop and the task that marks an idle log.
pub(super) fn start(inner: &Rc<Inner>) {
    let queue = glommio::executor().current_task_queue();
    let shared = Rc::clone(inner);
    spawn(inner, queue, async move { run(&shared).await });
    let shared = Rc::clone(inner);
    spawn(inner, queue, async move { mark_when_idle(&shared).await });
}

/// Spawns a detached task of the log and keeps count of it.
pub(super) fn spawn(
    inner: &Rc<Inner>,
    queue: glommio::TaskQueueHandle,
    task: impl Future<Output = ()> + 'static,
) {
    inner.running.set(inner.running.get() + 1);
    let shared = Rc::clone(inner);
    let counted = async move {
        task.await;
        shared.running.set(shared.running.get() - 1);
        shared.ended.notify();
    };
    let spawned = glommio::spawn_local_into(counted, queue);
    spawned.expect("the queue was created by this executor").detach();
}

async fn run(inner: &Inner) {
    let mut last_bytes = 0;
    loop {
        gather(inner, last_bytes).await;
        if inner.latched.get() {
            return;
        }
        let next = inner.appender.borrow_mut().take_next();
        let Some(commit) = next else {
            if inner.stopping.get() {
                return;
            }
            inner.idle.notify();
            inner.work.wait().await;
            wait_for_company(inner).await;
            continue;
        };
        if let Err(error) = write(inner, &commit).await {
            let name = inner.table.borrow().get(commit.segment).listed.name.clone();
            let path = inner.store.path_of(&name);
            let (lsn, bytes, position) = (commit.lsn, commit.bytes, commit.position);
            inner.latch(format!(
                "{path}: writing commit {lsn} ({bytes} bytes at position {position}): {error}"
            ));
            return;
        }
        last_bytes = commit.bytes;
        complete(inner, commit);
    }
}

/// Behind a large commit, gives a small one a moment to grow. The writers of the large one answer together and come back one
/// after the other: without this, the first of them takes the disk for itself, and the rest wait for two commits.
async fn gather(inner: &Inner, last_bytes: usize) {
    if last_bytes < LARGE_COMMIT_BYTES || inner.ending() {
        return;
    }
    let enough = last_bytes / 4 * 3;
    let began = Instant::now();
    while began.elapsed() < GATHER && (1..enough).contains(&inner.appender.borrow().open_bytes()) {
        crate::signal::give_way().await;
    }
}

/// An idle log that has just got something to do may wait for more of it.
async fn wait_for_company(inner: &Inner) {
    let delay_us = inner.options.commit_delay_us;
    if delay_us > 0 && inner.appender.borrow().may_wait_for_company() && !inner.ending() {
        crate::signal::nap(Duration::from_micros(delay_us)).await;
    }
}

async fn write(inner: &Inner, commit: &ClosedCommit) -> io::Result<()> {
    let segment = Rc::clone(inner.table.borrow().get(commit.segment));
    if let Some(begin) = &commit.begin {
        begin_segment(&*segment.file, begin).await?;
    }
    write_all(&*segment.file, &commit.buffer, commit.bytes, commit.position).await
}

/// Writes the header of a segment and makes it durable, whatever `--sync` says: without it, recovery would take the
/// segment for an unused one.
async fn begin_segment(file: &dyn File, begin: &Begin) -> io::Result<()> {
    let mut block = AlignedBuffer::new(SEGMENT_HEADER_BYTES);
    begin.header.encode(block.bytes_mut());
    write_all(file, &Rc::new(block), SEGMENT_HEADER_BYTES, 0).await?;
    file.sync().await
}

/// Writes the first `len` bytes of `buffer`, however many writes the system makes of it.
pub(super) async fn write_all(
    file: &dyn File,
    buffer: &Rc<AlignedBuffer>,
    len: usize,
    position: u64,
) -> io::Result<()> {
    let mut written = write_once(file, buffer, len, position).await?;
    while written < len {
        // A rest is rare, and memory is written from its start only.
        let rest = len - written;
        let mut buffer_of_rest = AlignedBuffer::new(rest);
        buffer_of_rest.bytes_mut()[..rest].copy_from_slice(&buffer.bytes()[written..len]);
        written += write_once(file, &Rc::new(buffer_of_rest), rest, position + written as u64).await?;
    }
    Ok(())
}

/// One write, repeated once if it was cancelled. Returns whole blocks, at least one.
async fn write_once(
    file: &dyn File,
    buffer: &Rc<AlignedBuffer>,
    len: usize,
    position: u64,
) -> io::Result<usize> {
    let mut result = file.write_at(buffer, len, position).await;
    if result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ETIMEDOUT)) {
        result = file.write_at(buffer, len, position).await;
    }
    // A block that was written in part is written again: nobody was told of it yet.
    let written = result? / BLOCK_BYTES * BLOCK_BYTES;
    if written == 0 {
        return Err(io::Error::from(io::ErrorKind::WriteZero));
    }
    Ok(written.min(len))
}

/// A commit is durable: the order is state, memory, readers, writers.
fn complete(inner: &Inner, commit: ClosedCommit) {
    assert_eq!(inner.durable.get() + 1, commit.lsn, "commits complete in order");
    inner.durable.set(commit.lsn);
    if let Some(Begin { seal: Some(seal), .. }) = commit.begin.map(|begin| *begin) {
        inner.roller.queue_seal(seal);
    }
    match Rc::try_unwrap(commit.buffer) {
        Ok(buffer) => {
            let position = commit.position as u32;
            inner.cache.borrow_mut().insert(commit.segment, position, commit.used_bytes, buffer);
        }
        Err(_) => unreachable!("nobody keeps the buffer of a written commit"),
    }
    inner.roller.observe(commit.bytes);
    let publisher = inner.publisher.borrow().clone();
    if let Some(publisher) = publisher {
        publisher.published(commit.lsn);
    }
    let mut woken = inner.tickets.borrow_mut().complete(commit.lsn);
    for waker in woken.drain(..) {
        waker.wake();
    }
    inner.tickets.borrow_mut().recycle(woken);
    inner.room.announce();
}

/// Writes a mark after a second without commits: later damage to the last commit is then told from a torn write.
async fn mark_when_idle(inner: &Inner) {
    loop {
        while !inner.ending() && !inner.appender.borrow().wants_mark() {
            inner.idle.wait().await;
        }
        if inner.ending() {
            return;
        }
        let before = inner.appender.borrow().last_lsn();
        let second = async {
            Timer::new(IDLE).await;
        };
        or(inner.stop.wait(), second).await;
        if inner.ending() {
            return;
        }
        if inner.appender.borrow().last_lsn() == before && inner.durable.get() == before {
            // A log without room for a mark is asked again in a second.
            inner.appender.borrow_mut().queue_mark(&inner.roller);
            inner.work.notify();
            // There is time now to make segments ahead.
            inner.roller.signal.notify();
        }
    }
}

/// See [`crate::storage::log::Log::stop`].
pub(super) async fn stop(inner: &Rc<Inner>) {
    if !inner.latched.get() {
        inner.appender.borrow_mut().queue_mark(&inner.roller);
    }
    inner.stopping.set(true);
    inner.work.notify();
    inner.idle.notify();
    inner.stop.notify();
    inner.wake_settling();
    inner.roller.signal.notify();
    while inner.running.get() > 0 {
        inner.ended.wait().await;
    }
    let mut segments = inner.table.borrow_mut().take();
    segments.append(&mut inner.discarded.borrow_mut());
    for segment in segments {
        if let Ok(segment) = Rc::try_unwrap(segment) {
            segment.file.close().await;
        }
    }
    if let Some(ready) = inner.roller.take_ready() {
        ready.file.close().await;
    }
}
