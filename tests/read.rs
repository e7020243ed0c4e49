//! Catch-up reads and metadata: sections 5.5, 5.6 and 10.1 of the protocol, decisions 13, 31 and 32.

mod common;

use common::{JSON, OCTETS, Response, Server, Stream, TEXT};

const CACHED: &str = "public, max-age=60, stale-while-revalidate=300";

#[test]
fn a_read_tells_where_to_go_on() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("read", TEXT) {
        let empty = stream.get("").expect(200);
        assert_eq!((empty.text(), empty.header("stream-up-to-date")), ("", Some("true")));
        let start = empty.next_offset();
        let middle = stream.append("hello");
        let end = stream.append(" world");
        for query in ["", "offset=-1", &format!("offset={start}")] {
            let all = stream.get(query).expect(200);
            assert_eq!(all.text(), "hello world");
            assert_eq!(all.next_offset(), end);
            assert_eq!(all.header("content-type"), Some(TEXT));
            assert_eq!(all.header("stream-up-to-date"), Some("true"));
            assert_eq!(all.header("stream-closed"), None);
        }
        assert_eq!(stream.get(&format!("offset={middle}")).expect(200).text(), " world");
        let tail = stream.get(&format!("offset={end}")).expect(200);
        assert_eq!((tail.text(), tail.next_offset()), ("", end.clone()));
        let now = stream.get("offset=now").expect(200);
        assert_eq!((now.text(), now.next_offset()), ("", end));
    }
}

#[test]
fn section_5_6_a_closed_stream_is_told_at_its_end_only() {
    let server = Server::start(&["--read-page-bytes", "4096"]);
    let stream = server.create("closed", TEXT);
    stream.append("x".repeat(10_000));
    let tail = stream.tail();
    stream.close();
    let first = stream.get("offset=-1").expect(200);
    assert_eq!(first.body.len(), 4096);
    assert_eq!((first.header("stream-closed"), first.header("stream-up-to-date")), (None, None));
    let limited = stream.get("offset=-1&max_bytes=100").expect(200);
    assert_eq!(limited.header("stream-closed"), None);
    let mut last = first;
    while last.header("stream-up-to-date").is_none() {
        last = stream.get(&format!("offset={}", last.next_offset())).expect(200);
    }
    assert_eq!((last.next_offset(), last.header("stream-closed")), (tail.clone(), Some("true")));
    for query in [format!("offset={tail}"), "offset=now".to_owned()] {
        let end = stream.get(&query).expect(200);
        assert_eq!((end.text(), end.header("stream-closed")), ("", Some("true")));
    }
}

#[test]
fn large_pages_are_the_same_however_often_they_are_read() {
    for flags in [&["--hot-bytes", "8MiB"][..], &["--hot-bytes", "0"]] {
        let server = Server::start(&[flags, &["--shards", "1", "--cache-bytes", "1MiB"]].concat());
        let content: Vec<u8> = (0..3_500_000u32).map(|n| (n / 5 * 7 + n) as u8).collect();
        let stream = server.create("large", OCTETS);
        content.chunks(700_000).for_each(|part| drop(stream.append(part)));
        for round in 0..5 {
            let (mut read, mut page) = (Vec::new(), stream.get("offset=-1").expect(200));
            while page.header("stream-up-to-date").is_none() {
                read.extend_from_slice(&page.body);
                page = stream.get(&format!("offset={}", page.next_offset())).expect(200);
            }
            read.extend_from_slice(&page.body);
            assert!(read == content, "{flags:?}, round {round}: {} bytes", read.len());
        }
    }
}

#[test]
fn section_5_5_head_tells_without_a_body() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("head", JSON) {
        let tail = stream.append("[1,2,3]");
        let head = stream.head();
        assert_eq!(head.next_offset(), tail);
        assert_eq!(head.header("content-type"), Some(JSON));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        assert_eq!((head.header("stream-closed"), head.header("stream-ttl")), (None, None));
        stream.close();
        assert_eq!(stream.head().header("stream-closed"), Some("true"));
        server.request("HEAD", format!("{}-absent", stream.path)).expect(404);
    }
}

