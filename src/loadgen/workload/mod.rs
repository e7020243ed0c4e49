//! What connections do, one file for each kind of client.

pub mod acks;
pub mod append;
