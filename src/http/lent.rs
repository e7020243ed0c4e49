//! Bytes that the kernel sends without a copy: it takes the pages that they lie in, by way of a pipe, into the socket.
//!
//! Contract:
//! - A socket refers to the pages for as long as its peer likes, and nobody is told when it no longer does. So the bytes of
//!   a [`Lent`] never change, and their pages never serve anything else: when the last handle of a [`Region`] goes, its
//!   memory is unmapped, and the kernel keeps the pages for the sockets that still refer to them.
//! - Where the kernel refuses to take pages, the bytes are copied to the socket like any others; where it has no huge pages,
//!   there are no regions.
//!
//! Measured (perf/records/2026-11-30-lending.md): sending a megabyte costs half of what copying it costs, but only out of huge
//! pages. Out of small ones it costs more than the copy, for the sender and for the receiver.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Bytes of a huge page.
pub const HUGE_BYTES: usize = 2 * 1024 * 1024;
/// Bytes that a pipe is asked to hold: what the kernel allows everybody.
const PIPE_BYTES: i32 = 1024 * 1024;

/// Whether the memory of the process may be huge pages is one setting of all threads.
static HUGE_PAGES: Mutex<()> = Mutex::new(());

/// Memory of its own in huge pages, filled once from the front.
#[derive(Debug)]
pub struct Region {
    memory: NonNull<u8>,
    capacity: usize,
    filled: Cell<usize>,
}

impl Region {
    /// Memory for at least `bytes` bytes; `None` if the kernel has none, or no huge pages.
    ///
    /// Every huge page is touched, which keeps the core for as long as clearing it takes: measured, 5 ms on a virtual machine whose
    /// host has to find the memory first.
    pub fn new(bytes: usize) -> Option<Rc<Region>> {
        if !has_huge_pages() {
            return None;
        }
        let capacity = bytes.max(1).next_multiple_of(HUGE_BYTES);
        let memory = map_aligned(capacity)?;
        touch_huge(memory, capacity);
        Some(Rc::new(Region { memory, capacity, filled: Cell::new(0) }))
    }

    /// Bytes that it takes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies bytes to the memory that is not filled yet; `None` if they do not fit.
    pub fn keep(self: &Rc<Self>, bytes: &[u8]) -> Option<Lent> {
        let start = self.filled.get();
        let end = start.checked_add(bytes.len()).filter(|end| *end <= self.capacity)?;
        // SAFETY: `start..end` is inside the mapping, and no reference to it exists: every `Lent` lies before `filled`, and
        // the cell keeps two calls from overlapping. `bytes` cannot lie there for the same reason.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.as_ptr().add(start), bytes.len())
        };
        self.filled.set(end);
        Some(Lent { region: self.clone(), range: start..end })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no `Lent` lives, for each keeps it alive.
        let result = unsafe { libc::munmap(self.memory.as_ptr().cast(), self.capacity) };
        assert_eq!(result, 0, "memory of its own cannot be unmapped: {}", io::Error::last_os_error());
    }
}

/// Whether the kernel gives huge pages to whoever asks for them.
fn has_huge_pages() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|set| !set.contains("[never]"))
    });
    *HAS
}

/// A mapping that begins at a huge page's boundary.
fn map_aligned(capacity: usize) -> Option<NonNull<u8>> {
    let slack = HUGE_BYTES;
    // SAFETY: a new private mapping at an address of the kernel's choice; then its ends, which nobody has seen, go.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let mapped = libc::mmap(std::ptr::null_mut(), capacity + slack, protection, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let before = mapped.cast::<u8>().align_offset(HUGE_BYTES);
        let memory = mapped.cast::<u8>().add(before);
        if before > 0 {
            libc::munmap(mapped, before);
        }
        if before < slack {
            libc::munmap(memory.add(capacity).cast(), slack - before);
        }
        NonNull::new(memory)
    }
}

