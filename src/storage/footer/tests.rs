//! A footer replays exactly what a scan of the commits replays, whatever the page boundaries; damage is
//! noticed.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::limits::BLOCK_BYTES;
use crate::storage::commit::CommitBuilder;
use crate::storage::scan::parse_commit;
use crate::storage::testing::{Owned, any_run, plain};

const NONCE: u64 = 0xfeed_0000_1111_2222;

fn header() -> SegmentHeader {
    SegmentHeader {
        segment_number: 4,
        log_id: 1,
        epoch: 1,
        first_lsn: 10,
        nonce: NONCE,
        segment_bytes: 1 << 28,
        created_ms: 1000,
        settled: None,
    }
}

/// A segment in memory, as the log writes it: commits from the position 4096 on.
struct Segment {
    commits: Vec<u8>,
    footer: FooterBuilder,
}

impl Segment {
    fn write(commits: &[(Vec<Owned>, u64)]) -> Segment {
        let mut segment = Segment { commits: Vec::new(), footer: FooterBuilder::new(&header()) };
        for (index, (events, time_ms)) in commits.iter().enumerate() {
            let mut commit = CommitBuilder::new(NONCE, 10 + index as u64, *time_ms);
            assert_eq!(segment.footer.commit_position() as usize, BLOCK_BYTES + segment.commits.len());
            let room: usize = events.iter().map(|owned| 2 * owned.payload_bytes() + 1000).sum();
            let mut buf = vec![0; room + 2 * BLOCK_BYTES];
            let bound = segment.footer.bytes_max(4 << 20);
            for owned in events {
                let payload = owned.payload();
                match (owned.event(), owned) {
                    (Some(event), _) => commit.push(
                        &mut buf,
                        &mut segment.footer,
                        &event,
                        |index| index,
                        payload.len(),
                        |writer| writer.put(&payload),
                    ),
                    (None, Owned::Chunk(lineage, _)) => {
                        commit.push_chunk(&mut buf, &mut segment.footer, *lineage, payload.len(), |writer| {
                            writer.put(&payload)
                        })
                    }
                    _ => unreachable!("only a chunk is no event"),
                };
            }
            let bytes = match events.is_empty() {
                true => commit.finish_mark(&mut buf, &mut segment.footer),
                false => commit.finish(&mut buf),
            };
            assert!(segment.footer.bytes_max(0) <= bound, "the bound holds for a commit of {bytes} bytes");
            segment.commits.extend_from_slice(&buf[..bytes]);
        }
        segment
    }

    /// What a scan replays, each entry as text; also through a footer that the scan collects.
    fn scan(&self) -> (Vec<String>, FooterBuilder) {
        let (mut seen, mut at) = (Vec::new(), 0);
        let mut scratch = DecodeScratch::default();
        let mut again = FooterBuilder::new(&header());
        while at < self.commits.len() {
            let commit = parse_commit(&self.commits[at..], NONCE, None).expect("valid");
            again.commit(commit.header.lsn, commit.header.time_ms);
            for raw in commit.raw_entries() {
                let entry = raw.decode(6, (BLOCK_BYTES + at) as u32, &|number| Some(number), &mut scratch);
                let entry = entry.expect("decodes");
                again.scanned(&raw, &entry);
                seen.push(format!("{entry:?} {:?}", commit.context()));
            }
            at += commit.commit_bytes();
        }
        (seen, again)
    }
}

fn replay(footer: &[u8], trailer: &Trailer) -> Result<Vec<String>, FooterProblem> {
    let mut seen = Vec::new();
    let mut scratch = DecodeScratch::default();
    read_footer(footer, trailer, 6, &|number| Some(number), &mut scratch, &mut |entry, context| {
        seen.push(format!("{entry:?} {context:?}"));
    })?;
    Ok(seen)
}

