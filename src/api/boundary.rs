//! A message boundary that a request names: in its path as an offset, or as `?record=` (extension 2.2, 8; decisions 19, 20).
//!
//! What is judged here is judged against the staged view: snapshots and retention are writes.

use crate::http::Answer;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::offset::OffsetArg;
use crate::protocol::query::{self, StartArg};
use crate::protocol::records::RecordStart;
use crate::shard::lineage::Lineages;
use crate::shard::stream::{Start, Stream};

use super::start::RECORDS_UNSUPPORTED;

/// Where a named boundary lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before the retained offset.
    Before,
    /// At this offset, which need not be a message boundary.
    At(u64),
    /// Beyond the tail.
    Beyond,
}

/// The boundary that a path's last segment (decoded) or the query names. `-1` and `now` name none.
pub fn parse(segment: Option<&[u8]>, query: Option<&[u8]>) -> Result<StartArg, Problem> {
    let record = query::record(query)?;
    match (segment, record) {
        (Some(_), Some(_)) => Err(Problem::fixed(
            Code::ConflictingStart,
            "name a boundary by its offset or by its record, not both",
        )),
        (Some(text), None) => parse_offset(text).map(StartArg::Offset),
        (None, Some(start @ RecordStart::At(_))) => Ok(StartArg::Record(start)),
        (None, Some(RecordStart::Tail(_))) => {
            Err(Problem::fixed(Code::InvalidRecord, "name a record by its ordinal: ?record={ordinal}"))
        }
        (None, None) => Err(Problem::fixed(
            Code::InvalidOffset,
            "name a message boundary: an offset as the last segment of the path, or ?record={ordinal}",
        )),
    }
}

/// The offset that a path's last segment names.
pub fn parse_offset(text: &[u8]) -> Result<OffsetArg, Problem> {
    if text == b"-1" || text == b"now" {
        let message = "-1 and now name no message boundary here: use an offset from Stream-Next-Offset";
        return Err(Problem::fixed(Code::InvalidOffset, message));
    }
    OffsetArg::parse(text)
}

/// Where the boundary lies in the staged stream. A token of an earlier life of the name is 410, one that was never issued
/// 400; so is a record of a byte stream.
pub fn locate(stream: &Stream, named: StartArg, lineages: &Lineages) -> Result<Position, Problem> {
    let (first, tail) = (stream.firsts().staged, stream.staged);
    let at = match named {
        StartArg::Offset(offset) => offset_in(stream, offset, lineages)?,
        StartArg::Record(_) if !stream.is_json() => return Err(RECORDS_UNSUPPORTED.problem().clone()),
        StartArg::Record(RecordStart::At(record)) if record < first.records => return Ok(Position::Before),
        StartArg::Record(RecordStart::At(record)) if record > tail.records => return Ok(Position::Beyond),
        StartArg::Record(RecordStart::At(record)) if record == first.records => first.bytes,
        StartArg::Record(RecordStart::At(record)) => stream.index.offset_of(record),
        StartArg::Record(RecordStart::Tail(_)) => unreachable!("refused when it was parsed"),
    };
    Ok(match at {
        at if at < first.bytes => Position::Before,
        at if at > tail.bytes => Position::Beyond,
        at => Position::At(at),
    })
}

/// The byte offset of an offset argument that is not `now`.
pub fn offset_in(stream: &Stream, offset: OffsetArg, lineages: &Lineages) -> Result<u64, Problem> {
    match offset {
        OffsetArg::Start => Ok(0),
        OffsetArg::Now => unreachable!("refused when it was parsed"),
        OffsetArg::Plain(at) => Ok(at),
        OffsetArg::Token { lineage, offset } if lineage == stream.lineage => Ok(offset),
        OffsetArg::Token { lineage, .. } if lineages.issued(lineage) => Err(super::start::OTHER_LINEAGE),
        OffsetArg::Token { .. } => Err(super::start::NEVER_ISSUED),
    }
}

/// The message boundary at an offset of the staged stream that is retained; 400 if there is none.
pub fn aligned(stream: &Stream, at: u64) -> Result<Start, Problem> {
    let first = stream.firsts().staged;
    if at == first.bytes {
        return Ok(first);
    }
    let located = stream.index.locate(at);
    if located.is_boundary {
        return Ok(Start { bytes: at, records: located.ordinal });
    }
    let message = format!(
        "the offset is inside a message, which starts at {} and ends at {}",
        located.start,
        stream.index.offset_of(located.ordinal + 1)
    );
    Err(Problem::new(Code::OffsetNotAligned, message))
}

/// Adds the headers that say what the staged stream retains (decision 10).
pub fn retained_headers(answer: &mut Answer<'_>, stream: &Stream) {
    let first = stream.firsts().staged;
    answer.token("Stream-Next-Offset", stream.lineage, first.bytes);
    record_headers(answer, stream, stream.staged.records);
}

/// Adds the first record of the staged stream and a next one (extension 6.10); nothing on a byte stream.
pub fn record_headers(answer: &mut Answer<'_>, stream: &Stream, next: u64) {
    if stream.is_json() {
        answer.header_u64("Stream-Record-First", stream.firsts().staged.records);
        answer.header_u64("Stream-Record-Next", next);
    }
}
