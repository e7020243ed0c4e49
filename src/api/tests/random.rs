//! Random requests, many under way at a time, over a device that holds writes back now and then: every byte that was
//! acknowledged lies where its answer said, before a crash and after it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bench::{Answer, Bench, Started, config, run, turn};
use super::{JSON, TEXT, frames};
use crate::config::Config;

/// A small generator: the seed is all there is to reproduce a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Sizes from a byte to several entries, most of them small or near the size of an entry.
    fn size(&mut self, entry_max: usize) -> usize {
        match self.below(10) {
            0..5 => 1 + self.below(300) as usize,
            5..7 => entry_max - self.below(3000) as usize,
            7 => 1 + self.below(entry_max as u64) as usize,
            8 => entry_max + self.below(500) as usize,
            _ => entry_max + self.below(3 * entry_max as u64) as usize,
        }
    }

    fn payload(&mut self, is_json: bool, size: usize) -> Vec<u8> {
        let salt = self.next();
        if !is_json {
            return (0..size as u64).map(|at| (at.wrapping_mul(salt | 1) >> 7) as u8).collect();
        }
        let mut text = String::from("[");
        while text.len() < size.max(4) {
            let len = 1 + self.below(200) as usize;
            text.push_str(&format!("\"{}\",", "x".repeat(len)));
        }
        text.pop();
        text.push(']');
        text.into_bytes()
    }
}

/// What an acknowledged request put where.
#[derive(Debug)]
struct Written {
    name: usize,
    lineage: String,
    end: u64,
    bytes: Vec<u8>,
}

enum Kind {
    Append,
    Batch,
    Create,
    Other,
}

struct Pending<'b> {
    kind: Kind,
    name: usize,
    payloads: Vec<Vec<u8>>,
    started: Started<'b>,
}

fn is_json(name: usize) -> bool {
    name % 2 == 1
}

/// Canonical bytes of a payload as they lie in the stream.
fn stored(name: usize, payload: &[u8]) -> Vec<u8> {
    if !is_json(name) || payload.is_empty() {
        return payload.to_vec();
    }
    [&payload[1..payload.len() - 1], b","].concat()
}

fn start<'b>(bench: &'b Bench, random: &mut Random) -> Pending<'b> {
    let name = random.below(4) as usize;
    let content_type = if is_json(name) { JSON } else { TEXT };
    let entry_max = bench.api.shard.log.payload_max();
    let target = format!("/test/s{name}");
    let headers = [("Content-Type", content_type)];
    let mut payloads = Vec::new();
    let (kind, started) = match random.below(20) {
        0..10 => {
            let size = random.size(entry_max);
            payloads.push(random.payload(is_json(name), size));
            (Kind::Append, bench.start("POST", &target, &headers, &payloads[0]))
        }
        10..14 => {
            for _ in 0..1 + random.below(5) {
                let size = random.size(entry_max);
                payloads.push(random.payload(is_json(name), size));
            }
            let target = format!("{target}/append-batch");
            (Kind::Batch, bench.start("POST", &target, &headers, frames(&payloads)))
        }
        14..18 => {
            let size = if random.below(3) == 0 { 0 } else { random.size(entry_max) };
            payloads.push(if size == 0 { Vec::new() } else { random.payload(is_json(name), size) });
            (Kind::Create, bench.start("PUT", &target, &headers, &payloads[0]))
        }
        18 => (Kind::Other, bench.start("DELETE", &target, &[], "")),
        _ => (Kind::Other, bench.start("GET", &target, &[], "")),
    };
    Pending { kind, name, payloads, started }
}

/// The lineage and the byte offset of an answer.
fn next_offset(answer: &Answer) -> (String, u64) {
    let token = answer.header("stream-next-offset").expect("every write says where the stream ends");
    let (lineage, offset) = token.split_once('_').expect("a token has two halves");
    (lineage.to_owned(), offset.parse().expect("an offset is a number"))
}

/// Waits for an answer, and notes what it says was written.
async fn settle(pending: Pending<'_>, written: &mut Vec<Written>) {
    let Pending { kind, name, payloads, started } = pending;
    let answer = started.answer().await;
    match (kind, answer.status) {
        (Kind::Append, 204) | (Kind::Create, 201) => {
            let (lineage, end) = next_offset(&answer);
            written.push(Written { name, lineage, end, bytes: stored(name, &payloads[0]) });
        }
        (Kind::Batch, 200) => {
            let acks: serde_json::Value = serde_json::from_slice(&answer.body).expect("an array of answers");
            let acks = acks.as_array().expect("an array of answers");
            assert_eq!(acks.len(), payloads.len());
            for ack in acks {
                assert!([204, 404].contains(&ack["status"].as_u64().expect("a status")), "{ack}");
            }
        }
        (Kind::Append | Kind::Batch, 404) | (Kind::Create, 200) | (Kind::Other, 200 | 204 | 404) => {}
        (_, status) => panic!("unexpected {status}: {answer:?}"),
    }
}

/// Reads every stream that exists: its lineage and its canonical bytes.
async fn read_all(bench: &Bench) -> BTreeMap<usize, (String, Vec<u8>)> {
    let mut streams = BTreeMap::new();
    for name in 0..4 {
        let target = format!("/test/s{name}");
        let mut bytes = Vec::new();
        loop {
            let page = bench.send("GET", &format!("{target}?offset={}", bytes.len()), &[], "").await;
            if page.status == 404 {
                break;
            }
            let page = page.expect(200);
            bytes.extend(if page.body == b"[]" { Vec::new() } else { stored(name, &page.body) });
            let (lineage, end) = next_offset(&page);
            assert_eq!(end, bytes.len() as u64, "a page ends where it says");
            if page.header("stream-up-to-date").is_some() {
                streams.insert(name, (lineage, bytes));
                break;
            }
        }
    }
    streams
}

async fn check(seed: u64) {
    let random = &mut Random(seed);
    let config = Config { cache_bytes: random.below(2) * (1 << 20), read_page_bytes: 100_000, ..config() };
    let bench = Bench::new(config.clone()).await;
    let mut written = Vec::new();
    {
        let mut pending = Vec::new();
        for _ in 0..100 {
            match random.below(8) {
                0 => bench.hold(random.below(2) == 0),
                1 => turn().await,
                2 | 3 if !pending.is_empty() => {
                    bench.hold(false);
                    let index = random.below(pending.len() as u64) as usize;
                    settle(pending.swap_remove(index), &mut written).await;
                }
                _ => pending.push(start(&bench, random)),
            }
        }
        bench.hold(false);
        for each in pending {
            settle(each, &mut written).await;
        }
    }
    let streams = read_all(&bench).await;
    let mut checked = 0;
    for write in &written {
        let Some((_, bytes)) = streams.get(&write.name).filter(|(lineage, _)| *lineage == write.lineage)
        else {
            continue;
        };
        let begin = write.end as usize - write.bytes.len();
        assert!(bytes[begin..write.end as usize] == write.bytes, "seed {seed}: {} to {}", begin, write.end);
        checked += 1;
    }
    assert!(checked > 0 || streams.is_empty(), "seed {seed}");
    let bench = bench.restarted(config).await;
    assert!(read_all(&bench).await == streams, "seed {seed}: a restart changes nothing");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_acknowledged_lies_where_the_answer_says(seed in any::<u64>()) {
        run(check(seed));
    }
}
