//! Random operations against a small oracle, in process over a simulated device: the invariants of extension 6.13 after
//! operations, restarts, crashes at any operation of the device, and rewrites of segments.
//!
//! `THALWEG_SEED` repeats a run, `THALWEG_MODEL_RUNS` and `THALWEG_MODEL_STEPS` make it longer. What is checked where is said
//! in `model/drive.rs`; the oracle and the operations are shared with the black-box test `tests/model.rs`.

mod check;
mod choose;
mod content;
mod drive;
mod exchange;
mod failing;
mod operation;
mod oracle;
mod predict;
#[path = "../../../tests/common/random.rs"]
mod random;
mod read;

use glommio::Task;

use super::bench::{self, Bench, config, run};
use crate::config::Config;
use crate::storage::settle::SettleError;

use check::check;
use choose::{choose, pick};
use drive::{Journal, glance, judge, perform, series, step, verify, verify_all};
use exchange::{Answer, Request, Server};
use operation::{Act, Append, Boundary, From, Offset, Operation, Publish, Read};
use oracle::World;
use predict::Body;
use random::Random;

/// Runs, each over a device of its own.
const RUNS: u64 = 8;
/// Steps of a run.
const STEPS: u64 = 500;
/// Messages that retention takes one by one.
const CREEP_MAX: u64 = 800;
/// The stream that fills the disk.
const BULK: usize = 5;

/// What has been met: a test that never saw the interesting cases has shown little.
#[derive(Debug, Default)]
struct Tally {
    rewrites: u64,
    rewrites_meanwhile: u64,
    refused: u64,
    crashes: u64,
    crashes_while_settling: u64,
    unseen: u64,
    unseen_kept: u64,
    bursts: u64,
    polls: u64,
    crept: u64,
    trimmed: u64,
    repeated: u64,
    streams: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.rewrites += other.rewrites;
        self.rewrites_meanwhile += other.rewrites_meanwhile;
        self.refused += other.refused;
        self.crashes += other.crashes;
        self.crashes_while_settling += other.crashes_while_settling;
        self.unseen += other.unseen;
        self.unseen_kept += other.unseen_kept;
        self.bursts += other.bursts;
        self.polls += other.polls;
        self.crept += other.crept;
        self.trimmed += other.trimmed;
        self.repeated += other.repeated;
        self.streams += other.streams;
    }
}

impl Server for Bench {
    async fn send(&self, request: &Request) -> Answer {
        let headers: Vec<_> = request.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        taken_apart(Bench::send(self, request.method, &request.target, &headers, &request.body).await)
    }
}

fn taken_apart(answer: bench::Answer) -> Answer {
    let lines = answer.head.split("\r\n").filter_map(|line| line.split_once(": "));
    let headers = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Answer { status: answer.status, headers, body: answer.body }
}

/// A run: a server, the oracle, and what goes with them.
struct Model {
    config: Config,
    bench: Bench,
    world: World,
    journal: Journal,
    random: Random,
    tally: Tally,
    /// A rewrite that goes on beside requests; how many segments it has written.
    settling: Option<Task<Result<u64, SettleError>>>,
}

impl Model {
    async fn new(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let config = Config {
            cache_bytes: pick(&mut random, &[0, 0, 1 << 20]),
            read_page_bytes: pick(&mut random, &[16 << 10, 100_000, 1 << 20]),
            ..config()
        };
        let paths = ["/test/j0", "/test/t1", "/test/j2", "/test/t3", "/v1/stream/model/j4", "/test/t5"];
        let world = World {
            paths: paths.map(str::to_owned).into(),
            host: "h".to_owned(),
            page_bytes: config.read_page_bytes,
            ..World::default()
        };
        let bench = Bench::new(config.clone()).await;
        let (journal, tally) = (Journal::new(seed), Tally::default());
        Model { config, bench, world, journal, random, tally, settling: None }
    }

    async fn run(mut self, steps: u64) -> Tally {
        for number in 0..steps {
            self.journal.step(number);
            match self.random.below(160) {
                0 | 1 => self.restart().await,
                2..5 => self.settle().await,
                5..8 => self.settle_meanwhile().await,
                8..13 => self.crash().await,
                13..29 => self.burst().await,
                29..37 => self.poll().await,
                37..41 => self.creep().await,
                41 => self.fill_disk().await,
                42..46 => series(&self.bench, &mut self.world, &mut self.journal, &mut self.random).await,
                _ => step(&self.bench, &mut self.world, &mut self.journal, &mut self.random).await,
            }
            self.look_after_settling().await;
            if self.random.one_in(12) {
                let name = self.random.below(self.world.paths.len() as u64) as usize;
                verify(&self.bench, &mut self.world, &mut self.journal, &mut self.random, name).await;
            }
        }
        self.settle().await;
        self.restart().await;
        self.tally.streams = self.world.lineages.len() as u64;
        self.tally
    }

