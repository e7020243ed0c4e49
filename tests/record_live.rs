//! Live reads by record: extension 6.9; decisions 28 to 30, 32.

mod common;

use common::records::{ENVELOPES, NDJSON, TOKEN, envelopes, lines, number, range};
use common::stream::split_array;
use common::{Connection, Event, Events, JSON, Server, Stream};

/// Starts a long-poll.
fn poll(stream: &Stream<'_>, query: &str) -> Connection {
    let mut connection = stream.server().connect();
    connection.start(&stream.get(&format!("{query}&live=long-poll")));
    connection
}

/// `streamFirstRecord` and `streamNextRecord` of a control event.
#[track_caller]
fn told(control: &Event) -> (u64, u64) {
    let json = control.json();
    let number = |member: &str| json[member].as_u64().unwrap_or_else(|| panic!("no {member}: {control:?}"));
    (number("streamFirstRecord"), number("streamNextRecord"))
}

/// The offset behind the first records of a stream.
#[track_caller]
fn offset_of(stream: &Stream<'_>, ordinal: u64) -> String {
    let read = stream.get(&format!("record={ordinal}&max_records=1")).expect(200);
    match number(&read, "stream-record-next") == ordinal {
        true => read.next_offset(),
        // Its own length and separator before what follows it.
        false => {
            let (lineage, next) = read.required("stream-next-offset").split_once('_').expect("a token");
            let next: usize = next.parse().expect("a position");
            format!("{lineage}_{:016}", next - read.body.len())
        }
    }
}

#[test]
fn a_long_poll_answers_at_once_when_there_are_records() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    for stream in server.create_on_both("at-once", JSON) {
        stream.append("[1,[2],3,4]");
        for (query, expected, end) in [
            ("record=1", vec!["[2]", "3", "4"], 4),
            ("record=1&max_records=2", vec!["[2]", "3"], 3),
            ("tail_records=1", vec!["4"], 4),
            ("tail_records=3&max_records=1", vec!["[2]"], 2),
        ] {
            let answer = stream.get(&format!("{query}&live=long-poll")).expect(200);
            assert_eq!(lines(&answer), expected, "{query}");
            assert_eq!(range(&answer), (0, end - expected.len() as u64, end));
            assert_eq!(answer.header("content-type"), Some(NDJSON));
            assert_eq!(answer.next_offset(), offset_of(&stream, end));
            assert_eq!(answer.header("stream-up-to-date").is_some(), end == 4);
            assert!(answer.required("stream-cursor").parse::<u64>().is_ok());
            let from_tail = query.starts_with("tail");
            assert_eq!(
                answer.header("cache-control") == Some("no-store"),
                from_tail,
                "decision 32: {answer:?}"
            );
        }
        let answer = stream.get("record=2&record_view=envelope&live=long-poll").expect(200);
        assert_eq!(answer.text(), "{\"record\":2,\"value\":3}\n{\"record\":3,\"value\":4}\n");
        assert_eq!(answer.header("content-type"), Some(ENVELOPES));
        let refused = stream.get("record=5&live=long-poll").send().expect_error(400, "RECORD_BEYOND_TAIL");
        assert_eq!(number(&refused, "stream-record-next"), 4);
    }
}

#[test]
fn a_long_poll_at_the_tail_waits_for_a_record() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    let stream = server.create("waits", JSON);
    for round in 0..10u64 {
        let start = round * 3;
        let mut polls: Vec<_> = ["", "&max_records=2", "&record_view=envelope"]
            .map(|more| poll(&stream, &format!("record={start}{more}")))
            .into();
        stream.append("[1,2,3]");
        let answers = polls.iter_mut().map(|poll| poll.read_response("GET").expect(200)).collect::<Vec<_>>();
        assert_eq!((answers[0].text(), range(&answers[0])), ("1\n2\n3\n", (0, start, start + 3)));
        assert_eq!((answers[1].text(), range(&answers[1])), ("1\n2\n", (0, start, start + 2)));
        assert_eq!(lines(&answers[2])[2], format!("{{\"record\":{},\"value\":3}}", start + 2));
    }
    // `now` is when the server reads the request: only an append after that ends it.
    let mut waiting = poll(&stream, "record=now");
    while !waiting.has_news() {
        stream.append("9");
    }
    let answer = waiting.read_response("GET").expect(200);
    assert!(lines(&answer).iter().all(|line| *line == "9") && !answer.body.is_empty(), "{answer:?}");
    assert_eq!((answer.header("cache-control"), answer.header("etag")), (Some("no-store"), None));
    let (_, start, next) = range(&answer);
    assert_eq!(next - start, lines(&answer).len() as u64);
}

