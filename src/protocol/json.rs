//! Splitting a JSON body into canonical records (base protocol 9.1; decision 11).
//!
//! A body is one JSON text (RFC 8259, UTF-8). An array is flattened by exactly one level: each element is a record; any
//! other value is one record. A record keeps its tokens exactly as sent; only insignificant white space goes. Stored
//! records are each followed by one separator byte, a comma, so `[` + the canonical bytes without their last comma + `]`
//! is a JSON array, and the inside of a compact array body is already canonical.
//!
//! One pass over the bytes decides validity, cuts the records and finds the white space; a body without any (the common
//! case) is not copied at all. This runs on every JSON append, so it is written by hand: strings are scanned sixteen
//! bytes at a time, nesting is a stack of bits, and errors are made only when there is one.
//!
//! Invariants:
//! - `scratch` holds the canonical bytes of `body[start..copied]`, `start` being where the first record begins;
//! - `stripped` counts the bytes of white space in that range;
//! - outside strings, every byte between `copied` and `at` belongs to a token.

use super::errors::{Code, Problem};
use crate::limits::JSON_DEPTH_MAX;

/// Whether a body without records (`[]`) is fine: on a create it is, on an append it is not (base protocol 9.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowEmpty {
    /// `[]` adds nothing.
    Yes,
    /// `[]` is 400 `EMPTY_ARRAY`.
    No,
}

/// Validates `body` and cuts it into records.
///
/// Returns their canonical bytes joined by commas, *without* the last separator: a part of `body` if no white space had
/// to be cut out, otherwise `scratch`. `lengths` (cleared first) gets the length of each record *with* its separator, so
/// their sum is the returned length plus one, or both are empty.
///
/// Errors: 400 `INVALID_JSON`, `JSON_TOO_DEEP` or `EMPTY_ARRAY`, with the byte at fault.
pub fn split<'a>(
    body: &'a [u8],
    scratch: &'a mut Vec<u8>,
    lengths: &mut Vec<u32>,
    empty: AllowEmpty,
) -> Result<&'a [u8], Problem> {
    assert!(u32::try_from(body.len()).is_ok_and(|len| len < u32::MAX), "a body of {} bytes", body.len());
    scratch.clear();
    lengths.clear();
    if let Err(error) = std::str::from_utf8(body) {
        return Err(not_utf8(error.valid_up_to()));
    }
    let mut scanner = Scanner { body, at: skip_space(body, 0), copied: 0, stripped: 0, scratch };
    let (start, end) = scanner.records(lengths).map_err(|fault| problem(fault, scanner.at))?;
    let Scanner { copied, scratch, .. } = scanner;
    if lengths.is_empty() {
        return match empty {
            AllowEmpty::Yes => Ok(&[]),
            AllowEmpty::No => Err(Problem::fixed(Code::EmptyArray, "an empty JSON array appends nothing")),
        };
    }
    if scratch.is_empty() {
        return Ok(&body[start..end]);
    }
    scratch.extend_from_slice(&body[copied..end]);
    Ok(scratch)
}

/// What a scan met instead of what it needed; where is the scanner's `at`.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Value,
    Key,
    Colon,
    CommaOrBracket,
    CommaOrBrace,
    Number,
    ControlInString,
    OpenString,
    Escape,
    TooDeep,
    AfterEnd,
}

/// The error for a client.
#[cold]
fn problem(fault: Fault, at: usize) -> Problem {
    let what = match fault {
        Fault::Value => "expected a value",
        Fault::Key => "expected a string as key",
        Fault::Colon => "expected a colon",
        Fault::CommaOrBracket => "expected a comma or a closing bracket",
        Fault::CommaOrBrace => "expected a comma or a closing brace",
        Fault::Number => "malformed number",
        Fault::ControlInString => "control character in a string",
        Fault::OpenString => "the string does not end",
        Fault::Escape => "malformed escape in a string",
        Fault::TooDeep => {
            return Problem::new(
                Code::JsonTooDeep,
                format!("JSON nested deeper than {JSON_DEPTH_MAX} levels at byte {at}"),
            );
        }
        Fault::AfterEnd => "more after the end of the JSON text",
    };
    Problem::new(Code::InvalidJson, format!("invalid JSON at byte {at}: {what}"))
}

