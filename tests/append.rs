//! Appending and closing: section 5.2 and 5.3 of the protocol, decisions 6, 7 and 23.

mod common;

use common::{JSON, OCTETS, Server, TEXT};

#[test]
fn an_append_moves_the_tail() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("append", OCTETS) {
        let first = stream.tail();
        let second = stream.post("hello").expect(204);
        assert_eq!(second.body, b"");
        assert!(second.next_offset() > first);
        assert_eq!(second.header("stream-closed"), None);
        let third = stream.append(" world");
        assert!(third > second.next_offset());
        assert_eq!(stream.tail(), third);
        assert_eq!(stream.read(), b"hello world");
        assert_eq!(stream.get(&format!("offset={}", second.next_offset())).expect(200).body, b" world");
    }
}

#[test]
fn an_append_needs_a_body_and_a_content_type() {
    let server = Server::start(&[]);
    let stream = server.create("needs", TEXT);
    stream.post("").expect(400);
    stream.request("POST").header("Content-Type", TEXT).expect(400);
    stream.post("").chunked().expect(400);
    stream.post("").header("Stream-Closed", "false").expect(400);
    stream.request("POST").body("x").expect(400);
    assert_eq!(stream.read_text(), "");
}

#[test]
fn section_5_3_a_close_is_final_and_idempotent() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("close", TEXT) {
        let tail = stream.append("x");
        for _ in 0..3 {
            let closed = stream.close();
            assert_eq!(closed.next_offset(), tail);
            assert_eq!(closed.header("stream-closed"), Some("true"));
        }
        // A Content-Type on an empty body does not matter, even a wrong one.
        stream
            .request("POST")
            .header("Content-Type", JSON)
            .header("Stream-Closed", "true")
            .body("")
            .expect(204);
        let refused = stream.post("y").expect(409);
        assert_eq!(refused.header("stream-closed"), Some("true"));
        assert_eq!(refused.next_offset(), tail);
        let refused = stream.post("y").header("Stream-Closed", "true").expect(409);
        assert_eq!(refused.header("stream-closed"), Some("true"));
        assert_eq!(stream.head().header("stream-closed"), Some("true"));
        assert_eq!(stream.read_text(), "x");
    }
}

#[test]
fn an_append_may_close_the_stream_at_once() {
    let server = Server::start(&[]);
    let stream = server.create("last-words", TEXT);
    stream.append("first ");
    let closing = stream.post("last").header("Stream-Closed", "TRUE").expect(204);
    assert_eq!(closing.header("stream-closed"), Some("true"));
    assert_eq!(stream.tail(), closing.next_offset());
    assert_eq!(stream.read_text(), "first last");
    stream.post("x").expect(409);
}

#[test]
fn decision_6_stream_closed_counts_only_when_it_is_true() {
    let server = Server::start(&[]);
    let stream = server.create("not-closed", TEXT);
    for value in ["false", "1", "yes", "", "truee", "true, true"] {
        stream.post("x").header("Stream-Closed", value).expect(204);
    }
    assert_eq!(stream.head().header("stream-closed"), None);
    stream.post("x").header("Stream-Closed", "tRuE").expect(204);
    assert_eq!(stream.head().header("stream-closed"), Some("true"));
}

#[test]
fn decision_23_stream_seq_grows_within_a_stream() {
    let server = Server::start(&[]);
    let stream = server.create("seq", TEXT);
    let with = |seq: &str| stream.post(format!("{seq};")).header("Stream-Seq", seq);
    with("2").expect(204);
    with("2").expect(409);
    with("1").expect(409);
    // Bytes are compared, not numbers.
    with("10").expect(409);
    with("20").expect(204);
    with("3").expect(204);
    with("A").expect(204);
    with("Z").expect(204);
    with("a").expect(204);
    // An append without one neither needs nor moves it.
    stream.append("none;");
    with("a").expect(409);
    with("aa").expect(204);
    // Its scope is the stream.
    server.create("other", TEXT).post("x").header("Stream-Seq", "0").expect(204);
    assert_eq!(stream.read_text(), "2;20;3;A;Z;a;none;aa;");
}

#[test]
fn decision_23_a_refused_append_does_not_use_up_its_seq() {
    let server = Server::start(&[]);
    let stream = server.create("unused", JSON);
    stream.post("{").header("Stream-Seq", "5").expect(400);
    server.stream(&stream.path, TEXT).post("1").header("Stream-Seq", "6").expect(409);
    stream.post("1").header("Stream-Seq", "1").expect(204);
    assert_eq!(stream.records(), ["1"]);
}

