//! The life of a server: check the machine, open the data directory, bind, start the shards, serve, stop.
//!
//! One coordinator (the main thread) hears everything as an `Event` on one channel: what shards report, how their
//! threads end, stop signals, wishes for lineage ids. It never touches the state of a shard.
//!
//! ```text
//!  Up x n            each executor runs
//!  Recovered x n  -> settle lineage ids, merge buckets -> Begin to all
//!  Serving x n    -> the start line
//!  signal         -> Stop to all; Ended x n -> exit 0
//!  a failure      -> before serving: exit at once; later: Stop to all, then exit with its code
//! ```
//!
//! Ending the process at any point is correct: what was acknowledged is on disk. Stopping is about clients' comfort.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::config::{Config, Sync};
use crate::limits;
use crate::node::cores::{self, CorePlan};
use crate::node::data_dir;
use crate::node::executor::{self, ExecutorPlan, Notice};
use crate::node::exit::{Exit, Failure};
use crate::node::listen::{self, Listeners};
use crate::node::manifest::{Manifest, ManifestError};
use crate::node::nudge::{self, Nudge};
use crate::node::preflight;
use crate::node::reshard;
use crate::node::signals;
use crate::shard::lineage::Lineages;
use crate::shard::mail::{BucketRecord, Mail, Mailboxes, Report, ShardStart};
use crate::storage::file_name;