/// The error for a body that is not UTF-8.
#[cold]
fn not_utf8(at: usize) -> Problem {
    Problem::new(Code::InvalidJson, format!("invalid JSON at byte {at}: not UTF-8"))
}

/// The nesting of a value: one bit a level, set for an object.
type Nesting = u128;

const _: () = assert!(JSON_DEPTH_MAX <= Nesting::BITS as usize, "each level of nesting has a bit");

/// A pass over a body.
struct Scanner<'b, 's> {
    body: &'b [u8],
    /// The next byte to look at.
    at: usize,
    /// The bytes before this one are in `scratch`, were stripped, or precede the first record.
    copied: usize,
    /// Bytes of white space stripped so far.
    stripped: usize,
    scratch: &'s mut Vec<u8>,
}

impl Scanner<'_, '_> {
    /// All records of the body; where the first begins and the last ends.
    fn records(&mut self, lengths: &mut Vec<u32>) -> Result<(usize, usize), Fault> {
        if self.byte(self.at) != b'[' {
            let start = self.at;
            self.copied = start;
            let end = self.record(lengths)?;
            self.finish(end)?;
            return Ok((start, end));
        }
        self.at = skip_space(self.body, self.at + 1);
        let start = self.at;
        self.copied = start;
        if self.byte(start) == b']' {
            self.finish(start + 1)?;
            return Ok((start, start));
        }
        loop {
            let end = self.record(lengths)?;
            // White space before the closing bracket is behind the last record: it is left, not cut out.
            self.at = skip_space(self.body, end);
            match self.byte(self.at) {
                b',' => {
                    if self.at != end {
                        self.strip(end, self.at);
                    }
                    self.at += 1;
                    self.space();
                }
                b']' => {
                    self.finish(self.at + 1)?;
                    return Ok((start, end));
                }
                _ => return Err(Fault::CommaOrBracket),
            }
        }
    }

    /// Nothing but white space may follow the JSON text, which ends at `end`.
    fn finish(&mut self, end: usize) -> Result<(), Fault> {
        self.at = skip_space(self.body, end);
        if self.at == self.body.len() { Ok(()) } else { Err(Fault::AfterEnd) }
    }

    /// One record; returns where it ends, with `at` there.
    #[inline]
    fn record(&mut self, lengths: &mut Vec<u32>) -> Result<usize, Fault> {
        let (start, stripped) = (self.at, self.stripped);
        self.value()?;
        let bytes = self.at - start - (self.stripped - stripped);
        lengths.push(bytes as u32 + 1);
        Ok(self.at)
    }

