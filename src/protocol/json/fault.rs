//! Why a body is not JSON, and where.

use crate::limits::JSON_DEPTH_MAX;
use crate::protocol::errors::{Code, Problem};

/// What a scan finds, or the fault it met. The fault is boxed so that a place and a verdict are returned in registers.
pub(super) type Scan<T> = Result<T, Box<Fault>>;

/// What a scan met instead of what it wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    wanted: Wanted,
    /// The byte of the body.
    at: usize,
}

/// What a scan wants where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Value,
    Key,
    Colon,
    CommaOrBracket,
    CommaOrBrace,
    Digit,
    NoControl,
    EndOfString,
    Escape,
    Utf8,
    LessDepth,
    End,
}

/// The byte at `at` is not what is wanted.
#[cold]
#[inline(never)]
pub(super) fn fault<T>(wanted: Wanted, at: usize) -> Scan<T> {
    Err(Box::new(Fault { wanted, at }))
}

/// The error for a client.
pub(super) fn problem(fault: &Fault) -> Problem {
    let at = fault.at;
    let what = match fault.wanted {
        Wanted::Value => "expected a value",
        Wanted::Key => "expected a string as key",
        Wanted::Colon => "expected a colon",
        Wanted::CommaOrBracket => "expected a comma or a closing bracket",
        Wanted::CommaOrBrace => "expected a comma or a closing brace",
        Wanted::Digit => "malformed number",
        Wanted::NoControl => "control character in a string",
        Wanted::EndOfString => "the string does not end",
        Wanted::Escape => "malformed escape in a string",
        Wanted::Utf8 => "not UTF-8",
        Wanted::LessDepth => {
            let message = format!("JSON nested deeper than {JSON_DEPTH_MAX} levels at byte {at}");
            return Problem::new(Code::JsonTooDeep, message);
        }
        Wanted::End => "more after the end of the JSON text",
    };
    Problem::new(Code::InvalidJson, format!("invalid JSON at byte {at}: {what}"))
}
