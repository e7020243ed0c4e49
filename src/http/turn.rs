//! Giving way: for work that could go on for long without waiting for anything.

use crate::signal;

/// Bytes that are copied, digested or sent between two turns of everything else: well below a millisecond's work.
pub const TURN_BYTES: usize = 1024 * 1024;

/// Counts the bytes that long work goes through, and gives way when a turn is over.
#[derive(Debug, Default)]
pub struct Turn(usize);

impl Turn {
    /// So many bytes were done.
    pub async fn did(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= TURN_BYTES {
            self.0 = 0;
            // The core looks after sockets and commits before it comes back.
            signal::give_way().await;
        }
    }
}
