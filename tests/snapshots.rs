//! Snapshots (extension 2; decisions 2, 17 to 19): publish, read, the order of checks, and what survives.

mod common;

use common::{Bootstrap, DataDir, JSON, OCTETS, Server, Stream, TEXT, digest};

/// A text stream with the messages `ab`, `cde` and `f`; the offsets before, between and behind them.
fn three_messages<'s>(server: &'s Server, name: &str) -> (Stream<'s>, [String; 4]) {
    let stream = server.create(name, TEXT);
    let offsets = [stream.tail(), stream.append("ab"), stream.append("cde"), stream.append("f")];
    (stream, offsets)
}

/// Bytes that repeat only after a long while.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn the_latest_snapshot_is_found_and_read() {
    let server = Server::start(&[]);
    let (stream, [start, first, _, tail]) = three_messages(&server, "a%20b%C3%A9");
    stream.below("GET", "snapshot").expect(404).expect_error(404, "SNAPSHOT_NOT_FOUND");
    assert_eq!(stream.head().header("stream-snapshot-offset"), None);
    let mut digests = Vec::new();
    for (offset, body) in [(&start, ""), (&first, "one"), (&tail, "three")] {
        let digest = stream.publish(offset, body);
        let head = stream.head();
        assert_eq!(head.required("stream-snapshot-offset"), offset);
        assert_eq!(head.required("stream-snapshot-digest"), digest);
        for method in ["GET", "HEAD"] {
            let redirect = stream.below(method, "snapshot").expect(307);
            let expected = format!("http://thalweg.test{}/snapshot/{offset}", stream.path);
            assert_eq!(redirect.required("location"), expected);
            assert_eq!(redirect.required("stream-snapshot-digest"), digest);
            let read = stream.below(method, &format!("snapshot/{offset}")).expect(200);
            assert_eq!(read.body, if method == "GET" { body.as_bytes() } else { b"" });
            assert_eq!(read.required("content-length"), body.len().to_string());
            assert_eq!(read.required("content-type"), TEXT);
            assert_eq!(read.required("stream-snapshot-offset"), offset);
            assert_eq!(read.required("stream-snapshot-digest"), digest);
            assert_eq!(&read.next_offset(), offset, "decision 19");
            assert_eq!(read.header("stream-up-to-date"), (*offset == tail).then_some("true"));
        }
        digests.push(digest);
    }
    for offset in [&start, &first] {
        stream
            .below("GET", &format!("snapshot/{offset}"))
            .expect(404)
            .expect_error(404, "SNAPSHOT_NOT_FOUND");
    }
    digests.dedup();
    assert_eq!(digests.len(), 3);
    // The same place in its other spellings.
    for spelling in ["6", &tail.replace('_', "%5F")] {
        assert_eq!(stream.below("GET", &format!("snapshot/{spelling}")).expect(200).text(), "three");
    }
}

#[test]
fn content_types_are_kept_as_they_were_sent() {
    let server = Server::start(&[]);
    let stream = server.create("s", TEXT);
    for (step, content_type) in ["application/x-a; v=\"1, 2\"", "Image/PNG", OCTETS].into_iter().enumerate() {
        let offset = stream.append("x");
        let mut request = stream.below("PUT", &format!("snapshot/{offset}")).body("body");
        if content_type != OCTETS {
            request = request.header("Content-Type", content_type);
        }
        let answer = request.expect(204);
        assert_eq!(answer.required("stream-snapshot-digest"), digest(content_type, b"body"), "step {step}");
        let read = stream.below("GET", &format!("snapshot/{offset}")).expect(200);
        assert_eq!(read.required("content-type"), content_type);
    }
    let offset = stream.append("x");
    let bad = stream.below("PUT", &format!("snapshot/{offset}")).header("Content-Type", "no media type");
    bad.body("x").send().expect_error(400, "INVALID_CONTENT_TYPE");
}

