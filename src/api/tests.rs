//! Operations on a shard over a simulated device: what is seen before and after a commit, when a commit fails, and at the
//! limits of an entry.

mod bench;
mod buckets;
mod hot;
mod model;
mod random;
mod records;
mod settle;
mod snapshots;

use bench::{Bench, config, run, turn};

use super::*;
use crate::shard::stream::Start;
use crate::shard::table::Target;
use crate::storage::event::Event;
use crate::storage::log::{Class, Room};
use crate::storage::simulated::Torn;

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";
const AS_TEXT: [(&str, &str); 1] = [("Content-Type", TEXT)];
const AS_JSON: [(&str, &str); 1] = [("Content-Type", JSON)];

fn frames<B: AsRef<[u8]>>(payloads: &[B]) -> Vec<u8> {
    let mut body = Vec::new();
    for payload in payloads {
        body.extend_from_slice(&(payload.as_ref().len() as u32).to_be_bytes());
        body.extend_from_slice(payload.as_ref());
    }
    body
}

#[test]
fn what_is_staged_is_not_seen() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("old", TEXT, &[]).await;
        bench.append("old", TEXT, "seen").await.expect(204);
        let before = bench.send("GET", "/test/streams", &[], "").await.expect(200).text();
        let tail = bench.send("HEAD", "/test/old", &[], "").await.expect(200);
        let poll = bench.start("GET", "/test/old?offset=now&live=long-poll", &[], "");
        let mut poll = poll.live();

        bench.hold(true);
        let writes = [
            bench.start("PUT", "/test/new", &AS_TEXT, "x"),
            bench.start("POST", "/test/old", &[("Content-Type", TEXT), ("Stream-Closed", "true")], "staged"),
        ];
        assert!(writes.iter().all(|write| write.waits_for_commit()));
        bench.send("GET", "/test/new", &[], "").await.expect(404);
        bench.send("HEAD", "/test/new", &[], "").await.expect(404);
        assert_eq!(
            bench.send("GET", "/test/streams", &[], "").await.text(),
            before,
            "times of writes included"
        );
        let read = bench.send("GET", "/test/old", &[], "").await.expect(200);
        assert_eq!((read.text().as_str(), read.header("stream-closed")), ("seen", None));
        assert_eq!(read.header("stream-up-to-date"), Some("true"));
        let head = bench.send("HEAD", "/test/old", &[], "").await;
        let offset = |answer: &bench::Answer| answer.header("stream-next-offset").map(str::to_owned);
        assert_eq!((offset(&head), head.header("stream-closed")), (offset(&tail), None));
        assert!(poll.is_silent().await);

        bench.hold(false);
        for (write, status) in writes.into_iter().zip([201, 204]) {
            write.answer().await.expect(status);
        }
        assert_eq!(bench.send("GET", "/test/new", &[], "").await.expect(200).text(), "x");
        assert_eq!(poll.next().await.text().split("\r\n\r\n").nth(1), Some("staged"));
        assert_ne!(bench.send("GET", "/test/streams", &[], "").await.text(), before);
    });
}

