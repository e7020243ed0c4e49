//! Speed of the protocol's hot functions: `cargo bench --bench protocol [FILTER]`.
//!
//! Prints the best of many short runs, so that a machine with other work still shows what the code can do, and a checksum
//! of each result, so that no work is left out and a changed result is seen. Inputs are fixed. Asserts nothing.

use std::hint::black_box;
use std::time::Instant;

use thalweg::protocol::batch::{Ack, AckWriter};
use thalweg::protocol::json::{self, AllowEmpty};
use thalweg::protocol::query::ReadQuery;
use thalweg::protocol::{names, offset, sse};

/// Runs of each case; the best counts.
const RUNS: usize = 200;
/// Bytes that one run handles, about.
const RUN_BYTES: usize = 200_000;

/// Runs one case; `work` returns a checksum of its result.
fn case(filter: &str, name: &str, bytes: usize, mut work: impl FnMut() -> u64) {
    if !name.contains(filter) {
        return;
    }
    let repeats = (RUN_BYTES / bytes.max(1)).clamp(1, 2_000);
    let mut best_ns = f64::MAX;
    let mut checksum = 0u64;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..repeats {
            checksum = work();
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / repeats as f64);
    }
    println!("{name:36} {best_ns:10.1} ns {:8.3} GB/s   {checksum:016x}", bytes as f64 / best_ns);
}

/// Splitting a body.
fn split(filter: &str, name: &str, body: &str) {
    let (mut scratch, mut lengths) = (Vec::new(), Vec::new());
    case(filter, &format!("json/{name}"), body.len(), || {
        let payload = json::split(black_box(body.as_bytes()), &mut scratch, &mut lengths, AllowEmpty::No);
        (payload.expect("valid JSON").len() * 1_000_003 + lengths.len()) as u64
    });
}

/// A record of about 230 bytes with keys, numbers, an array and strings of 2 to 60 bytes.
fn record(n: usize) -> String {
    let pad = "x".repeat(60);
    format!(
        r#"{{"id":{n},"type":"network_response","captured_at":"2026-07-18T10:29:59.900Z","status":{},"url":"https://example.com/path/{}","tags":["a","bb","ccc"],"ok":true,"payload":"{pad}"}}"#,
        200 + n % 300,
        n * 7
    )
}

/// An array of 512 values.
fn array(value: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..512).map(value).collect::<Vec<_>>().join(","))
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    if cfg!(debug_assertions) {
        eprintln!("warning: built without optimisation, the figures mean nothing");
    }
    let records = array(record);
    split(&filter, "one record", &record(5));
    split(&filter, "512 records", &records);
    split(&filter, "512 records, spaced", &records.replace("\":", "\": ").replace(",\"", ", \""));
    split(&filter, "512 records, indented", &records.replace("\":", "\": ").replace(",\"", ",\n    \""));
    split(&filter, "512 strings of 256 bytes", &array(|_| format!("\"{}\"", "x".repeat(254))));
    split(&filter, "one string of 1 MiB", &format!("\"{}\"", "x".repeat(1 << 20)));
    split(&filter, "512 numbers", &array(|n| format!("{}.{n}", n * 37)));
    split(&filter, "512 escaped strings", &array(|n| format!("\"one\\ntwo \\\"{n}\\\"\\n\"")));
    split(&filter, "512 strings beyond ASCII", &array(|n| format!("\"gr\u{f6}\u{df}e {n} \u{20ac}\"")));

    let mut scratch = Vec::new();
    for path in ["/v1/stream/s-17", "/agents/s-17", "/agents/s-17/append-batch", "/agents/s%2D17"] {
        case(&filter, &format!("route/{path}"), path.len(), || {
            u64::from(names::route(black_box(path.as_bytes()), &mut scratch).is_ok())
        });
    }
    let query = "offset=0000000000000007_0000000000000009&live=long-poll&cursor=12345";
    case(&filter, "query/long-poll", query.len(), || {
        ReadQuery::parse(Some(black_box(query.as_bytes()))).map_or(0, |query| query.cursor.unwrap_or(0))
    });

    let mut out = Vec::new();
    case(&filter, "offset/token", offset::TOKEN_BYTES, || {
        out.clear();
        offset::write_token(&mut out, black_box(17), black_box(123_456_789));
        u64::from(out[32])
    });
    case(&filter, "batch/512 acknowledgements", 512 * 38, || {
        let mut acks = AckWriter::new(std::mem::take(&mut out));
        for n in 0..512 {
            acks.push(&Ack::appended(black_box(1_000_000 + n * 256), None));
        }
        out = acks.finish();
        out.len() as u64
    });
    let text = "a line of text that is neither long nor short\n".repeat(100);
    for (name, encoding) in [("text", sse::Encoding::Text), ("base64", sse::Encoding::Base64)] {
        case(&filter, &format!("sse/{name}"), text.len(), || {
            out.clear();
            sse::write_data(&mut out, encoding, black_box(text.as_bytes()));
            out.len() as u64
        });
    }
}
