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
