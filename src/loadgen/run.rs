//! A run from beginning to end: streams are made, threads connect, all of them begin at one time, the main thread gathers
//! what they count, and everything is read back if that is wanted.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::clock::{Clock, SECOND_NS};
use super::engine::{Engine, Finished, Member};
use super::gather::{Gathered, Gatherer};
use super::ledger::Ledger;
use super::measure::{Measure, Report, Series, Window};
use super::null::NullServer;
use super::outcome::{Outcome, ServerUse, Verified};
use super::pacing::Pacer;
use super::plan::{Kind, Plan};
use super::progress::Progress;
use super::role::Seen;
use super::scene::{LANES, PACED, Part, Scene};
use super::target::Target;
use super::{conditions, restart, usage, verify};

/// Between the moment when all threads are connected and the beginning of the load.
const RUN_UP_NS: u64 = 20_000_000;
/// Open files besides connections.
const OTHER_FILES: u64 = 64;

/// Runs a plan that was checked; `progress` is told how it goes. The error says why there is no outcome.
pub fn run(mut plan: Plan, progress: &mut Progress) -> Result<Outcome, String> {
    let files = usage::raise_open_files();
    let connections = plan.connections() as u64 * if plan.kind == Kind::Null { 2 } else { 1 };
    if files < connections + OTHER_FILES {
        return Err(format!(
            "{connections} connections: that needs {} open files, the limit is {files} (ulimit -n)",
            connections + OTHER_FILES
        ));
    }
    if let Some(pid) = plan.server_pid {
        usage::process_cpu_us(pid).map_err(|error| format!("--server-pid: {error}"))?;
    }
    if !plan.load.cpus.is_empty() {
        usage::pin(&plan.load.cpus)?;
    }
    if plan.kind == Kind::Restart {
        return restart::run(plan, progress);
    }
    let responder = if plan.kind == Kind::Null { Some(start_null(&mut plan)?) } else { None };
    let conditions = conditions::of(&plan);
    if plan.load.stream_bytes.is_some() {
        progress.say("filling the streams");
    }
    let scene = Scene::prepare(plan)?;
    if let Some(pause_ms) = scene.plan.load.pause_ms {
        progress.say("waiting");
        std::thread::sleep(Duration::from_millis(pause_ms));
    }
    let (gathered, server, finished) = load(&scene, progress)?;
    drop(responder);
    let extra = extra(&scene, &gathered, &finished);
    let mut outcome = gathered.outcome(&scene.plan, conditions, server, extra);
    if scene.plan.verify {
        progress.say("reading everything back");
        outcome.verified = Some(verified(&scene, finished)?);
    }
    clean_up(&scene, progress, &mut outcome.extra);
    Ok(outcome)
}

/// Deletes what the run has made, if that is wanted. What stays is told: the outcome counts all the same.
pub(super) fn clean_up(scene: &Scene, progress: &mut Progress, extra: &mut BTreeMap<String, Value>) {
    if !scene.plan.delete {
        return;
    }
    progress.say("deleting the streams");
    if let Err(why) = scene.delete() {
        extra.insert("not_deleted".to_owned(), why.into());
    }
}

/// Starts the null responder on a core that the generator does not use, and makes it the target.
fn start_null(plan: &mut Plan) -> Result<NullServer, String> {
    let allowed = usage::allowed_cpus();
    let everything = usage::online_cpus();
    if plan.load.cpus.is_empty()
        && let [_, .., last] = allowed[..]
    {
        plan.load.cpus = vec![last];
        usage::pin(&plan.load.cpus)?;
    }
    let cpu = everything.into_iter().find(|cpu| !plan.load.cpus.contains(cpu));
    let responder = NullServer::start(cpu).map_err(|error| format!("no null responder: {error}"))?;
    plan.target = Target::parse(&responder.address().to_string(), plan.target.style)?;
    Ok(responder)
}