#[test]
fn decision_13_max_bytes_cuts_a_byte_stream_exactly() {
    let server = Server::start(&[]);
    let stream = server.create("cut", OCTETS);
    let content: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    for part in content.chunks(333) {
        stream.append(part);
    }
    for size in [1, 2, 332, 333, 334, 5000, 9999] {
        let part = stream.get(&format!("offset=-1&max_bytes={size}")).expect(200);
        assert!(part.body == content[..size], "{size}");
        assert_eq!(part.header("stream-up-to-date"), None);
        let rest = stream.get(&format!("offset={}", part.next_offset())).expect(200);
        assert!(rest.body == content[size..], "{size}");
    }
    for size in ["10000", "10001", "18446744073709551615"] {
        let all = stream.get(&format!("offset=-1&max_bytes={size}")).expect(200);
        assert!(all.body == content);
        assert_eq!(all.header("stream-up-to-date"), Some("true"));
    }
}

#[test]
fn decision_13_max_bytes_cuts_a_record_stream_at_a_record() {
    let server = Server::start(&[]);
    let stream = server.create("records", JSON);
    stream.append("[\"aaaaaaaaaa\",22,333,\"bbbbbbbbbbbbbbbbbbbb\"]");
    let all = stream.records();
    for size in 1..60 {
        let (mut records, mut offset) = (Vec::new(), "-1".to_owned());
        loop {
            let page = stream.get(&format!("offset={offset}&max_bytes={size}")).expect(200);
            let found = common::stream::split_array(&page.body);
            assert!(!found.is_empty(), "at least one record");
            let stored: usize = found.iter().map(|record| record.len() + 1).sum();
            assert!(found.len() == 1 || stored <= size, "{found:?} within {size}");
            records.extend(found);
            if page.header("stream-up-to-date").is_some() {
                break;
            }
            offset = page.next_offset();
        }
        assert_eq!(records, all, "{size}");
    }
}

#[test]
fn decision_13_max_bytes_is_a_positive_integer() {
    let server = Server::start(&[]);
    let stream = server.create("bad", TEXT);
    for bad in ["0", "-1", "+1", "1.5", "x", "", "0x10", "1e3", "99999999999999999999"] {
        assert_eq!(stream.get(&format!("offset=-1&max_bytes={bad}")).send().status, 400, "{bad:?}");
    }
}

#[test]
fn decision_32_etags_answer_304_until_something_changes() {
    let server = Server::start(&[]);
    for content_type in [TEXT, JSON] {
        let stream = server.create(if content_type == TEXT { "etag" } else { "etag-json" }, content_type);
        stream.append("1");
        let etag = |query: &str| stream.get(query).expect(200).required("etag").to_owned();
        let first = etag("offset=-1");
        assert!(first.starts_with('"') && first.ends_with('"'), "{first}");
        assert_eq!(etag("offset=-1"), first);
        let matches = |value: &str| {
            let answer = stream.get("offset=-1").header("If-None-Match", value).send();
            if answer.status == 304 {
                assert_eq!(
                    (answer.body.as_slice(), answer.header("etag")),
                    (b"".as_slice(), Some(first.as_str()))
                );
            }
            answer.status
        };
        assert_eq!(matches(&first), 304);
        assert_eq!(matches(&format!("W/{first}")), 304);
        assert_eq!(matches(&format!("\"other\", {first}")), 304);
        assert_eq!(matches("*"), 304);
        assert_eq!(matches("\"other\""), 200);
        assert_eq!(matches(first.trim_matches('"')), 200);
        // Closure alone changes it.
        stream.close();
        assert_eq!(matches(&first), 200);
        let closed = etag("offset=-1");
        assert_ne!(closed, first);
        assert_eq!(stream.get("offset=-1").header("If-None-Match", &closed).send().status, 304);
    }
}

