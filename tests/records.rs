//! JSON record coordinates, apart from live reads: extension 6; decisions 12 to 14, 22, 26, 32.

mod common;

use common::records::{ENVELOPES, NDJSON, TOKEN, envelopes, lines, made, number, range};
use common::stream::split_array;
use common::{JSON, OCTETS, Random, Response, Server, Stream, TEXT};

const CACHED: &str = "public, max-age=60, stale-while-revalidate=300";

/// Records of many lengths, with line ends and separators in their strings.
fn sample(count: usize) -> Vec<String> {
    (0..count)
        .map(|n| match n % 5 {
            0 => n.to_string(),
            1 => format!("{{\"n\":{n},\"a\":[1,{{}}]}}"),
            2 => format!("\"{}\"", "x,\\n".repeat(n % 40)),
            3 => format!("[{n},\"\u{20ac}\"]"),
            _ => "null".to_owned(),
        })
        .collect()
}

fn append_all(stream: &Stream<'_>, records: &[String]) {
    for some in records.chunks(7) {
        stream.append(format!("[{}]", some.join(", ")));
    }
}

#[test]
fn section_6_5_head_tells_the_retained_and_the_next_record() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("head", JSON) {
        let records =
            |head: &Response| (number(head, "stream-record-first"), number(head, "stream-record-next"));
        assert_eq!(records(&stream.head()), (0, 0), "6.1: a new stream has F = N = 0");
        stream.append("[1,[2,3],{}]");
        assert_eq!(records(&stream.head()), (0, 3));
        stream.close();
        assert_eq!(records(&stream.head()), (0, 3));
    }
    let plain = server.create("plain", TEXT);
    plain.append("x");
    for header in ["stream-record-first", "stream-record-next", "stream-extensions"] {
        assert_eq!(plain.head().header(header), None);
    }
}

#[test]
fn section_6_3_every_write_tells_what_it_made() {
    let server = Server::start(&[]);
    for surface in ["", "/v1/stream/"] {
        let path =
            if surface.is_empty() { server.create("made", JSON).path } else { "/v1/stream/made".into() };
        let stream = server.stream(&format!("{path}-2"), JSON);
        assert_eq!(made(&stream.put().body("[1,2]").expect(201)), (0, 2));
        assert_eq!(made(&stream.put().body("[3]").expect(200)), (2, 2), "a matching create makes nothing");
        assert_eq!(made(&stream.post("[[3,4]]").expect(204)), (2, 3));
        assert_eq!(made(&stream.produce("p", 0, 0, "[1,2,3]").expect(200)), (3, 6));
        stream.append("0");
        assert_eq!(made(&stream.produce("p", 0, 1, "1").expect(200)), (7, 8));
        let again = stream.produce("p", 0, 0, "ignored").expect(204);
        assert_eq!(made(&again), (3, 6), "the original range");
        let last = stream.post("9").header("Stream-Closed", "true").expect(204);
        assert_eq!(made(&last), (8, 9));
        assert_eq!(made(&stream.close()), (9, 9), "a close of what is closed makes nothing");
        assert_eq!(made(&stream.produce("p", 0, 1, "1").expect(204)), (7, 8), "also on a closed stream");
        let empty = server.stream(&format!("{path}-3"), JSON);
        assert_eq!(made(&empty.put().expect(201)), (0, 0));
        empty.append("1");
        assert_eq!(made(&empty.close()), (1, 1));
        let none = server.stream(&format!("{path}-4"), JSON);
        assert_eq!(made(&none.put().body("[]").expect(201)), (0, 0));
    }
}

#[test]
fn section_6_3_concurrent_appends_get_ranges_of_their_own() {
    let server = Server::start(&[]);
    let stream = server.create("concurrent", JSON);
    let ranges: Vec<(u64, u64, usize)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let stream = stream.clone();
                scope.spawn(move || {
                    let mut connection = stream.server().connect();
                    let append = |n: usize| {
                        let body = vec![(writer * 1000 + n).to_string(); 1 + n % 3].join(",");
                        let answer = connection.send(&stream.post(format!("[{body}]"))).expect(204);
                        let (start, next) = made(&answer);
                        (start, next, writer * 1000 + n)
                    };
                    (0..50).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("it appends")).collect()
    });
    let records = stream.records();
    let mut owner = vec![None; records.len()];
    for (start, next, value) in ranges {
        for ordinal in start..next {
            assert_eq!(owner[ordinal as usize].replace(value), None, "record {ordinal} was given out twice");
            assert_eq!(records[ordinal as usize], value.to_string(), "in committed order");
        }
    }
    assert!(owner.iter().all(Option::is_some), "ordinals are contiguous");
}

