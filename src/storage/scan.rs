//! Reads commits back with every bit verified, and says why it stops.
//!
//! Contract: [`parse_commit`] accepts exactly what `commit::CommitBuilder` writes. A commit is accepted or
//! refused as a whole; nothing of a refused one is handed out. The caller does the I/O and decides, with the
//! recovery table of `storage-format.md`, what a stop means: the end of the log, a torn last commit, or
//! damage.

use super::codec::{Coding, DecodeError, DecodeScratch, Entry, SegmentIndex, decode};
use super::event::{EventContext, HashRange};
use super::format::{
    BadStructure, CHUNK_CHECKSUM_BYTES, COMMIT_HEADER_BYTES, COMMIT_MAGIC, CommitHeader, ENTRY_HEADER_BYTES,
    EntryHeader, Seed, checksum_more, chunk_count, get_u32, get_u64, is_zero,
};
use crate::limits::{BLOCK_BYTES, CHECKSUM_CHUNK_BYTES};

/// Why a commit was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The first bytes are zeros: nothing was written here.
    #[error("zeros: nothing was written here")]
    Zeros,
    /// Not a commit.
    #[error("no commit begins here")]
    Magic,
    /// A commit of another segment.
    #[error("a commit of another segment")]
    Nonce,
    /// The commit's header does not match its checksum.
    #[error("the commit's header does not match its checksum")]
    HeaderChecksum,
    /// The header's checksum holds but a field is impossible.
    #[error("field {0} of the commit's header has an impossible value")]
    HeaderField(&'static str),
    /// A commit, but not the one that is due.
    #[error("commit {found} where another one is due")]
    WrongLsn {
        /// Sequence number that was found.
        found: u64,
    },
    /// The commit is longer than the bytes at hand. Not a verdict: read so many bytes and try again, unless
    /// the file ends.
    #[error("the commit is {commit_bytes} bytes long and the bytes at hand end before")]
    Short {
        /// Bytes of the whole commit (of its header, as long as that is not complete).
        commit_bytes: usize,
    },
    /// Entries do not fill the commit's body as the header says.
    #[error("entries do not fill the commit at {at}")]
    EntryBounds {
        /// Byte in the commit.
        at: u32,
    },
    /// An entry does not match its checksum.
    #[error("the entry at {at} does not match its checksum")]
    EntryChecksum {
        /// Byte in the commit.
        at: u32,
    },
    /// A payload does not match its checksum.
    #[error("payload of the entry at {at} does not match its checksum")]
    PayloadChecksum {
        /// Byte in the commit.
        at: u32,
    },
    /// Entries that are each whole but not the ones of this commit.
    #[error("the entries are not those of the commit's header")]
    EntriesChecksum,
    /// The padding is not zero.
    #[error("padding that is not zero")]
    Padding,
}

impl From<BadStructure> for StopReason {
    fn from(problem: BadStructure) -> StopReason {
        match problem {
            BadStructure::Zeros => StopReason::Zeros,
            BadStructure::Short => StopReason::Short { commit_bytes: COMMIT_HEADER_BYTES },
            BadStructure::Magic => StopReason::Magic,
            BadStructure::Nonce => StopReason::Nonce,
            BadStructure::Checksum => StopReason::HeaderChecksum,
            BadStructure::Field(name) => StopReason::HeaderField(name),
            BadStructure::NewerVersion(_) => unreachable!("a commit has no version of its own"),
        }
    }
}

/// A commit, every checksum verified.
#[derive(Clone, Copy, Debug)]
pub struct ParsedCommit<'a> {
    /// Its header.
    pub header: CommitHeader,
    /// Its bytes, padding included.
    bytes: &'a [u8],
}

/// An entry as it lies in a verified commit.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// First byte of the entry, counted from the commit's first byte.
    pub at: u32,
    /// Number of its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Bytes of its payload.
    pub payload_bytes: u32,
    /// Its meta part.
    pub meta: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// Verifies the commit that starts with `bytes`, which may go on behind it. `expected_lsn` is the one due, if
/// known.
pub fn parse_commit(
    bytes: &[u8],
    nonce: u64,
    expected_lsn: Option<u64>,
) -> Result<ParsedCommit<'_>, StopReason> {
    let header = CommitHeader::parse(bytes, nonce)?;
    if expected_lsn.is_some_and(|lsn| lsn != header.lsn) {
        return Err(StopReason::WrongLsn { found: header.lsn });
    }
    let commit_bytes = header.commit_bytes();
    let commit = bytes.get(..commit_bytes).ok_or(StopReason::Short { commit_bytes })?;
    let (used, padding) = commit.split_at(COMMIT_HEADER_BYTES + header.body_bytes as usize);
    let seed = Seed::of(nonce);
    let mut entries_checksum = seed.start();
    let mut at = COMMIT_HEADER_BYTES;
    for _ in 0..header.entry_count {
        let entry = verify_entry(used, at, seed)?;
        entries_checksum = checksum_more(entries_checksum, &entry.checksum.to_le_bytes());
        at += entry.back_bytes() + entry.payload_bytes as usize;
    }
    if at != used.len() {
        return Err(StopReason::EntryBounds { at: at as u32 });
    }
    if entries_checksum != header.entries_checksum {
        return Err(StopReason::EntriesChecksum);
    }
    if !is_zero(padding) {
        return Err(StopReason::Padding);
    }
    Ok(ParsedCommit { header, bytes: commit })
}

