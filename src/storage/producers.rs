//! The idempotent producers of one stream (base protocol 5.2.1; decision 22): for each id its epoch, its last
//! sequence number and, for **every** sequence number of the present epoch, the records that its append
//! added.
//!
//! ```text
//!  entry   id, epoch, and the open run: an append that continues it exactly costs nothing
//!  run     first seq, first ordinal, records per append, number of appends
//!  history runs that ended, packed, 1 to 3 bytes each: gap to the run before, what differs from it
//! ```
//!
//! A producer that is alone on its stream and appends one record at a time is one run for ever. Interleaved
//! with others, each of its appends is a run of its own.
//!
//! Only what was accepted is recorded, in order: the decision is `protocol::producer`'s. Sequence numbers of
//! an epoch are dense, which [`Producers::record`] asserts.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::producer::ProducerState;
use crate::storage::event::{ProducerRun, ProducerRuns};
use crate::storage::packed::{Packed, Point};
use crate::storage::varint;

/// Runs of a block: the most that a search steps over.
const BLOCK_RUNS: u8 = 32;
/// The run's appends differ in records from those of the run before: the step follows.
const RECORDS: u64 = 1;
/// The run has more than one append: the number of further ones follows.
const APPENDS: u64 = 2;
/// Bits of the two flags below the gap.
const FLAG_BITS: u32 = 2;

const _: () = {
    assert!(size_of::<Producers>() <= 16, "every stream holds one inline");
    assert!(size_of::<Entry>() <= 80, "most streams with producers have one");
};

/// The producers of a stream. A stream without producers pays one pointer.
#[derive(Debug, Default)]
pub struct Producers(Option<Box<Known>>);

#[derive(Debug, Default)]
struct Known {
    // Boxed entries: the table's free slots are then pointers, and growing it moves nothing else.
    entries: HashTable<Box<Entry>>,
}

#[derive(Debug)]
struct Entry {
    id: Box<[u8]>,
    epoch: u64,
    /// The run that the next append may continue.
    open: Run,
    /// The runs before it.
    history: Option<Box<History>>,
}

/// Appends of one producer with the same number of records, each starting where the one before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first_seq: u64,
    first_ordinal: u64,
    records: u64,
    appends: u64,
}

/// Runs that ended.
#[derive(Debug)]
struct History {
    packed: Packed,
    /// The last one of them.
    last: Run,
    /// Runs in the open block.
    open: u8,
}

impl Producers {
    /// No producers.
    pub const fn new() -> Producers {
        Producers(None)
    }

    /// Number of producers, for the limit
    /// [`PRODUCERS_PER_STREAM_MAX`](crate::limits::PRODUCERS_PER_STREAM_MAX).
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |known| known.entries.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the producer stands; none if it never appended.
    pub fn state(&self, id: &[u8]) -> Option<ProducerState> {
        let entry = self.entry(id)?;
        Some(ProducerState { epoch: entry.epoch, last_seq: entry.open.last_seq() })
    }

    /// Records an accepted append of `records` records (0 for a close without data) that starts at
    /// `start_ordinal`. A new epoch replaces what was known of the one before.
    ///
    /// # Panics
    /// If the epoch is older than the producer's, if the sequence number is not the next one of its epoch, or
    /// if the append starts before the end of the producer's last one.
    pub fn record(&mut self, id: &[u8], epoch: u64, seq: u64, start_ordinal: u64, records: u64) {
        let run = Run { first_seq: seq, first_ordinal: start_ordinal, records, appends: 1 };
        self.record_run(id, epoch, run);
    }

    /// Forgets a producer.
    pub fn forget(&mut self, id: &[u8]) {
        if let Some(known) = &mut self.0
            && let Ok(entry) = known.entries.find_entry(xxh3_64(id), |entry| *entry.id == *id)
        {
            entry.remove();
        }
    }

    /// Records appends as settling wrote them down: `record` for each of them.
    ///
    /// # Panics
    /// Like [`Producers::record`].
    pub fn record_runs(&mut self, runs: &ProducerRuns<'_>) {
        let mut first_seq = runs.first_seq;
        for ProducerRun { first_ordinal, records, appends } in runs.runs.iter().copied() {
            let run = Run { first_seq, first_ordinal, records, appends };
            self.record_run(runs.id, runs.epoch, run);
            first_seq += appends;
        }
    }

    fn record_run(&mut self, id: &[u8], epoch: u64, run: Run) {
        let known = self.0.get_or_insert_default();
        let hash = xxh3_64(id);
        let Some(entry) = known.entries.find_mut(hash, |entry| *entry.id == *id) else {
            let entry = Box::new(Entry { id: id.into(), epoch, open: run, history: None });
            known.entries.insert_unique(hash, entry, |entry| xxh3_64(&entry.id));
            return;
        };
        if epoch == entry.epoch {
            entry.record(run);
            return;
        }
        assert!(epoch > entry.epoch, "epochs grow: {epoch} after {}", entry.epoch);
        (entry.epoch, entry.open, entry.history) = (epoch, run, None);
    }

