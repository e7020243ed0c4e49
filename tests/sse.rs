//! Server-Sent Events: section 5.8 of the protocol, decisions 28 to 30.

mod common;

use common::{Events, JSON, OCTETS, Server, Stream, TEXT};

/// A stream with this text, closed; its events from the start.
fn events_of(server: &Server, name: &str, text: impl AsRef<[u8]>) -> Events {
    let stream = server.create(name, TEXT);
    stream.append(text);
    stream.close();
    stream.events("offset=-1")
}

/// The events' text up to the end of the stream.
#[track_caller]
fn text_of(mut events: Events) -> String {
    let data = events.data_until(|control| control.says("streamClosed"));
    events.expect_end();
    data.concat()
}

#[test]
fn decision_29_events_are_spelled_in_one_way() {
    let server = Server::start(&[]);
    let stream = server.create("spelling", TEXT);
    let tail = stream.append("hello");
    let mut events = stream.events("offset=-1");
    assert_eq!(events.response.header("x-accel-buffering"), Some("no"), "decision 28");
    assert_eq!(events.response.header("stream-sse-data-encoding"), None);
    assert_eq!(events.next().raw, b"event: data\ndata:hello");
    let control = events.next();
    let cursor = control.control("streamCursor");
    let data = format!("{{\"streamNextOffset\":\"{tail}\",\"streamCursor\":\"{cursor}\",\"upToDate\":true}}");
    assert_eq!(String::from_utf8_lossy(&control.raw), format!("id: {tail}\nevent: control\ndata:{data}"));
    let tail = stream.post("bye").header("Stream-Closed", "true").expect(204).next_offset();
    assert_eq!(events.next().raw, b"event: data\ndata:bye");
    let control = events.next();
    assert_eq!(control.id.as_ref(), Some(&tail));
    assert_eq!(control.control("streamNextOffset"), tail);
    assert!(control.says("streamClosed"));
    assert_eq!(control.json().get("streamCursor"), None);
    events.expect_end();
}

#[test]
fn decision_29_line_ends_split_lines() {
    let server = Server::start(&[]);
    let cases = [
        ("lf", "a\nb", "a\nb", "event: data\ndata:a\ndata:b"),
        ("cr", "a\rb", "a\nb", "event: data\ndata:a\ndata:b"),
        ("crlf", "a\r\nb", "a\nb", "event: data\ndata:a\ndata:b"),
        ("lfcr", "a\n\rb", "a\n\nb", "event: data\ndata:a\ndata:\ndata:b"),
        ("two", "a\n\nb", "a\n\nb", "event: data\ndata:a\ndata:\ndata:b"),
        ("last", "a\n", "a\n", "event: data\ndata:a\ndata:"),
        ("first", "\na", "\na", "event: data\ndata:\ndata:a"),
        ("only", "\n", "\n", "event: data\ndata:\ndata:"),
        ("space", " a", " a", "event: data\ndata:  a"),
        ("spaces", "  a\n b\nc", "  a\n b\nc", "event: data\ndata:   a\ndata:  b\ndata:c"),
        (
            "colon",
            ":a\nid:5\n\nevent:x",
            ":a\nid:5\n\nevent:x",
            "event: data\ndata::a\ndata:id:5\ndata:\ndata:event:x",
        ),
        ("tab", "\ta", "\ta", "event: data\ndata:\ta"),
        ("nul", "a\0b", "a\0b", "event: data\ndata:a\0b"),
        ("bom", "\u{feff}a", "\u{feff}a", "event: data\ndata:\u{feff}a"),
    ];
    for (name, text, heard, raw) in cases {
        let mut events = events_of(&server, name, text);
        let data = events.next_data();
        assert_eq!(String::from_utf8_lossy(&data.raw), raw, "{name}");
        assert_eq!(data.data, heard, "{name}");
        assert!(events.next_control().says("streamClosed"));
    }
}

#[test]
fn decision_29_a_character_is_never_split() {
    let server = Server::start(&[]);
    let stream = server.create("split", TEXT);
    let mut events = stream.events("offset=-1");
    events.next_control();
    // Each byte of "a\u{e4}\u{20ac}\u{1f30a}b" is an append of its own.
    let text = "a\u{e4}\u{20ac}\u{1f30a}b";
    for byte in text.as_bytes() {
        stream.append([*byte]);
    }
    let tail = stream.tail();
    let mut heard = String::new();
    while heard != text {
        let data = events.next_data();
        assert!(!data.data.contains('\u{fffd}'), "{data:?}");
        heard.push_str(&data.data);
        assert!(text.starts_with(&heard), "{heard}");
        // The next offset never lies within a character that was not sent.
        let position: usize =
            events.next_control().control("streamNextOffset")[17..].parse().expect("a position");
        assert_eq!(position, heard.len());
    }
    assert!(tail.ends_with(&format!("_{:016}", text.len())));
}

