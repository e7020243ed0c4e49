//! Server-sent events: data in each encoding, control events, envelopes.

use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use divan::Bencher;
use divan::counter::BytesCount;
use thalweg::protocol::envelope;
use thalweg::protocol::sse::{self, Control, Encoding};

/// What an event carries: a record of a live stream, or a page of it.
const BYTES: &[usize] = &[256, 4096, 65_536];

/// Lines of text, 46 bytes each.
fn text(bytes: usize) -> Vec<u8> {
    b"a line of text that is neither long nor short\n".iter().copied().cycle().take(bytes).collect()
}

/// Records of 64 bytes with their separators.
fn records(bytes: usize) -> Vec<u8> {
    let record = |n: usize| format!("{{\"seq\":{},\"text\":\"{}\"}},", 10_000 + n, "x".repeat(40));
    let records: Vec<u8> = (0..bytes / 64).flat_map(|n| record(n).into_bytes()).collect();
    assert_eq!(records.len(), bytes, "records have 64 bytes");
    records
}

fn event(out: &mut Vec<u8>, encoding: Encoding, bytes: &[u8]) -> usize {
    out.clear();
    sse::write_data(out, encoding, black_box(bytes));
    out.len()
}

/// The data of an event as a client puts it together.
fn received(event: &[u8]) -> String {
    let text = std::str::from_utf8(event).expect("UTF-8");
    let lines = text.strip_suffix("\n\n").expect("an event ends in an empty line").split('\n');
    let data: Vec<&str> = lines.filter_map(|line| line.strip_prefix("data:")).collect();
    data.join("\n")
}

#[divan::bench(args = BYTES)]
fn data_text(bencher: Bencher<'_, '_>, bytes: usize) {
    let (text, mut out) = (text(bytes), Vec::new());
    event(&mut out, Encoding::Text, &text);
    assert_eq!(received(&out).as_bytes(), text);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| event(&mut out, Encoding::Text, &text));
}

#[divan::bench(args = BYTES)]
fn data_base64(bencher: Bencher<'_, '_>, bytes: usize) {
    let (data, mut out) = (text(bytes), Vec::new());
    event(&mut out, Encoding::Base64, &data);
    assert_eq!(BASE64.decode(received(&out)).expect("base64"), data);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| event(&mut out, Encoding::Base64, &data));
}

#[divan::bench(args = BYTES)]
fn data_json(bencher: Bencher<'_, '_>, bytes: usize) {
    let (records, mut out) = (records(bytes), Vec::new());
    event(&mut out, Encoding::Json, &records);
    let values: Vec<serde_json::Value> = serde_json::from_str(&received(&out)).expect("JSON");
    assert_eq!(values.len(), bytes / 64);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| event(&mut out, Encoding::Json, &records));
}

/// The event behind each data event.
#[divan::bench(args = ["plain", "records"])]
fn control(bencher: Bencher<'_, '_>, kind: &str) {
    let records = (kind == "records").then_some((1000, 123_456));
    let mut out = Vec::new();
    let write = |out: &mut Vec<u8>| {
        out.clear();
        let next_offset = black_box(123_456_789);
        let told =
            Control { lineage: 17, next_offset, cursor: 5_900_000, up_to_date: true, closed: false, records };
        sse::write_control(out, &told);
        out.len()
    };
    let bytes = write(&mut out);
    let told: serde_json::Value = serde_json::from_str(&received(&out)).expect("JSON");
    assert_eq!(told["streamNextOffset"], "0000000000000017_0000000123456789");
    assert_eq!(told["streamNextRecord"].as_u64(), records.map(|(_, next)| next));
    bencher.counter(BytesCount::new(bytes)).bench_local(|| write(&mut out));
}

/// An event for each record, of 64 bytes.
#[divan::bench(args = BYTES)]
fn envelopes(bencher: Bencher<'_, '_>, bytes: usize) {
    let (records, mut out) = (records(bytes), Vec::new());
    let write = |out: &mut Vec<u8>| {
        out.clear();
        let lengths = std::iter::repeat_n(64, bytes / 64);
        let mut events = 0;
        envelope::write_events(out, black_box(&records), 123_456, lengths, |_, _| events += 1);
        events
    };
    assert_eq!(write(&mut out), bytes / 64);
    let first = &out[..out.windows(2).position(|two| two == b"\n\n").expect("an event") + 2];
    let envelope: serde_json::Value = serde_json::from_str(&received(first)).expect("JSON");
    assert_eq!((&envelope["record"], &envelope["value"]["seq"]), (&123_456.into(), &10_000.into()));
    bencher.counter(BytesCount::new(bytes)).bench_local(|| write(&mut out));
}
