//! A client's socket: non-blocking system calls, and the core's readiness set to wait in.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncWrite};

use super::lent::{Lender, Lent};
use super::readiness::{Readiness, Registration};

/// See the module.
#[derive(Debug)]
pub struct Socket {
    /// Before the descriptor: the registration must end before that is closed.
    registration: Registration,
    fd: OwnedFd,
}

impl Socket {
    /// Takes a connected, non-blocking socket.
    pub fn new(fd: OwnedFd, readiness: &Rc<Readiness>) -> io::Result<Self> {
        // Most calls say themselves that they must not wait; sending lent bytes cannot.
        debug_assert!(socket2::SockRef::from(&fd).nonblocking().unwrap_or(true), "the socket blocks");
        Ok(Self { registration: readiness.register(fd.as_raw_fd())?, fd })
    }

    /// Gives the descriptor up, for another core.
    pub fn into_fd(self) -> OwnedFd {
        drop(self.registration);
        self.fd
    }

    /// Sends small answers at once. Failing means that the peer is gone.
    pub fn set_nodelay(&self) {
        let _ = socket2::SockRef::from(&self.fd).set_tcp_nodelay(true);
    }

    /// Writes bytes; `more`: others follow at once, and may leave with them.
    pub fn poll_write_then(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |fd| send(fd, bytes, if more { libc::MSG_MORE } else { 0 }))
    }

    /// Writes lent bytes, from `from` on.
    pub fn poll_lend(
        &self,
        context: &mut Context<'_>,
        lender: &Lender,
        lent: &Lent,
        from: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |fd| lender.send(fd, lent, from))
    }

    /// Tries to send as soon as the socket is writable.
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        mut send: impl FnMut(RawFd) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.registration.wait_writable(context) {
                return Poll::Pending;
            }
            match send(self.fd.as_raw_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.registration.not_writable(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Shuts a side down. Failing means that the peer is gone.
    pub fn shutdown(&self, how: Shutdown) {
        let _ = socket2::SockRef::from(&self.fd).shutdown(how);
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Sends bytes without waiting, with these flags besides.
pub(super) fn send(socket: RawFd, bytes: &[u8], flags: i32) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
    let count = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if !self.registration.wait_readable(context) {
                return Poll::Pending;
            }
            // SAFETY: the kernel writes at most `buf.len()` bytes to `buf`.
            let count = unsafe {
                libc::recv(self.fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT)
            };
            if let Ok(count) = usize::try_from(count) {
                if count > 0 && count < buf.len() {
                    self.registration.drained();
                }
                return Poll::Ready(Ok(count));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => self.registration.not_readable(),
                io::ErrorKind::Interrupted => {}
                _ => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_then(context, buf, false)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shutdown(Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
