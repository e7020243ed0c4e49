//! From the events of a log to the state of a shard, when it starts.
//!
//! A log may hold more than the shard's own: it may have been laid out for another number of shards, and several shards may
//! list the same segments, each for a part of the placements. What is not the shard's is passed over here, and nowhere else.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::lineage::Lineages;
use super::mail::BucketRecord;
use super::table::{Stamp, Table, Target};
use super::{owner, placement};
use crate::storage::event::{Event, EventContext};
use crate::storage::log::Recovered;

/// What replay finds.
pub struct Replay {
    shard: usize,
    shards: usize,
    placement_seed: u64,
    lineages: Arc<Lineages>,
    table: Table,
    buckets: BTreeMap<Vec<u8>, u64>,
    last_ticket: u64,
    /// Streams with a gap: settling has dropped a part of them, so they are deleted further on.
    doomed: HashSet<u64>,
    problem: Option<String>,
}

impl Replay {
    /// For shard `shard` of `shards`.
    pub fn new(shard: usize, shards: usize, placement_seed: u64, lineages: Arc<Lineages>) -> Self {
        Self {
            shard,
            shards,
            placement_seed,
            lineages,
            table: Table::default(),
            buckets: BTreeMap::new(),
            last_ticket: 0,
            doomed: HashSet::new(),
            problem: None,
        }
    }

    /// Takes in the next event of the log.
    pub fn visit(&mut self, event: &Event<'_>, context: EventContext) {
        if context.lsn != self.last_ticket {
            // What a commit deletes is gone before the next may take its name.
            self.table.publish(u64::MAX, |_, _| {});
            self.last_ticket = context.lsn;
        }
        if let Some(id) = event.issued_id() {
            self.observe(id);
        }
        if let Event::StreamDeleted { lineage } = event {
            self.doomed.remove(lineage);
        }
        match event {
            Event::StreamCreated(created) => {
                if !self.counts(created.placement, context) {
                    return;
                }
                // A rewritten segment holds in one commit what was in many: the life of the name before may end in it.
                self.table.publish(u64::MAX, |_, _| {});
            }
            Event::BucketCreated { bucket, .. } | Event::BucketDeleted { bucket, .. }
                if !self.counts(placement(bucket, self.placement_seed), context) =>
            {
                return;
            }
            Event::BucketCreated { bucket, generation } => {
                self.buckets.insert(bucket.to_vec(), *generation);
            }
            // A later life of the bucket is not what ends.
            Event::BucketDeleted { bucket, generation } if self.buckets.get(*bucket) == Some(generation) => {
                self.buckets.remove(*bucket);
            }
            _ if !self.table.counts(event, context.hashes) => return,
            _ if !self.table.goes_on(event) => {
                let lineage = event.lineage().expect("only a stream goes on");
                self.table.drop_lineage(lineage);
                self.doomed.insert(lineage);
                return;
            }
            _ => {}
        }
        let stamp = Stamp { ticket: context.lsn, time_ms: context.time_ms };
        self.table.apply(event, stamp, Target::ByLineage);
    }

    /// Ends the replay: the streams, and the buckets that this shard is home to. An error says what is wrong with the log.
    pub fn finish(mut self, recovered: &Recovered) -> Result<(Table, Vec<BucketRecord>), String> {
        if recovered.highest_lineage > 0 {
            // Also of streams whose traces settling has removed.
            self.observe(recovered.highest_lineage);
        }
        if let Some(lineage) = self.doomed.iter().min() {
            return Err(format!("something is missing of stream {lineage}, which is not deleted"));
        }
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        self.table.recovered();
        let buckets = self.buckets.into_iter();
        let buckets = buckets.map(|(bucket, generation)| BucketRecord { bucket, generation }).collect();
        Ok((self.table, buckets))
    }

    fn counts(&self, placement: u64, context: EventContext) -> bool {
        owner(placement, self.shards) == self.shard && context.hashes.contains(placement)
    }

    fn observe(&mut self, lineage: u64) {
        if let Err(error) = self.lineages.observe(self.shard, lineage) {
            self.problem.get_or_insert_with(|| error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::lineage::Ledger;
    use crate::storage::event::{
        Appended, HashRange, Lengths, Payload, Place, Producer, ProducerRun, ProducerRuns, StreamCreated,
    };

    /// The events that settling may leave of a log, one commit each.
    fn replayed(events: &[Event<'_>]) -> Result<Table, String> {
        let mut ledger = Ledger::default();
        ledger.grant(7).expect("few ids are used");
        let lineages = Arc::new(Lineages::new(&[7], &ledger, |_| {}));
        let mut replay = Replay::new(0, 1, 1, lineages);
        for (number, event) in events.iter().enumerate() {
            let lsn = 1 + number as u64;
            replay.visit(event, EventContext { hashes: HashRange::ALL, lsn, time_ms: lsn });
        }
        replay.finish(&Recovered::default()).map(|(table, _)| table)
    }

    fn created(lineage: u64) -> Event<'static> {
        Event::StreamCreated(StreamCreated {
            lineage,
            placement: 5,
            key: b"test/name",
            content_type: b"text/plain",
            ttl_seconds: None,
            expires_at_ms: None,
            bucket_generation: 0,
            attributes: b"",
            closed: false,
        })
    }

    fn appended(lineage: u64, start: u64, producer: Option<Producer<'_>>) -> Event<'_> {
        Event::Appended(Appended {
            lineage,
            start,
            lengths: Lengths::Uniform { len: 5, count: 1 },
            producer,
            stream_seq: None,
            closed: false,
            payload: Payload::Here(Place { segment: 0, position: 4200 + start as u32, back: 30 }),
        })
    }

    #[test]
    fn a_gap_is_for_the_rest_of_the_log_to_explain() {
        let gap = [created(1), appended(1, 0, None), appended(1, 10, None), appended(1, 15, None)];
        let problem = replayed(&gap).err().expect("data is missing and nothing says why");
        assert!(problem.contains("stream 1"), "{problem}");
        let deleted =
            [&gap[..], &[Event::StreamDeleted { lineage: 1 }, created(2), appended(2, 0, None)]].concat();
        let table = replayed(&deleted).expect("the delete explains it");
        assert_eq!(table.len(), 1, "the name is taken again");
        assert!(table.find_lineage(1).is_none() && table.find_lineage(2).is_some());
        let trimmed = [created(1), Event::Retained { lineage: 1, offset: 10, record: 2 }];
        assert!(replayed(&trimmed).is_err(), "a stream never begins behind its end");
        let unknown = [appended(9, 0, None), Event::StreamDeleted { lineage: 9 }];
        assert!(replayed(&unknown).expect("of a stream that is gone").is_empty());
    }

    #[test]
    fn a_gap_in_an_epoch_is_for_a_newer_one_to_explain() {
        let claim = |epoch, seq| Some(Producer { id: b"p", epoch, seq });
        let runs = [ProducerRun { first_ordinal: 1, records: 1, appends: 1 }];
        let later =
            Event::ProducerRuns(ProducerRuns { lineage: 1, id: b"p", epoch: 0, first_seq: 7, runs: &runs });
        let log = [
            created(1),
            appended(1, 0, claim(0, 0)),
            appended(1, 5, None),
            later,
            appended(1, 10, claim(0, 20)),
            appended(1, 15, claim(1, 0)),
        ];
        let table = replayed(&log).expect("a newer epoch replaces what is left of the older one");
        let id = table.find_lineage(1).expect("it lives");
        assert_eq!(table.get(id).expect("it lives").producers.range(b"p", 1, 0), Some((3, 1)));
    }
}