/// Decision 7: each request is wrong in its own way and in every later way; the earliest wrong answers.
#[test]
fn decision_7_checks_come_in_a_fixed_order() {
    let server = Server::start(&["--max-body-bytes", "1000"]);
    let open = server.create("order-open", JSON);
    let closed = server.create("order-closed", JSON);
    for stream in [&open, &closed] {
        stream.produce("p", 5, 0, "1").header("Stream-Seq", "m").expect(200);
        stream.produce("p", 5, 1, "2").expect(200);
    }
    closed.close();
    let absent = server.stream(&format!("{}absent", server.prefix()), JSON);
    let large = "[".repeat(1001);
    let post = |path: &str, body: &str, headers: &[(&str, &str)]| {
        server.request("POST", path).body(body).headers(headers).send()
    };
    let wrong_type = ("Content-Type", TEXT);
    let p = ("Producer-Id", "p");
    let bad = [p, ("Producer-Epoch", "x"), ("Producer-Seq", "0"), wrong_type, ("Stream-Seq", "a")];
    let stale = [p, ("Producer-Epoch", "4"), ("Producer-Seq", "9"), wrong_type, ("Stream-Seq", "a")];
    let duplicate = [p, ("Producer-Epoch", "5"), ("Producer-Seq", "0"), wrong_type, ("Stream-Seq", "a")];
    let gap = [p, ("Producer-Epoch", "5"), ("Producer-Seq", "9"), wrong_type, ("Stream-Seq", "a")];
    let jump = [p, ("Producer-Epoch", "6"), ("Producer-Seq", "9"), wrong_type, ("Stream-Seq", "a")];
    let typed = |headers: [(&'static str, &'static str); 5]| {
        headers.map(|h| if h == wrong_type { ("Content-Type", JSON) } else { h })
    };

    assert_eq!(post(&absent.path, &large, &bad).status, 404, "404 comes first");
    assert_eq!(post(&open.path, &large, &bad).status, 413, "then 413");
    assert_eq!(post(&closed.path, "{", &bad).status, 400, "then header syntax, on a closed stream too");
    let response = post(&closed.path, "{", &stale);
    assert_eq!(response.status, 403, "then the stale epoch, on a closed stream too");
    assert_eq!(response.header("producer-epoch"), Some("5"));
    assert_eq!(post(&closed.path, "{", &duplicate).status, 204, "then the duplicate, on a closed stream too");
    assert_eq!(post(&open.path, "{", &duplicate).status, 204);
    for wrong in [gap, jump] {
        let response = post(&closed.path, "{", &wrong);
        assert_eq!(response.status, 409, "then closed");
        assert_eq!(response.header("stream-closed"), Some("true"));
    }
    for wrong in [gap, jump] {
        let response = post(&open.path, "{", &wrong);
        assert_eq!(response.status, 409, "then the content type");
        assert_eq!(response.header("stream-closed"), None);
        assert_eq!(response.header("producer-received-seq"), Some("9"), "every 409 to a producer tells");
        assert!(response.header("producer-expected-seq").is_some());
    }
    assert_eq!(post(&open.path, "{", &typed(jump)).status, 400, "then a new epoch that does not begin at 0");
    let response = post(&open.path, "{", &typed(gap));
    assert_eq!(response.status, 409, "then the gap");
    assert_eq!(response.header("producer-expected-seq"), Some("2"));
    let next =
        [("Content-Type", JSON), p, ("Producer-Epoch", "5"), ("Producer-Seq", "2"), ("Stream-Seq", "a")];
    let response = post(&open.path, "{", &next);
    assert_eq!(response.status, 409, "then Stream-Seq");
    assert_eq!(response.header("producer-expected-seq"), Some("2"));
    assert_eq!(response.header("producer-received-seq"), Some("2"));
    let late =
        [("Content-Type", JSON), p, ("Producer-Epoch", "5"), ("Producer-Seq", "2"), ("Stream-Seq", "z")];
    assert_eq!(post(&open.path, "{", &late).status, 400, "and at last the JSON");
    // Nothing of all this moved any state.
    assert_eq!(post(&open.path, "3", &late).status, 200);
    assert_eq!(open.records(), ["1", "2", "3"]);
    assert_eq!(closed.records(), ["1", "2"]);
}

#[test]
fn decision_7_the_size_is_checked_before_the_body_is_kept() {
    let server = Server::start(&["--max-body-bytes", "1000"]);
    let stream = server.create("early", TEXT);
    let mut connection = server.connect();
    // Only the head is sent: the answer cannot have waited for the body.
    connection.write(
        format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 1001\r\n\r\n",
            stream.path
        )
        .as_bytes(),
    );
    connection.read_response("POST").expect(413);
    assert!(connection.is_closed());
}

#[test]
fn a_deleted_stream_takes_nothing() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("deleted", TEXT) {
        stream.append("x");
        stream.delete();
        stream.post("y").expect(404);
        stream.request("POST").header("Stream-Closed", "true").expect(404);
        stream.request("DELETE").expect(404);
        stream.request("HEAD").expect(404);
        stream.get("").expect(404);
        // The name is free again, and what was there is gone.
        stream.put().expect(201);
        assert_eq!(stream.read_text(), "");
    }
}