fn verify_entry(used: &[u8], at: usize, seed: Seed) -> Result<EntryHeader, StopReason> {
    let bounds = StopReason::EntryBounds { at: at as u32 };
    let entry = EntryHeader::parse(&used[at..]).ok_or(bounds)?;
    let back = entry.back_bytes();
    let bytes = used[at..].get(..back + entry.payload_bytes as usize).ok_or(bounds)?;
    if entry.reserved != 0 || seed.checksum(&bytes[4..back]) != entry.checksum {
        return Err(StopReason::EntryChecksum { at: at as u32 });
    }
    match verify_payload(seed, &bytes[ENTRY_HEADER_BYTES..], 0, &bytes[back..]) {
        Ok(()) => Ok(entry),
        Err(_) => Err(StopReason::PayloadChecksum { at: at as u32 }),
    }
}

/// Verifies payload bytes against an entry's table of checksums (`table` starts with it and may go on).
/// `payload` starts at chunk `first_chunk`; its last chunk may be shorter than 64 KiB only if it is the
/// payload's last. The error is the index of the first chunk that is wrong.
pub fn verify_payload(seed: Seed, table: &[u8], first_chunk: usize, payload: &[u8]) -> Result<(), usize> {
    for (index, chunk) in payload.chunks(CHECKSUM_CHUNK_BYTES).enumerate() {
        let chunk_index = first_chunk + index;
        if seed.checksum(chunk) != get_u32(table, chunk_index * CHUNK_CHECKSUM_BYTES) {
            return Err(chunk_index);
        }
    }
    Ok(())
}

/// The part of an entry that has to be read, and verified, to serve some bytes of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedRange {
    /// First chunk.
    pub first_chunk: usize,
    /// First payload byte to read: start of that chunk.
    pub from: u32,
    /// End of the payload bytes to read: end of the last chunk, or of the payload.
    pub to: u32,
}

/// What must be read to serve payload bytes `from..from + len` of an entry with `payload_bytes` of payload.
/// The table of checksums lies [`ENTRY_HEADER_BYTES`] behind the entry's first byte.
pub fn verified_range(payload_bytes: u32, from: u32, len: u32) -> VerifiedRange {
    let end = from.checked_add(len).expect("a range inside a payload");
    assert!(end <= payload_bytes && len > 0, "bytes {from}..{end} of a payload of {payload_bytes}");
    let chunk = CHECKSUM_CHUNK_BYTES as u32;
    let to = end.div_ceil(chunk).saturating_mul(chunk).min(payload_bytes);
    VerifiedRange { first_chunk: (from / chunk) as usize, from: from / chunk * chunk, to }
}

impl<'a> ParsedCommit<'a> {
    /// Bytes of the commit in the file.
    pub fn commit_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the commit without its padding.
    pub fn used_bytes(&self) -> usize {
        COMMIT_HEADER_BYTES + self.header.body_bytes as usize
    }

    /// What holds for its entries.
    pub fn context(&self) -> EventContext {
        EventContext { lsn: self.header.lsn, time_ms: self.header.time_ms, hashes: HashRange::ALL }
    }

    /// The entries as they lie in the commit.
    pub fn raw_entries(&self) -> impl Iterator<Item = RawEntry<'a>> + use<'a> {
        let bytes = self.bytes;
        let mut at = COMMIT_HEADER_BYTES;
        (0..self.header.entry_count).map(move |_| {
            let header = EntryHeader::parse(&bytes[at..]).expect("the commit is verified");
            let back = header.back_bytes();
            let meta = &bytes[at + back - header.meta_bytes as usize..at + back];
            let payload = &bytes[at + back..at + back + header.payload_bytes as usize];
            let raw = RawEntry {
                at: at as u32,
                kind: header.kind,
                flags: header.flags,
                payload_bytes: header.payload_bytes,
                meta,
                payload,
            };
            at += back + payload.len();
            raw
        })
    }
}

impl<'a> RawEntry<'a> {
    /// Decodes the entry. `segment` is the index of its segment in the log's table, `commit_position` where
    /// its commit begins in the file.
    pub fn decode<'s>(
        &self,
        segment: u32,
        commit_position: u32,
        index_of: &SegmentIndex<'_>,
        scratch: &'s mut DecodeScratch,
    ) -> Result<Entry<'s>, DecodeError>
    where
        'a: 's,
    {
        let coding = Coding {
            kind: self.kind,
            flags: self.flags,
            payload_bytes: self.payload_bytes,
            segment,
            position: commit_position + self.at,
            stem: None,
            meta: self.meta,
        };
        decode(&coding, index_of, scratch)
    }
}

/// Position in `bytes` (whole blocks) of the first block that begins with the valid header of a commit
/// `lsn_min` or later: the evidence that something before it is damaged rather than torn.
pub fn find_commit(bytes: &[u8], nonce: u64, lsn_min: u64) -> Option<usize> {
    assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "{} bytes are not whole blocks", bytes.len());
    (0..bytes.len()).step_by(BLOCK_BYTES).find(|at| {
        let block = &bytes[*at..];
        block[..8] == COMMIT_MAGIC
            && get_u64(block, 8) == nonce
            && CommitHeader::parse(block, nonce).is_ok_and(|header| header.lsn >= lsn_min)
    })
}

/// Checksums that an entry's table holds for its payload; the table lies right behind the entry's header.
pub fn table_bytes(payload_bytes: u32) -> usize {
    chunk_count(payload_bytes as usize) * CHUNK_CHECKSUM_BYTES
}

#[cfg(test)]
mod tests;
