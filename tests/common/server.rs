//! A server process: started, killed, stopped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::client::{Connection, Request};

/// How long anything may take before a test gives up on it. Reached only when something is broken.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Flags of every test server, before a test's own: small segments, so that every test writes into several.
const FLAGS: [&str; 4] = ["--segment-bytes", "4194304", "--long-poll-timeout-ms", "1000"];

/// A data directory that vanishes with the value. It lies beside the build: `/tmp` is often a file system in memory.
pub struct DataDir(tempfile::TempDir);

impl DataDir {
    /// A new, empty place; the data directory itself does not exist yet.
    pub fn new() -> DataDir {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        DataDir(
            tempfile::Builder::new()
                .prefix("data-")
                .tempdir_in(parent)
                .expect("a directory beside the build"),
        )
    }

    /// Path of the data directory.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("data")
    }
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Option<Child>,
    address: SocketAddr,
    start_line: String,
    errors: Option<JoinHandle<String>>,
    bucket_made: AtomicBool,
    _dir: Option<DataDir>,
}

/// How a server ended.
#[derive(Debug)]
pub struct Ended {
    /// What the process returned.
    pub status: ExitStatus,
    /// What it wrote on standard output before its start line, or instead of one.
    pub output: String,
    /// What it wrote on standard error.
    pub errors: String,
}

impl Server {
    /// A server of two shards over a fresh data directory.
    pub fn start(flags: &[&str]) -> Server {
        let dir = DataDir::new();
        let mut server = Server::start_in(&dir, flags);
        server._dir = Some(dir);
        server
    }

    /// A server over `dir`, which may hold data.
    pub fn start_in(dir: &DataDir, flags: &[&str]) -> Server {
        match Server::try_start(dir, flags) {
            Ok(server) => server,
            Err(ended) => panic!("the server did not start: {ended:?}"),
        }
    }

    /// Starts a server, or tells how it ended without its start line.
    pub fn try_start(dir: &DataDir, flags: &[&str]) -> Result<Server, Ended> {
        if let Ok(address) = std::env::var("THALWEG_TEST_ADDRESS") {
            let address = address.parse().expect("THALWEG_TEST_ADDRESS is an address");
            return Ok(Server {
                child: None,
                address,
                start_line: String::new(),
                errors: None,
                bucket_made: AtomicBool::new(false),
                _dir: None,
            });
        }
        let mut command = Server::command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path());
        let given = |flag: &str| flags.contains(&flag);
        for pair in FLAGS.chunks(2).chain([["--shards", "2"].as_slice()]) {
            if !given(pair[0]) {
                command.args(pair);
            }
        }
        Server::spawn(command.args(flags))
    }

    /// The binary under test, with nothing of the environment that would change its settings.
    pub fn command() -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        let ours = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("THALWEG_"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command that serves; waits for its start line.
    #[expect(
        clippy::zombie_processes,
        reason = "a server is waited for when it is dropped; a panic ends the test"
    )]
    pub fn spawn(command: &mut Command) -> Result<Server, Ended> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary under test can be run");
        let mut stderr = child.stderr.take().expect("standard error is piped");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            // What a killed process managed to write is enough.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut output = String::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).expect("standard output is text") == 0 {
                let status = child.wait().expect("the server is our child");
                let errors = errors.join().expect("the reader of standard error does not panic");
                return Err(Ended { status, output, errors });
            }
            if let Some(address) = address_in(&line) {
                // Later lines must not fill the pipe.
                std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
                return Ok(Server {
                    child: Some(child),
                    address,
                    start_line: line,
                    errors: Some(errors),
                    bucket_made: AtomicBool::new(false),
                    _dir: None,
                });
            }
            output.push_str(&line);
        }
    }

    /// Whether the server is not ours: then only the base protocol can be expected.
    pub fn is_foreign(&self) -> bool {
        self.child.is_none()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its start line.
    pub fn start_line(&self) -> &str {
        &self.start_line
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server is ours").id()
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::new(self.connect_raw(), self.is_foreign())
    }

    /// A new socket.
    pub fn connect_raw(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the server accepts connections")
    }

    /// A request on a connection of its own.
    pub fn request(&self, method: &str, target: impl Into<String>) -> Request<'_> {
        Request::new(method, target).to(self)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child has not been waited for, so the id is still its own.
        let result = unsafe { libc::kill(self.pid() as i32, signal) };
        assert_eq!(result, 0, "signal {signal} to {}", self.pid());
    }

    /// Kills it at once, as a power cut of the process would.
    pub fn kill(mut self) {
        let child = self.child.as_mut().expect("the server is ours");
        child.kill().expect("our child can be killed");
        child.wait().expect("our child can be waited for");
    }

    /// Asks it to stop and waits until it has. Anything but a clean end fails the test.
    pub fn stop(self) {
        self.signal(libc::SIGTERM);
        let ended = self.wait();
        assert!(ended.status.success(), "the server did not stop cleanly: {ended:?}");
    }

    /// Waits until it has ended by itself or by a signal.
    pub fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let child = self.child.as_mut().expect("the server is ours");
        let status = loop {
            if let Some(status) = child.try_wait().expect("our child can be waited for") {
                break status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        let errors = self.errors.take().expect("waited for once").join().expect("reading does not panic");
        Ended { status, output: self.start_line.clone(), errors }
    }

    /// The path prefix under which tests make streams: a bucket, created at first use.
    pub fn prefix(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if self.is_foreign() {
            // The server outlives the run: names must not come twice.
            return format!("/v1/stream/{}-{}/", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        }
        if !self.bucket_made.swap(true, Ordering::Relaxed) {
            let status = self.request("PUT", "/test").send().status;
            assert!(status == 201 || status == 409, "creating a bucket answered {status}");
        }
        "/test/".to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        // What the server said helps to understand why a test failed.
        if let (true, Some(errors)) = (std::thread::panicking(), self.errors.take()) {
            eprintln!("standard error of the server:\n{}", errors.join().unwrap_or_default());
        }
        // The data directory goes after this, when nothing writes into it any more.
    }
}

/// The address in a start line.
fn address_in(line: &str) -> Option<SocketAddr> {
    let rest = &line[line.find("http://")? + "http://".len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(rest.len());
    rest[..end].trim_end_matches(['.', ':']).parse().ok()
}
