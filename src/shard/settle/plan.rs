//! Which segments to rewrite: a pure choice.
//!
//! | segment | rewritten if |
//! |---|---|
//! | written by commits | its data lies in small pieces, or a quarter of the file is not in use |
//! | written by settling | half of what was kept then is not in use any more |
//! | several small ones side by side, written by settling | there are at least four of them |
//!
//! Neighbours that need it are rewritten together as long as the result fits into one segment.

use std::collections::HashMap;

use crate::storage::settle::SealedSegment;

/// Pieces below this average size make a segment worth rewriting.
const PIECE_BYTES_MIN: u64 = 64 * 1024;
/// A rewritten segment from which less than this was freed is left alone.
const FREED_BYTES_MIN: u64 = 64 * 1024;
/// So many small neighbours are made one.
const SMALL_RUN: usize = 4;
/// A rewritten segment is small below this share of a segment.
const SMALL_SHARE: u64 = 8;

/// What of a segment is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of streams and snapshots.
    pub bytes: u64,
    /// Pieces that they lie in.
    pub pieces: u64,
}

impl Usage {
    /// Adds what else is in use.
    pub fn add(&mut self, more: Usage) {
        self.bytes += more.bytes;
        self.pieces += more.pieces;
    }
}

/// The indexes of the segments to rewrite as one, in order; none if there is nothing to do. `sealed` is in the order of the list;
/// from segment `pending` on, chunks may be waiting for the entry that names them; `extra` segments are taken beyond what is
/// needed.
pub fn plan(
    sealed: &[SealedSegment],
    usage: &HashMap<u32, Usage>,
    pending: Option<u32>,
    segment_bytes: u64,
    extra: usize,
) -> Vec<u32> {
    let used = |segment: &SealedSegment| usage.get(&segment.index).copied().unwrap_or_default();
    let is_free = |segment: &SealedSegment| pending.is_none_or(|pending| segment.index < pending);
    let neighbours =
        |one: &SealedSegment, other: &SealedSegment| one.kin == other.kin && one.place + 1 == other.place;
    for group in sealed.chunk_by(neighbours) {
        let group = &group[..group.iter().take_while(|segment| is_free(segment)).count()];
        let mut from = 0;
        while from < group.len() {
            let needs = |segment: &SealedSegment| needs_rewrite(segment, used(segment));
            let is_small = |segment: &SealedSegment| {
                segment.settled_bytes.is_some()
                    && used(segment).bytes + segment.meta_bytes < segment_bytes / SMALL_SHARE
            };
            let run =
                fitting(&group[from..], segment_bytes, used, |segment| needs(segment) || is_small(segment));
            let run_from = &group[from..from + run];
            let worth = run_from.iter().any(needs) || run >= SMALL_RUN;
            if worth {
                let to = from + run + extra;
                if to > group.len() {
                    // What the last one needs is not sealed yet.
                    return Vec::new();
                }
                return group[from..to].iter().map(|segment| segment.index).collect();
            }
            from += run.max(1);
        }
    }
    Vec::new()
}

/// How many of the first segments are wanted and fit into one.
fn fitting(
    segments: &[SealedSegment],
    segment_bytes: u64,
    used: impl Fn(&SealedSegment) -> Usage,
    wanted: impl Fn(&SealedSegment) -> bool,
) -> usize {
    let mut bytes = 0;
    let fits = |segment: &&SealedSegment| {
        let more = used(segment).bytes + segment.meta_bytes;
        bytes += more;
        wanted(segment) && (bytes <= segment_bytes || bytes == more)
    };
    segments.iter().take_while(fits).count()
}

fn needs_rewrite(segment: &SealedSegment, used: Usage) -> bool {
    match segment.settled_bytes {
        Some(kept) => used.bytes + FREED_BYTES_MIN <= kept && used.bytes <= kept / 2,
        None => used.bytes < segment.file_bytes / 4 * 3 || used.bytes < PIECE_BYTES_MIN * used.pieces,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::event::HashRange;

    const MIB: u64 = 1 << 20;

    fn segment(index: u32, settled_bytes: Option<u64>) -> SealedSegment {
        SealedSegment {
            index,
            place: index as usize,
            kin: (7, HashRange::ALL),
            file_bytes: 256 * MIB,
            meta_bytes: 4096,
            settled_bytes,
        }
    }

    fn choose(segments: &[(Option<u64>, u64, u64)], pending: Option<u32>, extra: usize) -> Vec<u32> {
        let numbered = || segments.iter().enumerate().map(|(index, segment)| (index as u32, segment));
        let sealed: Vec<SealedSegment> =
            numbered().map(|(index, (settled, ..))| segment(index, *settled)).collect();
        let usage = numbered()
            .map(|(index, (_, bytes, pieces))| (index, Usage { bytes: *bytes, pieces: *pieces }))
            .collect();
        plan(&sealed, &usage, pending, 256 * MIB, extra)
    }

    #[test]
    fn segments_are_chosen_by_need() {
        let (large, small) = ((None, 250 * MIB, 250), (None, 250 * MIB, 1_000_000));
        let dead = (None, 10 * MIB, 10);
        let kept = (Some(200 * MIB), 150 * MIB, 500_000);
        let freed = (Some(200 * MIB), 90 * MIB, 500_000);
        let empty = (Some(0), 0, 0);
        type Case<'a> = (&'a [(Option<u64>, u64, u64)], &'a [u32]);
        let table: [Case<'_>; 12] = [
            (&[], &[]),
            (&[large], &[]),
            (&[small], &[0]),
            (&[large, small, large], &[1]),
            // Together they would not fit into one.
            (&[small, small], &[0]),
            (&[dead, dead, dead, large], &[0, 1, 2]),
            (&[kept, kept], &[]),
            (&[kept, freed, kept], &[1]),
            (&[freed, freed, freed], &[0, 1]),
            (&[empty, empty, empty], &[]),
            (&[empty, empty, empty, empty, kept], &[0, 1, 2, 3]),
            (&[empty, dead, empty], &[0, 1, 2]),
        ];
        for (segments, expected) in table {
            assert_eq!(choose(segments, None, 0), expected, "{segments:?}");
        }
        assert_eq!(choose(&[dead, dead, dead], Some(2), 0), [0, 1], "chunks of 2 are waiting");
        assert_eq!(choose(&[dead, dead, dead], Some(0), 0), [0; 0]);
        assert_eq!(choose(&[dead, large, large], None, 1), [0, 1]);
        assert_eq!(choose(&[dead], None, 1), [0; 0], "the next one is not sealed");
        assert_eq!(choose(&[dead, large], None, 2), [0; 0], "nor the one after it");
    }

    #[test]
    fn only_kin_is_rewritten_together() {
        let mut sealed: Vec<SealedSegment> = (0..4).map(|index| segment(index, None)).collect();
        sealed[1].kin.0 = 8;
        sealed[3].kin.1 = HashRange { start: 0, end: 5 };
        let used = (0..4).map(|index| (index, Usage { bytes: MIB, pieces: 1 })).collect();
        assert_eq!(plan(&sealed, &used, None, 256 * MIB, 0), [0]);
        sealed[1].kin.0 = 7;
        assert_eq!(plan(&sealed, &used, None, 256 * MIB, 0), [0, 1, 2]);
        // Something that is not sealed lies between.
        sealed[2].place = 9;
        assert_eq!(plan(&sealed, &used, None, 256 * MIB, 0), [0, 1]);
    }
}
