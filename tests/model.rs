//! Random operations against a small oracle, black box: a server of two shards, stopped, killed between requests and within
//! them, that rewrites its small segments meanwhile. The oracle is that of the test in process (`src/api/tests/model.rs`),
//! where it is said what is checked; it shares no code with the server.
//!
//! `THALWEG_SEED` repeats a run's choices, `THALWEG_MODEL_STEPS` makes it longer.

#[path = "../src/api/tests/model/check.rs"]
mod check;
#[path = "../src/api/tests/model/choose.rs"]
mod choose;
mod common;
#[path = "../src/api/tests/model/content.rs"]
mod content;
#[path = "../src/api/tests/model/drive.rs"]
mod drive;
#[path = "../src/api/tests/model/exchange.rs"]
mod exchange;
#[path = "../src/api/tests/model/operation.rs"]
mod operation;
#[path = "../src/api/tests/model/oracle.rs"]
mod oracle;
#[path = "../src/api/tests/model/predict.rs"]
mod predict;
#[path = "../src/api/tests/model/read.rs"]
mod read;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use common::files::segments;
use common::server::PATIENCE;
use common::{Connection, DataDir, Random, Response};
use futures_lite::future::block_on;

use check::check;
use choose::choose;
use content::{content, text};
use drive::{Journal, judge, outcomes, perform, resolve, series, step, verify_all};
use exchange::{Answer, Request, Server};
use operation::{Act, Append, Content, Create, From, Offset, Operation, Read};
use oracle::{Kind, Stream, World};

/// Steps of a run.
const STEPS: u64 = 500;
/// Flags of the server: small segments, small pages, much from disk.
const FLAGS: [&str; 8] = [
    "--segment-bytes",
    "1048576",
    "--read-page-bytes",
    "32768",
    "--cache-bytes",
    "1048576",
    "--long-poll-timeout-ms",
    "60000",
];
const PAGE_BYTES: u64 = 32_768;

/// A client, and the server that it talks to over one connection.
struct Client {
    dir: DataDir,
    running: Option<common::Server>,
    connection: RefCell<Option<Connection>>,
}

impl Client {
    fn start() -> Client {
        let mut client = Client { dir: DataDir::new(), running: None, connection: RefCell::default() };
        client.running = Some(common::Server::start_in(&client.dir, &FLAGS));
        client.server().prefix();
        client
    }

    fn server(&self) -> &common::Server {
        self.running.as_ref().expect("a server runs between two restarts")
    }

    /// Ends the server and starts it again.
    fn restart(&mut self, end: impl FnOnce(common::Server)) {
        self.connection.take();
        end(self.running.take().expect("a server runs between two restarts"));
        self.running = Some(common::Server::start_in(&self.dir, &FLAGS));
    }
}

impl Server for Client {
    async fn send(&self, request: &Request) -> Answer {
        let sent = sent(request);
        let mut connection = self.connection.borrow_mut();
        let reused = connection.as_mut().and_then(|connection| connection.try_read_after(&sent));
        // The server ends a connection after some errors.
        taken_apart(reused.unwrap_or_else(|| connection.insert(self.server().connect()).send(&sent)))
    }
}

fn sent(request: &Request) -> common::Request<'static> {
    let mut sent = common::Request::new(request.method, request.target.clone());
    for (name, value) in &request.headers {
        sent = sent.header(name, value);
    }
    if request.body.is_empty() && request.method == "GET" { sent } else { sent.body(&request.body) }
}

fn taken_apart(response: Response) -> Answer {
    let headers = response.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Answer { status: response.status, headers, body: response.body }
}

/// What has been met.
#[derive(Debug, Default)]
struct Tally {
    stops: u64,
    kills: u64,
    unseen: u64,
    unseen_kept: u64,
    polls: u64,
    events: u64,
    segments_gone: usize,
}

