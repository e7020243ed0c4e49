//! Accepting connections: one loop per listening socket, never cancelled.
//!
//! A failed accept (out of descriptors, aborted by the peer) backs off instead of spinning. Over the maximum of
//! connections the newcomer gets a 503 and is closed.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::io::AsyncWriteExt;
use glommio::net::{TcpListener, TcpStream};

use super::connection::{self, Shared};
use super::service::Service;

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
    // SAFETY: the descriptor is given up by the standard listener and owned by the executor's from here on.
    let listener = unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) };
    loop {
        let accepted = listener.accept().await;
        if shared.service.stopping() {
            return;
        }
        match accepted {
            Ok(stream) if shared.connections.count() >= connections_max => {
                glommio::spawn_local(refuse(stream, full.clone())).detach();
            }
            Ok(stream) => start(stream, Vec::new(), shared.clone()),
            Err(_) => drop(glommio::timer::Timer::new(BACK_OFF).await),
        }
        glommio::yield_if_needed().await;
    }
}

/// Serves a connection that another shard handed over.
pub fn adopt<S: Service>(fd: OwnedFd, unread: Vec<u8>, shared: Rc<Shared<S>>) {
    // SAFETY: the descriptor is owned, and owned by the stream from here on.
    let stream = unsafe { TcpStream::from_raw_fd(fd.into_raw_fd()) };
    start(stream, unread, shared);
}

fn start<S: Service>(stream: TcpStream, unread: Vec<u8>, shared: Rc<Shared<S>>) {
    // Answers are whole when they are written: nothing is gained by waiting. Failing means that the peer is gone.
    let _ = stream.set_nodelay(true);
    glommio::spawn_local(connection::serve(stream, unread, shared)).detach();
}

async fn refuse(mut stream: TcpStream, full: Rc<[u8]>) {
    // The peer may be gone: there is nobody to tell.
    let _ = stream.write_all(&full).await;
    let _ = stream.shutdown(std::net::Shutdown::Write).await;
}
