//! The life of one core: recover its log, wait for the directory of buckets, serve, stop.
//!
//! This is where the layers meet: connections (`http`) are served by operations (`api`) on the state of a shard.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use glommio::timer::Timer;

use crate::api::Api;
use crate::config::Sync;
use crate::http::buffer::Pool;
use crate::http::connection::Shared;
use crate::http::connections::Connections;
use crate::http::lent::Lender;
use crate::http::listener;
use crate::http::readiness::{self, Readiness};
use crate::http::service::Service;
use crate::limits;
use crate::node::exit::{Exit, Failure};
use crate::node::nudge::Nudge;
use crate::node::preflight;
use crate::shard::mail::{BucketRecord, Mail, Report, ShardStart};
use crate::shard::replay::Replay;
use crate::shard::table::Table;
use crate::shard::{self, Parts, Shard};
use crate::storage::device::{self, DirectStore};
use crate::storage::log::{self, Log, LogOptions};
use crate::storage::ring::WriteRing;

/// Runs a shard until it is told to stop.
pub async fn run(start: ShardStart, nudge: Arc<Nudge>) -> Result<(), Failure> {
    let failed = |what, error: io::Error| {
        Failure::new(Exit::Failed, format!("shard {}: {what}: {error}", start.shard))
    };
    let ring = preflight::patiently(WriteRing::new).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => preflight::no_locked_memory(start.shard),
        _ => failed("a ring for writes", error),
    })?;
    let readiness = watch(&start, &ring, nudge).map_err(|error| failed("epoll", error))?;
    let Some((shard, early)) = recover(&start, ring).await? else { return Ok(()) };
    let shared = serve(&start, shard.clone(), readiness);
    early.into_iter().for_each(|mail| handle(mail, &shared));
    // The node may have given up already: then there is nobody to tell.
    let _ = start.reports.send(Report::Serving { shard: start.shard });
    while let Ok(mail) = start.inbox.recv().await {
        match mail {
            Mail::Stop => break,
            mail => handle(mail, &shared),
        }
    }
    stop(&shard, &shared, &start.inbox).await;
    Ok(())
}

/// Starts to look after the core's sockets, and the writes of its log.
fn watch(start: &ShardStart, ring: &Rc<WriteRing>, nudge: Arc<Nudge>) -> io::Result<Rc<Readiness>> {
    let readiness = Readiness::new()?;
    readiness.watch(ring.news())?;
    let core = ThisCore { ring: ring.clone(), nudge };
    glommio::spawn_local(readiness.clone().run(Duration::from_micros(start.config.spin_us), core)).detach();
    Ok(readiness)
}

/// What the core's readiness set must know.
struct ThisCore {
    ring: Rc<WriteRing>,
    nudge: Arc<Nudge>,
}

impl readiness::Core for ThisCore {
    fn round(&self) {
        self.nudge.progress();
    }

    fn watched(&self) {
        self.ring.reap();
    }

    fn may_wait(&self) -> bool {
        device::under_way() == 0
    }
}

/// Replays the log and waits for the others to have done so; with the mail of those that began to serve before this one.
/// `None`: told to stop meanwhile.
async fn recover(start: &ShardStart, ring: Rc<WriteRing>) -> Result<Option<(Rc<Shard>, Vec<Mail>)>, Failure> {
    let (log, table, mut report) = open_log(start, ring).await?;
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
    let Some((buckets, early)) = wait_for_begin(&start.inbox).await else { return Ok(None) };
    shard.begin(&buckets);
    Ok(Some((shard, early)))
}

/// Waits for the directory of buckets. Mail that comes before it is kept: shards begin one after the other, and the first
/// may have something to say before the last has begun.
async fn wait_for_begin(inbox: &Receiver<Mail>) -> Option<(Vec<BucketRecord>, Vec<Mail>)> {
    let mut early = Vec::new();
    loop {
        match inbox.recv().await {
            Ok(Mail::Begin { buckets }) => return Some((buckets, early)),
            Ok(Mail::Stop) | Err(_) => return None,
            Ok(mail) => early.push(mail),
        }
    }
}

