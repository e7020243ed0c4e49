//! The extent index of one stream: where the bytes of a stream lie in the log.
//!
//! An extent is a range of stream bytes that lies in one entry's payload. Extents follow each other without a
//! hole, so only the first start and the end are kept as numbers; what is written per extent is the step from
//! the one before:
//!
//! ```text
//!  extent in the log   ... [entry | payload 1] other streams' entries [entry | payload 2] ...
//!                            back ->^ len      gap ------------------------->^
//!  written             gap and three flags; where they say so: a new place, step of `back`, step of `len`
//! ```
//!
//! A small append between those of other streams costs 4 to 6 bytes, at most 8. The last extent is not
//! written yet: it can still grow. An index with one extent (a settled or a young stream) owns no heap.

use crate::storage::event::{Part, Place};
use crate::storage::packed::{At, Packed, Point};
use crate::storage::varint;

/// Extents of a block: the most that a search steps over.
const BLOCK_EXTENTS: u8 = 32;
/// The extent does not follow the one before in the same segment: segment and position are written as they
/// are.
const ELSEWHERE: u64 = 1;
/// `back` differs from the one before: its step follows.
const BACK: u64 = 2;
/// The length differs from the one before: its step follows.
const LEN: u64 = 4;
/// Bits of the three flags below the gap.
const FLAG_BITS: u32 = 3;

const _: () = {
    assert!(size_of::<ExtentIndex>() <= 32, "every stream holds one inline");
    assert!(size_of::<Many>() <= 112, "an idle stream may own one");
};

/// Where the bytes of a stream lie.
#[derive(Debug)]
pub struct ExtentIndex {
    start: u64,
    end: u64,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Empty,
    /// One extent, from `start` to `end`.
    One(Place),
    Many(Box<Many>),
}

#[derive(Debug)]
struct Many {
    /// The first extents, if they were rewritten: few and large, so they are kept as they are. Never empty. What is packed before
    /// its end does not count any more.
    front: Option<Box<[Front]>>,
    /// The extents between the front and the last one.
    packed: Packed,
    /// The last extent that is written.
    written: Extent,
    /// The last extent, which reaches to the end of the index.
    last: Place,
    last_start: u64,
    /// Extents in the open block.
    open: u8,
}

/// Bytes in one entry's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Extent {
    place: Place,
    len: u32,
}

impl Many {
    /// The front; empty if there is none.
    fn front(&self) -> &[Front] {
        self.front.as_deref().unwrap_or_default()
    }

    /// Offset at which the front ends; 0 if there is none.
    fn front_end(&self) -> u64 {
        self.front().last().map_or(0, Front::end)
    }
}

/// An extent of the front, with its start.
#[derive(Clone, Copy, Debug)]
struct Front {
    start: u64,
    extent: Extent,
}

impl Front {
    fn end(&self) -> u64 {
        self.start + u64::from(self.extent.len)
    }

    /// What of it lies from `from` on, and before `to`.
    fn cut(&self, from: u64, to: u64) -> Option<Front> {
        let (start, end) = (self.start.max(from), self.end().min(to));
        let place = self.extent.place;
        (start < end).then(|| Front {
            start,
            extent: Extent { place: place.further((start - self.start) as u32), len: (end - start) as u32 },
        })
    }
}

/// A range of stream bytes that can be read from one place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the extent begins that holds the range.
    pub place: Place,
    /// Bytes of that extent.
    pub extent_len: u32,
    /// First byte of the range within the extent.
    pub from: u32,
    /// Bytes of the range; never 0.
    pub len: u32,
}

impl Default for ExtentIndex {
    fn default() -> ExtentIndex {
        ExtentIndex::new()
    }
}

impl ExtentIndex {
    /// No extents.
    pub const fn new() -> ExtentIndex {
        ExtentIndex { start: 0, end: 0, shape: Shape::Empty }
    }

