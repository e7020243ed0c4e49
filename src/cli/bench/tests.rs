//! Options of `thalweg bench`: what they default to, how they reach the plan, how bad ones are refused.

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
    let restart = ["restart", "--server-command", "serve"];
    let table: &[(&[&str], Kind, [usize; 4], Content)] = &[
        (&["append"], Kind::Append, [64, 64, 1, 1], Content::Binary),
        (&["append-batch"], Kind::AppendBatch, [64, 8, 512, 1], Content::Binary),
        (&["json-array"], Kind::JsonArray, [64, 8, 512, 1], Content::Json),
        (&["pipeline"], Kind::Pipeline, [64, 64, 1, 16], Content::Binary),
        (&["read"], Kind::Read, [1, 4, 512, 1], Content::Binary),
        (&["read", "--cold"], Kind::Read, [64, 4, 512, 1], Content::Binary),
        (&["long-poll"], Kind::LongPoll, [1, 100, 1, 1], Content::Binary),
        (&["sse"], Kind::Sse, [1, 1000, 1, 1], Content::Binary),
        (&["mixed"], Kind::Mixed, [64, 16, 1, 1], Content::Binary),
        (&["churn"], Kind::Churn, [64, 64, 1, 1], Content::Binary),
        (&restart, Kind::Restart, [64, 1, 512, 1], Content::Binary),
        (&["null"], Kind::Null, [64, 64, 1, 1], Content::Binary),
    ];
    for (arguments, kind, numbers, content) in table {
        let plan = plan(arguments).unwrap();
        let load = &plan.load;
        assert_eq!((plan.kind, plan.kind.name()), (*kind, arguments[0]));
        assert_eq!([load.streams, load.connections, load.frames, load.depth], *numbers, "{arguments:?}");
        assert_eq!((load.content, load.duration_ms, load.warm_up_ms), (*content, 10_000, 1_000));
        assert_eq!(plan.label, format!("{} c{}", kind.name(), numbers[1]));
    }
}

#[test]
fn live_workloads_have_a_rate_and_their_connections() {
    let load = plan(&["sse", "--connections", "7"]).unwrap().load;
    assert_eq!((load.rate_per_s, load.readers, load.writers), (Some(50.0), Some(7), Some(4)));
    let load = plan(&["mixed", "--connections", "7", "--readers", "3"]).unwrap().load;
    assert_eq!(
        (load.rate_per_s, load.readers, load.writers, load.replayers),
        (None, Some(3), Some(7), Some(2))
    );
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
        "--delete",
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
        stream_bytes: None,
        pause_ms: None,
        writers: None,
        readers: None,
        replayers: None,
        rounds: None,
        signal: None,
    };
    assert_eq!(plan.load, expected);
    assert_eq!((plan.seed, plan.verify, plan.server_pid, plan.label.as_str()), (9, true, Some(7), "x"));
    assert!(plan.delete);
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
        (&["churn", "--streams", "3"], "--streams: churn"),
        (&["restart"], "--server-command"),
        (&["restart", "--server-command", "x", "--rate", "1"], "--rate and --shard-aware"),
        (&["read", "--stream-bytes", "0"], "--stream-bytes"),
        (&["sse", "--writers", "0"], "--writers 0"),
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
