//! Read buffers and the pool they come from. An idle connection holds none.
//!
//! A buffer's bytes are initialised once, when it is made; reuse costs nothing. Invariant: `start <= end <= len`.

use std::cell::RefCell;

/// Bytes of an ordinary buffer: several request heads, or one small append.
pub const SMALL_BYTES: usize = 16 * 1024;
/// Largest buffer that goes back to the pool.
const POOLED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Buffers kept of each kind.
const SMALL_KEPT: usize = 1024;
const LARGE_KEPT: usize = 32;

/// Bytes read from a socket and not yet consumed.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// A buffer that holds `unread` (bytes that came with a handed-over connection).
    pub fn with_unread(unread: Vec<u8>) -> Self {
        let end = unread.len();
        Self { bytes: unread, start: 0, end }
    }

    /// Bytes not yet consumed.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether everything is consumed.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether it owns memory.
    pub fn has_memory(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Marks `count` bytes as consumed.
    pub fn consume(&mut self, count: usize) {
        assert!(self.start + count <= self.end, "consume {count} of {}", self.end - self.start);
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Removes `count` bytes that begin `at` bytes after the first unread one, keeping those before.
    pub fn cut(&mut self, at: usize, count: usize) {
        let from = self.start + at;
        assert!(from + count <= self.end, "cut {count} at {at} of {}", self.end - self.start);
        self.bytes.copy_within(from + count..self.end, from);
        self.end -= count;
    }

    /// Where the next bytes go; empty when the buffer is full.
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// `count` bytes were put into [`Self::spare`].
    pub fn filled(&mut self, count: usize) {
        assert!(self.end + count <= self.bytes.len(), "filled {count} past the end");
        self.end += count;
    }

    fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }
}

/// The buffers of one shard that are not in use.
#[derive(Debug, Default)]
pub struct Pool {
    small: RefCell<Vec<ReadBuffer>>,
    large: RefCell<Vec<ReadBuffer>>,
}

impl Pool {
    /// A small buffer.
    pub fn take(&self) -> ReadBuffer {
        let pooled = self.small.borrow_mut().pop();
        pooled.unwrap_or_else(|| ReadBuffer { bytes: vec![0; SMALL_BYTES], start: 0, end: 0 })
    }

    /// Makes room for `spare` more bytes after the unread ones, moving them to the front, or to a larger buffer.
    pub fn reserve(&self, buffer: &mut ReadBuffer, spare: usize) {
        if buffer.bytes.len() - buffer.end >= spare {
            return;
        }
        let unread = buffer.end - buffer.start;
        let need = unread + spare;
        if need <= buffer.bytes.len() {
            buffer.bytes.copy_within(buffer.start..buffer.end, 0);
            buffer.start = 0;
            buffer.end = unread;
            return;
        }
        let mut larger = self.take_large(need);
        larger.bytes[..unread].copy_from_slice(buffer.unread());
        larger.end = unread;
        self.put(std::mem::replace(buffer, larger));
    }

    fn take_large(&self, need: usize) -> ReadBuffer {
        if need <= SMALL_BYTES {
            return self.take();
        }
        let mut large = self.large.borrow_mut();
        match large.iter().rposition(|buffer| buffer.bytes.len() >= need) {
            Some(index) => large.swap_remove(index),
            None => ReadBuffer { bytes: vec![0; need.next_power_of_two()], start: 0, end: 0 },
        }
    }

    /// Takes a buffer back; its unread bytes are lost.
    pub fn put(&self, mut buffer: ReadBuffer) {
        buffer.clear();
        let (pool, kept) = match buffer.bytes.len() {
            SMALL_BYTES => (&self.small, SMALL_KEPT),
            size if size > SMALL_BYTES && size <= POOLED_BYTES_MAX => (&self.large, LARGE_KEPT),
            _ => return,
        };
        let mut pool = pool.borrow_mut();
        if pool.len() < kept {
            pool.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut ReadBuffer, bytes: &[u8]) {
        buffer.spare()[..bytes.len()].copy_from_slice(bytes);
        buffer.filled(bytes.len());
    }

    #[test]
    fn unread_bytes_survive_consuming_moving_and_growing() {
        let pool = Pool::default();
        let mut buffer = pool.take();
        fill(&mut buffer, b"0123456789");
        buffer.consume(4);
        assert_eq!(buffer.unread(), b"456789");
        pool.reserve(&mut buffer, SMALL_BYTES - 6);
        assert_eq!(
            (buffer.unread(), buffer.bytes.len()),
            (&b"456789"[..], SMALL_BYTES),
            "moved to the front"
        );
        pool.reserve(&mut buffer, SMALL_BYTES);
        assert_eq!((buffer.unread(), buffer.bytes.len()), (&b"456789"[..], 2 * SMALL_BYTES), "grown");
        assert_eq!(pool.small.borrow().len(), 1, "the small one went back");
        buffer.cut(2, 2);
        assert_eq!(buffer.unread(), b"4589");
        buffer.consume(4);
        assert!(buffer.is_empty());
        pool.put(buffer);
        assert_eq!(pool.large.borrow().len(), 1);
    }
}
