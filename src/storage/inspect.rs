//! Reads logs offline, every bit verified: what `thalweg inspect` shows and `thalweg verify` judges.
//!
//! Contract: nothing is written, nothing is repaired, and a walk does not stop at the first damage: it
//! reports it and goes on at the next commit that it can find. Rows come in the order of the disk. The rules
//! are those of recovery (the table of `storage-format.md`) and more: footers are compared with the commits,
//! and the events with what came before them.
//!
//! What may be missing is no damage. Settling leaves out what ends further on in the log, and a segment may
//! count for a part of the placements: from the first such segment on, an event that lacks something before
//! it is a doubt, which the end of the log resolves (`doubts`). Within one file nothing may be missing, ever
//! (`in_file`), and each log's sequence numbers follow each other for every placement.
//!
//! Files are mapped, which only an offline tool may do: a page fault would stall a core that serves, and an
//! I/O error would be a signal. So each file is read once before it is mapped, and what cannot be read is
//! reported like any other damage.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::codec::{DecodeScratch, Entry};
use super::event::{EventContext, HashRange};
use super::file_name;
use super::format::{BadStructure, CommitHeader, SegmentHeader, Trailer, is_zero};
use super::scan::{RawEntry, StopReason};
use super::segment_list::{self, Listed, SegmentList};
use crate::limits::{BLOCK_BYTES, READ_BYTES_MAX};

mod chunks;
mod doubts;
mod in_file;
mod json;
mod segment;
mod streams;
mod text;

use chunks::Chunks;
use doubts::Doubts;
use in_file::InFile;
pub use json::write_json;
use streams::Streams;
pub use streams::{Stream, lineage_of};
pub use text::{size, write_text};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// As it should be after a crash, or worth knowing.
    Note,
    /// Bytes are not what was written, or are missing.
    Damage,
}

/// Something that a walk found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub path: PathBuf,
    /// Position in it.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

/// How a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Sealed: footer and trailer are there.
    Sealed(Trailer),
    /// Not sealed, and nothing lies behind the last commit.
    Open,
    /// Not sealed, and something that is no commit lies behind the last one.
    Torn(StopReason),
    /// Its header says nothing: it was made ahead of use.
    NotBegun,
    /// It could not be read, or not to its end.
    Damaged,
}

/// What a segment held.
#[derive(Clone, Debug)]
pub struct SegmentEnd<'a> {
    /// Its file.
    pub path: &'a Path,
    /// Commits, marks included.
    pub commits: u64,
    /// Marks among them.
    pub marks: u64,
    /// Entries, chunks included.
    pub entries: u64,
    /// Records that its appends add.
    pub records: u64,
    /// Sequence number of its last commit; the one before its first if there is none.
    pub last_lsn: u64,
    /// Position at which the last commit ends.
    pub end: u64,
    /// Bytes of commits that are padding.
    pub padding_bytes: u64,
    /// How it ends.
    pub tail: Tail,
}

/// One thing that a walk shows.
#[derive(Clone, Debug)]
pub enum Row<'a> {
    /// A log begins.
    Log {
        /// Its directory.
        path: &'a Path,
        /// Its list of segments.
        list: &'a SegmentList,
    },
    /// A segment begins.
    Segment {
        /// Its file.
        path: &'a Path,
        /// Bytes of the file.
        file_bytes: u64,
        /// Its header.
        header: Result<SegmentHeader, BadStructure>,
    },
    /// A commit.
    Commit {
        /// Where it begins in the file.
        position: u64,
        /// Its header.
        header: &'a CommitHeader,
    },
    /// An entry of that commit. Segments in it are numbers on disk, of the log that wrote the segment.
    Entry {
        /// Where it begins in the file.
        position: u64,
        /// As it lies there.
        raw: &'a RawEntry<'a>,
        /// What it says.
        entry: &'a Entry<'a>,
        /// Sequence number of the commit as the log counts (that of a settled segment stands for others), the time
        /// at which the entry was first written, and whose streams its segment counts for.
        context: EventContext,
    },
    /// A segment ends.
    SegmentEnd(&'a SegmentEnd<'a>),
    /// A stream as it is at the end of the log.
    Stream(&'a Stream),
    /// Something is worth saying.
    Finding(&'a Finding),
}

/// Receives the rows; an error ends the walk.
pub type Sink<'a> = dyn FnMut(&Row<'_>) -> io::Result<()> + 'a;

/// Sums over a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments that have begun.
    pub segments: u64,
    /// Commits.
    pub commits: u64,
    /// Entries.
    pub entries: u64,
    /// Records.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Findings that are damage.
    pub damages: u64,
    /// Findings that are not.
    pub notes: u64,
}

