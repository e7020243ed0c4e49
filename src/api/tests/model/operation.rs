//! Operations as values, and the requests that ask for them.

use std::fmt::{self, Display};
use std::rc::Rc;

use super::exchange::Request;
use super::oracle::{Kind, Message, World, token};

/// What is done to which stream.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The stream: its place in the list of paths.
    pub name: usize,
    /// What is done.
    pub act: Act,
}

/// What is done to a stream.
#[derive(Clone, Debug)]
pub enum Act {
    /// `PUT`.
    Create(Create),
    /// `POST`.
    Append(Append),
    /// `POST append-batch`.
    Batch {
        /// What the request says that its frames are.
        kind: Kind,
        /// Frames.
        frames: Vec<Content>,
    },
    /// `PUT snapshot`.
    Publish(Publish),
    /// `PUT retention`.
    Retain(Boundary),
    /// `PUT attrs`.
    SetAttributes(String),
    /// `GET attrs`.
    Attributes,
    /// `HEAD`.
    Head,
    /// `GET bootstrap`.
    Bootstrap,
    /// `GET snapshot`.
    Latest,
    /// `GET snapshot/{offset}`.
    ReadSnapshot(Offset),
    /// `DELETE snapshot/{offset}`.
    DeleteSnapshot(Offset),
    /// `GET`.
    Read(Read),
    /// `DELETE`.
    Delete,
}

/// A create.
#[derive(Clone, Debug)]
pub struct Create {
    /// Content type.
    pub kind: Kind,
    /// `Stream-Closed: true`.
    pub closed: bool,
    /// `Stream-Attrs`.
    pub attributes: Option<String>,
    /// First content.
    pub content: Option<Content>,
}

/// An append.
#[derive(Clone, Debug)]
pub struct Append {
    /// Content type of the content.
    pub kind: Kind,
    /// Content.
    pub content: Option<Content>,
    /// `Producer-Id`, `-Epoch` and `-Seq`.
    pub producer: Option<(String, u64, u64)>,
    /// `Stream-Seq`.
    pub stream_seq: Option<String>,
    /// `Stream-Record-Match`.
    pub record_match: Option<u64>,
    /// `Stream-Closed: true`.
    pub close: bool,
}

impl Append {
    /// An append of content alone.
    pub fn of(kind: Kind, content: Content) -> Append {
        Append {
            kind,
            content: Some(content),
            producer: None,
            stream_seq: None,
            record_match: None,
            close: false,
        }
    }
}

/// A body, or a frame.
#[derive(Clone)]
pub struct Content {
    /// As it is sent.
    pub sent: Rc<[u8]>,
    /// The messages that it brings, or the code of its error.
    pub messages: Result<Vec<Message>, &'static str>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.messages.as_ref().map(Vec::len);
        write!(f, "{} as {count:?}", super::exchange::excerpt(&self.sent))
    }
}

/// A snapshot to be published.
#[derive(Clone)]
pub struct Publish {
    /// Where.
    pub at: Boundary,
    /// Content type.
    pub content_type: String,
    /// Body.
    pub body: Rc<[u8]>,
    /// `Stream-Snapshot-Match`.
    pub expected: Option<String>,
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Publish { at, content_type, body, expected } = self;
        write!(f, "Publish {at:?} {content_type} {} expected: {expected:?}", super::exchange::excerpt(body))
    }
}

/// A place that a snapshot or a retention names.
#[derive(Clone, Debug)]
pub enum Boundary {
    /// As the last segment of the path.
    Offset(Offset),
    /// As `?record=`.
    Record(u64),
}

/// An offset as a client gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// `-1`.
    Start,
    /// `now`.
    Now,
    /// A plain number.
    Plain(u64),
    /// Lineage and offset.
    Token(u64, u64),
}

impl Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Offset::Start => f.write_str("-1"),
            Offset::Now => f.write_str("now"),
            Offset::Plain(at) => write!(f, "{at}"),
            Offset::Token(lineage, at) => f.write_str(&token(*lineage, *at)),
        }
    }
}

/// Where a read starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Nothing is said.
    Nowhere,
    /// `offset`.
    Offset(Offset),
    /// `record`.
    Record(u64),
    /// `record=now`.
    RecordNow,
    /// `tail_records`.
    Tail(u64),
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Where it starts.
    pub from: From,
    /// `max_bytes`.
    pub max_bytes: Option<u64>,
    /// `max_records`.
    pub max_records: Option<u64>,
    /// `record_view=envelope`.
    pub envelope: bool,
    /// `Accept: application/x-ndjson`.
    pub lines: bool,
    /// `live=long-poll`.
    pub live: bool,
}

impl Read {
    /// A read that says nothing but where it starts.
    pub fn at(from: From) -> Read {
        Read { from, max_bytes: None, max_records: None, envelope: false, lines: false, live: false }
    }

