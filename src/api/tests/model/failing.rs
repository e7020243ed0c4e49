//! What befalls a server: restarts, crashes, a full disk; and rewrites, alone and beside requests.

use std::rc::Rc;

use futures_lite::future::poll_once;
use serde_json::Value;

use super::choose::{choose, pick};
use super::content::text;
use super::drive::{judge, outcomes, perform, resolve};
use super::exchange::{Answer, Server};
use super::operation::{Act, Append, Content, Create, Operation};
use super::oracle::{Kind, Stream};
use super::{BULK, Bench, Model};
use crate::shard::Shard;
use crate::shard::settle::settle_some;
use crate::storage::settle::SettleError;
use crate::storage::simulated::{Torn, Unsynced};

/// Operations that a crash may wait for.
const OPERATIONS_TO_CRASH: u64 = 60;
/// Operations of the device that a crash may wait for.
const DEVICE_OPERATIONS_TO_CRASH: u64 = 20;
/// Operations that are refused before a full disk has been shown.
const REFUSALS: u64 = 12;
/// Bytes of an append that fills the disk.
const BULK_BYTES: usize = 50_000;

/// Rewrites all that is worth it.
async fn settle_all(shard: Rc<Shard>) -> Result<u64, SettleError> {
    let mut rewrites = 0;
    while settle_some(&shard).await? {
        rewrites += 1;
        assert!(rewrites < 100, "settling comes to an end");
        shard.log.sweep().await;
    }
    Ok(rewrites)
}

impl Model {
    /// Replaces the server by one over what a crash leaves of its device.
    async fn reopen(&mut self, unsynced: Unsynced) {
        let store = self.bench.store.after_crash(unsynced);
        if let Some(settling) = self.settling.take() {
            settling.cancel().await;
        }
        // Its tasks end.
        self.bench.api.shard.stop();
        self.bench.api.shard.log.stop().await;
        self.bench = Bench::over(store, self.config.clone()).await;
    }

    /// Restarts the server.
    pub async fn restart(&mut self) {
        let unsynced = pick(&mut self.random, &Unsynced::ALL);
        self.journal.note(format!("restart, {unsynced:?}"));
        self.reopen(unsynced).await;
        self.verify().await;
    }

    /// Rewrites all that is worth it, while nothing else happens.
    pub async fn settle(&mut self) {
        self.journal.note("settle".to_owned());
        if let Some(settling) = self.settling.take() {
            self.tally.rewrites_meanwhile += settling.await.expect("it can be rewritten");
        }
        let rewrites = settle_all(self.bench.api.shard.clone()).await;
        self.tally.rewrites += rewrites.expect("it can be rewritten");
        self.verify().await;
    }

    /// Begins to rewrite all that is worth it, beside what comes next.
    pub async fn settle_meanwhile(&mut self) {
        self.journal.note("settle meanwhile".to_owned());
        self.look_after_settling().await;
        let shard = self.bench.api.shard.clone();
        self.settling.get_or_insert_with(|| glommio::spawn_local(settle_all(shard)));
    }

    /// Looks at everything when a rewrite has come to its end.
    pub async fn look_after_settling(&mut self) {
        let Some(settling) = &mut self.settling else { return };
        let Some(done) = poll_once(settling).await else { return };
        self.settling = None;
        self.tally.rewrites_meanwhile += done.expect("it can be rewritten");
        self.verify().await;
    }

    /// Lets the device fail at one of its next operations, in the midst of requests or of a rewrite.
    pub async fn crash(&mut self) {
        let wait = self.random.below(DEVICE_OPERATIONS_TO_CRASH) as usize;
        let torn = pick(&mut self.random, &Torn::ALL);
        let unsynced = pick(&mut self.random, &Unsynced::ALL);
        self.journal.note(format!("crash after {wait} operations of the device, {torn:?}, {unsynced:?}"));
        self.bench.store.crash_at(self.bench.store.operations() + wait, torn);
        let mut unseen = None;
        for _ in 0..OPERATIONS_TO_CRASH {
            match self.random.below(30) {
                0 => self.settle_until_crashed().await,
                1 => {
                    let shard = self.bench.api.shard.clone();
                    self.settling.get_or_insert_with(|| glommio::spawn_local(settle_all(shard)));
                }
                _ => unseen = self.operation_that_may_fail().await,
            }
            if self.bench.store.crashed() {
                break;
            }
        }
        if !self.bench.store.crashed() {
            self.bench.store.crash_at(usize::MAX, Torn::Nothing);
            return;
        }
        self.tally.crashes += 1;
        self.tally.crashes_while_settling += u64::from(self.settling.is_some());
        self.reopen(unsynced).await;
        if let Some(operation) = unseen {
            self.resolve(&operation).await;
        }
        self.verify().await;
    }

