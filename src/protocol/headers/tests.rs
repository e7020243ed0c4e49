//! Tables of header values.

use super::*;
use proptest::prelude::*;

#[test]
fn closed_is_true_and_nothing_else() {
    for value in ["true", "TRUE", "True"] {
        assert!(is_true(Some(value.as_bytes())), "{value}");
    }
    for value in ["", "false", "yes", "1", "true ", "truee", "tru"] {
        assert!(!is_true(Some(value.as_bytes())), "{value}");
    }
    assert!(!is_true(None));
}

#[test]
fn ttl() {
    for (value, seconds) in [("0", 0), ("1", 1), ("3600", 3600), ("3153600000", TTL_SECONDS_MAX)] {
        assert_eq!(parse_ttl(value.as_bytes()), Ok(seconds), "{value}");
    }
    let refused = [
        "",
        "abc",
        "-1",
        "+3600",
        "03600",
        "00",
        "3600.0",
        "3.6e3",
        "1e3",
        " 1",
        "3153600001",
        "99999999999999999999",
    ];
    for value in refused {
        assert_eq!(
            parse_ttl(value.as_bytes()).map_err(|problem| problem.code),
            Err(Code::InvalidTtl),
            "{value}"
        );
    }
}

#[test]
fn expiry_is_sliding_or_absolute_or_never() {
    let parse = |ttl: Option<&str>, at: Option<&str>| {
        parse_expiry(ttl.map(str::as_bytes), at.map(str::as_bytes)).map_err(|problem| problem.code)
    };
    assert_eq!(parse(None, None), Ok(Expiry::Never));
    assert_eq!(parse(Some("60"), None), Ok(Expiry::Sliding { ttl_seconds: 60 }));
    assert_eq!(parse(None, Some("1970-01-01T00:01:00+00:00")), Ok(Expiry::Absolute { at_ms: 60_000 }));
    assert_eq!(parse(None, Some("tomorrow")), Err(Code::InvalidExpiresAt));
    assert_eq!(parse(Some("060"), None), Err(Code::InvalidTtl));
    assert_eq!(parse(Some("60"), Some("1970-01-01T00:01:00Z")), Err(Code::ConflictingExpiry));
}

#[test]
fn producers_are_whole_or_absent() {
    let parse = |id: Option<&'static str>, epoch: Option<&str>, seq: Option<&str>| {
        parse_producer(id.map(str::as_bytes), epoch.map(str::as_bytes), seq.map(str::as_bytes))
            .map_err(|problem| problem.code)
    };
    assert_eq!(parse(None, None, None), Ok(None));
    assert_eq!(
        parse(Some("p"), Some("0"), Some("9007199254740991")),
        Ok(Some(Producer { id: b"p", epoch: 0, seq: PROTOCOL_INTEGER_MAX }))
    );
    let refused = [
        (Some("p"), None, None),
        (None, Some("0"), None),
        (None, None, Some("0")),
        (Some("p"), Some("0"), None),
        (Some("p"), None, Some("0")),
        (None, Some("0"), Some("0")),
        (Some(""), Some("0"), Some("0")),
        (Some("p"), Some(""), Some("0")),
        (Some("p"), Some("0"), Some("1abc")),
        (Some("p"), Some("0xyz"), Some("0")),
        (Some("p"), Some("1e3"), Some("0")),
        (Some("p"), Some("-1"), Some("0")),
        (Some("p"), Some("0"), Some("9007199254740992")),
    ];
    for (id, epoch, seq) in refused {
        assert_eq!(parse(id, epoch, seq), Err(Code::InvalidProducer), "{id:?} {epoch:?} {seq:?}");
    }
    let long = vec![b'p'; PRODUCER_ID_BYTES_MAX + 1];
    assert!(parse_producer(Some(&long), Some(b"0"), Some(b"0")).is_err());
    assert!(parse_producer(Some(&long[1..]), Some(b"0"), Some(b"0")).is_ok());
}