    /// Offset of the first byte that it knows.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Offset after the last byte that it knows.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds the `len` bytes of the stream that start at offset `start` and lie at `place`. Nothing happens if
    /// `len` is 0. Bytes that go on where the last extent ends, in the payload of the same entry, make it
    /// longer.
    ///
    /// # Panics
    /// If `start` is not where the index ends (the first extent may start anywhere), or if an extent would
    /// have more than `u32::MAX` bytes.
    pub fn push(&mut self, start: u64, len: u64, place: Place) {
        if len == 0 {
            return;
        }
        let end = self.end;
        let extent_len =
            u32::try_from(len).unwrap_or_else(|_| panic!("extent of {len} bytes at offset {start}"));
        if matches!(self.shape, Shape::Empty) {
            (self.start, self.shape) = (start, Shape::One(place));
        } else {
            assert!(start == end, "extents have no hole between them: start {start}, end {end}");
            match &mut self.shape {
                Shape::Empty => unreachable!("handled above"),
                Shape::One(last) => {
                    let last = Extent { place: *last, len: (end - self.start) as u32 };
                    if !last.goes_on(place, extent_len) {
                        self.shape = Shape::Many(Box::new(Many::new(self.start, last, place, start)));
                    }
                }
                Shape::Many(many) => {
                    let last = Extent { place: many.last, len: (end - many.last_start) as u32 };
                    if !last.goes_on(place, extent_len) {
                        many.write(last);
                        (many.last, many.last_start) = (place, start);
                    }
                }
            }
        }
        self.end = start + len;
    }

