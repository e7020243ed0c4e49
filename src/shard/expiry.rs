//! When streams expire: a queue of the earliest moments at which each might.
//!
//! An entry is a hint. The truth is [`deadline_ms`] of the stream as it is when the moment comes; if that has moved, the
//! entry is put back. So a use costs nothing here, and a stream has at most one entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::stream::{Lifetime, Stream};
use super::table::StreamId;
use crate::protocol::expiry::Expiry;

/// The moment at which the stream expires, if nothing uses it before; `None` for never (decision 24).
pub fn deadline_ms(lifetime: &Lifetime) -> Option<u64> {
    let expiry = Expiry::from_parts(lifetime.ttl_seconds, lifetime.expires_at_ms);
    if lifetime.recovered {
        expiry.deadline_after_restart_ms(lifetime.recorded_ms)
    } else {
        expiry.deadline_ms(lifetime.used_ms)
    }
}

/// When the use by live readers must be recorded next; `None` if uses do not count. Well before the tenth of the window after
/// which a use is to be in the log, for it takes a moment to get there.
pub fn renewal_due_ms(lifetime: &Lifetime) -> Option<u64> {
    let expiry = Expiry::from_parts(lifetime.ttl_seconds, lifetime.expires_at_ms);
    let due_ms = expiry.renewal_due_ms(lifetime.recorded_ms)?;
    Some(lifetime.recorded_ms + (due_ms - lifetime.recorded_ms) / 2)
}

/// Whether the stream has expired at `now_ms`. One with a live reader does not, unless its expiry is absolute.
pub fn is_expired(stream: &Stream, now_ms: u64) -> bool {
    let Some(lifetime) = &stream.lifetime else { return false };
    if lifetime.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
        return true;
    }
    deadline_ms(lifetime).is_some_and(|at_ms| at_ms <= now_ms) && !stream.has_readers()
}

/// Streams by the moment at which they might expire.
#[derive(Debug, Default)]
pub struct ExpiryQueue {
    heap: BinaryHeap<Reverse<(u64, StreamId)>>,
    /// Number of entries at which those of streams that are gone are swept out.
    swept_at: usize,
}

impl ExpiryQueue {
    const SWEPT_AT_MIN: usize = 1024;

    /// Adds a stream. `lives` tells which streams are still there: the moment of a stream that is not may be years away.
    pub fn add(&mut self, at_ms: u64, stream: StreamId, lives: impl Fn(StreamId) -> bool) {
        if self.heap.len() >= self.swept_at.max(Self::SWEPT_AT_MIN) {
            self.heap.retain(|Reverse((_, stream))| lives(*stream));
            self.swept_at = 2 * self.heap.len();
        }
        self.heap.push(Reverse((at_ms, stream)));
    }

    /// Takes out a stream whose moment has come.
    pub fn due(&mut self, now_ms: u64) -> Option<StreamId> {
        if self.heap.peek()?.0.0 > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse((_, stream))| stream)
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u64) -> StreamId {
        StreamId { slot: number as u32, lineage: number }
    }

    #[test]
    fn streams_come_due_in_order_of_their_moments() {
        let mut queue = ExpiryQueue::default();
        for (at_ms, number) in [(30, 3), (10, 1), (20, 2), (10, 4)] {
            queue.add(at_ms, stream(number), |_| true);
        }
        assert_eq!(queue.due(9), None);
        assert_eq!([queue.due(10), queue.due(10), queue.due(19)], [Some(stream(1)), Some(stream(4)), None]);
        assert_eq!(
            [queue.due(100), queue.due(100), queue.due(100)],
            [Some(stream(2)), Some(stream(3)), None]
        );
        assert!(queue.is_empty());
    }

    /// Streams with a distant expiry that come and go, a hundred of them at a time.
    #[test]
    fn streams_that_are_gone_do_not_pile_up() {
        let mut queue = ExpiryQueue::default();
        for number in 0..100_000 {
            queue.add(u64::MAX - number, stream(number), |stream| stream.lineage + 100 > number);
            assert!(queue.heap.len() <= ExpiryQueue::SWEPT_AT_MIN + 1, "{} after {number}", queue.heap.len());
        }
        for number in (99_901..100_000).rev() {
            assert_eq!(queue.due(u64::MAX), Some(stream(number)), "who lives is kept");
        }
    }
}
