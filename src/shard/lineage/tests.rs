//! Properties of lineage ids: never twice, exact memory of what was issued, across grants, crashes and generations.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

const GRANT: u64 = limits::LINEAGE_GRANT;

fn granted(log_ids: &[u64]) -> Ledger {
    let mut ledger = Ledger::default();
    for log_id in log_ids {
        ledger.grant(*log_id).expect("few ids are used");
    }
    ledger
}

/// Lineages that note who asked for a grant.
fn with_asks(log_ids: &[u64], ledger: &Ledger) -> (Lineages, Arc<Mutex<Vec<usize>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = asked.clone();
    (Lineages::new(log_ids, ledger, move |shard| note.lock().unwrap().push(shard)), asked)
}

/// What the node does when asked: make the grant durable, then hand it over.
fn answer(lineages: &Lineages, shard: usize, log_id: u64) {
    let mut ledger = lineages.ledger();
    let span = ledger.grant(log_id).expect("few ids are used");
    assert_eq!(ledger.problem(), None);
    lineages.accept(shard, span);
}

#[test]
fn ids_start_at_one_and_shards_have_spans_of_their_own() {
    let lineages = Lineages::new(&[7, 9], &granted(&[7, 9]), |_| {});
    assert!(!lineages.issued(0), "all zeros is the start, never a lineage");
    assert!(!lineages.issued(1));
    assert_eq!(lineages.next(0), Some(1));
    assert_eq!(lineages.next(1), Some(1 + GRANT));
    assert_eq!(lineages.next(0), Some(2));
    let issued: Vec<u64> =
        [0, 1, 2, 3, GRANT, GRANT + 1, GRANT + 2].into_iter().filter(|id| lineages.issued(*id)).collect();
    assert_eq!(issued, [1, 2, GRANT + 1]);
    assert!(!lineages.issued(u64::MAX));
}

#[test]
fn a_further_grant_is_asked_for_at_half_and_used_when_the_first_is_used_up() {
    let (lineages, asked) = with_asks(&[7], &granted(&[7]));
    for expected in 1..=GRANT / 2 - 1 {
        assert_eq!(lineages.next(0), Some(expected));
    }
    assert!(asked.lock().unwrap().is_empty(), "too early");
    lineages.next(0);
    assert_eq!(*asked.lock().unwrap(), [0]);
    answer(&lineages, 0, 7);
    for expected in GRANT / 2 + 1..=GRANT + 1 {
        assert_eq!(lineages.next(0), Some(expected));
    }
    assert_eq!(*asked.lock().unwrap(), [0], "one answer is enough");
    assert!(lineages.issued(1) && lineages.issued(GRANT) && lineages.issued(GRANT + 1));
    assert!(!lineages.issued(GRANT + 2));
    assert_eq!(lineages.ledger().issued, [Span { start: 1, end: GRANT + 1 }]);
    assert_eq!(lineages.ledger().problem(), None);
}

#[test]
fn without_a_grant_creates_are_refused_and_asking_goes_on() {
    let mut ledger = granted(&[7]);
    ledger.grants[0].next = GRANT; // one id left: ids start at 1
    let (lineages, asked) = with_asks(&[7], &ledger);
    assert_eq!(lineages.next(0), Some(GRANT));
    assert_eq!(asked.lock().unwrap().len(), 1);
    assert_eq!(lineages.next(0), None);
    assert_eq!(asked.lock().unwrap().len(), 1, "not before the node has answered");
    lineages.decline(0);
    assert_eq!(lineages.next(0), None);
    assert_eq!(asked.lock().unwrap().len(), 2);
    answer(&lineages, 0, 7);
    assert_eq!(lineages.next(0), Some(GRANT + 1));
}

#[test]
fn recovery_goes_on_after_the_highest_id() {
    let lineages = Lineages::new(&[7, 9], &granted(&[7, 9]), |_| {});
    for id in [5, 3, 41, 17] {
        lineages.observe(0, id).unwrap();
    }
    assert!(lineages.recovered().is_empty());
    assert_eq!(lineages.next(0), Some(42));
    assert!(lineages.issued(41) && !lineages.issued(43));
    assert_eq!(lineages.next(1), Some(GRANT + 1), "the other shard found nothing");
}

