//! Lineage ids: which one a new stream gets, and which ones were ever issued.
//!
//! A lineage id names one life of a stream's name (decision 8). `MANIFEST` grants disjoint spans of ids to logs; a shard
//! issues the ids of its spans in growing order, so the highest id in a shard's log tells how far its span is used.
//!
//! Contract:
//! - [`Lineages::next`] of a shard is called by that shard's thread alone. It returns only ids whose grant is durable.
//! - An id whose stream was never durable may be issued again after a crash: nobody can have seen it.
//! - During recovery a shard calls [`Lineages::observe`] with every lineage it finds in its log (and with high-water marks
//!   of footers). Once all shards have recovered, [`Lineages::recovered`] is called once; from then on
//!   [`Lineages::issued`] is exact, across all shards and all logs that the directory ever had.
//! - Spans of one log are used in order: an id of a later span means that all earlier ones of that log are used up.
//!
//! ```text
//!            issued (whole)      grant of log 7            grant of log 9        spare of log 7
//!  ids  1 [////////////////][////////////|      ][//|                   ][                     ]  ungranted ...
//!                                         ^ next     ^ next                                     ^ Ledger::ungranted
//! ```

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::limits;

/// A half-open span of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First id.
    pub start: u64,
    /// First id after it.
    pub end: u64,
}

impl Span {
    fn holds(&self, lineage: u64) -> bool {
        self.start <= lineage && lineage < self.end
    }
}

/// A span that a log may issue from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The log it belongs to.
    pub log_id: u64,
    /// The ids.
    pub span: Span,
    /// Ids below it are known to be issued; the log itself may know better.
    pub next: u64,
}

/// What `MANIFEST` keeps of lineage ids: plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// First id that was never granted.
    pub ungranted: u64,
    /// Spans of which every id was issued: sorted, disjoint, never touching.
    pub issued: Vec<Span>,
    /// Grants that are not used up, in growing order of ids.
    pub grants: Vec<Grant>,
}

impl Default for Ledger {
    /// No id granted yet. Zero is never granted: the token of all zeros is the start of any stream.
    fn default() -> Ledger {
        Ledger { ungranted: 1, issued: Vec::new(), grants: Vec::new() }
    }
}

impl Ledger {
    /// Grants a log a fresh span of [`limits::LINEAGE_GRANT`] ids; `None` when the ids of sixteen digits are used up.
    pub fn grant(&mut self, log_id: u64) -> Option<Span> {
        let span = Span { start: self.ungranted, end: self.ungranted + limits::LINEAGE_GRANT };
        if span.end > limits::LINEAGE_MAX {
            return None;
        }
        self.ungranted = span.end;
        self.grants.push(Grant { log_id, span, next: span.start });
        Some(span)
    }

    /// Says what is wrong with a ledger that was read from disk.
    pub fn problem(&self) -> Option<String> {
        let mut end = 1;
        for span in &self.issued {
            if span.start < end || span.end <= span.start {
                return Some(format!("issued span {}..{} is out of order", span.start, span.end));
            }
            end = span.end;
        }
        let mut spans = self.issued.clone();
        for Grant { span, next, log_id } in &self.grants {
            if span.end <= span.start || *next < span.start || *next > span.end || span.start == 0 {
                return Some(format!("grant {}..{} of log {log_id:016x} is malformed", span.start, span.end));
            }
            spans.push(*span);
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if pair[0].end > pair[1].start {
                return Some(format!("lineage {} was granted twice", pair[1].start));
            }
        }
        match spans.last() {
            Some(last) if last.end > self.ungranted => {
                Some(format!("lineage {} counts as ungranted, and was granted", self.ungranted))
            }
            _ => None,
        }
    }
}

/// A lineage in a log that `MANIFEST` never granted: the two do not belong together, or `MANIFEST` is an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lineage {lineage} is in the log, but MANIFEST never granted it: is MANIFEST an older copy?")]
pub struct NotGranted {
    /// The id.
    pub lineage: u64,
}

/// The span that a shard issues from. Own cache lines: only its shard writes `next`.
#[repr(align(128))]
struct Own {
    start: AtomicU64,
    next: AtomicU64,
    end: AtomicU64,
    /// Whether a further span waits in the book.
    has_spare: AtomicBool,
    /// Whether the node was asked for one and has not answered.
    asked: AtomicBool,
}

/// What is not a shard's present span. Locked for reading by questions about foreign tokens, for writing once a million
/// creates and at recovery.
struct Book {
    issued: Vec<Span>,
    spares: Vec<Option<Span>>,
    /// Grants of logs that are no longer written; empty once recovery is over.
    retired: Vec<Grant>,
    ungranted: u64,
}

/// Lineage ids of one server, shared by all shards.
pub struct Lineages {
    log_ids: Vec<u64>,
    own: Box<[Own]>,
    book: RwLock<Book>,
    ask: Box<dyn Fn(usize) + Send + Sync>,
}

