//! An event to the flags and meta part of its entry, and back.
//!
//! Contract: `decode(encode(event))` is the event, except that a list of lengths comes back as `Uniform`
//! where it is one. Integers are LEB128 varints in their shortest form (longer forms are refused), byte
//! strings carry their length in front. Decoding never panics and never allocates beyond its scratch; every
//! part of the meta must be used up. The layout of each kind is in `storage-format.md`, section Entries.

mod other;
mod varint;

use other::{decode_other, encode_other};
pub(super) use varint::{Get, Put};
pub use varint::{VARINT_BYTES_MAX, varint_bytes};

use super::event::{Appended, Event, Lengths, Part, Payload, Place, Producer, ProducerRun, SEGMENT_GONE};
use super::format::{Kind, entry_back_bytes};

/// Flag of an append: the stream is closed after it.
pub const APPEND_CLOSED: u8 = 1;
/// Flag of an append: a producer claim follows.
pub const APPEND_PRODUCER: u8 = 1 << 1;
/// Flag of an append: a `Stream-Seq` follows.
pub const APPEND_STREAM_SEQ: u8 = 1 << 2;
/// Flag of an append: the payload lies in chunk entries, which are named at the end of the meta.
pub const APPEND_PARTS: u8 = 1 << 3;
/// Two bits of an append's flags: how record lengths are given, one of the `LENGTHS_` values.
pub const APPEND_LENGTHS: u8 = 3 << 4;
/// No records.
pub const LENGTHS_NONE: u8 = 0;
/// One record: all of the payload.
pub const LENGTHS_ONE: u8 = 1 << 4;
/// A count of records of the same length.
pub const LENGTHS_UNIFORM: u8 = 2 << 4;
/// A count and each length.
pub const LENGTHS_EACH: u8 = 3 << 4;

/// Flag of any kind: the last [`TIME_BYTES`] of the meta part are the time at which it was first written, Unix milliseconds;
/// else it is the commit's. Set by settling, which moves entries of many commits into one.
pub const TIMED: u8 = 1 << 7;
/// Bytes of that time: a fixed length, since it is found from the end.
pub const TIME_BYTES: usize = 8;

/// Flag of a creation: born closed.
pub const CREATED_CLOSED: u8 = 1;
/// Flag of a creation: a sliding time to live follows.
pub const CREATED_TTL: u8 = 1 << 1;
/// Flag of a creation: an absolute expiry follows.
pub const CREATED_EXPIRES: u8 = 1 << 2;
/// Flag of a creation: attributes follow.
pub const CREATED_ATTRIBUTES: u8 = 1 << 3;

/// Why the meta part of an entry, its checksum being right, makes no sense: a defect, or a later version of
/// the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A kind that this version does not know.
    #[error("unknown kind of entry {0}")]
    UnknownKind(u8),
    /// Flags that this version does not know.
    #[error("unknown flags {1:#04x} on an entry of kind {0}")]
    UnknownFlags(u8, u8),
    /// The meta part ends too early.
    #[error("the meta part ends too early")]
    Cut,
    /// Bytes are left at the end of the meta part.
    #[error("the meta part is too long")]
    TooLong,
    /// A varint that is too large or not in its shortest form.
    #[error("malformed integer")]
    Varint,
    /// Record lengths that do not add up to the payload.
    #[error("record lengths do not add up to the payload")]
    Lengths,
    /// A payload where the kind has none.
    #[error("a payload on an entry that has none")]
    Payload,
}

/// Result of encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded {
    /// Kind of the entry.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Bytes of meta that were written.
    pub meta_bytes: usize,
    /// Set for an append: what a footer leaves out where it can.
    pub stem: Option<Stem>,
}

/// The leading part of an append's meta, which a footer leaves out when the append goes on where the one
/// before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stem {
    /// The stream's lineage.
    pub lineage: u64,
    /// Byte offset at which the append starts.
    pub start: u64,
    /// Byte offset at which it ends.
    pub end: u64,
    /// Bytes of the stem in the meta part.
    pub bytes: usize,
}

/// Reused memory for the lists of one decoded event.
#[derive(Debug, Default)]
pub struct DecodeScratch {
    lengths: Vec<u32>,
    parts: Vec<Part>,
    runs: Vec<ProducerRun>,
}

/// Finds the index of a segment in the log's table from its number on disk, both within the log that wrote
/// the entry.
pub type SegmentIndex<'a> = dyn Fn(u32) -> Option<u32> + 'a;

