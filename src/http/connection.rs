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
use futures_lite::io::{AsyncRead, AsyncWrite};

use super::body::ChunkedDecoder;
use super::buffer::{Pool, ReadBuffer};
use super::connections::{Connections, Entered, Phase};
use super::head::{self, Framing, Head, Method};
use super::problem::{BodyProblem, HeadProblem};
use super::readiness::Readiness;
use super::response::CONTINUE;
use super::service::{Admit, Fill, Service, Source, Step, Wait};
use super::socket::Socket;
use crate::limits;

/// What all connections of a shard share.
pub struct Shared<S> {
    /// The layer above.
    pub service: S,
    /// Who is connected.
    pub connections: Rc<Connections>,
    /// Buffers.
    pub pool: Pool,
    /// Where sockets wait.
    pub readiness: Rc<Readiness>,
}

/// A body that is still arriving.
struct Arriving {
    framing: Framing,
    head_bytes: usize,
    max_bytes: u64,
    expect_continue: bool,
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
    stream: Socket,
    entered: Entered,
    shared: Rc<Shared<S>>,
    input: ReadBuffer,
    /// A chunked body, decoded.
    body: Vec<u8>,
    body_ready: bool,
    output: Vec<u8>,
    pending: Vec<Pending>,
    /// A commit failed: the connection ends once what is answered is written.
    failed: bool,
}

