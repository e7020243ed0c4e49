//! What threads and processes use, from the kernel: CPU time, memory, cores, limits.

use std::fs;

/// CPU time of the calling thread so far, kernel included.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every thread has a clock of its CPU time");
    time.tv_sec as u64 * super::clock::SECOND_NS + time.tv_nsec as u64
}

/// Time that the calling thread was ready to run and waited for a core so far; 0 where the kernel does not tell.
pub fn thread_waited_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Lets the calling thread run on these cores only. The error names them.
pub fn pin(cpus: &[usize]) -> Result<(), String> {
    // SAFETY: a `cpu_set_t` of zeros is an empty set; the macros write within it because of the check before.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            if cpu >= libc::CPU_SETSIZE as usize {
                return Err(format!("--cpus: there is no core {cpu}"));
            }
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 {
        return Ok(());
    }
    Err(format!("--cpus: cannot run on {cpus:?}: {}", std::io::Error::last_os_error()))
}

/// Cores that the calling thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: the kernel writes at most the size that it is told into the set, which is read afterwards.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Cores of the machine.
pub fn online_cpus() -> Vec<usize> {
    // SAFETY: a system call without pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    (0..usize::try_from(count).unwrap_or(1)).collect()
}

/// Lets the calling thread's timers fire when they are due, not up to 50 us later.
pub fn sharpen_timers() {
    // SAFETY: a system call without pointers. If it fails, wake-ups are a little later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize, 0, 0, 0) };
}

/// Raises the limit of open files as far as it goes; the limit then.
pub fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, one `rlimit`.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 1024;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
            limit = raised;
        }
    }
    limit.rlim_cur
}

/// CPU time of a process so far, all its threads and the kernel included. The error names the process.
pub fn process_cpu_us(pid: u32) -> Result<u64, String> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| format!("there is no process {pid}: {error}"))?;
    // SAFETY: a system call without pointers.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    let ticks = cpu_ticks(&stat).ok_or_else(|| format!("{path} is not as expected: {stat}"))?;
    Ok(ticks * 1_000_000 / ticks_per_s)
}

/// User and system time in a `/proc/PID/stat`. The name in it may hold anything, also brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory of a process, in bytes: now, and at most so far.
pub fn process_memory_bytes(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    (status_bytes(&status, "VmRSS:"), status_bytes(&status, "VmHWM:"))
}

fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kib * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_strange_name_is_read() {
        let stat = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 300 45 0 0 20 0 1 0 100";
        assert_eq!(cpu_ticks(stat), Some(345));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let (resident, peak) = process_memory_bytes(std::process::id());
        assert!(resident > 0 && peak >= resident, "{resident} of {peak}");
        assert!(process_cpu_us(std::process::id()).is_ok());
        assert!(process_cpu_us(u32::MAX).unwrap_err().contains("no process 4294967295"));
        let before = thread_cpu_ns();
        while thread_cpu_ns() == before {}
        assert!(raise_open_files() >= 256);
    }

    #[test]
    fn a_thread_is_pinned() {
        std::thread::spawn(|| {
            let cpus = allowed_cpus();
            pin(&cpus[..1]).unwrap();
            assert_eq!(allowed_cpus(), cpus[..1]);
            assert!(pin(&[1_000_000]).unwrap_err().contains("1000000"));
        })
        .join()
        .unwrap();
    }
}
