//! Who takes part in a run: the streams, what they are filled with before, and the connections of each thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::clock::Clock;
use super::deliver::Delivery;
use super::engine::{Engine, Member};
use super::follow::{Follower, Shared};
use super::ledger::Ledger;
use super::measure::{Measure, Window};
use super::plan::{Content, Kind, Plan};
use super::request::{Framing, Prepared};
use super::role::Role;
use super::setup::{self, Shards};
use super::target::Names;
use super::walk::Walk;
use super::workload::append::Appender;
use super::workload::churn::Churner;
use super::workload::long_poll::LongPoller;
use super::workload::read::Replayer;
use super::workload::sse::SseReader;

/// Connections that fill streams before the load, and requests in flight on each.
const FILLERS: usize = 8;
const FILL_DEPTH: usize = 4;

/// The lane of those whom a rate paces, and that of those who go as fast as they can.
pub const PACED: usize = 0;
/// See [`PACED`].
pub const FREE: usize = 1;
/// Lanes of a run.
pub const LANES: usize = 2;

/// A connection to be, which may be sent to its thread.
pub struct Part {
    address: SocketAddr,
    /// [`PACED`] or [`FREE`].
    pub lane: usize,
    depth: usize,
    role: Box<dyn Role + Send>,
}

impl From<Part> for Member {
    fn from(part: Part) -> Member {
        Member { address: part.address, lane: part.lane, depth: part.depth, role: part.role }
    }
}

/// A run whose streams are there.
pub struct Scene {
    /// The plan.
    pub plan: Plan,
    /// Names of the streams.
    pub names: Names,
    shards: Shards,
    /// What was written before the load.
    pub filled: Vec<Ledger>,
}

impl Scene {
    /// Makes the streams, and fills them if the workload wants that.
    pub fn prepare(plan: Plan) -> Result<Self, String> {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let names = Names::new(plan.target.style, &format!("bench-{unix_ms:x}-{:x}", plan.seed));
        let load = &plan.load;
        let shards =
            setup::make_streams(&plan.target, &names, plan.streams_made(), load.content.media_type())?;
        if load.shard_aware && shards.count == 0 {
            return Err(
                "--shard-aware: the server does not tell its shards (no Stream-Shard header)".to_owned()
            );
        }
        let mut scene = Self { plan, names, shards, filled: Vec::new() };
        if scene.fill_requests() > 0 {
            scene.filled = scene.fill()?;
        }
        Ok(scene)
    }

    /// Deletes the streams, and their bucket.
    pub fn delete(&self) -> Result<(), String> {
        setup::delete_streams(&self.plan.target, &self.names, self.plan.streams_made())
    }

    /// Requests that fill a stream.
    fn fill_requests(&self) -> u64 {
        let load = &self.plan.load;
        let request_bytes = (load.frames * load.payload_bytes) as u64;
        load.stream_bytes.map_or(0, |bytes| bytes.div_ceil(request_bytes))
    }

    /// Records that every stream was filled with.
    pub fn filled_records(&self) -> u64 {
        self.fill_requests() * self.plan.load.frames as u64
    }

    /// Fills all streams, interleaved; each has one writer.
    fn fill(&self) -> Result<Vec<Ledger>, String> {
        let plan = &self.plan;
        let fillers = FILLERS.min(plan.load.streams);
        let framing = if plan.load.content == Content::Json { Framing::Array } else { Framing::Plain };
        let part = |filler: usize| -> Member {
            let streams: Arc<[u32]> =
                (filler..plan.load.streams).step_by(fillers).map(|stream| stream as u32).collect();
            let limit = self.fill_requests() * streams.len() as u64;
            let ledger = Ledger::new(filler as u32, streams, 0, false, plan.load.frames);
            let role = Box::new(self.appender(ledger, framing, limit));
            Member { address: plan.target.address, lane: 0, depth: FILL_DEPTH, role }
        };
        let engine = Engine::connect(Clock::start(), (0..fillers).map(part).collect(), 1)?;
        let finished = engine.run(Window::ALWAYS, vec![None], Measure::new(0, Window::ALWAYS, None))?;
        if let Some((name, count)) = finished.errors_at_end.first_key_value() {
            return Err(format!("filling the streams failed: {count} x {name}"));
        }
        Ok(finished.conclusions.into_iter().filter_map(|conclusion| conclusion.ledger).collect())
    }

    fn appender(&self, ledger: Ledger, framing: Framing, limit: u64) -> Appender {
        let (plan, load) = (&self.plan, &self.plan.load);
        let media_type = load.content.media_type();
        let layout = plan.layout();
        let prepared =
            Prepared::append(&plan.target, &self.names, media_type, &layout, framing, ledger.connection);
        Appender::new(prepared, ledger, framing, load.frames, load.payload_bytes, limit)
    }

