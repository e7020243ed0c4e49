//! The record index of one stream: from ordinals to byte offsets and back, for records and byte messages
//! alike.
//!
//! What is kept is the length of every record, in order, as cheaply as their variety allows:
//!
//! - All lengths are equal (the index of most young streams): two counters and the length, no heap.
//! - Else blocks of [`BLOCK_RECORDS`] lengths, each written as the step from the one before: one byte while
//!   neighbours differ by less than 64 bytes, two below 8 KiB. Every block costs 12 bytes in the directory.
//! - A full block of equal lengths, or a pushed run of at least `RUN_MIN`, becomes a run: it costs a few
//!   bytes however long it gets.
//!
//! So records around 256 bytes cost at most 2.5 bytes each, mostly 1.3. A search is two binary searches in
//! the directory and at most [`BLOCK_RECORDS`] steps.
//!
//! Worked example: lengths 300, 310, 308 are the bytes `D8 04` (+300), `14` (+10), `03` (-2); the offset of
//! ordinal 2 is 300 + 310.

use crate::storage::event::Lengths;
use crate::storage::packed::{At, Packed, Point};
use crate::storage::varint;

/// Records in a block of steps: the most that a search walks through.
pub const BLOCK_RECORDS: u8 = 64;
/// Shortest pushed run of equal lengths that gets a block of its own: below, its directory entry costs more
/// than it saves.
const RUN_MIN: u32 = 32;

const _: () = {
    assert!(size_of::<RecordIndex>() <= 32, "every stream holds one inline");
    assert!(size_of::<Varied>() <= 64, "an idle stream may own one");
};

/// Lengths of all records of a stream, in order.
#[derive(Debug)]
pub struct RecordIndex {
    count: u64,
    end: u64,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// All records have this length; any value while there is none.
    Uniform(u32),
    /// At least two lengths, or records that do not begin at 0.
    Varied(Box<Varied>),
    /// No records are known: those before the count are forgotten.
    Forgotten,
}

#[derive(Debug)]
struct Varied {
    packed: Packed,
    /// Length of the last record.
    last: u32,
    /// Lengths in the open block; full while the open block is a run.
    open: u8,
    /// Whether the open block is a run of `last`.
    in_run: bool,
    /// Whether all lengths in the open block are equal.
    all_equal: bool,
}

/// Where an offset lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The record that holds the byte at the offset; the count of records if the offset is the end.
    pub ordinal: u64,
    /// Offset of that record's first byte.
    pub start: u64,
    /// Whether the offset is `start`: a message boundary.
    pub is_boundary: bool,
}

impl Default for RecordIndex {
    fn default() -> RecordIndex {
        RecordIndex::new()
    }
}

impl RecordIndex {
    /// No records.
    pub const fn new() -> RecordIndex {
        RecordIndex { count: 0, end: 0, shape: Shape::Uniform(0) }
    }

    /// Number of records: the ordinal of the next one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of all records: the offset of the next one.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds a record of `len` bytes, separator included.
    ///
    /// # Panics
    /// If `len` is 0: two records would share an offset.
    #[inline]
    pub fn push(&mut self, len: u32) {
        assert!(len > 0, "a record has bytes (ordinal {}, offset {})", self.count, self.end);
        match &mut self.shape {
            Shape::Varied(varied) => varied.push(len, Point { x: self.count, y: self.end }),
            Shape::Uniform(all) if *all == len => {}
            Shape::Uniform(_) | Shape::Forgotten => self.push_first_of_kind(len, 1),
        }
        self.count += 1;
        self.end += u64::from(len);
    }

    /// Adds the records of one append.
    ///
    /// # Panics
    /// If one of them has no bytes.
    pub fn push_many(&mut self, lengths: Lengths<'_>) {
        match lengths {
            Lengths::Uniform { count: 0, .. } => {}
            Lengths::Uniform { len, count } => self.push_run(len, count),
            Lengths::Each(list) => list.iter().for_each(|len| self.push(*len)),
        }
    }

    fn push_run(&mut self, len: u32, count: u32) {
        assert!(len > 0, "a record has bytes (ordinal {}, offset {})", self.count, self.end);
        match &mut self.shape {
            Shape::Varied(varied) => varied.push_run(len, count, Point { x: self.count, y: self.end }),
            Shape::Uniform(all) if *all == len => {}
            Shape::Uniform(_) | Shape::Forgotten => self.push_first_of_kind(len, count),
        }
        self.count += u64::from(count);
        self.end += u64::from(len) * u64::from(count);
    }

