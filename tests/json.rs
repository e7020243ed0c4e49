//! JSON mode: section 9.1 of the protocol, decisions 11 and 12.

mod common;

use common::{JSON, Server, Stream, TEXT};

#[track_caller]
fn json_stream<'s>(server: &'s Server, name: &str) -> Stream<'s> {
    server.create(name, JSON)
}

#[test]
fn decision_11_a_record_keeps_its_tokens() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "tokens");
    let records = [
        r#"{"b":1,"a":2}"#,
        r#"{"a":1,"a":2}"#,
        "1.0",
        "1e5",
        "1E+05",
        "-0",
        "123456789012345678901234567890.5",
        r#""A\/\u00e9é\ud83c\udf0a""#,
        r#""\ud800""#,
        "\"\u{7f}\u{2028}\"",
        r#""  white  space  inside  ""#,
        r#""[,]{:}""#,
        r#""\\""#,
        "null",
        "true",
        "[]",
        "{}",
        r#"{"":{"":[]}}"#,
    ];
    for record in records {
        // In an array, so that a record that is an array itself stays one.
        stream.append(format!("[{record}]"));
    }
    assert_eq!(stream.records(), records);
    let all = format!("[{}]", records.join(","));
    assert_eq!(stream.get("offset=-1").expect(200).text(), all);
    // The same in one request, and by way of chunks.
    let together = json_stream(&server, "together");
    together.post(&all).chunked().expect(204);
    assert_eq!(together.get("offset=-1").expect(200).text(), all);
}

#[test]
fn decision_11_only_insignificant_white_space_goes() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "space");
    stream.append(" \t\r\n{ \"a b\" :\t[ 1 , 2\n,\r3 ] , \"c\" : { } } \n");
    stream.append("[ 1 , [ ] , \"x y\" ]");
    stream.append("\n 7 \n");
    assert_eq!(stream.records(), ["{\"a b\":[1,2,3],\"c\":{}}", "1", "[]", "\"x y\"", "7"]);
}

#[test]
fn decision_11_offsets_count_each_record_and_one_separator() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "offsets");
    for (body, tail) in [("1", 2), ("[22, 333]", 9), ("{\"a\": 4}", 17), ("\"\u{e9}\"", 22)] {
        let next = stream.append(body);
        assert!(next.ends_with(&format!("_{tail:016}")), "{next} after {body}");
    }
    assert_eq!(stream.get("offset=9").expect(200).text(), "[{\"a\":4},\"\u{e9}\"]");
}

#[test]
fn section_9_1_2_one_level_of_array_is_flattened() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "flatten");
    stream.append("[[1,2],[3,4]]");
    stream.append("[[[1,2,3]]]");
    stream.append("[[]]");
    assert_eq!(stream.records(), ["[1,2]", "[3,4]", "[[1,2,3]]", "[]"]);
}

#[test]
fn section_9_1_3_an_empty_array_appends_nothing_and_is_refused() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "empty");
    for body in ["[]", " [ ] ", "[\n]"] {
        stream.post(body).expect(400);
        stream.post(body).header("Stream-Closed", "true").expect(400);
    }
    assert_eq!(stream.head().header("stream-closed"), None);
    assert_eq!(stream.get("offset=-1").expect(200).text(), "[]");
}

#[test]
fn section_9_1_4_what_is_not_json_is_refused_whole() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "invalid");
    let bad: &[&[u8]] = &[
        b"{",
        b"}",
        b"[1",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"1 2",
        b"[1],",
        b"[1][2]",
        b"nul",
        b"True",
        b"NaN",
        b"Infinity",
        b"01",
        b"-",
        b"+1",
        b".5",
        b"1.",
        b"1e",
        b"1e+",
        b"0x10",
        b"--1",
        b"'a'",
        b"\"a",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"\\u12G4\"",
        b"\"\n\"",
        b"\"\x01\"",
        b"\"\x1f\"",
        b"\"\xff\"",
        b"\"\xc3\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xc0\xaf\"",
        b"\xef\xbb\xbf1",
        b"{a:1}",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{,}",
        b"{1:2}",
        b"/* */ 1",
        b"// \n1",
        b"[1]\0",
        b"\0",
        b" ",
        b"\x0c1",
        b"\xa01",
        b"{\"a\":1}}",
        b"]",
        b"[1}",
        b"{\"a\":[}",
        b"[1, 2, {\"a\": tru}]",
    ];
    for body in bad {
        let status = stream.post(body).send().status;
        assert_eq!(status, 400, "{}", String::from_utf8_lossy(body));
    }
    // Not even the good records before the bad one.
    assert_eq!(stream.get("offset=-1").expect(200).text(), "[]");
    assert!(stream.tail().ends_with("_0000000000000000"));
}

