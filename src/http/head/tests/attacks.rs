//! Attacks on the framing of requests, on hosts and on lines: each must be refused, and for the right reason.

use super::*;

#[test]
fn targets_that_are_refused() {
    for target in [
        "a",
        "*",
        "?q",
        "#",
        "/a#b",
        "/a?b#c",
        "host:443",
        "ftp://h/a",
        "javascript://h/a",
        "http:/a",
        "http:///a",
        "http://",
        "http://?q",
        "://h/a",
        "http//h",
        "hhttp://h/a",
        "http://o#f",
        "http:\\\\h\\a",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(problem(request.as_bytes()), HeadProblem::Target, "{target}");
    }
    for target in ["http://user@h/a", "http://a,b/", "http://a\"b/"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(problem(request.as_bytes()), HeadProblem::HostMalformed, "{target}");
    }
    assert_eq!(problem(b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n"), HeadProblem::Target);
}

/// Requests whose end, host or meaning two implementations could see differently, and what becomes of them.
#[test]
fn ambiguous_requests_are_refused() {
    use HeadProblem as P;
    let table: &[(&str, P)] = &[
        // Two framings, in either order and case.
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            P::TwoFramings,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\ntransfer-encoding: CHUNKED\r\ncontent-length: 5\r\n\r\n",
            P::TwoFramings,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
            P::TwoFramings,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: gzip\r\n\r\n",
            P::TwoFramings,
        ),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding:\r\n\r\n", P::TwoFramings),
        // Lengths: two, equal or not, on lines or in a list; none that is a number.
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            P::Repeated(Known::ContentLength),
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n",
            P::Repeated(Known::ContentLength),
        ),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5 5\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5.0\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5_0\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5;a\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \"5\"\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \u{665}\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \t \r\n\r\n", P::LengthMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\n", P::LengthTooLarge),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999999999\r\n\r\n",
            P::LengthTooLarge,
        ),
        // Transfer codings.
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            P::Repeated(Known::TransferEncoding),
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
            P::Repeated(Known::TransferEncoding),
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            P::TransferEncodingMalformed,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
            P::TransferEncodingMalformed,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
            P::TransferEncodingMalformed,
        ),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked,\r\n\r\n", P::TransferEncodingMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: ,chunked\r\n\r\n", P::TransferEncodingMalformed),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked;q=1\r\n\r\n",
            P::TransferEncodingMalformed,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
            P::TransferEncodingMalformed,
        ),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chun ked\r\n\r\n", P::TransferEncodingMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", P::TransferEncodingMalformed),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", P::HeaderValue),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", P::TransferCodingUnknown),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", P::TransferCodingUnknown),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", P::TransferCodingUnknown),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunke\r\n\r\n", P::TransferCodingUnknown),
        ("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", P::TransferEncodingOnOldVersion),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding\t: chunked\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 5\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\n Content-Length: 5\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\n Host: h\r\n\r\n", P::HeaderName),
        // Folded lines.
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nX: a\r\n \r\n\r\n", P::HeaderName),
        // Names that are no tokens.
        ("POST / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nX y: z\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length\0: 5\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\nConten\u{e9}-Length: 5\r\n\r\n", P::HeaderName),
        ("POST / HTTP/1.1\r\nHost: h\r\n(X): 5\r\n\r\n", P::HeaderName),
        // Bytes that no value has.
        ("POST / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", P::HeaderValue),
        ("POST / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", P::HeaderValue),
        ("POST / HTTP/1.1\r\nHost: h\r\nX: a\r\r\n\r\n", P::HeaderValue),
        ("POST / HTTP/1.1\r\nHost: h\r\nX:\r a\r\n\r\n", P::HeaderValue),
        ("POST / HTTP/1.1\r\nHost: h\r\nX: \x7f\r\n\r\n", P::HeaderValue),
        ("POST / HTTP/1.1\r\nHost: h\r\nX: \x1b[0m\r\n\r\n", P::HeaderValue),
        // LF alone, in each place that has a line's end.
        ("GET / HTTP/1.1\nHost: h\r\n\r\n", P::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: h\n\r\n", P::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", P::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: y\n\r\n", P::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: h\r\nX:\n\r\n", P::BareLineFeed),
        ("GET / HTTP/1.1\r\nHost: h\r\n\n", P::BareLineFeed),
        ("GET / HTTP/1.1\nHost: h\n\n", P::BareLineFeed),
        ("GET / HTTP/1.0\n\n", P::BareLineFeed),
        ("GET / HTTP/1.0\n\r\n", P::BareLineFeed),
        ("GET / HTTP/1.0\r\n\n", P::BareLineFeed),
        ("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", P::BareLineFeed),
        ("\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", P::BareLineFeed),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\nTransfer-Encoding: chunked\r\n\r\n",
            P::BareLineFeed,
        ),
        // Hosts.
        ("GET / HTTP/1.1\r\n\r\n", P::HostMissing),
        ("GET / HTTP/1.1\r\nX-Host: h\r\n\r\n", P::HostMissing),
        ("GET http://h/ HTTP/1.1\r\n\r\n", P::HostMissing),
        ("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", P::Repeated(Known::Host)),
        ("GET / HTTP/1.1\r\nHost: h\r\nhOST: i\r\n\r\n", P::Repeated(Known::Host)),
        ("GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", P::Repeated(Known::Host)),
        ("GET / HTTP/1.1\r\nHost: h, i\r\n\r\n", P::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: h,i\r\n\r\n", P::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: h/path\r\n\r\n", P::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: user@h\r\n\r\n", P::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: \"h\"\r\n\r\n", P::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: <script>\r\n\r\n", P::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: h\u{e9}\r\n\r\n", P::HostMalformed),
        // Request lines.
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /  HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", P::RequestLine),
        (" GET / HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /\tHTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET\r\n\r\n", P::RequestLine),
        ("GET / \r\n\r\n                  ", P::RequestLine),
        ("GET / FTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET / http/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET / HTTP/x.y\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /a\0b HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /a\x7fb HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("GET /\rHTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("G(T / HTTP/1.1\r\nHost: h\r\n\r\n", P::RequestLine),
        ("\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03", P::RequestLine), // a client that speaks TLS
        // Versions.
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", P::Version),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", P::Version),
        ("GET / HTTP/2\r\nHost: h\r\n\r\n", P::Version),
        ("GET / HTTP/3\r\nHost: h\r\n\r\n", P::Version),
        ("GET / HTTP/0.9\r\nHost: h\r\n\r\n", P::Version),
        ("GET / HTTP/1.2\r\nHost: h\r\n\r\n", P::Version),
        ("GET / HTTP/9.9\r\nHost: h\r\n\r\n", P::Version),
        ("GET / HTTP/1.10\r\nHost: h\r\n\r\n", P::RequestLine),
        // Expectations.
        ("POST / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n", P::Expectation),
        ("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue, x\r\n\r\n", P::Expectation),
        ("POST / HTTP/1.1\r\nHost: h\r\nExpect:\r\n\r\n", P::Expectation),
    ];
    for &(request, expected) in table {
        assert_eq!(problem(request.as_bytes()), expected, "{}", request.escape_debug());
        assert_prefixes_agree(request.as_bytes());
    }
}

