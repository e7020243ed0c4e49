//! Giving way: for work that could go on for long without waiting for anything.

use std::time::Duration;

use crate::signal;

/// Bytes that are copied, digested or sent between two turns of everything else: well below a millisecond's work.
pub const TURN_BYTES: usize = 1024 * 1024;

/// After so many turns without a break the executor gets to see what is its own: reads from disk, timers, messages.
const TURNS_PER_PAUSE: usize = 8;
/// Long enough for it to go to sleep, which is what makes it look. Its preempt timer may be armed with 100 ms.
const PAUSE: Duration = Duration::from_micros(200);

/// Counts the bytes that long work goes through, and gives way when a turn is over.
#[derive(Debug, Default)]
pub struct Turn {
    bytes: usize,
    turns: usize,
}

impl Turn {
    /// So many bytes were done.
    pub async fn did(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes < TURN_BYTES {
            return;
        }
        (self.bytes, self.turns) = (0, self.turns + 1);
        if self.turns.is_multiple_of(TURNS_PER_PAUSE) {
            signal::nap(PAUSE).await;
        } else {
            // The core looks after sockets and commits before it comes back.
            signal::give_way().await;
        }
    }
}
