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
pub struct ExpiryQueue(BinaryHeap<Reverse<(u64, StreamId)>>);

impl ExpiryQueue {
    /// Adds a stream.
    pub fn add(&mut self, at_ms: u64, stream: StreamId) {
        self.0.push(Reverse((at_ms, stream)));
    }

    /// Takes out a stream whose moment has come.
    pub fn due(&mut self, now_ms: u64) -> Option<StreamId> {
        if self.0.peek()?.0.0 > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse((_, stream))| stream)
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
