//! A service that does what the path of a request says, and a client on the same executor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::timer::Timer;
use glommio::{LocalExecutorBuilder, Placement};

use super::super::{Shared, serve};
use crate::http::buffer::Pool;
use crate::http::connections::{Connections, Phase};
use crate::http::lent::{Lender, Region};
use crate::http::pieces::Pieces;
use crate::http::readiness::Readiness;
use crate::http::service::{Admit, Fill, Service, Source, Step, Wait};
use crate::http::socket::Socket;
use crate::http::{CommonHeaders, Head, Method};
use crate::protocol::errors::Problem;

/// Runs a test in an executor of its own.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    // Memory of finished executors is given back late by the kernel, so a first try may fail. The preempt timer stays what
    // it is: with a short one, an executor that loses its core at the wrong moment goes to sleep with a task to run.
    for _ in 0..1000 {
        match LocalExecutorBuilder::new(Placement::Unbound).ring_depth(64).io_memory(64 << 10).make() {
            Ok(executor) => return executor.run(patiently(test)),
            Err(_) => std::thread::yield_now(),
        }
    }
    panic!("no executor can be made here");
}

/// Fails a test in which nothing happens any more. Reached only when something is broken.
async fn patiently<T>(test: impl Future<Output = T>) -> T {
    futures_lite::future::or(test, async {
        Timer::new(Duration::from_secs(60)).await;
        panic!("the test waits for something that does not happen")
    })
    .await
}

/// Gives all tasks and sockets a turn: a timer that is over soon is looked at when everything else has been.
pub async fn turn() {
    Timer::new(Duration::from_micros(20)).await;
}

/// Gives turns until something has happened.
pub async fn until(happened: impl Fn() -> bool) {
    while !happened() {
        turn().await;
    }
}

/// What a source of the fake does next.
pub enum Event {
    Bytes(&'static [u8], Fill),
}

/// See the module. Paths: `/done`, `/after/N` (ticket N), `/room` (waits for room until there is some), `/later` (answers
/// what the test pushes), `/live` (likewise, and ends with its peer), `/shard/N`, `/refused`,
/// `/refused/after/1` (once ticket 1 is durable), `/pieces` (its body is admitted in pieces), `/lent` (a long body that is
/// sent without a copy).
#[derive(Default)]
pub struct Fake {
    /// Every call, as `method path body`.
    pub calls: RefCell<Vec<String>>,
    pub durable: Cell<u64>,
    /// Tickets above `durable` will never be.
    pub failed: Cell<bool>,
    pub has_room: Cell<bool>,
    room_announced: Cell<u64>,
    pub now_ms: Cell<u64>,
    /// How often somebody looked at the clock: moves when a connection does something.
    pub looks: Cell<u64>,
    pub stopping: Cell<bool>,
    pub budget_bytes: Cell<u64>,
    pub max_bytes: Cell<u64>,
    pub handed: RefCell<Vec<(usize, OwnedFd, Vec<u8>)>>,
    pub events: RefCell<VecDeque<Event>>,
    /// Sources that live.
    pub sources: Cell<usize>,
    wakers: RefCell<Vec<Waker>>,
}

impl Fake {
    /// Makes tickets durable.
    pub fn publish(&self, ticket: u64) {
        self.durable.set(ticket);
        self.wake();
    }

    /// Says that there may be room; who does not wait just now does not hear of it.
    pub fn announce_room(&self) {
        self.room_announced.set(self.room_announced.get() + 1);
        self.wake();
    }

    /// Has a source say something.
    pub fn push(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        self.wake();
    }