proptest! {
    #[test]
    fn a_footer_replays_what_a_scan_replays(commits in vec((any_run(), any::<u64>()), 0..6)) {
        let segment = Segment::write(&commits);
        let (scanned, again) = segment.scan();
        let bound = segment.footer.bytes_max(0);
        let (footer, trailer) = segment.footer.finish();
        prop_assert_eq!(replay(&footer, &trailer).expect("valid"), scanned);
        prop_assert_eq!(again.finish(), (footer.clone(), trailer), "a scan collects the same footer");
        prop_assert!(footer.len() + TRAILER_BYTES <= bound);
        prop_assert_eq!(trailer.footer_position as usize, BLOCK_BYTES + segment.commits.len());
        prop_assert_eq!(trailer.last_lsn, 9 + commits.len() as u64);
        let events = || commits.iter().flat_map(|(events, _)| events).filter_map(Owned::event);
        let records = events().map(|event| match event {
            Event::Appended(append) => append.lengths.count(),
            _ => 0,
        });
        prop_assert_eq!(trailer.record_count, records.sum::<u64>());
        let lineages = events().filter_map(|event| event.issued_id());
        prop_assert_eq!(trailer.highest_lineage, lineages.max().unwrap_or(0));
    }
}

/// Enough small appends for several pages, by several streams, some of which follow and some not.
fn many() -> Vec<(Vec<Owned>, u64)> {
    let mut ends = [0u64; 5];
    let mut append = |index: usize| {
        let stream = (index / 3) % 5;
        let len = 1 + index as u32 % 90;
        let event = plain(stream as u64 + (1 << 30), ends[stream], len);
        ends[stream] += u64::from(len);
        event
    };
    (0..100).map(|commit| ((0..1000).map(|index| append(commit * 1000 + index)).collect(), 5)).collect()
}

#[test]
fn many_pages_replay_and_each_is_needed() {
    let segment = Segment::write(&many());
    let (scanned, _) = segment.scan();
    let (footer, trailer) = segment.footer.finish();
    assert!(trailer.page_count >= 3, "{} pages", trailer.page_count);
    assert_eq!((trailer.entry_count, trailer.record_count), (100_000, 100_000));
    assert_eq!(replay(&footer, &trailer).expect("valid"), scanned);

    let page = PageHeader::page_bytes(&footer, NONCE).expect("the first page");
    let without_first = replay(&footer[page..], &trailer);
    assert_eq!(without_first, Err(FooterProblem::Order { expected: 0, found: 1 }));
    let last = footer.len() - BLOCK_BYTES;
    let cut = replay(&footer[..last], &trailer);
    assert_eq!(cut, Err(FooterProblem::Page(BadStructure::Short)));
    let without_last = replay(&footer[..page], &trailer);
    assert_eq!(without_last, Err(FooterProblem::Order { expected: trailer.page_count, found: 1 }));
    let more = Trailer { entry_count: 100_001, ..trailer };
    assert_eq!(replay(&footer, &more), Err(FooterProblem::Count { expected: 100_001, found: 100_000 }));
}

/// A bad page in the middle: the entries before it were handed out, and the reader says how many.
#[test]
fn a_bad_page_leaves_the_number_of_entries_before_it() {
    let segment = Segment::write(&many());
    let (scanned, _) = segment.scan();
    let (mut footer, _) = segment.footer.finish();
    let page = PageHeader::page_bytes(&footer, NONCE).expect("the first page");
    footer[page + 5000] ^= 1;
    let mut reader = PageReader::new(NONCE, 6);
    let mut seen = Vec::new();
    let mut visit = |entry: &Entry<'_>, context: EventContext| seen.push(format!("{entry:?} {context:?}"));
    let mut scratch = DecodeScratch::default();
    let index_of = |number: u32| Some(number);
    assert_eq!(reader.page_bytes(&footer[..64]), Ok(page));
    assert_eq!(reader.page(&footer, &index_of, &mut scratch, &mut visit), Ok(page));
    let bad = reader.page(&footer[page..], &index_of, &mut scratch, &mut visit);
    assert_eq!(bad, Err(FooterProblem::Page(BadStructure::Checksum)));
    let entries = reader.entries_seen() as usize;
    assert_eq!(seen, scanned[..entries]);
    assert!(entries > 1000 && entries < scanned.len(), "{entries} entries in the first page");
}