    /// Finds out what has become of an operation.
    async fn resolve(&mut self, operation: &Operation) {
        let next = |model: &Model| model.world.streams.get(&operation.name).map(Stream::next);
        let before = next(self);
        let outcomes = outcomes(&self.world, operation);
        self.world = resolve(&self.bench, outcomes, &mut self.journal, operation).await;
        self.tally.unseen += 1;
        self.tally.unseen_kept += u64::from(before != next(self));
    }

    async fn settle_until_crashed(&mut self) {
        self.journal.note("settle".to_owned());
        let rewrites = settle_all(self.bench.api.shard.clone()).await;
        self.tally.rewrites += rewrites.unwrap_or(0);
        self.tally.crashes_while_settling += u64::from(self.bench.store.crashed());
    }

    /// Does an operation on a device that may fail; returns it if that left open what has become of it.
    async fn operation_that_may_fail(&mut self) -> Option<Operation> {
        let mut operation = choose(&mut self.random, &self.world, false);
        if self.random.one_in(20) {
            operation.act = Act::Delete;
        }
        let answer = self.send(&operation).await;
        // A long answer that cannot be read to its end is cut.
        let length = answer.header("content-length").map_or(0, |text| text.parse().expect("a number"));
        let is_cut = !matches!(operation.act, Act::Head) && length > answer.body.len();
        let failed = answer.status >= 500 || holds(&answer.body, b"SHARD_LATCHED") || is_cut;
        if self.bench.store.crashed() && failed {
            return Some(operation);
        }
        judge(&mut self.world, &operation, &answer);
        None
    }

    async fn send(&mut self, operation: &Operation) -> Answer {
        self.journal.note(format!("{operation:?}"));
        Server::send(&self.bench, &operation.request(&self.world)).await
    }

    /// Leaves no space for another segment: what adds is refused and leaves nothing behind, what frees is done.
    pub async fn fill_disk(&mut self) {
        self.journal.note("the disk is full".to_owned());
        let is_usable = |stream: &Stream| stream.kind == Kind::Text && !stream.closed;
        if self.world.streams.get(&BULK).is_some_and(|stream| !is_usable(stream)) {
            self.perform(BULK, Act::Delete).await;
        }
        if !self.world.streams.contains_key(&BULK) {
            let create = Create { kind: Kind::Text, closed: false, attributes: None, content: None };
            self.perform(BULK, Act::Create(create)).await;
        }
        self.bench.store.set_capacity(Some(0));
        let mut refused = 0;
        while refused < REFUSALS {
            let fills = refused == 0 && self.world.streams.get(&BULK).is_some_and(is_usable);
            let operation = match fills {
                true => {
                    let content = text(&self.random.letters(BULK_BYTES));
                    Operation { name: BULK, act: Act::Append(Append::of(Kind::Text, content)) }
                }
                false => choose(&mut self.random, &self.world, false),
            };
            let answer = self.send(&operation).await;
            if answer.status == 507 {
                refused += 1;
                continue;
            }
            refused += u64::from(holds(&answer.body, b"DISK_FULL"));
            let (operation, answer) = without_refused(operation, answer);
            judge(&mut self.world, &operation, &answer);
        }
        self.tally.refused += refused;
        // There is space again.
        self.restart().await;
        self.perform(BULK, Act::Delete).await;
    }

    async fn perform(&mut self, name: usize, act: Act) {
        perform(&self.bench, &mut self.world, &mut self.journal, &Operation { name, act }).await;
    }
}

/// A batch and its acknowledgements without frames that a full disk has refused: the others are as if sent alone.
fn without_refused(operation: Operation, mut answer: Answer) -> (Operation, Answer) {
    let Operation { name, act: Act::Batch { kind, frames } } = &operation else { return (operation, answer) };
    let Ok(Value::Array(mut acknowledged)) = serde_json::from_slice(&answer.body) else {
        return (operation, answer);
    };
    assert_eq!(acknowledged.len(), frames.len(), "{answer:?}");
    let is_refused = |ack: &Value| ack["error_code"] == "DISK_FULL";
    let taken = frames.iter().zip(&acknowledged).filter(|(_, ack)| !is_refused(ack));
    let frames: Vec<Content> = taken.map(|(frame, _)| frame.clone()).collect();
    acknowledged.retain(|ack| !is_refused(ack));
    answer.body = Value::Array(acknowledged).to_string().into_bytes();
    (Operation { name: *name, act: Act::Batch { kind: *kind, frames } }, answer)
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}
