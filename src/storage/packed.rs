//! The machine below the three indexes: variable-length items in an append-only sequence of **blocks**.
//!
//! A block starts at a [`Point`] of two coordinates that never decrease from block to block; its bytes belong
//! to the index that uses it. A search finds the block that covers a coordinate; the index then steps through
//! its few items.
//!
//! | index | `x` | `y` | items of a block |
//! |---|---|---|---|
//! | `RecordIndex` | ordinal | offset | up to 64 lengths, or one run of equal lengths |
//! | `ExtentIndex` | offset | (unused) | up to 32 extents |
//! | `Producers` | sequence number | ordinal | up to 32 runs of appends |
//!
//! ```text
//!  sealed chunks, exact size                                  tail, growing
//!  [ first | marks | bytes ] [ first | marks | bytes ] ...    [ first | marks | bytes ..... ]
//!                                                               the open block ^^^^^ is the last one here
//! ```
//!
//! Blocks are grouped in **chunks**: a chunk holds the absolute start of its first block, and a [`Mark`] of
//! 12 bytes (32-bit distances) for each further one. Only the tail grows, so no push ever copies more than
//! one chunk: when the tail is full it is copied to its exact size and its buffers are used again. Chunks get
//! larger as the sequence does, so that the tail's slack stays a small part of the whole and the list of
//! chunks stays short.
//!
//! Invariants: there is always an open block, and it is in the tail; chunks know absolute starts, so whole
//! chunks can be dropped at the front without touching the others ([`Packed::forget_before_x`]).

/// Bytes of the first chunks, marks included: small, so that the slack of a young sequence is.
const CHUNK_BYTES_MIN: usize = 512;
/// Bytes of the largest chunk.
const CHUNK_BYTES_MAX: usize = 16 * 1024;
/// By how much chunks grow with each chunk before them: the tail stays a small part of the whole.
const CHUNK_BYTES_STEP: usize = 64;
/// Bytes that most blocks keep below: a chunk with less room than this is full. Larger blocks overrun it.
const BLOCK_BYTES_USUAL: usize = 192;
/// Bytes of the largest block: what `Mark::at` must still be able to skip.
const BLOCK_BYTES_MAX: usize = 4096;

const _: () = {
    assert!(CHUNK_BYTES_MAX + BLOCK_BYTES_MAX <= u16::MAX as usize, "positions in a chunk are 16 bits");
    assert!(size_of::<Mark>() == 12, "a mark costs 12 bytes");
    assert!(size_of::<Packed>() <= 56, "an idle stream may own three of these");
};

/// Where a block starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// First coordinate.
    pub(super) x: u64,
    /// Second coordinate.
    pub(super) y: u64,
}

/// The start of a block that is not the first of its chunk, as distances from the chunk's.
#[derive(Clone, Copy, Debug)]
struct Mark {
    x: u32,
    y: u32,
    at: u16,
    is_run: bool,
}

/// Blocks whose size is final.
#[derive(Debug)]
struct Chunk {
    first: Point,
    bytes: Box<[u8]>,
    marks: Box<[Mark]>,
    first_is_run: bool,
}

/// What only a sequence of more than one block needs.
#[derive(Debug, Default)]
struct Rest {
    sealed: Vec<Chunk>,
    marks: Vec<Mark>,
}

/// An append-only sequence of blocks.
#[derive(Debug)]
pub(super) struct Packed {
    first: Point,
    bytes: Vec<u8>,
    rest: Option<Box<Rest>>,
    first_is_run: bool,
}

/// Names a block: chunk and block within it. Good until the sequence is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    chunk: usize,
    block: usize,
}

/// One block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// Where it starts.
    pub(super) start: Point,
    /// The flag it was opened (or reopened) with.
    pub(super) is_run: bool,
    /// Its items.
    pub(super) bytes: &'a [u8],
}

/// A chunk, sealed or not.
struct View<'a> {
    first: Point,
    first_is_run: bool,
    bytes: &'a [u8],
    marks: &'a [Mark],
}

impl Packed {
    /// A sequence with one open, empty block.
    pub(super) fn new(start: Point, is_run: bool) -> Packed {
        Packed { first: start, bytes: Vec::new(), rest: None, first_is_run: is_run }
    }

