//! The streams of a bucket in the byte order of their ids, as slots of the stream table.
//!
//! An order holds four bytes a stream and no key: it compares by the keys in the table, which every call gets as `id_of`.
//! So a stream must be in the table as long as it is in an order.
//!
//! ```text
//!  chunks  [from ""            ][from "k"          ][from "user-5"     ]     sorted by `from`
//!  slots    17 3 900 ...         44 ...              8 2 71 ...              sorted by id; ids >= from, < the next from
//! ```

use std::ops::Bound;

/// Slots in a chunk, at most: an insert moves half as many, and splits one into two.
const CHUNK_SLOTS_MAX: usize = 512;
/// Slots in a chunk below which it is joined to its neighbour, if both together fill at most half a chunk.
const CHUNK_SLOTS_FEW: usize = CHUNK_SLOTS_MAX / 4;

#[derive(Debug)]
struct Chunk {
    /// No id in the chunk is below it, every id in the chunks before is.
    from: Box<[u8]>,
    slots: Vec<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Order {
    chunks: Vec<Chunk>,
    len: usize,
}

/// Slots of an order, from somewhere on.
pub struct Slots<'o> {
    slots: std::slice::Iter<'o, u32>,
    chunks: std::slice::Iter<'o, Chunk>,
}

impl Iterator for Slots<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(slot) = self.slots.next() {
                return Some(*slot);
            }
            self.slots = self.chunks.next()?.slots.iter();
        }
    }
}

