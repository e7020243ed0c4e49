//! A run from beginning to end: streams are made, threads connect, all of them begin at one time, the main thread gathers
//! what they count, and everything is read back if that is wanted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use super::clock::{Clock, SECOND_NS};
use super::conditions;
use super::engine::{Engine, Finished, Member};
use super::gather::{Gathered, Gatherer};
use super::ledger::Ledger;
use super::measure::{Measure, Report, Series, Window};
use super::null::NullServer;
use super::outcome::{self, Outcome, ServerUse};
use super::pacing::Pacer;
use super::plan::{Kind, Plan};
use super::progress::Progress;
use super::request::Prepared;
use super::setup::{self, Shards};
use super::target::{Names, Target};
use super::workload::append::Appender;
use super::{usage, verify};

/// Between the moment when all threads are connected and the beginning of the load.
const RUN_UP_NS: u64 = 20_000_000;
/// Open files besides connections.
const OTHER_FILES: u64 = 64;

/// Runs a plan that was checked; `progress` is told how it goes. The error says why there is no outcome.
pub fn run(mut plan: Plan, progress: &mut Progress) -> Result<Outcome, String> {
    let files = usage::raise_open_files();
    let needed = plan.load.connections as u64 * if plan.kind == Kind::Null { 2 } else { 1 } + OTHER_FILES;
    if files < needed {
        let connections = plan.load.connections;
        return Err(format!(
            "--connections {connections}: {needed} open files, the limit is {files} (ulimit -n)"
        ));
    }
    let responder = if plan.kind == Kind::Null { Some(start_null(&mut plan)?) } else { None };
    let conditions = conditions::of(&plan);
    let scene = Scene::prepare(plan)?;
    let (gathered, server, finished) = scene.load(progress)?;
    drop(responder);
    let mut outcome = scene.outcome(conditions, gathered, server, &finished);
    if scene.plan.verify {
        progress.say("reading everything back");
        let (mut ledgers, mut seen) = (Vec::new(), Vec::new());
        for conclusion in finished.into_iter().flat_map(|finished| finished.conclusions) {
            ledgers.extend(conclusion.ledger);
            seen.push(conclusion.seen);
        }
        let (plan, streams) = (&scene.plan, scene.plan.load.streams);
        outcome.verified =
            Some(verify::read_back(&plan.target, &scene.names, streams, &plan.layout(), ledgers, &seen)?);
    }
    Ok(outcome)
}

/// Starts the null responder on a core that the generator does not use, and makes it the target.
fn start_null(plan: &mut Plan) -> Result<NullServer, String> {
    let allowed = usage::allowed_cpus();
    if plan.load.cpus.is_empty()
        && let [_, .., last] = allowed[..]
    {
        plan.load.cpus = vec![last];
    }
    let cpu = allowed.iter().copied().find(|cpu| !plan.load.cpus.contains(cpu));
    let responder = NullServer::start(cpu).map_err(|error| format!("no null responder: {error}"))?;
    plan.target = Target::parse(&responder.address().to_string(), plan.target.style)?;
    Ok(responder)
}

/// A run whose streams are there.
struct Scene {
    plan: Plan,
    names: Names,
    shards: Shards,
}

/// What the server's process had used at some moment.
type ServerCpu = Option<u64>;

impl Scene {
    fn prepare(plan: Plan) -> Result<Self, String> {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let names = Names::new(plan.target.style, &format!("bench-{unix_ms:x}-{:x}", plan.seed));
        let load = &plan.load;
        let shards = setup::make_streams(&plan.target, &names, load.streams, load.content.media_type())?;
        if load.shard_aware && shards.count == 0 {
            return Err(
                "--shard-aware: the server does not tell its shards (no Stream-Shard header)".to_owned()
            );
        }
        Ok(Self { plan, names, shards })
    }

