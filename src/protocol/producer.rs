//! Idempotent producers (base protocol 5.2.1): what to do with an append that claims an epoch and a sequence number.

/// A producer's claim on an append: `Producer-Id`, `Producer-Epoch` and `Producer-Seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer<'a> {
    /// Client-chosen id, opaque.
    pub id: &'a [u8],
    /// Session of the producer.
    pub epoch: u64,
    /// Number of this append within the epoch.
    pub seq: u64,
}

/// What a stream remembers of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Its highest epoch.
    pub epoch: u64,
    /// The highest sequence number accepted in that epoch.
    pub last_seq: u64,
}

/// What to do with an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one.
    Accept,
    /// It was accepted before: answer as then (204).
    Duplicate,
    /// A newer session has taken over: 403 with the present epoch.
    StaleEpoch {
        /// The present epoch.
        current: u64,
    },
    /// A new epoch has to start at sequence 0: 400.
    NewEpochNotZero,
    /// Sequence numbers are missing: 409.
    Gap {
        /// The one that comes next.
        expected: u64,
    },
}

/// Judges a claim. `state` is what the stream knows of the producer, staged appends included.
///
/// The order of answers is the caller's (decision 7): `StaleEpoch` and `Duplicate` come before a closed stream and a
/// wrong content type, `NewEpochNotZero` and `Gap` after them.
pub fn decide(state: Option<ProducerState>, epoch: u64, seq: u64) -> Verdict {
    match state {
        // A producer that is new to the stream may open with any epoch (it may have written to others before).
        None if seq == 0 => Verdict::Accept,
        None => Verdict::Gap { expected: 0 },
        Some(state) if epoch < state.epoch => Verdict::StaleEpoch { current: state.epoch },
        Some(state) if epoch > state.epoch => {
            if seq == 0 {
                Verdict::Accept
            } else {
                Verdict::NewEpochNotZero
            }
        }
        Some(state) if seq <= state.last_seq => Verdict::Duplicate,
        Some(state) if seq == state.last_seq + 1 => Verdict::Accept,
        Some(state) => Verdict::Gap { expected: state.last_seq + 1 },
    }
}

/// The sequence number that would be accepted next in `epoch`: `Producer-Expected-Seq` of every 409 to a producer.
pub fn expected_seq(state: Option<ProducerState>, epoch: u64) -> u64 {
    match state {
        Some(state) if state.epoch == epoch => state.last_seq + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn verdicts() {
        let state = |epoch, last_seq| Some(ProducerState { epoch, last_seq });
        let table = [
            (None, 0, 0, Verdict::Accept),
            (None, 7, 0, Verdict::Accept),
            (None, 0, 1, Verdict::Gap { expected: 0 }),
            (state(0, 0), 0, 1, Verdict::Accept),
            (state(0, 0), 0, 0, Verdict::Duplicate),
            (state(0, 5), 0, 3, Verdict::Duplicate),
            (state(0, 5), 0, 5, Verdict::Duplicate),
            (state(0, 5), 0, 6, Verdict::Accept),
            (state(0, 5), 0, 7, Verdict::Gap { expected: 6 }),
            (state(1, 5), 0, 6, Verdict::StaleEpoch { current: 1 }),
            (state(1, 5), 0, 0, Verdict::StaleEpoch { current: 1 }),
            (state(0, 5), 1, 0, Verdict::Accept),
            (state(0, 5), 9, 0, Verdict::Accept),
            (state(0, 5), 1, 5, Verdict::NewEpochNotZero),
            (state(0, 5), 1, 6, Verdict::NewEpochNotZero),
        ];
        for (state, epoch, seq, expected) in table {
            assert_eq!(decide(state, epoch, seq), expected, "{state:?} epoch {epoch} seq {seq}");
        }
    }

    proptest! {
        /// What is accepted once is never accepted again, and the expected number is exactly the one accepted.
        #[test]
        fn each_claim_is_accepted_at_most_once(claims in proptest::collection::vec((0u64..4, 0u64..6), 0..200)) {
            let mut state = None;
            let mut accepted = std::collections::HashSet::new();
            for (epoch, seq) in claims {
                let verdict = decide(state, epoch, seq);
                if verdict == Verdict::Accept {
                    prop_assert!(accepted.insert((epoch, seq)), "epoch {} seq {} twice", epoch, seq);
                    prop_assert_eq!(expected_seq(state, epoch), seq);
                    state = Some(ProducerState { epoch, last_seq: seq });
                } else if accepted.contains(&(epoch, seq)) {
                    prop_assert!(matches!(verdict, Verdict::Duplicate | Verdict::StaleEpoch { .. }), "{:?}", verdict);
                } else {
                    prop_assert_ne!(verdict, Verdict::Duplicate);
                }
            }
        }
    }
}
