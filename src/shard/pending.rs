//! Chunk entries of operations under way: bytes of the log that no stream knows of yet, and that count all the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The operations of a shard whose chunk entries no entry names yet, by the segment that holds their first one. Later ones
/// lie in that segment or in later ones: a log goes on in segments of growing index.
#[derive(Debug, Default)]
pub struct PendingChunks(Rc<RefCell<BTreeMap<u32, usize>>>);

impl PendingChunks {
    /// Enters an operation that has just staged its first chunk entry, in this segment (`Place::segment`).
    pub fn enter(&self, segment: u32) -> PendingChunk {
        *self.0.borrow_mut().entry(segment).or_default() += 1;
        PendingChunk { all: self.0.clone(), segment }
    }

    /// The lowest segment entered.
    pub fn oldest(&self) -> Option<u32> {
        self.0.borrow().keys().next().copied()
    }
}

/// An operation's place in [`PendingChunks`], until dropped: on whatever path that is.
#[derive(Debug)]
pub struct PendingChunk {
    all: Rc<RefCell<BTreeMap<u32, usize>>>,
    segment: u32,
}

impl Drop for PendingChunk {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        let count = all.get_mut(&self.segment).expect("entered before");
        *count -= 1;
        if *count == 0 {
            all.remove(&self.segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_lowest_that_is_still_there() {
        let pending = PendingChunks::default();
        assert_eq!(pending.oldest(), None);
        let (five, also_five, three) = (pending.enter(5), pending.enter(5), pending.enter(3));
        assert_eq!(pending.oldest(), Some(3));
        drop(three);
        assert_eq!(pending.oldest(), Some(5));
        drop(five);
        assert_eq!(pending.oldest(), Some(5), "another one is there");
        drop(also_five);
        assert_eq!(pending.oldest(), None);
    }
}
