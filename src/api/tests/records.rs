//! Reads of streams that retention has shortened, and how SSE readers share what is encoded.

use std::rc::Rc;

use super::bench::{Answer, Bench, config, run};
use super::*;

/// Makes a stream begin at a record.
async fn retain(bench: &Bench, name: &str, record: u64, offset: u64) {
    let id = bench.id(name);
    let event = Event::Retained { lineage: id.lineage, offset, record };
    let stamp = bench.api.shard.stage(&event, Target::Known(id));
    assert!(bench.api.wait_durable(stamp.ticket).await);
}

fn number(answer: &Answer, name: &str) -> Option<u64> {
    answer.header(name).map(|text| text.parse().expect("a number"))
}

fn first_and_next(answer: &Answer) -> (Option<u64>, Option<u64>) {
    (number(answer, "stream-record-first"), number(answer, "stream-record-next"))
}

/// Records 0 to 3 lie at 0, 2, 5 and 9; the stream ends at 14.
const RECORDS: &str = "[1,22,333,4444]";

#[test]
fn what_is_trimmed_is_gone_for_every_kind_of_read() {
    run(async {
        let bench = Bench::new(bench_with_cache()).await;
        for (name, content_type) in [("json", JSON), ("text", TEXT)] {
            bench.create(name, content_type, &[]).await;
            let messages = ["1,", "22,", "333,", "4444,"];
            let messages =
                messages.map(|text| if name == "json" { text.trim_end_matches(',') } else { text });
            for message in messages {
                bench.append(name, content_type, message).await.expect(204);
            }
            retain(&bench, name, 2, 5).await;
        }
        let lineage = |name| bench.id(name).lineage;
        for live in ["", "&live=long-poll", "&live=sse"] {
            for name in ["json", "text"] {
                let token = |offset| format!("{:016}_{offset:016}", lineage(name));
                let zeros = format!("{:016}_{:016}", 0, 0);
                for offset in ["-1", "0", "2", "3", "4", &zeros, &token(0), &token(4)] {
                    let target = format!("/test/{name}?offset={offset}{live}");
                    let gone = bench.send("GET", &target, &[], "").await.expect(410);
                    assert!(gone.text().contains("\"OFFSET_GONE\""), "{gone:?}");
                    assert_eq!(gone.header("stream-next-offset"), Some(&*token(5)), "{target}");
                    let records = if name == "json" { (Some(2), Some(4)) } else { (None, None) };
                    assert_eq!(first_and_next(&gone), records, "{target}");
                }
            }
            for record in [0, 1] {
                let target = format!("/test/json?record={record}{live}");
                let gone = bench.send("GET", &target, &[], "").await.expect(410);
                assert!(gone.text().contains("\"RECORD_GONE\""), "{gone:?}");
                assert_eq!(first_and_next(&gone), (Some(2), Some(4)), "{target}");
                assert!(gone.header("stream-next-offset").is_some_and(|offset| offset.ends_with("5")));
            }
        }
        bench.send("GET", "/test/json", &[], "").await.expect(410);
        let resumed = [("Last-Event-ID", "2")];
        bench.send("GET", "/test/json?record=3&live=sse", &resumed, "").await.expect(410);
        let head = bench.send("HEAD", "/test/json", &[], "").await.expect(200);
        assert_eq!(first_and_next(&head), (Some(2), Some(4)));
    });
}

#[test]
fn what_is_retained_keeps_its_ordinals() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[]).await;
        let producer = [AS_JSON[0], ("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
        let original = bench.send("POST", "/test/s", &producer, RECORDS).await.expect(200);
        retain(&bench, "s", 2, 5).await;
        for query in ["record=2", "offset=5", "tail_records=2", "tail_records=4", "tail_records=99"] {
            let target = format!("/test/s?{query}");
            let accept = [("Accept", "application/x-ndjson")];
            let read = bench.send("GET", &target, &accept, "").await.expect(200);
            assert_eq!(read.text(), "333\n4444\n", "{query}");
            if !query.starts_with("offset") {
                let range = (first_and_next(&read), number(&read, "stream-record-start"));
                assert_eq!(range, ((Some(2), Some(4)), Some(2)), "{query}");
            }
        }
        let view = "/test/s?record=3&record_view=envelope";
        let read = bench.send("GET", view, &[], "").await.expect(200);
        assert_eq!(read.text(), "{\"record\":3,\"value\":4444}\n");
        let mut events = bench.start("GET", "/test/s?record=2&live=sse", &[], "").live();
        let text = events.next().await.text();
        assert!(text.contains("data:[333,4444]\n"), "{text}");
        assert!(text.contains("\"streamFirstRecord\":2,\"streamNextRecord\":4,"), "{text}");
        let again = bench.send("POST", "/test/s", &producer, RECORDS).await.expect(204);
        for header in ["stream-record-start", "stream-record-next", "stream-next-offset"] {
            assert_eq!(again.header(header), original.header(header), "{header}");
        }
        // All of it: the stream is empty, and goes on where it was.
        retain(&bench, "s", 4, 14).await;
        for query in ["record=4", "record=now", "tail_records=3", "offset=14", "offset=now"] {
            let read = bench.send("GET", &format!("/test/s?{query}"), &[], "").await.expect(200);
            assert!(["", "[]"].contains(&read.text().as_str()), "{read:?}");
        }
        bench.send("GET", "/test/s?record=3", &[], "").await.expect(410);
        let appended = bench.append("s", JSON, "5").await.expect(204);
        assert_eq!(number(&appended, "stream-record-start"), Some(4));
        let read = bench.send("GET", "/test/s?record=4", &[], "").await.expect(200);
        assert_eq!((read.text().as_str(), first_and_next(&read)), ("5\n", (Some(4), Some(5))));
    });
}