#[test]
fn a_long_poll_without_news_tells_where_it_stands() {
    let server = Server::start(&["--long-poll-timeout-ms", "50"]);
    let stream = server.create("no-news", JSON);
    stream.append("[1,2]");
    for query in ["record=2", "record=now", "tail_records=0", "record=2&record_view=envelope&max_records=1"] {
        let answer = stream.get(&format!("{query}&live=long-poll")).expect(204);
        assert_eq!(range(&answer), (0, 2, 2), "{query}");
        assert_eq!(answer.next_offset(), stream.tail());
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let plain = stream.get("offset=now&live=long-poll").expect(204);
    assert_eq!(plain.header("stream-record-start"), None);
    stream.close();
    let closed = stream.get("record=2&live=long-poll").expect(204);
    assert_eq!((closed.header("stream-closed"), range(&closed)), (Some("true"), (0, 2, 2)));
}

#[test]
fn a_long_poll_that_a_delete_ends_names_no_extension() {
    let server = Server::start(&["--long-poll-timeout-ms", "3600000"]);
    let stream = server.create("deleted", JSON);
    let mut waiting = poll(&stream, "record=0");
    stream.delete();
    assert_eq!(waiting.read_response("GET").expect(404).header("stream-extensions"), None);
}

#[test]
fn control_events_of_a_read_by_record_tell_records() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("control", JSON) {
        let tail = stream.append("[1,2,[3],4]");
        let mut events = stream.events("record=1");
        assert_eq!(events.response.header("stream-extensions"), Some(TOKEN));
        assert_eq!(events.response.header("stream-data-content-type"), None);
        assert_eq!(events.next().raw, b"event: data\ndata:[2,[3],4]");
        let control = events.next_control();
        let cursor = control.control("streamCursor");
        let data = format!(
            "{{\"streamNextOffset\":\"{tail}\",\"streamFirstRecord\":0,\"streamNextRecord\":4,\
             \"streamCursor\":\"{cursor}\",\"upToDate\":true}}"
        );
        assert_eq!(String::from_utf8_lossy(&control.raw), format!("id: {tail}\nevent: control\ndata:{data}"));
        stream.append("[5,6]");
        assert_eq!(events.next_data().data, "[5,6]");
        assert_eq!(told(&events.next_control()), (0, 6));
        stream.post("7").header("Stream-Closed", "true").expect(204);
        assert_eq!(events.next_data().data, "[7]");
        let last = events.next_control();
        assert!(last.says("streamClosed"));
        assert_eq!(told(&last), (0, 7));
        events.expect_end();
        // A reader by offset is told what it always was.
        let mut plain = stream.events("offset=-1");
        plain.next_data();
        let json = plain.next_control().json();
        assert_eq!((json.get("streamFirstRecord"), json.get("streamNextRecord")), (None, None));
    }
}

#[test]
fn sse_starts_at_every_kind_of_record_start() {
    let server = Server::start(&[]);
    let stream = server.create("starts", JSON);
    stream.append("[1,2,3]");
    for (query, data, next) in [
        ("record=0", Some("[1,2,3]"), 3),
        ("record=2", Some("[3]"), 3),
        ("tail_records=2", Some("[2,3]"), 3),
        ("tail_records=99", Some("[1,2,3]"), 3),
        ("record=3", None, 3),
        ("record=now", None, 3),
        ("tail_records=0", None, 3),
    ] {
        let mut events = stream.events(query);
        if let Some(data) = data {
            assert_eq!(events.next_data().data, data, "{query}");
        }
        let control = events.next_control();
        assert!(control.says("upToDate"));
        assert_eq!(told(&control), (0, next), "{query}");
    }
    stream.get("record=4&live=sse").send().expect_error(400, "RECORD_BEYOND_TAIL");
}

