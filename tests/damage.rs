//! Damaged files: a torn tail is cut, anything else is refused with the file and the position, and in no case is a wrong
//! byte served. `thalweg inspect` and `thalweg verify` say the same offline.

mod common;

use std::path::PathBuf;

use common::files::{copy, edit, inspect, rows, segments, tool, try_segments};
use common::{DataDir, Server, TEXT};

const FLAGS: [&str; 4] = ["--shards", "1", "--segment-bytes", "1048576"];
const PATH: &str = "/test/damaged";

/// Appends that fill a commit each: `0`, `1`, ... repeated.
fn appends(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string().repeat(20_000)).collect()
}

/// A data directory with these appends in commits of their own, left by a kill or a clean stop.
fn written(appends: &[String], stop: bool) -> DataDir {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &FLAGS);
    let stream = server.create("damaged", TEXT);
    for append in appends {
        stream.append(append);
    }
    if stop {
        server.stop()
    } else {
        server.kill()
    }
    dir
}

/// A commit as the microscope sees it.
struct Commit {
    position: usize,
    bytes: usize,
    mark: bool,
}

/// The first segment file, and the commits in it.
fn first_segment(dir: &DataDir) -> (PathBuf, Vec<Commit>) {
    let path = segments(&dir.path()).remove(0);
    let seen = inspect(&path, &["--commits"]);
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().expect("a number") as usize;
    let commits = rows(&seen, "commit").into_iter().map(|row| Commit {
        position: number(row, "position"),
        bytes: number(row, "commit_bytes"),
        mark: row["mark"] == true,
    });
    (path, commits.collect())
}

/// It must start, and hold exactly these appends; and go on from there.
#[track_caller]
fn starts_with(dir: &DataDir, what: &str, expected: &[String]) {
    let server = match Server::try_start(dir, &FLAGS) {
        Ok(server) => server,
        Err(ended) => panic!("{what}: {ended:?}"),
    };
    let stream = server.stream(PATH, TEXT);
    assert!(stream.read_text() == expected.concat(), "{what}: other content");
    stream.append("and on");
    server.kill();
    let server = Server::start_in(dir, &FLAGS);
    assert!(
        server.stream(PATH, TEXT).read_text() == expected.concat() + "and on",
        "{what}: other content later"
    );
}

/// It must not start, and say where the damage is; `verify` says so too; and nothing was changed by the attempt.
#[track_caller]
fn is_refused(dir: &DataDir, what: &str, file: &std::path::Path) {
    let before = std::fs::read(file).expect("a file can be read");
    let name = file.file_name().expect("a segment has a name").to_string_lossy().into_owned();
    let ended = match Server::try_start(dir, &FLAGS) {
        Ok(server) => panic!("{what}: it started: {}", server.start_line()),
        Err(ended) => ended,
    };
    assert!(!ended.status.success() && !ended.errors.contains("panicked"), "{what}: {ended:?}");
    assert!(ended.errors.contains(&name), "{what}: no file: {ended:?}");
    assert!(ended.errors.contains("thalweg verify"), "{what}: no way on: {ended:?}");
    assert!(std::fs::read(file).expect("a file can be read") == before, "{what}: the file was changed");
    let verified = tool(&["verify"], &dir.path());
    let said = String::from_utf8_lossy(&verified.stdout) + String::from_utf8_lossy(&verified.stderr);
    assert!(!verified.status.success(), "{what}: verify found nothing: {said}");
    assert!(said.contains(&name), "{what}: {said}");
}

#[test]
fn a_healthy_directory_is_verified_and_inspected() {
    let appends = appends(100);
    for stop in [true, false] {
        let dir = written(&appends, stop);
        let verified = tool(&["verify"], &dir.path());
        assert!(verified.status.success(), "{verified:?}");
        let seen = inspect(&dir.path(), &["--commits", "--entries"]);
        let streams = rows(&seen, "stream");
        assert_eq!(streams.len(), 1, "{streams:?}");
        assert_eq!(streams[0]["key"], "test/damaged");
        assert_eq!(streams[0]["appends"], appends.len());
        assert_eq!(streams[0]["bytes"], appends.concat().len());
        assert!(rows(&seen, "segment").len() > 2, "the test wrote too few segments");
        // Log sequence numbers are dense across segments.
        let lsns: Vec<_> = rows(&seen, "commit").iter().map(|row| row["lsn"].as_u64()).collect();
        assert!(lsns.len() > appends.len());
        assert!(lsns.iter().enumerate().all(|(n, lsn)| *lsn == Some(n as u64 + 1)), "{lsns:?}");
        // The text is for people; it has to be there.
        let text = tool(&["inspect", "--stream", "test/damaged"], &dir.path());
        assert!(
            text.status.success() && String::from_utf8_lossy(&text.stdout).contains("test/damaged"),
            "{text:?}"
        );
        starts_with(&dir, "as it was", &appends);
    }
}

