//! Verification: every stream is read back and compared with the ledgers of those who wrote it.
//!
//! What must hold: every acknowledged record is there exactly once, in the stream it was sent to, byte for byte, and the
//! records of one connection are in the order in which it sent them. Records that were not acknowledged may be there (once)
//! or not; records that nobody sent may not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::clock::Clock;
use super::engine::{Engine, Member};
use super::exchange::Exchange;
use super::ledger::Ledger;
use super::measure::{Measure, Window};
use super::outcome::Verified;
use super::record::Layout;
use super::response::Head;
use super::role::{Context, Role, Seen};
use super::splitter::Splitter;
use super::target::{Names, Target};
use super::walk::Walk;

/// Connections that read back.
const READERS: usize = 8;

/// A ledger and what was found of it.
struct Book {
    ledger: Ledger,
    seen: Vec<u64>,
}

/// Compares records with ledgers.
pub struct Verifier {
    layout: Layout,
    books: HashMap<u32, Book>,
    found: Verified,
}

impl Verifier {
    /// For everything that is in these ledgers.
    pub fn new(layout: Layout, ledgers: Vec<Ledger>) -> Self {
        let book = |ledger: Ledger| {
            let words = (ledger.records() as usize).div_ceil(64);
            (ledger.connection, Book { ledger, seen: vec![0; words] })
        };
        Self { layout, books: ledgers.into_iter().map(book).collect(), found: Verified::default() }
    }

    /// A record was found in `stream`. `last` has, for each connection, the number of its last record in this stream.
    pub fn record(&mut self, stream: u32, last: &mut HashMap<u32, u64>, record: &[u8]) {
        if let Some(wrong) = self.what_is_wrong(stream, last, record) {
            self.different(|| format!("stream {stream}: {wrong}"));
            return;
        }
        self.found.records += 1;
        self.found.bytes += record.len() as u64;
    }

    fn what_is_wrong(&mut self, stream: u32, last: &mut HashMap<u32, u64>, record: &[u8]) -> Option<String> {
        let Some(id) = self.layout.check(record) else {
            let begin = String::from_utf8_lossy(&record[..record.len().min(60)]);
            return Some(format!("a record is not as it was sent: {begin:?}"));
        };
        let name = || format!("record {} of connection {}", id.number, id.connection);
        let book = self.books.get_mut(&id.connection).filter(|book| id.number < book.ledger.records());
        let Some(book) = book else { return Some(format!("{} was never sent", name())) };
        let owner = book.ledger.stream_of(id.number);
        if owner != stream {
            return Some(format!("{} belongs to stream {owner}", name()));
        }
        let (word, bit) = ((id.number / 64) as usize, 1 << (id.number % 64));
        if book.seen[word] & bit != 0 {
            return Some(format!("{} is there twice", name()));
        }
        book.seen[word] |= bit;
        let before = last.insert(id.connection, id.number);
        let after = before.filter(|before| *before > id.number)?;
        Some(format!("{} comes after record {after}", name()))
    }

    /// Something else was found in a stream.
    pub fn different(&mut self, what: impl FnOnce() -> String) {
        self.found.different += 1;
        self.found.first_problem.get_or_insert_with(what);
    }

    /// A stream was read to its end.
    pub fn stream_read(&mut self) {
        self.found.streams += 1;
    }

    /// What was found before counts, too. Records that live readers saw are the same that are read back.
    pub fn add_seen(&mut self, seen: &Seen) {
        self.found.missing += seen.missing;
        self.found.different += seen.different;
        if self.found.first_problem.is_none() {
            self.found.first_problem.clone_from(&seen.first_problem);
        }
    }

    /// All streams were read: what is missing.
    pub fn finish(mut self) -> Verified {
        let mut connections: Vec<&Book> = self.books.values().collect();
        connections.sort_unstable_by_key(|book| book.ledger.connection);
        for book in connections {
            for number in book.ledger.acknowledged() {
                if book.seen[(number / 64) as usize] & 1 << (number % 64) == 0 {
                    self.found.missing += 1;
                    self.found.first_problem.get_or_insert_with(|| {
                        let (connection, stream) = (book.ledger.connection, book.ledger.stream_of(number));
                        format!("stream {stream}: record {number} of connection {connection} is missing")
                    });
                }
            }
        }
        self.found
    }
}

/// Reads `streams` streams back. The error says why that was not possible.
pub fn read_back(
    target: &Target,
    names: &Names,
    streams: usize,
    layout: &Layout,
    ledgers: Vec<Ledger>,
    seen: &[Seen],
) -> Result<Verified, String> {
    let mut verifier = Verifier::new(layout.clone(), ledgers);
    seen.iter().for_each(|seen| verifier.add_seen(seen));
    let verifier = Rc::new(RefCell::new(verifier));
    let queue = Rc::new(RefCell::new(0..u32::try_from(streams).expect("names limit streams")));
    let member = |_| Member {
        address: target.address,
        lane: 0,
        depth: 1,
        role: Box::new(Reread {
            walk: Walk::new(target, names),
            splitter: Splitter::new(layout),
            last: HashMap::new(),
            queue: queue.clone(),
            verifier: verifier.clone(),
        }),
    };
    let members = (0..READERS.min(streams)).map(member).collect();
    let engine = Engine::connect(Clock::start(), members, 1)?;
    engine.run(Window::ALWAYS, vec![None], Measure::new(0, Window::ALWAYS, None))?;
    let verifier = Rc::try_unwrap(verifier).map_err(|_| "a reader is still there".to_owned())?;
    Ok(verifier.into_inner().finish())
}

/// Reads streams from a queue and compares them.
struct Reread {
    walk: Walk,
    splitter: Splitter,
    last: HashMap<u32, u64>,
    queue: Rc<RefCell<std::ops::Range<u32>>>,
    verifier: Rc<RefCell<Verifier>>,
}

impl Role for Reread {
    fn ask(&mut self, _due_ns: u64, exchange: &mut Exchange) -> bool {
        if self.walk.is_complete() {
            let Some(stream) = self.queue.borrow_mut().next() else { return false };
            self.walk.begin(stream);
            self.last.clear();
        }
        exchange.push(self.walk.request(b""));
        true
    }

    fn head(&mut self, head: &Head<'_>) -> bool {
        self.walk.head(head)
    }

    fn body(&mut self, bytes: &[u8], _context: &mut Context<'_>) {
        let Self { splitter, verifier, walk, last, .. } = self;
        let mut verifier = verifier.borrow_mut();
        let split = splitter.feed(bytes, |record| verifier.record(walk.stream(), last, record));
        if let Err(wrong) = split {
            verifier.different(|| format!("stream {}: {wrong}", walk.stream()));
        }
    }

    fn end(&mut self, context: &mut Context<'_>) {
        *context.fatal = context.fatal.take().or(self.walk.take_problem());
        if !self.walk.is_complete() {
            return;
        }
        let mut verifier = self.verifier.borrow_mut();
        if let Err(wrong) = self.splitter.finish() {
            verifier.different(|| format!("stream {}: {wrong}", self.walk.stream()));
        }
        verifier.stream_read();
    }

    fn refused(&mut self, error: &str, context: &mut Context<'_>) {
        *context.fatal = Some(format!("reading {} back was answered with {error}", self.walk.path()));
    }

    fn lost(&mut self, why: &str, context: &mut Context<'_>) {
        if !self.walk.is_complete() {
            *context.fatal = Some(format!("reading {} back failed: {why}", self.walk.path()));
        }
    }
}

#[cfg(test)]
mod tests;
