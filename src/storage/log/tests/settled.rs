//! The recovery table of `storage-format.md` where segments were rewritten, or are listed for a part of the placements; and
//! that `thalweg verify` says the same of them.

use std::collections::HashSet;
use std::io;

use super::harness::{Client, Seen, open, options, run, try_open};
use super::recovery_table::{Filled, edit_list, filled, flip, refused, zero};
use crate::limits::BLOCK_BYTES;
use crate::storage::device::Store;
use crate::storage::event::{Event, EventContext, HashRange, Place, ProducerRun, SEGMENT_GONE};
use crate::storage::file_name;
use crate::storage::format::{FIRST_COMMIT_POSITION, SegmentHeader, Trailer};
use crate::storage::inspect::{Finding, Owner, Row, Severity, Walk};
use crate::storage::log::{Log, LogOptions};
use crate::storage::segment_list::{Listed, SegmentList};
use crate::storage::settle::Streams;
use crate::storage::simulated::SimulatedStore;

/// An owner of streams that has all of them but some, each from its start.
#[derive(Default)]
struct All {
    but: HashSet<u64>,
    forget_claims: bool,
}

impl Streams for All {
    fn is_last_use(&self, _: u64, _: u64) -> bool {
        true
    }

    fn first_of(&self, lineage: u64, hashes: HashRange) -> Option<u64> {
        (!self.but.contains(&lineage) && hashes.contains(lineage << 32)).then_some(0)
    }
    fn has_bucket(&self, _: &[u8], _: u64) -> bool {
        true
    }
    fn owns_bucket(&self, _: &[u8], _: HashRange) -> bool {
        true
    }
    fn has_attributes(&self, _: u64, _: &[u8]) -> bool {
        true
    }
    fn has_snapshot(&self, _: u64, _: u64, _: &[u8; 32]) -> bool {
        true
    }
    fn producer_run(&self, _: u64, _: &[u8], _: u64, seq: u64) -> Option<ProducerRun> {
        // Every append adds one record, and has the sequence number of its ordinal.
        let run = ProducerRun { first_ordinal: seq, records: 1, appends: 1 };
        (!self.forget_claims).then_some(run)
    }
    fn names(&self, _: u64, _: Place) -> bool {
        false
    }
}

/// Rewrites the first `count` sealed segments of a log as one. The number of that one.
async fn rewrite(
    store: &SimulatedStore,
    options: LogOptions,
    from: usize,
    count: usize,
    streams: &All,
) -> u32 {
    let (log, _, _, _) = open(store, options.clone()).await;
    let sealed = log.sealed_segments();
    let inputs: Vec<u32> = sealed[from..from + count].iter().map(|segment| segment.index).collect();
    log.settle(&inputs, streams).await.expect("they can be rewritten");
    log.discard(&inputs);
    assert!(!log.sweep().await, "nobody reads");
    log.stop().await;
    let list = SegmentList::read(store).await.expect("readable").expect("there is one");
    list.segments[from].number
}

/// What `thalweg verify` finds, for a shard that owns everything.
fn verify(store: &SimulatedStore) -> Vec<Finding> {
    let dir = tempfile::tempdir().expect("a directory");
    let list = SegmentList::parse(&store.bytes(file_name::LIST), "list").expect("a list");
    for name in list.segments.iter().map(|listed| &*listed.name).chain([file_name::LIST]) {
        std::fs::write(dir.path().join(name), store.bytes(name)).expect("written");
    }
    let mut findings = Vec::new();
    let mut sink = |row: &Row<'_>| -> io::Result<()> {
        if let Row::Finding(finding) = row
            && finding.severity == Severity::Damage
        {
            findings.push((*finding).clone());
        }
        Ok(())
    };
    let owner = Owner { hashes: HashRange::ALL, placement: &|_| 0 };
    Walk::new(&mut sink).log(dir.path(), Some(owner)).expect("no failure");
    findings
}

#[track_caller]
fn verify_finds(store: &SimulatedStore, number: u32, case: &str) {
    let findings = verify(store);
    let named = |finding: &Finding| finding.path.ends_with(file_name::segment(number));
    assert!(findings.iter().any(named), "{case}: {findings:?}");
}