#[test]
fn section_6_4_an_append_may_require_the_record_tail() {
    let server = Server::start(&[]);
    let stream = server.create("match", JSON);
    let post = |at: &str| stream.post("[1,2]").header("Stream-Record-Match", at);
    assert_eq!(made(&post("0").expect(204)), (0, 2));
    for wrong in ["0", "1", "3", "18446744073709551615"] {
        let refused = post(wrong).send().expect_error(412, "RECORD_MATCH_FAILED");
        assert_eq!(number(&refused, "stream-record-next"), 2);
        assert_eq!(refused.next_offset(), stream.tail());
    }
    assert_eq!(made(&post("2").expect(204)), (2, 4));
    // It composes with a producer, and a retry is a duplicate although the tail has moved.
    let claim = || stream.produce("p", 0, 0, "5").header("Stream-Record-Match", "4");
    assert_eq!(made(&claim().expect(200)), (4, 5));
    assert_eq!(made(&claim().expect(204)), (4, 5));
    let refused = stream.produce("p", 0, 1, "6").header("Stream-Record-Match", "4").expect(412);
    assert_eq!(number(&refused, "stream-record-next"), 5);
    let refused = post("5").header("Stream-Seq", "b").expect(204);
    assert_eq!(made(&refused), (5, 7));
    post("7").header("Stream-Seq", "a").send().expect_error(409, "STREAM_SEQ_CONFLICT");
    for bad in ["", "-1", "x", "1.0"] {
        post(bad).send().expect_error(400, "INVALID_RECORD_MATCH");
    }
    let plain = server.create("match-plain", TEXT);
    plain.post("x").header("Stream-Record-Match", "0").expect(400);
}

#[test]
fn section_6_11_batch_acknowledgements_tell_ordinals() {
    let server = Server::start(&[]);
    let stream = server.create("batch", JSON);
    stream.append("0");
    let acks = stream.batch(&["1", "[2,3]", "[]", "{", "4"]);
    let ranges: Vec<_> = acks
        .iter()
        .map(|ack| {
            Some((ack.get("stream_record_start")?.as_u64()?, ack.get("stream_record_next")?.as_u64()?))
        })
        .collect();
    assert_eq!(ranges, [Some((1, 2)), Some((2, 4)), None, None, Some((4, 5))]);
    assert_eq!(stream.records(), ["0", "1", "2", "3", "4"]);
    let plain = server.create("batch-plain", TEXT);
    assert_eq!(plain.batch(&["x"])[0].get("stream_record_start"), None);
}

#[test]
fn section_6_6_a_read_starts_at_any_record() {
    let server = Server::start(&[]);
    let records = sample(60);
    for stream in server.create_on_both("start", JSON) {
        append_all(&stream, &records);
        let (all, tail) = (stream.records(), stream.tail());
        for ordinal in 0..=records.len() {
            let read = stream.get(&format!("record={ordinal}")).expect(200);
            assert_eq!(read.header("content-type"), Some(NDJSON), "6.7");
            assert_eq!(lines(&read), all[ordinal..], "whole records from record {ordinal} on");
            assert_eq!(range(&read), (0, ordinal as u64, 60));
            assert_eq!(read.next_offset(), tail);
            assert_eq!(read.header("stream-up-to-date"), Some("true"));
            let from_end = stream.get(&format!("tail_records={}", 60 - ordinal)).expect(200);
            assert_eq!((from_end.text(), range(&from_end)), (read.text(), range(&read)));
        }
        for all_of_it in ["tail_records=61", "tail_records=99999999999999999999"] {
            assert_eq!(range(&stream.get(all_of_it).expect(200)), (0, 0, 60), "max(F, N - count)");
        }
        for now in ["record=now", "tail_records=0", "record=60"] {
            let read = stream.get(now).expect(200);
            assert_eq!(
                (read.text(), range(&read), read.next_offset()),
                ("", (0, 60, 60), tail.clone()),
                "{now}"
            );
        }
        for beyond in ["record=61", "record=18446744073709551615", "record=99999999999999999999"] {
            let refused = stream.get(beyond).send().expect_error(400, "RECORD_BEYOND_TAIL");
            assert_eq!(number(&refused, "stream-record-next"), 60, "{beyond}");
        }
    }
}