#[test]
fn answers_that_depend_on_staged_state_wait_for_it() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[]).await;
        bench.hold(true);
        let producer = |seq: &'static str| {
            [AS_JSON[0], ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)]
        };
        let mut staged = vec![(bench.start("POST", "/test/s", &producer("0"), "1"), 200)];
        staged.extend([
            (bench.start("POST", "/test/s", &producer("0"), "1"), 204),
            (bench.start("POST", "/test/s", &producer("2"), "1"), 409),
            (bench.start("POST", "/test/s", &[AS_JSON[0], ("Stream-Record-Match", "0")], "1"), 412),
            (bench.start("POST", "/test/s", &AS_TEXT, "1"), 409),
            (bench.start("POST", "/test/s", &AS_JSON, "{"), 400),
            (bench.start("POST", "/test/s", &[("Stream-Closed", "true")], ""), 204),
            (bench.start("POST", "/test/s", &[("Stream-Closed", "true")], ""), 204),
            (bench.start("POST", "/test/s", &AS_JSON, "2"), 409),
            (bench.start("PUT", "/test/s", &[AS_JSON[0], ("Stream-Closed", "true")], ""), 200),
            (bench.start("PUT", "/test/s", &AS_TEXT, ""), 409),
            (bench.start("POST", "/test/s/append-batch", &AS_JSON, frames(&["1"])), 200),
            (bench.start("POST", "/test/s/append-batch", &AS_TEXT, frames(&["1"])), 200),
            (bench.start("DELETE", "/test/s", &[], ""), 204),
            (bench.start("DELETE", "/test/s", &[], ""), 404),
            (bench.start("GET", "/test/s", &[], ""), 404),
            (bench.start("POST", "/test/s", &AS_JSON, "3"), 404),
        ]);
        for (index, (start, status)) in staged.iter().enumerate() {
            assert!(start.waits_for_commit(), "request {index}, to be answered {status}");
        }
        let again = bench.start("PUT", "/test/s", &AS_TEXT, "");
        assert!(again.is_under_way(), "a name is taken again once the delete is durable");
        bench.hold(false);
        for (start, status) in staged {
            start.answer().await.expect(status);
        }
        again.answer().await.expect(201);
    });
}

#[test]
fn a_failed_commit_takes_back_what_was_not_seen_and_reads_go_on() {
    run(async {
        let bench = Bench::new(bench_with_cache()).await;
        for name in ["kept", "doomed"] {
            bench.create(name, TEXT, &[]).await;
            bench.append(name, TEXT, "seen").await.expect(204);
        }
        bench.hold(true);
        let staged = [
            bench.start("POST", "/test/kept", &AS_TEXT, "lost"),
            bench.start("PUT", "/test/new", &AS_TEXT, "lost"),
            bench.start("DELETE", "/test/doomed", &[], ""),
            bench.start("POST", "/test/kept", &AS_JSON, "conflict"),
        ];
        bench.store.crash_at(bench.store.operations(), Torn::Nothing);
        bench.hold(false);
        for start in staged {
            let answer = start.answer().await.expect(503);
            assert!(answer.text().contains("SHARD_LATCHED"), "{answer:?}");
        }
        for name in ["kept", "doomed"] {
            let target = format!("/test/{name}");
            bench.send("HEAD", &target, &[], "").await.expect(200);
            assert_eq!(bench.send("GET", &target, &[], "").await.expect(200).text(), "seen");
            let mut events = bench.start("GET", &format!("{target}?offset=-1&live=sse"), &[], "").live();
            assert!(events.next().await.text().contains("data:seen\n"));
            bench.append(name, TEXT, "x").await.expect(503);
            bench.send("PUT", &target, &[("Content-Type", TEXT)], "").await.expect(503);
            bench.send("DELETE", &target, &[], "").await.expect(503);
        }
        bench.send("GET", "/test/new", &[], "").await.expect(404);
        bench.send("PUT", "/test/other", &AS_TEXT, "").await.expect(503);
        bench.send("POST", "/test/kept/append-batch", &AS_TEXT, frames(&["x"])).await.expect(503);
        let large = vec![b'x'; 200_000];
        bench.send("POST", "/test/kept", &AS_TEXT, &large).await.expect(503);
        bench.send("PUT", "/test/large", &AS_TEXT, &large).await.expect(503);
        bench.send("PUT", "/another", &[], "").await.expect(503);
        bench.send("DELETE", "/test", &[], "").await.expect(409);
    });
}

fn bench_with_cache() -> crate::config::Config {
    crate::config::Config { cache_bytes: 16 << 20, ..config() }
}

/// A JSON array of `count` records, `len` bytes each but for every other one, which is one longer.
fn records(count: usize, len: usize) -> String {
    let record = |index: usize| format!("\"{}\"", "x".repeat(len - 2 + index % 2));
    format!("[{}]", (0..count).map(record).collect::<Vec<_>>().join(","))
}