#[test]
fn sse_ends_after_max_records() {
    let server = Server::start(&[]);
    let stream = server.create("ends", JSON);
    stream.append("[1,2,3]");
    let mut events = stream.events("record=1&max_records=1");
    assert_eq!(events.next_data().data, "[2]");
    let control = events.next_control();
    assert!(!control.says("upToDate"));
    assert_eq!((told(&control), control.control("streamNextOffset")), ((0, 2), offset_of(&stream, 2)));
    events.expect_end();
    // Others that follow the stream are not cut short with it.
    let mut others = [stream.events("record=3"), stream.events("offset=now"), stream.events("record=now")];
    let mut limited = [
        stream.events("record=3&max_records=2"),
        stream.events("record=3&max_records=2&record_view=envelope"),
    ];
    for events in others.iter_mut().chain(&mut limited) {
        events.next_control();
    }
    stream.append("[4,5,6]");
    assert_eq!(limited[0].next_data().data, "[4,5]");
    assert_eq!(told(&limited[0].next_control()), (0, 5));
    limited[0].expect_end();
    assert_eq!(
        limited[1].data_until(|control| told(control).1 == 5),
        &envelopes(&["4".into(), "5".into()], 3)[..]
    );
    limited[1].expect_end();
    for events in &mut others {
        assert_eq!(events.next_data().data, "[4,5,6]");
        events.next_control();
    }
}

#[test]
fn an_envelope_is_an_event() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("envelope", JSON) {
        stream.append("[8,{\"a\": \"x\\ny\"}]");
        let mut events = stream.events("record=0&record_view=envelope");
        let content_type = events.response.header("stream-data-content-type");
        assert_eq!(content_type, Some("application/vnd.durable-stream-record+json"));
        assert_eq!(events.next().raw, b"event: data\ndata:{\"record\":0,\"value\":8}");
        let control = events.next_control();
        assert!(!control.says("upToDate"), "there is more");
        assert_eq!((told(&control), control.control("streamNextOffset")), ((0, 1), offset_of(&stream, 1)));
        assert_eq!(events.next().raw, b"event: data\ndata:{\"record\":1,\"value\":{\"a\":\"x\\ny\"}}");
        let control = events.next_control();
        assert!(control.says("upToDate"));
        assert_eq!((told(&control), control.id), ((0, 2), Some(stream.tail())));
        let closed = stream.post("[9,10]").header("Stream-Closed", "true").expect(204);
        assert_eq!(events.next_data().data, "{\"record\":2,\"value\":9}");
        assert!(!events.next_control().says("streamClosed"), "not the end yet");
        assert_eq!(events.next_data().data, "{\"record\":3,\"value\":10}");
        let last = events.next_control();
        assert!(last.says("streamClosed") && last.says("upToDate"));
        assert_eq!((told(&last), last.control("streamNextOffset")), ((0, 4), closed.next_offset()));
        events.expect_end();
    }
}

#[test]
fn a_backlog_of_any_size_comes_in_whole_events() {
    // From memory and from disk, more records than are sent at a time, some larger than an event.
    let server = Server::start(&["--segment-bytes", "1048576", "--cache-bytes", "1048576"]);
    let stream = server.create("backlog", JSON);
    let records: Vec<String> = (0..6000)
        .map(|n| match n % 1500 {
            7 => format!("\"{}\"", "z".repeat(300_000)),
            _ => format!("\"{}\"", "a".repeat(n % 200)),
        })
        .collect();
    for some in records.chunks(500) {
        stream.append(format!("[{}]", some.join(",")));
    }
    for first in [0, 3500, 5990] {
        let mut events = stream.events(&format!("record={first}"));
        let mut next = first;
        while next < records.len() {
            let found = split_array(events.next_data().data.as_bytes());
            assert!(found == records[next..next + found.len()], "records from {next} on");
            next += found.len();
            let control = events.next_control();
            assert_eq!((told(&control), control.says("upToDate")), ((0, next as u64), next == records.len()));
        }
        let expected = envelopes(&records[first..], first);
        let mut events = stream.events(&format!("record={first}&record_view=envelope"));
        let mut next = first as u64;
        let data = events.data_until(|control| {
            next += 1;
            assert_eq!(told(control), (0, next), "one control event behind every envelope");
            next == records.len() as u64
        });
        assert!(data == expected, "envelopes from {first} on");
    }
}

