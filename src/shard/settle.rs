//! Settling, as the shard directs it: which segments are rewritten, when, and what becomes of the streams' indexes.
//!
//! Contract:
//! - One task per shard, of low priority. It looks when a segment was sealed or when something was freed, after a moment in
//!   which more may follow, and takes its time while the shard is in use.
//! - A look is a *census*: how many bytes of each segment are in use, in how many pieces, counted from the indexes of all
//!   streams. Nothing is counted on the paths of requests.
//! - Segments in small pieces, and such of which much is unused, are rewritten ([`plan()`]). The others are left alone.
//! - Streams are led to the new places one by one, then the old segments go. Whoever reads from an old one keeps it open.

pub mod left_alone;
pub mod plan;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Shard;
use super::stream::Stream;
use super::table::StreamId;
use crate::storage::event::{HashRange, Place, ProducerRun};
use crate::storage::settle::{Rewritten, SettleError, Streams};

use plan::{Usage, plan};

/// How long to wait for more after something has happened.
const PAUSE: Duration = Duration::from_secs(1);
/// So many times the duration of a census passes before the next one.
const CENSUS_PAUSE: u32 = 20;
/// How long to leave a shard alone after a rewrite failed.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(30);
/// Extents counted before other work gets a turn.
const EXTENTS_PER_TURN: usize = 4096;

/// Settles for as long as the shard runs.
pub(super) async fn run(shard: Rc<Shard>) {
    loop {
        shard.log.wait_to_settle().await;
        shard.log.pause(PAUSE).await;
        shard.left_alone.borrow_mut().try_again();
        loop {
            if shard.log.sweep().await {
                // Someone still reads what was discarded.
                shard.log.suggest_settling();
            }
            if shard.log.is_ending() {
                return;
            }
            let started = Instant::now();
            match settle_some(&shard).await {
                Ok(true) => {}
                Ok(false) => {
                    // A census of very many streams is no reason to take one all the time.
                    shard.log.pause(started.elapsed() * CENSUS_PAUSE).await;
                    break;
                }
                Err(SettleError::Ending) => return,
                Err(error) => {
                    eprintln!("thalweg: shard {}: settling: {error}", shard.index);
                    shard.log.pause(PAUSE_AFTER_ERROR).await;
                }
            }
        }
    }
}

/// Rewrites the segments that need it most; whether there were any.
pub async fn settle_some(shard: &Rc<Shard>) -> Result<bool, SettleError> {
    let _turn = shard.settle_gate.acquire_permit(1).await.expect("the gate is never closed");
    let mut sealed = shard.log.sealed_segments();
    let Some(newest) = sealed.iter().map(|segment| segment.index).max() else { return Ok(false) };
    sealed.retain(|segment| shard.left_alone.borrow().allows(segment.index, newest));
    let usage = census(shard).await;
    let pending = shard.oldest_pending_chunk();
    let mut tried = Vec::new();
    let mut extra = 0;
    loop {
        let segments = plan(&sealed, &usage, pending, shard.config.segment_bytes, extra);
        if segments.is_empty() {
            // What a large append needs further on is not there: the others can do without.
            shard.left_alone.borrow_mut().failed(&tried, newest, &SettleError::NamedLater);
            return Ok(!tried.is_empty());
        }
        match shard.log.settle(&segments, &**shard).await {
            Ok(rewritten) => {
                lead(shard, &rewritten).await;
                shard.log.discard(&segments);
                return Ok(true);
            }
            // A large append reaches over the end: with the segment after it.
            Err(SettleError::NamedLater) => (tried, extra) = (segments, extra + 1),
            Err(error) => {
                shard.left_alone.borrow_mut().failed(&segments, newest, &error);
                return Err(error);
            }
        }
    }
}

/// Leads the streams to where their data lies now.
async fn lead(shard: &Shard, rewritten: &Rewritten) {
    let mut turn = shard.log.turn();
    for moved in &rewritten.moves {
        shard.table.borrow_mut().relocate(moved);
        turn.give_way().await;
    }
    for moved in &rewritten.snapshots {
        shard.table.borrow_mut().relocate_snapshot(moved);
    }
}

/// Counts what of each segment is in use, by index.
async fn census(shard: &Shard) -> HashMap<u32, Usage> {
    let mut usage: HashMap<u32, Usage> = HashMap::new();
    let mut next = shard.table.borrow().next_from(0);
    let mut left = EXTENTS_PER_TURN;
    let mut turn = shard.log.turn();
    while let Some(id) = next {
        let mut from = 0;
        loop {
            let done = count(shard, id, &mut from, &mut left, &mut usage);
            if left == 0 {
                left = EXTENTS_PER_TURN;
                turn.give_way().await;
            }
            if done {
                break;
            }
        }
        next = shard.table.borrow().next_from(id.slot + 1);
    }
    usage
}

