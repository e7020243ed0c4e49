//! Giving way: for work that could go on for long without waiting for anything.

use std::time::Duration;

use glommio::timer::Timer;

/// Bytes that are copied, digested or sent between two turns of everything else: well below a millisecond's work.
pub const TURN_BYTES: usize = 1024 * 1024;

/// Long enough for the executor to go to sleep, which is what makes it take in everything that the kernel has for it.
const PAUSE: Duration = Duration::from_micros(200);

/// Counts the bytes that long work goes through, and gives way when a turn is over.
#[derive(Debug, Default)]
pub struct Turn(usize);

impl Turn {
    /// So many bytes were done.
    pub async fn did(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= TURN_BYTES {
            self.0 = 0;
            give_way().await;
        }
    }
}

/// Lets everything else of the core have a turn, the completions of its writes included.
///
/// The executor's own `yield_if_needed` does so only once the preempt timer has expired, and that one may be armed with the
/// long time of an executor that was idle. Measured while a body of 64 MiB arrived: appends of other connections waited
/// 130 ms without this, for the whole body with a pause too short to sleep in, and some 10 ms with this one.
async fn give_way() {
    Timer::new(PAUSE).await;
}