/// Everything the coordinator hears.
enum Event {
    Report(Report),
    Thread { shard: usize, notice: Notice },
    Signal(&'static str),
    GrantWanted { shard: usize },
}

/// Runs a server until it is told to stop; returns when all shards have ended.
pub fn serve(mut config: Config) -> Result<(), Failure> {
    let began = Instant::now();
    // Before any other thread exists: each inherits the mask.
    signals::block();
    // Bad values are refused before anything is laid out.
    if let Some(cpus) = &config.cpus {
        cores::plan(config.shards.unwrap_or(cpus.len()), Some(cpus))?;
    }
    preflight::io_uring()?;
    let lock = data_dir::open(&config.data_dir)?;
    config.data_dir = config.data_dir.canonicalize().unwrap_or(config.data_dir);
    data_dir::prove_direct_io(&config.data_dir)?;
    let found = load_manifest(&config.data_dir)?;
    let shards = shards_wanted(&config, found.as_ref())?;
    let core_plan = cores::plan(shards, config.cpus.as_deref())?;
    let ring_depth = preflight::ring_depth(shards)?;
    let connections = preflight::connections(config.max_connections, shards);
    if connections < config.max_connections {
        warn(&format!("the limit of open files leaves room for {connections} connections (ulimit -n)"));
        config.max_connections = connections;
    }
    let listeners = listen::listen(config.listen, shards, config.shard_ports)?;
    let address = listeners.address;
    // After everything that may refuse the start for other reasons.
    let manifest = lay_out(&config, found, shards)?;
    let (mut node, events) = Node::new(config, manifest)?;
    node.spawn_all(listeners, &core_plan, ring_depth)?;
    let mut outcome = node.start(&events);
    if let Ok(Phase::Go(recovered)) = &outcome {
        node.announce(address, &core_plan, recovered, began.elapsed());
        outcome = node.watch(&events).map(|()| Phase::Stopped);
    }
    // Held to the last moment: only now may another process have the directory.
    drop(lock);
    outcome.map(|_| ())
}

/// Tells the operator something that is not an answer to a command.
fn warn(message: &str) {
    eprintln!("thalweg: {message}");
}

/// What the data directory says of itself; `None` if it is a new one. What interrupted starts left in it is removed.
fn load_manifest(dir: &Path) -> Result<Option<Manifest>, Failure> {
    let Some(manifest) = Manifest::load(dir).map_err(|error| unusable(dir, &error))? else { return Ok(None) };
    for shard in 0..manifest.shards() {
        let log_dir = data_dir::shard_dir(dir, manifest.generation, shard);
        // The logs of the first generation make their lists when they are opened first.
        let needed = if manifest.generation > 1 { log_dir.join(file_name::LIST) } else { log_dir };
        if !needed.exists() {
            let message = format!("{} is missing; MANIFEST counts on it", needed.display());
            return Err(Failure::new(Exit::Damaged, message));
        }
    }
    match reshard::remove_others(dir, manifest.generation) {
        Err(failure) if failure.code == Exit::Damaged.code() => return Err(failure),
        // What cannot be removed is in nobody's way but that of the next change.
        Err(failure) => warn(&failure.message),
        Ok(()) => {}
    }
    Ok(Some(manifest))
}

/// How many shards to run. An existing directory keeps its number unless another one is asked for.
fn shards_wanted(config: &Config, found: Option<&Manifest>) -> Result<usize, Failure> {
    let listed = config.cpus.as_ref().map(Vec::len);
    let Some(found) = found.map(Manifest::shards) else {
        return Ok(config.shards.or(listed).unwrap_or_else(cores::default_shards));
    };
    match (config.shards, listed) {
        (Some(shards), _) => Ok(shards),
        (None, Some(listed)) if listed != found => {
            let dir = config.data_dir.display();
            let message = format!(
                "{dir} has {found} shards and --cpus names {listed} cores; to change it, say --shards {listed}"
            );
            Err(Failure::new(Exit::Usage, message))
        }
        (None, _) => Ok(found),
    }
}

/// Brings the data directory to `shards` shards: a new one, one that has them, one that had another number.
fn lay_out(config: &Config, found: Option<Manifest>, shards: usize) -> Result<Manifest, Failure> {
    let dir = &config.data_dir;
    let Some(manifest) = found else { return create_layout(dir, shards) };
    if manifest.shards() == shards {
        return Ok(manifest);
    }
    let before = manifest.shards();
    let changed = reshard::change(dir, &manifest, shards, config.segment_bytes)?;
    changed.notes.iter().for_each(|note| warn(note));
    warn(&format!("{} changed from {before} to {shards} shards", dir.display()));
    Ok(changed.manifest)
}

/// Lays out an empty data directory. `MANIFEST` comes last: without it there is nothing to lose.
fn create_layout(dir: &Path, shards: usize) -> Result<Manifest, Failure> {
    let refused = |error| Failure::new(Exit::DataDir, format!("cannot lay out {}: {error}", dir.display()));
    if data_dir::holds_logs(dir).map_err(refused)? {
        let message = format!("{} holds logs, but its MANIFEST is gone: nothing is touched", dir.display());
        return Err(Failure::new(Exit::Damaged, message));
    }
    let manifest = Manifest::create(shards).map_err(refused)?;
    for shard in 0..shards {
        data_dir::create_dirs(&data_dir::shard_dir(dir, manifest.generation, shard)).map_err(refused)?;
    }
    manifest.store(dir).map_err(|error| unusable(dir, &error))?;
    Ok(manifest)
}

fn unusable(dir: &Path, error: &ManifestError) -> Failure {
    let exit = match error {
        ManifestError::Io(_) => Exit::DataDir,
        ManifestError::Newer { .. } => Exit::NewerFormat,
        ManifestError::Damaged(_) => Exit::Damaged,
    };
    Failure::new(exit, format!("{}: {error}", dir.display()))
}

/// What recovery found, all shards together.
#[derive(Default)]
struct Recovered {
    streams: u64,
    records: u64,
    buckets: BTreeMap<Vec<u8>, u64>,
}

/// Where a start ended.
enum Phase {
    /// All shards serve.
    Go(Recovered),
    /// A stop signal came first.
    Stopped,
}

/// The coordinator's state.
struct Node {
    config: Arc<Config>,
    manifest: Manifest,
    lineages: Arc<Lineages>,
    mailboxes: Mailboxes,
    inboxes: Vec<async_channel::Receiver<Mail>>,
    sender: Sender<Event>,
    threads: Vec<JoinHandle<()>>,
    ended: usize,
}

impl Node {
    fn new(config: Config, manifest: Manifest) -> Result<(Node, Receiver<Event>), Failure> {
        let (sender, events) = mpsc::channel();
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) =
            (0..manifest.shards()).map(|_| async_channel::unbounded()).unzip();
        let wishes = sender.clone();
        let lineages = Lineages::new(&manifest.log_ids, &manifest.lineages, move |shard| {
            // Nobody listens any more while the process ends: then no ids are needed either.
            let _ = wishes.send(Event::GrantWanted { shard });
        });
        let signal = sender.clone();
        let watched = signals::watch(move |name| drop(signal.send(Event::Signal(name))));
        watched.map_err(|error| no_thread(&error))?;
        let node = Node {
            config: Arc::new(config),
            manifest,
            lineages: Arc::new(lineages),
            mailboxes: Mailboxes(mailboxes),
            inboxes,
            sender,
            threads: Vec::new(),
            ended: 0,
        };
        Ok((node, events))
    }