#[test]
fn section_6_6_parameters_that_are_refused() {
    let server = Server::start(&[]);
    let stream = server.create("refused", JSON);
    stream.append("[1,2,3]");
    for live in ["", "&live=long-poll", "&live=sse"] {
        for (query, code) in [
            ("record=0&offset=-1", "CONFLICTING_START"),
            ("record=now&offset=now", "CONFLICTING_START"),
            ("tail_records=1&offset=-1", "CONFLICTING_START"),
            ("record=0&tail_records=3", "CONFLICTING_START"),
            ("record=0&record=0", "CONFLICTING_START"),
            ("record=x", "INVALID_RECORD"),
            ("record=-1", "INVALID_RECORD"),
            ("record=", "INVALID_RECORD"),
            ("tail_records=-1", "INVALID_TAIL_RECORDS"),
            ("tail_records=now", "INVALID_TAIL_RECORDS"),
            ("record=0&max_records=0", "INVALID_MAX_RECORDS"),
            ("record=0&max_records=x", "INVALID_MAX_RECORDS"),
            ("record=0&record_view=plain", "INVALID_RECORD_VIEW"),
            ("record=0&record_view=", "INVALID_RECORD_VIEW"),
            ("max_records=1", "RECORD_START_REQUIRED"),
            ("offset=-1&max_records=1", "RECORD_START_REQUIRED"),
            ("offset=-1&record_view=envelope", "RECORD_START_REQUIRED"),
            ("record=0&max_bytes=10", "INVALID_MAX_BYTES"),
            ("tail_records=1&max_bytes=10", "INVALID_MAX_BYTES"),
            ("record=0&max_records=1&max_bytes=10", "INVALID_MAX_BYTES"),
            ("offset=-1&max_records=1&max_bytes=10", "INVALID_MAX_BYTES"),
        ] {
            let refused = stream.get(&format!("{query}{live}")).send().expect_error(400, code);
            assert_eq!(refused.header("stream-extensions"), Some(TOKEN));
        }
    }
}

#[test]
fn decision_26_a_stream_without_records_takes_no_record_parameters() {
    let server = Server::start(&[]);
    for (at, content_type) in [TEXT, OCTETS, NDJSON, "application/json-seq"].into_iter().enumerate() {
        let stream = server.create(&format!("none-{at}"), content_type);
        stream.append("1");
        for live in ["", "&live=long-poll", "&live=sse"] {
            for query in
                ["record=0", "record=now", "record=5", "tail_records=1", "tail_records=0&max_records=1"]
            {
                let refused =
                    stream.get(&format!("{query}{live}")).send().expect_error(400, "RECORDS_UNSUPPORTED");
                assert_eq!(refused.header("stream-extensions"), None);
            }
            stream.get(&format!("offset=-1&max_records=1{live}")).expect(400);
            let resumed = stream.get(&format!("record=0{live}")).header("Last-Event-ID", "0");
            resumed.send().expect_error(400, "RECORDS_UNSUPPORTED");
        }
    }
}

#[test]
fn section_6_7_pages_hold_at_most_max_records() {
    let server = Server::start(&[]);
    let stream = server.create("limited", JSON);
    let records = sample(50);
    append_all(&stream, &records);
    let all = stream.records();
    for size in [1, 2, 7, 49, 50, 51, usize::MAX] {
        let mut next = 0;
        while next < all.len() {
            let page = stream.get(&format!("record={next}&max_records={size}")).expect(200);
            let end = next.saturating_add(size).min(all.len());
            assert_eq!(lines(&page), all[next..end]);
            assert_eq!(range(&page), (0, next as u64, end as u64));
            assert_eq!(page.header("stream-up-to-date").is_some(), end == all.len());
            // Stream-Next-Offset is the same boundary.
            let rest = stream.get(&format!("offset={}", page.next_offset())).expect(200);
            assert_eq!(split_array(&rest.body), all[end..]);
            next = end;
        }
        let tail = stream.get(&format!("tail_records=10&max_records={size}")).expect(200);
        assert_eq!(lines(&tail), all[40..40 + size.min(10)]);
    }
    let empty = stream.get("record=now&max_records=3").expect(200);
    assert_eq!((empty.text(), range(&empty)), ("", (0, 50, 50)));
}

