//! HTTP/1.1: request heads and bodies in, answers out, and the connections that carry them. Knows no streams, and of
//! the layer above only the trait [`service::Service`].
//!
//! | file | what it holds |
//! |---|---|
//! | [`head`] | one request head: limits, framing, connection rules, the headers the server reads |
//! | [`known`] | the names of those headers and their lookup |
//! | [`body`] | the chunked transfer coding of a request body |
//! | [`pieces`] | a long body that grows without being moved |
//! | [`problem`] | why requests are refused before they are understood |
//! | [`response`] | status lines, common headers, framing of answers |
//! | [`cors`] | what browsers of other origins may send and see |
//! | [`date`] | the `Date` header |
//! | [`listener`] | accepting connections |
//! | [`connection`] | one connection: requests in order, answers in order |
//! | [`connections`] | all connections of a shard: their count, their deadlines |
//! | [`lent`] | bytes that the kernel sends without a copy |
//! | [`buffer`] | memory for what was read and not yet served |
//! | [`turn`] | how long work gives way to other work |
//! | [`service`] | what a connection asks of the layer above |
//!
//! Invariants:
//! - A request whose end two implementations could see in different places is refused, and its connection closed:
//!   every problem of a head or of a chunked body ends the connection.
//! - A parse of a part of the input is `None` or the refusal of the whole; it is never a different request.
//! - Answers are appended to a buffer of the caller; only that buffer's growth and the body of an error allocate.
//! - No header value that is written can end its line: control bytes become spaces.

pub mod body;
pub mod buffer;
pub mod connection;
pub mod connections;
pub mod cors;
pub mod date;
pub mod head;
pub mod known;
pub mod lent;
pub mod listener;
pub mod pieces;
pub mod problem;
pub mod readiness;
pub mod response;
pub mod service;
pub mod socket;
pub mod turn;

pub use body::{ChunkedDecoder, Fed};
pub use head::{Framing, Head, Method};
pub use known::Known;
pub use pieces::Pieces;
pub use problem::{BodyProblem, HeadProblem};
pub use response::{Answer, CommonHeaders, Status, Terms, Transfer};