/// Counts up to `left` extents of a stream from offset `from` on; whether it has no more.
fn count(
    shard: &Shard,
    id: StreamId,
    from: &mut u64,
    left: &mut usize,
    usage: &mut HashMap<u32, Usage>,
) -> bool {
    let table = shard.table.borrow();
    let Some(stream) = table.get(id) else { return true };
    *left -= 1;
    if *from == 0 {
        count_snapshots(stream, usage);
    }
    let end = stream.extents.end();
    // In most streams all extents of a turn lie in one segment.
    let (mut last, mut found) = (u32::MAX, Usage::default());
    let mut start = (*from).max(stream.first().bytes).min(end);
    for piece in stream.extents.pieces(start, end) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        if piece.place.segment != last {
            usage.entry(last).or_default().add(found);
            (last, found) = (piece.place.segment, Usage::default());
        }
        found.add(Usage { bytes: u64::from(piece.len), pieces: 1 });
        start += u64::from(piece.len);
    }
    usage.entry(last).or_default().add(found);
    *from = start.max(1);
    start == end
}

fn count_snapshots(stream: &Stream, usage: &mut HashMap<u32, Usage>) {
    let views = stream.snapshot();
    let (staged, durable) = (views.staged, views.durable);
    let other = staged.filter(|staged| durable.is_none_or(|durable| !Rc::ptr_eq(staged, durable)));
    for snapshot in durable.into_iter().chain(other) {
        for part in &snapshot.parts {
            let found = Usage { bytes: u64::from(part.len), pieces: 1 };
            usage.entry(part.place.segment).or_default().add(found);
        }
    }
}

impl Streams for Shard {
    fn first_of(&self, lineage: u64, hashes: HashRange) -> Option<u64> {
        let table = self.table.borrow();
        let stream = table.get(table.find_lineage(lineage)?)?;
        hashes.contains(stream.hash).then(|| stream.first().bytes)
    }

    fn has_bucket(&self, bucket: &[u8], generation: u64) -> bool {
        self.buckets.borrow().get(bucket).is_some_and(|bucket| bucket.generation == generation)
    }

    fn owns_bucket(&self, bucket: &[u8], hashes: HashRange) -> bool {
        let hash = self.hash(bucket);
        self.owner(hash) == self.index && hashes.contains(hash)
    }

    fn has_attributes(&self, lineage: u64, attributes: &[u8]) -> bool {
        self.with_lineage(lineage, |stream| stream.attributes().durable == attributes).unwrap_or(false)
    }

    fn has_snapshot(&self, lineage: u64, offset: u64, digest: &[u8; 32]) -> bool {
        let is_it = |stream: &Stream| {
            let snapshot = stream.snapshot().durable;
            snapshot.is_some_and(|snapshot| snapshot.offset == offset && snapshot.digest == *digest)
        };
        self.with_lineage(lineage, is_it).unwrap_or(false)
    }

    fn producer_run(&self, lineage: u64, id: &[u8], epoch: u64, seq: u64) -> Option<ProducerRun> {
        let range = self.with_lineage(lineage, |stream| stream.producers.range(id, epoch, seq))??;
        Some(ProducerRun { first_ordinal: range.0, records: range.1, appends: 1 })
    }

    fn is_last_use(&self, lineage: u64, used_ms: u64) -> bool {
        let recorded = |stream: &Stream| stream.lifetime.as_ref().map(|lifetime| lifetime.recorded_ms);
        self.with_lineage(lineage, recorded).flatten() == Some(used_ms)
    }

    fn names(&self, lineage: u64, place: Place) -> bool {
        let file = |segment| self.log.same_file(segment);
        let entry = |place: Place| place.position - place.back;
        let lies_there =
            |other: Place| entry(other) == entry(place) && file(other.segment) == file(place.segment);
        let named = |stream: &Stream| {
            let views = stream.snapshot();
            let snapshots = views.staged.into_iter().chain(views.durable);
            let (first, end) = (stream.first().bytes, stream.extents.end());
            snapshots.flat_map(|snapshot| &snapshot.parts).any(|part| lies_there(part.place))
                || stream.extents.pieces(first.min(end), end).any(|piece| {
                    // The first one may begin within its chunk.
                    lies_there(piece.place)
                })
        };
        self.with_lineage(lineage, named).unwrap_or(false)
    }
}

impl Shard {
    fn with_lineage<T>(&self, lineage: u64, look: impl FnOnce(&Stream) -> T) -> Option<T> {
        let table = self.table.borrow();
        table.find_lineage(lineage).and_then(|id| table.get(id)).map(look)
    }
}