#[test]
fn an_id_of_the_spare_span_means_that_the_first_is_used_up() {
    let mut ledger = granted(&[7, 9]);
    ledger.grant(7).unwrap();
    let lineages = Lineages::new(&[7, 9], &ledger, |_| {});
    assert!(lineages.has_spare(0));
    lineages.observe(0, 2 * GRANT + 5).unwrap();
    lineages.observe(0, 4).unwrap();
    assert!(!lineages.has_spare(0));
    assert!(lineages.issued(GRANT), "the last id of the first span");
    assert!(!lineages.issued(GRANT + 1), "the other shard's");
    assert_eq!(lineages.next(0), Some(2 * GRANT + 6));
    assert!(lineages.recovered().is_empty());
}

#[test]
fn a_shard_with_few_ids_left_is_named_after_recovery() {
    let lineages = Lineages::new(&[7, 9], &granted(&[7, 9]), |_| {});
    lineages.observe(1, GRANT + GRANT / 2).unwrap();
    assert_eq!(lineages.recovered(), [1]);
}

#[test]
fn logs_of_an_earlier_generation_keep_what_they_issued_and_lose_the_rest() {
    let mut ledger = granted(&[1, 2]);
    ledger.grant(1).unwrap(); // log 1: 1..=G and 2G+1..=3G, log 2: G+1..=2G
    ledger.grant(30).unwrap();
    let lineages = Lineages::new(&[30], &ledger, |_| {});
    lineages.observe(0, 2 * GRANT + 10).unwrap(); // so all of log 1's first span is used
    lineages.observe(0, GRANT + 3).unwrap();
    assert!(lineages.issued(GRANT), "known before recovery is over");
    assert!(lineages.recovered().is_empty());
    let table = [(1, true), (GRANT, true), (GRANT + 3, true), (GRANT + 4, false), (2 * GRANT + 10, true)];
    for (id, issued) in table {
        assert_eq!(lineages.issued(id), issued, "{id}");
    }
    assert!(!lineages.issued(2 * GRANT + 11));
    let ledger = lineages.ledger();
    assert_eq!(
        ledger.issued,
        [Span { start: 1, end: GRANT + 4 }, Span { start: 2 * GRANT + 1, end: 2 * GRANT + 11 }]
    );
    assert_eq!(ledger.grants.len(), 1, "only the present log may issue");
    let again = Lineages::new(&[30], &ledger, |_| {});
    again.observe(0, GRANT + 2).unwrap();
    assert!(again.issued(2 * GRANT + 10) && !again.issued(2 * GRANT + 11));
    assert_eq!(again.next(0), Some(3 * GRANT + 1));
}

#[test]
fn an_id_that_was_never_granted_is_refused() {
    let lineages = Lineages::new(&[7], &granted(&[7]), |_| {});
    assert_eq!(lineages.observe(0, GRANT + 1), Err(NotGranted { lineage: GRANT + 1 }));
    assert_eq!(lineages.observe(0, 0), Err(NotGranted { lineage: 0 }));
}

#[test]
fn a_ledger_that_grants_twice_is_refused() {
    assert_eq!(granted(&[1, 2]).problem(), None);
    let whole = Span { start: 1, end: 10 };
    let grant = |start, end, next| Grant { log_id: 5, span: Span { start, end }, next };
    let table = [
        Ledger { ungranted: 100, issued: vec![whole], grants: vec![grant(9, 20, 9)] },
        Ledger { ungranted: 100, issued: vec![], grants: vec![grant(9, 20, 9), grant(19, 30, 19)] },
        Ledger { ungranted: 15, issued: vec![whole], grants: vec![grant(10, 20, 10)] },
        Ledger { ungranted: 100, issued: vec![], grants: vec![grant(10, 20, 21)] },
        Ledger { ungranted: 100, issued: vec![], grants: vec![grant(0, 20, 1)] },
        Ledger { ungranted: 100, issued: vec![Span { start: 20, end: 30 }, whole], grants: vec![] },
        Ledger { ungranted: 100, issued: vec![Span { start: 20, end: 20 }], grants: vec![] },
    ];
    for ledger in table {
        assert!(ledger.problem().is_some(), "{ledger:?}");
    }
}

#[test]
fn ids_end_at_sixteen_digits() {
    let mut ledger = Ledger { ungranted: limits::LINEAGE_MAX - GRANT, ..Ledger::default() };
    assert!(ledger.grant(1).is_some());
    assert_eq!(ledger.grant(1), None);
}

