//! A blocking HTTP/1.1 client that hides nothing: requests byte by byte as the test says, answers parsed strictly.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use super::server::{PATIENCE, Server};

/// The connection ended within an answer, as it does when the server is killed.
#[derive(Debug)]
pub struct Cut;

/// A connection with what has been read from it and not yet used.
pub struct Connection {
    socket: TcpStream,
    unread: Vec<u8>,
    foreign: bool,
}

impl Connection {
    /// Takes over a socket.
    pub fn new(socket: TcpStream, foreign: bool) -> Connection {
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes a time-out");
        socket.set_write_timeout(Some(PATIENCE)).expect("a socket takes a time-out");
        socket.set_nodelay(true).expect("a socket can do without delay");
        Connection { socket, unread: Vec::new(), foreign }
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server takes what is sent");
    }

    /// Sends bytes, or tells that the server has closed the connection meanwhile.
    pub fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Says that nothing more will be sent.
    pub fn finish_writing(&mut self) {
        self.socket.shutdown(Shutdown::Write).expect("a connected socket can be shut down");
    }

    /// Sends a request without waiting for its answer.
    pub fn start(&mut self, request: &Request<'_>) {
        self.write(&request.bytes());
    }

    /// Sends a request and reads its answer.
    pub fn send(&mut self, request: &Request<'_>) -> Response {
        self.start(request);
        self.read_response(&request.method)
    }

    /// Sends a request; the answer, or nothing if the connection ends instead.
    pub fn try_read_after(&mut self, request: &Request<'_>) -> Option<Response> {
        self.try_write(&request.bytes()).ok()?;
        self.try_read_response(&request.method)
    }

    /// The answer to a request of this method.
    pub fn read_response(&mut self, method: &str) -> Response {
        self.try_read_response(method)
            .unwrap_or_else(|| panic!("the connection was closed instead of an answer"))
    }

    /// The answer to a request of this method, or nothing if the connection ends cleanly or is reset before it.
    pub fn try_read_response(&mut self, method: &str) -> Option<Response> {
        self.read_response_or_cut(method).expect("an answer comes whole or not at all")
    }

    /// The answer to a request of this method, nothing if the connection ends before it, or `Cut` if within it.
    pub fn read_response_or_cut(&mut self, method: &str) -> Result<Option<Response>, Cut> {
        let Some(mut response) = self.read_head_or_cut()? else { return Ok(None) };
        let chunked = response.header("transfer-encoding").is_some();
        let length = response
            .header("content-length")
            .map(|text| text.parse::<usize>().unwrap_or_else(|_| panic!("Content-Length: {text}")));
        assert!(!chunked || length.is_none(), "an answer with two framings: {response:?}");
        if method == "HEAD" || response.status / 100 == 1 || matches!(response.status, 204 | 304) {
            assert!(response.status == 200 || length.unwrap_or(0) == 0 || method == "HEAD", "{response:?}");
        } else if chunked {
            while let Some(chunk) = self.read_chunk_or_cut()? {
                response.body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = length {
            response.body = self.take(length)?;
        } else {
            self.read_to_end(&mut response.body);
        }
        response.method = method.to_owned();
        if !self.foreign && response.status >= 200 {
            response.check();
        }
        Ok(Some(response))
    }

    /// The head of an answer; nothing if the connection ends before its first byte.
    pub fn read_head(&mut self) -> Option<Response> {
        self.read_head_or_cut().expect("a head comes whole or not at all")
    }

    fn read_head_or_cut(&mut self) -> Result<Option<Response>, Cut> {
        let mut searched = 0;
        let end = loop {
            if let Some(found) = find(&self.unread[searched..], b"\r\n\r\n") {
                break searched + found;
            }
            searched = self.unread.len().saturating_sub(3);
            if !self.fill() {
                return if self.unread.is_empty() { Ok(None) } else { Err(Cut) };
            }
        };
        let head = self.take(end + 4)?;
        Ok(Some(Response::parse(&head[..end])))
    }

    /// The next chunk of a chunked body; nothing at its end.
    fn read_chunk_or_cut(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        let line = self.read_line()?;
        let size = usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
        let chunk = self.take(size)?;
        assert_eq!(self.read_line()?, "", "a chunk ends with CRLF");
        Ok((size > 0).then_some(chunk))
    }

    /// The next chunk, or nothing if the body or the connection ends; `Cut` tells an end within a chunk.
    pub fn try_read_chunk(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        while find(&self.unread, b"\r\n").is_none() {
            if !self.fill() {
                return if self.unread.is_empty() { Ok(None) } else { Err(Cut) };
            }
        }
        self.read_chunk_or_cut()
    }

    /// Whether the server closes the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        self.unread.is_empty() && !self.fill()
    }

    /// Whether anything has arrived, or the end of the connection, without waiting.
    pub fn has_news(&mut self) -> bool {
        self.socket.set_nonblocking(true).expect("a socket can be made non-blocking");
        let result = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).expect("a socket can be made blocking");
        !self.unread.is_empty() || !matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    fn read_line(&mut self) -> Result<String, Cut> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let mut line = self.take(end + 2)?;
                line.truncate(end);
                return Ok(String::from_utf8(line).expect("a line is text"));
            }
            if !self.fill() {
                return Err(Cut);
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, Cut> {
        while self.unread.len() < count {
            if !self.fill() {
                return Err(Cut);
            }
        }
        let rest = self.unread.split_off(count);
        Ok(std::mem::replace(&mut self.unread, rest))
    }

    fn read_to_end(&mut self, out: &mut Vec<u8>) {
        while self.fill() {}
        out.append(&mut self.unread);
    }

    /// Reads more; false at the end of the connection.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        loop {
            return match self.socket.read(&mut buffer) {
                Ok(count) => {
                    self.unread.extend_from_slice(&buffer[..count]);
                    count > 0
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // The server closed while bytes of ours were on their way.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
                Err(error) => panic!("nothing came for {PATIENCE:?}: {error}"),
            };
        }
    }
}

