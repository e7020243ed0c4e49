//! Settling changes nothing that a client can see: not at once, not after a restart, not after a crash at any of its steps.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::bench::{Bench, config, run};
use super::*;
use crate::shard::settle::settle_some;
use crate::storage::simulated::{SimulatedStore, Unsynced};

/// Everything that the shard knows of its streams and buckets, and the bytes themselves.
async fn dump(bench: &Bench) -> BTreeMap<String, String> {
    let shard = &bench.api.shard;
    let mut dumped = BTreeMap::new();
    let ids: Vec<StreamId> = shard.table.borrow().iter().map(|(id, _)| id).collect();
    for id in ids {
        let (key, mut text, held, snapshot) = {
            let table = shard.table.borrow();
            let stream = table.get(id).expect("just listed");
            let first = stream.first();
            let mut text = format!(
                "{id:?} created {} written {} {:?} {first:?} attributes {:?} seq {:?} type {:?}",
                stream.created_ms,
                stream.last_write_ms,
                stream.durable,
                stream.attributes().durable.escape_ascii().to_string(),
                stream.stream_seq(),
                stream.content_type.bytes.escape_ascii().to_string(),
            );
            let lengths: Vec<u32> = stream.index.lengths_from(first.records).collect();
            write!(text, " lengths {lengths:?}").expect("text");
            for producer in ["p0", "p1", "p2"] {
                let state = stream.producers.state(producer.as_bytes());
                let epoch = state.map_or(0, |state| state.epoch);
                let ranges: Vec<_> =
                    (0..40).map(|seq| stream.producers.range(producer.as_bytes(), epoch, seq)).collect();
                write!(text, " {producer} {state:?} {ranges:?}").expect("text");
            }
            let held = range::pieces(shard, stream, first.bytes, stream.durable.bytes);
            let key = stream.key.escape_ascii().to_string();
            (key, text, held, stream.snapshot().durable.cloned())
        };
        let mut bytes = Vec::new();
        shard.log.read(&held, &mut bytes).await.expect("readable");
        write!(text, " bytes {}", bytes.escape_ascii()).expect("text");
        if let Some(snapshot) = snapshot {
            let body = bench.send("GET", &format!("/{key}/snapshot/{}", snapshot.offset), &[], "").await;
            let body = body.expect(200);
            let digest = snapshot.digest.escape_ascii().to_string();
            let (at, record) = (snapshot.offset, snapshot.record);
            write!(text, " snapshot {at} {record} {digest} {:?}", body.body.escape_ascii().to_string())
                .expect("text");
        }
        // The slot is no one's business.
        dumped.insert(key, text.replace(&format!("slot: {}", id.slot), "slot"));
    }
    for (bucket, there) in shard.buckets.borrow().iter() {
        dumped.insert(bucket.escape_ascii().to_string(), there.generation.to_string());
    }
    dumped
}

/// Bytes on the device under the names of segments.
async fn segment_bytes(bench: &Bench) -> usize {
    let store: &dyn crate::storage::device::Store = &bench.store;
    let names = store.list().await.expect("listed");
    let segments = names.iter().filter(|name| crate::storage::file_name::is_segment(name));
    segments.map(|name| bench.store.bytes(name).len()).sum()
}

/// Bytes of streams and snapshots.
fn used_bytes(bench: &Bench) -> usize {
    let table = bench.api.shard.table.borrow();
    let of = |stream: &crate::shard::stream::Stream| {
        let snapshot = stream.snapshot().durable.map_or(0, |snapshot| snapshot.body_bytes());
        (stream.durable.bytes - stream.first().bytes + snapshot) as usize
    };
    table.iter().map(|(_, stream)| of(stream)).sum()
}

async fn settle_all(bench: &Bench) -> usize {
    let mut times = 0;
    while settle_some(&bench.api.shard).await.expect("it can be rewritten") {
        times += 1;
        assert!(times < 100, "settling comes to an end");
        assert!(!bench.api.shard.log.sweep().await, "nobody reads what was rewritten");
    }
    times
}

