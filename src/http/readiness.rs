//! Which sockets of this core can be read or written: one edge-triggered epoll set, and the tasks that wait.
//!
//! The executor could poll each socket through its ring, and did at first: an entry, a task-work interrupt and a
//! completion for every request. One set for all sockets costs the ring one poll for a whole batch of them, and a socket
//! that closes leaves no cancellation behind. (Measured: `perf/records/2026-11-30-sockets.md`.)
//!
//! While requests come in, the core also waits in this set, not in the executor: a wait there costs one system call, a sleep
//! of the executor and the turn of its loop behind it about ten. What only the executor can see (its own files, timers,
//! messages of other cores) is looked at every half millisecond then, when the timer by which it preempts tasks interrupts
//! the wait. The caller says when that would be too late ([`Readiness::run`]).
//!
//! A core that is idle more than half of the time also looks again and again for a while before it really waits: it can
//! spare that time, and waking a core that sleeps takes as long as a commit (`--spin-us`).
//!
//! Contract: after [`Registration::wait_readable`] (or `wait_writable`) returned `false` the task is woken once the kernel
//! reports a change; spurious wakes happen. One task waits per direction. Events for a registration that is gone are told
//! by its generation and dropped.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::io::AsyncRead;
use glommio::net::TcpStream;

use crate::signal;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// How long after the last event the core still waits in the set: longer than a commit takes.
const LINGER: Duration = Duration::from_millis(1);
/// How many tasks one after the other may each wake the next one before the core waits. A longer chain is only slower.
const CHAIN_MAX: usize = 3;
/// Over how long it is measured whether the core is idle.
const IDLE_WINDOW: Duration = Duration::from_millis(4);
/// Stands for the watched descriptor; no socket has it.
const WATCHED: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    readable: bool,
    writable: bool,
    /// The peer has closed its side, or the socket failed: reading goes on until it says so.
    hung_up: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The sockets of one core.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
}

/// Whether the core was idle lately.
#[derive(Debug)]
struct Idleness {
    window_began: Instant,
    /// Time spent waiting since then.
    waited: Duration,
    /// Whether that was most of the window before.
    is_idle: bool,
}

impl Idleness {
    fn new(now: Instant) -> Idleness {
        Idleness { window_began: now, waited: Duration::ZERO, is_idle: false }
    }

    /// A wait has ended.
    fn waited(&mut self, began: Instant, ended: Instant) {
        self.waited += ended - began;
        let window = ended - self.window_began;
        if window >= IDLE_WINDOW {
            // A window that is much too long says nothing: the core has slept in the executor.
            self.is_idle = window < IDLE_WINDOW * 4 && self.waited > window / 2;
            (self.window_began, self.waited) = (ended, Duration::ZERO);
        }
    }
}

/// What [`Readiness::run`] must know of the core that it runs on.
pub trait Core {
    /// It goes round once more.
    fn round(&self) {}
    /// The watched descriptor is readable.
    fn watched(&self) {}
    /// Whether the executor has nothing to complete, so that the core may wait outside it.
    fn may_wait(&self) -> bool {
        true
    }
}

/// Where a core without events may wait for the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A task has more to do.
    Nowhere,
    /// The executor has something to complete, or a timer that must not be slept over.
    Executor,
    /// Only sockets and commits matter.
    Set,
}

fn waits_in(core: &impl Core) -> Place {
    match (signal::giving_way() > 0, signal::napping() > 0 || !core.may_wait()) {
        (true, _) => Place::Nowhere,
        (false, true) => Place::Executor,
        (false, false) => Place::Set,
    }
}

impl Readiness {
    /// An empty set.
    pub fn new() -> io::Result<Rc<Self>> {
        // SAFETY: a system call without pointers; the descriptor it returns is owned by nobody else.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Rc::new(Self { epoll, slots: RefCell::default(), free: RefCell::default() }))
    }

