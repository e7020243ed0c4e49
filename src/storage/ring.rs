//! Writes that reach the kernel at once: a ring of a shard's own, beside the executor's.
//!
//! The executor hands its entries to the kernel, and looks at completions, once per turn of its loop: after every runnable
//! task has run. For commits that is the wrong moment twice. The next commit would wait until the acknowledgements of the one
//! before are sent, with an idle disk meanwhile; and each turn costs half a dozen system calls, which on a shard with few
//! clients is more than everything else that an append costs (`perf/records/2026-11-30-ring.md`).
//!
//! Contract:
//! - [`WriteRing::write`] submits before it returns its future's first `Pending`. Any number of writes may overlap; they are
//!   not ordered among each other.
//! - The bytes of a write are kept until the kernel is done with them, even if the future is dropped.
//! - Completions are seen by [`WriteRing::reap`], which must run whenever the descriptor of [`WriteRing::news`] becomes
//!   readable (it is never read: it has to be watched for edges).
//! - The ring belongs to the thread that made it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::signal::News;
use crate::storage::buffer::AlignedBuffer;
use io_uring::{IoUring, opcode, types};

/// Most writes under way: one commit, and what the background does.
const WRITES_MAX: usize = 64;

/// A write that the kernel has.
struct Write {
    /// What it reads from, until it is done.
    _buffer: Rc<AlignedBuffer>,
    /// The kernel's answer.
    result: Option<i32>,
    waker: Option<Waker>,
    /// Nobody waits for it any more.
    abandoned: bool,
}

/// See the module.
pub struct WriteRing {
    ring: RefCell<IoUring>,
    news: OwnedFd,
    places: RefCell<Vec<Option<Write>>>,
    /// Places without a write.
    free: Cell<usize>,
    room: News,
}

impl WriteRing {
    /// A ring for the calling thread.
    pub fn new() -> io::Result<Rc<WriteRing>> {
        let ring = make()?;
        // SAFETY: a system call without pointers; the descriptor it returns is owned by nobody else.
        let news = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        ring.submitter().register_eventfd(news.as_raw_fd())?;
        let places = (0..WRITES_MAX).map(|_| None).collect();
        let (ring, places) = (RefCell::new(ring), RefCell::new(places));
        Ok(Rc::new(WriteRing { ring, news, places, free: Cell::new(WRITES_MAX), room: News::default() }))
    }

    /// Becomes readable, edge by edge, when there is something to reap.
    pub fn news(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.news.as_fd()
    }

    /// Writes the first `len` bytes of `buffer` to an open file at `position`; returns how many were written, perhaps fewer.
    /// The file may be closed once this has been polled.
    pub async fn write(
        &self,
        fd: RawFd,
        buffer: &Rc<AlignedBuffer>,
        len: usize,
        position: u64,
    ) -> io::Result<usize> {
        assert!(len <= buffer.capacity(), "{len} bytes of a buffer of {}", buffer.capacity());
        let index = loop {
            if self.free.get() > 0 {
                break self.submit(fd, buffer, len, position)?;
            }
            self.room.next().await;
        };
        let handle = Handle { ring: self, index };
        let result = poll_fn(|context| handle.poll(context)).await;
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) }
    }

    fn submit(&self, fd: RawFd, buffer: &Rc<AlignedBuffer>, len: usize, position: u64) -> io::Result<usize> {
        let mut places = self.places.borrow_mut();
        let index = places.iter().position(Option::is_none).expect("a place is free");
        let bytes = u32::try_from(len).expect("commits are shorter than 4 GiB");
        let entry = opcode::Write::new(types::Fd(fd), buffer.bytes().as_ptr(), bytes).offset(position);
        let entry = entry.build().user_data(index as u64);
        let write = Write { _buffer: Rc::clone(buffer), result: None, waker: None, abandoned: false };
        places[index] = Some(write);
        self.free.set(self.free.get() - 1);
        let mut ring = self.ring.borrow_mut();
        // SAFETY: the entry points into `buffer`, which stays allocated and unchanged until the kernel has answered: its
        // place in `places` holds a reference (an `AlignedBuffer` is changed through an only reference alone), is cleared by
        // `reap` when the answer is there, and is leaked if the ring is dropped before.
        unsafe { ring.submission().push(&entry) }.expect("every entry before was submitted");
        loop {
            match ring.submit() {
                Ok(_) => return Ok(index),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The kernel may still take it: its place is kept for ever.
                    places[index].as_mut().expect("placed above").abandoned = true;
                    return Err(error);
                }
            }
        }
    }

    /// Takes what the kernel has done, and wakes who waits for it.
    pub fn reap(&self) {
        let ring = self.ring.borrow();
        // SAFETY: no argument is passed. Only this call makes deferred completions appear; that it is interrupted or has
        // nothing to give is no error, and what is missing is announced again.
        let _ = unsafe {
            ring.submitter().enter::<libc::sigset_t>(0, 0, io_uring::EnterFlags::GETEVENTS.bits(), None)
        };
        drop(ring);
        while let Some(waker) = self.take_completion() {
            // Nothing is borrowed: a wake may run the waiter at once.
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Notes one completion, if there is one; returns who waits for it, if somebody does.
    fn take_completion(&self) -> Option<Option<Waker>> {
        let completion = self.ring.borrow_mut().completion().next()?;
        let mut places = self.places.borrow_mut();
        let place = &mut places[completion.user_data() as usize];
        let write = place.as_mut().expect("a completion belongs to a write under way");
        if !write.abandoned {
            write.result = Some(completion.result());
            return Some(write.waker.take());
        }
        *place = None;
        drop(places);
        self.give_back();
        Some(None)
    }

    /// A place is free again.
    fn give_back(&self) {
        self.free.set(self.free.get() + 1);
        self.room.announce();
    }
}

impl Drop for WriteRing {
    fn drop(&mut self) {
        let places = self.places.take();
        if places.iter().flatten().any(|write| write.result.is_none()) {
            // The kernel may still read them.
            std::mem::forget(places);
        }
    }
}

/// A write that somebody waits for.
struct Handle<'a> {
    ring: &'a WriteRing,
    index: usize,
}

