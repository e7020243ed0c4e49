//! Settling: rewrites sealed segments so that each stream's data lies together, and drops what nobody needs any more.
//!
//! ```text
//!  inputs, adjacent in the list                         output, in their place in the list
//!  [ a1 b1 c1 a2 c2 b2 ][ a3 c3 b3 a4 ]   ------------> [ a1a2a3a4 c1c2c3 ]      (b was deleted)
//! ```
//!
//! Contract:
//! - Nothing that a client can see changes: offsets, ordinals, message boundaries, producers' ranges, times stay exact.
//! - The inputs are read, never written. The output is complete and durable before the list names it in their place, in one
//!   step; a crash at any moment leaves one or the other. What is in neither list is garbage, and removed at a start.
//! - Every decision to drop something rests on durable state, and the list is changed only when everything that was staged by
//!   then is durable as well.
//! - Bytes are verified when they are read: damage is reported, not copied.
//! - The order of entries is kept within a stream, not between streams. What a stream lost to retention is replaced by
//!   `skipped` entries, so that what follows still replays without a gap.
//!
//! An input is walked through its footer, in windows of so much payload as memory may hold; each window is grouped by stream
//! and written. Parts: `pages` (footers, page by page), `note` (an entry, until its turn comes), `gather` (a window and its
//! groups), `emit` (a group as entries), `output` (the new segment).

mod emit;
mod gather;
mod note;
mod output;
mod pages;
pub mod turn;

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use crate::limits::{SETTLE_WINDOW_BYTES, SETTLE_WINDOW_ENTRIES};
use crate::storage::codec::DecodeScratch;
use crate::storage::event::{Event, HashRange, Part, Place, ProducerRun};
use crate::storage::footer::FooterProblem;
use crate::storage::log::{Inner, Sync};
use crate::storage::reader::ReadError;
use crate::storage::roll::change_list;
use crate::storage::segment_list::Listed;
use crate::storage::segment_table::{Segment, SegmentTable};

use emit::emit;
use gather::Run;
use output::Output;
use pages::Pages;
use turn::Turn;

/// Pieces that are read at a time: verifying them takes a few hundred microseconds.
const PIECES_PER_READ: usize = 1024;

/// What the owner of the streams knows of them, all of it durable.
pub trait Streams {
    /// Offset of the first retained byte of a stream, if it exists here and its placement is in the range.
    fn first_of(&self, lineage: u64, hashes: HashRange) -> Option<u64>;
    /// Whether a bucket exists here that was created with this generation.
    fn has_bucket(&self, bucket: &[u8], generation: u64) -> bool;
    /// Whether a bucket belongs to this shard and its placement is in the range.
    fn owns_bucket(&self, bucket: &[u8], hashes: HashRange) -> bool;
    /// Whether these are a stream's attributes.
    fn has_attributes(&self, lineage: u64, attributes: &[u8]) -> bool;
    /// Whether this is a stream's snapshot.
    fn has_snapshot(&self, lineage: u64, offset: u64, digest: &[u8; 32]) -> bool;
    /// The append of a producer with this sequence number, if this is the producer's present epoch.
    fn producer_run(&self, lineage: u64, id: &[u8], epoch: u64, seq: u64) -> Option<ProducerRun>;
    /// Whether this is the last use of a stream that the log knows of.
    fn is_last_use(&self, lineage: u64, used_ms: u64) -> bool;
    /// Whether data or the snapshot of a stream lies in the payload of the entry that begins where that of `place` does.
    fn names(&self, lineage: u64, place: Place) -> bool;
}

/// A sealed segment, as the owner of the streams chooses among them.
#[derive(Clone, Debug)]
pub struct SealedSegment {
    /// Its index: what `Place::segment` says.
    pub index: u32,
    /// Its place in the list: only neighbours can be rewritten together.
    pub place: usize,
    /// Id of the log whose sequence numbers it has, and whose streams it counts for: only segments that agree in both can be
    /// rewritten together.
    pub kin: (u64, HashRange),
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes, generously, of all that is not payload: creations, lengths, producers.
    pub meta_bytes: u64,
    /// Bytes of payload that were kept, if it was written by settling.
    pub settled_bytes: Option<u64>,
}

/// Bytes of a stream that lie elsewhere now.
#[derive(Debug)]
pub struct Move {
    /// The stream.
    pub lineage: u64,
    /// Offset of the first one.
    pub from: u64,
    /// Where they lie, in order.
    pub parts: Vec<Part>,
}

/// A snapshot that lies elsewhere now.
#[derive(Debug)]
pub struct SnapshotMove {
    /// Its stream.
    pub lineage: u64,
    /// Its offset.
    pub offset: u64,
    /// Its digest.
    pub digest: [u8; 32],
    /// Where its body lies, in order.
    pub parts: Vec<Part>,
}

