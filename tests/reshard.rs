//! Changing `--shards` on a directory that holds everything: nothing changes for clients, whatever way the server ended,
//! and an attempt that does not come to its end leaves what was there.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use common::server::PATIENCE;
use common::stream::split_array;
use common::{DataDir, JSON, OCTETS, Server, Stream, TEXT};
use thalweg::limits;

/// Small segments, so that logs have many, and nothing but the disk to read from.
const FLAGS: [&str; 4] = ["--segment-bytes", "1048576", "--cache-bytes", "0"];

fn start(dir: &DataDir, shards: &str) -> Server {
    Server::start_in(dir, &[&FLAGS[..], &["--shards", shards]].concat())
}

/// An append of a producer, and how it was answered.
struct Produced {
    seq: u64,
    offset: String,
    record_start: Option<String>,
    record_next: Option<String>,
}

/// A stream and what a client knows of it.
struct Known {
    path: String,
    content_type: &'static str,
    /// Everything in it: bytes, or records with a comma behind each.
    content: Vec<u8>,
    /// Offsets that were handed out, and how much of the content lies before each.
    tokens: Vec<(String, usize)>,
    produced: Vec<Produced>,
    closed: bool,
    /// How much of the content retention has taken.
    trimmed: usize,
    /// Its snapshot: token and body.
    snapshot: Option<(String, Vec<u8>)>,
    /// Its attributes, if they were set.
    attributes: Option<String>,
    /// What HEAD says of it beside the offset.
    settings: Vec<Option<String>>,
}

impl Known {
    fn create(server: &Server, path: &str, content_type: &'static str, headers: &[(&str, &str)]) -> Known {
        let stream = server.stream(path, content_type);
        let answer = stream.put().headers(headers).expect(201);
        let mut known = Known {
            path: path.to_owned(),
            content_type,
            content: Vec::new(),
            tokens: vec![(answer.next_offset(), 0)],
            produced: Vec::new(),
            closed: false,
            trimmed: 0,
            snapshot: None,
            attributes: None,
            settings: Vec::new(),
        };
        known.settings = known.settings(server);
        known
    }

