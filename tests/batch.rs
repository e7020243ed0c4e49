//! Append batches: section 4 of the extensions and decisions 15 to 17.

mod common;

use common::batch::{acknowledgements, frames};
use common::{JSON, OCTETS, Server, TEXT};
use serde_json::{Value, json};

/// Decision 16: the whole request is refused and nothing is committed.
#[track_caller]
fn refused(stream: &common::Stream<'_>, what: &str, request: &common::Request<'_>, status: u16) {
    let before = stream.tail();
    assert_eq!(request.send().status, status, "{what}");
    assert_eq!(stream.tail(), before, "{what}: something was committed");
}

#[test]
fn section_4_3_each_frame_is_an_append_of_its_own() {
    let server = Server::start(&[]);
    let stream = server.create("bytes", OCTETS);
    let response = stream.batch_request(frames(&["abc", "def"])).expect(200);
    assert_eq!(
        response.text(),
        r#"[{"status":204,"stream_next_offset":3},{"status":204,"stream_next_offset":6}]"#
    );
    assert_eq!(stream.read(), b"abcdef");
    // The numbers are offsets: each frame ends where the next begins.
    assert_eq!(stream.get("offset=3").expect(200).text(), "def");
    // An append and a batch advance the same offsets.
    stream.append("g");
    let more = stream.batch(&["hi"]);
    assert_eq!(more, [json!({"status": 204, "stream_next_offset": 9})]);
    let suffix = format!("_{:016}", 9);
    assert!(stream.tail().ends_with(&suffix), "{}", stream.tail());
}

#[test]
fn section_4_json_frames_are_records() {
    let server = Server::start(&[]);
    let stream = server.create("records", JSON);
    let acknowledged = stream.batch(&["{\"a\": 1}", " 2 ", "\"x\""]);
    let offsets: Vec<_> = acknowledged.iter().map(|a| a["stream_next_offset"].as_u64()).collect();
    assert_eq!(offsets, [Some(8), Some(10), Some(14)]);
    assert!(acknowledged.iter().all(|a| a["status"] == 204), "{acknowledged:?}");
    assert_eq!(stream.records(), ["{\"a\":1}", "2", "\"x\""]);
}

#[test]
fn decision_15_a_json_frame_may_be_an_array() {
    let server = Server::start(&[]);
    let stream = server.create("arrays", JSON);
    let acknowledged = stream.batch(&["[1,2,[3]]", "4"]);
    assert_eq!(acknowledged[0]["stream_next_offset"], 8);
    assert_eq!(acknowledged[1]["stream_next_offset"], 10);
    assert_eq!(stream.records(), ["1", "2", "[3]", "4"]);
}

#[test]
fn decision_15_a_frame_that_fails_does_not_stop_later_ones() {
    let server = Server::start(&[]);
    let stream = server.create("independent", JSON);
    let acknowledged = stream.batch(&["1", "{", "[]", "[2,", "\"\u{1}\"", "3"]);
    let statuses: Vec<_> = acknowledged.iter().map(|a| a["status"].as_u64().unwrap_or(0)).collect();
    assert_eq!(statuses, [204, 400, 400, 400, 400, 204]);
    for (n, acknowledged) in acknowledged.iter().enumerate() {
        let failed = acknowledged["status"] != 204;
        assert_eq!(
            acknowledged.get("error_code").is_some_and(Value::is_string),
            failed,
            "{n}: {acknowledged}"
        );
        assert_eq!(acknowledged.get("error").is_some_and(Value::is_string), failed, "{n}: {acknowledged}");
    }
    // Decision 5: the codes are those of a single append.
    let single = |body: &str| stream.post(body).expect(400).error_code();
    assert_eq!(acknowledged[1]["error_code"], single("{"));
    assert_eq!(acknowledged[2]["error_code"], single("[]"));
    assert_eq!(stream.records(), ["1", "3"]);
}

