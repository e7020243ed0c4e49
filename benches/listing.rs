//! Buckets with many streams: `cargo bench --bench listing -- [--streams N] [--shards N] [--server PATH] [--cpus LIST]`.
//!
//! `--cpus` are the cores of the server; pin the load itself with `taskset`. `--test` makes it small, to see that it works.
//!
//! Starts a server over an empty directory, creates N idle streams in one bucket in no order of their ids, and prints what
//! a stream costs in memory (resident size, from a tenth of the streams on, so that what a server costs anyway does not
//! count), how long pages and metadata take, what appends see meanwhile, and a restart. Asserts only that answers are whole.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{DataDir, Server};
use thalweg::node::manifest::Manifest;
use thalweg::shard::{owner, placement};

/// Times that each question is asked.
const RUNS: usize = 50;
/// Connections that create streams, for each shard.
const CONNECTIONS: usize = 256;

struct Options {
    streams: u64,
    shards: usize,
    server: Option<String>,
    cpus: Option<String>,
}

impl Options {
    fn parse() -> Options {
        let mut options = Options { streams: 1_000_000, shards: 1, server: None, cpus: None };
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{flag} needs a value"));
            match flag.as_str() {
                // Only to see that it still works.
                "--test" => options.streams = 5000,
                "--streams" => options.streams = value().parse().expect("a number of streams"),
                "--shards" => options.shards = value().parse().expect("a number of shards"),
                "--server" => options.server = Some(value()),
                "--cpus" => options.cpus = Some(value()),
                _ => panic!("unknown option {flag}"),
            }
        }
        options
    }

    fn start(&self, dir: &DataDir) -> Server {
        let server = self.server.as_deref().unwrap_or(env!("CARGO_BIN_EXE_thalweg"));
        let mut command = Command::new(server);
        if let Some(cpus) = &self.cpus {
            // A child may use what its parent may: the load is pinned elsewhere.
            command = Command::new("taskset");
            command.args(["-c", cpus, server]);
        }
        let shards = self.shards.to_string();
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--shards",
            &shards,
            "--cache-bytes",
            "1MiB",
            "--data-dir",
        ]);
        command.arg(dir.path());
        Server::spawn(&mut command).expect("the server starts")
    }
}

/// Name of the stream with this number; numbers that follow each other are far apart.
fn name(number: u64, streams: u64) -> String {
    // A prime that does not divide the number of streams, so every name comes once.
    format!("user-{:08}", (number * 1_000_003 + 17) % streams)
}

/// A connection that pipelines.
struct Pipe {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Pipe {
    fn new(server: &Server) -> Pipe {
        let socket = server.connect_raw();
        socket.set_nodelay(true).expect("a socket can do without delay");
        Pipe { socket, unread: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server takes requests");
    }

    /// Reads one answer; its status line's code, and its body.
    fn receive(&mut self) -> (u16, Vec<u8>) {
        loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.unread[..end]).to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                let length: usize = length.map_or(0, |text| text.parse().expect("a length"));
                if self.unread.len() >= end + 4 + length {
                    let body = self.unread[end + 4..end + 4 + length].to_vec();
                    self.unread.drain(..end + 4 + length);
                    return (head[9..12].parse().expect("a status"), body);
                }
            }
            let mut buffer = [0; 64 * 1024];
            let count = self.socket.read(&mut buffer).expect("the server answers");
            assert!(count > 0, "the server closed the connection");
            self.unread.extend_from_slice(&buffer[..count]);
        }
    }

    fn ask(&mut self, method: &str, target: &str, body: &str) -> (u16, Vec<u8>) {
        self.send(&request(method, target, body));
        self.receive()
    }
}

fn request(method: &str, target: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Creates streams `from..to`, those of each shard on connections of its own: one that moves with every request is slow.
fn create(server: &Server, options: &Options, seed: u64, from: u64, to: u64) {
    std::thread::scope(|scope| {
        for shard in 0..options.shards {
            scope.spawn(move || {
                let owned = |name: &String| {
                    let key = format!("agents/{name}");
                    owner(placement(key.as_bytes(), seed), options.shards) == shard
                };
                let mut names =
                    (from..to).map(|number| name(number, options.streams)).filter(owned).peekable();
                // Creates on one connection wait for each other, those of many share a commit.
                let mut pipes: Vec<Pipe> = (0..CONNECTIONS).map(|_| Pipe::new(server)).collect();
                while names.peek().is_some() {
                    let sent = pipes.iter_mut().zip(names.by_ref()).map(|(pipe, name)| {
                        pipe.send(&request("PUT", &format!("/agents/{name}"), ""));
                    });
                    let count = sent.count();
                    pipes[..count].iter_mut().for_each(|pipe| assert_eq!(pipe.receive().0, 201));
                }
            });
        }
    });
}

/// Resident bytes of a process.
fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a resident size");
    1024 * line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).expect("kilobytes")
}

