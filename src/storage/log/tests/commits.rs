//! Staging, group commit, waiting, rolling, stopping.

use futures_lite::future::poll_once;

use super::harness::{Client, check, open, options, run, until};
use crate::limits::SEALED_COMMITS_MAX;
use crate::storage::event::Event;
use crate::storage::file_name;
use crate::storage::log::{Class, Room};
use crate::storage::simulated::{SimulatedStore, Unsynced};

#[test]
fn what_is_staged_is_recovered() {
    run(async {
        let store = SimulatedStore::new();
        let (log, recovered, seen, _) = open(&store, options()).await;
        assert!(seen.is_empty() && recovered.last_lsn == 0);
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        client.append(1, 100).await.expect("staged");
        client.append(1, 0).await.expect("staged");
        client.append(1, 300_000).await.expect("staged");
        client.delete(1).await.expect("staged");
        client.settle().await.expect("durable");
        log.stop().await;
        let (log, recovered, seen, _) = open(&store, options()).await;
        assert_eq!(seen.len(), client.staged.len());
        assert_eq!((recovered.highest_lineage, &recovered.torn), (1, &None));
        check(&log, &seen, &client.staged, log.durable(), "clean stop").await;
        log.stop().await;
    });
}

#[test]
fn one_commit_in_flight_while_the_next_fills() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, told) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        client.settle().await.expect("durable");
        store.hold_writes(true);
        let first = client.append(1, 10).await.expect("staged");
        until(|| store.writes_waiting() == 1).await;
        let second = client.append(1, 10).await.expect("staged");
        let third = client.append(1, 10).await.expect("staged");
        assert_eq!(second.ticket, first.ticket + 1, "the first commit is on its way");
        assert_eq!(third.ticket, second.ticket, "the second one fills");
        assert_eq!(told.published.get(), first.ticket - 1);
        let mut waiting = Box::pin(log.wait_durable(third.ticket));
        assert!(poll_once(&mut waiting).await.is_none());
        store.hold_writes(false);
        waiting.await.expect("durable");
        assert_eq!((log.durable(), told.published.get()), (third.ticket, third.ticket));
        log.wait_durable(first.ticket).await.expect("long durable");
        log.stop().await;
    });
}

#[test]
fn writers_are_held_back_behind_a_slow_device() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        client.settle().await.expect("durable");
        store.hold_writes(true);
        let bytes = log.payload_max();
        let mut commits = 0;
        while log.room(64, bytes, Class::Append) == Room::Now {
            client.append(1, bytes).await.expect("staged");
            commits += 1;
            until(|| store.writes_waiting() == 1).await;
        }
        assert_eq!(commits, 2 + SEALED_COMMITS_MAX, "in flight, waiting, open");
        assert_eq!(log.room(64, bytes, Class::Append), Room::Later);
        let mut room = Box::pin(log.wait_room());
        assert!(poll_once(&mut room).await.is_none());
        store.hold_writes(false);
        room.await;
        client.settle().await.expect("durable");
        assert_eq!(log.room(64, bytes, Class::Append), Room::Now);
        log.stop().await;
    });
}

#[test]
fn many_waiters_of_one_commit_are_all_woken() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        let ticket = client.create().await.expect("staged").ticket;
        let tasks: Vec<_> = (0..100)
            .map(|index| {
                let log = log.clone();
                // Some wait for a commit that is staged only later.
                glommio::spawn_local(async move { log.wait_durable(ticket + index % 3).await })
            })
            .collect();
        for _ in 0..3 {
            client.settle().await.expect("durable");
            client.append(1, 10).await.expect("staged");
        }
        client.settle().await.expect("durable");
        for task in tasks {
            task.await.expect("durable");
        }
        log.stop().await;
    });
}

