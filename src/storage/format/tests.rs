//! Golden bytes, flipped bits, and the comparison with `storage-format.md`.

use super::*;

fn header() -> SegmentHeader {
    SegmentHeader {
        segment_number: 3,
        log_id: 0x1122_3344_5566_7788,
        epoch: 5,
        first_lsn: 42,
        nonce: 0xdead_beef_cafe_f00d,
        segment_bytes: 1 << 28,
        created_ms: 1_700_000_000_000,
        settled: None,
    }
}

fn commit_header() -> CommitHeader {
    CommitHeader {
        nonce: 0xdead_beef_cafe_f00d,
        lsn: 42,
        time_ms: 1_700_000_000_123,
        body_bytes: 5000,
        entry_count: 2,
        flags: 0,
        entries_checksum: 0x0102_0304,
    }
}

fn trailer() -> Trailer {
    Trailer {
        segment_number: 3,
        nonce: 0xdead_beef_cafe_f00d,
        footer_position: 8192,
        footer_bytes: 4096,
        first_lsn: 42,
        last_lsn: 43,
        highest_lineage: 7,
        entry_count: 9,
        record_count: 10,
        page_count: 1,
    }
}

fn page_header() -> PageHeader {
    PageHeader {
        index: 1,
        blocks: 1,
        body_bytes: 100,
        entry_count: 3,
        lsn: 41,
        time_ms: 1_700_000_000_000,
        position: 4096,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of version 1. A change here is a new version of the format, not a new expectation.
#[test]
fn golden_bytes() {
    let nonce = header().nonce;
    let mut block = vec![0xff; BLOCK_BYTES];
    header().encode(&mut block);
    assert_eq!(
        hex(&block[..72]),
        concat!(
            "5448414c534547310100000003000000887766554433221105000000000000002a00000000000000",
            "0df0fecaefbeadde00000010000000000068e5cf8b0100000000000000000000",
        )
    );
    assert_eq!(hex(&block[4092..]), "464c3e7f");

    let mut commit = vec![0xff; BLOCK_BYTES];
    commit_header().encode(&mut commit);
    assert_eq!(
        hex(&commit[..64]),
        concat!(
            "5448414c434d54310df0fecaefbeadde2a000000000000007b68e5cf8b0100008813000002000000",
            "02000000000000000403020100000000000000002856e9e2",
        )
    );

    trailer().encode(&mut block);
    assert_eq!(
        hex(&block[..96]),
        concat!(
            "5448414c454e443101000000030000000df0fecaefbeadde00200000000000000010000000000000",
            "2a000000000000002b00000000000000070000000000000009000000000000000a00000000000000",
            "01000000000000000000000000000000",
        )
    );
    assert_eq!(hex(&block[4092..]), "c53dc383");

    assert_eq!(
        hex(&page()[..64]),
        concat!(
            "5448414c465452310df0fecaefbeadde010000000100000064000000030000002900000000000000",
            "0068e5cf8b010000001000000000000000000000e426637f",
        )
    );

    let mut entry = [0xff; ENTRY_HEADER_BYTES];
    let header = EntryHeader { checksum: 1, kind: 2, flags: 3, reserved: 0, meta_bytes: 4, payload_bytes: 5 };
    header.encode(&mut entry);
    assert_eq!(hex(&entry), "01000000020300000400000005000000");
    assert_eq!(Seed::of(nonce).checksum(b"123456789"), 0xe7e7da4e);
}

/// A page of one block with 100 bytes of records, all 0xab.
fn page() -> Vec<u8> {
    let mut page = vec![0; BLOCK_BYTES];
    page[64..164].fill(0xab);
    page_header().encode(&mut page, header().nonce);
    page
}

#[test]
fn structures_come_back() {
    let nonce = header().nonce;
    let mut block = vec![0xff; BLOCK_BYTES];
    header().encode(&mut block);
    assert_eq!(SegmentHeader::parse(&block), Ok(header()));
    trailer().encode(&mut block);
    assert_eq!(Trailer::parse(&block, nonce), Ok(trailer()));
    commit_header().encode(&mut block);
    assert_eq!(CommitHeader::parse(&block, nonce), Ok(commit_header()));
    let mark = CommitHeader { body_bytes: 0, entry_count: 0, flags: COMMIT_MARK, ..commit_header() };
    mark.encode(&mut block);
    assert_eq!(CommitHeader::parse(&block, nonce), Ok(mark));
    assert!(mark.is_mark() && !commit_header().is_mark());
    assert_eq!((mark.commit_bytes(), commit_header().commit_bytes()), (4096, 8192));
    let empty = Trailer { footer_bytes: 0, last_lsn: 41, page_count: 0, ..trailer() };
    empty.encode(&mut block);
    assert_eq!(Trailer::parse(&block, nonce), Ok(empty));
    assert_eq!(PageHeader::parse(&page(), nonce), Ok(page_header()));
    let entry = EntryHeader {
        checksum: 9,
        kind: 7,
        flags: 8,
        reserved: 6,
        meta_bytes: 70_000,
        payload_bytes: 1 << 31,
    };
    let mut bytes = [0; ENTRY_HEADER_BYTES];
    entry.encode(&mut bytes);
    assert_eq!(EntryHeader::parse(&bytes), Some(entry));
    assert_eq!(EntryHeader::parse(&bytes[..15]), None);
}

/// Calls `parse` with each single bit of `bytes` flipped; none may be accepted.
fn refuses_every_flip(bytes: &[u8], mut parse: impl FnMut(&[u8]) -> Result<(), BadStructure>) {
    assert_eq!(parse(bytes), Ok(()), "the bytes are valid to begin with");
    let mut flipped = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&flipped).is_err(), "bit {bit} may be flipped unnoticed");
        flipped[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_flipped_bit_of_a_structure_is_noticed() {
    let nonce = header().nonce;
    let mut block = vec![0; BLOCK_BYTES];
    header().encode(&mut block);
    refuses_every_flip(&block, |bytes| SegmentHeader::parse(bytes).map(|_| ()));
    trailer().encode(&mut block);
    refuses_every_flip(&block, |bytes| Trailer::parse(bytes, nonce).map(|_| ()));
    refuses_every_flip(&page(), |bytes| PageHeader::parse(bytes, nonce).map(|_| ()));
    commit_header().encode(&mut block);
    refuses_every_flip(&block[..64], |bytes| CommitHeader::parse(bytes, nonce).map(|_| ()));
}

/// Rewrites the checksum of a structure that fills a block, after a field was changed.
fn reseal(block: &mut [u8], seed: Option<Seed>) {
    let covered = &block[..BLOCK_CHECKSUM_AT];
    let checksum = seed.map_or_else(|| crc32c::crc32c(covered), |seed| seed.checksum(covered));
    put_u32(block, BLOCK_CHECKSUM_AT, checksum);
}

#[test]
fn segment_headers_are_refused_by_reason() {
    let mut good = vec![0; BLOCK_BYTES];
    header().encode(&mut good);
    let changed = |at: usize, value: u64, bytes: usize| {
        let mut block = good.clone();
        block[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        reseal(&mut block, None);
        SegmentHeader::parse(&block).expect_err("changed to something invalid")
    };
    let table = [
        (8, 2, 4, BadStructure::NewerVersion(2)),
        (8, 0, 4, BadStructure::Field("version")),
        (12, 0, 4, BadStructure::Field("segment_number")),
        (32, 0, 8, BadStructure::Field("first_lsn")),
        (40, 0, 8, BadStructure::Field("nonce")),
        (48, 4096, 8, BadStructure::Field("segment_bytes")),
        (48, (1 << 28) + 1, 8, BadStructure::Field("segment_bytes")),
        (48, 1 << 32, 8, BadStructure::Field("segment_bytes")),
        (64, 1, 8, BadStructure::Field("reserved")),
        (4088, 1, 4, BadStructure::Field("reserved")),
    ];
    for (at, value, bytes, expected) in table {
        assert_eq!(changed(at, value, bytes), expected, "{value} at {at}");
    }
    assert_eq!(SegmentHeader::parse(&vec![0; BLOCK_BYTES]), Err(BadStructure::Zeros));
    assert_eq!(SegmentHeader::parse(&vec![7; BLOCK_BYTES]), Err(BadStructure::Magic));
    assert_eq!(SegmentHeader::parse(&good[..4095]), Err(BadStructure::Short));
    good[4000] = 1;
    assert_eq!(SegmentHeader::parse(&good), Err(BadStructure::Checksum));
}

#[test]
fn trailers_are_refused_by_reason() {
    let nonce = header().nonce;
    let mut good = vec![0; BLOCK_BYTES];
    trailer().encode(&mut good);
    let table = [
        (8, 9, 4, BadStructure::NewerVersion(9)),
        (12, 0, 4, BadStructure::Field("segment_number")),
        (16, 1, 8, BadStructure::Nonce),
        (24, 0, 8, BadStructure::Field("footer_position")),
        (24, 4097, 8, BadStructure::Field("footer_position")),
        (32, 1, 8, BadStructure::Field("footer_bytes")),
        (40, 0, 8, BadStructure::Field("first_lsn")),
        (40, 45, 8, BadStructure::Field("first_lsn")),
        (84, 1, 4, BadStructure::Field("reserved")),
        (88, 1, 4, BadStructure::Field("reserved")),
    ];
    for (at, value, bytes, expected) in table {
        let mut block = good.clone();
        block[at..at + bytes].copy_from_slice(&u64::to_le_bytes(value)[..bytes]);
        reseal(&mut block, Some(Seed::of(nonce)));
        assert_eq!(Trailer::parse(&block, nonce), Err(expected), "{value} at {at}");
    }
    assert_eq!(Trailer::parse(&good, nonce ^ 1), Err(BadStructure::Checksum), "the seed is another one");
    assert_eq!(Trailer::parse(&vec![0; BLOCK_BYTES], nonce), Err(BadStructure::Zeros));
}

#[test]
fn commit_headers_are_refused_by_reason() {
    let nonce = header().nonce;
    let mut good = [0; COMMIT_HEADER_BYTES];
    commit_header().encode(&mut good);
    let table = [
        (16, 0, 8, BadStructure::Field("lsn")),
        (32, 31, 4, BadStructure::Field("entry_count")),
        (32, 4 << 20, 4, BadStructure::Field("body_bytes")),
        (36, 0, 4, BadStructure::Field("body_bytes")),
        (36, u64::from(u32::MAX), 4, BadStructure::Field("entry_count")),
        (40, 3, 4, BadStructure::Field("blocks")),
        (44, 2, 4, BadStructure::Field("flags")),
        (44, 1, 4, BadStructure::Field("flags")),
        (52, 1, 8, BadStructure::Field("reserved")),
    ];
    for (at, value, bytes, expected) in table {
        let mut header = good;
        header[at..at + bytes].copy_from_slice(&u64::to_le_bytes(value)[..bytes]);
        let checksum = Seed::of(nonce).checksum(&header[..HEADER_CHECKSUM_AT]);
        put_u32(&mut header, HEADER_CHECKSUM_AT, checksum);
        assert_eq!(CommitHeader::parse(&header, nonce), Err(expected), "{value} at {at}");
    }
    assert_eq!(CommitHeader::parse(&good, nonce ^ 1), Err(BadStructure::Nonce));
    assert_eq!(CommitHeader::parse(&good[..63], nonce), Err(BadStructure::Short));
    assert_eq!(CommitHeader::parse(&[0; 64], nonce), Err(BadStructure::Zeros));
    assert_eq!(CommitHeader::parse(&[1; 64], nonce), Err(BadStructure::Magic));
}

#[test]
fn kinds_and_their_numbers() {
    for number in 0..=u8::MAX {
        match Kind::from_u8(number) {
            Some(kind) => assert_eq!(kind as u8, number),
            None => assert!(number == 0 || number > Kind::ALL.len() as u8, "{number}"),
        }
    }
}

#[test]
fn sizes_of_entries() {
    assert_eq!([0, 1, 65536, 65537, 131072].map(chunk_count), [0, 1, 1, 2, 2]);
    assert_eq!(entry_back_bytes(7, 0), 23);
    assert_eq!(entry_back_bytes(7, 100), 27);
    assert_eq!(entry_bytes(7, 65537), 16 + 8 + 7 + 65537);
    assert_eq!([0, 1, 4096, 4097].map(block_round_up), [0, 4096, 4096, 8192]);
}

#[test]
fn zeros_are_recognised_everywhere() {
    let mut bytes = vec![0; 300];
    assert!(is_zero(&bytes) && is_zero(&[]));
    for at in 0..bytes.len() {
        bytes[at] = 1;
        assert!(!is_zero(&bytes), "byte {at}");
        bytes[at] = 0;
    }
}

const DOCUMENT: &str = include_str!("../../../storage-format.md");

/// Rows of the table under a heading of the document: the text of each cell.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let start =
        DOCUMENT.find(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let lines = DOCUMENT[start + 1..].lines().skip(1).skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn the_document_has_the_same_fields() {
    let structures: [(&str, &[Field], &[u8; 8]); 4] = [
        ("Segment header", &SEGMENT_HEADER_FIELDS, &SEGMENT_MAGIC),
        ("Commit header", &COMMIT_HEADER_FIELDS, &COMMIT_MAGIC),
        ("Page header", &PAGE_HEADER_FIELDS, &PAGE_MAGIC),
        ("Trailer", &TRAILER_FIELDS, &TRAILER_MAGIC),
    ];
    for (heading, fields, magic) in structures {
        compare(heading, fields);
        let magic = str::from_utf8(magic).expect("a magic number is text");
        assert!(table(heading)[0][3].contains(magic), "{heading}: magic");
    }
    compare("Entry header", &ENTRY_HEADER_FIELDS);
    for (kind, row) in Kind::ALL.iter().zip(table("Entry kinds")) {
        assert_eq!((row[0], row[1]), (&*(*kind as u8).to_string(), &*format!("`{}`", kind.name())));
    }
    assert_eq!(table("Entry kinds").len(), Kind::ALL.len());
    assert!(
        DOCUMENT.contains(&format!("format version {FORMAT_VERSION};")),
        "the document is of this version"
    );
}

fn compare(heading: &str, fields: &[Field]) {
    let rows = table(heading);
    assert_eq!(rows.len(), fields.len(), "{heading}: number of fields");
    for (row, field) in rows.iter().zip(fields) {
        let expected = [field.at.to_string(), field.bytes.to_string(), format!("`{}`", field.name)];
        assert_eq!(row[..3], expected, "{heading}");
    }
}
