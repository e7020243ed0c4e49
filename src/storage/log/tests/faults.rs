//! Failing writes, short writes, cancelled operations, full disks.

use super::harness::{Client, check, open, options, run, try_open, until};
use crate::limits::SEGMENT_BYTES_MIN;
use crate::storage::file_name;
use crate::storage::log::{Class, OpenError, Refusal, Room};
use crate::storage::simulated::{SimulatedStore, Unsynced};

/// Makes the next commit's write meet `fault`, with other writes held back.
async fn ready_log() -> (SimulatedStore, Client, std::rc::Rc<super::harness::Told>) {
    let store = SimulatedStore::new();
    let (log, _, _, told) = open(&store, options()).await;
    let mut client = Client::new(log);
    client.create().await.expect("staged");
    client.settle().await.expect("durable");
    // The segment after this one is made first, so that only commits write from here on.
    until(|| store.exists(&file_name::segment(2)) && is_quiet(&store)).await;
    (store, client, told)
}

/// Whether the second segment is listed: the last thing that happens to it ahead of its use.
fn is_quiet(store: &SimulatedStore) -> bool {
    let operations = store.operations();
    let listed = (0..operations).rev().find(|&number| store.operation(number).starts_with("rename"));
    let second =
        (0..operations).rev().find(|&number| store.operation(number) == "create segment-0000000002.log");
    listed > second && store.operation(operations - 1) == "sync directory"
}

#[test]
fn a_failed_write_latches() {
    run(async {
        for errno in [libc::EIO, libc::ENOSPC, libc::EINVAL] {
            let (store, mut client, told) = ready_log().await;
            let durable = client.log.durable();
            store.fail_at(store.operations(), errno);
            let failed = client.append(1, 100).await.expect("staged");
            let waiting = client.log.wait_durable(failed.ticket);
            assert_eq!(waiting.await, Err(Refusal::Latched));
            assert_eq!(client.log.refusal(), Some(Refusal::Latched));
            assert_eq!(client.log.room(10, 10, Class::Control), Room::Refused(Refusal::Latched));
            let why = told.latched.borrow().clone().expect("told");
            assert!(why.contains("segment-0000000001.log") && why.contains("commit 2"), "{why}");
            assert_eq!(client.log.latched_why(), Some(why));
            assert_eq!((client.log.durable(), told.published.get()), (durable, durable));
            client.log.wait_durable(durable).await.expect("what was durable stays so");
            let operations = store.operations();
            let (first, payload) = &client.staged[0];
            assert!(first.payload(&client.log).await == *payload, "reads go on");
            client.log.stop().await;
            assert_eq!(store.operations(), operations, "nothing is retried, not even by a stop");
            let (log, recovered, seen, _) = open(&store, options()).await;
            assert_eq!((seen.len(), recovered.last_lsn), (1, durable), "a restart goes on");
            log.stop().await;
        }
    });
}

#[test]
fn waiters_of_every_later_commit_learn_of_the_latch() {
    run(async {
        let (store, mut client, _) = ready_log().await;
        store.fail_at(store.operations(), libc::EIO);
        store.hold_writes(true);
        let first = client.append(1, 100).await.expect("staged");
        until(|| store.writes_waiting() == 1).await;
        let second = client.append(1, 100).await.expect("staged");
        let tasks: Vec<_> = [first.ticket, second.ticket, second.ticket]
            .map(|ticket| {
                let waiting = client.log.wait_durable(ticket);
                glommio::spawn_local(waiting)
            })
            .into_iter()
            .collect();
        let log = client.log.clone();
        let room = glommio::spawn_local(async move { log.wait_room().await });
        store.hold_writes(false);
        for task in tasks {
            assert_eq!(task.await, Err(Refusal::Latched));
        }
        room.await;
        client.log.stop().await;
    });
}

#[test]
fn a_short_write_is_continued() {
    run(async {
        let (store, mut client, _) = ready_log().await;
        for _ in 0..3 {
            store.short_write_at(store.operations());
            client.append(1, 50_000).await.expect("staged");
            client.settle().await.expect("durable");
        }
        client.log.stop().await;
        let (log, _, seen, _) = open(&store, options()).await;
        assert_eq!(seen.len(), 4);
        check(&log, &seen, &client.staged, u64::MAX, "short writes").await;
        log.stop().await;
    });
}

