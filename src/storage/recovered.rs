//! What opening a log tells: how it went, or why it did not.

use std::io;

use crate::storage::scan::StopReason;
use crate::storage::segment_list::{ListError, Listed};

/// Why a log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed: says nothing about the data.
    #[error("{path}: {what}: {source}")]
    Io {
        /// File, or directory.
        path: String,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The segment list cannot be used.
    #[error(transparent)]
    List(#[from] ListError),
    /// A newer version of the server wrote it.
    #[error("{path} has format version {found}, newer than this server's")]
    Newer {
        /// The segment's file.
        path: String,
        /// Its version.
        found: u32,
    },
    /// Acknowledged data is missing or changed.
    #[error("{path}: damaged at position {position}: {what}; run `thalweg verify` on the data directory")]
    Damaged {
        /// The segment's file.
        path: String,
        /// Position in it.
        position: u64,
        /// What is wrong there.
        what: String,
    },
}

/// A last commit that was cut off because it was not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment's file.
    pub path: String,
    /// Where the commit begins.
    pub position: u64,
    /// Bytes from there to the end of the last block that is not zero.
    pub bytes: u64,
    /// What is wrong with it.
    pub reason: StopReason,
}

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Segments that hold commits.
    pub segments: u32,
    /// Of these, replayed from their footer.
    pub from_footers: u32,
    /// Events handed to the visitor.
    pub events: u64,
    /// Sequence number of the last commit.
    pub last_lsn: u64,
    /// Highest lineage id ever created in the log, as far as the log knows.
    pub highest_lineage: u64,
    /// The torn last commit, if there was one.
    pub torn: Option<TornTail>,
}

/// What is left of a log that was ended for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    /// Its segments in the order of replay, inherited ones first, each with its first sequence number. All are sealed.
    pub segments: Vec<(Listed, u64)>,
    /// Highest lineage id ever created in the log, as far as the log knows.
    pub lineage: u64,
    /// The torn last commit, if there was one: it is cut.
    pub torn: Option<TornTail>,
}
