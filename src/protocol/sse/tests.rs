//! Events byte by byte, and what a client makes of them.

use super::*;
use proptest::prelude::*;

fn data(encoding: Encoding, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    write_data(&mut out, encoding, bytes);
    String::from_utf8(out).expect("events are UTF-8")
}

/// The events of an SSE body as a client of the HTML standard reads them: type, last id, data.
fn parse(body: &str) -> Vec<(String, String, String)> {
    let (mut events, mut id) = (Vec::new(), String::new());
    let (mut kind, mut lines) = (String::new(), Vec::new());
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    for line in body.split('\n') {
        if line.is_empty() {
            if !lines.is_empty() {
                events.push((std::mem::take(&mut kind), id.clone(), lines.join("\n")));
                lines.clear();
            }
            kind.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => kind = value.to_string(),
            "data" => lines.push(value.to_string()),
            "id" => id = value.to_string(),
            _ => {}
        }
    }
    events
}

#[test]
fn encodings() {
    let table = [
        ("application/json; charset=utf-8", Encoding::Json),
        ("text/plain", Encoding::Text),
        ("TEXT/csv", Encoding::Text),
        ("application/octet-stream", Encoding::Base64),
        ("application/ndjson", Encoding::Base64),
        ("image/png", Encoding::Base64),
        ("application/x-protobuf", Encoding::Base64),
    ];
    for (content_type, expected) in table {
        assert_eq!(Encoding::of(content_type.as_bytes()), expected, "{content_type}");
    }
}

#[test]
fn data_events() {
    let table: &[(Encoding, &[u8], &str)] = &[
        (Encoding::Json, b"{\"k\":\"v\"},", "event: data\ndata:[{\"k\":\"v\"}]\n\n"),
        (Encoding::Json, b"1,[2,3],", "event: data\ndata:[1,[2,3]]\n\n"),
        (Encoding::Base64, b"Hello", "event: data\ndata:SGVsbG8=\n\n"),
        (Encoding::Base64, b"\0\n\r\xff\xfe", "event: data\ndata:AAoN//4=\n\n"),
        (Encoding::Text, b"plain", "event: data\ndata:plain\n\n"),
        (Encoding::Text, b" led by a space", "event: data\ndata:  led by a space\n\n"),
        (Encoding::Text, b"a\n b\n\n", "event: data\ndata:a\ndata:  b\ndata:\ndata:\n\n"),
        (Encoding::Text, b"a\rb\r\nc\n\rd", "event: data\ndata:a\ndata:b\ndata:c\ndata:\ndata:d\n\n"),
        (Encoding::Text, b"\n", "event: data\ndata:\ndata:\n\n"),
        (Encoding::Text, b"\r\n", "event: data\ndata:\ndata:\n\n"),
        (Encoding::Text, b"a\xffb\xe2\x82", "event: data\ndata:a\u{fffd}b\u{fffd}\n\n"),
        (
            Encoding::Text,
            b"safe\r\n\r\nevent: control\r\ndata: {\"injected\":true}\r\n\r\nmore",
            "event: data\ndata:safe\ndata:\ndata:event: control\ndata:data: {\"injected\":true}\ndata:\ndata:more\n\n",
        ),
    ];
    for (encoding, bytes, expected) in table {
        assert_eq!(data(*encoding, bytes), *expected);
    }
}

#[test]
fn control_events() {
    let control = Control {
        lineage: 7,
        next_offset: 42,
        cursor: 1000,
        up_to_date: false,
        closed: false,
        records: None,
    };
    let text = |control: &Control| {
        let mut out = Vec::new();
        write_control(&mut out, control);
        String::from_utf8(out).unwrap()
    };
    let token = "0000000000000007_0000000000000042";
    let head = format!("id: {token}\nevent: control\ndata:{{\"streamNextOffset\":\"{token}\"");
    let table = [
        (control, ",\"streamCursor\":\"1000\"}\n\n"),
        (Control { up_to_date: true, ..control }, ",\"streamCursor\":\"1000\",\"upToDate\":true}\n\n"),
        (
            Control { up_to_date: true, closed: true, ..control },
            ",\"upToDate\":true,\"streamClosed\":true}\n\n",
        ),
        (
            Control { up_to_date: true, records: Some((3, 44)), ..control },
            ",\"streamFirstRecord\":3,\"streamNextRecord\":44,\"streamCursor\":\"1000\",\"upToDate\":true}\n\n",
        ),
    ];
    for (control, expected) in table {
        assert_eq!(text(&control), format!("{head}{expected}"));
        let [(kind, id, payload)] = &parse(&text(&control))[..] else { panic!("one event") };
        assert_eq!((kind.as_str(), id.as_str()), ("control", token));
        let payload: serde_json::Value = serde_json::from_str(payload).unwrap();
        assert_eq!(payload["streamNextOffset"], token);
    }
}

#[test]
#[should_panic(expected = "up to date")]
fn a_closed_end_is_up_to_date() {
    let control =
        Control { lineage: 7, next_offset: 42, cursor: 1, up_to_date: false, closed: true, records: None };
    write_control(&mut Vec::new(), &control);
}

