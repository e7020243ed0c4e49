//! Idempotent producers: section 5.2.1 of the protocol, decisions 7 and 22.

mod common;

use common::{JSON, Server, TEXT};

#[test]
fn a_producer_appends_each_sequence_once() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("once", TEXT) {
        for seq in 0..5 {
            let fresh = stream.produce("p", 0, seq, format!("{seq}")).expect(200);
            assert_eq!(fresh.header("producer-epoch"), Some("0"));
            assert_eq!(fresh.header("producer-seq"), Some(seq.to_string().as_str()));
            let again = stream.produce("p", 0, seq, "another body").expect(204);
            assert_eq!(again.next_offset(), fresh.next_offset());
            assert_eq!(again.header("producer-epoch"), Some("0"));
            assert_eq!(again.header("producer-seq"), Some(seq.to_string().as_str()));
        }
        assert_eq!(stream.read_text(), "01234");
    }
}

#[test]
fn decision_22_a_duplicate_of_any_earlier_sequence_returns_its_original_place() {
    let server = Server::start(&[]);
    let stream = server.create("original", JSON);
    let mut originals = Vec::new();
    for seq in 0..200u64 {
        // Other writers and other sizes come in between, so that nothing can be computed from the sequence alone.
        if seq % 7 == 0 {
            stream.append("\"between\"");
        }
        if seq % 5 == 0 {
            stream.produce("q", 3, seq / 5, "[true,false]").expect(200);
        }
        let body = format!("[{}]", vec![seq.to_string(); 1 + seq as usize % 4].join(","));
        originals.push(stream.produce("p", 0, seq, body).expect(200));
    }
    let count = stream.records().len();
    for (seq, original) in originals.iter().enumerate().rev() {
        let again = stream.produce("p", 0, seq as u64, "[\"ignored\"]").expect(204);
        assert_eq!(again.next_offset(), original.next_offset(), "decision 7: sequence {seq}");
        for header in ["stream-record-start", "stream-record-next"] {
            assert_eq!(again.header(header), original.header(header), "sequence {seq}");
        }
        // The highest accepted sequence, not the repeated one.
        assert_eq!(again.header("producer-seq"), Some("199"));
    }
    assert_eq!(stream.records().len(), count);
}

#[test]
fn section_6_3_acknowledgements_of_records_tell_their_ordinals() {
    let server = Server::start(&[]);
    let stream = server.create("ordinals", JSON);
    let range = |response: &common::Response| {
        let number = |name| response.required(name).parse::<u64>().expect("a number");
        (number("stream-record-start"), number("stream-record-next"))
    };
    assert_eq!(range(&stream.post("1").expect(204)), (0, 1));
    assert_eq!(range(&stream.post("[2,3,4]").expect(204)), (1, 4));
    assert_eq!(range(&stream.produce("p", 0, 0, "[5,6]").expect(200)), (4, 6));
    assert_eq!(range(&stream.post("7").expect(204)), (6, 7));
    assert_eq!(range(&stream.produce("p", 0, 0, "[5,6]").expect(204)), (4, 6));
}

#[test]
fn the_epoch_fences_earlier_ones() {
    let server = Server::start(&[]);
    let stream = server.create("epochs", TEXT);
    stream.produce("p", 0, 0, "a").expect(200);
    stream.produce("p", 0, 1, "b").expect(200);
    let begun_late = stream.produce("p", 1, 1, "x").expect(400);
    assert_eq!(begun_late.header("stream-next-offset"), None);
    stream.produce("p", 1, 0, "c").expect(200);
    for seq in [0, 1, 2] {
        let stale = stream.produce("p", 0, seq, "x").expect(403);
        assert_eq!(stale.header("producer-epoch"), Some("1"));
    }
    // Epochs may skip.
    stream.produce("p", 9, 0, "d").expect(200);
    stream.produce("p", 9, 0, "x").expect(204);
    stream.produce("p", 1, 1, "x").expect(403);
    // Another producer has its own.
    stream.produce("q", 0, 0, "e").expect(200);
    assert_eq!(stream.read_text(), "abcde");
}

#[test]
fn a_gap_tells_what_is_expected() {
    let server = Server::start(&[]);
    let stream = server.create("gap", TEXT);
    let first = stream.produce("p", 0, 3, "x").expect(409);
    assert_eq!(first.header("producer-expected-seq"), Some("0"));
    assert_eq!(first.header("producer-received-seq"), Some("3"));
    stream.produce("p", 0, 0, "a").expect(200);
    let gap = stream.produce("p", 0, 2, "x").expect(409);
    assert_eq!(gap.header("producer-expected-seq"), Some("1"));
    assert_eq!(gap.header("producer-received-seq"), Some("2"));
    stream.produce("p", 0, 1, "b").expect(200);
    assert_eq!(stream.read_text(), "ab");
}

