//! Splitting JSON bodies into records.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use serde::de::IgnoredAny;
use thalweg::protocol::json::{self, AllowEmpty};

use crate::scattered;

/// Bodies; each is an array of 512 values unless its name says something else.
const BODIES: &[&str] = &[
    "records",
    "records, spaced",
    "records, indented",
    "records, shuffled",
    "one record",
    "one padded string",
    "padded objects",
    "nested",
    "escaped strings",
    "beyond ASCII",
    "numbers",
    "one string of 1 MiB",
];

#[divan::bench(args = BODIES)]
fn split(bencher: Bencher<'_, '_>, name: &str) {
    let body = body(name);
    let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
    let payload = json::split(body.as_bytes(), &mut scratch, &mut lengths, AllowEmpty::No);
    check(&body, payload.expect("JSON"), &lengths);
    bencher.counter(BytesCount::new(body.len())).bench_local(|| {
        let payload = json::split(black_box(body.as_bytes()), &mut scratch, &mut lengths, AllowEmpty::No);
        (payload.expect("seen above").len(), lengths.len())
    });
}

/// The frames of a JSON batch: one body of one record after the other.
#[divan::bench]
fn split_512_bodies(bencher: Bencher<'_, '_>) {
    let bodies: Vec<String> = (0..512).map(record).collect();
    let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
    let mut split_all = || {
        let mut total = 0;
        for body in &bodies {
            let body = black_box(body.as_bytes());
            let payload = json::split(body, &mut scratch, &mut lengths, AllowEmpty::No).expect("JSON");
            total += payload.len() + lengths.len();
        }
        total
    };
    let total_bytes: usize = bodies.iter().map(String::len).sum();
    assert_eq!(split_all(), total_bytes + 512);
    bencher.counter(BytesCount::new(total_bytes)).bench_local(split_all);
}

/// For comparison: a general parser that checks the same bytes and keeps nothing, not even where records end.
#[divan::bench(args = ["records", "padded objects"])]
fn serde_json_ignored(bencher: Bencher<'_, '_>, name: &str) {
    let body = body(name);
    bencher
        .counter(BytesCount::new(body.len()))
        .bench_local(|| serde_json::from_slice::<IgnoredAny>(black_box(body.as_bytes())).is_ok());
}

/// The records are the values of the body, each with its bytes but for white space.
fn check(body: &str, payload: &[u8], lengths: &[u32]) {
    let (mut rest, mut records) = (payload, Vec::new());
    for length in lengths {
        let (record, after) = rest.split_at(*length as usize - usize::from(rest.len() < *length as usize));
        records.push(record.strip_suffix(b",").unwrap_or(record));
        rest = after;
    }
    assert!(rest.is_empty(), "{} bytes are no record's", rest.len());
    let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let expected = match &value {
        serde_json::Value::Array(values) => values.iter().collect(),
        other => vec![other],
    };
    assert_eq!(records.len(), expected.len());
    for (record, expected) in records.iter().zip(expected) {
        assert_eq!(&serde_json::from_slice::<serde_json::Value>(record).expect("JSON"), expected);
        let has_space = |byte| record.contains(&byte);
        assert!(!has_space(b'\n'), "white space is left in {}", String::from_utf8_lossy(record));
    }
}

fn body(name: &str) -> String {
    let records = || array(record);
    match name {
        "records" => records(),
        "records, spaced" => records().replace("\":", "\": ").replace(",\"", ", \""),
        "records, indented" => records().replace("\":", "\": ").replace(",\"", ",\n    \""),
        "records, shuffled" => array(shuffled),
        "one record" => record(5),
        "one padded string" => format!("\"{}\"", "x".repeat(254)),
        "padded objects" => array(padded),
        "nested" => array(nested),
        "escaped strings" => array(|n| format!("\"one\\ntwo \\\"{n}\\\"\\n\"")),
        "beyond ASCII" => array(|n| format!("\"gr\u{f6}\u{df}e {n} \u{20ac}\"")),
        "numbers" => array(|n| format!("{}.{n}", n * 37)),
        "one string of 1 MiB" => format!("\"{}\"", "x".repeat(1 << 20)),
        _ => unreachable!("no body is called {name}"),
    }
}

/// An array of 512 values.
fn array(value: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..512).map(value).collect::<Vec<_>>().join(","))
}

/// A record of about 230 bytes with keys, numbers, an array and strings of 2 to 60 bytes.
fn record(n: usize) -> String {
    format!("{{{}}}", members(n, 60).join(","))
}

/// The same in an order, and with a string of a length, that change from record to record: nothing can be foreseen.
fn shuffled(n: usize) -> String {
    let order = scattered().nth(n).expect("numbers without end") as usize;
    let mut members = members(n, order % 120);
    members.rotate_left(order / 128 % 8);
    members.swap(order / 1024 % 8, order / 8192 % 8);
    format!("{{{}}}", members.join(","))
}

fn members(n: usize, pad_bytes: usize) -> [String; 8] {
    [
        format!(r#""id":{n}"#),
        r#""type":"network_response""#.to_string(),
        r#""captured_at":"2026-07-18T10:29:59.900Z""#.to_string(),
        format!(r#""status":{}"#, 200 + n % 300),
        format!(r#""url":"https://example.com/path/{}""#, n * 7),
        r#""tags":["a","bb","ccc"]"#.to_string(),
        r#""ok":true"#.to_string(),
        format!(r#""payload":"{}""#, "x".repeat(pad_bytes)),
    ]
}

/// 256 bytes with their separator, most of them in one string.
fn padded(n: usize) -> String {
    let head = format!(r#"{{"seq":{n},"payload":""#);
    format!("{head}{}\"}}", "x".repeat(253 - head.len()))
}

/// Objects and arrays in each other, with little in them.
fn nested(n: usize) -> String {
    format!(
        r#"{{"a":[{{"b":[[1,2],[3,[4]]],"c":{{}}}},{{"d":[null,true,[]]}}],"e":{{"f":{{"g":{{"h":[{n}]}}}}}},"i":[[[[[]]]]]}}"#
    )
}
