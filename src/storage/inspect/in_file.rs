//! What must hold within one segment file, whatever was left out before it: the events of each stream in it follow
//! each other without a gap.

use std::collections::HashMap;

use super::super::codec::Entry;
use super::super::event::{Appended, Event, ProducerRuns};
use super::streams::show;

/// The streams of one file.
#[derive(Debug, Default)]
pub(super) struct InFile {
    lives: HashMap<u64, Life>,
    /// Bytes of payload.
    pub(super) payload_bytes: u64,
}

/// What the file says of a stream.
#[derive(Debug, Default)]
struct Life {
    /// Where its data ended last, if the file has said.
    end: Option<u64>,
    closed: bool,
    deleted: bool,
    /// Epoch and last sequence number.
    producers: HashMap<Box<[u8]>, (u64, u64)>,
}

impl InFile {
    /// Takes an entry in; says what is wrong with it, if anything is.
    pub(super) fn check(&mut self, entry: &Entry<'_>) -> Option<String> {
        let Entry::Event(event) = entry else { return None };
        let lineage = event.lineage()?;
        if let Event::StreamCreated(created) = event {
            let life = Life { end: Some(0), closed: created.closed, ..Life::default() };
            let before = self.lives.insert(lineage, life);
            return before.map(|_| format!("creates stream {lineage}, of which the file knows already"));
        }
        let life = self.lives.entry(lineage).or_default();
        if life.deleted {
            return Some(format!("concerns stream {lineage}, which is deleted"));
        }
        match event {
            Event::Appended(append) => life.append(append),
            Event::Skipped { start, bytes, .. } => life.go_on(lineage, "skips", *start, *bytes),
            Event::ProducerRuns(runs) => life.produce(runs),
            Event::StreamDeleted { .. } => {
                life.deleted = true;
                None
            }
            _ => None,
        }
    }
}

impl Life {
    fn append(&mut self, append: &Appended<'_>) -> Option<String> {
        let was_closed = self.closed;
        self.closed |= append.closed;
        let gap = self.go_on(append.lineage, "appends", append.start, append.lengths.total_bytes());
        let claim = append
            .producer
            .and_then(|producer| self.claim(producer.id, producer.epoch, producer.seq, producer.seq));
        let closed = was_closed.then(|| format!("appends to stream {}, which is closed", append.lineage));
        closed.or(gap).or(claim)
    }

    fn go_on(&mut self, lineage: u64, does: &str, start: u64, bytes: u64) -> Option<String> {
        match self.end.replace(start + bytes) {
            Some(end) if end != start => {
                Some(format!("{does} at {start} of stream {lineage}, which ends at {end} in the same file"))
            }
            _ => None,
        }
    }

    fn produce(&mut self, runs: &ProducerRuns<'_>) -> Option<String> {
        let appends: u64 = runs.runs.iter().map(|run| run.appends).sum();
        let last_seq = (runs.first_seq + appends).saturating_sub(1);
        self.claim(runs.id, runs.epoch, runs.first_seq, last_seq)
    }

    fn claim(&mut self, id: &[u8], epoch: u64, first_seq: u64, last_seq: u64) -> Option<String> {
        let Some(known) = self.producers.get_mut(id) else {
            self.producers.insert(id.into(), (epoch, last_seq));
            return None;
        };
        let (old, seq) = std::mem::replace(known, (epoch, last_seq));
        let follows = if epoch == old { first_seq == seq + 1 } else { epoch > old };
        (!follows).then(|| {
            let id = show(id);
            format!("producer {id} is at epoch {epoch}, seq {first_seq} after epoch {old}, seq {seq}")
        })
    }
}
