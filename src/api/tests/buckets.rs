//! Buckets over two shards whose devices and mail the test holds: what a delete, a count and a listing wait for, and what
//! they answer when a shard cannot tell.

use async_channel::Receiver;

use super::bench::{Answer, Bench, Started, config, deliver, run, turn};
use super::{AS_TEXT, TEXT};
use crate::limits::LISTED_PER_TURN_MAX;
use crate::shard::mail::{BucketMail, Mail};
use crate::storage::simulated::{SimulatedStore, Torn, Unsynced};

/// Two shards, a bucket whose home is the first, and a stream of it on each.
struct Two {
    benches: [Bench; 2],
    inboxes: [Receiver<Mail>; 2],
    bucket: String,
    streams: [String; 2],
}

impl Two {
    /// With their mail served, and the bucket made.
    async fn new() -> Two {
        let two = Two::over([SimulatedStore::new(), SimulatedStore::new()]).await;
        two.deliver();
        two.put_bucket().await.expect(201);
        two
    }

    async fn over(stores: [SimulatedStore; 2]) -> Two {
        let (benches, inboxes) = Bench::two(stores, config()).await;
        let bucket = named(&benches[0], "/bucket", 0);
        let streams = [0, 1].map(|on| named(&benches[0], &format!("{bucket}/s"), on));
        Two { benches, inboxes, bucket, streams }
    }

    /// Another stream on a shard.
    fn other_stream(&self, on: usize) -> String {
        named(&self.benches[on], &format!("{}/other", self.bucket), on)
    }

    fn deliver(&self) {
        self.benches.iter().zip(&self.inboxes).for_each(|(bench, inbox)| deliver(bench, inbox));
    }

    /// The same after the process died now. No mail is served yet.
    async fn restarted(self) -> Two {
        Two::over(self.benches.each_ref().map(|bench| bench.store.after_crash(Unsynced::Lost))).await
    }

    async fn put_bucket(&self) -> Answer {
        self.benches[0].send("PUT", &self.bucket, &[], "").await
    }

    fn delete_bucket(&self) -> Started<'_> {
        self.benches[0].start("DELETE", &self.bucket, &[], "")
    }

    async fn count(&self) -> String {
        let answer = self.benches[0].send("GET", &self.bucket, &[], "").await.expect(200).text();
        answer.rsplit_once(':').expect("the count comes last").1.trim_end_matches('}').to_owned()
    }

    async fn listing(&self) -> String {
        self.benches[0].send("GET", &format!("{}/streams", self.bucket), &[], "").await.expect(200).text()
    }

    fn put_stream(&self, on: usize) -> Started<'_> {
        self.benches[on].start("PUT", &self.streams[on], &AS_TEXT, "x")
    }

    async fn delete_stream(&self, on: usize) -> Answer {
        self.benches[on].send("DELETE", &self.streams[on], &[], "").await
    }
}

/// A path with this beginning that belongs to a shard.
fn named(bench: &Bench, beginning: &str, on: usize) -> String {
    let shard = &bench.api.shard;
    let mut paths = (0..).map(|n| format!("{beginning}{n}"));
    paths.find(|path| shard.owner(shard.hash(&path.as_bytes()[1..])) == on).expect("some name is there")
}

/// Lets everything happen that can.
async fn settle() {
    for _ in 0..1000 {
        futures_lite::future::yield_now().await;
    }
}

/// Begins to answer, and holds on to what waits.
async fn begin<T: 'static>(answer: impl Future<Output = T>) -> std::pin::Pin<Box<impl Future<Output = T>>> {
    let mut answer = Box::pin(answer);
    let first = futures_lite::future::poll_once(&mut answer).await;
    assert!(first.is_none(), "it waits");
    settle().await;
    let second = futures_lite::future::poll_once(&mut answer).await;
    assert!(second.is_none(), "it waits still");
    answer
}

