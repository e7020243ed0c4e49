//! The connections of one shard: how many there are, what each is waiting for, and for how long it may.
//!
//! A connection notes its [`Phase`] in a cell; one sweep, four times a second, finds those that overstay. That costs
//! nothing on the hot path, where a timer per request would. An overdue connection is woken through its socket
//! (`shutdown`), so that its own task ends it: the task reads zero bytes, sees [`Slot::expired`], and answers 408 if it
//! still owes an answer.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::limits;

/// What a connection is doing, and so which deadline holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Between requests.
    Idle,
    /// A request head has begun and is not complete.
    Head,
    /// A request body has begun and is not complete.
    Body,
    /// The server is at work: no deadline of ours.
    Working,
    /// An answer is being written.
    Writing,
    /// The last answer is written; the peer's close is awaited.
    Closing,
}

impl Phase {
    /// How long a connection may stay in the phase without progress.
    fn deadline_ms(self) -> Option<u64> {
        match self {
            Phase::Idle => Some(limits::IDLE_DEADLINE_MS),
            Phase::Head => Some(limits::HEAD_DEADLINE_MS),
            Phase::Body => Some(limits::BODY_DEADLINE_MS),
            Phase::Working => None,
            Phase::Writing => Some(limits::WRITE_DEADLINE_MS),
            Phase::Closing => Some(limits::CLOSING_DEADLINE_MS),
        }
    }
}

/// One connection's entry.
#[derive(Debug)]
pub struct Slot {
    fd: RawFd,
    phase: Cell<Phase>,
    since_ms: Cell<u64>,
    body_began_ms: Cell<u64>,
    body_bytes: Cell<u64>,
    expired: Cell<bool>,
}

impl Slot {
    /// Enters a phase at `now_ms`; its deadline starts anew.
    pub fn enter(&self, phase: Phase, now_ms: u64) {
        self.phase.set(phase);
        self.since_ms.set(now_ms);
    }

    /// A body begins: its rate counts from here.
    pub fn body_begins(&self, now_ms: u64) {
        self.body_began_ms.set(now_ms);
        self.body_bytes.set(0);
        self.enter(Phase::Body, now_ms);
    }

    /// `bytes` of the body have arrived.
    pub fn body_progress(&self, bytes: usize, now_ms: u64) {
        self.body_bytes.set(self.body_bytes.get() + bytes as u64);
        self.since_ms.set(now_ms);
    }

    /// Whether the sweep has ended this connection's wait.
    pub fn expired(&self) -> bool {
        self.expired.get()
    }

    fn overdue(&self, now_ms: u64) -> bool {
        let phase = self.phase.get();
        let waited_ms = now_ms.saturating_sub(self.since_ms.get());
        if phase.deadline_ms().is_some_and(|limit_ms| waited_ms > limit_ms) {
            return true;
        }
        // A body that trickles makes progress all the time: only its rate gives it away.
        let seconds = now_ms.saturating_sub(self.body_began_ms.get()) / 1000;
        phase == Phase::Body
            && seconds * 1000 > limits::BODY_RATE_GRACE_MS
            && self.body_bytes.get() < seconds * limits::BODY_RATE_BYTES_PER_SECOND_MIN
    }
}

/// All connections of a shard.
#[derive(Debug, Default)]
pub struct Connections {
    slots: RefCell<Vec<Option<Rc<Slot>>>>,
    free: RefCell<Vec<usize>>,
    count: Cell<usize>,
}

impl Connections {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Enters a connection; the entry leaves with the returned guard.
    pub fn enter(self: &Rc<Self>, fd: RawFd, now_ms: u64) -> Entered {
        let slot = Rc::new(Slot {
            fd,
            phase: Cell::new(Phase::Idle),
            since_ms: Cell::new(now_ms),
            body_began_ms: Cell::new(0),
            body_bytes: Cell::new(0),
            expired: Cell::new(false),
        });
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        assert!(slots[index].is_none(), "connection slot {index} is taken");
        slots[index] = Some(slot.clone());
        self.count.set(self.count.get() + 1);
        Entered { all: self.clone(), index, slot }
    }

