//! Live readers of one shard: who waits for which stream, and until when.
//!
//! Contract: a reader that found nothing to read and then called [`Readers::park`] is woken after the next publish that
//! concerns its stream, when its stream goes, when its deadline passes, and when the server stops. Wakes may be
//! spurious; a reader always looks again. A publish only queues its readers; [`Readers::wake_loop`] wakes at most
//! `limits::WAKES_PER_TURN_MAX` of them before other work gets a turn, so that fan-out never starves commits.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::table::StreamId;
use crate::limits;
use crate::signal::Signal;

/// How finely deadlines of readers are kept.
const TICK: Duration = Duration::from_millis(25);

#[derive(Debug)]
struct Reader {
    stream: StreamId,
    waker: Option<Waker>,
    /// Place in the stream's own list of readers.
    position: u32,
    queued: bool,
    deadline_ms: u64,
}

/// All live readers of a shard.
#[derive(Debug, Default)]
pub struct Readers {
    slots: RefCell<Vec<Option<Reader>>>,
    free: RefCell<Vec<u32>>,
    count: Cell<usize>,
    queue: RefCell<VecDeque<u32>>,
    queue_filled: Signal,
    deadlines: RefCell<BTreeSet<(u64, u32)>>,
    deadlines_filled: Signal,
}