#[test]
fn a_create_that_is_staged_on_another_shard_keeps_the_bucket() {
    run(async {
        let two = Two::new().await;
        for on in [0, 1] {
            two.benches[on].hold(true);
            let create = two.put_stream(on);
            assert!(create.waits_for_commit());
            assert_eq!(two.count().await, "0", "it is not there yet");
            let delete = begin(two.delete_bucket().answer()).await;
            // Decision 17: neither answer comes before the commit that makes it true.
            two.benches[on].hold(false);
            create.answer().await.expect(201);
            assert!(delete.await.expect(409).text().contains("BUCKET_NOT_EMPTY"));
            assert_eq!(two.count().await, "1");
            two.delete_stream(on).await.expect(204);
        }
        two.delete_bucket().answer().await.expect(204);
    });
}

#[test]
fn a_stream_whose_delete_is_staged_on_another_shard_is_waited_for() {
    run(async {
        let two = Two::new().await;
        two.put_stream(1).answer().await.expect(201);
        two.delete_bucket().answer().await.expect(409);
        // The count is taken while the delete is under way; then its commit comes.
        two.benches[1].hold(true);
        let going = two.benches[1].start("DELETE", &two.streams[1], &[], "");
        two.delete_bucket().answer().await.expect(409);
        two.benches[1].hold(false);
        going.answer().await.expect(204);
        two.delete_bucket().answer().await.expect(204);
    });
}

#[test]
fn creates_wait_for_the_outcome_and_go_on_after_a_refusal() {
    run(async {
        let two = Two::new().await;
        two.benches[1].hold(true);
        let staged = two.benches[1].start("PUT", &two.streams[1], &AS_TEXT, "");
        let delete = begin(two.delete_bucket().answer()).await;
        let (large, large_path) = (vec![b'x'; 300_000], two.other_stream(0));
        let creates = [
            begin(two.put_stream(0).answer()).await,
            begin(two.benches[0].start("PUT", &large_path, &AS_TEXT, &large).answer()).await,
        ];
        two.benches[1].hold(false);
        staged.answer().await.expect(201);
        delete.await.expect(409);
        for create in creates {
            create.await.expect(201);
        }
        assert_eq!(two.count().await, "3");
        let read = two.benches[0].send("GET", &large_path, &[], "").await.expect(200);
        assert!(read.body == large);
    });
}

#[test]
fn creates_that_wait_get_404_when_the_bucket_is_gone() {
    run(async {
        let two = Two::new().await;
        two.benches[0].hold(true);
        let delete = begin(two.delete_bucket().answer()).await;
        let creates = [begin(two.put_stream(0).answer()).await, begin(two.put_stream(1).answer()).await];
        // It is there until its end is durable.
        assert_eq!(two.count().await, "0");
        two.benches[0].hold(false);
        delete.await.expect(204);
        for create in creates {
            assert!(create.await.expect(404).text().contains("BUCKET_NOT_FOUND"));
        }
        two.benches[0].send("GET", &two.bucket, &[], "").await.expect(404);
        two.put_bucket().await.expect(201);
        for on in [0, 1] {
            two.put_stream(on).answer().await.expect(201);
        }
        let two = two.restarted().await;
        two.deliver();
        assert_eq!(two.count().await, "2");
    });
}

#[test]
fn of_two_deletes_one_ends_the_bucket() {
    run(async {
        let two = Two::new().await;
        let (first, second) = (two.delete_bucket(), two.delete_bucket());
        let answers = futures_lite::future::zip(first.answer(), second.answer()).await;
        let mut statuses = [answers.0.status, answers.1.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 404]);
    });
}

#[test]
fn a_change_is_ended_also_when_its_requester_goes_away() {
    run(async {
        let two = Two::new().await;
        two.benches[0].hold(true);
        let mut delete = two.delete_bucket().live();
        assert!(delete.is_silent().await);
        settle().await;
        drop(delete);
        let create = begin(two.put_stream(1).answer()).await;
        two.benches[0].hold(false);
        create.await.expect(404);
    });
}

