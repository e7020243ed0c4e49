//! What the machine must grant before anything starts: io_uring, locked memory, open files. The executor would find out
//! as well, with a panic or an exit of its own; here each lack has a plain message and an exit code.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::limits;
use crate::node::exit::{Exit, Failure};

/// Bytes of locked memory below which the executor does not start, whoever runs it.
const LOCKED_BYTES_MIN: u64 = 512 * 1024;
/// Memory that an executor registers for I/O buffers: its minimum. Our buffers are larger and come from the heap.
pub const IO_MEMORY_BYTES: usize = 64 * 1024;
/// Rings of one executor: main, polled and latency.
const RINGS: u64 = 3;
/// Bytes of kernel memory per entry of a ring: 64 for the submission, twice 16 for completions, 4 for the index.
const RING_ENTRY_BYTES: u64 = 100;
/// Depths tried, deepest first. Closing a ring's depth of connections in one go is what needs it deep.
const RING_DEPTHS: [usize; 4] = [1024, 512, 256, 128];
/// Pause between attempts while locked memory is lacking.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Files that a shard has open besides connections: segments, directories, rings, listeners.
const FILES_PER_SHARD: u64 = 64;
/// Files of the process besides shards.
const FILES_BASE: u64 = 64;

/// Operations without which the executor ends the process, with their numbers in the kernel's interface; and the
/// cancelling of reads and accepts, which it takes for granted.
const OPERATIONS: [(&str, usize); 24] = [
    ("NOP", 0),
    ("READV", 1),
    ("WRITEV", 2),
    ("FSYNC", 3),
    ("READ_FIXED", 4),
    ("WRITE_FIXED", 5),
    ("POLL_ADD", 6),
    ("POLL_REMOVE", 7),
    ("SENDMSG", 9),
    ("RECVMSG", 10),
    ("TIMEOUT", 11),
    ("TIMEOUT_REMOVE", 12),
    ("ACCEPT", 13),
    ("ASYNC_CANCEL", 14),
    ("LINK_TIMEOUT", 15),
    ("CONNECT", 16),
    ("FALLOCATE", 17),
    ("OPENAT", 18),
    ("CLOSE", 19),
    ("STATX", 21),
    ("READ", 22),
    ("WRITE", 23),
    ("SEND", 26),
    ("RECV", 27),
];

/// Checks that io_uring is there for this process, with all operations that the executor uses.
pub fn io_uring() -> Result<(), Failure> {
    let ring = patiently(setup_ring).map_err(|error| no_ring(&error, &io_uring_disabled()))?;
    let supported = supported_operations(&ring).map_err(|error| no_ring(&error, &io_uring_disabled()))?;
    let missing: Vec<&str> =
        OPERATIONS.iter().filter(|(_, number)| !supported[*number]).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message =
        format!("this kernel's io_uring lacks {}; Linux 5.8 or later is needed", missing.join(", "));
    Err(Failure::new(Exit::NoIoUring, message))
}

/// Repeats what failed for lack of locked memory: the kernel gives back that of a process which ended a moment ago with
/// some delay.
pub fn patiently<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let give_up = Instant::now() + Duration::from_millis(limits::LOCKED_MEMORY_DEADLINE_MS);
    loop {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && Instant::now() < give_up => {
                thread::sleep(RETRY_PAUSE);
            }
            done => return done,
        }
    }
}

/// A shard found no locked memory, though what it needs is within the limit.
pub fn no_locked_memory(shard: usize) -> Failure {
    let message = format!(
        "no locked memory is left for shard {shard}: other processes of this user count too; \
         raise the limit (ulimit -l, LimitMEMLOCK=) or use fewer --shards"
    );
    Failure::new(Exit::LockedMemory, message)
}

/// Makes a small ring, as the executor's own probe will.
fn setup_ring() -> io::Result<OwnedFd> {
    // `struct io_uring_params` has 120 bytes; all zeros asks for the defaults.
    let mut params = [0u64; 15];
    // SAFETY: the kernel reads and writes `params` during the call only.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Asks the ring which operations it knows, by number.
fn supported_operations(ring: &OwnedFd) -> io::Result<[bool; 256]> {
    const REGISTER_PROBE: libc::c_uint = 8;
    const SUPPORTED: u16 = 1;
    // `struct io_uring_probe`: 16 bytes, then 256 entries of 8 bytes: op u8, reserved u8, flags u16, reserved u32.
    let mut probe = [0u64; 2 + 256];
    // SAFETY: the buffer has room for the header and the 256 entries that the last argument allows the kernel to write.
    let result = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), REGISTER_PROBE, probe.as_mut_ptr(), 256)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut supported = [false; 256];
    for entry in &probe[2..] {
        let bytes = entry.to_ne_bytes();
        supported[usize::from(bytes[0])] |= u16::from_ne_bytes([bytes[2], bytes[3]]) & SUPPORTED != 0;
    }
    Ok(supported)
}

