//! Recent commits in memory, so that live and recent reads need no disk.
//!
//! Commits enter in log order and leave in it: oldest first. What counts against the limit is the memory that a commit
//! holds, not the bytes it uses; a commit that would waste more than half of its buffer is copied to memory of its own
//! size, or to a smaller buffer if it is large, and the buffer goes back to the pool at once.

use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;

use crate::storage::buffer::{AlignedBuffer, Pool};
use crate::storage::event::Place;

enum Memory {
    Buffer(AlignedBuffer),
    Exact(Box<[u8]>),
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Buffer(buffer) => buffer.bytes(),
            Memory::Exact(bytes) => bytes,
        }
    }

    /// Bytes held.
    fn held_bytes(&self) -> usize {
        match self {
            Memory::Buffer(buffer) => buffer.capacity(),
            Memory::Exact(bytes) => bytes.len(),
        }
    }
}

struct CachedCommit {
    segment: u32,
    position: u32,
    len: u32,
    memory: Rc<Memory>,
}

/// Bytes of a cached commit. They keep its memory alive: copy them out, do not hold them across a wait for a client.
pub struct CachedBytes {
    memory: Rc<Memory>,
    start: u32,
    len: u32,
}

impl Deref for CachedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.start as usize..][..self.len as usize]
    }
}

/// The cache of one log.
pub struct Cache {
    /// Sorted by (segment, position).
    commits: VecDeque<CachedCommit>,
    held_bytes: usize,
    held_bytes_max: usize,
    pool: Pool,
}

impl Cache {
    /// A cache that holds at most `held_bytes_max` bytes; 0 for none. Buffers that leave it go to `pool`.
    pub fn new(held_bytes_max: usize, pool: Pool) -> Cache {
        Cache { commits: VecDeque::new(), held_bytes: 0, held_bytes_max, pool }
    }

    /// Adds a commit of `len` bytes that begins at `position` of `segment`: after everything that is already there.
    pub fn insert(&mut self, segment: u32, position: u32, len: usize, buffer: AlignedBuffer) {
        assert!(len <= buffer.capacity(), "{len} bytes in a buffer of {}", buffer.capacity());
        if let Some(last) = self.commits.back() {
            let after = (last.segment, last.position.saturating_add(last.len)) <= (segment, position);
            assert!(after, "commit at {segment}:{position} comes before {}:{}", last.segment, last.position);
        }
        let wasteful = len * 2 < buffer.capacity();
        if self.held_bytes_max == 0 || (!wasteful && buffer.capacity() > self.held_bytes_max) {
            return self.pool.give(buffer);
        }
        let memory = if wasteful {
            let copy = self.copy(&buffer.bytes()[..len]);
            self.pool.give(buffer);
            copy
        } else {
            Memory::Buffer(buffer)
        };
        self.held_bytes += memory.held_bytes();
        // A commit is at most a few MiB, so its length fits.
        self.commits.push_back(CachedCommit { segment, position, len: len as u32, memory: Rc::new(memory) });
        while self.held_bytes > self.held_bytes_max {
            self.evict();
        }
    }

    /// A copy of a commit in less memory. That of large ones comes from the pool: fresh pages cost more than the copy does.
    fn copy(&self, commit: &[u8]) -> Memory {
        if Pool::fits_well(commit.len()) {
            let mut buffer = self.pool.take_fitting(commit.len());
            buffer.bytes_mut()[..commit.len()].copy_from_slice(commit);
            return Memory::Buffer(buffer);
        }
        Memory::Exact(commit.into())
    }

    fn evict(&mut self) {
        let Some(oldest) = self.commits.pop_front() else { return };
        self.held_bytes -= oldest.memory.held_bytes();
        // A reader that still looks at it frees it instead.
        if let Ok(Memory::Buffer(buffer)) = Rc::try_unwrap(oldest.memory) {
            self.pool.give(buffer);
        }
    }