    async fn verify(&mut self) {
        self.verify_inside();
        for stream in self.world.streams.values() {
            self.tally.trimmed += stream.first;
            self.tally.repeated +=
                stream.producers.values().map(|known| known.appends.len() as u64).sum::<u64>();
        }
        verify_all(&self.bench, &mut self.world, &mut self.journal, &mut self.random).await;
    }

    /// Compares the indexes themselves: all lengths, and all ranges of all producers.
    fn verify_inside(&self) {
        let shard = &self.bench.api.shard;
        let table = shard.table.borrow();
        assert_eq!(table.len(), self.world.streams.len(), "streams");
        for (name, expected) in &self.world.streams {
            let path = &self.world.paths[*name];
            let key = path.trim_start_matches("/v1/stream/").trim_start_matches('/');
            // Keys of the flat surface have a mark before them.
            let id = table.iter().find(|(_, stream)| stream.key.ends_with(key.as_bytes()));
            let (_, stream) = id.unwrap_or_else(|| panic!("{path} is not there"));
            assert_eq!(stream.first().records, expected.first, "{path}: F");
            assert_eq!(stream.first().bytes, expected.first_offset(), "{path}: where F lies");
            assert_eq!(stream.index.count(), expected.next(), "{path}: N");
            let lengths = stream.index.lengths_from(expected.first);
            for (ordinal, (length, message)) in
                (expected.first..).zip(lengths.zip(expected.messages(expected.first, expected.next())))
            {
                let bytes = message.len() as u64 + expected.separator_bytes();
                assert_eq!(u64::from(length), bytes, "{path}: length of {ordinal}");
            }
            assert_eq!(stream.producers.len(), expected.producers.len(), "{path}: producers");
            for (id, producer) in &expected.producers {
                for (seq, (start, next)) in producer.appends.iter().enumerate() {
                    let range = stream.producers.range(id.as_bytes(), producer.epoch, seq as u64);
                    assert_eq!(range, Some((*start, next - start)), "{path}: {id} {seq}");
                }
            }
        }
    }

    /// Several writes to be made durable together; meanwhile, readers see what was before.
    async fn burst(&mut self) {
        let Model { bench, world, journal, random, .. } = self;
        bench.hold(true);
        let mut staged = world.clone();
        let mut begun = Vec::new();
        for _ in 0..2 + random.below(6) {
            let operation = choose(random, &staged, true);
            match operation.act {
                Act::Append(_) | Act::Batch { .. } | Act::SetAttributes(_) => {}
                Act::Head | Act::Read(_) => {
                    // Chosen for what is staged, and judged by what is durable.
                    journal.note(format!("while writes are held: {operation:?}"));
                    if let Act::Read(read) = &operation.act
                        && (read.live || !world.streams.contains_key(&operation.name))
                    {
                        continue;
                    }
                    let answer = Server::send(bench, &operation.request(world)).await;
                    judge(world, &operation, &answer);
                    continue;
                }
                _ => continue,
            }
            journal.note(format!("begun: {operation:?}"));
            let Request { method, target, headers, body } = operation.request(&staged);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let started = bench.start(method, &target, &headers, body);
            if started.is_under_way() {
                // The segment is full and the next one not there yet: nothing was staged.
                break;
            }
            let expected = staged.apply(&operation, None);
            begun.push((operation, expected, started));
        }
        bench.hold(false);
        for (operation, expected, started) in begun {
            let answer = taken_apart(started.answer().await);
            check(&mut staged, &operation, &expected, &answer);
        }
        staged.tags.append(&mut world.tags);
        staged.tagged.append(&mut world.tagged);
        *world = staged;
        self.tally.bursts += 1;
        let name = self.random.below(self.world.paths.len() as u64) as usize;
        glance(&self.bench, &mut self.world, &mut self.journal, &mut self.random, name).await;
    }

