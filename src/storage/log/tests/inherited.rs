//! Logs that are ended for good, and logs that begin with segments of others.

use std::rc::Rc;

use super::crash::survives;
use super::harness::{Client, Seen, check, open, options, run};
use crate::limits::BLOCK_BYTES;
use crate::storage::device::Store;
use crate::storage::event::HashRange;
use crate::storage::file_name;
use crate::storage::format::{SegmentHeader, Trailer};
use crate::storage::log::{Log, LogOptions, OpenError, Retired};
use crate::storage::segment_list::{Listed, SegmentList};
use crate::storage::simulated::{SimulatedStore, Torn, Unsynced};

/// A log whose process was killed: several segments, the last ones not sealed, and large appends among its entries.
struct Old {
    options: LogOptions,
    store: SimulatedStore,
    staged: Vec<(Seen, Vec<u8>)>,
    last_lsn: u64,
}

/// `streams` tells the logs of a test apart: where things lie in them differs.
async fn old(log_id: u64, streams: u64) -> Old {
    let store = SimulatedStore::new();
    let options = LogOptions { log_id, ..options() };
    let (log, _, _, _) = open(&store, options.clone()).await;
    let mut client = Client::new(log.clone());
    for stream in 1..=streams {
        client.create().await.expect("staged");
        client.append(stream, 100 * stream as usize).await.expect("staged");
    }
    for round in 0..11 {
        client.append(streams, 50_000 - round).await.expect("staged");
        client.append(1, 150_000).await.expect("staged");
        client.settle().await.expect("durable");
    }
    let last_lsn = log.durable();
    // What is there at this moment, without a mark.
    let killed = store.after_crash(Unsynced::Kept);
    log.stop().await;
    Old { options, store: killed, staged: client.staged, last_lsn }
}

async fn retire(old: &Old) -> Result<Retired, OpenError> {
    Log::retire(Rc::new(old.store.clone()), old.options.log_id).await
}

fn is_sealed(store: &SimulatedStore, name: &str) -> bool {
    let bytes = store.bytes(name);
    let header = SegmentHeader::parse(&bytes[..BLOCK_BYTES]).expect("begun");
    Trailer::parse(&bytes[bytes.len() - BLOCK_BYTES..], header.nonce).is_ok()
}

async fn list_of(store: &SimulatedStore) -> SegmentList {
    SegmentList::read(store).await.expect("readable").expect("there is one")
}

#[test]
fn a_retired_log_is_sealed_and_would_still_open() {
    run(async {
        let old = old(7, 2).await;
        let retired = retire(&old).await.expect("whole");
        assert!(retired.segments.len() >= 2, "{retired:?}");
        assert_eq!((retired.lineage, &retired.torn), (2, &None));
        let listed: Vec<Listed> = retired.segments.iter().map(|(listed, _)| listed.clone()).collect();
        // One more may be listed that has not begun.
        assert_eq!(list_of(&old.store).await.segments[..listed.len()], listed);
        for (listed, first_lsn) in &retired.segments {
            assert!(is_sealed(&old.store, &listed.name), "{listed:?}");
            let header = SegmentHeader::parse(&old.store.bytes(&listed.name)[..BLOCK_BYTES]);
            assert_eq!(header.expect("begun").first_lsn, *first_lsn);
        }
        let image: Vec<Vec<u8>> = listed.iter().map(|listed| old.store.bytes(&listed.name)).collect();
        assert_eq!(retire(&old).await.expect("whole"), retired, "there is nothing left to do");
        let again: Vec<Vec<u8>> = listed.iter().map(|listed| old.store.bytes(&listed.name)).collect();
        assert!(image == again, "a sealed segment does not change");
        let (log, recovered, seen, _) = open(&old.store, old.options.clone()).await;
        assert_eq!(recovered.from_footers, recovered.segments);
        assert_eq!(seen.len(), old.staged.len());
        check(&log, &seen, &old.staged, u64::MAX, "retired and opened").await;
        log.stop().await;
        survives(&old.store, &old.staged, old.last_lsn, "retired and used").await;
    });
}

#[test]
fn a_log_that_has_not_begun_leaves_nothing() {
    run(async {
        let store = SimulatedStore::new();
        let nothing = Log::retire(Rc::new(store.clone()), 7).await.expect("nothing is wrong");
        assert_eq!(nothing, Retired::default());
        let (log, _, _, _) = open(&store, options()).await;
        log.stop().await;
        let unused = Log::retire(Rc::new(store.clone()), 7).await.expect("nothing is wrong");
        assert_eq!(unused, Retired::default(), "a segment without a header is not worth a link");
    });
}