#[test]
fn a_torn_last_commit_is_cut() {
    let appends = appends(12);
    let dir = written(&appends, false);
    let (_, commits) = first_segment(&dir);
    let last = commits.last().expect("there are commits");
    assert!(!last.mark, "killed at once, and yet there is a mark");
    let (start, end) = (last.position, last.position + last.bytes);
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let torn: [(&str, Change<'_>); 6] = [
        ("its header", &|bytes| bytes[start + 8] ^= 1),
        ("its payload", &|bytes| bytes[start + 10_000] ^= 1),
        ("its last block is missing", &|bytes| bytes[end - 4096..end].fill(0)),
        ("its first block is missing", &|bytes| bytes[start..start + 4096].fill(0)),
        ("all of it is missing", &|bytes| bytes[start..end].fill(0)),
        ("old bytes lie there", &|bytes| bytes[start..end].fill(0xa5)),
    ];
    for (what, change) in torn {
        let dir = copy(&dir);
        edit(&first_segment(&dir).0, |bytes| change(bytes));
        starts_with(&dir, what, &appends[..appends.len() - 1]);
    }
    // What lies behind the last commit is nothing.
    for filler in [0xff, 0xa5, b'1'] {
        let dir = copy(&dir);
        edit(&first_segment(&dir).0, |bytes| bytes[end..end + 40_000].fill(filler));
        starts_with(&dir, "bytes behind the end", &appends);
    }
}

#[test]
fn a_payload_that_looks_like_a_commit_is_none() {
    let few = appends(3);
    let dir = written(&few, false);
    let (path, commits) = first_segment(&dir);
    let bytes = std::fs::read(&path).expect("a segment can be read");
    let last = commits.last().expect("there are commits");
    let image = &bytes[commits[0].position..last.position + last.bytes];
    // Whole commits of another segment, as someone would store who keeps backups of segments in a stream.
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &FLAGS);
    let stream = server.create("backup", common::OCTETS);
    let mut expected = Vec::new();
    for shift in [0, 64, 2048, 4000] {
        let body = [vec![0; shift], image.to_vec()].concat();
        stream.append(&body);
        expected.extend_from_slice(&body);
    }
    server.kill();
    let server = Server::start_in(&dir, &FLAGS);
    let stream = server.stream("/test/backup", common::OCTETS);
    assert!(stream.read() == expected, "the bytes differ");
    server.stream(PATH, TEXT).request("HEAD").expect(404);
}

#[test]
fn damage_before_a_later_commit_is_refused() {
    let appends = appends(12);
    for stop in [false, true] {
        let dir = written(&appends, stop);
        let (_, commits) = first_segment(&dir);
        let last = commits.len() - if stop { 2 } else { 1 };
        for at in [0, commits.len() / 2, last - 1] {
            let commit = &commits[at];
            let within = if commit.bytes > 8192 { 6000 } else { 70 };
            for (what, position) in
                [("a header", commit.position + 8), ("a payload", commit.position + within)]
            {
                let dir = copy(&dir);
                let path = first_segment(&dir).0;
                edit(&path, |bytes| bytes[position] ^= 0x10);
                is_refused(&dir, &format!("{what} of commit {at}, stopped: {stop}"), &path);
            }
        }
        let dir = copy(&dir);
        let path = first_segment(&dir).0;
        edit(&path, |bytes| bytes[16] ^= 1);
        is_refused(&dir, "the header of the segment", &path);
    }
}

#[test]
fn a_clean_stop_leaves_nothing_to_be_taken_for_torn() {
    let appends = appends(5);
    let dir = written(&appends, true);
    let (path, commits) = first_segment(&dir);
    let [.., last, mark] = commits.as_slice() else { panic!("too few commits") };
    assert!(mark.mark && !last.mark, "a clean stop ends with a mark");
    // Without its mark the log ends with a whole commit.
    let unmarked = copy(&dir);
    edit(&first_segment(&unmarked).0, |bytes| bytes[mark.position..mark.position + mark.bytes].fill(0));
    starts_with(&unmarked, "the mark is gone", &appends);
    edit(&path, |bytes| bytes[last.position + 5000] ^= 1);
    is_refused(&dir, "the last commit before a mark", &path);
}

#[test]
fn a_cut_or_missing_file_never_serves_less_in_silence() {
    let appends = appends(100);
    let dir = written(&appends, true);
    let count = segments(&dir.path()).len();
    assert!(count > 3, "the test wrote too few segments");
    for (what, length) in [("half", 1 << 19), ("a block", 4096), ("nothing", 0), ("no whole block", 100_001)]
    {
        let dir = copy(&dir);
        let path = segments(&dir.path()).remove(0);
        edit(&path, |bytes| bytes.truncate(length));
        is_refused(&dir, &format!("{what} is left of a sealed segment"), &path);
    }
    let dir = copy(&dir);
    let path = segments(&dir.path()).remove(1);
    std::fs::remove_file(&path).expect("a file can be removed");
    let Err(ended) = Server::try_start(&dir, &FLAGS) else {
        panic!("it started without one of its segments")
    };
    let name = path.file_name().expect("a segment has a name").to_string_lossy().into_owned();
    assert!(!ended.status.success() && ended.errors.contains(&name), "{ended:?}");
}

