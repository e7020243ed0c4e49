//! Tables of heads and of attacks on their framing; every split of a request; random heads against a slow reading.

use proptest::prelude::*;

use super::*;
use crate::protocol::errors::Problem;

mod attacks;

fn head(request: &[u8]) -> Head<'_> {
    parse(request)
        .unwrap_or_else(|problem| panic!("{problem:?}: {}", request.escape_ascii()))
        .unwrap_or_else(|| panic!("not complete: {}", request.escape_ascii()))
}

fn problem(request: &[u8]) -> HeadProblem {
    match parse(request) {
        Err(problem) => problem,
        Ok(Some(_)) => panic!("accepted: {}", request.escape_ascii()),
        Ok(None) => panic!("taken for a part: {}", request.escape_ascii()),
    }
}

/// A request of HTTP/1.1 with a host and these further lines, each without its CRLF.
fn post(lines: &[&str]) -> Vec<u8> {
    let mut request = b"POST /agents/run-7 HTTP/1.1\r\nHost: localhost:4437\r\n".to_vec();
    for line in lines {
        request.extend_from_slice(line.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

const TYPICAL: &[u8] =
    b"POST /agents/run-7?x=1 HTTP/1.1\r\nHost: localhost:4437\r\ncontent-type: application/json\r\n\
    Producer-Id: writer-1\r\nProducer-Epoch: 3\r\nPRODUCER-SEQ: 17\r\nX-Other: a, b\r\nStream-Closed:true\r\n\
    Stream-Seq:\t 0007 \t\r\nOrigin:\r\nContent-Length: 13\r\n\r\n";

#[test]
fn a_typical_append() {
    let mut request = TYPICAL.to_vec();
    request.extend_from_slice(br#"{"event":"a"}POST /next"#);
    let head = head(&request);
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.target, b"/agents/run-7?x=1");
    assert_eq!(head.path, b"/agents/run-7");
    assert_eq!(head.query, Some(&b"x=1"[..]));
    assert_eq!(head.authority, b"localhost:4437");
    assert_eq!(head.minor_version, 1);
    assert_eq!(head.framing, Framing::Length(13));
    assert!(head.keep_alive && !head.expect_continue);
    assert_eq!(head.head_bytes, TYPICAL.len());
    assert_eq!(head.terms(), Terms { head: false, minor_version: 1, keep_alive: true });

    let expected = [
        (Known::Host, "localhost:4437"),
        (Known::ContentType, "application/json"),
        (Known::ProducerId, "writer-1"),
        (Known::ProducerEpoch, "3"),
        (Known::ProducerSeq, "17"),
        (Known::StreamClosed, "true"),
        (Known::StreamSeq, "0007"),
        (Known::Origin, ""),
        (Known::ContentLength, "13"),
    ];
    for &known in Known::ALL {
        let value = expected.iter().find(|(name, _)| *name == known).map(|(_, value)| value.as_bytes());
        assert_eq!(head.get(known), value, "{known:?}");
        assert_eq!(head.has(known), value.is_some(), "{known:?}");
        assert!(head.values(known).eq(value), "{known:?}");
    }
}

#[test]
fn methods() {
    let table = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("PUT", Method::Put),
        ("POST", Method::Post),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Other),
        ("TRACE", Method::Other),
        ("get", Method::Other), // methods are case-sensitive
        ("POSTX", Method::Other),
        ("GE", Method::Other),
        ("M-SEARCH", Method::Other),
    ];
    for (token, method) in table {
        let request = format!("{token} /a HTTP/1.1\r\nHost: h\r\n\r\n");
        let head = head(request.as_bytes());
        assert_eq!(head.method, method, "{token}");
        assert_eq!(head.terms().head, token == "HEAD");
    }
}

#[test]
fn targets() {
    // target, path, query, authority (the host of the request is `h`)
    let table: [(&str, &str, Option<&str>, &str); 17] = [
        ("/", "/", None, "h"),
        ("/a", "/a", None, "h"),
        ("/a/b%2Fc", "/a/b%2Fc", None, "h"),
        ("/a?", "/a", Some(""), "h"),
        ("/a?offset=-1&live=sse", "/a", Some("offset=-1&live=sse"), "h"),
        ("/a?b?c", "/a", Some("b?c"), "h"),
        ("/?q", "/", Some("q"), "h"),
        ("//a", "//a", None, "h"),
        ("/a:b://c", "/a:b://c", None, "h"),
        ("/\u{fc}", "/\u{fc}", None, "h"), // as a terminal's curl sends it
        ("http://other:81/a?q", "/a", Some("q"), "other:81"),
        ("HTTPS://other/a", "/a", None, "other"),
        ("http://other", "/", None, "other"),
        ("http://other/", "/", None, "other"),
        ("http://other?q", "/", Some("q"), "other"),
        ("http://[::1]:4437/a", "/a", None, "[::1]:4437"),
        ("http://o/a?u=http://p/b", "/a", Some("u=http://p/b"), "o"),
    ];
    for (target, path, query, authority) in table {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let head = head(request.as_bytes());
        assert_eq!(head.target, target.as_bytes());
        assert_eq!(head.path, path.as_bytes(), "{target}");
        assert_eq!(head.query, query.map(str::as_bytes), "{target}");
        assert_eq!(head.authority, authority.as_bytes(), "{target}");
        assert_eq!(head.get(Known::Host), Some(&b"h"[..]));
    }
    let request = b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!((head(request).path, head(request).query), (&b"*"[..], None));
}

/// A part of a request is `None`, or refused as the whole is.
fn assert_prefixes_agree(request: &[u8]) {
    let whole = parse(request).map(|head| head.map(|head| head.head_bytes));
    for cut in 0..request.len() {
        let part = parse(&request[..cut]).map(|head| head.map(|head| head.head_bytes));
        assert!(
            part == Ok(None) || part == whole,
            "{cut} bytes: {part:?}, all: {whole:?}: {}",
            request.escape_ascii()
        );
    }
}

#[test]
fn framings() {
    let table: [(&[&str], Framing); 10] = [
        (&[], Framing::None),
        (&["Content-Length: 0"], Framing::Length(0)),
        (&["Content-Length: 5"], Framing::Length(5)),
        (&["CONTENT-LENGTH:5"], Framing::Length(5)),
        (&["Content-Length: \t 5 \t "], Framing::Length(5)),
        (&["Content-Length: 0005"], Framing::Length(5)),
        (&["Content-Length: 18446744073709551615"], Framing::Length(u64::MAX)),
        (&["Transfer-Encoding: chunked"], Framing::Chunked),
        (&["transfer-encoding:\tChUnKeD "], Framing::Chunked),
        (&["X-Content-Length: 7", "Content-Lengthy: 8", "Content_Length: 9"], Framing::None),
    ];
    for (lines, framing) in table {
        let request = post(lines);
        assert_eq!(head(&request).framing, framing, "{lines:?}");
    }
    let bodies = [
        (Framing::None, false),
        (Framing::Length(0), false),
        (Framing::Length(1), true),
        (Framing::Chunked, true),
    ];
    for (framing, has_body) in bodies {
        assert_eq!(framing.has_body(), has_body, "{framing:?}");
    }
}

#[test]
fn persistence() {
    let table: [(u8, &[&str], bool); 16] = [
        (1, &[], true),
        (1, &["Connection: close"], false),
        (1, &["Connection: CLOSE"], false),
        (1, &["Connection: keep-alive"], true),
        (1, &["Connection: keep-alive, close"], false),
        (1, &["Connection: close, keep-alive"], false),
        (1, &["Connection: x ,\tclose ,, y"], false),
        (1, &["Connection: keep-alive", "Connection: close"], false),
        (1, &["Connection: a", "Connection: b", "X: close", "connection: Close"], false),
        (1, &["Connection: closed, not-close, \"close\""], true),
        (1, &["Connection:"], true),
        (0, &[], false),
        (0, &["Connection: keep-alive"], true),
        (0, &["Connection: x, Keep-Alive"], true),
        (0, &["Connection: keep-alive", "Connection: close"], false),
        (0, &["Connection: upgrade"], false),
    ];
    for (minor, lines, keep_alive) in table {
        let request = format!("GET / HTTP/1.{minor}\r\nHost: h\r\n{}\r\n\r\n", lines.join("\r\n"));
        let request = request.replace("\r\n\r\n\r\n", "\r\n\r\n");
        let head = head(request.as_bytes());
        assert_eq!((head.minor_version, head.keep_alive), (minor, keep_alive), "1.{minor} {lines:?}");
        assert_eq!(head.terms(), Terms { head: false, minor_version: minor, keep_alive });
    }
}

#[test]
fn expectations() {
    let table = [
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: h\r\nexpect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n", false),
        ("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", false),
        ("POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", false),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", false),
    ];
    for (request, expected) in table {
        assert_eq!(head(request.as_bytes()).expect_continue, expected, "{}", request.escape_debug());
    }
}

#[test]
fn an_old_client_needs_no_host() {
    let head = head(b"GET /a HTTP/1.0\r\n\r\n");
    assert_eq!((head.authority, head.head_bytes), (&b""[..], 19));
    assert_eq!(self::head(b"GET /a HTTP/1.1\r\nHost:\r\n\r\n").authority, b"", "an empty one is a host");
}

#[test]
fn empty_lines_before_a_request_are_skipped_up_to_a_limit() {
    for lines in 0..=EMPTY_LINES_MAX + 2 {
        let mut request = b"\r\n".repeat(lines);
        request.extend_from_slice(TYPICAL);
        request.extend_from_slice(b"body");
        if lines <= EMPTY_LINES_MAX {
            let head = head(&request);
            assert_eq!(head.head_bytes, 2 * lines + TYPICAL.len());
            assert_eq!(head.get(Known::ProducerSeq), Some(&b"17"[..]));
        } else {
            assert_eq!(problem(&request), HeadProblem::EmptyLines);
        }
        assert_prefixes_agree(&request);
    }
}

#[test]
fn every_split_of_a_request() {
    for pipelined in [&b""[..], b"0123456789012", b"0123456789012GET / HTTP/1.1\r\nHost: h\r\n\r\n"] {
        let request = [TYPICAL, pipelined].concat();
        for cut in 0..TYPICAL.len() {
            assert!(parse(&request[..cut]).expect("a part is no problem").is_none(), "{cut} bytes");
            // Each pair of cuts, as a connection sees them.
            for more in cut..=TYPICAL.len() {
                let again = parse_more(&request[..more], cut).expect("a part is no problem");
                assert_eq!(
                    again.map(|head| head.head_bytes),
                    (more == TYPICAL.len()).then_some(more),
                    "{cut}, {more}"
                );
            }
            let all = parse_more(&request, cut).expect("no problem").expect("complete");
            assert_eq!(all.head_bytes, TYPICAL.len(), "{cut} bytes seen");
        }
        assert_eq!(head(&request).head_bytes, TYPICAL.len());
    }
}

/// Feeds a request byte by byte, as [`parse_more`] is meant to be used.
fn dribble(request: &[u8]) -> (usize, Result<Option<usize>, HeadProblem>) {
    let mut seen = 0;
    for end in 1..=request.len() {
        match parse_more(&request[..end], seen) {
            Ok(None) => seen = end,
            done => return (end, done.map(|head| head.map(|head| head.head_bytes))),
        }
    }
    (request.len(), Ok(None))
}

#[test]
fn a_head_with_bare_line_feeds_does_not_wait_for_more() {
    for request in [
        &b"GET / HTTP/1.1\nHost: h\n\n"[..],
        b"GET / HTTP/1.1\r\nHost: h\r\n\n",
        b"GET / HTTP/1.1\nHost: h\n\r\n",
    ] {
        assert_eq!(
            dribble(request),
            (request.len(), Err(HeadProblem::BareLineFeed)),
            "{}",
            request.escape_ascii()
        );
    }
}

#[test]
fn limits_hold_exactly_on_whole_and_on_partial_input() {
    // Target.
    for (target_bytes, fits) in [(TARGET_BYTES_MAX, true), (TARGET_BYTES_MAX + 1, false)] {
        let line = format!("GET /{} HTTP/1.1\r\n", "a".repeat(target_bytes - 1));
        let request = format!("{line}Host: h\r\n\r\n");
        let expected = if fits { Ok(Some(request.len())) } else { Err(HeadProblem::TargetTooLong) };
        assert_eq!(parse(request.as_bytes()).map(|head| head.map(|head| head.head_bytes)), expected);
        assert_prefixes_agree(request.as_bytes());
        let cut = parse(&request.as_bytes()[..4 + target_bytes]).map(|head| head.is_some());
        assert_eq!(
            cut,
            if fits { Ok(false) } else { Err(HeadProblem::TargetTooLong) },
            "before the target ends"
        );
    }
    // Method.
    for (method_bytes, fits) in [(METHOD_BYTES_MAX, true), (METHOD_BYTES_MAX + 1, false)] {
        let request = format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "M".repeat(method_bytes));
        let expected = if fits { Ok(Some(request.len())) } else { Err(HeadProblem::MethodTooLong) };
        assert_eq!(parse(request.as_bytes()).map(|head| head.map(|head| head.head_bytes)), expected);
        assert_prefixes_agree(request.as_bytes());
    }
    // A limit of the request line is met before whatever is wrong behind it; nothing else is.
    let bad_header = "\r\nHost : h\r\n\r\n";
    let target = "a".repeat(TARGET_BYTES_MAX);
    let long_target = format!("GET /{target} HTTP/1.1{bad_header}");
    assert_eq!(problem(long_target.as_bytes()), HeadProblem::TargetTooLong);
    let long_method = format!("{} / HTTP/1.1{bad_header}", "M".repeat(METHOD_BYTES_MAX + 1));
    assert_eq!(problem(long_method.as_bytes()), HeadProblem::MethodTooLong);
    let body = "b".repeat(HEAD_BYTES_MAX);
    assert_eq!(problem(format!("GET / HTTP/1.1{bad_header}{body}").as_bytes()), HeadProblem::HeaderName);
    // Header lines.
    for (lines, fits) in [(HEADERS_MAX, true), (HEADERS_MAX + 1, false)] {
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(lines - 1));
        let expected = if fits { Ok(Some(request.len())) } else { Err(HeadProblem::TooManyHeaders) };
        assert_eq!(parse(request.as_bytes()).map(|head| head.map(|head| head.head_bytes)), expected);
        assert_prefixes_agree(request.as_bytes());
    }
}

