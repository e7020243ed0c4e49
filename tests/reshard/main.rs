//! Changing `--shards` on a directory that holds everything: nothing changes for clients, whatever way the server ended,
//! and an attempt that does not come to its end leaves what was there.

#[path = "../common/mod.rs"]
mod common;
mod world;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use common::server::PATIENCE;
use common::{DataDir, Server, TEXT};
use world::{Known, World};

/// Small segments, so that logs have many, and nothing but the disk to read from.
const FLAGS: [&str; 4] = ["--segment-bytes", "1048576", "--cache-bytes", "0"];

fn start(dir: &DataDir, shards: &str) -> Server {
    Server::start_in(dir, &[&FLAGS[..], &["--shards", shards]].concat())
}

/// Settled segments below a directory.
fn settled(dir: &DataDir) -> Vec<PathBuf> {
    let is_settled = |path: &PathBuf| {
        // One that has just been replaced is none.
        let Ok(bytes) = std::fs::read(path) else { return false };
        bytes.len() >= 4096 && bytes[..8] == *b"THALSEG1" && bytes[72..80] != [0; 8]
    };
    common::files::try_segments(&dir.path()).into_iter().filter(is_settled).collect()
}

/// Waits until the server has settled something.
fn await_settling(dir: &DataDir, before: &[PathBuf]) {
    let deadline = Instant::now() + PATIENCE;
    while settled(dir).iter().all(|path| before.contains(path)) {
        assert!(Instant::now() < deadline, "nothing is settled");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn offline(subcommand: &str, dir: &DataDir, flags: &[&str]) -> Output {
    let mut command = Server::command();
    command.arg(subcommand).arg(dir.path()).args(flags).output().expect("the binary under test can be run")
}

/// The offline tools find a directory that is whole, and each stream on one shard.
fn check_offline(dir: &DataDir, world: &World) {
    let verified = offline("verify", dir, &[]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let inspected = offline("inspect", dir, &["--json"]).stdout;
    let rows = String::from_utf8(inspected).expect("JSON is text");
    let mut keys: Vec<String> = rows
        .lines()
        .map(|row| serde_json::from_str::<serde_json::Value>(row).expect("a row is JSON"))
        .filter(|row| row["row"] == "stream" && row["deleted"] == false)
        .map(|row| row["key"].as_str().expect("a key is text").to_owned())
        .collect();
    let key = |known: &Known| match known.path.strip_prefix("/v1/stream") {
        Some(path) => path.to_owned(),
        None => known.path[1..].to_owned(),
    };
    let mut expected: Vec<String> = world.streams.iter().map(key).collect();
    keys.sort();
    expected.sort();
    assert_eq!(keys, expected);
}

/// Names below a directory, from it.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory can be read");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry.expect("a directory can be read").file_name().into_string().expect("names are text")
        })
        .collect();
    names.sort();
    names
}

fn generations(dir: &DataDir) -> Vec<String> {
    names(&dir.path()).into_iter().filter(|name| name.starts_with("generation-")).collect()
}

#[test]
fn nothing_changes_but_the_number() {
    let dir = DataDir::new();
    let server = start(&dir, "2");
    let mut world = World::create(&server);
    world.grow(&server);
    world.check(&server, "before any change");
    server.stop();
    let lives = [("1", "kill"), ("3", "kill"), ("2", "stop"), ("2", "kill"), ("5", "stop"), ("1", "stop")];
    for (round, (shards, end)) in lives.into_iter().enumerate() {
        let when = format!("round {round}, {shards} shards");
        let server = start(&dir, shards);
        let head = world.streams[0].on(&server).head();
        assert!(head.required("stream-shard").ends_with(&format!("/{shards}")), "{head:?}");
        world.check(&server, &when);
        world.grow(&server);
        if end == "kill" {
            server.kill()
        } else {
            server.stop()
        }
        assert_eq!(generations(&dir).len(), 1, "{when}");
        check_offline(&dir, &world);
    }
    // Without anything new in between.
    for shards in ["4", "2", "3"] {
        start(&dir, shards).stop();
    }
    world.check(&start(&dir, "3"), "at the end");
}

#[test]
fn settled_segments_are_shared_out_and_settled_again() {
    let dir = DataDir::new();
    let mut world = None;
    let lives = [
        ("3", "kill"),
        ("3", "stop"),
        ("1", "stop"),
        ("2", "kill"),
        ("5", "stop"),
        ("2", "kill"),
        ("1", "stop"),
    ];
    for (round, (shards, end)) in lives.into_iter().enumerate() {
        let when = format!("round {round}, {shards} shards");
        let server = start(&dir, shards);
        let world = world.get_or_insert_with(|| World::create(&server));
        world.check(&server, &when);
        world.grow(&server);
        let before = settled(&dir);
        world.churn(&server);
        await_settling(&dir, &before);
        world.check(&server, &format!("{when}, settled"));
        if end == "kill" {
            server.kill()
        } else {
            server.stop()
        }
        check_offline(&dir, world);
    }
    world.expect("it was made").check(&start(&dir, "4"), "at the end");
}