#[test]
fn decision_19_the_checks_come_in_their_order() {
    let server = Server::start(&["--max-snapshot-bytes", "100"]);
    let bucket = server.prefix();
    let missing = server.stream(&format!("{bucket}missing"), TEXT);
    let large = "x".repeat(101);
    let longer = "x".repeat(200_000);
    // What a body over the limit is told first, in whatever way it comes.
    let refused = |stream: &Stream<'_>, offset: &str, matching: Option<&str>, status, code: &str| {
        let with_match = |body: &str| {
            let request = stream.publication(offset, body);
            matching.map_or(stream.publication(offset, body), |digest| {
                request.header("Stream-Snapshot-Match", digest)
            })
        };
        for body in ["x", &large, &longer] {
            with_match(body).send().expect_error(status, code);
            with_match(body).chunked().send().expect_error(status, code);
        }
    };
    refused(&missing, "0", None, 404, "STREAM_NOT_FOUND");
    refused(&server.stream("/nowhere/s", TEXT), "0", None, 404, "BUCKET_NOT_FOUND");
    let (stream, [_, first, second, tail]) = three_messages(&server, "s");
    for offset in ["-1", "now", "", "x", "01", "1e3", "%20", "9999999999999999_0000000000000000"] {
        refused(&stream, offset, None, 400, "INVALID_OFFSET");
    }
    refused(&stream, "7", None, 409, "SNAPSHOT_BEYOND_TAIL");
    let wrong = digest(TEXT, b"other");
    for matching in [wrong.as_str(), "", "x"] {
        refused(&stream, &first, Some(matching), 409, "SNAPSHOT_MATCH_FAILED");
    }
    refused(&stream, "3", None, 400, "OFFSET_NOT_ALIGNED");
    for body in [&large, &longer] {
        stream.publication(&second, body).send().expect_error(413, "PAYLOAD_TOO_LARGE");
        stream.publication(&second, body).chunked().send().expect_error(413, "PAYLOAD_TOO_LARGE");
    }
    assert_eq!(stream.head().header("stream-snapshot-offset"), None, "nothing was published so far");

    let visible = stream.publish(&second, "x".repeat(100));
    stream
        .publication(&tail, "y")
        .header("Stream-Snapshot-Match", &wrong)
        .send()
        .expect_error(409, "SNAPSHOT_MATCH_FAILED");
    // A retry succeeds, whatever has become of the snapshot that it replaced.
    let retry =
        stream.publication(&second, "x".repeat(100)).header("Stream-Snapshot-Match", &wrong).expect(204);
    assert_eq!(retry.required("stream-snapshot-digest"), visible);
    let other = |matching: &str| stream.publication(&second, "y").header("Stream-Snapshot-Match", matching);
    other(&wrong).send().expect_error(409, "SNAPSHOT_MATCH_FAILED");
    let conflict = other(&visible).send().expect_error(409, "SNAPSHOT_CONFLICT");
    assert_eq!(conflict.required("stream-snapshot-digest"), visible);
    assert_eq!(conflict.next_offset(), tail);
    let as_json = stream.below("PUT", &format!("snapshot/{second}")).header("Content-Type", JSON);
    as_json.body("x".repeat(100)).send().expect_error(409, "SNAPSHOT_CONFLICT");
    refused(&stream, &first, None, 409, "SNAPSHOT_STALE");
    refused(&stream, "3", None, 409, "SNAPSHOT_STALE");
    stream.retain(&first);
    refused(&stream, "0", None, 410, "OFFSET_GONE");
    refused(&stream, "1", Some(&wrong), 410, "OFFSET_GONE");
    let gone = stream.publication("0", "x").expect(410);
    assert_eq!((gone.next_offset(), gone.header("stream-record-first")), (first, None));

    stream.publication(&tail, "y").header("Stream-Snapshot-Match", &visible).expect(204);
    assert_eq!(stream.head().required("stream-snapshot-offset"), tail);
}

#[test]
fn a_token_of_an_earlier_life_is_gone() {
    let server = Server::start(&[]);
    let (stream, [_, _, _, old]) = three_messages(&server, "s");
    stream.delete();
    let (stream, [_, _, _, new]) = three_messages(&server, "s");
    stream.publication(&old, "x").send().expect_error(410, "OFFSET_GONE");
    stream.below("PUT", &format!("retention/{old}")).expect(410).expect_error(410, "OFFSET_GONE");
    stream.publish(&new, "x");
    stream.below("GET", &format!("snapshot/{old}")).expect(404).expect_error(404, "SNAPSHOT_NOT_FOUND");
    stream.below("DELETE", &format!("snapshot/{old}")).expect(404).expect_error(404, "SNAPSHOT_NOT_FOUND");
}