    /// No commit will complete any more.
    pub fn fail(&self) {
        self.failed.set(true);
        self.wake();
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn park<T>(&self, context: &Context<'_>) -> Poll<T> {
        self.wakers.borrow_mut().push(context.waker().clone());
        Poll::Pending
    }
}

/// An answer with a body, so short that a test can write it out.
pub fn answer(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// What `/lent` answers with: more than a socket takes at once.
pub fn lent_body() -> Vec<u8> {
    (0..3_000_001u32).flat_map(|n| n.to_le_bytes()).collect()
}

/// The service of a test: the fake, shared with it.
#[derive(Clone)]
pub struct Handle(pub Rc<Fake>);

fn number(path: &str) -> u64 {
    path.rsplit('/').next().and_then(|text| text.parse().ok()).expect("the path ends in a number")
}

impl Service for Handle {
    fn admit(&self, head: &Head<'_>, out: &mut Vec<u8>) -> Admit {
        let path = std::str::from_utf8(head.path).expect("test paths are text");
        if path.starts_with("/shard/") {
            return Admit::Elsewhere(number(path) as usize);
        }
        if path == "/refused" {
            out.extend_from_slice(answer("refused").as_bytes());
            return Admit::Refused(0);
        }
        if path == "/refused/after/1" {
            out.extend_from_slice(answer("refused").as_bytes());
            return Admit::Refused(1);
        }
        Admit::Body { max_bytes: self.0.max_bytes.get(), in_pieces: path.starts_with("/pieces") }
    }

    fn call(&self, head: &Head<'_>, body: &[u8], out: &mut Vec<u8>) -> Step {
        let path = std::str::from_utf8(head.path).expect("test paths are text");
        let (method, body) = (format!("{:?}", head.method), String::from_utf8_lossy(body));
        let shown = if body.len() > 64 { format!("{} bytes", body.len()) } else { body.into_owned() };
        let call = format!("{method} {path} {shown}").trim_end().to_owned();
        if path == "/room" && !self.0.has_room.get() {
            self.0.calls.borrow_mut().push(format!("{call} waits"));
            return Step::Again(Wait::Room);
        }
        self.0.calls.borrow_mut().push(call);
        match path {
            "/later" | "/live" => {
                self.0.sources.set(self.0.sources.get() + 1);
                return Step::Later(Box::new(FakeSource { fake: self.0.clone(), live: path == "/live" }));
            }
            "/lent" => {
                let body = lent_body();
                out.extend_from_slice(
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
                );
                let region = Region::new(body.len()).expect("there is memory");
                return Step::Lent(region.keep(&body).expect("it fits"));
            }
            _ if path.starts_with("/shard/") => return Step::Elsewhere(number(path) as usize),
            _ => {}
        }
        if head.method != Method::Head {
            out.extend_from_slice(answer(path).as_bytes());
        }
        if path.starts_with("/after/") { Step::After(number(path)) } else { Step::Done }
    }

    fn call_with_pieces(&self, head: &Head<'_>, body: &mut Pieces, out: &mut Vec<u8>) -> Step {
        self.call(head, &body.iter().collect::<Vec<_>>().concat(), out)
    }

    fn malformed(&self, problem: &Problem, out: &mut Vec<u8>) {
        let common = CommonHeaders::new(0, 1, 0);
        crate::http::response::write_refusal(out, &common, problem);
    }

    fn commit_failed(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(answer("failed").as_bytes());
    }

    fn durable(&self) -> u64 {
        self.0.durable.get()
    }

    async fn wait_durable(&self, ticket: u64) -> bool {
        poll_fn(|context| match (self.0.durable.get() >= ticket, self.0.failed.get()) {
            (true, _) => Poll::Ready(true),
            (false, true) => Poll::Ready(false),
            (false, false) => self.0.park(context),
        })
        .await
    }

    async fn wait_room(&self) {
        let announced = self.0.room_announced.get();
        poll_fn(|context| match self.0.room_announced.get() == announced {
            true => self.0.park(context),
            false => Poll::Ready(()),
        })
        .await;
    }

    async fn wait_decision(&self) {
        unreachable!("nothing is decided elsewhere")
    }

    fn take_body_budget(&self, bytes: u64, out: &mut Vec<u8>) -> bool {
        let left = self.0.budget_bytes.get().checked_sub(bytes);
        match left {
            Some(left) => self.0.budget_bytes.set(left),
            None => out.extend_from_slice(answer("over budget").as_bytes()),
        }
        left.is_some()
    }

    fn return_body_budget(&self, bytes: u64) {
        self.0.budget_bytes.set(self.0.budget_bytes.get() + bytes);
    }

    fn hand_over(&self, shard: usize, fd: OwnedFd, unread: Vec<u8>) {
        self.0.handed.borrow_mut().push((shard, fd, unread));
    }

    fn stopping(&self) -> bool {
        self.0.stopping.get()
    }

    fn now_ms(&self) -> u64 {
        self.0.looks.set(self.0.looks.get() + 1);
        self.0.now_ms.get()
    }
}

struct FakeSource {
    fake: Rc<Fake>,
    live: bool,
}

impl Source for FakeSource {
    fn poll_fill(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Fill> {
        match self.fake.events.borrow_mut().pop_front() {
            Some(Event::Bytes(bytes, fill)) => {
                out.extend_from_slice(bytes);
                Poll::Ready(fill)
            }
            None => self.fake.park(context),
        }
    }

    fn ends_with_peer(&self) -> bool {
        self.live
    }
}

impl Drop for FakeSource {
    fn drop(&mut self) {
        self.fake.sources.set(self.fake.sources.get() - 1);
    }
}

/// A core with nothing but sockets.
struct Undisturbed;

impl crate::http::readiness::Core for Undisturbed {}

/// A fake service with one connection to it.
pub struct Bench {
    pub fake: Rc<Fake>,
    pub shared: Rc<Shared<Handle>>,
    pub client: TcpStream,
    ended: Rc<Cell<bool>>,
}

/// Budget of the fake at the start.
pub const BUDGET_BYTES: u64 = 8 << 20;

impl Bench {
    /// A connection without a byte sent.
    pub async fn new() -> Bench {
        let fake = Rc::new(Fake::default());
        fake.budget_bytes.set(BUDGET_BYTES);
        fake.max_bytes.set(BUDGET_BYTES);
        fake.now_ms.set(1_000_000);
        let shared = Rc::new(Shared {
            service: Handle(fake.clone()),
            connections: Rc::new(Connections::default()),
            pool: Pool::default(),
            lender: Lender::default(),
            readiness: Readiness::new().expect("an epoll set can be made"),
        });
        glommio::spawn_local(shared.readiness.clone().run(std::time::Duration::ZERO, Undisturbed)).detach();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let client = TcpStream::connect(address).await.expect("it listens");
        let accepted = listener.accept().await.expect("somebody has connected");
        // SAFETY: the descriptor is open as long as `accepted`, which outlives the borrow.
        let accepted = unsafe { BorrowedFd::borrow_raw(accepted.as_raw_fd()) }.try_clone_to_owned();
        let accepted = accepted.expect("a descriptor is free");
        socket2::SockRef::from(&accepted).set_nonblocking(true).expect("a socket need not block");
        let accepted = Socket::new(accepted, &shared.readiness);
        let accepted = accepted.expect("a socket can wait");
        let ended = Rc::new(Cell::new(false));
        let (serving, over) = (serve(accepted, Vec::new(), shared.clone()), ended.clone());
        glommio::spawn_local(async move {
            serving.await;
            over.set(true);
        })
        .detach();
        Bench { fake, shared, client, ended }
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Receives exactly what is expected.
    pub async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        self.client.read_exact(&mut got).await.expect("as many bytes come");
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(expected));
    }

    /// Receives everything to the end.
    pub async fn rest(&mut self) -> String {
        let mut got = Vec::new();
        self.client.read_to_end(&mut got).await.expect("the server closes");
        String::from_utf8(got).expect("answers are text")
    }

    /// Closes this side, and waits until the server has done with the connection.
    pub async fn ended(&self) {
        // Failing means that it is closed already.
        let _ = self.client.shutdown(std::net::Shutdown::Write).await;
        until(|| self.ended.get()).await;
        assert_eq!(self.shared.connections.count(), 0, "it has left");
        assert_eq!(self.fake.budget_bytes.get(), BUDGET_BYTES, "the budget is whole again");
    }

    /// Waits until the server has looked at the clock again and is in `phase`.
    pub async fn until_phase(&self, phase: Phase, looks_before: u64) {
        until(|| self.fake.looks.get() > looks_before && self.shared.connections.phases() == [phase]).await;
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<String> {
        self.fake.calls.borrow().clone()
    }
}