#[test]
fn a_torn_commit_is_cut_and_damage_is_refused() {
    run(async {
        let old = old(7, 1).await;
        let names = store_segments(&old.store).await;
        let last = names.last().expect("there are some");
        let end = old.store.bytes(last).iter().rposition(|byte| *byte != 0).expect("begun") + 1;
        let end = end.next_multiple_of(BLOCK_BYTES);
        old.store.edit(last, |bytes| bytes[end..end + 2 * BLOCK_BYTES].fill(0xa5));
        let torn = retire(&old).await.expect("torn, not damaged").torn.expect("and said so");
        assert_eq!((torn.position, torn.bytes), (end as u64, 2 * BLOCK_BYTES as u64));
        survives(&old.store, &old.staged, old.last_lsn, "sealed over a torn commit").await;

        let old = self::old(7, 1).await;
        let names = store_segments(&old.store).await;
        old.store.edit(names.last().expect("there are some"), |bytes| bytes[BLOCK_BYTES + 70] ^= 1);
        let error = retire(&old).await.expect_err("damage before other commits");
        assert!(matches!(error, OpenError::Damaged { position: 4096, .. }), "{error}");
        for name in names {
            old.store.make_unreadable(&name, 0..BLOCK_BYTES as u64);
        }
        assert!(matches!(retire(&old).await, Err(OpenError::Io { .. })));
    });
}

/// Segments of a log that have begun, in order.
async fn store_segments(store: &SimulatedStore) -> Vec<String> {
    let names = list_of(store).await.segments.into_iter().map(|listed| listed.name);
    names.filter(|name| SegmentHeader::parse(&store.bytes(name)[..BLOCK_BYTES]).is_ok()).collect()
}

#[test]
fn a_crash_while_a_log_is_ended_harms_nothing() {
    run(async {
        let mut number = None;
        let mut struck = 0;
        loop {
            let mut done = false;
            for torn in Torn::ALL {
                let old = old(7, 2).await;
                // Before that, the log was filled.
                let at = number.unwrap_or(old.store.operations());
                old.store.crash_at(at, torn);
                done = retire(&old).await.is_ok();
                let case = format!("operation {at} {torn:?}");
                assert_eq!(done, !old.store.crashed(), "{case}");
                for unsynced in Unsynced::ALL {
                    let left = old.store.after_crash(unsynced);
                    survives(&left, &old.staged, old.last_lsn, &format!("{case} {unsynced:?}")).await;
                }
                number = Some(at);
            }
            number = number.map(|number| number + 1);
            if done {
                break;
            }
            struck += 1;
        }
        assert!(struck >= 4, "footer, sync, trailer, sync: {struck}");
    });
}

/// The directory of a log with nothing but the segments of others, in this order.
async fn heir(olds: &[&Old]) -> SimulatedStore {
    let store = SimulatedStore::new();
    let mut list = SegmentList::default();
    for old in olds {
        for (listed, _) in retire(old).await.expect("whole").segments {
            let inherited = Listed::inherited(listed.number, listed.log_id, HashRange::ALL);
            let bytes = old.store.bytes(&listed.name);
            store.write_whole(&inherited.name, bytes).await.expect("written");
            list.segments.push(inherited);
        }
    }
    list.write(&store).await.expect("written");
    store
}

#[test]
fn a_log_goes_on_behind_everything_that_it_inherits() {
    run(async {
        let (first, second) = (old(7, 1).await, old(8, 5).await);
        assert!(first.staged[1].0.lsn == second.staged[1].0.lsn, "the two count alike");
        let store = heir(&[&first, &second]).await;
        let options = LogOptions { log_id: 9, ..options() };
        let inherited = store_segments(&store).await;
        let image: Vec<Vec<u8>> = inherited.iter().map(|name| store.bytes(name)).collect();
        let last_lsn = first.last_lsn.max(second.last_lsn);
        let mut expected: Vec<(Seen, Vec<u8>)> = [first.staged, second.staged].concat();
        for round in 0..3 {
            let (log, recovered, seen, _) = open(&store, options.clone()).await;
            assert_eq!(seen.len(), expected.len(), "round {round}");
            check(&log, &seen, &expected, u64::MAX, &format!("round {round}")).await;
            assert_eq!(recovered.torn, None);
            let mut client = Client::new(log.clone());
            let created = client.create().await.expect("staged");
            assert!(created.ticket > last_lsn, "{created:?} comes behind {last_lsn}");
            assert_eq!(created.ticket, log.durable() + 1, "everything inherited is durable");
            client.append(1, 150_000).await.expect("staged");
            client.append(1, 400_000).await.expect("staged");
            client.settle().await.expect("durable");
            log.stop().await;
            expected.extend(client.staged);
        }
        let again: Vec<Vec<u8>> = inherited.iter().map(|name| store.bytes(name)).collect();
        assert!(image == again, "an inherited segment does not change");
        // Its own segments count from one, beside those of the others with the same numbers.
        assert!(store.exists(&file_name::segment(1)));
        // And it can itself be inherited.
        let third = Old { options, store, staged: Vec::new(), last_lsn: 0 };
        let retired = retire(&third).await.expect("whole");
        assert!(retired.segments.len() > inherited.len());
        let mut numbers = retired.segments.iter().map(|(listed, first_lsn)| (listed.log_id, *first_lsn));
        assert!(numbers.all(|(log_id, first_lsn)| (log_id == 9) == (first_lsn > last_lsn)), "{retired:?}");
        let store = heir(&[&third]).await;
        let (log, _, seen, _) = open(&store, LogOptions { log_id: 10, ..third.options }).await;
        assert_eq!(seen.len(), expected.len());
        check(&log, &seen, &expected, u64::MAX, "inherited twice").await;
        log.stop().await;
    });
}
