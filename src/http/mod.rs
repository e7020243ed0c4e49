//! HTTP/1.1 as bytes: request heads and bodies in, responses out. Knows no streams and does no input or output.
//!
//! | file | what it holds |
//! |---|---|
//! | [`head`] | one request head: limits, framing, connection rules, the headers the server reads |
//! | [`known`] | the names of those headers and their lookup |
//! | [`body`] | the chunked transfer coding of a request body |
//! | [`problem`] | why requests are refused |
//! | [`response`] | status lines, common headers, framing of answers |
//! | [`cors`] | what browsers of other origins may send and see |
//! | [`date`] | the `Date` header |
//! | [`digits`] | numbers as text, without formatting machinery |
//!
//! Invariants:
//! - A request whose end two implementations could see in different places is refused, and its connection closed:
//!   every problem of a head or of a chunked body ends the connection.
//! - A parse of a part of the input is `None` or the refusal of the whole; it is never a different request.
//! - Answers are appended to a buffer of the caller; nothing here allocates but that buffer's growth.
//! - No header value that is written can end its line: control bytes become spaces.

pub mod body;
pub mod buffer;
pub mod connection;
pub mod connections;
pub mod cors;
pub mod date;
pub mod digits;
pub mod head;
pub mod known;
pub mod listener;
pub mod problem;
pub mod response;
pub mod service;

pub use body::{ChunkedDecoder, Fed};
pub use head::{Framing, Head, Method};
pub use known::Known;
pub use problem::{BodyProblem, HeadProblem};
pub use response::{Answer, CommonHeaders, Status, Terms, Transfer};
