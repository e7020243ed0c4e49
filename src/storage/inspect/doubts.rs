//! What does not fit, and is no damage if the log goes on in a certain way: settling leaves out what ends further
//! on. The end of the log decides.

use std::path::PathBuf;

use super::streams::{Problem, Streams, Unless};
use super::{At, Finding, Owner, Severity};

/// Doubts of a log so far.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// A segment that was rewritten, or that counts for a part of the placements only, has begun: something may be
    /// missing from here on.
    may_lack: bool,
    open: Vec<Doubt>,
}

#[derive(Debug)]
struct Doubt {
    path: PathBuf,
    position: u64,
    what: String,
    unless: Unless,
}

impl Doubts {
    /// A segment begins in which, or before which, something may be missing.
    pub(super) fn begin(&mut self) {
        self.may_lack = true;
    }

    /// Something does not fit. Says so if that is certain.
    pub(super) fn hear(&mut self, problem: Problem, at: At<'_>) -> Option<String> {
        let Problem { what, unless } = problem;
        match unless {
            Some(Unless::Unknown) if self.may_lack => {}
            Some(unless) if self.may_lack => {
                let At { path, position, .. } = at;
                self.open.push(Doubt { path: path.to_path_buf(), position, what, unless });
            }
            _ => return Some(what),
        }
        None
    }

    /// The log has ended: what is damage after all. Without an owner nothing is, since the streams of others end in
    /// their logs.
    pub(super) fn resolve(self, streams: &Streams, owner: Option<Owner<'_>>) -> Vec<Finding> {
        let Some(owner) = owner else { return Vec::new() };
        let is_damage = |doubt: &Doubt| !streams.resolves(&doubt.unless, owner.hashes);
        let finding = |Doubt { path, position, what, .. }| Finding {
            severity: Severity::Damage,
            path,
            position,
            what: format!("{what}, and nothing explains what is missing"),
        };
        self.open.into_iter().filter(is_damage).map(finding).collect()
    }
}
