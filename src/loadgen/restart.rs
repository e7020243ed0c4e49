//! Restarts: streams are filled, the server is stopped (gently or not) and started again, and what is measured is the time
//! from the start of its process to the first read that succeeds. In the end everything is read back.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::clock::Clock;
use super::gather::Gathered;
use super::measure::{Series, Tally, Window};
use super::outcome::{Outcome, ServerUse};
use super::plan::{Plan, Signal};
use super::progress::Progress;
use super::response::{Head, Parser, Sink};
use super::run::clean_up;
use super::scene::Scene;
use super::target::Target;
use super::{conditions, usage, verify};

/// How long a server may take to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks whether it is there.
const LOOK: Duration = Duration::from_micros(500);
/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Runs a plan of restarts.
pub fn run(plan: Plan, progress: &mut Progress) -> Result<Outcome, String> {
    let conditions = conditions::of(&plan);
    let command = plan.server_command.clone().expect("the plan of a restart has a command");
    let rounds = plan.load.rounds.expect("the plan of a restart has rounds");
    let signal = plan.load.signal.expect("the plan of a restart has a signal");
    let clock = Clock::start();
    let mut server = Server::start(&command)?;
    server.wait_for(&plan.target, "/", |_| true)?;
    progress.say("filling the streams");
    let scene = Scene::prepare(plan)?;
    let mut tally = Tally::default();
    let mut restart_ms = Vec::new();
    let path = format!("{}?offset=-1", scene.names.path(0));
    for round in 0..rounds {
        server.stop(signal)?;
        let began_ns = clock.now_ns();
        server = Server::start(&command)?;
        server.wait_for(&scene.plan.target, &path, |status| status == 200)?;
        let took_ns = clock.now_ns() - began_ns;
        progress.say(&format!("restart {} of {rounds}: {:.1} ms", round + 1, took_ns as f64 / 1e6));
        tally.operations += 1;
        tally.latency(Series::Restart, took_ns);
        restart_ms.push(took_ns as f64 / 1e6);
    }
    progress.say("reading everything back");
    let (plan, streams) = (&scene.plan, scene.plan.load.streams);
    let verified =
        verify::read_back(&plan.target, &scene.names, streams, &plan.layout(), scene.filled.clone(), &[])?;
    let pid = server.child.id();
    let (resident_bytes, peak_resident_bytes) = usage::process_memory_bytes(pid);
    let cpu_us = usage::process_cpu_us(pid)?;
    let server_use =
        ServerUse { pid, cpu_us, cpu_us_per_operation: cpu_us as f64, resident_bytes, peak_resident_bytes };
    let mut extra = BTreeMap::from([
        ("records".to_owned(), verified.records.into()),
        ("record_bytes".to_owned(), verified.bytes.into()),
        ("restart_ms".to_owned(), serde_json::json!(restart_ms)),
    ]);
    clean_up(&scene, progress, &mut extra);
    server.stop(Signal::Term)?;
    let measured_ns = restart_ms.iter().map(|ms| (ms * 1e6) as u64).sum::<u64>().max(1_000);
    let window = Window { begin_ns: 0, start_ns: 0, end_ns: measured_ns };
    let gathered = Gathered::of(window, tally);
    let mut outcome = gathered.outcome(plan, conditions, Some(server_use), extra);
    outcome.verified = Some(verified);
    Ok(outcome)
}

/// A server that was started here. It does not outlive the run.
struct Server {
    child: Child,
    command: String,
}

impl Server {
    fn start(command: &str) -> Result<Self, String> {
        // `exec`: signals are for the server, not for a shell in front of it.
        let child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("--server-command {command}: {error}"))?;
        Ok(Self { child, command: command.to_owned() })
    }

    /// Waits until a GET is answered with a status that is good.
    fn wait_for(&mut self, target: &Target, path: &str, is_good: impl Fn(u16) -> bool) -> Result<(), String> {
        let clock = Clock::start();
        loop {
            if let Ok(status) = get(target, path)
                && is_good(status)
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!(
                    "--server-command {}: it ended ({status}) before it answered",
                    self.command
                ));
            }
            if u128::from(clock.now_ns()) > PATIENCE.as_nanos() {
                return Err(format!("--server-command {}: no answer from {}", self.command, target.url()));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn stop(&mut self, signal: Signal) -> Result<(), String> {
        let number = match signal {
            Signal::Term => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
        };
        let pid = libc::pid_t::try_from(self.child.id()).expect("process ids are small");
        // SAFETY: a system call without pointers; the child has not been waited for, so the id is its own.
        unsafe { libc::kill(pid, number) };
        let clock = Clock::start();
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if u128::from(clock.now_ns()) > PATIENCE.as_nanos() {
                return Err(format!("--server-command {}: it does not stop", self.command));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Notes the status of the first whole answer.
#[derive(Default)]
struct First {
    status: Option<u16>,
    is_whole: bool,
}

impl Sink for First {
    fn head(&mut self, head: &Head<'_>) {
        self.status.get_or_insert(head.status);
    }

    fn body(&mut self, _bytes: &[u8]) {}

    fn end(&mut self) {
        self.is_whole = true;
    }
}

/// The status of one request.
fn get(target: &Target, path: &str) -> Result<u16, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect_timeout(&target.address, LOOK_MAX).map_err(text)?;
    socket.set_read_timeout(Some(LOOK_MAX)).map_err(text)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", target.host());
    socket.write_all(request.as_bytes()).map_err(text)?;
    let (mut parser, mut first, mut scratch) = (Parser::default(), First::default(), vec![0; 64 * 1024]);
    loop {
        let count = socket.read(&mut scratch).map_err(text)?;
        let fed =
            if count == 0 { parser.close(&mut first) } else { parser.feed(&scratch[..count], &mut first) };
        fed.map_err(|malformed| malformed.0)?;
        match first.status {
            Some(status) if first.is_whole => return Ok(status),
            _ if count == 0 => return Err("no answer".to_owned()),
            _ => {}
        }
    }
}
