//! The fixed structures of the disk format: field tables, encoders, strict parsers, checksums.
//!
//! Contract: `storage-format.md` is the description and this file its constants; a test compares the tables.
//! All integers are little-endian. Every bit of every structure is covered by a checksum, reserved fields
//! included, and a parser accepts exactly what its encoder can produce. Nothing here does I/O.

mod fields;
mod sealed;

pub use fields::{
    COMMIT_HEADER_FIELDS, ENTRY_HEADER_FIELDS, Field, PAGE_HEADER_FIELDS, SEGMENT_HEADER_FIELDS,
    TRAILER_FIELDS,
};
pub use sealed::{PageHeader, Trailer};

use crate::limits::{BLOCK_BYTES, CHECKSUM_CHUNK_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

/// Version of the disk format that this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of a segment file.
pub const SEGMENT_MAGIC: [u8; 8] = *b"THALSEG1";
/// First bytes of a commit.
pub const COMMIT_MAGIC: [u8; 8] = *b"THALCMT1";
/// First bytes of a footer page.
pub const PAGE_MAGIC: [u8; 8] = *b"THALFTR1";
/// First bytes of the trailer, the last block of a sealed segment.
pub const TRAILER_MAGIC: [u8; 8] = *b"THALEND1";

/// Bytes of the segment header: one block.
pub const SEGMENT_HEADER_BYTES: usize = BLOCK_BYTES;
/// Position of the first commit of a segment.
pub const FIRST_COMMIT_POSITION: u32 = SEGMENT_HEADER_BYTES as u32;
/// Bytes of a commit's header.
pub const COMMIT_HEADER_BYTES: usize = 64;
/// Bytes of an entry's header.
pub const ENTRY_HEADER_BYTES: usize = 16;
/// Bytes of one checksum in an entry's table of payload checksums.
pub const CHUNK_CHECKSUM_BYTES: usize = 4;
/// Bytes of a footer page's header.
pub const PAGE_HEADER_BYTES: usize = 64;
/// Bytes of the trailer: one block.
pub const TRAILER_BYTES: usize = BLOCK_BYTES;
/// Position of a block's checksum, for the structures that fill a block.
const BLOCK_CHECKSUM_AT: usize = BLOCK_BYTES - 4;
/// Position of the checksum in the 64-byte headers.
const HEADER_CHECKSUM_AT: usize = 60;

/// Commit flag: holds no entries and says that everything before it was durable when it was written.
pub const COMMIT_MARK: u32 = 1;

/// What an entry is. The number is the byte on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A stream begins.
    StreamCreated = 1,
    /// A stream grows, or closes, or both.
    Appended = 2,
    /// A stream ends.
    StreamDeleted = 3,
    /// Last use of a stream with a sliding time to live.
    Renewed = 4,
    /// A bucket begins.
    BucketCreated = 5,
    /// A bucket ends.
    BucketDeleted = 6,
    /// A part of a large payload; means nothing until an append names it.
    Chunk = 7,
    /// The attributes of a stream are replaced.
    AttributesSet = 8,
    /// A snapshot takes the place of the one before.
    SnapshotPublished = 9,
    /// Everything of a stream before an offset is gone.
    Retained = 10,
    /// Appends of a producer whose data was rewritten.
    ProducerRuns = 11,
    /// Data that retention has taken since.
    Skipped = 12,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 12] = [
        Kind::StreamCreated,
        Kind::Appended,
        Kind::StreamDeleted,
        Kind::Renewed,
        Kind::BucketCreated,
        Kind::BucketDeleted,
        Kind::Chunk,
        Kind::AttributesSet,
        Kind::SnapshotPublished,
        Kind::Retained,
        Kind::ProducerRuns,
        Kind::Skipped,
    ];

    /// The kind with this number on disk, if there is one.
    #[inline]
    pub fn from_u8(number: u8) -> Option<Kind> {
        match number {
            1..=12 => Some(Kind::ALL[usize::from(number) - 1]),
            _ => None,
        }
    }

    /// Name for people: `inspect`, and the tables of `storage-format.md`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::StreamCreated => "stream_created",
            Kind::Appended => "appended",
            Kind::StreamDeleted => "stream_deleted",
            Kind::Renewed => "renewed",
            Kind::BucketCreated => "bucket_created",
            Kind::BucketDeleted => "bucket_deleted",
            Kind::Chunk => "chunk",
            Kind::AttributesSet => "attributes_set",
            Kind::SnapshotPublished => "snapshot_published",
            Kind::Retained => "retained",
            Kind::ProducerRuns => "producer_runs",
            Kind::Skipped => "skipped",
        }
    }
}