/// Runs the threads; what they counted, what the server used, and what each thread leaves.
fn load(
    scene: &Scene,
    progress: &mut Progress,
) -> Result<(Gathered, Option<ServerUse>, Vec<Finished>), String> {
    let plan = &scene.plan;
    let clock = Clock::start();
    let (report_to, reports) = mpsc::channel();
    let (ready_to, ready) = mpsc::channel();
    let mut threads = Vec::new();
    let cast = scene.cast()?;
    let paced: Vec<usize> =
        (0..cast.len()).filter(|thread| cast[*thread].iter().any(|part| part.lane == PACED)).collect();
    for (thread, parts) in cast.into_iter().enumerate() {
        let (begin_to, begin) = mpsc::channel();
        let turn = paced.iter().position(|other| *other == thread);
        let worker = Worker {
            thread,
            clock,
            cpu: plan.cpu(thread),
            pace: plan.load.rate_per_s.zip(turn).map(|(rate_per_s, turn)| (rate_per_s, paced.len(), turn)),
            ready: ready_to.clone(),
            begin,
            reports: report_to.clone(),
        };
        let spawned = std::thread::Builder::new().name(format!("load {thread}"));
        let handle = spawned.spawn(move || worker.work(parts));
        threads.push((begin_to, handle.map_err(|error| format!("no thread: {error}"))?));
    }
    drop((report_to, ready_to));
    for _ in 0..threads.len() {
        // A thread that fails before it is ready says so; one that panics ends the channel.
        ready.recv().map_err(|_| "a thread ended before it was ready".to_owned())??;
    }
    let begin_ns = clock.now_ns() + RUN_UP_NS;
    let start_ns = begin_ns + plan.load.warm_up_ms * 1_000_000;
    let window = Window { begin_ns, start_ns, end_ns: start_ns + plan.load.duration_ms * 1_000_000 };
    for (begin, _) in &threads {
        // A thread that is gone is found when it is joined.
        let _ = begin.send(window);
    }
    let (gathered, server) = gather(plan, clock, window, &reports, progress);
    let finished: Result<Vec<Finished>, String> =
        threads.into_iter().map(|(_, handle)| join(handle)).collect();
    Ok((gathered, server, finished?))
}

fn join(handle: JoinHandle<Result<Finished, String>>) -> Result<Finished, String> {
    handle.join().map_err(|_| "a thread of the load panicked".to_owned())?
}