    /// The records of an append: its first ordinal and their number. None if the producer is unknown, the
    /// epoch is not its present one, or the sequence number was not used in it.
    pub fn range(&self, id: &[u8], epoch: u64, seq: u64) -> Option<(u64, u64)> {
        let entry = self.entry(id).filter(|entry| entry.epoch == epoch)?;
        let run = if seq >= entry.open.first_seq {
            entry.open
        } else {
            entry.history.as_ref().filter(|history| seq >= history.first_seq())?.find(seq)
        };
        (seq <= run.last_seq())
            .then(|| (run.first_ordinal + (seq - run.first_seq) * run.records, run.records))
    }

    /// Bytes it occupies, itself and unused capacity included.
    pub fn memory_bytes(&self) -> usize {
        let heap = self.0.as_ref().map_or(0, |known| {
            let entries: usize = known.entries.iter().map(|entry| entry.memory_bytes()).sum();
            size_of::<Known>() + known.entries.allocation_size() + entries
        });
        size_of::<Producers>() + heap
    }

    fn entry(&self, id: &[u8]) -> Option<&Entry> {
        let known = self.0.as_ref()?;
        known.entries.find(xxh3_64(id), |entry| *entry.id == *id).map(|entry| &**entry)
    }
}

impl Entry {
    /// Adds appends of the present epoch.
    fn record(&mut self, next: Run) {
        let open = &mut self.open;
        assert!(
            next.first_seq == open.last_seq() + 1,
            "sequence numbers are dense: {} after {}",
            next.first_seq,
            open.last_seq()
        );
        assert!(
            next.first_ordinal >= open.end_ordinal(),
            "appends follow each other: ordinal {} after {}",
            next.first_ordinal,
            open.end_ordinal()
        );
        if next.records == open.records && next.first_ordinal == open.end_ordinal() {
            open.appends += next.appends;
            return;
        }
        match &mut self.history {
            Some(history) => history.write(*open),
            None => self.history = Some(Box::new(History::new(*open))),
        }
        self.open = next;
    }

    fn memory_bytes(&self) -> usize {
        let history = self.history.as_ref();
        let history = history.map_or(0, |history| size_of::<History>() + history.packed.heap_bytes());
        size_of::<Entry>() + self.id.len() + history
    }
}

impl Run {
    fn last_seq(self) -> u64 {
        self.first_seq + self.appends - 1
    }

    fn end_ordinal(self) -> u64 {
        self.first_ordinal + self.records * self.appends
    }

    /// An empty run before `start`: what the first run of a block is written against.
    fn before(start: Point) -> Run {
        Run { first_seq: start.x, first_ordinal: start.y, records: 0, appends: 0 }
    }

    fn write(self, before: Run, out: &mut Vec<u8>) {
        let gap = self.first_ordinal - before.end_ordinal();
        let mut flags = if self.records == before.records { 0 } else { RECORDS };
        flags |= if self.appends == 1 { 0 } else { APPENDS };
        varint::put(out, gap << FLAG_BITS | flags);
        if flags & RECORDS != 0 {
            varint::put(out, varint::step(before.records, self.records));
        }
        if flags & APPENDS != 0 {
            varint::put(out, self.appends - 2);
        }
    }

    fn read(before: Run, bytes: &mut &[u8]) -> Run {
        let head = varint::take(bytes);
        let mut run = Run {
            first_seq: before.first_seq + before.appends,
            first_ordinal: before.end_ordinal() + (head >> FLAG_BITS),
            records: before.records,
            appends: 1,
        };
        if head & RECORDS != 0 {
            run.records = varint::apply_step(before.records, varint::take(bytes));
        }
        if head & APPENDS != 0 {
            run.appends = 2 + varint::take(bytes);
        }
        run
    }
}

impl History {
    fn new(first: Run) -> History {
        let start = Point { x: first.first_seq, y: first.first_ordinal };
        let mut history = History { packed: Packed::new(start, false), last: Run::before(start), open: 0 };
        history.write(first);
        history
    }

    fn write(&mut self, run: Run) {
        if self.open == BLOCK_RUNS {
            let start = Point { x: run.first_seq, y: run.first_ordinal };
            self.packed.open_block(start, false);
            // A block is read without the one before.
            self.last = Run::before(start);
            self.open = 0;
        }
        run.write(self.last, self.packed.open_bytes());
        self.last = run;
        self.open += 1;
    }

    fn first_seq(&self) -> u64 {
        self.packed.block(self.packed.find_x(0)).start.x
    }

    /// The run that `seq` belongs to; `seq` lies between the first run and the open one.
    fn find(&self, seq: u64) -> Run {
        let block = self.packed.block(self.packed.find_x(seq));
        let mut bytes = block.bytes;
        let mut run = Run::read(Run::before(block.start), &mut bytes);
        while run.last_seq() < seq {
            run = Run::read(run, &mut bytes);
        }
        run
    }
}

#[cfg(test)]
mod tests;