#[test]
fn a_record_longer_than_a_page_has_its_own() {
    let lengths: Vec<u32> = (0..400_000).map(|index| 1 + index % 2).collect();
    let append = |lineage| {
        Owned::Appended(crate::storage::testing::Append {
            lineage,
            start: 0,
            lengths: lengths.clone(),
            producer: None,
            stream_seq: None,
            closed: false,
            parts: None,
        })
    };
    let commits = [(vec![plain(1, 0, 5), append(2), plain(1, 5, 5)], 1), (vec![append(3)], 2)];
    let segment = Segment::write(&commits);
    let (scanned, _) = segment.scan();
    let bound = segment.footer.bytes_max(0);
    let (footer, trailer) = segment.footer.finish();
    assert!(footer.len() + TRAILER_BYTES <= bound);
    assert_eq!(replay(&footer, &trailer).expect("valid"), scanned);
    assert!(trailer.page_count >= 4, "{} pages", trailer.page_count);
}

/// A plain append that goes on in its stream costs five bytes, in another stream about a dozen.
#[test]
fn plain_appends_are_small() {
    let one: Vec<Owned> = (0..10_000).map(|index| plain(1 << 20, index * 256, 256)).collect();
    let mut segment = Segment::write(&[]);
    for (events, most) in [(one, 6), (many().remove(0).0, 13)] {
        segment.footer = FooterBuilder::new(&header());
        let count = events.len();
        let footer = Segment::write(&[(events, 1)]).footer.finish().0;
        let per_entry = (footer.len() - PAGE_HEADER_BYTES) / count;
        assert!(per_entry < most, "{per_entry} bytes an entry");
    }
}

/// The bytes of version 1: a creation, two appends of which the second follows, a mark. A change is a new
/// version.
#[test]
fn golden_footer() {
    let commits =
        [(vec![plain(300, 1000, 5), plain(300, 1005, 6), Owned::Deleted(300)], 1003), (Vec::new(), 1001)];
    let (footer, trailer) = Segment::write(&commits).footer.finish();
    let hex: String = footer[..100].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "5448414c46545231222211110000edfe000000000100000018000000030000000900000000000000",
            "e803000000000000001000000000000000000000b6fa5b8100010602100504ac02e8078210060003",
            "000002ac02000103000000000000000000000000",
        )
    );
    assert_eq!((trailer.footer_position, trailer.footer_bytes), (4096 * 3, 4096));
}

#[test]
fn an_empty_footer_has_no_pages() {
    let (footer, trailer) = FooterBuilder::new(&header()).finish();
    assert_eq!((footer.len(), trailer.page_count, trailer.last_lsn), (0, 0, 9));
    assert_eq!(replay(&footer, &trailer), Ok(Vec::new()));
}

#[test]
fn records_that_make_no_sense_are_refused() {
    let page = |body: &[u8], entry_count: u32| {
        let mut page = vec![0; BLOCK_BYTES];
        page[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + body.len()].copy_from_slice(body);
        let header = PageHeader {
            index: 0,
            blocks: 1,
            body_bytes: body.len() as u32,
            entry_count,
            lsn: 9,
            time_ms: 0,
            position: 4096,
        };
        header.encode(&mut page, NONCE);
        let mut reader = PageReader::new(NONCE, 0);
        reader.page(&page, &|_| None, &mut DecodeScratch::default(), &mut |_, _| {})
    };
    let plain = [2, 16, 5, 2, 1, 0];
    assert_eq!(page(&[&[0, 1, 0], &plain[..]].concat(), 1), Ok(BLOCK_BYTES));
    let table: [(&[u8], u32, FooterProblem); 8] = [
        (&plain, 2, FooterProblem::Count { expected: 2, found: 1 }),
        (&[130, 16, 5, 0], 1, FooterProblem::Record(DecodeError::UnknownKind(130))),
        (&[131, 0, 0, 1, 1], 1, FooterProblem::Record(DecodeError::UnknownKind(131))),
        (&[13, 0, 0, 0], 1, FooterProblem::Record(DecodeError::UnknownKind(13))),
        (&[2, 16, 5, 3, 1, 0], 1, FooterProblem::Record(DecodeError::Cut)),
        (&[2, 16, 5, 3, 1, 0, 0], 1, FooterProblem::Record(DecodeError::TooLong)),
        (&[2, 16, 0, 2, 1, 0], 1, FooterProblem::Record(DecodeError::Lengths)),
        (&[0, 1], 0, FooterProblem::Record(DecodeError::Cut)),
    ];
    for (body, entry_count, expected) in table {
        assert_eq!(page(body, entry_count), Err(expected), "{body:?}");
    }
}
