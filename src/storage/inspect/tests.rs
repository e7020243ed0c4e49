//! A log made by hand, walked whole and with every kind of damage.

use std::io;
use std::path::Path;

use super::*;
use crate::storage::event::{Appended, Event, Lengths, Part, Payload, Place};
use crate::storage::footer::FooterBuilder;
use crate::storage::format::TRAILER_BYTES;
use crate::storage::testing::image::{Image, LOG, SEGMENT_BYTES, append, created, images, write_log};

mod engine;

/// What a walk of the log found, and all it showed as text and as JSON.
fn walk(dir: &Path) -> (Totals, Vec<Finding>, String, String) {
    let (mut findings, mut text, mut json) = (Vec::new(), Vec::new(), Vec::new());
    let mut sink = |row: &Row<'_>| -> io::Result<()> {
        if let Row::Finding(finding) = row {
            findings.push((*finding).clone());
        }
        write_text(&mut text, row)?;
        write_json(&mut json, row)
    };
    let mut walk = Walk::new(&mut sink);
    walk.log(dir, None).expect("nothing fails but what is found");
    let totals = walk.totals();
    let as_text = |bytes| String::from_utf8(bytes).expect("rows are text");
    (totals, findings, as_text(text), as_text(json))
}

fn walk_images(images: &[Image]) -> (Totals, Vec<Finding>) {
    let dir = tempfile::tempdir().expect("a directory");
    write_log(dir.path(), images);
    let (totals, findings, ..) = walk(dir.path());
    (totals, findings)
}

#[test]
fn a_whole_log_is_shown_and_nothing_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    write_log(dir.path(), &images());
    let (totals, findings, text, json) = walk(dir.path());
    assert_eq!(findings, []);
    let expected =
        Totals { segments: 2, commits: 5, entries: 9, records: 4, bytes: 3 << 20, damages: 0, notes: 0 };
    assert_eq!(totals, expected);
    let text = text.replace(&dir.path().display().to_string(), "DIR");
    assert_eq!(text, include_str!("golden.txt"), "if the change is meant: the text is\n{text}");
    let rows: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(rows.len(), 23);
    let of_kind = |kind: &str| rows.iter().filter(|row| row["row"] == kind).count();
    let counts = ["log", "segment", "commit", "entry", "segment_end", "stream"].map(of_kind);
    assert_eq!(counts, [1, 3, 5, 9, 3, 2]);
    let large = rows.iter().find(|row| row["parts"].is_array()).expect("an append in parts");
    assert_eq!((&large["bytes"], &large["closed"]), (&5000.into(), &true.into()));
    let stream =
        rows.iter().find(|row| row["key"] == "orders/eu" && row["row"] == "stream").expect("the stream");
    assert_eq!((&stream["bytes"], &stream["records"]), (&5015.into(), &4.into()));
    assert_eq!(stream["producers"]["writer"], serde_json::json!({"epoch": 3, "seq": 1}));
}

/// Every byte that counts: in the header, the commits, the footer and the trailer of a sealed segment.
#[test]
fn any_changed_byte_of_a_sealed_segment_is_found() {
    let mut first = images().swap_remove(0);
    let footer = FooterBuilder::new(&first.header).bytes_max(0);
    assert!(footer < 64 * 1024);
    let live = first.position + BLOCK_BYTES;
    let listed = Listed::own(1, LOG);
    let positions = (0..live).step_by(41).chain((SEGMENT_BYTES - TRAILER_BYTES..SEGMENT_BYTES).step_by(41));
    for at in positions {
        first.bytes[at] ^= 0x40;
        let mut findings = Vec::new();
        let mut sink = |row: &Row<'_>| -> io::Result<()> {
            if let Row::Finding(finding) = row {
                findings.push((*finding).clone());
            }
            Ok(())
        };
        let expected = Expected { listed: &listed, owner: None, is_last: false, next_first_lsns: vec![4] };
        let mut walk = Walk::new(&mut sink);
        walk.segment_bytes(Path::new("segment"), &first.bytes, Some(&expected)).expect("no failure");
        assert!(walk.totals().damages > 0, "a changed byte at {at} is not found");
        let near = findings
            .iter()
            .any(|finding| finding.position <= at as u64 && finding.severity == Severity::Damage);
        assert!(near, "the byte at {at} changed, found: {findings:?}");
        first.bytes[at] ^= 0x40;
    }
}

