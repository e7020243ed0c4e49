//! Bytes of a stream: how far a page reaches, and where its bytes come from.
//!
//! Recent bytes are copied from commits that are still in memory, once, straight to where they are wanted. Anything else
//! is read from disk, coalesced and verified, by a future.

use crate::shard::Shard;
use crate::shard::stream::{Start, Stream};
use crate::storage::log::Held;

/// The end of a page that starts at `from` and holds about `page_bytes`: exact on a byte stream, on a record boundary of a
/// JSON stream, where it holds at least one record and at most `records_max` (decision 13; extension 6.6).
pub fn page_end(stream: &Stream, from: Start, page_bytes: u64, records_max: u64) -> Start {
    let tail = stream.durable;
    let limit = from.bytes.saturating_add(page_bytes);
    if !stream.is_json() {
        return Start { bytes: limit.min(tail.bytes), records: from.records };
    }
    assert!(records_max > 0, "a page of no records leads nowhere");
    let records = from.records.saturating_add(records_max);
    let end = if records < tail.records {
        Start { bytes: stream.index.offset_of(records), records }
    } else {
        Start { bytes: tail.bytes, records: tail.records }
    };
    if end.bytes <= limit {
        return end;
    }
    let last = stream.index.locate(limit);
    if last.start > from.bytes {
        return Start { bytes: last.start, records: last.ordinal };
    }
    Start { bytes: stream.index.offset_of(last.ordinal + 1), records: last.ordinal + 1 }
}

/// Appends the bytes `from..to` to `out` if all of them are in memory; else leaves `out` as it was.
pub fn copy_cached(shard: &Shard, stream: &Stream, from: u64, to: u64, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    for piece in stream.extents.pieces(from, to) {
        let Some(bytes) = shard.log.cached(piece.place, piece.from, piece.len) else {
            out.truncate(before);
            return false;
        };
        out.extend_from_slice(&bytes);
    }
    assert_eq!((out.len() - before) as u64, to - from, "the extents of stream {} cover it", stream.lineage);
    true
}

/// Where the bytes `from..to` lie, for a read from disk.
pub fn pieces(shard: &Shard, stream: &Stream, from: u64, to: u64) -> Held {
    shard.log.hold(stream.extents.pieces(from, to).collect())
}
