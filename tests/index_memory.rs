//! What the in-memory indexes cost by the allocator's count, not by their own: `memory_bytes` must not flatter.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use thalweg::storage::event::{Lengths, Place};
use thalweg::storage::extents::ExtentIndex;
use thalweg::storage::index::RecordIndex;
use thalweg::storage::producers::Producers;

/// Counts the bytes that the calling thread holds: tests run on a thread each.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn held_bytes() -> isize {
    HELD_BYTES.get()
}

fn count(bytes: isize) {
    // While a thread ends its counter may be gone; nobody reads it any more.
    let _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call goes to the system allocator unchanged; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise about pointer and layout is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Fills a value and requires that it reports exactly what it holds; returns that.
fn held_by<T>(value: T, fill: impl FnOnce(&mut T), memory_bytes: impl Fn(&T) -> usize) -> usize {
    let mut value = value;
    let before = held_bytes();
    fill(&mut value);
    let heap_bytes = held_bytes() - before;
    let reported = memory_bytes(&value);
    assert_eq!(reported, size_of::<T>() + heap_bytes as usize, "reported against held");
    drop(value);
    assert_eq!(held_bytes(), before, "everything is given back");
    reported
}

/// A reproducible number below `bound`.
fn scattered(n: u64, bound: u64) -> u64 {
    (n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % bound
}

#[test]
fn records() {
    for (count, spread) in [(0, 1), (1, 1), (2, 64), (40, 64), (500, 128), (20_000, 256), (1_000_000, 256)] {
        let fill = |index: &mut RecordIndex| {
            (0..count).for_each(|n| index.push((128 + scattered(n, spread)) as u32));
            if count > 1_000 {
                index.push_many(Lengths::Uniform { len: 256, count: 512 });
            }
        };
        let bytes = held_by(RecordIndex::new(), fill, RecordIndex::memory_bytes);
        assert!(count < 20_000 || bytes as f64 <= 2.5 * count as f64, "{bytes} bytes for {count} records");
        assert!(count > 40 || bytes <= 256, "{bytes} bytes for {count} records");
    }
}

#[test]
fn extents() {
    for count in [0_u64, 1, 2, 40, 2_000, 300_000] {
        let fill = |index: &mut ExtentIndex| {
            for n in 0..count {
                let (len, at) = (128 + scattered(n, 256), n * 64 * 320);
                let place = Place { segment: (at >> 28) as u32, position: (at % (1 << 28)) as u32, back: 48 };
                index.push(index.end(), len, place);
            }
        };
        let bytes = held_by(ExtentIndex::new(), fill, ExtentIndex::memory_bytes);
        assert!(count < 2_000 || bytes as f64 <= 8.0 * count as f64, "{bytes} bytes for {count} extents");
        assert!(count > 1 || bytes == size_of::<ExtentIndex>(), "one extent needs no heap: {bytes}");
    }
}

#[test]
fn producers() {
    for (writers, appends) in [(0_u64, 0), (1, 1), (1, 100_000), (8, 10_000), (1_000, 50)] {
        let ids: Vec<String> = (0..writers).map(|writer| format!("writer-{writer}")).collect();
        let fill = |producers: &mut Producers| {
            for seq in 0..appends {
                for (writer, id) in (0..).zip(&ids) {
                    producers.record(id.as_bytes(), 0, seq, seq * writers + writer, 1);
                }
            }
        };
        let bytes = held_by(Producers::new(), fill, Producers::memory_bytes);
        assert!(writers != 1 || bytes <= 256, "{bytes} bytes for a lone producer");
        assert!(
            writers != 8 || bytes as u64 <= 3 * writers * appends,
            "{bytes} bytes for 8 interleaved ones"
        );
    }
}
