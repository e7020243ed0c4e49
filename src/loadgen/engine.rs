//! The loop of one thread: it polls its connections, lets roles ask when they may, and tells them what came back.
//!
//! Contract: every connection belongs to a lane. In a closed lane each of its `depth` slots asks again as soon as it is
//! answered; in an open lane the pacer says when, and a free slot takes the request, the one that was free longest first.
//! A lost connection is counted, and made again. When the window ends nothing is asked any more, and the loop goes on until
//! everything in flight is answered (or [`DRAIN_NS`] have passed), so that verification knows what was acknowledged.
//!
//! Invariant: a connection's `in_flight` has the due time of each of its requests that is not answered, oldest first.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::clock::{Clock, SECOND_NS};
use super::exchange::{Exchange, Received, name_of};
use super::measure::{Measure, Window};
use super::pacing::Pacer;
use super::poller::Poller;
use super::response::{Head, Sink};
use super::role::{Conclusion, Context, Role};

/// Bytes taken from a socket at once.
const SCRATCH_BYTES: usize = 256 * 1024;
/// Reads of one connection before others get a turn.
const READS_PER_TURN: usize = 4;
/// How long answers are waited for when the load is over.
pub const DRAIN_NS: u64 = 10 * SECOND_NS;
/// How long a connection that was lost or refused rests.
const RETRY_NS: u64 = 50_000_000;
/// How long the first connections may take.
const CONNECT_NS: u64 = 10 * SECOND_NS;
/// A thread that looks at its connections this much later than it wanted was stopped, or its machine was.
const STILL_NS: u64 = 50_000_000;
/// A request of an open loop that had a free connection is late after this.
const LATE_NS: u64 = 1_000_000;
/// Bytes of an error's body that are kept.
const REFUSAL_BYTES_MAX: usize = 1024;

/// A connection to be.
pub struct Member {
    /// Where to.
    pub address: SocketAddr,
    /// Its lane.
    pub lane: usize,
    /// Requests that it may have in flight.
    pub depth: usize,
    /// What it does.
    pub role: Box<dyn Role>,
}

/// Connections that share a pace.
#[derive(Debug)]
struct Lane {
    pacer: Option<Pacer>,
    /// Free slots of an open lane: the connection, which one in its place, and since when.
    free: VecDeque<(usize, u32, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// To be connected again at that time.
    Resting(u64),
    /// Its role has nothing more to ask.
    Done,
}

/// An answer that was not what was asked for.
#[derive(Debug)]
struct Refusal {
    status: u16,
    body: Vec<u8>,
}

struct Connection {
    member: Member,
    exchange: Option<Exchange>,
    state: State,
    /// How many times it was connected: tells free slots of an earlier one.
    generation: u32,
    in_flight: VecDeque<u64>,
    refusal: Option<Refusal>,
    /// The server ends the connection after the present answer.
    is_last: bool,
}

/// One thread's connections.
pub struct Engine {
    clock: Clock,
    poller: Poller,
    connections: Vec<Connection>,
    lanes: Vec<Lane>,
    measure: Measure,
    scratch: Vec<u8>,
    /// Connections that were left with something to read.
    again: Vec<usize>,
    /// Connections at rest.
    resting: Vec<usize>,
    window: Window,
    /// Nobody may ask yet.
    is_idle: bool,
    is_over: bool,
    fatal: Option<String>,
}

impl Engine {
    /// Connects everybody. The error says why not.
    pub fn connect(clock: Clock, members: Vec<Member>, lanes: usize) -> Result<Self, String> {
        let connections = members.into_iter().map(Connection::new).collect();
        let mut engine = Self {
            clock,
            poller: Poller::new().map_err(|error| format!("no epoll set: {error}"))?,
            connections,
            lanes: (0..lanes).map(|_| Lane { pacer: None, free: VecDeque::new() }).collect(),
            measure: Measure::new(0, Window::ALWAYS, None),
            scratch: vec![0; SCRATCH_BYTES],
            again: Vec::new(),
            resting: Vec::new(),
            window: Window::ALWAYS,
            is_idle: true,
            is_over: false,
            fatal: None,
        };
        let deadline_ns = clock.now_ns() + CONNECT_NS;
        for index in 0..engine.connections.len() {
            engine.connect_one(index)?;
        }
        while let Some(waiting) =
            engine.connections.iter().find(|connection| connection.state == State::Connecting)
        {
            let address = waiting.member.address;
            if clock.now_ns() > deadline_ns {
                return Err(format!("no answer from {address} within {} s", CONNECT_NS / SECOND_NS));
            }
            let count = engine.wait(deadline_ns)?;
            for change in 0..count {
                engine.change(change);
            }
            engine.fatal.take().map_or(Ok(()), Err)?;
        }
        Ok(engine)
    }