#[test]
fn section_6_7_pages_are_as_large_as_those_by_offset() {
    let server = Server::start(&["--read-page-bytes", "4096"]);
    let stream = server.create("pages", JSON);
    let records: Vec<String> =
        (0..300).map(|n| format!("\"{}\"", "y".repeat(if n % 50 == 7 { 9000 } else { n }))).collect();
    append_all(&stream, &records);
    for (view, content_type) in [("", NDJSON), ("&record_view=envelope", ENVELOPES)] {
        let (mut seen, mut next) = (Vec::new(), 0);
        loop {
            let page = stream.get(&format!("record={next}{view}")).expect(200);
            assert_eq!(page.header("content-type"), Some(content_type));
            let found = lines(&page);
            assert!(!found.is_empty(), "at least one record");
            assert!(found.len() == 1 || page.body.len() <= 2 * 4096, "{}", page.body.len());
            assert_eq!(range(&page), (0, next, next + found.len() as u64));
            seen.extend(found.into_iter().map(str::to_owned));
            next = number(&page, "stream-record-next");
            if page.header("stream-up-to-date").is_some() {
                break;
            }
        }
        let expected: Vec<String> = match view {
            "" => records.clone(),
            _ => envelopes(&records, 0),
        };
        assert!(seen == expected, "{content_type}");
    }
    // Tiny records, which their envelopes outweigh.
    let tiny = server.create("tiny", JSON);
    tiny.append(format!("[{}]", vec!["1"; 3000].join(",")));
    let page = tiny.get("record=0&record_view=envelope").expect(200);
    assert!((1024..=2 * 4096).contains(&page.body.len()), "{}", page.body.len());
    assert_eq!(range(&page), (0, 0, lines(&page).len() as u64));
    // A plain read as NDJSON has the same pages as one as an array.
    let mut offset = "-1".to_owned();
    loop {
        let array = stream.get(&format!("offset={offset}")).expect(200);
        let page = stream.get(&format!("offset={offset}")).header("Accept", NDJSON).expect(200);
        assert_eq!((page.header("vary"), page.header("content-type")), (Some("Accept"), Some(NDJSON)));
        assert_eq!(lines(&page), split_array(&array.body));
        assert_eq!(page.next_offset(), array.next_offset());
        if page.header("stream-up-to-date").is_some() {
            break;
        }
        offset = page.next_offset();
    }
}

#[test]
fn section_6_8_envelopes_hold_ordinal_and_value() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("envelopes", JSON) {
        append_all(&stream, &sample(120));
        let all = stream.records();
        for first in [0, 1, 8, 9, 10, 98, 99, 100, 119, 120] {
            let page = stream.get(&format!("record={first}&record_view=envelope&max_records=5")).expect(200);
            let end = (first + 5).min(120);
            assert_eq!(lines(&page), envelopes(&all[first..end], first), "decision 14");
            assert_eq!(range(&page), (0, first as u64, end as u64));
            assert_eq!(page.header("content-type"), Some(ENVELOPES));
            let plain = stream.get(&format!("record={first}&max_records=5")).expect(200);
            assert_eq!(plain.next_offset(), page.next_offset());
            assert_ne!(plain.header("etag"), page.header("etag"), "tags of another representation");
        }
        let tail = stream.get("tail_records=2&record_view=envelope").expect(200);
        assert_eq!(lines(&tail), envelopes(&all[118..], 118));
    }
}