    /// The pieces that hold the bytes from offset `from` up to `to`, in order.
    ///
    /// # Panics
    /// If the range is reversed or not within [`start`](ExtentIndex::start) and [`end`](ExtentIndex::end).
    pub fn pieces(&self, from: u64, to: u64) -> Pieces<'_> {
        assert!(
            from <= to && (from == to || (self.start <= from && to <= self.end)),
            "bytes {from} to {to} are not within {} to {}",
            self.start,
            self.end
        );
        let mut pieces = Pieces {
            index: self,
            front: &[],
            packed: None,
            at: None,
            block: &[],
            extent: Extent::default(),
            next_start: self.start,
            from,
            to,
        };
        if let Shape::Many(many) = &self.shape {
            if from < many.front_end() {
                pieces.front = &many.front()[many.front().partition_point(|front| front.end() <= from)..];
            } else {
                pieces.enter(many, from);
            }
        }
        pieces
    }

    /// Forgets bytes before `offset`, as far as that saves memory; beyond the end, goes on there. Nothing below it may be asked
    /// for any more.
    pub fn forget_before(&mut self, offset: u64) {
        if offset >= self.end {
            *self = ExtentIndex { start: offset, end: offset, shape: Shape::Empty };
            return;
        }
        if let Shape::Many(many) = &mut self.shape {
            if offset >= many.last_start {
                (self.start, self.shape) = (many.last_start, Shape::One(many.last));
            } else if offset < many.front_end() {
                let gone = many.front().partition_point(|front| front.end() <= offset);
                if gone > 0 {
                    many.front = Some(many.front()[gone..].into());
                }
                self.start = many.front()[0].start;
            } else {
                let front_end = many.front_end();
                many.front = None;
                many.packed.forget_before_x(offset);
                self.start = many.packed.first().x.max(front_end);
            }
        }
    }

    /// The bytes from offset `from` on lie in `parts` now, as far as these reach; what lies before `first` is forgotten. Costs
    /// as much as there are rewritten extents, and those before the moved ones that are not.
    ///
    /// # Panics
    /// If the parts reach beyond the end.
    pub fn relocate(&mut self, first: u64, from: u64, parts: &[Part]) {
        let first = first.max(self.start).min(self.end);
        let to = from + parts.iter().map(|part| u64::from(part.len)).sum::<u64>();
        assert!(to <= self.end, "bytes {from} to {to} of {} were moved", self.end);
        if to <= first {
            return;
        }
        let old_front_end = match &self.shape {
            Shape::Many(many) => many.front_end().max(self.start),
            _ => self.start,
        };
        // Everything up to where the rewritten part ends becomes the front.
        let front_end = old_front_end.max(to);
        let mut front = Vec::new();
        let kept = |from: u64, to: u64, front: &mut Vec<Front>| {
            let mut start = from;
            for Piece { place, from, len, .. } in self.pieces(from, to) {
                front.push(Front { start, extent: Extent { place: place.further(from), len } });
                start += u64::from(len);
            }
        };
        kept(first, from.max(first), &mut front);
        let mut start = from;
        for Part { place, len } in parts {
            let moved = Front { start, extent: Extent { place: *place, len: *len } };
            front.extend(moved.cut(first, u64::MAX));
            start = moved.end();
        }
        kept(to.max(first), front_end, &mut front);
        self.set_front(front, front_end);
        self.start = first;
    }

    /// Makes `front` the first extents, up to `front_end`.
    fn set_front(&mut self, mut front: Vec<Front>, front_end: u64) {
        let (last, last_start) = match &self.shape {
            Shape::Many(many) if front_end <= many.last_start => {
                let Shape::Many(many) = &mut self.shape else { unreachable!("it has just been one") };
                many.packed.forget_before_x(front_end);
                many.front = (!front.is_empty()).then(|| front.into());
                return;
            }
            // The front reaches into the last extent: its rest is the last one.
            _ => {
                let (last, last_start) = self.last();
                let last = Front { start: last_start, extent: last };
                match last.cut(front_end, u64::MAX) {
                    Some(rest) => (rest.extent.place, rest.start),
                    None => {
                        let rest = front.pop().expect("the front holds all of the index");
                        (rest.extent.place, rest.start)
                    }
                }
            }
        };
        if front.is_empty() {
            self.shape = Shape::One(last);
            return;
        }
        let packed = Packed::new(Point { x: last_start, y: 0 }, false);
        let (front, written) = (Some(front.into()), Extent::default());
        let many = Many { front, packed, written, last, last_start, open: 0 };
        self.shape = Shape::Many(Box::new(many));
    }

    /// Bytes it occupies, itself and unused capacity included.
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.shape {
            Shape::Empty | Shape::One(_) => 0,
            Shape::Many(many) => size_of::<Many>() + many.packed.heap_bytes() + size_of_val(many.front()),
        };
        size_of::<ExtentIndex>() + heap
    }

    /// The last extent and its start; only for an index that is not empty.
    fn last(&self) -> (Extent, u64) {
        let (place, start) = match &self.shape {
            Shape::Empty => unreachable!("an empty index has no last extent"),
            Shape::One(place) => (*place, self.start),
            Shape::Many(many) => (many.last, many.last_start),
        };
        (Extent { place, len: (self.end - start) as u32 }, start)
    }
}

impl Many {
    fn new(start: u64, first: Extent, last: Place, last_start: u64) -> Many {
        let packed = Packed::new(Point { x: start, y: 0 }, false);
        let mut many = Many { front: None, packed, written: Extent::default(), last, last_start, open: 0 };
        many.write(first);
        many
    }

    /// Writes what was the last extent.
    fn write(&mut self, extent: Extent) {
        if self.open == BLOCK_EXTENTS {
            self.packed.open_block(Point { x: self.last_start, y: 0 }, false);
            // A block is read without the one before.
            self.written = Extent::default();
            self.open = 0;
        }
        extent.write(self.written, self.packed.open_bytes());
        self.written = extent;
        self.open += 1;
    }
}

impl Extent {
    /// Whether the `len` bytes at `place` are the next ones of the same entry's payload: both positions are
    /// then the same distance further.
    fn goes_on(self, place: Place, len: u32) -> bool {
        let further = |from: u32| from.checked_add(self.len);
        place.segment == self.place.segment
            && further(self.place.position) == Some(place.position)
            && further(self.place.back) == Some(place.back)
            && further(len).is_some()
    }

