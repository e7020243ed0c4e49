//! The recovery table of `storage-format.md`, case by case.

use super::harness::{Client, Seen, check, open, options, run, try_open};
use crate::limits::BLOCK_BYTES;
use crate::storage::device::Store;
use crate::storage::event::{Event, EventContext, HashRange};
use crate::storage::file_name;
use crate::storage::format::{
    COMMIT_HEADER_BYTES, CommitHeader, FIRST_COMMIT_POSITION, SegmentHeader, Trailer, put_u32,
};
use crate::storage::log::{Log, LogOptions, OpenError};
use crate::storage::scan::StopReason;
use crate::storage::segment_list::{ListError, Listed, SegmentList};
use crate::storage::simulated::SimulatedStore;

pub(super) struct Filled {
    pub(super) store: SimulatedStore,
    pub(super) staged: Vec<(Seen, Vec<u8>)>,
    /// Number of the last segment that has begun.
    pub(super) last: u32,
}

/// A log of several segments, the last of them with a few commits and then a mark, and one that has not begun.
pub(super) async fn filled() -> Filled {
    let store = SimulatedStore::new();
    let (log, _, _, _) = open(&store, options()).await;
    let mut client = Client::new(log.clone());
    client.create().await.expect("staged");
    for round in 0..55 {
        client.append(1, 50_000 - round).await.expect("staged");
        client.settle().await.expect("durable");
    }
    log.stop().await;
    let (log, recovered, _, _) = open(&store, options()).await;
    while !store.exists(&file_name::segment(recovered.segments + 1))
        || !is_listed(&store, recovered.segments + 1).await
    {
        glommio::executor().yield_task_queue_now().await;
    }
    log.stop().await;
    assert!(recovered.segments >= 3, "{recovered:?}");
    Filled { store, staged: client.staged, last: recovered.segments }
}

async fn is_listed(store: &SimulatedStore, number: u32) -> bool {
    let list = SegmentList::read(store).await.expect("readable").expect("there is one");
    list.segments.iter().any(|segment| segment.number == number)
}

pub(super) async fn edit_list(store: &SimulatedStore, change: impl FnOnce(&mut SegmentList)) {
    let mut list = SegmentList::read(store).await.expect("readable").expect("there is one");
    change(&mut list);
    list.write(store).await.expect("written");
}

/// Header and positions of the commits of a segment.
pub(super) fn commits(store: &SimulatedStore, number: u32) -> (SegmentHeader, Vec<(usize, CommitHeader)>) {
    let bytes = store.bytes(&file_name::segment(number));
    let header = SegmentHeader::parse(&bytes[..BLOCK_BYTES]).expect("begun");
    let mut found = Vec::new();
    let mut at = FIRST_COMMIT_POSITION as usize;
    while let Ok(commit) = CommitHeader::parse(&bytes[at..], header.nonce) {
        found.push((at, commit));
        at += commit.commit_bytes();
    }
    (header, found)
}

pub(super) fn flip(store: &SimulatedStore, number: u32, at: usize) {
    store.edit(&file_name::segment(number), |bytes| bytes[at] ^= 0x40);
}

pub(super) fn zero(store: &SimulatedStore, number: u32, at: usize, len: usize) {
    store.edit(&file_name::segment(number), |bytes| bytes[at..at + len].fill(0));
}

async fn opens_whole(filled: &Filled, case: &str) -> crate::storage::log::Recovered {
    let (log, recovered, seen, _) = open(&filled.store, options()).await;
    assert_eq!(seen.len(), filled.staged.len(), "{case}");
    check(&log, &seen, &filled.staged, u64::MAX, case).await;
    log.stop().await;
    recovered
}

/// The log does not open: which file and which position it names.
pub(super) async fn refused(store: &SimulatedStore, case: &str) -> (String, u64) {
    match try_open(store, options()).await {
        Err(OpenError::Damaged { path, position, what }) => {
            let text = OpenError::Damaged { path: path.clone(), position, what }.to_string();
            assert!(text.contains("thalweg verify"), "{case}: {text}");
            (path, position)
        }
        Err(other) => panic!("{case}: refused with {other}"),
        Ok((_, recovered, _, _)) => panic!("{case}: opened with {recovered:?}"),
    }
}