#[test]
fn a_cancelled_write_is_repeated_once() {
    run(async {
        let (store, mut client, _) = ready_log().await;
        store.fail_at(store.operations(), libc::ETIMEDOUT);
        client.append(1, 100).await.expect("staged");
        client.settle().await.expect("durable at the second try");
        store.fail_at(store.operations(), libc::ETIMEDOUT);
        store.fail_at(store.operations() + 1, libc::ETIMEDOUT);
        client.append(1, 100).await.expect("staged");
        assert_eq!(client.settle().await, Err(Refusal::Latched));
        client.log.stop().await;
    });
}

#[test]
fn an_error_while_a_segment_is_begun_or_made_latches() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        log.stop().await;
        for fault in 0..12 {
            let store = store.after_crash(Unsynced::Lost);
            let (log, _, _, told) = open(&store, options()).await;
            let mut client = Client::new(log.clone());
            // The first commit begins the listed segment, and the next one is made behind it.
            store.fail_at(store.operations() + fault, libc::EIO);
            client.create().await.expect("staged");
            client.settle().await.ok();
            until(|| told.latched.borrow().is_some()).await;
            assert_eq!(log.refusal(), Some(Refusal::Latched));
            log.stop().await;
            let (log, _, seen, _) = open(&store, options()).await;
            check(&log, &seen, &client.staged, told.published.get(), "after the latch").await;
            log.stop().await;
        }
    });
}

#[test]
fn a_full_disk_refuses_appends_keeps_a_reserve_and_recovers() {
    run(async {
        let store = SimulatedStore::new();
        // Room for one segment, and not for a second one.
        store.set_capacity(Some(SEGMENT_BYTES_MIN + SEGMENT_BYTES_MIN / 2));
        let (log, _, _, told) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        let mut appended = 0;
        let refusal = loop {
            match client.append(1, 30_000).await {
                Ok(_) => appended += 1,
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refusal, Refusal::DiskFull);
        client.forget_refused(1, 30_000);
        // Smaller ones still find room, down to the reserve.
        while client.append(1, 1).await.is_ok() {
            client.settle().await.expect("durable");
        }
        client.forget_refused(1, 1);
        assert!(appended > 20, "{appended} appends fit");
        client.settle().await.expect("what was staged becomes durable");
        assert_eq!(log.refusal(), Some(Refusal::DiskFull));
        assert_eq!(log.room(100, 30_000, Class::Append), Room::Refused(Refusal::DiskFull));
        for _ in 0..5 {
            assert_eq!(log.room(100, 0, Class::Control), Room::Now, "deletes may use the reserve");
            client.stage_control().await;
            client.settle().await.expect("durable");
        }
        assert!(told.latched.borrow().is_none(), "a full disk is no failure");
        store.set_capacity(None);
        while log.room(100, 30_000, Class::Append) != Room::Now {
            log.wait_room().await;
        }
        for _ in 0..40 {
            client.append(1, 30_000).await.expect("staged");
        }
        client.settle().await.expect("durable");
        log.stop().await;
        let (log, recovered, seen, _) = open(&store, options()).await;
        assert!(recovered.segments > 1);
        assert_eq!(seen.len(), client.staged.len());
        check(&log, &seen, &client.staged, u64::MAX, "after a full disk").await;
        log.stop().await;
    });
}

#[test]
fn a_new_log_on_a_full_disk_says_so() {
    run(async {
        let store = SimulatedStore::new();
        store.set_capacity(Some(SEGMENT_BYTES_MIN / 2));
        let error = try_open(&store, options()).await.err().expect("refused");
        let full =
            matches!(&error, OpenError::Io { source, .. } if source.raw_os_error() == Some(libc::ENOSPC));
        assert!(full, "{error}");
        store.set_capacity(None);
        let (log, _, _, _) = open(&store, options()).await;
        log.stop().await;
    });
}
