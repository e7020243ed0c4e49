//! What a run is: every option, checked against the others. A plan that [`Plan::check`] passes can be run.

use serde::Serialize;

use super::measure::Series;
use super::record::{CONNECTIONS_MAX, Layout};
use super::request::Framing;
use super::target::{STREAMS_MAX, Style, Target};
use crate::limits;

/// Threads of a run.
const THREADS_MAX: usize = 256;
/// Requests in flight on one connection.
const DEPTH_MAX: usize = 512;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Longest part of a run.
const PART_MS_MAX: u64 = 7 * 24 * 3600 * 1000;
/// Restarts of a run.
const ROUNDS_MAX: usize = 10_000;
/// Bytes that a stream is filled with.
const STREAM_BYTES_MAX: u64 = 1 << 40;

/// What is done to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Single appends.
    Append,
    /// Append batches.
    AppendBatch,
    /// Appends of JSON arrays.
    JsonArray,
    /// Single appends, several in flight on each connection.
    Pipeline,
    /// Catch-up reads of streams that were filled before.
    Read,
    /// Records followed by long-polls.
    LongPoll,
    /// Records followed by server-sent events.
    Sse,
    /// Writers, replayers and live readers together.
    Mixed,
    /// Streams that are made, written, closed and deleted.
    Churn,
    /// Restarts of the server over filled streams.
    Restart,
    /// Single appends to a responder that does nothing: the cost of the generator.
    Null,
}

impl Kind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Append => "append",
            Kind::AppendBatch => "append-batch",
            Kind::JsonArray => "json-array",
            Kind::Pipeline => "pipeline",
            Kind::Read => "read",
            Kind::LongPoll => "long-poll",
            Kind::Sse => "sse",
            Kind::Mixed => "mixed",
            Kind::Churn => "churn",
            Kind::Restart => "restart",
            Kind::Null => "null",
        }
    }
}

/// What streams hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// `application/octet-stream`.
    Binary,
    /// `text/plain`.
    Text,
    /// `application/json`.
    Json,
}

impl Content {
    /// The value of `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Content::Binary => "application/octet-stream",
            Content::Text => "text/plain",
            Content::Json => "application/json",
        }
    }
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// `SIGTERM`: it may finish what it does.
    Term,
    /// `SIGKILL`: at once, as if it had crashed.
    Kill,
}

/// The shape of the load: what an outcome lists as its options.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Streams.
    pub streams: usize,
    /// Connections that append, read, follow or churn, whatever the workload is about; of `mixed` those that append.
    pub connections: usize,
    /// Bytes of each record.
    pub payload_bytes: usize,
    /// What streams hold.
    pub content: Content,
    /// Records of a request.
    pub frames: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// Requests a second, all connections together; none: a closed loop.
    pub rate_per_s: Option<f64>,
    /// Measured time.
    pub duration_ms: u64,
    /// Time before it.
    pub warm_up_ms: u64,
    /// Threads of the generator.
    pub threads: usize,
    /// Cores that they are pinned to, in turn; empty: not pinned.
    pub cpus: Vec<usize>,
    /// Every connection keeps to one stream.
    pub stay: bool,
    /// Every connection keeps to one shard, at the shard's own port.
    pub shard_aware: bool,
    /// Bytes of records that every stream is filled with before; only where streams are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_bytes: Option<u64>,
    /// Time between filling and reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// Connections that append while others follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<usize>,
    /// Connections that follow, spread over the streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<usize>,
    /// Connections that read streams from the beginning while others write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayers: Option<usize>,
    /// Restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    /// How the server is stopped before a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done.
    pub kind: Kind,
    /// The server; for [`Kind::Null`] a place that is filled in when the responder runs.
    pub target: Target,
    /// How much of it.
    pub load: Load,
    /// Seed of names and payloads.
    pub seed: u64,
    /// What the run is called.
    pub label: String,
    /// The command line.
    pub command: String,
    /// The server's process, to measure it.
    pub server_pid: Option<u32>,
    /// The command that runs the server, for restarts.
    pub server_command: Option<String>,
    /// Everything is read back and compared.
    pub verify: bool,
    /// What was made is deleted at the end.
    pub delete: bool,
}

