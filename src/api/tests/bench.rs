//! One shard over a simulated device, and requests to it without a socket.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use futures_lite::future::{or, poll_once};
use glommio::timer::Timer;
use glommio::{LocalExecutorBuilder, Placement};

use crate::api::Api;
use crate::config::{self, Config};
use crate::http::head;
use crate::http::service::{Fill, Service, Source, Step, Wait};
use crate::limits;
use crate::shard::lineage::{Ledger, Lineages};
use crate::shard::mail::{BucketRecord, Mail, Mailboxes};
use crate::shard::replay::Replay;
use crate::shard::table::StreamId;
use crate::shard::{Parts, Shard};
use crate::storage::event::Event;
use crate::storage::log::{Log, LogOptions, Sync};
use crate::storage::simulated::{SimulatedStore, Unsynced};

/// Runs a test in an executor of its own.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    // Memory of finished executors is given back late by the kernel, so a first try may fail.
    for _ in 0..1000 {
        match LocalExecutorBuilder::new(Placement::Unbound).ring_depth(64).io_memory(64 << 10).make() {
            Ok(executor) => return executor.run(patiently(test)),
            Err(_) => std::thread::yield_now(),
        }
    }
    panic!("no executor can be made here");
}

/// Fails a test in which nothing happens any more. Reached only when something is broken.
async fn patiently<T>(test: impl Future<Output = T>) -> T {
    or(test, async {
        Timer::new(Duration::from_secs(60)).await;
        panic!("the test waits for something that does not happen")
    })
    .await
}

/// Gives everything else a turn.
pub async fn turn() {
    Timer::new(Duration::from_micros(20)).await;
}

/// The settings of a test server.
pub fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().expect("an address"),
        data_dir: "nowhere".into(),
        shards: Some(1),
        cpus: None,
        shard_ports: false,
        sync: config::Sync::Always,
        commit_delay_us: 0,
        spin_us: 0,
        segment_bytes: limits::SEGMENT_BYTES_MIN,
        segments_ahead: 1,
        cache_bytes: 0,
        hot_bytes: 0,
        max_body_bytes: limits::BODY_BYTES_DEFAULT,
        max_snapshot_bytes: limits::SNAPSHOT_BYTES_DEFAULT,
        max_connections: 100,
        long_poll_timeout_ms: 3_600_000,
        sse_max_ms: 3_600_000,
        read_page_bytes: limits::READ_PAGE_BYTES_DEFAULT,
        trust_proxy: false,
    }
}

/// An answer, taken apart.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Takes the bytes of an answer apart.
    pub fn of(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is text");
        let status = head[9..12].parse().expect("a status");
        Answer { status, head, body: bytes[end..].to_vec() }
    }

    /// Requires a status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A request.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A request that was served as far as it went without waiting.
pub struct Started<'b> {
    bench: &'b Bench,
    request: Vec<u8>,
    step: Option<Step>,
    out: Vec<u8>,
    has_looked: bool,
}