#[test]
fn stream_seq_compares_bytes() {
    assert!(parse_stream_seq(b"").is_err());
    assert!(parse_stream_seq(&[b's'; STREAM_SEQ_BYTES_MAX + 1]).is_err());
    assert_eq!(parse_stream_seq(b"a b"), Ok(&b"a b"[..]));
    // (last, next, whether it grows)
    let table = [
        ("2", "10", false),
        ("09", "10", true),
        ("a", "a", false),
        ("a", "B", false),
        ("B", "a", true),
        ("a", "aa", true),
    ];
    for (last, next, grows) in table {
        assert_eq!(stream_seq_grows(Some(last.as_bytes()), next.as_bytes()), grows, "{last} {next}");
    }
    assert!(stream_seq_grows(None, b"0"));
}

#[test]
fn media_types() {
    assert!(media_type_eq(b"text/plain", b"TEXT/PLAIN; charset=utf-8"));
    assert!(media_type_eq(b"application/json ;a=b", b"application/json"));
    assert!(!media_type_eq(b"application/json", b"application/json-patch+json"));
    assert!(
        is_json(b"Application/JSON; charset=utf-8")
            && !is_json(b"application/ndjson")
            && !is_json(b"text/json")
    );
    assert!(is_text(b"text/plain;x=y") && is_text(b"TEXT/event-stream"));
    assert!(!is_text(b"text") && !is_text(b"application/text"));
}

#[test]
fn content_types_of_creates() {
    assert_eq!(parse_content_type(None), Ok(DEFAULT_CONTENT_TYPE));
    assert_eq!(parse_content_type(Some(b"")), Ok(DEFAULT_CONTENT_TYPE));
    let accepted = [
        "text/plain",
        "Application/JSON; charset=\"utf-8\"",
        "image/svg+xml",
        "a/b;",
        "application/vnd.x-y.z+json;v=1",
    ];
    for value in accepted {
        assert_eq!(parse_content_type(Some(value.as_bytes())), Ok(value.as_bytes()));
    }
    let long = format!("text/{}", "x".repeat(252));
    let refused = [
        "text",
        "/plain",
        "text/",
        "te xt/plain",
        "text/plain/x",
        ";",
        "text/pl\u{e9}in",
        "text/plain;x=\u{e9}",
        "text/plain;\u{1}",
        &long,
    ];
    for value in refused {
        let code = parse_content_type(Some(value.as_bytes())).map_err(|problem| problem.code);
        assert_eq!(code, Err(Code::InvalidContentType), "{value:?}");
    }
    assert!(parse_content_type(Some(&long.as_bytes()[..256])).is_ok());
}

#[test]
fn ndjson_is_for_those_who_ask() {
    let table = [
        ("application/x-ndjson", true),
        ("Application/X-NDJSON", true),
        ("application/x-ndjson;q=0.5", true),
        ("text/html, application/x-ndjson; q=0.1, */*", true),
        ("application/json;q=0.5, application/x-ndjson", true),
        ("application/json, application/x-ndjson;q=0.9", false),
        ("application/json, application/x-ndjson", false),
        ("application/x-ndjson;q=0", false),
        ("application/x-ndjson;q=0.000", false),
        ("application/x-ndjson;q=2", false),
        ("application/x-ndjson;q=0.0001", false),
        ("application/*", false),
        ("*/*", false),
        ("application/ndjson", false),
        ("", false),
    ];
    for (accept, expected) in table {
        assert_eq!(wants_ndjson(Some(accept.as_bytes())), expected, "{accept}");
    }
    assert!(!wants_ndjson(None));
}

proptest! {
    #[test]
    fn any_value_is_parsed_without_panic(value: Vec<u8>, text in "[a-z/;,=.0-9 q]{0,40}") {
        for value in [&value[..], text.as_bytes()] {
            let _ = parse_ttl(value);
            let _ = parse_expires_at(value);
            let _ = parse_producer(Some(value), Some(value), Some(value));
            let _ = parse_content_type(Some(value));
            let _ = wants_ndjson(Some(value));
            let _ = (is_text(value), is_json(value));
        }
    }
}