/// Around the most records whose lengths fit in the entry that publishes them, with many parts to name besides.
#[test]
fn arrays_at_the_limit_of_an_entry_are_appended_or_refused() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("appended", JSON, &[]).await;
        bench.create("batched", JSON, &[]).await;
        let mut seen = [false; 2];
        for count in [28_500, 30_500] {
            let body = records(count, 450);
            let answer = bench.append("appended", JSON, &body).await;
            assert!([204, 413].contains(&answer.status), "{count}: {answer:?}");
            seen[usize::from(answer.status == 204)] = true;
            let answer = bench.send("PUT", &format!("/test/created-{count}"), &AS_JSON, &body).await;
            assert!([201, 413].contains(&answer.status), "{count}: {answer:?}");
            let answer = bench.send("POST", "/test/batched/append-batch", &AS_JSON, frames(&[&body])).await;
            let text = answer.expect(200).text();
            assert!(
                text.starts_with("[{\"status\":204,") || text.starts_with("[{\"status\":413,"),
                "{count}: {text}"
            );
        }
        assert_eq!(seen, [true, true], "both sides of the limit were met");
    });
}

/// Payloads of all sizes around that of an entry, appended, created and batched: each comes back as it was.
#[test]
fn payloads_around_the_size_of_an_entry_come_back() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[]).await;
        let entry_max = bench.api.shard.log.payload_max();
        let mut expected = Vec::new();
        let sizes =
            [1, entry_max / 2, entry_max - 300, entry_max - 100, entry_max, entry_max + 100, 3 * entry_max];
        for (index, size) in sizes.into_iter().chain((0..20).map(|step| entry_max - 16 * step)).enumerate() {
            let body: Vec<u8> = (0..size).map(|at| (at * 31 + index) as u8).collect();
            let target = format!("/test/created-{index}");
            bench.send("PUT", &target, &AS_TEXT, &body).await.expect(201);
            assert!(bench.send("GET", &target, &[], "").await.expect(200).body == body, "{size}");
            bench.append("s", TEXT, &body).await.expect(204);
            let batch = frames(&[&b"first"[..], &body, b"last"]);
            let answer = bench.send("POST", "/test/s/append-batch", &AS_TEXT, batch).await.expect(200);
            assert_eq!(answer.text().matches("{\"status\":204,").count(), 3, "{size}: {answer:?}");
            expected.extend([&body[..], b"first", &body, b"last"].concat());
        }
        let id = bench.id("s");
        let (tail, count) = {
            let table = bench.api.shard.table.borrow();
            let stream = table.get(id).expect("it exists");
            assert_eq!(stream.durable, stream.staged);
            (stream.durable.bytes, stream.durable.records)
        };
        assert_eq!((tail, count), (expected.len() as u64, 4 * 27), "a message per append and per frame");
        let mut read = Vec::new();
        while (read.len() as u64) < tail {
            let target = format!("/test/s?offset={}", read.len());
            read.extend_from_slice(&bench.send("GET", &target, &[], "").await.expect(200).body);
        }
        assert!(read == expected, "the bytes differ");
    });
}

#[test]
fn a_large_create_that_comes_second_is_answered_like_any_other() {
    run(async {
        let bench = Bench::new(config()).await;
        let body = vec![b'x'; 200_000];
        let first = bench.start("PUT", "/test/s", &AS_TEXT, &body);
        let second = bench.start("PUT", "/test/s", &AS_TEXT, &body);
        let other = bench.start("PUT", "/test/s", &AS_JSON, records(1000, 300));
        first.answer().await.expect(201);
        second.answer().await.expect(200);
        other.answer().await.expect(409);
        // One that finds its name on its way out waits until it is gone.
        let again = bench.start("PUT", "/test/t", &AS_TEXT, &body);
        bench.create("t", TEXT, &[]).await;
        bench.hold(true);
        let delete = bench.start("DELETE", "/test/t", &[], "");
        bench.hold(false);
        again.answer().await.expect(201);
        delete.answer().await.expect(204);
        bench.send("HEAD", "/test/t", &[], "").await.expect(200);
    });
}