#[test]
fn live_readers_that_retention_overtakes_end() {
    run(async {
        for config in [config(), bench_with_cache()] {
            let bench = Bench::new(config).await;
            bench.create("s", JSON, &[]).await;
            bench.append("s", JSON, "[1,22]").await.expect(204);
            let start = |query: &str| bench.start("GET", &format!("/test/s?{query}"), &[], "");
            let mut polls =
                [start("offset=5&live=long-poll").live(), start("record=2&live=long-poll").live()];
            let mut events = [
                start("record=2&live=sse").live(),
                start("record=1&record_view=envelope&live=sse").live(),
                start("offset=2&live=sse").live(),
            ];
            let mut kept = start("record=now&live=sse").live();
            kept.next().await;
            bench.append("s", JSON, "[333,4444]").await.expect(204);
            kept.next().await;
            retain(&bench, "s", 3, 9).await;
            for poll in &mut polls {
                let text = poll.next().await.text();
                assert!(poll.ended && text.starts_with("HTTP/1.1 410 "), "{text}");
                assert!(text.contains("Stream-Record-First: 3\r\n"), "{text}");
            }
            for reader in &mut events {
                let text = reader.next().await.text();
                assert!(reader.ended && !text.contains("data:"), "{text}");
            }
            assert!(kept.is_silent().await && kept.text().contains("data:[333,4444]\n"), "{}", kept.text());
            let mut envelopes = start("record=3&record_view=envelope&live=sse").live();
            let text = envelopes.next().await.text();
            assert!(text.contains("data:{\"record\":3,\"value\":4444}\n"), "{text}");
            assert!(text.contains("\"streamFirstRecord\":3,\"streamNextRecord\":4,"), "{text}");
        }
    });
}

#[test]
fn readers_share_what_is_encoded_whether_they_count_records_or_not() {
    run(async {
        let bench = Bench::new(bench_with_cache()).await;
        bench.create("s", JSON, &[]).await;
        bench.append("s", JSON, RECORDS).await.expect(204);
        let kept = |envelopes: bool| {
            let table = bench.api.shard.table.borrow();
            let rare = table.get(bench.id("s")).and_then(|stream| stream.rare.as_deref())?;
            let event = if envelopes { &rare.envelopes } else { &rare.event };
            event.as_ref().map(|event| Rc::as_ptr(&event.bytes))
        };
        let start = |query: &str| bench.start("GET", &format!("/test/s?{query}&live=sse"), &[], "").live();
        let mut readers = [start("offset=-1"), start("record=0"), start("tail_records=4")];
        readers[0].next().await;
        let event = kept(false).expect("there are others");
        // Only a reader that stops before its end has an event of its own, and keeps it to itself.
        let mut limited = [start("record=0&max_records=9"), start("record=0&max_records=3")];
        for reader in readers[1..].iter_mut().chain(&mut limited) {
            reader.next().await;
            assert_eq!(kept(false), Some(event));
        }
        assert!(limited[1].ended && limited[1].text().contains("data:[1,22,333]\n"), "{}", limited[1].text());
        assert_eq!(kept(true), None);
        let view = "record=0&record_view=envelope";
        let mut readers = [start(view), start(view), start(&format!("{view}&max_records=2"))];
        readers[0].next().await;
        let run = kept(true).expect("there are others");
        for reader in &mut readers[1..] {
            reader.next().await;
            assert_eq!((kept(true), kept(false)), (Some(run), Some(event)));
        }
        assert_eq!(readers[0].text().matches("event: data\n").count(), 4);
        assert_eq!(readers[1].text(), readers[0].text());
        assert_eq!(readers[2].text().matches("event: data\n").count(), 2);
    });
}