    /// Runs the threads; what they counted, what the server used, and what each thread leaves.
    fn load(&self, progress: &mut Progress) -> Result<(Gathered, Option<ServerUse>, Vec<Finished>), String> {
        let plan = &self.plan;
        if !plan.load.cpus.is_empty() {
            usage::pin(&plan.load.cpus)?;
        }
        let clock = Clock::start();
        let (report_to, reports) = mpsc::channel();
        let (ready_to, ready) = mpsc::channel();
        let mut threads = Vec::new();
        for thread in 0..plan.load.threads {
            let (begin_to, begin) = mpsc::channel();
            let worker = Worker {
                thread,
                clock,
                cpu: plan.cpu(thread),
                rate_per_s: plan.load.rate_per_s,
                threads: plan.load.threads,
                ready: ready_to.clone(),
                begin,
                reports: report_to.clone(),
            };
            let members = self.members(thread)?;
            let spawned = std::thread::Builder::new().name(format!("load {thread}"));
            let handle = spawned.spawn(move || worker.work(members));
            threads.push((begin_to, handle.map_err(|error| format!("no thread: {error}"))?));
        }
        drop((report_to, ready_to));
        // A thread that fails before it is ready says so; one that panics ends the channel.
        for _ in 0..threads.len() {
            ready.recv().map_err(|_| "a thread ended before it was ready".to_owned())??;
        }
        let window = self.window(clock);
        for (begin, _) in &threads {
            // A thread that is gone is found when it is joined.
            let _ = begin.send(window);
        }
        let (gathered, server) = self.gather(clock, window, &reports, progress)?;
        let finished: Result<Vec<Finished>, String> =
            threads.into_iter().map(|(_, handle)| join(handle)).collect();
        Ok((gathered, server, finished?))
    }

    fn window(&self, clock: Clock) -> Window {
        let begin_ns = clock.now_ns() + RUN_UP_NS;
        let start_ns = begin_ns + self.plan.load.warm_up_ms * 1_000_000;
        Window { begin_ns, start_ns, end_ns: start_ns + self.plan.load.duration_ms * 1_000_000 }
    }