/// Serves a connection to its end. `unread` are bytes that came with it from another shard.
pub async fn serve<S: Service>(stream: Socket, unread: Vec<u8>, shared: Rc<Shared<S>>) {
    let entered = shared.connections.enter(stream.as_raw_fd(), shared.service.now_ms());
    let mut connection = Connection {
        stream,
        entered,
        shared,
        input: ReadBuffer::with_unread(unread),
        body: Vec::new(),
        body_ready: false,
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
            self.flush().await?;
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
                // Room may have come while this flushed, and might not be announced again: look before waiting.
                Next::Wait(Wait::Room) if flushed => {}
                Next::Wait(Wait::Room) => self.shared.service.wait_room().await,
                Next::Wait(Wait::Durable(ticket)) => {
                    self.shared.service.wait_durable(ticket).await;
                }
                Next::Later(source, keep_alive) => {
                    let end = self.drive(source).await?;
                    if end == Fill::Close || !keep_alive || self.shared.service.stopping() {
                        return self.close().await;
                    }
                }
                Next::Elsewhere(shard) => return Ok(Some(shard)),
                Next::Close => return self.close().await,
            }
            glommio::yield_if_needed().await;
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
            let unread = self.input.unread();
            let head = match head::parse(unread) {
                Ok(Some(head)) => head,
                Ok(None) => return Next::Read,
                Err(problem) => {
                    service.malformed(&problem.into(), &mut self.output);
                    return Next::Close;
                }
            };
            let body = match head.framing {
                Framing::None => Some(&unread[head.head_bytes..head.head_bytes]),
                Framing::Length(length) => unread[head.head_bytes..].get(..length as usize),
                Framing::Chunked => self.body_ready.then_some(self.body.as_slice()),
            };
            let Some(body) = body else {
                return match service.admit(&head, &mut self.output) {
                    Admit::Body { max_bytes } => Next::Body(arriving(&head, max_bytes)),
                    Admit::Elsewhere(shard) => Next::Elsewhere(shard),
                    Admit::Refused => Next::Close,
                };
            };
            let request_bytes = head.head_bytes + if self.body_ready { 0 } else { body.len() };
            if !self.pending.is_empty() && head.method != Method::Post {
                // Readers see what is durable: one that follows a write on its connection must not miss it.
                return Next::Flush;
            }
            let keep_alive = head.keep_alive;
            let begin = self.output.len();
            let step = service.call(&head, body, &mut self.output);
            let done = match step {
                Step::Elsewhere(shard) => {
                    assert_eq!(self.output.len(), begin, "a request that moves has no answer yet");
                    // A decoded body cannot travel: ownership was settled before it was read.
                    assert!(!self.body_ready, "a request with a decoded body was admitted here");
                    return Next::Elsewhere(shard);
                }
                Step::Again(wait) => {
                    assert_eq!(self.output.len(), begin, "a request that waits has no answer yet");
                    return Next::Wait(wait);
                }
                Step::After(ticket) => {
                    if ticket > service.durable() {
                        self.pending.push(Pending { ticket, begin, end: self.output.len() });
                    }
                    None
                }
                Step::Done => None,
                Step::DoneAndClose => Some(Next::Close),
                Step::Later(source) => Some(Next::Later(source, keep_alive)),
            };
            self.input.consume(request_bytes);
            self.drop_body();
            self.entered.head_begins(service.now_ms());
            match done {
                Some(next) => return next,
                None if !keep_alive || service.stopping() => return Next::Close,
                None => {}
            }
        }
        Next::Flush
    }

    fn drop_body(&mut self) {
        if self.body_ready {
            self.body = Vec::new();
            self.body_ready = false;
        }
    }

    /// Waits for the commits that the gathered answers depend on, then writes them all at once.
    async fn flush(&mut self) -> io::Result<()> {
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
        self.write_output().await
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

    async fn write_output(&mut self) -> io::Result<()> {
        let mut written = 0;
        while written < self.output.len() {
            let Self { stream, output, entered, shared, .. } = self;
            written += poll_fn(|context| {
                let polled = Pin::new(&mut *stream).poll_write(context, &output[written..]);
                if polled.is_pending() {
                    entered.enter(Phase::Writing, shared.service.now_ms());
                }
                retry_interrupted(polled, context)
            })
            .await?;
        }
        if self.output.capacity() > limits::PIPELINE_OUT_BYTES_MAX {
            self.output = Vec::new();
        } else {
            self.output.clear();
        }
        Ok(())
    }

    /// Reads once. While nothing has arrived no buffer is held. Returns the number of bytes; 0 at the end.
    async fn read(&mut self) -> io::Result<usize> {
        let phase = if self.input.is_empty() { Phase::Idle } else { Phase::Head };
        if phase == Phase::Idle {
            // What an idle connection keeps is what a server with many of them pays for.
            self.output = Vec::new();
            self.pending = Vec::new();
        }
        match phase {
            Phase::Idle => self.enter(Phase::Idle),
            _ => self.entered.await_head(),
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
            retry_interrupted(polled, context)
        })
        .await?;
        if count > 0 {
            self.input.filled(count);
            self.enter(Phase::Working);
            if phase == Phase::Idle {
                self.entered.head_begins(self.shared.service.now_ms());
            }
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

    /// Reads the body that `arriving` describes. `false`: it broke a rule, and the answer is in the out buffer.
    async fn read_body(&mut self, arriving: Arriving) -> io::Result<bool> {
        let budget = match arriving.framing {
            Framing::Length(length) => length,
            _ => arriving.max_bytes.min(limits::CHUNKED_BUDGET_BYTES),
        };
        if !self.shared.service.take_body_budget(budget, &mut self.output) {
            return Ok(false);
        }
        self.entered.body_begins(self.shared.service.now_ms());
        if arriving.expect_continue && self.input.unread().len() == arriving.head_bytes {
            self.output.extend_from_slice(CONTINUE);
            self.write_output().await?;
        }
        let read = match arriving.framing {
            Framing::Length(length) => self.read_sized(arriving.head_bytes, length as usize).await,
            _ => self.read_chunked(&arriving).await,
        };
        self.shared.service.return_body_budget(budget);
        let whole = read?;
        if !whole && self.entered.expired() {
            self.shared.service.malformed(&BodyProblem::Timeout.into(), &mut self.output);
        }
        Ok(whole)
    }

    async fn read_sized(&mut self, head_bytes: usize, length: usize) -> io::Result<bool> {
        loop {
            let have = self.input.unread().len() - head_bytes;
            if have >= length {
                return Ok(true);
            }
            // Memory grows with what arrives, not with what is claimed. A byte to spare past the body lets the read
            // come back short, which is how the executor learns that the socket is drained.
            let spare = (length - have).min(have.max(limits::BODY_READ_BYTES)) + 1;
            self.shared.pool.reserve(&mut self.input, spare);
            if self.read_some_body().await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Decodes into `self.body`; what is decoded leaves the input, the head stays.
    async fn read_chunked(&mut self, arriving: &Arriving) -> io::Result<bool> {
        let mut decoder = ChunkedDecoder::new(arriving.max_bytes);
        loop {
            let encoded = &self.input.unread()[arriving.head_bytes..];
            match decoder.feed(encoded, &mut self.body) {
                Ok(fed) => {
                    self.input.cut(arriving.head_bytes, fed.consumed);
                    if fed.done {
                        self.body_ready = true;
                        return Ok(true);
                    }
                }
                Err(problem) => {
                    self.shared.service.malformed(&problem.into(), &mut self.output);
                    return Ok(false);
                }
            }
            self.shared.pool.reserve(&mut self.input, super::buffer::SMALL_BYTES / 2);
            if self.read_some_body().await? == 0 {
                return Ok(false);
            }
        }
    }

    async fn read_some(&mut self) -> io::Result<usize> {
        let Self { stream, input, .. } = self;
        let count = poll_fn(|context| {
            let polled = Pin::new(&mut *stream).poll_read(context, input.spare());
            retry_interrupted(polled, context)
        })
        .await?;
        self.input.filled(count);
        Ok(count)
    }

    async fn read_some_body(&mut self) -> io::Result<usize> {
        let count = self.read_some().await?;
        self.entered.body_progress(count, self.shared.service.now_ms());
        Ok(count)
    }

    /// Writes an answer as its source produces it, watching for the peer's going away if that ends it.
    async fn drive(&mut self, mut source: Box<dyn Source>) -> io::Result<Fill> {
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
            self.write_output().await?;
            if fill != Fill::More {
                return Ok(fill);
            }
            glommio::yield_if_needed().await;
        }
    }

    /// Writes what is left, closes our side, and reads on for a moment so that the peer sees the last answer rather
    /// than a reset caused by bytes it had under way.
    async fn close(&mut self) -> io::Result<Option<usize>> {
        self.flush().await?;
        self.enter(Phase::Closing);
        self.stream.shutdown(std::net::Shutdown::Write);
        let mut drained = 0;
        while drained < limits::CLOSING_DRAIN_BYTES_MAX {
            self.input = self.shared.pool.take();
            let count = self.read_some().await?;
            if count == 0 {
                break;
            }
            drained += count;
        }
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

fn arriving(head: &Head<'_>, max_bytes: u64) -> Arriving {
    Arriving {
        framing: head.framing,
        head_bytes: head.head_bytes,
        max_bytes,
        expect_continue: head.expect_continue,
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
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
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

/// A system call that a signal interrupted, or an operation that a stray cancellation hit (the executor reports that
/// as a time-out, and we set none), is simply polled again.
fn retry_interrupted<T>(polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
    match polled {
        Poll::Ready(Err(error))
            if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::TimedOut) =>
        {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        other => other,
    }
}