#[test]
fn concurrent_appends_all_land_whole() {
    let server = Server::start(&["--shards", "2"]);
    let stream = server.create("concurrent", TEXT);
    let (writers, appends) = (8, 50);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let stream = stream.clone();
            scope.spawn(move || {
                let mut connection = stream.server().connect();
                for n in 0..appends {
                    connection.send(&stream.post(format!("<{writer}:{n}>"))).expect(204);
                }
            });
        }
    });
    let text = stream.read_text();
    let mut next = vec![0; writers];
    for part in text.split_terminator('>') {
        let (writer, n) =
            part.strip_prefix('<').and_then(|part| part.split_once(':')).expect("no append is torn");
        let writer: usize = writer.parse().expect("a writer");
        assert_eq!(n.parse(), Ok(next[writer]), "each writer's appends keep their order");
        next[writer] += 1;
    }
    assert_eq!(next, vec![appends; writers]);
}

#[test]
fn appends_of_every_size_come_back_unchanged() {
    let server = Server::start(&["--segment-bytes", "1048576"]);
    let stream = server.create("sizes", OCTETS);
    let mut random = common::Random::new(7);
    let mut expected = Vec::new();
    let mut connection = server.connect();
    // Around every size that matters inside: blocks, checksummed chunks, commits, pages.
    let sizes =
        [1, 2, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 1_048_575, 1_048_576, 1_048_577, 5_000_000];
    for size in sizes.into_iter().chain([3, 100_000]) {
        let body: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        for request in [stream.post(&body), stream.post(&body).chunked()] {
            connection.send(&request).expect(204);
            expected.extend_from_slice(&body);
        }
    }
    let read = stream.read();
    assert_eq!(read.len(), expected.len());
    assert!(read == expected, "the bytes differ");
}

/// More than a commit holds: it arrives in pieces, and is judged when it is there.
#[test]
fn a_body_of_any_length_gets_the_same_answer() {
    let server = Server::start(&["--segment-bytes", "1048576"]);
    let producer = |epoch: &'static str, seq: &'static str| {
        vec![("Producer-Id", "p"), ("Producer-Epoch", epoch), ("Producer-Seq", seq)]
    };
    let octets = ("Content-Type", OCTETS);
    let table = [
        ("no content type", vec![], 400, "CONTENT_TYPE_REQUIRED"),
        ("another content type", vec![("Content-Type", "text/plain")], 409, "CONTENT_TYPE_MISMATCH"),
        ("a producer's first", [vec![octets], producer("1", "0")].concat(), 200, ""),
        ("a duplicate", [vec![octets], producer("1", "0")].concat(), 204, ""),
        ("a gap", [vec![octets], producer("1", "2")].concat(), 409, "PRODUCER_SEQ_GAP"),
        ("a stale epoch", [vec![octets], producer("0", "0")].concat(), 403, "STALE_EPOCH"),
        ("half a producer", vec![octets, ("Producer-Id", "p")], 400, "INVALID_PRODUCER"),
        ("a Stream-Seq", vec![octets, ("Stream-Seq", "b")], 204, ""),
        ("an older Stream-Seq", vec![octets, ("Stream-Seq", "a")], 409, "STREAM_SEQ_CONFLICT"),
        ("a record tail", vec![octets, ("Stream-Record-Match", "0")], 400, "INVALID_RECORD_MATCH"),
        ("the last", vec![octets, ("Stream-Closed", "true")], 204, ""),
        ("one too many", vec![octets], 409, "STREAM_CLOSED"),
    ];
    let answers = |name: &str, body: Vec<u8>| {
        let (stream, mut connection) = (server.create(name, OCTETS), server.connect());
        let mut expected = Vec::new();
        for (what, headers, status, code) in &table {
            let request = stream.request("POST").headers(headers).body(&body);
            let response = connection.send(&request);
            assert_eq!(response.status, *status, "{what}, {} bytes: {}", body.len(), response.text());
            if code.is_empty() {
                assert_eq!(response.next_offset(), stream.tail(), "{what}");
            } else {
                assert_eq!(response.error_code(), *code, "{what}, {} bytes", body.len());
            }
            if matches!(*what, "a producer's first" | "a Stream-Seq" | "the last") {
                expected.extend_from_slice(&body);
            }
        }
        assert!(stream.read() == expected, "{} bytes differ", body.len());
        server.stream("/test/absent", OCTETS).post(&body).send().expect_error(404, "STREAM_NOT_FOUND");
    };
    answers("short", b"short".to_vec());
    answers("long", (0..1_300_000).map(|at| (at % 251) as u8).collect());
}

#[test]
fn a_stream_that_is_replaced_while_a_body_arrives_is_judged_as_it_is_then() {
    let server = Server::start(&["--segment-bytes", "1048576"]);
    for (content_type, status) in [(OCTETS, 204), ("application/json", 409)] {
        let stream = server.create("replaced", OCTETS);
        let request = stream.post(vec![7; 400_000]).header("Expect", "100-continue");
        let (head, mut connection) = (request.head_bytes(), server.connect());
        connection.write(&head);
        assert_eq!(connection.read_head().expect("an interim answer").status, 100);
        stream.delete();
        server.create("replaced", content_type);
        connection.write(&request.bytes()[head.len()..]);
        let response = connection.read_response("POST");
        assert_eq!(response.status, status, "{content_type}: {}", response.text());
        server.stream("/test/replaced", content_type).delete();
    }
}
