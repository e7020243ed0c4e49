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

    /// Requests under way.
    pub fn outstanding(&self) -> u64 {
        self.operations - self.answered
    }

    /// The stream of the oldest request under way.
    pub fn oldest_stream(&self) -> u32 {
        self.stream_of(self.answered * self.frames)
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

    /// Number of the first record that goes to `stream`; none if it is not one of its streams. For one record a request.
    pub fn first_in(&self, stream: u32) -> Option<u64> {
        let place = self.streams.iter().position(|other| *other == stream)?;
        let count = self.streams.len();
        match self.step {
            0 => (place == self.first).then_some(0),
            _ => Some(((place + count - self.first) % count) as u64),
        }
    }

    /// How far apart the numbers of records of one stream are. For one record a request.
    pub fn step_in_stream(&self) -> u64 {
        if self.step == 0 { 1 } else { self.streams.len() as u64 }
    }

    /// Whether a record was acknowledged.
    pub fn is_acknowledged(&self, number: u64) -> bool {
        number < self.answered * self.frames && !self.unacknowledged.iter().any(|hole| hole.contains(&number))
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
    fn the_records_of_one_stream_are_foretold() {
        for stays in [false, true] {
            let mut ledger = ledger(stays, 1);
            let empty = ledger.clone();
            let mut numbers = std::collections::BTreeMap::<u32, Vec<u64>>::new();
            for _ in 0..9 {
                let next = ledger.begin();
                numbers.entry(next.stream).or_default().push(next.number);
            }
            for stream in [10, 11, 12, 13] {
                let first = empty.first_in(stream);
                assert_eq!(first, numbers.get(&stream).map(|numbers| numbers[0]), "{stream}");
                let Some(numbers) = numbers.get(&stream) else { continue };
                assert!(
                    numbers.windows(2).all(|pair| pair[1] - pair[0] == empty.step_in_stream()),
                    "{numbers:?}"
                );
            }
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
        let one_by_one: Vec<u64> = (0..20).filter(|number| ledger.is_acknowledged(*number)).collect();
        assert_eq!(one_by_one, [0, 1, 4, 6, 7]);
        ledger.begin();
        assert_eq!(ledger.acknowledged().count(), 5, "what is under way is not acknowledged");
        ledger.acknowledge();
        assert_eq!(ledger.acknowledged().collect::<Vec<_>>(), [0, 1, 4, 6, 7, 14, 15]);
    }
}