#[test]
fn decision_12_plain_reads_answer_an_array() {
    let server = Server::start(&[]);
    for stream in server.create_on_both("array", JSON) {
        let empty = stream.get("offset=-1").expect(200);
        assert_eq!(empty.text(), "[]");
        assert_eq!(empty.header("content-type"), Some(JSON));
        let tail = stream.append("[1,2]");
        assert_eq!(stream.get("").expect(200).text(), "[1,2]");
        assert_eq!(stream.get(&format!("offset={tail}")).expect(200).text(), "[]");
        assert_eq!(stream.get("offset=now").expect(200).text(), "[]");
        let polled = stream.get("offset=-1&live=long-poll").expect(200);
        assert_eq!(polled.text(), "[1,2]");
        assert_eq!(polled.header("content-type"), Some(JSON));
    }
}

#[test]
fn decision_12_ndjson_is_served_to_those_who_ask() {
    let server = Server::start(&[]);
    let stream = json_stream(&server, "ndjson");
    stream.append("[{\"a\": 1}, \"x\\ny\", 3]");
    let lines = stream.get("offset=-1").header("Accept", "application/x-ndjson").expect(200);
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(lines.text(), "{\"a\":1}\n\"x\\ny\"\n3\n");
    let varies = |response: &common::Response| {
        response.required("vary").split(',').any(|name| name.trim().eq_ignore_ascii_case("accept"))
    };
    assert!(varies(&lines), "{lines:?}");
    let array = stream.get("offset=-1").expect(200);
    assert!(varies(&array), "{array:?}");
    assert_ne!(lines.header("etag"), array.header("etag"), "decision 32: an ETag covers the representation");
    let empty = stream.get("offset=now").header("Accept", "application/x-ndjson").expect(200);
    assert_eq!(empty.text(), "");
    for accept in ["*/*", "application/json", "text/html", "application/*;q=0.5"] {
        let other = stream.get("offset=-1").header("Accept", accept).expect(200);
        assert_eq!(other.header("content-type"), Some(JSON), "{accept}");
    }
    // A byte stream has no records.
    let text = server.create("text", TEXT);
    text.append("x");
    let answer = text.get("offset=-1").header("Accept", "application/x-ndjson").expect(200);
    assert_eq!(answer.header("content-type"), Some(TEXT));
}

#[test]
fn pages_are_whole_records() {
    let server = Server::start(&["--read-page-bytes", "4096"]);
    let stream = json_stream(&server, "pages");
    let records: Vec<String> =
        (0..3000).map(|n| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(n % 50))).collect();
    for some in records.chunks(700) {
        stream.append(format!("[{}]", some.join(",")));
    }
    let large = format!("\"{}\"", "y".repeat(20_000));
    stream.append(&large);
    stream.append("\"end\"");
    let pages = stream.pages("-1");
    assert!(pages.len() > 20, "{} pages", pages.len());
    let all = [records, vec![large, "\"end\"".to_owned()]].concat();
    assert!(stream.records() == all, "the records differ");
}

#[test]
fn random_records_come_back_unchanged() {
    let seed = common::Random::seed("THALWEG_JSON_SEED");
    println!("THALWEG_JSON_SEED={seed}");
    let mut random = common::Random::new(seed);
    let server = Server::start(&["--segment-bytes", "1048576"]);
    let stream = json_stream(&server, "random");
    let mut expected = Vec::new();
    let mut connection = server.connect();
    for _ in 0..200 {
        let records: Vec<String> = (0..1 + random.below(20)).map(|_| record(&mut random, 0)).collect();
        let space = ["", " ", "\n", "\t \r\n"][random.below(4) as usize];
        let body = format!("{space}[{space}{}{space}]{space}", records.join(&format!("{space},{space}")));
        connection.send(&stream.post(body)).expect(204);
        expected.extend(records);
    }
    assert!(stream.records() == expected, "the records differ");
}

/// A random value without insignificant white space.
fn record(random: &mut common::Random, depth: usize) -> String {
    let many = |random: &mut common::Random| if depth > 4 { 0 } else { random.below(5) };
    match random.below(7) {
        0 => "null".to_owned(),
        1 => (random.next() as i64).to_string(),
        2 => format!("{}e-{}", random.below(1000), random.below(300)),
        3 | 4 => {
            let letters = random.below(200) as usize;
            format!("\"{}\\n\u{1f30a}\\\"\"", random.letters(letters))
        }
        5 => format!(
            "[{}]",
            (0..many(random)).map(|_| record(random, depth + 1)).collect::<Vec<_>>().join(",")
        ),
        _ => {
            let members =
                (0..many(random)).map(|_| format!("\"{}\":{}", random.letters(3), record(random, depth + 1)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
    }
}
