//! The harness of the black-box tests: a server process with a temporary data directory, a small blocking HTTP/1.1 client
//! that hides nothing, and a reader of Server-Sent Events. Nothing here shares code with the server.
//!
//! With `THALWEG_TEST_ADDRESS` the tests run against a server that is there already; only those of the base protocol can
//! pass on a foreign one.

// Every test binary compiles this module and uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod batch;
pub mod client;
pub mod files;
pub mod parts;
pub mod random;
pub mod records;
pub mod server;
pub mod sse;
pub mod stream;

pub use client::{Connection, Request, Response};
pub use parts::{Bootstrap, Part, digest};
pub use random::Random;
pub use server::{DataDir, Server};
pub use sse::{Event, Events};
pub use stream::{JSON, OCTETS, Stream, TEXT};