    /// The shape changes for records unlike those before; the caller counts them.
    #[cold]
    fn push_first_of_kind(&mut self, len: u32, count: u32) {
        let at = Point { x: self.count, y: self.end };
        let varied = match self.shape {
            Shape::Varied(_) => unreachable!("a varied index has met its first other length"),
            Shape::Uniform(_) if self.count == 0 => {
                self.shape = Shape::Uniform(len);
                return;
            }
            Shape::Uniform(all) => {
                let mut varied = Varied::of(Point { x: 0, y: 0 }, all, self.count);
                varied.push_run(len, count, at);
                varied
            }
            Shape::Forgotten => Varied::of(at, len, u64::from(count)),
        };
        self.shape = Shape::Varied(Box::new(varied));
    }

    /// Forgets records before `ordinal`, as far as that saves memory. Nothing below it may be asked for any more.
    ///
    /// # Panics
    /// If `ordinal` is above [`count`](RecordIndex::count).
    pub fn forget_before(&mut self, ordinal: u64) {
        assert!(ordinal <= self.count, "ordinal {ordinal} is beyond the count {}", self.count);
        match &mut self.shape {
            // Costs nothing as it is.
            Shape::Uniform(_) | Shape::Forgotten => {}
            Shape::Varied(_) if ordinal == self.count => self.shape = Shape::Forgotten,
            Shape::Varied(varied) => varied.packed.forget_before_x(ordinal),
        }
    }

    /// Goes on at another ordinal and offset, further on: nothing before them is known.
    ///
    /// # Panics
    /// If one of them is below the index's end.
    pub fn skip_to(&mut self, ordinal: u64, offset: u64) {
        assert!(
            ordinal >= self.count && offset >= self.end,
            "ordinal {ordinal} at offset {offset} lies before {} at {}",
            self.count,
            self.end
        );
        *self = RecordIndex { count: ordinal, end: offset, shape: Shape::Forgotten };
    }

    /// Offset of the record's first byte; the end for the ordinal after the last.
    ///
    /// # Panics
    /// If `ordinal` is above [`count`](RecordIndex::count).
    pub fn offset_of(&self, ordinal: u64) -> u64 {
        assert!(ordinal <= self.count, "ordinal {ordinal} is beyond the count {}", self.count);
        if ordinal == self.count {
            return self.end;
        }
        match &self.shape {
            Shape::Forgotten => panic!("record {ordinal} is forgotten: the index begins at {}", self.count),
            Shape::Uniform(len) => ordinal * u64::from(*len),
            Shape::Varied(varied) => {
                let block = varied.packed.block(varied.packed.find_x(ordinal));
                let into = ordinal - block.start.x;
                let mut lengths = BlockLengths::new(block.bytes);
                match block.is_run {
                    true => block.start.y + into * u64::from(lengths.advance()),
                    false => block.start.y + (0..into).map(|_| u64::from(lengths.advance())).sum::<u64>(),
                }
            }
        }
    }

    /// The record at a byte offset. At the end: the ordinal after the last, as a boundary.
    ///
    /// # Panics
    /// If `offset` is above [`end`](RecordIndex::end).
    pub fn locate(&self, offset: u64) -> Located {
        assert!(offset <= self.end, "offset {offset} is beyond the end {}", self.end);
        if offset == self.end {
            return Located { ordinal: self.count, start: self.end, is_boundary: true };
        }
        let (ordinal, start) = match &self.shape {
            Shape::Forgotten => panic!("offset {offset} is forgotten: the index begins at {}", self.end),
            Shape::Uniform(len) => {
                let ordinal = offset / u64::from(*len);
                (ordinal, ordinal * u64::from(*len))
            }
            Shape::Varied(varied) => {
                let block = varied.packed.block(varied.packed.find_y(offset));
                let mut lengths = BlockLengths::new(block.bytes);
                let mut len = u64::from(lengths.advance());
                let Point { x: mut ordinal, y: mut start } = block.start;
                if block.is_run {
                    let into = (offset - start) / len;
                    (ordinal, start) = (ordinal + into, start + into * len);
                }
                while start + len <= offset {
                    ordinal += 1;
                    start += len;
                    len = u64::from(lengths.advance());
                }
                (ordinal, start)
            }
        };
        Located { ordinal, start, is_boundary: start == offset }
    }

    /// Lengths from `ordinal` to the last record.
    ///
    /// # Panics
    /// If `ordinal` is above [`count`](RecordIndex::count).
    pub fn lengths_from(&self, ordinal: u64) -> LengthsFrom<'_> {
        assert!(ordinal <= self.count, "ordinal {ordinal} is beyond the count {}", self.count);
        let left = self.count - ordinal;
        let (varied, run_len) = match &self.shape {
            Shape::Uniform(len) => (None, *len),
            Shape::Forgotten => {
                assert!(left == 0, "record {ordinal} is forgotten: the index begins at {}", self.count);
                (None, 0)
            }
            Shape::Varied(varied) => (Some(&**varied), 0),
        };
        let empty = BlockLengths::new(&[]);
        let mut from = LengthsFrom { varied, at: None, lengths: empty, run_len, run_left: left, left };
        if let Some(varied) = varied {
            from.run_left = 0;
            if left > 0 {
                from.enter(varied, varied.packed.find_x(ordinal), ordinal);
            }
        }
        from
    }

    /// Bytes it occupies, itself and unused capacity included.
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.shape {
            Shape::Uniform(_) | Shape::Forgotten => 0,
            Shape::Varied(varied) => size_of::<Varied>() + varied.packed.heap_bytes(),
        };
        size_of::<RecordIndex>() + heap
    }
}

