//! From a path to the stream in its table; and the queries of reads.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use thalweg::protocol::names::{self, Route};
use thalweg::protocol::query::ReadQuery;
use thalweg::shard::placement;
use thalweg::shard::table::{Stamp, StreamId, Table, Target};
use thalweg::storage::event::{Appended, Event, Lengths, Payload, Place, StreamCreated};

use crate::{scattered, sized};

/// Seed of the placement hash.
const SEED: u64 = 7;
/// When everything happens.
const TIME_MS: u64 = 1_800_000_000_000;

#[divan::bench(args = ["/v1/stream/s-17", "/agents/s-17", "/agents/s-17/append-batch", "/agents/s%2D17"])]
fn path(bencher: Bencher<'_, '_>, path: &str) {
    let mut scratch = Vec::new();
    let key = if path.starts_with("/v1") { &b"/s-17"[..] } else { b"agents/s-17" };
    assert_eq!(key_of(path.as_bytes(), &mut scratch), key);
    bencher
        .counter(BytesCount::new(path.len()))
        .bench_local(|| names::route(black_box(path.as_bytes()), &mut scratch).is_ok());
}

#[divan::bench(args = ["offset=-1", "offset=0000000000000007_0000000000000009&live=long-poll&cursor=12345", "record=17&max_records=10"])]
fn query(bencher: Bencher<'_, '_>, query: &str) {
    let parsed = ReadQuery::parse(Some(query.as_bytes())).expect("a good query");
    assert_eq!(parsed.cursor, query.contains("cursor").then_some(12345));
    bencher
        .counter(BytesCount::new(query.len()))
        .bench_local(|| ReadQuery::parse(Some(black_box(query.as_bytes()))).is_ok());
}

/// The same 64 streams again and again.
#[divan::bench(args = [1, 10_000, 1_000_000])]
fn lookup_hot(bencher: Bencher<'_, '_>, streams: u64) {
    let streams = sized(streams);
    let paths = (0..64).map(|n| path_of(n * (streams / 64).max(1) % streams)).collect();
    lookup(bencher, streams, paths);
}

/// Streams in no order: each lookup meets others than those before.
#[divan::bench(args = [10_000, 1_000_000])]
fn lookup_cold(bencher: Bencher<'_, '_>, streams: u64) {
    let streams = sized(streams);
    let paths = scattered().take(streams as usize).map(|n| path_of(n % streams)).collect();
    lookup(bencher, streams, paths);
}

/// Appends of 256 bytes in the table: staged one by one, published by 64.
#[divan::bench(args = [64, 10_000])]
fn apply_append(bencher: Bencher<'_, '_>, streams: u64) {
    let streams = sized(streams);
    let mut table = table(streams);
    let mut position = 4096;
    let mut ends = vec![0; streams as usize];
    let mut ticket = 1;
    let mut append = |table: &mut Table| {
        for _ in 0..64 {
            ticket += 1;
            let lineage = ticket % streams + 1;
            let start = &mut ends[lineage as usize - 1];
            let event = appended(lineage, *start, Place { segment: 0, position, back: 36 });
            (position, *start) = (position + 300, *start + 256);
            table.apply(&event, Stamp { ticket, time_ms: TIME_MS }, Target::ByLineage);
        }
        position %= 1 << 30;
        table.publish(ticket, |_, _| {});
    };
    append(&mut table);
    assert_eq!(table.records(), 64);
    bencher.counter(ItemsCount::new(64usize)).bench_local(|| append(&mut table));
}

/// An append of one record of 256 bytes.
fn appended(lineage: u64, start: u64, place: Place) -> Event<'static> {
    Event::Appended(Appended {
        lineage,
        start,
        lengths: Lengths::Uniform { len: 256, count: 1 },
        producer: None,
        stream_seq: None,
        closed: false,
        payload: Payload::Here(place),
    })
}

/// Path of the stream with this number.
pub fn path_of(number: u64) -> String {
    format!("/agents/user-{number:08}")
}

fn key_of<'a>(path: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    match names::route(path, scratch) {
        Ok(Route::Stream(address) | Route::Suffix { address, .. }) => address.key,
        other => panic!("{}: {other:?}", String::from_utf8_lossy(path)),
    }
}

/// How a stream begins.
pub fn created(lineage: u64, key: &[u8]) -> StreamCreated<'_> {
    StreamCreated {
        lineage,
        placement: placement(key, SEED),
        key,
        content_type: b"application/octet-stream",
        ttl_seconds: None,
        expires_at_ms: None,
        bucket_generation: 1,
        attributes: b"",
        closed: false,
    }
}

/// A table of idle streams with lineages from 1 on.
fn table(streams: u64) -> Table {
    let mut table = Table::default();
    for number in 0..streams {
        let path = path_of(number);
        let event = Event::StreamCreated(created(number + 1, &path.as_bytes()[1..]));
        table.apply(&event, Stamp { ticket: 1, time_ms: TIME_MS }, Target::ByLineage);
    }
    table.recovered();
    table
}

fn find(table: &Table, path: &[u8], scratch: &mut Vec<u8>) -> Option<(StreamId, u64)> {
    let key = key_of(path, scratch);
    let id = table.find(placement(key, SEED), key)?;
    table.get(id).map(|stream| (id, stream.staged.bytes))
}

fn lookup(bencher: Bencher<'_, '_>, streams: u64, paths: Vec<String>) {
    let (table, mut scratch) = (table(streams), Vec::new());
    for path in &paths {
        let (id, _) = find(&table, path.as_bytes(), &mut scratch).expect("every path has its stream");
        assert_eq!(id.lineage, path[path.len() - 8..].parse::<u64>().expect("a number") + 1);
    }
    assert_eq!(find(&table, b"/agents/user-none", &mut scratch), None);
    let mut next = paths.iter().cycle();
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        let path = next.next().expect("paths without end");
        find(&table, path.as_bytes(), &mut scratch)
    });
}
