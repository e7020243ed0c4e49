use super::*;

/// What a sink was told, bodies joined.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    answers: Vec<(u16, Vec<u8>, bool)>,
    open: Option<(u16, Vec<u8>)>,
    shards: Vec<Vec<u8>>,
    last: bool,
}

impl Sink for Told {
    fn head(&mut self, head: &Head<'_>) {
        assert!(self.open.is_none(), "a head within a response: {self:?}");
        self.open = Some((head.status, Vec::new()));
        self.shards.extend(head.shard.map(<[u8]>::to_vec));
        self.last = head.last;
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.open.as_mut().expect("a body has a head").1.extend_from_slice(bytes);
    }

    fn end(&mut self) {
        let (status, body) = self.open.take().expect("an end has a head");
        self.answers.push((status, body, self.last));
    }
}

/// Feeds the pieces between `cuts`.
fn fed(text: &[u8], cuts: &[usize], closes: bool) -> Result<Told, Malformed> {
    let (mut parser, mut told, mut from) = (Parser::default(), Told::default(), 0);
    for to in cuts.iter().copied().chain([text.len()]) {
        parser.feed(&text[from..to], &mut told)?;
        from = to;
    }
    if closes {
        parser.close(&mut told)?;
    }
    Ok(told)
}

/// The same calls however the text is cut: in one piece, at every byte, in two pieces anywhere.
fn whatever_the_cuts(text: &[u8], closes: bool) -> Result<Told, Malformed> {
    let whole = fed(text, &[], closes);
    let every: Vec<usize> = (1..text.len()).collect();
    assert_eq!(fed(text, &every, closes).is_ok(), whole.is_ok());
    if let Ok(whole) = &whole {
        assert_eq!(&fed(text, &every, closes).unwrap(), whole);
        for cut in 1..text.len() {
            assert_eq!(&fed(text, &[cut], closes).unwrap(), whole, "cut at {cut}");
        }
    }
    whole
}

#[test]
fn responses_follow_each_other() {
    let text = b"HTTP/1.1 204 No Content\r\nStream-Shard: 1/2\r\n\r\n\
        HTTP/1.1 200 OK\r\ncontent-length: 3\r\nSTREAM-SHARD: 0/2\r\n\r\nabc\
        HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n\
        HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
        HTTP/1.1 409 Conflict\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx";
    let told = whatever_the_cuts(text, true).unwrap();
    let expected: [(u16, &[u8], bool); 5] =
        [(204, b"", false), (200, b"abc", false), (201, b"", false), (304, b"", false), (409, b"x", true)];
    let answers: Vec<(u16, &[u8], bool)> =
        told.answers.iter().map(|(status, body, last)| (*status, body.as_slice(), *last)).collect();
    assert_eq!(answers, expected);
    assert_eq!(told.shards, [b"1/2", b"0/2"]);
}

#[test]
fn chunks_are_joined() {
    let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n\
        3\r\nabc\r\n0A;name=\"v\"\r\n0123456789\r\n1 \r\n\n\r\n0\r\nTrailer: 1\r\nOther: 2\r\n\r\n\
        HTTP/1.1 204 No Content\r\n\r\n";
    let told = whatever_the_cuts(text, true).unwrap();
    assert_eq!(told.answers, [(200, b"abc0123456789\n".to_vec(), false), (204, vec![], false)]);
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let text = b"HTTP/1.0 200 OK\r\n\r\nabc";
    let told = whatever_the_cuts(text, true).unwrap();
    assert_eq!(told.answers, [(200, b"abc".to_vec(), true)]);
    assert_eq!(fed(text, &[], false).unwrap().answers.len(), 0, "it may go on");
}

#[test]
fn an_end_within_a_response_is_told() {
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    for end in 1..whole.len() {
        assert!(fed(&whole[..end], &[], true).is_err(), "{end} bytes");
    }
    assert!(fed(whole, &[], true).is_ok() && fed(b"", &[], true).is_ok());
    assert!(fed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", &[], true).is_err());
}

#[test]
fn garbage_is_named() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let table = [
        ("SSH-2.0-OpenSSH_9.6\r\n".to_owned(), "\"SSH-2.0"),
        ("HTTP/1.1 OK\r\n\r\n".to_owned(), "not HTTP/1.1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned(), "\"-1\""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab".to_owned(), "not HTTP/1.1"),
        (format!("{chunked}\r\n"), "size"),
        (format!("{chunked}x\r\n"), "size"),
        (format!("{chunked}1\r\nab\r\n"), "longer"),
        (format!("{chunked}1000000000000000\r\n"), "2^60"),
        (format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(HEAD_BYTES_MAX)), "head of more"),
        (format!("{chunked}0\r\n{}", "b".repeat(HEAD_BYTES_MAX + 2)), "trailer of more"),
    ];
    for (text, part) in table {
        let error = fed(text.as_bytes(), &[], true).unwrap_err().0;
        assert!(error.contains(part), "{error}");
    }
    let error = whatever_the_cuts(b"SSH-2.0-OpenSSH_9.6\r\n", true).unwrap_err();
    assert!(error.0.contains("SSH"));
}
