//! Which sockets of a thread can be read or written: one edge-triggered epoll set, asked with a deadline in nanoseconds.
//!
//! Contract: a socket is added once, for both directions, and leaves the set when it is closed. A change is told once; who
//! stops reading before the socket is empty must come back by himself.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Changes taken from the kernel at once.
const EVENTS_MAX: usize = 512;

/// What changed about a socket.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// What it was added as.
    pub token: u64,
    /// There may be bytes or an end to read.
    pub readable: bool,
    /// There may be room to write.
    pub writable: bool,
    /// The peer has closed, or the socket failed: reading goes on until it says so.
    pub hung_up: bool,
}

/// The sockets of one thread.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    count: usize,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a system call without pointers; the descriptor it returns is owned by nobody else.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX], count: 0 })
    }

    /// Adds a non-blocking socket.
    pub fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: interest as u32, u64: token };
        // SAFETY: `event` outlives the call, which copies it.
        let added =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for changes, at most so long; [`Poller::change`] has them, this is how many.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<usize> {
        let limit = libc::timespec {
            tv_sec: at_most.as_secs().min(3600) as libc::time_t,
            tv_nsec: at_most.subsec_nanos() as libc::c_long,
        };
        // epoll_pwait2 rather than epoll_wait: an open loop needs its wake-ups finer than a millisecond.
        // SAFETY: the kernel writes at most `EVENTS_MAX` events to the array, which has that many, and reads `limit`.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                &raw const limit,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        self.count = 0;
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
        }
        self.count = count as usize;
        Ok(self.count)
    }

    /// The `index`-th change of the last wait.
    #[inline]
    pub fn change(&self, index: usize) -> Change {
        assert!(index < self.count, "change {index} of {}", self.count);
        let event = self.events[index];
        let bits = event.events as i32;
        let failed = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        Change {
            token: event.u64,
            readable: failed || bits & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0,
            writable: failed || bits & libc::EPOLLOUT != 0,
            hung_up: failed || bits & libc::EPOLLRDHUP != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn changes_are_told_once() {
        let mut poller = Poller::new().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        poller.add(near.as_raw_fd(), 7).unwrap();
        assert_eq!(poller.wait(Duration::ZERO).unwrap(), 1, "there is room to write");
        let change = poller.change(0);
        assert!(change.writable && !change.readable && !change.hung_up && change.token == 7, "{change:?}");
        assert_eq!(poller.wait(Duration::from_micros(10)).unwrap(), 0);
        far.write_all(b"x").unwrap();
        assert_eq!(poller.wait(Duration::from_secs(60)).unwrap(), 1);
        assert!(poller.change(0).readable);
        assert_eq!(poller.wait(Duration::ZERO).unwrap(), 0);
        drop(far);
        assert_eq!(poller.wait(Duration::from_secs(60)).unwrap(), 1);
        assert!(poller.change(0).hung_up && poller.change(0).readable);
    }
}
