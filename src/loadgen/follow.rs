//! What a live reader must see, and what it saw: the records of its stream, of each writer in order, none left out.
//!
//! While it reads, a follower knows from the ledgers' shape which record of a writer comes next in its stream. A jump is
//! noted; whether what was jumped over had been acknowledged is decided when the ledgers are closed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::ledger::Ledger;
use super::record::Layout;
use super::role::Seen;

/// What writers and live readers of a run share: how far writers are. Touched once a request, so only where records are
/// followed to the end.
#[derive(Debug)]
pub struct Shared {
    /// Writers that may still send.
    writing: AtomicUsize,
    /// Requests that are not answered.
    outstanding: AtomicU64,
    /// Records that each stream will have at least.
    acknowledged: Vec<AtomicU64>,
}

impl Shared {
    /// For so many writers and streams.
    pub fn new(writers: usize, streams: usize) -> Self {
        Self {
            writing: AtomicUsize::new(writers),
            outstanding: AtomicU64::new(0),
            acknowledged: (0..streams).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A writer sends.
    pub fn sent(&self) {
        self.outstanding.fetch_add(1, Ordering::SeqCst);
    }

    /// A request is answered, well or not.
    pub fn answered(&self, stream: u32, is_good: bool) {
        if is_good {
            self.acknowledged[stream as usize].fetch_add(1, Ordering::SeqCst);
        }
        self.outstanding.fetch_sub(1, Ordering::SeqCst);
    }

    /// A writer will not send any more.
    pub fn stopped(&self) {
        self.writing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether all that a stream will surely have is so many records or less.
    fn is_reached(&self, stream: u32, records: u64) -> bool {
        self.writing.load(Ordering::SeqCst) == 0
            && self.outstanding.load(Ordering::SeqCst) == 0
            && records >= self.acknowledged[stream as usize].load(Ordering::SeqCst)
    }
}

/// What one live reader saw of its stream.
#[derive(Clone, Debug)]
pub struct Follower {
    layout: Layout,
    stream: u32,
    /// For each writer: the ledger as it was when it was empty, and the number that comes next in this stream.
    writers: BTreeMap<u32, (Ledger, u64)>,
    /// Numbers that were jumped over: the writer, the first of them, and the one after the last.
    gaps: Vec<(u32, u64, u64)>,
    /// After a new connection records may come again.
    may_repeat: bool,
    seen: Seen,
}

impl Follower {
    /// For a stream that is empty now, written by connections with these (empty) ledgers.
    pub fn new(layout: Layout, stream: u32, ledgers: &[Ledger]) -> Self {
        let writer = |ledger: &Ledger| {
            let next = ledger.first_in(stream)?;
            Some((ledger.connection, (ledger.clone(), next)))
        };
        let writers = ledgers.iter().filter_map(writer).collect();
        Self { layout, stream, writers, gaps: Vec::new(), may_repeat: false, seen: Seen::default() }
    }

    /// The stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// A record was delivered: when it was due, if it is a new one as it should be.
    pub fn record(&mut self, record: &[u8]) -> Option<u64> {
        let Some(id) = self.layout.check(record) else {
            let begin = String::from_utf8_lossy(&record[..record.len().min(60)]).into_owned();
            return self.different(|| format!("a record is not as it was sent: {begin:?}"));
        };
        let name = || format!("record {} of connection {}", id.number, id.connection);
        let Some((ledger, next)) = self.writers.get_mut(&id.connection) else {
            return self.different(|| format!("{} does not belong here", name()));
        };
        let expected = *next;
        let step = ledger.step_in_stream();
        if !id.number.abs_diff(expected).is_multiple_of(step) {
            return self.different(|| format!("{} does not belong here", name()));
        }
        if id.number < expected {
            let may_repeat = self.may_repeat;
            return if may_repeat { None } else { self.different(|| format!("{} came again", name())) };
        }
        *next = id.number + step;
        if id.number > expected {
            self.gaps.push((id.connection, expected, id.number));
        }
        self.may_repeat = false;
        self.seen.records += 1;
        Some(id.due_ns)
    }

    fn different(&mut self, what: impl FnOnce() -> String) -> Option<u64> {
        self.seen.different += 1;
        let stream = self.stream;
        self.seen.first_problem.get_or_insert_with(|| format!("live reader of stream {stream}: {}", what()));
        None
    }

    /// Something else came.
    pub fn wrong(&mut self, what: &str) {
        self.different(|| what.to_owned());
    }

    /// The connection was lost: the last records may be sent again.
    pub fn reconnects(&mut self) {
        self.may_repeat = true;
    }

    /// Records that were wrong.
    pub fn different_records(&self) -> u64 {
        self.seen.different
    }

    /// Whether everything has come that surely will.
    pub fn is_complete(&self, shared: &Shared) -> bool {
        shared.is_reached(self.stream, self.seen.records)
    }

    /// What it saw, given what the writers say in the end.
    pub fn close(mut self, ledgers: &BTreeMap<u32, &Ledger>) -> Seen {
        for (connection, (_, next)) in &self.writers {
            self.gaps.push((*connection, *next, u64::MAX));
        }
        for (connection, from, to) in std::mem::take(&mut self.gaps) {
            let Some(ledger) = ledgers.get(&connection) else { continue };
            let to = to.min(ledger.records());
            let step = ledger.step_in_stream();
            let mut skipped =
                (from..to).step_by(step as usize).filter(|number| ledger.is_acknowledged(*number));
            if let Some(first) = skipped.next() {
                self.seen.missing += 1 + skipped.count() as u64;
                let stream = self.stream;
                self.seen.first_problem.get_or_insert_with(|| {
                    format!("live reader of stream {stream}: record {first} of connection {connection} did not come")
                });
            }
        }
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Id;
    use super::*;

    /// Two writers that go round three streams; both have sent six records, the second's record 4 was refused.
    struct World {
        empty: Vec<Ledger>,
        closed: Vec<Ledger>,
        layout: Layout,
    }

    fn world() -> World {
        let empty: Vec<Ledger> = (0..2)
            .map(|connection| Ledger::new(connection, [0, 1, 2].into(), connection as usize, false, 1))
            .collect();
        let mut closed = empty.clone();
        for ledger in &mut closed {
            for number in 0..6 {
                ledger.begin();
                if (ledger.connection, number) == (1, 4) { ledger.refuse() } else { ledger.acknowledge() }
            }
        }
        World { empty, closed, layout: Layout::new(1, 64, false, true, 1) }
    }

    impl World {
        fn record(&self, connection: u32, number: u64) -> Vec<u8> {
            let mut record = Vec::new();
            self.layout.write(&mut record, Id { connection, number, due_ns: 100 + number });
            record
        }

        /// What a reader of stream 2 saw that was sent these records.
        fn seen(&self, records: &[(u32, u64)]) -> Seen {
            let mut follower = Follower::new(self.layout.clone(), 2, &self.empty);
            for (connection, number) in records {
                follower.record(&self.record(*connection, *number));
            }
            follower.close(&self.closed.iter().map(|ledger| (ledger.connection, ledger)).collect())
        }
    }

    #[test]
    fn all_records_of_a_stream_are_enough() {
        // Stream 2: connection 0 wrote 2 and 5, connection 1 wrote 1 and (refused) 4.
        let world = world();
        for records in [&[(0, 2), (1, 1), (0, 5)][..], &[(0, 2), (1, 1), (1, 4), (0, 5)]] {
            let seen = world.seen(records);
            assert_eq!(
                (seen.records, seen.missing, seen.different),
                (records.len() as u64, 0, 0),
                "{seen:?}"
            );
        }
        let mut follower = Follower::new(world.layout.clone(), 2, &world.empty);
        assert_eq!(follower.record(&world.record(0, 2)), Some(102), "the time it was due");
    }

    #[test]
    fn every_wrong_is_found() {
        let world = world();
        type Case = (&'static [(u32, u64)], u64, u64, &'static str);
        let table: &[Case] = &[
            (&[(0, 5), (1, 1)], 1, 0, "record 2 of connection 0 did not come"),
            (&[(0, 2), (1, 1)], 1, 0, "record 5 of connection 0 did not come"),
            (&[(0, 2), (0, 5)], 1, 0, "record 1 of connection 1 did not come"),
            (&[(0, 2), (1, 1), (0, 2), (0, 5)], 0, 1, "record 2 of connection 0 came again"),
            (&[(0, 2), (1, 1), (0, 3), (0, 5)], 0, 1, "record 3 of connection 0 does not belong here"),
            (&[(0, 2), (1, 1), (7, 3), (0, 5)], 0, 1, "record 3 of connection 7 does not belong here"),
        ];
        for (records, missing, different, part) in table {
            let seen = world.seen(records);
            assert_eq!((seen.missing, seen.different), (*missing, *different), "{part}: {seen:?}");
            assert!(seen.first_problem.as_ref().unwrap().contains(part), "{part}: {seen:?}");
        }
    }

    #[test]
    fn records_may_come_again_on_a_new_connection_only() {
        let world = world();
        let mut follower = Follower::new(world.layout.clone(), 2, &world.empty);
        follower.record(&world.record(0, 2));
        follower.reconnects();
        assert_eq!(follower.record(&world.record(0, 2)), None);
        assert_eq!(follower.record(&world.record(0, 5)), Some(105));
        assert_eq!(follower.different_records(), 0);
        assert_eq!(follower.record(&world.record(0, 5)), None);
        assert_eq!(follower.different_records(), 1);
    }

    #[test]
    fn a_reader_waits_until_writers_are_done_and_it_has_all() {
        let world = world();
        let shared = Shared::new(1, 3);
        let mut follower = Follower::new(world.layout.clone(), 2, &world.empty);
        assert!(!follower.is_complete(&shared), "a writer may still send");
        shared.sent();
        shared.sent();
        shared.stopped();
        assert!(!follower.is_complete(&shared), "two are under way");
        shared.answered(2, true);
        shared.answered(2, false);
        assert!(!follower.is_complete(&shared), "one has not come");
        follower.record(&world.record(0, 2));
        assert!(follower.is_complete(&shared));
    }
}