    /// Where the open block's items go: append only.
    #[inline]
    pub(super) fn open_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the open block and begins the next one.
    pub(super) fn open_block(&mut self, start: Point, is_run: bool) {
        assert!(
            start.x >= self.first.x && start.y >= self.first.y,
            "blocks start in order: {start:?} after {:?}",
            self.first
        );
        let rest = self.rest.get_or_insert_default();
        let budget_bytes = (rest.sealed.len() * CHUNK_BYTES_STEP).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let used_bytes = self.bytes.len() + size_of_val(rest.marks.as_slice());
        let mark = Mark {
            // A start too far for 32 bits begins a chunk of its own.
            x: u32::try_from(start.x - self.first.x).unwrap_or(u32::MAX),
            y: u32::try_from(start.y - self.first.y).unwrap_or(u32::MAX),
            at: u16::try_from(self.bytes.len()).unwrap_or_else(|_| {
                panic!("a chunk of {} bytes has a block above {BLOCK_BYTES_MAX} bytes", self.bytes.len())
            }),
            is_run,
        };
        if used_bytes + BLOCK_BYTES_USUAL <= budget_bytes && mark.x < u32::MAX && mark.y < u32::MAX {
            rest.marks.push(mark);
            return;
        }
        rest.sealed.push(Chunk {
            first: self.first,
            bytes: self.bytes.as_slice().into(),
            marks: rest.marks.as_slice().into(),
            first_is_run: self.first_is_run,
        });
        rest.marks.clear();
        self.bytes.clear();
        self.first = start;
        self.first_is_run = is_run;
    }

    /// Empties the open block, to be filled again as a block with this flag.
    pub(super) fn reopen_block(&mut self, is_run: bool) {
        match self.rest.as_mut().and_then(|rest| rest.marks.last_mut()) {
            Some(mark) => {
                mark.is_run = is_run;
                self.bytes.truncate(usize::from(mark.at));
            }
            None => {
                self.first_is_run = is_run;
                self.bytes.clear();
            }
        }
    }

    /// The last block that starts at or before `x`; the first one if none does.
    pub(super) fn find_x(&self, x: u64) -> At {
        self.find(x, |point| point.x)
    }

    /// The last block that starts at or before `y`; the first one if none does.
    pub(super) fn find_y(&self, y: u64) -> At {
        self.find(y, |point| point.y)
    }

    #[inline]
    fn find(&self, value: u64, axis: impl Fn(Point) -> u64) -> At {
        let sealed = self.sealed();
        // Most searches are for what came last.
        let chunk = if axis(self.first) <= value {
            sealed.len()
        } else {
            sealed.partition_point(|chunk| axis(chunk.first) <= value).saturating_sub(1)
        };
        let view = self.view(chunk);
        let distance = value.saturating_sub(axis(view.first));
        let block = view
            .marks
            .partition_point(|mark| axis(Point { x: u64::from(mark.x), y: u64::from(mark.y) }) <= distance);
        At { chunk, block }
    }

