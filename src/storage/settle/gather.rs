//! A window of the inputs, entry by entry, grouped by stream: what is kept of each.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::Streams;
use super::note::{AppendNoted, Noted, OwnedLengths, What, note_event};
use crate::limits::SETTLE_WINDOW_BYTES;
use crate::storage::codec::Entry;
use crate::storage::event::{Event, EventContext, HashRange, Part, Place, ProducerRun, StreamCreated};
use crate::storage::extents::Piece;

/// Entries gathered before other work gets a turn.
const ENTRIES_PER_TURN: usize = 512;

/// A creation that is kept.
pub(super) struct Created {
    pub(super) lineage: u64,
    placement: u64,
    key: Box<[u8]>,
    content_type: Box<[u8]>,
    ttl_seconds: Option<u64>,
    expires_at_ms: Option<u64>,
    bucket_generation: u64,
    attributes: Box<[u8]>,
    closed: bool,
}

impl Created {
    pub(super) fn of(created: &StreamCreated<'_>) -> Created {
        Created {
            lineage: created.lineage,
            placement: created.placement,
            key: created.key.into(),
            content_type: created.content_type.into(),
            ttl_seconds: created.ttl_seconds,
            expires_at_ms: created.expires_at_ms,
            bucket_generation: created.bucket_generation,
            attributes: created.attributes.into(),
            closed: created.closed,
        }
    }

    /// The event.
    pub(super) fn event(&self) -> Event<'_> {
        Event::StreamCreated(StreamCreated {
            lineage: self.lineage,
            placement: self.placement,
            key: &self.key,
            content_type: &self.content_type,
            ttl_seconds: self.ttl_seconds,
            expires_at_ms: self.expires_at_ms,
            bucket_generation: self.bucket_generation,
            attributes: &self.attributes,
            closed: self.closed,
        })
    }
}

/// A snapshot that is kept.
pub(super) struct Snapshot {
    pub(super) lineage: u64,
    pub(super) offset: u64,
    pub(super) record: u64,
    pub(super) content_type: Box<[u8]>,
    pub(super) digest: [u8; 32],
    pub(super) parts: Box<[Part]>,
}

/// A bucket begins or ends.
pub(super) struct BucketEvent {
    pub(super) bucket: Box<[u8]>,
    pub(super) generation: u64,
    pub(super) created: bool,
    /// Time of the entry, Unix milliseconds.
    pub(super) time_ms: u64,
}

impl BucketEvent {
    /// The event.
    pub(super) fn event(&self) -> Event<'_> {
        let (bucket, generation) = (&*self.bucket, self.generation);
        match self.created {
            true => Event::BucketCreated { bucket, generation },
            false => Event::BucketDeleted { bucket, generation },
        }
    }
}

/// Data that is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skip {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) records: u64,
}

/// Records that are kept.
pub(super) struct Append {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) lengths: Kept,
    /// Its first byte among the bytes of the window.
    pub(super) at: usize,
    pub(super) stream_seq: Option<Box<[u8]>>,
    pub(super) closed: bool,
    pub(super) time_ms: u64,
}

/// Lengths of kept records: a range of the window's list, or all equal.
#[derive(Clone, Copy)]
pub(super) enum Kept {
    Uniform { len: u32, count: u32 },
    Each { from: usize, count: usize },
}

impl Kept {
    fn count(self) -> usize {
        match self {
            Kept::Uniform { count, .. } => count as usize,
            Kept::Each { count, .. } => count,
        }
    }
}

/// What a stream did, in order.
pub(super) enum Step {
    /// With the time of the last append in it, and its last `Stream-Seq`.
    Skip(Skip, u64, Option<Box<[u8]>>),
    Append(Append),
}

/// Runs of one producer.
pub(super) struct Claims {
    pub(super) epoch: u64,
    pub(super) first_seq: u64,
    pub(super) runs: Vec<ProducerRun>,
}

