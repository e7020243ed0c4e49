//! When streams expire: a queue of the earliest moments at which each might.
//!
//! An entry is a hint. The truth is [`deadline_ms`] of the stream as it is when the moment comes; if that has moved, the
//! entry is put back. So a use costs nothing here, and a stream has at most one entry. The moment of an entry is never after
//! the deadline, and an expired stream keeps its entry until its delete is staged: so the entries whose moment has come
//! lead to every expired stream, and nobody has to look for one elsewhere ([`Shard::expire_due`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::stream::{Lifetime, Stream};
use super::table::StreamId;
use super::{DELETE_META_BYTES, Shard, now_ms};
use crate::protocol::expiry::Expiry;
use crate::storage::log::{Class, Room};

/// The moment at which the stream expires, if nothing uses it before; `None` for never (decision 24).
pub fn deadline_ms(lifetime: &Lifetime) -> Option<u64> {
    let expiry = Expiry::from_parts(lifetime.ttl_seconds, lifetime.expires_at_ms);
    if lifetime.recovered {
        expiry.deadline_after_restart_ms(lifetime.recorded_ms)
    } else {
        expiry.deadline_ms(lifetime.used_ms)
    }
}

/// The earliest that [`deadline_ms`] can be from now on: a use after a restart takes back the tenth that it granted.
pub fn earliest_deadline_ms(lifetime: &Lifetime) -> Option<u64> {
    Expiry::from_parts(lifetime.ttl_seconds, lifetime.expires_at_ms).deadline_ms(lifetime.used_ms)
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

    /// Whether a stream's moment has come.
    pub fn has_due(&self, now_ms: u64) -> bool {
        self.heap.peek().is_some_and(|Reverse((at_ms, _))| *at_ms <= now_ms)
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl Shard {
    /// Stages the delete of an expired stream; `None` if there is no room for it now, or ever.
    pub(super) fn expire(&self, id: StreamId) -> Option<u64> {
        let ticket = self.delete(id)?;
        self.expired_ticket.set(ticket);
        Some(ticket)
    }

    /// Stages the deletes of all streams that have expired by `now_ms`, waiting for room. Whether all are staged: there may
    /// be no room any more.
    pub async fn expire_due(&self, now_ms: u64) -> bool {
        while self.expiry.borrow().has_due(now_ms) {
            // Looked at before an entry is taken out: an expired stream keeps its entry until its delete is staged.
            match self.room(DELETE_META_BYTES, 0, Class::Control) {
                Room::Now => {}
                Room::Later => {
                    self.log.wait_room().await;
                    continue;
                }
                Room::Refused(_) => return false,
            }
            let due = self.expiry.borrow_mut().due(now_ms);
            let id = due.expect("nothing was awaited since it was looked at");
            if let Some(at_ms) = self.expire_or_postpone(id, now_ms) {
                assert!(at_ms > now_ms, "{id:?} would be looked after without end");
                self.expiry.borrow_mut().add(at_ms, id, |id| self.table.borrow().get(id).is_some());
            }
            crate::signal::give_way_if_needed().await;
        }
        true
    }

    /// Makes durable that everything is gone which had expired before the call, and returns the moment that this holds for.
    /// Streams that have expired and are still there cannot be deleted: the log takes nothing more (`false`).
    pub async fn expire_before_now(&self) -> (u64, bool) {
        let now_ms = now_ms();
        let staged = self.expire_due(now_ms).await;
        let gone = self.log.wait_durable(self.expired_ticket.get()).await;
        (now_ms, staged && gone.is_ok())
    }

    /// Waits until every staged delete of a stream is durable; whether they are.
    pub async fn wait_deleted(&self) -> bool {
        self.log.wait_durable(self.deleted_ticket.get()).await.is_ok()
    }

    /// Deletes a stream if it has expired; else returns when to look again. There must be room.
    pub fn expire_or_postpone(&self, id: StreamId, now_ms: u64) -> Option<u64> {
        let table = self.table.borrow();
        let stream = table.get(id).filter(|stream| stream.deleted_ticket.is_none())?;
        if !is_expired(stream, now_ms) {
            return Some(deadline_ms(stream.lifetime.as_deref()?)?.max(now_ms + 1));
        }
        drop(table);
        self.expire(id).expect("there is room for the delete");
        None
    }

    /// Records a use of a stream that has live readers; returns when to do so again (decision 24: expiry never comes early, and a
    /// stream with a live reader is in use all the time).
    pub fn renew_or_forget(&self, id: StreamId, now_ms: u64) -> Option<u64> {
        {
            let mut table = self.table.borrow_mut();
            let stream = table.get_mut(id).filter(|stream| stream.deleted_ticket.is_none())?;
            let is_used = stream.has_readers();
            let lifetime = stream.lifetime.as_deref_mut()?;
            if !is_used {
                lifetime.renewal_queued = false;
                return None;
            }
            lifetime.used_ms = lifetime.used_ms.max(now_ms);
        }
        self.record_use(id, now_ms);
        let table = self.table.borrow();
        let due_ms = renewal_due_ms(table.get(id)?.lifetime.as_deref()?)?;
        Some(due_ms.max(now_ms + 1))
    }

    /// Records the uses by live readers whose time has come.
    async fn renew_due(&self, now_ms: u64) {
        loop {
            let due = self.renewals.borrow_mut().due(now_ms);
            let Some(id) = due else { return };
            if let Some(at_ms) = self.renew_or_forget(id, now_ms) {
                assert!(at_ms > now_ms, "{id:?} would be looked after without end");
                self.renewals.borrow_mut().add(at_ms, id, |id| self.table.borrow().get(id).is_some());
            }
            crate::signal::give_way_if_needed().await;
        }
    }
}

/// Deletes streams whose time has come, and records that live readers use theirs, for as long as the shard runs. Ticks only
/// while some stream can expire.
pub(super) async fn expiry_loop(shard: Rc<Shard>) {
    const TICK: std::time::Duration = std::time::Duration::from_millis(50);
    loop {
        if shard.expiry.borrow().is_empty() && shard.renewals.borrow().is_empty() {
            shard.expiry_filled.wait().await;
        }
        glommio::timer::Timer::new(TICK).await;
        let now_ms = now_ms();
        shard.renew_due(now_ms).await;
        shard.expire_due(now_ms).await;
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