/// Changes a healthy log and says what the first finding must be.
type Case = (&'static str, fn(&mut Vec<Image>), Severity, &'static str, u64, &'static str);

#[test]
fn damage_is_named_with_file_and_position() {
    use Severity::{Damage, Note};
    let cases: [Case; 13] = [
        (
            "a bit in the first commit",
            |log| log[0].bytes[4096 + 200] ^= 1,
            Damage,
            "segment-0000000001.log",
            4096,
            "commits follow at 8192",
        ),
        (
            "the first commit gone",
            |log| log[0].bytes[4096..8192].fill(0),
            Damage,
            "segment-0000000001.log",
            4096,
            "zeros",
        ),
        (
            "the mark before a seal gone",
            |log| log[0].bytes[16384..20480].fill(0),
            Damage,
            "segment-0000000001.log",
            16384,
            "its last commit is 2",
        ),
        (
            "a footer page",
            |log| log[0].bytes[20480 + 100] ^= 1,
            Damage,
            "segment-0000000001.log",
            20480,
            "footer page",
        ),
        (
            "the trailer",
            |log| log[0].bytes[SEGMENT_BYTES - 5] ^= 1,
            Damage,
            "segment-0000000001.log",
            (SEGMENT_BYTES - BLOCK_BYTES) as u64,
            "trailer",
        ),
        (
            "a trailer that is valid but wrong",
            |log| {
                let nonce = log[0].header.nonce;
                let block = &mut log[0].bytes[SEGMENT_BYTES - BLOCK_BYTES..];
                let trailer = Trailer::parse(block, nonce).expect("valid");
                Trailer { record_count: 99, ..trailer }.encode(block);
            },
            Damage,
            "segment-0000000001.log",
            (SEGMENT_BYTES - BLOCK_BYTES) as u64,
            "differs",
        ),
        ("the trailer zeroed", |log| log[0].bytes[SEGMENT_BYTES - BLOCK_BYTES..].fill(0), Note, "", 0, ""),
        (
            "the last commit",
            |log| log[1].bytes[8192 + 70] ^= 1,
            Note,
            "segment-0000000002.log",
            8192,
            "interrupted",
        ),
        (
            "the commit before it",
            |log| log[1].bytes[4096 + 70] ^= 1,
            Damage,
            "segment-0000000002.log",
            4096,
            "commits follow at 8192",
        ),
        ("a header", |log| log[1].bytes[33] ^= 1, Damage, "segment-0000000002.log", 0, "checksum"),
        (
            "a cut file",
            |log| log[1].bytes.truncate(SEGMENT_BYTES - 4096),
            Damage,
            "segment-0000000002.log",
            0,
            "long",
        ),
        ("an empty file", |log| log[1].bytes.clear(), Damage, "segment-0000000002.log", 0, "cut short"),
        (
            "another segment's bytes",
            |log| log[1].bytes = log[0].bytes.clone(),
            Damage,
            "segment-0000000001.log",
            20480,
            "the next segment begins with 1",
        ),
    ];
    for (name, change, severity, file, position, what) in cases {
        let mut log = images();
        change(&mut log);
        let (totals, findings) = walk_images(&log);
        assert_eq!(totals.damages > 0, severity == Damage, "{name}: {findings:?}");
        let Some(first) = findings.first() else {
            assert_eq!(file, "", "{name}: nothing was found");
            continue;
        };
        assert_eq!((first.severity, first.position), (severity, position), "{name}: {findings:?}");
        assert!(first.path.ends_with(file) && first.what.contains(what), "{name}: {findings:?}");
    }
}

#[test]
fn files_and_lists() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, findings, ..) = walk(dir.path());
    assert_eq!(
        (findings[0].severity, findings.len()),
        (Severity::Note, 1),
        "a log that has not begun: {findings:?}"
    );

    write_log(dir.path(), &images());
    std::fs::remove_file(dir.path().join(file_name::segment(1))).expect("removed");
    std::fs::write(dir.path().join(file_name::segment(9)), b"garbage").expect("written");
    let (totals, findings, ..) = walk(dir.path());
    assert_eq!((totals.damages, totals.notes), (1, 1), "{findings:?}");
    assert!(
        findings[0].what.contains("not in the segment list") && findings[1].what.contains("does not exist")
    );

    let list = dir.path().join(file_name::LIST);
    let mut bytes = std::fs::read(&list).expect("read");
    bytes[30] ^= 1;
    std::fs::write(&list, &bytes).expect("written");
    let (totals, findings, ..) = walk(dir.path());
    assert_eq!((totals.damages, totals.segments), (1, 0), "{findings:?}");
}

