//! The settings of a server, as parsed and checked by `cli::serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

/// When an acknowledged write is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before the answer (`--sync always`).
    Always,
    /// When the kernel and the device please (`--sync none`).
    None,
}

/// Settings of one server process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the public listener.
    pub listen: SocketAddr,
    /// Directory that holds everything durable.
    pub data_dir: PathBuf,
    /// Number of shards; by default as many as the directory has, for a new one one per core that the process may use.
    pub shards: Option<usize>,
    /// Cores to pin shards to, in shard order.
    pub cpus: Option<Vec<usize>>,
    /// Whether each shard also listens on `port + 1 + shard`.
    pub shard_ports: bool,
    /// When an acknowledged write is on disk.
    pub sync: Sync,
    /// How long an idle shard's commit waits for company.
    pub commit_delay_us: u64,
    /// How long a mostly idle core looks for something to do before it sleeps.
    pub spin_us: u64,
    /// Size of a segment file.
    pub segment_bytes: u64,
    /// Segments that a shard makes ahead of use while it is idle.
    pub segments_ahead: usize,
    /// Recent commits kept in memory, all shards together.
    pub cache_bytes: u64,
    /// Pages that are read again and again kept in memory, all shards together.
    pub hot_bytes: u64,
    /// Largest request body.
    pub max_body_bytes: u64,
    /// Largest snapshot.
    pub max_snapshot_bytes: u64,
    /// Most connections, all shards together.
    pub max_connections: usize,
    /// How long a long-poll waits.
    pub long_poll_timeout_ms: u64,
    /// How long an SSE connection lives.
    pub sse_max_ms: u64,
    /// Size of a page of a catch-up read.
    pub read_page_bytes: u64,
    /// Whether `X-Forwarded-Proto` is believed.
    pub trust_proxy: bool,
}
