//! When the next request is due.
//!
//! Closed loop: as soon as a connection is free; no pacer. Open loop: at fixed times that do not depend on how the server
//! does. A request that finds no free connection waits, and its latency counts from the time it was due, so that a server
//! that stalls is charged for every request of the stall (no coordinated omission).
//!
//! Invariant: the k-th request is due at `start + k / rate`, computed from k, so that rounding never adds up.

use super::clock::SECOND_NS;

/// The schedule of an open loop.
#[derive(Clone, Debug)]
pub struct Pacer {
    start_ns: u64,
    period_ns: f64,
    /// Requests taken so far.
    taken: u64,
}

impl Pacer {
    /// `rate_per_s` requests a second over `sharers` threads that take turns; this is the pacer of the `turn`-th.
    pub fn new(start_ns: u64, rate_per_s: f64, sharers: usize, turn: usize) -> Self {
        assert!(rate_per_s > 0.0 && rate_per_s.is_finite(), "a rate of {rate_per_s}/s");
        assert!(turn < sharers, "turn {turn} of {sharers}");
        let apart_ns = SECOND_NS as f64 / rate_per_s;
        let start_ns = start_ns + (apart_ns * turn as f64) as u64;
        Self { start_ns, period_ns: apart_ns * sharers as f64, taken: 0 }
    }

    /// When the next request is due.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.start_ns + (self.taken as f64 * self.period_ns) as u64
    }

    /// Takes the next request if it is due: the time that it was due at.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_ns();
        (due_ns <= now_ns).then(|| {
            self.taken += 1;
            due_ns
        })
    }

    /// Requests that were due before `now_ns` and that nobody has taken.
    pub fn behind(&self, now_ns: u64) -> u64 {
        let due = now_ns.saturating_sub(self.start_ns) as f64 / self.period_ns;
        (due as u64).saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_evenly_and_do_not_drift() {
        let mut pacer = Pacer::new(1_000, 3.0, 1, 0);
        let due: Vec<u64> = (0..4).map(|_| pacer.take(u64::MAX).unwrap()).collect();
        assert_eq!(due, [1_000, 333_334_333, 666_667_666, 1_000_001_000]);
        let mut pacer = Pacer::new(0, 3.0, 1, 0);
        for _ in 0..3_000_000 {
            pacer.take(u64::MAX);
        }
        let million_seconds = 1_000_000 * SECOND_NS;
        assert!(pacer.next_ns().abs_diff(million_seconds) <= 1, "{}", pacer.next_ns());
    }

    #[test]
    fn nothing_is_due_early_and_nothing_is_skipped_late() {
        let mut pacer = Pacer::new(0, 1_000.0, 1, 0);
        assert_eq!(pacer.take(0), Some(0));
        assert_eq!(pacer.take(999_999), None);
        // After a stall every request of it is still handed out, with the time at which it was due.
        assert_eq!(pacer.behind(10_000_000), 9);
        let late: Vec<u64> = std::iter::from_fn(|| pacer.take(3_500_000)).collect();
        assert_eq!(late, [1_000_000, 2_000_000, 3_000_000]);
        assert_eq!(pacer.behind(10_000_000), 6);
    }

    #[test]
    fn threads_take_turns() {
        let mut pacers = [0, 1, 2].map(|turn| Pacer::new(0, 1_000.0, 3, turn));
        let mut due: Vec<u64> = pacers
            .iter_mut()
            .flat_map(|pacer| [pacer.take(u64::MAX), pacer.take(u64::MAX)])
            .flatten()
            .collect();
        due.sort_unstable();
        assert_eq!(due, [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);
    }
}