/// A log whose sealed segments were rewritten as one, and its number. Nothing was left out.
async fn settled() -> (Filled, u32) {
    let filled = filled().await;
    let number = rewrite(&filled.store, options(), 0, filled.last as usize - 1, &All::default()).await;
    (filled, number)
}

/// Bytes of every stream in a log, in the order of their replay.
async fn contents(store: &SimulatedStore, options: LogOptions) -> Vec<u8> {
    let (log, _, seen, _) = open(store, options).await;
    let mut bytes = Vec::new();
    for event in &seen {
        bytes.extend(event.payload(&log).await);
    }
    log.stop().await;
    bytes
}

#[test]
fn a_settled_log_is_whole() {
    run(async {
        let (filled, number) = settled().await;
        assert!(number > filled.last);
        assert_eq!(verify(&filled.store), []);
        let (log, recovered, _, _) = open(&filled.store, options()).await;
        assert_eq!((recovered.segments, recovered.from_footers), (2, 1));
        assert_eq!(recovered.last_lsn, filled.staged.last().expect("some").0.lsn + 1, "a mark is the last");
        log.stop().await;
        let expected: Vec<u8> = filled.staged.iter().flat_map(|(_, payload)| payload.clone()).collect();
        assert!(contents(&filled.store, options()).await == expected);
        // Its commits are numbered apart, but no event comes behind what it stands for.
        let bytes = filled.store.bytes(&file_name::segment(number));
        let header = SegmentHeader::parse(&bytes[..BLOCK_BYTES]).expect("valid");
        let stands_for = header.settled.expect("settled");
        assert_eq!((header.first_lsn, stands_for.origin_log_id), (1, 7));
    });
}

#[test]
fn s15_a_settled_segment_without_its_end_is_refused() {
    run(async {
        let (filled, number) = settled().await;
        let bytes = filled.store.bytes(&file_name::segment(number));
        let header = SegmentHeader::parse(&bytes[..BLOCK_BYTES]).expect("valid");
        let trailer_at = bytes.len() - BLOCK_BYTES;
        let trailer = Trailer::parse(&bytes[trailer_at..], header.nonce).expect("sealed");
        let footer_at = trailer.footer_position as usize;
        for (case, at) in [
            ("header", 70),
            ("trailer", trailer_at + 30),
            ("page header", footer_at + 20),
            ("page body", footer_at + 100),
        ] {
            let store = filled.store.after_crash(crate::storage::simulated::Unsynced::Kept);
            flip(&store, number, at);
            assert_eq!(refused(&store, case).await.0, file_name::segment(number), "{case}");
            verify_finds(&store, number, case);
        }
        for (case, at) in [("no trailer", trailer_at), ("no footer", footer_at), ("no header", 0)] {
            let store = filled.store.after_crash(crate::storage::simulated::Unsynced::Kept);
            zero(&store, number, at, BLOCK_BYTES);
            assert_eq!(refused(&store, case).await.0, file_name::segment(number), "{case}");
            verify_finds(&store, number, case);
        }
        // What the server reads when it is asked for it, verify reads at once.
        for at in [FIRST_COMMIT_POSITION as usize + 20, FIRST_COMMIT_POSITION as usize + 70, footer_at / 2] {
            let store = filled.store.after_crash(crate::storage::simulated::Unsynced::Kept);
            flip(&store, number, at);
            verify_finds(&store, number, &format!("a commit at {at}"));
        }
    });
}

#[test]
fn s4_s7_s9_a_settled_segment_must_be_there_and_in_its_place() {
    run(async {
        let (filled, number) = settled().await;
        let copy = || filled.store.after_crash(crate::storage::simulated::Unsynced::Kept);
        let store = copy();
        store.remove(&file_name::segment(number)).await.expect("removed");
        assert_eq!(refused(&store, "missing").await.0, file_name::segment(number));
        // The list with the two in the other order.
        let store = copy();
        edit_list(&store, |list| list.segments.swap(0, 1)).await;
        assert_eq!(refused(&store, "swapped").await.0, file_name::segment(filled.last));
        verify_finds(&store, filled.last, "swapped");
        // Another segment's file.
        let store = copy();
        let other = store.bytes(&file_name::segment(filled.last));
        store.edit(&file_name::segment(number), |bytes| *bytes = other);
        assert_eq!(refused(&store, "another file").await.0, file_name::segment(number));
        verify_finds(&store, number, "another file");
    });
}