#[test]
fn decision_15_a_closed_stream_refuses_every_frame() {
    let server = Server::start(&[]);
    let stream = server.create("closed", TEXT);
    stream.append("12345");
    stream.close();
    for acknowledged in stream.batch(&["a", "b"]) {
        assert_eq!(acknowledged["status"], 409, "{acknowledged}");
        assert_eq!(acknowledged["stream_closed"], true);
        assert_eq!(acknowledged["stream_next_offset"], 5);
        assert!(acknowledged["error_code"].is_string() && acknowledged["error"].is_string());
    }
    assert_eq!(stream.read_text(), "12345");
}

#[test]
fn decision_16_bad_framing_is_refused_as_a_whole() {
    let server = Server::start(&[]);
    let stream = server.create("framing", TEXT);
    stream.append("before");
    let whole = frames(&["good"]);
    let with = |tail: &[u8]| [whole.as_slice(), tail].concat();
    let cases: &[(&str, Vec<u8>)] = &[
        ("no frame", Vec::new()),
        ("a zero-length frame", with(&[0, 0, 0, 0])),
        ("only a zero-length frame", vec![0, 0, 0, 0]),
        ("a zero-length frame before a good one", [&[0, 0, 0, 0], whole.as_slice()].concat()),
        ("a cut length", with(&[0, 0])),
        ("a length of one byte", vec![0]),
        ("a cut payload", with(&[0, 0, 0, 5, b'a', b'b'])),
        ("a length without payload", with(&[0, 0, 0, 5])),
        ("a length beyond everything", with(&[0xff, 0xff, 0xff, 0xff, b'a'])),
        ("a little-endian length", with(&[3, 0, 0, 0, b'a', b'b', b'c'])),
    ];
    for (what, body) in cases {
        refused(&stream, what, &stream.batch_request(body), 400);
        refused(&stream, what, &stream.batch_request(body).chunked(), 400);
    }
    let no_type = server.request("POST", format!("{}/append-batch", stream.path)).body(&whole);
    refused(&stream, "no Content-Type", &no_type, 400);
    assert_eq!(stream.read_text(), "before");
}

#[test]
fn decision_16_controls_of_a_single_append_are_refused() {
    let server = Server::start(&[]);
    let stream = server.create("controls", TEXT);
    let body = frames(&["a"]);
    for (name, value) in [
        ("Stream-Closed", "true"),
        ("Stream-Closed", "TRUE"),
        ("Producer-Id", "p"),
        ("Producer-Epoch", "0"),
        ("Producer-Seq", "0"),
        ("Stream-Record-Match", "0"),
        ("Stream-Seq", "a"),
    ] {
        refused(&stream, name, &stream.batch_request(&body).header(name, value), 400);
    }
    // A Stream-Closed that is not `true` does not count.
    for value in ["false", "1", "yes", ""] {
        stream.batch_request(&body).header("Stream-Closed", value).expect(200);
    }
    assert_eq!(stream.read_text(), "aaaa");
    assert_eq!(stream.head().header("stream-closed"), None);
}

#[test]
fn decision_16_at_most_512_frames() {
    let server = Server::start(&[]);
    let stream = server.create("frames", TEXT);
    refused(&stream, "513 frames", &stream.batch_request(frames(&vec!["x"; 513])), 413);
    let acknowledged = stream.batch(&vec!["x"; 512]);
    assert_eq!(acknowledged[511]["stream_next_offset"], 512);
    assert_eq!(stream.read_text(), "x".repeat(512));
}

#[test]
fn decision_16_at_most_32_mib() {
    let server = Server::start(&["--max-body-bytes", "67108864"]);
    let stream = server.create("large", OCTETS);
    let most = frames(&[vec![7; 16 * 1024 * 1024 - 4], vec![8; 16 * 1024 * 1024 - 4]]);
    assert_eq!(most.len(), 32 * 1024 * 1024);
    let more = frames(&[vec![7; 16 * 1024 * 1024 - 4], vec![8; 16 * 1024 * 1024 - 3]]);
    refused(&stream, "32 MiB + 1", &stream.batch_request(&more), 413);
    refused(&stream, "32 MiB + 1 in chunks", &stream.batch_request(&more).chunked(), 413);
    let acknowledged = acknowledgements(&stream.batch_request(&most).expect(200));
    assert_eq!(acknowledged[1]["stream_next_offset"], most.len() - 8);
    assert_eq!(stream.read(), [vec![7; 16 * 1024 * 1024 - 4], vec![8; 16 * 1024 * 1024 - 4]].concat());
}

