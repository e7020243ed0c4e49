//! Builds a commit in place: header, entries, padding; each payload is checksummed while it is copied.
//!
//! Contract: the caller owns the buffer and has checked the room ([`entry_bytes_max`],
//! [`CommitBuilder::used`]); pushing past its end panics. Nothing allocates except the footer builder's
//! vector as it grows. After [`CommitBuilder::finish`] the buffer's first bytes are the commit, whole blocks,
//! ready to be written; the bytes beyond are untouched.

use super::codec::{self, Coded};
use super::event::Event;
use super::footer::FooterBuilder;
use super::format::{
    CHUNK_CHECKSUM_BYTES, COMMIT_HEADER_BYTES, COMMIT_MARK, CommitHeader, ENTRY_HEADER_BYTES, EntryHeader,
    Seed, checksum_more, chunk_count, entry_bytes,
};
use crate::limits::{CHECKSUM_CHUNK_BYTES, COMMIT_BYTES_MAX};

/// Bytes that an entry takes in a commit at most, for room checks: `meta_bytes_max` from
/// [`codec::meta_bytes_max`].
#[inline]
pub const fn entry_bytes_max(meta_bytes_max: usize, payload_bytes: usize) -> usize {
    entry_bytes(meta_bytes_max, payload_bytes)
}

/// Where a pushed payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// First payload byte, counted from the commit's first byte.
    pub payload_at: u32,
    /// Bytes from the entry's first byte to its payload.
    pub back: u32,
}

/// An open commit. Small and plain: the bytes are in the caller's buffer.
#[derive(Clone, Debug)]
pub struct CommitBuilder {
    seed: Seed,
    nonce: u64,
    lsn: u64,
    time_ms: u64,
    used: usize,
    entry_count: u32,
    entries_checksum: u32,
}

impl CommitBuilder {
    /// Opens a commit in the segment with this nonce. `time_ms` holds for all of its entries.
    pub fn new(nonce: u64, lsn: u64, time_ms: u64) -> CommitBuilder {
        let seed = Seed::of(nonce);
        CommitBuilder {
            seed,
            nonce,
            lsn,
            time_ms,
            used: COMMIT_HEADER_BYTES,
            entry_count: 0,
            entries_checksum: seed.start(),
        }
    }

    /// Bytes used so far, header included.
    #[inline]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Whether nothing has been pushed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Number of entries pushed.
    #[inline]
    pub fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// Sequence number of the commit.
    #[inline]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Time of the commit, Unix milliseconds.
    #[inline]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Adds an event with its payload, which `fill` must put completely. `number_of` maps a segment's index
    /// in the log's table to its number on disk. The payload's place in the event is ignored unless it lies
    /// in parts.
    #[inline]
    pub fn push(
        &mut self,
        buf: &mut [u8],
        footer: &mut FooterBuilder,
        event: &Event<'_>,
        number_of: impl Fn(u32) -> u32,
        payload_bytes: usize,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
    ) -> Pushed {
        let coded = self.encode(buf, event, number_of, payload_bytes);
        self.seal_entry(buf, footer, &coded, Some(event), payload_bytes, fill)
    }

    /// Adds an event that was first written at another time than the commit's.
    #[expect(clippy::too_many_arguments, reason = "as `push`, and a time")]
    pub fn push_timed(
        &mut self,
        buf: &mut [u8],
        footer: &mut FooterBuilder,
        event: &Event<'_>,
        time_ms: u64,
        number_of: impl Fn(u32) -> u32,
        payload_bytes: usize,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
    ) -> Pushed {
        let mut coded = self.encode(buf, event, number_of, payload_bytes);
        let meta_at = self.meta_at(payload_bytes);
        codec::add_time(&mut coded, time_ms, &mut buf[meta_at..]);
        self.seal_entry(buf, footer, &coded, Some(event), payload_bytes, fill)
    }

    /// Where the meta part of the next entry begins.
    #[inline]
    fn meta_at(&self, payload_bytes: usize) -> usize {
        self.used + ENTRY_HEADER_BYTES + chunk_count(payload_bytes) * CHUNK_CHECKSUM_BYTES
    }

    #[inline]
    fn encode(
        &self,
        buf: &mut [u8],
        event: &Event<'_>,
        number_of: impl Fn(u32) -> u32,
        payload_bytes: usize,
    ) -> Coded {
        let coded = codec::encode(event, number_of, &mut buf[self.meta_at(payload_bytes)..]);
        if let Event::Appended(append) = event {
            let here = matches!(append.payload, super::event::Payload::Here(_));
            let stem = coded.stem.expect("an append has a stem");
            assert_eq!(
                if here { stem.end - stem.start } else { 0 },
                payload_bytes as u64,
                "records fill the payload"
            );
        } else {
            assert_eq!(payload_bytes, 0, "only appends and chunks have a payload");
        }
        coded
    }

    /// Adds a part of a large payload.
    pub fn push_chunk(
        &mut self,
        buf: &mut [u8],
        footer: &mut FooterBuilder,
        lineage: u64,
        payload_bytes: usize,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
    ) -> Pushed {
        let coded = codec::encode_chunk(lineage, &mut buf[self.meta_at(payload_bytes)..]);
        self.seal_entry(buf, footer, &coded, None, payload_bytes, fill)
    }

