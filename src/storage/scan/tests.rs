//! What the commit builder writes is accepted whole; anything else is refused, each bit of it.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::storage::codec::meta_bytes_max;
use crate::storage::commit::{CommitBuilder, entry_bytes_max};
use crate::storage::event::{Event, Payload, Place};
use crate::storage::footer::FooterBuilder;
use crate::storage::format::SegmentHeader;
use crate::storage::testing::{Owned, any_owned, assert_same, plain};

const NONCE: u64 = 0x0123_4567_89ab_cdef;

fn footer() -> FooterBuilder {
    FooterBuilder::new(&SegmentHeader {
        segment_number: 1,
        log_id: 1,
        epoch: 1,
        first_lsn: 1,
        nonce: NONCE,
        segment_bytes: 1 << 20,
        created_ms: 0,
        settled: None,
    })
}

/// Builds a commit in a buffer full of old bytes; payloads are put in pieces of `piece` bytes.
fn build(lsn: u64, events: &[Owned], piece: usize) -> Vec<u8> {
    let room: usize = events.iter().map(|owned| owned.payload_bytes() + 1000).sum();
    let mut buf = vec![0x5a; room + 2 * BLOCK_BYTES];
    let mut footer = footer();
    let mut commit = CommitBuilder::new(NONCE, lsn, 77);
    for owned in events {
        let payload = owned.payload();
        let before = commit.used();
        let fill = |writer: &mut crate::storage::commit::PayloadWriter<'_>| {
            payload.chunks(piece.max(1)).for_each(|bytes| writer.put(bytes));
            assert_eq!(writer.remaining(), 0);
        };
        let (pushed, most) = match (owned.event(), owned) {
            (Some(event), _) => {
                let pushed = commit.push(&mut buf, &mut footer, &event, |index| index, payload.len(), fill);
                (pushed, entry_bytes_max(meta_bytes_max(&event), payload.len()))
            }
            (None, Owned::Chunk(lineage, bytes)) => {
                let pushed = commit.push_chunk(&mut buf, &mut footer, *lineage, *bytes, fill);
                (pushed, entry_bytes_max(crate::storage::codec::CHUNK_META_BYTES_MAX, *bytes))
            }
            _ => unreachable!("only a chunk is no event"),
        };
        assert!(
            commit.used() - before <= most,
            "an entry of {} bytes, {most} announced",
            commit.used() - before
        );
        assert_eq!(pushed.payload_at as usize + payload.len(), commit.used());
        assert_eq!(pushed.payload_at as usize - pushed.back as usize, before);
        assert_eq!(buf[pushed.payload_at as usize..][..payload.len()], payload);
    }
    let bytes =
        if events.is_empty() { commit.finish_mark(&mut buf, &mut footer) } else { commit.finish(&mut buf) };
    assert!(buf[bytes..].iter().take(1000).all(|byte| *byte == 0x5a), "nothing is written behind the commit");
    buf.truncate(bytes);
    buf
}

fn verdict(bytes: &[u8]) -> Result<(), StopReason> {
    parse_commit(bytes, NONCE, Some(9)).map(|_| ())
}

proptest! {
    #[test]
    fn commits_come_back(
        events in vec(any_owned(), 0..12),
        piece in prop_oneof![1..1000usize, 1..100_000usize],
    ) {
        let mut bytes = build(9, &events, piece);
        let commit_bytes = bytes.len();
        bytes.extend_from_slice(&[0xaa; 100]);
        let commit = parse_commit(&bytes, NONCE, Some(9)).expect("what was built is accepted");
        prop_assert_eq!(commit.commit_bytes(), commit_bytes);
        prop_assert_eq!(commit.context(), EventContext { lsn: 9, time_ms: 77, hashes: HashRange::ALL });
        prop_assert_eq!(commit.header.is_mark(), events.is_empty());
        prop_assert_eq!(commit.raw_entries().count(), events.len());
        let mut scratch = DecodeScratch::default();
        for (owned, raw) in events.iter().zip(commit.raw_entries()) {
            prop_assert_eq!(raw.payload, &owned.payload()[..]);
            match raw.decode(5, 8192, &|number| Some(number), &mut scratch).expect("decodes") {
                Entry::Event(read) => {
                    let place = match &read {
                        Event::Appended(append) => match append.payload {
                            Payload::Here(place) => place,
                            Payload::Parts(_) => Place::default(),
                        },
                        _ => Place::default(),
                    };
                    assert_same(&owned.event().expect("an event"), &read, place);
                    if owned.payload_bytes() > 0 {
                        let at = place.position as usize - 8192;
                        prop_assert_eq!(&bytes[at..at + raw.payload.len()], raw.payload);
                        prop_assert_eq!(at - place.back as usize, raw.at as usize);
                    }
                }
                Entry::Chunk { part, .. } => prop_assert_eq!(part.len as usize, raw.payload.len()),
            }
        }
    }

    #[test]
    fn a_range_of_a_payload_is_verified_alone(
        len in 1..300_000u32,
        from in any::<prop::sample::Index>(),
        count in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
    ) {
        let owned = plain(1, 0, len);
        let mut bytes = build(9, std::slice::from_ref(&owned), 1 << 20);
        let from = from.index(len as usize) as u32;
        let count = count.index((len - from) as usize) as u32 + 1;
        let raw = parse_commit(&bytes, NONCE, None).expect("valid").raw_entries().next().expect("one entry");
        let payload_at = raw.payload.as_ptr() as usize - bytes.as_ptr() as usize;
        let table_at = raw.at as usize + ENTRY_HEADER_BYTES;
        let range = verified_range(len, from, count);
        prop_assert!(range.from <= from && range.to >= from + count && range.to <= len);
        let check = |bytes: &[u8]| {
            let table = &bytes[table_at..table_at + table_bytes(len)];
            let payload = &bytes[payload_at + range.from as usize..payload_at + range.to as usize];
            verify_payload(Seed::of(NONCE), table, range.first_chunk, payload)
        };
        prop_assert_eq!(check(&bytes), Ok(()));
        let flip = from as usize + flip.index(count as usize);
        bytes[payload_at + flip] ^= 0x10;
        prop_assert_eq!(check(&bytes), Err(flip / CHECKSUM_CHUNK_BYTES));
    }
}

