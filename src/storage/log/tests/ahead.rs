//! Segments made further ahead than the next one: when they are made, that they are used, and what is left of them.

use super::harness::{Client, check, open, options, run, until};
use crate::limits::{SEGMENT_BYTES_MIN, SEGMENTS_KEPT_FREE};
use crate::storage::file_name;
use crate::storage::log::LogOptions;
use crate::storage::segment_list::SegmentList;
use crate::storage::simulated::{SimulatedStore, Unsynced};

fn three_ahead() -> LogOptions {
    LogOptions { segments_ahead: 3, ..options() }
}

async fn listed(store: &SimulatedStore) -> Vec<u32> {
    let list = SegmentList::read(store).await.expect("readable").expect("there is one");
    list.segments.iter().map(|segment| segment.number).collect()
}

/// Segments that are there and not listed.
async fn unlisted(store: &SimulatedStore) -> Vec<u32> {
    let listed = listed(store).await;
    (1..20).filter(|number| store.exists(&file_name::segment(*number)) && !listed.contains(number)).collect()
}

/// How often an operation whose text begins so has happened.
fn count(store: &SimulatedStore, beginning: &str) -> usize {
    (0..store.operations()).filter(|number| store.operation(*number).starts_with(beginning)).count()
}

/// Waits until a segment that is not listed has all its zeros.
async fn until_made(store: &SimulatedStore, number: u32) {
    let synced = format!("sync {}", file_name::segment(number));
    until(|| count(store, &synced) > 0).await;
}

/// Appends until so many segments have begun.
async fn fill(client: &mut Client, segments: usize) {
    for _ in 0..segments * SEGMENT_BYTES_MIN as usize / 50_000 {
        client.append(1, 50_000).await.expect("staged");
        client.settle().await.expect("durable");
    }
}

#[test]
fn an_idle_log_makes_segments_ahead_and_then_uses_them() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, three_ahead()).await;
        // The first is ready to be begun; two more are made, and no fourth.
        until_made(&store, 3).await;
        assert_eq!(listed(&store).await, [1], "what is made ahead is not listed");
        for number in [2, 3] {
            let bytes = store.bytes(&file_name::segment(number));
            assert!(
                bytes.len() as u64 == SEGMENT_BYTES_MIN && bytes.iter().all(|byte| *byte == 0),
                "{number}"
            );
        }
        let (created, written) = (count(&store, "create"), store.operations());
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        fill(&mut client, 2).await;
        assert!(listed(&store).await.starts_with(&[1, 2, 3]), "{:?}", listed(&store).await);
        assert_eq!(count(&store, "create"), created, "those that were made were used");
        let position = format!("write {}", file_name::segment(3));
        let zeros =
            (written..store.operations()).filter(|number| store.operation(*number).starts_with(&position));
        assert!(zeros.count() < 64, "no zeros were written again");
        fill(&mut client, 3).await;
        assert!(count(&store, "create") > created, "then new ones are made");
        log.stop().await;
        let (log, recovered, seen, _) = open(&store, three_ahead()).await;
        assert!(recovered.segments > 4, "{recovered:?}");
        check(&log, &seen, &client.staged, u64::MAX, "used").await;
        log.stop().await;
    });
}

#[test]
fn what_was_made_ahead_and_not_used_goes_at_the_next_start() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, three_ahead()).await;
        until_made(&store, 3).await;
        log.stop().await;
        let (log, _, _, _) = open(&store, options()).await;
        assert!(store.exists(&file_name::segment(1)));
        assert!(!store.exists(&file_name::segment(2)) && !store.exists(&file_name::segment(3)));
        log.stop().await;
    });
}

/// A log that has not been idle since its last commit, as after a crash, waits for the second after which it is marked.
#[test]
fn a_busy_log_makes_one_ahead_and_more_once_it_is_idle() {
    run(async {
        let before = SimulatedStore::new();
        let (log, _, _, _) = open(&before, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        client.settle().await.expect("durable");
        let store = before.after_crash(Unsynced::Kept);
        log.stop().await;
        let (log, _, _, _) = open(&store, three_ahead()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        for _ in 0..40 {
            client.append(1, 50_000).await.expect("staged");
            client.settle().await.expect("durable");
            let unlisted = unlisted(&store).await;
            assert!(unlisted.len() <= 1, "{unlisted:?} were made ahead of the next one");
        }
        while unlisted(&store).await.len() < 2 {
            glommio::executor().yield_task_queue_now().await;
        }
        log.stop().await;
    });
}

#[test]
fn what_others_may_need_stays_free() {
    run(async {
        let store = SimulatedStore::new();
        // Room for the first one, a second, and less than what stays free and a third.
        let free = SEGMENTS_KEPT_FREE * SEGMENT_BYTES_MIN;
        store.set_capacity(Some(2 * SEGMENT_BYTES_MIN + free + SEGMENT_BYTES_MIN / 2));
        let (log, _, _, told) = open(&store, three_ahead()).await;
        until_made(&store, 2).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        fill(&mut client, 1).await;
        assert!(told.latched.borrow().is_none(), "{:?}", told.latched.borrow());
        assert_eq!(log.refusal(), None);
        assert_eq!(count(&store, "create segment"), 2, "a third was not even tried");
        store.set_capacity(None);
        fill(&mut client, 2).await;
        log.stop().await;
        let (log, _, seen, _) = open(&store, three_ahead()).await;
        check(&log, &seen, &client.staged, u64::MAX, "little room").await;
        log.stop().await;
    });
}
