//! Random requests, many under way at a time, over a device that holds writes back now and then: every byte that was
//! acknowledged lies where its answer said, before a crash and after it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bench::{Answer, Bench, Started, config, run, turn};
use super::{JSON, TEXT, frames};
use crate::config::Config;
use crate::storage::simulated::{Torn, Unsynced};

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
    Delete,
    Read,
}

/// What is known of the streams, besides what was written to them.
#[derive(Debug, Default)]
struct Known {
    written: Vec<Written>,
    /// Names of which a delete was ever begun.
    delete_begun: [bool; 4],
    /// Names whose last acknowledged delete no create has followed yet.
    gone: [bool; 4],
    /// Creates begun, by name.
    creates: [u64; 4],
    /// Creates that are not answered: they may take effect after a delete that was begun later.
    creates_pending: [u64; 4],
}

struct Pending<'b> {
    kind: Kind,
    name: usize,
    payloads: Vec<Vec<u8>>,
    /// Creates of the name that had begun; `None` if some were not answered.
    creates: Option<u64>,
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

fn start<'b>(bench: &'b Bench, random: &mut Random, known: &mut Known) -> Pending<'b> {
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
        18 => (Kind::Delete, bench.start("DELETE", &target, &[], "")),
        _ => (Kind::Read, bench.start("GET", &target, &[], "")),
    };
    let creates = (known.creates_pending[name] == 0).then_some(known.creates[name]);
    match kind {
        Kind::Create => {
            known.creates[name] += 1;
            known.creates_pending[name] += 1;
            known.gone[name] = false;
        }
        Kind::Delete => known.delete_begun[name] = true,
        Kind::Append | Kind::Batch | Kind::Read => {}
    }
    Pending { kind, name, payloads, creates, started }
}

/// The lineage and the byte offset of an answer.
fn next_offset(answer: &Answer) -> (String, u64) {
    let token = answer.header("stream-next-offset").expect("every write says where the stream ends");
    let (lineage, offset) = token.split_once('_').expect("a token has two halves");
    (lineage.to_owned(), offset.parse().expect("an offset is a number"))
}

/// Waits for an answer, and notes what it says was written.
async fn settle(pending: Pending<'_>, known: &mut Known, may_fail: bool) {
    let Pending { kind, name, payloads, creates, started } = pending;
    let answer = started.answer().await;
    known.creates_pending[name] -= u64::from(matches!(kind, Kind::Create));
    match (kind, answer.status) {
        (Kind::Append, 204) | (Kind::Create, 201) => {
            let (lineage, end) = next_offset(&answer);
            known.written.push(Written { name, lineage, end, bytes: stored(name, &payloads[0]) });
        }
        (Kind::Batch, 200) => {
            let acks: serde_json::Value = serde_json::from_slice(&answer.body).expect("an array of answers");
            let acks = acks.as_array().expect("an array of answers");
            assert_eq!(acks.len(), payloads.len());
            for ack in acks {
                let status = ack["status"].as_u64().expect("a status");
                assert!([204, 404].contains(&status) || (may_fail && status == 503), "{ack}");
            }
        }
        (Kind::Delete, 204) if creates == Some(known.creates[name]) => known.gone[name] = true,
        (Kind::Append | Kind::Batch, 404) | (Kind::Create, 200) => {}
        (Kind::Delete, 204 | 404) | (Kind::Read, 200 | 404) => {}
        (_, 500 | 503) if may_fail => {}
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

fn random_config(random: &mut Random) -> Config {
    Config { cache_bytes: random.below(2) * (1 << 20), read_page_bytes: 100_000, ..config() }
}

/// Sends random requests and waits for all answers.
async fn exercise(bench: &Bench, random: &mut Random, known: &mut Known, steps: usize, may_fail: bool) {
    let mut pending = Vec::new();
    for _ in 0..steps {
        match random.below(8) {
            0 => bench.hold(random.below(2) == 0),
            1 => turn().await,
            2 | 3 if !pending.is_empty() => {
                bench.hold(false);
                let index = random.below(pending.len() as u64) as usize;
                settle(pending.swap_remove(index), known, may_fail).await;
            }
            _ => pending.push(start(bench, random, known)),
        }
    }
    bench.hold(false);
    for each in pending {
        settle(each, known, may_fail).await;
    }
}

/// Everything that was acknowledged is in the streams that are there, and those that are not were deleted.
fn verify(known: &Known, streams: &BTreeMap<usize, (String, Vec<u8>)>, seed: u64) {
    for write in &known.written {
        match streams.get(&write.name).filter(|(lineage, _)| *lineage == write.lineage) {
            Some((_, bytes)) => {
                let begin = write.end as usize - write.bytes.len();
                let found = bytes.get(begin..write.end as usize);
                assert!(
                    found == Some(&write.bytes),
                    "seed {seed}: {begin} to {} of {}",
                    write.end,
                    write.name
                );
            }
            None => assert!(known.delete_begun[write.name], "seed {seed}: stream {} is lost", write.name),
        }
    }
    for (name, _) in known.gone.iter().enumerate().filter(|(_, gone)| **gone) {
        assert!(!streams.contains_key(&name), "seed {seed}: stream {name} is back");
    }
}

async fn check(seed: u64) {
    let (random, mut known) = (&mut Random(seed), Known::default());
    let config = random_config(random);
    let bench = Bench::new(config.clone()).await;
    exercise(&bench, random, &mut known, 100, false).await;
    let streams = read_all(&bench).await;
    verify(&known, &streams, seed);
    let bench = bench.restarted(config).await;
    assert!(read_all(&bench).await == streams, "seed {seed}: a restart changes nothing");
}

async fn check_crash(seed: u64) {
    let (random, mut known) = (&mut Random(seed), Known::default());
    let config = random_config(random);
    let bench = Bench::new(config.clone()).await;
    exercise(&bench, random, &mut known, 30, false).await;
    let torn = Torn::ALL[random.below(Torn::ALL.len() as u64) as usize];
    bench.store.crash_at(bench.store.operations() + random.below(40) as usize, torn);
    exercise(&bench, random, &mut known, 60, true).await;
    let unsynced = Unsynced::ALL[random.below(Unsynced::ALL.len() as u64) as usize];
    let bench = bench.crashed(config, unsynced).await;
    verify(&known, &read_all(&bench).await, seed);
    // And the log goes on.
    exercise(&bench, random, &mut known, 30, false).await;
    verify(&known, &read_all(&bench).await, seed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_acknowledged_lies_where_the_answer_says(seed in any::<u64>()) {
        run(check(seed));
    }

    #[test]
    fn what_is_acknowledged_survives_a_crash_at_any_moment(seed in any::<u64>()) {
        run(check_crash(seed));
    }
}
