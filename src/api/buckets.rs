//! Buckets: create, metadata, delete (extension 1; decisions 3, 4). The listing is in [`super::listing`].
//!
//! A bucket's operations are served by its home shard, one change at a time, each run to its end whatever becomes of its
//! requester. The home's log has the truth.
//!
//! ```text
//!  create   log it -> every shard knows it, creates wait -> open everywhere -> 201
//!  delete   every shard lets creates wait, makes durable what is staged, and counts
//!             no stream at all  -> log it -> every shard forgets it; the creates that wait get 404 -> 204
//!             some              -> open everywhere; the creates that wait go on               -> 409
//!             a shard that cannot tell, or stops                                              -> 503, open everywhere
//!             the commit fails  -> only a restart tells: creates are refused until then       -> 503
//! ```
//!
//! So a create is either in the count, and durable then, or comes after the outcome. A shard that stops does not
//! answer; what it has is not counted as nothing. A crash at any point leaves the home's log: the bucket is there, with
//! every stream that was acknowledged, or its end is durable, and then no shard had a stream of it or could get one.

use async_channel::{Receiver, Sender};

use crate::http::service::{Fill, OneShot, Step, Wait};
use crate::http::{Method, Status};
use crate::protocol::digits;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::names;
use crate::shard::buckets::Phase;
use crate::shard::mail::{BucketMail, BucketRecord, Mail};
use crate::shard::table::Target;
use crate::shard::{Shard, now_ms};
use crate::storage::event::Event;
use crate::storage::log::{Class, Refusal, Room};

use super::answer::{BUCKET_NOT_FOUND, Manner};
use super::{Api, Request, listing, scheme};

/// Metadata bytes of a bucket's entry, generously.
const META_BYTES: usize = 128;
/// What the answers about a bucket have in common.
pub const JSON_NOT_STORED: &str = "Content-Type: application/json\r\nCache-Control: no-store\r\n";

/// A shard has stopped before it answered.
const STOPPING: Problem =
    Problem::fixed(Code::Overloaded, "the server is stopping; try again when it is back");
const NOT_EMPTY: Problem =
    Problem::fixed(Code::BucketNotEmpty, "the bucket holds streams: delete them first");
const NO_GENERATION: Problem =
    Problem::fixed(Code::Overloaded, "the shard is waiting for a new range of ids; try again");

/// Why a question about a bucket has no answer yet.
pub enum NotBegun {
    /// There is no such bucket.
    Missing,
    /// Not every shard knows it yet.
    Wait,
}

impl NotBegun {
    /// The step that tells, or waits.
    pub fn or_fail(self, api: &Api, request: &Request<'_>, out: &mut Vec<u8>) -> Step {
        match self {
            NotBegun::Missing => api.fail(request, out, &BUCKET_NOT_FOUND),
            NotBegun::Wait => Step::Again(Wait::Decision),
        }
    }
}

/// Why a change of a bucket is not in the log.
enum NotLogged {
    /// It was not staged.
    Refused(Refusal),
    /// Its commit failed: whether it is there shows at the next start.
    Undecided(Refusal),
}

impl Api {
    /// Serves `/{bucket}`.
    pub fn bucket(&self, request: &Request<'_>, bucket: &[u8], out: &mut Vec<u8>) -> Step {
        let (api, manner) = (self.clone(), request.manner);
        match request.head.method {
            Method::Put => {
                let mut location = Vec::new();
                let host = Some(request.head.authority);
                names::write_bucket_location(&mut location, scheme(self, request.head), host, bucket);
                let bucket = bucket.to_vec();
                OneShot::step(async move { api.create_bucket(manner, bucket, &location).await })
            }
            Method::Get | Method::Head => match self.begun(bucket) {
                Ok(bucket) => OneShot::step(async move { api.describe_bucket(manner, &bucket).await }),
                Err(not_begun) => not_begun.or_fail(self, request, out),
            },
            Method::Delete => {
                let bucket = bucket.to_vec();
                OneShot::step(async move { api.delete_bucket(manner, bucket).await })
            }
            Method::Post | Method::Options | Method::Other => {
                self.method_not_allowed(request, out, "GET, HEAD, PUT, DELETE, OPTIONS")
            }
        }
    }