#[test]
fn s1_nothing_is_a_new_log() {
    run(async {
        let (log, recovered, seen, _) = open(&SimulatedStore::new(), options()).await;
        assert_eq!((recovered.last_lsn, recovered.segments, seen.len()), (0, 0, 0));
        log.stop().await;
    });
}

#[test]
fn s2_a_damaged_or_newer_list_is_refused() {
    run(async {
        let Filled { store, .. } = filled().await;
        store.edit(file_name::LIST, |bytes| bytes[30] ^= 1);
        let error = try_open(&store, options()).await.err().expect("refused");
        assert!(matches!(error, OpenError::List(ListError::Damaged { .. })), "{error}");
        store.edit(file_name::LIST, |bytes| *bytes = b"thalweg-segments 9\n".to_vec());
        let error = try_open(&store, options()).await.err().expect("refused");
        assert!(matches!(error, OpenError::List(ListError::Newer { found: 9, .. })), "{error}");
    });
}

#[test]
fn s2_a_missing_list_beside_commits_is_refused() {
    run(async {
        let Filled { store, .. } = filled().await;
        store.remove(file_name::LIST).await.expect("removed");
        assert_eq!(refused(&store, "no list").await, (file_name::segment(1), 0));
    });
}

#[test]
fn s3_unlisted_files_are_removed() {
    run(async {
        let filled = filled().await;
        let name = file_name::segment(99);
        filled.store.write_whole(&name, vec![1; 10_000]).await.expect("written");
        filled.store.write_whole(file_name::LIST_ASIDE, vec![1; 10]).await.expect("written");
        filled.store.write_whole(".DS_Store", vec![1; 10]).await.expect("written");
        opens_whole(&filled, "S3").await;
        assert!(!filled.store.exists(&name) && !filled.store.exists(file_name::LIST_ASIDE));
        assert!(filled.store.exists(".DS_Store"), "what is none of ours stays");
    });
}

#[test]
fn s4_missing_and_short_files_are_refused() {
    run(async {
        let Filled { store, last, .. } = filled().await;
        let name = file_name::segment(last);
        let whole = store.bytes(&name);
        store.edit(&name, |bytes| bytes.truncate(bytes.len() - BLOCK_BYTES));
        assert_eq!(refused(&store, "short").await, (name.clone(), 0));
        store.edit(&name, |bytes| bytes.truncate(100));
        assert_eq!(refused(&store, "very short").await, (name.clone(), 0));
        store.edit(&name, |bytes| *bytes = whole);
        store.remove(&file_name::segment(2)).await.expect("removed");
        assert_eq!(refused(&store, "missing").await, (file_name::segment(2), 0));
    });
}

#[test]
fn s5_a_segment_that_has_not_begun_is_used_next() {
    run(async {
        let filled = filled().await;
        assert!(is_listed(&filled.store, filled.last + 1).await);
        let recovered = opens_whole(&filled, "S5").await;
        assert_eq!(recovered.segments, filled.last);
        // Its header torn, and nothing behind it: the same.
        filled.store.edit(&file_name::segment(filled.last + 1), |bytes| bytes[..700].fill(9));
        opens_whole(&filled, "S5, torn header").await;
        let (log, _, _, _) = open(&filled.store, options()).await;
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        for _ in 0..20 {
            client.append(1, 60_000).await.expect("staged");
        }
        client.settle().await.expect("durable");
        log.stop().await;
        let (log, recovered, _, _) = open(&filled.store, options()).await;
        assert!(recovered.segments > filled.last);
        log.stop().await;
    });
}

#[test]
fn s6_s7_a_bad_header_of_a_begun_segment_is_refused() {
    run(async {
        for number in 1..=3 {
            for zeros in [true, false] {
                let Filled { store, last, .. } = filled().await;
                assert_eq!(last, 3);
                match zeros {
                    true => zero(&store, number, 0, BLOCK_BYTES),
                    false => flip(&store, number, 30),
                }
                assert_eq!(refused(&store, "header").await, (file_name::segment(number), 0));
            }
        }
    });
}

