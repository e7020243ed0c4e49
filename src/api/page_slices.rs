//! Large pages out of memory, slice by slice.
//!
//! A page that is gathered whole before it is written passes through memory twice: from the cache to a fresh buffer, page
//! faults included, and from there, cold again, to the socket. A slice is still in the core's own cache when it is sent, and
//! its buffer serves for the next one. (Measured: see `perf/budget.md`.)
//!
//! Contract: the head of the answer, with its length, is written first, so what follows must come: the segments are held, and
//! what has left the memory meanwhile is read from disk. If that fails the connection is cut, which is the only way left to
//! say so. No cached memory is kept across a wait for the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Api;
use super::read::{self, View};
use crate::http::service::{Fill, Source, Step};
use crate::limits;
use crate::shard::table::StreamId;
use crate::storage::extents::Piece;
use crate::storage::log::{Held, ReadError};

/// Most pieces of a page that goes in slices: of small ones, looking each up twice would cost more than it saves.
pub const PIECES_MAX: usize = 256;

/// Bytes of a slice that is being read from disk.
type Reading = Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>>>>;

/// The rest of a page.
struct PageSlices {
    api: Api,
    id: StreamId,
    view: View,
    /// Holds the segments of all pieces.
    held: Held,
    pieces: Vec<Piece>,
    /// The piece at hand, and how much of it was sent.
    next: usize,
    sent_of_next: u32,
    reading: Option<Reading>,
}

/// Whether all of the pieces are in memory now.
pub fn are_cached(api: &Api, pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| api.shard.log.cached(piece.place, piece.from, piece.len).is_some())
}

/// The body of a page made of `pieces`, which must not be empty, as a step; its head is in the out buffer already.
pub fn step(api: &Api, id: StreamId, view: View, pieces: Vec<Piece>) -> Step {
    assert!(!pieces.is_empty(), "a page of stream {} that goes in slices has bytes", id.lineage);
    let held = api.shard.log.hold(pieces.clone());
    let (api, reading) = (api.clone(), None);
    Step::Later(Box::new(PageSlices { api, id, view, held, pieces, next: 0, sent_of_next: 0, reading }))
}

impl PageSlices {
    /// What of the piece at hand goes into a slice with `room`.
    fn part(&self, room: usize) -> Option<Piece> {
        let piece = self.pieces.get(self.next)?;
        let len = (piece.len - self.sent_of_next).min(u32::try_from(room).unwrap_or(u32::MAX));
        Some(Piece { from: piece.from + self.sent_of_next, len, ..*piece })
    }

    /// So many bytes of the piece at hand are in the out buffer.
    fn sent(&mut self, bytes: u32) {
        self.sent_of_next += bytes;
        if self.sent_of_next == self.pieces[self.next].len {
            (self.next, self.sent_of_next) = (self.next + 1, 0);
        }
    }

    /// Fills a slice from memory; whether it could.
    fn fill_cached(&mut self, out: &mut Vec<u8>) -> bool {
        let end = out.len() + limits::PAGE_SLICE_BYTES;
        while out.len() < end {
            let Some(part) = self.part(end - out.len()) else { return true };
            match self.api.shard.log.cached(part.place, part.from, part.len) {
                Some(bytes) => out.extend_from_slice(&bytes),
                // Of what is there already, a slice is made.
                None => return out.len() + limits::PAGE_SLICE_BYTES > end,
            }
            self.sent(part.len);
        }
        true
    }

    /// Reads a slice from disk.
    fn poll_reading(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<(), ReadError>> {
        let part = self.part(limits::PAGE_SLICE_BYTES).expect("asked for while something is left");
        let reading = self.reading.get_or_insert_with(|| {
            let (held, log) = (self.held.of(vec![part]), self.api.shard.log.clone());
            Box::pin(async move {
                let mut bytes = Vec::new();
                log.read(&held, &mut bytes).await.map(|()| bytes)
            })
        });
        let Poll::Ready(read) = reading.as_mut().poll(context) else { return Poll::Pending };
        self.reading = None;
        Poll::Ready(read.map(|bytes| {
            out.extend_from_slice(&bytes);
            self.sent(part.len);
        }))
    }
}

impl Source for PageSlices {
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill> {
        if self.reading.is_some() || !self.fill_cached(out) {
            match self.poll_reading(context, out) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    read::failed(&self.api, self.id, &error);
                    return Poll::Ready(Fill::Close);
                }
            }
        }
        if self.next < self.pieces.len() {
            return Poll::Ready(Fill::More);
        }
        if self.view == View::Array {
            read::close_array(out, self.id);
        }
        Poll::Ready(Fill::End)
    }
}