/// Everything that a log can hold, over several segments: appends of every kind, with producers, in parts, deletes and names
/// taken again, snapshots that were superseded, retention, attributes, buckets.
async fn fill(bench: &Bench) {
    let send = async |method: &str, target: &str, headers: &[(&str, &str)], body: &[u8], status: u16| {
        bench.send(method, target, headers, body).await.expect(status)
    };
    send("PUT", "/gone", &[], b"", 201).await;
    send("PUT", "/kept", &[], b"", 201).await;
    send("DELETE", "/gone", &[], b"", 204).await;
    for name in ["json", "text", "dead", "again", "large", "trimmed"] {
        let kind = if matches!(name, "json" | "trimmed") { JSON } else { TEXT };
        bench.create(name, kind, &[("Stream-Attrs", r#"{"title":"first"}"#)]).await;
    }
    let filler = vec![b'x'; 30_000];
    for round in 0..40u32 {
        let record = format!(r#"{{"round":{round},"filler":"{}"}}"#, "y".repeat(round as usize * 13));
        let array = format!("[{round},{record},\"three\"]");
        let producer = format!("p{}", round % 3);
        let seq = (round / 3).to_string();
        let claim = [
            AS_JSON[0],
            ("Producer-Id", producer.as_str()),
            ("Producer-Epoch", "4"),
            ("Producer-Seq", seq.as_str()),
        ];
        send("POST", "/test/json", &claim, array.as_bytes(), 200).await;
        let stream_seq = format!("{round:04}");
        let with_seq = [AS_TEXT[0], ("Stream-Seq", stream_seq.as_str())];
        send("POST", "/test/text", &with_seq, format!("text {round}").as_bytes(), 204).await;
        send("POST", "/test/trimmed", &claim, array.as_bytes(), 200).await;
        for name in ["dead", "again"] {
            send("POST", &format!("/test/{name}"), &AS_TEXT, &filler, 204).await;
        }
        match round {
            5 | 25 => {
                // In parts.
                let large: Vec<u8> = (0..200_000u32).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
                send("POST", "/test/large", &AS_TEXT, &large, 204).await;
                send("PUT", "/test/json/snapshot?record=3", &AS_TEXT, &large[..150_000 + round as usize], {
                    if round == 5 { 204 } else { 409 }
                })
                .await;
            }
            12 => {
                send("DELETE", "/test/again", &[], b"", 204).await;
                bench.create("again", TEXT, &[]).await;
                let renamed = br#"{"title":"second"}"#;
                send("PUT", "/test/text/attrs", &AS_JSON, renamed, 204).await;
            }
            15 | 33 => {
                let record = (round * 2).to_string();
                let snapshot = format!("/test/trimmed/snapshot?record={record}");
                send("PUT", &snapshot, &AS_TEXT, &filler, 204).await;
                let retention = format!("/test/trimmed/retention?record={record}");
                send("PUT", &retention, &[], b"", 204).await;
            }
            30 => drop(send("PUT", "/test/large/attrs", &AS_JSON, b"{}", 204).await),
            _ => {}
        }
    }
    send("DELETE", "/test/dead", &[], b"", 204).await;
    send("POST", "/test/large", &[("Stream-Closed", "true")], b"", 204).await;
}

#[test]
fn nothing_that_a_client_sees_changes() {
    run(async {
        let bench = Bench::new(config()).await;
        fill(&bench).await;
        let before = dump(&bench).await;
        assert_eq!(before.len(), 5 + 2, "{:?}", before.keys());
        settle_all(&bench).await;
        assert_eq!(dump(&bench).await, before);
        // The segment that is written to and the next one are whole; the log has written four times as much.
        let (bytes, used) = (segment_bytes(&bench).await, used_bytes(&bench));
        let most = 2 * limits::SEGMENT_BYTES_MIN as usize + used * 3 / 2;
        assert!(bytes <= most, "{bytes} bytes for {used}");
        let bench = bench.restarted(config()).await;
        assert_eq!(dump(&bench).await, before, "after a restart");
        settle_all(&bench).await;
        assert_eq!(dump(&bench).await, before, "settled after a restart");
        // It goes on as before.
        let claim = [AS_JSON[0], ("Producer-Id", "p1"), ("Producer-Epoch", "4"), ("Producer-Seq", "13")];
        bench.send("POST", "/test/json", &claim, "[1,2]").await.expect(200);
        for name in ["text", "again"] {
            bench.append(name, TEXT, vec![b'z'; 50_000]).await.expect(204);
        }
        fill_up(&bench).await;
        let before = dump(&bench).await;
        settle_all(&bench).await;
        assert_eq!(dump(&bench).await, before, "what was rewritten is rewritten again");
        let bench = bench.restarted(config()).await;
        assert_eq!(dump(&bench).await, before);
    });
}

/// Rolls the log on, so that everything before is sealed.
async fn fill_up(bench: &Bench) {
    bench.create("filler", TEXT, &[]).await;
    for _ in 0..40 {
        bench.append("filler", TEXT, vec![b'f'; 50_000]).await.expect(204);
    }
    bench.send("DELETE", "/test/filler", &[], "").await.expect(204);
}

#[test]
fn a_crash_at_any_step_of_it_is_harmless() {
    run(async {
        let bench = Bench::new(config()).await;
        fill(&bench).await;
        let before = dump(&bench).await;
        let base = bench.store.after_crash(Unsynced::Lost);
        let mut struck: BTreeMap<String, usize> = BTreeMap::new();
        for number in 0..usize::MAX {
            let mut crashed = false;
            for (index, torn) in [Torn::ALL[number % 6], Torn::ALL[(number + 1) % 6]].into_iter().enumerate()
            {
                let store = base.after_crash(Unsynced::Lost);
                let bench = Bench::over(store, config()).await;
                let from = bench.store.operations();
                bench.store.crash_at(from + number, torn);
                while settle_some(&bench.api.shard).await.unwrap_or(false) {
                    bench.api.shard.log.sweep().await;
                }
                if !bench.store.crashed() {
                    break;
                }
                crashed = true;
                let what = bench.store.operation(from + number);
                *struck.entry(what.split(' ').next().expect("a word").to_owned()).or_default() += 1;
                let unsynced = Unsynced::ALL[(number + index) % 3];
                let case = format!("operation {number} ({what}), {torn:?}, {unsynced:?}");
                let bench = Bench::over(bench.store.after_crash(unsynced), config()).await;
                assert!(dump(&bench).await == before, "{case}");
                if number % 3 == index {
                    settle_all(&bench).await;
                    assert!(dump(&bench).await == before, "{case}, settled after it");
                }
            }
            if !crashed {
                break;
            }
        }
        for kind in ["create", "write", "sync", "rename", "remove"] {
            assert!(struck.contains_key(kind), "{kind} was struck: {struck:?}");
        }
    });
}

#[test]
fn a_large_append_that_reaches_into_the_next_segment_is_left_alone_until_that_is_sealed() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("large", TEXT, &[]).await;
        for _ in 0..8 {
            bench.append("large", TEXT, vec![b'l'; 400_000]).await.expect(204);
        }
        let before = dump(&bench).await;
        settle_all(&bench).await;
        assert_eq!(dump(&bench).await, before);
        let bench = bench.restarted(config()).await;
        assert_eq!(dump(&bench).await, before);
    });
}

#[test]
fn whoever_reads_goes_on_reading() {
    run(async {
        let bench = Bench::new(config()).await;
        fill(&bench).await;
        let shard = &bench.api.shard;
        let held = {
            let table = shard.table.borrow();
            let stream = table.get(bench.id("again")).expect("it exists");
            range::pieces(shard, stream, 0, stream.durable.bytes)
        };
        while settle_some(shard).await.expect("it can be rewritten") {}
        assert!(shard.log.sweep().await, "the old segments are read");
        let mut bytes = Vec::new();
        shard.log.read(&held, &mut bytes).await.expect("readable");
        assert_eq!(bytes, vec![b'x'; 27 * 30_000]);
        drop(held);
        assert!(!shard.log.sweep().await);
    });
}

/// A store that nobody has written to.
#[test]
fn an_empty_log_has_nothing_to_settle() {
    run(async {
        let bench = Bench::over(SimulatedStore::new(), config()).await;
        assert_eq!(settle_all(&bench).await, 0);
    });
}
