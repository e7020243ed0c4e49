//! One client connection: reads requests, has them served in order, writes the answers in order.
//!
//! Contract:
//! - Answers leave in the order of their requests. An answer that depends on a commit leaves once that is durable; if
//!   the commit fails, 503 takes its place.
//! - All requests of one pipeline that are in memory are served before anything is awaited, so that their appends share
//!   a commit and their answers one write.
//! - A request other than POST is served once every answer before it is durable, so that it sees the writes before it.
//! - Before anything is awaited (bytes, room, a slow answer), everything answered so far is flushed.
//! - A connection moves to another shard only at the start of a request, with every answer before it written and every
//!   byte after it in hand.
//! - Between requests it holds no buffer.
//!
//! Nothing large is held across an await: the task of an idle connection is what a server has thousands of.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_lite::future::poll_fn;
use futures_lite::io::AsyncRead;

use super::buffer::{Pool, ReadBuffer};
use super::connections::{Connections, Entered, Phase};
use super::head::{self, Framing, Method};
use super::lent::{Lender, Lent};
use super::pieces::Pieces;
use super::problem::HeadProblem;
use super::readiness::Readiness;
use super::service::{Admit, Fill, Service, Source, Step, Wait};
use super::socket::Socket;
use super::turn::Turn;
use crate::limits;
use arriving::{Arriving, Budget};

mod arriving;

/// What all connections of a shard share.
pub struct Shared<S> {
    /// The layer above.
    pub service: S,
    /// Who is connected.
    pub connections: Rc<Connections>,
    /// Buffers.
    pub pool: Pool,
    /// Sends lent bytes.
    pub lender: Lender,
    /// Where sockets wait.
    pub readiness: Rc<Readiness>,
}

/// What must be awaited after everything in memory was served.
enum Next {
    /// More bytes; whether a head has begun.
    Read,
    /// Only the flush: many answers have gathered.
    Flush,
    Body(Arriving),
    Wait(Wait),
    Later(Box<dyn Source>, bool),
    /// The body of the answer whose head is last in the out buffer.
    Lent(Lent, bool),
    Elsewhere(usize),
    Close,
}

/// An answer in the out buffer that waits for a commit: its ticket and where it begins.
struct Pending {
    ticket: u64,
    begin: usize,
    end: usize,
}

struct Connection<S: Service> {
    /// Before the socket: the entry must leave the table before the descriptor is closed.
    entered: Entered,
    stream: Socket,
    shared: Rc<Shared<S>>,
    input: ReadBuffer,
    /// Bytes of `input` that were looked at and hold no complete head.
    seen_bytes: usize,
    /// When the head that is arriving began: its deadline counts from there, however it trickles in.
    head_began_ms: Option<u64>,
    /// A chunked body, decoded.
    body: Vec<u8>,
    /// In place of it a body that was admitted in pieces.
    pieces: Option<Pieces>,
    /// Whether one of the two is complete.
    body_ready: bool,
    /// What the body of the request at hand takes of the budget, until the request is served.
    budget: Option<Budget<S>>,
    /// Reading bodies gives way to other work.
    turn: Turn,
    output: Vec<u8>,
    pending: Vec<Pending>,
    /// A commit failed: the connection ends once what is answered is written.
    failed: bool,
}

/// Serves a connection to its end. `unread` are bytes that came with it from another shard.
pub async fn serve<S: Service>(stream: Socket, unread: Vec<u8>, shared: Rc<Shared<S>>) {
    let entered = shared.connections.enter(stream.as_raw_fd(), shared.service.now_ms());
    let mut connection = Connection {
        entered,
        stream,
        shared,
        input: ReadBuffer::with_unread(unread),
        seen_bytes: 0,
        head_began_ms: None,
        body: Vec::new(),
        pieces: None,
        body_ready: false,
        budget: None,
        turn: Turn::default(),
        output: Vec::new(),
        pending: Vec::new(),
        failed: false,
    };
    // An I/O error is the peer's going away: there is nobody to tell.
    if let Ok(Some(shard)) = connection.run().await {
        connection.hand_over(shard);
    }
}

