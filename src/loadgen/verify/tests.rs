use super::super::record::Id;
use super::*;

/// Two connections, three streams, two records a request: connection 0 lost its last request, connection 1 was refused its
/// first.
fn ledgers() -> Vec<Ledger> {
    let mut ledgers: Vec<Ledger> = (0..2)
        .map(|connection| Ledger::new(connection, [0, 1, 2].into(), connection as usize, false, 2))
        .collect();
    for ledger in &mut ledgers {
        for _ in 0..5 {
            ledger.begin();
        }
    }
    (0..4).for_each(|_| ledgers[0].acknowledge());
    ledgers[0].lose();
    ledgers[1].refuse();
    (0..4).for_each(|_| ledgers[1].acknowledge());
    ledgers
}

fn layout() -> Layout {
    Layout::new(3, 40, false, false, 2)
}

fn record(connection: u32, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    layout().write(&mut out, Id { connection, number, due_ns: 0 });
    out
}

/// Streams as they should be, without what was not acknowledged.
fn streams() -> Vec<Vec<Vec<u8>>> {
    let ledgers = ledgers();
    let mut streams = vec![Vec::new(); 3];
    for ledger in &ledgers {
        for number in ledger.acknowledged() {
            streams[ledger.stream_of(number) as usize].push(record(ledger.connection, number));
        }
    }
    streams
}

fn verified(streams: &[Vec<Vec<u8>>]) -> Verified {
    let mut verifier = Verifier::new(layout(), ledgers());
    for (stream, records) in streams.iter().enumerate() {
        let mut last = HashMap::new();
        records.iter().for_each(|record| verifier.record(stream as u32, &mut last, record));
        verifier.stream_read();
    }
    verifier.finish()
}

#[test]
fn what_is_right_passes() {
    let found = verified(&streams());
    assert_eq!(found, Verified { streams: 3, records: 16, bytes: 640, ..Verified::default() });
}

#[test]
fn what_was_not_acknowledged_may_be_there() {
    let mut streams = streams();
    let ledgers = ledgers();
    streams[ledgers[0].stream_of(8) as usize].push(record(0, 8));
    streams[ledgers[1].stream_of(0) as usize].insert(0, record(1, 0));
    let found = verified(&streams);
    assert_eq!((found.records, found.missing, found.different, found.first_problem), (18, 0, 0, None));
}

#[test]
fn every_wrong_is_found() {
    type Spoil = fn(&mut Vec<Vec<Vec<u8>>>);
    let table: &[(&str, u64, u64, Spoil)] = &[
        ("stream 0: record 0 of connection 0 is missing", 1, 0, |streams| drop(streams[0].remove(0))),
        ("is there twice", 0, 1, |streams| {
            let again = streams[1][0].clone();
            streams[1].push(again);
        }),
        ("is not as it was sent", 1, 1, |streams| streams[0][1][30] ^= 1),
        ("belongs to stream 1", 1, 1, |streams| {
            let moved = streams[1].remove(0);
            streams[0].push(moved);
        }),
        ("record 100 of connection 0 was never sent", 0, 1, |streams| streams[0].push(record(0, 100))),
        ("record 0 of connection 7 was never sent", 0, 1, |streams| streams[0].push(record(7, 0))),
        ("record 0 of connection 0 comes after record 1", 0, 1, |streams| streams[0].swap(0, 1)),
    ];
    for (part, missing, different, spoil) in table {
        let mut streams = streams();
        spoil(&mut streams);
        let found = verified(&streams);
        assert_eq!((found.missing, found.different), (*missing, *different), "{part}: {found:?}");
        // What is missing is found last; a record that is elsewhere is first found there.
        assert!(
            found.first_problem.as_ref().is_some_and(|problem| problem.contains(part)),
            "{part}: {found:?}"
        );
    }
}