#[test]
fn decision_32_an_etag_covers_start_end_and_lineage() {
    let server = Server::start(&[]);
    let stream = server.create("covers", TEXT);
    let middle = stream.append("a");
    stream.append("b");
    let etag = |query: &str| stream.get(query).expect(200).required("etag").to_owned();
    let all = etag("offset=-1");
    let mut seen = vec![all.clone(), etag(&format!("offset={middle}")), etag("offset=-1&max_bytes=1")];
    stream.append("c");
    seen.push(etag("offset=-1"));
    stream.delete();
    stream.put().expect(201);
    stream.append("a");
    stream.append("b");
    seen.push(etag("offset=-1"));
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "two different answers share an ETag: {seen:?}");
    assert_eq!(stream.get("offset=-1").header("If-None-Match", &all).send().status, 200);
}

#[test]
fn decision_32_caches_may_keep_pages_before_the_tail_only() {
    let server = Server::start(&["--read-page-bytes", "4096"]);
    let stream = server.create("caching", TEXT);
    stream.append("x".repeat(5000));
    let cached = |answer: &Response| answer.required("cache-control").to_owned();
    let first = stream.get("offset=-1").expect(200);
    assert_eq!(cached(&first), CACHED);
    assert_eq!(cached(&stream.get("offset=-1&max_bytes=10").expect(200)), CACHED);
    let last = stream.get(&format!("offset={}", first.next_offset())).expect(200);
    assert_eq!(cached(&last), "no-cache");
    let now = stream.get("offset=now").expect(200);
    assert_eq!((cached(&now).as_str(), now.header("etag")), ("no-store", None));
    assert_eq!(cached(&stream.get("offset=-1&live=long-poll").expect(200)), CACHED);
    assert_eq!(cached(&stream.get("offset=now&live=long-poll").expect(204)), "no-store");
    assert_eq!(cached(&stream.events("offset=-1").response), "no-cache");
    assert_eq!(cached(&stream.head()), "no-store");
    // Errors are checked for every answer of every test.
    stream.get("offset=nonsense").expect(400);
}

#[test]
fn unknown_parameters_are_ignored_and_known_ones_come_once() {
    let server = Server::start(&[]);
    let stream = server.create("parameters", TEXT);
    stream.append("x");
    for fine in ["offset=-1&foo=bar", "foo&offset=-1", "&offset=-1&", "cursor=5", "offset=%2D1"] {
        assert_eq!(stream.get(fine).expect(200).text(), "x", "{fine}");
    }
    for bad in [
        "offset=-1&offset=-1",
        "offset=",
        "live=long-poll",
        "live=sse",
        "offset=-1&live=",
        "offset=-1&live=poll",
        "offset=-1&live=true",
    ] {
        assert_eq!(stream.get(bad).send().status, 400, "{bad}");
    }
}

#[test]
fn browsers_may_read_everything() {
    let server = Server::start(&[]);
    let stream = server.create("cors", TEXT);
    let preflight = server
        .request("OPTIONS", stream.path.clone())
        .header("Origin", "http://page.test")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "content-type, producer-id")
        .send();
    assert!(preflight.status == 204 || preflight.status == 200, "{preflight:?}");
    let list = |name: &str| -> Vec<String> {
        preflight.required(name).split(',').map(|item| item.trim().to_ascii_lowercase()).collect()
    };
    assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
    for method in ["get", "head", "put", "post", "delete"] {
        assert!(list("access-control-allow-methods").iter().any(|item| item == method), "{method}");
    }
    for header in [
        "content-type",
        "if-none-match",
        "last-event-id",
        "authorization",
        "stream-ttl",
        "stream-expires-at",
        "stream-closed",
        "stream-seq",
        "producer-id",
        "producer-epoch",
        "producer-seq",
        "stream-forked-from",
        "stream-fork-offset",
        "stream-fork-sub-offset",
        "stream-attrs",
        "stream-record-match",
        "stream-snapshot-match",
    ] {
        assert!(list("access-control-allow-headers").iter().any(|item| item == header), "{header}");
    }
    let appended = stream.post("x").header("Origin", "http://page.test").expect(204);
    let read = stream.get("offset=-1").header("Origin", "http://page.test").expect(200);
    for answer in [&appended, &read] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        let exposed = answer.required("access-control-expose-headers").to_ascii_lowercase();
        for header in [
            "stream-next-offset",
            "stream-up-to-date",
            "stream-closed",
            "stream-cursor",
            "stream-ttl",
            "etag",
            "location",
            "stream-expires-at",
            "producer-epoch",
            "producer-seq",
            "producer-expected-seq",
            "producer-received-seq",
            "stream-sse-data-encoding",
            "stream-record-start",
            "stream-record-next",
            "stream-shard",
        ] {
            assert!(exposed.split(',').any(|item| item.trim() == header), "{header} in {exposed}");
        }
    }
}