    /// Starts all shards' threads.
    fn spawn_all(
        &mut self,
        listeners: Listeners,
        cores: &CorePlan,
        ring_depth: usize,
    ) -> Result<(), Failure> {
        let reports = self.forward_reports()?;
        let nudges: Vec<Arc<Nudge>> = (0..self.manifest.shards()).map(|_| Arc::default()).collect();
        nudge::start(nudges.clone()).map_err(|error| no_thread(&error))?;
        for (shard, listeners) in listeners.by_shard.into_iter().enumerate() {
            let core = cores.core(shard);
            let probe = self.config.data_dir.join(data_dir::PROBE);
            self.spawn(
                shard,
                listeners,
                reports.clone(),
                ExecutorPlan { core, ring_depth, probe, nudge: nudges[shard].clone() },
            )?;
        }
        Ok(())
    }

    /// Brings all shards to serve.
    fn start(&mut self, events: &Receiver<Event>) -> Result<Phase, Failure> {
        let mut recovered = Recovered::default();
        let (mut to_recover, mut to_serve) = (self.manifest.shards(), self.manifest.shards());
        while to_serve > 0 {
            match events.recv().expect("this node holds a sender") {
                Event::Report(Report::Recovered { shard, streams, records, buckets, torn_bytes }) => {
                    recovered.streams += streams;
                    recovered.records += records;
                    merge(&mut recovered.buckets, buckets);
                    if torn_bytes > 0 {
                        warn(&format!("shard {shard}: cut {torn_bytes} bytes of an unfinished last commit"));
                    }
                    to_recover -= 1;
                    if to_recover == 0 {
                        self.begin(&recovered);
                    }
                }
                Event::Report(Report::Serving { .. }) => to_serve -= 1,
                Event::Report(Report::Failed { message, code, .. }) => return Err(Failure { code, message }),
                Event::Thread { notice: Notice::Up, .. } => {}
                Event::Thread { shard, notice: Notice::Ended(outcome) } => return Err(why(shard, outcome)),
                Event::GrantWanted { shard } => self.grant(&[shard]),
                Event::Signal(name) => {
                    warn(&format!("{name} before serving: stopped"));
                    return Ok(Phase::Stopped);
                }
            }
        }
        Ok(Phase::Go(recovered))
    }

    /// Shards report on a channel of their own type; this turns it into events.
    fn forward_reports(&self) -> Result<Sender<Report>, Failure> {
        let (reports, received) = mpsc::channel();
        let sender = self.sender.clone();
        let forward = move || received.into_iter().try_for_each(|report| sender.send(Event::Report(report)));
        let forwarder = thread::Builder::new().name("reports".into()).spawn(forward);
        forwarder.map_err(|error| no_thread(&error))?;
        Ok(reports)
    }

    fn spawn(
        &mut self,
        shard: usize,
        listeners: Vec<std::net::TcpListener>,
        reports: Sender<Report>,
        plan: ExecutorPlan,
    ) -> Result<(), Failure> {
        let start = ShardStart {
            shard,
            shards: self.manifest.shards(),
            config: self.config.clone(),
            log_dir: data_dir::shard_dir(&self.config.data_dir, self.manifest.generation, shard),
            log_id: self.manifest.log_ids[shard],
            placement_seed: self.manifest.placement_seed,
            lineages: self.lineages.clone(),
            listeners,
            mailboxes: self.mailboxes.clone(),
            inbox: self.inboxes[shard].clone(),
            reports,
        };
        let sender = self.sender.clone();
        let tell = move |notice| drop(sender.send(Event::Thread { shard, notice }));
        self.threads.push(executor::spawn(start, plan, tell).map_err(|error| no_thread(&error))?);
        Ok(())
    }

    /// All logs are replayed: from here on ids may be issued, and everyone knows all buckets.
    fn begin(&mut self, recovered: &Recovered) {
        let short = self.lineages.recovered();
        self.grant(&short);
        let buckets: Vec<BucketRecord> = recovered
            .buckets
            .iter()
            .map(|(bucket, generation)| BucketRecord { bucket: bucket.clone(), generation: *generation })
            .collect();
        self.tell_all(|| Mail::Begin { buckets: buckets.clone() });
    }