    /// The connections of every thread: readers before writers, so that they are there first.
    pub fn cast(&self) -> Result<Vec<Vec<Part>>, String> {
        let (readers, writers) = match self.plan.kind {
            Kind::Append | Kind::AppendBatch | Kind::JsonArray | Kind::Pipeline | Kind::Null => {
                (Vec::new(), self.writers(self.plan.load.connections, None)?)
            }
            Kind::Read => (self.replayers(self.plan.load.connections, PACED), Vec::new()),
            Kind::LongPoll | Kind::Sse | Kind::Mixed => self.live()?,
            Kind::Churn => (Vec::new(), self.churners()),
            Kind::Restart => unreachable!("a restart has no threads"),
        };
        let threads = self.plan.load.threads;
        let mut cast: Vec<Vec<Part>> = (0..threads).map(|_| Vec::new()).collect();
        for parts in [readers, writers] {
            parts.into_iter().enumerate().for_each(|(index, part)| cast[index % threads].push(part));
        }
        Ok(cast)
    }

    /// Connections that append; live readers follow them if there is something to share.
    fn writers(&self, count: usize, shared: Option<&Arc<Shared>>) -> Result<Vec<Part>, String> {
        let ledgers = self.ledgers(count);
        let part = |(ledger, address): (Ledger, Result<SocketAddr, String>)| {
            let appender = self.appender(ledger, self.plan.framing(), u64::MAX);
            let role: Box<dyn Role + Send> = match shared {
                Some(shared) => Box::new(appender.followed(shared.clone(), self.plan.kind == Kind::Mixed)),
                None => Box::new(appender),
            };
            Ok(Part { address: address?, lane: PACED, depth: self.plan.load.depth, role })
        };
        ledgers.into_iter().map(part).collect()
    }

    /// Empty ledgers of connections that append, and where they connect to.
    fn ledgers(&self, count: usize) -> Vec<(Ledger, Result<SocketAddr, String>)> {
        let load = &self.plan.load;
        let lists = self.stream_lists();
        let ledger = |connection: usize| {
            let (shard, list, place) = lists.of(connection);
            let address = match shard {
                Some(shard) => self.plan.target.shard_address(shard),
                None => Ok(self.plan.target.address),
            };
            (Ledger::new(connection as u32, list, place, load.stay, load.frames), address)
        };
        (0..count).map(ledger).collect()
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

    fn replayers(&self, count: usize, lane: usize) -> Vec<Part> {
        let plan = &self.plan;
        let streams: Arc<[u32]> = (0..plan.load.streams as u32).collect();
        let layout = plan.layout();
        let expected = (plan.kind == Kind::Read).then(|| self.filled_records());
        let part = |index: usize| {
            let walk = Walk::new(&plan.target, &self.names);
            let role = Box::new(Replayer::new(walk, streams.clone(), index, &layout, expected));
            Part { address: plan.target.address, lane, depth: 1, role }
        };
        (0..count).map(part).collect()
    }

    /// Live readers (and replayers), and the writers that they follow.
    fn live(&self) -> Result<(Vec<Part>, Vec<Part>), String> {
        let (plan, load) = (&self.plan, &self.plan.load);
        let writers = load.writers.expect("the plan of a live run has writers");
        let readers = load.readers.expect("the plan of a live run has readers");
        let shared = Arc::new(Shared::new(writers, load.streams));
        let layout = plan.layout();
        let ledgers: Vec<Ledger> = self.ledgers(writers).into_iter().map(|(ledger, _)| ledger).collect();
        let reader = |index: usize| {
            let stream = (index % load.streams) as u32;
            let follower = Follower::new(layout.clone(), stream, &ledgers);
            let delivery = Delivery::new(follower, shared.clone(), &layout);
            let (host, path) = (plan.target.host(), self.names.path(stream));
            let role: Box<dyn Role + Send> = match plan.kind {
                Kind::LongPoll => Box::new(LongPoller::new(host, &path, delivery, plan.verify)),
                _ => Box::new(SseReader::new(host, &path, delivery, plan.verify)),
            };
            let address = match load.shard_aware {
                true => plan.target.shard_address(self.shards.of_stream[stream as usize])?,
                false => plan.target.address,
            };
            Ok(Part { address, lane: FREE, depth: 1, role })
        };
        let mut parts = (0..readers).map(reader).collect::<Result<Vec<Part>, String>>()?;
        parts.extend(self.replayers(load.replayers.unwrap_or(0), FREE));
        Ok((parts, self.writers(writers, Some(&shared))?))
    }

    fn churners(&self) -> Vec<Part> {
        let (plan, count) = (&self.plan, self.plan.load.connections);
        let layout = plan.layout();
        let media_type = plan.load.content.media_type();
        let part = |connection: usize| {
            let (id, stride) = (connection as u32, count as u32);
            let role = Churner::new(&plan.target, &self.names, media_type, &layout, id, stride, plan.verify);
            Part { address: plan.target.address, lane: PACED, depth: 1, role: Box::new(role) }
        };
        (0..count).map(part).collect()
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
