//! What a connection has written, in a form that costs the hot path nothing: the streams it goes through are known, so the
//! number of its requests tells every record and where it belongs. Only what was not acknowledged is noted.

use std::ops::Range;
use std::sync::Arc;

/// The book of one connection.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The connection.
    pub connection: u32,
    /// The streams that it goes through.
    streams: Arc<[u32]>,
    /// Place in `streams` of its first request.
    first: usize,
    /// How far it moves after each: 1, or 0 to stay.
    step: usize,
    /// Place of the next request.
    place: usize,
    /// Records of a request.
    frames: u64,
    /// Requests sent.
    operations: u64,
    /// Requests answered, whatever the answer was.
    answered: u64,
    /// Numbers of records that were not acknowledged, in the order in which that became known.
    unacknowledged: Vec<Range<u64>>,
}

/// A request that is about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The stream it goes to.
    pub stream: u32,
    /// Number of its first record.
    pub number: u64,
}

impl Ledger {
    /// An empty book. The connection begins at `streams[first]` (modulo their number) and stays there, or goes round.
    pub fn new(connection: u32, streams: Arc<[u32]>, first: usize, stays: bool, frames: usize) -> Self {
        assert!(!streams.is_empty(), "connection {connection} has streams");
        let first = first % streams.len();
        let step = usize::from(!stays);
        Self {
            connection,
            streams,
            first,
            step,
            place: first,
            frames: frames as u64,
            operations: 0,
            answered: 0,
            unacknowledged: Vec::new(),
        }
    }

    /// Enters a request.
    #[inline]
    pub fn begin(&mut self) -> Next {
        let next = Next { stream: self.streams[self.place], number: self.operations * self.frames };
        self.operations += 1;
        self.place += self.step;
        if self.place == self.streams.len() {
            self.place = 0;
        }
        next
    }

    /// The oldest request was answered: all is acknowledged.
    #[inline]
    pub fn acknowledge(&mut self) {
        self.answered += 1;
        debug_assert!(self.answered <= self.operations, "{} of {}", self.answered, self.operations);
    }

    /// The oldest request was answered with an error.
    pub fn refuse(&mut self) {
        self.unacknowledged.push(self.answered * self.frames..(self.answered + 1) * self.frames);
        self.answered += 1;
    }

    /// Of the oldest request, which will be acknowledged, this frame was not.
    pub fn refuse_frame(&mut self, frame: u64) {
        let number = self.answered * self.frames + frame;
        self.unacknowledged.push(number..number + 1);
    }

    /// All requests under way will not be answered.
    pub fn lose(&mut self) {
        if self.answered < self.operations {
            self.unacknowledged.push(self.answered * self.frames..self.operations * self.frames);
            self.answered = self.operations;
        }
    }

    /// Records sent.
    pub fn records(&self) -> u64 {
        self.operations * self.frames
    }

    /// Requests sent.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The stream that a record belongs to.
    pub fn stream_of(&self, number: u64) -> u32 {
        let operation = (number / self.frames) as usize;
        self.streams[(self.first + operation * self.step) % self.streams.len()]
    }

    /// Numbers of all records that were acknowledged, growing.
    pub fn acknowledged(&self) -> impl Iterator<Item = u64> {
        let mut holes = self.unacknowledged.clone();
        holes.push(self.answered * self.frames..u64::MAX);
        holes.sort_unstable_by_key(|hole| hole.start);
        let mut from = 0;
        holes.into_iter().flat_map(move |hole| {
            let range = from..hole.start.max(from);
            from = hole.end.max(from);
            range
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(stays: bool, frames: usize) -> Ledger {
        Ledger::new(3, [10, 11, 12].into(), 4, stays, frames)
    }

    #[test]
    fn a_connection_goes_round_or_stays() {
        for (stays, expected) in [(false, [11, 12, 10, 11]), (true, [11; 4])] {
            let mut ledger = ledger(stays, 2);
            let entered: Vec<Next> = (0..4).map(|_| ledger.begin()).collect();
            assert_eq!(entered.iter().map(|next| next.stream).collect::<Vec<_>>(), expected);
            assert_eq!(entered.iter().map(|next| next.number).collect::<Vec<_>>(), [0, 2, 4, 6]);
            for next in entered {
                assert_eq!(
                    (ledger.stream_of(next.number), ledger.stream_of(next.number + 1)),
                    (next.stream, next.stream)
                );
            }
            assert_eq!(ledger.records(), 8);
        }
    }

    #[test]
    fn what_is_not_acknowledged_is_a_hole() {
        let mut ledger = ledger(false, 2);
        for _ in 0..7 {
            ledger.begin();
        }
        ledger.acknowledge();
        ledger.refuse();
        ledger.refuse_frame(1);
        ledger.acknowledge();
        ledger.acknowledge();
        ledger.lose();
        ledger.lose();
        assert_eq!(ledger.acknowledged().collect::<Vec<_>>(), [0, 1, 4, 6, 7]);
        ledger.begin();
        assert_eq!(ledger.acknowledged().count(), 5, "what is under way is not acknowledged");
        ledger.acknowledge();
        assert_eq!(ledger.acknowledged().collect::<Vec<_>>(), [0, 1, 4, 6, 7, 14, 15]);
    }
}
