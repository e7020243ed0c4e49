//! Clients that follow a stream by server-sent events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::super::deliver::Delivery;
use super::super::events::{Events, next_offset};
use super::super::exchange::Exchange;
use super::super::response::Head;
use super::super::role::{Conclusion, Context, Role};

/// A client that follows a stream from its beginning.
pub struct SseReader {
    /// The request without its offset: before, and after it.
    before: String,
    after: String,
    offset: Vec<u8>,
    events: Events,
    delivery: Delivery,
    is_base64: bool,
    decoded: Vec<u8>,
    /// It waits in the end until it has everything.
    waits: bool,
}

impl SseReader {
    /// Follows the stream at `path`.
    pub fn new(host: &str, path: &str, delivery: Delivery, waits: bool) -> Self {
        Self {
            before: format!("GET {path}?offset="),
            after: format!("&live=sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n"),
            offset: b"-1".to_vec(),
            events: Events::default(),
            delivery,
            is_base64: false,
            decoded: Vec::new(),
            waits,
        }
    }
}

impl Role for SseReader {
    fn ask(&mut self, _due_ns: u64, exchange: &mut Exchange) -> bool {
        exchange.push(&[self.before.as_bytes(), &self.offset, self.after.as_bytes()].concat());
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
        self.is_base64 = head.base64;
        head.status == 200
    }

    fn body(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let Self { events, delivery, offset, decoded, is_base64, .. } = self;
        events.feed(bytes, |name, data| match name {
            b"data" if *is_base64 => {
                decoded.clear();
                // A server may break the text into lines.
                let text: Vec<u8>;
                let text = if data.contains(&b'\n') {
                    text = data.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
                    &text
                } else {
                    data
                };
                match BASE64.decode_vec(text, decoded) {
                    Ok(()) => delivery.bytes(decoded, context),
                    Err(error) => {
                        context.measure.tally.error("delivery: not base64");
                        delivery.follower.wrong(&format!("not base64: {error}"));
                    }
                }
            }
            b"data" => delivery.bytes(data, context),
            b"control" => {
                if let Some(next) = next_offset(data) {
                    *offset = next;
                    delivery.commit();
                }
            }
            _ => {}
        });
    }

    fn end(&mut self, _context: &mut Context<'_>) {
        self.events.reset();
        self.delivery.lost();
    }

    fn refused(&mut self, _error: &str, _context: &mut Context<'_>) {}

    fn lost(&mut self, _why: &str, _context: &mut Context<'_>) {
        self.events.reset();
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