#[test]
fn a_large_append_is_checked_when_it_is_published() {
    run(async {
        let bench = Bench::new(config()).await;
        for (name, method, headers, status) in
            [("closed", "POST", &[("Stream-Closed", "true")][..], 409), ("deleted", "DELETE", &[][..], 404)]
        {
            bench.create(name, TEXT, &[]).await;
            let target = format!("/test/{name}");
            let large = bench.start("POST", &target, &AS_TEXT, vec![b'x'; 200_000]);
            let batch = frames(&[vec![b'y'; 200_000], b"z".to_vec()]);
            let batch = bench.start("POST", &format!("{target}/append-batch"), &AS_TEXT, batch);
            assert!(large.is_under_way() && batch.is_under_way());
            bench.send(method, &target, headers, "").await.expect(204);
            large.answer().await.expect(status);
            let acks = batch.answer().await.expect(200).text();
            assert_eq!(acks.matches(&format!("{{\"status\":{status},")).count(), 2, "{acks}");
        }
        assert_eq!(bench.send("GET", "/test/closed", &[], "").await.expect(200).text(), "");
    });
}

#[test]
fn an_unfinished_character_on_disk_is_waited_for() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[]).await;
        bench.append("s", TEXT, &"é".as_bytes()[..1]).await.expect(204);
        let mut events = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        let text = events.next().await.text();
        assert!(text.contains("event: control") && text.contains("\"upToDate\":true"), "{text}");
        for _ in 0..20 {
            assert!(events.is_silent().await, "{}", events.text());
            turn().await;
        }
        let before = events.out.len();
        bench.append("s", TEXT, &"é".as_bytes()[1..]).await.expect(204);
        events.next().await;
        assert!(String::from_utf8_lossy(&events.out[before..]).contains("data:é\n"), "{}", events.text());
    });
}

#[test]
fn a_reader_that_never_catches_up_ends_in_time_between_events() {
    run(async {
        let bench = Bench::new(crate::config::Config { sse_max_ms: 0, ..bench_with_cache() }).await;
        bench.create("s", TEXT, &[]).await;
        bench.append("s", TEXT, vec![b'x'; 3 * limits::SSE_EVENT_BYTES_MAX]).await.expect(204);
        let mut events = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        while !events.ended {
            events.next().await;
            bench.api.tick();
        }
        let text = events.text();
        let counts = ["event: data", "event: control"].map(|name| text.matches(name).count());
        assert_eq!(counts, [1, 1], "it says where it stands before it ends");
        assert!(text.ends_with("0\r\n\r\n"));
    });
}

#[test]
fn an_event_is_kept_only_to_be_shared() {
    run(async {
        let bench = Bench::new(bench_with_cache()).await;
        bench.create("s", TEXT, &[]).await;
        bench.append("s", TEXT, "x").await.expect(204);
        let kept = || {
            let table = bench.api.shard.table.borrow();
            table
                .get(bench.id("s"))
                .and_then(|stream| stream.rare.as_ref())
                .is_some_and(|rare| rare.event.is_some())
        };
        let mut first = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        first.next().await;
        assert!(!kept(), "the only reader shares with nobody");
        let mut second = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        second.next().await;
        assert!(kept());
        drop((first, second));
        assert!(!kept(), "gone with the readers");
        assert_eq!(bench.api.shard.readers.count(), 0);
    });
}

#[test]
fn memory_of_a_large_request_is_given_back() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[]).await;
        let spaced = records(300_000, 3).replace(',', " , ");
        bench.append("s", JSON, spaced).await;
        let scratch = bench.api.scratch.borrow();
        assert!(scratch.json.capacity() <= 1 << 20, "{}", scratch.json.capacity());
        assert!(scratch.lengths.capacity() <= 1 << 18, "{}", scratch.lengths.capacity());
    });
}