#[test]
fn a_sealed_segment_without_its_footer_is_scanned() {
    let appends = appends(100);
    let dir = written(&appends, true);
    let path = segments(&dir.path()).remove(0);
    // The trailer is the last block of the file.
    edit(&path, |bytes| {
        let end = bytes.len();
        bytes[end - 4096..].fill(0);
    });
    starts_with(&dir, "no footer", &appends);
}

#[test]
fn a_flipped_payload_byte_is_found_and_never_served() {
    let appends = appends(100);
    let dir = written(&appends, true);
    let (path, commits) = first_segment(&dir);
    let third = &commits[4];
    edit(&path, |bytes| bytes[third.position + 12_000] ^= 1);
    let verified = tool(&["verify"], &dir.path());
    assert!(!verified.status.success(), "verify reads payloads too: {verified:?}");
    // Footers are read at the start, not data: it may start. Then the damage shows when it is read.
    let Ok(server) = Server::try_start(&dir, &[&FLAGS[..], &["--cache-bytes", "0"]].concat()) else { return };
    let expected = appends.concat();
    let mut connection = server.connect();
    let (mut offset, mut position) = ("-1".to_owned(), 0);
    loop {
        let request = server.stream(PATH, TEXT).get(&format!("offset={offset}"));
        // A read that fails in its middle has no other way to say so than to end the connection.
        let Some(page) = connection.try_read_after(&request) else { break };
        if page.status >= 500 {
            break;
        }
        assert!(page.text() == &expected[position..position + page.body.len()], "a wrong byte was served");
        position += page.body.len();
        assert_eq!(page.header("stream-up-to-date"), None, "the damage went unnoticed");
        offset = page.next_offset();
    }
    // Others are not concerned.
    server.create("healthy", TEXT).append("x");
}

/// A data directory of which the server has settled a part, and the settled segment.
fn settled(appends: &[String]) -> (DataDir, PathBuf) {
    let dir = DataDir::new();
    let server = Server::start_in(&dir, &FLAGS);
    let (stream, filler) = (server.create("damaged", TEXT), server.create("filler", TEXT));
    for append in appends {
        stream.append(append);
        filler.append(append);
    }
    filler.delete();
    let is_settled =
        |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.len() > 4096 && bytes[72..80] != [0; 8]);
    let settled = || -> Vec<PathBuf> { try_segments(&dir.path()).into_iter().filter(is_settled).collect() };
    let deadline = std::time::Instant::now() + common::server::PATIENCE;
    // It is listed when the segments that it stands for go.
    while settled().is_empty() || try_segments(&dir.path()).iter().any(|path| path.ends_with(FIRST)) {
        assert!(std::time::Instant::now() < deadline, "nothing is settled: {:?}", try_segments(&dir.path()));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    server.stop();
    // A slow machine may have settled in several steps.
    let largest =
        settled().into_iter().max_by_key(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
    let settled = largest.expect("what is settled stays, or is settled again");
    (dir, settled)
}

/// Name of the first segment of a log.
const FIRST: &str = "segment-0000000001.log";

#[test]
fn a_damaged_settled_segment_is_refused() {
    let appends = appends(60);
    let (dir, path) = settled(&appends);
    let verified = tool(&["verify"], &dir.path());
    assert!(verified.status.success(), "{verified:?}");
    let name = path.file_name().expect("a segment has a name").to_owned();
    let seen = inspect(&path, &["--commits", "--entries"]);
    let header = &rows(&seen, "segment")[0]["header"];
    assert!(header["settled"]["payload_bytes"].as_u64() > Some(0), "{header}");
    let tail = &rows(&seen, "segment_end")[0]["tail"];
    let footer = tail["footer_position"].as_u64().expect("it is sealed") as usize;
    let in_copy = |dir: &DataDir| {
        let there = segments(&dir.path()).into_iter().find(|path| path.file_name() == Some(&name));
        there.expect("it was copied")
    };
    let end = std::fs::metadata(&path).expect("it is there").len() as usize;
    for (what, at) in [("its header", 70), ("its footer", footer + 80), ("its trailer", end - 4000)] {
        let dir = copy(&dir);
        let path = in_copy(&dir);
        edit(&path, |bytes| bytes[at] ^= 4);
        is_refused(&dir, what, &path);
    }
    let cut = copy(&dir);
    edit(&in_copy(&cut), |bytes| bytes[end - 4096..].fill(0));
    is_refused(&cut, "its trailer is missing", &in_copy(&cut));
    // Commits are read when they are asked for: by whoever verifies, or reads.
    let rotten = copy(&dir);
    edit(&in_copy(&rotten), |bytes| bytes[footer / 2] ^= 4);
    let verified = tool(&["verify"], &rotten.path());
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(!verified.status.success() && said.contains(&*name.to_string_lossy()), "{said}");
    starts_with(&dir, "whole", &appends);
}
