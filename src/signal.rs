//! How tasks of one core tell each other that something has happened: [`Signal`] to one task, remembered until it is waited
//! for; [`News`] to all that wait. And how a task that has more to do lets the others run ([`give_way`]) or sleeps for a moment
//! ([`nap`]), so that the core knows of it: it must not wait for sockets then. (Unix signals are the business of
//! `node::signals`.)

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::thread::LocalKey;
use std::time::Duration;

use glommio::timer::Timer;

thread_local! {
    static GIVING_WAY: Cell<usize> = const { Cell::new(0) };
    static NAPPING: Cell<usize> = const { Cell::new(0) };
}

/// How many tasks of this core have more to do and only let others run.
pub fn giving_way() -> usize {
    GIVING_WAY.get()
}

/// Lets every other task of the queue run that can.
pub async fn give_way() {
    counted(futures_lite::future::yield_now()).await;
}

/// The same, if the executor's timer says that others have waited long enough: nearly free if not.
pub async fn give_way_if_needed() {
    counted(glommio::yield_if_needed()).await;
}

async fn counted(turn: impl Future<Output = ()>) {
    let _counted = Counted::begin(&GIVING_WAY);
    turn.await;
}

/// How many tasks of this core take a [`nap`].
pub fn napping() -> usize {
    NAPPING.get()
}

/// Sleeps for a time that must not become longer because the core waits for sockets, where the executor's timers are not looked
/// at: until it is over the core waits in the executor.
pub async fn nap(duration: Duration) {
    let _counted = Counted::begin(&NAPPING);
    Timer::new(duration).await;
}

/// Counts a task for as long as it lives.
struct Counted(&'static LocalKey<Cell<usize>>);

impl Counted {
    fn begin(tasks: &'static LocalKey<Cell<usize>>) -> Counted {
        tasks.set(tasks.get() + 1);
        Counted(tasks)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A flag that one task waits for.
#[derive(Debug, Default)]
pub struct Signal {
    is_set: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Signal {
    /// Sets the flag and wakes the waiter, or the next one to wait. Setting it twice is setting it once.
    pub fn notify(&self) {
        if self.is_set.replace(true) {
            return;
        }
        // Taken out first: a wake may run the waiter at once.
        let waiter = self.waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits until the flag is set, and clears it. One waiter at a time.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.is_set.take() {
                return Poll::Ready(());
            }
            let mut waiter = self.waiter.borrow_mut();
            match &*waiter {
                Some(registered) if registered.will_wake(context.waker()) => {}
                _ => *waiter = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

/// Something that happens again and again, and that any number of tasks wait for. A task looks at its state first, then waits
/// without another await between: what is announced after that wakes it.
#[derive(Debug, Default)]
pub struct News {
    announced: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl News {
    /// It has happened: everyone who waits looks again.
    pub fn announce(&self) {
        self.announced.set(self.announced.get() + 1);
        // Taken out first: a wake may run the waiter at once.
        let wakers = self.wakers.take();
        for waker in wakers {
            waker.wake();
        }
    }

    /// How often it has happened.
    pub fn announced(&self) -> u64 {
        self.announced.get()
    }

    /// Ready once it has happened more often than `announced` times. A task may be woken more often than needed.
    pub fn poll_after(&self, announced: u64, context: &Context<'_>) -> Poll<()> {
        if self.announced.get() != announced {
            return Poll::Ready(());
        }
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Waits until it happens after this call.
    pub fn next(&self) -> impl Future<Output = ()> {
        let announced = self.announced();
        poll_fn(move |context| self.poll_after(announced, context))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Woken {
        fn times(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_gives_way_counts_until_it_goes_on_or_ends() {
        let mut context = Context::from_waker(Waker::noop());
        {
            let (mut first, mut second) = (pin!(give_way()), pin!(give_way()));
            assert_eq!(giving_way(), 0, "it has not begun");
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert!(second.as_mut().poll(&mut context).is_pending());
            assert_eq!(giving_way(), 2);
            assert!(first.as_mut().poll(&mut context).is_ready());
            assert_eq!(giving_way(), 1);
        }
        assert_eq!(giving_way(), 0, "one that was dropped does not count");
    }

    #[test]
    fn a_task_that_sleeps_for_a_moment_counts_meanwhile() {
        let executor = glommio::LocalExecutorBuilder::default().ring_depth(64).io_memory(64 << 10).make();
        executor.expect("an executor can be made").run(async {
            let mut sleep = pin!(nap(Duration::from_micros(50)));
            assert_eq!(napping(), 0, "it has not begun");
            assert!(futures_lite::future::poll_once(sleep.as_mut()).await.is_none());
            assert_eq!(napping(), 1);
            sleep.await;
            assert_eq!(napping(), 0);
        });
    }

    #[test]
    fn a_flag_set_before_it_is_waited_for_is_kept_and_counts_once() {
        let signal = Signal::default();
        let mut context = Context::from_waker(Waker::noop());
        signal.notify();
        signal.notify();
        assert!(pin!(signal.wait()).poll(&mut context).is_ready());
        assert!(pin!(signal.wait()).poll(&mut context).is_pending(), "it was cleared");
    }

    #[test]
    fn the_task_that_waited_last_is_woken_once_for_each_wait() {
        let signal = Signal::default();
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut wait = pin!(signal.wait());
        for woken in [&first, &second, &second] {
            let waker = Waker::from(woken.clone());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        signal.notify();
        signal.notify();
        assert_eq!((first.times(), second.times()), (0, 1));
        assert!(wait.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        signal.notify();
        assert_eq!(second.times(), 1, "nobody waits");
    }
    thread_local! {
        static OWN: Signal = Signal::default();
    }

    /// A wake that runs the waiter at once, as some executors' wakers do.
    struct AtOnce;

    impl Wake for AtOnce {
        fn wake(self: Arc<Self>) {
            let mut context = Context::from_waker(Waker::noop());
            OWN.with(|signal| assert!(pin!(signal.wait()).poll(&mut context).is_ready()));
            OWN.with(|signal| assert!(pin!(signal.wait()).poll(&mut context).is_pending()));
        }
    }

    #[test]
    fn news_reach_everyone_who_waits_and_count_from_the_call_on() {
        let news = News::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        news.announce();
        let (mut first, mut second) = (pin!(news.next()), pin!(news.next()));
        assert!(first.as_mut().poll(&mut context).is_pending(), "what was before the call does not count");
        assert!(first.as_mut().poll(&mut context).is_pending());
        news.announce();
        assert_eq!(woken.times(), 1);
        assert!(first.poll(&mut context).is_ready());
        assert!(second.as_mut().poll(&mut context).is_ready(), "it happened before the first poll");
    }

    #[test]
    fn a_wake_may_run_the_waiter_at_once() {
        OWN.with(|signal| {
            let waker = Waker::from(Arc::new(AtOnce));
            assert!(pin!(signal.wait()).poll(&mut Context::from_waker(&waker)).is_pending());
            signal.notify();
        });
    }
}