    /// Runs the load: `pacers` has one for each lane that is open. Returns what the roles leave.
    pub fn run(
        mut self,
        window: Window,
        pacers: Vec<Option<Pacer>>,
        measure: Measure,
    ) -> Result<Finished, String> {
        assert_eq!(pacers.len(), self.lanes.len(), "a pacer (or none) for every lane");
        self.lanes.iter_mut().zip(pacers).for_each(|(lane, pacer)| lane.pacer = pacer);
        (self.window, self.measure, self.is_idle) = (window, measure, false);
        if window.begin_ns > 0 {
            std::thread::sleep(self.clock.until(window.begin_ns));
        }
        for index in 0..self.connections.len() {
            self.opened(index);
        }
        let mut expected_ns = u64::MAX;
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns > expected_ns.saturating_add(STILL_NS) {
                self.measure.stood_still(expected_ns..now_ns);
            }
            self.measure.turn(now_ns);
            if let Some(fatal) = self.fatal.take() {
                return Err(fatal);
            }
            if !self.is_over && (now_ns >= window.end_ns || self.connections.iter().all(Connection::is_done))
            {
                self.is_over = true;
                self.connections.iter_mut().for_each(|connection| connection.member.role.over());
            }
            if self.is_over && (self.is_drained() || now_ns >= window.end_ns.saturating_add(DRAIN_NS)) {
                break;
            }
            self.wake_resting(now_ns);
            let until_ns = self.start_due(now_ns);
            expected_ns = until_ns.min(self.measure.boundary_ns()).max(now_ns);
            let count = self.wait(until_ns)?;
            for change in 0..count {
                self.change(change);
            }
            for index in std::mem::take(&mut self.again) {
                self.receive(index);
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Result<Finished, String> {
        let pacers = self.lanes.iter().filter_map(|lane| lane.pacer.as_ref());
        let not_sent = pacers.map(|pacer| pacer.behind(self.window.end_ns)).sum();
        let now_ns = self.clock.now_ns();
        for index in 0..self.connections.len() {
            self.tell_lost(index, "no answer before the end", now_ns);
        }
        self.fatal.take().map_or(Ok(()), Err)?;
        let tally = std::mem::take(&mut self.measure.tally);
        let conclusions =
            self.connections.into_iter().map(|connection| connection.member.role.conclude()).collect();
        Ok(Finished { conclusions, not_sent, errors_at_end: tally.errors })
    }

    fn is_drained(&self) -> bool {
        self.connections.iter().all(|connection| {
            let (role, in_flight) = (&connection.member.role, connection.in_flight.len());
            match connection.state {
                State::Done => true,
                State::Open => role.is_drained(in_flight),
                State::Connecting | State::Resting(_) => !role.goes_on() || role.is_drained(in_flight),
            }
        })
    }

    /// Waits for changes, until then at most; how many there are.
    fn wait(&mut self, until_ns: u64) -> Result<usize, String> {
        let until_ns = until_ns.min(self.measure.boundary_ns());
        let at_most = if self.again.is_empty() { self.clock.until(until_ns) } else { Duration::ZERO };
        self.poller.wait(at_most).map_err(|error| format!("polling failed: {error}"))
    }

    /// Starts what is due in open lanes; when to look again.
    fn start_due(&mut self, now_ns: u64) -> u64 {
        let mut until_ns = if self.is_over { now_ns + SECOND_NS / 100 } else { self.window.end_ns };
        if let Some(next) =
            self.resting.iter().filter_map(|index| self.connections[*index].rests_until()).min()
        {
            until_ns = until_ns.min(next);
        }
        if self.is_over {
            return until_ns;
        }
        for lane in 0..self.lanes.len() {
            while let Some(&(index, generation, since_ns)) = self.lanes[lane].free.front() {
                let Some(pacer) = &mut self.lanes[lane].pacer else { break };
                let connection = &self.connections[index];
                if connection.generation != generation || connection.state != State::Open {
                    self.lanes[lane].free.pop_front();
                    continue;
                }
                let Some(due_ns) = pacer.take(now_ns) else {
                    until_ns = until_ns.min(pacer.next_ns());
                    break;
                };
                self.lanes[lane].free.pop_front();
                if since_ns <= due_ns {
                    self.measure.tally.sent_free += 1;
                    self.measure.tally.sent_late += u64::from(now_ns - due_ns > LATE_NS);
                }
                self.ask(index, due_ns);
                self.flush(index);
            }
        }
        until_ns
    }

    fn change(&mut self, change: usize) {
        let change = self.poller.change(change);
        let index = change.token as usize;
        match self.connections[index].state {
            State::Connecting if change.writable => self.check_connected(index),
            State::Open => {
                if change.writable {
                    self.flush(index);
                }
                if change.readable {
                    self.receive(index);
                }
            }
            _ => {}
        }
    }

    // --- connecting

    fn connect_one(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let address = connection.member.address;
        let exchange = Exchange::connect(address, connection.member.depth > 1)
            .map_err(|error| format!("cannot connect to {address}: {}", name_of(&error)))?;
        self.poller
            .add(exchange.fd(), index as u64)
            .map_err(|error| format!("cannot poll a socket: {error}"))?;
        connection.exchange = Some(exchange);
        connection.state = State::Connecting;
        Ok(())
    }

    fn check_connected(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let exchange = connection.exchange.as_ref().expect("a connecting one has a socket");
        match exchange.connected() {
            Ok(()) => {
                connection.state = State::Open;
                connection.generation += 1;
                if !self.is_idle {
                    self.opened(index);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {}
            Err(error) if connection.generation == 0 => {
                let address = connection.member.address;
                self.fatal = Some(format!("no server at {address}: {}", name_of(&error)));
            }
            Err(error) => {
                self.measure.tally.error(&name_of(&error));
                self.rest(index);
            }
        }
    }

    /// A connection may ask, as often as it is deep.
    fn opened(&mut self, index: usize) {
        let now_ns = self.clock.now_ns();
        let connection = &self.connections[index];
        if connection.state != State::Open {
            return;
        }
        let (lane, generation) = (connection.member.lane, connection.generation);
        for _ in 0..connection.member.depth {
            match self.lanes[lane].pacer {
                None => self.ask(index, now_ns),
                Some(_) => self.lanes[lane].free.push_back((index, generation, now_ns)),
            }
        }
        self.flush(index);
    }

    fn rest(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.exchange = None;
        connection.state = State::Resting(self.clock.now_ns() + RETRY_NS);
        self.resting.push(index);
    }

    fn wake_resting(&mut self, now_ns: u64) {
        if self.resting.is_empty() {
            return;
        }
        let is_due =
            |connection: &Connection| connection.rests_until().is_none_or(|until_ns| until_ns <= now_ns);
        let resting = std::mem::take(&mut self.resting);
        let (due, rest) = resting.into_iter().partition(|index| is_due(&self.connections[*index]));
        self.resting = rest;
        for index in due {
            if let Err(why) = self.connect_one(index) {
                self.measure.tally.error(&why);
                self.rest(index);
            }
        }
    }

    // --- asking and being answered

    #[inline]
    fn ask(&mut self, index: usize, due_ns: u64) {
        let connection = &mut self.connections[index];
        let Some(exchange) = &mut connection.exchange else { return };
        let role = &mut connection.member.role;
        if connection.state != State::Open || self.is_over && !role.goes_on() {
            return;
        }
        if role.ask(due_ns, exchange) {
            connection.in_flight.push_back(due_ns);
        } else if connection.in_flight.is_empty() {
            connection.state = State::Done;
        }
        self.measure.tally.sent_bytes += std::mem::take(&mut exchange.sent_bytes);
    }

    #[inline]
    fn flush(&mut self, index: usize) {
        if let Some(exchange) = &mut self.connections[index].exchange {
            exchange.flush();
            self.measure.tally.sent_bytes += std::mem::take(&mut exchange.sent_bytes);
        }
    }

    fn receive(&mut self, index: usize) {
        for _ in 0..READS_PER_TURN {
            let connection = &mut self.connections[index];
            let Some(exchange) = &mut connection.exchange else { return };
            if connection.state != State::Open {
                return;
            }
            let mut answers = Answers {
                role: &mut *connection.member.role,
                in_flight: &mut connection.in_flight,
                refusal: &mut connection.refusal,
                is_last: &mut connection.is_last,
                clock: self.clock,
                measure: &mut self.measure,
                fatal: &mut self.fatal,
                now_ns: 0,
                ended: 0,
            };
            let received = exchange.receive(&mut self.scratch, &mut answers);
            let (ended, now_ns) = (answers.ended, answers.now_ns);
            self.measure.tally.received_bytes += std::mem::take(&mut exchange.received_bytes);
            if self.answered(index, ended, now_ns) {
                return;
            }
            match received {
                Received::Drained => return,
                Received::More => {}
                Received::Closed => return self.lose(index, "connection closed"),
                Received::Failed(why) => return self.lose(index, &why),
            }
        }
        self.again.push(index);
    }

    /// So many requests were answered at once: their slots are free. Whether the connection is at its end.
    fn answered(&mut self, index: usize, ended: usize, now_ns: u64) -> bool {
        if ended == 0 {
            return false;
        }
        let connection = &self.connections[index];
        let (lane, generation) = (connection.member.lane, connection.generation);
        if connection.is_last {
            self.lose(index, "connection closed");
            return true;
        }
        for _ in 0..ended {
            match self.lanes[lane].pacer {
                None => self.ask(index, now_ns),
                Some(_) => self.lanes[lane].free.push_back((index, generation, now_ns)),
            }
        }
        self.flush(index);
        false
    }

    /// A connection is gone; it will be made again.
    fn lose(&mut self, index: usize, why: &str) {
        let now_ns = self.clock.now_ns();
        let was_last = std::mem::take(&mut self.connections[index].is_last);
        self.tell_lost(index, why, now_ns);
        let connection = &mut self.connections[index];
        connection.exchange = None;
        connection.refusal = None;
        connection.generation += 1;
        match self.is_over && !connection.member.role.goes_on() {
            true => connection.state = State::Done,
            false if was_last => {
                if let Err(why) = self.connect_one(index) {
                    self.measure.tally.error(&why);
                    self.rest(index);
                }
            }
            false => self.rest(index),
        }
    }

    fn tell_lost(&mut self, index: usize, why: &str, now_ns: u64) {
        let connection = &mut self.connections[index];
        let in_flight = connection.in_flight.len();
        if in_flight > 0 && !connection.member.role.is_drained(in_flight) {
            self.measure.tally.errors_of(why, in_flight as u64);
        }
        let mut context =
            Context { now_ns, due_ns: now_ns, measure: &mut self.measure, fatal: &mut self.fatal };
        connection.member.role.lost(why, &mut context);
        connection.in_flight.clear();
    }
}

/// What a finished load leaves.
#[derive(Debug)]
pub struct Finished {
    /// One for each connection, in order.
    pub conclusions: Vec<Conclusion>,
    /// Requests of open lanes that were due and never sent.
    pub not_sent: u64,
    /// Failures after the window.
    pub errors_at_end: std::collections::BTreeMap<String, u64>,
}

impl Connection {
    fn new(member: Member) -> Self {
        let in_flight = VecDeque::with_capacity(member.depth);
        Self {
            member,
            exchange: None,
            state: State::Connecting,
            generation: 0,
            in_flight,
            refusal: None,
            is_last: false,
        }
    }

    fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn rests_until(&self) -> Option<u64> {
        match self.state {
            State::Resting(until_ns) => Some(until_ns),
            _ => None,
        }
    }
}

/// Takes one connection's answers to its role.
struct Answers<'a> {
    role: &'a mut dyn Role,
    in_flight: &'a mut VecDeque<u64>,
    refusal: &'a mut Option<Refusal>,
    is_last: &'a mut bool,
    clock: Clock,
    measure: &'a mut Measure,
    fatal: &'a mut Option<String>,
    /// When these bytes were taken; 0 until somebody asks.
    now_ns: u64,
    ended: usize,
}

impl Answers<'_> {
    #[inline]
    fn now(&mut self) -> u64 {
        if self.now_ns == 0 {
            self.now_ns = self.clock.now_ns();
            self.measure.turn(self.now_ns);
        }
        self.now_ns
    }

    #[inline]
    fn with_context(&mut self, due_ns: u64, tell: impl FnOnce(&mut dyn Role, &mut Context<'_>)) {
        let now_ns = self.now();
        let mut context = Context { now_ns, due_ns, measure: self.measure, fatal: self.fatal };
        tell(self.role, &mut context);
    }
}

impl Sink for Answers<'_> {
    #[inline]
    fn head(&mut self, head: &Head<'_>) {
        *self.is_last = head.last;
        if self.in_flight.is_empty() {
            *self.fatal = Some(format!("the server sent an answer ({}) that nobody asked for", head.status));
            return;
        }
        if !self.role.head(head) {
            *self.refusal = Some(Refusal { status: head.status, body: Vec::new() });
        }
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        if let Some(refusal) = self.refusal {
            let room = REFUSAL_BYTES_MAX.saturating_sub(refusal.body.len());
            refusal.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return;
        }
        let due_ns = self.in_flight.front().copied().unwrap_or_default();
        self.with_context(due_ns, |role, context| role.body(bytes, context));
    }

    #[inline]
    fn end(&mut self) {
        let Some(due_ns) = self.in_flight.pop_front() else { return };
        self.ended += 1;
        match self.refusal.take() {
            None => self.with_context(due_ns, |role, context| role.end(context)),
            Some(refusal) => {
                let name = error_name(refusal.status, &refusal.body);
                self.with_context(due_ns, |role, context| {
                    context.measure.tally.error(&name);
                    role.refused(&name, context);
                });
            }
        }
    }
}

/// An error answer's name: its status, and the code in its body if there is one (`{"error":{"code":"...",...}}`).
fn error_name(status: u16, body: &[u8]) -> String {
    let code = serde_json::from_slice::<serde_json::Value>(body).ok().and_then(|value| {
        let code = value.get("error").and_then(|error| error.get("code")).or_else(|| value.get("code"));
        code.and_then(|code| code.as_str().map(str::to_owned))
    });
    match code {
        Some(code) => format!("{status} {code}"),
        None => status.to_string(),
    }
}
