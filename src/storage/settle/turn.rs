//! Giving way: work in small slices, so that nobody on the core waits long for settling.
//!
//! The executor's own yields do not do: a task of this queue that yields while it alone can run is run again at once, and what
//! the disk has read meanwhile is not looked at. A short sleep makes the executor look.

use std::time::{Duration, Instant};

use crate::signal;
use crate::storage::log::Inner;

/// Work between two looks at the rest of the world.
const SLICE: Duration = Duration::from_micros(200);
/// The shortest sleep.
const NAP: Duration = Duration::from_micros(1);
/// What is left to others after a slice while the log is in use.
const PAUSE: Duration = Duration::from_micros(400);

/// A task's use of the core.
pub struct Turn<'a> {
    inner: &'a Inner,
    since: Instant,
    durable: u64,
}

impl<'a> Turn<'a> {
    /// The task has just got the core.
    pub(in crate::storage) fn new(inner: &'a Inner) -> Turn<'a> {
        Turn { inner, since: Instant::now(), durable: inner.durable.get() }
    }

    /// Lets others run, if it is their turn.
    pub async fn give_way(&mut self) {
        if self.since.elapsed() < SLICE {
            return;
        }
        let durable = self.inner.durable.get();
        let is_busy = durable != self.durable;
        signal::nap(if is_busy { PAUSE } else { NAP }).await;
        self.durable = durable;
        self.since = Instant::now();
    }
}