#[test]
fn every_answer_names_its_shard() {
    let server = Server::start(&["--shards", "2"]);
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..32 {
        let stream = server.create(&format!("shard-{n}"), TEXT);
        let shard = stream.head().required("stream-shard").to_owned();
        // A request runs where its stream lives, whatever it asks.
        assert_eq!(stream.post("x").expect(204).required("stream-shard"), shard);
        assert_eq!(stream.get("").expect(200).required("stream-shard"), shard);
        seen.insert(shard);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["0/2", "1/2"]);
}

#[test]
fn decision_31_what_one_reader_saw_every_reader_sees() {
    let server = Server::start(&["--shards", "2"]);
    let stream = server.create("monotonic", TEXT);
    let total = 200;
    let read_until_end = |stream: Stream<'_>| {
        let mut connection = stream.server().connect();
        let mut before = String::new();
        while before.len() < total {
            let now = connection.send(&stream.get("offset=-1")).expect(200);
            assert!(now.text().starts_with(&before), "a reader saw bytes that are gone");
            before = now.text().to_owned();
            // A later HEAD is not behind.
            assert!(connection.send(&stream.request("HEAD")).expect(200).next_offset() >= now.next_offset());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let stream = stream.clone();
            scope.spawn(move || read_until_end(stream));
        }
        let mut connection = server.connect();
        for _ in 0..total {
            connection.send(&stream.post("x")).expect(204);
        }
    });
}

#[test]
fn reads_from_disk_are_those_from_memory() {
    // The cache is far smaller than the data, and many small appends of several streams lie interleaved.
    let server = Server::start(&["--cache-bytes", "0", "--segment-bytes", "1048576", "--shards", "1"]);
    let streams: Vec<_> = (0..5).map(|n| server.create(&format!("interleaved-{n}"), OCTETS)).collect();
    let mut random = common::Random::new(11);
    let mut expected = vec![Vec::new(); streams.len()];
    let mut connection = server.connect();
    for _ in 0..60 {
        let batch: Vec<(usize, Vec<u8>)> = (0..20)
            .map(|_| {
                let length = 1 + random.below(6000) as usize;
                (random.below(streams.len() as u64) as usize, random.letters(length).into_bytes())
            })
            .collect();
        for (at, body) in &batch {
            connection.start(&streams[*at].post(body));
            expected[*at].extend_from_slice(body);
        }
        for _ in &batch {
            connection.read_response("POST").expect(204);
        }
    }
    for (stream, expected) in streams.iter().zip(&expected) {
        assert!(stream.read() == *expected, "{} differs", stream.path);
        for _ in 0..50 {
            let from = random.below(expected.len() as u64) as usize;
            let size = 1 + random.below(20_000) as usize;
            let part = stream.get(&format!("offset={from}&max_bytes={size}")).expect(200);
            let end = (from + size).min(expected.len());
            assert!(part.body == expected[from..end], "{from}..{end} of {}", stream.path);
        }
    }
}
