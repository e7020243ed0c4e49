//! Time as everything here tells it: nanoseconds since the run began, on the monotonic clock. All threads of a run share the
//! origin, so that a time which one wrote into a record means the same to the one that reads it.

use std::time::{Duration, Instant};

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// The clock of a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        elapsed.as_secs() * SECOND_NS + u64::from(elapsed.subsec_nanos())
    }

    /// How long until then; nothing if it has passed.
    pub fn until(&self, at_ns: u64) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.now_ns()))
    }
}
