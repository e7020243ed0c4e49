//! Starting and stopping: flags, environment, preflight, signals, exit codes.

mod common;

use std::process::Output;

use common::{DataDir, Server, TEXT};

fn run(args: &[&str]) -> Output {
    Server::command().args(args).output().expect("the binary under test can be run")
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, part: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.to_lowercase().contains(&part.to_lowercase()), "no {part:?} in {errors:?}");
    assert!(!errors.contains("panicked"), "{errors}");
}

const FLAGS: [&str; 18] = [
    "listen",
    "data-dir",
    "shards",
    "cpus",
    "shard-ports",
    "sync",
    "commit-delay-us",
    "spin-us",
    "segment-bytes",
    "cache-bytes",
    "hot-bytes",
    "max-body-bytes",
    "max-snapshot-bytes",
    "max-connections",
    "long-poll-timeout-ms",
    "sse-max-ms",
    "read-page-bytes",
    "trust-proxy",
];

#[test]
fn help_shows_every_flag_with_its_variable_and_default() {
    let output = run(&["serve", "--help"]);
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).expect("help is text");
    for flag in FLAGS {
        assert!(help.contains(&format!("--{flag}")), "--{flag}");
        let variable = format!("THALWEG_{}", flag.to_uppercase().replace('-', "_"));
        assert!(help.contains(&variable), "{variable}");
    }
    for default in ["127.0.0.1:4437", "always", "32MiB", "25000", "55000"] {
        assert!(help.contains(default), "{default}");
    }
}

#[test]
fn bad_values_are_refused_with_code_2() {
    let dir = DataDir::new();
    let path = dir.path();
    let path = path.to_str().expect("a test path is text");
    for (flag, bad) in [
        ("--listen", "nowhere"),
        ("--listen", "127.0.0.1"),
        ("--listen", "127.0.0.1:99999"),
        ("--shards", "0"),
        ("--shards", "257"),
        ("--shards", "-1"),
        ("--shards", "two"),
        ("--cpus", "x"),
        ("--cpus", "100000"),
        ("--sync", "sometimes"),
        ("--commit-delay-us", "-5"),
        ("--commit-delay-us", "100001"),
        ("--segment-bytes", "4096"),
        ("--segment-bytes", "9999999999999"),
        ("--cache-bytes", "lots"),
        ("--spin-us", "251"),
        ("--hot-bytes", "5GiB"),
        ("--hot-bytes", "-1"),
        ("--max-body-bytes", "0"),
        ("--max-body-bytes", "99999999999"),
        ("--max-connections", "0"),
        ("--long-poll-timeout-ms", "0"),
        ("--long-poll-timeout-ms", "99999999999"),
        ("--sse-max-ms", "x"),
        ("--read-page-bytes", "1"),
        ("--no-such-flag", "1"),
    ] {
        let output = run(&["serve", "--data-dir", path, &format!("{flag}={bad}")]);
        assert_refused(&output, 2, flag.trim_start_matches('-'));
        assert!(!dir.path().exists(), "{flag} {bad}: refused, and yet the data directory was made");
    }
    assert_refused(&run(&["no-such-command"]), 2, "no-such-command");
}

#[test]
fn variables_stand_for_flags_and_flags_win() {
    let dir = DataDir::new();
    let mut command = Server::command();
    command
        .arg("serve")
        .env("THALWEG_LISTEN", "127.0.0.1:0")
        .env("THALWEG_DATA_DIR", dir.path())
        .env("THALWEG_SHARDS", "3")
        .env("THALWEG_SEGMENT_BYTES", "1048576")
        .env("THALWEG_LONG_POLL_TIMEOUT_MS", "20")
        .env("THALWEG_MAX_BODY_BYTES", "10")
        .args(["--max-body-bytes", "20"]);
    let server = Server::spawn(&mut command).unwrap_or_else(|ended| panic!("{ended:?}"));
    let stream = server.create("variables", TEXT);
    assert!(stream.head().required("stream-shard").ends_with("/3"));
    stream.post("x".repeat(20)).expect(204);
    stream.post("x".repeat(21)).expect(413);
    stream.get("offset=now&live=long-poll").expect(204);
    let output =
        Server::command().args(["serve"]).env("THALWEG_SHARDS", "many").output().expect("it can be run");
    assert_refused(&output, 2, "shards");
}

#[test]
fn signals_stop_it_cleanly() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Server::start(&[]);
        server.create("signals", TEXT).append("x");
        server.signal(signal);
        let ended = server.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    }
}

