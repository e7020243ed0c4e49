//! Tests of the log as a whole, on the simulated directory (small segments, so that every test rolls).

mod ahead;
mod commits;
mod crash;
mod faults;
mod harness;
mod inherited;
mod reads;
mod recovery_table;
mod settled;
mod throughput;
