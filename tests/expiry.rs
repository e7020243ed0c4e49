//! Sliding windows and absolute expiry: decision 24. Waiting is by asking, and no test says how long anything takes: only
//! that it does not come early, and that it comes.

mod common;

use std::thread::sleep;
use std::time::{Duration, Instant};

use common::server::PATIENCE;
use common::{DataDir, Server, Stream, TEXT};

/// How often is asked whether a stream is still there.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until the stream is gone; tells when that was seen. HEAD renews nothing.
fn gone(stream: &Stream<'_>) -> Instant {
    let deadline = Instant::now() + PATIENCE;
    while stream.request("HEAD").send().status != 404 {
        assert!(Instant::now() < deadline, "the stream does not expire");
        sleep(PAUSE);
    }
    Instant::now()
}

/// Uses the stream for longer than its window by `renew`, then checks that it expired no earlier than a window after.
fn renews(name: &str, renew: impl Fn(&Stream<'_>)) {
    let server = Server::start(&[]);
    let stream = server.create_with(name, TEXT, &[("Stream-TTL", "1")]);
    let begin = Instant::now();
    let mut last = begin;
    while begin.elapsed() < Duration::from_millis(2500) {
        last = Instant::now();
        renew(&stream);
        sleep(PAUSE);
    }
    assert!(gone(&stream) >= last + Duration::from_secs(1), "decision 24: expiry never comes early");
}

#[test]
fn decision_24_reads_renew() {
    renews("reads", |stream| {
        stream.get("offset=-1").expect(200);
    });
}

#[test]
fn decision_24_an_answer_of_304_renews() {
    renews("unchanged", |stream| {
        let etag = stream.get("offset=-1").expect(200).required("etag").to_owned();
        stream.get("offset=-1").header("If-None-Match", etag).expect(304);
    });
}

#[test]
fn decision_24_appends_renew() {
    renews("appends", |stream| {
        stream.append("x");
    });
}

#[test]
fn decision_24_batches_renew() {
    renews("batches", |stream| {
        stream.batch(&["x", "y"]);
    });
}

/// The stream expires although it is asked all the time in a way that does not count.
fn does_not_renew(name: &str, ask: impl Fn(&Stream<'_>)) {
    let server = Server::start(&[]);
    let stream = server.create_with(name, TEXT, &[("Stream-TTL", "1")]);
    let made = Instant::now();
    let deadline = made + PATIENCE;
    while stream.request("HEAD").send().status == 200 {
        assert!(Instant::now() < deadline, "the stream does not expire");
        ask(&stream);
        sleep(PAUSE);
    }
}

#[test]
fn decision_24_head_and_a_matching_put_do_not_renew() {
    does_not_renew("heads", |_| {});
    does_not_renew("puts", |stream| {
        // It may have expired since it was last asked; then this makes it anew, without a window.
        if stream.put().header("Stream-TTL", "1").send().status == 201 {
            stream.delete();
        }
    });
}

#[test]
fn decision_24_a_refused_request_does_not_renew() {
    does_not_renew("refused", |stream| {
        stream.get("offset=nonsense").send();
        stream.request("POST").header("Content-Type", "image/png").body("x").send();
    });
}

#[test]
fn decision_24_a_live_reader_keeps_a_stream() {
    let server = Server::start(&["--sse-max-ms", "3600000", "--long-poll-timeout-ms", "3600000"]);
    for live in ["sse", "long-poll"] {
        let stream = server.create_with(live, TEXT, &[("Stream-TTL", "1")]);
        let mut reader = server.connect();
        reader.start(&stream.get(&format!("offset=now&live={live}")));
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(2500) {
            assert_eq!(stream.request("HEAD").send().status, 200, "{live}: expired under its reader");
            sleep(PAUSE);
        }
        drop(reader);
        gone(&stream);
    }
}

#[test]
fn decision_24_an_expired_stream_frees_its_name() {
    let server = Server::start(&[]);
    for stream in [
        server.create_with("sliding", TEXT, &[("Stream-TTL", "1")]),
        server.create_with("absolute", TEXT, &[("Stream-Expires-At", &soon())]),
    ] {
        let token = stream.append("old");
        gone(&stream);
        stream.get("offset=-1").expect(404);
        stream.post("x").expect(404);
        stream.request("DELETE").expect(404);
        stream.put().expect(201);
        assert_eq!(stream.read_text(), "");
        stream.get(&format!("offset={token}")).expect(410);
    }
}

/// An instant a second or two from now.
fn soon() -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "-d", "+2 seconds", "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .expect("date can be run");
    String::from_utf8(output.stdout).expect("a date is text").trim().to_owned()
}

#[test]
fn decision_24_reads_do_not_move_an_absolute_expiry() {
    let server = Server::start(&[]);
    let stream = server.create_with("absolute", TEXT, &[("Stream-Expires-At", &soon())]);
    stream.append("x");
    let deadline = Instant::now() + PATIENCE;
    while stream.get("offset=-1").send().status == 200 {
        assert!(Instant::now() < deadline, "the stream does not expire");
        sleep(PAUSE);
    }
}

#[test]
fn a_ttl_of_zero_is_over_at_once() {
    let server = Server::start(&[]);
    let stream = server.stream(&format!("{}zero", server.prefix()), TEXT);
    stream.put().header("Stream-TTL", "0").expect(201);
    gone(&stream);
}

#[test]
fn decision_24_a_restart_never_shortens_a_window() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &[]);
    let path = server.create_with("window", TEXT, &[("Stream-TTL", "3")]).path;
    let mut used = Instant::now();
    server.stream(&path, TEXT).append("x");
    server.kill();
    for _ in 0..3 {
        let server = Server::start_in(&dir, &[]);
        let stream = server.stream(&path, TEXT);
        assert!(used.elapsed() < Duration::from_secs(3), "the machine is too slow for this test");
        used = Instant::now();
        stream.get("offset=-1").expect(200);
        server.kill();
    }
    let server = Server::start_in(&dir, &[]);
    assert!(gone(&server.stream(&path, TEXT)) >= used + Duration::from_secs(3), "it expired early");
    server.kill();
    // Once it has shown, it stays so.
    let server = Server::start_in(&dir, &[]);
    server.stream(&path, TEXT).request("HEAD").expect(404);
}
