//! One segment: header, commits, what lies behind them, trailer and footer.

use std::io;
use std::path::Path;

use super::super::codec::{DecodeScratch, own_time_ms};
use super::super::event::{EventContext, HashRange};
use super::super::footer::{FooterBuilder, FooterProblem, PageReader};
use super::super::format::{
    BadStructure, FIRST_COMMIT_POSITION, SegmentHeader, TRAILER_BYTES, Trailer, is_zero,
};
use super::super::scan::{ParsedCommit, StopReason, find_commit, parse_commit};
use super::{At, Expected, InFile, Row, SegmentEnd, Tail, Walk};
use crate::limits::BLOCK_BYTES;

/// What the commits of a segment came to.
struct Scanned {
    header: SegmentHeader,
    in_file: InFile,
    footer: FooterBuilder,
    /// Where the last valid commit ends.
    position: u64,
    /// Why it is the last.
    reason: StopReason,
    commits: u64,
    marks: u64,
    records: u64,
    padding_bytes: u64,
    /// Damage was met, and perhaps skipped.
    is_damaged: bool,
}

impl Walk<'_> {
    pub(super) fn segment_bytes(
        &mut self,
        path: &Path,
        bytes: &[u8],
        expected: Option<&Expected<'_>>,
    ) -> io::Result<()> {
        let header = SegmentHeader::parse(bytes);
        let file_bytes = bytes.len() as u64;
        (self.sink)(&Row::Segment { path, file_bytes, header })?;
        let header = match header {
            Ok(header) => header,
            Err(problem) => return self.no_header(path, bytes, problem, expected),
        };
        self.totals.segments += 1;
        if let Some(what) = header_problem(&header, file_bytes, expected) {
            self.damage(path, 0, what)?;
        }
        // What may hold commits: whole blocks, without the trailer's.
        let whole = bytes.len() / BLOCK_BYTES * BLOCK_BYTES;
        let room =
            &bytes[..whole.saturating_sub(TRAILER_BYTES).max(FIRST_COMMIT_POSITION as usize).min(whole)];
        let mut scanned = self.scan(path, room, &header, expected)?;
        let last_lsn = scanned.footer.last_lsn();
        let entries = scanned.footer.entry_count();
        let trailer = Trailer::parse(&bytes[room.len()..], header.nonce);
        let stands_up_to = header.settled.map_or(last_lsn, |settled| settled.last_lsn);
        let nexts = expected.map_or(&[][..], |expected| &expected.next_first_lsns);
        if let Some(next) = nexts.iter().find(|next| **next != stands_up_to + 1) {
            let reason = scanned.reason;
            let what = match header.settled {
                None => {
                    format!("its last commit is {last_lsn} ({reason}), the next segment begins with {next}")
                }
                Some(_) => {
                    format!("it stands for commits up to {stands_up_to}, the next segment begins with {next}")
                }
            };
            self.damage(path, scanned.position, what)?;
            scanned.is_damaged = true;
        }
        let tail = self.tail(path, room, &mut scanned, trailer, expected)?;
        self.totals.commits += scanned.commits;
        self.totals.entries += entries;
        self.totals.records += scanned.records;
        (self.sink)(&Row::SegmentEnd(&SegmentEnd {
            path,
            commits: scanned.commits,
            marks: scanned.marks,
            entries,
            records: scanned.records,
            last_lsn,
            end: scanned.position,
            padding_bytes: scanned.padding_bytes,
            tail,
        }))
    }

    fn no_header(
        &mut self,
        path: &Path,
        bytes: &[u8],
        problem: BadStructure,
        expected: Option<&Expected<'_>>,
    ) -> io::Result<()> {
        let behind = bytes.get(BLOCK_BYTES..2 * BLOCK_BYTES);
        // Commits follow only once the header is durable: without one, and with nothing behind it, the
        // segment has not begun.
        let not_begun = behind.is_some_and(is_zero)
            && !matches!(problem, BadStructure::NewerVersion(_))
            && expected.is_none_or(|expected| expected.is_last);
        let tail = if not_begun { Tail::NotBegun } else { Tail::Damaged };
        if !not_begun {
            self.damage(path, 0, format!("segment header: {problem}"))?;
        }
        let end = SegmentEnd {
            path,
            commits: 0,
            marks: 0,
            entries: 0,
            records: 0,
            last_lsn: 0,
            end: 0,
            padding_bytes: 0,
            tail,
        };
        (self.sink)(&Row::SegmentEnd(&end))
    }

    /// Walks the commits, over damage if there is any and a later commit can be found.
    fn scan(
        &mut self,
        path: &Path,
        room: &[u8],
        header: &SegmentHeader,
        expected: Option<&Expected<'_>>,
    ) -> io::Result<Scanned> {
        self.chunks.begin(header.log_id, header.segment_number);
        let hashes = expected.map_or(HashRange::ALL, |expected| expected.listed.hashes);
        if header.settled.is_some() || hashes != HashRange::ALL {
            self.doubts.begin();
        }
        let mut scanned = Scanned {
            header: *header,
            in_file: InFile::default(),
            footer: FooterBuilder::new(header),
            position: u64::from(FIRST_COMMIT_POSITION),
            reason: StopReason::Zeros,
            commits: 0,
            marks: 0,
            records: 0,
            padding_bytes: 0,
            is_damaged: false,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut position = FIRST_COMMIT_POSITION as usize;
        loop {
            let due = scanned.footer.last_lsn() + 1;
            let reason = match parse_commit(&room[position.min(room.len())..], header.nonce, Some(due)) {
                Ok(commit) => {
                    self.commit(path, position as u64, &commit, &mut scanned, expected, &mut scratch)?;
                    position += commit.commit_bytes();
                    scanned.position = position as u64;
                    continue;
                }
                Err(StopReason::Short { .. }) if position >= room.len() => StopReason::Zeros,
                Err(reason) => reason,
            };
            let next = match reason {
                // It is whole; walk on with it, once the gap is reported.
                StopReason::WrongLsn { found } if found > due => Some(position),
                _ => later_commit(room, position, header.nonce, due),
            };
            scanned.reason = reason;
            if let Some(next) = next {
                self.damage(
                    path,
                    position as u64,
                    format!("commit {due} is due there, but {reason}; commits follow at {next}"),
                )?;
                scanned.is_damaged = true;
                let found = super::super::format::CommitHeader::parse(&room[next..], header.nonce);
                scanned.footer.skip_to(found.expect("a header was found there").lsn, next as u32);
                // The commit found may itself be bad: then the next round looks behind it, so the walk always
                // advances.
                position = next;
                scanned.position = next as u64;
                continue;
            }
            if let StopReason::WrongLsn { found } = reason {
                self.damage(path, position as u64, format!("commit {due} is due there, {found} was found"))?;
                scanned.is_damaged = true;
            }
            break;
        }
        self.scratch = scratch;
        Ok(scanned)
    }

    fn commit(
        &mut self,
        path: &Path,
        position: u64,
        commit: &ParsedCommit<'_>,
        scanned: &mut Scanned,
        expected: Option<&Expected<'_>>,
        scratch: &mut DecodeScratch,
    ) -> io::Result<()> {
        let mut context = commit.context();
        (self.sink)(&Row::Commit { position, header: &commit.header })?;
        scanned.footer.commit(context.lsn, context.time_ms);
        scanned.commits += 1;
        scanned.marks += u64::from(commit.header.is_mark());
        scanned.padding_bytes += (commit.commit_bytes() - commit.used_bytes()) as u64;
        let SegmentHeader { log_id, segment_number: segment, settled, .. } = scanned.header;
        // Commits of a settled segment are numbered apart from those that it stands for.
        context.lsn = settled.map_or(context.lsn, |settled| context.lsn.min(settled.last_lsn));
        context.hashes = expected.map_or(HashRange::ALL, |expected| expected.listed.hashes);
        // Segments are shown by their number on disk: the index is the number itself.
        let index_of = |number| Some(number);
        for raw in commit.raw_entries() {
            let at = At { path, position: position + u64::from(raw.at), log_id, segment };
            let entry = match raw.decode(segment, position as u32, &index_of, scratch) {
                Ok(entry) => entry,
                Err(problem) => {
                    let what = format!("its checksum holds, but the entry makes no sense: {problem}");
                    self.damage(path, at.position, what)?;
                    scanned.is_damaged = true;
                    continue;
                }
            };
            scanned.footer.scanned(&raw, &entry);
            scanned.records += super::streams::record_count(&entry);
            scanned.in_file.payload_bytes += u64::from(raw.payload_bytes);
            let time_ms = own_time_ms(raw.flags, raw.meta).unwrap_or(context.time_ms);
            let context = EventContext { time_ms, ..context };
            (self.sink)(&Row::Entry { position: at.position, raw: &raw, entry: &entry, context })?;
            if let Some(what) = self.check_entry(at, &entry, context, &mut scanned.in_file, expected) {
                self.damage(path, at.position, what)?;
            }
        }
        Ok(())
    }

    /// Judges what lies behind the last commit.
    fn tail(
        &mut self,
        path: &Path,
        room: &[u8],
        scanned: &mut Scanned,
        trailer: Result<Trailer, BadStructure>,
        expected: Option<&Expected<'_>>,
    ) -> io::Result<Tail> {
        let position = scanned.position;
        let trailer_position = room.len() as u64;
        let trailer = match trailer {
            Ok(trailer) => trailer,
            Err(problem) => {
                if scanned.header.settled.is_some() {
                    // It was complete before it was listed.
                    let what =
                        format!("trailer: {problem}; the server refuses a settled segment without one");
                    self.damage(path, trailer_position, what)?;
                    return Ok(Tail::Damaged);
                }
                if problem != BadStructure::Zeros {
                    let what = format!("trailer: {problem}; the server reads the commits instead");
                    self.damage(path, trailer_position, what)?;
                }
                return self.open_tail(path, room, scanned, expected);
            }
        };
        if scanned.is_damaged {
            return Ok(Tail::Damaged);
        }
        if trailer.footer_position != position || trailer.last_lsn != scanned.footer.last_lsn() {
            let what = format!(
                "the commits end here with number {} ({}), the trailer says {} with number {}",
                scanned.footer.last_lsn(),
                scanned.reason,
                trailer.footer_position,
                trailer.last_lsn
            );
            self.damage(path, position, what)?;
            return Ok(Tail::Damaged);
        }
        let footer = usize::try_from(trailer.footer_bytes).ok();
        let stored = footer.and_then(|bytes| room[position as usize..].get(..bytes));
        let Some(stored) = stored else {
            self.damage(path, trailer_position, "the trailer names a footer that does not fit")?;
            return Ok(Tail::Damaged);
        };
        // A footer is a function of the commits: it is made again from them and compared.
        let placeholder = FooterBuilder::new(&SegmentHeader { nonce: trailer.nonce, ..PLACEHOLDER });
        let (again, expected) = std::mem::replace(&mut scanned.footer, placeholder).finish();
        if expected != trailer {
            self.damage(
                path,
                trailer_position,
                format!("the trailer differs from the commits: {trailer:?}"),
            )?;
        }
        if again != stored
            && let Some((at, problem)) = bad_page(stored, &again, &trailer)
        {
            let does = match scanned.header.settled {
                None => "reads the commits instead",
                Some(_) => "refuses a settled segment without one",
            };
            self.damage(path, position + at, format!("{problem}; the server {does}"))?;
        }
        self.settled_payload(path, scanned)?;
        Ok(Tail::Sealed(trailer))
    }

    /// A settled segment's header says how much payload was kept.
    fn settled_payload(&mut self, path: &Path, scanned: &Scanned) -> io::Result<()> {
        let found = scanned.in_file.payload_bytes;
        match scanned.header.settled {
            Some(settled) if settled.payload_bytes != found => {
                let said = settled.payload_bytes;
                self.damage(path, 0, format!("it holds {found} bytes of payload, its header says {said}"))
            }
            _ => Ok(()),
        }
    }

    fn open_tail(
        &mut self,
        path: &Path,
        room: &[u8],
        scanned: &Scanned,
        expected: Option<&Expected<'_>>,
    ) -> io::Result<Tail> {
        if scanned.is_damaged {
            return Ok(Tail::Damaged);
        }
        let position = scanned.position;
        let is_last = expected.is_none_or(|expected| expected.is_last);
        let rest = &room[(position as usize).min(room.len())..];
        if is_zero(rest) {
            return Ok(Tail::Open);
        }
        if is_last {
            let what =
                format!("behind the last commit: {}; a write that a crash interrupted", scanned.reason);
            self.note(path, position, what)?;
        }
        // Otherwise it is a footer that was being written, or the next segment shows that commits are
        // missing.
        Ok(Tail::Torn(scanned.reason))
    }
}

