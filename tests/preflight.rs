//! Starting and stopping the binary: what it refuses, with which exit code and words, and that it stops as asked.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

/// An ordinary user that no other test is: the kernel counts locked memory per user, over all processes, and gives back
/// that of an ended one late.
fn ordinary_user() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_000_000 + std::process::id() % 1_000_000 * 16 + NEXT.fetch_add(1, Ordering::Relaxed)
}

fn dir() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The ordinary user must reach it.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn command(binary: &Path, data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().env("THALWEG_LISTEN", "127.0.0.1:0");
    command.args(["serve", "--data-dir"]).arg(data).args(more);
    command
}

fn serve(data: &Path, more: &[&str]) -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_thalweg")), data, more)
}

fn root() -> bool {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The binary as an ordinary user, with a directory of that user's own.
fn serve_as_user(dir: &TempDir, more: &[&str]) -> Command {
    let (home, binary) = (dir.path().join("home"), dir.path().join("thalweg"));
    fs::create_dir_all(&home).unwrap();
    // By another process: a copy of ours would be open for writing in whatever another test forks meanwhile, and a file
    // that is open for writing cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_thalweg")).arg(&binary).status().unwrap();
    assert!(copied.success(), "{copied}");
    let mut command = command(&binary, &home.join("data"), more);
    if root() {
        let user = fs::metadata(&home).unwrap().uid();
        let user = if user == 0 { ordinary_user() } else { user };
        chown(&home, Some(user), Some(user)).unwrap();
        command.uid(user).gid(user);
    }
    command
}

/// Runs to the end, with the expected exit code and words. A server that starts instead is killed, and the test fails.
#[track_caller]
fn refused(command: &mut Command, code: i32, words: &str) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if !line.is_empty() {
        child.kill().unwrap();
    }
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(line.is_empty(), "it was not refused: {line}");
    assert_eq!(status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(words), "`{words}` is not in: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// A running server, killed with the test.
struct Server {
    child: Child,
    line: String,
}

impl Server {
    #[track_caller]
    fn start(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("no start line: {stderr}");
        }
        Server { child, line }
    }

    fn address(&self) -> &str {
        self.line.split("http://").nth(1).unwrap().split(' ').next().unwrap()
    }

    fn signal(&self, number: i32) {
        // SAFETY: the process is our child and not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, number) }, 0);
    }

    #[track_caller]
    fn stop(mut self, number: i32) {
        self.signal(number);
        let status = self.child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", self.line);
    }

    fn status_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes every `io_uring_setup` of the command fail, as a container's seccomp profile does.
fn without_io_uring(command: &mut Command, errno: i32) -> &mut Command {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let program = [
        step(LOAD, 0, 0, 0), // the number of the system call
        step(EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let mut program = program;
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the filter and its steps outlive both calls.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(install) }
}

/// Sets the locked-memory limit of the command.
fn locked_memory(command: &mut Command, kib: u64) -> &mut Command {
    let limit = libc::rlimit { rlim_cur: kib * 1024, rlim_max: kib * 1024 };
    let set = move || {
        // SAFETY: `limit` is valid for the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec it makes a system call only.
    unsafe { command.pre_exec(set) }
}

#[test]
fn one_start_line_and_a_clean_stop_on_either_signal() {
    let dir = dir();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Server::start(&mut serve(dir.path(), &["--shards", "1"]));
        for words in
            ["serves http://127.0.0.1:", "1 shard on core", "sync always", "recovered 0 streams, 0 records"]
        {
            assert!(server.line.contains(words), "`{words}` is not in: {}", server.line);
        }
        server.stop(signal);
    }
}

#[test]
fn bad_values_end_with_2() {
    let dir = dir();
    refused(&mut serve(dir.path(), &["--shards", "0"]), 2, "--shards");
    refused(serve(dir.path(), &[]).env("THALWEG_SYNC", "sometimes"), 2, "--sync");
    refused(&mut serve(dir.path(), &["--cpus", "1023"]), 2, "this process may use");
    refused(&mut serve(dir.path(), &["--cpus", "0,0"]), 2, "twice");
    refused(&mut Command::new(env!("CARGO_BIN_EXE_thalweg")), 2, "Usage");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is laid out for a bad value");
}

#[test]
fn no_io_uring_is_named() {
    let dir = dir();
    refused(without_io_uring(&mut serve(dir.path(), &[]), libc::EPERM), 3, "io_uring is");
    refused(without_io_uring(&mut serve(dir.path(), &[]), libc::ENOSYS), 3, "no io_uring");
}

#[test]
fn too_little_locked_memory_is_named() {
    let dir = dir();
    refused(locked_memory(&mut serve(dir.path(), &["--shards", "1"]), 256), 4, "256 KiB is too low");
    refused(locked_memory(&mut serve_as_user(&dir, &["--shards", "64"]), 8192), 4, "fewer --shards");
}

#[test]
fn an_ordinary_user_with_8_mib_runs_8_shards() {
    let dir = dir();
    // Twice at once after another: the kernel gives the first one's memory back late.
    for _ in 0..2 {
        let server = Server::start(locked_memory(&mut serve_as_user(&dir, &["--shards", "8"]), 8192));
        assert!(server.line.contains("8 shards"), "{}", server.line);
        // Three rings times 64 KiB a shard; with huge pages under the heap it was 6 MiB a shard.
        let pinned_kib = server.status_kib("VmPin");
        assert!(pinned_kib <= 8 * 3 * 64, "{pinned_kib} KiB are pinned");
        server.stop(libc::SIGTERM);
    }
}

#[test]
fn a_cpuset_is_respected() {
    let dir = dir();
    // SAFETY: a set of all zeros is valid and empty, and the calls write to it or read it only.
    let (mut one, core) = unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut all), 0);
        let core = (0..1024).rev().find(|core| libc::CPU_ISSET(*core, &all)).unwrap();
        (std::mem::zeroed::<libc::cpu_set_t>(), core)
    };
    // SAFETY: `core` is below the number of bits of the set.
    unsafe { libc::CPU_SET(core, &mut one) };
    let mut command = serve(dir.path(), &[]);
    // SAFETY: between fork and exec it makes a system call only.
    unsafe {
        command.pre_exec(move || match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    let server = Server::start(&mut command);
    assert!(server.line.contains(&format!("1 shard on core {core};")), "{}", server.line);
    server.stop(libc::SIGTERM);
}

#[test]
fn a_data_directory_serves_one_process() {
    let dir = dir();
    let server = Server::start(&mut serve(dir.path(), &["--shards", "1"]));
    refused(&mut serve(dir.path(), &["--shards", "1"]), 7, &format!("process {}", server.child.id()));
    server.stop(libc::SIGTERM);
    Server::start(&mut serve(dir.path(), &["--shards", "1"])).stop(libc::SIGTERM);
}

#[test]
fn a_port_in_use_is_refused() {
    let (first, second) = (dir(), dir());
    let server = Server::start(&mut serve(first.path(), &["--shards", "2"]));
    refused(&mut serve(second.path(), &["--listen", server.address()]), 8, "is in use");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    refused(&mut serve(second.path(), &["--listen", &address]), 8, "is in use");
    server.stop(libc::SIGTERM);
}

#[test]
fn a_read_only_data_directory_is_refused() {
    let dir = dir();
    let mut command = serve_as_user(&dir, &["--shards", "1"]);
    Server::start(&mut command).stop(libc::SIGTERM);
    let data = dir.path().join("home/data");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    refused(&mut command, 5, "cannot create files");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    Server::start(&mut command).stop(libc::SIGTERM);
}

#[test]
fn a_manifest_that_is_newer_damaged_or_gone_is_refused() {
    let dir = dir();
    Server::start(&mut serve(dir.path(), &["--shards", "1"])).stop(libc::SIGTERM);
    let manifest = dir.path().join("MANIFEST");
    let good = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, good.replacen("manifest 1 ", "manifest 2 ", 1)).unwrap();
    refused(&mut serve(dir.path(), &[]), 9, "format version 2");
    fs::write(&manifest, good.replacen("placement_seed", "placement-seed", 1)).unwrap();
    refused(&mut serve(dir.path(), &[]), 10, "checksum");
    fs::remove_file(&manifest).unwrap();
    fs::write(dir.path().join("generation-000001/shard-000/any"), b"").unwrap();
    refused(&mut serve(dir.path(), &[]), 10, "MANIFEST is gone");
    assert!(!manifest.exists(), "nothing is touched");
}
