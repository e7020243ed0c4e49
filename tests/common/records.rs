//! Reads and writes of records: what their answers tell.

use super::client::Response;

/// Token of the extension.
pub const TOKEN: &str = "json-record-coordinates-v1";
/// Content type of a page of records.
pub const NDJSON: &str = "application/x-ndjson";
/// Content type of a page of envelopes.
pub const ENVELOPES: &str = "application/vnd.durable-stream-records+ndjson";

/// A header with a number.
#[track_caller]
pub fn number(response: &Response, name: &str) -> u64 {
    response.required(name).parse().unwrap_or_else(|_| panic!("{name}: {response:?}"))
}

/// `Stream-Record-First`, `-Start` and `-Next` of a read.
#[track_caller]
pub fn range(response: &Response) -> (u64, u64, u64) {
    assert_eq!(response.header("stream-extensions"), Some(TOKEN), "{response:?}");
    let number = |name| number(response, name);
    (number("stream-record-first"), number("stream-record-start"), number("stream-record-next"))
}

/// `Stream-Record-Start` and `-Next` of a write.
#[track_caller]
pub fn made(response: &Response) -> (u64, u64) {
    (number(response, "stream-record-start"), number(response, "stream-record-next"))
}

/// The lines of a page, each of which ends.
#[track_caller]
pub fn lines(response: &Response) -> Vec<&str> {
    let text = response.text();
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    text.split_terminator('\n').collect()
}

/// The envelopes of records, the first of which has this ordinal.
pub fn envelopes(records: &[String], first: usize) -> Vec<String> {
    let envelope = |(at, value)| format!("{{\"record\":{},\"value\":{value}}}", first + at);
    records.iter().enumerate().map(envelope).collect()
}
