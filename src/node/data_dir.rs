//! The data directory: where its files are, that one process has it, and that it can do what the log needs.
//!
//! ```text
//! data/
//!   LOCK                         held with flock while a process uses the directory
//!   MANIFEST                     see `node::manifest`
//!   probe                        one block, written with direct I/O at each start
//!   generation-000001/
//!     shard-000/                 one shard's log: its files are named in `storage`
//! ```

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::limits::BLOCK_BYTES;
use crate::node::exit::{Exit, Failure};

/// Name of the lock file.
pub const LOCK: &str = "LOCK";
/// Name of the file of one block that proves direct I/O, and that each shard opens first.
pub const PROBE: &str = "probe";

const GENERATION_PREFIX: &str = "generation-";
/// Ends the name of a generation that is being removed: its files may be gone already.
const REMOVED_SUFFIX: &str = ".removed";

/// Directory of one generation of logs.
pub fn generation_dir(data_dir: &Path, generation: u64) -> PathBuf {
    data_dir.join(format!("{GENERATION_PREFIX}{generation:06}"))
}

/// What the directory of a generation is called while it is removed.
pub fn removed_dir(data_dir: &Path, generation: u64) -> PathBuf {
    data_dir.join(format!("{GENERATION_PREFIX}{generation:06}{REMOVED_SUFFIX}"))
}

/// The generations that have a directory, and those that have one under its name for removal.
pub fn generations(data_dir: &Path) -> io::Result<(Vec<u64>, Vec<u64>)> {
    let (mut there, mut removed) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(data_dir)? {
        let name = entry?.file_name();
        // Any other name is none of ours.
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(GENERATION_PREFIX)) else {
            continue;
        };
        let (digits, found) = match name.strip_suffix(REMOVED_SUFFIX) {
            Some(digits) => (digits, &mut removed),
            None => (name, &mut there),
        };
        found.extend(digits.parse::<u64>());
    }
    Ok((there, removed))
}

/// Directory of one shard's log.
pub fn shard_dir(data_dir: &Path, generation: u64, shard: usize) -> PathBuf {
    generation_dir(data_dir, generation).join(format!("shard-{shard:03}"))
}

/// Creates the directory if need be, its parents included, and locks it. The lock lasts as long as the file returned.
pub fn open(data_dir: &Path) -> Result<File, Failure> {
    let refused = |what: &str, error: io::Error| {
        Failure::new(
            Exit::DataDir,
            format!("cannot {what} the data directory {}: {error}", data_dir.display()),
        )
    };
    create_dirs(data_dir).map_err(|error| refused("create", error))?;
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).read(true).write(true).mode(0o600);
    let mut lock = options.open(data_dir.join(LOCK)).map_err(|error| refused("write", error))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(data_dir.join(LOCK)).unwrap_or_default();
            let holder = match holder.trim() {
                "" => String::new(),
                pid => format!(" (process {pid})"),
            };
            let message = format!("the data directory {} is in use{holder}", data_dir.display());
            return Err(Failure::new(Exit::DataDirInUse, message));
        }
        Err(TryLockError::Error(error)) => return Err(refused("lock", error)),
    }
    // For people who ask who holds it; nothing reads it back but the message above, and a full disk must not keep the
    // server from starting: deletes make room.
    let _ = lock.set_len(0).and_then(|()| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
    may_create_files(data_dir).map_err(|error| refused("create files in", error))?;
    Ok(lock)
}

/// Whether new files may be created in the directory: segments will be, long after the start.
fn may_create_files(dir: &Path) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Creates a directory with its parents, each synced into its own parent: a data directory that acknowledges writes does
/// not vanish with a power cut.
pub fn create_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    create_dirs(parent)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        other => other?,
    }
    File::open(parent)?.sync_all()
}