    /// The present life of a bucket, for who wants to see it: not before every shard knows it, so that nobody who has seen
    /// it is told by a shard that it does not exist.
    pub fn begun(&self, bucket: &[u8]) -> Result<BucketRecord, NotBegun> {
        let buckets = self.shard.buckets.borrow();
        let found = buckets.get(bucket).ok_or(NotBegun::Missing)?;
        if found.phase == Phase::Beginning && !self.shard.stopping() {
            return Err(NotBegun::Wait);
        }
        Ok(BucketRecord { bucket: bucket.to_vec(), generation: found.generation })
    }

    async fn create_bucket(&self, manner: Manner, bucket: Vec<u8>, location: &[u8]) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        let api = self.clone();
        match to_its_end(async move { api.try_create_bucket(bucket).await }).await {
            Ok(()) => {
                let mut answer = self.answer(&mut out, Status::CREATED, manner);
                answer.header("Location", location);
                answer.no_body();
            }
            Err(problem) => self.problem(&mut out, manner, &problem),
        }
        (out, Fill::End)
    }

    async fn try_create_bucket(&self, bucket: Vec<u8>) -> Result<(), Problem> {
        let shard = &self.shard;
        let _gate = shard.bucket_gate.acquire_permit(1).await.expect("the gate is never closed");
        if shard.buckets.borrow().get(&bucket).is_some() {
            return Err(Problem::fixed(Code::BucketExists, "the bucket exists"));
        }
        let generation = shard.lineages.next(shard.index).ok_or(NO_GENERATION)?;
        let event = Event::BucketCreated { bucket: &bucket, generation };
        self.log_bucket(&event, Class::Append).await.map_err(|error| self.not_logged(error))?;
        let bucket = BucketRecord { bucket, generation };
        shard.buckets.borrow_mut().add(&bucket, Phase::Beginning);
        let asked = self.ask_others(|done| BucketMail::Begins { bucket: bucket.clone(), done });
        // A shard that stops before it knows the bucket learns of it at the next start.
        let _ = self.all_answers(asked).await;
        self.set_phase_everywhere(&bucket, Phase::Open);
        Ok(())
    }

    async fn delete_bucket(&self, manner: Manner, bucket: Vec<u8>) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        let api = self.clone();
        match to_its_end(async move { api.try_delete_bucket(bucket).await }).await {
            Ok(()) => self.answer(&mut out, Status::NO_CONTENT, manner).no_body(),
            Err(problem) => self.problem(&mut out, manner, &problem),
        }
        (out, Fill::End)
    }

    async fn try_delete_bucket(&self, bucket: Vec<u8>) -> Result<(), Problem> {
        let shard = &self.shard;
        let _gate = shard.bucket_gate.acquire_permit(1).await.expect("the gate is never closed");
        let (generation, phase) = {
            let buckets = shard.buckets.borrow();
            let found = buckets.get(&bucket).ok_or(BUCKET_NOT_FOUND)?;
            (found.generation, found.phase)
        };
        if phase == Phase::Undecided {
            // Nothing that happens now may open the bucket again.
            return Err(self.refusal(Refusal::Latched));
        }
        let bucket = BucketRecord { bucket, generation };
        if self.count(&bucket).await? > 0 {
            // Creates need not wait for an outcome that is known.
            return Err(NOT_EMPTY);
        }
        // Creates wait everywhere before anything is counted: one that was staged before is counted.
        self.set_phase(&bucket, Phase::Ending);
        let asked = self.ask_others(|count| BucketMail::Ends { bucket: bucket.clone(), count });
        let here = count_ending(shard, &bucket).await;
        let outcome = match self.all_answers(asked).await {
            Ok(mut counts) => {
                counts.push(here);
                self.decide(&counts)
            }
            Err(problem) => Err(problem),
        };
        if let Err(problem) = outcome {
            self.set_phase_everywhere(&bucket, Phase::Open);
            return Err(problem);
        }
        let event = Event::BucketDeleted { bucket: &bucket.bucket, generation };
        if let Err(error) = self.log_bucket(&event, Class::Control).await {
            let phase = match error {
                NotLogged::Refused(_) => Phase::Open,
                NotLogged::Undecided(_) => Phase::Undecided,
            };
            self.set_phase_everywhere(&bucket, phase);
            return Err(self.not_logged(error));
        }
        shard.buckets.borrow_mut().remove(&bucket);
        shard.decisions.announce();
        let asked = self.ask_others(|done| BucketMail::Ended { bucket: bucket.clone(), done });
        // A shard that stops meanwhile does not know the bucket at the next start.
        let _ = self.all_answers(asked).await;
        Ok(())
    }

    /// Whether a bucket of which the shards have so many streams can end.
    fn decide(&self, counts: &[Option<u64>]) -> Result<(), Problem> {
        if counts.iter().flatten().any(|count| *count > 0) {
            Err(NOT_EMPTY)
        } else if counts.contains(&None) {
            Err(self.refusal(Refusal::Latched))
        } else {
            Ok(())
        }
    }

    /// Logs a change of a bucket; returns when it is durable.
    async fn log_bucket(&self, event: &Event<'_>, class: Class) -> Result<(), NotLogged> {
        loop {
            match self.shard.room(META_BYTES, 0, class) {
                Room::Now => break,
                Room::Later => self.shard.log.wait_room().await,
                Room::Refused(refusal) => return Err(NotLogged::Refused(refusal)),
            }
        }
        let stamp = self.shard.stage(event, Target::ByLineage);
        self.shard.log.wait_durable(stamp.ticket).await.map_err(NotLogged::Undecided)
    }

    fn not_logged(&self, error: NotLogged) -> Problem {
        let (NotLogged::Refused(refusal) | NotLogged::Undecided(refusal)) = error;
        self.refusal(refusal)
    }

    async fn describe_bucket(&self, manner: Manner, bucket: &BucketRecord) -> (Vec<u8>, Fill) {
        let mut out = Vec::new();
        match self.count(bucket).await {
            Ok(streams) => {
                // A bucket id needs no escapes.
                let mut body = b"{\"bucket_id\":\"".to_vec();
                body.extend_from_slice(&bucket.bucket);
                body.extend_from_slice(b"\",\"streams\":");
                digits::write_u64(&mut body, streams);
                body.push(b'}');
                let mut answer = self.answer(&mut out, Status::OK, manner);
                answer.lines(JSON_NOT_STORED);
                answer.body(&body);
            }
            Err(problem) => self.problem(&mut out, manner, &problem),
        }
        (out, Fill::End)
    }

    /// Streams of a bucket on all shards: those that its listing shows.
    async fn count(&self, bucket: &BucketRecord) -> Result<u64, Problem> {
        let asked = self.ask_others(|count| BucketMail::Count { bucket: bucket.clone(), count });
        let here = count_here(&self.shard, bucket).await;
        let elsewhere: u64 = self.all_answers(asked).await?.into_iter().sum();
        // It may have ended meanwhile.
        self.shard.buckets.borrow().life(bucket).ok_or(BUCKET_NOT_FOUND)?;
        Ok(here + elsewhere)
    }

    /// Does what a bucket's home asks.
    pub fn bucket_mail(&self, mail: BucketMail) {
        let shard = self.shard.clone();
        // The asker may have stopped: so in all answers here.
        match mail {
            BucketMail::Begins { bucket, done } => {
                shard.buckets.borrow_mut().add(&bucket, Phase::Beginning);
                let _ = done.try_send(());
            }
            BucketMail::Phase { bucket, phase } => self.set_phase(&bucket, phase),
            BucketMail::Ends { bucket, count } => {
                // Also creates of requests that are served before the count begins must wait.
                self.set_phase(&bucket, Phase::Ending);
                glommio::spawn_local(async move {
                    let _ = count.try_send(count_ending(&shard, &bucket).await);
                })
                .detach();
            }
            BucketMail::Ended { bucket, done } => {
                shard.buckets.borrow_mut().remove(&bucket);
                shard.decisions.announce();
                let _ = done.try_send(());
            }
            BucketMail::Count { bucket, count } => {
                glommio::spawn_local(async move {
                    let _ = count.try_send(count_here(&shard, &bucket).await);
                })
                .detach();
            }
            BucketMail::Page { question, page } => {
                glommio::spawn_local(async move {
                    let _ = page.try_send(listing::page_here(&shard, &question).await);
                })
                .detach();
            }
        }
    }

    fn set_phase(&self, bucket: &BucketRecord, phase: Phase) {
        self.shard.buckets.borrow_mut().set_phase(bucket, phase);
        self.shard.decisions.announce();
    }

    fn set_phase_everywhere(&self, bucket: &BucketRecord, phase: Phase) {
        self.set_phase(bucket, phase);
        for mailbox in self.other_mailboxes() {
            // A closed mailbox is a shard that has stopped.
            let _ = mailbox.try_send(Mail::Bucket(BucketMail::Phase { bucket: bucket.clone(), phase }));
        }
    }

    fn other_mailboxes(&self) -> impl Iterator<Item = &Sender<Mail>> {
        let own = self.shard.index;
        let all = self.shard.mailboxes.0.iter().enumerate();
        all.filter(move |(shard, _)| *shard != own).map(|(_, mailbox)| mailbox)
    }

    /// Sends a question to every other shard.
    pub fn ask_others<T>(&self, question: impl Fn(Sender<T>) -> BucketMail) -> Receiver<T> {
        let others = self.shard.shards - 1;
        let (sender, receiver) = async_channel::bounded(others.max(1));
        for mailbox in self.other_mailboxes() {
            // A closed mailbox is a shard that has stopped: it drops its sender, and is not waited for.
            let _ = mailbox.try_send(Mail::Bucket(question(sender.clone())));
        }
        receiver
    }

    /// The answers of all other shards; an error if one of them stops instead.
    pub async fn all_answers<T>(&self, receiver: Receiver<T>) -> Result<Vec<T>, Problem> {
        let mut answers = Vec::new();
        while let Ok(answer) = receiver.recv().await {
            answers.push(answer);
        }
        if answers.len() == self.shard.shards - 1 { Ok(answers) } else { Err(STOPPING) }
    }
}