/// The start value of every checksum of a segment, from its nonce: payload bytes of a client who does not
/// know the nonce cannot pass for a commit, nor bytes of another segment for bytes of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The seed of a segment.
    pub fn of(nonce: u64) -> Seed {
        Seed(crc32c::crc32c(&nonce.to_le_bytes()))
    }

    /// CRC-32C of `bytes`, seeded.
    #[inline]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.0, bytes)
    }

    /// The checksum of no bytes: where a running checksum starts.
    #[inline]
    pub fn start(self) -> u32 {
        self.0
    }
}

/// Continues a checksum.
#[inline]
pub fn checksum_more(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

/// Checksums that a payload of `payload_bytes` carries: one for each started 64 KiB.
#[inline]
pub const fn chunk_count(payload_bytes: usize) -> usize {
    payload_bytes.div_ceil(CHECKSUM_CHUNK_BYTES)
}

/// Bytes from the start of an entry to its payload: header, table of payload checksums, meta.
#[inline]
pub const fn entry_back_bytes(meta_bytes: usize, payload_bytes: usize) -> usize {
    ENTRY_HEADER_BYTES + chunk_count(payload_bytes) * CHUNK_CHECKSUM_BYTES + meta_bytes
}

/// Bytes of a whole entry.
#[inline]
pub const fn entry_bytes(meta_bytes: usize, payload_bytes: usize) -> usize {
    entry_back_bytes(meta_bytes, payload_bytes) + payload_bytes
}

/// Rounds up to whole blocks.
#[inline]
pub const fn block_round_up(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Whether all bytes are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    // A whole chunk is folded without branches, so that it becomes a few vector instructions.
    chunks.iter().all(|chunk| chunk.iter().fold(0, |seen, byte| seen | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

#[inline]
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("fixed field inside a checked structure"))
}

#[inline]
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("fixed field inside a checked structure"))
}

#[inline]
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("fixed field inside a checked structure"))
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Why a fixed structure is not what it should be. Not an I/O error: the bytes were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStructure {
    /// Nothing but zeros: never written.
    #[error("all zeros: never written")]
    Zeros,
    /// Fewer bytes than the structure has.
    #[error("cut short")]
    Short,
    /// Other first bytes.
    #[error("wrong magic number")]
    Magic,
    /// Belongs to another segment.
    #[error("nonce of another segment")]
    Nonce,
    /// The checksum does not match the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// Written by a later version of the server.
    #[error("format version {0} is newer than this server's ({FORMAT_VERSION})")]
    NewerVersion(u32),
    /// The checksum holds but a field has a value that is never written: a defect, or a later version.
    #[error("field {0} has an impossible value")]
    Field(&'static str),
}

/// Head of a segment file (`storage-format.md`, Segment header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Number of the segment in the log that wrote it; from 1.
    pub segment_number: u32,
    /// Id of the log that wrote it: not checked against the directory, since re-sharding links files.
    pub log_id: u64,
    /// Opening of that log in which the segment was begun; grows.
    pub epoch: u64,
    /// Sequence number of the segment's first commit.
    pub first_lsn: u64,
    /// Random, never 0: seeds every checksum of the segment.
    pub nonce: u64,
    /// Bytes of the file.
    pub segment_bytes: u64,
    /// When it was begun, Unix milliseconds.
    pub created_ms: u64,
    /// What it stands for, if it was written by settling.
    pub settled: Option<Settled>,
}

/// What a settled segment stands for: commits of one log whose segments it took the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Id of the log that wrote those commits.
    pub origin_log_id: u64,
    /// Sequence number of the last of them; of the first: `SegmentHeader::first_lsn`.
    pub last_lsn: u64,
    /// Bytes of payload that were kept when it was written.
    pub payload_bytes: u64,
}

/// Bytes of the smallest settled segment: header, trailer, and no commit between them.
pub const SETTLED_BYTES_MIN: u64 = (SEGMENT_HEADER_BYTES + TRAILER_BYTES) as u64;

impl SegmentHeader {
    /// Id of the log whose sequence numbers it has.
    pub fn origin_log_id(&self) -> u64 {
        self.settled.map_or(self.log_id, |settled| settled.origin_log_id)
    }

