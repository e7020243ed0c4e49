//! The crash test: writers with producers, batches and JSON arrays write down what was acknowledged, readers what they saw;
//! the server is killed with SIGKILL at a random moment; after the restart
//!
//! - every acknowledged record is there once, in order, at the same offsets and ordinals;
//! - whatever else is there was under way at the kill, is whole, and keeps its writer's order;
//! - what a reader saw is still there (decision 31);
//! - every sequence of a producer is answered as the duplicate that it is, with its original place (decision 22);
//! - snapshots, retention and attributes are what was acknowledged, or one step further, while segments are settled;
//! - `thalweg verify` finds no damage;
//! - created, closed and deleted streams are what was acknowledged, or one step further (decision 25).
//!
//! `THALWEG_CRASH_ROUNDS` says how often (6), `THALWEG_CRASH_SEED` repeats a run's choices, `THALWEG_CRASH_SHARDS` lists
//! the numbers of shards to start with, one of which each round picks ("2"). `scripts/crash` runs it for longer.

#[path = "../common/mod.rs"]
mod common;
mod keeper;
mod lifecycle;
mod model;
mod reader;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::files;
use common::server::PATIENCE;
use common::{DataDir, JSON, Random, Server, TEXT};

use keeper::Keeper;
use lifecycle::Lifecycle;
use model::Model;
use reader::Seen;
use writer::{Log, Writer};

/// Streams that all writers share: half text, half JSON.
const STREAMS: usize = 6;
const WRITERS: usize = 3;
/// Most acknowledgements that a round waits for before it kills.
const ACKNOWLEDGEMENTS_MAX: u64 = 250;
/// One round in so many is killed while something is settled.
const SETTLING_ROUNDS: u64 = 3;
/// Bytes of a segment. Small: a round writes through several of them.
const SEGMENT_BYTES: &str = "1048576";
/// A stream that has grown beyond this is deleted and made anew.
const STREAM_BYTES_MAX: usize = 3_000_000;

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// Path and content type of a shared stream.
fn stream_of(index: usize) -> (String, &'static str) {
    // Both surfaces, both kinds.
    let path = if index.is_multiple_of(3) {
        format!("/v1/stream/crash/{index}")
    } else {
        format!("/test/shared-{index}")
    };
    (path, if index.is_multiple_of(2) { TEXT } else { JSON })
}

/// What has been met over all rounds: a test that never saw the interesting cases has shown little.
#[derive(Default, Debug)]
pub struct Tally {
    acknowledged: u64,
    in_flight_kept: u64,
    in_flight_lost: u64,
    duplicates: u64,
    retried_and_new: u64,
    bytes_seen_by_readers: u64,
    recreated: u64,
    trimmed: u64,
    killed_while_settling: u64,
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let rounds: u64 =
        variable("THALWEG_CRASH_ROUNDS", "6").parse().expect("THALWEG_CRASH_ROUNDS is a number");
    let shards: Vec<String> = variable("THALWEG_CRASH_SHARDS", "2").split(',').map(str::to_owned).collect();
    let seed = Random::seed("THALWEG_CRASH_SEED");
    println!(
        "THALWEG_CRASH_SEED={seed} THALWEG_CRASH_ROUNDS={rounds} THALWEG_CRASH_SHARDS={}",
        shards.join(",")
    );
    let mut random = Random::new(seed);
    let dir = DataDir::new();
    let mut tally = Tally::default();
    let mut models: Vec<Model> = (0..STREAMS).map(|index| Model::new(stream_of(index))).collect();
    let mut lifecycle = Lifecycle::new();
    let mut under_way = (Log::default(), Vec::new());

