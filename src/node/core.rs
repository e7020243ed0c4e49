//! The life of one core: recover its log, wait for the directory of buckets, serve, stop.
//!
//! This is where the layers meet: connections (`http`) are served by operations (`api`) on the state of a shard.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use glommio::timer::Timer;

use crate::api::{self, Api};
use crate::config::Sync;
use crate::http::buffer::Pool;
use crate::http::connection::Shared;
use crate::http::connections::Connections;
use crate::http::listener;
use crate::http::readiness::Readiness;
use crate::http::service::Service;
use crate::limits;
use crate::node::exit::{Exit, Failure};
use crate::shard::mail::{BucketRecord, Mail, Report, ShardStart};
use crate::shard::table::{Stamp, Table, Target};
use crate::shard::{self, Parts, Shard};
use crate::storage::device::DirectStore;
use crate::storage::event::{Event, EventContext};
use crate::storage::log::{self, Log, LogOptions};

/// How often deadlines of connections are looked at, and the coarse clock moves.
const SWEEP: Duration = Duration::from_millis(250);

/// Runs a shard until it is told to stop.
pub async fn run(start: ShardStart) -> Result<(), Failure> {
    let Some(shard) = recover(&start).await? else { return Ok(()) };
    let shared = serve(&start, shard.clone())?;
    // The node may have given up already: then there is nobody to tell.
    let _ = start.reports.send(Report::Serving { shard: start.shard });
    read_mail(&start, &shared).await;
    stop(&shard, &shared).await;
    Ok(())
}