    /// The meta part is in place: payload, checksums, header, footer record.
    #[inline]
    fn seal_entry(
        &mut self,
        buf: &mut [u8],
        footer: &mut FooterBuilder,
        coded: &Coded,
        event: Option<&Event<'_>>,
        payload_bytes: usize,
        fill: impl FnOnce(&mut PayloadWriter<'_>),
    ) -> Pushed {
        if self.entry_count == 0 {
            footer.commit(self.lsn, self.time_ms);
        }
        let bytes = entry_bytes(coded.meta_bytes, payload_bytes);
        let back = bytes - payload_bytes;
        let entry = &mut buf[self.used..self.used + bytes];
        let (head, payload) = entry.split_at_mut(back);
        let (header, rest) =
            head.split_first_chunk_mut::<ENTRY_HEADER_BYTES>().expect("an entry has a header");
        let (table, meta) = rest.split_at_mut(back - ENTRY_HEADER_BYTES - coded.meta_bytes);
        let mut writer =
            PayloadWriter { table, payload, at: 0, checked: 0, checksum: self.seed.start(), seed: self.seed };
        fill(&mut writer);
        writer.finish();
        footer.entry(coded, meta, payload_bytes as u32, event);

        let mut parsed = EntryHeader {
            checksum: 0,
            kind: coded.kind as u8,
            flags: coded.flags,
            reserved: 0,
            meta_bytes: coded.meta_bytes as u32,
            payload_bytes: payload_bytes as u32,
        };
        parsed.encode(header);
        parsed.checksum = self.seed.checksum(&head[4..]);
        head[..4].copy_from_slice(&parsed.checksum.to_le_bytes());
        self.entries_checksum = checksum_more(self.entries_checksum, &parsed.checksum.to_le_bytes());
        let pushed = Pushed { payload_at: (self.used + back) as u32, back: back as u32 };
        self.entry_count += 1;
        self.used += bytes;
        pushed
    }

    /// Completes the commit: writes its header, pads with zeros to whole blocks, returns its bytes.
    pub fn finish(self, buf: &mut [u8]) -> usize {
        assert!(self.entry_count > 0, "an empty commit is a mark");
        self.seal(buf, 0)
    }

    /// Completes an empty commit as a mark, returns its bytes: one block.
    pub fn finish_mark(self, buf: &mut [u8], footer: &mut FooterBuilder) -> usize {
        assert_eq!(self.entry_count, 0, "a mark holds no entries");
        footer.commit(self.lsn, self.time_ms);
        self.seal(buf, COMMIT_MARK)
    }

    fn seal(self, buf: &mut [u8], flags: u32) -> usize {
        let header = CommitHeader {
            nonce: self.nonce,
            lsn: self.lsn,
            time_ms: self.time_ms,
            body_bytes: (self.used - COMMIT_HEADER_BYTES) as u32,
            entry_count: self.entry_count,
            flags,
            entries_checksum: self.entries_checksum,
        };
        let bytes = header.commit_bytes();
        assert!(bytes <= COMMIT_BYTES_MAX, "commit of {bytes} bytes is over the limit");
        buf[self.used..bytes].fill(0);
        header.encode(buf);
        bytes
    }
}

/// Takes the bytes of one payload, in order, and checksums each 64 KiB.
///
/// A payload may come in many small pieces (the frames of a batch). They are checksummed together once so many are there,
/// not one by one: the checksum of a long range runs in three lanes, that of a short one waits for each word. Measured on
/// frames of 256 bytes: 17 GB/s with the copy, against 8.
#[derive(Debug)]
pub struct PayloadWriter<'a> {
    table: &'a mut [u8],
    payload: &'a mut [u8],
    at: usize,
    /// The bytes before this one are in `checksum`, or in the table.
    checked: usize,
    checksum: u32,
    seed: Seed,
}

/// Bytes that wait for their checksum, about: they are still in the first cache then.
const UNCHECKED_BYTES: usize = 24 * 1024;

impl PayloadWriter<'_> {
    /// Copies `bytes` behind those put before. Panics if they are more than was announced.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.payload[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        if self.at - self.checked >= UNCHECKED_BYTES {
            self.check();
        }
    }

    /// Bytes that are still to be put.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.payload.len() - self.at
    }

    /// Checksums what was put.
    fn check(&mut self) {
        while self.checked < self.at {
            let room = CHECKSUM_CHUNK_BYTES - self.checked % CHECKSUM_CHUNK_BYTES;
            let to = self.at.min(self.checked + room);
            self.checksum = checksum_more(self.checksum, &self.payload[self.checked..to]);
            self.checked = to;
            if to.is_multiple_of(CHECKSUM_CHUNK_BYTES) {
                self.close_chunk();
            }
        }
    }

    #[inline]
    fn close_chunk(&mut self) {
        let index = (self.checked - 1) / CHECKSUM_CHUNK_BYTES;
        let at = index * CHUNK_CHECKSUM_BYTES;
        self.table[at..at + CHUNK_CHECKSUM_BYTES].copy_from_slice(&self.checksum.to_le_bytes());
        self.checksum = self.seed.start();
    }

    #[inline]
    fn finish(mut self) {
        assert_eq!(self.at, self.payload.len(), "a payload is put completely");
        self.check();
        if !self.at.is_multiple_of(CHECKSUM_CHUNK_BYTES) {
            self.close_chunk();
        }
    }
}
