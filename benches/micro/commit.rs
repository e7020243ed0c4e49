//! Commits, from appends to bytes for the disk with their checksums; and back, from bytes or from a footer to the table.

use std::hint::black_box;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use thalweg::limits::SEGMENT_BYTES_MAX;
use thalweg::protocol::batch;
use thalweg::protocol::producer::Producer;
use thalweg::shard::lineage::{Ledger, Lineages};
use thalweg::shard::replay::Replay;
use thalweg::storage::codec::{DecodeScratch, Entry};
use thalweg::storage::commit::{CommitBuilder, PayloadWriter};
use thalweg::storage::event::{Appended, Event, EventContext, Lengths, Payload, Place};
use thalweg::storage::footer::{FooterBuilder, read_footer};
use thalweg::storage::format::SegmentHeader;
use thalweg::storage::log::Recovered;
use thalweg::storage::scan::parse_commit;

use crate::batch::body;
use crate::route::{created, path_of};
use crate::sized;

/// Seeds the checksums.
const NONCE: u64 = 0x0123_4567_89ab_cdef;
/// When everything happens.
const TIME_MS: u64 = 1_800_000_000_000;
/// Where a segment ends.
const POSITION_MAX: u32 = 1 << 31;
/// Streams that append in turn.
const STREAMS: u64 = 64;

/// A log without a disk: a segment to write commits for, again and again.
struct Log {
    footer: FooterBuilder,
    buffer: Vec<u8>,
    /// Ends of the streams.
    ends: Vec<u64>,
}

impl Log {
    fn new() -> Log {
        let ends = vec![1_000_000_000; STREAMS as usize + 1];
        Log { footer: footer(), buffer: vec![0; 1 << 20], ends }
    }

    /// Makes a commit of what `fill` appends; its bytes.
    fn commit(&mut self, mut fill: impl FnMut(&mut Self, &mut CommitBuilder)) -> usize {
        if self.footer.commit_position() > POSITION_MAX {
            self.footer = footer();
        }
        let lsn = self.footer.last_lsn() + 1;
        let mut builder = CommitBuilder::new(NONCE, lsn, TIME_MS + lsn);
        fill(self, &mut builder);
        builder.finish(&mut self.buffer)
    }

    /// Adds an append to a commit.
    fn append(
        &mut self,
        builder: &mut CommitBuilder,
        lineage: u64,
        lengths: Lengths<'_>,
        producer: Option<Producer<'_>>,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
    ) {
        let (start, bytes) = (self.ends[lineage as usize], lengths.total_bytes());
        self.ends[lineage as usize] += bytes;
        let payload = Payload::Here(Place::default());
        let event = Event::Appended(Appended {
            lineage,
            start,
            lengths,
            producer,
            stream_seq: None,
            closed: false,
            payload,
        });
        let Log { buffer, footer, .. } = self;
        builder.push(buffer, footer, &event, |_| unreachable!("no parts"), bytes as usize, fill);
    }

    /// Adds the creations of all streams to a commit.
    fn create_streams(&mut self, builder: &mut CommitBuilder) {
        for lineage in 1..=STREAMS {
            let key = path_of(lineage).into_bytes();
            let event = Event::StreamCreated(created(lineage, &key[1..]));
            let Log { buffer, footer, .. } = self;
            builder.push(buffer, footer, &event, |_| unreachable!("no parts"), 0, |_| {});
        }
    }

    /// The payloads of the commit that was made last, one behind the other, every checksum verified.
    fn payloads(&self) -> Vec<u8> {
        let commit = parse_commit(&self.buffer, NONCE, Some(self.footer.last_lsn())).expect("a whole commit");
        commit.raw_entries().flat_map(|entry| entry.payload.to_vec()).collect()
    }
}

fn footer() -> FooterBuilder {
    FooterBuilder::new(&SegmentHeader {
        segment_number: 1,
        log_id: 1,
        epoch: 1,
        first_lsn: 1,
        nonce: NONCE,
        segment_bytes: SEGMENT_BYTES_MAX,
        created_ms: TIME_MS,
        settled: None,
    })
}

/// 64 appends of 256 bytes to as many streams.
#[divan::bench(args = ["plain", "producer"])]
fn encode_64_appends(bencher: Bencher<'_, '_>, kind: &str) {
    let payloads: Vec<[u8; 256]> = (0..STREAMS).map(|n| [n as u8; 256]).collect();
    let mut log = Log::new();
    let commit = |log: &mut Log| {
        log.commit(|log, builder| {
            let seq = builder.lsn();
            let producer = Producer { id: b"worker-0198f2f0", epoch: 3, seq };
            for (lineage, payload) in (1..).zip(&payloads) {
                let producer = (kind == "producer").then_some(producer);
                let lengths = Lengths::Uniform { len: 256, count: 1 };
                log.append(builder, lineage, lengths, producer, |writer| writer.put(black_box(payload)));
            }
        })
    };
    commit(&mut log);
    assert_eq!(log.payloads(), payloads.concat());
    bencher.counter(BytesCount::new(payloads.concat().len())).bench_local(|| commit(&mut log));
}