/// Runs a change to its end, also if who waits for it goes away: what it has begun on other shards must be ended.
async fn to_its_end<T: 'static>(change: impl Future<Output = T> + 'static) -> T {
    glommio::spawn_local(change).detach().await.expect("a task ends before its executor")
}

/// Streams of a bucket on this shard that its listing shows. A running count, from which streams that have expired are
/// taken by deleting them first: a listing does the same, so both agree with each other and with what a request to such
/// a stream is told. Only where the log takes no delete any more they are looked for one by one.
async fn count_here(shard: &Shard, bucket: &BucketRecord) -> u64 {
    let (now_ms, all_gone) = shard.expire_before_now().await;
    if all_gone {
        return shard.buckets.borrow().life(bucket).map_or(0, |bucket| bucket.durable());
    }
    listing::count_listed(shard, bucket, now_ms).await
}

/// Streams of a bucket on this shard once everything staged is durable; creates in it wait meanwhile. `None` if a
/// failed commit held some of its last creates.
async fn count_ending(shard: &Shard, bucket: &BucketRecord) -> Option<u64> {
    shard.expire_due(now_ms()).await;
    let created_ticket = shard.buckets.borrow().life(bucket).map_or(0, |bucket| bucket.created_ticket());
    // Deletes under way are waited for as well: the answer to one may be on its way, and its stream is not counted then.
    let settled = shard.log.wait_durable(created_ticket).await.is_ok() & shard.wait_deleted().await;
    let buckets = shard.buckets.borrow();
    let Some(bucket) = buckets.life(bucket) else { return Some(0) };
    assert!(!settled || bucket.staged() == 0, "{} creates are staged in a bucket that ends", bucket.staged());
    (bucket.durable() > 0 || bucket.staged() == 0).then(|| bucket.durable())
}