/// Replays the log and waits for the others to have done so. `None`: told to stop meanwhile.
async fn recover(start: &ShardStart) -> Result<Option<Rc<Shard>>, Failure> {
    let (log, table, mut report) = open_log(start).await?;
    if let Report::Recovered { streams, records, .. } = &mut report {
        *streams = table.len() as u64;
        *records = table.records();
    }
    let _ = start.reports.send(report);
    let shard = Shard::new(Parts {
        index: start.shard,
        shards: start.shards,
        config: start.config.clone(),
        log,
        table,
        lineages: start.lineages.clone(),
        mailboxes: start.mailboxes.clone(),
        placement_seed: start.placement_seed,
    });
    loop {
        match start.inbox.recv().await {
            Ok(Mail::Begin { buckets }) => {
                shard.begin(&buckets);
                return Ok(Some(shard));
            }
            Ok(Mail::Stop) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

/// What replay finds.
struct Replay<'a> {
    start: &'a ShardStart,
    table: Table,
    buckets: BTreeMap<Vec<u8>, u64>,
    last_ticket: u64,
    problem: Option<String>,
}

impl Replay<'_> {
    fn visit(&mut self, event: &Event<'_>, context: EventContext) {
        if context.lsn != self.last_ticket {
            // What a commit deletes is gone before the next may take its name.
            self.table.publish(u64::MAX, |_| {});
            self.last_ticket = context.lsn;
        }
        match event {
            Event::StreamCreated(created) => {
                self.observe(created.lineage);
                if !self.owns(created.placement) {
                    return;
                }
            }
            Event::BucketCreated { bucket, generation } => {
                self.observe(*generation);
                if self.owns(shard::placement(bucket, self.start.placement_seed)) {
                    self.buckets.insert(bucket.to_vec(), *generation);
                }
            }
            Event::BucketDeleted { bucket, .. } => {
                self.buckets.remove(*bucket);
            }
            Event::Appended(_) | Event::StreamDeleted { .. } | Event::Renewed { .. } => {}
        }
        let stamp = Stamp { ticket: context.lsn, time_ms: context.time_ms };
        self.table.apply(event, stamp, Target::ByLineage);
    }

    fn observe(&mut self, lineage: u64) {
        if let Err(error) = self.start.lineages.observe(self.start.shard, lineage) {
            self.problem.get_or_insert_with(|| error.to_string());
        }
    }

    /// A log that was laid out for another number of shards holds streams of others, too.
    fn owns(&self, placement: u64) -> bool {
        shard::owner(placement, self.start.shards) == self.start.shard
    }
}

async fn open_log(start: &ShardStart) -> Result<(Log, Table, Report), Failure> {
    let options = LogOptions {
        log_id: start.log_id,
        sync: match start.config.sync {
            Sync::Always => log::Sync::Always,
            Sync::None => log::Sync::None,
        },
        commit_delay_us: start.config.commit_delay_us,
        segment_bytes: start.config.segment_bytes,
        cache_bytes: (start.config.cache_bytes / start.shards as u64) as usize,
    };
    let store = Rc::new(DirectStore::new(&start.log_dir));
    let mut replay =
        Replay { start, table: Table::recovering(), buckets: BTreeMap::new(), last_ticket: 0, problem: None };
    let opened = Log::open(store, options, &mut |event, context| replay.visit(event, context)).await;
    let (log, recovered) = opened.map_err(|error| Failure::of_log(&start.log_dir, &error))?;
    if let Some(problem) = replay.problem {
        return Err(Failure::new(Exit::Damaged, format!("{}: {problem}", start.log_dir.display())));
    }
    let mut table = replay.table;
    table.recovered();
    let buckets = replay.buckets.into_iter();
    let report = Report::Recovered {
        shard: start.shard,
        streams: 0,
        records: 0,
        buckets: buckets.map(|(bucket, generation)| BucketRecord { bucket, generation }).collect(),
        torn_bytes: recovered.torn.map_or(0, |torn| torn.bytes),
    };
    Ok((log, table, report))
}

/// Starts accepting connections.
fn serve(start: &ShardStart, shard: Rc<Shard>) -> Result<Rc<Shared<Api>>, Failure> {
    let readiness = Readiness::new()
        .map_err(|error| Failure::new(Exit::Failed, format!("shard {}: epoll: {error}", start.shard)))?;
    let api = Api::new(shard);
    let full: Rc<[u8]> = api.too_many_connections().into();
    let shared = Rc::new(Shared {
        service: api,
        connections: Rc::new(Connections::default()),
        pool: Pool::default(),
        readiness,
    });
    let connections_max = start.config.max_connections.div_ceil(start.shards);
    for socket in &start.listeners {
        let socket = socket.try_clone().expect("a listening socket can be duplicated");
        let accepting = listener::accept_loop(socket, shared.clone(), connections_max, full.clone());
        glommio::spawn_local(accepting).detach();
    }
    glommio::spawn_local(sweep_loop(shared.clone())).detach();
    glommio::spawn_local(shared.readiness.clone().run()).detach();
    Ok(shared)
}

async fn sweep_loop(shared: Rc<Shared<Api>>) {
    loop {
        Timer::new(SWEEP).await;
        shared.connections.sweep(shared.service.tick());
    }
}

/// Answers the mailbox until it says stop.
async fn read_mail(start: &ShardStart, shared: &Rc<Shared<Api>>) {
    let shard = &shared.service.shard;
    while let Ok(mail) = start.inbox.recv().await {
        match mail {
            Mail::Connection { fd, unread } => listener::adopt(fd, unread, shared.clone()),
            Mail::BucketAdded { bucket, done } => {
                shard.buckets.borrow_mut().add(&bucket);
                // The asker may have stopped: so in all answers here.
                let _ = done.try_send(());
            }
            Mail::BucketFreeze { bucket, count } => {
                let mut buckets = shard.buckets.borrow_mut();
                buckets.set_frozen(&bucket, true);
                let _ = count.try_send(buckets.count(&bucket));
            }
            Mail::BucketUnfreeze { bucket } => shard.buckets.borrow_mut().set_frozen(&bucket, false),
            Mail::BucketRemoved { bucket, done } => {
                shard.buckets.borrow_mut().remove(&bucket);
                let _ = done.try_send(());
            }
            Mail::BucketCount { bucket, count } => {
                let _ = count.try_send(api::buckets::live_count(shard, &bucket));
            }
            Mail::BucketPage { bucket, prefix, after, limit, page } => {
                let _ = page.try_send(api::buckets::local_page(shard, &bucket, &prefix, &after, limit));
            }
            Mail::Begin { .. } => {}
            Mail::Stop => return,
        }
    }
}

/// Finishes the requests under way, ends the live readers, cuts who is left, and closes the log.
async fn stop(shard: &Rc<Shard>, shared: &Rc<Shared<Api>>) {
    /// How often the stop looks whether all connections have ended.
    const LOOK: Duration = Duration::from_millis(10);
    /// Connections cut at once: fewer than the ring has entries.
    const CUT_MAX: usize = 64;
    shard.stop();
    let deadline_ms = shard::now_ms() + limits::STOP_DEADLINE_MS;
    shared.connections.end_idle();
    while shared.connections.count() > 0 && shard::now_ms() < deadline_ms {
        Timer::new(LOOK).await;
        shared.service.tick();
        shared.connections.end_idle();
    }
    while shared.connections.count() > 0 && shard::now_ms() < deadline_ms + LOOK.as_millis() as u64 * 50 {
        shared.connections.cut(CUT_MAX);
        Timer::new(LOOK).await;
    }
    assert!(shared.service.stopping(), "the stop has begun");
    shard.log.stop().await;
}
