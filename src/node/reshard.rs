//! Changes the number of shards of a data directory: links, no copies.
//!
//! ```text
//!  generation 1, 2 shards          generation 2, 3 shards
//!  shard 0  [A1 A2 A3*]  --------> shard 0  [A1 A2 A3]
//!                        \-------> shard 1  [A1 A2 A3 B1 B2]     then each goes on with a log of its own
//!  shard 1  [B1 B2*]     --------> shard 2  [B1 B2]              * sealed first
//! ```
//!
//! A new shard gets every segment of every old shard with which it shares a part of the placements, and ignores at replay
//! what it does not own. Contract:
//! - Until `MANIFEST` names the new generation, the old one is complete and usable: it only got footers. From then on the
//!   new one is. Both happen under the lock of the directory, before any shard starts.
//! - What an attempt that was interrupted left behind goes at the next start ([`remove_others`]). A generation is renamed
//!   before its files are removed, so that a part of one never passes for a whole.
//! - Segments are replayed in the order of their first sequence numbers. A log begins behind everything that it inherits, so
//!   what came first in a stream is replayed first; and it lists with each log whatever that one inherited.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use crate::node::data_dir::{self, generation_dir, removed_dir, shard_dir};
use crate::node::executor;
use crate::node::exit::{Exit, Failure};
use crate::node::manifest::Manifest;
use crate::shard;
use crate::storage::device::{DirectStore, available_bytes};
use crate::storage::event::HashRange;
use crate::storage::file_name;
use crate::storage::log::{Log, Retired};
use crate::storage::segment_list::{Listed, SegmentList};

/// A directory that was laid out anew.
pub struct Changed {
    /// What it says now.
    pub manifest: Manifest,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// Called before each step that changes the disk; its error ends the attempt there, as a crash would.
type Pace<'a> = dyn FnMut() -> io::Result<()> + 'a;

/// Lays the directory out for `shards` shards. The caller holds its lock, and [`remove_others`] has been called.
pub fn change(
    data_dir: &Path,
    from: &Manifest,
    shards: usize,
    segment_bytes: u64,
) -> Result<Changed, Failure> {
    let failed = |error: io::Error| {
        let (path, before) = (data_dir.display(), from.shards());
        let message = format!(
            "cannot change {path} from {before} to {shards} shards: {error}; {before} shards still work"
        );
        Failure::new(Exit::DataDir, message)
    };
    // Each new log makes a segment before anything else; afterwards there is no way back to the logs that have room.
    let needed = segment_bytes * shards as u64;
    let available = available_bytes(data_dir).map_err(failed)?;
    if available < needed {
        let what = format!("the first segments take {needed} bytes, and {available} are free");
        return Err(failed(io::Error::other(what)));
    }
    let retired = retire(data_dir, from)?;
    let manifest = switch(data_dir, from, shards, &retired, &mut || Ok(())).map_err(failed)?;
    let mut notes: Vec<String> = retired.iter().enumerate().filter_map(torn_note).collect();
    // The next start tries again.
    notes.extend(remove_others(data_dir, manifest.generation).err().map(|failure| failure.message));
    Ok(Changed { manifest, notes })
}

fn torn_note((shard, retired): (usize, &Retired)) -> Option<String> {
    let torn = retired.torn.as_ref()?;
    Some(format!("shard {shard}, as it was: cut {} bytes of an unfinished last commit", torn.bytes))
}

/// Ends every log of the present generation: checked, its end found, its last segment sealed.
fn retire(data_dir: &Path, from: &Manifest) -> Result<Vec<Retired>, Failure> {
    let probe = data_dir.join(data_dir::PROBE);
    executor::run_aside("reshard", &probe, || async {
        let mut retired = Vec::with_capacity(from.shards());
        for (shard, log_id) in from.log_ids.iter().enumerate() {
            let dir = shard_dir(data_dir, from.generation, shard);
            let log = Log::retire(Rc::new(DirectStore::new(&dir)), *log_id).await;
            retired.push(log.map_err(|error| Failure::of_log(&dir, &error))?);
        }
        Ok(retired)
    })?
}

/// Makes the next generation and puts it in force. On an error it may or may not be.
fn switch(
    data_dir: &Path,
    from: &Manifest,
    shards: usize,
    retired: &[Retired],
    pace: &mut Pace<'_>,
) -> io::Result<Manifest> {
    let mut to = from.clone();
    to.generation += 1;
    to.renew_logs(shards)?;
    let dir = generation_dir(data_dir, to.generation);
    if dir.exists() {
        return Err(io::Error::other(format!("{} is in the way", dir.display())));
    }
    for shard in 0..shards {
        let dir = shard_dir(data_dir, to.generation, shard);
        pace()?;
        data_dir::create_dirs(&dir)?;
        let mut list = SegmentList::default();
        for (old, listed) in inherited(shard, shards, retired) {
            let there = source(&retired[old], &listed);
            let there = shard_dir(data_dir, from.generation, old).join(there);
            let here = dir.join(&listed.name);
            if !list.segments.iter().any(|other| other.name == listed.name) {
                pace()?;
                fs::hard_link(there, &here)?;
                // Synced by whoever sealed it, unless that was told not to (`--sync none`).
                File::open(here)?.sync_all()?;
            }
            list.lineage = list.lineage.max(retired[old].lineage);
            list.segments.push(listed);
        }
        pace()?;
        let mut file = File::create(dir.join(file_name::LIST))?;
        file.write_all(&list.encode())?;
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    pace()?;
    to.store(data_dir).map_err(io::Error::other)?;
    Ok(to)
}

/// Name in the directory of an old shard of the segment that is listed anew as `listed`.
fn source<'a>(retired: &'a Retired, listed: &Listed) -> &'a str {
    let is_it = |old: &Listed| (old.log_id, old.number) == (listed.log_id, listed.number);
    let mut names = retired.segments.iter().filter(|(old, _)| is_it(old)).map(|(old, _)| &old.name);
    names.next().expect("an old shard lists what is inherited from it")
}

