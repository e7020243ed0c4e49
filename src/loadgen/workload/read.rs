//! Clients that catch up: whole streams, page after page, again and again.

use std::sync::Arc;

use super::super::exchange::Exchange;
use super::super::measure::Series;
use super::super::record::Layout;
use super::super::response::Head;
use super::super::role::{Context, Role};
use super::super::walk::Walk;

/// A client that reads one stream after the other from the beginning to the end.
pub struct Replayer {
    walk: Walk,
    streams: Arc<[u32]>,
    place: usize,
    is_json: bool,
    payload_bytes: u64,
    /// Records of each stream, if that is known.
    expected: Option<u64>,
    /// Bytes of the present page, and of the stream up to it.
    page_bytes: u64,
    stream_bytes: u64,
    /// Records of the stream up to the present page.
    records: u64,
    began_ns: u64,
}

impl Replayer {
    /// Begins at `streams[place]` (modulo their number). `expected`: records that every stream has.
    pub fn new(
        walk: Walk,
        streams: Arc<[u32]>,
        place: usize,
        layout: &Layout,
        expected: Option<u64>,
    ) -> Self {
        assert!(!streams.is_empty(), "a replayer has streams");
        Self {
            walk,
            place: place % streams.len(),
            streams,
            is_json: layout.is_json(),
            payload_bytes: layout.payload_bytes() as u64,
            expected,
            page_bytes: 0,
            stream_bytes: 0,
            records: 0,
            began_ns: 0,
        }
    }

    /// Records of the page that has just ended.
    fn page_records(&mut self) -> u64 {
        let page_bytes = std::mem::take(&mut self.page_bytes);
        if self.is_json {
            // `[a,b]`: a separator for each, and one more bracket.
            return page_bytes / (self.payload_bytes + 1);
        }
        // A page may end within a record.
        self.stream_bytes += page_bytes;
        self.stream_bytes / self.payload_bytes - self.records
    }
}

impl Role for Replayer {
    fn ask(&mut self, due_ns: u64, exchange: &mut Exchange) -> bool {
        if self.walk.is_complete() {
            self.walk.begin(self.streams[self.place]);
            self.place = (self.place + 1) % self.streams.len();
            (self.began_ns, self.stream_bytes, self.records) = (due_ns, 0, 0);
        }
        exchange.push(self.walk.request(b""));
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
        self.walk.head(head)
    }

    #[inline]
    fn body(&mut self, bytes: &[u8], _context: &mut Context<'_>) {
        self.page_bytes += bytes.len() as u64;
    }

    fn end(&mut self, context: &mut Context<'_>) {
        *context.fatal = context.fatal.take().or(self.walk.take_problem());
        let records = self.page_records();
        self.records += records;
        let latency_ns = context.now_ns.saturating_sub(context.due_ns);
        context.measure.operation(Series::Read, latency_ns, records, records * self.payload_bytes);
        if self.walk.is_complete() {
            context.measure.tally.latency(Series::CatchUp, context.now_ns.saturating_sub(self.began_ns));
            if self.expected.is_some_and(|expected| expected != self.records) {
                context.measure.tally.error("catch-up: not as many records as were written");
            }
        }
    }

    fn refused(&mut self, _error: &str, _context: &mut Context<'_>) {
        self.page_bytes = 0;
        self.walk.give_up();
    }

    fn lost(&mut self, _why: &str, _context: &mut Context<'_>) {
        self.page_bytes = 0;
        self.walk.give_up();
    }
}