/// An upper bound of the meta bytes of an event, for room checks; exact within a few bytes.
pub fn meta_bytes_max(event: &Event<'_>) -> usize {
    match event {
        Event::Appended(append) => appended_bytes_max(append),
        Event::StreamCreated(created) => {
            5 * VARINT_BYTES_MAX
                + 8
                + created.key.len()
                + created.content_type.len()
                + created.attributes.len()
                + 2 * VARINT_BYTES_MAX
        }
        Event::StreamDeleted { .. } => VARINT_BYTES_MAX,
        Event::Renewed { .. } => 2 * VARINT_BYTES_MAX,
        Event::AttributesSet { attributes, .. } => 2 * VARINT_BYTES_MAX + attributes.len(),
        Event::SnapshotPublished(snapshot) => {
            6 * VARINT_BYTES_MAX
                + snapshot.digest.len()
                + snapshot.content_type.len()
                + PART_BYTES_MAX * snapshot.parts.len()
        }
        Event::Retained { .. } => 3 * VARINT_BYTES_MAX,
        Event::Skipped { .. } => 4 * VARINT_BYTES_MAX,
        Event::ProducerRuns(producer) => {
            5 * VARINT_BYTES_MAX + producer.id.len() + 3 * VARINT_BYTES_MAX * producer.runs.len()
        }
        Event::BucketCreated { bucket, .. } | Event::BucketDeleted { bucket, .. } => {
            2 * VARINT_BYTES_MAX + bucket.len()
        }
    }
}

/// Bytes of one named part: four numbers of 32 bits.
const PART_BYTES_MAX: usize = 4 * 5;
/// Bytes of the meta part of a chunk entry, at most.
pub const CHUNK_META_BYTES_MAX: usize = VARINT_BYTES_MAX;

#[inline]
fn appended_bytes_max(append: &Appended<'_>) -> usize {
    let lengths = match append.lengths {
        Lengths::Uniform { .. } => VARINT_BYTES_MAX,
        Lengths::Each(list) => {
            VARINT_BYTES_MAX + list.iter().map(|len| varint_bytes(u64::from(*len))).sum::<usize>()
        }
    };
    let parts = match append.payload {
        Payload::Here(_) => 0,
        Payload::Parts(parts) => VARINT_BYTES_MAX + parts.len() * PART_BYTES_MAX,
    };
    let producer = append.producer.map_or(0, |producer| 3 * VARINT_BYTES_MAX + producer.id.len());
    let stream_seq = append.stream_seq.map_or(0, |seq| VARINT_BYTES_MAX + seq.len());
    2 * VARINT_BYTES_MAX + lengths + parts + producer + stream_seq
}

/// Encodes an event into the start of `out`. `number_of` gives the number on disk of a segment in the log's
/// table (asked only for payloads in parts). Panics if `out` is shorter than needed: room is checked with
/// [`meta_bytes_max`] before.
#[inline]
pub fn encode(event: &Event<'_>, number_of: impl Fn(u32) -> u32, out: &mut [u8]) -> Coded {
    match event {
        Event::Appended(append) => encode_appended(append, number_of, out),
        _ => encode_other(event, number_of, out),
    }
}

/// Adds the time of its first writing to an entry whose meta part was encoded into the start of `out`; room checks count
/// [`TIME_BYTES`] for it.
pub fn add_time(coded: &mut Coded, time_ms: u64, out: &mut [u8]) {
    assert_eq!(coded.flags & TIMED, 0, "an entry has one time");
    out[coded.meta_bytes..coded.meta_bytes + TIME_BYTES].copy_from_slice(&time_ms.to_le_bytes());
    coded.meta_bytes += TIME_BYTES;
    coded.flags |= TIMED;
}

/// The time in an entry's meta part, if it has one of its own.
#[inline]
pub fn own_time_ms(flags: u8, meta: &[u8]) -> Option<u64> {
    if flags & TIMED == 0 { None } else { meta.last_chunk().map(|bytes| u64::from_le_bytes(*bytes)) }
}

/// Encodes the meta part of a chunk entry.
pub fn encode_chunk(lineage: u64, out: &mut [u8]) -> Coded {
    let mut put = Put { out, at: 0 };
    put.varint(lineage);
    Coded { kind: Kind::Chunk, flags: 0, meta_bytes: put.at, stem: None }
}

fn encode_appended(append: &Appended<'_>, number_of: impl Fn(u32) -> u32, out: &mut [u8]) -> Coded {
    let mut put = Put { out, at: 0 };
    let mut flags = 0;
    put.varint(append.lineage);
    put.varint(append.start);
    let stem_bytes = put.at;
    let total = put_lengths(&mut put, &mut flags, append.lengths);
    if append.closed {
        flags |= APPEND_CLOSED;
    }
    if let Some(producer) = append.producer {
        flags |= APPEND_PRODUCER;
        put.bytes(producer.id);
        put.varint(producer.epoch);
        put.varint(producer.seq);
    }
    if let Some(seq) = append.stream_seq {
        flags |= APPEND_STREAM_SEQ;
        put.bytes(seq);
    }
    if let Payload::Parts(parts) = append.payload {
        flags |= APPEND_PARTS;
        let sum = put_parts(&mut put, parts, number_of);
        assert_eq!(sum, total, "the parts hold the records and nothing else");
    }
    let stem =
        Stem { lineage: append.lineage, start: append.start, end: append.start + total, bytes: stem_bytes };
    Coded { kind: Kind::Appended, flags, meta_bytes: put.at, stem: Some(stem) }
}