impl Started<'_> {
    /// Whether the answer is there but may not leave yet.
    pub fn waits_for_commit(&self) -> bool {
        matches!(self.step, Some(Step::After(ticket)) if ticket > self.bench.api.durable())
    }

    /// Whether the request is to be tried again, or goes on by itself.
    pub fn is_under_way(&self) -> bool {
        matches!(self.step, Some(Step::Again(_) | Step::Later(_)))
    }

    /// Whether the body of the answer is sent without a copy.
    pub fn is_lent(&self) -> bool {
        matches!(self.step, Some(Step::Lent(_)))
    }

    /// The answer, when it may leave.
    pub async fn answer(mut self) -> Answer {
        let api = &self.bench.api;
        loop {
            match self.step.take().expect("set anew in each turn") {
                Step::Done | Step::DoneAndClose => break,
                Step::After(ticket) => {
                    if !api.wait_durable(ticket).await {
                        self.out.clear();
                        api.commit_failed(&mut self.out);
                    }
                    break;
                }
                Step::Again(wait) => {
                    assert!(self.out.is_empty(), "a request that waits has no answer yet");
                    match wait {
                        // Room may have come and been announced since the request was begun.
                        Wait::Room if !std::mem::replace(&mut self.has_looked, true) => {}
                        Wait::Room => api.wait_room().await,
                        Wait::Decision => api.wait_decision().await,
                        Wait::Durable(ticket) => drop(api.wait_durable(ticket).await),
                    }
                    self.step = Some(self.bench.call(&self.request, &mut self.out));
                }
                Step::Later(source) => {
                    let mut live = Live { source, out: std::mem::take(&mut self.out), ended: false };
                    while !live.ended {
                        live.next().await;
                    }
                    self.out = live.out;
                    break;
                }
                Step::Lent(body) => {
                    self.out.extend_from_slice(&body);
                    break;
                }
                Step::Elsewhere(shard) => panic!("there is no shard {shard}"),
            }
        }
        Answer::of(&self.out)
    }

    /// The live answer.
    pub fn live(mut self) -> Live {
        match self.step.take() {
            Some(Step::Later(source)) => Live { source, out: self.out, ended: false },
            _ => panic!("no live answer: {}", String::from_utf8_lossy(&self.out)),
        }
    }
}

/// An answer that comes bit by bit.
pub struct Live {
    source: Box<dyn Source>,
    /// Everything so far.
    pub out: Vec<u8>,
    /// Whether it is complete.
    pub ended: bool,
}

impl Live {
    /// Waits for the next bytes.
    pub async fn next(&mut self) -> &mut Live {
        let (source, out) = (&mut self.source, &mut self.out);
        let fill = poll_fn(|context| source.poll_fill(context, out)).await;
        self.ended = fill != Fill::More;
        self
    }

    /// Whether there is nothing to say just now.
    pub async fn is_silent(&mut self) -> bool {
        let (source, out) = (&mut self.source, &mut self.out);
        poll_once(poll_fn(|context| source.poll_fill(context, out))).await.is_none()
    }

    /// Everything so far as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

/// What shards share.
struct Seats {
    lineages: Arc<Lineages>,
    mailboxes: Mailboxes,
    inboxes: Vec<Receiver<Mail>>,
}

impl Seats {
    /// Log id of the first.
    const LOG_ID: u64 = 7;

    fn new(shards: usize) -> Seats {
        let log_ids: Vec<u64> = (Seats::LOG_ID..).take(shards).collect();
        let mut ledger = Ledger::default();
        for log_id in &log_ids {
            ledger.grant(*log_id).expect("few ids are used");
        }
        let (senders, inboxes) = (0..shards).map(|_| async_channel::unbounded()).unzip();
        let lineages = Arc::new(Lineages::new(&log_ids, &ledger, |_| {}));
        Seats { lineages, mailboxes: Mailboxes(senders), inboxes }
    }
}

/// Serves a shard's mail from now on.
pub fn deliver(bench: &Bench, inbox: &Receiver<Mail>) {
    let (api, inbox) = (bench.api.clone(), inbox.clone());
    glommio::spawn_local(async move {
        while let Ok(Mail::Bucket(mail)) = inbox.recv().await {
            api.bucket_mail(mail);
        }
    })
    .detach();
}

/// See the module. It has the bucket `test`.
pub struct Bench {
    pub api: Api,
    pub store: SimulatedStore,
}

impl Bench {
    /// A shard over an empty device.
    pub async fn new(config: Config) -> Bench {
        let bench = Bench::over(SimulatedStore::new(), config).await;
        bench.send("PUT", "/test", &[], "").await.expect(201);
        bench
    }

    /// The shard that a device holds.
    pub async fn over(store: SimulatedStore, config: Config) -> Bench {
        let seats = Seats::new(1);
        let (bench, buckets) = Bench::recovered(&seats, 0, store, config).await;
        bench.api.shard.begin(&buckets);
        bench
    }