/// One aligned block, as direct I/O wants it.
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Writes, flushes and reads back one block with direct I/O, as the log will. What it leaves behind is the file that each
/// shard opens first: an executor learns from its first file how to talk to the device, and must not learn it from an
/// empty one.
pub fn prove_direct_io(data_dir: &Path) -> Result<(), Failure> {
    let path = data_dir.join(PROBE);
    let block = Block([0xA5; BLOCK_BYTES]);
    let mut back = Block([0; BLOCK_BYTES]);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600);
    let plain = options.open(&path).map_err(|error| io_failure(&path, "written", &error))?;
    plain.write_all_at(&block.0, 0).map_err(|error| io_failure(&path, "written", &error))?;
    plain.sync_all().map_err(|error| io_failure(&path, "flushed", &error))?;
    let direct = options.custom_flags(libc::O_DIRECT).open(&path);
    let direct = direct.map_err(|error| io_failure(&path, "opened with direct I/O", &error))?;
    direct.write_all_at(&block.0, 0).map_err(|error| io_failure(&path, "written with direct I/O", &error))?;
    direct.sync_data().map_err(|error| io_failure(&path, "flushed", &error))?;
    direct
        .read_exact_at(&mut back.0, 0)
        .map_err(|error| io_failure(&path, "read with direct I/O", &error))?;
    if back.0 != block.0 {
        let message = format!("{} reads back other bytes than were written", path.display());
        return Err(Failure::new(Exit::DataDir, message));
    }
    Ok(())
}

/// `EINVAL` and `EOPNOTSUPP` are how file systems say that they cannot do direct I/O; all else is about the directory.
fn io_failure(path: &Path, what: &str, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Failure::new(
            Exit::NoDirectIo,
            format!(
                "the file system of {} has no direct I/O with blocks of {BLOCK_BYTES} bytes (O_DIRECT: {error}); \
                 put --data-dir on a local disk with ext4 or xfs",
                path.display()
            ),
        ),
        _ => Failure::new(Exit::DataDir, format!("{} cannot be {what}: {error}", path.display())),
    }
}

/// Whether any log of any generation has a file: then a missing manifest is a loss, not a new directory.
pub fn holds_logs(data_dir: &Path) -> io::Result<bool> {
    for generation in fs::read_dir(data_dir)? {
        let generation = generation?;
        if !generation.file_name().as_encoded_bytes().starts_with(GENERATION_PREFIX.as_bytes()) {
            continue;
        }
        for shard in fs::read_dir(generation.path())? {
            if fs::read_dir(shard?.path())?.next().is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_the_message_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        let held = open(&data).unwrap();
        let refused = open(&data).unwrap_err();
        assert_eq!(refused.code, Exit::DataDirInUse.code());
        assert!(refused.message.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(held);
        open(&data).unwrap();
    }

    #[test]
    fn a_file_in_the_way_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("data"), b"").unwrap();
        assert_eq!(open(&dir.path().join("data")).unwrap_err().code, Exit::DataDir.code());
        assert_eq!(open(&dir.path().join("data/below")).unwrap_err().code, Exit::DataDir.code());
    }

    #[test]
    fn the_probe_leaves_one_block() {
        let dir = tempfile::tempdir().unwrap();
        prove_direct_io(dir.path()).unwrap();
        prove_direct_io(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join(PROBE)).unwrap().len(), BLOCK_BYTES as u64);
    }

    #[test]
    fn errors_of_the_probe_name_their_cause() {
        let path = Path::new("data/probe");
        let table = [
            (libc::EINVAL, Exit::NoDirectIo),
            (libc::EOPNOTSUPP, Exit::NoDirectIo),
            (libc::EACCES, Exit::DataDir),
            (libc::EROFS, Exit::DataDir),
            (libc::ENOSPC, Exit::DataDir),
            (libc::EIO, Exit::DataDir),
        ];
        for (errno, exit) in table {
            let failure = io_failure(path, "written", &io::Error::from_raw_os_error(errno));
            assert_eq!(failure.code, exit.code(), "{errno}: {failure}");
            assert!(failure.message.contains("data/probe"), "{failure}");
        }
    }

    #[test]
    fn empty_shard_directories_are_no_data() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!holds_logs(dir.path()).unwrap());
        let shard = shard_dir(dir.path(), 1, 7);
        assert_eq!(shard, dir.path().join("generation-000001/shard-007"));
        create_dirs(&shard).unwrap();
        assert!(!holds_logs(dir.path()).unwrap());
        fs::write(shard.join("segments"), b"").unwrap();
        assert!(holds_logs(dir.path()).unwrap());
    }
}
