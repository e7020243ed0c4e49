//! Chunk entries of operations under way: bytes of the log that no stream knows of yet, and that count all the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The operations of a shard whose chunk entries no durable entry names yet, by the segment that holds their first one. Later
/// ones lie in that segment or in later ones: a log goes on in segments of growing index.
#[derive(Debug, Default)]
pub struct PendingChunks(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    /// Number of operations that have not come to an end, by segment.
    under_way: BTreeMap<u32, usize>,
    /// Segments of those that have, with the tickets of the entries that name their chunks.
    named: Vec<(u64, u32)>,
}

impl PendingChunks {
    /// Enters an operation that has just staged its first chunk entry, in this segment (`Place::segment`).
    pub fn enter(&self, segment: u32) -> PendingChunk {
        *self.0.borrow_mut().under_way.entry(segment).or_default() += 1;
        PendingChunk { all: self.0.clone(), segment }
    }

    /// The lowest segment entered, when everything up to the ticket `durable` is durable.
    pub fn oldest(&self, durable: u64) -> Option<u32> {
        let State { under_way, named } = &mut *self.0.borrow_mut();
        named.retain(|(ticket, _)| *ticket > durable);
        let segments = under_way.keys().copied().chain(named.iter().map(|(_, segment)| *segment));
        segments.min()
    }
}

/// An operation's place in [`PendingChunks`]. Dropped, on whatever path that is, it leaves its chunks to be garbage.
#[derive(Debug)]
pub struct PendingChunk {
    all: Rc<RefCell<State>>,
    segment: u32,
}

impl PendingChunk {
    /// The chunks are named by an entry that was just staged under this ticket.
    pub fn named(self, ticket: u64) {
        self.all.borrow_mut().named.push((ticket, self.segment));
    }
}

impl Drop for PendingChunk {
    fn drop(&mut self) {
        let under_way = &mut self.all.borrow_mut().under_way;
        let count = under_way.get_mut(&self.segment).expect("entered before");
        *count -= 1;
        if *count == 0 {
            under_way.remove(&self.segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_lowest_that_is_still_there() {
        let pending = PendingChunks::default();
        assert_eq!(pending.oldest(0), None);
        let (five, also_five, three) = (pending.enter(5), pending.enter(5), pending.enter(3));
        assert_eq!(pending.oldest(0), Some(3));
        drop(three);
        assert_eq!(pending.oldest(0), Some(5));
        drop(five);
        assert_eq!(pending.oldest(0), Some(5), "another one is there");
        drop(also_five);
        assert_eq!(pending.oldest(0), None);
    }

    #[test]
    fn chunks_that_are_named_wait_for_that_to_be_durable() {
        let pending = PendingChunks::default();
        pending.enter(4).named(8);
        pending.enter(2).named(7);
        let nine = pending.enter(9);
        assert_eq!(pending.oldest(6), Some(2));
        assert_eq!(pending.oldest(7), Some(4));
        assert_eq!(pending.oldest(8), Some(9));
        nine.named(9);
        assert_eq!((pending.oldest(8), pending.oldest(9)), (Some(9), None));
    }
}