#[test]
fn decision_16_another_content_type_fails_every_frame() {
    let server = Server::start(&[]);
    let stream = server.create("types", TEXT);
    let request = server
        .request("POST", format!("{}/append-batch", stream.path))
        .header("Content-Type", JSON)
        .body(frames(&["1", "2"]));
    for acknowledged in acknowledgements(&request.expect(200)) {
        assert_eq!(acknowledged["status"], 409, "{acknowledged}");
    }
    // Decision 6: parameters and case do not matter.
    let request = server
        .request("POST", format!("{}/append-batch", stream.path))
        .header("Content-Type", "TEXT/Plain; charset=utf-8")
        .body(frames(&["1"]));
    assert_eq!(acknowledgements(&request.expect(200))[0]["status"], 204);
    assert_eq!(stream.read_text(), "1");
}

#[test]
fn decision_16_a_missing_stream_is_404() {
    let server = Server::start(&[]);
    let stream = server.stream(&format!("{}absent", server.prefix()), TEXT);
    stream.batch_request(frames(&["x"])).expect(404);
    // Decision 7: 404 comes before everything that is wrong with the body.
    stream.batch_request([0]).expect(404);
}

#[test]
fn decision_17_an_acknowledged_batch_is_what_readers_see() {
    let server = Server::start(&[]);
    let stream = server.create("visible", JSON);
    let mut events = stream.events("offset=-1");
    let first = events.next_control();
    assert!(first.says("upToDate"));
    let bodies: Vec<String> = (0..300).map(|n| format!("{{\"n\":{n}}}")).collect();
    let acknowledged = stream.batch(&bodies);
    assert_eq!(stream.records(), bodies);
    let tail = stream.tail();
    let data = events.data_until(|control| control.control("streamNextOffset") == tail);
    let followed: Vec<String> =
        data.iter().flat_map(|array| common::stream::split_array(array.as_bytes())).collect();
    assert_eq!(followed, bodies);
    let end = acknowledged.last().expect("there are frames")["stream_next_offset"].as_u64();
    assert_eq!(tail.rsplit('_').next().and_then(|digits| digits.parse().ok()), end);
}

#[test]
fn pipelined_batches_and_appends_keep_their_order() {
    let server = Server::start(&["--shards", "2"]);
    let streams = [server.create("p0", TEXT), server.create("p1", TEXT), server.create("p2", TEXT)];
    let mut connection = server.connect();
    let mut expected = vec![String::new(); streams.len()];
    let mut sent = 0;
    for n in 0..60 {
        let at = n % streams.len();
        let request = if n % 2 == 0 {
            expected[at].push_str(&format!("<{n}a><{n}b>"));
            streams[at].batch_request(frames(&[format!("<{n}a>"), format!("<{n}b>")]))
        } else {
            expected[at].push_str(&format!("<{n}>"));
            streams[at].post(format!("<{n}>"))
        };
        connection.start(&request);
        sent += 1;
    }
    for n in 0..sent {
        connection.read_response("POST").expect(if n % 2 == 0 { 200 } else { 204 });
    }
    for (stream, expected) in streams.iter().zip(expected) {
        assert_eq!(stream.read_text(), expected);
    }
}

#[test]
fn the_batch_endpoint_takes_posts_only() {
    let server = Server::start(&[]);
    let stream = server.create("methods", TEXT);
    for method in ["GET", "PUT", "DELETE"] {
        let status = server.request(method, format!("{}/append-batch", stream.path)).send().status;
        assert_eq!(status, 405, "{method}");
    }
    assert_eq!(stream.read_text(), "");
}