#[test]
fn s7_another_segments_header_is_refused() {
    run(async {
        let Filled { store, .. } = filled().await;
        let other = store.bytes(&file_name::segment(1));
        store.edit(&file_name::segment(2), |bytes| *bytes = other);
        assert_eq!(refused(&store, "number").await, (file_name::segment(2), 0));
        let Filled { store, .. } = filled().await;
        edit_list(&store, |list| list.segments[1].log_id = 8).await;
        assert_eq!(refused(&store, "log id").await, (file_name::segment(2), 0));
    });
}

#[test]
fn s8_a_newer_segment_is_refused_as_such() {
    run(async {
        let Filled { store, .. } = filled().await;
        store.edit(&file_name::segment(2), |bytes| {
            put_u32(bytes, 8, 2);
            let checksum = crc32c::crc32c(&bytes[..BLOCK_BYTES - 4]);
            put_u32(bytes, BLOCK_BYTES - 4, checksum);
        });
        let error = try_open(&store, options()).await.err().expect("refused");
        assert!(matches!(error, OpenError::Newer { found: 2, .. }), "{error}");
    });
}

#[test]
fn s9_a_segment_missing_in_the_middle_is_refused() {
    run(async {
        let Filled { store, .. } = filled().await;
        edit_list(&store, |list| {
            list.segments.remove(1);
        })
        .await;
        assert_eq!(refused(&store, "gap").await.0, file_name::segment(1));
    });
}

#[test]
fn s10_s11_s12_footers_are_used_where_they_are_valid() {
    run(async {
        let filled = filled().await;
        let recovered = opens_whole(&filled, "S10").await;
        assert_eq!(recovered.from_footers, filled.last - 1);
        let bytes = filled.store.bytes(&file_name::segment(1));
        let nonce = SegmentHeader::parse(&bytes[..BLOCK_BYTES]).expect("begun").nonce;
        let trailer_at = bytes.len() - BLOCK_BYTES;
        let trailer = Trailer::parse(&bytes[trailer_at..], nonce).expect("sealed");
        let damages: [(&str, usize); 3] = [
            ("S11 page header", trailer.footer_position as usize + 20),
            ("S11 page body", trailer.footer_position as usize + 100),
            ("S12 trailer", trailer_at + 30),
        ];
        for (case, at) in damages {
            flip(&filled.store, 1, at);
            let recovered = opens_whole(&filled, case).await;
            assert_eq!(recovered.from_footers, filled.last - 2, "{case}: scanned");
            let recovered = opens_whole(&filled, case).await;
            assert_eq!(recovered.from_footers, filled.last - 1, "{case}: made up for");
        }
        zero(&filled.store, 1, trailer_at, BLOCK_BYTES);
        let recovered = opens_whole(&filled, "S12 zeros").await;
        assert_eq!(recovered.from_footers, filled.last - 2);
    });
}

#[test]
fn s12_a_segment_in_the_middle_must_reach_up_to_the_next() {
    run(async {
        let Filled { store, .. } = filled().await;
        let trailer_at = store.bytes(&file_name::segment(1)).len() - BLOCK_BYTES;
        zero(&store, 1, trailer_at, BLOCK_BYTES);
        let (_, found) = commits(&store, 1);
        let (at, last) = found.last().expect("commits");
        zero(&store, 1, *at, last.commit_bytes());
        assert_eq!(refused(&store, "last commit gone").await, (file_name::segment(1), *at as u64));
    });
}

#[test]
fn s13_a_sealed_last_segment_is_not_appended_to() {
    run(async {
        let filled = filled().await;
        // As if the roll had been lost: the list forgets what came after a sealed segment.
        edit_list(&filled.store, |list| list.segments.truncate(1)).await;
        let (log, recovered, seen, _) = open(&filled.store, options()).await;
        assert_eq!((recovered.segments, recovered.from_footers), (1, 1));
        let sealed = filled.store.bytes(&file_name::segment(1));
        let mut client = Client::new(log.clone());
        client.create().await.expect("staged");
        client.settle().await.expect("durable");
        log.stop().await;
        assert!(filled.store.bytes(&file_name::segment(1)) == sealed);
        let (log, recovered, again, _) = open(&filled.store, options()).await;
        assert_eq!((recovered.segments, again.len()), (2, seen.len() + 1));
        log.stop().await;
    });
}

