//! The chunked transfer coding of a request body (RFC 9112, 7.1), read strictly.
//!
//! A chunk's size is hexadecimal digits at once followed by CRLF or by extensions; every line ends in CRLF; a bare CR
//! or LF is nowhere. Extensions and trailers are checked, bounded and dropped. The decoder takes input in pieces of
//! any size, gives back where the body ended, and copies each data byte once.

use super::head::{is_token_byte, is_value_byte};
use super::problem::BodyProblem;
use crate::limits::{CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};
use crate::protocol::digits::hex_value;

/// What became of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of the input that belong to the body; when `done`, the next request begins behind them.
    pub consumed: usize,
    /// Whether the body is complete.
    pub done: bool,
}

/// The byte that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// First digit of a size: there must be one.
    SizeStart,
    /// Another digit, an extension or the end of the line.
    Size,
    /// Inside the extensions.
    Extension,
    /// LF after the CR of a size's line.
    SizeLf,
    /// Data.
    Data,
    /// CR after a chunk's data.
    DataCr,
    /// LF after that CR.
    DataLf,
    /// First byte of a trailer's line, or of the empty line that ends the body.
    TrailerStart,
    /// Inside a trailer's name.
    TrailerName,
    /// Inside a trailer's value.
    TrailerValue,
    /// LF after the CR of a trailer's line.
    TrailerLf,
    /// LF after the CR of the last, empty line.
    EndLf,
    /// Nothing: the body is complete.
    Done,
}

/// Decodes one chunked body that arrives in pieces. After a problem it must not be used again.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// Size of the present chunk while its line is read, then the bytes of it that are still to come.
    chunk_bytes: u64,
    /// Bytes of data that may still come in later chunks.
    room_bytes: u64,
    /// Bytes of the present line that gives a size.
    line_bytes: usize,
    /// Bytes of extensions so far.
    extension_bytes: usize,
    /// Bytes of the trailer section so far.
    trailer_bytes: usize,
}

impl ChunkedDecoder {
    /// A decoder that refuses a body of more than `max_bytes`.
    pub const fn new(max_bytes: u64) -> ChunkedDecoder {
        ChunkedDecoder {
            state: State::SizeStart,
            chunk_bytes: 0,
            room_bytes: max_bytes,
            line_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
        }
    }

    /// Decodes input, appending data to `out`, until the body is complete or the input is used up.
    ///
    /// Input behind the body's end is left alone. When it fails, `out` may have grown by data before the fault.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Fed, BodyProblem> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let left = input.len() - at;
                let take = usize::try_from(self.chunk_bytes).map_or(left, |chunk| chunk.min(left));
                out.extend_from_slice(&input[at..at + take]);
                at += take;
                self.chunk_bytes -= take as u64;
                if self.chunk_bytes == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.state = self.step(input[at])?;
                at += 1;
            }
        }
        Ok(Fed { consumed: at, done: self.state == State::Done })
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The state after one byte that is not data.
    fn step(&mut self, byte: u8) -> Result<State, BodyProblem> {
        match self.state {
            State::SizeStart | State::Size | State::Extension | State::SizeLf => self.step_size(byte),
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::SizeStart),
            State::DataCr | State::DataLf => Err(BodyProblem::ChunkEnd),
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLf
            | State::EndLf => self.step_trailer(byte),
            State::Data | State::Done => unreachable!("no single byte is stepped over in {:?}", self.state),
        }
    }

    /// `chunk-size [chunk-ext] CRLF`
    fn step_size(&mut self, byte: u8) -> Result<State, BodyProblem> {
        self.line_bytes += 1;
        if self.line_bytes > CHUNK_LINE_BYTES_MAX {
            return Err(BodyProblem::ChunkExtension);
        }
        match (self.state, byte) {
            (State::SizeStart, _) => {
                self.chunk_bytes = u64::from(hex_value(byte).ok_or(BodyProblem::ChunkSize)?);
                Ok(State::Size)
            }
            (State::Size | State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Size, b';') => Ok(State::Extension),
            (State::Size, _) => {
                let digit = hex_value(byte).ok_or(BodyProblem::ChunkSize)?;
                if self.chunk_bytes >> 60 != 0 {
                    return Err(BodyProblem::ChunkSize); // beyond 64 bits
                }
                self.chunk_bytes = self.chunk_bytes << 4 | u64::from(digit);
                Ok(State::Size)
            }
            (State::Extension, _) => {
                self.extension_bytes += 1;
                if self.extension_bytes > CHUNK_EXTENSION_BYTES_MAX {
                    return Err(BodyProblem::ChunkExtension);
                }
                if is_value_byte(byte) { Ok(State::Extension) } else { Err(BodyProblem::ChunkSize) }
            }
            (State::SizeLf, b'\n') => self.begin_chunk(),
            _ => Err(BodyProblem::ChunkSize),
        }
    }

    /// The line of a chunk's size is complete.
    fn begin_chunk(&mut self) -> Result<State, BodyProblem> {
        self.line_bytes = 0;
        if self.chunk_bytes == 0 {
            return Ok(State::TrailerStart);
        }
        self.room_bytes = self.room_bytes.checked_sub(self.chunk_bytes).ok_or(BodyProblem::TooLarge)?;
        Ok(State::Data)
    }

    /// `*( field-line CRLF ) CRLF`
    fn step_trailer(&mut self, byte: u8) -> Result<State, BodyProblem> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(BodyProblem::TrailerTooLarge);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => Ok(State::TrailerName),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_value_byte(byte) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            _ => Err(BodyProblem::Trailer),
        }
    }
}

#[cfg(test)]
mod tests;
