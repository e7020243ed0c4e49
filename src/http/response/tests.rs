//! The bytes of answers, read back by a tokenizer, for every kind of request and every way to end a head.

use proptest::prelude::*;

use super::super::body::{ChunkedDecoder, Fed};
use super::*;
use crate::protocol::errors::Code;

const NOW: u64 = 784_111_777;

/// An answer as a client reads it.
struct Read {
    code: u16,
    headers: Vec<(String, String)>,
    rest: Vec<u8>,
}

impl Read {
    fn of(bytes: &[u8]) -> Read {
        let mut slots = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut slots);
        let parsed = response.parse(bytes);
        let Ok(httparse::Status::Complete(head_bytes)) = parsed else {
            panic!("{parsed:?}: {}", bytes.escape_ascii());
        };
        let head = String::from_utf8_lossy(&bytes[..head_bytes]);
        assert_eq!(head.matches('\n').count(), head.matches("\r\n").count(), "a bare LF: {head}");
        let headers = response.headers.iter();
        Read {
            code: response.code.expect("a code"),
            headers: headers
                .map(|header| {
                    (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).into_owned())
                })
                .collect(),
            rest: bytes[head_bytes..].to_vec(),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} appears twice");
        value
    }
}

fn common() -> CommonHeaders {
    CommonHeaders::new(3, 8, NOW)
}

fn terms(head: bool, minor_version: u8, keep_alive: bool) -> Terms {
    Terms { head, minor_version, keep_alive }
}

fn every_terms() -> impl Iterator<Item = Terms> {
    let flags = [false, true];
    flags.into_iter().flat_map(move |head| {
        flags.into_iter().flat_map(move |keep_alive| [0, 1].map(|minor| terms(head, minor, keep_alive)))
    })
}

/// What `Connection` must say for terms.
fn connection(terms: Terms) -> Option<&'static str> {
    match (terms.keep_alive, terms.minor_version) {
        (false, _) => Some("close"),
        (true, 0) => Some("keep-alive"),
        (true, _) => None,
    }
}