#[test]
fn segments_roll_and_are_sealed() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        for _ in 0..3 {
            client.create().await.expect("staged");
        }
        // Small appends make large footers; large ones leave little room at the end of a segment.
        for round in 0..700 {
            let len = if round % 10 == 0 { log.payload_max() - round } else { 50 + round };
            client.append(1 + round as u64 % 3, len).await.expect("staged");
            if round % 4 == 0 {
                client.settle().await.expect("durable");
            }
        }
        client.settle().await.expect("durable");
        log.stop().await;
        let (log, recovered, seen, _) = open(&store, options()).await;
        assert!(recovered.segments > 3, "{recovered:?}");
        assert_eq!(recovered.from_footers, recovered.segments - 1, "all but the last one have footers");
        assert_eq!(seen.len(), client.staged.len());
        check(&log, &seen, &client.staged, log.durable(), "rolled").await;
        log.stop().await;
    });
}

#[test]
fn footers_and_scans_replay_the_same() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        for round in 0..60 {
            client.append(1, 40_000 + round * 100).await.expect("staged");
        }
        client.append(1, 500_000).await.expect("staged");
        client.settle().await.expect("durable");
        log.stop().await;
        let (log, with_footers, from_footers, _) = open(&store, options()).await;
        log.stop().await;
        assert!(with_footers.from_footers > 2, "{with_footers:?}");
        for number in 1..=with_footers.segments {
            let zero = |bytes: &mut Vec<u8>| {
                let last = bytes.len() - 4096;
                bytes[last..].fill(0);
            };
            store.edit(&file_name::segment(number), zero);
        }
        let (log, without, scanned, _) = open(&store, options()).await;
        assert_eq!(without.from_footers, 0);
        assert_eq!(scanned, from_footers, "places included");
        log.stop().await;
        let (log, again, _, _) = open(&store, options()).await;
        assert_eq!(again.from_footers, with_footers.from_footers, "the footers were made up for");
        log.stop().await;
    });
}

#[test]
fn a_log_stops_with_one_mark_and_needs_no_second_one() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        let staged = client.create().await.expect("staged");
        log.stop().await;
        assert_eq!(log.durable(), staged.ticket + 1, "the staged commit, then a mark");
        for _ in 0..2 {
            let (log, recovered, seen, _) = open(&store, options()).await;
            assert_eq!((seen.len(), recovered.last_lsn), (1, staged.ticket + 1));
            log.stop().await;
            assert_eq!(log.durable(), staged.ticket + 1, "an unchanged log gets no further mark");
        }
    });
}

#[test]
fn a_log_that_crashed_is_marked_once_it_is_open_again() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        let staged = client.create().await.expect("staged");
        client.settle().await.expect("durable");
        let crashed = store.after_crash(Unsynced::Lost);
        log.stop().await;
        let (log, _, _, _) = open(&crashed, options()).await;
        log.stop().await;
        assert_eq!(log.durable(), staged.ticket + 1);
    });
}

#[test]
fn an_idle_log_is_marked() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, told) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        let staged = client.create().await.expect("staged");
        log.wait_durable(staged.ticket + 1).await.expect("marked");
        assert_eq!(told.published.get(), staged.ticket + 1);
        log.stop().await;
        assert_eq!(log.durable(), staged.ticket + 1);
    });
}

#[test]
fn events_without_payload_need_no_fill() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        assert_eq!(log.room(100, 0, Class::Control), Room::Now);
        let event = Event::BucketCreated { bucket: b"bucket", generation: 3 };
        let staged = log.stage(&event, 0, |_| {});
        log.wait_durable(staged.ticket).await.expect("durable");
        log.stop().await;
        let (log, _, seen, _) = open(&store, options()).await;
        assert_eq!(seen[0].text, format!("{event:?}"));
        log.stop().await;
    });
}

#[test]
fn time_never_goes_back() {
    run(async {
        let store = SimulatedStore::new();
        let mut last = 0;
        for _ in 0..3 {
            let (log, _, _, _) = open(&store, options()).await;
            let mut client = Client::new(log.clone());
            for _ in 0..3 {
                let staged = client.create().await.expect("staged");
                client.settle().await.expect("durable");
                assert!(staged.time_ms >= last, "{} after {last}", staged.time_ms);
                last = staged.time_ms;
            }
            log.stop().await;
        }
    });
}
