//! Splitting a JSON body into canonical records (base protocol 9.1; decision 11).
//!
//! A body is one JSON text (RFC 8259, UTF-8). An array is flattened by exactly one level: each element is a record; any
//! other value is one record. A record keeps its tokens exactly as sent; only insignificant white space goes. Stored
//! records are each followed by one separator byte, a comma, so `[` + the canonical bytes without their last comma + `]`
//! is a JSON array, and the inside of a compact array body is already canonical.
//!
//! One pass over the bytes decides validity, cuts the records and finds the white space; a body without any (the common
//! case) is not copied at all. This runs on every JSON append, so it is written by hand: strings are scanned sixteen
//! bytes at a time, and what is not ASCII stops the scan, so that only text beyond ASCII is checked for UTF-8; the place
//! in the body stays in a register; nesting is a stack of bits; errors are made only when there is one.
//!
//! Invariants:
//! - `scratch[..written]` holds the canonical bytes of `body[start..copied]`, `start` being where the first record begins;
//! - `stripped` counts the bytes of white space in that range;
//! - outside strings, every byte between `copied` and the place that was reached belongs to a token;
//! - every byte of 0x80 or more before that place is part of valid UTF-8.

use super::errors::{Code, Problem};
use crate::limits::JSON_DEPTH_MAX;
use fault::{Scan, Wanted, fault, problem};

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
/// Returns their canonical bytes joined by commas, *without* the last separator: a part of `body` if no white space had to be
/// cut out, otherwise of `scratch`, whose content is nobody else's business. `lengths` (cleared first) gets the length of each
/// record *with* its separator, so their sum is the returned length plus one, or both are empty.
///
/// Errors: 400 `INVALID_JSON`, `JSON_TOO_DEEP` or `EMPTY_ARRAY`, with the byte at fault.
pub fn split<'a>(
    body: &'a [u8],
    scratch: &'a mut Vec<u8>,
    lengths: &mut Vec<u32>,
    empty: AllowEmpty,
) -> Result<&'a [u8], Problem> {
    assert!(u32::try_from(body.len()).is_ok_and(|len| len < u32::MAX), "a body of {} bytes", body.len());
    lengths.clear();
    let mut splitter = Splitter { body, lengths, copied: 0, stripped: 0, scratch, written: 0 };
    let (start, end) = splitter.records().map_err(|fault| problem(&fault))?;
    if splitter.lengths.is_empty() {
        return match empty {
            AllowEmpty::Yes => Ok(&[]),
            AllowEmpty::No => Err(Problem::fixed(Code::EmptyArray, "an empty JSON array appends nothing")),
        };
    }
    if splitter.stripped == 0 {
        return Ok(&body[start..end]);
    }
    splitter.keep(end);
    let Splitter { scratch, written, .. } = splitter;
    Ok(&scratch[..written])
}

/// The nesting of a value: one bit a level, set for an object.
type Nesting = u128;

const _: () = assert!(JSON_DEPTH_MAX <= Nesting::BITS as usize, "each level of nesting has a bit");

/// A pass over a body.
struct Splitter<'b, 's, 'l> {
    body: &'b [u8],
    lengths: &'l mut Vec<u32>,
    /// The bytes before this one are in `scratch`, were stripped, or precede the first record.
    copied: usize,
    /// Bytes of white space stripped so far.
    stripped: usize,
    /// Memory for what cannot stay in the body; grown when the first white space is met.
    scratch: &'s mut Vec<u8>,
    /// Bytes of it that are used.
    written: usize,
}

