//! When a stream expires (base protocol 5.1; decision 24).
//!
//! A sliding time to live restarts with each use. Uses are too many to log each: one is recorded (a renewal event) only
//! when the last recorded one is a tenth of the window old. So
//!
//! - while the server runs, the last use is known exactly, and a stream expires a window after it;
//! - a use that was not recorded lies less than a tenth of a window after one that was;
//! - after a restart a stream expires a window and a tenth after its last recorded use: never early, whatever the crash
//!   took with it.
//!
//! ```text
//!  recorded use        last use              earliest        latest
//!  |-- < window/10 ----|---------- window ---------|              |
//!  |------------------- window + window/10 -----------------------|
//! ```

/// How a stream ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// It does not.
    #[default]
    Never,
    /// A time after its last use (`Stream-TTL`).
    Sliding {
        /// The window.
        ttl_seconds: u64,
    },
    /// At an instant (`Stream-Expires-At`).
    Absolute {
        /// The instant, Unix milliseconds.
        at_ms: u64,
    },
}

impl Expiry {
    /// From the two members that the log keeps; at most one is there.
    pub fn from_parts(ttl_seconds: Option<u64>, expires_at_ms: Option<u64>) -> Self {
        match (ttl_seconds, expires_at_ms) {
            (None, None) => Self::Never,
            (Some(ttl_seconds), None) => Self::Sliding { ttl_seconds },
            (None, Some(at_ms)) => Self::Absolute { at_ms },
            (Some(ttl), Some(at)) => panic!("a stream with both expiries: {ttl} s and {at} ms"),
        }
    }

    /// `Stream-TTL`, if that is its form.
    pub fn ttl_seconds(self) -> Option<u64> {
        match self {
            Self::Sliding { ttl_seconds } => Some(ttl_seconds),
            _ => None,
        }
    }

    /// `Stream-Expires-At` in Unix milliseconds, if that is its form.
    pub fn expires_at_ms(self) -> Option<u64> {
        match self {
            Self::Absolute { at_ms } => Some(at_ms),
            _ => None,
        }
    }

    /// The window of a sliding time to live, in milliseconds.
    fn window_ms(self) -> Option<u64> {
        self.ttl_seconds().map(|seconds| seconds.saturating_mul(1000))
    }

    /// When the stream expires, its last use being known: `None` if never. A stream is expired from that millisecond on.
    pub fn deadline_ms(self, last_use_ms: u64) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Absolute { at_ms } => Some(at_ms),
            Self::Sliding { .. } => self.window_ms().map(|window| last_use_ms.saturating_add(window)),
        }
    }

    /// When the stream expires after a restart, only its last recorded use being known. A later use moves it by
    /// [`Expiry::deadline_ms`].
    pub fn deadline_after_restart_ms(self, recorded_use_ms: u64) -> Option<u64> {
        match self {
            Self::Sliding { .. } => self
                .window_ms()
                .map(|window| recorded_use_ms.saturating_add(window).saturating_add(tenth(window))),
            _ => self.deadline_ms(recorded_use_ms),
        }
    }

    /// When a use must be recorded next: a use at or after this time must be logged before its answer (or with the next
    /// commit), and a stream with a live reader attached must be renewed by then. `None` if uses do not count.
    pub fn renewal_due_ms(self, recorded_use_ms: u64) -> Option<u64> {
        self.window_ms().map(|window| recorded_use_ms.saturating_add(tenth(window)))
    }

    /// Whether a use at `now_ms` must be recorded.
    pub fn must_record(self, recorded_use_ms: u64, now_ms: u64) -> bool {
        self.renewal_due_ms(recorded_use_ms).is_some_and(|due_ms| now_ms >= due_ms)
    }
}

/// A tenth of a window; at least a millisecond, so that a window of zero does not record without end.
fn tenth(window_ms: u64) -> u64 {
    (window_ms / 10).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deadlines() {
        let sliding = Expiry::Sliding { ttl_seconds: 10 };
        assert_eq!(Expiry::Never.deadline_ms(5), None);
        assert_eq!(Expiry::Never.deadline_after_restart_ms(5), None);
        assert!(!Expiry::Never.must_record(0, u64::MAX));
        let absolute = Expiry::Absolute { at_ms: 77 };
        assert_eq!((absolute.deadline_ms(5), absolute.deadline_after_restart_ms(5)), (Some(77), Some(77)));
        assert!(!absolute.must_record(0, u64::MAX));
        assert_eq!(sliding.deadline_ms(5000), Some(15_000));
        assert_eq!(sliding.deadline_after_restart_ms(5000), Some(16_000));
        assert!(!sliding.must_record(5000, 5999) && sliding.must_record(5000, 6000));
        let none = Expiry::Sliding { ttl_seconds: 0 };
        assert_eq!(none.deadline_ms(5), Some(5));
        assert!(!none.must_record(5, 5));
    }

    #[test]
    fn the_longest_window_fits() {
        let longest = Expiry::Sliding { ttl_seconds: crate::limits::TTL_SECONDS_MAX };
        let deadline = longest.deadline_after_restart_ms(2_000_000_000_000).unwrap();
        assert!(deadline > 2_000_000_000_000 && deadline < u64::MAX / 2);
    }

    #[test]
    #[should_panic(expected = "both expiries")]
    fn both_forms_at_once_are_a_fault_of_ours() {
        Expiry::from_parts(Some(1), Some(1));
    }

    proptest! {
        /// Uses at any times, a crash after any of them: the deadline after the restart is never before a window after
        /// the last use, and never later than a window and a tenth after it.
        #[test]
        fn expiry_never_comes_early(
            ttl_seconds in 1u64..100_000,
            gaps_ms in proptest::collection::vec(0u64..20_000, 1..50),
        ) {
            let expiry = Expiry::Sliding { ttl_seconds };
            let window = ttl_seconds * 1000;
            let (mut recorded, mut last_use) = (1_000_000, 1_000_000);
            for gap in gaps_ms {
                last_use += gap;
                if expiry.must_record(recorded, last_use) {
                    recorded = last_use;
                }
                let after_restart = expiry.deadline_after_restart_ms(recorded).unwrap();
                prop_assert!(after_restart >= last_use + window);
                prop_assert!(after_restart <= last_use + window + window / 10);
            }
        }
    }
}
