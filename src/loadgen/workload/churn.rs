//! Clients that make a stream, append to it, close it and delete it, over and over.

use super::super::exchange::Exchange;
use super::super::measure::Series;
use super::super::record::{Id, Layout};
use super::super::response::Head;
use super::super::role::{Conclusion, Context, Role, Seen};
use super::super::target::{Names, STREAMS_MAX, Target};

/// What is done to a stream, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Append,
    Close,
    /// Only to verify: the record must be there, and the stream be closed.
    Check,
    Delete,
    /// Only to verify: the stream must be gone.
    CheckGone,
}

/// A request in which only the stream's digits change, and the record if it has one.
struct Template {
    bytes: Vec<u8>,
    stream_at: usize,
    record_at: usize,
}

/// A client that makes streams of its own.
pub struct Churner {
    templates: [Template; 5],
    layout: Layout,
    connection: u32,
    /// Connections, each of which takes every so-many-th stream.
    stride: u32,
    stream: u32,
    cycle: u64,
    step: Step,
    verify: bool,
    body: Vec<u8>,
    is_closed: bool,
    seen: Seen,
}

impl Churner {
    /// The streams `connection + 1`, `connection + 1 + stride`, ... are its own.
    pub fn new(
        target: &Target,
        names: &Names,
        media_type: &str,
        layout: &Layout,
        connection: u32,
        stride: u32,
        verify: bool,
    ) -> Self {
        let mut record = Vec::new();
        layout.write(&mut record, Id { connection, number: 0, due_ns: 0 });
        let content = format!("Content-Type: {media_type}\r\n");
        let template = |method: &str, query: &str, headers: &str, body: &[u8]| {
            let (path, host) = (names.path(0), target.host());
            let length =
                if method == "GET" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
            let head = format!("{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n");
            Template {
                stream_at: method.len() + 1 + names.digits_at(),
                record_at: head.len(),
                bytes: [head.as_bytes(), body].concat(),
            }
        };
        let templates = [
            template("PUT", "", &content, b""),
            template("POST", "", &content, &record),
            template("POST", "", &format!("{content}Stream-Closed: true\r\n"), b""),
            template("GET", "?offset=-1", "", b""),
            template("DELETE", "", "", b""),
        ];
        Self {
            templates,
            layout: layout.clone(),
            connection,
            stride,
            stream: connection + 1,
            cycle: 0,
            step: Step::Create,
            verify,
            body: Vec::new(),
            is_closed: false,
            seen: Seen::default(),
        }
    }

    /// The present stream is done with: its number does not come again.
    fn next_stream(&mut self) {
        self.cycle += 1;
        self.stream += self.stride;
        self.step = Step::Create;
    }

    fn wrong(&mut self, what: &str) {
        self.seen.different += 1;
        let stream = self.stream;
        self.seen.first_problem.get_or_insert_with(|| format!("stream {stream}: {what}"));
    }

    /// Compares what a stream holds with the one record that it was sent.
    fn check(&mut self) {
        let records = if self.layout.is_json() {
            self.body.strip_prefix(b"[").and_then(|body| body.strip_suffix(b"]")).unwrap_or(&self.body)
        } else {
            &self.body
        };
        let expected = Id { connection: self.connection, number: self.cycle, due_ns: 0 };
        match self.layout.check(records) {
            Some(id) if id == expected && self.is_closed => self.seen.records += 1,
            Some(id) if id == expected => self.wrong("it is not closed, although that was acknowledged"),
            Some(_) => self.wrong("it holds another stream's record"),
            None if records.is_empty() => {
                self.seen.missing += 1;
                let stream = self.stream;
                self.seen
                    .first_problem
                    .get_or_insert_with(|| format!("stream {stream}: its record is missing"));
            }
            None => self.wrong("its record is not as it was sent"),
        }
        self.seen.streams += 1;
        self.body.clear();
    }
}

impl Role for Churner {
    fn ask(&mut self, _due_ns: u64, exchange: &mut Exchange) -> bool {
        if self.stream as usize >= STREAMS_MAX {
            return false;
        }
        let template = &mut self.templates[match self.step {
            Step::Create => 0,
            Step::Append => 1,
            Step::Close => 2,
            Step::Check | Step::CheckGone => 3,
            Step::Delete => 4,
        }];
        Names::write_digits(&mut template.bytes[template.stream_at..], self.stream);
        if self.step == Step::Append {
            let id = Id { connection: self.connection, number: self.cycle, due_ns: 0 };
            self.layout.patch(&mut template.bytes[template.record_at..], id);
        }
        exchange.push(&template.bytes);
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
        self.is_closed = head.closed;
        match self.step {
            Step::Create => head.status == 201,
            Step::Append | Step::Close | Step::Delete => matches!(head.status, 200 | 204),
            Step::Check => head.status == 200,
            // Any other answer than "not there" is wrong, and told below.
            Step::CheckGone => {
                if !matches!(head.status, 404 | 410) {
                    self.wrong(&format!("it was deleted, and answers {}", head.status));
                }
                true
            }
        }
    }

    fn body(&mut self, bytes: &[u8], _context: &mut Context<'_>) {
        if self.step == Step::Check {
            self.body.extend_from_slice(bytes);
        }
    }

    fn end(&mut self, context: &mut Context<'_>) {
        let payload_bytes = self.layout.payload_bytes() as u64;
        let (series, records, next) = match self.step {
            Step::Create => (Series::Create, 0, Step::Append),
            Step::Append => (Series::Append, 1, Step::Close),
            Step::Close if self.verify => (Series::Close, 0, Step::Check),
            Step::Close => (Series::Close, 0, Step::Delete),
            Step::Check => {
                self.check();
                (Series::Read, 1, Step::Delete)
            }
            Step::Delete => (Series::Delete, 0, Step::CheckGone),
            Step::CheckGone => (Series::Read, 0, Step::Create),
        };
        let latency_ns = context.now_ns.saturating_sub(context.due_ns);
        context.measure.operation(series, latency_ns, records, records * payload_bytes);
        self.step = next;
        if next == Step::Create || next == Step::CheckGone && !self.verify {
            self.next_stream();
        }
    }

    fn refused(&mut self, _error: &str, _context: &mut Context<'_>) {
        self.body.clear();
        self.next_stream();
    }

    fn lost(&mut self, _why: &str, _context: &mut Context<'_>) {
        self.body.clear();
        if self.step != Step::Create {
            self.next_stream();
        }
    }

    fn conclude(self: Box<Self>) -> Conclusion {
        Conclusion { seen: self.seen, ..Conclusion::default() }
    }
}