impl Plan {
    /// Whether it can be run. The error names the option that is wrong, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let load = &self.load;
        within("--streams", load.streams, 1, STREAMS_MAX)?;
        within("--connections", load.connections, 1, CONNECTIONS_MAX)?;
        within("--writers", load.writers.unwrap_or(1), 1, CONNECTIONS_MAX)?;
        within("--readers", load.readers.unwrap_or(1), 1, CONNECTIONS_MAX)?;
        within("--replayers", load.replayers.unwrap_or(0), 0, CONNECTIONS_MAX)?;
        within("--rounds", load.rounds.unwrap_or(1), 1, ROUNDS_MAX)?;
        within("--threads", load.threads, 1, THREADS_MAX)?;
        within("--depth", load.depth, 1, DEPTH_MAX)?;
        within("--duration", load.duration_ms as usize, 1, PART_MS_MAX as usize)?;
        within("--warm-up", load.warm_up_ms as usize, 0, PART_MS_MAX as usize)?;
        let connections = self.connections();
        if load.threads > connections {
            return Err(format!(
                "--threads {}: more than {connections} connections; a thread without one has nothing to do",
                load.threads
            ));
        }
        let least = Layout::payload_bytes_min(load.content == Content::Json, self.is_timed());
        if load.payload_bytes < least {
            return Err(format!(
                "--payload {}: a {} record that can be verified has at least {least} bytes",
                load.payload_bytes,
                if load.content == Content::Json { "JSON" } else { "plain" },
            ));
        }
        self.check_body()?;
        if let Some(rate) = load.rate_per_s
            && !(rate > 0.0 && rate <= 1e9)
        {
            return Err(format!("--rate {rate}: expected requests per second, above 0"));
        }
        self.check_kind()
    }

    fn check_body(&self) -> Result<(), String> {
        let load = &self.load;
        let frames_max = match self.framing() {
            Framing::Plain if load.stream_bytes.is_none() => 1,
            Framing::Plain => limits::RECORDS_PER_APPEND_MAX,
            Framing::Array => limits::RECORDS_PER_APPEND_MAX,
            Framing::Batch => limits::BATCH_FRAMES_MAX,
        };
        within("--frames", load.frames, 1, frames_max)?;
        match load.frames.checked_mul(load.payload_bytes) {
            Some(bytes) if bytes <= BODY_BYTES_MAX => Ok(()),
            _ => Err(format!(
                "--frames {} x --payload {}: more than {BODY_BYTES_MAX} bytes in a request",
                load.frames, load.payload_bytes
            )),
        }
    }

    fn check_kind(&self) -> Result<(), String> {
        match self.kind {
            Kind::AppendBatch if self.target.style == Style::Durable => {
                Err("append-batch: servers of --style durable have no append batches; use json-array"
                    .to_owned())
            }
            Kind::LongPoll | Kind::Sse if self.load.rate_per_s.is_none() => {
                Err(format!("{}: needs --rate, records per second", self.kind.name()))
            }
            Kind::Read | Kind::Restart
                if self.load.stream_bytes.is_none_or(|bytes| bytes == 0 || bytes > STREAM_BYTES_MAX) =>
            {
                Err(format!("--stream-bytes: expected 1 to {STREAM_BYTES_MAX}"))
            }
            Kind::Read | Kind::Churn if self.load.shard_aware => {
                Err(format!("--shard-aware: {} goes over all streams", self.kind.name()))
            }
            Kind::Restart if self.server_command.is_none() => {
                Err("restart: needs --server-command, which starts the server in the foreground".to_owned())
            }
            Kind::Restart if self.server_pid.is_some() => {
                Err("--server-pid: the server of a restart is started here".to_owned())
            }
            Kind::Restart if self.load.rate_per_s.is_some() || self.load.shard_aware => {
                Err("--rate and --shard-aware mean nothing for a restart: leave them out".to_owned())
            }
            Kind::Null if self.load.rate_per_s.is_some() => {
                Err("--rate: a null run measures what the generator can do at most; leave it out".to_owned())
            }
            Kind::Null if self.verify => {
                Err("--verify: the null responder keeps nothing that could be read back".to_owned())
            }
            Kind::Null if self.delete => {
                Err("--delete: the null responder keeps nothing that could be deleted".to_owned())
            }
            Kind::Churn if self.delete => {
                Err("--delete: churn deletes its streams itself; leave it out".to_owned())
            }
            Kind::Null if self.load.shard_aware => {
                Err("--shard-aware: the null responder has no shards".to_owned())
            }
            Kind::Null if self.server_pid.is_some() => {
                Err("--server-pid: the null responder is part of the generator".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Whether records carry the time at which they should have been sent.
    pub fn is_timed(&self) -> bool {
        matches!(self.kind, Kind::LongPoll | Kind::Sse | Kind::Mixed)
    }

    /// Connections of all sorts.
    pub fn connections(&self) -> usize {
        let load = &self.load;
        match self.kind {
            Kind::LongPoll | Kind::Sse | Kind::Mixed => {
                [load.writers, load.readers, load.replayers].into_iter().flatten().sum()
            }
            _ => load.connections,
        }
    }

    /// Streams that are made before the load.
    pub fn streams_made(&self) -> usize {
        if self.kind == Kind::Churn { 1 } else { self.load.streams }
    }

    /// How records are put into a request.
    pub fn framing(&self) -> Framing {
        match self.kind {
            Kind::AppendBatch => Framing::Batch,
            Kind::JsonArray => Framing::Array,
            _ => Framing::Plain,
        }
    }

    /// The latencies that a line about the run is about.
    pub fn main_series(&self) -> Series {
        match self.kind {
            Kind::Read => Series::Read,
            Kind::LongPoll | Kind::Sse => Series::Deliver,
            Kind::Restart => Series::Restart,
            _ => Series::Append,
        }
    }

    /// The records of the run.
    pub fn layout(&self) -> Layout {
        let load = &self.load;
        let is_json = load.content == Content::Json;
        Layout::new(self.seed, load.payload_bytes, is_json, self.is_timed(), load.frames)
    }

    /// The core of a thread, if it is pinned.
    pub fn cpu(&self, thread: usize) -> Option<usize> {
        let cpus = &self.load.cpus;
        (!cpus.is_empty()).then(|| cpus[thread % cpus.len()])
    }
}

fn within(option: &str, value: usize, least: usize, most: usize) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{option} {value}: expected {least} to {most}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A plan that passes.
    pub fn example(kind: Kind) -> Plan {
        Plan {
            kind,
            target: Target::parse("127.0.0.1:4437", Style::Thalweg).unwrap(),
            load: Load {
                streams: 4,
                connections: 2,
                payload_bytes: 64,
                content: if kind == Kind::JsonArray { Content::Json } else { Content::Binary },
                frames: 1,
                depth: 1,
                rate_per_s: None,
                duration_ms: 100,
                warm_up_ms: 0,
                threads: 1,
                cpus: vec![],
                stay: false,
                shard_aware: false,
                stream_bytes: None,
                pause_ms: None,
                writers: None,
                readers: None,
                replayers: None,
                rounds: None,
                signal: None,
            },
            seed: 1,
            label: String::new(),
            command: String::new(),
            server_pid: None,
            server_command: None,
            verify: false,
            delete: false,
        }
    }

    #[test]
    fn every_bad_option_is_named() {
        type Spoil = fn(&mut Plan);
        let table: &[(Kind, &str, Spoil)] = &[
            (Kind::Append, "--streams 0: expected 1 to", |plan| plan.load.streams = 0),
            (Kind::Append, "--connections 0", |plan| plan.load.connections = 0),
            (Kind::Append, "--threads 0", |plan| plan.load.threads = 0),
            (Kind::Append, "--threads 3: more than 2 connections", |plan| plan.load.threads = 3),
            (Kind::Append, "--payload 15: a plain record", |plan| plan.load.payload_bytes = 15),
            (Kind::JsonArray, "--payload 34: a JSON record", |plan| plan.load.payload_bytes = 34),
            (Kind::Append, "--frames 2", |plan| plan.load.frames = 2),
            (Kind::AppendBatch, "--frames 513", |plan| plan.load.frames = 513),
            (Kind::AppendBatch, "bytes in a request", |plan| plan.load.payload_bytes = 1 << 30),
            (Kind::AppendBatch, "use json-array", |plan| plan.target.style = Style::Durable),
            (Kind::Pipeline, "--depth 0", |plan| plan.load.depth = 0),
            (Kind::Append, "--rate 0", |plan| plan.load.rate_per_s = Some(0.0)),
            (Kind::Append, "--rate NaN", |plan| plan.load.rate_per_s = Some(f64::NAN)),
            (Kind::Append, "--duration 0", |plan| plan.load.duration_ms = 0),
            (Kind::Null, "--rate: a null run", |plan| plan.load.rate_per_s = Some(1.0)),
            (Kind::Null, "--verify: the null", |plan| plan.verify = true),
            (Kind::Null, "--delete: the null", |plan| plan.delete = true),
            (Kind::Churn, "--delete: churn", |plan| plan.delete = true),
            (Kind::Null, "--shard-aware: the null", |plan| plan.load.shard_aware = true),
            (Kind::Null, "--server-pid: the null", |plan| plan.server_pid = Some(1)),
        ];
        for (kind, part, spoil) in table {
            let mut plan = example(*kind);
            assert_eq!(plan.check(), Ok(()));
            spoil(&mut plan);
            let error = plan.check().expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
