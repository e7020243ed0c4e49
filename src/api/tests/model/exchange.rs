//! A request and its answer, whatever carries them, and who serves them.

use std::fmt;
use std::future::Future;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// Header lines.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Clone)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header lines.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// Who answers.
pub trait Server {
    /// Serves a request to its end.
    fn send(&self, request: &Request) -> impl Future<Output = Answer>;
}

impl Answer {
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

    /// Lineage and byte offset of `Stream-Next-Offset`.
    #[track_caller]
    pub fn next_offset(&self) -> (u64, u64) {
        split_token(self.required("stream-next-offset"))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, excerpt(&self.body))
    }
}

/// Lineage and byte offset of a token.
#[track_caller]
pub fn split_token(token: &str) -> (u64, u64) {
    let halves = token.split_once('_').filter(|(one, other)| one.len() == 16 && other.len() == 16);
    let parsed = halves.and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    parsed.unwrap_or_else(|| panic!("{token:?} is no token"))
}

/// Bytes as text; of many, the first and the number.
pub fn excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    if bytes.len() <= SHOWN { format!("\"{text}\"") } else { format!("\"{text}\" ({} bytes)", bytes.len()) }
}
