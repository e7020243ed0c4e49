//! Snapshots, retention, bootstrap and attributes over a simulated device: what is seen before a commit, between the commits
//! of a large snapshot, and by those who read meanwhile.

use super::*;
use bench::{Answer, Live, Started};

/// Room for whole pieces in a commit.
fn large_segments() -> crate::config::Config {
    crate::config::Config { segment_bytes: 64 << 20, ..config() }
}

/// The path of a snapshot, a retention.
fn at(what: &str, offset: u64) -> String {
    format!("/test/s/{what}/{offset}")
}

async fn publish(bench: &Bench, offset: u64, body: impl AsRef<[u8]>) -> Answer {
    bench.send("PUT", &at("snapshot", offset), &AS_TEXT, body).await
}

/// Polls an answer under way once: it goes as far as it can.
async fn nudge(start: Started<'_>) -> Live {
    let mut live = start.live();
    assert!(live.is_silent().await, "{}", live.text());
    live
}

/// Lets an operation go on until it has put chunks into the log.
async fn with_chunks(bench: &Bench, start: Started<'_>) -> Live {
    let mut live = nudge(start).await;
    while bench.api.shard.oldest_pending_chunk().is_none() {
        turn().await;
        assert!(live.is_silent().await, "{}", live.text());
    }
    live
}

async fn end(live: &mut Live) -> String {
    while !live.ended {
        live.next().await;
    }
    live.text()
}

fn status(answer: &str) -> &str {
    &answer[9..12]
}

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[test]
fn what_is_staged_decides_and_what_is_durable_is_seen() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[]).await;
        bench.append("s", JSON, "[1,2,3]").await.expect(204);
        publish(&bench, 2, "old").await.expect(204);
        bench.hold(true);
        // Without a body there are no chunks to wait for.
        let mut publication = nudge(bench.start("PUT", &at("snapshot", 4), &AS_TEXT, "")).await;
        let mut again = nudge(bench.start("PUT", &at("snapshot", 4), &AS_TEXT, "")).await;
        let wrong = [AS_TEXT[0], ("Stream-Snapshot-Match", "no digest")];
        let mut waiting = vec![
            (bench.start("PUT", &at("snapshot", 2), &AS_TEXT, "old"), 409, "SNAPSHOT_STALE"),
            (bench.start("PUT", &at("snapshot", 6), &wrong, "x"), 409, "SNAPSHOT_MATCH_FAILED"),
            (bench.start("PUT", &at("snapshot", 7), &AS_TEXT, "x"), 409, "SNAPSHOT_BEYOND_TAIL"),
            (bench.start("PUT", &at("snapshot", 5), &AS_TEXT, "x"), 400, "OFFSET_NOT_ALIGNED"),
            (bench.start("DELETE", &at("snapshot", 4), &[], ""), 409, "SNAPSHOT_REQUIRED"),
            (bench.start("DELETE", &at("snapshot", 2), &[], ""), 404, "SNAPSHOT_NOT_FOUND"),
            (bench.start("PUT", &at("retention", 5), &[], ""), 409, "RETENTION_BEYOND_SNAPSHOT"),
            (bench.start("PUT", &at("retention", 3), &[], ""), 400, "OFFSET_NOT_ALIGNED"),
            (bench.start("PUT", &at("retention", 4), &[], ""), 204, ""),
            (bench.start("PUT", &at("retention", 4), &[], ""), 204, ""),
            (bench.start("PUT", &at("retention", 2), &[], ""), 409, "RETENTION_BACKWARD"),
            (bench.start("PUT", &at("snapshot", 2), &AS_TEXT, "old"), 410, "OFFSET_GONE"),
        ];
        for (index, (start, status, _)) in waiting.iter().enumerate() {
            assert!(start.waits_for_commit(), "request {index}, to be answered {status}");
        }
        // Readers see the old snapshot, and everything that was retained before.
        let head = bench.send("HEAD", "/test/s", &[], "").await.expect(200);
        assert!(head.header("Stream-Snapshot-Offset").unwrap().ends_with("_0000000000000002"), "{head:?}");
        assert_eq!(head.header("Stream-Record-First"), Some("0"));
        assert_eq!(bench.send("GET", &at("snapshot", 2), &[], "").await.expect(200).text(), "old");
        bench.send("GET", &at("snapshot", 4), &[], "").await.expect(404);
        assert_eq!(bench.send("GET", "/test/s", &[], "").await.expect(200).text(), "[1,2,3]");
        assert!(bench.send("GET", "/test/s/bootstrap", &[], "").await.expect(200).text().contains("old"));

        bench.hold(false);
        assert_eq!((status(&end(&mut publication).await), status(&end(&mut again).await)), ("204", "204"));
        for (start, status, code) in waiting.drain(..) {
            let answer = start.answer().await.expect(status);
            assert!(answer.text().contains(code), "{code}: {answer:?}");
        }
        let gone = bench.send("GET", "/test/s", &[], "").await.expect(410);
        assert!(gone.header("Stream-Next-Offset").unwrap().ends_with("_0000000000000004"), "{gone:?}");
        assert_eq!(
            (gone.header("Stream-Record-First"), gone.header("Stream-Record-Next")),
            (Some("2"), Some("3"))
        );
        assert_eq!(bench.send("GET", "/test/s?offset=4", &[], "").await.expect(200).text(), "[3]");
    });
}

