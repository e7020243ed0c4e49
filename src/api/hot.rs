//! Large pages that are read again and again, kept as they are sent: out of memory that the kernel sends without a copy.
//!
//! A page is the same bytes for ever: its key names the lineage, both ends and the view, and what an answer says besides is
//! written anew each time. A page is kept when it is read again while it is still remembered, and no more is remembered than
//! could be kept, so that a scan of more than that does not turn the memory over. The oldest pages go first. The last page of a
//! stream that may still grow is not kept: with the next append it would be another one.
//!
//! What is kept is bounded; what sockets of slow readers still refer to after it has gone is not, as little as other answers under
//! way are.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::http::lent::{HUGE_BYTES, Lent, Region};
use crate::limits::HOT_PAGE_BYTES_MIN;
use crate::shard::table::StreamId;

use super::read::{Page, View};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    stream: StreamId,
    from: u64,
    to: u64,
    view: View,
}

/// How often a page is read.
#[derive(Debug)]
pub enum Heat {
    /// Rarely, or it is none of those that may be kept.
    Cold,
    /// Again: to be kept.
    Warm,
    /// It was kept: its body.
    Hot(Lent),
}

/// Pages whose bodies lie in one region.
struct Kept {
    region: Rc<Region>,
    keys: Vec<Key>,
}

/// The pages of one shard.
pub struct HotPages {
    bytes_max: usize,
    /// Cold pages that were read, the latest last, and the bytes that keeping them would take.
    remembered: VecDeque<(Key, usize)>,
    remembered_bytes: usize,
    pages: HashMap<Key, Lent>,
    /// Where they lie, the oldest first.
    kept: VecDeque<Kept>,
    kept_bytes: usize,
}

impl HotPages {
    /// Keeps at most `bytes_max` bytes, in whole huge pages: nothing if that is less than one.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            remembered: VecDeque::new(),
            remembered_bytes: 0,
            pages: HashMap::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// A page is read: how hot is it?
    pub fn heat(&mut self, page: &Page) -> Heat {
        let Some(key) = self.key(page) else { return Heat::Cold };
        if let Some(body) = self.pages.get(&key) {
            return Heat::Hot(body.clone());
        }
        if self.remembered.iter().any(|(remembered, _)| *remembered == key) {
            return Heat::Warm;
        }
        let kept_bytes = kept_bytes(page.body_bytes() as usize);
        self.remembered.push_back((key, kept_bytes));
        self.remembered_bytes += kept_bytes;
        while self.remembered_bytes > self.bytes_max {
            let (_, forgotten_bytes) = self.remembered.pop_front().expect("the bytes belong to pages");
            self.remembered_bytes -= forgotten_bytes;
        }
        Heat::Cold
    }

    /// Keeps the body of a warm page.
    pub fn keep(&mut self, page: &Page, body: &[u8]) {
        assert_eq!(body.len() as u64, page.body_bytes(), "the body of {page:?}");
        let Some(key) = self.key(page).filter(|key| !self.pages.contains_key(key)) else { return };
        let in_last = self.kept.back_mut().and_then(|kept| kept.keep(key, body));
        let Some(lent) = in_last.or_else(|| self.keep_in_new(key, body)) else { return };
        self.pages.insert(key, lent);
        if let Some(at) = self.remembered.iter().position(|(remembered, _)| *remembered == key) {
            let (_, forgotten_bytes) = self.remembered.remove(at).expect("it was found there");
            self.remembered_bytes -= forgotten_bytes;
        }
    }

    fn keep_in_new(&mut self, key: Key, body: &[u8]) -> Option<Lent> {
        let region = Region::new(body.len())?;
        self.kept_bytes += region.capacity();
        while self.kept_bytes > self.bytes_max {
            let oldest = self.kept.pop_front().expect("a page that may be kept fits alone");
            self.kept_bytes -= oldest.region.capacity();
            for key in &oldest.keys {
                self.pages.remove(key);
            }
        }
        let mut kept = Kept { region, keys: Vec::new() };
        let lent = kept.keep(key, body);
        self.kept.push_back(kept);
        lent
    }

    /// The key of a page that may be kept.
    fn key(&self, page: &Page) -> Option<Key> {
        let bytes = usize::try_from(page.body_bytes()).ok()?;
        let fits = bytes.checked_next_multiple_of(HUGE_BYTES)? <= self.bytes_max;
        let (from, to, view) = (page.wanted.from.bytes, page.to.bytes, page.wanted.view);
        let is_lasting = page.closed || !page.at_tail;
        let may_be = fits && is_lasting && bytes >= HOT_PAGE_BYTES_MIN && view != View::Envelopes;
        may_be.then_some(Key { stream: page.id, from, to, view })
    }
}

/// The part of a region that a body takes, with what is left over when no other one like it fits.
fn kept_bytes(body_bytes: usize) -> usize {
    let capacity = body_bytes.next_multiple_of(HUGE_BYTES);
    capacity / (capacity / body_bytes)
}

impl Kept {
    fn keep(&mut self, key: Key, body: &[u8]) -> Option<Lent> {
        let lent = self.region.keep(body)?;
        self.keys.push(key);
        Some(lent)
    }
}