    /// Fills a block with the header.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), SEGMENT_HEADER_BYTES, "the segment header fills one block");
        assert!(self.problem().is_none(), "impossible segment header {self:?}");
        block.fill(0);
        block[..8].copy_from_slice(&SEGMENT_MAGIC);
        put_u32(block, 8, FORMAT_VERSION);
        put_u32(block, 12, self.segment_number);
        put_u64(block, 16, self.log_id);
        put_u64(block, 24, self.epoch);
        put_u64(block, 32, self.first_lsn);
        put_u64(block, 40, self.nonce);
        put_u64(block, 48, self.segment_bytes);
        put_u64(block, 56, self.created_ms);
        if let Some(settled) = &self.settled {
            put_u64(block, 64, settled.origin_log_id);
            put_u64(block, 72, settled.last_lsn);
            put_u64(block, 80, settled.payload_bytes);
        }
        let checksum = crc32c::crc32c(&block[..BLOCK_CHECKSUM_AT]);
        put_u32(block, BLOCK_CHECKSUM_AT, checksum);
    }

    /// Reads the header from the first block of a file.
    pub fn parse(block: &[u8]) -> Result<SegmentHeader, BadStructure> {
        let block = check_block(block, &SEGMENT_MAGIC, None)?;
        let header = SegmentHeader {
            segment_number: get_u32(block, 12),
            log_id: get_u64(block, 16),
            epoch: get_u64(block, 24),
            first_lsn: get_u64(block, 32),
            nonce: get_u64(block, 40),
            segment_bytes: get_u64(block, 48),
            created_ms: get_u64(block, 56),
            // No commit has sequence number 0.
            settled: (get_u64(block, 72) != 0).then(|| Settled {
                origin_log_id: get_u64(block, 64),
                last_lsn: get_u64(block, 72),
                payload_bytes: get_u64(block, 80),
            }),
        };
        let own = if header.settled.is_some() { 88 } else { 64 };
        let reserved = &block[own..BLOCK_CHECKSUM_AT];
        match header.problem().or((!is_zero(reserved)).then_some("reserved")) {
            Some(name) => Err(BadStructure::Field(name)),
            None => Ok(header),
        }
    }

    fn bytes_min(&self) -> u64 {
        if self.settled.is_some() { SETTLED_BYTES_MIN } else { SEGMENT_BYTES_MIN }
    }

    fn problem(&self) -> Option<&'static str> {
        if self.segment_number == 0 {
            Some("segment_number")
        } else if self.first_lsn == 0 {
            Some("first_lsn")
        } else if self.nonce == 0 {
            Some("nonce")
        } else if self.settled.is_some_and(|settled| settled.last_lsn < self.first_lsn) {
            Some("last_lsn")
        } else if !(self.bytes_min()..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(BLOCK_BYTES as u64)
        {
            Some("segment_bytes")
        } else {
            None
        }
    }
}

/// Checks magic, checksum and version of a structure that fills a block and has its version at 8.
fn check_block<'a>(block: &'a [u8], magic: &[u8; 8], seed: Option<Seed>) -> Result<&'a [u8], BadStructure> {
    let block = block.get(..BLOCK_BYTES).ok_or(BadStructure::Short)?;
    if block[..8] != *magic {
        return Err(if is_zero(block) { BadStructure::Zeros } else { BadStructure::Magic });
    }
    let covered = &block[..BLOCK_CHECKSUM_AT];
    let checksum = seed.map_or_else(|| crc32c::crc32c(covered), |seed| seed.checksum(covered));
    if checksum != get_u32(block, BLOCK_CHECKSUM_AT) {
        return Err(BadStructure::Checksum);
    }
    match get_u32(block, 8) {
        FORMAT_VERSION => Ok(block),
        0 => Err(BadStructure::Field("version")),
        newer => Err(BadStructure::NewerVersion(newer)),
    }
}

/// Head of a commit (`storage-format.md`, Commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitHeader {
    /// Nonce of the segment.
    pub nonce: u64,
    /// Log sequence number: dense within a log; from 1.
    pub lsn: u64,
    /// When the commit was opened, Unix milliseconds.
    pub time_ms: u64,
    /// Bytes of all entries, padding excluded.
    pub body_bytes: u32,
    /// Number of entries.
    pub entry_count: u32,
    /// [`COMMIT_MARK`] or 0.
    pub flags: u32,
    /// Seeded checksum over the checksums of the entries, in order.
    pub entries_checksum: u32,
}

impl CommitHeader {
    /// Bytes of the commit in the file: whole blocks.
    pub fn commit_bytes(&self) -> usize {
        block_round_up(COMMIT_HEADER_BYTES + self.body_bytes as usize)
    }

    /// Whether the commit is a mark.
    pub fn is_mark(&self) -> bool {
        self.flags & COMMIT_MARK != 0
    }