    /// Wakes every connection that has overstayed its phase.
    pub fn sweep(&self, now_ms: u64) {
        for slot in self.slots.borrow().iter().flatten() {
            if !slot.expired.get() && slot.overdue(now_ms) {
                slot.expired.set(true);
                let how = match slot.phase.get() {
                    Phase::Writing | Phase::Closing => libc::SHUT_RDWR,
                    _ => libc::SHUT_RD,
                };
                shutdown(slot.fd, how);
            }
        }
    }

    /// Wakes every connection that is between requests, so that it ends: the server stops.
    pub fn end_idle(&self) {
        for slot in self.slots.borrow().iter().flatten() {
            if slot.phase.get() == Phase::Idle {
                shutdown(slot.fd, libc::SHUT_RD);
            }
        }
    }

    /// What each is doing.
    #[cfg(test)]
    pub fn phases(&self) -> Vec<Phase> {
        self.slots.borrow().iter().flatten().map(|slot| slot.phase.get()).collect()
    }

    /// Cuts every connection that is left. At most `most` per call: each leaves a cancellation in the ring, and
    /// more than the ring holds at once may hit an innocent operation.
    pub fn cut(&self, most: usize) {
        for slot in self.slots.borrow().iter().flatten().take(most) {
            slot.expired.set(true);
            shutdown(slot.fd, libc::SHUT_RDWR);
        }
    }
}

fn shutdown(fd: RawFd, how: i32) {
    // SAFETY: a plain system call on a descriptor that the connection's task still owns: its entry leaves the table
    // (`Entered::drop`) before the descriptor is closed, on the same thread. A failure (already shut) changes nothing.
    unsafe { libc::shutdown(fd, how) };
}

/// A connection's place in [`Connections`]; dropping it leaves. Must be dropped before the socket is closed.
#[derive(Debug)]
pub struct Entered {
    all: Rc<Connections>,
    index: usize,
    slot: Rc<Slot>,
}

impl std::ops::Deref for Entered {
    type Target = Slot;
    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = self.all.slots.borrow_mut()[self.index].take();
        assert!(left.is_some(), "connection slot {} left twice", self.index);
        self.all.free.borrow_mut().push(self.index);
        self.all.count.set(self.all.count.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (phase, waited, bytes of body so far) -> overdue?
    #[test]
    fn deadlines_hold_by_phase() {
        let table = [
            (Phase::Idle, limits::IDLE_DEADLINE_MS, 0, false),
            (Phase::Idle, limits::IDLE_DEADLINE_MS + 1, 0, true),
            (Phase::Head, limits::HEAD_DEADLINE_MS, 0, false),
            (Phase::Head, limits::HEAD_DEADLINE_MS + 1, 0, true),
            (Phase::Working, u64::MAX / 2, 0, false),
            (Phase::Writing, limits::WRITE_DEADLINE_MS + 1, 0, true),
            (Phase::Closing, limits::CLOSING_DEADLINE_MS + 1, 0, true),
        ];
        let all = Rc::new(Connections::default());
        for (phase, waited_ms, body, overdue) in table {
            let entered = all.enter(-1, 0);
            entered.enter(phase, 0);
            entered.body_progress(body, 0);
            assert_eq!(entered.overdue(waited_ms), overdue, "{phase:?} after {waited_ms} ms");
        }
        assert_eq!(all.count(), 0, "every entry left");
    }

    #[test]
    fn a_trickling_body_is_overdue_and_a_steady_one_is_not() {
        let all = Rc::new(Connections::default());
        for (bytes_per_second, overdue) in [(1, true), (limits::BODY_RATE_BYTES_PER_SECOND_MIN, false)] {
            let entered = all.enter(-1, 0);
            entered.body_begins(0);
            let mut now_ms = 0;
            while now_ms < 60_000 && !entered.overdue(now_ms) {
                now_ms += 1000;
                entered.body_progress(bytes_per_second as usize, now_ms);
            }
            assert_eq!(now_ms < 60_000, overdue, "{bytes_per_second} bytes a second");
        }
    }
}