fn answer(status: Status, terms: Terms, write: impl FnOnce(Answer<'_>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(Answer::new(&mut out, status, &common(), terms));
    assert_eq!(&out[..6], b"before", "answers are appended");
    out.split_off(6)
}

#[test]
fn the_exact_bytes_of_an_acknowledgement() {
    let bytes = answer(Status::NO_CONTENT, terms(false, 1, true), |mut answer| {
        answer.token("Stream-Next-Offset", 7, 4242).header_u64("Stream-Record-Next", 18);
        answer.lines("Stream-Closed: true\r\n");
        answer.no_body();
    });
    let expected = "HTTP/1.1 204 No Content\r\n\
        Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
        X-Content-Type-Options: nosniff\r\n\
        Cross-Origin-Resource-Policy: cross-origin\r\n\
        Access-Control-Allow-Origin: *\r\n\
        Stream-Shard: 3/8\r\n\
        Stream-Next-Offset: 0000000000000007_0000000000004242\r\n\
        Stream-Record-Next: 18\r\n\
        Stream-Closed: true\r\n\
        \r\n";
    assert_eq!(String::from_utf8(bytes).expect("text"), expected);
}

#[test]
fn every_status_has_a_line_that_clients_read() {
    let mut codes: Vec<u16> = Status::ALL.iter().map(|status| status.code()).collect();
    for &status in Status::ALL {
        assert_eq!(Status::of(status.code()), status);
        let bytes = answer(status, Terms::CLOSE, |answer| answer.no_body());
        let read = Read::of(&bytes);
        assert_eq!(read.code, status.code());
        assert!(read.rest.is_empty());
        assert_eq!(format!("{status:?}\r\n").as_bytes(), &bytes[..format!("{status:?}").len() + 2]);
        let expected = if matches!(status.code(), 204 | 304) { None } else { Some("0") };
        assert_eq!(read.get("content-length"), expected, "{status:?}");
    }
    codes.dedup();
    assert_eq!(codes.len(), Status::ALL.len());
    assert!(codes.is_sorted(), "{codes:?}");
}

#[test]
#[should_panic(expected = "status 299 has no status line")]
fn a_status_without_a_line_is_a_bug() {
    Status::of(299);
}

#[test]
fn the_date_is_refreshed_and_nothing_else_changes() {
    let mut common = CommonHeaders::new(0, 1, NOW);
    let before = common.block.clone();
    common.refresh(NOW);
    assert_eq!(common.block, before);
    common.refresh(NOW + 3600);
    let expected = String::from_utf8(before.to_vec()).expect("text").replace("08:49:37", "09:49:37");
    assert_eq!(String::from_utf8(common.block.to_vec()).expect("text"), expected);
    common.refresh(NOW);
    assert_eq!(common.block, before, "a clock that steps back is followed");
    assert!(before.ends_with(b"\r\nStream-Shard: 0/1\r\n"));
}

#[test]
fn bodies_for_every_kind_of_request() {
    for terms in every_terms() {
        for body in [&b""[..], b"x", &[b'y'; 1000]] {
            let read = Read::of(&answer(Status::OK, terms, |answer| answer.body(body)));
            assert_eq!(read.get("content-length"), Some(body.len().to_string().as_str()), "{terms:?}");
            assert_eq!(read.rest, if terms.head { b"" } else { body }, "{terms:?}");
            assert_eq!(read.get("connection"), connection(terms), "{terms:?}");
            assert_eq!(read.get("transfer-encoding"), None);
            assert_eq!(read.get("stream-shard"), Some("3/8"));
        }
        let read = Read::of(&answer(Status::NOT_MODIFIED, terms, |answer| answer.no_body()));
        assert_eq!((read.get("content-length"), read.get("connection")), (None, connection(terms)));

        let mut asked = None;
        let bytes = answer(Status::OK, terms, |answer| {
            let rest = answer.length_then(5);
            asked = Some(rest.is_some());
            if let Some(rest) = rest {
                rest.extend_from_slice(b"hello");
            }
        });
        assert_eq!(asked, Some(!terms.head));
        assert_eq!(bytes, answer(Status::OK, terms, |answer| answer.body(b"hello")), "{terms:?}");
        if terms.head {
            assert_eq!(bytes, answer(Status::OK, terms, |answer| answer.head_only(5)));
        }
    }
}

#[test]
fn an_operation_may_close_the_connection() {
    for terms in every_terms() {
        let bytes = answer(Status::OK, terms, |mut answer| {
            answer.close();
            answer.body(b"x");
        });
        assert_eq!(Read::of(&bytes).get("connection"), Some("close"), "{terms:?}");
    }
}

#[test]
fn streams_for_every_kind_of_request() {
    for terms in every_terms() {
        let mut transfer = None;
        let mut bytes = answer(Status::OK, terms, |answer| transfer = Some(answer.stream()));
        let transfer = transfer.expect("a transfer");
        for piece in [&b"hello"[..], b"", &[b'z'; 300]] {
            transfer.write(&mut bytes, piece);
        }
        transfer.finish(&mut bytes);
        let read = Read::of(&bytes);
        assert_eq!(read.get("content-length"), None);
        let mut data = b"hello".to_vec();
        data.extend_from_slice(&[b'z'; 300]);
        let expected = if terms.head {
            Transfer::Nothing
        } else if terms.minor_version == 0 {
            Transfer::UntilClose
        } else {
            Transfer::Chunked
        };
        assert_eq!(transfer, expected, "{terms:?}");
        assert_eq!(transfer.closes(), transfer == Transfer::UntilClose);
        match transfer {
            Transfer::Nothing => assert!(read.rest.is_empty()),
            Transfer::UntilClose => {
                assert_eq!(read.rest, data);
                assert_eq!(
                    read.get("connection"),
                    Some("close"),
                    "the body ends with the connection: {terms:?}"
                );
            }
            Transfer::Chunked => {
                let mut out = Vec::new();
                let fed = ChunkedDecoder::new(1 << 20).feed(&read.rest, &mut out);
                assert_eq!(fed, Ok(Fed { consumed: read.rest.len(), done: true }));
                assert_eq!(out, data);
                assert_eq!(read.get("connection"), connection(terms), "{terms:?}");
            }
        }
        let coding = (terms.minor_version == 1).then_some("chunked");
        assert_eq!(read.get("transfer-encoding"), coding, "{terms:?}");
    }
}

#[test]
#[should_panic(expected = "HTTP/1.1 204 No Content has no body, and 1 bytes are given")]
fn a_body_where_none_may_be_is_a_bug() {
    answer(Status::NO_CONTENT, Terms::CLOSE, |answer| answer.body(b"x"));
}

#[test]
#[should_panic(expected = "HTTP/1.1 304 Not Modified has no body")]
fn a_stream_where_no_body_may_be_is_a_bug() {
    answer(Status::NOT_MODIFIED, Terms::CLOSE, |answer| {
        answer.stream();
    });
}

#[test]
#[should_panic(expected = "for HEAD only")]
fn a_length_without_a_body_is_a_bug_unless_the_request_was_head() {
    answer(Status::OK, Terms::CLOSE, |answer| answer.head_only(5));
}

#[test]
#[should_panic(expected = "an empty chunk would end the body")]
fn an_empty_chunk_is_a_bug() {
    write_chunk_head(&mut Vec::new(), 0);
}

#[test]
fn chunks() {
    let mut out = Vec::new();
    write_chunk(&mut out, b"hello");
    write_chunk(&mut out, b"");
    write_chunk(&mut out, &[b'x'; 26]);
    write_chunk_head(&mut out, 3);
    out.extend_from_slice(b"abc");
    out.extend_from_slice(CHUNK_END);
    write_last_chunk(&mut out);
    let expected = "5\r\nhello\r\n1a\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(String::from_utf8(out).expect("text"), expected);
}

/// A value that comes from outside, such as a name in `Location`, must not end its line.
#[test]
fn values_cannot_split_an_answer() {
    let value = b"a\r\nSet-Cookie: x\r\n\r\n<b>\0\x01\x7f\t\xc3\xa9\xff";
    let bytes = answer(Status::OK, Terms::CLOSE, |mut answer| {
        answer.header("Location", value).header_with("Vary", |out| out.extend_from_slice(b"\nb"));
        answer.body(b"");
    });
    let line = b"Location: a  Set-Cookie: x    <b>   \t\xc3\xa9\xff\r\nVary:  b\r\n";
    assert!(bytes.windows(line.len()).any(|window| window == line), "{}", bytes.escape_ascii());
    assert_eq!(Read::of(&bytes).get("set-cookie"), None);
}

#[test]
fn a_refusal_is_a_whole_answer() {
    let mut out = b"before".to_vec();
    write_refusal(&mut out, &common(), &Problem::fixed(Code::UriTooLong, "too long"));
    let read = Read::of(&out[6..]);
    assert_eq!(read.code, 414);
    assert_eq!(read.get("content-type"), Some("application/json"));
    assert_eq!(read.get("cache-control"), Some("no-store"));
    assert_eq!(read.get("connection"), Some("close"));
    assert_eq!(read.get("content-length"), Some(read.rest.len().to_string().as_str()));
    assert_eq!(read.get("retry-after"), None);
    assert_eq!(read.rest, br#"{"error":{"code":"URI_TOO_LONG","message":"too long"}}"#);
}

/// The table of errors and the table of status lines know the same failures.
#[test]
fn every_error_has_a_status_line_and_every_failure_an_error() {
    for &code in Code::ALL {
        let mut out = Vec::new();
        write_refusal(&mut out, &common(), &Problem::fixed(code, ""));
        let read = Read::of(&out);
        assert_eq!(read.code, code.status(), "{code:?}");
        assert_eq!(read.get("retry-after").is_some(), code.retry_after(), "{code:?}");
    }
    for status in Status::ALL.iter().filter(|status| status.code() >= 400) {
        let has_code = Code::ALL.iter().any(|code| code.status() == status.code());
        assert!(has_code, "no error answers with {status:?}");
    }
}

#[test]
fn the_interim_answer_is_a_complete_head() {
    let read = Read::of(CONTINUE);
    assert_eq!((read.code, read.headers.len(), read.rest.len()), (100, 0, 0));
}

proptest! {
    #[test]
    fn any_value_is_one_line(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5),
        number: u64,
        lineage in 0..=offset::OFFSET_MAX,
        position in 0..=offset::OFFSET_MAX,
        body: Vec<u8>,
    ) {
        let bytes = answer(Status::OK, terms(false, 1, true), |mut answer| {
            for value in &values {
                answer.header("X-Value", value);
            }
            answer.header_u64("X-Number", number).token("X-Token", lineage, position);
            answer.body(&body);
        });
        let read = Read::of(&bytes);
        prop_assert_eq!(read.headers.iter().filter(|(name, _)| name == "x-value").count(), values.len());
        let number = number.to_string();
        prop_assert_eq!(read.get("x-number"), Some(number.as_str()));
        let token = format!("{lineage:016}_{position:016}");
        prop_assert_eq!(read.get("x-token"), Some(token.as_str()));
        prop_assert_eq!(read.rest, body);
    }

    #[test]
    fn any_pieces_come_back_through_the_decoder(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let mut out = Vec::new();
        for piece in &pieces {
            write_chunk(&mut out, piece);
        }
        write_last_chunk(&mut out);
        let mut data = Vec::new();
        let fed = ChunkedDecoder::new(1 << 20).feed(&out, &mut data);
        prop_assert_eq!(fed, Ok(Fed { consumed: out.len(), done: true }));
        prop_assert_eq!(data, pieces.concat());
    }
}
