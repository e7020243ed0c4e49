//! Thalweg: a durable Durable Streams server, sharded over pinned cores, on io_uring.
//!
//! ```text
//!  client --> listener (one per core, SO_REUSEPORT)
//!               | connection: read, parse, route
//!               | stream owned by another core?  -->  hand the connection over, done here
//!               v
//!             api/<operation>  -- protocol rules (pure) -->  shard state (stream table, record index)
//!               | append: copy the payload once into the open commit, take a ticket
//!               v
//!             commit loop: one aligned O_DIRECT write for all that is staged; on completion it is durable;
//!               then publish: advance tails, wake live readers, release acknowledgements in order
//! ```
//!
//! Layers point down only: `cli -> node -> api -> {http, shard -> storage}`; all of them use [`protocol`], which is
//! pure, and [`limits`] and [`signal`], which import nothing of ours. [`loadgen`] stands beside the server and uses
//! of it [`protocol`] and [`limits`] only. `tests/tidy.rs` holds the rule.
//!
//! Invariants:
//! - An acknowledgement is sent only when the commit that holds its effect is durable.
//! - A stream lives on exactly one shard; only that shard's core touches its state.
//! - State changes through one function, `shard::table::Table::apply`, live and at recovery alike.
//! - A block that holds acknowledged bytes is never written again.

pub mod api;
pub mod cli;
pub mod config;
pub mod http;
pub mod limits;
pub mod loadgen;
pub mod node;
pub mod protocol;
pub mod shard;
pub mod signal;
pub mod storage;