/// The sysctl `kernel.io_uring_disabled`; empty where it does not exist.
fn io_uring_disabled() -> String {
    fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default().trim().to_owned()
}

/// Why there is no ring, and what to do about it.
fn no_ring(error: &io::Error, disabled: &str) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => Failure::new(
            Exit::LockedMemory,
            "io_uring found no locked memory left for this user; raise the limit (ulimit -l, LimitMEMLOCK=)",
        ),
        Some(libc::ENOSYS) => Failure::new(
            Exit::NoIoUring,
            "this kernel has no io_uring; Linux 5.8 or later is needed, built with it",
        ),
        Some(libc::EPERM | libc::EACCES) if !matches!(disabled, "" | "0") => Failure::new(
            Exit::NoIoUring,
            format!("io_uring is switched off: kernel.io_uring_disabled is {disabled}; set it to 0"),
        ),
        Some(libc::EPERM | libc::EACCES) => Failure::new(
            Exit::NoIoUring,
            "io_uring is blocked for this process, as container runtimes do by default; allow it in the seccomp \
             profile (docker run --security-opt seccomp=unconfined, or a profile with io_uring_*)",
        ),
        _ => Failure::new(Exit::NoIoUring, format!("io_uring does not work here: {error}")),
    }
}

/// Chooses how deep the rings of each executor are, from the locked memory that the process may use; raises the soft
/// limit to the hard one first.
pub fn ring_depth(shards: usize) -> Result<usize, Failure> {
    let limit = raise_limit(libc::RLIMIT_MEMLOCK, u64::MAX);
    let unlimited = limit == u64::MAX || may_lock_memory();
    depth_for(shards, limit, unlimited).ok_or_else(|| {
        let needed = LOCKED_BYTES_MIN.max(locked_bytes(shards, RING_DEPTHS[RING_DEPTHS.len() - 1]));
        Failure::new(
            Exit::LockedMemory,
            format!(
                "the locked-memory limit of {} KiB is too low: {shards} shards need {} KiB \
                 (ulimit -l, LimitMEMLOCK=, docker --ulimit memlock=), or fewer --shards",
                limit / 1024,
                needed.div_ceil(1024)
            ),
        )
    })
}

/// The deepest rings that fit. `unlimited`: the kernel does not count this process's rings.
fn depth_for(shards: usize, limit_bytes: u64, unlimited: bool) -> Option<usize> {
    if limit_bytes < LOCKED_BYTES_MIN {
        return None;
    }
    // Three eighths: a process that this one replaces is counted for a while after its end, together with this one, and
    // a quarter is left for what the formula does not know. (8 shards, 8 MiB: 512 deep, 2.8 MiB, twice 5.6 MiB.)
    let budget = if unlimited { u64::MAX } else { limit_bytes / 8 * 3 };
    let last = RING_DEPTHS.len() - 1;
    let fits = RING_DEPTHS.iter().position(|depth| locked_bytes(shards, *depth) <= budget);
    match fits {
        Some(at) => Some(RING_DEPTHS[at]),
        None => (locked_bytes(shards, RING_DEPTHS[last]) <= limit_bytes).then_some(RING_DEPTHS[last]),
    }
}

/// Bytes that the executors of all shards lock: rings, rounded up to pages, and registered buffers in each. The ring of the
/// log is small and not counted: 32 shards, the most that this admits under 8 MiB, start under 8 MiB with it, too. A kernel that
/// sees it otherwise refuses the ring, which is told like any other lack of locked memory.
fn locked_bytes(shards: usize, depth: usize) -> u64 {
    let ring = (RING_ENTRY_BYTES * depth as u64).next_multiple_of(4096) + 4096;
    shards as u64 * RINGS * (ring + IO_MEMORY_BYTES as u64)
}

