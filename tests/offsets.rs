//! Offsets: section 8 of the protocol, decisions 8 and 9.

mod common;

use common::{JSON, Server, Stream, TEXT};

fn status(stream: &Stream<'_>, offset: &str) -> u16 {
    stream.get(&format!("offset={offset}")).send().status
}

/// Lineage and position of a token.
#[track_caller]
fn parts(token: &str) -> (u64, u64) {
    let (lineage, position) = token.split_once('_').unwrap_or_else(|| panic!("token {token}"));
    assert_eq!((lineage.len(), position.len()), (16, 16), "decision 8: {token}");
    let number = |digits: &str| digits.parse().unwrap_or_else(|_| panic!("token {token}"));
    (number(lineage), number(position))
}

#[test]
fn decision_8_a_token_is_lineage_and_position() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("token", TEXT) {
        let empty = stream.tail();
        let (lineage, position) = parts(&empty);
        assert!(lineage > 0, "all zeros is the start of every stream");
        assert_eq!(position, 0);
        let next = stream.append("hello");
        assert_eq!(parts(&next), (lineage, 5));
        assert!(next > empty, "tokens sort as text");
        // Every position of a byte stream is an offset.
        for (at, rest) in ["hello", "ello", "llo", "lo", "o", ""].iter().enumerate() {
            let read = stream.get(&format!("offset={lineage:016}_{at:016}")).expect(200);
            assert_eq!(&read.text(), rest);
        }
    }
}

#[test]
fn decision_8_all_zeros_is_always_the_start() {
    let server = Server::start(&[]);
    let stream = server.create("zeros", TEXT);
    stream.append("hello");
    let zeros = "0000000000000000_0000000000000000";
    for start in ["-1", zeros, "0"] {
        assert_eq!(stream.get(&format!("offset={start}")).expect(200).text(), "hello", "{start}");
    }
    stream.delete();
    stream.put().expect(201);
    stream.append("again");
    assert_eq!(stream.get(&format!("offset={zeros}")).expect(200).text(), "again");
    assert_eq!(status(&stream, "0000000000000000_0000000000000001"), 400, "lineage 0 is never issued");
}

#[test]
fn decision_8_lineages_grow_and_are_never_reused() {
    let server = Server::start(&["--shards", "3"]);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..3 {
        for n in 0..10 {
            let stream = server.create(&format!("s{n}"), TEXT);
            assert!(seen.insert(parts(&stream.tail()).0), "round {round}: a lineage came twice");
            stream.delete();
        }
    }
    // On one shard a later stream has a greater lineage.
    let stream = server.create("same", TEXT);
    let mut last = parts(&stream.tail()).0;
    for _ in 0..5 {
        stream.delete();
        stream.put().expect(201);
        let next = parts(&stream.tail()).0;
        assert!(next > last);
        last = next;
    }
}

#[test]
fn decision_8_a_token_of_an_earlier_life_is_gone() {
    let server = Server::start(&["--shards", "2"]);
    for stream in server.create_on_both("lives", TEXT) {
        let old = [stream.tail(), stream.append("the old bytes")];
        stream.delete();
        stream.put().expect(201);
        stream.append("other bytes, and more of them");
        for token in &old {
            for query in ["", "&live=long-poll", "&live=sse", "&max_bytes=5"] {
                let answer = stream.get(&format!("offset={token}{query}")).send();
                assert_eq!(answer.status, 410, "{token}{query}: {}", String::from_utf8_lossy(&answer.body));
            }
        }
        // Nor is it another stream's.
        let (lineage, _) = parts(&server.create(&format!("other-{}", stream.path.len()), TEXT).tail());
        assert_eq!(status(&stream, &format!("{lineage:016}_{:016}", 0)), 410);
    }
}

#[test]
fn decision_8_a_lineage_that_was_never_issued_is_malformed() {
    let server = Server::start(&[]);
    let stream = server.create("never", TEXT);
    let (lineage, _) = parts(&stream.append("hello"));
    for never in [lineage + 1, lineage + 1_000_000, 9_999_999_999_999_999] {
        assert_eq!(status(&stream, &format!("{never:016}_{:016}", 0)), 400, "{never}");
        assert_eq!(status(&stream, &format!("{never:016}_{:016}", 3)), 400, "{never}");
    }
}

