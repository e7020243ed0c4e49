//! Options of `thalweg bench`: a subcommand for each workload.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use super::bench_report;
use super::serve::{CpuList, bytes_in, cpu_list};
use crate::loadgen::outcome::Outcome;
use crate::loadgen::plan::{Content, Kind, Load, Plan, Signal};
use crate::loadgen::progress::Progress;
use crate::loadgen::target::{Style, Target};
use crate::loadgen::{report, run, summary};

/// Largest `--payload`.
const PAYLOAD_BYTES_MAX: u64 = 256 << 20;
/// Largest `--stream-bytes`.
const STREAM_BYTES_MAX: u64 = 1 << 40;

/// Options of `thalweg bench`.
#[derive(Args, Debug)]
#[command(
    after_help = "Every run makes streams of its own, and leaves them on the server unless --delete is given."
)]
pub struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    #[command(flatten)]
    Run(Box<Workload>),
    /// Put outcomes of runs on one page, to read or to compare
    Report(bench_report::Options),
}

#[derive(Subcommand, Debug)]
enum Workload {
    /// Single appends: one record a request
    Append(Common),
    /// Append batches: many records a request, each acknowledged by itself
    AppendBatch(Framed),
    /// Appends of JSON arrays: many records a request
    JsonArray(Framed),
    /// Single appends, several in flight on each connection
    Pipeline(Deep),
    /// Catch-up reads: streams are filled, then read from the beginning to the end, again and again
    Read(Read),
    /// Writers at a fixed rate, and readers that follow by long-polls: latency from the intended send time
    LongPoll(Live),
    /// Writers at a fixed rate, and readers that follow by server-sent events: latency from the intended send time
    Sse(Live),
    /// Writers, clients that read streams from the beginning, and live readers (server-sent events), together
    Mixed(Mixed),
    /// Streams are created, written, closed and deleted, over and over
    Churn(Common),
    /// Streams are filled, then the server is stopped and started again: time to the first read that succeeds
    Restart(Restart),
    /// Single appends to a responder that does nothing: what the load generator itself costs
    Null(Deep),
}

#[derive(Args, Debug)]
struct Framed {
    #[command(flatten)]
    common: Common,

    /// Records in a request
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    frames: usize,
}

#[derive(Args, Debug)]
struct Deep {
    #[command(flatten)]
    common: Common,

    /// Requests in flight on each connection [default: 16; null: 1]
    #[arg(long, value_name = "COUNT")]
    depth: Option<usize>,
}

/// How streams are filled.
#[derive(Args, Debug)]
struct Fill {
    /// Bytes of records that every stream is filled with
    #[arg(long, value_name = "BYTES", default_value = "24MiB", value_parser = stream_bytes)]
    stream_bytes: u64,

    /// Records in each request that fills; requests go over all streams in turn
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    frames: usize,
}

#[derive(Args, Debug)]
struct Read {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    fill: Fill,

    /// Read from disk: 64 streams unless --streams says otherwise, filled interleaved, to be more than the server caches
    #[arg(long)]
    cold: bool,

    /// Time between filling and reading, for the server to come to rest
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pause: Option<u64>,
}

#[derive(Args, Debug)]
struct Live {
    #[command(flatten)]
    common: Common,

    /// Connections that write; --connections are those that follow
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    writers: usize,
}

#[derive(Args, Debug)]
struct Mixed {
    #[command(flatten)]
    common: Common,

    /// Connections that follow; --connections are those that write
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    readers: usize,

    /// Connections that read streams from the beginning
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    replayers: usize,
}

#[derive(Args, Debug)]
struct Restart {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    fill: Fill,

    /// Starts the server in the foreground, on the address of --target
    #[arg(long, value_name = "COMMAND")]
    server_command: String,

    /// Restarts
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,

    /// How the server is stopped
    #[arg(long, value_name = "SIGNAL", default_value = "term")]
    signal: SignalName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SignalName {
    /// SIGTERM: it may finish what it does
    Term,
    /// SIGKILL: as if it had crashed
    Kill,
}

/// What all workloads have.
#[derive(Args, Debug)]
struct Common {
    /// The server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4437")]
    target: String,

    /// How the server names streams
    #[arg(long, value_name = "STYLE", default_value = "thalweg")]
    style: StyleName,

    /// Streams, made anew for every run [default: 64; read, sse and long-poll: 1]
    #[arg(long, value_name = "COUNT")]
    streams: Option<usize>,

    /// Connections. The i-th begins at the i-th stream; one that appends goes round all of them, a request each
    /// [default: 64; append-batch and json-array: 8; read: 4; sse: 1000; long-poll: 100; mixed: 16]
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,

    /// Every connection stays with one stream
    #[arg(long)]
    stay: bool,

