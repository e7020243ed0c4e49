//! Query parameters of reads (base protocol 5.6 to 5.8; extension 6.6; decisions 9, 13, 26, 30) and of listings (extension 1.4).
//!
//! One pass; names and values are percent-decoded, a `+` is a space. Unknown parameters are ignored, whatever they
//! hold. A known parameter given twice is 400, also with equal values: which one counts would be a guess.

use std::borrow::Cow;

use super::digits;
use super::errors::{Code, Problem};
use super::offset::OffsetArg;
use super::percent::{self, Plus};
use super::records::{self, RecordQuery, RecordStart};
use crate::limits::LISTING_PAGE_MAX;

/// How a read follows the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// `live=long-poll`: one answer, as soon as there is data.
    LongPoll,
    /// `live=sse`: server-sent events.
    Sse,
}

/// The parameters of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadQuery {
    /// `offset`.
    pub offset: Option<OffsetArg>,
    /// `live`.
    pub live: Option<Live>,
    /// `cursor`, if it is one that a server can have given out; any other value is as if absent.
    pub cursor: Option<u64>,
    /// `max_bytes`: at least 1.
    pub max_bytes: Option<u64>,
    /// `record`, `tail_records`, `max_records` and `record_view`.
    pub records: RecordQuery,
}

/// Where a read starts, as its request says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartArg {
    /// At an offset.
    Offset(OffsetArg),
    /// At a record.
    Record(RecordStart),
}

impl ReadQuery {
    /// Parses the query of a read: what follows the question mark, still encoded.
    pub fn parse(query: Option<&[u8]>) -> Result<Self, Problem> {
        let mut parsed = Self::default();
        let mut cursor_seen = false;
        let mut buffer = [0; VALUE_BYTES_MAX];
        for (name, value) in pairs(query.unwrap_or_default()) {
            match parameter(name) {
                Some(Parameter::Offset) => {
                    once(parsed.offset.is_some(), Code::InvalidOffset, "offset is given twice")?;
                    let value = short_value(value, &mut buffer)
                        .ok_or(Problem::fixed(Code::InvalidOffset, "the offset is malformed"))?;
                    parsed.offset = Some(OffsetArg::parse(value)?);
                }
                Some(Parameter::Live) => {
                    once(parsed.live.is_some(), Code::InvalidLive, "live is given twice")?;
                    parsed.live = match short_value(value, &mut buffer) {
                        Some(b"long-poll") => Some(Live::LongPoll),
                        Some(b"sse") => Some(Live::Sse),
                        _ => return Err(Problem::fixed(Code::InvalidLive, "live is long-poll or sse")),
                    };
                }
                Some(Parameter::Cursor) => {
                    once(cursor_seen, Code::InvalidQuery, "cursor is given twice")?;
                    cursor_seen = true;
                    parsed.cursor = short_value(value, &mut buffer).and_then(super::cursor::parse);
                }
                Some(Parameter::MaxBytes) => {
                    once(parsed.max_bytes.is_some(), Code::InvalidMaxBytes, "max_bytes is given twice")?;
                    let value = short_value(value, &mut buffer).and_then(digits::parse_u64);
                    parsed.max_bytes = match value {
                        Some(n) if n > 0 => Some(n),
                        _ => {
                            return Err(Problem::fixed(
                                Code::InvalidMaxBytes,
                                "max_bytes is a positive integer",
                            ));
                        }
                    };
                }
                Some(Parameter::Record(parameter)) => {
                    parsed.records.take(parameter, short_value(value, &mut buffer))?;
                }
                None => {}
            }
        }
        parsed.records.check(parsed.offset.is_some(), parsed.max_bytes.is_some())?;
        Ok(parsed)
    }

