//! Why the process ends, as an exit code: one table, for people and for service managers.

use std::path::Path;
use std::process::ExitCode;

use crate::storage::log::OpenError;
use crate::storage::segment_list::ListError;

/// Exit codes of `thalweg serve`. Numbers are part of the interface: they never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Stopped as asked.
    Clean = 0,
    /// Something failed that no other code names, a shard while serving included.
    Failed = 1,
    /// A flag or an environment variable has a bad value.
    Usage = 2,
    /// The kernel has no io_uring for this process.
    NoIoUring = 3,
    /// The locked-memory limit is too low.
    LockedMemory = 4,
    /// The data directory cannot be created, read or written.
    DataDir = 5,
    /// The file system of the data directory has no direct I/O.
    NoDirectIo = 6,
    /// Another process uses the data directory.
    DataDirInUse = 7,
    /// Another process listens on an address, or it cannot be bound.
    Address = 8,
    /// The data directory was written by a newer version.
    NewerFormat = 9,
    /// Stored bytes are damaged: nothing is started, nothing is changed.
    Damaged = 10,
    /// A stop took longer than its deadline; what was acknowledged is on disk.
    StopTimedOut = 11,
}

impl Exit {
    /// The number itself.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A reason not to start, or not to go on: one plain sentence or two, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Exit code of the process: usually an [`Exit`], or what a shard says.
    pub code: u8,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl Failure {
    /// A failure with a code of the table.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { code: exit.code(), message: message.into() }
    }

    /// Why the log in `dir` does not open.
    pub fn of_log(dir: &Path, error: &OpenError) -> Failure {
        let exit = match error {
            OpenError::Damaged { .. } | OpenError::List(ListError::Damaged { .. }) => Exit::Damaged,
            OpenError::Newer { .. } | OpenError::List(ListError::Newer { .. }) => Exit::NewerFormat,
            OpenError::Io { .. } | OpenError::List(ListError::Io { .. }) => Exit::DataDir,
        };
        Failure::new(exit, format!("{}: {error}", dir.display()))
    }
}