    /// Adds a descriptor that is not a socket: [`Self::run`] tells its core of each edge, before any socket's task.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.add(fd.as_raw_fd(), libc::EPOLLIN, WATCHED)
    }

    fn add(&self, fd: RawFd, interest: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (interest | libc::EPOLLET) as u32, u64: token };
        // SAFETY: `event` outlives the call, which copies it.
        let added =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if added != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Adds a non-blocking socket. The registration must end before the descriptor is closed or given away.
    pub fn register(self: &Rc<Self>, fd: RawFd) -> io::Result<Registration> {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot::default());
            u32::try_from(slots.len() - 1).expect("descriptors are 32 bits")
        });
        let slot = &mut slots[index as usize];
        *slot = Slot { generation: slot.generation, writable: true, ..Slot::default() };
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP;
        let token = u64::from(slot.generation) << 32 | u64::from(index);
        if let Err(error) = self.add(fd, interest, token) {
            self.free.borrow_mut().push(index);
            return Err(error);
        }
        Ok(Registration { set: self.clone(), fd, index })
    }

    /// Wakes the tasks whose sockets changed, for as long as the core runs. It waits here only while no task has more to do or
    /// sleeps for a moment, and `core` has nothing against it, and spins for at most `spin` before it does.
    pub async fn run(self: Rc<Self>, spin: Duration, core: impl Core) {
        let mut idleness = Idleness::new(Instant::now());
        let mut last_event = Instant::now();
        loop {
            core.round();
            let mut events = self.look(Duration::ZERO, &core);
            match waits_in(&core) {
                _ if events > 0 => {}
                Place::Nowhere => {}
                Place::Set if last_event.elapsed() <= LINGER => {
                    // Whoever was woken runs before the core waits: here, and in the queues of lower priority.
                    for _ in 0..CHAIN_MAX {
                        glommio::executor().yield_now().await;
                    }
                    glommio::executor().yield_task_queue_now().await;
                    if waits_in(&core) == Place::Set {
                        let began = Instant::now();
                        events = self.spin(if idleness.is_idle { spin } else { Duration::ZERO }, &core);
                        if events == 0 {
                            events = self.look(LINGER, &core);
                        }
                        idleness.waited(began, Instant::now());
                    }
                }
                Place::Set | Place::Executor => {
                    self.changed().await;
                    last_event = Instant::now();
                    continue;
                }
            }
            if events > 0 {
                last_event = Instant::now();
            }
            // Who was woken, and who gave way, runs before this looks again.
            glommio::executor().yield_now().await;
            glommio::yield_if_needed().await;
        }
    }

    /// Looks until there are events or the time is over; whoever else wants this core has it meanwhile.
    fn spin(&self, spin: Duration, core: &impl Core) -> usize {
        let began = Instant::now();
        loop {
            let events = self.look(Duration::ZERO, core);
            if events > 0 || began.elapsed() >= spin {
                return events;
            }
            thread::yield_now();
        }
    }

    /// Waits for events, not longer than `wait`, notes what changed and wakes who waits for it; returns how many there were.
    /// Interrupts end the wait.
    fn look(&self, wait: Duration, core: &impl Core) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let wait_ms = wait.as_millis() as i32;
        // SAFETY: the kernel writes at most `EVENTS_MAX` events to the array.
        let count = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS_MAX as i32, wait_ms)
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            assert!(
                error.kind() == io::ErrorKind::Interrupted,
                "the epoll set of this core is gone: {error}"
            );
            return 0;
        }
        let events = &events[..count as usize];
        if events.iter().any(|event| event.u64 == WATCHED) {
            core.watched();
        }
        for event in events.iter().filter(|event| event.u64 != WATCHED) {
            let (token, bits) = (event.u64, event.events as i32);
            let (reader, writer) = self.note(token, bits);
            reader.into_iter().chain(writer).for_each(Waker::wake);
        }
        events.len()
    }

    fn note(&self, token: u64, bits: i32) -> (Option<Waker>, Option<Waker>) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[token as u32 as usize];
        if slot.generation != (token >> 32) as u32 {
            return (None, None);
        }
        let failed = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        slot.hung_up |= failed || bits & libc::EPOLLRDHUP != 0;
        slot.readable |= slot.hung_up || bits & libc::EPOLLIN != 0;
        slot.writable |= failed || bits & libc::EPOLLOUT != 0;
        let reader = if slot.readable { slot.reader.take() } else { None };
        let writer = if slot.writable { slot.writer.take() } else { None };
        (reader, writer)
    }

    /// Waits until the set has events. The executor polls only what it takes for a socket: a duplicate of the set's
    /// descriptor is one until it is read, which fails and is exactly the news.
    async fn changed(&self) {
        let Ok(duplicate) = self.epoll.try_clone() else {
            // Out of descriptors: look again soon.
            glommio::timer::Timer::new(std::time::Duration::from_millis(1)).await;
            return;
        };
        // SAFETY: the descriptor is owned, and owned by the stream from here on.
        let mut stream = unsafe { TcpStream::from_raw_fd(duplicate.into_raw_fd()) };
        poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut [0]).map(drop)).await;
    }
}