/// Events of a log that count where they are listed, by the placement of their stream, as text.
async fn counted(store: &SimulatedStore, options: LogOptions) -> (Vec<String>, usize) {
    let (mut events, mut all) = (Vec::new(), 0);
    let mut visit = |event: &Event<'_>, context: EventContext| {
        all += 1;
        let lineage = event.lineage().expect("only streams are there");
        if context.hashes.contains(lineage << 32) {
            events.push(Seen::new(event, context).text);
        }
    };
    let shared = std::rc::Rc::new(store.clone());
    let _opened = Log::open(shared, options, &mut visit).await.expect("opens");
    (events, all)
}

/// The directory of a log of id 9 with nothing but these segments of others.
async fn heir(segments: Vec<(Listed, Vec<u8>)>) -> SimulatedStore {
    let store = SimulatedStore::new();
    let mut list = SegmentList::default();
    for (listed, bytes) in segments {
        store.write_whole(&listed.name, bytes).await.expect("written");
        list.segments.push(listed);
    }
    list.write(&store).await.expect("written");
    store
}

/// Streams 1 to 4 over several segments, appended to in turns.
async fn in_turns(log_id: u64) -> Filled {
    let store = SimulatedStore::new();
    let options = LogOptions { log_id, ..options() };
    let (log, _, _, _) = open(&store, options.clone()).await;
    let mut client = Client::new(log.clone());
    for _ in 1..=4 {
        client.create().await.expect("staged");
    }
    for round in 0..60 {
        client.append(1 + round % 4, 50_000).await.expect("staged");
        client.settle().await.expect("durable");
    }
    log.stop().await;
    let staged = std::mem::take(&mut client.staged);
    let retired = Log::retire(std::rc::Rc::new(store.clone()), log_id).await.expect("whole");
    Filled { store, staged, last: retired.segments.len() as u32 }
}

fn part(start: u64, end: u64) -> HashRange {
    HashRange { start, end }
}

#[test]
fn s16_s17_segments_count_for_the_placements_that_they_are_listed_for() {
    run(async {
        let old = in_turns(7).await;
        let list_of = |hashes: &[HashRange]| {
            let mut segments = Vec::new();
            for number in 1..=old.last {
                let bytes = old.store.bytes(&file_name::segment(number));
                for hashes in hashes {
                    segments.push((Listed::inherited(number, 7, *hashes), bytes.clone()));
                }
            }
            segments
        };
        let heirs = LogOptions { log_id: 9, ..options() };
        let expected = |counts: &dyn Fn(u64) -> bool| -> Vec<String> {
            let is_of = |text: &str, lineage| text.contains(&format!("lineage: {lineage},"));
            let kept = |seen: &&Seen| (1..=4).any(|lineage| counts(lineage) && is_of(&seen.text, lineage));
            old.staged.iter().map(|(seen, _)| seen).filter(kept).map(|seen| seen.text.clone()).collect()
        };
        let store = heir(list_of(&[part(2, 4)])).await;
        let (events, all) = counted(&store, heirs.clone()).await;
        assert_eq!(events, expected(&|lineage| (2..4).contains(&lineage)), "for some");
        assert_eq!(all, old.staged.len());
        assert_eq!(verify(&store), []);
        // Twice, for two parts that leave one out between them.
        let store = heir(list_of(&[part(0, 2), part(3, 1 << 32)])).await;
        let (mut events, all) = counted(&store, heirs.clone()).await;
        let mut wanted = expected(&|lineage| lineage != 2);
        events.sort();
        wanted.sort();
        assert_eq!((events, all), (wanted, 2 * old.staged.len()), "for two parts");
        assert_eq!(verify(&store), []);
    });
}