impl Varied {
    /// `count` records of `len` bytes that start at `at`, and room for others.
    fn of(at: Point, len: u32, count: u64) -> Varied {
        let is_run = count >= u64::from(RUN_MIN);
        let packed = Packed::new(at, is_run);
        let mut varied = Varied { packed, last: len, open: 0, in_run: false, all_equal: true };
        varied.begin_items(len, is_run);
        if !is_run {
            // Equal lengths in a block of steps do not look at where they are.
            (1..count).for_each(|_| varied.push(len, at));
        }
        varied
    }

    /// Adds a length whose record starts at `at` (ordinal, offset).
    #[inline]
    fn push(&mut self, len: u32, at: Point) {
        if self.open == BLOCK_RECORDS {
            if !self.in_run || len != self.last {
                self.begin_block(len, at, false);
            }
            return;
        }
        let step = varint::step(u64::from(self.last), u64::from(len));
        varint::put(self.packed.open_bytes(), step);
        self.last = len;
        self.all_equal &= step == 0;
        self.open += 1;
        if self.open == BLOCK_RECORDS && self.all_equal {
            self.packed.reopen_block(true);
            self.begin_items(len, true);
        }
    }

    fn push_run(&mut self, len: u32, count: u32, at: Point) {
        if self.in_run && len == self.last {
            return;
        }
        if count >= RUN_MIN {
            self.begin_block(len, at, true);
            return;
        }
        for index in 0..u64::from(count) {
            self.push(len, Point { x: at.x + index, y: at.y + index * u64::from(len) });
        }
    }

    #[inline(never)]
    fn begin_block(&mut self, len: u32, at: Point, is_run: bool) {
        self.packed.open_block(at, is_run);
        self.begin_items(len, is_run);
    }

    fn begin_items(&mut self, len: u32, is_run: bool) {
        varint::put(self.packed.open_bytes(), varint::step(0, u64::from(len)));
        self.last = len;
        self.open = if is_run { BLOCK_RECORDS } else { 1 };
        self.in_run = is_run;
        self.all_equal = true;
    }
}

/// Steps through the bytes of a block.
#[derive(Clone, Copy, Debug)]
struct BlockLengths<'a> {
    bytes: &'a [u8],
    last: u64,
}

impl<'a> BlockLengths<'a> {
    fn new(bytes: &'a [u8]) -> BlockLengths<'a> {
        // The first length of a block is written as the step from 0: a block is read without the one before.
        BlockLengths { bytes, last: 0 }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    fn advance(&mut self) -> u32 {
        self.last = varint::apply_step(self.last, varint::take(&mut self.bytes));
        u32::try_from(self.last).expect("a length was a u32 when it was written")
    }
}

/// Iterator of [`RecordIndex::lengths_from`].
#[derive(Clone, Debug)]
pub struct LengthsFrom<'a> {
    varied: Option<&'a Varied>,
    at: Option<At>,
    lengths: BlockLengths<'a>,
    run_len: u32,
    run_left: u64,
    left: u64,
}

impl<'a> LengthsFrom<'a> {
    /// Goes to the block at `at`, up to `ordinal`, which lies in it.
    fn enter(&mut self, varied: &'a Varied, at: At, ordinal: u64) {
        let block = varied.packed.block(at);
        let into = ordinal - block.start.x;
        self.at = Some(at);
        self.lengths = BlockLengths::new(block.bytes);
        if block.is_run {
            self.run_len = self.lengths.advance();
            let next = varied.packed.next(at).map(|next| varied.packed.block(next).start.x);
            self.run_left = next.map_or(self.left, |next| next - ordinal);
        } else {
            (0..into).for_each(|_| _ = self.lengths.advance());
        }
    }

    #[cold]
    fn enter_next(&mut self) {
        let varied = self.varied.expect("a uniform index is one run");
        let at =
            self.at.and_then(|at| varied.packed.next(at)).expect("a block follows while records are left");
        let ordinal = varied.packed.block(at).start.x;
        self.enter(varied, at, ordinal);
    }
}

impl Iterator for LengthsFrom<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        if self.run_left == 0 && self.lengths.is_empty() {
            self.enter_next();
        }
        self.left -= 1;
        if self.run_left > 0 {
            self.run_left -= 1;
            return Some(self.run_len);
        }
        Some(self.lengths.advance())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests;