/// A socket's place in [`Readiness`].
#[derive(Debug)]
pub struct Registration {
    set: Rc<Readiness>,
    fd: RawFd,
    index: u32,
}

impl Registration {
    /// Whether the socket may have something to read; if not, the task is woken when it has.
    pub fn wait_readable(&self, context: &Context<'_>) -> bool {
        let slot = &mut self.set.slots.borrow_mut()[self.index as usize];
        if !slot.readable {
            note_waker(&mut slot.reader, context);
        }
        slot.readable
    }

    /// Whether the socket may take something to write; if not, the task is woken when it does.
    pub fn wait_writable(&self, context: &Context<'_>) -> bool {
        let slot = &mut self.set.slots.borrow_mut()[self.index as usize];
        if !slot.writable {
            note_waker(&mut slot.writer, context);
        }
        slot.writable
    }

    /// A read came back short: there is no more, unless the peer has closed.
    pub fn drained(&self) {
        let slot = &mut self.set.slots.borrow_mut()[self.index as usize];
        slot.readable = slot.hung_up;
    }

    /// A read found nothing.
    pub fn not_readable(&self) {
        self.set.slots.borrow_mut()[self.index as usize].readable = false;
    }

    /// A write found no room.
    pub fn not_writable(&self) {
        self.set.slots.borrow_mut()[self.index as usize].writable = false;
    }
}