#[test]
fn s14_an_unreadable_block_is_never_the_end_of_the_log() {
    run(async {
        let filled = filled().await;
        let Filled { store, last, .. } = &filled;
        let (_, found) = commits(store, *last);
        let file_bytes = store.bytes(&file_name::segment(1)).len() as u64;
        let block = BLOCK_BYTES as u64;
        let end = found.last().map(|(at, commit)| at + commit.commit_bytes()).expect("commits") as u64;
        let table = [
            (1, 0, "a header"),
            (1, file_bytes - block, "a trailer"),
            (*last, found[1].0 as u64, "a commit"),
            (*last, end, "what is behind the last commit"),
            (*last, file_bytes - 2 * block, "far behind the last commit"),
            (*last + 1, 0, "a header that is not written yet"),
        ];
        for (number, at, case) in table {
            let store = store.after_crash(crate::storage::simulated::Unsynced::Kept);
            store.make_unreadable(&file_name::segment(number), at..at + 1);
            let error = try_open(&store, options()).await.err().expect(case);
            assert!(matches!(error, OpenError::Io { .. }), "{case}: {error}");
            assert!(error.to_string().contains(&file_name::segment(number)), "{case}: {error}");
        }
        store.make_unreadable(file_name::LIST, 0..1);
        let error = try_open(store, options()).await.err().expect("refused");
        assert!(matches!(error, OpenError::List(ListError::Io { .. })), "{error}");
    });
}

#[test]
fn c2_c3_the_last_commit_is_cut_if_nothing_follows_it() {
    run(async {
        // What the crash left of the last commit, and whether anything of it is seen.
        let block = BLOCK_BYTES;
        type Damage = fn(&mut [u8]);
        let damages: [(&str, Damage, bool); 6] = [
            ("all zeros", |commit| commit.fill(0), false),
            ("first block missing", |commit| commit[..BLOCK_BYTES].fill(0), true),
            ("last block missing", |commit| commit[12 * BLOCK_BYTES..13 * BLOCK_BYTES].fill(0), true),
            ("one bit of the header", |commit| commit[20] ^= 1, true),
            ("one bit of an entry", |commit| commit[COMMIT_HEADER_BYTES + 9] ^= 1, true),
            ("one bit of a payload", |commit| commit[30_000] ^= 1, true),
        ];
        for (case, damage, is_seen) in damages {
            let Filled { store, staged, last } = filled().await;
            let (_, found) = commits(&store, last);
            let (mark_at, mark) = found[found.len() - 1];
            let (at, commit) = found[found.len() - 2];
            assert!(mark.is_mark() && commit.commit_bytes() == 13 * block);
            zero(&store, last, mark_at, block);
            store.edit(&file_name::segment(last), |bytes| damage(&mut bytes[at..at + commit.commit_bytes()]));
            let (log, recovered, seen, _) = open(&store, options()).await;
            assert_eq!(seen.len(), staged.len() - 1, "{case}");
            assert_eq!(recovered.last_lsn, commit.lsn - 1, "{case}");
            check(&log, &seen, &staged, commit.lsn - 1, case).await;
            match recovered.torn {
                Some(torn) => {
                    assert!(is_seen, "{case}: {torn:?}");
                    assert_eq!((torn.path, torn.position), (file_name::segment(last), at as u64), "{case}");
                    assert!(
                        torn.bytes >= 12 * block as u64 && torn.bytes <= 13 * block as u64,
                        "{case}: {}",
                        torn.bytes
                    );
                    assert_eq!(torn.reason == StopReason::Zeros, case == "first block missing", "{case}");
                }
                None => assert!(!is_seen, "{case}"),
            }
            // The log goes on over what is left of it.
            let mut client = Client::new(log.clone());
            client.create().await.expect("staged");
            client.settle().await.expect("durable");
            log.stop().await;
            let (log, _, again, _) = open(&store, options()).await;
            assert_eq!(again.len(), seen.len() + 1, "{case}");
            log.stop().await;
        }
    });
}