#[test]
fn a_bucket_is_seen_when_every_shard_knows_it() {
    run(async {
        let two = Two::over([SimulatedStore::new(), SimulatedStore::new()]).await;
        deliver(&two.benches[0], &two.inboxes[0]);
        let create = begin(two.put_bucket()).await;
        while two.inboxes[1].is_empty() {
            futures_lite::future::yield_now().await;
        }
        // The other shard has not looked into its mailbox.
        two.put_stream(1).answer().await.expect(404);
        let seen = [
            begin(two.benches[0].start("GET", &two.bucket, &[], "").answer()).await,
            begin(two.benches[0].start("GET", &format!("{}/streams", two.bucket), &[], "").answer()).await,
            begin(two.put_stream(0).answer()).await,
        ];
        deliver(&two.benches[1], &two.inboxes[1]);
        create.await.expect(201);
        for (answer, status) in seen.into_iter().zip([200, 200, 201]) {
            answer.await.expect(status);
        }
        two.put_stream(1).answer().await.expect(201);
    });
}

#[test]
fn a_shard_that_stops_is_not_a_shard_without_streams() {
    run(async {
        let two = Two::new().await;
        two.put_stream(1).answer().await.expect(201);
        let two = two.restarted().await;
        deliver(&two.benches[0], &two.inboxes[0]);
        // The other shard ends with a question in its mailbox.
        let delete = begin(two.delete_bucket().answer()).await;
        two.inboxes[1].close();
        while let Ok(mail) = two.inboxes[1].try_recv() {
            drop(mail);
        }
        assert!(delete.await.expect(503).text().contains("OVERLOADED"));
        // And then takes none.
        two.delete_bucket().answer().await.expect(503);
        two.benches[0].send("GET", &two.bucket, &[], "").await.expect(503);
        two.benches[0].send("GET", &format!("{}/streams", two.bucket), &[], "").await.expect(503);
        // Nothing is left waiting.
        two.put_stream(0).answer().await.expect(201);
        let two = two.restarted().await;
        two.deliver();
        assert_eq!(two.count().await, "2");
    });
}

#[test]
fn a_shard_that_stops_within_a_delete_leaves_the_bucket_open() {
    run(async {
        let two = Two::new().await;
        let two = two.restarted().await;
        deliver(&two.benches[0], &two.inboxes[0]);
        let delete = begin(two.delete_bucket().answer()).await;
        // It still answers how many streams it has, but not how many it will have had.
        while let Ok(Mail::Bucket(mail)) = two.inboxes[1].recv().await {
            match mail {
                BucketMail::Ends { .. } => break,
                mail => two.benches[1].api.bucket_mail(mail),
            }
        }
        two.inboxes[1].close();
        delete.await.expect(503);
        two.put_stream(0).answer().await.expect(201);
    });
}

/// A delete whose commit fails may be in the log or not. If a create went on after it, a restart could lose the stream.
#[test]
fn after_a_failed_commit_of_a_delete_nothing_is_created_before_a_restart_tells() {
    for (torn, status) in [(Torn::Nothing, 200), (Torn::All, 404)] {
        run(async {
            let two = Two::new().await;
            let store = &two.benches[0].store;
            two.benches[0].hold(true);
            let delete = begin(two.delete_bucket().answer()).await;
            store.crash_at(store.operations(), torn);
            two.benches[0].hold(false);
            assert!(delete.await.expect(503).text().contains("SHARD_LATCHED"));
            settle().await;
            for _ in 0..2 {
                assert!(two.put_stream(1).answer().await.expect(503).text().contains("BUCKET_BUSY"));
                two.put_stream(0).answer().await.expect(503);
                two.delete_bucket().answer().await.expect(503);
            }
            assert_eq!(two.count().await, "0");
            let two = two.restarted().await;
            two.deliver();
            two.benches[0].send("GET", &two.bucket, &[], "").await.expect(status);
        });
    }
}

