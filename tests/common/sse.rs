//! A strict reader of Server-Sent Events: it accepts only the bytes that decision 29 allows.

use serde_json::Value;

use super::client::{Connection, Cut, Request, Response};
use super::server::Server;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `event:`.
    pub name: String,
    /// `id:`; control events have one.
    pub id: Option<String>,
    /// The data as a browser would join it.
    pub data: String,
    /// The event's bytes without its closing blank line.
    pub raw: Vec<u8>,
}

impl Event {
    /// The data as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A string member of a control event.
    #[track_caller]
    pub fn control(&self, member: &str) -> String {
        assert_eq!(self.name, "control", "{self:?}");
        self.json()[member].as_str().unwrap_or_else(|| panic!("no {member}: {self:?}")).to_owned()
    }

    /// Whether a control event says `member: true`.
    #[track_caller]
    pub fn says(&self, member: &str) -> bool {
        assert_eq!(self.name, "control", "{self:?}");
        let json = self.json();
        assert!(
            json.get(member).is_none_or(|value| *value == Value::Bool(true)),
            "{member} is true or absent: {self:?}"
        );
        json.get(member).is_some()
    }
}

/// An open connection that delivers events.
pub struct Events {
    connection: Connection,
    /// The head of the answer.
    pub response: Response,
    unread: Vec<u8>,
    /// Comments seen so far.
    pub comments: usize,
}

impl Events {
    /// Opens one; the answer must be 200.
    #[track_caller]
    pub fn open(server: &Server, request: &Request<'_>) -> Events {
        let mut connection = server.connect();
        connection.start(request);
        let response = connection.read_head().expect("an answer").expect(200);
        assert_eq!(response.header("content-type"), Some("text/event-stream"), "{response:?}");
        assert_eq!(response.header("transfer-encoding"), Some("chunked"), "{response:?}");
        Events { connection, response, unread: Vec::new(), comments: 0 }
    }

    /// The next event; nothing when the server has ended the connection between two events.
    #[track_caller]
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let mut block: Vec<u8> = self.unread.drain(..end + 2).collect();
                block.truncate(end);
                if block.starts_with(b":") {
                    self.comments += 1;
                    continue;
                }
                return Some(parse(block));
            }
            match self.connection.try_read_chunk() {
                Ok(Some(chunk)) => self.unread.extend_from_slice(&chunk),
                Ok(None) => {
                    assert!(
                        self.unread.is_empty(),
                        "ended within {:?}",
                        String::from_utf8_lossy(&self.unread)
                    );
                    return None;
                }
                Err(Cut) => panic!("the connection was cut within a chunk"),
            }
        }
    }

    /// The next event, which must come.
    #[track_caller]
    pub fn next(&mut self) -> Event {
        self.try_next().expect("another event")
    }

    /// The next event, which must be data.
    #[track_caller]
    pub fn next_data(&mut self) -> Event {
        let event = self.next();
        assert_eq!(event.name, "data", "{event:?}");
        event
    }

    /// The next event, which must be control.
    #[track_caller]
    pub fn next_control(&mut self) -> Event {
        let event = self.next();
        assert_eq!(event.name, "control", "{event:?}");
        event
    }

    /// All data up to the first control event that satisfies `done`, joined. Checks that data and control alternate.
    #[track_caller]
    pub fn data_until(&mut self, mut done: impl FnMut(&Event) -> bool) -> Vec<String> {
        let mut data = Vec::new();
        let mut control_is_due = false;
        loop {
            let event = self.next();
            match event.name.as_str() {
                "data" => {
                    assert!(
                        !control_is_due,
                        "decision 29: every data event is followed by its control event"
                    );
                    control_is_due = true;
                    data.push(event.data);
                }
                "control" => {
                    control_is_due = false;
                    if done(&event) {
                        return data;
                    }
                }
                name => panic!("event {name}"),
            }
        }
    }

    /// Requires that the server ends the connection now, between two events.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let event = self.try_next();
        assert_eq!(event, None, "the connection should have ended");
    }
}

/// Decision 29: lines end in LF; `id:` (control only), `event:`, `data:` in that order; no space after `data:` except one
/// before a line that itself starts with one. (The conformance suite looks for `event: ` with a space.)
#[track_caller]
fn parse(raw: Vec<u8>) -> Event {
    assert!(!raw.contains(&b'\r'), "CR in {:?}", String::from_utf8_lossy(&raw));
    let text = std::str::from_utf8(&raw).expect("events are UTF-8");
    let mut lines = text.split('\n').peekable();
    let id = lines.next_if(|line| line.starts_with("id: ")).map(|line| line["id: ".len()..].to_owned());
    let name = lines
        .next()
        .and_then(|line| line.strip_prefix("event: "))
        .unwrap_or_else(|| panic!("no event: {text:?}"));
    assert!(name == "data" || name == "control", "{text:?}");
    assert_eq!(id.is_some(), name == "control", "control events have an id, data events none: {text:?}");
    let mut data = Vec::new();
    for line in lines {
        let value =
            line.strip_prefix("data:").unwrap_or_else(|| panic!("no data line: {line:?} in {text:?}"));
        data.push(match value.strip_prefix(' ') {
            Some(rest) => {
                assert!(rest.starts_with(' '), "a space that a browser would swallow: {text:?}");
                rest
            }
            None => value,
        });
    }
    let (name, data) = (name.to_owned(), data.join("\n"));
    Event { name, id, data, raw }
}
