//! Reading a request body that has not arrived whole, within the budget that all bodies of a shard share.

use std::io;
use std::rc::Rc;

use super::{Connection, Shared};
use crate::http::body::{ChunkedDecoder, Fed};
use crate::http::buffer::SMALL_BYTES;
use crate::http::connections::Phase;
use crate::http::head::{Framing, Head};
use crate::http::pieces::Pieces;
use crate::http::problem::BodyProblem;
use crate::http::response::CONTINUE;
use crate::http::service::Service;
use crate::limits;

/// A body that is still arriving.
pub(super) struct Arriving {
    framing: Framing,
    head_bytes: usize,
    max_bytes: u64,
    in_pieces: bool,
    expect_continue: bool,
}

impl Arriving {
    /// The body that a head announces, of at most `max_bytes`.
    pub(super) fn of(head: &Head<'_>, max_bytes: u64, in_pieces: bool) -> Self {
        Self {
            framing: head.framing,
            head_bytes: head.head_bytes,
            max_bytes,
            in_pieces,
            expect_continue: head.expect_continue,
        }
    }
}

/// Takes a long body from what arrives.
enum Decoder {
    Sized { left: u64 },
    Chunked(ChunkedDecoder),
}

impl Decoder {
    fn feed(&mut self, mut input: &[u8], pieces: &mut Pieces) -> Result<Fed, BodyProblem> {
        match self {
            Decoder::Sized { left } => {
                let take = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                pieces.extend(&input[..take]);
                *left -= take as u64;
                Ok(Fed { consumed: take, done: *left == 0 })
            }
            Decoder::Chunked(decoder) => {
                let mut consumed = 0;
                while !decoder.is_done() && !input.is_empty() {
                    // What is decoded is no longer than what it came from.
                    let fed =
                        pieces.grow(|piece, room| decoder.feed(&input[..room.min(input.len())], piece))?;
                    consumed += fed.consumed;
                    input = &input[fed.consumed..];
                }
                Ok(Fed { consumed, done: decoder.is_done() })
            }
        }
    }
}

/// A part of the budget for bodies in flight; given back when dropped, on whatever path that is.
pub(super) struct Budget<S: Service> {
    shared: Rc<Shared<S>>,
    bytes: u64,
}

impl<S: Service> Budget<S> {
    /// Takes `bytes`; `None`: there is not that much, and the refusal is in `out`.
    fn take(shared: &Rc<Shared<S>>, bytes: u64, out: &mut Vec<u8>) -> Option<Self> {
        let taken = shared.service.take_body_budget(bytes, out);
        taken.then(|| Self { shared: shared.clone(), bytes })
    }

    /// Takes more until it covers `need_bytes`, doubling, up to `max_bytes`.
    fn cover(&mut self, need_bytes: u64, max_bytes: u64, out: &mut Vec<u8>) -> bool {
        while self.bytes < need_bytes {
            let more = self.bytes.max(1).min(max_bytes.max(need_bytes) - self.bytes);
            if !self.shared.service.take_body_budget(more, out) {
                return false;
            }
            self.bytes += more;
        }
        true
    }
}

impl<S: Service> Drop for Budget<S> {
    fn drop(&mut self) {
        self.shared.service.return_body_budget(self.bytes);
    }
}

impl<S: Service> Connection<S> {
    /// Reads the body that `arriving` describes. `false`: it broke a rule, or ended early; what there is to say is in
    /// the out buffer.
    pub(super) async fn read_body(&mut self, arriving: Arriving) -> io::Result<bool> {
        let budget_bytes = match arriving.framing {
            Framing::Length(length) => length,
            _ => arriving.max_bytes.min(limits::CHUNKED_BUDGET_BYTES),
        };
        self.budget = Budget::take(&self.shared, budget_bytes, &mut self.output);
        if self.budget.is_none() {
            return Ok(false);
        }
        self.entered.body_begins(self.shared.service.now_ms());
        if arriving.expect_continue && self.input.unread().len() == arriving.head_bytes {
            self.output.extend_from_slice(CONTINUE);
            self.write_output(false).await?;
            self.enter(Phase::Body);
        }
        let whole = match arriving.framing {
            _ if arriving.in_pieces => self.read_pieces(&arriving).await?,
            Framing::Length(length) => self.read_sized(arriving.head_bytes, length as usize).await?,
            _ => self.read_chunked(&arriving).await?,
        };
        if !whole && self.entered.expired() {
            self.shared.service.malformed(&BodyProblem::Timeout.into(), &mut self.output);
        }
        self.enter(Phase::Working);
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
            if self.read_some().await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Moves a long body into pieces as it arrives; the head stays in the input.
    async fn read_pieces(&mut self, arriving: &Arriving) -> io::Result<bool> {
        let mut decoder = match arriving.framing {
            Framing::Length(length) => Decoder::Sized { left: length },
            _ => Decoder::Chunked(ChunkedDecoder::new(arriving.max_bytes)),
        };
        let mut pieces = Pieces::default();
        loop {
            let arrived = &self.input.unread()[arriving.head_bytes..];
            let fed = match decoder.feed(arrived, &mut pieces) {
                Ok(fed) => fed,
                Err(problem) => {
                    self.shared.service.malformed(&problem.into(), &mut self.output);
                    return Ok(false);
                }
            };
            self.input.cut(arriving.head_bytes, fed.consumed);
            if fed.done {
                (self.pieces, self.body_ready) = (Some(pieces), true);
                return Ok(true);
            }
            let budget = self.budget.as_mut().expect("taken before the body is read");
            if !budget.cover(pieces.len() as u64, arriving.max_bytes, &mut self.output) {
                return Ok(false);
            }
            self.shared.pool.reserve(&mut self.input, limits::BODY_READ_BYTES);
            if self.read_some().await? == 0 {
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
            // Nobody said how long the body is: it pays as it grows.
            let budget = self.budget.as_mut().expect("taken before the body is read");
            if !budget.cover(self.body.len() as u64, arriving.max_bytes, &mut self.output) {
                return Ok(false);
            }
            let spare = self.body.len().clamp(SMALL_BYTES / 2, limits::BODY_READ_BYTES);
            self.shared.pool.reserve(&mut self.input, spare);
            if self.read_some().await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Reads once, and counts it as progress of the body.
    async fn read_some(&mut self) -> io::Result<usize> {
        let count = self.receive().await?;
        self.turn.did(count).await;
        self.entered.body_progress(count, self.shared.service.now_ms());
        Ok(count)
    }
}