struct Model {
    client: Client,
    world: World,
    journal: Journal,
    random: Random,
    tally: Tally,
    /// Segment files that were ever seen.
    segments: BTreeSet<PathBuf>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let paths = ["/test/j0", "/test/t1", "/test/j2", "/test/t3", "/v1/stream/model/j4", "/test/t5"];
        let world = World {
            paths: paths.map(str::to_owned).into(),
            host: "thalweg.test".to_owned(),
            page_bytes: PAGE_BYTES,
            ..World::default()
        };
        let client = Client::start();
        let (random, segments) = (Random::new(seed), BTreeSet::new());
        Model { client, world, journal: Journal::new(seed), random, tally: Tally::default(), segments }
    }

    fn run(mut self, steps: u64) {
        for number in 0..steps {
            self.journal.step(number);
            match self.random.below(100) {
                0 => self.stop(),
                1 => self.kill(),
                2 | 3 => self.kill_within(),
                4..9 => self.poll(),
                9..14 => self.follow(),
                14..17 => {
                    block_on(series(&self.client, &mut self.world, &mut self.journal, &mut self.random))
                }
                _ => block_on(step(&self.client, &mut self.world, &mut self.journal, &mut self.random)),
            }
            if number == steps / 3 {
                self.leave_garbage();
            }
        }
        self.work_until_rewritten();
        self.kill();
        self.stop();
        println!("{:?}", self.tally);
        let Tally { polls, events, segments_gone, .. } = self.tally;
        let met = [polls, events, segments_gone as u64];
        assert!(
            steps < STEPS || met.iter().all(|count| *count > 0),
            "something was never met: {:?}",
            self.tally
        );
    }

    fn verify(&mut self) {
        block_on(verify_all(&self.client, &mut self.world, &mut self.journal, &mut self.random));
        self.segments.extend(segments(&self.client.dir.path()));
        self.tally.segments_gone = self.segments.iter().filter(|path| !path.exists()).count();
    }

    fn stop(&mut self) {
        self.journal.note("stop".to_owned());
        self.client.restart(common::Server::stop);
        self.tally.stops += 1;
        self.verify();
    }

    fn kill(&mut self) {
        self.journal.note("kill".to_owned());
        self.client.restart(common::Server::kill);
        self.tally.kills += 1;
        self.verify();
    }

    /// Kills the server while it does an operation.
    fn kill_within(&mut self) {
        let operation = choose(&mut self.random, &self.world, false);
        self.journal.note(format!("kill within {operation:?}"));
        let request = sent(&operation.request(&self.world));
        let mut connection = self.client.server().connect();
        connection.start(&request);
        // A moment that differs, long enough now and then for a commit.
        let spins = self.random.below(100_000);
        for spin in 0..spins {
            std::hint::black_box(spin);
        }
        self.client.server().signal(libc::SIGKILL);
        let answer = connection.read_response_or_cut(&request.method).ok().flatten();
        self.client.restart(|server| drop(server.wait()));
        match answer {
            Some(answer) => drop(judge(&mut self.world, &operation, &taken_apart(answer))),
            None => {
                let next = |world: &World| world.streams.get(&operation.name).map(Stream::next);
                let before = next(&self.world);
                let outcomes = outcomes(&self.world, &operation);
                self.world = block_on(resolve(&self.client, outcomes, &mut self.journal, &operation));
                self.tally.unseen += 1;
                self.tally.unseen_kept += u64::from(before != next(&self.world));
            }
        }
        self.verify();
    }

    /// Does an operation.
    fn perform(&mut self, name: usize, act: Act) {
        let operation = Operation { name, act };
        block_on(perform(&self.client, &mut self.world, &mut self.journal, &operation));
    }

    /// A small content that a stream takes.
    fn good_content(&mut self, kind: Kind) -> Content {
        loop {
            let content = content(&mut self.random, kind, true);
            if content.messages.as_ref().is_ok_and(|messages| !messages.is_empty()) {
                return content;
            }
        }
    }

    /// An open stream, if there is one where it was looked for.
    fn open_stream(&mut self) -> Option<(usize, Stream)> {
        let name = self.random.below(self.world.paths.len() as u64) as usize;
        let stream = self.world.streams.get(&name).filter(|stream| !stream.closed)?;
        Some((name, stream.clone()))
    }

    /// A long-poll at the tail: silent until there is something to say.
    fn poll(&mut self) {
        let Some((name, stream)) = self.open_stream() else { return };
        let by_record = stream.is_json() && self.random.one_in(2);
        let from = match by_record {
            true => From::Record(stream.next()),
            false => From::Offset(Offset::Plain(stream.tail())),
        };
        let envelope = by_record && self.random.one_in(2);
        let operation = Operation { name, act: Act::Read(Read { live: true, envelope, ..Read::at(from) }) };
        self.journal.note(format!("poll: {operation:?}"));
        let request = sent(&operation.request(&self.world));
        let mut connection = self.client.server().connect();
        connection.start(&request);
        assert!(!connection.has_news(), "nothing has happened");
        let content = self.good_content(stream.kind);
        self.perform(name, Act::Append(Append::of(stream.kind, content)));
        let answer = taken_apart(connection.read_response(&request.method));
        let expected = self.world.apply(&operation, None);
        check(&mut self.world, &operation, &expected, &answer);
        self.tally.polls += 1;
    }

    /// Follows a stream by events from somewhere on, over an append.
    fn follow(&mut self) {
        let Some((name, stream)) = self.open_stream() else { return };
        let ordinal = stream.first + self.random.below(stream.next() - stream.first + 1);
        let by_record = stream.is_json() && self.random.one_in(2);
        let envelope = by_record && self.random.one_in(2);
        let from = match by_record {
            true => From::Record(ordinal),
            false => From::Offset(Offset::Plain(stream.offset_of(ordinal))),
        };
        let read = Operation { name, act: Act::Read(Read { envelope, ..Read::at(from) }) };
        let mut request = read.request(&self.world);
        request.target.push_str("&live=sse");
        self.journal.note(format!("follow: {request:?}"));
        let mut events = common::Events::open(self.client.server(), &sent(&request));
        let mut at = ordinal;
        for is_last in [false, true] {
            let stream = self.world.streams[&name].clone();
            let tail = stream.token(stream.tail());
            let mut data = Vec::new();
            while at < stream.next() || (!is_last && data.is_empty()) {
                let event = events.next();
                if event.name == "data" {
                    data.push(event.data);
                    continue;
                }
                check_control(&stream, &event, by_record);
                let (_, offset) = exchange::split_token(&event.control("streamNextOffset"));
                let Some(next) = stream.ordinal_at(offset) else {
                    // A long message of bytes is sent in pieces.
                    assert!(!stream.is_json(), "{offset} lies within a record");
                    continue;
                };
                check_events(&stream, at, next, envelope, &data);
                (at, data) = (next, Vec::new());
                if event.control("streamNextOffset") == tail {
                    assert!(event.says("upToDate"), "{event:?}");
                    break;
                }
            }
            if !is_last {
                let content = self.good_content(stream.kind);
                self.perform(name, Act::Append(Append::of(stream.kind, content)));
            }
        }
        self.tally.events += 1;
    }

    /// A stream of large appends that is deleted.
    fn leave_garbage(&mut self) {
        let name = 5;
        if self.world.streams.contains_key(&name) {
            self.perform(name, Act::Delete);
        }
        let create = Create { kind: Kind::Text, closed: false, attributes: None, content: None };
        self.perform(name, Act::Create(create));
        for _ in 0..50 {
            let content = text(&self.random.letters(50_000));
            self.perform(name, Act::Append(Append::of(Kind::Text, content)));
        }
        self.perform(name, Act::Delete);
    }

    /// Goes on until the server has rewritten segments.
    fn work_until_rewritten(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        self.leave_garbage();
        self.verify();
        while self.tally.segments_gone == 0 {
            assert!(Instant::now() < deadline, "nothing is rewritten");
            block_on(step(&self.client, &mut self.world, &mut self.journal, &mut self.random));
            self.verify();
        }
    }
}

