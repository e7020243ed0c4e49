//! One server process: what it needs from the machine (preflight, cores, ports), its data directory (lock, manifest,
//! lineage ids), and the life of its shards from start to stop.
//!
//! Nothing here is on the path of a request, except the question which lineage ids were issued.

pub mod core;
pub mod cores;
pub mod data_dir;
pub mod executor;
pub mod exit;
pub mod listen;
pub mod manifest;
pub mod nudge;
pub mod preflight;
pub mod reshard;
pub mod serve;
pub mod signals;
