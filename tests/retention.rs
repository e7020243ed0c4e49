//! Retention (extension 2.2, 6.10; decisions 10, 20): what may go, and what every kind of read says of what is gone.

mod common;

use common::{DataDir, JSON, Response, Server, Stream, TEXT};

/// A record stream of the records `0..10`, each of two bytes with its separator.
fn ten_records<'s>(server: &'s Server, name: &str) -> Stream<'s> {
    let stream = server.create(name, JSON);
    stream.append("[0,1,2,3,4,5,6,7,8,9]");
    stream
}

fn retain(stream: &Stream<'_>, suffix: &str) -> Response {
    stream.below("PUT", &format!("retention{suffix}")).send()
}

/// What a refusal of decision 10 says: the earliest offset, and the records.
#[track_caller]
fn expect_gone(answer: &Response, first_offset: u64, records: Option<(u64, u64)>) {
    assert_eq!(answer.status, 410, "{answer:?}");
    assert!(answer.next_offset().ends_with(&format!("_{first_offset:016}")), "{answer:?}");
    let number = |name: &str| answer.header(name).map(|text| text.parse().expect("a number"));
    let found = number("stream-record-first").zip(number("stream-record-next"));
    assert_eq!(found, records, "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[test]
fn decision_20_the_checks_come_in_their_order() {
    let server = Server::start(&[]);
    let bucket = server.prefix();
    retain(&server.stream(&format!("{bucket}missing"), JSON), "/0").expect_error(404, "STREAM_NOT_FOUND");
    let stream = ten_records(&server, "s");
    for suffix in ["/-1", "/now", "/", "/x", "/01", "", "/9999999999999999_0000000000000000"] {
        retain(&stream, suffix).expect_error(400, "INVALID_OFFSET");
    }
    for suffix in ["?record=now", "?record=x"] {
        retain(&stream, suffix).expect_error(400, "INVALID_RECORD");
    }
    // The present boundary is always right, also without a snapshot; anything else is not.
    for suffix in ["/0", "?record=0", "/0000000000000000_0000000000000000"] {
        retain(&stream, suffix).expect(204);
    }
    for suffix in ["/4", "/5", "/20", "/21", "?record=2", "?record=11"] {
        retain(&stream, suffix).expect_error(409, "RETENTION_WITHOUT_SNAPSHOT");
    }
    stream.publish("12", "six");
    for suffix in ["/13", "/14", "/20", "/21", "?record=7", "?record=11"] {
        let refused = retain(&stream, suffix).expect_error(409, "RETENTION_BEYOND_SNAPSHOT");
        assert!(refused.required("stream-snapshot-offset").ends_with("_0000000000000012"));
    }
    retain(&stream, "/5").expect_error(400, "OFFSET_NOT_ALIGNED");
    let answer = retain(&stream, "/4").expect(204);
    assert!(answer.next_offset().ends_with("_0000000000000004"));
    assert_eq!(
        (answer.header("stream-record-first"), answer.header("stream-record-next")),
        (Some("2"), Some("10"))
    );
    for suffix in ["/0", "/2", "/3", "?record=1", "/0000000000000000_0000000000000000"] {
        retain(&stream, suffix).expect_error(409, "RETENTION_BACKWARD");
    }
    retain(&stream, "/4").expect(204);
    retain(&stream, "?record=2").expect(204);
    retain(&stream, "?record=6").expect(204);
    assert_eq!(stream.head().required("stream-record-first"), "6");
    let text = server.create("text", TEXT);
    retain(&text, "?record=0").expect_error(400, "RECORDS_UNSUPPORTED");
    let answer = text.below("GET", "retention/0").expect(405);
    assert_eq!(answer.header("allow"), Some("PUT, OPTIONS"));
}

#[test]
fn every_kind_of_read_is_told_where_the_stream_begins() {
    let server = Server::start(&[]);
    let stream = ten_records(&server, "s");
    let text = server.create("text", TEXT);
    let boundaries: Vec<String> = ["ab", "cd", "ef"].iter().map(|message| text.append(message)).collect();
    stream.publish("20", "all");
    text.publish(&boundaries[2], "all");
    retain(&stream, "/8").expect(204);
    text.retain(&boundaries[1]);
    for live in ["", "&live=long-poll", "&live=sse"] {
        for start in ["offset=-1", "offset=0", "offset=6", "offset=7", "record=0", "record=3"] {
            expect_gone(&stream.get(&format!("{start}{live}")).send(), 8, Some((4, 10)));
        }
        for start in ["offset=-1", "offset=0", "offset=3"] {
            expect_gone(&text.get(&format!("{start}{live}")).send(), 4, None);
        }
    }
    expect_gone(&stream.get("").send(), 8, Some((4, 10)));
    expect_gone(&stream.publication("6", "x").send(), 8, Some((4, 10)));
    // From there on everything is as it was.
    assert_eq!(stream.get("offset=8").expect(200).text(), "[4,5,6,7,8,9]");
    assert_eq!(stream.get("record=4&max_records=2").expect(200).text(), "4\n5\n");
    assert_eq!(stream.get("tail_records=100").expect(200).text(), "4\n5\n6\n7\n8\n9\n");
    assert_eq!(stream.get("offset=9").expect(400).error_code(), "OFFSET_NOT_ALIGNED");
    assert_eq!(text.get("offset=4").expect(200).text(), "ef");
    assert_eq!(stream.bootstrap().snapshot.body, b"all");
    let range = stream.post("[10,11]").expect(204);
    assert_eq!((range.required("stream-record-start"), range.required("stream-record-next")), ("10", "12"));
}

#[test]
fn everything_may_go_and_the_stream_goes_on() {
    let server = Server::start(&[]);
    let stream = ten_records(&server, "s");
    stream.publish("20", "all");
    retain(&stream, "?record=10").expect(204);
    let head = stream.head();
    assert_eq!((head.required("stream-record-first"), head.required("stream-record-next")), ("10", "10"));
    assert_eq!(stream.get("record=10").expect(200).text(), "");
    assert_eq!(stream.get("offset=20").expect(200).text(), "[]");
    assert_eq!(stream.bootstrap().updates, []);
    let mut events = stream.events("offset=20");
    assert!(events.next_control().says("upToDate"));
    stream.append("10");
    assert_eq!(events.next_data().data, "[10]");
    assert_eq!(stream.bootstrap().texts(), ["10"]);
    assert_eq!(stream.get("record=10").expect(200).text(), "10\n");
    stream.close();
    stream.publish("23", "closed");
    retain(&stream, "/23").expect(204);
}

/// Decision 20: boundaries stay exact through restarts.
#[test]
fn what_is_retained_survives_kills_and_other_numbers_of_shards() {
    let dir = DataDir::new();
    let flags = |shards| ["--segment-bytes", "1048576", "--cache-bytes", "0", "--shards", shards];
    let server = Server::start_in(&dir, &flags("2"));
    let mut paths = Vec::new();
    for n in 0..4 {
        let stream = server.create(&format!("s{n}"), JSON);
        for m in 0..50 {
            // Records of many lengths, in several segments.
            stream.append(format!("[{{\"m\":{m},\"text\":\"{}\"}},{m}]", "x".repeat(m * 97 % 40_000 + n)));
        }
        stream.below("PUT", "snapshot?record=60").body("sixty").expect(204);
        retain(&stream, "?record=33").expect(204);
        stream.produce("p", 0, 0, "[7,8]").expect(200);
        paths.push(stream.path.clone());
    }
    let face = |server: &Server| -> Vec<Vec<String>> {
        let face = |path: &String| {
            let stream = server.stream(path, JSON);
            let gone = stream.get("record=32").send();
            assert_eq!(gone.status, 410);
            let records = stream.get("record=33").expect(200);
            assert!(records.text().lines().eq(stream.get("tail_records=1000").expect(200).text().lines()));
            let offset = gone.next_offset();
            assert_eq!(stream.pages(&offset).len(), 1);
            let bootstrap = stream.bootstrap();
            let mut face: Vec<String> = bootstrap.texts().into_iter().map(str::to_owned).collect();
            face.extend([records.text().to_owned(), offset, stream.tail()]);
            for ordinal in 33..=102 {
                face.push(stream.get(&format!("record={ordinal}&max_records=1")).expect(200).next_offset());
            }
            let head = stream.head();
            face.extend(
                ["stream-record-first", "stream-record-next"].map(|name| head.required(name).to_owned()),
            );
            let again = stream.produce("p", 0, 0, "[7,8]").expect(204);
            assert_eq!(again.required("stream-record-start"), "100");
            face
        };
        paths.iter().map(face).collect()
    };
    let before = face(&server);
    assert_eq!(before[0][before[0].len() - 2..], ["33", "102"]);
    server.kill();
    for shards in ["2", "3", "1"] {
        let server = Server::start_in(&dir, &flags(shards));
        assert_eq!(face(&server), before, "{shards} shards");
        server.stop();
    }
}