/// Has all memory that the process touches from now on mapped in small pages, but for what `http::lent` asks for; a kernel that
/// cannot do it is none the worse.
///
/// - The first touch of a huge page clears 2 MiB at once. Measured on a virtual machine: 5 ms, with every connection of the
///   core waiting, five times a second while the cache fills: a p99 of 4 ms for appends of 16 clients instead of 1.
/// - An executor registers 64 KiB of heap with each of its three rings. The kernel counts the pages under it as locked, and
///   of a huge page all 2 MiB: measured, 6 MiB a shard instead of 192 KiB, so that 8 MiB of locked memory did for one shard.
fn small_pages() {
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Where the kernel counts this process's locked memory, starts the program anew, as the same process, with small pages from
/// its first byte on. What the allocator touched before `main` may be huge pages, and it serves other threads from them:
/// measured, one start in eight then ran out of 8 MiB with 8 shards. To be called first of all.
pub fn small_pages_from_the_first() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the first call, and the second touches no memory of ours.
    let is_on = unsafe {
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit);
        libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0
    };
    small_pages();
    if !is_on || limit.rlim_max == libc::RLIM_INFINITY || may_lock_memory() {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    // It returns only if it fails: then the start goes on with what there is.
    let _ = command.exec();
}

/// Whether the process has `CAP_IPC_LOCK`: the kernel then counts no locked memory.
fn may_lock_memory() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0);
    effective & (1 << CAP_IPC_LOCK) != 0
}

/// Raises the limit of open files as far as it goes, and says how many connections fit: `max_connections`, or fewer.
pub fn connections(max_connections: usize, shards: usize) -> usize {
    let others = FILES_BASE + FILES_PER_SHARD * shards as u64;
    let limit = raise_limit(libc::RLIMIT_NOFILE, others + max_connections as u64);
    max_connections.min(usize::try_from(limit.saturating_sub(others)).unwrap_or(usize::MAX)).max(1)
}

/// Raises a soft limit to `wanted`, or as near as the hard limit allows; returns what it is now.
fn raise_limit(resource: libc::__rlimit_resource_t, wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the call.
    if unsafe { libc::getrlimit(resource, &mut limit) } != 0 || limit.rlim_cur >= wanted {
        return limit.rlim_cur;
    }
    // The hard limit goes up only for the privileged: tried first, then the soft one alone.
    let attempts = [
        libc::rlimit { rlim_cur: wanted, rlim_max: wanted.max(limit.rlim_max) },
        libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), rlim_max: limit.rlim_max },
    ];
    for attempt in attempts {
        if resource == libc::RLIMIT_MEMLOCK && attempt.rlim_max > limit.rlim_max {
            continue; // a hard limit on locked memory is someone's decision; and the privileged are not counted
        }
        // SAFETY: `attempt` is valid for the call.
        if unsafe { libc::setrlimit(resource, &attempt) } == 0 {
            return attempt.rlim_cur;
        }
    }
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn rings_get_as_deep_as_locked_memory_allows() {
        let table = [
            (1, 8 * MIB, false, Some(1024)),
            (8, 8 * MIB, false, Some(512)),
            (16, 8 * MIB, false, Some(128)),
            (32, 8 * MIB, false, Some(128)),
            (64, 8 * MIB, false, None),
            (64, 8 * MIB, true, Some(1024)),
            (256, u64::MAX, true, Some(1024)),
            (1, LOCKED_BYTES_MIN, false, Some(128)),
            (1, LOCKED_BYTES_MIN - 1, false, None),
            (1, LOCKED_BYTES_MIN - 1, true, None),
        ];
        for (shards, limit, unlimited, depth) in table {
            assert_eq!(depth_for(shards, limit, unlimited), depth, "{shards} shards, {limit} bytes");
        }
    }

    #[test]
    fn the_cause_of_a_missing_ring_is_named() {
        let table = [
            (libc::EPERM, "0", Exit::NoIoUring, "seccomp"),
            (libc::EPERM, "", Exit::NoIoUring, "seccomp"),
            (libc::EPERM, "2", Exit::NoIoUring, "kernel.io_uring_disabled is 2"),
            (libc::ENOSYS, "", Exit::NoIoUring, "no io_uring"),
            (libc::ENOMEM, "0", Exit::LockedMemory, "ulimit -l"),
            (libc::EIO, "0", Exit::NoIoUring, "does not work"),
        ];
        for (errno, disabled, exit, words) in table {
            let failure = no_ring(&io::Error::from_raw_os_error(errno), disabled);
            assert_eq!(failure.code, exit.code(), "{failure}");
            assert!(failure.message.contains(words), "{failure}");
        }
    }

    #[test]
    fn connections_leave_files_for_the_log() {
        assert_eq!(connections(1, 1), 1);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is valid for the call.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        let most = connections(usize::MAX >> 1, 2);
        assert!(most >= 1 && most as u64 <= i64::MAX as u64, "{most}");
    }
}
