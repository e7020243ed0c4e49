//! What a connection asks of the layer above: the only thing `http` knows of what it serves.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::head::Head;
use super::lent::Lent;
use super::pieces::Pieces;
use super::turn::Turn;
use crate::protocol::errors::Problem;

/// What to do with a request whose body has not arrived whole.
#[derive(Debug)]
pub enum Admit {
    /// Read the body, at most `max_bytes` of it, then call.
    Body {
        /// Largest body that is welcome.
        max_bytes: u64,
        /// Whether it may be long: then it is gathered in pieces, for [`Service::call_with_pieces`].
        in_pieces: bool,
    },
    /// Another shard owns what it is about.
    Elsewhere(usize),
    /// An answer is in the out buffer already, true once this ticket is durable (0: at once); the connection ends after it,
    /// for its body stays unread.
    Refused(u64),
}

/// What came of a request.
pub enum Step {
    /// The answer is in the out buffer.
    Done,
    /// The answer is in the out buffer, and is true once this ticket is durable.
    After(u64),
    /// Another shard owns what it is about; nothing was done.
    Elsewhere(usize),
    /// Nothing was done, and nothing was written; call again after the wait.
    Again(Wait),
    /// The answer comes from a source, bit by bit.
    Later(Box<dyn Source>),
    /// The head of the answer is in the out buffer; this is its body.
    Lent(Lent),
    /// The answer is in the out buffer, and the connection ends after it.
    DoneAndClose,
}

/// What must happen before a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Room in the open commit.
    Room,
    /// A ticket becomes durable.
    Durable(u64),
    /// Something that several shards decide is decided.
    Decision,
}

/// How a source goes on after it has appended bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// There is more to come.
    More,
    /// The answer is complete.
    End,
    /// The answer ends with the connection.
    Close,
}

/// An answer that is produced over time: a read from disk, a long-poll, an SSE stream.
pub trait Source {
    /// Appends the next bytes of the answer to `out`; called again only when they are written.
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill>;

    /// Whether the answer is pointless once the peer has closed its side: live readers.
    fn ends_with_peer(&self) -> bool {
        false
    }
}

/// A one-shot source: a future that yields the whole answer, and whether the connection ends with it.
pub struct OneShot<F>(pub Pin<Box<F>>);

impl<F: Future<Output = (Vec<u8>, Fill)>> OneShot<F> {
    /// Wraps the future as a step.
    pub fn step(future: F) -> Step
    where
        F: 'static,
    {
        Step::Later(Box::new(OneShot(Box::pin(future))))
    }
}

impl<F: Future<Output = (Vec<u8>, Fill)>> Source for OneShot<F> {
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill> {
        self.0.as_mut().poll(context).map(|(bytes, fill)| {
            if out.is_empty() {
                *out = bytes;
            } else {
                out.extend_from_slice(&bytes);
            }
            fill
        })
    }
}

/// An answer that is made slice by slice, so that it takes bounded memory however long it is.
pub trait Slices: 'static {
    /// Appends the next slice of the answer, not empty unless it is the last.
    fn next(&mut self, out: &mut Vec<u8>) -> impl Future<Output = Fill>;
}

/// The answer that `slices` makes, as a step.
pub fn sliced(slices: impl Slices) -> Step {
    Step::Later(Box::new(Sliced::Idle(slices, Turn::default())))
}

/// What a slice under way gives back: who makes the next one, the bytes, and how it goes on.
type Slice<S> = Pin<Box<dyn Future<Output = (S, Turn, Vec<u8>, Fill)>>>;

/// See [`sliced`].
enum Sliced<S> {
    Idle(S, Turn),
    UnderWay(Slice<S>),
    Ended,
}

impl<S: Slices> Source for Sliced<S> {
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill> {
        let mut slice: Slice<S> = match std::mem::replace(self, Sliced::Ended) {
            Sliced::Idle(mut slices, mut turn) => Box::pin(async move {
                let mut bytes = Vec::new();
                let fill = slices.next(&mut bytes).await;
                turn.did(bytes.len()).await;
                (slices, turn, bytes, fill)
            }),
            Sliced::UnderWay(slice) => slice,
            Sliced::Ended => panic!("an answer that has ended is asked for more"),
        };
        let Poll::Ready((slices, turn, bytes, fill)) = slice.as_mut().poll(context) else {
            *self = Sliced::UnderWay(slice);
            return Poll::Pending;
        };
        if out.is_empty() {
            *out = bytes;
        } else {
            out.extend_from_slice(&bytes);
        }
        if fill == Fill::More {
            *self = Sliced::Idle(slices, turn);
        }
        Poll::Ready(fill)
    }
}

/// The layer above the connections of one shard.
pub trait Service: 'static {
    /// Judges a request by its head, before its body is read. May write an answer.
    fn admit(&self, head: &Head<'_>, out: &mut Vec<u8>) -> Admit;

    /// Serves a complete request.
    fn call(&self, head: &Head<'_>, body: &[u8], out: &mut Vec<u8>) -> Step;

    /// Serves a complete request whose body was admitted in pieces; the service may take them.
    fn call_with_pieces(&self, head: &Head<'_>, body: &mut Pieces, out: &mut Vec<u8>) -> Step;

    /// Answers a request that is no HTTP, or breaks a limit. The connection ends after it.
    fn malformed(&self, problem: &Problem, out: &mut Vec<u8>);

    /// Answers in place of one whose commit failed.
    fn commit_failed(&self, out: &mut Vec<u8>);

    /// Highest durable ticket.
    fn durable(&self) -> u64;

    /// Resolves when the ticket is durable (`true`), or never will be (`false`).
    fn wait_durable(&self, ticket: u64) -> impl Future<Output = bool>;

    /// Resolves when there is room in the open commit, or it makes no sense to wait for it.
    fn wait_room(&self) -> impl Future<Output = ()>;

    /// Resolves when something that several shards decide is decided, or the server stops.
    fn wait_decision(&self) -> impl Future<Output = ()>;

    /// Takes `bytes` of the budget for bodies in flight; `false`: over budget, with a 503 in `out`.
    fn take_body_budget(&self, bytes: u64, out: &mut Vec<u8>) -> bool;

    /// Gives budget back.
    fn return_body_budget(&self, bytes: u64);

    /// Sends a connection to the shard that owns its next request.
    fn hand_over(&self, shard: usize, fd: OwnedFd, unread: Vec<u8>);

    /// Whether the server is stopping: connections end after the request at hand.
    fn stopping(&self) -> bool;

    /// Milliseconds of a clock for deadlines.
    fn now_ms(&self) -> u64;
}
