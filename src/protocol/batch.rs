//! Append batches (extension 4; decisions 15 and 16): frames of `u32` big-endian length and payload, each an append of its
//! own; and the JSON array that acknowledges them in order.

use super::digits::write_u64;
use super::errors::{Code, Problem, write_json_string};
use crate::limits::{BATCH_BYTES_MAX, BATCH_FRAMES_MAX};

/// Bytes of a frame's length.
const PREFIX_BYTES: usize = 4;

/// Checks the framing of a whole request body before anything of it is used: a cut frame, an empty one, or none at all
/// is 400 `INVALID_BATCH`; too many frames or bytes are 413 `BATCH_TOO_LARGE`.
pub fn frames(body: &[u8]) -> Result<Frames<'_>, Problem> {
    if body.len() as u64 > BATCH_BYTES_MAX {
        return Err(Problem::fixed(Code::BatchTooLarge, "an append batch has at most 32 MiB"));
    }
    let mut count = 0;
    let mut rest = body;
    while !rest.is_empty() {
        let Some((prefix, after)) = rest.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(Problem::fixed(Code::InvalidBatch, "the last frame is cut within its length"));
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length == 0 {
            return Err(Problem::fixed(Code::InvalidBatch, "a frame is empty"));
        }
        let Some(after) = after.get(length..) else {
            return Err(Problem::fixed(Code::InvalidBatch, "the last frame is cut"));
        };
        if count == BATCH_FRAMES_MAX {
            return Err(Problem::fixed(Code::BatchTooLarge, "an append batch has at most 512 frames"));
        }
        count += 1;
        rest = after;
    }
    if count == 0 {
        return Err(Problem::fixed(Code::InvalidBatch, "an append batch has at least one frame"));
    }
    Ok(Frames { rest: body, count })
}

/// The payloads of a batch whose framing was checked, in order.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (prefix, after) = self.rest.split_first_chunk::<PREFIX_BYTES>()?;
        let (payload, rest) = after.split_at(u32::from_be_bytes(*prefix) as usize);
        self.rest = rest;
        self.count -= 1;
        Some(payload)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Frames<'_> {}

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The stream's end after it; `None` only if an error could not tell.
    pub next_offset: Option<u64>,
    /// On a JSON stream, the ordinals that it was given: the first, and the one after the last.
    pub records: Option<(u64, u64)>,
    /// Whether the stream was found closed.
    pub closed: bool,
    /// Why it failed; `None` if it did not.
    pub problem: Option<&'a Problem>,
}

impl Ack<'_> {
    /// A frame that was appended.
    pub const fn appended(next_offset: u64, records: Option<(u64, u64)>) -> Self {
        Self { next_offset: Some(next_offset), records, closed: false, problem: None }
    }
}

/// Bytes of the longest acknowledgement of a frame that was appended, and of a comma; for sizing an answer.
pub const ACK_BYTES_MAX: usize = 163;

/// Writes the acknowledgements of a batch, a JSON array without white space, in one piece of memory.
#[derive(Debug)]
pub struct AckWriter {
    out: Vec<u8>,
    count: usize,
}

impl AckWriter {
    /// Opens the array in memory that is there already; what it held is lost.
    pub fn new(mut out: Vec<u8>) -> Self {
        out.clear();
        out.push(b'[');
        Self { out, count: 0 }
    }

    /// Adds the next frame's acknowledgement.
    #[inline]
    pub fn push(&mut self, ack: &Ack<'_>) {
        self.count += 1;
        self.out.reserve(ACK_BYTES_MAX);
        write_members(&mut self.out, ack);
        // The bracket at the end takes the place of the last comma.
        self.out.extend_from_slice(b"},");
    }

    /// Closes the array and hands it over.
    pub fn finish(mut self) -> Vec<u8> {
        assert!(self.count > 0, "a batch has frames");
        *self.out.last_mut().expect("it has an acknowledgement") = b']';
        self.out
    }
}

/// Appends one acknowledgement: `{"status":204,"stream_next_offset":3}` and, as they apply, `stream_record_start`,
/// `stream_record_next`, `stream_closed`, `error_code` and `error`, in this order (extensions 4.3 and 6.11).
pub fn write_ack(out: &mut Vec<u8>, ack: &Ack<'_>) {
    write_members(out, ack);
    out.push(b'}');
}

/// The same without the closing brace.
#[inline]
fn write_members(out: &mut Vec<u8>, ack: &Ack<'_>) {
    match ack {
        Ack { problem: None, next_offset: Some(next_offset), .. } => {
            out.extend_from_slice(b"{\"status\":204,\"stream_next_offset\":");
            write_u64(out, *next_offset);
        }
        _ => write_unusual_members(out, ack),
    }
    if let Some((start, next)) = ack.records {
        out.extend_from_slice(b",\"stream_record_start\":");
        write_u64(out, start);
        out.extend_from_slice(b",\"stream_record_next\":");
        write_u64(out, next);
    }
    if ack.closed {
        out.extend_from_slice(b",\"stream_closed\":true");
    }
    if let Some(problem) = ack.problem {
        out.extend_from_slice(b",\"error_code\":\"");
        out.extend_from_slice(problem.code.wire().as_bytes());
        out.extend_from_slice(b"\",\"error\":");
        write_json_string(out, &problem.message);
    }
}