impl Handle<'_> {
    fn poll(&self, context: &Context<'_>) -> Poll<i32> {
        let mut places = self.ring.places.borrow_mut();
        let write = places[self.index].as_mut().expect("its place is kept for it");
        if let Some(result) = write.result {
            return Poll::Ready(result);
        }
        if !write.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            write.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        let mut places = self.ring.places.borrow_mut();
        let place = &mut places[self.index];
        let write = place.as_mut().expect("its place is kept for it");
        if write.result.is_none() {
            write.abandoned = true;
            return;
        }
        *place = None;
        drop(places);
        self.ring.give_back();
    }
}

/// Completions that wait until they are asked for spare an interrupt each; kernels before 6.1 do not know them.
fn make() -> io::Result<IoUring> {
    let mut deferred = IoUring::builder();
    deferred.setup_single_issuer().setup_defer_taskrun();
    match deferred.build(WRITES_MAX as u32) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(WRITES_MAX as u32),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::pin::{Pin, pin};

    use futures_lite::FutureExt;

    use super::*;
    use crate::limits::BLOCK_BYTES;

    fn buffer(byte: u8) -> Rc<AlignedBuffer> {
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        buffer.bytes_mut().fill(byte);
        Rc::new(buffer)
    }

    /// Waits until there is something to reap, and reaps it.
    fn reap(ring: &WriteRing) {
        let mut poll = libc::pollfd { fd: ring.news().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid entry and outlives the call.
        let ready = unsafe { libc::poll(&mut poll, 1, 10_000) };
        assert_eq!(ready, 1, "a completion is announced");
        ring.reap();
    }

    fn run<T>(ring: &WriteRing, mut future: Pin<&mut impl Future<Output = T>>) -> T {
        loop {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => return result,
                Poll::Pending => reap(ring),
            }
        }
    }

    #[test]
    fn many_writes_at_once_all_arrive() {
        let ring = WriteRing::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        let buffers: Vec<_> = (0..3 * WRITES_MAX).map(|index| buffer(index as u8)).collect();
        let writes = buffers.iter().enumerate().map(|(index, buffer)| {
            let position = (index * BLOCK_BYTES) as u64;
            ring.write(file.as_raw_fd(), buffer, BLOCK_BYTES, position).boxed_local()
        });
        let mut writes: Vec<_> = writes.collect();
        let mut context = Context::from_waker(Waker::noop());
        while !writes.is_empty() {
            writes.retain_mut(|write| match write.poll(&mut context) {
                Poll::Ready(result) => {
                    assert_eq!(result.unwrap(), BLOCK_BYTES);
                    false
                }
                Poll::Pending => true,
            });
            if !writes.is_empty() {
                reap(&ring);
            }
        }
        let content = content(&file);
        assert_eq!(content.len(), buffers.len() * BLOCK_BYTES);
        for (index, block) in content.chunks(BLOCK_BYTES).enumerate() {
            assert!(block.iter().all(|byte| *byte == index as u8), "block {index}");
        }
        assert_eq!(ring.free.get(), WRITES_MAX);
        assert!(buffers.iter().all(|buffer| Rc::strong_count(buffer) == 1), "nothing is kept");
    }

    fn content(file: &File) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let mut content = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    #[test]
    fn only_what_was_asked_for_is_written() {
        let ring = WriteRing::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        let buffer = buffer(7);
        let write = pin!(ring.write(file.as_raw_fd(), &buffer, 10, 3));
        assert_eq!(run(&ring, write).unwrap(), 10);
        assert_eq!(content(&file), [&[0; 3][..], &[7; 10]].concat());
    }

    #[test]
    fn the_systems_error_is_told() {
        let ring = WriteRing::new().unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let buffer = buffer(7);
        let write = pin!(ring.write(file.as_raw_fd(), &buffer, BLOCK_BYTES, 0));
        let error = run(&ring, write).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(ring.free.get(), WRITES_MAX);
    }

    #[test]
    fn bytes_are_kept_for_the_kernel_when_nobody_waits_any_more() {
        let ring = WriteRing::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        let buffer = buffer(9);
        {
            let mut write = pin!(ring.write(file.as_raw_fd(), &buffer, BLOCK_BYTES, 0));
            assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!((Rc::strong_count(&buffer), ring.free.get()), (2, WRITES_MAX - 1));
        reap(&ring);
        assert_eq!((Rc::strong_count(&buffer), ring.free.get()), (1, WRITES_MAX));
        assert_eq!(content(&file), [9; BLOCK_BYTES]);
    }
}