#[test]
fn records_name_boundaries_of_a_record_stream_only() {
    let server = Server::start(&[]);
    let stream = server.create("s", JSON);
    stream.append(r#"[{"a":1},2,3]"#);
    let put = |query: &str| stream.below("PUT", &format!("snapshot{query}")).body("x");
    for (query, status, code) in [
        ("", 400, "INVALID_OFFSET"),
        ("?record=", 400, "INVALID_RECORD"),
        ("?record=-1", 400, "INVALID_RECORD"),
        ("?record=now", 400, "INVALID_RECORD"),
        ("?record=1&record=1", 400, "CONFLICTING_START"),
        ("/8?record=1", 400, "CONFLICTING_START"),
        ("?record=4", 409, "SNAPSHOT_BEYOND_TAIL"),
        ("?record=99999999999999999999", 409, "SNAPSHOT_BEYOND_TAIL"),
    ] {
        put(query).send().expect_error(status, code);
    }
    for (record, offset) in [(0, 0), (1, 8), (3, 12)] {
        let answer = put(&format!("?record={record}")).expect(204);
        assert!(answer.required("stream-snapshot-offset").ends_with(&format!("_{offset:016}")));
        assert_eq!(answer.header("stream-extensions"), Some("json-record-coordinates-v1"));
        let read = stream.below("GET", &format!("snapshot/{offset}")).expect(200);
        assert_eq!(read.required("stream-record-first"), "0");
        assert_eq!(read.required("stream-record-next"), record.to_string());
    }
    put("?record=2").send().expect_error(409, "SNAPSHOT_STALE");
    stream.publication("9", "x").send().expect_error(409, "SNAPSHOT_STALE");
    let text = server.create("text", TEXT);
    text.append("ab");
    text.below("PUT", "snapshot?record=0").body("x").send().expect_error(400, "RECORDS_UNSUPPORTED");
}

#[test]
fn only_the_visible_snapshot_is_there_and_it_stays() {
    let server = Server::start(&[]);
    let (stream, [_, first, second, _]) = three_messages(&server, "s");
    let delete = |offset: &str| stream.below("DELETE", &format!("snapshot/{offset}")).send();
    delete(&first).expect_error(404, "SNAPSHOT_NOT_FOUND");
    stream.publish(&first, "one");
    delete(&first).expect_error(409, "SNAPSHOT_REQUIRED");
    stream.publish(&second, "two");
    delete(&first).expect_error(404, "SNAPSHOT_NOT_FOUND");
    delete(&second).expect_error(409, "SNAPSHOT_REQUIRED");
    for malformed in ["-1", "now", "x", ""] {
        delete(malformed).expect_error(400, "INVALID_OFFSET");
        stream.below("GET", &format!("snapshot/{malformed}")).expect(400).expect_error(400, "INVALID_OFFSET");
    }
    assert_eq!(stream.below("GET", &format!("snapshot/{second}")).expect(200).text(), "two");
    let allow =
        |method: &str, suffix: &str| stream.below(method, suffix).expect(405).required("allow").to_owned();
    assert_eq!(allow("POST", "snapshot/3"), "GET, HEAD, PUT, DELETE, OPTIONS");
    assert_eq!(allow("DELETE", "snapshot"), "GET, HEAD, PUT, OPTIONS");
}

#[test]
fn bodies_of_every_size_come_back_in_both_framings() {
    // Small segments: a megabyte is spread over many commits.
    let server = Server::start(&["--segment-bytes", "1048576", "--cache-bytes", "0"]);
    let stream = server.create("s", TEXT);
    for (step, bytes) in
        [1, 63 * 1024, 64 * 1024, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000].into_iter().enumerate()
    {
        let (offset, body) = (stream.append("x"), pattern(bytes));
        let request = stream.publication(&offset, &body);
        let request = if step % 2 == 0 { request } else { request.chunked() };
        // Something else goes on behind it on its connection.
        let mut connection = server.connect();
        connection.start(&request);
        connection.start(&stream.request("HEAD"));
        let answer = connection.read_response("PUT").expect(204);
        assert_eq!(answer.required("stream-snapshot-digest"), digest(TEXT, &body), "{bytes} bytes");
        let head = connection.read_response("HEAD").expect(200);
        assert_eq!(head.required("stream-snapshot-offset"), offset, "it sees the snapshot before it");
        let read = stream.below("GET", &format!("snapshot/{offset}")).expect(200);
        assert!(read.body == body, "{bytes} bytes");
    }
}

#[test]
fn a_large_snapshot_and_appends_do_not_disturb_each_other() {
    let server = Server::start(&["--cache-bytes", "0"]);
    let (stream, [_, _, _, offset]) = three_messages(&server, "s");
    let body = pattern(64 << 20);
    let expected = digest(TEXT, &body);
    let done = std::sync::atomic::AtomicBool::new(false);
    let others: Vec<_> = (0..3).map(|n| server.create(&format!("other-{n}"), TEXT)).collect();
    let appended: Vec<usize> = std::thread::scope(|scope| {
        let appends = others.iter().chain([&stream]).map(|other| {
            let done = &done;
            scope.spawn(move || {
                let mut connection = server_of(other).connect();
                let mut count = 0;
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    connection.send(&other.post("m")).expect(204);
                    count += 1;
                }
                count
            })
        });
        let appends: Vec<_> = appends.collect();
        let answer = stream.publication(&offset, &body).send();
        done.store(true, std::sync::atomic::Ordering::Release);
        assert_eq!(answer.expect(204).required("stream-snapshot-digest"), expected);
        appends.into_iter().map(|thread| thread.join().expect("appends succeed")).collect()
    });
    for (other, count) in others.iter().zip(&appended) {
        assert_eq!(other.read_text(), "m".repeat(*count));
    }
    assert_eq!(stream.read_text(), format!("abcdef{}", "m".repeat(appended[3])));
    let read = stream.below("GET", &format!("snapshot/{offset}")).expect(200);
    assert!(read.body == body && read.required("stream-snapshot-digest") == expected);
    let over = stream.below("PUT", &format!("snapshot/{}", stream.tail())).body(vec![0; (64 << 20) + 1]);
    over.send().expect_error(413, "PAYLOAD_TOO_LARGE");
}

