//! What a server must hold: every stream as the list of its messages. Small enough to be right by inspection; shares no code
//! with the server.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value};

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// JSON records.
    Json,
    /// Text: a message is what one append brought.
    Text,
}

impl Kind {
    /// The content type that goes with it.
    pub fn content_type(self) -> &'static str {
        match self {
            Kind::Json => "application/json",
            Kind::Text => "text/plain",
        }
    }
}

/// A message in its canonical spelling, without separator.
pub type Message = Rc<[u8]>;

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Ordinal of the first message that it does not fold.
    pub record: u64,
    /// Content type.
    pub content_type: String,
    /// Body.
    pub body: Rc<[u8]>,
}

impl Snapshot {
    /// Its digest (decision 18).
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.content_type.len() as u64).to_le_bytes());
        hasher.update(self.content_type.as_bytes());
        hasher.update(&self.body);
        hasher.finalize().to_hex().to_string()
    }
}

/// A producer: its epoch, and what each append of it was given.
#[derive(Clone, Debug)]
pub struct Producer {
    /// Present epoch.
    pub epoch: u64,
    /// First and next ordinal of each append of the epoch, by sequence number.
    pub appends: Vec<(u64, u64)>,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What it holds.
    pub kind: Kind,
    /// Its lineage; `None` until an answer has told it.
    pub lineage: Option<u64>,
    /// Every message that it ever had.
    messages: Vec<Message>,
    /// Where each of them starts, and the end behind them: O(r) for every r.
    starts: Vec<u64>,
    /// First retained ordinal: F.
    pub first: u64,
    /// Whether it is closed.
    pub closed: bool,
    /// Producers by id.
    pub producers: BTreeMap<String, Producer>,
    /// Last `Stream-Seq`.
    pub stream_seq: Option<String>,
    /// The visible snapshot.
    pub snapshot: Option<Snapshot>,
    /// Attributes without what a server does not keep.
    pub attributes: Value,
}

impl Stream {
    /// An empty stream.
    pub fn new(kind: Kind, attributes: Value) -> Stream {
        Stream {
            kind,
            lineage: None,
            messages: Vec::new(),
            starts: vec![0],
            first: 0,
            closed: false,
            producers: BTreeMap::new(),
            stream_seq: None,
            snapshot: None,
            attributes,
        }
    }

    /// The next ordinal: N.
    pub fn next(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Whether its messages are records.
    pub fn is_json(&self) -> bool {
        self.kind == Kind::Json
    }

    /// Where a message starts: O(r).
    pub fn offset_of(&self, ordinal: u64) -> u64 {
        self.starts[ordinal as usize]
    }

    /// The message that starts at an offset, or the next one at the tail.
    pub fn ordinal_at(&self, offset: u64) -> Option<u64> {
        self.starts.binary_search(&offset).ok().map(|ordinal| ordinal as u64)
    }

    /// Offset of the end.
    pub fn tail(&self) -> u64 {
        self.offset_of(self.next())
    }

    /// The earliest retained offset.
    pub fn first_offset(&self) -> u64 {
        self.offset_of(self.first)
    }

    /// The token of an offset.
    pub fn token(&self, offset: u64) -> String {
        match self.lineage {
            Some(lineage) => token(lineage, offset),
            None => format!("(a token not yet known)_{offset}"),
        }
    }

    /// Bytes between a message and the next one.
    pub fn separator_bytes(&self) -> u64 {
        u64::from(self.is_json())
    }

    /// Messages of a range of ordinals.
    pub fn messages(&self, from: u64, to: u64) -> &[Message] {
        &self.messages[from as usize..to as usize]
    }

    /// The bytes of a range of offsets as they are stored.
    pub fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let first = self.starts.partition_point(|start| *start <= from).max(1) - 1;
        let mut bytes = Vec::new();
        let mut at = self.starts[first];
        for message in &self.messages[first..] {
            if at >= to {
                break;
            }
            let separator: &[u8] = if self.is_json() { b"," } else { b"" };
            let stored = [&message[..], separator].concat();
            let (begin, end) = (from.saturating_sub(at), (to - at).min(stored.len() as u64));
            bytes.extend_from_slice(&stored[begin as usize..end as usize]);
            at += stored.len() as u64;
        }
        bytes
    }

    /// Adds messages; the range of ordinals that they have.
    pub fn push(&mut self, messages: &[Message]) -> (u64, u64) {
        let start = self.next();
        for message in messages {
            self.starts.push(self.tail() + message.len() as u64 + self.separator_bytes());
            self.messages.push(message.clone());
        }
        (start, self.next())
    }
}

/// Everything that a server holds, and what it has told.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Streams by name: its place in the list of paths.
    pub streams: BTreeMap<usize, Stream>,
    /// Lineages that were told, of streams that are there and of those that went.
    pub lineages: BTreeSet<u64>,
    /// Entity tags by what they stand for.
    pub tags: BTreeMap<String, String>,
    /// What entity tags stand for.
    pub tagged: BTreeMap<String, String>,
    /// Paths of streams.
    pub paths: Rc<[String]>,
    /// What requests call the server.
    pub host: String,
    /// Bytes of a page of a catch-up read.
    pub page_bytes: u64,
}

impl World {
    /// Whether a stream has the endpoints of the bucket surface.
    pub fn has_suffixes(&self, name: usize) -> bool {
        !self.paths[name].starts_with("/v1/")
    }
}

/// A token.
pub fn token(lineage: u64, offset: u64) -> String {
    format!("{lineage:016}_{offset:016}")
}

/// What a server keeps of attributes (extension 5.1); an error if they are none.
pub fn kept_attributes(text: &str) -> Result<Value, ()> {
    let object: Map<String, Value> = serde_json::from_str(text).map_err(drop)?;
    let mut kept = Map::new();
    for (name, value) in object {
        match (name.as_str(), &value) {
            ("title", Value::String(_)) | ("metadata", Value::Object(_)) => drop(kept.insert(name, value)),
            ("title" | "metadata", _) => return Err(()),
            _ => {}
        }
    }
    Ok(Value::Object(kept))
}
