//! Waiting on one thread: the writers that wait for their commit.

use std::collections::VecDeque;
use std::task::{Context, Waker};

/// Tasks that wait for a commit, by ticket. Few tickets are outstanding at a time (open, waiting, in flight), so each has
/// its own list and completing one costs nothing for the others.
#[derive(Default)]
pub(super) struct TicketWaiters {
    /// Ticket of the first list: the one after the highest durable ticket.
    first: u64,
    lists: VecDeque<Vec<Waker>>,
    /// Empty lists with their memory.
    spare: Vec<Vec<Waker>>,
}

impl TicketWaiters {
    /// Nothing up to `durable` is waited for any more.
    pub(super) fn start(&mut self, durable: u64) {
        assert!(self.lists.is_empty(), "tickets start once");
        self.first = durable + 1;
    }

    /// Registers, or renews, the waker of a task that waits for `ticket`. `slot` is the task's own memory of it.
    pub(super) fn register(&mut self, ticket: u64, slot: &mut Option<u32>, context: &Context<'_>) {
        assert!(ticket >= self.first, "ticket {ticket} is durable, the first that is not is {}", self.first);
        let list_index = (ticket - self.first) as usize;
        while self.lists.len() <= list_index {
            self.lists.push_back(self.spare.pop().unwrap_or_default());
        }
        let list = &mut self.lists[list_index];
        match slot {
            Some(index) => {
                let registered = &mut list[*index as usize];
                if !registered.will_wake(context.waker()) {
                    registered.clone_from(context.waker());
                }
            }
            None => {
                *slot = Some(list.len() as u32);
                list.push(context.waker().clone());
            }
        }
    }

    /// `ticket`, the first outstanding one, is durable: hands over those who wait for it. Give the list back with
    /// [`Self::recycle`].
    pub(super) fn complete(&mut self, ticket: u64) -> Vec<Waker> {
        assert_eq!(ticket, self.first, "tickets complete in order");
        self.first += 1;
        self.lists.pop_front().unwrap_or_default()
    }

    /// Takes back an empty list.
    pub(super) fn recycle(&mut self, list: Vec<Waker>) {
        assert!(list.is_empty(), "{} tasks were not woken", list.len());
        if list.capacity() > 0 && self.spare.len() < 4 {
            self.spare.push(list);
        }
    }

    /// Everyone, for the end of the log. The lists stay, since a woken task may still look at its slot.
    pub(super) fn everyone(&self) -> Vec<Waker> {
        self.lists.iter().flatten().cloned().collect()
    }
}
