//! JSON record coordinates (extension 6): the extension's token, and the parameters of reads by record (6.6, 6.8).

use super::digits;
use super::errors::{Code, Problem};

/// Header line that names the extensions of a stream of records: JSON record coordinates.
pub const EXTENSIONS_LINE: &str = "Stream-Extensions: json-record-coordinates-v1\r\n";

/// Where a read by record starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStart {
    /// `record=<ordinal>`. A number beyond 64 bits is the largest one: it lies beyond every tail.
    At(u64),
    /// `tail_records=<count>`: so many records before the tail, as far as they are retained. `record=now` is none of them.
    Tail(u64),
}

/// The record parameters of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery {
    /// `record` or `tail_records`: the read is record-aware.
    pub start: Option<RecordStart>,
    /// `max_records`: at least 1.
    pub max_records: Option<u64>,
    /// `record_view=envelope`.
    pub envelope: bool,
}

/// A record parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `record`.
    Record,
    /// `tail_records`.
    TailRecords,
    /// `max_records`.
    MaxRecords,
    /// `record_view`.
    RecordView,
}

impl Parameter {
    /// The parameter of this name, already decoded.
    pub fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"record" => Self::Record,
            b"tail_records" => Self::TailRecords,
            b"max_records" => Self::MaxRecords,
            b"record_view" => Self::RecordView,
            _ => return None,
        })
    }
}

impl RecordQuery {
    /// Whether any record parameter was given.
    pub fn is_used(&self) -> bool {
        self.start.is_some() || self.max_records.is_some() || self.envelope
    }

    /// Takes a parameter with its value, already decoded; `None` stands for a value that cannot be decoded.
    /// Malformed or repeated: 400, with a code that names the parameter.
    pub fn take(&mut self, parameter: Parameter, value: Option<&[u8]>) -> Result<(), Problem> {
        match parameter {
            Parameter::Record => {
                let start = match value {
                    Some(b"now") => Some(RecordStart::Tail(0)),
                    text => text.and_then(parse_saturating).map(RecordStart::At),
                };
                let message = "record is a non-negative integer, or now";
                self.set_start(start.ok_or(Problem::fixed(Code::InvalidRecord, message))?)
            }
            Parameter::TailRecords => {
                let message = "tail_records is a non-negative integer";
                let count = value.and_then(parse_saturating);
                let count = count.ok_or(Problem::fixed(Code::InvalidTailRecords, message))?;
                self.set_start(RecordStart::Tail(count))
            }
            Parameter::MaxRecords => {
                if self.max_records.is_some() {
                    return Err(Problem::fixed(Code::InvalidMaxRecords, "max_records is given twice"));
                }
                self.max_records = value.and_then(parse_saturating).filter(|count| *count > 0);
                match self.max_records {
                    Some(_) => Ok(()),
                    None => {
                        let message = "max_records is a positive integer";
                        Err(Problem::fixed(Code::InvalidMaxRecords, message))
                    }
                }
            }
            Parameter::RecordView => {
                if self.envelope {
                    return Err(Problem::fixed(Code::InvalidRecordView, "record_view is given twice"));
                }
                self.envelope = value == Some(b"envelope");
                match self.envelope {
                    true => Ok(()),
                    false => {
                        Err(Problem::fixed(Code::InvalidRecordView, "record_view is envelope, or absent"))
                    }
                }
            }
        }
    }

    fn set_start(&mut self, start: RecordStart) -> Result<(), Problem> {
        match self.start.replace(start) {
            None => Ok(()),
            Some(_) => Err(CONFLICTING_START),
        }
    }

    /// Checks what the parameters of a read say together: one start, and nothing of a read by record without it (6.6).
    pub fn check(&self, has_offset: bool, has_max_bytes: bool) -> Result<(), Problem> {
        if self.start.is_some() && has_offset {
            return Err(CONFLICTING_START);
        }
        if self.is_used() && has_max_bytes {
            let message = "max_bytes does not go with record parameters: use max_records";
            return Err(Problem::fixed(Code::InvalidMaxBytes, message));
        }
        if self.is_used() && self.start.is_none() {
            let message = "max_records and record_view need record or tail_records";
            return Err(Problem::fixed(Code::RecordStartRequired, message));
        }
        Ok(())
    }
}

/// More than one of the starts that exclude each other.
const CONFLICTING_START: Problem = Problem::fixed(
    Code::ConflictingStart,
    "a read has one start: one of offset, record and tail_records, given once",
);

/// The number that digits spell; `u64::MAX` for all that are larger.
fn parse_saturating(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits::parse_u64(text).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(name: &str, value: &str) -> Result<RecordQuery, Code> {
        let mut query = RecordQuery::default();
        let parameter = Parameter::of(name.as_bytes()).expect("a record parameter");
        query.take(parameter, Some(value.as_bytes())).map(|()| query).map_err(|problem| problem.code)
    }

    #[test]
    fn values() {
        let none = RecordQuery::default();
        let at = |n| RecordQuery { start: Some(RecordStart::At(n)), ..none };
        let tail = |n| RecordQuery { start: Some(RecordStart::Tail(n)), ..none };
        let table = [
            ("record", "0", at(0)),
            ("record", "42", at(42)),
            ("record", "now", tail(0)),
            ("record", "99999999999999999999999", at(u64::MAX)),
            ("tail_records", "0", tail(0)),
            ("tail_records", "100", tail(100)),
            ("tail_records", "18446744073709551616", tail(u64::MAX)),
            ("max_records", "1", RecordQuery { max_records: Some(1), ..none }),
            ("max_records", "18446744073709551616", RecordQuery { max_records: Some(u64::MAX), ..none }),
            ("record_view", "envelope", RecordQuery { envelope: true, ..none }),
        ];
        for (name, value, expected) in table {
            assert_eq!(taken(name, value), Ok(expected), "{name}={value}");
        }
    }

    #[test]
    fn values_that_are_refused() {
        let numbers = ["", "-1", "+1", "1.5", "1e3", "0x1", " 1", "1 ", "x", "NOW", "\u{661}"];
        for value in numbers {
            assert_eq!(taken("record", value), Err(Code::InvalidRecord), "{value:?}");
            assert_eq!(taken("tail_records", value), Err(Code::InvalidTailRecords), "{value:?}");
            assert_eq!(taken("max_records", value), Err(Code::InvalidMaxRecords), "{value:?}");
        }
        assert_eq!(taken("tail_records", "now"), Err(Code::InvalidTailRecords));
        assert_eq!(taken("max_records", "0"), Err(Code::InvalidMaxRecords));
        for value in ["", "Envelope", "value", "envelope,", "true"] {
            assert_eq!(taken("record_view", value), Err(Code::InvalidRecordView), "{value:?}");
        }
        let parameters =
            [Parameter::Record, Parameter::TailRecords, Parameter::MaxRecords, Parameter::RecordView];
        for parameter in parameters {
            assert!(RecordQuery::default().take(parameter, None).is_err(), "{parameter:?}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_taken_without_panic(value: Vec<u8>) {
            for name in ["record", "tail_records", "max_records", "record_view"] {
                let parameter = Parameter::of(name.as_bytes()).expect("a record parameter");
                let _ = RecordQuery::default().take(parameter, Some(&value));
            }
        }
    }
}