/// The last segments of a directory that have begun, one for each shard; the shards' logs are all in use.
fn last_segments(dir: &DataDir) -> Vec<PathBuf> {
    let generation = dir.path().join(generations(dir).pop().expect("there is one"));
    let shards = names(&generation).into_iter().map(|shard| generation.join(shard));
    let last = |shard: PathBuf| {
        let names = names(&shard).into_iter().rev().map(|name| shard.join(name));
        let mut segments = names.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        // What settling wrote ends with its last byte, whatever its number.
        let in_use = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("a segment can be read");
            bytes[..8] == *b"THALSEG1" && bytes[72..80] == [0; 8]
        };
        segments.find(in_use).expect("each shard has written something")
    };
    shards.map(last).collect()
}

#[test]
fn a_torn_commit_is_cut_and_nothing_else_is() {
    let dir = DataDir::new();
    let server = start(&dir, "2");
    let mut world = World::create(&server);
    world.grow(&server);
    server.kill();
    for segment in last_segments(&dir) {
        let mut bytes = std::fs::read(&segment).expect("a segment can be read");
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("it has begun") + 1;
        let end = used.next_multiple_of(4096);
        bytes[end..end + 8192].fill(0xa5);
        std::fs::write(&segment, bytes).expect("a segment can be written");
    }
    let server = start(&dir, "3");
    world.check(&server, "with torn tails before");
    world.grow(&server);
    server.signal(libc::SIGTERM);
    let ended = server.wait();
    assert_eq!(ended.errors.matches("cut 8192 bytes of an unfinished last commit").count(), 2, "{ended:?}");
    world.check(&start(&dir, "2"), "one change later");
    check_offline(&dir, &world);
}

#[test]
fn damage_stops_the_change_and_leaves_everything_as_it_was() {
    let dir = DataDir::new();
    let server = start(&dir, "2");
    let world = World::create(&server);
    server.stop();
    let segment = last_segments(&dir).pop().expect("there are two");
    let mut bytes = std::fs::read(&segment).expect("a segment can be read");
    // In the first commit: later ones follow.
    bytes[4096 + 70] ^= 1;
    std::fs::write(&segment, &bytes).expect("a segment can be written");
    let flags = [&FLAGS[..], &["--shards", "3"]].concat();
    let Err(ended) = Server::try_start(&dir, &flags) else { panic!("it changed a damaged directory") };
    assert_eq!(ended.status.code(), Some(10), "{ended:?}");
    let name = segment.to_str().expect("a test path is text");
    assert!(ended.errors.contains(name) && ended.errors.contains("thalweg verify"), "{ended:?}");
    assert_eq!(generations(&dir), ["generation-000001"]);
    // Mended, either number works.
    bytes[4096 + 70] ^= 1;
    std::fs::write(&segment, &bytes).expect("a segment can be written");
    let server = start(&dir, "2");
    world.check(&server, "mended");
    server.stop();
    world.check(&start(&dir, "3"), "mended and changed");
}

#[test]
fn what_an_interrupted_change_left_goes_away() {
    let dir = DataDir::new();
    let server = start(&dir, "2");
    let world = World::create(&server);
    server.stop();
    // Some links, no list; and the remains of a removal.
    let next = dir.path().join("generation-000002");
    std::fs::create_dir_all(next.join("shard-000")).expect("a directory can be made");
    std::fs::create_dir_all(dir.path().join("generation-000002.removed/shard-001")).expect("likewise");
    std::fs::create_dir_all(dir.path().join("generation-000000.removed/shard-000")).expect("likewise");
    for (n, segment) in last_segments_of(&dir, "generation-000001").into_iter().enumerate() {
        let link = next.join(format!("shard-000/segment-{:010}-of-7.log", n + 1));
        std::fs::hard_link(segment, link).expect("a file can be linked");
    }
    let server = start(&dir, "2");
    assert_eq!(generations(&dir), ["generation-000001"]);
    world.check(&server, "not changed after all");
    server.stop();
    std::fs::create_dir_all(next.join("shard-007")).expect("a directory can be made");
    let server = start(&dir, "3");
    assert_eq!(generations(&dir), ["generation-000002"]);
    world.check(&server, "changed after all");
}

fn last_segments_of(dir: &DataDir, generation: &str) -> Vec<PathBuf> {
    let generation = dir.path().join(generation);
    let shards = names(&generation).into_iter().map(|shard| generation.join(shard));
    shards.map(|shard| shard.join("segment-0000000001.log")).collect()
}