impl<S: Service> Connection<S> {
    /// Runs until the connection ends (`None`) or must move (`Some(shard)`).
    async fn run(&mut self) -> io::Result<Option<usize>> {
        loop {
            let next = self.process();
            let flushed = !self.output.is_empty();
            self.flush(matches!(next, Next::Lent(..))).await?;
            if self.failed {
                return self.close().await;
            }
            match next {
                Next::Flush => {}
                Next::Read => {
                    if self.read().await? == 0 {
                        return self.peer_closed().await;
                    }
                }
                Next::Body(arriving) => {
                    if !self.read_body(arriving).await? {
                        return self.close().await;
                    }
                }
                // It may have come while this flushed, and might not be announced again: look before waiting.
                Next::Wait(Wait::Room | Wait::Decision) if flushed => {}
                Next::Wait(Wait::Room) => self.shared.service.wait_room().await,
                Next::Wait(Wait::Decision) => self.shared.service.wait_decision().await,
                Next::Wait(Wait::Durable(ticket)) => {
                    self.shared.service.wait_durable(ticket).await;
                }
                Next::Later(source, keep_alive) => {
                    let end = self.drive(source).await?;
                    self.budget = None;
                    if end == Fill::Close || !keep_alive || self.shared.service.stopping() {
                        return self.close().await;
                    }
                }
                Next::Lent(lent, keep_alive) => {
                    self.write_lent(&lent).await?;
                    if !keep_alive || self.shared.service.stopping() {
                        return self.close().await;
                    }
                }
                Next::Elsewhere(shard) => return Ok(Some(shard)),
                Next::Close => return self.close().await,
            }
            crate::signal::give_way_if_needed().await;
        }
    }

    /// Serves every request that is complete in memory. Nothing is awaited here.
    fn process(&mut self) -> Next {
        let shared = self.shared.clone();
        let service = &shared.service;
        for _ in 0..limits::PIPELINE_REQUESTS_MAX {
            if self.input.is_empty() {
                if self.input.has_memory() {
                    shared.pool.put(std::mem::take(&mut self.input));
                }
                return if service.stopping() { Next::Close } else { Next::Read };
            }
            if self.output.len() >= limits::PIPELINE_OUT_BYTES_MAX {
                return Next::Flush;
            }
            if let Some(next) = self.serve_one(service) {
                return next;
            }
        }
        Next::Flush
    }

    /// Serves the request at the start of the input. `None`: its answer is in the out buffer, and the next one is due.
    fn serve_one(&mut self, service: &S) -> Option<Next> {
        let unread = self.input.unread();
        let parsed = match self.seen_bytes {
            0 => head::parse(unread),
            seen_bytes => head::parse_more(unread, seen_bytes),
        };
        let head = match parsed {
            Ok(Some(head)) => head,
            Ok(None) => {
                self.seen_bytes = unread.len();
                return Some(Next::Read);
            }
            Err(problem) => {
                service.malformed(&problem.into(), &mut self.output);
                return Some(Next::Close);
            }
        };
        (self.seen_bytes, self.head_began_ms) = (0, None);
        if !self.pending.is_empty() && head.method != Method::Post {
            // Readers see what is durable: one that follows a write on its connection must not miss it.
            return Some(Next::Flush);
        }
        let body = match head.framing {
            _ if self.body_ready => Some(self.body.as_slice()),
            Framing::None => Some(&unread[head.head_bytes..head.head_bytes]),
            Framing::Length(length) => unread[head.head_bytes..].get(..length as usize),
            Framing::Chunked => None,
        };
        let begin = self.output.len();
        let Some(body) = body else {
            return Some(match service.admit(&head, &mut self.output) {
                Admit::Body { max_bytes, in_pieces } => Next::Body(Arriving::of(&head, max_bytes, in_pieces)),
                Admit::Elsewhere(shard) => Next::Elsewhere(shard),
                Admit::Refused(ticket) => {
                    self.await_ticket(ticket, begin);
                    Next::Close
                }
            });
        };
        let request_bytes = head.head_bytes + if self.body_ready { 0 } else { body.len() };
        let keep_alive = head.keep_alive;
        let step = match &mut self.pieces {
            Some(pieces) => service.call_with_pieces(&head, pieces, &mut self.output),
            None => service.call(&head, body, &mut self.output),
        };
        let next = match step {
            Step::Elsewhere(shard) => {
                assert_eq!(self.output.len(), begin, "a request that moves has no answer yet");
                // A decoded body cannot travel: ownership was settled before it was read.
                assert!(!self.body_ready, "a request with a decoded body was admitted here");
                return Some(Next::Elsewhere(shard));
            }
            Step::Again(wait) => {
                assert_eq!(self.output.len(), begin, "a request that waits has no answer yet");
                return Some(Next::Wait(wait));
            }
            Step::After(ticket) => {
                self.await_ticket(ticket, begin);
                None
            }
            Step::Done => None,
            Step::DoneAndClose => Some(Next::Close),
            Step::Later(source) => Some(Next::Later(source, keep_alive)),
            Step::Lent(lent) => Some(Next::Lent(lent, keep_alive)),
        };
        self.served(request_bytes, &next);
        let last = !keep_alive || service.stopping();
        next.or_else(|| last.then_some(Next::Close))
    }