impl Lineages {
    /// Takes over what `MANIFEST` says. `log_ids` are the logs that the shards write, by shard; each must have a grant.
    /// `ask` is called on a shard's thread when that shard wants another grant; it must not block, and is answered with
    /// [`Lineages::accept`] or [`Lineages::decline`].
    pub fn new(log_ids: &[u64], ledger: &Ledger, ask: impl Fn(usize) + Send + Sync + 'static) -> Lineages {
        let mut book = Book {
            issued: ledger.issued.clone(),
            spares: vec![None; log_ids.len()],
            retired: Vec::new(),
            ungranted: ledger.ungranted,
        };
        let mut own = Vec::with_capacity(log_ids.len());
        for (shard, log_id) in log_ids.iter().enumerate() {
            let mut grants = ledger.grants.iter().filter(|grant| grant.log_id == *log_id);
            let grant = grants.next().expect("every log has a grant before it is opened");
            book.spares[shard] = grants.next().map(|spare| spare.span);
            assert!(grants.next().is_none(), "log {log_id:016x} has more than two grants");
            own.push(Own {
                start: AtomicU64::new(grant.span.start),
                next: AtomicU64::new(grant.next),
                end: AtomicU64::new(grant.span.end),
                has_spare: AtomicBool::new(book.spares[shard].is_some()),
                asked: AtomicBool::new(false),
            });
        }
        book.retired.extend(ledger.grants.iter().filter(|grant| !log_ids.contains(&grant.log_id)));
        Lineages { log_ids: log_ids.to_vec(), own: own.into(), book: RwLock::new(book), ask: Box::new(ask) }
    }

    /// Issues an id. `None` when the shard's grants are used up and the node could not make another one durable (the
    /// create is refused, 503, and may be repeated).
    pub fn next(&self, shard: usize) -> Option<u64> {
        let own = &self.own[shard];
        if own.next.load(Ordering::Relaxed) == own.end.load(Ordering::Relaxed) && !self.turn_over(shard) {
            return None;
        }
        let lineage = own.next.load(Ordering::Relaxed);
        let end = own.end.load(Ordering::Relaxed);
        assert!(lineage < end, "shard {shard} issues {lineage} of a span that ends at {end}");
        // Release: whoever learns the id from this shard must see it as issued.
        own.next.store(lineage + 1, Ordering::Release);
        let left = end - lineage - 1;
        // At half a span, and again at each further half should the node have failed: never in a tight loop.
        if left <= limits::LINEAGE_GRANT / 2 && (left == 0 || left.is_power_of_two()) {
            self.want(shard);
        }
        Some(lineage)
    }

    /// Notes an id that the shard found in its log during recovery: it is never issued again.
    pub fn observe(&self, shard: usize, lineage: u64) -> Result<(), NotGranted> {
        let own = &self.own[shard];
        if own.start.load(Ordering::Relaxed) <= lineage && lineage < own.end.load(Ordering::Relaxed) {
            own.next.fetch_max(lineage + 1, Ordering::Release);
            return Ok(());
        }
        self.observe_elsewhere(lineage)
    }

    /// The rare cases: a spare span, another shard's, a log of an earlier generation, a span that is used up.
    fn observe_elsewhere(&self, lineage: u64) -> Result<(), NotGranted> {
        let mut book = self.book.write().expect("no thread panics with the book open");
        if holds(&book.issued, lineage) {
            return Ok(());
        }
        for (shard, own) in self.own.iter().enumerate() {
            if book.spares[shard].is_some_and(|spare| spare.holds(lineage)) {
                use_up(&mut book, own, shard);
            }
            let span =
                Span { start: own.start.load(Ordering::Relaxed), end: own.end.load(Ordering::Relaxed) };
            if span.holds(lineage) {
                own.next.fetch_max(lineage + 1, Ordering::Release);
                return Ok(());
            }
        }
        let Some(found) = book.retired.iter().position(|grant| grant.span.holds(lineage)) else {
            return Err(NotGranted { lineage });
        };
        let log_id = book.retired[found].log_id;
        book.retired[found].next = book.retired[found].next.max(lineage + 1);
        for earlier in book.retired[..found].iter_mut().filter(|grant| grant.log_id == log_id) {
            earlier.next = earlier.span.end;
        }
        Ok(())
    }

    /// All shards have recovered: what logs of earlier generations did not use is never issued. Returns the shards that
    /// should get another grant before they start.
    pub fn recovered(&self) -> Vec<usize> {
        let mut book = self.book.write().expect("no thread panics with the book open");
        for grant in std::mem::take(&mut book.retired) {
            insert(&mut book.issued, Span { start: grant.span.start, end: grant.next });
        }
        let short = |own: &Own| {
            own.end.load(Ordering::Relaxed) - own.next.load(Ordering::Relaxed) <= limits::LINEAGE_GRANT / 2
        };
        (0..self.own.len())
            .filter(|shard| book.spares[*shard].is_none() && short(&self.own[*shard]))
            .collect()
    }