/// Everything of one stream in a window; single facts with the time of their entry.
#[derive(Default)]
pub(super) struct Group {
    first: Option<u64>,
    pub(super) created: Option<(Box<Created>, u64)>,
    pub(super) steps: Vec<Step>,
    pub(super) producers: BTreeMap<Box<[u8]>, Claims>,
    pub(super) attributes: Option<(Box<[u8]>, u64)>,
    pub(super) snapshot: Option<(Box<Snapshot>, u64)>,
    pub(super) retained: Option<(u64, u64, u64)>,
    pub(super) renewed: Option<(u64, u64)>,
    pub(super) deleted: Option<u64>,
}

/// What is written together.
#[derive(Default)]
pub(super) struct Window {
    pub(super) groups: BTreeMap<u64, Group>,
    pub(super) buckets: Vec<BucketEvent>,
    /// Payload that is kept, in the order of the inputs.
    pub(super) pieces: Vec<Piece>,
    pub(super) payload_bytes: u64,
    pub(super) lengths: Vec<u32>,
    entries: usize,
}

/// The state of a rewrite while its inputs are walked.
pub(super) struct Run<'a> {
    streams: &'a dyn Streams,
    /// The index that stands for all indexes of the same file.
    same_file: &'a dyn Fn(u32) -> u32,
    /// The highest id that was created before the inputs: what deletes a later one has nothing there to delete.
    floor: u64,
    noted: VecDeque<Noted>,
    window: Window,
    /// Streams that began in the run and exist no more.
    ended: HashSet<u64>,
    /// Buckets that began in the run and exist no more.
    ended_buckets: HashSet<u64>,
    /// Chunks that no entry of the run has named so far, by file and position of the entry.
    chunks: HashMap<(u32, u32), u64>,
}