/// A walk over logs and segments.
pub struct Walk<'s> {
    sink: &'s mut Sink<'s>,
    totals: Totals,
    streams: Streams,
    chunks: Chunks,
    doubts: Doubts,
    /// No damage was found in the log so far.
    is_whole: bool,
    scratch: DecodeScratch,
}

/// What a shard owns, and how a bucket's id leads to a placement hash.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    /// Placement hashes, by their upper half.
    pub hashes: HashRange,
    /// The placement hash of a bucket's id.
    pub placement: &'a dyn Fn(&[u8]) -> u64,
}

/// What is known of a segment before its file is opened.
struct Expected<'a> {
    listed: &'a Listed,
    owner: Option<Owner<'a>>,
    /// Whether no other segment of its log follows in the list.
    is_last: bool,
    /// First sequence numbers of the segments that go on where it ends: one for each part of the placements
    /// for which another one does; all the same in a log that is whole.
    next_first_lsns: Vec<u64>,
}

/// An entry's place on disk.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a Path,
    position: u64,
    log_id: u64,
    segment: u32,
}

impl<'s> Walk<'s> {
    /// A walk that shows its rows to `sink`.
    pub fn new(sink: &'s mut Sink<'s>) -> Walk<'s> {
        Walk {
            sink,
            totals: Totals::default(),
            streams: Streams::default(),
            chunks: Chunks::default(),
            doubts: Doubts::default(),
            is_whole: true,
            scratch: DecodeScratch::default(),
        }
    }

    /// Sums so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Walks a shard's log: the segments that its list names, in the order of replay, then its streams. Without an
    /// owner, what only the owner of a stream can judge is not judged.
    pub fn log(&mut self, dir: &Path, owner: Option<Owner<'_>>) -> io::Result<()> {
        let path = dir.join(file_name::LIST);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return self.note(&path, 0, "there is no segment list: the log has not begun");
            }
            Err(error) => return self.damage(&path, 0, format!("cannot be read: {error}")),
        };
        let list = match SegmentList::parse(&bytes, &path.display().to_string()) {
            Ok(list) => list,
            Err(problem) => return self.damage(&path, 0, problem.to_string()),
        };
        (self.sink)(&Row::Log { path: dir, list: &list })?;
        self.is_whole = true;
        self.unlisted_files(dir, &list)?;
        let headers: Vec<Option<SegmentHeader>> =
            list.segments.iter().map(|listed| header_of(&dir.join(&listed.name))).collect();
        for (index, listed) in list.segments.iter().enumerate() {
            let chained = |at: usize| {
                let header = headers[at].as_ref()?;
                Some((header.origin_log_id(), list.segments[at].hashes, header.first_lsn))
            };
            let is_same_log = |at: &usize| list.segments[*at].log_id == listed.log_id;
            // One that has not begun does not count: the log ends before it.
            let has_begun =
                |at: usize| headers[at].is_some() || !may_not_have_begun(&dir.join(&list.segments[at].name));
            let is_last = !(index + 1..list.segments.len()).filter(is_same_log).any(has_begun);
            let later = (index + 1..list.segments.len()).filter_map(chained);
            let next_first_lsns = chained(index)
                .map(|(log_id, hashes, _)| segment_list::first_lsns_behind(log_id, hashes, later))
                .unwrap_or_default();
            let expected = Expected { listed, owner, is_last, next_first_lsns };
            self.segment_file(&dir.join(&listed.name), Some(&expected))?;
        }
        self.finish_log(dir, owner)
    }

    /// Walks one segment file, by itself: what it says of streams is not compared with anything.
    pub fn lone_segment(&mut self, path: &Path) -> io::Result<()> {
        self.segment_file(path, None)
    }

    fn unlisted_files(&mut self, dir: &Path, list: &SegmentList) -> io::Result<()> {
        let mut names: Vec<String> = std::fs::read_dir(dir)?
            .map(|found| found.map(|found| found.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        for name in names {
            if file_name::is_segment(&name) && list.segments.iter().all(|listed| listed.name != name) {
                self.note(&dir.join(name), 0, "not in the segment list: garbage that the server removes")?;
            }
        }
        Ok(())
    }

    fn finish_log(&mut self, dir: &Path, owner: Option<Owner<'_>>) -> io::Result<()> {
        let chunks = std::mem::take(&mut self.chunks);
        if let Some((count, bytes)) = chunks.unpublished() {
            self.note(dir, 0, format!("{count} chunks of {bytes} bytes were never published"))?;
        }
        let doubts = std::mem::take(&mut self.doubts);
        // Behind damage, what is missing explains everything that does not fit.
        if self.is_whole {
            for finding in doubts.resolve(&self.streams, owner) {
                self.damage(&finding.path, finding.position, finding.what)?;
            }
        }
        for stream in std::mem::take(&mut self.streams).into_sorted() {
            (self.sink)(&Row::Stream(&stream))?;
        }
        Ok(())
    }

    fn segment_file(&mut self, path: &Path, expected: Option<&Expected<'_>>) -> io::Result<()> {
        let map = match read_and_map(path) {
            Ok(Ok(map)) => map,
            Ok(Err((position, error))) => {
                return self.damage(path, position, format!("cannot be read: {error}"));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return self.damage(path, 0, "the segment list names it, but it does not exist");
            }
            Err(error) => return self.damage(path, 0, format!("cannot be opened: {error}")),
        };
        self.totals.bytes += map.len() as u64;
        self.segment_bytes(path, &map, expected)
    }

    /// An entry whose checksums hold: does it go with what came before? Says what is wrong with it, if anything is.
    fn check_entry(
        &mut self,
        at: At<'_>,
        entry: &Entry<'_>,
        context: EventContext,
        in_file: &mut InFile,
        expected: Option<&Expected<'_>>,
    ) -> Option<String> {
        let Some(expected) = expected else { return in_file.check(entry) };
        let problem = match entry {
            Entry::Chunk { part, .. } => {
                self.chunks.add(at.log_id, at.segment, part);
                None
            }
            Entry::Event(event) => {
                let counts = self.streams.counts(event, context.hashes, expected.owner);
                let applied = if counts { self.streams.apply(event, context) } else { None };
                let snapshots = self.streams.snapshots_of(event);
                let named = self.chunks.take(at.log_id, event, counts, snapshots);
                let applied = applied.and_then(|problem| self.doubts.hear(problem, at));
                let named = named.and_then(|problem| self.doubts.hear(problem, at));
                named.or(applied)
            }
        };
        let problem = problem.or(in_file.check(entry));
        // Behind damage, what is missing explains everything that does not fit.
        problem.filter(|_| self.is_whole)
    }

    fn note(&mut self, path: &Path, position: u64, what: impl Into<String>) -> io::Result<()> {
        self.finding(Severity::Note, path, position, what.into())
    }

    fn damage(&mut self, path: &Path, position: u64, what: impl Into<String>) -> io::Result<()> {
        self.finding(Severity::Damage, path, position, what.into())
    }

    fn finding(&mut self, severity: Severity, path: &Path, position: u64, what: String) -> io::Result<()> {
        match severity {
            Severity::Note => self.totals.notes += 1,
            Severity::Damage => {
                self.totals.damages += 1;
                self.is_whole = false;
            }
        }
        (self.sink)(&Row::Finding(&Finding { severity, path: path.to_path_buf(), position, what }))
    }
}

/// Header of a segment, if it has a valid one.
fn header_of(path: &Path) -> Option<SegmentHeader> {
    SegmentHeader::parse(&first_blocks(path)?[..BLOCK_BYTES]).ok()
}

/// Whether a segment without a valid header also has nothing behind it.
fn may_not_have_begun(path: &Path) -> bool {
    first_blocks(path).is_some_and(|blocks| is_zero(&blocks[BLOCK_BYTES..]))
}

fn first_blocks(path: &Path) -> Option<[u8; 2 * BLOCK_BYTES]> {
    let mut blocks = [0; 2 * BLOCK_BYTES];
    File::open(path).ok()?.read_exact_at(&mut blocks, 0).ok()?;
    Some(blocks)
}

/// Bytes of a file that were read, mapped.
enum Bytes {
    Mapped(memmap2::Mmap),
    Empty,
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Empty => &[],
        }
    }
}

/// Reads all of a file, so that an I/O error is an error with a position, then maps it (from the page cache,
/// most likely).
fn read_and_map(path: &Path) -> io::Result<Result<Bytes, (u64, io::Error)>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut buffer = vec![0; READ_BYTES_MAX];
    let mut position = 0;
    while position < len {
        match file.read_at(&mut buffer, position) {
            Ok(0) => break,
            Ok(read) => position += read as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err((position, error))),
        }
    }
    if len == 0 {
        return Ok(Ok(Bytes::Empty));
    }
    // SAFETY: the mapping is read-only and this process does not write the file. A server that runs at the
    // same time only writes blocks that hold no commit yet, and never shortens a segment; bytes that change
    // while they are parsed can fail a checksum, and the parser indexes by nothing that it has not
    // bounds-checked.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Ok(Bytes::Mapped(map)))
}

#[cfg(test)]
mod tests;