/// The checks of decision 19 are made again when everything is written.
#[test]
fn a_publication_is_judged_anew_before_it_shows() {
    run(async {
        for (meanwhile, expected, code) in [
            (("DELETE", "/test/s".to_owned()), "404", "STREAM_NOT_FOUND"),
            (("PUT", at("snapshot", 4)), "409", "SNAPSHOT_STALE"),
            (("PUT", at("snapshot", 2)), "409", "SNAPSHOT_CONFLICT"),
            (("POST", "/test/s".to_owned()), "204", ""),
        ] {
            let bench = Bench::new(config()).await;
            bench.create("s", TEXT, &[]).await;
            bench.append("s", TEXT, "ab").await.expect(204);
            bench.append("s", TEXT, "cd").await.expect(204);
            bench.hold(true);
            let mut publication =
                with_chunks(&bench, bench.start("PUT", &at("snapshot", 2), &AS_TEXT, pattern(100_000))).await;
            let (method, target) = meanwhile;
            let body = if method == "POST" { "ef" } else { "" };
            let other = bench.start(method, &target, &AS_TEXT, body);
            bench.hold(false);
            let other =
                if method == "PUT" { end(&mut other.live()).await } else { other.answer().await.head };
            assert_eq!(status(&other), "204", "{method} {target}");
            let answer = end(&mut publication).await;
            assert!(status(&answer) == expected && answer.contains(code), "{method} {target}: {answer}");
            assert_eq!(bench.api.shard.oldest_pending_chunk(), None);
        }
    });
}

#[test]
fn appends_pass_a_large_snapshot() {
    run(async {
        let bench = Bench::new(large_segments()).await;
        bench.create("s", TEXT, &[]).await;
        bench.append("s", TEXT, "ab").await.expect(204);
        let body = pattern(10 << 20);
        bench.hold(true);
        let mut publication =
            with_chunks(&bench, bench.start("PUT", &at("snapshot", 2), &AS_TEXT, &body)).await;
        let mut passed = 0;
        for round in 0..100 {
            // Whatever the snapshot has put into the log, there is room for an append right behind it.
            let append = bench.start("POST", "/test/s", &AS_TEXT, "x");
            assert!(append.waits_for_commit(), "an append of round {round} finds no room");
            bench.hold(false);
            append.answer().await.expect(204);
            bench.hold(true);
            if !publication.is_silent().await {
                passed = round;
                break;
            }
        }
        assert!(passed >= 10, "appends of {passed} rounds were durable before a snapshot of 10 MiB");
        assert_eq!(status(&publication.text()), "204", "{}", publication.text());
        assert_eq!(bench.send("GET", &at("snapshot", 2), &[], "").await.expect(200).body, body);
    });
}

