//! The index against the plain list of extents that it stands for, and what it costs.

use proptest::prelude::*;

use super::*;

/// How the next extent lies, seen from the one before.
#[derive(Clone, Debug)]
enum Next {
    /// The following bytes of the same payload.
    SamePayload { len: u32 },
    /// A later entry of the same segment.
    After { gap: u32, back: u32, len: u32 },
    /// Anywhere.
    Elsewhere { place: Place, len: u32 },
}

fn next() -> impl Strategy<Value = Next> {
    let len = || prop_oneof![4 => Just(256u32), 4 => 1u32..600, 1 => 1u32..1 << 22];
    let back = prop_oneof![4 => Just(48u32), 1 => 30u32..100, 1 => any::<u32>()];
    let gap = prop_oneof![4 => 0u32..20_000, 1 => 0u32..1 << 24];
    let place = (0u32..3, any::<u32>(), any::<u32>()).prop_map(|(segment, position, back)| Place {
        segment,
        position,
        back,
    });
    prop_oneof![
        1 => len().prop_map(|len| Next::SamePayload { len }),
        8 => (gap, back, len()).prop_map(|(gap, back, len)| Next::After { gap, back, len }),
        1 => (place, len()).prop_map(|(place, len)| Next::Elsewhere { place, len }),
    ]
}

/// Extents as pushed, each with its start; positions wrap, as they never do in a segment.
fn laid_out(start: u64, nexts: &[Next]) -> Vec<(u64, Extent)> {
    let mut extents: Vec<(u64, Extent)> = Vec::new();
    let (mut start, mut before) = (start, Extent::default());
    for next in nexts {
        let Place { segment, position, back } = before.place;
        let (place, len) = match *next {
            Next::SamePayload { len } => {
                let (position, back) = (position.wrapping_add(before.len), back.wrapping_add(before.len));
                (Place { segment, position, back }, len)
            }
            Next::After { gap, back, len } => {
                (Place { segment, position: position.wrapping_add(before.len).wrapping_add(gap), back }, len)
            }
            Next::Elsewhere { place, len } => (place, len),
        };
        before = Extent { place, len };
        extents.push((start, before));
        start += u64::from(len);
    }
    extents
}

/// What the list says about a range: for each byte range, the entry's payload position and back.
fn bytes_of(extents: &[(u64, Extent)], from: u64, to: u64) -> Vec<(u32, u64, u64, u64)> {
    let mut bytes = Vec::new();
    for (start, Extent { place, len }) in extents {
        let (low, high) = (from.max(*start), to.min(start + u64::from(*len)));
        if low < high {
            let into = low - start;
            let at =
                (place.segment, u64::from(place.position) + into, u64::from(place.back) + into, high - low);
            bytes.push(at);
        }
    }
    joined(bytes)
}

/// Neighbours that are one range of the same payload, as one.
fn joined(pieces: Vec<(u32, u64, u64, u64)>) -> Vec<(u32, u64, u64, u64)> {
    let mut out: Vec<(u32, u64, u64, u64)> = Vec::new();
    for (segment, position, back, len) in pieces {
        match out.last_mut() {
            Some(last) if (last.0, last.1 + last.3, last.2 + last.3) == (segment, position, back) => {
                last.3 += len
            }
            _ => out.push((segment, position, back, len)),
        }
    }
    out
}

fn flat(piece: Piece) -> (u32, u64, u64, u64) {
    assert!(piece.len > 0, "a piece has bytes: {piece:?}");
    assert!(u64::from(piece.from) + u64::from(piece.len) <= u64::from(piece.extent_len), "within: {piece:?}");
    let from = u64::from(piece.from);
    let Place { segment, position, back } = piece.place;
    (segment, u64::from(position) + from, u64::from(back) + from, u64::from(piece.len))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn it_answers_like_the_list(
        start in prop_oneof![Just(0u64), 0u64..1 << 40],
        nexts in prop::collection::vec(next(), 0..150),
        ranges in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 20),
        forgotten in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let extents = laid_out(start, &nexts);
        let mut index = ExtentIndex::new();
        for (start, extent) in &extents {
            index.push(*start, u64::from(extent.len), extent.place);
        }
        let end = extents.last().map_or(0, |(start, extent)| start + u64::from(extent.len));
        prop_assert_eq!(index.end(), end);
        prop_assert_eq!(index.start(), extents.first().map_or(0, |(start, _)| *start));
        // What lies before the forgotten part is never asked for.
        if let Some(forgotten) = forgotten {
            let before = bounds_before(&extents, forgotten);
            index.forget_before(before);
            prop_assert!(index.start() <= before);
            prop_assert_eq!(index.end(), end);
        }
        let mut bounds: Vec<u64> = extents.iter().map(|(start, _)| *start).collect();
        bounds.push(end);
        for (from, to) in ranges {
            // Ranges that start and end at, before and after bounds.
            for nudge in [0, 1] {
                let from = bounds[from.index(bounds.len())].saturating_sub(nudge).max(index.start());
                let to = (bounds[to.index(bounds.len())] + nudge).min(end).max(index.start());
                let (from, to) = (from.min(to), from.max(to));
                let pieces: Vec<_> = index.pieces(from, to).map(flat).collect();
                prop_assert_eq!(joined(pieces), bytes_of(&extents, from, to), "bytes {} to {}", from, to);
            }
        }
    }
}