impl<'a> Run<'a> {
    /// The start of a run.
    pub(super) fn new(floor: u64, streams: &'a dyn Streams, same_file: &'a dyn Fn(u32) -> u32) -> Run<'a> {
        Run {
            streams,
            same_file,
            floor,
            noted: VecDeque::new(),
            window: Window::default(),
            ended: HashSet::new(),
            ended_buckets: HashSet::new(),
            chunks: HashMap::new(),
        }
    }

    /// Takes note of an entry of the input with this index; [`Run::gather_some`] looks at it later.
    pub(super) fn note(&mut self, index: u32, entry: &Entry<'_>, context: EventContext) {
        let what = match entry {
            Entry::Chunk { lineage, part } => What::Chunk { lineage: *lineage, place: part.place },
            Entry::Event(event) => note_event(event, context.time_ms),
        };
        if let What::Plain { place, .. } = &what {
            debug_assert_eq!(place.segment, index);
        }
        self.noted.push_back(Noted { time_ms: context.time_ms, hashes: context.hashes, what });
    }

    /// Gathers some of the noted entries; whether there were any.
    pub(super) fn gather_some(&mut self) -> bool {
        let some = self.noted.len().min(ENTRIES_PER_TURN);
        for _ in 0..some {
            if self.window.payload_bytes >= SETTLE_WINDOW_BYTES {
                break;
            }
            let noted = self.noted.pop_front().expect("counted above");
            self.window.entries += 1;
            self.gather(noted);
        }
        some > 0
    }

    /// Bytes of payload in the window.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window.payload_bytes
    }

    /// Entries that the window has taken in.
    pub(super) fn window_entries(&self) -> usize {
        self.window.entries
    }

    /// The window, to be written; the next one begins.
    pub(super) fn take_window(&mut self) -> Window {
        std::mem::take(&mut self.window)
    }

    /// Whether a chunk of the run is needed by an entry behind it.
    pub(super) fn has_chunk_named_later(&self) -> bool {
        self.chunks.iter().any(|((segment, position), lineage)| {
            self.streams.names(*lineage, Place { segment: *segment, position: *position, back: 0 })
        })
    }

    fn gather(&mut self, noted: Noted) {
        let Noted { time_ms, hashes, what } = noted;
        match what {
            What::Plain { lineage, start, len, place } => {
                let parts = [Part { place, len }];
                let kept = OwnedLengths::Uniform { len, count: 1 };
                if let Some(first) = self.first_of(lineage, hashes) {
                    self.keep(lineage, first, start, kept, &parts, None, false, time_ms);
                }
            }
            What::Append(append) => self.append(*append, hashes, time_ms),
            What::Created(created) => {
                let lineage = created.lineage;
                match self.first_of(lineage, hashes) {
                    Some(_) => self.group(lineage).created = Some((created, time_ms)),
                    None => drop(self.ended.insert(lineage)),
                }
            }
            What::Deleted(lineage) => {
                // Without older entries there is nothing that it could delete.
                if lineage <= self.floor && !self.ended.contains(&lineage) {
                    self.group(lineage).deleted = Some(time_ms);
                }
            }
            What::Bucket(event) => self.bucket(event, hashes),
            What::Chunk { lineage, place } => {
                if self.first_of(lineage, hashes).is_some() {
                    self.chunks.insert(self.entry_of(place), lineage);
                }
            }
            What::Renewed { lineage, used_ms } => {
                if self.first_of(lineage, hashes).is_some() && self.streams.is_last_use(lineage, used_ms) {
                    self.group(lineage).renewed = Some((used_ms, time_ms));
                }
            }
            What::Attributes { lineage, attributes } => {
                if self.first_of(lineage, hashes).is_some()
                    && self.streams.has_attributes(lineage, &attributes)
                {
                    self.group(lineage).attributes = Some((attributes, time_ms));
                }
            }
            What::Snapshot(snapshot) => self.snapshot(snapshot, hashes, time_ms),
            What::Retained { lineage, offset, record } => {
                // A later one says more.
                if self.first_of(lineage, hashes) == Some(offset) {
                    self.group(lineage).retained = Some((offset, record, time_ms));
                }
            }
            What::Skipped { lineage, skip } => {
                if self.first_of(lineage, hashes).is_some() {
                    self.skip(lineage, skip, time_ms, None);
                }
            }
            What::Runs { lineage, id, epoch, first_seq, runs } => {
                let present = self.first_of(lineage, hashes).is_some()
                    && self.streams.producer_run(lineage, &id, epoch, first_seq).is_some();
                if present {
                    self.claim(lineage, id, epoch, first_seq, &runs);
                }
            }
        }
    }

    fn snapshot(&mut self, snapshot: Box<Snapshot>, hashes: HashRange, time_ms: u64) {
        self.named(&snapshot.parts);
        let lineage = snapshot.lineage;
        if self.first_of(lineage, hashes).is_some()
            && self.streams.has_snapshot(lineage, snapshot.offset, &snapshot.digest)
        {
            self.group(lineage).snapshot = Some((snapshot, time_ms));
        }
    }

    fn bucket(&mut self, event: BucketEvent, hashes: HashRange) {
        if !self.streams.owns_bucket(&event.bucket, hashes) {
            return;
        }
        let keep = if event.created {
            let lives = self.streams.has_bucket(&event.bucket, event.generation);
            if !lives {
                self.ended_buckets.insert(event.generation);
            }
            lives
        } else {
            event.generation <= self.floor && !self.ended_buckets.contains(&event.generation)
        };
        if keep {
            self.window.buckets.push(event);
        }
    }

    fn append(&mut self, append: AppendNoted, hashes: HashRange, time_ms: u64) {
        let AppendNoted { lineage, start, lengths, producer, stream_seq, closed, parts, in_parts } = append;
        if in_parts {
            self.named(&parts);
        }
        let Some(first) = self.first_of(lineage, hashes) else { return };
        if let Some((id, epoch, seq)) = producer
            && let Some(run) = self.streams.producer_run(lineage, &id, epoch, seq)
        {
            self.claim(lineage, id, epoch, seq, &[run]);
        }
        self.keep(lineage, first, start, lengths, &parts, stream_seq, closed, time_ms);
    }

    /// Keeps what retention has left of an append.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of one append")]
    fn keep(
        &mut self,
        lineage: u64,
        first: u64,
        start: u64,
        lengths: OwnedLengths,
        parts: &[Part],
        stream_seq: Option<Box<[u8]>>,
        closed: bool,
        time_ms: u64,
    ) {
        let (gone, kept) = self.cut(&lengths, first.saturating_sub(start));
        let is_gone = gone.records > 0 && kept.count() == 0;
        let gone_seq = if is_gone { stream_seq.clone() } else { None };
        if gone.records > 0 {
            self.skip(lineage, Skip { start, ..gone }, time_ms, gone_seq);
        }
        let at = self.window.payload_bytes as usize;
        let mut bytes = 0;
        let mut skip = gone.bytes;
        for Part { place, len } in parts {
            let from = skip.min(u64::from(*len)) as u32;
            skip -= u64::from(from);
            if from < *len {
                self.window.pieces.push(Piece { place: *place, extent_len: *len, from, len: len - from });
                bytes += u64::from(len - from);
            }
        }
        self.window.payload_bytes += bytes;
        if bytes == 0 && !closed && (is_gone || stream_seq.is_none()) {
            return;
        }
        let start = start + gone.bytes;
        let append = Append { start, bytes, lengths: kept, at, stream_seq, closed, time_ms };
        self.group(lineage).steps.push(Step::Append(append));
    }

    /// Divides records into those of the first `gone_bytes` and the rest.
    fn cut(&mut self, lengths: &OwnedLengths, gone_bytes: u64) -> (Skip, Kept) {
        match lengths {
            OwnedLengths::Uniform { len, count } => {
                let gone = if *len == 0 { 0 } else { (gone_bytes / u64::from(*len)).min(u64::from(*count)) };
                let skip = Skip { start: 0, bytes: gone * u64::from(*len), records: gone };
                (skip, Kept::Uniform { len: *len, count: count - gone as u32 })
            }
            OwnedLengths::Each(list) => {
                let (mut bytes, mut records) = (0, 0);
                for len in list {
                    if bytes + u64::from(*len) > gone_bytes {
                        break;
                    }
                    (bytes, records) = (bytes + u64::from(*len), records + 1);
                }
                let from = self.window.lengths.len();
                self.window.lengths.extend_from_slice(&list[records..]);
                let kept = Kept::Each { from, count: list.len() - records };
                (Skip { start: 0, bytes, records: records as u64 }, kept)
            }
        }
    }

    fn skip(&mut self, lineage: u64, skip: Skip, time_ms: u64, stream_seq: Option<Box<[u8]>>) {
        let steps = &mut self.group(lineage).steps;
        match steps.last_mut() {
            Some(Step::Skip(last, last_ms, last_seq)) => {
                assert_eq!(last.start + last.bytes, skip.start, "what stream {lineage} lost leaves a gap");
                (last.bytes, last.records) = (last.bytes + skip.bytes, last.records + skip.records);
                *last_ms = time_ms;
                if stream_seq.is_some() {
                    *last_seq = stream_seq;
                }
            }
            _ => steps.push(Step::Skip(skip, time_ms, stream_seq)),
        }
    }

    fn claim(&mut self, lineage: u64, id: Box<[u8]>, epoch: u64, first_seq: u64, runs: &[ProducerRun]) {
        let producers = &mut self.group(lineage).producers;
        let claims = producers.entry(id).or_insert_with(|| Claims { epoch, first_seq, runs: Vec::new() });
        assert_eq!(claims.epoch, epoch, "only the present epoch of a producer of stream {lineage} is kept");
        for run in runs {
            match claims.runs.last_mut() {
                Some(last)
                    if last.records == run.records
                        && last.first_ordinal + last.records * last.appends == run.first_ordinal =>
                {
                    last.appends += run.appends;
                }
                _ => claims.runs.push(*run),
            }
        }
    }

    /// The file and the position of the entry that a payload lies in.
    fn entry_of(&self, place: Place) -> (u32, u32) {
        ((self.same_file)(place.segment), place.position - place.back)
    }

    /// An entry has named these chunks.
    fn named(&mut self, parts: &[Part]) {
        for Part { place, .. } in parts {
            self.chunks.remove(&self.entry_of(*place));
        }
    }

    /// Where a stream begins, if it exists.
    fn first_of(&mut self, lineage: u64, hashes: HashRange) -> Option<u64> {
        if let Some(first) = self.window.groups.get(&lineage).and_then(|group| group.first) {
            return Some(first);
        }
        let first = self.streams.first_of(lineage, hashes)?;
        self.group(lineage).first = Some(first);
        Some(first)
    }

    fn group(&mut self, lineage: u64) -> &mut Group {
        self.window.groups.entry(lineage).or_default()
    }
}
