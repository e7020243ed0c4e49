//! What a connection does: it asks, and is told about the answers. One implementation for each kind of client.

use super::exchange::Exchange;
use super::follow::Follower;
use super::ledger::Ledger;
use super::measure::Measure;
use super::response::Head;

/// What a role may use while it is told something.
pub struct Context<'a> {
    /// Now.
    pub now_ns: u64,
    /// When the request that is being answered was due.
    pub due_ns: u64,
    /// Counts of the thread.
    pub measure: &'a mut Measure,
    /// Set by a role that finds that the run makes no sense: the run ends with it.
    pub fatal: &'a mut Option<String>,
}

/// The behaviour of one connection. Answers come in the order of the requests.
pub trait Role {
    /// Pushes the next request, due at `due_ns`; `false` if there is none and never will be.
    fn ask(&mut self, due_ns: u64, exchange: &mut Exchange) -> bool;

    /// An answer begins; `false` if it is not what was asked for. Then its body is kept for the name of the error, and
    /// [`Role::refused`] follows instead of [`Role::end`].
    fn head(&mut self, head: &Head<'_>) -> bool;

    /// Bytes of the answer's body.
    fn body(&mut self, _bytes: &[u8], _context: &mut Context<'_>) {}

    /// The answer is complete.
    fn end(&mut self, context: &mut Context<'_>);

    /// The answer was an error; it has been counted under this name.
    fn refused(&mut self, error: &str, context: &mut Context<'_>);

    /// The connection is gone, with all requests that were not answered; counted under `why` if there were any. The next
    /// [`Role::ask`] is for a new connection.
    fn lost(&mut self, why: &str, context: &mut Context<'_>);

    /// The load is over, on this thread: [`Role::ask`] will not be called any more, unless it [`Role::goes_on`].
    fn over(&mut self) {}

    /// Whether it asks on when the load is over, until it is drained.
    fn goes_on(&self) -> bool {
        false
    }

    /// The load is over: whether it has nothing more to wait for, with so many requests in flight.
    fn is_drained(&self, in_flight: usize) -> bool {
        in_flight == 0
    }

    /// What it leaves for verification.
    fn conclude(self: Box<Self>) -> Conclusion {
        Conclusion::default()
    }
}

/// What a connection leaves when the load is over.
#[derive(Debug, Default)]
pub struct Conclusion {
    /// What it wrote.
    pub ledger: Option<Ledger>,
    /// What a live reader saw on its way.
    pub follower: Option<Follower>,
    /// What was verified at once.
    pub seen: Seen,
}

/// What was found in records before everything is read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Streams that were looked at.
    pub streams: u64,
    /// Records that were as they should be.
    pub records: u64,
    /// Acknowledged records that did not come.
    pub missing: u64,
    /// Records that were wrong.
    pub different: u64,
    /// The first of either.
    pub first_problem: Option<String>,
}
