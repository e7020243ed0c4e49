//! Clients that follow a stream by long-polls.

use super::super::deliver::Delivery;
use super::super::exchange::Exchange;
use super::super::response::Head;
use super::super::role::{Conclusion, Context, Role};

/// A client that follows a stream from its beginning.
pub struct LongPoller {
    before: String,
    after: String,
    offset: Vec<u8>,
    cursor: Vec<u8>,
    /// Where the next poll begins if this answer comes whole.
    next_offset: Vec<u8>,
    request: Vec<u8>,
    delivery: Delivery,
    /// It waits in the end until it has everything.
    waits: bool,
}

impl LongPoller {
    /// Follows the stream at `path`.
    pub fn new(host: &str, path: &str, delivery: Delivery, waits: bool) -> Self {
        Self {
            before: format!("GET {path}?offset="),
            after: format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            offset: b"-1".to_vec(),
            cursor: Vec::new(),
            next_offset: Vec::new(),
            request: Vec::new(),
            delivery,
            waits,
        }
    }
}

impl Role for LongPoller {
    fn ask(&mut self, _due_ns: u64, exchange: &mut Exchange) -> bool {
        self.request.clear();
        let cursor: &[u8] = if self.cursor.is_empty() { b"" } else { b"&cursor=" };
        let parts: [&[u8]; 6] = [
            self.before.as_bytes(),
            &self.offset,
            b"&live=long-poll",
            cursor,
            &self.cursor,
            self.after.as_bytes(),
        ];
        parts.into_iter().for_each(|part| self.request.extend_from_slice(part));
        exchange.push(&self.request);
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
        if !matches!(head.status, 200 | 204) {
            return false;
        }
        self.next_offset.clear();
        self.next_offset.extend_from_slice(head.next_offset.unwrap_or(&self.offset));
        self.cursor.clear();
        self.cursor.extend_from_slice(head.cursor.unwrap_or_default());
        true
    }

    fn body(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        self.delivery.bytes(bytes, context);
    }

    fn end(&mut self, _context: &mut Context<'_>) {
        std::mem::swap(&mut self.offset, &mut self.next_offset);
        self.delivery.commit();
    }

    fn refused(&mut self, _error: &str, _context: &mut Context<'_>) {}

    fn lost(&mut self, _why: &str, _context: &mut Context<'_>) {
        self.delivery.lost();
    }

    fn goes_on(&self) -> bool {
        self.waits
    }

    fn is_drained(&self, _in_flight: usize) -> bool {
        !self.waits || self.delivery.is_complete()
    }

    fn conclude(self: Box<Self>) -> Conclusion {
        Conclusion { follower: Some(self.delivery.follower), ..Conclusion::default() }
    }
}
