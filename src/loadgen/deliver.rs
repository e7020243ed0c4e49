//! From the bytes that a live reader is sent to records that are followed and measured.
//!
//! A reader commits when the server has told where it stands. If its connection is lost before that, the same bytes come
//! again on the next one: those of a plain stream are skipped by counting, records of a JSON stream may be seen twice.

use std::sync::Arc;

use super::follow::{Follower, Shared};
use super::measure::Series;
use super::record::Layout;
use super::role::Context;
use super::splitter::Splitter;

/// The records of one live reader.
#[derive(Debug)]
pub struct Delivery {
    /// What it saw.
    pub follower: Follower,
    shared: Arc<Shared>,
    splitter: Splitter,
    is_json: bool,
    payload_bytes: u64,
    /// Bytes since the last commit that this connection brought.
    arrived_bytes: usize,
    /// Bytes since the last commit that were handed on, whichever connection brought them.
    handed_bytes: usize,
}

impl Delivery {
    /// For a reader whose records go to `follower`.
    pub fn new(follower: Follower, shared: Arc<Shared>, layout: &Layout) -> Self {
        Self {
            follower,
            shared,
            splitter: Splitter::new(layout),
            is_json: layout.is_json(),
            payload_bytes: layout.payload_bytes() as u64,
            arrived_bytes: 0,
            handed_bytes: 0,
        }
    }

    /// Bytes of the stream.
    pub fn bytes(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let skipped = (self.handed_bytes - self.arrived_bytes).min(bytes.len());
        self.arrived_bytes += bytes.len();
        self.handed_bytes = self.handed_bytes.max(self.arrived_bytes);
        let Self { follower, splitter, payload_bytes, .. } = self;
        let split = splitter.feed(&bytes[skipped..], |record| {
            let before = follower.different_records();
            match follower.record(record) {
                Some(due_ns) => {
                    let latency_ns = context.now_ns.saturating_sub(due_ns);
                    context.measure.operation(Series::Deliver, latency_ns, 1, *payload_bytes);
                }
                None if follower.different_records() > before => {
                    context.measure.tally.error("delivery: a wrong record");
                }
                None => {}
            }
        });
        if let Err(why) = split {
            context.measure.tally.error("delivery: no record");
            self.follower.wrong(&why);
        }
    }

    /// The server has told where the reader stands: what came so far does not come again.
    pub fn commit(&mut self) {
        self.handed_bytes -= self.arrived_bytes;
        self.arrived_bytes = 0;
    }

    /// The connection is gone.
    pub fn lost(&mut self) {
        self.arrived_bytes = 0;
        if self.is_json {
            self.handed_bytes = 0;
            // Half a record will come whole.
            let _ = self.splitter.finish();
            self.follower.reconnects();
        }
    }

    /// Whether everything has come that surely will.
    pub fn is_complete(&self) -> bool {
        self.follower.is_complete(&self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Ledger;
    use super::super::measure::{Measure, Window};
    use super::super::record::Id;
    use super::*;

    struct Reader {
        delivery: Delivery,
        measure: Measure,
        records: Vec<Vec<u8>>,
    }

    fn reader(is_json: bool) -> Reader {
        let layout = Layout::new(1, 80, is_json, true, 1);
        let ledger = Ledger::new(0, [0].into(), 0, true, 1);
        let record = |number| {
            let mut record = Vec::new();
            layout.write(&mut record, Id { connection: 0, number, due_ns: 1_000 });
            record
        };
        let follower = Follower::new(layout.clone(), 0, &[ledger]);
        let delivery = Delivery::new(follower, Arc::new(Shared::new(1, 1)), &layout);
        let measure = Measure::new(0, Window::ALWAYS, None);
        Reader { delivery, measure, records: (0..4).map(record).collect() }
    }

    impl Reader {
        fn bytes(&mut self, bytes: &[u8]) {
            let mut context =
                Context { now_ns: 5_000, due_ns: 0, measure: &mut self.measure, fatal: &mut None };
            self.delivery.bytes(bytes, &mut context);
        }

        fn counts(&self) -> (u64, u64) {
            (self.measure.tally.operations, self.measure.tally.error_count())
        }
    }

    #[test]
    fn a_delivery_is_measured_from_the_time_in_the_record() {
        let mut reader = reader(false);
        let records = reader.records.concat();
        reader.bytes(&records[..100]);
        assert_eq!(reader.counts(), (1, 0));
        reader.bytes(&records[100..]);
        assert_eq!(reader.counts(), (4, 0));
        assert_eq!(reader.measure.tally.histogram(Series::Deliver).unwrap().max(), 4);
    }

    #[test]
    fn bytes_that_come_again_are_skipped() {
        let mut reader = reader(false);
        let records = reader.records.concat();
        reader.bytes(&records[..100]);
        reader.delivery.commit();
        reader.bytes(&records[100..200]);
        reader.delivery.lost();
        reader.bytes(&records[100..150]);
        reader.delivery.lost();
        reader.bytes(&records[100..]);
        assert_eq!(reader.counts(), (4, 0));
    }

    #[test]
    fn json_records_that_come_again_count_once() {
        let mut reader = reader(true);
        let array = |records: &[Vec<u8>]| [b"[", records.join(&b',').as_slice(), b"]"].concat();
        let records = reader.records.clone();
        reader.bytes(&array(&records[..1]));
        reader.delivery.commit();
        reader.bytes(&array(&records[1..3])[..120]);
        reader.delivery.lost();
        reader.bytes(&array(&records[1..]));
        assert_eq!(reader.counts(), (4, 0));
        reader.bytes(&array(&records[2..3]));
        assert_eq!(reader.counts(), (4, 1), "again without a new connection");
        reader.bytes(b"null");
        assert_eq!(reader.counts(), (4, 2));
    }
}
