//! A thread that nudges every executor now and then, so that none sleeps on work for long.
//!
//! The executor (glommio 0.9.0, `run_task_queues`) skips its task queues when the latency ring has a completion, and then
//! parks without looking whether a queue has work. Usually that completion is the preempt timer, expired because the
//! kernel took the core away just after it was armed. The tasks that were woken then wait for the next event, which on an
//! idle shard may never come. Measured with two cores, busy with other work: about one of twenty starts with eight shards
//! hung at a 500 us timer, none of 150 at 100 ms; and 100 ms is too long for a completion to wait under load.
//!
//! A nudge can itself be that completion: the event arrives after the wake was noticed, finds the tasks that have just been
//! woken, and has the executor park on them until the next nudge. (Seen with 16 clients: 5 commits a second were 5 ms late, a
//! p99 of 5 ms instead of 1.) So an executor that goes round by itself is left alone.
//!
//! A wake from another thread always makes an executor go round again, whatever state its tasks are in. Contract: a
//! runnable task waits at most twice `PAUSE_MAX` for such a nudge, and twice `PAUSE_MIN` on a server that has been doing work.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

/// Pause between nudges while any shard works.
const PAUSE_MIN: Duration = Duration::from_millis(4);
/// Pause between nudges once all shards are idle: doubled from the least one.
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// Nudges in a row that a shard may leave unanswered. Each holds a reference to a task, which counts them in 16 bits and
/// panics when they overflow: a shard that is stuck in one task for so long is left alone.
const UNANSWERED_MAX: u32 = 8192;

/// What the thread and one executor share.
#[derive(Debug, Default)]
pub struct Nudge {
    /// Wakes the executor's answering task.
    waker: OnceLock<Waker>,
    /// Nudges answered.
    answers: AtomicU64,
    /// Whether the executor ran anything but its answer since the one before.
    busy: AtomicBool,
    /// Rounds that the executor made by itself.
    rounds: AtomicU64,
    /// How many there were at the last look.
    rounds_seen: AtomicU64,
    /// Nudges since the last answer.
    unanswered: AtomicU32,
    /// The executor ended: its tasks must not be woken any more.
    ended: AtomicBool,
}

impl Nudge {
    /// Starts the answering task on the calling executor.
    pub fn answer(self: &Arc<Nudge>) {
        let nudge = self.clone();
        glommio::spawn_local(poll_fn(move |context| -> Poll<()> {
            nudge.waker.get_or_init(|| context.waker().clone());
            // This call also resets the count. One run is this answer's own.
            let ran = glommio::executor().executor_stats().tasks_executed();
            nudge.busy.store(ran > 1, Ordering::Relaxed);
            nudge.unanswered.store(0, Ordering::Relaxed);
            nudge.answers.fetch_add(1, Ordering::Relaxed);
            Poll::Pending
        }))
        .detach();
    }

    /// The executor has gone round by itself.
    pub fn progress(&self) {
        self.rounds.store(self.rounds.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The executor is about to end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Number of nudges that the executor answered.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Nudges the executor; returns whether it has been busy.
    fn nudge(&self) -> bool {
        let Some(waker) = self.waker.get() else { return true };
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        let rounds = self.rounds.load(Ordering::Relaxed);
        if self.rounds_seen.swap(rounds, Ordering::Relaxed) != rounds {
            return true;
        }
        if self.unanswered.fetch_add(1, Ordering::Relaxed) < UNANSWERED_MAX {
            waker.wake_by_ref();
        }
        self.busy.load(Ordering::Relaxed)
    }
}

/// Starts the thread; it ends with the process.
pub fn start(nudges: Vec<Arc<Nudge>>) -> std::io::Result<()> {
    let thread = thread::Builder::new().name("nudge".into()).spawn(move || {
        let mut pause = PAUSE_MIN;
        loop {
            thread::sleep(pause);
            // Each is nudged: no short cut at the first busy one.
            let busy = nudges.iter().fold(false, |busy, nudge| nudge.nudge() | busy);
            pause = if busy { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        }
    })?;
    drop(thread);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_an_executor_that_stands_still_is_nudged() {
        let (nudge, woken) = (Nudge::default(), Arc::new(Woken::default()));
        nudge.waker.get_or_init(|| Waker::from(woken.clone()));
        let table = [(true, 0), (true, 0), (false, 1), (false, 2), (true, 2), (false, 3)];
        for (progress, times) in table {
            if progress {
                nudge.progress();
            }
            let busy = nudge.nudge();
            assert!(busy || !progress, "an executor that goes round is busy");
            assert_eq!(woken.0.load(Ordering::Relaxed), times);
        }
        nudge.end();
        nudge.nudge();
        assert_eq!(woken.0.load(Ordering::Relaxed), 3, "one that has ended is left alone");
    }
}
