//! One client connection: bytes that wait to be sent, and the parser of what comes back.
//!
//! Contract: nothing here blocks. [`Exchange::push`] sends at once, unless sends are gathered (pipelining) or earlier bytes
//! are still waiting; then [`Exchange::flush`] must follow, and again whenever the socket takes more. A failure to send is
//! kept and told by the next receive, because what the server said before matters more.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::response::{Malformed, Parser, Sink};

/// A buffer larger than this is given back once it is empty.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// How a receive went.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// All there was has been taken.
    Drained,
    /// There may be more.
    More,
    /// The peer has closed the connection where it may.
    Closed,
    /// The connection is of no more use: why.
    Failed(String),
}

/// A connection.
#[derive(Debug)]
pub struct Exchange {
    socket: TcpStream,
    out: Vec<u8>,
    sent: usize,
    gathers: bool,
    send_error: Option<io::Error>,
    parser: Parser,
    /// Bytes sent since somebody last took the count.
    pub sent_bytes: u64,
    /// Bytes received since then.
    pub received_bytes: u64,
}

impl Exchange {
    /// Begins to connect. `gathers`: requests are sent together.
    pub fn connect(address: SocketAddr, gathers: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        Ok(Self {
            socket: socket.into(),
            out: Vec::new(),
            sent: 0,
            gathers,
            send_error: None,
            parser: Parser::default(),
            sent_bytes: 0,
            received_bytes: 0,
        })
    }

    /// Its descriptor, for a poller.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Once the socket can be written: whether it is connected.
    pub fn connected(&self) -> io::Result<()> {
        match self.socket.take_error()? {
            Some(error) => Err(error),
            None => self.socket.peer_addr().map(drop),
        }
    }

    /// Adds bytes to send.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if self.gathers || !self.out.is_empty() {
            self.out.extend_from_slice(bytes);
            return;
        }
        let sent = self.send(bytes);
        if sent < bytes.len() {
            self.out.extend_from_slice(&bytes[sent..]);
        }
    }

    /// Sends what waits.
    #[inline]
    pub fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let out = std::mem::take(&mut self.out);
        self.sent += self.send(&out[self.sent..]);
        self.out = out;
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            if self.out.capacity() > KEPT_BYTES_MAX {
                self.out = Vec::new();
            }
        }
    }

    /// Sends as much as the socket takes.
    fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() && self.send_error.is_none() {
            match (&self.socket).write(&bytes[sent..]) {
                Ok(0) => self.send_error = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.send_error = Some(error),
            }
        }
        self.sent_bytes += sent as u64;
        sent
    }

    /// Takes once from the socket, through `scratch`.
    pub fn receive(&mut self, scratch: &mut [u8], sink: &mut impl Sink) -> Received {
        let count = match (&self.socket).read(scratch) {
            Ok(0) => {
                return match self.parser.close(sink) {
                    Ok(()) => Received::Closed,
                    Err(Malformed(why)) => Received::Failed(why),
                };
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return match self.send_error.take() {
                    Some(error) => Received::Failed(name_of(&error)),
                    None => Received::Drained,
                };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Received::More,
            Err(error) => return Received::Failed(name_of(&error)),
        };
        self.received_bytes += count as u64;
        match self.parser.feed(&scratch[..count], sink) {
            Ok(()) if count < scratch.len() => Received::Drained,
            Ok(()) => Received::More,
            Err(Malformed(why)) => Received::Failed(why),
        }
    }
}

/// What happened to a connection, in a few words that do not differ between cases of the same kind.
pub fn name_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "connection reset".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}
