//! What the offline subcommands share: which logs a path means, and whether a server uses them.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::node::data_dir::{LOCK, shard_dir};
use crate::node::exit::{Exit, Failure};
use crate::node::manifest::{MANIFEST, Manifest, ManifestError};
use crate::shard;
use crate::storage::event::HashRange;
use crate::storage::file_name;
use crate::storage::inspect::{Owner, Walk};

/// What a path on the command line means.
pub(super) enum Target {
    /// A data directory: its manifest, and the log of each shard.
    DataDir(Manifest, Vec<PathBuf>),
    /// The directory of one shard's log.
    Log(PathBuf),
    /// One segment file.
    Segment(PathBuf),
}

impl Target {
    /// Finds out what `path` is.
    pub(super) fn of(path: &Path) -> Result<Target, Failure> {
        let metadata = std::fs::metadata(path)
            .map_err(|error| Failure::new(Exit::DataDir, format!("{}: {error}", path.display())))?;
        if metadata.is_file() {
            return Ok(Target::Segment(path.to_path_buf()));
        }
        if path.join(MANIFEST).exists() {
            return Target::data_dir(path);
        }
        let has_segments = path.join(file_name::LIST).exists();
        if has_segments {
            return Ok(Target::Log(path.to_path_buf()));
        }
        let what = "neither a data directory (it has no MANIFEST) nor a shard's (it has no segments)";
        Err(Failure::new(Exit::DataDir, format!("{} is {what}", path.display())))
    }

    /// Walks everything that is meant.
    pub(super) fn walk(&self, walk: &mut Walk<'_>) -> io::Result<()> {
        match self {
            Target::DataDir(manifest, logs) => {
                (0..logs.len()).try_for_each(|shard| walk_shard(walk, &logs[shard], manifest, shard))
            }
            Target::Log(log) => match layout_around(log) {
                Some((manifest, shard)) => walk_shard(walk, log, &manifest, shard),
                None => walk.log(log, None),
            },
            Target::Segment(path) => walk.lone_segment(path),
        }
    }

    fn data_dir(path: &Path) -> Result<Target, Failure> {
        let manifest = Manifest::load(path).map_err(|error| {
            let exit = match error {
                ManifestError::Io(_) => Exit::DataDir,
                ManifestError::Newer { .. } => Exit::NewerFormat,
                ManifestError::Damaged(_) => Exit::Damaged,
            };
            Failure::new(exit, format!("{}: {error}", path.display()))
        })?;
        let manifest = manifest.ok_or_else(|| {
            Failure::new(Exit::DataDir, format!("{} vanished", path.join(MANIFEST).display()))
        })?;
        let shards =
            (0..manifest.shards()).map(|shard| shard_dir(path, manifest.generation, shard)).collect();
        Ok(Target::DataDir(manifest, shards))
    }
}

fn walk_shard(walk: &mut Walk<'_>, log: &Path, manifest: &Manifest, shard: usize) -> io::Result<()> {
    let Range { start, end } = shard::owned(shard, manifest.shards());
    let placement = |bucket: &[u8]| shard::placement(bucket, manifest.placement_seed);
    walk.log(log, Some(Owner { hashes: HashRange { start, end }, placement: &placement }))
}

/// The manifest of the data directory in which a shard's directory lies, if it is there and names it.
fn layout_around(log: &Path) -> Option<(Manifest, usize)> {
    let log = log.canonicalize().ok()?;
    let data_dir = log.parent()?.parent()?;
    let manifest = Manifest::load(data_dir).ok()??;
    let is_it = |shard: &usize| shard_dir(data_dir, manifest.generation, *shard) == log;
    let shard = (0..manifest.shards()).find(is_it)?;
    Some((manifest, shard))
}

/// Levels above a path at which the lock of its data directory can be: data/generation/shard/segment.
const LEVELS_TO_LOCK: usize = 4;

/// Takes the lock of the data directory that `path` is or lies in, if there is one. `Err` says who has it.
pub(super) fn lock(path: &Path) -> Result<Option<File>, Failure> {
    let Ok(path) = path.canonicalize() else { return Ok(None) };
    let Some(lock) =
        path.ancestors().take(LEVELS_TO_LOCK).map(|dir| dir.join(LOCK)).find(|lock| lock.is_file())
    else {
        return Ok(None);
    };
    // A directory that may not be locked may still be read.
    let Ok(file) = File::open(&lock) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            Exit::DataDirInUse,
            format!("a server is using it: {} is locked", lock.display()),
        )),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

#[cfg(test)]
pub(super) mod testing {
    use tempfile::TempDir;

    use super::{LOCK, Manifest, shard_dir};
    use crate::storage::testing::image::{images, write_log};

    /// A data directory of one shard with a small healthy log.
    pub(in crate::cli) fn data_dir() -> TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let manifest = Manifest::create(1).expect("random numbers");
        manifest.store(dir.path()).expect("written");
        std::fs::write(dir.path().join(LOCK), b"").expect("written");
        let shard = shard_dir(dir.path(), manifest.generation, 0);
        std::fs::create_dir_all(&shard).expect("created");
        write_log(&shard, &images());
        dir
    }
}