#[test]
fn everything_acknowledged_survives_a_crash() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[("Stream-TTL", "1000")]).await;
        let producer = [AS_JSON[0], ("Producer-Id", "p"), ("Producer-Epoch", "3"), ("Producer-Seq", "0")];
        bench.send("POST", "/test/s", &producer, "[1,22,3]").await.expect(200);
        bench.send("PUT", "/test/large", &AS_TEXT, vec![b'x'; 200_000]).await.expect(201);
        bench.create("gone", TEXT, &[]).await;
        bench.send("DELETE", "/test/gone", &[], "").await.expect(204);
        let listed = bench.send("GET", "/test/streams", &[], "").await.text();
        let bench = bench.restarted(config()).await;
        assert_eq!(bench.send("GET", "/test/streams", &[], "").await.text(), listed);
        assert_eq!(bench.send("GET", "/test/s", &[], "").await.expect(200).text(), "[1,22,3]");
        assert_eq!(bench.send("GET", "/test/large", &[], "").await.expect(200).body.len(), 200_000);
        bench.send("GET", "/test/gone", &[], "").await.expect(404);
        let repeated = bench.send("POST", "/test/s", &producer, "[1,22,3]").await.expect(204);
        assert_eq!(repeated.header("stream-record-next"), Some("3"));
        bench.send("PUT", "/test/gone", &AS_TEXT, "").await.expect(201);
    });
}

/// `(record lengths, from, page) -> end`, of a JSON stream and of a byte stream.
#[test]
fn pages_end_at_records_and_hold_at_least_one() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("json", JSON, &[]).await;
        bench.create("text", TEXT, &[]).await;
        // Records of 2, 11, 2 and 5 bytes, separators included: boundaries at 0, 2, 13, 15 and 20.
        bench.append("json", JSON, "[1,\"12345678\",3,\"45\"]").await.expect(204);
        bench.append("text", TEXT, "12345678901234567890").await.expect(204);
        let table = [
            (0, 1, 2, 1),
            (0, 2, 2, 2),
            (0, 12, 2, 12),
            (0, 13, 13, 13),
            (0, 14, 13, 14),
            (2, 1, 13, 3),
            (2, 12, 13, 14),
            (2, 13, 15, 15),
            (13, 1, 15, 14),
            (15, 4, 20, 19),
            (15, 5, 20, 20),
            (20, 1, 20, 20),
            (0, u64::MAX, 20, 20),
            (15, u64::MAX, 20, 20),
        ];
        let streams = bench.api.shard.table.borrow();
        for (from, page_bytes, json_end, text_end) in table {
            for (name, end) in [("json", json_end), ("text", text_end)] {
                let stream = streams.get(bench.id(name)).expect("it exists");
                let from = Start { bytes: from, records: stream.index.locate(from).ordinal };
                let found = range::page_end(stream, from, page_bytes, u64::MAX);
                assert_eq!(found.bytes, end, "{name} from {from:?}, {page_bytes}");
            }
        }
    });
}

/// A page never reaches past what is durable, whatever is staged behind it.
#[test]
fn pages_end_at_the_durable_tail() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[]).await;
        bench.append("s", JSON, "[1,2]").await.expect(204);
        bench.hold(true);
        let staged = bench.start("POST", "/test/s", &AS_JSON, "[3,4]");
        {
            let streams = bench.api.shard.table.borrow();
            let stream = streams.get(bench.id("s")).expect("it exists");
            let end = |page_bytes, records_max| {
                range::page_end(stream, Start::default(), page_bytes, records_max).bytes
            };
            let ends = [1, 3, 4, 5, 100].map(|page_bytes| end(page_bytes, u64::MAX));
            assert_eq!((ends, stream.staged.bytes), ([2, 2, 4, 4, 4], 8));
            let ends = [1, 2, 3, 4, u64::MAX].map(|records_max| end(100, records_max));
            assert_eq!(ends, [2, 4, 4, 4, 4], "by records");
        }
        // An offset that is durable nowhere yet is beyond the tail.
        bench.send("GET", "/test/s?offset=8", &[], "").await.expect(400);
        bench.hold(false);
        staged.answer().await.expect(204);
        assert_eq!(bench.send("GET", "/test/s?offset=4", &[], "").await.expect(200).text(), "[3,4]");
    });
}

