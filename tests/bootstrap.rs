//! Bootstrap (extension 3; decision 21): parts, boundaries, headers, and memory.

mod common;

use std::collections::HashSet;

use common::{Bootstrap, JSON, OCTETS, Part, Server, Stream, TEXT};

fn part(content_type: &str, body: impl AsRef<[u8]>) -> Part {
    Part { content_type: content_type.to_owned(), body: body.as_ref().to_vec() }
}

/// What the headers of a bootstrap say: snapshot offset, next offset, records.
fn headers(bootstrap: &Bootstrap) -> [Option<&str>; 5] {
    let names = [
        "stream-snapshot-offset",
        "stream-next-offset",
        "stream-record-first",
        "stream-record-next",
        "stream-closed",
    ];
    names.map(|name| bootstrap.response.header(name))
}

#[test]
fn a_stream_without_a_snapshot_begins_with_an_empty_part() {
    let server = Server::start(&[]);
    let text = server.create("text", "text/plain; charset=utf-8");
    let empty = text.bootstrap();
    assert_eq!((empty.snapshot.clone(), empty.updates.len()), (part(OCTETS, ""), 0));
    assert_eq!(headers(&empty), [Some("-1"), Some(&*text.tail()), None, None, None]);
    text.append("a\r\n");
    text.batch(&["\r\n--", "b"]);
    text.close();
    let all = text.bootstrap();
    assert_eq!(all.snapshot, part(OCTETS, ""));
    let expected = ["a\r\n", "\r\n--", "b"].map(|body| part("text/plain; charset=utf-8", body));
    assert_eq!(all.updates, expected);
    assert_eq!(headers(&all), [Some("-1"), Some(&*text.tail()), None, None, Some("true")]);
}