    for round in 0..=rounds {
        let with = &shards[random.below(shards.len() as u64) as usize];
        let flags = [
            "--shards",
            with,
            "--segment-bytes",
            SEGMENT_BYTES,
            "--long-poll-timeout-ms",
            "1000",
            "--cache-bytes",
            "2097152",
        ];
        let server = Server::start_in(&dir, &flags);
        println!("round {round}: {}", server.start_line().trim_end());
        settle(&server, &mut models, std::mem::take(&mut under_way), round, &mut tally);
        lifecycle.verify(&server);
        if round == rounds {
            server.stop();
            break;
        }
        for model in &mut models {
            if model.content.len() > STREAM_BYTES_MAX {
                model.recreate(&server);
                tally.recreated += 1;
            }
        }
        let settling = random.one_in(SETTLING_ROUNDS);
        tally.killed_while_settling += u64::from(settling);
        let settling = settling.then(|| dir.path());
        under_way = run_until_killed(server, &mut models, &mut lifecycle, settling, &mut random);
        let verified = common::files::tool(&["verify"], &dir.path());
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
    println!("{tally:?}");
    assert!(tally.acknowledged > rounds, "nothing was acknowledged: {tally:?}");
    if rounds >= 30 {
        let reached = tally.in_flight_kept > 0 && tally.in_flight_lost > 0 && tally.duplicates > 0;
        assert!(tally.trimmed > 0 && tally.killed_while_settling > 0, "nothing was settled: {tally:?}");
        assert!(reached && tally.bytes_seen_by_readers > 0, "the interesting moments were missed: {tally:?}");
    }
}

/// Compares the streams with what writers and readers wrote down, and repeats what producers had under way.
fn settle(server: &Server, models: &mut [Model], under_way: (Log, Vec<Seen>), round: u64, tally: &mut Tally) {
    let (log, seen) = under_way;
    tally.acknowledged += log.acknowledged.len() as u64;
    for (index, model) in models.iter_mut().enumerate() {
        if round == 0 {
            model.create(server);
            continue;
        }
        if model.has_keeper() {
            keeper::settle(server, model);
            tally.trimmed += u64::from(model.kept.first > 0);
        }
        let acknowledged = log.acknowledged.iter().filter(|done| done.operation.stream == index);
        let in_flight: Vec<_> = log.in_flight.iter().filter(|operation| operation.stream == index).collect();
        model.verify(server, acknowledged.collect(), &in_flight, tally);
        for seen in seen.iter().filter(|seen| seen.stream == index) {
            model.assert_still_there(seen);
            tally.bytes_seen_by_readers += seen.bytes.len() as u64;
        }
        model.repeat_producers(server, &in_flight, tally);
    }
}

/// Waits until a segment is being settled, or was: a new file that is longer or shorter than those of commits.
fn await_settling(dir: &Path, before: &[PathBuf]) {
    let bytes: u64 = SEGMENT_BYTES.parse().expect("a number");
    let deadline = Instant::now() + PATIENCE;
    let is_settled = |path: &PathBuf| {
        !before.contains(path)
            && std::fs::metadata(path).is_ok_and(|file| file.len() > 0 && file.len() != bytes)
    };
    while !files::try_segments(dir).iter().any(is_settled) {
        assert!(Instant::now() < deadline, "nothing is settled");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets writers and readers work, and kills the server at a random moment; if `settling` is its directory, not before something is
/// settled. What they wrote down.
fn run_until_killed(
    server: Server,
    models: &mut [Model],
    lifecycle: &mut Lifecycle,
    settling: Option<PathBuf>,
    random: &mut Random,
) -> (Log, Vec<Seen>) {
    let address = server.address();
    let target = 1 + random.below(ACKNOWLEDGEMENTS_MAX);
    // Acknowledgements come in bursts, one for each commit: a moment later the next commit is somewhere on its way.
    let later = Duration::from_micros(random.below(4000));
    let (acknowledged, acknowledgements) = mpsc::channel();
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|id| Writer::new(id, models, Random::new(random.next()), acknowledged.clone()))
        .collect();
    let mut cycle_random = Random::new(random.next());
    let mut keeper = Keeper::new(models, Random::new(random.next()));
    let before = settling.as_deref().map(files::try_segments).unwrap_or_default();
    drop(acknowledged);
    let under_way = std::thread::scope(|scope| {
        let writing: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(move || writer.run(address))).collect();
        let reading: Vec<_> = models
            .iter()
            .enumerate()
            .map(|(index, model)| scope.spawn(move || reader::follow(address, index, model)))
            .collect();
        let cycling = scope.spawn(|| lifecycle.run(address, &mut cycle_random));
        let keeping = scope.spawn(|| keeper.run(address));
        if let Some(dir) = &settling {
            await_settling(dir, &before);
        }
        for _ in 0..target {
            acknowledgements.recv_timeout(PATIENCE).expect("the server acknowledges until it is killed");
        }
        let moment = Instant::now() + later;
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        server.signal(libc::SIGKILL);
        let mut log = Log::default();
        for writing in writing {
            log.append(writing.join().expect("no writer panics"));
        }
        cycling.join().expect("the life cycle does not panic");
        keeping.join().expect("the keeper does not panic");
        let seen = reading.into_iter().map(|reading| reading.join().expect("no reader panics")).collect();
        let ended = server.wait();
        assert!(ended.errors.find("panicked").is_none(), "the server had panicked: {}", ended.errors);
        (log, seen)
    });
    for writer in writers {
        writer.remember(models);
    }
    keeper.remember(models);
    under_way
}
