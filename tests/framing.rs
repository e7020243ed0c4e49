//! How requests are told apart on a connection: every ambiguous framing is refused and ends the connection; everything that
//! HTTP/1.1 allows is understood, in order, without losing a byte.

mod common;

use common::{Connection, Request, Server, TEXT};

/// Sends raw bytes; the answer must have this status and be the last one on its connection.
#[track_caller]
fn refused(server: &Server, what: &str, bytes: &[u8], status: u16) {
    let mut connection = server.connect();
    // The server may have closed while the rest is on its way.
    let _ = connection.try_write(bytes);
    let Some(response) = connection.try_read_response("GET") else {
        panic!("{what}: closed without an answer");
    };
    assert_eq!(response.status, status, "{what}: {}", String::from_utf8_lossy(&response.body));
    assert_eq!(response.header("connection"), Some("close"), "{what}: {response:?}");
    assert!(connection.is_closed(), "{what}: the connection goes on");
}

fn post(path: &str, lines: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n{lines}\r\n{body}").into_bytes()
}

#[test]
fn every_ambiguous_framing_is_refused_and_nothing_of_it_is_appended() {
    let server = Server::start(&[]);
    let stream = server.create("framing", TEXT);
    let path = stream.path.as_str();
    // A request that would be smuggled if the body were taken to end earlier than it does.
    let smuggled = format!("0\r\n\r\nPOST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nX");
    let cases = [
        ("both length and chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("both, the other way round", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        ("differing lengths", "Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        ("the same length twice", "Content-Length: 5\r\nContent-Length: 5\r\n", 400),
        ("a list of lengths", "Content-Length: 5, 5\r\n", 400),
        ("a sign", "Content-Length: +5\r\n", 400),
        ("a negative length", "Content-Length: -5\r\n", 400),
        ("a length in hexadecimal", "Content-Length: 0x5\r\n", 400),
        ("a length with a fraction", "Content-Length: 5.0\r\n", 400),
        ("a length with white space inside", "Content-Length: 5 5\r\n", 400),
        ("no length in the length", "Content-Length:\r\n", 400),
        ("a length beyond 64 bits", "Content-Length: 18446744073709551621\r\n", 413),
        ("an unknown coding", "Transfer-Encoding: gzip\r\n", 501),
        ("a coding that looks like chunked", "Transfer-Encoding: xchunked\r\n", 501),
        ("an unknown coding below chunked", "Transfer-Encoding: gzip, chunked\r\n", 501),
        ("chunked not last", "Transfer-Encoding: chunked, gzip\r\n", 400),
        ("an empty coding", "Transfer-Encoding:\r\n", 400),
        ("white space before the colon", "Content-Length : 5\r\n", 400),
        ("a tab before the colon", "Content-Length\t: 5\r\n", 400),
        ("white space in a name", "Content Length: 5\r\n", 400),
        ("no name", ": 5\r\n", 400),
        ("no colon", "Content-Length 5\r\n", 400),
        ("obsolete folding", "X-A: 1\r\n  2\r\nContent-Length: 5\r\n", 400),
        ("obsolete folding of the length", "Content-Length:\r\n 5\r\n", 400),
        ("folding before the first header", " Content-Length: 5\r\n", 400),
        ("a bare LF after a header", "Content-Length: 5\n", 400),
        ("a bare LF within a value", "X-A: 1\nContent-Length: 5\r\n", 400),
        ("a bare CR within a value", "X-A: 1\rContent-Length: 5\r\n", 400),
        ("NUL in a value", "X-A: 1\0\r\nContent-Length: 5\r\n", 400),
        ("a control character in a value", "X-A: 1\x08\r\nContent-Length: 5\r\n", 400),
        ("DEL in a value", "X-A: 1\x7f\r\nContent-Length: 5\r\n", 400),
        ("a second Host", "Host: y\r\nContent-Length: 5\r\n", 400),
    ];
    for (what, lines, status) in cases {
        refused(&server, what, &post(path, lines, &smuggled), status);
    }
    // "chunked, chunked" is refused one way or the other.
    let mut connection = server.connect();
    connection.write(&post(path, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", &smuggled));
    let status = connection.read_response("POST").status;
    assert!(status == 400 || status == 501, "chunked twice: {status}");
    assert!(connection.is_closed());
    assert_eq!(stream.read_text(), "", "something of a refused request was appended");
}

#[test]
fn bad_request_lines_and_versions_are_refused() {
    let server = Server::start(&[]);
    let cases: &[(&str, &str, u16)] = &[
        ("HTTP/0.9", "GET /test\r\n\r\n", 400),
        ("no target", "GET HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("two spaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("a control character in the target", "GET /a\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("a method that is no token", "G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("a bare LF after the request line", "GET / HTTP/1.1\nHost: x\r\n\r\n", 400),
        ("nothing but bare LFs", "GET / HTTP/1.1\nHost: x\n\n", 400),
        ("a target without a slash", "GET test HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("an asterisk without OPTIONS", "GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("no Host", "GET / HTTP/1.1\r\n\r\n", 400),
        ("the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("HTTP/3.0", "GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
        ("chunked on HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03\r\n\r\n", 400),
    ];
    for (what, bytes, status) in cases {
        refused(&server, what, bytes.as_bytes(), *status);
    }
}

#[test]
fn bad_chunks_are_refused_and_nothing_of_them_is_appended() {
    let server = Server::start(&[]);
    let stream = server.create("chunks", TEXT);
    let long_extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(1000));
    let long_trailer = format!("5\r\nhello\r\n0\r\nX-A: {}\r\n\r\n", "x".repeat(20_000));
    let cases = [
        ("a size with a sign", "+5\r\nhello\r\n0\r\n\r\n"),
        ("a negative size", "-5\r\nhello\r\n0\r\n\r\n"),
        ("a size with a prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("no size", "\r\nhello\r\n0\r\n\r\n"),
        ("a size that is no number", "g\r\nhello\r\n0\r\n\r\n"),
        ("white space before the size", " 5\r\nhello\r\n0\r\n\r\n"),
        ("a size beyond 64 bits", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("a bare LF after the size", "5\nhello\r\n0\r\n\r\n"),
        ("a bare CR after the size", "5\rhello\r\n0\r\n\r\n"),
        ("no line end after the data", "5\r\nhello0\r\n\r\n"),
        ("a bare LF after the data", "5\r\nhello\n0\r\n\r\n"),
        ("more data than the size", "5\r\nhello!\r\n0\r\n\r\n"),
        ("a bare LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("a bare LF after the last chunk", "5\r\nhello\r\n0\r\n\n"),
        ("an extension without end", &long_extension),
        ("a trailer without end", &long_trailer),
    ];
    for (what, body) in cases {
        refused(&server, what, &post(&stream.path, "Transfer-Encoding: chunked\r\n", body), 400);
    }
    assert_eq!(stream.read_text(), "", "something of a refused request was appended");
}

#[test]
fn a_body_that_never_ends_is_never_appended() {
    let server = Server::start(&[]);
    let stream = server.create("cut", TEXT);
    for (lines, body) in [
        ("Content-Length: 10\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhel"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n"),
    ] {
        let mut connection = server.connect();
        connection.write(&post(&stream.path, lines, body));
        connection.finish_writing();
        if let Some(response) = connection.try_read_response("POST") {
            assert_eq!(response.status, 400, "{lines:?} {body:?}");
        }
        assert!(connection.is_closed());
    }
    assert_eq!(stream.read_text(), "");
}

#[test]
fn chunked_bodies_are_decoded_whatever_their_spelling() {
    let server = Server::start(&[]);
    let stream = server.create("spelling", TEXT);
    let bodies = [
        "5\r\nhello\r\n0\r\n\r\n",
        "00005\r\nhello\r\n0\r\n\r\n",
        "2\r\nhe\r\n3\r\nllo\r\n0000\r\n\r\n",
        "5;name=value;other=\"quoted\"\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-Checksum: 1\r\nX-More: 2\r\n\r\n",
        "1\r\nh\r\n1\r\ne\r\n1\r\nl\r\n1\r\nl\r\n1\r\no\r\n0\r\n\r\n",
    ];
    let mut connection = server.connect();
    for body in bodies {
        connection.write(&post(&stream.path, "Transfer-Encoding: Chunked\r\n", body));
        connection.read_response("POST").expect(204);
    }
    connection.write(&post(
        &stream.path,
        "transfer-encoding:chunked\r\n",
        "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
    ));
    connection.read_response("POST").expect(204);
    assert_eq!(stream.read_text(), "hello".repeat(bodies.len()) + "01234567890123456789");
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::start(&[]);
    let stream = server.create("bytes", TEXT);
    let mut connection = server.connect();
    for request in [stream.post("plain"), stream.post("chunked").chunked(), stream.get("offset=-1")] {
        for byte in request.bytes() {
            connection.write(&[byte]);
        }
        let response = connection.read_response(&request.method);
        assert!(response.status == 204 || response.text() == "plainchunked", "{response:?}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_also_across_shards() {
    let server = Server::start(&["--shards", "3"]);
    let streams: Vec<_> = (0..7).map(|n| server.create(&format!("pipeline-{n}"), TEXT)).collect();
    let mut requests: Vec<Request<'_>> = Vec::new();
    let mut expected = vec![String::new(); streams.len()];
    for n in 0..400 {
        let at = n * 5 % streams.len();
        let text = format!("{n},");
        let request = streams[at].post(&text);
        requests.push(if n % 3 == 0 { request.chunked() } else { request });
        expected[at].push_str(&text);
        if n % 11 == 0 {
            requests.push(streams[at].get("offset=-1"));
        }
    }
    let mut connection = server.connect();
    connection.write(&requests.iter().flat_map(Request::bytes).collect::<Vec<u8>>());
    let mut tails = vec![String::new(); streams.len()];
    for request in &requests {
        let at =
            streams.iter().position(|stream| request.target.starts_with(&stream.path)).expect("one of ours");
        let response = connection.read_response(&request.method);
        if request.method == "POST" {
            let next = response.expect(204).next_offset();
            assert!(next > tails[at], "{next} after {}", tails[at]);
            tails[at] = next;
        } else {
            // A read sees every append before it on its own connection.
            let response = response.expect(200);
            assert_eq!(response.next_offset(), tails[at]);
            assert!(expected[at].starts_with(response.text()));
        }
    }
    for (stream, text) in streams.iter().zip(expected) {
        assert_eq!(stream.read_text(), text);
    }
}

#[test]
fn a_pipeline_of_appends_may_end_in_a_bad_request() {
    let server = Server::start(&[]);
    let stream = server.create("ends-badly", TEXT);
    let mut bytes: Vec<u8> = (0..20).flat_map(|_| stream.post("x").bytes()).collect();
    bytes.extend_from_slice(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n");
    bytes.extend(stream.post("never").bytes());
    let mut connection = server.connect();
    connection.write(&bytes);
    for _ in 0..20 {
        connection.read_response("POST").expect(204);
    }
    connection.read_response("GET").expect(400);
    assert!(connection.is_closed());
    assert_eq!(stream.read_text(), "x".repeat(20));
}

#[test]
fn connections_are_kept_unless_one_side_says_otherwise() {
    let server = Server::start(&[]);
    let stream = server.create("kept", TEXT);
    let get = stream.get("offset=-1");
    let mut kept = server.connect();
    for _ in 0..3 {
        assert_eq!(kept.send(&get).expect(200).header("connection"), None);
    }
    // An error of the operation says nothing against the connection.
    kept.send(&stream.get("offset=nonsense")).expect(400);
    kept.send(&Request::new("DELETE", "/test/nothing")).expect(404);
    let answer = kept.send(&get.clone().header("Connection", "close")).expect(200);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(kept.is_closed());
    // A list counts as well, in any case.
    let mut listed = server.connect();
    listed.send(&get.clone().header("Connection", "foo, CLOSE")).expect(200);
    assert!(listed.is_closed());
    // HTTP/1.0 closes by itself.
    let mut old = server.connect();
    old.write(format!("GET {}?offset=-1 HTTP/1.0\r\n\r\n", stream.path).as_bytes());
    old.read_response("GET").expect(200);
    assert!(old.is_closed());
}

#[test]
fn an_empty_line_before_a_request_is_forgiven() {
    let server = Server::start(&[]);
    let stream = server.create("forgiven", TEXT);
    let mut connection = server.connect();
    let mut bytes = b"\r\n".to_vec();
    bytes.extend(stream.post("x").bytes());
    connection.write(&bytes);
    connection.read_response("POST").expect(204);
}

#[test]
fn expect_100_continue_is_answered_before_the_body_comes() {
    let server = Server::start(&[]);
    let stream = server.create("continue", TEXT);
    let mut connection = server.connect();
    for request in [stream.post("hello "), stream.post("world").chunked()] {
        let request = request.header("Expect", "100-continue");
        let head = request.head_bytes();
        connection.write(&head);
        let interim = connection.read_head().expect("an interim answer");
        assert_eq!(interim.status, 100);
        connection.write(&request.bytes()[head.len()..]);
        connection.read_response("POST").expect(204);
    }
    // A body that is on its way already needs no invitation, and at most one comes.
    connection.write(&stream.post("!").header("Expect", "100-continue").bytes());
    let first = connection.read_head().expect("an answer");
    if first.status == 100 {
        connection.read_response("POST").expect(204);
    } else {
        first.expect(204);
    }
    assert_eq!(stream.read_text(), "hello world!");
}

#[test]
fn expect_100_continue_is_not_answered_when_the_head_is_refused_already() {
    let server = Server::start(&["--max-body-bytes", "1000"]);
    let stream = server.create("refused", TEXT);
    for (path, length, status) in [("/test/nothing", 5, 404), (stream.path.as_str(), 1001, 413)] {
        let mut connection = server.connect();
        let lines = format!("Expect: 100-continue\r\nContent-Length: {length}\r\n");
        connection.write(&post(path, &lines, ""));
        assert_eq!(connection.read_head().expect("an answer").status, status, "{path}");
    }
}

#[test]
fn an_absolute_target_is_understood() {
    let server = Server::start(&[]);
    let stream = server.create("absolute", TEXT);
    stream.append("x");
    for target in [
        format!("http://thalweg.test{}?offset=-1", stream.path),
        format!("HTTP://thalweg.test:80{}", stream.path),
    ] {
        assert_eq!(server.request("GET", target).expect(200).text(), "x");
    }
}

#[test]
fn a_repeated_header_that_may_come_once_is_refused() {
    let server = Server::start(&[]);
    let stream = server.create("repeated", TEXT);
    for (name, value) in [
        ("Content-Type", TEXT),
        ("Stream-Seq", "a"),
        ("Stream-Closed", "true"),
        ("Producer-Id", "p"),
        ("Producer-Epoch", "0"),
        ("Producer-Seq", "0"),
        ("Stream-TTL", "5"),
        ("Last-Event-ID", "-1"),
    ] {
        let mut request = stream.request("POST").body("x").header(name, value).header(name, value);
        for (other, value) in [("Content-Type", TEXT), ("Producer-Id", "p"), ("Producer-Epoch", "0")] {
            if other != name {
                request = request.header(other, value);
            }
        }
        let status = request.send().status;
        assert_eq!(status, 400, "{name}");
    }
    assert_eq!(stream.read_text(), "");
}

#[test]
fn methods_that_do_not_apply_are_refused() {
    let server = Server::start(&[]);
    let stream = server.create("methods", TEXT);
    let mut connection: Connection = server.connect();
    for method in ["PATCH", "TRACE", "FOO", "post"] {
        let response = connection.send(&stream.request(method)).expect(405);
        let allowed = response.required("allow").to_owned();
        for known in ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"] {
            assert!(allowed.split(", ").any(|name| name == known), "{allowed}");
        }
    }
    assert_eq!(stream.read_text(), "");
}
