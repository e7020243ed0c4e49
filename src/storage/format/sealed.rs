//! What a seal adds to a segment: the heads of footer pages, and the trailer.

use super::{
    BLOCK_CHECKSUM_AT, BadStructure, FIRST_COMMIT_POSITION, FORMAT_VERSION, HEADER_CHECKSUM_AT,
    PAGE_HEADER_BYTES, PAGE_MAGIC, Seed, TRAILER_BYTES, TRAILER_MAGIC, block_round_up, check_block,
    checksum_more, get_u32, get_u64, is_zero, put_u32, put_u64,
};
use crate::limits::{BLOCK_BYTES, SEGMENT_BYTES_MAX};

/// Head of a footer page (`storage-format.md`, Footer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Number of the page in its footer, from 0.
    pub index: u32,
    /// Blocks of the page.
    pub blocks: u32,
    /// Bytes of its records.
    pub body_bytes: u32,
    /// Entries among its records.
    pub entry_count: u32,
    /// Sequence number in force at the start of the page.
    pub lsn: u64,
    /// Time in force at the start of the page, Unix milliseconds.
    pub time_ms: u64,
    /// Position in the file where the entry before the page ended.
    pub position: u32,
}

impl PageHeader {
    /// Writes the header over the first bytes of `page`, which is whole, and checksums all of it.
    pub fn encode(&self, page: &mut [u8], nonce: u64) {
        assert_eq!(page.len(), self.blocks as usize * BLOCK_BYTES, "a page is sealed as a whole");
        page[..8].copy_from_slice(&PAGE_MAGIC);
        put_u64(page, 8, nonce);
        put_u32(page, 16, self.index);
        put_u32(page, 20, self.blocks);
        put_u32(page, 24, self.body_bytes);
        put_u32(page, 28, self.entry_count);
        put_u64(page, 32, self.lsn);
        put_u64(page, 40, self.time_ms);
        put_u32(page, 48, self.position);
        put_u64(page, 52, 0);
        let checksum = Self::checksum(page, nonce);
        put_u32(page, HEADER_CHECKSUM_AT, checksum);
    }

    /// The page's length in bytes, from its first bytes, before it can be verified: enough to read the rest.
    pub fn page_bytes(bytes: &[u8], nonce: u64) -> Result<usize, BadStructure> {
        let header = bytes.get(..PAGE_HEADER_BYTES).ok_or(BadStructure::Short)?;
        if header[..8] != PAGE_MAGIC {
            return Err(if is_zero(header) { BadStructure::Zeros } else { BadStructure::Magic });
        }
        if get_u64(header, 8) != nonce {
            return Err(BadStructure::Nonce);
        }
        let bytes = get_u32(header, 20) as usize * BLOCK_BYTES;
        if bytes == 0 || bytes as u64 > SEGMENT_BYTES_MAX {
            return Err(BadStructure::Field("blocks"));
        }
        Ok(bytes)
    }

    /// Verifies a whole page and returns its header; `bytes` may be longer.
    pub fn parse(bytes: &[u8], nonce: u64) -> Result<PageHeader, BadStructure> {
        let page_bytes = Self::page_bytes(bytes, nonce)?;
        let page = bytes.get(..page_bytes).ok_or(BadStructure::Short)?;
        if Self::checksum(page, nonce) != get_u32(page, HEADER_CHECKSUM_AT) {
            return Err(BadStructure::Checksum);
        }
        let header = PageHeader {
            index: get_u32(page, 16),
            blocks: get_u32(page, 20),
            body_bytes: get_u32(page, 24),
            entry_count: get_u32(page, 28),
            lsn: get_u64(page, 32),
            time_ms: get_u64(page, 40),
            position: get_u32(page, 48),
        };
        let used = PAGE_HEADER_BYTES + header.body_bytes as usize;
        if block_round_up(used) != page_bytes {
            Err(BadStructure::Field("body_bytes"))
        } else if get_u64(page, 52) != 0 || !is_zero(&page[used..]) {
            Err(BadStructure::Field("reserved"))
        } else {
            Ok(header)
        }
    }