/// The middle, and the greatest, of some times.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
    format!("median {:8.2} ms   greatest {:8.2} ms   ({} times)", ms(middle), ms(last), times.len())
}

/// Asks the same again and again.
fn time(server: &Server, what: &str, target: &str, expected: &str) {
    let mut pipe = Pipe::new(server);
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        let (status, body) = pipe.ask("GET", target, "");
        times.push(start.elapsed());
        let text = String::from_utf8(body).expect("JSON is text");
        assert!(
            status == 200 && text.contains(expected),
            "{target}: {status} {}",
            &text[..text.len().min(200)]
        );
    }
    println!("{what:34} {}", summary(times));
}

/// Times of single appends to one stream while `under_way` runs, or for a while.
fn appends(server: &Server, what: &str, under_way: impl Fn(&AtomicBool) + Send + Sync) {
    let mut pipe = Pipe::new(server);
    let done = AtomicBool::new(false);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| under_way(&done));
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let start = Instant::now();
            assert_eq!(pipe.ask("POST", "/agents/user-00000000", "x").0, 204);
            times.push(start.elapsed());
        }
        done.store(true, Ordering::Relaxed);
    });
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100].as_secs_f64() * 1000.0;
    println!("{what:34} {}   99 % {p99:.2} ms", summary(times));
}

fn main() {
    let options = Options::parse();
    let (streams, dir) = (options.streams, DataDir::new());
    let server = options.start(&dir);
    let seed = Manifest::load(&dir.path()).expect("a manifest").expect("a data directory").placement_seed;
    server.request("PUT", "/agents").expect(201);
    println!("{streams} streams in one bucket, {} shards", options.shards);
    create(&server, &options, seed, 0, streams / 10);
    let few_bytes = resident_bytes(&server);
    let start = Instant::now();
    create(&server, &options, seed, streams / 10, streams);
    let rate = (streams - streams / 10) as f64 / start.elapsed().as_secs_f64();
    let per_stream = (resident_bytes(&server) - few_bytes) as f64 / (streams - streams / 10) as f64;
    println!("{:34} {per_stream:8.0} bytes a stream   ({rate:.0} creates/s)", "memory");

    let page = "\"stream_count\":1000,";
    time(&server, "first page", "/agents/streams", page);
    let middle = format!("/agents/streams?after=user-{:08}", streams / 2);
    time(&server, "middle page", &middle, page);
    let last = format!("/agents/streams?after=user-{:08}", streams - 1001);
    time(&server, "last page", &last, "\"has_more\":false");
    let prefix = format!("user-{:05}", streams / 2000);
    let prefixed = format!("/agents/streams?prefix={prefix}");
    time(
        &server,
        "page with a prefix",
        &prefixed,
        &format!("\"prefix\":\"{prefix}\",\"stream_count\":1000,"),
    );
    time(&server, "page of one", "/agents/streams?limit=1", "\"stream_count\":1,");
    time(&server, "metadata", "/agents", &format!("\"streams\":{streams}}}"));

    appends(&server, "appends alone", |done| {
        while !done.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    });
    appends(&server, "appends while pages are read", |done| {
        let mut pipe = Pipe::new(&server);
        while !done.load(Ordering::Relaxed) {
            assert_eq!(pipe.ask("GET", &middle, "").0, 200);
        }
    });

    server.stop();
    let start = Instant::now();
    let server = options.start(&dir);
    println!("{:34} {:8.2} s", "restart", start.elapsed().as_secs_f64());
    println!(
        "{:34} {:8.0} bytes a stream",
        "memory after it, all in all",
        resident_bytes(&server) as f64 / streams as f64
    );
    time(&server, "metadata", "/agents", &format!("\"streams\":{streams}}}"));
}