    /// Where the read starts. `Last-Event-ID` counts only with `live=sse` and wins over the rest (decision 30); a live
    /// read needs an offset or a record (base protocol 5.7, 5.8); without one a plain read starts at the start.
    pub fn start(&self, last_event_id: Option<&[u8]>) -> Result<StartArg, Problem> {
        if let (Some(Live::Sse), Some(id)) = (self.live, last_event_id) {
            return OffsetArg::parse(id)
                .map(StartArg::Offset)
                .map_err(|_| Problem::fixed(Code::InvalidOffset, "Last-Event-ID is not an offset"));
        }
        match (self.offset, self.records.start, self.live) {
            (Some(offset), _, _) => Ok(StartArg::Offset(offset)),
            (None, Some(start), _) => Ok(StartArg::Record(start)),
            (None, None, Some(_)) => Err(Problem::fixed(
                Code::OffsetRequired,
                "a live read needs an offset, or a record to start at",
            )),
            (None, None, None) => Ok(StartArg::Offset(OffsetArg::Start)),
        }
    }
}

/// Whether a query, still encoded, has `live`, with any value: for what cannot be followed.
pub fn has_live(query: Option<&[u8]>) -> bool {
    pairs(query.unwrap_or_default()).any(|(name, _)| matches!(parameter(name), Some(Parameter::Live)))
}

/// The `record` that a query, still encoded, names; other parameters say nothing.
pub fn record(query: Option<&[u8]>) -> Result<Option<RecordStart>, Problem> {
    let mut records = RecordQuery::default();
    let mut buffer = [0; VALUE_BYTES_MAX];
    for (name, value) in pairs(query.unwrap_or_default()) {
        if let Some(Parameter::Record(records::Parameter::Record)) = parameter(name) {
            once(records.start.is_some(), Code::ConflictingStart, "record is given twice")?;
            records.take(records::Parameter::Record, short_value(value, &mut buffer))?;
        }
    }
    Ok(records.start)
}

/// Bytes of the longest value that a parameter of a read can have; longer ones are malformed.
const VALUE_BYTES_MAX: usize = 64;

/// The parameters of a read.
enum Parameter {
    Offset,
    Live,
    Cursor,
    MaxBytes,
    Record(records::Parameter),
}

/// The parameter that a name, still encoded, stands for.
fn parameter(name: &[u8]) -> Option<Parameter> {
    let mut buffer = [0; VALUE_BYTES_MAX];
    Some(match short_value(name, &mut buffer)? {
        b"offset" => Parameter::Offset,
        b"live" => Parameter::Live,
        b"cursor" => Parameter::Cursor,
        b"max_bytes" => Parameter::MaxBytes,
        name => Parameter::Record(records::Parameter::of(name)?),
    })
}

/// The decoded text: `text` itself, or decoded into `buffer`. `None` if it is malformed or too long.
fn short_value<'a>(text: &'a [u8], buffer: &'a mut [u8; VALUE_BYTES_MAX]) -> Option<&'a [u8]> {
    if !percent::is_encoded(text, Plus::Space) {
        return Some(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    percent::decode(&mut decoded, text, Plus::Space).ok()?;
    let slot = buffer.get_mut(..decoded.len())?;
    slot.copy_from_slice(&decoded);
    Some(slot)
}

/// The `name=value` pairs of a query; a name alone has an empty value.
fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        match pair.iter().position(|&byte| byte == b'=') {
            Some(end) => (&pair[..end], &pair[end + 1..]),
            None => (pair, &pair[pair.len()..]),
        }
    })
}

/// Refuses a parameter that was `seen` before.
fn once(seen: bool, code: Code, message: &'static str) -> Result<(), Problem> {
    if seen { Err(Problem::fixed(code, message)) } else { Ok(()) }
}

/// The parameters of a bucket's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery<'a> {
    /// `prefix`: only stream ids that start with it. Empty if absent.
    pub prefix: Cow<'a, [u8]>,
    /// `after`: only stream ids after it. Empty if absent.
    pub after: Cow<'a, [u8]>,
    /// `limit`: streams on the page.
    pub limit: usize,
}