#[test]
fn an_older_manifest_does_not_cost_the_newer_data() {
    let dir = DataDir::new();
    let server = start(&dir, "2");
    let mut world = World::create(&server);
    server.stop();
    let manifest = dir.path().join("MANIFEST");
    let older = std::fs::read(&manifest).expect("the manifest can be read");
    let server = start(&dir, "3");
    world.grow(&server);
    server.stop();
    let newer = std::fs::read(&manifest).expect("the manifest can be read");
    std::fs::write(&manifest, &older).expect("the manifest can be written");
    let flags = [&FLAGS[..], &["--shards", "2"]].concat();
    // Its generation is not there at all; then as an empty one.
    for part in ["missing", "in use"] {
        let Err(ended) = Server::try_start(&dir, &flags) else {
            panic!("{part}: started from an older copy")
        };
        assert_eq!(ended.status.code(), Some(10), "{ended:?}");
        assert!(ended.errors.contains(part), "{ended:?}");
        for shard in ["shard-000", "shard-001"] {
            let path = dir.path().join("generation-000001").join(shard);
            std::fs::create_dir_all(path).expect("a directory can be made");
        }
    }
    std::fs::write(&manifest, &newer).expect("the manifest can be written");
    world.check(&start(&dir, "3"), "with the newer one again");
    assert_eq!(generations(&dir), ["generation-000002"]);
}

/// Bytes that a directory takes on its device, each file once.
fn disk_bytes(dir: &Path) -> u64 {
    fn walk(dir: &Path, files: &mut std::collections::BTreeMap<u64, u64>) {
        for entry in std::fs::read_dir(dir).expect("a directory can be read") {
            let path = entry.expect("a directory can be read").path();
            let metadata = path.metadata().expect("a file can be asked");
            match metadata.is_dir() {
                true => walk(&path, files),
                false => drop(files.insert(metadata.ino(), 512 * metadata.blocks())),
            }
        }
    }
    let mut files = std::collections::BTreeMap::new();
    walk(dir, &mut files);
    files.values().sum()
}

#[test]
fn changes_do_not_pile_up_segments_that_are_nearly_empty() {
    let dir = DataDir::new();
    let flags = |shards| ["--segment-bytes", "16777216", "--shards", shards];
    let server = Server::start_in(&dir, &flags("2"));
    server.create("s", TEXT).append("x");
    server.stop();
    for round in 0..10 {
        let server = Server::start_in(&dir, &flags(if round % 2 == 0 { "1" } else { "2" }));
        server.stream("/test/s", TEXT).append("x");
        server.stop();
    }
    assert_eq!(Server::start_in(&dir, &flags("2")).stream("/test/s", TEXT).read_text(), "x".repeat(11));
    let bytes = disk_bytes(&dir.path());
    // Two shards, each with a segment in use and one made ahead.
    assert!(bytes < 5 * 16777216, "{bytes} bytes");
}

#[test]
fn a_log_that_lost_everything_is_no_new_log() {
    let dir = DataDir::new();
    let server = start(&dir, "2");
    let world = World::create(&server);
    server.stop();
    let server = start(&dir, "3");
    world.check(&server, "changed");
    server.stop();
    let shard = dir.path().join("generation-000002/shard-001");
    let kept = dir.path().join("kept");
    std::fs::rename(&shard, &kept).expect("a directory can be renamed");
    std::fs::create_dir(&shard).expect("a directory can be made");
    let Err(ended) = Server::try_start(&dir, &[&FLAGS[..], &["--shards", "3"]].concat()) else {
        panic!("it started without a log that it had")
    };
    assert_eq!(ended.status.code(), Some(10), "{ended:?}");
    assert!(ended.errors.contains("generation-000002/shard-001/segments is missing"), "{ended:?}");
    std::fs::remove_dir(&shard).expect("it is empty");
    std::fs::rename(&kept, &shard).expect("a directory can be renamed");
    world.check(&start(&dir, "3"), "put back");
}

#[test]
fn a_directory_keeps_its_number_unless_told_otherwise() {
    let dir = DataDir::new();
    start(&dir, "3").stop();
    let plain = || {
        let mut command = Server::command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--segment-bytes", "1048576", "--data-dir"]);
        command.arg(dir.path());
        command
    };
    let shards = |server: &Server| server.create("s", TEXT).head().required("stream-shard")[1..].to_owned();
    let server = Server::spawn(&mut plain()).unwrap_or_else(|ended| panic!("{ended:?}"));
    assert_eq!(shards(&server), "/3");
    server.stop();
    // A list of cores alone is no wish for another number.
    let Err(ended) = Server::spawn(plain().args(["--cpus", "0"])) else { panic!("changed by --cpus") };
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.errors.contains("--shards 1"), "{ended:?}");
    let server =
        Server::spawn(plain().env("THALWEG_SHARDS", "2")).unwrap_or_else(|ended| panic!("{ended:?}"));
    let stream = server.stream("/test/s", TEXT);
    assert!(stream.head().required("stream-shard").ends_with("/2"));
    server.stop();
    let server = Server::spawn(&mut plain()).unwrap_or_else(|ended| panic!("{ended:?}"));
    assert!(server.stream("/test/s", TEXT).head().required("stream-shard").ends_with("/2"));
}