#[test]
fn requests_under_way_are_answered_before_it_stops() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &[]);
    let stream = server.create("under-way", TEXT);
    let path = stream.path.clone();
    let request = stream.post("the whole body");
    let bytes = request.bytes();
    let mut connection = server.connect();
    // A request whose head has been read: the interim answer proves it.
    let expecting = stream.post("another body").header("Expect", "100-continue");
    let head = expecting.head_bytes();
    connection.write(&head);
    assert_eq!(connection.read_head().expect("an interim answer").status, 100);
    server.signal(libc::SIGTERM);
    connection.write(&expecting.bytes()[head.len()..]);
    // The signal may reach the shard before or after the body: the answer comes, and the connection ends.
    connection.read_response("POST").expect(204);
    assert!(connection.is_closed());
    // Nothing new is taken.
    if let Ok(socket) = std::net::TcpStream::connect(server.address()) {
        let mut late = common::Connection::new(socket, false);
        let _ = late.try_write(&bytes);
        if let Some(answer) = late.try_read_response("POST") {
            assert_eq!(answer.status, 503);
        }
    }
    let ended = server.wait();
    assert!(ended.status.success(), "{ended:?}");
    let server = Server::start_in(&dir, &[]);
    assert_eq!(server.stream(&path, TEXT).read_text(), "another body");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start(&[]);
    let stream = server.create("impatient", TEXT);
    // A body that never comes would hold up the stop.
    let expecting = stream.post("never").header("Expect", "100-continue");
    let mut connection = server.connect();
    connection.write(&expecting.head_bytes());
    assert_eq!(connection.read_head().expect("an interim answer").status, 100);
    server.signal(libc::SIGTERM);
    server.signal(libc::SIGINT);
    let ended = server.wait();
    assert!(!ended.errors.contains("panicked"), "{ended:?}");
}

#[test]
fn a_data_directory_has_one_server() {
    let dir = DataDir::new();
    let first = Server::start_in(&dir, &[]);
    let Err(ended) = Server::try_start(&dir, &[]) else { panic!("two servers run over one directory") };
    assert!(!ended.status.success() && ended.status.code() != Some(2), "{ended:?}");
    assert!(ended.errors.contains("in use"), "{ended:?}");
    first.create("unharmed", TEXT).append("x");
    first.stop();
    Server::start_in(&dir, &[]).stop();
}

#[test]
fn a_port_that_is_taken_is_said_so() {
    let first = Server::start(&[]);
    let dir = DataDir::new();
    let mut command = Server::command();
    command.args(["serve", "--listen", &first.address().to_string(), "--data-dir"]).arg(dir.path());
    let Err(ended) = Server::spawn(&mut command) else { panic!("two servers listen on one port") };
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.errors.contains(&first.address().port().to_string()), "{ended:?}");
    assert!(ended.errors.contains("in use"), "{ended:?}");
}

#[test]
fn a_data_directory_that_cannot_be_is_said_so() {
    let dir = DataDir::new();
    std::fs::write(dir.path(), "a file").expect("a file can be written");
    let Err(ended) = Server::try_start(&dir, &[]) else { panic!("a file is no directory") };
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.errors.contains(dir.path().to_str().expect("a test path is text")), "{ended:?}");
    assert!(!ended.errors.contains("panicked"), "{ended:?}");
}

#[test]
fn more_shards_than_cores_are_fine() {
    let server = Server::start(&["--shards", "8"]);
    for n in 0..40 {
        let stream = server.create(&format!("many-{n}"), TEXT);
        stream.append("x");
        assert_eq!(stream.read_text(), "x");
    }
    server.stop();
}

#[test]
fn shard_ports_lead_straight_to_a_shard() {
    // Below the range that connections take theirs from; three in a row are mostly free, but not always.
    let dir = DataDir::new();
    let (server, base) = (0..40)
        .find_map(|attempt| {
            let port = 10_000 + ((std::process::id() + attempt * 97) % 6000) as u16 * 3;
            let mut command = Server::command();
            let listen = format!("127.0.0.1:{port}");
            command.args(["serve", "--listen", &listen, "--shards", "2", "--shard-ports"]);
            command.args(["--segment-bytes", "4194304", "--data-dir"]).arg(dir.path());
            Server::spawn(&mut command).ok().map(|server| (server, port))
        })
        .expect("three free ports in a row");
    let stream = server.create("ports", TEXT);
    let shard: u16 =
        stream.head().required("stream-shard").split('/').next().and_then(|n| n.parse().ok()).expect("n/2");
    for port in [base + 1 + shard, base + 1 + (1 - shard)] {
        let socket = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a shard listens on its port");
        let mut connection = common::Connection::new(socket, false);
        // The right one answers itself; the other one hands the connection over.
        let answer = connection.send(&stream.request("HEAD")).expect(200);
        assert_eq!(answer.required("stream-shard"), format!("{shard}/2"));
    }
}