impl<'a> ListQuery<'a> {
    /// Parses the query of a listing: what follows the question mark, still encoded.
    pub fn parse(query: Option<&'a [u8]>) -> Result<Self, Problem> {
        let (mut prefix, mut after, mut limit) = (None, None, None);
        let mut buffer = [0; VALUE_BYTES_MAX];
        for (name, value) in pairs(query.unwrap_or_default()) {
            match short_value(name, &mut buffer).unwrap_or_default() {
                b"prefix" => {
                    once(prefix.is_some(), Code::InvalidQuery, "prefix is given twice")?;
                    prefix = Some(text_value(value)?);
                }
                b"after" => {
                    once(after.is_some(), Code::InvalidQuery, "after is given twice")?;
                    after = Some(text_value(value)?);
                }
                b"limit" => {
                    once(limit.is_some(), Code::InvalidLimit, "limit is given twice")?;
                    limit = match digits::parse_u64(&text_value(value)?) {
                        Some(n) if (1..=LISTING_PAGE_MAX as u64).contains(&n) => Some(n as usize),
                        _ => {
                            return Err(Problem::fixed(
                                Code::InvalidLimit,
                                "limit is an integer from 1 to 1000",
                            ));
                        }
                    };
                }
                _ => {}
            }
        }
        Ok(Self {
            prefix: prefix.unwrap_or_default(),
            after: after.unwrap_or_default(),
            limit: limit.unwrap_or(LISTING_PAGE_MAX),
        })
    }
}