/// Checksums hold, but an event does not go with what came before.
#[test]
fn events_that_contradict_the_log_are_found() {
    let missing = [Part { place: Place { segment: 1, position: 4096, back: 20 }, len: 5 }];
    let parts = Event::Appended(Appended {
        lineage: 10,
        start: 15,
        lengths: Lengths::Uniform { len: 5, count: 1 },
        producer: None,
        stream_seq: None,
        closed: false,
        payload: Payload::Parts(&missing),
    });
    let one = Lengths::Uniform { len: 1, count: 1 };
    let cases: [(&str, Event<'_>, &[u8]); 9] = [
        ("appends at 16 of stream 10, which ends at 15", append(10, 16, one, 2), b"x"),
        ("appends to stream 12, which was never created", append(12, 0, one, 2), b"x"),
        ("producer \"writer\" is at epoch 3, seq 5 after epoch 3, seq 1", append(10, 15, one, 5), b"x"),
        ("names a chunk at 4096 of segment 1 that is not there", parts, b""),
        ("creates stream 10, which is \"orders/eu\" already", created(10, b"orders/eu"), b""),
        ("deletes stream 12, which was never created", Event::StreamDeleted { lineage: 12 }, b""),
        ("renews stream 12", Event::Renewed { lineage: 12, used_ms: 1 }, b""),
        ("creates bucket \"orders\" twice", Event::BucketCreated { bucket: b"orders", generation: 2 }, b""),
        (
            "deletes bucket \"orders\" of generation 2",
            Event::BucketDeleted { bucket: b"orders", generation: 2 },
            b"",
        ),
    ];
    for (what, event, payload) in cases {
        let mut log = images();
        log.truncate(1);
        let mut second = Image::new(2, 4);
        second.push(&event, payload);
        second.end_commit();
        log.push(second);
        let (totals, findings) = walk_images(&log);
        assert_eq!(totals.damages, 1, "{what}: {findings:?}");
        let found = findings.iter().find(|finding| finding.severity == Severity::Damage).expect("one damage");
        assert!(found.what.contains(what) && found.position == 4096 + 64, "{what}: {findings:?}");
    }
}

/// Appends to a closed or deleted stream.
#[test]
fn streams_that_ended_take_no_more() {
    for (lineage, what) in [(10, "closed"), (11, "deleted")] {
        let mut log = images();
        log[1].push(&append(lineage, 0, Lengths::NONE, 2), b"");
        log[1].end_commit();
        let (totals, findings) = walk_images(&log);
        assert_eq!(totals.damages, 1, "{findings:?}");
        assert!(findings[0].what.contains(what), "{findings:?}");
    }
}

#[test]
fn a_lone_segment_is_not_compared_with_what_came_before() {
    let dir = tempfile::tempdir().expect("a directory");
    write_log(dir.path(), &images());
    let mut rows = 0;
    let mut sink = |_: &Row<'_>| -> io::Result<()> {
        rows += 1;
        Ok(())
    };
    let mut walk = Walk::new(&mut sink);
    walk.lone_segment(&dir.path().join(file_name::segment(2))).expect("no failure");
    let totals = walk.totals();
    assert_eq!((totals.commits, totals.entries, totals.damages), (2, 4, 0));
    assert_eq!(rows, 8);
}