    /// Makes further grants of lineage ids durable, then hands them over. A failure is not fatal: shards have ids left,
    /// and ask again.
    fn grant(&mut self, shards: &[usize]) {
        let mut next = self.manifest.clone();
        next.lineages = self.lineages.ledger();
        let mut granted = Vec::new();
        for shard in shards.iter().filter(|shard| !self.lineages.has_spare(**shard)) {
            granted.extend(next.lineages.grant(next.log_ids[*shard]).map(|span| (*shard, span)));
        }
        if next == self.manifest {
            return;
        }
        if let Err(error) = next.store(&self.config.data_dir) {
            warn(&format!("{error}: no further lineage ids for now"));
            shards.iter().for_each(|shard| self.lineages.decline(*shard));
            return;
        }
        self.manifest = next;
        granted.into_iter().for_each(|(shard, span)| self.lineages.accept(shard, span));
    }

    /// Prints the start line.
    fn announce(
        &self,
        address: std::net::SocketAddr,
        cores: &CorePlan,
        recovered: &Recovered,
        took: Duration,
    ) {
        let sync = match self.config.sync {
            Sync::Always => "always",
            Sync::None => "none",
        };
        let line = format!(
            "thalweg {} serves http://{address} with {cores}; data in {}, sync {sync}; \
             recovered {} streams, {} records; started in {:.3} s",
            env!("CARGO_PKG_VERSION"),
            self.config.data_dir.display(),
            recovered.streams,
            recovered.records,
            took.as_secs_f64(),
        );
        // Not `println!`: a closed standard output is no reason to end.
        let _ = writeln!(std::io::stdout(), "{line}");
    }

    /// Serves until a signal or a failure, then stops all shards.
    fn watch(&mut self, events: &Receiver<Event>) -> Result<(), Failure> {
        let mut failure = None;
        while failure.is_none() {
            match events.recv().expect("this node holds a sender") {
                Event::Signal(name) => {
                    warn(&format!("{name}: stopping"));
                    break;
                }
                Event::GrantWanted { shard } => self.grant(&[shard]),
                Event::Report(Report::Failed { message, code, .. }) => {
                    failure = Some(Failure { code, message })
                }
                Event::Thread { shard, notice: Notice::Ended(outcome) } => {
                    self.ended += 1;
                    failure = Some(why(shard, outcome));
                }
                Event::Report(_) | Event::Thread { .. } => {}
            }
        }
        if let Some(failure) = &failure {
            warn(&format!("{failure}: stopping"));
        }
        let stopped = self.stop(events);
        failure.map_or(stopped, Err)
    }

    /// Tells all shards to stop and waits until their threads have ended.
    fn stop(&mut self, events: &Receiver<Event>) -> Result<(), Failure> {
        self.tell_all(|| Mail::Stop);
        let most = Duration::from_millis(limits::STOP_DEADLINE_MS + limits::STOP_COMMIT_DEADLINE_MS);
        let deadline = Instant::now() + most;
        let mut failure = None;
        while self.ended < self.threads.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match events.recv_timeout(left) {
                Ok(Event::Thread { shard, notice: Notice::Ended(outcome) }) => {
                    self.ended += 1;
                    if !matches!(outcome, Some(Ok(()))) {
                        failure.get_or_insert(why(shard, outcome));
                    }
                }
                Ok(Event::Report(Report::Failed { message, code, .. })) => {
                    failure.get_or_insert(Failure { code, message });
                }
                Ok(Event::GrantWanted { shard }) => self.grant(&[shard]),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let running = self.threads.len() - self.ended;
                    let message = format!("{running} shards did not stop within {} s", most.as_secs());
                    return Err(Failure::new(Exit::StopTimedOut, message));
                }
            }
        }
        for thread in self.threads.drain(..) {
            // Its end was told as its last act; a panic was reported then.
            let _ = thread.join();
        }
        failure.map_or(Ok(()), Err)
    }

    fn tell_all(&self, mail: impl Fn() -> Mail) {
        for mailbox in &self.mailboxes.0 {
            // A closed mailbox is a shard that ended: its own notice says why.
            let _ = mailbox.try_send(mail());
        }
    }
}

/// Joins the buckets of one shard to those of all: should two logs know lives of the same id, the later one counts.
fn merge(all: &mut BTreeMap<Vec<u8>, u64>, buckets: Vec<BucketRecord>) {
    for BucketRecord { bucket, generation } in buckets {
        let known = all.entry(bucket).or_insert(generation);
        *known = generation.max(*known);
    }
}

/// Why a shard's thread ended, when it should not have.
fn why(shard: usize, outcome: Option<Result<(), Failure>>) -> Failure {
    match outcome {
        Some(Err(failure)) => failure,
        Some(Ok(())) => Failure::new(Exit::Failed, format!("shard {shard} ended by itself")),
        None => Failure::new(Exit::Failed, format!("shard {shard} ended in a panic")),
    }
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot start a thread: {error}"))
}