/// Has the kernel put huge pages under the memory. The process does without them otherwise (`node::preflight` says why), so
/// it allows them for just that long.
fn touch_huge(memory: NonNull<u8>, capacity: usize) {
    let _alone = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the advice and the writes concern the new mapping alone, which nobody else knows. `prctl` touches no memory.
    unsafe {
        let off = libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
        libc::madvise(memory.as_ptr().cast(), capacity, libc::MADV_HUGEPAGE);
        for at in (0..capacity).step_by(HUGE_BYTES) {
            memory.add(at).write_volatile(0);
        }
        libc::prctl(libc::PR_SET_THP_DISABLE, off.max(0), 0, 0, 0);
    }
}

/// Bytes that may be sent without a copy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lent {
    region: Rc<Region>,
    range: Range<usize>,
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range was filled before this was made, lies in the mapping that `region` keeps, and never changes.
        unsafe {
            std::slice::from_raw_parts(self.region.memory.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

/// Takes pages of [`Lent`] bytes to sockets: one per core.
#[derive(Debug, Default)]
pub struct Lender {
    way: RefCell<Way>,
}

/// How bytes get to a socket.
#[derive(Debug, Default)]
enum Way {
    #[default]
    Untried,
    Pipe(Pipe),
    /// By a copy: the kernel does not do it otherwise.
    Copy,
}

#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Takes what a socket did not.
    void: OwnedFd,
}

impl Lender {
    /// Sends as many of the first bytes as the socket takes without waiting.
    pub fn send(&self, socket: RawFd, lent: &Lent, from: usize) -> io::Result<usize> {
        let bytes = &lent[from..];
        let mut way = self.way.borrow_mut();
        if matches!(*way, Way::Untried) {
            *way = Pipe::new().map_or(Way::Copy, Way::Pipe);
        }
        if let Way::Pipe(pipe) = &*way {
            match pipe.take(bytes) {
                Ok(taken) => {
                    let passed = pipe.splice(socket, taken);
                    if pipe.empty(taken - *passed.as_ref().unwrap_or(&0)).is_err() {
                        // What it still holds goes with it.
                        *way = Way::Copy;
                    }
                    return passed;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(_) => *way = Way::Copy,
            }
        }
        super::socket::send(socket, bytes, 0)
    }
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors to `ends`, which are owned here alone.
        let (reader, writer) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return Err(io::Error::last_os_error());
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY: no memory is passed. A smaller pipe takes more calls, and is as right.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        let void = std::fs::OpenOptions::new().write(true).open("/dev/null")?.into();
        Ok(Pipe { reader, writer, void })
    }

    /// Puts pages of `bytes` into the pipe, which is empty; returns how many bytes that is, at least one.
    fn take(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the kernel only reads the memory, and goes on to do so after this call; `Region` lays down that it never
        // changes and is never given back to anything but the kernel itself.
        let taken = unsafe { libc::vmsplice(self.writer.as_raw_fd(), &piece, 1, libc::SPLICE_F_NONBLOCK) };
        count_of(taken)
    }

    /// Drops the `left` bytes that the pipe still holds.
    fn empty(&self, mut left: usize) -> io::Result<()> {
        while left > 0 {
            match self.splice(self.void.as_raw_fd(), left) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                dropped => left -= dropped?,
            }
        }
        Ok(())
    }

    /// Moves at most so many bytes on, as far as they are taken. (A peer that is gone raises SIGPIPE, which Rust programs ignore;
    /// `splice` cannot be told not to.)
    fn splice(&self, to: RawFd, bytes: usize) -> io::Result<usize> {
        let (reader, none) = (self.reader.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: no memory is passed.
        let count = unsafe { libc::splice(reader, none, to, none, bytes, libc::SPLICE_F_NONBLOCK) };
        count_of(count)
    }
}

/// The count that a system call returned, at least one, or its error.
fn count_of(returned: isize) -> io::Result<usize> {
    match usize::try_from(returned) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(count) => Ok(count),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Both ends of a connection; the first does not block.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 3 * seed + at) as u8).collect()
    }

    /// Sends bytes from `from` on as far as the socket takes them; where it stopped.
    fn send(lender: &Lender, socket: &TcpStream, lent: &Lent, mut from: usize) -> usize {
        while from < lent.len() {
            match lender.send(socket.as_raw_fd(), lent, from) {
                Ok(sent) => from += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        from
    }

    fn refusing() -> Lender {
        Lender { way: RefCell::new(Way::Copy) }
    }

    #[test]
    fn a_region_is_filled_from_the_front_and_keeps_what_it_has() {
        let region = Region::new(HUGE_BYTES / 2 + 1).expect("there is memory");
        assert_eq!(region.capacity(), HUGE_BYTES);
        let contents = [pattern(1_000_001, 3), pattern(1_000_000, 5), pattern(97_151, 7)];
        let lent: Vec<Lent> = contents.iter().map(|bytes| region.keep(bytes).expect("it fits")).collect();
        assert_eq!(contents.iter().map(Vec::len).sum::<usize>(), HUGE_BYTES);
        assert!(region.keep(b"x").is_none(), "it is full");
        assert!(region.keep(b"").is_some());
        drop(region);
        for (lent, bytes) in lent.iter().zip(&contents) {
            assert!(**lent == **bytes);
        }
    }

    #[test]
    fn what_a_socket_holds_outlives_the_memory() {
        let lender = Lender::default();
        let (near, mut far) = pair();
        let bytes = pattern(HUGE_BYTES, 11);
        let region = Region::new(HUGE_BYTES).expect("there is memory");
        let lent = region.keep(&bytes).expect("it fits");
        let sent = send(&lender, &near, &lent, 0);
        assert!(sent > 0);
        drop((lent, region));
        // Whoever gets memory now must not get that of the bytes under way.
        let others: Vec<_> =
            (0..8).map(|seed| Region::new(HUGE_BYTES).unwrap().keep(&pattern(HUGE_BYTES, seed))).collect();
        let mut got = vec![0; sent];
        far.read_exact(&mut got).unwrap();
        assert!(got == bytes[..sent], "{sent} bytes arrive as they were sent");
        drop(others);
    }

    #[test]
    fn bytes_arrive_once_and_in_order_whatever_the_socket_takes_at_a_time() {
        for lender in [Lender::default(), refusing()] {
            let (near, mut far) = pair();
            socket2::SockRef::from(&near).set_send_buffer_size(50_000).unwrap();
            let bytes = pattern(5_000_003, 13);
            let lent = Region::new(bytes.len()).unwrap().keep(&bytes).expect("it fits");
            let (mut got, mut sent, mut stops) = (Vec::new(), 0, 0);
            while got.len() < bytes.len() {
                sent = send(&lender, &near, &lent, sent);
                stops += usize::from(sent < bytes.len());
                let mut some = vec![0; 100_000];
                let count = far.read(&mut some).unwrap();
                got.extend_from_slice(&some[..count]);
            }
            assert!(got == bytes);
            assert!(stops > 5, "the socket was full {stops} times");
            // Nothing is left in the pipe for the next socket.
            let (mut other, mut far) = pair();
            other.write_all(b"first").unwrap();
            let short = Region::new(1).unwrap().keep(b"second").unwrap();
            assert_eq!(send(&lender, &other, &short, 0), 6);
            drop(other);
            let mut text = String::new();
            far.read_to_string(&mut text).unwrap();
            assert_eq!(text, "firstsecond");
        }
    }

    #[test]
    fn a_socket_that_is_gone_is_an_error_and_leaves_the_pipe_empty() {
        let lender = Lender::default();
        let lent = Region::new(1).unwrap().keep(&pattern(100_000, 17)).unwrap();
        let (near, _far) = pair();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let error = lender.send(near.as_raw_fd(), &lent, 0).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        let (other, mut far) = pair();
        assert_eq!(send(&lender, &other, &lent, 99_999), 100_000);
        let mut last = [0; 1];
        far.read_exact(&mut last).unwrap();
        assert_eq!(last[0], lent[99_999]);
    }
}