/// The first members of an acknowledgement that says no, or cannot say where the stream ends.
#[cold]
fn write_unusual_members(out: &mut Vec<u8>, ack: &Ack<'_>) {
    out.extend_from_slice(b"{\"status\":");
    write_u64(out, ack.problem.map_or(204, |problem| u64::from(problem.status())));
    if let Some(next_offset) = ack.next_offset {
        out.extend_from_slice(b",\"stream_next_offset\":");
        write_u64(out, next_offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut body = Vec::new();
        for payload in payloads {
            body.extend_from_slice(&(payload.len() as u32).to_be_bytes());
            body.extend_from_slice(payload);
        }
        body
    }

    fn refused(body: &[u8]) -> Code {
        frames(body).map(|frames| frames.count()).expect_err("a refusal").code
    }

    #[test]
    fn framings_that_are_refused() {
        let table: &[&[u8]] = &[
            b"",
            b"\0",
            b"\0\0\0",
            b"\0\0\0\0",
            b"\0\0\0\x01",
            b"\0\0\0\x02a",
            b"\0\0\0\x01a\0",
            b"\0\0\0\x01a\0\0\0\0",
            b"\0\0\0\x01a\0\0\0\x02b",
            b"\xff\xff\xff\xffa",
            b"\0\0\0\0\0\0\0\x01a",
        ];
        for body in table {
            assert_eq!(refused(body), Code::InvalidBatch, "{body:?}");
        }
    }

    #[test]
    fn frames_and_bytes_at_their_limits() {
        let mut body = batch(&vec![b"x".to_vec(); BATCH_FRAMES_MAX]);
        assert_eq!(frames(&body).unwrap().len(), 512);
        body.extend_from_slice(b"\0\0\0\x01x");
        assert_eq!(refused(&body), Code::BatchTooLarge);
        // A broken frame before the limit is what is reported.
        assert_eq!(refused(&body[..body.len() - 6]), Code::InvalidBatch);

        let full = BATCH_BYTES_MAX as usize;
        let body = batch(&[vec![0; full - 4]]);
        assert_eq!(frames(&body).unwrap().next().map(<[u8]>::len), Some(full - 4));
        assert_eq!(refused(&batch(&[vec![0; full - 3]])), Code::BatchTooLarge);
    }

    #[test]
    fn acknowledgements() {
        let closed = Problem::fixed(Code::StreamClosed, "the stream is closed");
        let invalid = Problem::new(Code::InvalidJson, "expected \"x\"".to_string());
        let table = [
            (Ack::appended(3, None), r#"{"status":204,"stream_next_offset":3}"#),
            (
                Ack::appended(6, Some((1, 3))),
                r#"{"status":204,"stream_next_offset":6,"stream_record_start":1,"stream_record_next":3}"#,
            ),
            (
                Ack { next_offset: Some(6), records: None, closed: true, problem: Some(&closed) },
                r#"{"status":409,"stream_next_offset":6,"stream_closed":true,"error_code":"STREAM_CLOSED","error":"the stream is closed"}"#,
            ),
            (
                Ack { next_offset: None, records: None, closed: false, problem: Some(&invalid) },
                r#"{"status":400,"error_code":"INVALID_JSON","error":"expected \"x\""}"#,
            ),
        ];
        let (all, mut expected_all) = (b"before".to_vec(), "[".to_string());
        let mut writer = AckWriter::new(all);
        for (at, (ack, expected)) in table.iter().enumerate() {
            let mut out = Vec::new();
            write_ack(&mut out, ack);
            assert_eq!(String::from_utf8(out).unwrap(), *expected);
            writer.push(ack);
            expected_all += if at == 0 { "" } else { "," };
            expected_all += expected;
        }
        let all = writer.finish();
        assert_eq!(String::from_utf8(all).unwrap(), expected_all + "]");
    }

    #[test]
    fn the_longest_acknowledgement_fits_its_bound() {
        let mut out = Vec::new();
        let longest = Ack { closed: true, ..Ack::appended(u64::MAX, Some((u64::MAX, u64::MAX))) };
        write_ack(&mut out, &longest);
        assert_eq!(out.len() + 1, ACK_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn frames_come_back(payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 1..20)) {
            let body = batch(&payloads);
            let found = frames(&body).unwrap();
            prop_assert_eq!(found.len(), payloads.len());
            prop_assert_eq!(found.map(<[u8]>::to_vec).collect::<Vec<_>>(), payloads.clone());
            // Every cut that is not between frames is noticed.
            let mut ends = vec![0];
            for payload in &payloads {
                ends.push(ends.last().unwrap() + 4 + payload.len());
            }
            for cut in 0..body.len() {
                prop_assert_eq!(frames(&body[..cut]).is_ok(), cut > 0 && ends.contains(&cut), "cut at {}", cut);
            }
        }

        #[test]
        fn any_body_is_judged_without_panic(body: Vec<u8>) {
            if let Ok(frames) = frames(&body) {
                prop_assert_eq!(frames.map(|frame| frame.len() + 4).sum::<usize>(), body.len());
            }
        }
    }
}