#[test]
fn a_live_reader_keeps_its_stream_also_through_a_crash() {
    run(async {
        const WINDOW_MS: u64 = 1_000_000;
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[("Stream-TTL", "1000")]).await;
        let shard = &bench.api.shard;
        let id = bench.id("s");
        let recorded_ms = || {
            let table = shard.table.borrow();
            table.get(id).and_then(|stream| stream.lifetime.as_deref()).expect("it has one").recorded_ms
        };
        let created_ms = recorded_ms();
        let events = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        let (mut now_ms, mut at_ms) = (created_ms, created_ms);
        // The use by the reader is recorded again and again, early enough for a crash at any time.
        while now_ms < created_ms + 3 * WINDOW_MS {
            if now_ms >= at_ms {
                at_ms = shard.renew_or_forget(id, now_ms).expect("the reader is still there");
                assert!(at_ms > now_ms);
            }
            assert!(now_ms - recorded_ms() < WINDOW_MS / 10, "{} after {}", now_ms, recorded_ms());
            assert!(shard.expire_or_postpone(id, now_ms).is_some(), "a stream that is read does not expire");
            now_ms += WINDOW_MS / 100;
        }
        drop(events);
        assert_eq!(shard.renew_or_forget(id, now_ms), None, "nobody reads it any more");
        let last_ms = recorded_ms();
        // Another reader is looked after like the first.
        drop(bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live());
        assert_eq!(shard.renew_or_forget(id, now_ms), None);
        let deadline_ms = shard.expire_or_postpone(id, last_ms).expect("not yet");
        assert!(deadline_ms >= last_ms + WINDOW_MS, "a window after the last use at the earliest");

        bench.append("s", TEXT, "x").await.expect(204);
        let bench = bench.restarted(config()).await;
        let (shard, id) = (&bench.api.shard, bench.id("s"));
        let deadline_ms = shard.expire_or_postpone(id, last_ms).expect("not yet");
        let latest_ms = last_ms + WINDOW_MS + WINDOW_MS / 10;
        assert_eq!(deadline_ms, latest_ms, "a tenth more than the window after a restart");
        assert_eq!(shard.expire_or_postpone(id, latest_ms), None, "then it is deleted");
        bench.send("HEAD", "/test/s", &[], "").await.expect(404);
    });
}

#[test]
fn an_instant_of_expiry_spares_no_reader() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[("Stream-Expires-At", "2999-01-01T00:00:00Z")]).await;
        let (shard, id) = (&bench.api.shard, bench.id("s"));
        let mut events = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        let mut poll = bench.start("GET", "/test/s?offset=-1&live=long-poll", &[], "").live();
        events.next().await;
        assert!(poll.is_silent().await);
        let at_ms = shard.expire_or_postpone(id, shard::now_ms()).expect("not yet");
        assert_eq!(shard.expire_or_postpone(id, at_ms - 1), Some(at_ms));
        assert_eq!(shard.expire_or_postpone(id, at_ms), None);
        while !events.ended {
            events.next().await;
        }
        assert!(poll.next().await.text().starts_with("HTTP/1.1 404 "));
        assert_eq!(shard.renew_or_forget(id, at_ms), None);
    });
}