fn server_of<'s>(stream: &Stream<'s>) -> &'s Server {
    stream.server()
}

#[test]
fn snapshots_survive_kills_stops_and_another_number_of_shards() {
    let dir = DataDir::new();
    let flags = |shards| ["--segment-bytes", "1048576", "--cache-bytes", "0", "--shards", shards];
    let server = Server::start_in(&dir, &flags("2"));
    let mut known = Vec::new();
    for n in 0..6 {
        let (stream, [_, first, second, _]) = three_messages(&server, &format!("s{n}"));
        stream.publish(&first, "superseded");
        let body = pattern(if n % 2 == 0 { 10 } else { 400_000 });
        stream.publish(&second, &body);
        known.push((stream.path.clone(), second, body));
        // Enough for segments to be sealed in between.
        server.create(&format!("filler-{n}"), TEXT).append(pattern(700_000));
    }
    let check = |server: &Server| {
        for (path, offset, body) in &known {
            let stream = server.stream(path, TEXT);
            let expected = digest(TEXT, body);
            assert_eq!(stream.head().required("stream-snapshot-digest"), expected);
            let read = stream.below("GET", &format!("snapshot/{offset}")).expect(200);
            assert!(read.body == *body && read.required("stream-snapshot-digest") == expected, "{path}");
            let bootstrap = Bootstrap::parse(stream.below("GET", "bootstrap").expect(200));
            assert!(bootstrap.snapshot.body == *body && bootstrap.texts() == ["f"], "{path}");
            // The retry of a publication whose answer was lost.
            stream.publication(offset, body).header("Stream-Snapshot-Match", "x").expect(204);
        }
    };
    check(&server);
    server.kill();
    let server = Server::start_in(&dir, &flags("2"));
    check(&server);
    server.stop();
    for shards in ["3", "1"] {
        let server = Server::start_in(&dir, &flags(shards));
        check(&server);
        server.stop();
    }
}

#[test]
fn a_stream_takes_its_snapshot_with_it() {
    let server = Server::start(&[]);
    let (stream, [_, first, ..]) = three_messages(&server, "s");
    stream.publish(&first, "x");
    stream.delete();
    stream.below("GET", "snapshot").expect(404).expect_error(404, "STREAM_NOT_FOUND");
    stream.below("GET", &format!("snapshot/{first}")).expect(404).expect_error(404, "STREAM_NOT_FOUND");
    stream.put().expect(201);
    stream.below("GET", "snapshot").expect(404).expect_error(404, "SNAPSHOT_NOT_FOUND");
}