    /// Two shards over what two devices hold, and what came to the mailbox of each; deliver it with [`deliver`].
    pub async fn two(stores: [SimulatedStore; 2], config: Config) -> ([Bench; 2], [Receiver<Mail>; 2]) {
        let seats = Seats::new(2);
        let [first, second] = stores;
        let (first, mut buckets) = Bench::recovered(&seats, 0, first, config.clone()).await;
        let (second, more) = Bench::recovered(&seats, 1, second, config).await;
        buckets.extend(more);
        let benches = [first, second];
        benches.iter().for_each(|bench| bench.api.shard.begin(&buckets));
        (benches, [seats.inboxes[0].clone(), seats.inboxes[1].clone()])
    }

    /// A shard that has not begun, and the buckets in its log.
    async fn recovered(
        seats: &Seats,
        index: usize,
        store: SimulatedStore,
        config: Config,
    ) -> (Bench, Vec<BucketRecord>) {
        let options = LogOptions {
            log_id: Seats::LOG_ID + index as u64,
            sync: Sync::Always,
            commit_delay_us: config.commit_delay_us,
            segment_bytes: config.segment_bytes,
            segments_ahead: config.segments_ahead,
            cache_bytes: config.cache_bytes as usize,
        };
        let lineages = seats.lineages.clone();
        let mut replay = Replay::new(index, seats.inboxes.len(), 1, lineages.clone());
        let mut visit = |event: &Event<'_>, context| replay.visit(event, context);
        let opened = Log::open(Rc::new(store.clone()), options, &mut visit).await;
        let (log, recovered) = opened.expect("the log opens");
        let (table, buckets) = replay.finish(&recovered).expect("the events make sense");
        if index + 1 == seats.inboxes.len() {
            lineages.recovered();
        }
        let shard = Shard::new(Parts {
            index,
            shards: seats.inboxes.len(),
            config: Arc::new(config),
            log,
            table,
            lineages,
            mailboxes: seats.mailboxes.clone(),
            placement_seed: 1,
        });
        (Bench { api: Api::new(shard), store }, buckets)
    }

    /// The same after the process died now.
    pub async fn restarted(self, config: Config) -> Bench {
        self.crashed(config, Unsynced::Lost).await
    }

    /// The same after a crash, which leaves of unsynced writes what `unsynced` says.
    pub async fn crashed(self, config: Config, unsynced: Unsynced) -> Bench {
        Bench::over(self.store.after_crash(unsynced), config).await
    }

    fn call(&self, request: &[u8], out: &mut Vec<u8>) -> Step {
        let head = head::parse(request).expect("a good head").expect("a whole head");
        self.api.call(&head, &request[head.head_bytes..], out)
    }

    /// Begins a request.
    pub fn start(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Started<'_> {
        let request = request(method, target, headers, body);
        let mut out = Vec::new();
        let step = Some(self.call(&request, &mut out));
        Started { bench: self, request, step, out, has_looked: false }
    }

    /// Serves a request to its end.
    pub async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        self.start(method, target, headers, body).answer().await
    }

    /// Creates `/test/{name}`.
    pub async fn create(&self, name: &str, content_type: &str, headers: &[(&str, &str)]) {
        let headers: Vec<_> = [("Content-Type", content_type)].iter().chain(headers).copied().collect();
        self.send("PUT", &format!("/test/{name}"), &headers, "").await.expect(201);
    }

    /// Appends to `/test/{name}`.
    pub async fn append(&self, name: &str, content_type: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", &format!("/test/{name}"), &[("Content-Type", content_type)], body).await
    }

    /// The stream `/test/{name}` in its staged view.
    pub fn id(&self, name: &str) -> StreamId {
        let key = format!("test/{name}");
        let hash = self.api.shard.hash(key.as_bytes());
        self.api.shard.table.borrow().find(hash, key.as_bytes()).expect("the stream exists")
    }

    /// Lets writes complete, or holds them until then.
    pub fn hold(&self, held: bool) {
        self.store.hold_writes(held);
    }
}