/// Writes record lengths in their shortest form and returns their sum.
#[inline]
fn put_lengths(put: &mut Put<'_>, flags: &mut u8, lengths: Lengths<'_>) -> u64 {
    let (len, count) = match lengths {
        Lengths::Uniform { len, count } => (len, u64::from(count)),
        Lengths::Each([]) => (0, 0),
        Lengths::Each(list) => {
            if list.iter().any(|len| *len != list[0]) {
                return put_each(put, flags, list);
            }
            (list[0], list.len() as u64)
        }
    };
    assert!(count == 0 || len > 0, "a record has at least one byte ({count} records of {len})");
    match count {
        0 => *flags |= LENGTHS_NONE,
        1 => *flags |= LENGTHS_ONE,
        _ => {
            *flags |= LENGTHS_UNIFORM;
            put.varint(count);
        }
    }
    u64::from(len) * count
}

fn put_each(put: &mut Put<'_>, flags: &mut u8, list: &[u32]) -> u64 {
    *flags |= LENGTHS_EACH;
    put.varint(list.len() as u64);
    let mut total = 0;
    for len in list {
        assert!(*len > 0, "a record has at least one byte");
        put.varint(u64::from(*len));
        total += u64::from(*len);
    }
    total
}

/// Names parts, and returns the bytes that they hold.
fn put_parts(put: &mut Put<'_>, parts: &[Part], number_of: impl Fn(u32) -> u32) -> u64 {
    put.varint(parts.len() as u64);
    let mut sum = 0;
    for part in parts {
        put.varint(u64::from(number_of(part.place.segment)));
        put.varint(u64::from(part.place.position));
        put.varint(u64::from(part.place.back));
        put.varint(u64::from(part.len));
        sum += u64::from(part.len);
    }
    sum
}

/// What `decode` needs to know of an entry beside its meta part.
#[derive(Clone, Copy, Debug)]
pub struct Coding<'a> {
    /// Number of the kind on disk.
    pub kind: u8,
    /// Flags of the entry.
    pub flags: u8,
    /// Bytes of its payload.
    pub payload_bytes: u32,
    /// Index in the log's table of the segment that holds it.
    pub segment: u32,
    /// Position of the entry's first byte in the file.
    pub position: u32,
    /// Stem of an append whose meta part has none (a footer left it out).
    pub stem: Option<(u64, u64)>,
    /// Meta part.
    pub meta: &'a [u8],
}

impl<'a> Coding<'a> {
    /// The flags that the kind defines, and the meta part without a time of its own.
    #[inline]
    fn own(&self) -> Result<(u8, &'a [u8]), DecodeError> {
        if self.flags & TIMED == 0 {
            return Ok((self.flags, self.meta));
        }
        let bytes = self.meta.len().checked_sub(TIME_BYTES).ok_or(DecodeError::Cut)?;
        Ok((self.flags & !TIMED, &self.meta[..bytes]))
    }
}

/// An entry of the log, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Something happened.
    Event(Event<'a>),
    /// A part of a large payload; garbage unless a later append names it.
    Chunk {
        /// Lineage of the stream it is meant for.
        lineage: u64,
        /// The bytes.
        part: Part,
    },
}

/// Decodes an entry.
#[inline]
pub fn decode<'a>(
    coding: &Coding<'a>,
    index_of: &SegmentIndex<'_>,
    scratch: &'a mut DecodeScratch,
) -> Result<Entry<'a>, DecodeError> {
    if coding.kind == Kind::Appended as u8 {
        return Ok(Entry::Event(Event::Appended(decode_appended(coding, index_of, scratch)?)));
    }
    decode_other(coding, index_of, scratch)
}

