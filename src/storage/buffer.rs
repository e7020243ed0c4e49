//! Block-aligned memory for commits: written as a prefix, kept whole, reused.
//!
//! A fresh megabyte costs hundreds of page faults, so commit buffers circulate: open commit -> write in flight -> cache ->
//! pool -> open commit. The executor's buffer type writes its whole length and can only shrink, so a prefix is written
//! through a shortened alias (see `AlignedBuffer::prefix`); the buffer itself keeps its capacity.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;

use glommio::io::DmaBuffer;

use crate::limits::{BLOCK_BYTES, COMMIT_BYTES_MAX};

/// Memory that direct I/O accepts. Its content is whatever was there before: whoever fills it zeroes the padding.
pub struct AlignedBuffer {
    dma: DmaBuffer,
}

impl AlignedBuffer {
    /// Allocates at least `bytes` bytes, a whole number of blocks.
    pub fn new(bytes: usize) -> AlignedBuffer {
        let capacity = bytes.max(1).next_multiple_of(BLOCK_BYTES);
        AlignedBuffer { dma: glommio::allocate_dma_buffer_global(capacity) }
    }

    /// Bytes that it holds.
    pub fn capacity(&self) -> usize {
        self.dma.len()
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        self.dma.as_bytes()
    }

    /// The content, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.dma.as_bytes_mut()
    }

    /// The first `len` bytes in the form that the executor writes. `buffer` stays allocated as long as the result lives,
    /// and for ever if the result is dropped without [`Prefix::release`] (the kernel may still be reading it then).
    pub(super) fn prefix(buffer: &Rc<AlignedBuffer>, len: usize) -> Prefix {
        assert!(len <= buffer.capacity(), "a prefix of {len} of {} bytes", buffer.capacity());
        let owner = ManuallyDrop::new(Rc::clone(buffer));
        // SAFETY: a bitwise copy of an owning value is sound as long as only one of the two is ever dropped or written
        // through. The copy is wrapped so that it is never dropped (`Prefix::release` forgets it, everything else leaks
        // it), it is only read from (the kernel reads, nobody calls `as_bytes_mut`), and the original cannot be freed
        // or changed before `release`, because `owner` keeps a second reference to it and `Rc` then hands out only
        // shared access. Reason: without it every commit of a new size would need fresh memory; at 1 MiB that costs
        // more in page faults than its checksum does.
        let mut alias = unsafe { std::ptr::read(&owner.dma) };
        alias.trim_to_size(len);
        Prefix { owner, alias: ManuallyDrop::new(Rc::new(alias)) }
    }
}

/// The shortened alias of a buffer while its prefix is being written.
pub(super) struct Prefix {
    owner: ManuallyDrop<Rc<AlignedBuffer>>,
    alias: ManuallyDrop<Rc<DmaBuffer>>,
}

impl Prefix {
    /// What to give to the executor.
    pub(super) fn dma(&self) -> Rc<DmaBuffer> {
        Rc::clone(&self.alias)
    }

    /// The write has completed: nothing reads through the alias any more.
    pub(super) fn release(self) {
        match Rc::try_unwrap(ManuallyDrop::into_inner(self.alias)) {
            Ok(alias) => std::mem::forget(alias),
            Err(shared) => std::mem::forget(shared),
        }
        drop(ManuallyDrop::into_inner(self.owner));
    }
}

/// Capacities that buffers come in.
const CAPACITIES: [usize; 4] = [64 * 1024, 256 * 1024, 1024 * 1024, COMMIT_BYTES_MAX];
/// Free buffers kept of each capacity: the open commit, those that wait, the one in flight.
const FREE_PER_CAPACITY: usize = 4;

/// Free commit buffers by capacity. Cloned handles share one pool.
#[derive(Clone, Default)]
pub struct Pool {
    shared: Rc<PoolState>,
}

#[derive(Default)]
struct PoolState {
    free: [RefCell<Vec<AlignedBuffer>>; CAPACITIES.len()],
    /// Bytes that recent commits needed: follows growth at once and forgets it slowly.
    recent_bytes: Cell<usize>,
}