/// One step in the life of an index that settling works on.
#[derive(Clone, Debug)]
enum Step {
    Push(Vec<Next>),
    /// From one extent to another, into so many parts.
    Relocate(prop::sample::Index, prop::sample::Index, usize),
    Forget(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec(next(), 1..60).prop_map(Step::Push),
        3 => (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1usize..5)
            .prop_map(|(from, to, parts)| Step::Relocate(from, to, parts)),
        1 => any::<prop::sample::Index>().prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn rewritten_extents_are_found_where_they_lie_now(steps in prop::collection::vec(step(), 1..12)) {
        let mut index = ExtentIndex::new();
        let mut model: Vec<(u64, Extent)> = Vec::new();
        let (mut first, mut moves) = (0, 0u32);
        for step in steps {
            let end = index.end();
            match step {
                Step::Push(nexts) => {
                    for (start, extent) in laid_out(end, &nexts) {
                        index.push(start, u64::from(extent.len), extent.place);
                        model.push((start, extent));
                    }
                }
                Step::Relocate(from, to, count) if !model.is_empty() => {
                    let (from, to) = (from.index(model.len()), to.index(model.len()));
                    let (from, to) = (from.min(to), from.max(to) + 1);
                    let (start, stop) = (model[from].0, model[to - 1].0 + u64::from(model[to - 1].1.len));
                    let mut parts = Vec::new();
                    let mut left = (stop - start) as u32;
                    for number in (1..=count as u32).rev() {
                        let len = left / number;
                        moves += 1;
                        let place = Place { segment: 100 + moves % 3, position: 5000 * moves, back: 40 };
                        parts.extend((len > 0).then_some(Part { place, len }));
                        left -= len;
                    }
                    index.relocate(first, start, &parts);
                    let mut at = start;
                    let moved: Vec<_> = parts
                        .iter()
                        .map(|part| {
                            at += u64::from(part.len);
                            (at - u64::from(part.len), Extent { place: part.place, len: part.len })
                        })
                        .collect();
                    model.splice(from..to, moved);
                }
                Step::Relocate(..) => {}
                Step::Forget(at) => {
                    first = bounds_before(&model, at).max(first);
                    index.forget_before(first);
                }
            }
            let end = index.end();
            prop_assert!(index.start() <= first.max(index.start()) && index.start() <= end);
            let bounds = model.iter().map(|(start, _)| *start).chain([end]);
            let bounds: Vec<u64> = bounds.filter(|bound| *bound >= first).collect();
            for pair in bounds.windows(2) {
                for (from, to) in [(pair[0], pair[1]), (pair[0].max(first), end), (first.min(end), pair[1])] {
                    let pieces: Vec<_> = index.pieces(from, to).map(flat).collect();
                    prop_assert_eq!(joined(pieces), bytes_of(&model, from, to), "bytes {} to {}", from, to);
                }
            }
        }
    }
}

#[test]
fn rewritten_extents_cost_next_to_nothing() {
    let mut index = ExtentIndex::new();
    for at in 0..100_000 {
        index.push(256 * at, 256, Place { position: 8192 + 300 * at as u32, ..HERE });
    }
    let before = index.memory_bytes();
    let parts: Vec<Part> = (0..90)
        .map(|number| Part { place: Place { position: 300_000 * number, ..HERE }, len: 256_000 })
        .collect();
    index.relocate(0, 0, &parts);
    assert!(index.memory_bytes() < before / 5, "{} of {before} bytes are left", index.memory_bytes());
}

/// A place somewhere in an extent, or the end.
fn bounds_before(extents: &[(u64, Extent)], index: prop::sample::Index) -> u64 {
    let end = extents.last().map_or(0, |(start, extent)| start + u64::from(extent.len));
    let bound = extents.get(index.index(extents.len() + 1)).map_or(end, |(start, _)| *start);
    (bound + 1).min(end)
}

#[test]
fn forgetting_gives_memory_back_and_goes_on() {
    let mut index = ExtentIndex::new();
    for at in 0..100_000 {
        index.push(256 * at, 256, Place { position: 8192 + 300 * at as u32, ..HERE });
    }
    let before = index.memory_bytes();
    index.forget_before(256 * 90_000 + 7);
    assert!(index.memory_bytes() < before / 5, "{} of {before} bytes are left", index.memory_bytes());
    let piece = index.pieces(256 * 90_000 + 7, 256 * 90_000 + 9).next().expect("a piece");
    assert_eq!((piece.place.position, piece.from, piece.len), (8192 + 300 * 90_000, 7, 2));
    index.forget_before(256 * 200_000);
    assert_eq!((index.start(), index.end()), (256 * 200_000, 256 * 200_000));
    index.push(256 * 200_000, 10, HERE);
    assert_eq!(index.pieces(256 * 200_000, 256 * 200_000 + 10).count(), 1);
    assert_eq!(index.memory_bytes(), size_of::<ExtentIndex>());
}

const HERE: Place = Place { segment: 1, position: 8192, back: 48 };

#[test]
fn one_entry_is_one_extent() {
    let mut index = ExtentIndex::new();
    index.push(0, 100, HERE);
    index.push(100, 50, Place { position: 8292, back: 148, ..HERE });
    let whole = Piece { place: HERE, extent_len: 150, from: 10, len: 130 };
    assert_eq!(index.pieces(10, 140).collect::<Vec<_>>(), [whole]);
    assert_eq!(index.memory_bytes(), size_of::<ExtentIndex>(), "one extent owns no heap");
    // A neighbour in the file that belongs to another entry has its own checksums.
    index.push(150, 50, Place { position: 8342, ..HERE });
    assert_eq!(index.pieces(0, 200).count(), 2);
    index.push(200, 7, Place { position: 8392, back: 98, ..HERE });
    let longer = Piece { place: Place { position: 8342, ..HERE }, extent_len: 57, from: 49, len: 8 };
    assert_eq!(index.pieces(199, 207).collect::<Vec<_>>(), [longer], "the last of many grows as well");
}

#[test]
fn nothing_to_add_and_nothing_to_read() {
    let mut index = ExtentIndex::new();
    assert_eq!(index.pieces(0, 0).next(), None);
    assert_eq!(index.pieces(9, 9).next(), None, "a stream may be trimmed to its end");
    index.push(0, 0, HERE);
    assert_eq!(index.memory_bytes(), size_of::<ExtentIndex>());
    index.push(500, 1, HERE);
    assert_eq!((index.start(), index.end()), (500, 501), "the first extent may start anywhere");
}

/// The place of one stream's n-th append, when `streams` streams append in turn.
fn interleaved(streams: u64, entry_bytes: u64, append: u64, len: u32) -> Place {
    let at = append * streams * entry_bytes + u64::from(len) % 7;
    let segment_bytes = 256 * 1024 * 1024;
    Place { segment: (at / segment_bytes) as u32, position: (at % segment_bytes) as u32, back: 47 + len % 2 }
}

#[test]
fn an_interleaved_append_costs_at_most_eight_bytes() {
    for (streams, entry_bytes) in [(1, 4096), (64, 320), (1_000, 320), (10_000, 320), (1_000, 4096)] {
        let mut index = ExtentIndex::new();
        let mut start = 0;
        for append in 0..100_000_u32 {
            let len = 129 + (append.wrapping_mul(0x9e37_79b9) >> 8) % 128;
            index.push(start, u64::from(len), interleaved(streams, entry_bytes, u64::from(append), len));
            start += u64::from(len);
            let (bytes, count) = (index.memory_bytes() as f64, f64::from(append + 1));
            assert!(bytes <= 8.0 * count + 1024.0, "{streams} streams: {bytes} bytes for {count} extents");
            assert!(
                count < 2_000.0 || bytes <= 8.0 * count,
                "{streams} streams: {bytes} bytes for {count} extents"
            );
        }
    }
}

#[test]
fn a_few_extents_are_small() {
    let mut index = ExtentIndex::new();
    for append in 0..4 {
        index.push(append * 256, 256, interleaved(64, 320, append, 256));
    }
    assert!(index.memory_bytes() <= 32 + 112 + 16, "{} bytes for 4 extents", index.memory_bytes());
}

#[test]
#[should_panic(expected = "no hole between them: start 11, end 10")]
fn a_hole_is_refused() {
    let mut index = ExtentIndex::new();
    index.push(0, 10, HERE);
    index.push(11, 1, HERE);
}

#[test]
#[should_panic(expected = "bytes 0 to 11 are not within 0 to 10")]
fn a_range_beyond_the_end_is_refused() {
    let mut index = ExtentIndex::new();
    index.push(0, 10, HERE);
    index.pieces(0, 11);
}
