//! Clients that append: one record, a JSON array or a batch a request, one or several requests in flight.

use std::sync::Arc;

use super::super::exchange::Exchange;
use super::super::follow::Shared;
use super::super::ledger::Ledger;
use super::super::measure::Series;
use super::super::request::{Framing, Prepared};
use super::super::response::Head;
use super::super::role::{Conclusion, Context, Role};
use super::acks;

/// A client that appends.
pub struct Appender {
    prepared: Prepared,
    ledger: Ledger,
    framing: Framing,
    frames: u64,
    payload_bytes: u64,
    /// Requests that it may still send.
    left: u64,
    /// The acknowledgements of a batch, as far as they have come.
    acks: Vec<u8>,
    /// Live readers wait for what is written.
    shared: Option<Arc<Shared>>,
    /// Its requests are the run's operations; else only their latencies count.
    counts: bool,
}

impl Appender {
    /// Sends what `prepared` makes, at most `limit` times, and enters it in `ledger`. Requests have `frames` records of
    /// `payload_bytes` together.
    pub fn new(
        prepared: Prepared,
        ledger: Ledger,
        framing: Framing,
        frames: usize,
        payload_bytes: usize,
        limit: u64,
    ) -> Self {
        let (frames, payload_bytes) = (frames as u64, payload_bytes as u64);
        Self {
            prepared,
            ledger,
            framing,
            frames,
            payload_bytes,
            left: limit,
            acks: Vec::new(),
            shared: None,
            counts: true,
        }
    }

    /// Live readers follow what it writes. `counts`: its requests are the run's operations, too, not only deliveries.
    pub fn followed(mut self, shared: Arc<Shared>, counts: bool) -> Self {
        (self.shared, self.counts) = (Some(shared), counts);
        self
    }

    /// The oldest request is answered.
    fn tell_answered(&mut self, is_good: bool) {
        if let Some(shared) = &self.shared {
            shared.answered(self.ledger.oldest_stream(), is_good);
        }
    }

    /// Frames of the batch that were refused, each counted and noted.
    fn refused_frames(&mut self, context: &mut Context<'_>) -> u64 {
        if acks::are_all_good(&self.acks, self.frames) {
            return 0;
        }
        let refused = match acks::refused(&self.acks, self.frames) {
            Ok(refused) => refused,
            Err(why) => {
                *context.fatal = Some(format!("the acknowledgements of a batch: {why}"));
                return 0;
            }
        };
        for (frame, error) in &refused {
            context.measure.tally.error(error);
            self.ledger.refuse_frame(*frame);
        }
        refused.len() as u64
    }
}

impl Role for Appender {
    #[inline]
    fn ask(&mut self, due_ns: u64, exchange: &mut Exchange) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let next = self.ledger.begin();
        if let Some(shared) = &self.shared {
            shared.sent();
        }
        exchange.push(self.prepared.request(next.stream, next.number, due_ns));
        true
    }

    #[inline]
    fn head(&mut self, head: &Head<'_>) -> bool {
        matches!(head.status, 200 | 204)
    }

    fn body(&mut self, bytes: &[u8], _context: &mut Context<'_>) {
        if self.framing == Framing::Batch {
            self.acks.extend_from_slice(bytes);
        }
    }

    #[inline]
    fn end(&mut self, context: &mut Context<'_>) {
        let mut records = self.frames;
        if self.framing == Framing::Batch {
            records -= self.refused_frames(context);
            self.acks.clear();
        }
        self.tell_answered(true);
        self.ledger.acknowledge();
        let latency_ns = context.now_ns.saturating_sub(context.due_ns);
        if !self.counts {
            return context.measure.tally.latency(Series::Append, latency_ns);
        }
        context.measure.operation(Series::Append, latency_ns, records, records * self.payload_bytes);
    }

    fn refused(&mut self, _error: &str, _context: &mut Context<'_>) {
        self.tell_answered(false);
        self.ledger.refuse();
    }

    fn lost(&mut self, _why: &str, _context: &mut Context<'_>) {
        for _ in 0..self.ledger.outstanding() {
            self.tell_answered(false);
        }
        self.ledger.lose();
        self.acks.clear();
    }

    fn over(&mut self) {
        if let Some(shared) = &self.shared {
            shared.stopped();
        }
    }

    fn conclude(self: Box<Self>) -> Conclusion {
        Conclusion { ledger: Some(self.ledger), ..Conclusion::default() }
    }
}