#[test]
fn chunks_are_protected_until_they_are_named_or_given_up() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[]).await;
        let shard = bench.api.shard.clone();
        for (method, target) in
            [("PUT", at("snapshot", 0)), ("POST", "/test/s".into()), ("PUT", "/test/n".into())]
        {
            let body = pattern(200_000);
            bench.hold(true);
            let given_up = with_chunks(&bench, bench.start(method, &target, &AS_TEXT, &body)).await;
            assert_ne!(shard.oldest_pending_chunk(), None, "{method} {target}");
            drop(given_up);
            assert_eq!(shard.oldest_pending_chunk(), None, "{method} {target}");
            bench.hold(false);
            let answer = end(&mut bench.start(method, &target, &AS_TEXT, &body).live()).await;
            assert!(answer.starts_with("HTTP/1.1 20"), "{method} {target}: {answer}");
            assert_eq!(shard.oldest_pending_chunk(), None, "{method} {target}");
        }
    });
}

/// A client that goes away early does not take the protection with it.
#[test]
fn chunks_that_are_named_are_protected_until_that_is_durable() {
    run(async {
        let bench = Bench::new(large_segments()).await;
        bench.create("s", TEXT, &[]).await;
        let shard = bench.api.shard.clone();
        bench.hold(true);
        let mut append = nudge(bench.start("POST", "/test/s", &AS_TEXT, pattern(5 << 20))).await;
        let staged_bytes = || shard.table.borrow().get(bench.id("s")).expect("it is there").staged.bytes;
        while staged_bytes() == 0 {
            turn().await;
            assert!(append.is_silent().await);
        }
        drop(append);
        assert_ne!(shard.oldest_pending_chunk(), None);
        bench.hold(false);
        bench.append("s", TEXT, "behind it").await.expect(204);
        assert_eq!(shard.oldest_pending_chunk(), None);
    });
}

#[test]
fn a_crash_leaves_all_of_a_snapshot_or_nothing() {
    run(async {
        let body = pattern(300_000);
        let mut seen = [0, 0];
        let mut crash_in = 0;
        loop {
            let bench = Bench::new(config()).await;
            bench.create("s", JSON, &[]).await;
            bench.append("s", JSON, "[1,2]").await.expect(204);
            publish(&bench, 2, "old").await.expect(204);
            bench.store.crash_at(bench.store.operations() + crash_in, Torn::Nothing);
            let answer = publish(&bench, 4, &body).await;
            let bench = bench.restarted(config()).await;
            let head = bench.send("HEAD", "/test/s", &[], "").await.expect(200);
            let offset =
                head.header("Stream-Snapshot-Offset").expect("the old one or the new one").to_owned();
            let found = if offset.ends_with('4') { 1 } else { 0 };
            let expected = [&b"old"[..], &body][found];
            let target = format!("/test/s/snapshot/{offset}");
            assert!(bench.send("GET", &target, &[], "").await.expect(200).body == expected, "{offset}");
            seen[found] += 1;
            match answer.status {
                204 => assert_eq!(found, 1, "an acknowledged snapshot is there after a crash"),
                503 => {}
                _ => panic!("{answer:?}"),
            }
            if answer.status == 204 {
                break;
            }
            crash_in += 1;
        }
        assert!(seen[0] > 1 && seen[1] > 0, "{seen:?}");
    });
}

#[test]
fn a_snapshot_is_read_to_its_end_when_another_takes_its_place() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[]).await;
        bench.append("s", TEXT, "ab").await.expect(204);
        let body = pattern(3 << 20);
        publish(&bench, 0, &body).await.expect(204);
        let mut reading = bench.start("GET", &at("snapshot", 0), &[], "").live();
        reading.next().await;
        assert!(!reading.ended);
        publish(&bench, 2, "new").await.expect(204);
        bench.send("PUT", &at("retention", 2), &[], "").await.expect(204);
        bench.send("GET", &at("snapshot", 0), &[], "").await.expect(404);
        end(&mut reading).await;
        assert!(reading.out.ends_with(&body));
    });
}