/// What a rewrite did.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// Bytes that lie elsewhere.
    pub moves: Vec<Move>,
    /// Snapshots that lie elsewhere.
    pub snapshots: Vec<SnapshotMove>,
}

/// Why a rewrite was given up. Nothing has changed then, unless the log is latched.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// The log ends.
    #[error("the log ends")]
    Ending,
    /// A chunk of the last input is named further on: the segment after it must be rewritten together with it.
    #[error("a large append goes on in the next segment")]
    NamedLater,
    /// The output would be larger than a segment can be.
    #[error("the output would be larger than a segment can be")]
    TooLarge,
    /// Stored bytes cannot be read, or are damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A footer is not what was written.
    #[error("{path}: {problem}")]
    Footer {
        /// The segment's file.
        path: String,
        /// What is wrong with it.
        problem: FooterProblem,
    },
    /// The output could not be written.
    #[error("{path}: {what}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Sealed segments in the order of the list.
pub(super) fn sealed(inner: &Inner) -> Vec<SealedSegment> {
    let (table, list) = (inner.table.borrow(), inner.roller.list());
    let opened = by_listing(&table);
    let mut sealed = Vec::with_capacity(list.segments.len());
    for (place, listed) in list.segments.iter().enumerate() {
        let Some((index, segment)) = opened.get(listed).copied() else { continue };
        let Some(trailer) = segment.trailer.get() else { continue };
        // One that was begun and got no commit has nothing to rewrite, and no sequence number to stand for.
        if segment.header.settled.is_some() || trailer.last_lsn >= segment.header.first_lsn {
            sealed.push(SealedSegment {
                index,
                place,
                kin: (segment.header.origin_log_id(), segment.listed.hashes),
                file_bytes: segment.header.segment_bytes,
                // In the entries, and once more in the footer.
                meta_bytes: 2 * trailer.footer_bytes,
                settled_bytes: segment.header.settled.map(|settled| settled.payload_bytes),
            });
        }
    }
    sealed
}

/// See `Log::settle`.
pub(super) async fn settle(
    inner: &Inner,
    indexes: &[u32],
    streams: &dyn Streams,
) -> Result<Rewritten, SettleError> {
    let inputs: Vec<(u32, Rc<Segment>)> = {
        let table = inner.table.borrow();
        indexes.iter().map(|index| (*index, Rc::clone(table.get(*index)))).collect()
    };
    let (first, last) = (&inputs[0].1, &inputs[inputs.len() - 1].1);
    let floor = highest_before(inner, &first.listed);
    let mut output = Output::create(inner, first, last).await?;
    let mut rewritten = Rewritten::default();
    match fill(inner, &inputs, floor, streams, &mut output, &mut rewritten).await {
        Ok(()) => {}
        Err(error) => {
            output.give_up().await;
            return Err(error);
        }
    }
    let staged = inner.appender.borrow().last_lsn();
    let output = output.complete().await?;
    replace(inner, staged, &inputs, output).await?;
    Ok(rewritten)
}

/// The open segments as the list names them: a long list is not searched for each.
fn by_listing(table: &SegmentTable) -> HashMap<&Listed, (u32, &Rc<Segment>)> {
    table.iter().map(|(index, segment)| (&segment.listed, (index, segment))).collect()
}

/// The highest id that was created in the segments listed before `first`.
fn highest_before(inner: &Inner, first: &Listed) -> u64 {
    let (table, list) = (inner.table.borrow(), inner.roller.list());
    let opened = by_listing(&table);
    let before = list.segments.iter().take_while(|listed| *listed != first);
    let highest = |listed: &Listed| {
        let trailer = opened.get(listed).and_then(|(_, segment)| segment.trailer.get());
        trailer.map_or(u64::MAX, |trailer| trailer.highest_lineage)
    };
    before.map(highest).max().unwrap_or(0)
}

/// Reads the inputs and writes the output, window by window.
async fn fill(
    inner: &Inner,
    inputs: &[(u32, Rc<Segment>)],
    floor: u64,
    streams: &dyn Streams,
    output: &mut Output<'_>,
    rewritten: &mut Rewritten,
) -> Result<(), SettleError> {
    let same_file = |index: u32| inner.table.borrow().same_file(index);
    let mut run = Run::new(floor, streams, &same_file);
    let mut turn = Turn::new(inner);
    let mut scratch = DecodeScratch::default();
    for (index, segment) in inputs {
        let mut pages = Pages::new(inner, *index, segment);
        while pages.next(&mut scratch, &mut |entry, context| run.note(*index, entry, context)).await? {
            while run.gather_some() {
                turn.give_way().await;
                if run.window_bytes() >= SETTLE_WINDOW_BYTES || run.window_entries() >= SETTLE_WINDOW_ENTRIES
                {
                    write_window(inner, &mut turn, &mut run, output, rewritten).await?;
                }
            }
        }
    }
    write_window(inner, &mut turn, &mut run, output, rewritten).await?;
    if run.has_chunk_named_later() { Err(SettleError::NamedLater) } else { Ok(()) }
}