#[test]
fn subscribers_of_all_views_follow_together() {
    let server = Server::start(&["--shards", "1"]);
    let stream = server.create("together", JSON);
    let mut arrays: Vec<Events> = Vec::new();
    let mut singles: Vec<Events> = Vec::new();
    for _ in 0..3 {
        arrays.push(stream.events("offset=-1"));
        arrays.push(stream.events("record=0"));
        arrays.push(stream.events("record=0&max_records=1000"));
        singles.push(stream.events("record=0&record_view=envelope"));
        singles.push(stream.events("record=0&record_view=envelope&max_records=1000"));
    }
    let records: Vec<String> = (0..60).map(|n| format!("{{\"n\":{n}}}")).collect();
    for some in records.chunks(3) {
        stream.append(format!("[{}]", some.join(",")));
    }
    let tail = stream.tail();
    for events in &mut arrays {
        let data = events.data_until(|control| control.control("streamNextOffset") == tail);
        let found: Vec<String> = data.iter().flat_map(|array| split_array(array.as_bytes())).collect();
        assert_eq!(found, records);
    }
    for events in &mut singles {
        let data = events.data_until(|control| control.control("streamNextOffset") == tail);
        assert_eq!(data, envelopes(&records, 0));
    }
}

#[test]
fn a_reader_comes_back_by_record_or_by_offset() {
    let server = Server::start(&["--sse-max-ms", "200"]);
    let stream = server.create("back", JSON);
    let mut queries = ["record=0", "record=0"].map(str::to_owned);
    let mut heard = [Vec::new(), Vec::new()];
    let mut expected = Vec::new();
    for round in 0..4 {
        let mut readers = [stream.events(&queries[0]), stream.events(&queries[1])];
        for n in 0..5 {
            stream.append(format!("[\"{round}\",{n}]"));
            expected.extend([format!("\"{round}\""), n.to_string()]);
        }
        for (at, events) in readers.iter_mut().enumerate() {
            while let Some(event) = events.try_next() {
                match (event.name.as_str(), at) {
                    ("data", _) => heard[at].extend(split_array(event.data.as_bytes())),
                    (_, 0) => queries[0] = format!("record={}", told(&event).1),
                    _ => queries[1] = format!("offset={}", event.control("streamNextOffset")),
                }
            }
        }
    }
    heard[0].extend(lines(&stream.get(&queries[0]).expect(200)).into_iter().map(str::to_owned));
    heard[1].extend(split_array(&stream.get(&queries[1]).expect(200).body));
    assert_eq!(heard, [expected.clone(), expected]);
}

#[test]
fn decision_30_last_event_id_wins_over_a_record_start() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("wins", JSON) {
        let middle = stream.append("[1,2]");
        let tail = stream.append("[3,4]");
        let resumed = |query: &str, id: &str| {
            Events::open(&server, &stream.get(&format!("{query}&live=sse")).header("Last-Event-ID", id))
        };
        for query in ["record=0", "record=now", "tail_records=1", "tail_records=4&max_records=9"] {
            let mut events = resumed(query, &middle);
            assert_eq!(events.next_data().data, "[3,4]", "{query}");
            assert_eq!(told(&events.next_control()), (0, 4), "it still counts records");
            let mut events = resumed(&format!("{query}&record_view=envelope"), &middle);
            assert_eq!(events.next_data().data, "{\"record\":2,\"value\":3}", "{query}");
        }
        // A record of the URL that is not there does not matter any more; what is malformed does.
        assert_eq!(told(&resumed("record=99", &tail).next_control()), (0, 4));
        for bad in ["nonsense", "1_2", "3", "9"] {
            let refused = stream.get("record=0&live=sse").header("Last-Event-ID", bad).send();
            assert_eq!(refused.status, 400, "{bad}");
        }
        stream.get("record=0&offset=-1&live=sse").header("Last-Event-ID", &middle).expect(400);
        stream.get("record_view=envelope&live=sse").header("Last-Event-ID", &middle).expect(400);
        stream.close();
        let over = stream.get("tail_records=2&live=sse").header("Last-Event-ID", &tail).expect(204);
        assert_eq!((over.header("stream-closed"), range(&over)), (Some("true"), (0, 4, 4)));
    }
}
