//! Every maximum that a client can meet: what it gets, and that the server goes on. See `src/limits.rs`.

mod common;

use std::time::Instant;

use common::batch::frames;
use common::server::PATIENCE;
use common::{JSON, OCTETS, Server, TEXT};

#[test]
fn a_body_may_be_as_large_as_allowed_and_no_larger() {
    let server = Server::start(&["--max-body-bytes", "100000"]);
    let stream = server.create("body", OCTETS);
    for chunked in [false, true] {
        let request = |size: usize| {
            let request = stream.post(vec![7; size]);
            if chunked { request.chunked() } else { request }
        };
        request(100_000).expect(204);
        request(100_001).expect(413);
        request(1_000_000).expect(413);
    }
    let create = server.stream(&format!("{}another", server.prefix()), OCTETS);
    create.put().body(vec![7; 100_001]).expect(413);
    create.request("HEAD").expect(404);
    stream.batch_request(frames(&[vec![7; 100_000]])).expect(413);
    assert_eq!(stream.read().len(), 200_000);
}

#[test]
fn the_default_body_limit_is_32_mib() {
    let server = Server::start(&[]);
    let stream = server.create("default", OCTETS);
    let most = 32 * 1024 * 1024;
    stream.post(vec![1; most + 1]).expect(413);
    let body: Vec<u8> = (0..most).map(|n| (n / 997) as u8).collect();
    stream.post(&body).expect(204);
    assert!(stream.read() == body, "the bytes differ");
    let json = server.create("default-json", JSON);
    let record = format!("\"{}\"", "x".repeat(most - 2));
    json.post(&record).expect(204);
    json.append("1");
    assert!(json.records() == [record.as_str(), "1"], "the records differ");
}

#[test]
fn a_length_beyond_all_limits_is_refused_without_its_body() {
    let server = Server::start(&[]);
    let stream = server.create("huge", TEXT);
    for length in ["1000000000000", "18446744073709551615"] {
        let mut connection = server.connect();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n",
            stream.path
        );
        connection.write(head.as_bytes());
        connection.read_response("POST").expect(413);
    }
}