async fn write_window(
    inner: &Inner,
    turn: &mut Turn<'_>,
    run: &mut Run<'_>,
    output: &mut Output<'_>,
    rewritten: &mut Rewritten,
) -> Result<(), SettleError> {
    let window = run.take_window();
    let mut bytes = Vec::with_capacity(window.payload_bytes as usize);
    for pieces in window.pieces.chunks(PIECES_PER_READ) {
        let held = inner.hold(pieces.to_vec());
        crate::storage::reader::read(inner, &held, &mut bytes).await?;
        turn.give_way().await;
    }
    for event in &window.buckets {
        output.push_bucket(event).await?;
    }
    // Before anything is created: a name may be taken again, by a lineage that need not be higher.
    for (lineage, group) in &window.groups {
        if let Some(time_ms) = group.deleted {
            output.push(&Event::StreamDeleted { lineage: *lineage }, time_ms).await?;
        }
    }
    for (lineage, group) in &window.groups {
        if inner.ending() {
            return Err(SettleError::Ending);
        }
        emit(inner, output, *lineage, group, &window.lengths, &bytes, rewritten).await?;
        turn.give_way().await;
    }
    Ok(())
}

/// With `--sync none`, makes durable what the list will rely on: without a delete, for example, what it has let go would be
/// missed.
async fn sync_written(inner: &Inner) -> io::Result<()> {
    if inner.options.sync == Sync::Always {
        return Ok(());
    }
    let written: Vec<Rc<Segment>> = {
        let table = inner.table.borrow();
        let unsealed = table.iter().filter(|(_, segment)| segment.trailer.get().is_none());
        unsealed.map(|(_, segment)| Rc::clone(segment)).collect()
    };
    for segment in written {
        segment.file.sync().await?;
    }
    Ok(())
}

/// Puts the output in the place of the inputs.
async fn replace(
    inner: &Inner,
    staged: u64,
    inputs: &[(u32, Rc<Segment>)],
    (index, segment): (u32, Segment),
) -> Result<(), SettleError> {
    // What was decided on state that was staged only must not be taken back by a crash.
    if inner.wait_durable(staged).await.is_err() {
        inner.table.borrow_mut().remove(index);
        return Err(SettleError::Ending);
    }
    if let Err(source) = sync_written(inner).await {
        inner.latch(format!("making what was written durable: {source}"));
        return Err(SettleError::Ending);
    }
    let listed = segment.listed.clone();
    inner.table.borrow_mut().replace(index, segment);
    let changed = change_list(inner, |list| {
        let is_input = |other: &Listed| inputs.iter().any(|(_, segment)| segment.listed == *other);
        let at = list.segments.iter().position(is_input).expect("the inputs are listed");
        list.segments.retain(|other| !is_input(other));
        list.segments.insert(at, listed.clone());
    });
    if let Err(source) = changed.await {
        // Which list is in force is not known.
        inner.latch(format!("changing the segment list: {source}"));
        return Err(SettleError::Ending);
    }
    Ok(())
}

/// Forgets segments that no stream needs any more. A file that is listed once more, for other streams, stays: some of these may
/// know it by the index of this listing.
pub(super) fn discard(inner: &Inner, indexes: &[u32]) {
    let (mut table, list) = (inner.table.borrow_mut(), inner.roller.list());
    for index in indexes {
        let name = table.get(*index).listed.name.clone();
        if !list.segments.iter().any(|listed| listed.name == name) {
            let all: Vec<u32> = table
                .iter()
                .filter(|(_, segment)| segment.listed.name == name)
                .map(|(index, _)| index)
                .collect();
            inner.discarded.borrow_mut().extend(all.into_iter().map(|index| table.remove(index)));
        }
    }
}

/// Removes the files of discarded segments that nobody reads any more; whether some are left.
pub(super) async fn sweep(inner: &Inner) -> bool {
    let all = std::mem::take(&mut *inner.discarded.borrow_mut());
    for segment in all {
        match Rc::try_unwrap(segment) {
            Ok(Segment { listed, file, .. }) => {
                file.close().await;
                // What cannot be removed now is garbage, which the next start removes.
                let _ = inner.store.remove(&listed.name).await;
            }
            Err(read) => inner.discarded.borrow_mut().push(read),
        }
    }
    !inner.discarded.borrow().is_empty()
}