#[test]
fn every_flipped_bit_of_a_commit_is_noticed() {
    let chunk = Owned::Chunk(3, 900);
    let events = [plain(1, 0, 300), Owned::Deleted(1 << 40), chunk, plain(7, 300, 2500), plain(1, 300, 700)];
    for events in [&events[..], &[]] {
        let mut bytes = build(9, events, 100);
        assert_eq!(verdict(&bytes), Ok(()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                verdict(&bytes).is_err(),
                "bit {bit} of {} entries may be flipped unnoticed",
                events.len()
            );
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// A block that was not written, or holds what was there before: what a torn write leaves.
#[test]
fn every_missing_block_is_noticed() {
    let events: Vec<Owned> = (0..40).map(|index| plain(1 + index % 3, index * 1000, 900)).collect();
    let whole = build(9, &events, 1 << 20);
    for at in (0..whole.len()).step_by(BLOCK_BYTES) {
        for old in [0, 0x5a] {
            let mut torn = whole.clone();
            torn[at..at + BLOCK_BYTES].fill(old);
            assert!(verdict(&torn).is_err(), "the block at {at} is {old:#x}");
        }
    }
}

#[test]
fn stops_are_told_apart() {
    let bytes = build(9, &[plain(1, 0, 100), plain(1, 100, 70_000)], 1 << 20);
    let first = COMMIT_HEADER_BYTES;
    let second = first + 16 + 4 + 2 + 100;
    let payload = second + 16 + 8 + 2;
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        verdict(&bytes)
    };
    assert_eq!(flipped(0), Err(StopReason::Magic));
    assert_eq!(flipped(8), Err(StopReason::Nonce));
    assert_eq!(flipped(16), Err(StopReason::HeaderChecksum));
    assert_eq!(flipped(first + 4), Err(StopReason::EntryChecksum { at: first as u32 }));
    assert_eq!(flipped(second + 6), Err(StopReason::EntryChecksum { at: second as u32 }));
    assert_eq!(flipped(second + 20), Err(StopReason::EntryChecksum { at: second as u32 }));
    assert_eq!(flipped(payload), Err(StopReason::PayloadChecksum { at: second as u32 }));
    assert_eq!(flipped(payload + 65_536), Err(StopReason::PayloadChecksum { at: second as u32 }));
    assert_eq!(flipped(second + 15), Err(StopReason::EntryBounds { at: second as u32 }));
    assert_eq!(flipped(bytes.len() - 1), Err(StopReason::Padding));
    assert_eq!(verdict(&[0; 4096]), Err(StopReason::Zeros));
    assert_eq!(verdict(&bytes[..63]), Err(StopReason::Short { commit_bytes: 64 }));
    assert_eq!(verdict(&bytes[..4096]), Err(StopReason::Short { commit_bytes: bytes.len() }));
    assert_eq!(parse_commit(&bytes, NONCE, Some(8)).map(|_| ()), Err(StopReason::WrongLsn { found: 9 }));
    assert_eq!(parse_commit(&bytes, NONCE ^ 1, None).map(|_| ()), Err(StopReason::Nonce));
    assert_eq!(parse_commit(&bytes, NONCE, None).map(|_| ()), Ok(()));
}

/// A header that is valid by itself but counts more bytes than its entries have, or fewer.
#[test]
fn entries_must_fill_the_body() {
    let bytes = build(9, &[plain(1, 0, 100), plain(1, 100, 50)], 1 << 20);
    let header = CommitHeader::parse(&bytes, NONCE).expect("valid");
    for (body_bytes, entry_count) in [(1, 0), (-1, 0), (0, -1), (0, 1)] {
        let mut bytes = bytes.clone();
        let body_bytes = header.body_bytes.wrapping_add_signed(body_bytes);
        let entry_count = header.entry_count.wrapping_add_signed(entry_count);
        CommitHeader { body_bytes, entry_count, ..header }.encode(&mut bytes);
        let found = verdict(&bytes);
        assert!(
            matches!(found, Err(StopReason::EntryBounds { .. })),
            "{body_bytes} {entry_count}: {found:?}"
        );
    }
}

/// Whole entries of one commit inside another: each matches its own checksum, together they are not what was
/// written.
#[test]
fn entries_of_another_commit_are_noticed() {
    let ours = build(9, &[plain(1, 0, 100), plain(2, 0, 100)], 1 << 20);
    let theirs = build(9, &[plain(3, 0, 100), plain(2, 0, 100)], 1 << 20);
    let entry = COMMIT_HEADER_BYTES..COMMIT_HEADER_BYTES + 16 + 4 + 2 + 100;
    let mut mixed = ours.clone();
    mixed[entry.clone()].copy_from_slice(&theirs[entry.clone()]);
    assert_eq!(verdict(&mixed), Err(StopReason::EntriesChecksum));
    let mut swapped = ours.clone();
    swapped.copy_within(entry.end..entry.end + entry.len(), entry.start);
    swapped[entry.end..entry.end + entry.len()].copy_from_slice(&ours[entry.clone()]);
    assert_eq!(verdict(&swapped), Err(StopReason::EntriesChecksum));
}

#[test]
fn later_commits_are_found() {
    let commit = build(9, &[plain(1, 0, 5000)], 1 << 20);
    let mut bytes = vec![0xee; 3 * BLOCK_BYTES];
    bytes.extend_from_slice(&commit);
    bytes.extend_from_slice(&[0; BLOCK_BYTES]);
    assert_eq!(find_commit(&bytes, NONCE, 9), Some(3 * BLOCK_BYTES));
    assert_eq!(find_commit(&bytes, NONCE, 1), Some(3 * BLOCK_BYTES));
    assert_eq!(find_commit(&bytes, NONCE, 10), None);
    assert_eq!(find_commit(&bytes, NONCE ^ 1, 1), None);
    // The header alone is the evidence, whatever became of the body.
    bytes[4 * BLOCK_BYTES] ^= 1;
    assert_eq!(find_commit(&bytes, NONCE, 9), Some(3 * BLOCK_BYTES));
    bytes[3 * BLOCK_BYTES + 20] ^= 1;
    assert_eq!(find_commit(&bytes, NONCE, 9), None);
    // A commit that is not at the start of a block is payload.
    let mut shifted = vec![0; 512];
    shifted.extend_from_slice(&commit);
    shifted.resize(4 * BLOCK_BYTES, 0);
    assert_eq!(find_commit(&shifted, NONCE, 1), None);
}

/// Around where checksums begin anew, and where what was put is checksummed.
#[test]
fn the_pieces_of_a_payload_do_not_show() {
    let edges = [0, 24 * 1024, 64 * 1024, 88 * 1024, 128 * 1024, 200_000];
    for bytes in edges.into_iter().flat_map(|edge: usize| [edge.saturating_sub(1), edge, edge + 1]) {
        let events = [Owned::Chunk(7, bytes)];
        let whole = build(9, &events, usize::MAX);
        assert_eq!(verdict(&whole), Ok(()), "{bytes} bytes at once");
        for piece in [1, 255, 256, 4095, 24 * 1024 - 1, 24 * 1024, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1] {
            assert!(build(9, &events, piece) == whole, "{bytes} bytes in pieces of {piece}");
        }
    }
}

#[test]
#[should_panic(expected = "a payload is put completely")]
fn a_payload_that_is_not_put_completely_is_a_defect() {
    let event = Event::Appended(crate::storage::event::Appended {
        lineage: 1,
        start: 0,
        lengths: crate::storage::event::Lengths::Uniform { len: 10, count: 1 },
        producer: None,
        stream_seq: None,
        closed: false,
        payload: Payload::Here(Place::default()),
    });
    let mut buf = vec![0; 4096];
    CommitBuilder::new(NONCE, 1, 1).push(
        &mut buf,
        &mut footer(),
        &event,
        |index| index,
        10,
        |writer| writer.put(b"123"),
    );
}

/// The bytes of version 1: a commit with one append. A change here is a new version of the format.
#[test]
fn golden_commit() {
    let bytes = build(9, &[plain(300, 1000, 5)], 1 << 20);
    let hex: String = bytes[..96].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "5448414c434d5431efcdab896745230109000000000000004d000000000000001d00000001000000",
            "010000000000000034d3018e0000000000000000ed34df59c7e69ff7021000000400000005000000",
            "4895f041ac02e8076520dc9854000000",
        )
    );
    assert_eq!(bytes.len(), BLOCK_BYTES);
}
