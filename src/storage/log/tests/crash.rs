//! The crash test: a workload is stopped at every single operation that changes the directory, in every way that a device
//! may leave that operation; what a restart finds must hold everything acknowledged, once, in order, and go on from there.

use std::collections::BTreeMap;

use super::harness::{Client, check, open, options, run, try_open};
use crate::storage::log::{LogOptions, Refusal, Sync};
use crate::storage::simulated::{SimulatedStore, Torn, Unsynced};

/// Fills two segments and a bit, with everything that the log does on the way, and stops.
async fn workload(
    store: &SimulatedStore,
    options: LogOptions,
) -> (Vec<(super::harness::Seen, Vec<u8>)>, u64) {
    let Ok((log, _, _, told)) = try_open(store, options).await else {
        assert!(store.crashed(), "only a crash keeps a new log from opening");
        return (Vec::new(), 0);
    };
    let mut client = Client::new(log.clone());
    let result: Result<(), Refusal> = async {
        for round in 0..16 {
            client.create().await?;
            client.append(1 + round % 2, 300 + round as usize).await?;
            // Every third commit is in flight while the next one fills.
            if round % 3 != 0 {
                client.settle().await?;
            }
            client.append(1, 55_000).await?;
            client.append(1 + round / 2, 60_000 - round as usize * 1000).await?;
            if round == 7 {
                client.append(2, 150_000).await?;
                client.delete(1).await?;
            }
            if round % 4 == 3 {
                client.settle().await?;
            }
        }
        client.settle().await
    }
    .await;
    assert_eq!(result.is_err(), store.crashed(), "the log latches exactly when the device is gone");
    let acknowledged = told.published.get();
    assert_eq!(log.durable(), acknowledged);
    log.stop().await;
    (client.staged, acknowledged)
}

/// Reopens what the crash left, checks it, goes on, and checks again.
pub(super) async fn survives(
    store: &SimulatedStore,
    staged: &[(super::harness::Seen, Vec<u8>)],
    acknowledged: u64,
    case: &str,
) {
    let (log, recovered, seen, _) = match try_open(store, options()).await {
        Ok(opened) => opened,
        Err(error) => panic!("{case}: does not open: {error}"),
    };
    check(&log, &seen, staged, acknowledged, case).await;
    assert!(recovered.last_lsn >= acknowledged, "{case}: {recovered:?}, acknowledged {acknowledged}");
    let mut client = Client::new(log.clone());
    client.create().await.expect("staged");
    client.append(1, 20_000).await.expect("staged");
    client.settle().await.expect("durable");
    log.stop().await;
    let (log, _, again, _) = open(store, options()).await;
    assert_eq!(again[..seen.len()], seen, "{case}: what was recovered once is recovered again");
    check(&log, &again[seen.len()..], &client.staged, u64::MAX, case).await;
    log.stop().await;
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    crash_everywhere(&options());
}

#[test]
fn a_crash_at_any_operation_loses_nothing_where_segments_are_made_ahead() {
    crash_everywhere(&LogOptions { segments_ahead: 3, ..options() });
}

fn crash_everywhere(options: &LogOptions) {
    run(async {
        let mut struck: BTreeMap<&str, usize> = BTreeMap::new();
        let mut number = 0;
        loop {
            let mut all_done = true;
            for (index, torn) in Torn::ALL.into_iter().enumerate() {
                let store = SimulatedStore::new();
                store.crash_at(number, torn);
                let (staged, acknowledged) = workload(&store, options.clone()).await;
                if !store.crashed() {
                    break;
                }
                all_done = false;
                let what = store.operation(number);
                let kind = ["create", "allocate", "write whole", "write", "sync directory", "sync", "rename"];
                let kind = kind.into_iter().find(|kind| what.starts_with(kind)).expect("a known operation");
                *struck.entry(kind).or_default() += 1;
                let unsynced = Unsynced::ALL[(number + index) % 3];
                let case = format!("operation {number} ({what}), {torn:?}, {unsynced:?}");
                survives(&store.after_crash(unsynced), &staged, acknowledged, &case).await;
                // Anything but a write happens or does not.
                if !kind.starts_with("write") && index == 1 {
                    break;
                }
            }
            if all_done {
                break;
            }
            number += 1;
        }
        assert_eq!(struck.len(), 7, "every kind of operation was struck: {struck:?}");
        assert!(struck["write"] > 200, "{struck:?}");
    });
}

#[test]
fn the_death_of_a_process_loses_nothing_without_sync_either() {
    run(async {
        let options = LogOptions { sync: Sync::None, ..options() };
        for number in (0..).step_by(7) {
            let store = SimulatedStore::new();
            store.crash_at(number, Torn::FirstHalf);
            let (staged, acknowledged) = workload(&store, options.clone()).await;
            if !store.crashed() {
                assert!(number > 50, "the workload has enough operations");
                break;
            }
            let case = format!("operation {number} ({})", store.operation(number));
            survives(&store.after_crash(Unsynced::Kept), &staged, acknowledged, &case).await;
        }
    });
}

/// Crashes during recovery and the first steps after it, on top of a torn log.
#[test]
fn a_crash_soon_after_a_crash_loses_nothing() {
    run(async {
        let first = SimulatedStore::new();
        first.crash_at(60, Torn::AllButFirst);
        let (staged, acknowledged) = workload(&first, options()).await;
        assert!(first.crashed());
        for number in 0.. {
            for torn in [Torn::Nothing, Torn::SecondHalf, Torn::All] {
                let store = first.after_crash(Unsynced::Half);
                store.crash_at(number, torn);
                let mut added = staged.clone();
                let mut acknowledged = acknowledged;
                if let Ok((log, _, seen, told)) = try_open(&store, options()).await {
                    added.truncate(seen.len());
                    let mut client = Client::new(log.clone());
                    for _ in 0..3 {
                        if client.create().await.is_err() || client.settle().await.is_err() {
                            break;
                        }
                    }
                    added.append(&mut client.staged);
                    acknowledged = told.published.get();
                    log.stop().await;
                }
                let case = format!("operation {number}, {torn:?}");
                if !store.crashed() {
                    assert!(number > 3, "there are operations to strike");
                    return;
                }
                let restarted = store.after_crash(Unsynced::Lost);
                let (log, _, seen, _) = open(&restarted, options()).await;
                check(&log, &seen, &added, acknowledged, &case).await;
                log.stop().await;
            }
        }
    });
}