    /// Whether it starts by record.
    pub fn is_by_record(&self) -> bool {
        matches!(self.from, From::Record(_) | From::RecordNow | From::Tail(_))
    }

    fn query(&self) -> String {
        let mut query = Vec::new();
        match self.from {
            From::Nowhere => {}
            From::Offset(offset) => query.push(format!("offset={offset}")),
            From::Record(record) => query.push(format!("record={record}")),
            From::RecordNow => query.push("record=now".to_owned()),
            From::Tail(count) => query.push(format!("tail_records={count}")),
        }
        query.extend(self.max_bytes.map(|max| format!("max_bytes={max}")));
        query.extend(self.max_records.map(|max| format!("max_records={max}")));
        query.extend(self.envelope.then(|| "record_view=envelope".to_owned()));
        query.extend(self.live.then(|| "live=long-poll".to_owned()));
        if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) }
    }
}

impl Operation {
    /// The request for it.
    pub fn request(&self, world: &World) -> Request {
        let path = &world.paths[self.name];
        let plain = |method, suffix: &str| Request {
            method,
            target: format!("{path}{suffix}"),
            headers: Vec::new(),
            body: Vec::new(),
        };
        match &self.act {
            Act::Create(create) => create.request(plain("PUT", "")),
            Act::Append(append) => append.request(plain("POST", "")),
            Act::Batch { kind, frames } => {
                let headers = vec![("Content-Type", kind.content_type().to_owned())];
                Request { headers, body: framed(frames), ..plain("POST", "/append-batch") }
            }
            Act::Publish(publish) => {
                let mut request = plain("PUT", &publish.at.suffix("snapshot"));
                request.headers.push(("Content-Type", publish.content_type.clone()));
                request.headers.extend(publish.expected.clone().map(|sent| ("Stream-Snapshot-Match", sent)));
                request.body = publish.body.to_vec();
                request
            }
            Act::Retain(at) => plain("PUT", &at.suffix("retention")),
            Act::SetAttributes(text) => {
                let headers = vec![("Content-Type", "application/json".to_owned())];
                Request { headers, body: text.as_bytes().to_vec(), ..plain("PUT", "/attrs") }
            }
            Act::Attributes => plain("GET", "/attrs"),
            Act::Head => plain("HEAD", ""),
            Act::Bootstrap => plain("GET", "/bootstrap"),
            Act::Latest => plain("GET", "/snapshot"),
            Act::ReadSnapshot(offset) => plain("GET", &format!("/snapshot/{offset}")),
            Act::DeleteSnapshot(offset) => plain("DELETE", &format!("/snapshot/{offset}")),
            Act::Read(read) => {
                let mut request = plain("GET", &read.query());
                if read.lines {
                    request.headers.push(("Accept", "application/x-ndjson".to_owned()));
                }
                request
            }
            Act::Delete => plain("DELETE", ""),
        }
    }
}

impl Create {
    fn request(&self, mut request: Request) -> Request {
        request.headers.push(("Content-Type", self.kind.content_type().to_owned()));
        request.headers.extend(self.closed.then(|| ("Stream-Closed", "true".to_owned())));
        request.headers.extend(self.attributes.clone().map(|text| ("Stream-Attrs", text)));
        request.body = self.content.as_ref().map_or(Vec::new(), |content| content.sent.to_vec());
        request
    }
}

impl Append {
    fn request(&self, mut request: Request) -> Request {
        if let Some(content) = &self.content {
            request.headers.push(("Content-Type", self.kind.content_type().to_owned()));
            request.body = content.sent.to_vec();
        }
        if let Some((id, epoch, seq)) = &self.producer {
            request.headers.push(("Producer-Id", id.clone()));
            request.headers.push(("Producer-Epoch", epoch.to_string()));
            request.headers.push(("Producer-Seq", seq.to_string()));
        }
        request.headers.extend(self.stream_seq.clone().map(|seq| ("Stream-Seq", seq)));
        request.headers.extend(self.record_match.map(|next| ("Stream-Record-Match", next.to_string())));
        request.headers.extend(self.close.then(|| ("Stream-Closed", "true".to_owned())));
        request
    }
}

impl Boundary {
    fn suffix(&self, what: &str) -> String {
        match self {
            Boundary::Offset(offset) => format!("/{what}/{offset}"),
            Boundary::Record(record) => format!("/{what}?record={record}"),
        }
    }
}

fn framed(frames: &[Content]) -> Vec<u8> {
    let mut body = Vec::new();
    for frame in frames {
        body.extend_from_slice(&(frame.sent.len() as u32).to_be_bytes());
        body.extend_from_slice(&frame.sent);
    }
    body
}