/// The segments that shard `shard` of `shards` begins with, in the order of replay, each with an old shard that lists it.
///
/// Old shards that list the same segment of a log that they both inherited share it; but one of them may have rewritten its
/// part of it since. So each counts for the streams of the old shards that list it, and for no others.
fn inherited(shard: usize, shards: usize, retired: &[Retired]) -> Vec<(usize, Listed)> {
    let new = owned(shard, shards);
    let mut segments: BTreeMap<(u64, u64, u32), Vec<(HashRange, usize)>> = BTreeMap::new();
    for (old, retired_shard) in retired.iter().enumerate() {
        let range = owned(old, retired.len());
        if new.intersection(range).is_none() {
            continue;
        }
        for (Listed { number, log_id, hashes, .. }, first_lsn) in &retired_shard.segments {
            if let Some(hashes) = hashes.intersection(range) {
                segments.entry((*first_lsn, *log_id, *number)).or_default().push((hashes, old));
            }
        }
    }
    let mut listed = Vec::new();
    for ((_, log_id, number), mut ranges) in segments {
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let touches = next.0.start == range.0.end;
            if touches {
                range.0.end = next.0.end;
            }
            touches
        });
        listed
            .extend(ranges.into_iter().map(|(hashes, old)| (old, Listed::inherited(number, log_id, hashes))));
    }
    listed
}

/// What a shard owns.
fn owned(shard: usize, shards: usize) -> HashRange {
    let Range { start, end } = shard::owned(shard, shards);
    HashRange { start, end }
}

/// Removes every generation but `current`: older ones, and what an interrupted attempt left of a newer one. The caller
/// holds the lock and has seen that `current` is complete. Refuses if a newer one has been in use.
pub fn remove_others(data_dir: &Path, current: u64) -> Result<(), Failure> {
    remove(data_dir, current, &mut || Ok(()))
}

fn remove(data_dir: &Path, current: u64, pace: &mut Pace<'_>) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(Exit::DataDir, format!("cannot tidy {}: {error}", data_dir.display()))
    };
    let (there, removed) = data_dir::generations(data_dir).map_err(failed)?;
    if let Some(newer) = there.iter().find(|generation| **generation > current)
        && has_been_in_use(&generation_dir(data_dir, *newer)).map_err(failed)?
    {
        let message = format!(
            "MANIFEST names generation {current}, and {} has been in use: is MANIFEST an older copy?",
            generation_dir(data_dir, *newer).display()
        );
        return Err(Failure::new(Exit::Damaged, message));
    }
    // First, since an earlier removal may have left the name that the next one needs.
    for generation in removed {
        remove_renamed(data_dir, generation, pace).map_err(failed)?;
    }
    for generation in there.into_iter().filter(|generation| *generation != current) {
        rename_for_removal(data_dir, generation, pace).map_err(failed)?;
        remove_renamed(data_dir, generation, pace).map_err(failed)?;
    }
    Ok(())
}

fn rename_for_removal(data_dir: &Path, generation: u64, pace: &mut Pace<'_>) -> io::Result<()> {
    pace()?;
    fs::rename(generation_dir(data_dir, generation), removed_dir(data_dir, generation))?;
    File::open(data_dir)?.sync_all()
}

fn remove_renamed(data_dir: &Path, generation: u64, pace: &mut Pace<'_>) -> io::Result<()> {
    pace()?;
    fs::remove_dir_all(removed_dir(data_dir, generation))
}

/// Whether a log of this generation has written anything: the links that it began with do not count.
fn has_been_in_use(generation_dir: &Path) -> io::Result<bool> {
    for shard in fs::read_dir(generation_dir)? {
        for file in fs::read_dir(shard?.path())? {
            if file?.file_name().to_str().is_some_and(file_name::is_own_segment) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