#[test]
fn decision_29_an_unfinished_character_waits_for_the_close() {
    let server = Server::start(&[]);
    let stream = server.create("unfinished", TEXT);
    stream.append(b"ab\xe2\x82");
    let mut events = stream.events("offset=-1");
    assert_eq!(events.next_data().data, "ab");
    assert!(events.next_control().control("streamNextOffset").ends_with("_0000000000000002"));
    stream.close();
    assert_eq!(events.next_data().data, "\u{fffd}");
    let last = events.next_control();
    assert!(last.says("streamClosed"));
    assert!(last.control("streamNextOffset").ends_with("_0000000000000004"));
    events.expect_end();
}

#[test]
fn decision_29_invalid_bytes_are_replaced() {
    let server = Server::start(&[]);
    let cases: &[(&str, &[u8])] = &[
        ("latin", b"caf\xe9 au lait"),
        ("lone-continuation", b"a\x80b"),
        ("overlong", b"a\xc0\xafb"),
        ("surrogate", b"a\xed\xa0\x80b"),
        ("cut-then-ascii", b"a\xe2\x82b"),
        ("cut-then-start", b"a\xf0\x9f\xe2\x82\xacb"),
        ("beyond", b"a\xf4\x90\x80\x80b"),
        ("all-bytes", &[0xff, 0xfe, b'x', 0xf8, b'y', 0xc3]),
    ];
    for (name, bytes) in cases {
        let heard = text_of(events_of(&server, name, bytes));
        assert_eq!(heard, String::from_utf8_lossy(bytes), "{name}");
    }
}

#[test]
fn decision_29_a_data_event_of_records_is_one_array() {
    let server = Server::start(&[]);
    let stream = server.create("array", JSON);
    stream.append("{\"a\": \"x\\ny\"}");
    stream.append("[2,[3]]");
    let mut events = stream.events("offset=-1");
    assert_eq!(events.response.header("stream-sse-data-encoding"), None);
    let data = events.data_until(|control| control.says("upToDate"));
    assert_eq!(data, ["[{\"a\":\"x\\ny\"},2,[3]]"]);
    stream.append("4");
    assert_eq!(events.next_data().raw, b"event: data\ndata:[4]");
    events.next_control();
    assert_eq!(stream.get("offset=2&live=sse").send().status, 400, "no record boundary");
}

#[test]
fn section_5_8_bytes_travel_in_base64() {
    let server = Server::start(&[]);
    for (name, content_type) in
        [("octets", OCTETS), ("image", "image/png"), ("proto", "application/x-protobuf")]
    {
        let stream = server.create(name, content_type);
        let mut events = stream.events("offset=-1");
        assert_eq!(events.response.header("stream-sse-data-encoding"), Some("base64"));
        events.next_control();
        let mut expected: Vec<u8> = Vec::new();
        for size in [1, 2, 3, 4, 255, 1000] {
            let bytes: Vec<u8> = (0..size).map(|n| (n * 31) as u8).collect();
            stream.append(&bytes);
            expected.extend_from_slice(&bytes);
        }
        stream.close();
        let data = events.data_until(|control| control.says("streamClosed"));
        let mut heard = Vec::new();
        for text in data {
            let text = text.replace('\n', "");
            assert_eq!(text.len() % 4, 0);
            use base64::Engine;
            heard.extend(base64::engine::general_purpose::STANDARD.decode(text).expect("base64"));
        }
        assert_eq!(heard, expected);
    }
    for (name, content_type) in [("html", "text/html; charset=utf-8"), ("json", "application/json;x=y")] {
        let stream = server.create(name, content_type);
        assert_eq!(stream.events("offset=-1").response.header("stream-sse-data-encoding"), None);
    }
}

#[test]
fn a_large_backlog_comes_in_whole_events() {
    let server = Server::start(&["--segment-bytes", "1048576"]);
    let stream = server.create("backlog", JSON);
    let records: Vec<String> = (0..2000).map(|n| format!("\"{n}{}\"", "\u{e4}".repeat(400))).collect();
    for some in records.chunks(100) {
        stream.append(format!("[{}]", some.join(",")));
    }
    let tail = stream.tail();
    let mut events = stream.events("offset=-1");
    let data = events.data_until(|control| {
        let at_tail = control.control("streamNextOffset") == tail;
        assert_eq!(control.says("upToDate"), at_tail);
        at_tail
    });
    assert!(data.len() > 1, "one event held it all");
    let heard: Vec<String> =
        data.iter().flat_map(|array| common::stream::split_array(array.as_bytes())).collect();
    assert!(heard == records, "the records differ");
    let text = "x\u{20ac}\n".repeat(300_000);
    assert_eq!(text_of(events_of(&server, "backlog-text", &text)), text);
}

