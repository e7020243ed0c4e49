//! A server that does nothing: it answers every POST with 204 and every PUT with 201 at once. What a run against it costs
//! is the cost of the generator.
//!
//! On a core of its own it does not sleep while there is load: a peer that must be woken would charge the wake-up to whoever
//! sends, and a server that is busy need not be woken either.
//!
//! Contract: requests must be well-formed, with a `Content-Length`; any other closes the connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::poller::Poller;
use super::usage;

/// As long as the answer of a server that does something.
const APPENDED: &[u8] = b"HTTP/1.1 204 No Content\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n\
    X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: cross-origin\r\n\
    Access-Control-Allow-Origin: *\r\nStream-Next-Offset: 0000000000000000_0000000000000000\r\n\r\n";
const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\
    Stream-Next-Offset: 0000000000000000_0000000000000000\r\n\r\n";
/// Bytes taken from a socket at once.
const SCRATCH_BYTES: usize = 256 * 1024;
/// How often it looks whether it should stop.
const TURN: Duration = Duration::from_millis(20);
/// Looks without news after which it sleeps.
const IDLE_LOOKS: u32 = 50_000;
/// The listener's token.
const LISTENER: u64 = u64::MAX;

/// A running responder. Dropping it stops it.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Starts one on a free port, pinned to a core if one is given.
    pub fn start(cpu: Option<usize>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut responder = Responder { poller: Poller::new()?, listener, peers: Vec::new() };
        responder.poller.add(responder.listener.as_raw_fd(), LISTENER)?;
        let thread = std::thread::Builder::new().name("null".to_owned()).spawn(move || {
            let owns_core = cpu.is_some_and(|cpu| usage::pin(&[cpu]).is_ok());
            responder.run(&stopped, owns_core);
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Peer {
    socket: TcpStream,
    /// Bytes of a request that is not complete.
    partial: Vec<u8>,
    /// Bytes of the present body that are still to come.
    body_left: usize,
    out: Vec<u8>,
}

struct Responder {
    poller: Poller,
    listener: TcpListener,
    peers: Vec<Option<Peer>>,
}

impl Responder {
    fn run(&mut self, stop: &AtomicBool, owns_core: bool) {
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut idle_looks = IDLE_LOOKS;
        while !stop.load(Ordering::Relaxed) {
            let is_idle = !owns_core || idle_looks >= IDLE_LOOKS;
            let Ok(count) = self.poller.wait(if is_idle { TURN } else { Duration::ZERO }) else { return };
            idle_looks = if count == 0 { idle_looks.saturating_add(1) } else { 0 };
            for index in 0..count {
                let change = self.poller.change(index);
                if change.token == LISTENER {
                    self.accept();
                    continue;
                }
                let place = &mut self.peers[change.token as usize];
                if place.as_mut().is_some_and(|peer| !peer.serve(&mut scratch)) {
                    *place = None;
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let is_ready = socket.set_nonblocking(true).is_ok()
                && socket.set_nodelay(true).is_ok()
                && self.poller.add(socket.as_raw_fd(), self.peers.len() as u64).is_ok();
            if is_ready {
                self.peers.push(Some(Peer { socket, partial: Vec::new(), body_left: 0, out: Vec::new() }));
            }
        }
    }
}

impl Peer {
    /// Takes what there is and answers; `false` when the connection is at its end.
    fn serve(&mut self, scratch: &mut [u8]) -> bool {
        loop {
            match self.socket.read(scratch) {
                Ok(0) => return false,
                Ok(count) => {
                    if self.take(&scratch[..count]).is_none() {
                        return false;
                    }
                    if count < scratch.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Full: the next change of the socket goes on with it.
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Takes bytes of requests and gathers the answers; `None` if they are none.
    fn take(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let now = self.body_left.min(bytes.len());
                self.body_left -= now;
                bytes = &bytes[now..];
                continue;
            }
            if self.partial.is_empty()
                && let Some(head_bytes) = self.head(bytes)?
            {
                bytes = &bytes[head_bytes..];
                continue;
            }
            let before = self.partial.len();
            self.partial.extend_from_slice(bytes);
            let partial = std::mem::take(&mut self.partial);
            match self.head(&partial)? {
                Some(head_bytes) => bytes = &bytes[head_bytes - before..],
                None => {
                    self.partial = partial;
                    return Some(());
                }
            }
        }
        Some(())
    }

    /// The length of the head that these bytes begin with; it is answered at once, before its body has come.
    fn head(&mut self, bytes: &[u8]) -> Option<Option<usize>> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let head_bytes = match request.parse(bytes).ok()? {
            httparse::Status::Partial => return Some(None),
            httparse::Status::Complete(head_bytes) => head_bytes,
        };
        let length =
            request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
        self.body_left = crate::protocol::digits::parse_u64(length.value)?.try_into().ok()?;
        let is_create = request.method == Some("PUT");
        self.out.extend_from_slice(if is_create { CREATED } else { APPENDED });
        Some(Some(head_bytes))
    }
}
