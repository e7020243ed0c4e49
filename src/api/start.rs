//! Where a read starts: an offset or a record against a stream (extension 6.6; decisions 8, 9, 10, 26).

use crate::http::Answer;
use crate::protocol::errors::{Code, Problem};
use crate::protocol::offset::OffsetArg;
use crate::protocol::query::StartArg;
use crate::protocol::records::RecordStart;
use crate::shard::lineage::Lineages;
use crate::shard::stream::{Start, Stream};

use super::answer::{retained_headers, retained_records};

/// Why a read cannot start.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// An error with no more to say.
    Plain(Problem),
    /// What it asks for is no longer retained: the answer says what is.
    Trimmed(Problem),
    /// The record is not there yet: the answer says where the records end.
    BeyondTail(Problem),
}

impl Refused {
    fn fixed(code: Code, message: &'static str) -> Self {
        Self::Plain(Problem::fixed(code, message))
    }

    /// The error.
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Plain(problem) | Self::Trimmed(problem) | Self::BeyondTail(problem) => problem,
        }
    }

    /// Adds the headers that go with it.
    pub fn headers(&self, answer: &mut Answer<'_>, stream: &Stream) {
        match self {
            Self::Plain(_) => {}
            Self::Trimmed(_) => retained_headers(answer, stream),
            Self::BeyondTail(_) => retained_records(answer, stream),
        }
    }
}

/// A token of another life of the name (decision 8).
pub const OTHER_LINEAGE: Problem = Problem::fixed(
    Code::OffsetGone,
    "the offset belongs to an earlier stream of this name, or to another stream",
);

/// A token with a lineage that no stream ever had (decision 8).
pub const NEVER_ISSUED: Problem =
    Problem::fixed(Code::InvalidOffset, "the offset was never returned by this server");

/// What lies before the first retained place of a stream is asked for (decision 10).
pub const OFFSET_TRIMMED: Problem = Problem::fixed(
    Code::OffsetGone,
    "the offset is before the earliest retained one: start there, or from a snapshot by way of /bootstrap",
);

/// Record parameters on a stream without records (decision 26).
pub const RECORDS_UNSUPPORTED: Refused = Refused::Plain(Problem::fixed(
    Code::RecordsUnsupported,
    "this stream has no records: only streams of application/json are read by records",
));

/// The place at which a read starts; its ordinal counts on a stream of records only.
///
/// A token of an earlier life of the name is 410, one that was never issued 400; so is an offset beyond the durable tail,
/// or, on a stream of records, inside a record. What is no longer retained is 410, the very start included.
pub fn resolve(stream: &Stream, start: StartArg, lineages: &Lineages) -> Result<Start, Refused> {
    match start {
        StartArg::Offset(offset) => at_offset(stream, offset, lineages),
        StartArg::Record(record) => at_record(stream, record),
    }
}

fn at_offset(stream: &Stream, offset: OffsetArg, lineages: &Lineages) -> Result<Start, Refused> {
    let (first, tail) = (stream.first(), stream.durable);
    let from = match offset {
        OffsetArg::Start => 0,
        OffsetArg::Now => tail.bytes,
        OffsetArg::Plain(from) => from,
        OffsetArg::Token { lineage, offset } if lineage == stream.lineage => offset,
        OffsetArg::Token { lineage, .. } if lineages.issued(lineage) => {
            return Err(Refused::Plain(OTHER_LINEAGE));
        }
        OffsetArg::Token { .. } => return Err(Refused::Plain(NEVER_ISSUED)),
    };
    if from > tail.bytes {
        return Err(Refused::fixed(Code::OffsetBeyondTail, "the offset is beyond the end of the stream"));
    }
    if from < first.bytes {
        return Err(Refused::Trimmed(OFFSET_TRIMMED));
    }
    if !stream.is_json() {
        return Ok(Start { bytes: from, records: 0 });
    }
    if from == tail.bytes {
        return Ok(Start { bytes: from, records: tail.records });
    }
    if from == first.bytes {
        return Ok(first);
    }
    let located = stream.index.locate(from);
    if !located.is_boundary {
        return Err(Refused::fixed(Code::OffsetNotAligned, "the offset is inside a record"));
    }
    Ok(Start { bytes: from, records: located.ordinal })
}

fn at_record(stream: &Stream, record: RecordStart) -> Result<Start, Refused> {
    assert!(stream.is_json(), "stream {} has no records: the caller refuses to look for one", stream.lineage);
    let (first, next) = (stream.first().records, stream.durable.records);
    let ordinal = match record {
        RecordStart::At(ordinal) => ordinal,
        RecordStart::Tail(count) => next.saturating_sub(count).max(first),
    };
    if ordinal < first {
        let message = format!("record {ordinal} is no longer retained: the first one is {first}");
        return Err(Refused::Trimmed(Problem::new(Code::RecordGone, message)));
    }
    if ordinal > next {
        let message = format!("record {ordinal} is beyond the next one, {next}");
        return Err(Refused::BeyondTail(Problem::new(Code::RecordBeyondTail, message)));
    }
    Ok(Start { bytes: stream.index.offset_of(ordinal), records: ordinal })
}