const PLACEHOLDER: SegmentHeader = SegmentHeader {
    segment_number: 1,
    log_id: 0,
    epoch: 0,
    first_lsn: 1,
    nonce: 1,
    segment_bytes: crate::limits::SEGMENT_BYTES_MIN,
    created_ms: 0,
    settled: None,
};

fn header_problem(
    header: &SegmentHeader,
    file_bytes: u64,
    expected: Option<&Expected<'_>>,
) -> Option<String> {
    if header.segment_bytes != file_bytes {
        return Some(format!(
            "the file is {file_bytes} bytes long, its header says {}",
            header.segment_bytes
        ));
    }
    let expected = expected?;
    let (number, log_id) = (expected.listed.number, expected.listed.log_id);
    if (header.segment_number, header.log_id) != (number, log_id) {
        let found = format!("segment {} of log {}", header.segment_number, header.log_id);
        return Some(format!("it is {found}, the list says {number} of {log_id}"));
    }
    None
}

/// The next block behind `position` that begins with the header of commit `due` or a later one.
fn later_commit(room: &[u8], position: usize, nonce: u64, due: u64) -> Option<usize> {
    let behind = position.checked_add(BLOCK_BYTES).filter(|behind| *behind < room.len())?;
    Some(behind + find_commit(&room[behind..], nonce, due)?)
}

/// The first page of a footer that is bad or differs from what the commits say, and why.
fn bad_page(stored: &[u8], again: &[u8], trailer: &Trailer) -> Option<(u64, String)> {
    let mut reader = PageReader::new(trailer.nonce, 0);
    let mut scratch = DecodeScratch::default();
    let mut at = 0;
    while at < stored.len() {
        match reader.page(&stored[at..], &|number| Some(number), &mut scratch, &mut |_, _| {}) {
            Ok(bytes) if again.get(at..at + bytes) == Some(&stored[at..at + bytes]) => at += bytes,
            Ok(_) => return Some((at as u64, "the footer differs from the commits".to_string())),
            Err(problem) => return Some((at as u64, problem.to_string())),
        }
    }
    let found = reader.entries_seen();
    Some((at as u64, FooterProblem::Count { expected: trailer.entry_count, found }.to_string()))
}