    /// Writes the header at the start of `commit`.
    pub fn encode(&self, commit: &mut [u8]) {
        assert!(self.problem().is_none(), "impossible commit header {self:?}");
        let header = &mut commit[..COMMIT_HEADER_BYTES];
        header[..8].copy_from_slice(&COMMIT_MAGIC);
        put_u64(header, 8, self.nonce);
        put_u64(header, 16, self.lsn);
        put_u64(header, 24, self.time_ms);
        put_u32(header, 32, self.body_bytes);
        put_u32(header, 36, self.entry_count);
        put_u32(header, 40, (self.commit_bytes() / BLOCK_BYTES) as u32);
        put_u32(header, 44, self.flags);
        put_u32(header, 48, self.entries_checksum);
        put_u64(header, 52, 0);
        let checksum = Seed::of(self.nonce).checksum(&header[..HEADER_CHECKSUM_AT]);
        put_u32(header, HEADER_CHECKSUM_AT, checksum);
    }

    /// Reads a header from the first bytes of a block. Says nothing of the body.
    pub fn parse(bytes: &[u8], nonce: u64) -> Result<CommitHeader, BadStructure> {
        let header = bytes.get(..COMMIT_HEADER_BYTES).ok_or(BadStructure::Short)?;
        if header[..8] != COMMIT_MAGIC {
            return Err(if is_zero(header) { BadStructure::Zeros } else { BadStructure::Magic });
        }
        if get_u64(header, 8) != nonce {
            return Err(BadStructure::Nonce);
        }
        if Seed::of(nonce).checksum(&header[..HEADER_CHECKSUM_AT]) != get_u32(header, HEADER_CHECKSUM_AT) {
            return Err(BadStructure::Checksum);
        }
        let parsed = CommitHeader {
            nonce,
            lsn: get_u64(header, 16),
            time_ms: get_u64(header, 24),
            body_bytes: get_u32(header, 32),
            entry_count: get_u32(header, 36),
            flags: get_u32(header, 44),
            entries_checksum: get_u32(header, 48),
        };
        let blocks_match = get_u32(header, 40) as usize * BLOCK_BYTES == parsed.commit_bytes();
        let problem = parsed
            .problem()
            .or((!blocks_match).then_some("blocks"))
            .or((get_u64(header, 52) != 0).then_some("reserved"));
        problem.map_or(Ok(parsed), |name| Err(BadStructure::Field(name)))
    }

    fn problem(&self) -> Option<&'static str> {
        if self.nonce == 0 {
            Some("nonce")
        } else if self.lsn == 0 {
            Some("lsn")
        } else if self.flags & !COMMIT_MARK != 0 || (self.is_mark() && self.entry_count != 0) {
            Some("flags")
        } else if (self.entry_count as usize).saturating_mul(ENTRY_HEADER_BYTES) > self.body_bytes as usize {
            Some("entry_count")
        } else if self.body_bytes as usize > crate::limits::COMMIT_BYTES_MAX - COMMIT_HEADER_BYTES
            || (self.entry_count == 0 && self.body_bytes != 0)
        {
            Some("body_bytes")
        } else {
            None
        }
    }
}

/// Head of an entry (`storage-format.md`, Entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Seeded checksum over the rest of the header, the table of payload checksums and the meta part.
    pub checksum: u32,
    /// What the entry is: a [`Kind`] that this version knows, or not.
    pub kind: u8,
    /// Meaning depends on the kind; see `codec`.
    pub flags: u8,
    /// Must be 0.
    pub reserved: u16,
    /// Bytes of the meta part.
    pub meta_bytes: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
}

impl EntryHeader {
    /// Writes the header at the start of `entry`, checksum included as given.
    #[inline]
    pub fn encode(&self, entry: &mut [u8; ENTRY_HEADER_BYTES]) {
        entry[..4].copy_from_slice(&self.checksum.to_le_bytes());
        entry[4] = self.kind;
        entry[5] = self.flags;
        entry[6..8].copy_from_slice(&self.reserved.to_le_bytes());
        entry[8..12].copy_from_slice(&self.meta_bytes.to_le_bytes());
        entry[12..].copy_from_slice(&self.payload_bytes.to_le_bytes());
    }

    /// Reads a header; `None` if there are too few bytes. Verifies nothing.
    #[inline]
    pub fn parse(entry: &[u8]) -> Option<EntryHeader> {
        let entry = entry.first_chunk::<ENTRY_HEADER_BYTES>()?;
        Some(EntryHeader {
            checksum: get_u32(entry, 0),
            kind: entry[4],
            flags: entry[5],
            reserved: get_u16(entry, 6),
            meta_bytes: get_u32(entry, 8),
            payload_bytes: get_u32(entry, 12),
        })
    }

    /// Bytes from the start of the entry to its payload.
    #[inline]
    pub fn back_bytes(&self) -> usize {
        entry_back_bytes(self.meta_bytes as usize, self.payload_bytes as usize)
    }
}

#[cfg(test)]
mod tests;