#[test]
fn decision_28_the_server_ends_a_connection_between_two_events() {
    let server = Server::start(&["--sse-max-ms", "300"]);
    let stream = server.create("ends", TEXT);
    let mut expected = String::new();
    let mut heard = String::new();
    let mut offset = "-1".to_owned();
    for round in 0..4 {
        let mut events = stream.events(&format!("offset={offset}"));
        for n in 0..5 {
            stream.append(format!("{round}{n};"));
            expected.push_str(&format!("{round}{n};"));
        }
        let mut control_is_due = false;
        while let Some(event) = events.try_next() {
            if event.name == "data" {
                assert!(!control_is_due);
                heard.push_str(&event.data);
            } else {
                offset = event.control("streamNextOffset");
            }
            control_is_due = event.name == "data";
        }
        assert!(!control_is_due, "decision 29: never ended between data and control");
    }
    let rest = stream.get(&format!("offset={offset}")).expect(200);
    assert_eq!(heard + rest.text(), expected);
}

/// A reader that reconnects as a browser does: the same URL, and the last id in a header.
fn resumed(stream: &Stream<'_>, query: &str, id: &str) -> Events {
    Events::open(stream.server(), &stream.get(&format!("{query}&live=sse")).header("Last-Event-ID", id))
}

#[test]
fn decision_30_last_event_id_wins_over_the_url() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("resume", TEXT) {
        let middle = stream.append("first ");
        let tail = stream.append("second");
        for query in ["offset=-1", "offset=now", &format!("offset={tail}"), "offset=0"] {
            let mut events = resumed(&stream, query, &middle);
            assert_eq!(events.next_data().data, "second");
            assert_eq!(events.next_control().id.as_ref(), Some(&tail));
        }
        assert_eq!(resumed(&stream, "offset=now", "-1").next_data().data, "first second");
        assert!(resumed(&stream, "offset=-1", &tail).next_control().says("upToDate"));
    }
}

#[test]
fn decision_30_last_event_id_counts_with_sse_only() {
    let server = Server::start(&["--long-poll-timeout-ms", "50"]);
    let stream = server.create("only-sse", TEXT);
    let tail = stream.append("hello");
    for query in ["offset=-1", "offset=-1&live=long-poll"] {
        for id in [tail.as_str(), "nonsense"] {
            assert_eq!(stream.get(query).header("Last-Event-ID", id).expect(200).text(), "hello");
        }
    }
}

#[test]
fn decision_30_a_malformed_last_event_id_is_refused() {
    let server = Server::start(&[]);
    let stream = server.create("malformed", TEXT);
    stream.append("hello");
    for id in ["nonsense", "0,1", "1_2", "6"] {
        let status = stream.get("offset=-1&live=sse").header("Last-Event-ID", id).send().status;
        assert_eq!(status, 400, "{id:?}");
    }
    let old = stream.tail();
    stream.delete();
    stream.put().expect(201);
    let status = stream.get("offset=-1&live=sse").header("Last-Event-ID", &old).send().status;
    assert_eq!(status, 410, "a token of an earlier life");
}

#[test]
fn decision_30_at_the_end_of_a_closed_stream_a_browser_is_sent_away() {
    let server = Server::start(&[]);
    let stream = server.create("over", TEXT);
    let middle = stream.append("a");
    let tail = stream.append("b");
    stream.close();
    let over = stream.get("offset=-1&live=sse").header("Last-Event-ID", &tail).expect(204);
    assert_eq!(over.header("stream-closed"), Some("true"));
    // Before the end there is something to say.
    let mut events = resumed(&stream, "offset=-1", &middle);
    assert_eq!(events.next_data().data, "b");
    assert!(events.next_control().says("streamClosed"));
    events.expect_end();
    // Without the header it is an ordinary reader, which is told.
    let mut events = stream.events(&format!("offset={tail}"));
    assert!(events.next_control().says("streamClosed"));
    events.expect_end();
}

#[test]
fn refusals_of_sse_are_plain_errors() {
    let server = Server::start(&[]);
    let stream = server.create("refusals", TEXT);
    stream.get("live=sse").expect(400);
    stream.get("offset=nonsense&live=sse").expect(400);
    server.request("GET", format!("{}-absent?offset=-1&live=sse", stream.path)).expect(404);
}
