//! Segments whose rewrite failed: others must not wait for them, and the same is not tried again and again.

use std::collections::{HashMap, HashSet};

use crate::storage::settle::SettleError;

/// See the module.
#[derive(Debug, Default)]
pub struct LeftAlone {
    /// Damaged, or too large to be rewritten: until a restart.
    for_good: HashSet<u32>,
    /// The output could not be written: until something else has happened.
    for_now: HashSet<u32>,
    /// A large append goes on behind them: until the segment of this index is sealed, and after how many tries.
    until: HashMap<u32, (u32, u32)>,
}

impl LeftAlone {
    /// Whether a segment may be rewritten, when `newest` is the highest index of a sealed one.
    pub fn allows(&self, segment: u32, newest: u32) -> bool {
        !self.for_good.contains(&segment)
            && !self.for_now.contains(&segment)
            && self.until.get(&segment).is_none_or(|(index, _)| newest >= *index)
    }

    /// The rewrite of `segments` failed.
    pub fn failed(&mut self, segments: &[u32], newest: u32, error: &SettleError) {
        match error {
            SettleError::Ending => {}
            SettleError::Io { .. } => self.for_now.extend(segments),
            SettleError::TooLarge | SettleError::Read(_) | SettleError::Footer { .. } => {
                self.for_good.extend(segments);
            }
            SettleError::NamedLater => {
                for segment in segments {
                    // At the end of the log the next seal helps. Where it does not, ever rarer tries cost nothing.
                    let tries = self.until.get(segment).map_or(0, |(_, tries)| *tries);
                    self.until.insert(*segment, (newest + (1 << tries.min(10)), tries + 1));
                }
            }
        }
    }

    /// Something has happened: what could not be written may be tried again.
    pub fn try_again(&mut self) {
        self.for_now.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io() -> SettleError {
        SettleError::Io { path: String::new(), what: "writing it", source: std::io::Error::other("full") }
    }

    #[test]
    fn what_failed_is_tried_again_when_that_may_help() {
        let mut left_alone = LeftAlone::default();
        left_alone.failed(&[1], 9, &SettleError::TooLarge);
        left_alone.failed(&[2], 9, &io());
        left_alone.failed(&[3], 9, &SettleError::NamedLater);
        left_alone.failed(&[4], 9, &SettleError::Ending);
        let allowed = |left_alone: &LeftAlone, newest| -> Vec<u32> {
            (1..=4).filter(|segment| left_alone.allows(*segment, newest)).collect()
        };
        assert_eq!(allowed(&left_alone, 9), [4]);
        assert_eq!(allowed(&left_alone, 10), [3, 4], "another segment is sealed");
        left_alone.try_again();
        assert_eq!(allowed(&left_alone, 9), [2, 4]);
        left_alone.failed(&[3], 10, &SettleError::NamedLater);
        assert_eq!(allowed(&left_alone, 11), [2, 4], "the second time it waits for two");
        assert_eq!(allowed(&left_alone, 12), [2, 3, 4]);
    }
}
