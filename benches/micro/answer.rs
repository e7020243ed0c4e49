//! Heads of answers.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use thalweg::http::{Answer, CommonHeaders, Status, Terms};
use thalweg::protocol::offset;
use thalweg::protocol::records::EXTENSIONS_LINE;

/// A connection that persists.
const TERMS: Terms = Terms { head: false, minor_version: 1, keep_alive: true };

/// The answer to an append, to a byte stream or to a JSON stream.
#[divan::bench(args = ["plain", "records"])]
fn appended(bencher: Bencher<'_, '_>, kind: &str) {
    let common = CommonHeaders::new(0, 1, 1_800_000_000);
    let write = |out: &mut Vec<u8>| {
        out.clear();
        let mut answer = Answer::new(out, Status::NO_CONTENT, black_box(&common), TERMS);
        if kind == "records" {
            answer.lines(EXTENSIONS_LINE);
        }
        answer.token("Stream-Next-Offset", 17, black_box(123_456_789));
        if kind == "records" {
            answer
                .header_u64("Stream-Record-Start", black_box(482_253))
                .header_u64("Stream-Record-Next", 482_254);
        }
        answer.no_body();
        out.len()
    };
    let mut out = Vec::new();
    let bytes = write(&mut out);
    let text = String::from_utf8(out.clone()).expect("text");
    assert!(text.starts_with("HTTP/1.1 204 No Content\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    let token = String::from_utf8(offset::token(17, 123_456_789).to_vec()).expect("text");
    assert!(text.contains(&format!("\r\nStream-Next-Offset: {token}\r\n")), "{text}");
    assert_eq!(text.contains("\r\nStream-Record-Next: 482254\r\n"), kind == "records", "{text}");
    bencher.counter(BytesCount::new(bytes)).bench_local(|| write(&mut out));
}
