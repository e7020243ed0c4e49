//! What survives a stop, a kill, and a change of `--shards`.

mod common;

use common::files::{inspect, rows, segments, tool, try_segments};
use common::{DataDir, JSON, OCTETS, Server, TEXT};

/// Everything that a client can see of a stream.
fn face(server: &Server, path: &str, content_type: &str) -> Vec<String> {
    let stream = server.stream(path, content_type);
    let head = stream.request("HEAD").send();
    let mut face = vec![path.to_owned(), head.status.to_string()];
    if head.status == 200 {
        for header in
            ["stream-next-offset", "content-type", "stream-closed", "stream-ttl", "stream-expires-at"]
        {
            face.push(format!("{header}: {:?}", head.header(header)));
        }
        let read = stream.get("offset=-1").expect(200);
        face.push(format!("etag: {:?}", read.header("etag")));
        face.push(String::from_utf8_lossy(&stream.read()).into_owned());
    }
    face
}

/// Makes some of everything; returns the streams' paths with their types.
fn populate(server: &Server) -> Vec<(String, &'static str)> {
    let mut made = Vec::new();
    for bucket in ["alpha", "beta"] {
        server.request("PUT", format!("/{bucket}")).expect(201);
        for n in 0..6 {
            let stream = server.stream(&format!("/{bucket}/s{n}"), if n % 2 == 0 { TEXT } else { JSON });
            stream.put().header("Stream-TTL", "3600").expect(201);
            for m in 0..10 {
                stream.append(format!("[{n},{m}]"));
            }
            stream.batch(&["1", "2", "3"]);
            if n == 2 {
                stream.close();
            }
            if n == 4 {
                stream.delete();
            }
            made.push((stream.path.clone(), if n % 2 == 0 { TEXT } else { JSON }));
        }
    }
    for n in 0..6 {
        let stream = server.stream(&format!("/v1/stream/a/b{n}/\u{63}"), TEXT);
        stream
            .put()
            .header("Stream-Expires-At", "2099-01-01T00:00:00Z")
            .body(format!("flat {n}"))
            .expect(201);
        made.push((stream.path.clone(), TEXT));
    }
    made
}

fn faces(server: &Server, made: &[(String, &'static str)]) -> Vec<Vec<String>> {
    made.iter().map(|(path, content_type)| face(server, path, content_type)).collect()
}

#[test]
fn everything_survives_stops_and_kills() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &[]);
    let made = populate(&server);
    let before = faces(&server, &made);
    server.stop();
    let server = Server::start_in(&dir, &[]);
    assert_eq!(faces(&server, &made), before, "after a stop");
    server.kill();
    let server = Server::start_in(&dir, &[]);
    assert_eq!(faces(&server, &made), before, "after a kill");
    for bucket in ["alpha", "beta"] {
        assert_eq!(server.request("GET", format!("/{bucket}")).expect(200).json()["streams"], 5);
    }
    // It goes on as if nothing had been.
    server.stream("/alpha/s0", TEXT).append("more");
    server.stream("/alpha/s2", TEXT).post("more").expect(409);
    server.stop();
}

#[test]
fn the_start_line_tells_what_was_recovered() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &[]);
    let first = server.create("one", TEXT);
    first.batch(&["a"; 100]);
    server.create("two", JSON).append("[1,2,3]");
    server.stop();
    let server = Server::start_in(&dir, &[]);
    let line = server.start_line().to_owned();
    assert!(line.contains("2 streams") && line.contains("103 records"), "{line}");
    assert!(line.contains(&server.address().to_string()), "{line}");
    assert!(line.contains(dir.path().to_str().expect("a test path is text")), "{line}");
}

#[test]
fn decision_22_producers_survive() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &["--segment-bytes", "1048576"]);
    let path = server.create("producers", JSON).path;
    let mut originals = Vec::new();
    {
        let stream = server.stream(&path, JSON);
        for seq in 0..100 {
            // Large enough that the earlier ones lie in sealed segments.
            let body = format!("[\"{}\",{seq}]", "x".repeat(50_000));
            originals.push(stream.produce("p", 2, seq, body).expect(200));
            stream.produce("q", 0, seq, "7").expect(200);
        }
    }
    server.kill();
    for round in 0..3 {
        let server = Server::start_in(&dir, &["--segment-bytes", "1048576"]);
        let stream = server.stream(&path, JSON);
        for (seq, original) in originals.iter().enumerate() {
            let again = stream.produce("p", 2, seq as u64, "0").expect(204);
            assert_eq!(again.next_offset(), original.next_offset(), "round {round}, sequence {seq}");
            assert_eq!(again.header("stream-record-start"), original.header("stream-record-start"));
            assert_eq!(again.header("stream-record-next"), original.header("stream-record-next"));
        }
        stream.produce("p", 1, 0, "0").expect(403);
        let gap = stream.produce("p", 2, 200, "0").expect(409);
        assert_eq!(gap.header("producer-expected-seq"), Some("100"));
        if round == 0 {
            server.kill();
        } else {
            server.stop();
        }
    }
}

#[test]
fn decision_23_stream_seq_survives() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &[]);
    let stream = server.create("seq", TEXT);
    stream.post("x").header("Stream-Seq", "m").expect(204);
    let path = stream.path.clone();
    server.kill();
    let server = Server::start_in(&dir, &[]);
    let stream = server.stream(&path, TEXT);
    stream.post("x").header("Stream-Seq", "m").expect(409);
    stream.post("x").header("Stream-Seq", "l").expect(409);
    stream.post("x").header("Stream-Seq", "n").expect(204);
}

