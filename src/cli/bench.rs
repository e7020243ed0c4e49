//! Options of `thalweg bench`: a subcommand for each workload.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use super::bench_report;
use super::serve::{CpuList, bytes_in, cpu_list};
use crate::loadgen::outcome::Outcome;
use crate::loadgen::plan::{Content, Kind, Load, Plan};
use crate::loadgen::progress::Progress;
use crate::loadgen::target::{Style, Target};
use crate::loadgen::{report, run, summary};

/// Largest `--payload`.
const PAYLOAD_BYTES_MAX: u64 = 256 << 20;

/// Options of `thalweg bench`.
#[derive(Args, Debug)]
#[command(after_help = "Every run makes streams of its own and leaves them on the server.")]
pub struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    #[command(flatten)]
    Run(Workload),
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
    /// Single appends to a responder that does nothing: what the load generator itself costs
    Null(Null),
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

    /// Requests in flight on each connection
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    depth: usize,
}

#[derive(Args, Debug)]
struct Null {
    #[command(flatten)]
    common: Common,

    /// Requests in flight on each connection
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    depth: usize,
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

    /// Streams, made anew for every run
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    streams: usize,

    /// Connections. The i-th begins at the i-th stream and goes round all of them, a request each
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    connections: usize,

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
    /// request was due) [default: a closed loop, as fast as answers come]
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

impl Workload {
    /// The plan, checked.
    fn into_plan(self) -> Result<(Plan, Common), String> {
        let (kind, common, frames, depth) = match self {
            Workload::Append(common) => (Kind::Append, common, 1, 1),
            Workload::AppendBatch(framed) => (Kind::AppendBatch, framed.common, framed.frames, 1),
            Workload::JsonArray(framed) => (Kind::JsonArray, framed.common, framed.frames, 1),
            Workload::Pipeline(deep) => (Kind::Pipeline, deep.common, 1, deep.depth),
            Workload::Null(null) => (Kind::Null, null.common, 1, null.depth),
        };
        let plan = common.plan(kind, frames, depth)?;
        plan.check()?;
        Ok((plan, common))
    }
}

impl Common {
    fn plan(&self, kind: Kind, frames: usize, depth: usize) -> Result<Plan, String> {
        let style = match self.style {
            StyleName::Thalweg => Style::Thalweg,
            StyleName::Durable => Style::Durable,
            StyleName::Ursula => Style::Ursula,
        };
        let content = match self.content {
            Some(ContentName::Binary) => Content::Binary,
            Some(ContentName::Text) => Content::Text,
            Some(ContentName::Json) => Content::Json,
            None if kind == Kind::JsonArray => Content::Json,
            None => Content::Binary,
        };
        let label = self.label.clone().unwrap_or_else(|| format!("{} c{}", kind.name(), self.connections));
        Ok(Plan {
            kind,
            target: Target::parse(&self.target, style)?,
            load: Load {
                streams: self.streams,
                connections: self.connections,
                payload_bytes: self.payload as usize,
                content,
                frames,
                depth,
                rate_per_s: self.rate,
                duration_ms: self.duration,
                warm_up_ms: self.warm_up,
                threads: self.threads,
                cpus: self.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
                stay: self.stay,
                shard_aware: self.shard_aware,
            },
            seed: self.seed,
            label,
            command: command_line(),
            server_pid: self.server_pid,
            verify: self.verify,
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
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Harness {
        #[command(flatten)]
        options: Options,
    }

    fn plan(arguments: &[&str]) -> Result<Plan, String> {
        let arguments = ["bench"].iter().chain(arguments);
        let harness = Harness::try_parse_from(arguments).map_err(|error| error.to_string())?;
        match harness.options.task {
            Task::Run(workload) => workload.into_plan().map(|(plan, _)| plan),
            Task::Report(options) => panic!("no workload: {options:?}"),
        }
    }

    #[test]
    fn every_workload_has_defaults_that_make_sense() {
        for (name, frames, depth, content) in [
            ("append", 1, 1, Content::Binary),
            ("append-batch", 512, 1, Content::Binary),
            ("json-array", 512, 1, Content::Json),
            ("pipeline", 1, 16, Content::Binary),
            ("null", 1, 1, Content::Binary),
        ] {
            let plan = plan(&[name]).unwrap();
            assert_eq!(plan.kind.name(), name);
            let load = &plan.load;
            assert_eq!((load.frames, load.depth, load.content), (frames, depth, content), "{name}");
            assert_eq!((load.duration_ms, load.warm_up_ms), (10_000, 1_000));
            assert_eq!(plan.label, format!("{name} c64"));
        }
    }

    #[test]
    fn options_reach_the_plan() {
        let plan = plan(&[
            "append-batch",
            "--target",
            "http://127.0.0.1:99",
            "--style",
            "ursula",
            "--streams",
            "3",
            "--connections",
            "5",
            "--payload",
            "1KiB",
            "--content",
            "json",
            "--rate",
            "12.5",
            "--duration",
            "1.5",
            "--warm-up",
            "250ms",
            "--threads",
            "2",
            "--cpus",
            "0,2-3",
            "--seed",
            "9",
            "--stay",
            "--verify",
            "--server-pid",
            "7",
            "--label",
            "x",
            "--frames",
            "8",
            "--shard-aware",
        ]);
        let plan = plan.unwrap();
        assert_eq!((plan.target.address.port(), plan.target.style), (99, Style::Ursula));
        let expected = Load {
            streams: 3,
            connections: 5,
            payload_bytes: 1024,
            content: Content::Json,
            frames: 8,
            depth: 1,
            rate_per_s: Some(12.5),
            duration_ms: 1500,
            warm_up_ms: 250,
            threads: 2,
            cpus: vec![0, 2, 3],
            stay: true,
            shard_aware: true,
        };
        assert_eq!(plan.load, expected);
        assert_eq!((plan.seed, plan.verify, plan.server_pid, plan.label.as_str()), (9, true, Some(7), "x"));
    }

    #[test]
    fn bad_options_are_refused_by_name() {
        let table: &[(&[&str], &str)] = &[
            (&["append", "--streams", "0"], "--streams 0"),
            (&["append", "--duration", "soon"], "`soon` is no time"),
            (&["append", "--duration=-1s"], "`-1s` is no time"),
            (&["append", "--target", "https://x"], "only http://"),
            (&["append", "--style", "rest"], "--style"),
            (&["append", "--frames", "2"], "--frames"),
            (&["null", "--rate", "5"], "--rate: a null run"),
            (&["append", "--payload", "3"], "--payload 3"),
            (&[], "append-batch"),
        ];
        for (arguments, part) in table {
            let error = plan(arguments).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn times_have_units() {
        let table = [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1.5", 1_500), ("0", 0)];
        for (text, expected) in table {
            assert_eq!(milliseconds(text), Ok(expected), "{text}");
        }
    }
}
