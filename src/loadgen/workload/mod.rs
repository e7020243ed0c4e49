//! What connections do, one file for each kind of client.

pub mod acks;
pub mod append;
pub mod churn;
pub mod long_poll;
pub mod read;
pub mod sse;