impl Order {
    /// Number of streams.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the stream `id` at `slot`. Panics if the id is there already.
    pub fn insert<'t>(&mut self, id: &[u8], slot: u32, id_of: impl Fn(u32) -> &'t [u8]) {
        self.len += 1;
        if self.chunks.is_empty() {
            // Most buckets never have a second chunk.
            self.chunks.reserve_exact(1);
            self.chunks.push(Chunk { from: Box::default(), slots: vec![slot] });
            return;
        }
        let index = self.chunk_of(id);
        let slots = &mut self.chunks[index].slots;
        let at = match slots.binary_search_by(|other| id_of(*other).cmp(id)) {
            Ok(at) => panic!("stream {} is listed at slots {} and {slot}", id.escape_ascii(), slots[at]),
            Err(at) => at,
        };
        if slots.len() < CHUNK_SLOTS_MAX {
            slots.insert(at, slot);
        } else if at == slots.len() {
            // Ids that come in order fill their chunks.
            self.chunks.insert(index + 1, Chunk { from: id.into(), slots: vec![slot] });
        } else {
            let mut upper = slots.split_off(CHUNK_SLOTS_MAX / 2);
            match at.checked_sub(slots.len()) {
                Some(at) => upper.insert(at, slot),
                None => slots.insert(at, slot),
            }
            let from = if upper[0] == slot { id } else { id_of(upper[0]) };
            self.chunks.insert(index + 1, Chunk { from: from.into(), slots: upper });
        }
    }

    /// Removes the stream `id`, which is at `slot`; it is still in the table. Panics if it is not here.
    pub fn remove<'t>(&mut self, id: &[u8], slot: u32, id_of: impl Fn(u32) -> &'t [u8]) {
        assert!(self.len > 0, "stream {} leaves an order without streams", id.escape_ascii());
        let index = self.chunk_of(id);
        let slots = &mut self.chunks[index].slots;
        let at = slots.binary_search_by(|other| id_of(*other).cmp(id));
        let at = at.unwrap_or_else(|_| panic!("stream {} leaves and is not listed", id.escape_ascii()));
        assert_eq!(slots.remove(at), slot, "stream {} is listed at another slot", id.escape_ascii());
        self.len -= 1;
        if slots.len() < CHUNK_SLOTS_FEW {
            self.join(index);
        }
    }

    /// Joins a chunk that has become small to the one before it, or gives back memory that it does not need.
    fn join(&mut self, index: usize) {
        if self.len == 0 {
            self.chunks = Vec::new();
            return;
        }
        // The first chunk has no chunk before it: there the second one is joined to it.
        let index = index.max(1);
        let fits = self.chunks.get(index).is_some_and(|upper| {
            let (few, many) = (upper.slots.len(), self.chunks[index - 1].slots.len());
            few + many <= CHUNK_SLOTS_MAX / 2 || few == 0 || many == 0
        });
        if fits {
            let upper = self.chunks.remove(index);
            self.chunks[index - 1].slots.extend(upper.slots);
            if self.chunks.len() < self.chunks.capacity() / 4 {
                self.chunks.shrink_to(2 * self.chunks.len());
            }
        }
        for chunk in self.chunks[index - 1..].iter_mut().take(2) {
            if chunk.slots.len() < chunk.slots.capacity() / 4 {
                chunk.slots.shrink_to(2 * chunk.slots.len());
            }
        }
    }

    /// The slots of the streams from `from` on, in the order of their ids.
    pub fn from<'t>(&self, from: Bound<&[u8]>, id_of: impl Fn(u32) -> &'t [u8]) -> Slots<'_> {
        let (Bound::Included(id) | Bound::Excluded(id)) = from else {
            return Slots { slots: [].iter(), chunks: self.chunks.iter() };
        };
        if self.chunks.is_empty() {
            return Slots { slots: [].iter(), chunks: [].iter() };
        }
        let index = self.chunk_of(id);
        let slots = &self.chunks[index].slots;
        let is_before = |slot: &u32| match from {
            Bound::Excluded(id) => id_of(*slot) <= id,
            _ => id_of(*slot) < id,
        };
        let at = slots.partition_point(is_before);
        Slots { slots: slots[at..].iter(), chunks: self.chunks[index + 1..].iter() }
    }

    /// The chunk that `id` belongs to. There is one.
    fn chunk_of(&self, id: &[u8]) -> usize {
        let after = self.chunks.partition_point(|chunk| *chunk.from <= *id);
        after.checked_sub(1).expect("the first chunk begins with the empty id")
    }

    #[cfg(test)]
    fn check<'t>(&self, id_of: impl Fn(u32) -> &'t [u8]) {
        assert_eq!(self.len, self.chunks.iter().map(|chunk| chunk.slots.len()).sum::<usize>());
        assert!(self.chunks.first().is_none_or(|chunk| chunk.from.is_empty()));
        let mut before: Option<&[u8]> = None;
        for (index, chunk) in self.chunks.iter().enumerate() {
            assert!(!chunk.slots.is_empty() || index == 0, "chunk {index} is empty");
            assert!(chunk.slots.len() <= CHUNK_SLOTS_MAX);
            let next = self.chunks.get(index + 1).map(|next| &*next.from);
            for slot in &chunk.slots {
                let id = id_of(*slot);
                assert!(before.is_none_or(|before| before < id), "ids grow");
                assert!(*chunk.from <= *id && next.is_none_or(|next| id < next), "an id is in its chunk");
                before = Some(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Inserts and removes against a map; the share of inserts changes, so that orders grow and shrink.
    fn compare(choices: &[(u8, u32)], growth: &[u8], spread: u32) {
        let ids: Vec<Vec<u8>> =
            (0..spread).map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec()).collect();
        let id_of = |slot: u32| ids[slot as usize].as_slice();
        let (mut order, mut model) = (Order::default(), BTreeMap::new());
        for (step, (choice, slot)) in choices.iter().enumerate() {
            let slot = slot % spread;
            let id = id_of(slot);
            let inserts = *choice < growth[step * growth.len() / choices.len()];
            match (inserts, model.contains_key(id)) {
                (true, false) => {
                    order.insert(id, slot, id_of);
                    model.insert(id, slot);
                }
                (false, true) => {
                    order.remove(id, slot, id_of);
                    model.remove(id);
                }
                _ => {}
            }
        }
        order.check(id_of);
        assert_eq!(order.len(), model.len());
        assert_eq!(order.is_empty(), model.is_empty());
        assert!(order.from(Bound::Unbounded, id_of).eq(model.values().copied()));
        for from in ids.iter().step_by(37) {
            for bound in [Bound::Included(&from[..]), Bound::Excluded(&from[..])] {
                let expected = model.range::<[u8], _>((bound, Bound::Unbounded)).map(|(_, slot)| *slot);
                assert!(order.from(bound, id_of).take(3).eq(expected.take(3)), "from {bound:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn an_order_is_a_sorted_map(
            choices in proptest::collection::vec((0u8..100, any::<u32>()), 1..20_000),
            growth in proptest::collection::vec(0u8..=100, 1..4),
            spread in 1u32..6000,
        ) {
            compare(&choices, &growth, spread);
        }
    }

    #[test]
    fn ids_that_come_in_order_fill_their_chunks_and_all_memory_comes_back() {
        let ids: Vec<[u8; 4]> = (0..100_000u32).map(u32::to_be_bytes).collect();
        let id_of = |slot: u32| ids[slot as usize].as_slice();
        let mut order = Order::default();
        for (slot, id) in (0..).zip(&ids) {
            order.insert(id, slot, id_of);
        }
        order.check(id_of);
        assert_eq!(order.chunks.len(), ids.len().div_ceil(CHUNK_SLOTS_MAX));
        // One of a hundred stays.
        for (slot, id) in (0..).zip(&ids).filter(|(slot, _)| slot % 100 != 0) {
            order.remove(id, slot, id_of);
        }
        order.check(id_of);
        assert_eq!(order.len(), ids.len() / 100);
        assert!(order.chunks.len() <= order.len() / CHUNK_SLOTS_FEW + 2, "{} chunks", order.chunks.len());
        let held: usize = order.chunks.iter().map(|chunk| chunk.slots.capacity()).sum();
        assert!(held <= 6 * order.len(), "{held} places for {} streams", order.len());
        for (slot, id) in (0..).zip(&ids).step_by(100) {
            order.remove(id, slot, id_of);
        }
        assert_eq!((order.len(), order.chunks.capacity()), (0, 0));
    }

    #[test]
    #[should_panic(expected = "is listed at slots 0 and 1")]
    fn an_id_is_listed_once() {
        let mut order = Order::default();
        order.insert(b"a", 0, |_| b"a");
        order.insert(b"a", 1, |_| b"a");
    }
}