/// An open commit with room for a create, but not for what it starts with.
#[test]
fn a_create_and_its_content_share_a_commit() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[]).await;
        let entry_max = bench.api.shard.log.payload_max();
        for (index, left_bytes) in (0..6000).step_by(250).enumerate() {
            bench.hold(true);
            let mut staged = vec![bench.start("POST", "/test/s", &AS_TEXT, "the commit in flight")];
            turn().await;
            staged.push(bench.start("POST", "/test/s", &AS_TEXT, vec![b'x'; entry_max - 1000 - left_bytes]));
            let target = format!("/test/new-{index}");
            staged.push(bench.start("PUT", &target, &AS_TEXT, vec![b'y'; 3000]));
            bench.hold(false);
            for start in staged {
                let status = start.answer().await.status;
                assert!([201, 204].contains(&status), "{left_bytes} bytes left: {status}");
            }
            assert_eq!(bench.send("GET", &target, &[], "").await.expect(200).body.len(), 3000);
        }
    });
}

/// While there is no room to log that a stream has expired, it is still there: a crash could bring it back.
#[test]
fn an_expired_stream_is_gone_once_that_can_be_logged() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("other", TEXT, &[]).await;
        bench.create("s", TEXT, &[("Stream-Expires-At", "2001-01-01T00:00:00Z")]).await;
        // Nothing is awaited from here on, so nobody else notices that it has expired.
        bench.hold(true);
        let shard = &bench.api.shard;
        let mut staged = Vec::new();
        for size in [shard.log.payload_max() - 1000, 100] {
            loop {
                let start = bench.start("POST", "/test/other", &AS_TEXT, vec![b'x'; size]);
                if start.is_under_way() {
                    break;
                }
                staged.push(start);
            }
        }
        let other = bench.id("other");
        while shard.room(shard::DELETE_META_BYTES, 0, Class::Control) == Room::Now {
            shard.stage(&Event::Renewed { lineage: other.lineage, used_ms: 1 }, Target::Known(other));
        }
        let methods = ["GET", "HEAD"].map(|method| bench.start(method, "/test/s", &[], "").answer());
        for answer in methods {
            answer.await.expect(200);
        }
        bench.hold(false);
        for start in staged {
            start.answer().await.expect(204);
        }
        bench.send("GET", "/test/s", &[], "").await.expect(404);
    });
}

#[test]
fn a_full_disk_refuses_what_adds_and_takes_what_frees() {
    run(async {
        let bench = Bench::new(config()).await;
        for name in ["s", "t"] {
            bench.create(name, TEXT, &[]).await;
        }
        bench.store.set_capacity(Some(0));
        let mut kept = 0;
        let refused = loop {
            let answer = bench.append("s", TEXT, vec![b'x'; 50_000]).await;
            if answer.status != 204 {
                break answer;
            }
            kept += 50_000;
        };
        assert!(refused.expect(507).text().contains("DISK_FULL"));
        let large = vec![b'x'; 200_000];
        let small = vec![b'x'; 50_000];
        bench.append("s", TEXT, &large).await.expect(507);
        for body in [&small, &large] {
            bench.send("PUT", "/test/new", &AS_TEXT, body).await.expect(507);
        }
        bench.send("POST", "/test/s/append-batch", &AS_TEXT, frames(&[&small])).await.expect(507);
        let acks =
            bench.send("POST", "/test/s/append-batch", &AS_TEXT, frames(&[&large, &small])).await.expect(200);
        assert_eq!(acks.text().matches("{\"status\":507,").count(), 2, "{acks:?}");
        bench.send("DELETE", "/test/t", &[], "").await.expect(204);
        bench.send("GET", "/test/t", &[], "").await.expect(404);
        let mut offset = 0;
        while offset < kept {
            let page = bench.send("GET", &format!("/test/s?offset={offset}"), &[], "").await.expect(200);
            offset += page.body.len();
        }
        assert_eq!(offset, kept, "nothing more, nothing less");
        bench.send("DELETE", "/test/s", &[], "").await.expect(204);
        bench.send("DELETE", "/test", &[], "").await.expect(204);
    });
}