    fn checksum(page: &[u8], nonce: u64) -> u32 {
        checksum_more(Seed::of(nonce).checksum(&page[..HEADER_CHECKSUM_AT]), &page[PAGE_HEADER_BYTES..])
    }
}

/// The last block of a sealed segment's file (`storage-format.md`, Trailer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Number of the segment, as in its header.
    pub segment_number: u32,
    /// Nonce of the segment.
    pub nonce: u64,
    /// Where the footer's first page begins: the end of the last commit.
    pub footer_position: u64,
    /// Bytes of all pages.
    pub footer_bytes: u64,
    /// First sequence number in the segment.
    pub first_lsn: u64,
    /// Last sequence number in the segment.
    pub last_lsn: u64,
    /// Highest lineage id that was created in the segment; 0 if none.
    pub highest_lineage: u64,
    /// Entries in the segment, chunks included.
    pub entry_count: u64,
    /// Records (messages) that its appends add.
    pub record_count: u64,
    /// Pages of the footer.
    pub page_count: u32,
}

impl Trailer {
    /// Fills a block with the trailer.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), TRAILER_BYTES, "the trailer fills one block");
        assert!(self.problem().is_none(), "impossible trailer {self:?}");
        block.fill(0);
        block[..8].copy_from_slice(&TRAILER_MAGIC);
        put_u32(block, 8, FORMAT_VERSION);
        put_u32(block, 12, self.segment_number);
        put_u64(block, 16, self.nonce);
        put_u64(block, 24, self.footer_position);
        put_u64(block, 32, self.footer_bytes);
        put_u64(block, 40, self.first_lsn);
        put_u64(block, 48, self.last_lsn);
        put_u64(block, 56, self.highest_lineage);
        put_u64(block, 64, self.entry_count);
        put_u64(block, 72, self.record_count);
        put_u32(block, 80, self.page_count);
        let checksum = Seed::of(self.nonce).checksum(&block[..BLOCK_CHECKSUM_AT]);
        put_u32(block, BLOCK_CHECKSUM_AT, checksum);
    }

    /// Reads the trailer of the segment with this nonce from the last block of its file.
    pub fn parse(block: &[u8], nonce: u64) -> Result<Trailer, BadStructure> {
        let block = check_block(block, &TRAILER_MAGIC, Some(Seed::of(nonce)))?;
        if get_u64(block, 16) != nonce {
            return Err(BadStructure::Nonce);
        }
        let trailer = Trailer {
            segment_number: get_u32(block, 12),
            nonce,
            footer_position: get_u64(block, 24),
            footer_bytes: get_u64(block, 32),
            first_lsn: get_u64(block, 40),
            last_lsn: get_u64(block, 48),
            highest_lineage: get_u64(block, 56),
            entry_count: get_u64(block, 64),
            record_count: get_u64(block, 72),
            page_count: get_u32(block, 80),
        };
        let reserved = get_u32(block, 84) != 0 || !is_zero(&block[88..BLOCK_CHECKSUM_AT]);
        let problem = trailer.problem().or(reserved.then_some("reserved"));
        problem.map_or(Ok(trailer), |name| Err(BadStructure::Field(name)))
    }

    fn problem(&self) -> Option<&'static str> {
        let block = BLOCK_BYTES as u64;
        if self.footer_position < u64::from(FIRST_COMMIT_POSITION)
            || !self.footer_position.is_multiple_of(block)
            || self.footer_position > SEGMENT_BYTES_MAX
        {
            Some("footer_position")
        } else if !self.footer_bytes.is_multiple_of(block) || self.footer_bytes > SEGMENT_BYTES_MAX {
            Some("footer_bytes")
        } else if self.segment_number == 0 {
            Some("segment_number")
        } else if self.first_lsn == 0 || self.first_lsn > self.last_lsn.saturating_add(1) {
            Some("first_lsn")
        } else {
            None
        }
    }
}