#[test]
fn decision_32_caching_of_reads_by_record() {
    let server = Server::start(&[]);
    let stream = server.create("caching", JSON);
    stream.append("[1,2,3]");
    let cached = |query: &str| {
        let read = stream.get(query).expect(200);
        assert_eq!(read.header("vary"), None, "{query}");
        (read.required("cache-control").to_owned(), read.header("etag").is_some())
    };
    assert_eq!(cached("record=0&max_records=2"), (CACHED.to_owned(), true));
    assert_eq!(cached("record=0"), ("no-cache".to_owned(), true));
    assert_eq!(cached("record=3"), ("no-cache".to_owned(), true));
    for query in ["record=now", "tail_records=2", "tail_records=2&max_records=1", "tail_records=9"] {
        assert_eq!(cached(query), ("no-store".to_owned(), false), "{query}");
    }
    for view in ["", "&record_view=envelope"] {
        let query = format!("record=1{view}");
        let first = stream.get(&query).expect(200);
        let again = stream.get(&query).header("If-None-Match", first.required("etag")).expect(304);
        assert_eq!(range(&again), (0, 1, 3));
        assert_eq!(again.next_offset(), first.next_offset());
    }
    let plain = stream.get("offset=-1").expect(200);
    let before = plain.required("etag").to_owned();
    let envelope = stream.get("record=0&record_view=envelope").expect(200);
    stream.get("offset=-1").header("If-None-Match", &before).expect(304);
    stream.get("record=0").header("If-None-Match", envelope.required("etag")).expect(200);
    // What changes the page changes the tag.
    stream.append("4");
    stream
        .get("record=0&record_view=envelope")
        .header("If-None-Match", envelope.required("etag"))
        .expect(200);
    let open = stream.get("record=0").expect(200);
    stream.close();
    let closed = stream.get("record=0").header("If-None-Match", open.required("etag")).expect(200);
    assert_eq!(closed.header("stream-closed"), Some("true"));
    assert_eq!(stream.get("record=now").expect(200).header("stream-closed"), Some("true"));
    assert_eq!(stream.get("record=0&max_records=1").expect(200).header("stream-closed"), None);
}

#[test]
fn section_6_13_records_keep_their_ordinals_on_disk_and_through_a_restart() {
    let dir = common::DataDir::new();
    let flags = ["--cache-bytes", "0", "--segment-bytes", "1048576", "--shards", "1"];
    let mut random = Random::new(Random::seed("ordinals"));
    let mut oracles: Vec<Vec<String>> = vec![Vec::new(); 3];
    for _ in 0..2 {
        let server = Server::start_in(&dir, &flags);
        let streams: Vec<_> = (0..3).map(|n| server.stream(&format!("/v1/stream/kept-{n}"), JSON)).collect();
        for (stream, oracle) in streams.iter().zip(&oracles) {
            stream.put().expect(if oracle.is_empty() { 201 } else { 200 });
        }
        for _ in 0..120 {
            let at = random.below(3) as usize;
            let count = 1 + random.below(30);
            let body: Vec<String> = (0..count)
                .map(|_| {
                    let most = if random.one_in(20) { 9000 } else { 60 };
                    let length = random.below(most) as usize;
                    format!("\"{}\"", random.letters(length))
                })
                .collect();
            let start = oracles[at].len() as u64;
            let answer = streams[at].post(format!("[{}]", body.join(","))).expect(204);
            assert_eq!(made(&answer), (start, start + count));
            oracles[at].extend(body);
        }
        check_against(&streams, &oracles, &mut random);
        server.kill();
    }
    let server = Server::start_in(&dir, &flags);
    let streams: Vec<_> = (0..3).map(|n| server.stream(&format!("/v1/stream/kept-{n}"), JSON)).collect();
    check_against(&streams, &oracles, &mut random);
}

/// Reads by record from anywhere are what an array of the records holds.
#[track_caller]
fn check_against(streams: &[Stream<'_>], oracles: &[Vec<String>], random: &mut Random) {
    let mut connection = streams[0].server().connect();
    for _ in 0..150 {
        let at = random.below(3) as usize;
        let (stream, oracle) = (&streams[at], &oracles[at]);
        let from = random.below(oracle.len() as u64 + 1) as usize;
        let count = 1 + random.below(100) as usize;
        let to = (from + count).min(oracle.len());
        let page = connection.send(&stream.get(&format!("record={from}&max_records={count}"))).expect(200);
        assert!(lines(&page) == oracle[from..to], "records {from}..{to} of stream {at}");
        assert_eq!(range(&page), (0, from as u64, to as u64));
        let query = format!("record={from}&max_records={count}&record_view=envelope");
        let page = connection.send(&stream.get(&query)).expect(200);
        assert!(lines(&page) == envelopes(&oracle[from..to], from), "envelopes {from}..{to} of stream {at}");
        // The offset of a record is where its bytes are.
        let offset: usize = oracle[..to].iter().map(|record| record.len() + 1).sum();
        assert!(page.next_offset().ends_with(&format!("_{offset:016}")), "{page:?}");
    }
}