    /// Bytes `from .. from + len` of the payload at `place`, if its commit is here.
    pub fn get(&self, place: Place, from: u32, len: u32) -> Option<CachedBytes> {
        let start = place.position.checked_add(from)?;
        let after = self
            .commits
            .partition_point(|commit| (commit.segment, commit.position) <= (place.segment, place.position));
        let commit = &self.commits[after.checked_sub(1)?];
        let end = start.checked_add(len)?;
        if commit.segment != place.segment || end > commit.position + commit.len {
            return None;
        }
        Some(CachedBytes { memory: Rc::clone(&commit.memory), start: start - commit.position, len })
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u32, position: u32) -> Place {
        Place { segment, position, back: 0 }
    }

    fn buffer(capacity: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::new(capacity);
        for (index, byte) in buffer.bytes_mut().iter_mut().enumerate() {
            *byte = (index / 100) as u8;
        }
        buffer
    }

    #[test]
    fn bytes_are_found_by_place() {
        let mut cache = Cache::new(1 << 20, Pool::default());
        cache.insert(0, 4096, 4096, buffer(4096));
        cache.insert(0, 8192, 300, buffer(64 * 1024));
        cache.insert(2, 4096, 8192, buffer(8192));
        assert_eq!(cache.held_bytes(), 4096 + 300 + 8192, "the small commit is held in its own size");
        let table = [
            (place(0, 4096), 0, 10, Some(0)),
            (place(0, 4196), 0, 10, Some(1)),
            (place(0, 4196), 100, 10, Some(2)),
            (place(0, 8192), 0, 300, Some(0)),
            (place(0, 8192), 0, 301, None),
            (place(0, 8600), 0, 1, None),
            (place(0, 0), 0, 1, None),
            (place(1, 4096), 0, 1, None),
            (place(2, 4096 + 500), 0, 1, Some(5)),
            (place(2, 4096), 0, 8193, None),
            (place(2, u32::MAX), 2, 1, None),
        ];
        for (place, from, len, first) in table {
            let found = cache.get(place, from, len);
            assert_eq!(found.as_ref().map(|bytes| bytes[0]), first, "{place:?} {from} {len}");
            assert!(found.is_none_or(|bytes| bytes.len() == len as usize));
        }
    }

    #[test]
    fn a_commit_in_a_buffer_that_is_much_too_large_is_copied() {
        let pool = Pool::default();
        let mut cache = Cache::new(1 << 20, pool.clone());
        // Bytes of a commit, and what it then holds.
        for (index, (len, held)) in [(5000, 5000), (200 * 1024, 256 * 1024)].into_iter().enumerate() {
            let before = cache.held_bytes();
            cache.insert(index as u32, 4096, len, buffer(1024 * 1024));
            assert_eq!(cache.held_bytes() - before, held, "{len} bytes");
            let found = cache.get(place(index as u32, 4096), 0, len as u32).expect("cached");
            assert!(found.iter().enumerate().all(|(at, byte)| *byte == (at / 100) as u8));
            assert_eq!(pool.take(1 << 20).capacity(), 1 << 20, "the buffer went back");
        }
    }

    #[test]
    fn the_oldest_commits_go_first_and_their_buffers_are_reused() {
        let pool = Pool::default();
        let mut cache = Cache::new(3 * 64 * 1024, pool.clone());
        let mut addresses = Vec::new();
        for index in 0..4 {
            let buffer = buffer(64 * 1024);
            addresses.push(buffer.bytes().as_ptr());
            cache.insert(0, index * 65536, 65536, buffer);
        }
        assert_eq!(cache.held_bytes(), 3 * 65536);
        assert!(cache.get(place(0, 0), 0, 1).is_none());
        assert!(cache.get(place(0, 65536), 0, 1).is_some());
        assert_eq!(pool.take(1).bytes().as_ptr(), addresses[0]);
        let held = cache.get(place(0, 65536), 0, 65536).expect("cached");
        cache.insert(0, 4 * 65536, 65536, buffer(64 * 1024));
        assert!(cache.get(place(0, 65536), 0, 1).is_none(), "evicted although a reader holds it");
        assert_eq!(held[100], 1, "which the reader does not notice");
    }

    #[test]
    fn a_cache_of_nothing_holds_nothing() {
        for capacity in [0, 4096] {
            let mut cache = Cache::new(capacity, Pool::default());
            cache.insert(0, 4096, 65536, buffer(65536));
            assert_eq!(cache.held_bytes(), 0);
            assert!(cache.get(place(0, 4096), 0, 1).is_none());
        }
    }
}