/// A batch of 512 frames of 256 bytes as one entry, its payload put frame by frame.
#[divan::bench(args = ["equal", "varied"])]
fn encode_batch(bencher: Bencher<'_, '_>, kind: &str) {
    let (body, mut log) = (body(), Log::new());
    let frames: Vec<&[u8]> = batch::frames(&body).expect("good frames").collect();
    let mut each: Vec<u32> = frames.iter().map(|frame| frame.len() as u32).collect();
    // Not where they are cut, which is the lengths' own affair.
    (each[7], each[500]) = (each[7] - 9, each[500] + 9);
    let lengths =
        if kind == "equal" { Lengths::Uniform { len: 256, count: 512 } } else { Lengths::Each(&each) };
    let commit = |log: &mut Log| {
        log.commit(|log, builder| {
            let fill = |writer: &mut PayloadWriter<'_>| frames.iter().for_each(|frame| writer.put(frame));
            log.append(builder, 1, lengths, None, fill);
        })
    };
    commit(&mut log);
    assert_eq!(log.payloads(), frames.concat());
    bencher.counter(BytesCount::new(frames.concat().len())).bench_local(|| commit(&mut log));
}

/// One payload of 128 KiB, put whole, as a JSON array is.
#[divan::bench]
fn encode_array(bencher: Bencher<'_, '_>) {
    let (payload, mut log) = (vec![7; 128 * 1024], Log::new());
    let lengths = Lengths::Uniform { len: 256, count: 512 };
    let commit = |log: &mut Log| {
        log.commit(|log, builder| {
            log.append(builder, 1, lengths, None, |writer| writer.put(black_box(&payload)));
        })
    };
    commit(&mut log);
    assert_eq!(log.payloads(), payload);
    bencher.counter(BytesCount::new(payload.len())).bench_local(|| commit(&mut log));
}

/// Verifying a commit of a batch, as recovery of the last segment does.
#[divan::bench]
fn parse_batch(bencher: Bencher<'_, '_>) {
    let (payload, mut log) = (body(), Log::new());
    let len = payload.len() as u32;
    let bytes = log.commit(|log, builder| {
        log.append(builder, 1, Lengths::Uniform { len, count: 1 }, None, |writer| writer.put(&payload));
    });
    assert_eq!(log.payloads(), payload);
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| parse_commit(black_box(&log.buffer), NONCE, Some(1)).is_ok());
}

/// Replaying the footer of a sealed segment, of 64 streams: what a restart does for each append.
#[divan::bench]
fn replay_appends(bencher: Bencher<'_, '_>) {
    let appends = sized(640_000).next_multiple_of(STREAMS);
    let mut log = Log::new();
    log.ends.fill(0);
    let payload = [7; 256];
    log.commit(|log, builder| log.create_streams(builder));
    for _ in 0..appends / STREAMS {
        log.commit(|log, builder| {
            for lineage in 1..=STREAMS {
                let lengths = Lengths::Uniform { len: 256, count: 1 };
                log.append(builder, lineage, lengths, None, |writer| writer.put(&payload));
            }
        });
    }
    let (pages, trailer) = log.footer.finish();
    let replay = || {
        let mut ledger = Ledger::default();
        ledger.grant(7).expect("a fresh ledger has ids");
        let mut replay = Replay::new(0, 1, 1, Arc::new(Lineages::new(&[7], &ledger, |_| {})));
        let mut visit = |entry: &Entry<'_>, context: EventContext| match entry {
            Entry::Event(event) => replay.visit(event, context),
            Entry::Chunk { .. } => unreachable!("no chunks were written"),
        };
        let mut scratch = DecodeScratch::default();
        read_footer(&pages, &trailer, 0, &|_| None, &mut scratch, &mut visit).expect("a whole footer");
        replay.finish(&Recovered::default()).expect("a whole log").0
    };
    let replayed = replay();
    assert_eq!(replayed.records(), appends);
    let ends: Vec<u64> = replayed.iter().map(|(_, stream)| stream.durable.bytes).collect();
    assert_eq!(ends, vec![appends / STREAMS * 256; STREAMS as usize]);
    bencher.counter(ItemsCount::new(appends)).bench_local(replay);
}