#[test]
fn c4_damage_before_a_later_commit_is_refused() {
    run(async {
        for number in [2, 3] {
            let count = commits(&filled().await.store, number).1.len();
            for index in [0, count / 2, count - 2] {
                for zeros in [false, true] {
                    let Filled { store, last, .. } = filled().await;
                    assert_eq!(last, 3);
                    let (_, found) = commits(&store, number);
                    let (at, commit) = found[index];
                    match zeros {
                        true => zero(&store, number, at, commit.commit_bytes()),
                        false => flip(&store, number, at + 5000),
                    }
                    if number < last {
                        // Its footer would hide it: reads and `thalweg verify` find such damage.
                        let trailer_at = store.bytes(&file_name::segment(number)).len() - BLOCK_BYTES;
                        zero(&store, number, trailer_at, BLOCK_BYTES);
                    }
                    let case = format!("commit {index} of segment {number}, zeros: {zeros}");
                    assert_eq!(
                        refused(&store, &case).await,
                        (file_name::segment(number), at as u64),
                        "{case}"
                    );
                }
            }
        }
    });
}

#[test]
fn c4_a_mark_turns_rot_of_the_last_data_into_damage() {
    run(async {
        let Filled { store, last, .. } = filled().await;
        let (_, found) = commits(&store, last);
        let (at, _) = found[found.len() - 2];
        flip(&store, last, at + 30_000);
        assert_eq!(refused(&store, "mark present").await, (file_name::segment(last), at as u64));
    });
}

#[test]
fn c5_a_commit_out_of_order_is_refused() {
    run(async {
        let Filled { store, last, .. } = filled().await;
        let (_, found) = commits(&store, last);
        let (end_at, mark) = found[found.len() - 1];
        // A copy of an old commit where the next one is due.
        let (old_at, old) = found[1];
        store.edit(&file_name::segment(last), |bytes| {
            let copied = bytes[old_at..old_at + old.commit_bytes()].to_vec();
            let next_at = end_at + mark.commit_bytes();
            bytes[next_at..next_at + copied.len()].copy_from_slice(&copied);
        });
        let position = (end_at + mark.commit_bytes()) as u64;
        assert_eq!(refused(&store, "old commit").await, (file_name::segment(last), position));
    });
}

#[test]
fn inherited_segments_are_replayed_and_never_appended_to() {
    run(async {
        let old = filled().await;
        let store = SimulatedStore::new();
        let mut list = SegmentList::default();
        for number in 1..=old.last + 1 {
            let listed = Listed::inherited(number, 7, HashRange::ALL);
            store
                .write_whole(&listed.name, old.store.bytes(&file_name::segment(number)))
                .await
                .expect("linked");
            list.segments.push(listed);
        }
        store.sync_dir().await.expect("synced");
        list.write(&store).await.expect("written");
        let options = LogOptions { log_id: 9, ..options() };
        let mut added = Vec::new();
        for round in 0..3 {
            let (log, recovered, seen, _) = open(&store, options.clone()).await;
            assert_eq!(recovered.segments, old.last + u32::from(round > 0));
            assert_eq!(recovered.from_footers, old.last - 1, "the last one was not sealed");
            let expected: Vec<_> = old.staged.iter().chain(&added).cloned().collect();
            assert_eq!(seen.len(), expected.len());
            check(&log, &seen, &expected, u64::MAX, "inherited").await;
            let mut client = Client::new(log.clone());
            client.create().await.expect("staged");
            client.append(1, 1000).await.expect("staged");
            client.settle().await.expect("durable");
            added.append(&mut client.staged);
            log.stop().await;
        }
        for number in 1..=old.last + 1 {
            let linked = store.bytes(&file_name::inherited_segment(number, 7));
            assert!(linked == old.store.bytes(&file_name::segment(number)), "segment {number} is unchanged");
        }
    });
}

#[test]
fn opening_writes_nothing_to_segments() {
    run(async {
        let filled = filled().await;
        let before = filled.store.operations();
        let mut visit = |_: &Event<'_>, _: EventContext| {};
        let store = std::rc::Rc::new(filled.store.clone());
        let (_log, _) = Log::open(store, options(), &mut visit).await.expect("opens");
        assert_eq!(filled.store.operations(), before, "a log that is whole is not touched");
    });
}
