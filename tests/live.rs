//! Long-polls, and what ends live readers: sections 5.7 and 10.1 of the protocol, decisions 25 and 28.

mod common;

use common::{Connection, JSON, Server, Stream, TEXT};

/// Starts a long-poll at the tail and waits until the server has it: a request behind it on another connection of the same
/// stream cannot prove that, but every event that ends it is published after the poll is either waiting or still to be
/// read, and a poll that is read later finds the event already there.
fn poll(stream: &Stream<'_>, offset: &str) -> Connection {
    let mut connection = stream.server().connect();
    connection.start(&stream.get(&format!("offset={offset}&live=long-poll")));
    connection
}

#[test]
fn a_long_poll_answers_at_once_when_there_is_data() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    for stream in server.create_on_both("at-once", TEXT) {
        stream.append("hello");
        let answer = stream.get("offset=-1&live=long-poll").expect(200);
        assert_eq!(answer.text(), "hello");
        assert_eq!(answer.next_offset(), stream.tail());
        assert_eq!(answer.header("stream-up-to-date"), Some("true"));
        assert!(answer.required("stream-cursor").parse::<u64>().is_ok());
        assert!(answer.header("etag").is_some());
    }
}

#[test]
fn a_long_poll_is_woken_by_an_append() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000", "--shards", "2"]);
    for stream in server.create_on_both("woken", TEXT) {
        let mut tail = stream.tail();
        for n in 0..20 {
            let mut polls: Vec<_> =
                [tail.as_str(), "now"].iter().map(|offset| poll(&stream, offset)).collect();
            let next = stream.append(format!("{n};"));
            let answer = polls[0].read_response("GET").expect(200);
            assert_eq!((answer.text(), answer.next_offset()), (format!("{n};").as_str(), next.clone()));
            // `now` is when the server reads the request: only an append after that ends it.
            while !polls[1].has_news() {
                stream.append("more;");
            }
            let late = polls[1].read_response("GET").expect(200);
            assert!(late.text() == format!("{n};") || late.text().starts_with("more;"), "{late:?}");
            tail = stream.tail();
        }
    }
}

#[test]
fn a_long_poll_is_woken_by_every_kind_of_append() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    let stream = server.create("kinds", JSON);
    let mut waiting = poll(&stream, &stream.tail());
    stream.batch(&["1", "2"]);
    // A batch may become durable in one commit or in several; what comes first is a prefix.
    let first = waiting.read_response("GET").expect(200);
    assert!(["[1]", "[1,2]"].contains(&first.text()), "{first:?}");
    let mut waiting = poll(&stream, &stream.tail());
    stream.produce("p", 0, 0, "[3,4]").expect(200);
    assert_eq!(waiting.read_response("GET").expect(200).text(), "[3,4]");
    let mut waiting = poll(&stream, &stream.tail());
    stream.post("5").header("Stream-Closed", "true").expect(204);
    let last = waiting.read_response("GET").expect(200);
    assert_eq!((last.text(), last.header("stream-closed")), ("[5]", Some("true")));
}

#[test]
fn decision_28_a_long_poll_without_news_ends_with_204() {
    let server = Server::start(&["--long-poll-timeout-ms", "50"]);
    let stream = server.create("quiet", TEXT);
    let tail = stream.append("x");
    for offset in [tail.as_str(), "now"] {
        let answer = stream.get(&format!("offset={offset}&live=long-poll")).expect(204);
        assert_eq!(answer.next_offset(), tail);
        assert_eq!(answer.header("stream-up-to-date"), Some("true"));
        assert!(answer.required("stream-cursor").parse::<u64>().is_ok());
        assert_eq!(answer.header("stream-closed"), None);
    }
}

#[test]
fn section_5_7_a_closed_stream_is_never_waited_for() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    for stream in server.create_on_both("closed", TEXT) {
        let tail = stream.append("x");
        let mut waiting: Vec<_> = (0..3).map(|_| poll(&stream, &tail)).collect();
        stream.close();
        for connection in &mut waiting {
            let answer = connection.read_response("GET").expect(204);
            assert_eq!(answer.header("stream-closed"), Some("true"));
            assert_eq!(answer.header("stream-up-to-date"), Some("true"));
            assert_eq!(answer.next_offset(), tail);
        }
        for offset in [tail.as_str(), "now"] {
            let answer = stream.get(&format!("offset={offset}&live=long-poll")).expect(204);
            assert_eq!(answer.header("stream-closed"), Some("true"));
        }
        let rest = stream.get("offset=-1&live=long-poll").expect(200);
        assert_eq!((rest.text(), rest.header("stream-closed")), ("x", Some("true")));
    }
}

