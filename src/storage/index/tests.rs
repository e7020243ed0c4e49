//! The index against the plain list of lengths that it stands for, and what it costs.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Push {
    One(u32),
    Run { len: u32, count: u32 },
    Each(Vec<u32>),
}

impl Push {
    fn apply(&self, index: &mut RecordIndex, model: &mut Vec<u32>) {
        match self {
            Push::One(len) => {
                index.push(*len);
                model.push(*len);
            }
            Push::Run { len, count } => {
                index.push_many(Lengths::Uniform { len: *len, count: *count });
                model.extend(std::iter::repeat_n(*len, *count as usize));
            }
            Push::Each(lengths) => {
                index.push_many(Lengths::Each(lengths));
                model.extend_from_slice(lengths);
            }
        }
    }
}

fn len() -> impl Strategy<Value = u32> {
    // Few distinct lengths make runs; the largest make blocks whose distances leave 32 bits.
    prop_oneof![
        4 => Just(256u32),
        2 => Just(257u32),
        3 => 1u32..600,
        1 => 1u32..100_000,
        1 => u32::MAX - 10..=u32::MAX,
    ]
}

fn push() -> impl Strategy<Value = Push> {
    prop_oneof![
        3 => len().prop_map(Push::One),
        1 => (len(), 0u32..200).prop_map(|(len, count)| Push::Run { len, count }),
        1 => (len(), prop_oneof![RUN_MIN - 1..RUN_MIN + 2, 63u32..66])
            .prop_map(|(len, count)| Push::Run { len, count }),
        1 => prop::collection::vec(len(), 0..100).prop_map(Push::Each),
        1 => (len(), 60usize..140).prop_map(|(len, count)| Push::Each(vec![len; count])),
    ]
}

#[test]
fn forgetting_gives_memory_back() {
    let mut index = RecordIndex::new();
    (0..1_000_000u32).for_each(|at| index.push(200 + at % 100));
    let before = index.memory_bytes();
    index.forget_before(900_000);
    let after = index.memory_bytes();
    assert!(after < before / 8, "{after} of {before} bytes are left for a tenth of the records");
    index.forget_before(1_000_000);
    assert_eq!(index.memory_bytes(), size_of::<RecordIndex>());
}

/// Every question, at every record and at both sides of every boundary.
fn assert_same(index: &RecordIndex, model: &[u32]) {
    assert_eq!(index.count(), model.len() as u64, "count");
    assert_eq!(index.end(), model.iter().map(|len| u64::from(*len)).sum::<u64>(), "end");
    let mut start = 0;
    for (ordinal, len) in model.iter().enumerate() {
        let ordinal = ordinal as u64;
        assert_eq!(index.offset_of(ordinal), start, "offset of ordinal {ordinal}");
        let at = |offset| (offset, Located { ordinal, start, is_boundary: offset == start });
        let last = start + u64::from(*len) - 1;
        for (offset, located) in [at(start), at(start + u64::from(*len) / 2), at(last)] {
            assert_eq!(index.locate(offset), located, "offset {offset}");
        }
        start += u64::from(*len);
    }
    assert_eq!(index.offset_of(index.count()), start, "offset of the next record");
    let end = Located { ordinal: index.count(), start, is_boundary: true };
    assert_eq!(index.locate(start), end, "the end is a boundary");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_left_answers_as_before(
        pushes in prop::collection::vec(push(), 1..60),
        more in prop::collection::vec(push(), 0..20),
        from in any::<prop::sample::Index>(),
        skipped in prop::option::of((0u64..1 << 40, 0u64..1 << 40)),
    ) {
        let (mut index, mut model) = (RecordIndex::new(), Vec::new());
        pushes.iter().for_each(|push| push.apply(&mut index, &mut model));
        let mut whole = RecordIndex::new();
        model.iter().for_each(|len| whole.push(*len));
        let mut first = from.index(model.len() + 1) as u64;
        let mut base = Point { x: 0, y: 0 };
        match skipped {
            None => index.forget_before(first),
            Some((ordinals, bytes)) => {
                base = Point { x: index.count() + ordinals, y: index.end() + bytes };
                index.skip_to(base.x, base.y);
                (whole, first) = (RecordIndex::new(), 0);
                prop_assert_eq!(index.offset_of(base.x), base.y);
                prop_assert_eq!(index.lengths_from(base.x).count(), 0);
            }
        }
        let mut lengths = Vec::new();
        for push in &more {
            push.apply(&mut index, &mut lengths);
            push.apply(&mut whole, &mut Vec::new());
        }
        prop_assert_eq!((index.count(), index.end()), (base.x + whole.count(), base.y + whole.end()));
        prop_assert!(index.lengths_from(base.x + first).eq(whole.lengths_from(first)));
        for ordinal in first..=whole.count() {
            let offset = whole.offset_of(ordinal);
            prop_assert_eq!(index.offset_of(base.x + ordinal), base.y + offset);
            let expected = whole.locate(offset);
            let located = index.locate(base.y + offset);
            let expected = Located { ordinal: base.x + expected.ordinal, start: base.y + expected.start, ..expected };
            prop_assert_eq!(located, expected);
            if ordinal < whole.count() {
                let located = index.locate(base.y + whole.offset_of(ordinal + 1) - 1);
                prop_assert_eq!((located.ordinal, located.start), (base.x + ordinal, base.y + offset));
            }
        }
    }

    #[test]
    fn it_answers_like_the_list(
        pushes in prop::collection::vec(push(), 0..60),
        from in any::<prop::sample::Index>(),
    ) {
        let (mut index, mut model) = (RecordIndex::new(), Vec::new());
        for push in &pushes {
            push.apply(&mut index, &mut model);
            prop_assert_eq!(index.count(), model.len() as u64);
        }
        assert_same(&index, &model);
        prop_assert!(index.lengths_from(0).eq(model.iter().copied()));
        let from = from.index(model.len() + 1);
        let lengths = index.lengths_from(from as u64);
        prop_assert_eq!(lengths.size_hint(), (model.len() - from, Some(model.len() - from)));
        prop_assert!(lengths.eq(model[from..].iter().copied()), "lengths from {}", from);
    }

    #[test]
    fn it_does_not_matter_how_lengths_arrive(pushes in prop::collection::vec(push(), 0..40)) {
        let (mut index, mut model, mut one_by_one) = (RecordIndex::new(), Vec::new(), RecordIndex::new());
        for push in &pushes {
            push.apply(&mut index, &mut model);
        }
        model.iter().for_each(|len| one_by_one.push(*len));
        assert_same(&one_by_one, &model);
        prop_assert!(one_by_one.lengths_from(0).eq(index.lengths_from(0)));
    }
}