#[test]
fn heads_have_limits() {
    let server = Server::start(&[]);
    let stream = server.create("heads", TEXT);
    let raw = |head: String| {
        let mut connection = server.connect();
        let _ = connection.try_write(head.as_bytes());
        let status = connection.read_response("GET").status;
        assert!(connection.is_closed());
        status
    };
    let line = format!("GET {}?offset=-1", stream.path);
    assert_eq!(raw(format!("{line}&x={} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(9000))), 414);
    assert_eq!(raw(format!("{line} HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "y".repeat(70_000))), 431);
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    assert_eq!(raw(format!("{line} HTTP/1.1\r\nHost: x\r\n{many}\r\n")), 431);
    // A head that never ends is refused while it comes.
    let mut connection = server.connect();
    connection.write(format!("{line} HTTP/1.1\r\nHost: x\r\n").as_bytes());
    for _ in 0..2000 {
        if connection.try_write(format!("X-A: {}\r\n", "y".repeat(100)).as_bytes()).is_err() {
            break;
        }
    }
    if let Some(answer) = connection.try_read_response("GET") {
        assert_eq!(answer.status, 431);
    }
    // Large but allowed.
    let value = "y".repeat(16_000);
    stream.get("offset=-1").header("X-A", &value).header("X-B", &value).header("X-C", &value).expect(200);
}

#[test]
fn values_of_headers_have_limits() {
    let server = Server::start(&[]);
    let stream = server.create("values", TEXT);
    let (fits, too_long) = ("x".repeat(256), "x".repeat(257));
    stream.post("x").header("Stream-Seq", &fits).expect(204);
    stream.post("x").header("Stream-Seq", format!("y{fits}")).expect(400);
    stream.produce(&fits, 0, 0, "x").expect(200);
    stream.produce(&too_long, 0, 0, "x").expect(400);
    let typed = |length: usize| format!("text/{}", "x".repeat(length - 5));
    server.stream(&format!("{}type", server.prefix()), &typed(256)).put().expect(201);
    server.stream(&format!("{}long-type", server.prefix()), &typed(257)).put().expect(400);
}

#[test]
fn json_nests_only_so_deep() {
    let server = Server::start(&[]);
    let stream = server.create("deep", JSON);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    stream.post(nested(128)).expect(204);
    stream.post(objects(128)).expect(204);
    for body in [nested(1000), objects(1000), "[".repeat(1_000_000), "{\"a\":".repeat(200_000)] {
        stream.post(body).expect(400);
    }
    assert_eq!(stream.records().len(), 2);
}

#[test]
fn an_append_holds_only_so_many_records() {
    let server = Server::start(&[]);
    let stream = server.create("many", JSON);
    let most = 1 << 20;
    let array = |records: usize| format!("[{}0]", "0,".repeat(records - 1));
    // Of different lengths, too, which take more room in the log.
    let uneven = |records: usize| format!("[{}0,11]", "0,11,".repeat(records / 2 - 1));
    stream.post(array(most + 1)).expect(413);
    stream.post(uneven(most + 2)).expect(413);
    let unmade = server.stream(&format!("{}unmade", server.prefix()), JSON);
    unmade.put().body(array(most + 1)).expect(413);
    unmade.request("HEAD").expect(404);
    let answer = stream.post(array(most)).expect(204);
    assert_eq!(answer.header("stream-record-next"), Some("1048576"));
}

#[test]
fn a_stream_remembers_only_so_many_producers() {
    let server = Server::start(&["--shards", "1"]);
    let stream = server.create("producers", TEXT);
    let mut connection = server.connect();
    let most = 4096;
    let mut sent = 0;
    while sent < most {
        let some: Vec<_> =
            (sent..most.min(sent + 128)).map(|n| stream.produce(&format!("p{n}"), 0, 0, "x")).collect();
        connection.write(&some.iter().flat_map(|request| request.bytes()).collect::<Vec<u8>>());
        for _ in &some {
            connection.read_response("POST").expect(200);
        }
        sent += some.len();
    }
    stream.produce("one more", 0, 0, "x").expect(429);
    // Those that are known go on.
    stream.produce("p0", 0, 1, "x").expect(200);
    stream.produce("p4095", 0, 0, "x").expect(204);
    stream.append("x");
    assert_eq!(stream.read().len(), most + 2);
}

#[test]
fn connections_beyond_the_maximum_are_told_so() {
    let server = Server::start(&["--max-connections", "4", "--shards", "1"]);
    // One request each, so that they are known to be accepted.
    let mut kept: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let bucket = server.request("PUT", "/test");
    for connection in &mut kept {
        let status = connection.send(&bucket).status;
        assert!(status == 201 || status == 409, "{status}");
    }
    for _ in 0..10 {
        let mut refused = server.connect();
        let answer = refused.read_response("GET").expect(503);
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
        assert!(refused.is_closed());
    }
    for connection in &mut kept {
        connection.send(&server.request("GET", "/test")).expect(200);
    }
    // A place that becomes free is given away again; when exactly is the server's affair.
    drop(kept.pop());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut next = server.connect();
        let _ = next.try_write(&server.request("GET", "/test").bytes());
        match next.try_read_response("GET") {
            Some(answer) if answer.status == 200 => break,
            _ => assert!(Instant::now() < deadline, "no place becomes free"),
        }
    }
}

#[test]
fn a_head_that_does_not_end_times_out() {
    let server = Server::start(&[]);
    // Ten seconds from the first byte on, however often another one comes.
    let mut silent = server.connect();
    silent.write(b"GET /test HTTP/1.1\r\nHost");
    let mut idle = server.connect();
    let mut dripping = server.connect();
    let dripped = std::thread::spawn(move || {
        for byte in b"GET /".iter().copied().chain(std::iter::repeat(b'x')) {
            if dripping.try_write(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        dripping.try_read_response("GET")
    });
    silent.read_response("GET").expect(408);
    assert!(silent.is_closed());
    if let Some(answer) = dripped.join().expect("the thread does not panic") {
        assert_eq!(answer.status, 408);
    }
    // A connection that says nothing at all costs nothing and is kept longer.
    let status = idle.send(&server.request("PUT", "/idle")).status;
    assert_eq!(status, 201);
}

#[test]
fn readers_that_do_not_read_hold_up_nobody() {
    let server = Server::start(&["--read-page-bytes", "67108864", "--shards", "1"]);
    let stream = server.create("large", OCTETS);
    for _ in 0..3 {
        stream.append(vec![9; 8 * 1024 * 1024]);
    }
    // Far more than sockets buffer; none of it is ever read.
    let mut stuck: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for (n, connection) in stuck.iter_mut().enumerate() {
        let live = if n % 2 == 0 { "" } else { "&live=sse" };
        connection.start(&stream.get(&format!("offset=-1{live}")));
    }
    let other = server.create("small", TEXT);
    for _ in 0..200 {
        other.append("x");
    }
    assert_eq!(other.read_text(), "x".repeat(200));
    stream.append("y");
    assert_eq!(stream.get("offset=25165824").expect(200).text(), "y");
}

#[test]
fn a_slow_writer_holds_up_nobody() {
    let server = Server::start(&["--shards", "1"]);
    let stream = server.create("slow", TEXT);
    let request = stream.post("slowly");
    let bytes = request.bytes();
    let mut slow = server.connect();
    // Between any two of its bytes others get whole appends through.
    for byte in &bytes {
        slow.write(&[*byte]);
        stream.append(".");
    }
    slow.read_response("POST").expect(204);
    let text = stream.read_text();
    assert!(text.contains("slowly"), "{text}");
    assert_eq!(text.len(), bytes.len() + "slowly".len());
}

#[test]
fn thousands_of_idle_connections_hold_up_nobody() {
    let server = Server::start(&[]);
    let stream = server.create("idle", TEXT);
    let idle: Vec<_> = (0..count_of_idle()).map(|_| server.connect_raw()).collect();
    for _ in 0..50 {
        stream.append("x");
    }
    assert_eq!(stream.read_text(), "x".repeat(50));
    // One of them may wake up at any time.
    for socket in idle.into_iter().step_by(100) {
        let mut connection = common::Connection::new(socket, false);
        connection.send(&stream.request("HEAD")).expect(200);
    }
    assert_eq!(stream.tail(), stream.tail());
}

/// `THALWEG_IDLE_CONNECTIONS`, or as many as fit well within an ordinary limit of open files.
fn count_of_idle() -> usize {
    match std::env::var("THALWEG_IDLE_CONNECTIONS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("THALWEG_IDLE_CONNECTIONS={text}")),
        Err(_) => {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: fills the struct it is given.
            let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
            assert_eq!(result, 0);
            ((limit.rlim_cur / 2) as usize).min(2000)
        }
    }
}