    fn on<'s>(&self, server: &'s Server) -> Stream<'s> {
        server.stream(&self.path, self.content_type)
    }

    fn settings(&self, server: &Server) -> Vec<Option<String>> {
        let head = self.on(server).head();
        let names = [
            "content-type",
            "stream-ttl",
            "stream-expires-at",
            "stream-record-first",
            "stream-snapshot-offset",
        ];
        names.iter().map(|name| head.header(name).map(str::to_owned)).collect()
    }

    /// The canonical form of a body: of JSON, the records in it, a comma behind each.
    fn added(&mut self, body: &[u8]) {
        if self.content_type != JSON {
            return self.content.extend_from_slice(body);
        }
        let records = match body.first() {
            Some(b'[') => split_array(body),
            _ => vec![String::from_utf8(body.to_vec()).expect("JSON is text")],
        };
        for record in records {
            self.content.extend_from_slice(record.as_bytes());
            self.content.push(b',');
        }
    }

    fn append(&mut self, server: &Server, body: impl AsRef<[u8]>) {
        let offset = self.on(server).append(&body);
        self.added(body.as_ref());
        self.tokens.push((offset, self.content.len()));
    }

    fn batch(&mut self, server: &Server, bodies: &[&str]) {
        self.on(server).batch(bodies);
        bodies.iter().for_each(|body| self.added(body.as_bytes()));
    }

    /// The next append of producer `p`.
    fn produce(&mut self, server: &Server, body: &str) {
        let seq = self.produced.len() as u64;
        let answer = self.on(server).produce("p", 3, seq, body).expect(200);
        self.added(body.as_bytes());
        let offset = answer.next_offset();
        self.tokens.push((offset.clone(), self.content.len()));
        let header = |name: &str| answer.header(name).map(str::to_owned);
        let (record_start, record_next) = (header("stream-record-start"), header("stream-record-next"));
        self.produced.push(Produced { seq, offset, record_start, record_next });
    }

    /// A snapshot of everything, and what it makes superfluous goes, but for the last few appends; new attributes.
    fn condense(&mut self, server: &Server, round: usize) {
        let (token, _) = self.tokens.last().expect("its creation has one").clone();
        let body = format!("{} in round {round} ", self.path).repeat(3000 * (round % 3)).into_bytes();
        let put = |what: String| server.request("PUT", format!("{}/{what}", self.path));
        put(format!("snapshot/{token}")).header("Content-Type", TEXT).body(&body).expect(204);
        let (from, before) = &self.tokens[self.tokens.len().saturating_sub(3)];
        put(format!("retention/{from}")).expect(204);
        let attributes = format!("{{\"title\":\"round {round}\"}}");
        put("attrs".to_owned()).header("Content-Type", JSON).body(&attributes).expect(204);
        self.attributes = Some(attributes);
        (self.trimmed, self.snapshot) = (*before, Some((token, body)));
        self.settings = self.settings(server);
    }

    fn close(&mut self, server: &Server) {
        self.on(server).close();
        self.closed = true;
    }

    /// Compares the server with what is known.
    fn check(&self, server: &Server, when: &str) {
        let (stream, path) = (self.on(server), &self.path);
        if let Some(attributes) = &self.attributes {
            let read = server.request("GET", format!("{path}/attrs")).expect(200);
            assert_eq!(read.text(), attributes, "{when}: attributes of {path}");
        }
        if let Some((token, body)) = &self.snapshot {
            let read = server.request("GET", format!("{path}/snapshot/{token}")).expect(200);
            assert!(read.body == *body, "{when}: snapshot of {path}: {} bytes", read.body.len());
        }
        for (token, before) in [("-1".to_owned(), 0)].iter().chain(&self.tokens) {
            if *before < self.trimmed {
                stream.get(&format!("offset={token}")).expect(410);
                continue;
            }
            let mut read = Vec::new();
            for page in stream.pages(token) {
                match self.content_type {
                    JSON => split_array(&page).iter().for_each(|record| {
                        read.extend_from_slice(record.as_bytes());
                        read.push(b',');
                    }),
                    _ => read.extend_from_slice(&page),
                }
            }
            assert!(read == self.content[*before..], "{when}: {path} from {token}: {} bytes", read.len());
        }
        assert_eq!(self.settings(server), self.settings, "{when}: {path}");
        let head = stream.head();
        assert_eq!(head.header("stream-closed"), self.closed.then_some("true"), "{when}: {path}");
        for Produced { seq, offset, record_start, record_next } in &self.produced {
            // The body of a duplicate does not matter.
            let again = stream.produce("p", 3, *seq, "[0]").expect(204);
            // Of a place that retention has taken, only the ordinals are known.
            if self.tokens.iter().any(|(token, before)| token == offset && *before >= self.trimmed) {
                assert_eq!(again.next_offset(), *offset, "{when}: {path}, sequence {seq}");
            }
            assert_eq!(again.header("stream-record-start"), record_start.as_deref(), "{when}: {path} {seq}");
            assert_eq!(again.header("stream-record-next"), record_next.as_deref(), "{when}: {path} {seq}");
        }
        if !self.produced.is_empty() && !self.closed {
            let gap = stream.produce("p", 3, self.produced.len() as u64 + 5, "[0]").expect(409);
            assert_eq!(gap.header("producer-expected-seq"), Some(&*self.produced.len().to_string()));
            stream.produce("p", 2, 0, "[0]").expect(403);
        }
    }
}

/// Everything that a directory holds, as its clients know it.
struct World {
    streams: Vec<Known>,
    /// Streams that are gone, each with a token of its life.
    gone: Vec<(String, String)>,
    round: usize,
}

const BUCKETS: [&str; 3] = ["alpha", "beta", "gamma"];