    fn write(self, before: Extent, out: &mut Vec<u8>) {
        let after_before = u64::from(before.place.position) + u64::from(before.len);
        let position = u64::from(self.place.position);
        let is_elsewhere = self.place.segment != before.place.segment || position < after_before;
        let gap = if is_elsewhere { 0 } else { position - after_before };
        let mut flags = if is_elsewhere { ELSEWHERE } else { 0 };
        flags |= if self.place.back == before.place.back { 0 } else { BACK };
        flags |= if self.len == before.len { 0 } else { LEN };
        varint::put(out, gap << FLAG_BITS | flags);
        if is_elsewhere {
            varint::put(out, u64::from(self.place.segment));
            varint::put(out, position);
        }
        if flags & BACK != 0 {
            varint::put(out, varint::step(u64::from(before.place.back), u64::from(self.place.back)));
        }
        if flags & LEN != 0 {
            varint::put(out, varint::step(u64::from(before.len), u64::from(self.len)));
        }
    }

    fn read(before: Extent, bytes: &mut &[u8]) -> Extent {
        let was_u32 = |value: u64| u32::try_from(value).expect("it was a u32 when it was written");
        let head = varint::take(bytes);
        let mut extent = before;
        extent.place.position = if head & ELSEWHERE != 0 {
            extent.place.segment = was_u32(varint::take(bytes));
            was_u32(varint::take(bytes))
        } else {
            was_u32(u64::from(before.place.position) + u64::from(before.len) + (head >> FLAG_BITS))
        };
        if head & BACK != 0 {
            extent.place.back =
                was_u32(varint::apply_step(u64::from(before.place.back), varint::take(bytes)));
        }
        if head & LEN != 0 {
            extent.len = was_u32(varint::apply_step(u64::from(before.len), varint::take(bytes)));
        }
        extent
    }
}

/// Iterator of [`ExtentIndex::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    index: &'a ExtentIndex,
    /// Extents of the front that are ahead.
    front: &'a [Front],
    /// Written extents, while some of them are ahead.
    packed: Option<&'a Packed>,
    at: Option<At>,
    /// What is left of the present block.
    block: &'a [u8],
    /// The extent that was read last.
    extent: Extent,
    next_start: u64,
    from: u64,
    to: u64,
}

impl<'a> Pieces<'a> {
    /// Goes to the extent that holds `from`, behind the front.
    fn enter(&mut self, many: &'a Many, from: u64) {
        if from >= many.last_start {
            self.next_start = many.last_start;
            return;
        }
        let at = many.packed.find_x(from);
        let block = many.packed.block(at);
        (self.packed, self.at, self.block) = (Some(&many.packed), Some(at), block.bytes);
        (self.next_start, self.extent) = (block.start.x, Extent::default());
    }

    /// The next extent and its start; only while bytes are left.
    fn next_extent(&mut self) -> (Extent, u64) {
        if let Some((front, rest)) = self.front.split_first() {
            self.front = rest;
            if let (Shape::Many(many), true) = (&self.index.shape, rest.is_empty()) {
                self.enter(many, many.front_end());
            }
            return (front.extent, front.start);
        }
        let start = self.next_start;
        if self.block.is_empty() {
            // Between blocks; after the last one comes the extent that is not written.
            self.at = self.at.zip(self.packed).and_then(|(at, packed)| packed.next(at));
            let Some((at, packed)) = self.at.zip(self.packed) else {
                return self.index.last();
            };
            self.block = packed.block(at).bytes;
            self.extent = Extent::default();
        }
        self.extent = Extent::read(self.extent, &mut self.block);
        self.next_start += u64::from(self.extent.len);
        (self.extent, start)
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.from == self.to {
            return None;
        }
        loop {
            let (extent, start) = self.next_extent();
            let end = start + u64::from(extent.len);
            if end <= self.from {
                continue;
            }
            let piece_end = end.min(self.to);
            let (from, len) = ((self.from - start) as u32, (piece_end - self.from) as u32);
            self.from = piece_end;
            return Some(Piece { place: extent.place, extent_len: extent.len, from, len });
        }
    }
}

#[cfg(test)]
mod tests;