#[inline]
fn decode_appended<'a>(
    coding: &Coding<'a>,
    index_of: &SegmentIndex<'_>,
    scratch: &'a mut DecodeScratch,
) -> Result<Appended<'a>, DecodeError> {
    let (flags, meta) = coding.own()?;
    if flags & !(APPEND_CLOSED | APPEND_PRODUCER | APPEND_STREAM_SEQ | APPEND_PARTS | APPEND_LENGTHS) != 0 {
        return Err(DecodeError::UnknownFlags(coding.kind, flags));
    }
    let mut get = Get { rest: meta };
    let (stem_bytes, (lineage, start)) = match coding.stem {
        Some(stem) => (varint_bytes(stem.0) + varint_bytes(stem.1), stem),
        None => (0, (get.varint()?, get.varint()?)),
    };
    let back = entry_back_bytes(stem_bytes + coding.meta.len(), coding.payload_bytes as usize);
    let DecodeScratch { lengths: list, parts, .. } = scratch;
    let coded = get_lengths(&mut get, flags, list)?;
    let producer = match flags & APPEND_PRODUCER {
        0 => None,
        _ => Some(Producer { id: get.bytes()?, epoch: get.varint()?, seq: get.varint()? }),
    };
    let stream_seq = if flags & APPEND_STREAM_SEQ == 0 { None } else { Some(get.bytes()?) };
    let (payload, total) = if flags & APPEND_PARTS == 0 {
        let place = Place {
            segment: coding.segment,
            position: coding.position.wrapping_add(back as u32),
            back: back as u32,
        };
        (Payload::Here(place), u64::from(coding.payload_bytes))
    } else if coding.payload_bytes != 0 {
        return Err(DecodeError::Payload);
    } else {
        let total = get_parts(&mut get, parts, index_of)?;
        (Payload::Parts(parts), total)
    };
    get.end()?;
    let lengths = coded.resolve(total, list)?;
    if start.checked_add(total).is_none() {
        return Err(DecodeError::Lengths);
    }
    let closed = flags & APPEND_CLOSED != 0;
    Ok(Appended { lineage, start, lengths, producer, stream_seq, closed, payload })
}

/// Record lengths as read, before the payload's total is known.
enum CodedLengths {
    None,
    Uniform { count: u32 },
    Each { total: u64 },
}

impl CodedLengths {
    #[inline]
    fn resolve(self, total: u64, list: &[u32]) -> Result<Lengths<'_>, DecodeError> {
        match self {
            CodedLengths::None if total == 0 => Ok(Lengths::NONE),
            CodedLengths::Uniform { count: 1 } if total > 0 => match u32::try_from(total) {
                Ok(len) => Ok(Lengths::Uniform { len, count: 1 }),
                Err(_) => Err(DecodeError::Lengths),
            },
            CodedLengths::Uniform { count } if total > 0 && total.is_multiple_of(u64::from(count)) => {
                match u32::try_from(total / u64::from(count)) {
                    Ok(len) => Ok(Lengths::Uniform { len, count }),
                    Err(_) => Err(DecodeError::Lengths),
                }
            }
            CodedLengths::Each { total: sum } if sum == total => Ok(Lengths::Each(list)),
            _ => Err(DecodeError::Lengths),
        }
    }
}

#[inline]
fn get_lengths(get: &mut Get<'_>, flags: u8, list: &mut Vec<u32>) -> Result<CodedLengths, DecodeError> {
    match flags & APPEND_LENGTHS {
        LENGTHS_NONE => Ok(CodedLengths::None),
        LENGTHS_ONE => Ok(CodedLengths::Uniform { count: 1 }),
        LENGTHS_UNIFORM => match u32::try_from(get.varint()?) {
            Ok(count) if count >= 2 => Ok(CodedLengths::Uniform { count }),
            _ => Err(DecodeError::Lengths),
        },
        _ => get_each(get, list),
    }
}

fn get_each(get: &mut Get<'_>, list: &mut Vec<u32>) -> Result<CodedLengths, DecodeError> {
    let count = get.varint()?;
    // Each length takes a byte at least: a count beyond that must not reserve memory.
    if count < 2 || count > get.rest.len() as u64 {
        return Err(DecodeError::Lengths);
    }
    list.clear();
    list.reserve(count as usize);
    let mut total = 0;
    for _ in 0..count {
        match u32::try_from(get.varint()?) {
            Ok(len) if len > 0 => {
                list.push(len);
                total += u64::from(len);
            }
            _ => return Err(DecodeError::Lengths),
        }
    }
    Ok(CodedLengths::Each { total })
}

fn get_parts(
    get: &mut Get<'_>,
    parts: &mut Vec<Part>,
    index_of: &SegmentIndex<'_>,
) -> Result<u64, DecodeError> {
    let count = get.varint()?;
    if count > get.rest.len() as u64 {
        return Err(DecodeError::Cut);
    }
    parts.clear();
    let mut total = 0;
    for _ in 0..count {
        let number = get.u32()?;
        // Settling removes a segment only when nothing in it is needed any more: so neither is what names it.
        let segment = index_of(number).unwrap_or(SEGMENT_GONE);
        let (position, back, len) = (get.u32()?, get.u32()?, get.u32()?);
        parts.push(Part { place: Place { segment, position, back }, len });
        total += u64::from(len);
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