    /// Takes reports until the last thread is done, and the server's CPU time at both ends of the window.
    fn gather(
        &self,
        clock: Clock,
        window: Window,
        reports: &Receiver<Report>,
        progress: &mut Progress,
    ) -> Result<(Gathered, Option<ServerUse>), String> {
        let mut gatherer = Gatherer::new(self.plan.load.threads, window);
        let mut marks = [(window.start_ns, None::<ServerCpu>), (window.end_ns, None)];
        loop {
            let now_ns = clock.now_ns();
            for (at_ns, cpu) in &mut marks {
                if cpu.is_none() && now_ns >= *at_ns {
                    *cpu = Some(self.plan.server_pid.map(usage::process_cpu_us).transpose()?);
                }
            }
            let next_mark = marks.iter().find(|(_, cpu)| cpu.is_none()).map_or(u64::MAX, |(at_ns, _)| *at_ns);
            let wait_ns = next_mark.min(now_ns + SECOND_NS);
            match reports.recv_timeout(clock.until(wait_ns)) {
                Ok(report) => {
                    if let Some((second, tally)) = gatherer.add(report) {
                        progress.second(&self.plan, window, second, tally);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        progress.end();
        let gathered = gatherer.finish();
        let server = match (self.plan.server_pid, &marks) {
            (Some(pid), [(_, Some(Some(before))), (_, Some(Some(after)))]) => {
                let cpu_us = after.saturating_sub(*before);
                let (resident_bytes, peak_resident_bytes) = usage::process_memory_bytes(pid);
                let operations = gathered.total.operations.max(1);
                let cpu_us_per_operation = cpu_us as f64 / operations as f64;
                Some(ServerUse { pid, cpu_us, cpu_us_per_operation, resident_bytes, peak_resident_bytes })
            }
            _ => None,
        };
        Ok((gathered, server))
    }

    /// The connections of a thread.
    fn members(&self, thread: usize) -> Result<Vec<Plain>, String> {
        let load = &self.plan.load;
        let lists = self.stream_lists();
        let mine = (0..load.connections).filter(|connection| connection % load.threads == thread);
        let member = |connection: usize| {
            let (shard, list, place) = lists.of(connection);
            let address = match shard {
                Some(shard) => self.plan.target.shard_address(shard)?,
                None => self.plan.target.address,
            };
            let (id, layout, framing) = (connection as u32, self.plan.layout(), self.plan.framing());
            let ledger = Ledger::new(id, list, place, load.stay, load.frames);
            let media_type = load.content.media_type();
            let prepared = Prepared::append(&self.plan.target, &self.names, media_type, &layout, framing, id);
            let appender =
                Appender::new(prepared, ledger, framing, load.frames, load.payload_bytes, u64::MAX);
            Ok(Plain { address, depth: load.depth, appender })
        };
        mine.map(member).collect()
    }

    fn stream_lists(&self) -> StreamLists {
        let streams = self.plan.load.streams as u32;
        if !self.plan.load.shard_aware {
            return StreamLists { lists: vec![(None, (0..streams).collect())] };
        }
        let of_shard = |shard: usize| -> Arc<[u32]> {
            (0..streams).filter(|stream| self.shards.of_stream[*stream as usize] == shard).collect()
        };
        let lists = (0..self.shards.count).map(|shard| (Some(shard), of_shard(shard)));
        StreamLists { lists: lists.filter(|(_, list)| !list.is_empty()).collect() }
    }

    fn outcome(
        &self,
        conditions: outcome::Conditions,
        gathered: Gathered,
        server: Option<ServerUse>,
        finished: &[Finished],
    ) -> Outcome {
        let mut extra = BTreeMap::new();
        let not_sent: u64 = finished.iter().map(|finished| finished.not_sent).sum();
        if self.plan.load.rate_per_s.is_some() {
            extra.insert("requests_due_but_never_sent".to_owned(), not_sent.into());
        }
        let mut late_errors = BTreeMap::<&String, u64>::new();
        for (name, count) in finished.iter().flat_map(|finished| &finished.errors_at_end) {
            *late_errors.entry(name).or_default() += count;
        }
        if !late_errors.is_empty() {
            extra.insert("errors_after_the_window".to_owned(), serde_json::json!(late_errors));
        }
        gathered.outcome(&self.plan, conditions, Series::Append, server, extra)
    }
}

/// Streams for connections: all of them, or for each shard its own.
struct StreamLists {
    lists: Vec<(Option<usize>, Arc<[u32]>)>,
}

impl StreamLists {
    /// The shard that a connection keeps to, if to one, the streams, and its place among them.
    fn of(&self, connection: usize) -> (Option<usize>, Arc<[u32]>, usize) {
        let (shard, list) = &self.lists[connection % self.lists.len()];
        (*shard, list.clone(), connection / self.lists.len())
    }
}

/// A connection to be that may be sent to its thread.
struct Plain {
    address: std::net::SocketAddr,
    depth: usize,
    appender: Appender,
}

/// A thread of the load.
struct Worker {
    thread: usize,
    clock: Clock,
    cpu: Option<usize>,
    rate_per_s: Option<f64>,
    threads: usize,
    ready: Sender<Result<(), String>>,
    begin: Receiver<Window>,
    reports: Sender<Report>,
}

impl Worker {
    fn work(self, members: Vec<Plain>) -> Result<Finished, String> {
        let connected = self.connect(members);
        let (engine, ready) = match connected {
            Ok(engine) => (Some(engine), Ok(())),
            Err(why) => (None, Err(why)),
        };
        // If the main thread is gone, so is the run.
        let _ = self.ready.send(ready);
        let (Some(engine), Ok(window)) = (engine, self.begin.recv()) else {
            return Err("the run ended before it began".to_owned());
        };
        let pacer = self.rate_per_s.map(|rate| Pacer::new(window.begin_ns, rate, self.threads, self.thread));
        let measure = Measure::new(self.thread, window, Some(self.reports));
        engine.run(window, vec![pacer], measure)
    }

    fn connect(&self, members: Vec<Plain>) -> Result<Engine, String> {
        if let Some(cpu) = self.cpu {
            usage::pin(&[cpu])?;
        }
        usage::sharpen_timers();
        let member = |plain: Plain| Member {
            address: plain.address,
            lane: 0,
            depth: plain.depth,
            role: Box::new(plain.appender),
        };
        Engine::connect(self.clock, members.into_iter().map(member).collect(), 1)
    }
}

fn join(handle: JoinHandle<Result<Finished, String>>) -> Result<Finished, String> {
    handle.join().map_err(|_| "a thread of the load panicked".to_owned())?
}
