//! A pulse for every shard: works round an executor that can fall asleep with work to do.
//!
//! The executor arms its preemption timer, then runs tasks until it fires. If its thread loses the core in between for
//! longer than the timer, the timer has fired before the first task ran: the executor takes "ran nothing" for "nothing to
//! run" and parks, with runnable tasks queued (`run_task_queues` in glommio 0.9.0 and in glommio-ng 0.12). Whatever
//! completes next wakes it; a shard that waits for nothing else would sleep for ever. Seen as starts that hung on a busy
//! machine, about one in twenty.
//!
//! So one thread wakes every shard every [`PERIOD`], from outside, which works whatever the state of the executor. An idle
//! shard pays some microseconds for it; a shard in that trap loses a period at most.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

/// How often shards are woken.
pub const PERIOD: Duration = Duration::from_millis(20);

/// One shard's end of the pulse.
#[derive(Debug, Default)]
pub struct Pulse(Mutex<Option<Waker>>);

impl Pulse {
    /// Makes the calling task the one that is woken. Runs for as long as its executor does.
    pub async fn listen(self: Arc<Self>) {
        poll_fn(|context| {
            self.set(Some(context.waker().clone()));
            Poll::<()>::Pending
        })
        .await;
    }

    /// Ends the pulse: nothing of an executor may be woken once it is gone. Called on its thread.
    pub fn end(&self) {
        self.set(None);
    }

    fn set(&self, waker: Option<Waker>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    fn beat(&self) {
        // The lock is held, so that `end` returns only when nothing is being woken.
        if let Some(waker) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }
}

/// Starts the thread that wakes the shards, for as long as the process lives.
pub fn start(pulses: Vec<Arc<Pulse>>) -> io::Result<()> {
    let beat = move || {
        loop {
            thread::sleep(PERIOD);
            pulses.iter().for_each(|pulse| pulse.beat());
        }
    };
    thread::Builder::new().name("pulse".into()).spawn(beat).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_beat_wakes_until_the_end() {
        let (pulse, count) = (Arc::new(Pulse::default()), Arc::new(Count::default()));
        pulse.beat();
        let mut listening = Box::pin(pulse.clone().listen());
        let waker = Waker::from(count.clone());
        let polled = listening.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        pulse.beat();
        pulse.beat();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        pulse.end();
        pulse.beat();
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "nothing is woken after the end");
    }
}