#[test]
fn s9_s5_logs_that_interleave_are_checked_each() {
    run(async {
        let (one, other) = (in_turns(7).await, in_turns(8).await);
        assert!(one.last >= 3);
        let of = |old: &Filled, log_id: u64, number: u32| {
            let listed = Listed::inherited(number, log_id, HashRange::ALL);
            (listed, old.store.bytes(&file_name::segment(number)))
        };
        let heirs = LogOptions { log_id: 9, ..options() };
        let whole = [of(&one, 7, 1), of(&other, 8, 1), of(&one, 7, 2), of(&one, 7, 3)];
        let name = |log_id, number| file_name::inherited_segment(number, log_id);
        let opens = async |segments: &[(Listed, Vec<u8>)]| {
            let store = heir(segments.to_vec()).await;
            let opened = try_open(&store, heirs.clone()).await;
            match opened {
                Ok((log, ..)) => {
                    log.stop().await;
                    None
                }
                Err(error) => Some(error.to_string()),
            }
        };
        assert_eq!(opens(&whole).await, None);
        // The second of log 7 is not listed.
        let mut lacking = whole.to_vec();
        lacking.remove(2);
        let said = opens(&lacking).await.expect("a gap");
        assert!(said.contains(&name(7, 1)) && said.contains("the next segment begins with"), "{said}");
        let found = verify(&heir(lacking).await);
        assert!(found.iter().any(|finding| finding.path.ends_with(name(7, 1))), "{found:?}");
        // The first of log 7 seems never to have begun, and one of another log stands behind it.
        let mut lost = whole.to_vec();
        lost[0].1[..2 * BLOCK_BYTES].fill(0);
        let said = opens(&lost).await.expect("it has begun");
        assert!(said.contains(&name(7, 1)), "{said}");
        let found = verify(&heir(lost).await);
        assert!(found.iter().any(|finding| finding.path.ends_with(name(7, 1))), "{found:?}");
    });
}

#[test]
fn e4_parts_in_a_segment_that_is_gone_are_known_as_such() {
    run(async {
        let store = SimulatedStore::new();
        let (log, _, _, _) = open(&store, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        client.create().await.expect("staged");
        // Its chunks fill the first segment, and go on in the next ones.
        client.append(2, 10).await.expect("staged");
        client.append(1, 2_500_000).await.expect("staged");
        client.append(2, 300_000).await.expect("staged");
        client.delete(1).await.expect("staged");
        client.settle().await.expect("durable");
        log.stop().await;
        let streams = All { but: HashSet::from([1]), ..All::default() };
        rewrite(&store, options(), 0, 1, &streams).await;
        let mut parts = Vec::new();
        let mut visit = |event: &Event<'_>, context: EventContext| {
            if event.lineage() == Some(1) && matches!(event, Event::Appended(_)) {
                parts = Seen::new(event, context).parts;
            }
        };
        let shared = std::rc::Rc::new(store.clone());
        let _opened = Log::open(shared, options(), &mut visit).await.expect("opens");
        let gone = parts.iter().filter(|part| part.place.segment == SEGMENT_GONE).count();
        assert!(gone > 0 && gone < parts.len(), "{gone} of {}", parts.len());
        assert_eq!(verify(&store), [], "it is deleted");
    });
}

#[test]
fn e2_what_lacks_in_the_middle_of_a_stream_must_be_deleted_further_on() {
    run(async {
        for is_deleted in [true, false] {
            let store = SimulatedStore::new();
            let (log, _, _, _) = open(&store, options()).await;
            let mut client = Client::new(log.clone());
            client.create().await.expect("staged");
            client.create().await.expect("staged");
            for _ in 0..60 {
                client.append(1, 40_000).await.expect("staged");
                client.append(2, 10).await.expect("staged");
                client.settle().await.expect("durable");
            }
            if is_deleted {
                client.delete(1).await.expect("staged");
                client.settle().await.expect("durable");
            }
            log.stop().await;
            rewrite(&store, options(), 1, 1, &All { but: HashSet::from([1]), forget_claims: true }).await;
            // Of the other stream nothing ends.
            let found = verify(&store);
            let of = |lineage: &str| found.iter().any(|finding| finding.what.contains(lineage));
            assert_eq!(of("of stream 1, which ends at"), !is_deleted, "{found:?}");
            assert!(found.iter().any(|finding| finding.what.starts_with("producer")), "{found:?}");
            assert!(found.iter().all(|finding| finding.what.contains("nothing explains")), "{found:?}");
        }
    });
}