impl Splitter<'_, '_, '_> {
    /// All records of the body; where the first begins and the last ends.
    fn records(&mut self) -> Scan<(usize, usize)> {
        let body = self.body;
        let first = skip_space(body, 0);
        if byte(body, first) != b'[' {
            self.copied = first;
            let end = self.record(first)?;
            self.finish(end)?;
            return Ok((first, end));
        }
        let start = skip_space(body, first + 1);
        self.copied = start;
        if byte(body, start) == b']' {
            self.finish(start + 1)?;
            return Ok((start, start));
        }
        let mut at = start;
        loop {
            let end = self.record(at)?;
            // White space before the closing bracket is behind the last record: it is left, not cut out.
            at = skip_space(body, end);
            match byte(body, at) {
                b',' => {
                    if at != end {
                        self.strip(end, at);
                    }
                    at = self.space(at + 1);
                }
                b']' => {
                    self.finish(at + 1)?;
                    return Ok((start, end));
                }
                _ => return fault(Wanted::CommaOrBracket, at),
            }
        }
    }

    /// Nothing but white space may follow the JSON text, which ends at `end`.
    fn finish(&self, end: usize) -> Scan<()> {
        let at = skip_space(self.body, end);
        if at == self.body.len() { Ok(()) } else { fault(Wanted::End, at) }
    }

    /// One record that begins at `at`; returns where it ends.
    #[inline]
    fn record(&mut self, at: usize) -> Scan<usize> {
        let stripped = self.stripped;
        let end = self.value(at)?;
        let bytes = end - at - (self.stripped - stripped);
        self.lengths.push(bytes as u32 + 1);
        Ok(end)
    }

    /// One value, white space within it cut out.
    #[inline]
    fn value(&mut self, mut at: usize) -> Scan<usize> {
        let body = self.body;
        let mut nesting: Nesting = 0;
        let mut depth = 0;
        'value: loop {
            // A value starts here.
            match byte(body, at) {
                b'"' => at = string::end(body, at + 1)?,
                b'{' => {
                    depth = deeper(depth, at)?;
                    nesting = nesting << 1 | 1;
                    at = self.space(at + 1);
                    if byte(body, at) != b'}' {
                        at = self.key(at)?;
                        continue 'value;
                    }
                    (depth, nesting, at) = (depth - 1, nesting >> 1, at + 1);
                }
                b'[' => {
                    depth = deeper(depth, at)?;
                    nesting <<= 1;
                    at = self.space(at + 1);
                    if byte(body, at) != b']' {
                        continue 'value;
                    }
                    (depth, nesting, at) = (depth - 1, nesting >> 1, at + 1);
                }
                b'-' | b'0'..=b'9' => at = number(body, at)?,
                b't' => at = literal(body, at, b"true")?,
                b'f' => at = literal(body, at, b"false")?,
                b'n' => at = literal(body, at, b"null")?,
                _ => return fault(Wanted::Value, at),
            }
            // A value ended here: go on within what holds it.
            while depth > 0 {
                let in_object = nesting & 1 == 1;
                match byte(body, at) {
                    b',' => {
                        at = self.space(at + 1);
                        if in_object {
                            at = self.key(at)?;
                        }
                        continue 'value;
                    }
                    b'}' if in_object => (depth, nesting, at) = (depth - 1, nesting >> 1, at + 1),
                    b']' if !in_object => (depth, nesting, at) = (depth - 1, nesting >> 1, at + 1),
                    b' ' | b'\n' | b'\r' | b'\t' => at = self.strip_space(at),
                    _ if in_object => return fault(Wanted::CommaOrBrace, at),
                    _ => return fault(Wanted::CommaOrBracket, at),
                }
            }
            return Ok(at);
        }
    }

    /// A key and its colon; returns where the value begins.
    #[inline(always)]
    fn key(&mut self, at: usize) -> Scan<usize> {
        if byte(self.body, at) != b'"' {
            return fault(Wanted::Key, at);
        }
        let mut at = string::end(self.body, at + 1)?;
        if byte(self.body, at) != b':' {
            at = self.space(at);
            if byte(self.body, at) != b':' {
                return fault(Wanted::Colon, at);
            }
        }
        Ok(self.space(at + 1))
    }

    /// Cuts out white space at `at`, if there is any; returns where it ends.
    #[inline(always)]
    fn space(&mut self, at: usize) -> usize {
        if byte(self.body, at) <= b' ' { self.strip_space(at) } else { at }
    }

    /// The same where there probably is some.
    #[inline(never)]
    fn strip_space(&mut self, at: usize) -> usize {
        let end = skip_space(self.body, at);
        if end > at {
            self.strip(at, end);
        }
        end
    }

    /// Cuts out `body[from..to]`, which is white space.
    #[inline]
    fn strip(&mut self, from: usize, to: usize) {
        self.keep(from);
        self.stripped += to - from;
        self.copied = to;
    }

    /// Copies what has come before `end` and is kept.
    #[inline]
    fn keep(&mut self, end: usize) {
        /// Bytes that are copied at once: as many as most runs of tokens without a space have.
        const BYTES: usize = 32;
        // Once, for the whole body. What was there before is overwritten before it is read.
        let needed = self.body.len() + BYTES;
        if self.scratch.len() < needed {
            self.scratch.resize(needed, 0);
        }
        let bytes = end - self.copied;
        let target = &mut self.scratch[self.written..];
        match (self.body[self.copied..].first_chunk::<BYTES>(), target.first_chunk_mut::<BYTES>()) {
            // A length that is known is two instructions; what is too much is overwritten by the next copy.
            (Some(source), Some(target)) if bytes <= BYTES => *target = *source,
            _ => target[..bytes].copy_from_slice(&self.body[self.copied..end]),
        }
        self.written += bytes;
        self.copied = end;
    }
}

/// The byte at `at`, or NUL (which no token holds) past the end.
#[inline(always)]
fn byte(body: &[u8], at: usize) -> u8 {
    body.get(at).copied().unwrap_or(0)
}

/// Where the number at `at` ends: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
#[inline]
fn number(body: &[u8], mut at: usize) -> Scan<usize> {
    if byte(body, at) == b'-' {
        at += 1;
    }
    if byte(body, at) == b'0' {
        at += 1;
    } else {
        at = digits(body, at)?;
    }
    if byte(body, at) == b'.' {
        at = digits(body, at + 1)?;
    }
    if matches!(byte(body, at), b'e' | b'E') {
        at += 1;
        if matches!(byte(body, at), b'+' | b'-') {
            at += 1;
        }
        at = digits(body, at)?;
    }
    // `01` and `1x` fall to whoever reads on: neither a digit nor a letter may follow a value.
    Ok(at)
}

/// Where the digits at `at` end, of which there must be one.
#[inline(always)]
fn digits(body: &[u8], mut at: usize) -> Scan<usize> {
    if !byte(body, at).is_ascii_digit() {
        return fault(Wanted::Digit, at);
    }
    while byte(body, at).is_ascii_digit() {
        at += 1;
    }
    Ok(at)
}

/// Where `true`, `false` or `null` ends.
#[inline(always)]
fn literal<const N: usize>(body: &[u8], at: usize, text: &'static [u8; N]) -> Scan<usize> {
    if body[at..].first_chunk() == Some(text) { Ok(at + N) } else { fault(Wanted::Value, at) }
}

/// One level further down.
#[inline(always)]
fn deeper(depth: usize, at: usize) -> Scan<usize> {
    if depth == JSON_DEPTH_MAX { fault(Wanted::LessDepth, at) } else { Ok(depth + 1) }
}

/// The first byte at or after `at` that is no JSON white space.
#[inline]
fn skip_space(body: &[u8], at: usize) -> usize {
    let rest = &body[at..];
    at + rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).unwrap_or(rest.len())
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
mod fault;
mod string;

#[cfg(test)]
mod tests;