/// Takes reports until the last thread is done, and the server's CPU time at both ends of the window.
fn gather(
    plan: &Plan,
    clock: Clock,
    window: Window,
    reports: &Receiver<Report>,
    progress: &mut Progress,
) -> (Gathered, Option<ServerUse>) {
    let mut gatherer = Gatherer::new(plan.load.threads, window, plan.main_series());
    // When, and what the server had used then: unknown as long as the time has not come, and if it is gone by then.
    let mut marks = [(window.start_ns, None::<Option<u64>>), (window.end_ns, None)];
    loop {
        let now_ns = clock.now_ns();
        for (at_ns, cpu) in &mut marks {
            if cpu.is_none() && now_ns >= *at_ns {
                *cpu = Some(plan.server_pid.and_then(|pid| usage::process_cpu_us(pid).ok()));
            }
        }
        let next_mark_ns = marks.iter().find(|(_, cpu)| cpu.is_none()).map_or(u64::MAX, |(at_ns, _)| *at_ns);
        match reports.recv_timeout(clock.until(next_mark_ns.min(now_ns + SECOND_NS))) {
            Ok(report) => {
                if let Some((second, tally)) = gatherer.add(report) {
                    progress.second(plan, window, second, &tally);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    progress.end();
    let gathered = gatherer.finish();
    let server = match (plan.server_pid, &marks) {
        (Some(pid), [(_, Some(Some(before))), (_, Some(Some(after)))]) => {
            let cpu_us = after.saturating_sub(*before);
            let (resident_bytes, peak_resident_bytes) = usage::process_memory_bytes(pid);
            let cpu_us_per_operation = cpu_us as f64 / gathered.total.operations.max(1) as f64;
            Some(ServerUse { pid, cpu_us, cpu_us_per_operation, resident_bytes, peak_resident_bytes })
        }
        _ => None,
    };
    (gathered, server)
}

/// What only this workload has to tell.
fn extra(scene: &Scene, gathered: &Gathered, finished: &[Finished]) -> BTreeMap<String, Value> {
    let mut extra = BTreeMap::new();
    let load = &scene.plan.load;
    if load.rate_per_s.is_some() {
        let not_sent: u64 = finished.iter().map(|finished| finished.not_sent).sum();
        extra.insert("requests_due_but_never_sent".to_owned(), not_sent.into());
    }
    let mut late_errors = BTreeMap::<&String, u64>::new();
    for (name, count) in finished.iter().flat_map(|finished| &finished.errors_at_end) {
        *late_errors.entry(name).or_default() += count;
    }
    if !late_errors.is_empty() {
        extra.insert("errors_after_the_window".to_owned(), serde_json::json!(late_errors));
    }
    if load.writers.is_some() {
        let appends = gathered.total.histogram(Series::Append).map_or(0, |histogram| histogram.len());
        extra.insert("appends".to_owned(), appends.into());
    }
    if load.stream_bytes.is_some() {
        extra.insert("records_of_a_stream".to_owned(), scene.filled_records().into());
    }
    extra
}

/// Reads everything back and compares it with what was written, and with what live readers saw.
fn verified(scene: &Scene, finished: Vec<Finished>) -> Result<Verified, String> {
    let plan = &scene.plan;
    let mut ledgers = scene.filled.clone();
    let (mut followers, mut seen) = (Vec::new(), Vec::new());
    for conclusion in finished.into_iter().flat_map(|finished| finished.conclusions) {
        ledgers.extend(conclusion.ledger);
        followers.extend(conclusion.follower);
        seen.push(conclusion.seen);
    }
    if plan.kind == Kind::Churn {
        return Ok(sum(&seen, plan.load.payload_bytes));
    }
    let by_connection: BTreeMap<u32, &Ledger> =
        ledgers.iter().map(|ledger| (ledger.connection, ledger)).collect();
    seen.extend(followers.into_iter().map(|follower| follower.close(&by_connection)));
    verify::read_back(&plan.target, &scene.names, plan.load.streams, &plan.layout(), ledgers, &seen)
}

/// What was verified while it ran.
fn sum(seen: &[Seen], payload_bytes: usize) -> Verified {
    let total = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let records = total(|seen| seen.records);
    Verified {
        streams: total(|seen| seen.streams),
        records,
        bytes: records * payload_bytes as u64,
        missing: total(|seen| seen.missing),
        different: total(|seen| seen.different),
        first_problem: seen.iter().find_map(|seen| seen.first_problem.clone()),
    }
}

/// A thread of the load.
struct Worker {
    thread: usize,
    clock: Clock,
    cpu: Option<usize>,
    /// The rate of the run, threads that share it, and which of them this is.
    pace: Option<(f64, usize, usize)>,
    ready: Sender<Result<(), String>>,
    begin: Receiver<Window>,
    reports: Sender<Report>,
}

impl Worker {
    fn work(self, parts: Vec<Part>) -> Result<Finished, String> {
        let connected = self.connect(parts);
        let (engine, ready) = match connected {
            Ok(engine) => (Some(engine), Ok(())),
            Err(why) => (None, Err(why)),
        };
        // If the main thread is gone, so is the run.
        let _ = self.ready.send(ready);
        let (Some(engine), Ok(window)) = (engine, self.begin.recv()) else {
            return Err("the run ended before it began".to_owned());
        };
        let mut pacers: Vec<Option<Pacer>> = vec![None; LANES];
        pacers[PACED] = self
            .pace
            .map(|(rate_per_s, sharers, turn)| Pacer::new(window.begin_ns, rate_per_s, sharers, turn));
        let measure = Measure::new(self.thread, window, Some(self.reports));
        engine.run(window, pacers, measure)
    }

    fn connect(&self, parts: Vec<Part>) -> Result<Engine, String> {
        if let Some(cpu) = self.cpu {
            usage::pin(&[cpu])?;
        }
        usage::sharpen_timers();
        Engine::connect(self.clock, parts.into_iter().map(Member::from).collect(), LANES)
    }
}