async fn open_log(start: &ShardStart, ring: Rc<WriteRing>) -> Result<(Log, Table, Report), Failure> {
    let options = LogOptions {
        log_id: start.log_id,
        sync: match start.config.sync {
            Sync::Always => log::Sync::Always,
            Sync::None => log::Sync::None,
        },
        commit_delay_us: start.config.commit_delay_us,
        segment_bytes: start.config.segment_bytes,
        segments_ahead: start.config.segments_ahead,
        cache_bytes: (start.config.cache_bytes / start.shards as u64) as usize,
    };
    let store = Rc::new(DirectStore::with_ring(&start.log_dir, ring));
    let mut replay = Replay::new(start.shard, start.shards, start.placement_seed, start.lineages.clone());
    let opened = Log::open(store, options, &mut |event, context| replay.visit(event, context)).await;
    let (log, recovered) = opened.map_err(|error| Failure::of_log(&start.log_dir, &error))?;
    let (table, buckets) = replay
        .finish(&recovered)
        .map_err(|problem| Failure::new(Exit::Damaged, format!("{}: {problem}", start.log_dir.display())))?;
    let report = Report::Recovered {
        shard: start.shard,
        streams: 0,
        records: 0,
        buckets,
        torn_bytes: recovered.torn.map_or(0, |torn| torn.bytes),
    };
    Ok((log, table, report))
}

/// Starts accepting connections.
fn serve(start: &ShardStart, shard: Rc<Shard>, readiness: Rc<Readiness>) -> Rc<Shared<Api>> {
    let api = Api::new(shard);
    let full: Rc<[u8]> = api.too_many_connections().into();
    let shared = Rc::new(Shared {
        service: api,
        connections: Rc::new(Connections::default()),
        pool: Pool::default(),
        lender: Lender::default(),
        readiness,
    });
    let connections_max = start.config.max_connections.div_ceil(start.shards);
    for socket in &start.listeners {
        let socket = socket.try_clone().expect("a listening socket can be duplicated");
        let accepting = listener::accept_loop(socket, shared.clone(), connections_max, full.clone());
        glommio::spawn_local(accepting).detach();
    }
    glommio::spawn_local(sweep_loop(shared.clone())).detach();
    shared
}

async fn sweep_loop(shared: Rc<Shared<Api>>) {
    loop {
        Timer::new(Duration::from_millis(limits::COARSE_CLOCK_MS)).await;
        shared.connections.sweep(shared.service.tick());
    }
}

/// Does what a message asks.
fn handle(mail: Mail, shared: &Rc<Shared<Api>>) {
    match mail {
        Mail::Connection { fd, unread } => listener::adopt(fd, unread, shared.clone()),
        Mail::Bucket(mail) => shared.service.bucket_mail(mail),
        // The one to begin with came first; the one to stop is seen to by the caller.
        Mail::Begin { .. } | Mail::Stop => {}
    }
}

/// Finishes the requests under way, ends the live readers, cuts who is left, and closes the log. Other shards are answered
/// meanwhile: their requests under way may depend on it.
async fn stop(shard: &Rc<Shard>, shared: &Rc<Shared<Api>>, inbox: &Receiver<Mail>) {
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
        while let Ok(mail) = inbox.try_recv() {
            handle(mail, shared);
        }
        shared.connections.end_idle();
    }
    while shared.connections.count() > 0 && shard::now_ms() < deadline_ms + LOOK.as_millis() as u64 * 50 {
        shared.connections.cut(CUT_MAX);
        Timer::new(LOOK).await;
    }
    assert!(shared.service.stopping(), "the stop has begun");
    shard.log.stop().await;
    // The mailboxes that all shards hold keep mail alive that nobody reads: whoever waits for an answer must see that
    // none comes.
    inbox.close();
    while let Ok(mail) = inbox.try_recv() {
        drop(mail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::buckets::Phase;
    use crate::shard::mail::BucketMail;

    #[test]
    fn mail_that_comes_before_the_beginning_is_kept() {
        let record = |bucket: &[u8]| BucketRecord { bucket: bucket.to_vec(), generation: 1 };
        let (sender, inbox) = async_channel::unbounded();
        let (done, _answers) = async_channel::bounded(1);
        let early = BucketMail::Begins { bucket: record(b"early"), done };
        sender.try_send(Mail::Bucket(early)).unwrap();
        sender.try_send(Mail::Begin { buckets: vec![record(b"old")] }).unwrap();
        let late = BucketMail::Phase { bucket: record(b"late"), phase: Phase::Open };
        sender.try_send(Mail::Bucket(late)).unwrap();
        let (buckets, early) = futures_lite::future::block_on(wait_for_begin(&inbox)).expect("it begins");
        assert_eq!(buckets, [record(b"old")]);
        assert!(
            matches!(&early[..], [Mail::Bucket(BucketMail::Begins { bucket, .. })] if bucket.bucket == b"early")
        );
        assert!(matches!(inbox.try_recv(), Ok(Mail::Bucket(BucketMail::Phase { .. }))));
        sender.try_send(Mail::Stop).unwrap();
        assert!(futures_lite::future::block_on(wait_for_begin(&inbox)).is_none());
    }
}