    /// Whether any stream ever had this id. Exact once all shards have recovered.
    pub fn issued(&self, lineage: u64) -> bool {
        let book = self.book.read().expect("no thread panics with the book open");
        holds(&book.issued, lineage)
            || self.own.iter().any(|own| {
                own.start.load(Ordering::Relaxed) <= lineage && lineage < own.next.load(Ordering::Acquire)
            })
            || book.retired.iter().any(|grant| grant.span.start <= lineage && lineage < grant.next)
    }

    /// What `MANIFEST` should say.
    pub fn ledger(&self) -> Ledger {
        let book = self.book.read().expect("no thread panics with the book open");
        let mut ledger =
            Ledger { ungranted: book.ungranted, issued: book.issued.clone(), grants: book.retired.clone() };
        for (shard, own) in self.own.iter().enumerate() {
            let span =
                Span { start: own.start.load(Ordering::Relaxed), end: own.end.load(Ordering::Relaxed) };
            let log_id = self.log_ids[shard];
            ledger.grants.push(Grant { log_id, span, next: own.next.load(Ordering::Acquire) });
            ledger.grants.extend(book.spares[shard].map(|span| Grant { log_id, span, next: span.start }));
        }
        ledger.grants.sort_unstable_by_key(|grant| grant.span.start);
        ledger
    }

    /// Gives a shard a further span, which `MANIFEST` holds by now.
    pub fn accept(&self, shard: usize, span: Span) {
        let mut book = self.book.write().expect("no thread panics with the book open");
        assert!(
            book.spares[shard].is_none(),
            "shard {shard} has a spare span already: {:?}",
            book.spares[shard]
        );
        assert!(span.start >= book.ungranted, "{span:?} was granted before (below {})", book.ungranted);
        book.spares[shard] = Some(span);
        book.ungranted = span.end;
        self.own[shard].has_spare.store(true, Ordering::Relaxed);
        self.own[shard].asked.store(false, Ordering::Relaxed);
    }

    /// The grant that the shard asked for could not be made durable; it will ask again.
    pub fn decline(&self, shard: usize) {
        self.own[shard].asked.store(false, Ordering::Relaxed);
    }

    /// Whether the shard has a span waiting: then it needs no other.
    pub fn has_spare(&self, shard: usize) -> bool {
        self.own[shard].has_spare.load(Ordering::Relaxed)
    }

    fn want(&self, shard: usize) {
        let own = &self.own[shard];
        if !own.has_spare.load(Ordering::Relaxed) && !own.asked.swap(true, Ordering::Relaxed) {
            (self.ask)(shard);
        }
    }

    /// Moves a shard on to its spare span; false when there is none.
    fn turn_over(&self, shard: usize) -> bool {
        let mut book = self.book.write().expect("no thread panics with the book open");
        if book.spares[shard].is_none() {
            drop(book);
            self.want(shard);
            return false;
        }
        use_up(&mut book, &self.own[shard], shard);
        true
    }
}

/// Every id of the shard's present span is issued: it goes on with the spare one.
fn use_up(book: &mut Book, own: &Own, shard: usize) {
    let spare = book.spares[shard].take().expect("the caller looked");
    insert(
        &mut book.issued,
        Span { start: own.start.load(Ordering::Relaxed), end: own.end.load(Ordering::Relaxed) },
    );
    own.start.store(spare.start, Ordering::Relaxed);
    own.next.store(spare.start, Ordering::Relaxed);
    own.end.store(spare.end, Ordering::Relaxed);
    own.has_spare.store(false, Ordering::Relaxed);
}

/// Whether a sorted list of disjoint spans holds the id.
fn holds(spans: &[Span], lineage: u64) -> bool {
    let after = spans.partition_point(|span| span.start <= lineage);
    after > 0 && spans[after - 1].holds(lineage)
}

/// Adds a span to a sorted list of disjoint spans, joining neighbours that touch.
fn insert(spans: &mut Vec<Span>, span: Span) {
    if span.start == span.end {
        return;
    }
    let mut at = spans.partition_point(|other| other.start < span.start);
    let fits =
        (at == 0 || spans[at - 1].end <= span.start) && (at == spans.len() || span.end <= spans[at].start);
    assert!(fits, "{span:?} overlaps what is there: {spans:?}");
    spans.insert(at, span);
    if at + 1 < spans.len() && spans[at].end == spans[at + 1].start {
        spans[at].end = spans.remove(at + 1).end;
    }
    if at > 0 && spans[at - 1].end == spans[at].start {
        at -= 1;
        spans[at].end = spans.remove(at + 1).end;
    }
}

#[cfg(test)]
mod tests;