#[test]
fn decision_8_lineages_are_not_reused_after_a_kill() {
    let dir = DataDir::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut old = Vec::new();
    for round in 0..4 {
        let server = Server::start_in(&dir, &[]);
        for n in 0..8 {
            let stream = server.create(&format!("s{n}"), TEXT);
            let token = stream.append("x");
            assert!(seen.insert(token.clone()), "round {round}: {token} came twice");
            for token in &old {
                assert_eq!(stream.get(&format!("offset={token}")).send().status, 410, "{token}");
            }
            stream.delete();
        }
        old = seen.iter().cloned().collect();
        if round % 2 == 0 { server.kill() } else { server.stop() }
    }
}

#[test]
fn decision_25_a_deleted_stream_stays_deleted() {
    let dir = DataDir::new();
    for round in 0..5 {
        let server = Server::start_in(&dir, &[]);
        let stream = server.create("deleted", TEXT);
        stream.append(format!("{round}"));
        stream.delete();
        let path = stream.path.clone();
        server.kill();
        let server = Server::start_in(&dir, &[]);
        server.stream(&path, TEXT).request("HEAD").expect(404);
        server.stop();
    }
}

#[test]
fn buckets_survive_and_so_do_their_deletions() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &["--shards", "3"]);
    for bucket in ["kept", "gone", "again"] {
        server.request("PUT", format!("/{bucket}")).expect(201);
    }
    server.request("DELETE", "/gone").expect(204);
    server.request("DELETE", "/again").expect(204);
    server.request("PUT", "/again").expect(201);
    server.stream("/again/s", TEXT).put().expect(201);
    server.kill();
    let server = Server::start_in(&dir, &["--shards", "3"]);
    server.request("GET", "/kept").expect(200);
    server.request("GET", "/gone").expect(404);
    assert_eq!(server.request("GET", "/again").expect(200).json()["streams"], 1);
}

#[test]
fn the_number_of_shards_may_change() {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &["--shards", "1"]);
    let made = populate(&server);
    let before = faces(&server, &made);
    let deleted = server.create("lived", TEXT);
    let token = deleted.append("x");
    deleted.delete();
    server.stop();
    for (round, shards) in ["2", "3", "1", "4", "4", "2"].into_iter().enumerate() {
        let server = Server::start_in(&dir, &["--shards", shards]);
        assert_eq!(faces(&server, &made), before, "with {shards} shards");
        for bucket in ["alpha", "beta"] {
            assert_eq!(server.request("GET", format!("/{bucket}")).expect(200).json()["streams"], 5);
            let page = server.request("GET", format!("/{bucket}/streams")).expect(200).json();
            assert_eq!(page["stream_count"], 5);
        }
        // What is written after a change counts as well.
        let stream = server.create(&format!("round-{round}"), TEXT);
        stream.append(format!("{round}"));
        for earlier in 0..=round {
            assert_eq!(
                server.stream(&format!("/test/round-{earlier}"), TEXT).read_text(),
                earlier.to_string()
            );
        }
        // Lineages stay known across the change: a token of an earlier life is gone, not malformed.
        let lived = server.create("lived", TEXT);
        assert_eq!(lived.get(&format!("offset={token}")).send().status, 410);
        lived.delete();
        if round % 2 == 0 { server.stop() } else { server.kill() }
    }
}

#[test]
fn offsets_and_pages_survive_many_segments() {
    let dir = DataDir::new();
    let flags = ["--segment-bytes", "1048576", "--shards", "2", "--cache-bytes", "0"];
    let mut expected = vec![String::new(); 4];
    for round in 0..4 {
        let server = Server::start_in(&dir, &flags);
        let prefix = server.prefix();
        for (n, expected) in expected.iter_mut().enumerate() {
            let stream = server.stream(&format!("{prefix}s{n}"), TEXT);
            stream.put().expect(if round == 0 { 201 } else { 200 });
            for m in 0..20 {
                let text = format!("{round}.{n}.{m}:{};", "y".repeat(30_000 * (m % 3)));
                stream.append(&text);
                expected.push_str(&text);
            }
            assert!(stream.read_text() == *expected, "round {round}, stream {n}");
        }
        if round % 2 == 0 { server.kill() } else { server.stop() }
    }
    assert!(segments(&dir.path()).len() > 8, "the test wrote too few segments");
}

/// What an idle server makes ahead (`--segments-ahead`) is used by a burst, does not disturb the offline tools, and goes at the
/// next start if it was not used.
#[test]
fn segments_made_ahead_are_used_or_go() {
    let (dir, small) = (DataDir::new(), ["--shards", "1", "--segment-bytes", "1MiB"]);
    let server = Server::start_in(&dir, &[&small[..], &["--segments-ahead", "6"]].concat());
    let stream = server.create("burst", OCTETS);
    // The one in use, the next one, and five more.
    while try_segments(&dir.path()).len() < 7 {
        std::thread::yield_now();
    }
    let bodies: Vec<Vec<u8>> = (0..25).map(|n| vec![n; 100_000]).collect();
    for body in &bodies {
        stream.append(body);
    }
    assert!(stream.read() == bodies.concat(), "the bytes differ");
    server.kill();
    let verified = tool(&["verify"], &dir.path());
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let unlisted = |dir: &DataDir| rows(&inspect(&dir.path(), &[]), "finding").len();
    assert!(unlisted(&dir) > 0, "some were not used");
    let server = Server::start_in(&dir, &small);
    assert!(server.stream("/test/burst", OCTETS).read() == bodies.concat(), "the bytes differ after a kill");
    server.stop();
    assert_eq!(unlisted(&dir), 0);
}