#[test]
fn a_record_is_a_part_without_its_separator() {
    let server = Server::start(&[]);
    let stream = server.create("s", JSON);
    stream.append(r#"[{"b":1, "a":[1,2]},"x,y", 3.0]"#);
    stream.append("null");
    let all = stream.bootstrap();
    assert_eq!(all.texts(), [r#"{"b":1,"a":[1,2]}"#, r#""x,y""#, "3.0", "null"]);
    assert!(all.updates.iter().all(|part| part.content_type == JSON));
    let tail = stream.tail();
    assert_eq!(headers(&all), [Some("-1"), Some(&*tail), Some("0"), Some("4"), None]);
    assert_eq!(all.response.header("stream-extensions"), Some("json-record-coordinates-v1"));

    stream
        .below("PUT", "snapshot?record=3")
        .header("Content-Type", "a/b; c=d")
        .body("\0\r\n--x--")
        .expect(204);
    let rest = stream.bootstrap();
    assert_eq!(rest.snapshot, part("a/b; c=d", "\0\r\n--x--"));
    assert_eq!(rest.texts(), ["null"]);
    let offset = stream.head().required("stream-snapshot-offset").to_owned();
    assert_eq!(headers(&rest), [Some(&*offset), Some(&*tail), Some("0"), Some("4"), None]);
    stream.below("PUT", "retention?record=2").expect(204);
    let rest = stream.bootstrap();
    assert_eq!(rest.texts(), ["null"]);
    assert_eq!(headers(&rest)[2..4], [Some("2"), Some("4")]);
    // It goes on where the bootstrap ends.
    stream.append("5");
    assert_eq!(stream.get(&format!("offset={}", rest.response.next_offset())).expect(200).text(), "[5]");
}

#[test]
fn a_bootstrap_is_a_single_answer() {
    let server = Server::start(&[]);
    let stream = server.create("s", TEXT);
    stream.append("x");
    for query in ["live=sse", "live=long-poll", "live=", "live", "offset=-1&live=x"] {
        stream.below("GET", &format!("bootstrap?{query}")).expect(400).expect_error(400, "INVALID_LIVE");
    }
    Bootstrap::parse(stream.below("GET", "bootstrap?offset=x&cursor=1").expect(200));
    server
        .stream(&format!("{}missing", server.prefix()), TEXT)
        .below("GET", "bootstrap?live=sse")
        .expect(404);
    let (get, head) =
        (stream.below("GET", "bootstrap").expect(200), stream.below("HEAD", "bootstrap").expect(200));
    for name in ["content-length", "stream-next-offset", "stream-snapshot-offset", "cache-control"] {
        assert_eq!(head.required(name), get.required(name), "{name}");
    }
    assert_eq!(stream.below("POST", "bootstrap").expect(405).header("allow"), Some("GET, HEAD, OPTIONS"));
    // A client of HTTP/1.0 knows no chunks: the length tells it where the body ends.
    let mut old = server.connect();
    old.write(format!("GET {}/bootstrap HTTP/1.0\r\n\r\n", stream.path).as_bytes());
    assert_eq!(Bootstrap::parse(old.read_response("GET").expect(200)).texts(), ["x"]);
}

/// Decision 21: whoever writes a part cannot know the boundary that will stand beside it.
#[test]
fn boundaries_cannot_be_known_in_advance() {
    let server = Server::start(&[]);
    let mut seen = HashSet::new();
    let stream = server.create("s", TEXT);
    for round in 0..20 {
        let bootstrap = stream.bootstrap();
        let expected: Vec<&str> = bootstrap.texts();
        assert_eq!(expected.len(), round, "a part that holds former boundaries stays one part");
        let token = bootstrap.boundary.strip_prefix("thalweg-").expect("the server's name");
        assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
        // Neither half says anything of the other, or of the one before.
        for half in [&token[..16], &token[16..]] {
            assert!(seen.insert(half.to_owned()), "{half} came before");
        }
        stream.append(format!("\r\n--{0}\r\nContent-Type: x/y\r\n\r\n\r\n--{0}--\r\n", bootstrap.boundary));
    }
    drop(server);
    let other = Server::start(&[]);
    let boundary = other.create("s", TEXT).bootstrap().boundary;
    assert!(seen.insert(boundary["thalweg-".len()..][..16].to_owned()), "another process has another key");
}

/// Messages of any length, from memory and from disk: none is cut or joined where slices end.
#[test]
fn message_boundaries_are_kept_whatever_the_lengths() {
    for cache in ["0", "67108864"] {
        let server = Server::start(&["--cache-bytes", cache]);
        let other = server.create("other", TEXT);
        for content_type in [OCTETS, JSON] {
            let stream = server.create(&format!("s-{}", content_type.len()), content_type);
            let lengths =
                [3_000_000, 1, (1 << 20) - 2, 2, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5, 2_097_152];
            let body = |length: usize| match content_type {
                JSON if length < 3 => "7".repeat(length),
                JSON => format!("\"{}\"", "x".repeat(length - 2)),
                _ => "\r\n--,"[..].repeat(length / 5 + 1)[..length].to_owned(),
            };
            let mut expected = Vec::new();
            for length in lengths {
                stream.append(body(length));
                other.append("between");
                expected.push(part(content_type, body(length)));
            }
            // More than the messages of a slice, of one byte each.
            let small = ["1"; 500];
            for _ in 0..20 {
                stream.batch(&small);
                expected.extend(small.map(|body| part(content_type, body)));
            }
            let found = stream.bootstrap().updates;
            assert_eq!(found.len(), expected.len(), "{content_type}, cache {cache}");
            let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(differs, None, "{content_type}, cache {cache}");
        }
    }
}

#[test]
fn the_range_is_fixed_when_the_request_comes() {
    let server = Server::start(&["--cache-bytes", "0"]);
    let stream = server.create("s", OCTETS);
    let message = vec![7; 4_000_000];
    for _ in 0..8 {
        stream.append(&message);
    }
    // More than sockets hold: the rest is read from disk after the appends.
    let mut slow = server.connect();
    slow.start(&stream.below("GET", "bootstrap"));
    let tail = stream.tail();
    stream.append("later");
    stream.publish("4000000", "snapshot");
    let bootstrap = Bootstrap::parse(slow.read_response("GET").expect(200));
    assert_eq!((bootstrap.updates.len(), bootstrap.response.next_offset()), (8, tail));
    assert!(bootstrap.updates.iter().all(|part| part.body == message));
    assert_eq!(stream.bootstrap().updates.len(), 8, "seven after the snapshot, and the last one");
}

/// Most memory that the process has had since the last call, in bytes.
fn peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("our process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the line is there");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("the mark can be reset");
    kib * 1024
}

#[test]
fn memory_does_not_grow_with_the_answer() {
    let server = Server::start(&["--cache-bytes", "0", "--segment-bytes", "67108864", "--shards", "1"]);
    let stream = server.create("s", OCTETS);
    let message = vec![7; 16 << 20];
    for _ in 0..3 {
        stream.append(&message);
    }
    stream.publish("0", vec![8; 24 << 20]);
    let read = |stream: &Stream<'_>| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let bytes = stream.below("GET", "bootstrap").expect(200).body.len();
                    assert!(bytes > 72 << 20, "{bytes}");
                });
            }
        });
    };
    // What the requests so far have left behind is not the answer's.
    read(&stream);
    peak_bytes(&server);
    let before = peak_bytes(&server);
    read(&stream);
    let after = peak_bytes(&server);
    assert!(after < before + (16 << 20), "{before} bytes before, {after} while 144 MiB were sent");
}