impl Pool {
    /// A buffer of at least `bytes`, and as large as recent commits suggest.
    pub fn take(&self, bytes: usize) -> AlignedBuffer {
        let wanted = bytes.max(self.shared.recent_bytes.get().min(COMMIT_BYTES_MAX));
        let class = class_of(wanted);
        let pooled = class.and_then(|class| self.shared.free[class].borrow_mut().pop());
        pooled.unwrap_or_else(|| AlignedBuffer::new(class.map_or(wanted, |class| CAPACITIES[class])))
    }

    /// Whether a pooled buffer would be at least half full with `bytes`.
    pub fn fits_well(bytes: usize) -> bool {
        class_of(bytes).is_some_and(|class| bytes * 2 >= CAPACITIES[class])
    }

    /// A buffer of at least `bytes`, and no larger than needed.
    pub fn take_fitting(&self, bytes: usize) -> AlignedBuffer {
        let pooled = class_of(bytes).and_then(|class| self.shared.free[class].borrow_mut().pop());
        pooled.unwrap_or_else(|| AlignedBuffer::new(Self::grown(bytes)))
    }

    /// The capacity to grow to when `bytes` no longer fit.
    pub fn grown(bytes: usize) -> usize {
        class_of(bytes).map_or(bytes, |class| CAPACITIES[class])
    }

    /// Gives a buffer back.
    pub fn give(&self, buffer: AlignedBuffer) {
        if let Some(class) = CAPACITIES.iter().position(|&capacity| capacity == buffer.capacity()) {
            let mut free = self.shared.free[class].borrow_mut();
            if free.len() < FREE_PER_CAPACITY {
                free.push(buffer);
            }
        }
    }

    /// Learns how large a commit was.
    pub fn observe(&self, bytes: usize) {
        let recent = self.shared.recent_bytes.get();
        self.shared.recent_bytes.set(bytes.max(recent - recent / 16));
    }
}

fn class_of(bytes: usize) -> Option<usize> {
    CAPACITIES.iter().position(|&capacity| capacity >= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_leaves_its_buffer_whole() {
        let mut buffer = AlignedBuffer::new(3 * BLOCK_BYTES);
        buffer.bytes_mut().fill(7);
        let buffer = Rc::new(buffer);
        let prefix = AlignedBuffer::prefix(&buffer, BLOCK_BYTES);
        assert_eq!(prefix.dma().as_bytes(), &[7; BLOCK_BYTES]);
        assert_eq!(Rc::strong_count(&buffer), 2, "the buffer outlives its prefix");
        prefix.release();
        let mut buffer = Rc::try_unwrap(buffer).ok().expect("released");
        assert_eq!(buffer.capacity(), 3 * BLOCK_BYTES);
        buffer.bytes_mut().fill(8);
    }

    #[test]
    fn a_dropped_prefix_keeps_the_memory() {
        let buffer = Rc::new(AlignedBuffer::new(BLOCK_BYTES));
        {
            let _prefix = AlignedBuffer::prefix(&buffer, BLOCK_BYTES);
        }
        assert_eq!(Rc::strong_count(&buffer), 2, "the kernel may still read it");
    }

    #[test]
    fn the_pool_reuses_and_adapts() {
        let pool = Pool::default();
        let first = pool.take(10);
        assert_eq!(first.capacity(), 64 * 1024);
        let address = first.bytes().as_ptr();
        pool.give(first);
        assert_eq!(pool.take(10).bytes().as_ptr(), address, "the same memory again");
        pool.observe(300 * 1024);
        assert_eq!(pool.take(10).capacity(), 1024 * 1024, "as large as recent commits");
        for _ in 0..200 {
            pool.observe(4096);
        }
        assert_eq!(pool.take(10).capacity(), 64 * 1024, "and small again");
        pool.observe(300 * 1024);
        assert_eq!(
            pool.take_fitting(65 * 1024).capacity(),
            256 * 1024,
            "no larger than needed, whatever was before"
        );
        let table = [(32 * 1024, true), (32 * 1024 - 1, false), (65 * 1024, false), (128 * 1024, true)];
        for (bytes, well) in table {
            assert_eq!(Pool::fits_well(bytes), well, "{bytes}");
        }
    }
}