/// Never wrong data: what is not retained any more ends the answer before its announced length.
#[test]
fn a_bootstrap_that_retention_overtakes_is_cut() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[]).await;
        for _ in 0..40 {
            bench.append("s", TEXT, vec![b'x'; 100_000]).await.expect(204);
        }
        let mut kept = bench.start("GET", "/test/s/bootstrap", &[], "").live();
        let mut cut = bench.start("GET", "/test/s/bootstrap", &[], "").live();
        cut.next().await;
        // One that is far enough ahead is not disturbed.
        kept.next().await;
        kept.next().await;
        let length = |live: &Live| {
            let (head, body) = live.out.split_at(live.text().find("\r\n\r\n").expect("a head") + 4);
            let head = String::from_utf8_lossy(head).into_owned();
            let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            (length.expect("a length").parse::<usize>().expect("a number"), body.len())
        };
        publish(&bench, 4_000_000, "all").await.expect(204);
        bench.send("PUT", &at("retention", 1_500_000), &[], "").await.expect(204);
        end(&mut cut).await;
        let (announced, sent) = length(&cut);
        assert!(sent < announced, "{sent} of {announced} bytes");
        end(&mut kept).await;
        let (announced, sent) = length(&kept);
        assert_eq!(announced, sent);
        let again = bench.send("GET", "/test/s/bootstrap", &[], "").await.expect(200);
        assert!(again.text().contains("\r\n\r\nall\r\n--"), "{again:?}");
    });
}

#[test]
fn a_live_reader_that_retention_overtakes_ends() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", JSON, &[]).await;
        bench.append("s", JSON, format!("[{}1]", "1,".repeat(200_000))).await.expect(204);
        let mut events = bench.start("GET", "/test/s?offset=-1&live=sse", &[], "").live();
        events.next().await;
        let seen = events.text();
        assert!(seen.contains("event: control") && !events.ended);
        publish(&bench, 400_002, "all").await.expect(204);
        bench.send("PUT", &at("retention", 400_002), &[], "").await.expect(204);
        end(&mut events).await;
        assert_eq!(events.text(), seen + "0\r\n\r\n", "the end, and nothing else");
    });
}

#[test]
fn attributes_that_are_the_same_are_not_written() {
    run(async {
        let bench = Bench::new(config()).await;
        bench.create("s", TEXT, &[("Stream-Attrs", r#"{"title":"a"}"#)]).await;
        let put = |body: &'static str| bench.start("PUT", "/test/s/attrs", &AS_JSON, body);
        bench.hold(true);
        let same = put(r#"{ "title" : "a", "unknown" : 1 }"#);
        assert!(!same.waits_for_commit() && !same.is_under_way(), "nothing was staged");
        same.answer().await.expect(204);
        let other = put(r#"{"title":"b"}"#);
        let same = put(r#"{"title":"b"}"#);
        assert!(other.waits_for_commit() && same.waits_for_commit(), "it is the same once that is durable");
        let read = || bench.send("GET", "/test/s/attrs", &[], "");
        assert_eq!(read().await.expect(200).text(), r#"{"title":"a"}"#);
        bench.hold(false);
        other.answer().await.expect(204);
        same.answer().await.expect(204);
        assert_eq!(read().await.expect(200).text(), r#"{"title":"b"}"#);
        put("{}").answer().await.expect(204);
        assert_eq!(read().await.expect(200).text(), "{}");
    });
}

#[test]
fn a_failed_commit_publishes_nothing() {
    run(async {
        let bench = Bench::new(bench_with_cache()).await;
        bench.create("s", TEXT, &[]).await;
        bench.append("s", TEXT, "ab").await.expect(204);
        publish(&bench, 0, "old").await.expect(204);
        bench.store.crash_at(bench.store.operations(), Torn::Nothing);
        for (method, target, body) in [
            ("PUT", at("snapshot", 2), "x"),
            ("PUT", at("snapshot", 2), ""),
            ("PUT", at("retention", 0), ""),
            ("PUT", "/test/s/attrs".to_owned(), "{}"),
        ] {
            let answer = bench.send(method, &target, &AS_JSON, body).await;
            // What is there already needs no commit.
            let is_nothing_new = target.ends_with("/0") || target.ends_with("attrs");
            assert_eq!(answer.status, if is_nothing_new { 204 } else { 503 }, "{target}: {answer:?}");
        }
        bench.send("PUT", "/test/s/attrs", &AS_JSON, r#"{"title":"x"}"#).await.expect(503);
        assert_eq!(bench.send("GET", &at("snapshot", 0), &[], "").await.expect(200).text(), "old");
        assert!(bench.send("GET", "/test/s/bootstrap", &[], "").await.expect(200).text().contains("old"));
    });
}