impl World {
    /// Some of everything.
    fn create(server: &Server) -> World {
        let mut world = World { streams: Vec::new(), gone: Vec::new(), round: 0 };
        for bucket in BUCKETS {
            server.request("PUT", format!("/{bucket}")).expect(201);
            for n in 0..5 {
                let content_type = [JSON, TEXT, OCTETS][n % 3];
                let path = format!("/{bucket}/s{n}");
                let mut known = Known::create(server, &path, content_type, &[("Stream-TTL", "86400")]);
                known.append(server, format!("[{n},\"{}\"]", "w".repeat(30_000 * n)));
                known.batch(server, &["1", "[2,3]", "{\"four\":5}"]);
                for seq in 0..4 {
                    known.produce(server, &format!("[{seq},[{n}]]"));
                }
                world.streams.push(known);
            }
        }
        for n in 0..4 {
            let path = format!("/v1/stream/flat/{n}/tail");
            let mut known =
                Known::create(server, &path, TEXT, &[("Stream-Expires-At", "2099-01-01T00:00:00Z")]);
            known.append(server, format!("flat {n}"));
            world.streams.push(known);
        }
        for (path, content_type) in [("/alpha/large", TEXT), ("/v1/stream/large", JSON)] {
            let mut known = Known::create(server, path, content_type, &[]);
            known.append(server, "[\"small\"]");
            // More than a commit holds: written in parts.
            let word = "abcdefghijklmnopqrstuvwxyz".repeat(200);
            let records: Vec<String> = (0..1000).map(|n| format!("\"{n} {word}\"")).collect();
            known.append(server, format!("[{}]", records.join(",")));
            assert!(known.content.len() > limits::COMMIT_BYTES_MAX);
            known.append(server, "[\"small again\"]");
            world.streams.push(known);
        }
        world.streams[3].close(server);
        world
    }

    /// What each life of the directory adds: growth, and names that are given up and taken again.
    fn grow(&mut self, server: &Server) {
        self.round += 1;
        let round = self.round;
        for known in self.streams.iter_mut().filter(|known| !known.closed) {
            known.append(server, format!("[\"round {round}\"]"));
            if !known.path.starts_with("/v1/") {
                known.batch(server, &["7", "8"]);
            }
            if !known.produced.is_empty() {
                known.produce(server, &format!("[\"{round}\"]"));
            }
        }
        for bucket in BUCKETS {
            let path = format!("/{bucket}/again");
            if let Some(at) = self.streams.iter().position(|known| known.path == path) {
                let known = self.streams.remove(at);
                known.on(server).delete();
                self.gone.push((path.clone(), known.tokens[1].0.clone()));
            }
            let mut known = Known::create(server, &path, JSON, &[]);
            known.append(server, format!("[{round}]"));
            known.produce(server, "[1,2]");
            self.streams.push(known);
        }
        // A bucket that comes and goes, with a stream that does so before it.
        server.request("PUT", "/passing").expect(201);
        let passing = Known::create(server, "/passing/s", TEXT, &[]);
        passing.on(server).delete();
        server.request("DELETE", "/passing").expect(204);
    }

    fn check(&self, server: &Server, when: &str) {
        self.streams.iter().for_each(|known| known.check(server, when));
        for (path, token) in &self.gone {
            let stream = server.stream(path, JSON);
            assert_eq!(stream.get(&format!("offset={token}")).send().status, 410, "{when}: {path} {token}");
        }
        for bucket in BUCKETS {
            let prefix = format!("/{bucket}/");
            let inside = self.streams.iter().filter_map(|known| known.path.strip_prefix(&prefix));
            let mut expected: Vec<&str> = inside.collect();
            expected.sort_unstable();
            let page = server.request("GET", format!("/{bucket}/streams")).expect(200).json();
            let listed = page["streams"].as_array().expect("an array").iter();
            let listed: Vec<&str> =
                listed.map(|stream| stream["stream_id"].as_str().expect("an id")).collect();
            assert_eq!(listed, expected, "{when}: bucket {bucket}");
            let described = server.request("GET", format!("/{bucket}")).expect(200).json();
            assert_eq!(described["streams"], expected.len(), "{when}: bucket {bucket}");
            server.request("PUT", format!("/{bucket}")).expect(409);
        }
        server.request("GET", "/passing").expect(404);
    }
}

impl World {
    /// What settling is for: snapshots that take the place of others, data that goes, streams that come and go between the
    /// others on every shard.
    fn churn(&mut self, server: &Server) {
        let round = self.round;
        for known in self.streams.iter_mut().filter(|known| !known.closed && !known.path.starts_with("/v1/"))
        {
            known.condense(server, round);
        }
        for n in 0..12 {
            let filler = server.stream(&format!("/alpha/filler-{n}"), OCTETS);
            filler.put().expect(201);
            for _ in 0..6 {
                filler.append(vec![n; 60_000]);
            }
        }
        for known in self.streams.iter_mut().filter(|known| !known.closed) {
            known.append(server, format!("[\"behind the fillers of {round}\"]"));
        }
        for n in 0..12 {
            server.stream(&format!("/alpha/filler-{n}"), OCTETS).delete();
        }
    }
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