    /// The block that `at` names.
    pub(super) fn block(&self, at: At) -> Block<'_> {
        let view = self.view(at.chunk);
        let end = view.marks.get(at.block).map_or(view.bytes.len(), |mark| usize::from(mark.at));
        if at.block == 0 {
            return Block { start: view.first, is_run: view.first_is_run, bytes: &view.bytes[..end] };
        }
        let mark = view.marks[at.block - 1];
        Block {
            start: Point { x: view.first.x + u64::from(mark.x), y: view.first.y + u64::from(mark.y) },
            is_run: mark.is_run,
            bytes: &view.bytes[usize::from(mark.at)..end],
        }
    }

    /// The block after the one that `at` names; none after the open block.
    pub(super) fn next(&self, at: At) -> Option<At> {
        if at.block < self.view(at.chunk).marks.len() {
            return Some(At { block: at.block + 1, ..at });
        }
        (at.chunk < self.sealed().len()).then(|| At { chunk: at.chunk + 1, block: 0 })
    }

    /// Forgets whole chunks that hold no block which covers `x` or comes after it. Searches before what is left find its first
    /// block.
    pub(super) fn forget_before_x(&mut self, x: u64) {
        let Some(rest) = &mut self.rest else { return };
        let first_of_next =
            |chunk: usize| rest.sealed.get(chunk + 1).map_or(self.first.x, |next| next.first.x);
        let gone = (0..rest.sealed.len()).take_while(|chunk| first_of_next(*chunk) <= x).count();
        rest.sealed.drain(..gone);
    }

    /// Where the first block that is left starts.
    pub(super) fn first(&self) -> Point {
        self.view(0).first
    }

    /// Heap bytes, unused capacity included.
    pub(super) fn heap_bytes(&self) -> usize {
        let rest = self.rest.as_ref().map_or(0, |rest| {
            let chunks: usize =
                rest.sealed.iter().map(|chunk| chunk.bytes.len() + size_of_val(&*chunk.marks)).sum();
            size_of::<Rest>()
                + rest.sealed.capacity() * size_of::<Chunk>()
                + rest.marks.capacity() * size_of::<Mark>()
                + chunks
        });
        self.bytes.capacity() + rest
    }

    fn sealed(&self) -> &[Chunk] {
        self.rest.as_ref().map_or(&[], |rest| &rest.sealed)
    }

    #[inline]
    fn view(&self, chunk: usize) -> View<'_> {
        match self.sealed().get(chunk) {
            Some(chunk) => View {
                first: chunk.first,
                first_is_run: chunk.first_is_run,
                bytes: &chunk.bytes,
                marks: &chunk.marks,
            },
            None => View {
                first: self.first,
                first_is_run: self.first_is_run,
                bytes: &self.bytes,
                marks: self.rest.as_ref().map_or(&[], |rest| &rest.marks),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Steps between block starts, some of them beyond 32 bits, and bytes for each block.
    fn blocks() -> impl Strategy<Value = Vec<(u64, u64, bool, Vec<u8>)>> {
        let step = || prop_oneof![4 => 1u64..1000, 1 => Just(u64::from(u32::MAX)), 1 => 1u64 << 31..1 << 34];
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            prop::collection::vec(any::<u8>(), 64..200)
        ];
        prop::collection::vec((step(), step(), any::<bool>(), bytes), 1..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_block_is_found_as_it_was_written(blocks in blocks(), probe in any::<u64>()) {
            let mut model = Vec::new();
            let mut start = Point { x: blocks[0].0, y: blocks[0].1 };
            let mut packed = Packed::new(start, !blocks[0].2);
            packed.open_bytes().extend_from_slice(b"to be replaced");
            packed.reopen_block(blocks[0].2);
            for (index, (x, y, is_run, bytes)) in blocks.into_iter().enumerate() {
                if index > 0 {
                    start = Point { x: start.x + x, y: start.y + y };
                    packed.open_block(start, !is_run);
                    packed.open_bytes().push(7);
                    packed.reopen_block(is_run);
                }
                packed.open_bytes().extend_from_slice(&bytes);
                model.push((start, is_run, bytes));
            }

            let mut at = packed.find_x(0);
            for (index, (start, is_run, bytes)) in model.iter().enumerate() {
                let block = packed.block(at);
                prop_assert_eq!((block.start, block.is_run), (*start, *is_run));
                prop_assert_eq!(block.bytes, bytes.as_slice());
                prop_assert_eq!(packed.find_x(start.x), at);
                prop_assert_eq!(packed.find_y(start.y), at);
                match packed.next(at) {
                    Some(next) => at = next,
                    None => prop_assert_eq!(index + 1, model.len(), "the walk ends with the open block"),
                }
            }

            let x = model[0].0.x + probe % (start.x - model[0].0.x + 10);
            let expected = model.iter().map(|(start, ..)| *start).rfind(|start| start.x <= x);
            prop_assert_eq!(Some(packed.block(packed.find_x(x)).start), expected);
        }
    }

    #[test]
    fn chunks_grow_with_the_sequence_and_are_exact() {
        let mut packed = Packed::new(Point { x: 0, y: 0 }, false);
        for block in 1..100_000 {
            packed.open_bytes().extend_from_slice(&[0; 64]);
            packed.open_block(Point { x: block, y: block }, false);
        }
        let sealed = packed.sealed();
        let sizes: Vec<usize> =
            sealed.iter().map(|chunk| chunk.bytes.len() + size_of_val(&*chunk.marks)).collect();
        assert!(sizes[0] < 2 * CHUNK_BYTES_MIN, "the first chunk is small: {}", sizes[0]);
        assert!(sizes.is_sorted(), "chunks grow");
        let last = sizes[sizes.len() - 1];
        assert!(last <= CHUNK_BYTES_MAX + BLOCK_BYTES_MAX, "chunks stay bounded: {last}");
        assert!(last >= CHUNK_BYTES_MAX - 2 * BLOCK_BYTES_USUAL, "the bound was reached: {last}");
        let exact = 100_000 * (64 + size_of::<Mark>());
        let slack = packed.heap_bytes() - exact;
        assert!(slack < exact / 50, "{slack} bytes of slack over {exact}");
    }
}
