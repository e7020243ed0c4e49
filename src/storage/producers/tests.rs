//! The producers against the plain list of appends that they stand for, and what they cost.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const IDS: [&[u8]; 4] = [b"a", b"b", b"order-service-1", b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"];

/// One accepted append: who, how many records, how many foreign records come before it, and whether it starts
/// an epoch.
#[derive(Clone, Debug)]
struct Append {
    producer: usize,
    records: u64,
    foreign: u64,
    epoch_step: u64,
    repeat: usize,
}

fn append() -> impl Strategy<Value = Append> {
    let records = prop_oneof![4 => Just(1u64), 1 => Just(0u64), 2 => 0u64..5, 1 => 0u64..1 << 33];
    let foreign = prop_oneof![6 => Just(0u64), 3 => 1u64..40, 1 => 0u64..1 << 33];
    let epoch_step = prop_oneof![60 => Just(0u64), 1 => 1u64..3];
    (0..IDS.len(), records, foreign, epoch_step, prop_oneof![3 => Just(1usize), 1 => 1usize..80]).prop_map(
        |(producer, records, foreign, epoch_step, repeat)| Append {
            producer,
            records,
            foreign,
            epoch_step,
            repeat,
        },
    )
}

#[derive(Default)]
struct Model {
    epoch: u64,
    first_seq: u64,
    ranges: Vec<(u64, u64)>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn they_answer_like_the_list(
        appends in prop::collection::vec(append(), 0..200),
        first_seq in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from)],
    ) {
        let (mut producers, mut model) = (Producers::new(), HashMap::<usize, Model>::new());
        let mut ordinal = 0;
        for append in &appends {
            for turn in 0..append.repeat {
                let id = IDS[append.producer];
                let first = || Model { first_seq, ..Model::default() };
                let known = model.entry(append.producer).or_insert_with(first);
                if turn == 0 {
                    ordinal += append.foreign;
                    if append.epoch_step > 0 {
                        *known = Model { epoch: known.epoch + append.epoch_step, ..Model::default() };
                    }
                }
                let seq = known.first_seq + known.ranges.len() as u64;
                producers.record(id, known.epoch, seq, ordinal, append.records);
                known.ranges.push((ordinal, append.records));
                ordinal += append.records;
                let state = ProducerState { epoch: known.epoch, last_seq: seq };
                prop_assert_eq!(producers.state(id), Some(state));
            }
        }
        prop_assert_eq!(producers.len(), model.len());
        prop_assert_eq!(producers.is_empty(), model.is_empty());
        for (producer, id) in IDS.iter().enumerate() {
            let Some(Model { epoch, first_seq, ranges }) = model.get(&producer) else {
                prop_assert_eq!(producers.state(id), None);
                prop_assert_eq!(producers.range(id, 0, 0), None);
                continue;
            };
            for (seq, range) in (*first_seq..).zip(ranges) {
                prop_assert_eq!(producers.range(id, *epoch, seq), Some(*range), "seq {}", seq);
            }
            prop_assert_eq!(producers.range(id, *epoch, first_seq + ranges.len() as u64), None);
            prop_assert_eq!(producers.range(id, epoch + 1, *first_seq), None);
            if let Some(before) = first_seq.checked_sub(1) {
                prop_assert_eq!(producers.range(id, *epoch, before), None);
            }
        }
    }
}

#[test]
fn a_close_without_data_is_a_range_without_records() {
    let mut producers = Producers::new();
    producers.record(b"a", 3, 0, 0, 1);
    producers.record(b"b", 0, 0, 1, 1);
    producers.record(b"a", 3, 1, 2, 0);
    assert_eq!(producers.range(b"a", 3, 1), Some((2, 0)), "a close without data is a range without records");
}

#[test]
fn equal_contiguous_appends_cost_nothing() {
    let mut producers = Producers::new();
    assert_eq!(producers.memory_bytes(), size_of::<Producers>());
    producers.record(b"writer-1", 0, 0, 0, 1);
    let one = producers.memory_bytes();
    assert!(one <= 8 + 32 + 80 + 64, "{one} bytes for one producer");
    for seq in 1..100_000 {
        producers.record(b"writer-1", 0, seq, seq, 1);
    }
    assert_eq!(producers.memory_bytes(), one);
}

#[test]
fn an_interleaved_append_costs_a_few_bytes() {
    for (writers, kinds, bytes_max) in [(2_u64, 1, 2.0), (31, 1, 3.0), (500, 1, 3.0), (31, 3, 4.0)] {
        let ids: Vec<Vec<u8>> = (0..writers).map(|writer| format!("writer-{writer}").into_bytes()).collect();
        let mut producers = Producers::new();
        let mut ordinal = 0;
        for seq in 0..4_000 {
            for (writer, id) in (0..).zip(&ids) {
                let records = 1 + (seq * 7 + writer) % kinds;
                producers.record(id, 0, seq, ordinal, records);
                ordinal += records;
            }
        }
        let bytes = producers.memory_bytes() as f64 / (4_000 * writers) as f64;
        assert!(bytes <= bytes_max, "{writers} writers, {kinds} kinds: {bytes:.2} bytes an append");
    }
}

#[test]
#[should_panic(expected = "sequence numbers are dense: 2 after 0")]
fn a_gap_is_refused() {
    let mut producers = Producers::new();
    producers.record(b"a", 0, 0, 0, 1);
    producers.record(b"a", 0, 2, 1, 1);
}

#[test]
#[should_panic(expected = "epochs grow: 1 after 2")]
fn an_older_epoch_is_refused() {
    let mut producers = Producers::new();
    producers.record(b"a", 2, 0, 0, 1);
    producers.record(b"a", 1, 0, 1, 1);
}

#[test]
#[should_panic(expected = "ordinal 0 after 1")]
fn overlapping_appends_are_refused() {
    let mut producers = Producers::new();
    producers.record(b"a", 0, 0, 0, 1);
    producers.record(b"a", 0, 1, 0, 1);
}
