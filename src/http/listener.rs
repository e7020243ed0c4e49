//! Accepting connections: one loop per listening socket.
//!
//! A failed accept (out of descriptors, aborted by the peer) backs off instead of spinning. Over the maximum of
//! connections the newcomer gets a 503 and is closed.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::io::AsyncWriteExt;

use super::connection::{self, Shared};
use super::service::Service;
use super::socket::Socket;

/// How long a failed accept waits before the next.
const BACK_OFF: Duration = Duration::from_millis(20);

/// Accepts connections until the server stops. `connections_max` is this shard's part of the maximum; `full` is the
/// answer to those over it.
pub async fn accept_loop<S: Service>(
    listener: std::net::TcpListener,
    shared: Rc<Shared<S>>,
    connections_max: usize,
    full: Rc<[u8]>,
) {
    let registration = shared.readiness.register(listener.as_raw_fd());
    let registration = registration.expect("a listening socket can wait for connections");
    while !shared.service.stopping() {
        match accept(&listener) {
            Ok(fd) => match Socket::new(fd, &shared.readiness) {
                Ok(socket) if shared.connections.count() >= connections_max => {
                    glommio::spawn_local(refuse(socket, full.clone())).detach();
                }
                Ok(socket) => start(socket, Vec::new(), shared.clone()),
                Err(_) => drop(glommio::timer::Timer::new(BACK_OFF).await),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                registration.not_readable();
                poll_fn(|context| match registration.wait_readable(context) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                })
                .await;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => drop(glommio::timer::Timer::new(BACK_OFF).await),
        }
        crate::signal::give_way_if_needed().await;
    }
}

fn accept(listener: &std::net::TcpListener) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the peer's address is not asked for; the descriptor that is returned is owned by nobody else.
    unsafe {
        let fd = libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Serves a connection that another shard handed over.
pub fn adopt<S: Service>(fd: OwnedFd, unread: Vec<u8>, shared: Rc<Shared<S>>) {
    // Out of memory for one more socket: the connection ends, and the client will retry.
    if let Ok(socket) = Socket::new(fd, &shared.readiness) {
        start(socket, unread, shared);
    }
}

fn start<S: Service>(socket: Socket, unread: Vec<u8>, shared: Rc<Shared<S>>) {
    // Answers are whole when they are written: nothing is gained by waiting.
    socket.set_nodelay();
    glommio::spawn_local(connection::serve(socket, unread, shared)).detach();
}

async fn refuse(mut socket: Socket, full: Rc<[u8]>) {
    // The peer may be gone: there is nobody to tell.
    let _ = socket.write_all(&full).await;
    socket.shutdown(std::net::Shutdown::Write);
}
