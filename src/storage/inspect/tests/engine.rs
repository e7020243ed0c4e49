//! What the log engine writes, over several segments, is whole in the eyes of the walk.

use std::io;
use std::rc::Rc;

use glommio::{LocalExecutorBuilder, Placement};

use crate::limits::SEGMENT_BYTES_MIN;
use crate::storage::codec::meta_bytes_max;
use crate::storage::device::Store;
use crate::storage::event::{Appended, Event, Lengths, Payload, Place, Producer, StreamCreated};
use crate::storage::file_name;
use crate::storage::inspect::{Finding, Row, Tail, Totals, Walk};
use crate::storage::log::{Class, Log, LogOptions, Publisher, Room, Sync};
use crate::storage::segment_list::SegmentList;
use crate::storage::simulated::SimulatedStore;

struct Nobody;

impl Publisher for Nobody {
    fn published(&self, _: u64) {}
    fn latched(&self, why: &str) {
        panic!("latched: {why}");
    }
}

async fn stage(log: &Log, event: &Event<'_>, payload: &[u8]) {
    while log.room(meta_bytes_max(event), payload.len(), Class::Append) != Room::Now {
        log.wait_room().await;
    }
    let staged = log.stage(event, payload.len(), |writer| writer.put(payload));
    log.wait_durable(staged.ticket).await.expect("durable");
}

fn append<'a>(start: u64, lengths: Lengths<'a>, seq: u64, payload: Payload<'a>) -> Event<'a> {
    let producer = Some(Producer { id: b"p", epoch: 0, seq });
    Event::Appended(Appended {
        lineage: 1,
        start,
        lengths,
        producer,
        stream_seq: None,
        closed: false,
        payload,
    })
}

/// Several segments of appends, small, listed and in parts.
async fn write(store: &SimulatedStore) -> u64 {
    let options = LogOptions {
        log_id: 7,
        sync: Sync::Always,
        commit_delay_us: 0,
        segment_bytes: SEGMENT_BYTES_MIN,
        segments_ahead: 1,
        cache_bytes: 0,
    };
    let shared: Rc<dyn Store> = Rc::new(store.clone());
    let (log, _) = Log::open(shared, options, &mut |_, _| {}).await.expect("opens");
    log.start(Rc::new(Nobody));
    let created = StreamCreated {
        lineage: 1,
        placement: 1,
        key: b"bucket/stream",
        content_type: b"text/plain",
        ttl_seconds: None,
        expires_at_ms: None,
        bucket_generation: 1,
        attributes: b"",
        closed: false,
    };
    stage(&log, &Event::StreamCreated(created), b"").await;
    let (mut start, mut seq) = (0, 0);
    for round in 0..60u32 {
        let lengths = [1 + round, 20_000, 5, 30_000];
        let total: u32 = lengths.iter().sum();
        let here = Payload::Here(Place::default());
        stage(&log, &append(start, Lengths::Each(&lengths), seq, here), &vec![b'a'; total as usize]).await;
        start += u64::from(total);
        seq += 1;
        if round % 10 == 0 {
            let piece = vec![b'b'; log.payload_max()];
            let mut parts = Vec::new();
            for _ in 0..3 {
                while log.room(16, piece.len(), Class::Append) != Room::Now {
                    log.wait_room().await;
                }
                parts.push(log.stage_chunk(1, &piece).1);
            }
            let len = 3 * piece.len() as u32;
            stage(&log, &append(start, Lengths::Uniform { len, count: 1 }, seq, Payload::Parts(&parts)), b"")
                .await;
            start += u64::from(len);
            seq += 1;
        }
    }
    log.stop().await;
    seq
}

#[test]
fn what_the_log_writes_is_whole() {
    let store = SimulatedStore::new();
    let executor = LocalExecutorBuilder::new(Placement::Unbound).ring_depth(64).io_memory(64 << 10).make();
    let appends = executor.expect("an executor").run(write(&store));
    let dir = tempfile::tempdir().expect("a directory");
    let list = SegmentList::parse(&store.bytes(file_name::LIST), "list").expect("a list");
    for name in list.segments.iter().map(|listed| &*listed.name).chain([file_name::LIST]) {
        std::fs::write(dir.path().join(name), store.bytes(name)).expect("written");
    }
    let (mut findings, mut sealed, mut found): (Vec<Finding>, usize, u64) = (Vec::new(), 0, 0);
    let mut sink = |row: &Row<'_>| -> io::Result<()> {
        match row {
            Row::Finding(finding) => findings.push((*finding).clone()),
            Row::SegmentEnd(end) => sealed += usize::from(matches!(end.tail, Tail::Sealed(_))),
            Row::Stream(stream) => found = stream.appends,
            _ => {}
        }
        Ok(())
    };
    let mut walk = Walk::new(&mut sink);
    walk.log(dir.path(), None).expect("no failure");
    let Totals { segments, records, .. } = walk.totals();
    assert_eq!((&findings[..], found), (&[][..], appends));
    assert!(segments >= 3 && sealed >= 2, "{sealed} of {segments} segments are sealed");
    assert_eq!(records, 60 * 4 + 6);
}