/// A control event tells the boundary behind the data before it (extension 6.9).
fn check_control(stream: &Stream, event: &common::Event, by_record: bool) {
    let (lineage, offset) = exchange::split_token(&event.control("streamNextOffset"));
    assert_eq!(Some(lineage), stream.lineage, "{event:?}");
    let json = event.json();
    match by_record {
        true => {
            assert_eq!(json["streamFirstRecord"], stream.first, "{event:?}");
            let next = stream.ordinal_at(offset);
            assert_eq!(json["streamNextRecord"].as_u64(), next, "{event:?}");
        }
        false => assert!(json.get("streamNextRecord").is_none(), "{event:?}"),
    }
}

/// Data events show just the messages of a range.
fn check_events(stream: &Stream, from: u64, to: u64, envelope: bool, data: &[String]) {
    let messages = stream.messages(from, to).iter().map(|message| String::from_utf8(message.to_vec()));
    let messages: Vec<String> = messages.map(|text| text.expect("messages are text")).collect();
    if envelope {
        let expected = (from..)
            .zip(&messages)
            .map(|(ordinal, value)| format!("{{\"record\":{ordinal},\"value\":{value}}}"));
        assert_eq!(data, expected.collect::<Vec<_>>(), "envelopes {from} to {to}");
        return;
    }
    let shown = match stream.is_json() {
        false => data.concat(),
        true => {
            let inside = |array: &String| {
                let inside = array.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                inside.unwrap_or_else(|| panic!("no array: {array}")).to_owned()
            };
            data.iter().map(inside).collect::<Vec<_>>().join(",")
        }
    };
    let expected = messages.join(if stream.is_json() { "," } else { "" });
    assert!(shown == expected, "messages {from} to {to}: {shown:.300}");
}

#[test]
fn what_is_seen_is_what_was_done() {
    let seed = Random::seed("THALWEG_SEED");
    let steps = std::env::var("THALWEG_MODEL_STEPS").map_or(STEPS, |text| text.parse().expect("a number"));
    println!("THALWEG_SEED={seed} THALWEG_MODEL_STEPS={steps}");
    Model::new(seed).run(steps);
}
