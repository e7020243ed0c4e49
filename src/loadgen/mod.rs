//! The load generator behind `thalweg bench`.
//!
//! ```text
//!  plan (options, checked) -> run: setup (streams are made) -> threads, each an engine:
//!      pacing says when -> role asks -> exchange sends ... receives -> response -> role is told -> measure counts
//!  -> gather (seconds, totals) -> outcome (JSON) -> summary;   ledger + verify: everything is read back and compared
//! ```
//!
//! Contract: threads share nothing while they work. Each is pinned (if wanted) and polls its own connections in one epoll
//! set; a request is prepared ahead and changed in place; per request there is no allocation, no formatting, one write, one
//! read and one look at the clock. Errors are counted by name, never hidden. Nothing of the server is used but the rules of
//! its protocol and its limits, so that a mistake of the server is not repeated here.

pub mod clock;
pub mod conditions;
pub mod deliver;
pub mod engine;
pub mod events;
pub mod exchange;
pub mod follow;
pub mod gather;
pub mod ledger;
pub mod measure;
pub mod null;
pub mod outcome;
pub mod pacing;
pub mod plan;
pub mod poller;
pub mod progress;
pub mod record;
pub mod report;
pub mod request;
pub mod response;
pub mod restart;
pub mod role;
pub mod run;
pub mod scene;
pub mod setup;
pub mod splitter;
pub mod summary;
pub mod target;
pub mod usage;
pub mod verify;
pub mod walk;
pub mod workload;

#[cfg(test)]
mod tests;