/// A request to be sent.
#[derive(Clone)]
pub struct Request<'s> {
    server: Option<&'s Server>,
    /// Method.
    pub method: String,
    /// Target, as it goes on the wire.
    pub target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
    chunked: bool,
}

impl<'s> Request<'s> {
    /// A request without headers beyond `Host`, and without a body.
    pub fn new(method: &str, target: impl Into<String>) -> Request<'s> {
        let (method, target) = (method.to_owned(), target.into());
        Request { server: None, method, target, headers: Vec::new(), body: None, chunked: false }
    }

    /// Says where [`Request::send`] sends it.
    pub fn to(mut self, server: &'s Server) -> Request<'s> {
        self.server = Some(server);
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Request<'s> {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds headers.
    pub fn headers(self, headers: &[(&str, &str)]) -> Request<'s> {
        headers.iter().fold(self, |request, (name, value)| request.header(name, value))
    }

    /// Sets the body, sent with `Content-Length`.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Request<'s> {
        self.body = Some(body.as_ref().to_vec());
        self
    }

    /// Sends the body in chunks instead.
    pub fn chunked(mut self) -> Request<'s> {
        self.chunked = true;
        self
    }

    /// The head alone.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut bytes =
            format!("{} {} HTTP/1.1\r\nHost: thalweg.test\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        match &self.body {
            Some(_) if self.chunked => bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Some(body) => bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes()),
            None => {}
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// The whole request.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        let Some(body) = &self.body else { return bytes };
        if !self.chunked {
            bytes.extend_from_slice(body);
            return bytes;
        }
        // Sizes that are no power of two, so that chunks and buffers never end together.
        for chunk in body.chunks(777) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }

    /// Sends it on a connection of its own.
    pub fn send(&self) -> Response {
        self.server.expect("the request knows its server").connect().send(self)
    }

    /// Sends it and requires a status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Response {
        self.send().expect(status)
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    method: String,
    /// Status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Body, decoded from its transfer coding.
    pub body: Vec<u8>,
}

impl Response {
    fn parse(head: &[u8]) -> Response {
        let head = std::str::from_utf8(head).expect("a head is text");
        let mut lines = head.split("\r\n");
        let status_line = lines.next().expect("a head has a first line");
        let rest =
            status_line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("status line {status_line:?}"));
        let status = rest[..3].parse().unwrap_or_else(|_| panic!("status line {status_line:?}"));
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("header line {line:?}"));
            assert!(
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'),
                "{line:?}"
            );
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        Response { method: String::new(), status, headers: headers.collect(), body: Vec::new() }
    }

    /// What is true of every answer of the server: decision 5 on errors, the browser security headers, who answered.
    fn check(&self) {
        let mut names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != "vary");
        assert_eq!(twice, None, "a header comes twice: {self:?}");
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"), "{self:?}");
        assert_eq!(self.header("cross-origin-resource-policy"), Some("cross-origin"), "{self:?}");
        assert!(self.required("date").ends_with(" GMT"), "{self:?}");
        if self.status < 400 || self.method == "HEAD" {
            return;
        }
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "decision 32: {self:?}");
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        let code = value["error"]["code"].as_str().unwrap_or_else(|| panic!("no code: {value}"));
        assert!(code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'), "{code}");
        let message = value["error"]["message"].as_str().unwrap_or_else(|| panic!("no message: {value}"));
        assert!(!message.is_empty(), "{value}");
        assert_no_white_space(&self.body);
    }

    /// All headers, names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Value of a header that must be there.
    #[track_caller]
    pub fn required(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    /// `Stream-Next-Offset`.
    #[track_caller]
    pub fn next_offset(&self) -> String {
        self.required("stream-next-offset").to_owned()
    }

    /// Requires a status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Response {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
        assert_eq!(self.status, status, "{} answered {body} {:?}", self.method, self.headers);
        self
    }

    /// Requires an error with this code.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str) -> Response {
        let response = self.expect(status);
        assert_eq!(response.error_code(), code);
        response
    }

    /// The error code in the body.
    #[track_caller]
    pub fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("no code: {self:?}")).to_owned()
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Requires that JSON holds no insignificant white space.
#[track_caller]
pub fn assert_no_white_space(json: &[u8]) {
    let found = outside_strings(json).find(|(_, byte)| byte.is_ascii_whitespace());
    assert_eq!(found, None, "white space in {}", String::from_utf8_lossy(json));
}

/// The bytes of JSON outside of its strings, with their places.
pub fn outside_strings(json: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let (mut in_string, mut escaped) = (false, false);
    json.iter().copied().enumerate().filter(move |&(_, byte)| {
        let was_in_string = in_string;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
        !was_in_string && !in_string
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
