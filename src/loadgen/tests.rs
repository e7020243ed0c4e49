//! Whole runs against a fake server that can be told to misbehave once: what it does to a record is found.

mod fake;

use super::outcome::Outcome;
use super::plan::tests::example;
use super::plan::{Content, Kind, Plan};
use super::progress::Progress;
use super::run;
use super::target::{Style, Target};
use fake::{Fake, Fault};

fn plan(fake: &Fake, content: Content) -> Plan {
    let mut plan = example(Kind::Append);
    plan.target = Target::parse(&fake.address().to_string(), Style::Durable).unwrap();
    plan.load.content = content;
    plan.verify = true;
    plan
}

fn outcome(plan: Plan) -> Result<Outcome, String> {
    plan.check()?;
    run::run(plan, &mut Progress::new(true))
}

/// A run against a server with a fault, changed as wanted. It is repeated until the fault was met within the window: the
/// machine may have been busy with something else.
fn run_as(fault: Fault, content: Content, change: impl Fn(&mut Plan)) -> Outcome {
    for _ in 0..20 {
        let fake = Fake::start(fault);
        let mut plan = plan(&fake, content);
        change(&mut plan);
        let outcome = outcome(plan).unwrap();
        let appends = outcome.latencies.get("append").map(|latency| latency.count);
        if fake.has_misbehaved() && appends.is_none_or(|appends| appends >= 2 * fake::FAULTY) {
            return outcome;
        }
    }
    panic!("{fault:?} was never met");
}

fn run_with(fault: Fault, content: Content) -> Outcome {
    run_as(fault, content, |_| {})
}

#[test]
fn an_honest_server_passes() {
    for content in [Content::Binary, Content::Json] {
        let outcome = run_with(Fault::None, content);
        let verified = outcome.verified.unwrap();
        assert!(outcome.totals.operations > 0 && verified.records >= outcome.totals.records, "{verified:?}");
        assert_eq!((verified.streams, verified.missing, verified.different), (4, 0, 0), "{verified:?}");
        assert_eq!(outcome.latencies["append"].count, outcome.totals.operations);
        assert!(outcome.totals.errors.is_empty());
        assert_eq!(
            outcome.timeline.iter().map(|second| second.operations).sum::<u64>(),
            outcome.totals.operations
        );
    }
}

#[test]
fn every_style_names_streams_its_way_and_deletes_what_it_made() {
    for (style, prefix, things) in [
        (Style::Thalweg, "/bench-", 5),
        (Style::Durable, "/v1/stream/bench-", 4),
        (Style::Ursula, "/bench-", 4),
    ] {
        for delete in [false, true] {
            let fake = Fake::start(Fault::None);
            let mut plan = plan(&fake, Content::Binary);
            (plan.target.style, plan.delete) = (style, delete);
            let outcome = outcome(plan).unwrap();
            assert!(outcome.totals.errors.is_empty() && outcome.verified.unwrap().missing == 0);
            let paths = fake.paths();
            assert_eq!(paths.len(), if delete { 0 } else { things }, "{style:?}: {paths:?}");
            assert!(paths.iter().all(|path| path.starts_with(prefix)), "{style:?}: {paths:?}");
            assert!(!outcome.extra.contains_key("not_deleted"), "{:?}", outcome.extra);
        }
    }
}

#[test]
fn what_cannot_be_deleted_is_told_and_loses_no_outcome() {
    let fake = Fake::start(Fault::Protects);
    let mut plan = plan(&fake, Content::Binary);
    plan.delete = true;
    let outcome = outcome(plan).unwrap();
    assert!(outcome.totals.operations > 0, "{:?}", outcome.totals);
    let why = outcome.extra["not_deleted"].as_str().unwrap();
    assert!(why.contains("403") && why.contains("DELETE /v1/stream/bench-"), "{why}");
}

#[test]
fn what_a_server_does_to_an_acknowledged_record_is_found() {
    let table = [
        (Fault::Loses, 1, 0, "is missing"),
        (Fault::Doubles, 0, 1, "is there twice"),
        (Fault::Changes, 1, 1, "is not as it was sent"),
    ];
    for content in [Content::Binary, Content::Json] {
        for (fault, missing, different, problem) in table {
            let verified = run_with(fault, content).verified.unwrap();
            assert_eq!(
                (verified.missing, verified.different),
                (missing, different),
                "{fault:?}: {verified:?}"
            );
            assert!(verified.first_problem.as_ref().unwrap().contains(problem), "{fault:?}: {verified:?}");
        }
    }
}

#[test]
fn what_was_not_acknowledged_may_be_there_or_not() {
    for fault in [Fault::Refuses, Fault::RefusesAndKeeps, Fault::Cuts, Fault::CutsAndKeeps] {
        let outcome = run_with(fault, Content::Binary);
        let verified = outcome.verified.unwrap();
        assert_eq!((verified.missing, verified.different), (0, 0), "{fault:?}: {verified:?}");
        let name = match fault {
            Fault::Refuses | Fault::RefusesAndKeeps => "503 SHARD_LATCHED",
            _ => "connection closed",
        };
        assert_eq!(outcome.totals.errors, [(name.to_owned(), 1)].into(), "{fault:?}");
    }
}

#[test]
fn a_pipeline_survives_a_cut() {
    for fault in [Fault::Cuts, Fault::CutsAndKeeps] {
        let outcome = run_as(fault, Content::Binary, |plan| {
            (plan.kind, plan.load.depth) = (Kind::Pipeline, 8);
        });
        let verified = outcome.verified.unwrap();
        assert_eq!((verified.missing, verified.different), (0, 0), "{fault:?}: {verified:?}");
        // Between one and eight requests were under way. Some of them may not have been read: then it is a reset.
        let errors = &outcome.totals.errors;
        assert!(errors.keys().all(|name| ["connection closed", "connection reset"].contains(&name.as_str())));
        let lost: u64 = errors.values().sum();
        assert!((1..=8).contains(&lost), "{:?}", outcome.totals.errors);
    }
}