    /// Every connection talks to one shard, at its own port, about its streams only (`serve --shard-ports`)
    #[arg(long)]
    shard_aware: bool,

    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = payload_bytes)]
    payload: u64,

    /// What streams hold [default: json for json-array, else binary]
    #[arg(long, value_name = "CONTENT")]
    content: Option<ContentName>,

    /// Requests a second, all connections together, at fixed times (an open loop: latency counts from the time at which a
    /// request was due) [default: a closed loop, as fast as answers come; of those that write in sse and long-poll: 50]
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Measured time: seconds, or with a unit: 500ms, 10s, 2m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = milliseconds)]
    duration: u64,

    /// Time before it, under the same load
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = milliseconds)]
    warm_up: u64,

    /// Threads of the load generator
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,

    /// Cores for its threads, in turn: 1 or 2,4-7 [default: not pinned]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuList>,

    /// Seed of payloads and names
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Read everything back at the end: every acknowledged record must be there, once, in order, byte for byte
    #[arg(long)]
    verify: bool,

    /// Delete the run's streams, and their bucket, at the end
    #[arg(long)]
    delete: bool,

    /// Process of the server, on this machine: measures its CPU time and memory
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,

    /// Name of the run [default: the workload and its connections]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Write the outcome to a file, as JSON with the histograms
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page that shows the run: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Say nothing while it runs
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StyleName {
    /// Buckets, made by PUT first: `/{bucket}/{stream}`
    Thalweg,
    /// Any server of the base protocol: `/v1/stream/{path}`
    Durable,
    /// Buckets that need not be made: `/{bucket}/{stream}`
    Ursula,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ContentName {
    /// application/octet-stream
    Binary,
    /// text/plain
    Text,
    /// application/json: every record is an object
    Json,
}

/// Runs a workload. Ends with 2 if the options make no sense, with 1 if the run failed or verification found something.
pub fn main(options: Options) -> ExitCode {
    let workload = match options.task {
        Task::Run(workload) => workload,
        Task::Report(options) => return bench_report::main(&options),
    };
    let (plan, common) = match workload.into_plan() {
        Ok(planned) => planned,
        Err(why) => {
            eprintln!("thalweg bench: {why}");
            return ExitCode::from(2);
        }
    };
    match execute(plan, &common) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("thalweg bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn execute(plan: Plan, common: &Common) -> Result<ExitCode, String> {
    // Not to find out after a long run.
    for path in [&common.json, &common.report].into_iter().flatten() {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        if directory.is_some_and(|directory| !directory.is_dir()) || path.is_dir() {
            return Err(format!("cannot write {}: there is no such directory, or it is one", path.display()));
        }
    }
    let outcome = run::run(plan, &mut Progress::new(common.quiet))?;
    print!("{}", summary::table(&outcome));
    if let Some(path) = &common.json {
        write(path, &outcome)?;
    }
    if let Some(path) = &common.report {
        report::write(path, std::slice::from_ref(&outcome))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let is_whole = outcome.verified.as_ref().is_none_or(|found| found.missing == 0 && found.different == 0);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: &Path, outcome: &Outcome) -> Result<(), String> {
    std::fs::write(path, outcome.to_json())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// What a workload has besides what all have.
struct Own {
    kind: Kind,
    /// Defaults.
    streams: usize,
    connections: usize,
    rate_per_s: Option<f64>,
    frames: usize,
    depth: usize,
    stream_bytes: Option<u64>,
    pause_ms: Option<u64>,
    writers: Option<usize>,
    readers: Option<usize>,
    replayers: Option<usize>,
    rounds: Option<usize>,
    signal: Option<Signal>,
    server_command: Option<String>,
}

impl Own {
    fn new(kind: Kind, connections: usize) -> Self {
        Self {
            kind,
            streams: 64,
            connections,
            rate_per_s: None,
            frames: 1,
            depth: 1,
            stream_bytes: None,
            pause_ms: None,
            writers: None,
            readers: None,
            replayers: None,
            rounds: None,
            signal: None,
            server_command: None,
        }
    }

    fn filled(self, fill: &Fill) -> Self {
        Self { stream_bytes: Some(fill.stream_bytes), frames: fill.frames, ..self }
    }
}

impl Workload {
    fn into_own(self) -> (Own, Common) {
        let framed =
            |kind, framed: Framed| (Own { frames: framed.frames, ..Own::new(kind, 8) }, framed.common);
        let deep = |kind, default: usize, deep: Deep| {
            (Own { depth: deep.depth.unwrap_or(default), ..Own::new(kind, 64) }, deep.common)
        };
        let live = |kind, default: usize, live: Live| {
            let readers = Some(live.common.connections.unwrap_or(default));
            let own = Own { streams: 1, rate_per_s: Some(50.0), ..Own::new(kind, default) };
            (Own { writers: Some(live.writers), readers, ..own }, live.common)
        };
        match self {
            Workload::Append(common) => (Own::new(Kind::Append, 64), common),
            Workload::AppendBatch(options) => framed(Kind::AppendBatch, options),
            Workload::JsonArray(options) => framed(Kind::JsonArray, options),
            Workload::Pipeline(options) => deep(Kind::Pipeline, 16, options),
            Workload::Read(read) => {
                let streams = if read.cold { 64 } else { 1 };
                let own = Own { streams, pause_ms: read.pause, ..Own::new(Kind::Read, 4) };
                (own.filled(&read.fill), read.common)
            }
            Workload::LongPoll(options) => live(Kind::LongPoll, 100, options),
            Workload::Sse(options) => live(Kind::Sse, 1000, options),
            Workload::Mixed(mixed) => {
                let writers = Some(mixed.common.connections.unwrap_or(16));
                let (readers, replayers) = (Some(mixed.readers), Some(mixed.replayers));
                (Own { writers, readers, replayers, ..Own::new(Kind::Mixed, 16) }, mixed.common)
            }
            Workload::Churn(common) => (Own::new(Kind::Churn, 64), common),
            Workload::Restart(restart) => {
                let signal = match restart.signal {
                    SignalName::Term => Signal::Term,
                    SignalName::Kill => Signal::Kill,
                };
                let own = Own {
                    rounds: Some(restart.rounds),
                    signal: Some(signal),
                    server_command: Some(restart.server_command),
                    ..Own::new(Kind::Restart, 1)
                };
                (own.filled(&restart.fill), restart.common)
            }
            Workload::Null(options) => deep(Kind::Null, 1, options),
        }
    }

    /// The plan, checked.
    fn into_plan(self) -> Result<(Plan, Common), String> {
        let (own, common) = self.into_own();
        if own.kind == Kind::Churn && common.streams.is_some() {
            return Err("--streams: churn makes streams all the time; leave it out".to_owned());
        }
        let plan = common.plan(own)?;
        plan.check()?;
        Ok((plan, common))
    }
}

impl Common {
    fn plan(&self, own: Own) -> Result<Plan, String> {
        let style = match self.style {
            StyleName::Thalweg => Style::Thalweg,
            StyleName::Durable => Style::Durable,
            StyleName::Ursula => Style::Ursula,
        };
        let content = match self.content {
            Some(ContentName::Binary) => Content::Binary,
            Some(ContentName::Text) => Content::Text,
            Some(ContentName::Json) => Content::Json,
            None if own.kind == Kind::JsonArray => Content::Json,
            None => Content::Binary,
        };
        let connections = self.connections.unwrap_or(own.connections);
        let label = self.label.clone().unwrap_or_else(|| format!("{} c{connections}", own.kind.name()));
        Ok(Plan {
            kind: own.kind,
            target: Target::parse(&self.target, style)?,
            load: Load {
                streams: self.streams.unwrap_or(own.streams),
                connections,
                payload_bytes: self.payload as usize,
                content,
                frames: own.frames,
                depth: own.depth,
                rate_per_s: self.rate.or(own.rate_per_s),
                duration_ms: self.duration,
                warm_up_ms: self.warm_up,
                threads: self.threads,
                cpus: self.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
                stay: self.stay,
                shard_aware: self.shard_aware,
                stream_bytes: own.stream_bytes,
                pause_ms: own.pause_ms,
                writers: own.writers,
                readers: own.readers,
                replayers: own.replayers,
                rounds: own.rounds,
                signal: own.signal,
            },
            seed: self.seed,
            label,
            command: command_line(),
            server_pid: self.server_pid,
            server_command: own.server_command,
            verify: self.verify,
            delete: self.delete,
        })
    }
}

/// The command line, with the program by its name only.
fn command_line() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let rest = arguments.map(|argument| match argument.contains([' ', '"', '\'', '$', '&', ';']) {
        true => format!("'{}'", argument.replace('\'', "'\\''")),
        false => argument,
    });
    name.into_iter().chain(rest).collect::<Vec<_>>().join(" ")
}

fn stream_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, 1, STREAM_BYTES_MAX)
}

fn payload_bytes(text: &str) -> Result<u64, String> {
    bytes_in(text, 1, PAYLOAD_BYTES_MAX)
}

/// A length of time: a number (whole or not) of seconds, or with `ms`, `s` or `m`.
fn milliseconds(text: &str) -> Result<u64, String> {
    let units = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("", 1e3)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .expect("every text ends in nothing");
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok((number * factor).round() as u64),
        _ => Err(format!("`{text}` is no time: write 500ms, 10s, 2m, or seconds")),
    }
}

#[cfg(test)]
mod tests;
