//! The load generator behind `thalweg bench`.

pub mod outcome;
