//! Append batches: their frames, and their acknowledgements.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use thalweg::protocol::batch::{self, Ack, AckWriter};

/// A batch of 512 frames of 256 bytes.
pub fn body() -> Vec<u8> {
    let mut body = Vec::new();
    for frame in 0..512u32 {
        body.extend_from_slice(&256u32.to_be_bytes());
        body.extend_from_slice(&[frame as u8; 256]);
    }
    body
}

/// Checks the framing, then walks over the frames for their lengths.
#[divan::bench]
fn frames(bencher: Bencher<'_, '_>) {
    let body = body();
    let all = batch::frames(&body).expect("good frames");
    assert!(all.len() == 512 && all.enumerate().all(|(n, frame)| frame == [n as u8; 256]));
    let mut lengths = Vec::new();
    bencher.counter(BytesCount::new(body.len())).bench_local(|| {
        lengths.clear();
        let frames = batch::frames(black_box(&body)).expect("seen above");
        lengths.extend(frames.map(|frame| frame.len() as u32));
        lengths.len()
    });
}

/// 512 acknowledgements, of a byte stream or of a JSON stream.
#[divan::bench(args = ["plain", "records"])]
fn acknowledgements(bencher: Bencher<'_, '_>, kind: &str) {
    let with_records = kind == "records";
    let acks = acknowledge(Vec::new(), with_records);
    check(&acks, with_records);
    let (bytes, mut memory) = (acks.len(), acks);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        memory = acknowledge(std::mem::take(&mut memory), with_records);
        memory.len()
    });
}

fn acknowledge(memory: Vec<u8>, with_records: bool) -> Vec<u8> {
    let mut acks = AckWriter::new(memory);
    for n in 0..512 {
        let records = with_records.then_some((4_000_000 + n, 4_000_001 + n));
        acks.push(&Ack::appended(black_box(1_000_000_256 + n * 256), records));
    }
    acks.finish()
}

fn check(acks: &[u8], with_records: bool) {
    let acks: Vec<serde_json::Value> = serde_json::from_slice(acks).expect("JSON");
    assert_eq!(acks.len(), 512);
    for (n, ack) in (0u64..).zip(&acks) {
        assert_eq!(ack["status"].as_u64(), Some(204));
        assert_eq!(ack["stream_next_offset"].as_u64(), Some(1_000_000_256 + n * 256));
        assert_eq!(ack["stream_record_next"].as_u64(), with_records.then_some(4_000_001 + n));
    }
}