#[test]
fn live_readers_miss_what_they_are_not_shown() {
    // The last takes as long as a run waits for what does not come.
    let table = [
        (Fault::None, Content::Binary, 0),
        (Fault::None, Content::Json, 0),
        (Fault::Hides, Content::Binary, 1),
    ];
    for (fault, content, missing) in table {
        let outcome = run_as(fault, content, |plan| {
            plan.kind = Kind::LongPoll;
            plan.load.rate_per_s = Some(500.0);
            (plan.load.writers, plan.load.readers, plan.load.streams) = (Some(2), Some(2), 2);
        });
        let verified = outcome.verified.unwrap();
        assert!(outcome.latencies["deliver"].count > 0);
        assert_eq!((verified.missing, verified.different), (missing, 0), "{fault:?}: {verified:?}");
        let problem = verified.first_problem.unwrap_or_default();
        assert_eq!(problem.contains("did not come"), missing > 0, "{fault:?}: {problem}");
    }
}

#[test]
fn catch_up_reads_are_counted() {
    for (fault, is_whole) in [(Fault::None, true), (Fault::Loses, false), (Fault::Doubles, false)] {
        let outcome = run_as(fault, Content::Binary, |plan| {
            plan.kind = Kind::Read;
            (plan.load.stream_bytes, plan.load.frames) = (Some(2_000), 2);
        });
        assert_eq!(outcome.totals.errors.is_empty(), is_whole, "{fault:?}: {:?}", outcome.totals);
        assert!(outcome.totals.errors.keys().all(|name| name.starts_with("catch-up: not as many records")));
        let verified = outcome.verified.unwrap();
        assert_eq!(verified.missing == 0 && verified.different == 0, is_whole, "{fault:?}: {verified:?}");
    }
}

#[test]
fn streams_that_do_not_close_or_go_are_found() {
    let table = [
        (Fault::None, None),
        (Fault::LeavesOpen, Some("it is not closed, although that was acknowledged")),
        (Fault::KeepsDeleted, Some("it was deleted, and answers 200")),
        (Fault::Loses, Some("its record is missing")),
        (Fault::Changes, Some("its record is not as it was sent")),
        (Fault::Doubles, Some("its record is not as it was sent")),
    ];
    for (fault, problem) in table {
        let outcome = run_as(fault, Content::Binary, |plan| plan.kind = Kind::Churn);
        let verified = outcome.verified.unwrap();
        assert_eq!(verified.missing + verified.different > 0, problem.is_some(), "{fault:?}: {verified:?}");
        let found = verified.first_problem.unwrap_or_default();
        assert!(found.contains(problem.unwrap_or_default()), "{fault:?}: {found}");
    }
}

/// The server sleeps for 50 ms once. An open loop charges that to every request that was due meanwhile; a closed one would
/// see it once for each connection.
#[test]
fn a_stall_is_charged_to_all_requests_that_were_due() {
    let outcome = run_as(Fault::Sleeps, Content::Binary, |plan| {
        (plan.load.connections, plan.load.rate_per_s, plan.load.duration_ms) = (1, Some(1000.0), 300);
    });
    let unsent = outcome.extra["requests_due_but_never_sent"].as_u64().unwrap();
    assert!(outcome.totals.operations + unsent >= 290, "{} and {unsent}", outcome.totals.operations);
    // At least 50 requests were due while it slept; half of them waited 25 ms or more.
    let curve = &outcome.latencies["append"].curve;
    let below =
        curve.iter().filter(|(_, us)| *us < 25_000).map(|(percentile, _)| *percentile).fold(0.0, f64::max);
    let slow = (100.0 - below) / 100.0 * outcome.totals.operations as f64;
    assert!(slow >= 15.0, "only {slow} requests were charged for the stall: {curve:?}");
}

#[test]
fn servers_that_are_none_are_named() {
    let table = [
        (Fault::Garbage, "not HTTP/1.1"),
        (Fault::NoOffsets, "without Stream-Next-Offset: it is no Durable Streams server"),
        (Fault::Nothing, "answered 404 to PUT /v1/stream/bench-"),
        (Fault::Hangs, "connection closed"),
    ];
    for (fault, part) in table {
        let fake = Fake::start(fault);
        let error = outcome(plan(&fake, Content::Binary)).unwrap_err();
        assert!(error.contains(part), "{fault:?}: {error}");
    }
    let gone = Fake::start(Fault::None).address();
    let mut plan = example(Kind::Append);
    plan.target = Target::parse(&gone.to_string(), Style::Durable).unwrap();
    let error = outcome(plan).unwrap_err();
    assert!(error.contains(&format!("no server at {gone}: connection refused")), "{error}");
}

#[test]
fn a_server_without_shards_cannot_be_used_shard_aware() {
    let fake = Fake::start(Fault::None);
    let mut plan = plan(&fake, Content::Binary);
    plan.load.shard_aware = true;
    assert!(outcome(plan).unwrap_err().contains("--shard-aware: the server does not tell its shards"));
}

#[test]
fn a_null_run_has_a_cost() {
    let mut plan = example(Kind::Null);
    plan.load.duration_ms = 50;
    let outcome = outcome(plan).unwrap();
    assert!(outcome.totals.operations > 0 && outcome.totals.errors.is_empty(), "{:?}", outcome.totals);
    assert!(outcome.generator.cpu_us_per_operation > 0.0, "{:?}", outcome.generator);
}
