//! The rules of `apply` and `publish`, and a model of the two views.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::protocol::producer::ProducerState;
use crate::storage::event::{Lengths, Part, Place, Producer, ProducerRun, ProducerRuns, SnapshotPublished};

fn created<'a>(lineage: u64, key: &'a str, content_type: &'a str) -> StreamCreated<'a> {
    StreamCreated {
        lineage,
        placement: hash(key),
        key: key.as_bytes(),
        content_type: content_type.as_bytes(),
        ttl_seconds: None,
        expires_at_ms: None,
        bucket_generation: 1,
        attributes: b"",
        closed: false,
    }
}

fn appended(lineage: u64, start: u64, lengths: Lengths<'_>) -> Appended<'_> {
    Appended {
        lineage,
        start,
        lengths,
        producer: None,
        stream_seq: None,
        closed: false,
        payload: Payload::Here(Place::default()),
    }
}

/// Few values, so that names collide.
fn hash(key: &str) -> u64 {
    key.len() as u64 % 3
}

fn at(ticket: u64) -> Stamp {
    Stamp { ticket, time_ms: 1000 * ticket }
}

fn create(table: &mut Table, lineage: u64, key: &str, ticket: u64) -> StreamId {
    let event = Event::StreamCreated(created(lineage, key, "text/plain"));
    table.apply(&event, at(ticket), Target::ByLineage).expect("a create makes a stream")
}

fn append(table: &mut Table, id: StreamId, len: u32, ticket: u64) {
    let start = table.get(id).expect("it exists").staged.bytes;
    let event = Event::Appended(appended(id.lineage, start, Lengths::Uniform { len, count: 1 }));
    table.apply(&event, at(ticket), Target::Known(id));
}

fn delete(table: &mut Table, id: StreamId, ticket: u64) {
    table.apply(&Event::StreamDeleted { lineage: id.lineage }, at(ticket), Target::Known(id));
}

fn publish(table: &mut Table, ticket: u64) -> Vec<Published> {
    let mut published = Vec::new();
    table.publish(ticket, |_, each| published.push(each));
    published
}

fn end(bytes: u64, records: u64, closed: bool) -> End {
    End { bytes, records, closed }
}

#[test]
fn what_is_applied_is_staged_at_once_and_durable_when_published() {
    let mut table = Table::default();
    let id = create(&mut table, 7, "b/s", 1);
    append(&mut table, id, 5, 1);
    append(&mut table, id, 6, 2);
    let closing = Appended { closed: true, ..appended(7, 11, Lengths::NONE) };
    table.apply(&Event::Appended(closing), at(3), Target::Known(id));
    let table_of_views = [
        (0, end(0, 0, false), 1000),
        (1, end(5, 1, false), 1000),
        (1, end(5, 1, false), 1000),
        (2, end(11, 2, false), 2000),
        // A close adds no bytes: it is no write.
        (3, end(11, 2, true), 2000),
    ];
    for (ticket, durable, last_write_ms) in table_of_views {
        assert_eq!(publish(&mut table, ticket), [], "there is no reader");
        let stream = table.get(id).expect("it exists");
        assert_eq!((stream.durable, stream.last_write_ms), (durable, last_write_ms), "up to {ticket}");
        assert_eq!(stream.staged, end(11, 2, true));
        assert_eq!((stream.created_ticket, stream.last_ticket), (1, 3));
    }
}

fn retain(table: &mut Table, id: StreamId, offset: u64, record: u64, ticket: u64) {
    let event = Event::Retained { lineage: id.lineage, offset, record };
    table.apply(&event, at(ticket), Target::Known(id));
}

#[test]
fn what_retention_takes_is_there_until_it_is_durable() {
    let mut table = Table::default();
    let id = create(&mut table, 7, "b/s", 1);
    (0..200).for_each(|number| append(&mut table, id, 5 + number % 2, 1));
    publish(&mut table, 1);
    table.get_mut(id).expect("it exists").rare_mut().readers = vec![3];
    retain(&mut table, id, 550, 100, 2);
    let firsts = |table: &Table| table.get(id).expect("it exists").firsts();
    let (none, first) = (Start::default(), Start { bytes: 550, records: 100 });
    assert_eq!((firsts(&table).staged, firsts(&table).durable), (first, none));
    assert_eq!(table.get(id).expect("it exists").offset_of(50), 275);
    assert_eq!(table.records(), 200);
    assert_eq!(publish(&mut table, 2), [Published::Wake(id)], "a reader that stands before it ends");
    assert_eq!((firsts(&table).durable, table.records()), (first, 100));
    let stream = table.get(id).expect("it exists");
    assert_eq!((stream.offset_of(50), stream.offset_of(100), stream.offset_of(101)), (550, 550, 555));
    // A rewrite of the log repeats what is known.
    retain(&mut table, id, 275, 50, 3);
    publish(&mut table, 3);
    assert_eq!(firsts(&table).durable, first);
    retain(&mut table, id, 1100, 200, 4);
    append(&mut table, id, 9, 5);
    publish(&mut table, 5);
    let stream = table.get(id).expect("it exists");
    assert_eq!((stream.durable, stream.offset_of(201)), (end(1109, 201, false), 1109));
    delete(&mut table, id, 6);
    publish(&mut table, 6);
    assert_eq!(table.records(), 0);
}

#[test]
fn a_rewritten_log_goes_on_behind_what_it_dropped() {
    let mut table = Table::default();
    let id = create(&mut table, 7, "b/s", 1);
    append(&mut table, id, 20, 1);
    let gone = Event::Skipped { lineage: 7, start: 20, bytes: 480, records: 99 };
    table.apply(&gone, at(1), Target::ByLineage);
    let runs = [ProducerRun { first_ordinal: 40, records: 2, appends: 30 }];
    let producer = ProducerRuns { lineage: 7, id: b"p", epoch: 3, first_seq: 5, runs: &runs };
    table.apply(&Event::ProducerRuns(producer), at(1), Target::ByLineage);
    append(&mut table, id, 7, 1);
    let claim = Producer { id: b"p", epoch: 3, seq: 35 };
    let next = Appended { producer: Some(claim), ..appended(7, 507, Lengths::Uniform { len: 4, count: 2 }) };
    table.apply(&Event::Appended(next), at(2), Target::ByLineage);
    table.recovered();
    let stream = table.get(id).expect("it exists");
    assert_eq!((stream.durable, stream.first()), (end(515, 103, false), Start { bytes: 500, records: 100 }));
    assert_eq!(stream.producers.range(b"p", 3, 6), Some((42, 2)));
    assert_eq!(stream.producers.range(b"p", 3, 35), Some((101, 2)));
    assert_eq!(table.records(), 3);
}

#[test]
fn attributes_and_snapshots_show_when_they_are_durable() {
    let mut table = Table::default();
    let id = create(&mut table, 7, "b/s", 1);
    publish(&mut table, 1);
    table.apply(&Event::AttributesSet { lineage: 7, attributes: b"{}" }, at(2), Target::Known(id));
    let parts = [Part { place: Place::default(), len: 3 }];
    let published = SnapshotPublished {
        lineage: 7,
        offset: 0,
        record: 0,
        content_type: b"text/plain",
        digest: [1; 32],
        parts: &parts,
    };
    table.apply(&Event::SnapshotPublished(published), at(3), Target::Known(id));
    // (published up to, attributes staged and durable, whether a snapshot is staged and durable)
    for (ticket, durable, has_snapshot) in [(1, "", false), (2, "{}", false), (3, "{}", true)] {
        publish(&mut table, ticket);
        let stream = table.get(id).expect("it exists");
        let Views { staged, durable: seen } = stream.attributes();
        assert_eq!((staged, seen), (&b"{}"[..], durable.as_bytes()), "up to {ticket}");
        let snapshot = stream.snapshot();
        assert_eq!((snapshot.staged.is_some(), snapshot.durable.is_some()), (true, has_snapshot));
    }
}

#[test]
fn a_delete_keeps_the_name_until_it_is_durable() {
    let mut table = Table::default();
    let id = create(&mut table, 7, "b/s", 1);
    table.get_mut(id).expect("it exists").rare_mut().readers = vec![3, 4];
    append(&mut table, id, 5, 2);
    delete(&mut table, id, 2);
    assert_eq!(table.find(hash("b/s"), b"b/s"), Some(id));
    assert_eq!(table.get(id).and_then(|stream| stream.deleted_ticket), Some(2));
    assert_eq!(publish(&mut table, 1), [Published::Wake(id)]);
    assert_eq!(table.find(hash("b/s"), b"b/s"), Some(id));
    let gone = [Published::Leaves(id), Published::Gone { stream: id, readers: vec![3, 4] }];
    assert_eq!(publish(&mut table, 2), gone, "once, although two effects of the commit concern it");
    assert_eq!((table.find(hash("b/s"), b"b/s"), table.len(), table.records()), (None, 0, 0));
    // The next life takes the same slot, and is not taken for the one before.
    let next = create(&mut table, 8, "b/s", 3);
    assert_eq!((next.slot, table.get(id).is_none(), table.get(next).is_some()), (id.slot, true, true));
    assert_eq!(publish(&mut table, 3), []);
}

#[test]
fn readers_are_woken_once_for_each_effect_in_order() {
    let mut table = Table::default();
    let ids: Vec<StreamId> = ["b/a", "b/bb", "b/ccc"]
        .iter()
        .zip(1..)
        .map(|(key, lineage)| create(&mut table, lineage, key, 1))
        .collect();
    publish(&mut table, 1);
    for id in [ids[0], ids[2]] {
        table.get_mut(id).expect("it exists").rare_mut().readers.push(0);
    }
    for id in [ids[2], ids[1], ids[0], ids[2]] {
        append(&mut table, id, 1, 2);
    }
    append(&mut table, ids[0], 1, 3);
    let expected = [ids[2], ids[0], ids[2]].map(Published::Wake);
    assert_eq!(publish(&mut table, 2), expected);
    assert_eq!(publish(&mut table, 3), [Published::Wake(ids[0])]);
    // A renewal is nothing to see.
    table.apply(&Event::Renewed { lineage: 1, used_ms: 5 }, at(4), Target::Known(ids[0]));
    assert_eq!(publish(&mut table, 4), []);
}

#[test]
fn uses_are_recorded_as_the_log_knows_them() {
    let mut table = Table::default();
    let event =
        Event::StreamCreated(StreamCreated { ttl_seconds: Some(10), ..created(7, "b/s", "text/plain") });
    let id = table.apply(&event, at(1), Target::ByLineage).expect("made");
    let lifetime = |table: &Table| {
        let lifetime = table.get(id).and_then(|stream| stream.lifetime.as_deref()).expect("it has one");
        (lifetime.used_ms, lifetime.recorded_ms)
    };
    assert_eq!(lifetime(&table), (1000, 1000));
    // A use in memory, later than the commit that an append joins: the log does not know of it.
    table.get_mut(id).and_then(|stream| stream.lifetime.as_deref_mut()).expect("it has one").used_ms = 2900;
    append(&mut table, id, 1, 2);
    assert_eq!(lifetime(&table), (2900, 2000));
    table.apply(&Event::Renewed { lineage: 7, used_ms: 3500 }, at(3), Target::Known(id));
    assert_eq!(lifetime(&table), (3500, 3500));
    table.apply(&Event::Renewed { lineage: 7, used_ms: 3400 }, at(3), Target::Known(id));
    assert_eq!(lifetime(&table), (3500, 3500), "never back");
}

#[test]
fn content_types_are_shared_and_swept() {
    let mut table = Table::default();
    let mut ids = Vec::new();
    for lineage in 1..=5000u64 {
        let (key, content_type) = (format!("b/{lineage}"), format!("text/x-{lineage}"));
        let event = Event::StreamCreated(StreamCreated {
            placement: lineage,
            ..created(lineage, &key, &content_type)
        });
        ids.push(table.apply(&event, at(1), Target::ByLineage).expect("made"));
    }
    assert_eq!(table.content_types.len(), 5000);
    assert_eq!(create_as(&mut table, 1, 5001, "TEXT/X-1"), Kind::Text);
    assert_eq!(create_as(&mut table, 1, 5002, "Application/JSON; charset=utf-8"), Kind::Json);
    assert_eq!(create_as(&mut table, 1, 5003, "image/png"), Kind::Binary);
    for id in ids {
        delete(&mut table, id, 2);
    }
    publish(&mut table, 2);
    for lineage in 6000..12_000u64 {
        create_as(&mut table, 3, lineage, &format!("text/y-{}", lineage % 10));
    }
    for lineage in 12_000..17_000u64 {
        create_as(&mut table, 3, lineage, &format!("text/z-{lineage}"));
    }
    assert!(table.content_types.len() <= 5000 + 20, "{} of 5013 in use", table.content_types.len());
}

fn create_as(table: &mut Table, ticket: u64, lineage: u64, content_type: &str) -> Kind {
    let key = format!("b/{lineage}");
    let event =
        Event::StreamCreated(StreamCreated { placement: lineage, ..created(lineage, &key, content_type) });
    let id = table.apply(&event, at(ticket), Target::ByLineage).expect("made");
    table.get(id).expect("made").content_type.kind
}

#[test]
#[should_panic(expected = "takes a name in use")]
fn a_name_is_used_once() {
    let mut table = Table::default();
    let id = create(&mut table, 1, "b/s", 1);
    delete(&mut table, id, 2);
    create(&mut table, 2, "b/s", 2);
}

#[test]
#[should_panic(expected = "leaves a gap")]
fn an_append_goes_on_where_the_stream_ends() {
    let mut table = Table::default();
    let id = create(&mut table, 1, "b/s", 1);
    let event = Event::Appended(appended(1, 1, Lengths::Uniform { len: 1, count: 1 }));
    table.apply(&event, at(1), Target::Known(id));
}

#[test]
#[should_panic(expected = "closed stream")]
fn nothing_follows_a_close() {
    let mut table = Table::default();
    let event = Event::StreamCreated(StreamCreated { closed: true, ..created(1, "b/s", "text/plain") });
    let id = table.apply(&event, at(1), Target::ByLineage).expect("made");
    append(&mut table, id, 1, 1);
}

/// One step of a random history. Streams are named by a small number; what makes no sense just then is skipped.
#[derive(Clone, Debug)]
enum Op {
    Create(usize, bool),
    Append { name: usize, lens: Vec<u32>, close: bool, producer: Option<u8> },
    Delete(usize),
    NextCommit,
    Publish(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0usize..5;
    prop_oneof![
        2 => (name.clone(), any::<bool>()).prop_map(|(name, closed)| Op::Create(name, closed)),
        6 => (name.clone(), proptest::collection::vec(1u32..300, 0..6), 0u8..12, proptest::option::of(0u8..2))
            .prop_map(|(name, lens, close, producer)| Op::Append { name, lens, close: close == 0, producer }),
        1 => name.prop_map(Op::Delete),
        3 => Just(Op::NextCommit),
        3 => (0u64..3).prop_map(Op::Publish),
    ]
}

/// A stream as the model knows it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    lineage: u64,
    end: (u64, u64, bool),
    producers: BTreeMap<u8, u64>,
}

/// What happened, with its ticket: enough to make a view of any moment.
#[derive(Clone, Debug)]
enum Fact {
    Created { name: usize, lineage: u64, closed: bool },
    Appended { name: usize, lens: Vec<u32>, close: bool, producer: Option<(u8, u64)> },
    Deleted { name: usize },
}

fn view(facts: &[(u64, Fact)], ticket: u64) -> BTreeMap<usize, Expected> {
    let mut view: BTreeMap<usize, Expected> = BTreeMap::new();
    for (_, fact) in facts.iter().filter(|(at, _)| *at <= ticket) {
        match fact {
            Fact::Created { name, lineage, closed } => {
                let end = (0, 0, *closed);
                view.insert(*name, Expected { lineage: *lineage, end, ..Expected::default() });
            }
            Fact::Appended { name, lens, close, producer } => {
                let stream = view.get_mut(name).expect("the model appends to what exists");
                stream.end.0 += lens.iter().map(|len| u64::from(*len)).sum::<u64>();
                stream.end.1 += lens.len() as u64;
                stream.end.2 |= close;
                stream.producers.extend(*producer);
            }
            Fact::Deleted { name } => drop(view.remove(name)),
        }
    }
    view
}

fn key(name: usize) -> String {
    format!("b/{}", "n".repeat(name + 1))
}

fn apply_fact(table: &mut Table, fact: &Fact, ticket: u64, start: u64, lineage: u64, target: Target) {
    let key_text;
    let producer_id;
    let event = match fact {
        Fact::Created { name, lineage, closed } => {
            key_text = key(*name);
            Event::StreamCreated(StreamCreated {
                closed: *closed,
                ..created(*lineage, &key_text, "text/plain")
            })
        }
        Fact::Appended { lens, close, producer, .. } => {
            producer_id = [producer.map_or(0, |(id, _)| id)];
            let producer = producer.map(|(_, seq)| Producer { id: &producer_id, epoch: 1, seq });
            Event::Appended(Appended {
                closed: *close,
                producer,
                ..appended(lineage, start, Lengths::Each(lens))
            })
        }
        Fact::Deleted { .. } => Event::StreamDeleted { lineage },
    };
    table.apply(&event, at(ticket), target).expect("it concerns a stream");
}

/// The life that has a name, and whether its delete is staged: a name is free once a delete is durable.
fn holder(facts: &[(u64, Fact)], name: usize, published: u64) -> Option<(u64, bool)> {
    let mut holder = None;
    for (ticket, fact) in facts {
        match fact {
            Fact::Created { name: created, lineage, .. } if *created == name => {
                holder = Some((*lineage, false))
            }
            Fact::Deleted { name: deleted } if *deleted == name && *ticket <= published => holder = None,
            Fact::Deleted { name: deleted } if *deleted == name => {
                holder = holder.map(|(lineage, _)| (lineage, true));
            }
            _ => {}
        }
    }
    holder
}

/// Checks a table against the model at the moment at which `published` is durable.
fn check(table: &Table, facts: &[(u64, Fact)], published: u64) {
    let (durable, staged) = (view(facts, published), view(facts, u64::MAX));
    let mut present = 0;
    for name in 0..5 {
        let key = key(name);
        let found = table.find(hash(&key), key.as_bytes());
        let stream = found.and_then(|id| table.get(id));
        let going = stream.map(|stream| (stream.lineage, stream.deleted_ticket.is_some()));
        assert_eq!(going, holder(facts, name, published), "{key}");
        let Some(stream) = stream else { continue };
        present += 1;
        let (before, after) = (durable.get(&name), staged.get(&name));
        assert_eq!(stream.created_ticket <= published, before.is_some(), "{key} is visible or not");
        let ends = |end: End| (end.bytes, end.records, end.closed);
        assert_eq!(ends(stream.durable), before.map_or((0, 0, false), |stream| stream.end), "{key}");
        let Some(after) = after else { continue };
        assert_eq!(ends(stream.staged), after.end, "{key}");
        for (id, seq) in &after.producers {
            let state = ProducerState { epoch: 1, last_seq: *seq };
            assert_eq!(stream.producers.state(&[*id]), Some(state), "{key}");
        }
    }
    assert_eq!(table.len(), present);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any history: staged and durable views are what the model says at each moment, readers of a stream that goes are
    /// handed over once, and replaying the history gives the same streams.
    #[test]
    fn views_follow_the_model_and_replay_agrees(ops in proptest::collection::vec(op(), 1..100)) {
        let mut table = Table::default();
        let mut facts: Vec<(u64, Fact)> = Vec::new();
        let (mut ticket, mut published, mut next_lineage) = (1u64, 0, 1);
        let mut gone = Vec::new();
        for op in &ops {
            let name = match op {
                Op::Create(name, _) | Op::Append { name, .. } | Op::Delete(name) => *name,
                Op::NextCommit => {
                    ticket += 1;
                    continue;
                }
                Op::Publish(behind) => {
                    // The open commit is not published.
                    published = published.max((ticket - 1).saturating_sub(*behind));
                    table.publish(published, |_, each| if let Published::Gone { stream, .. } = each {
                        gone.push(stream.lineage);
                    });
                    check(&table, &facts, published);
                    continue;
                }
            };
            let found = table.find(hash(&key(name)), key(name).as_bytes());
            let stream = found.and_then(|id| table.get(id)).filter(|stream| stream.deleted_ticket.is_none());
            let fact = match (op, stream) {
                (Op::Create(_, closed), None) if found.is_none() => {
                    next_lineage += 1;
                    Fact::Created { name, lineage: next_lineage, closed: *closed }
                }
                (Op::Append { lens, close, producer, .. }, Some(stream)) if !stream.staged.closed => {
                    let seq = |id: u8| stream.producers.state(&[id]).map_or(0, |state| state.last_seq + 1);
                    let producer = producer.map(|id| (id, seq(id)));
                    Fact::Appended { name, lens: lens.clone(), close: *close, producer }
                }
                (Op::Delete(_), Some(_)) => Fact::Deleted { name },
                _ => continue,
            };
            let start = stream.map_or(0, |stream| stream.staged.bytes);
            let lineage = found.map_or(0, |id| id.lineage);
            let target = found.map_or(Target::ByLineage, Target::Known);
            apply_fact(&mut table, &fact, ticket, start, lineage, target);
            facts.push((ticket, fact));
            check(&table, &facts, published);
        }
        table.publish(u64::MAX, |_, each| if let Published::Gone { stream, .. } = each {
            gone.push(stream.lineage);
        });
        check(&table, &facts, u64::MAX);
        let deletes = facts.iter().filter(|(_, fact)| matches!(fact, Fact::Deleted { .. })).count();
        prop_assert_eq!(gone.len(), deletes, "each stream that goes is told once");

        let mut replayed = Table::default();
        let mut last = 0;
        for (index, (ticket, fact)) in facts.iter().enumerate() {
            if *ticket != last {
                replayed.publish(u64::MAX, |_, _| {});
                last = *ticket;
            }
            let (Fact::Created { name, .. } | Fact::Appended { name, .. } | Fact::Deleted { name }) = fact;
            let before = view(&facts[..index], u64::MAX).remove(name).unwrap_or_default();
            apply_fact(&mut replayed, fact, *ticket, before.end.0, before.lineage, Target::ByLineage);
        }
        replayed.recovered();
        check(&replayed, &facts, u64::MAX);
        prop_assert_eq!(replayed.records(), table.records());
    }
}