#[test]
fn producer_headers_come_together_and_well_formed() {
    let server = Server::start(&[]);
    let stream = server.create("headers", TEXT);
    let all = [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
    for left_out in 0..all.len() {
        let some: Vec<_> = all.iter().enumerate().filter(|(n, _)| *n != left_out).map(|(_, h)| *h).collect();
        stream.post("x").headers(&some).expect(400);
        stream.post("x").headers(&[all[left_out]]).expect(400);
    }
    for (name, bad) in [
        ("Producer-Id", ""),
        ("Producer-Id", "  "),
        ("Producer-Epoch", ""),
        ("Producer-Epoch", "-1"),
        ("Producer-Epoch", "+1"),
        ("Producer-Epoch", "1.5"),
        ("Producer-Epoch", "1e3"),
        ("Producer-Epoch", "0x1"),
        ("Producer-Epoch", "one"),
        ("Producer-Epoch", "9007199254740992"),
        ("Producer-Seq", "-1"),
        ("Producer-Seq", "1.0"),
        ("Producer-Seq", "9007199254740992"),
        ("Producer-Seq", "99999999999999999999999"),
    ] {
        let headers = all.map(|(header, value)| if header == name { (name, bad) } else { (header, value) });
        assert_eq!(stream.post("x").headers(&headers).send().status, 400, "{name}: {bad:?}");
    }
    // The largest epoch there is.
    stream.produce("p", 9_007_199_254_740_991, 0, "a").expect(200);
    assert_eq!(stream.read_text(), "a");
}

#[test]
fn a_producer_closes_once() {
    let server = Server::start(&[]);
    let stream = server.create("closes", TEXT);
    stream.produce("p", 0, 0, "a").expect(200);
    let closing = stream.produce("p", 0, 1, "b").header("Stream-Closed", "true").expect(200);
    assert_eq!(closing.header("stream-closed"), Some("true"));
    let again = stream.produce("p", 0, 1, "b").header("Stream-Closed", "true").expect(204);
    assert_eq!(again.header("stream-closed"), Some("true"));
    assert_eq!(again.next_offset(), closing.next_offset());
    // Decision 7: a duplicate is one on a closed stream too; it does not matter which.
    assert_eq!(stream.produce("p", 0, 0, "a").expect(204).header("stream-closed"), Some("true"));
    let late = stream.produce("p", 0, 2, "c").expect(409);
    assert_eq!(late.header("stream-closed"), Some("true"));
    assert_eq!(late.header("producer-expected-seq"), Some("2"));
    assert_eq!(late.header("producer-received-seq"), Some("2"));
    stream.produce("q", 0, 0, "d").header("Stream-Closed", "true").expect(409);
    assert_eq!(stream.read_text(), "ab");
}

#[test]
fn a_producer_may_close_without_appending() {
    let server = Server::start(&[]);
    let stream = server.create("closes-empty", TEXT);
    stream.produce("p", 0, 0, "a").expect(200);
    let close = |seq: &str| {
        stream
            .request("POST")
            .header("Stream-Closed", "true")
            .header("Producer-Id", "p")
            .header("Producer-Epoch", "0")
            .header("Producer-Seq", seq)
    };
    close("5").expect(409);
    let closed = close("1").send();
    assert!(closed.status == 200 || closed.status == 204, "{closed:?}");
    assert_eq!(closed.header("stream-closed"), Some("true"));
    assert_eq!(close("1").expect(204).header("stream-closed"), Some("true"));
    assert_eq!(stream.head().header("stream-closed"), Some("true"));
    assert_eq!(stream.read_text(), "a");
}

#[test]
fn producers_of_one_stream_do_not_know_each_other() {
    let server = Server::start(&[]);
    let stream = server.create("many", TEXT);
    let mut connection = server.connect();
    for seq in 0..10 {
        for producer in 0..30 {
            let request = stream.produce(&format!("producer {producer}"), producer, seq, "x");
            connection.send(&request).expect(200);
        }
    }
    assert_eq!(stream.read_text().len(), 300);
    // Nor does the same producer on another stream.
    server.create("another", TEXT).produce("producer 1", 0, 0, "x").expect(200);
}

#[test]
fn pipelined_sequences_are_accepted_in_order() {
    let server = Server::start(&["--shards", "2"]);
    let stream = server.create("pipelined", TEXT);
    let mut connection = server.connect();
    let requests: Vec<_> = (0..100).map(|seq| stream.produce("p", 0, seq, format!("{seq},"))).collect();
    connection.write(&requests.iter().flat_map(|request| request.bytes()).collect::<Vec<u8>>());
    for _ in &requests {
        connection.read_response("POST").expect(200);
    }
    // All of it again, as a client does that lost its connection.
    connection.write(&requests.iter().flat_map(|request| request.bytes()).collect::<Vec<u8>>());
    for _ in &requests {
        connection.read_response("POST").expect(204);
    }
    assert_eq!(stream.read_text(), (0..100).map(|seq| format!("{seq},")).collect::<String>());
}

#[test]
fn a_failed_append_does_not_use_up_its_sequence() {
    let server = Server::start(&[]);
    let stream = server.create("unused", JSON);
    stream.produce("p", 0, 0, "{").expect(400);
    stream.produce("p", 0, 0, "[]").expect(400);
    server.stream(&stream.path, TEXT).produce("p", 0, 0, "1").expect(409);
    stream.produce("p", 0, 0, "1").expect(200);
    // Nor does one that would have begun an epoch.
    stream.produce("p", 1, 0, "{").expect(400);
    stream.produce("p", 0, 1, "2").expect(200);
    assert_eq!(stream.records(), ["1", "2"]);
}