#[test]
fn a_comment_is_no_event() {
    let body = [KEEP_ALIVE, data(Encoding::Text, b"x").as_bytes(), KEEP_ALIVE].concat();
    assert_eq!(parse(std::str::from_utf8(&body).unwrap()).len(), 1);
}

#[test]
fn what_waits() {
    use Following::{End, More, Tail};
    let table: &[(&[u8], Following, usize)] = &[
        (b"", Tail, 0),
        (b"abc", Tail, 3),
        // A character of two, three and four bytes, cut at each place.
        (b"a\xc3", Tail, 1),
        (b"a\xc3\xa9", Tail, 3),
        (b"a\xe2", Tail, 1),
        (b"a\xe2\x82", Tail, 1),
        (b"a\xe2\x82\xac", Tail, 4),
        (b"\xf0", Tail, 0),
        (b"\xf0\x9f", More, 0),
        (b"\xf0\x9f\x98", Tail, 0),
        (b"\xf0\x9f\x98\x80", Tail, 4),
        // A closed stream waits for nothing.
        (b"a\xe2\x82", End, 3),
        (b"a\r", End, 2),
        // Bytes that no character starts with do not wait.
        (b"a\xff", Tail, 2),
        (b"a\x80\x80", Tail, 3),
        (b"a\x80\x80\x80\x80", Tail, 5),
        (b"\xc0", Tail, 1),
        (b"\xe0\x80", Tail, 2),
        (b"\xed\xa0", Tail, 2),
        (b"\xf4\x90", Tail, 2),
        (b"\xf5", Tail, 1),
        (b"\xc3\xc3", Tail, 1),
        // A CR waits for its LF, if there is one to come and something to send without it.
        (b"a\r", Tail, 2),
        (b"a\r", More, 1),
        (b"\r", More, 1),
        (b"a\r\n", More, 3),
        (b"a\r\xc3", More, 1),
    ];
    for (bytes, following, expected) in table {
        assert_eq!(cut(bytes, *following), *expected, "{bytes:?} {following:?}");
    }
}

proptest! {
    /// Text that arrives in any pieces comes out as the same text, line ends aside, and no event splits a character.
    #[test]
    fn text_survives_any_pieces(
        text in "[a-c \n\r\u{e9}\u{20ac}\u{1f600}:]{1,40}",
        // From two bytes on: a CR that comes alone has nothing to wait behind.
        pieces in proptest::collection::vec(2usize..9, 1..40),
    ) {
        let (mut body, mut waiting, mut rest) = (Vec::new(), Vec::new(), text.as_bytes());
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            rest = later;
            waiting.extend_from_slice(now);
            let take = cut(&waiting, if rest.is_empty() { Following::End } else { Following::More });
            prop_assert!(waiting.len() - take <= 4);
            if take > 0 {
                prop_assert!(std::str::from_utf8(&waiting[..take]).is_ok());
                write_data(&mut body, Encoding::Text, &waiting[..take]);
                waiting.drain(..take);
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(waiting.is_empty());
        let body = String::from_utf8(body).unwrap();
        prop_assert!(!body.contains('\r'));
        let events = parse(&body);
        prop_assert!(events.iter().all(|(kind, ..)| kind == "data"));
        let received: String = events.iter().map(|(.., data)| data.as_str()).collect();
        prop_assert_eq!(received, text.replace("\r\n", "\n").replace('\r', "\n"));
    }

    /// Whatever bytes a text stream holds, its event is one data event that cannot be mistaken for more.
    #[test]
    fn any_bytes_make_one_event(bytes in proptest::collection::vec(any::<u8>(), 1..60)) {
        for encoding in [Encoding::Text, Encoding::Base64] {
            let body = data(encoding, &bytes);
            let events = parse(&body);
            prop_assert_eq!(events.len(), 1, "{:?}", body);
            prop_assert_eq!(events[0].0.as_str(), "data");
            prop_assert!(body.ends_with("\n\n"));
        }
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n").replace('\r', "\n");
        prop_assert_eq!(&parse(&data(Encoding::Text, &bytes))[0].2, &text);
        let base64 = &parse(&data(Encoding::Base64, &bytes))[0].2;
        prop_assert_eq!(BASE64.decode(base64).unwrap(), bytes);
    }

    #[test]
    fn what_waits_is_the_start_of_a_character(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
        let take = cut(&bytes, Following::Tail);
        let waiting = &bytes[take..];
        prop_assert!(waiting.len() <= 3);
        if !waiting.is_empty() {
            let error = std::str::from_utf8(waiting).unwrap_err();
            prop_assert_eq!((error.valid_up_to(), error.error_len()), (0, None));
        }
        // Nothing of what is sent could have been finished by later bytes.
        if take > 0 {
            let sent = bytes[..take].utf8_chunks().last().unwrap();
            let open = std::str::from_utf8(sent.invalid()).is_err_and(|error| error.error_len().is_none());
            prop_assert!(sent.invalid().is_empty() || !open || !waiting.is_empty());
        }
    }
}