#[test]
fn a_value_may_be_as_long_as_its_head_leaves_room() {
    for value_bytes in [255, 256, 257, 16 * 1024, HEAD_BYTES_MAX - 200] {
        let value = "v".repeat(value_bytes);
        let request = post(&["Stream-Seq: before", &format!("Stream-Attrs: {value}"), "Producer-Id: after"]);
        let head = head(&request);
        assert_eq!(head.get(Known::StreamAttrs).map(<[u8]>::len), Some(value_bytes));
        assert_eq!(head.get(Known::ProducerId), Some(&b"after"[..]));
    }
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_not_a_byte_longer() {
    let of = |bytes: usize| {
        let (before, after) = ("GET / HTTP/1.1\r\nHost: h\r\nX: ", "\r\nStream-Seq: 9\r\n\r\n");
        format!("{before}{}{after}", "v".repeat(bytes - before.len() - after.len())).into_bytes()
    };
    let longest = of(HEAD_BYTES_MAX);
    assert_eq!(longest.len(), HEAD_BYTES_MAX);
    let head = head(&longest);
    assert_eq!((head.head_bytes, head.get(Known::StreamSeq)), (HEAD_BYTES_MAX, Some(&b"9"[..])));
    // The last value that a span can name begins close to the limit; with empty lines the head may end beyond it.
    let shifted = [&b"\r\n\r\n"[..], &longest].concat();
    assert_eq!(self::head(&shifted).get(Known::StreamSeq), Some(&b"9"[..]));
    assert_eq!(self::head(&shifted).head_bytes, HEAD_BYTES_MAX + 4);

    let longer = of(HEAD_BYTES_MAX + 1);
    assert_eq!(problem(&longer), HeadProblem::HeadTooLarge);
    assert_eq!(problem(&longer[..HEAD_BYTES_MAX]), HeadProblem::HeadTooLarge, "refused before its end comes");
    assert!(parse(&longer[..HEAD_BYTES_MAX - 1]).expect("could still fit").is_none());
    assert_eq!(dribble(&longer), (HEAD_BYTES_MAX, Err(HeadProblem::HeadTooLarge)));

    let endless_target = [b"GET /", &[b'a'; TARGET_BYTES_MAX * 2][..]].concat();
    assert_eq!(problem(&endless_target), HeadProblem::TargetTooLong);
    let endless_method = [b'A'; METHOD_BYTES_MAX + 1];
    assert_eq!(problem(&endless_method), HeadProblem::MethodTooLong);
}

#[test]
fn every_problem_has_its_status() {
    let table = [
        (HeadProblem::RequestLine, 400),
        (HeadProblem::Repeated(Known::Host), 400),
        (HeadProblem::TwoFramings, 400),
        (HeadProblem::LengthTooLarge, 413),
        (HeadProblem::TargetTooLong, 414),
        (HeadProblem::Expectation, 417),
        (HeadProblem::HeadTooLarge, 431),
        (HeadProblem::TooManyHeaders, 431),
        (HeadProblem::MethodTooLong, 501),
        (HeadProblem::TransferCodingUnknown, 501),
        (HeadProblem::Version, 505),
        (HeadProblem::Timeout, 408),
    ];
    for (problem, status) in table {
        assert_eq!(Problem::from(problem).status(), status, "{problem:?}");
    }
}

/// A header line of a random request: name, white space, value, white space.
fn line() -> impl Strategy<Value = (String, String, String, String)> {
    let known = prop::sample::select(Known::ALL).prop_filter("decides the framing", |known| {
        !matches!(
            known,
            Known::Host | Known::ContentLength | Known::TransferEncoding | Known::Expect | Known::Connection
        )
    });
    let known = (known, any::<u32>()).prop_map(|(known, cases)| {
        let mixed = |(at, letter): (usize, char)| {
            if cases >> (at % 32) & 1 == 1 { letter.to_ascii_uppercase() } else { letter }
        };
        known.name().chars().enumerate().map(mixed).collect()
    });
    let name = prop_oneof![known, "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,24}"];
    let value = "([!-~\u{80}-\u{10ffff}]([ \t!-~\u{80}-\u{10ffff}]{0,40}[!-~\u{80}-\u{10ffff}])?)?";
    (name, "[ \t]{0,3}", value, "[ \t]{0,3}")
}

proptest! {
    #[test]
    fn a_random_head_reads_as_a_slow_reading_does(
        method in "[A-Z]{1,8}",
        path in "/[!-\"$->@-~]{0,40}",
        query in proptest::option::of("[!-\"$-~]{0,40}"),
        lines in prop::collection::vec(line(), 0..30),
        length in proptest::option::of(any::<u64>()),
        body: Vec<u8>,
        cut: prop::sample::Index,
    ) {
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, before, value, after) in &lines {
            request.push_str(&format!("{name}:{before}{value}{after}\r\n"));
        }
        if let Some(length) = length {
            request.push_str(&format!("Content-Length: {length}\r\n"));
        }
        request.push_str("\r\n");
        let head_bytes = request.len();
        let mut request = request.into_bytes();
        prop_assert!(parse(&request[..cut.index(head_bytes)]).unwrap_or(None).is_none());
        request.extend_from_slice(&body);

        let of = |known: Known| -> Vec<&[u8]> {
            let named = lines.iter().filter(|(name, ..)| name.eq_ignore_ascii_case(known.name()));
            named.map(|(_, _, value, _)| value.as_bytes()).collect()
        };
        let framing_lines = [Known::Host, Known::ContentLength, Known::TransferEncoding, Known::Expect, Known::Connection];
        prop_assume!(framing_lines.iter().all(|&known| of(known).is_empty()));
        let repeated = Known::ALL.iter().copied().filter(|&known| !known.is_list() && of(known).len() > 1);
        match parse(&request) {
            Err(HeadProblem::Repeated(known)) => prop_assert!(repeated.into_iter().any(|other| other == known)),
            Err(problem) => prop_assert!(false, "{:?}", problem),
            Ok(None) => prop_assert!(false, "not complete"),
            Ok(Some(head)) => {
                prop_assert_eq!(repeated.count(), 0);
                prop_assert_eq!(head.head_bytes, head_bytes);
                prop_assert_eq!(head.path, path.as_bytes());
                prop_assert_eq!(head.query, query.as_ref().map(|query| query.as_bytes()));
                prop_assert_eq!(head.framing, length.map_or(Framing::None, Framing::Length));
                for &known in Known::ALL {
                    if !framing_lines.contains(&known) {
                        prop_assert_eq!(head.get(known), of(known).first().copied());
                        prop_assert_eq!(head.values(known).collect::<Vec<_>>(), of(known));
                    }
                }
            }
        }
    }

    /// Whatever comes, it is parsed or refused, parts agree with the whole, and CR and LF are in no value.
    #[test]
    fn mutated_heads_are_parsed_or_refused(
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..6),
    ) {
        let interesting = b"\r\n \t:,\0;#?/\x7f\x80\xff0aHTP";
        let mut request = TYPICAL.to_vec();
        for (index, byte, kind) in mutations {
            let at = index.index(request.len());
            match kind {
                0 => request[at] = byte,
                1 => request[at] = interesting[usize::from(byte) % interesting.len()],
                2 => request.insert(at, interesting[usize::from(byte) % interesting.len()]),
                _ => { request.remove(at); }
            }
        }
        assert_prefixes_agree(&request);
        let whole = parse(&request).map(|head| head.map(|head| head.head_bytes));
        let (_, dribbled) = dribble(&request);
        prop_assert!(dribbled == whole || (dribbled == Ok(None) && whole.is_err()), "{:?} {:?}", dribbled, whole);
        if let Ok(Some(head)) = parse(&request) {
            prop_assert!(request[..head.head_bytes].ends_with(b"\r\n\r\n"));
            let lines = &request[..head.head_bytes];
            let bare = (0..lines.len()).filter(|&at| lines[at] == b'\n' && (at == 0 || lines[at - 1] != b'\r'));
            prop_assert_eq!(bare.count(), 0);
            for &known in Known::ALL {
                for value in head.values(known) {
                    prop_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
                }
            }
        }
    }
}