#[test]
fn decision_9_a_plain_number_is_a_position_in_the_present_stream() {
    let server = Server::start(&[]);
    let stream = server.create("plain", TEXT);
    stream.append("hello");
    for (at, rest) in ["hello", "ello", "llo", "lo", "o", ""].iter().enumerate() {
        assert_eq!(&stream.get(&format!("offset={at}")).expect(200).text(), rest);
    }
    assert_eq!(status(&stream, "6"), 400, "beyond the tail");
    for bad in ["00", "01", "05", "0x1", "1e1", "1.0", "+1", "-2", "-0", "18446744073709551616"] {
        assert_eq!(status(&stream, bad), 400, "{bad}");
    }
    // Live reads take it as well.
    assert_eq!(stream.get("offset=3&live=long-poll").expect(200).text(), "lo");
    assert_eq!(stream.events("offset=3").next_data().data, "lo");
}

#[test]
fn decision_9_beyond_the_tail_is_refused() {
    let server = Server::start(&[]);
    let stream = server.create("beyond", TEXT);
    let (lineage, tail) = parts(&stream.append("hello"));
    for query in ["", "&live=long-poll", "&live=sse"] {
        let beyond = format!("offset={lineage:016}_{:016}{query}", tail + 1);
        assert_eq!(stream.get(&beyond).send().status, 400, "{beyond}");
        assert_eq!(stream.get(&format!("offset={}{query}", tail + 1)).send().status, 400, "{query}");
    }
}

#[test]
fn decision_9_malformed_offsets_are_refused() {
    let server = Server::start(&[]);
    let stream = server.create("malformed", TEXT);
    let (lineage, _) = parts(&stream.append("hello"));
    let short = format!("{lineage:015}_{:016}", 0);
    let long = format!("{lineage:017}_{:016}", 0);
    let no_position = format!("{lineage:016}_");
    let dash = format!("{lineage:016}-{:016}", 0);
    let twice = format!("{lineage:016}_{:016}_{:016}", 0, 0);
    for bad in [
        "",
        "0,1",
        "0%201",
        "0+1",
        "%00",
        "abc",
        "NOW",
        "Now",
        "-1%20",
        "%20-1",
        "--1",
        "-1_0",
        "_",
        "0_0",
        "1_1",
        "../x",
        "%2e%2e",
        "\u{ff11}",
        "%FF",
        "0/1",
        "true",
        "null",
        "latest",
        "start",
        "-1,-1",
        "0%0a",
        &short,
        &long,
        &no_position,
        &dash,
        &twice,
    ] {
        let encoded: String = bad
            .chars()
            .flat_map(|c| {
                if c.is_ascii() {
                    vec![c.to_string()]
                } else {
                    c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect()
                }
            })
            .collect();
        assert_eq!(status(&stream, &encoded), 400, "{bad:?}");
    }
}

#[test]
fn decision_9_an_offset_in_a_record_stream_is_a_boundary() {
    let server = Server::start(&[]);
    let stream = server.create("boundary", JSON);
    let (lineage, tail) = parts(&stream.append("[\"abc\",12,{\"a\":1}]"));
    let boundaries = [0, 6, 9, 17];
    assert_eq!(tail, 17);
    for position in 0..=tail {
        let expected = if boundaries.contains(&position) { 200 } else { 400 };
        assert_eq!(status(&stream, &format!("{lineage:016}_{position:016}")), expected, "{position}");
        assert_eq!(status(&stream, &position.to_string()), expected, "{position}");
        if position < tail {
            let polled = stream.get(&format!("offset={position}&live=long-poll")).send();
            assert_eq!(polled.status, expected, "{position}");
        }
    }
}

#[test]
fn tokens_of_every_boundary_replay_the_rest() {
    let server = Server::start(&["--segment-bytes", "1048576"]);
    let stream = server.create("replay", JSON);
    let mut tokens = vec![stream.tail()];
    let mut records = Vec::new();
    for n in 0..150u32 {
        let record = format!("\"{n}{}\"", "x".repeat((n * n % 700) as usize));
        tokens.push(stream.append(&record));
        records.push(record);
    }
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{pair:?}");
    }
    for (at, token) in tokens.iter().enumerate() {
        let pages = stream.pages(token);
        let rest: Vec<String> = pages.iter().flat_map(|page| common::stream::split_array(page)).collect();
        assert!(rest == records[at..], "from {token}");
    }
}