/// The decoded text of a listing's parameter: UTF-8, because stream ids are.
fn text_value(value: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
    let decoded = if percent::is_encoded(value, Plus::Space) {
        let mut out = Vec::with_capacity(value.len());
        percent::decode(&mut out, value, Plus::Space).map_err(|percent::Malformed| {
            Problem::fixed(Code::InvalidQuery, "the query has a bad percent escape")
        })?;
        Cow::Owned(out)
    } else {
        Cow::Borrowed(value)
    };
    match std::str::from_utf8(&decoded) {
        Ok(_) => Ok(decoded),
        Err(_) => Err(Problem::fixed(Code::InvalidQuery, "the query is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(query: &str) -> Result<ReadQuery, Code> {
        ReadQuery::parse(Some(query.as_bytes())).map_err(|problem| problem.code)
    }

    #[test]
    fn reads() {
        let none = ReadQuery::default();
        let by = |start| ReadQuery { records: RecordQuery { start: Some(start), ..none.records }, ..none };
        let table: &[(&str, ReadQuery)] = &[
            ("", none),
            ("&&", none),
            ("offset=-1", ReadQuery { offset: Some(OffsetArg::Start), ..none }),
            (
                "offset=now&live=sse",
                ReadQuery { offset: Some(OffsetArg::Now), live: Some(Live::Sse), ..none },
            ),
            ("live=long%2dpoll", ReadQuery { live: Some(Live::LongPoll), ..none }),
            ("%6fffset=5", ReadQuery { offset: Some(OffsetArg::Plain(5)), ..none }),
            (
                "cursor=1000&offset=0000000000000007%5F0000000000000009",
                ReadQuery {
                    cursor: Some(1000),
                    offset: Some(OffsetArg::Token { lineage: 7, offset: 9 }),
                    ..none
                },
            ),
            // A cursor is an opaque echo: one that no server gave out is as if absent.
            ("cursor=abc", none),
            ("cursor=", none),
            ("max_bytes=1", ReadQuery { max_bytes: Some(1), ..none }),
            ("record=1", by(RecordStart::At(1))),
            ("%72ecord=n%6fw", by(RecordStart::Tail(0))),
            ("tail_records=1", by(RecordStart::Tail(1))),
            (
                "max_records=5&record_view=envelope&record=1&live=sse",
                ReadQuery {
                    live: Some(Live::Sse),
                    records: RecordQuery {
                        start: Some(RecordStart::At(1)),
                        max_records: Some(5),
                        envelope: true,
                    },
                    ..none
                },
            ),
            ("foo=bar&foo=baz&x=%zz&Offset=1&offset%=1&=3", none),
        ];
        for (query, expected) in table {
            assert_eq!(read(query), Ok(*expected), "{query}");
        }
        assert_eq!(ReadQuery::parse(None), Ok(none));
    }

    #[test]
    fn reads_that_are_refused() {
        let long = format!("offset={}", "%31".repeat(100));
        let table = [
            ("offset=", Code::InvalidOffset),
            ("offset", Code::InvalidOffset),
            ("offset=0,1", Code::InvalidOffset),
            ("offset=0%201", Code::InvalidOffset),
            ("offset=0+1", Code::InvalidOffset),
            ("offset=%3", Code::InvalidOffset),
            ("offset=a&offset=b", Code::InvalidOffset),
            ("offset=-1&offset=-1", Code::InvalidOffset),
            ("offset=-1&off%73et=-1", Code::InvalidOffset),
            (&long, Code::InvalidOffset),
            ("live=", Code::InvalidLive),
            ("live=true", Code::InvalidLive),
            ("live=SSE", Code::InvalidLive),
            ("live=sse&live=sse", Code::InvalidLive),
            ("cursor=1&cursor=1", Code::InvalidQuery),
            ("cursor=x&cursor=y", Code::InvalidQuery),
            ("max_bytes=0", Code::InvalidMaxBytes),
            ("max_bytes=", Code::InvalidMaxBytes),
            ("max_bytes=-1", Code::InvalidMaxBytes),
            ("max_bytes=1.5", Code::InvalidMaxBytes),
            ("max_bytes=18446744073709551616", Code::InvalidMaxBytes),
            ("max_bytes=1&max_bytes=1", Code::InvalidMaxBytes),
            ("max_bytes=1&tail_records=1", Code::InvalidMaxBytes),
            ("record=1&max_bytes=1", Code::InvalidMaxBytes),
            ("max_records=1&max_bytes=1", Code::InvalidMaxBytes),
            ("offset=0&max_records=1&max_bytes=1", Code::InvalidMaxBytes),
            ("record=1&max_records=1&max_bytes=1", Code::InvalidMaxBytes),
            ("record=", Code::InvalidRecord),
            ("record", Code::InvalidRecord),
            ("record=%3", Code::InvalidRecord),
            ("tail_records=-1", Code::InvalidTailRecords),
            ("record=1&max_records=0", Code::InvalidMaxRecords),
            ("record=1&max_records=1&max_records=1", Code::InvalidMaxRecords),
            ("record=1&record_view=value", Code::InvalidRecordView),
            ("record=1&record_view=envelope&record_view=envelope", Code::InvalidRecordView),
            ("record=1&record=1", Code::ConflictingStart),
            ("record=1&tail_records=1", Code::ConflictingStart),
            ("record=now&tail_records=0", Code::ConflictingStart),
            ("tail_records=1&tail_records=1", Code::ConflictingStart),
            ("record=1&offset=-1", Code::ConflictingStart),
            ("offset=now&tail_records=1", Code::ConflictingStart),
            ("offset=-1&record=0&live=sse", Code::ConflictingStart),
            ("max_records=1", Code::RecordStartRequired),
            ("offset=-1&max_records=1", Code::RecordStartRequired),
            ("offset=-1&record_view=envelope", Code::RecordStartRequired),
            ("live=sse&record_view=envelope", Code::RecordStartRequired),
        ];
        for (query, code) in table {
            assert_eq!(read(query), Err(code), "{query}");
        }
    }

    #[test]
    fn single_parameters() {
        for query in ["live", "live=", "live=x", "a=b&l%69ve=sse&c", "live=1&live=2"] {
            assert!(has_live(Some(query.as_bytes())), "{query}");
        }
        for query in ["", "Live=sse", "a=live", "offset=x&record=y&%zz"] {
            assert!(!has_live(Some(query.as_bytes())), "{query}");
        }
        let record = |query: &str| record(Some(query.as_bytes())).map_err(|problem| problem.code);
        assert_eq!(record("offset=x&live=&record=7&max_bytes=0"), Ok(Some(RecordStart::At(7))));
        assert_eq!(record("re%63ord=now"), Ok(Some(RecordStart::Tail(0))));
        assert_eq!(record("tail_records=7&max_records=0"), Ok(None));
        assert_eq!(record("record=-1"), Err(Code::InvalidRecord));
        assert_eq!(record("record=1&record=1"), Err(Code::ConflictingStart));
    }

    #[test]
    fn where_a_read_starts() {
        let start = |query: &str, last_event_id: Option<&str>| {
            read(query).unwrap().start(last_event_id.map(str::as_bytes)).map_err(|problem| problem.code)
        };
        let offset = StartArg::Offset;
        assert_eq!(start("", None), Ok(offset(OffsetArg::Start)));
        assert_eq!(start("offset=3", None), Ok(offset(OffsetArg::Plain(3))));
        assert_eq!(start("live=sse", None), Err(Code::OffsetRequired));
        assert_eq!(start("live=long-poll", None), Err(Code::OffsetRequired));
        assert_eq!(start("live=sse", Some("7")), Ok(offset(OffsetArg::Plain(7))));
        assert_eq!(start("live=sse&offset=3", Some("7")), Ok(offset(OffsetArg::Plain(7))));
        assert_eq!(start("live=sse&offset=3", Some("x")), Err(Code::InvalidOffset));
        assert_eq!(start("live=sse&offset=3", Some("")), Err(Code::InvalidOffset));
        let at = |ordinal| Ok(StartArg::Record(RecordStart::At(ordinal)));
        assert_eq!(start("record=4", None), at(4));
        assert_eq!(start("live=sse&record=4", None), at(4));
        assert_eq!(start("live=long-poll&tail_records=4", None), Ok(StartArg::Record(RecordStart::Tail(4))));
        assert_eq!(start("live=sse&record=4", Some("7")), Ok(offset(OffsetArg::Plain(7))));
        assert_eq!(start("live=sse&tail_records=4", Some("x")), Err(Code::InvalidOffset));
        // Elsewhere the header says nothing.
        assert_eq!(start("live=long-poll&record=4", Some("7")), at(4));
        assert_eq!(start("live=long-poll&offset=3", Some("7")), Ok(offset(OffsetArg::Plain(3))));
        assert_eq!(start("offset=3", Some("x")), Ok(offset(OffsetArg::Plain(3))));
    }

    #[test]
    fn listings() {
        let list =
            |query: &'static str| ListQuery::parse(Some(query.as_bytes())).map_err(|problem| problem.code);
        let expect = |prefix: &str, after: &str, limit| ListQuery {
            prefix: Cow::Owned(prefix.as_bytes().to_vec()),
            after: Cow::Owned(after.as_bytes().to_vec()),
            limit,
        };
        assert_eq!(ListQuery::parse(None), Ok(expect("", "", 1000)));
        assert_eq!(list("prefix=&after="), Ok(expect("", "", 1000)));
        assert_eq!(list("prefix=user-&after=user-2&limit=1"), Ok(expect("user-", "user-2", 1)));
        assert_eq!(list("prefix=a+b%2B%C3%A9&limit=1000"), Ok(expect("a b+\u{e9}", "", 1000)));
        for limit in ["0", "1001", "-1", "", "x", "1e2"] {
            let query = format!("limit={limit}");
            assert_eq!(
                ListQuery::parse(Some(query.as_bytes())).map_err(|problem| problem.code),
                Err(Code::InvalidLimit),
                "{limit}"
            );
        }
        assert_eq!(list("prefix=a&prefix=b"), Err(Code::InvalidQuery));
        assert_eq!(list("after=a&after=a"), Err(Code::InvalidQuery));
        assert_eq!(list("prefix=%C3"), Err(Code::InvalidQuery));
        assert_eq!(list("after=%4"), Err(Code::InvalidQuery));
        assert_eq!(list("other=%4&other=2"), Ok(expect("", "", 1000)));
        assert_eq!(list("%6Cimit=5&%zz=1&limits=0"), Ok(expect("", "", 5)));
    }

    proptest! {
        #[test]
        fn any_query_is_parsed_without_panic(query in "[a-z_=&%+0-9]{0,60}", raw: Vec<u8>) {
            let _ = read(&query);
            let _ = ReadQuery::parse(Some(&raw));
            let _ = ListQuery::parse(Some(&raw));
        }
    }
}