fn note_waker(place: &mut Option<Waker>, context: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *place = Some(context.waker().clone());
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: a system call without pointers that are read (deleting takes no event). The descriptor may already be
        // closed, and then is not in the set: that error changes nothing.
        unsafe {
            libc::epoll_ctl(self.set.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, self.fd, std::ptr::null_mut())
        };
        let slot = &mut self.set.slots.borrow_mut()[self.index as usize];
        *slot = Slot { generation: slot.generation.wrapping_add(1), ..Slot::default() };
        self.set.free.borrow_mut().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;

    fn pair(set: &Rc<Readiness>) -> (UnixStream, UnixStream, Registration) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let registration = set.register(near.as_raw_fd()).unwrap();
        (near, far, registration)
    }

    impl Core for () {}

    #[test]
    fn a_core_waits_where_nobody_is_kept_waiting() {
        struct Reading;
        impl Core for Reading {
            fn may_wait(&self) -> bool {
                false
            }
        }
        let executor = glommio::LocalExecutorBuilder::default().ring_depth(64).io_memory(64 << 10).make();
        executor.expect("an executor can be made").run(async {
            assert_eq!((waits_in(&()), waits_in(&Reading)), (Place::Set, Place::Executor));
            let mut nap = pin!(signal::nap(Duration::from_micros(50)));
            assert!(futures_lite::future::poll_once(nap.as_mut()).await.is_none());
            assert_eq!(waits_in(&()), Place::Executor, "the executor has a timer to look at");
            let mut way = pin!(signal::give_way());
            assert!(futures_lite::future::poll_once(way.as_mut()).await.is_none());
            assert_eq!((waits_in(&()), waits_in(&Reading)), (Place::Nowhere, Place::Nowhere));
            way.await;
            nap.await;
            assert_eq!(waits_in(&()), Place::Set);
        });
    }

    fn turn(set: &Readiness) -> usize {
        set.look(Duration::ZERO, &())
    }

    fn readable(registration: &Registration) -> bool {
        registration.wait_readable(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn bytes_make_a_socket_readable_until_it_is_drained() {
        let set = Readiness::new().unwrap();
        let (_near, mut far, registration) = pair(&set);
        assert!(!readable(&registration));
        far.write_all(b"x").unwrap();
        assert_eq!(turn(&set), 1);
        assert!(readable(&registration));
        registration.drained();
        assert!(!readable(&registration));
        assert_eq!(turn(&set), 0, "an edge is told once");
        far.write_all(b"y").unwrap();
        turn(&set);
        assert!(readable(&registration), "and the next edge, too");
    }

    /// The end of a peer may come with its last bytes, in one event: after a short read there is still the end to read.
    #[test]
    fn the_end_is_not_lost_behind_a_short_read() {
        let set = Readiness::new().unwrap();
        let (mut near, mut far, registration) = pair(&set);
        far.write_all(b"last").unwrap();
        drop(far);
        turn(&set);
        let mut bytes = [0; 16];
        assert_eq!(near.read(&mut bytes).unwrap(), 4);
        registration.drained();
        assert!(readable(&registration), "the end is still to be read");
        assert_eq!(near.read(&mut bytes).unwrap(), 0);
    }

    #[test]
    fn events_of_a_socket_that_is_gone_reach_nobody() {
        let set = Readiness::new().unwrap();
        let (near, _far, registration) = pair(&set);
        let stale = u64::from(registration.index);
        drop(registration);
        drop(near);
        let (_near, _far, registration) = pair(&set);
        assert_eq!(u64::from(registration.index), stale, "the place is used again");
        set.note(stale, libc::EPOLLIN);
        assert!(!readable(&registration), "but not for the events of the one before");
    }

    #[test]
    fn the_watched_descriptor_comes_first_and_edge_by_edge() {
        let set = Readiness::new().unwrap();
        let (_near, mut far, registration) = pair(&set);
        let (watched, mut signal) = UnixStream::pair().unwrap();
        set.watch(watched.as_fd()).unwrap();
        /// Notes whether the socket was known to be readable when the descriptor was.
        struct Order(Registration, RefCell<Vec<bool>>);
        impl Core for Order {
            fn watched(&self) {
                self.1.borrow_mut().push(readable(&self.0));
            }
        }
        let order = Order(registration, RefCell::default());
        let look = || set.look(Duration::ZERO, &order);
        far.write_all(b"x").unwrap();
        signal.write_all(b"x").unwrap();
        assert_eq!(look(), 2);
        assert_eq!(order.1.take(), [false], "called before the socket is known to be readable");
        assert!(readable(&order.0));
        assert_eq!(look(), 0, "an edge is told once, though nothing was read");
        signal.write_all(b"x").unwrap();
        assert_eq!(look(), 1);
        assert_eq!(order.1.take().len(), 1);
    }

    #[test]
    fn a_core_is_idle_when_it_waited_for_most_of_a_window() {
        let begin = Instant::now();
        // The share of waiting, in percent, of windows of so many microseconds in so many parts; whether that is idle.
        let table = [
            (100, 4_000, 100, true),
            (60, 4_000, 100, true),
            (51, 5_000, 100, true),
            (49, 4_000, 100, false),
            (0, 4_000, 100, false),
            (100, 15_000, 1, true),
            (100, 17_000, 1, false),
        ];
        for (percent, window_us, parts, is_idle) in table {
            let mut idleness = Idleness::new(begin);
            idleness.is_idle = !is_idle;
            let part = Duration::from_micros(window_us / u64::from(parts));
            for step in 0..parts {
                let ended = begin + part * (step + 1);
                idleness.waited(if step * 100 / parts < percent { ended - part } else { ended }, ended);
            }
            assert_eq!(idleness.is_idle, is_idle, "{percent} % of {window_us} us in {parts} parts");
        }
    }
}