/// Reproducible lengths: `spread` is the width of the range around 256.
fn scattered(count: u64, spread: u64) -> impl Iterator<Item = u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (256 - spread / 2 + (state >> 33) % spread) as u32
    })
}

#[test]
fn an_empty_or_uniform_index_owns_no_heap() {
    let mut index = RecordIndex::new();
    assert_eq!(index.memory_bytes(), size_of::<RecordIndex>());
    for _ in 0..100_000 {
        index.push(256);
    }
    index.push_many(Lengths::Uniform { len: 256, count: 1_000_000 });
    index.push_many(Lengths::NONE);
    assert_eq!(index.count(), 1_100_000);
    assert_eq!(index.memory_bytes(), size_of::<RecordIndex>());
}

#[test]
fn a_small_varied_index_is_small() {
    let mut index = RecordIndex::new();
    scattered(8, 100).for_each(|len| index.push(len));
    assert!(matches!(index.shape, Shape::Varied(_)), "lengths differ");
    assert!(index.memory_bytes() <= 32 + 64 + 16, "{} bytes for 8 records", index.memory_bytes());
}

#[test]
fn a_varying_record_costs_at_most_two_and_a_half_bytes() {
    // The widest spread is a worst case: neighbours that mostly differ by more than one byte can hold.
    for (spread, settled_max) in [(2, 1.3), (64, 1.35), (128, 1.6), (256, 1.9), (510, 2.2)] {
        let mut index = RecordIndex::new();
        for (count, len) in (1..=500_000).zip(scattered(500_000, spread)) {
            index.push(len);
            if count < 20_000 || count % 61 == 0 {
                let bytes = index.memory_bytes() as f64;
                assert!(
                    bytes <= 2.5 * f64::from(count) + 1024.0,
                    "spread {spread}: {bytes} bytes for {count} records"
                );
                assert!(
                    count < 20_000 || bytes <= 2.5 * f64::from(count),
                    "spread {spread}: {bytes} for {count}"
                );
            }
        }
        let settled = index.memory_bytes() as f64 / 500_000.0;
        assert!(settled <= settled_max, "spread {spread}: {settled:.2} bytes a record at the end");
    }
}

#[test]
fn runs_of_equal_lengths_collapse() {
    let mut index = RecordIndex::new();
    index.push(100);
    for _ in 0..1_000_000 {
        index.push(256);
    }
    assert!(index.memory_bytes() <= 512, "{} bytes for one odd record and a run", index.memory_bytes());

    let mut batches = RecordIndex::new();
    for batch in 0..10_000_u32 {
        batches.push_many(Lengths::Uniform { len: 200 + batch % 100, count: 512 });
    }
    let bytes = batches.memory_bytes() as f64 / 10_000.0;
    assert!(bytes < 20.0, "{bytes:.1} bytes for each batch of 512 equal records");
}

#[test]
#[should_panic(expected = "a record has bytes")]
fn a_record_without_bytes_is_refused() {
    RecordIndex::new().push(0);
}

#[test]
#[should_panic(expected = "is beyond the end 5")]
fn an_offset_beyond_the_end_is_refused() {
    let mut index = RecordIndex::new();
    index.push(5);
    index.locate(6);
}

#[test]
#[should_panic(expected = "is beyond the count 1")]
fn an_ordinal_beyond_the_count_is_refused() {
    let mut index = RecordIndex::new();
    index.push(5);
    index.offset_of(2);
}