    /// Moves the beginning of a stream on message by message: wherever an index has a seam, it is met.
    async fn creep(&mut self) {
        let Model { bench, world, journal, random, .. } = self;
        let name = random.below(world.paths.len() as u64) as usize;
        let Some(stream) = world.streams.get(&name).filter(|_| world.has_suffixes(name)) else { return };
        let (first, next) = (stream.first, stream.next().min(stream.first + CREEP_MAX));
        if first + 1 >= next {
            return;
        }
        let snapshot = Publish {
            at: Boundary::Offset(Offset::Plain(stream.tail())),
            content_type: "text/x-fold".to_owned(),
            body: b"all".as_slice().into(),
            expected: None,
        };
        perform(bench, world, journal, &Operation { name, act: Act::Publish(snapshot) }).await;
        for ordinal in first + 1..=next {
            let at = Boundary::Offset(Offset::Plain(world.streams[&name].offset_of(ordinal)));
            perform(bench, world, journal, &Operation { name, act: Act::Retain(at) }).await;
            let is_json = world.streams[&name].is_json();
            let from = if is_json { From::Tail(u64::MAX) } else { From::Offset(Offset::Now) };
            let act = Act::Read(Read { max_records: is_json.then_some(1), ..Read::at(from) });
            perform(bench, world, journal, &Operation { name, act }).await;
        }
        self.tally.crept += next - first;
        verify(&self.bench, &mut self.world, &mut self.journal, &mut self.random, name).await;
    }

    /// A long-poll at the tail: silent until there is something to say.
    async fn poll(&mut self) {
        let Model { bench, world, journal, random, .. } = self;
        let name = random.below(world.paths.len() as u64) as usize;
        let Some(stream) = world.streams.get(&name).filter(|stream| !stream.closed) else { return };
        let (tail, next, is_json) = (stream.tail(), stream.next(), stream.is_json());
        let starts = [
            From::Offset(Offset::Plain(tail)),
            From::Offset(Offset::Now),
            From::Record(next),
            From::RecordNow,
            From::Tail(0),
        ];
        let from = pick(random, if is_json { &starts } else { &starts[..2] });
        let mut read = Read { live: true, ..Read::at(from) };
        if read.is_by_record() {
            read.max_records = random.one_in(2).then(|| 1 + random.below(3));
            read.envelope = random.one_in(3);
        }
        let request = Operation { name, act: Act::Read(read) }.request(world);
        journal.note(format!("poll: {request:?}"));
        let mut poll = bench.start(request.method, &request.target, &[], "").live();
        assert!(poll.is_silent().await, "nothing has happened: {}", poll.text());
        for _ in 0..4 {
            let act = match random.below(12) {
                0 => Act::Delete,
                1 => Act::Append(Append {
                    content: None,
                    close: true,
                    ..choose_append(random, stream_of(world, name))
                }),
                _ => Act::Append(choose_append(random, stream_of(world, name))),
            };
            let operation = Operation { name, act };
            perform(bench, world, journal, &operation).await;
            let stream = world.streams.get(&name);
            let has_news = stream.is_none_or(|stream| stream.closed || stream.tail() > tail);
            if !has_news {
                assert!(poll.is_silent().await, "nothing has happened: {}", poll.text());
                continue;
            }
            while !poll.ended {
                poll.next().await;
            }
            let answer = taken_apart(bench::Answer::of(&poll.out));
            let Some(_) = stream else {
                assert_eq!(answer.status, 404, "{answer:?}");
                break;
            };
            // The tail has moved, and with it the meaning of `now`.
            let fixed =
                if read.is_by_record() { From::Record(next) } else { From::Offset(Offset::Plain(tail)) };
            let operation = Operation { name, act: Act::Read(Read { from: fixed, ..read }) };
            let mut expected = world.apply(&operation, None);
            if let Body::Page(page) = &mut expected.body {
                page.has_tag = matches!(from, From::Record(_) | From::Offset(Offset::Plain(_)));
            }
            check(world, &operation, &expected, &answer);
            break;
        }
        self.tally.polls += 1;
    }
}

fn stream_of(world: &World, name: usize) -> &oracle::Stream {
    &world.streams[&name]
}

/// A small append that succeeds, mostly.
fn choose_append(random: &mut Random, stream: &oracle::Stream) -> Append {
    Append::of(stream.kind, content::content(random, stream.kind, true))
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn what_is_seen_is_what_was_done() {
    let seed = Random::seed("THALWEG_SEED");
    let (runs, steps) = (variable("THALWEG_MODEL_RUNS", RUNS), variable("THALWEG_MODEL_STEPS", STEPS));
    let mut tally = Tally::default();
    for number in 0..runs {
        let seed = seed.wrapping_add(number);
        println!("THALWEG_SEED={seed} THALWEG_MODEL_STEPS={steps}");
        tally.add(&run(async move { Model::new(seed).await.run(steps).await }));
    }
    println!("{tally:?}");
    if runs * steps >= RUNS * STEPS {
        let Tally { rewrites, refused, crashes, unseen, bursts, polls, crept, trimmed, repeated, .. } = tally;
        let met = [rewrites, refused, crashes, unseen, bursts, polls, crept, trimmed, repeated];
        assert!(met.iter().all(|count| *count > 0), "something was never met: {tally:?}");
    }
}