#[test]
fn creates_whose_commit_failed_keep_the_bucket() {
    run(async {
        let two = Two::new().await;
        let store = &two.benches[1].store;
        // The first commit of a log waits for more than its own write.
        two.put_stream(1).answer().await.expect(201);
        two.delete_stream(1).await.expect(204);
        two.benches[1].hold(true);
        let create = two.put_stream(1);
        settle().await;
        store.crash_at(store.operations(), Torn::All);
        two.benches[1].hold(false);
        create.answer().await.expect(503);
        assert_eq!(two.count().await, "0");
        assert!(two.delete_bucket().answer().await.expect(503).text().contains("SHARD_LATCHED"));
        // The other shard goes on.
        two.put_stream(0).answer().await.expect(201);
        let two = two.restarted().await;
        two.deliver();
        assert_eq!(two.count().await, "2", "a restart finds what nobody could tell");
    });
}

#[test]
fn decision_4_counts_listings_and_deletes_agree_on_what_has_expired() {
    run(async {
        let two = Two::new().await;
        let expired = [("Content-Type", TEXT), ("Stream-Expires-At", "2001-01-01T00:00:00Z")];
        for round in 0..3 {
            two.put_stream(0).answer().await.expect(201);
            two.benches[1].send("PUT", &two.streams[1], &expired, "").await.expect(201);
            match round {
                0 => {
                    assert_eq!(two.count().await, "1");
                    assert!(two.listing().await.contains("\"stream_count\":1,"));
                }
                1 => {
                    assert!(two.listing().await.contains("\"stream_count\":1,"));
                    assert_eq!(two.count().await, "1");
                }
                _ => {}
            }
            two.delete_stream(0).await.expect(204);
            two.delete_bucket().answer().await.expect(204);
            two.put_bucket().await.expect(201);
        }
    });
}

/// That a stream has expired is seen when it is in the log, or when it can never be.
#[test]
fn what_has_expired_is_gone_once_that_is_durable_or_cannot_be() {
    run(async {
        let two = Two::new().await;
        let expired = [("Content-Type", TEXT), ("Stream-Expires-At", "2001-01-01T00:00:00Z")];
        let bench = &two.benches[1];
        two.put_stream(1).answer().await.expect(201);
        bench.send("PUT", &two.other_stream(1), &expired, "").await.expect(201);
        let there = two.count_of_table();
        bench.hold(true);
        let count = begin(two.count()).await;
        let listing = begin(two.listing()).await;
        bench.store.crash_at(bench.store.operations(), Torn::Nothing);
        bench.hold(false);
        assert_eq!(count.await, (there - 1).to_string());
        assert!(listing.await.contains(&format!("\"stream_count\":{},", there - 1)));
        assert_eq!(two.count().await, (there - 1).to_string());
        assert_eq!(two.count_of_table(), there, "it could not be deleted");
    });
}

impl Two {
    /// Streams in both tables, however they are.
    fn count_of_table(&self) -> usize {
        self.benches.iter().map(|bench| bench.api.shard.table.borrow().len()).sum()
    }
}

#[test]
fn a_listing_gives_others_a_turn() {
    run(async {
        let bench = Bench::new(config()).await;
        let count = 2 * LISTED_PER_TURN_MAX + 7;
        for n in 0..count {
            bench.create(&format!("s{n:05}"), TEXT, &[]).await;
        }
        let mut listing = bench.start("GET", "/test/streams", &[], "").live();
        let mut turns = 1;
        while listing.is_silent().await {
            turn().await;
            turns += 1;
        }
        assert!(turns >= count.div_ceil(LISTED_PER_TURN_MAX), "{count} streams in {turns} turns");
        assert!(listing.text().contains(&format!("\"stream_count\":{count},")));
        // Streams that do not match cost nothing: they are not looked at.
        let mut last = bench.start("GET", "/test/streams?prefix=s00518", &[], "").live();
        assert!(!last.is_silent().await);
        assert!(last.text().contains("\"stream_count\":1,"));
    });
}