#[test]
fn invalid_utf8_in_a_target_is_refused() {
    assert_eq!(problem(b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n"), HeadProblem::RequestLine);
}

#[test]
fn every_repeated_header_is_refused_unless_it_is_a_list() {
    for &known in Known::ALL {
        let name = known.name();
        let value = match known {
            Known::Host => "h",
            Known::ContentLength => "0",
            Known::TransferEncoding => "chunked",
            Known::Expect => "100-continue",
            _ => "v",
        };
        let host = if known == Known::Host { "" } else { "Host: h\r\n" };
        let once = format!("PUT / HTTP/1.1\r\n{host}{name}: {value}\r\n\r\n");
        assert_eq!(head(once.as_bytes()).get(known), Some(value.as_bytes()));
        let upper = name.to_ascii_uppercase();
        let twice =
            format!("PUT / HTTP/1.1\r\n{host}{name}: {value}\r\nA: b\r\n{upper}:w\r\n{name}-x: y\r\n\r\n");
        if known.is_list() {
            let head = head(twice.as_bytes());
            assert_eq!(head.get(known), Some(value.as_bytes()));
            assert!(head.values(known).eq([value.as_bytes(), b"w"]), "{name}");
        } else {
            let problem = problem(twice.as_bytes());
            assert_eq!(problem, HeadProblem::Repeated(known));
            let message = Problem::from(problem).message;
            assert!(message.contains(name), "{message}");
        }
    }
    let others = post(&["Cookie: a=b", "Cookie: c=d", "Stream-Cursor: 1", "Stream-Cursor: 2"]);
    assert_eq!(head(&others).framing, Framing::None, "headers that are not read may be anything");
}