impl Readers {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Enters a reader of `stream`, whose list of readers is `list`. Leave with [`Readers::leave`].
    pub fn enter(&self, stream: StreamId, list: &mut Vec<u32>) -> u32 {
        let position = u32::try_from(list.len()).expect("readers are limited");
        let reader = Reader { stream, waker: None, position, queued: false, deadline_ms: 0 };
        let mut slots = self.slots.borrow_mut();
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => {
                assert!(slots[slot as usize].is_none(), "reader slot {slot} is taken");
                slots[slot as usize] = Some(reader);
                slot
            }
            None => {
                slots.push(Some(reader));
                u32::try_from(slots.len() - 1).expect("readers are limited")
            }
        };
        list.push(slot);
        self.count.set(self.count.get() + 1);
        slot
    }

    /// Removes a reader. `list` is its stream's list, unless the stream is gone.
    pub fn leave(&self, slot: u32, list: Option<&mut Vec<u32>>) {
        let mut slots = self.slots.borrow_mut();
        let reader = slots[slot as usize].take().unwrap_or_else(|| panic!("reader {slot} left twice"));
        self.deadlines.borrow_mut().remove(&(reader.deadline_ms, slot));
        if let Some(list) = list {
            let position = reader.position as usize;
            assert_eq!(list.get(position), Some(&slot), "reader {slot} of {:?} is listed", reader.stream);
            list.swap_remove(position);
            if let Some(moved) = list.get(position) {
                let moved = slots[*moved as usize].as_mut().expect("a listed reader exists");
                moved.position = reader.position;
            }
        }
        self.free.borrow_mut().push(slot);
        self.count.set(self.count.get() - 1);
    }

    /// The stream that a reader is attached to.
    pub fn stream(&self, slot: u32) -> StreamId {
        self.slots.borrow()[slot as usize].as_ref().expect("the reader has not left").stream
    }

    /// Asks to be woken; by the latest at `deadline_ms`. A deadline that moves back is left where it was: readers that are sent
    /// something put theirs off each time, and being woken once for nothing costs less than to keep them all in order.
    pub fn park(&self, slot: u32, context: &Context<'_>, deadline_ms: u64) {
        let mut slots = self.slots.borrow_mut();
        let reader = slots[slot as usize].as_mut().expect("the reader has not left");
        if !reader.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            reader.waker = Some(context.waker().clone());
        }
        if reader.deadline_ms == 0 || deadline_ms < reader.deadline_ms {
            let mut deadlines = self.deadlines.borrow_mut();
            deadlines.remove(&(reader.deadline_ms, slot));
            reader.deadline_ms = deadline_ms;
            deadlines.insert((deadline_ms, slot));
            self.deadlines_filled.notify();
        }
    }

    /// Queues readers for waking.
    pub fn queue(&self, list: &[u32]) {
        let mut slots = self.slots.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        for slot in list {
            if let Some(reader) = slots[*slot as usize].as_mut().filter(|reader| !reader.queued) {
                reader.queued = true;
                queue.push_back(*slot);
            }
        }
        if !queue.is_empty() {
            self.queue_filled.notify();
        }
    }

    /// Queues all of them: the server stops.
    pub fn queue_all(&self) {
        let all: Vec<u32> = {
            let slots = self.slots.borrow();
            (0..slots.len() as u32).filter(|slot| slots[*slot as usize].is_some()).collect()
        };
        self.queue(&all);
    }

    /// Wakes the readers that `queue` names, some at a time, for as long as the shard runs.
    pub async fn wake_loop(self: Rc<Self>) {
        loop {
            self.queue_filled.wait().await;
            while self.wake_some() {
                crate::signal::give_way().await;
            }
        }
    }

    /// Wakes some; whether more are left.
    fn wake_some(&self) -> bool {
        for _ in 0..limits::WAKES_PER_TURN_MAX {
            let Some(slot) = self.queue.borrow_mut().pop_front() else { return false };
            let waker = self.slots.borrow_mut()[slot as usize].as_mut().and_then(|reader| {
                reader.queued = false;
                reader.waker.take()
            });
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        !self.queue.borrow().is_empty()
    }

    /// Wakes readers whose deadline has passed, for as long as the shard runs. Ticks only while there are any.
    pub async fn deadline_loop(self: Rc<Self>, now_ms: impl Fn() -> u64) {
        loop {
            if self.deadlines.borrow().is_empty() {
                self.deadlines_filled.wait().await;
            }
            glommio::timer::Timer::new(TICK).await;
            let overdue = self.take_overdue(now_ms());
            self.queue(&overdue);
        }
    }

    fn take_overdue(&self, now_ms: u64) -> Vec<u32> {
        let mut deadlines = self.deadlines.borrow_mut();
        let later = deadlines.split_off(&(now_ms + 1, 0));
        let overdue = std::mem::replace(&mut *deadlines, later);
        let mut slots = self.slots.borrow_mut();
        for (_, slot) in &overdue {
            if let Some(reader) = slots[*slot as usize].as_mut() {
                reader.deadline_ms = 0;
            }
        }
        overdue.into_iter().map(|(_, slot)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId { slot: 0, lineage: 1 };

    #[test]
    fn leaving_keeps_the_others_listed() {
        let readers = Readers::default();
        let mut list = Vec::new();
        let slots: Vec<u32> = (0..5).map(|_| readers.enter(STREAM, &mut list)).collect();
        for slot in [slots[1], slots[4], slots[0]] {
            readers.leave(slot, Some(&mut list));
        }
        list.sort_unstable();
        assert_eq!(list, [slots[2], slots[3]]);
        assert_eq!(readers.count(), 2);
        readers.leave(slots[2], None);
        assert_eq!(readers.count(), 1, "a reader of a stream that is gone leaves without its list");
    }

    #[test]
    fn deadlines_come_due_once_and_in_time() {
        let readers = Readers::default();
        let mut list = Vec::new();
        let (early, late) = (readers.enter(STREAM, &mut list), readers.enter(STREAM, &mut list));
        let context = Context::from_waker(Waker::noop());
        readers.park(early, &context, 10);
        readers.park(late, &context, 20);
        assert_eq!(readers.take_overdue(9), [] as [u32; 0]);
        assert_eq!(readers.take_overdue(10), [early]);
        readers.park(late, &context, 30);
        assert_eq!(readers.take_overdue(20), [late], "one that moved back wakes once as it was");
        readers.park(late, &context, 30);
        assert_eq!(readers.take_overdue(29), [] as [u32; 0]);
        readers.park(late, &context, 29);
        assert_eq!(readers.take_overdue(29), [late], "one that moved forward counts as it is now");
    }

    #[test]
    fn a_queued_reader_is_queued_once() {
        let readers = Readers::default();
        let mut list = Vec::new();
        let slot = readers.enter(STREAM, &mut list);
        readers.queue(&list);
        readers.queue(&list);
        assert_eq!(readers.queue.borrow().len(), 1);
        assert!(!readers.wake_some());
        readers.queue(&[slot]);
        assert_eq!(readers.queue.borrow().len(), 1, "and again once it was woken");
    }
}