#[test]
fn section_10_1_cursors_only_grow() {
    let server = Server::start(&["--long-poll-timeout-ms", "20"]);
    let stream = server.create("cursors", TEXT);
    stream.append("x");
    let cursor =
        |query: &str| stream.get(query).send().required("stream-cursor").parse::<u64>().expect("a number");
    let mut last = cursor("offset=-1&live=long-poll");
    // 20 s intervals since 9 October 2024: the number is a present one, not a counter from nothing.
    assert!(last > 3_000_000, "{last}");
    for offset in ["-1", "now", "-1", "now"] {
        let next = cursor(&format!("offset={offset}&live=long-poll&cursor={last}"));
        assert!(next > last, "{next} after {last}");
        // Jitter of at most an hour, in intervals of 20 s.
        assert!(next <= last + 181, "{next} after {last}");
        last = next;
    }
    // An old one is simply left behind.
    assert!(cursor("offset=-1&live=long-poll&cursor=5") > 3_000_000);
    let control = stream.events(&format!("offset=-1&cursor={last}")).data_until_control();
    assert!(control.parse::<u64>().expect("a number") > last);
}

/// The cursor of the first control event.
trait FirstCursor {
    fn data_until_control(self) -> String;
}

impl FirstCursor for common::Events {
    fn data_until_control(mut self) -> String {
        self.next_data();
        self.next_control().control("streamCursor")
    }
}

#[test]
fn decision_25_deletion_ends_live_readers() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000", "--sse-max-ms", "3600000"]);
    for stream in server.create_on_both("deleted", TEXT) {
        stream.append("x");
        let mut events = stream.events("offset=-1");
        events.data_until(|control| control.says("upToDate"));
        let mut waiting: Vec<_> = (0..3).map(|_| poll(&stream, &stream.tail())).collect();
        stream.delete();
        for connection in &mut waiting {
            // A poll that was read after the delete is a request to a stream that is not there: 404 as well.
            connection.read_response("GET").expect(404);
        }
        events.expect_end();
    }
}

#[test]
fn decision_25_absolute_expiry_ends_live_readers() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000", "--sse-max-ms", "3600000"]);
    let expires = std::process::Command::new("date")
        .args(["-u", "-d", "+2 seconds", "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .expect("date can be run");
    let expires = String::from_utf8(expires.stdout).expect("a date is text");
    let stream = server.create_with("expires", TEXT, &[("Stream-Expires-At", expires.trim())]);
    let mut events = stream.events("offset=-1");
    events.next_control();
    let mut waiting = poll(&stream, "now");
    waiting.read_response("GET").expect(404);
    events.expect_end();
    stream.request("HEAD").expect(404);
    stream.post("x").expect(404);
    // The name is free.
    stream.put().expect(201);
}

#[test]
fn decision_25_shutdown_ends_live_readers_in_order() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000", "--sse-max-ms", "3600000"]);
    let stream = server.create("shutdown", TEXT);
    let tail = stream.append("x");
    let mut waiting = poll(&stream, &tail);
    let mut events = stream.events("offset=-1");
    events.data_until(|control| control.says("upToDate"));
    // A poll that waits is one whose stream is at the tail: the reader above has seen it.
    let mut probe = server.connect();
    probe.send(&stream.get("offset=-1&live=long-poll")).expect(200);
    server.signal(libc::SIGTERM);
    if let Some(answer) = waiting.try_read_response("GET") {
        let answer = answer.expect(204);
        assert_eq!(answer.next_offset(), tail);
    }
    events.expect_end();
    let ended = server.wait();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn live_readers_of_many_streams_hear_of_their_own_only() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000", "--shards", "2"]);
    let streams: Vec<_> = (0..20).map(|n| server.create(&format!("own-{n}"), TEXT)).collect();
    let mut waiting: Vec<_> = streams.iter().map(|stream| poll(stream, &stream.tail())).collect();
    for (n, stream) in streams.iter().enumerate().rev() {
        stream.append(format!("for {n}"));
    }
    for (n, connection) in waiting.iter_mut().enumerate() {
        assert_eq!(connection.read_response("GET").expect(200).text(), format!("for {n}"));
    }
}

#[test]
fn a_reader_that_goes_away_disturbs_nobody() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    let stream = server.create("goes", TEXT);
    for _ in 0..50 {
        let mut staying = poll(&stream, &stream.tail());
        let mut events = stream.events(&format!("offset={}", stream.tail()));
        events.next_control();
        drop(poll(&stream, "now"));
        drop(events);
        stream.append("x");
        assert_eq!(staying.read_response("GET").expect(200).text(), "x");
    }
}

#[test]
fn many_readers_of_one_stream_are_all_served() {
    let server = Server::start(&["--sse-max-ms", "3600000", "--long-poll-timeout-ms", "3600000"]);
    let stream = server.create("crowd", JSON);
    // More than are woken in one turn.
    let mut readers: Vec<_> = (0..200).map(|_| stream.events("offset=-1")).collect();
    for reader in &mut readers {
        assert!(reader.next_control().says("upToDate"));
    }
    let mut waiting: Vec<_> = (0..100).map(|_| poll(&stream, "0")).collect();
    let expected: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    for record in &expected {
        stream.append(record);
    }
    let tail = stream.tail();
    for reader in &mut readers {
        let data = reader.data_until(|control| control.control("streamNextOffset") == tail);
        let records: Vec<String> =
            data.iter().flat_map(|array| common::stream::split_array(array.as_bytes())).collect();
        assert_eq!(records, expected);
    }
    for connection in &mut waiting {
        let polled = connection.read_response("GET").expect(200);
        let records = common::stream::split_array(&polled.body);
        assert!(!records.is_empty() && expected.starts_with(&records), "{records:?}");
    }
}
