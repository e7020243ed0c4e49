//! The load generator as a program, against the server as a program: every workload runs, finds nothing wrong, and writes an
//! outcome that is whole.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::{DataDir, Server, files};
use thalweg::loadgen::outcome::{Outcome, Verified};

/// Options of every run: short, checked, quiet.
const SHORT: [&str; 6] = ["--duration", "300ms", "--warm-up", "100ms", "--quiet", "--verify"];

/// Where outcomes go; vanishes with the value.
struct Out(tempfile::TempDir);

impl Out {
    fn new() -> Out {
        Out(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory beside the build"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("outcome.json")
    }
}

fn bench(arguments: &[&str]) -> Output {
    let mut command: Command = Server::command();
    command.arg("bench").args(arguments).output().expect("the binary can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a workload against the server and reads its outcome; again if the machine stood still meanwhile.
#[track_caller]
fn run(server: &Server, workload: &str, options: &[&str]) -> Outcome {
    loop {
        let outcome = run_once(server, workload, options);
        if outcome.totals.operations > 0 || !outcome.generator.why.contains("stood still") {
            return outcome;
        }
    }
}

#[track_caller]
fn run_once(server: &Server, workload: &str, options: &[&str]) -> Outcome {
    let (out, address, pid) = (Out::new(), server.address().to_string(), server.pid().to_string());
    let json = out.file();
    let json = json.to_str().expect("a path of text");
    let mut arguments = vec![workload, "--target", &address, "--json", json, "--server-pid", &pid];
    arguments.extend(SHORT);
    arguments.extend(options);
    let output = bench(&arguments);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{workload} {options:?}: {said}");
    let outcome = Outcome::read(out.file().as_path()).expect("an outcome");
    assert_eq!(outcome.conditions.workload, workload);
    assert!(outcome.conditions.command.starts_with("thalweg bench"), "{}", outcome.conditions.command);
    assert!(outcome.totals.errors.is_empty(), "{said}");
    assert!(said.contains("requests") && said.contains("generator"), "{said}");
    outcome
}

/// What every outcome must be in itself.
#[track_caller]
fn check(outcome: &Outcome, series: &[&str]) -> Verified {
    let totals = &outcome.totals;
    assert!(totals.operations > 0 && totals.records > 0 && totals.payload_bytes > 0, "{totals:?}");
    assert!(totals.sent_bytes > 0 && totals.received_bytes > 0, "{totals:?}");
    let names: Vec<&str> = outcome.latencies.keys().map(String::as_str).collect();
    assert_eq!(names, series);
    for (name, latency) in &outcome.latencies {
        let grows = [latency.p50_us, latency.p90_us, latency.p99_us, latency.p99_9_us, latency.max_us];
        assert!(grows.is_sorted() && latency.count > 0, "{name}: {latency:?}");
    }
    let sum =
        |of: fn(&thalweg::loadgen::outcome::Second) -> u64| outcome.timeline.iter().map(of).sum::<u64>();
    assert_eq!(
        (sum(|second| second.operations), sum(|second| second.records)),
        (totals.operations, totals.records)
    );
    assert_eq!(outcome.timeline.last().map(|second| second.at_ms), Some(outcome.measured_us / 1000));
    assert!(outcome.generator.cpu_us > 0, "{:?}", outcome.generator);
    let server = outcome.server.as_ref().expect("the server was measured");
    assert!(server.resident_bytes > 0 && server.peak_resident_bytes >= server.resident_bytes, "{server:?}");
    let verified = outcome.verified.clone().expect("the run was verified");
    assert_eq!((verified.missing, verified.different), (0, 0), "{verified:?}");
    assert!(verified.records > 0 && verified.bytes > 0 && verified.streams > 0, "{verified:?}");
    verified
}

#[test]
fn appends_of_every_shape() {
    let server = Server::start(&["--shard-ports"]);
    let table: &[(&str, &[&str])] = &[
        ("append", &["--connections", "8"]),
        ("append", &["--connections", "8", "--content", "json", "--stay", "--threads", "2"]),
        ("append", &["--connections", "4", "--rate", "500", "--content", "text"]),
        ("append", &["--connections", "6", "--streams", "9", "--shard-aware"]),
        ("append", &["--connections", "4", "--style", "durable", "--payload", "1KiB"]),
        ("append-batch", &["--connections", "2", "--frames", "100"]),
        ("append-batch", &["--connections", "2", "--frames", "7", "--content", "json"]),
        ("json-array", &["--connections", "2", "--frames", "100"]),
        ("json-array", &["--connections", "2", "--frames", "100", "--style", "durable"]),
        ("pipeline", &["--connections", "4", "--streams", "3"]),
        ("pipeline", &["--connections", "4", "--shard-aware", "--stay"]),
    ];
    for (workload, options) in table {
        let outcome = run(&server, workload, options);
        let verified = check(&outcome, &["append"]);
        let totals = &outcome.totals;
        assert!(verified.records >= totals.records, "{options:?}: {verified:?} of {totals:?}");
        assert_eq!(totals.payload_bytes % totals.records, 0);
    }
}

#[test]
fn catch_up_reads() {
    let server = Server::start(&["--cache-bytes", "0", "--read-page-bytes", "65536"]);
    for (options, streams) in [
        (&["--stream-bytes", "200KiB"][..], 1),
        (&["--stream-bytes", "100KiB", "--cold", "--streams", "5", "--frames", "10", "--pause", "10ms"], 5),
        (&["--stream-bytes", "100KiB", "--content", "json", "--streams", "2", "--style", "durable"], 2),
    ] {
        let outcome = run(&server, "read", options);
        let verified = check(&outcome, &["catch_up", "read"]);
        assert_eq!(verified.streams, streams);
        let of_a_stream = outcome.extra["records_of_a_stream"].as_u64().unwrap();
        assert_eq!(verified.records, streams * of_a_stream);
    }
}

#[test]
fn live_readers() {
    let server = Server::start(&["--long-poll-timeout-ms", "50", "--sse-max-ms", "150"]);
    for workload in ["sse", "long-poll"] {
        for options in [
            &["--connections", "20", "--rate", "200"][..],
            &[
                "--connections",
                "10",
                "--rate",
                "300",
                "--streams",
                "3",
                "--content",
                "json",
                "--threads",
                "2",
            ],
            &["--connections", "5", "--rate", "100", "--content", "text", "--writers", "1"],
        ] {
            let outcome = run(&server, workload, options);
            check(&outcome, &["append", "deliver"]);
            let appends = outcome.extra["appends"].as_u64().unwrap();
            assert!(appends > 0 && outcome.totals.records >= appends, "{appends} of {:?}", outcome.totals);
        }
    }
}

#[test]
fn writers_replayers_and_live_readers_together() {
    let server = Server::start(&[]);
    let options =
        ["--connections", "4", "--readers", "8", "--replayers", "2", "--streams", "4", "--rate", "400"];
    let outcome = run(&server, "mixed", &options);
    check(&outcome, &["append", "catch_up", "deliver", "read"]);
}

#[test]
fn streams_that_come_and_go() {
    let server = Server::start(&[]);
    for content in ["binary", "json"] {
        let outcome = run(&server, "churn", &["--connections", "4", "--content", content]);
        let verified = check(&outcome, &["append", "close", "create", "delete", "read"]);
        assert_eq!(verified.streams, verified.records, "every stream held its record");
    }
}

#[test]
fn restarts_gentle_and_hard() {
    for signal in ["term", "kill"] {
        let (dir, out) = (DataDir::new(), Out::new());
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let binary = env!("CARGO_BIN_EXE_thalweg");
        let data = dir.path();
        let command = format!(
            "'{binary}' serve --listen {address} --shards 1 --segment-bytes 4MiB --data-dir '{}'",
            data.display()
        );
        let json = out.file();
        let json = json.to_str().unwrap();
        let output = bench(&[
            "restart",
            "--target",
            &address,
            "--server-command",
            &command,
            "--rounds",
            "2",
            "--signal",
            signal,
            "--streams",
            "3",
            "--stream-bytes",
            "100KiB",
            "--quiet",
            "--json",
            json,
        ]);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        let outcome = Outcome::read(&out.file()).unwrap();
        let verified = outcome.verified.unwrap();
        assert_eq!((verified.streams, verified.missing, verified.different), (3, 0, 0), "{verified:?}");
        assert!(verified.bytes >= 3 * 100 * 1024, "{verified:?}");
        assert_eq!((outcome.totals.operations, outcome.latencies["restart"].count), (2, 2));
        assert!(std::net::TcpStream::connect(&address).is_err(), "the server does not outlive the run");
    }
}

#[test]
fn what_a_run_made_goes_if_that_is_wanted() {
    for (delete, left) in [(&["--delete"][..], 0), (&[], 3)] {
        let dir = DataDir::new();
        let server = Server::start_in(&dir, &["--shards", "1"]);
        let options = [&["--connections", "4", "--streams", "3"], delete].concat();
        let outcome = run(&server, "append", &options);
        assert!(!outcome.extra.contains_key("not_deleted"), "{:?}", outcome.extra);
        server.stop();
        let shown = files::inspect(&dir.path(), &["--entries"]);
        let streams = files::rows(&shown, "stream");
        assert_eq!(streams.iter().filter(|stream| stream["deleted"] == false).count(), left, "{streams:?}");
        let entries = files::rows(&shown, "entry");
        let bucket_deletes = entries.iter().filter(|entry| entry["kind"] == "bucket_deleted").count();
        assert_eq!(bucket_deletes, usize::from(left == 0), "{delete:?}");
    }
}

#[test]
fn the_generator_measures_itself() {
    let out = Out::new();
    let json = out.file();
    let output = bench(&["null", "--duration", "200ms", "--warm-up", "0", "--json", json.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome = Outcome::read(&out.file()).unwrap();
    assert!(outcome.generator.cpu_us_per_operation > 0.0 && outcome.totals.operations > 0);
    assert!(text(&output.stderr).contains("requests/s"), "progress is told: {}", text(&output.stderr));
    assert!(text(&output.stdout).contains("us of CPU a request"), "{}", text(&output.stdout));
}

/// Bad options end with 2, runs that fail with 1; either names what was wrong.
#[test]
fn errors_are_named() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = Server::start(&["--shards", "1"]);
    let there = server.address().to_string();
    let table: &[(&[&str], i32, &str)] = &[
        (&["append", "--streams", "0"], 2, "--streams 0: expected 1 to"),
        (&["null", "--rate", "5"], 2, "--rate: a null run"),
        (&["append", "--duration", "soon"], 2, "`soon` is no time"),
        (&["append", "--target", "https://localhost"], 2, "only http://"),
        (&["append", "--target", &nobody], 1, "connection refused"),
        (&["restart", "--target", &nobody, "--server-command", "exit 3"], 1, "before it answered"),
        (
            &["append", "--target", &there, "--server-pid", "4294967295", "--duration", "10ms"],
            1,
            "no process",
        ),
        (&["append", "--target", &there, "--cpus", "9999"], 1, "--cpus"),
        (
            &["append", "--target", &there, "--json", "/no/such/place", "--duration", "10ms"],
            1,
            "/no/such/place",
        ),
    ];
    for (arguments, code, part) in table {
        let output = bench(arguments);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.contains(part)), (Some(*code), true), "{arguments:?}: {said}");
    }
}