#[test]
fn an_id_is_issued_as_soon_as_another_thread_can_know_it() {
    let mut ledger = granted(&[7]);
    ledger.grants[0].next = GRANT - 20_000; // the turn over to the spare span happens on the way
    ledger.grant(7).unwrap();
    let lineages = Lineages::new(&[7], &ledger, |_| {});
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let lineages = &lineages;
        scope.spawn(move || {
            for _ in 0..40_000 {
                send.send(lineages.next(0).expect("a spare span is there")).unwrap();
            }
        });
        for id in receive {
            assert!(lineages.issued(id), "{id} was issued");
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    /// Issue so many ids on a shard, all of them durable.
    Issue(usize, u64),
    /// Jump to the end of the shard's span, as many creates would.
    Exhaust(usize),
    /// Lose what is in memory; logs and MANIFEST remain.
    Restart,
    /// Go on with another number of shards.
    Reshard(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4usize, 1..50u64).prop_map(|(shard, count)| Step::Issue(shard, count)),
        2 => (0..4usize).prop_map(Step::Exhaust),
        2 => Just(Step::Restart),
        1 => (1..5usize).prop_map(Step::Reshard),
    ]
}

/// A server's life as far as lineage ids go: what is durable, and the model of what was issued.
struct Life {
    durable: Ledger,
    logs: Vec<u64>,
    /// Durable ids; any shard may find any of them in the segments that it shares.
    found: Vec<u64>,
    /// Spans used up by `Step::Exhaust`, whose ids are too many to list.
    exhausted: Vec<Span>,
    lineages: Lineages,
    next_log: u64,
}

impl Life {
    fn open(&mut self) {
        self.lineages = Lineages::new(&self.logs, &self.durable, |_| {});
        for id in
            self.found.iter().chain(self.exhausted.iter().map(|span| span.end - 1).collect::<Vec<_>>().iter())
        {
            self.lineages.observe(0, *id).expect("it was granted");
        }
        for shard in self.lineages.recovered() {
            self.grant(shard);
        }
        self.durable = self.lineages.ledger();
    }

    fn grant(&mut self, shard: usize) {
        let mut ledger = self.lineages.ledger();
        let span = ledger.grant(self.logs[shard]).expect("few ids are used");
        assert_eq!(ledger.problem(), None);
        self.durable = ledger;
        self.lineages.accept(shard, span);
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Issue(shard, count) => {
                let shard = shard % self.logs.len();
                for _ in 0..count {
                    let Some(id) = self.lineages.next(shard) else {
                        self.grant(shard);
                        continue;
                    };
                    assert!(!self.found.contains(&id), "{id} was issued twice");
                    assert!(!holds(&self.exhausted, id), "{id} was issued twice");
                    self.found.push(id);
                }
            }
            Step::Exhaust(shard) => {
                let shard = shard % self.logs.len();
                let own = &self.lineages.own[shard];
                let span =
                    Span { start: own.next.load(Ordering::Relaxed), end: own.end.load(Ordering::Relaxed) };
                own.next.store(span.end, Ordering::Relaxed);
                insert(&mut self.exhausted, span);
                if !self.lineages.has_spare(shard) {
                    self.grant(shard);
                }
            }
            Step::Restart => self.open(),
            Step::Reshard(shards) => {
                self.logs = (0..shards as u64).map(|shard| self.next_log + shard).collect();
                self.next_log += shards as u64;
                for log_id in self.logs.clone() {
                    self.durable.grant(log_id).expect("few ids are used");
                }
                self.open();
            }
        }
    }

    fn check(&self) {
        for id in &self.found {
            assert!(self.lineages.issued(*id), "{id} was issued");
        }
        for span in &self.exhausted {
            assert!(self.lineages.issued(span.start) && self.lineages.issued(span.end - 1), "{span:?}");
        }
        for id in self.found.iter().map(|id| id + 1).chain(self.exhausted.iter().map(|span| span.end)) {
            let issued = self.found.contains(&id) || holds(&self.exhausted, id);
            assert_eq!(self.lineages.issued(id), issued, "{id}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_id_is_issued_twice_and_none_is_forgotten(steps in proptest::collection::vec(step(), 1..40)) {
        let durable = granted(&[1, 2]);
        let lineages = Lineages::new(&[1, 2], &durable, |_| {});
        let mut life =
            Life { durable, logs: vec![1, 2], found: vec![], exhausted: vec![], lineages, next_log: 3 };
        for step in steps {
            life.apply(step);
            life.check();
        }
    }
}