    /// One value, white space within it cut out.
    #[inline]
    fn value(&mut self) -> Result<(), Fault> {
        let mut nesting: Nesting = 0;
        let mut depth = 0;
        'value: loop {
            // A value starts here.
            match self.byte(self.at) {
                b'"' => self.string()?,
                b'{' => {
                    depth = deeper(depth)?;
                    nesting = nesting << 1 | 1;
                    self.at += 1;
                    self.space();
                    if self.byte(self.at) != b'}' {
                        self.key()?;
                        continue 'value;
                    }
                    depth -= 1;
                    nesting >>= 1;
                    self.at += 1;
                }
                b'[' => {
                    depth = deeper(depth)?;
                    nesting <<= 1;
                    self.at += 1;
                    self.space();
                    if self.byte(self.at) != b']' {
                        continue 'value;
                    }
                    depth -= 1;
                    nesting >>= 1;
                    self.at += 1;
                }
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => return Err(Fault::Value),
            }
            // A value ended here: go on within what holds it.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.space();
                let in_object = nesting & 1 == 1;
                match self.byte(self.at) {
                    b',' => {
                        self.at += 1;
                        self.space();
                        if in_object {
                            self.key()?;
                        }
                        continue 'value;
                    }
                    b'}' if in_object => {}
                    b']' if !in_object => {}
                    _ if in_object => return Err(Fault::CommaOrBrace),
                    _ => return Err(Fault::CommaOrBracket),
                }
                depth -= 1;
                nesting >>= 1;
                self.at += 1;
            }
        }
    }

    /// The byte at `at`, or NUL (which no token holds) past the end.
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.body.get(at).copied().unwrap_or(0)
    }

    /// Cuts out white space at `at`.
    #[inline(always)]
    fn space(&mut self) {
        if self.byte(self.at) <= b' ' {
            let end = skip_space(self.body, self.at);
            self.strip(self.at, end);
            self.at = end;
        }
    }

    /// Cuts out `body[from..to]`, which is white space.
    #[cold]
    fn strip(&mut self, from: usize, to: usize) {
        self.scratch.extend_from_slice(&self.body[self.copied..from]);
        self.stripped += to - from;
        self.copied = to;
    }

    /// A key and its colon; `at` is then at the value.
    #[inline(always)]
    fn key(&mut self) -> Result<(), Fault> {
        if self.byte(self.at) != b'"' {
            return Err(Fault::Key);
        }
        self.string()?;
        self.space();
        if self.byte(self.at) != b':' {
            return Err(Fault::Colon);
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// A string; `at` is at its opening quote.
    #[inline(always)]
    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            self.at = find_special(self.body, self.at);
            match self.body.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(Fault::ControlInString),
                None => return Err(Fault::OpenString),
            }
        }
    }

    /// An escape; `at` is at its backslash. Surrogates stand for themselves: RFC 8259 8.2 allows lone ones.
    #[inline]
    fn escape(&mut self) -> Result<(), Fault> {
        match self.byte(self.at + 1) {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 2;
                Ok(())
            }
            b'u' => match self.body.get(self.at + 2..self.at + 6) {
                Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
                    self.at += 6;
                    Ok(())
                }
                _ => Err(Fault::Escape),
            },
            _ => Err(Fault::Escape),
        }
    }

    /// A number: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
    #[inline]
    fn number(&mut self) -> Result<(), Fault> {
        if self.byte(self.at) == b'-' {
            self.at += 1;
        }
        if self.byte(self.at) == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte(self.at) == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(self.at), b'e' | b'E') {
            self.at += 1;
            if matches!(self.byte(self.at), b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        // `01` and `1x` fall to whoever reads on: neither a digit nor a letter may follow a value.
        Ok(())
    }

    /// At least one digit.
    #[inline(always)]
    fn digits(&mut self) -> Result<(), Fault> {
        if !self.byte(self.at).is_ascii_digit() {
            return Err(Fault::Number);
        }
        while self.byte(self.at).is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    /// `true`, `false` or `null`.
    #[inline(always)]
    fn literal(&mut self, text: &'static [u8]) -> Result<(), Fault> {
        if !self.body[self.at..].starts_with(text) {
            return Err(Fault::Value);
        }
        self.at += text.len();
        Ok(())
    }
}

/// One level further down.
#[inline(always)]
fn deeper(depth: usize) -> Result<usize, Fault> {
    if depth == JSON_DEPTH_MAX { Err(Fault::TooDeep) } else { Ok(depth + 1) }
}

/// The first byte at or after `at` that is no JSON white space.
fn skip_space(body: &[u8], at: usize) -> usize {
    let rest = &body[at..];
    at + rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).unwrap_or(rest.len())
}

/// Whether a byte ends a run of plain bytes in a string: a quote, a backslash, a control character.
#[inline(always)]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The first special byte at or after `at`, or the end of the body.
#[inline(always)]
fn find_special(body: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(chunk) = body.get(at..).and_then(|rest| rest.first_chunk::<{ chunk::BYTES }>()) {
        match chunk::first_special(chunk) {
            chunk::BYTES => at += chunk::BYTES,
            found => return at + found,
        }
    }
    at + body[at..].iter().position(|&byte| is_special(byte)).unwrap_or(body.len() - at)
}

/// Turns canonical bytes into NDJSON where they stand: each separator becomes a line feed. `lengths` are the records'
/// lengths, separators included, and add up to the bytes.
pub fn separators_to_lines(canonical: &mut [u8], lengths: impl Iterator<Item = u32>) {
    let mut end = 0;
    for length in lengths {
        end += length as usize;
        assert_eq!(canonical[end - 1], b',', "a separator at {} of {}", end - 1, canonical.len());
        canonical[end - 1] = b'\n';
    }
    assert_eq!(end, canonical.len(), "records fill the page");
}

mod chunk;

#[cfg(test)]
mod tests;