    /// The answer that begins at `begin` in the out buffer leaves once a ticket is durable.
    fn await_ticket(&mut self, ticket: u64, begin: usize) {
        if ticket > self.shared.service.durable() {
            self.pending.push(Pending { ticket, begin, end: self.output.len() });
        }
    }

    /// The request at the start of the input is served, or on its way.
    fn served(&mut self, request_bytes: usize, next: &Option<Next>) {
        self.input.consume(request_bytes);
        if self.body_ready {
            (self.body, self.pieces) = (Vec::new(), None);
            self.body_ready = false;
        }
        // A slow answer may still hold the body; a live reader does not.
        if !matches!(next, Some(Next::Later(source, _)) if !source.ends_with_peer()) {
            self.budget = None;
        }
    }

    /// Waits for the commits that the gathered answers depend on, then writes them all at once. `more`: other bytes follow.
    async fn flush(&mut self, more: bool) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        if let Some(last) = self.pending.iter().map(|pending| pending.ticket).max() {
            self.enter(Phase::Working);
            if !self.shared.service.wait_durable(last).await {
                self.replace_failed();
                self.failed = true;
            }
            self.pending.clear();
        }
        self.write_output(more).await
    }

    /// The commit failed: every answer that depended on it becomes a 503.
    fn replace_failed(&mut self) {
        let service = &self.shared.service;
        let durable = service.durable();
        let mut output = Vec::with_capacity(self.output.len());
        let mut copied = 0;
        for pending in self.pending.iter().filter(|pending| pending.ticket > durable) {
            output.extend_from_slice(&self.output[copied..pending.begin]);
            service.commit_failed(&mut output);
            copied = pending.end;
        }
        output.extend_from_slice(&self.output[copied..]);
        self.output = output;
    }

    async fn write_output(&mut self, more: bool) -> io::Result<()> {
        let output = std::mem::take(&mut self.output);
        self.write_all(output.len(), |socket, written, context| {
            socket.poll_write_then(context, &output[written..], more)
        })
        .await?;
        if output.capacity() <= limits::PIPELINE_OUT_BYTES_MAX {
            self.output = output;
            self.output.clear();
        }
        Ok(())
    }

    async fn write_lent(&mut self, lent: &Lent) -> io::Result<()> {
        let shared = self.shared.clone();
        self.write_all(lent.len(), |socket, written, context| {
            socket.poll_lend(context, &shared.lender, lent, written)
        })
        .await
    }

    /// Calls `write` with what was written so far, until that is `bytes`.
    async fn write_all(
        &mut self,
        bytes: usize,
        mut write: impl FnMut(&mut Socket, usize, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> io::Result<()> {
        let (mut written, mut waited) = (0, false);
        while written < bytes {
            let Self { stream, entered, shared, .. } = self;
            written += poll_fn(|context| {
                let polled = write(stream, written, context);
                if polled.is_pending() {
                    waited = true;
                    entered.enter(Phase::Writing, shared.service.now_ms());
                }
                polled
            })
            .await?;
        }
        if waited {
            self.enter(Phase::Working);
        }
        Ok(())
    }

    /// Reads once. While nothing has arrived no buffer is held. Returns the number of bytes; 0 at the end.
    async fn read(&mut self) -> io::Result<usize> {
        if self.input.is_empty() {
            // What an idle connection keeps is what a server with many of them pays for.
            self.output = Vec::new();
            self.pending = Vec::new();
            self.enter(Phase::Idle);
        } else {
            let began_ms = self.head_began_ms.unwrap_or_else(|| self.shared.service.now_ms());
            self.head_began_ms = Some(began_ms);
            self.entered.enter(Phase::Head, began_ms);
        }
        let Self { stream, input, shared, .. } = self;
        let count = poll_fn(|context| {
            if input.is_empty() {
                *input = shared.pool.take();
            } else {
                shared.pool.reserve(input, super::buffer::SMALL_BYTES / 2);
            }
            let polled = Pin::new(&mut *stream).poll_read(context, input.spare());
            if polled.is_pending() && input.is_empty() {
                shared.pool.put(std::mem::take(input));
            }
            polled
        })
        .await?;
        if count > 0 {
            self.input.filled(count);
            self.enter(Phase::Working);
        }
        Ok(count)
    }

    /// The peer has sent its last byte, or has taken too long.
    async fn peer_closed(&mut self) -> io::Result<Option<usize>> {
        if self.entered.expired() && !self.input.is_empty() {
            self.shared.service.malformed(&HeadProblem::Timeout.into(), &mut self.output);
        }
        self.close().await
    }

    /// Reads once, whatever it is.
    async fn receive(&mut self) -> io::Result<usize> {
        let Self { stream, input, .. } = self;
        let count = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, input.spare())).await?;
        self.input.filled(count);
        Ok(count)
    }

    /// Writes an answer as its source produces it, watching for the peer's going away if that ends it.
    async fn drive(&mut self, mut source: Box<dyn Source>) -> io::Result<Fill> {
        if self.input.is_empty() {
            self.shared.pool.put(std::mem::take(&mut self.input));
        }
        loop {
            self.enter(Phase::Working);
            let watch = source.ends_with_peer();
            let Self { stream, input, output, shared, .. } = self;
            let filled = poll_fn(|context| {
                if let Poll::Ready(fill) = source.poll_fill(context, output) {
                    return Poll::Ready(Some(fill));
                }
                if watch && peer_is_gone(stream, input, &shared.pool, context) {
                    return Poll::Ready(None);
                }
                Poll::Pending
            })
            .await;
            let Some(fill) = filled else { return Err(io::ErrorKind::ConnectionAborted.into()) };
            self.write_output(false).await?;
            if fill != Fill::More {
                return Ok(fill);
            }
            crate::signal::give_way_if_needed().await;
        }
    }

    /// Writes what is left, closes our side, and reads on for a moment so that the peer sees the last answer rather
    /// than a reset caused by bytes it had under way.
    async fn close(&mut self) -> io::Result<Option<usize>> {
        self.flush(false).await?;
        self.enter(Phase::Closing);
        self.stream.shutdown(std::net::Shutdown::Write);
        self.shared.pool.put(std::mem::replace(&mut self.input, self.shared.pool.take()));
        let mut drained = 0;
        while drained < limits::CLOSING_DRAIN_BYTES_MAX {
            let count = self.receive().await?;
            if count == 0 {
                break;
            }
            self.input.consume(count);
            drained += count;
        }
        self.shared.pool.put(std::mem::take(&mut self.input));
        Ok(None)
    }

    fn hand_over(self, shard: usize) {
        let Self { stream, entered, shared, input, .. } = self;
        drop(entered);
        shared.service.hand_over(shard, stream.into_fd(), input.unread().to_vec());
        shared.pool.put(input);
    }

    fn enter(&self, phase: Phase) {
        self.entered.enter(phase, self.shared.service.now_ms());
    }
}

/// Polls the read side of a connection whose answer is under way. Bytes that arrive are the next requests: kept, up to
/// a head's worth; past that the peer is not watched (and cannot make us hoard).
fn peer_is_gone(stream: &mut Socket, input: &mut ReadBuffer, pool: &Pool, context: &mut Context<'_>) -> bool {
    loop {
        if input.is_empty() {
            *input = pool.take();
        } else if input.unread().len() >= limits::HEAD_BYTES_MAX {
            return false;
        } else {
            pool.reserve(input, super::buffer::SMALL_BYTES / 2);
        }
        match Pin::new(&mut *stream).poll_read(context, input.spare()) {
            Poll::Ready(Ok(0)) => return true,
            Poll::Ready(Ok(count)) => input.filled(count),
            Poll::Ready(Err(_)) => return true,
            Poll::Pending => {
                if input.is_empty() {
                    pool.put(std::mem::take(input));
                }
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
