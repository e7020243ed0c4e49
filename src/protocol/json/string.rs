//! The strings of a body: where they end, and that they are well-formed.

use super::byte;
use super::chunk::{self, BYTES};
use super::fault::{Scan, Wanted, fault};

/// Where the string ends whose first byte (behind its opening quote) is at `at`: behind its closing quote.
#[inline(always)]
pub(super) fn end(body: &[u8], at: usize) -> Scan<usize> {
    // Most are short and plain.
    let Some(chunk) = chunk_at(body, at) else { return rest(body, at) };
    match chunk::stops(chunk).trailing_zeros() as usize {
        first @ 0..BYTES if chunk[first] == b'"' => Ok(at + first + 1),
        0..BYTES => rest(body, at),
        _ => rest(body, at + BYTES),
    }
}

/// The same, for strings of any kind.
#[inline(never)]
fn rest(body: &[u8], mut at: usize) -> Scan<usize> {
    let mut plain_chunks = 0;
    'chunks: while let Some(chunk) = chunk_at(body, at) {
        let mut stops = chunk::stops(chunk);
        while stops != 0 {
            let place = stops.trailing_zeros() as usize;
            match chunk[place] {
                b'"' => return Ok(at + place + 1),
                // An escape of two bytes, both in the chunk: on with what the chunk has behind it.
                b'\\' if chunk.get(place + 1).is_some_and(|&byte| is_short_escape(byte)) => {
                    stops &= u32::MAX << (place + 2);
                }
                _ => {
                    at = behind_stop(body, at + place)?;
                    if byte(body, at) == b'"' {
                        return Ok(at + 1);
                    }
                    plain_chunks = 0;
                    continue 'chunks;
                }
            }
        }
        at += BYTES;
        plain_chunks += 1;
        if plain_chunks == 2 {
            // Long enough that it may well be longer.
            at = skip_plain(body, at);
        }
    }
    // Fewer bytes than a chunk are left of the body.
    loop {
        match body.get(at) {
            None => return fault(Wanted::EndOfString, at),
            Some(b'"') => return Ok(at + 1),
            Some(&byte) if chunk::is_stop(byte) => at = behind_stop(body, at)?,
            Some(_) => at += 1,
        }
    }
}

/// The bytes of a chunk at `at`, if there are so many.
#[inline(always)]
fn chunk_at(body: &[u8], at: usize) -> Option<&[u8; BYTES]> {
    body.get(at..)?.first_chunk()
}

/// Skips plain bytes by four chunks, as long as there are so many.
#[inline(always)]
fn skip_plain(body: &[u8], mut at: usize) -> usize {
    while let Some(four) = body.get(at..).and_then(|rest| rest.first_chunk::<{ 4 * BYTES }>()) {
        if !chunk::is_plain(four) {
            break;
        }
        at += 4 * BYTES;
    }
    at
}

/// Where it goes on behind what stops the scan at `at` and is no quote.
#[inline]
fn behind_stop(body: &[u8], at: usize) -> Scan<usize> {
    match body[at] {
        b'\\' => escape(body, at),
        0x80.. => beyond_ascii(body, at),
        _ => fault(Wanted::NoControl, at),
    }
}

/// Whether a byte behind a backslash makes an escape of two bytes.
#[inline(always)]
fn is_short_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// Where the escape at `at` ends. Surrogates stand for themselves: RFC 8259 8.2 allows lone ones.
#[inline]
fn escape(body: &[u8], at: usize) -> Scan<usize> {
    let digits = || body.get(at + 2..at + 6);
    match byte(body, at + 1) {
        byte if is_short_escape(byte) => Ok(at + 2),
        b'u' if digits().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => Ok(at + 6),
        _ => fault(Wanted::Escape, at),
    }
}

/// Where text that begins beyond ASCII ends: at the next quote, backslash or control character.
#[inline(never)]
fn beyond_ascii(body: &[u8], at: usize) -> Scan<usize> {
    let end = end_of_text(body, at);
    match std::str::from_utf8(&body[at..end]) {
        Ok(_) => Ok(end),
        Err(error) => fault(Wanted::Utf8, at + error.valid_up_to()),
    }
}

/// The first quote, backslash or control character at or after `at`, or the end of the body.
fn end_of_text(body: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = chunk_at(body, at) {
        match chunk::delimiters(chunk).trailing_zeros() as usize {
            found @ 0..BYTES => return at + found,
            _ => at += BYTES,
        }
    }
    at + body[at..].iter().position(|&byte| chunk::is_delimiter(byte)).unwrap_or(body.len() - at)
}
